"""Values that no log can hold, given by code and by people: refused with an error of ours, and nothing is lost."""

import pytest

from divebook.definitions.functions import step, workflow
from divebook.errors import DivebookError
from divebook.stores import MemoryStore
from divebook.stores.maintenance import check
from tests.runtime.worlds import environment

DEEP = []
for _ in range(10_000):
    DEEP = [DEEP]
ODD = {
    "number": 5,
    "big": 10**30,
    "without text": 10**5000,
    "nan": float("nan"),
    "infinite": float("inf"),
    "half a character": "\ud800x",
    "nul": "a\0b",
    "none": None,
    "list": ["x"],
    "mapping": {"x": 1},
    "deep": DEEP,
    "object": object(),
}


@step
async def same(value):
    return value


@step
async def raising(value):
    raise ValueError(value)


async def raised(ctx, value):
    raise ValueError(value)


async def emitted(ctx, name, data=None):
    ctx.emit(name, data)


GIVEN = {
    "a question": lambda ctx, value: ctx.ask(value),
    "a message": lambda ctx, value: ctx.ask("Go?", message=value),
    "data": lambda ctx, value: ctx.confirm("Go?", data={"x": value}),
    "an end of time": lambda ctx, value: ctx.ask("Go?", expires_in=value),
    "a default": lambda ctx, value: ctx.ask("Go?", default=value),
    "a kind": lambda ctx, value: ctx.interrupt(value, "Go?"),
    "a signal": lambda ctx, value: ctx.wait_signal(value),
    "a version": lambda ctx, value: ctx.version(value, 1, 2),
    "an event": emitted,
    "an event's data": lambda ctx, value: emitted(ctx, "seen", value),
    "an argument": lambda _, value: same(value),
    "an error": raised,
    "an error of a step": lambda _, value: raising(value),
}
SAID = {}


@workflow("odd")
async def odd(ctx):
    await SAID["what"](ctx, SAID["value"])


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
@pytest.mark.parametrize("what", GIVEN.values(), ids=GIVEN)
def test_a_run_ends_of_what_its_code_hands_over_or_goes_on_and_its_log_is_sound(what, value):
    SAID.update(what=what, value=value)
    world = environment(store=MemoryStore())
    execution = world.start("odd").wait(20)
    assert execution.status in ("completed", "failed", "waiting")
    assert execution.status != "failed" or execution.error
    again = world.run_of(execution.id)  # as another process reads it
    assert (repr(again), str(again.open_questions)) == (repr(execution), str(execution.open_questions))
    assert check(world.store).ok
    if execution.status == "waiting":
        assert execution.cancel().wait(20).status == "cancelled"


@workflow("asks")
async def asks(ctx):
    return await ctx.ask("Which?", {"type": "object", "properties": {"x": {}}})


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_what_a_person_gives_is_refused_before_anything_is_written_or_arrives(value):
    world = environment(store=MemoryStore())
    execution = world.start("asks").wait(20)
    question, before = execution.open_questions[0].id, len(execution.history())
    given = (
        lambda: world.run_of(execution.id).signal(value),
        lambda: world.run_of(execution.id).signal("go", value),
        lambda: world.start("asks", {"x": value}),
        lambda: world.start("asks", key=value),
        lambda: execution.cancel(value),
        lambda: world.answer(question, value, execution.id),
        lambda: world.answer(question, {"x": 1}, execution.id, value),
        lambda: world.answer(question, {"x": value}, execution.id),
    )
    for give in given:
        try:
            assert give().wait(20).status in ("waiting", "completed", "cancelled")
        except DivebookError:
            continue
    assert check(world.store).ok
    assert len(execution.refresh().history()) >= before
    if not execution.state.is_over:
        assert world.answer(question, {"x": 1}, execution.id).wait(20).status == "completed"
