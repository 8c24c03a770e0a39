"""What the cells of a column are, counted: a few different values by name, numbers in bins, and how many are neither.

A tally takes the same memory whatever it is given, and comes to the same however its cells were split into parts: which
bins there are depends on the least and the greatest number alone, and values are counted by name unless there are more
than `MOST_DIFFERENT` of them in all (`tests/events/test_tally.py`).
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any

from divebook.events.recorded import Recorded

MOST_DIFFERENT, MOST_WHOLE = 300, 8
"""Texts, and whole numbers, of which each is counted by itself as long as there are no more different ones."""
MOST_BINS = 24
MOST_COUNTED = 12
"""Columns of one step that are counted."""
LONGEST = 500
"""Characters by which texts are told apart; of a longer one the others count by their hash."""
_FINEST, _EXACT = -1074, 52
"""The exponent of the smallest number there is, and to how many binary digits a bin is told from its neighbour."""
_MISSING = frozenset({"NAType", "NaTType"})


class Bins:
    """Numbers in bins of one width, a power of two; neighbours are merged where the range outgrows `MOST_BINS`."""

    __slots__ = ("counts", "exponent", "greatest", "least")

    def __init__(self) -> None:
        self.exponent, self.counts = _FINEST, dict[int, int]()
        """The width, and the numbers in each bin by its place: that of a number is how often the width goes into it."""
        self.least = math.inf
        self.greatest = -math.inf

    @property
    def count(self) -> int:
        """How many numbers there are."""
        return sum(self.counts.values())

    def add(self, numbers: Iterable[float]) -> None:
        """Take in finite numbers."""
        found = [*numbers]
        if found:
            self.widen(min(found), max(found))
            self.take(self.exponent, Counter(place_of(number, self.exponent) for number in found))

    def widen(self, least: float, greatest: float) -> None:
        """Have bins for all numbers of a range as well."""
        self.least = min(self.least, least)
        self.greatest = max(self.greatest, greatest)
        exponent = exponent_of(self.least, self.greatest)
        if exponent != self.exponent:
            self.counts = _merged(self.counts, exponent - self.exponent)
            self.exponent = exponent

    def take(self, exponent: int, counts: Mapping[int, int]) -> None:
        """Take in counts by places of bins that are no wider, and within its range."""
        for place, count in _merged(counts, self.exponent - exponent).items():
            self.counts[place] = self.counts.get(place, 0) + count

    def listed(self, exponent: int | None = None) -> list[tuple[float, int]]:
        """Return where each bin begins and what is in it, ascending and without gaps; with bins that wide at least."""
        width = self.exponent if exponent is None else max(exponent, self.exponent)
        counts = _merged(self.counts, width - self.exponent)
        if not counts:
            return []
        return [(_scaled(at, width), counts.get(at, 0)) for at in range(min(counts), max(counts) + 1)]


def exponent_of(least: float, greatest: float) -> int:
    """Return the exponent of the smallest width with which `MOST_BINS` bins hold a range, and are told apart.

    >>> exponent_of(0.0, 10.0), exponent_of(-3.0, 1000.0)
    (-1, 6)
    """
    largest = max(abs(least), abs(greatest))
    if not largest:
        return _FINEST
    finest = max(math.frexp(largest)[1] - _EXACT, _FINEST)
    half = greatest / 2 - least / 2  # the whole may be too large to be a number
    exponent = max(finest, math.frexp(half)[1] - 5) if half else finest  # with less there are more than 30
    while place_of(greatest, exponent) - place_of(least, exponent) >= MOST_BINS:
        exponent += 1
    return exponent


def place_of(number: float, exponent: int) -> int:
    """Return the place of the bin that a number is in."""
    place = math.floor(math.ldexp(number, -exponent))
    return -1 if number < 0 and not place else place  # what is too small to be scaled is below 0 all the same


def _scaled(place: int, exponent: int) -> float:
    try:
        return math.ldexp(place, exponent)
    except OverflowError:
        return math.copysign(sys.float_info.max, place)


def _merged(counts: Mapping[int, int], steps: int) -> dict[int, int]:
    merged: dict[int, int] = {}
    for place, count in counts.items():
        merged[place >> steps] = merged.get(place >> steps, 0) + count
    return merged


class ColumnTally:
    """The cells of one column.

    Examples
    --------
    >>> tally = ColumnTally()
    >>> tally.add(["praise", "blame", "praise", None, True, 3])
    >>> tally.texts, tally.whole, tally.empty
    ({'praise': 2, 'blame': 1}, {3: 1}, 1)
    """

    __slots__ = ("are_whole", "bins", "empty", "endless", "other", "text_count", "texts", "truths", "whole")

    def __init__(self) -> None:
        self.texts: dict[str, int] | None = {}
        """How often each came; None where there are too many different ones."""
        self.text_count = 0
        self.whole: dict[int, int] | None = {}
        """The same of numbers; None as well where one of them is no whole number."""
        self.are_whole = True
        """Whether there was no other number than whole ones."""
        self.bins = Bins()
        self.truths = 0, 0
        """How often it was False, and True."""
        self.empty = self.endless = self.other = 0
        """Cells with nothing in them, numbers that no bin holds, and what is no single value."""

    def add(self, cells: Iterable[Any]) -> None:
        """Take in cells, each of whatever type."""
        texts = Counter[str]()
        numbers = list[float]()
        truths = [0, 0]
        for cell in map(_plain, cells):
            kind = type(cell)
            if kind is str:
                texts[cell] += 1
            elif kind is float:
                numbers.append(cell)
            elif kind is bool:
                truths[cell] += 1
            elif cell is None:
                self.empty += 1
            else:
                self.other += 1
        self.add_texts(texts)
        self.add_truths(*truths)
        self.add_numbers(numbers)

    def add_texts(self, counts: Mapping[str, int]) -> None:
        """Take in texts that were counted."""
        self.text_count += sum(counts.values())
        if self.texts is None:
            return
        self.texts = _within(self.texts, {_key(text): 0 for text in counts}, MOST_DIFFERENT)
        for text, count in counts.items() if self.texts is not None else ():
            self.texts[_key(text)] += count  # type: ignore[index]  # it is there, as was looked

    def add_truths(self, false: int, true: int) -> None:
        """Take in how often it was False, and True."""
        self.truths = self.truths[0] + false, self.truths[1] + true

    def add_numbers(self, numbers: Iterable[float]) -> None:
        """Take in numbers, those that are none among them."""
        finite = []
        for number in numbers:
            if math.isfinite(number):
                finite.append(number)
            elif number != number:  # noqa: PLR0124 - as one that is none does
                self.empty += 1
            else:
                self.endless += 1
        self.bins.add(finite)
        self.are_whole = self.are_whole and all(map(float.is_integer, finite))
        self.add_whole(Counter(map(int, finite)) if self.are_whole else None)

    def add_whole(self, counts: Mapping[int, int] | None) -> None:
        """Take in whole numbers that were counted, besides being in bins; None where they are not to be counted so."""
        self.whole = None if counts is None else _within(self.whole, counts, MOST_WHOLE)

    def merge(self, other: ColumnTally) -> None:
        """Take in what another one counted."""
        if other.bins.counts:
            self.bins.widen(other.bins.least, other.bins.greatest)
            self.bins.take(other.bins.exponent, other.bins.counts)
        self.texts = None if other.texts is None else _within(self.texts, other.texts, MOST_DIFFERENT)
        self.text_count += other.text_count
        self.are_whole = self.are_whole and other.are_whole
        self.add_whole(other.whole)
        self.add_truths(*other.truths)
        self.empty = self.empty + other.empty
        self.endless = self.endless + other.endless
        self.other += other.other


def _within(held: dict[Any, int] | None, counts: Mapping[Any, int], most: int) -> dict[Any, int] | None:
    """Return counts with others added; None once more than so many are different."""
    if held is None or len(counts) > most:
        return None
    for key, count in counts.items():
        held[key] = held.get(key, 0) + count
    return held if len(held) <= most else None


def _key(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}{hash(text)}"


def _plain(cell: Any) -> Any:
    """Return a cell as text, float, bool or None; as it is where it is no single value."""
    kind = type(cell)
    if cell is None or kind in (str, bool, float):
        return cell
    if isinstance(cell, Enum):
        return _plain(cell.value)
    if isinstance(cell, Recorded):
        return _plain(cell.plain()) if cell.tag == "enum" else cell
    if isinstance(cell, str):
        return str.__str__(cell)
    if isinstance(cell, int | float | Decimal):
        return _number(cell)
    if kind.__module__ == "numpy" and not getattr(cell, "shape", (0,)):
        return None if cell != cell else _plain(cell.item())  # noqa: PLR0124 - nan, and no time
    return None if kind.__name__ in _MISSING else cell


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:  # a whole number of more than 308 digits
        return math.inf
    except ValueError:  # a signalling NaN of Decimal
        return math.nan
