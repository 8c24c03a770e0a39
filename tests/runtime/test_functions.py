"""Workflows written as Python functions: run again on resume, answered from the log."""

import asyncio
import threading

import pytest

from divebook import Environment, Retry
from divebook.definitions import step, workflow
from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.errors import DefinitionError, NotFoundError, OperationError
from divebook.stores import MemoryStore
from tests.runtime.test_resuming import FixedChance, StoppedClock, cut

CALLS = []


@pytest.fixture(autouse=True)
def forget():
    known = dict(WORKFLOW_FUNCTIONS)
    CALLS.clear()
    yield
    WORKFLOW_FUNCTIONS.clear()
    WORKFLOW_FUNCTIONS.update(known)


@step(idempotent=True)
def double(n: int) -> int:
    CALLS.append(n)
    return 2 * n


@step(idempotent=True)
async def shout(text):
    CALLS.append(text)
    return text.upper()


def environment(**settings):
    settings.setdefault("store", MemoryStore())
    return Environment(**settings)


def chain():
    @workflow
    async def chain(ctx, n: int, times: int = 2):
        """Double a number again and again."""
        for _ in range(times):
            n = await double(n)
        return {"n": n, "text": await shout(f"got {n}")}

    return chain


def test_a_workflow_function_runs_like_any_workflow():
    made = chain()
    assert (made.name, made.description) == ("chain", "Double a number again and again.")
    assert [(i.name, i.type, i.default) for i in made.inputs] == [("n", "int", None), ("times", "int", 2)]
    execution = environment().start("chain", {"n": 3}).wait(20)
    assert execution.outputs == {"result": {"n": 12, "text": "GOT 12"}}
    assert CALLS == [3, 6, "got 12"]


def test_every_call_is_a_recorded_operation_with_its_arguments():
    chain()
    history = environment().start("chain", {"n": 3}).wait(20).history()
    started = [e.data.parameters for e in history if e.event_type == "operation_started"]
    assert started[0] == {"step": "double", "arguments": {"n": 3}}
    assert [parameters["step"] for parameters in started] == ["double", "double", "shout"]


def whole_run():
    made = chain()
    execution = environment().start(made, {"n": 3}).wait(20)
    return made, execution


@pytest.mark.parametrize("length", range(1, 14))
def test_wherever_it_stopped_finished_calls_are_not_made_again(length):
    _, execution = whole_run()
    store = cut(execution.store, execution, min(length, execution.state.last_sequence - 1))
    done = sum(e.event_type == "operation_completed" for e in store.read(execution.id))
    CALLS.clear()
    resumed = Environment(store=store).run_of(execution.id).resume().wait(20)
    assert resumed.outputs == execution.outputs
    assert len(CALLS) == 3 - done


def test_outside_a_workflow_a_step_is_an_ordinary_function():
    assert double(4) == 8
    assert asyncio.run(shout("x")) == "X"


def test_ordinary_functions_run_in_threads_and_steps_inside_steps_are_ordinary_calls():
    threads = []

    @step
    def inner():
        threads.append(threading.current_thread().name)
        return double(1)

    @workflow
    async def nested(ctx):
        return await inner()

    execution = environment().start("nested").wait(20)
    assert execution.outputs == {"result": 2}
    assert threads[0] != "divebook-engine"
    assert sum(e.event_type == "operation_started" for e in execution.history()) == 1


def test_gathered_calls_keep_their_places_whatever_ends_first():
    @workflow
    async def fan(ctx):
        return await ctx.gather(*[double(n) for n in range(5)])

    execution = environment().start("fan").wait(20)
    assert execution.outputs == {"result": [0, 2, 4, 6, 8]}
    keys = [e.data.key for e in execution.history() if e.event_type == "operation_started"]
    assert sorted(keys) == [f"call-{n}" for n in range(1, 6)]


