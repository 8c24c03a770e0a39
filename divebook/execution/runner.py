"""Drives one execution: asks the rules what is next, does it, records what happened.

One task per active path. The rules (`engine.decide`) choose; this module only carries out. Step handlers come
from above as a mapping from step type to coroutine function, so that the runner knows nothing of agents or actions.

Code that may stand still while it waits (`divebook.execution.resting`) runs apart from the code that waits for it.
"""

from __future__ import annotations

from collections.abc import Callable

from divebook.engine.decide import decide_end, decide_joins, decide_path, decide_start
from divebook.engine.inbox import facts_of
from divebook.engine.instructions import AwaitAnswer, AwaitJoin, CancelPaths, EvaluateConditions, RecordFacts, RunStep
from divebook.engine.retries import Fault, catching
from divebook.errors import DivebookError
from divebook.events import catalog
from divebook.execution.alarms import Alarms
from divebook.execution.apart import Apart
from divebook.execution.definition_places import definition_place
from divebook.execution.groups import Group, after_start
from divebook.execution.iterations import Outcome
from divebook.execution.raised import OwnFacts, fault_of, own_facts
from divebook.execution.recorder import Recorder
from divebook.execution.step_run import Services, StepRun
from divebook.execution.strands import GoesOnElsewhere, Strands, Suspended
from divebook.workflow.definition import Step, Workflow


class Runner:
    """One execution on its way.

    Parameters
    ----------
    may_stay
        Whether the code of its one path stays where it waits when `run` returns, for another `run`; else it is let go.
    """

    def __init__(self, recorder: Recorder, workflow: Workflow, services: Services, *, may_stay: bool = False) -> None:
        self.journal, self.workflow = recorder.journal, workflow
        self._services, self._recorder = services, recorder
        self._group = Group()
        self._alarms = Alarms(self.journal, self._group, self, services.claim_expired)
        self._recorder.waits.idle = self._note_idle
        self._apart = Apart() if may_stay else None
        self._still: Strands | None = None
        """Strands that stand still."""
        self._cancel_reason: str | None = None
        self._pause_reason: str | None = None
        self._driven: set[str] = set()
        """Paths that have a task, be it one that is still to begin."""

    def cancel(self, reason: str) -> None:
        """Stop every path and end the execution as cancelled; call it on the engine's loop."""
        if self._cancel_reason is None:
            self._cancel_reason = reason
            self._recorder.is_given_up = True
            self._stop()

    def _stop(self) -> None:
        """Let all paths come to their end where they next wait for anything."""
        self.journal.is_left = True
        self._group.cancel()

    def pause(self, reason: str) -> None:
        """Let nothing more begin, wait for calls that may not be made twice, and rest; call it on the engine's loop."""
        if self._pause_reason is None and self._cancel_reason is None:
            self._pause_reason = reason
            self._recorder.pause(self._stop)

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
            self.journal.cancel_paths(self._cancel_reason)
            self.journal.record(catalog.ExecutionCancelled(self._cancel_reason))
            return
        end = decide_end(self.workflow, self.journal.state)
        if self._pause_reason is not None and self.journal.state.active and not isinstance(end, CancelPaths):
            self.journal.record(catalog.ExecutionPaused(self._pause_reason))
            return
        if isinstance(end, CancelPaths):
            self.journal.cancel_paths(end.reason)
            end = decide_end(self.workflow, self.journal.state)
        if isinstance(end, RecordFacts):
            self.journal.record_all(end.facts)

    # --- one path --------------------------------------------------------------------------------------------------

    def _start(self, path_id: str) -> None:
        """Drive a path in a task of its own, unless it has one."""
        if path_id not in self._driven:
            self._group.start(self._drive(path_id))
            self._driven.add(path_id)

    async def _drive(self, path_id: str) -> None:
        """Carry out what the rules say about one path until it ends or has to wait."""
        try:
            has_arrived = await self._follow(path_id)
        finally:
            self._driven.discard(path_id)
        if has_arrived:
            self._release_joins()
        self._end_where_nothing_is_left()

    def _end_where_nothing_is_left(self) -> None:
        """Record the end with what led to it, and not after the turns that tasks take to end."""
        if self._driven or self._cancel_reason is not None or self._pause_reason is not None:
            return
        end = decide_end(self.workflow, self.journal.present)
        if isinstance(end, RecordFacts):
            self.journal.record_all(end.facts)

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

    def _release_joins(self) -> None:
        """Let paths go on that need wait no longer; their tasks ended when they began to wait, so they get new ones."""
        if not self.workflow.has_joins:  # else the state would be folded for every path that ends
            return
        for record in decide_joins(self.workflow, self.journal.present):
            self.journal.record_all(record.facts)
            self._start(record.facts[-1].path)

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
