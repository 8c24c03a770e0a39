"""Where a step was entered in a run, and the workflow of a trial: this step alone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from divebook.engine.change import Change
from divebook.engine.state import ExecutionState
from divebook.errors import NotFoundError, SetupError
from divebook.events import catalog
from divebook.events.event import Event
from divebook.text.shown import plural
from divebook.workflow.changed_step import require_step_of
from divebook.workflow.definition import Workflow
from divebook.workflow.step import Step


class Entered(NamedTuple):
    """One visit of a run to a step, or one item of it."""

    step: str
    path: str
    visit: int
    """Its number on that path."""
    item: int | None
    began: int
    """The number of the event with which it was entered."""
    call: int | None = None
    """Of a call that a workflow function made: its number among those of this agent."""

    @property
    def only(self) -> dict[str, Any]:
        """What the event says of it with which a trial begins."""
        told: dict[str, Any] = {"step": self.step, "path": self.path, "visit": self.visit, "item": self.item}
        return {name: value for name, value in told.items() if value is not None}

    @property
    def label(self) -> str:
        """How people call it."""
        if self.call is not None:
            return f"call {self.call} of agent {self.step}"
        item = "" if self.item is None else f"[{self.item}]"
        return f"step {self.step}{item}" + (f", visit {self.visit}" if self.visit > 1 else "")


def entry_of(
    events: Sequence[Event], workflow: Workflow, step: str, visit: int | None = None, item: int | None = None
) -> Entered:
    """Return where a run entered a step.

    Parameters
    ----------
    visit
        Which time, from 1 on, in the order of the log; by default the last.
    item
        Which item of `Each`, from 0 on; by default all of them.

    Raises
    ------
    NotFoundError
        The workflow has no such step.
    SetupError
        The run never entered it, or not so often, or had no such item there.
    """
    require_step_of(workflow, step)
    visits = [event for event in events if isinstance(event.data, catalog.StepStarted)]
    own = [event for event in visits if event.step == step]
    name = events[0].execution_id
    if not own:
        entered = ", ".join(dict.fromkeys(event.step for event in visits)) or "none"
        raise SetupError(
            f"execution {name} never entered step {step!r}, so there is no state to try it with (it "
            f"entered: {entered}); run the workflow up to it first"
        )
    number: object = len(own) if visit is None else visit  # whatever a caller has
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= len(own):
        told = f"execution {name} entered step {step!r} {plural(len(own), 'time')}"
        raise SetupError(f"{told}; visit is 1 to {len(own)}, not {number!r}")
    begun = own[number - 1]
    assert isinstance(begun.data, catalog.StepStarted)  # noqa: S101 - they were chosen so
    if item is not None:
        _require_item(events, workflow, begun, own[number:], item)
    return Entered(step, begun.path, begun.data.visit, item, begun.sequence)


def _require_item(
    events: Sequence[Event], workflow: Workflow, begun: Event, later: Sequence[Event], item: object
) -> None:
    """Raise `SetupError` unless a visit to a step had an item."""
    if workflow.step(begun.step).each is None:
        raise SetupError(f"step {begun.step!r} has no Each, so it has no item {item!r}; leave item out")
    end = next((event.sequence for event in later if event.path == begun.path), len(events) + 1)
    found = {
        event.data.iteration_index
        for event in events[begun.sequence : end - 1]
        if isinstance(event.data, catalog.IterationStarted) and (event.path, event.step) == (begun.path, begun.step)
    }
    if isinstance(item, bool) or item not in found:
        there = f"items {min(found)} to {max(found)}" if found else "no item"
        raise SetupError(f"step {begun.step!r} began {there} there, and not item {item!r}; items are counted from 0")


def alone(workflow: Workflow, step: str) -> Workflow:
    """Return a workflow that does one step of another and ends: nothing follows it, and no failure is caught."""
    tried = workflow.step(step).like(edges=(), end=False, join=False, catch=())
    return with_only(workflow, tried)


def with_only(workflow: Workflow, step: Step) -> Workflow:
    """Return a workflow that does one step, and is in all else like another."""
    data = {name: value for name, value in workflow.to_dict().items() if name not in ("outputs", "triggers")}
    return Workflow.from_dict({**data, "steps": [step.to_dict()], "source": workflow.source})


def require_known(entry: Entered, change: Change, before: ExecutionState) -> None:
    """Raise `NotFoundError` for a variable or input that is to be otherwise and that a step was entered without."""
    known = ("variable", change.variables, before.variables), ("input", change.inputs, before.inputs)
    for kind, names, there in known:
        for name in names:
            if name not in there:
                text = f"{kind} {name!r} cannot be set: step {entry.step!r} was entered without one of that name"
                raise NotFoundError(kind, name, list(there), text)
