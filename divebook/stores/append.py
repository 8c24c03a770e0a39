"""Batches of records that are appended to a log, and the checks and the encoding that all stores apply to a batch.

`prepare` makes a `PreparedBatch` of a `Batch`: records as bytes, and the changes of the execution's row. It visits each
fact once. The function of the fact's class (`divebook.events.codec`) checks it and returns plain data, which are
encoded at once. Only long records are examined for repeated and large values (`divebook.stores.encoding`).

This file also has the rows of executions: `Line` as a table has it, `ExecutionRecord` as lists show it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple, Self, TypeAlias, cast, get_args

from divebook.engine.inbox import Message, child_ended
from divebook.engine.lifecycle import STATUS_AFTER, STATUSES, TERMINAL, check_may_follow, unknown_status
from divebook.errors import (
    CorruptStoreError,
    FencedError,
    InvalidEventError,
    NotFoundError,
    StoreError,
    UnreadMessageError,
    UnstorableValueError,
)
from divebook.events.catalog import (
    BOOK,
    FORK,
    RUN,
    RUNNING,
    ExecutionAnnotated,
    ExecutionEnqueued,
    ExecutionFailed,
    ExecutionForked,
    ExecutionPaused,
    ExecutionStarted,
    InterruptExpired,
    InterruptRaised,
    InterruptResolved,
    Payload,
)
from divebook.events.codec import DATA_FUNCTIONS, decode, encode, encode_all
from divebook.events.event import LATEST, Event, Record, check_place, place_of, successor, to_datetime
from divebook.events.payload import fast_init
from divebook.events.values import ByHash, StoredFile, tag
from divebook.stores.codec import Sealing
from divebook.stores.encoding import (
    LARGE,
    NOTABLE,
    Body,
    Packed,
    by_reference,
    chain,
    encode_repeats,
    head,
    is_large,
    joined,
    of_row,
    type_of,
)
from divebook.stores.leases import LEASE_SECONDS, Lease, Moment, Owner
from divebook.text.redaction import logger

Refusal: TypeAlias = StoreError | InvalidEventError
"""Error that explains why a batch was not appended."""
Ids: TypeAlias = tuple[str, int]
"""Ids of the events of one record: the id of the first event, and the number of ids, which are consecutive."""
Bounds: TypeAlias = tuple[str, str]
"""Lowest and highest event id of some records, in the order of strings."""
Durability: TypeAlias = Literal["full", "relaxed"]
FULL: Durability = "full"
"""Durability of appends that survive a power failure."""
RELAXED: Durability = "relaxed"
"""Durability of appends that survive the death of the process. A power failure may lose the latest events, but leaves
no event half written."""
_DURABILITIES: tuple[str, ...] = get_args(Durability)
FIRST_TOKEN = 1
"""Token of the lease that is written with the first events."""
QUESTIONS = (InterruptRaised, InterruptResolved, InterruptExpired)
_EFFECTIVE = frozenset({*QUESTIONS, *STATUS_AFTER, ExecutionAnnotated, ExecutionPaused})
"""Payload classes of events that change other data than the log: the execution's row, its questions or its queue."""
_log = logger(__name__)


# --- batches ---


