"""Runs laid side by side, place by place: what is the same, what has changed, what only one of them has.

Places are matched by what they are: a visit by path, step and number, an item by its index, a call by its key within
what holds it. Where the lists differ, what tells one from the others is looked at first: the key or the value of an
item, what a call was asked; and visits of a step are matched in their order where paths have other names. The clock is
not compared, nor are ids: what code made of them is.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

from divebook.engine.bounds import NANODOLLARS
from divebook.errors import SetupError
from divebook.events import Event, catalog
from divebook.events.by_hash import ByHash
from divebook.events.readable import readable
from divebook.history.placed import Placed, placed
from divebook.history.read_log import ReadLog
from divebook.history.served import SERVED
from divebook.text.cuts import one_line
from divebook.text.differences import NOTHING, Differing, alike, marked, parts
from divebook.text.durations import seconds
from divebook.text.redaction import shared
from divebook.text.shown import plural, price, visible

Difference: TypeAlias = Literal["same", "changed", "added", "removed"]
Facet: TypeAlias = Literal["asked", "answered", "status"]
MINUS = "\u2212"
"""As wide as the plus."""
SIGNS: dict[Difference, str] = {"same": "=", "changed": "≠", "added": "+", "removed": MINUS}


@dataclass(frozen=True, slots=True)
class Row:
    """One place in two runs."""

    a: Placed | None
    b: Placed | None
    place: str
    """``classify / classify[18] / model call helper``."""
    facet: Facet | None
    """What differs first: what was asked, what came of it, how it ended; None where nothing does, or one lacks it."""

    @property
    def difference(self) -> Difference:
        """What became of it."""
        if self.a is None:
            return "added"
        return "removed" if self.b is None else "same" if self.facet is None else "changed"

    @property
    def present(self) -> Placed:
        """It in the first run that has it."""
        found = self.a or self.b
        assert found is not None, "a row stands for something"  # noqa: S101 - rows are made in this file only
        return found

    def event_of(self, side: Placed | None) -> int | None:
        """Return the event with which the difference is met in a run; None where that run lacks it."""
        if side is None:
            return None
        return side.ended if self.facet in ("answered", "status") else side.began

    @property
    def parts(self) -> list[Differing]:
        """The smallest parts in which the two differ: of what was asked, else of what came of it."""
        if self.a is None or self.b is None or self.facet is None:
            return []
        found = parts(getattr(self.a, self.facet), getattr(self.b, self.facet))
        return [part._replace(place=_in_words(part.place)) for part in found]


class Divergence(NamedTuple):
    """Where two runs part: the first difference in the order of the first run's log."""

    row: Row
    event: int | None
    """Its event in the first run; None where only the other has it."""
    other_event: int | None
    step: str
    text: str
    """What it is, in words, with both sides in one text; no secrets."""

    def __str__(self) -> str:
        return self.text


class Side(NamedTuple):
    """One of the runs."""

    id: str
    workflow: str
    fingerprint: str
    parent: str
    origin: str
    """How it came about, one of `divebook.events.catalog.ORIGINS`."""
    status: str
    began_us: int
    took_us: int
    """From its first event to its last, without the time between the fork of a fork and what it was forked from."""
    root: Placed

    @classmethod
    def of(cls, log: Iterable[Event]) -> Side:
        """Read a log."""
        read = ReadLog.of(log)
        if not read or not isinstance(read[0].data, catalog.ExecutionStarted):
            raise SetupError("a run that has not begun has nothing to compare; start it first")
        began, start = read[0], read[0].data
        forks = [(event.sequence, event.data) for event in read if isinstance(event.data, catalog.ExecutionForked)]
        between = sum(read[place - 1].recorded_at - read[place - 2].recorded_at for place, _ in forks)
        shared().learn(start.inputs)
        root = placed(read)
        end = next((inner for inner in root.inside if inner.kind == "end"), None)
        return cls(
            began.execution_id,
            start.workflow_name,
            start.fingerprint or "",
            start.parent or "",
            forks[-1][1].came_from if forks else start.came_from,
            end.status if end else root.status,
            began.recorded_at,
            read[-1].recorded_at - began.recorded_at - between,
            root,
        )

    def is_related_to(self, other: Side) -> bool:
        """Whether both ran one workflow, or one was made of the other."""
        same = self.workflow == other.workflow or (self.fingerprint and self.fingerprint == other.fingerprint)
        return bool(same) or self.parent == other.id or other.parent == self.id


class Totals(NamedTuple):
    """What the calls of a run come to."""

    tokens: int
    cost: int | None
    """Nanodollars; None where no price is known."""
    seconds: float | None
    """That it took; None of what was answered from a log, in no time."""


