"""Requests of agents to models, reconstructed from a log: messages, settings and responses.

The log contains only the changes between two requests of a turn (`divebook.agents.requests` writes them; neither
module imports the other):

- ``kept``: the number of messages at the beginning of the previous request that are unchanged. ``new``: the messages
  after them, in which ``{"response": n}`` stands for the response of request n, and ``{"tool": id}`` for the result of
  a tool call. Without both fields, all messages are unchanged, and new are the previous response and the results of its
  calls.
- The setting (model, settings, instructions, tools, output): the values that differ from the previous request.

For example, request 1 sends the user's message U. The model answers with R1, which calls tool c. Request 2 records
nothing, so its messages are U, R1 and the result of c. After a compaction, request 3 records ``kept: 0`` and
``new: [summary]``, so its only message is the summary.

A turn of 200 calls is read in one pass (`tests/projections/test_requests.py`). This module does not need pydantic-ai:
messages have its JSON form.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from divebook.definitions.step import base64_block, text_block
from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, CACHED_RESPONSE, TOOL_CALL
from divebook.events import Event
from divebook.events.catalog import COMPLETED, FAILED, WAITING
from divebook.events.codec import encode_shown
from divebook.events.recorded import opened
from divebook.events.values import normalize
from divebook.projections.spans import COST, DENIALS, Span, spans_of
from divebook.questions.bounds import dollars
from divebook.text.format import plural

# --- messages for people ---------------------------------------------------------------------------------------------
#
# `divebook.agents` builds its requests from the same messages, so that the messages read here are those that were sent
# (tests/projections/test_messages.py). The log has the messages of agents with tools in pydantic-ai's JSON form. The
# functions below convert them to `CallMessage`.


Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Block: TypeAlias = Mapping[str, Any]

_ROLES: Mapping[str, Role] = {"system-prompt": "system", "instruction-delta": "system", "tool-return": "tool"}
"""Role of a message by the kind of its part; all other kinds have the role ``user``."""


class CallMessage(NamedTuple):
    """Message of a model call, with its role and content blocks."""

    role: Role
    content: Sequence[Block]
    """Content blocks: texts, images and documents. Messages of the assistant also have ``thinking`` (``text``) and
    ``tool_call`` (``id``, ``tool``, ``arguments``) blocks, messages of a tool ``tool_result`` (``id``, ``tool``,
    ``content``, ``outcome``).
    """

    @property
    def text(self) -> str:
        """Text of the message: its text blocks, one line each; for the message of a tool, the result of the tool."""
        return "\n".join(text for block in self.content if (text := _text_of(block)) is not None)


def request_messages(parameters: Mapping[str, Any]) -> list[CallMessage]:
    """Return the messages that an agent without tools sent to its model: instructions, the agent's context, content and
    prompt. `parameters` are those of the recorded request.
    """
    instructions = parameters.get("instructions")
    context = mappings_in(parameters.get("context"))
    prompt = [*mappings_in(parameters.get("content")), text_block(parameters.get("prompt", ""))]
    return [
        *([CallMessage("system", [text_block(instructions)])] if instructions else []),
        *([CallMessage("user", context)] if context else []),
        CallMessage("user", prompt),
    ]


def messages_of(call: Span) -> list[CallMessage]:
    """Return the messages of one recorded model call, with the response at the end; an empty list if the span is
    another operation.

    For an agent with tools, only the messages that are new in this request are returned, as far as its event contains
    them. `requests_of` returns all messages.
    """
    if call.type != AGENT_RESPONSE or call.parameters is None:
        return []
    is_of_turn = "request" in call.parameters
    messages_sent = (
        people_messages(mappings_in(call.parameters.get("new"))) if is_of_turn else request_messages(call.parameters)
    )
    return [*messages_sent, *people_messages([call.result] if isinstance(call.result, Mapping) else [])]


def people_messages(messages: Sequence[Mapping[str, Any]]) -> list[CallMessage]:
    """Convert messages from pydantic-ai's JSON form to the form that is shown to people. Parts that are missing because
    the log was shortened are skipped.
    """
    return [spoken for message in messages for spoken in _spoken(message)]


def _spoken(message: Mapping[str, Any]) -> list[CallMessage]:
    """Convert a request or response from pydantic-ai's JSON form to messages for people. Consecutive parts with the
    same role become one message.
    """
    speakers: list[tuple[Role, list[Block]]] = []
    # A recorded response has no `kind`; requests have the kind "request".
    is_answer = message.get("kind", "response") == "response"
    for part in mappings_in(message.get("parts")):
        kind = str(part.get("part_kind"))
        blocks = _blocks(kind, part)
        role: Role = "assistant" if is_answer else _ROLES.get(kind, "user")
        if not blocks:
            continue
        # Results of several tools stay separate messages, since each has its own tool.
        if speakers and speakers[-1][0] == role and role != "tool":
            speakers[-1][1].extend(blocks)
        else:
            speakers.append((role, blocks))
    return [CallMessage(role, blocks) for role, blocks in speakers]


def _blocks(kind: str, part: Mapping[str, Any]) -> list[Block]:
    match kind:
        case "tool-call" | "builtin-tool-call":
            return [{"type": "tool_call", **_named(part), "arguments": _arguments(part.get("args"))}]
        case "tool-return" | "builtin-tool-return":
            outcome = part.get("outcome", "success")
            return [{"type": "tool_result", **_named(part), "content": part.get("content"), "outcome": outcome}]
        case "thinking":
            return [{"type": "thinking", "text": part["content"]}] if part.get("content") else []
    content = part.get("content")
    # The content is a text, or a list of texts, files and URLs.
    items = content if isinstance(content, list | tuple) else [content]
    return [block for item in items if (block := _block(item)) is not None]


def _named(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": part.get("tool_call_id"), "tool": part.get("tool_name")}


def _arguments(arguments: Any) -> Any:
    """Parse the arguments of a tool call, which models write as JSON text. Text that is not JSON is returned
    unchanged.
    """
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        return json.loads(arguments) if arguments else {}
    except ValueError:
        return arguments


def _block(item: Any) -> Block | None:
    """Convert one item of a message's content (a text, a binary file or a URL) to a content block; return None for
    other items.

    The media type, or the kind of URL, decides whether a file is an image or a document.
    """
    if isinstance(item, str):
        return text_block(item)
    if not isinstance(item, Mapping):
        return None
    if isinstance(item.get("content"), str):
        return text_block(item["content"])
    media = str(item.get("media_type", ""))
    kind = "image" if media.startswith("image/") or item.get("kind") == "image-url" else "document"
    if isinstance(item.get("data"), str):
        return base64_block(kind, media, item["data"])
    return {"type": kind, "source": {"type": "url", "url": item["url"]}} if "url" in item else None


def _text_of(block: Block) -> str | None:
    if block.get("type") == "text":
        return str(block["text"])
    if block.get("type") != "tool_result":
        return None
    content = block["content"]
    return content if isinstance(content, str) else encode_shown(normalize(content)).decode()


def mapping_in(value: Any) -> Mapping[str, Any]:
    """Return a value from a recorded message if it is a mapping, else an empty mapping, since values may be missing in
    a saved log that was shortened.
    """
    return value if isinstance(value, Mapping) else {}


def mappings_in(value: Any) -> list[Mapping[str, Any]]:
    """Return those entries of a recorded list that are mappings, since entries may be missing in a saved log that was
    shortened. Return an empty list for other values.
    """
    return [part for part in value if isinstance(part, Mapping)] if isinstance(value, list | tuple) else []


_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ANEW = re.compile(r"anew-\d+/$")
"""End of the operation key prefix of a restarted turn; `divebook.agents.changed` writes it."""
_REQUEST = re.compile(r"model-(\d+)")
# "tool-2-call_7#1" -> "call_7": the number of the request, the name of the call, and the number of its round.
_CALL = re.compile(r"tool-\d+-([^#]+)(?:#\d+)?")


def call_name(tool_call_id: str) -> str:
    """Return the name that identifies a tool call in the keys of operations: the id that the model chose if it is a
    valid name, else a hash of that id.

    >>> call_name("call_7"), call_name("call 7")
    ('call_7', '937f63e36cfe')
    """
    if _PLAIN_NAME.fullmatch(tool_call_id):
        return tool_call_id
    return hashlib.sha256(tool_call_id.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def elicitation_keys(call: str, number: str) -> tuple[str, str]:
    """Return the key of a question that an MCP server asks in a tool call, and the key that earlier versions wrote.

    `call` is the name of the call in its turn. `number` is the round of the question, with its index if it is not the
    first one of the round; ``in-`` and a number for a question that the server asks while the call runs.

    >>> elicitation_keys("2-c1", "2-1")
    ('elicit-2-c1:2-1', 'elicit-2-c1-2-1')
    """
    # No name of a call contains a colon. With a hyphen, the second question of call `c1` in round 2 had the same key as
    # the first question of a call with the id `c1-2`.
    return f"elicit-{call}:{number}", f"elicit-{call}-{number}"


@dataclass(frozen=True, slots=True, repr=False)
class RequestView:
    """Request to a model with its response. Read-only: the data belongs to the log."""

    n: int
    """Number of the request in its turn, counted from 1."""
    agent: str
    model: str | None
    """Requested model. The response names the model that answered."""
    settings: Mapping[str, Any]
    """Model settings such as temperature; empty for agents without tools, whose log does not contain settings."""
    instructions: str | None
    messages: Sequence[Mapping[str, Any]]
    """Messages sent to the model, in pydantic-ai's JSON form, without the instructions."""
    tools: Sequence[Mapping[str, Any]]
    """Definitions of the tools that the model could call: ``name``, ``description``, ``parameters_json_schema``."""
    output: Mapping[str, Any]
    """Output mode and schemas of pydantic-ai if the output is not plain text; else empty."""
    span: Span
    """Span of the request's operation: times, status, error, attempts."""
    turn: str
    """Identity of the agent's turn that made the request, unique in the log."""
    added: Sequence[CallMessage]
    """Messages that this request adds to the earlier requests of the turn, in the form that is shown to people."""

    def __repr__(self) -> str:
        """Return one line with the numbers of messages and tools only, because the texts of the messages could fill
        pages.
        """
        count = f"{plural(len(self.messages), 'message')}, {plural(len(self.tools), 'tool')}"
        return f"<request {self.n} of {self.agent} to {self.model}: {count}, {self.status}>"

    @property
    def response(self) -> Mapping[str, Any] | None:
        """Response of the model in pydantic-ai's JSON form; None while the request runs, or if the request failed."""
        return _response(self.span)

    @property
    def status(self) -> str:
        """Status of the request: ``running``, ``completed``, ``failed`` or ``cancelled``."""
        return self.span.status

    @property
    def error(self) -> str | None:
        """Error text of a failed request; None otherwise."""
        return self.span.error

    @property
    def usage(self) -> Mapping[str, int]:
        """Token counts of the request: ``input_tokens``, ``output_tokens``, ...; empty if the response was `cached`."""
        return self.span.usage

    @property
    def cost(self) -> float | None:
        """Cost of the request in US dollars; None if no price is known."""
        return dollars(self.span.usage.get("cost"))

    @property
    def cached(self) -> bool:
        """True if the response came from the agent's cache, without a call to the model."""
        return self.span.type == CACHED_RESPONSE

    @property
    def said(self) -> list[CallMessage]:
        """All messages to the model and its response, in the form that is shown to people."""
        messages_sent = _system(self.instructions) + people_messages(self.messages)
        return messages_sent + people_messages([] if self.response is None else [self.response])


