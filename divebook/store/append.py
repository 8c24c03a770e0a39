"""What every store does to a batch before it is written: check its records, encode them, note what they change.

Each fact is looked at once: the function of its class (`divebook.events.codec`) checks it and gives what it says, which
is encoded at once. What long values need (`divebook.store.encoding`) is asked of records that turn out long.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple, Self, TypeAlias, cast, get_args

from divebook.engine.lifecycle import STATUS_AFTER, STATUSES, TERMINAL, check_may_follow
from divebook.errors import (
    CorruptStoreError,
    FencedError,
    InvalidEventError,
    NotFoundError,
    StoreError,
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
from divebook.events.codec import SOUND, decode, encode
from divebook.events.event import Event, Record, check_placed, place_of, successor, to_datetime
from divebook.events.payload import quickly_made
from divebook.events.values import ByHash, StoredFile, tag
from divebook.store.codec import Sealing
from divebook.store.encoding import (
    LARGE,
    NOTABLE,
    Body,
    Packed,
    by_reference,
    chain,
    encode_facts,
    head,
    is_large,
    of_row,
    spare,
    type_of,
)
from divebook.store.leases import LEASE_SECONDS, Lease, Moment, Owner
from divebook.text.redaction import logger

# What comes of batches that are appended: at once, in a moment or later.


Refusal: TypeAlias = StoreError | InvalidEventError
"""Why a batch was not appended."""


class Appending(NamedTuple):
    """Batches that are appended while somebody waits a moment for it."""

    finish: Callable[[], list[Refusal | None]]
    """Returns what has come of them, and appends them where that has not begun; takes its time."""
    answers: Sequence[Exception | None] | None = None
    """What has come of them, if it took no longer."""
    is_begun: bool = False
    """Whether they are on their way."""


# The ids of one log, by which an id that is given twice is found.
#
# An id begins with its time, so those of a log ascend, and the highest one tells that others are new. Where they do not
# ascend (a clock was set back, somebody else's ids), all are looked at. Ids that are made in one millisecond differ in
# their last two letters only (`divebook.runtime.clock.Ids`), and so do those of a record: all are kept by what they
# have in common, with a bit for each.


Ids: TypeAlias = tuple[str, int]
"""The ids of a record: the first of them, and how many there are."""


Bounds: TypeAlias = tuple[str, str]
"""The lowest and the highest id of some records, in the order of texts."""


class KnownIds:
    """The ids of a log.

    Parameters
    ----------
    highest
        The highest of those that are in it already; None if that is not known.
    """

    __slots__ = ("_all", "_highest")

    def __init__(self, highest: str | None = "") -> None:
        self._highest = highest
        self._all: _Taken | None = None
        """Each of them, once that had to be asked."""

    def refuse(self, records: Sequence[Record], bounds: Bounds, load: Callable[[], Iterable[Ids]]) -> None:
        """Raise `InvalidEventError` for the first id of some records that is among these; `load` gives these."""
        if self.are_below(bounds):
            return
        if self._all is None:
            self._all = _Taken()
            for first_id, width in load():
                self._all.add(first_id, width)
        index = 0
        for record in records:
            self._all.refuse(record, index)
            index += len(record.facts)

    def are_below(self, bounds: Bounds) -> bool:
        """Return whether all of these are known to be lower, so that no other is among them."""
        return self._highest is not None and bounds[0] > self._highest

    def add(self, records: Sequence[Record], bounds: Bounds) -> None:
        """Take in the ids of some records."""
        if self._highest is not None and bounds[1] > self._highest:
            self._highest = bounds[1]
        if self._all is not None:
            for record in records:
                self._all.add(record.id, len(record.facts))


def bounds_of(records: Sequence[Record]) -> Bounds:
    """Return between which ids those of some records lie, in whatever order.

    Raises
    ------
    InvalidEventError
        One of them is there twice.
    """
    known = _Taken()
    index = 0
    for record in records:
        known.refuse(record, index)
        known.add(record.id, len(record.facts))
        index += len(record.facts)
    return min(record.id for record in records), max(map(last_id, records))


def last_id(record: Record) -> str:
    """Return the id of a record's last event."""
    width = len(record.facts)
    return record.id if width == 1 else successor(record.id, width - 1)


