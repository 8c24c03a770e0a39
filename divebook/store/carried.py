"""A log that a page or a notebook carries: by columns, each long text once, packed into parts with a checksum each.

A part is JSON, deflated, in base64. ``texts`` are the long texts, of which the other parts name the numbers: a text
stands in up to five events, and deflate looks back 32 KiB only. ``run`` is what a page shows (`divebook.export.page`);
``log`` are the events, which name those of ``run`` where both hold the same. In a page the parts are scripts that no
browser runs, and its last line has a checksum of all bytes before it; in a notebook they stand in its metadata, where
running its cells or clearing their outputs leaves them alone. In the browser ``widgets/src/page/parts.ts`` checks.

CRC-32 finds accidents, as in `divebook.store.checksums`; it is not a signature.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeGuard

from divebook._version import __version__
from divebook.errors import InvalidEventError, NewerStoreError, StoreError
from divebook.events.codec import parse
from divebook.events.event import Event, to_datetime
from divebook.store.lines import LogFile, read_records
from divebook.store.long_texts import LongTexts, whole_texts, with_texts

FORM = 1
PAGE, NOTEBOOK = (".html", ".htm"), ".ipynb"
TEXTS, RUN, LOG, VIEWER = "texts", "run", "log", "viewer"
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
    own, names = LongTexts([*data], texts), {"": 0}
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
    first, last = min(ids), max(ids)
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
    columns, listed = carried.data(LOG), carried.data(TEXTS)
    try:
        texts = whole_texts(listed)
        if type(columns["form"]) is int and columns["form"] > FORM:
            raise NewerStoreError(_newer(carried.name, columns["form"]))
        shown: dict[int, Any] = {}
        if RUN in carried.parts:
            view = with_texts(carried.data(RUN)["view"], texts)
            shown = dict(zip(view["events"]["sequence"], view["data"], strict=True))
        log = read_records(_records(columns, whole_texts(columns["texts"], texts), shown), carried.name)
        log.status, log.is_verified = str(columns["status"]), True
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
