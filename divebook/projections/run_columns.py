"""Columns of the list of runs, each defined once for all places that show the list.

A column names the places that show it: the list in a notebook (text and HTML), the shell, the DataFrame
(`divebook.runs().frame()`), and the run browser, which is also in the side panel of JupyterLab. These places read
`RUN_COLUMNS` when they show a list, so that a new column is one entry.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, TypeAlias

from divebook.projections.summary import RunLine
from divebook.report.model import Column, Line, Table, Text, joined
from divebook.text.format import local_time, seconds, size
from divebook.text.redaction import one_line

Place: TypeAlias = Literal["notebook", "shell", "frame", "browser"]
LISTS: tuple[Place, ...] = ("notebook", "shell")
ALL_LISTS: tuple[Place, ...] = (*LISTS, "browser")
Order: TypeAlias = Literal["started", "worked", "cost"]
"""Orders in which the run browser can show the list."""


class RunColumn(NamedTuple):
    """Column of the list of runs."""

    title: str
    """Title, and name of the column in the DataFrame."""
    cell: Callable[[RunLine], Line]
    """Function that returns the cell of a run."""
    kind: Literal["name", "short", "long", "time"] = "short"
    """Width of its cells; see `divebook.report.model.Column`."""
    places: tuple[Place, ...] = LISTS
    """Places that show the column.

    The DataFrame has typed columns for most data (`divebook.analysis.lists.RUN_COLUMNS`), and shows the cells of a
    column that names it as text. So does the browser, except that it adds links, progress and the running time to
    the columns of `widgets/src/runs/rows.ts`.
    """
    order: Order | Literal[""] = ""
    """Order of the list that the title of the column chooses in the browser; empty if there is none."""
    is_number: bool = False
    """True if its cells are aligned at the right in the browser."""


def worked_seconds(line: RunLine) -> float | None:
    """Return how long a run has worked until now, in seconds; None if its log was not read."""
    worked = line.worked_us(time.time_ns() // 1000)
    return None if worked is None else worked / 1e6


def _worked(line: RunLine) -> Line:
    worked = worked_seconds(line)
    return "" if worked is None else Text(seconds(worked), "duration")


def _status(line: RunLine) -> Line:
    return one_line(", ".join(filter(None, [line.status, line.stand])), 60)


def _about(line: RunLine) -> Line:
    return one_line(" ".join([line.about, *(f"#{tag}" for tag in line.record.tags)]).strip(), 100)


RUN_COLUMNS: tuple[RunColumn, ...] = (
    RunColumn("id", lambda line: Text(line.id, "id")),
    RunColumn("workflow", lambda line: line.named(40), "name", ALL_LISTS),
    RunColumn("status", lambda line: Text(str(_status(line)), line.status), places=ALL_LISTS),
    RunColumn("started", lambda line: Text(local_time(line.record.started_at), "time"), "time", ALL_LISTS, "started"),
    RunColumn("worked", _worked, places=ALL_LISTS, order="worked", is_number=True),
    RunColumn("cost", lambda line: Text(line.price, "money"), places=ALL_LISTS, order="cost", is_number=True),
    RunColumn("events", lambda line: str(line.record.last_sequence), places=("shell",)),
    RunColumn("size", lambda line: size(line.record.size), places=("shell",)),
    RunColumn("about", _about, "long"),
)
"""Columns of the list of runs, in their order."""


def columns_in(place: Place) -> tuple[RunColumn, ...]:
    """Return the columns that one place shows."""
    return tuple(column for column in RUN_COLUMNS if place in column.places)


def run_table(lines: Iterable[RunLine], place: Place) -> Table:
    """Return the list of runs as a table of a report."""
    columns = columns_in(place)
    rows = tuple(tuple(column.cell(line) for column in columns) for line in lines)
    return Table(tuple(Column(column.title, column.kind) for column in columns), rows)


def cell_text(column: RunColumn, line: RunLine) -> str:
    """Return a cell of the list as plain text."""
    return "".join(text.content for text in joined("", [column.cell(line)]))
