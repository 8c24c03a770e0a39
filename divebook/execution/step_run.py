"""One visit of a step: its items, and its attempts where it is tried again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from divebook.engine.inbox import Message
from divebook.engine.instructions import RunStep
from divebook.engine.operations import Place
from divebook.engine.records import OpenStep
from divebook.errors import ScriptError, StepError, UnstorableValueError
from divebook.events.codec import storable
from divebook.execution.approving import ApprovalPolicy
from divebook.execution.attempts import has_one_attempt, retried
from divebook.execution.beyond import FindBeyond, nothing_beyond
from divebook.execution.containment import contained
from divebook.execution.context import StepContext
from divebook.execution.executors import Executors
from divebook.execution.iterations import Iterations, Outcome
from divebook.execution.open_workspaces import Lender
from divebook.execution.recorder import Recorder
from divebook.execution.streaming import TextStreams
from divebook.execution.surrounded import SurroundedCalls
from divebook.workflow.definition import Workflow
from divebook.workflow.policies import Rollback
from divebook.workflow.step import CONTINUE, Each, Step

EXTENSIONS = ("wait", "workflow", CONTINUE, "function", "stage")
"""Types of step that the dialect ``dive`` does not know."""

Handler = Callable[[StepContext], Awaitable[Outcome]]


class EvaluateItems(Protocol):
    """`Each.Items` as written, and the names it may use, to the items."""

    async def __call__(self, items: Any, names: Mapping[str, Any], *, flatten: bool) -> list[Any] | dict[str, Any]:
        """Return the items, with keys if they have some; `flatten` undoes nesting, as the dialect ``dive`` does."""


@dataclass(frozen=True, slots=True)
class Services:
    """What a runner is given from above."""

    handlers: Mapping[str, Handler]
    """By step type."""
    evaluate_condition: Callable[[str, Mapping[str, Any]], Awaitable[bool]]
    """A condition and the names it may use to its truth."""
    evaluate_items: EvaluateItems
    fill: Callable[[Mapping[str, Any], Mapping[str, Any]], Awaitable[dict[str, Any]]]
    """Texts with templates, and the names that these may use, to what they come to."""
    inbox: Callable[[str, int], Awaitable[Iterable[Message]]]
    """The messages of an execution with numbers above one, ascending."""
    claim_expired: Callable[[str, str], Awaitable[object]]
    """Claims a question of an execution whose time is up; the claim lies in its inbox, unless it was answered first."""
    texts: TextStreams = field(default_factory=TextStreams)
    """Who hears what models write."""
    executors: Executors = field(default_factory=Executors)
    """Where the functions of actions and steps run."""
    policy: ApprovalPolicy = field(default_factory=ApprovalPolicy)
    """What is said of calls that need a person's yes."""
    as_written: Callable[[Workflow], Workflow] = lambda workflow: workflow
    """Returns a workflow with the text that an equal one was read from, if there is one: a log holds no text."""
    lender: Lender | None = None
    """What gives executions their workspaces."""
    surrounded: SurroundedCalls = field(default_factory=SurroundedCalls)
    """What calls are made in."""
    beyond: FindBeyond = nothing_beyond
    """Finds what answers a what-if in place of the world."""

    def hands_of(self, step: Step) -> object | None:
        """Return the agent that makes calls of its own in a step, and tries each of them again by itself, if one does.

        A handler with a method of this name knows.
        """
        known: Callable[[Step], object | None] | None = getattr(self.handlers.get(step.type), "hands_of", None)
        return None if known is None else known(step)


