"""Comparison of runs for people: first difference, all differences as a DataFrame, and both runs side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from divebook.engine.lifecycle import TERMINAL
from divebook.errors import SetupError, UnrelatedError
from divebook.events import Event
from divebook.events.catalog import BADGED
from divebook.events.event import to_datetime
from divebook.events.recorded import garbage_collection_paused
from divebook.projections.compare import (
    BLOCKED,
    LIVE,
    SERVED,
    Divergence,
    OperationTree,
    Pair,
    Row,
    Side,
    as_text,
    money,
    took,
)
from divebook.report.hints import advised
from divebook.report.model import (
    MINUS,
    SIGNS,
    Block,
    Card,
    Difference,
    DifferenceKind,
    Differences,
    DifferentPart,
    Line,
    Paragraph,
    Report,
    Text,
    joined,
)
from divebook.report.shown import Shown
from divebook.text.format import NOTHING, local_time, plural, seconds
from divebook.text.redaction import cut, one_line, shared

if TYPE_CHECKING:
    import pandas as pd


MIME = "application/vnd.divebook.compared+json"
SHOWN = 12
"""Maximum number of differences that the text lists."""


class Comparison(Shown):
    """Result of comparing two or more runs: the first run is compared with each of the others.

    `Run.compare`, `divebook.compare` and ``%dive compare`` return it. As the last value of a cell it shows both runs
    side by side, with the first difference expanded.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:")
    >>> flow = Workflow("w", [Step("add", script="inputs.n + 1", store="sum")], inputs=["n"])
    >>> one, other = (environment.start(flow, {"n": n}).wait() for n in (1, 2))
    >>> comparison = one.compare(other)
    >>> comparison.first.text
    'input n: [-1-]{+2+}'
    >>> [row.place for row in comparison.pairs[0].differences]
    ['input n', 'add', 'add / script', 'variable sum']
    """

    def __init__(self, logs: Sequence[Iterable[Event]]) -> None:
        # The trees have at least one node for each event, and would make Python scan all objects of the kernel several
        # times.
        with garbage_collection_paused():
            first, *other_sides = map(Side.of, logs)
            if not other_sides:
                raise SetupError(f"compare takes two runs or more; {advised('runs', 'divebook.runs()')} lists them")
            for other in other_sides:
                if not first.is_related_to(other):
                    look = advised(f"runs --workflow {first.workflow}", f"divebook.runs(workflow={first.workflow!r})")
                    ids = (first.id, first.workflow), (other.id, other.workflow)
                    raise UnrelatedError(*ids, advice=f"{look} lists them")
            self.pairs = [Pair(first, other) for other in other_sides]

    @property
    def first(self) -> Divergence | None:
        """First difference of the first pair of runs that differs; None if no pair differs."""
        return next((pair.first for pair in self.pairs if pair.first is not None), None)

    @property
    def is_same(self) -> bool:
        """True if no place differs in any pair of runs."""
        return self.first is None

    def frame(self) -> pd.DataFrame:
        """Return a DataFrame with one row per place (step, item, call, ...) and pair of runs; `divebook.analysis.lists`
        documents the columns.
        """
        from divebook.analysis.lists import compared_frame

        return compared_frame(self.pairs)

    @property
    def summary(self) -> str:
        """One line for each pair of runs: the number of differences, and the tokens, cost and time of both runs."""
        return "\n".join(map(summary_of, self.pairs))

    def report(self) -> Report:
        """Return the pairs of runs side by side, with the first difference in full."""
        return Report(blocks=tuple(block for pair in self.pairs for block in _blocks(pair)))

    def _mime_data(self) -> dict[str, object]:
        """Return the ids of the compared runs. divebook's JupyterLab extension uses them to navigate in the HTML
        (``widgets/src/lab/comparison.ts``).
        """
        return {MIME: {"runs": [self.pairs[0].a.id, *(pair.b.id for pair in self.pairs)]}}


def summary_of(pair: Pair) -> str:
    """Return one line about two compared runs: the number of differences, and the tokens, cost and time of both
    runs.
    """
    counts = pair.counts
    figures = [f"{counts[name]:,} {name}" for name in SIGNS if counts[name]]
    one, other = pair.totals
    totals = [
        f"tokens {one.tokens:,} → {other.tokens:,}" if one.tokens or other.tokens else "",
        f"cost {money(one.cost)} → {money(other.cost)}" if one.cost or other.cost else "",
        f"time {took(one)} → {took(other)}" if one.duration is not None or other.duration is not None else "",
    ]
    return "; ".join([", ".join(figures), *filter(None, totals)])


# --- the report about two runs ---------------------------------------------------------------------------------------

MOST = 60
"""Maximum number of differences on a page."""
MOST_PARTS = 4
"""Maximum number of parts of one difference that are shown."""
LONGEST = 4_000
"""Maximum number of characters of one text that are shown."""
LONGEST_ALONE = 400
"""Maximum number of characters of a result that only one run has."""


def _blocks(pair: Pair) -> Iterator[Block]:
    """Yield the parts of the report about two runs: the runs, their figures, the first difference, and all
    differences.
    """
    yield Paragraph((_run("A", pair.a), _run("B", pair.b)))
    yield Paragraph((_figures(pair),))
    if pair.first is None:
        yield Paragraph((f"no difference: {plural(len(pair.rows), 'place')} the same",))
        return
    yield _first(pair.first)
    yield _differences(pair)


def _run(letter: str, side: Side) -> Line:
    began = local_time(to_datetime(side.began_us))
    status = side.status if side.status in TERMINAL else f"{side.status} when they were compared"
    name = one_line(side.workflow, 60) + (f" ({side.origin})" if side.origin in BADGED else "")
    return (Text(letter, "badge"), f" {name} · {began} · ", Text(status, side.status), " · ", Text(side.id, "id"))


def _figures(pair: Pair) -> Line:
    """Return a line about two compared runs: the number of differences, and the tokens, cost and time of both runs."""
    counts = pair.counts
    one, other = pair.totals
    figures = [f"{SIGNS[name]} {counts[name]:,} {name}" for name in SIGNS if counts[name]]
    if one.tokens or other.tokens:
        figures.append(f"tokens {one.tokens:,} → {other.tokens:,}{_percent(one.tokens, other.tokens)}")
    if one.cost or other.cost:
        figures.append(f"cost {money(one.cost)} → {money(other.cost)}{_percent(one.cost, other.cost)}")
    if one.duration is not None or other.duration is not None:
        figures.append(f"time {took(one)} → {took(other)}")
    return joined(" · ", figures)


def _percent(before: float | None, after: float | None) -> str:
    if not before or after is None or before == after:
        return ""
    return f" ({(after - before) / before:+.0%})".replace("-", MINUS)


def _first(first: Divergence) -> Card:
    """Return a card that shows the first difference between two runs in full."""
    events = [f"event {first.event:,} of A"] if first.event else []
    events += [f"event {first.other_event:,} of B"] if first.other_event else []
    difference = _difference(first.row, 1, is_whole=True)
    title = ("First difference: ", Text(difference.place, "strong"), Text(f" ({', '.join(events)})", "faint"))
    return Card(title, (Differences((difference,), has_places=False),))


def _differences(pair: Pair) -> Differences:
    """Return the differences between two runs, at most `MOST`. Equal places between them are one row. The note counts
    the omitted differences.
    """
    telling = {id(row) for row in pair.telling}
    rows: list[Difference] = []
    remaining = len(telling)
    alone = 0
    # Rows that differ only because something inside them differs are left out.
    for kind, count, row in _folded(row for row in pair.rows if row.difference == "same" or id(row) in telling):
        if row is None:
            rows.append(Difference(kind, count=count))
        # `rows` contains the folded rows too, about one for each difference.
        elif len(rows) < 2 * MOST:
            rows.append(_difference(row, count, is_whole=False))
            remaining = remaining - count
            alone = alone + 1
    # Differences that are neither shown nor counted as remaining lie inside or around the shown ones.
    within = len(pair.differences) - remaining - alone
    notes = [f"… and {plural(remaining, 'more difference')}"] if remaining else []
    notes += [f"not shown: {plural(within, 'difference')} inside of these or around them"] if within else []
    note = f"{'; '.join(notes)}; .frame() has all." if notes else ""
    return Differences(tuple(rows[: 2 * MOST]), note=note, most_in_text=SHOWN)


def _folded(rows: Iterable[Row]) -> Iterator[tuple[DifferenceKind, int, Row | None]]:
    """Yield the lines of the table of differences between two runs, in order. A line has the kind of difference, the
    number of places (steps, items, calls, ...) for which it stands, and the first of these places.

    If one run lacks a place as a whole, the places inside it are counted and not yielded. Consecutive equal rows
    become one entry ``("same", count, None)``. For the rows same, same, added a, added a / b, same the function yields
    ``("same", 2, None)``, ``("added", 2, row a)``, ``("same", 1, None)``.
    """
    same = 0
    alone = ""
    pending = None
    count = 0
    for row in rows:
        # A place that one run lacks contains only such places.
        if pending is not None and row.difference in ("added", "removed") and row.place.startswith(alone):
            count += 1
            continue
        if pending is not None:
            yield pending.difference, count, pending
            pending = None
        if row.difference == "same":
            same += 1
            continue
        if same:
            yield "same", same, None
            same = 0
        pending = row
        count = 1
        # "\0" is in no place, so that nothing counts as inside of a changed row.
        alone = f"{row.place} / " if row.difference != "changed" else "\0"
    if pending is not None:
        yield pending.difference, count, pending
    if same:
        yield "same", same, None


def _difference(row: Row, count: int, *, is_whole: bool) -> Difference:
    """Return a place at which two runs differ. If `is_whole` is False, long text that both have in common is shortened.

    If one run lacks the place, the difference shows the result in the other. If no part differs, it shows the status of
    both. Else it shows the first `MOST_PARTS` differing parts.
    """
    place = one_line(row.place, 160)
    labels = (_way(row.a), _way(row.b))
    if row.a is None or row.b is None:
        text = _alone(row.present)
        part = DifferentPart("", None if row.a is None else text, None if row.b is None else text)
        return Difference(row.difference, place, (part,), labels=labels, count=count)
    if not row.parts:
        statuses = (DifferentPart("", row.a.status, row.b.status, is_whole=True),)
        return Difference(row.difference, place, statuses, labels=labels, notes=_beside(row.a, row.b))
    different = tuple(
        DifferentPart(one_line(part.place, 60), _text(part.before), _text(part.after), is_whole)
        for part in row.parts[:MOST_PARTS]
    )
    more = len(row.parts[MOST_PARTS:])
    return Difference(row.difference, place, different, more, labels, _beside(row.a, row.b))


def _way(side: OperationTree | None) -> str:
    """Return the source of a result in a what-if: replayed, live or blocked; an empty string for other nodes."""
    return side.way if side is not None and side.way in (SERVED, LIVE, BLOCKED) else ""


def _alone(side: OperationTree) -> str:
    value = side.asked if side.answered is None else side.answered
    if value is None:
        return ""
    # The end of a run is its error, which is shown in full.
    return cut(shared().text(as_text(value)), LONGEST if side.kind == "end" else LONGEST_ALONE)


def _text(value: object) -> str | None:
    return None if value is NOTHING else str(shared().text(cut(as_text(value), LONGEST)))


def _beside(a: OperationTree, b: OperationTree) -> tuple[str, ...]:
    """Return the differences in tokens, cost and time of a call between two runs: how much more the second run needed.
    Return none for a node that is not a call.
    """
    if a.kind != "operation":
        return ()
    differences = []
    if a.tokens is not None and b.tokens is not None and a.tokens != b.tokens:
        differences.append(_signed(b.tokens - a.tokens, f"{abs(b.tokens - a.tokens):,} tokens"))
    if a.cost is not None and b.cost is not None and a.cost != b.cost:
        differences.append(_signed(b.cost - a.cost, money(abs(b.cost - a.cost))))
    is_made = not {SERVED, BLOCKED}.intersection((a.way, b.way))  # else its time tells nothing
    if is_made and a.duration_us is not None and b.duration_us is not None:
        more = b.duration_us - a.duration_us
        differences.append(_signed(more, seconds(abs(more) / 1e6)))
    return tuple(differences)


def _signed(number: int, text: str) -> str:
    return text if number == 0 else f"{'+' if number > 0 else MINUS}{text}"
