"""Drives one execution: asks the rules what is next, does it, records what happened.

One task per active path, which is followed as `divebook.runtime.runner` says. The rules (`engine.decide`) choose;
this module only carries out. Step handlers come from above as a mapping from step type to coroutine function, so that
the runner knows nothing of agents or actions.

Code that may stand still while it waits (`divebook.runtime.runner`) runs apart from the code that waits for it.
"""

from __future__ import annotations

import asyncio
import operator
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

from divebook.engine.bounds import AwaitAnswer, AwaitJoin, CancelPaths, EvaluateConditions, RecordFacts, RunStep
from divebook.engine.decide import (
    decide_cancellation,
    decide_end,
    decide_joins,
    decide_leaving,
    decide_path,
    decide_return,
    decide_settled,
    decide_start,
)
from divebook.engine.inbox import facts_of
from divebook.engine.retries import Fault, catching
from divebook.engine.state import ExecutionState
from divebook.errors import DivebookError
from divebook.events import catalog
from divebook.runtime.clock import Chance, StepLog
from divebook.runtime.concurrency import ConcurrentCalls, GoesOnElsewhere, Group, Suspended, Waits, after_start
from divebook.runtime.errors import OwnFacts, fault_of, own_facts
from divebook.runtime.journal import Journal
from divebook.runtime.operations import MissPolicy, OperationLog
from divebook.runtime.recorder import Recorder
from divebook.runtime.step import Outcome, Services, StepRun, definition_place
from divebook.runtime.waiting import engine_code
from divebook.workflow.definition import Workflow
from divebook.workflow.functions import FUNCTION, WORKFLOW_FUNCTIONS
from divebook.workflow.step import Step

# A path followed step by step: the rules say what is next, this does it and records what happened.
#
# `divebook.runtime.runner` follows all paths of an execution at once, live; `divebook.replay.verify` one after the
# other, against a log.


