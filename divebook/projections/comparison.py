"""Comparison of runs for people: first difference, all differences as a DataFrame, and both runs side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from divebook.engine.lifecycle import TERMINAL
from divebook.errors import SetupError, UnrelatedError
from divebook.events import Event
from divebook.events.catalog import BADGED
from divebook.events.event import to_datetime
from divebook.events.recorded import garbage_collection_paused, opened
from divebook.projections.activity import result_of
from divebook.projections.compare import (
    BLOCKED,
    LIVE,
    SERVED,
    Divergence,
    Facet,
    OperationTree,
    Pair,
    Row,
    Side,
    Verdict,
    as_text,
    money,
    took,
)
from divebook.report.hints import advised
from divebook.report.model import (
    MINUS,
    REQUEST,
    SIGNS,
    Block,
    Card,
    Difference,
    DifferenceKind,
    Differences,
    DifferentPart,
    Line,
    Mark,
    Paragraph,
    Picture,
    Report,
    Section,
    Shares,
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

    def judge(self, by: str | Callable[[Any, Any], object]) -> Comparison:
        """Return this comparison with a count of the right results of the items of `Each`. It marks the results that
        became better or worse.

        Parameters
        ----------
        by
            Name of the field of the items that contains the right result. The comparison ignores case, spaces at both
            ends and a final full stop. Or a function that takes an item and its result, and returns True if the result
            is right.

        Examples
        --------
        >>> from divebook import Each, Environment, Step, Workflow
        >>> environment = Environment(store="memory:")
        >>> numbers = [{"n": 1, "double": 2}, {"n": 2, "double": 4}]
        >>> each = Each("$(inputs.numbers)", as_="number")
        >>> scripts = "state.number['n'] + 1", "state.number['n'] * 2"
        >>> flows = [Workflow("w", [Step("s", script=script, each=each)], inputs=["numbers"]) for script in scripts]
        >>> one, other = (environment.start(flow, {"numbers": numbers}).wait() for flow in flows)
        >>> outcome = str(one.compare(other).judge("double")).splitlines()[2]
        >>> for text in outcome.split("; "):
        ...     print(text)
        2 of 2 results of s correct in B, 1 in A
        1 of 2 results of s changed
        1 better, 0 worse
        """
        judged = copy(self)
        is_right = _judge_of(by)
        judged.pairs = [pair.judge(is_right) for pair in self.pairs]
        return judged

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
    return "; ".join([", ".join(figures), *(f"{name} {text}" for name, text in _totals(pair))])


def _totals(pair: Pair) -> Iterator[tuple[str, str]]:
    """Yield the names of the sums that at least one of two runs has, each with the text of both values."""
    one, other = pair.totals
    if one.tokens or other.tokens:
        yield "tokens", f"{one.tokens:,} → {other.tokens:,}"
    if one.cost or other.cost:
        yield "cost", f"{money(one.cost)} → {money(other.cost)}"
    if one.duration is not None or other.duration is not None:
        yield "time", f"{took(one)} → {took(other)}"


# --- judging of results ----------------------------------------------------------------------------------------------


def _judge_of(by: str | Callable[[Any, Any], object]) -> Callable[[OperationTree], bool]:
    """Return a function that tells whether the result of an item is right. `by` is the name of the field of the items
    that contains the right result, or a function of the item and its result.
    """
    if not isinstance(by, str):
        return lambda item: bool(by(opened(item.asked, lenient=True), opened(result_of(item.answered), lenient=True)))
    return lambda item: _normal(_field(item.asked, by)) == _normal(_result_for(item, by))


def _field(item: object, name: str) -> object:
    return item.get(name, NOTHING) if isinstance(item, Mapping) else NOTHING


def _result_for(item: OperationTree, name: str) -> object:
    """Return the result that a field of the item must be equal to: the field of the result with the same name, or its
    only value, or the whole result.
    """
    result = result_of(item.answered)
    if not isinstance(result, Mapping):
        return result
    return result.get(name, next(iter(result.values())) if len(result) == 1 else result)


def _normal(value: object) -> str:
    """Return a value as text without the differences that models make at random: spaces, case and a final point."""
    return as_text(value).strip().rstrip(".").casefold()


def _gold_fields(pair: Pair) -> list[str]:
    """Return the fields of items that probably contain the right results: their values occur among the results of both
    runs for at least half of the items.
    """
    items = [row for row in pair.rows if row.present.kind == "item" and row.a is not None and row.b is not None]
    results = {_normal(result_of(side.answered)) for row in items for side in (row.a, row.b) if side is not None}
    hits: Counter[str] = Counter()
    for row in items:
        if isinstance(row.present.asked, Mapping):
            hits.update(name for name, value in row.present.asked.items() if _normal(value) in results)
    return [name for name, count in hits.most_common() if 2 * count >= len(items)]


# --- the report about two runs ---------------------------------------------------------------------------------------

MOST = 60
"""Maximum number of differences on a page."""
MOST_PARTS = 4
"""Maximum number of parts of one difference that are shown."""
LONGEST = 4_000
"""Maximum number of characters of one text that are shown."""
LONGEST_ALONE = 400
"""Maximum number of characters of a result that only one run has."""
LEAST_US = 1_000
"""Smallest difference in time between two calls that is shown, in microseconds."""
MOST_STEPS = 3
"""Maximum number of steps whose results are counted in the summary."""


def _blocks(pair: Pair) -> Iterator[Block]:
    """Yield the parts of the report about two runs: the runs, the summary, the first difference, and all
    differences.
    """
    yield Paragraph((_run("A", pair.a, ""), _run("B", pair.b, "A" if pair.b.parent == pair.a.id else "")))
    table = None if pair.first is None else _differences(pair)
    yield _summary(pair, table)
    if pair.first is None or table is None:
        yield Paragraph((f"no difference: {plural(len(pair.rows), 'place')} the same",))
    else:
        yield _first(pair.first)
        yield table
        yield Section("timelines of both runs, without waiting", (_lanes(pair),), is_open=False, in_text=False)
    yield Paragraph(((Text("A is ", "faint"), Text(pair.a.id, "id"), Text(", B is ", "faint"), Text(pair.b.id, "id")),))


def _run(letter: str, side: Side, source: str) -> Line:
    """Return the line about one of two runs. `source` is the letter of the run that it was made from, if known."""
    began = local_time(to_datetime(side.began_us))
    status = side.status if side.status in TERMINAL else f"{side.status} when they were compared"
    name = one_line(side.workflow, 60)
    if side.origin in BADGED:
        name += f" ({side.origin} of {source})" if source else f" ({side.origin})"
    return (Text(letter, "badge"), Text(f" {name}", "strong"), f" · {began} · ", Text(status, side.status))


def _lanes(pair: Pair) -> Picture:
    """Return the timelines of both runs below each other, with the same beginning and the same scale."""

    def draw() -> str:
        from divebook.analysis.timeline import layout_of_runs, svg, svg_data_uri

        return svg_data_uri(svg(layout_of_runs({"A": pair.a.spans, "B": pair.b.spans}), description))

    one, other = pair.totals
    description = f"Timelines of both runs: A {took(one)}, B {took(other)}; the table contains the same information"
    return Picture(draw, description)


def _summary(pair: Pair, table: Differences | None) -> Card:
    """Return the card with the outcome of the comparison: changed results, cost and blocked calls in one sentence, and
    the sums of both runs below it.
    """
    results = [(step, counts) for step, counts in pair.results.items() if counts.total > 1]
    shares: list[Block] = []
    facts = [f"{name} {text}{_percent_of(name, pair)}" for name, text in _totals(pair)]
    if table is not None:
        facts.append(plural(table.total, "difference"))
    verdicts = Counter(pair.verdicts.values())
    total = sum(counts.total for _, counts in results)
    if verdicts and total:
        better, worse = verdicts["better"] / total, verdicts["worse"] / total
        parts = ("better", better, "added"), ("equal", 1 - better - worse, "rule"), ("worse", worse, "removed")
        shares.append(Shares(parts))
    blocks: list[Block] = [Paragraph((joined(" · ", facts),)), *shares]
    gold = [] if pair.is_judged or not any(counts.changed for _, counts in results) else _gold_fields(pair)
    if gold:
        hint = f'.judge("{one_line(gold[0], 40)}")'
        blocks.append(Paragraph((("Count correct results with a field of the items: ", Text(hint, "code")),)))
    return Card(Text(_outcome(pair, table), "strong"), tuple(blocks))


def _outcome(pair: Pair, table: Differences | None) -> str:
    """Return the sentence that answers what the second run changed.

    The results of items come first, as the answer of most comparisons. Runs without changed results have their outputs
    there, and runs without both the number of differences. Costs and blocked calls follow.
    """
    if table is None:
        return "Both runs are the same"
    sentence = []
    results = [(one_line(step, 40), counts) for step, counts in pair.results.items() if counts.total > 1]
    for step, counts in results[:MOST_STEPS]:
        if pair.is_judged:
            before, after = counts.right
            sentence.append(f"{after:,} of {plural(counts.total, 'result')} of {step} correct in B, {before:,} in A")
        sentence.append(f"{counts.changed:,} of {plural(counts.total, 'result')} of {step} changed")
    if pair.is_judged:
        verdicts = Counter(pair.verdicts.values())
        sentence.append(f"{verdicts['better']:,} better, {verdicts['worse']:,} worse")
    outputs = [row for row in pair.rows if row.present.kind == "output"]
    if outputs and not any(counts.changed for _, counts in results):
        changed = [one_line(row.present.name, 40) for row in outputs if row.difference != "same"]
        names = f" ({', '.join(changed[:MOST_STEPS])})" if changed else ""
        sentence.append(f"{len(changed):,} of {plural(len(outputs), 'output')} changed{names}")
    if not sentence:
        sentence.append(plural(table.total, "difference"))
    if pair.a.status != pair.b.status:
        sentence.append(f"A {pair.a.status}, B {pair.b.status}")
    one, other = pair.totals
    if one.cost is not None and other.cost is not None and one.cost != other.cost:
        percent = _percent(one.cost, other.cost)
        sentence.append(f"{money(abs(other.cost - one.cost))} {'more' if other.cost > one.cost else 'less'}{percent}")
    blocked = sum(row.blocked for row in pair.rows if row.present.kind == "operation")
    if blocked:
        sentence.append(f"{plural(blocked, 'call')} blocked")
    return "; ".join(sentence)


def _percent_of(name: str, pair: Pair) -> str:
    one, other = pair.totals
    both = {"tokens": (one.tokens, other.tokens), "cost": (one.cost, other.cost)}.get(name)
    return "" if both is None else _percent(*both)


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
    """Return the differences between two runs, at most `MOST`. Equal places between them are one row, together with the
    places whose request differs as in the first difference, and whose result is the same. The note counts the omitted
    differences.
    """
    assert pair.first is not None, "only runs that differ have a table"  # noqa: S101 - `_blocks` has looked
    telling = {id(row) for row in pair.telling}
    edits = frozenset(_request_edits(pair.first.row))
    items = _item_texts(pair.rows)
    rows: list[Difference] = []
    same = Difference("same", count=0)
    remaining = len(telling)
    shown = requests = 0
    # Rows that differ only because something inside them differs are left out.
    for kind, count, row in _folded(row for row in pair.rows if row.difference == "same" or id(row) in telling):
        if row is None:
            same = replace(same, count=same.count + count)
            continue
        if shown == 2 * MOST:
            continue
        verdict = pair.verdicts.get(id(row))
        about = items.get(id(row), "")
        difference = _difference(row, count, is_whole=False, verdict=verdict, about=about, edits=edits)
        remaining -= count
        shown += 1
        if kind == "changed" and difference.kind == REQUEST and difference.repeated and not difference.parts:
            in_full = _difference(row, count, is_whole=False, about=about)
            same = replace(same, count=same.count + 1, inner=(*same.inner, in_full))
            requests += 1
            continue
        rows += [same] if same.count else []
        same = Difference("same", count=0)
        rows.append(difference)
    rows += [same] if same.count else []
    # Differences that are neither shown nor counted as remaining lie inside or around the shown ones.
    within = len(pair.differences) - remaining - shown
    notes = [f"… and {plural(remaining, 'more difference')}"] if remaining else []
    notes += [f"not shown: {plural(within, 'difference')} inside or around the listed differences"] if within else []
    note = f"{'; '.join(notes)}; .frame() lists all." if notes else ""
    return Differences(tuple(rows), note=note, most_in_text=SHOWN, total=shown - requests + remaining)


def _request_edits(row: Row) -> Iterator[tuple[str, ...]]:
    """Yield the edits of the parts of a request between two runs."""
    for part in row.parts_of("asked"):
        yield DifferentPart(one_line(part.place, 60), _text(part.before), _text(part.after)).edit


def _item_texts(rows: Iterable[Row]) -> dict[int, str]:
    """Return the values of the items of `Each` as text, by the ``id()`` of the rows of the items and of all rows inside
    them.
    """
    texts: dict[int, str] = {}
    inside = "\0"  # begins no place
    text = ""
    for row in rows:
        if row.present.kind == "item":
            inside = f"{row.place} / "
            text = _item_text(row.present.asked)
            texts[id(row)] = text
        elif row.place.startswith(inside):
            texts[id(row)] = text
    return texts


def _item_text(value: object) -> str:
    """Return the value of an item in one line. Of a mapping, only the values are shown."""
    texts = map(as_text, value.values()) if isinstance(value, Mapping) else [as_text(value)]
    return one_line(shared().text(" · ".join(texts)), 90)


def _folded(rows: Iterable[Row]) -> Iterator[tuple[DifferenceKind, int, Row | None]]:
    """Yield the lines of the table of differences between two runs, in order. A line has the kind of difference, the
    number of places (steps, items, calls, ...) for which it stands, and the first of these places.

    Equal places that contain others are not counted. If one run lacks a place as a whole, the places inside it are
    counted and not yielded. Consecutive equal rows become one entry ``("same", count, None)``. For the rows same, same,
    added a, added a / b, same the function yields ``("same", 2, None)``, ``("added", 2, row a)`` and
    ``("same", 1, None)``.
    """
    same = 0
    alone = ""
    pending = None
    count = 0
    for row in rows:
        # The nodes inside a node are rows themselves.
        if row.difference == "same" and row.present.inside:
            continue
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


def _difference(
    row: Row,
    count: int,
    *,
    is_whole: bool,
    verdict: Verdict | None = None,
    about: str = "",
    edits: frozenset[tuple[str, ...]] = frozenset(),
) -> Difference:
    """Return a place at which two runs differ. If `is_whole` is False, long text that both have in common is shortened.

    If one run lacks the place, the difference shows the result in the other. If no part differs, it shows the status of
    both. Else it shows the first `MOST_PARTS` differing parts: those of the result, and then those of the request
    without the ones that have one of the `edits`.
    """
    place = one_line(_short_place(row), 160)
    labels = (_way(row.a), _way(row.b))
    marks = tuple(_marks(row, verdict))
    if row.a is None or row.b is None:
        text = _alone(row.present)
        part = DifferentPart("", None if row.a is None else text, None if row.b is None else text)
        return Difference(row.difference, place, about, (part,), labels=labels, marks=marks, count=count)
    results = _different_parts(row, "answered", is_whole=is_whole)
    requests = _different_parts(row, "asked", is_whole=is_whole)
    if row.a.status != row.b.status and not results:
        name = "status" if requests else ""
        results = [DifferentPart(name, row.a.status, row.b.status, is_whole=True)]
    new_requests = [part for part in requests if part.edit not in edits]
    different = [*results, *new_requests]
    return Difference(
        "changed" if results else REQUEST,
        place,
        about,
        tuple(different[:MOST_PARTS]),
        len(different[MOST_PARTS:]),
        labels,
        _beside(row.a, row.b),
        marks,
        tuple(dict.fromkeys(part.name for part in requests if part.edit in edits)),
    )


def _different_parts(row: Row, facet: Facet, *, is_whole: bool) -> list[DifferentPart]:
    return [
        DifferentPart(one_line(part.place, 60), _text(part.before), _text(part.after), is_whole)
        for part in row.parts_of(facet)
    ]


def _short_place(row: Row) -> str:
    """Return the place of a row without the step, where the name of an item contains it: ``classify[0] / model call``
    instead of ``classify / classify[0] / model call``.
    """
    step, _, inner = row.place.partition(" / ")
    return inner if inner.startswith(f"{step}[") else row.place


def _marks(row: Row, verdict: Verdict | None) -> Iterator[Mark]:
    if verdict is not None:
        yield verdict
    if row.blocked:
        yield "blocked"
    if row.a is not None and row.b is not None and (row.b.cost or 0) > (row.a.cost or 0):
        yield "costlier"


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
    if value is NOTHING:
        return None
    # The result of a failed call is its error.
    if isinstance(value, Mapping) and value.keys() == {"error", "result"} and value["result"] is None:
        value = f"error: {as_text(value['error'])}"
    return str(shared().text(cut(as_text(value), LONGEST)))


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
        if abs(more) >= LEAST_US:
            differences.append(_signed(more, seconds(abs(more) / 1e6)))
    return tuple(differences)


def _signed(number: int, text: str) -> str:
    return text if number == 0 else f"{'+' if number > 0 else MINUS}{text}"
