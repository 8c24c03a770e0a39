"""The executions of a store in a notebook: a list to browse where widgets are shown, else text or a table.

The list is one output, the run that is opened from it another below it. Both hold what is shown without their kernel.
"""

from __future__ import annotations

import html
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from divebook.environment import Environment
from divebook.execution.overview import Overview, RunLine
from divebook.notebook.frontend import present_front_end
from divebook.notebook.lasting import NOTHING, LastingOutput, display_bundle
from divebook.notebook.many_runs import ManyRuns
from divebook.notebook.run import Run
from divebook.text.cuts import one_line
from divebook.text.durations import seconds
from divebook.text.shown import AS_TEXT
from divebook.text.times import local_time
from divebook.widgets.runs import EVERYTHING, RunsFeed

if TYPE_CHECKING:
    import pandas as pd

    from divebook.store import ExecutionRecord
    from divebook.widgets.runs_line import RunsView

SHOWN = 20
"""Lines of the forms without widgets."""
TITLES = ("id", "workflow", "status", "began", "worked", "cost", "about")
_QUERIED = ("status", "workflow", "tag")
_CELL = "padding:2px 10px 2px 0;text-align:left;vertical-align:top;overflow-wrap:anywhere"


@dataclass(frozen=True)
class Runs(ManyRuns):
    """The executions of a store, newest first: browsed in a notebook, or `frame` as a DataFrame.

    `divebook.runs` and ``%dive runs`` make them. `resume`, `cancel`, `tag`, `untag` and `note` are done with all of
    them, and return a frame in which what failed for one is a row.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:", workflows=[Workflow("w", [Step("s", script="1 + 1")])])
    >>> _ = environment.start("w").wait()
    >>> runs = Runs(environment)
    >>> len(runs), runs[0].status, list(runs.frame()["workflow"])
    (1, 'completed', ['w'])
    """

    environment: Environment = field(repr=False)
    filters: Mapping[str, Any] = field(default_factory=dict)
    limit: int = 0
    store: str | None = None
    chosen: tuple[str, ...] | None = None
    """The ids of those that were named one by one; None for all that the filters leave."""

    @cached_property
    def records(self) -> list[ExecutionRecord]:
        """What the store knows of them, read when it is first asked for."""
        if self.chosen is not None:
            return [self.environment.store.record(self.environment.store.resolve(name)) for name in self.chosen]
        return self.environment.executions(limit=self.limit, **self.filters)

    def ids(self) -> Iterable[str]:
        """Return the ids of their executions."""
        return self.chosen or [record.execution_id for record in self.records]

    def frame(self) -> pd.DataFrame:
        """Return them as a DataFrame; `divebook.analysis.listings.runs_frame` documents the columns."""
        from divebook.analysis.listings import RunsTable, runs_frame

        return RunsTable(runs_frame(self.records, self.environment.store))

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, number: int) -> Run:
        return Run(self.environment.execution(self.records[number].execution_id), self.environment)

    def __iter__(self) -> Iterator[Run]:
        return (self[number] for number in range(len(self)))

    # --- how it shows ----------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        rows, more = self._rows()
        if not rows:
            return _none(self.filters)
        table = [TITLES, *rows]
        widths = [max(len(row[place]) for row in table) for place in range(len(TITLES))]
        return "\n".join([*("  ".join(map(str.ljust, row, widths)).rstrip() for row in table), *more])

    def _repr_html_(self) -> str:
        rows, more = self._rows()
        if not rows:
            return f"<p>{_none(self.filters)}</p>"
        head = "".join(f"<th style='{_CELL}'>{title}</th>" for title in TITLES)
        body = "".join(f"<tr>{''.join(map(_table_cell, row))}</tr>" for row in rows)
        told = "".join(f"<p>{line}</p>" for line in more)
        return f"<table class='{AS_TEXT}'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{told}"

    def _rows(self) -> tuple[list[tuple[str, ...]], list[str]]:
        """Return the cells of the first lines, and what is said where there are more."""
        wanted = min(self.limit or SHOWN, SHOWN)
        named = None if self.chosen is None else self.records[: wanted + 1]
        found = self.environment.executions(limit=wanted + 1, **self.filters) if named is None else named
        lines = Overview(self.environment.store).lines(found[:wanted])
        is_cut = len(found) > wanted and self.limit != wanted
        return [*map(_cells, lines)], ["and more: .frame() has all"] if is_cut else []

    def _ipython_display_(self) -> None:
        """Show the run browser where the front end of this cell shows widgets; otherwise leave it to text and HTML."""
        from IPython.core.getipython import get_ipython

        if self.chosen is not None or not present_front_end(get_ipython()).shows_widgets:
            raise NotImplementedError  # the browser shows what filters leave
        RunsOutput(self)

    def _display_(self) -> RunsView:
        """Return what marimo shows of it."""
        return self.view()

    def view(self) -> RunsView:
        """Return the run browser as a widget, for front ends that show widgets by themselves."""
        from divebook.widgets.runs_line import RunsView

        return RunsView(self.feed())

    def feed(self) -> RunsFeed:
        """Return what the run browser follows."""
        others = {name: value for name, value in self.filters.items() if name not in _QUERIED}
        query = EVERYTHING.copy()
        query["status"], query["workflow"], query["tag"] = (self.filters.get(name, "") for name in _QUERIED)
        return RunsFeed(self.environment, query, others, store=self.store)


class RunsOutput:
    """The output of ``%dive runs`` in one cell, for front ends that show widgets."""

    def __init__(self, runs: Runs) -> None:
        from divebook.widgets.runs_line import RunsView

        self._environment = runs.environment
        static = {"text/plain": repr(runs), "text/html": runs._repr_html_()}
        self._view = RunsView(runs.feed(), self.open)
        self._output = LastingOutput(self._view, static)
        self._opened = display_bundle(NOTHING)
        self._output.save(static)

    def open(self, execution_id: str | None) -> None:
        """Show an execution below the list, and None for none."""
        if execution_id is None:
            self._opened.update(NOTHING, raw=True)
            return
        run = Run(self._environment.execution(execution_id), self._environment)
        LastingOutput(run.view(), run.static_bundle(), self._opened)


def _none(filters: Mapping[str, Any]) -> str:
    return "no runs of that kind" if filters else "no runs yet"


def _table_cell(text: str) -> str:
    return f"<td style='{_CELL}'>{html.escape(text)}</td>"


def _cells(line: RunLine) -> tuple[str, ...]:
    worked = line.worked_us(time.time_ns() // 1000)
    status = ", ".join(filter(None, [line.status, line.stand]))
    about = " ".join([line.about, *(f"#{tag}" for tag in line.record.tags)])
    return (
        line.id,
        line.named(40),
        one_line(status, 60),
        local_time(line.record.started_at),
        "" if worked is None else seconds(worked / 1e6),
        line.price,
        one_line(about.strip(), 100),
    )
