"""What an execution has undone of what it did, or is to undo: none of that is there for those that go on from its log.

Pure. A fork begins before the first of it, and a run that goes on with another definition does it again
(`tests/replay/test_undone.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from divebook.errors import SetupError
from divebook.events import catalog
from divebook.events.event import Event


class Undone(NamedTuple):
    """What is undone of what a log says was done."""

    before: int
    """The last event before any of it began."""
    steps: tuple[str, ...]
    operations: frozenset[str]
    """Ids of the operations whose results do not count."""


def undone_in(events: Sequence[Event], *, is_left: bool = False) -> Undone | None:
    """Return what a log says of what is undone, if anything is.

    Parameters
    ----------
    events
        The log, from event 1 on.
    is_left
        Whether others go on in the place of an execution that has not completed: it is cancelled then, and so undone.
    """
    is_done = any(isinstance(event.data, catalog.ExecutionCompleted) for event in events)
    if not (is_left and not is_done) and not any(isinstance(event.data, catalog.RollbackStarted) for event in events):
        return None
    own = max((e.sequence for e in events if isinstance(e.data, catalog.ExecutionForked)), default=0)
    added = [event for event in events[own:] if isinstance(event.data, catalog.RollbackAdded)]
    if not added:
        return None
    parts = [_part(events, event) for event in added]
    begins = min(part[0].sequence for part in parts)
    operations = (event.data for part in parts for event in part)
    undone = frozenset(data.operation_id for data in operations if isinstance(data, catalog.OperationStarted))
    return Undone(begins - 1, tuple(dict.fromkeys(event.step for event in added)), undone)


def _part(events: Sequence[Event], added: Event) -> list[Event]:
    """Return the events of a call, an item or a step of which an event says how it is undone; its calls at least."""
    before = [event for event in events[: added.sequence - 1] if event.path == added.path]
    if getattr(added.data, "kind", "") == "step":
        ended = next(event.data for event in reversed(before) if isinstance(event.data, catalog.OperationCompleted))
        return [e for e in before if isinstance(e.data, catalog.OperationStarted) and _is_of(e, ended)][-1:]
    entered = max(number for number, event in enumerate(before) if isinstance(event.data, catalog.StepStarted))
    following = events[added.sequence].data if added.sequence < len(events) else None
    if not isinstance(following, catalog.IterationCompleted):
        return before[entered:]
    item = following.iteration_index
    return [event for event in before[entered:] if getattr(event.data, "iteration_index", None) == item]


def _is_of(event: Event, ended: catalog.Payload) -> bool:
    return getattr(event.data, "operation_id", "") == getattr(ended, "operation_id", None)


def require_kept(events: Sequence[Event], at: int) -> None:
    """Raise `SetupError` for a fork after an event, where something before that is undone."""
    undone = undone_in(events)
    if undone is not None and at > undone.before:
        steps = ", ".join(map(repr, undone.steps))
        raise SetupError(
            f"execution {events[0].execution_id} is rolled back: what it did in {steps} is undone, or is to be, so "
            f"that nothing can go on from it after event {at}; fork it at event {max(1, undone.before)}, or before "
            "that, where that is done again, or start a new run"
        )
