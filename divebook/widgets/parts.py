"""What was said in a turn of an agent, as views show it: its requests, and the calls that their answers asked for.

The spans of one turn are enough, each with what it was given and what came of it; `divebook.projections.model_requests`
puts them together.
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
    thread = {**(turn.parameters or {}), **(turn.setting or {})}.get("thread")
    told = views[-MOST_REQUESTS:]
    numbers = _numbers(views)
    # The request after a call says what that returned which has no operation.
    later = {numbers[view.span.index] - 1: view.span.sequences[-1] for view in views}
    asked = [(numbers[call.view.span.index], call) for call in tool_calls_in([turn, *inside])]
    calls = [
        _call(call, number, places, _questions(turn, call, question_id))
        for number, call in asked
        if number >= numbers[told[0].span.index] and max(call.changed, later.get(number, 0)) > since
    ]
    return Conversation(
        type="conversation",
        view="",
        id=places.get(str(turn.operation_id), -1),
        last=0,
        agent=one_line(str((turn.parameters or {}).get("agent", "")), NAME),
        thread=one_line(str(thread.get("id", "")), NAME) if isinstance(thread, Mapping) else "",
        requests=[_request(view, numbers[view.span.index], places) for view in told if view.span.sequences[-1] > since],
        calls=calls,
        error="",
    )


def _numbers(views: Sequence[RequestView]) -> dict[int, int]:
    """Return the numbers of requests as views show them, by span: of a turn that was begun anew they go on."""
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
    """Return what was said in the newest turns and single requests of a log; of work that was given after all else."""
    operations = [span for span in spans if span.kind == "operation"]
    turns = [span for span in operations if span.type == AGENT_TURN or (span.type in CONVERSATIONS and span.holder < 0)]
    kept = sorted(sorted(turns, key=lambda span: (span.holder < 0, span.index))[-most:], key=lambda span: span.index)
    held: dict[int, list[Span]] = {}
    for span in operations:
        held.setdefault(span.holder, []).append(span)
    places = {str(span.operation_id): span.index for span in operations}
    return [conversation_of(turn, held.get(turn.index, []), places, question_id) for turn in kept]


def shortened(said: Conversation, texts: int) -> Conversation:
    """Return a conversation whose texts have at most so many characters."""
    if texts >= MOST_TEXT:  # none is longer, but for the words that say what was left out
        return said
    requests = [_short_request(request, texts) for request in said["requests"]]
    calls = [_short_call(call, texts) for call in said["calls"]]
    return {**said, "requests": requests, "calls": calls}


def _short_request(request: ConversationRequest, texts: int) -> ConversationRequest:
    sent, answer = ([_cut(part, texts) for part in parts] for parts in (request["sent"], request["answer"]))
    return {**request, "instructions": cut(request["instructions"], texts), "sent": sent, "answer": answer}


def _short_call(call: ConversationCall, texts: int) -> ConversationCall:
    arguments = Budget(5 * texts, texts).shortened(call["arguments"])
    return {**call, "arguments": arguments, "result": head_and_tail(call["result"], texts, shared().text)}


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


def said_with(view: RequestView) -> list[ConversationPart]:
    """Return every message that went to the model with a request, and what it answered."""
    answers = (_block(block, "assistant") for block in answer_blocks(view))
    return [*sent_with(view), *(part for part in answers if part is not None)]


def said_up_to(said: Conversation, request: int, *, is_answered: bool) -> list[ConversationPart]:
    """Return what had been said in a conversation with its request in that span, and what was answered to it."""
    parts: list[ConversationPart] = []
    for told in said["requests"]:
        parts += [] if parts or not told["instructions"] else [_part("system", told["instructions"])]
        parts += told["sent"]
        is_last = told["id"] == request
        parts += [part for part in told["answer"] if part["kind"] != "call"] if is_answered or not is_last else []
        for call in said["calls"] if is_answered or not is_last else []:
            if call["request"] == told["number"]:
                parts.append(_part("call", _words(call["arguments"]), call["tool"]))
                parts += [] if is_last or not call["outcome"] else [_part("result", call["result"], call["tool"])]
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
    """Yield what a request told the model that was no answer of its own, and no result of a call: those have lines."""
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
        for said in people_messages([{**message, "parts": [part]}]):
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
    outputs = output_names(view)
    for block in answer_blocks(view):
        if block.get("type") != "tool_call":
            made = _block(block, "assistant")
            if made is not None:
                yield made
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
    """Return the ids that questions about a call have; most calls have none."""
    prefix = placed(call.view.span)[0]
    name = call.key.removeprefix("tool")
    keys = [f"approve{name}", f"ask{name}", *(f"elicit{name}-{number}" for number in range(1, MOST_ROUNDS + 1))]
    places = (Place(turn.path, turn.step, turn.visit, turn.iteration, f"{prefix}{key}") for key in keys)
    about = [question_id("question", place.operation_id) for place in places]
    unknown = [] if call.span is None else [question_id(call.span.operation_id, one) for one in call.span.sequences]
    return about + unknown


def _words(value: Any) -> str:
    """Return a value for people: a text as it is, what a command has printed, anything else as JSON."""
    if isinstance(value, str):
        return value
    if (said := printed(value)) is not None:
        return said
    if isinstance(value, list | tuple) and value and all(isinstance(part, str) for part in value):
        return "\n".join(value)
    return readable(value, indent=2)


def _part(kind: Speaker, text: str, call: str = "") -> ConversationPart:
    return ConversationPart(kind=kind, text=_text(text), call=encodable(call))


def _text(text: str) -> str:
    return cut(encodable(text), MOST_TEXT)


# What has failed in an execution, as views and saved notebooks show it: followed from span to span.


MOST_SHOWN = 50
Read = Callable[[int, int], Sequence[Event]]
"""Events after a sequence number, at most so many."""


class Failing:
    """The failures of the spans so far; a span that has changed may be taken again."""

    def __init__(self, names: ItemNames) -> None:
        self._names = names
        self._failed: dict[int, Span] = {}
        """By index, in the order in which they failed."""
        self._kinds: dict[tuple[str, str], dict[int, None]] = {}
        self._known: dict[int, Failure] = {}
        self._done: set[int] = set()
        self._items = 0
        self._is_undone = False
        self.has_changed = True
        """Whether the report is another than it was when it was last made."""

    def of(self, header: Header) -> Header:
        """Return a header that says how many have failed."""
        return {**header, "failed": len(self._failed)}

    @property
    def kept(self) -> str:
        """What is safe in the log, in words; nothing is where it was rolled back."""
        return "" if self._is_undone else shown_kept(self._items, len(self._done) - self._items)

    def take(self, span: Span) -> None:
        """Note whether a span stands for a failure, or for something that is kept."""
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
        for known in self._kinds.values():
            known.pop(index, None)

    def report(self, spans: Sequence[Span], read: Read | None = None) -> FailureReport:
        """Return what has failed; with `read`, what calls were given is read there, and not in the spans."""
        self.has_changed = False
        shown = [self._view(self._failed[index], spans, read) for index in self._chosen()]
        return FailureReport(total=len(self._failed), kept=self.kept, shown=shown)

    def _chosen(self) -> list[int]:
        """Return the first of each kind, then others, in the order in which they failed."""
        first = [next(iter(known)) for known in self._kinds.values() if known][:MOST_SHOWN]
        others = (index for index in self._failed if index not in set(first))
        chosen = {*first, *(index for index, _ in zip(others, range(MOST_SHOWN - len(first)), strict=False))}
        return [index for index in self._failed if index in chosen]

    def _view(self, span: Span, spans: Sequence[Span], read: Read | None) -> FailureView:
        known = self._known.get(span.index)
        if known is None:
            leaf = leaf_of(span, spans)
            known = failure_of(span, leaf if read is None else _with_data(leaf, read), self._names)
            self._known[span.index] = known
        return view_of_failure(known, same=len(self._kinds[_kind(span)]))


def _kind(span: Span) -> tuple[str, str]:
    """Return what equal failures have in common: the class and the line, or else the message."""
    return span.error_type or "", str((span.place or {}).get("label")) if span.place else span.error or ""


def _with_data(leaf: Span, read: Read) -> Span:
    """Return a span with what it was given, which a feed leaves in the store."""
    (event,) = read(leaf.sequences[0] - 1, 1)
    return replace(leaf, parameters=getattr(event.data, "parameters", None), item=getattr(event.data, "item", None))


def view_of_failure(failure: Failure, *, same: int = 1) -> FailureView:
    """Return a failure as views know it."""
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


def failing_of(spans: Iterable[Span], names: ItemNames) -> Failing:
    """Return the failures of some spans."""
    failing = Failing(names)
    for span in spans:
        failing.take(span)
    return failing
