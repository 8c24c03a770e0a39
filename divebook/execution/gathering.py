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
        {
            catalog.StateMutated,
            catalog.RollbackAdded,
            catalog.StepCompleted,
            catalog.IterationCompleted,
            catalog.OperationStarted,
        }
    ),
    catalog.StateMutated: frozenset({catalog.StepCompleted, catalog.OperationStarted, catalog.RollbackAdded}),
    catalog.RollbackAdded: frozenset({catalog.StepCompleted, catalog.IterationCompleted}),
    catalog.IterationCompleted: frozenset({catalog.IterationStarted, catalog.StepCompleted}),
    catalog.StepCompleted: frozenset({catalog.PathCompleted}),
}
"""What the end of one thing, or its beginning, leads to at once on the same path: what a record goes on with."""
_NOTHING: frozenset[type[Payload]] = frozenset()


class Gathering:
    """The latest record of a log, which the next fact may join; one object for all of them.

    Attributes
    ----------
    facts
        What it stands for so far; none where nothing may join it any more.
    folded
        How many of them the state has.
    recorded_at
        When, microseconds since 1970.
    """

    __slots__ = (
        "_execution_id",
        "_id",
        "_ids",
        "_may_follow",
        "_path",
        "_record",
        "_sequence",
        "_step",
        "facts",
        "folded",
        "recorded_at",
    )

    def __init__(self, execution_id: str, ids: Ids, recorded_at: int) -> None:
        self._execution_id, self._ids, self.recorded_at = execution_id, ids, recorded_at
        self._path = self._step = self._id = ""
        self._sequence, self.folded = 0, 0
        self._record: Record | None = None
        self.facts: list[Payload] = []
        self._may_follow = _NOTHING

    def begin(self, data: Payload, path: str, step: str, sequence: int, now: int) -> None:
        """Begin a record with its first fact."""
        self._id, self._sequence, self.recorded_at = self._ids.event(now), sequence, now
        self._path, self._step = path, step
        self._record, self.facts, self.folded = None, [data], 0
        self._may_follow = MAY_FOLLOW.get(type(data), _NOTHING)

    def join(self, data: Payload, path: str, step: str, now: int) -> bool:
        """Take a fact in if it belongs here; return whether it does."""
        if (
            type(data) not in self._may_follow
            or path != self._path
            or not 0 <= now - self.recorded_at < SAME_MOMENT
            or (step != self._step and step and self._step)
            or not self._ids.follow()
        ):
            return False
        self.facts.append(data)
        self._may_follow = MAY_FOLLOW.get(type(data), _NOTHING)
        self._record = None
        if step:
            self._step = step
        return True

    def record(self) -> Record:
        """Return it as it stands."""
        record = self._record
        if record is None:
            facts = tuple(self.facts)
            record = self._record = Record(
                self._id, self._execution_id, self._sequence, self.recorded_at, facts, self._path, self._step
            )
        return record

    def end(self) -> None:
        """Let nothing join it any more."""
        self.facts, self._may_follow = [], _NOTHING
