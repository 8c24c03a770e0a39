"""DataFrames of the model requests, messages, tool calls and costs of agents, with fixed columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import pandas as pd

from divebook.analysis.columns import ANYTHING, CONSUMED, COUNT, NUMBER, TEXT, TIMES, Column, Columns, documented, frame
from divebook.analysis.log import FAILED
from divebook.events import Event
from divebook.projections.model_requests import (
    CallMessage,
    RequestView,
    ToolCallView,
    requests_in,
    requests_of,
    tool_calls_in,
)
from divebook.projections.spans import Span, spans_of

By: TypeAlias = Literal["agent", "model", "tool", "step"]
FREE: Mapping[str, int] = {"cost": 0}
"""Consumption of a response from an agent's cache: its cost is known to be 0."""

_WHERE: Columns = {
    "path": Column(TEXT, "path of the call", "span.path"),
    "step": Column(TEXT, "step of the call", "span.step"),
    "iteration": Column(NUMBER, "index of the item of `Each`", "span.iteration"),
}


def _of_span(columns: Columns) -> Columns:
    """Convert column definitions for rows that are spans to definitions for rows that have a span as attribute
    `span`.
    """

    def value(name: str, column: Column) -> Callable[[Any], Any]:
        # A function of the span, or the name of an attribute of the span.
        if callable(column.value):
            value_of = column.value
            return lambda row: value_of(row.span)
        return lambda row: getattr(row.span, str(column.value) or name)

    return {name: column._replace(value=value(name, column)) for name, column in columns.items()}


class _MessageRow(NamedTuple):
    """Row of `messages_frame`: one message, and the model request that contains it."""

    view: RequestView
    message: CallMessage

    @property
    def span(self) -> Span:
        return self.view.span

    @property
    def tool(self) -> str | None:
        return _first(self.message, "tool_result", "tool")


def _first(message: CallMessage, kind: str, name: str) -> str | None:
    return next((block[name] for block in message.content if block.get("type") == kind), None)


MESSAGE_COLUMNS: Columns = {
    "operation_id": Column(TEXT, "id of the request", "span.operation_id"),
    "agent": Column(TEXT, "agent that made the request", "view.agent"),
    "model": Column(TEXT, "requested model", "view.model"),
    **_WHERE,
    "request": Column(COUNT, "number of the request in its turn, from 1", "view.n"),
    "role": Column(TEXT, "``system``, ``user``, ``assistant`` or ``tool``", "message.role"),
    "tool": Column(TEXT, "name of the tool, for messages of tools"),
    "text": Column(TEXT, "text of the message; for a tool its result", "message.text"),
    "content": Column(
        ANYTHING, "blocks of the message: text, thinking, tool_call, tool_result, images, documents", "message.content"
    ),
}


