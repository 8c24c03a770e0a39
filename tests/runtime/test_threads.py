"""Actions and steps that block: there are enough threads for them, also while they wait for executions."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest

from divebook import Each, Environment, Step, Workflow
from divebook.definitions.functions import WORKFLOW_FUNCTIONS, step, workflow
from divebook.runtime.compute import threads
from divebook.runtime.loop import ENGINE
from divebook.steps.actions import Action
from tests.runtime.worlds import environment, run

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
        home = threads.handle_of_loop()
        home.limiter, before = limiter, home.limiter
        return before

    before = ENGINE.submit(replace(anyio.CapacityLimiter(1))).result()
    yield
    ENGINE.submit(replace(before)).result()


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


def played(game):
    """Run a coroutine function on a loop of its own, whose calls returned at once so far."""

    async def play():
        threads.handle_of_loop().is_quick = True
        return await asyncio.wait_for(game(), 60)

    return asyncio.run(play())


def fail():
    raise LookupError("none")


def test_the_loop_waits_a_moment_for_a_call_where_the_one_before_returned_at_once(monkeypatch):
    async def game():
        turned = []
        asyncio.get_running_loop().call_soon(turned.append, 1)
        assert await threads.in_thread(lambda: 7) == 7
        with pytest.raises(LookupError, match="none"):
            await threads.in_thread(fail)
        return list(turned)

    monkeypatch.setattr(threads, "QUICK_SECONDS", 60)
    monkeypatch.setattr(threads, "MOMENT_SECONDS", 60)
    assert played(game) == []


def test_the_loop_goes_on_when_the_moment_is_over():
    async def game():
        goes_on = threading.Event()
        asyncio.get_running_loop().call_soon(goes_on.set)
        return await threads.in_thread(lambda: goes_on.wait(60))

    assert played(game) is True


def test_the_loop_waits_for_no_call_where_the_one_before_took_long(monkeypatch):
    async def game():
        assert await threads.in_thread(lambda: 7) == 7
        turned = []
        asyncio.get_running_loop().call_soon(turned.append, 1)
        assert await threads.in_thread(lambda: 8) == 8
        return list(turned)

    monkeypatch.setattr(threads, "QUICK_SECONDS", 0)
    monkeypatch.setattr(threads, "MOMENT_SECONDS", 60)
    assert played(game) == [1]


ENDING = """
import sys, threading
from divebook import Environment, Step, Workflow
from divebook.steps.actions import Action

begun, goes_on = threading.Event(), threading.Event()
def work():
    begun.set()
    goes_on.wait()

timeout = {"waited for": None, "given up": 0.001}[sys.argv[1]]
world = Environment(store=sys.argv[2], actions=[Action("work", work, timeout=timeout, idempotent=True)])
execution = world.start(Workflow("w", [Step("a", action="work")]))
begun.wait()
if timeout is None:
    threading.Timer(0.1, goes_on.set).start()
else:
    execution.wait(20)
"""


@pytest.mark.parametrize(("how", "end"), [("waited for", "operation_completed"), ("given up", "operation_failed")])
def test_a_process_ends_after_the_calls_that_are_waited_for_and_no_others(how, end, tmp_path):
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    path = tmp_path / "s.db"
    subprocess.run([sys.executable, "-c", ENDING, how, str(path)], check=True, timeout=60, env=environ)
    with Environment(store=str(path)) as world:
        (past,) = world.store.records()
        assert end in [event.event_type for event in world.run_of(past.execution_id).history()]


def test_threads_go_once_they_are_idle_and_many_or_the_engine_has_stopped():
    def ours():
        return [thread for thread in threading.enumerate() if thread.name == "divebook-call"]

    together = threading.Barrier(MANY)
    actions = [Action("meet", lambda: together.wait(30) * 0)]
    run(Workflow("w", [Step("a", action="meet", each=EVERY)]), actions=actions)
    left = ours()
    assert len(threads._THREAD_POOL._idle) <= threads.MOST_IDLE
    ENGINE.stop()
    for thread in left:
        thread.join(20)
    assert ours() == []


def test_an_action_may_emit_from_any_thread_of_its_own():
    def work(context):
        helper = threading.Thread(target=context.emit, args=("from afar", {"n": 1}))
        helper.start()
        helper.join()

    execution = run(Workflow("w", [Step("a", action="work")]), actions=[Action("work", work)])
    (emitted,) = [event.data for event in execution.history() if event.event_type == "event_emitted"]
    assert (emitted.name, emitted.data) == ("from afar", {"n": 1})


def test_a_call_whose_caller_is_cancelled_comes_to_its_end_whenever_that_is():
    """A shield only where there is a cancellation: none may be lost, before the call, in it, or as it returns."""

    async def try_it(when):
        let_go, ended = threading.Event(), []

        async def caller():
            ended.append(await threads.in_thread(let_go.wait))

        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(caller)
                await asyncio.sleep(0)
                if when == "as it returns":
                    let_go.set()
                    while not threads.handle_of_loop()._returned:  # the loop is not to turn
                        pass
                scope.cancel()
                threading.Timer(0.01, let_go.set).start()
        return ended

    for when in ("in it", "as it returns"):
        assert ENGINE.submit(try_it(when)).result(20) == [True]
