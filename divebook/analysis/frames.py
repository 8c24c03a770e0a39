"""A log as DataFrames: one row per event, operation, item or visit to a step, in fixed columns.

An empty frame has the same columns and dtypes as a full one; `divebook.analysis.columns` says what is missing how.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pandas as pd

from divebook.analysis.columns import (
    ANYTHING,
    CONSUMED,
    COUNT,
    MOMENT,
    NUMBER,
    SPAN,
    TEXT,
    TIMES,
    consumed,
    frame,
    moment,
    times,
)
from divebook.engine.operations import AGENT_RESPONSE
from divebook.engine.state import PathState
from divebook.events import Event, catalog
from divebook.history.spans import Span, Spans, spans_of

EVENT_COLUMNS = {
    "sequence": COUNT,
    "timestamp": MOMENT,
    "type": TEXT,
    "name": TEXT,
    "path": TEXT,
    "step": TEXT,
    "iteration": NUMBER,
    "item": ANYTHING,
    "operation_id": TEXT,
    "operation_type": TEXT,
    "agent": TEXT,
    "model": TEXT,
    "attempts": NUMBER,
    "duration": SPAN,
    **CONSUMED,
    "error_type": TEXT,
    "error": TEXT,
    "traceback": TEXT,
    "data": ANYTHING,
}
OPERATION_COLUMNS = {
    "operation_id": TEXT,
    "type": TEXT,
    "name": TEXT,
    "agent": TEXT,
    "model": TEXT,
    "path": TEXT,
    "step": TEXT,
    "visit": COUNT,
    "iteration": NUMBER,
    "item": ANYTHING,
    "status": TEXT,
    "attempts": COUNT,
    **TIMES,
    **CONSUMED,
    "error_type": TEXT,
    "error": TEXT,
    "traceback": TEXT,
    "parameters": ANYTHING,
    "result": ANYTHING,
}
ITEM_COLUMNS = {
    "step": TEXT,
    "path": TEXT,
    "visit": COUNT,
    "iteration": COUNT,
    "key": TEXT,
    "item": ANYTHING,
    "status": TEXT,
    "attempts": COUNT,
    **TIMES,
    **CONSUMED,
    "error_type": TEXT,
    "error": TEXT,
    "traceback": TEXT,
    "result": ANYTHING,
}
STEP_COLUMNS = {
    "step": TEXT,
    "type": TEXT,
    "agent": TEXT,
    "model": TEXT,
    "path": TEXT,
    "visit": COUNT,
    "status": TEXT,
    "attempts": COUNT,
    "items": COUNT,
    **TIMES,
    **CONSUMED,
    "output": TEXT,
    "error": TEXT,
    "traceback": TEXT,
}
PATH_COLUMNS = {"path": TEXT, "parent": TEXT, "status": TEXT, "step": TEXT, **TIMES, "error": TEXT}


def events_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return a log with one row per event, oldest first.

    ==================  ===================  ====================================================================
    column              dtype                content
    ==================  ===================  ====================================================================
    sequence            int64                1, 2, 3 ... without gaps
    timestamp           datetime64[us, UTC]  when it was recorded
    type                str                  ``step_started``, ``operation_completed`` ...
    name                str                  what an operation calls; how a person's own event is named
    path                str                  line of progress, such as ``main-1-2``
    step                str                  step of the workflow
    iteration           Int64                index of the item of `Each`
    item                object               the item
    operation_id        str                  operation it belongs to
    operation_type      str                  ``agent_response``, ``action_execution`` ...
    agent, model        str                  of model calls
    attempts            Int64                how often what it is about had been begun by then
    duration            timedelta64[us]      on ``*_completed``, ``*_failed``, ``*_cancelled``: time since its start
    input_tokens        Int64                on the end of model calls only, so that it can be summed
    output_tokens       Int64                same
    cache_read_tokens   Int64                of the input tokens, those that the provider had kept
    cache_write_tokens  Int64                of the input tokens, those that it keeps for later
    cost                float64              US dollars; missing where no price is known
    error_type          str                  class of the error of an operation
    error               str                  why it failed
    traceback           str                  where in a person's code that was
    data                object               the whole payload, a dict
    ==================  ===================  ====================================================================
    """
    spans, began = Spans(), dict[str, int]()
    return frame(EVENT_COLUMNS, [_event_row(event, spans, began) for event in events])