class _Taken:
    """A set of ids, by what they have in common."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[Hashable, int] = {}

    def add(self, first_id: str, width: int) -> None:
        common, first = place_of(first_id)
        self._places[common] = self._places.get(common, 0) | ((1 << width) - 1) << first

    def refuse(self, record: Record, index: int) -> None:
        """Raise `InvalidEventError` if an id of a record, whose first event has that index, is in the set."""
        common, first = place_of(record.id)
        double = self._places.get(common, 0) >> first & ((1 << len(record.facts)) - 1)
        if double:
            place = (double & -double).bit_length() - 1
            raise InvalidEventError(
                f"invalid event at index {index + place}: event id {record.events()[place].id} is already in the log"
            )


# How surely an execution's events are on the disk when the store says that they are written.


Durability: TypeAlias = Literal["full", "relaxed"]

FULL: Durability = "full"
"""What is written survives a power failure."""
RELAXED: Durability = "relaxed"
"""It survives the death of the process; a power failure may take the latest events, but leaves no log half written."""
_KNOWN: tuple[str, ...] = get_args(Durability)


def durability_called(name: str | None) -> Durability | None:
    """Return the durability of that name, None for None.

    Raises
    ------
    NotFoundError
        There is no such durability.
    """
    if name is not None and name not in _KNOWN:
        raise NotFoundError("durability", name, _KNOWN)
    return cast("Durability | None", name)


# The line of one execution in a list of executions.


class Beginning(NamedTuple):
    """What an execution began with, as far as lists show it or search for it; tags and note may become others."""

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
    """The number of the event that says so: the first one, or the latest at which it was forked."""

    @classmethod
    def of(cls, opening: ExecutionStarted | ExecutionForked, sequence: int) -> Self:
        """Return it as an opening says, the event of that number."""
        facts = {name: getattr(opening, name) for name in cls._fields[:-1]}
        return cls(**{**facts, "origin": opening.came_from, "tags": tuple(opening.tags or ())}, opened=sequence)

    def annotated(self, said: Iterable[ExecutionAnnotated]) -> Self:
        """Return it with the tags and the note that people have given the execution since."""
        tags = self.tags
        note = self.note
        for fact in said:
            removed = {*(fact.untagged or ())}
            tags = tuple(tag for tag in dict.fromkeys([*tags, *(fact.tags or ())]) if tag not in removed)
            note = note if fact.note is None else fact.note or None
        return self._replace(tags=tags, note=note)


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which executions a list holds; None stands for all."""

    status: str | None = None
    workflow: str | None = None
    tag: str | None = None
    origin: str | None = None
    parent: str | None = None
    notebook: str | None = None
    cell: str | None = None
    key: str | None = None
    with_books: bool = False
    """Whether books are listed, which no person has started: see `divebook.steps.conversations`."""

    def __contains__(self, found: tuple[str, Beginning]) -> bool:
        """Return whether the list holds an execution of that status and beginning."""
        status, beginning = found
        if beginning.origin == BOOK and not self.with_books:
            return False
        own = (status, beginning.workflow_name, beginning.origin, beginning.parent, beginning.notebook, beginning.cell)
        asked = (self.status, self.workflow, self.origin, self.parent, self.notebook, self.cell)
        if self.key not in (None, beginning.key):
            return False
        return self.tag in (None, *beginning.tags) and all(map(_fits, asked, own))


def _fits(asked: str | None, own: str | None) -> bool:
    return asked in (None, own)


