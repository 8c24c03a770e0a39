"""The definition that an execution was started with; of a log that holds none, what the log tells of it."""

from __future__ import annotations

from collections.abc import Sequence

from divebook.engine.forked import opened_as
from divebook.errors import UNFIT, CorruptStoreError, ExecutionError, NewerStoreError
from divebook.events import Event, catalog
from divebook.store.base import EventStore
from divebook.workflow.definition import Workflow
from divebook.workflow.sketch import Sketch, sketch_of


def recorded_opening(execution_id: str, store: EventStore) -> catalog.ExecutionStarted:
    """Return what an execution begins with as its newest opening says, of which the store reads the openings only.

    Raises
    ------
    ExecutionNotFoundError
        There is no such execution.
    CorruptStoreError
        Its log does not begin, or goes on, as one must.
    """
    openings: list[Event] = []
    number = store.record(execution_id).opened
    while not openings or (isinstance(openings[0].data, catalog.ExecutionForked) and number < openings[0].sequence):
        openings[:0] = store.read(execution_id, number - 1, 1)
        number = getattr(openings[0].data, "previous", 1) if openings else 1
    return opening_in(execution_id, openings)


def opening_in(execution_id: str, events: Sequence[Event]) -> catalog.ExecutionStarted:
    """Return what an execution begins with as the newest opening among some first events says."""
    forks = (event.data for event in events if isinstance(event.data, catalog.ExecutionForked))
    return opened_as(_first(execution_id, events), forks)


def recorded_workflow(execution_id: str, store: EventStore, opening: catalog.ExecutionStarted) -> Workflow:
    """Return the workflow of an execution; only of a log without a definition is more than its opening read."""
    return workflow_in(execution_id, opening, () if opening.definition is not None else store.read(execution_id))


def workflow_in(execution_id: str, opening: catalog.ExecutionStarted, events: Sequence[Event]) -> Workflow:
    """Return the workflow that an opening tells of, or if it does not, some events."""
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


def _first(execution_id: str, events: Sequence[Event]) -> catalog.ExecutionStarted:
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
