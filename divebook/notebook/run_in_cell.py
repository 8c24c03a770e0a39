"""Display of a run in the cell that starts it: show it, wait until it ends or needs a person, and return it or
raise.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from divebook.errors import CodeChangedError, ExecutionCancelledError, ExecutionFailedError
from divebook.events.catalog import CANCELLED, FAILED, WAITING
from divebook.notebook.commands import print_answer
from divebook.notebook.run_wait import await_run, show_live, wait_for_run
from divebook.notebook.shell_state import FrontEnd
from divebook.report.hints import show_advice

if TYPE_CHECKING:
    from divebook.notebook.commands import Arguments
    from divebook.runtime.run import Run


def show_in_background(run: Run, front_end: FrontEnd, *, is_awaited: bool) -> Any:
    """Show a run that continues in the background after the cell has ended. Return the run, or a coroutine that returns
    it if the cell awaits the magic.
    """
    # `leave` saves the report at once, because the cell ends now.
    if front_end.shows_widgets:
        show_live(run, front_end).leave()
    return immediate(run) if is_awaited else run


def show_while_running(run: Run, front_end: FrontEnd) -> Run:
    """Show the live view of a run in the cell if a process runs it or if it waits for a worker; return the run in any
    case.
    """
    # A run that has ended, or that waits without a process, is shown as the value of the cell.
    if front_end.shows_widgets and (run.is_live or run.internals.goes_on_elsewhere):
        show_live(run, front_end).leave()
    return run


def await_in_cell(
    run_or_choice: Run | CodeChangedError,
    arguments: Arguments,
    front_end: FrontEnd,
    on_choice: Callable[[Run], object],
) -> Coroutine[Any, Any, Run]:
    """Return a coroutine that waits until a run has ended or has to wait for a person, and then returns the run or
    raises its error (`cell_outcome`).

    For a `CodeChangedError` the coroutine first shows the choices, calls `on_choice` with the run of the choice, and
    then waits for that run.
    """
    from divebook.notebook.cells import short_errors
    from divebook.notebook.code_change_choice import await_choice

    # The cell awaits the coroutine later, when the magic has already returned. Errors therefore get their short form
    # inside it.
    async def finish() -> Run:
        with short_errors():
            if isinstance(run_or_choice, CodeChangedError):
                run = await await_choice(run_or_choice)
                on_choice(run)
            else:
                run = run_or_choice
            await await_run(run, front_end)
            return cell_outcome(run, arguments, front_end)

    return finish()


def wait_in_cell(
    run_or_choice: Run | CodeChangedError,
    arguments: Arguments,
    front_end: FrontEnd,
    on_choice: Callable[[Run], object],
) -> Run:
    """Wait like `await_in_cell`, but block: for cells that cannot await."""
    from divebook.notebook.code_change_choice import wait_for_choice

    # The caller has set up short errors for this thread already.
    if isinstance(run_or_choice, CodeChangedError):
        run = wait_for_choice(run_or_choice)
        on_choice(run)
    else:
        run = run_or_choice
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
    for note in () if run.internals.options.answers is None else run.internals.options.answers.unused_notes(run):
        print_answer(note)
    if run.state.continued_as is not None:
        print_answer(
            f"this run continues as run {run.state.continued_as}; to show that run: "
            f"{show_advice(run.state.continued_as)}"
        )
    # Waiting is not a failure: the cell succeeds, and the run continues when the answer arrives.
    if run.state.status == WAITING:
        return _outcome_of_waiting(run, front_end, strict=arguments.has("strict"))
    if run.status not in (FAILED, CANCELLED) or arguments.has("no-check"):
        # A run that had completed before has no live view in this cell. It is shown all the same: a cell that assigns
        # the run to a variable has no value, and would be empty.
        if front_end.shows_widgets and run.internals.options.shown_in != front_end.count:
            _show(run, front_end)
        return run
    from divebook.notebook.cells import error_lines, show_as

    # The report shows how far the run came. An error alone would hide it.
    _show(run, front_end)
    error: ExecutionCancelledError | ExecutionFailedError
    if run.status == CANCELLED:
        error = ExecutionCancelledError(run.id, run.error or "")
    else:
        # `error` is None if the log records no text.
        error = ExecutionFailedError(run.id, run.error or run.status)
    show_as(
        error, [*error_lines(error), "To let the cell succeed although the run failed or was cancelled: --no-check"]
    )
    raise error


def _outcome_of_waiting(run: Run, front_end: FrontEnd, *, strict: bool) -> Run:
    """Show or print the questions and signals that a run waits for, and return the run.

    With `strict` raise `ExecutionWaitingError` instead.
    """
    from divebook.notebook.cells import error_lines, show_as
    from divebook.notebook.report import waiting_lines, ways_on
    from divebook.runtime.run import waiting_error

    # Programs with ``--strict`` get the commands for both notebook and shell.
    if strict:
        error = waiting_error(run)
        show_as(error, [error_lines(error)[0], *ways_on(run)])
        raise error
    # Without a live view, the saved report shows the questions and the commands that answer them.
    if run.open_questions and not front_end.shows_widgets:
        _show(run, front_end)
    else:
        print_answer("\n".join(waiting_lines(run)))
    return run


def _show(run: Run, front_end: FrontEnd) -> None:
    """Display a run in the cell. If the run is also the last value of the cell, it is not displayed twice."""
    from IPython.display import display

    display(run)  # type: ignore[no-untyped-call]
    run.internals.options.shown_in = front_end.count


async def immediate(value: Any) -> Any:
    """Return the argument `value` unchanged. This coroutine wraps a result that is already known, because the cell
    awaits the result of the magic in any case.
    """
    return value
