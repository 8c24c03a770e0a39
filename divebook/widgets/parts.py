"""Conversations with models and failures of an execution, in the form that views show.

A conversation contains the model requests of an agent turn and the tool calls that the responses requested. It is made
from the spans of the turn; `divebook.projections.model_requests` reconstructs the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    elicitation_keys,
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
"""Types of operations that have a conversation."""
MOST_REQUESTS = 60
"""Maximum number of requests of a turn that are shown, the newest requests."""
MOST_ROUNDS = 4
"""Maximum number of questions that an MCP server can ask during one tool call, for which question ids are sent."""
MOST_TEXT = 20_000
"""Maximum number of characters of one text."""
NAME = 120
QuestionId: TypeAlias = Callable[..., str]
Speaker: TypeAlias = Literal["system", "user", "retry", "thinking", "assistant", "call", "result"]


def conversation_of(
    turn: Span, inside: Sequence[Span], places: Mapping[str, int], question_id: QuestionId, *, since: int = 0
) -> Conversation:
    """Return the conversation of an agent turn or of a single model request in the form that views show: requests,
    responses and tool calls.

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
    # A single request is its own conversation. The operation of a turn is not a request, but contains them.
    views = [view for view in requests_in([turn, *inside]) if view.span.operation_id != turn.operation_id or not inside]
    thread = {**(turn.parameters or {}), **(turn.setting or {})}.get("thread")
    shown_views = views[-MOST_REQUESTS:]
    numbers = _numbers(views)
    # A result without an operation of its own, such as a denial, is recorded with the next request. A call therefore
    # also counts as changed if the next request has changed.
    later = {numbers[view.span.index] - 1: view.span.sequences[-1] for view in views}
    numbered_calls = [(numbers[call.view.span.index], call) for call in tool_calls_in([turn, *inside])]
    calls = [
        _call(call, number, places, _questions(turn, call, question_id))
        for number, call in numbered_calls
        # Calls of requests that are not shown are left out. `shown_views` is not empty here, because each call belongs
        # to a request.
        if number >= numbers[shown_views[0].span.index] and max(call.changed, later.get(number, 0)) > since
    ]
    return Conversation(
        type="conversation",
        view="",
        id=places.get(str(turn.operation_id), -1),
        last=0,
        agent=one_line(str((turn.parameters or {}).get("agent", "")), NAME),
        thread=one_line(str(thread.get("id", "")), NAME) if isinstance(thread, Mapping) else "",
        # The number stays the same if earlier requests are left out.
        requests=[
            _request(view, numbers[view.span.index], places) for view in shown_views if view.span.sequences[-1] > since
        ],
        calls=calls,
        error="",
    )


def _numbers(views: Sequence[RequestView]) -> dict[int, int]:
    """Assign the numbers that views show to the model requests of an agent turn, and return them by span id. If the
    turn was restarted, the new requests continue the numbers of the earlier ones.
    """
    numbers: dict[int, int] = {}
    # Requests 1, 2 of a turn that was restarted, then 1, 2 of the new turn: numbers 1, 2, 3, 4.
    shift = 0
    before = None
    for view in views:
        if before is not None and (view.turn != before.turn or view.n <= before.n):
            shift = numbers[before.span.index]
        numbers[view.span.index] = shift + view.n
        before = view
    return numbers


def newest_conversations(spans: Sequence[Span], most: int, question_id: QuestionId) -> list[Conversation]:
    """Return the newest conversations with models in a log, at most `most` of them, ordered by the time of their start.

    Conversations of agents that got delegated work are included only if there is room.
    """
    operations = [span for span in spans if span.kind == "operation"]
    # A delegated turn has a holder. A single request inside a turn is part of the conversation of the turn.
    turns = [span for span in operations if span.type == AGENT_TURN or (span.type in CONVERSATIONS and span.holder < 0)]
    # False sorts before True, so that turns without a holder are at the end and are kept first. The second sort
    # restores the order of time.
    newest = sorted(sorted(turns, key=lambda span: (span.holder < 0, span.index))[-most:], key=lambda span: span.index)
    by_holder: dict[int, list[Span]] = {}
    for span in operations:
        by_holder.setdefault(span.holder, []).append(span)
    places = {str(span.operation_id): span.index for span in operations}
    return [conversation_of(turn, by_holder.get(turn.index, []), places, question_id) for turn in newest]


