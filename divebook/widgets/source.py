"""What a feed reads besides spans: the header's numbers, the questions, the workflow's graph; plain data only."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any, NamedTuple, cast

from divebook.agents.request_limits import REQUEST_LIMITERS
from divebook.engine.bounds import NANODOLLARS, spent_of
from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, CACHED_RESPONSE, NAMED_BY, TOOL_CALL
from divebook.engine.state import ExecutionState, awaited_signals
from divebook.errors import ExecutionNotFoundError, UnstorableValueError
from divebook.events.catalog import ENQUEUED, WAITING, ExecutionForked
from divebook.events.codec import encode, encode_shown, readable
from divebook.events.event import Event, to_datetime, to_microseconds
from divebook.projections.failures import ItemNames
from divebook.projections.progress import (
    PAUSED,
    STOPPED,
    WAITED,
    WORKED,
    Activity,
    Distribution,
    ItemProgress,
    Phase,
    Spreads,
)
from divebook.projections.requests import call_of
from divebook.projections.spans import PlaceOf, Span, item_name, sleep_name
from divebook.questions import InterruptKind, InterruptStatus, Question
from divebook.questions.question import answer_in_words, became
from divebook.runtime.compute.dask import DASHBOARDS
from divebook.runtime.execution import Execution
from divebook.runtime.streaming import TextListener
from divebook.store.append import RELAXED
from divebook.text.format import in_notebook, local_time
from divebook.text.redaction import TEXT_BEHIND_CUT, cut, one_line, shared
from divebook.widgets.protocol import (
    Command,
    Durability,
    Gauge,
    Graph,
    GraphEdge,
    GraphStep,
    Header,
    QuestionView,
    SpanBlock,
    Spender,
    SpreadPart,
    SpreadView,
    StepProgress,
    StretchView,
    VariableView,
    Way,
    WorkspaceView,
)
from divebook.widgets.variables import FilesReader, Setters, VariableReader
from divebook.workflow.definition import Workflow, hidden_in, visible_steps
from divebook.workflow.json_schemas import load

# What a header says of the course of an execution: what it does, how long it did what, how far its steps are.
#
# Of the latest steps it also says what their rows gave.


MOST_STRETCHES = 100
MOST_STEPS = 200
NAME = 120


def paced(header: Header, course: Activity, spreads: Spreads) -> Header:
    """Return a header with what a course says; it is the same as long as the same goes on.

    Of `spreads` it has what was counted by now.
    """
    steps = course.progress[:MOST_STEPS]
    latest = spreads.latest(steps)
    was_left = course.doing == WORKED and not header["live"]
    stretches = [*course.stretches, *([course.lasting] if course.lasting is not None else [])]
    longest = sorted(stretches, key=_length)[-MOST_STRETCHES:]
    return {
        **header,
        "doing": STOPPED if was_left else course.doing,
        "since_us": (course.last_us if was_left else course.since_us) or None,
        "worked_us": course.before(WORKED) + (course.last_us - course.since_us if was_left else 0),
        "waited_us": course.before(WAITED),
        "paused_us": course.before(PAUSED),
        "stretches": [_stretch(one) for one in sorted(longest, key=lambda one: one.started_us)],
        "progress": [_progress(told, latest.get(told.step, ())) for told in steps],
    }


def _length(stretch: Phase) -> float:
    return float("inf") if stretch.ended_us is None else stretch.ended_us - stretch.started_us


def _stretch(stretch: Phase) -> StretchView:
    return StretchView(doing=stretch.doing, begin_us=stretch.started_us, end_us=stretch.ended_us)


def _progress(told: ItemProgress, spread: Sequence[Distribution]) -> StepProgress:
    return StepProgress(
        step=one_line(told.step, NAME),
        done=told.done,
        total=told.total,
        failed=told.failed,
        running=told.running > 0,
        left_us=told.left_us,
        at_us=told.at_us,
        spread=[_spread(one) for one in spread],
    )


def _spread(told: Distribution) -> SpreadView:
    return SpreadView(
        name=told.name,
        kind=told.kind,
        parts=[SpreadPart(name=name, count=rows) for name, rows in told.parts],
        others=SpreadPart(name=told.others.name, count=told.others.rows),
        empty=told.empty,
        least=told.least,
        greatest=told.greatest,
        words=told.words,
    )


# What the agents of an execution have consumed, and how many tools were called: followed from span to span.


MOST_SPENDERS = 50


@dataclass(slots=True)
class _Spent:
    requests: int = 0
    tokens: int = 0
    cost: int | None = None


class Spending:
    """The sums of the spans so far; a span that has changed may be taken again."""

    def __init__(self) -> None:
        self._by_agent: dict[str, _Spent] = {}
        self._counted: set[int] = set()
        self._calls: set[tuple[int, str]] = set()
        """By the turn that holds it and its name there: several rounds, and the turn that it led to, are one call."""
        self._since = 0

    def hear(self, event: Event) -> None:
        """Let a fork begin anew: what was called before is its source's, as are tokens and cost in the header."""
        if isinstance(event.data, ExecutionForked):
            self._by_agent = {}
            self._calls = set()
            self._since = event.sequence

    def take(self, span: Span) -> None:
        """Count a request that has ended, and a tool call that has begun."""
        if span.sequences[0] < self._since:
            return
        if span.type == TOOL_CALL or (span.type == AGENT_TURN and span.holder >= 0):
            self._calls.add((span.holder, call_of(span)))
        if span.type != AGENT_RESPONSE or not span.usage or span.index in self._counted:
            return
        self._counted.add(span.index)
        spent = self._by_agent.setdefault(span.agent or "", _Spent())
        spent.requests += span.usage.get("requests", 1)
        spent.tokens += span.usage.get("input_tokens", 0) + span.usage.get("output_tokens", 0)
        if "cost" in span.usage:
            spent.cost = (spent.cost or 0) + span.usage["cost"]

    def of(self, header: Header) -> Header:
        """Return a header that says who spent what."""
        spenders = [
            Spender(
                agent=one_line(agent, NAME),
                requests=spent.requests,
                tokens=spent.tokens,
                cost=None if spent.cost is None else spent.cost / NANODOLLARS,
            )
            for agent, spent in list(self._by_agent.items())[:MOST_SPENDERS]
        ]
        return {**header, "tool_calls": len(self._calls), "spenders": spenders}


