"""Waiting that ends too early, and processes that end before their executions."""

import atexit
import os
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest

from divebook import Step, Workflow
from divebook.errors import StoreError
from divebook.runtime.driver import ExitNotice
from divebook.stores.memory import MemoryStore
from tests.runtime.worlds import Gate, environment

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys, threading
from divebook import Environment, Step, Workflow
from divebook.steps.actions import Action
store, wait = sys.argv[1], sys.argv[2] == "wait"
reached = threading.Event()
async def hang():
    import asyncio
    reached.set()
    await asyncio.sleep(0 if wait else 600)
world = Environment(store=store, actions=[Action("hang", hang)])
execution = world.start(Workflow("w", [Step("a", action="hang")]))
reached.wait(20)
if wait:
    execution.wait(20)
print(execution.id)
"""


def test_a_wait_that_is_over_says_what_goes_on():
    gate = Gate()
    execution = environment(actions=[gate.action()]).start(Workflow("w", [Step("a", action="gate")]))
    assert gate.reached.wait(20)
    with pytest.raises(TimeoutError) as caught:
        execution.wait(0.001)
    assert (
        str(caught.value)
        == f"execution {execution.id} is running after 0.001 s, and continues: call wait() again, or cancel()"
    )
    gate.opened.set()
    assert execution.wait(20).status == "completed"


def leave(store, how, folder):
    """Run the script in a process of its own; return the execution's id and what was said at the end."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT, str(store), how]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environ, cwd=folder)
    return done.stdout.strip(), done.stderr


def test_a_process_that_leaves_an_execution_behind_says_so(tmp_path):
    execution_id, said = leave(tmp_path / "x.db", "leave", tmp_path)
    assert said == (
        f"divebook: the process ends while execution {execution_id} is running. To continue: "
        f"divebook resume {execution_id} --store {tmp_path / 'x.db'}. Call wait() to let a run end before the process "
        "does\n"
    )


class Ending:
    """An execution whose end is being written down when the process ends."""

    id, status, started_by, is_live, first_commit = "exec_1", "completed", None, True, None

    def __init__(self, error):
        self.error, self.store = error, MemoryStore()

    def driving(self):
        written, self.is_live = Future(), self.error is not None
        if self.error is None:
            written.set_result(None)
        else:
            written.set_exception(self.error)
        return written


@pytest.mark.parametrize("error", [None, TimeoutError(), StoreError("the disk is full")])
def test_an_execution_that_has_just_ended_is_left_behind_only_if_that_cannot_be_written_down(error, capsys):
    farewell = ExitNotice()
    farewell.add(ending := Ending(error))
    atexit.unregister(farewell.print_running)
    farewell.print_running()
    assert (ending.id in capsys.readouterr().err) == (error is not None)


class Beginning:
    """An execution whose start is not stored, because the store does not respond."""

    id, started_by, is_live = "exec_1", None, True

    def __init__(self):
        self.first_commit = Future()

    @property
    def status(self):
        raise AssertionError("this would wait for the store")


def test_a_store_that_does_not_respond_does_not_keep_a_process_from_its_end(capsys, monkeypatch):
    monkeypatch.setattr("divebook.runtime.driver.MOMENT_SECONDS", 0)
    notice = ExitNotice()
    notice.add(execution := Beginning())
    atexit.unregister(notice.print_running)
    notice.print_running()
    assert f"before the start of execution {execution.id} is stored" in capsys.readouterr().err


ENDING = """
import atexit, sys
atexit.register(lambda: print(store.closed, len(store.read(execution.id)) if not store.closed else None))  # called last
exec(sys.stdin.read())
store = world.store
"""


@pytest.mark.parametrize(("how", "is_closed"), [("leave", False), ("wait", True)])
def test_a_process_that_ends_while_executions_run_leaves_its_store_open(tmp_path, how, is_closed):
    command = [sys.executable, "-c", ENDING, str(tmp_path / "x.db"), how]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, input=SCRIPT, capture_output=True, text=True, check=True, timeout=60, env=environ)
    events = done.stdout.split()[2]
    assert done.stdout.split()[1] == str(is_closed)
    assert is_closed or int(events) >= 3


def test_what_was_only_in_memory_is_said_to_be_lost(tmp_path):
    execution_id, said = leave("memory:", "leave", tmp_path)
    assert said.startswith(
        f"divebook: the process ends while execution {execution_id} is running. Its log was in memory and is lost"
    )


def test_a_process_that_waited_says_nothing(tmp_path):
    assert leave(tmp_path / "x.db", "wait", tmp_path)[1] == ""
