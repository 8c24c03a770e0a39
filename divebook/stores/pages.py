"""Events of a log as columns (`EventPage`): sequence, time, type, path, step, and the payload as JSON.

A store creates pages from its rows, and `EventPage.of` creates one from events. Frames are created from pages without
`Event` objects. This module loads numpy and pyarrow, so it is imported when the first frame is created.

A record may stand for several events. For example, these two rows are three events, the first two of row 1::

    types      ["step_started+operation_started", "operation_completed"]
    payloads   ["[{...},<line break>{...}]", "{...}"]

`Rows.page` repeats the other columns of row 1 for its second event, and splits its payload at the line break.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from divebook.events.catalog import PAYLOADS
from divebook.events.codec import TAGGED, decode, encode, payload_from_store
from divebook.events.event import ON_NO_STEP, Event
from divebook.events.payload import wrong_field
from divebook.events.upcast import FORM, present_type
from divebook.stores.encoding import PACKED, joined, names_of, width_of

Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]
SplitRecord: TypeAlias = Callable[[str, bytes], Sequence[bytes]]
"""Function that returns the JSON of each event in a record, from the record's type and encoded data."""

_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = np.frombuffer("".join(first + second for first in _LETTERS for second in _LETTERS).encode(), dtype=np.uint16)
"""Two letters of the id alphabet for each number of ten bits, as one 16-bit integer."""
_PREFIX = np.frombuffer(b"event_", dtype=np.uint8)
_ID_LETTERS = 26
_WITHOUT_STEP = frozenset(kind.event_type for kind in ON_NO_STEP)


class MismatchError(Exception):
    """Error for rows of the table of events that were read as columns, and whose columns contradict each other.

    The caller then reads the rows one by one, which reveals the fault.
    """


class EventPage(NamedTuple):
    """Consecutive events of one log, as one numpy or Arrow array for each field of the events."""

    sequences: Numbers
    recorded_at: Numbers
    types: Any
    """Event types. This column and the next two are Arrow dictionary arrays of strings."""
    paths: Any
    steps: Any
    payloads: Any
    """Payload of each event as JSON, in an Arrow array of bytes."""

    @classmethod
    def of(cls, events: Sequence[Event]) -> EventPage:
        """Return a page that contains the given events."""
        return cls(
            np.array([event.sequence for event in events], dtype=np.int64),
            np.array([event.recorded_at for event in events], dtype=np.int64),
            _texts([event.event_type for event in events]),
            _texts([event.path for event in events]),
            _texts([event.step for event in events]),
            pa.array([encode(event.data.to_data()) for event in events], pa.binary()),
        )

    def between(self, after: int, last: int) -> EventPage:
        """Return the part of this page with the sequence numbers above `after` up to `last`; the page itself if these
        are all events.
        """
        selection = slice(*np.searchsorted(self.sequences, [after, last], side="right"))
        return (
            self if selection == slice(0, len(self.sequences)) else EventPage(*[column[selection] for column in self])
        )

    def has_type(self, names: Collection[str]) -> Numbers:
        """Return a boolean array with one element per event: True if the type of the event is one of `names`."""
        is_named = np.array([name in names for name in self.types.dictionary.to_pylist()], dtype=bool)
        matches: Numbers = is_named[self.types.indices.to_numpy()]
        return matches

    def where(self, chosen: Numbers) -> EventPage:
        """Return the events for which the boolean array `chosen` is True as a page."""
        if chosen.all():
            return self
        columns = [column.filter(pa.array(chosen)) for column in self[2:]]
        return EventPage(self.sequences[chosen], self.recorded_at[chosen], *columns)

    def events(self, execution_id: str) -> list[Event]:
        """Return the events of the page as `Event` objects, whose ids are empty.

        Raises
        ------
        CorruptStoreError, NewerStoreError
            A payload cannot be decoded.
        """
        # All payloads are decoded as one JSON list, which takes a third of the time: [{..}, {..}] -> "{..},{..}," and
        # without the last comma the content of the list.
        ends = pc.binary_join_element_wise(self.payloads, pa.scalar(b""), pa.scalar(b","))
        bodies = decode(b"[" + content_of(ends).to_pybytes()[:-1] + b"]")
        names = self.types.dictionary.to_pylist()
        # Payloads in the present format are built directly; the others pass through the upcasts.
        kinds = [PAYLOADS[name] if name in PAYLOADS and not PAYLOADS[name].form else None for name in names]
        texts = [column.dictionary.to_pylist() for column in (self.paths, self.steps)]
        numbers = [column.tolist() for column in (self.sequences, self.recorded_at)]
        codes = [column.indices.to_pylist() for column in (self.types, self.paths, self.steps)]
        events = []
        # Types, paths and steps are numbers here, so that each string exists once.
        for sequence, at, code, path, step, body in zip(*numbers, *codes, bodies, strict=True):
            kind = kinds[code]
            if kind is None or FORM in body or wrong_field(kind, body) is not None:
                data = payload_from_store(names[code], body)
            else:
                data = kind.from_data(body)
            events.append(Event("", execution_id, sequence, at, data, texts[0][path], texts[1][step]))
        return events

    def lines(self) -> Any:
        """Return the payloads of the page as lines of JSON in one Arrow buffer."""
        return content_of(pc.binary_join_element_wise(self.payloads, pa.scalar(b""), pa.scalar(b"\n")))


