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
    MINUS,
    SERVED,
    SIGNS,
    Difference,
    Divergence,
    OperationTree,
    Pair,
    Row,
    Side,
    as_text,
    describe,
    money,
    took,
)
from divebook.text.colours import LIGHT
from divebook.text.format import (
    ADDED,
    AS_TEXT,
    NOTHING,
    REMOVED,
    SAME,
    Sign,
    local_time,
    pieces,
    plural,
    seconds,
)
from divebook.text.markup import element, row_element, safe, styled, table_element
from divebook.text.redaction import cut, one_line, shared

if TYPE_CHECKING:
    import pandas as pd


MIME = "application/vnd.divebook.compared+json"
SHOWN = 12
"""Maximum number of differences that the text lists."""


class Comparison:
    """Result of comparing two or more runs: the first run is compared with each of the others.

    `Run.compare`, `divebook.compare` and ``%dive compare`` return it. As the last value of a cell it shows both runs
    side by side, with the first difference expanded.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:")
    >>> flow = Workflow("w", [Step("add", script="inputs.n + 1", store="sum")], inputs=["n"])
    >>> one, other = (environment.start(flow, {"n": n}).wait() for n in (1, 2))
    >>> found = environment.compare(one, other)
    >>> found.first.text
    'input n: [-1-]{+2+}'
    >>> [row.place for row in found.pairs[0].differences]
    ['input n', 'add', 'add / script', 'variable sum']
    """

    def __init__(self, logs: Sequence[Iterable[Event]]) -> None:
        # The trees have at least one node for each event, and would make Python scan all objects of the kernel several
        # times.
        with garbage_collection_paused():
            first, *other_sides = map(Side.of, logs)
            if not other_sides:
                raise SetupError("compare takes two runs or more; %dive runs lists them")
            for other in other_sides:
                if not first.is_related_to(other):
                    raise UnrelatedError((first.id, first.workflow), (other.id, other.workflow))
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

    def __repr__(self) -> str:
        return "\n\n".join("\n".join(_lines(pair)) for pair in self.pairs)

    def _repr_html_(self) -> str:
        return "".join(map(page_of, self.pairs))

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
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
        f"time {took(one)} → {took(other)}" if one.seconds is not None or other.seconds is not None else "",
    ]
    return "; ".join([", ".join(figures), *filter(None, totals)])


def _lines(pair: Pair) -> Iterator[str]:
    yield f"A {pair.a.id} of {pair.a.workflow!r}, {pair.a.status}"
    yield f"B {pair.b.id} of {pair.b.workflow!r}, {pair.b.status}"
    yield summary_of(pair)
    if pair.first is None:
        yield "no difference"
        return
    event = "" if pair.first.event is None else f"event {pair.first.event}, "
    yield f"first difference: {event}{pair.first.text}"
    # The first difference has a line of its own above the list.
    more_rows = [row for row in pair.telling if row is not pair.first.row]
    for row in more_rows[:SHOWN]:
        yield f"  {SIGNS[row.difference]} {describe(row)}"
    if more_rows[SHOWN:]:
        yield f"  and {plural(len(more_rows) - SHOWN, 'more difference')}: .frame() has all"


# --- marks of removed and added words --------------------------------------------------------------------------------
#
# The HTML is saved with the notebook: inline styles only, legible in the light and the dark theme.


RULE = f"1px solid {LIGHT['rule']}"
CELL = "padding:4px 10px 4px 0;text-align:left;vertical-align:top;overflow-wrap:anywhere;white-space:normal"
TEXT = "white-space:pre-wrap;overflow-wrap:anywhere"
BADGE = f"display:inline-block;border:{RULE};border-radius:3px;padding:0 5px;margin-right:6px;font-weight:bold"
FAINT = "opacity:.75"
_MARKS = {
    REMOVED: ("del", f"background:{LIGHT['removed-mark']};color:inherit;text-decoration:line-through"),
    ADDED: ("ins", f"background:{LIGHT['added-mark']};color:inherit;text-decoration:underline"),
}


def piece_of(sign: Sign, text: str) -> str:
    """Return a piece of text as HTML. It is marked as removed or added if it occurs in only one of two compared
    texts.
    """
    if sign == SAME:
        return safe(text)
    name, style = _MARKS[sign]
    return element(name, safe(text), style=style)


# --- the HTML page of two runs ---------------------------------------------------------------------------------------
#
# The page has no script and no style sheet. The first difference is expanded. Consecutive equal places are folded into
# one line. Differing words have a colour and a line through or below them, so that readers need only one of both.


MOST = 60
"""Maximum number of differences on the HTML page."""
MOST_PARTS = 4
"""Maximum number of parts of one difference that are shown."""
LONGEST = 4_000
"""Maximum number of characters of one text that are shown."""
CONTEXT = 60
"""Number of characters of unchanged text that are shown on each side of a difference."""


