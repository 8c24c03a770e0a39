"""The requests of agents to their models, put together from a log: what was sent, with what, and what came back.

The log keeps of a request only what is new in it (`divebook.agents.request_record` writes it; neither needs the other):

- ``kept``: how many messages of the request before still stand in front, and ``new``: those behind them, where
  ``{"response": n}`` is the result of request n, and ``{"tool": id}`` what that call returned; where neither is said,
  all stand, and new are the response before and what its calls returned, in their order;
- the setting (model, settings, instructions, tools, output): what is not as it was in the request before.

So a turn of 200 calls is read in one pass (`tests/history/test_requests.py`). Nothing here needs pydantic-ai: messages
have the JSON form in which it writes its own.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from divebook.engine.bounds import NANODOLLARS
from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, CACHED_RESPONSE, TOOL_CALL
from divebook.events import Event
from divebook.events.catalog import COMPLETED, FAILED, WAITING
from divebook.events.codec import encode_shown
from divebook.events.recorded import opened
from divebook.events.values import normalize
from divebook.projections.spans import COST, DENIALS, Span, spans_of
from divebook.text.format import plural
from divebook.workflow.step import base64_block, text_block

# What models saw and answered, as messages: read off what the log says of a call.
#
# `divebook.agents` makes its requests of the same messages, so that what is read here is what was sent
# (tests/history/test_messages.py). Messages of agents with tools come from the log in pydantic-ai's own JSON form,
# which `divebook.projections.requests` puts together; here they become what people look at.


Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Block: TypeAlias = Mapping[str, Any]

_ROLES: Mapping[str, Role] = {"system-prompt": "system", "instruction-delta": "system", "tool-return": "tool"}
"""By kind of part: who speaks in it, where that is not the user."""


class CallMessage(NamedTuple):
    """One message of a model call."""

    role: Role
    content: Sequence[Block]
    """Its blocks: texts, images, documents; of an assistant also ``thinking`` (``text``) and ``tool_call`` (``id``,
    ``tool``, ``arguments``); of a tool ``tool_result`` (``id``, ``tool``, ``content``, ``outcome``)."""

    @property
    def text(self) -> str:
        """Its texts, a line each; of a tool what it returned."""
        return "\n".join(text for block in self.content if (text := _text_of(block)) is not None)


def request_messages(parameters: Mapping[str, Any]) -> list[CallMessage]:
    """Return what a model is asked: instructions, the agent's context, then content and prompt."""
    instructions = parameters.get("instructions")
    context = mappings_in(parameters.get("context"))
    asked = [*mappings_in(parameters.get("content")), text_block(parameters.get("prompt", ""))]
    return [
        *([CallMessage("system", [text_block(instructions)])] if instructions else []),
        *([CallMessage("user", context)] if context else []),
        CallMessage("user", asked),
    ]


def messages_of(call: Span) -> list[CallMessage]:
    """Return what a model was asked, and what it answered, where it has; nothing of other operations.

    Of an agent with tools this is what was new in the request, as far as the log says it there; the whole is
    `divebook.projections.requests.requests_of`.
    """
    if call.type != AGENT_RESPONSE or call.parameters is None:
        return []
    is_of_turn = "request" in call.parameters
    asked = spoken_in(mappings_in(call.parameters.get("new"))) if is_of_turn else request_messages(call.parameters)
    return [*asked, *spoken_in([call.result] if isinstance(call.result, Mapping) else [])]


def spoken_in(messages: Sequence[Mapping[str, Any]]) -> list[CallMessage]:
    """Return messages in pydantic-ai's JSON form as what people look at; what is cut out of them is left out."""
    return [said for message in messages for said in _spoken(message)]


def _spoken(message: Mapping[str, Any]) -> list[CallMessage]:
    """Return a request or response; parts that follow each other and have one speaker are one message."""
    said: list[tuple[Role, list[Block]]] = []
    is_answer = message.get("kind", "response") == "response"
    for part in mappings_in(message.get("parts")):
        kind = str(part.get("part_kind"))
        blocks = _blocks(kind, part)
        role: Role = "assistant" if is_answer else _ROLES.get(kind, "user")
        if not blocks:
            continue
        if said and said[-1][0] == role and role != "tool":
            said[-1][1].extend(blocks)
        else:
            said.append((role, blocks))
    return [CallMessage(role, blocks) for role, blocks in said]


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
    items = content if isinstance(content, list | tuple) else [content]
    return [block for item in items if (block := _block(item)) is not None]


