"""When a journal's events are written, and what its ids are like."""

import asyncio

from divebook.engine.state import ExecutionState
from divebook.errors import StoreError
from divebook.events import catalog
from divebook.execution import journal as journals
from divebook.execution.clock import Ids, SystemChance, SystemClock
from divebook.execution.group_commit import MOST_IN_A_ROW, GroupCommit
from divebook.execution.journal import Journal
from divebook.execution.store_calls import StoreCalls
from divebook.store import MemoryStore


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
