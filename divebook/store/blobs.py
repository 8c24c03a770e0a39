"""Large values, stored once per content and referred to by their hash.

In the payload of an event, the encoded JSON of a large value is replaced by the JSON of a reference, and put back on
reading, so no code outside the store ever meets one. A user's own data cannot look like a reference: a dict that has
the key ``$type`` is itself written in tagged form.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias

from divebook.errors import CorruptStoreError
from divebook.events.codec import encode
from divebook.events.recorded import TAG, Recorded, TaggedDict

BLOB_BYTES = 64 * 1024
"""Values whose JSON is longer become blobs."""
REPEATED_BYTES = 512
"""Those that one batch holds several times become blobs above this length: what a step returns is the result of its
operation, its output and the value of a variable."""

Blobs: TypeAlias = Mapping[bytes, bytes]
"""From the SHA-256 of a content to the content, which is JSON."""

Fetch: TypeAlias = Callable[[bytes], bytes | None]
"""Returns the content with a hash; None if it is missing."""

_MARK = f'{{"{TAG}":"blob",'.encode()
_REFERENCE = re.compile(re.escape(_MARK) + rb'"value":\["([0-9a-f]{64})",[0-9]+\]\}')
_SAMPLE = 16 * 1024
_WORTH = 0.9  # of the size; what shrinks less is kept as it is
_REPEATS = 0.7  # what shrinks to less than this repeats itself; of the rest, base64 above all, only the code is dense


def outsource(data: Any) -> tuple[bytes, dict[bytes, bytes]]:
    """Encode a large payload with references in place of its large values; return it and their contents.

    The smallest value that is still large becomes the blob, so that a text is stored once, whether it is the result of
    an operation, the output of a step or the value of a variable.
    """
    blobs: dict[bytes, bytes] = {}
    return encode(_shrink(data, blobs)), blobs


def _shrink(value: Any, blobs: dict[bytes, bytes]) -> Any:
    if type(value) is dict:
        value = {key: _shrink(item, blobs) if _is_large(item) else item for key, item in value.items()}
    elif type(value) is list:
        value = [_shrink(item, blobs) if _is_large(item) else item for item in value]
    elif isinstance(value, Recorded):
        value = value.parts(lambda item: _shrink(item, blobs) if _is_large(item) else item)
    content = encode(value)
    return value if len(content) <= BLOB_BYTES else _reference(content, blobs)


def _reference(content: bytes, blobs: dict[bytes, bytes]) -> dict[str, Any]:
    """Note a content and return what stands for it."""
    digest = sha256(content).digest()
    blobs[digest] = content
    return {TAG: "blob", "value": [digest.hex(), len(content)]}


def _is_large(value: Any, limit: int = BLOB_BYTES) -> bool:
    if isinstance(value, str | bytes):  # no character or byte takes more than six in JSON
        return len(value) * 6 > limit and len(encode(value)) > limit
    if isinstance(value, Recorded) and value.least_bytes() > limit:
        return True
    return isinstance(value, dict | list | TaggedDict | Recorded) and len(encode(value)) > limit


def share(bodies: Sequence[Any], blobs: dict[bytes, bytes]) -> list[Any]:
    """Return the bodies of a batch with references in place of values that stand there more than once."""
    counts = Counter(content for body in bodies for content in _middling(body))
    repeated = {content for content, count in counts.items() if count > 1}
    return [_shared(body, repeated, blobs) for body in bodies] if repeated else list(bodies)


def _middling(value: Any) -> Iterator[bytes]:
    """Give the JSON of every value in a body that is long enough to be worth a reference."""
    parts = value.values() if type(value) is dict else value if type(value) is list else ()
    for part in parts:
        if _is_large(part, REPEATED_BYTES):
            yield encode(part)
            yield from _middling(part)


def _shared(value: Any, repeated: Collection[bytes], blobs: dict[bytes, bytes]) -> Any:
    """Replace the outermost repeated values."""

    def shared(part: Any) -> Any:
        if not _is_large(part, REPEATED_BYTES):
            return part
        content = encode(part)
        return _reference(content, blobs) if content in repeated else _shared(part, repeated, blobs)

    if type(value) is dict:
        return {key: shared(part) for key, part in value.items()}
    return [shared(part) for part in value] if type(value) is list else value


def references(payload: bytes) -> list[bytes]:
    """Return the hashes that a stored payload, or the content of a blob, refers to."""
    return [bytes.fromhex(found.decode()) for found in _REFERENCE.findall(payload)] if _MARK in payload else []


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
    data: bytes


def verified(digest: bytes, content: bytes) -> bytes:
    """Return the content; CorruptStoreError if it is not what its name promises."""
    if sha256(content).digest() != digest:
        raise CorruptStoreError(f"the large value {digest.hex()[:12]}... does not have the content its name promises")
    return content


def pack(content: bytes) -> Packed:
    """Compress a content if it pays; a sample tells, so that pictures cost next to nothing."""
    sample = content[:_SAMPLE]
    left = len(zlib.compress(sample, 1)) / max(len(sample), 1)
    if left > _WORTH:
        return Packed(compressed=False, data=content)
    # looking for repeats takes thrice as long
    strategy = zlib.Z_DEFAULT_STRATEGY if left < _REPEATS else zlib.Z_HUFFMAN_ONLY
    compressor = zlib.compressobj(1, strategy=strategy)
    return Packed(compressed=True, data=compressor.compress(content) + compressor.flush())


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
