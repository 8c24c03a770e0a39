"""A log as stretches of time: one span for each visit to a step, each item of `Each`, and each operation.

Frames, timeline and usage are all made of these, so that they agree with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from divebook.events import Event, catalog

Kind: TypeAlias = Literal["step", "item", "operation"]
_NO_USAGE: Mapping[str, int] = {}


@dataclass(slots=True)
class Span:
    """A stretch of work, from its first event to its last."""

    kind: Kind
    path: str
    step: str
    visit: int
    type: str
    """Type of the step or operation: ``prompt``, ``agent_response``, ..."""
    started_us: int
    """Microseconds since 1970."""
    ended_us: int | None = None
    status: str = catalog.RUNNING
    error: str | None = None
    iteration: int | None = None
    operation_id: str | None = None
    attempts: int = 1
    """How often it was begun; more than once after a crash, a retry or a resumption."""
    items: int = 0
    """Items of `Each` that are done."""
    parameters: Mapping[str, Any] | None = None
    result: Any = None
    usage: Mapping[str, int] = field(default_factory=dict)
    """Of an operation: what the model call consumed."""
    index: int = 0
    """Place in the order in which the spans began."""
    sequences: list[int] = field(default_factory=list)
    """The events it is made of."""

    @property
    def name(self) -> str:
        """Short name: the step, with the number of the item if it is one."""
        return self.step if self.iteration is None else f"{self.step}[{self.iteration}]"

    @property
    def duration_us(self) -> int | None:
        """Microseconds it took; None while it runs."""
        return None if self.ended_us is None else self.ended_us - self.started_us


def spans_of(events: Iterable[Event]) -> list[Span]:
    """Return the spans of one execution's log, in the order in which they began."""
    builder = _Builder()
    for event in events:
        builder.take(event)
    return builder.spans


