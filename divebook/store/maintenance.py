"""Verifying a store: what is damaged, and what can still be read. Nothing is changed.

Every log is read undecoded and compared with what it should be: sequences without gaps, the chain of checksums,
payloads that decode, large values that are there and have the content their name promises, and a record that says the
same as the events.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar

from divebook.engine.lifecycle import TERMINAL, violations
from divebook.errors import (
    CorruptStoreError,
    DecryptionError,
    DivebookError,
    NewerStoreError,
    NotFoundError,
    StoreError,
)
from divebook.events.catalog import RUNNING, WAITING, ExecutionAnnotated, ExecutionForked, ExecutionStarted
from divebook.events.event import Event, to_datetime, to_microseconds
from divebook.store.append import Beginning, ExecutionRecord, Turn, note_questions, turn_after
from divebook.store.base import EventStore, StoredLog, StoredRecord
from divebook.store.encoding import embed, files_in, reached, width_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is wrong."""

    text: str
    execution_id: str | None = None
    """None: it concerns the store as a whole."""
    sequence: int | None = None
    """None: it concerns the execution as a whole."""


@dataclass(frozen=True, slots=True)
class CheckedExecution:
    """What `check` found of one execution."""

    execution_id: str
    events: int
    """How many there are."""
    readable: int
    """How many, from the first on, can be read without a doubt."""
    unverified: int
    """How many were written before there were checksums."""
    damages: tuple[Damage, ...]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What `check` found."""

    location: str
    executions: tuple[CheckedExecution, ...]
    damages: tuple[Damage, ...]
    """Those of the store as a whole."""
    orphan_blobs: int
    """Large values that no execution refers to any more: no damage, `gc` deletes them."""

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not self.all_damages()

    def all_damages(self) -> list[Damage]:
        """Return everything that is wrong: with the store first, then execution by execution."""
        return [*self.damages, *(damage for entry in self.executions for damage in entry.damages)]


_UNFIT = (
    "its checkpoint is damaged, or was made of another log. It is not used, and nothing is lost: the next one takes "
    "its place, or `divebook gc` deletes it"
)

Finding: TypeAlias = tuple[int | None, str]
Fold: TypeAlias = Callable[[Sequence[Event]], object]


def check(store: EventStore, *, fold: Fold | None = None) -> CheckReport:
    """Verify a store.

    Parameters
    ----------
    fold
        Called with the events of each execution that is sound so far; an error of ours that it raises is damage, too.
    """
    faults: list[str] = []
    faults += _tried(store.faults, faults)
    blobs = _tried(store.blobs, faults)
    contents = _Contents(store)
    ids = _tried(store.ids, faults)
    executions = tuple(_check_execution(store, execution_id, contents, fold) for execution_id in ids)
    orphans = sum(not blob.used for blob in blobs)
    return CheckReport(store.location, executions, tuple(Damage(text) for text in faults), orphans)


def _tried(look: Callable[[], list[T]], faults: list[str]) -> list[T]:
    try:
        return look()
    except StoreError as error:
        faults.append(str(error))
        return []


class _Contents:
    """The large values of a store, each looked at once."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._damaged: dict[bytes, CorruptStoreError] = {}

    def fetch(self, digest: bytes) -> bytes | None:
        """Return a content, None if it is missing; CorruptStoreError if it is not what its name promises."""
        if digest in self._damaged:
            raise self._damaged[digest]
        try:
            return self._store.sealing.open_content(digest, self._store.blob(digest))
        except CorruptStoreError as error:
            self._damaged[digest] = error
            raise

    def size(self, digest: bytes) -> int:
        """Return how long a content is."""
        return len(self._store.blob(digest) or b"")

    def absent_files(self, payload: bytes) -> set[bytes]:
        """Return the files that a payload names, and the store does not have."""
        return {digest for digest in files_in(payload, self.fetch) if self._store.blob(digest) is None}

    def reached(self, payload: bytes) -> dict[bytes, int]:
        """Return the size of every large value that a payload refers to, directly or not."""
        return {digest: self.size(digest) for digest in reached(payload, self.fetch)}


