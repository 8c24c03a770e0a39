"""Replay of a log in a view: the state of the execution after each event, and the events.

`divebook.replay.replayer` computes the states. All results are JSON data of limited size. A position is the sequence
number of an event; position 0 is before the first event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

from divebook.engine.state import ExecutionState, PathState
from divebook.errors import DivebookError
from divebook.events import Event
from divebook.events.catalog import OperationStarted, StateMutated
from divebook.events.codec import tagged_form
from divebook.questions import Question
from divebook.replay.replayer import Positions, request_at
from divebook.text.redaction import cut
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
)
from divebook.widgets.source import MAX_TEXT, BlockNames, Budget

T = TypeVar("T")

MAX_VALUES = 400_000
"""Maximum number of characters of all values in one answer."""
EVENTS_PER_ANSWER = 10_000
MAX_PATHS = 200
_SUMMARY_FIELDS = (
    "error",
    "condition",
    "question",
    "item_key",
    "operation_type",
    "stored_variable",
    "target",
    "signal_type",
)
"""Fields that distinguish an event from other events, the most informative first."""


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


class SteppedLog:
    """Log of an execution in a form that a view can replay event by event (`Steppable`).

    Examples
    --------
    >>> from divebook.events import Event, catalog
    >>> log = [Event("event_1", "exec_1", 1, 1, catalog.ExecutionStarted("demo", {"x": 1}))]
    >>> SteppedLog(Positions.of(log)).state_at(1)["inputs"]
    {'x': 1}
    """

    def __init__(self, positions: Positions) -> None:
        self.positions = positions
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
        return detail_of(event, Budget(MAX_VALUES).shortened(tagged_form(event.data.to_data())))

    def said_at(self, sequence: int) -> tuple[int, list[ConversationPart]]:
        """Find the latest model request before or at an event. Return the number of the event that started the request,
        and the messages of the request.

        Return 0 and an empty list if there was no request. Raises `IndexError`.
        """
        if not 0 <= sequence <= self.total:
            raise IndexError(f"there is no position {sequence}: the log has {self.total} events; take one from 0 on")
        request = request_at(self.positions, sequence)
        return (0, []) if request is None else (request.span.sequences[0], request_and_response_parts(request))

    def block(self, after: int = 0, stop: int | None = None) -> EventBlock:
        """Return the events after sequence number `after`, up to and including `stop`, as columns of short texts.

        Reading the events also caches states. A state that a page requests later is therefore computed from a cached
        state nearby.
        """
        events = self.positions.events(after, stop)
        if self._origin_us is None and self.total:
            # Read when it is needed first, because an execution that starts now has no event yet.
            self._origin_us = self.positions.event_at(1).recorded_at
        return block_of(events, map(summary_of, events), self._origin_us or 0, after + 1)


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
    return StateView(
        sequence=state.last_sequence,
        status=state.status,
        inputs=budget.plain(state.inputs),
        outputs=budget.plain(state.outputs),
        variables=budget.plain(state.variables),
        paths=[path_view(path_cell(path, state.variables), _cut, budget.plain) for path in shown_paths(state)],
        usage=state.own_usage.to_dict(),
        pending=[pending_view(question, _cut) for question in state.pending_interrupts()],
        error=_cut(state.error or ""),
    )


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


def block_of(events: Sequence[Event], texts: Iterable[str], origin_us: int, first: int) -> EventBlock:
    """Convert events to one message for views, with a column for each field. `texts` contains the short text that a
    view shows for each event (`summary_of`).
    """
    names = BlockNames()
    place = names.place
    block = EventBlock(
        first=first,
        sequence=[event.sequence for event in events],
        origin_us=origin_us,
        names=[],
        time=[event.recorded_at - origin_us for event in events],
        type=[place(event.event_type) for event in events],
        path=[place(event.path) for event in events],
        step=[place(event.step) for event in events],
        text=[place(text) for text in texts],
    )
    # The list of texts is complete only after all columns were made.
    block["names"] = names.listed()
    return block


def summary_of(event: Event) -> str:
    """Return a short text about an event for a list of events, such as the names of the changed variables, the
    operation or the error.
    """
    # The type of the event is shown beside this text, so it is not repeated.
    if isinstance(event.data, StateMutated):
        return ", ".join(change.key for change in event.data.mutations)
    if isinstance(event.data, OperationStarted):
        return f"{event.data.operation_type} {event.data.name or ''}".rstrip()
    # Events have different fields. Missing fields and values that are not texts are skipped.
    values = (getattr(event.data, name, None) for name in _SUMMARY_FIELDS)
    return next((value for value in values if isinstance(value, str) and value), "")
