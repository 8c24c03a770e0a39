"""Binary format of records in a store: events as JSON, compression, large and repeated values, checksums, packed ids.

A record of one fact has the type of its event, and the fact as JSON. A record of several facts has a type that joins
their names, and a JSON list with one line for each fact::

    step_started+operation_started
    [{"step": "add", ...},
    {"operation_type": "script", ...}]

A value that an earlier fact of the same record contains in full is written as a reference to that place:
``{"$type": "same", "value": [0, "result"]}``. Large values are stored apart from the records, under their hash. User
data cannot be mistaken for such references: a dict with the key ``$type`` is itself written in tagged form.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias
from zlib import crc32

from divebook.errors import CorruptStoreError, InvalidEventError, StoreError
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
from divebook.events.upcast import present_type
from divebook.events.values import ByHash, StoredFile, untag

Body: TypeAlias = dict[str, Any]
"""Plain data (a dict) of one event payload, as `Payload.to_data` returns it."""

JOINT = "+"
"""Separator of the event types in the type of a record with several facts."""
MIN_LENGTH = 48
"""Minimum length of a string, in characters, that may be replaced by a reference."""
_SHORT = ATOMS - {str}
_SAME = f'{{"{TAG}":"same",'.encode()


@functools.lru_cache(maxsize=1024)
def type_of(kinds: tuple[type[Payload], ...]) -> str:
    """Return the type of a record (a group of events written together): the names of its event types, joined, such as
    ``step_started+operation_started``.
    """
    return JOINT.join([kind.event_type for kind in kinds])


@functools.cache
def names_of(record_type: str) -> tuple[str, ...]:
    """Return the names of the event types that the type of a record consists of, such as ``step_started`` and
    ``operation_started`` for ``step_started+operation_started``. Types that were renamed get their present names.
    """
    return tuple(map(present_type, record_type.split(JOINT)))


def width_of(record_type: str) -> int:
    """Return the number of events in a record (a group of events written together), from the record's type."""
    return record_type.count(JOINT) + 1


def joined(lines: Sequence[bytes]) -> bytes:
    """Join the JSON texts of a record's events to the encoded data of the record. A single text is returned unchanged;
    several texts form a JSON list.
    """
    return lines[0] if len(lines) == 1 else b"[" + b",\n".join(lines) + b"]"


def places(bodies: Sequence[Body], first: int = 0) -> list[tuple[Any, Any, list[Any]]]:
    """Return the values in the payloads of a record's events that may be long. For each value, return the dict that
    contains it, its key in this dict, and the path from the record to the value.

    The searched values are the fields of facts, and the values of variables that a fact changes. `first` is the index
    of the first body in the record.
    """
    long_values: list[tuple[Any, Any, list[Any]]] = []
    for index, body in enumerate(bodies, first):
        for key, value in body.items():
            # Most fields are numbers and short strings.
            if type(value) in _SHORT or (type(value) is str and len(value) < MIN_LENGTH):
                continue
            # Mutations are a list of changes of variables, [{"variable": ..., "value": ...}, ...]. Only the values may
            # be long.
            if key == "mutations":
                for number, mutation in enumerate(value):
                    if "value" in mutation and _may_be_long(mutation["value"]):
                        long_values.append((mutation, "value", [index, key, number, "value"]))
            elif _may_be_long(value):
                long_values.append((body, key, [index, key]))
    return long_values


def _may_be_long(value: Any) -> bool:
    kind = type(value)
    if kind in ATOMS or kind is bytes:
        return (kind is str or kind is bytes) and len(value) >= MIN_LENGTH
    return kind is dict or kind is list or isinstance(value, Recorded)


