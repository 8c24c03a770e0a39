"""The executions of a store in a notebook: a list to browse where widgets are shown, else text or a table.

The list is one output, the run that is opened from it another below it. Both hold what is shown without their kernel.
"""

from __future__ import annotations

import html
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from divebook.config.answers import Verb, handle_each
from divebook.environment.environment import Environment
from divebook.environment.starts import StartOptions
from divebook.environment.variants import ChangeLike, WhatIfOptions
from divebook.notebook.frontend import present_front_end
from divebook.notebook.lasting import NOTHING, LastingOutput, display_bundle
from divebook.notebook.report import open_questions, questions, settled_text
from divebook.notebook.run import Run
from divebook.projections.summary import Overview, RunLine
from divebook.questions.bounds import Bounds
from divebook.text.format import AS_TEXT, local_time, plural, seconds
from divebook.text.redaction import one_line
from divebook.widgets.lists import EVERYTHING, InboxFeed, RunsFeed, inbox_publisher_of
from divebook.widgets.views import Handlers

if TYPE_CHECKING:
    import pandas as pd

    from divebook.store import ExecutionRecord
    from divebook.widgets.protocol import Asked
    from divebook.widgets.views import InboxView, RunsView


# The inbox in a notebook: cards where the front end shows widgets, and what is understood without them.
#
# Pages show the cards, and the same as text once their kernel is gone; where all who asked have ended, pages without
# divebook's extension show what became of the questions in their place.


_LINE = "margin:6px 0;overflow-wrap:anywhere"


class InboxOutput:
    """The output of ``%dive inbox`` in one cell, for front ends that show widgets; its commands name the `store`."""

    def __init__(self, environment: Environment, store: str | None = None) -> None:
        self._environment = environment
        self._store = store
        self._lock = threading.Lock()
        self._is_final = False
        with self._lock:  # the publisher may tell something before all is there
            self.view: InboxView = inbox_view(environment, self)
            bundle = static_bundle(environment, store)
            self._output = LastingOutput(self.view, bundle)
            self._output.save(bundle)

    def look(self, feed: InboxFeed) -> None:
        """Bring what is understood without a kernel up to date; on the publisher's thread."""
        with self._lock:
            if self._is_final:
                return
            if feed.is_over:
                self._is_final = not self._output.end(settled_bundle(feed.shown))
                return
            bundle = static_bundle(self._environment, self._store)
            self._output.save(bundle)


class InboxDisplay:
    """How a frame of questions is shown: as cards where that is possible."""

    def __init__(self, environment: Environment, store: str | None) -> None:
        self._environment = environment
        self._store = store

    def in_cell(self) -> bool:
        """Show the cards in the present cell; return False where its front end shows no widgets."""
        from IPython.core.getipython import get_ipython

        if not present_front_end(get_ipython()).shows_widgets:
            return False
        InboxOutput(self._environment, self._store)
        return True

    def widget(self) -> InboxView:
        """Return the cards as a widget."""
        return inbox_view(self._environment)


def inbox_view(environment: Environment, output: InboxOutput | None = None) -> InboxView:
    """Return the questions of an environment as a widget."""
    from divebook.widgets.views import InboxView

    def told(feed: InboxFeed) -> None:
        if output is not None:
            output.look(feed)

    return InboxView(inbox_publisher_of(environment), Handlers(environment.answer), told)


# --- without widgets -----------------------------------------------------------------------------------------------


def static_bundle(environment: Environment, store: str | None = None) -> dict[str, Any]:
    """Return the open questions, and how to answer them, as text and as HTML with inline styles only."""
    asked = open_questions(environment, store)
    head = f"<p style='{_LINE}'><strong>{plural(len(asked), 'open question')}</strong></p>"
    return {
        "text/plain": questions(environment, store),
        "text/html": f"<div class='{AS_TEXT}'>{head}{''.join(map(_paragraph, asked))}</div>",
    }


