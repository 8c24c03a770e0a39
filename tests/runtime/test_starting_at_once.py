"""`start` in a coroutine returns at once, and the event loop serves others while the store is written."""

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress

import ipykernel.kernelapp  # noqa: F401 - a process that has only imported it is not a kernel
import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import DivebookError, ExecutionError, ExecutionFailedError, StoreError
from divebook.runtime.loop import ENGINE, LeftError
from divebook.stores import MemoryStore, SqliteStore
from tests.runtime.worlds import Gate

ADDS = Workflow("adds", [Step("add", script="1 + 1", store="n")])
WAITS = Workflow("waits", [Step("wait", "wait", signal="go")])


class Held(MemoryStore):
    """Appends nothing before it is opened, or refuses what is to be appended."""

    def __init__(self, error=None):
        super().__init__()
        self.opened, self.error = threading.Event(), error
        self.reached = threading.Event()

    def append_all(self, batches):
        self.reached.set()
        assert self.opened.wait(20)
        if self.error is not None:
            raise self.error
        return super().append_all(batches)


def test_a_coroutine_is_not_held_up_by_the_store():
    store = Held()

    async def main():
        run = Environment(store=store).start(ADDS)
        assert (run.id.startswith("exec_"), run.is_live) == (True, True)
        stored = asyncio.ensure_future(run.ensure_stored())
        await asyncio.sleep(0)
        assert (stored.done(), store.records()) == (False, [])
        store.opened.set()
        assert await stored is run
        assert [record.execution_id for record in store.records()] == [run.id]
        return await run

    assert asyncio.run(main()).status == "completed"


def test_a_thread_without_a_loop_waits_for_the_store():
    store = MemoryStore()
    run = Environment(store=store).start(WAITS)
    assert [record.execution_id for record in store.records()] == [run.id]


@pytest.mark.parametrize("error", [None, StoreError("damaged")], ids=["stored", "refused"])
def test_a_coroutine_waits_for_the_store_that_a_thread_waits_for(error):
    store = Held(error)
    run = Environment(store=store).create(WAITS)

    def start():
        with suppress(StoreError):
            run.start()

    async def main():
        with pytest.raises(ExecutionError, match="was not started; start it first"):
            await run.ensure_stored()
        starting = asyncio.ensure_future(asyncio.to_thread(start))
        await asyncio.to_thread(store.reached.wait, 20)
        threading.Timer(0.05, store.opened.set).start()  # the engine's loop is blocked until then
        if error is None:
            assert await run.ensure_stored() is run
            assert [record.execution_id for record in store.records()] == [run.id]
        else:
            with pytest.raises(StoreError, match="damaged"):
                await run.ensure_stored()
        await starting

    asyncio.run(main())


def test_many_runs_begin_together():
    store = Held()

    async def main():
        environment = Environment(store=store)
        runs = [environment.start(ADDS) for _ in range(20)]
        store.opened.set()
        return await asyncio.gather(*runs)

    assert [run.variables for run in asyncio.run(main())] == [{"n": 2}] * 20


LOOKS = {
    "status": lambda environment, run: run.status == "running" or run.state.is_over or run.status == "waiting",
    "events": lambda environment, run: len(run.events) > 0,
    "run_of": lambda environment, run: environment.run_of(run.id).status != "pending",
    "record": lambda environment, run: run.store.record(run.id).execution_id == run.id,
    "wait": lambda environment, run: run.wait(20).status == "waiting",
    "signal": lambda environment, run: run.signal("go").wait(20).status == "completed",
    "cancel": lambda environment, run: run.cancel().wait(20).status == "cancelled",
    "annotate": lambda environment, run: run.annotate(note="seen").store.record(run.id).note == "seen",
    "fork": lambda environment, run: run.wait(20) and run.fork(at=2).wait(20).status == "waiting",
    "report": lambda environment, run: run.id in repr(run.report()),
}


@pytest.mark.parametrize("look", LOOKS)
def test_who_has_started_a_run_finds_it_begun(look):
    async def main():
        environment = Environment(store="memory:")
        assert LOOKS[look](environment, environment.start(WAITS))

    asyncio.run(main())


