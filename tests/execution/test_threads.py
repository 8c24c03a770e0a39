"""Actions and steps that block: there are enough threads for them, also while they wait for executions."""

import threading

import anyio
import pytest

from divebook import Each, Step, Workflow
from divebook.execution import threads
from divebook.execution.engine_thread import ENGINE
from divebook.steps.actions import Action
from divebook.workflow.functions import WORKFLOW_FUNCTIONS, step, workflow
from tests.execution.worlds import environment, run

MANY = 100
EVERY = Each(list(range(MANY)), as_="i", parallel=MANY)


@pytest.fixture(autouse=True)
def forget():
    known = dict(WORKFLOW_FUNCTIONS)
    yield
    WORKFLOW_FUNCTIONS.clear()
    WORKFLOW_FUNCTIONS.update(known)


@pytest.fixture
def one_thread():
    """Have the engine's loop give a single place to calls that block."""

    async def replace(limiter):
        before = threads._limiter.get(None)
        threads._limiter.set(limiter)
        return before

    before = ENGINE.submit(replace(anyio.CapacityLimiter(1))).result()
    yield
    ENGINE.submit(replace(before or anyio.CapacityLimiter(threads.MOST_THREADS))).result()


def test_many_calls_may_block_at_once():
    together = threading.Barrier(MANY)
    actions = [Action("meet", lambda: together.wait(30) * 0)]
    execution = run(Workflow("w", [Step("a", action="meet", each=EVERY, store="met")]), actions=actions)
    assert execution.variables["met"] == [0] * MANY


@pytest.mark.usefixtures("one_thread")
def test_actions_that_wait_for_executions_leave_room_for_the_actions_of_those():
    child = Workflow("child", [Step("a", action="answer", store="n")], outputs=["n"])
    actions = [
        Action("answer", lambda: 42),
        Action("ask", lambda: world.start("child").wait(20).outputs["n"]),
    ]
    world = environment(child, actions=actions)
    execution = world.start(Workflow("w", [Step("a", action="ask", each=EVERY, store="told")])).wait(60)
    assert execution.variables["told"] == [42] * MANY


@pytest.mark.usefixtures("one_thread")
def test_step_functions_that_wait_for_executions_do_so_too():
    @step
    def descend(depth: int) -> int:
        return depth and world.start("deep", {"depth": depth - 1}).wait(20).outputs["result"] + 1

    @workflow
    async def deep(ctx, depth: int) -> int:
        return await descend(depth)

    world = environment()
    assert world.start("deep", {"depth": 20}).wait(60).outputs == {"result": 20}


@pytest.mark.usefixtures("one_thread")
def test_a_place_that_was_lent_is_taken_back():
    busy, most = [], []

    def work():
        busy.append(1)
        most.append(len(busy))
        busy.pop()

    child = Workflow("child", [Step("a", type="wait", seconds=0)])
    actions = [Action("ask", lambda: world.start("child").wait(20).status), Action("work", work)]
    world = environment(child, actions=actions)
    steps = [Step("a", action="ask", each=EVERY), Step("b", action="work", each=EVERY)]
    assert world.start(Workflow("w", steps)).wait(60).status == "completed"
    assert set(most) == {1}
