"""Facts that follow upon each other at once, gathered into one record: a row of the store and one change of the state.

Which facts a record holds depends on nothing but their order, place and time, and not on who looks at the state in
between; readers of the log see events (tests/execution/test_gathering.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from divebook.events import catalog
from divebook.events.catalog import Payload
from divebook.events.record import Record
from divebook.execution.clock import Ids

SAME_MOMENT = 1000
"""Microseconds within which facts that follow upon each other happened at one moment."""
MAY_FOLLOW: Mapping[type[Payload], frozenset[type[Payload]]] = {
    catalog.PathStarted: frozenset({catalog.StepStarted}),
    catalog.StepStarted: frozenset({catalog.OperationStarted, catalog.IterationStarted}),
    catalog.IterationStarted: frozenset({catalog.StateMutated, catalog.OperationStarted}),
    catalog.OperationCompleted: frozenset(
        {catalog.StateMutated, catalog.StepCompleted, catalog.IterationCompleted, catalog.OperationStarted}
    ),
    catalog.StateMutated: frozenset({catalog.StepCompleted, catalog.OperationStarted}),
    catalog.IterationCompleted: frozenset({catalog.IterationStarted, catalog.StepCompleted}),
    catalog.StepCompleted: frozenset({catalog.PathCompleted}),
}
"""What the end of one thing, or its beginning, leads to at once on the same path: what a record goes on with."""
_NOTHING: frozenset[type[Payload]] = frozenset()


class Gathering:
    """A record that the next fact may still join.

    Parameters
    ----------
    event
        Id, sequence number and moment of its first event.

    Attributes
    ----------
    facts
        What it stands for so far.
    folded
        How many of them the state has.
    """

    __slots__ = ("_id", "_may_follow", "_record", "facts", "folded", "path", "recorded_at", "sequence", "step")

    def __init__(self, data: Payload, path: str, step: str, event: tuple[str, int, int]) -> None:
        self._id, self.sequence, self.recorded_at = event
        self.path, self.step, self.facts = path, step, [data]
        self._may_follow = MAY_FOLLOW.get(type(data), _NOTHING)
        self._record: Record | None = None
        self.folded = 0

    def join(self, data: Payload, path: str, step: str, now: int, ids: Ids) -> bool:
        """Take a fact in if it belongs here; return whether it does."""
        if (
            type(data) not in self._may_follow
            or path != self.path
            or not 0 <= now - self.recorded_at < SAME_MOMENT
            or (step != self.step and step and self.step)
            or not ids.follow()
        ):
            return False
        self.facts.append(data)
        self._may_follow = MAY_FOLLOW.get(type(data), _NOTHING)
        self._record = None
        if step:
            self.step = step
        return True

    def record(self, execution_id: str) -> Record:
        """Return it as it stands."""
        record = self._record
        if record is None:
            record = self._record = Record(
                self._id, execution_id, self.sequence, self.recorded_at, tuple(self.facts), self.path, self.step
            )
        return record
