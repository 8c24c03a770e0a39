"""Data of an execution that views show besides spans: header, questions, graph, variables and files."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any, NamedTuple, cast

from divebook.agents.clients import REQUEST_LIMITERS
from divebook.definitions.definition import Workflow, hidden_in, visible_steps
from divebook.definitions.json_schemas import load
from divebook.engine.bounds import spent_of
from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, CACHED_RESPONSE, NAMED_BY, TOOL_CALL
from divebook.engine.state import ExecutionState, awaited_signals
from divebook.errors import ExecutionNotFoundError, UnstorableValueError
from divebook.events.catalog import ENQUEUED, WAITING, ExecutionForked
from divebook.events.codec import encode, encode_shown, readable, tagged_form
from divebook.events.event import Event, to_datetime, to_microseconds
from divebook.projections.activity import (
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
from divebook.projections.failures import ItemNames
from divebook.projections.model_requests import call_of
from divebook.projections.spans import PlaceOf, Span, item_name, sleep_name
from divebook.projections.summary import badge_of
from divebook.questions import InterruptKind, InterruptStatus, Question
from divebook.questions.bounds import dollars
from divebook.questions.question import answer_in_words, became, sort_of
from divebook.report.hints import Hint
from divebook.runtime.compute.dask import DASHBOARDS
from divebook.runtime.run import Run, asked_questions
from divebook.runtime.streaming import TextListener
from divebook.stores.append import RELAXED
from divebook.stores.follow import on_change
from divebook.text.format import local_time
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
from divebook.widgets.variables_and_files import FilesReader, Setters, VariableReader

# --- the activity in a header ----------------------------------------------------------------------------------------


MOST_PHASES = 100
MOST_STEPS = 200
NAME = 120


def with_activity(header: Header, activity: Activity, spreads: Spreads) -> Header:
    """Return a copy of `header`, the summary of an execution for views, with two additions: the periods in which the
    execution worked or waited, and the progress of its steps.

    The result is equal as long as the activity is equal. It includes the distributions of `spreads` as far as they are
    counted. A run whose last activity is work, although no process drives it, has been ``stopped`` since its last
    event.
    """
    steps = activity.progress[:MOST_STEPS]
    latest = spreads.latest(steps)
    doing = activity.doing
    since_us = activity.since_us
    worked_us = activity.before(WORKED)
    if doing == WORKED and not header["live"]:
        # The log ends in a period of work, but the process that did the work no longer runs.
        doing = STOPPED
        worked_us += activity.last_us - activity.since_us
        since_us = activity.last_us
    # The current phase counts too. Its length is infinite, so that it is always among the longest.
    phases = list(activity.phases)
    if activity.current is not None:
        phases.append(activity.current)
    longest = sorted(phases, key=_length)[-MOST_PHASES:]
    return {
        **header,
        "doing": doing,
        "since_us": since_us or None,
        "worked_us": worked_us,
        "waited_us": activity.before(WAITED),
        "paused_us": activity.before(PAUSED),
        # The longest phases are selected by length and shown in the order of time.
        "stretches": [_phase(one) for one in sorted(longest, key=lambda one: one.started_us)],
        "progress": [_progress(progress, latest.get(progress.step, ())) for progress in steps],
    }


def _length(stretch: Phase) -> float:
    return float("inf") if stretch.ended_us is None else stretch.ended_us - stretch.started_us


def _phase(stretch: Phase) -> StretchView:
    return StretchView(doing=stretch.doing, begin_us=stretch.started_us, end_us=stretch.ended_us)


def _progress(progress: ItemProgress, spread: Sequence[Distribution]) -> StepProgress:
    return StepProgress(
        step=one_line(progress.step, NAME),
        done=progress.done,
        total=progress.total,
        failed=progress.failed,
        failed_open=progress.failed_open,
        running=progress.running > 0,
        left_us=progress.left_us,
        at_us=progress.at_us,
        spread=[_spread(one) for one in spread],
    )


def _spread(distribution: Distribution) -> SpreadView:
    return SpreadView(
        name=distribution.name,
        kind=distribution.kind,
        parts=[SpreadPart(name=name, count=rows) for name, rows in distribution.parts],
        others=SpreadPart(name=distribution.others.name, count=distribution.others.rows),
        empty=distribution.empty,
        least=distribution.least,
        greatest=distribution.greatest,
        words=distribution.words,
    )


# --- consumption of agents and numbers of tool calls, tracked span by span -------------------------------------------


MOST_SPENDERS = 50


@dataclass(slots=True)
class _Spent:
    requests: int = 0
    tokens: int = 0
    cost: int | None = None


class SpendingTracker:
    """Number of requests, tokens and cost of each agent of an execution, kept up to date with each new or changed span.
    The same span may be added several times.
    """

    def __init__(self) -> None:
        self._by_agent: dict[str, _Spent] = {}
        self._counted: set[int] = set()
        self._calls: set[tuple[int, str]] = set()
        """Tool calls, each as the id of the turn that contains the call and the name of the call there. Several rounds
        of a call, and the turn that a call started, count as one call.
        """
        self._since = 0

    def on_event(self, event: Event) -> None:
        """Reset all sums if the event starts a fork. The calls before it were made and paid for by the source of the
        fork.

        Tokens and cost in the header count in the same way.
        """
        if isinstance(event.data, ExecutionForked):
            self._by_agent = {}
            self._calls = set()
            self._since = event.sequence

    def take(self, span: Span) -> None:
        """Add the consumption of a model request once it has ended, and count a tool call once it has started. Other
        spans change nothing.
        """
        # Calls that began before the fork are shared with its source, which has paid for them.
        if span.sequences[0] < self._since:
            return
        # A delegated turn is the effect of a tool call, and has the same name within its holder.
        if span.type == TOOL_CALL or (span.type == AGENT_TURN and span.holder >= 0):
            self._calls.add((span.holder, call_of(span)))
        # A cached response has no usage, and a running request none yet.
        if span.type != AGENT_RESPONSE or not span.usage or span.index in self._counted:
            return
        # A span is passed again when it changes, so counted ones are remembered.
        self._counted.add(span.index)
        spent = self._by_agent.setdefault(span.agent or "", _Spent())
        spent.requests += span.usage.get("requests", 1)
        spent.tokens += span.usage.get("input_tokens", 0) + span.usage.get("output_tokens", 0)
        # Without a known price, the cost stays None and is not 0.
        if "cost" in span.usage:
            spent.cost = (spent.cost or 0) + span.usage["cost"]

    def of(self, header: Header) -> Header:
        """Return a copy of `header`, the summary of the execution for views, with the number of tool calls, and with
        the requests, tokens and cost of each agent.
        """
        spenders = [
            Spender(
                agent=one_line(agent, NAME),
                requests=spent.requests,
                tokens=spent.tokens,
                cost=dollars(spent.cost),
            )
            for agent, spent in list(self._by_agent.items())[:MOST_SPENDERS]
        ]
        return {**header, "tool_calls": len(self._calls), "spenders": spenders}


# --- previews of arguments and results on one line -------------------------------------------------------------------


PREVIEW_WIDTH = 80
_LOOKED_AT = PREVIEW_WIDTH + TEXT_BEHIND_CUT
"""Number of encoded characters. The characters behind the cut show whether the cut divides a secret."""
_ANSWERS = (AGENT_RESPONSE, CACHED_RESPONSE)
_MAX_BITS = 256
"""Maximum number of bits of an integer whose digits are shown. Writing the digits of a longer integer is slow."""
_PREVIEW_PARAMETERS = ("params", "arguments", "script", "prompt", "content")
"""Parameters that are sufficient as a preview of an operation, the most informative first."""


def arguments_preview(span: Span) -> str:
    """Return a one-line preview of the arguments of an operation; empty for spans that are not operations."""
    parameters = span.parameters
    if span.kind != "operation" or not parameters:
        return ""
    # {"action": "Send", "params": {"to": "ann"}} -> '{"to": "ann"}'
    argument = next((parameters[key] for key in _PREVIEW_PARAMETERS if parameters.get(key)), None)
    if argument is not None:
        return preview(argument)
    # The name of the tool or action is the label of the span already.
    naming = NAMED_BY.get(span.type)
    return preview({key: value for key, value in parameters.items() if key != naming and not _is_empty(value)})


def result_preview(operation_type: str, result: Any) -> str:
    """Return a one-line preview of the result of an operation; for a model response, of its first text."""
    # The response of a model is a list of parts. Other results are shown as they are.
    parts = result.get("parts") if operation_type in _ANSWERS and isinstance(result, Mapping) else None
    texts = (part["content"] for part in parts or () if part.get("part_kind") == "text")
    return preview(next(texts, result))


def preview(value: Any) -> str:
    """Return a one-line preview of a value: a string unchanged, other values as JSON.

    It is cut after `PREVIEW_WIDTH` characters.

    >>> preview({"category": "billing", "rows": list(range(1000))})[:60]
    '{"category": "billing", "rows": [0, 1, 2, 3, 4, 5, 6, 7, 8, '
    >>> preview("x" * 10_000_000)[-3:]
    'xx…'
    """
    # Zero, False and the empty text are values, and are shown.
    if _is_empty(value):
        return ""
    # Only the needed beginning is encoded: a value can have many megabytes, and each span has a preview.
    pieces = [value[:_LOOKED_AT]] if isinstance(value, str) else _prefix(_pieces(value))
    return one_line("".join(pieces), PREVIEW_WIDTH)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping | list | tuple) and not value)


def _prefix(pieces: Iterator[str]) -> Iterator[str]:
    """Yield the first pieces of a text, until they contain more than `_LOOKED_AT` characters in total."""
    length = 0
    for piece in pieces:
        yield piece
        length += len(piece)
        # One piece beyond the limit is included, so that `one_line` sees that the text was cut.
        if length > _LOOKED_AT:
            return


def _pieces(value: Any) -> Iterator[str]:
    """Yield the JSON form of a value piece by piece, so that the caller can stop early. Of a long string, only the
    beginning is encoded.
    """
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


# --- spans as columns for the browser --------------------------------------------------------------------------------
#
# The columns contain short texts only. A view requests complete arguments and results with a detail query.


NAME_WIDTH = 120
LABEL_WIDTH = 60
NOTE_WIDTH = 160
_LABEL_PARAMETERS = ("tool_name", "tool", "action_name", "step", "workflow", "agent", "path", "model")
"""Parameters that distinguish an operation from other operations of a step, the most informative first."""


class Labels(NamedTuple):
    """Short texts that describe a span in views."""

    label: str
    """Short name that distinguishes the span from other spans of its step: an item, an action, an agent, ..."""
    item: str
    """Name of the item of `Each` to which the span belongs; empty outside `Each`."""
    arguments: str = ""
    """One-line preview of the arguments of an operation."""
    result: str = ""
    """One-line preview of the result of an operation."""


def labels_of(span: Span, place_of: PlaceOf) -> Labels:
    """Return the short texts that describe a span in views, except the preview of its result, which stays empty."""
    item = item_name(span, place_of)
    return Labels(item if span.kind == "item" else _label_of(span), item, arguments_preview(span))


def _label_of(span: Span) -> str:
    parameters = span.parameters or {}
    sleep = sleep_name(span)
    if sleep is not None:
        return one_line(sleep, LABEL_WIDTH)
    if span.kind == "event":
        return one_line(span.called or "", LABEL_WIDTH)
    # "request 2": requests of a turn have no other name.
    if span.within is not None and isinstance(parameters.get("request"), int):
        return f"request {parameters['request']}"
    value = next((parameters[key] for key in _LABEL_PARAMETERS if isinstance(parameters.get(key), str)), "")
    return one_line(value, LABEL_WIDTH)


class BlockNames:
    """List of the distinct texts of one message with many rows (`SpanBlock` or `EventBlock`). The rows contain only the
    index of each text in this list, so that a repeated text is sent once.
    """

    def __init__(self) -> None:
        # The empty text has the index 0, to which columns refer for "none".
        self._places = {"": 0}
        self._places_by_text: dict[tuple[str, int], int] = {}

    def place(self, text: str, width: int = NAME_WIDTH) -> int:
        """Return the index of a text in the list of texts of this message. A text that the list does not contain yet is
        cut to one line of `width` characters and appended.
        """
        # Looked up before it is shortened, because most texts of a block repeat.
        place = self._places_by_text.get((text, width))
        if place is None:
            place = self._places.setdefault(one_line(text, width), len(self._places))
            self._places_by_text[text, width] = place
        return place

    def listed(self) -> list[str]:
        """Return the list of texts that is sent with the message. The rows of the message refer to the texts by their
        indexes in this list.
        """
        return list(self._places)


def block_of(spans: Iterable[tuple[Span, Labels]], origin_us: int) -> SpanBlock:
    """Convert spans (steps, items and calls) and their labels to one message for views, with a column for each field.
    Times are sent in microseconds since `origin_us`.
    """
    names = BlockNames()
    place = names.place
    block = cast("SpanBlock", {name: [] for name in SpanBlock.__annotations__})
    for span, (label, item, arguments, result) in spans:
        block["id"].append(span.index)
        block["kind"].append(place(span.kind))
        block["path"].append(place(span.path))
        block["step"].append(place(span.step))
        block["type"].append(place(span.type))
        block["label"].append(place(label))
        block["item"].append(place(item))
        block["given"].append(place(arguments))
        block["came"].append(place(result))
        block["status"].append(place(span.status))
        block["note"].append(place(span.headline, NOTE_WIDTH))
        # Times relative to the first event need fewer digits than times since 1970.
        block["start"].append(span.started_us - origin_us)
        block["end"].append(-1 if span.ended_us is None else span.ended_us - origin_us)
        block["iteration"].append(-1 if span.iteration is None else span.iteration)
        block["visit"].append(span.visit)
        block["attempts"].append(span.attempts)
        # The usage of a step or item includes its calls. Counting it as well would show each token twice.
        usage = span.usage if span.kind == "operation" else {}
        block["tokens"].append(usage.get("input_tokens", 0) + usage.get("output_tokens", 0))
        block["sequence"].append(span.sequences[0])
        block["within"].append(span.holder)
    block["names"] = names.listed()
    return block


# --- shortened values ------------------------------------------------------------------------------------------------


MAX_TEXT = 20_000
"""Maximum number of characters of one text."""
LEAST_TEXT = 200
COST_OF_VALUE = 8


def is_short(value: Any, characters: int) -> bool:
    """Return whether JSON data is certainly short enough for a `Budget` of `characters` characters, so that no part of
    it needs to be cut.

    The data is encoded, which takes a fraction of the time of walking through it. Most values of a log are short.
    """
    try:
        # Each value costs at least `COST_OF_VALUE` of a budget, and is encoded with at least one character. The product
        # is therefore an upper bound.
        return len(encode(value)) * COST_OF_VALUE <= characters
    except UnstorableValueError:
        return False


class Budget:
    """Limit for the size of data that is sent to a view. All values together may have a number of characters, and one
    text may have at most `text` of them.
    """

    def __init__(self, characters: int, text: int = MAX_TEXT) -> None:
        self._left = characters
        self._text = text

    def plain(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Convert recorded values to JSON data, and cut this data to the characters that remain in the budget."""
        shortened = self.shortened(tagged_form(dict(values)))
        return {str(key): value for key, value in shortened.items()}

    def shortened(self, value: Any) -> Any:
        """Return a copy of JSON data that fits into the budget. Long texts are cut. If the budget is used up, further
        entries of a list or mapping are left out, and a text such as ``(12 more)`` is added.
        """
        match value:
            case str():
                # A text is never cut below `LEAST_TEXT`: its beginning is the most useful part, and the overrun is
                # limited by the number of entries.
                text = cut(value, max(min(self._text, self._left), LEAST_TEXT))
                self._left -= len(text)
                return text
            case list():
                # The condition is evaluated before each entry, after the earlier ones have used up their part.
                parts = [self.shortened(part) for part in value if self._left > 0]
                missing = len(value) - len(parts)
                return [*parts, f"… ({missing:,} more)"] if missing else parts
            case dict():
                entries = {key: self.shortened(part) for key, part in value.items() if self._left > 0}
                missing = len(value) - len(entries)
                return entries | {"…": f"({missing:,} more)"} if missing else entries
        # Numbers, truth values and None.
        self._left -= COST_OF_VALUE
        return value


