"""What is written at once: records as they are given, and as they are once `divebook.store.preparing` has seen them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from divebook.engine.lifecycle import STATUS_AFTER, TERMINAL, check_may_follow
from divebook.errors import FencedError, InvalidEventError, StoreError
from divebook.events.catalog import (
    ExecutionAnnotated,
    ExecutionEnqueued,
    ExecutionFailed,
    ExecutionForked,
    InterruptExpired,
    InterruptRaised,
    InterruptResolved,
    Payload,
)
from divebook.events.event import Event
from divebook.events.frozen import quickly_made
from divebook.events.record import Record
from divebook.store.blobs import Packed
from divebook.store.checksums import chain
from divebook.store.durability import Durability
from divebook.store.known_ids import Bounds
from divebook.store.leases import Lease
from divebook.store.owner import Owner
from divebook.store.records import Beginning

FIRST_TOKEN = 1
"""The token of the lease that comes with the first events."""
QUESTIONS = (InterruptRaised, InterruptResolved, InterruptExpired)


@quickly_made
@dataclass(frozen=True, slots=True)
class Batch:
    """Records that are written together or not at all."""

    execution_id: str
    expected_sequence: int
    """Sequence of the last event the writer knows of; 0 for a new execution."""
    records: Sequence[Record]
    token: int | None = None
    """The writer's fencing token; None for an execution that never had a lease."""
    acquire: Owner | None = None
    """Who gets the first lease (`FIRST_TOKEN`, `LEASE_SECONDS` long) of the execution that the batch begins."""
    status: str | None = None
    """The execution's status after the events: running or waiting, which they do not tell by themselves.

    None leaves it as it is. An end counts only where the events say so.
    """
    wake_at: int | None = None
    """When a waiting execution has something to do by itself (a timer, a question that expires), microseconds."""
    taken: int = 0
    """Number of the last message that is in the log; it never goes down."""
    durability: Durability | None = None
    """How the batch is written; the first one settles what the record says. None: as the store does by default."""
    is_heavy: bool = False
    """Whether to look for large values before anything is encoded; they are found without that as well."""
    again: bool = False
    """Whether its first records may be in the log already, since the connection was lost when they were written."""
    source: str | None = None
    """The execution whose events up to `expected_sequence` the log shares that the batch begins: it forks that one."""

    @property
    def last_sequence(self) -> int:
        """Where the log stands once it is written."""
        return self.records[-1].last_sequence if self.records else self.expected_sequence

    def events(self) -> list[Event]:
        """Return the events that its records stand for."""
        return [event for record in self.records for event in record.events()]

    def without(self, count: int) -> Batch:
        """Return what is left of it where the log has so many of its records."""
        token = FIRST_TOKEN if count and self.acquire is not None else self.token
        return replace(
            self,
            expected_sequence=self.records[count - 1].last_sequence if count else self.expected_sequence,
            records=self.records[count:],
            token=token,
            acquire=None if count else self.acquire,
            source=None if count else self.source,
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """What an execution's row says after its latest change of status; times in microseconds."""

    status: str
    ended_at: int | None
    error: str | None


@dataclass(slots=True)  # made for every append: to be frozen would double what that costs
class PreparedBatch:
    """A batch that is well formed in itself; whether it fits the log is for the store to find out."""

    execution_id: str
    expected_sequence: int
    last_sequence: int
    """Where the log stands once the batch is written."""
    records: Sequence[Record]
    types: Sequence[str]
    """Those of the records (`divebook.store.facts`)."""
    payloads: Sequence[bytes]
    """Their data, with references in place of `blobs`."""
    heads: Sequence[bytes]
    """What the checksums are made of, before the data."""
    ids: Bounds
    """Between which ids those of the events lie."""
    size: int
    beginning: Beginning | None
    """What a new log begins with; None if the log exists already."""
    began_at: int
    """When a new log began."""
    turn: Turn | None
    """None if the execution neither begins, nor ends, nor is resumed."""
    status: str | None
    """What the status becomes without a turn; None if it stays as it is."""
    wake_at: int | None
    taken: int
    blobs: dict[bytes, bytes]
    """The large values among the payloads, by their hash."""
    token: int
    """The writer's fencing token; 0 if it has none."""
    durability: Durability | None
    questions: dict[str, bool]
    """The questions that were asked or settled, and whether they are open then."""
    lease: Lease | None
    """The first lease of a new log, to be had together with it."""
    annotations: Sequence[ExecutionAnnotated] = ()
    """What people say of the execution, for its row; not what they have said of one that begins with the batch."""
    source: str | None = None
    """The execution that a new log forks, whose events it shares up to `expected_sequence`."""
    packed: dict[bytes, Packed] = field(default_factory=dict)
    """Those of the `blobs` that were packed before the store was locked."""
    enqueued: ExecutionEnqueued | None = None
    """The latest of them, if there is one: the queue in which the execution waits, or whose workers drive it."""
    withheld: bool | None = None
    """Whether workers are to leave it alone from now on: a person has paused it, or it has ended; None as before."""

    @property
    def ends(self) -> bool:
        """Whether the execution has ended once the batch is written."""
        return self.turn is not None and self.turn.status in TERMINAL

    def checksums(self, previous: int) -> list[int]:
        """Return those of the records, after a record with checksum `previous`."""
        return chain(previous, self.heads, self.payloads)

    def check_may_follow(self, status: str) -> None:
        """Raise `ExecutionEndedError` if the execution has ended and an event is not one that may follow."""
        for record in self.records if status in TERMINAL else ():
            for fact in record.facts:
                check_may_follow(self.execution_id, status, type(fact))
                if type(fact) in STATUS_AFTER:
                    return  # what comes after that was looked at with it

    def fenced(self, current: int) -> FencedError:
        """Return the error for a log whose latest lease is another."""
        return FencedError(self.execution_id, self.token or None, current)


def no_place_to_fork(batch: PreparedBatch) -> StoreError:
    """Return the error for a log that would share another one up to the middle of a record, or beyond its end."""
    return StoreError(
        f"execution {batch.source} has no record that ends with event {batch.expected_sequence}, so that no other log "
        "can share what comes before; fork at the end of a record"
    )


def records_of(events: Iterable[Event]) -> list[Record]:
    """Return the records that stand for one event each.

    Raises
    ------
    InvalidEventError
        ``invalid event at index i: ...``, for the first that is none.
    """
    records: list[Record] = []
    for event in events:
        if not isinstance(event, Event):
            raise invalid(len(records), InvalidEventError(f"expected an Event, got {type(event).__name__}"))
        records.append(Record.of(event))
    return records


def invalid(index: int, error: Exception) -> InvalidEventError:
    """Return the error for one event of a batch."""
    return InvalidEventError(f"invalid event at index {index}: {error}")


def note_questions(known: dict[str, bool], fact: Payload) -> None:
    """Note the question that a fact asks or settles, and whether it is open then; a fork drops those before it."""
    if isinstance(fact, QUESTIONS):
        known[fact.interrupt_id] = isinstance(fact, InterruptRaised)
    elif isinstance(fact, ExecutionForked):
        known.clear()


def turn_after(fact: Payload, recorded_at: int) -> Turn | None:
    """Return what a fact makes of the status of its execution; None if it leaves it as it is."""
    status = STATUS_AFTER.get(type(fact))
    if status is None:
        return None
    error = fact.error if isinstance(fact, ExecutionFailed) else None
    return Turn(status, recorded_at if status in TERMINAL else None, error)
