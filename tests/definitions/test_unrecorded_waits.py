"""Clocks and races in a workflow function's own code: refused at the first use, with the durable alternative.

Whether a time limit rings or which call ends first depends on speed, and no log tells: a replay would take another
branch.
"""

import asyncio
import gc

import anyio
import pytest

from divebook import Agent, Environment, ScriptedModel
from divebook.definitions import step, workflow
from divebook.definitions.tools import tool
from divebook.stores import SqliteStore

CALLS = []
SECONDS = 0.01


@pytest.fixture(autouse=True)
def _fresh():
    CALLS.clear()


@step
async def slow_work(n: int) -> int:
    """Use whatever a recorded call may."""
    CALLS.append(n)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with asyncio.timeout(20):
        await asyncio.wait_for(asyncio.sleep(SECONDS), 20)
    with anyio.fail_after(20):
        await anyio.sleep(SECONDS)
    for ended in asyncio.as_completed([asyncio.sleep(0), asyncio.sleep(SECONDS)]):
        await ended
    assert loop.time() > begun
    return n


async def timeout_around_a_call(ctx):
    try:
        async with asyncio.timeout(SECONDS):
            return await slow_work(1)
    except TimeoutError:
        return "late"


async def timeout_at_a_time(ctx):
    async with asyncio.timeout_at(10**9):
        return await slow_work(1)


async def wait_for_a_call(ctx):
    return await asyncio.wait_for(slow_work(1), SECONDS)


async def wait_for_in_a_helper(ctx):
    async def helper():
        return await asyncio.wait_for(slow_work(1), SECONDS)

    return await helper()


async def wait_for_in_a_task(ctx):
    return await asyncio.create_task(asyncio.wait_for(slow_work(1), SECONDS))


async def wait_for_in_a_strand(ctx):
    async def strand(n):
        return await asyncio.wait_for(slow_work(n), SECONDS)

    return await ctx.gather(strand(1), strand(2))


async def sleeping(ctx):
    await asyncio.sleep(SECONDS)
    return await slow_work(1)


async def sleeping_with_anyio(ctx):
    await anyio.sleep(SECONDS)
    return await slow_work(1)


async def fail_after(ctx):
    with anyio.fail_after(SECONDS):
        return await slow_work(1)


async def move_on_after(ctx):
    with anyio.move_on_after(SECONDS):
        return await slow_work(1)


async def loop_time(ctx):
    return asyncio.get_running_loop().time()


async def anyio_time(ctx):
    return anyio.current_time()


async def call_later(ctx):
    asyncio.get_running_loop().call_later(SECONDS, print)


async def call_at(ctx):
    asyncio.get_running_loop().call_at(10**9, print)


async def wait_with_timeout(ctx):
    done, _ = await asyncio.wait([asyncio.ensure_future(slow_work(n)) for n in (1, 2)], timeout=SECONDS)
    return len(done)


async def wait_for_the_first(ctx):
    tasks = [asyncio.ensure_future(slow_work(n)) for n in (1, 2)]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    return len(done)


async def as_completed(ctx):
    for ended in asyncio.as_completed([slow_work(1), slow_work(2)]):
        return await ended
    return None


async def queue_race(ctx):
    queue = asyncio.Queue()

    async def strand(n):
        await queue.put(await slow_work(n))

    tasks = [asyncio.ensure_future(strand(n)) for n in (1, 2)]
    return await queue.get(), len(tasks)


async def event_race(ctx):
    event = asyncio.Event()

    async def strand(n):
        await slow_work(n)
        event.set()

    tasks = [asyncio.ensure_future(strand(n)) for n in (1, 2)]
    await event.wait()
    return len(tasks)