def split(record_type: str, data: bytes) -> list[bytes]:
    """Split the data of a record into one JSON text for each of its events. The data must be decrypted, and contain
    large values instead of references to them.

    Raises
    ------
    CorruptStoreError
        The data do not have the form of that type.
    """
    if JOINT not in record_type:
        return [data]
    # The usual case needs no parsing. JSON escapes line breaks inside of strings, so these bytes only separate events.
    if _SAME not in data:
        lines = data[1:-1].split(b",\n")
        if len(lines) == width_of(record_type):
            return lines
    return [encode(body) for body in _bodies(record_type, data)]


def decode_facts(record_type: str, data: bytes) -> list[Payload]:
    """Decode the data of a record to the payloads of its events. The data must be decrypted, and contain large values
    instead of references to them.

    Raises
    ------
    NewerStoreError
        The type is unknown: a newer version wrote it.
    CorruptStoreError
        The data do not have the form of that type.
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
    """Decode the data of a record to plain data, one dict for each event. If an event refers to a value of an earlier
    event of the record, the value is inserted.
    """
    try:
        bodies: list[Body] = parse(data)
        _check_count(bodies, width_of(record_type))
        if _SAME in data:
            # A reference leads to an earlier event. The order ensures that its own references have been replaced
            # already.
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
    resolved: Any = earlier
    # The path [0, "result"] leads to ``bodies[0]["result"]``.
    for part in value["value"]:
        resolved = resolved[part]
    return resolved


def _unreadable(record_type: str, error: Exception) -> CorruptStoreError:
    return CorruptStoreError(f"a {record_type} record cannot be read: {error}")


# --- compression of records and checkpoints ---
# Compressed data begin with a byte that no JSON begins with. A window of 4 KB makes the setup cheap: about 10
# microseconds for a kilobyte, where zlib's default takes 60.


PACKED_FROM = 1000
"""Minimum size in bytes of data to compress. Shorter data would share a page of the file with others anyway."""
_WINDOW = 12
_MEMORY = 5
_LEVEL = 1
PACKED = b"H"
"""First byte of compressed data: the zlib header of a window of 4 KB."""
_SAMPLE = 2048
_LONG = 8192
_WORTH = 0.9  # maximum ratio of sizes; data that shrink less are stored uncompressed


def pack(data: bytes) -> bytes:
    """Return the data of a record in compressed form, or unchanged if compression saves too little."""
    # For long data, the compression of a sample decides, so that dense data cost little time.
    if len(data) < PACKED_FROM or (len(data) > _LONG and not _is_compressible(data[:_SAMPLE])):
        return data
    packed = _compressed(data)
    return packed if len(packed) <= _WORTH * len(data) else data


def _is_compressible(sample: bytes) -> bool:
    return len(_compressed(sample)) <= _WORTH * len(sample)


def _compressed(data: bytes) -> bytes:
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY)
    return compressor.compress(data) + compressor.flush()


def unpack(data: bytes) -> bytes:
    """Return data in decompressed form if `pack` has compressed them, otherwise unchanged.

    Raises
    ------
    CorruptStoreError
        The data are truncated or damaged.
    """
    if data[:1] != PACKED:
        return data
    inflater = zlib.decompressobj()
    try:
        # The size is limited, since damaged data could unpack to any size.
        unpacked = inflater.decompress(data, MAX_PAYLOAD_BYTES)
    except zlib.error as error:
        raise CorruptStoreError(f"packed data are damaged: {error}") from error
    # Data without an end are truncated, or exceed the limit.
    if not inflater.eof or inflater.unused_data:
        raise CorruptStoreError("packed data are cut off, or longer than any record")
    return unpacked


# --- large values: blobs ---
# A value whose JSON is large is stored once, under the hash of that JSON. The payload of a record has a reference in
# its place, which is replaced on reading, so that code outside the store never sees one:
#
#     {"result": "a long text ..."}  ->  {"result": {"$type": "blob", "value": ["<SHA-256>", 70002]}}


BLOB_BYTES = 64 * 1024
"""Size of a value's JSON in bytes above which the value becomes a blob."""

Blobs: TypeAlias = Mapping[bytes, bytes]
"""Mapping of the SHA-256 of a content to the content, which is JSON."""

