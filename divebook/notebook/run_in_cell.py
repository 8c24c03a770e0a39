"""Display of a run in the cell that starts it: show it, wait until it ends or needs a person, and return it or
raise.

If the code of the cell has changed since its last run, `await_choice` asks whether to run again.
"""

from __future__ import annotations

import asyncio
import html
import math
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from divebook.errors import CodeChangedError, ExecutionCancelledError, ExecutionFailedError
from divebook.events.catalog import CANCELLED, FAILED, WAITING
from divebook.interrupts import INTERRUPTS, interruptible_wait
from divebook.notebook.commands import print_answer
from divebook.notebook.rerun import AGAIN, KEEP, REUSE
from divebook.notebook.run_wait import (
    GREETING_TIMEOUT,
    POLL_INTERVAL,
    await_run,
    browser_shows,
    show_live,
    wait_for_run,
)
from divebook.notebook.view_output import NOTHING, WIDGET_VIEW, FrontEnd, display_bundle
from divebook.widgets.protocol import Choice, Offer
from divebook.widgets.views import OfferView

if TYPE_CHECKING:
    from divebook.notebook.commands import Arguments
    from divebook.notebook.run import Run


def show_in_background(run: Run, arguments: Arguments, front_end: FrontEnd, *, is_awaited: bool) -> Any:
    """Show a run that continues in the background after the cell has ended. Return the run, or a coroutine that returns
    it if the cell awaits the magic.
    """
    _set_data_option(run, arguments)
    # `leave` saves the report at once, because the cell ends now.
    if front_end.shows_widgets:
        show_live(run, front_end).leave()
    return immediate(run) if is_awaited else run


def show_while_running(run: Run, front_end: FrontEnd) -> Run:
    """Show the live view of a run in the cell if a process runs it or if it waits for a worker; return the run in any
    case.
    """
    execution = run.execution
    # A run that has ended, or that waits without a process, is shown as the value of the cell.
    if front_end.shows_widgets and (execution.is_live or execution.goes_on_elsewhere):
        show_live(run, front_end).leave()
    return run


def await_in_cell(
    run_or_choice: Run | CodeChangedError, arguments: Arguments, front_end: FrontEnd
) -> Coroutine[Any, Any, Run]:
    """Return a coroutine that waits until a run has ended or has to wait for a person, and then returns the run or
    raises its error (`cell_outcome`).

    For a `CodeChangedError` the coroutine first shows the choices, and then waits for the run of the choice.
    """
    from divebook.notebook.cells import short_errors

    # The cell awaits the coroutine later, when the magic has already returned. Errors therefore get their short form
    # inside it.
    async def finish() -> Run:
        with short_errors():
            if isinstance(run_or_choice, CodeChangedError):
                run = await await_choice(run_or_choice)
            else:
                run = run_or_choice
            # The run of a choice is known only here.
            _set_data_option(run, arguments)
            await await_run(run, front_end)
            return cell_outcome(run, arguments, front_end)

    return finish()


def wait_in_cell(run_or_choice: Run | CodeChangedError, arguments: Arguments, front_end: FrontEnd) -> Run:
    """Wait like `await_in_cell`, but block: for cells that cannot await."""
    # The caller has set up short errors for this thread already.
    run = wait_for_choice(run_or_choice) if isinstance(run_or_choice, CodeChangedError) else run_or_choice
    _set_data_option(run, arguments)
    wait_for_run(run, front_end)
    return cell_outcome(run, arguments, front_end)


