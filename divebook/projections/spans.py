"""Spans of a log: periods of work, one for each visit to a step, each item of ``Each``, and each operation.

An event that a user emits (``ctx.emit``) is a span without length, so that it appears between the others.

`Spans` folds the events of a log into spans. Several events change the same span. For example, a step with one item
and one action that fails once:

    1 step_started         span 0  step       running
    2 iteration_started    span 1  item       running
    3 operation_started    span 2  operation  running
    4 operation_failed     span 2  failed
    5 iteration_failed     span 1  failed, cause 2 (the index of the failed call)
    6 step_failed          span 0  failed, cause 1

After `execution_resumed` the same step and item run again: their spans return to ``running`` with one more attempt,
and the operation gets a new span if its id is new.

This is the only such fold for readers: frames, timelines, usage, the shell's progress, live views and streamed
pipelines use these spans and therefore agree with each other. `divebook.projections.model_requests` derives the
requests to models from them. (`divebook.engine.evolve` is the fold that drives an execution.)

`Formatter` is the base class of objects that receive the steps and questions of executions while these run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from divebook.definitions.definition import Workflow, hidden_steps
from divebook.definitions.step import Each
from divebook.engine.approvals import BY_PERSON, BY_RULE
from divebook.engine.forks import Change
from divebook.engine.operations import (
    AGENT_RESPONSE,
    CACHED_RESPONSE,
    ENCLOSING,
    SIGNAL_WAIT,
    TIMER,
    TOOL_CALL,
    is_pause,
)
from divebook.events import Event, catalog
from divebook.events.event import Timed
from divebook.events.recorded import garbage_collection_paused
from divebook.questions.question import OUTCOME_UNKNOWN
from divebook.stores.history import History
from divebook.text.format import seconds
from divebook.text.redaction import one_line

Kind: TypeAlias = Literal["step", "item", "operation", "event"]
Handled: TypeAlias = Literal["", "skipped", "kept", "caught"]
"""Reaction to a failure that did not end the path: ``skipped``, ``kept`` as data or ``caught``; else empty."""


class Spans:
    """Computes the spans (visits to steps, items, operations) of an event log, one event at a time.

    Readers take the spans from `changed`, and then empty it.

    Parameters
    ----------
    for_people
        Whether to omit the steps that people do not see, such as the router of a pipeline
        (`divebook.definitions.definition.hidden_steps`), and their calls, unless they fail.

    Examples
    --------
    >>> from divebook.events import Event, catalog
    >>> spans = Spans()
    >>> spans.take(Event("event_1", "exec_1", 1, 1, catalog.StepStarted("script"), "main", "add"))
    >>> [(span.name, span.status) for span in spans.changed.values()]
    [('add', 'running')]
    """

    def __init__(self, *, for_people: bool = False) -> None:
        self._for_people = for_people
        self._hidden = frozenset[str]()
        self._entered: dict[str, Event] = {}
        """Start event of the current hidden step, by path."""
        self.changed: dict[int, Span] = {}
        """Spans that have started, ended or restarted since a reader last emptied this dictionary, by index."""
        self._count = 0
        # Later events name a path, an item or an operation, so that there is one index for each.
        self._steps: dict[str, Span] = {}
        """Current or latest step, by path."""
        self._items: dict[tuple[str, int], Span] = {}
        self._operations: dict[str, Span] = {}
        self._holders: dict[int | None, str] = {}  # those that hold others, by the events with which they began
        self._failed_calls: dict[tuple[str, int | None], Span] = {}
        """Latest failed operation, by path and item, until the next operation starts there."""
        self._retries: dict[str, dict[int | str | None, int]] = {}
        """Number of failed attempts by path, and then by item or call of the current step."""
        self._doubtful: dict[str, Span] = {}
        """Operations with unknown outcome, by the id of the open question about the outcome."""
        self._models: dict[str, str | None] = {}
        """Model of the latest request, by turn. A request records its model only if it differs from the
        previous one.
        """
        self._open: dict[str, dict[int, Span]] = {}
        """Running spans by path and index."""
        self._last_us = 0
        """Time of the latest event in microseconds since 1970."""

    def take(self, event: Event) -> None:
        """Update the spans with the next event of the log."""
        if not self._for_people or not self._is_hidden(event):
            change = self._CHANGES.get(type(event.data))
            if change is not None:
                change(self, event, event.data)
        self._last_us = event.recorded_at

    def take_log(self, log: History) -> None:
        """Update the spans with the events of a log from the store. Those that change no span are not decoded."""
        kinds = {catalog.ExecutionStarted.event_type, *(kind.event_type for kind in self._CHANGES)}
        # The time of the event before these ends the calls that ran until then.
        interrupting = {catalog.ExecutionResumed.event_type, catalog.ExecutionForked.event_type}
        for page in log.pages():
            is_needed = page.has_type(kinds)
            is_needed[:-1] |= page.has_type(interrupting)[1:]
            is_needed[-1:] = True  # the next page may begin with one of these
            for event in page.where(is_needed).events(log.execution_id):
                self.take(event)

    def _is_hidden(self, event: Event) -> bool:
        """Return whether an event belongs to a step that people do not see, such as the router of a pipeline. If such a
        step fails, it is shown after all.
        """
        # Only the events that start or fork an execution contain a definition, and they belong to no step.
        if not event.step:
            self._hidden |= hidden_steps(event.data)
        if event.step not in self._hidden:
            return False
        if isinstance(event.data, catalog.StepStarted):
            self._entered[event.path] = event
            return True
        # The failed step is shown from its start on: its start event is applied late, and the failure then passes as
        # visible.
        if event.path in self._entered and isinstance(event.data, catalog.StepFailed):
            entry = self._entered.pop(event.path)
            self._CHANGES[catalog.StepStarted](self, entry, entry.data)
        return event.path in self._entered

    def running_operation(self, operation_id: str) -> Span | None:
        """Return the span of an operation if it is running, else None."""
        span = self._operations.get(operation_id)
        return span if span is not None and span.ended_us is None else None

    def knows_operation(self, operation_id: str) -> bool:
        """Return whether the events applied so far contain the start of an operation."""
        return operation_id in self._operations

    def subject(self, event: Event) -> Span | None:
        """Return the span (operation, item or step) that an event is about; None if it is about none. The event must
        have been applied before.
        """
        # The most specific subject counts: an operation, else its item, else the step.
        operation_id = getattr(event.data, "operation_id", None)
        if operation_id in self._operations:
            return self._operations[operation_id]
        index = getattr(event.data, "iteration_index", None)
        # In a `step_failed`, the index names the item that caused the failure; the event is about the step.
        if index is not None and not isinstance(event.data, catalog.StepFailed):
            return self._items.get((event.path, index))
        return self._steps.get(event.path) if event.step else None

    def _begin(self, span: Span, event: Event) -> None:
        span.index = self._count
        self._count = self._count + 1
        self._mark_open(span)
        self._touch(span, event)

    def _touch(self, span: Span, event: Event) -> None:
        span.sequences.append(event.sequence)
        self.changed[span.index] = span

    def _mark_open(self, span: Span) -> None:
        # A span that starts again is opened again under its old index.
        self._open.setdefault(span.path, {})[span.index] = span

    def _end(self, span: Span | None, event: Event, status: str, error: str | None = None) -> None:
        if span is None:
            return
        span.status = status
        span.ended_us = event.recorded_at
        span.error = error
        if span.type == TIMER:
            self._note_sleep(span, asleep=False)
        self._touch(span, event)
        self._open.get(span.path, {}).pop(span.index, None)

    def _note_sleep(self, timer: Span, *, asleep: bool) -> None:
        if timer.path in self._steps:
            self._steps[timer.path].asleep = asleep

    def _stop_open(self, event: Event, path: str, reason: str | None = None) -> None:
        """Mark the running spans of a path as cancelled, because no later event will record their end."""
        # The list is a copy, because `_end` removes the spans from the dict.
        for span in list(self._open.get(path, {}).values()):
            self._end(span, event, catalog.CANCELLED, reason if span.kind == "step" else None)

    def _fail_items(self, event: Event) -> None:
        """Mark an item as failed if a failed call of the item made its step fail. Only old logs need this, because
        their events do not record failed items.
        """
        for span in list(self._open.get(event.path, {}).values()):
            failed = self._failed_calls.get((event.path, span.iteration)) if span.kind == "item" else None
            if failed is not None:
                self._blame(span, failed)
                self._end(span, event, catalog.FAILED, failed.error)
                if event.path in self._steps:
                    self._steps[event.path].failed_item = span.iteration

    def _step_started(self, event: Event, data: catalog.StepStarted) -> None:
        span = Span("step", event.path, event.step, data.visit, data.step_type, event.recorded_at)
        self._steps[event.path] = span
        self._retries[event.path] = {}
        self._begin(span, event)

    def _step_completed(self, event: Event, data: catalog.StepCompleted) -> None:
        step = self._steps.get(event.path)
        if step is not None:
            step.result = data.output
        self._end(step, event, catalog.COMPLETED)

    def _step_failed(self, event: Event, data: catalog.StepFailed) -> None:
        step = self._steps.get(event.path)
        if step is not None:
            step.failed_item = data.iteration_index
            item = None if data.iteration_index is None else self._items.get((event.path, data.iteration_index))
            # The failed item is the nearest cause. A step without items names the failed calls itself; old logs do not,
            # and then the latest failed call counts.
            self._blame(step, item or self._behind(event, data), data)
        self._end(self._steps.get(event.path), event, catalog.FAILED, data.error)
        self._fail_items(event)
        self._stop_open(event, event.path)

    def _behind(self, event: Event, data: catalog.StepFailed) -> Span | None:
        """Return the span of the call that caused a step to fail, the innermost one if calls contain each other. Return
        None if no call caused the failure.
        """
        calls = [self._operations[name] for name in data.operations or () if name in self._operations]
        # A call inside another one starts later, so that it has the greater index.
        return max(calls, key=lambda span: span.index, default=self._failed_calls.get((event.path, None)))

    @staticmethod
    def _blame(
        span: Span, failed: Span | None, data: catalog.StepFailed | catalog.IterationFailed | None = None
    ) -> None:
        """Set the error fields of a failed span. They are copied from the call that caused the failure (`failed`), or
        from the event that recorded the failure (`data`).
        """
        # The event has a location of its own if the code of the step or item raised the error itself, after its calls.
        # The error of an earlier call is then not the cause.
        if data is not None and (data.place or data.trace or (failed is None and data.error_names)):
            failed = None
            span.trace = data.trace
            span.place = data.place
        if failed is not None:
            span.cause = failed.index
            span.trace = failed.trace
            span.place = failed.place
            span.reason = failed.reason or failed.error
        names = data.error_names if data is not None else None
        span.error_type = next(iter(names or ()), None if failed is None else failed.error_type)

    def _step_caught(self, event: Event, _data: catalog.Payload) -> None:
        """Mark the failure of a step as caught, since its path continues at another step."""
        step = self._steps.pop(event.path, None)
        if step is not None:
            step.handled = "caught"
            self._touch(step, event)

    def _step_retried(self, event: Event, data: catalog.StepRetried) -> None:
        index = data.iteration_index
        # Attempts are counted for the whole step (index None), for an item, or for a call with a key of its own.
        self._retries.setdefault(event.path, {})[index if data.key is None else data.key] = data.attempt
        span = self._steps.get(event.path) if index is None else self._items.get((event.path, index))
        if span is not None:
            span.attempts += 1
            self._touch(span, event)

    def _iteration_started(self, event: Event, data: catalog.IterationStarted) -> None:
        key = (event.path, data.iteration_index)
        step = self._steps.get(event.path)
        earlier = self._items.get(key)
        visit = step.visit if step else 1
        # The same visit starts the item again, after a retry or a resumption. In another visit, the index means another
        # item.
        if earlier is not None and (earlier.step, earlier.visit) == (event.step, visit):
            self._begin_again(earlier, event)
            return
        type_ = step.type if step else ""
        span = Span("item", event.path, event.step, visit, type_, event.recorded_at, iteration=data.iteration_index)
        span.item = data.item
        span.item_key = data.item_key
        self._items[key] = span
        self._begin(span, event)

    def _iteration_completed(self, event: Event, data: catalog.IterationCompleted) -> None:
        span = self._items.get((event.path, data.iteration_index))
        if span is not None:
            span.result = data.result
        self._end(span, event, catalog.COMPLETED)
        if event.path in self._steps:
            self._steps[event.path].items += 1

    def _iteration_failed(self, event: Event, data: catalog.IterationFailed) -> None:
        span = self._items.get((event.path, data.iteration_index))
        # An event of a log that was cut at its beginning may belong to an item that never started here.
        if span is None:
            return
        self._blame(span, self._failed_calls.get((event.path, data.iteration_index)), data)
        span.result = data.result
        # No result: the failure ends the step. `{"skipped": true}`: the item has no row. Any other result: the failure
        # is a row of the result.
        if data.result is None:
            span.handled = ""
        else:
            span.handled = "skipped" if data.result.get("skipped") else "kept"
        self._end(span, event, catalog.FAILED, data.error)

    def _operation_started(self, event: Event, data: catalog.OperationStarted) -> None:
        """Create the span of an operation that has started. If the operation already has a span because it was retried,
        restart that span.

        The span gets the item, the containing operation, the agent and model, and the number of failed attempts before
        it.
        """
        # The code has continued after the failed call, so that this failure is not what ends the item.
        self._failed_calls.pop((event.path, data.iteration_index), None)
        if data.operation_type in ENCLOSING:
            self._holders[event.sequence] = data.operation_id
        earlier = self._operations.get(data.operation_id)
        if earlier is not None:
            earlier.type = data.operation_type  # differs for a cached response that was lost in a crash
            self._begin_again(earlier, event)
            return
        step = self._steps.get(event.path)
        visit, name = (step.visit, event.step or step.step) if step else (1, event.step)
        span = Span("operation", event.path, name, visit, data.operation_type, event.recorded_at)
        span.iteration = data.iteration_index
        span.operation_id = data.operation_id
        span.parameters = data.parameters
        span.called = data.name
        span.is_pause = is_pause(data.operation_type, data.key)
        parameters = data.parameters or {}
        span.key = data.key
        span.within = self._holders.get(data.within)
        span.setting = data.setting
        holder = self._operations.get(span.within or "")
        span.holder = -1 if holder is None else holder.index
        span.agent = parameters.get("agent")
        span.model = (data.setting or parameters).get("model")
        # A request of a turn names its model only if it differs from that of the request before it.
        if span.within is not None and span.type in (AGENT_RESPONSE, CACHED_RESPONSE):
            span.model = self._models[span.within] = span.model or self._models.get(span.within)
        # The first model call of a step is shown as the model of the step.
        if step is not None and step.model is None and span.type == AGENT_RESPONSE:
            step.agent = span.agent
            step.model = span.model
        item = None if data.iteration_index is None else self._items.get((event.path, data.iteration_index))
        if item is not None:
            span.item = item.item
            span.item_key = item.item_key
        retries = self._retries.get(event.path, {})
        # The key of a later attempt ends with its number: `fetch@2` -> `fetch`. Retries without a key belong to the
        # item.
        call = data.key.partition("@")[0] if isinstance(data.key, str) else data.iteration_index
        span.attempts += retries.get(call, retries.get(data.iteration_index, 0))
        self._operations[data.operation_id] = span
        self._begin(span, event)
        if span.type == TIMER:
            self._note_sleep(span, asleep=True)

    def _operation_completed(self, event: Event, data: catalog.OperationCompleted) -> None:
        span = self._operations.get(data.operation_id)
        if span is not None:
            span.result = data.result
            self._spend(span, data.usage)
        # A tool that failed has completed as an operation, since its failure is an answer for the model. People see it
        # as failed.
        failure = None if span is None else tool_failure(span.type, data.result)
        self._end(span, event, catalog.COMPLETED if failure is None else catalog.FAILED, failure)

    def _operation_failed(self, event: Event, data: catalog.OperationFailed) -> None:
        span = self._operations.get(data.operation_id)
        if span is not None:
            before = self._failed_calls.get((event.path, span.iteration))
            if before is not None and before.within == span.operation_id:  # what it holds has made it fail
                span.cause = before.index
                span.reason = before.reason or before.error
            self._failed_calls[event.path, span.iteration] = span
            span.trace = data.trace
            span.error_type = next(iter(data.error_names or ()), None)
            place = (data.raised or {}).get("place")
            span.place = place if isinstance(place, Mapping) else None
            self._spend(span, data.usage)
        self._end(span, event, catalog.FAILED, data.error)

    def _operations_abandoned(self, event: Event, data: catalog.OperationsAbandoned) -> None:
        for operation_id in data.operation_ids:
            self._end(self._operations.get(operation_id), event, catalog.CANCELLED)

    def _spend(self, call: Span, usage: Mapping[str, int] | None) -> None:
        """Set the token counts and the cost of a call in its span, and add them to the spans of its step and its
        item.
        """
        if not usage:
            return
        price = call.result.get(COST) if isinstance(call.result, dict) else None
        call.usage = dict(usage) if price is None else {"cost": price, **usage}  # a price of nothing is known as well
        item = None if call.iteration is None else self._items.get((call.path, call.iteration))
        for around in (self._steps.get(call.path), item):
            # A call that ends late belongs to an earlier visit, and is not added to the visit that runs then.
            if around is not None and (around.step, around.visit) == (call.step, call.visit):
                names = {**around.usage, **call.usage}
                around.usage = {name: around.usage.get(name, 0) + call.usage.get(name, 0) for name in names}

    def _event_emitted(self, event: Event, data: catalog.EventEmitted) -> None:
        step = self._steps.get(event.path)
        visit = step.visit if step else 1
        span = Span("event", event.path, event.step, visit, "event", event.recorded_at, called=data.name)
        span.parameters = {"data": data.data}
        self._begin(span, event)
        self._end(span, event, catalog.COMPLETED)

    def _path_failed(self, event: Event, _data: catalog.Payload) -> None:
        self._stop_open(event, event.path)

    def _path_cancelled(self, event: Event, data: catalog.PathCancelled) -> None:
        self._stop_open(event, event.path, data.reason)

    def _execution_ended(self, event: Event, _data: catalog.Payload) -> None:
        # `_stop_open` empties the dicts of the paths, and does not remove paths, so that no copy is needed.
        for path in self._open:
            self._stop_open(event, path)

    def _interrupt_raised(self, event: Event, data: catalog.InterruptRaised) -> None:
        """Mark the span of an operation as waiting if a person is asked whether the interrupted operation took
        effect.
        """
        span = self._operations.get(data.operation_id or "")
        if data.kind == OUTCOME_UNKNOWN and span is not None:
            self._doubtful[data.interrupt_id] = span
            self._wait(span, event)

    def _interrupt_settled(self, _event: Event, data: catalog.InterruptResolved | catalog.InterruptExpired) -> None:
        self._doubtful.pop(data.interrupt_id, None)

    def _wait(self, span: Span, event: Event) -> None:
        span.status = catalog.WAITING
        span.ended_us = None
        self._mark_open(span)
        self._touch(span, event)

    def _execution_resumed(self, event: Event, data: catalog.ExecutionResumed) -> None:
        """Update the spans for a resumption of the execution: end or restart those that were interrupted.

        Operations that ran when the process died have ended, or wait for an answer about their outcome. Steps that did
        not complete run again, unless their path stays failed.
        """
        # A resumption ends all calls of the process before it. Their last sign of life is the last event before the
        # resumption.
        for span in [span for spans in self._open.values() for span in spans.values() if span.kind == "operation"]:
            self._end(span, event, catalog.CANCELLED)
            span.ended_us = max(span.started_us, self._last_us)  # no process ran it from then on
        # Calls of unknown outcome wait for the answer of a person again.
        for span in self._doubtful.values():
            self._wait(span, event)
        if not data.keeps_failed:
            for span in self._steps.values():
                if span.status in (catalog.FAILED, catalog.CANCELLED):
                    self._go_on(span, event)

    def _execution_forked(self, event: Event, data: catalog.ExecutionForked) -> None:
        """Update the spans for a fork. Operations that were running in the source execution end, and results that the
        fork changes are set.
        """
        # The questions of the source are not answered in the fork, which asks them again.
        self._doubtful.clear()
        for span in [span for spans in self._open.values() for span in spans.values() if span.kind == "operation"]:
            self._end(span, event, catalog.CANCELLED)
            span.ended_us = max(span.started_us, self._last_us)
        # The fork gives an earlier call another result, of which the log has no `operation_completed`.
        for operation, result in Change.recorded(data).results.items():
            changed = self._operations.get(operation)
            if changed is not None:
                changed.status = catalog.COMPLETED
                changed.result = result
                changed.forget_error()

    def _go_on(self, step: Span, event: Event) -> None:
        if step.result is None:
            self._begin_again(step, event)
        else:  # only the choice of what follows it had failed
            step.status = catalog.COMPLETED
            step.forget_error()
            self._touch(step, event)

    def _begin_again(self, span: Span, event: Event) -> None:
        span.status = catalog.RUNNING
        span.ended_us = None
        span.forget_error()
        span.attempts += 1
        self._mark_open(span)
        self._touch(span, event)

    _CHANGES: ClassVar[dict[type[catalog.Payload], Callable[[Spans, Event, Any], None]]] = {
        catalog.StepStarted: _step_started,
        catalog.StepCompleted: _step_completed,
        catalog.StepFailed: _step_failed,
        catalog.StepCaught: _step_caught,
        catalog.StepRetried: _step_retried,
        catalog.IterationStarted: _iteration_started,
        catalog.IterationCompleted: _iteration_completed,
        catalog.IterationFailed: _iteration_failed,
        catalog.OperationStarted: _operation_started,
        catalog.OperationCompleted: _operation_completed,
        catalog.OperationFailed: _operation_failed,
        catalog.OperationsAbandoned: _operations_abandoned,
        catalog.EventEmitted: _event_emitted,
        catalog.InterruptRaised: _interrupt_raised,
        catalog.InterruptResolved: _interrupt_settled,
        catalog.InterruptExpired: _interrupt_settled,
        catalog.PathFailed: _path_failed,
        catalog.PathCancelled: _path_cancelled,
        catalog.ExecutionForked: _execution_forked,
        catalog.ExecutionResumed: _execution_resumed,
        catalog.ExecutionCompleted: _execution_ended,
        catalog.ExecutionFailed: _execution_ended,
        catalog.ExecutionCancelled: _execution_ended,
    }


@dataclass(slots=True)
class Span(Timed):
    """Visit to a step, item of ``Each``, operation or user event, from its first to its last event."""

    kind: Kind
    path: str
    step: str
    visit: int
    type: str
    """Type of the step or of the operation: ``prompt``, ``agent_response``, ..."""
    started_us: int
    """Start in microseconds since 1970."""
    ended_us: int | None = None
    status: str = catalog.RUNNING
    error: str | None = None
    error_type: str | None = None
    """Class name of the error."""
    reason: str | None = None
    """Error of the call that caused the failure, without the text that the steps around it added."""
    trace: str | None = None
    """Traceback with the user's lines only, without those of divebook."""
    place: Mapping[str, Any] | None = None
    """Location of the line that raised the error, with the lines around it; see `divebook.runtime.errors.place_of`."""
    cause: int = -1
    """Index of the span of the call that caused the failure; -1 if the code of the step or item itself raised the
    error.
    """
    failed_item: int | None = None
    """Index of the item of ``Each`` that caused a step to fail; None for other spans."""
    handled: Handled = ""
    iteration: int | None = None
    operation_id: str | None = None
    called: str | None = None
    """Name of the called action, agent, signal, ... of an operation; or name of an event that a user emitted."""
    attempts: int = 1
    """Number of starts. It is more than 1 after a crash, a retry or a resumption. Each attempt of a step has its own
    operations; for an operation, the number of the attempt is given.
    """
    items: int = 0
    """Number of completed items of ``Each``."""
    item: Any = None
    """Value of the item of ``Each``, for an item and for the operations in it."""
    item_key: str | None = None
    """Key of the item if ``Each`` iterates over a mapping."""
    key: str | int | None = None
    """Key of an operation, which identifies it within the step."""
    within: str | None = None
    """Id of the turn of an agent that contains the operation; None for other operations."""
    holder: int = -1
    """Index of the span of the turn that contains the operation; -1 if no turn contains it."""
    parameters: Mapping[str, Any] | None = None
    setting: Mapping[str, Any] | None = None
    """Model settings of a request in a turn that differ from those of the previous request."""
    result: Any = None
    agent: str | None = None
    model: str | None = None
    """Requested model of a model call; for a step, the model of its first model call."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """Token counts and cost of the model calls in the span. ``cost`` is missing if no price is known; empty without
    model calls.
    """
    is_pause: bool = False
    """True for the timer of a pause between two attempts."""
    asleep: bool = False
    """True for a step that waits for a timer."""
    index: int = 0
    """Position of the span in the order in which the spans of the log started."""
    sequences: list[int] = field(default_factory=list)
    """Sequence numbers of the events of the span."""

    @property
    def name(self) -> str:
        """Short name of the span: the name of the step, with the index of the item, such as ``classify[18]``."""
        return self.step if self.iteration is None else f"{self.step}[{self.iteration}]"

    @property
    def shown_status(self) -> str:
        """Status of the span for people: the status, or ``waiting`` for a step that waits for a timer."""
        return catalog.WAITING if self.asleep and self.status == catalog.RUNNING else self.status

    @property
    def duration_us(self) -> int | None:
        """Duration of the span in microseconds; None while it runs."""
        return None if self.ended_us is None else self.ended_us - self.started_us

    @property
    def headline(self) -> str:
        """Class and message of the error that caused the failure; empty if the span has no error."""
        return headline(self.error_type or "", self.reason or self.error or "")

    @property
    def is_failure(self) -> bool:
        """True for a failed item, and for a step that failed without a failed item."""
        failed = self.status == catalog.FAILED
        return failed and (self.kind == "item" or (self.kind == "step" and self.failed_item is None))

    def forget_error(self) -> None:
        """Clear all error fields of the span, because the operation, item or step runs again."""
        self.error = self.error_type = self.reason = self.trace = self.place = self.failed_item = None
        self.cause = -1
        self.handled = ""


def headline(error_type: str, message: str) -> str:
    """Return class and message of an error as one text.

    >>> headline("KeyError", "'b'"), headline("KeyError", "KeyError: 'b'"), headline("", "no such agent")
    ("KeyError: 'b'", "KeyError: 'b'", 'no such agent')
    """
    return message if not error_type or message.startswith(error_type) else f"{error_type}: {message}"


COST = "cost_nanodollars"
"""Field of a recorded model response with the cost of the call in nanodollars."""


def spans_of(events: Iterable[Event], *, for_people: bool = False) -> list[Span]:
    """Return the spans (visits to steps, items, operations) of a log, in the order in which they started. See `Spans`
    about the option `for_people`.
    """
    spans = Spans(for_people=for_people)
    with garbage_collection_paused():
        if isinstance(events, History):
            spans.take_log(events)
        else:
            for event in events:
                spans.take(event)
    # `changed` was never emptied, so it has all spans.
    return list(spans.changed.values())


DENIALS = BY_PERSON, BY_RULE
"""Prefixes of the error messages of tool calls that a person or a rule denied."""


def tool_failure(operation_type: str, result: Any) -> str | None:
    """Return the error text of a tool call whose failure was sent to the model, and is therefore recorded as a result;
    None for other operations.

    The log records such a call as completed, because it is not repeated. Its result says that the tool failed. A
    denied call did not fail.
    """
    if operation_type != TOOL_CALL or not isinstance(result, Mapping) or result.get("kind") != "tool_failed":
        return None
    message = str(result.get("message") or "the tool failed without a message")
    return None if message.startswith(DENIALS) else message


# --- labels of items of `Each`, sleeps, pauses between attempts and waits for signals ---------------------------------


PlaceOf: TypeAlias = Callable[[Span], str]
"""Function from a span to the label of its item, such as ``rows[4321]``."""

WIDTH = 60
_LONGEST_LABEL = 500
"""Number of characters of an item that are read for a label, before the label is shortened to `WIDTH`."""
MOST_NUMBER = 10**15
_LABEL_FIELDS = ("name", "id", "title", "key", "label", "path", "file", "url", "question", "text")
"""Fields of an item that can serve as its label, the best first."""
_UNKNOWN = Each()


def places_in(workflow: Workflow) -> PlaceOf:
    """Return a function from a span to the label of its item in ``Each``, such as ``rows[17]``; the label is empty
    outside ``Each``.
    """
    # Steps that the definition does not have get the default label, with the name of the step.
    loops = {step.name: step.each for step in workflow.steps if step.each is not None}

    def place_of(span: Span) -> str:
        each = loops.get(span.step, _UNKNOWN)
        index = span.iteration
        return "" if index is None else each.item_name(index, span.item_key, span.step)

    return place_of


def item_name(span: Span, place_of: PlaceOf) -> str:
    """Return a short name for the item of ``Each`` to which a span belongs, such as its field ``name``; an empty string
    outside ``Each``.

    The name is the key of the item, the item itself if it is a text or number, or the first field of `_LABEL_FIELDS`
    that a mapping has. If there is none, the label from `place_of` is returned.
    """
    if span.iteration is None:
        return ""
    # The key is the best label for an item of a mapping: `{"bonn": {...}}` -> `bonn`.
    label = span.item if span.item_key is None else span.item_key
    if isinstance(label, Mapping):
        fields = [label[key] for key in _LABEL_FIELDS if isinstance(label.get(key), str | int) and label[key] != ""]
        label = fields[0] if fields else None
    text = ""
    if isinstance(label, str):
        # Long texts are cut before they are cleaned, because cleaning reads every character.
        text = label[:_LONGEST_LABEL]
    elif _is_short(label):
        text = str(label)
    return one_line(text, WIDTH) or one_line(place_of(span), WIDTH)


def _is_short(number: object) -> bool:
    """Return whether a value is a number with few digits, so that it can label an item. Some long integers cannot even
    be formatted.
    """
    return isinstance(number, int | float) and abs(number) < MOST_NUMBER


def sleep_name(span: Span) -> str | None:
    """Return a label for an operation that waits for a timer or a signal; None for other operations.

    ``sleep 5 min 00 s``, ``2.0 s before attempt 3``, ``signal 'approved', at most 1 h 00 min``.
    """
    parameters = span.parameters or {}
    time = seconds(parameters["seconds"]) if _is_short(parameters.get("seconds")) else ""
    if span.type == SIGNAL_WAIT:
        return f"signal {str(parameters.get('signal', ''))!r}" + (f", at most {time}" if time else "")
    if span.type != TIMER:
        return None
    if not span.is_pause:
        return f"sleep {time}".strip()
    # The key of a pause ends with the number of failed attempts: `...-2` is the pause before attempt 3.
    failures = str(span.key).rpartition("-")[2]
    return f"{time or 'a pause'} before attempt {int(failures) + 1}"


# --- formatters -------------------------------------------------------------------------------------------------------

# Formatters: objects whose methods are called while executions run, for each step that starts or ends and for each
# question.
#
# `Steps` finds the steps that start or end with an event. `Formatting` passes them to a user's formatter; the progress
# of the shell (`divebook.cli.progress`) uses `Steps` directly.


class Formatter:
    """Base class for objects that receive the progress of executions. Override the methods for the events that you
    need.

    ``Environment(formatter=...)`` calls the methods for each execution that this process records, in the order of the
    logs, after the events are in the store. The methods are called on the engine's thread, so they must return quickly.
    Exceptions are logged and do not affect the execution. A step with `Each` is one step. In a pipeline only the stages
    are steps.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> class Lines(Formatter):
    ...     def step_started(self, step):
    ...         print("begins", step.step, step.type)
    ...     def step_output(self, step, output):
    ...         print("ends", step.step, output)
    >>> environment = Environment(store="memory:", formatter=Lines())
    >>> _ = environment.start(Workflow("sum", [Step("add", script="1 + 1")])).wait()
    begins add script
    ends add 2
    """

    def step_started(self, step: Span) -> None:
        """Receive a step that has started, with its name, type and path."""

    def step_output(self, step: Span, output: str) -> None:
        """Receive a step that has completed; `output` is its result as text."""

    def step_error(self, step: Span, error: str) -> None:
        """Receive a step that was cancelled, or that has failed and is not attempted again."""

    def question(self, run_id: str, question: catalog.InterruptRaised) -> None:
        """Receive a new question to a person."""


class Steps:
    """Keeps track of the running steps of several executions. The events of each execution must be applied in the order
    of its log.
    """

    def __init__(self) -> None:
        self.open: dict[tuple[str, str], Span] = {}
        """Running steps by execution and path, oldest first."""
        self._spans: dict[str, Spans] = {}

    def see(self, event: Event) -> Span | None:
        """Apply the next event of an execution. Return the step that has started or ended with this event, or None."""
        # An event without an operation type passes because of the default. Timers pass, because a step with a timer is
        # shown as waiting.
        if getattr(event.data, "operation_type", TIMER) != TIMER:
            return None  # what is not shown need not be remembered
        spans = self._spans.setdefault(event.execution_id, Spans(for_people=True))
        spans.take(event)
        changed = spans.changed.values()
        # `changed` is emptied, so that it has only the spans of one event.
        spans.changed = {}
        return next((span for span in changed if span.kind == "step" and self._has_moved(event, span)), None)

    def _has_moved(self, event: Event, span: Span) -> bool:
        # A path is in one step at a time, so that the path identifies the step.
        place = (event.execution_id, span.path)
        if span.ended_us is None:
            # A step that started again after a retry is still the same step for a formatter.
            was_open = place in self.open
            self.open[place] = span
            return not was_open
        # The end of a step that was not open has been reported before.
        return self.open.pop(place, None) is not None


class Formatting:
    """Subscriber to a store that calls the methods of a formatter for each step and question."""

    def __init__(self, formatter: Formatter) -> None:
        self._formatter = formatter
        self._steps = Steps()

    def __call__(self, execution_id: str, events: Sequence[Event]) -> None:
        """Call the methods of the formatter for the steps and questions in new events of an execution."""
        for event in events:
            if isinstance(event.data, catalog.InterruptRaised):
                self._formatter.question(execution_id, event.data)
            step = self._steps.see(event)
            if step is not None:
                self._pass_on(step)

    def _pass_on(self, step: Span) -> None:
        if step.ended_us is None:
            self._formatter.step_started(step)
        elif step.status == catalog.COMPLETED:
            self._formatter.step_output(step, str(step.result or ""))
        else:
            self._formatter.step_error(step, step.headline or step.status)


__all__ = ["Span", "Spans", "spans_of"]