class Pair:
    """Two runs, place by place."""

    def __init__(self, a: Side, b: Side) -> None:
        self.a, self.b = a, b
        self.rows: list[Row] = list(_rows(a.root, b.root, ""))

    @cached_property
    def differences(self) -> list[Row]:
        """The rows that are not the same."""
        return [row for row in self.rows if row.difference != "same"]

    @cached_property
    def telling(self) -> list[Row]:
        """The differences without the steps, items and turns that differ in their outcome and in what they hold."""
        found: list[Row] = []
        for row in reversed(self.differences):
            inside = f"{row.place} / "
            if row.facet != "answered" or not any(inner.place.startswith(inside) for inner in found[-1:]):
                found.append(row)
        return found[::-1]

    @cached_property
    def first(self) -> Divergence | None:
        """Where they part: nothing that follows from a difference comes before it in a log."""
        if not self.differences:
            return None
        reached, at = 0.0, dict[int, float]()
        for row in sorted(self.rows, key=lambda row: row.b.began if row.b is not None else 0):
            at[id(row)] = reached + 0.5 if row.a is None else row.event_of(row.a) or 0
            if row.a is not None and row.b is not None:  # what lies inside comes before the end of what holds it
                reached = max(reached, row.a.began if row.a.inside else at[id(row)])
        row = min(self.differences, key=lambda row: at[id(row)])
        return Divergence(row, row.event_of(row.a), row.event_of(row.b), row.present.step, told(row))

    @property
    def totals(self) -> tuple[Totals, Totals]:
        """What the calls of both come to: what was answered from the other's log counts as it did there."""
        ours = [row.a for row in self.rows if row.a is not None]
        theirs = [row.b for row in self.rows if row.b is not None]
        return _totals(self.a, ours, self.b, theirs), _totals(self.b, theirs, self.a, ours)

    @property
    def counts(self) -> dict[Difference, int]:
        """How many places are the same, changed, added and removed."""
        found: dict[Difference, int] = dict.fromkeys(SIGNS, 0)
        for row in self.rows:
            found[row.difference] += 1
        return found


# --- matching ------------------------------------------------------------------------------------------------------


def _rows(a: Placed, b: Placed, above: str) -> Iterator[Row]:
    """Yield the rows of what two places hold, in the first's order; what only the other has after its neighbour."""
    partner = _partners(a.inside, b.inside)
    taken = {id(mine): its for its, mine in ((inner, partner.get(id(inner))) for inner in b.inside) if mine is not None}
    after: dict[int, list[Placed]] = defaultdict(list)
    neighbour = 0
    for inner in b.inside:
        mine = partner.get(id(inner))
        if mine is None:
            after[neighbour].append(inner)
        else:
            neighbour = id(mine)
    for inner in after[0]:
        yield from _alone(inner, above, is_first=False)
    for inner in a.inside:
        its = taken.get(id(inner))
        if its is None:
            yield from _alone(inner, above, is_first=True)
        else:
            place = above + inner.label
            yield Row(inner, its, place, _facet(inner, its))
            if inner.inside or its.inside:
                yield from _rows(inner, its, f"{place} / ")
        for added in after.get(id(inner), ()):
            yield from _alone(added, above, is_first=False)


def _alone(inner: Placed, above: str, *, is_first: bool) -> Iterator[Row]:
    """Yield the rows of what one run has alone."""
    place = above + inner.label
    yield Row(inner if is_first else None, None if is_first else inner, place, None)
    for part in inner.inside:
        yield from _alone(part, f"{place} / ", is_first=is_first)


def _facet(a: Placed, b: Placed) -> Facet | None:
    if not alike(a.asked, b.asked):
        return "asked"
    if not alike(a.answered, b.answered):
        return "answered"
    return None if a.status == b.status else "status"


def _partners(ours: Sequence[Placed], theirs: Sequence[Placed]) -> dict[int, Placed]:
    """Return, by the id of each of theirs that has one, what it is matched with."""
    if [inner.key for inner in ours] == [inner.key for inner in theirs] and _are_settled(ours, theirs):
        return {id(its): mine for mine, its in zip(ours, theirs, strict=True)}
    found: dict[int, Placed] = {}
    for kind in dict.fromkeys(inner.kind for inner in theirs):
        left = [inner for inner in ours if inner.kind == kind]
        other = [inner for inner in theirs if inner.kind == kind]
        for way in _ways(kind, left, other):
            if not left or not other:
                break
            _match(left, other, way, found)
            matched = {id(mine) for mine in found.values()}
            left = [inner for inner in left if id(inner) not in matched]
            other = [inner for inner in other if id(inner) not in found]
    return found


