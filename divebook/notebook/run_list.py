"""Lists of runs and of open questions in a notebook: as widgets if the front end shows them, else as text or HTML.

`Runs` is the list of runs, `InboxOutput` the list of open questions (inbox). Each output contains a saved form for
pages without a kernel. A run that a person opens from the list is shown in a second output below the list.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from divebook.analysis.run_report import settled_text
from divebook.config.answers import BulkOperation, handle_each
from divebook.environments.environment import Environment
from divebook.environments.starts import StartOptions
from divebook.environments.variants import ChangeLike, WhatIfOptions
from divebook.notebook.report import questions
from divebook.notebook.shell_state import present_front_end
from divebook.notebook.view_output import NOTHING, ViewOutput, display_bundle
from divebook.projections.run_columns import run_table
from divebook.projections.summary import Overview, no_runs_note, records_with
from divebook.questions import Question
from divebook.questions.bounds import Bounds
from divebook.report.model import Items, Line, Paragraph, Report, Text
from divebook.report.shown import Shown, bundle_of
from divebook.runtime.run import Run, compared
from divebook.text.redaction import one_line
from divebook.widgets.runs_and_questions import EVERYTHING, MOST_SHOWN, InboxFeed, RunsFeed, inbox_publisher_of
from divebook.widgets.views import Handlers

if TYPE_CHECKING:
    import pandas as pd

    from divebook.commands.inspection import RunQuery
    from divebook.stores import ExecutionRecord
    from divebook.widgets.protocol import Asked
    from divebook.widgets.views import InboxView, RunsView

MAX_ROWS = 20
"""Maximum number of rows of the list as text or HTML."""


@dataclass(frozen=True, repr=False)
class Runs(Shown):
    """The executions of a store, the newest first: a list to browse in a notebook, and `frame` for a DataFrame.

    `divebook.runs` and ``%dive runs`` return this object. `resume`, `cancel`, `tag` and similar methods act on all
    executions of the list. They return a DataFrame (`divebook.analysis.lists.handled_frame`) with one row for each
    execution, even if the operation fails for that execution.

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
    """Ids of executions that were selected one by one; None for all executions that match the filters."""

    # Read once: `len`, indexes and methods of one object then agree, also while new runs start.
    @cached_property
    def records(self) -> list[ExecutionRecord]:
        """Records of the executions in the store, read at the first access."""
        # A shortened id raises an error if it is ambiguous.
        if self.chosen is not None:
            return [self.environment.store.record(self.environment.store.resolve(name)) for name in self.chosen]
        return records_with(self.environment.store, limit=self.limit, **self.filters)

    def ids(self) -> Iterable[str]:
        """Return the ids of the executions in the list."""
        # Chosen ids may not exist. They are passed on unchecked, so that each missing one becomes a row with its error.
        return self.chosen or [record.execution_id for record in self.records]

    def frame(self) -> pd.DataFrame:
        """Return the executions as a DataFrame; `divebook.analysis.lists.runs_frame` documents the columns."""
        from divebook.analysis.lists import RunsTable, runs_frame

        return RunsTable(runs_frame(self.records, self.environment.store))

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, number: int) -> Run:
        return self.environment.run_of(self.records[number].execution_id)

    def __iter__(self) -> Iterator[Run]:
        return (self[number] for number in range(len(self)))

    # --- how it shows ----------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """Return the list of the first `MAX_ROWS` runs as a table, and a note if there are further runs."""
        # `limit` is 0 for all.
        count = min(self.limit or MAX_ROWS, MAX_ROWS)
        # The display reads its own records, because the property would read all records of the store. One more record
        # is read to find out whether there are more.
        if self.chosen is None:
            records = records_with(self.environment.store, limit=count + 1, **self.filters)
        else:
            records = self.records[: count + 1]
        lines = Overview(self.environment.store).lines(records[:count])
        if not lines:
            return Report(blocks=(Paragraph((no_runs_note(self.environment.store, self.filters),)),))
        # A list that is as long as its own limit is complete, although the store has more runs.
        is_cut = len(records) > count and self.limit != count
        note = (Paragraph(("There are more runs. Call .frame() to list all.",)),) if is_cut else ()
        return Report(blocks=(run_table(lines, "notebook"), *note))

    def _ipython_display_(self) -> None:
        """Show the run browser if the front end of the cell shows widgets; else let IPython show text or HTML."""
        from IPython.core.getipython import get_ipython

        # A browser with filters cannot represent ids that were chosen one by one.
        if self.chosen is not None or not present_front_end(get_ipython()).shows_widgets:
            raise NotImplementedError  # the browser shows the executions that match filters
        RunsOutput(self)

    def _display_(self) -> RunsView:
        """Return the widget that marimo displays for the list."""
        return self.view()

    def view(self) -> RunsView:
        """Return the run browser as a widget, for front ends that display widgets themselves."""
        from divebook.widgets.views import RunsView

        return RunsView(self.feed())

    def feed(self) -> RunsFeed:
        """Return the source of the run browser's data: the list of runs with the filters of this object.

        A person can change the filters status, workflow and tag in the browser.
        """
        query = EVERYTHING.copy()
        query["status"] = self.filters.get("status", "")
        query["workflow"] = self.filters.get("workflow", "")
        query["tag"] = self.filters.get("tag", "")
        # A button of the browser shows more.
        if self.limit:
            query["limit"] = min(self.limit, MOST_SHOWN)
        # Filters that the browser has no control for, such as ``origin``, stay fixed.
        fixed_filters = {
            name: value for name, value in self.filters.items() if name not in ("status", "workflow", "tag")
        }
        return RunsFeed(self.environment, query, fixed_filters, store=self.store)

    # --- act on all of them ------------------------------------------------------------------------------------------

    def resume(self, bounds: Bounds | Mapping[str, Any] | None = None, *, wait: bool = True) -> pd.DataFrame:
        """Resume each execution in the list where its log ends.

        All executions are resumed at the same time. With `wait`, block until they have ended or have to wait.
        """
        return self.handle(lambda run: run.resume(bounds), wait=wait)

    def cancel(self) -> pd.DataFrame:
        """Cancel each execution in the list; it can be resumed later."""
        return self.handle(lambda run: run.cancel())

    def tag(self, *tags: str) -> pd.DataFrame:
        """Add tags to each execution in the list, and return a DataFrame with the result for each."""
        return self.handle(lambda run: run.tag(*tags).internals.record)

    def untag(self, *tags: str) -> pd.DataFrame:
        """Remove tags from each execution in the list."""
        return self.handle(lambda run: run.untag(*tags).internals.record)

    def note(self, text: str) -> pd.DataFrame:
        """Set the note of each execution in the list."""
        return self.handle(lambda run: run.note(text).internals.record)

    def label(self, **labels: Any) -> pd.DataFrame:
        """Set labels of each execution in the list; the value None removes a label."""
        return self.handle(lambda run: run.label(**labels).internals.record)

    def fork(
        self, at: int | None = None, change: ChangeLike = None, *, wait: bool = True, **options: Unpack[StartOptions]
    ) -> pd.DataFrame:
        """Fork each execution in the list; see `divebook.Run.fork`."""
        return self.handle(lambda run: run.fork(at, change, **options), wait=wait)

    def what_if(
        self, change: ChangeLike = None, at: int | None = None, **options: Unpack[WhatIfOptions]
    ) -> pd.DataFrame:
        """Run each execution in the list once more with one change, one after the other; see
        `divebook.Run.what_if`.
        """
        # A what-if returns an object with its own comparison. The frame needs the execution in it.
        return self.handle(lambda run: run.what_if(change, at, **options).run)

    def handle(self, verb: BulkOperation, *, wait: bool = True) -> pd.DataFrame:
        """Call the function `verb` with the environment and the id of each execution in the list; return a DataFrame
        with the result or error of each.

        With `wait`, wait for the executions that the function returns.
        """
        from divebook.analysis.lists import handled_frame

        return handled_frame(handle_each(self.environment, self.ids(), verb, wait=wait))


