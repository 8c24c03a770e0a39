"""When a journal's events are written, and what its ids are like."""

import asyncio
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divebook.engine.state import ExecutionState
from divebook.errors import StoreBusyError, StoreError
from divebook.events import catalog
from divebook.events.event import successor
from divebook.events.values import normalize
from divebook.runtime import commit as group_commit
from divebook.runtime import journal as journals
from divebook.runtime.clock import Ids, SystemChance, SystemClock
from divebook.runtime.commit import MOST_IN_A_ROW, GroupCommit, StoreCalls
from divebook.runtime.journal import HEAVY, Journal
from divebook.stores import MemoryStore
from divebook.stores.append import prepare


class CountingStore(MemoryStore):
    """Counts transactions."""

    def __init__(self):
        super().__init__()
        self.commits = []

    def append_all(self, batches):
        self.commits.append([batch.execution_id for batch in batches])
        return super().append_all(batches)


def begun(commit, name="exec_1"):
    journal = Journal(ExecutionState(name), commit, SystemClock(), Ids(SystemClock(), SystemChance()))
    journal.record(catalog.ExecutionStarted("w", {}))
    return journal


def signal(journal):
    journal.record(catalog.SignalReceived("tick"))


def test_a_path_without_company_does_not_wait_for_the_end_of_its_turn():
    async def main():
        store = CountingStore()
        journal = begun(GroupCommit(StoreCalls(store)))
        await journal.durable()
        turned = []
        signal(journal)
        asyncio.get_running_loop().call_soon(turned.append, True)
        await journal.durable()
        assert (turned, journal.written, len(store.read("exec_1"))) == ([], 2, 2)

    asyncio.run(main())


def test_what_may_wait_is_written_with_what_follows_upon_it():
    async def main():
        store = CountingStore()
        journal = begun(GroupCommit(StoreCalls(store)))
        await journal.durable()
        journal.record(catalog.SignalReceived("tick"), may_wait=True)
        for _ in range(3):
            await asyncio.sleep(0)
        assert (journal.recorded, journal.written) == (2, 1)
        signal(journal)
        await journal.durable()
        assert (journal.written, len(store.commits)) == (3, 2)
        journal.record(catalog.SignalReceived("tick"), may_wait=True)
        await journal.durable()
        assert (journal.written, len(store.commits)) == (4, 3)

    asyncio.run(main())


def test_what_nothing_follows_upon_is_written_all_the_same(monkeypatch):
    monkeypatch.setattr(group_commit, "LATEST", 0.0)

    async def main():
        commit = GroupCommit(StoreCalls(CountingStore()))
        alone, other = begun(commit), begun(commit, "exec_2")
        await alone.durable()
        alone.record(catalog.SignalReceived("tick"), may_wait=True)
        for _ in range(3):
            await asyncio.sleep(0)
        assert alone.written == 2
        monkeypatch.setattr(group_commit, "LATEST", 3600.0)
        alone.record(catalog.SignalReceived("tick"), may_wait=True)
        signal(other)
        await other.durable()
        assert alone.written == 3  # what others write takes it with it

    asyncio.run(main())


def test_everybody_else_still_gets_a_turn():
    async def main():
        journal = begun(GroupCommit(StoreCalls(CountingStore())))
        await journal.durable()
        turned = []
        asyncio.get_running_loop().call_soon(turned.append, True)
        for _ in range(MOST_IN_A_ROW + 1):
            signal(journal)
            await journal.durable()
        assert turned

    asyncio.run(main())


def test_those_who_write_in_one_turn_share_a_commit():
    async def main():
        store = CountingStore()
        commit = GroupCommit(StoreCalls(store))
        both = [begun(commit, "exec_1"), begun(commit, "exec_2")]
        for _ in range(3):
            await asyncio.gather(*(journal.durable() for journal in both))
            for journal in both:
                signal(journal)
        assert store.commits == [["exec_1", "exec_2"]] * 3

    asyncio.run(main())


