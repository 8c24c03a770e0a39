"""A column of payloads that are decoded when they are looked at; until then, those of a long log take little room.

To pandas it is an extension array of dicts; ``frame["data"].astype(object)`` makes one of numpy's of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.extensions import ExtensionArray, ExtensionDtype
from pandas.api.indexers import check_array_indexer
from pandas.io.formats.printing import pprint_thing  # type: ignore[import-not-found]  # not in the stubs

from divebook.events.codec import TAGGED, decode_payload, encode_shown
from divebook.events.upcast import FORM
from divebook.store.pages import EventPage, Numbers, content_of, places_of

_CODEC = "lz4"
_MISSING = -1
_MARKS = (TAGGED, f'"{FORM}":'.encode())
"""What stands in payloads that are read as something else than is written."""


class PayloadDtype(ExtensionDtype):
    """That of a column of payloads."""

    name = "payload"
    type: ClassVar[Any] = object
    na_value = None

    @classmethod
    def construct_array_type(cls) -> Any:
        """Return the class of its arrays."""
        return Payloads


@dataclass(frozen=True, slots=True)
class PackedPayloads:
    """The payloads of one page, compressed."""

    types: Any
    begins: Numbers
    content: bytes

    @classmethod
    def of(cls, page: EventPage) -> PackedPayloads:
        """Take those of a page."""
        begins = places_of(page.payloads)
        return cls(page.types, begins - begins[0], pa.compress(content_of(page.payloads), codec=_CODEC, asbytes=True))

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.types)

    def texts(self) -> Any:
        """Return them as JSON, an array of texts: as they were written, or as they are read where that is another."""
        places, content = pa.py_buffer(self.begins.astype(np.int64)), self._content()
        written = pa.LargeBinaryArray.from_buffers(pa.large_binary(), self.count, [None, places, pa.py_buffer(content)])
        if any(mark in content for mark in _MARKS):
            odd = pc.or_(*[pc.match_substring(written, mark) for mark in _MARKS])
            decoded = self.opened()
            read = [encode_shown(decoded(place)) for place in np.flatnonzero(odd).tolist()]
            written = pc.replace_with_mask(written, odd, pa.array(read, pa.large_binary()))
        return written.cast(pa.large_string())

    def _content(self) -> bytes:
        content: bytes = pa.decompress(self.content, int(self.begins[-1]), codec=_CODEC, asbytes=True)
        return content

    def opened(self) -> Callable[[int], Any]:
        """Return what decodes one of them."""
        content = self._content()
        types = self.types.to_pylist()

        def decoded(place: int) -> dict[str, Any]:
            raw = content[self.begins[place] : self.begins[place + 1]]
            return decode_payload(types[place], raw).to_data()

        return decoded


@dataclass(frozen=True, slots=True)
class _Values:
    """Values that somebody put into a column."""

    values: Sequence[Any]

    @property
    def count(self) -> int:
        return len(self.values)

    def opened(self) -> Callable[[int], Any]:
        return self.values.__getitem__


class PayloadSource:
    """What columns are made of; those that were cut out of each other share it."""

    def __init__(self, parts: Sequence[PackedPayloads | _Values]) -> None:
        self.parts = tuple(parts)
        self._ends = np.cumsum([part.count for part in parts], dtype=np.int64)
        self._open: tuple[int, Callable[[int], Any]] | None = None

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, place: int) -> Any:
        number = int(np.searchsorted(self._ends, place, side="right"))
        known = self._open
        if known is None or known[0] != number:
            self._open = known = number, self.parts[number].opened()
        return known[1](place - int(self._ends[number]) + self.parts[number].count)

    def __reduce__(self) -> Any:
        return PayloadSource, (self.parts,)


class Payloads(ExtensionArray):
    """Dicts, made when they are looked at, anew each time.

    Parameters
    ----------
    source
        Gives what is at a place.
    places
        Where each of them is there; -1 for one that is missing.
    """

    def __init__(self, source: PayloadSource, places: Numbers) -> None:
        self.source, self.places = source, places

    @classmethod
    def of(cls, parts: Sequence[PackedPayloads]) -> Payloads:
        """Return those of the pages of a log."""
        source = PayloadSource(parts)
        return cls(source, np.arange(len(source)))

    # --- what pandas asks of an array ------------------------------------------------------------------------------

    dtype = PayloadDtype()

    @classmethod
    def _from_sequence(cls, scalars: Iterable[Any], *, dtype: Any = None, copy: bool = False) -> Payloads:  # noqa: ARG003 - pandas' own
        values = list(scalars)
        return cls(PayloadSource([_Values(values)]), np.arange(len(values)))

    @classmethod
    def _concat_same_type(cls, to_concat: Sequence[Payloads]) -> Payloads:
        parts: list[PackedPayloads | _Values] = []
        places, length = [], 0
        for each in to_concat:
            places.append(np.where(each.places == _MISSING, _MISSING, each.places + length))
            parts += each.source.parts
            length += len(each.source)
        return cls(PayloadSource(parts), np.concatenate(places) if places else np.arange(0))

    def texts(self) -> Any:
        """Return them as JSON, an array of texts of Arrow, without a dict for each."""
        whole = [part for part in self.source.parts if isinstance(part, PackedPayloads)]
        if len(whole) == len(self.source.parts) and np.array_equal(self.places, np.arange(len(self.source))):
            return pa.chunked_array([part.texts() for part in whole], pa.large_string())
        return pa.array([None if each is None else encode_shown(each).decode() for each in self], pa.large_string())

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, undecoded."""
        packed = [part for part in self.source.parts if isinstance(part, PackedPayloads)]
        return int(self.places.nbytes + sum(len(part.content) + part.begins.nbytes for part in packed))

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, int | np.integer):
            return self._at(int(self.places[item]))
        return Payloads(self.source, self.places[check_array_indexer(self, item)])

    def _at(self, place: int) -> Any:
        return None if place == _MISSING else self.source[place]

    def __setitem__(self, key: Any, value: Any) -> None:
        places = self.places[check_array_indexer(self, key)]
        alone = isinstance(value, dict) or value is None or np.ndim(places) == 0
        values = [value] if alone else list(value)
        begins = len(self.source)
        self.source = PayloadSource([*self.source.parts, _Values(values)])
        self.places[check_array_indexer(self, key)] = begins if alone else begins + np.arange(len(values))

    def __iter__(self) -> Any:
        return map(self._at, self.places.tolist())

    __hash__ = None  # type: ignore[assignment]  # as of every array

    def __eq__(self, other: object) -> Any:
        others = other if isinstance(other, Payloads | np.ndarray | list | pd.Series) else [other] * len(self)
        return np.array([mine == its for mine, its in zip(self, others, strict=True)], dtype=bool)

    def isna(self) -> Any:
        """Tell which are missing, without looking at the others."""
        return self.places == _MISSING

    def take(self, indices: Any, *, allow_fill: bool = False, fill_value: Any = None) -> Payloads:
        """Return those at some places; with `allow_fill`, -1 stands for one that is missing."""
        wanted = np.asarray(indices, dtype=np.int64)
        if not allow_fill:
            return Payloads(self.source, self.places.take(wanted))
        if (wanted < _MISSING).any():
            raise ValueError(f"places must not be below -1, got {wanted.min()}")
        if not pd.isna(fill_value):
            raise ValueError(f"what is missing in a column of payloads is None, and cannot be {fill_value!r}")
        known = self.places.take(np.maximum(wanted, 0)) if len(self) else np.full(len(wanted), _MISSING)
        return Payloads(self.source, np.where(wanted == _MISSING, _MISSING, known))

    def copy(self) -> Payloads:
        """Return a copy; what is undecoded is shared."""
        return Payloads(self.source, self.places.copy())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:  # noqa: FBT001 - numpy's own
        values = np.empty(len(self), dtype=object)
        values[:] = list(self)
        return values

    def __arrow_array__(self, type: Any = None) -> Any:
        return pa.array(list(self), type)

    def _formatter(self, boxed: bool = False) -> Callable[[Any], str]:  # noqa: FBT001, FBT002 - pandas' own
        return pprint_thing if boxed else repr
