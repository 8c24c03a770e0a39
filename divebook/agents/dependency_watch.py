"""Detection of changed dependencies: a warning about tools that change ``ctx.deps``.

A change of ``ctx.deps`` is not recorded, so a resumed run does not have it. The comparison covers public attributes,
collections, dataclasses and pydantic models in them. Other objects, such as clients and connections, have internal
state that is meant to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass
from divebook.agents.running_turn import AgentTurn
from divebook.text.redaction import logger

_log = logger(__name__)
MOST_VALUES = 1_000
MOST_DEPTH = 8
"""Limits of the comparison.

Larger or deeper objects are skipped: a scan may take long, and they may contain themselves.
"""


_SCALARS = str, bytes, int, float, complex, type(None)


@contextmanager
def watched(deps: Any, turn: AgentTurn, tool: str) -> Iterator[None]:
    """Warn, once per turn and tool, if a tool call inside the block has changed the dependencies."""
    before = None if tool in turn.changing else seen_in(deps)
    yield
    after = None if before is None else seen_in(deps)
    if after not in (None, before):
        turn.changing.add(tool)
        _log.warning(
            "tool %s of agent %s changed ctx.deps, which is not recorded: a run that is resumed has it as it was "
            "before the call; let the tool return what is to last",
            tool,
            turn.record.agent,
        )


class _TooMuchError(Exception):
    """The object exceeds the limits of the comparison."""


def seen_in(deps: Any) -> Any:
    """Return a comparable copy of an object's public state; None if it is immutable or exceeds the limits."""
    if isinstance(deps, _SCALARS):
        return None
    try:
        return _copy(deps, iter(range(MOST_VALUES)), MOST_DEPTH)
    except Exception:  # noqa: BLE001 - too large, or not readable now: the call must not fail because of this
        return None


def _copy(value: Any, budget: Iterator[int], depth: int) -> Any:
    if next(budget, None) is None or depth == 0:
        raise _TooMuchError
    if isinstance(value, _SCALARS):
        return type(value), value
    inside = _parts(value, is_whole=depth == MOST_DEPTH)
    return id(value) if inside is None else (type(value), [_copy(part, budget, depth - 1) for part in inside])


def _parts(value: Any, *, is_whole: bool) -> list[Any] | None:
    """Return the parts of a value; None for a value that is compared by identity."""
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, dict):
        return [part for item in value.items() for part in item]
    if not is_whole and not is_dataclass(value) and not hasattr(type(value), "model_fields"):
        return None
    names = [*getattr(type(value), "__dataclass_fields__", ()), *getattr(value, "__dict__", ())]
    return [getattr(value, name, None) for name in dict.fromkeys(names) if not name.startswith("_")]
