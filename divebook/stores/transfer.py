"""Export of an execution to a file, import of a file into a store, and copies of whole stores.

A file has JSON lines (`divebook.stores.embedded`). An import is whole or changes nothing. An execution that has not
ended is imported as a read-only snapshot; otherwise two stores would continue it, and repeat its calls. An execution
that moves from one store to another is exported by `divebook.runtime.queueing`.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from io import BytesIO
from itertools import takewhile
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO

from divebook.documents.private_files import replacement
from divebook.engine.evolve import fold
from divebook.engine.inbox import Message
from divebook.engine.lifecycle import FINAL, STATUS_AFTER, TERMINAL, WAY_ON
from divebook.engine.state import ExecutionState
from divebook.errors import (
    ConcurrentAppendError,
    CorruptStoreError,
    DecryptionError,
    ExecutionNotFoundError,
    InvalidEventError,
    NewerStoreError,
    SetupError,
    StoreError,
)
from divebook.events.catalog import (
    FORK,
    IMPORT,
    MOVED,
    RUNNING,
    SNAPSHOT,
    WAITING,
    ApprovalRuleRevoked,
    ExecutionAnnotated,
    ExecutionForked,
    ExecutionMoved,
    ExecutionSnapshotted,
    ExecutionStarted,
    InterruptExpired,
    InterruptResolved,
    SignalReceived,
)
from divebook.events.event import Event, Record, to_microseconds, type_id
from divebook.events.values import StoredFile
from divebook.report.hints import advised
from divebook.stores.append import Batch, ExecutionRecord, records_of
from divebook.stores.base import EventStore
from divebook.stores.embedded import GetFile, LineWriter, LogFile, may_embed_log, read_embedded, read_sound_lines
from divebook.stores.leases import Lease, Owner
from divebook.stores.maintenance import file_content
from divebook.text.format import plural

PAGE = 1000
DAMAGED = "damaged"
FACTS_OF_MESSAGES = (InterruptResolved, InterruptExpired, SignalReceived, ApprovalRuleRevoked, ExecutionAnnotated)
"""Classes of facts that are created from a message and contain the message's number."""


@dataclass(frozen=True, slots=True)
class CopyReport:
    """Numbers of executions, events and messages that `copy` copied to another store."""

    executions: int
    """Number of executions that were copied."""
    already: int
    """Number of executions that the target already had in equal form."""
    events: int
    messages: int
    unended: int
    """Number of executions that have not ended and could therefore continue in either store."""


# --- writing -------------------------------------------------------------------------------------------------------


def export(store: EventStore, execution_id: str, file: str | Path | BinaryIO, *, overwrite: bool = False) -> int:
    """Write the log of an execution to a file or stream as JSON lines; return the number of events.

    Parameters
    ----------
    overwrite
        Replace an existing file, when the new one is complete.

    Raises
    ------
    CorruptStoreError, NewerStoreError
        An event cannot be read. No file is written; `export_sound` writes the events before it.
    StoreError
        The file exists, or cannot be written.
    """
    # Events appended during the export are left out, so that the end line fits the record that was read first.
    record = store.record(execution_id)
    with writing(file, overwrite=overwrite, get_file=_files_of(store)) as lines:
        for page in _events(store, execution_id, record.last_sequence):
            lines.events(page)
        lines.end(record.status)
    return lines.count


def export_sound(
    store: EventStore, execution_id: str, file: str | Path | BinaryIO, *, overwrite: bool = False
) -> tuple[int, StoreError | None]:
    """Export the events of a log that precede the first damaged event. Return their number and the error of the damaged
    event, or None if the log is intact.
    """
    events, damage = store.read_sound(execution_id)
    if damage is None:
        return export(store, execution_id, file, overwrite=overwrite), None
    if not events:
        raise damage
    with writing(file, overwrite=overwrite, get_file=_files_of(store)) as lines:
        lines.events(events)
        lines.end(DAMAGED, damage=str(damage))
    return lines.count, damage


