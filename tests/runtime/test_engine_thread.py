"""The engine's thread: what code on it cannot end, what happens where it ends all the same, and forked processes."""

import asyncio
import gc
import os
import threading
import traceback
import weakref
from concurrent.futures import Future
from contextvars import ContextVar, copy_context

import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import ExecutionError, ForkedStoreError, StoreError
from divebook.queues import Worker
from divebook.runtime.concurrency import call_later_if_alive
from divebook.runtime.loop import ENGINE, EngineThread, LoopCalls, awaitable_of
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
        with pytest.raises(
            ExecutionError, match=r"event loop has ended because of an error \(BrokenError: bad file descriptor\)"
        ):
            promised.result(20)

    assert "the engine's event loop has ended" in caplog.text

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
        assert f"wait for it in process {os.getpid()}, which this process was forked from" in told
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
            assert f"was opened by process {os.getpid()}, from which this process was forked" in told
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


def counted_wake_ups(loop):
    """Count the wake-ups of an event loop in the returned list."""
    wake_ups = []
    wake = loop.call_soon_threadsafe

    def call_soon_threadsafe(call, *arguments):
        wake_ups.append(call)
        return wake(call, *arguments)

    loop.call_soon_threadsafe = call_soon_threadsafe
    return wake_ups


def test_calls_that_wait_for_a_loop_wake_it_once_and_run_in_order():
    async def main():
        loop = asyncio.get_running_loop()
        wake_ups, calls, ran = counted_wake_ups(loop), LoopCalls(loop), []
        for number in range(100):
            calls.add(lambda number=number: ran.append(number))
        # A call that a call adds belongs to the next turn, so that a chain of them leaves the loop its turns.
        calls.add(lambda: calls.add(lambda: ran.append("added")))
        await asyncio.sleep(0)
        assert ran == [*range(100)]
        await asyncio.sleep(0)
        assert ran[100:] == ["added"]
        assert len(wake_ups) == 2

    asyncio.run(main())


def test_a_call_that_raises_is_reported_and_loses_no_other():
    async def main():
        loop, ran, reported = asyncio.get_running_loop(), [], []
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        calls, error = LoopCalls(loop), ValueError("no")

        def fail():
            raise error

        all_ran = asyncio.Event()
        for call in (lambda: ran.append(1), fail, lambda: ran.append(2), fail, lambda: ran.append(3), all_ran.set):
            calls.add(call)
        await all_ran.wait()
        assert ran == [1, 2, 3]
        assert reported == [error, error]

    asyncio.run(main())


def test_calls_from_many_threads_all_run():
    async def main():
        calls, ran = LoopCalls(asyncio.get_running_loop()), []

        def add(thread):
            for number in range(500):
                calls.add(lambda: ran.append((thread, number)))  # noqa: B023 - only counted

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for thread in range(8):
                group.create_task(asyncio.to_thread(add, thread))
        all_ran = asyncio.Event()
        calls.add(all_ran.set)
        await all_ran.wait()
        assert len(ran) == 8 * 500

    asyncio.run(main())


def test_a_closed_loop_refuses_calls_and_the_next_call_as_well():
    loop = asyncio.new_event_loop()
    loop.close()
    calls = LoopCalls(loop)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="closed"):
            calls.add(print)


@pytest.mark.parametrize("is_woken", [True, False])
def test_an_interrupt_at_the_wake_up_leaves_no_call_of_another_thread_behind(is_woken):
    async def main():
        loop, ran = asyncio.get_running_loop(), []
        wake = loop.call_soon_threadsafe

        def interrupted(call):
            loop.call_soon_threadsafe = wake
            if is_woken:
                wake(call)
            calls.add(lambda: ran.append("of another thread"))  # which relies on this wake-up
            raise KeyboardInterrupt

        loop.call_soon_threadsafe = interrupted
        calls = LoopCalls(loop)
        with pytest.raises(KeyboardInterrupt):
            calls.add(lambda: ran.append("interrupted"))
        await asyncio.sleep(0)
        assert ran == ["interrupted", "of another thread"]
        all_ran = asyncio.Event()
        calls.add(all_ran.set)
        await all_ran.wait()

    asyncio.run(main())


def test_a_thread_keeps_no_loop_that_is_closed():
    future = Future()
    loops = []

    async def main():
        loops.append(weakref.ref(asyncio.get_running_loop()))
        threading.Thread(target=future.set_result, args=(7,)).start()
        assert await awaitable_of(future) == 7

    asyncio.run(main())
    gc.collect()
    assert loops[0]() is None


def test_whoever_stops_waiting_for_a_future_of_another_thread_does_not_cancel_it():
    future, failing = Future(), Future()

    async def main():
        given_up, waiting = asyncio.ensure_future(wait()), asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        assert given_up.cancelled()
        assert not future.cancelled()
        threading.Thread(target=future.set_result, args=(7,)).start()
        assert await waiting == 7
        assert await wait() == 7  # one that is done already
        failing.set_exception(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            await awaitable_of(failing)

    async def wait():
        return await awaitable_of(future)

    asyncio.run(main())


def test_a_future_that_ends_after_the_loop_that_waited_for_it_was_closed_is_no_error(caplog):
    future = Future()

    async def main():
        awaitable_of(future)

    asyncio.run(main())
    future.set_result(1)
    assert not caplog.records


def test_a_timer_keeps_nothing_of_the_context_in_which_it_was_set():
    class Owner:
        def beat(self):
            raise AssertionError("it was cancelled")

    class Messages:
        pass

    owner, variable = Owner(), ContextVar("messages")

    def set_timer():
        messages = Messages()
        variable.set(messages)
        return call_later_if_alive(60, owner.beat), weakref.ref(messages)

    async def main():
        timer, messages = copy_context().run(set_timer)
        gc.collect()
        assert messages() is None
        timer.cancel()

    asyncio.run(main())
