"""One execution as a file of JSON lines: written out, and taken in again whole or not at all.

What has not ended comes in as a picture, which nothing can follow: otherwise two stores would go on with one execution,
and make its calls twice. See `divebook.store.embedded` for the lines, `divebook.runtime.queueing` for what moves.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from io import BytesIO
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO

from divebook.engine.evolve import fold
from divebook.engine.inbox import Message
from divebook.engine.lifecycle import FINAL, STATUS_AFTER, TERMINAL, WAY_ON
from divebook.engine.state import ExecutionState
from divebook.errors import (
    ConcurrentAppendError,
    CorruptStoreError,
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
    PICTURE,
    RUNNING,
    WAITING,
    ApprovalRuleRevoked,
    ExecutionAnnotated,
    ExecutionForked,
    ExecutionMoved,
    ExecutionPictured,
    ExecutionStarted,
    InterruptExpired,
    InterruptResolved,
    SignalReceived,
)
from divebook.events.event import Event, Record, to_microseconds, type_id
from divebook.events.values import StoredFile
from divebook.store.append import Batch, ExecutionRecord, records_of
from divebook.store.base import EventStore
from divebook.store.embedded import GetFile, LineWriter, LogFile, is_carrier, read_carried, read_sound_lines
from divebook.store.encoding import opener
from divebook.store.leases import Lease, Owner
from divebook.store.maintenance import file_content
from divebook.text.format import plural

PAGE = 1000
DAMAGED = "damaged"
BROUGHT = (InterruptResolved, InterruptExpired, SignalReceived, ApprovalRuleRevoked, ExecutionAnnotated)
"""Facts that messages may have brought, whose numbers they have then."""


# --- writing -------------------------------------------------------------------------------------------------------


def export(store: EventStore, execution_id: str, file: str | Path | BinaryIO, *, overwrite: bool = False) -> int:
    """Write an execution as JSON lines; return how many events it has.

    Parameters
    ----------
    overwrite
        Put the file in the place of one that is there; it is replaced only once everything has been written.

    Raises
    ------
    CorruptStoreError, NewerStoreError
        An event cannot be read, and no file is left; `export_sound` writes what comes before it.
    StoreError
        There is such a file, or it cannot be written.
    """
    record = store.record(execution_id)
    with writing(file, overwrite=overwrite, get_file=_files_of(store)) as lines:
        for page in _events(store, execution_id, record.last_sequence):
            lines.events(page)
        lines.end(record.status)
    return lines.count


def export_sound(
    store: EventStore, execution_id: str, file: str | Path | BinaryIO, *, overwrite: bool = False
) -> tuple[int, StoreError | None]:
    """Write an execution as far as it can be read; return how many events that is, and what is wrong with the next."""
    sound, damage = store.read_sound(execution_id)
    if damage is None:
        return export(store, execution_id, file, overwrite=overwrite), None
    if not sound:
        raise damage
    with writing(file, overwrite=overwrite, get_file=_files_of(store)) as lines:
        lines.events(sound)
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
    """Write lines to a stream, or to a file that is there, whole and on disk, once the block has ended well."""
    if not isinstance(file, str | Path):
        yield LineWriter(file, get_file)
        return
    with new_file(file, overwrite=overwrite) as stream:
        yield LineWriter(stream, get_file)


def _files_of(store: EventStore) -> GetFile:
    """Return what gives the contents of files that a log names, where its store has them."""

    def found(digest: str) -> bytes | None:
        try:
            return file_content(store, digest)
        except CorruptStoreError:
            return None

    return found


@contextmanager
def new_file(file: str | Path, *, overwrite: bool = False) -> Iterator[BinaryIO]:
    """Write a file that is there, whole and on disk, once the block has ended well.

    Raises
    ------
    StoreError
        There is such a file, or it cannot be written.
    """
    check_path(file)
    if not overwrite and Path(file).exists():
        raise StoreError(f"{file} exists already; name another file, or overwrite it (--force, or overwrite=True)")
    with _replacing(Path(file)) as stream:
        yield stream


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb", opener=opener) as stream:
            yield stream
            flush(stream)
        part.replace(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}; name another file") from error
    finally:
        part.unlink(missing_ok=True)


def flush(stream: BinaryIO) -> None:
    """Return once what was written to a file is on disk."""
    stream.flush()
    os.fsync(stream.fileno())


# --- reading -------------------------------------------------------------------------------------------------------


def read(file: str | Path | BinaryIO) -> LogFile:
    """Return the execution in a file, of JSON lines or one JSON array, once all of it is known to be sound.

    A page or a notebook that carries a log (``run.html``, ``run.ipynb``) is such a file too.

    Raises
    ------
    InvalidEventError, NewerStoreError
        Names the file, the line, and what is wrong there.
    """
    log, damage = _read(file, whole=True)
    if damage is not None:
        raise damage
    return log


def read_sound(file: str | Path | BinaryIO) -> tuple[LogFile, InvalidEventError | NewerStoreError | None]:
    """Return a file as far as it is sound, and what is wrong with the line after that."""
    return _read(file, whole=False)


def _read(file: str | Path | BinaryIO, *, whole: bool) -> tuple[LogFile, InvalidEventError | NewerStoreError | None]:
    if is_carrier(file):
        check_path(file)
        return read_carried(Path(file), whole=whole)
    with _opened(file) as stream:
        return read_sound_lines(stream, _name(stream))


@contextmanager
def _opened(file: str | Path | BinaryIO) -> Iterator[BinaryIO]:
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
    """Raise StoreError if a text can be the path of no file."""
    try:
        is_path = b"\0" not in os.fsencode(file)
    except UnicodeEncodeError:
        is_path = False
    if not is_path:
        raise StoreError(f"{str(file)!r} cannot be the path of a file; name one without NUL and halves of characters")


def _name(stream: BinaryIO) -> str:
    return str(getattr(stream, "name", "<stream>"))


def import_(
    file: str | Path | BinaryIO | LogFile,
    store: EventStore | Callable[[], EventStore],
    *,
    rename: bool = False,
    as_fork: bool = False,
) -> str:
    """Append the execution in a file to a store; return its id.

    Everything is checked first: either the whole log arrives or nothing. What had ended arrives as it is. What had not
    is a picture, which cannot go on, unless it was exported to move (`divebook export --move`) or becomes a fork.

    Parameters
    ----------
    store
        A function that opens one is called once the file is known to be sound.
    rename
        Give the execution, and each of its events, a new id, so that it may stand beside the original.
    as_fork
        Make it an execution of its own, with a new id, that goes on where the file ends.

    Raises
    ------
    InvalidEventError
        Names the file, the line, and what is wrong.
    StoreError
        The store has an execution of that id, or what moves here has arrived before: it continues once.
    """
    log = file if isinstance(file, LogFile) else read(file)
    batch = _arriving(log, rename=rename, as_fork=as_fork)
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
            "rename=True) to give it a new id, or delete the one that is there"
        ) from error
    return batch.execution_id


def _refuse_second_arrival(store: EventStore, log: LogFile, *, as_fork: bool) -> None:
    """Raise StoreError if an execution that moves here is in the store already, itself or as a fork of its file."""
    moved = log.events[0].execution_id
    try:
        status = store.record(moved).status
    except ExecutionNotFoundError:
        copies = [] if as_fork else store.records(parent=moved, origin=FORK, limit=1)
        if copies:
            raise StoreError(
                f"execution {moved} in {log.name} moves here, and {store.location} holds {copies[0].execution_id}, "
                "which was made of it: both would continue. Use that one, or delete it and import the file again"
            ) from None
        return
    if status == MOVED and as_fork:
        return  # it left this store, and a fork of it stays
    way_on = (
        "it has moved away from this store; delete it here to let it continue here again"
        if status == MOVED
        else f"continue with that one (divebook show {moved})"
    )
    raise StoreError(
        f"execution {moved} in {log.name} moves here, and {store.location} holds it already, as {status}: it continues "
        f"once. Nothing was imported; {way_on}"
    )


def status_of(events: list[Event]) -> str:
    """Return the status that the events of a log tell; one that waits is running by its events."""
    turns = [STATUS_AFTER[kind] for event in events if (kind := type(event.data)) in STATUS_AFTER]
    return turns[-1] if turns else RUNNING


def is_picture(log: LogFile) -> bool:
    """Return whether a log comes in as a picture, unless it is to be a fork."""
    return not log.is_moved and status_of(log.events) not in TERMINAL


def caveats(log: LogFile, *, as_fork: bool = False) -> list[str]:
    """Return what a person who imports a log should know of it."""
    found = []
    if not log.is_verified:
        found.append(
            "it has no hashes, like exports of older versions and other systems: whether it is whole is not known"
        )
    if log.damage is not None:
        found.append(f"it is only the sound beginning of a damaged log: {log.damage}")
    if is_picture(log) and not as_fork:
        status = log.status or "its log has no end"
        found.append(f"it had not ended ({status}), and this picture of it cannot go on; {WAY_ON[PICTURE]}")
    return found


def _arriving(log: LogFile, *, rename: bool, as_fork: bool) -> Batch:
    """Return what is appended of a log."""
    if log.is_moved and rename and not as_fork:
        raise SetupError(
            f"{log.name} holds an execution that moves here, under its own id; import it without --rename, or with "
            "--as-fork as one of its own"
        )
    events = log.events
    if as_fork:
        events = _forked(events)
    else:
        events = _open_end(events) if log.is_moved else _pictured(log) if is_picture(log) else events
        events = _renamed(events) if rename else events
    status = status_of(events)
    if status in FINAL:
        return Batch(events[0].execution_id, 0, records_of(events))
    events = [_without_message(event) for event in events]
    if status in TERMINAL:
        return Batch(events[0].execution_id, 0, records_of(events))
    state = _folded(log, events)
    return Batch(state.execution_id, 0, records_of(events), status=state.status, wake_at=state.wake_at)


def _folded(log: LogFile, events: list[Event]) -> ExecutionState:
    try:
        return fold(events[0].execution_id, events)
    except CorruptStoreError as error:
        raise InvalidEventError(
            f"{log.name} cannot go on: its state cannot be rebuilt: {error}. Import it without --as-fork, as a picture"
        ) from error


def _open_end(events: list[Event]) -> list[Event]:
    """Return the events before the one which says that the execution goes on elsewhere."""
    return [*takewhile(lambda event: not isinstance(event.data, ExecutionMoved | ExecutionPictured), events)]


def _pictured(log: LogFile) -> list[Event]:
    last = log.events[-1]
    end = ExecutionPictured(log.status or status_of(log.events))
    closing = replace(last, id=_event_id(last), sequence=last.sequence + 1, data=end, path="", step="")
    return [*_begun(log.events, replace(_beginning(log.events), origin=IMPORT, key=None)), closing]


def _without_message(event: Event) -> Event:
    """Return an event of a log that goes on here without the number it had in the inbox that it comes from.

    That of an answer given here may be lower, and would be taken for one that the log has already.
    """
    if isinstance(event.data, BROUGHT) and event.data.message is not None:
        return replace(event, data=replace(event.data, message=None))
    return event


def _forked(events: list[Event]) -> list[Event]:
    """Return a log as that of another execution, which goes on where it ends."""
    begun = replace(_beginning(events), origin=FORK, parent=events[0].execution_id)
    return _renamed(_begun(_open_end(events), begun))


def _renamed(events: list[Event]) -> list[Event]:
    """Return a log under a new id; its questions keep theirs, which in logs without a seed are made of the old id."""
    execution_id = type_id("exec", time.time_ns() // 1_000_000, secrets.randbits(74))
    begun = replace(_beginning(events), seed=_beginning(events).seed or events[0].execution_id, key=None)
    named = [replace(event, id=_event_id(event), execution_id=execution_id) for event in _begun(events, begun)]
    return [
        replace(event, data=replace(event.data, key=None)) if isinstance(event.data, ExecutionForked) else event
        for event in named
    ]


def _beginning(events: list[Event]) -> ExecutionStarted:
    data = events[0].data
    if not isinstance(data, ExecutionStarted):
        raise InvalidEventError(f"a log begins with execution_started, got {data.event_type}")
    return data


def _begun(events: list[Event], data: ExecutionStarted) -> list[Event]:
    """Return a log with another beginning."""
    return [replace(events[0], data=data), *events[1:]]


def _event_id(event: Event) -> str:
    return type_id("event", event.recorded_at // 1000, secrets.randbits(74))


# One store into another one, of whatever kind: all executions as they stand, and the messages that wait for them.
#
# What has been copied is read again, and compared by a hash over every event, file and status. A copy that broke off is
# taken up by the same call: what is there already, and the same, stays, and a log of which the beginning is there goes
# on from its end. Until all of such a log is there it waits under a lease, so that nobody takes it for one to go on
# with.


EXECUTIONS_PER_PAGE = 500
"""Events that are written together."""
UNFINISHED = "an unfinished copy, which the same `divebook copy` ends"
UNFINISHED_SECONDS = 366 * 86400.0
"""Who holds an execution of which only the beginning is there, in place of a machine, and for how long.