class PathRunner(ABC):
    """What is done on the paths of one execution; subclasses say when."""

    def __init__(self, recorder: Recorder, workflow: Workflow, services: Services) -> None:
        self.journal: StepLog = recorder.journal
        self.workflow, self._services, self._recorder = workflow, services, recorder

    @abstractmethod
    def _start(self, path_id: str) -> None:
        """Follow one more path."""

    @abstractmethod
    def _stop(self) -> None:
        """Follow no path any further: one has failed, and the workflow does not go on without it."""

    @abstractmethod
    def _release_joins(self) -> None:
        """Let paths go on that need wait at a join no longer."""

    async def _follow(self, path_id: str) -> bool:
        """Return whether it has come to its end, or to a join."""
        while (instruction := decide_path(self.workflow, self.journal.present, path_id)) is not None:
            match instruction:
                case RecordFacts():
                    self.journal.record_all(instruction.facts)
                    if await self._has_ended(instruction):
                        break
                case RunStep():
                    if not await self._run_step(instruction):
                        return False
                case EvaluateConditions():
                    if not await self._evaluate(instruction):
                        return False
                case AwaitAnswer():
                    self.journal.record_all(instruction.facts)
                    return False
                case AwaitJoin():
                    break
        return True

    async def _has_ended(self, record: RecordFacts) -> bool:
        """Do what follows from the end of a path, where the facts hold it: the rules need not be asked for that."""
        match record.facts[-1].data:
            case catalog.PathCompleted():
                await self._start_new_paths(record)
                return True
            case catalog.PathFailed():
                self._stop_siblings()
                return True
        return False

    async def _start_new_paths(self, record: RecordFacts) -> None:
        for fact in record.facts:
            if isinstance(fact.data, catalog.PathBranched):
                for number, new_path in enumerate(fact.data.new_paths, 1):
                    self._start(new_path["id"])
                    await after_start(number)

    async def _evaluate(self, instruction: EvaluateConditions) -> bool:
        path = self.journal.state.paths[instruction.path]
        names = {"inputs": self.journal.state.inputs, "state": path.variables}
        for condition, target in instruction.conditions:
            try:
                result = await self._services.evaluate_condition(condition, names)
            except DivebookError as error:
                step = self.workflow.step(instruction.step)
                told = f'failed to evaluate condition "{condition}" in step "{step.name}": {error}'
                place = definition_place(self.workflow, step, error, condition)
                failed = catalog.StepFailed(told, **own_facts(error, place)._asdict())
                self.journal.record(failed, instruction.path, step.name)
                self._fail(instruction.path, step, fault_of(error, place, told))
                return False
            evaluated = catalog.ConditionEvaluated(condition, target, result)
            self.journal.record(evaluated, instruction.path, instruction.step)
        return True

    # --- one step --------------------------------------------------------------------------------------------------

    async def _run_step(self, instruction: RunStep) -> bool:
        """Carry out a step; return whether its path goes on."""
        if self._recorder.once.begins_nothing:
            return False
        run = StepRun(self._recorder, self._services, self.workflow, instruction)
        woken = self.journal.present.paths[instruction.path].woken
        self.journal.record_all(instruction.first)
        self._recorder.once.enter(instruction.path, is_new=not instruction.resumed)
        if not instruction.resumed:
            started = catalog.StepStarted(
                run.step.type or "unknown", dict(run.step.parameters) or None, instruction.visit
            )
            self.journal.record(started, instruction.path, run.step.name)
        while True:
            self._recorder.waits.enter(instruction.path)
            try:
                outcome = await run.run()
                self._recorder.once.require_agreement(instruction.path)
            except GoesOnElsewhere as left:
                return self._leave(run, instruction.path, left)
            except Suspended:
                seen, woken = woken, self.journal.state.paths[instruction.path].woken
                if seen == woken:
                    return False
                self._recorder.once.enter(instruction.path, is_new=False)
            except Exception as error:  # whatever a step's code raises is the step's recorded failure
                if self.journal.error is not None:
                    raise self.journal.error from error
                cause = self._recorder.once.diverged.get(instruction.path, error)
                return self._give_up(run, instruction.path, cause)
            else:
                self._complete(run, instruction.path, outcome)
                return True

    def _leave(self, run: StepRun, path: str, left: GoesOnElsewhere) -> bool:
        """End the execution here, all in one commit: its successor has begun."""
        self.journal.record(catalog.StepCompleted(f"goes on as {left.successor}"), path, run.step.name)
        self.journal.record(catalog.PathCompleted(run.step.name), path)
        self.journal.record(catalog.ExecutionContinuedAsNew(left.successor, left.reason, left.inputs))
        return False

    def _give_up(self, run: StepRun, path: str, error: Exception) -> bool:
        """Go on where the failure is caught, or let the path fail; return whether it goes on."""
        step, place = run.step, definition_place(self.workflow, run.step, error)
        failure = fault_of(error, place)
        policy = catching(step, failure)
        gives_up = policy is None or self.journal.state.stopped is not None or path in self._recorder.once.diverged
        causes = self._recorder.once.failures_behind(path, error) if gives_up else None
        own = OwnFacts() if failure.item else own_facts(error, place)  # of an item, the log has them already
        self.journal.record(catalog.StepFailed(failure.message, causes, failure.index, *own), path, step.name)
        if policy is None or gives_up:
            self._fail(path, step, failure)
            return False
        if failure.item is not None and step.store:
            so_far = catalog.Mutation("set", step.store, failure.item.results)
            self.journal.record(catalog.StateMutated((so_far,)), path, step.name)
        if policy.store:
            failures = max((count for count, _ in run.opened.failures.values()), default=0)
            mutation = catalog.Mutation("set", policy.store, failure.to_data(step.name, failures + 1))
            self.journal.record(catalog.StateMutated((mutation,)), path, step.name)
        self.journal.record(catalog.StepCaught(policy.step, failure.message), path, step.name)
        return True

    def _complete(self, run: StepRun, path_id: str, outcome: Outcome) -> None:
        step = run.step
        if step.store:
            mutation = catalog.Mutation("set", step.store, outcome.value)
            self.journal.record(catalog.StateMutated((mutation,)), path_id, step.name)
        if outcome.rollback is not None and step.rollback is not None:
            self.journal.record(catalog.RollbackAdded(step.rollback.action, outcome.rollback), path_id, step.name)
        usage = None if path_id in self._recorder.once.fresh else run.opened.usage.to_dict()
        completed = catalog.StepCompleted(outcome.text, step.store, usage or None)
        self.journal.record(completed, path_id, step.name)

    def _fail(self, path_id: str, step: Step, failure: Fault) -> None:
        """Let a path fail; the first one stops the siblings unless the workflow says otherwise."""
        error = failure.message if self.workflow.manner.keeps_text else failure.shown(step)
        self.journal.record(catalog.PathFailed(error, failure.reason), path_id)
        if not self._stop_siblings():
            self._release_joins()

    def _stop_siblings(self) -> bool:
        """Stop every path if one has failed and the workflow does not go on without it; return whether that is so."""
        stops = isinstance(decide_end(self.workflow, self.journal.present), CancelPaths)
        if stops:
            self._stop()
        return stops