def _event_row(event: Event, spans: Spans, began: dict[str, int]) -> tuple[Any, ...]:
    spans.take(event)
    span, data = spans.subject(event), event.data.to_data()
    is_outcome = isinstance(event.data, catalog.OperationCompleted | catalog.OperationFailed)
    return (
        event.sequence,
        event.timestamp,
        event.event_type,
        data.get("name") or (None if span is None else span.called),
        event.path or None,
        event.step or None,
        data.get("iteration_index") if span is None else span.iteration,
        None if span is None else span.item,
        data.get("operation_id"),
        data.get("operation_type"),
        *(_caller(span) if span is not None else (None, None)),
        None if span is None else span.attempts,
        _duration(event, span, began),
        *(consumed(_usage(span)) if is_outcome and span is not None else consumed(None)),
        next(iter(data.get("error_names") or ()), None),
        data.get("error"),
        data.get("trace"),
        data,
    )


def _duration(event: Event, span: Span | None, began: dict[str, int]) -> timedelta | None:
    """Return the time between an event and the start of what it ends; None if it ends nothing."""
    if isinstance(event.data, catalog.OperationCompleted | catalog.OperationFailed):
        return timedelta(microseconds=event.data.duration / 1000)
    subject, _, change = event.event_type.rpartition("_")
    if change not in ("started", "completed", "failed", "cancelled"):
        return None
    if subject not in ("execution", "path"):
        took = None if span is None or change == "started" else span.duration_us
        return None if took is None else timedelta(microseconds=took)
    start = began.setdefault(event.path, event.recorded_at)
    return None if change == "started" else timedelta(microseconds=event.recorded_at - start)


def operations_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return one row per operation (model call, action, script ...) of a log, in the order in which they began.

    The pauses before further attempts at one are left out: `attempts` counts these, and the events have the pauses.

    ==================  ===================  ====================================================================
    column              dtype                content
    ==================  ===================  ====================================================================
    operation_id        str                  the same for the same place in every execution of the workflow
    type                str                  ``agent_response``, ``action_execution``, ``script_execution`` ...
    name                str                  what is called: the action, the agent, the signal ...
    agent, model        str                  of model calls
    path, step          str                  where
    visit               int64                how often this path had entered the step
    iteration           Int64                index of the item of `Each`
    item                object               the item
    status              str                  ``running``, ``completed``, ``failed``, ``cancelled``
    attempts            int64                which attempt it was; every attempt that was recorded has its row
    started, ended      datetime64[us, UTC]  when
    duration            timedelta64[us]      from the first start to the end
    input_tokens        Int64                model calls only
    output_tokens       Int64                same
    cache_read_tokens   Int64                of the input tokens, those that the provider had kept
    cache_write_tokens  Int64                of the input tokens, those that it keeps for later
    cost                float64              US dollars; missing where no price is known
    error_type          str                  class of the error
    error               str                  why it failed
    traceback           str                  where in a person's code that was
    parameters          object               what it was asked, a dict
    result              object               what it returned
    ==================  ===================  ====================================================================
    """
    calls = [span for span in spans_of(events) if span.kind == "operation" and not span.is_pause]
    return frame(OPERATION_COLUMNS, [_operation_row(span) for span in calls])


def _operation_row(span: Span) -> tuple[Any, ...]:
    asked = None if span.parameters is None else dict(span.parameters)
    place = (span.path, span.step, span.visit, span.iteration, span.item)
    head = (span.operation_id, span.type, span.called, *_caller(span), *place, span.status, span.attempts)
    return (*head, *_times(span), *consumed(_usage(span)), span.error_type, span.error, span.trace, asked, span.result)


def items_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return one row per item of `Each`, in the order in which they began.

    ==================  ===================  ====================================================================
    column              dtype                content
    ==================  ===================  ====================================================================
    step, path          str                  where
    visit               int64                how often this path had entered the step
    iteration           int64                index of the item
    key                 str                  its key, where `Each` goes through a mapping
    item                object               the item
    status              str                  ``running``, ``completed``, ``failed``, ``cancelled``
    attempts            int64                how often it was begun
    started, ended      datetime64[us, UTC]  when
    duration            timedelta64[us]      time between them
    input_tokens        Int64                of its model calls
    output_tokens       Int64                same
    cache_read_tokens   Int64                of the input tokens, those that the provider had kept
    cache_write_tokens  Int64                of the input tokens, those that it keeps for later
    cost                float64              US dollars, as far as prices are known
    error_type          str                  class of the error
    error               str                  why it failed
    traceback           str                  where in a person's code that was
    result              object               what came of it
    ==================  ===================  ====================================================================
    """
    return frame(ITEM_COLUMNS, [_item_row(span, calls) for span, calls in _with_calls(events, "item")])