def _check_execution(store: EventStore, execution_id: str, contents: _Contents, fold: Fold | None) -> CheckedExecution:
    try:
        log = store.stored_log(execution_id)
    except StoreError as error:
        return CheckedExecution(execution_id, 0, 0, 0, (Damage(str(error), execution_id),))
    found = [*_check_rows(log)]
    with suppress(
        DecryptionError
    ):  # what was written is as it was written; what it says cannot be known without the key
        found += _check_values(store, log, contents, None if found else fold, intact=not found)
    found = _once(found)
    if log.altered and not found:
        found = [(None, "the record does not have the checksum it was written with")]
    if not log.checkpoint_fits and not found:
        found = [(None, _UNFIT)]
    damages = tuple(Damage(text, execution_id, sequence) for sequence, text in sorted(found, key=_by_sequence))
    count = sum(width_of(record.type) for record in log.records)
    first = min((damage.sequence for damage in damages if damage.sequence is not None), default=count + 1)
    unverified = sum(width_of(record.type) for record in log.records if record.checksum is None)
    return CheckedExecution(execution_id, count, min(first - 1, count), unverified, damages)


def _check_values(
    store: EventStore, log: StoredLog, contents: _Contents, fold: Fold | None, *, intact: bool
) -> list[Finding]:
    """Return what is wrong with what a log says; of one that is not `intact`, only what cannot be read."""
    opened: list[bytes] = []
    events: list[Event] = []
    found = list(_check_payloads(store, log, contents, (opened, events)))
    if found or not intact:
        return found
    error = store.sealing.open_text(log.record.error)
    note = store.sealing.open_text(log.record.note)
    line = replace(log.record, error=error, note=note)
    found = [*_check_record(line, events), *_check_blobs(log, opened, contents)]
    if not log.altered:
        found += _check_beginning(line, events)
    found = found or [*violations(events), *_check_questions(log, events)]
    return found or ([] if fold is None else list(_check_fold(events, fold)))


def _once(findings: Sequence[Finding]) -> list[Finding]:
    """Return the first finding of each event: what else is found there has the same cause."""
    of_events: dict[int, Finding] = {}
    for sequence, text in findings:
        if sequence is not None:
            of_events.setdefault(sequence, (sequence, text))
    return [*of_events.values(), *(finding for finding in findings if finding[0] is None)]


def _by_sequence(finding: Finding) -> int:
    return finding[0] or 0


def _check_rows(log: StoredLog) -> Iterator[Finding]:
    """Find what is missing, changed, or in another's place."""
    expected = 1
    noted = log.record.last_sequence
    before: set[int | None] = {0}
    """What the checksum of the last record may be: as it stands there, or as the record gives it. A record that fits
    neither has changed itself; one that fits the second follows a record whose checksum has changed."""
    is_sound = True
    if (text := _of_another_log(log)) is not None:
        yield 1, text
    for record in log.records:
        if is_sound and record.sequence < expected:
            yield record.sequence, f"event {record.sequence} is there twice"
            continue
        if is_sound and record.sequence > expected:
            yield expected, f"{_named(expected, record.sequence - 1)} missing"
        whole = record.sequence == expected or not is_sound  # how far a damaged one reaches is not known
        given = {record.checksum_after(checksum or 0) for checksum in before}
        unchecked = record.checksum is None and before <= {0, None}
        is_sound = not whole or unchecked or record.checksum in given
        if not is_sound:
            yield record.sequence, f"{_events(record)} not have the checksum it was written with"
        before = {None} if unchecked else {record.checksum, *(given if whole else ())}
        expected = record.last_sequence + 1
        if expected == noted + 1 and log.checksum not in before and (before != {None} or log.checksum):
            yield record.sequence, f"{_events(record)} not have the checksum that the record says is the last"
    yield from _check_end(log, expected)


def _of_another_log(log: StoredLog) -> str | None:
    """Return what tells that a log does not begin with its own first event: every chain of checksums begins alike."""
    began = to_microseconds(log.record.created_at)
    first = log.records[0] if log.records else None
    if first is None or first.sequence != 1 or log.altered or log.record.opened > 1 or first.recorded_at == began:
        return None
    return "event 1 was not recorded when the execution began: it is changed, or that of another execution"


def _check_end(log: StoredLog, expected: int) -> Iterator[Finding]:
    last = log.record.last_sequence
    if log.broken is not None:
        yield expected, f"{_named(expected, max(last, expected))} unreadable: {log.broken}"
    elif last >= expected:
        yield expected, f"{_named(expected, last)} missing"
    elif last < expected - 1 and log.record.ended_at is not None:
        yield last + 1, f"the record says that event {last} is the last, but {_named(last + 1, expected - 1)} there"


def _named(first: int, last: int) -> str:
    return f"event {first} is" if first >= last else f"events {first} to {last} are"