class SlowWithLargeValues(MemoryStore):
    """Waits before it writes anything from a thread, and is busy then as often as it is told."""

    def __init__(self, busy=0):
        super().__init__()
        self.goes_on, self.busy, self.threads = threading.Event(), busy, []

    def append_all(self, batches):
        self.threads += [(batch.execution_id, threading.get_ident()) for batch in batches]
        if threading.get_ident() != threading.main_thread().ident:
            assert self.goes_on.wait(20)
            if self.busy:
                self.busy -= 1
                raise StoreBusyError("the disk is full")
        return super().append_all(batches)


@pytest.mark.parametrize("busy", [0, 2])
def test_a_large_value_is_written_by_a_thread_and_everybody_else_goes_on(busy):
    async def main():
        store = SlowWithLargeValues(busy)
        commit = GroupCommit(StoreCalls(store))
        heavy, light = begun(commit, "exec_1"), begun(commit, "exec_2")
        await asyncio.gather(heavy.durable(), light.durable())
        heavy.record(catalog.EventEmitted("large", {"text": "x" * (HEAVY + 1)}))
        written = asyncio.ensure_future(heavy.durable())
        await asyncio.sleep(0)
        signal(heavy)
        signal(light)
        await light.durable()
        assert (heavy.written, light.written, written.done()) == (1, 2, False)
        store.goes_on.set()
        await heavy.durable()
        await written
        assert [event.event_type for event in store.read("exec_1")] == [
            "execution_started",
            "event_emitted",
            "signal_received",
        ]
        own = threading.get_ident()
        assert {name for name, thread in store.threads if thread == own} >= {"exec_2"}
        assert {name for name, thread in store.threads if thread != own} == {"exec_1"}
        assert not commit._heavy_writes

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fact", "heavy"),
    [
        (catalog.OperationStarted("op", "x", {"params": {"text": "x" * HEAVY}}), False),
        (catalog.OperationStarted("op", "x", {"params": {"text": "x" * (HEAVY + 1)}}), True),
        (catalog.OperationStarted("op", "x", {"params": {}}), False),
        (catalog.OperationCompleted("op", "x", 1, [{"n": 1}] * 20_000), True),
        (catalog.OperationCompleted("op", "x", 1, [{"n": 1}] * 20), False),
        (catalog.OperationCompleted("op", "x", 1, "x" * HEAVY), False),
        (catalog.OperationCompleted("op", "x", 1, normalize(np.zeros(200_000))), True),
        (catalog.StepCompleted("x" * (HEAVY + 1)), True),
        (catalog.StepCompleted(b"x" * (HEAVY + 1)), True),
        (catalog.ExecutionCompleted({"a": {"b": ["x" * (HEAVY + 1)]}}), True),
    ],
)
def test_what_takes_long_to_write_is_seen_at_a_glance(fact, heavy):
    async def main():
        journal = Journal(
            ExecutionState("exec_1"),
            GroupCommit(StoreCalls(MemoryStore())),
            SystemClock(),
            Ids(SystemClock(), SystemChance()),
        )
        journal.record(fact)
        assert journal.is_heavy is heavy

    asyncio.run(main())


def test_a_checkpoint_that_cannot_be_written_stops_nothing(monkeypatch, logs):
    class WithoutCheckpoints(MemoryStore):
        def put_checkpoint(self, execution_id, sequence, data):
            raise StoreError("no room")

    async def main():
        journal = begun(GroupCommit(StoreCalls(WithoutCheckpoints())))
        for _ in range(4):
            signal(journal)
            await journal.durable()
        assert journal.written == 5

    monkeypatch.setattr(journals, "CHECKPOINT_EVENTS", 2)
    monkeypatch.setattr(journals, "CHECKPOINT_BYTES", 1000)
    asyncio.run(main())
    assert logs() == [f"execution exec_1 has no checkpoint at event {number}: no room" for number in (2, 4)]


