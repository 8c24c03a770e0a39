"""Runs laid side by side as a DataFrame: one row per place and other run, in fixed columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, NamedTuple

import pandas as pd

from divebook.analysis.columns import ANYTHING, MONEY, NUMBER, SPAN, TEXT, Column, Columns, documented, frame
from divebook.engine.bounds import NANODOLLARS
from divebook.events.recorded import opened
from divebook.history.aligned import Pair, Row, told
from divebook.history.placed import Placed


class _Compared(NamedTuple):
    """A place in two runs, and which."""

    pair: Pair
    row: Row

    @property
    def of_operation(self) -> str | None:
        span = self.row.present.span
        return span.type if span is not None and span.kind == "operation" else None

    @property
    def iteration(self) -> int | None:
        span = self.row.present.span
        return None if span is None else span.iteration

    @property
    def text(self) -> str | None:
        return None if self.row.difference == "same" else told(self.row)


def _of(side: str, value: Callable[[Placed], Any]) -> Callable[[_Compared], Any]:
    def of_side(compared: _Compared) -> Any:
        found = getattr(compared.row, side)
        return None if found is None else value(found)

    return of_side


def _event(side: str) -> Callable[[_Compared], int | None]:
    return lambda compared: compared.row.event_of(getattr(compared.row, side))


def _cost(placed: Placed) -> float | None:
    return None if placed.cost is None else placed.cost / NANODOLLARS


def _duration(placed: Placed) -> timedelta | None:
    return None if placed.duration_us is None else timedelta(microseconds=placed.duration_us)


def _opened(name: str) -> Callable[[Placed], Any]:
    return lambda placed: opened(getattr(placed, name), lenient=True)


def _of_both(name: str, dtype: str, meaning: str, value: Callable[[Placed], Any]) -> Columns:
    return {f"{name}_{side}": Column(dtype, f"{meaning}, in {side.upper()}", _of(side, value)) for side in ("a", "b")}


COMPARED_COLUMNS: Columns = {
    "difference": Column(TEXT, "``same``, ``changed``, ``added``, ``removed``", "row.difference"),
    "facet": Column(TEXT, "what differs first: ``asked``, ``answered`` or ``status``", "row.facet"),
    "kind": Column(TEXT, "``step``, ``item``, ``operation``, ``question``, ``variable`` ...", "row.present.kind"),
    "place": Column(TEXT, "where it stands, in words", "row.place"),
    "path": Column(TEXT, "its path; in A, where A has it, as the next three", "row.present.path"),
    "step": Column(TEXT, "its step", "row.present.step"),
    "iteration": Column(NUMBER, "index of the item of `Each`"),
    "type": Column(TEXT, "type of an operation: ``agent_response``, ``tool_call`` ...", "of_operation"),
    "name": Column(TEXT, "what an operation calls; the name of a variable, an input ...", "row.present.name"),
    "text": Column(TEXT, "the difference with both sides in one text: ``[-before-]{+after+}``; without secrets"),
    "event_a": Column(NUMBER, "the event of A where it differs, or stands", _event("a")),
    "event_b": Column(NUMBER, "the event of B, likewise", _event("b")),
    **_of_both("status", TEXT, "how it ended", lambda placed: placed.status),
    **_of_both("asked", ANYTHING, "what was asked: parameters, item, question", _opened("asked")),
    **_of_both("answered", ANYTHING, "what came of it: result, output, answer, value", _opened("answered")),
    **_of_both("tokens", NUMBER, "tokens read and written", lambda placed: placed.tokens),
    **_of_both("cost", MONEY, "US dollars, as far as prices are known", _cost),
    **_of_both("duration", SPAN, "time it took", _duration),
    **_of_both("child", TEXT, "the execution of another workflow that it began", lambda placed: placed.child or None),
    "run_a": Column(TEXT, "id of A, the first run", "pair.a.id"),
    "run_b": Column(TEXT, "id of B, the other one", "pair.b.id"),
}


@documented(COMPARED_COLUMNS)
def compared_frame(pairs: Iterable[Pair]) -> pd.DataFrame:
    """Return one row per place, in the order of the first run, for each of the runs that it is compared with.

    Steps and items repeat what the calls in them consumed: sum over ``kind == "operation"``.
    """
    return frame(COMPARED_COLUMNS, [_Compared(pair, row) for pair in pairs for row in pair.rows])
