"""Readers and writers of logs outside of a store: exported JSON lines, and logs embedded in a page or a notebook.

An exported file consists of lines (`LineWriter`, `read_sound_lines`).

A page or a notebook contains a log by columns, in parts with a checksum each. A part is JSON, deflated, in base64:

- ``texts`` has each long string once. The other parts have its number in its place, since a string occurs in up to five
  events, and deflate searches only the last 32 KiB.
- ``run`` has the data that a page shows (`divebook.export.page`).
- ``log`` has the events. Data that ``run`` contains as well are omitted.

In a page, the parts are scripts of a type that browsers do not run, and the last line has a checksum of all bytes
before it. In a notebook, they are in the metadata, so that running cells and clearing outputs does not change them. In
the browser, ``widgets/src/page/parts.ts`` verifies them. CRC-32 detects accidents; it is not a signature.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, ParamSpec, Protocol, TypeAlias, TypeGuard, TypeVar

from divebook._version import __version__
from divebook.definitions.definition import Workflow
from divebook.errors import DivebookError, InvalidEventError, NewerStoreError, StoreError
from divebook.events.catalog import ExecutionStarted, Payload
from divebook.events.codec import canonical_hash, decode_record, encode, event_to_dict, parse
from divebook.events.event import Event, to_datetime
from divebook.events.upcast import present_status
from divebook.events.values import StoredFile

# --- lines of an exported log ---
# A header, one event in each line, and an end line. Each line has a hash that covers it and all lines before it:
#
#     {"divebook": "log", "form": 1, ..., "hash": h1}
#     {"id": "event_...", "sequence": 1, ..., "hash": h2}      h2 covers the event and h1
#     {"divebook": "end", "events": 1, ..., "hash": h3}        h3 covers the end and h2
#
# A hash covers the data of a line, not its bytes. A file with another layout (order of keys, one JSON array in place of
# lines) is therefore still valid, and a file with other data is not (tests/store/test_exports.py). The hashes detect
# accidents and edits; they are not a signature.


FORM = 1
"""Version of the format of exports. Exports of older versions and of other systems have no header line."""
# Values of `LOG_KIND` in lines that are not events. A line with the content of a file precedes the first event that
# names the file.
LOG_KIND = "divebook"
HEADER = "log"
FILE = "file"
END = "end"
GetFile: TypeAlias = Callable[[str], bytes | None]
"""Function that returns the content of a file by its SHA-256 (hexadecimal), or None if it is missing."""
HASH = "hash"
# Half of the digits of a SHA-256 suffices to detect accidents.
_DIGITS = 32


class HashChain:
    """Hash chain over the lines of an exported log: each hash covers one line and the hash of the line before."""

    def __init__(self) -> None:
        self._last = ""

    def after(self, record: Mapping[str, Any]) -> str:
        """Return the hash for the next line of the exported log, `record`. It is remembered, because the hash of the
        following line covers it.
        """
        # The hash of the line before takes the place of the line's own hash.
        self._last = canonical_hash({**record, HASH: self._last}, whole=True)[:_DIGITS]
        return self._last


class LineWriter:
    """Writer of an exported log as JSON lines: header, events, contents of files, end line.

    A file without the end line counts as truncated.
    """

    def __init__(self, stream: BinaryIO, get_file: GetFile = lambda _: None) -> None:
        self.stream = stream
        self.count = 0
        self._chain = HashChain()
        self._get_file = get_file
        self._files: set[str] = set()

    def events(self, events: Iterable[Event]) -> None:
        """Write a line for each of the next events of the log. Before an event, write lines with the contents of the
        files that it names, and before the first event a header line.
        """
        for event in events:
            if not self.count:
                self._write(_header(event))
            # A file precedes the first event that names it, so that a reader has the content when it decodes the event.
            for file in StoredFile.all_in(event.data):
                self._file(file.digest)
            self._write(event_to_dict(event))
            self.count += 1

    def _file(self, digest: str) -> None:
        """Write a line with the content of the file that has the SHA-256 `digest`, unless the content is missing or was
        written before.
        """
        content = None if digest in self._files else self._get_file(digest)
        if content is not None:
            self._files.add(digest)
            self._write({LOG_KIND: FILE, "digest": digest, "content": base64.b64encode(content).decode()})

    def end(self, status: str, *, moved: bool = False, damage: str | None = None) -> None:
        """Write the end line of the exported log. It contains the status of the execution, whether the execution moves
        to the importing store, and a description of damage, if any.
        """
        facts: dict[str, Any] = {LOG_KIND: END, "events": self.count, "status": status}
        if moved:
            facts["moved"] = True
        if damage:
            facts["damage"] = damage
        self._write(facts)

    def _write(self, record: dict[str, Any]) -> None:
        self.stream.write(encode({**record, HASH: self._chain.after(record)}) + b"\n")


def _header(first: Event) -> dict[str, Any]:
    name = first.data.workflow_name if isinstance(first.data, ExecutionStarted) else None
    facts = {"execution_id": first.execution_id, "workflow": name, "written_by": __version__}
    return {LOG_KIND: HEADER, "form": FORM, **facts}


@dataclass(slots=True)
class LogFile:
    """The log of one execution, read from an exported file, a page or a notebook."""

    name: str
    """Name of the file, for errors."""
    events: list[Event] = field(default_factory=list)
    is_verified: bool = False
    """True if the hashes of all lines are correct; False for logs without hashes (other systems, older exports)."""
    status: str | None = None
    """Status of the execution at the time of the export; None if the file does not state the status."""
    is_moved: bool = False
    """True if the execution has left its original store, and continues in the store that imports the file."""
    damage: str | None = None
    """Error of the first damaged event of the original log, before which the export ends; None for a complete log."""


def read_sound_lines(stream: BinaryIO, name: str) -> tuple[LogFile, InvalidEventError | NewerStoreError | None]:
    """Read a log from a file up to the first invalid line; return the log and the error of this line, or None."""
    reader = _Reader(name)
    try:
        for place, raw in _numbered(stream, name):
            reader.add(place, raw)
        reader.finish()
    except (InvalidEventError, NewerStoreError) as error:
        return reader.log, error
    return reader.log, None


def read_records(records: Iterable[Any], name: str) -> LogFile:
    """Return the log that consists of already parsed event entries without a header line, after a check of each entry.

    Raises
    ------
    InvalidEventError, NewerStoreError
        An entry is invalid. The error names the file, the event and the fault.
    """
    reader = _Reader(name)
    for number, record in enumerate(records, 1):
        reader.add(f"{name}, event {number}", record)
    reader.finish()
    return reader.log


def _numbered(stream: BinaryIO, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the parsed entries of an exported file (events, header and others), each with its position for error
    messages, such as ``FILE, line 3``. The file contains one entry on each line, or a JSON array of all entries.
    """
    has_begun = False
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        # The array may span several lines, so the rest of the file belongs to it.
        if not has_begun and line.lstrip().startswith(b"["):
            yield from _entries(line + stream.read(), name)
            return
        has_begun = True
        place = f"{name}, line {number}"
        yield place, _parsed(line, place, "a line of JSON")


