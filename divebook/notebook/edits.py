"""Functions that were edited since a cell's run: what of the run is still what they would do, and what to offer.

A run that called what has changed is not shown as the result of the cell. It is forked before the first call that the
change can reach, and goes on from there as a run of its own; the old one stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from IPython.core.error import UsageError

from divebook.errors import EditedError
from divebook.events.catalog import COMPLETED
from divebook.execution.forks import calls_in, epochs_of, first_reached
from divebook.steps.code import ChangedFunction, changed_since
from divebook.text.shown import plural

if TYPE_CHECKING:
    from divebook.environment import Environment
    from divebook.execution.execution import Execution
    from divebook.notebook.run import Run

WhenEdited: TypeAlias = Literal["ask", "again", "keep", "reuse"]
"""What to do about it: let a person say, run again from the first call that it reaches, keep the old run, or,
where the definition was edited, reuse all that it would do as before."""
AGAIN: Final = "again"
KEEP: Final = "keep"
REUSE: Final = "reuse"
CHOICES = (AGAIN, KEEP, REUSE)


@dataclass(frozen=True, slots=True)
class Edit:
    """What was edited of a run's functions, and what of the run that reaches."""

    execution_id: str
    functions: tuple[ChangedFunction, ...]
    until: int
    """How many events of the run hold for the functions of now; 0 if it is not worth while to fork it."""
    calls: int
    """How many calls have completed in them."""
    done: int
    """How many calls have completed in all."""
    has_completed: bool
    """Whether there is nothing to go on with."""

    def offer(self, begin: Callable[[str], Run]) -> EditedError:
        """Return what is wrong where a person must choose."""
        anew = plural(self.done - self.calls, "completed call")
        part = f"from the first call that this can reach, and reuses {self._calls}" if self.until else "from its start"
        kept = plural(self.done, "completed call")
        keeping = "shows the old one as it is" if self.has_completed else f"goes on with the old one, with its {kept}"
        told = f"{self._changed} since this cell's run {self.execution_id}, which is not shown as its result."
        ways = {AGAIN: f"runs it {part}; {anew} made anew", KEEP: f"{keeping}, and asks no more until the next edit"}
        return EditedError(told, ways, begin)

    def note(self, new: str) -> str:
        """Return what is said beside the run that takes its place."""
        reused = f"reuses its first {self._calls}, and goes on with the present code" if self.until else "is a new run"
        return (
            f"{self._changed} since this cell's run {self.execution_id}; {new} {reused}. To see the old one: "
            f"%dive show {self.execution_id}; to keep it as the result of this cell: --changed keep"
        )

    @property
    def _calls(self) -> str:
        return plural(self.calls, "call")

    @property
    def _changed(self) -> str:
        return ", ".join(f"{found.label} {_BECAME[found.change]}" for found in self.functions)


def said_of_edits(word: str | None) -> WhenEdited | None:
    """Return what ``--changed`` says; UsageError if that is nothing that can be done."""
    if word is not None and word not in CHOICES:
        raise UsageError(f"--changed cannot be {word!r}; one of {', '.join(CHOICES)}")
    return cast("WhenEdited | None", word)


_BECAME = {"changed": "changed", "new": "is new", "gone": "is gone"}


def edit_of(environment: Environment, execution: Execution) -> Edit | None:
    """Return what was edited since a run and reaches what it has done; None if nothing does."""
    events, name = execution.history(), execution.state.workflow_name
    changed = {epoch.begins: changed_since(epoch.code, name, environment) for epoch in epochs_of(events)}
    functions = tuple({found.label: found for functions in changed.values() for found in functions}.values())
    done, has_completed = calls_in(events), execution.status == COMPLETED
    if any(found.by_workflow for found in [*changed.values()][-1]):
        return Edit(execution.id, functions, 0, 0, done, has_completed)
    reached = first_reached(events, lambda epoch: {to for found in changed[epoch.begins] for to in found.reaches})
    if reached is None:
        return None
    until = reached - 1
    calls = calls_in(events[:until])
    return Edit(execution.id, functions, until if calls else 0, calls, done, has_completed)
