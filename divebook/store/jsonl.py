"""One execution as a file of JSON lines: written out, and taken in again whole or not at all.

What has not ended comes in as a picture, which nothing can follow: otherwise two stores would go on with one execution,
and make its calls twice. See `divebook.store.lines` for the lines, `divebook.execution.moving` for what moves.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO

from divebook.engine.evolve import fold
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
from divebook.events.event import Event
from divebook.events.ids import type_id
from divebook.store.base import EventStore
from divebook.store.batches import Batch, records_of
from divebook.store.carried import is_carrier, read_carried
from divebook.store.contents import file_content
from divebook.store.lines import GetFile, LineWriter, LogFile, read_sound_lines
from divebook.store.private import opener

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