def _entries(content: bytes, name: str) -> Iterator[tuple[str, Any]]:
    for number, entry in enumerate(_parsed(content, name, "a JSON array"), 1):
        yield f"{name}, entry {number}", entry


def _parsed(raw: bytes, place: str, expected: str) -> Any:
    try:
        return parse(raw)
    except ValueError as error:
        raise InvalidEventError(f"{place}: not {expected}: {error}") from None


class _Reader:
    """Builder of a `LogFile` from the lines of an exported file or the entries of an embedded log. The entries are
    added and checked in order.
    """

    def __init__(self, name: str) -> None:
        self.log = LogFile(name)
        self._chain: HashChain | None = None
        self._header: Mapping[str, Any] = {}
        self._end: str | None = None
        self._places_of_ids: dict[str, str] = {}
        self._files: dict[str, bytes] = {}
        self._last = name

    def add(self, place: str, record: Any) -> None:
        # Events have no such key.
        kind = record.get(LOG_KIND) if isinstance(record, dict) else None
        # The order is checked before the hash: "a second header" says more than "wrong hash".
        self._check_order(place, record, kind)
        self._last = place
        # Files without a header have no hashes.
        if self._chain is not None:
            self._check_hash(place, record, self._chain)
        if kind == END:
            self._add_end(place, record)
        elif kind == FILE:
            self._add_file(place, record)
        elif kind != HEADER:
            self._add_event(place, record)

    def finish(self) -> None:
        # Only files with a header have an end line that can be missing.
        if self._chain is not None and self._end is None:
            raise InvalidEventError(
                f"{self._last}: the file ends here; expected {self._next} or the end line. Export it again"
            )
        if not self.log.events:
            raise InvalidEventError(
                f"{self.log.name} contains no events; expected one JSON object per line, as an export has it"
            )
        self.log.is_verified = self._chain is not None

    @property
    def _next(self) -> str:
        return f"event {len(self.log.events) + 1}"

    def _check_order(self, place: str, record: Any, kind: Any) -> None:
        if self._end is not None:
            raise InvalidEventError(f"{place}: unexpected line after the end line, {self._end}; {_ONE_A_FILE}")
        if kind == HEADER:
            if self._chain is not None or self.log.events:
                raise InvalidEventError(f"{place}: a second header, where {self._next} was expected; {_ONE_A_FILE}")
            self._begin(place, record)
        elif self._chain is None and isinstance(record, dict) and (HASH in record or kind == END):
            raise InvalidEventError(
                f"{place}: this line belongs to an export, but the header of the export is "
                "missing; expected the header in line 1"
            )

    def _begin(self, place: str, header: Mapping[str, Any]) -> None:
        form = header.get("form")
        if type(form) is int and form > FORM:
            raise NewerStoreError(
                f"{place}: the export has format version {form}, but this version of divebook reads format versions "
                f"up to {FORM}; "
                "upgrade divebook"
            )
        self._chain = HashChain()
        self._header = header

    def _check_hash(self, place: str, record: Any, chain: HashChain) -> None:
        if not isinstance(record, dict):
            raise InvalidEventError(f"{place}: an event must be a JSON object")
        content = {name: value for name, value in record.items() if name != HASH}
        expected = chain.after(content)
        stored = record.get(HASH)
        if stored == expected:
            return
        # A missing line also changes the hashes of all later ones; the number of the event distinguishes the two cases.
        sequence = record.get("sequence")
        if LOG_KIND not in record and sequence != len(self.log.events) + 1:
            raise InvalidEventError(
                f"{place}: expected {self._next}, got {_brief(sequence)}: a line is missing, repeated, moved or from "
                "another export. Export it again"
            )
        raise InvalidEventError(
            f"{place}: this line was changed or moved: its hash is {_brief(stored)}, expected "
            f"{expected!r}. Export it again"
        )

    def _add_end(self, place: str, end: Mapping[str, Any]) -> None:
        count = len(self.log.events)
        if end.get("events") != count:
            raise InvalidEventError(
                f"{place}: the end line counts {end.get('events')!r} events, but the file has {count}"
            )
        self._end = place
        status = end.get("status")
        self.log.status = present_status(status) if isinstance(status, str) else None
        self.log.damage = end.get("damage")
        self.log.is_moved = bool(end.get("moved"))

    def _add_file(self, place: str, record: Mapping[str, Any]) -> None:
        try:
            content = base64.b64decode(record["content"], validate=True)
        except (KeyError, TypeError, ValueError):
            raise InvalidEventError(f"{place}: the content of a file was changed. Export it again") from None
        digest = sha256(content).hexdigest()
        if record.get("digest") != digest:
            raise InvalidEventError(f"{place}: the content of a file does not match its digest. Export it again")
        self._files[digest] = content

    def _add_event(self, place: str, record: Any) -> None:
        event = decoded(record, place)
        # None remains for logs in pages and notebooks, which contain no files.
        for file in StoredFile.all_in(event.data):
            file.content = self._files.get(file.digest)
        _check_follows(event, self.log.events, place)
        if event.id in self._places_of_ids:
            raise InvalidEventError(f"{place}: event id {event.id} already occurs in {self._places_of_ids[event.id]}")
        self._places_of_ids[event.id] = place.removeprefix(f"{self.log.name}, ")
        self.log.events.append(event)


