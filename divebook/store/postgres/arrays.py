"""Columns of a statement as the arrays that the server reads, in its binary form.

psycopg looks at each element of a list to find its type, which takes longer than the rest of a commit takes here
(``python -m benchmarks.servers``). The types of these are known, and none of them holds NULL.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any

BOOLEAN, BYTEA, BIGINT, TEXT, INTEGER = 16, 17, 20, 25, 23
"""Numbers of the server's own types."""
_EMPTY = struct.Struct(">iiI")
_WIDTHS = {BOOLEAN: (1, "?"), BIGINT: (8, "q"), INTEGER: (4, "i")}


class BinaryArray:
    """An array of one dimension as it is sent; `divebook.store.postgres.connections` says so to psycopg."""

    __slots__ = ("content",)

    def __init__(self, content: bytes) -> None:
        self.content = content


def array_of(kind: int, column: Sequence[Any]) -> BinaryArray:
    """Return a column of values of one type as an array."""
    if not column:
        return BinaryArray(_EMPTY.pack(0, 0, kind))
    if kind == TEXT:
        column = [text.encode() for text in column]
    return _numbers(kind, column) if kind in _WIDTHS else _contents(kind, column)


def _numbers(kind: int, column: Sequence[int]) -> BinaryArray:
    width, _ = _WIDTHS[kind]
    count = len(column)
    told = [width] * (2 * count)
    told[1::2] = column
    return BinaryArray(_layout(kind, count).pack(1, 0, kind, count, 1, *told))


def _contents(kind: int, column: Sequence[bytes]) -> BinaryArray:
    parts = [struct.pack(">iiIii", 1, 0, kind, len(column), 1)]
    for content in column:
        parts += (len(content).to_bytes(4, "big"), content)
    return BinaryArray(b"".join(parts))


def numbers_in(content: bytes | None) -> list[int]:
    """Return what the server gives as an array of bigint, none of which is NULL; nothing for NULL."""
    if content is None or len(content) == _EMPTY.size:
        return []
    ((length,),) = (struct.unpack_from(">i", content, _EMPTY.size),)
    return list(struct.unpack_from(">" + "iq" * length, content, _EMPTY.size + 8)[1::2])


@functools.lru_cache(maxsize=256)
def _layout(kind: int, count: int) -> struct.Struct:
    """Return how so many numbers are written: dimensions, no NULL, type, length, first index; each after its width."""
    return struct.Struct(">iiIii" + f"i{_WIDTHS[kind][1]}" * count)