A lease of this very process would end with it, and have the half taken for an execution whose driver has died
(test_a_copy_that_broke_off_amid_a_log_goes_on_there_and_nobody_takes_it_up_before).
"""


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What `copy` has copied."""

    executions: int
    already: int
    """How many executions were there before, the same."""
    events: int
    messages: int
    unended: int
    """How many of all can go on, in one of the two stores."""


def copy(source: EventStore, target: EventStore, tell: Callable[[str], object] = lambda _: None) -> CopyReport:
    """Copy all executions and messages of a store into another one, and compare what is there then.

    Checkpoints and summaries are made anew. What has not ended can go on in either store: use one of them only.

    Parameters
    ----------
    tell
        Called with the id of each execution once it is there.

    Raises
    ------
    StoreError
        An execution is being driven, or the target has another one of the same id, or messages of its own.
    CorruptStoreError
        Something cannot be read, or what was written is not what was read; names the execution.
    """
    _check_at_rest(source)
    copied = 0
    already = 0
    events = 0
    records = [source.record(name) for name in reversed(source.ids())]  # a fork comes after what it forks
    for record in records:
        reached = _reached(source, target, record)
        if reached == record.last_sequence:
            already += 1
        else:
            _copy(source, target, record, reached)
            copied = copied + 1
            events = events + record.last_sequence - reached
        _compare(source, target, record)
        tell(record.execution_id)
    messages = _copy_messages(source, target)
    return CopyReport(copied, already, events, messages, sum(record.status not in TERMINAL for record in records))