@fast_init
@dataclass(frozen=True, slots=True)
class Batch:
    """Records that are appended to one log together: either all of them or none."""

    execution_id: str
    expected_sequence: int
    """Sequence number of the last event that the writer knows; 0 for a new execution."""
    records: Sequence[Record]
    token: int | None = None
    """Fencing token of the writer; None for an execution that never had a lease."""
    acquire: Owner | None = None
    """Owner of the execution's first lease (`FIRST_TOKEN`, for `LEASE_SECONDS`); only for a batch that begins a log."""
    status: str | None = None
    """Status of the execution after the batch: running or waiting, which the events do not determine.

    None leaves it unchanged. A terminal status is ignored, since only events end an execution.
    """
    wake_at: int | None = None
    """Time in microseconds since 1970 at which a waiting execution continues by itself (timer, expiring question), or
    None.
    """
    taken: int = 0
    """Number of the last message that is in the log. A number below the recorded one has no effect."""
    durability: Durability | None = None
    """Durability of the batch. The durability of the first batch is also recorded for the execution. None means the
    default of the store.
    """
    is_heavy: bool = False
    """True if large values are searched before encoding. This only saves time: large values are detected without it."""
    again: bool = False
    """True if the log may already have some of the records, because the connection broke during an earlier write."""
    source: str | None = None
    """For the first batch of a fork: id of the source, whose events up to `expected_sequence` the new log shares."""
    parent: str | None = None
    """Id of the parent execution. If the batch ends the execution, the store posts a signal to the parent in the same
    transaction, unless the parent is unknown or has ended. The parent may wait without being driven. If the signal were
    posted in a later transaction and the process died in between, nothing would wake the parent.
    """
    last_message: int | None = None
    """Number of the newest message to the execution that the writer has read; 0 if it has read none. If the inbox has a
    later message, the store refuses the batch with `UnreadMessageError`, in the transaction that would write it.

    Use this for a batch after which nothing reads the inbox any more. None, the default, means no such condition.
    """
    is_checked: bool = False
    """True if the records come from the journal of the engine, which numbers them and checks their places. The store
    then checks only their payloads.
    """

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last event of the log after the batch."""
        if not self.records:
            return self.expected_sequence
        last = self.records[-1]
        return last.sequence + len(last.facts) - 1

    def events(self) -> list[Event]:
        """Return the events of all records of the batch."""
        return [event for record in self.records for event in record.events()]

    def without(self, count: int) -> Batch:
        """Return a copy of the batch without its first `count` records, for a log that already has those records."""
        # If the first record was written, the log, the fork and the first lease exist. The rest of the batch continues
        # the log under that lease.
        token = FIRST_TOKEN if count and self.acquire is not None else self.token
        return replace(
            self,
            expected_sequence=self.records[count - 1].last_sequence if count else self.expected_sequence,
            records=self.records[count:],
            token=token,
            acquire=None if count else self.acquire,
            source=None if count else self.source,
        )


@dataclass(slots=True)  # made for every append: to be frozen would double what that costs
class PreparedBatch:
    """Batch in the form that a store writes: checked, encoded and encrypted.

    The store still has to check whether the batch fits the log.
    """

    execution_id: str
    expected_sequence: int
    last_sequence: int
    """Sequence number of the last event of the log after the batch."""
    records: Sequence[Record]
    types: Sequence[str]
    """Type string of each record (`divebook.stores.encoding`)."""
    payloads: Sequence[bytes]
    """Encoded events of each record, with references in place of the values in `blobs`."""
    heads: Sequence[bytes]
    """Bytes of each record that its checksum covers before the payload (`divebook.stores.encoding.head`)."""
    ids: Bounds
    """Lowest and highest event id of the batch."""
    size: int
    """Total size of the payloads in bytes."""
    beginning: Beginning | None
    """Name, origin and other data of a new execution; None if the log exists already."""
    began_at: int
    """Creation time of a new log, in microseconds since 1970; 0 if the log exists already."""
    status_change: StatusColumns | None
    """New status, end time and error, if an event of the batch starts, ends or resumes the execution, or None."""
    status: str | None
    """New status that the writer has set without such an event (running or waiting); None leaves it unchanged."""
    wake_at: int | None
    taken: int
    blobs: dict[bytes, bytes]
    """Contents of the large values of the payloads, by their SHA-256."""
    token: int
    """Fencing token of the writer; 0 for a writer without a token."""
    durability: Durability | None
    questions: dict[str, bool]
    """Ids of the questions that an event of the batch asks (True) or settles (False)."""
    lease: Lease | None
    """First lease of a new log, written in the same transaction, or None."""
    annotations: Sequence[ExecutionAnnotated] = ()
    """Changes of tags and note for the execution's row; empty for a new log, whose `beginning` contains them."""
    source: str | None = None
    """For the first batch of a fork: id of the source, whose events up to `expected_sequence` the new log shares."""
    packed: dict[bytes, Packed] = field(default_factory=dict)
    """The values of `blobs` that were compressed before the store was locked, in compressed form."""
    enqueued: ExecutionEnqueued | None = None
    """Last event of the batch that puts the execution into a queue, or None."""
    withheld: bool | None = None
    """True if workers skip the execution from now on (paused by a person, or ended); None leaves the mark unchanged."""
    to_parent: tuple[Message, bytes] | None = None
    """Message for the parent of an execution that the batch ends, and its payload as it is stored; see
    `Batch.parent`."""
    last_message: int | None = None
    """Number of the newest message that the writer has read, or None; see `Batch.last_message`."""

    @property
    def ends(self) -> bool:
        """True if the batch ends the execution."""
        return self.status_change is not None and self.status_change.status in TERMINAL

    def checksums(self, previous: int) -> list[int]:
        """Return the checksum of each record of the batch. `previous` is the checksum of the last record before the
        batch.
        """
        return chain(previous, self.heads, self.payloads)

    def check_may_follow(self, status: str) -> None:
        """Raise `ExecutionEndedError` if the execution has ended with `status`, and the batch contains an event that is
        not allowed after the end.
        """
        for record in self.records if status in TERMINAL else ():
            for fact in record.facts:
                check_may_follow(self.execution_id, status, type(fact))
                if type(fact) in STATUS_AFTER:
                    return  # `prepare` has checked the events after a new status

    def check_has_read(self, newest: int) -> None:
        """Raise `UnreadMessageError` if the batch requires that its writer has read all messages to the execution, and
        `newest`, the number of the newest message in the inbox (0: no message), is higher than the number it has read.
        """
        if self.last_message is not None and newest > self.last_message:
            raise UnreadMessageError(self.execution_id, self.last_message, newest)

    def fenced_error(self, current: int) -> FencedError:
        """Return the error for a writer that no longer has the lease: its token differs from `current`, the token of
        the execution's latest lease.
        """
        return FencedError(self.execution_id, self.token or None, current)


