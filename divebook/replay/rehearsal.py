"""An execution gone through again in memory: nothing outside is called, and nothing of it is kept.

Whatever its source has no answer for is not carried out: the code rests there. So it shows whether the definition and
the functions still do what the log says, and what a change would make anew (`tests/replay/test_what_if.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from divebook.engine.ahead import steps_ahead
from divebook.engine.state import ExecutionState
from divebook.errors import ExecutionNotFoundError, SourceGoneError
from divebook.events import catalog
from divebook.events.event import Event
from divebook.execution.beyond import Beyond, FindBeyond
from divebook.execution.control import Control
from divebook.execution.store_calls import StoreCalls
from divebook.execution.wanted import Wanted
from divebook.keyboard import interruptible_result
from divebook.replay.recorded_answers import RecordedAnswers
from divebook.replay.reused_answers import Grounds, answering
from divebook.store import EventStore
from divebook.store.memory import MemoryStore
from divebook.workflow.definition import Workflow

ControlOver: TypeAlias = Callable[[EventStore, FindBeyond], Control]
"""Makes what drives executions over another store, with what an environment has."""


class World(NamedTuple):
    """What of an environment goes along into a rehearsal."""

    control_over: ControlOver
    grounds: Grounds


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

    def behind(self, workflow: Workflow) -> tuple[str, ...]:
        """Return the steps that come after those at which code rests or waits for a person."""
        asking = {path.current_step for path in self.state.active_paths() if path.asking}
        resting = asking.union(wanted.place.step for wanted in self.unanswered)
        if self.state.is_over or not resting:
            return ()
        ahead = steps_ahead(workflow, self.state)
        return tuple(step.name for step in workflow.steps if step.name in ahead and step.name not in resting)


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
        begun_by = forked_by(own)
        found = answering(events, own, begun_by, world.grounds, rests=True)
        answers.append(found)
        return answers[-1]

    with MemoryStore() as store:
        control = world.control_over(store, find)
        try:
            store.append(forked.source, events[: forked.at], 0)
            driver = control.fork(forked.source, forked.at, forked)
            interruptible_result(driver.driving())
            return Rehearsal(store.read(driver.id), driver.refresh().state, answers[-1])
        finally:
            control.close()


async def answers_for(store: EventStore, grounds: Grounds, state: ExecutionState, calls: StoreCalls) -> RecordedAnswers:
    """Return what answers an execution that is driven on, wherever it was left; raises `SourceGoneError`."""

    def read() -> RecordedAnswers:
        own = store.read(state.execution_id)
        begun_by = forked_by(own)
        assert isinstance(begun_by.data, catalog.ExecutionForked)  # noqa: S101 - that is what it looks for
        try:
            source = store.read(begun_by.data.source)
        except ExecutionNotFoundError:
            if begun_by.data.tools not in catalog.GOING_ON:
                raise SourceGoneError(state.execution_id, begun_by.data.source) from None
            source = own[: begun_by.data.at]  # deleted: what it shares is its own by now, and all else is made anew
        return answering(source, own, begun_by, grounds)

    return await calls.patiently(read)


def forked_by(events: Sequence[Event]) -> Event:
    """Return the event with which an execution went apart from its source; of a fork of forks the last one."""
    return next(event for event in reversed(events) if isinstance(event.data, catalog.ExecutionForked))
