"""What the facts of a record are written as, a type and its data, and how they are read again.

A record of one fact is written as its event always was. The type of several facts is made of their names
(``step_started+operation_started``), their data are a JSON list, a line each. Of a value that an earlier one of them
has in full only the place is written: ``{"$type": "same", "value": [0, "result"]}`` (`divebook.store.encoding`). A
user's own data cannot look like that (`divebook.store.encoding`).
"""

from __future__ import annotations

import functools
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias
from zlib import crc32

from divebook.errors import CorruptStoreError, InvalidEventError
from divebook.events.catalog import Payload
from divebook.events.codec import (
    MAX_PAYLOAD_BYTES,
    TAGGED,
    check_size,
    content_of,
    decode_payload,
    encode,
    encode_all,
    parse,
    payload_from,
)
from divebook.events.event import ALPHABET, PAIRS
from divebook.events.recorded import ATOMS, TAG, Recorded, TaggedDict
from divebook.events.values import ByHash, StoredFile, tag, untag

Body: TypeAlias = dict[str, Any]
"""What one fact says, as plain data (`Payload.to_data`)."""

JOINT = "+"
LEAST = 48
"""Characters of a text that may have a reference in its place."""
_SHORT = ATOMS - {str}
_SAME = f'{{"{TAG}":"same",'.encode()


@functools.lru_cache(maxsize=1024)
def type_of(kinds: tuple[type[Payload], ...]) -> str:
    """Return the type of a record, by the classes of its facts."""
    return JOINT.join([kind.event_type for kind in kinds])


@functools.cache
def names_of(record_type: str) -> tuple[str, ...]:
    """Return the event types that a record's type is made of."""
    return tuple(record_type.split(JOINT))


def width_of(record_type: str) -> int:
    """Return how many events a record of that type stands for."""
    return record_type.count(JOINT) + 1


def encode_facts(bodies: Sequence[Body], tagged: Callable[[Any], Any] = tag) -> bytes:
    """Return the data of a record; `tagged` as for `encode_all`."""
    return joined(encode_all(bodies, tagged))


def joined(lines: Sequence[bytes]) -> bytes:
    """Return the data of a record whose facts are encoded."""
    return lines[0] if len(lines) == 1 else b"[" + b",\n".join(lines) + b"]"


def places(bodies: Sequence[Body], first: int = 0) -> list[tuple[Any, Any, list[Any]]]:
    """Return the values that may be long: what holds each, under which key, and its place in the record."""
    found: list[tuple[Any, Any, list[Any]]] = []
    for index, body in enumerate(bodies, first):
        for key, value in body.items():
            if key == "mutations":
                held = ((number, mutation) for number, mutation in enumerate(value) if "value" in mutation)
                found += [
                    (mutation, "value", [index, key, number, "value"])
                    for number, mutation in held
                    if _may_be_long(mutation["value"])
                ]
            elif type(value) not in _SHORT and _may_be_long(value):
                found.append((body, key, [index, key]))
    return found


def _may_be_long(value: Any) -> bool:
    kind = type(value)
    if kind in ATOMS or kind is bytes:
        return (kind is str or kind is bytes) and len(value) >= LEAST
    return kind is dict or kind is list or isinstance(value, Recorded)


def split(record_type: str, data: bytes) -> list[bytes]:
    """Return the JSON of each fact as an event of its own would have it; `data` are opened, and whole.

    Raises
    ------
    CorruptStoreError
        They are not what that type looks like.
    """
    if JOINT not in record_type:
        return [data]
    if _SAME not in data:
        lines = data[1:-1].split(b",\n")
        if len(lines) == width_of(record_type):
            return lines
    return [encode(body) for body in _bodies(record_type, data)]


def decode_facts(record_type: str, data: bytes) -> list[Payload]:
    """Return the facts of a record; `data` are opened, and whole.

    Raises
    ------
    NewerStoreError
        The type is not known: a newer version wrote it.
    CorruptStoreError
        The data are not what that type looks like.
    """
    if JOINT not in record_type:
        return [decode_payload(record_type, data)]
    bodies = _bodies(record_type, data)
    try:
        if TAGGED in data:
            bodies = [untag(body) for body in bodies]
        return [payload_from(name, body) for name, body in zip(names_of(record_type), bodies, strict=True)]
    except (ValueError, KeyError, TypeError, InvalidEventError) as error:
        raise _unreadable(record_type, error) from error


