"""Verification of a store (`check`), and deletion of old executions and unused data (`gc`).

`check` changes nothing. It reads every log undecoded, and verifies that sequence numbers have no gaps, the chain of
checksums is intact, payloads can be decoded, large values exist and match their hashes, and the execution's row agrees
with the events.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar

from divebook.engine.lifecycle import TERMINAL, unknown_status, violations
from divebook.errors import (
    CorruptStoreError,
    DecryptionError,
    DivebookError,
    NewerStoreError,
    StoreError,
)
from divebook.events.catalog import RUNNING, WAITING, ExecutionAnnotated, ExecutionForked, ExecutionStarted
from divebook.events.event import Event, to_datetime, to_microseconds
from divebook.report.hints import advised
from divebook.stores.append import Beginning, ExecutionRecord, StatusColumns, note_questions, status_change_of
from divebook.stores.backend import StoredLog, StoredRecord
from divebook.stores.base import EventStore
from divebook.stores.encoding import embed, files_in, reached, width_of
from divebook.text.arguments import DurationLike, seconds_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Damage:
    """One fault that `check` reports: its description, and the execution and event that it concerns."""

    text: str
    execution_id: str | None = None
    """Id of the damaged execution; None for a fault of the store as a whole."""
    sequence: int | None = None
    """Sequence number of the damaged event; None for a fault of the execution as a whole."""


@dataclass(frozen=True, slots=True)
class CheckedExecution:
    """Result of `check` for one execution: numbers of events in its log, and the faults that were found."""

    execution_id: str
    events: int
    """Number of events in the log."""
    readable: int
    """Number of events before the first damaged event."""
    unverified: int
    """Number of events that have no checksum, because an old version wrote them."""
    damages: tuple[Damage, ...]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Result of `check` for a whole store."""

    location: str
    executions: tuple[CheckedExecution, ...]
    damages: tuple[Damage, ...]
    """Faults of the store as a whole, without those of single executions."""
    orphan_blobs: int
    """Number of large values that no execution refers to. They are not a fault; `gc` deletes them."""

    @property
    def ok(self) -> bool:
        """True if the store and all executions are undamaged."""
        return not self.all_damages()

    def all_damages(self) -> list[Damage]:
        """Return all faults: first those of the store, then those of each execution."""
        return [*self.damages, *(damage for entry in self.executions for damage in entry.damages)]


Finding: TypeAlias = tuple[int | None, str]
Fold: TypeAlias = Callable[[Sequence[Event]], object]


def check(store: EventStore, *, fold: Fold | None = None) -> CheckReport:
    """Verify all logs and rows of a store without changing anything.

    Parameters
    ----------
    fold
        Function that is called with the events of each execution without other faults. A `DivebookError` that it raises
        is reported as a fault.
    """
    faults: list[str] = []
    faults += _try(store.faults, faults)
    # Each look at the whole store may fail by itself; the check continues with what can be read.
    blobs = _try(store.blobs, faults)
    contents = _Contents(store)
    ids = _try(store.ids, faults)
    executions = tuple(_check_execution(store, execution_id, contents, fold) for execution_id in ids)
    orphans = sum(not blob.used for blob in blobs)
    return CheckReport(store.location, executions, tuple(Damage(text) for text in faults), orphans)


def _try(read: Callable[[], list[T]], faults: list[str]) -> list[T]:
    try:
        return read()
    except StoreError as error:
        faults.append(str(error))
        return []


