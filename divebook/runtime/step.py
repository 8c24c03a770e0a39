"""Execution of one visit of a step: its items (`Each`), its attempts (`Retry`), and the arguments of its rollback.

`StepRun` runs a visit. `Iterations` runs the items of `Each`, in order or concurrently. `Services` holds the
dependencies of a runner.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

from divebook.definitions.definition import Workflow
from divebook.definitions.step import CONTINUE, KEEP, SKIP, Each, Rollback, Step
from divebook.engine.inbox import Message
from divebook.engine.instructions import RunStep
from divebook.engine.operations import TURN_KEY, Place
from divebook.engine.retries import Fault, chain_of, names_of, recorded_chain, telling
from divebook.engine.state import NO_FAILURE, OpenStep, unknown
from divebook.errors import (
    BoundExceededError,
    DivergenceError,
    ItemFailedError,
    NotFoundError,
    Problem,
    ScriptError,
    StepError,
    StoreError,
    UnstorableValueError,
    position_in,
)
from divebook.events import catalog
from divebook.events.codec import storable
from divebook.events.payload import fast_init
from divebook.questions.question import RESOURCE_EXHAUSTED
from divebook.runtime.compute.dask import Executors
from divebook.runtime.concurrency import Group, Suspended, after_start
from divebook.runtime.context import StepContext, has_one_attempt, retried
from divebook.runtime.errors import error_details, fault_of, source_place
from divebook.runtime.operations import FindMissPolicy, refuse_what_if
from divebook.runtime.recorder import CallTracing, Recorder, contained
from divebook.runtime.streaming import TextStreams
from divebook.runtime.waiting import ApprovalPolicy, NoApprovalPolicy
from divebook.runtime.workspaces import WorkspaceProvider
from divebook.scripting.values import value_text
from divebook.text.redaction import one_line

# --- places in a definition ------------------------------------------------------------------------------------------
#
# The line of a script, a condition or a ``${...}`` that failed.


MOST_CODE = 60
"""Maximum number of characters of an expression that is shown as the label of its place."""


def definition_place(workflow: Workflow, step: Step, error: BaseException, code: str = "") -> Mapping[str, Any] | None:
    """Return the line of a step's script or template that caused an error, with the lines around it. Return None if the
    error was raised elsewhere.

    `code` is the evaluated code, if the error does not contain it.
    """
    source = telling(error)
    if not isinstance(source, ScriptError) or source.raised_at is not None:
        return None
    text = code or source.code
    return code_place(workflow, step, text, source.line or 1) if text else None


def code_place(workflow: Workflow, step: Step, code: str, line: int) -> Mapping[str, Any]:
    """Return the place (label, line number and surrounding lines) of a line in a step's script or expression, for
    errors.

    If the source text of the definition is known, the line is found in it by its text. Otherwise the place is relative
    to the script.
    """
    lines = code.splitlines()
    source = workflow.written
    number = next(place for place, other in enumerate(workflow.steps) if other.name == step.name)
    text = lines[line - 1].strip() if line <= len(lines) else ""
    # The log of a run does not contain the source text, so a workflow read from it has none.
    if not source.name or not text:
        label = f"line {line} of the script" if len(lines) > 1 else one_line(code, MOST_CODE)
        return source_place(label, lines, line)
    # The first line of the script is searched below the step, and the failed line is counted from it. A later line
    # alone may occur several times.
    problem = Problem(text, place=("Steps", number))
    start = source.located(problem, re.escape(lines[0].strip()))
    at = source.located(problem, re.escape(text)) if line == 1 else start.at(start.line + line - 1, start.column)
    lines_of_source = [""] * source.above + source.text.splitlines()
    return source_place(position_in(source.name, at.line, at.column), lines_of_source, at.line)


# --- items of `Each` -------------------------------------------------------------------------------------------------
#
# One step, once per item, in order or several items at a time.


SKIPPED = {"skipped": True}
"""Recorded result of an item that failed and is skipped."""
THROUGH = (BoundExceededError, DivergenceError, StoreError)
"""Errors that always end the whole step, even if it continues after failed items."""

Keyed: TypeAlias = dict[str, Any]
"""Items that are the values of a mapping, by key."""
RunItem = Callable[[int | None, Any], Awaitable["Outcome"]]
"""Run the step for one item: ``(index, item)``. Without `Each` the index is None."""


@fast_init
@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a step, or of one item of its `Each`: text, value, and arguments of its rollback."""

    text: str = ""
    """Text that is shown, and recorded as the step's output."""
    value: Any = None
    """Value saved by `Store`."""
    rollback: Mapping[str, Any] | None = None
    """Arguments of the rollback call, if the step has a rollback."""