# Times at which paths are looked at again, though nothing comes: signals that are late, questions that expire.


MICROSECONDS = 1_000_000


class Woken(Protocol):
    """Whose paths they are."""

    def may_take(self) -> bool:
        """Whether its paths may go on."""

    async def take(self) -> bool:
        """Record what lies in the inbox, and let paths go on that waited for it."""

    def wake(self, path: str) -> None:
        """Let a path look again."""


class Alarms:
    """The alarms of one execution.

    Parameters
    ----------
    claim_expired
        Claims a question of an execution whose time is up.
    """

    def __init__(
        self, journal: Journal, group: Group, woken: Woken, claim_expired: Callable[[str, str], Awaitable[object]]
    ) -> None:
        self._journal, self._group, self._woken, self._claim_expired = journal, group, woken, claim_expired

    def set(self, path: str, deadline: int) -> None:
        """Have a path looked at again at a time, microseconds since 1970."""
        self._group.start(self._ring(path, deadline), is_aside=True)

    async def expire(self, interrupt_id: str) -> None:
        """Let an open question expire before its time, and its paths go on; an answer that came first counts."""
        await self._claim_expired(self._journal.execution_id, interrupt_id)
        await self._woken.take()

    def set_all(self) -> None:
        """Set those that the log asks for."""
        for path, deadline in self._journal.state.deadlines():
            self.set(path, deadline)

    def stop(self) -> None:
        """Set all of them off."""
        self._group.cancel_aside()

    async def go_on(self) -> None:
        """Set those that the log asks for, after a rest; what is due by now is looked at before that."""
        for path, deadline in self._journal.state.deadlines():
            if deadline <= self._journal.clock.now():
                await self._ring(path, deadline)
            else:
                self.set(path, deadline)

    async def _ring(self, path: str, deadline: int) -> None:
        """Let a path go on at a certain time, and claim its questions that have no answer by then."""
        left = deadline - self._journal.clock.now()
        while left > 0:
            with engine_code():  # the clock may be a person's
                await self._journal.clock.sleep(left / MICROSECONDS)
            left = deadline - self._journal.clock.now()
        if not self._woken.may_take():
            return
        questions = self._journal.state.pending_interrupts()
        expired = [found for found in questions if found.expires_us is not None and found.expires_us <= deadline]
        for question in expired:
            await self._claim_expired(self._journal.execution_id, question.interrupt_id)
        if expired:
            await self._woken.take()
        if self._woken.may_take():
            self._woken.wake(path)


