"""Which facts share a record, and that nobody who reads the log or the state can tell."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from divebook import Each, Step, Workflow
from divebook.engine.evolve import evolve
from divebook.engine.state import ExecutionState
from divebook.errors import CorruptStoreError
from divebook.events import catalog
from divebook.runtime import journal as gathering
from divebook.runtime import journal as journals
from divebook.runtime.clock import Ids, SystemChance
from divebook.runtime.commit import GroupCommit, StoreCalls
from divebook.runtime.journal import SAME_MOMENT, Journal
from divebook.stores import MemoryStore
from tests.runtime.test_fold import ACTIONS, workflows
from tests.runtime.worlds import environment


class Clock:
    """Stands still until it is set."""

    def __init__(self):
        self.moment = 1_000_000

    def now(self):
        return self.moment


class KeepingStore(MemoryStore):
    """Keeps the records that it is given."""

    def __init__(self):
        super().__init__()
        self.appended = []

    def append_all(self, batches):
        self.appended += [record for batch in batches for record in batch.records]
        return super().append_all(batches)

    def kinds(self):
        """Return what each record is of."""
        return [" ".join(data.event_type for data in record.facts) for record in self.appended]


@pytest.fixture
def written(monkeypatch):
    """Return the records of a run, on however slow a machine."""

    def run(definition):
        store = KeepingStore()
        environment(store=store, actions=ACTIONS).start(definition).wait(30, check=True)
        return store.kinds()

    monkeypatch.setattr(gathering, "SAME_MOMENT", 60_000_000)
    return run


def test_a_step_is_two_records(written):
    steps = [Step("a", action="work", parameters={"value": 1}, store="x")]
    steps += [Step("b", action="work", parameters={"value": "$(state.x)"})]
    assert written(Workflow("w", steps))[-5:] == [
        "path_started step_started operation_started",
        "operation_completed state_mutated step_completed",
        "step_started operation_started",
        "operation_completed step_completed path_completed",
        "execution_completed",
    ]


@pytest.mark.parametrize("parallel", [1, 2])
def test_an_item_is_two_records(written, parallel):
    step = Step("a", action="work", parameters={"value": 1}, each=Each([1, 2], parallel=parallel))
    kinds = written(Workflow("w", [step]))
    if parallel == 1:
        assert "operation_completed iteration_completed iteration_started operation_started" in kinds
    else:
        assert "iteration_started operation_started" in kinds
        assert kinds.count("operation_completed iteration_completed") == 2


def test_a_branch_of_one_step_is_two_records(written):
    begin = Step("a", action="work", parameters={"value": 1}, next=["b", "c"])
    branches = [Step(name, action="work", parameters={"value": 1}, end=True) for name in "bc"]
    kinds = written(Workflow("w", [begin, *branches]))
    assert kinds.count("path_started step_started operation_started") >= 2
    assert kinds.count("operation_completed step_completed path_completed") == 2


def recorded(later, look=lambda journal: None):
    """Return the records of a step whose call begins so many microseconds after it; `look` happens in between."""

    async def main():
        clock, store = Clock(), KeepingStore()
        journal = Journal(ExecutionState("exec_1"), GroupCommit(StoreCalls(store)), clock, Ids(clock, SystemChance()))
        journal.record(catalog.ExecutionStarted("w", {}))
        journal.record(catalog.PathStarted("a"), "main")
        journal.record(catalog.StepStarted("action", None, 1), "main", "a")
        look(journal)
        clock.moment += later
        journal.record(catalog.OperationStarted("op_1", "action_execution"), "main", "a")
        await journal.durable()
        assert "op_1" in journal.state.paths["main"].open.operations
        assert [event.sequence for event in store.read("exec_1")] == [1, 2, 3, 4]
        return store.kinds()[1:]

    return asyncio.run(main())


@pytest.mark.parametrize("later", [0, SAME_MOMENT - 1])
def test_facts_of_one_moment_share_a_record_whoever_looks_in_between(later):
    def look(journal):
        assert journal.state.paths["main"].current_step == "a"

    together = ["path_started step_started operation_started"]
    assert recorded(later) == recorded(later, look) == together


@pytest.mark.parametrize("later", [SAME_MOMENT, -1])
def test_facts_of_other_moments_do_not(later):
    assert recorded(later) == ["path_started step_started", "operation_started"]


def test_another_thread_sees_the_latest_state_that_was_folded():
    async def elsewhere(journal):
        return await asyncio.to_thread(lambda: journal.state.last_sequence)

    async def main():
        clock, store = Clock(), KeepingStore()
        journal = Journal(ExecutionState("exec_1"), GroupCommit(StoreCalls(store)), clock, Ids(clock, SystemChance()))
        commit, journal._commit.schedule = journal._commit.schedule, lambda _: None  # the turn has no end yet
        journal.record(catalog.ExecutionStarted("w", {}))
        before = await elsewhere(journal)
        here = journal.state.last_sequence
        commit(journal)
        return before, here, await elsewhere(journal)

    assert asyncio.run(main()) == (0, 1, 1)


def test_what_does_not_follow_the_state_ends_the_run_and_is_not_written():
    async def main():
        clock, store = Clock(), KeepingStore()
        journal = Journal(ExecutionState("exec_1"), GroupCommit(StoreCalls(store)), clock, Ids(clock, SystemChance()))
        journal.record(catalog.ExecutionStarted("w", {}))
        journal.record(catalog.StepStarted("action", None, 1), "nowhere", "a")
        with pytest.raises(CorruptStoreError, match="on path 'nowhere', which never started"):
            await journal.durable()
        with pytest.raises(CorruptStoreError, match="on path 'nowhere', which never started"):
            journal.record(catalog.PathStarted("a"), "main")
        return store.kinds()

    assert asyncio.run(main()) == ["execution_started"]


def history_of(definition):
    execution = environment(actions=ACTIONS).start(definition, {"n": 2}).wait(30)
    return [without_times(event) for event in execution.history()]


def without_times(event):
    own = {name: 0 for name in ("duration", "seed") if hasattr(event.data, name)}
    data = replace(event.data, **own)
    return replace(event, id="", execution_id="", recorded_at=0, data=data)


@settings(max_examples=30, deadline=None)
@given(workflows())
def test_a_log_is_the_same_whether_facts_share_records_or_not(definition):
    together = history_of(definition)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathering, "MAY_FOLLOW", {})
        assert history_of(definition) == together


def seen(state):
    """Return what a state says, be it on its way or whole."""
    return {**vars(state), "paths": {path.id: vars(path).copy() for path in state.paths.values()}}


@pytest.mark.parametrize("most_unsealed", [0, journals.MOST_UNSEALED])
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(definition=workflows(), data=st.data())
def test_whoever_looks_in_between_sees_the_fold_of_all_that_is_recorded(monkeypatch, most_unsealed, definition, data):
    monkeypatch.setattr(journals, "MOST_UNSEALED", most_unsealed)
    history = environment(actions=ACTIONS).start(definition, {"n": 2}).wait(30).history()
    clock = Clock()

    async def main():
        expected = ExecutionState("exec_1")
        journal = Journal(expected, GroupCommit(StoreCalls(MemoryStore())), clock, Ids(clock, SystemChance()))
        handed_out = []
        with ThreadPoolExecutor(1) as elsewhere:
            for event in history:
                journal.record(event.data, event.path, event.step)
                expected = evolve(expected, replace(event, execution_id="exec_1", recorded_at=clock.moment))
                look = data.draw(st.sampled_from(["not", "at the present", "at the state", "from elsewhere"]))
                if look in ("at the present", "from elsewhere"):
                    assert seen(journal.present) == seen(expected)
                if look == "from elsewhere":
                    handed_out.append((elsewhere.submit(lambda: journal.state).result(), expected))
                elif look == "at the state":
                    handed_out.append((journal.state, expected))
        return [*handed_out, (journal.state, expected)]

    assert all(state == expected for state, expected in asyncio.run(main()))