def _events(store: EventStore, execution_id: str, last: int) -> Iterator[list[Event]]:
    count = 0
    while count < last:
        page = store.read(execution_id, count, min(PAGE, last - count))
        yield page
        count = page[-1].sequence


@contextmanager
def writing(
    file: str | Path | BinaryIO, *, overwrite: bool = False, get_file: GetFile = lambda _: None
) -> Iterator[LineWriter]:
    """Yield a `LineWriter`, which writes the lines of an exported log to a stream or a file.

    A file appears under its name, complete and on disk, only if the block succeeds.
    """
    if not isinstance(file, str | Path):
        yield LineWriter(file, get_file)
        return
    with new_file(file, overwrite=overwrite) as stream:
        yield LineWriter(stream, get_file)


def _files_of(store: EventStore) -> GetFile:
    """Return a function that reads workspace files from a store. It returns the content of a file by its hash, or None
    if the content is missing or damaged.
    """

    def get_file(digest: str) -> bytes | None:
        try:
            return file_content(store, digest)
        except CorruptStoreError:
            return None

    return get_file


@contextmanager
def new_file(file: str | Path, *, overwrite: bool = False) -> Iterator[BinaryIO]:
    """Yield a stream to a new file. The file appears under its name only if the `with` block succeeds; it is then
    complete and on disk.

    Raises
    ------
    StoreError
        The file exists, or cannot be written.
    """
    check_path(file)
    path = Path(file)
    if not overwrite and path.exists():
        raise StoreError(f"{file} exists already; name another file, or overwrite it (--force, or overwrite=True)")
    try:
        with replacement(path, is_durable=True) as stream:
            yield stream
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}; name another file") from error


def flush(stream: BinaryIO) -> None:
    """Write the buffered data of a file, and wait until they are on disk."""
    stream.flush()
    os.fsync(stream.fileno())


# --- reading -------------------------------------------------------------------------------------------------------


def read(file: str | Path | BinaryIO) -> LogFile:
    """Read an exported file, check all of it, and return the execution that it contains.

    The file may also be a page or a notebook with an embedded log (``run.html``, ``run.ipynb``).

    Raises
    ------
    InvalidEventError, NewerStoreError
        The file is damaged. The error names the file, the line and the fault.
    """
    log, damage = _read(file, whole=True)
    if damage is not None:
        raise damage
    return log


def read_sound(file: str | Path | BinaryIO) -> tuple[LogFile, InvalidEventError | NewerStoreError | None]:
    """Return the events of an exported file before the first invalid line, and the error of this line, or None if the
    file is intact.
    """
    return _read(file, whole=False)


def _read(file: str | Path | BinaryIO, *, whole: bool) -> tuple[LogFile, InvalidEventError | NewerStoreError | None]:
    if may_embed_log(file):
        check_path(file)
        return read_embedded(Path(file), whole=whole)
    with _open_stream(file) as stream:
        return read_sound_lines(stream, _name(stream))


@contextmanager
def _open_stream(file: str | Path | BinaryIO) -> Iterator[BinaryIO]:
    if not isinstance(file, str | Path):
        yield file
        return
    check_path(file)
    try:
        with Path(file).open("rb") as stream:
            yield stream
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}; name another file") from error


def check_path(file: str | Path) -> None:
    """Raise StoreError if a string cannot be the path of a file."""
    try:
        is_path = b"\0" not in os.fsencode(file)
    except UnicodeEncodeError:
        is_path = False
    if not is_path:
        raise StoreError(
            f"{str(file)!r} cannot be the path of a file; use a path without NUL characters and halves "
            "of surrogate pairs"
        )


def _name(stream: BinaryIO) -> str:
    return str(getattr(stream, "name", "<stream>"))


