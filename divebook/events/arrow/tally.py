"""Tallies of columns, for summaries of frames: the counts of single values, a histogram of the numbers, and counts of
other cells such as missing ones.

A tally has bounded memory, and its result does not depend on how the cells were split into parts: the bins depend only
on the least and the greatest number, and strings are counted one by one unless there are more than `MOST_DIFFERENT`
different ones in all (`tests/events/test_tally.py`).

The width of the bins is a power of two, and bin number n holds the numbers from n * width up to, but without,
(n + 1) * width. So a histogram with a smaller width merges into one with double the width exactly: bins 2n and 2n + 1
become bin n, which is ``number >> 1``. For example, the numbers 0, 1, 2 and 3 in bins of width 1 have the counts
``{0: 1, 1: 1, 2: 1, 3: 1}``, and ``{0: 2, 1: 2}`` in bins of width 2.
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
"""Maximum number of distinct strings, and of distinct integers, that are counted one by one."""
MOST_BINS = 24
MOST_COUNTED = 12
"""Maximum number of columns of one step that are counted."""
LONGEST = 500
"""Number of characters of a string that are compared. For a longer string, a hash is compared as well."""
_FINEST, _EXACT = -1074, 52
"""Exponent of the smallest positive float, and number of binary digits that distinguish neighbouring bins."""
_MISSING = frozenset({"NAType", "NaTType"})


class Bins:
    """Histogram of numbers. All bins have the same width, a power of two; neighbours are merged if the range needs more
    than `MOST_BINS` bins.
    """

    __slots__ = ("counts", "exponent", "greatest", "least")

    def __init__(self) -> None:
        self.exponent = _FINEST
        """Exponent of the bin width, which is a power of two."""
        self.counts = dict[int, int]()
        """Count of the numbers in each bin by bin number, which is a number divided by the width, rounded down."""
        self.least = math.inf
        self.greatest = -math.inf

    @property
    def count(self) -> int:
        """Number of all numbers that were added to the histogram."""
        return sum(self.counts.values())

    def add(self, numbers: Iterable[float]) -> None:
        """Add finite numbers to the counts of their bins."""
        finite = [*numbers]
        if finite:
            self.widen(min(finite), max(finite))
            self.add_counts(self.exponent, Counter(place_of(number, self.exponent) for number in finite))

    def widen(self, least: float, greatest: float) -> None:
        """Increase the range of the bins so that it includes the numbers `least` and `greatest`. Merge bins if the
        range needs a larger bin width.
        """
        self.least = min(self.least, least)
        self.greatest = max(self.greatest, greatest)
        exponent = exponent_of(self.least, self.greatest)
        if exponent != self.exponent:
            self.counts = _merge_bins(self.counts, exponent - self.exponent)
            self.exponent = exponent

    def add_counts(self, exponent: int, counts: Mapping[int, int]) -> None:
        """Add the counts of another histogram, given by bin number. Its bins may not be wider than the bins of this
        one, and must lie within this one's range.
        """
        for place, count in _merge_bins(counts, self.exponent - exponent).items():
            self.counts[place] = self.counts.get(place, 0) + count

    def listed(self, exponent: int | None = None) -> list[tuple[float, int]]:
        """Return the lower end and the count of each bin, ascending, including empty bins.

        `exponent` sets a minimum width.
        """
        width = self.exponent if exponent is None else max(exponent, self.exponent)
        counts = _merge_bins(self.counts, width - self.exponent)
        if not counts:
            return []
        return [(_lower_end(at, width), counts.get(at, 0)) for at in range(min(counts), max(counts) + 1)]


def exponent_of(least: float, greatest: float) -> int:
    """Return the exponent (to base 2) of the smallest bin width with which `MOST_BINS` bins cover a range and have
    distinct ends.

    >>> exponent_of(0.0, 10.0), exponent_of(-3.0, 1000.0)
    (-1, 6)
    """
    # (0.0, 10.0) -> -1: bins of width 0.5 would need 21 for this range, and bins of width 0.25 would need 41.
    largest = max(abs(least), abs(greatest))
    if not largest:
        return _FINEST
    # Floats near `largest` are 2 ** (exponent - 53) apart. Narrower bins would have equal ends.
    finest = max(math.frexp(largest)[1] - _EXACT, _FINEST)
    # Start at a width that is certainly not too large, and double it until the bins suffice.
    half = greatest / 2 - least / 2  # the whole range may exceed the largest float
    exponent = max(finest, math.frexp(half)[1] - 5) if half else finest  # a smaller width needs more than 30 bins
    while place_of(greatest, exponent) - place_of(least, exponent) >= MOST_BINS:
        exponent += 1
    return exponent


def place_of(number: float, exponent: int) -> int:
    """Return the number of the histogram bin that contains `number`, for bins of the width ``2 ** exponent``."""
    place = math.floor(math.ldexp(number, -exponent))
    return -1 if number < 0 and not place else place  # a negative number that is scaled to -0.0 is still below 0


def _lower_end(place: int, exponent: int) -> float:
    try:
        return math.ldexp(place, exponent)
    except OverflowError:
        return math.copysign(sys.float_info.max, place)


def _merge_bins(counts: Mapping[int, int], steps: int) -> dict[int, int]:
    merged: dict[int, int] = {}
    for place, count in counts.items():
        # `>>` rounds down, also for negative bins: -1 >> 1 is -1.
        merged[place >> steps] = merged.get(place >> steps, 0) + count
    return merged


class ColumnTally:
    """Counts of the cells of one column: of single values, and for numbers also of bins.

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
        """Count of each string; None if there are more than `MOST_DIFFERENT` distinct strings."""
        self.text_count = 0
        self.whole: dict[int, int] | None = {}
        """Count of each integer; None if there are more than `MOST_WHOLE` distinct integers, or another number."""
        self.are_whole = True
        """True if all finite numbers were integers."""
        self.bins = Bins()
        self.truths = 0, 0
        """Counts of False and of True."""
        self.empty = self.endless = self.other = 0
        """Counts of missing cells, of infinite numbers, and of cells that are not single values."""

    def add(self, cells: Iterable[Any]) -> None:
        """Count the given cells, which may have any types."""
        texts = Counter[str]()
        numbers = list[float]()
        truths = [0, 0]
        for cell in map(_plain_cell, cells):
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
        """Add the counts of string cells, given by string."""
        self.text_count += sum(counts.values())
        if self.texts is None:
            return
        # First only the keys, with 0, since long strings with the same key must be added one by one.
        self.texts = _sum_if_few(self.texts, {_key(text): 0 for text in counts}, MOST_DIFFERENT)
        if self.texts is None:
            return
        for text, count in counts.items():
            self.texts[_key(text)] += count

    def add_truths(self, false: int, true: int) -> None:
        """Add the number of cells that are False and the number of cells that are True."""
        self.truths = self.truths[0] + false, self.truths[1] + true

    def add_numbers(self, numbers: Iterable[float]) -> None:
        """Count the given numbers. NaN counts as a missing cell; infinite numbers are counted separately."""
        finite = []
        for number in numbers:
            if math.isfinite(number):
                finite.append(number)
            elif number != number:  # noqa: PLR0124 - true for NaN only
                self.empty += 1
            else:
                self.endless += 1
        self.bins.add(finite)
        if not all(map(float.is_integer, finite)):
            self.are_whole = False
        self.add_whole(Counter(map(int, finite)) if self.are_whole else None)

    def add_whole(self, counts: Mapping[int, int] | None) -> None:
        """Add the counts of integer cells, given by integer. None means that there are too many distinct integers to
        count each one; from then on, integers are counted only in bins of the histogram.
        """
        self.whole = None if counts is None else _sum_if_few(self.whole, counts, MOST_WHOLE)

    def merge(self, other: ColumnTally) -> None:
        """Add all counts of the tally `other`, as for another part of the same column."""
        if other.bins.counts:
            self.bins.widen(other.bins.least, other.bins.greatest)
            self.bins.add_counts(other.bins.exponent, other.bins.counts)
        self.texts = None if other.texts is None else _sum_if_few(self.texts, other.texts, MOST_DIFFERENT)
        self.text_count += other.text_count
        self.are_whole = self.are_whole and other.are_whole
        self.add_whole(other.whole)
        self.add_truths(*other.truths)
        self.empty = self.empty + other.empty
        self.endless = self.endless + other.endless
        self.other += other.other