def shortened(conversation: Conversation, texts: int) -> Conversation:
    """Return a copy of a conversation in which each text is cut to at most `texts` characters."""
    if texts >= MOST_TEXT:  # none is longer, but for the words that say what was left out
        return conversation
    requests = [_short_request(request, texts) for request in conversation["requests"]]
    calls = [_short_call(call, texts) for call in conversation["calls"]]
    return {**conversation, "requests": requests, "calls": calls}


def _short_request(request: ConversationRequest, texts: int) -> ConversationRequest:
    sent, answer = ([_cut(part, texts) for part in parts] for parts in (request["sent"], request["answer"]))
    return {**request, "instructions": cut(request["instructions"], texts), "sent": sent, "answer": answer}


def _short_call(call: ConversationCall, texts: int) -> ConversationCall:
    # A value is a tree of texts. It may have five times the size of a single text.
    arguments = Budget(5 * texts, texts).shortened(call["arguments"])
    return {**call, "arguments": arguments, "result": head_and_tail(call["result"], texts, shared().text)}


def _cut(part: ConversationPart, texts: int) -> ConversationPart:
    return {**part, "text": cut(part["text"], texts)}


def no_conversation(view: str, index: int, last: int, why: str) -> Conversation:
    """Return a `Conversation` without messages as the reply to a view. `why` is the reason, which the view shows
    instead of the messages.
    """
    return Conversation(
        type="conversation", view=view, id=index, last=last, agent="", thread="", requests=[], calls=[], error=why
    )


def request_parts(view: RequestView) -> list[ConversationPart]:
    """Return everything that a model request sent, as parts: the instructions and all messages."""
    instructions = [_part("system", view.instructions)] if view.instructions else []
    return [*instructions, *(part for message in view.messages for part in _parts(message))]


def request_and_response_parts(view: RequestView) -> list[ConversationPart]:
    """Return everything that a model request sent, and the model's response, as parts."""
    answers = (_block(block, "assistant") for block in answer_blocks(view))
    return [*request_parts(view), *(part for part in answers if part is not None)]


def parts_up_to(conversation: Conversation, request: int, *, is_answered: bool) -> list[ConversationPart]:
    """Return the parts (texts, tool calls and tool results) of a conversation from its beginning to one of its
    requests. `request` is the id of the span of this request.

    The response to this request is included if `is_answered`.
    """
    parts: list[ConversationPart] = []
    for shown_request in conversation["requests"]:
        # The instructions stand once at the beginning, and not before each request.
        if not parts and shown_request["instructions"]:
            parts.append(_part("system", shown_request["instructions"]))
        parts += shown_request["sent"]
        is_last = shown_request["id"] == request
        if is_last and not is_answered:
            break
        # Calls follow below with their results, from their own entries.
        parts += [part for part in shown_request["answer"] if part["kind"] != "call"]
        for call in conversation["calls"]:
            if call["request"] == shown_request["number"]:
                parts.append(_part("call", _as_text(call["arguments"]), call["tool"]))
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
        sent=list(_new_parts(view)),
        answer=list(_answer(view)),
    )


def _new_parts(view: RequestView) -> Iterator[ConversationPart]:
    """Yield the parts of the messages that a model request adds to its conversation. Messages that the previous request
    has already sent are left out.

    Responses and results of tool calls are omitted, because views show them as separate entries.
    """
    # In ``new``, responses and tool results are only marks (`divebook.projections.model_requests`).
    new = (view.span.parameters or {}).get("new")
    if new is None:  # a plain request, or one that says just what the calls before it returned
        yield from (_part(message.role, message.text) for message in view.added if message.role in ("system", "user"))
    for message in mappings_in(new):
        if "response" not in message:
            yield from (part for part in _parts(message) if part["kind"] in ("system", "user", "retry"))


