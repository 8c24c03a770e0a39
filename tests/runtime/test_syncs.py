"""Executions that are under way together wait for the disk together, and nothing begins that is not on it."""

import asyncio
import threading
from concurrent.futures import Future

import pytest

from divebook import Step, Workflow
from divebook.engine.state import ExecutionState
from divebook.errors import ExecutionError, StartKeyTakenError, StoreError
from divebook.events import catalog
from divebook.runtime.clock import Ids, SystemChance, SystemClock
from divebook.runtime.commit import GroupCommit, StoreCalls
from divebook.runtime.journal import Journal
from divebook.steps.actions import Action
from divebook.stores import SqliteStore
from tests.runtime.worlds import environment


class Disk(SqliteStore):
    """Lets its syncs wait for the test, which says what comes of them, and knows what each of them reached."""

    def __init__(self, path):
        super().__init__(path)
        self.appended, self.synced, self.syncs = {}, {}, 0
        self.unsynced = threading.local()
        self.free = threading.Semaphore(1_000_000)
        self.error = None

    def append_unsynced(self, batches):
        self.unsynced.is_on = True
        try:
            answers = super().append_unsynced(batches)
        finally:
            self.unsynced.is_on = False
        self.appended |= {batch.execution_id: batch.last_sequence for batch in batches}
        return answers

    def append_all(self, batches):
        answers = super().append_all(batches)
        if not getattr(self.unsynced, "is_on", False):
            self.appended |= {batch.execution_id: batch.last_sequence for batch in batches}
            self.synced |= self.appended  # SQLite brings the whole log to the disk
        return answers

    def sync(self):
        self.syncs += 1
        reached = dict(self.appended)
        self.free.acquire()
        if self.error is not None:
            raise self.error
        super().sync()
        self.synced |= {name: max(sequence, self.synced.get(name, 0)) for name, sequence in reached.items()}


@pytest.fixture
def disk(tmp_path):
    with Disk(tmp_path / "executions.db") as store:
        yield store


def begun(commit, name):
    journal = Journal(ExecutionState(name), commit, SystemClock(), Ids(SystemClock(), SystemChance()))
    journal.record(catalog.ExecutionStarted("w", {}))
    return journal


def chain(steps=3):
    return Workflow("chain", [Step(f"s{number}", action="look", store=f"v{number}") for number in range(steps)])


def world(store, called=None, together=1):
    """Make an environment whose action notes what of all logs was on the disk when it was called.

    The first calls wait for each other, so that as many executions as are to go on `together` do.
    """
    all_have_begun = asyncio.Event()

    async def look(context):
        if called is not None:
            called.append((context.run_id, dict(store.synced)))
            if len({name for name, _ in called}) == together:
                all_have_begun.set()
            await all_have_begun.wait()
        return 1

    return environment(chain(), actions=[Action("look", look)], store=store)


def test_one_execution_waits_for_the_disk_where_it_stands(disk):
    for _ in range(3):
        world(disk).start("chain").wait(20, check=True)
    assert disk.syncs == 0


def test_no_call_is_made_before_its_intent_is_on_the_disk(disk):
    called = []
    environment = world(disk, called, together=8)

    async def drive_all():
        return await asyncio.gather(*(environment.create("chain") for _ in range(8)))

    executions = asyncio.run(drive_all())
    assert [execution.status for execution in executions] == ["completed"] * 8
    assert 0 < disk.syncs < 4 * 8
    assert len(called) == 3 * 8
    logs = {execution.id: execution.history() for execution in executions}
    for number, (name, synced) in enumerate(called):
        nth = sum(earlier == name for earlier, _ in called[:number])
        intents = [event.sequence for event in logs[name] if event.event_type == "operation_started"]
        assert synced.get(name, 0) >= intents[nth]


def test_what_is_written_during_a_sync_shares_the_next_one(disk):
    async def main():
        commit = GroupCommit(StoreCalls(disk))
        disk.free = threading.Semaphore(0)
        first = [asyncio.create_task(begun(commit, f"exec_{number}").durable()) for number in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        later = [asyncio.create_task(begun(commit, f"exec_{number}").durable()) for number in range(2, 7)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert not any(task.done() for task in (*first, *later))
        disk.free.release()
        await asyncio.gather(*first)
        assert not any(task.done() for task in later)
        disk.free.release()
        await asyncio.gather(*later)
        assert disk.syncs == 2

    asyncio.run(main())


def test_who_asks_for_what_is_written_already_waits_until_it_is_on_the_disk(disk):
    async def main():
        commit = GroupCommit(StoreCalls(disk))
        disk.free = threading.Semaphore(0)
        journals = [begun(commit, f"exec_{number}") for number in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert journals[0].written == 1
        waiting = asyncio.create_task(journals[0].durable())
        await asyncio.sleep(0)
        assert not waiting.done()
        disk.free.release()
        await waiting
        assert disk.synced == {"exec_0": 1, "exec_1": 1}

    asyncio.run(main())


def test_a_disk_that_refuses_is_an_error_for_everyone_who_waits_for_it(disk):
    disk.error = StoreError("the disk is gone")

    async def main():
        commit = GroupCommit(StoreCalls(disk))
        journals = [begun(commit, f"exec_{number}") for number in range(3)]
        for journal in journals:
            journal.first_commit = Future()
        waiting = (journal.durable() for journal in journals)
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert outcomes == [disk.error] * 3
        assert not any(journal.first_commit.done() for journal in journals)
        with pytest.raises(StoreError, match="the disk is gone"):
            journals[0].record(catalog.SignalReceived("tick"))

    asyncio.run(main())


def test_an_execution_that_is_awaited_begins(disk):
    async def main():
        execution = world(disk).create("chain")
        assert execution.status == "pending"
        first, second = await asyncio.gather(execution, execution)
        assert first is second is execution
        assert execution.status == "completed"
        assert (await execution).status == "completed"

    asyncio.run(main())


def test_an_execution_whose_key_another_one_has_says_so_where_it_is_awaited(disk):
    environment = world(disk)
    first = environment.start("chain", key="once").wait(20)

    async def main():
        with pytest.raises(StartKeyTakenError) as raised:
            await environment.create("chain", key="once")
        assert raised.value.run_id == first.id

    asyncio.run(main())


def test_a_pending_execution_is_not_begun_by_waiting_in_a_thread(disk):
    with pytest.raises(ExecutionError, match="start it first"):
        world(disk).create("chain").wait(1)