REFUSED = {
    timeout_around_a_call: ("asyncio.timeout", "@step(timeout=seconds)"),
    timeout_at_a_time: ("asyncio.Timeout.__aenter__", "@step(timeout=seconds)"),
    wait_for_a_call: ("asyncio.wait_for", "ctx.wait_signal(name, within=seconds)"),
    wait_for_in_a_helper: ("asyncio.wait_for", "@step(timeout=seconds)"),
    wait_for_in_a_task: ("asyncio.wait_for", "@step(timeout=seconds)"),
    wait_for_in_a_strand: ("asyncio.wait_for", "@step(timeout=seconds)"),
    sleeping: ("asyncio.sleep", "ctx.sleep(seconds)"),
    sleeping_with_anyio: ("anyio.sleep", "ctx.sleep(seconds)"),
    fail_after: ("anyio.fail_after", "@step(timeout=seconds)"),
    move_on_after: ("anyio.move_on_after", "@step(timeout=seconds)"),
    loop_time: ("loop.time", "ctx.now()"),
    anyio_time: ("anyio.current_time", "ctx.now()"),
    call_later: ("loop.call_later", "@step(timeout=seconds)"),
    call_at: ("loop.call_later", "@step(timeout=seconds)"),
    wait_with_timeout: ("asyncio.wait", "@step(timeout=seconds)"),
    wait_for_the_first: ("asyncio.wait", "ctx.gather"),
    as_completed: ("asyncio.as_completed", "ctx.gather"),
    queue_race: ("asyncio.Queue.get", "ctx.gather"),
    event_race: ("asyncio.Event.wait", "ctx.gather"),
}


def ran(function, **given):
    defined = workflow(name=function.__name__)(function)
    with Environment(store="memory:", workflows=[defined], **given) as environment:
        run = environment.start(function.__name__).wait(20)
    gc.collect()  # of coroutines that were not begun, now: Python 3.11 cannot bear that while pytest parses a file
    return run


@pytest.mark.filterwarnings("ignore::divebook.errors.DeterminismWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # the call that was not begun
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
def test_what_depends_on_speed_is_refused_with_the_durable_alternative(function):
    name, way_on = REFUSED[function]
    run = ran(function)
    assert run.status == "failed", run.variables
    assert f"{name} in a workflow function" in run.error
    assert way_on in run.error
    assert "test_unrecorded_waits.py:" in run.error


async def sound(ctx):
    lock, limit = asyncio.Lock(), asyncio.Semaphore(1)

    async def strand(n):
        async with limit, lock:
            return await slow_work(n)

    found = [await slow_work(1), *await ctx.gather(slow_work(2), strand(3), strand(4))]
    await ctx.sleep(SECONDS)
    await asyncio.sleep(0)
    found += await asyncio.gather(slow_work(5), slow_work(6))
    done, pending = await asyncio.wait([asyncio.ensure_future(slow_work(7)), asyncio.ensure_future(slow_work(8))])
    async with asyncio.timeout(None), asyncio.TaskGroup() as group:
        task = group.create_task(slow_work(9))
    found += [len(done), len(pending), await task, await asyncio.wait_for(slow_work(10), None)]
    try:
        await ctx.wait_signal("never", within=SECONDS)
    except TimeoutError:
        found.append("no signal")
    found.append((await ctx.run("inner_sound"))["result"])
    return [*found, await ctx.agent("a").run("go")]


@workflow
async def inner_sound(ctx) -> dict:
    await ctx.sleep(SECONDS)
    return {"n": await slow_work(11)}


@tool
async def wait_a_moment() -> str:
    """Wait."""
    async with asyncio.timeout(20):
        await asyncio.sleep(SECONDS)
    return "waited"


@pytest.mark.filterwarnings("ignore::divebook.errors.DeterminismWarning")
def test_recorded_calls_and_what_the_context_offers_may_use_time(tmp_path):
    agent = Agent("a", model=ScriptedModel([{"call": {"wait_a_moment": {}}}, "done"]), tools=[wait_a_moment])
    defined = workflow(name="sound")(sound)
    with (
        SqliteStore(tmp_path / "s.db") as store,
        Environment(store=store, workflows=[defined, inner_sound], agents=[agent]) as e,
    ):
        run = e.start("sound").wait(20)
        while run.status == "waiting":  # for the signal that does not come
            run.wait(20)
        assert run.status == "completed", run.error
        assert sorted(CALLS) == list(range(1, 12))
        assert e.run_of(run.id).verify().equal, str(e.run_of(run.id).verify())


async def raises_beside_tasks(ctx):
    tasks = [asyncio.ensure_future(slow_work(n)) for n in (1, 2)]
    raise ValueError(f"{len(tasks)} tasks are left")


@pytest.mark.filterwarnings("ignore::divebook.errors.DeterminismWarning")
def test_tasks_that_had_not_begun_when_the_function_failed_make_no_calls():
    run = ran(raises_beside_tasks)
    assert (run.status, CALLS) == ("failed", [])
    assert run.error.startswith("ValueError: 2 tasks are left")
