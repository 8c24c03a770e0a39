"""Display of a run in a notebook: the data in its output, its live view with buttons, and its saved form."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from divebook.definitions.resources import NOTEBOOK_DATA, Config
from divebook.engine.lifecycle import TERMINAL
from divebook.environments.environment import Environment
from divebook.environments.variants import NEW
from divebook.errors import ExecutionError, LeaseHeldError, NotFoundError, StoreError
from divebook.events import Event
from divebook.events.catalog import COMPLETED, FAILED
from divebook.events.recorded import garbage_collection_paused
from divebook.notebook.shell_state import shows_widgets
from divebook.notebook.view_output import PAGES, ViewOutput
from divebook.processes import is_kernel
from divebook.runtime.run import Run, sent_secrets
from divebook.widgets.feed import Feed
from divebook.widgets.protocol import Delta, Header, Way
from divebook.widgets.publisher import Publisher, publisher_of
from divebook.widgets.recording import MAX_EVENTS, MIME, saved_run
from divebook.widgets.source import awaited_from_outside
from divebook.widgets.views import Handlers

if TYPE_CHECKING:
    from divebook.projections.failures import Failure
    from divebook.widgets.protocol import TakingOver
    from divebook.widgets.views import LiveView


VARIABLE = "DIVEBOOK_NOTEBOOK_DATA"
ON, OFF = NOTEBOOK_DATA
POLL_INTERVAL = 0.1
"""Seconds between two checks while a run is awaited. Without checks, an idle event loop would not notice interrupts."""


# --- the data of a run in its output ---------------------------------------------------------------------------------
#
# The MIME type is ``application/vnd.divebook.run+json``, beside text and HTML. The data contain everything that a
# replay needs (definition, events, states, questions and answers, numbers of the header). The notebook alone can replay
# the run: in JupyterLab by divebook's extension, in Python by `divebook.notebook.saved_notebook.open_notebook`.
#
# The size is at most 256 kB. For larger runs, long texts are cut first, then events are sampled; all failures and
# questions stay, and the data name the store with the whole log. Secrets are removed by `divebook.text.redaction`.
# ``DIVEBOOK_NOTEBOOK_DATA=off``, ``NotebookData: off`` in a definition's ``Config``, and ``%dive run --no-data`` (for
# one run) switch the data off.


def data_of(
    run: Run, log: Sequence[Event], config: Config, *, next_step: str = "", enabled: bool | None = None
) -> dict[str, Any]:
    """Return the data from which a notebook can replay a run without its store, by MIME type. Empty if the settings
    switch this data off, or if the log is damaged or empty.

    `enabled` overrides the settings.
    """
    # `enabled` is the option of one run (``--no-data``), which takes precedence over environment variable and
    # definition.
    if enabled is False or (enabled is None and _data_setting(config) == OFF):
        return {}
    # A damaged log has no certain states. A run without events has nothing to replay.
    if run.internals.damage is not None or not run.state.last_sequence:
        return {}
    return {MIME: saved_run(run, log, sent_secrets(config), next_step=next_step)}


def _data_setting(config: Config) -> str:
    """Return the setting that decides whether notebooks contain the data of runs: ``on`` or ``off``.

    Raises `NotFoundError` if the environment variable has another value.
    """
    setting = os.environ.get(VARIABLE) or config.notebook_data or ON
    if setting not in NOTEBOOK_DATA:
        raise NotFoundError("setting for notebook data", setting, NOTEBOOK_DATA, f"{VARIABLE} cannot be {setting!r}")
    return setting


def bundle_of(run: Run, *, with_data: bool) -> dict[str, Any]:
    """Return the report of a run as text and HTML, and the data for its replay, by MIME type; see
    `Run.static_bundle`.
    """
    from divebook.analysis.run_report import report_of
    from divebook.projections.summary import ReadLog
    from divebook.report.shown import bundle_of as shown_bundle

    # A log of many events creates many small objects at once. Garbage collection would scan all of them several
    # times (`benchmarks/values.py`).
    with garbage_collection_paused():
        # One `ReadLog` for report and data: each fold of a long log takes as long as all the rest.
        log = ReadLog.of(run.history())
        report = report_of(run, log)
        bundle = shown_bundle(report.report())
        if not with_data:
            return bundle
        next_step = "" if report.next is None else report.next.text
        config = run.environment.internals.registry.config
        data = data_of(run, log, config, next_step=next_step, enabled=run.internals.options.keeps_data)
        return bundle | data


# --- the connection to the page around a notebook --------------------------------------------------------------------


def connect_page(environment: Environment) -> Callable[[], None]:
    """Show the open questions and the runs of an environment in all JupyterLab tabs; return a function that stops this.

    Nothing happens without a kernel, or if the front end shows no widgets.
    """
    if not _has_page():
        return lambda: None
    from divebook.notebook.view_output import PAGES
    from divebook.widgets.runs_and_questions import RunsFeed, inbox_publisher_of
    from divebook.widgets.views import Handlers, InboxComm, RunsComm

    questions = InboxComm(inbox_publisher_of(environment), Handlers(environment.answer))
    # The extension of a JupyterLab page reports hosting on this comm before any view exists.
    questions.when_hosted(PAGES.on_hosting)
    runs = RunsComm(RunsFeed(environment))

    def close() -> None:
        questions.close()
        runs.close()

    return close


def _has_page() -> bool:
    return is_kernel() and shows_widgets()


# --- the live view of a run ------------------------------------------------------------------------------------------

# Live view of a run as a widget: the functions of its buttons and forms, and the recovery options after a failure.


def view_of(run: Run) -> LiveView:
    """Return a new live view of a run as a widget.

    If a button starts a new run, the view then shows the new run.
    """
    from divebook.widgets.views import LiveView

    # The handlers need the view and the view needs the handlers. The function reads `view` only when a button is
    # pressed.
    view = LiveView(follow_run(run), _handlers(run, lambda: view.follow(follow_run(run))))
    return view


def follow_run(run: Run) -> Publisher[Feed]:
    """Return the publisher that sends the changes of a run to its live views. After a failure it also sends the
    recovery options, such as running again.
    """
    # A copy, because a button may make the run refer to another execution, which has a publisher of its own.
    followed = copy(run)
    # The publisher calls `of` again and again: an edit of a function appends no event.
    return publisher_of(followed, RecoveryOptions(followed).of)


def _handlers(run: Run, on_new_execution: Callable[[], None]) -> Handlers:
    """Return the functions that the buttons and forms of a run's view call. Their errors are shown in the view.

    Parameters
    ----------
    on_new_execution
        Called after a button has started another execution in place of the present one.
    """

    def again() -> None:
        run.internals.refer_to(run.again())
        on_new_execution()

    def fix() -> None:
        # `continue_failed` starts a new execution only if something was edited.
        continued = continue_failed(run)
        if continued != run:
            run.internals.refer_to(continued)
            on_new_execution()

    def resume_in_background() -> None:
        reason = awaited_from_outside(run)
        # Resuming a run that needs an answer would do nothing. The view shows the reason instead.
        if reason:
            raise ExecutionError(reason)
        run.resume()

    def take_over(message: TakingOver) -> str:
        files = run.files(message["workspace"])
        # Only changes up to the event that the person saw are applied.
        applied = files.apply(paths=message["paths"], until=message["at"])
        return applied.in_words(files.source)

    # The plan is made when the person presses the button, with the definitions of that moment.
    plan = partial(plan_of, run)
    return Handlers(
        run.answer, run.pause, resume_in_background, run.cancel, plan=plan, fix=fix, again=again, take_over=take_over
    )


# --- recovery options of a failed run --------------------------------------------------------------------------------
#
# If the definition or a function has changed since the run, continuing works like ``resume(definition="new")``: as a
# new run, after a plan that a person confirms. Otherwise the run itself is resumed (`tests/notebook/test_ways.py`).

FIX = "Fix and continue from here"
AGAIN = "Run again"
REPLAY = "Open replay here"


class RecoveryOptions:
    """Provider of the recovery options that a view shows after a run has failed: fix and continue, run again, replay.

    The failure is read from the log once for each end of the run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._failure: Failure | None = None
        self._failure_read_at = 0
        """Sequence number of the last event when the failure was read; 0 before."""

    def of(self, header: Header, kept_results: str) -> list[Way]:
        """Return the recovery options of the run; an empty list if the run has not failed or is running.

        Parameters
        ----------
        header
            Cost and duration of the run, shown with "Run again".
        kept_results
            Text that describes what continuing reuses.
        """
        # Only a failed run has these options. A cancelled one has the command ``resume``.
        if self._run.is_live or self._run.status != FAILED:
            return []
        failure = self._read_failure()
        return [self._fix(failure, kept_results), _run_again(header), _replay()]

    def _read_failure(self) -> Failure | None:
        last = self._run.state.last_sequence
        # The number of events identifies the end: a run that was continued and failed again has more events.
        if self._failure_read_at != last:
            try:
                self._failure = self._run.failure
            except StoreError:  # the log is damaged, and the view shows that
                self._failure = None
            self._failure_read_at = last
        return self._failure

    def _fix(self, failure: Failure | None, kept_results: str) -> Way:
        # Compared at each call and not cached, since any cell may edit a definition.
        text, is_ready = _advice(failure, changed_definitions(self._run))
        return Way(
            name="fix", label=FIX, told=text, reused=kept_results, live="", cost=None, took_us=None, ready=is_ready
        )


