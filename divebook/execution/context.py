"""What a step's code may touch: its variables, and recorded operations for everything that is not deterministic."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn, TypeVar

from divebook.engine.operations import Place, Reserved, Setting, Slot, StreamedCall, operation_name
from divebook.engine.records import OpenStep, OperationRecord, Usage
from divebook.engine.rolling_back import unknown
from divebook.events import catalog
from divebook.events.codec import storable
from divebook.execution.attempts import has_one_attempt, retried
from divebook.execution.children import BeginSuccessor, DriveChild, succeeded_by, successor_of
from divebook.execution.enclosing import Body
from divebook.execution.executors import Executors
from divebook.execution.recorded_chance import recorded_bits, recorded_now
from divebook.execution.recorder import Call, Recorder
from divebook.execution.strands import Strands
from divebook.execution.time_limit import TimeLimit
from divebook.execution.wanted import Wanted
from divebook.questions import Question, checked_answer
from divebook.questions.kinds import KINDS
from divebook.workflow.definition import Workflow
from divebook.workflow.json_schemas import FITTING
from divebook.workflow.policies import Retry
from divebook.workflow.step import Step

T = TypeVar("T")
STRAND: ContextVar[str] = ContextVar("divebook_strand", default="")
"""Which of several calls side by side the present code belongs to, and which of those around it; else empty."""


class StepContext:
    """A step on its way, or one item of its `Each`.

    Attributes
    ----------
    workflow, step
        The definitions being carried out.
    path, visit
        Id of the path, and how often it has entered the step, from 1.
    attempt, iteration_index, local
        How often this visit of the step has failed before; the item's index inside `Each`, else None; its names (`As`).
    executors, workspaces
        Where functions run, and where calls work.
    beyond
        What answers in place of the world, of a what-if: nothing it does outside its log is to remain.
    """

    def __init__(
        self,
        recorder: Recorder,
        workflow: Workflow,
        step: Step,
        path: str,
        visit: int,
        *,
        attempt: int = 0,
        iteration_index: int | None = None,
        local: Mapping[str, Any] | None = None,
        executors: Executors | None = None,
    ) -> None:
        self.workflow, self.step, self.path, self.visit = workflow, step, path, visit
        self.attempt, self.iteration_index = attempt, iteration_index
        self.local: Mapping[str, Any] = local or {}
        self.executors = executors or Executors()
        self._recorder, self.approving, self.beyond = recorder, recorder.approving, recorder.once.beyond
        self._calls: dict[str, int] = {}
        self.known: dict[int, Any] = {}
        """Variables that were taken whole, by their ``id``: what the log holds need not be looked through again."""
        self.is_limited = step.timeout is not None  # the time of its calls
        self.workspaces, self._limit = recorder.workspaces, TimeLimit(step, recorder.journal)

    @property
    def execution_id(self) -> str:
        """The execution the step belongs to."""
        return self._recorder.journal.execution_id

    @property
    def seed(self) -> str:
        """Text that belongs to the execution, and to its forks and the copies of its log as well."""
        return self._recorder.journal.present.seed

    def is_given_up(self) -> bool:
        """Whether the execution was cancelled: nobody waits for what is under way."""
        return self._recorder.is_given_up

    @property
    def started_at(self) -> datetime | None:
        """When the execution began, UTC: a time that replay need not ask for."""
        return self._recorder.journal.present.started_at

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The execution's inputs, defaults included."""
        return self._recorder.journal.present.inputs

    @property
    def model(self) -> str | None:
        """The model of all agents of this execution, in place of theirs."""
        return self._recorder.journal.present.model

    @property
    def variables(self) -> Mapping[str, Any]:
        """The variables as they stood when the step began, and the item under its name."""
        variables = self._recorder.journal.present.paths[self.path].variables
        return {**variables, **self.local} if self.local else variables

    @property
    def names(self) -> dict[str, Any]:
        """What templates and scripts see: ``inputs``, ``state``, and the item under its own name."""
        return {"inputs": self.inputs, "state": self.variables, **self.local}

    @property
    def usage(self) -> Usage:
        """What this visit of the step has consumed so far."""
        return self._opened.usage

    def operation(
        self,
        operation_type: str,
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        key: str | int | None = None,
        usage: Callable[[Any], Mapping[str, int]] | None = None,
        repeatable: bool = False,
        attempt: int | None = None,
        reserved: Reserved | None = None,
        streamed: StreamedCall | None = None,
        timeout: float | None = None,
        noted: Callable[[Any], catalog.Payload] | None = None,
        slot: Slot | None = None,
        setting: Setting | None = None,
        within: str | None = None,
        done: Callable[[Any], Any] | None = None,
        workspace: str | None = None,
        seen: Callable[[], str] | None = None,
        undone: str | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Make a call that is not deterministic: recorded once, answered from the log ever after; it is to be awaited.

        Returned is the recorded form of the result, now as ever after: `divebook.events.recorded.opened` makes of it
        what the call returned, and must stand between it and code that might change it.

        Parameters
        ----------
        operation_type
            Kind of call, for example ``http_request``.
        parameters
            What it depends on, as plain data; compared when it is met again.
        call
            Makes the call; must return plain data. It runs only if the log has no result.
        key
            Name of the operation within the step, where calls run side by side; by default calls are numbered.
        usage, noted
            Reads what was consumed from the result; makes an event of it for readers, recorded beside the operation.
        repeatable
            Making it twice does no harm: it is simply made again where its outcome is not known.
        attempt
            For code that repeats calls by itself: which attempt this is, from 0.
        reserved
            What a model call may consume at most; the bounds of the execution must allow it before it is made.
        streamed
            Makes the call in place of `call` while somebody listens to the text that it writes.
        timeout
            Seconds that it may take; what is left of the step's own `Timeout` holds as well.
        slot, setting, within, workspace, undone
            What it must hold before it begins, what is kept for readers, the id of what holds it, where it works, and
            what has its undoing.
        done, seen
            What makes of what a person says what the call would have returned; what tells that person what can be seen.

        Raises
        ------
        OperationError
            The call raised, now or when it was recorded.
        DivergenceError, UnstorableValueError
            The log has another operation at this place; parameters or result are not plain data.
        """
        if timeout is not None or self.step.timeout is not None:
            called = operation_name(operation_type, parameters)
            call = self._limit.of(call, timeout, called)
            streamed = streamed and self._limit.of(streamed, timeout, called)
        wanted = Wanted.of(self.place(key, attempt), operation_type, parameters, self.known)
        made = call, usage, repeatable, reserved, streamed, noted, slot, setting, within, done, workspace, seen, undone
        return self._recorder.run(wanted, tuple.__new__(Call, made))  # a third of the time that the class takes

    def enclosing(
        self,
        operation_type: str,
        parameters: Mapping[str, Any],
        body: Body,
        *,
        key: str,
        setting: Setting | None = None,
        within: str | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Do something that makes calls of its own, as one operation: once it has ended, its result is taken.

        Until then a process that takes the execution up enters it again, and finds what it did. It is never under way
        by itself. Its calls must be made `within` it, and have ended when it ends. Raises as `operation` does.

        Parameters
        ----------
        operation_type
            One of `divebook.engine.operations.ENCLOSING`.
        body
            Does it; is given the id of the operation.
        parameters, key, setting, within
            As for `operation`.
        """
        return self._recorder.enclosing(
            Wanted.of(self.place(key), operation_type, parameters, self.known), body, setting, within
        )

    def record_of(self, key: str | int, attempt: int | None = None) -> OperationRecord | None:
        """Return what the log has of the operation named `key`, or of an attempt at it, if anything."""
        return self._recorder.once.known_at(self.place(key, attempt))

    async def start_of(self, key: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return parameters and setting of the operation named `key`, which the log has."""
        return await self._recorder.once.start_of(self.place(key))

    def records_in(self, record: OperationRecord) -> list[OperationRecord]:
        """Return what the log has of the operations that one holds which has not completed."""
        return [self._opened.operations[held] for held in record.holds]

    def question_of(self, key: str) -> Question | None:
        """Return the question named `key`, if it was asked."""
        return self._recorder.once.question_at(self.place(key))

    @property
    def items(self) -> Mapping[int, Any]:
        """What the log has of the items of `Each`, or of its rows, by number."""
        return self._opened.iterations

    def has_unknown(self) -> bool:
        """Whether calls of the step have begun whose outcome is to be known before they are undone."""
        return bool(unknown(self._opened))

    def note(self, fact: catalog.Payload) -> None:
        """Record what is beside operations, which no replay asks for."""
        self._recorder.once.record(self.place("note"), fact)

    def writing(self, write: Callable[[], None]) -> AbstractContextManager[None]:
        """Return a block in which `write` is called before the step is left, for facts that are kept for a while."""
        return self._recorder.writing(write)

    def has_history_ahead(self) -> bool:
        """Whether the log holds operations of this step that its code has not asked for again yet."""
        return self._recorder.once.has_history_ahead(self.place("ahead"))

    def retried(
        self,
        key: str | int,
        policy: Retry | None,
        make: Callable[[int], Awaitable[T]],
        within: str | None = None,
    ) -> Awaitable[T]:
        """Make a call as often as its policy says; await what the last attempt gives, or raises.

        Parameters
        ----------
        key
            The key of the call's operation; as many calls of a step are tried again at a time as have keys.
        make
            Makes one attempt; receives how many have failed before, which is the `attempt` of its operation.
        within
            Id of the operation that holds them; see `enclosing`.
        """
        if has_one_attempt(self._recorder, self.path, policy):
            return make(0)
        name = f"call-{key}" if isinstance(key, int) else key
        known, of = self._attempts_of(name), functools.partial(self.place, key)
        return retried(self._recorder, self.place(name), policy, make, key=known, within=within, place_of=of)

    def _attempts_of(self, name: str) -> str:
        """Return the name under which the log counts the attempts at a call."""
        item = "" if self.iteration_index is None else f"{self.iteration_index}/"
        again = f"@{self.attempt}" if self.attempt else ""
        return f"{item}{name}{again}"

    def mutate(self, mutations: Sequence[catalog.Mutation]) -> None:
        """Record changes of variables, if there are any."""
        if mutations:
            self._recorder.journal.record(catalog.StateMutated(tuple(mutations)), self.path, self.step.name)

    def emit(self, name: str, data: Any = None, *, key: str | None = None) -> None:
        """Record an event of a person's own; with a `key`, once for this place."""
        self._recorder.once.emit(self.place(key or "emit"), name, data, is_once=key is not None)

    def strands(self) -> Strands:
        """Return the concurrent strands of the step, for code that runs calls side by side."""
        return self._recorder.waits.strands(self.path)

    @staticmethod
    def storable(value: Any, path: str) -> Any:
        """Return the value as plain data that the log can hold; raises `UnstorableValueError`."""
        return storable(value, path)

    @property
    def _opened(self) -> OpenStep:
        opened = self._recorder.journal.present.paths[self.path].open
        return opened or OpenStep(self._recorder.journal.state.variables)

    def place(self, key: str | int | None = None, attempt: int | None = None) -> Place:
        """Return the place of the next operation, or an attempt at it: the one named `key`, else the next in number."""
        found = self.next_key() if key is None else key
        if attempt is None:
            attempt = self.attempt
        elif self.attempt:  # another attempt at the step makes calls of its own
            found = f"{found}@{self.attempt}"
        parts = self.path, self.step.name, self.visit, self.iteration_index, found, attempt
        return tuple.__new__(Place, parts)  # in a third of the time that the class takes

    def next_key(self) -> str | int:
        """Return the number of the next operation; each strand counts its own, so that their speed does not matter."""
        strand = STRAND.get()
        number = self._calls[strand] = self._calls.get(strand, 0) + 1
        return f"{strand}{number}" if strand else number

    def idempotency_key(self, key: str = "step") -> str:
        """Return a text that is the same whenever this step, item or call is tried again, and different elsewhere.

        It is the same in a copy of the log: a call that was under way when the log was copied is not made twice.
        """
        place = Place(self.path, self.step.name, self.visit, self.iteration_index, key)
        return f"{self.seed}-{place.idempotency_key}"

    async def sleep(self, seconds: float) -> None:
        """Let time pass; a restart waits only for what is left."""
        await self._recorder.signals.sleep(self.place(), seconds)

    async def interrupt(
        self,
        kind: str,
        question: str,
        *,
        message: str | None = None,
        data: Mapping[str, Any] | None = None,
        schema: Mapping[str, Any] | None = None,
        expires_in: float | None = None,
        default: Any = None,
        has_default: bool = False,
        optional: bool | None = None,
        key: str | None = None,
        within: str | None = None,
    ) -> Question:
        """Ask a person, and return the question with its answer; the step waits for it without costing anything.

        Parameters
        ----------
        kind
            One of `divebook.questions.kinds.DEFINABLE`.
        message, data, schema
            More than the question itself: a text, plain data, and the JSON schema of the value asked for.
        expires_in
            Seconds after which the question can no longer be answered.
        default, has_default
            The answer that holds then, as a person would give it.
        optional
            Whether an empty answer will do; by default that depends on the kind.
        key
            Name of the question within the step, where questions are asked side by side.
        within
            Id of the operation that waits for the answer, if one does; see `enclosing`.

        Raises
        ------
        InterruptExpiredError
            The question expired without an answer, and has no default.
        """
        asked = Question("default", kind, question, self.path, self.step.name, message, data, schema, within)
        # "default" is what errors call it: only its default can be wrong before the log gives it an id.
        asked = asked._replace(optional=KINDS[kind].optional if optional is None else optional)
        if has_default or default is not None:
            asked = asked._replace(default=checked_answer(asked, default, FITTING, 0))
        return await self._recorder.asking.ask(self.place(key), asked, expires_in)

    async def withdraw(self, key: str) -> None:
        """Let a question of the step expire that is still open, so that its default holds from now on."""
        question = self.question_of(key)
        if question is not None and question.is_open:
            await self._recorder.waits.expire(question.id)

    async def signal(self, name: str, within: float | None = None) -> Any:
        """Wait for a signal and return its payload, each once, in the log's order; OperationError if none came."""
        return await self._recorder.signals.take(self.place(), name, within)

    async def child(self, workflow: str, inputs: Mapping[str, Any], drive: DriveChild, *, key: str) -> Any:
        """Run another workflow as an execution of its own; return its id, status and outputs as they are recorded.

        An OperationError says that it did not complete.
        """
        return await self._recorder.children.run(self.place(key), workflow, inputs, drive)

    async def go_on_as_new(self, inputs: Mapping[str, Any], reason: str, begin: BeginSuccessor) -> NoReturn:
        """Start an execution of the same workflow in place of this one; StepError if another one waits for this one."""
        journal = self._recorder.journal
        successor = successor_of(journal.state, self.workflow.name, inputs)
        await succeeded_by(self.operation, successor, reason, begin, lambda: journal.state.active - 1)

    async def now(self, key: str | None = None) -> datetime:
        """Return the time, recorded, UTC; `key` names the place, where calls are repeated or run side by side."""
        return await recorded_now(self.operation, self._recorder.journal.clock, key)

    async def random_bits(self, count: int, method: str = "bits") -> int:
        """Return that many random bits, recorded; `method` is what they are for: ``bits``, ``float`` or ``seed``."""
        return await recorded_bits(self.operation, self._recorder.chance, count, method)