def _item_row(span: Span, calls: list[Span]) -> tuple[Any, ...]:
    place = (span.step, span.path, span.visit, span.iteration, span.item_key, span.item)
    spent = consumed(_sum(calls))
    return (
        *place,
        span.status,
        span.attempts,
        *_times(span),
        *spent,
        span.error_type,
        span.error,
        span.trace,
        span.result,
    )


def steps_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return one row per visit to a step, in the order in which they began.

    ==================  ===================  ====================================================================
    column              dtype                content
    ==================  ===================  ====================================================================
    step, type          str                  its name; ``prompt``, ``action``, ``script``, ``wait``
    agent, model        str                  of its first model call
    path                str                  line of progress that entered it
    visit               int64                how often this path had entered it
    status              str                  ``running``, ``completed``, ``failed``, ``cancelled``
    attempts            int64                how often it was begun
    items               int64                items of `Each` that are done
    started, ended      datetime64[us, UTC]  when
    duration            timedelta64[us]      time between them
    input_tokens        Int64                of its model calls
    output_tokens       Int64                same
    cache_read_tokens   Int64                of the input tokens, those that the provider had kept
    cache_write_tokens  Int64                of the input tokens, those that it keeps for later
    cost                float64              US dollars, as far as prices are known
    output              str                  its text
    error               str                  why it failed or was cancelled
    traceback           str                  where in a person's code that was
    ==================  ===================  ====================================================================
    """
    return frame(STEP_COLUMNS, [_step_row(span, calls) for span, calls in _with_calls(events, "step")])


def _step_row(span: Span, calls: list[Span]) -> tuple[Any, ...]:
    caller = _caller(calls[0]) if calls else (None, None)
    head = (span.step, span.type, *caller, span.path, span.visit, span.status, span.attempts, span.items)
    return (*head, *_times(span), *consumed(_sum(calls)), span.result, span.error, span.trace)


def _with_calls(events: Iterable[Event], kind: str) -> Iterator[tuple[Span, list[Span]]]:
    """Yield the spans of a kind, each with the model calls in it."""
    spans = spans_of(events)
    calls: dict[tuple[Any, ...], list[Span]] = {}

    def place(span: Span) -> tuple[Any, ...]:
        return span.path, span.step, span.visit, span.iteration if kind == "item" else None

    for span in spans:
        if span.kind == "operation" and (span.usage or span.type == AGENT_RESPONSE):
            calls.setdefault(place(span), []).append(span)
    yield from ((span, calls.get(place(span), [])) for span in spans if span.kind == kind)


def _caller(span: Span) -> tuple[str | None, str | None]:
    """Return the agent and the model of a model call."""
    given = span.parameters or {}
    return given.get("agent"), given.get("model")


def _usage(span: Span) -> dict[str, int]:
    """Return what a call consumed; a cost of nothing is told apart from an unknown one by its result."""
    known = span.result.get("cost_nanodollars") if isinstance(span.result, dict) else None
    return {"cost": known, **span.usage} if known is not None and span.usage else dict(span.usage)


def _sum(calls: Iterable[Span]) -> dict[str, int]:
    total: dict[str, int] = {}
    for name, value in (entry for call in calls for entry in _usage(call).items()):
        total[name] = total.get(name, 0) + value
    return total


def _times(span: Span) -> tuple[Any, ...]:
    return times(moment(span.started_us), moment(span.ended_us))


def paths_frame(paths: Iterable[PathState]) -> pd.DataFrame:
    """Return one row per path.

    ==============  ===================  ====================================================================
    column          dtype                content
    ==============  ===================  ====================================================================
    path, parent    str                  its id; the id of the path it branched off
    status          str                  ``running``, ``completed``, ``failed``, ``cancelled`` ...
    step            str                  where it is, or ended
    started, ended  datetime64[us, UTC]  when
    duration        timedelta64[us]      time between them
    error           str                  why it failed or was cancelled
    ==============  ===================  ====================================================================
    """
    rows = [(p.id, p.parent, p.status, p.current_step, *times(p.started_at, p.ended_at), p.error) for p in paths]
    return frame(PATH_COLUMNS, rows)