# What an operation was given and what came of it in one short line, however large the values are.


PREVIEW_WIDTH = 100
_LOOKED_AT = PREVIEW_WIDTH + TEXT_BEHIND_CUT
"""Characters that are written down: those behind the cut show whether it goes through a secret."""
_ANSWERS = (AGENT_RESPONSE, CACHED_RESPONSE)
_MAX_BITS = 256
"""Longer whole numbers are told by their length: to write down their digits takes long."""
_GIVEN = ("params", "arguments", "script", "prompt", "content")
"""Parameters that alone say what was asked for, the most telling first."""


def given_of(span: Span) -> str:
    """Return the arguments of an operation; empty for all else."""
    given = span.parameters
    if span.kind != "operation" or not given:
        return ""
    telling = next((given[key] for key in _GIVEN if given.get(key)), None)
    if telling is not None:
        return preview(telling)
    naming = NAMED_BY.get(span.type)
    return preview({key: value for key, value in given.items() if key != naming and not _is_empty(value)})


def came_of(operation_type: str, result: Any) -> str:
    """Return what came of an operation; of a model's answer its text."""
    parts = result.get("parts") if operation_type in _ANSWERS and isinstance(result, Mapping) else None
    texts = (part["content"] for part in parts or () if part.get("part_kind") == "text")
    return preview(next(texts, result))


