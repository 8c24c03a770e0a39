"""What the rows and items of a step gave, column by column, as far as it can be told at a glance.

`Spreads` follows a log; counting what it was told of costs something, and is left until somebody looks. Of texts,
truths and whole numbers with few different values the most frequent are named; of other numbers there are some twenty
bins; free text is left out. Texts are as people may see them (`divebook.text.cuts`), and a column whose name is one of
secrets is not told.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, Literal, NamedTuple, TypeAlias

from divebook.errors import UnopenableValueError
from divebook.events import Event, catalog
from divebook.events.recorded import Recorded
from divebook.events.tally import MOST_COUNTED, ColumnTally
from divebook.history.course import ItemProgress
from divebook.text.cuts import one_line
from divebook.text.secret_names import looks_secret

MOST_STEPS, MOST_COLUMNS, MOST_VALUES = 3, 3, 8
"""Steps of which it is told, columns of each, and values of each of these."""
LEAST_NUMBERS = 8
"""Fewer numbers say more by themselves than in bins."""
NAME = 40
RESULT = "result"
"""The column of what has no names of its own (`divebook.events.arrow.rows`)."""

Kind: TypeAlias = Literal["values", "numbers"]


class Counted(NamedTuple):
    """A value, or a bin of numbers, and in how many rows it is."""

    name: str
    rows: int


class Spread(NamedTuple):
    """What one column holds."""

    name: str
    kind: Kind
    parts: tuple[Counted, ...]
    """The most frequent values, the most frequent first; or all bins, ascending."""
    others: Counted
    """How many other values there are, in words, and in how many rows."""
    empty: int
    """Rows that gave nothing here."""
    least: str = ""
    greatest: str = ""
    """Of numbers."""
    middle: str = ""
    """About the number that half of them do not exceed."""

    @property
    def words(self) -> str:
        """It as a line of text: ``label: praise 812, blame 164, 3 others 24``."""
        told = [f"{name} {rows:,}" for name, rows in (*self.parts, self.others) if rows]
        if self.kind == "numbers":
            beyond = [f"{self.others.rows:,} {self.others.name}"] if self.others.rows else []
            told = [f"{self.least} to {self.greatest}", f"median about {self.middle}", *beyond]
        return f"{self.name}: {', '.join([*told, *([f'{self.empty:,} empty'] if self.empty else [])])}"


Columns: TypeAlias = dict[str, ColumnTally]


class Spreads:
    """Follows a log, event by event.

    Examples
    --------
    >>> spreads = Spreads()
    >>> for number, value in enumerate(["good", "bad", "good"], 1):
    ...     fact = catalog.IterationCompleted(number, {"text": value})
    ...     spreads.take(Event(f"event_{number}", "exec_1", number, number, fact, "main", "mark"))
    >>> [spread.words for spread in spreads.of("mark")]
    ['result: good 2, bad 1']
    """

    def __init__(self) -> None:
        self._visits: dict[str, dict[str, Columns]] = {}
        """What was counted, by step and path."""
        self._waiting: deque[tuple[Columns, str, Any, int]] = deque()
        """What is still to be counted: where, of which step, and of how many rows."""
        self._told: dict[str, tuple[Spread, ...]] = {}
        """By step, unless more was counted since."""

    def take(self, event: Event) -> None:
        """Let one event have its effect."""
        data = event.data
        if isinstance(data, catalog.RowsCompleted):
            self._waiting.append((self._columns(event), event.step, data.result, max(1, data.rows)))
        elif isinstance(data, catalog.IterationCompleted):
            self._waiting.append((self._columns(event), event.step, given_by(data.result), 1))
        elif isinstance(data, catalog.StepStarted) and event.step in self._visits:
            self._visits[event.step].pop(event.path, None)  # it begins anew
            self._told.pop(event.step, None)

    @property
    def is_behind(self) -> bool:
        """Whether there is something that was not counted yet."""
        return bool(self._waiting)

    def count(self, most: float = math.inf) -> None:
        """Count what has ended, about so many rows of it."""
        items: dict[int, tuple[Columns, dict[str, list[Any]]]] = {}
        while self._waiting and most > 0:
            columns, step, given, rows = self._waiting.popleft()
            most -= rows
            self._told.pop(step, None)
            if isinstance(given, Recorded) and given.tag == "arrow":
                _count_rows(given, columns)
            else:
                cells = items.setdefault(id(columns), (columns, {}))[1]
                for name, cell in given.items() if isinstance(given, Mapping) else ((RESULT, given),):
                    cells.setdefault(name, []).append(cell)
        for columns, cells in items.values():
            _count_cells(cells, columns)

    def of(self, step: str) -> tuple[Spread, ...]:
        """Return what the rows of a step gave in its latest visit of each path, counted to the end."""
        self.count()
        return self.so_far(step)

    def so_far(self, step: str) -> tuple[Spread, ...]:
        """Return that of what was counted by now."""
        if step not in self._told:
            self._told[step] = spreads_of(_together(self._visits.get(step, {}).values()))
        return self._told[step]

    def latest(self, steps: Iterable[ItemProgress]) -> dict[str, tuple[Spread, ...]]:
        """Return that of the latest steps of which there is something to tell: of those that run, if any do."""
        progress = [*steps]
        chosen = [told for told in progress if told.running] or progress
        found = {told.step: spreads for told in chosen if (spreads := self.so_far(told.step))}
        return dict([*found.items()][-MOST_STEPS:])

    def _columns(self, event: Event) -> Columns:
        return self._visits.setdefault(event.step, {}).setdefault(event.path, {})


def given_by(result: Any) -> Any:
    """Return what an item gave, as the log holds it: of a workflow function what that returned."""
    value = result.get("value", result.get("text")) if isinstance(result, Mapping) else result
    return value["result"] if isinstance(value, dict) and [*value] == ["result"] else value


def _count_rows(recorded: Recorded, columns: Columns) -> None:
    from divebook.events.arrow.counted import count_rows

    with suppress(UnopenableValueError):  # its classes are not known here, or it is damaged
        count_rows(recorded, columns)


def _count_cells(cells: Mapping[str, Sequence[Any]], columns: Columns) -> None:
    for name, found in cells.items():
        if name in columns or len(columns) < MOST_COUNTED:
            columns.setdefault(name, ColumnTally()).add(found)


def _together(visits: Iterable[Columns]) -> Columns:
    first, *others = [*visits] or [{}]
    if not others:
        return first
    found: Columns = {}
    for columns in (first, *others):
        for name, tally in columns.items():
            found.setdefault(name, ColumnTally()).merge(tally)
    return found


# --- in words ------------------------------------------------------------------------------------------------------


def spreads_of(columns: Columns) -> tuple[Spread, ...]:
    """Return what is told of columns, in their order."""
    found = (_spread(name, tally) for name, tally in columns.items() if not looks_secret(name))
    return tuple(spread for spread in found if spread is not None)[:MOST_COLUMNS]


def _spread(name: str, tally: ColumnTally) -> Spread | None:
    """Return what is told of a column; None of one that holds free text, or no single values."""
    has_words = bool(tally.text_count or any(tally.truths))
    many = tally.whole is None and tally.bins.count
    if many and not has_words and not tally.other and tally.bins.least < tally.bins.greatest:
        return _of_numbers(name, tally)
    if tally.texts is None:
        return None
    counts = [(_named(text), count) for text, count in tally.texts.items()]
    counts += [(str(truth), count) for truth, count in zip((False, True), tally.truths, strict=True) if count]
    if many:
        counts.append(("numbers" if tally.bins.least < tally.bins.greatest else _number(tally.bins.least), many))
    else:
        counts += [(_number(float(number)), count) for number, count in (tally.whole or {}).items()]
    beyond = ("infinite", tally.endless), ("no single value", tally.other)
    counts += [(kind, count) for kind, count in beyond if count]
    return _of_values(name, counts, tally)


def _of_values(name: str, counts: list[tuple[str, int]], tally: ColumnTally) -> Spread | None:
    total = sum(count for _, count in counts)
    is_free = len(counts) > total / 2 if len(counts) > MOST_VALUES else len(counts) == total
    if not total or is_free or tally.other == total:
        return None
    first, rest = (ranked := sorted(counts, key=lambda one: (-one[1], one[0])))[:MOST_VALUES], ranked[MOST_VALUES:]
    others = Counted(f"{len(rest):,} other{'' if len(rest) == 1 else 's'}", sum(count for _, count in rest))
    return Spread(one_line(name, NAME), "values", tuple(Counted(*one) for one in first), others, tally.empty)


def _of_numbers(name: str, tally: ColumnTally) -> Spread | None:
    bins = tally.bins
    if bins.count < LEAST_NUMBERS:
        return None
    exponent = max(0, bins.exponent) if tally.are_whole else bins.exponent
    listed, width = bins.listed(exponent), math.ldexp(1.0, exponent)
    step = 1.0 if tally.are_whole else 0.0  # from the greatest number of a bin to the least one of the next
    parts = tuple(Counted(_range(begin, begin + width - step), count) for begin, count in listed)
    middle = _about(_middle(listed, bins.count) + (width - step) / 2, width)
    ends = _number(bins.least), _number(bins.greatest)
    return Spread(
        one_line(name, NAME), "numbers", parts, Counted("infinite", tally.endless), tally.empty, *ends, middle
    )


def _range(least: float, greatest: float) -> str:
    return _number(least) if least == greatest else f"{_number(least)} to {_number(greatest)}"


def _middle(listed: list[tuple[float, int]], count: int) -> float:
    """Return where the bin begins in which half of the numbers are reached."""
    reached = accumulate(inside for _, inside in listed)
    return next(begin for (begin, _), so_far in zip(listed, reached, strict=True) if 2 * so_far >= count)


def _named(text: str) -> str:
    return one_line(text, NAME) or '""'


def _number(value: float) -> str:
    """Return a number in few characters.

    >>> _number(1234567.0), _number(0.123456), _number(1e300)
    ('1,234,567', '0.1235', '1e+300')
    """
    return f"{int(value):,}" if value.is_integer() and abs(value) < 1e12 else f"{value:.4g}"


def _about(value: float, width: float) -> str:
    """Return a number to the digits that the width of a bin leaves."""
    digits = max(0, -math.floor(math.log10(width)))
    return _number(round(value, digits)) if digits < 12 else _number(value)
