"""Large values, stored once per content and referred to by their hash.

In the payload of an event, the encoded JSON of a large value is replaced by the JSON of a reference, and put back on
reading, so no code outside the store ever meets one. A user's own data cannot look like a reference: a dict that has
the key ``$type`` is itself written in tagged form.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias

from divebook.errors import CorruptStoreError
from divebook.events.by_hash import ByHash
from divebook.events.codec import check_size, content_of, encode
from divebook.events.recorded import TAG, Recorded, TaggedDict
from divebook.events.stored_file import StoredFile

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
_SAMPLE = 16 * 1024
_PIECE = 1024 * 1024
_WORTH = 0.9  # of the size; what shrinks less is kept as it is
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


def pack(content: bytes) -> Packed:
    """Compress a content if it pays; a sample tells, so that pictures cost next to nothing."""
    sample = content[:_SAMPLE]
    coded, sought = len(_deflated(sample, zlib.Z_HUFFMAN_ONLY)), len(_deflated(sample, zlib.Z_DEFAULT_STRATEGY))
    if min(coded, sought) > _WORTH * len(sample):
        return Packed(compressed=False, data=content)
    # Of base64 or hexadecimal digits only the code is dense, and looking for repeats takes thrice as long.
    repeats = sought < _REPEATS * coded
    return Packed(compressed=True, data=_deflated(content, zlib.Z_DEFAULT_STRATEGY if repeats else zlib.Z_HUFFMAN_ONLY))


def packed_but(blobs: Blobs, lately: dict[bytes, None]) -> dict[bytes, Packed]:
    """Return contents as they will be written, but for those that came lately, which are there; note these."""
    packed = {digest: pack(blobs[digest]) for digest in blobs.keys() - lately.keys()}
    lately |= dict.fromkeys(packed)
    for digest in list(lately)[:-_LATELY]:
        lately.pop(digest, None)
    return packed


def _deflated(content: bytes, strategy: int) -> bytes | bytearray:
    compressor = zlib.compressobj(1, strategy=strategy)
    rest, pieces = memoryview(content), bytearray()  # piece by piece, so that what is made lies in memory once
    while rest:
        pieces += compressor.compress(rest[:_PIECE])
        rest = rest[_PIECE:]
    pieces += compressor.flush()
    return pieces


def unpack(packed: Packed) -> bytes:
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
