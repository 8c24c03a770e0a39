"""Waiting for a run in a cell: until the run has ended, or needs a person who cannot answer in this front end.

While the cell waits, it shows a live view, or asks the questions of the run as text. An interrupt of the kernel pauses
the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from divebook.errors import DivebookError, ExecutionPausedError, InterruptError
from divebook.events.catalog import CANCELLED, COMPLETED, FAILED, WAITING
from divebook.interrupts import INTERRUPTS, interruptible_wait
from divebook.notebook.commands import print_answer
from divebook.notebook.shell_state import FrontEnd, present_front_end
from divebook.questions import Question, Typed
from divebook.questions.question import CLARIFICATION, expected_answer
from divebook.report.hints import advised, show_advice

if TYPE_CHECKING:  # loading the extension must be quick
    from divebook.notebook.run_view import LiveOutput
    from divebook.runtime.run import Run

PAUSE_TIMEOUT = 10
"""Maximum number of seconds to wait until the log of an interrupted run records the pause."""
GREETING_TIMEOUT = 2.0
"""Maximum number of seconds until a view that a browser shows sends its first message."""
FIRST_GREETING_TIMEOUT = 0.5
"""Maximum number of seconds that the first run of a kernel, if it ends at once, waits for the first message of its
page.
"""
HOSTING_TIMEOUT = 1.5
"""Maximum number of seconds between this message and the message that the page hosts views (`view_output.Pages`)."""
POLL_INTERVAL = 0.1
"""Seconds between two checks. Without checks, an idle event loop would not notice interrupts or answers to other
processes.
"""


async def await_run(run: Run, front_end: FrontEnd) -> Run:
    """Wait until a run has ended, or has to wait for a person who cannot answer in this cell; return the run.

    Raises
    ------
    ExecutionPausedError
        The kernel was interrupted, which pauses the run, or something else has paused it.
    """
    # The order matters: `_error_if_paused` ends first and raises in the block of `_live_output`, which then saves the
    # paused state.
    with _live_output(run, front_end) as output, _error_if_paused(run):
        # Each iteration waits until the run stops. If it waits for an answer, the person answers in the live view or at
        # a prompt, and the run continues.
        while True:
            # Nothing wakes this process when another one ends the run. The checks below read the log instead.
            if not _is_in_other_process(run):
                await run
            # Everything that is not an open question ends the waiting: the end, a pause, a signal, a timer.
            if not _waits_for_answer(run):
                await _hosting_decided(output)
                return run
            # A browser with the view answers there. Otherwise the cell asks, unless the front end has no input.
            if await browser_shows(output):
                await _answer_from_view(run)
            elif not (front_end.takes_input and _ask_in_cell(run)):
                return run


async def _answer_from_view(run: Run) -> None:
    """Wait until the open questions of a run have been answered, in its live view or in another process."""
    while _has_no_answer(run):  # noqa: ASYNC110 - an idle loop does not see interrupts, and another process may answer
        await asyncio.sleep(POLL_INTERVAL)


def wait_for_run(run: Run, front_end: FrontEnd) -> Run:
    """Wait for a run like `await_run`, but block the thread; return the run."""
    with _live_output(run, front_end) as output, _error_if_paused(run):
        while True:
            if not _is_in_other_process(run):
                run.wait()
            if not _waits_for_answer(run):
                # The form of the output depends on the page (`view_output.Pages`), which may not have reported yet.
                if output is not None and output.is_hosting_undecided:
                    interruptible_wait(output.view.greeted, FIRST_GREETING_TIMEOUT)
                return run
            # A view that greets is shown in a browser, where a person can answer. Otherwise the cell asks.
            if output is not None and interruptible_wait(output.view.greeted, GREETING_TIMEOUT):
                while _has_no_answer(run):
                    # The sleep of a blocked thread does not end at an interrupt that is deferred.
                    INTERRUPTS.raise_pending()
                    time.sleep(POLL_INTERVAL)
            elif not (front_end.takes_input and _ask_in_cell(run)):
                return run


@contextmanager
def _live_output(run: Run, front_end: FrontEnd) -> Iterator[LiveOutput | None]:
    """Show the live view of a run during a ``with`` block, and its saved form (text and HTML) afterwards. If the kernel
    is interrupted in the block, pause the run.

    Yield None if the front end shows no widgets, or if the run has completed and cannot be continued.
    """
    # A failed or cancelled run can be resumed from its view, a completed run cannot.
    # A run that is live or not over continues in the view.
    may_continue = run.is_live or run.status in (FAILED, CANCELLED) or not run.state.is_over
    output: LiveOutput | None = None
    try:
        # The pause comes before `leave`, so that the saved form shows the paused run.
        with _pause_on_interrupt(run):
            if front_end.shows_widgets and may_continue:
                output = show_live(run, front_end)
            yield output
    finally:
        if output is not None:
            output.leave()


def display_run(run: Run) -> None:
    """Display a run that is the value of a cell: a running one as its live view, and none that the cell already shows.

    Raises
    ------
    NotImplementedError
        IPython shall display the MIME bundle of the run.
    """
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    # IPython calls `_ipython_display_` first. NotImplementedError means that it shall use the MIME bundle.
    if shell is None:
        raise NotImplementedError
    if run.internals.options.shown_in == shell.execution_count:
        return
    front_end = present_front_end(shell)
    if not front_end.shows_widgets or not (run.is_live or run.internals.goes_on_elsewhere):
        raise NotImplementedError
    show_live(run, front_end).leave()


def show_live(run: Run, front_end: FrontEnd) -> LiveOutput:
    """Show the live view of a run in the current cell."""
    from divebook.notebook.run_view import LiveOutput

    run.internals.options.shown_in = front_end.count
    return LiveOutput(run)


def _is_in_other_process(run: Run) -> bool:
    """Return whether another process drives a run. This process then cannot wait for its end."""
    # `was_driven` is also True after this process has driven the run, when `wait` returns at once.
    return not run.internals.was_driven and not run.state.is_over


def _waits_for_answer(run: Run) -> bool:
    """Return whether a run has open questions and cannot continue before one of them is answered."""
    # The usual end, for which the log need not be read: no process can continue a completed run.
    if run.status == COMPLETED:
        return False
    # The log is read, since another process may have answered.
    state = run.refresh().state
    # A live run counts as idle if a running call itself waits for the answer (`RunInternals.is_blocked`).
    is_idle = not run.is_live or run.internals.is_blocked
    return bool(run.open_questions) and not state.is_over and state.paused is None and is_idle


def _has_no_answer(run: Run) -> bool:
    """Return whether a run still waits for an answer or a signal. Any process may answer the question, send the signal
    or end the run, so the log is read first.
    """
    run.refresh()
    is_idle = not run.is_live or run.internals.is_blocked
    return is_idle and run.state.status == WAITING


async def _hosting_decided(output: LiveOutput | None) -> None:
    """Wait until a page has reported whether it has divebook's JupyterLab extension, or until a short time limit is
    reached. The form of the run's output depends on this extension (`view_output.Pages`).

    Only the first page of a kernel is awaited.
    """
    seconds = 0.0
    while output is not None and output.is_hosting_undecided:
        # A page that has greeted will report soon, so it gets more time.
        limit = HOSTING_TIMEOUT if output.is_watched else FIRST_GREETING_TIMEOUT
        if seconds >= limit:
            return
        await asyncio.sleep(POLL_INTERVAL / 2)
        seconds += POLL_INTERVAL / 2


class WatchableOutput(Protocol):
    """Interface of a cell's output that contains a live view."""

    @property
    def is_watched(self) -> bool:
        """True if a browser shows the view of this output and the kernel receives the browser's messages."""