def _paragraph(lines: list[str]) -> str:
    about, question, *more, command = map(html.escape, lines)
    way, _, typed = command.partition(": ")
    told = [f"<strong>{question}</strong>", *more, about, f"{way}: <code>{typed}</code>"]
    return f"<p style='{_LINE}'>{'<br>'.join(told)}</p>"


def settled_bundle(shown: Iterable[Asked]) -> dict[str, Any]:
    """Return what became of questions, as text and as HTML."""
    told = [_outcome(asked) for asked in shown]
    body = "".join(f"<p style='{_LINE}'><strong>{html.escape(q)}</strong><br>{html.escape(a)}</p>" for q, a in told)
    text = "\n".join(["no open questions", *(f"  {question}: {answer}" for question, answer in told)])
    head = f"<p style='{_LINE}'>No open questions</p>"
    return {"text/plain": text, "text/html": f"<div class='{AS_TEXT}'>{head}{body}</div>"}


def _outcome(asked: Asked) -> tuple[str, str]:
    """Return a question and its answer with who gave it."""
    question = asked["question"]
    where = f"{one_line(asked['workflow'], 60)}, {asked['execution_id']}"
    told = settled_text(question["became"] or "open", question["answered_by"], question["answered_us"])
    return one_line(question["question"], 200), f"{told} ({where})"


# One thing done with many runs at once, in notebooks and scripts; what fails for one is a row of the result.


class ManyRuns(ABC):
    """Executions with which one thing is done; each method returns `divebook.analysis.lists.handled_frame`."""

    environment: Environment

    @abstractmethod
    def ids(self) -> Iterable[str]:
        """Return which they are."""

    def resume(self, bounds: Bounds | Mapping[str, Any] | None = None, *, wait: bool = True) -> pd.DataFrame:
        """Take each up again where its log ends, all at once; `wait` until they have ended or have to wait."""
        return self.handle(lambda environment, name: environment.resume(name, bounds), wait=wait)

    def cancel(self) -> pd.DataFrame:
        """Cancel each; they can be resumed."""
        return self.handle(lambda environment, name: environment.cancel(name))

    def tag(self, *tags: str) -> pd.DataFrame:
        """Give each of them tags."""
        return self.handle(lambda environment, name: environment.tag(name, *tags))

    def untag(self, *tags: str) -> pd.DataFrame:
        """Take tags away from each of them."""
        return self.handle(lambda environment, name: environment.untag(name, *tags))

    def note(self, text: str) -> pd.DataFrame:
        """Write a note beside each of them."""
        return self.handle(lambda environment, name: environment.note(name, text))

    def label(self, **labels: Any) -> pd.DataFrame:
        """Give each of them labels; None takes one away."""
        return self.handle(lambda environment, name: environment.label(name, **labels))

    def fork(
        self, at: int | None = None, change: ChangeLike = None, *, wait: bool = True, **options: Unpack[StartOptions]
    ) -> pd.DataFrame:
        """Start a run from each that shares its events up to one; see `divebook.Environment.fork`."""
        return self.handle(lambda environment, name: environment.fork(name, at, change, **options), wait=wait)

    def what_if(
        self, change: ChangeLike = None, at: int | None = None, **options: Unpack[WhatIfOptions]
    ) -> pd.DataFrame:
        """Go through each once more with one change, one after the other; see `divebook.Environment.what_if`."""
        return self.handle(lambda environment, name: environment.what_if(name, change, at, **options).execution)

    def handle(self, verb: Verb, *, wait: bool = True) -> pd.DataFrame:
        """Do anything with each of them: `verb` gets the environment and an id."""
        from divebook.analysis.lists import handled_frame

        return handled_frame(handle_each(self.environment, self.ids(), verb, wait=wait))


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
        """Return them as a DataFrame; `divebook.analysis.lists.runs_frame` documents the columns."""
        from divebook.analysis.lists import RunsTable, runs_frame

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
        from divebook.widgets.views import RunsView

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
        from divebook.widgets.views import RunsView

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
