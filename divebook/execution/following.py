"""A path followed step by step: the rules say what is next, this does it and records what happened.

`divebook.execution.runner` follows all paths of an execution at once, live; `divebook.replay.driving` one after the
other, against a log.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from divebook.engine.decide import decide_end, decide_path
from divebook.engine.instructions import AwaitAnswer, AwaitJoin, CancelPaths, EvaluateConditions, RecordFacts, RunStep
from divebook.engine.retries import Fault, catching
from divebook.errors import DivebookError
from divebook.events import catalog
from divebook.execution.definition_places import definition_place
from divebook.execution.groups import after_start
from divebook.execution.iterations import Outcome
from divebook.execution.log import StepLog
from divebook.execution.raised import OwnFacts, fault_of, own_facts
from divebook.execution.recorder import Recorder
from divebook.execution.step_run import Services, StepRun
from divebook.execution.strands import GoesOnElsewhere, Suspended
from divebook.workflow.definition import Step, Workflow


class Following(ABC):
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
