"""``divebook schedule``: due times are listed, and started once."""

import json

import pytest

from divebook.store import open_store
from tests.cli.conftest import write

NIGHTLY = """
Workflows: [{Name: tidy, Steps: [{Name: a, Script: '1', Store: n}]}]
Schedules: [{Name: nightly, Cron: '0 3 1 * *', Workflow: tidy}]
"""


@pytest.fixture
def nightly(folder):
    return write(folder / "nightly.yaml", NIGHTLY)


def test_due_times_are_listed_with_the_lines_that_keep_them(divebook, nightly):
    shown = divebook("schedule", nightly)
    assert shown.exit_code == 0
    assert "nightly" in shown.stdout
    assert "systemd-run" in shown.stdout
    assert json.loads(divebook("schedule", nightly, "--json").stdout)[0]["workflow"] == "tidy"


def test_what_is_due_is_started_once(divebook, nightly):
    first = divebook("schedule", "run", nightly)
    assert (first.exit_code, "completed" in first.stdout) == (0, True), first.stderr
    again = divebook("schedule", "run", nightly)
    assert (again.exit_code, again.stdout) == (0, "")
    (run,) = json.loads(divebook("runs", "--json").stdout)
    with open_store() as store:
        store.delete(run["id"])
    assert divebook("schedule", "run", nightly).stdout == ""  # nor again when it was deleted


def test_other_words_are_refused(divebook, nightly):
    assert divebook("schedule", "start", nightly).exit_code == 2