def test_a_wrong_start_is_refused_at_once():
    async def main():
        environment = Environment(store="memory:")
        run = environment.start(WAITS)
        with pytest.raises(ExecutionError, match="only a pending execution can be started"):
            run.start()
        with pytest.raises(DivebookError):
            environment.start("unknown")
        with pytest.raises(DivebookError):
            environment.start(ADDS, {"unknown": 1})

    asyncio.run(main())


@pytest.mark.parametrize("is_looked_at", [False, True], ids=["unseen", "seen"])
@pytest.mark.parametrize("act", [lambda run: run, lambda run: run.ensure_stored()], ids=["the end", "the start"])
def test_a_store_that_refuses_the_start_raises_where_it_is_awaited(act, is_looked_at):
    store = Held(StoreError("damaged"))
    store.opened.set()

    async def main():
        run = Environment(store=store).start(ADDS)
        if is_looked_at:  # a look must not use up the error
            _ = run.status
        with pytest.raises(StoreError, match="damaged"):
            await act(run)
        with suppress(StoreError):
            await run
        assert (run.status, run.is_live) == ("pending", False)

    asyncio.run(main())


def test_a_start_with_a_key_waits_for_the_store_which_knows_the_key():
    async def main():
        environment = Environment(store="memory:")
        first = environment.start(WAITS, key="order 7")
        assert environment.store.record(first.id).key == "order 7"
        assert environment.start(WAITS, key="order 7").id == first.id

    asyncio.run(main())


def test_an_environment_that_is_closed_has_stored_what_was_started(tmp_path):
    async def main():
        with Environment(store=SqliteStore(tmp_path / "s.db")) as environment:
            return environment.start(WAITS).id

    started = asyncio.run(main())
    with SqliteStore(tmp_path / "s.db") as store:
        assert [record.execution_id for record in store.records()] == [started]