class Iterations:
    """Runner of the items of a step with `Each`. It runs the items that have no recorded result, in order or
    concurrently.
    """

    def __init__(self, recorder: Recorder, path: str, workflow: Workflow, step: Step, items: list[Any] | Keyed) -> None:
        assert step.each is not None, "only steps with `Each` have items"  # noqa: S101 - an invariant of the runner
        self._recorder = recorder
        self._journal = recorder.journal
        self._concurrent_calls = recorder.waits.concurrent_calls(path)
        self._path = path
        self._workflow = workflow
        self._step = step
        self._each = step.each
        self._keys = list(items) if isinstance(items, dict) else None
        self._items: Sequence[Any] = list(items.values()) if isinstance(items, dict) else items
        self._keeps_text = False
        self._is_counted = False
        # A trial of one item runs only that item. Otherwise `only` has no item, and all items run.
        only_index = self._journal.state.only.get("item")
        self._indexes = [index for index in range(len(self._items)) if only_index in (None, index)]

    async def run(self, run_item: RunItem, *, keeps_text: bool = False) -> Outcome:
        """Run the items that have not ended yet, and return the outcome of the step, which combines the results of all
        items.

        With `keeps_text`, the value of the step is the list of the items' texts, and a failed item fails the step.
        """
        self._keeps_text = keeps_text
        if self._each.parallel > 1:
            await self._run_parallel(run_item)
        else:
            await self._run_in_order(run_item)
        self._restore_variable()
        # `{index: recorded outcome}`, with the results of earlier processes. The results have the order of the items,
        # not of their ends.
        results = self._open_step.iterations
        done = [index for index in self._indexes if results[index] != SKIPPED]
        outcomes = [_outcome_from(results[index]) for index in done]
        texts = [outcome.text for outcome in outcomes]
        document = self._document([self._items[index] for index in done], texts)
        return Outcome(document, texts if keeps_text else [outcome.value for outcome in outcomes])

    @property
    def _open_step(self) -> OpenStep:
        open_step = self._journal.present.paths[self._path].open
        assert open_step is not None, "the step is open while its items run"  # noqa: S101 - an invariant of the runner
        return open_step

    async def _run_in_order(self, run_item: RunItem) -> None:
        for index in self._indexes:
            if index not in self._open_step.iterations:
                await self._run_one(run_item, index, self._items[index])

    async def _run_parallel(self, run_item: RunItem) -> None:
        """Run the remaining items concurrently, at most as many at a time as `Each` allows. An item that waits for an
        answer does not block the other items.

        After a failure that ends the step, no further item or attempt starts, but running ones finish: their recorded
        calls, which are paid for, are reused by a resumption.
        """
        results = self._open_step.iterations
        remaining = deque(index for index in self._indexes if index not in results)
        suspended: list[Suspended] = []
        failed: list[Exception] = []

        async def work(strand: Callable[[], AbstractContextManager[None]]) -> None:
            with strand():
                # Each worker takes the next item when it has finished one, so a slow item delays no other.
                while remaining and not (suspended and self._meets_bound()):  # the others would meet the same bound
                    index = remaining.popleft()
                    try:
                        await self._run_one(run_item, index, self._items[index])
                    except Suspended as suspension:
                        suspended.append(suspension)
                    except Exception as error:
                        # The log cannot be written, so the error says nothing about the item.
                        if self._journal.error is not None:
                            raise
                        failed.append(error)
                        # Further items do not start, except those with an interrupted call: the step may only fail
                        # once it is known whether the call took effect.
                        to_settle = [other for other in remaining if other in self._unknown_items()]
                        remaining.clear()
                        remaining.extend(to_settle)
                        self._concurrent_calls.end()

        workers = min(self._each.parallel, len(remaining))
        tasks = Group()
        with self._concurrent_calls.side_by_side(workers) as strand:
            async with tasks.running():
                for number in range(1, workers + 1):
                    if not remaining:  # the earlier workers took all items
                        with strand():
                            continue
                    tasks.spawn(work(strand))
                    await after_start(number)
        # A failure ends the step at once, even if other items wait for an answer. Only a question about an unknown
        # outcome comes first.
        if failed and not (suspended and self._unknown_items()):
            raise _first_error(failed)
        if suspended:
            raise suspended[0]

    def _unknown_items(self) -> set[int | None]:
        """Return the numbers of the items with a call that has a rollback, if it is unknown whether the call took
        effect. A person must decide about it before the step fails.
        """
        return {record.item for record in unknown(self._open_step)}

    def _meets_bound(self) -> bool:
        """Return whether the path waits for a person to raise a bound (budget), so that further items would reach the
        same bound.
        """
        pending = self._journal.state.pending_interrupts()
        return any(
            question.kind == RESOURCE_EXHAUSTED and self._path in (question.path, *question.waiting)
            for question in pending
        )

    async def _run_one(self, run_item: RunItem, index: int, item: Any) -> None:
        if self._recorder.operations.is_stopping:  # a start now would only be a long bar in views (test_pausing.py)
            raise Suspended
        key = None if self._keys is None else self._keys[index]
        # The number of items is recorded once, with the first item that runs here.
        total = None if self._is_counted else len(self._items)
        self._is_counted = True
        self._record(catalog.IterationStarted(index, item, key, total))
        # Concurrent items would overwrite each other's loop variable; they get it as a local name only
        # (`StepRun._local`).
        if self._each.as_ and self._each.parallel == 1:
            self._record(catalog.StateMutated((catalog.Mutation("set", self._each.as_, item),)))
        try:
            outcome = await run_item(index, item)
        except Exception as error:
            if self._journal.error is not None or self._keeps_text:
                raise
            self._note_failure(index, item, error)
        else:
            if outcome.rollback is not None and self._step.rollback is not None:
                self._record(catalog.RollbackAdded(self._step.rollback.action, outcome.rollback))
            self._record(catalog.IterationCompleted(index, _recorded_outcome(outcome), item_key=key))

    def _note_failure(self, index: int, item: Any, error: Exception) -> None:
        """Record that an item has failed after its last attempt. Raise `ItemFailedError` if this ends the step;
        otherwise the step continues with the next items.
        """
        failure = fault_of(error)
        continues = self._each.on_item_error in (KEEP, SKIP) and not any(
            isinstance(link, THROUGH) for link in chain_of(error)
        )
        # Earlier failed attempts are in the log, and this one is not yet.
        attempts = self._open_step.failures.get(index, NO_FAILURE)[0] + 1
        result = self._result_of(failure, index, item, attempts) if continues else None
        names = names_of(recorded_chain(error)[-1])
        details = error_details(error, definition_place(self._workflow, self._step, error))
        self._record(
            catalog.IterationFailed(index, failure.message, names, attempts, result, details.trace, details.place)
        )
        if not continues:
            key = None if self._keys is None else self._keys[index]
            raise ItemFailedError(failure.message, index, item, self._results_so_far(), key) from error

    def _result_of(self, failure: Fault, index: int, item: Any, attempts: int) -> dict[str, Any]:
        if self._each.on_item_error == SKIP:
            return SKIPPED
        error = {**failure.to_data(self._step.name, attempts), "iteration": index, "item": item}
        return {"text": failure.message, "value": {"error": error}}

    def _results_so_far(self) -> list[Any]:
        entries = [self._open_step.iterations.get(index) for index in range(len(self._items))]
        # One place for each item, so that the index of a result is the index of its item.
        return [None if entry in (None, SKIPPED) else _outcome_from(entry).value for entry in entries]

    def _restore_variable(self) -> None:
        """Restore the loop variable (`As`) after all items: it gets the value that it had before the step, or is
        deleted if it had none. Do nothing if items run concurrently.

        This happens even if there are no items, as in the legacy Dive dialect.
        """
        name = self._each.as_
        if not name or self._each.parallel > 1:
            return
        before = self._open_step.entry_variables
        mutation = catalog.Mutation("set", name, before[name]) if name in before else catalog.Mutation("delete", name)
        self._record(catalog.StateMutated((mutation,)))

    def _document(self, items: Sequence[Any], texts: Sequence[str]) -> str:
        return "\n\n".join(f"{self._heading(item)}\n\n{text}" for item, text in zip(items, texts, strict=True))

    def _heading(self, item: Any) -> str:
        text = value_text(item)
        return f"# {self._each.as_}: {text}" if self._each.as_ else f"# {text}"

    def _record(self, data: catalog.Payload) -> None:
        self._journal.record(data, self._path, self._step.name)


