"""Facts that follow upon each other at once, gathered into one record: a row of the store and one change of the state.

Which facts a record holds depends on nothing but their order, place and time, and not on who looks at the state in
between; readers of the log see events (tests/execution/test_gathering.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from divebook.events import catalog
from divebook.events.catalog import Payload
from divebook.events.record import Record

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
    width, folded
        How many facts it has, and how many of them the state has.
    """

    __slots__ = (
        "_facts",
        "_id",
        "_may_follow",
        "_record",
        "folded",
        "path",
        "recorded_at",
        "sequence",
        "step",
        "width",
    )

    def __init__(self, data: Payload, path: str, step: str, event: tuple[str, int, int]) -> None:
        self._id, self.sequence, self.recorded_at = event
        self.path, self.step, self._facts = path, step, [data]
        self._may_follow = MAY_FOLLOW.get(type(data), _NOTHING)
        self._record: Record | None = None
        self.width, self.folded = 1, 0

    @property
    def facts(self) -> Sequence[Payload]:
        """What it stands for so far."""
        return self._facts

    def may_be_joined(self, data: Payload, path: str, step: str, now: int) -> bool:
        """Return whether a fact belongs to this record."""
        kind = type(data)
        return (
            kind in self._may_follow
            and path == self.path
            and 0 <= now - self.recorded_at < SAME_MOMENT
            and (step == self.step or not step or not self.step)
        )

    def join(self, data: Payload, step: str) -> None:
        """Take a fact in."""
        self._facts.append(data)
        self._may_follow = MAY_FOLLOW.get(type(data), _NOTHING)
        self.step = self.step or step
        self._record = None
        self.width += 1

    def record(self, execution_id: str) -> Record:
        """Return it as it stands."""
        if self._record is None:
            self._record = Record(
                self._id, execution_id, self.sequence, self.recorded_at, tuple(self._facts), self.path, self.step
            )
        return self._record
