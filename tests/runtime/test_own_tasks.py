"""asyncio's own ways to wait side by side inside a workflow function: they work, or are refused with what to write."""

import asyncio

import pytest

from divebook import Environment
from divebook.definitions import step, workflow
from divebook.errors import OperationError
from divebook.stores import MemoryStore


@step(idempotent=True)
async def double(n):
    await asyncio.sleep(0)
    return 2 * n


@step
async def broken(n):
    raise ConnectionResetError(n)


def start(name, store=None):
    return Environment(store=store or MemoryStore()).start(name).wait(20)


def test_calls_given_to_asyncio_gather_work_and_keep_their_places():
    @workflow
    async def fan(ctx):
        return await asyncio.gather(*[double(n) for n in range(5)])

    execution = start("fan")
    assert execution.outputs == {"result": [0, 2, 4, 6, 8]}
    keys = [e.data.key for e in execution.history() if e.event_type == "operation_started"]
    assert keys == [f"call-{n}" for n in range(1, 6)]


def test_a_call_that_waits_for_a_person_lets_the_others_end_first():
    @workflow
    async def mixed(ctx):
        return await asyncio.gather(broken(1), double(2), broken(3))

    world = Environment(store=MemoryStore())
    execution = world.start("mixed").wait(20)
    assert (execution.status, len(execution.open_questions)) == ("waiting", 2)
    ended = [e.data.result for e in execution.history() if e.event_type == "operation_completed"]
    assert ended == [4]
    for number, question in enumerate(execution.open_questions):
        answered = world.answer(question.id, {"choice": "done", "result": number}, execution.id).wait(20)
    assert answered.outputs == {"result": [0, 4, 1]}


@pytest.mark.parametrize("way", ["gather", "task"])
def test_calls_made_inside_tasks_are_refused_with_what_to_write(way):
    async def twice(n):
        return await double(await double(n))

    @workflow
    async def helpers(ctx):
        if way == "gather":
            return await asyncio.gather(twice(1), twice(2))
        return await asyncio.create_task(twice(1))

    assert "write `await ctx.gather(...)`" in start("helpers").error


def test_helpers_work_in_the_gather_of_the_context():
    async def twice(n):
        return await double(await double(n))

    @workflow
    async def helped(ctx):
        return await ctx.gather(twice(1), twice(2))

    assert start("helped").outputs == {"result": [4, 8]}


def test_the_clock_has_no_place_inside_a_task():
    @workflow
    async def clocks(ctx):
        return await asyncio.gather(ctx.now(), ctx.random())

    assert "ctx.now() runs in a separate task" in start("clocks").error


def test_what_the_function_began_and_left_is_stopped_with_it():
    left = []

    @step(idempotent=True)
    async def endless():
        try:
            await asyncio.sleep(60)
        finally:
            left.append("stopped")

    @workflow
    async def forgetful(ctx):
        task = asyncio.create_task(endless())
        await double(1)
        await double(2)
        return task.done()

    assert (start("forgetful").outputs, left) == ({"result": False}, ["stopped"])


def test_errors_stand_among_the_results_where_that_is_asked_for():
    @step
    def odd(n):
        if n % 2 == 0:
            raise ValueError(f"{n} is even")
        return n

    @workflow
    async def some(ctx):
        found = await ctx.gather(odd(1), odd(2), odd(3), return_exceptions=True)
        assert isinstance(found[1], ValueError)
        assert isinstance(found[1], OperationError)
        return [str(entry) for entry in found]

    assert start("some").outputs == {"result": ["1", "2 is even", "3"]}
