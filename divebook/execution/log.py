"""What the code of steps asks of the log of its execution: to record facts, and what they have led to.

`divebook.execution.journal` writes one; `divebook.replay.tape` compares with one that is written already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from divebook.engine.instructions import Fact
from divebook.engine.state import ExecutionState
from divebook.events import Event
from divebook.events.catalog import Payload
from divebook.execution.clock import Clock


class StepLog(Protocol):
    """The log of one execution, as those see it who act on its paths."""

    @property
    def execution_id(self) -> str:
        """The execution this is the log of."""

    @property
    def clock(self) -> Clock:
        """Tells the time."""

    @property
    def error(self) -> Exception | None:
        """Why nothing more can be recorded, if that is so."""

    @property
    def recorded(self) -> int:
        """Sequence number up to which events are recorded."""

    @property
    def state(self) -> ExecutionState:
        """The fold of everything recorded so far."""

    @property
    def present(self) -> ExecutionState:
        """The same to look at and not to keep: it may go on changing."""

    @property
    def moment(self) -> int:
        """When the latest fact was recorded, microseconds since 1970."""

    def record(self, data: Payload, path: str = "", step: str = "", *, may_wait: bool = False) -> None:
        """Append a fact; one that `may_wait` need not be written at once."""

    def record_all(self, facts: Sequence[Fact]) -> None:
        """Append several facts."""

    async def durable(self) -> None:
        """Return when everything recorded so far is written."""

    async def event(self, sequence: int) -> Event:
        """Return one event."""

    def seconds_since(self, moment: int) -> float:
        """Return how long ago a moment was, without the time before the last rest."""