_ONE_A_FILE = "import one execution a file"
_SHOWN = 40


def _brief(value: Any) -> str:
    return repr(value)[:_SHOWN]


def decoded(record: Any, place: str) -> Event:
    """Decode an event from a parsed entry of an exported log, and check the workflow definition that it may contain.
    Error messages begin with `place`, the position of the entry in the file.
    """
    try:
        event = decode_record(record)
    except (NewerStoreError, InvalidEventError) as error:
        raise type(error)(f"{place}: {error}") from error
    fault = _wrong_definition(event.data)
    if fault is not None:
        raise InvalidEventError(f"{place}: {event.event_type}: {fault}")
    return event


def _wrong_definition(data: Payload) -> str | None:
    if not isinstance(data, ExecutionStarted) or data.definition is None:
        return None
    if not isinstance(data.definition.get("name"), str):
        return "definition is not a workflow: its name must be text"
    try:
        Workflow.from_dict(data.definition)
    # The last four: plain data without the form of a workflow.
    except (DivebookError, AttributeError, KeyError, TypeError, ValueError) as error:
        return f"definition is not a workflow: {type(error).__name__}: {error}"
    return None


def _check_follows(event: Event, before: list[Event], place: str) -> None:
    if before and event.execution_id != before[0].execution_id:
        raise InvalidEventError(
            f"{place}: the event belongs to execution {event.execution_id}, but the file began with execution "
            f"{before[0].execution_id}; "
            f"{_ONE_A_FILE}"
        )
    expected = len(before) + 1
    if event.sequence < expected:
        raise InvalidEventError(f"{place}: sequence {event.sequence} occurs twice; expected {expected}")
    if event.sequence > expected:
        raise InvalidEventError(f"{place}: sequence {event.sequence} leaves a gap; expected {expected}")
    if expected == 1 and not isinstance(event.data, ExecutionStarted):
        raise InvalidEventError(f"{place}: a log must begin with execution_started, got {event.event_type}")


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
# `sealed` writes this last line of a page.
_SEAL = re.compile(rb"<!-- divebook 1 crc32 ([0-9a-f]{8}) -->\n\Z")
_AGAIN = "Get the file again from its source"
LONG_TEXT = 24
"""Minimum length in characters of a string that is moved to the list of long strings."""
MARK = "\x7f"
"""First character of a reference to a long string; the number of the string in the list follows."""
LITERAL = "'"
"""Second character, after `MARK`, of a string that is not a reference but begins with `MARK` itself."""
_NUMBER = re.compile(r"[0-9]+")
# The pattern matches a line break, and the label of a heading, such as "## Answer 3: ".
_BORDER = re.compile(r"(\n|^#+ [^\n:]{1,60}: )", re.MULTILINE)