def list_of(query: RunQuery, environment: Environment, store: str | None) -> Runs:
    """Return the live list of the runs that a query finds in the store of an environment; `store` is the address of the
    store as it was given. Raise `NotFoundError` for a filter value that no run can have.
    """
    filters: dict[str, Any] = dict(query.filters)
    environment.runs(limit=1, **filters)
    return Runs(environment, filters, query.limit, store)


class RunsOutput:
    """Output of ``%dive runs`` in one cell, for front ends that show widgets."""

    def __init__(self, runs: Runs) -> None:
        from divebook.widgets.views import RunsView

        self._environment = runs.environment
        # The saved form is made before the view, because both are part of the same first output.
        static = bundle_of(runs.report())
        self._view = RunsView(runs.feed(), self.show_runs)
        self._output = ViewOutput(self._view, static)
        # An empty output below the list, which later shows the opened execution.
        self._opened = display_bundle(NOTHING)
        # Saved at once: the page without a kernel needs the list, and no later event would save it.
        self._output.save(static)

    def show_runs(self, execution_ids: Sequence[str]) -> None:
        """Show an execution, or the comparison of several executions, in the output below the list of runs; an empty
        sequence removes what is shown.
        """
        # The person has closed the execution in the browser.
        if not execution_ids:
            self._opened.update(NOTHING, raw=True)
            return
        runs = [self._environment.run_of(execution_id) for execution_id in execution_ids]
        if len(runs) > 1:
            comparison = compared(self._environment, *runs)
            self._opened.update(bundle_of(comparison.report()), raw=True)
            return
        run = runs[0]
        # The run replaces the content of the existing output below the list.
        ViewOutput(run.view(), run.internals.static_bundle(), self._opened)


