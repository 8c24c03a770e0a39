"""Replay of a log in a view: the state of the execution after each event, and the events.

`divebook.replay.replayer` computes the states. All results are JSON data of limited size. A position is the sequence
number of an event; position 0 is before the first event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from divebook.engine.operations import ACTION_EXECUTION, AGENT_RESPONSE, SCRIPT_EXECUTION
from divebook.engine.state import ExecutionState, PathState
from divebook.errors import DivebookError
from divebook.events import Event, catalog
from divebook.events.arrow.foreign import Arrow
from divebook.questions import Question
from divebook.replay.provenance import Entry, Provenance, ProvenanceText, entries, why
from divebook.replay.replayer import MODEL_CALLS, Positions, request_at
from divebook.text.redaction import cut, one_line
from divebook.widgets.parts import request_and_response_parts
from divebook.widgets.protocol import (
    ConversationPart,
    DetailEvent,
    EventAnswer,
    EventBlock,
    EventsAnswer,
    PathView,
    PendingView,
    ReplayToBrowser,
    SaidAnswer,
    StateAnswer,
    StateView,
    WhyAnswer,
    WhyLine,
)
from divebook.widgets.source import MAX_TEXT, BlockNames, Budget, preview, result_preview, shown
from divebook.widgets.variables_and_files import size_of, table_head, type_of

T = TypeVar("T")

MAX_VALUES = 400_000
"""Maximum number of characters of all values in one answer."""
EVENTS_PER_ANSWER = 10_000
MAX_PATHS = 200
MAX_CAUSES = 200
"""Maximum number of lines that explain one value."""
MAX_LABEL = 60
"""Maximum number of characters of a value in the list of events."""
DEPTH = 3
"""Number of nested levels in such a text."""
_STEP_OPERATIONS = {
    "script": SCRIPT_EXECUTION,
    "function": SCRIPT_EXECUTION,
    "action": ACTION_EXECUTION,
    "prompt": AGENT_RESPONSE,
}
"""Type of the operation of a step, by type of the step."""
MOST_PARTS = 6
"""Maximum number of entries of a list or mapping in such a text."""
LARGEST_FRAME = 5_000_000
"""Maximum size in bytes of a frame whose first rows are read for a position: `head` decodes the whole frame."""
FRAME = "$frame"
"""Key of the mapping that replaces a frame in a state."""
_SUMMARY_FIELDS = (
    "error",
    "condition",
    "question",
    "stored_variable",
    "target",
    "signal_type",
)
"""Fields that distinguish an event from other events, the most informative first."""
_VALUES = {
    "operation_completed": "result",
    "iteration_started": "item",
    "iteration_completed": "result",
    "interrupt_resolved": "response",
}
"""Field with a value that distinguishes an event from others, by type of the event."""


class Steppable(Protocol):
    """Interface of a log that a view can replay event by event: it returns the events, and the state after each of
    them.
    """

    @property
    def total(self) -> int:
        """Number of events in the log."""

    def state_at(self, sequence: int) -> StateView:
        """Return the state of the execution after the event `sequence`; 0 is before the first event. Raises
        `IndexError` for a number after the last event.
        """

    def event_at(self, sequence: int) -> DetailEvent:
        """Return the event with the number `sequence`. Raises `IndexError` if the log does not contain it."""

    def block(self, after: int = 0, stop: int | None = None) -> EventBlock:
        """Return the events after sequence number `after`, up to and including `stop`."""

    def said_at(self, sequence: int) -> tuple[int, list[ConversationPart]]:
        """Find the latest model request before or at an event. Return the number of the event that started the request,
        and the messages of the request.

        Return 0 and an empty list if there was no request. Raises `IndexError`.
        """

    def why_at(self, sequence: int, name: str) -> list[WhyLine]:
        """Return the causes of the value that a variable had after an event. Raises `IndexError`, and `DivebookError`
        if the variable was not set or the log cannot tell.
        """


class SteppedLog:
    """Log of an execution in a form that a view can replay event by event (`Steppable`).

    Examples
    --------
    >>> from divebook.events import Event, catalog
    >>> log = [Event("event_1", "exec_1", 1, 1, catalog.ExecutionStarted("demo", {"x": 1}))]
    >>> SteppedLog(Positions.of(log)).state_at(1)["inputs"]
    {'x': 1}
    """

    def __init__(self, positions: Positions, history: Callable[[], Sequence[Event]] | None = None) -> None:
        self.positions = positions
        # The history of a store caches the index of causes. Without it the index is computed for each query.
        self._history = history or positions.events
        self._labels = EventLabels()
        self.provenances: dict[tuple[int, str], Provenance] = {}
        """Known provenances by event and name, such as those of a row, which has no name of a variable."""
        # Time of the first event. All blocks of a log count their times from it.
        self._origin_us: int | None = None

    @property
    def total(self) -> int:
        """Number of events in the log."""
        return self.positions.total

    def state_at(self, sequence: int) -> StateView:
        """Return the state of the execution after the event `sequence`; 0 is before the first event. Raises
        `IndexError` for a number after the last event.
        """
        return view_of(self.positions.state_at(sequence))

    def event_at(self, sequence: int) -> DetailEvent:
        """Return the event with the number `sequence` as it was recorded, with long texts cut. Raises `IndexError` if
        the log does not contain it.
        """
        event = self.positions.event_at(sequence)
        # The budget limits the size of the data for the browser.
        return detail_of(event, Budget(MAX_VALUES).shortened(shown(event.data.to_data())))

    def said_at(self, sequence: int) -> tuple[int, list[ConversationPart]]:
        """Find the latest model request before or at an event. Return the number of the event that started the request,
        and the messages of the request.

        Return 0 and an empty list if there was no request. Raises `IndexError`.
        """
        if not 0 <= sequence <= self.total:
            raise IndexError(f"there is no position {sequence}: the log has {self.total} events; take one from 0 on")
        request = request_at(self.positions, sequence)
        return (0, []) if request is None else (request.span.sequences[0], request_and_response_parts(request))

    def why_at(self, sequence: int, name: str) -> list[WhyLine]:
        """Return the causes of the value that a variable had after an event. Raises `IndexError`, and `DivebookError`
        if the variable was not set or the log cannot tell.
        """
        if not 1 <= sequence <= self.total:
            raise IndexError(f"there is no event {sequence}: the log has {self.total} events; take one from 1 on")
        provenance = self.provenances.get((sequence, name)) or why(self._history(), name, sequence)
        texts = ProvenanceText(provenance)
        return [_why_line(entry, texts) for entry in entries(provenance, texts, MAX_CAUSES)]

    def block(self, after: int = 0, stop: int | None = None) -> EventBlock:
        """Return the events after sequence number `after`, up to and including `stop`, as columns of short texts.

        Reading the events also caches states. A state that a page requests later is therefore computed from a cached
        state nearby.
        """
        events = self.positions.events(after, stop)
        if self._origin_us is None and self.total:
            # Read when it is needed first, because an execution that starts now has no event yet.
            self._origin_us = self.positions.event_at(1).recorded_at
        return block_of(events, map(self._labels.of, events), self._origin_us or 0, after + 1)


def _why_line(entry: Entry, texts: ProvenanceText) -> WhyLine:
    """Convert one line of a provenance to data for views."""
    line = WhyLine(depth=entry.depth, sequence=0, kind="more", operation="", name="", value="", text=entry.text)
    if entry.call is not None:
        # The end of a call has its result. A call that did not end has only its start.
        sequence = entry.call.ended or entry.call.sequence
        return {**line, "sequence": sequence, "kind": "call", "operation": entry.call.type}
    if entry.origin is None:
        return line
    line["sequence"] = entry.origin.sequence
    if entry.is_repeated:
        return {**line, "kind": "again"}
    name, value, text = texts.parts(entry.origin)
    if name:
        value = _in_words(texts.clean(entry.origin))
    operation = _STEP_OPERATIONS.get(texts.types.get(entry.origin.step, ""), "") if entry.origin.kind == "set" else ""
    return {**line, "kind": entry.origin.kind, "operation": operation, "name": name, "value": value, "text": text}


def reply_of(log: Steppable, message: Mapping[str, Any]) -> ReplayToBrowser | None:
    """Return the answer to a message of a view that replays a log; None for messages of other types."""
    match message:
        # The types were checked by `refusal`. The patterns only bind the values.
        case {"type": "events", "view": str(view), "after": int(after), "stop": int(stop)}:
            # A long log is sent in several answers, so that other messages can be sent in between.
            block = log.block(max(0, after), min(stop, max(0, after) + EVENTS_PER_ANSWER))
            return EventsAnswer(type="events", view=view, total=log.total, events=block)
        case {"type": "state", "view": str(view), "sequence": int(sequence)}:
            # A position outside the log is not an error of the kernel. The view shows the reason.
            state, why = _result_or_error(log.state_at, sequence)
            return StateAnswer(type="state", view=view, sequence=sequence, state=state, error=why)
        case {"type": "event", "view": str(view), "sequence": int(sequence)}:
            event, why = _result_or_error(log.event_at, sequence)
            return EventAnswer(type="event", view=view, sequence=sequence, event=event, error=why)
        case {"type": "said", "view": str(view), "sequence": int(sequence)}:
            answer, why = _result_or_error(log.said_at, sequence)
            request_sequence, parts = answer or (0, [])
            return SaidAnswer(type="said", view=view, sequence=sequence, asked=request_sequence, parts=parts, error=why)
        case {"type": "why", "view": str(view), "sequence": int(sequence), "name": str(name)}:
            lines, why = _result_or_error(lambda at: log.why_at(at, name), sequence)
            return WhyAnswer(type="why", view=view, sequence=sequence, name=name, lines=lines or [], error=why)
    return None


def _result_or_error(read: Callable[[int], T], sequence: int) -> tuple[T | None, str]:
    try:
        return read(sequence), ""
    # A damaged log raises a `DivebookError` for the positions after the damage.
    except (IndexError, DivebookError) as error:
        return None, str(error)


def view_of(state: ExecutionState) -> StateView:
    """Convert the state of an execution to the JSON data that views show, in which large values are cut."""
    # One budget for the whole state: the first values are shown best.
    budget = Budget(MAX_VALUES)

    def values(recorded: Mapping[str, Any]) -> dict[str, Any]:
        shortened = budget.shortened({str(name): value_view(value) for name, value in recorded.items()})
        return cast("dict[str, Any]", shortened)

    return StateView(
        sequence=state.last_sequence,
        status=state.status,
        inputs=values(state.inputs),
        outputs=values(state.outputs),
        variables=values(state.variables),
        paths=[path_view(path_cell(path, state.variables), _cut, values) for path in shown_paths(state)],
        usage=state.own_usage.to_dict(),
        pending=[pending_view(question, _cut) for question in state.pending_interrupts()],
        error=_cut(state.error or ""),
    )


def value_view(value: Any) -> Any:
    """Convert a recorded value to JSON data for a replay. A frame becomes a mapping with its type, size and first rows
    under the key `FRAME`; a frame inside another value becomes a short text.
    """
    if not isinstance(value, Arrow):
        return shown(value)
    frame = {"type": type_of(value), "size": size_of(value), "columns": [], "rows": []}
    # A table of a library that is not installed here cannot be opened, and a large one would take too long.
    try:
        columns, rows = table_head(value, LARGEST_FRAME)
    except (DivebookError, ValueError):
        return {FRAME: frame}
    return {FRAME: {**frame, "columns": columns, "rows": rows}}


def shown_paths(state: ExecutionState) -> Sequence[PathState]:
    """Return at most `MAX_PATHS` paths in the order of their start: the active paths, then the newest ended paths."""
    # Active paths take precedence, because a run with many items has thousands of ended paths.
    active = state.active_paths()[:MAX_PATHS]
    names = {path.id for path in active}
    # `number` grows with each path that starts.
    over = sorted((path for path in state.paths.values() if path.id not in names), key=lambda path: path.number)
    room = MAX_PATHS - len(active)
    # ``over[-0:]`` would be all paths and not none.
    return sorted([*active, *(over[-room:] if room else [])], key=lambda path: path.number)


def path_cell(path: PathState, shared: Mapping[str, Any]) -> PathView:
    """Return the data of a path (branch of an execution) that a replay shows: status, current step, variables and
    error. Secrets are not replaced and long texts not cut yet.

    Its variables are omitted if they equal `shared`, the variables of the execution.
    """
    return PathView(
        id=path.id,
        status=path.status,
        phase=path.phase,
        step=path.current_step,
        visits=path.visits.get(path.current_step, 0),
        # A path between two steps reads nothing. Variables that equal those of the execution are sent once, in
        # `StateView`.
        variables=cast("Any", path.variables) if path.open is not None and path.variables != shared else None,
        error=path.error or "",
    )


def path_view(
    cell: PathView, text: Callable[[str], str], values: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> PathView:
    """Convert the data of a path from `path_cell` to JSON data for a view.

    The functions `text` and `values` shorten or redact its texts and variables.
    """
    # A recording redacts the values with its own redactor, and a live replay cuts them by a budget.
    variables = None if cell["variables"] is None else values(cell["variables"])
    return PathView(**{**cell, "variables": variables, "error": text(cell["error"])})


def pending_view(question: Question, text: Callable[[str], str]) -> PendingView:
    """Convert an open question to JSON data for a replay; `text` is a function that shortens or redacts texts."""
    return PendingView(
        interrupt_id=question.id,
        kind=question.kind,
        question=text(question.question or ""),
        path=question.path,
        step=question.step,
    )


def detail_of(event: Event, data: Any) -> DetailEvent:
    """Return one event in the form that views show; `data` is its data, already shortened or redacted."""
    return DetailEvent(sequence=event.sequence, event_type=event.event_type, recorded_us=event.recorded_at, data=data)


def _cut(text: str) -> str:
    return cut(text, MAX_TEXT)


class EventLabel(NamedTuple):
    """Texts of one event in a list of events: what it is about, its item of ``Each``, and what distinguishes it."""

    kind: str = ""
    """Type of the operation; ``step``, ``item`` or ``interrupt`` for events about a step, an item or a question."""
    item: str = ""
    text: str = ""


class EventLabels:
    """Reader that returns the labels of the events of a log.

    The end of an operation contains only the id of the operation, so that the reader remembers the items of operations
    whose start it has read. Without the start the end has no item.
    """

    def __init__(self) -> None:
        self._items: dict[str, str] = {}
        """Item of each operation that belongs to one, by operation id."""

    def of(self, event: Event, clean: Mapping[str, Any] | None = None) -> EventLabel:
        """Return the label of an event. `clean` is the data of the event without secrets, if the label must not contain
        any.
        """
        data: Any = event.data
        form = _form_of(data.event_type, data.field_names)
        operation = data.operation_id if form.has_operation else None
        index = data.iteration_index if form.has_item else None
        item = ""
        if index is not None:
            item = str(index)
            if operation:
                self._items[operation] = item
        elif operation:
            item = self._items.get(operation, "")
        kind = data.operation_type if form.has_type else form.kind
        return EventLabel(kind, item, _text_of(data, clean, form))


class _EventForm(NamedTuple):
    """Fields of a type of events that its label is made of. They are looked up once for each type, because a log has
    many events of few types.
    """

    kind: str
    has_operation: bool
    has_item: bool
    has_type: bool
    texts: tuple[str, ...]
    """Fields of `_SUMMARY_FIELDS` that the type has."""


@cache
def _form_of(event_type: str, fields: tuple[str, ...]) -> _EventForm:
    prefix = event_type.partition("_")[0]
    return _EventForm(
        kind={"step": "step", "iteration": "item", "interrupt": "interrupt"}.get(prefix, ""),
        has_operation="operation_id" in fields,
        # `RowsCompleted` counts its events in this field, and not items.
        has_item="iteration_index" in fields and event_type != catalog.RowsCompleted.event_type,
        has_type="operation_type" in fields,
        texts=tuple(name for name in _SUMMARY_FIELDS if name in fields),
    )


def _text_of(data: catalog.Payload, clean: Mapping[str, Any] | None, form: _EventForm) -> str:
    """Return a short text that distinguishes an event from others of its type: the names of the changed variables, the
    operation, its result, or the error. The type of the event is shown beside it, so it is not repeated.
    """
    match data:
        case catalog.StateMutated():
            return ", ".join([change.key for change in data.mutations])
        case catalog.OperationStarted():
            return f"{data.operation_type} {data.name or ''}".rstrip()
        case catalog.RowsCompleted():
            failed = f", {data.failed:,} failed" if data.failed else ""
            return f"{data.rows:,} of {data.total:,} rows{failed}"
        case catalog.IterationStarted() if data.item_key:
            return data.item_key
    field = _VALUES.get(data.event_type)
    if field is not None:
        value = getattr(data, field) if clean is None else clean.get(field)
        return _response_text(value) if getattr(data, "operation_type", "") in MODEL_CALLS else _value_text(value)
    for name in form.texts:
        text = getattr(data, name)
        if text and isinstance(text, str):
            return text
    return ""


def _response_text(response: Any) -> str:
    """Return the text of a model's response, or the names of the tools that it asks for."""
    if not isinstance(response, Mapping):
        return _value_text(response)
    calls = [part for part in response.get("parts") or () if part.get("part_kind") == "tool-call"]
    if calls:
        return f"asks for {one_line(', '.join(str(part.get('tool_name', '')) for part in calls), MAX_LABEL)}"
    return result_preview(MODEL_CALLS[0], response)


