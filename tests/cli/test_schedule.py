"""``divebook schedule``: due times are listed, and started once."""

import json

import pytest

from divebook import Environment
from divebook.stores import open_store
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
    assert json.loads(divebook("schedule", nightly, "--json").stdout)["due"][0]["workflow"] == "tidy"


def test_what_is_due_is_started_once(divebook, nightly):
    first = divebook("schedule", nightly, "--start")
    assert (first.exit_code, "completed" in first.stdout) == (0, True), first.stderr
    again = divebook("schedule", nightly, "--start")
    assert (again.exit_code, again.stdout) == (0, "")
    (run,) = json.loads(divebook("runs", "--json").stdout)["runs"]
    with open_store() as store:
        store.delete(run["id"])
    assert divebook("schedule", nightly, "--start").stdout == ""  # nor again when it was deleted


def test_other_words_are_refused(divebook, nightly):
    assert divebook("schedule", "start", nightly).exit_code == 2


PYTHON = """
from divebook.definitions import ScheduleDefinition
from divebook.definitions import workflow


@workflow
async def label(ctx, day: str):
    return day


nightly = ScheduleDefinition(
    "nightly", cron="0 3 * * *", workflow="label", zone="Asia/Tokyo", inputs={"day": "${schedule.due[:10]}"}
)
"""


def test_schedules_and_workflows_of_a_python_file(divebook, folder):
    path = write(folder / "nightly.py", PYTHON)
    [due] = json.loads(divebook("schedule", path, "--json").stdout)["due"]
    assert (due["workflow"], due["due_at"][10:]) == ("label", "T18:00:00.000Z")  # 3 o'clock in Tokyo
    assert "completed" in divebook("schedule", path, "--start").stdout
    [run] = json.loads(divebook("runs", "--json").stdout)["runs"]
    assert run["key"].startswith("schedule//label/nightly/")
    with open_store() as store:
        [record] = store.records()
        day = Environment(store=store).run_of(record.execution_id).inputs["day"]
    assert len(day) == 10