def page_of(pair: Pair) -> str:
    """Return the HTML that shows two runs side by side."""
    head = f"{_run('A', pair.a)}{_run('B', pair.b)}{_figures(pair)}"
    none = f"<p>= No difference: {_count(len(pair.rows))} the same.</p>"
    body = none if pair.first is None else f"{_first(pair)}{_table(pair)}"
    return f'<div class="{AS_TEXT}" style="margin:4px 0">{head}{body}</div>'


def _run(letter: str, side: Side) -> str:
    began = local_time(to_datetime(side.began_us))
    status = side.status if side.status in TERMINAL else f"{side.status} when they were compared"
    name = safe(one_line(side.workflow, 60)) + (f" ({side.origin})" if side.origin in BADGED else "")
    facts = f"{name} · {began} · {status} · {side.id}"
    return f'<div style="margin:2px 0;overflow-wrap:anywhere">{styled(BADGE, letter)}{facts}</div>'


def _figures(pair: Pair) -> str:
    """Return the HTML line about two compared runs: the number of differences, and the tokens, cost and time of both
    runs.
    """
    counts = pair.counts
    (one, other) = pair.totals
    figures = [f"{SIGNS[name]} {count:,} {name}" for name, count in counts.items() if count]
    if one.tokens or other.tokens:
        figures.append(f"Tokens {one.tokens:,} → {other.tokens:,}{_percent(one.tokens, other.tokens)}")
    if one.cost or other.cost:
        figures.append(f"Cost {money(one.cost)} → {money(other.cost)}{_percent(one.cost, other.cost)}")
    if one.seconds is not None or other.seconds is not None:
        figures.append(f"Time {took(one)} → {took(other)}")
    parts = "".join(styled("margin-right:18px;display:inline-block", part) for part in figures)
    return f'<div style="margin:6px 0">{parts}</div>'


def _percent(before: float | None, after: float | None) -> str:
    if not before or after is None or before == after:
        return ""
    return f" ({(after - before) / before:+.0%})".replace("-", MINUS)


def _first(pair: Pair) -> str:
    """Return the HTML that shows the first difference between two runs in full."""
    first = pair.first
    assert first is not None, "asked only where there is one"  # noqa: S101 - `page_of` has looked
    row = first.row
    events = [f"event {first.event:,} of A"] if first.event else []
    events += [f"event {first.other_event:,} of B"] if first.other_event else []
    title = f"First difference: {safe(one_line(row.place, 200))}"
    lanes = row_element(_lane(letter, text) for letter, text in zip("AB", _texts(row, whole=True), strict=True))
    table = table_element([], [lanes], style="width:100%;table-layout:fixed;margin:4px 0 0 0")
    return (
        f'<div style="border:{RULE};border-left:4px solid {LIGHT["edge"]};padding:6px 10px;margin:8px 0">'
        f"<div><strong>{title}</strong> {styled(FAINT, ', '.join(events))}</div>{table}</div>"
    )


def _lane(letter: str, text: str) -> str:
    return element("td", element("div", styled(BADGE, letter) + text, style=TEXT), style=f"{CELL};width:50%")


def _table(pair: Pair) -> str:
    """Return the HTML table of the differences between two runs, at most `MOST`. Equal places between them are
    summarized in one line.

    The line below the table counts the differences that the table omits.
    """
    titles = ("Difference", "28%"), ("A", "27%"), ("B", "27%"), (f"B {MINUS} A", "18%")
    head = [element("th", title, style=f"{CELL};width:{width}") for title, width in titles]
    telling = {id(row) for row in pair.telling}
    lines = []
    remaining = len(telling)
    alone = 0
    # Rows that differ only because something inside them differs are left out.
    for kind, count, row in _folded(row for row in pair.rows if row.difference == "same" or id(row) in telling):
        if row is None:
            text = f"{SIGNS[kind]} {_count(count)} the same"
            cell = element("td", text, colspan="4", style=f"{CELL};opacity:.75")
            lines.append(row_element([cell], class_="divebook-same"))
        # `lines` contains the folded lines too, about one for each difference.
        elif len(lines) < 2 * MOST:
            lines.append(_line(row))
            remaining = remaining - count
            alone = alone + 1
    # Differences that are neither shown nor counted as remaining lie inside or around the shown ones.
    within = len(pair.differences) - remaining - alone
    notes = [f"… and {plural(remaining, 'more difference')}"] if remaining else []
    notes += [f"not shown: {plural(within, 'difference')} inside of these or around them"] if within else []
    more = f"<p>{'; '.join(notes)}; .frame() has all.</p>" if notes else ""
    return table_element(head, lines[: 2 * MOST], style="width:100%;table-layout:fixed;border-collapse:collapse") + more


def _folded(rows: Iterable[Row]) -> Iterator[tuple[Difference, int, Row | None]]:
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


