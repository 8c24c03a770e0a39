"""Drives one execution: asks the rules what is next, does it, records what happened.

One anyio task per active path. The rules (`engine.decide`) choose; this module only carries out. Step handlers come
from above as a mapping from step type to coroutine function, so that the runner knows nothing of agents or actions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
from anyio.abc import TaskGroup

from divebook.engine.decide import decide_end, decide_joins, decide_path, decide_start
from divebook.engine.instructions import AwaitJoin, CancelPaths, EvaluateConditions, Record, RunStep
from divebook.errors import DivebookError, StepError
from divebook.events import catalog
from divebook.execution.clock import Chance
from divebook.execution.context import StepContext
from divebook.execution.iterations import Iterations, Outcome
from divebook.execution.journal import Journal
from divebook.execution.recorder import Recorder
from divebook.workflow.definition import Workflow
from divebook.workflow.step import Step

Handler = Callable[[StepContext], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Services:
    """What a runner is given from above."""

    handlers: Mapping[str, Handler]
    """By step type."""
    evaluate_condition: Callable[[str, Mapping[str, Any]], Awaitable[bool]]
    """A condition and the names it may use to its truth."""
    evaluate_items: Callable[[Any, Mapping[str, Any]], Awaitable[list[Any]]]
    """`Each.Items` as written and the names it may use to the items."""


class Runner:
    """One execution on its way; made for one `run`."""

    def __init__(self, journal: Journal, workflow: Workflow, services: Services, chance: Chance) -> None:
        self.journal, self.workflow = journal, workflow
        self._services = services
        self._recorder = Recorder(journal, chance)
        self._scope = anyio.CancelScope()
        self._tasks: TaskGroup | None = None
        self._cancel_reason: str | None = None

    def cancel(self, reason: str) -> None:
        """Stop every path and end the execution as cancelled; call it on the engine's loop."""
        if self._cancel_reason is None:
            self._cancel_reason = reason
            self._scope.cancel()

    async def run(self) -> None:
        """Carry the execution to its end.

        Raises
        ------
        StoreError
            The log could not be written; what is in the store can be resumed.
        """
        try:
            with self._scope:
                await self._run_paths()
        except ExceptionGroup as group:
            raise self._root_cause(group) from None
        with anyio.CancelScope(shield=True):
            self._end()
            await self.journal.durable()

    def _root_cause(self, group: ExceptionGroup[Exception]) -> Exception:
        """Return the log's own error if there is one: every path that met it raised it."""
        return self.journal.error or group.exceptions[0]

    async def _run_paths(self) -> None:
        if not self.journal.state.paths:
            self.journal.record_all((decide_start(self.workflow),))
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            for path in self.journal.state.active_paths():
                tasks.start_soon(self._drive, path.id)

    def _end(self) -> None:
        """Record how the execution ended, after every task has."""
        if self._cancel_reason is not None:
            self._cancel_active(self._cancel_reason)
            self.journal.record(catalog.ExecutionCancelled(self._cancel_reason))
            return
        end = decide_end(self.workflow, self.journal.state)
        if isinstance(end, CancelPaths):
            self._cancel_active(end.reason)
            end = decide_end(self.workflow, self.journal.state)
        if isinstance(end, Record):
            self.journal.record_all(end.facts)

    def _cancel_active(self, reason: str) -> None:
        for path in self.journal.state.active_paths():
            self.journal.record(catalog.PathCancelled(reason), path.id)

    # --- one path --------------------------------------------------------------------------------------------------

    async def _drive(self, path_id: str) -> None:
        """Carry out what the rules say about one path until it ends or has to wait for others."""
        while (instruction := decide_path(self.workflow, self.journal.state, path_id)) is not None:
            match instruction:
                case Record():
                    self.journal.record_all(instruction.facts)
                    self._start_new_paths(instruction)
                case RunStep():
                    if not await self._run_step(instruction):
                        return
                case EvaluateConditions():
                    if not await self._evaluate(instruction):
                        return
                case AwaitJoin():
                    break
        self._release_joins()

    def _start_new_paths(self, record: Record) -> None:
        for fact in record.facts:
            if isinstance(fact.data, catalog.PathBranched):
                for new_path in fact.data.new_paths:
                    self._group.start_soon(self._drive, new_path["id"])

    def _release_joins(self) -> None:
        """Let paths go on that need wait no longer; their tasks ended when they began to wait, so they get new ones."""
        for record in decide_joins(self.workflow, self.journal.state):
            self.journal.record_all(record.facts)
            self._group.start_soon(self._drive, record.facts[-1].path)

    @property
    def _group(self) -> TaskGroup:
        if self._tasks is None:
            raise RuntimeError("paths run only inside Runner.run")
        return self._tasks

    async def _evaluate(self, instruction: EvaluateConditions) -> bool:
        path = self.journal.state.paths[instruction.path]
        names = {"inputs": self.journal.state.inputs, "state": path.variables}
        for condition, target in instruction.conditions:
            try:
                result = await self._services.evaluate_condition(condition, names)
            except DivebookError as error:
                where = f'failed to evaluate condition "{condition}" in step "{instruction.step}"'
                self._fail(instruction.path, instruction.step, f"{where}: {error}")
                return False
            evaluated = catalog.ConditionEvaluated(condition, target, result)
            self.journal.record(evaluated, instruction.path, instruction.step)
        return True

    # --- one step --------------------------------------------------------------------------------------------------

    async def _run_step(self, instruction: RunStep) -> bool:
        """Carry out a step; return whether it succeeded."""
        step = self.workflow.step(instruction.step)
        if not instruction.resumed:
            started = catalog.StepStarted(step.type or "unknown", dict(step.parameters) or None, instruction.visit)
            self.journal.record(started, instruction.path, step.name)
        try:
            outcome = await self._carry_out(step, instruction)
        except Exception as error:  # whatever a step's code raises is the step's recorded failure
            if self.journal.error is not None:
                raise self.journal.error from error
            self._fail(instruction.path, step.name, _failure_text(error))
            return False
        self._complete(step, instruction.path, outcome)
        return True

    async def _carry_out(self, step: Step, instruction: RunStep) -> Outcome:
        handler = self._handler(step)
        each = step.each

        async def run_item(index: int | None, item: Any) -> Outcome:
            local = {each.as_: item} if each is not None and each.as_ and item is not None else None
            context = StepContext(
                self._recorder,
                self.workflow,
                step,
                instruction.path,
                instruction.visit,
                iteration_index=index,
                local=local,
            )
            return await handler(context)

        if each is None:
            return await run_item(None, None)
        names = {"inputs": self.journal.state.inputs, "state": self._entry_variables(instruction.path)}
        items = await self._services.evaluate_items(each.items, names)
        iterations = Iterations(self.journal, instruction.path, step, each, items)
        return await iterations.run(run_item, texts_only=self.workflow.dialect == "dive")

    def _entry_variables(self, path_id: str) -> Mapping[str, Any]:
        opened = self.journal.state.paths[path_id].open
        return opened.entry_variables if opened is not None else {}

    def _handler(self, step: Step) -> Handler:
        handler = self._services.handlers.get(step.type)
        if handler is None or (self.workflow.dialect == "dive" and step.type == "wait"):
            raise StepError(f'unsupported step type "{step.type}" in step "{step.name}"')
        return handler

    def _complete(self, step: Step, path_id: str, outcome: Outcome) -> None:
        if step.store:
            mutation = catalog.Mutation("set", step.store, outcome.value)
            self.journal.record(catalog.StateMutated((mutation,)), path_id, step.name)
        opened = self.journal.state.paths[path_id].open
        usage = opened.usage.to_dict() if opened is not None else {}
        completed = catalog.StepCompleted(outcome.text, step.store, usage or None)
        self.journal.record(completed, path_id, step.name)

    def _fail(self, path_id: str, step: str, error: str) -> None:
        """Record a failure; the first one stops the siblings unless the workflow says otherwise."""
        self.journal.record(catalog.StepFailed(error), path_id, step)
        self.journal.record(catalog.PathFailed(error), path_id)
        if isinstance(decide_end(self.workflow, self.journal.state), CancelPaths):
            self._scope.cancel()
        else:
            self._release_joins()


def _failure_text(error: BaseException) -> str:
    """Return the message of an error, with the class of those that are not ours."""
    if isinstance(error, BaseExceptionGroup):
        return _failure_text(error.exceptions[0])
    if isinstance(error, DivebookError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