def cell_outcome(run: Run, arguments: Arguments, front_end: FrontEnd) -> Run:
    """Return the run of a cell after it has stopped. Raise an error if it failed or was cancelled, so that Run All
    stops at this cell.

    With ``--no-check`` such a run is returned. With ``--strict`` an error is raised also if the run waits for a person
    or a signal.

    Raises
    ------
    ExecutionFailedError, ExecutionCancelledError, ExecutionWaitingError
        The run is shown before the first two are raised.
    """
    # Printed before a possible error, which would hide them.
    for key in run.unused_answers:
        print_answer(f"the answer for {key!r} was not needed: no question of that name was asked")
    if run.continued_as is not None:
        print_answer(f"it continues as {run.continued_as}; to look at that: %dive show {run.continued_as}")
    # Waiting is not a failure: the cell succeeds, and the run continues when the answer arrives.
    if run.status == WAITING:
        return _outcome_of_waiting(run, front_end, strict=arguments.has("strict"))
    if run.status not in (FAILED, CANCELLED) or arguments.has("no-check"):
        return run
    from IPython.display import display

    from divebook.notebook.cells import error_lines, show_as

    # The report shows how far the run came. An error alone would hide it.
    display(run)  # type: ignore[no-untyped-call]
    error: ExecutionCancelledError | ExecutionFailedError
    if run.status == CANCELLED:
        error = ExecutionCancelledError(run.id)
    else:
        # `error` is None if the log records no text.
        error = ExecutionFailedError(run.id, run.error or run.status)
    show_as(error, [*error_lines(error), "To continue past failures: --no-check"])
    raise error


def _outcome_of_waiting(run: Run, front_end: FrontEnd, *, strict: bool) -> Run:
    """Show or print the questions and signals that a run waits for, and return the run.

    With `strict` raise `ExecutionWaitingError` instead.
    """
    from divebook.notebook.cells import error_lines, show_as
    from divebook.notebook.report import waiting_lines, ways_on
    from divebook.notebook.run import waiting_error

    # Programs with ``--strict`` get the commands for both notebook and shell.
    if strict:
        error = waiting_error(run.execution)
        show_as(error, [error_lines(error)[0], *ways_on(run.execution)])
        raise error
    # Without a live view, the saved report shows the questions and the commands that answer them.
    if run.interrupts and not front_end.shows_widgets:
        from IPython.display import display

        display(run)  # type: ignore[no-untyped-call]
        # The run may be the last value of the cell. It is then not displayed twice.
        run.shown_in = front_end.count
    else:
        print_answer("\n".join(waiting_lines(run.execution)))
    return run


def _set_data_option(run: Run, arguments: Arguments) -> None:
    """Apply the option ``--no-data`` to a run: with it, the notebook does not contain the data for a replay of the run.
    Without the option, the settings decide.
    """
    run.keeps_data = False if arguments.has("no-data") else None


async def immediate(value: Any) -> Any:
    """Return the argument `value` unchanged. This coroutine wraps a result that is already known, because the cell
    awaits the result of the magic in any case.
    """
    return value


# --- the choice after a change of the cell ----------------------------------------------------------------------------

# Buttons for a cell whose code has changed since its last run: run again, keep the old run, or reuse completed calls.
#
# The cell waits until a person presses a button. If no browser shows the buttons, or the kernel is interrupted, the
# cell fails with a `CodeChangedError` that names the equivalent options of ``%dive run``.


LABELS = {AGAIN: "Run again", KEEP: "Keep the old run", REUSE: "Reuse and run"}
CHOICE_TIMEOUT = 15.0
"""Seconds after which the default choice is made, if there is one. Run All is then not blocked for ever."""


async def await_choice(error: CodeChangedError) -> Run:
    """Ask the person how to continue a cell whose code has changed. The choices of `error` are shown as buttons; the
    run that the pressed button starts or keeps is returned. If no browser shows the buttons, or if none is pressed in
    time, the default choice is made.

    Raises
    ------
    CodeChangedError
        No browser shows the buttons and `error` has no default choice, or the kernel was interrupted.
    """
    with _buttons(error) as output:
        # Without a browser no button can be pressed, and the cell would wait for ever.
        if not await browser_shows(output):
            return _run_of_default(error)
        deadline = _deadline(error)
        while not output.choice and time.monotonic() < deadline:  # noqa: ASYNC110 - an idle loop sees no interrupts
            await asyncio.sleep(POLL_INTERVAL)
    # The buttons are removed before the run starts, so that its view appears in their place.
    return _run_of(error, output.choice or error.default or "")