def _line(row: Row) -> str:
    sign = f"<strong>{SIGNS[row.difference]} {row.difference}</strong>"
    place = f'<div style="overflow-wrap:anywhere">{safe(one_line(row.place, 160))}</div>'
    a, b = _texts(row, whole=False)
    lanes = (element("div", text, style=TEXT) for text in (a, b))
    cells = (element("td", content, style=CELL) for content in (sign + place, *lanes, _beside(row)))
    return row_element(cells, class_=f"divebook-difference divebook-{row.difference}", style=f"border-top:{RULE}")


def _beside(row: Row) -> str:
    """Format the difference in tokens, cost and time of a call between two runs: how much more the second run needed.
    Return an empty string for a row that is not a call.
    """
    if row.a is None or row.b is None or row.a.kind != "operation":
        return ""
    differences = []
    if row.a.tokens is not None and row.b.tokens is not None and row.a.tokens != row.b.tokens:
        differences.append(_signed(row.b.tokens - row.a.tokens, f"{abs(row.b.tokens - row.a.tokens):,} tokens"))
    if row.a.cost is not None and row.b.cost is not None and row.a.cost != row.b.cost:
        differences.append(_signed(row.b.cost - row.a.cost, money(abs(row.b.cost - row.a.cost))))
    is_made = not {SERVED, BLOCKED}.intersection((row.a.way, row.b.way))  # else its time tells nothing
    if is_made and row.a.duration_us is not None and row.b.duration_us is not None:
        more = row.b.duration_us - row.a.duration_us
        differences.append(_signed(more, seconds(abs(more) / 1e6)))
    return "<br>".join(differences)


def _signed(number: int, text: str) -> str:
    return text if number == 0 else f"{'+' if number > 0 else MINUS}{text}"


# --- texts beside each other -----------------------------------------------------------------------------------------


def _texts(row: Row, *, whole: bool) -> tuple[str, str]:
    """Return both sides of a difference as HTML, for the first and the second run. If `whole` is False, long text that
    both sides have in common is shortened.

    If one run lacks the place, the other lane shows the result. If no part differs, both lanes show the status. Else
    each lane shows its side of the first `MOST_PARTS` differing parts.
    """
    a, b = (_way(side) for side in (row.a, row.b))
    if row.a is None or row.b is None:
        lacking = styled(FAINT, "not in this run")
        alone = _alone(row.present)
        return (lacking, b + alone) if row.a is None else (a + alone, lacking)
    differing = row.parts
    if not differing:
        return a + safe(row.a.status), b + safe(row.b.status)
    lanes: tuple[list[str], list[str]] = ([], [])
    for part in differing[:MOST_PARTS]:
        name = styled(FAINT, f"{safe(one_line(part.place, 60))}: ") if part.place else ""
        for lane, text in zip(lanes, _marked(part.before, part.after, whole=whole), strict=True):
            lane.append(name + text)
    if differing[MOST_PARTS:]:
        lanes[0].append(f"… {plural(len(differing) - MOST_PARTS, 'more part')} differ")
    return a + "\n".join(lanes[0]), b + "\n".join(lanes[1])


def _way(side: OperationTree | None) -> str:
    """Return an HTML badge with the source of a result in a what-if: replayed, live or blocked. Return an empty string
    for other nodes.
    """
    return styled(BADGE, side.way) if side is not None and side.way in (SERVED, LIVE, BLOCKED) else ""


def _alone(side: OperationTree) -> str:
    value = side.asked if side.answered is None else side.answered
    if value is None:
        return ""
    # The end of a run is its error, which is shown in full.
    width = LONGEST if side.kind == "end" else 400
    return safe(cut(shared().text(as_text(value)), width))


def _marked(before: object, after: object, *, whole: bool) -> tuple[str, str]:
    clean = shared().text
    old, new = ("" if value is NOTHING else clean(cut(as_text(value), LONGEST)) for value in (before, after))
    marked_pieces = pieces(old, new)
    lanes = []
    for mine, lacks, value in ((REMOVED, ADDED, before), (ADDED, REMOVED, after)):
        if value is NOTHING:
            lanes.append(styled(FAINT, "nothing"))
            continue
        # Each lane shows its own words and the common ones, without those of the other lane.
        shown = [piece for piece in marked_pieces if piece.sign != lacks]
        texts = []
        for place, piece in enumerate(shown):
            is_whole = whole or piece.sign == mine
            texts.append(piece_of(piece.sign, piece.text if is_whole else _short(piece.text, place, len(shown))))
        lanes.append("".join(texts))
    return lanes[0], lanes[1]


def _short(text: str, place: int, count: int) -> str:
    """Return a shortened piece of text, which two compared texts have in common, with its middle cut out. At the
    beginning or end of a text, only the side next to a difference is kept.
    """
    # The first piece has no difference before it, the last one none behind it.
    head = text[:CONTEXT] if place else ""
    tail = text[-CONTEXT:] if place < count - 1 else ""
    return text if len(text) <= len(head) + len(tail) + CONTEXT else f"{head} … {tail}"


def _count(places: int) -> str:
    return plural(places, "place")
