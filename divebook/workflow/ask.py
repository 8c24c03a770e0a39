"""What a step of type ``interrupt`` asks a person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from divebook.errors import DefinitionError, Problem, did_you_mean, shown_number
from divebook.questions.kinds import DEFINABLE
from divebook.text.durations import parse_duration
from divebook.text.ranges import SOME_SECONDS
from divebook.workflow import kinds
from divebook.workflow.stored_form import Definition, json_value
from divebook.workflow.table import Key


@dataclass(frozen=True, slots=True)
class Ask(Definition):
    """A question to a person; texts may hold ``${...}``.

    Examples
    --------
    >>> Ask("Deploy ${state.version}?", kind="confirmation", expires_in="2h", default=False).expires_in
    7200.0
    """

    short = (str,)
    question: Annotated[
        str, Key("What is asked; a template.", required="Ask needs a Question", example="Publish ${state.title}?")
    ]
    kind: Annotated[str, Key("What is asked for, such as an approval or a text.", example="confirmation")] = (
        "clarification"
    )
    """One of `divebook.questions.kinds.DEFINABLE`."""
    message: Annotated[str | None, Key("More about it; a template.", example="It goes to ${inputs.list}.")] = None
    data: Annotated[
        Mapping[str, Any],
        Key(
            "What the person looks at; strings at any depth are templates, `$(...)` a value.",
            example="{draft: $(state.draft)}",
        ),
    ] = field(default_factory=dict)
    schema: Annotated[
        Mapping[str, Any] | None,
        Key("The JSON schema that an answer fits.", example="{type: object, properties: {score: {type: integer}}}"),
    ] = None
    expires_in: Annotated[
        float | None,
        Key(
            "Seconds after which the Default answers, or the step fails. With a Default, `divebook run` waits for that "
            "where no terminal can ask a person.",
            kind=kinds.Seconds(SOME_SECONDS),
            example="2h",
        ),
    ] = None
    """Seconds, also written as ``30s``, ``2h``; without it the question never expires."""
    default: Annotated[Any, Key("The answer after that time.", example="false")] = None
    has_default: bool = False
    optional: Annotated[bool | None, Key("Whether the person may leave it unanswered.")] = None

    def __post_init__(self) -> None:
        self._put(**{name: json_value(getattr(self, name), name) for name in ("data", "schema", "default")})
        self._put(has_default=self.has_default or self.default is not None)
        if self.kind not in DEFINABLE:
            hint = did_you_mean(self.kind, DEFINABLE) or f"use one of {', '.join(DEFINABLE)}"
            raise DefinitionError([Problem(f"unknown kind of question: {self.kind!r}", key="Kind", hint=hint)])
        if not self.question.strip():
            raise DefinitionError([Problem("a question needs a text", key="Question", hint="write Question")])
        self._put(expires_in=_seconds(self.expires_in))
        if self.has_default and self.expires_in is None:
            hint = "add ExpiresIn, or remove Default"
            raise DefinitionError([Problem("Default only holds once a question has expired", key="Default", hint=hint)])


def _seconds(value: float | str | None) -> float | None:
    if value is None:
        return None
    try:
        seconds = parse_duration(value) if isinstance(value, str) else value
    except (ValueError, OverflowError):
        seconds = None
    if seconds is not None and SOME_SECONDS.fits(seconds):
        return float(seconds)
    hint = f"write 30s, 2h or {SOME_SECONDS}"
    raise DefinitionError([Problem(f"ExpiresIn is not a duration: {shown_number(value)}", key="ExpiresIn", hint=hint)])