async def browser_shows(output: WatchableOutput | None) -> bool:
    """Wait up to `GREETING_TIMEOUT` seconds for the first message of a browser about the live view in an output. Return
    whether a browser shows the view; without an output, return False at once.
    """
    if output is None:
        return False
    seconds = 0.0
    while not output.is_watched and seconds < GREETING_TIMEOUT:
        await asyncio.sleep(POLL_INTERVAL)
        seconds += POLL_INTERVAL
    return output.is_watched


# --- questions without widgets ---------------------------------------------------------------------------------------


def _ask_in_cell(run: Run) -> bool:
    """Ask all open questions of a run at a prompt in the cell; return whether at least one was answered."""
    # A list and not a generator: `any` would stop at the first answer, and the other questions would not be asked.
    results = [_ask(run, question) for question in run.open_questions]
    return any(results)


def _ask(run: Run, question: Question) -> bool:
    """Ask a person one question at the cell's prompt until the answer is valid. Return False if the person enters
    nothing, to answer later.
    """
    lines = [question.question, question.message or "", _data_text(question)]
    print_answer("\n".join(filter(None, lines)))
    # An empty answer ends the loop. An invalid one is explained, and the question is asked again.
    while typed := _input(f"Your answer{_expected_form(question)} (press Enter to answer later): "):
        try:
            run.answer(question.id, Typed(typed))
        except InterruptError as error:
            print_answer(str(error))
        else:
            return True
    return False


