"""Verifying a store: what is damaged, and what can still be read. Nothing is changed.

Every log is read undecoded and compared with what it should be: sequences without gaps, the chain of checksums,
payloads that decode, large values that are there and have the content their name promises, and a record that says the
same as the events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from divebook.engine.grammar import violations
from divebook.errors import CorruptStoreError, DivebookError, NewerStoreError, SealedError, StoreError
from divebook.events.catalog import RUNNING, WAITING
from divebook.events.codec import decode_payload
from divebook.events.event import Event, to_microseconds
from divebook.store.base import EventStore
from divebook.store.batches import Turn, question_changes, turn_after
from divebook.store.blobs import embed, references
from divebook.store.checksums import chain, covered
from divebook.store.records import ExecutionRecord
from divebook.store.upkeep import StoredLog

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

    def reached(self, payload: bytes) -> dict[bytes, int]:
        """Return the size of every large value that a payload refers to, directly or not."""
        sizes: dict[bytes, int] = {}
        for digest in references(payload):
            content = self.fetch(digest) or b""
            sizes |= {digest: len(self._store.blob(digest) or b"")} | self.reached(content)
        return sizes


def _check_execution(store: EventStore, execution_id: str, contents: _Contents, fold: Fold | None) -> CheckedExecution:
    try:
        log = store.stored_log(execution_id)
    except StoreError as error:
        return CheckedExecution(execution_id, 0, 0, 0, (Damage(str(error), execution_id),))
    found = [*_check_sequences(log), *_check_chain(log)]
    with suppress(SealedError):  # what was written is as it was written; what it says cannot be known without the key
        found += _check_values(store, log, contents, None if found else fold, intact=not found)
    found = _once(found)
    if log.altered and not found:
        found = [(None, "the record does not have the checksum it was written with")]
    damages = tuple(Damage(text, execution_id, sequence) for sequence, text in sorted(found, key=_by_sequence))
    first = min((damage.sequence for damage in damages if damage.sequence is not None), default=len(log.events) + 1)
    unverified = sum(event.checksum is None for event in log.events)
    return CheckedExecution(execution_id, len(log.events), min(first - 1, len(log.events)), unverified, damages)


def _check_values(
    store: EventStore, log: StoredLog, contents: _Contents, fold: Fold | None, *, intact: bool
) -> list[Finding]:
    """Return what is wrong with what a log says; of one that is not `intact`, only what cannot be read."""
    opened = [store.sealing.open(event.payload) for event in log.events]
    events: list[Event] = []
    found = list(_check_payloads(log, opened, contents, events))
    if found or not intact:
        return found
    record = replace(log.record, error=store.sealing.open_text(log.record.error))
    found = [*_check_record(record, events), *_check_blobs(log, opened, contents)]
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


def _check_sequences(log: StoredLog) -> Iterator[Finding]:
    expected = 1
    for event in log.events:
        if event.sequence > expected:
            yield expected, f"{_named(expected, event.sequence - 1)} missing"
        expected = event.sequence + 1
    last = log.record.last_sequence
    if log.broken is not None:
        yield expected, f"{_named(expected, last)} unreadable: {log.broken}"
    elif last >= expected:
        yield expected, f"{_named(expected, last)} missing"
    elif last < expected - 1:
        yield last + 1, f"the record says that event {last} is the last, but {_named(last + 1, expected - 1)} there"


def _named(first: int, last: int) -> str:
    return f"event {first} is" if first >= last else f"events {first} to {last} are"


def _check_chain(log: StoredLog) -> Iterator[Finding]:
    last = 0
    before: set[int | None] = {0}
    """What the checksum of the last event may be: as it stands there, or as the event gives it. An event that fits
    neither has changed itself; one that fits the second follows an event whose checksum has changed."""
    for event in log.events:
        whole, content = event.sequence == last + 1, covered(event, event.payload)
        given = {chain(checksum or 0, [content])[0] for checksum in before}
        unchecked = event.checksum is None and before <= {0, None}
        if whole and not unchecked and event.checksum not in given:
            yield event.sequence, f"event {event.sequence} does not have the checksum it was written with"
        before, last = {None} if unchecked else {event.checksum, *(given if whole else ())}, event.sequence
    if last == log.record.last_sequence and log.checksum not in before and before != {None}:
        yield last, f"event {last} does not have the checksum that the record says is the last"


def _check_payloads(
    log: StoredLog, opened: Sequence[bytes], contents: _Contents, events: list[Event]
) -> Iterator[Finding]:
    for stored, payload in zip(log.events, opened, strict=True):
        try:
            data = decode_payload(stored.event_type, embed(payload, contents.fetch))
        # The last two: JSON that is sound, but of another shape than the payload's.
        except (CorruptStoreError, NewerStoreError, TypeError, AttributeError) as error:
            yield stored.sequence, f"event {stored.sequence} cannot be read: {error}"
        else:
            place = (log.record.execution_id, stored.sequence, stored.recorded_at)
            events.append(Event(stored.id, *place, data, stored.path, stored.step))


def _check_record(record: ExecutionRecord, events: Sequence[Event]) -> Iterator[Finding]:
    turns = [turn for event in events if (turn := turn_after(event))]
    if not turns:
        yield None, "the log does not begin with execution_started"
        return
    ended_at = None if record.ended_at is None else to_microseconds(record.ended_at)
    said = Turn(record.status, ended_at, record.error)
    if turns[-1].status == RUNNING and record.status == WAITING:  # which the events do not tell
        said = replace(said, status=RUNNING)
    for name in ("status", "ended_at", "error"):
        by_record, by_events = getattr(said, name), getattr(turns[-1], name)
        if by_record != by_events:
            yield None, f"the record says {name} {by_record!r}, the events say {by_events!r}"


def _check_blobs(log: StoredLog, opened: Sequence[bytes], contents: _Contents) -> Iterator[Finding]:
    reached: dict[bytes, int] = {}
    for payload in opened:
        reached |= contents.reached(payload)
    for digest in reached.keys() - log.blobs:
        yield None, f"the large value {digest.hex()[:12]}... is in use, but not noted as such: gc would delete it"
    size = sum(len(event.payload) for event in log.events) + sum(reached.values())
    if size != log.record.size:
        yield None, f"the record says {log.record.size} bytes, the events have {size}"


def _check_questions(log: StoredLog, events: Sequence[Event]) -> Iterator[Finding]:
    is_open: dict[str, bool] = {}
    for event in events:
        is_open |= question_changes(event)
    for question in sorted({question for question, still in is_open.items() if still} ^ log.questions):
        said, fact = ("open", "settled") if question in log.questions else ("settled", "open")
        yield None, f"question {question} is noted as {said}, but the events leave it {fact}"


def _check_fold(events: Sequence[Event], fold: Fold) -> Iterator[Finding]:
    try:
        fold(events)
    except DivebookError as error:
        yield None, f"its state cannot be rebuilt: {error}"