@documented(MESSAGE_COLUMNS)
def messages_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return one row per message of each model request and its response.

    A message that was sent in several requests has several rows.

    `divebook.Run.conversation` has each message once.
    """
    return frame(MESSAGE_COLUMNS, [_MessageRow(view, message) for view in requests_of(events) for message in view.said])


def _response_field(name: str) -> Callable[[RequestView], Any]:
    return lambda view: (view.response or {}).get(name)


def _text(view: RequestView) -> str | None:
    # The last message of the assistant is the response, if there is one; earlier ones are part of the request.
    answers = [message.text for message in view.said if message.role == "assistant"]
    return answers[-1] if answers and view.response is not None else None


class _UsageRow(NamedTuple):
    usage: Mapping[str, int]


def _of_request(column: Column) -> Column:
    """Convert the definition of a column of tokens or cost for rows that are spans to a definition for rows that are
    model requests. A request answered from a cache counts as free.
    """
    value_of = cast("Callable[[Any], Any]", column.value)
    return column._replace(
        # Columns of spans read `row.usage`, so that the row of a request only needs this attribute.
        value=lambda view: value_of(_UsageRow(FREE if view.cached and not view.usage else view.usage))
    )


MODEL_CALL_COLUMNS: Columns = {
    "operation_id": Column(TEXT, "id of the call: equal for the same place in every execution", "span.operation_id"),
    "agent": Column(TEXT, "agent that made the request"),
    "model": Column(TEXT, "requested model"),
    "answered_by": Column(TEXT, "model that answered, as named by its provider", _response_field("model_name")),
    **_WHERE,
    "request": Column(COUNT, "number of the request in its turn, from 1", "n"),
    "status": Column(TEXT, "``running``, ``completed``, ``failed``, ``cancelled``"),
    "cached": Column("bool", "true if the answer came from the agent's cache, so that no model was called"),
    "finish_reason": Column(TEXT, "reason why the model stopped", _response_field("finish_reason")),
    "attempts": Column(COUNT, "number of the attempt", "span.attempts"),
    **_of_span(TIMES),
    **{name: _of_request(column) for name, column in CONSUMED.items()},
    **_of_span({name: column for name, column in FAILED.items() if name != "traceback"}),
    "messages": Column(COUNT, "number of messages that were sent", lambda view: len(view.messages)),
    "tools": Column(
        ANYTHING, "names of the tools that the model could call", lambda view: [tool["name"] for tool in view.tools]
    ),
    "text": Column(TEXT, "text of the answer", _text),
}


@documented(MODEL_CALL_COLUMNS)
def model_calls_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return one row per model request, in the order in which the requests started.

    `divebook.Run.requests` has the complete requests, with exactly the messages that were sent.
    """
    return frame(MODEL_CALL_COLUMNS, requests_of(events))


def _of_call(columns: Columns) -> Columns:
    """Convert column definitions for rows that are spans to definitions for rows that are tool calls. For a tool call
    that never started, the values are missing.
    """

    def value(column: Column) -> Callable[[Any], Any]:
        value_of = cast("Callable[[Any], Any]", column.value)
        # `_Row` has the attribute `span`, which `_of_span` expects.
        return lambda call: None if call.under_way is None else value_of(_Row(call.under_way))

    return {name: column._replace(value=value(column)) for name, column in _of_span(columns).items()}


class _Row(NamedTuple):
    span: Span


def _spent(column: Column) -> Column:
    # "input tokens of model calls" -> "input tokens of delegated model calls".
    meaning = column.meaning.replace("model calls", "delegated model calls")
    return column._replace(meaning=meaning if "delegated" in meaning else f"{meaning}, of delegated model calls")


TOOL_CALL_COLUMNS: Columns = {
    "operation_id": Column(
        TEXT,
        "id of the call; missing if the call has not started or was denied",
        lambda call: None if call.under_way is None else call.under_way.operation_id,
    ),
    "tool": Column(TEXT, "name of the tool"),
    "arguments": Column(ANYTHING, "arguments of the call, after changes by a person"),
    "outcome": Column(
        TEXT,
        "``returned``; ``failed``: the model got an error; ``denied``; ``retry``: the model was asked to try again "
        "(unknown tool, invalid arguments); ``unknown``: the call may have taken effect, and a person is asked",
        lambda call: call.outcome or None,
    ),
    "result": Column(ANYTHING, "result of the tool, or the text that the model got instead"),
    "status": Column(TEXT, "``waiting``, ``running``, ``completed``, ``failed``, ``cancelled``"),
    "agent": Column(TEXT, "agent that called the tool"),
    "server": Column(TEXT, "MCP server of the tool; missing for functions"),
    "path": Column(TEXT, "path of the call", "view.span.path"),
    "step": Column(TEXT, "step of the call", "view.span.step"),
    "iteration": Column(NUMBER, "index of the item of `Each`", "view.span.iteration"),
    "request": Column(COUNT, "number of the model request whose response contains the call"),
    **_of_call({"attempts": Column(NUMBER, "number of the attempt"), **TIMES}),
    **{name: _spent(column) for name, column in CONSUMED.items()},
    **_of_call(FAILED),
}