def _parts(message: Mapping[str, Any]) -> Iterator[ConversationPart]:
    """Yield the parts (texts, tool calls and tool results) of a message in the JSON form of pydantic-ai, in the form
    that views show.
    """
    # The parts are converted one by one, because `people_messages` joins neighbours of the same role, and a retry
    # prompt has its own kind here.
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
            return _part("call", _as_text(block["arguments"]), str(block["tool"]))
        case "tool_result":
            return _part("result", _as_text(block["content"]), str(block["tool"]))
        case "thinking":
            return _part("thinking", str(block["text"]))
        case "text":
            return _part(cast("Speaker", role), str(block["text"])) if block["text"] else None
    return _part(cast("Speaker", role), f"({block.get('type')})")


def _answer(view: RequestView) -> Iterator[ConversationPart]:
    """Yield the parts of a model's response: thinking, texts and tool calls. If the model returned structured output by
    a tool call, its arguments become a text.
    """
    # The arguments of an output tool are the answer itself, not a call.
    outputs = output_names(view)
    for block in answer_blocks(view):
        if block.get("type") != "tool_call":
            part = _block(block, "assistant")
            if part is not None:
                yield part
        elif block["tool"] in outputs:
            yield _part("assistant", _as_text(block["arguments"]))
        else:
            yield _part("call", one_line(str(block["tool"]), NAME), str(block["id"]))


def _call(call: ToolCallView, number: int, places: Mapping[str, int], questions: list[str]) -> ConversationCall:
    result = "" if call.result is None else encodable(_as_text(call.result))
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
    """Return the ids of all questions to a person that a tool call can cause. A call can ask for approval, for its
    result, or about its unknown outcome.

    For most calls no such question exists.
    """
    # Request "anew-1/model-2" -> prefix "anew-1/". Call "tool-1-call_7" -> name "-1-call_7". The question for its
    # approval has the key "anew-1/approve-1-call_7".
    prefix = placed(call.view.span)[0]
    name = call.key.removeprefix("tool")
    # Keys under which the engine asks: for approval, for the result of the call, and for an MCP server (elicitation).
    # A server asks while the call runs ("in"), or replies with the questions of a round (`agents/server_tools.py`).
    keys = [f"approve{name}", f"ask{name}"]
    if call.server:
        rounds = range(1, MOST_ROUNDS + 1)
        numbers = [f"{start}{number}" for start in ("", "in-") for number in rounds]
        numbers += [f"{number}-{index}" for number in rounds for index in range(1, MOST_ROUNDS)]
        keys += [key for number in numbers for key in elicitation_keys(name.removeprefix("-"), number)]
    places = (Place(turn.path, turn.step, turn.visit, turn.iteration, f"{prefix}{key}") for key in keys)
    about = [question_id("question", place.operation_id) for place in places]
    # The id of a question about an unknown outcome contains the operation and the number of one of its events. All of
    # them are tried.
    unknown = [] if call.span is None else [question_id(call.span.operation_id, one) for one in call.span.sequences]
    return about + unknown


def _as_text(value: Any) -> str:
    """Return the arguments or the result of a tool call as text: a string unchanged, the printed output of a command,
    any other value as JSON.
    """
    # `printed` returns the output of a command, and None for anything else.
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
"""Function that returns at most a given number of events after a sequence number."""