def test_time_chance_and_sleep_are_recorded():
    @workflow
    async def timed(ctx):
        before = await ctx.now()
        await ctx.sleep(30)
        return [(await ctx.now() - before).total_seconds(), await ctx.random()]

    clock = StoppedClock()
    execution = environment(clock=clock, chance=FixedChance()).start("timed").wait(20)
    waited, chance = execution.outputs["result"]
    assert (waited, clock.slept) == (30, [30])
    assert 0 <= chance < 1
    length = execution.state.last_sequence - 4
    again = Environment(store=cut(execution.store, execution, length)).run_of(execution.id).resume().wait(20)
    assert again.outputs == execution.outputs


def test_a_failed_call_is_tried_again_and_its_attempts_are_not_repeated_on_resume():
    @step(retry=Retry(3, seconds=5, jitter=0), idempotent=True)
    def flaky():
        CALLS.append("flaky")
        if len(CALLS) < 3:
            raise ValueError(f"failure {len(CALLS)}")
        return "ok"

    @workflow
    async def stubborn(ctx):
        return [await flaky(), await double(1)]

    clock = StoppedClock()
    execution = environment(clock=clock, chance=FixedChance()).start("stubborn").wait(20)
    assert execution.outputs == {"result": ["ok", 2]}
    assert clock.slept == [5, 10]
    length = next(e.sequence for e in reversed(execution.history()) if e.event_type == "operation_started")
    calls = len(CALLS)
    again = Environment(store=cut(execution.store, execution, length)).run_of(execution.id).resume().wait(20)
    assert again.outputs == execution.outputs
    assert len(CALLS) == calls + 1


def test_a_failure_that_the_function_handles_is_handled_the_same_way_on_resume():
    @step(idempotent=True)
    def broken():
        CALLS.append("broken")
        raise ValueError("no luck")

    @workflow
    async def careful(ctx):
        try:
            await broken()
        except OperationError as error:
            told = str(error)
        return [told, await double(2)]

    execution = environment().start("careful").wait(20)
    assert execution.outputs == {"result": ["no luck", 4]}
    length = next(e.sequence for e in execution.history() if e.event_type == "operation_failed")
    CALLS.clear()
    again = Environment(store=cut(execution.store, execution, length)).run_of(execution.id).resume().wait(20)
    assert again.outputs == execution.outputs
    assert CALLS == [2]


def test_an_execution_that_failed_goes_on_at_the_call_that_failed():
    broken = [True]

    @step
    def fragile():
        CALLS.append("fragile")
        if broken:
            raise ValueError("no luck")
        return 1

    @workflow
    async def brittle(ctx):
        return await double(5) + await fragile()

    world = environment()
    execution = world.start("brittle").wait(20)
    assert (execution.status, "no luck" in execution.error) == ("failed", True)
    broken.clear()
    assert world.run_of(execution.id).resume().wait(20).outputs == {"result": 11}
    assert CALLS == [5, "fragile", "fragile"]


def test_a_call_whose_outcome_is_unknown_is_asked_about():
    @step
    def pay():
        CALLS.append("pay")
        return "receipt"

    @workflow
    async def shop(ctx):
        return await pay()

    execution = environment().start("shop").wait(20)
    length = next(e.sequence for e in execution.history() if e.event_type == "operation_started")
    world = Environment(store=cut(execution.store, execution, length))
    (question,) = world.run_of(execution.id).resume().wait(20).open_questions
    answered = world.answer(question.id, {"choice": "done", "result": "seen"}).wait(20)
    assert answered.outputs == {"result": "seen"}
    assert CALLS == ["pay"]


def test_a_workflow_can_run_another_one():
    chain()

    @workflow
    async def parent(ctx):
        child = await ctx.run("chain", {"n": 1})
        return child["result"]["n"]

    world = environment()
    assert world.start("parent").wait(20).outputs == {"result": 4}
    assert {record.workflow_name for record in world.store.records()} == {"parent", "chain"}


