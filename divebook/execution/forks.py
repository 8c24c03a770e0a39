"""A copy of the beginning of an execution under an id of its own, which goes on live from there.

A log that ends before a call is what a process would have left that died there: it is resumed like one. The copy ends
where no call is under way, so that the outcome of none is unknown in it (`tests/execution/test_forks.py`). What holds
calls is not under way by itself: the copy enters it again (`tests/execution/test_enclosing.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from divebook.engine.lifecycle import TERMINAL
from divebook.engine.operations import ACTION_EXECUTION, ENCLOSING, STEP_EXECUTION, operation_name
from divebook.events import catalog
from divebook.events.event import Event
from divebook.execution.clock import Ids

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
        elif isinstance(event.data, catalog.ExecutionResumed):
            code = begun if event.data.code is None else event.data.code
            if event.data.previous_status in TERMINAL:
                found = [epoch._replace(code=code) for epoch in found]
            found.append(Epoch(event.sequence, code))
    return found


def first_reached(events: Sequence[Event], labels: Callable[[Epoch], Container[str]]) -> int | None:
    """Return the number of the event at which the first call of a function begins whose outcome counts.

    `labels` says which functions, for each epoch.

    A call that has no end, or whose failure has ended an execution, is made again anyway when that goes on.
    """
    again = _made_again(events)
    counts = {data.operation_id for data in _payloads(events) if isinstance(data, _ENDS)} - again
    begun = [(event.sequence, event.data) for event in events if isinstance(event.data, catalog.OperationStarted)]
    latest = {data.operation_id: sequence for sequence, data in begun}
    epochs = epochs_of(events)
    reached = {epoch.begins: labels(epoch) for epoch in epochs}
    for sequence, data in begun:
        epoch = max(found.begins for found in epochs if found.begins <= sequence)
        is_latest = latest[data.operation_id] == sequence
        if is_latest and data.operation_id in counts and _label(data) in reached[epoch]:
            return sequence
    return None


def quiet_before(events: Iterable[Event], sequence: int) -> int:
    """Return how many events come before one, without those since a call was begun that had not ended by then."""
    under_way: dict[str, int] = {}
    for event in events:
        if event.sequence >= sequence:
            break
        if isinstance(event.data, catalog.OperationStarted):
            if event.data.operation_type not in ENCLOSING:
                under_way.setdefault(event.data.operation_id, event.sequence)
        elif isinstance(event.data, _ENDS):
            under_way.pop(event.data.operation_id, None)
    return min(under_way.values(), default=sequence) - 1


def calls_in(events: Iterable[Event]) -> int:
    """Return how many calls have completed."""
    return sum(isinstance(data, catalog.OperationCompleted) for data in _payloads(events))


def copied(
    events: Sequence[Event], opening: catalog.ExecutionStarted, execution_id: str, ids: Ids, now: int
) -> list[Event]:
    """Return events as the beginning of another execution, which `opening` says how to begin.

    They keep their distances in time and are moved so that the last one happens now: what an execution may spend of
    time counts from its beginning.
    """
    later = now - events[-1].recorded_at
    (first, *rest) = [
        replace(
            event,
            id=ids.event(event.recorded_at + later),
            execution_id=execution_id,
            recorded_at=event.recorded_at + later,
        )
        for event in events
    ]
    began = first.data
    assert isinstance(began, catalog.ExecutionStarted)  # noqa: S101 - every log begins so
    seed = began.seed or events[0].execution_id
    return [replace(first, data=replace(opening, seed=seed)), *rest]


def _label(data: catalog.OperationStarted) -> str:
    name = data.name or operation_name(data.operation_type, data.parameters)
    return f"{FUNCTION_KINDS.get(data.operation_type, data.operation_type)} {name}"


def _payloads(events: Iterable[Event]) -> Iterable[catalog.Payload]:
    return (event.data for event in events)


def _made_again(events: Sequence[Event]) -> set[str]:
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
