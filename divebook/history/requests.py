"""The requests of agents to their models, put together from a log: what was sent, with what, and what came back.

The log keeps of a request only what is new in it (`divebook.agents.requests` writes it; neither needs the other):

- ``kept``: how many messages of the request before still stand in front, and ``new``: those behind them, where
  ``{"response": n}`` is the result of request n, and ``{"tool": id}`` what that call returned; where neither is said,
  all stand, and new are the response before and what its calls returned, in their order;
- the setting (model, settings, instructions, tools, output): what is not as it was in the request before.

So a turn of 200 calls is read in one pass (`tests/history/test_requests.py`). Nothing here needs pydantic-ai: messages
have the JSON form in which it writes its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from divebook.engine.bounds import NANODOLLARS
from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, CACHED_RESPONSE, TOOL_CALL
from divebook.events import Event
from divebook.events.recorded import opened
from divebook.history.messages import CallMessage, mapping_in, mappings_in, request_messages, spoken_in
from divebook.history.spans import COST, Span, spans_of
from divebook.text.shown import plural
from divebook.workflow.blocks import text_block

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ANEW = re.compile(r"anew-\d+/$")
"""At the end of the prefix of a turn that was begun anew; `divebook.agents.changed` makes it."""
_REQUEST, _CALL = re.compile(r"model-(\d+)"), re.compile(r"tool-\d+-([^#]+)(?:#\d+)?")


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
        said, before = span.parameters or {}, self._sent.get(number - 1, self.base)
        kept = said.get("kept") if "new" in said else len(before)
        marks = mappings_in(said.get("new")) if "new" in said else self._usual(number)
        new = [self._message(mark) for mark in marks]
        sent = [*before[: kept if isinstance(kept, int) and kept > 0 else 0], *new]
        setting = {**self._settings.get(number - 1, {}), **opened(mapping_in(span.setting), lenient=True)}
        self._sent[number], self._settings[number] = sent, setting
        self._requests[number], self.latest = span, number
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