def _texts(values: Sequence[str]) -> Any:
    return pa.array(values, pa.string()).dictionary_encode()


def content_of(texts: Any) -> Any:
    """Return the items of an Arrow array of bytes, joined in one buffer, without copying them."""
    starts = places_of(texts)
    # The buffers of an Arrow array of bytes are validity, offsets and content. A slice has those of the whole array.
    content = texts.buffers()[2] or pa.py_buffer(b"")
    return content.slice(int(starts[0]), int(starts[-1] - starts[0]))


def places_of(texts: Any) -> Numbers:
    """Return the offsets at which the items of an Arrow array of bytes begin, and the end of the last item."""
    starts: Numbers = np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return starts


@dataclass(frozen=True, slots=True)
class JoinedColumns:
    """Consecutive rows of the table of events, read from SQLite with all values of a column joined into one string.

    SQLite joins columns faster than it returns rows.
    """

    count: int
    recorded_at: bytes
    """Times in microseconds, separated by commas."""
    types: bytes
    """Numbers of the record types, separated by commas."""
    ids: bytes
    """Packed ids of 16 bytes each, without separators."""
    paths: bytes
    """Path ids, separated by line breaks."""
    steps: bytes
    """Step names, separated by line breaks."""
    payloads: bytes
    """Payloads as stored, without separators."""
    lengths: bytes
    """Length of each payload in bytes, separated by commas."""