def import_(
    file: str | Path | BinaryIO | LogFile,
    store: EventStore | Callable[[], EventStore],
    *,
    rename: bool = False,
    as_fork: bool = False,
) -> str:
    """Import the execution in an exported file into a store, and return the id that the execution has there.

    The file is checked first, and its log is imported whole or not at all. An execution that had ended is imported
    unchanged. One that had not ended becomes a read-only snapshot, unless it was exported to move
    (`divebook export --move`) or becomes a fork.

    Parameters
    ----------
    store
        A store, or a function that opens it, which is called after the check of the file.
    rename
        Give the execution and each of its events a new id, so that the original may be in the store as well.
    as_fork
        Create a fork with a new id, which continues after the last event of the file.

    Raises
    ------
    InvalidEventError
        The file is damaged. The error names the file, the line and the fault.
    StoreError
        The store has an execution with that id, or an execution that moves here has arrived before.
    """
    # The file is checked before the store is opened: opening can create a store, which a damaged file should not do.
    log = file if isinstance(file, LogFile) else read(file)
    batch = _import_batch(log, rename=rename, as_fork=as_fork)
    store = store if isinstance(store, EventStore) else store()
    if log.is_moved:
        _refuse_second_arrival(store, log, as_fork=as_fork)
    try:
        (refusal,) = store.append_all([batch])
        if refusal is not None:
            raise refusal
    except ConcurrentAppendError as error:
        raise StoreError(
            f"{store.location} already holds execution {batch.execution_id}; import it with --rename (in Python: "
            "rename=True) to give it a new id, or delete the existing execution"
        ) from error
    return batch.execution_id


def _refuse_second_arrival(store: EventStore, log: LogFile, *, as_fork: bool) -> None:
    """Raise StoreError if a file moves an execution to a store that already has this execution, or a fork imported from
    such a file. Two executions would then continue from the same events.
    """
    execution_id = log.events[0].execution_id
    try:
        status = store.record(execution_id).status
    except ExecutionNotFoundError:
        copies = [] if as_fork else store.records(parent=execution_id, origin=FORK, limit=1)
        if copies:
            raise StoreError(
                f"execution {execution_id} in {log.name} cannot move to {store.location}, which contains execution "
                f"{copies[0].execution_id}. That execution was created from the same file, so both would continue. "
                "Use that execution, or delete it and import the file again"
            ) from None
        return
    if status == MOVED and as_fork:
        return  # it left this store, and a fork of it stays
    way_on = (
        "the execution has moved away from this store; delete it in this store, and import the file again"
        if status == MOVED
        else f"continue the existing execution ({advised(f'show {execution_id}', f'divebook.show({execution_id!r})')})"
    )
    raise StoreError(
        f"execution {execution_id} in {log.name} cannot move to {store.location}, which already contains it with "
        f"status {status}: an execution can continue in only one place. Nothing was imported; {way_on}"
    )


def status_of(events: list[Event]) -> str:
    """Return the status of an execution according to its events. No event states that an execution waits, so an
    execution that waits counts as running.
    """
    statuses = [STATUS_AFTER[type(event.data)] for event in events if type(event.data) in STATUS_AFTER]
    return statuses[-1] if statuses else RUNNING


def is_snapshot(log: LogFile) -> bool:
    """Return True if an import of the log creates a read-only snapshot. This is the case if the execution had not ended
    and the file does not move it to the importing store.
    """
    return not log.is_moved and status_of(log.events) not in TERMINAL


def caveats(log: LogFile, *, as_fork: bool = False) -> list[str]:
    """Return warnings about an exported log for the person who imports it, for example that it has no hashes."""
    texts = []
    if not log.is_verified:
        texts.append(
            "the file has no hashes, like exports of older versions and other systems, so it is unknown whether it "
            "is complete"
        )
    if log.damage is not None:
        texts.append(f"the file has only the intact beginning of a damaged log: {log.damage}")
    if is_snapshot(log) and not as_fork:
        status = log.status or "its log has no end"
        texts.append(
            f"the execution had not ended ({status}), and this read-only snapshot of it cannot continue; "
            f"{WAY_ON[SNAPSHOT]}"
        )
    return texts


