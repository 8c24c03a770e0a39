"""Journals that share commits in which the store answers each batch differently.

``python -m tests.runtime.mixed_outcomes [COUNT]`` checks so many random plans, with the seeds from 0 on.
"""

import asyncio
import sys
from random import Random

from divebook.definitions.step import Retry
from divebook.engine.state import ExecutionState
from divebook.errors import ConnectionLostError, FencedError, StoreBusyError
from divebook.events import catalog
from divebook.runtime import commit as group_commit
from divebook.runtime import journal as journals
from divebook.runtime.clock import Ids, SystemChance, SystemClock
from divebook.runtime.commit import GroupCommit, StoreCalls
from divebook.runtime.journal import Journal
from divebook.stores import MemoryStore

WRITTEN, BUSY, LOST, IN_DOUBT, FENCED = "written", "busy", "lost", "in doubt", "fenced"
"""Answers to one batch. A batch `IN_DOUBT` is written although the store reports a lost connection."""
OUTCOMES = [WRITTEN, WRITTEN, BUSY, BUSY, LOST, IN_DOUBT]
LOCAL, LOCAL_WITH_SYNCS, REMOTE = "local", "local with syncs", "remote"
KINDS = [LOCAL, LOCAL_WITH_SYNCS, REMOTE]
PATIENCE = 20
HEAVY_SIZE = 1000


class MixedStore(MemoryStore):
    """Store that gives each batch an answer of its own: at random for a while, and then always the true answer.

    Attributes
    ----------
    errors
        Errors that are not a busy store, by execution id.
    """

    syncs_apart = False  # replaces the property, so that an instance can set it

    def __init__(self, random, kind, mixed_answers):
        super().__init__()
        self.local = kind != REMOTE
        self.syncs_apart = kind == LOCAL_WITH_SYNCS
        self.errors = {}
        self._random = random
        self._mixed_answers = mixed_answers

    def append_all(self, batches):
        return [self._answer(batch) for batch in batches]

    def _answer(self, batch):
        outcome = WRITTEN
        if self._mixed_answers > 0:
            self._mixed_answers -= 1
            # Fenced batches are rare, because each ends its journal.
            outcome = FENCED if self._random.random() < 0.04 else self._random.choice(OUTCOMES)
        if outcome == FENCED:
            error = self.errors[batch.execution_id] = FencedError(batch.execution_id, 1, 2)
            return error
        if outcome == BUSY:
            return StoreBusyError("the disk is full")
        if outcome == LOST:
            return ConnectionLostError("the server is out of reach")
        (answer,) = super().append_all([batch])
        return ConnectionLostError("the server is out of reach") if outcome == IN_DOUBT else answer


def check(seed):
    """Record events in several journals that share commits with mixed answers. Check that each journal ends with all
    its events in the store, or with its own error.
    """
    random = Random(seed)
    store = MixedStore(random, random.choice(KINDS), random.randrange(60))
    before = group_commit.STORE_PAUSES, journals.HEAVY
    group_commit.STORE_PAUSES = Retry(seconds=0)
    journals.HEAVY = HEAVY_SIZE
    try:
        asyncio.run(asyncio.wait_for(_record_in_journals(store, random), PATIENCE))
    finally:
        group_commit.STORE_PAUSES, journals.HEAVY = before


async def _record_in_journals(store, random):
    commit = GroupCommit(StoreCalls(store))
    names = [f"exec_{number}" for number in range(random.randrange(2, 6))]
    ids = Ids(SystemClock(), SystemChance())
    sharing = [Journal(ExecutionState(name), commit, SystemClock(), ids) for name in names]
    await asyncio.gather(*(_record(journal, random) for journal in sharing))
    for journal in sharing:
        name = journal.execution_id
        assert journal.error is store.errors.get(name)
        written = [event.sequence for event in store.read(name)] if name in store._logs else []
        assert written == [*range(1, len(written) + 1)]
        if journal.error is None:
            assert len(written) == journal.written == journal.recorded
    assert not commit._dirty
    assert commit.held_up is None


async def _record(journal, random):
    """Record events in a journal, and wait now and then until they are durable, or until its error."""
    journal.record(catalog.ExecutionStarted("w", {}))
    try:
        for _ in range(random.randrange(1, 12)):
            for _ in range(random.randrange(3)):
                await asyncio.sleep(0)
            is_large = random.random() < 0.2
            data = {"text": "x" * (HEAVY_SIZE + 1)} if is_large else {}
            journal.record(catalog.EventEmitted("tick", data), may_wait=random.random() < 0.2)
            if random.random() < 0.5:
                await journal.durable()
        await journal.durable()
    except FencedError:
        assert journal.error is not None


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    for number in range(count):
        try:
            check(number)
        except BaseException:
            sys.stdout.write(f"seed {number} fails\n")
            raise
    sys.stdout.write(f"{count} plans: every journal ended with all its events or with its own error\n")
