"""What every store does to a batch before it is written: check its records, encode them, note what they change.

Each fact is looked at once: the function of its class (`divebook.events.plain`) checks it and gives what it says, which
is encoded at once. What long values need (`divebook.store.repeats`) is asked of records that turn out long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from divebook.engine.lifecycle import STATUS_AFTER, STATUSES, TERMINAL, check_may_follow
from divebook.errors import InvalidEventError, NotFoundError, UnstorableValueError
from divebook.events.by_hash import ByHash
from divebook.events.catalog import (
    FORK,
    ExecutionAnnotated,
    ExecutionEnqueued,
    ExecutionForked,
    ExecutionPaused,
    ExecutionStarted,
    Payload,
)
from divebook.events.codec import SOUND, encode
from divebook.events.event import check_placed
from divebook.events.record import Record
from divebook.events.stored_file import StoredFile
from divebook.events.values import tag
from divebook.store.batches import (
    FIRST_TOKEN,
    QUESTIONS,
    Batch,
    PreparedBatch,
    Turn,
    invalid,
    note_questions,
    turn_after,
)
from divebook.store.blobs import by_reference, is_large
from divebook.store.checksums import head
from divebook.store.codec import Sealing
from divebook.store.durability import durability_called
from divebook.store.facts import Body, encode_facts, type_of
from divebook.store.known_ids import bounds_of, last_id
from divebook.store.leases import LEASE_SECONDS, Lease, Moment
from divebook.store.owner import Owner
from divebook.store.records import Beginning
from divebook.store.repeats import LARGE, NOTABLE, spare

_TELLING = frozenset({*QUESTIONS, *STATUS_AFTER, ExecutionAnnotated, ExecutionPaused})
"""Facts that change what a store keeps beside the log."""


@dataclass(slots=True)
class _Course:
    """What the facts of a batch, one after the other, mean for their execution."""

    execution_id: str
    beginning: Beginning | None = None
    began_at: int = 0
    turn: Turn | None = None
    questions: dict[str, bool] = field(default_factory=dict)
    annotations: list[ExecutionAnnotated] = field(default_factory=list)
    enqueued: ExecutionEnqueued | None = None
    withheld: bool | None = None

    def follow(self, fact: Payload, sequence: int, recorded_at: int) -> None:
        """Go on by one fact; ExecutionEndedError if it may not follow an end before it."""
        kind = type(fact)
        if self.turn is not None and self.turn.status in TERMINAL:
            check_may_follow(self.execution_id, self.turn.status, kind)
        note_questions(self.questions, fact)
        if isinstance(fact, ExecutionAnnotated):
            self.annotations.append(fact)
        if isinstance(fact, ExecutionEnqueued):
            self.enqueued = fact
        if kind is ExecutionPaused:
            self.withheld = True
        if kind in STATUS_AFTER:
            self.withheld = STATUS_AFTER[kind] in TERMINAL
            self.turn = turn_after(fact, recorded_at)
            if isinstance(fact, ExecutionStarted | ExecutionForked):
                self.beginning, self.began_at, self.annotations = Beginning.of(fact, sequence), recorded_at, []


_NO_COURSE = _Course("")
"""That of facts which change nothing but the log."""


def prepare(batch: Batch, sealing: Sealing) -> PreparedBatch:
    """Check and encode a batch, and seal its values.

    Raises
    ------
    InvalidEventError
        ``invalid event at index i: ...``, for the first event that is wrong.
    ExecutionEndedError
        One of the events may not follow an end that is among them.
    """
    lease = None if batch.acquire is None else _first_lease(batch, batch.acquire)
    drafts = _Drafts(batch)
    for record in batch.records:
        drafts.take(record)
    course, payloads = drafts.course, drafts.payloads
    _check_source(batch, course.beginning)
    turn, status = _standing(batch, course.turn)
    blobs = drafts.kept | drafts.spared() if drafts.are_long else drafts.kept
    beginning, annotations = course.beginning, course.annotations
    if beginning is not None:
        beginning, annotations = beginning.annotated(annotations), []
    if drafts.are_long or sealing.codec is not None:
        payloads = list(map(sealing.seal_packed, payloads))
    if sealing.codec is not None:
        blobs = {digest: sealing.seal_content(content) for digest, content in blobs.items()}
        turn = turn and replace(turn, error=sealing.seal_text(turn.error))
        beginning = beginning and beginning._replace(note=sealing.seal_text(beginning.note))
        annotations = [replace(said, note=sealing.seal_text(said.note)) if said.note else said for said in annotations]
    return PreparedBatch(
        batch.execution_id,
        batch.expected_sequence,
        drafts.last_sequence,
        batch.records,
        drafts.types,
        payloads,
        drafts.heads,
        (batch.records[0].id, drafts.last_id) if drafts.ascend else bounds_of(batch.records),
        sum(map(len, payloads)),
        beginning,
        course.began_at,
        turn,
        status,
        None if turn is not None and turn.status in TERMINAL else batch.wake_at,
        batch.taken,
        blobs,
        batch.token or 0,
        durability_called(batch.durability),
        course.questions,
        lease,
        annotations,
        batch.source,
        enqueued=course.enqueued,
        withheld=True if beginning is not None and beginning.origin == FORK else course.withheld,
    )


class _Drafts:
    """The records of a batch, each encoded once it has been found sound."""

    __slots__ = (
        "are_long",
        "ascend",
        "batch",
        "bodies",
        "course",
        "has_met",
        "heads",
        "kept",
        "last_id",
        "last_sequence",
        "payloads",
        "types",
    )

    def __init__(self, batch: Batch) -> None:
        self.batch, self.last_sequence, self.course = batch, batch.expected_sequence, _NO_COURSE
        self.types: list[str] = []
        self.bodies: list[list[Body]] = []
        self.payloads: list[bytes] = []
        self.heads: list[bytes] = []
        self.last_id, self.ascend = "", True
        """That of the last event, and whether the ids ascend up to it."""
        self.are_long = False
        """Whether one of them may hold a value that is worth writing otherwise."""
        self.kept: dict[bytes, bytes] = {}
        """The contents of what is kept by its hash."""
        self.has_met = False
        """Whether the present record has any of that."""

    def take(self, record: Record) -> None:
        """Add a record; InvalidEventError if one of its facts is not as it should be, or out of place."""
        batch, sequence = self.batch, self.last_sequence + 1
        bodies: list[Body] = []
        try:
            last_id = _check(record, batch.execution_id, sequence)
            kinds = tuple(map(type, record.facts))
            is_telling = not _TELLING.isdisjoint(kinds)
            for fact in record.facts:
                if is_telling or sequence == 1:
                    _check_beginning(fact, is_first=sequence == 1 and not bodies)
                bodies.append(SOUND[type(fact)](fact))
            name = type_of(kinds)
            is_large_one = batch.is_heavy and any(map(is_large, bodies))
            payload = LARGE if is_large_one else encode_facts(bodies, self._tagged)
            if is_large_one or self.has_met:
                bodies, self.has_met = by_reference(bodies, self.kept), False
            self.heads.append(head(record.recorded_at, name, record.id, record.path, record.step))
        except (InvalidEventError, UnstorableValueError, UnicodeEncodeError) as error:
            raise invalid(sequence - batch.expected_sequence - 1 + _wrong_one(record, bodies), error) from error
        if is_telling or self.course is not _NO_COURSE:
            self._follow(record)
        self.types.append(name)
        self.bodies.append(bodies)
        self.payloads.append(payload)
        if record.id <= self.last_id:
            self.ascend = False
        self.last_id = last_id
        self.last_sequence += len(kinds)
        if len(payload) > NOTABLE or payload is LARGE:
            self.are_long = True

    def _tagged(self, value: Any) -> Any:
        """Do what `tag` does, which is asked of few values, and note those that are kept by their hash."""
        if type(value) is ByHash:
            self.has_met = True
            return by_reference(value, self.kept)
        if type(value) is StoredFile:
            by_reference(value, self.kept)
        return tag(value)

    def _follow(self, record: Record) -> None:
        if self.course is _NO_COURSE:
            self.course = _Course(self.batch.execution_id)
        for sequence, fact in enumerate(record.facts, record.sequence):
            self.course.follow(fact, sequence, record.recorded_at)

    def spared(self) -> dict[bytes, bytes]:
        """Write long values as `divebook.store.repeats` does; return the blobs."""
        try:
            return spare(self.bodies, self.payloads)
        except UnstorableValueError as error:  # of what was not encoded before
            bodies = (body for record in self.bodies for body in record)
            raise invalid(next(index for index, body in enumerate(bodies) if _is_unstorable(body)), error) from error


def _wrong_one(record: Record, bodies: Sequence[Body]) -> int:
    """Return which fact of a record is refused, of which some were sound so far."""
    if not bodies or len(bodies) < len(record.facts):
        return len(bodies)
    return next((index for index, body in enumerate(bodies) if _is_unstorable(body)), 0)


def _is_unstorable(body: Body) -> bool:
    try:
        encode(body)
    except UnstorableValueError:
        return True
    return False


def _check_beginning(fact: Payload, *, is_first: bool) -> None:
    if is_first is not (type(fact) is ExecutionStarted):
        raise InvalidEventError(f"an execution_started event, and nothing else, begins a log; got {fact.event_type}")


def _check_source(batch: Batch, beginning: Beginning | None) -> None:
    """Raise unless a batch that goes on from events which are not its log's own says whose they are, and only that."""
    forks = bool(batch.expected_sequence) and beginning is not None
    if forks is not (batch.source is not None):
        raise InvalidEventError(
            f"an execution_forked event begins a log that shares the first events of another one, which the batch must "
            f"name: execution {batch.execution_id} goes on at event {batch.expected_sequence} and "
            f"{'has no source' if forks else 'does not fork ' + str(batch.source)}"
        )


def _check(record: Record, execution_id: str, sequence: int) -> str:
    """Return the id of a record's last event, once it is sure that the record has its place there."""
    if sequence == 1:
        _check_text("execution id", execution_id)
    if type(record) is not Record:
        raise InvalidEventError(f"expected a Record, got {type(record).__name__}; make one with Record.of(event)")
    check_placed(record)
    if record.execution_id != execution_id:
        raise InvalidEventError(f"it belongs to execution {record.execution_id}, not to {execution_id}")
    if record.sequence != sequence:
        raise InvalidEventError(f"its sequence must be {sequence}, got {record.sequence}")
    if not record.facts:
        raise InvalidEventError("data is required and must be a payload, got none")
    try:
        return last_id(record)
    except ValueError as error:
        raise InvalidEventError(str(error)) from error


def _check_text(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidEventError(f"{name} {text!r}: {error}") from error


def _first_lease(batch: Batch, owner: Owner) -> Lease:
    if (batch.expected_sequence and batch.source is None) or batch.token is not None:
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