class Rows(NamedTuple):
    """Consecutive rows of the table of events as Arrow arrays: one array for each column that the checksum of a row
    covers, in the same order.
    """

    recorded_at: Any
    """Times in microseconds, as strings."""
    types: Any
    """Types of the records; the type of a record with several events joins their names by a plus."""
    ids: Any
    paths: Any
    steps: Any
    payloads: Any

    @classmethod
    def of(cls, joined_columns: JoinedColumns, name_of: Callable[[int], str]) -> Rows:
        """Split joined columns into rows. `name_of` returns the name of a record type for the number that the store
        uses for it.

        Raises
        ------
        MismatchError
            The columns have different lengths, or contain invalid values.
        """
        try:
            lengths = _split(joined_columns.lengths, ",").cast(pa.int64()).to_numpy()
            rows = cls(
                _split(joined_columns.recorded_at, ","),
                _named(_split(joined_columns.types, ",").cast(pa.int64()), name_of),
                _unpacked(joined_columns.ids),
                _split(joined_columns.paths, "\n"),
                _split(joined_columns.steps, "\n"),
                _cut(joined_columns.payloads, lengths),
            )
        except (pa.ArrowInvalid, ValueError) as error:
            raise MismatchError(str(error)) from error
        if {len(column) for column in rows} != {joined_columns.count}:
            raise MismatchError("the columns have different lengths")
        return rows

    def checksum(self, previous: int) -> int:
        """Return the checksum that the last of these rows must have, if the row before the first one has the checksum
        `previous`.
        """
        # Each continues from the one before (`divebook.stores.encoding`), so the last one covers all rows as one piece.
        # Each row becomes the bytes that its checksum covers: the columns with a line break after each, and the payload
        # (`head`).
        covered = pc.binary_join_element_wise(*[column.cast(pa.binary()) for column in self], pa.scalar(b"\n"))
        return crc32(content_of(covered), previous)

    @property
    def widths(self) -> Numbers:
        """Number of events in each row of the table of events."""
        kinds = [width_of(name) for name in self.types.dictionary.to_pylist()]
        widths: Numbers = np.array(kinds, dtype=np.int64)[self.types.indices]
        return widths

    def page(self, first: int, split_record: SplitRecord) -> EventPage:
        """Return the events of all rows as a page; `first` is the sequence number of the first event.

        `split_record` is called for rows that are compressed, encrypted, have references, or do not have one line for
        each event.
        """
        widths = self.widths
        at = self.recorded_at.cast(pa.int64()).to_numpy()
        # The usual case without records of several events needs no copies of columns.
        if (widths == 1).all():
            places = self.paths.dictionary_encode(), self.steps.dictionary_encode()
            types = _present_types(self.types)
            return EventPage(
                np.arange(first, first + len(at)), at, types, *places, self._payloads(widths, split_record)
            )
        # For each event: the number of its row, and its place among the events of the row. Widths [2, 1] give the rows
        # [0, 0, 1] and the places [0, 1, 0].
        row = np.repeat(np.arange(len(widths)), widths)
        place = np.arange(len(row)) - np.repeat(np.cumsum(widths) - widths, widths)
        types, steps = self._of_events(row, place)
        return EventPage(
            np.arange(first, first + len(row)),
            at[row],
            types,
            self.paths.dictionary_encode().take(row),
            steps,
            self._payloads(widths, split_record),
        )

    def _payloads(self, widths: Numbers, split_record: SplitRecord) -> Any:
        """Return the JSON payload of each event in the rows, as an Arrow array.

        Most payloads are split at their line breaks, all at once. Only the odd ones (see `page`) are split one by one.
        """
        is_wide = widths > 1
        payloads = self.payloads
        # Compressed payloads begin with a certain byte. Encrypted ones, and those with references or tagged values,
        # contain the key ``$type``.
        is_odd = pc.starts_with(payloads, PACKED).to_numpy(zero_copy_only=False)
        if TAGGED in memoryview(content_of(payloads)).tobytes():
            is_odd = is_odd | pc.match_substring(payloads, TAGGED).to_numpy(zero_copy_only=False)
        elif not is_odd.any() and not is_wide.any():
            return payloads
        lines = _lines(payloads, is_wide)
        # A payload is also odd if its number of lines is not the number of the record's events.
        is_odd |= pc.list_value_length(lines).to_numpy() != widths
        if is_odd.any():
            rows = zip(self.types.filter(is_odd).to_pylist(), payloads.filter(is_odd).to_pylist(), strict=True)
            plain = pa.array([joined(split_record(name, raw)) for name, raw in rows], pa.binary())
            lines = _lines(pc.replace_with_mask(payloads, is_odd, plain), is_wide)
        # `split_record` returns one line for each event, so any other number of lines is damage.
        if (pc.list_value_length(lines).to_numpy() != widths).any():
            raise MismatchError("rows have more or fewer fields than their types")
        return lines.flatten()

    def _of_events(self, row: Numbers, place: Numbers) -> tuple[Any, Any]:
        """Return the type and the step of each event as Arrow arrays. `row[i]` is the row that contains event i, and
        `place[i]` its position among the events of this row.
        """
        rows_steps = self.steps.dictionary_encode().take(row)
        # Two tables with a row for each record type and a column for each place in a record: the number of the event
        # type, and True if the event has no step. Indexing the tables gives the values for all events at once.
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


