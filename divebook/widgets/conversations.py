"""What was said in a turn of an agent, as views show it: its requests, and the calls that their answers asked for.

The spans of one turn are enough, each with what it was given and what came of it; `divebook.history.requests` puts
them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, CACHED_RESPONSE, Place
from divebook.events.readable import readable
from divebook.history.messages import CallMessage, spoken_in
from divebook.history.requests import RequestView, call_name, requests_in
from divebook.history.spans import Span
from divebook.history.tool_calls import DENIED, Outcome, ToolCallView, tool_calls_in
from divebook.text.shown import cut, one_line
from divebook.widgets.positions import Budget
from divebook.widgets.protocol import Conversation, ConversationCall, ConversationPart, ConversationRequest
from divebook.widgets.source import encodable, shown

CONVERSATIONS = (AGENT_TURN, AGENT_RESPONSE, CACHED_RESPONSE)
"""Types of operation in which something is said."""
MOST_REQUESTS = 60
"""The newest of a turn."""
MOST_ROUNDS = 4
"""In which a server may ask before a call returns, that are looked for."""
MOST_TEXT = 20_000
"""Characters of one text."""
NAME = 120
QuestionId: TypeAlias = Callable[..., str]
Speaker: TypeAlias = Literal["system", "user", "retry", "thinking", "assistant", "call", "result"]


def conversation_of(
    turn: Span, inside: Sequence[Span], places: Mapping[str, int], question_id: QuestionId, *, since: int = 0
) -> Conversation:
    """Return what was said in a turn, or with a single request.

    Parameters
    ----------
    inside
        The spans that the turn holds: none of a single request.
    places
        The spans of the views, by operation.
    question_id
        Returns the id of the question about something.
    since
        What has not changed since this event is left out.
    """
    views = [view for view in requests_in([turn, *inside]) if view.span.operation_id != turn.operation_id or not inside]
    calls = _Calls(turn, inside, places, question_id)
    thread = (turn.parameters or {}).get("thread")
    told = views[-MOST_REQUESTS:]
    asked = [call for view in told for call in calls.of(view, views)]
    return Conversation(
        type="conversation",
        view="",
        id=places.get(str(turn.operation_id), -1),
        last=0,
        agent=one_line(str((turn.parameters or {}).get("agent", "")), NAME),
        thread=one_line(str(thread.get("id", "")), NAME) if isinstance(thread, Mapping) else "",
        requests=[_request(view, places) for view in told if view.span.sequences[-1] > since],
        calls=[call for changed, call in asked if changed > since],
        error="",
    )


def newest_conversations(spans: Sequence[Span], most: int, question_id: QuestionId) -> list[Conversation]:
    """Return what was said in the newest turns and single requests of a whole log."""
    operations = [span for span in spans if span.kind == "operation"]
    turns = [span for span in operations if span.type == AGENT_TURN or (span.type in CONVERSATIONS and span.holder < 0)]
    held: dict[int, list[Span]] = {}
    for span in operations:
        held.setdefault(span.holder, []).append(span)
    places = {str(span.operation_id): span.index for span in operations}
    return [conversation_of(turn, held.get(turn.index, []), places, question_id) for turn in turns[-most:]]


def shortened(said: Conversation, texts: int) -> Conversation:
    """Return a conversation whose texts have at most so many characters."""
    requests = [_short_request(request, texts) for request in said["requests"]]
    calls = [_short_call(call, texts) for call in said["calls"]]
    return {**said, "requests": requests, "calls": calls}


def _short_request(request: ConversationRequest, texts: int) -> ConversationRequest:
    sent, answer = ([_cut(part, texts) for part in parts] for parts in (request["sent"], request["answer"]))
    return {**request, "instructions": cut(request["instructions"], texts), "sent": sent, "answer": answer}


def _short_call(call: ConversationCall, texts: int) -> ConversationCall:
    arguments = Budget(5 * texts, texts).shortened(call["arguments"])
    return {**call, "arguments": arguments, "result": cut(call["result"], texts)}


def _cut(part: ConversationPart, texts: int) -> ConversationPart:
    return {**part, "text": cut(part["text"], texts)}


def no_conversation(view: str, index: int, last: int, why: str) -> Conversation:
    """Return the answer where nothing was said."""
    return Conversation(
        type="conversation", view=view, id=index, last=last, agent="", thread="", requests=[], calls=[], error=why
    )


def sent_with(view: RequestView) -> list[ConversationPart]:
    """Return every message that went to the model with a request."""
    instructions = [_part("system", view.instructions)] if view.instructions else []
    return [*instructions, *(part for message in view.messages for part in _parts(message))]


def _request(view: RequestView, places: Mapping[str, int]) -> ConversationRequest:
    response = view.response or {}
    return ConversationRequest(
        id=places.get(str(view.span.operation_id), -1),
        number=view.n,
        model=one_line(str(response.get("model_name") or view.model or ""), NAME),
        finish=one_line(str(response.get("finish_reason") or ""), NAME),
        is_cached=view.cached,
        input_tokens=view.usage.get("input_tokens", 0),
        cached_tokens=view.usage.get("cache_read_tokens", 0),
        output_tokens=view.usage.get("output_tokens", 0),
        cost=view.cost,
        instructions=_text(view.instructions or ""),
        tools=[one_line(str(tool.get("name", "")), NAME) for tool in view.tools],
        output=one_line(", ".join(_output_names(view)), NAME),
        sent=list(_said_first(view)),
        answer=list(_answer(view)),
    )


def _said_first(view: RequestView) -> Iterator[ConversationPart]:
    """Yield what a request told the model that was no answer of its own, and no result of a call."""
    new = (view.span.parameters or {}).get("new")
    if new is None:
        yield from (_part(_speaker(message), message.text) for message in view.added)
    for message in _mappings(new):
        if "response" not in message:
            yield from (part for part in _parts(message) if part["kind"] in ("system", "user", "retry"))


def _speaker(message: CallMessage) -> Speaker:
    return "system" if message.role == "system" else "user"


def _parts(message: Mapping[str, Any]) -> Iterator[ConversationPart]:
    """Yield the parts of a message in pydantic-ai's JSON form."""
    for part in _mappings(message.get("parts")):
        is_retry = part.get("part_kind") == "retry-prompt"
        for said in spoken_in([{**message, "parts": [part]}]):
            for block in said.content:
                made = _block(block, "retry" if is_retry else said.role)
                if made is not None:
                    yield made


