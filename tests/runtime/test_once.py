"""The one look-up: what the log says holds, for every kind of operation, whatever the world has come to since."""

import asyncio

import pytest

from divebook import Environment, Step, Workflow
from divebook.definitions.functions import step, workflow
from tests.runtime.worlds import Failing, environment

pytestmark = pytest.mark.usefixtures("replayed")
SOON = 0.01
CHILD = Workflow("child", [Step("try", action="fail", parameters={"value": "late"})])
WORLD = {"works": False}


@pytest.fixture(autouse=True)
def broken_world():
    WORLD["works"] = False


@step
async def breaks():
    if not WORLD["works"]:
        raise ValueError("the call failed")


@step
async def loses_its_connection():
    if not WORLD["works"]:
        raise ConnectionResetError("gone")


@step(timeout=SOON, idempotent=True)
async def hangs():
    if not WORLD["works"]:
        await asyncio.Event().wait()


@step(approval=True)
async def needs_approval():
    return "done"


FAILING = {
    "call": lambda ctx: breaks(),
    "call that takes too long": lambda ctx: hangs(),
    "call of unknown outcome": lambda ctx: loses_its_connection(),
    "signal": lambda ctx: ctx.wait_signal("go", within=SOON),
    "child": lambda ctx: ctx.run("child"),
    "question": lambda ctx: ctx.ask("In time?", expires_in=SOON),
    "approval": lambda ctx: needs_approval(),
}
FINISHED = {
    "time": lambda ctx: ctx.now(),
    "chance": lambda ctx: ctx.random(),
    "timer": lambda ctx: ctx.sleep(SOON),
    "version": lambda ctx: ctx.version("change", 1, 2),
}
FIRST_ANSWERS = {"Run needs_approval?": False, "outcome_unknown": "fail"}


def meeting(operation, met):
    """Return a workflow that notes how an operation ends, then asks, so that it runs again after the answer."""

    @workflow("meets")
    async def meets(ctx):
        try:
            found = await operation(ctx)
        except Exception as error:  # noqa: BLE001 - any failure will do
            found = f"failed: {error}"
        met.append(found)
        await ctx.ask("Go on?")
        return str(found)

    return meets


def resting(world, execution, is_there):
    """Wait until something is so of an execution; its first questions are answered on the way."""
    for _ in range(4000):
        found = world.run_of(execution.id)
        if is_there(found):
            return found
        for question in found.open_questions:
            answer = FIRST_ANSWERS.get(question.question, FIRST_ANSWERS.get(question.kind))
            if answer is not None:
                world.answer(question.id, answer, execution.id).wait(20)
        asyncio.run(asyncio.sleep(0.001))
    raise AssertionError(f"{execution} never came so far")


def asks_to_go_on(execution):
    return any(question.question == "Go on?" for question in execution.open_questions)


def met_twice(operation):
    """Return what an operation came to in the first process, and in another one where all would go well by now."""
    met, failing = [], Failing()
    world = environment(CHILD, actions=[failing.action()])
    execution = world.start(meeting(operation, met))
    (question,) = resting(world, execution, asks_to_go_on).open_questions
    first = list(met)
    WORLD["works"], failing.broken = True, False
    world.run_of(execution.id).signal("go", "late")
    for record in world.store.records():
        if record.workflow_name == "child":
            world.run_of(record.execution_id).resume().wait(20)
    later = Environment(store=world.store, workflows=[CHILD], actions=[failing.action()])
    later.answer(question.id, "yes", execution.id)
    done = resting(later, execution, lambda found: found.state.is_over)
    assert done.status == "completed", done.error
    return first, met[len(first) :], done.outputs["result"]


@pytest.mark.parametrize("kind", FAILING)
def test_a_recorded_failure_is_a_failure_on_replay(kind):
    first, again, result = met_twice(FAILING[kind])
    assert str(first[-1]).startswith("failed: ")
    assert set(again) == {first[-1]}
    assert result == first[-1]


@pytest.mark.parametrize("kind", FINISHED)
def test_a_recorded_result_is_the_result_on_replay(kind):
    first, again, result = met_twice(FINISHED[kind])
    assert set(again) == {first[-1]}
    assert result == str(first[-1])


@pytest.mark.parametrize("kind", FAILING)
def test_a_failure_that_was_caught_holds_also_when_the_step_fails_later_and_is_resumed(kind):
    """Only the operation that ended the step is carried out again by a resumption."""
    met, is_fixed = [], []

    @workflow("fails_later")
    async def fails_later(ctx):
        try:
            met.append(await FAILING[kind](ctx))
        except Exception as error:  # noqa: BLE001 - any failure will do
            met.append(f"failed: {error}")
        await ctx.now()
        if not is_fixed:
            raise KeyError("a mistake in the code")
        return met[-1]

    failing = Failing()
    world = environment(CHILD, actions=[failing.action()])
    execution = world.start(fails_later)
    assert resting(world, execution, lambda found: found.state.is_over).status == "failed"
    WORLD["works"], failing.broken = True, False
    is_fixed.append(True)
    resumed = world.run_of(execution.id).resume().wait(20)
    assert (resumed.status, resumed.outputs) == ("completed", {"result": met[0]})