Fetch: TypeAlias = Callable[[bytes], bytes | None]
"""Function that returns the content with a given SHA-256, or None if it is missing."""

_MARK = f'{{"{TAG}":"blob",'.encode()
_REFERENCE = re.compile(re.escape(_MARK) + rb'"value":\["([0-9a-f]{64})",[0-9]+\]\}')
_FILE_MARK = f'{{"{TAG}":"{StoredFile.tag}",'.encode()
_FILE = re.compile(re.escape(_FILE_MARK) + rb'"value":\["([0-9a-f]{64})",[0-9]+\]\}')
MAX_CHARACTER_BYTES = 6
"""Maximum number of bytes in JSON for one character or byte."""
_MAX_RECENT = 64
"""Number of contents that a store remembers as already compressed."""
_MAX_SINGLE_PARTS = 16
"""Maximum number of parts of a container that are examined one by one."""
_MAX_JOINT_PARTS = 512
"""Maximum number of parts of a larger container that are encoded together."""
_SAMPLE_BYTES = 16 * 1024
_PIECE = 1024 * 1024
# Maximum ratio of the deflated size to the size with Huffman coding alone, so that searching repeats is worth its time.
_REPEATS = 0.8


def encode_large(data: Any) -> tuple[bytes, dict[bytes, bytes]]:
    """Encode the plain data of a large event as JSON in which references replace large values. Return the JSON and the
    contents of these values (blobs) by hash.

    The smallest value that is still large becomes the blob: of a dict with one long string, the string. A string is
    thus stored once, whether it is the result of an operation, the output of a step or the value of a variable.
    """
    blobs: dict[bytes, bytes] = {}
    line = encode(_with_references(data, blobs))
    check_size(len(line) + sum(map(len, blobs.values())))
    return line, blobs


