"""What `Run.wait` and `Run.result` say about a run for each reason to wait.

`wait` returns when the run has ended, or when nothing in this process continues it at present. `result` also waits
until time limits of questions and signals have passed. The clock stands still until a test sets it, so that no time
limit passes by chance.
"""

import asyncio

import pytest

from divebook import Each, Step, Workflow, workflow
from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.errors import ExecutionError, ExecutionPausedError, ExecutionWaitingError
from divebook.queues import Worker
from divebook.stores import MemoryStore
from tests.runtime.test_expiring import HOUR, Watch
from tests.runtime.worlds import Gate, becomes, environment

PATIENCE = 20
MOMENT = 0.05
"""Seconds after which a run that must not continue is looked at."""


@workflow("wait_asks")
async def asks(ctx):
    return await ctx.ask("Who?")


@workflow("wait_expires")
async def expires(ctx):
    response = await ctx.interrupt("clarification", "Who?", expires_in=60, default="ann")
    return response["text"]


@workflow("wait_sleeps")
async def sleeps(ctx):
    await ctx.sleep(60)
    return "awake"


@workflow("wait_signals")
async def signals(ctx):
    return await ctx.wait_signal("go")


@workflow("wait_signals_within")
async def signals_within(ctx):
    try:
        return await ctx.wait_signal("go", within=60)
    except TimeoutError as error:
        return type(error).__name__


@workflow("wait_parent")
async def parent(ctx, child: str):
    return (await ctx.run(child))["result"]


@workflow("wait_gathers")
async def gathers(ctx):
    return await ctx.gather(ctx.interrupt("clarification", "Who?", expires_in=60, default="ann"), ctx.wait_signal("go"))


ITEMS = Workflow(
    "wait_items",
    [
        Step(
            "ask",
            each=Each([1, 2], as_="item", parallel=2),
            ask={"question": "Who is ${item}?", "expires_in": 60, "default": "ann"},
            store="who",
        )
    ],
    outputs=["who"],
)
FUNCTIONS = [asks, expires, sleeps, signals, signals_within, parent, gathers]
DEFINED = {function.name: WORKFLOW_FUNCTIONS[function.name] for function in FUNCTIONS}


@pytest.fixture(autouse=True)
def _defined():
    """Other tests forget what is defined in this process."""
    known = dict(WORKFLOW_FUNCTIONS)
    WORKFLOW_FUNCTIONS.update(DEFINED)
    yield
    WORKFLOW_FUNCTIONS.clear()
    WORKFLOW_FUNCTIONS.update(known)


def started(name, **inputs):
    clock = Watch()
    made = environment(*FUNCTIONS, ITEMS, clock=clock)
    return made.start(name, inputs), clock


def awaited(run):
    async def wait():
        return await asyncio.wait_for(run, PATIENCE)

    return asyncio.run(wait())


# Inputs of each run that waits for a person or a signal. The value is None without a time limit, otherwise the result
# after it.
WAITING = [
    ("wait_asks", {}, None),
    ("wait_expires", {}, "ann"),
    ("wait_signals", {}, None),
    ("wait_signals_within", {}, "TimeoutError"),
    ("wait_parent", {"child": "wait_asks"}, None),
    ("wait_parent", {"child": "wait_expires"}, "ann"),
    ("wait_parent", {"child": "wait_signals_within"}, "TimeoutError"),
    ("wait_items", {}, ["ann", "ann"]),
]
WAYS = {"wait": lambda run: run.wait(PATIENCE), "await": awaited}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "inputs", "result"), WAITING)
def test_a_run_that_waits_for_a_person_or_a_signal_is_waiting_until_its_time_limit(name, inputs, result, way):
    run, clock = started(name, **inputs)
    assert WAYS[way](run).status == "waiting"
    clock.at += HOUR
    # Immediately after the time limit, before anything here can have continued the run.
    assert WAYS[way](run).status == ("waiting" if result is None else "completed")