def test_a_changed_function_that_asks_for_something_else_diverges():
    _, execution = whole_run()

    @workflow
    async def chain(ctx, n: int, times: int = 2):
        return await shout("something else")

    length = next(e.sequence for e in reversed(execution.history()) if e.event_type == "operation_completed")
    resumed = Environment(store=cut(execution.store, execution, length)).run_of(execution.id).resume().wait(20)
    assert resumed.status == "failed"
    assert "the code no longer matches the log at step 'chain'" in resumed.error


def test_a_function_that_this_process_lacks_is_told():
    _, execution = whole_run()
    WORKFLOW_FUNCTIONS.clear()
    world = Environment(store=cut(execution.store, execution, 5))
    with pytest.raises(DefinitionError, match="run the cell or import the module that defines it"):
        world.run_of(execution.id).resume()


def test_what_is_no_workflow_function_is_refused():
    with pytest.raises(DefinitionError, match="must be an async function"):
        workflow(lambda ctx: None)
    with pytest.raises(DefinitionError, match="has no context"):

        @workflow
        async def nothing():
            return 1

    with pytest.raises(DefinitionError, match="cannot be an input"):

        @workflow
        async def many(ctx, *args):
            return 1


@pytest.mark.parametrize(
    ("first", "is_context"),
    [
        ("ctx", True),
        ("_ctx", True),
        ("run_context", True),
        ("_", True),
        ("c: 'Context'", True),
        ("_ctx: object", True),
        ("c", True),
        ("rows: list", False),
        ("ctx: int", False),
        ("ctx=None", False),
        ("*rows", False),
    ],
)
def test_a_first_parameter_that_is_an_input_is_told_when_the_workflow_is_defined(first, is_context):
    names = {}
    exec(f"async def flow({first}): pass", names)
    if is_context:
        assert workflow(names["flow"]).inputs == ()
        return
    with pytest.raises(
        DefinitionError, match=r"must be its context, not the input '\w+' \(write `async def flow\(ctx, "
    ):
        workflow(names["flow"])


def test_wrong_arguments_of_a_step_are_told():
    @workflow
    async def wrong(ctx):
        return await double(m=1)

    assert "step double" in environment().start("wrong").wait(20).error


def test_an_unknown_workflow_suggests_a_function():
    chain()
    with pytest.raises(NotFoundError, match="did you mean 'chain'"):
        environment().start("chian")


def test_the_fingerprint_follows_the_source():
    first = chain()

    @workflow(name="chain")
    async def other(ctx, n: int, times: int = 2):
        return n

    assert first.fingerprint != other.fingerprint


def test_a_step_function_that_breaks_off_is_asked_about():
    calls = []

    @step
    async def pay():
        calls.append("pay")
        raise TimeoutError("no answer")

    @workflow
    async def paying(ctx):
        try:
            await pay()
        except OperationError as error:
            return str(error)

    world = environment()
    execution = world.start("paying").wait(20)
    assert (execution.status, world.run_of(execution.id).resume().wait(20).status, calls) == (
        "waiting",
        "waiting",
        ["pay"],
    )
    answered = world.answer(execution.open_questions[0].id, {"choice": "fail", "error": "it did not"}).wait(20)
    assert (answered.outputs, calls) == ({"result": "it did not"}, ["pay"])


@pytest.mark.parametrize("fails", [False, True])
def test_calls_in_a_task_group_of_its_own_are_asked_about_like_others(fails):
    @step
    async def pay(number):
        raise (ValueError("no money") if fails and number else TimeoutError("no answer"))

    @workflow
    async def paying(ctx):
        async with asyncio.TaskGroup() as tasks:
            for number in range(2):
                tasks.create_task(pay(number))

    execution = environment().start("paying").wait(20)
    assert execution.status == ("failed" if fails else "waiting")
    assert len(execution.open_questions) == (1 if fails else 2)
