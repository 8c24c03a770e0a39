"""What the page offers: only what helps."""

from divebook import Step, Workflow
from divebook.widgets.source import awaited_from_outside, commands_of
from tests.runtime.test_kept_answers import kept
from tests.runtime.worlds import Failing, Gate, environment


def started(*steps, **given):
    return environment(**given).start(Workflow("w", steps)).wait(20)


def test_a_run_that_only_an_answer_helps_on_is_not_offered_to_be_resumed():
    execution = started(Step("s", ask="Which?"))
    assert commands_of(execution) == ["cancel"]
    assert awaited_from_outside(execution) == "Answer the question to continue"


def test_a_run_that_only_a_signal_helps_on_is_not_offered_to_be_resumed():
    execution = started(Step("s", type="wait", signal="go"))
    assert commands_of(execution) == ["cancel"]
    assert awaited_from_outside(execution) == "The run waits for the signal 'go'; send the signal to continue"


def test_a_run_whose_answer_is_kept_can_be_resumed():
    execution = started(Step("s", ask="Which?"))
    kept(execution.store, execution)
    assert commands_of(execution) == ["resume", "cancel"]


def test_a_run_that_failed_or_was_cancelled_can_be_taken_up():
    failed = started(Step("s", action="fail"), actions=[Failing().action()])
    assert (failed.status, commands_of(failed)) == ("failed", ["resume"])
    cancelled = started(Step("s", ask="Which?")).cancel().wait(20)
    assert (cancelled.status, commands_of(cancelled)) == ("cancelled", ["resume"])


def test_a_run_that_completed_can_be_asked_for_nothing():
    assert commands_of(started(Step("s", script="1"))) == []


def test_a_run_that_moved_elsewhere_can_be_asked_for_nothing(tmp_path):
    world = environment()
    execution = world.start(Workflow("w", [Step("s", ask="Which?")])).wait(20)
    world.run_of(execution.id).export(tmp_path / "moved.jsonl", move=True)
    assert commands_of(execution.refresh()) == []


def test_a_live_run_can_be_paused():
    gate = Gate()
    execution = environment(actions=[gate.action()]).start(Workflow("w", [Step("s", action="gate")]))
    assert gate.reached.wait(20)
    offered = commands_of(execution)
    gate.opened.set()
    execution.wait(20)
    assert offered == ["pause", "cancel"]
