"""What an environment and the engine leave when they are closed, and what executions leave when they have ended."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import ExecutionError
from divebook.runtime.clock import SystemClock
from divebook.runtime.driver import Driver
from divebook.runtime.journal import Journal
from divebook.runtime.loop import ENGINE
from divebook.runtime.run import Run
from divebook.runtime.runner import Runner
from divebook.steps.actions import Action
from tests.runtime.worlds import becomes, environment

SUM = Workflow("sum", [Step("add", script="1 + 1", store="n")])
ASK = Workflow("ask", [Step("a", ask="Go?", store="x")])


def test_a_closed_environment_has_closed_its_store_and_nothing_else(tmp_path):
    path = str(tmp_path / "s.db")
    with Environment(store=path, workflows=[SUM]) as first, Environment(store=path) as second:
        assert first.start("sum").wait(20).status == "completed"
        assert second.store is first.store
        first.close()
        assert not second.store.closed
        assert len(second.store.records()) == 1
    assert second.store.closed
    given = environment(SUM)
    given.close()
    given.close()
    assert not given.store.closed


def test_an_environment_is_closed_at_the_end_of_an_async_block_too(tmp_path):
    closed = []

    async def main():
        async with Environment(store=str(tmp_path / "s.db"), workflows=[SUM]) as world:
            world.internals.on_close(lambda: closed.append("first given"))
            world.internals.on_close(lambda: closed.append("last given"))
            await world.start("sum")
        return world

    assert asyncio.run(main()).store.closed
    assert closed == ["last given", "first given"]


def test_what_a_closed_environment_drove_can_be_resumed_at_once():
    reached = threading.Event()

    async def hang():
        reached.set()
        await asyncio.Event().wait()

    world = environment(actions=[Action("hang", hang, idempotent=True)])
    execution = world.start(Workflow("w", [Step("a", action="hang")]))
    assert reached.wait(20)
    world.close()
    with pytest.raises(ExecutionError, match="stopped when its environment was closed; resume it"):
        execution.wait(20)

    async def done():
        return 1

    other = environment(actions=[Action("hang", done, idempotent=True)], store=world.store)
    assert [record.execution_id for record in other.queues.recoverable()] == [execution.id]
    assert other.run_of(execution.id).resume().wait(20).status == "completed"


class NextDay(SystemClock):
    """A clock on which a day passes when the test says so."""

    def __init__(self):
        self.has_come = threading.Event()

    def now(self):
        return super().now() + 86_400_000_000 * self.has_come.is_set()

    async def sleep(self, seconds):
        while not self.has_come.is_set():  # noqa: ASYNC110 - the test sets it in another thread
            await asyncio.sleep(0.005)


def test_what_is_due_wakes_no_closed_environment():
    clock, later = NextDay(), Workflow("w", [Step("a", "wait", signal="go", seconds=3600)])
    closed, still_open = environment(clock=clock), environment(clock=clock)
    left, woken = closed.start(later).wait(20), still_open.start(later).wait(20)
    assert (left.status, woken.status) == ("waiting", "waiting")
    closed.close()
    clock.has_come.set()
    for _ in range(2000):
        if woken.refresh().status == "failed":
            break
        ENGINE.submit(asyncio.sleep(0.01)).result()
    assert (left.refresh().status, woken.status) == ("waiting", "failed")


CHILD = """
import os, sys, threading
from divebook import Environment, Step, Workflow
from divebook.runtime.loop import ENGINE
path = sys.argv[1]
with Environment(store=path, workflows=[Workflow("w", [Step("a", script="1"), Step("b", ask="Go?")])]) as world:
    world.start("w").wait(20)
ENGINE.stop()
left = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
opened = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
files = [os.readlink(link) for link in opened if os.path.exists(link)]
print(left, [file for file in files if file.startswith(path)])
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_nothing_of_ours_remains_once_all_is_closed(tmp_path):
    root = Path(__file__).parents[2]
    told = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "s.db")],
        capture_output=True, text=True, timeout=60, check=True, cwd=root, env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert (told.stdout.strip(), told.stderr) == ("[] []", "")


def test_executions_that_have_ended_leave_memory():
    world = environment(SUM, ASK)
    world.start("sum").wait(20)
    before = alive()
    for _ in range(40):
        running = [world.start("sum") for _ in range(49)] + [world.start("ask")]
        for execution in running:
            execution.wait(20)
    world.answer(running[-1].open_questions[0].id, "yes", running[-1].id).wait(20)
    del execution, running
    assert becomes(lambda: alive() == before)


def alive():
    ENGINE.submit(asyncio.sleep(0.12)).result()  # the inbox delivery looks for the last time
    gc.collect()
    kinds = (Driver, Run, Journal, Runner, asyncio.Task)
    return {kind: sum(isinstance(found, kind) for found in gc.get_objects()) for kind in kinds}


def test_a_store_that_nobody_uses_any_more_leaves_memory():
    world = environment(SUM)
    world.start("sum").wait(20)
    store = weakref.ref(world.store)
    del world
    assert becomes(lambda: gc.collect() >= 0 and store() is None)  # the inbox delivery looks for the last time
