"""Conversations and failures as views show them.

A conversation has the requests of an agent's turn and the tool calls that the responses requested. The spans of the
turn with their data are sufficient; `divebook.projections.model_requests` reconstructs the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, CACHED_RESPONSE, Place
from divebook.events import Event
from divebook.events.codec import readable
from divebook.projections.failures import Failure, ItemNames, failure_of, is_kept, is_undoing, leaf_of, shown_kept
from divebook.projections.model_requests import (
    RequestView,
    ToolCallView,
    answer_blocks,
    mappings_in,
    output_names,
    people_messages,
    placed,
    requests_in,
    tool_calls_in,
)
from divebook.projections.spans import Span
from divebook.text.format import printed
from divebook.text.redaction import cut, head_and_tail, one_line, shared
from divebook.widgets.protocol import (
    ArgumentView,
    Conversation,
    ConversationCall,
    ConversationPart,
    ConversationRequest,
    FailureReport,
    FailureView,
    Header,
    SourceLine,
)
from divebook.widgets.source import Budget, encodable, shown

CONVERSATIONS = (AGENT_TURN, AGENT_RESPONSE, CACHED_RESPONSE)
"""Types of operations with messages."""
MOST_REQUESTS = 60
"""The newest requests of a turn that are shown."""
MOST_ROUNDS = 4
"""Questions of a server before a call returns that are looked up."""
MOST_TEXT = 20_000
"""Characters of one text."""
NAME = 120
QuestionId: TypeAlias = Callable[..., str]
Speaker: TypeAlias = Literal["system", "user", "retry", "thinking", "assistant", "call", "result"]


def conversation_of(
    turn: Span, inside: Sequence[Span], places: Mapping[str, int], question_id: QuestionId, *, since: int = 0
) -> Conversation:
    """Return the messages of a turn or of a single request.

    Parameters
    ----------
    inside
        The spans that the turn contains; empty for a single request.
    places
        The spans of the views, by operation.
    question_id
        Returns the id of the question about an object.
    since
        Requests and calls that have not changed after this event are omitted.
    """
    views = [view for view in requests_in([turn, *inside]) if view.span.operation_id != turn.operation_id or not inside]
    thread = {**(turn.parameters or {}), **(turn.setting or {})}.get("thread")
    shown_views = views[-MOST_REQUESTS:]
    numbers = _numbers(views)
    # The request after a call says what that returned which has no operation.
    later = {numbers[view.span.index] - 1: view.span.sequences[-1] for view in views}
    numbered_calls = [(numbers[call.view.span.index], call) for call in tool_calls_in([turn, *inside])]
    calls = [
        _call(call, number, places, _questions(turn, call, question_id))
        for number, call in numbered_calls
        if number >= numbers[shown_views[0].span.index] and max(call.changed, later.get(number, 0)) > since
    ]
    return Conversation(
        type="conversation",
        view="",
        id=places.get(str(turn.operation_id), -1),
        last=0,
        agent=one_line(str((turn.parameters or {}).get("agent", "")), NAME),
        thread=one_line(str(thread.get("id", "")), NAME) if isinstance(thread, Mapping) else "",
        requests=[
            _request(view, numbers[view.span.index], places) for view in shown_views if view.span.sequences[-1] > since
        ],
        calls=calls,
        error="",
    )


def _numbers(views: Sequence[RequestView]) -> dict[int, int]:
    """Return the numbers of requests that views show, by span; the numbers of a restarted turn continue."""
    numbers: dict[int, int] = {}
    shift = 0
    before = None
    for view in views:
        if before is not None and (view.turn != before.turn or view.n <= before.n):
            shift = numbers[before.span.index]
        numbers[view.span.index] = shift + view.n
        before = view
    return numbers


def newest_conversations(spans: Sequence[Span], most: int, question_id: QuestionId) -> list[Conversation]:
    """Return the newest conversations of a log; turns of delegated work only if there is room."""
    operations = [span for span in spans if span.kind == "operation"]
    turns = [span for span in operations if span.type == AGENT_TURN or (span.type in CONVERSATIONS and span.holder < 0)]
    newest = sorted(sorted(turns, key=lambda span: (span.holder < 0, span.index))[-most:], key=lambda span: span.index)
    by_holder: dict[int, list[Span]] = {}
    for span in operations:
        by_holder.setdefault(span.holder, []).append(span)
    places = {str(span.operation_id): span.index for span in operations}
    return [conversation_of(turn, by_holder.get(turn.index, []), places, question_id) for turn in newest]


def shortened(conversation: Conversation, texts: int) -> Conversation:
    """Return a conversation whose texts have at most `texts` characters."""
    if texts >= MOST_TEXT:  # none is longer, but for the words that say what was left out
        return conversation
    requests = [_short_request(request, texts) for request in conversation["requests"]]
    calls = [_short_call(call, texts) for call in conversation["calls"]]
    return {**conversation, "requests": requests, "calls": calls}


def _short_request(request: ConversationRequest, texts: int) -> ConversationRequest:
    sent, answer = ([_cut(part, texts) for part in parts] for parts in (request["sent"], request["answer"]))
    return {**request, "instructions": cut(request["instructions"], texts), "sent": sent, "answer": answer}


def _short_call(call: ConversationCall, texts: int) -> ConversationCall:
    arguments = Budget(5 * texts, texts).shortened(call["arguments"])
    return {**call, "arguments": arguments, "result": head_and_tail(call["result"], texts, shared().text)}


def _cut(part: ConversationPart, texts: int) -> ConversationPart:
    return {**part, "text": cut(part["text"], texts)}


def no_conversation(view: str, index: int, last: int, why: str) -> Conversation:
    """Return the answer without a conversation."""
    return Conversation(
        type="conversation", view=view, id=index, last=last, agent="", thread="", requests=[], calls=[], error=why
    )


def sent_with(view: RequestView) -> list[ConversationPart]:
    """Return the messages of a request."""
    instructions = [_part("system", view.instructions)] if view.instructions else []
    return [*instructions, *(part for message in view.messages for part in _parts(message))]


def messages_with(view: RequestView) -> list[ConversationPart]:
    """Return the messages of a request and its response."""
    answers = (_block(block, "assistant") for block in answer_blocks(view))
    return [*sent_with(view), *(part for part in answers if part is not None)]


def messages_up_to(conversation: Conversation, request: int, *, is_answered: bool) -> list[ConversationPart]:
    """Return the messages of a conversation up to the request of a span, and its response if `is_answered`."""
    parts: list[ConversationPart] = []
    for shown_request in conversation["requests"]:
        if not parts and shown_request["instructions"]:
            parts.append(_part("system", shown_request["instructions"]))
        parts += shown_request["sent"]
        is_last = shown_request["id"] == request
        if is_last and not is_answered:
            break
        parts += [part for part in shown_request["answer"] if part["kind"] != "call"]
        for call in conversation["calls"]:
            if call["request"] == shown_request["number"]:
                parts.append(_part("call", _words(call["arguments"]), call["tool"]))
                if call["outcome"] and not is_last:  # the result follows the response that requested the call
                    parts.append(_part("result", call["result"], call["tool"]))
        if is_last:
            break
    return parts


def _request(view: RequestView, number: int, places: Mapping[str, int]) -> ConversationRequest:
    response = view.response or {}
    return ConversationRequest(
        id=places.get(str(view.span.operation_id), -1),
        number=number,
        model=one_line(str(response.get("model_name") or view.model or ""), NAME),
        finish=one_line(str(response.get("finish_reason") or ""), NAME),
        is_cached=view.cached,
        input_tokens=view.usage.get("input_tokens", 0),
        cached_tokens=view.usage.get("cache_read_tokens", 0),
        output_tokens=view.usage.get("output_tokens", 0),
        cost=view.cost,
        instructions=_text(view.instructions or ""),
        tools=[one_line(str(tool.get("name", "")), NAME) for tool in view.tools],
        output=one_line(", ".join(output_names(view)), NAME),
        sent=list(_said_first(view)),
        answer=list(_answer(view)),
    )


def _said_first(view: RequestView) -> Iterator[ConversationPart]:
    """Yield the new messages of a request, without responses and results of calls, which have their own lines."""
    new = (view.span.parameters or {}).get("new")
    if new is None:  # a plain request, or one that says just what the calls before it returned
        yield from (_part(message.role, message.text) for message in view.added if message.role in ("system", "user"))
    for message in mappings_in(new):
        if "response" not in message:
            yield from (part for part in _parts(message) if part["kind"] in ("system", "user", "retry"))


def _parts(message: Mapping[str, Any]) -> Iterator[ConversationPart]:
    """Yield the parts of a message in pydantic-ai's JSON form."""
    for part in mappings_in(message.get("parts")):
        is_retry = part.get("part_kind") == "retry-prompt"
        for converted in people_messages([{**message, "parts": [part]}]):
            for block in converted.content:
                block_part = _block(block, "retry" if is_retry else converted.role)
                if block_part is not None:
                    yield block_part


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
    """Yield the thinking, texts and calls of a response; a call that is the output becomes a text."""
    outputs = output_names(view)
    for block in answer_blocks(view):
        if block.get("type") != "tool_call":
            part = _block(block, "assistant")
            if part is not None:
                yield part
        elif block["tool"] in outputs:
            yield _part("assistant", _words(block["arguments"]))
        else:
            yield _part("call", one_line(str(block["tool"]), NAME), str(block["id"]))