def requests_of(events: Iterable[Event]) -> list[RequestView]:
    """Return all requests to models that a log of an execution contains, in the order of the log."""
    return requests_in(spans_of(events))


def requests_in(spans: Iterable[Span]) -> list[RequestView]:
    """Return the model requests among the spans of a log. If a request failed and was made again, only the last attempt
    is returned.
    """
    turns: dict[str, _Turn] = {}
    views: dict[tuple[int, int], RequestView] = {}
    for span in spans:
        if span.kind != "operation":
            continue
        turn, name = _place(span)
        number = _REQUEST.fullmatch(name)
        # An agent without tools makes one request, which has no number.
        if span.type in (AGENT_RESPONSE, CACHED_RESPONSE) and number is None:
            views[span.index, 1] = _plain_view(span)
        elif span.type in (AGENT_RESPONSE, CACHED_RESPONSE, AGENT_TURN, TOOL_CALL):
            # An operation of a turn may come before its first request: the operation of the turn itself.
            current = turns.get(turn) or turns.setdefault(turn, _Turn(turn, _base_of(turn, turns)))
            if number is None:
                current.take(span, name)
                continue
            if int(number[1]) < current.latest:  # another attempt at the step: it begins anew
                current = turns[turn] = _Turn(turn, current.base)
            # The key has the identity of the turn, so that views of a restarted turn do not replace those of the first
            # attempt.
            views[id(current), int(number[1])] = current.view(span, int(number[1]))
    return sorted(views.values(), key=lambda view: view.span.index)