# --- commands and header of an execution -----------------------------------------------------------------------------


def commands_of(execution: Run, driven_by: str | None = None) -> list[Command]:
    """Return the commands that a person can now give to an execution.

    ``resume`` is included only if the execution would then continue. An execution that another process drives, or that
    waits for a worker, can only be cancelled.
    """
    # A running execution can be paused. Resuming it would have no effect.
    if execution.is_live:
        return ["pause", "cancel"]
    # Another process or a worker drives it. Only the wish to cancel reaches it, through the store.
    if execution.status == ENQUEUED or driven_by is not None:
        return ["cancel"]
    if execution.state.is_over:
        return [] if execution.state.is_final else ["resume"]
    # Resuming an execution that waits for a person would do nothing (`tests/widgets/test_commands.py`).
    return ["cancel"] if awaited_from_outside(execution) else ["resume", "cancel"]


def awaited_from_outside(execution: Run) -> str:
    """Return a text about the answer or signal that an execution needs before it can be resumed. Return an empty text
    if it can be resumed now.
    """
    state = execution.state
    # A message in the store that the log does not have yet lets the execution continue when it is resumed.
    if state.status != WAITING or state.paused is not None or execution.store.has_untaken(execution.id):
        return ""
    if execution.open_questions:
        return "Answer the question to continue"
    # A wait with a time limit ends by itself.
    signals = [str(awaited) for awaited in awaited_signals(state) if awaited.until_us is None]
    return f"The run waits for {signals[0]}; send the signal to continue" if signals else ""