def is_large(value: Any) -> bool:
    """Return True if the JSON of a value is certainly larger than `BLOB_BYTES`. The value is not encoded for that.

    Many values that are large return False.
    """
    if isinstance(value, str | bytes):
        return len(value) > BLOB_BYTES
    if isinstance(value, dict | list):
        # Each item takes at least two bytes, a character and a comma. Many items are not visited one by one.
        if len(value) > _MAX_SINGLE_PARTS:
            return 2 * len(value) > BLOB_BYTES
        return any(map(is_large, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Recorded) and value.least_bytes() > BLOB_BYTES


def _with_references(value: Any, blobs: dict[bytes, bytes]) -> Any:
    """Return a value in which references replace the large parts. If the value itself is still large, return a single
    reference to it.
    """
    if isinstance(value, str | bytes):
        # The string is small even if each character takes the most bytes.
        if len(value) * MAX_CHARACTER_BYTES <= BLOB_BYTES:
            return value
    elif isinstance(value, dict | list):
        if type(value) is not TaggedDict:  # that is written as a list of pairs
            value = _without_large(value, blobs)
    elif isinstance(value, Recorded):
        value = value.parts(lambda item: _with_references(item, blobs))
    else:
        return value
    # The parts were replaced first, so a dict with one long string does not become a blob as a whole.
    content = encode(value)
    return value if len(content) <= BLOB_BYTES else reference(content, blobs)


def _without_large(value: Any, blobs: dict[bytes, bytes]) -> Any:
    """Return a copy of a dict or list in which references replace large items; the same object if no item is large."""
    keys: Sequence[Any] = list(value) if isinstance(value, dict) else range(len(value))
    result: Any = value
    for key in keys if len(keys) <= _MAX_SINGLE_PARTS else _large_keys(value, keys):
        part = _with_references(value[key], blobs)
        if part is not value[key]:
            # The data belong to the caller, so the first change works on a copy.
            if result is value:
                result = value.copy()
            result[key] = part
    return result


def _large_keys(value: Any, keys: Sequence[Any]) -> Iterator[Any]:
    """Yield the keys (or indices) of the large items of a dict or list that has many items.

    Up to `_MAX_JOINT_PARTS` parts are encoded together. If the result is small, all of them are small, which is the
    usual case. Otherwise each half is examined in the same way.
    """
    if len(keys) > _MAX_JOINT_PARTS:
        for start in range(0, len(keys), _MAX_JOINT_PARTS):
            yield from _large_keys(value, keys[start : start + _MAX_JOINT_PARTS])
    elif len(encode([value[key] for key in keys])) > BLOB_BYTES:
        if len(keys) == 1:
            yield keys[0]
            return
        yield from _large_keys(value, keys[: len(keys) // 2])
        yield from _large_keys(value, keys[len(keys) // 2 :])


def reference(content: bytes, blobs: dict[bytes, bytes]) -> dict[str, Any]:
    """Add a large value, encoded as JSON, to `blobs`; return the reference (hash and size) that replaces it in a
    payload.
    """
    digest = sha256(content).digest()
    blobs[digest] = content
    return {TAG: "blob", "value": [digest.hex(), len(content)]}


def by_reference(value: Any, blobs: dict[bytes, bytes]) -> Any:
    """Return plain data in which references replace the values that a store always keeps by their hash (`ByHash`). Add
    the contents of these values, and of files, to `blobs`.
    """
    kind = type(value)
    if kind is ByHash:
        return {TAG: ByHash.tag, "value": reference(content_of(value), blobs)}
    # Only the content of a file is moved; its digest and size stay in the payload.
    if kind is StoredFile and value.content is not None:
        blobs[bytes.fromhex(value.digest)] = value.content
    if kind is dict:
        return {key: by_reference(item, blobs) for key, item in value.items()}
    return [by_reference(item, blobs) for item in value] if kind is list else value


def references(payload: bytes) -> list[bytes]:
    """Return the hashes of the large values to which a stored payload, or another large value, refers directly."""
    if _MARK not in payload:
        return []
    return [bytes.fromhex(match.decode()) for match in _REFERENCE.findall(payload)]


def files_in(payload: bytes, fetch: Fetch) -> Iterator[bytes]:
    """Yield the hashes of the files that a stored payload refers to, directly or inside the large values that it refers
    to.
    """
    if _FILE_MARK in payload:
        yield from (bytes.fromhex(match.decode()) for match in _FILE.findall(payload))
    for digest in references(payload):
        yield from files_in(fetch(digest) or b"", fetch)


def reached(payload: bytes, fetch: Fetch) -> Iterator[bytes]:
    """Yield the hashes of all files and large values that a stored payload refers to, directly or through another large
    value.

    The content of a file is not searched, since it may look like a reference
    (test_a_file_that_reads_like_a_reference_is_none).
    """
    if _FILE_MARK in payload:
        yield from (bytes.fromhex(match.decode()) for match in _FILE.findall(payload))
    for digest in references(payload):
        yield digest
        yield from reached(fetch(digest) or b"", fetch)


def embed(payload: bytes, fetch: Fetch) -> bytes:
    """Return a payload in which the references to large values are replaced by the values, loaded with `fetch`.

    Raises
    ------
    CorruptStoreError
        `fetch` has no content for a hash.
    """
    if _MARK not in payload:
        return payload

    def content(match: re.Match[bytes]) -> bytes:
        blob = fetch(bytes.fromhex(match[1].decode()))
        if blob is None:
            raise CorruptStoreError(f"the large value {match[1][:12].decode()}... is missing")
        return embed(blob, fetch)

    return _REFERENCE.sub(content, payload)


@dataclass(frozen=True, slots=True)
class Packed:
    """Content of a large value (blob) as a store keeps it, compressed if that makes it smaller."""

    compressed: bool
    data: bytes | bytearray


def verified(digest: bytes, content: bytes) -> bytes:
    """Return the content of a large value if it matches the hash `digest`; otherwise raise CorruptStoreError."""
    if sha256(content).digest() != digest:
        raise CorruptStoreError(f"the large value {digest.hex()[:12]}... does not match its digest")
    return content


def pack_blob(content: bytes) -> Packed:
    """Return the content of a large value as it is stored: compressed if that saves enough."""
    # Compression of a sample decides, so that images cost almost no time.
    sample = content[:_SAMPLE_BYTES]
    huffman_size = len(_deflated(sample, zlib.Z_HUFFMAN_ONLY))
    deflated_size = len(_deflated(sample, zlib.Z_DEFAULT_STRATEGY))
    if min(huffman_size, deflated_size) > _WORTH * len(sample):
        return Packed(compressed=False, data=content)
    # Base64 and hexadecimal digits have no repeats, but Huffman coding shrinks them, in a third of the time.
    repeats = deflated_size < _REPEATS * huffman_size
    return Packed(compressed=True, data=_deflated(content, zlib.Z_DEFAULT_STRATEGY if repeats else zlib.Z_HUFFMAN_ONLY))


def pack_new_blobs(blobs: Blobs, recent: dict[bytes, None]) -> dict[bytes, Packed]:
    """Return large values in compressed form, by hash, except those in `recent`, which the store already has. Their
    hashes are added to `recent`.
    """
    # `recent` only saves time: a value that is not in it is compressed again, but stored once.
    packed = {digest: pack_blob(blobs[digest]) for digest in blobs.keys() - recent.keys()}
    recent |= dict.fromkeys(packed)
    for digest in list(recent)[:-_MAX_RECENT]:
        recent.pop(digest, None)
    return packed


def _deflated(content: bytes, strategy: int) -> bytes | bytearray:
    compressor = zlib.compressobj(1, strategy=strategy)
    # Piece by piece, so that the result is in memory only once.
    rest = memoryview(content)
    pieces = bytearray()
    while rest:
        pieces += compressor.compress(rest[:_PIECE])
        rest = rest[_PIECE:]
    pieces += compressor.flush()
    return pieces


def unpack_blob(packed: Packed) -> bytes:
    """Return the content of a large value from its stored form, decompressed if necessary.

    Raises
    ------
    CorruptStoreError
        The content cannot be decompressed.
    """
    try:
        return zlib.decompress(packed.data) if packed.compressed else bytes(packed.data)
    except (zlib.error, TypeError) as error:  # TypeError: the column does not contain bytes
        raise CorruptStoreError(f"a large value is damaged: {error}") from error


# --- repeated values ---
# The return value of a step occurs several times in a batch: as the result of a call, the output of the step, the value
# of a variable, and as a parameter of the next call. Within a record, later occurrences become references to the first
# one ("same"), so that a record can be read by itself. A value that several records contain becomes a blob, as large
# values do. For example, a record with the end of a call and the end of its step, and a long text T:
#
#     [{"result": T}, {"output": T}]   ->   [{"result": T}, {"output": {"$type": "same", "value": [0, "result"]}}]


NOTABLE = 384
"""Minimum size in bytes of a record that is searched for repeated values."""
SHARED_BYTES = 512
"""Minimum size in bytes of a value that becomes a blob because several records contain the value."""
LARGE = b""
"""Placeholder for the data of a record that are encoded later, after large values were replaced."""


def encode_repeats(bodies: Sequence[Sequence[Body]], payloads: list[bytes]) -> dict[bytes, bytes]:
    """Encode those records of a batch again that have repeated or large values, so that references replace these
    values. Change `payloads` in place; return the contents of the values (blobs) by hash.

    1. Within each long record, replace values that occur again.
    2. Among the longer records, replace values that several of them contain by blobs.
    3. Encode the changed records. If one is still large, replace its large values by blobs.
    """
    blobs: dict[bytes, bytes] = {}
    notable = [index for index, payload in enumerate(payloads) if payload is LARGE or len(payload) > NOTABLE]
    chosen = {index: _without_repeats(bodies[index]) for index in notable}
    longer = [index for index in notable if payloads[index] is LARGE or len(payloads[index]) > SHARED_BYTES]
    if len(longer) > 1:  # shorter records cannot contain a value of `SHARED_BYTES`
        chosen |= zip(longer, _replace_repeated([chosen[index] for index in longer], blobs), strict=True)
    for index, body in chosen.items():
        # A record without repeats keeps the bytes that were encoded before.
        if body is not bodies[index] and payloads[index] is not LARGE:
            payloads[index] = joined(encode_all(body))
        # Blobs come last, since a record may be short after the replacement of its repeats.
        if payloads[index] is LARGE or len(payloads[index]) > BLOB_BYTES:
            lines, contents = zip(*map(encode_large, body), strict=True)
            payloads[index] = joined(lines)
            for content in contents:
                blobs |= content
    return blobs


def _without_repeats(bodies: Sequence[Body]) -> Sequence[Body]:
    """Return the data of a record's events. A value is replaced by a reference if an earlier event of the record
    contains the same value.
    """
    first_values: list[tuple[Any, list[Any]]] = []
    shortened: list[Body] | None = None
    for holder, key, place in places(bodies) if len(bodies) > 1 else ():
        value = holder[key]
        for first_value, first_place in first_values:
            # Strings are compared by content. Other values are compared by identity, which is quick, and holds for the
            # result of a step that occurs in several facts.
            if (first_value is value or (type(value) is str and first_value == value)) and not _is_short(value):
                shortened = shortened or list(bodies)
                index = place[0]
                shortened[index] = _replaced(shortened[index], place[1:], {TAG: "same", "value": first_place})
                break
        else:
            first_values.append((value, place))
    return shortened or bodies


def _is_short(value: Any) -> bool:
    # A reference itself takes about as many bytes.
    return isinstance(value, dict | list) and len(value) < MIN_LENGTH and len(encode(value)) < MIN_LENGTH


def _replaced(value: Any, place: Sequence[Any], replacement: Any) -> Any:
    """Return a copy of plain data in which `replacement` takes the place of the value at a path, a list of keys and
    indices.
    """
    if not place:
        return replacement
    copy = value.copy()
    copy[place[0]] = _replaced(value[place[0]], place[1:], replacement)
    return copy


def _replace_repeated(bodies: Sequence[Sequence[Body]], blobs: dict[bytes, bytes]) -> list[Sequence[Body]]:
    """Return the data of several records. Each value that occurs more than once in them is stored as a blob and
    replaced by references to it.

    Large values are not replaced here. They become blobs anyway, and the content of a blob must not depend on the
    records around it.
    """
    counts = Counter(content for body in bodies for content in _medium_values(body))
    repeated = {content for content, count in counts.items() if count > 1}
    return [_with_shared(body, repeated, blobs) for body in bodies] if repeated else list(bodies)


def _medium_values(value: Any) -> Iterator[bytes]:
    """Yield the JSON of those values inside an event's data that are of medium size: long enough to be stored as a blob
    if they are repeated, but not large.
    """
    parts: Iterable[Any] = ()
    if type(value) is dict:
        parts = value.values()
    elif type(value) is list:
        parts = value
    # Parts of a small value are smaller still, and large values become blobs anyway, so neither is visited.
    for part in parts:
        content = _content(part)
        if content is not None:
            yield content
            yield from _medium_values(part)


def _with_shared(value: Any, repeated: Collection[bytes], blobs: dict[bytes, bytes]) -> Any:
    """Return an event's data in which references to blobs replace the outermost values whose JSON is in `repeated`. The
    contents are added to `blobs`.
    """

    def with_reference(part: Any) -> Any:
        content = _content(part)
        if content is None:
            return part
        return reference(content, blobs) if content in repeated else _with_shared(part, repeated, blobs)

    if type(value) is dict:
        return {key: with_reference(part) for key, part in value.items()}
    return [with_reference(part) for part in value] if type(value) is list else value


def _content(value: Any) -> bytes | None:
    """Return the JSON of a value if it is of medium size (between `SHARED_BYTES` and `BLOB_BYTES`), otherwise None."""
    if isinstance(value, str | bytes):
        may_be_medium = len(value) * MAX_CHARACTER_BYTES > SHARED_BYTES
    else:
        may_be_medium = isinstance(value, dict | list | Recorded)
    content = encode(value) if may_be_medium and not is_large(value) else b""
    return content if SHARED_BYTES < len(content) <= BLOB_BYTES else None


# --- checksums ---
# Each record has a checksum that continues from the one before it, and so covers all records before it in the log:
#
#     c1 = crc32(record 1, 0), c2 = crc32(record 2, c1), c3 = crc32(record 3, c2)
#
# Other rows have a checksum each (`of_row`). CRC-32 detects accidents: a changed byte anywhere in a record, and records
# that are exchanged or missing. It is not a signature that protects against people. It costs 5 bytes and less than a
# microsecond a record.


def head(recorded_at: int, event_type: str, event_id: str, path: str, step: str) -> bytes:
    """Return the time, type, id, path and step of a record as bytes. The record's checksum covers these bytes and then
    the payload.
    """
    return f"{recorded_at}\n{event_type}\n{event_id}\n{path}\n{step}\n".encode()


def of_row(columns: Iterable[object]) -> int:
    """Return the checksum of a database row. It covers the values of the columns and their Python types."""
    return crc32(repr(tuple(columns)).encode())


def chain(previous: int, heads: Iterable[bytes], payloads: Iterable[bytes]) -> list[int]:
    """Return the checksum of each of several consecutive records, which also covers all records before. `previous` is
    the checksum of the record before them, or 0 if there is none.
    """
    # Each continues from the one before (test_the_checksum_of_an_event_covers_those_before).
    checksums: list[int] = []
    for before, payload in zip(heads, payloads, strict=True):
        previous = crc32(payload, crc32(before, previous))
        checksums.append(previous)
    return checksums


# --- ids of events as 16 bytes ---


_PREFIX = "event_"
_LENGTH = len(_PREFIX) + 26
_DIGITS = dict(zip(ALPHABET, "0123456789abcdefghijklmnopqrstuv", strict=True))  # those of int(text, 32)
_TO_DIGITS = "".join(_DIGITS.get(chr(code), "!") for code in range(256)).encode()  # int() refuses "!"
# The shifts are the lowest bits of the 13 pairs of letters. A pair has ten bits, of which the first one uses only
# eight.
_SHIFTS = tuple(range(120, -1, -10))


def pack_id(event_id: str) -> bytes | str:
    """Return an event id packed into 16 bytes if it is ``event_`` and 26 characters of the id alphabet; otherwise
    return it unchanged.
    """
    if len(event_id) != _LENGTH or not event_id.startswith(_PREFIX):
        return event_id
    try:
        # The 26 letters are a number with five bits a letter. `int` knows base 32 with other letters, so they are
        # translated first.
        return int(event_id[6:].encode().translate(_TO_DIGITS), 32).to_bytes(16, "big")
    except (ValueError, OverflowError):  # not in the alphabet (surrogates: not in UTF-8), or more than 128 bits
        return event_id


def unpack_id(packed: bytes | str) -> str:
    """Return the event id that `pack_id` packed. For damaged bytes, return a string that is not the id of any event."""
    if not isinstance(packed, bytes):
        return str(packed)
    value = int.from_bytes(packed, "big")
    return _PREFIX + "".join([PAIRS[value >> shift & 0x3FF] for shift in _SHIFTS])


def unencodable_error(error: UnicodeEncodeError) -> StoreError:
    """Return the error for a query with a string that UTF-8 cannot encode. The error does not mean that the store is
    damaged.
    """
    return StoreError(
        f"{error.object!a} cannot be looked up: it contains half of a surrogate pair "
        f"({error.object[error.start]!a}), which no string in a store contains. Check where the string comes from"
    )
