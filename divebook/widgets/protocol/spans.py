"""What ran when: spans by columns, and the events behind one of them."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from divebook.widgets.protocol.views import Micros


class SpanBlock(TypedDict):
    """Spans by columns of equal length; texts are positions in `names`, which belongs to this block alone."""

    names: list[str]
    """The first is the empty text."""
    id: list[int]
    """Place in the order in which the spans began, from 0; the span's name for good."""
    kind: list[int]
    """``step``, ``item`` or ``operation``."""
    path: list[int]
    step: list[int]
    type: list[int]
    """Type of the step or operation: ``prompt``, ``agent_response``, ..."""
    label: list[int]
    """What tells it from its neighbours: the item, the model, the tool, the action."""
    item: list[int]
    """What tells the item of `Each` that it belongs to from the others, else its place: ``rows[3]``; empty outside."""
    given: list[int]
    """Beginning of what an operation was given: its arguments, the script, the prompt."""
    came: list[int]
    """Beginning of what came of an operation."""
    status: list[int]
    note: list[int]
    """Beginning of the error, if there is one."""
    start: list[int]
    """Microseconds since the origin of the welcome."""
    end: list[int]
    """The same; -1 while it runs."""
    iteration: list[int]
    """Number of the item; -1 if it belongs to none."""
    visit: list[int]
    attempts: list[int]
    tokens: list[int]
    sequence: list[int]
    """The event it began with."""
    within: list[int]
    """The agent's turn that holds it, by its id; -1 if none does."""


class Range(TypedDict):
    """A view asks for spans it does not have."""

    type: Literal["range"]
    view: str
    first: int
    stop: int


class RangeAnswer(TypedDict):
    """Answer to `Range`."""

    type: Literal["history"]
    view: str
    first: int
    """The span it begins with; it has all from there up to `stop`."""
    stop: int
    last: int
    """The event up to which changes are in it."""
    spans: SpanBlock


class DetailEvent(TypedDict):
    """An event as it is recorded; texts beyond a limit are cut."""

    sequence: int
    event_type: str
    recorded_us: Micros
    data: dict[str, Any]


class Detail(TypedDict):
    """Answer to `DetailRequest`."""

    type: Literal["detail"]
    view: str
    id: int
    events: list[DetailEvent]
    error: str
    """Why there are none."""


class DetailRequest(TypedDict):
    """A view asks for the events of a span."""

    type: Literal["detail"]
    view: str
    id: int