# --- embedded logs: writing ------------------------------------------------------------------------------------------


def pack(data: bytes) -> str:
    """Return bytes as a string: compressed (deflate) and in base64. Pages and notebooks contain the parts of an
    embedded log as such strings.
    """
    # Zlib's "filtered" strategy, which prefers single bytes to short repetitions, makes columns of numbers smaller by
    # 6 %, but prose larger by 1 %.
    return base64.b64encode(min((_deflated(data, strategy) for strategy in _STRATEGIES), key=len)).decode("ascii")


_STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED)


def _deflated(data: bytes, strategy: int) -> bytes:
    compressor = zlib.compressobj(9, strategy=strategy)
    return compressor.compress(data) + compressor.flush()


def part_of(value: Any) -> str:
    """Return plain data as a string: JSON, compressed (deflate), in base64. Pages and notebooks contain the parts of an
    embedded log as such strings.
    """
    return pack(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode())


def checksum(text: str) -> str:
    """Return the CRC-32 of the string of an embedded log's part as eight hexadecimal digits."""
    return f"{zlib.crc32(text.encode('ascii', 'replace')):08x}"


def script_of(name: str, part: str) -> str:
    """Return the HTML script element in which a page contains a part of an embedded log."""
    return f'<script type="{KIND}" data-name="{name}" data-crc32="{checksum(part)}">{part}</script>\n'