@dataclass(frozen=True, slots=True)
class StatusColumns:
    """Status, end time and error of an execution, which change together in its summary row; times in microseconds since
    1970.
    """

    status: str
    ended_at: int | None
    error: str | None


class Appending(NamedTuple):
    """Append operation that `EventStore.append_in_a_moment` has started. If it is not complete yet, `finish` completes
    it.
    """

    finish: Callable[[], list[Refusal | None]]
    """Function that returns the answers for all batches. It first writes batches that were not sent yet, and may block
    for a long time.
    """
    answers: Sequence[Exception | None] | None = None
    """For each batch, the error with which it was refused, or None if it was appended. None instead of the list means
    that no answers arrived in time.
    """
    is_begun: bool = False
    """True if the batches were sent, so that `finish` only waits for the answers."""


# --- preparation of batches ---


def prepare(batch: Batch, sealing: Sealing) -> PreparedBatch:
    """Check and encode a batch, and encrypt its values if the store has a codec.

    Raises
    ------
    InvalidEventError
        ``invalid event at index i: ...``, for the first invalid event.
    ExecutionEndedError
        An event in the batch may not follow an end in the batch.
    """
    lease = None if batch.acquire is None else _first_lease(batch, batch.acquire)
    drafts = _Drafts(batch)
    # Check and encode each record, and collect the effects of its facts on the execution's row.
    for record in batch.records:
        drafts.add(record)
    effects = drafts.effects
    payloads = drafts.payloads
    if batch.source is not None or effects.beginning is not None:
        _check_source(batch, effects.beginning)
    # Only the writer knows that an execution waits; all other statuses follow from the events.
    status_change, status = _with_status(batch, effects.status_change)
    blobs = drafts.blobs
    if drafts.are_long:
        blobs = blobs | drafts.encode_long_values()  # also changes `payloads`, in place
    beginning = effects.beginning
    annotations = effects.annotations
    # Annotations of a new execution are part of its row from the start; later ones change an existing row.
    if beginning is not None:
        beginning = beginning.annotated(annotations) if annotations else beginning
        annotations = []
    # Short records are never compressed, so without a codec they stay as they are.
    if drafts.are_long or sealing.codec is not None:
        payloads = list(map(sealing.seal_packed, payloads))
    # The other user data of the batch: large values, the error, and notes.
    if sealing.codec is not None:
        blobs = {digest: sealing.seal_content(content) for digest, content in blobs.items()}
        if status_change is not None:
            status_change = replace(status_change, error=sealing.seal_text(status_change.error))
        if beginning is not None:
            beginning = beginning._replace(note=sealing.seal_text(beginning.note))
        annotations = [
            replace(annotation, note=sealing.seal_text(annotation.note)) if annotation.note else annotation
            for annotation in annotations
        ]
    # An execution that has ended does not wait for a time, whatever the writer has set.
    has_ended = status_change is not None and status_change.status in TERMINAL
    is_fork = beginning is not None and beginning.origin == FORK
    # An end is posted to the parent in the same transaction (`Batch.parent`). Annotations after an end change no status
    # and post nothing.
    to_parent = None
    if batch.parent is not None and status_change is not None and status_change.ended_at is not None:
        message = child_ended(
            batch.parent, batch.execution_id, status_change.status, drafts.last_sequence, status_change.ended_at
        )
        to_parent = message, sealing.seal(encode(message.payload))
    return PreparedBatch(
        batch.execution_id,
        batch.expected_sequence,
        drafts.last_sequence,
        batch.records,
        drafts.types,
        payloads,
        drafts.heads,
        # Ids that ascend contain no id twice, so the first and the last one are the bounds; `bounds_of` compares all
        # ids.
        (batch.records[0].id, last_id(batch.records[-1])) if drafts.ascend else bounds_of(batch.records),
        sum(map(len, payloads)),
        beginning,
        effects.began_at,
        status_change,
        status,
        None if has_ended else batch.wake_at,
        batch.taken,
        blobs,
        batch.token or 0,
        None if batch.durability is None else durability_called(batch.durability),
        effects.questions,
        lease,
        annotations,
        batch.source,
        enqueued=effects.enqueued,
        withheld=True if is_fork else effects.withheld,  # workers never claim a fork
        to_parent=to_parent,
        last_message=batch.last_message,
    )


