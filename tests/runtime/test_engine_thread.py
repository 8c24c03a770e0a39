"""The engine's thread: what code on it cannot end, what happens where it ends all the same, and forked processes."""

import asyncio
import os
import threading
import traceback

import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import ExecutionError, ForkedStoreError, StoreError
from divebook.queues import Worker
from divebook.runtime.loop import ENGINE, EngineThread
from divebook.steps.actions import Action
from divebook.stores import SqliteStore
from tests.runtime.worlds import Gate, environment, run, unwind

AFTER = Workflow("after", [Step("a", script="1", store="one")])


def exit_in_a_task():
    async def leave():
        raise SystemExit(3)

    return asyncio.create_task(leave())


def interrupt_in_a_callback():
    def interrupt():
        raise KeyboardInterrupt

    asyncio.get_running_loop().call_soon(interrupt)


def stop_the_loop():
    asyncio.get_running_loop().stop()


@pytest.mark.parametrize("accident", [exit_in_a_task, interrupt_in_a_callback, stop_the_loop])
def test_the_loop_goes_on_whatever_is_done_to_it(accident):
    async def bad():
        task = accident()
        await asyncio.sleep(0)
        await asyncio.wait([task] if task is not None else [asyncio.create_task(asyncio.sleep(0))])
        assert task is None or isinstance(task.exception(), SystemExit)

    engine = ENGINE.loop
    execution = run(Workflow("w", [Step("a", action="bad"), Step("b", script="2")]), actions=[Action("bad", bad)])
    assert execution.status == "completed"
    assert ENGINE.loop is engine


def test_code_that_awaits_a_task_which_exits_fails():
    async def bad():
        await exit_in_a_task()

    execution = run(Workflow("w", [Step("a", action="bad")]), actions=[Action("bad", bad)])
    assert execution.status == "failed"
    assert "SystemExit(3)" in execution.error


def test_a_dead_loop_is_told_to_whoever_waits_and_the_next_one_gets_a_new_loop(caplog):
    unwind()  # a second engine forgets what stands still in the process, which has only one otherwise
    engine, started = EngineThread(), threading.Event()

    async def wait_for_ever():
        started.set()
        await asyncio.Event().wait()

    class BrokenError(Exception):
        pass

    async def break_it():
        def broken():
            raise BrokenError("bad file descriptor")

        asyncio.get_running_loop()._run_once = broken

    waiting = [engine.submit(wait_for_ever()) for _ in range(3)]
    assert started.wait(20)
    first = engine.loop
    engine.submit(break_it())
    for promised in waiting:
        with pytest.raises(ExecutionError, match=r"event loop has died \(BrokenError: bad file descriptor\)"):
            promised.result(20)

    assert "the engine's event loop has died" in caplog.text

    async def answer():
        return 42

    assert engine.submit(answer()).result(20) == 42
    assert engine.loop is not first


# --- forks


def in_a_fork(check):
    """Return what `check` comes to in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = check()
        except BaseException:  # noqa: BLE001 - the child must not run the tests that follow
            text = traceback.format_exc()
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


needs_fork = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forks"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.timeout(60),
]


async def awaited(execution):
    return await execution


class TestForks:
    pytestmark = needs_fork

    @pytest.mark.parametrize("way", ["wait", "await"])
    def test_a_child_does_not_wait_for_what_its_parent_drives(self, way):
        gate = Gate()
        world = environment(actions=[gate.action()])
        execution = world.start(Workflow("w", [Step("a", action="gate")]))
        assert gate.reached.wait(20)

        def wait():
            assert not execution.is_live
            with pytest.raises(ExecutionError) as caught:
                execution.wait() if way == "wait" else asyncio.run(awaited(execution))
            with pytest.raises(ExecutionError, match="not running in this process"):
                execution.cancel()
            return str(caught.value)

        told = in_a_fork(wait)
        gate.opened.set()
        assert f"wait for it in process {os.getpid()}, from which this one was forked" in told
        assert execution.wait(20).status == "completed"

    def test_a_child_sees_what_had_ended(self):
        execution = run(AFTER)
        assert in_a_fork(lambda: f"{execution.wait().variables}") == "{'one': 1}"

    def test_a_child_has_an_engine_of_its_own(self):
        run(AFTER)
        waiting = Workflow("w", [Step("a", type="wait", seconds=0)])
        assert in_a_fork(lambda: environment().start(waiting).wait(20).status) == "completed"

    def test_an_execution_made_before_the_fork_may_be_started_after_it(self):
        pending = environment().create(Workflow("w", [Step("a", type="wait", seconds=0)]))
        assert in_a_fork(lambda: pending.start().wait(20).status) == "completed"

    def test_a_child_forked_by_a_step_may_run_executions(self):
        waiting = Workflow("w", [Step("a", type="wait", seconds=0)])
        forked = Action("fork", lambda: in_a_fork(lambda: environment().start(waiting).wait(20).status))
        execution = run(Workflow("w", [Step("a", action="fork", store="told")]), actions=[forked])
        assert execution.variables["told"] == "completed"

    def test_a_child_is_told_that_its_parents_file_is_not_its_own(self, tmp_path):
        with SqliteStore(tmp_path / "x.db") as store:
            world = Environment(store=store)
            world.start(AFTER).wait(20)

            def look():
                with pytest.raises(StoreError) as caught:
                    world.store.records()
                return str(caught.value)

            told = in_a_fork(look)
            assert f"was opened by process {os.getpid()}, from which this one was forked" in told
            assert len(world.store.records()) == 1

    def test_a_child_forked_while_a_thread_writes_waits_for_no_lock(self, tmp_path):
        written, forked = threading.Event(), threading.Event()

        def hold_the_lock(*_):
            written.set()
            forked.wait(20)

        with Environment(store=SqliteStore(tmp_path / "x.db"), workflows=[AFTER]) as world, Worker(world) as worker:
            world.store.subscribe(hold_the_lock)
            enqueuing = threading.Thread(target=world.enqueue, args=[AFTER])
            enqueuing.start()
            assert written.wait(20)

            def look():
                with pytest.raises(ForkedStoreError):
                    world.store.records()
                with pytest.raises(ForkedStoreError):
                    world.enqueue(AFTER)
                with pytest.raises(ForkedStoreError):
                    world.store.append_unsynced([])
                with pytest.raises(ForkedStoreError):
                    world.store.sync()
                with pytest.raises(ForkedStoreError):
                    Worker(world).start_thread()
                assert not worker.wait_until_idle()
                worker.drain()
                world.store.close()
                return "nothing was waited for"

            outcome = in_a_fork(look)
            forked.set()
            enqueuing.join()
            assert outcome == "nothing was waited for"