MAX_ERROR = 2000
MAX_ANSWER = 400
MAX_NAME = 120
MAX_EXACT = 2**53
"""Largest integer that browsers store exactly. Larger integers are sent as texts."""
MAX_DIGITS = 17
"""Maximum number of characters of an integer that is parsed; a longer integer is always larger than `MAX_EXACT`."""
NO_QUESTION = "The engine asks how to continue."


def _no_ways(_header: Header, _kept: str) -> list[Way]:
    return []


@dataclass(frozen=True, slots=True)
class Source:
    """Functions by which a feed reads the data of one execution. All of them may be called from any thread."""

    header: Callable[[], Header]
    questions: Callable[[], Sequence[QuestionView]]
    graph: Graph
    read: Callable[[int, int], list[Event]]
    """Returns at most a given number of events after a sequence number."""
    total: Callable[[], int]
    """Returns the current number of events."""
    subscribe: Callable[[Callable[[Sequence[Event]], None]], Callable[[], None]]
    subscribe_text: Callable[[TextListener], Callable[[], None]]
    variables: Callable[[Setters], list[VariableView]]
    files: Callable[[int, int], list[WorkspaceView]]
    """Returns the changed files as of an event (first argument) since an event (second argument); 0 and 0 for all
    changes.
    """
    question_id: Callable[..., str]
    """Returns the id of the question about an operation or event."""
    names: ItemNames
    """Names of the items of steps."""
    ways: Callable[[Header, str], list[Way]] = _no_ways
    """Returns the recovery options after a failure. The arguments are the header and the text about reused results.

    It is called repeatedly, because no event reports that a person has edited a definition.
    """
    history: Callable[[], Sequence[Event]] | None = None
    """Returns the log as a sequence."""


