"""Stands at an event of a log: goes on and back, to where something happened, and tells how things stood there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from divebook import extensions
from divebook.engine.state import ExecutionState, PathState
from divebook.errors import NotFoundError
from divebook.events import Event
from divebook.events.recorded import opened
from divebook.execution.execution import Execution
from divebook.history.messages import CallMessage
from divebook.replay.asked import request_at
from divebook.replay.changed import Changed, changed_between
from divebook.replay.positions import Positions
from divebook.replay.stops import Fits, Stop
from divebook.workflow.definition import Workflow


class LogWalk:
    """What goes through one log: `Replayer`, and a view that follows its own moves."""

    _positions: Positions
    _workflow: Workflow | None = None
    """The workflow of the execution, where it is known."""
    _position = 0

    # --- to move ---------------------------------------------------------------------------------------------------

    def seek(self, sequence: int) -> Self:
        """Go to a position; return itself. Raises `IndexError` where the log has none of that number."""
        self._positions.state_at(sequence)
        self._position = sequence
        self._moved()
        return self

    def step_forward(self) -> Self:
        """Go on by one event; at the end of the log it stays. Return itself."""
        return self.seek(min(self._position + 1, self.total))

    def step_back(self) -> Self:
        """Go back by one event; before the first it stays. Return itself."""
        return self.seek(max(self._position - 1, 0))

    def run_to(self, where: Fits | None = None, **stop: Any) -> Self | None:
        """Go on to the next event that fits; return itself, or None where none fits: it stays then.

        Parameters
        ----------
        where
            Whether an event fits: ``lambda event: "limit" in str(event.data)``.
        **stop
            What an event must be, all of it: ``step="parse"``, ``path="main"``, ``event="step_completed"``,
            ``operation="fetch"`` (what is called, or a type of operation), ``error=True``, ``question=True``,
            ``model_call=True``, ``changed="x"`` (variable x is set or deleted).

        Raises
        ------
        NotFoundError
            The workflow has no such step, or there is no such type of event.
        ValueError
            Nothing is said of where to stop.
        """
        return self._run(self._stop(where, stop), self._positions.onwards(self._position))

    def run_back_to(self, where: Fits | None = None, **stop: Any) -> Self | None:
        """Go back to the nearest event before that fits, as `run_to` goes on."""
        return self._run(self._stop(where, stop), self._positions.backwards(self._position))

    def _stop(self, where: Fits | None, stop: dict[str, Any]) -> Stop:
        named = stop.get("step")
        steps = [] if self._workflow is None else [step.name for step in self._workflow.steps]
        if named is not None and steps and named not in steps:
            raise NotFoundError("step", named, steps)
        return Stop(where=where, **stop)

    def _run(self, stop: Stop, events: Iterable[Event]) -> Self | None:
        found = next((event.sequence for event in events if stop.fits(event)), None)
        return None if found is None else self.seek(found)

    def _moved(self) -> None:
        """Be told that it stands somewhere else; for views that follow."""

    # --- how things stood there ------------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """How many events the log has by now."""
        return self._positions.total

    @property
    def position(self) -> int:
        """Where it stands: the number of the event that has just happened; 0 before the first."""
        return self._position

    @property
    def event(self) -> Event | None:
        """The event that has just happened; None before the first."""
        return self._positions.event_at(self._position) if self._position else None

    @property
    def state(self) -> ExecutionState:
        """The state after that event, as it was while the run was live."""
        return self._positions.state_at(self._position)

    @property
    def variables(self) -> dict[str, Any]:
        """The workflow's named values, sorted by name; a fresh copy each time."""
        return {name: opened(value, lenient=True) for name, value in sorted(self.state.variables.items())}

    @property
    def paths(self) -> dict[str, PathState]:
        """The lines of progress by id, oldest first."""
        return {path.id: path for path in sorted(self.state.paths.values(), key=lambda path: path.number)}

    @property
    def envelope(self) -> Any:
        """The request as it stood, as `divebook.Envelope`."""
        return extensions.extension(extensions.ENVELOPE)(self.state, self._workflow)

    @property
    def diff(self) -> list[Changed]:
        """What the event that has just happened has changed."""
        return changed_between(self._positions.state_at(self._position - 1), self.state) if self._position else []

    @property
    def messages(self) -> list[CallMessage]:
        """What the model asked last was sent, as it saw it, and what it had answered by then; empty before the first.

        Only the visit to its step is read, whatever the length of the log.
        """
        found = request_at(self._positions, self._position)
        return [] if found is None else found.said


class Replayer(LogWalk):
    """Stands at a position of one log: 0 is before the first event, n is after event n.

    Nothing is run, and nothing is written. While the run goes on, the log grows, and so does `total`.

    Parameters
    ----------
    steps
        The names of the workflow's steps, as they are written.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> world = Environment(store="memory:")
    >>> steps = [Step("add", script="1 + 1", store="n"), Step("more", script="state.n * 2", store="n")]
    >>> replay = world.start(Workflow("sum", steps)).wait().replay()
    >>> replay.seek(replay.total).variables
    {'n': 4}
    >>> replay.run_back_to(changed="n").position, replay.diff[0].before, replay.diff[0].after
    (11, 2, 4)
    >>> replay.step_back().variables
    {'n': 2}
    """

    def __init__(self, positions: Positions, workflow: Workflow) -> None:
        self._positions, self._workflow = positions, workflow

    def __repr__(self) -> str:
        event = self.event
        at = "before the first event" if event is None else f"{event.event_type} {event.step}".strip()
        return f"<Replayer of {self._positions.execution_id} at {self._position:,} of {self.total:,}: {at}>"


def replayer_of(execution: Execution) -> Replayer:
    """Return a replayer of an execution, which stands before its first event."""
    return Replayer(positions_of(execution), execution.workflow)


def positions_of(execution: Execution) -> Positions:
    """Return the positions of an execution's log, as far as it is written when somebody asks."""
    store, name = execution.store, execution.id
    return Positions(name, lambda after, limit: store.read(name, after, limit), lambda: len(execution.history()))