def _bodies(record_type: str, data: bytes) -> list[Body]:
    """Return what the facts say, with what stands for a value of another fact put right."""
    try:
        bodies: list[Body] = parse(data)
        _check_count(bodies, width_of(record_type))
        if _SAME in data:
            for index, body in enumerate(bodies):
                for holder, key, _ in places([body], index):
                    holder[key] = _resolved(holder[key], bodies[: index + 1])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _unreadable(record_type, error) from error
    return bodies


def _check_count(bodies: Any, width: int) -> None:
    count = len(bodies) if isinstance(bodies, list) else 0
    if count != width:
        raise ValueError(f"it has {count} of {width} events")


def _resolved(value: Any, earlier: Sequence[Body]) -> Any:
    if type(value) is not dict or value.get(TAG) != "same":
        return value
    found: Any = earlier
    for part in value["value"]:
        found = found[part]
    return found


def _unreadable(record_type: str, error: Exception) -> CorruptStoreError:
    return CorruptStoreError(f"a {record_type} record cannot be read: {error}")


# Data of records and checkpoints that are worth compressing, as a store that keeps them writes them.
#
# What is packed begins with a byte that no JSON does. A window of 4 KB makes the start cheap: about 10 microseconds for
# a kilobyte, where zlib's own takes 60.


PACKED_FROM = 1000
"""Bytes from which on it is tried; shorter data would share a page of a file with others anyway."""
_WINDOW = 12
_MEMORY = 5
_LEVEL = 1
PACKED = b"H"
"""How what is compressed with that window begins."""
_SAMPLE = 2048
_LONG = 8192
_WORTH = 0.9  # of the size; what shrinks less is kept as it is


def pack(data: bytes) -> bytes:
    """Return data compressed; as they are where that does not pay."""
    if len(data) < PACKED_FROM or (len(data) > _LONG and not _pays(data[:_SAMPLE])):
        return data
    packed = _compressed(data)
    return packed if len(packed) <= _WORTH * len(data) else data


def _pays(sample: bytes) -> bool:
    return len(_compressed(sample)) <= _WORTH * len(sample)


def _compressed(data: bytes) -> bytes:
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY)
    return compressor.compress(data) + compressor.flush()


def unpack(data: bytes) -> bytes:
    """Return data as they were before they were packed, if they were.

    Raises
    ------
    CorruptStoreError
        They are not whole, or nobody wrote them so.
    """
    if data[:1] != PACKED:
        return data
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(data, MAX_PAYLOAD_BYTES)
    except zlib.error as error:
        raise CorruptStoreError(f"packed data are damaged: {error}") from error
    if not inflater.eof or inflater.unused_data:
        raise CorruptStoreError("packed data are cut off, or longer than any record")
    return found


# Large values, stored once per content and referred to by their hash.
#
# In the payload of an event, the encoded JSON of a large value is replaced by the JSON of a reference, and put back on
# reading, so no code outside the store ever meets one. A user's own data cannot look like a reference: a dict that has
# the key ``$type`` is itself written in tagged form.


BLOB_BYTES = 64 * 1024
"""Values whose JSON is longer become blobs."""

Blobs: TypeAlias = Mapping[bytes, bytes]
"""From the SHA-256 of a content to the content, which is JSON."""

Fetch: TypeAlias = Callable[[bytes], bytes | None]
"""Returns the content with a hash; None if it is missing."""

_MARK = f'{{"{TAG}":"blob",'.encode()
_REFERENCE = re.compile(re.escape(_MARK) + rb'"value":\["([0-9a-f]{64})",[0-9]+\]\}')
_FILE_MARK = f'{{"{TAG}":"{StoredFile.tag}",'.encode()
_FILE = re.compile(re.escape(_FILE_MARK) + rb'"value":\["([0-9a-f]{64})",[0-9]+\]\}')
MOST_OF_A_CHARACTER = 6
"""Bytes that a character or byte takes in JSON at most."""
_LATELY = 64
"""Contents that a store remembers to have packed."""
_FEW, _TOGETHER = 16, 512
"""Parts that are looked at one by one, and how many of more are encoded together."""
_SAMPLE_BYTES = 16 * 1024
_PIECE = 1024 * 1024
_REPEATS = 0.8  # of what the code alone leaves: what looking for repeats must leave at most to be worth its time


