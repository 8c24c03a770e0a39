"""Import of runs from files: exports of divebook and of the legacy system, pydantic-ai message histories, and
OpenTelemetry traces.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from divebook.agents.imported_log import (
    AGENT,
    ImportedCall,
    ImportedRequest,
    ImportedTurn,
    arguments_of,
    is_history,
    log_of,
    moment,
    turns_in,
)
from divebook.errors import InvalidEventError, StoreError
from divebook.store import transfer
from divebook.store.embedded import LogFile

# --- OpenTelemetry traces -----------------------------------------------------------------------------------------
# Spans with the GenAI conventions become turns of agents. They come as OTLP JSON (``resourceSpans``) or in the form of
# the Python SDK. The attributes are ``gen_ai.operation.name`` (chat, invoke_agent, execute_tool),
# ``gen_ai.input.messages``, ``gen_ai.output.messages``, ``gen_ai.usage.*`` and ``gen_ai.tool.call.*``. If the tracer
# omitted contents, the turns have no texts, but times, models, tokens and tools.
# (https://opentelemetry.io/docs/specs/semconv/gen-ai/)


_CHATS = frozenset({"chat", "generate_content", "text_completion"})
_AGENTS = frozenset({"invoke_agent", "create_agent", "invoke_workflow"})
_TOOL = "execute_tool"
_USAGE = {
    "gen_ai.usage.input_tokens": "input_tokens",
    "gen_ai.usage.prompt_tokens": "input_tokens",
    "gen_ai.usage.output_tokens": "output_tokens",
    "gen_ai.usage.completion_tokens": "output_tokens",
    "gen_ai.usage.cache_read.input_tokens": "cache_read_tokens",
    "gen_ai.usage.cache_creation.input_tokens": "cache_write_tokens",
}
_SETTINGS = ("temperature", "top_p", "top_k", "max_tokens", "frequency_penalty", "presence_penalty", "seed")


@dataclass(slots=True)
class _Span:
    """OpenTelemetry span with the spans that it contains. Times are microseconds since 1970."""

    id: str
    parent: str
    name: str
    began: int
    ended: int
    attributes: Mapping[str, Any]
    """Attributes."""
    error: str | None
    inner: list[_Span] = field(default_factory=list)

    @property
    def does(self) -> str:
        return str(self.attributes.get("gen_ai.operation.name", ""))


def is_trace(data: Any) -> bool:
    """Return True if parsed JSON data are OpenTelemetry spans, one or many."""
    if isinstance(data, Mapping):
        return "resourceSpans" in data or _is_span(data)
    return isinstance(data, list) and bool(data) and all(isinstance(item, Mapping) and is_trace(item) for item in data)


def _is_span(data: Mapping[str, Any]) -> bool:
    return isinstance(data.get("attributes"), Mapping | list) and ("context" in data or "spanId" in data)


def turns_of(data: Any, name: str) -> list[ImportedTurn]:
    """Convert the spans of an OpenTelemetry trace to agent turns. A model request outside of an agent's span becomes a
    turn of its own.

    Raises `InvalidEventError`, with the file name `name`, if no span is a model request.
    """
    spans = {span.id: span for span in _spans(data)}
    roots: list[_Span] = []
    for span in spans.values():
        parent = spans.get(span.parent)
        (roots if parent is None else parent.inner).append(span)
    turns = list(_turns(sorted(roots, key=lambda span: span.began)))
    if not turns:
        raise InvalidEventError(
            f"{name} has {len(spans)} spans, and none says gen_ai.operation.name: chat; export the spans of the models"
        )
    return turns


def _turns(spans: Sequence[_Span]) -> Iterator[ImportedTurn]:
    for span in spans:
        inner = sorted(span.inner, key=lambda child: child.began)
        if span.does in _AGENTS and any(child.does in _CHATS for child in _all(inner)):
            yield _turn(span, inner)
        elif span.does in _CHATS:
            yield _turn(span, [span])
        else:
            yield from _turns(inner)


def _all(spans: Sequence[_Span]) -> Iterator[_Span]:
    """Yield spans and the spans that they contain, at any depth. Spans inside the span of another agent are left out,
    because they belong to that agent's turn.
    """
    for span in spans:
        yield span
        if span.does not in _AGENTS:
            yield from _all(sorted(span.inner, key=lambda child: child.began))


def _turn(span: _Span, inner: Sequence[_Span]) -> ImportedTurn:
    tools = [inner_span for inner_span in _all(inner) if inner_span.does == _TOOL]
    requests = [_request(inner_span) for inner_span in _all(inner) if inner_span.does in _CHATS]
    for request, following in zip(requests, [*requests[1:], None], strict=True):
        until = following.began if following is not None else None
        request.calls = _calls(request.response, tools, until)
    first = requests[0]
    agent = span.attributes.get("gen_ai.agent.name") or AGENT
    turn = ImportedTurn(str(agent), _first_prompt(first), requests, error=span.error)
    last = requests[-1].response or {}
    texts = [str(part["content"]) for part in last.get("parts", ()) if part.get("part_kind") == "text"]
    turn.output = "\n\n".join(texts) or None
    turn.has_ended = not any(not call.has_ended for call in requests[-1].calls)
    return turn


def _request(span: _Span) -> ImportedRequest:
    attributes = span.attributes
    # A span without contents still has times, models, tokens and tools. All its texts are then empty.
    messages = [*_system(attributes), *_messages(attributes.get("gen_ai.input.messages"))]
    responses = _messages(attributes.get("gen_ai.output.messages"), "response")
    usage: dict[str, int] = {}
    for attribute, token_kind in _USAGE.items():
        if type(attributes.get(attribute)) is int:
            usage[token_kind] = attributes[attribute]
    model = attributes.get("gen_ai.response.model") or attributes.get("gen_ai.request.model")
    parts = [part for message in responses for part in message["parts"]]
    response = {"parts": parts, "usage": usage, "model_name": model, "kind": "response"}
    reasons = attributes.get("gen_ai.response.finish_reasons")
    if isinstance(reasons, list) and reasons:
        response["finish_reason"] = str(reasons[0])
    settings: dict[str, Any] = {}
    for name in _SETTINGS:
        value = attributes.get(f"gen_ai.request.{name}")
        if value is not None:
            settings[name] = value
    return ImportedRequest(
        messages,
        None if span.error is not None else response,
        error=span.error,
        model=attributes.get("gen_ai.request.model") or model,
        settings=settings,
        tools=_tools(attributes.get("gen_ai.tool.definitions")),
        began=span.began,
        ended=span.ended,
    )


def _calls(response: Mapping[str, Any] | None, tools: list[_Span], end: int | None) -> list[ImportedCall]:
    """Return the tool calls that a model response requests. The span of each call is taken from the list `tools` and
    removed there.

    If contents were omitted, the tools that ran before the next request are taken for the calls of the response.
    """
    if response is None:
        return []
    parts = response["parts"]
    # The tracer omitted contents: rebuild the calls from the spans of the tools.
    if not parts:
        parts += [_call_part(span) for span in tools if end is None or span.began < end]
    calls = [part for part in parts if part["part_kind"] == "tool-call"]
    return [_call(part, _span_of(part, tools)) for part in calls]


def _call_part(span: _Span) -> dict[str, Any]:
    return {
        "tool_name": str(span.attributes.get("gen_ai.tool.name", "")),
        "args": arguments_of(span.attributes.get("gen_ai.tool.call.arguments")),
        "tool_call_id": str(span.attributes.get("gen_ai.tool.call.id") or span.id),
        "part_kind": "tool-call",
    }


def _span_of(part: Mapping[str, Any], tools: list[_Span]) -> _Span | None:
    call_id = part["tool_call_id"]
    match = next((span for span in tools if call_id in (span.attributes.get("gen_ai.tool.call.id"), span.id)), None)
    # Some tracers give tool spans no call id: take the first unused span of that tool.
    if match is None:
        nameless = (span for span in tools if "gen_ai.tool.call.id" not in span.attributes)
        match = next((span for span in nameless if span.attributes.get("gen_ai.tool.name") == part["tool_name"]), None)
    if match is not None:
        tools.remove(match)
    return match


def _call(part: Mapping[str, Any], span: _Span | None) -> ImportedCall:
    call = ImportedCall(part["tool_call_id"], part["tool_name"], part["args"])
    if span is not None:
        call.has_ended = True
        call.began = span.began
        call.ended = span.ended
        call.error = span.error
        call.result = _data(span.attributes.get("gen_ai.tool.call.result"))
    return call


# --- messages --------------------------------------------------------------------------------------------------------


def _system(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    instructions = _data(attributes.get("gen_ai.system_instructions"))
    parts = [part for part in instructions if isinstance(part, Mapping)] if isinstance(instructions, list) else []
    texts = [{"content": str(part.get("content", "")), "part_kind": "system-prompt"} for part in parts]
    return [{"parts": texts, "kind": "request"}] if texts else []


def _messages(value: Any, kind: str = "") -> list[dict[str, Any]]:
    """Convert messages in the form of the OpenTelemetry GenAI conventions to pydantic-ai's JSON form. Anything that is
    not a list of messages becomes an empty list.
    """
    data = _data(value)
    messages: list[dict[str, Any]] = []
    for message in data if isinstance(data, list) else []:
        if isinstance(message, Mapping):
            role = str(message.get("role", "user"))
            parts = [_part(part, role) for part in message.get("parts") or () if isinstance(part, Mapping)]
            messages.append({"parts": parts, "kind": kind or ("response" if role == "assistant" else "request")})
    calls = [part for message in messages for part in message["parts"] if "tool_call_id" in part]
    tools = {part["tool_call_id"]: part["tool_name"] for part in calls if part["part_kind"] == "tool-call"}
    for part in calls:  # results of the conventions do not name their tool
        part["tool_name"] = part["tool_name"] or tools.get(part["tool_call_id"], "")
    return messages


def _part(part: Mapping[str, Any], role: str) -> dict[str, Any]:
    content = part.get("content")
    match part.get("type"):
        case "tool_call":
            return {
                "tool_name": str(part.get("name", "")),
                "args": arguments_of(part.get("arguments")),
                "tool_call_id": str(part.get("id") or part.get("name") or "call"),
                "part_kind": "tool-call",
            }
        case "tool_call_response":
            result = part.get("response", part.get("result"))
            return {
                "tool_name": "",
                "content": result,
                "tool_call_id": str(part.get("id", "")),
                "part_kind": "tool-return",
            }
        case "reasoning" | "thinking":
            return {"content": str(content or ""), "part_kind": "thinking"}
    kinds = {"assistant": "text", "system": "system-prompt"}
    text = content if isinstance(content, str) else json.dumps({k: v for k, v in part.items() if k != "type"})
    return {"content": text, "part_kind": kinds.get(role, "user-prompt")}


def _first_prompt(request: ImportedRequest) -> str:
    parts = (part for message in request.sent for part in message["parts"] if part["part_kind"] == "user-prompt")
    return "\n\n".join(str(part["content"]) for part in parts) or "(not in the trace)"


def _tools(value: Any) -> list[Mapping[str, Any]]:
    data = _data(value)
    tools = [tool for tool in data if isinstance(tool, Mapping)] if isinstance(data, list) else []
    return [
        {
            "name": str(tool.get("name", "")),
            "description": tool.get("description"),
            "parameters_json_schema": tool.get("parameters") or {},
        }
        for tool in tools
    ]


def _data(value: Any) -> Any:
    """Return the value of a span attribute. Some tracers write data as JSON text, which is parsed; other values are
    returned unchanged.
    """
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


# --- spans -----------------------------------------------------------------------------------------------------------


def _spans(data: Any) -> Iterator[_Span]:
    """Yield all spans in parsed trace data, which may be in OTLP form or in the form of the OpenTelemetry SDK."""
    # An item of a list may have any of these forms, because exporters write one batch per line.
    if isinstance(data, list):
        for item in data:
            yield from _spans(item)
    elif "resourceSpans" in data:
        for resource in _items(data, "resourceSpans"):
            for scope in _items(resource, "scopeSpans"):
                yield from map(_of_otlp, _items(scope, "spans"))
    else:
        yield _of_otlp(data) if "spanId" in data else _of_sdk(data)


def _items(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    items = data.get(key)
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def _of_otlp(data: Mapping[str, Any]) -> _Span:
    encoded = data.get("attributes")
    if isinstance(encoded, Mapping):
        attributes = dict(encoded)
    else:
        attributes = {attribute.get("key"): _value(attribute.get("value")) for attribute in encoded or ()}
    status = data.get("status") or {}
    return _Span(
        str(data.get("spanId", "")),
        str(data.get("parentSpanId") or ""),
        str(data.get("name", "")),
        _nanoseconds(data.get("startTimeUnixNano")),
        _nanoseconds(data.get("endTimeUnixNano")),
        attributes,
        _error(status.get("code") in (2, "STATUS_CODE_ERROR"), status.get("message"), attributes),
    )


def _of_sdk(data: Mapping[str, Any]) -> _Span:
    context = data.get("context") or {}
    status = data.get("status") or {}
    attributes = dict(data.get("attributes") or {})
    return _Span(
        str(context.get("span_id", "")),
        str(data.get("parent_id") or ""),
        str(data.get("name", "")),
        moment(data.get("start_time")),
        moment(data.get("end_time")),
        attributes,
        _error(status.get("status_code") == "ERROR", status.get("description"), attributes),
    )


def _error(is_one: bool, message: Any, attributes: Mapping[str, Any]) -> str | None:  # noqa: FBT001 - read off a status
    if not is_one:
        return None
    return str(message or attributes.get("error.type") or "it failed; the trace does not say why")


def _nanoseconds(value: Any) -> int:
    try:
        return int(value) // 1000
    except (TypeError, ValueError):
        return 0


def _value(value: Any) -> Any:
    """Convert a typed value of an OTLP attribute, such as ``{"intValue": "3"}``, to plain data. Return None for an
    unknown type.
    """
    match value:
        case {"arrayValue": content}:
            return [_value(item) for item in _items(content, "values")]
        case {"kvlistValue": content}:
            return {str(item.get("key")): _value(item.get("value")) for item in _items(content, "values")}
        case {"intValue": content}:
            return int(content)
        case {"stringValue": content} | {"doubleValue": content} | {"boolValue": content}:
            return content
    return None


MOST = 512 * 2**20
"""Maximum size in bytes of a file that is parsed as a whole. An export is read line by line and may be longer."""


def read(file: str | Path | BinaryIO) -> LogFile:
    """Read a file of an exported or foreign run, and return the execution in it. The format of the file is detected.

    `divebook.store.transfer.read` reads exports of divebook and of the legacy system. A pydantic-ai history
    (``result.all_messages_json()``), or OpenTelemetry spans with the GenAI conventions (OTLP JSON or the Python SDK's
    form, one or many, as an array or one per line), become an execution whose steps are the turns of agents.

    Raises
    ------
    InvalidEventError, NewerStoreError, StoreError
        The file is invalid. The error names file, place and problem.
    """
    if not isinstance(file, str | Path):
        return transfer.read(file)
    transfer.check_path(file)
    path = Path(file)
    # An export may be too large to be parsed as a whole, so look at the beginning first.
    if not _may_be_foreign(path):
        return transfer.read(file)
    text = path.read_text(encoding="utf-8", errors="replace")
    data = _parsed(text)
    if is_history(data):
        return _log(path, turns_in(data, str(path)), text)
    if is_trace(data):
        return _log(path, turns_of(data, str(path)), text)
    return transfer.read(file)


def _may_be_foreign(path: Path) -> bool:
    """Return True if a file may be a pydantic-ai message history or an OpenTelemetry trace. Return False if it looks
    like an export of divebook, or is too large to be parsed.
    """
    try:
        with path.open("rb") as stream:
            begin = stream.read(4096)
        return path.stat().st_size <= MOST and not any(mark in begin for mark in (b'"event_type"', b'"divebook"'))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}; name another file") from error


def _parsed(text: str) -> Any:
    """Parse a text that contains one JSON value, or several consecutive ones, such as one per line. Return the value or
    a list of the values; return None for invalid JSON.
    """
    decoder = json.JSONDecoder()
    values = []
    place = 0
    while (place := _next(text, place)) < len(text):
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return None
        values.append(value)
    return values[0] if len(values) == 1 else values


def _next(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n,\ufeff":
        place += 1
    return place


def _log(path: Path, turns: list[ImportedTurn], text: str) -> LogFile:
    return LogFile(str(path), log_of(path.stem, turns, text, time.time_ns() // 1000))