class FailureTracker:
    """The failures of an execution, kept up to date with each new or changed span. The same span may be added several
    times.
    """

    def __init__(self, names: ItemNames) -> None:
        self._names = names
        self._failed: dict[int, Span] = {}
        """Failed spans by id, in the order in which they failed."""
        # Used as an ordered set: the failed spans of each kind of error, the oldest first.
        self._kinds: dict[tuple[str, str], dict[int, None]] = {}
        # A failure is read from the log once. Its entry is removed when its span changes.
        self._failures: dict[int, Failure] = {}
        # Ids of the spans whose results a resumed run reuses. Each is counted once, although `take` gets it with each
        # change.
        self._done: set[int] = set()
        self._items = 0
        self._is_undone = False
        self.has_changed = True
        """True if the failures have changed since the last call of `report`."""

    def of(self, header: Header) -> Header:
        """Return a copy of `header`, the summary of the execution for views, with the number of failures."""
        return {**header, "failed": len(self._failed)}

    @property
    def reused_results(self) -> str:
        """Text about the completed items and calls that a resumed run would reuse; empty after a rollback."""
        return "" if self._is_undone else shown_kept(self._items, len(self._done) - self._items)

    def take(self, span: Span) -> None:
        """Add a new or changed span (step, item or call) to the failures and to the number of results that a resumed
        run reuses. A span that no longer is a failure is removed from the failures.
        """
        self._count(span)
        # After a rollback nothing is reused, however the run continues.
        self._is_undone = self._is_undone or is_undoing(span)
        if span.is_failure:
            # Removed first, so that a span that failed again moves to the end of the order.
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
        self._failures.pop(index, None)
        if self._failed.pop(index, None) is None:
            return
        self.has_changed = True
        # At most one kind contains the span, but the error of a changed span may have changed its kind.
        for indexes in self._kinds.values():
            indexes.pop(index, None)

    def report(self, spans: Sequence[Span], read: Read | None = None) -> FailureReport:
        """Return all failures for views: their number, and the details of at most `MOST_SHOWN` of them.

        If `read` is given, the arguments of failed calls are read from the log, else they are taken from the spans.
        """
        self.has_changed = False
        # Details are limited, the total number is not.
        shown = [self._view(self._failed[index], spans, read) for index in self._shown_indexes()]
        return FailureReport(total=len(self._failed), kept=self.reused_results, shown=shown)

    def _shown_indexes(self) -> list[int]:
        """Select the failures that views show with details, and return the ids of their spans in the order of time.

        The first failure of each kind is chosen first, then further failures up to `MOST_SHOWN`.
        """
        first = [next(iter(indexes)) for indexes in self._kinds.values() if indexes][:MOST_SHOWN]
        remaining = (index for index in self._failed if index not in set(first))
        chosen = {*first, *(index for index, _ in zip(remaining, range(MOST_SHOWN - len(first)), strict=False))}
        return [index for index in self._failed if index in chosen]

    def _view(self, span: Span, spans: Sequence[Span], read: Read | None) -> FailureView:
        failure = self._failures.get(span.index)
        if failure is None:
            leaf = leaf_of(span, spans)
            # The call that raised the error has the arguments and the code location; the item or step around it does
            # not.
            failure = failure_of(span, leaf if read is None else _with_data(leaf, read), self._names)
            self._failures[span.index] = failure
        return view_of_failure(failure, same=len(self._kinds[_kind(span)]))


def _kind(span: Span) -> tuple[str, str]:
    """Return a key by which equal failures are recognized. It consists of the class of the error and the code location;
    if the location is unknown, of the class and the message.
    """
    # Errors at one code location are equal even if their messages differ: ``KeyError: 'a'``, ``KeyError: 'b'``.
    return span.error_type or "", str((span.place or {}).get("label")) if span.place else span.error or ""


def _with_data(leaf: Span, read: Read) -> Span:
    """Return a copy of a span with the parameters and the item of `Each` read from the log, because a feed does not
    keep them in memory.
    """
    # The first event of a span has its parameters.
    (event,) = read(leaf.sequences[0] - 1, 1)
    return replace(leaf, parameters=getattr(event.data, "parameters", None), item=getattr(event.data, "item", None))


def view_of_failure(failure: Failure, *, same: int = 1) -> FailureView:
    """Convert a failure to the form that views show; `same` is the number of equal failures."""
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