def changed_definitions(run: Run) -> list[str]:
    """Compare the definition and the Python functions of a run with those in its environment now. Return the
    names of those that were edited: ``the definition`` for the workflow, and the names of the functions.

    An edit counts as soon as its cell has run.
    """
    state = run.state
    environment = run.environment
    # A workflow that this kernel has not defined is compared with itself, so that its definition counts as unchanged.
    workflow = environment.definitions.workflows.get(state.workflow_name, run.workflow)
    before = state.code
    now = environment.internals.registry.code_of(workflow)
    # A function that exists only before or only now differs too.
    functions = sorted(label for label in before.keys() | now.keys() if before.get(label) != now.get(label))
    if workflow.fingerprint != state.fingerprint:
        return ["the definition", *functions]
    return functions


def plan_of(run: Run) -> str:
    """Return the text that a person must confirm before a failed run continues with edited definitions. It lists the
    results that are reused and the calls that are made again. If nothing was edited, return an empty text.
    """
    if not changed_definitions(run):
        # Without changes, a person need not confirm the recovery.
        return ""
    return "\n".join(run.resume(definition=NEW, plan=True).lines)


def continue_failed(run: Run) -> Run:
    """Resume a failed run, and return the run that continues it. If its definition or functions were edited, this is
    another run with the edited ones.

    Another process may do the same at this moment. The lease ensures that only one process runs it.

    Raises
    ------
    ExecutionError
        Another process runs it already.
    """
    try:
        return run.resume(definition=NEW if changed_definitions(run) else None)
    # Another process holds the lease, so this one cannot drive the run. The message names that process.
    except LeaseHeldError as held:
        who = f"{held.name or 'another process'} (process {held.pid} on {held.host})"
        raise ExecutionError(
            f"The run is already running in {who}, so it was not started again. Run the cell again to see the run"
        ) from held
    except ExecutionError:
        # Two pages of one kernel, or two kernels, may continue the run at the same moment. The later one gets an error,
        # but its purpose is achieved (`tests/notebook/test_ways.py`).
        if run.refresh().status != COMPLETED:  # another kernel has completed it
            raise
        return run


