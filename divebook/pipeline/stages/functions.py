"""The Python functions of a pipeline's stages, and what they may return."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from divebook.workflow.user_functions import Takes, UserFunction

EnvelopeFunction = Callable[..., Any]
"""Takes an envelope, which it may change; a coroutine function or an ordinary one, which runs in a thread."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """What a stage's function returns where its output is not all there is to say."""

    output: Mapping[str, Any] = field(default_factory=dict)
    llm_calls: int | None = None
    """Model calls it made; by default 1 for a stage with a model, else 0."""


@dataclass(frozen=True, slots=True)
class StageFunctions:
    """The functions of a pipeline, by stage.

    All of them receive the envelope and may change it (ask with `set_interrupt`, keep metadata); what they change is
    recorded with their result.
    """

    services: Mapping[str, EnvelopeFunction] = field(default_factory=dict)
    """``f(envelope)`` returns the output, or a `StageResult`."""
    mocks: Mapping[str, EnvelopeFunction | Mapping[str, Any]] = field(default_factory=dict)
    """Outputs, or functions of an envelope, in place of whatever else a stage does; they count no model call."""
    before: Mapping[str, EnvelopeFunction] = field(default_factory=dict)
    """``f(envelope)`` runs in front of a stage's work."""
    after: Mapping[str, EnvelopeFunction] = field(default_factory=dict)
    """``f(envelope, output)`` runs once the output is in its slot."""
    save: Callable[[dict[str, Any]], Any] | None = None
    """``f(state)`` receives the envelope's state when a stage, or batch, has ended; what it raises is logged only."""

    @property
    def stages(self) -> set[str]:
        """The names of the stages that have a function."""
        return {*self.services, *self.mocks, *self.before, *self.after}


NO_FUNCTIONS = StageFunctions()


class StageFunction(UserFunction):
    """A function of a stage, called with an envelope, and a hook after the work with the output as well."""

    __slots__ = ()
    kind = "stage"
    stays_here = True

    @property
    def takes(self) -> Takes:
        """Return that nothing comes with the call, whatever its parameters are called."""
        return Takes(inspect.iscoroutinefunction(self.function))

    def bound(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the arguments by position: a person may call them as they like."""
        return tuple(arguments.values()), {}
