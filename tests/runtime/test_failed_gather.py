"""The failure of one branch of `ctx.gather` ends the others at once, whatever they wait for.

Each case runs twice: the waiting code stays in memory, or is unwound and replayed. Both record the same events.
"""

import asyncio
import threading
from itertools import product

import pytest

from divebook import step, workflow
from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.runtime.runner import PARKED_RUNS
from tests.runtime.worlds import environment

PATIENCE = 20


@step
async def failed_gather_fails():
    raise ValueError("recorded")


async def fails():
    raise ValueError("at once")


async def fails_after_a_call(ctx):
    await ctx.now()
    raise ValueError("after a call")


@workflow("failed_gather_child")
async def asks(ctx):
    return await ctx.ask("Who?")


FAILURES = {
    "at once": lambda _: fails(),
    "after a call": fails_after_a_call,
    "recorded": lambda _: failed_gather_fails(),
    "in a gather": lambda ctx: ctx.gather(ctx.wait_signal("deep"), fails_after_a_call(ctx)),
}
WAITS = {
    "signal": lambda ctx: ctx.wait_signal("go"),
    "signal within": lambda ctx: ctx.wait_signal("go", within=3600),
    "question": lambda ctx: ctx.ask("Who?"),
    "sleep": lambda ctx: ctx.sleep(3600),
    "child": lambda ctx: ctx.run("failed_gather_child"),
    "gather": lambda ctx: ctx.gather(ctx.wait_signal("a"), ctx.ask("Who?")),
}


@workflow("failed_gather")
async def gathers(ctx, waits: list, failure: str, at: int):
    calls = [WAITS[wait](ctx) for wait in waits]
    calls.insert(at, FAILURES[failure](ctx))
    return await ctx.gather(*calls)


@workflow("caught_gather")
async def catches(ctx, waits: list, failure: str, at: int):
    calls = [WAITS[wait](ctx) for wait in waits]
    calls.insert(at, FAILURES[failure](ctx))
    try:
        await ctx.gather(*calls)
    except Exception as error:  # noqa: BLE001 - each way to fail raises an error of its own
        return str(error)


DEFINED = {function.name: WORKFLOW_FUNCTIONS[function.name] for function in (asks, gathers, catches)}


@pytest.fixture(autouse=True)
def _defined():
    """Other tests forget what is defined in this process."""
    known = dict(WORKFLOW_FUNCTIONS)
    WORKFLOW_FUNCTIONS.update(DEFINED)
    yield
    WORKFLOW_FUNCTIONS.clear()
    WORKFLOW_FUNCTIONS.update(known)


def played(function, waits, failure, at):
    """Return status, result or error, and the types of the events of a run, which must verify."""
    made = environment(gathers, catches, asks)
    run = made.start(function, {"waits": waits, "failure": failure, "at": at}).wait(PATIENCE)
    verification = run.verify()
    assert verification.equal, str(verification)
    return run.status, run.error or run.outputs["result"], [event.event_type for event in run.history()]


@pytest.mark.parametrize("waits", [*([wait] for wait in WAITS), ["signal", "question"]], ids=" and ".join)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_branch_is_not_held_up_by_branches_that_wait(failure, waits, monkeypatch):
    text = "after a call" if failure == "in a gather" else failure
    for function, at in product((gathers, catches), range(len(waits) + 1)):
        parked = played(function, waits, failure, at)
        monkeypatch.setattr(PARKED_RUNS, "most", 0)
        assert played(function, waits, failure, at) == parked
        monkeypatch.undo()
        assert parked[0] == ("failed" if function is gathers else "completed"), parked
        assert text in parked[1]


def test_a_gather_that_returns_its_errors_waits_for_the_other_branches():
    @workflow("gather_returns_errors")
    async def returns_errors(ctx):
        results = await ctx.gather(fails(), ctx.wait_signal("go"), return_exceptions=True)
        return [str(result) for result in results]

    run = environment(returns_errors).start(returns_errors).wait(PATIENCE)
    assert run.status == "waiting"
    assert run.signal("go", 1).result(PATIENCE) == ["at once", "1"]


def test_a_run_continues_to_wait_after_a_failure_that_its_code_catches():
    @workflow("gather_is_caught")
    async def caught(ctx):
        try:
            await ctx.gather(ctx.wait_signal("go"), ctx.gather(ctx.ask("Who?"), fails()))
        except ValueError:
            return await ctx.wait_signal("second")

    run = environment(caught).start(caught).wait(PATIENCE)
    assert run.status == "waiting"
    assert run.signal("second", 2).result(PATIENCE) == 2


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("continues", [False, True])
@pytest.mark.parametrize("waits_for_calls", [False, True])
@pytest.mark.parametrize("function", [gathers, catches], ids=["fails", "is caught"])
def test_calls_that_still_run_when_a_gather_fails_are_verified(
    function, waits_for_calls, continues, depth, monkeypatch
):
    """A thread cannot be left, and nested branches are left some turns later: the log has the ends of such calls, and
    starts of the next ones, after the failure.
    """
    begun, has_failed = threading.Semaphore(0), threading.Event()

    @step("failed_gather_held")
    def held(number: int) -> int:
        begun.release()
        assert has_failed.wait(PATIENCE)
        return number

    @step("failed_gather_fails_beside")
    async def fails_beside() -> None:
        for _ in range(2 if waits_for_calls else 0):
            assert await asyncio.to_thread(begun.acquire, timeout=PATIENCE)
        raise ValueError("beside")

    async def branch(number):
        await held(number)
        if continues:
            await held(-number)

    def nested(ctx, levels):
        inner = [branch(1), branch(2)] if not levels else [nested(ctx, levels - 1)]
        return ctx.gather(*inner)

    monkeypatch.setitem(FAILURES, "beside", lambda _: fails_beside())
    monkeypatch.setitem(WAITS, "calls", lambda ctx: nested(ctx, depth))
    made = environment(gathers, catches, asks)
    made.store.subscribe(lambda _, events: has_failed.set() if is_of_failure(events) else None)
    run = made.start(function, {"waits": ["calls"], "failure": "beside", "at": 0}).wait(PATIENCE)
    assert run.status == ("failed" if function is gathers else "completed")
    types = [event.event_type for event in run.history()]
    assert not waits_for_calls or "operation_completed" in types[types.index("operation_failed") :]
    verification = run.verify()
    assert verification, str(verification)


def is_of_failure(events):
    return any(event.event_type == "operation_failed" for event in events)