class _Contents:
    """Reader of the large values of one store. If a value is damaged, the error is remembered and raised again at the
    next access.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._damaged: dict[bytes, CorruptStoreError] = {}

    def fetch(self, digest: bytes) -> bytes | None:
        """Return the content of the large value with the hash `digest`, or None if it is missing. Raise
        CorruptStoreError if the content does not match the hash.
        """
        if digest in self._damaged:
            raise self._damaged[digest]
        try:
            return self._store.sealing.open_content(digest, self._store.blob(digest))
        except CorruptStoreError as error:
            self._damaged[digest] = error
            raise

    def size(self, digest: bytes) -> int:
        """Return the stored size of a large value in bytes; 0 if it is missing."""
        return len(self._store.blob(digest) or b"")

    def absent_files(self, payload: bytes) -> set[bytes]:
        """Return the hashes of the files that a payload refers to but that the store does not have."""
        return {digest for digest in files_in(payload, self.fetch) if self._store.blob(digest) is None}

    def reached(self, payload: bytes) -> dict[bytes, int]:
        """Return the hash and size of each large value that a payload refers to, directly or through another large
        value.
        """
        return {digest: self.size(digest) for digest in reached(payload, self.fetch)}


def _check_execution(store: EventStore, execution_id: str, contents: _Contents, fold: Fold | None) -> CheckedExecution:
    try:
        log = store.stored_log(execution_id)
    except StoreError as error:
        return CheckedExecution(execution_id, 0, 0, 0, (Damage(str(error), execution_id),))
    findings = [*_check_rows(log)]
    # Without the key, the checksums can be verified, but not the values.
    with suppress(DecryptionError):
        # A fold of a damaged log would only repeat its faults (test_a_fold_is_not_asked_about_a_damaged_log).
        findings += _check_values(store, log, contents, None if findings else fold, intact=not findings)
    findings = _first_of_each_event(findings)
    # Faults of the whole record are shown only without others, as they would repeat the same cause.
    if log.altered and not findings:
        findings = [(None, "the record does not match its checksum")]
    if not log.checkpoint_fits and not findings:
        text = (
            "a checkpoint of the execution is damaged or belongs to another log. The checkpoint is not used, and no "
            f"data is lost: a later checkpoint replaces it, or `{advised('gc')}` deletes it"
        )
        findings = [(None, text)]
    damages = tuple(Damage(text, execution_id, sequence) for sequence, text in sorted(findings, key=_by_sequence))
    count = sum(width_of(record.type) for record in log.records)
    # The events before the first damaged one are readable.
    first = min((damage.sequence for damage in damages if damage.sequence is not None), default=count + 1)
    unverified = sum(width_of(record.type) for record in log.records if record.checksum is None)
    return CheckedExecution(execution_id, count, min(first - 1, count), unverified, damages)


def _check_values(
    store: EventStore, log: StoredLog, contents: _Contents, fold: Fold | None, *, intact: bool
) -> list[Finding]:
    """Return the faults in the payloads of a log. If there are none and the log is `intact`, return the faults in the
    data that the store derives from the payloads.

    Each group of checks runs only if the ones before found nothing, since one fault would cause others.
    """
    payloads: list[bytes] = []
    events: list[Event] = []
    findings = list(_check_payloads(store, log, contents, (payloads, events)))
    if findings or not intact:
        return findings
    error = store.sealing.open_text(log.record.error)
    note = store.sealing.open_text(log.record.note)
    record = replace(log.record, error=error, note=note)
    # The payloads are sound, so the row, the uses of large values and the questions can be compared with them.
    findings = [*_check_record(record, events), *_check_blobs(log, payloads, contents)]
    if not log.altered:
        findings += _check_beginning(record, events)
    findings = findings or [*violations(events), *_check_questions(log, events)]
    return findings or ([] if fold is None else list(_check_fold(events, fold)))


def _first_of_each_event(findings: Sequence[Finding]) -> list[Finding]:
    """Return the first fault of each event in `findings` (pairs of event number and text), and all faults without an
    event number.

    Later findings of an event have the same cause as the first.
    """
    of_events: dict[int, Finding] = {}
    for sequence, text in findings:
        if sequence is not None:
            of_events.setdefault(sequence, (sequence, text))
    return [*of_events.values(), *(finding for finding in findings if finding[0] is None)]


def _by_sequence(finding: Finding) -> int:
    return finding[0] or 0


def _check_rows(log: StoredLog) -> Iterator[Finding]:
    """Yield a fault (event number and text) for each record of a log that is missing, changed or in the wrong position.

    A checksum continues from the preceding one. If a record does not match, either it or the preceding checksum was
    changed. Two candidates for the preceding checksum therefore remain: the stored one, and the one that the content of
    the preceding record gives. For example, the stored checksum of record 2 was changed. Record 2 does not match it and
    is reported; record 3 matches the checksum computed from record 2, so it is intact.
    """
    expected = 1
    row_last_sequence = log.record.last_sequence
    checksums_before: set[int | None] = {0}
    is_sound = True
    text = _fault_of_first_event(log)
    if text is not None:
        yield 1, text
    for record in log.records:
        if is_sound and record.sequence < expected:
            yield record.sequence, f"event {record.sequence} occurs twice"
            continue
        if is_sound and record.sequence > expected:
            yield expected, f"{_range_of(expected, record.sequence - 1)} missing"
        is_in_place = record.sequence == expected or not is_sound  # the end of a damaged record is unknown
        expected_checksums = {record.checksum_after(checksum or 0) for checksum in checksums_before}
        # Events of old versions have no checksum. They can only be the first ones of a log.
        unchecked = record.checksum is None and checksums_before <= {0, None}
        is_sound = not is_in_place or unchecked or record.checksum in expected_checksums
        if not is_sound:
            yield record.sequence, f"{_name_of(record)} not match its checksum"
        if unchecked:
            checksums_before = {None}
        else:
            # The next record may continue from the stored checksum, or from the one that this record's content gives.
            checksums_before = {record.checksum}
            if is_in_place:
                checksums_before |= expected_checksums
        expected = record.last_sequence + 1
        # The execution's row repeats the checksum of the record that was the last one when the row was written.
        is_last_of_row = expected == row_last_sequence + 1
        is_old_log = checksums_before == {None} and not log.checksum  # neither events nor row have checksums
        if is_last_of_row and log.checksum not in checksums_before and not is_old_log:
            yield record.sequence, f"{_name_of(record)} not match the last checksum in the record of the execution"
    yield from _check_end(log, expected)


def _fault_of_first_event(log: StoredLog) -> str | None:
    """Return a description of the fault if the first event of a log is not the one with which the execution began, for
    example because it belongs to another execution. Otherwise return None.

    Checksums do not reveal it, since the chain of every log begins with 0.
    """
    began = to_microseconds(log.record.created_at)
    first = log.records[0] if log.records else None
    # A fork's row has the time of the fork, which is not that of event 1.
    if first is None or first.sequence != 1 or log.altered or log.record.opened > 1 or first.recorded_at == began:
        return None
    return "event 1 was not recorded when the execution started: it was changed, or it belongs to another execution"


def _check_end(log: StoredLog, expected: int) -> Iterator[Finding]:
    last = log.record.last_sequence
    if log.broken is not None:
        yield expected, f"{_range_of(expected, max(last, expected))} unreadable: {log.broken}"
    elif last >= expected:
        yield expected, f"{_range_of(expected, last)} missing"
    # Only the row of an ended execution is certain to state the end of the log
    # (`divebook.stores.sqlite.log_reader.LogEnd`).
    elif last < expected - 1 and log.record.ended_at is not None:
        yield last + 1, f"the record says that event {last} is the last, but {_range_of(last + 1, expected - 1)} there"


def _range_of(first: int, last: int) -> str:
    return f"event {first} is" if first >= last else f"events {first} to {last} are"


def _name_of(record: StoredRecord) -> str:
    first = record.sequence
    last = record.last_sequence
    return f"event {first} does" if first == last else f"the record of events {first} to {last} does"


def _check_payloads(
    store: EventStore, log: StoredLog, contents: _Contents, results: tuple[list[bytes], list[Event]]
) -> Iterator[Finding]:
    """Decode all payloads of a log. Append the payloads and their events to the two lists in `results`, and yield a
    fault (event number and text) for each record that cannot be read.
    """
    payloads, events = results
    for record in log.records:
        try:
            payload = store.sealing.open_packed(record.payload)
            payloads.append(payload)
            events += record.record(log.record.execution_id, embed(payload, contents.fetch)).events()
        # The last three: valid JSON that does not have the form of the payload.
        except (CorruptStoreError, NewerStoreError, TypeError, AttributeError, ValueError) as error:
            yield record.sequence, f"event {record.sequence} cannot be read: {error}"


def _check_record(record: ExecutionRecord, events: Sequence[Event]) -> Iterator[Finding]:
    """Yield a description of the fault if the status, end time or error in an execution's row differs from that of its
    events.
    """
    all_changes = [status_change_of(event.data, event.recorded_at) for event in events]
    changes = [status_change for status_change in all_changes if status_change is not None]
    if not changes:
        yield None, "the log does not begin with execution_started"
        return
    ended_at = None if record.ended_at is None else to_microseconds(record.ended_at)
    by_row = StatusColumns(record.status, ended_at, record.error)
    if changes[-1].status == RUNNING and record.status == WAITING:  # the events do not distinguish them
        by_row = replace(by_row, status=RUNNING)
    for name in ("status", "ended_at", "error"):
        yield from _compare(name, getattr(by_row, name), getattr(changes[-1], name))


def _check_beginning(record: ExecutionRecord, events: Sequence[Event]) -> Iterator[Finding]:
    """Yield a description of each difference between an execution's row and the event that opened its log, with later
    annotations.
    """
    if not isinstance(events[0].data, ExecutionStarted):
        return
    # A fork has the opening event of its source, which it shares, and its own, which is newer and counts.
    openings = (event for event in reversed(events) if isinstance(event.data, ExecutionStarted | ExecutionForked))
    newest: Any = next(openings)
    annotations = (event.data for event in events[newest.sequence :] if isinstance(event.data, ExecutionAnnotated))
    beginning = Beginning.of(newest.data, newest.sequence).annotated(annotations)
    for name, by_events in beginning._asdict().items():
        if name != "tags":  # in older versions, tags could change without an event
            yield from _compare(name, getattr(record, name), by_events)


def _compare(name: str, by_record: object, by_events: object) -> Iterator[Finding]:
    if by_record != by_events:
        yield None, f"the record says {name} {by_record!r}, the events say {by_events!r}"


def _check_blobs(log: StoredLog, payloads: Sequence[bytes], contents: _Contents) -> Iterator[Finding]:
    """Yield a fault (number None, and text) for each large value of a log that the store does not list as used by the
    log. Also yield one if the execution's row states a wrong size of the log.

    Files of a log that was imported from a page or a notebook are absent, which is not a fault.
    """
    used: set[bytes] = set()
    absent_files: set[bytes] = set()
    unshared_sizes: dict[bytes, int] = {}
    for stored, payload in zip(log.records, payloads, strict=True):
        sizes = contents.reached(payload)
        used |= sizes.keys()
        absent_files |= contents.absent_files(payload)
        # The size of a fork does not include what it shares.
        if stored.sequence > log.shared:
            unshared_sizes |= sizes
    for digest in used - log.blobs - log.shared_blobs - absent_files:
        yield None, f"the large value {digest.hex()[:12]}... is in use, but not listed as used, so gc would delete it"
    # A row that states an earlier end also states the size up to there.
    counted = [record for record in log.records if log.shared < record.sequence <= log.record.last_sequence]
    # The heir of a deleted log that could not be read has all values of that log, whether or not its events use them.
    unshared_sizes |= {digest: contents.size(digest) for digest in log.blobs}
    size = sum(len(record.payload) for record in counted) + sum(unshared_sizes.values())
    if size != log.record.size:
        yield None, f"the record says {log.record.size} bytes, but the events have {size} bytes"


def _check_questions(log: StoredLog, events: Sequence[Event]) -> Iterator[Finding]:
    """Compare the open questions that the store lists with those that the events of the log leave open. Yield a fault
    for each question that is in only one of the two lists.
    """
    states: dict[str, bool] = {}
    for event in events:
        note_questions(states, event.data)
    open_questions = {question for question, is_open in states.items() if is_open}
    for question in sorted(open_questions ^ log.questions):
        listed, actual = ("open", "settled") if question in log.questions else ("settled", "open")
        yield None, f"question {question} is listed as {listed}, but is {actual} according to the events"


def _check_fold(events: Sequence[Event], fold: Fold) -> Iterator[Finding]:
    try:
        fold(events)
    except DivebookError as error:
        yield None, f"its state cannot be rebuilt: {error}"


# --- deletion ---


@dataclass(frozen=True, slots=True)
class GcReport:
    """Numbers of executions, events, blobs and checkpoints that `gc` deleted, or would delete in a dry run."""

    dry_run: bool
    executions: tuple[ExecutionRecord, ...]
    events: int
    blobs: int
    blob_bytes: int
    """Size of the deleted blobs on disk in bytes. The file does not shrink, but reuses the space."""
    checkpoints: int
    """Number of ended executions that are kept, and whose checkpoints were deleted."""


def gc(
    store: EventStore,
    *,
    older_than: DurationLike | None = None,
    keep_last: int | None = None,
    statuses: Collection[str] = TERMINAL,
    dry_run: bool = False,
    now: int | None = None,
) -> GcReport:
    """Delete ended executions that are old or exceed a number. Then delete unused large values and the checkpoints of
    ended executions.

    Without `older_than` and `keep_last`, no execution is deleted. Executions that have not ended, or that a process is
    resuming, stay.

    Parameters
    ----------
    older_than
        Keep executions that ended more recently: seconds, a timedelta, or a string such as ``30d``.
    keep_last
        Keep this number of ended executions of each workflow, counted from the newest.
    statuses
        Keep executions with another status.
    now
        Microseconds since 1970; the present by default.
    """
    age = None if older_than is None else timedelta(seconds=float(seconds_of(older_than, "older_than")))
    _check_options(age, keep_last, statuses)
    moment = to_datetime(time.time_ns() // 1000 if now is None else now)
    unwanted = [] if age is None and keep_last is None else list(_expired(store, keep_last, statuses))
    if age is not None:
        unwanted = [record for record in unwanted if _ended_at(record) < moment - age]
    # This check is for a dry run. `discard` checks the leases again in its transaction, since a process may take one
    # meanwhile. It also compares the last event: an execution that was resumed and has ended again is not old
    # (test_a_run_that_is_resumed_and_ends_again_during_a_deletion_is_kept).
    driven = {lease.execution_id for lease in store.live_leases(now)}
    unwanted = [record for record in unwanted if record.execution_id not in driven]
    if not dry_run:
        discarded = set(store.discard({record.execution_id: record.last_sequence for record in unwanted}, now))
        unwanted = [record for record in unwanted if record.execution_id in discarded]
    return _finish(store, unwanted, dry_run=dry_run)


def _check_options(older_than: timedelta | None, keep_last: int | None, statuses: Collection[str]) -> None:
    for status in statuses:
        if status not in TERMINAL:
            raise unknown_status(status, TERMINAL, f"only executions that have ended can be deleted, not {status!r}")
    if keep_last is not None and keep_last < 0:
        raise ValueError(f"keep_last must not be negative, got {keep_last}")
    if older_than is not None and older_than < timedelta(0):
        raise ValueError(f"older_than must not be negative, got {older_than}")


def _expired(store: EventStore, keep_last: int | None, statuses: Collection[str]) -> Iterator[ExecutionRecord]:
    counts: Counter[str] = Counter()
    for record in store.records():  # newest first
        if record.status not in TERMINAL:
            continue
        # All ended executions of the workflow count, also those with a status to keep.
        counts[record.workflow_name] += 1
        if record.status in statuses and counts[record.workflow_name] > (keep_last or 0):
            yield record


def _ended_at(record: ExecutionRecord) -> datetime:
    return record.ended_at or record.created_at


def _finish(store: EventStore, deleted: list[ExecutionRecord], *, dry_run: bool) -> GcReport:
    ids = {record.execution_id for record in deleted}
    ended = {record.execution_id for record in store.records() if record.status in TERMINAL} - ids
    checkpoints = [execution_id for execution_id in store.checkpoints() if execution_id in ended]
    # The executions count as deleted, so that a dry run gives the same numbers.
    orphans = [blob for blob in store.blobs(ids) if not blob.used]
    if not dry_run:
        store.drop_checkpoints(checkpoints)
        store.drop_blobs()
    size = sum(blob.stored for blob in orphans)
    events = sum(record.last_sequence for record in deleted)
    return GcReport(dry_run, tuple(deleted), events, len(orphans), size, len(checkpoints))


# --- contents of files that a log names ---


def file_content(store: EventStore, digest: str) -> bytes:
    """Return the content of a workspace file from the store, by the file's SHA-256 (hexadecimal).

    Raises
    ------
    CorruptStoreError
        The content is missing, or does not match its hash.
    DecryptionError
        The content was encrypted with another key, or the key is missing.
    """
    digest_bytes = bytes.fromhex(digest)
    content = store.sealing.open_content(digest_bytes, store.blob(digest_bytes))
    if content is None:
        raise CorruptStoreError(f"the content of a file, {digest[:12]}..., is missing in the store")
    return content