@documented(TOOL_CALL_COLUMNS)
def tool_calls_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return one row per tool call that a model requested, in the order of the requests.

    A tool itself costs nothing. The cost is the cost of the agents to which the tool call delegated work.
    """
    return frame(TOOL_CALL_COLUMNS, tool_calls_in(spans_of(events)))


# --- costs ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _UsageSum:
    """Total consumption (tokens and cost) of one agent, model, tool or step."""

    name: str
    requests: int = 0
    cached: int = 0
    calls: int = 0
    amounts: dict[str, int] = field(default_factory=dict)

    @property
    def usage(self) -> Mapping[str, int]:
        """Total tokens and cost of the model requests; an empty mapping if there were no requests. If all responses
        came from a cache, it contains only a cost of 0.
        """
        return self.amounts or (FREE if self.cached and not self.requests else {})

    def add(self, usage: Mapping[str, int]) -> None:
        self.amounts = {name: self.amounts.get(name, 0) + usage.get(name, 0) for name in {**self.amounts, **usage}}


COST_COLUMNS: Columns = {
    "name": Column(TEXT, "agent, model, tool or step"),
    "requests": Column(COUNT, "requests to models; missing for tools"),
    "cached": Column(COUNT, "answers from a cache, without cost"),
    "calls": Column(COUNT, "tool calls; missing for models"),
    **CONSUMED,
}


@documented(COST_COLUMNS)
def costs_frame(events: Iterable[Event], by: By = "agent", after: int = 0) -> pd.DataFrame:
    """Return one row with the total tokens and cost of each agent, model, tool or step, the most expensive first.

    Operations that started at or before event `after` are left out. The cost of a tool is the cost of the agents to
    which its calls delegated work; the rows of these agents contain this cost too.
    """
    spans = spans_of(events)
    sums: dict[str, _UsageSum] = {}

    def of(name: str | None) -> _UsageSum:
        return sums.setdefault(name or "", _UsageSum(name or ""))

    # A tool makes no requests, and a model calls no tools.
    for view in _began_after(after, requests_in(spans)) if by != "tool" else ():
        # Any other choice than an agent or a step is the model.
        _count(of({"agent": view.agent, "step": view.span.step}.get(by, view.model)), view)
    # The request that asked for a call decides whether the call is of the fork or of its source.
    calls = [call for call in tool_calls_in(spans) if call.view.span.sequences[0] > after] if by != "model" else ()
    for call in calls:
        name = {"agent": call.agent, "step": call.view.span.step}.get(by, call.tool)
        _count_call(of(name), call, is_tool=by == "tool")
    # The sort is stable: rows with equal cost stay in the order of their first request.
    return frame(COST_COLUMNS, sorted(sums.values(), key=lambda one: -one.amounts.get("cost", 0)))


@dataclass(slots=True)
class ModelSum(_UsageSum):
    """Total consumption (tokens and cost) of one model by one agent."""

    model: str = ""

    @property
    def agent(self) -> str:
        """Name of the agent that called the model; an empty string if the agent is not known."""
        return self.name


def sums_by_model(events: Iterable[Event], after: int = 0) -> list[ModelSum]:
    """Return the total consumption of each pair of agent and model in a log, in the order of their first requests.

    Requests that started up to event number `after` are not included.
    """
    sums: dict[tuple[str, str], ModelSum] = {}
    for view in _began_after(after, requests_of(events)):
        # Empty texts stand for an unknown agent or model, so that all rows have a key.
        agent = view.agent or ""
        model = view.model or ""
        _count(sums.setdefault((agent, model), ModelSum(agent, model=model)), view)
    return list(sums.values())


def _began_after(sequence: int, views: Iterable[RequestView]) -> Iterable[RequestView]:
    return [view for view in views if view.span.sequences[0] > sequence]


def _count(total: _UsageSum, view: RequestView) -> None:
    total.requests += not view.cached
    total.cached += view.cached
    total.add(view.usage)


def _count_call(total: _UsageSum, call: ToolCallView, *, is_tool: bool) -> None:
    total.calls += 1
    # The cost of other rows is that of their requests; adding the calls would count it twice.
    if is_tool:
        total.add(call.usage)