def test_event_ids_of_one_millisecond_sort_in_the_order_in_which_they_were_made():
    ids = Ids(SystemClock(), SystemChance())
    made = [ids.event(1_732_181_712_345_000) for _ in range(1024)]
    assert made == sorted(set(made))
    assert {len(event_id) for event_id in made} == {32}


def test_event_ids_are_different_however_many_one_millisecond_has():
    ids, others = Ids(SystemClock(), SystemChance()), Ids(SystemClock(), SystemChance())
    made = [source.event(5_000) for source in (ids, others) for _ in range(3000)]
    assert len(set(made)) == 6000


def test_the_ids_of_a_record_are_consecutive_and_no_other_record_has_them():
    ids = Ids(SystemClock(), SystemChance())
    first = ids.event(5_000)
    assert ids.following == 1023
    second = ids.event(5_000, more=1000)  # the record of the first id has 1,001 events
    assert ids.following == 22
    assert successor(first, 1001) == second
    third = ids.event(5_000, more=22)  # the millisecond is used up: new random bits
    assert third[:-2] != first[:-2]


class SetClock(SystemClock):
    """A clock that tests set."""

    def __init__(self, now):
        self.time = now

    def now(self):
        return self.time


STEP = (
    catalog.StepStarted("action", None, 1),
    catalog.OperationStarted("op_1", "action_execution", {}, "0" * 16),
    catalog.OperationCompleted("op_1", "action_execution", 5, 1),
    catalog.StepCompleted("1"),
)
NOW = 1_750_000_000_000_000


@given(st.lists(st.tuples(st.sampled_from([-3_000_000, -1, 0, 1, 2_000]), st.integers(1, 4)), min_size=1, max_size=12))
def test_a_batch_of_a_journal_needs_no_check_by_the_store(moves):
    """The clock may stand still, move and be set back between the records: their ids ascend only in part."""

    async def main():
        clock, store = SetClock(NOW), MemoryStore()
        journal = Journal(ExecutionState("exec_1"), GroupCommit(StoreCalls(store)), clock, Ids(clock, SystemChance()))
        journal.record(catalog.ExecutionStarted("w", {}))
        journal.record(catalog.PathStarted("a"), "main")
        for seconds, count in moves:
            clock.time += seconds
            first, *more = STEP[:count]
            journal.record(first, "main", "a", more=more)
        batch = journal.take_batch()
        assert batch.is_checked
        # Without the first lease, which has the time of its making.
        checked, unchecked = (replace(batch, acquire=None, is_checked=is_checked) for is_checked in (True, False))
        assert prepare(checked, store.sealing) == prepare(unchecked, store.sealing)

    asyncio.run(main())


def test_facts_recorded_together_are_those_recorded_one_after_the_other():
    async def main():
        logs = []
        for is_together in (True, False):
            clock = SetClock(NOW)
            journal = Journal(
                ExecutionState("exec_1"), GroupCommit(StoreCalls(MemoryStore())), clock, Ids(clock, SystemChance())
            )
            journal.record(catalog.ExecutionStarted("w", {}))
            journal.record(catalog.PathStarted("a"), "main")
            if is_together:
                journal.record(STEP[0], "main", "a", more=STEP[1:], now=NOW)
            else:
                for fact in STEP:
                    journal.record(fact, "main", "a")
            batch = journal.take_batch()
            logs.append([(record.sequence, record.facts, record.path, record.step) for record in batch.records])
        assert logs[0] == logs[1]

    asyncio.run(main())


def test_a_wrong_clock_is_named_by_the_store():
    async def main():
        clock, store = SetClock(NOW), MemoryStore()
        journal = Journal(ExecutionState("exec_1"), GroupCommit(StoreCalls(store)), clock, Ids(clock, SystemChance()))
        journal.record(catalog.ExecutionStarted("w", {}))
        batch = journal.take_batch()
        (record,) = batch.records
        (refusal,) = store.append_all([replace(batch, records=[replace(record, recorded_at=-1)])])
        assert "before 1970: set the clock of this machine" in str(refusal)

    asyncio.run(main())
