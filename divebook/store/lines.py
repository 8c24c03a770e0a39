"""The lines of an exported log: a header, an event a line, and an end, each with a hash of all that comes before it.

The hash is made of what a line says, not of its bytes: a file that was only laid out anew (another order of keys, one
JSON array in place of lines) is still whole, and a file that says anything else is not (tests/store/test_exports.py).
It finds accidents and edits; it is not a signature.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, BinaryIO, TypeAlias

from divebook._version import __version__
from divebook.errors import DivebookError, InvalidEventError, NewerStoreError
from divebook.events.catalog import ExecutionStarted, Payload
from divebook.events.codec import canonical_hash, decode_record, encode, event_to_dict, parse
from divebook.events.event import Event
from divebook.events.stored_file import StoredFile
from divebook.workflow.definition import Workflow

FORM = 1
"""Version of the form of exports; those without a header are of none."""
KIND, HEADER, FILE, END = "divebook", "log", "file", "end"
"""What a line is that is no event; one with the content of a file comes before the first event that names it."""
GetFile: TypeAlias = Callable[[str], bytes | None]
"""Returns the content of a file by its SHA-256, hexadecimal; None if it is not here."""
HASH = "hash"
_DIGITS = 32


class Chain:
    """The hash of the latest line."""

    def __init__(self) -> None:
        self._last = ""

    def after(self, record: Mapping[str, Any]) -> str:
        """Return the hash of the line that comes next, and go on from there."""
        self._last = canonical_hash({**record, HASH: self._last}, whole=True)[:_DIGITS]
        return self._last


class LineWriter:
    """Writes an export; without its end the file is one that was cut off."""

    def __init__(self, stream: BinaryIO, get_file: GetFile = lambda _: None) -> None:
        self.stream, self.count = stream, 0
        self._chain, self._get_file = Chain(), get_file
        self._files: set[str] = set()

    def events(self, events: Iterable[Event]) -> None:
        """Write the next events, after the header if they are the first."""
        for event in events:
            if not self.count:
                self._write(_header(event))
            for found in StoredFile.all_in(event.data):
                self._file(found.digest)
            self._write(event_to_dict(event))
            self.count += 1

    def _file(self, digest: str) -> None:
        """Write the content of a file, once."""
        content = None if digest in self._files else self._get_file(digest)
        if content is not None:
            self._files.add(digest)
            self._write({KIND: FILE, "digest": digest, "content": base64.b64encode(content).decode()})

    def end(self, status: str, *, moved: bool = False, damage: str | None = None) -> None:
        """Write the end: the status of the execution, whether it goes on where it is imported, and what is missing."""
        facts: dict[str, Any] = {KIND: END, "events": self.count, "status": status}
        self._write(facts | ({"moved": True} if moved else {}) | ({"damage": damage} if damage else {}))

    def _write(self, record: dict[str, Any]) -> None:
        self.stream.write(encode({**record, HASH: self._chain.after(record)}) + b"\n")


def _header(first: Event) -> dict[str, Any]:
    name = first.data.workflow_name if isinstance(first.data, ExecutionStarted) else None
    facts = {"execution_id": first.execution_id, "workflow": name, "written_by": __version__}
    return {KIND: HEADER, "form": FORM, **facts}


@dataclass(slots=True)
class LogFile:
    """An execution as an exported file holds it."""

    name: str
    """Of the file."""
    events: list[Event] = field(default_factory=list)
    is_verified: bool = False
    """Whether it has hashes, and they are right; logs of other systems and older exports have none."""
    status: str | None = None
    """Of the execution when it was exported; None where the file does not say."""
    is_moved: bool = False
    """Whether the execution has left the store it came from, to go on where this is imported."""
    damage: str | None = None
    """What was wrong with the event after the last one, in the store that this comes from."""


def read_sound_lines(stream: BinaryIO, name: str) -> tuple[LogFile, InvalidEventError | NewerStoreError | None]:
    """Return what a file says up to the first line that is wrong, and what is wrong there; None if nothing is."""
    reader = _Reader(name)
    try:
        for place, raw in _numbered(stream, name):
            reader.take(place, raw)
        reader.finish()
    except (InvalidEventError, NewerStoreError) as error:
        return reader.log, error
    return reader.log, None


def read_records(records: Iterable[Any], name: str) -> LogFile:
    """Return the log that parsed entries without a header make, once each is known to be sound.

    Raises
    ------
    InvalidEventError, NewerStoreError
        Names the file, the event, and what is wrong there.
    """
    reader = _Reader(name)
    for number, record in enumerate(records, 1):
        reader.take(f"{name}, event {number}", record)
    reader.finish()
    return reader.log


def _numbered(stream: BinaryIO, name: str) -> Iterator[tuple[str, Any]]:
    """Give each entry of a file as it was parsed, with its place."""
    has_begun = False
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        if not has_begun and line.lstrip().startswith(b"["):
            yield from _entries(line + stream.read(), name)
            return
        has_begun, place = True, f"{name}, line {number}"
        yield place, _parsed(line, place, "a line of JSON")


def _entries(content: bytes, name: str) -> Iterator[tuple[str, Any]]:
    for number, entry in enumerate(_parsed(content, name, "a JSON array"), 1):
        yield f"{name}, entry {number}", entry


def _parsed(raw: bytes, place: str, what: str) -> Any:
    try:
        return parse(raw)
    except ValueError as error:
        raise InvalidEventError(f"{place}: not {what}: {error}") from None


class _Reader:
    """Takes the entries of a file in, one by one."""

    def __init__(self, name: str) -> None:
        self.log = LogFile(name)
        self._chain: Chain | None = None
        self._header: Mapping[str, Any] = {}
        self._end: str | None = None
        self._seen: dict[str, str] = {}
        self._files: dict[str, bytes] = {}
        self._last = name

    def take(self, place: str, record: Any) -> None:
        kind = record.get(KIND) if isinstance(record, dict) else None
        self._check_order(place, record, kind)
        self._last = place
        if self._chain is not None:
            self._check_hash(place, record, self._chain)
        if kind == END:
            self._take_end(place, record)
        elif kind == FILE:
            self._take_file(place, record)
        elif kind != HEADER:
            self._take_event(place, record)

    def finish(self) -> None:
        if self._chain is not None and self._end is None:
            raise InvalidEventError(
                f"{self._last}: the file breaks off here; expected {self._next} or the end line. Export it again"
            )
        if not self.log.events:
            raise InvalidEventError(
                f"{self.log.name} holds no events; expected one JSON object a line, as export writes them"
            )
        self.log.is_verified = self._chain is not None

    @property
    def _next(self) -> str:
        return f"event {len(self.log.events) + 1}"

    def _check_order(self, place: str, record: Any, kind: Any) -> None:
        if self._end is not None:
            raise InvalidEventError(f"{place}: nothing was expected after the end line, {self._end}; {_ONE_A_FILE}")
        if kind == HEADER:
            if self._chain is not None or self.log.events:
                raise InvalidEventError(f"{place}: a second header, where {self._next} was expected; {_ONE_A_FILE}")
            self._begin(place, record)
        elif self._chain is None and isinstance(record, dict) and (HASH in record or kind == END):
            raise InvalidEventError(f"{place}: a line of an export, but its header is missing; expected that in line 1")

    def _begin(self, place: str, header: Mapping[str, Any]) -> None:
        form = header.get("form")
        if type(form) is int and form > FORM:
            raise NewerStoreError(
                f"{place}: the export has form {form}, this version of divebook knows forms up to {FORM}; "
                "upgrade divebook"
            )
        self._chain, self._header = Chain(), header

    def _check_hash(self, place: str, record: Any, chain: Chain) -> None:
        if not isinstance(record, dict):
            raise InvalidEventError(f"{place}: an event is a JSON object")
        content = {name: value for name, value in record.items() if name != HASH}
        expected, found = chain.after(content), record.get(HASH)
        if found == expected:
            return
        sequence = record.get("sequence")
        if KIND not in record and sequence != len(self.log.events) + 1:
            raise InvalidEventError(
                f"{place}: expected {self._next}, got {_brief(sequence)}: a line is missing, repeated, moved or from "
                "another export. Export it again"
            )
        raise InvalidEventError(
            f"{place}: this line, or its place, is not as it was written: its hash is {_brief(found)}, expected "
            f"{expected!r}. Export it again"
        )

    def _take_end(self, place: str, end: Mapping[str, Any]) -> None:
        count = len(self.log.events)
        if end.get("events") != count:
            raise InvalidEventError(f"{place}: the end line counts {end.get('events')!r} events, the file has {count}")
        self._end = place
        self.log.status, self.log.damage = end.get("status"), end.get("damage")
        self.log.is_moved = bool(end.get("moved"))

    def _take_file(self, place: str, record: Mapping[str, Any]) -> None:
        try:
            content = base64.b64decode(record["content"], validate=True)
        except (KeyError, TypeError, ValueError):
            raise InvalidEventError(
                f"{place}: the content of a file is not as it is written. Export it again"
            ) from None
        digest = sha256(content).hexdigest()
        if record.get("digest") != digest:
            raise InvalidEventError(f"{place}: the content of a file is not what its digest promises. Export it again")
        self._files[digest] = content

    def _take_event(self, place: str, record: Any) -> None:
        event = decoded(record, place)
        for found in StoredFile.all_in(event.data):
            found.content = self._files.get(found.digest)
        _check_follows(event, self.log.events, place)
        if event.id in self._seen:
            raise InvalidEventError(f"{place}: event id {event.id} is that of {self._seen[event.id]} as well")
        self._seen[event.id] = place.removeprefix(f"{self.log.name}, ")
        self.log.events.append(event)


_ONE_A_FILE = "import one execution a file"
_SHOWN = 40


def _brief(value: Any) -> str:
    return repr(value)[:_SHOWN]


def decoded(record: Any, place: str) -> Event:
    """Return the event of a parsed line, its definition one of a workflow; errors name the place."""
    try:
        event = decode_record(record)
    except (NewerStoreError, InvalidEventError) as error:
        raise type(error)(f"{place}: {error}") from error
    wrong = _wrong_definition(event.data)
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


def _check_follows(event: Event, before: list[Event], place: str) -> None:
    if before and event.execution_id != before[0].execution_id:
        raise InvalidEventError(
            f"{place}: belongs to execution {event.execution_id}, but the file began with {before[0].execution_id}; "
            f"{_ONE_A_FILE}"
        )
    expected = len(before) + 1
    if event.sequence < expected:
        raise InvalidEventError(f"{place}: sequence {event.sequence} comes a second time; expected {expected}")
    if event.sequence > expected:
        raise InvalidEventError(f"{place}: sequence {event.sequence} leaves a gap; expected {expected}")
    if expected == 1 and not isinstance(event.data, ExecutionStarted):
        raise InvalidEventError(f"{place}: a log begins with execution_started, got {event.event_type}")
