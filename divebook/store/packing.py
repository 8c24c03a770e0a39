"""Data of records and checkpoints that are worth compressing, as a store that keeps them writes them.

What is packed begins with a byte that no JSON does. A window of 4 KB makes the start cheap: about 10 microseconds for
a kilobyte, where zlib's own takes 60.
"""

from __future__ import annotations

import zlib

from divebook.errors import CorruptStoreError
from divebook.events.codec import MAX_PAYLOAD_BYTES

PACKED_FROM = 1000
"""Bytes from which on it is tried; shorter data would share a page of a file with others anyway."""
_WINDOW, _MEMORY, _LEVEL = 12, 5, 1
PACKED = b"H"
"""How what is compressed with that window begins."""
_SAMPLE, _LONG = 2048, 8192
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
