"""Trying again, and going another way."""

import pytest

from divebook import Catch, Each, Environment, Retry, Step, Workflow
from divebook.engine.retries import Fault, catching, retry_delay
from divebook.errors import DefinitionError, NotFoundError, StepError
from divebook.steps.actions import Action
from tests.runtime.test_resuming import FixedChance, StoppedClock, cut
from tests.runtime.worlds import environment, event_types


class Flaky:
    """An action that fails a number of times."""

    def __init__(self, failures, error=RuntimeError, **attributes):
        self.failures, self.error, self.attributes, self.calls = failures, error, attributes, 0

    def action(self, name="flaky", **settings):
        async def flaky(value=None):
            self.calls += 1
            if self.calls <= self.failures:
                error = self.error(f"failure {self.calls}")
                vars(error).update(self.attributes)
                raise error
            return value

        return Action(name, flaky, **settings)


def run(*steps, actions=(), clock=None):
    clock = clock or StoppedClock()
    return environment(actions=actions, clock=clock, chance=FixedChance()).start(Workflow("w", steps)).wait(20), clock


def test_a_step_is_tried_again_with_growing_delays():
    flaky = Flaky(2)
    retry = Retry(attempts=3, seconds=1, factor=10, jitter=0)
    execution, clock = run(
        Step("a", action="flaky", parameters={"value": 7}, retry=retry, store="v"), actions=[flaky.action()]
    )
    assert (execution.status, execution.variables, flaky.calls, clock.slept) == ("completed", {"v": 7}, 3, [1, 10])


def test_every_attempt_is_an_operation_of_its_own():
    execution, _ = run(Step("a", action="flaky", retry=Retry(2, seconds=0)), actions=[Flaky(1).action()])
    started = [e.data.operation_id for e in execution.history() if e.event_type == "operation_started"]
    assert len(set(started)) == 2
    assert event_types(execution)[2:9] == [
        "step_started", "operation_started", "operation_failed", "step_retried",
        "operation_started", "operation_completed", "step_completed",
    ]  # fmt: skip


def test_attempts_come_to_an_end():
    flaky = Flaky(99)
    execution, _ = run(Step("a", action="flaky", retry=Retry(3, seconds=0)), actions=[flaky.action()])
    assert (execution.status, flaky.calls) == ("failed", 3)
    assert "failure 3" in execution.error


def test_only_named_errors_are_worth_another_attempt():
    flaky = Flaky(1, ValueError)
    step = Step("a", action="flaky", retry=Retry(3, seconds=0, errors=["LookupError", "busy"]))
    assert (run(step, actions=[flaky.action()])[0].status, flaky.calls) == ("failed", 1)
    flaky = Flaky(1, KeyError)
    assert (run(step, actions=[flaky.action()])[0].status, flaky.calls) == ("completed", 2)


def test_whoever_failed_may_ask_for_a_longer_delay():
    flaky = Flaky(1, retry_after=90)
    _, clock = run(Step("a", action="flaky", retry=Retry(2, seconds=1)), actions=[flaky.action()])
    assert clock.slept == [90]


def test_jitter_comes_from_the_engines_chance_and_is_recorded():
    execution, clock = run(
        Step("a", action="flaky", retry=Retry(2, seconds=10, jitter=0.5)), actions=[Flaky(1).action()]
    )
    (delay,) = [e.data.delay for e in execution.history() if e.event_type == "step_retried"]
    assert clock.slept == [delay]
    assert 10 < delay < 15


def test_finished_items_are_not_run_again_with_the_step():
    flaky = Flaky(0)
    seen = []

    async def sometimes(value):
        seen.append(value)
        if seen == ["1", "2"]:
            raise RuntimeError("once")
        return value

    step = Step(
        "a",
        action="act",
        parameters={"value": "${i}"},
        each=Each([1, 2, 3], as_="i"),
        retry=Retry(2, seconds=0),
        store="r",
    )
    execution, _ = run(step, actions=[Action("act", sometimes), flaky.action()])
    assert execution.variables == {"r": ["1", "2", "3"]}
    assert seen == ["1", "2", "2", "3"]