def _call(call: ToolCallView, number: int, places: Mapping[str, int], questions: list[str]) -> ConversationCall:
    result = "" if call.result is None else encodable(_words(call.result))
    return ConversationCall(
        id=_place(call.under_way, places),
        call=call.id,
        request=number,
        tool=one_line(call.tool, NAME),
        server=one_line(call.server or "", NAME),
        arguments=Budget(MOST_TEXT).shortened(shown(call.arguments)),
        result=head_and_tail(result, MOST_TEXT, shared().text),
        lines=result.count("\n") + 1 if result else 0,
        outcome=call.outcome,
        turn=_place(call.turn, places),
        questions=questions,
    )


def _place(span: Span | None, places: Mapping[str, int]) -> int:
    return -1 if span is None else places.get(str(span.operation_id), -1)


def _questions(turn: Span, call: ToolCallView, question_id: QuestionId) -> list[str]:
    """Return the ids that questions about a call would have; most calls have no questions."""
    prefix = placed(call.view.span)[0]
    name = call.key.removeprefix("tool")
    keys = [f"approve{name}", f"ask{name}", *(f"elicit{name}-{number}" for number in range(1, MOST_ROUNDS + 1))]
    places = (Place(turn.path, turn.step, turn.visit, turn.iteration, f"{prefix}{key}") for key in keys)
    about = [question_id("question", place.operation_id) for place in places]
    unknown = [] if call.span is None else [question_id(call.span.operation_id, one) for one in call.span.sequences]
    return about + unknown