def _check_at_rest(source: EventStore) -> None:
    held = source.live_leases()
    if held:
        raise StoreError(
            f"{plural(len(held), 'execution')} of {source.location} {'is' if len(held) == 1 else 'are'} being driven, "
            f"{held[0].execution_id} by {held[0].owner.name} (process {held[0].owner.pid} on {held[0].owner.host}); "
            "pause or end them, and copy then"
        )


def _has(store: EventStore, execution_id: str) -> bool:
    try:
        store.record(execution_id)
    except ExecutionNotFoundError:
        return False
    return True


def _reached(source: EventStore, target: EventStore, record: ExecutionRecord) -> int:
    """Return how many events of a log the target has; all of them where it has another one, which is compared then."""
    name = record.execution_id
    last = target.record(name).last_sequence if _has(target, name) else 0
    at = 0
    while at < min(last, record.last_sequence):
        page = min(at + EXECUTIONS_PER_PAGE, last)
        known, there = (
            [(found.id, found.last_sequence) for found in store.read_records(name, at, page)]
            for store in (source, target)
        )
        if known != there or known[-1][1] > last:
            return record.last_sequence
        at = known[-1][1]
    return at


def _copy(source: EventStore, target: EventStore, record: ExecutionRecord, reached: int) -> None:
    """Write what a log has beyond `reached`; nobody drives it before all of it is there."""
    name = record.execution_id
    lease = _hold(target, name) if reached else None
    shared = None if reached else _shared_in(source, target, record)
    for batch in _batches(source, record, shared, reached):
        (refusal,) = target.append_all([batch if lease is None else replace(batch, token=lease.token)])
        if refusal is not None:
            raise refusal
        if batch.last_sequence < record.last_sequence:  # anew, since an event that ended it for a while gives it back
            lease = _hold(target, name)
    if lease is not None:
        target.release(lease)


