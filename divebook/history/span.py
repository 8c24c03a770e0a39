"""One stretch of a log: a visit to a step, an item of `Each`, an operation, or an event of a person's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from divebook.events import catalog
from divebook.events.event import Timed

Kind: TypeAlias = Literal["step", "item", "operation", "event"]
Handled: TypeAlias = Literal["", "skipped", "kept", "caught"]
"""What became of a failure that has not ended its path."""


@dataclass(slots=True)
class Span(Timed):
    """A stretch of work, from its first event to its last."""

    kind: Kind
    path: str
    step: str
    visit: int
    type: str
    """Type of the step or operation: ``prompt``, ``agent_response``, ..."""
    started_us: int
    """Microseconds since 1970."""
    ended_us: int | None = None
    status: str = catalog.RUNNING
    error: str | None = None
    error_type: str | None = None
    """Class of the error."""
    reason: str | None = None
    """The error of the call that made it fail, without what the steps around that have said of it."""
    trace: str | None = None
    """Where it was raised: lines of a person's code, none of divebook's."""
    place: Mapping[str, Any] | None = None
    """The line that raised it, with those around it, as `divebook.execution.tracing.place_of` gives it."""
    cause: int = -1
    """Index of the span of the call whose failure made it fail; -1 if its own code raised."""
    failed_item: int | None = None
    """Of a step: the item of `Each` that made it fail."""
    handled: Handled = ""
    iteration: int | None = None
    operation_id: str | None = None
    called: str | None = None
    """What an operation calls: the action, the agent, the signal ...; or the name of a person's own event."""
    attempts: int = 1
    """How often it was begun; more than once after a crash, a retry or a resumption. Every attempt of a step makes
    operations of its own: of these it is the number of the attempt."""
    items: int = 0
    """Items of `Each` that are done."""
    item: Any = None
    """The item of `Each`, of an item and of the operations in it."""
    item_key: str | None = None
    """The same in the mapping that `Each` goes through, where it is one."""
    key: str | int | None = None
    """Of an operation: its place within the step."""
    within: str | None = None
    """Id of the operation that holds it: the turn of an agent that made it."""
    holder: int = -1
    """Index of the span of that; -1 if there is none."""
    parameters: Mapping[str, Any] | None = None
    setting: Mapping[str, Any] | None = None
    """Of a request of a turn: what it is made with, as far as that is not as in the request before."""
    result: Any = None
    agent: str | None = None
    model: str | None = None
    """Of a model call: who was asked; of a step: whom its first model call asked."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """What its model calls consumed; without ``cost`` where no price is known, empty where there were none."""
    is_pause: bool = False
    """Of an operation: whether it is the timer before another attempt, and no call."""
    asleep: bool = False
    """Of a step: whether it lets time pass."""
    index: int = 0
    """Place in the order in which the spans began."""
    sequences: list[int] = field(default_factory=list)
    """The events it is made of."""

    @property
    def name(self) -> str:
        """Short name: the step, with the number of the item if it is one."""
        return self.step if self.iteration is None else f"{self.step}[{self.iteration}]"

    @property
    def shown_status(self) -> str:
        """Status for people: a step that lets time pass waits."""
        return catalog.WAITING if self.asleep and self.status == catalog.RUNNING else self.status

    @property
    def duration_us(self) -> int | None:
        """Microseconds it took; None while it runs."""
        return None if self.ended_us is None else self.ended_us - self.started_us

    @property
    def headline(self) -> str:
        """Its error as people read it: class and message of what failed in it; empty if it has none."""
        return headline(self.error_type or "", self.reason or self.error or "")

    @property
    def is_failure(self) -> bool:
        """Whether it stands for a failure: an item that has failed, or a step that failed by itself."""
        failed = self.status == catalog.FAILED
        return failed and (self.kind == "item" or (self.kind == "step" and self.failed_item is None))

    def forget_error(self) -> None:
        """Let it have no error: it goes on."""
        self.error = self.error_type = self.reason = self.trace = self.place = self.failed_item = None
        self.cause, self.handled = -1, ""


def headline(error_type: str, message: str) -> str:
    """Return class and message of an error.

    >>> headline("KeyError", "'b'"), headline("KeyError", "KeyError: 'b'"), headline("", "no such agent")
    ("KeyError: 'b'", "KeyError: 'b'", 'no such agent')
    """
    return message if not error_type or message.startswith(error_type) else f"{error_type}: {message}"
