"""Forks: executions that share the first events of another one, and go on live from there.

Nothing is copied; what was begun in the source and has no end is dropped (`divebook.engine.forked`), so that the
outcome of no call is unknown (`tests/execution/test_forks.py`). Beside it: what edited functions reach, which says
where an edited run is forked.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from divebook.engine.change import Change
from divebook.engine.evolve import fold
from divebook.engine.lifecycle import TERMINAL
from divebook.engine.operations import (
    ACTION_EXECUTION,
    AGENT_RESPONSE,
    CACHED_RESPONSE,
    STEP_EXECUTION,
    TOOL_CALL,
    operation_name,
)
from divebook.engine.records import OpenStep
from divebook.engine.state import ExecutionState
from divebook.errors import SetupError
from divebook.events import catalog
from divebook.events.event import Event
from divebook.events.record import Record
from divebook.execution.definitions import opening_in, workflow_in
from divebook.execution.fork_points import live_point_of, point_of
from divebook.questions.answer import checked_answer
from divebook.questions.kinds import PENDING
from divebook.store.base import EventStore
from divebook.store.batches import Batch
from divebook.store.durability import Durability
from divebook.store.owner import Owner
from divebook.workflow.definition import Workflow
from divebook.workflow.inputs import bind_changed
from divebook.workflow.json_schemas import FITTING

FUNCTION_KINDS = {ACTION_EXECUTION: "action", STEP_EXECUTION: "step"}
"""What a function is called in the labels of `divebook.steps.code`, by the type of the operations that call it."""

_ENDS = catalog.OperationCompleted | catalog.OperationFailed


class Epoch(NamedTuple):
    """A part of a log in which the functions were the same."""

    begins: int
    """The number of its first event."""
    code: Mapping[str, str]


def epochs_of(events: Iterable[Event]) -> list[Epoch]:
    """Return the epochs of a log, oldest first: whenever an execution is resumed, its functions may be others.

    Whoever takes one up that had ended keeps what it did, which counts from then on as done by the functions of that
    moment (`test_a_run_that_was_mended_is_shown_and_nothing_is_asked`).
    """
    found: list[Epoch] = []
    begun: Mapping[str, str] = {}
    for event in events:
        if isinstance(event.data, catalog.ExecutionStarted):
            begun = event.data.code or {}
            found.append(Epoch(event.sequence, begun))
        elif isinstance(event.data, catalog.ExecutionForked):
            begun = begun if event.data.code is None else event.data.code
            found = [epoch._replace(code=begun) for epoch in found]
        elif isinstance(event.data, catalog.ExecutionResumed):
            code = begun if event.data.code is None else event.data.code
            if event.data.previous_status in TERMINAL:
                found = [epoch._replace(code=code) for epoch in found]
            found.append(Epoch(event.sequence, code))
    return found


def first_reached(events: Sequence[Event], labels: Callable[[Epoch], Container[str]]) -> int | None:
    """Return the number of the event at which the first call begins that `reached` yields."""
    return next((sequence for sequence, _ in reached(events, labels)), None)


def reached(events: Sequence[Event], labels: Callable[[Epoch], Container[str]]) -> Iterator[tuple[int, str]]:
    """Yield the calls of functions whose outcome counts: the number of the event at which each begins, and its id.

    `labels` says which functions, for each epoch.

    A call that has no end, or whose failure has ended an execution, is made again anyway when that goes on.
    """
    again = made_again(events)
    counts = {data.operation_id for data in _payloads(events) if isinstance(data, _ENDS)} - again
    begun = [(event.sequence, event.data) for event in events if isinstance(event.data, catalog.OperationStarted)]
    latest = {data.operation_id: sequence for sequence, data in begun}
    epochs = epochs_of(events)
    meant = {epoch.begins: labels(epoch) for epoch in epochs}
    for sequence, data in begun:
        epoch = max(found.begins for found in epochs if found.begins <= sequence)
        is_latest = latest[data.operation_id] == sequence
        if is_latest and data.operation_id in counts and _label(data) in meant[epoch]:
            yield sequence, data.operation_id


def calls_in(events: Iterable[Event]) -> int:
    """Return how many calls have completed."""
    return sum(isinstance(data, catalog.OperationCompleted) for data in _payloads(events))


class Prefix(NamedTuple):
    """What a fork shares with its source."""

    source: str
    at: int
    """The number of its last event."""
    state: ExecutionState
    """That of the source after that event."""
    workflow: Workflow
    """That of the source at that event."""
    opened: int
    """The number of the newest opening in it."""


def prefix_of(
    store: EventStore,
    source: str,
    at: int | None,
    change: Change,
    *,
    reaching_back: bool = False,
    is_live: bool = False,
) -> Prefix:
    """Return what a fork of an execution shares with it; of a damaged log, the events before the damage can be shared.

    Parameters
    ----------
    at
        The event after which it is forked; None: as `divebook.execution.fork_points.point_of` says.
    is_live
        Whether calls are made behind it.

    Raises
    ------
    SetupError
        The log has no such event.
    CorruptStoreError
        The log is damaged before it.
    """
    events, damage = store.read_sound(source)
    if damage is not None and (not events or (at is not None and at > len(events))):
        raise damage
    at = (live_point_of if is_live else point_of)(events, at, change, reaching_back=reaching_back)
    shared = events[:at]
    opening = opening_in(source, shared)
    kinds = (catalog.ExecutionStarted, catalog.ExecutionForked)
    opened = max(event.sequence for event in shared if isinstance(event.data, kinds))
    return Prefix(source, at, fold(source, shared), workflow_in(source, opening, shared), opened)


def fitting(change: Change, state: ExecutionState, now: int) -> Change:
    """Return a change with its answers and results in full form.

    Raises
    ------
    InterruptError
        An answer does not fit its question.
    SetupError
        No model answers so.
    """
    answers = {
        name: checked_answer(state.interrupts[name]._replace(status=PENDING, expires_us=None), response, FITTING, now)
        for name, response in change.answers.items()
        if name in state.interrupts
    }
    types = {key: record.operation_type for found in _opened(state) for key, record in found.operations.items()}
    results = {name: _as_recorded(types.get(name), name, given) for name, given in change.results.items()}
    return replace(change, answers={**change.answers, **answers}, results=results)


def _opened(state: ExecutionState) -> Iterator[OpenStep]:
    yield from (path.open for path in state.paths.values() if path.open is not None)


def _as_recorded(operation_type: str | None, name: str, given: Any) -> Any:
    """Return what a call returned in the form that its log has: what a model says is more than its text."""
    if operation_type == TOOL_CALL and not (isinstance(given, Mapping) and "result" in given):
        return {"result": given}
    if operation_type not in (AGENT_RESPONSE, CACHED_RESPONSE) or (isinstance(given, Mapping) and "parts" in given):
        return given
    if isinstance(given, str):
        return {"parts": [{"content": given, "part_kind": "text"}], "usage": {}, "cost_nanodollars": 0}
    raise SetupError(
        f"{name} is a call of a model: its result is a text, or a response as a frame shows it, with 'parts', "
        f"not {type(given).__name__}"
    )


def fitting_inputs(change: Change, workflow: Workflow, *, coerce_text: bool = False) -> Change:
    """Return a change whose inputs fit what the workflow of the fork declares, as those of a start do."""
    return replace(change, inputs=bind_changed(workflow, change.inputs, coerce_text=coerce_text))


def first_batch(store: EventStore, source: str, forked: Event, owner: Owner, durability: Durability | None) -> Batch:
    """Return what begins an execution that shares the events of another one before `forked`.

    Logs share whole records: of one that goes on behind that event the beginning is written once more
    (test_a_fork_inside_a_record_has_a_copy_of_its_beginning).
    """
    at = forked.sequence - 1
    last = store.read_records(source, at - 1, at)[0]
    shared, rows = last.last_sequence, [Record.of(forked)]
    if shared >= forked.sequence:
        shared = last.sequence - 1
        kept = last.facts[: forked.sequence - last.sequence]
        step = last.step_of(kept[0]) if len(kept) == 1 else last.step
        rows.insert(0, replace(last, execution_id=forked.execution_id, facts=kept, step=step))
    return Batch(
        forked.execution_id, shared, rows, acquire=owner, durability=durability, source=source if shared else None
    )


def _label(data: catalog.OperationStarted) -> str:
    name = data.name or operation_name(data.operation_type, data.parameters)
    return f"{FUNCTION_KINDS.get(data.operation_type, data.operation_type)} {name}"


def _payloads(events: Iterable[Event]) -> Iterable[catalog.Payload]:
    return (event.data for event in events)


def made_again(events: Iterable[Event]) -> set[str]:
    """Return the calls that a resumption of an execution which has failed makes again."""
    failing: dict[str, set[str]] = {}
    found: set[str] = set()
    for event in events:
        data = event.data
        if isinstance(data, catalog.OperationFailed):
            failing.setdefault(event.path, set()).add(data.operation_id)
        elif isinstance(data, catalog.StepStarted):
            failing.pop(event.path, None)
        elif isinstance(data, catalog.StepFailed):
            found |= failing.pop(event.path, set()) if data.operations is None else set(data.operations)
        elif isinstance(data, catalog.ExecutionResumed | catalog.ExecutionCompleted):
            found.clear()
    return found