def _hold(target: EventStore, execution_id: str) -> Lease:
    """Take the lease of what is not whole yet, also from a copy that broke off, which does so no more."""
    held = target.lease_of(execution_id)
    is_copys = held is not None and held.owner.host == UNFINISHED
    owner = Owner(UNFINISHED, os.getpid(), 0, "divebook copy")
    return target.acquire(execution_id, owner, UNFINISHED_SECONDS, instead_of=held if is_copys else None)


def _shared_in(source: EventStore, target: EventStore, record: ExecutionRecord) -> tuple[str, int] | None:
    """Return the execution whose first events a fork shares in the target, and how many events that is.

    Logs share whole records. A fork at an event inside a record of its source has a record of its own for the
    beginning of that one, so that it shares only what comes before (`divebook.runtime.forks.first_batch`).
    """
    if record.opened < 2:
        return None
    opening = source.facts(record.execution_id, [record.opened])[record.opened]
    if not isinstance(opening, ExecutionForked) or not _has(target, opening.source):
        return None
    last = record.opened - 1
    while last:
        own = source.read_records(record.execution_id, last - 1, last)[0]
        theirs = target.read_records(opening.source, last - 1, last)
        if [(found.id, found.last_sequence) for found in theirs] == [(own.id, last)] and own.last_sequence == last:
            return opening.source, last
        last = own.sequence - 1
    return None


