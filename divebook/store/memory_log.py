"""One log in this process's memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TypeAlias

from divebook.engine.lifecycle import TERMINAL
from divebook.events.catalog import RUNNING, ExecutionEnqueued
from divebook.events.event import to_datetime
from divebook.events.record import Record
from divebook.store.batches import Turn
from divebook.store.durability import FULL, Durability
from divebook.store.facts import width_of
from divebook.store.known_ids import Ids, KnownIds
from divebook.store.leases import Lease, Moment
from divebook.store.records import Beginning, ExecutionRecord
from divebook.store.summaries import StoredSummary
from divebook.store.upkeep import StoredRecord

Head: TypeAlias = tuple[int, int, str, str, str, str]
"""First sequence, time, type, id, path and step of a record. Plain tuples of plain values, so that Python's search for
garbage does not look through all of a long log again and again."""


@dataclass(slots=True)
class MemoryLog:
    """What a store in memory has of one execution."""

    beginning: Beginning
    created_at: int
    number: int
    """Of the logs of its store, in the order in which they began."""
    turn: Turn = field(default_factory=lambda: Turn(RUNNING, None, None))
    heads: list[Head] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    ids: KnownIds = field(default_factory=KnownIds)
    checksums: list[int] = field(default_factory=list)
    blobs: set[bytes] = field(default_factory=set)
    shared: int = 0
    """How many events are those of the log that it was forked from: the same objects, which its size does not count."""
    shared_blobs: frozenset[bytes] = frozenset()
    """The large values that those refer to."""
    last_sequence: int = 0
    size: int = 0
    token: int = 0
    lease: Lease | None = None
    checkpoint: tuple[int, bytes] | None = None
    summary: StoredSummary | None = None
    questions: dict[str, bool] = field(default_factory=dict)
    wake_at: int | None = None
    taken: int = 0
    durability: Durability = FULL
    enqueued: ExecutionEnqueued | None = None
    """The queue that has it, if one does."""
    withheld: bool = False
    """Whether workers leave it alone."""

    def stored(self, after: int, last: int) -> list[StoredRecord]:
        """Return the records that hold the events above `after` up to `last`."""
        first = max(bisect_right(self.heads, after + 1, key=itemgetter(0)) - 1, 0)
        wanted = slice(first, bisect_right(self.heads, last, key=itemgetter(0)))
        rows = zip(self.heads[wanted], self.payloads[wanted], self.checksums[wanted], strict=True)
        return [StoredRecord(*head, payload, checksum) for head, payload, checksum in rows]

    def forked(self, at: int, like: MemoryLog, used: Callable[[bytes], Iterable[bytes]]) -> MemoryLog:
        """Return a log like another new one that begins with the events of this one up to `at`.

        `used` says which large values a payload refers to.
        """
        known = self.shared_blobs.union(self.blobs)
        count = bisect_right(self.heads, at, key=itemgetter(0))
        heads, payloads, checksums = self.heads[:count], self.payloads[:count], self.checksums[:count]
        return replace(
            like,
            heads=heads,
            payloads=payloads,
            checksums=checksums,
            ids=KnownIds(None),
            last_sequence=at,
            shared=at,
            shared_blobs=frozenset(found for payload in payloads for found in used(payload)) if known else known,
        )

    def ends_record(self, sequence: int) -> bool:
        """Return whether a record ends with an event."""
        stored = self.stored(sequence - 1, sequence)
        return bool(stored) and stored[0].last_sequence == sequence

    def all_ids(self) -> list[Ids]:
        """Return the ids of its records."""
        return [(first_id, width_of(record_type)) for _, _, record_type, first_id, _, _ in self.heads]

    def open_questions(self) -> list[str]:
        """Return the questions that are asked and not settled."""
        return sorted(asked for asked, is_open in self.questions.items() if is_open)

    def is_over(self, moment: Moment) -> bool:
        """Return whether it has ended and no process has begun to resume it."""
        return self.turn.status in TERMINAL and not (self.lease and self.lease.keeps_out(moment))

    def ended_before(self, moment: int) -> bool:
        """Return whether it has ended, and did before a moment."""
        turn = self.turn
        return turn.status in TERMINAL and turn.ended_at is not None and turn.ended_at < moment

    def line(self, execution_id: str) -> ExecutionRecord:
        """Return it as lists have it."""
        created = to_datetime(self.created_at)
        return ExecutionRecord(
            execution_id=execution_id,
            status=self.turn.status,
            created_at=created,
            started_at=created,
            ended_at=None if self.turn.ended_at is None else to_datetime(self.turn.ended_at),
            last_sequence=self.last_sequence,
            error=self.turn.error,
            size=self.size,
            wake_at=None if self.wake_at is None else to_datetime(self.wake_at),
            taken=self.taken,
            durability=self.durability,
            **self.beginning._asdict(),
        )


def head_of(record: Record, record_type: str) -> Head:
    """Return what is kept of a record beside its data."""
    return record.sequence, record.recorded_at, record_type, record.id, record.path, record.step
