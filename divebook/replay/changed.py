"""What differs between two states of one execution, part by part. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from divebook.engine.state import ExecutionState
from divebook.events.recorded import opened

Kind: TypeAlias = Literal["added", "removed", "changed"]

_PARTS = ("status", "variables", "outputs", "paths", "questions", "usage", "error")
"""Parts of a state that are compared, in the order in which they are told."""
_ABSENT = object()


class Changed(NamedTuple):
    """A part of a state that is no longer as it was."""

    where: str
    """``variables.n``, ``paths.main.step``, ``status`` ..."""
    kind: Kind
    before: Any
    """None where it was added."""
    after: Any
    """None where it was removed."""


def changed_between(before: ExecutionState, after: ExecutionState) -> list[Changed]:
    """Return what an execution has otherwise in a later state.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from immutables import Map
    >>> from divebook.engine.state import ExecutionState
    >>> old = ExecutionState("exec_1", variables=Map(n=1))
    >>> changed_between(old, replace(old, variables=Map(n=2)))
    [Changed(where='variables.n', kind='changed', before=1, after=2)]
    """
    return [found for part in _PARTS for found in _between(part, _part(before, part), _part(after, part))]


def _part(state: ExecutionState, part: str) -> Any:
    match part:
        case "paths":
            return {
                path.id: {"status": path.status, "phase": path.phase, "step": path.current_step, "error": path.error}
                for path in state.paths.values()
            }
        case "questions":
            return {asked.id: str(asked.status) for asked in state.interrupts.values()}
        case "usage":
            return state.usage.to_dict()
    return getattr(state, part)


def _between(where: str, before: Any, after: Any) -> Iterator[Changed]:
    if before is after:
        return
    has_parts = where in _PARTS or (where.startswith("paths.") and where.count(".") == 1)
    if has_parts and isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}):
            yield from _between(f"{where}.{name}", before.get(name, _ABSENT), after.get(name, _ABSENT))
        return
    if before is _ABSENT:
        yield Changed(where, "added", None, opened(after, lenient=True))
    elif after is _ABSENT:
        yield Changed(where, "removed", opened(before, lenient=True), None)
    elif before != after or type(before) is not type(after):
        yield Changed(where, "changed", opened(before, lenient=True), opened(after, lenient=True))
