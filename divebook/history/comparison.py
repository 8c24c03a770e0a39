"""Runs compared: where they part, every place as a frame, and both beside each other as text and as a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from divebook import extensions
from divebook.errors import SetupError, UnrelatedError
from divebook.events import Event
from divebook.events.bulk import collector_resting
from divebook.history.aligned import SIGNS, Divergence, Pair, Side, money, told, took
from divebook.history.comparison_page import page_of
from divebook.text.shown import plural

if TYPE_CHECKING:
    import pandas as pd

MIME = "application/vnd.divebook.compared+json"
SHOWN = 12
"""Differences that the text names."""


class Comparison:
    """Two or more runs side by side: each of the others beside the first.

    `Run.compare`, `divebook.compare` and ``%dive compare`` make them. As the last value of a cell it shows both runs
    beside each other, the first difference opened.

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
        with collector_resting():
            first, *others = map(Side.of, logs)
            if not others:
                raise SetupError("compare takes two runs or more; %dive runs lists them")
            for other in others:
                if not first.is_related_to(other):
                    raise UnrelatedError((first.id, first.workflow), (other.id, other.workflow))
            self.pairs = [Pair(first, other) for other in others]

    @property
    def first(self) -> Divergence | None:
        """Where the first two part; None where they are the same, all others included."""
        return next((pair.first for pair in self.pairs if pair.first is not None), None)

    @property
    def is_same(self) -> bool:
        """Whether no place differs."""
        return self.first is None

    def frame(self) -> pd.DataFrame:
        """Return one row per place and other run; `divebook.analysis.compared` documents the columns."""
        made: pd.DataFrame = extensions.extension(extensions.COMPARED)(self.pairs)
        return made

    @property
    def summary(self) -> str:
        """What differs, and what both cost, in a line for each pair."""
        return "\n".join(map(summary_of, self.pairs))

    def __repr__(self) -> str:
        return "\n\n".join("\n".join(_lines(pair)) for pair in self.pairs)

    def _repr_html_(self) -> str:
        return "".join(map(page_of, self.pairs))

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        """Return what has JupyterLab's extension lead through the HTML beside it (``widgets/src/lab/compared.ts``)."""
        return {MIME: {"runs": [self.pairs[0].a.id, *(pair.b.id for pair in self.pairs)]}}


def summary_of(pair: Pair) -> str:
    """Return how many places differ, and what both runs cost."""
    counts = pair.counts
    said = [f"{counts[name]:,} {name}" for name in SIGNS if counts[name]]
    one, other = pair.totals
    told_totals = [
        f"tokens {one.tokens:,} → {other.tokens:,}" if one.tokens or other.tokens else "",
        f"cost {money(one.cost)} → {money(other.cost)}" if one.cost or other.cost else "",
        f"time {took(one)} → {took(other)}" if one.seconds is not None or other.seconds is not None else "",
    ]
    return "; ".join([", ".join(said), *filter(None, told_totals)])


def _lines(pair: Pair) -> Iterator[str]:
    yield f"A {pair.a.id} of {pair.a.workflow!r}, {pair.a.status}"
    yield f"B {pair.b.id} of {pair.b.workflow!r}, {pair.b.status}"
    yield summary_of(pair)
    if pair.first is None:
        yield "no difference"
        return
    event = "" if pair.first.event is None else f"event {pair.first.event}, "
    yield f"first difference: {event}{pair.first.text}"
    others = [row for row in pair.telling if row is not pair.first.row]
    for row in others[:SHOWN]:
        yield f"  {SIGNS[row.difference]} {told(row)}"
    if others[SHOWN:]:
        yield f"  and {plural(len(others) - SHOWN, 'more difference')}: .frame() has all"