def _advice(failure: Failure | None, changed: list[str]) -> tuple[str, bool]:
    """Return the text of the recovery option "Fix and continue", and whether continuing can succeed now.

    It cannot succeed while the failed function is unchanged. A failed model or tool call may succeed without a change.
    """
    if changed:
        return (
            f"Continues with the current version of {', '.join(changed)}. First, you see a plan of the changes and "
            "confirm it."
        ), True
    # The error was raised in the person's own function and not in a model, a tool or a server.
    is_own_code = failure is not None and (failure.traceback or not failure.called)
    # Without a known place, no line can be edited.
    if failure is None or not failure.place or not is_own_code:
        return "Continue retries the failed call.", True
    function = failure.called or failure.step
    return (
        f"{function} has not changed since the failure, so it would fail again. "
        f"Edit {failure.place} and run that cell first."
    ), False


def _run_again(header: Header) -> Way:
    return Way(
        name="again",
        label=AGAIN,
        told="Starts a new run with the same inputs and the current definition and functions.",
        reused="",
        live="all of it",
        cost=header["cost"],
        took_us=header["worked_us"],
        ready=True,
    )


def _replay() -> Way:
    return Way(
        name="replay",
        label=REPLAY,
        told="Shows the state at the failed event.",
        reused="",
        live="",
        cost=None,
        took_us=None,
        ready=True,
    )


# --- the output of a run in a cell -----------------------------------------------------------------------------------

# Output of a run in a cell: a live view while the kernel runs, and a saved form (text and HTML for pages without a
# kernel), which is updated until the run ends.


SAVE_PAUSE = 20
"""Minimum pause between two saves of a running run, as a multiple of the time that the last save took."""