# --- the inbox -----------------------------------------------------------------------------------------------------


class InboxOutput:
    """Output of ``%dive inbox`` (the open questions of all runs) in one cell, for front ends that show widgets.

    Pages show the questions as cards, and without a kernel as text. After all runs with questions have ended, pages
    without divebook's extension show the answers instead.

    Parameters
    ----------
    store
        Value of ``--store`` for the commands in the text form.
    """

    def __init__(self, environment: Environment, store: str | None = None) -> None:
        self._environment = environment
        self._store = store
        self._lock = threading.Lock()
        self._is_final = False
        with self._lock:  # the publisher may call `save` before the attributes below exist
            self.view: InboxView = inbox_view(environment, self)
            bundle = static_bundle(environment, store)
            self._output = ViewOutput(self.view, bundle)
            self._output.save(bundle)

    def save(self, feed: InboxFeed) -> None:
        """Save the questions as text and HTML in the output, for pages without a kernel.

        Called on the publisher's thread after each change of the questions.
        """
        with self._lock:
            if self._is_final:
                # The questions have ended and the answers are shown. Later changes of other runs do not belong to this
                # output.
                return
            if feed.is_over:
                # `end` returns False if the text has replaced the cards. Pages that host views keep them, and later
                # changes are shown.
                self._is_final = not self._output.end(settled_bundle(feed.shown))
                return
            bundle = static_bundle(self._environment, self._store)
            self._output.save(bundle)


class OpenQuestions(Shown, list[tuple[str, Question]]):
    """Open questions, as `divebook.Environment.inbox` returns them. Each item is a pair: the id of the run that asks,
    and the question. `frame` returns them as a DataFrame.

    As the last value of a cell it shows cards in which a person can answer.
    """

    def __init__(self, environment: Environment, store: str | None = None) -> None:
        super().__init__(environment.inbox())
        self._environment = environment
        self._store = store

    def frame(self) -> pd.DataFrame:
        """Return the questions as a DataFrame; `divebook.analysis.lists.questions_frame` documents the columns."""
        from divebook.analysis.lists import questions_frame

        return questions_frame(self)

    def report(self) -> Report:
        """Return the questions and the commands that answer them."""
        return questions(self._environment, self._store).report()

    def _ipython_display_(self) -> None:
        from IPython.core.getipython import get_ipython

        if not present_front_end(get_ipython()).shows_widgets:
            raise NotImplementedError  # IPython shows the report then
        InboxOutput(self._environment, self._store)

    def _display_(self) -> Any:
        """Return the object that marimo shows: a widget with the cards."""
        return inbox_view(self._environment)


def inbox_view(environment: Environment, output: InboxOutput | None = None) -> InboxView:
    """Return a widget that shows the open questions of an environment. If `output` is given, its form for pages without
    a kernel is saved after each change of the questions.
    """
    from divebook.widgets.views import InboxView

    def on_change(feed: InboxFeed) -> None:
        if output is not None:
            output.save(feed)

    # All views of the environment share the publisher, so that the store is read once.
    return InboxView(inbox_publisher_of(environment), Handlers(environment.answer), on_change)


# --- the inbox without widgets ---------------------------------------------------------------------------------------


def static_bundle(environment: Environment, store: str | None = None) -> dict[str, Any]:
    """Return the open questions and the commands that answer them, as text and as HTML."""
    return bundle_of(questions(environment, store).report())


def settled_bundle(shown: Iterable[Asked]) -> dict[str, Any]:
    """Return text and HTML, by MIME type, about closed questions (answered, expired or withdrawn), with their
    answers.
    """
    return bundle_of(Report("no open questions", blocks=(Items(tuple(map(_outcome, shown))),)))


def _outcome(entry: Asked) -> Line:
    """Return a line about a closed question: its text, its answer, the person who answered, and the run that had
    asked.
    """
    question = entry["question"]
    run = f"{one_line(entry['workflow'], 60)}, {entry['execution_id']}"
    # `became` is empty for an open question.
    answer = settled_text(question["became"] or "open", question["answered_by"], question["answered_us"])
    return (Text(one_line(question["question"], 200), "strong"), f": {answer} ({run})")
