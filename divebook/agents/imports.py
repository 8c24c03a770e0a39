"""Import of runs from files: exports of divebook and of the legacy system, pydantic-ai message histories, and
OpenTelemetry traces.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from divebook.definitions.definition import Workflow
from divebook.definitions.step import Edge, Step
from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, TOOL_CALL, Place, operation_name
from divebook.errors import InvalidEventError, StoreError
from divebook.events import catalog
from divebook.events.catalog import Payload
from divebook.events.codec import short_hash
from divebook.events.event import Event, to_microseconds, type_id
from divebook.events.values import normalize
from divebook.projections.model_requests import call_name
from divebook.stores import transfer
from divebook.stores.embedded import LogFile

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage


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
        # A file may have only a part of a trace: a span whose parent is not in it is a root.
        parent = spans.get(span.parent)
        (roots if parent is None else parent.inner).append(span)
    turns = list(_turns(sorted(roots, key=lambda span: span.began)))
    if not turns:
        raise InvalidEventError(
            f"{name} has {len(spans)} spans, but no span of a model call (gen_ai.operation.name: chat); export these "
            "spans too"
        )
    return turns


def _turns(spans: Sequence[_Span]) -> Iterator[ImportedTurn]:
    for span in spans:
        inner = sorted(span.inner, key=lambda child: child.began)
        # The span of an agent becomes a turn with all its requests. Any other span, also that of an agent that only
        # runs other agents, is searched for turns inside.
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
    # Tools that began before the next request carry out the calls of this one.
    for request, following in zip(requests, [*requests[1:], None], strict=True):
        until = following.began if following is not None else None
        request.calls = _calls(request.response, tools, until)
    first = requests[0]
    agent = span.attributes.get("gen_ai.agent.name") or AGENT
    turn = ImportedTurn(str(agent), _first_prompt(first), requests, error=span.error)
    last = requests[-1].response or {}
    texts = [str(part["content"]) for part in last.get("parts", ()) if part.get("part_kind") == "text"]
    turn.output = "\n\n".join(texts) or None
    # A call without a result leaves the turn unfinished.
    turn.has_ended = not any(not call.has_ended for call in requests[-1].calls)
    return turn


def _request(span: _Span) -> ImportedRequest:
    attributes = span.attributes
    # A span without contents still has times, models, tokens and tools. All its texts are then empty.
    messages = [*_system(attributes), *_messages(attributes.get("gen_ai.input.messages"))]
    responses = _messages(attributes.get("gen_ai.output.messages"), "response")
    usage: dict[str, int] = {}
    for attribute, token_kind in _USAGE.items():
        # `type` instead of `isinstance`: a boolean is not a count.
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
        # The response is part of the request, so the calls are added to its own list.
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
    # Each span belongs to one call.
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
            # Output messages are responses, whatever role the tracer has written.
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
    # Content of other types (images, files) is kept as JSON text.
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
        # [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}] -> {"gen_ai.operation.name": "chat"}
        attributes = {attribute.get("key"): _value(attribute.get("value")) for attribute in encoded or ()}
    status = data.get("status") or {}
    return _Span(
        str(data.get("spanId", "")),
        str(data.get("parentSpanId") or ""),
        str(data.get("name", "")),
        _microseconds(data.get("startTimeUnixNano")),
        _microseconds(data.get("endTimeUnixNano")),
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
    return str(message or attributes.get("error.type") or "the trace contains no error message")


def _microseconds(value: Any) -> int:
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
            # JSON numbers cannot hold all 64-bit integers, so OTLP writes them as text.
            return int(content)
        case {"stringValue": content} | {"doubleValue": content} | {"boolValue": content}:
            return content
    return None


MOST = 512 * 2**20
"""Maximum size in bytes of a file that is parsed as a whole. An export is read line by line and may be longer."""


def read(file: str | Path | BinaryIO) -> LogFile:
    """Read a file of an exported or foreign run, and return the execution in it. The format of the file is detected.

    `divebook.stores.transfer.read` reads exports of divebook and of the legacy system. A pydantic-ai history
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
        # Exports of divebook and of the legacy system have one of these keys near their beginning.
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
    # Values of a list may be written one per line with commas, and a file may begin with a byte order mark.
    while place < len(text) and text[place] in " \t\r\n,\ufeff":
        place += 1
    return place