# A task that comes to rest and goes on, for code that waits for its end or its next rest.


class PausableTask:
    """Work in a task of its own, which outlives those who wait for it to come to rest; on one loop."""

    def __init__(self) -> None:
        self.is_resting = False
        """Whether the work stands still, and nobody waits for it."""
        self._task: asyncio.Task[None] | None = None
        self._standstill: asyncio.Future[None] | None = None
        """Done when the work has ended, or rests."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing of the work is left."""
        return self._task is None or self._task.done()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work."""
        self._task = asyncio.get_running_loop().create_task(work, name="divebook-paths")
        self._task.add_done_callback(self._note_end)

    def rest(self) -> None:
        """Let the one who waits go: the work stands still."""
        self.is_resting = True
        self._end_wait()

    def _end_wait(self) -> None:
        if self._standstill is not None and not self._standstill.done():
            self._standstill.set_result(None)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if self.is_resting and not task.cancelled():
            task.exception()  # of code that was let go: what it did is replayed
        self._end_wait()

    async def pursue(self, going_on: Coroutine[Any, Any, None] | None = None) -> None:
        """Let the work go on, and return when it has ended or rests; what it raised is raised here.

        Cancelled, it cancels the work, and waits for its end.
        """
        assert self._task is not None  # noqa: S101 - `begin` comes first
        self.is_resting, self._standstill = False, asyncio.get_running_loop().create_future()
        try:
            if going_on is not None:
                await going_on
            await self._standstill
        except BaseException:
            self._task.cancel()
            await self.gone()
            raise
        if not self.is_resting:
            self._task.result()

    async def gone(self) -> None:
        """Return when nothing of the work is left."""
        if self._task is not None:
            await asyncio.wait((self._task,))


class Runner(PathRunner):
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
        self._apart = PausableTask() if may_stay else None
        self._still: ConcurrentCalls | None = None
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

    async def _run_apart(self, apart: PausableTask, first: Callable[[], object]) -> None:
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

    def _note_idle(self, strands: ConcurrentCalls) -> None:
        """Hear that a path has nothing to do before something comes from outside."""
        if self._apart is None or not self.may_take():
            strands.let_go()
            return
        self._still, strands.are_resting = strands, True
        self._alarms.stop()
        self._apart.rest()

    async def _go_on(self, strands: ConcurrentCalls, first: Callable[[], object]) -> None:
        """Let the code that stands still have what has come meanwhile."""
        self._still, strands.are_resting = None, False
        with self.journal.held():
            first()
            await self.take()
        await self._alarms.go_on()
        if strands.is_idle:
            self._note_idle(strands)

    def let_go(self) -> PausableTask | None:
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


# Executions whose code stands where it waits: kept in memory, so that an answer need not replay what came before.
#
# Everybody else sees an execution that rests like any other: it is driven by nobody, and its lease is given back. When
# this process drives it again and its log is as it was left, its code goes on; where it is not, or where there is no
# room for it, the code is let go with `Suspended` and what it did is replayed. Both record the same
# (`tests/execution/test_resting.py`).


MOST = 64
"""How many strands of code stand still at a time, in all executions of a process."""


class ParkedRuns:
    """All that stands still in this process, the least recently used first; on the engine's loop.

    Parameters
    ----------
    most
        How many strands stand still at a time; with 0 everything that waits is let go, and replayed.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._kept: dict[ParkedRun, Runner] = {}
        self._lost: list[dict[ParkedRun, Runner]] = []
        """Of a loop that has died, or of the process that this one was forked from: held on to, since Python would
        unwind here what it throws away."""

    def __len__(self) -> int:
        return sum(runner.strands for runner in self._kept.values())

    def keep(self, standing: ParkedRun, runner: Runner) -> None:
        """Keep a runner that rests, and let go those that there is no room for."""
        self._kept[standing] = runner
        while len(self) > self.most:
            next(iter(self._kept)).let_go()

    def take(self, standing: ParkedRun) -> Runner | None:
        """Return what stands still of an execution, and keep it no more."""
        return self._kept.pop(standing, None)

    def let_all_go(self) -> list[ParkedRun]:
        """Unwind everything; return of what."""
        return [standing for standing in list(self._kept) if standing.let_go()]

    def forget(self) -> None:
        """Forget all: the loop that it stood on is gone."""
        self._lost += [self._kept] if self._kept else []
        self._kept = {}


