"""Stepping through a log: its events, and how the execution stood after each."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from divebook.widgets.protocol.conversations import ConversationPart
from divebook.widgets.protocol.spans import DetailEvent
from divebook.widgets.protocol.views import Micros


class EventBlock(TypedDict):
    """Events by columns of equal length; texts are positions in `names`, which belongs to this block."""

    first: int
    """The sequence number from which on it has all events that there are; of a sample some are not."""
    sequence: list[int]
    origin_us: Micros
    """What the times are counted from."""
    names: list[str]
    """The first is the empty text."""
    time: list[int]
    """Microseconds since the origin."""
    type: list[int]
    path: list[int]
    step: list[int]
    text: list[int]
    """What tells it from its neighbours: the error, the condition, the variables that changed."""


class PathView(TypedDict):
    """A line of progress as it stood."""

    id: str
    status: str
    phase: str
    step: str
    visits: int
    """How often it had entered its present step."""
    variables: dict[str, Any] | None
    """Those that its step reads, where they are others than the execution's."""
    error: str


class PendingView(TypedDict):
    """A question that was open."""

    interrupt_id: str
    kind: str
    question: str
    path: str
    step: str


class StateView(TypedDict):
    """An execution as it stood after an event; long texts are cut."""

    sequence: int
    status: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    variables: dict[str, Any]
    paths: list[PathView]
    usage: dict[str, int]
    pending: list[PendingView]
    error: str


class StateRequest(TypedDict):
    """A view asks how the execution stood after an event."""

    type: Literal["state"]
    view: str
    sequence: int


class StateAnswer(TypedDict):
    """Answer to `StateRequest`."""

    type: Literal["state"]
    view: str
    sequence: int
    state: StateView | None
    error: str
    """Why there is none."""


class EventRequest(TypedDict):
    """A view asks for the whole of one event."""

    type: Literal["event"]
    view: str
    sequence: int


class EventAnswer(TypedDict):
    """Answer to `EventRequest`."""

    type: Literal["event"]
    view: str
    sequence: int
    event: DetailEvent | None
    error: str
    """Why there is none."""


class EventRange(TypedDict):
    """A view asks for events after one sequence number, up to another."""

    type: Literal["events"]
    view: str
    after: int
    stop: int


class GoTo(TypedDict):
    """A cell has moved the replay: every page that shows it goes to the position after an event."""

    type: Literal["go"]
    sequence: int


class StoodAt(TypedDict):
    """Somebody has moved the replay in a page: it stands after this event."""

    type: Literal["at"]
    view: str
    sequence: int


class SaidQuery(TypedDict):
    """A view asks what the model that was asked last was sent, and what it had answered by then."""

    type: Literal["said"]
    view: str
    sequence: int
    """The position that is meant."""


class SaidAnswer(TypedDict):
    """Answer to `SaidQuery`."""

    type: Literal["said"]
    view: str
    sequence: int
    asked: int
    """The event with which that request began; 0 where no model had been asked."""
    parts: list[ConversationPart]
    error: str
    """Why there are none."""


class PictureQuery(TypedDict):
    """A view asks for what the timeline and the graph beside a replay show; a `Welcome` is the answer."""

    type: Literal["picture"]
    view: str


class EventsAnswer(TypedDict):
    """Answer to `EventRange`."""

    type: Literal["events"]
    view: str
    total: int
    events: EventBlock
