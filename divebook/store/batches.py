"""What is written at once, and what every store does to it before: check events, encode payloads, note what changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from divebook.engine.lifecycle import STATUS_AFTER, STATUSES, TERMINAL, check_may_follow
from divebook.errors import FencedError, InvalidEventError, NotFoundError, UnstorableValueError
from divebook.events.catalog import (
    ExecutionFailed,
    ExecutionStarted,
    InterruptExpired,
    InterruptRaised,
    InterruptResolved,
    Payload,
)
from divebook.events.codec import encode, sound_data
from divebook.events.event import Event, check_payload, check_placed
from divebook.events.frozen import quickly_made
from divebook.events.ids import successor
from divebook.events.record import Record
from divebook.store.blobs import BLOB_BYTES, LARGE, REPEATED_BYTES, Packed, is_large, outsource, share
from divebook.store.checksums import chain, head
from divebook.store.codec import Sealing
from divebook.store.durability import Durability, durability_called
from divebook.store.facts import Body, encode_facts, joined, type_of, without_repeats
from divebook.store.known_ids import refuse_twice
from divebook.store.leases import LEASE_SECONDS, Lease, Moment
from divebook.store.owner import Owner
from divebook.store.records import Beginning

FIRST_TOKEN = 1
"""The token of the lease that comes with the first events."""
_QUESTIONS = (InterruptRaised, InterruptResolved, InterruptExpired)
_TELLING = frozenset({*_QUESTIONS, *STATUS_AFTER})
"""Facts that change what a store keeps beside the log."""


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
    last_sequence: int
    """Where the log stands once the batch is written."""
    records: Sequence[Record]
    types: Sequence[str]
    """Those of the records (`divebook.store.facts`)."""
    payloads: Sequence[bytes]
    """Their data, with references in place of `blobs`."""
    heads: Sequence[bytes]
    """What the checksums are made of, before the data."""
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
    packed: dict[bytes, Packed] = field(default_factory=dict)
    """Those of the `blobs` that were packed before the store was locked."""

    @property
    def ends(self) -> bool:
        """Whether the execution has ended once the batch is written."""
        return self.turn is not None and self.turn.status in TERMINAL

    def checksums(self, previous: int) -> list[int]:
        """Return those of the records, after a record with checksum `previous`."""
        return chain(previous, self.heads, self.payloads)

    def check_may_follow(self, status: str) -> None:
        """Raise `ExecutionEndedError` if the execution has ended and the first event is not one that may follow."""
        check_may_follow(self.execution_id, status, type(self.records[0].facts[0]))

    def fenced(self, current: int) -> FencedError:
        """Return the error for a log whose latest lease is another."""
        return FencedError(self.execution_id, self.token or None, current)


@dataclass(slots=True)
class _Course:
    """What the facts of a batch, one after the other, mean for their execution."""

    execution_id: str
    beginning: Beginning | None = None
    turn: Turn | None = None
    questions: dict[str, bool] = field(default_factory=dict)

    def follow(self, fact: Payload, recorded_at: int) -> None:
        """Go on by one fact; ExecutionEndedError if it may not follow an end before it."""
        kind = type(fact)
        if self.turn is not None and self.turn.status in TERMINAL:
            check_may_follow(self.execution_id, self.turn.status, kind)
        if kind in _QUESTIONS:
            self.questions |= question_changes(fact)
        if kind in STATUS_AFTER:
            self.turn = turn_after(fact, recorded_at)
            if isinstance(fact, ExecutionStarted):
                self.beginning = Beginning.of(fact)


def prepare(batch: Batch, sealing: Sealing) -> PreparedBatch:
    """Check and encode a batch, and seal its values.

    Raises
    ------
    InvalidEventError
        ``invalid event at index i: ...``, for the first event that is wrong.
    ExecutionEndedError
        One of the events may not follow an end that is among them.
    """
    course = _Course(batch.execution_id)
    lease = None if batch.acquire is None else _first_lease(batch, batch.acquire)
    bodies: list[Sequence[Body]] = []
    payloads: list[bytes] = []
    last = batch.expected_sequence
    for record in batch.records:
        body = _sound_bodies(record, batch, last + 1)
        bodies.append(body)
        payloads.append(_encoded(body, last - batch.expected_sequence, is_heavy=batch.is_heavy))
        for fact in record.facts:
            if type(fact) in _TELLING or course.turn is not None:
                course.follow(fact, record.recorded_at)
        last += len(body)
    if len(batch.records) > 1:
        refuse_twice(batch.records)
    turn, status = _standing(batch, course.turn)
    blobs = _outsource(bodies, payloads)
    beginning = course.beginning
    if sealing.codec is not None:
        payloads = [sealing.seal(payload) for payload in payloads]
        blobs = {digest: sealing.seal_content(content) for digest, content in blobs.items()}
        turn = turn and replace(turn, error=sealing.seal_text(turn.error))
        beginning = beginning and beginning._replace(note=sealing.seal_text(beginning.note))
    types = [type_of(record.facts) for record in batch.records]
    return PreparedBatch(
        batch.execution_id,
        batch.expected_sequence,
        last,
        batch.records,
        types,
        payloads,
        _heads(batch, types),
        sum(map(len, payloads)),
        beginning,
        turn,
        status,
        None if turn is not None and turn.status in TERMINAL else batch.wake_at,
        batch.taken,
        blobs,
        batch.token or 0,
        durability_called(batch.durability),
        course.questions,
        lease,
    )


def _sound_bodies(record: Record, batch: Batch, sequence: int) -> Sequence[Body]:
    """Return what the facts of a record say; InvalidEventError if one is not as it should be, or out of place."""
    first, bodies = sequence - batch.expected_sequence - 1, list[Body]()
    try:
        _check(record, batch.execution_id, sequence)
        for fact in record.facts:
            _check_fact(fact, is_first=sequence == 1 and not bodies)
            bodies.append(sound_data(fact))
    except (InvalidEventError, UnstorableValueError) as error:
        raise _invalid(first + len(bodies), error) from error
    return without_repeats(bodies)


def _encoded(bodies: Sequence[Body], first: int, *, is_heavy: bool) -> bytes:
    """Return the data of a record; without its large values, nothing (`_outsource` writes it)."""
    if is_heavy and any(map(is_large, bodies)):
        return LARGE
    try:
        return encode_facts(bodies)
    except UnstorableValueError as error:
        raise _invalid(
            first + next(index for index, body in enumerate(bodies) if _is_unstorable(body)), error
        ) from error


def _is_unstorable(body: Body) -> bool:
    try:
        encode(body)
    except UnstorableValueError:
        return True
    return False


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


def _outsource(bodies: Sequence[Sequence[Body]], payloads: list[bytes]) -> dict[bytes, bytes]:
    """Put references in place of large values, and of middling ones that the batch holds several times; return them."""
    blobs: dict[bytes, bytes] = {}
    middling = [index for index, payload in enumerate(payloads) if payload is LARGE or len(payload) > REPEATED_BYTES]
    if not middling:
        return blobs
    chosen = [bodies[index] for index in middling]
    if len(middling) > 1:
        chosen = share(chosen, blobs)
    for index, body in zip(middling, chosen, strict=True):
        if blobs and payloads[index] is not LARGE:
            payloads[index] = encode_facts(body)
        if payloads[index] is LARGE or len(payloads[index]) > BLOB_BYTES:
            lines: list[bytes] = []
            for fact in body:
                try:
                    line, found = outsource(fact)
                except UnstorableValueError as error:
                    raise _invalid(sum(map(len, bodies[:index])) + len(lines), error) from error
                lines.append(line)
                blobs |= found
            payloads[index] = joined(lines)
    return blobs


def _heads(batch: Batch, types: Sequence[str]) -> list[bytes]:
    heads: list[bytes] = []
    for record, record_type in zip(batch.records, types, strict=True):
        try:
            heads.append(head(record.recorded_at, record_type, record.id, record.path, record.step))
        except UnicodeEncodeError as error:
            raise _invalid(record.sequence - batch.expected_sequence - 1, error) from error
    return heads


def _check_fact(fact: Payload, *, is_first: bool) -> None:
    check_payload(fact)
    if is_first is not (type(fact) is ExecutionStarted):
        raise InvalidEventError(f"an execution_started event, and nothing else, begins a log; got {fact.event_type}")


def _check(record: Record, execution_id: str, sequence: int) -> None:
    if sequence == 1:
        _check_text("execution id", execution_id)
    if type(record) is not Record:
        raise InvalidEventError(f"expected a Record, got {type(record).__name__}; make one with Record.of(event)")
    check_placed(record)
    if record.execution_id != execution_id:
        raise InvalidEventError(f"it belongs to execution {record.execution_id}, not to {execution_id}")
    if record.sequence != sequence:
        raise InvalidEventError(f"its sequence must be {sequence}, got {record.sequence}")
    if len(record.facts) != 1:
        _check_width(record)


def _check_width(record: Record) -> None:
    if not record.facts:
        raise InvalidEventError("data is required and must be a payload, got none")
    try:
        successor(record.id, len(record.facts) - 1)
    except ValueError as error:
        raise InvalidEventError(str(error)) from error


def _check_text(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidEventError(f"{name} {text!r}: {error}") from error


def question_changes(fact: Payload) -> dict[str, bool]:
    """Return the question that a fact asks or settles, and whether it is open then."""
    return {fact.interrupt_id: isinstance(fact, InterruptRaised)} if isinstance(fact, _QUESTIONS) else {}


def turn_after(fact: Payload, recorded_at: int) -> Turn | None:
    """Return what a fact makes of the status of its execution; None if it leaves it as it is."""
    status = STATUS_AFTER.get(type(fact))
    if status is None:
        return None
    error = fact.error if isinstance(fact, ExecutionFailed) else None
    return Turn(status, recorded_at if status in TERMINAL else None, error)
