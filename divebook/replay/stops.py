"""Where somebody who goes through a log wants to stop: by what an event says. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TypeAlias

from divebook.engine.operations import AGENT_RESPONSE, CACHED_RESPONSE
from divebook.errors import NotFoundError
from divebook.events import Event
from divebook.events.catalog import (
    PAYLOADS,
    ExecutionFailed,
    ExecutionForked,
    InterruptRaised,
    IterationFailed,
    OperationFailed,
    OperationStarted,
    PathFailed,
    StateMutated,
    StepFailed,
)

Fits: TypeAlias = Callable[[Event], bool]

FAILURES = (OperationFailed, IterationFailed, StepFailed, PathFailed, ExecutionFailed)
MODEL_CALLS = (AGENT_RESPONSE, CACHED_RESPONSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """What an event must be to be stopped at: all that is said here.

    Raises
    ------
    NotFoundError
        There is no such type of event.
    ValueError
        Nothing is said.
    """

    where: Fits | None = None
    """Whether it fits."""
    step: str | None = None
    """The step it belongs to."""
    path: str | None = None
    """The path it belongs to."""
    event: str | None = None
    """Its type: ``step_completed``."""
    operation: str | None = None
    """What is called (an action, agent, function, workflow or signal), or the type of the operation that begins."""
    error: bool = False
    """Whether something failed."""
    question: bool = False
    """Whether a person is asked."""
    model_call: bool = False
    """Whether a model is asked."""
    changed: str | None = None
    """A variable that is set, or deleted."""

    def __post_init__(self) -> None:
        if all(getattr(self, field.name) == field.default for field in fields(self)):
            raise ValueError("nothing is said of where to stop; say one of step=, event=, operation=, error=True ...")
        if self.event is not None and self.event not in PAYLOADS:
            raise NotFoundError("event type", self.event, PAYLOADS)

    def fits(self, event: Event) -> bool:
        """Return whether to stop at an event."""
        data = event.data
        return (
            (self.step is None or event.step == self.step)
            and (self.path is None or event.path == self.path)
            and (self.event is None or event.event_type == self.event)
            and (self.operation is None or _calls(event, self.operation))
            and (not self.error or isinstance(data, FAILURES))
            and (not self.question or isinstance(data, InterruptRaised))
            and (not self.model_call or asks_model(event))
            and (self.changed is None or _sets(event, self.changed))
            and (self.where is None or bool(self.where(event)))
        )


def asks_model(event: Event) -> bool:
    """Return whether a request to a model begins with an event."""
    return isinstance(event.data, OperationStarted) and event.data.operation_type in MODEL_CALLS


def _calls(event: Event, name: str) -> bool:
    return isinstance(event.data, OperationStarted) and name in (event.data.name, event.data.operation_type)


def _sets(event: Event, variable: str) -> bool:
    match event.data:
        case StateMutated(mutations=mutations):
            return any(mutation.key == variable for mutation in mutations)
        case ExecutionForked(change={"variables": Mapping() as told}):
            return variable in told
    return False