def _import_batch(log: LogFile, *, rename: bool, as_fork: bool) -> Batch:
    """Return the batch whose append imports a log into a store.

    Facts of messages keep their numbers only in a log that nothing can follow. A log that can continue gets the status
    that its state determines.
    """
    # Under a new id, a second import of the file could continue the execution twice.
    if log.is_moved and rename and not as_fork:
        raise SetupError(
            f"{log.name} was exported with --move, so its execution keeps its id; import the file without --rename, "
            "or with --as-fork as a separate execution"
        )
    events = log.events
    if as_fork:
        events = _as_fork(events)
    elif log.is_moved:
        events = _before_move(events)
    elif is_snapshot(log):
        events = _as_snapshot(log)
    if rename and not as_fork:
        events = _with_new_ids(events)
    # Nothing follows a final status but annotations, so the numbers of messages have no effect here.
    status = status_of(events)
    if status in FINAL:
        return Batch(events[0].execution_id, 0, records_of(events))
    events = [_without_message_number(event) for event in events]
    # A failed or cancelled execution does not wait for anything.
    if status in TERMINAL:
        return Batch(events[0].execution_id, 0, records_of(events))
    # An execution that continues here gets the status and the timer that its events lead to.
    state = _fold(log, events)
    return Batch(state.execution_id, 0, records_of(events), status=state.status, wake_at=state.wake_at)


def _fold(log: LogFile, events: list[Event]) -> ExecutionState:
    try:
        return fold(events[0].execution_id, events)
    except CorruptStoreError as error:
        raise InvalidEventError(
            f"{log.name} cannot continue: its state cannot be rebuilt: {error}. Import it without --as-fork, as a "
            "read-only snapshot"
        ) from error


def _before_move(events: list[Event]) -> list[Event]:
    """Return the events of a log up to, but without, the event which records that the execution moved to another store
    or was imported as a snapshot.
    """
    return [*takewhile(lambda event: not isinstance(event.data, ExecutionMoved | ExecutionSnapshotted), events)]


def _as_snapshot(log: LogFile) -> list[Event]:
    last = log.events[-1]
    end = ExecutionSnapshotted(log.status or status_of(log.events))
    closing = replace(last, id=_event_id(last), sequence=last.sequence + 1, data=end, path="", step="")
    # The start key stays with the original (test_a_start_key_stays_with_the_original).
    return [*_with_beginning(log.events, replace(_beginning(log.events), origin=IMPORT, key=None)), closing]


def _without_message_number(event: Event) -> Event:
    """Return a copy of an event that was caused by a message, without the number that the message had in the original
    store. Other events are returned unchanged.

    Numbers of messages in this store may be lower. The log would count these messages as taken already.
    """
    if isinstance(event.data, FACTS_OF_MESSAGES) and event.data.message is not None:
        return replace(event, data=replace(event.data, message=None))
    return event


def _as_fork(events: list[Event]) -> list[Event]:
    """Return the events of a log as the first events of a new execution, a fork that continues after the last event."""
    beginning = replace(_beginning(events), origin=FORK, parent=events[0].execution_id)
    return _with_new_ids(_with_beginning(_before_move(events), beginning))