class StepRun:
    """Carries out one visit of a step, from wherever the log has got to."""

    def __init__(self, recorder: Recorder, services: Services, workflow: Workflow, instruction: RunStep) -> None:
        self.step = workflow.step(instruction.step)
        state = recorder.journal.present
        if (number := state.paths[instruction.path].undoes) is not None:
            undoing = state.rollbacks[number]
            self.step = self.step.undoing(undoing.kind, undoing.called, undoing.parameters)
        self._recorder, self._services, self._workflow = recorder, services, workflow
        self._path, self._visit = instruction.path, instruction.visit
        self._handler: Handler | None = None

    @property
    def opened(self) -> OpenStep:
        """The step as the log has it."""
        opened = self._recorder.journal.present.paths[self._path].open
        if opened is None:
            raise RuntimeError(f"path {self._path} is inside no step")
        return opened

    def run(self) -> Awaitable[Outcome]:
        """Return what carries out what is not done yet.

        Raises
        ------
        Suspended
            It cannot go on before a question is answered.
        Exception
            Whatever its code raised in the last attempt.
        """
        self._handler = self._find_handler()
        each = self.step.each
        return self._run_item(None, None) if each is None or each.rows is not None else self._run_items(each)

    async def _run_items(self, each: Each) -> Outcome:
        journal = self._recorder.journal
        names = {"inputs": journal.state.inputs, "state": self.opened.entry_variables}
        manner = self._workflow.manner
        try:
            items = await self._services.evaluate_items(each.items, names, flatten=manner.flattens_items)
        except ScriptError as error:
            error.code = str(each.items)
            raise
        iterations = Iterations(self._recorder, self._path, self._workflow, self.step, storable(items, "items"))
        return await iterations.run(self._run_item, keeps_text=manner.keeps_text)

    def _find_handler(self) -> Handler:
        step = self.step
        handler = self._services.handlers.get(step.type)
        if handler is None or (step.type in EXTENSIONS and not self._workflow.manner.has_extensions):
            raise StepError(f'unsupported step type "{step.type}" in step "{step.name}"')
        return handler

    def _run_item(self, index: int | None, item: Any) -> Awaitable[Outcome]:
        """Carry out one item, or the whole step without `Each`, and fill in what would undo it."""
        made = self._made(index, item)
        return made if self.step.rollback is None else self._with_rollback(self.step.rollback, made, item)

    async def _with_rollback(self, rollback: Rollback, made: Awaitable[Outcome], item: Any) -> Outcome:
        outcome = await made
        local = self._local(item)
        stored = {self.step.store: outcome.value} if self.step.store and self.step.each is None else {}
        variables = {**self._recorder.journal.present.paths[self._path].variables, **local, **stored}
        names = {"inputs": self._recorder.journal.present.inputs, "state": variables, **local, "result": outcome.value}
        try:
            given = storable(await self._services.fill(rollback.parameters, names), "parameters")
        except (ScriptError, UnstorableValueError) as error:
            told = f"the parameters of its Rollback cannot be filled in, so that it would not be undone: {error}"
            raise StepError(told) from None  # else only what is wrong would be shown, and not with what
        return replace(outcome, rollback=given)

    def _local(self, item: Any) -> dict[str, Any]:
        each = self.step.each
        return {each.as_: item} if each is not None and each.as_ and item is not None else {}

    def _made(self, index: int | None, item: Any) -> Awaitable[Outcome]:
        """Carry out one item, or the whole step without `Each`, as often as its policy says."""
        policy = self.step.retry
        is_of_rows = self.step.each is not None and self.step.each.rows is not None
        if policy is not None and (is_of_rows or self._services.hands_of(self.step) is not None):
            policy = None  # it holds for each row, or call of the agent: another attempt at all would repeat some
        if has_one_attempt(self._recorder, self._path, policy):
            return self._attempt(index, item, 0)
        place = Place(self._path, self.step.name, self._visit, index, "step")
        return retried(self._recorder, place, policy, lambda failures: self._attempt(index, item, failures))

    def _attempt(self, index: int | None, item: Any, failures: int) -> Awaitable[Outcome]:
        context = StepContext(
            self._recorder,
            self._workflow,
            self.step,
            self._path,
            self._visit,
            attempt=failures,
            iteration_index=index,
            local=self._local(item) or None,
            executors=self._services.executors,
        )
        assert self._handler is not None  # noqa: S101 - set by run, which alone comes here
        return contained(self._handler(context), self._recorder.loop)