def _words(value: Any) -> str:
    """Return a value as text: a text unchanged, the output of a command, anything else as JSON."""
    if isinstance(value, str):
        return value
    output = printed(value)
    if output is not None:
        return output
    if isinstance(value, list | tuple) and value and all(isinstance(part, str) for part in value):
        return "\n".join(value)
    return readable(value, indent=2)


def _part(kind: Speaker, text: str, call: str = "") -> ConversationPart:
    return ConversationPart(kind=kind, text=_text(text), call=encodable(call))


def _text(text: str) -> str:
    return cut(encodable(text), MOST_TEXT)


# --- failures of an execution, tracked span by span ------------------------------------------------------------------


MOST_SHOWN = 50
Read = Callable[[int, int], Sequence[Event]]
"""Returns events after a sequence number, at most a number of them."""


class FailureTracker:
    """The failures of the spans so far; a changed span may be added again."""

    def __init__(self, names: ItemNames) -> None:
        self._names = names
        self._failed: dict[int, Span] = {}
        """Failed spans by index, in the order in which they failed."""
        self._kinds: dict[tuple[str, str], dict[int, None]] = {}
        self._known: dict[int, Failure] = {}
        self._done: set[int] = set()
        self._items = 0
        self._is_undone = False
        self.has_changed = True
        """True if the report has changed since it was last made."""

    def of(self, header: Header) -> Header:
        """Return a header with the number of failures."""
        return {**header, "failed": len(self._failed)}

    @property
    def kept(self) -> str:
        """In words the items and calls that a resumed run reuses; empty after a rollback."""
        return "" if self._is_undone else shown_kept(self._items, len(self._done) - self._items)

    def take(self, span: Span) -> None:
        """Update the failures and the reused results with a new or changed span."""
        self._count(span)
        self._is_undone = self._is_undone or is_undoing(span)
        if span.is_failure:
            self._remove(span.index)
            self._failed[span.index] = span
            self._kinds.setdefault(_kind(span), {})[span.index] = None
            self.has_changed = True
        elif span.index in self._failed:
            self._remove(span.index)

    def _count(self, span: Span) -> None:
        if span.index not in self._done and is_kept(span):
            self._done.add(span.index)
            self._items += span.kind == "item"

    def _remove(self, index: int) -> None:
        self._known.pop(index, None)
        if self._failed.pop(index, None) is None:
            return
        self.has_changed = True
        for indexes in self._kinds.values():
            indexes.pop(index, None)

    def report(self, spans: Sequence[Span], read: Read | None = None) -> FailureReport:
        """Return the shown failures; with `read`, the arguments of calls are read there and not in the spans."""
        self.has_changed = False
        shown = [self._view(self._failed[index], spans, read) for index in self._chosen()]
        return FailureReport(total=len(self._failed), kept=self.kept, shown=shown)

    def _chosen(self) -> list[int]:
        """Return the first failure of each kind, then other failures, in the order in which they failed."""
        first = [next(iter(indexes)) for indexes in self._kinds.values() if indexes][:MOST_SHOWN]
        remaining = (index for index in self._failed if index not in set(first))
        chosen = {*first, *(index for index, _ in zip(remaining, range(MOST_SHOWN - len(first)), strict=False))}
        return [index for index in self._failed if index in chosen]

    def _view(self, span: Span, spans: Sequence[Span], read: Read | None) -> FailureView:
        failure = self._known.get(span.index)
        if failure is None:
            leaf = leaf_of(span, spans)
            failure = failure_of(span, leaf if read is None else _with_data(leaf, read), self._names)
            self._known[span.index] = failure
        return view_of_failure(failure, same=len(self._kinds[_kind(span)]))