@pytest.mark.parametrize(("name", "inputs", "result"), WAITING)
def test_a_result_is_waited_for_until_the_time_limit(name, inputs, result):
    run, clock = started(name, **inputs)
    if result is None:
        with pytest.raises(ExecutionWaitingError):
            run.result(PATIENCE)
        return
    with pytest.raises(TimeoutError, match=rf"{run.id} is waiting for .* after 0.05 s, and continues"):
        run.result(MOMENT)
    clock.at += HOUR
    assert run.result(PATIENCE) == result


def test_the_time_limit_of_one_call_does_not_end_the_wait_for_another():
    run, clock = started("wait_gathers")
    assert run.wait(PATIENCE).status == "waiting"
    clock.at += HOUR
    assert run.wait(PATIENCE).status == "waiting"
    assert run.open_questions == []
    with pytest.raises(ExecutionWaitingError, match="the signal 'go'"):
        run.result(PATIENCE)


@pytest.mark.parametrize("name", ["wait_sleeps", "parent"])
def test_a_run_that_sleeps_is_waited_for(name):
    run, clock = started("wait_parent", child="wait_sleeps") if name == "parent" else started(name)
    for call in (run.wait, run.result):
        with pytest.raises(TimeoutError, match="and continues"):
            call(MOMENT)
    clock.at += HOUR
    assert run.result(PATIENCE) == "awake"


def test_a_parent_is_waited_for_while_the_child_works_after_its_answer():
    gate = Gate()

    @workflow("wait_child_works")
    async def child_works(ctx):
        await ctx.ask("Who?")
        return await ctx.run("wait_gate")

    workflows = [child_works, parent, Workflow("wait_gate", [Step("gate", action="gate")])]
    with environment(*workflows, actions=[gate.action()]) as made:
        run = made.start("wait_parent", {"child": "wait_child_works"}).wait(PATIENCE)
        (child,) = run.children
        child.answer(child.open_questions[0].id, "ann")
        assert gate.reached.wait(PATIENCE)
        with pytest.raises(TimeoutError, match="and continues"):
            run.wait(MOMENT)
        gate.opened.set()
        assert run.wait(PATIENCE).status == "completed"


def test_a_paused_run_is_not_waited_for():
    gate = Gate()
    workflow_ = Workflow("w", [Step("gate", action="gate"), Step("ask", ask={"question": "Who?", "expires_in": 60})])
    clock = Watch()
    with environment(workflow_, actions=[gate.action()], clock=clock) as made:
        run = made.start("w")
        assert gate.reached.wait(PATIENCE)
        run.pause()
        gate.opened.set()
        assert run.wait(PATIENCE).state.paused is not None
        clock.at += HOUR
        assert run.wait(PATIENCE).state.paused is not None
        with pytest.raises(ExecutionPausedError):
            run.result(PATIENCE)


def test_a_run_in_a_queue_is_waited_for_until_workers_leave_it_alone():
    with environment(Workflow("w", [Step("note", script="1")])) as made:
        run = made.enqueue("w")
        with pytest.raises(TimeoutError, match=r"is enqueued after 0\.05 s"):
            run.result(MOMENT)
        made.store.withhold(run.id)
        for wait in WAYS.values():
            with pytest.raises(
                ExecutionError, match=rf"{run.id} is enqueued: workers stopped retrying it.*to continue: run.resume"
            ):
                wait(run)


def test_closing_an_environment_ends_the_wait_for_a_time_limit():
    run, _ = started("wait_expires")
    run.wait(PATIENCE)
    control = run._control
    waiting = control.next_continuation(run._driver, float("inf"))
    assert waiting is not None
    run.environment.close()
    assert becomes(waiting.done)
    with pytest.raises(ExecutionWaitingError):
        run.result(PATIENCE)


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_continues_a_run_of_its_queue_at_its_time_limit(way):
    clock, store = Watch(), MemoryStore()
    with (
        environment(expires, store=store, clock=clock) as made,
        environment(expires, store=store, clock=clock) as other,
    ):
        run = made.enqueue("wait_expires")
        with Worker(other):
            assert WAYS[way](run).status == "waiting"
            with pytest.raises(TimeoutError, match="is waiting for an answer"):
                run.result(MOMENT)
            clock.at += HOUR
            assert run.result(PATIENCE) == "ann"
