"""What another process drives: it is waited for, its questions are answered, and what cannot be done says what can."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import ExecutionError
from divebook.queues import Worker
from divebook.steps.actions import Action
from divebook.stores import SqliteStore
from tests.runtime.worlds import Gate, becomes

PATIENCE = 20
ASK = Workflow("ask", [Step("ask", ask="Which one?", store="answer")])
PARENT = Workflow("parent", [Step("call", workflow="ask", store="got")])
ROOT = Path(__file__).parent.parent.parent
DRIVER = """
import sys, threading
from divebook import Environment, Step, Workflow
from divebook.steps.actions import Action
def hold():
    sys.stdin.readline()
steps = [Step("hold", action="hold"), Step("ask", ask="Which?", store="said"), Step("again", ask="Sure?", store="sure")]
environment = Environment(store="s.db", actions=[Action("hold", hold, idempotent=True)])
execution = environment.start(Workflow("asks", steps))
print(execution.id, flush=True)
while execution.wait().status != "completed":
    threading.Event().wait(0.01)
"""
HELD = Workflow("asks", [Step("ask", ask="Which?", store="said")])


@pytest.fixture
def driven(tmp_path):
    """Return what drives an execution in another process, its id, and an environment here over the same file."""
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        name = process.stdout.readline().strip()
        hold = Action("hold", lambda: None, idempotent=True)  # whoever is free goes on with an answer
        environment = Environment(store=tmp_path / "s.db", actions=[hold])
        yield process, name, environment
        process.kill()
        environment.store.close()


def go_on(process):
    process.stdin.write("\n")
    process.stdin.flush()


def test_what_another_process_drives_is_waited_for(driven):
    process, name, environment = driven
    execution = environment.run_of(name)
    with pytest.raises(TimeoutError, match=r"is running after 0\.2 s, and continues"):
        execution.wait(0.2)
    go_on(process)
    assert execution.wait(20).status == "waiting"
    assert [question.question for question in execution.open_questions] == ["Which?"]


def test_what_another_environment_of_this_process_drives_is_waited_for(tmp_path):
    gate = Gate()
    held = Workflow("held", [Step("ask", ask="Which?", store="said"), Step("gate", action="gate")])
    first, second = (
        Environment(store=SqliteStore(tmp_path / "s.db"), workflows=[held], actions=[gate.action()]) for _ in range(2)
    )
    asking = first.start(held).wait(PATIENCE)
    here = second.run_of(asking.id).resume().wait(PATIENCE)
    first.answer(asking.open_questions[0].id, "yes", asking.id)
    assert gate.reached.wait(PATIENCE)
    with pytest.raises(TimeoutError):
        here.wait(0.2)
    gate.opened.set()
    assert here.wait(PATIENCE).status == "completed"


def test_who_waits_for_a_process_that_dies_hears_of_it(driven):
    process, name, environment = driven
    threading.Timer(0.3, process.kill).start()
    with pytest.raises(ExecutionError, match=r"is interrupted: its process has ended, .* to continue: run\.resume"):
        environment.run_of(name).wait(20)
    with pytest.raises(ExecutionError, match=r"is interrupted: its process has ended, .* to continue: run\.resume"):
        environment.run_of(name).wait(20)


def test_a_question_that_is_listed_is_answered_whoever_asked_it(driven):
    process, name, environment = driven
    execution = environment.run_of(name)  # what is known of it here has no question
    go_on(process)
    for text in ("Which?", "Sure?"):
        assert becomes(lambda text=text: _asked(environment, name, text))
        environment.answer(_asked(environment, name, text)[0].id, "this")
    assert becomes(lambda: execution.refresh().status == "completed")


def _asked(environment, name, text):
    return [found for where, found in environment.inbox() if where == name and found.question == text]


def test_a_pause_says_who_can_make_it(driven):
    process, name, environment = driven
    said = rf"is driven by .* \(process {process.pid} on .*\).*; pause it there, or cancel it here"
    with pytest.raises(ExecutionError, match=said):
        environment.run_of(name).pause()
    with pytest.raises(ExecutionError, match="it does nothing until it is started"):
        environment.create(HELD).pause()


class TakenMeanwhile(SqliteStore):
    """A store in which, once, a worker takes a message in just before somebody asks whether one is left."""

    meanwhile = None

    def has_untaken(self, execution_id):
        if self.meanwhile is not None and super().has_untaken(execution_id):
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return super().has_untaken(execution_id)


@pytest.mark.parametrize("workflow", [ASK, PARENT], ids=lambda workflow: workflow.name)
def test_what_is_answered_is_not_taken_for_waiting_while_a_worker_takes_the_answer_in(workflow, tmp_path):
    place, both = tmp_path / "s.db", [ASK, PARENT]
    with TakenMeanwhile(place) as store, Environment(store=place, workflows=both) as there:
        here = Environment(store=store)
        execution = there.enqueue(workflow)
        with Worker(there):
            assert execution.wait(PATIENCE).status == "waiting"
        seen = here.run_of(execution.id)
        ((_, asked),) = here.inbox()
        here.answer(asked.id, "this one")
        working = Worker(there)

        def take():
            working.start_thread()
            assert becomes(lambda: there.store.record(execution.id).status == "completed")

        store.meanwhile = take
        try:
            assert seen.wait(PATIENCE).status == "completed"
        finally:
            working.drain()
        assert store.meanwhile is None


def test_the_end_that_another_environment_gave_a_waiting_execution_is_seen(tmp_path):
    """The execution was started here and waits for an answer; the other environment answers and drives it."""
    with SqliteStore(tmp_path / "s.db") as store, SqliteStore(tmp_path / "s.db") as other_store:
        execution = Environment(store=store, workflows=[ASK]).start("ask").wait(PATIENCE)
        other = Environment(store=other_store, workflows=[ASK])
        other.answer(execution.open_questions[0].id, "this")
        assert other.run_of(execution.id).wait(PATIENCE).status == "completed"
        assert execution.wait(PATIENCE).status == "completed"
        assert execution.variables == {"answer": "this"}