def _kind(span: Span) -> tuple[str, str]:
    """Return what equal failures share: class and code location, or class and message."""
    return span.error_type or "", str((span.place or {}).get("label")) if span.place else span.error or ""


def _with_data(leaf: Span, read: Read) -> Span:
    """Return a span with its parameters and item, which a feed leaves in the store."""
    (event,) = read(leaf.sequences[0] - 1, 1)
    return replace(leaf, parameters=getattr(event.data, "parameters", None), item=getattr(event.data, "item", None))


def view_of_failure(failure: Failure, *, same: int = 1) -> FailureView:
    """Convert a failure to its form in views; `same` is the number of equal failures."""
    arguments = (failure.arguments or {}).items()
    return FailureView(
        id=failure.span,
        sequence=failure.sequence,
        failed_us=failure.failed_us,
        error_type=failure.error_type,
        message=failure.message,
        means=failure.means,
        step=failure.step,
        path=failure.path,
        item=failure.item,
        attempt=failure.attempt,
        called=failure.called,
        arguments=[ArgumentView(name=name, text=text) for name, text in arguments],
        place=failure.place,
        cell=failure.cell,
        line=failure.line,
        source=[SourceLine(number=number, text=text) for number, text in failure.source],
        traceback=failure.traceback,
        handled=failure.handled,
        same=same,
    )


def failures_tracked(spans: Iterable[Span], names: ItemNames) -> FailureTracker:
    """Return the failures of some spans."""
    failing = FailureTracker(names)
    for span in spans:
        failing.take(span)
    return failing