def sealed(page: str) -> bytes:
    """Return the HTML page as bytes, with an added last line that contains the checksum of all bytes before it."""
    content = page.encode()
    return content + f"<!-- divebook 1 crc32 {zlib.crc32(content):08x} -->\n".encode()


def metadata_of(parts: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata of a notebook that contain the parts of an embedded log. They are stored under the key
    `METADATA`.
    """
    return {
        "form": FORM,
        "parts": {name: {"crc32": checksum(part), "data": part} for name, part in parts.items()},
    }


def columns_of(
    events: Sequence[Event], data: Sequence[Any], status: str, shown_data: Mapping[int, Any], texts: LongTexts
) -> dict[str, Any]:
    """Return the plain data of the part ``log`` of an embedded log: its events, as one list for each of their fields.

    Times are differences to the event before. Types, paths and steps are numbers in a list of names.

    Parameters
    ----------
    data
        Payload of each event, as plain data.
    shown_data
        Data in the part ``run`` by the sequence number of an event. Equal data are not written again.
    texts
        Long strings of the other parts. New ones are added to this part.
    """
    # The list of this part begins after the strings of the other parts, and refers to those by their numbers.
    new_texts = LongTexts([*data], texts)
    names = {"": 0}
    prefix = _beginning([event.id for event in events])
    times = [event.recorded_at for event in events]

    def number_of(name: str) -> int:
        return names.setdefault(name, len(names))

    columns = {
        "form": FORM,
        "written_by": __version__,
        "execution_id": events[0].execution_id,
        "status": status,
        "prefix": prefix,
        "id": [event.id.removeprefix(prefix) for event in events],
        # Small differences take less space: [1700, 1703, 1703] -> [1700, 3, 0].
        "time": [now - before for before, now in zip([0, *times], times, strict=False)],
        "type": [number_of(event.event_type) for event in events],
        "path": [number_of(event.path) for event in events],
        "step": [number_of(event.step) for event in events],
        "data": [
            None if shown_data.get(event.sequence) == plain else new_texts.without(plain)
            for event, plain in zip(events, data, strict=True)
        ],
    }
    return {**columns, "names": [*names], "texts": new_texts.listed}


def _beginning(ids: Sequence[str]) -> str:
    """Return the longest string with which all of the given ids begin."""
    # The beginning that the lowest and the highest string share is that of all strings between them.
    first = min(ids)
    last = max(ids)
    for index, (letter, other_letter) in enumerate(zip(first, last, strict=False)):
        if letter != other_letter:
            return first[:index]
    return first


# --- embedded logs: reading ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class EmbeddedParts:
    """Parts of the log that a page or a notebook contains, as far as they match their checksums."""

    name: str
    """Name of the file, for errors."""
    parts: dict[str, str] = field(default_factory=dict)
    """Mapping of the name of each intact part to the part's string."""
    fault: str = ""
    """Description of the damage of the file; empty if the file is intact."""

    def data(self, part: str) -> Any:
        """Decode a part of an embedded log and return its plain data. Long strings in these are still replaced by
        references (their numbers in the list of long strings).

        Raises
        ------
        InvalidEventError
            The part is missing, or cannot be decoded.
        """
        if part not in self.parts:
            raise InvalidEventError(self.fault or f"{self.name} has no part {part!r}. {_AGAIN}")
        try:
            engine = zlib.decompressobj()
            # Limited, because a small damaged or hostile part could unpack to any size.
            raw = engine.decompress(base64.b64decode(self.parts[part], validate=True), MAX_UNPACKED)
            return parse(raw)  # fails for a part that was cut off at `MAX_UNPACKED`
        except (binascii.Error, zlib.error, ValueError) as error:
            raise InvalidEventError(f"{self.name}: the part {part!r} cannot be unpacked: {error}. {_AGAIN}") from None


def may_embed_log(file: object) -> TypeGuard[str | Path]:
    """Return True if a file may contain the log of a run, judged by the suffix of its name (``.html``, ``.ipynb``)."""
    return isinstance(file, str | Path) and Path(file).suffix.lower() in (*PAGE, NOTEBOOK)


def embedded_parts_of(path: Path) -> EmbeddedParts:
    """Return the parts of the log that a page or a notebook contains. The result has no parts if the file contains no
    log.

    Raises
    ------
    StoreError
        The file cannot be read, or is too large.
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


def _of_page(name: str, content: bytes) -> EmbeddedParts:
    content = content.replace(b"\r\n", b"\n")  # mail and git may change line ends, which is harmless
    # Every byte is valid Latin-1, so damaged bytes are reported by the checksum and not by the decoder.
    parts = {part.decode(): (crc.decode(), text.decode("latin-1")) for part, crc, text in _PART.findall(content)}
    embedded = _intact_parts(name, parts)
    if not parts or embedded.fault:
        return embedded
    # The parts have their own checksums, so a changed page can still give an intact log; the fault is reported with it.
    seal = _SEAL.search(content)
    if seal is None:
        embedded.fault = f"{name}: the last line, which has the checksum of the page, was changed. {_AGAIN}"
        return embedded
    actual = f"{zlib.crc32(content[: seal.start()]):08x}"
    if actual != seal[1].decode():
        embedded.fault = (
            f"{name} was changed: the checksum of the page is {actual}, expected {seal[1].decode()}; the parts that "
            f"contain the run are unchanged. {_AGAIN}"
        )
    return embedded


def _of_notebook(name: str, content: bytes) -> EmbeddedParts:
    try:
        notebook = parse(content)
    except ValueError as error:
        raise InvalidEventError(f"{name} is not a notebook: {error}") from None
    metadata = notebook.get("metadata") if isinstance(notebook, dict) else None
    content_of_metadata = metadata.get(METADATA) if isinstance(metadata, dict) else None
    return EmbeddedParts(name) if content_of_metadata is None else _of_metadata(name, content_of_metadata)


def _of_metadata(name: str, content: Any) -> EmbeddedParts:
    try:
        if type(content["form"]) is int and content["form"] > FORM:
            raise NewerStoreError(_newer(name, content["form"]))
        parts = {str(part): (str(entry["crc32"]), str(entry["data"])) for part, entry in content["parts"].items()}
    except (AttributeError, KeyError, TypeError):
        raise InvalidEventError(f"{name}: its metadata {METADATA!r} have the wrong format. {_AGAIN}") from None
    embedded = _intact_parts(name, parts)
    # A part that was removed leaves no wrong checksum.
    if not embedded.fault and not embedded.parts.keys() >= {TEXTS, LOG}:
        embedded.fault = f"{name} must have the parts {TEXTS!r} and {LOG!r}, but has {[*parts]}. {_AGAIN}"
    return embedded


def _intact_parts(name: str, parts: Mapping[str, tuple[str, str]]) -> EmbeddedParts:
    """Return the parts of an embedded log that match their checksums. `parts` has the expected checksum and the string
    of each part, by name.
    """
    embedded = EmbeddedParts(name)
    for part, (expected, text) in parts.items():
        actual = checksum(text)
        # `checksum` replaces characters beyond ASCII, so a string with such characters might match by accident.
        if actual == expected and text.isascii():
            embedded.parts[part] = text
        else:
            embedded.fault = (
                f"{name}: the part {part!r} is damaged: its checksum is {actual}, expected {expected}. {_AGAIN}"
            )
    return embedded


def _newer(name: str, form: int) -> str:
    return (
        f"{name} has format version {form}, but this version of divebook reads format versions up to {FORM}; "
        "upgrade divebook"
    )


def read_embedded(path: Path, *, whole: bool = False) -> tuple[LogFile, InvalidEventError | NewerStoreError | None]:
    """Return the log that a page or a notebook contains. Also return a description of the file's damage, or None if the
    file is intact.

    If the file is damaged, but the log is not, return both. With `whole`, return an empty log for a damaged file, and
    decode nothing.
    """
    embedded = embedded_parts_of(path)
    fault = InvalidEventError(embedded.fault) if embedded.fault else None
    if fault is not None and whole:
        return LogFile(str(path)), fault
    if LOG not in embedded.parts:
        text = f"{path} contains no log; open it in a browser or a notebook, or export it with its log"
        return LogFile(str(path)), fault or InvalidEventError(text)
    try:
        log = _log_of(embedded)
    except (InvalidEventError, NewerStoreError) as error:
        return LogFile(str(path)), error
    return log, fault


def log_of(name: str, metadata: Mapping[str, Any]) -> LogFile:
    """Return the log that a notebook's metadata contain (as written by `metadata_of`); raise InvalidEventError if it is
    damaged.
    """
    return _log_of(_of_metadata(name, metadata))


def _log_of(embedded: EmbeddedParts) -> LogFile:
    columns = embedded.data(LOG)
    text_list = embedded.data(TEXTS)
    try:
        texts = whole_texts(text_list)
        if type(columns["form"]) is int and columns["form"] > FORM:
            raise NewerStoreError(_newer(embedded.name, columns["form"]))
        # The part `log` has None for data that the part `run` has.
        shown_data: dict[int, Any] = {}
        if RUN in embedded.parts:
            view = with_texts(embedded.data(RUN)["view"], texts)
            shown_data = dict(zip(view["events"]["sequence"], view["data"], strict=True))
        log = read_records(_records(columns, whole_texts(columns["texts"], texts), shown_data), embedded.name)
        log.status = present_status(str(columns["status"]))
        # `_intact_parts` has verified the checksums of all parts.
        log.is_verified = True
    # These errors mean intact JSON that does not have the form of a log.
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise InvalidEventError(
            f"{embedded.name}: its log has the wrong format: {type(error).__name__}: {error}"
        ) from None
    return log


def _records(
    columns: Mapping[str, Any], texts: Sequence[str], shown_data: Mapping[int, Any]
) -> Iterator[dict[str, Any]]:
    # The reverse of `columns_of`: times are summed up, and numbers become names.
    names = columns["names"]
    rows = zip(
        columns["id"],
        accumulate(columns["time"]),
        *([names[place] for place in columns[column]] for column in ("type", "path", "step")),
        columns["data"],
        strict=True,
    )
    for sequence, (end, time, kind, path, step, plain) in enumerate(rows, 1):
        yield {
            "id": f"{columns['prefix']}{end}",
            "execution_id": columns["execution_id"],
            "sequence": sequence,
            "timestamp": to_datetime(time).isoformat(timespec="microseconds"),
            "event_type": kind,
            "path": path,
            "step": step,
            "data": shown_data[sequence] if plain is None else with_texts(plain, texts),
        }


# --- long texts ---


class LongTexts:
    """List of the distinct long strings in plain data, so that each is written only once. `without` replaces each long
    string in the data by a reference, its number in this list.

    For example, ``without(["a long string that occurs twice"] * 2)`` returns two marks with the same number. Strings
    with the same beginning are neighbours in the list, so that deflate finds the repetition.

    A string of several lines is listed as its pieces, since documents of several answers repeat each answer of a model
    (test_a_document_of_all_answers_costs_little).

    Parameters
    ----------
    value
        Plain data with the strings.
    other
        List of another part. The numbers of this list continue after it.
    """

    def __init__(self, value: Any, other: LongTexts | None = None) -> None:
        # The dict {first characters: [strings that begin with them]} makes strings with the same beginning neighbours.
        texts_by_start: dict[str, list[str]] = {}
        self._places: dict[str, int] = {} if other is None else other.places()
        first = len(self._places)
        listed = set(self._places)
        for text in _texts_in(value):
            # The pieces become entries of their own, to which the entry of the whole string refers.
            for piece in (*_pieces(text), text):
                if len(piece) >= LONG_TEXT and piece not in listed:
                    listed.add(piece)
                    texts_by_start.setdefault(piece[:LONG_TEXT], []).append(piece)
        ordered = [text for texts in texts_by_start.values() for text in sorted(texts, key=len)]
        self._places |= {text: first + number for number, text in enumerate(ordered)}
        self.listed: list[Any] = [self._pieced(text) or text for text in ordered]
        """List of long strings as written: each entry is a string, or a list of pieces that may be references."""

    def places(self) -> dict[str, int]:
        """Return a dict with the number of each long string in this list, by string."""
        return {**self._places}

    def without(self, value: Any) -> Any:
        """Return plain data in which each long string is replaced by a reference, its number in this list; `with_texts`
        restores the strings.
        """
        if isinstance(value, str):
            return self._short(value)
        if isinstance(value, list):
            return [self.without(part) for part in value]
        return {name: self.without(part) for name, part in value.items()} if isinstance(value, dict) else value

    def _pieced(self, text: str) -> list[str]:
        return [self._short(piece) for piece in _pieces(text)]

    def _short(self, text: str) -> str:
        if len(text) < LONG_TEXT:
            # "\x7f5" would be read as a reference to string 5, so it is written as "\x7f'\x7f5".
            return f"{MARK}{LITERAL}{text}" if text.startswith(MARK) else text
        return f"{MARK}{self._places[text]}"


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) >= LONG_TEXT:
            yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(part)


def _pieces(text: str) -> list[str]:
    """Split a string of several lines into lines, line breaks and labels of headings, so that equal lines of several
    strings are written only once. Return an empty list for a string of one line.
    """
    if "\n" not in text:
        return []
    return [piece for piece in _BORDER.split(text) if piece]


def whole_texts(new: Sequence[Any], earlier: Sequence[str] = ()) -> list[str]:
    """Return the long strings `earlier`, then those of `new`, as one list for `with_texts`. An item of `new` may be a
    list of pieces instead of a string; the pieces are joined.

    Raises the errors of `with_texts`.
    """
    texts: list[Any] = [*earlier, *new]
    return ["".join(with_texts(text, texts)) if isinstance(text, list) else str(text) for text in texts]


def with_texts(value: Any, texts: Sequence[str]) -> Any:
    """Return plain data with its long strings restored. Each reference that `LongTexts.without` inserted is replaced by
    the string with that number in `texts`.

    Raises IndexError, TypeError or ValueError for an invalid reference.
    """
    if isinstance(value, str) and value.startswith(MARK):
        if value.startswith(LITERAL, 1):
            return value[2:]
        # `int` also reads "-1", which would be the last string, and digits of other languages.
        if _NUMBER.fullmatch(value, 1) is None:
            raise ValueError(f"{value!r} is not a reference")
        return texts[int(value[1:])]
    if isinstance(value, list):
        return [with_texts(part, texts) for part in value]
    return {name: with_texts(part, texts) for name, part in value.items()} if isinstance(value, dict) else value


# --- finalizers ------------------------------------------------------------------------------------------------------
#
# Closing of connections as soon as nothing refers to their store, without waiting for the garbage collector.


P = ParamSpec("P")
T = TypeVar("T")


class Closable(Protocol):
    """Protocol of an object with a method `close`, such as a database connection."""

    def close(self) -> None:
        """Release all resources of the object, such as files and sockets."""
        ...


def close_when_dropped(owner: object, connection: Closable) -> None:
    """Register a connection to be closed when its owner is garbage-collected.

    At the end of the process the connection stays open, because a thread may still use it.
    """
    weakref.finalize(owner, connection.close).atexit = False


def weak_method(method: Callable[P, T]) -> Callable[P, T]:
    """Return a function that calls a method of an object without keeping the object alive.

    A store passes its methods to its parts in this way. Without the reference cycle, Python drops the store, and closes
    its files, as soon as nothing else refers to it.
    """
    reference = weakref.WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        present = reference()
        if present is None:
            raise ReferenceError("a store was used after its last reference was deleted")
        return present(*args, **kwargs)

    return call