def _first_error(errors: Sequence[Exception]) -> Exception:
    """Return the first error of several failed items. The other errors are attached to it, if it is an
    `ItemFailedError`.

    A resumption repeats the calls of all of them.
    """
    first, *other_errors = errors
    if isinstance(first, ItemFailedError):
        first.beside += other_errors
    return first


def _recorded_outcome(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome of an item of `Each` as the dict that the log stores. A value that equals the text is stored
    once.
    """
    if isinstance(outcome.value, str) and outcome.value == outcome.text:
        return {"text": outcome.text}
    return {"text": outcome.text, "value": outcome.value}


def _outcome_from(entry: dict[str, Any]) -> Outcome:
    return Outcome(entry["text"], entry.get("value", entry["text"]))


EXTENSIONS = ("wait", "workflow", CONTINUE, "function", "stage")
"""Step types that the dialect ``dive`` does not have."""

Handler = Callable[[StepContext], Awaitable[Outcome]]


class EvaluateItems(Protocol):
    """Protocol of the function that evaluates the expression `Each.Items` with the values of the names that it
    may use.
    """

    async def __call__(self, items: Any, names: Mapping[str, Any], *, flatten: bool) -> list[Any] | dict[str, Any]:
        """Return the items as a list, or as a mapping if they have keys. With `flatten`, nested lists become one list,
        as in the dialect ``dive``.
        """


@dataclass(frozen=True, slots=True)
class Services:
    """Objects and functions that a runner uses: step handlers, evaluation of expressions, inbox, executors, workspaces,
    approval rules.
    """

    handlers: Mapping[str, Handler]
    """Step handlers by step type."""
    evaluate_condition: Callable[[str, Mapping[str, Any]], Awaitable[bool]]
    """Evaluate a condition with the names it may use."""
    evaluate_items: EvaluateItems
    fill: Callable[[Mapping[str, Any], Mapping[str, Any]], Awaitable[dict[str, Any]]]
    """Fill templates in values with the names they may use."""
    inbox: Callable[[str, int], Awaitable[Iterable[Message]]]
    """Return the messages of an execution with numbers above a given number, in ascending order."""
    claim_expired: Callable[[str, str], Awaitable[object]]
    """Mark an expired question. The mark is a message in the inbox, unless the question was answered first."""
    texts: TextStreams = field(default_factory=TextStreams)
    """Listeners to the text that models write."""
    executors: Executors = field(default_factory=Executors)
    """Executors of the functions of actions and steps."""
    policy: ApprovalPolicy = field(default_factory=NoApprovalPolicy)
    """Approval rules from outside the execution."""
    with_source: Callable[[Workflow], Workflow] = lambda workflow: workflow
    """Return a workflow with the source text of an equal one, if known, because a log does not contain the text."""
    workspace_provider: WorkspaceProvider | None = None
    """Provider of workspaces."""
    tracing: CallTracing = field(default_factory=CallTracing)
    """Context manager factory that surrounds calls."""
    find_miss_policy: FindMissPolicy = refuse_what_if
    """Returns the miss policy of a what-if."""
    prepared_calls: OrderedDict[tuple[int, int, int], Any] = field(default_factory=OrderedDict)
    """Prepared calls of the environment; see `divebook.runtime.calls.prepared_call`. Only the loop of the engine uses
    them.
    """

    def agent_of_step(self, step: Step) -> object | None:
        """Return the agent that a step uses, if this agent retries failed calls itself. Return None if the step uses no
        such agent.

        The step handler knows it, if it has a method of this name.
        """
        handler = self.handlers.get(step.type)
        find_agent: Callable[[Step], object | None] | None = getattr(handler, "agent_of_step", None)
        return None if find_agent is None else find_agent(step)


class StepRun:
    """Runner of one visit of a step, which continues from the recorded operations of the visit."""

    def __init__(self, recorder: Recorder, services: Services, workflow: Workflow, instruction: RunStep) -> None:
        self.step = workflow.step(instruction.step)
        state = recorder.journal.present
        # A path of a rollback runs the recorded call that undoes a completed step, with the recorded arguments.
        if (number := state.paths[instruction.path].undoes) is not None:
            undoing = state.rollbacks[number]
            self.step = self.step.undoing(undoing.kind, undoing.called, undoing.parameters)
        self._recorder = recorder
        self._services = services
        self._workflow = workflow
        self._path = instruction.path
        self._visit = instruction.visit
        self._handler: Handler | None = None

    @property
    def open_step(self) -> OpenStep:
        """State of the step that is open on the path, from the log: its operations, items and failures."""
        open_step = self._recorder.journal.present.paths[self._path].open
        if open_step is None:
            raise RuntimeError(f"path {self._path} is inside no step")
        return open_step

    def run(self) -> Awaitable[Outcome]:
        """Return an awaitable that runs the part of the visit that is not recorded yet, and returns the outcome of the
        step.

        Raises
        ------
        Suspended
            The step cannot continue before a question is answered.
        Exception
            The exception of the last attempt.
        """
        self._handler = self._find_handler()
        step = self.step
        each = step.each
        # Rows of a frame are not items of the runner: the handler of the step runs them itself.
        if each is not None and each.rows is None:
            return self._run_items(each)
        # The usual case, kept free of what items, attempts and rollbacks need.
        if step.retry is None and step.rollback is None and self._path in self._recorder.operations.fresh:
            return self._attempt(None, None, 0)
        return self._run_item(None, None)

    async def _run_items(self, each: Each) -> Outcome:
        journal = self._recorder.journal
        # The variables at the entry of the step. A resumption therefore evaluates the same items, whatever the first
        # items have changed.
        names = {"inputs": journal.state.inputs, "state": self.open_step.entry_variables}
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
        try:
            handler = self._services.handlers[step.type]
        except (KeyError, NotFoundError):
            handler = None
        if handler is None or (step.type in EXTENSIONS and not self._workflow.manner.has_extensions):
            raise StepError(f'unsupported step type "{step.type}" in step "{step.name}"')
        return handler

    def _run_item(self, index: int | None, item: Any) -> Awaitable[Outcome]:
        """Return an awaitable that runs one item of `Each`, or the whole step if it has no `Each`, and repeats it after
        failures as the retry policy allows. Its outcome includes the arguments of the step's rollback, if the step has
        one.
        """
        policy = self.step.retry
        is_of_rows = self.step.each is not None and self.step.each.rows is not None
        if policy is not None and (
            is_of_rows or self._services.agent_of_step(self.step) is not None or self._has_recorded_turn(index)
        ):
            policy = None  # it applies to each row or agent call instead, so that none is repeated
        if has_one_attempt(self._recorder, self._path, policy):
            attempts = self._attempt(index, item, 0)
        else:
            place = Place(self._path, self.step.name, self._visit, index, "step")
            attempts = retried(self._recorder, place, policy, lambda failures: self._attempt(index, item, failures))
        return attempts if self.step.rollback is None else self._with_rollback(self.step.rollback, attempts, item)

    async def _with_rollback(self, rollback: Rollback, attempts: Awaitable[Outcome], item: Any) -> Outcome:
        # The arguments of the rollback may use the result and the variable that the step stores.
        outcome = await attempts
        local = self._local(item)
        saved = {self.step.store: outcome.value} if self.step.store and self.step.each is None else {}
        # The variable of `Store` is recorded only when the step completes, so it is added here. With items it would
        # be the list of all results, which does not exist yet.
        variables = {**self._recorder.journal.present.paths[self._path].variables, **local, **saved}
        names = {"inputs": self._recorder.journal.present.inputs, "state": variables, **local, "result": outcome.value}
        try:
            arguments = storable(await self._services.fill(rollback.parameters, names), "parameters")
        except (ScriptError, UnstorableValueError) as error:
            message = f"the parameters of its Rollback cannot be filled in, so the call could not be undone: {error}"
            raise StepError(message) from None  # otherwise the error would not say where
        return replace(outcome, rollback=arguments)

    def _local(self, item: Any) -> dict[str, Any]:
        each = self.step.each
        return {each.as_: item} if each is not None and each.as_ and item is not None else {}

    def _has_recorded_turn(self, index: int | None) -> bool:
        """Return whether the log has a turn of the step's agent, which is then resumed as a turn, even if the agent has
        lost its tools since.
        """
        if self._path in self._recorder.operations.fresh:
            return False
        failures, _ = self.open_step.failures.get(index, NO_FAILURE)
        places = (
            Place(self._path, self.step.name, self._visit, index, TURN_KEY, attempt) for attempt in range(failures + 1)
        )
        return any(self._recorder.operations.known_at(place) is not None for place in places)

    def _attempt(self, index: int | None, item: Any, failures: int) -> Awaitable[Outcome]:
        context = StepContext(
            self._recorder,
            self._workflow,
            self.step,
            self._path,
            self._visit,
            attempt=failures,
            iteration_index=index,
            local=None if self.step.each is None else self._local(item),
            executors=self._services.executors,
            prepared_calls=self._services.prepared_calls,
        )
        assert self._handler is not None  # noqa: S101 - set by `run`, the only caller
        return contained(self._handler(context), self._recorder.loop)
