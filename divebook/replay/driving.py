"""A definition driven against a log: one path after the other, each by itself against its own part of it.

Where the log was taken up again all code unwinds, and the paths that were active begin anew from the state there.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress

from divebook.engine.decide import decide_cancellation, decide_end, decide_joins, decide_start
from divebook.engine.instructions import Fact, RecordFacts
from divebook.engine.state import IN_STEP, JOINING
from divebook.errors import NotFoundError
from divebook.events import catalog
from divebook.execution.following import Following
from divebook.execution.step_run import Services
from divebook.execution.strands import Suspended
from divebook.replay.answered import AnsweredOnce, AnsweredRecorder, AnsweredWaits, NoChance, TapeLog
from divebook.replay.sameness import is_same
from divebook.replay.tape import OPENINGS, Tape
from divebook.workflow.definition import Workflow

_ENDS = (catalog.ExecutionCompleted, catalog.ExecutionFailed)


class PathByPath(Following):
    """The paths of one stretch of a log."""

    def __init__(self, tape: Tape, recorder: AnsweredRecorder, workflow: Workflow, services: Services) -> None:
        super().__init__(recorder, workflow, services)
        self._tape = tape
        self._left: deque[str] = deque()

    def _start(self, path_id: str) -> None:
        self._left.append(path_id)

    def _stop(self) -> None:
        """Go on: how far the others came before they were stopped, the log says."""

    def _release_joins(self) -> None:
        """Go on: each path finds in the log when it was let go."""

    async def drive(self) -> None:
        """Drive all paths of the stretch."""
        state = self._tape.state_at(self._tape.low)
        if state.paths:
            self._left.extend(path.id for path in state.active_paths())
        else:
            self._begin(decide_start(self.workflow))
        await self._drive_all()
        for number in range(self._tape.low, self._tape.high + 1):
            begun = self._tape.event(number).data
            if isinstance(begun, catalog.PathStarted) and begun.rollback is not None and self._tape.first is None:
                self._begin(self._next_undoing(number))
                await self._drive_all()

    def _begin(self, begun: Fact) -> None:
        """Follow a path that no other one has branched into."""
        self._tape.path = begun.path
        with suppress(Suspended):
            self.journal.record_all((begun,))
            self._start(begun.path)
        self._tape.close(begun.path) if not self._left else None

    def _next_undoing(self, number: int) -> Fact:
        """Return the path that the rules undo something on, where the log has the beginning of one as an event."""
        event = self._tape.event(number)
        before = number - 1
        begun = self._tape.event(before).data
        if isinstance(begun, catalog.RollbackStarted):
            decided = decide_end(self.workflow, self._tape.state_at(before - 1)) if not begun.cancelled else None
            decided = decided or decide_cancellation(self._tape.state_at(before - 1), begun.error)
        else:
            decided = decide_end(self.workflow, self._tape.state_at(before))
        if not isinstance(decided, RecordFacts):
            raise self._tape.differ(number, event.path, event.step, "nothing is undone")
        return decided.facts[-1]

    async def _drive_all(self) -> None:
        while self._left:
            path = self._tape.path = self._left.popleft()
            try:
                await self._pursue(path)
            except Suspended:
                pass
            except NotFoundError as error:
                self._tape.want(path, "", str(error))
            self._tape.close(path)
            await asyncio.sleep(0)  # others use this loop as well

    async def _pursue(self, path: str) -> None:
        """Follow a path to the end of what the log has of it."""
        while True:
            claims = self._tape.claims
            await self._follow(path)
            if self._tape.next_of_path(path) is None:
                return
            phase = self._tape.state.paths[path].phase
            if phase == JOINING:
                self._join(path)
            elif phase == IN_STEP or self._tape.claims == claims:
                return

    def _join(self, path: str) -> None:
        """Compare what becomes of a path at a join with what the rules say of all that wait there."""
        tape, sequence = self._tape, self._tape.next_of_path(path)
        assert sequence is not None  # noqa: S101 - that is what was asked
        before = sequence - 1
        while before and self._is_joined_away(before):
            before -= 1
        facts = [fact for record in decide_joins(self.workflow, tape.state_at(before)) for fact in record.facts]
        mine = next((fact for fact in facts if fact.path == path), None)
        if mine is None:
            raise tape.differ(sequence, path, tape.event(sequence).step, "the path waits at its join")
        self.journal.record(mine.data, path, mine.step)

    def _is_joined_away(self, sequence: int) -> bool:
        event = self._tape.event(sequence)
        if not isinstance(event.data, catalog.PathCompleted):
            return False
        return self._tape.state_at(sequence - 1).paths[event.path].phase == JOINING


async def drive(tape: Tape, total: int, services: Services, workflow_at: Callable[[int], Workflow]) -> Counter[str]:
    """Drive a definition against a log, to its first difference; return how many operations were answered, by type.

    Parameters
    ----------
    total
        How many events the log has.
    workflow_at
        Returns the definition that holds from an event on.
    """
    starts = [number for number in range(1, total + 1) if isinstance(tape.event(number).data, OPENINGS)]
    log = TapeLog(tape)
    answered: Counter[str] = Counter()
    for low, after in zip(starts, [*starts[1:], total + 1], strict=True):
        tape.begin(low, after - 1)
        waits = AnsweredWaits(log, tape)
        once = AnsweredOnce(log, tape, waits)
        recorder = AnsweredRecorder(once, waits, NoChance(), services.texts, services.policy)
        workflow = workflow_at(low)
        await PathByPath(tape, recorder, workflow, services).drive()
        answered += once.answered
        answered["question"] += waits.answered
        if tape.first is None:
            _compare_end(tape, workflow)
        if tape.first is not None:
            break
    return +answered


def _compare_end(tape: Tape, workflow: Workflow) -> None:
    """Compare how a stretch ended with what the rules say."""
    for number in range(tape.low, tape.high + 1):
        data = tape.event(number).data
        if isinstance(data, _ENDS):
            end = decide_end(workflow, tape.state_at(number - 1))
            decided = end.facts[0].data if isinstance(end, RecordFacts) else None
            if decided is None or not is_same(data, decided):
                tape.differ(number, "", "", decided)
