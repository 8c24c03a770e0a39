"""One execution as JSON lines: one event a line, written out and taken in again."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, TypeAlias

from divebook.errors import ConcurrentAppendError, DivebookError, InvalidEventError, NewerStoreError, StoreError
from divebook.events.catalog import ExecutionStarted, Payload
from divebook.events.codec import decode_line, encode_line
from divebook.events.event import Event
from divebook.events.ids import type_id
from divebook.events.shapes import wrong_field
from divebook.store.base import EventStore
from divebook.store.private import opener
from divebook.workflow.definition import Workflow

PAGE = 1000


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
    return _export(store, execution_id, file, _events, overwrite=overwrite)


def export_sound(
    store: EventStore, execution_id: str, file: str | Path | BinaryIO, *, overwrite: bool = False
) -> tuple[int, StoreError | None]:
    """Write an execution as far as it can be read; return how many events that is, and what is wrong with the next."""
    sound, damage = store.read_sound(execution_id)
    if not sound and damage is not None:
        raise damage
    return _export(store, execution_id, file, lambda *_: iter([sound]), overwrite=overwrite), damage


Pages: TypeAlias = Callable[[EventStore, str], Iterator[list[Event]]]


def _export(store: EventStore, execution_id: str, file: str | Path | BinaryIO, pages: Pages, *, overwrite: bool) -> int:
    if isinstance(file, str | Path):
        if not overwrite and Path(file).exists():
            raise StoreError(f"{file} exists already; name another file, or say that it is to be overwritten (--force)")
        with _replacing(Path(file)) as stream:
            return _export(store, execution_id, stream, pages, overwrite=overwrite)
    count = 0
    for page in pages(store, execution_id):
        file.writelines(encode_line(event) + b"\n" for event in page)
        count += len(page)
    return count


def _events(store: EventStore, execution_id: str) -> Iterator[list[Event]]:
    count = 0
    while page := store.read(execution_id, count, PAGE):
        yield page
        count = page[-1].sequence


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb", opener=opener) as stream:
            yield stream
        part.replace(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def import_(file: str | Path | BinaryIO, store: EventStore | Callable[[], EventStore], *, rename: bool = False) -> str:
    """Append the execution in a file of JSON lines to a store; return its id.

    Everything is checked first: either the whole log arrives or nothing.

    Parameters
    ----------
    store
        A function that opens one is called once the file is known to be sound.
    rename
        Give the execution, and each of its events, a new id, so that it may stand beside the original.

    Raises
    ------
    InvalidEventError
        Names the file, the line, and the field that is wrong.
    StoreError
        The store has an execution of that id.
    """
    if isinstance(file, str | Path):
        with _opened(Path(file)) as stream:
            return import_(stream, store, rename=rename)
    events = _read_log(file, str(getattr(file, "name", "<stream>")))
    if rename:
        events = _renamed(events)
    execution_id = events[0].execution_id
    store = store if isinstance(store, EventStore) else store()
    try:
        store.append(execution_id, events, 0)
    except ConcurrentAppendError as error:
        raise StoreError(
            f"{store.location} already holds execution {execution_id}; import it with rename to give it a new id, "
            "or delete the one that is there"
        ) from error
    return execution_id


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as stream:
            yield stream
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error


def _read_log(lines: Iterable[bytes], name: str) -> list[Event]:
    events: list[Event] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{name}, line {number}"
        event = _decode(line, place)
        _check_follows(event, events, place)
        if event.id in seen:
            raise InvalidEventError(f"{place}: event id {event.id} is that of line {seen[event.id]} as well")
        seen[event.id] = number
        events.append(event)
    if not events:
        raise InvalidEventError(f"{name} holds no events; expected one JSON object a line, as export writes them")
    return events


def _decode(line: bytes, place: str) -> Event:
    try:
        event = _typed(decode_line(line))
    except NewerStoreError as error:
        raise NewerStoreError(f"{place}: {error}") from error
    # The last four: sound JSON with a value of the wrong kind somewhere.
    except (InvalidEventError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidEventError(f"{place}: {error}") from error
    wrong = wrong_field(event.data) or _wrong_definition(event.data)
    if wrong is not None:
        raise InvalidEventError(f"{place}: {event.event_type}: {wrong}")
    return event


def _wrong_definition(data: Payload) -> str | None:
    if not isinstance(data, ExecutionStarted) or data.definition is None:
        return None
    if not isinstance(data.definition.get("name"), str):
        return "definition is not a workflow: its name must be text"
    try:
        Workflow.from_dict(data.definition)
    # The last four: plain data of another form than a workflow's.
    except (DivebookError, AttributeError, KeyError, TypeError, ValueError) as error:
        return f"definition is not a workflow: {type(error).__name__}: {error}"
    return None


def _typed(event: Event) -> Event:
    texts: tuple[object, ...] = (event.id, event.execution_id, event.path, event.step)
    if not all(isinstance(text, str) for text in texts) or type(event.sequence) is not int:
        raise InvalidEventError("id, execution_id, path and step must be text, and sequence a whole number")
    return event


def _check_follows(event: Event, before: list[Event], place: str) -> None:
    if before and event.execution_id != before[0].execution_id:
        raise InvalidEventError(
            f"{place}: belongs to execution {event.execution_id}, but the file began with {before[0].execution_id}; "
            "import one execution a file"
        )
    expected = len(before) + 1
    if event.sequence < expected:
        raise InvalidEventError(f"{place}: sequence {event.sequence} comes a second time; expected {expected}")
    if event.sequence > expected:
        raise InvalidEventError(f"{place}: sequence {event.sequence} leaves a gap; expected {expected}")
    if expected == 1 and not isinstance(event.data, ExecutionStarted):
        raise InvalidEventError(f"{place}: a log begins with execution_started, got {event.event_type}")


def _renamed(events: list[Event]) -> list[Event]:
    """Return a log under a new id; its questions keep theirs, which in logs without a seed are made of the old id.

    Its start key stays with the original: it is one execution's alone.
    """
    execution_id = type_id("exec", time.time_ns() // 1_000_000, secrets.randbits(74))
    opening = events[0].data if events else None
    if isinstance(opening, ExecutionStarted):
        seed = opening.seed or events[0].execution_id
        events = [replace(events[0], data=replace(opening, seed=seed, key=None)), *events[1:]]
    return [
        replace(
            event,
            id=type_id("event", event.recorded_at // 1000, secrets.randbits(74)),
            execution_id=execution_id,
        )
        for event in events
    ]
