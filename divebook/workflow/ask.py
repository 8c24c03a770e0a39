"""What a step of type ``interrupt`` asks a person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from divebook.errors import DefinitionError, Problem, nearest
from divebook.questions.kinds import DEFINABLE
from divebook.text.durations import parse_duration
from divebook.workflow.record import Record, json_value


@dataclass(frozen=True, slots=True)
class Ask(Record):
    """A question to a person; texts may hold ``${...}``.

    Examples
    --------
    >>> Ask("Deploy ${state.version}?", kind="confirmation", expires_in="2h", default=False).expires_in
    7200.0
    """

    question: str
    kind: str = "clarification"
    """One of `divebook.questions.kinds.DEFINABLE`."""
    message: str | None = None
    """More than the question itself, for people."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Plain data shown beside it; a text that is wholly ``$(...)`` gives its value."""
    schema: Mapping[str, Any] | None = None
    """JSON schema of the value that is asked for."""
    expires_in: float | None = None
    """Seconds, also written as ``30s``, ``2h``; without it the question never expires."""
    default: Any = None
    """The answer that holds once it has expired; without one the step fails then."""
    has_default: bool = False
    optional: bool | None = None
    """Whether an empty answer will do."""

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        for name in ("data", "schema", "default"):
            set_field(self, name, json_value(getattr(self, name), name))
        set_field(self, "has_default", self.has_default or self.default is not None)
        if self.kind not in DEFINABLE:
            match = nearest(self.kind, DEFINABLE)
            hint = f"did you mean {match!r}?" if match else f"use one of {', '.join(DEFINABLE)}"
            raise DefinitionError([Problem(f"unknown kind of question: {self.kind!r}", key="Kind", hint=hint)])
        if not self.question.strip():
            raise DefinitionError([Problem("a question needs a text", key="Question", hint="write Question")])
        set_field(self, "expires_in", _seconds(self.expires_in))
        if self.has_default and self.expires_in is None:
            hint = "add ExpiresIn, or remove Default"
            raise DefinitionError([Problem("Default only holds once a question has expired", key="Default", hint=hint)])

    @classmethod
    def of(cls, value: Ask | str | Mapping[str, Any]) -> Ask:
        """Return `value` as a question; a text is asked as a clarification."""
        if isinstance(value, Ask):
            return value
        return cls(value) if isinstance(value, str) else cls.from_dict(value)


def _seconds(value: float | str | None) -> float | None:
    if value is None:
        return None
    try:
        return parse_duration(value) if isinstance(value, str) else _number(value)
    except ValueError:
        hint = "write 30s, 2h or a number of seconds"
        raise DefinitionError([Problem(f"ExpiresIn is no duration: {value!r}", key="ExpiresIn", hint=hint)]) from None


def _number(value: float) -> float:
    if not 0 < value < float("inf"):
        raise ValueError(value)
    return float(value)
