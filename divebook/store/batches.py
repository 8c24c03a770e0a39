"""What is written at once, and what every store does to it before: check events, encode payloads, note what changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from divebook.engine.lifecycle import STATUS_AFTER, STATUSES, TERMINAL, check_may_follow
from divebook.errors import FencedError, InvalidEventError, NotFoundError, UnstorableValueError
from divebook.events.catalog import (
    ExecutionFailed,
    ExecutionStarted,
    InterruptExpired,
    InterruptRaised,
    InterruptResolved,
)
from divebook.events.codec import encode, sound_data
from divebook.events.event import Event, validate
from divebook.events.record import Record
from divebook.store.blobs import BLOB_BYTES, REPEATED_BYTES, outsource, share
from divebook.store.checksums import chain, covered
from divebook.store.codec import Sealing
from divebook.store.durability import Durability, durability_called
from divebook.store.leases import LEASE_SECONDS, Lease, Moment
from divebook.store.owner import Owner
from divebook.store.records import Beginning

FIRST_TOKEN = 1
"""The token of the lease that comes with the first events."""
_QUESTIONS = (InterruptRaised, InterruptResolved, InterruptExpired)


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
    again: bool = False
    """Whether its first records may be in the log already, since the connection was lost when they were written."""

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
    records: Sequence[Record]
    events: Sequence[Event]
    """Those that the records stand for."""
    payloads: Sequence[bytes]
    """With references in place of `blobs`."""
    covered: Sequence[bytes]
    """What the checksums are made of."""
    size: int
    beginning: Beginning | None
    """What a new log begins with; None if the log exists already."""
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

    @property
    def last_sequence(self) -> int:
        """Where the log stands once the batch is written."""
        return self.expected_sequence + len(self.events)

    @property
    def ends(self) -> bool:
        """Whether the execution has ended once the batch is written."""
        return self.turn is not None and self.turn.status in TERMINAL

    def checksums(self, previous: int) -> list[int]:
        """Return those of the events, after an event with checksum `previous`."""
        return chain(previous, self.covered)

    def check_may_follow(self, status: str) -> None:
        """Raise `ExecutionEndedError` if the execution has ended and the first event is not one that may follow."""
        check_may_follow(self.execution_id, status, type(self.events[0].data))

    def fenced(self, current: int) -> FencedError:
        """Return the error for a log whose latest lease is another."""
        return FencedError(self.execution_id, self.token or None, current)


def prepare(batch: Batch, sealing: Sealing) -> PreparedBatch:
    """Check and encode a batch, and seal its values.

    Raises
    ------
    InvalidEventError
        ``invalid event at index i: ...``, for the first event that is wrong.
    ExecutionEndedError
        One of the events may not follow an end that is among them.
    """
    payloads: list[bytes] = []
    events = batch.events()
    sequence = batch.expected_sequence
    beginning: Beginning | None = None
    turn: Turn | None = None
    ended: str | None = None
    questions: dict[str, bool] = {}
    lease = None if batch.acquire is None else _first_lease(batch, batch.acquire)
    for index, event in enumerate(events):
        sequence += 1
        try:
            _check(event, batch.execution_id, sequence)
            payloads.append(encode(sound_data(event.data)))
        except (InvalidEventError, UnstorableValueError) as error:
            raise _invalid(index, error) from error
        kind = type(event.data)
        if kind in _QUESTIONS:
            questions |= question_changes(event)
        if ended is not None:
            check_may_follow(batch.execution_id, ended, kind)
        if kind in STATUS_AFTER:
            turn = turn_after(event)
            ended = STATUS_AFTER[kind] if STATUS_AFTER[kind] in TERMINAL else None
            if isinstance(event.data, ExecutionStarted):
                beginning = Beginning.of(event.data)
    _check_distinct(events)
    turn, status = _standing(batch, turn)
    blobs = _outsource(events, payloads)
    if sealing.codec is not None:
        payloads = [sealing.seal(payload) for payload in payloads]
        blobs = {digest: sealing.seal_content(content) for digest, content in blobs.items()}
        turn = turn and replace(turn, error=sealing.seal_text(turn.error))
        beginning = beginning and beginning._replace(note=sealing.seal_text(beginning.note))
    covers, size = _covers(events, payloads), sum(map(len, payloads))
    return PreparedBatch(
        batch.execution_id,
        batch.expected_sequence,
        batch.records,
        events,
        payloads,
        covers,
        size,
        beginning,
        turn,
        status,
        None if turn is not None and turn.status in TERMINAL else batch.wake_at,
        batch.taken,
        blobs,
        batch.token or 0,
        durability_called(batch.durability),
        questions,
        lease,
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
            raise _invalid(len(records), InvalidEventError(f"expected an Event, got {type(event).__name__}"))
        records.append(Record.of(event))
    return records


def _first_lease(batch: Batch, owner: Owner) -> Lease:
    if batch.expected_sequence or batch.token is not None:
        raise ValueError(
            f"acquire is for the first batch of a new execution, not for {batch.execution_id} at event "
            f"{batch.expected_sequence} with token {batch.token}; use the store's acquire"
        )
    # The wall clock is the writer's, as it stands in the events.
    moment = Moment(batch.records[-1].recorded_at, Moment.at(None).uptime)
    return moment.plus(LEASE_SECONDS).lease(batch.execution_id, FIRST_TOKEN, owner)


def _standing(batch: Batch, turn: Turn | None) -> tuple[Turn | None, str | None]:
    """Return the turn and the status after it, with what the writer knows of an execution that goes on."""
    status = batch.status
    if status is None or status in TERMINAL:
        return turn, None
    if status not in STATUSES:
        raise NotFoundError("status", status, STATUSES)
    if turn is None or turn.status in TERMINAL:
        return turn, status
    return replace(turn, status=status), status


def _invalid(index: int, error: Exception) -> InvalidEventError:
    return InvalidEventError(f"invalid event at index {index}: {error}")


def _outsource(events: Sequence[Event], payloads: list[bytes]) -> dict[bytes, bytes]:
    """Put references in place of large values, and of middling ones that the batch holds several times; return them."""
    blobs: dict[bytes, bytes] = {}
    middling = [index for index, payload in enumerate(payloads) if len(payload) > REPEATED_BYTES]
    if not middling:
        return blobs
    bodies = [events[index].data.to_data() for index in middling]
    if len(middling) > 1:
        bodies = share(bodies, blobs)
    for index, body in zip(middling, bodies, strict=True):
        if blobs:
            payloads[index] = encode(body)
        if len(payloads[index]) > BLOB_BYTES:
            payloads[index], found = outsource(body)
            blobs |= found
    return blobs


def _covers(events: Sequence[Event], payloads: Sequence[bytes]) -> list[bytes]:
    covers: list[bytes] = []
    for event, payload in zip(events, payloads, strict=True):
        try:
            covers.append(covered(event, payload))
        except UnicodeEncodeError as error:
            raise _invalid(len(covers), error) from error
    return covers


def _check(event: Event, execution_id: str, sequence: int) -> None:
    if sequence == 1:
        _check_text("execution id", execution_id)
    validate(event)
    if event.execution_id != execution_id:
        raise InvalidEventError(f"it belongs to execution {event.execution_id}, not to {execution_id}")
    if event.sequence != sequence:
        raise InvalidEventError(f"its sequence must be {sequence}, got {event.sequence}")
    if (sequence == 1) is not (type(event.data) is ExecutionStarted):
        raise InvalidEventError(f"an execution_started event, and nothing else, begins a log; got {event.event_type}")


def _check_text(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidEventError(f"{name} {text!r}: {error}") from error


def _check_distinct(events: Sequence[Event]) -> None:
    if len({event.id for event in events}) < len(events):
        ids = [event.id for event in events]
        index = next(index for index, event_id in enumerate(ids) if event_id in ids[:index])
        raise duplicate_id(index, ids[index])


def duplicate_id(index: int, event_id: str) -> InvalidEventError:
    """Return the error for an event whose id the log holds already."""
    return InvalidEventError(f"invalid event at index {index}: event id {event_id} is already in the log")


def question_changes(event: Event) -> dict[str, bool]:
    """Return the question that an event asks or settles, and whether it is open then."""
    data = event.data
    return {data.interrupt_id: isinstance(data, InterruptRaised)} if isinstance(data, _QUESTIONS) else {}


def turn_after(event: Event) -> Turn | None:
    """Return what an event makes of the status of its execution; None if it leaves it as it is."""
    status = STATUS_AFTER.get(type(event.data))
    if status is None:
        return None
    error = event.data.error if isinstance(event.data, ExecutionFailed) else None
    return Turn(status, event.recorded_at if status in TERMINAL else None, error)
