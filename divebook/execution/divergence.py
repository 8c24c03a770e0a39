"""Errors for code that asks for something else than the log has at the same place, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from divebook.engine.operations import Place, operation_kind, operation_name
from divebook.errors import DivergenceError
from divebook.events.codec import encode_shown
from divebook.questions import Question

MOST_CHANGES = 6
MOST_CHARACTERS = 120
NOTHING = object()


def call_diverged(
    place: Place, recorded: tuple[str, Mapping[str, Any]], wanted: tuple[str, Mapping[str, Any]]
) -> DivergenceError:
    """Return the error for an operation, type and parameters, that differs from the recorded one."""
    changes = list(changes_between(recorded[1], wanted[1])) if recorded[0] == wanted[0] else []
    return DivergenceError(str(place), operation_text(*recorded), operation_text(*wanted), _at_most(changes))


def question_diverged(place: Place, recorded: Question, wanted: Question) -> DivergenceError:
    """Return the error for a question that differs from the one that was shown."""
    changes = list(changes_between(recorded.content, wanted.content))
    return DivergenceError(str(place), question_text(recorded), question_text(wanted), _at_most(changes))


def kind_diverged(place: Place, recorded: str, wanted: str) -> DivergenceError:
    """Return the error for a question where the log has a call, or the other way round."""
    return DivergenceError(str(place), recorded, wanted)


def operation_text(operation_type: str, parameters: Mapping[str, Any]) -> str:
    """Return an operation in a few words: ``action 'pay' with {"amount":5}``."""
    name = operation_name(operation_type, parameters)
    shown = in_short(parameters.get("arguments", parameters.get("params", parameters)))
    return f"{operation_kind(operation_type)}{f' {name!r}' if name else ''} with {shown}"


def question_text(question: Question) -> str:
    """Return a question in a few words."""
    data = f" about {in_short(question.data)}" if question.data else ""
    return f"the {question.kind} {in_short(question.question)}{data}"


def changes_between(before: Any, now: Any) -> Iterator[str]:
    """Yield what differs between two values, in words."""
    return _changes("", before, now)


def _changes(where: str, before: Any, now: Any) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in (*before, *(key for key in now if key not in before)):
            yield from _changes(
                f"{where}.{key}" if where else str(key), before.get(key, NOTHING), now.get(key, NOTHING)
            )
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from _changes(f"{where}[{index}]", old, new)
    elif in_short(before, None) != in_short(now, None):
        yield f"{where} was {in_short(before)}, is {in_short(now)}"


def _at_most(changes: Sequence[str]) -> Sequence[str]:
    more = len(changes) - MOST_CHANGES
    return changes if more <= 0 else [*changes[:MOST_CHANGES], f"and {more} more"]


def in_short(value: Any, limit: int | None = MOST_CHARACTERS) -> str:
    """Return a value as people read it, cut off at a limit."""
    if value is NOTHING:
        return "not there"
    text = encode_shown(value).decode(errors="replace")
    return text if limit is None or len(text) <= limit else f"{text[: limit - 1]}…"
