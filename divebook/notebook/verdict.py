"""What becomes of a cell when its run has ended, has to wait, or goes on without it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from divebook.errors import EditedError, ExecutionCancelledError, ExecutionFailedError
from divebook.notebook.finishing import finish_awaited, finish_blocking, show_live
from divebook.notebook.frontend import FrontEnd
from divebook.notebook.printed import tell

if TYPE_CHECKING:
    from divebook.notebook.arguments import Arguments
    from divebook.notebook.run import Run

FAILING = ("failed", "cancelled")


def in_background(run: Run, arguments: Arguments, front_end: FrontEnd, *, awaited: bool) -> Any:
    """Show a run that goes on in the background."""
    _keep_data(run, arguments)
    if front_end.shows_widgets:
        show_live(run, front_end).leave()
    return at_once(run) if awaited else run


def shown_while_it_goes_on(run: Run, front_end: FrontEnd) -> Run:
    """Return a run, with its live view in the cell if it goes on, here or elsewhere, or waits for a worker."""
    execution = run.execution
    if front_end.shows_widgets and (execution.is_live or execution.goes_on_elsewhere):
        show_live(run, front_end).leave()
    return run


async def at_once(value: Any) -> Any:
    """Return a value to a cell that awaits it."""
    return value


def finish_in_cell(begun: Run | EditedError, arguments: Arguments, front_end: FrontEnd) -> Coroutine[Any, Any, Run]:
    """Return what a cell awaits: the run, once it has ended or has to wait, as `checked` returns it."""
    from divebook.notebook.cards import short_errors
    from divebook.notebook.choosing import chosen_awaited

    async def finish() -> Run:
        with short_errors():
            run = await chosen_awaited(begun) if isinstance(begun, EditedError) else begun
            _keep_data(run, arguments)
            return checked(await finish_awaited(run, front_end), arguments, front_end)

    return finish()


def finish_here(begun: Run | EditedError, arguments: Arguments, front_end: FrontEnd) -> Run:
    """Block until a run has ended or has to wait, where a cell cannot await it."""
    from divebook.notebook.choosing import chosen_blocking

    run = chosen_blocking(begun) if isinstance(begun, EditedError) else begun
    _keep_data(run, arguments)
    return checked(finish_blocking(run, front_end), arguments, front_end)


def _keep_data(run: Run, arguments: Arguments) -> None:
    run.keeps_data = False if arguments.has("no-data") else None


def checked(run: Run, arguments: Arguments, front_end: FrontEnd) -> Run:
    """Return the run; or show it and fail the cell, if it failed, so that Run All does not go on without it."""
    for key in run.unused_answers:
        tell(f"the answer for {key!r} was not needed: no question of that name was asked")
    if run.continued_as is not None:
        tell(f"it goes on as {run.continued_as}; to look at that: %dive show {run.continued_as}")
    if run.status == "waiting":
        return _waiting(run, front_end, strict=arguments.has("strict"))
    if run.status not in FAILING or arguments.has("no-check"):
        return run
    from IPython.display import display

    from divebook.notebook.cards import card, show_as

    display(run)  # type: ignore[no-untyped-call]
    error = (
        ExecutionCancelledError(run.id)
        if run.status == "cancelled"
        else ExecutionFailedError(run.id, run.error or run.status)
    )
    show_as(error, [*card(error), "To continue past failures: --no-check"])
    raise error


def _waiting(run: Run, front_end: FrontEnd, *, strict: bool) -> Run:
    """Return a run that has to wait, and show it where that was not done yet; or fail the cell."""
    from divebook.notebook.cards import card, show_as
    from divebook.notebook.listing import waiting_lines, ways_on
    from divebook.notebook.run import waiting_error

    if strict:
        error = waiting_error(run.execution)
        show_as(error, [card(error)[0], *ways_on(run.execution)])
        raise error
    if run.interrupts and not front_end.shows_widgets:
        from IPython.display import display

        display(run)  # type: ignore[no-untyped-call]
        run.shown_in = front_end.count
    else:
        tell("\n".join(waiting_lines(run.execution)))
    return run