def _with_new_ids(events: list[Event]) -> list[Event]:
    """Return a copy of the events of a log, with a new execution id and new event ids.

    Ids of questions do not change. In logs without a seed they are derived from the old id, which becomes the seed.
    """
    # Every id has 74 random bits (`divebook.events.event.type_id`).
    execution_id = type_id("exec", time.time_ns() // 1_000_000, secrets.randbits(74))
    beginning = replace(_beginning(events), seed=_beginning(events).seed or events[0].execution_id, key=None)
    renamed = [
        replace(event, id=_event_id(event), execution_id=execution_id) for event in _with_beginning(events, beginning)
    ]
    return [
        replace(event, data=replace(event.data, key=None)) if isinstance(event.data, ExecutionForked) else event
        for event in renamed
    ]


def _beginning(events: list[Event]) -> ExecutionStarted:
    data = events[0].data
    if not isinstance(data, ExecutionStarted):
        raise InvalidEventError(f"a log must begin with execution_started, got {data.event_type}")
    return data


def _with_beginning(events: list[Event], beginning: ExecutionStarted) -> list[Event]:
    """Return the events of a log, with the payload `beginning` in place of that of the first event."""
    return [replace(events[0], data=beginning), *events[1:]]


def _event_id(event: Event) -> str:
    return type_id("event", event.recorded_at // 1000, secrets.randbits(74))


# --- copies of stores ---
# `copy` copies all executions and messages to a store of any kind. It reads each copied log again, and compares a hash
# of every event, file and status. If it was interrupted, the same call continues it: equal logs stay, and a log whose
# beginning was copied continues from there. Such a log has a lease until it is complete, so that no process resumes it.


EVENTS_PER_BATCH = 500
"""Number of events that `copy` writes in one batch."""
COPY_HOST = "an unfinished copy, which the same `divebook copy` ends"
"""Host of the owner of an incompletely copied log, in place of the name of a machine.

A lease of this process would end with it, and the incomplete log would look like an execution whose driver has died
(test_a_copy_that_broke_off_amid_a_log_goes_on_there_and_nobody_takes_it_up_before).
"""
COPY_LEASE_SECONDS = 366 * 86400.0
"""Duration in seconds of the lease of an incompletely copied log."""


def copy(source: EventStore, target: EventStore, on_copied: Callable[[str], object] = lambda _: None) -> CopyReport:
    """Copy all executions and messages of a store to another store, and compare the logs in both afterwards.

    Checkpoints and summaries are not copied, since stores create them again. An execution that has not ended could
    continue in both stores: use only one of them.

    Parameters
    ----------
    on_copied
        Function that is called with the id of each copied execution.

    Raises
    ------
    StoreError
        An execution is being driven. Or the target store has a different execution with the same id, or has other
        messages.
    CorruptStoreError
        An execution or a message to it cannot be read, or its copy differs. The error names the execution.
    DecryptionError
        An execution or a message to it was encrypted with another key, or the key is missing.
    """
    _refuse_driven(source)
    copied = 0
    already = 0
    events = 0
    records = [source.record(name) for name in reversed(source.ids())]  # a fork comes after what it forks
    for record in records:
        copied_length = _copied_length(source, target, record)
        if copied_length == record.last_sequence:
            already += 1
        else:
            _copy_log(source, target, record, copied_length)
            copied += 1
            events += record.last_sequence - copied_length
        _compare(source, target, record)
        on_copied(record.execution_id)
    # Messages come after the logs, since a message needs its execution.
    messages = _copy_messages(source, target, [record.execution_id for record in records])
    # Workers set this mark where a person is needed, without an event. An execution that has continued in the target
    # lacks it there.
    for queued in source.queued(withheld=True):
        name = queued.execution_id
        if target.record(name).last_sequence == source.record(name).last_sequence:
            target.withhold(name)
    return CopyReport(copied, already, events, messages, sum(record.status not in TERMINAL for record in records))


def _refuse_driven(source: EventStore) -> None:
    leases = source.live_leases()
    if leases:
        first = leases[0]
        owner = first.owner
        raise StoreError(
            f"{plural(len(leases), 'execution')} of {source.location} {'is' if len(leases) == 1 else 'are'} still "
            f"running: execution {first.execution_id} is driven by {owner.name} (process {owner.pid} on {owner.host}). "
            "Pause or end the running executions, then copy the store"
        )


def _contains(store: EventStore, execution_id: str) -> bool:
    try:
        store.record(execution_id)
    except ExecutionNotFoundError:
        return False
    return True


def _copied_length(source: EventStore, target: EventStore, record: ExecutionRecord) -> int:
    """Return the number of events at the beginning of an execution's log that the target store already has.

    If the target has a different log with that id, return the whole length: `_compare` then reports the difference.
    """
    execution_id = record.execution_id
    last = target.record(execution_id).last_sequence if _contains(target, execution_id) else 0
    copied_length = 0
    while copied_length < min(last, record.last_sequence):
        page_end = min(copied_length + EVENTS_PER_BATCH, last)
        source_ends = _ends_of_records(source, execution_id, copied_length, page_end)
        target_ends = _ends_of_records(target, execution_id, copied_length, page_end)
        # Ids of records are unique, so equal ids and ends mean equal records. `_compare` verifies the contents.
        _, last_of_page = source_ends[-1]
        if source_ends != target_ends or last_of_page > last:
            return record.last_sequence
        copied_length = last_of_page
    return copied_length


def _ends_of_records(store: EventStore, execution_id: str, after: int, last: int) -> list[tuple[str, int]]:
    """Return the id and the last sequence number of each record of a log that contains events above `after` up to
    `last`.
    """
    return [(record.id, record.last_sequence) for record in store.read_records(execution_id, after, last)]


def _copy_log(source: EventStore, target: EventStore, record: ExecutionRecord, copied_length: int) -> None:
    """Copy the events of a log after event `copied_length` to the target store. There the log is leased until it is
    complete, so that no process continues it.
    """
    execution_id = record.execution_id
    # A new log gets its lease after its first batch, which lets it wait without a timer (`_batches`).
    lease = _acquire_copy_lease(target, execution_id) if copied_length else None
    shared = None if copied_length else _shared_in(source, target, record)
    for batch in _batches(source, record, shared, copied_length):
        (refusal,) = target.append_all([batch if lease is None else replace(batch, token=lease.token)])
        if refusal is not None:
            raise refusal
        if batch.last_sequence < record.last_sequence:
            # For each batch: an event that ended the execution, until it was resumed, releases the lease.
            lease = _acquire_copy_lease(target, execution_id)
    if lease is not None:
        target.release(lease)


def _acquire_copy_lease(target: EventStore, execution_id: str) -> Lease:
    """Acquire the lease of a log that is copied but not complete yet, even if an earlier, interrupted copy holds the
    lease.
    """
    lease = target.lease_of(execution_id)
    is_of_copy = lease is not None and lease.owner.host == COPY_HOST
    owner = Owner(COPY_HOST, os.getpid(), 0, "divebook copy")
    return target.acquire(execution_id, owner, COPY_LEASE_SECONDS, instead_of=lease if is_of_copy else None)


def _shared_in(source: EventStore, target: EventStore, record: ExecutionRecord) -> tuple[str, int] | None:
    """Return the execution in the target store with which a copied fork can share its first events, and the number of
    these events. Return None if it can share none.

    Logs share whole records. A fork at an event inside a record of its source has its own copy of the beginning of that
    record, and shares only the records before it (`divebook.runtime.forks.first_batch`).
    """
    # An execution that is not a fork has its only opening at event 1.
    if record.opened < 2:
        return None
    opening = source.facts(record.execution_id, [record.opened])[record.opened]
    if not isinstance(opening, ExecutionForked) or not _contains(target, opening.source):
        return None
    last = record.opened - 1
    # The search goes back record by record, until both logs have the end of the same record.
    while last:
        record_of_fork = source.read_records(record.execution_id, last - 1, last)[0]
        # The source is compared in the target store, where the copy of the fork shares its rows.
        records_of_source = target.read_records(opening.source, last - 1, last)
        ends_of_source = [(other.id, other.last_sequence) for other in records_of_source]
        if ends_of_source == [(record_of_fork.id, last)] and record_of_fork.last_sequence == last:
            return opening.source, last
        last = record_of_fork.sequence - 1
    return None


def _batches(
    source: EventStore, record: ExecutionRecord, shared: tuple[str, int] | None, copied_length: int
) -> Iterator[Batch]:
    """Yield the batches that copy the events of a log after event `copied_length`. `shared` is the result of
    `_shared_in`: the target store already has these first events of a fork, so that they are not copied.
    """
    source_of_fork: str | None = None
    if shared is not None:
        source_of_fork, copied_length = shared
    while copied_length < record.last_sequence:
        records = source.read_records(
            record.execution_id, copied_length, min(copied_length + EVENTS_PER_BATCH, record.last_sequence)
        )
        for record_to_fill in records:
            _add_file_contents(source, record_to_fill)
        is_last = records[-1].last_sequence >= record.last_sequence
        settings: dict[str, Any] = {"durability": record.durability, "taken": record.taken if is_last else 0}
        if not is_last:
            settings["status"] = WAITING  # an incomplete log has no timer and no answers, so that it does not continue
        elif record.status not in TERMINAL:
            wake_at = record.wake_at
            settings |= {"status": record.status, "wake_at": None if wake_at is None else to_microseconds(wake_at)}
        # Only the first batch of a fork names the source.
        yield Batch(record.execution_id, copied_length, records, source=source_of_fork, **settings)
        copied_length = records[-1].last_sequence
        source_of_fork = None


def _add_file_contents(source: EventStore, record: Record) -> None:
    """Load the contents of the files that a record refers to from the store, to write them with the record."""
    for fact in record.facts:
        for file in StoredFile.all_in(fact):
            file.content = file_content(source, file.digest)


def _compare(source: EventStore, target: EventStore, record: ExecutionRecord) -> None:
    execution_id = record.execution_id
    written = target.record(execution_id)
    # Sizes may differ: a fork whose source is missing has its first events in full.
    has_same_row = replace(written, size=0) == replace(record, size=0)
    if not has_same_row or digest(source, execution_id) != digest(target, execution_id):
        raise CorruptStoreError(
            f"execution {execution_id} in {target.location} differs from the one in {source.location}; delete it in "
            f"{target.location} and copy again, or choose an empty store"
        )


def digest(store: EventStore, execution_id: str) -> str:
    """Return a hash of an execution's exported form, which has its events, its status, and the files that the events
    refer to.
    """
    total = _HashStream()
    export(store, execution_id, total)
    return total.hash.hexdigest()


class _HashStream(BytesIO):
    """Writable stream that computes the SHA-256 of the written data without storing the data."""

    def __init__(self) -> None:
        super().__init__()
        self.hash = sha256()

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return len(data)


def _copy_messages(source: EventStore, target: EventStore, execution_ids: Iterable[str]) -> int:
    messages = _messages_to(source, execution_ids)
    addressees = dict.fromkeys(message.execution_id for message in messages)
    # The target may also have messages to other executions.
    used_numbers = {message.number for message in [*_messages_to(target, addressees), *target.new_messages(0)]}
    missing = [message for message in messages if message.number not in used_numbers]
    target.bring(missing)
    copied = {message.number: message for message in _messages_to(target, addressees)}
    # The comparison also finds messages of the target that already had one of the numbers.
    lost = [message for message in messages if copied.get(message.number) != message]
    if lost:
        raise StoreError(_message_mismatch(lost[0], target))
    return len(missing)


def _messages_to(store: EventStore, execution_ids: Iterable[str]) -> list[Message]:
    """Return all messages to the given executions, sorted by number. Raise an error if one of them cannot be read.

    `EventStore.new_messages` leaves such messages out, and a copy would lack them
    (test_a_damaged_message_is_not_left_out_of_a_copy).
    """
    messages: list[Message] = []
    for execution_id in execution_ids:
        try:
            messages += store.inbox(execution_id)
        except ExecutionNotFoundError:
            continue  # it was deleted after its log was copied
        except CorruptStoreError as error:
            raise CorruptStoreError(
                f"{_unreadable_inbox(store, execution_id)}: {error}. Run `{advised('check')}` to see all damage"
            ) from error
        except DecryptionError as error:
            raise DecryptionError(f"{_unreadable_inbox(store, execution_id)}: {error}") from error
    return sorted(messages, key=attrgetter("number"))


def _unreadable_inbox(store: EventStore, execution_id: str) -> str:
    return f"the copy is incomplete, because messages to execution {execution_id} in {store.location} are unreadable"


def _message_mismatch(message: Message, target: EventStore) -> str:
    return (
        f"message {message.number} to execution {message.execution_id} is missing in {target.location}, which has "
        "other messages; choose an empty store"
    )
