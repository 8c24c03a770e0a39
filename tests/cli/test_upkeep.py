"""Dead processes, damage and old executions on the command line."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from divebook.agents.cache import ResponseCache
from divebook.events.catalog import OperationStarted
from divebook.stores import open_store
from divebook.stores.codec import Sealing
from tests.cli.conftest import write


@pytest.fixture
def ran(hello, divebook):
    """Return the id of an execution that completed."""
    return json.loads(divebook("run", hello, "-v", "who=Ada", "--json", "-q").stdout)["id"]


def test_nothing_to_recover(ran, divebook):
    assert "nothing to recover" in divebook("recover").stderr


STUCK = """
Workflows:
  - Name: stuck
    Steps:
      - {Name: first, Script: 1 + 1, Store: n}
      - {Name: hang, Action: Hang}
"""
HANG = """
import time
from divebook import action

@action('Hang')
def hang():
    time.sleep(600)
"""


def kill_once(run, is_so):
    """End a process by force as soon as something is so."""
    while not (Path(".divebook/executions.db").exists() and is_so()):
        assert run.poll() is None
    run.kill()
    run.wait(timeout=60)


def operations():
    """Return the types of the operations that were begun."""
    store = open_store()
    events = [event for record in store.records() for event in store.read(record.execution_id)]
    return [event.data.operation_type for event in events if isinstance(event.data, OperationStarted)]


def test_an_execution_whose_process_was_killed_is_found_and_taken_up(folder, process, divebook):
    arguments = (write(folder / "stuck.yaml", STUCK), "--actions", write(folder / "hang.py", HANG))
    kill_once(process("run", *arguments), lambda: "action_execution" in operations())
    (orphan,) = json.loads(divebook("recover", "--json").stdout)["runs"]
    assert orphan["workflow"] == "stuck"
    assert "or all of them: divebook recover --all" in divebook("recover").stderr
    assert divebook("cancel", orphan["id"]).exit_code == 0


def test_what_slept_when_its_process_died_is_found_at_once(slow, process, divebook):
    kill_once(process("run", slow), lambda: "timer" in operations())
    (listed,) = json.loads(divebook("runs", "--status", "waiting", "--json").stdout)["runs"]
    (orphan,) = json.loads(divebook("recover", "--json").stdout)["runs"]
    assert orphan["id"] == listed["id"]
    assert divebook("show", listed["id"]).stdout.startswith("slow: … waiting")


def test_a_sound_store_is_said_to_be(ran, divebook):
    checked = divebook("check")
    assert (checked.exit_code, checked.stdout.splitlines()[-1]) == (0, "sound")


def test_damage_is_told_with_its_place_and_what_can_still_be_read(ran, divebook, folder):
    store = open_store()
    store.close()
    with closing(sqlite3.connect(folder / ".divebook" / "executions.db")) as connection, connection:
        (place,) = connection.execute("SELECT place FROM events ORDER BY place LIMIT 1 OFFSET 1").fetchone()
        connection.execute("UPDATE events SET data = ? WHERE place = ?", ('{"output":"forged"}', place))
    checked = divebook("check", "--json")
    report = json.loads(checked.stdout)
    assert (checked.exit_code, report["ok"]) == (1, False)
    assert report["damages"][0]["run_id"] == ran
    assert "events can be read" in divebook("check").stderr


def test_a_backup_is_a_store_that_every_command_takes(ran, divebook, folder):
    backed_up = divebook("backup", "copy.db")
    assert backed_up.stdout.startswith("copy.db: ")
    assert json.loads(divebook("runs", "--json", "--store", "copy.db").stdout)["runs"][0]["id"] == ran
    assert divebook("check", "--store", "copy.db").exit_code == 0
    assert "copy.db exists already" in divebook("backup", "copy.db").stderr


def test_a_backup_of_no_store_is_refused_and_makes_none(folder, divebook):
    assert "there is no store at" in divebook("backup", "copy.db").stderr
    assert not (folder / "copy.db").exists()


def test_gc_says_what_it_would_delete_and_deletes_it(ran, divebook):
    assert "would delete 1 execution with" in divebook("gc", "--keep-last", "0", "--dry-run").stdout
    assert json.loads(divebook("runs", "--json").stdout)["runs"] != []
    assert "deleted 1 execution with" in divebook("gc", "--keep-last", "0").stdout
    assert json.loads(divebook("runs", "--json").stdout)["runs"] == []


def test_gc_keeps_runs_with_another_status(ran, divebook):
    assert (
        "would delete 0 executions"
        in divebook("gc", "--keep-last", "0", "--status", "failed", "--status", "cancelled", "--dry-run").stdout
    )
    assert (
        "would delete 1 execution with"
        in divebook("gc", "--keep-last", "0", "--status", "completed", "--dry-run").stdout
    )
    refused = divebook("gc", "--keep-last", "0", "--status", "running")
    assert (refused.exit_code, "only executions that have ended can be deleted" in refused.stderr) == (2, True)


def test_gc_deletes_responses_that_are_not_used_again(ran, divebook, folder):
    (store,) = folder.glob(".divebook/*.db")
    ResponseCache(store.with_name(f"{store.name}.cache"), Sealing(), lambda: 0.0).keep("long-ago", {}, 60)
    assert "1 responses" not in divebook("gc", "--dry-run").stdout
    assert "and 1 expired model response" in divebook("gc").stdout
    assert "of models" not in divebook("gc").stdout


def test_without_a_limit_gc_deletes_no_execution(ran, divebook):
    assert "deleted 0 executions" in divebook("gc").stdout


@pytest.mark.parametrize("age", ["soon", "d", "-1d"])
def test_a_senseless_age_is_refused(ran, divebook, age):
    assert divebook("gc", "--older-than", age).exit_code == 2