def preview(value: Any) -> str:
    """Return a value on one line: a text as it is, all else as the beginning of its JSON.

    >>> preview({"category": "billing", "rows": list(range(1000))})[:60]
    '{"category": "billing", "rows": [0, 1, 2, 3, 4, 5, 6, 7, 8, '
    >>> preview("x" * 10_000_000)[-3:]
    'xx…'
    """
    if _is_empty(value):
        return ""
    pieces = [value[:_LOOKED_AT]] if isinstance(value, str) else _begun(_pieces(value))
    return one_line("".join(pieces), PREVIEW_WIDTH)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping | list | tuple) and not value)


def _begun(pieces: Iterator[str]) -> Iterator[str]:
    """Yield pieces of a text until there are enough."""
    length = 0
    for piece in pieces:
        yield piece
        length += len(piece)
        if length > _LOOKED_AT:
            return


def _pieces(value: Any) -> Iterator[str]:
    """Yield the JSON of a value piece by piece, no more of a long text than is looked at."""
    if isinstance(value, str):
        yield json.dumps(value[:_LOOKED_AT], ensure_ascii=False)
    elif isinstance(value, Mapping):
        yield from _listed(
            "{}", ((f"{json.dumps(str(key), ensure_ascii=False)}: ", part) for key, part in value.items())
        )
    elif isinstance(value, list | tuple):
        yield from _listed("[]", (("", part) for part in value))
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        yield f"a number of {value.bit_length():,} bits"
    else:
        yield readable(value)


def _listed(brackets: str, parts: Iterable[tuple[str, Any]]) -> Iterator[str]:
    yield brackets[0]
    for place, (name, part) in enumerate(parts):
        yield f", {name}" if place else name
        yield from _pieces(part)
    yield brackets[1]


# Spans as columns for the browser: short texts only; what a span was given and what came out is asked for in full.


NAME_WIDTH = 120
LABEL_WIDTH = 60
NOTE_WIDTH = 160
_TELLING = ("tool_name", "tool", "action_name", "step", "workflow", "agent", "path", "model")
"""Parameters that tell an operation from its neighbours, the most telling first."""


class Labels(NamedTuple):
    """The names of a span."""

    label: str
    """What tells it from its neighbours: the item, the action, the agent, the time that it lets pass ..."""
    item: str
    """The item that it belongs to; empty outside `Each`."""
    given: str = ""
    """What an operation was given, and what came of it: the beginnings, on one line."""
    came: str = ""


def labels_of(span: Span, place_of: PlaceOf) -> Labels:
    """Return the names of a span."""
    item = item_name(span, place_of)
    return Labels(item if span.kind == "item" else _label_of(span), item, given_of(span))


def _label_of(span: Span) -> str:
    given = span.parameters or {}
    if (slept := sleep_name(span)) is not None:
        return one_line(slept, LABEL_WIDTH)
    if span.kind == "event":
        return one_line(span.called or "", LABEL_WIDTH)
    if span.within is not None and isinstance(given.get("request"), int):
        return f"request {given['request']}"
    found = next((given[key] for key in _TELLING if isinstance(given.get(key), str)), "")
    return one_line(found, LABEL_WIDTH)


class BlockNames:
    """The texts of one block of columns, each once, short and on one line."""

    def __init__(self) -> None:
        self._places = {"": 0}
        self._known: dict[tuple[str, int], int] = {}

    def place(self, text: str, width: int = NAME_WIDTH) -> int:
        """Return the place of a text among those of the block."""
        known = self._known.get((text, width))
        if known is None:
            known = self._places.setdefault(one_line(text, width), len(self._places))
            self._known[text, width] = known
        return known

    def listed(self) -> list[str]:
        """Return the texts by place."""
        return list(self._places)