def test_a_delay_survives_the_process_and_is_waited_for_once():
    flaky = Flaky(1)
    execution, _ = run(
        Step("a", action="flaky", retry=Retry(2, seconds=3600, max_seconds=7200, jitter=0)), actions=[flaky.action()]
    )
    length = next(e.sequence for e in execution.history() if getattr(e.data, "operation_type", "") == "timer")
    later = StoppedClock(execution.history()[length - 1].recorded_at + 3_000_000_000)
    world = Environment(
        store=cut(execution.store, execution, length), actions=[Flaky(0).action()], clock=later, chance=FixedChance(3)
    )
    resumed = world.run_of(execution.id).resume().wait(20)
    assert (resumed.status, later.slept) == ("completed", [600])


def test_a_caught_failure_goes_another_way_with_the_error_as_data():
    steps = [
        Step("a", action="flaky", catch=Catch("rescue", store="problem"), retry=Retry(2, seconds=0)),
        Step("never", script="1", store="never", end=True),
        Step("rescue", script="state.problem.message", store="told"),
    ]
    execution, _ = run(*steps, actions=[Flaky(99).action()])
    assert execution.status == "completed"
    assert execution.variables["problem"] == {
        "type": "RuntimeError",
        "message": "action flaky failed: RuntimeError: failure 2",
        "step": "a",
        "attempts": 2,
    }
    assert "never" not in execution.variables
    assert "step_caught" in event_types(execution)


def test_the_first_policy_that_fits_catches():
    step = Step("a", script="1", catch=[Catch("x", errors=["KeyError"]), Catch("y")])
    assert catching(step, Fault.of(KeyError("k"), "k")).step == "x"
    assert catching(step, Fault.of(ValueError("v"), "v")).step == "y"


def test_what_catches_can_be_a_join():
    steps = [
        Step("a", script="1", next=["b", "c"]),
        Step("b", action="flaky", catch="j", end=True),
        Step("c", script="2", next="j"),
        Step("j", script="'joined'", join=True, store="j"),
    ]
    execution, _ = run(*steps, actions=[Flaky(9).action()])
    assert (execution.status, execution.variables["j"]) == ("completed", "joined")


@pytest.mark.parametrize("error", [NotFoundError("action", "x"), StepError("plain")])
def test_hopeless_errors_are_not_tried_again(error):
    step = Step("a", script="1", retry=Retry(3))
    hopeless = isinstance(error, NotFoundError)
    assert (retry_delay(step.retry, 1, Fault.of(error, str(error)), 0.0) is None) is hopeless


def test_delays_grow_to_a_limit():
    retry = Retry(attempts=10, seconds=1, factor=2, max_seconds=5)
    assert [retry.delay(n) for n in range(1, 6)] == [1, 2, 4, 5, 5]


def test_policies_are_read_from_yaml_and_python_alike():
    from divebook.definitions import read_workflow

    text = """
Steps:
  - Name: a
    Script: "1"
    Retry: {Attempts: 4, Seconds: 0.5, Errors: [TimeoutError]}
    Catch: [{Step: b, Errors: [KeyError], Store: e}]
  - Name: b
    Script: "2"
"""
    retry, catch = Retry(4, seconds=0.5, errors=("TimeoutError",)), Catch("b", ("KeyError",), "e")
    expected = Workflow("w", [Step("a", script="1", retry=retry, catch=catch), Step("b", script="2")])
    found = read_workflow(text, name="w")
    assert found == expected
    assert Workflow.from_dict(found.to_dict()) == found
    assert found.fingerprint != Workflow("w", [Step("a", script="1"), Step("b", script="2")]).fingerprint


def test_senseless_policies_are_refused():
    with pytest.raises(DefinitionError, match="Attempts must be an integer from 1"):
        Retry(attempts=0)
    with pytest.raises(DefinitionError, match="must be a number of seconds from 0"):
        Retry(seconds=-1)
