"""An execution gone through again in memory: nothing outside is called, and nothing of it is kept.

Whatever its source has no answer for is not carried out: the code rests there. So it shows whether the definition and
the functions still do what the log says, and what a change would make anew (`tests/replay/test_rehearsal.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from divebook.engine.state import ExecutionState
from divebook.events import catalog
from divebook.events.event import Event
from divebook.execution.beyond import Beyond, FindBeyond
from divebook.execution.clock import Clock
from divebook.execution.control import Control
from divebook.execution.store_calls import StoreCalls
from divebook.execution.wanted import Wanted
from divebook.replay.recorded_answers import ReadsOnly, RecordedAnswers
from divebook.store import EventStore
from divebook.store.memory import MemoryStore

ControlOver: TypeAlias = Callable[[EventStore, FindBeyond], Control]
"""Makes what drives executions over another store, with what an environment has."""


class World(NamedTuple):
    """What of an environment goes along into a rehearsal."""

    control_over: ControlOver
    reads_only: ReadsOnly
    clock: Clock


class Rehearsal(NamedTuple):
    """What an execution came to in memory."""

    events: Sequence[Event]
    """Its log, with what it shares with its source."""
    state: ExecutionState
    answers: RecordedAnswers
    """What it was answered with, and what is left of that."""

    @property
    def unanswered(self) -> Sequence[Wanted]:
        """What would be carried out, as far as that can be known before it is: code rests there."""
        return self.answers.unanswered


def rehearsed(world: World, events: Sequence[Event], forked: catalog.ExecutionForked) -> Rehearsal:
    """Go through a fork of an execution in memory; return what it comes to.

    Parameters
    ----------
    events
        The whole log of the source.
    forked
        How the fork begins.
    """
    answers: list[RecordedAnswers] = []

    async def find(state: ExecutionState, calls: StoreCalls) -> Beyond:
        own = await calls.patiently(lambda: store.read(state.execution_id))
        answers.append(RecordedAnswers(events, own, forked_by(own), world.reads_only, world.clock, rests=True))
        return answers[-1]

    with MemoryStore() as store:
        control = world.control_over(store, find)
        try:
            store.append(forked.source, events[: forked.at], 0)
            driver = control.fork(forked.source, forked.at, forked)
            driver.driving().result()
            return Rehearsal(store.read(driver.id), driver.refresh().state, answers[-1])
        finally:
            control.close()


async def answers_for(
    store: EventStore, reads_only: ReadsOnly, clock: Clock, state: ExecutionState, calls: StoreCalls
) -> RecordedAnswers:
    """Return what answers a what-if that is driven on, wherever it was left; raises `ExecutionNotFoundError`."""

    def read() -> RecordedAnswers:
        own = store.read(state.execution_id)
        begun_by = forked_by(own)
        assert isinstance(begun_by.data, catalog.ExecutionForked)  # noqa: S101 - that is what it looks for
        return RecordedAnswers(store.read(begun_by.data.source), own, begun_by, reads_only, clock)

    return await calls.patiently(read)


def forked_by(events: Sequence[Event]) -> Event:
    """Return the event with which an execution went apart from its source; of a fork of forks the last one."""
    return next(event for event in reversed(events) if isinstance(event.data, catalog.ExecutionForked))
