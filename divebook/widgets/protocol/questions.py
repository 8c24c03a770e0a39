"""Questions to a person: of one execution, of a whole store, and of a cell that must know how to go on."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from divebook.questions.kinds import InterruptKind, InterruptStatus
from divebook.widgets.protocol.views import Micros


class QuestionView(TypedDict):
    """A question and, once there is one, its answer."""

    interrupt_id: str
    kind: InterruptKind
    question: str
    message: str
    path: str
    step: str
    data: dict[str, Any]
    schema: dict[str, Any] | None
    """JSON schema of the answer; null if any text will do."""
    raised_us: Micros
    expires_us: Micros | None
    required: bool
    status: InterruptStatus
    response: Any
    answered_by: str | None
    answered_us: Micros | None
    """When it was settled, by an answer or without one."""
    became: str
    """What became of it in words: the answer, that it expired or was withdrawn; empty while it is open."""
    fallback: str
    """The answer that holds once it has expired, in words; empty if there is none."""


class Asked(TypedDict):
    """A question and the execution that asks it."""

    execution_id: str
    workflow: str
    question: QuestionView
    cell: str
    """The notebook's cell that began the execution, by its id; empty if none did."""


class Inbox(TypedDict):
    """What waits for an answer in all executions of a store, for a view that begins or has missed something."""

    type: Literal["inbox"]
    view: str
    last: int
    """Number of the last `InboxDelta` that is in it."""
    now_us: Micros
    hidden: int
    """Open questions that are too many to be shown."""
    asked: list[Asked]
    """All open questions, and those that were settled lately."""


class InboxDelta(TypedDict):
    """What changed since the last one, for all views."""

    type: Literal["asked"]
    after: int
    """The one it continues; a view that knows less has missed something."""
    last: int
    now_us: Micros
    hidden: int
    asked: list[Asked]
    """Those that are new or changed."""


class Choice(TypedDict):
    """One of the things that can be done."""

    name: str
    """What an `AnswerGiven` that chooses it responds."""
    label: str
    told: str
    """What comes of it."""


class Offer(TypedDict):
    """What a person must choose before a cell can go on."""

    type: Literal["offer"]
    view: str
    id: str
    """What an `AnswerGiven` to it names."""
    text: str
    choices: list[Choice]


class AnswerGiven(TypedDict):
    """A person answers a question."""

    type: Literal["answer"]
    id: str
    interrupt_id: str
    response: Any