class _Drafts:
    """Collector of the records of one batch in checked and encoded form. `prepare` builds a `PreparedBatch` from it."""

    __slots__ = (
        "_highest_id",
        "are_long",
        "ascend",
        "batch",
        "blobs",
        "bodies",
        "effects",
        "has_hashed_values",
        "heads",
        "last_sequence",
        "payloads",
        "types",
    )

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.last_sequence = batch.expected_sequence
        self.effects = _NO_EFFECTS
        self.types: list[str] = []
        self.bodies: list[list[Body]] = []
        self.payloads: list[bytes] = []
        self.heads: list[bytes] = []
        self._highest_id = ""
        """Id of the latest event; for a checked batch, of the first event of the latest record."""
        self.ascend = True
        """True if each event id is higher than the id before it."""
        self.are_long = False
        """True if a record is so long that it may contain repeated or large values, which become references."""
        self.blobs: dict[bytes, bytes] = {}
        """Contents of the values that are stored by their hash."""
        self.has_hashed_values = False
        """True if the record that is being encoded contains a value that is stored by its hash."""

    def add(self, record: Record) -> None:
        """Check and encode the next record of the batch, and add the results to the lists of this collector.

        Only the data of rare records are visited twice: if a fact changes the execution's row, and if a value is large
        or stored by its hash.

        Raises
        ------
        InvalidEventError
            The record, or one of its facts, is invalid.
        """
        batch = self.batch
        sequence = self.last_sequence + 1
        bodies: list[Body] = []
        try:
            if batch.is_checked and 0 < record.recorded_at <= LATEST:  # the clock of the machine may be wrong
                highest_id = record.id  # the ids of the next record of a journal are above those of this one, or below
            else:
                highest_id = _check_record(record, batch.execution_id, sequence)
            kinds = tuple(map(type, record.facts))
            is_effective = not _EFFECTIVE.isdisjoint(kinds)
            for fact in record.facts:
                # Only effective facts can be an `ExecutionStarted`, and the first event of every log must be one.
                if is_effective or sequence == 1:
                    _check_beginning(fact, is_first=sequence == 1 and not bodies)
                bodies.append(DATA_FUNCTIONS[type(fact)](fact))
            name = type_of(kinds)
            # The values of a large record are replaced before it is encoded (`encode_long_values`), so that it is
            # encoded once.
            is_large_one = batch.is_heavy and any(map(is_large, bodies))
            payload = LARGE if is_large_one else joined(encode_all(bodies, self._tag))
            # `_tag` reports values that are kept by their hash, but it has not seen those of a record that is encoded
            # later.
            if is_large_one or self.has_hashed_values:
                bodies = by_reference(bodies, self.blobs)
                self.has_hashed_values = False
            self.heads.append(head(record.recorded_at, name, record.id, record.path, record.step))
        except (InvalidEventError, UnstorableValueError, UnicodeEncodeError) as error:
            raise invalid(
                sequence - batch.expected_sequence - 1 + _index_of_wrong_fact(record, bodies), error
            ) from error
        # After the first effect, all facts are examined, since an end limits the facts that may follow.
        if is_effective or self.effects is not _NO_EFFECTS:
            self._add_effects(record)
        self.types.append(name)
        self.bodies.append(bodies)
        self.payloads.append(payload)
        # Ids within a record ascend by definition, so the comparison with the record before is sufficient.
        if record.id <= self._highest_id:
            self.ascend = False
        self._highest_id = highest_id
        self.last_sequence += len(kinds)
        if len(payload) > NOTABLE or payload is LARGE:
            self.are_long = True

    def _tag(self, value: Any) -> Any:
        """Convert a value that JSON cannot represent to a dict with the key ``$type`` (its tagged form). Add the
        contents of values and files that the store keeps by their hash to `blobs`.

        The encoder calls this only for values that JSON lacks.
        """
        if type(value) is ByHash:
            self.has_hashed_values = True
            return by_reference(value, self.blobs)
        if type(value) is StoredFile:
            by_reference(value, self.blobs)
        return tag(value)

    def _add_effects(self, record: Record) -> None:
        if self.effects is _NO_EFFECTS:
            self.effects = _Effects(self.batch.execution_id)
        for sequence, fact in enumerate(record.facts, record.sequence):
            self.effects.add(fact, sequence, record.recorded_at)

    def encode_long_values(self) -> dict[bytes, bytes]:
        """Encode the records with long values again, so that references replace repeated and large values. Return the
        contents of these values (blobs) by hash.
        """
        try:
            return encode_repeats(self.bodies, self.payloads)
        except UnstorableValueError as error:  # a value in a record with `LARGE` in place of its payload
            bodies = [body for record_bodies in self.bodies for body in record_bodies]
            index = next(index for index, body in enumerate(bodies) if _is_unstorable(body))
            raise invalid(index, error) from error