def _present_types(types: Any) -> Any:
    """Return a column of event types in which types that were renamed have their present names."""
    # The checksums cover the stored names (`Rows.checksum`), so the names are translated only for the page.
    names = types.dictionary.to_pylist()
    present = [present_type(name) for name in names]
    # Usually no type was renamed. Otherwise the names are numbered again, because each must occur once.
    return types if present == names else pa.array(present, pa.string()).take(types.indices).dictionary_encode()


def _lines(payloads: Any, is_wide: Numbers) -> Any:
    """Split the payload of each row into lines of JSON, one for each event. `is_wide` is true for rows of several
    events; their payloads are JSON lists, so the brackets are removed first.
    """
    bare = pc.if_else(pa.array(is_wide), pc.binary_slice(payloads, 1, -1), payloads)
    return pc.split_pattern(bare, b",\n")


def _split(text: bytes, between: str) -> Any:
    # The array has one item, the list of all pieces, whose values are returned.
    return pc.split_pattern(pa.scalar(text.decode()), between).values


def _named(numbers: Any, name_of: Callable[[int], str]) -> Any:
    coded = numbers.dictionary_encode()
    names = pa.array([name_of(number) for number in coded.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(coded.indices, names)


def _cut(payloads: bytes, lengths: Numbers) -> Any:
    starts = np.concatenate([[0], np.cumsum(lengths)])
    # A negative length could hide in a correct sum.
    if starts[-1] != len(payloads) or (lengths < 0).any():
        raise MismatchError("the payloads have wrong lengths")
    # The array has the same bytes without a copy. Its buffers are validity (none), offsets and content.
    places = pa.py_buffer(starts.astype(np.int32))
    return pa.BinaryArray.from_buffers(pa.binary(), len(lengths), [None, places, pa.py_buffer(payloads)])


def _unpacked(packed: bytes) -> Any:
    """Return the event ids for packed ids of 16 bytes each, all at once; `divebook.stores.encoding.unpack_id` does it
    for one id.

    An id has 128 bits, as two numbers of 64 bits here. Each pair of letters stands for ten bits. One of the pairs takes
    bits from both numbers.
    """
    # `shift` is the position of a pair's lowest bit in the 128 bits of the id.
    # `pack_id` writes the 16 bytes in big-endian order.
    halves = np.frombuffer(packed, dtype=">u8").astype(np.uint64).reshape(-1, 2)
    high = halves[:, 0]
    low = halves[:, 1]
    pairs = np.empty((len(halves), _ID_LETTERS // 2), dtype=np.uint16)
    for column in range(pairs.shape[1]):
        shift = 10 * (pairs.shape[1] - 1 - column)
        bits = high >> np.uint64(shift - 64) if shift >= 64 else low >> np.uint64(shift)
        # The pair at bit 60 has four bits of the low number and six of the high one.
        if 54 < shift < 64:
            bits = bits | high << np.uint64(64 - shift)
        pairs[:, column] = _PAIRS[bits & np.uint64(1023)]
    letters = np.empty((len(halves), len(_PREFIX) + _ID_LETTERS), dtype=np.uint8)
    letters[:, : len(_PREFIX)] = _PREFIX
    letters[:, len(_PREFIX) :] = pairs.view(np.uint8)
    ids = pa.FixedSizeBinaryArray.from_buffers(pa.binary(letters.shape[1]), len(letters), [None, pa.py_buffer(letters)])
    return ids.cast(pa.binary())