def source_of(execution: Run) -> Source:
    """Return the `Source` that reads the data of an execution."""

    def read(after: int, limit: int) -> list[Event]:
        try:
            return execution.store.read(execution.id, after, limit)
        except ExecutionNotFoundError:  # its first event is still to come
            return []

    variables = VariableReader(execution.workflow, shared())
    hidden = hidden_in(execution.workflow)

    # The origin of an execution never changes, so that the store is read once. The handle may later refer to another
    # execution.
    badges = cache(lambda _execution_id: badge_of(execution.internals.record))

    def header() -> Header:
        # The driver of this process keeps a live execution up to date. Any other one is read from the store.
        current = execution if execution.is_live else execution.refresh()
        try:
            return header_of(current, badges(execution.id))
        except ExecutionNotFoundError:  # its first event is still to come
            return header_of(current)

    # A function, because each event replaces the state by a new object.
    def question_id(*about: object) -> str:
        return execution.state.question_id(*about)

    return Source(
        header=header,
        questions=lambda: [
            question_of(question, execution.workflow.name, hidden) for question in asked_questions(execution)
        ],
        graph=graph_of(execution.workflow),
        read=read,
        total=lambda: len(execution.history()),
        subscribe=partial(subscribe_events, execution),
        subscribe_text=partial(execution.subscribe_text, parts=True),
        variables=lambda setters: variables.of(execution.state, setters),
        files=FilesReader(execution, shared()).of,
        question_id=question_id,
        names=ItemNames.of_workflow(execution.workflow),
        history=execution.history,
    )