@dataclass(slots=True)
class _Effects:
    """Changes that the events of a batch cause in the execution's row, questions and queue entry. The events are added
    one by one.
    """

    execution_id: str
    beginning: Beginning | None = None
    began_at: int = 0
    status_change: StatusColumns | None = None
    questions: dict[str, bool] = field(default_factory=dict)
    annotations: list[ExecutionAnnotated] = field(default_factory=list)
    enqueued: ExecutionEnqueued | None = None
    withheld: bool | None = None

    def add(self, fact: Payload, sequence: int, recorded_at: int) -> None:
        """Add the changes that the payload of the batch's next event causes in the execution's row, questions and
        queue.

        Raises
        ------
        ExecutionEndedError
            The fact may not follow an end before it in the batch.
        """
        kind = type(fact)
        # `PreparedBatch.check_may_follow` checks the status before the batch, and this line an end inside of the batch.
        if self.status_change is not None and self.status_change.status in TERMINAL:
            check_may_follow(self.execution_id, self.status_change.status, kind)
        note_questions(self.questions, fact)
        if isinstance(fact, ExecutionAnnotated):
            self.annotations.append(fact)
        if isinstance(fact, ExecutionEnqueued):
            self.enqueued = fact
        if kind is ExecutionPaused:
            self.withheld = True
        # An end removes the execution from its queue, and a resumption puts it back.
        if kind in STATUS_AFTER:
            self.withheld = STATUS_AFTER[kind] in TERMINAL
            self.status_change = status_change_of(fact, recorded_at)
            if isinstance(fact, ExecutionStarted | ExecutionForked):
                self.beginning = Beginning.of(fact, sequence)
                self.began_at = recorded_at
                # Annotations before the opening event of a fork belong to its source.
                self.annotations = []


_NO_EFFECTS = _Effects("")
"""Shared effects object of batches whose events change nothing but the log."""


def note_questions(questions: dict[str, bool], fact: Payload) -> None:
    """Record in `questions` the effect of one event: True for a question that it asks, False for a question that it
    answers, withdraws or lets expire. An event that begins a fork removes all questions.
    """
    if isinstance(fact, QUESTIONS):
        questions[fact.interrupt_id] = isinstance(fact, InterruptRaised)
    elif isinstance(fact, ExecutionForked):
        questions.clear()


def status_change_of(fact: Payload, recorded_at: int) -> StatusColumns | None:
    """Return the status, end time and error that an event gives its execution, or None if the event does not change the
    status.
    """
    status = STATUS_AFTER.get(type(fact))
    # Events such as `StepStarted` leave the status as it is.
    if status is None:
        return None
    error = fact.error if isinstance(fact, ExecutionFailed) else None
    return StatusColumns(status, recorded_at if status in TERMINAL else None, error)


def records_of(events: Iterable[Event]) -> list[Record]:
    """Return a list of records, one record for each of the given events.

    Raises
    ------
    InvalidEventError
        ``invalid event at index i: ...``, for the first object that is not an `Event`.
    """
    records: list[Record] = []
    for event in events:
        if not isinstance(event, Event):
            raise invalid(len(records), InvalidEventError(f"expected an Event, got {type(event).__name__}"))
        records.append(Record.of(event))
    return records


def invalid(index: int, error: Exception) -> InvalidEventError:
    """Return the error for an invalid event in a batch. `index` is the position of the event in the batch; `error` is
    the reason.
    """
    return InvalidEventError(f"invalid event at index {index}: {error}")


def fork_point_error(batch: PreparedBatch) -> StoreError:
    """Return the error for a fork at an event that is not the last one of a record. The events of a record were written
    together, so a fork shares all of them or none.
    """
    return StoreError(
        f"execution {batch.source} cannot be forked after event {batch.expected_sequence}, because this event was "
        "written together with the next one; fork after an event that ends a record"
    )


def durability_called(name: str | None) -> Durability | None:
    """Return `name` after a check that it is the name of a durability (``full`` or ``relaxed``) or None.

    Raises
    ------
    NotFoundError
        The durability is unknown.
    """
    if name is not None and name not in _DURABILITIES:
        raise NotFoundError("durability", name, _DURABILITIES, f"unknown durability {name!r}")
    return cast("Durability | None", name)


def _check_record(record: Record, execution_id: str, sequence: int) -> str:
    """Check that a record is valid, belongs to a log, and has the expected sequence number. Return the id of the
    record's last event.

    Raises
    ------
    InvalidEventError
        The object is not a `Record`, has a wrong execution id or sequence number, no facts, or an invalid id.
    """
    # The id of an existing log was checked with its first event.
    if sequence == 1:
        _check_encodable("execution id", execution_id)
    if type(record) is not Record:
        raise InvalidEventError(f"expected a Record, got {type(record).__name__}; create one with Record.of(event)")
    check_place(record)
    if record.execution_id != execution_id:
        raise InvalidEventError(f"the record belongs to execution {record.execution_id}, not to {execution_id}")
    if record.sequence != sequence:
        raise InvalidEventError(f"the sequence of the record must be {sequence}, got {record.sequence}")
    if not record.facts:
        raise InvalidEventError("data is required and must be a payload, got none")
    try:
        return last_id(record)
    except ValueError as error:
        raise InvalidEventError(str(error)) from error