class LiveOutput:
    """Output of one run in one cell, for front ends that show widgets.

    The publisher's thread calls `_on_delta` and `_save_if_due`, the cell's thread calls `leave`. A lock serializes the
    saves.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        # All views of the execution share one publisher, and thus one reading of its events.
        self._publisher: Publisher[Feed] = publisher_of(run)
        self.view = view_of(run)
        # The lock is held while the state is read and saved. Otherwise a slow save of an old state could overwrite a
        # newer one.
        self._lock = threading.Lock()
        self._saved_end = 0
        """Sequence number of the last event when the end of the run was saved; 0 before. A failed run can be continued
        from the page, and then ends again.
        """
        self._last_status: tuple[str, bool] | None = None
        """Status and liveness of the run in the last delta."""
        self._next_save_at = 0.0
        """Monotonic time before which the run is not saved again."""
        self._is_save_due = False
        # The first output contains no replay data: it would take seconds for a long run, and the run changes at once.
        self._output = ViewOutput(self.view, run.internals.static_bundle(with_data=False))
        # Added after the output exists, because the publisher may call `_on_delta` before `add` returns.
        self._detach: Callable[[], None] = self._publisher.add(self._on_delta, self._save_if_due)
        self.view.when_moved(self._follow)

    @property
    def is_watched(self) -> bool:
        """True if a browser shows the run's view and the kernel receives the browser's messages."""
        return self.view.greeted.is_set()

    @property
    def is_hosting_undecided(self) -> bool:
        """True as long as it is unknown whether the page can show the live view and its saved form (text and HTML for
        pages without a kernel) in the same output. A page reports this after it has loaded; see `view_output.Pages`.
        """
        return PAGES.host_views is None and not self.view.is_hosted

    def leave(self) -> None:
        """Save the run as text and HTML in the output at the end of the cell, so that a page without a kernel can show
        it.

        For a long run this takes seconds. If a page shows the view, the publisher's thread saves the run, and the cell
        does not wait (``python -m benchmarks.ending``).
        """
        # This is the end of the first cell with a view. A page that shows the view has had time to report; later cells
        # then rely on what is known now.
        if PAGES.host_views is None and self.is_watched:
            PAGES.host_views = self.view.is_hosted
        state = self.run.refresh().state
        # At its end a run is saved once for each end, while a running one may be saved many times.
        finish = self._save_end if state.is_over else self._save
        may_wait = self._output.is_kept or (self.is_watched and state.is_over)
        # A page that shows the view needs no saved form yet.
        if may_wait and state.last_sequence > MAX_EVENTS:
            self._publisher.post(finish, urgent=False)
        else:
            finish()

    def _follow(self, publisher: Publisher[Feed]) -> None:
        """Replace the run whose state is saved in this output, because a button in the page has started a new run.
        `publisher` sends the changes of the new run.
        """
        # The old run must not write into this output any more.
        self._detach()
        self._publisher = publisher
        self._last_status = None
        self._saved_end = 0
        self._detach = publisher.add(self._on_delta, self._save_if_due)

    def _on_delta(self, delta: Delta) -> int:
        """Receive a message with changes of the run. If the run has ended since the previous message, save its final
        state in the output; if it has only stopped, save its current state.

        Called for every `Delta`, on the publisher's thread; returns 0, because no message is sent.
        """
        status = delta["header"]["status"]
        is_live = delta["header"]["live"]
        before = self._last_status
        self._last_status = status, is_live
        # A delta is sent for each change of the run. Only a change of status or liveness is worth a save.
        if self._last_status == before:
            return 0
        # Paused or waiting for a person: the run may stay in this state for days, so the notebook should contain it.
        self._is_save_due = not is_live and status not in TERMINAL
        if status in TERMINAL and not is_live:
            self._save_end()
        self._save_if_due()
        return 0

    def _save_if_due(self) -> None:
        """Save the current state of a run that has stopped, but not ended, in the output. If the last save was a short
        time ago, do nothing.

        The publisher calls this method at each heartbeat, so that a postponed save is made later.
        """
        # Without an output for the saved form, saving would insert a second output into the page while the cell runs.
        if self._is_save_due and self._output.is_lasting and time.monotonic() >= self._next_save_at:
            # Reset before the save: a change during it requests another one.
            self._is_save_due = False
            self._save()

    def _save(self) -> None:
        """Save the current state of the run as text, HTML and replay data in the output."""
        with self._lock:
            start = time.monotonic()
            self._output.save(self.run.refresh().internals.static_bundle())
            now = time.monotonic()
            # Saving a long run takes seconds, so the pause grows with the time that saving takes.
            self._next_save_at = now + SAVE_PAUSE * (now - start)

    def _save_end(self) -> None:
        """Save the final state of the run in the output, once each time that the run ends."""
        with self._lock:
            # Under the lock: the publisher's thread and the cell's thread both see the end.
            last = self.run.refresh().state.last_sequence
            # The same last event means that this end is saved already. A resumed run has more events.
            if last == self._saved_end:
                return
            stays = self._output.end(self.run.internals.static_bundle())
            self._saved_end = last
        # A completed run cannot change any more, and a retired view needs no saves.
        if not stays or self.run.status == COMPLETED:
            self._detach()