def _value_text(value: Any) -> str:
    """Return a value in one line. Of a mapping with one entry, return this entry: ``yes`` for ``{"text": "yes"}``."""
    if isinstance(value, Mapping):
        entries = {name: part for name, part in value.items() if part is not None}
        value = next(iter(entries.values())) if len(entries) == 1 else entries
    return "" if value is None else _in_words(value)


def _in_words(value: Any, depth: int = DEPTH) -> str:
    """Return the beginning of a value in one line, without the quotes and brackets of JSON around texts and names."""
    # First, because most values in a log of many items are numbers and short texts.
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    match value:
        case str():
            return one_line(value[: 2 * MAX_LABEL], MAX_LABEL)
        case Arrow():
            return f"{type_of(value)} {size_of(value)}"
        case Mapping() if depth:
            parts = [f"{name}: {_in_words(part, depth - 1)}" for name, part in islice(value.items(), MOST_PARTS)]
        case list() | tuple() if depth:
            parts = [_in_words(part, depth - 1) for part in value[:MOST_PARTS]]
        case _:
            # Other recorded values have a short text. Nested values that are too deep are only indicated.
            return "…" if isinstance(value, Mapping | list | tuple) else preview(value)
    text = ", ".join([*parts, *(["…"] if len(value) > MOST_PARTS else [])])
    if not isinstance(value, Mapping):
        return one_line(f"[{text}]", MAX_LABEL)
    # Braces separate nested mappings; around the whole text they would say nothing.
    return one_line(text if depth == DEPTH else f"{{{text}}}", MAX_LABEL)


def block_of(events: Sequence[Event], labels: Iterable[EventLabel], origin_us: int, first: int) -> EventBlock:
    """Convert events to one message for views, with a column for each field. `labels` contains the label of each event
    (`EventLabels`).
    """
    names = BlockNames()
    place = names.place
    texts = [*labels]
    block = EventBlock(
        first=first,
        sequence=[event.sequence for event in events],
        origin_us=origin_us,
        names=[],
        time=[event.recorded_at - origin_us for event in events],
        type=[place(event.event_type) for event in events],
        path=[place(event.path) for event in events],
        step=[place(event.step) for event in events],
        text=[place(label.text) if label.text else 0 for label in texts],
        kind=[place(label.kind) if label.kind else 0 for label in texts],
        item=[place(label.item) if label.item else 0 for label in texts],
    )
    # The list of texts is complete only after all columns were made.
    block["names"] = names.listed()
    return block