def _batches(
    source: EventStore, record: ExecutionRecord, shared: tuple[str, int] | None, reached: int
) -> Iterator[Batch]:
    fork_of, reached = (None, reached) if shared is None else shared
    while reached < record.last_sequence:
        records = source.read_records(
            record.execution_id, reached, min(reached + EXECUTIONS_PER_PAGE, record.last_sequence)
        )
        for found in records:
            _fill(source, found)
        is_last = records[-1].last_sequence >= record.last_sequence
        settings: dict[str, Any] = {"durability": record.durability, "taken": record.taken if is_last else 0}
        if not is_last:
            settings["status"] = WAITING  # for nothing: none of its questions has an answer here, nor a time come
        elif record.status not in TERMINAL:
            wake_at = record.wake_at
            settings |= {"status": record.status, "wake_at": None if wake_at is None else to_microseconds(wake_at)}
        yield Batch(record.execution_id, reached, records, source=fork_of, **settings)
        reached = records[-1].last_sequence
        fork_of = None


def _fill(source: EventStore, found: Record) -> None:
    """Put the contents of files where a record names them, so that they are written with it."""
    for fact in found.facts:
        for named in StoredFile.all_in(fact):
            named.content = file_content(source, named.digest)


def _compare(source: EventStore, target: EventStore, record: ExecutionRecord) -> None:
    name = record.execution_id
    written = target.record(name)
    # A fork whose source is not there has its first events in full.
    same = replace(written, size=0) == replace(record, size=0) and digest(source, name) == digest(target, name)
    if not same:
        raise CorruptStoreError(
            f"execution {name} is not in {target.location} as it is in {source.location}; delete it there and copy "
            "again, or choose an empty store"
        )


def digest(store: EventStore, execution_id: str) -> str:
    """Return a hash of all that an execution's log says, with the files that it names, and of its status."""
    total = _Sum()
    export(store, execution_id, total)
    return total.hash.hexdigest()


class _Sum(BytesIO):
    """A stream that keeps only a hash of what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.hash = sha256()

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return len(data)


def _copy_messages(source: EventStore, target: EventStore) -> int:
    found = source.new_messages(0)
    present = {message.number: message for message in target.new_messages(0)}
    missing = [message for message in found if message.number not in present]
    target.bring(missing)
    brought = {message.number: message for message in target.new_messages(0)}
    lost = [message for message in found if brought.get(message.number) != message]
    if lost:
        raise StoreError(_other(lost[0], target))
    return len(missing)


def _other(message: Message, target: EventStore) -> str:
    return (
        f"message {message.number} to execution {message.execution_id} is not in {target.location}, which has "
        "messages of its own; choose an empty store"
    )