def _events(record: StoredRecord) -> str:
    first = record.sequence
    last = record.last_sequence
    return f"event {first} does" if first == last else f"the record of events {first} to {last} does"


def _check_payloads(
    store: EventStore, log: StoredLog, contents: _Contents, read: tuple[list[bytes], list[Event]]
) -> Iterator[Finding]:
    """Read the data of the records and their events; give what cannot be read."""
    opened, events = read
    for stored in log.records:
        try:
            payload = store.sealing.open_packed(stored.payload)
            opened.append(payload)
            events += stored.record(log.record.execution_id, embed(payload, contents.fetch)).events()
        # The last two: JSON that is sound, but of another shape than the payload's.
        except (CorruptStoreError, NewerStoreError, TypeError, AttributeError, ValueError) as error:
            yield stored.sequence, f"event {stored.sequence} cannot be read: {error}"


def _check_record(record: ExecutionRecord, events: Sequence[Event]) -> Iterator[Finding]:
    turns = [turn for event in events if (turn := turn_after(event.data, event.recorded_at))]
    if not turns:
        yield None, "the log does not begin with execution_started"
        return
    ended_at = None if record.ended_at is None else to_microseconds(record.ended_at)
    said = Turn(record.status, ended_at, record.error)
    if turns[-1].status == RUNNING and record.status == WAITING:  # which the events do not tell
        said = replace(said, status=RUNNING)
    for name in ("status", "ended_at", "error"):
        yield from _compared(name, getattr(said, name), getattr(turns[-1], name))


def _check_beginning(record: ExecutionRecord, events: Sequence[Event]) -> Iterator[Finding]:
    if isinstance(events[0].data, ExecutionStarted):
        openings = (event for event in reversed(events) if isinstance(event.data, ExecutionStarted | ExecutionForked))
        newest: Any = next(openings)
        said = (event.data for event in events[newest.sequence :] if isinstance(event.data, ExecutionAnnotated))
        for name, by_events in Beginning.of(newest.data, newest.sequence).annotated(said)._asdict().items():
            if name != "tags":  # people once changed them without an event
                yield from _compared(name, getattr(record, name), by_events)


def _compared(name: str, by_record: object, by_events: object) -> Iterator[Finding]:
    if by_record != by_events:
        yield None, f"the record says {name} {by_record!r}, the events say {by_events!r}"


def _check_blobs(log: StoredLog, opened: Sequence[bytes], contents: _Contents) -> Iterator[Finding]:
    used: set[bytes] = set()
    absent: set[bytes] = set()
    own: dict[bytes, int] = {}
    for stored, payload in zip(log.records, opened, strict=True):
        found = contents.reached(payload)
        used |= found.keys()
        absent |= contents.absent_files(payload)
        own |= found if stored.sequence > log.shared else {}
    for digest in used - log.blobs - log.shared_blobs - absent:  # a page or notebook that was imported has no files
        yield None, f"the large value {digest.hex()[:12]}... is in use, but not noted as such: gc would delete it"
    noted = [record for record in log.records if log.shared < record.sequence <= log.record.last_sequence]
    own |= {digest: contents.size(digest) for digest in log.blobs}  # of an heir of a log that could not be read, too
    size = sum(len(record.payload) for record in noted) + sum(own.values())
    if size != log.record.size:
        yield None, f"the record says {log.record.size} bytes, the events have {size}"


def _check_questions(log: StoredLog, events: Sequence[Event]) -> Iterator[Finding]:
    is_open: dict[str, bool] = {}
    for event in events:
        note_questions(is_open, event.data)
    for question in sorted({question for question, still in is_open.items() if still} ^ log.questions):
        said, fact = ("open", "settled") if question in log.questions else ("settled", "open")
        yield None, f"question {question} is noted as {said}, but the events leave it {fact}"


def _check_fold(events: Sequence[Event], fold: Fold) -> Iterator[Finding]:
    try:
        fold(events)
    except DivebookError as error:
        yield None, f"its state cannot be rebuilt: {error}"


# Deleting what is no longer wanted: old executions, unused large values, checkpoints of what has ended.


@dataclass(frozen=True, slots=True)
class GcReport:
    """What `gc` deleted, or would delete."""

    dry_run: bool
    executions: tuple[ExecutionRecord, ...]
    events: int
    blobs: int
    blob_bytes: int
    """Bytes on disk of the blobs; a file does not shrink, but uses the space again."""
    checkpoints: int
    """Those of executions that have ended and stay."""