def block_of(spans: Iterable[tuple[Span, Labels]], origin_us: int) -> SpanBlock:
    """Return spans, each with its label, as columns; times count from `origin_us`."""
    names = BlockNames()
    place = names.place
    block = cast("SpanBlock", {name: [] for name in SpanBlock.__annotations__})
    for span, (label, item, given, came) in spans:
        block["id"].append(span.index)
        block["kind"].append(place(span.kind))
        block["path"].append(place(span.path))
        block["step"].append(place(span.step))
        block["type"].append(place(span.type))
        block["label"].append(place(label))
        block["item"].append(place(item))
        block["given"].append(place(given))
        block["came"].append(place(came))
        block["status"].append(place(span.status))
        block["note"].append(place(span.headline, NOTE_WIDTH))
        block["start"].append(span.started_us - origin_us)
        block["end"].append(-1 if span.ended_us is None else span.ended_us - origin_us)
        block["iteration"].append(-1 if span.iteration is None else span.iteration)
        block["visit"].append(span.visit)
        block["attempts"].append(span.attempts)
        usage = span.usage if span.kind == "operation" else {}
        block["tokens"].append(usage.get("input_tokens", 0) + usage.get("output_tokens", 0))
        block["sequence"].append(span.sequences[0])
        block["within"].append(span.holder)
    block["names"] = names.listed()
    return block


# Values made short enough to be sent to a browser: long texts cut, and what is too much left out.


MAX_TEXT = 20_000
"""Characters of one text."""
LEAST_TEXT = 200
COST_OF_VALUE = 8


def is_short(value: Any, characters: int) -> bool:
    """Return whether plain JSON is so short that no `Budget` of so many characters would cut anything of it.

    To encode it takes a fraction of the time of a walk through it, and most of what a log holds is short.
    """
    try:
        return len(encode(value)) * COST_OF_VALUE <= characters
    except UnstorableValueError:
        return False


