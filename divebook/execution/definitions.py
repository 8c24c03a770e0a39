"""The definition that an execution was started with; of a log that holds none, what the log tells of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from divebook.errors import UNFIT, CorruptStoreError, ExecutionError, NewerStoreError
from divebook.events import Event, catalog
from divebook.store.base import EventStore
from divebook.workflow.definition import Workflow
from divebook.workflow.sketch import Sketch, sketch_of


def inputs_in(execution_id: str, events: Sequence[Event]) -> Mapping[str, Any]:
    """Return the inputs that some first events tell of."""
    return _opening(execution_id, events).inputs


def recorded_workflow(execution_id: str, store: EventStore, opening: Sequence[Event]) -> Workflow:
    """Return the workflow of an execution; only of a log without a definition is more than its first event read."""
    is_foreign = bool(opening) and getattr(opening[0].data, "definition", None) is None
    return workflow_in(execution_id, store.read(execution_id) if is_foreign else opening)


def workflow_in(execution_id: str, events: Sequence[Event]) -> Workflow:
    """Return the workflow that some first events tell of."""
    opening = _opening(execution_id, events)
    if opening.definition is None:
        return entered_workflow(opening.workflow_name, events)
    try:
        return Workflow.from_dict({**opening.definition, "source": opening.source or ""})
    except NewerStoreError:
        raise
    except UNFIT as error:
        raise CorruptStoreError(
            f"the definition in the log of execution {execution_id} cannot be read: {type(error).__name__}: {error}"
        ) from error


def _opening(execution_id: str, events: Sequence[Event]) -> catalog.ExecutionStarted:
    opening = events[0].data if events else None
    if not isinstance(opening, catalog.ExecutionStarted):
        raise CorruptStoreError(
            f"the log of execution {execution_id} does not begin with execution_started; run `divebook check`"
        )
    return opening


def entered_workflow(name: str, events: Sequence[Event]) -> Sketch:
    """Return the steps that some events tell of."""
    return sketch_of(name, ((e.step, e.data.step_type) for e in events if isinstance(e.data, catalog.StepStarted)))


def require_definition(workflow: Workflow) -> None:
    """Raise `ExecutionError` for a workflow that is known from a log only."""
    if isinstance(workflow, Sketch):
        raise ExecutionError(
            f"an execution of {workflow.name!r} cannot be carried on: no definition is recorded in its log, as in "
            "those of other systems; show it, replay it or export it, and start the workflow anew"
        )