def gc(
    store: EventStore,
    *,
    older_than: timedelta | None = None,
    keep_last: int | None = None,
    statuses: Collection[str] = TERMINAL,
    dry_run: bool = False,
    now: int | None = None,
) -> GcReport:
    """Delete ended executions by age or number, then what is not needed any more.

    Without `older_than` and `keep_last`, no execution is deleted. What has not ended, or is about to be resumed, stays.

    Parameters
    ----------
    older_than
        Spare what ended more recently.
    keep_last
        Spare so many of each workflow, counting its ended executions from the newest.
    statuses
        Spare those with another status.
    now
        Microseconds since 1970; the present by default.
    """
    _check(older_than, keep_last, statuses)
    moment = to_datetime(time.time_ns() // 1000 if now is None else now)
    unwanted = [] if older_than is None and keep_last is None else list(_old(store, keep_last, statuses))
    if older_than is not None:
        unwanted = [record for record in unwanted if _end(record) < moment - older_than]
    driven = {lease.execution_id for lease in store.live_leases(now)}
    unwanted = [record for record in unwanted if record.execution_id not in driven]
    if not dry_run:
        gone = set(store.discard([record.execution_id for record in unwanted], now))
        unwanted = [record for record in unwanted if record.execution_id in gone]
    return _finish(store, unwanted, dry_run=dry_run)


def _check(older_than: timedelta | None, keep_last: int | None, statuses: Collection[str]) -> None:
    for status in statuses:
        if status not in TERMINAL:
            raise NotFoundError("status", status, TERMINAL, f"only what has ended can be deleted, not {status!r}")
    if keep_last is not None and keep_last < 0:
        raise ValueError(f"keep_last must not be negative, got {keep_last}")
    if older_than is not None and older_than < timedelta(0):
        raise ValueError(f"older_than must not be negative, got {older_than}")


def _old(store: EventStore, keep_last: int | None, statuses: Collection[str]) -> Iterator[ExecutionRecord]:
    seen: Counter[str] = Counter()
    for record in store.records():  # newest first
        if record.status not in TERMINAL:
            continue
        seen[record.workflow_name] += 1
        if record.status in statuses and seen[record.workflow_name] > (keep_last or 0):
            yield record


def _end(record: ExecutionRecord) -> datetime:
    return record.ended_at or record.created_at


def _finish(store: EventStore, deleted: list[ExecutionRecord], *, dry_run: bool) -> GcReport:
    ids = {record.execution_id for record in deleted}
    ended = {record.execution_id for record in store.records() if record.status in TERMINAL} - ids
    checkpoints = [execution_id for execution_id in store.checkpoints() if execution_id in ended]
    orphans = [blob for blob in store.blobs(ids) if not blob.used]
    if not dry_run:
        store.drop_checkpoints(checkpoints)
        store.drop_blobs()
    size = sum(blob.stored for blob in orphans)
    events = sum(record.last_sequence for record in deleted)
    return GcReport(dry_run, tuple(deleted), events, len(orphans), size, len(checkpoints))


# The contents of files that a log names: read from the store that holds it.


def file_content(store: EventStore, digest: str) -> bytes:
    """Return the content of a file by its SHA-256, hexadecimal.

    Raises
    ------
    CorruptStoreError
        It is missing, or is not what its name promises.
    DecryptionError
        It is encrypted, and the key is missing or another.
    """
    name = bytes.fromhex(digest)
    found = store.sealing.open_content(name, store.blob(name))
    if found is None:
        raise CorruptStoreError(f"the content of a file, {digest[:12]}..., is missing in the store")
    return found


# Stores that nobody holds any more: their connections are closed at once, not when the garbage collector comes by.


P = ParamSpec("P")


class Closing(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """Close it."""
        ...


def close_when_dropped(owner: object, connection: Closing) -> None:
    """Close a connection when what holds it is dropped; not at the end of the process, where a thread may use it."""
    weakref.finalize(owner, connection.close).atexit = False


def weakly(method: Callable[P, T]) -> Callable[P, T]:
    """Return a method that does not hold its object: without a circle, its files are closed as soon as nobody does."""
    held = weakref.WeakMethod(method)

    def call(*args: P.args, **named: P.kwargs) -> T:
        present = held()
        if present is None:
            raise ReferenceError("a store is asked that nobody holds any more")
        return present(*args, **named)

    return call
