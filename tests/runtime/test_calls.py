"""The one way to call a person's function: retried, limited in time, wherever it runs; steps and actions alike."""

import multiprocessing
import threading
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor

import anyio
import pytest

from divebook import Environment, Retry, Step, Workflow
from divebook.definitions import step, workflow
from divebook.errors import DefinitionError
from divebook.steps.actions import Action
from divebook.stores import MemoryStore
from tests.runtime.test_resuming import FixedChance, StoppedClock
from tests.runtime.worlds import environment

ONCE = Retry(2, seconds=5, jitter=0)


class Slow:
    """A function that takes as long as it is let; counts how often it began."""

    def __init__(self):
        self.begun, self.end = 0, threading.Event()

    def blocking(self):
        self.begun += 1
        assert self.end.wait(20)
        return "late"

    async def waiting(self):
        self.begun += 1
        await anyio.sleep(20)


@pytest.fixture
def slow():
    made = Slow()
    yield made
    made.end.set()


@pytest.mark.parametrize("kind", ["blocking", "waiting"])
@pytest.mark.parametrize("owner", ["action", "step"])
def test_what_takes_longer_than_its_timeout_fails(slow, kind, owner):
    action = Action("slow", getattr(slow, kind), idempotent=True, timeout=0.02 if owner == "action" else None)
    made = Workflow("w", [Step("s", action="slow", timeout=0.02 if owner == "step" else None)])
    execution = environment(made, actions=[action]).start("w").wait(20)
    assert "took longer than its Timeout of 0.02 seconds" in execution.error
    failed = next(e.data for e in execution.history() if e.event_type == "operation_failed")
    assert failed.error_names[0] == "TimedOutError"
    assert "TimeoutError" in failed.error_names


def test_a_step_function_that_takes_too_long_is_a_timeout_for_the_workflow(slow):
    @step(timeout=0.02, idempotent=True)
    def wait_for_it():
        return slow.blocking()

    @workflow
    async def hasty(ctx):
        return await wait_for_it()

    assert "took longer than its Timeout" in environment().start("hasty").wait(20).error


def test_a_call_that_may_not_be_made_twice_and_takes_too_long_is_asked_about(slow):
    made = Workflow("w", [Step("s", action="slow", timeout=0.02)])
    execution = environment(made, actions=[Action("slow", slow.waiting)]).start("w").wait(20)
    (question,) = execution.open_questions
    assert (question.kind, slow.begun) == ("outcome_unknown", 1)


def test_each_attempt_at_a_step_has_its_whole_timeout(slow):
    made = Workflow("w", [Step("s", action="slow", timeout=0.02, retry=Retry(3, seconds=0))])
    execution = environment(made, actions=[Action("slow", slow.waiting, idempotent=True)]).start("w").wait(20)
    assert (execution.status, slow.begun) == ("failed", 3)


def test_time_limits_stand_in_definitions_like_any_key():
    assert Step("s", action="a", timeout=5).to_dict()["timeout"] == 5
    for refused, hint in (({"seconds": 1}, "write Seconds"), ({"ask": "Why?"}, "write ExpiresIn")):
        with pytest.raises(DefinitionError, match=hint):
            Workflow("w", [Step("s", timeout=5, **refused)])
    with pytest.raises(DefinitionError, match="Timeout must be a number of seconds above 0"):
        Workflow("w", [Step("s", script="1", timeout=0)])
    with pytest.raises(DefinitionError, match="timeout of nap"):
        Action("nap", print, timeout=-1)


def test_the_timeout_of_a_script_is_what_it_may_run():
    made = Workflow("w", [Step("s", script="while True: pass", timeout=0.2)])
    assert "0.2" in environment(made).start("w").wait(20).error


def flaky(failures):
    calls = []

    def attempt(idempotency_key):
        calls.append(idempotency_key)
        if len(calls) <= failures:
            raise ValueError("not yet")
        return len(calls)

    return calls, attempt


def test_an_action_is_tried_again_by_its_own_policy_with_the_same_idempotency_key():
    calls, attempt = flaky(1)
    made = Workflow("w", [Step("s", action="flaky", each=["a", "b"], store="found")])
    clock = StoppedClock()
    world = environment(made, actions=[Action("flaky", attempt, retry=ONCE)], clock=clock, chance=FixedChance())
    execution = world.start("w").wait(20)
    assert execution.variables["found"] == [2, 3]
    assert (len(set(calls)), clock.slept) == (2, [5])


def test_the_retry_of_a_step_holds_in_place_of_its_actions():
    calls, attempt = flaky(5)
    made = Workflow("w", [Step("s", action="flaky", retry=Retry(2, seconds=0))])
    execution = environment(made, actions=[Action("flaky", attempt, retry=Retry(9, seconds=0))]).start("w").wait(20)
    assert (execution.status, len(calls)) == ("failed", 2)


def test_a_step_function_may_take_an_idempotency_key_as_well():
    calls, attempt = flaky(1)
    charge = step("charge", retry=ONCE)(attempt)

    @workflow
    async def paying(ctx):
        return [await charge(), await charge()]

    execution = environment(clock=StoppedClock(), chance=FixedChance()).start("paying").wait(20)
    assert execution.outputs == {"result": [2, 3]}
    assert (calls[0] == calls[1], calls[1] == calls[2]) == (True, False)


def square(n):
    return n * n


def test_functions_run_in_any_executor_and_travel_by_value():
    shipped = step(idempotent=True)(square)

    @workflow
    async def squares(ctx):
        return await ctx.gather(*[shipped(n) for n in range(3)])

    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        made = Workflow("w", [Step("s", action="square", parameters={"n": 7}, store="n")])
        world = environment(made, actions=[Action("square", lambda n: n * n)], executor=pool)
        assert world.start("squares").wait(60, check=True).outputs == {"result": [0, 1, 4]}
        assert world.start("w").wait(60, check=True).variables == {"n": 49}


class Broken(ProcessPoolExecutor):
    """A pool whose process dies with each call."""

    def submit(self, *_):
        future = Future()
        future.set_exception(BrokenExecutor("a process died"))
        return future


def test_a_pool_that_breaks_leaves_an_outcome_unknown():
    world = Environment(store=MemoryStore(), executor=Broken(), actions=[Action("pay", lambda: 1)])
    world.add_workflow(Workflow("w", [Step("s", action="pay")]))
    assert [question.kind for question in world.start("w").wait(20).open_questions] == ["outcome_unknown"]