def subscribe_events(execution: Run, listener: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
    """Call `listener` with the new events of an execution each time that some are appended. If another process may have
    appended events to the store, or the log was deleted, the listener gets no events and must read the store.

    Return a function that ends the subscription.
    """
    store = execution.store
    # Only other processes that share the store can append events while this process does not drive the execution.
    elsewhere = store.shared and not execution.is_live and not execution.state.is_over
    return on_change(store, listener, execution.id, elsewhere=elsewhere)


def header_of(execution: Run, badge: str = "") -> Header:
    """Return the current summary of an execution for views. `badge` is that of `badge_of`.

    Values such as the number of tool calls are still 0 or empty, because they are counted from the spans and added
    later.
    """
    state = execution.state
    usage = execution.state.own_usage
    # One read of the store. A run that this process drives needs none (`tests/widgets/test_elsewhere.py`).
    driven_by = None if state.is_over else execution.internals.driven_by
    return Header(
        execution_id=execution.id,
        workflow=one_line(execution.workflow.name, MAX_NAME),
        badge=badge,
        status=execution.status,
        live=execution.is_live or driven_by is not None,
        error=one_line(state.error or "", MAX_ERROR),
        started_us=_micros(state.started_at),
        ended_us=_micros(state.ended_at),
        now_us=time.time_ns() // 1000,
        model_calls=usage.requests,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost=dollars(usage.cost) if usage.cost else None,
        # `SpendingTracker`, `FailureTracker` and `with_activity` fill the fields that are 0 or empty here.
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


def waits_of(execution: Run, driven_by: str | None = None) -> str:
    """Return a text about everything that an execution waits for; empty if it does not wait.

    The text names another process that drives the execution, a queue, limits of model providers, and signals with the
    command that sends them.
    """
    state = execution.state
    blocked = execution.internals.held_up if driven_by is None else f"continues in {driven_by}"
    if state.status == ENQUEUED:
        due = "" if state.due_us is None else f", not before {local_time(to_datetime(state.due_us))}"
        blocked = f"waits in the queue {one_line(state.queue or '', MAX_NAME)} for a worker{due}"
    signals = [] if state.is_over else awaited_signals(state)
    hints = [Hint("signal", (execution.id, awaited.name), "signal", (awaited.name,)) for awaited in signals]
    waits = [f"waits for {awaited}: {hint.text}" for awaited, hint in zip(signals, hints, strict=True)]
    # Limits of providers concern only runs that call models.
    asks_models = execution.is_live and execution.state.ledger.llm_calls
    limits = [str(limit) for limit in REQUEST_LIMITERS.states()] if asks_models else []
    return "; ".join([*([] if blocked is None else [blocked]), *limits, *waits])


def durability_of(execution: Run) -> Durability:
    """Return how much of an execution's log survives a crash: everything, all but the latest events, or nothing.

    These are the durabilities ``durable``, ``relaxed`` and ``memory``.
    """
    store = execution.store
    if not store.keeps:
        return "memory"
    return "relaxed" if (execution.internals.durability or store.durability) == RELAXED else "durable"


def gauges_of(state: ExecutionState) -> list[Gauge]:
    """Return the limit of each bound in the budget of an execution, and the amount that was spent."""
    return [
        Gauge(name=spent.name, spent=round(float(spent.amount), 6), limit=float(spent.limit), unit=spent.unit)
        for spent in spent_of(state)
    ]


# The cache makes sure that only one thread is started.
@cache
def load_soon() -> None:
    """Start to load the library that validates answers to questions, on another thread, so that the first answer does
    not wait for it.
    """
    threading.Thread(target=load, name="divebook-schemas", daemon=True).start()


def question_of(question: Question, workflow: str, hidden: Container[str] = ()) -> QuestionView:
    """Convert a question of the engine to the form that views show. `workflow` is the name of the workflow that asks.

    The name of the step is omitted if `hidden` contains it.
    """
    # A person is about to answer (test_what_checks_answers_is_loaded_while_a_person_reads).
    if question.is_open and question.schema is not None:
        load_soon()
    return QuestionView(
        interrupt_id=question.id,
        kind=cast("InterruptKind", question.kind),
        question=encodable(question.question or NO_QUESTION),
        message=encodable(question.message or ""),
        path=question.path,
        step="" if question.step in hidden else question.step,
        data=shown(question.data or {}),
        schema=None if question.schema is None else shown(question.schema),
        raised_us=question.raised_us,
        expires_us=question.expires_us,
        required=not question.optional,
        status=cast("InterruptStatus", question.status),
        response=shown(question.response),
        answered_by=question.answered_by,
        answered_us=question.settled_us,
        became=_answer_text(became(question.status, question.response)),
        fallback="" if question.default is None else _answer_text(answer_in_words(question.default)),
        alike=_alike(workflow, question),
    )


def _alike(workflow: str, question: Question) -> str:
    # The key of the engine contains the whole schema of the answer. Its digest is as good for a comparison.
    key = sort_of(workflow, question) if question.is_open else None
    return "" if key is None else hashlib.sha256(repr(key).encode()).hexdigest()[:16]


def _answer_text(words: str) -> str:
    return encodable(cut(words, MAX_ANSWER))


def graph_of(workflow: Workflow) -> Graph:
    """Return the visible steps of a workflow and the edges between them, as the graph that views draw."""
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
    """Convert recorded data to JSON data that browsers read exactly; DataFrames and the like become short texts."""
    # `json.loads` calls `_exact` for each integer.
    return json.loads(encode_shown(value), parse_int=_exact)


def _exact(digits: str) -> int | str:
    """Parse the digits of a JSON integer. If the integer is so large that browsers would round it, return the digits as
    text.
    """
    # MAX_EXACT = 9007199254740992 has 16 digits, and a sign may precede them.
    number = int(digits) if len(digits) <= MAX_DIGITS else MAX_EXACT + 1
    return number if abs(number) <= MAX_EXACT else digits


def encodable(text: str) -> str:
    """Return a text in a form that can be encoded as UTF-8: unpaired surrogates become question marks."""
    # Models can produce half of a surrogate pair, which JSON allows and UTF-8 does not.
    return text.encode("utf-8", "replace").decode("utf-8")


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_microseconds(moment)