def _block(block: Mapping[str, Any], role: str) -> ConversationPart | None:
    match block.get("type"):
        case "tool_call":
            return _part("call", _words(block["arguments"]), str(block["tool"]))
        case "tool_result":
            return _part("result", _words(block["content"]), str(block["tool"]))
        case "thinking":
            return _part("thinking", str(block["text"]))
        case "text":
            return _part(cast("Speaker", role), str(block["text"])) if block["text"] else None
    return _part(cast("Speaker", role), f"({block.get('type')})")


def _answer(view: RequestView) -> Iterator[ConversationPart]:
    """Yield what a model thought, said and called; the call that is its answer as what it says."""
    outputs = _output_names(view)
    for block in _answered(view):
        if block.get("type") != "tool_call":
            made = _block(block, "assistant")
            if made is not None:
                yield made
        elif block["tool"] in outputs:
            yield _part("assistant", _words(block["arguments"]))
        else:
            yield _part("call", one_line(str(block["tool"]), NAME), str(block["id"]))


def _answered(view: RequestView) -> Iterator[Mapping[str, Any]]:
    yield from (block for said in spoken_in([view.response or {}]) for block in said.content)


def _output_names(view: RequestView) -> list[str]:
    return [str(tool.get("name", "")) for tool in _mappings(view.output.get("output_tools"))]


