"""Worker processes that die: those that an execution kills end after the limit, and a wait survives any number."""

import json
import signal
import subprocess
import sys

import pytest

from divebook import Environment
from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.events.catalog import ExecutionResumed
from divebook.runtime.queueing import RESUMPTIONS
from tests.queues.deaths import FUNCTIONS, WORKFLOWS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")

KILLED = -signal.SIGKILL


class Lives:
    """Workers of one store, one after the other."""

    def __init__(self):
        command = [sys.executable, "-m", "tests.queues.deaths"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def worker(self, store, days=0, waiting=0):
        """Return the exit code of a worker, which dies when so many executions wait."""
        self._process.stdin.write(f"{json.dumps([str(store), days, waiting])}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self):
        with self._process:
            self._process.stdin.close()
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def lives():
    lives = Lives()
    yield lives
    lives.close()


@pytest.fixture(autouse=True)
def functions_of_the_workers(monkeypatch):
    """Define the functions of the workflows also if another module has imported them first."""
    for name, function in FUNCTIONS.items():
        monkeypatch.setitem(WORKFLOW_FUNCTIONS, name, function)


def numbers(environment, execution_id):
    payloads = [event.data for event in environment.store.read(execution_id)]
    return [data.recovery for data in payloads if isinstance(data, ExecutionResumed)]


AT_ONCE = ["beside_a_child", "beside_a_timer", "beside_a_signal", "after_its_child", "its_child_dies_at_once"]


def killed_until_withheld(lives, store, execution_id, days=0):
    """Start workers, one after the other, until one survives the execution. Return the number that have died."""
    for deaths in range(2 * RESUMPTIONS.attempts):
        code = lives.worker(store, days)
        if code != KILLED:
            assert code == 0
            with Environment(store=store) as environment:
                assert execution_id in [one.execution_id for one in environment.queues.queued(withheld=True)]
                assert numbers(environment, execution_id)[-RESUMPTIONS.attempts :] == [1, 2, 3]
            return deaths
    raise AssertionError("its workers are killed without limit")


@pytest.mark.parametrize("name", [*AT_ONCE, "own_code_beside_a_timer"])
def test_an_execution_that_kills_its_workers_beside_a_wait_is_withheld(lives, tmp_path, name):
    store = tmp_path / "store.db"
    with Environment(store=store, workflows=WORKFLOWS) as environment:
        execution = environment.enqueue(name).id
    assert killed_until_withheld(lives, store, execution) == 1 + RESUMPTIONS.attempts


@pytest.mark.parametrize("name", ["after_its_signal", "after_its_answer", "after_its_timer"])
def test_an_execution_that_kills_its_workers_after_a_wait_is_withheld(lives, tmp_path, name):
    store = tmp_path / "store.db"
    days = 61 if name == "after_its_timer" else 0
    with Environment(store=store, workflows=WORKFLOWS) as environment:
        execution = environment.enqueue(name).id
        assert lives.worker(store, waiting=1) == KILLED
        if name == "after_its_signal":
            environment.run_of(execution).signal("go")
        if name == "after_its_answer":
            ((_, question),) = environment.inbox()
            environment.answer(question.id, "this", execution)
    # The lease was left, so the first of them counts already if there is a wait to continue.
    assert killed_until_withheld(lives, store, execution, days) in (RESUMPTIONS.attempts, 1 + RESUMPTIONS.attempts)


@pytest.mark.parametrize(
    ("name", "waiting"), [("nap", 1), ("waits_for_its_child", 2), ("waits_in_two_ways", 1), ("branches", 1)]
)
def test_an_execution_that_only_waits_survives_any_number_of_deaths(lives, tmp_path, name, waiting):
    store = tmp_path / "store.db"
    with Environment(store=store, workflows=WORKFLOWS) as environment:
        execution = environment.enqueue(name).id
    for _ in range(2 * RESUMPTIONS.attempts):
        assert lives.worker(store, waiting=waiting) == KILLED
    with Environment(store=store) as environment:
        for record in environment.store.records():
            assert set(numbers(environment, record.execution_id)) == {None}
        assert environment.queues.queued(withheld=True) == []
    assert lives.worker(store, 61) == 0
    with Environment(store=store) as environment:
        assert environment.run_of(execution).status == "completed"
