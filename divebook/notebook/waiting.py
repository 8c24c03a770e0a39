"""Waiting for a run in a cell: until it has ended, or until a person is needed who cannot be asked here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from divebook.errors import DivebookError, ExecutionPausedError, InterruptError
from divebook.events.catalog import CANCELLED, FAILED
from divebook.interrupts import INTERRUPTS, interruptible_wait
from divebook.notebook.commands import tell
from divebook.notebook.frontend import FrontEnd
from divebook.questions import Question, Typed
from divebook.questions.question import CLARIFICATION, wanted_answer

if TYPE_CHECKING:  # loading the extension must be quick
    from divebook.notebook.output import LiveOutput
    from divebook.notebook.run import Run

PATIENCE = 10
"""Seconds that an interrupted run gets for coming to rest."""
GREETING = 2.0
"""Seconds in which a view that is really shown says hello."""
HOSTING, HOSTED = 0.5, 1.5
"""Seconds that the first run of a kernel which ends at once gives its page to say hello, and once it has said that, to
say whether it hosts views."""
TICK = 0.1


async def finish_awaited(run: Run, front_end: FrontEnd) -> Run:
    """Await a run; an interrupt of the kernel pauses it, and a pause, by whatever, is an `ExecutionPausedError`."""
    with _shown(run, front_end) as output, _stopping_where_paused(run):
        while True:
            if not _is_elsewhere(run):
                await run
            if not _waits_for_people(run):
                await _hosting_known(output)
                return run
            if await greeted(output):
                await _answered_in_view(run)
            elif not (front_end.takes_input and _answered_here(run)):
                return run


async def _answered_in_view(run: Run) -> None:
    """Return once somebody has answered; the ticks let an interrupt of the kernel through."""
    while _rests(run):  # noqa: ASYNC110 - an idle loop does not see interrupts, and another process may answer
        await asyncio.sleep(TICK)


def finish_blocking(run: Run, front_end: FrontEnd) -> Run:
    """Wait for a run; as `finish_awaited`."""
    with _shown(run, front_end) as output, _stopping_where_paused(run):
        while True:
            if not _is_elsewhere(run):
                run.wait()
            if not _waits_for_people(run):
                if output is not None and output.may_be_hosted:
                    interruptible_wait(output.view.greeted, HOSTING)
                return run
            if output is not None and interruptible_wait(output.view.greeted, GREETING):
                while _rests(run):
                    INTERRUPTS.raise_pending()
                    time.sleep(TICK)
            elif not (front_end.takes_input and _answered_here(run)):
                return run


@contextmanager
def _shown(run: Run, front_end: FrontEnd) -> Iterator[LiveOutput | None]:
    """Show the live view while the block runs, and what lasts afterwards; an interrupt at any time pauses the run."""
    may_go_on = run.execution.is_live or run.status in (FAILED, CANCELLED) or not run.execution.state.is_over
    output: LiveOutput | None = None
    try:
        with _pausing(run):
            if front_end.shows_widgets and may_go_on:
                output = show_live(run, front_end)
            yield output
    finally:
        if output is not None:
            output.leave()


def show_live(run: Run, front_end: FrontEnd) -> LiveOutput:
    """Show a run in the present cell while it runs."""
    from divebook.notebook.output import LiveOutput

    run.shown_in = front_end.count
    return LiveOutput(run)


def _is_elsewhere(run: Run) -> bool:
    """Whether another process drives a run, whose end cannot be waited for here."""
    return not run.execution.was_driven and not run.execution.state.is_over


def _waits_for_people(run: Run) -> bool:
    state = run.refresh().execution.state
    rests = not run.execution.is_live or run.execution.is_blocked
    return bool(run.interrupts) and not state.is_over and state.paused is None and rests


def _rests(run: Run) -> bool:
    """Whether there is no answer yet, neither from here nor from another process."""
    execution = run.refresh().execution
    rests = not execution.is_live or execution.is_blocked
    return rests and not execution.state.is_over and execution.status == "waiting"


async def _hosting_known(output: LiveOutput | None) -> None:
    """Give the first page of a kernel a moment to say whether the view may stay."""
    waited = 0.0
    while output is not None and output.may_be_hosted and waited < (HOSTED if output.is_watched else HOSTING):
        await asyncio.sleep(TICK / 2)
        waited += TICK / 2


class Watched(Protocol):
    """An output with a view in it."""

    @property
    def is_watched(self) -> bool:
        """Whether a browser shows the view, and its messages arrive."""


async def greeted(output: Watched | None) -> bool:
    """Return whether a browser shows the view and its messages arrive; a view needs a moment to come up."""
    if output is None:
        return False
    waited = 0.0
    while not output.is_watched and waited < GREETING:
        await asyncio.sleep(TICK)
        waited += TICK
    return output.is_watched


# --- asking without widgets ----------------------------------------------------------------------------------------


def _answered_here(run: Run) -> bool:
    """Ask the questions of a run in the cell itself; return whether one was answered."""
    answers = [_answered(run, question) for question in run.interrupts]
    return any(answers)


def _answered(run: Run, question: Question) -> bool:

    told = [question.question, *([question.message] if question.message else []), _shown_data(question)]
    tell("\n".join(filter(None, told)))
    while typed := _typed(f"Your answer{_wanted(question)} (Enter alone: later): "):
        try:
            run.answer(question.interrupt_id, Typed(typed))
        except InterruptError as error:
            tell(str(error))
        else:
            return True
    return False


def _typed(prompt: str) -> str:
    with INTERRUPTS.allowed():
        return input(prompt)


def _wanted(question: Question) -> str:
    is_free = question.kind == CLARIFICATION and question.schema is None
    return "" if is_free else f", {wanted_answer(question)}"


def _shown_data(question: Question) -> str:
    from divebook.events.codec import readable

    data: dict[str, Any] = {key: value for key, value in (question.data or {}).items() if key != "choices"}
    return readable(data, indent=2) if data else ""


# --- pauses ----------------------------------------------------------------------------------------------------------


@contextmanager
def _pausing(run: Run) -> Iterator[None]:
    """Pause a run where the kernel is interrupted in the block."""
    try:
        yield
    except (asyncio.CancelledError, KeyboardInterrupt):
        _pause(run)
        raise _stopped(run, "interrupted: ") from None


def _pause(run: Run) -> None:
    """Pause a run and wait a while until its log says so; it may end by itself at the same moment."""
    try:
        run.pause().wait(PATIENCE)
    except (DivebookError, TimeoutError):
        return


@contextmanager
def _stopping_where_paused(run: Run) -> Iterator[None]:
    """Fail the cell if the run is paused in the block, so that Run All stops as it does at an interrupt."""
    was_paused = _is_paused(run)
    yield
    if _is_paused(run) and not was_paused:
        raise _stopped(run, "")


def _is_paused(run: Run) -> bool:
    execution = run.execution
    return execution.state.paused is not None and not execution.is_live and not execution.state.is_over


def _stopped(run: Run, why: str) -> ExecutionPausedError:
    from divebook.notebook.report import show_as
    from divebook.text.format import plural

    error = ExecutionPausedError(run.id)
    done = sum(event.event_type == "operation_completed" for event in run.execution.history())
    if run.execution.is_live:
        told = [f"{why}{run.id} waits for a call that may not be made twice", f"To look again: %dive show {run.id}"]
    elif run.execution.state.is_over:
        told = [f"{why}but {run.id} had {run.status} already", f"To see it: %dive show {run.id}"]
    else:
        told = [f"{why}{run.id} is paused; {plural(done, 'completed call')} kept"]
        told += [f"Run the cell again to continue, or: %dive resume {run.id}"]
    show_as(error, told)
    return error