def _check_encodable(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidEventError(f"{name} {text!r}: {error}") from error


def _check_beginning(fact: Payload, *, is_first: bool) -> None:
    # The two truth values must agree: an `ExecutionStarted` is first, and the first fact is an `ExecutionStarted`.
    if is_first is not (type(fact) is ExecutionStarted):
        raise InvalidEventError(f"a log must begin with an execution_started event, got {fact.event_type}")


def _check_source(batch: Batch, beginning: Beginning | None) -> None:
    """Raise InvalidEventError if a batch begins the log of a fork but names no source execution, or if it does not
    begin a fork but names one.
    """
    # An import writes the whole log of a fork from event 1 on, and shares nothing.
    is_fork = bool(batch.expected_sequence) and beginning is not None
    if is_fork is not (batch.source is not None):
        raise InvalidEventError(
            "the log of a fork must begin with an execution_forked event, and its batch must name the source "
            f"execution, whose first events the fork shares: execution {batch.execution_id} continues after event "
            f"{batch.expected_sequence} and {'has no source' if is_fork else 'does not fork ' + str(batch.source)}"
        )


def _index_of_wrong_fact(record: Record, bodies: Sequence[Body]) -> int:
    """Return the index of the event whose payload cannot be encoded, counted from the first event of a record.

    `bodies` are the data of the facts before it, or of all facts.
    """
    # A fact was refused before or during its conversion to plain data. Otherwise all were converted, and encoding
    # failed.
    if not bodies or len(bodies) < len(record.facts):
        return len(bodies)
    return next((index for index, body in enumerate(bodies) if _is_unstorable(body)), 0)


def _is_unstorable(body: Body) -> bool:
    try:
        encode(body)
    except UnstorableValueError:
        return True
    return False


def _first_lease(batch: Batch, owner: Owner) -> Lease:
    if (batch.expected_sequence and batch.source is None) or batch.token is not None:
        raise ValueError(
            f"acquire is possible only with the first batch of a new execution, not with execution "
            f"{batch.execution_id} at event {batch.expected_sequence} with token {batch.token}; call the store's "
            "acquire() instead"
        )
    # The wall clock is the writer's, as it stands in the events.
    moment = Moment(batch.records[-1].recorded_at, Moment.at(None).uptime)
    return moment.plus(LEASE_SECONDS).lease(batch.execution_id, FIRST_TOKEN, owner)


def _with_status(batch: Batch, status_change: StatusColumns | None) -> tuple[StatusColumns | None, str | None]:
    """Return the status change that a batch causes, and the status that the batch itself states (None if it states none
    or a final one). A stated status replaces that of the batch's events, unless the events end the execution.
    """
    status = batch.status
    if status is None or status in TERMINAL:
        return status_change, None
    if status not in STATUSES:
        raise unknown_status(status, STATUSES)
    # The end of an execution wins over a stated status.
    if status_change is None or status_change.status in TERMINAL:
        return status_change, status
    # Any other stated status wins: a resumed execution may wait at once (test_what_was_resumed_may_wait_at_once).
    return status_change if status_change.status == status else replace(status_change, status=status), status


# --- ids of one log ---
# They reveal an id that is used twice. An id begins with its time, so the ids of a log ascend, and its highest id
# proves that higher ones are new. If they do not ascend (a clock was set back, or another program made the ids), each
# id is compared. Ids that `divebook.runtime.clock.Ids` makes in one millisecond differ only in their last two letters,
# and so do the ids of one record. `_IdSet` therefore stores the common part once, with one bit for each id.


class KnownIds:
    """Event ids that one log contains, used to refuse a new event whose id is in the log already.

    Parameters
    ----------
    highest
        Highest id in the log; None if unknown.
    """

    __slots__ = ("_all", "_highest")

    def __init__(self, highest: str | None = "") -> None:
        self._highest = highest
        self._all: _IdSet | None = None
        """All ids of the log; None as long as the comparison with the highest id was sufficient."""

    def refuse(self, records: Sequence[Record], bounds: Bounds, load: Callable[[], Iterable[Ids]]) -> None:
        """Raise `InvalidEventError` if the log already has an id of the given new records. The error names the first
        such id.

        `load` returns the ids of the log. It is called only if the highest id does not prove that the new ids are new.
        """
        # Written as in `are_below`: this runs for every append, and nearly always ends here.
        if self._highest is not None and bounds[0] > self._highest:
            return
        if self._all is None:
            self._all = _IdSet()
            for first_id, width in load():
                self._all.add(first_id, width)
        index = 0
        for record in records:
            self._all.refuse(record, index)
            index += len(record.facts)

    def are_below(self, bounds: Bounds) -> bool:
        """Return True if all event ids of the log are certainly lower than those of records to be appended. `bounds`
        are the lowest and the highest event id of these records.
        """
        return self._highest is not None and bounds[0] > self._highest

    def add(self, records: Sequence[Record], bounds: Bounds) -> None:
        """Add the ids of events that were appended to the log."""
        # None stays None: ids in no order cannot be represented by the highest one.
        if self._highest is not None and bounds[1] > self._highest:
            self._highest = bounds[1]
        if self._all is not None:
            for record in records:
                self._all.add(record.id, len(record.facts))


def bounds_of(records: Sequence[Record]) -> Bounds:
    """Return the lowest and the highest event id in some records. The ids need not be in order.

    Raises
    ------
    InvalidEventError
        An id occurs twice.
    """
    ids = _IdSet()
    index = 0
    for record in records:
        ids.refuse(record, index)
        ids.add(record.id, len(record.facts))
        index += len(record.facts)
    return min(record.id for record in records), max(map(last_id, records))


def last_id(record: Record) -> str:
    """Return the id of the last event of a record."""
    width = len(record.facts)
    return record.id if width == 1 else successor(record.id, width - 1)


class _IdSet:
    """Compact set of event ids. For each prefix that ids share, it stores an integer in which each bit stands for one
    id.
    """

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits: dict[Hashable, int] = {}

    def add(self, first_id: str, width: int) -> None:
        """Add `width` consecutive event ids to the set, beginning with `first_id`."""
        # Bit n stands for the id with the last two letters number n: first 31 and width 3 set the bits 31, 32 and 33.
        common, first = place_of(first_id)
        self._bits[common] = self._bits.get(common, 0) | ((1 << width) - 1) << first

    def refuse(self, record: Record, index: int) -> None:
        """Raise `InvalidEventError` if the set already contains an id of the record. `index`, the position of the
        record's first event in its batch, is for the error message.
        """
        common, first = place_of(record.id)
        # Bit n is set if the n-th id of the record is in the set already.
        duplicates = self._bits.get(common, 0) >> first & ((1 << len(record.facts)) - 1)
        if duplicates:
            position = (duplicates & -duplicates).bit_length() - 1  # of the lowest bit
            event_id = record.events()[position].id
            raise InvalidEventError(
                f"invalid event at index {index + position}: event id {event_id} is already in the log"
            )


# --- records of executions, for lists ---


@dataclass(frozen=True, slots=True)
class ExecutionRecord:
    """Summary row of one execution, as lists show it. The store derives the row from the appended events."""

    execution_id: str
    workflow_name: str
    fingerprint: str | None
    status: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    last_sequence: int
    error: str | None
    size: int
    """Size of the payloads as written, in bytes; a large value that occurs several times counts once."""
    wake_at: datetime | None
    """Time at which a waiting execution continues by itself, or None."""
    taken: int
    """Number of the last message that is in the execution's log."""
    durability: Durability
    """Durability of the first batch of the execution."""
    key: str | None = None
    """Start key, which no other execution of the store has, or None."""
    origin: str = RUN
    """Operation that created the execution, one of `divebook.events.catalog.ORIGINS`."""
    parent: str | None = None
    """Id of the execution that started this one, or from which it was forked; None for a plain run."""
    tags: tuple[str, ...] = ()
    note: str | None = None
    notebook: str | None = None
    cell: str | None = None
    opened: int = 1
    """Sequence number of the latest event that opened the log: 1, or the number of the latest `ExecutionForked`
    event.
    """

    def is_due(self, moment: datetime) -> bool:
        """Return True if the execution has a timer that is due at `moment`, so that it continues without input."""
        return self.wake_at is not None and self.wake_at <= moment


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Conditions by which a list of executions is filtered. A condition that is None holds for all executions."""

    status: str | None = None
    workflow: str | None = None
    tag: str | None = None
    origin: str | None = None
    parent: str | None = None
    notebook: str | None = None
    cell: str | None = None
    key: str | None = None
    with_books: bool = False
    """True to include books: executions that store conversations (`divebook.steps.conversations`)."""
    unended: bool = False
    """True to leave out executions that have ended."""

    def __contains__(self, status_and_beginning: tuple[str, Beginning]) -> bool:
        """Return True if the filter matches an execution, given as a pair of its status and the data of its opening
        event.
        """
        status, beginning = status_and_beginning
        if beginning.origin == BOOK and not self.with_books:
            return False
        if self.unended and status in TERMINAL:
            return False
        return (
            _matches(self.key, beginning.key)
            and _matches(self.status, status)
            and _matches(self.workflow, beginning.workflow_name)
            and _matches(self.origin, beginning.origin)
            and _matches(self.parent, beginning.parent)
            and _matches(self.notebook, beginning.notebook)
            and _matches(self.cell, beginning.cell)
            # `tag` is None or one of the tags.
            and self.tag in (None, *beginning.tags)
        )


def _matches(required: str | None, value: str | None) -> bool:
    return required in (None, value)


class Beginning(NamedTuple):
    """Data of the event that opened an execution's log. They are part of the execution's row, so that lists can show
    them and filter by them. Tags and note may change later.
    """

    workflow_name: str
    fingerprint: str | None = None
    key: str | None = None
    origin: str = RUN
    parent: str | None = None
    tags: tuple[str, ...] = ()
    note: str | None = None
    notebook: str | None = None
    cell: str | None = None
    opened: int = 1
    """Sequence number of the opening event: the first event of the log, or the latest fork event."""

    @classmethod
    def of(cls, opening: ExecutionStarted | ExecutionForked, sequence: int) -> Self:
        """Return the listed data of `opening`, the event that opened a log; its number is `sequence`."""
        # The names of the fields are those of the opening event; `opened` is the number of that event and not part of
        # it.
        facts = {name: getattr(opening, name) for name in cls._fields[:-1]}
        return cls(**{**facts, "origin": opening.came_from, "tags": tuple(opening.tags or ())}, opened=sequence)

    def annotated(self, annotations: Iterable[ExecutionAnnotated]) -> Self:
        """Return a copy with the tags and the note as they are after the given annotations of the execution."""
        tags = self.tags
        note = self.note
        for fact in annotations:
            # Tags keep the order in which they were added; a tag that one annotation adds and removes is removed.
            removed = {*(fact.untagged or ())}
            tags = tuple(tag for tag in dict.fromkeys([*tags, *(fact.tags or ())]) if tag not in removed)
            # None leaves the note as it is; an empty string removes it.
            note = note if fact.note is None else fact.note or None
        return self._replace(tags=tags, note=note)


# --- rows of executions ---


class Line(NamedTuple):
    """Row of an execution in the database table of executions: the data of an `ExecutionRecord`, with times in
    microseconds and tags as JSON.
    """

    id: str
    status: str
    created_at: int
    ended_at: int | None
    last_sequence: int
    error: str | None
    size: int
    wake_at: int | None
    taken: int
    durability: Durability
    workflow_name: str
    fingerprint: str | None
    start_key: str | None
    origin: str
    parent: str | None
    tags: str
    note: str | None
    notebook: str | None
    cell: str | None
    opened: int = 1

    def seal(self) -> int:
        """Return the checksum of this table row, by which damage of the row is detected."""
        # Without `opened` unless it is a fork, so that rows from before the introduction of forks keep their checksums.
        # Only damage makes it less than 1.
        return of_row(self if self.opened != 1 else self[:-1])


def record_of(line: Line) -> ExecutionRecord:
    """Convert an execution's row in the database table of executions (`Line`) to an `ExecutionRecord`."""
    # An execution starts with its creation, so both times are that of the opening event.
    created = to_datetime(line.created_at)
    return ExecutionRecord(
        execution_id=line.id,
        status=line.status,
        created_at=created,
        started_at=created,
        ended_at=None if line.ended_at is None else to_datetime(line.ended_at),
        last_sequence=line.last_sequence,
        error=line.error,
        size=line.size,
        wake_at=None if line.wake_at is None else to_datetime(line.wake_at),
        taken=line.taken,
        durability=line.durability,
        **_beginning(line)._asdict(),
    )


def first_line(batch: PreparedBatch, beginning: Beginning, durability: Durability) -> Line:
    """Return the row of a new execution for the database table of executions. Its numbers of events and bytes are still
    0.
    """
    created = batch.began_at
    # The columns are last_sequence, error, size, wake_at, taken and durability.
    counters = (0, None, 0, None, 0, durability)
    name, fingerprint, key, origin, parent, tags, note, notebook, cell, opened = beginning
    tags_json = encode(list(tags)).decode()
    row = (batch.execution_id, RUNNING, created, None, *counters, name, fingerprint, key, origin, parent, tags_json)
    return Line(*row, note, notebook, cell, opened)


def line_after(line: Line, batch: PreparedBatch, size: int) -> Line:
    """Return an execution's row for the database table as it is after a batch of events; `line` is the row before the
    batch, `size` the new size of the log in bytes.
    """
    status = batch.status or line.status
    ended_at = line.ended_at
    error = line.error
    # A status change carries status, end and error together. Without one, an earlier error and end stay.
    if batch.status_change is not None:
        status = batch.status_change.status
        ended_at = batch.status_change.ended_at
        error = batch.status_change.error
    # A batch without messages has the number 0, which must not lower the recorded one.
    last_taken = max(line.taken, batch.taken)
    if batch.annotations:
        beginning = _beginning(line).annotated(batch.annotations)
        line = line._replace(tags=encode(list(beginning.tags)).decode(), note=beginning.note)
    return Line(
        line.id,
        status,
        line.created_at,
        ended_at,
        batch.last_sequence,
        error,
        size,
        batch.wake_at,
        last_taken,
        # Of the columns from `durability` on, only tags and note can change, and they were replaced above.
        *line[9:],
    )


def _beginning(line: Line) -> Beginning:
    # Tags are JSON in a row, so they are decoded between the fields before and after them.
    names = (line.workflow_name, line.fingerprint, line.start_key, line.origin, line.parent)
    return Beginning(*names, tuple(decode(line.tags)), *line[16:])


def load_sound_records(
    rows: Iterable[tuple[Any, ...]], load: Callable[[tuple[Any, ...]], ExecutionRecord | None], warned: set[str]
) -> list[ExecutionRecord]:
    """Convert table rows to `ExecutionRecord` objects with `load`. Rows for which `load` returns None or raises
    CorruptStoreError are left out.

    Each error is logged as a warning, once for each set `warned`.
    """
    records = []
    for row in rows:
        # A damaged row must not hide the other executions from lists (test_a_damaged_record_hides_no_other).
        try:
            record = load(row)
        except CorruptStoreError as error:
            if str(error) not in warned:
                warned.add(str(error))
                _log.warning("%s", error)
            continue
        if record is not None:
            records.append(record)
    return records