def test_a_process_that_ends_has_stored_what_it_started(tmp_path):
    code = """
import asyncio, sys
from divebook import Environment, Step, Workflow
async def main():
    print(Environment(store=sys.argv[1]).start(Workflow("waits", [Step("wait", "wait", signal="go")])).id)
asyncio.run(main())
"""
    command = [sys.executable, "-c", code, str(tmp_path / "s.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env={**os.environ})
    with SqliteStore(tmp_path / "s.db") as store:
        assert [record.execution_id for record in store.records()] == [done.stdout.strip()]


def test_a_process_that_ends_before_the_engine_begins_a_run_has_stored_it(tmp_path):
    # The engine is busy until the notice at the end of the process waits for the first commits.
    code = """
import asyncio, sys, threading
from divebook import Environment, Step, Workflow
from divebook.runtime import driver
from divebook.runtime.loop import ENGINE
busy, free, wait = threading.Event(), threading.Event(), driver.wait
def wait_and_free(futures, seconds):
    free.set()
    return wait(futures, seconds)
def occupy():
    busy.set()
    free.wait(60)
driver.wait = wait_and_free
async def main():
    ENGINE.loop.call_soon_threadsafe(occupy)
    busy.wait(60)
    print(Environment(store=sys.argv[1]).start(Workflow("waits", [Step("wait", "wait", signal="go")])).id)
asyncio.run(main())
"""
    command = [sys.executable, "-c", code, str(tmp_path / "s.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env={**os.environ})
    with SqliteStore(tmp_path / "s.db") as store:
        assert [record.execution_id for record in store.records()] == [done.stdout.strip()]


def test_a_workflow_that_fails_raises_at_its_result_and_not_at_its_start():
    async def main():
        run = Environment(store="memory:").start(Workflow("fails", [Step("add", script="1 / 0")]))
        await run
        with pytest.raises(ExecutionFailedError):
            run.result()

    asyncio.run(main())


def test_a_run_that_is_cancelled_before_the_engine_begins_it_ends_as_cancelled():
    async def main():
        environment = Environment(store="memory:")
        run = environment.create(WAITS)
        driver = run._driver
        assert driver.expect_begin() is not None
        assert driver.expect_begin() is None
        assert ENGINE.call(lambda: driver.cancel_pending(environment.internals.control.dependencies, "too late"))
        assert await run.ensure_stored() is run
        assert (await run).status == "cancelled"

    asyncio.run(main())


def test_a_run_that_a_thread_and_a_coroutine_start_at_once_is_stored_for_both():
    gate = Gate()
    environment = Environment(store="memory:", actions=[gate.action()])
    run, stored = environment.create(Workflow("w", [Step("a", action="gate")])), Future()
    driver = run._driver
    assert driver.expect_begin() is not None  # the coroutine; the engine begins the start of the thread first
    expected = driver.first_commit
    ENGINE.outcome(lambda: driver.begin(environment.internals.control.dependencies, stored), stored)
    expected.result(20)
    assert (run.status, run.is_live) == ("running", True)
    gate.opened.set()
    assert run.wait(20).status == "completed"


def test_a_run_that_the_engine_has_not_begun_when_its_environment_is_closed_is_refused(monkeypatch):
    store = MemoryStore()
    environment = Environment(store=store)
    run, control, on_loop = environment.create(WAITS), environment.internals.control, ENGINE.call

    def start_and_call(leave):
        # A coroutine of another thread starts it after `close` has waited for first commits. The engine has its turn
        # for the start after that of `close`.
        monkeypatch.undo()
        return on_loop(lambda: (control.run(run._driver), leave())[1])

    monkeypatch.setattr(ENGINE, "call", start_and_call)
    environment.close()
    on_loop(lambda: None)  # the turn for the start comes before this one
    assert (control.live(), store.records()) == ([], [])
    with pytest.raises(LeftError, match="was not started"):
        asyncio.run(run.ensure_stored())


def left_before_its_first_step(environment, run):
    driver, dependencies, stored = run._driver, environment.internals.control.dependencies, Future()
    ENGINE.call(lambda: (driver.begin(dependencies, stored), driver.leave()))
    with pytest.raises(LeftError, match="or start it again if it was not stored"):
        stored.result(20)


def refused_by_the_store(environment, run):
    environment.store.error = StoreError("damaged")
    with pytest.raises(StoreError, match="damaged"):
        run.start()
    environment.store.error = None


def refused_in_a_coroutine(environment, run):
    async def main():
        run.start()
        await run.ensure_stored()

    environment.store.error = StoreError("damaged")
    with pytest.raises(StoreError, match="damaged"):
        asyncio.run(main())
    environment.store.error = None


@pytest.mark.parametrize("fails", [left_before_its_first_step, refused_by_the_store, refused_in_a_coroutine])
def test_a_run_of_which_nothing_was_stored_can_be_started_again(fails):
    store = Held()
    store.opened.set()
    environment = Environment(store=store)
    run = environment.create(ADDS)
    fails(environment, run)
    with suppress(DivebookError):  # its drive has ended
        run._driver.driving().result(20)
    assert (run.status, store.records()) == ("pending", [])
    assert run.start().wait(20).status == "completed"
    with pytest.raises(ExecutionError, match="is completed; only a pending execution can be started"):
        run.start()


def test_a_run_that_the_engine_is_about_to_begin_cannot_be_started_again():
    environment = Environment(store="memory:")
    run = environment.create(ADDS)

    def start_twice():  # on the engine's loop, where nothing runs in between
        environment.internals.control.run(run._driver)
        with pytest.raises(ExecutionError, match="was started already; only a pending execution can be started"):
            run.start()

    ENGINE.call(start_twice)
    assert run.wait(20).status == "completed"


def test_a_list_shows_a_run_once_its_start_is_stored():
    store = Held()

    async def main():
        environment = Environment(store=store)
        run = environment.start(WAITS)
        assert environment.runs() == []  # lists wait for no store
        store.opened.set()
        await run.ensure_stored()
        assert [listed.id for listed in environment.runs()] == [run.id]

    asyncio.run(main())