def outsource(data: Any) -> tuple[bytes, dict[bytes, bytes]]:
    """Encode a large payload with references in place of its large values; return it and their contents.

    The smallest value that is still large becomes the blob, so that a text is stored once, whether it is the result of
    an operation, the output of a step or the value of a variable.
    """
    blobs: dict[bytes, bytes] = {}
    line = encode(_shrink(data, blobs))
    check_size(len(line) + sum(map(len, blobs.values())))
    return line, blobs


def is_large(value: Any) -> bool:
    """Return whether a value is seen to be large, without encoding it; many a large one is not."""
    if isinstance(value, str | bytes):
        return len(value) > BLOB_BYTES
    if isinstance(value, dict | list):
        if len(value) > _FEW:
            return 2 * len(value) > BLOB_BYTES
        return any(map(is_large, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Recorded) and value.least_bytes() > BLOB_BYTES


def _shrink(value: Any, blobs: dict[bytes, bytes]) -> Any:
    """Return what is written in place of a value; what is small stays as it is."""
    if isinstance(value, str | bytes):
        if len(value) * MOST_OF_A_CHARACTER <= BLOB_BYTES:
            return value
    elif isinstance(value, dict | list):
        if type(value) is not TaggedDict:  # one is written as a list of pairs
            value = _without_large(value, blobs)
    elif isinstance(value, Recorded):
        value = value.parts(lambda item: _shrink(item, blobs))
    else:
        return value
    content = encode(value)
    return value if len(content) <= BLOB_BYTES else reference(content, blobs)


def _without_large(value: Any, blobs: dict[bytes, bytes]) -> Any:
    """Return a mapping or list with its parts shrunk; itself, where none of them is large."""
    keys: Sequence[Any] = list(value) if isinstance(value, dict) else range(len(value))
    changed: Any = value
    for key in keys if len(keys) <= _FEW else _large(value, keys):
        part = _shrink(value[key], blobs)
        if part is not value[key]:
            changed = value.copy() if changed is value else changed
            changed[key] = part
    return changed


def _large(value: Any, keys: Sequence[Any]) -> Iterator[Any]:
    """Give the keys of the parts that are large; many small ones are encoded together, since most are."""
    if len(keys) > _TOGETHER:
        for start in range(0, len(keys), _TOGETHER):
            yield from _large(value, keys[start : start + _TOGETHER])
    elif len(encode([value[key] for key in keys])) > BLOB_BYTES:
        if len(keys) == 1:
            yield keys[0]
            return
        yield from _large(value, keys[: len(keys) // 2])
        yield from _large(value, keys[len(keys) // 2 :])


def reference(content: bytes, blobs: dict[bytes, bytes]) -> dict[str, Any]:
    """Note a content and return what stands for it."""
    digest = sha256(content).digest()
    blobs[digest] = content
    return {TAG: "blob", "value": [digest.hex(), len(content)]}


def by_reference(value: Any, blobs: dict[bytes, bytes]) -> Any:
    """Return plain data with references in place of the values that are kept by their hash, however short."""
    kind = type(value)
    if kind is ByHash:
        return {TAG: ByHash.tag, "value": reference(content_of(value), blobs)}
    if kind is StoredFile and value.content is not None:
        blobs[bytes.fromhex(value.digest)] = value.content
    if kind is dict:
        return {key: by_reference(item, blobs) for key, item in value.items()}
    return [by_reference(item, blobs) for item in value] if kind is list else value


def references(payload: bytes) -> list[bytes]:
    """Return the hashes that a stored payload, or the content of a blob, refers to."""
    return [bytes.fromhex(found.decode()) for found in _REFERENCE.findall(payload)] if _MARK in payload else []


def files_in(payload: bytes, fetch: Fetch) -> Iterator[bytes]:
    """Yield the hashes of the files that a stored payload names, directly or in the contents of others."""
    if _FILE_MARK in payload:
        yield from (bytes.fromhex(found.decode()) for found in _FILE.findall(payload))
    for digest in references(payload):
        yield from files_in(fetch(digest) or b"", fetch)


def reached(payload: bytes, fetch: Fetch) -> Iterator[bytes]:
    """Yield the hashes that a stored payload refers to, directly or through the contents of others.

    What a file holds is nobody's reference, whatever it reads like (test_a_file_that_reads_like_a_reference_is_none).
    """
    if _FILE_MARK in payload:
        yield from (bytes.fromhex(found.decode()) for found in _FILE.findall(payload))
    for digest in references(payload):
        yield digest
        yield from reached(fetch(digest) or b"", fetch)


def embed(payload: bytes, fetch: Fetch) -> bytes:
    """Put the contents back in place of their references.

    Raises
    ------
    CorruptStoreError
        `fetch` has no content for a hash.
    """
    if _MARK not in payload:
        return payload

    def content(match: re.Match[bytes]) -> bytes:
        found = fetch(bytes.fromhex(match[1].decode()))
        if found is None:
            raise CorruptStoreError(f"the large value {match[1][:12].decode()}... is missing")
        return embed(found, fetch)

    return _REFERENCE.sub(content, payload)


@dataclass(frozen=True, slots=True)
class Packed:
    """A content as it rests on disk: compressed, if that makes it smaller."""

    compressed: bool
    data: bytes | bytearray


def verified(digest: bytes, content: bytes) -> bytes:
    """Return the content; CorruptStoreError if it is not what its name promises."""
    if sha256(content).digest() != digest:
        raise CorruptStoreError(f"the large value {digest.hex()[:12]}... does not have the content its name promises")
    return content


def pack_blob(content: bytes) -> Packed:
    """Compress a content if it pays; a sample tells, so that pictures cost next to nothing."""
    sample = content[:_SAMPLE_BYTES]
    coded = len(_deflated(sample, zlib.Z_HUFFMAN_ONLY))
    sought = len(_deflated(sample, zlib.Z_DEFAULT_STRATEGY))
    if min(coded, sought) > _WORTH * len(sample):
        return Packed(compressed=False, data=content)
    # Of base64 or hexadecimal digits only the code is dense, and looking for repeats takes thrice as long.
    repeats = sought < _REPEATS * coded
    return Packed(compressed=True, data=_deflated(content, zlib.Z_DEFAULT_STRATEGY if repeats else zlib.Z_HUFFMAN_ONLY))


def packed_but(blobs: Blobs, lately: dict[bytes, None]) -> dict[bytes, Packed]:
    """Return contents as they will be written, but for those that came lately, which are there; note these."""
    packed = {digest: pack_blob(blobs[digest]) for digest in blobs.keys() - lately.keys()}
    lately |= dict.fromkeys(packed)
    for digest in list(lately)[:-_LATELY]:
        lately.pop(digest, None)
    return packed


def _deflated(content: bytes, strategy: int) -> bytes | bytearray:
    compressor = zlib.compressobj(1, strategy=strategy)
    # piece by piece, so that what is made lies in memory once
    rest = memoryview(content)
    pieces = bytearray()
    while rest:
        pieces += compressor.compress(rest[:_PIECE])
        rest = rest[_PIECE:]
    pieces += compressor.flush()
    return pieces


def unpack_blob(packed: Packed) -> bytes:
    """Return the content.

    Raises
    ------
    CorruptStoreError
        It cannot be decompressed.
    """
    try:
        return zlib.decompress(packed.data) if packed.compressed else bytes(packed.data)
    except (zlib.error, TypeError) as error:  # TypeError: no bytes at all
        raise CorruptStoreError(f"a large value is damaged: {error}") from error


# Values that are written once though the records of a batch hold them several times.
#
# What a step returns is the result of its call, its output and the value of a variable, and then the parameter of
# another call. Within a record only the place of the first is written again (`divebook.store.encoding`), so that a
# record can be read by itself. What several records hold becomes a blob, as large values do
# (`divebook.store.encoding`).


NOTABLE = 384
"""Bytes of a record's data from which on it may hold something twice that is worth a reference."""
SHARED_BYTES = 512
"""Length of a value that is worth a blob because several records hold it."""
LARGE = b""
"""Stands for data that are not encoded yet, since values are to be put aside first."""


def spare(bodies: Sequence[Sequence[Body]], payloads: list[bytes]) -> dict[bytes, bytes]:
    """Encode the records of a batch anew where they hold long values twice, or large ones; return the blobs."""
    blobs: dict[bytes, bytes] = {}
    notable = [index for index, payload in enumerate(payloads) if payload is LARGE or len(payload) > NOTABLE]
    chosen = {index: _without_repeats(bodies[index]) for index in notable}
    longer = [index for index in notable if payloads[index] is LARGE or len(payloads[index]) > SHARED_BYTES]
    if len(longer) > 1:  # the others have no place for a value of that length
        chosen |= zip(longer, _share([chosen[index] for index in longer], blobs), strict=True)
    for index, body in chosen.items():
        if body is not bodies[index] and payloads[index] is not LARGE:
            payloads[index] = encode_facts(body)
        if payloads[index] is LARGE or len(payloads[index]) > BLOB_BYTES:
            lines, contents = zip(*map(outsource, body), strict=True)
            payloads[index] = joined(lines)
            for found in contents:
                blobs |= found
    return blobs


def _without_repeats(bodies: Sequence[Body]) -> Sequence[Body]:
    """Return the bodies of a record with references in place of values that an earlier one has in full."""
    known: list[tuple[Any, list[Any]]] = []
    shortened: list[Body] | None = None
    for holder, key, place in places(bodies) if len(bodies) > 1 else ():
        value = holder[key]
        for other, where in known:
            if (other is value or (type(value) is str and other == value)) and not _is_short(value):
                shortened = shortened or list(bodies)
                index = place[0]
                shortened[index] = _replaced(shortened[index], place[1:], {TAG: "same", "value": where})
                break
        else:
            known.append((value, place))
    return shortened or bodies


def _is_short(value: Any) -> bool:
    return isinstance(value, dict | list) and len(value) < LEAST and len(encode(value)) < LEAST


def _replaced(value: Any, place: Sequence[Any], by: Any) -> Any:
    """Return a copy of plain data with something else at a place."""
    if not place:
        return by
    copy = value.copy()
    copy[place[0]] = _replaced(value[place[0]], place[1:], by)
    return copy


def _share(bodies: Sequence[Sequence[Body]], blobs: dict[bytes, bytes]) -> list[Sequence[Body]]:
    """Return the bodies of records with references in place of values that stand there more than once.

    Large values are left alone: they become blobs anyway, whose content must not depend on what lies beside them.
    """
    counts = Counter(content for body in bodies for content in _middling(body))
    repeated = {content for content, count in counts.items() if count > 1}
    return [_shared(body, repeated, blobs) for body in bodies] if repeated else list(bodies)


def _middling(value: Any) -> Iterator[bytes]:
    """Give the JSON of every value in a body that is long enough to be worth a reference."""
    parts = value.values() if type(value) is dict else value if type(value) is list else ()
    for part in parts:
        content = _content(part)
        if content is not None:
            yield content
            yield from _middling(part)


def _shared(value: Any, repeated: Collection[bytes], blobs: dict[bytes, bytes]) -> Any:
    """Replace the outermost repeated values."""

    def shared(part: Any) -> Any:
        content = _content(part)
        if content is None:
            return part
        return reference(content, blobs) if content in repeated else _shared(part, repeated, blobs)

    if type(value) is dict:
        return {key: shared(part) for key, part in value.items()}
    return [shared(part) for part in value] if type(value) is list else value


def _content(value: Any) -> bytes | None:
    """Return the JSON of a value that is neither short nor large."""
    if isinstance(value, str | bytes):
        may_be = len(value) * MOST_OF_A_CHARACTER > SHARED_BYTES
    else:
        may_be = isinstance(value, dict | list | Recorded)
    content = encode(value) if may_be and not is_large(value) else b""
    return content if SHARED_BYTES < len(content) <= BLOB_BYTES else None


# Long texts, each once, and plain data in which their numbers stand in their place.
#
# A text of a run stands in up to five of its events, and deflate looks back 32 KiB only.


LONG_TEXT = 24
"""Characters from which on a text stands in the list of texts."""
MARK, LITERAL = "\x7f", "'"
"""What begins the number of a text, and what follows the mark where a text begins with it itself."""
_BORDER = re.compile(r"(\n|^#+ [^\n:]{1,60}: )", re.MULTILINE)


class LongTexts:
    """Long texts, each once; those that begin alike stand together, since deflate finds them there.

    A text of several lines is a list of its pieces: what a model wrote stands once more in a document of all answers
    (test_a_document_of_all_answers_costs_little).

    Parameters
    ----------
    value
        Plain data with the texts in it.
    known
        LongTexts that are listed elsewhere, to whose end these are added.
    """

    def __init__(self, value: Any, known: LongTexts | None = None) -> None:
        alike: dict[str, list[str]] = {}
        self._places: dict[str, int] = {} if known is None else known.places()
        first = len(self._places)
        seen = set(self._places)
        for text in _texts_in(value):
            for piece in (*_pieces(text), text):
                if len(piece) >= LONG_TEXT and piece not in seen:
                    seen.add(piece)
                    alike.setdefault(piece[:LONG_TEXT], []).append(piece)
        ordered = [text for texts in alike.values() for text in sorted(texts, key=len)]
        self._places |= {text: first + number for number, text in enumerate(ordered)}
        self.listed: list[Any] = [pieces if (pieces := self._pieced(text)) else text for text in ordered]
        """What the part has: a text, or a list of what makes it."""

    def places(self) -> dict[str, int]:
        """Return the numbers of the texts."""
        return {**self._places}

    def without(self, value: Any) -> Any:
        """Return plain data in which the number of a text stands where the text was."""
        if isinstance(value, str):
            return self._short(value)
        if isinstance(value, list):
            return [self.without(part) for part in value]
        return {name: self.without(part) for name, part in value.items()} if isinstance(value, dict) else value

    def _pieced(self, text: str) -> list[str]:
        return [self._short(piece) for piece in _pieces(text)]

    def _short(self, text: str) -> str:
        if len(text) < LONG_TEXT:
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
    """Return the lines of a text, their ends and the names of headings by themselves; nothing for a single line."""
    return [piece for piece in _BORDER.split(text) if piece] if "\n" in text else []


def whole_texts(listed: Sequence[Any], known: Sequence[str] = ()) -> list[str]:
    """Return listed texts, which follow those that are known, as they were; raises what `with_texts` does."""
    found: list[Any] = [*known, *listed]
    return ["".join(with_texts(text, found)) if isinstance(text, list) else str(text) for text in found]


def with_texts(value: Any, texts: Sequence[str]) -> Any:
    """Return plain data with the texts whose numbers it has; raises IndexError, TypeError or ValueError."""
    if isinstance(value, str) and value.startswith(MARK):
        return value[2:] if value.startswith(LITERAL, 1) else texts[int(value[1:])]
    if isinstance(value, list):
        return [with_texts(part, texts) for part in value]
    return {name: with_texts(part, texts) for name, part in value.items()} if isinstance(value, dict) else value


# A checksum per record, chained: each covers its record and all before it in the same log.
#
# Rows that belong to no chain have a checksum of their own (`of_row`). CRC-32 finds accidents, which is what happens to
# files: a changed byte anywhere in a record, records exchanged, records missing. It is not a seal against people, and
# it costs 5 bytes and less than a microsecond a record.


def head(recorded_at: int, event_type: str, event_id: str, path: str, step: str) -> bytes:
    """Return what stands before the payload in the bytes that a checksum is made of."""
    return f"{recorded_at}\n{event_type}\n{event_id}\n{path}\n{step}\n".encode()


def of_row(columns: Iterable[object]) -> int:
    """Return the checksum of a row; a value of another type gives another one."""
    return crc32(repr(tuple(columns)).encode())


def chain(previous: int, heads: Iterable[bytes], payloads: Iterable[bytes]) -> list[int]:
    """Return the checksums of records that follow one with checksum `previous`; 0 stands before the first."""
    # Each begins from the one before: records that were exchanged or left out do not fit, though each is unchanged
    # (test_the_checksum_of_an_event_covers_those_before).
    return [
        previous := crc32(payload, crc32(before, previous)) for before, payload in zip(heads, payloads, strict=True)
    ]


# Ids of events as 16 bytes each.


_PREFIX = "event_"
_LENGTH = len(_PREFIX) + 26
_DIGITS = dict(zip(ALPHABET, "0123456789abcdefghijklmnopqrstuv", strict=True))  # those of int(text, 32)
_TO_DIGITS = "".join(_DIGITS.get(chr(code), "!") for code in range(256)).encode()  # int() refuses "!"
_SHIFTS = tuple(range(120, -1, -10))


def pack_id(event_id: str) -> bytes | str:
    """Return the 16 bytes that stand for ``event_`` and 26 characters; any other text as it is."""
    if len(event_id) != _LENGTH or not event_id.startswith(_PREFIX):
        return event_id
    try:
        return int(event_id[6:].encode().translate(_TO_DIGITS), 32).to_bytes(16, "big")
    except (ValueError, OverflowError):  # not in the alphabet (surrogates: not in UTF-8), or more than 128 bits
        return event_id


def unpack_id(packed: bytes | str) -> str:
    """Undo `pack_id`; what is damaged becomes a text that no event has."""
    if not isinstance(packed, bytes):
        return str(packed)
    value = int.from_bytes(packed, "big")
    return _PREFIX + "".join([PAIRS[value >> shift & 0x3FF] for shift in _SHIFTS])


# Files that only their owner may read: stores and what lies beside them, exports.


FILE = 0o600
FOLDER = 0o700


def opener(path: str, flags: int) -> int:
    """Open a file for `open`; one that is new belongs to its owner only."""
    return os.open(path, flags, FILE)