def _sum_if_few(totals: dict[Any, int] | None, counts: Mapping[Any, int], most: int) -> dict[Any, int] | None:
    """Add `counts` to `totals` in place and return `totals`. Return None if `totals` is None, or if there are more than
    `most` distinct keys.
    """
    if totals is None or len(counts) > most:
        return None
    for key, count in counts.items():
        totals[key] = totals.get(key, 0) + count
    return totals if len(totals) <= most else None


def _key(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}{hash(text)}"


def _plain_cell(cell: Any) -> Any:
    """Convert a cell to str, float, bool or None. A cell that is not a single value, such as a list, is returned
    unchanged.

    Enums count by their value, decimals and integers as floats, and missing values of the libraries as None.
    """
    # Exact built-in classes first, which most cells are. Subclasses, scalars of libraries and recorded forms follow.
    kind = type(cell)
    if cell is None or kind in (str, bool, float):
        return cell
    if isinstance(cell, Enum):
        return _plain_cell(cell.value)
    if isinstance(cell, Recorded):
        return _plain_cell(cell.plain()) if cell.tag == "enum" else cell
    if isinstance(cell, str):
        return str.__str__(cell)
    if isinstance(cell, int | float | Decimal):
        return _number(cell)
    # A scalar of numpy has the shape (), an array has another one.
    if kind.__module__ == "numpy" and not getattr(cell, "shape", (0,)):
        return None if cell != cell else _plain_cell(cell.item())  # noqa: PLR0124 - true for NaN and NaT
    return None if kind.__name__ in _MISSING else cell


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:  # an integer of more than 308 digits
        return math.inf
    except ValueError:  # a signalling NaN of Decimal
        return math.nan
