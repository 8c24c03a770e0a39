"""The failure of one branch of `ctx.gather` ends the others at once, whatever they wait for.

Each case runs twice: the waiting code stays in memory, or is unwound and replayed. Both record the same events.
"""

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