def _base_of(turn: str, turns: Mapping[str, _Turn]) -> list[Mapping[str, Any]]:
    """Return the messages that a conversation had before a turn. For a turn that was started again, return the messages
    before its original turn.
    """
    first = turns.get(_ANEW.sub("", turn)) if _ANEW.search(turn) else None
    return [] if first is None else first.base


def conversation_in(views: Iterable[RequestView]) -> list[CallMessage]:
    """Join the messages of several requests to one conversation, with each message once and in order. Messages that
    were later removed to shorten the context (compaction) are included.
    """
    messages: list[CallMessage] = []
    instructions: dict[str, str | None] = {}
    for view in views:
        # Instructions are shown again only if they changed within a turn.
        if instructions.get(view.turn) != view.instructions:
            messages += _system(view.instructions)
            instructions[view.turn] = view.instructions
        messages += view.added
        messages += people_messages([] if view.response is None else [view.response])
    return messages


@dataclass(slots=True)
class _Turn:
    """One turn of an agent in a log. It rebuilds the requests of the turn in the order in which they were made."""

    name: str
    base: list[Mapping[str, Any]] = field(default_factory=list)
    """Messages of earlier turns in the same thread."""
    latest: int = 0
    _sent: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)
    _settings: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    _requests: dict[int, Span] = field(default_factory=dict)
    _calls: dict[str, Span] = field(default_factory=dict)

    def take(self, span: Span, name: str) -> None:
        """Add an operation to this turn: the one that records the turn itself, or the one of a tool call."""
        if span.type == AGENT_TURN:
            # The messages of earlier turns are recorded in chunks with the operation of the turn.
            thread = mapping_in(mapping_in(span.setting).get("thread"))
            chunks = thread.get("history")
            for chunk in chunks if isinstance(chunks, list) else []:
                self.base += mappings_in(opened(chunk, lenient=True))
        elif match := _CALL.fullmatch(name):
            self._calls[match[1]] = span

    def view(self, span: Span, number: int) -> RequestView:
        """Rebuild one request of this turn, given by its number, from the previous request and the recorded changes."""
        parameters = span.parameters or {}
        before = self._sent.get(number - 1, self.base)
        kept_count = parameters.get("kept") if "new" in parameters else len(before)
        marks = mappings_in(parameters.get("new")) if "new" in parameters else self._usual(number)
        new = [self._message(mark) for mark in marks]
        # A count that is missing or negative, in a log that was shortened, keeps nothing.
        sent = [*before[: kept_count if isinstance(kept_count, int) and kept_count > 0 else 0], *new]
        setting = {**self._settings.get(number - 1, {}), **opened(mapping_in(span.setting), lenient=True)}
        self._sent[number] = sent
        self._settings[number] = setting
        self._requests[number] = span
        self.latest = number
        # The response was shown with the request that it answers.
        added = [message for mark, message in zip(marks, new, strict=True) if "response" not in mark]
        return RequestView(
            n=number,
            agent=str(parameters.get("agent", "")),
            model=setting.get("model"),
            settings=mapping_in(setting.get("settings")),
            instructions=_text(setting.get("instructions")),
            messages=sent,
            tools=mappings_in(setting.get("tools")),
            output=mapping_in(setting.get("output")),
            span=span,
            turn=self.name,
            # After a compaction, `new` may repeat messages that people have already seen.
            added=people_messages([message for message in added if message not in before]),
        )

    def _usual(self, number: int) -> list[Mapping[str, Any]]:
        """Return the messages that normally follow a request: its response, and the results of the tool calls in the
        response. They are used if the next request has no recorded field ``new``.
        """
        answer = self._message({"response": number - 1})
        calls = (part for part in mappings_in(answer.get("parts")) if part.get("part_kind") == "tool-call")
        returned = [{"tool": call.get("tool_call_id")} for call in calls]
        return [{"response": number - 1}, {"kind": "request", "parts": returned}]

    def _message(self, mark: Mapping[str, Any]) -> Mapping[str, Any]:
        if "response" in mark:
            span = self._requests.get(mark["response"])
            # A response that is missing in a shortened log is an empty one, so that the other messages keep their
            # places.
            return (None if span is None else _response(span)) or {"kind": "response", "parts": []}
        return {**mark, "parts": [self._part(part) for part in mappings_in(mark.get("parts"))]}

    def _part(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        call_id = part.get("tool")
        # A part that is complete has a kind. Otherwise it refers to the result of a tool call, which its operation has.
        if "part_kind" in part or not isinstance(call_id, str):
            return part
        call = self._calls.get(call_name(call_id))
        result = None if call is None else mapping_in(opened(call.result, lenient=True)).get("result")
        tool = None if call is None else (call.parameters or {}).get("tool")
        returned = {"tool_name": tool or "", "content": result, "tool_call_id": call_id, "part_kind": "tool-return"}
        # data that look like a file of pydantic-ai are none: with files, the request says the whole part
        return {**returned, "content_file_digests": []} if isinstance(result, dict | list) else returned


def _plain_view(span: Span) -> RequestView:
    """Return the request of an agent without tools. Such an agent makes a single request, which the log records in
    full.
    """
    parameters = span.parameters or {}
    # The instructions are a field of their own in the view.
    messages_sent = [message for message in request_messages(parameters) if message.role != "system"]
    # The prompt alone is one text; beside other content it is the last block of a list.
    prompts = [_user_message(message.content, is_text=not parameters.get("content")) for message in messages_sent[-1:]]
    context = [_user_message(message.content, is_text=False) for message in messages_sent[:-1]]
    return RequestView(
        n=1,
        agent=str(parameters.get("agent", "")),
        model=span.model,
        settings={},
        instructions=_text(parameters.get("instructions")),
        messages=[*context, *prompts],
        tools=[],
        output={},
        span=span,
        turn=str(span.operation_id),
        added=messages_sent,
    )


def _user_message(blocks: Sequence[Mapping[str, Any]], *, is_text: bool) -> Mapping[str, Any]:
    contents = list(map(_content, blocks))
    # pydantic-ai has a plain text for a prompt without other content.
    body = contents[-1] if is_text else contents
    return {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": body}]}


def _content(block: Mapping[str, Any]) -> Any:
    """Convert a content block of a message to pydantic-ai's JSON form."""
    if block.get("type") == "text":
        return str(block["text"])
    source = mapping_in(block.get("source"))
    if "data" in source:
        return {"kind": "binary", "media_type": source.get("media_type"), "data": source["data"]}
    return {"kind": f"{block.get('type')}-url", "url": source.get("url")}


def placed(span: Span) -> tuple[str, str]:
    """Split the key of an operation inside an agent's turn into the prefix of the turn and the name within the turn."""
    # "tool-1-call_7/model-2@3" -> ("tool-1-call_7/", "model-2"). "@3" is the number of the attempt.
    prefix, slash, name = str(span.key).partition("@")[0].rpartition("/")
    return prefix + slash, name


def _place(span: Span) -> tuple[str, str]:
    """Return two texts for an operation of an agent's turn. The first identifies the turn and is equal for all its
    operations. The second is the name of the operation within the turn.
    """
    prefix, name = placed(span)
    # The operation of the turn has no operation around it, and identifies the turn for all others.
    holder = span.operation_id if name == "turn" and span.type == AGENT_TURN else span.within
    return "/".join(map(str, (span.path, span.step, span.visit, span.iteration, holder, prefix))), name


def _response(span: Span) -> Mapping[str, Any] | None:
    if not isinstance(span.result, Mapping):
        return None
    result: dict[str, Any] = opened(span.result, lenient=True)
    # The cost is a field of divebook, and not of the response.
    return {"kind": "response", **{name: value for name, value in result.items() if name != COST}}


def _system(instructions: str | None) -> list[CallMessage]:
    return [CallMessage("system", [text_block(instructions)])] if instructions else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


# --- tool calls ------------------------------------------------------------------------------------------------------
#
# A call exists as soon as the answer of a model requests it. A call that was denied, or that waits for an approval, has
# no operation. A call that delegates work to another agent has no operation either, only the turn of that agent. The
# cost of a call is the cost of the agents that it delegated work to.


Outcome: TypeAlias = Literal["", "returned", "failed", "denied", "retry", "unknown"]
"""Outcome of a tool call, in one word.

``returned``. ``failed``: the model received an error. ``denied``: by a rule or a person. ``retry``: the model was
asked to call again, because there is no such tool, the arguments do not fit, or the tool requested other arguments.
``unknown``: the call may have taken effect, and a person is asked. Empty while the call waits or runs, and if no
result was recorded.
"""
UNKNOWN: Outcome = "unknown"
PUT_OFF = "approval_required", "call_deferred"
"""Kinds of recorded results that mean that a tool call waits for approval by a person, or for a result from a
person.
"""


@dataclass(slots=True)
class ToolCallView:
    """Tool call that a model requested, with its result. Read-only: the data belongs to the log."""

    view: RequestView
    """Request to the model whose response requested the call."""
    id: str
    """Id that the model chose for the call."""
    key: str
    """Name of the call within the turn, such as ``tool-2-call_7``."""
    block: Block
    """Content block of the response that requested the call: ``tool``, ``arguments``."""
    span: Span | None = None
    """Span of the call's operation: times, status, error, attempts. None if the call has no operation; the last one if
    the call had several rounds.
    """
    turn: Span | None = None
    """Span of the turn of the agent to which the call delegated work; None for other calls."""
    reply: Mapping[str, Any] | None = None
    """Reply that the model received for a call without an operation: ``text``, ``outcome``."""
    usage: dict[str, int] = field(default_factory=dict)
    """Token counts of the agents to which the call delegated work, directly and indirectly."""

    @property
    def tool(self) -> str:
        """Original name of the tool. The model may know a tool of an MCP server by another name."""
        return str(self._parameters.get("tool", self.block["tool"]))

    @property
    def agent(self) -> str:
        """Name of the agent whose model made the call."""
        return self.view.agent

    @property
    def request(self) -> int:
        """Number of the model request, counted within its turn, whose response asks for the call."""
        return self.view.n

    @property
    def server(self) -> str | None:
        """Name of the MCP server that provides the tool; None if the tool is a Python function."""
        server = self._parameters.get("server")
        return server if isinstance(server, str) and server else None

    @property
    def arguments(self) -> Any:
        """Arguments of the call: those that the model wrote, unless a person changed them."""
        return opened(self._parameters.get("arguments", self.block["arguments"]), lenient=True)

    @property
    def under_way(self) -> Span | None:
        """Span (start, end and status) of the call: the span of its operation, or of the turn that the call started.
        None if the call has not started.
        """
        return self.span or self.turn

    @property
    def status(self) -> str:
        """Status of the call: ``waiting``, ``running``, ``completed``, ``failed`` or ``cancelled``."""
        if self.under_way is not None and not self.is_put_off:
            return self.under_way.status
        return COMPLETED if self.outcome else "waiting"

    @property
    def is_put_off(self) -> bool:
        """True if the call waits for a person (an approval, or a result that a person provides) and has not been made
        since.
        """
        return self.span is not None and mapping_in(self.span.result).get("kind") in PUT_OFF

    @property
    def outcome(self) -> Outcome:
        """Outcome of the call, one of the words of the type `Outcome`."""
        span = self.under_way
        return _outcome_of_reply(self.reply) if span is None or self.is_put_off else _outcome(self, span)

    @property
    def result(self) -> Any:
        """Result of the tool, or a reply such as a denial that the model got instead; None if there is neither."""
        if self.span is not None and not self.is_put_off:
            payload = mapping_in(opened(self.span.result, lenient=True))
            return payload.get("result", payload.get("message"))
        if self.turn is not None:
            answer = mapping_in(opened(self.turn.result, lenient=True))
            return answer.get("text", answer.get("output"))
        return None if self.reply is None else self.reply["text"]

    @property
    def changed(self) -> int:
        """Number of the latest event that is about the tool call."""
        return max(span.sequences[-1] for span in (self.view.span, self.span, self.turn) if span is not None)

    @property
    def _parameters(self) -> Mapping[str, Any]:
        return {} if self.span is None else mapping_in(self.span.parameters)


_REPLY_OUTCOMES: Mapping[Any, Outcome] = {"success": "returned", "retried": "retry", "denied": "denied"}
"""Outcome by pydantic-ai's word for a call that was answered without calling the tool."""


def _outcome_of_reply(reply: Mapping[str, Any] | None) -> Outcome:
    """Return the outcome of a tool call that got a reply without the tool being called, such as a denial; an empty
    string if there was no reply.
    """
    if reply is None:
        return ""
    return "denied" if str(reply["text"]).startswith(DENIALS) else _REPLY_OUTCOMES.get(reply["outcome"], "failed")


def _outcome(call: ToolCallView, span: Span) -> Outcome:
    if span.status == WAITING:
        return UNKNOWN
    if span.status == FAILED:
        return "failed"
    if call.span is None:
        return "returned" if span.status == COMPLETED else ""
    payload = mapping_in(span.result)
    match payload.get("kind"):
        case "input_required":
            return ""
        # Without a payload, the call was interrupted, or it waits.
        case None if span.status != COMPLETED:
            return ""
        case "tool_failed":
            return "denied"  # any other one has failed: `divebook.projections.spans.tool_failure`
        case "model_retry" | "validation_error":
            return "retry"
    return "returned"


def tool_calls_in(spans: Iterable[Span]) -> list[ToolCallView]:
    """Return the tool calls that the responses of models in a log requested, in the order of the responses."""
    operations = [span for span in spans if span.kind == "operation"]
    operations_by_place, turns = _by_place(operations)
    calls: list[ToolCallView] = []
    views = requests_in(operations)
    # A reply is recorded with the request after the call.
    replies = _replies(views)
    for view in views:
        for call in _asked_for(view):
            # A call is identified by the turn that requested it and by its key in this turn.
            place = view.span.holder, f"{placed(view.span)[0]}{call.key}"
            call.span = operations_by_place.get(place)
            call.turn = turns.get(place)
            call.reply = replies.get((view.turn, call.id))
            calls.append(call)
    # Consumption is added last, when the turns that calls started are known.
    _spend(operations, {call.turn.index: call for call in calls if call.turn is not None})
    return calls


def _by_place(operations: Iterable[Span]) -> tuple[dict[tuple[int, str], Span], dict[tuple[int, str], Span]]:
    """Return two mappings from the places of tool calls: to the operation of the call, and to the turn that the call
    started. A place is a pair: the index of the span of the turn that contains the call, and the key of the call.
    """
    operations_by_place: dict[tuple[int, str], Span] = {}
    turns: dict[tuple[int, str], Span] = {}
    for span in operations:
        if span.type == TOOL_CALL:
            operations_by_place[span.holder, call_of(span)] = span  # of rounds the last
        elif span.type == AGENT_TURN and span.holder >= 0:
            turns[span.holder, call_of(span)] = span
    return operations_by_place, turns


def call_of(span: Span) -> str:
    """Return the key that identifies a tool call within its turn. The argument is the span of the call's operation, or
    of the turn that the call started. Suffixes for repetitions are removed.
    """
    key = str(span.key).partition("@")[0]
    # A turn that a call started: "tool-2-call_7/turn", or "tool-2-call_7/anew-1/turn" if it was started again. An
    # operation in its second round: "tool-2-call_7#1".
    return key.removesuffix("/turn").partition("/anew-")[0] if span.type == AGENT_TURN else key.partition("#")[0]


def _asked_for(view: RequestView) -> Iterator[ToolCallView]:
    """Yield the tool calls in the response to a request. The call of the special tool by which a model returns its
    structured output is left out.
    """
    outputs = output_names(view)
    for block in answer_blocks(view):
        # The result tool only carries the output of the model, and calls nothing.
        if block.get("type") == "tool_call" and block["tool"] not in outputs:
            name = str(block["id"])
            yield ToolCallView(view, name, f"tool-{view.n}-{call_name(name)}", block)


def answer_blocks(view: RequestView) -> list[Block]:
    """Return the content blocks (texts, thinking, tool calls) of the response to a request; an empty list if it has
    none yet.
    """
    return [block for message in people_messages([view.response or {}]) for block in message.content]


def output_names(view: RequestView) -> list[str]:
    """Return the names of the special tools by which a model returns structured output in a request."""
    return [str(tool.get("name", "")) for tool in mappings_in(view.output.get("output_tools"))]


def _replies(views: Sequence[RequestView]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the replies to tool calls, by turn and id of the call. They are contained in the requests that follow the
    calls.
    """
    replies: dict[tuple[str, str], dict[str, Any]] = {}
    for view in views:
        for message in mappings_in((view.span.parameters or {}).get("new")):
            for part in mappings_in(message.get("parts")):
                # Calls that were answered without an operation: denials, unknown tools, wrong arguments.
                kind = part.get("part_kind")
                if kind in ("tool-return", "retry-prompt") and isinstance(part.get("tool_call_id"), str):
                    outcome = "retried" if kind == "retry-prompt" else part.get("outcome", "success")
                    replies[view.turn, part["tool_call_id"]] = {"text": part.get("content"), "outcome": outcome}
    return replies


def _spend(operations: Iterable[Span], calls_by_turn: Mapping[int, ToolCallView]) -> None:
    """Add the token counts of each model request to the tool calls during which it was made, directly or in a delegated
    turn.
    """
    holders = {span.index: span.holder for span in operations if span.type == AGENT_TURN}
    for span in operations:
        if span.type != AGENT_RESPONSE or not span.usage:
            continue
        turn = span.holder
        # Upwards: the request counts for the call that started its turn, for the call that started the turn around
        # that, and so on.
        while turn >= 0:
            call = calls_by_turn.get(turn)
            if call is not None:
                names = {**call.usage, **span.usage}
                call.usage = {name: call.usage.get(name, 0) + span.usage.get(name, 0) for name in names}
            turn = holders.get(turn, -1)