class _Calls:
    """The calls of one turn, by the request whose answer asked for them."""

    def __init__(self, turn: Span, inside: Iterable[Span], places: Mapping[str, int], question_id: QuestionId) -> None:
        self._turn, self._places, self._question_id = turn, places, question_id
        self._made = {(call.request, call.name): call for call in tool_calls_in(inside)}

    def of(self, view: RequestView, views: Sequence[RequestView]) -> Iterator[tuple[int, ConversationCall]]:
        """Yield the calls that a request led to, each with the event that changed it last."""
        outputs, known = _output_names(view), dict[str, int]()
        for block in _answered(view):
            if block.get("type") != "tool_call" or block["tool"] in outputs:
                continue
            name = str(block["id"])
            known[name] = known.get(name, 0) + 1
            key = call_name(name) + (f"~{known[name]}" if known[name] > 1 else "")
            call = self._made.get((view.n, key))
            changed, told = self._begun(view, name, call) if call is not None else _unbegun(view, block, views)
            yield changed, {**told, "questions": self._questions(view.n, key, None if call is None else call.span)}

    def _begun(self, view: RequestView, name: str, call: ToolCallView) -> tuple[int, ConversationCall]:
        seen = [span.sequences[-1] for span in (view.span, call.span, call.turn) if span is not None]
        told = _call(view.n, name, call)
        turn = -1 if call.turn is None else self._place(call.turn)
        return max(seen), {
            **told,
            "id": self._place(call.span),
            "server": one_line(call.server or "", NAME),
            "turn": turn,
        }

    def _questions(self, request: int, name: str, span: Span | None) -> list[str]:
        """Return the ids that questions about a call have; most calls have none."""
        turn, prefix = self._turn, str(self._turn.key).partition("@")[0].removesuffix("turn")
        keys = [f"{kind}-{request}-{name}" for kind in ("approve", "ask")]
        keys += [f"elicit-{request}-{name}-{number}" for number in range(1, MOST_ROUNDS + 1)]
        places = (Place(turn.path, turn.step, turn.visit, turn.iteration, f"{prefix}{key}") for key in keys)
        about = [self._question_id("question", place.operation_id) for place in places]
        unknown = [] if span is None else [self._question_id(span.operation_id, one) for one in span.sequences]
        return about + unknown

    def _place(self, span: Span) -> int:
        return self._places.get(str(span.operation_id), -1)


def _unbegun(view: RequestView, block: Mapping[str, Any], views: Iterable[RequestView]) -> tuple[int, ConversationCall]:
    """Return a call without an operation: it waits, or a later request says what it returned."""
    name = str(block["id"])
    later = [one.span.sequences[-1] for one in views if one.n == view.n + 1]
    result, outcome = _returned(name, views)
    said = _Unbegun(block["tool"], block["arguments"], result, outcome)
    return max([view.span.sequences[-1], *later]), _call(view.n, name, said)


class _Unbegun(NamedTuple):
    tool: Any
    arguments: Any
    result: str
    outcome: Outcome
    server: str | None = None


def _call(request: int, name: str, said: ToolCallView | _Unbegun) -> ConversationCall:
    return ConversationCall(
        id=-1,
        call=name,
        request=request,
        tool=one_line(str(said.tool), NAME),
        server=one_line(said.server or "", NAME),
        arguments=Budget(MOST_TEXT).shortened(shown(said.arguments)),
        result="" if said.result is None else _text(_words(said.result)),
        outcome=said.outcome,
        turn=-1,
        questions=[],
    )


def _returned(name: str, views: Iterable[RequestView]) -> tuple[str, Outcome]:
    """Return what a later request says that a call returned which has no operation of its own."""
    for view in views:
        for message in _mappings((view.span.parameters or {}).get("new")):
            for part in _mappings(message.get("parts")):
                if part.get("tool_call_id") == name and part.get("part_kind") in ("tool-return", "retry-prompt"):
                    words = _words(part.get("content"))
                    failed = part.get("outcome") == "failed" or part["part_kind"] == "retry-prompt"
                    return words, "denied" if words.startswith(DENIED) else "failed" if failed else "returned"
    return "", ""


def _words(value: Any) -> str:
    """Return a value for people: a text as it is, the texts among blocks, anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(part, str) for part in value):
        return "\n".join(value)
    return readable(value, indent=2)


def _part(kind: Speaker, text: str, call: str = "") -> ConversationPart:
    return ConversationPart(kind=kind, text=_text(text), call=encodable(call))


def _text(text: str) -> str:
    return cut(encodable(text), MOST_TEXT)


def _mappings(parts: Any) -> list[Mapping[str, Any]]:
    """Return the parts of a list; in a saved notebook some may have been left out."""
    return [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list | tuple) else []