def _are_settled(ours: Sequence[Placed], theirs: Sequence[Placed]) -> bool:
    """Whether those that have the same places are one by one the same things."""
    pairs = zip(ours, theirs, strict=True)
    return all(a.kind == b.kind and (a.kind != "item" or alike(a.asked, b.asked)) for a, b in pairs)


def _ways(kind: str, ours: Sequence[Placed], theirs: Sequence[Placed]) -> tuple[Callable[[Placed], Hashable], ...]:
    """Return by what they are matched, the surest first."""
    if kind == "step":
        return _by_key, _by_telling
    are_alike = [inner.key for inner in ours] == [inner.key for inner in theirs] and _are_settled(ours, theirs)
    if are_alike or kind not in ("item", "operation"):
        return (_by_key,)
    return _by_both, _by_telling, _by_key


def _by_key(inner: Placed) -> Hashable:
    return inner.key  # type: ignore[no-any-return]  # of each kind another


def _by_telling(inner: Placed) -> Hashable:
    return inner.tells  # type: ignore[no-any-return]  # likewise


def _by_both(inner: Placed) -> Hashable:
    return inner.key, inner.tells


def _match(
    ours: Iterable[Placed], theirs: Iterable[Placed], way: Callable[[Placed], Hashable], found: dict[int, Placed]
) -> None:
    """Match what is equal in one way, each once, in order."""
    waiting: dict[Hashable, deque[Placed]] = defaultdict(deque)
    for inner in ours:
        waiting[way(inner)].append(inner)
    for inner in theirs:
        same = waiting.get(way(inner))
        if same:
            found[id(inner)] = same.popleft()


# --- in words --------------------------------------------------------------------------------------------------------


def told(row: Row) -> str:
    """Return a difference in a line: both sides in one text, without secrets."""
    clean = shared().text
    if row.difference != "changed":
        which = "the first" if row.b is None else "the other"
        return f"{row.place}: {row.difference}, only in {which} run"
    found = row.parts
    if row.facet == "status" or not found or row.a is None or row.b is None:
        return f"{row.place}: {row.a and row.a.status} before, now {row.b and row.b.status}"
    part = found[0]
    under = f", {part.place}" if part.place else ""
    more = f" (and {plural(len(found) - 1, 'more part')})" if found[1:] else ""
    texts = clean(as_text(part.before)), clean(as_text(part.after))
    return visible(f"{one_line(row.place, 120)}{under}: {one_line(marked(*texts), 400)}{more}")


def _in_words(place: str) -> str:
    """Return the place of a part as people call it: in what models are told and answer, what it is.

    >>> _in_words("new[0].parts[1].content"), _in_words("parts[0].args.city"), _in_words("arguments.n")
    ('message', 'arguments.city', 'arguments.n')
    """
    return next((pattern.sub(word, place) for pattern, word in _MESSAGE_PARTS if pattern.match(place)), place)


_MESSAGE_PARTS = [
    (re.compile(rf"{before}parts\[\d+\]\.{name}\b"), word)
    for before, name, word in (
        (r"new\[\d+\]\.", "content", "message"),
        ("", "content", "answer"),
        ("", "args", "arguments"),
        ("", "tool_name", "tool"),
    )
]


def as_text(value: Any) -> str:
    """Return a value as people read it; nothing of what a run lacks."""
    if value is NOTHING:
        return ""
    value = value.value if isinstance(value, ByHash) else value
    return value if isinstance(value, str) else str(readable(value))


def money(nanodollars: int | None) -> str:
    """Return a cost as people read it.

    >>> money(1_500_000_000), money(None)
    ('$1.50', 'unknown')
    """
    return "unknown" if nanodollars is None else price(nanodollars / NANODOLLARS)


def took(totals: Totals) -> str:
    """Return the time that a run took as people read it."""
    return "answered from the log" if totals.seconds is None else seconds(totals.seconds)


def _totals(side: Side, found: Sequence[Placed], other: Side, its: Sequence[Placed]) -> Totals:
    calls = [each for each in found if each.kind == "operation"]
    served = {each.served["sequence"] for each in calls if each.served and each.served.get("execution") == other.id}
    calls += [each for each in its if each.kind == "operation" and each.ended in served]
    costs = [each.cost for each in calls if each.cost is not None]
    took = None if any(each.way == SERVED for each in calls) else side.took_us / 1e6
    return Totals(sum(each.tokens or 0 for each in calls), sum(costs) if costs else None, took)