@dataclass(frozen=True, slots=True)
class ExecutionRecord:
    """One line of a list of executions, derived from the events as they were appended."""

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
    """Bytes of payload as they are written; a large value that occurs several times counts once."""
    wake_at: datetime | None
    """When it has something to do by itself, while it waits."""
    taken: int
    """Number of the last message that is in its log."""
    durability: Durability
    """What it was begun with."""
    key: str | None = None
    """The start key that is its alone."""
    origin: str = RUN
    """How it came about, one of `divebook.events.catalog.ORIGINS`."""
    parent: str | None = None
    """The execution it came from."""
    tags: tuple[str, ...] = ()
    note: str | None = None
    notebook: str | None = None
    cell: str | None = None
    opened: int = 1
    """The number of its newest opening (`divebook.events.catalog.ExecutionForked`)."""

    def is_due(self, moment: datetime) -> bool:
        """Return whether it has something to do by itself at a moment."""
        return self.wake_at is not None and self.wake_at <= moment


# What is written at once: records as they are given, and as they are once `divebook.store.append` has seen them.


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
    """Those of the records (`divebook.store.encoding`)."""
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
                self.beginning = Beginning.of(fact, sequence)
                self.began_at = recorded_at
                self.annotations = []


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
    course = drafts.course
    payloads = drafts.payloads
    _check_source(batch, course.beginning)
    turn, status = _standing(batch, course.turn)
    blobs = drafts.kept | drafts.spared() if drafts.are_long else drafts.kept
    beginning = course.beginning
    annotations = course.annotations
    if beginning is not None:
        beginning = beginning.annotated(annotations)
        annotations = []
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
        self.batch = batch
        self.last_sequence = batch.expected_sequence
        self.course = _NO_COURSE
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
        batch = self.batch
        sequence = self.last_sequence + 1
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
                bodies = by_reference(bodies, self.kept)
                self.has_met = False
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
        """Write long values as `divebook.store.encoding` does; return the blobs."""
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


# An execution's row in a store that has tables: what a list shows of it, and the step from one batch to the next.


_log = logger(__name__)


class Line(NamedTuple):
    """An execution's row: what a list shows of it, as the file has it."""

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
        """Return the checksum of the row; of one that is no fork, it is as it was before there were any."""
        return of_row(self if self.opened > 1 else self[:-1])


def record_of(line: Line) -> ExecutionRecord:
    """Return a row as lists have it."""
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


def _beginning(line: Line) -> Beginning:
    names = (line.workflow_name, line.fingerprint, line.start_key, line.origin, line.parent)
    return Beginning(*names, tuple(decode(line.tags)), *line[16:])


def first_line(batch: PreparedBatch, beginning: Beginning, durability: Durability) -> Line:
    """Return the row of an execution before its first events."""
    created = batch.began_at
    extent = (0, None, 0, None, 0, durability)
    name, fingerprint, key, origin, parent, tags, note, notebook, cell, opened = beginning
    listed = encode(list(tags)).decode()
    row = (batch.execution_id, RUNNING, created, None, *extent, name, fingerprint, key, origin, parent, listed)
    return Line(*row, note, notebook, cell, opened)


def line_after(line: Line, batch: PreparedBatch, size: int) -> Line:
    """Return an execution's row once a batch is written and its log has such a size."""
    status = batch.status or line.status
    ended_at = line.ended_at
    error = line.error
    if batch.turn is not None:
        status = batch.turn.status
        ended_at = batch.turn.ended_at
        error = batch.turn.error
    taken = max(line.taken, batch.taken)
    if batch.annotations:
        said = _beginning(line).annotated(batch.annotations)
        line = line._replace(tags=encode(list(said.tags)).decode(), note=said.note)
    return Line(
        line.id, status, line.created_at, ended_at, batch.last_sequence, error, size, batch.wake_at, taken, *line[9:]
    )


def sound(
    rows: Iterable[tuple[Any, ...]], load: Callable[[tuple[Any, ...]], ExecutionRecord | None], warned: set[str]
) -> list[ExecutionRecord]:
    """Return what rows say; of one that is damaged there is a warning, once, and the others are listed."""
    found = []
    for row in rows:
        try:
            found.append(load(row))
        except CorruptStoreError as error:
            if str(error) not in warned:
                warned.add(str(error))
                _log.warning("%s", error)
    return [record for record in found if record is not None]