def _log(path: Path, turns: list[ImportedTurn], text: str) -> LogFile:
    return LogFile(str(path), log_of(path.stem, turns, text, time.time_ns() // 1000))


# --- the log of an imported history: each turn of an agent is a step ---
#
# The log has the form of `divebook.agents.request_record`, so the execution can be shown, compared and forked like any
# other (`tests/test_imported_logs.py`). The log contains only what the source contains: a call without a result stays
# open, and an unfinished history becomes a read-only snapshot (`divebook.stores.transfer`).


MAIN = "main"
_COUNTED = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@dataclass(slots=True)
class ImportedCall:
    """Tool call in an imported history, with its result or error if the history has one."""

    id: str
    tool: str
    arguments: Any
    result: Any = None
    error: str | None = None
    is_retry: bool = False
    """True if the error only asked the model to correct its call."""
    has_ended: bool = False
    began: int = 0
    """Times are microseconds since 1970; 0 if the source has none."""
    ended: int = 0


@dataclass(slots=True)
class ImportedRequest:
    """Model request in an imported history. Messages have pydantic-ai's JSON form."""

    sent: Sequence[Mapping[str, Any]]
    """All messages of the request, from the first one of the conversation."""
    response: Mapping[str, Any] | None
    error: str | None = None
    model: str | None = None
    instructions: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Mapping[str, Any]] = ()
    calls: Sequence[ImportedCall] = ()
    began: int = 0
    ended: int = 0


@dataclass(slots=True)
class ImportedTurn:
    """Turn in an imported history: a prompt, the model requests that followed it, and the answer or error."""

    agent: str
    prompt: str
    requests: Sequence[ImportedRequest]
    output: Any = None
    error: str | None = None
    has_ended: bool = True


def log_of(name: str, turns: Sequence[ImportedTurn], source: str, now: int) -> list[Event]:
    """Build the event log of an execution from imported turns. Each turn becomes a step of the workflow `name`. Return
    the events.

    Parameters
    ----------
    name
        Name of the workflow.
    source
        Text of the source. The ids of execution and events are derived from it, so that the same source always gives
        the same execution.
    now
        Time of undated events, in microseconds since 1970.
    """
    # Undated sources get the current time.
    writer = _Writer(source, _first_moment(turns) or now)
    steps = [f"turn {number}" if len(turns) > 1 else "turn" for number in range(1, len(turns) + 1)]
    workflow = _workflow(name, steps, turns)
    writer.add(
        catalog.ExecutionStarted(
            name, {}, workflow.to_dict(), workflow.fingerprint, origin=catalog.IMPORT, seed=writer.seed
        )
    )
    writer.add(catalog.PathStarted(steps[0]), MAIN)
    for step, turn in zip(steps, turns, strict=True):
        # A turn that failed or is incomplete is the last one; the steps after it never run.
        if not _Turn(writer, step, turn).write():
            return writer.events
    writer.add(catalog.PathCompleted(steps[-1]), MAIN)
    writer.add(catalog.ExecutionCompleted({"result": normalize(turns[-1].output, "output")}, writer.used() or None))
    return writer.events


def _first_moment(turns: Sequence[ImportedTurn]) -> int:
    return min((request.began for turn in turns for request in turn.requests if request.began), default=0)


def _workflow(name: str, steps: Sequence[str], turns: Sequence[ImportedTurn]) -> Workflow:
    following = [[Edge(step)] for step in steps[1:]] + [[]]
    return Workflow(
        name,
        [
            # An imported prompt is text, not a template: `$${` stands for a literal `${`.
            Step(step, type="prompt", agent=turn.agent, prompt=turn.prompt.replace("${", "$${"), edges=edges)
            for step, turn, edges in zip(steps, turns, following, strict=True)
        ],
    )


class _Writer:
    """Builder of an event log. It assigns number, id and time to each event; times never decrease."""

    def __init__(self, source: str, first: int) -> None:
        digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).digest()
        # Bytes 0 to 8 are the random part of all ids, bytes 9 to 16 the seed of the execution.
        self._random_bits = int.from_bytes(digest[:9], "big")
        self.seed = digest[9:17].hex()
        self._now = first
        self._id = type_id("exec", first // 1000, self._random_bits)
        self.events: list[Event] = []
        self.usages: list[Mapping[str, int]] = []

    def add(self, data: Payload, path: str = "", step: str = "", at: int = 0) -> int:
        """Append an event to the log and return its number. `at` is the time in the source; an event is never earlier
        than the one before.
        """
        self._now = max(self._now, at)
        number = len(self.events) + 1
        # The number makes the id of each event different.
        identifier = type_id("event", self._now // 1000, self._random_bits + number)
        self.events.append(Event(identifier, self._id, number, self._now, data, path, step))
        return number

    def used(self) -> dict[str, int]:
        """Return the total tokens and cost of all imported requests, as a dict such as ``{"input_tokens": 10}``."""
        names = {name for usage in self.usages for name in usage}
        return {name: sum(usage.get(name, 0) for usage in self.usages) for name in sorted(names)}


class _RequestForm:
    """Converter of imported model requests to the form in which live requests are recorded. An execution with requests
    in this form can be forked inside the turn.

    Messages that pydantic-ai cannot parse are recorded unchanged. Such a turn can be shown, and forked at its beginning
    only.
    """

    def __init__(self, turn: ImportedTurn) -> None:
        from pydantic import ValidationError

        from divebook.agents.request_record import RequestRecord, messages_of  # takes half a second

        self._agent = turn.agent
        self._record = RequestRecord(turn.agent)
        self._parsed_messages: dict[int, ModelMessage] = {}
        """pydantic-ai's messages by the `id` of the imported message; empty if one of them cannot be parsed."""
        self._previous_messages: list[Mapping[str, Any]] = []
        self._previous_response: Mapping[str, Any] | None = None
        """Response to the previous request."""
        responses = [request.response for request in turn.requests if request.response is not None]
        sent = [message for request in turn.requests for message in request.sent]
        # Requests share message objects: {id(message): message} has each of them once.
        messages = {id(message): message for message in (*responses, *sent)}
        try:
            parsed = dict(zip(messages, messages_of(list(messages.values())), strict=True))
        except ValidationError:
            return
        # A response that is sent again may have fewer fields, so use the original response in its place.
        response_ids = {_key(message): id(message) for message in reversed(responses)}
        for message_id, message in messages.items():
            self._parsed_messages[message_id] = parsed[response_ids.get(_key(message), message_id)]

    def describe(self, number: int, request: ImportedRequest) -> Mapping[str, Any]:
        """Return the parameters with which the next model request of an imported turn is recorded. Note its response
        and tool results as well: the parameters of later requests refer to them.
        """
        if not self._parsed_messages:
            return self._unchanged(number, request)
        from pydantic_ai.models import ModelRequestParameters

        sent = [self._parsed_messages[id(message)] for message in request.sent]
        recorded = self._record.describe(sent, None, ModelRequestParameters(), request.model or "").parameters
        if request.response is not None:
            response: Any = self._parsed_messages[id(request.response)]
            self._record.answered(number, response)
        for call in request.calls:
            # Later requests refer to a result only if it is in the log.
            if call.has_ended and call.error is None:
                self._record.called(call.id, call.tool, {"result": call.result})
        return recorded

    def _unchanged(self, number: int, request: ImportedRequest) -> Mapping[str, Any]:
        sent = list(request.sent)
        same_count = _common(self._previous_messages, sent)
        reference = {"response": number - 1}
        new = [reference if message == self._previous_response else message for message in sent[same_count:]]
        self._previous_messages = sent
        self._previous_response = request.response
        return {"agent": self._agent, "request": number, "kept": same_count, "new": new}


class _Turn:
    """Writer of the events of one imported turn: its step, model requests and tool calls."""

    def __init__(self, writer: _Writer, step: str, turn: ImportedTurn) -> None:
        self._writer = writer
        self._step = step
        self._turn = turn
        self._turn_number = 0
        """Event number of the turn's operation, which contains its requests and calls; 0 before it has started."""
        self._requests = _RequestForm(turn)
        self._setting: dict[str, Any] = {}
        self._is_whole = True

    def write(self) -> bool:
        """Append the events of the turn to the log. Return True if the turn completed, so that the events of the next
        turn may follow.

        The turn ends with its output, with its error, or not at all if the source is truncated. In the last case its
        step stays open.
        """
        turn = self._turn
        requests = self._turn.requests
        self._add(catalog.StepStarted("prompt"), requests[0].began if requests else 0)
        parameters = {"agent": turn.agent, "prompt": turn.prompt}
        model = next((request.model for request in requests if request.model), None)
        # The operation of the turn itself is not inside of an operation.
        self._turn_number = self._begin(AGENT_TURN, "turn", parameters, {"model": model} if model else None, 0)
        for number, request in enumerate(requests, 1):
            self._write_request(number, request)
        # A turn ends with an error, stays open, or completes.
        if turn.error is not None:
            return self._fail(turn.error)
        if not turn.has_ended or not self._is_whole:
            return False
        finish = (requests[-1].response or {}).get("finish_reason") if requests else None
        self._end(AGENT_TURN, "turn", {"output": turn.output, "requests": len(requests), "finish_reason": finish}, 0, 0)
        text = turn.output if isinstance(turn.output, str) else short_text(turn.output)
        self._add(catalog.StepCompleted(text, usage=self._writer.used() or None))
        return True

    def _fail(self, error: str) -> bool:
        identity = self._place("turn").operation_id
        self._add(catalog.OperationFailed(identity, AGENT_TURN, 0, error))
        message = f"agent {self._turn.agent} failed: {error}"
        self._add(catalog.StepFailed(message))
        self._writer.add(catalog.PathFailed(message), MAIN)
        self._writer.add(catalog.ExecutionFailed(message))
        return False

    def _write_request(self, number: int, request: ImportedRequest) -> None:
        key = f"model-{number}"
        parameters = self._requests.describe(number, request)
        setting = {
            "model": request.model,
            "settings": dict(request.settings),
            "instructions": request.instructions,
            "tools": list(request.tools),
        }
        # Only changes are recorded, as for live requests. Empty values are left out.
        changes = {name: value for name, value in setting.items() if value != self._setting.get(name) and value}
        self._setting.update(changes)
        self._begin(AGENT_RESPONSE, key, parameters, changes or None, request.began)
        if request.error is not None:
            identity = self._place(key).operation_id
            failure = catalog.OperationFailed(identity, AGENT_RESPONSE, _duration(request), request.error)
            self._add(failure, request.ended)
        elif request.response is None:
            self._is_whole = False
        else:
            usage = _usage(request.response)
            self._writer.usages.append(usage)
            fields = request.response.items()
            result = {name: value for name, value in fields if name != "kind" and value is not None}
            self._end(AGENT_RESPONSE, key, result, _duration(request), request.ended, usage=usage)
        for call in request.calls:
            self._write_call(number, call)

    def _write_call(self, number: int, call: ImportedCall) -> None:
        key = f"tool-{number}-{call_name(call.id)}"
        parameters = {"agent": self._turn.agent, "tool": call.tool, "arguments": call.arguments}
        self._begin(TOOL_CALL, key, parameters, None, call.began)
        if not call.has_ended:
            self._is_whole = False
        # The log has such a message to the model as the result of the call, also in a live run.
        elif call.is_retry:
            self._end(TOOL_CALL, key, {"kind": "model_retry", "message": call.error}, _duration(call), call.ended)
        elif call.error is not None:
            identity = self._place(key).operation_id
            self._add(catalog.OperationFailed(identity, TOOL_CALL, _duration(call), call.error), call.ended)
        else:
            self._end(TOOL_CALL, key, {"result": call.result}, _duration(call), call.ended)

    def _begin(
        self, kind: str, key: str, parameters: Mapping[str, Any], setting: Mapping[str, Any] | None, at: int
    ) -> int:
        plain = normalize(parameters, "parameters")
        plain_setting = None if setting is None else normalize(setting, "setting")
        started = catalog.OperationStarted(
            self._place(key).operation_id,
            kind,
            plain,
            short_hash(plain, "parameters"),
            key=key,
            name=operation_name(kind, plain),
            setting=plain_setting,
            setting_hash=None if plain_setting is None else short_hash(plain_setting, "setting"),
            within=self._turn_number or None,
        )
        return self._add(started, at)

    def _end(
        self, kind: str, key: str, result: Any, lasted: int, at: int, *, usage: Mapping[str, int] | None = None
    ) -> None:
        identity = self._place(key).operation_id
        data = catalog.OperationCompleted(identity, kind, lasted, normalize(result, "result"), usage or None)
        self._add(data, at)

    def _place(self, key: str) -> Place:
        return Place(MAIN, self._step, 1, None, key)

    def _add(self, data: Payload, at: int = 0) -> int:
        return self._writer.add(data, MAIN, self._step, at)


def short_text(value: Any) -> str:
    """Return a value as compact JSON text, for the output of a step. Return an empty string for None."""
    from divebook.events.codec import encode

    return "" if value is None else encode(normalize(value, "output")).decode()


def _key(message: Mapping[str, Any]) -> str:
    """Return a hash of a message's type (request or response) and content parts. Messages with the same hash in several
    requests are the same message.
    """
    return short_hash(normalize([message.get("kind", "response"), message["parts"]], "parts"), "parts")


def _common(old_messages: Sequence[Any], new_messages: Sequence[Any]) -> int:
    """Compare two lists of messages from the beginning. Return the number of equal messages before the first
    difference.
    """
    for index, (old, new) in enumerate(zip(old_messages, new_messages, strict=False)):
        if old != new:
            return index
    return min(len(old_messages), len(new_messages))


def _duration(of: ImportedRequest | ImportedCall) -> int:
    """Return the duration of an imported request or call in nanoseconds. Return 0 if the source has no times."""
    return max(0, of.ended - of.began) * 1000 if of.began and of.ended else 0


def _usage(response: Mapping[str, Any]) -> dict[str, int]:
    usage = response.get("usage")
    total = {"requests": 1}
    for name in _COUNTED:
        count = usage.get(name) if isinstance(usage, Mapping) else None
        if type(count) is int and count > 0:
            total[name] = count
    return total


# --- pydantic-ai histories ----------------------------------------------------------------------------------------
# The form of `result.all_messages_json()`. A message with a user prompt starts a turn. The result of a tool call is in
# the message after the call.


PROMPT = "user-prompt"
RETURNED = "tool-return"
RETRIED = "retry-prompt"
CALLED = "tool-call"
AGENT = "agent"
"""Name of an agent without a name in the source."""


def is_history(data: Any) -> bool:
    """Return True if parsed JSON data are a message history of pydantic-ai."""
    return isinstance(data, list) and bool(data) and all(_kind(message) is not None for message in data)


def _kind(message: Any) -> str | None:
    kind = message.get("kind") if isinstance(message, Mapping) else None
    return kind if kind in ("request", "response") and isinstance(message.get("parts"), list) else None


def turns_in(messages: Sequence[Mapping[str, Any]], name: str, agent: str = AGENT) -> list[ImportedTurn]:
    """Convert a message history of pydantic-ai to imported turns. A message that contains a user prompt starts a new
    turn.

    Parameters
    ----------
    name
        Name of the file, for errors.

    Raises
    ------
    InvalidEventError
        An item is not a message, or a response precedes all requests. The error names its place.
    """
    turns: list[ImportedTurn] = []
    for number, message in enumerate(messages, 1):
        if _kind(message) is None:
            raise InvalidEventError(
                f"{name}, message {number}: a message must have a kind (request or response) and parts"
            )
        if message["kind"] == "request":
            # A request without a prompt carries tool results and continues the turn.
            if not turns or _prompts(message):
                turns.append(ImportedTurn(agent, _prompt_text(message), [], has_ended=False))
            continue
        if not turns:
            raise InvalidEventError(
                f"{name}, message {number}: a response must follow a request, but this one does not"
            )
        # The results of a response's tool calls are in the following request.
        # `number` counts from 1, so it is the index of the next message.
        next_message = messages[number] if number < len(messages) and _kind(messages[number]) == "request" else None
        _answer(turns[-1], messages[: number - 1], message, next_message)
    for turn in turns:
        _end(turn)
    return turns


def _answer(
    turn: ImportedTurn,
    sent: Sequence[Mapping[str, Any]],
    response: Mapping[str, Any],
    next_message: Mapping[str, Any] | None,
) -> None:
    texts = (message.get("instructions") for message in reversed(sent))
    instructions = next(filter(None, texts), None)
    request = ImportedRequest(
        list(sent),
        response,
        model=response.get("model_name"),
        instructions=instructions if isinstance(instructions, str) else None,
        calls=[call_of(part, next_message, moment(response.get("timestamp"))) for part in _parts(response, CALLED)],
        began=_sent_at(sent),
        ended=moment(response.get("timestamp")),
    )
    turn.requests = [*turn.requests, request]


def call_of(part: Mapping[str, Any], next_message: Mapping[str, Any] | None, began: int) -> ImportedCall:
    """Convert a tool call of a message history to an `ImportedCall`. `part` is the request for the call; `next_message`
    may contain its result, None at the end of the history.
    """
    identity = str(part.get("tool_call_id") or part.get("tool_name") or "call")
    call = ImportedCall(identity, str(part.get("tool_name", "")), arguments_of(part.get("args")), began=began)
    for result in [] if next_message is None else _parts(next_message, RETURNED, RETRIED):
        if result.get("tool_call_id") != part.get("tool_call_id"):
            continue
        call.has_ended = True
        call.ended = moment(result.get("timestamp"))
        # pydantic-ai asks the model to correct a call with such a part; the call itself has no result.
        call.is_retry = result["part_kind"] == RETRIED or result.get("outcome") == "retried"
        if call.is_retry or result.get("outcome") in ("failed", "denied"):
            call.error = _text(result.get("content")) or "the history contains no error message"
        else:
            call.result = result.get("content")
    return call


def arguments_of(args: Any) -> Any:
    """Return the arguments of a tool call in a message history as data. Text that is not valid JSON is returned
    unchanged.
    """
    if isinstance(args, str):
        try:
            return json.loads(args)
        except ValueError:
            return args
    return {} if args is None else args


def _end(turn: ImportedTurn) -> None:
    """Set the output of an imported turn and mark it as ended. The output is the text of the last response, or the
    arguments of the tool call that returns structured output. If the history has neither, the turn stays unfinished.
    """
    last = turn.requests[-1].response if turn.requests else None
    if last is None:
        return
    texts = [part.get("content") for part in _parts(last, "text")]
    open_calls = [call for call in turn.requests[-1].calls if not call.has_ended]
    if texts and not turn.requests[-1].calls:
        turn.output = "\n\n".join(map(str, texts))
        turn.has_ended = True
    elif turn.requests[-1].calls and not open_calls:  # the last call is the output, or the history is truncated
        # pydantic-ai names its output tools `final_result` or `final_result_<type>`.
        outputs = [call for call in turn.requests[-1].calls if call.tool.startswith("final_result")]
        if outputs:
            turn.output = outputs[-1].arguments
            turn.has_ended = True


def _prompts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _parts(message, PROMPT)


def _prompt_text(message: Mapping[str, Any]) -> str:
    return "\n\n".join(_text(part.get("content")) for part in _prompts(message)) or "(no prompt)"


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n\n".join(item for item in content if isinstance(item, str))
    return "" if content is None else json.dumps(content, ensure_ascii=False)


def _parts(message: Mapping[str, Any], *kinds: str) -> list[Mapping[str, Any]]:
    return [part for part in message["parts"] if isinstance(part, Mapping) and part.get("part_kind") in kinds]


def _sent_at(sent: Iterable[Mapping[str, Any]]) -> int:
    """Return the latest time of any part in the messages of a request, in microseconds since 1970. Return 0 if no part
    has a time.
    """
    parts = (part for message in sent for part in message["parts"] if isinstance(part, Mapping))
    return max((moment(part.get("timestamp")) for part in parts), default=0)


def moment(text: Any) -> int:
    """Parse an ISO 8601 time; return microseconds since 1970, or 0 for anything else."""
    if not isinstance(text, str):
        return 0
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return 0
    # A time without a zone is taken as UTC.
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return to_microseconds(aware)