def _input(prompt: str) -> str:
    # The prompt may stay open for hours. Ctrl-C must end it at once, although interrupts are deferred around it.
    with INTERRUPTS.allowed():
        return input(prompt)


def _expected_form(question: Question) -> str:
    """Return the part of a question's prompt that describes the valid answers; empty if any text is valid."""
    is_free = question.kind == CLARIFICATION and question.schema is None
    return "" if is_free else f", {expected_answer(question)}"


def _data_text(question: Question) -> str:
    from divebook.events.codec import readable

    # The prompt lists the choices already.
    data: dict[str, Any] = {key: value for key, value in (question.data or {}).items() if key != "choices"}
    return readable(data, indent=2) if data else ""


# --- pauses ----------------------------------------------------------------------------------------------------------


@contextmanager
def _pause_on_interrupt(run: Run) -> Iterator[None]:
    """Pause a run if the kernel is interrupted (Ctrl-C or the stop button) during a ``with`` block.

    `ExecutionPausedError` is raised in place of the interrupt.
    """
    try:
        yield
    # ipykernel cancels an awaited cell, and raises KeyboardInterrupt in a blocked one.
    except (asyncio.CancelledError, KeyboardInterrupt):
        _pause(run)
        raise _pause_error(run, "interrupted: ") from None


def _pause(run: Run) -> None:
    """Pause a run, and wait up to `PAUSE_TIMEOUT` seconds until its log records the pause.

    The run may end at the same moment.
    """
    try:
        run.pause().wait(PAUSE_TIMEOUT)
    # If the run ends instead of pausing, or a call takes longer, `_pause_error` describes the state that was reached.
    except (DivebookError, TimeoutError):
        return


@contextmanager
def _error_if_paused(run: Run) -> Iterator[None]:
    """Raise `ExecutionPausedError` if a person pauses the run during a ``with`` block, for example with a button of its
    view.

    Run All then stops as it does after an interrupt.
    """
    # A run may have been paused before this cell. Showing it again is not a new pause.
    was_paused = _is_paused(run)
    yield
    if _is_paused(run) and not was_paused:
        raise _pause_error(run, "")


def _is_paused(run: Run) -> bool:
    # A pause takes effect when the running calls have ended. Until then the run is live.
    return run.state.paused is not None and not run.is_live and not run.state.is_over


def _pause_error(run: Run, prefix: str) -> ExecutionPausedError:
    """Return the error that a cell raises for a run that it has paused. It makes the cell show the next commands
    instead of a traceback.
    """
    from divebook.notebook.cells import show_as
    from divebook.text.format import plural

    error = ExecutionPausedError(run.id)
    # Calls that must not be repeated are awaited, also beyond `PAUSE_TIMEOUT`.
    if run.is_live:
        lines = [
            f"{prefix}run {run.id} pauses when its current call has ended; that call must not be repeated",
            f"To show the run: {show_advice(run.id)}",
        ]
    elif run.state.is_over:
        lines = [
            f"{prefix}run {run.id} was not paused: its status is already {run.status}",
            f"To show the run: {show_advice(run.id)}",
        ]
    else:
        completed = sum(event.event_type == "operation_completed" for event in run.history())
        lines = [
            f"{prefix}run {run.id} is paused; {plural(completed, 'completed call')} saved",
            f"Run the cell again to continue, or: {advised(f'resume {run.id}', f'divebook.resume({run.id!r})')}",
        ]
    show_as(error, lines)
    return error
