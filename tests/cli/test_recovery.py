"""Interrupted executions on the command line."""

import json
import re
import shlex

import pytest

from divebook.stores import Owner, open_store
from tests.cli.conftest import write
from tests.left_behind import PAID, leave

ACTIONS = """
from divebook import action

@action('pay')
def pay():
    return 'receipt'
"""


@pytest.fixture
def store(folder):
    return open_store()


def test_interrupted_executions_are_listed_with_how_to_go_on(store, divebook):
    execution_id = leave(store)
    listed = divebook("recover")
    assert execution_id in listed.stdout
    # The printed command is run as it stands.
    assert f"to continue: divebook recover {execution_id}, or all of them: divebook recover --all" in listed.stderr
    assert [run["id"] for run in json.loads(divebook("recover", "--json").stdout)["runs"]] == [execution_id]


def test_one_is_taken_up_and_waited_for(store, divebook):
    chosen, other = leave(store), leave(store)
    done = divebook("recover", chosen)
    assert (done.exit_code, done.stdout) == (0, f"completed  hello  {chosen}\n")
    assert [record.execution_id for record in store.orphans()] == [other]


def test_all_are_taken_up_as_far_as_they_can_be(store, folder, divebook):
    sound, lacking = leave(store), leave(store, PAID)
    done = divebook("recover", "--all")
    assert done.exit_code == 1
    assert f"completed  hello  {sound}" in done.stdout
    assert f'{lacking} was not resumed: action "pay" of step "pay" not found' in done.stderr
    again = divebook("recover", "--all", "--actions", write(folder / "pay.py", ACTIONS))
    assert (again.exit_code, again.stdout) == (0, f"completed  paid  {lacking}\n")
    assert "nothing to recover" in divebook("recover").stderr


def test_what_was_not_interrupted_is_refused(store, divebook):
    execution_id = leave(store)
    divebook("recover", execution_id)
    refused = divebook("recover", execution_id)
    assert refused.exit_code == 2
    assert "is completed, but not interrupted" in refused.stderr


def test_recovering_all_of_nothing_is_no_fault(store, divebook):
    assert divebook("recover", "--all").exit_code == 0


@pytest.mark.parametrize("command", ["recover", "resume", "show"])
def test_a_file_in_place_of_an_id_is_told_where_it_belongs(hello, divebook, command):
    assert divebook("run", hello, "-v", "who=Ann", "-q").exit_code == 0
    wrong = divebook(command, hello)
    told = " ".join(wrong.stderr.split())
    assert wrong.exit_code == 2
    assert "hello.yaml is a file, but the command needs the id of a run: `divebook resume RUN -d FILE`" in told
    assert "`divebook recover RUN -d FILE`" in told
    assert divebook(command, "x" * 5_000).exit_code == 2


def test_what_another_process_drives_has_not_failed_when_something_is_sent_to_it(store, divebook):
    execution_id = leave(store)
    store.acquire(execution_id, Owner("elsewhere", 11, 1, "kernel"), 600)
    sent = divebook("signal", execution_id, "go")
    assert (sent.exit_code, sent.stdout.split()[:3]) == (3, ["hello:", "▸", "running"])
    assert "another process runs this execution and continues it" in " ".join(sent.stderr.split())


def advised(text):
    """Return the shell commands in a text, each as its words without ``divebook``."""
    return [shlex.split(line)[1:] for line in re.findall(r"divebook [a-z-]+(?: [^\s,;]+)*", text)]


def test_the_commands_that_recover_advises_recover_the_run(folder, divebook):
    away = str(folder / "away.db")
    with open_store(away) as elsewhere:
        lacking = leave(elsewhere, PAID)
    listed = divebook("recover", "--store", away)
    one, every = advised(listed.stderr)
    assert one == ["recover", lacking, "-d", "FILE", "--store", away]
    assert every == ["recover", "--all", "-d", "FILE", "--store", away]
    refused = divebook("recover", "--all", "--store", away)
    (again,) = advised(refused.stderr)
    assert again == one
    file = write(folder / "pay.py", ACTIONS)
    done = divebook(*(file if word == "FILE" else word for word in again))
    assert (done.exit_code, done.stdout) == (0, f"completed  paid  {lacking}\n")