class Budget:
    """How many characters may still be sent; `text` is the most of one text."""

    def __init__(self, characters: int, text: int = MAX_TEXT) -> None:
        self._left = characters
        self._text = text

    def plain(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return stored values as JSON, shortened."""
        shortened = self.shortened(json.loads(encode(dict(values))))
        return {str(key): value for key, value in shortened.items()}

    def shortened(self, value: Any) -> Any:
        """Return plain JSON with its long texts cut, and the rest of what is too much left out."""
        match value:
            case str():
                text = cut(value, max(min(self._text, self._left), LEAST_TEXT))
                self._left -= len(text)
                return text
            case list():
                parts = [self.shortened(part) for part in value if self._left > 0]
                missing = len(value) - len(parts)
                return [*parts, f"… ({missing:,} more)"] if missing else parts
            case dict():
                kept = {key: self.shortened(part) for key, part in value.items() if self._left > 0}
                missing = len(value) - len(kept)
                return kept | {"…": f"({missing:,} more)"} if missing else kept
        self._left -= COST_OF_VALUE
        return value


# What a person can ask of an execution now, and what it waits for where asking would not help.


def commands_of(execution: Execution, driven_by: str | None = None) -> list[Command]:
    """Return what a person can ask of an execution now; to resume it only where it would then go on.

    One that another process drives, or that waits for a worker, is left to those.
    """
    if execution.is_live:
        return ["pause", "cancel"]
    if execution.status == ENQUEUED or driven_by is not None:
        return ["cancel"]
    if execution.state.is_over:
        return [] if execution.state.is_final else ["resume"]
    return ["cancel"] if awaited_from_outside(execution) else ["resume", "cancel"]


def awaited_from_outside(execution: Execution) -> str:
    """Return what to do where only an answer or a signal helps an execution on; empty where it can be taken up."""
    state = execution.state
    if state.status != WAITING or state.paused is not None or execution.store.has_untaken(execution.id):
        return ""
    if execution.interrupts:
        return "Answer the question to continue"
    signals = [str(awaited) for awaited in awaited_signals(state) if awaited.until_us is None]
    return f"It waits for {signals[0]}: send that to continue" if signals else ""


MAX_ERROR = 2000
MAX_ANSWER = 400
MAX_NAME = 120
MAX_EXACT = 2**53
"""Larger whole numbers are not exact in browsers, and are sent as texts."""
MAX_DIGITS = 17
"""A sign and the digits of such a number; longer ones are not read."""
NO_QUESTION = "The engine asks how to go on."


def _no_ways(_header: Header, _kept: str) -> list[Way]:
    return []


@dataclass(frozen=True, slots=True)
class Source:
    """Where the parts of a view come from; every function may be called from any thread."""

    header: Callable[[], Header]
    questions: Callable[[], Sequence[QuestionView]]
    graph: Graph
    read: Callable[[int, int], list[Event]]
    """Events after a sequence number, at most so many."""
    total: Callable[[], int]
    """How many events there are by now."""
    subscribe: Callable[[Callable[[Sequence[Event]], None]], Callable[[], None]]
    subscribe_text: Callable[[TextListener], Callable[[], None]]
    variables: Callable[[Setters], list[VariableView]]
    files: Callable[[int, int], list[WorkspaceView]]
    """The files that were changed by an event, or by now where that is 0."""
    question_id: Callable[..., str]
    """What the id of a question about something is."""
    names: ItemNames
    """What items are called."""
    ways: Callable[[Header, str], list[Way]] = _no_ways
    """What can be done about a failure, by the header and what is kept; asked for now and then, for no event tells of
    edits."""


def source_of(execution: Execution) -> Source:
    """Return what a view of an execution is made of."""

    def read(after: int, limit: int) -> list[Event]:
        try:
            return execution.store.read(execution.id, after, limit)
        except ExecutionNotFoundError:  # its first event is still to come
            return []

    variables = VariableReader(execution.workflow, shared())
    hidden = hidden_in(execution.workflow)

    def question_id(*about: object) -> str:
        return execution.state.question_id(*about)

    return Source(
        header=lambda: header_of(execution if execution.is_live else execution.refresh()),
        questions=lambda: [question_of(asked, hidden) for asked in execution.asked.values()],
        graph=graph_of(execution.workflow),
        read=read,
        total=lambda: len(execution.history()),
        subscribe=partial(heard, execution),
        subscribe_text=partial(execution.subscribe_text, parts=True),
        variables=lambda setters: variables.of(execution.state, setters),
        files=FilesReader(execution, shared()).of,
        question_id=question_id,
        names=ItemNames.of_workflow(execution.workflow),
    )


def heard(execution: Execution, listener: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
    """Call a listener with what is appended from now on; with nothing where another process may have appended.

    Call what is returned to end it.
    """
    ends = [execution.subscribe(listener)]
    if execution.store.shared and not execution.is_live and not execution.state.is_over:
        ends.append(execution.store.on_news(lambda: listener(()), execution.id))

    def end() -> None:
        for each in ends:
            each()

    return end


def header_of(execution: Execution) -> Header:
    """Return the numbers of an execution as they stand."""
    state = execution.state
    usage = execution.usage
    driven_by = None if state.is_over else execution.driven_by
    return Header(
        execution_id=execution.id,
        workflow=one_line(execution.workflow.name, MAX_NAME),
        status=state.shown_status,
        live=execution.is_live or driven_by is not None,
        error=one_line(state.error or "", MAX_ERROR),
        started_us=_micros(state.started_at),
        ended_us=_micros(state.ended_at),
        now_us=time.time_ns() // 1000,
        model_calls=usage.requests,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost=usage.cost / NANODOLLARS if usage.cost else None,
        tool_calls=0,
        spenders=[],
        gauges=gauges_of(state),
        doing="worked",
        since_us=None,
        worked_us=0,
        waited_us=0,
        paused_us=0,
        stretches=[],
        progress=[],
        durability=durability_of(execution),
        commands=commands_of(execution, driven_by),
        failed=0,
        ways=[],
        workspaces=len(state.workspaces),
        waits=waits_of(execution, driven_by),
        dashboards=DASHBOARDS.of(execution.id) if execution.is_live else [],
    )


def waits_of(execution: Execution, driven_by: str | None = None) -> str:
    """Return where it goes on, what holds it up, its providers included, and what to type for signals it waits for."""
    state = execution.state
    held_up = execution.held_up if driven_by is None else f"goes on in {driven_by}"
    if state.status == ENQUEUED:
        due = "" if state.due_us is None else f", from {local_time(to_datetime(state.due_us))} on"
        held_up = f"waits in the queue {one_line(state.queue or '', MAX_NAME)} for a worker{due}"
    signals = [] if state.is_over else awaited_signals(state)
    waits = [f"waits for {awaited}: {in_notebook('signal', [execution.id, awaited.name])}" for awaited in signals]
    asks_models = execution.is_live and execution.state.ledger.llm_calls
    limits = [str(limit) for limit in REQUEST_LIMITERS.states()] if asks_models else []
    return "; ".join([*([] if held_up is None else [held_up]), *limits, *waits])


def durability_of(execution: Execution) -> Durability:
    """Return what a crash can take from an execution: nothing, the latest events, or everything."""
    store = execution.store
    if not store.keeps:
        return "memory"
    return "relaxed" if (execution.durability or store.durability) == RELAXED else "durable"


def gauges_of(state: ExecutionState) -> list[Gauge]:
    """Return how much of each bound is spent."""
    return [
        Gauge(name=spent.name, spent=round(float(spent.amount), 6), limit=float(spent.limit), unit=spent.unit)
        for spent in spent_of(state)
    ]


@cache
def load_soon() -> None:
    """Load what checks answers on a thread of its own, so that the first answer does not wait for that."""
    threading.Thread(target=load, name="divebook-schemas", daemon=True).start()


def question_of(asked: Question, hidden: Container[str] = ()) -> QuestionView:
    """Return a question of the engine as views know it; of a step that is `hidden` without its name."""
    if asked.is_open and asked.schema is not None:
        load_soon()  # somebody is about to answer (test_what_checks_answers_is_loaded_while_a_person_reads)
    return QuestionView(
        interrupt_id=asked.interrupt_id,
        kind=cast("InterruptKind", asked.kind),
        question=encodable(asked.question or NO_QUESTION),
        message=encodable(asked.message or ""),
        path=asked.path,
        step="" if asked.step in hidden else asked.step,
        data=shown(asked.data or {}),
        schema=None if asked.schema is None else shown(asked.schema),
        raised_us=asked.raised_us,
        expires_us=asked.expires_us,
        required=not asked.optional,
        status=cast("InterruptStatus", asked.status),
        response=shown(asked.response),
        answered_by=asked.answered_by,
        answered_us=asked.settled_us,
        became=_said(became(asked.status, asked.response)),
        fallback="" if asked.default is None else _said(answer_in_words(asked.default)),
    )


def _said(words: str) -> str:
    return encodable(cut(words, MAX_ANSWER))


def graph_of(workflow: Workflow) -> Graph:
    """Return the steps of a workflow and the ways between them; of a pipeline its stages."""
    shown_steps = visible_steps(workflow)
    steps = [GraphStep(name=step.name, type=step.type, each=step.each is not None) for step in shown_steps]
    edges = [
        GraphEdge(source=step.name, target=edge.step, kind="next", condition=one_line(edge.condition or "", 200))
        for step in shown_steps
        for edge in step.edges
    ]
    edges += [
        GraphEdge(source=step.name, target=policy.step, kind="catch", condition="")
        for step in shown_steps
        for policy in step.catch
    ]
    return Graph(steps=steps, edges=edges)


def shown(value: Any) -> Any:
    """Return recorded data as JSON that a browser reads exactly; frames and the like become a few words."""
    return json.loads(encode_shown(value), parse_int=_exact)


def _exact(digits: str) -> int | str:
    """Return a whole number as it was written if it is too large to be exact."""
    number = int(digits) if len(digits) <= MAX_DIGITS else MAX_EXACT + 1
    return number if abs(number) <= MAX_EXACT else digits


def encodable(text: str) -> str:
    """Return a text that can be sent: halves of characters become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_microseconds(moment)
