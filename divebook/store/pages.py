"""Events of a log as columns: where and when they happened, and what they say as JSON until somebody asks.

A store makes pages of its rows, and `EventPage.of` makes one of events; frames are made of pages, so that no `Event` is
made for them. Loaded when the first frame is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from divebook.events.catalog import PAYLOADS
from divebook.events.codec import TAGGED, decode, encode, payload_read
from divebook.events.event import ON_NO_STEP, Event
from divebook.events.upcast import FORM
from divebook.store.encoding import PACKED, joined, names_of, width_of

Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Facts: TypeAlias = Callable[[str, bytes], Sequence[bytes]]
"""Takes a row apart, by its type and its data: the JSON of each of its events."""

_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = np.frombuffer("".join(first + second for first in _LETTERS for second in _LETTERS).encode(), dtype=np.uint16)
"""Two letters stand for ten bits."""
_PREFIX = np.frombuffer(b"event_", dtype=np.uint8)
_ID_LETTERS = 26
_WITHOUT_STEP = frozenset(kind.event_type for kind in ON_NO_STEP)


class MismatchError(Exception):
    """The columns of rows do not fit each other: each row is to be looked at by itself, which tells what is wrong."""


class EventPage(NamedTuple):
    """Events that follow one another in a log."""

    sequences: Numbers
    recorded_at: Numbers
    types: Any
    """Names of their types; this and the next two as a dictionary array of texts."""
    paths: Any
    steps: Any
    payloads: Any
    """JSON, an array of bytes."""

    @classmethod
    def of(cls, events: Sequence[Event]) -> EventPage:
        """Return events as columns."""
        return cls(
            np.array([event.sequence for event in events], dtype=np.int64),
            np.array([event.recorded_at for event in events], dtype=np.int64),
            _texts([event.event_type for event in events]),
            _texts([event.path for event in events]),
            _texts([event.step for event in events]),
            pa.array([encode(event.data.to_data()) for event in events], pa.binary()),
        )

    def between(self, after: int, last: int) -> EventPage:
        """Return the events with sequences above `after` up to `last`."""
        wanted = slice(*np.searchsorted(self.sequences, [after, last], side="right"))
        return self if wanted == slice(0, len(self.sequences)) else EventPage(*[column[wanted] for column in self])

    def events(self, execution_id: str) -> list[Event]:
        """Return the events, without ids: all payloads are decoded in one go, which takes a third of the time.

        Raises
        ------
        CorruptStoreError, NewerStoreError
            A payload cannot be read.
        """
        ends = pc.binary_join_element_wise(self.payloads, pa.scalar(b""), pa.scalar(b","))
        bodies = decode(b"[" + content_of(ends).to_pybytes()[:-1] + b"]")
        kinds = self.types.dictionary.to_pylist()
        made = [PAYLOADS[kind].from_data if kind in PAYLOADS and not PAYLOADS[kind].form else None for kind in kinds]
        texts = [column.dictionary.to_pylist() for column in (self.paths, self.steps)]
        numbers = [column.tolist() for column in (self.sequences, self.recorded_at)]
        codes = [column.indices.to_pylist() for column in (self.types, self.paths, self.steps)]
        found = []
        for sequence, at, kind, path, step, body in zip(*numbers, *codes, bodies, strict=True):
            make = made[kind] if FORM not in body else None
            data = payload_read(kinds[kind], body) if make is None else make(body)
            found.append(Event("", execution_id, sequence, at, data, texts[0][path], texts[1][step]))
        return found

    def lines(self) -> Any:
        """Return the payloads as JSON lines, in one buffer."""
        return content_of(pc.binary_join_element_wise(self.payloads, pa.scalar(b""), pa.scalar(b"\n")))


def _texts(values: Sequence[str]) -> Any:
    return pa.array(values, pa.string()).dictionary_encode()


def content_of(texts: Any) -> Any:
    """Return the bytes of an array of them, one after the other, without copying them."""
    begins = places_of(texts)
    content = texts.buffers()[2] or pa.py_buffer(b"")
    return content.slice(int(begins[0]), int(begins[-1] - begins[0]))


def places_of(texts: Any) -> Numbers:
    """Return where each of an array of bytes begins, and where the last one ends."""
    begins: Numbers = np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return begins


@dataclass(frozen=True, slots=True)
class Spliced:
    """Successive rows of a store, each column as one text: SQLite joins them sooner than it gives them one by one."""

    count: int
    recorded_at: bytes
    """Numbers with commas between them."""
    types: bytes
    """The numbers of their types, likewise."""
    ids: bytes
    """16 bytes each, nothing between them."""
    paths: bytes
    """Texts with line breaks between them, as the next."""
    steps: bytes
    payloads: bytes
    """Nothing between them."""
    lengths: bytes
    """Those of the payloads, with commas between them."""


class Rows(NamedTuple):
    """Successive rows as columns, in the order in which a checksum covers them."""

    recorded_at: Any
    """Texts."""
    types: Any
    """Names as written, with a plus between those of several events."""
    ids: Any
    paths: Any
    steps: Any
    payloads: Any

    @classmethod
    def of(cls, spliced: Spliced, name_of: Callable[[int], str]) -> Rows:
        """Take spliced rows apart; `name_of` returns the type of a number.

        Raises
        ------
        MismatchError
            That is not possible.
        """
        try:
            lengths = _split(spliced.lengths, ",").cast(pa.int64()).to_numpy()
            rows = cls(
                _split(spliced.recorded_at, ","),
                _named(_split(spliced.types, ",").cast(pa.int64()), name_of),
                _unpacked(spliced.ids),
                _split(spliced.paths, "\n"),
                _split(spliced.steps, "\n"),
                _cut(spliced.payloads, lengths),
            )
        except (pa.ArrowInvalid, ValueError) as why:
            raise MismatchError(str(why)) from why
        if {len(column) for column in rows} != {spliced.count}:
            raise MismatchError("the columns have different lengths")
        return rows

    def checksum(self, previous: int) -> int:
        """Return that of the last row, after a row with checksum `previous`; see `divebook.store.encoding`."""
        # Each goes on from the one before, so that the last one is that of all rows in one piece.
        covered = pc.binary_join_element_wise(*[column.cast(pa.binary()) for column in self], pa.scalar(b"\n"))
        return crc32(content_of(covered), previous)

    @property
    def widths(self) -> Numbers:
        """How many events each stands for."""
        kinds = [width_of(name) for name in self.types.dictionary.to_pylist()]
        widths: Numbers = np.array(kinds, dtype=np.int64)[self.types.indices]
        return widths

    def page(self, first: int, facts: Facts) -> EventPage:
        """Return the events that the rows stand for, from sequence number `first` on.

        `facts` is asked about what is not plain JSON, or not laid out as rows are now.
        """
        widths = self.widths
        at = self.recorded_at.cast(pa.int64()).to_numpy()
        if (widths == 1).all():
            places = self.paths.dictionary_encode(), self.steps.dictionary_encode()
            return EventPage(np.arange(first, first + len(at)), at, self.types, *places, self._payloads(widths, facts))
        row = np.repeat(np.arange(len(widths)), widths)
        place = np.arange(len(row)) - np.repeat(np.cumsum(widths) - widths, widths)
        types, steps = self._of_events(row, place)
        return EventPage(
            np.arange(first, first + len(row)),
            at[row],
            types,
            self.paths.dictionary_encode().take(row),
            steps,
            self._payloads(widths, facts),
        )

    def _payloads(self, widths: Numbers, facts: Facts) -> Any:
        """Return the JSON of each event."""
        is_wide = widths > 1
        payloads = self.payloads
        odd = pc.starts_with(payloads, PACKED).to_numpy(zero_copy_only=False)
        if TAGGED in memoryview(content_of(payloads)).tobytes():
            odd = odd | pc.match_substring(payloads, TAGGED).to_numpy(zero_copy_only=False)
        elif not odd.any() and not is_wide.any():
            return payloads
        lines = _lines(payloads, is_wide)
        odd |= pc.list_value_length(lines).to_numpy() != widths
        if odd.any():
            rows = zip(self.types.filter(odd).to_pylist(), payloads.filter(odd).to_pylist(), strict=True)
            plain = pa.array([joined(facts(name, raw)) for name, raw in rows], pa.binary())
            lines = _lines(pc.replace_with_mask(payloads, odd, plain), is_wide)
        if (pc.list_value_length(lines).to_numpy() != widths).any():
            raise MismatchError("rows say more, or less, than their types")
        return lines.flatten()

    def _of_events(self, row: Numbers, place: Numbers) -> tuple[Any, Any]:
        """Return types and steps of the events, each the `place`-th of a row."""
        rows_steps = self.steps.dictionary_encode().take(row)
        kinds = [names_of(name) for name in self.types.dictionary.to_pylist()]
        names = sorted({name for kind in kinds for name in kind})
        numbers = np.zeros((len(kinds), max(map(len, kinds), default=1)), dtype=np.int32)
        bare = np.zeros_like(numbers, dtype=bool)
        for number, kind in enumerate(kinds):
            numbers[number, : len(kind)] = [names.index(name) for name in kind]
            bare[number, : len(kind)] = [len(kind) > 1 and name in _WITHOUT_STEP for name in kind]
        kind_of = self.types.indices.to_numpy()[row]
        types = pa.DictionaryArray.from_arrays(numbers[kind_of, place], pa.array(names, pa.string()))
        without = bare[kind_of, place]
        if not without.any():
            return types, rows_steps
        steps = pc.if_else(pa.array(without), pa.scalar(""), rows_steps.cast(pa.string()))
        return types, steps.dictionary_encode()


def _lines(payloads: Any, is_wide: Numbers) -> Any:
    """Return the lines of each payload; those of several events stand in brackets (`joined`)."""
    bare = pc.if_else(pa.array(is_wide), pc.binary_slice(payloads, 1, -1), payloads)
    return pc.split_pattern(bare, b",\n")


def _split(text: bytes, between: str) -> Any:
    return pc.split_pattern(pa.scalar(text.decode()), between).values


def _named(numbers: Any, name_of: Callable[[int], str]) -> Any:
    coded = numbers.dictionary_encode()
    known = pa.array([name_of(number) for number in coded.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(coded.indices, known)


def _cut(payloads: bytes, lengths: Numbers) -> Any:
    begins = np.concatenate([[0], np.cumsum(lengths)])
    if begins[-1] != len(payloads) or (lengths < 0).any():
        raise MismatchError("the payloads have other lengths than they should")
    places = pa.py_buffer(begins.astype(np.int32))
    return pa.BinaryArray.from_buffers(pa.binary(), len(lengths), [None, places, pa.py_buffer(payloads)])


def _unpacked(packed: bytes) -> Any:
    """Return the texts of ids, as `divebook.store.sqlite.schema.unpack_id` does one by one."""
    halves = np.frombuffer(packed, dtype=">u8").astype(np.uint64).reshape(-1, 2)
    high = halves[:, 0]
    low = halves[:, 1]
    pairs = np.empty((len(halves), _ID_LETTERS // 2), dtype=np.uint16)
    for place in range(pairs.shape[1]):
        shift = 10 * (pairs.shape[1] - 1 - place)
        bits = high >> np.uint64(shift - 64) if shift >= 64 else low >> np.uint64(shift)
        if 54 < shift < 64:
            bits = bits | high << np.uint64(64 - shift)
        pairs[:, place] = _PAIRS[bits & np.uint64(1023)]
    letters = np.empty((len(halves), len(_PREFIX) + _ID_LETTERS), dtype=np.uint8)
    letters[:, : len(_PREFIX)], letters[:, len(_PREFIX) :] = _PREFIX, pairs.view(np.uint8)
    ids = pa.FixedSizeBinaryArray.from_buffers(pa.binary(letters.shape[1]), len(letters), [None, pa.py_buffer(letters)])
    return ids.cast(pa.binary())