RESTING = ParkedRuns()
"""That of this process."""


class Given(Protocol):
    """What a runner is given from above."""

    @property
    def services(self) -> Services:
        """What it needs of others."""

    @property
    def chance(self) -> Chance:
        """Where its random bits come from."""


def _made_of(workflow: Workflow, given: Given) -> tuple[object, object]:
    """Return the function and the agent of the one step of a workflow; None and None where its code stays nowhere."""
    if len(workflow.steps) != 1:
        return None, None
    step = workflow.start
    function = WORKFLOW_FUNCTIONS.get(workflow.name) if step.type == FUNCTION else None
    return function, given.services.hands_of(step)


class ParkedRun:
    """What stands still of one execution, if anything does.

    Parameters
    ----------
    owner
        What drives it, and is to be found as long as its code stands still.
    """

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._made_of: tuple[object, object] = (None, None)
        """The function and the agent of its one step, when its code began."""
        self._unwinding: list[PausableTask] = []

    def begin(self, workflow: Workflow, journal: Journal, given: Given, beyond: MissPolicy | None = None) -> Runner:
        """Return a runner, whose code may stand still later if it is a function, or one agent at work.

        Of other steps few are replayed. `beyond` answers in place of the world.
        """
        self._made_of = _made_of(workflow, given)
        may_stay = (
            RESTING.most > 0 and journal.state.rolling_back is None and any(part is not None for part in self._made_of)
        )
        services = given.services
        once, waits = OperationLog(journal, beyond), Waits(journal)
        above = services.texts, services.policy, services.lender, services.surrounded
        recorder = Recorder(once, waits, given.chance, *above)
        return Runner(journal, recorder, services.as_written(workflow), services, may_stay=may_stay)

    def keep(self, runner: Runner, *, is_stored: bool) -> None:
        """Keep the code of a runner where it stands, unless its log could not be written."""
        runner.journal.rest()
        if runner.strands and is_stored:
            RESTING.keep(self, runner)
        else:
            self._unwind(runner)

    def take(self, state: ExecutionState, code: Mapping[str, str], given: Given) -> Runner | None:
        """Return the runner that can go on from a state with the functions of these digests; if none can, let it go.

        Where a function was defined anew, or an agent, the new one is meant, whatever it says
        (test_a_function_that_was_defined_anew_is_replayed).
        """
        runner = RESTING.take(self)
        if runner is None:
            return None
        is_as_left = runner.strands and runner.journal.state is state
        is_same = all(map(operator.is_, self._made_of, _made_of(runner.workflow, given)))
        if is_as_left and is_same and code == dict(state.code):
            return runner
        self._unwind(runner)
        return None

    def let_go(self) -> ParkedRun | None:
        """Unwind what stands still; return itself if anything does."""
        runner = RESTING.take(self)
        if runner is None:
            return None
        self._unwind(runner)
        return self

    def _unwind(self, runner: Runner) -> None:
        apart = runner.let_go()
        if apart is not None and not apart.has_ended:
            self._unwinding.append(apart)

    async def gone(self) -> None:
        """Return when nothing runs any more of code that was let go."""
        while self._unwinding:
            await (apart := self._unwinding[-1]).gone()
            # Who closes the environment may wait beside who cancels, and more may have been let go meanwhile.
            self._unwinding = [one for one in self._unwinding if one is not apart]