def wait_for_choice(error: CodeChangedError) -> Run:
    """Show the choices of a `CodeChangedError` like `await_choice`, but block the thread until a choice is made.

    Raises the same errors as `await_choice`.
    """
    with _buttons(error) as output:
        # A cell blocks this thread. Messages of the browser can arrive only on another one
        # (`divebook.widgets.views.answer_while_busy`).
        if not interruptible_wait(output.view.greeted, GREETING_TIMEOUT):
            return _run_of_default(error)
        deadline = _deadline(error)
        while not output.choice and time.monotonic() < deadline:
            # Interrupts are deferred here. Without this call, the stop button would have no effect while no button is
            # pressed.
            INTERRUPTS.raise_pending()
            time.sleep(POLL_INTERVAL)
    return _run_of(error, output.choice or error.default or "")


class ChoiceOutput:
    """Output of the current cell that shows the choices of a `CodeChangedError` as buttons."""

    def __init__(self, error: CodeChangedError) -> None:
        self.choice = ""
        """Name of the button that was pressed first; empty if none was pressed yet."""
        choices = [
            Choice(name=name, label=LABELS[name], told=description) for name, description in error.choices.items()
        ]
        offer = Offer(type="offer", view="", id="edited", text=_choice_text(error), choices=choices)
        self.view = OfferView(offer, self._choose)
        # The view is created here and not by a cell's last value, so the reference to it is written by hand. JupyterLab
        # and other front ends find the widget by `model_id`.
        reference = {"version_major": 2, "version_minor": 0, "model_id": self.view.model_id}
        self._output = display_bundle({**static_bundle(error), WIDGET_VIEW: reference})

    @property
    def is_watched(self) -> bool:
        """True if a browser shows the buttons and the kernel receives the browser's messages."""
        return self.view.greeted.is_set()

    def _choose(self, name: str) -> None:
        # Intents arrive on another thread, and a double click sends two. The first one counts.
        self.choice = self.choice or name

    def remove(self) -> None:
        """Remove the buttons from the cell, which then shows the run or the error."""
        # `retire` closes the view as soon as no page shows it, so the pages get the empty output first.
        self._output.update(NOTHING, raw=True)
        self.view.retire()


def _choice_text(error: CodeChangedError) -> str:
    if error.default is None:
        return error.told
    return f"{error.told} {LABELS[error.default]} starts by itself after {CHOICE_TIMEOUT:.0f} seconds."


def static_bundle(error: CodeChangedError) -> dict[str, str]:
    """Return the choices of a `CodeChangedError` as text and HTML, by MIME type. Pages without a kernel show them
    instead of buttons.

    The choices are shown as options of ``%dive run``.
    """
    items = [
        f"<li><code>--changed {html.escape(name)}</code>: {html.escape(description)}</li>"
        for name, description in error.choices.items()
    ]
    head = f"<p style='margin:6px 0'>{html.escape(error.told)} To continue, add to its line:</p>"
    return {"text/plain": str(error), "text/html": f"<div>{head}<ul style='margin:0'>{''.join(items)}</ul></div>"}


@contextmanager
def _buttons(error: CodeChangedError) -> Iterator[ChoiceOutput]:
    """Show the choices of a `CodeChangedError` as buttons during a ``with`` block. If the kernel is interrupted in the
    block, raise the `CodeChangedError`.
    """
    output = ChoiceOutput(error)
    try:
        yield output
    # ipykernel cancels the coroutine of a cell that awaits, and raises KeyboardInterrupt in a cell that blocks.
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise error from None
    # Also after an error, because nothing would react to the buttons of a cell that has ended.
    finally:
        output.remove()


def _deadline(error: CodeChangedError) -> float:
    """Return the time of the monotonic clock at which the cell stops waiting for a button and makes the default choice.
    Return infinity if `error` has no default choice.
    """
    return math.inf if error.default is None else time.monotonic() + CHOICE_TIMEOUT


def _run_of_default(error: CodeChangedError) -> Run:
    if error.default is None:
        raise error
    return _run_of(error, error.default)


def _run_of(error: CodeChangedError, choice: str) -> Run:
    """Make the choice of a person whose cell has changed code: run again, keep the old run or reuse completed calls.
    Return the resulting run, after printing its remark if it has one.
    """
    # `begin` belongs to `divebook.notebook.rerun`, which knows the earlier run and the new definitions.
    run: Run = error.begin(choice)
    if run.remark:
        print_answer(run.remark)
    return run