def _named(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": part.get("tool_call_id"), "tool": part.get("tool_name")}


def _arguments(said: Any) -> Any:
    """Return the arguments of a call, which models write as JSON; what is no JSON stays as they wrote it."""
    if not isinstance(said, str):
        return {} if said is None else said
    try:
        return json.loads(said) if said else {}
    except ValueError:
        return said


def _block(item: Any) -> Block | None:
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
    """Return a mapping; what was cut out of a saved log is an empty one."""
    return value if isinstance(value, Mapping) else {}


def mappings_in(value: Any) -> list[Mapping[str, Any]]:
    """Return the mappings of a list; in a saved log some may have been cut out, or all."""
    return [part for part in value if isinstance(part, Mapping)] if isinstance(value, list | tuple) else []


_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ANEW = re.compile(r"anew-\d+/$")
"""At the end of the prefix of a turn that was begun anew; `divebook.agents.turn_compatibility` makes it."""
_REQUEST = re.compile(r"model-(\d+)")
_CALL = re.compile(r"tool-\d+-([^#]+)(?:#\d+)?")


def call_name(tool_call_id: str) -> str:
    """Return how the key of a tool call names it: by the model's own id, where that can stand in a key.

    >>> call_name("call_7"), call_name("call 7")
    ('call_7', '937f63e36cfe')
    """
    if _PLAIN_NAME.fullmatch(tool_call_id):
        return tool_call_id
    return hashlib.sha256(tool_call_id.encode("utf-8", "surrogatepass")).hexdigest()[:12]


@dataclass(frozen=True, slots=True, repr=False)
class RequestView:
    """One request to a model; what it holds belongs to the log, and is not to be changed."""

    n: int
    """Its number in its turn, from 1."""
    agent: str
    model: str | None
    """Who was asked; who answered is in `response`."""
    settings: Mapping[str, Any]
    """Temperature and the like; empty for agents without tools, whose log does not say them."""
    instructions: str | None
    messages: Sequence[Mapping[str, Any]]
    """What was sent, in pydantic-ai's JSON form, without the instructions."""
    tools: Sequence[Mapping[str, Any]]
    """Definitions of the tools that the model could call: ``name``, ``description``, ``parameters_json_schema``."""
    output: Mapping[str, Any]
    """What pydantic-ai was to make the model answer with, where that is more than text."""
    span: Span
    """Its operation: times, status, error, attempts."""
    turn: str
    """The same for all requests of one turn, and for no others of the log."""
    added: Sequence[CallMessage]
    """What people look at of what this request said first."""

    def __repr__(self) -> str:
        """Return what fits on a line: what was sent and answered may fill pages."""
        count = f"{plural(len(self.messages), 'message')}, {plural(len(self.tools), 'tool')}"
        return f"<request {self.n} of {self.agent} to {self.model}: {count}, {self.status}>"

    @property
    def response(self) -> Mapping[str, Any] | None:
        """What came back, in pydantic-ai's JSON form; None while it runs, or where it failed."""
        return _response(self.span)

    @property
    def status(self) -> str:
        """``running``, ``completed``, ``failed`` or ``cancelled``."""
        return self.span.status

    @property
    def error(self) -> str | None:
        """Why it failed."""
        return self.span.error

    @property
    def usage(self) -> Mapping[str, int]:
        """What it consumed: ``input_tokens``, ``output_tokens``, ...; nothing where it was `cached`."""
        return self.span.usage

    @property
    def cost(self) -> float | None:
        """US dollars, where a price is known."""
        cost = self.span.usage.get("cost")
        return None if cost is None else cost / NANODOLLARS

    @property
    def cached(self) -> bool:
        """Whether the response came from the agent's cache, and no model was asked."""
        return self.span.type == CACHED_RESPONSE

    @property
    def said(self) -> list[CallMessage]:
        """What was sent and what came back, as people look at it."""
        asked = _system(self.instructions) + spoken_in(self.messages)
        return asked + spoken_in([] if self.response is None else [self.response])


def requests_of(events: Iterable[Event]) -> list[RequestView]:
    """Return the requests that one execution's agents made, in the order of the log."""
    return requests_in(spans_of(events))


def requests_in(spans: Iterable[Span]) -> list[RequestView]:
    """Return the requests among the spans of one log; a request that was made again has its last attempt."""
    turns: dict[str, _Turn] = {}
    views: dict[tuple[int, int], RequestView] = {}
    for span in spans:
        if span.kind != "operation":
            continue
        turn, name = _place(span)
        number = _REQUEST.fullmatch(name)
        if span.type in (AGENT_RESPONSE, CACHED_RESPONSE) and number is None:
            views[span.index, 1] = _plain_view(span)
        elif span.type in (AGENT_RESPONSE, CACHED_RESPONSE, AGENT_TURN, TOOL_CALL):
            known = turns.get(turn) or turns.setdefault(turn, _Turn(turn, _base_of(turn, turns)))
            if number is None:
                known.take(span, name)
                continue
            if int(number[1]) < known.latest:  # another attempt at the step: it begins anew
                known = turns[turn] = _Turn(turn, known.base)
            views[id(known), int(number[1])] = known.view(span, int(number[1]))
    return sorted(views.values(), key=lambda view: view.span.index)


def _base_of(turn: str, turns: Mapping[str, _Turn]) -> list[Mapping[str, Any]]:
    """Return what was said in the thread before a turn that was begun anew: what was said before it began at first."""
    first = turns.get(_ANEW.sub("", turn)) if _ANEW.search(turn) else None
    return [] if first is None else first.base


def conversation_in(views: Iterable[RequestView]) -> list[CallMessage]:
    """Return what was said in turns, once each, in order; what a compaction took out of later requests is there too."""
    said: list[CallMessage] = []
    instructions: dict[str, str | None] = {}
    for view in views:
        if instructions.get(view.turn) != view.instructions:
            said += _system(view.instructions)
            instructions[view.turn] = view.instructions
        said += view.added
        said += spoken_in([] if view.response is None else [view.response])
    return said


@dataclass(slots=True)
class _Turn:
    """The requests of one turn, read in the order in which they were made."""

    name: str
    base: list[Mapping[str, Any]] = field(default_factory=list)
    """Messages of earlier turns of the same thread."""
    latest: int = 0
    _sent: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)
    _settings: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    _requests: dict[int, Span] = field(default_factory=dict)
    _calls: dict[str, Span] = field(default_factory=dict)

    def take(self, span: Span, name: str) -> None:
        """Take the turn itself, or a tool call of it."""
        if span.type == AGENT_TURN:
            thread = mapping_in(mapping_in(span.setting).get("thread"))
            chunks = thread.get("history")
            for chunk in chunks if isinstance(chunks, list) else []:
                self.base += mappings_in(opened(chunk, lenient=True))
        elif named := _CALL.fullmatch(name):
            self._calls[named[1]] = span

    def view(self, span: Span, number: int) -> RequestView:
        """Return a request, which builds on the one before."""
        said = span.parameters or {}
        before = self._sent.get(number - 1, self.base)
        kept = said.get("kept") if "new" in said else len(before)
        marks = mappings_in(said.get("new")) if "new" in said else self._usual(number)
        new = [self._message(mark) for mark in marks]
        sent = [*before[: kept if isinstance(kept, int) and kept > 0 else 0], *new]
        setting = {**self._settings.get(number - 1, {}), **opened(mapping_in(span.setting), lenient=True)}
        self._sent[number] = sent
        self._settings[number] = setting
        self._requests[number] = span
        self.latest = number
        told = [message for mark, message in zip(marks, new, strict=True) if "response" not in mark]
        return RequestView(
            n=number,
            agent=str(said.get("agent", "")),
            model=setting.get("model"),
            settings=mapping_in(setting.get("settings")),
            instructions=_text(setting.get("instructions")),
            messages=sent,
            tools=mappings_in(setting.get("tools")),
            output=mapping_in(setting.get("output")),
            span=span,
            turn=self.name,
            added=spoken_in([message for message in told if message not in before]),
        )

    def _usual(self, number: int) -> list[Mapping[str, Any]]:
        """Return what is new in a request that does not say it."""
        answer = self._message({"response": number - 1})
        calls = (part for part in mappings_in(answer.get("parts")) if part.get("part_kind") == "tool-call")
        returned = [{"tool": call.get("tool_call_id")} for call in calls]
        return [{"response": number - 1}, {"kind": "request", "parts": returned}]

    def _message(self, mark: Mapping[str, Any]) -> Mapping[str, Any]:
        if "response" in mark:
            span = self._requests.get(mark["response"])
            return (None if span is None else _response(span)) or {"kind": "response", "parts": []}
        return {**mark, "parts": [self._part(part) for part in mappings_in(mark.get("parts"))]}

    def _part(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        call_id = part.get("tool")
        if "part_kind" in part or not isinstance(call_id, str):
            return part
        call = self._calls.get(call_name(call_id))
        result = None if call is None else mapping_in(opened(call.result, lenient=True)).get("result")
        tool = None if call is None else (call.parameters or {}).get("tool")
        returned = {"tool_name": tool or "", "content": result, "tool_call_id": call_id, "part_kind": "tool-return"}
        # data that look like a file of pydantic-ai are none: with files, the request says the whole part
        return {**returned, "content_file_digests": []} if isinstance(result, dict | list) else returned


def _plain_view(span: Span) -> RequestView:
    """Return the one request of an agent without tools, which the log keeps in words of its own."""
    said = span.parameters or {}
    asked = [message for message in request_messages(said) if message.role != "system"]
    messages = [_user_message(message.content, is_text=not said.get("content")) for message in asked[-1:]]
    context = [_user_message(message.content, is_text=False) for message in asked[:-1]]
    return RequestView(
        n=1,
        agent=str(said.get("agent", "")),
        model=span.model,
        settings={},
        instructions=_text(said.get("instructions")),
        messages=[*context, *messages],
        tools=[],
        output={},
        span=span,
        turn=str(span.operation_id),
        added=asked,
    )


def _user_message(blocks: Sequence[Mapping[str, Any]], *, is_text: bool) -> Mapping[str, Any]:
    contents = list(map(_content, blocks))
    body = contents[-1] if is_text else contents
    return {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": body}]}


def _content(block: Mapping[str, Any]) -> Any:
    """Return a content block in pydantic-ai's JSON form."""
    if block.get("type") == "text":
        return str(block["text"])
    source = mapping_in(block.get("source"))
    if "data" in source:
        return {"kind": "binary", "media_type": source.get("media_type"), "data": source["data"]}
    return {"kind": f"{block.get('type')}-url", "url": source.get("url")}


def placed(span: Span) -> tuple[str, str]:
    """Return the key of an operation in two parts: where in its step the turn is, and its name in the turn."""
    prefix, slash, name = str(span.key).partition("@")[0].rpartition("/")
    return prefix + slash, name


def _place(span: Span) -> tuple[str, str]:
    """Return what is the same for all operations of one turn, and the name of the operation in it."""
    prefix, name = placed(span)
    holder = span.operation_id if name == "turn" and span.type == AGENT_TURN else span.within
    return "/".join(map(str, (span.path, span.step, span.visit, span.iteration, holder, prefix))), name


def _response(span: Span) -> Mapping[str, Any] | None:
    if not isinstance(span.result, Mapping):
        return None
    found: dict[str, Any] = opened(span.result, lenient=True)
    return {"kind": "response", **{name: value for name, value in found.items() if name != COST}}


def _system(instructions: str | None) -> list[CallMessage]:
    return [CallMessage("system", [text_block(instructions)])] if instructions else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


# The calls of tools that models asked for, read off a log: with what, what came of them, what they cost.
#
# A call is there from the answer that asks for it: one that was denied, or waits to be approved, has no operation. Work
# that an agent is given has none of its own either, but its turn. A tool has no cost of its own: what a call cost is
# what was spent by the agents that it gave work.


Outcome: TypeAlias = Literal["", "returned", "failed", "denied", "retry", "unknown"]
"""``returned``; ``failed``: the model heard of an error; ``denied`` by a rule or a person; ``retry``: the model heard
that it must call otherwise, since there is no such tool, its arguments do not fit, or it wanted others; ``unknown``: it
may have taken effect, and a person is asked; empty while it waits or runs, and where it has not come back."""
UNKNOWN: Outcome = "unknown"
PUT_OFF = "approval_required", "call_deferred"
"""What a tool of pydantic-ai says of a call that waits for a person, who approves it or says what it comes to."""


@dataclass(slots=True)
class ToolCallView:
    """One call of a tool; what it holds belongs to the log, and is not to be changed."""

    view: RequestView
    """The request whose answer asked for it."""
    id: str
    """As the model named it."""
    key: str
    """Its name within the turn, such as ``tool-2-call_7``."""
    asked: Block
    """What the model asked for: ``tool``, ``arguments``."""
    span: Span | None = None
    """Its operation: times, status, error, attempts; of several rounds the last. None where it has none."""
    turn: Span | None = None
    """The turn of the agent that it gave work."""
    told: Mapping[str, Any] | None = None
    """What the model was told of a call without an operation: ``text``, ``outcome``."""
    usage: dict[str, int] = field(default_factory=dict)
    """What was consumed by agents that it gave work, and by all below them."""

    @property
    def tool(self) -> str:
        """What was called, by its own name: one of a server may be called under another one."""
        return str(self._given.get("tool", self.asked["tool"]))

    @property
    def agent(self) -> str:
        """Who called it."""
        return self.view.agent

    @property
    def request(self) -> int:
        """Number of the request whose answer asked for it."""
        return self.view.n

    @property
    def server(self) -> str | None:
        """The MCP server that has it; None for a function."""
        server = self._given.get("server")
        return server if isinstance(server, str) and server else None

    @property
    def arguments(self) -> Any:
        """What it was called with, after a person's changes; before it is called what the model wrote."""
        return opened(self._given.get("arguments", self.asked["arguments"]), lenient=True)

    @property
    def under_way(self) -> Span | None:
        """What says when it ran: its operation, else the turn that it led to."""
        return self.span or self.turn

    @property
    def status(self) -> str:
        """``waiting``, ``running``, ``completed``, ``failed``, ``cancelled``."""
        if self.under_way is not None and not self.is_put_off:
            return self.under_way.status
        return COMPLETED if self.outcome else "waiting"

    @property
    def is_put_off(self) -> bool:
        """Whether its tool wanted a person to approve it, or to say what it comes to, and it was not made since."""
        return self.span is not None and mapping_in(self.span.result).get("kind") in PUT_OFF

    @property
    def outcome(self) -> Outcome:
        """What came of it, in a word."""
        span = self.under_way
        return _told_outcome(self.told) if span is None or self.is_put_off else _outcome(self, span)

    @property
    def result(self) -> Any:
        """What it returned, or what the model was told instead; None where nothing came."""
        if self.span is not None and not self.is_put_off:
            payload = mapping_in(opened(self.span.result, lenient=True))
            return payload.get("result", payload.get("message"))
        if self.turn is not None:
            answer = mapping_in(opened(self.turn.result, lenient=True))
            return answer.get("text", answer.get("output"))
        return None if self.told is None else self.told["text"]

    @property
    def changed(self) -> int:
        """The event that changed it last, as far as its own spans say."""
        return max(span.sequences[-1] for span in (self.view.span, self.span, self.turn) if span is not None)

    @property
    def _given(self) -> Mapping[str, Any]:
        return {} if self.span is None else mapping_in(self.span.parameters)


_TOLD: Mapping[Any, Outcome] = {"success": "returned", "retried": "retry", "denied": "denied"}
"""What pydantic-ai calls the outcome of a call that it, or the guard around all tools, answered by itself."""


def _told_outcome(told: Mapping[str, Any] | None) -> Outcome:
    """Return what came of a call that was never made."""
    if told is None:
        return ""
    return "denied" if str(told["text"]).startswith(DENIALS) else _TOLD.get(told["outcome"], "failed")


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
        case None if span.status != COMPLETED:
            return ""
        case "tool_failed":
            return "denied"  # any other one has failed: `divebook.projections.spans.tool_failure`
        case "model_retry" | "validation_error":
            return "retry"
    return "returned"


def tool_calls_in(spans: Iterable[Span]) -> list[ToolCallView]:
    """Return the calls that the answers in one log asked for, in the order of these."""
    operations = [span for span in spans if span.kind == "operation"]
    made, turns = _made(operations)
    calls: list[ToolCallView] = []
    views = requests_in(operations)
    told = _told(views)
    for view in views:
        for call in _asked_for(view):
            place = view.span.holder, f"{placed(view.span)[0]}{call.key}"
            call.span, call.turn, call.told = made.get(place), turns.get(place), told.get((view.turn, call.id))
            calls.append(call)
    _spend(operations, {call.turn.index: call for call in calls if call.turn is not None})
    return calls


def _made(operations: Iterable[Span]) -> tuple[dict[tuple[int, str], Span], dict[tuple[int, str], Span]]:
    """Return the operations of calls, and the turns that calls led to, by the turn that holds them and the key."""
    made: dict[tuple[int, str], Span] = {}
    turns: dict[tuple[int, str], Span] = {}
    for span in operations:
        if span.type == TOOL_CALL:
            made[span.holder, call_of(span)] = span  # of rounds the last
        elif span.type == AGENT_TURN and span.holder >= 0:
            turns[span.holder, call_of(span)] = span
    return made, turns


def call_of(span: Span) -> str:
    """Return which call in its turn an operation is: all rounds of one, and the turn that it led to, are the same."""
    key = str(span.key).partition("@")[0]
    return key.removesuffix("/turn").partition("/anew-")[0] if span.type == AGENT_TURN else key.partition("#")[0]


def _asked_for(view: RequestView) -> Iterator[ToolCallView]:
    """Yield the calls that an answer asks for; the call that is the answer itself is none."""
    outputs = output_names(view)
    for block in answered(view):
        if block.get("type") == "tool_call" and block["tool"] not in outputs:
            name = str(block["id"])
            yield ToolCallView(view, name, f"tool-{view.n}-{call_name(name)}", block)


def answered(view: RequestView) -> list[Block]:
    """Return the blocks of an answer: texts, thoughts, calls; none while there is no answer."""
    return [block for said in spoken_in([view.response or {}]) for block in said.content]


def output_names(view: RequestView) -> list[str]:
    """Return the names of calls by which a model gives its answer."""
    return [str(tool.get("name", "")) for tool in mappings_in(view.output.get("output_tools"))]


def _told(views: Sequence[RequestView]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what requests say that calls returned, by turn and by the model's name of the call."""
    told: dict[tuple[str, str], dict[str, Any]] = {}
    for view in views:
        for message in mappings_in((view.span.parameters or {}).get("new")):
            for part in mappings_in(message.get("parts")):
                kind = part.get("part_kind")
                if kind in ("tool-return", "retry-prompt") and isinstance(part.get("tool_call_id"), str):
                    outcome = "retried" if kind == "retry-prompt" else part.get("outcome", "success")
                    told[view.turn, part["tool_call_id"]] = {"text": part.get("content"), "outcome": outcome}
    return told


def _spend(operations: Iterable[Span], given: Mapping[int, ToolCallView]) -> None:
    """Count what requests consumed for all calls above them."""
    holders = {span.index: span.holder for span in operations if span.type == AGENT_TURN}
    for span in operations:
        if span.type != AGENT_RESPONSE or not span.usage:
            continue
        turn = span.holder
        while turn >= 0:
            if (call := given.get(turn)) is not None:
                names = {**call.usage, **span.usage}
                call.usage = {name: call.usage.get(name, 0) + span.usage.get(name, 0) for name in names}
            turn = holders.get(turn, -1)
