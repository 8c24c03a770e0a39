"""What a tool changes in ``ctx.deps``, which no log has: a run that is resumed has it as it was, so people are told.

Seen is what they show of themselves, with collections, dataclasses and models of pydantic in it. Other objects, such as
clients and connections, have a state of their own that is meant to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

from divebook.agents.present import AgentTurn
from divebook.text.logs import logger

_log = logger(__name__)
MOST_VALUES, MOST_DEPTH = 1_000, 8
"""What holds more, or deeper, is not looked at: to look may take long, and it may hold itself."""
_SCALARS = str, bytes, int, float, complex, type(None)


@contextmanager
def watched(deps: Any, turn: AgentTurn, tool: str) -> Iterator[None]:
    """Surround a call of a tool, and say once a turn if what its agent depends on is not what it was."""
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
    """There is more in it than is looked at."""


def seen_in(deps: Any) -> Any:
    """Return what an object shows of itself, to be compared; None if it is nothing that can change, or too much."""
    if isinstance(deps, _SCALARS):
        return None
    try:
        return _seen(deps, iter(range(MOST_VALUES)), MOST_DEPTH)
    except Exception:  # noqa: BLE001 - too much, or it cannot be looked at just now: that is no fault of the call
        return None


def _seen(value: Any, left: Iterator[int], depth: int) -> Any:
    if next(left, None) is None or depth == 0:
        raise _TooMuchError
    if isinstance(value, _SCALARS):
        return type(value), value
    inside = _inside(value, is_whole=depth == MOST_DEPTH)
    return id(value) if inside is None else (type(value), [_seen(part, left, depth - 1) for part in inside])


def _inside(value: Any, *, is_whole: bool) -> list[Any] | None:
    """Return what a value consists of; None if it is not looked into."""
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, dict):
        return [part for item in value.items() for part in item]
    if not is_whole and not is_dataclass(value) and not hasattr(type(value), "model_fields"):
        return None
    names = [*getattr(type(value), "__dataclass_fields__", ()), *getattr(value, "__dict__", ())]
    return [getattr(value, name, None) for name in dict.fromkeys(names) if not name.startswith("_")]
