"""Where a value came from, as a DataFrame."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from divebook.analysis.columns import ANYTHING, COUNT, NUMBER, TEXT, Column, Columns, documented, frame
from divebook.events.recorded import opened
from divebook.replay.origin import ValueOrigin
from divebook.replay.traced import Traced
from divebook.replay.why_text import Teller


class _Row(NamedTuple):
    teller: Teller
    origin: ValueOrigin

    @property
    def told(self) -> str:
        return self.teller.head(self.origin)


def _depth(row: _Row) -> int:
    return row.teller.why.depths[row.origin.number]


def _calls(row: _Row) -> list[int]:
    return [call.sequence for call in row.origin.calls]


WHY_COLUMNS: Columns = {
    "number": Column(COUNT, "what `reads` and `because` call it", "origin.number"),
    "depth": Column(COUNT, "how many steps back it is; 0 is what was asked", _depth),
    "kind": Column(
        TEXT,
        "``input``, ``set``, ``deleted``, ``kept``: not changed; ``choice``, ``caught``: a step failed, or did not; "
        "``output``, ``state``",
        "origin.kind",
    ),
    "name": Column(TEXT, "the variable, or ``inputs.NAME``", lambda row: row.origin.name or None),
    "value": Column(ANYTHING, "its value", lambda row: opened(row.teller.why.value(row.origin), lenient=True)),
    "event": Column(COUNT, "the event that says so", "origin.sequence"),
    "path": Column(TEXT, "the path of its step", lambda row: row.origin.path or None),
    "step": Column(TEXT, "the step that set it, or after which was chosen", lambda row: row.origin.step or None),
    "visit": Column(NUMBER, "how often the path had entered the step", lambda row: row.origin.visit or None),
    "iteration": Column(NUMBER, "index of the item of `Each` that set it", "origin.item"),
    "calls": Column(ANYTHING, "the events with which calls of its step began", _calls),
    "reads": Column(ANYTHING, "numbers of the values that went into it", lambda row: list(row.origin.reads)),
    "because": Column(ANYTHING, "numbers of the choices that it depends on", lambda row: list(row.origin.because)),
    "told": Column(TEXT, "the same in words"),
}


@documented(WHY_COLUMNS)
def why_frame(why: Traced) -> pd.DataFrame:
    """Return one row for each value and choice that a value came from, itself first."""
    teller = Teller(why)
    return frame(WHY_COLUMNS, [_Row(teller, origin) for origin in why.origins])
