"""A log that a page or a notebook carries: by columns, each long text once, packed into parts with a checksum each.

A part is JSON, deflated, in base64. ``texts`` are the long texts, of which the other parts name the numbers: a text
stands in up to five events, and deflate looks back 32 KiB only. ``run`` is what a page shows (`divebook.export.page`);
``log`` are the events, which name those of ``run`` where both hold the same. In a page the parts are scripts that no
browser runs, and its last line has a checksum of all bytes before it; in a notebook they stand in its metadata, where
running its cells or clearing their outputs leaves them alone. In the browser ``widgets/src/page/parts.ts`` checks.

CRC-32 finds accidents, as in `divebook.store.encoding`; it is not a signature.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeGuard

from divebook._version import __version__
from divebook.errors import DivebookError, InvalidEventError, NewerStoreError, StoreError
from divebook.events.catalog import ExecutionStarted, Payload
from divebook.events.codec import canonical_hash, decode_record, encode, event_to_dict, parse
from divebook.events.event import Event, to_datetime
from divebook.events.values import StoredFile
from divebook.store.encoding import LongTexts, whole_texts, with_texts
from divebook.workflow.definition import Workflow

# The lines of an exported log: a header, an event a line, and an end, each with a hash of all that comes before it.
#
# The hash is made of what a line says, not of its bytes: a file that was only laid out anew (another order of keys, one
# JSON array in place of lines) is still whole, and a file that says anything else is not (tests/store/test_exports.py).
# It finds accidents and edits; it is not a signature.


FORM = 1
"""Version of the form of exports; those without a header are of none."""
LOG_KIND, HEADER, FILE, END = "divebook", "log", "file", "end"
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
        self.stream = stream
        self.count = 0
        self._chain = Chain()
        self._get_file = get_file
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
            self._write({LOG_KIND: FILE, "digest": digest, "content": base64.b64encode(content).decode()})

    def end(self, status: str, *, moved: bool = False, damage: str | None = None) -> None:
        """Write the end: the status of the execution, whether it goes on where it is imported, and what is missing."""
        facts: dict[str, Any] = {LOG_KIND: END, "events": self.count, "status": status}
        self._write(facts | ({"moved": True} if moved else {}) | ({"damage": damage} if damage else {}))

    def _write(self, record: dict[str, Any]) -> None:
        self.stream.write(encode({**record, HASH: self._chain.after(record)}) + b"\n")


def _header(first: Event) -> dict[str, Any]:
    name = first.data.workflow_name if isinstance(first.data, ExecutionStarted) else None
    facts = {"execution_id": first.execution_id, "workflow": name, "written_by": __version__}
    return {LOG_KIND: HEADER, "form": FORM, **facts}


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
        has_begun = True
        place = f"{name}, line {number}"
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
        kind = record.get(LOG_KIND) if isinstance(record, dict) else None
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
        self._chain = Chain()
        self._header = header

    def _check_hash(self, place: str, record: Any, chain: Chain) -> None:
        if not isinstance(record, dict):
            raise InvalidEventError(f"{place}: an event is a JSON object")
        content = {name: value for name, value in record.items() if name != HASH}
        expected = chain.after(content)
        found = record.get(HASH)
        if found == expected:
            return
        sequence = record.get("sequence")
        if LOG_KIND not in record and sequence != len(self.log.events) + 1:
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


PAGE = (".html", ".htm")
NOTEBOOK = ".ipynb"
TEXTS = "texts"
RUN = "run"
LOG = "log"
VIEWER = "viewer"
METADATA = "divebook"
MAX_FILE = 500_000_000
MAX_UNPACKED = 256_000_000
KIND = "application/vnd.divebook.part"
_PART = re.compile(
    rb'^<script type="application/vnd\.divebook\.part" data-name="(\w+)" data-crc32="([0-9a-f]{8})">(.*)</script>$',
    re.MULTILINE,
)
_SEAL = re.compile(rb"<!-- divebook 1 crc32 ([0-9a-f]{8}) -->\n\Z")
_AGAIN = "Get the file again from where it came from"


# --- writing ---------------------------------------------------------------------------------------------------------


def pack(data: bytes) -> str:
    """Return bytes as the text of a part."""
    return base64.b64encode(zlib.compress(data, 9)).decode("ascii")


def part_of(value: Any) -> str:
    """Return plain data as the text of a part."""
    return pack(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode())


def checksum(text: str) -> str:
    """Return what stands beside the text of a part."""
    return f"{zlib.crc32(text.encode('ascii', 'replace')):08x}"


def script_of(name: str, part: str) -> str:
    """Return a part as a page has it."""
    return f'<script type="{KIND}" data-name="{name}" data-crc32="{checksum(part)}">{part}</script>\n'


def sealed(page: str) -> bytes:
    """Return a page with the checksum of all of it as its last line."""
    content = page.encode()
    return content + f"<!-- divebook 1 crc32 {zlib.crc32(content):08x} -->\n".encode()


def metadata_of(parts: Mapping[str, str]) -> dict[str, Any]:
    """Return parts as a notebook has them in its metadata, under `METADATA`."""
    return {
        "form": FORM,
        "parts": {name: {"crc32": checksum(part), "data": part} for name, part in parts.items()},
    }


def columns_of(
    events: Sequence[Event], data: Sequence[Any], status: str, shown: Mapping[int, Any], texts: LongTexts
) -> dict[str, Any]:
    """Return a log as its part holds it.

    Parameters
    ----------
    data
        What is recorded in each event, as plain data.
    shown
        What the part ``run`` holds of an event, by its number: it is not written again where it is the same.
    texts
        Those of the other parts; new ones stay in this one.
    """
    own = LongTexts([*data], texts)
    names = {"": 0}
    prefix = _beginning([event.id for event in events])
    times = [event.recorded_at for event in events]

    def place(name: str) -> int:
        return names.setdefault(name, len(names))

    columns = {
        "form": FORM,
        "written_by": __version__,
        "execution_id": events[0].execution_id,
        "status": status,
        "prefix": prefix,
        "id": [event.id.removeprefix(prefix) for event in events],
        "time": [now - before for before, now in zip([0, *times], times, strict=False)],
        "type": [place(event.event_type) for event in events],
        "path": [place(event.path) for event in events],
        "step": [place(event.step) for event in events],
        "data": [
            None if shown.get(event.sequence) == held else own.without(held)
            for event, held in zip(events, data, strict=True)
        ],
    }
    return {**columns, "names": [*names], "texts": own.listed}


def _beginning(ids: Sequence[str]) -> str:
    """Return what all ids begin with."""
    first = min(ids)
    last = max(ids)
    return first[: next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Carried:
    """The parts that a file has, as far as they are sound."""

    name: str
    """Of the file."""
    parts: dict[str, str] = field(default_factory=dict)
    fault: str = ""
    """What is wrong with the file; empty if nothing is."""

    def data(self, part: str) -> Any:
        """Return what a sound part holds, the numbers of texts in it.

        Raises
        ------
        InvalidEventError
            It is not there, or is not what divebook writes.
        """
        if part not in self.parts:
            raise InvalidEventError(self.fault or f"{self.name} has no part {part!r}. {_AGAIN}")
        try:
            engine = zlib.decompressobj()
            raw = engine.decompress(base64.b64decode(self.parts[part], validate=True), MAX_UNPACKED)
            return parse(raw)  # what was cut off is no JSON
        except (binascii.Error, zlib.error, ValueError) as error:
            raise InvalidEventError(f"{self.name}: the part {part!r} cannot be unpacked: {error}. {_AGAIN}") from None


def is_carrier(file: object) -> TypeGuard[str | Path]:
    """Return whether a file is one that may carry a log, by its name."""
    return isinstance(file, str | Path) and Path(file).suffix.lower() in (*PAGE, NOTEBOOK)


def carried_by(path: Path) -> Carried:
    """Return the parts of a page or a notebook; one that carries nothing has none.

    Raises
    ------
    StoreError
        It cannot be read.
    """
    try:
        if path.stat().st_size > MAX_FILE:
            raise StoreError(
                f"{path} is larger than {MAX_FILE:,} bytes; export the log of the run as JSON lines instead"
            )
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}; name another file") from error
    return _of_notebook(str(path), content) if path.suffix.lower() == NOTEBOOK else _of_page(str(path), content)


def _of_page(name: str, content: bytes) -> Carried:
    content = content.replace(b"\r\n", b"\n")  # mail and git may change the ends of lines, and nothing is lost by that
    found = {part.decode(): (crc.decode(), text.decode("latin-1")) for part, crc, text in _PART.findall(content)}
    carried = _sound(name, found)
    if found and not carried.fault:
        seal = _SEAL.search(content)
        if seal is None:
            carried.fault = f"{name}: the last line is not as it was written: the checksum of the page. {_AGAIN}"
        elif (is_now := f"{zlib.crc32(content[: seal.start()]):08x}") != seal[1].decode():
            carried.fault = (
                f"{name} was changed: the checksum of the page is {is_now}, expected {seal[1].decode()}; the parts "
                f"that hold the run are as they were written. {_AGAIN}"
            )
    return carried


def _of_notebook(name: str, content: bytes) -> Carried:
    try:
        notebook = parse(content)
    except ValueError as error:
        raise InvalidEventError(f"{name} is not a notebook: {error}") from None
    metadata = notebook.get("metadata") if isinstance(notebook, dict) else None
    held = metadata.get(METADATA) if isinstance(metadata, dict) else None
    return Carried(name) if held is None else _of_metadata(name, held)


def _of_metadata(name: str, held: Any) -> Carried:
    try:
        if type(held["form"]) is int and held["form"] > FORM:
            raise NewerStoreError(_newer(name, held["form"]))
        found = {str(part): (str(entry["crc32"]), str(entry["data"])) for part, entry in held["parts"].items()}
    except (AttributeError, KeyError, TypeError):
        raise InvalidEventError(
            f"{name}: what its metadata hold under {METADATA!r} has the wrong form. {_AGAIN}"
        ) from None
    carried = _sound(name, found)
    if not carried.fault and not carried.parts.keys() >= {TEXTS, LOG}:
        carried.fault = f"{name}: of the parts {TEXTS!r} and {LOG!r} it has {[*found]}. {_AGAIN}"
    return carried


def _sound(name: str, found: Mapping[str, tuple[str, str]]) -> Carried:
    carried = Carried(name)
    for part, (expected, text) in found.items():
        if (is_now := checksum(text)) == expected and text.isascii():
            carried.parts[part] = text
        else:
            carried.fault = (
                f"{name}: the part {part!r} is damaged: its checksum is {is_now}, expected {expected}. {_AGAIN}"
            )
    return carried


def _newer(name: str, form: int) -> str:
    return f"{name} has form {form}, this version of divebook knows forms up to {FORM}; upgrade divebook"


def read_carried(path: Path, *, whole: bool = False) -> tuple[LogFile, InvalidEventError | NewerStoreError | None]:
    """Return the log that a page or a notebook carries, and what is wrong with the file; None if nothing is.

    Where the file is damaged and the log is not, the log comes with what is wrong elsewhere; if the whole file must be
    sound, it comes empty, and nothing was decoded for it.
    """
    carried = carried_by(path)
    fault = InvalidEventError(carried.fault) if carried.fault else None
    if fault is not None and whole:
        return LogFile(str(path)), fault
    if LOG not in carried.parts:
        told = f"{path} carries no log; open it in a browser or by %dive open, or have it written with its log"
        return LogFile(str(path)), fault or InvalidEventError(told)
    try:
        log = _log_of(carried)
    except (InvalidEventError, NewerStoreError) as error:
        return LogFile(str(path)), error
    return log, fault


def log_of(name: str, metadata: Mapping[str, Any]) -> LogFile:
    """Return the log in what `metadata_of` made; raises InvalidEventError."""
    return _log_of(_of_metadata(name, metadata))


def _log_of(carried: Carried) -> LogFile:
    columns = carried.data(LOG)
    listed = carried.data(TEXTS)
    try:
        texts = whole_texts(listed)
        if type(columns["form"]) is int and columns["form"] > FORM:
            raise NewerStoreError(_newer(carried.name, columns["form"]))
        shown: dict[int, Any] = {}
        if RUN in carried.parts:
            view = with_texts(carried.data(RUN)["view"], texts)
            shown = dict(zip(view["events"]["sequence"], view["data"], strict=True))
        log = read_records(_records(columns, whole_texts(columns["texts"], texts), shown), carried.name)
        log.status = str(columns["status"])
        log.is_verified = True
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise InvalidEventError(
            f"{carried.name}: its log has the wrong form: {type(error).__name__}: {error}"
        ) from None
    return log


def _records(columns: Mapping[str, Any], texts: Sequence[str], shown: Mapping[int, Any]) -> Iterator[dict[str, Any]]:
    names = columns["names"]
    rows = zip(
        columns["id"],
        accumulate(columns["time"]),
        *([names[place] for place in columns[column]] for column in ("type", "path", "step")),
        columns["data"],
        strict=True,
    )
    for sequence, (end, time, kind, path, step, held) in enumerate(rows, 1):
        yield {
            "id": f"{columns['prefix']}{end}",
            "execution_id": columns["execution_id"],
            "sequence": sequence,
            "timestamp": to_datetime(time).isoformat(timespec="microseconds"),
            "event_type": kind,
            "path": path,
            "step": step,
            "data": shown[sequence] if held is None else with_texts(held, texts),
        }