class _Builder:
    """Opens and closes spans as the events come."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.changed: dict[int, Span] = {}
        """Those that began, ended or were begun again, by index; whoever follows a log empties it."""
        self._steps: dict[str, Span] = {}
        """By path: the step it is in, or was in last."""
        self._items: dict[tuple[str, int], Span] = {}
        self._operations: dict[str, Span] = {}
        self._open: dict[str, dict[int, Span]] = {}
        """What runs, by path and identity."""

    def take(self, event: Event) -> None:
        """Let one event have its effect."""
        change = _CHANGES.get(type(event.data))
        if change is not None:
            change(self, event, event.data)

    def _begin(self, span: Span, event: Event) -> None:
        span.index = len(self.spans)
        self.spans.append(span)
        self._mark_open(span)
        self._touch(span, event)

    def _touch(self, span: Span, event: Event) -> None:
        span.sequences.append(event.sequence)
        self.changed[span.index] = span

    def _mark_open(self, span: Span) -> None:
        self._open.setdefault(span.path, {})[id(span)] = span

    def _end(self, span: Span | None, event: Event, status: str, error: str | None = None) -> None:
        if span is None:
            return
        span.status, span.ended_us, span.error = status, event.recorded_at, error
        self._touch(span, event)
        self._open.get(span.path, {}).pop(id(span), None)

    def _stop_open(self, event: Event, path: str) -> None:
        """End what still runs on a path: nobody will report its end."""
        for span in list(self._open.get(path, {}).values()):
            self._end(span, event, catalog.CANCELLED)

    def step_started(self, event: Event, data: catalog.StepStarted) -> None:
        span = Span("step", event.path, event.step, data.visit, data.step_type, event.recorded_at)
        self._steps[event.path] = span
        self._begin(span, event)

    def step_completed(self, event: Event, data: catalog.StepCompleted) -> None:
        step = self._steps.get(event.path)
        if step is not None:
            step.result = data.output
        self._end(step, event, catalog.COMPLETED)

    def step_failed(self, event: Event, data: catalog.StepFailed) -> None:
        self._end(self._steps.get(event.path), event, catalog.FAILED, data.error)
        self._stop_open(event, event.path)

    def step_caught(self, event: Event, _data: catalog.Payload) -> None:
        """Forget a step that failed for good: its path goes on elsewhere."""
        self._steps.pop(event.path, None)

    def step_retried(self, event: Event, data: catalog.StepRetried) -> None:
        index = data.iteration_index
        span = self._steps.get(event.path) if index is None else self._items.get((event.path, index))
        if span is not None:
            span.attempts += 1
            self._touch(span, event)

    def iteration_started(self, event: Event, data: catalog.IterationStarted) -> None:
        key = (event.path, data.iteration_index)
        step = self._steps.get(event.path)
        known = self._items.get(key)
        visit = step.visit if step else 1
        if known is not None and (known.step, known.visit) == (event.step, visit):
            self._begin_again(known, event)
            return
        type_ = step.type if step else ""
        span = Span("item", event.path, event.step, visit, type_, event.recorded_at, iteration=data.iteration_index)
        span.parameters = {"item": data.item}
        self._items[key] = span
        self._begin(span, event)

    def iteration_completed(self, event: Event, data: catalog.IterationCompleted) -> None:
        span = self._items.get((event.path, data.iteration_index))
        if span is not None:
            span.result = data.result
        self._end(span, event, catalog.COMPLETED)
        if event.path in self._steps:
            self._steps[event.path].items += 1

    def operation_started(self, event: Event, data: catalog.OperationStarted) -> None:
        known = self._operations.get(data.operation_id)
        if known is not None:
            self._begin_again(known, event)
            return
        step = self._steps.get(event.path)
        visit = step.visit if step else 1
        span = Span("operation", event.path, event.step, visit, data.operation_type, event.recorded_at)
        span.iteration, span.operation_id, span.parameters = data.iteration_index, data.operation_id, data.parameters
        self._operations[data.operation_id] = span
        self._begin(span, event)

    def operation_completed(self, event: Event, data: catalog.OperationCompleted) -> None:
        span = self._operations.get(data.operation_id)
        if span is not None:
            span.result, span.usage = data.result, data.usage or _NO_USAGE
        self._end(span, event, catalog.COMPLETED)

    def operation_failed(self, event: Event, data: catalog.OperationFailed) -> None:
        self._end(self._operations.get(data.operation_id), event, catalog.FAILED, data.error)

    def path_ended(self, event: Event, _data: catalog.Payload) -> None:
        self._stop_open(event, event.path)

    def execution_ended(self, event: Event, _data: catalog.Payload) -> None:
        for path in self._open:
            self._stop_open(event, path)

    def execution_resumed(self, event: Event, _data: catalog.Payload) -> None:
        """Operations that ran when the process died are over; steps that did not complete go on."""
        for span in [span for spans in self._open.values() for span in spans.values() if span.kind == "operation"]:
            self._end(span, event, catalog.CANCELLED)
        for span in self._steps.values():
            if span.status in (catalog.FAILED, catalog.CANCELLED):
                self._go_on(span, event)

    def _go_on(self, step: Span, event: Event) -> None:
        if step.result is None:
            self._begin_again(step, event)
        else:  # only the choice of what follows it had failed
            step.status, step.error = catalog.COMPLETED, None
            self._touch(step, event)

    def _begin_again(self, span: Span, event: Event) -> None:
        span.status, span.ended_us, span.error = catalog.RUNNING, None, None
        span.attempts += 1
        self._mark_open(span)
        self._touch(span, event)


_CHANGES: dict[type, Callable[[_Builder, Event, Any], None]] = {
    catalog.StepStarted: _Builder.step_started,
    catalog.StepCompleted: _Builder.step_completed,
    catalog.StepFailed: _Builder.step_failed,
    catalog.StepCaught: _Builder.step_caught,
    catalog.StepRetried: _Builder.step_retried,
    catalog.IterationStarted: _Builder.iteration_started,
    catalog.IterationCompleted: _Builder.iteration_completed,
    catalog.OperationStarted: _Builder.operation_started,
    catalog.OperationCompleted: _Builder.operation_completed,
    catalog.OperationFailed: _Builder.operation_failed,
    catalog.PathFailed: _Builder.path_ended,
    catalog.PathCancelled: _Builder.path_ended,
    catalog.ExecutionResumed: _Builder.execution_resumed,
    catalog.ExecutionCompleted: _Builder.execution_ended,
    catalog.ExecutionFailed: _Builder.execution_ended,
    catalog.ExecutionCancelled: _Builder.execution_ended,
}


class SpanBuilder(_Builder):
    """Makes the spans of a log that grows: it takes event by event, and `changed` tells which spans that concerned."""

    def running_operation(self, operation_id: str) -> Span | None:
        """Return the span of an operation that has begun and not ended."""
        span = self._operations.get(operation_id)
        return span if span is not None and span.ended_us is None else None

    def knows_operation(self, operation_id: str) -> bool:
        """Tell whether an operation has begun."""
        return operation_id in self._operations
