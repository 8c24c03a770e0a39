"""What a what-if came to, and how people read it: how it was answered, and both runs beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from divebook.engine.bounds import NANODOLLARS
from divebook.engine.change import Change
from divebook.execution.execution import Execution
from divebook.history.aligned import Divergence, as_text
from divebook.history.comparison import Comparison
from divebook.history.marked_html import BADGE, CELL, FAINT, RULE, safe, styled
from divebook.replay.tally import Answered, Tally
from divebook.text.cuts import one_line
from divebook.text.redaction import shared
from divebook.text.shown import AS_TEXT, plural, price

MOST = 12
"""Calls that are named."""
_WHOLE = "padding:4px 10px 4px 0;text-align:left;vertical-align:top;white-space:nowrap"
"""The style of a cell whose words are not broken."""
_OF_EACH = ("what-if", "status", "served", "live", "blocked", "unused", "cost", "outputs")


FULL, PARTLY = "full", "partly"


@dataclass(frozen=True, slots=True, repr=False)
class WhatIf:
    """What an execution came to with one change.

    Examples
    --------
    ::

        found = environment.what_if(run.id, {"inputs": {"city": "Bonn"}})
        found.outputs, found.served, found.blocked, str(found.diff)
    """

    execution: Execution
    """Its own execution, of origin ``what-if``."""
    source: str
    """Id of the execution that it was forked from."""
    at: int
    """The last event that it shares with that."""
    change: Change
    tally: Tally
    comparison: Comparison
    """It beside its source, place by place."""
    calls: Sequence[Answered] = ()
    """The calls that were not answered from the log: live, or blocked."""
    unchecked: Sequence[str] = ()
    """What of its source could not be held against its log before, and why."""

    @property
    def served(self) -> int:
        """How many operations and questions were answered from the log of its source."""
        return self.tally.served

    @property
    def live(self) -> int:
        """How many calls were made: of models, and of what its `tools` allow."""
        return self.tally.live

    @property
    def blocked(self) -> int:
        """How many calls were not made, since there is no recorded result."""
        return self.tally.blocked

    @property
    def unused(self) -> int:
        """How many recorded results nobody asked for."""
        return self.tally.unused

    @property
    def cost(self) -> float:
        """What it has spent itself, in dollars."""
        return self.execution.state.own_usage.cost / NANODOLLARS

    @property
    def comparable(self) -> str:
        """Whether it can be compared with its source: ``full``, or ``partly``: it was blocked, or has not ended."""
        return FULL if self.execution.state.is_over and not self.blocked else PARTLY

    @property
    def diff(self) -> Divergence | None:
        """The first thing that came out otherwise; None if nothing did."""
        return self.comparison.first

    @property
    def outputs(self) -> Mapping[str, Any]:
        """What it came to."""
        return self.execution.outputs

    def __repr__(self) -> str:
        tally = self.tally
        told = f"{tally.served} served, {tally.live} live, {tally.blocked} blocked, {tally.unused} unused"
        return f"<what-if {self.execution.id} of {self.source}: {self.execution.status}, {told}>"

    def __str__(self) -> str:
        return _as_text(self)

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: FBT001 - as IPython calls it
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return _as_html(self)

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        """Return what has JupyterLab's extension lead through the differences, as in a comparison."""
        return self.comparison._repr_mimebundle_()


def _as_text(found: WhatIf) -> str:
    """Return what a what-if came to, in lines."""
    return "\n".join([*_head(found), *_calls(found.calls), repr(found.comparison)])


def _as_html(found: WhatIf) -> str:
    """Return a what-if as a page that is saved with a notebook: A is the lane of its source, B its own."""
    first, *others = map(safe, _head(found))
    lines = [f"<div>{styled(BADGE, 'what-if')}{first.removeprefix('what-if ')}</div>"]
    lines += [f"<div>{line}</div>" for line in others]
    lines += [f'<div style="{FAINT}">{safe(line)}</div>' for line in _calls(found.calls)]
    return f'<div class="{AS_TEXT}" style="margin:4px 0">{"".join(lines)}{found.comparison._repr_html_()}</div>'


def _head(found: WhatIf) -> Iterator[str]:
    changed = ", ".join(found.change.named) or "nothing"
    yield (
        f"what-if {found.execution.id} of {found.source}, from event {found.at + 1} on; changed: {changed}; "
        f"it is {found.execution.status}"
    )
    yield f"{_counted(found)}; {_comparable(found)}"
    if found.execution.error:
        yield one_line(shared().text(f"error: {found.execution.error}"), 400)
    for reason in found.unchecked:
        yield one_line(f"not checked: {reason}", 400)


def _counted(found: WhatIf) -> str:
    tally = found.tally
    told = [f"{tally.served:,} served from the log", f"{tally.live:,} live", f"{tally.blocked:,} blocked"]
    told += [f"{tally.computed:,} computed"] if tally.computed else []
    told += [f"{plural(tally.skipped, 'sleep')} skipped"] if tally.skipped else []
    told += [f"{plural(tally.unused, 'recorded result')} unused"]
    return ", ".join([*told, f"cost {price(found.cost)}"])


def _comparable(found: WhatIf) -> str:
    """Return how far it can be compared, and why no further."""
    reasons = ["it was blocked"] if found.blocked else []
    reasons += [] if found.execution.state.is_over else ["it has not ended"]
    return f"comparable: {found.comparable}" + (f", since {' and '.join(reasons)}" if reasons else "")


def _calls(calls: Sequence[Answered]) -> Iterator[str]:
    """Yield the calls that were not answered from the log."""
    for call in calls[:MOST]:
        yield f"{call.way}: {call.what}, step {call.step} (event {call.sequence:,})"
    if calls[MOST:]:
        yield f"and {plural(len(calls) - MOST, 'more call')}: .calls has all"


class RepeatedWhatIf(list[WhatIf]):
    """Several what-ifs of one change; each shows itself, together they are a table."""

    def __str__(self) -> str:
        rows = [_OF_EACH, *map(_row, self)]
        widths = [max(len(row[place]) for row in rows) for place in range(len(_OF_EACH))]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        head = "".join(f'<th style="{_WHOLE}">{title}</th>' for title in _OF_EACH)
        body = "".join(f'<tr style="border-top:{RULE}">{"".join(_cells(_row(found)))}</tr>' for found in self)
        return f'<table class="{AS_TEXT}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cells(row: Sequence[str]) -> Iterator[str]:
    for place, text in enumerate(row):
        style = f"{CELL};min-width:10em" if place in (0, len(row) - 1) else _WHOLE  # the id and the outputs are long
        yield f'<td style="{style}">{safe(text)}</td>'


def _row(found: WhatIf) -> tuple[str, ...]:
    tally = found.tally
    counts = (tally.served, tally.live, tally.blocked, tally.unused)
    told = one_line(shared().text(as_text(found.outputs)), 120)
    return found.execution.id, found.execution.status, *map(str, counts), price(found.cost), told
