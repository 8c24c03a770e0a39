"""Drives one execution: asks the rules what is next, does it, records what happened.

One task per active path, which is followed as `divebook.execution.following` says. The rules (`engine.decide`) choose;
this module only carries out. Step handlers come from above as a mapping from step type to coroutine function, so that
the runner knows nothing of agents or actions.

Code that may stand still while it waits (`divebook.execution.resting`) runs apart from the code that waits for it.
"""

from __future__ import annotations

from collections.abc import Callable

from divebook.engine.decide import (
    decide_cancellation,
    decide_end,
    decide_joins,
    decide_leaving,
    decide_return,
    decide_settled,
    decide_start,
)
from divebook.engine.inbox import facts_of
from divebook.engine.instructions import CancelPaths, RecordFacts
from divebook.events import catalog
from divebook.execution.alarms import Alarms
from divebook.execution.apart import Apart
from divebook.execution.following import Following
from divebook.execution.groups import Group
from divebook.execution.journal import Journal
from divebook.execution.recorder import Recorder
from divebook.execution.step_run import Services
from divebook.execution.strands import Strands
from divebook.workflow.definition import Workflow


class Runner(Following):
    """One execution on its way.

    Parameters
    ----------
    journal
        The log that its recorder records in.
    may_stay
        Whether the code of its one path stays where it waits when `run` returns, for another `run`; else it is let go.
    """

    journal: Journal

    def __init__(
        self, journal: Journal, recorder: Recorder, workflow: Workflow, services: Services, *, may_stay: bool = False
    ) -> None:
        super().__init__(recorder, workflow, services)
        self.journal, self._group = journal, Group()
        self._alarms = Alarms(self.journal, self._group, self, services.claim_expired)
        self._recorder.waits.idle = self._note_idle
        self._recorder.waits.changed = self._note_blocked
        self.blocked: Callable[[], None] = lambda: None
        """Called when the execution may have become blocked, or may be so no more; see `is_blocked`."""
        self._apart = Apart() if may_stay else None
        self._still: Strands | None = None
        """Strands that stand still."""
        self._cancel_reason: str | None = None
        self._pause_reason: str | None = None
        self._gives_back = False
        self._driven: set[str] = set()
        """Paths that have a task, be it one that is still to begin."""

    def cancel(self, reason: str) -> None:
        """Stop every path and end the execution as cancelled; call it on the engine's loop."""
        if self._cancel_reason is None:
            self._cancel_reason = reason
            self._recorder.is_given_up = True
            self._stop()
            self.blocked()

    def _stop(self) -> None:
        """Let all paths come to their end where they next wait for anything."""
        self._recorder.leave()
        self.journal.is_left = True
        self._group.cancel()

    def pause(self, reason: str, *, gives_back: bool = False) -> None:
        """Let nothing more begin, wait for calls that may not be made twice, and rest; call it on the engine's loop.

        With `gives_back` it waits in its queue from then on.
        """
        if self._pause_reason is None and self._cancel_reason is None:
            self._pause_reason, self._gives_back = reason, gives_back
            self._recorder.pause(self._stop)

    def break_off(self) -> None:
        """See no call through to its end from now on: the execution is left as if the process had ended."""
        self._recorder.is_broken_off = True

    async def leave_workspaces(self) -> None:
        """Leave the workspaces that calls have worked in; the next call that does finds them again."""
        await self._recorder.workspaces.close()

    async def take(self) -> bool:
        """Record what lies in the inbox and let those paths go on that waited for it; call it on the engine's loop.

        All of it, in its order: a message taken ahead of an earlier one would hide that one for good.
        Return False if this runner has come to its end: the next driver of the execution takes it.
        """
        woken = await self._take_in()
        for path in woken or ():
            self.wake(path)
        return woken is not None

    async def _take_in(self) -> list[str] | None:
        """Record what lies in the inbox; return the paths that waited for it, or None where it is left there."""
        if not self.may_take():
            return None
        messages = await self._services.inbox(self.journal.execution_id, self.journal.state.taken)
        if not self.may_take():  # it came to its end meanwhile
            return None
        facts = facts_of(self.journal.state, messages)  # another call may have taken some of them meanwhile
        before = self.journal.state.paths
        self.journal.record_all(facts)
        return [path.id for path in self.journal.state.active_paths() if path.woken != before[path.id].woken]

    def may_take(self) -> bool:
        """Whether what comes is taken in, and paths may go on."""
        return self._group.is_open and not self._group.is_cancelled and not self.is_resting

    def wake(self, path: str) -> None:
        """Let a path look whether what it waited for has come."""
        if path in self._driven:
            self._recorder.waits.strands(path).wake()
        else:
            self._start(path)

    async def run(self, first: Callable[[], object] = lambda: None) -> None:
        """Carry the execution on until it ends or nothing can happen before a question is answered.

        What `first` records is written in one commit with what is done first.

        Raises
        ------
        StoreError
            The log could not be written; what is in the store can be resumed.
        """
        try:
            if self._apart is None:
                first()
                await self._run_paths()
            else:
                await self._run_apart(self._apart, first)
        except Exception:
            if self.journal.error is not None:  # every path that met it raised it, or what it made of it
                raise self.journal.error from None
            raise
        if not self.is_resting:
            self._end()
        await self.journal.durable()

    async def _run_apart(self, apart: Apart, first: Callable[[], object]) -> None:
        if self._still is not None:
            await apart.pursue(self._go_on(self._still, first))
        else:
            apart.begin(self._run_paths())
            first()  # after that, so that the end of the turn, which writes it, comes later
            await apart.pursue()

    async def _run_paths(self) -> None:
        async with self._group.running():
            if not self.journal.state.paths:
                self.journal.record_all((decide_start(self.workflow),))
            self._recorder.waits.deadlines = self._alarms.set
            self._recorder.waits.expire = self._alarms.expire
            self._alarms.set_all()
            if self.journal.written:  # nobody can have sent anything to what the store does not know yet
                await self._take_in()
            await self._drive_active()

    # --- at rest -----------------------------------------------------------------------------------------------------

    @property
    def is_resting(self) -> bool:
        """Whether its code stands where it waits, and the execution may be driven by others."""
        return self._still is not None

    @property
    def strands(self) -> int:
        """How many strands of its code stand still, and can go on."""
        return self._still.parked if self._still is not None and self._still.is_idle else 0

    @property
    def is_blocked(self) -> bool:
        """Whether every path that has not come to rest has an open call that waits for an answer.

        Nothing else can happen then, and the execution is driven all the same: to let go of it would cut the call off.
        """
        is_stopped = self._cancel_reason is not None
        return bool(self._driven) and not is_stopped and all(map(self._recorder.waits.is_blocked, self._driven))

    def _note_blocked(self) -> None:
        self.blocked()

    def _note_idle(self, strands: Strands) -> None:
        """Hear that a path has nothing to do before something comes from outside."""
        if self._apart is None or not self.may_take():
            strands.let_go()
            return
        self._still, strands.are_resting = strands, True
        self._alarms.stop()
        self._apart.rest()

    async def _go_on(self, strands: Strands, first: Callable[[], object]) -> None:
        """Let the code that stands still have what has come meanwhile."""
        self._still, strands.are_resting = None, False
        with self.journal.held():
            first()
            await self.take()
        await self._alarms.go_on()
        if strands.is_idle:
            self._note_idle(strands)

    def let_go(self) -> Apart | None:
        """Unwind the code that stands still; return what ends then."""
        if self._still is not None:
            self._still.let_go()
        return self._apart

    # --- paths -------------------------------------------------------------------------------------------------------

    async def _drive_active(self) -> None:
        """Drive every active path; a single one needs no task of its own, nor the turn until that runs.

        What is due by now comes before that (test_a_later_process_finds_that_it_has_expired).
        """
        active = [path.id for path in self.journal.state.active_paths()]
        if len(active) == 1 and not self._driven and not self.journal.state.deadlines():
            self._driven.add(active[0])
            await self._drive(active[0])
            return
        for path_id in active:
            self._start(path_id)

    def _end(self) -> None:
        """Record how the execution ended, after every task has."""
        if self.journal.state.is_over:
            return
        if self._cancel_reason is not None:
            self.journal.record_all(decide_leaving(self.journal.state, self._cancel_reason).facts)
            self.journal.record_all(decide_cancellation(self.journal.state, self._cancel_reason).facts)
            return
        end = decide_end(self.workflow, self.journal.state)
        if self._pause_reason is not None and self.journal.state.active and not isinstance(end, CancelPaths):
            self.journal.record(catalog.ExecutionPaused(self._pause_reason))
            if self._gives_back:
                self.journal.record_all(decide_return(self.journal.state))
            return
        if isinstance(end, CancelPaths):
            self.journal.record_all(decide_leaving(self.journal.state, end.reason).facts)
            end = decide_end(self.workflow, self.journal.state, is_left=True)
        if isinstance(end, RecordFacts):
            self.journal.record_all(end.facts)

    # --- one path --------------------------------------------------------------------------------------------------

    def _start(self, path_id: str) -> None:
        """Drive a path in a task of its own, unless it has one."""
        if path_id not in self._driven:
            self._group.start(self._drive(path_id))
            self._driven.add(path_id)
            self.blocked()

    async def _drive(self, path_id: str) -> None:
        """Carry out what the rules say about one path until it ends or has to wait."""
        try:
            has_arrived = await self._follow(path_id)
        finally:
            self._driven.discard(path_id)
            self.blocked()
        if has_arrived:
            self._release_joins()
        if self._cancel_reason is None and self._pause_reason is None:
            settled = decide_settled(self.journal.present, path_id)
            self.journal.record_all(() if settled is None else settled.facts)
        self._end_where_nothing_is_left()

    def _end_where_nothing_is_left(self) -> None:
        """Record the end with what led to it, and not after the turns that tasks take to end."""
        if self._driven or self._cancel_reason is not None or self._pause_reason is not None:
            return
        end = decide_end(self.workflow, self.journal.present)
        if isinstance(end, RecordFacts):
            self.journal.record_all(end.facts)
            if isinstance(end.facts[0].data, catalog.PathStarted):  # one more thing is undone
                self._start(end.facts[0].path)

    def _release_joins(self) -> None:
        """Let paths go on that need wait no longer; their tasks ended when they began to wait, so they get new ones."""
        if not self.workflow.has_joins:  # else the state would be folded for every path that ends
            return
        for record in decide_joins(self.workflow, self.journal.present):
            self.journal.record_all(record.facts)
            self._start(record.facts[-1].path)
