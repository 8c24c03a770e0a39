"""What a step's code may touch: its variables, and recorded operations for everything that is not deterministic."""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn, TypeAlias, TypeVar

import anyio

from divebook.engine.operations import (
    RANDOM_GENERATION,
    TIME_ACCESS,
    Place,
    Reserved,
    Setting,
    Slot,
    StreamedCall,
    operation_name,
    pause_key,
)
from divebook.engine.retries import retry_delay
from divebook.engine.state import NO_FAILURE, OpenStep, OperationRecord, Usage, unknown
from divebook.errors import TimedOutError
from divebook.events import catalog
from divebook.events.codec import storable
from divebook.events.event import to_datetime
from divebook.questions import Question, checked_answer
from divebook.questions.question import KINDS
from divebook.runtime.children import BeginSuccessor, DriveChild, succeeded_by, successor_of
from divebook.runtime.clock import Chance, Clock, StepLog
from divebook.runtime.compute.dask import Executors
from divebook.runtime.concurrency import ConcurrentCalls
from divebook.runtime.errors import fault_of
from divebook.runtime.operations import OperationRequest
from divebook.runtime.recorder import Body, Call, Recorder
from divebook.runtime.waiting import engine_code
from divebook.workflow.definition import Workflow
from divebook.workflow.json_schemas import FITTING
from divebook.workflow.step import Retry, Step

# The time and random bits as step code asks for them: recorded once, and the same ever after.


Operation: TypeAlias = Callable[..., Awaitable[Any]]
"""`StepContext.operation`."""


async def recorded_now(operation: Operation, clock: Clock, key: str | None) -> datetime:
    """Return the time, UTC."""

    async def read() -> int:
        return clock.now()

    def noted(value: int) -> catalog.Payload:
        return catalog.TimeAccessed(to_datetime(value).isoformat(), to_datetime(value).isoformat())

    parameters = {"access_type": "now"}
    return to_datetime(await operation(TIME_ACCESS, parameters, read, key=key, repeatable=True, noted=noted))


async def recorded_bits(operation: Operation, chance: Chance, count: int, method: str) -> int:
    """Return that many random bits; `method` is what they are for: ``bits``, ``float`` or ``seed``."""

    async def draw() -> int:
        return chance.bits(count)

    def noted(bits: int) -> catalog.Payload:
        value = bits / float(2**count) if method == "float" else bits
        return catalog.RandomGenerated(method, value, bits if method == "seed" else None)

    parameters = {"type": "bits", "count": count}
    return int(await operation(RANDOM_GENERATION, parameters, draw, repeatable=True, noted=noted))


# Time limits of steps and calls, measured by the execution's clock.


T = TypeVar("T")


async def within(clock: Clock, seconds: float, call: Callable[[], Awaitable[T]], error: TimedOutError) -> T:
    """Make a call and wait for it so many seconds at most.

    Raises
    ------
    TimedOutError
        The `error`, if it took longer. It is a `TimeoutError`: a call that may not be made twice may have taken effect.
    """
    with anyio.CancelScope() as scope:
        alarm = asyncio.create_task(_ring(clock, seconds, scope))
        try:
            return await call()
        finally:
            alarm.cancel()
    raise error


async def _ring(clock: Clock, seconds: float, scope: anyio.CancelScope) -> None:
    with engine_code():  # the clock may be a person's
        await clock.sleep(seconds)
    scope.cancel()


class TimeLimit:
    """How long the calls of a step may take: each its own time, and all of them that of the step."""

    def __init__(self, step: Step, journal: StepLog) -> None:
        self._whole, self._name, self._journal = step.timeout, f"step {step.name!r}", journal
        self._began_at = 0 if step.timeout is None else journal.clock.now()

    def of(
        self, call: Callable[..., Awaitable[T]], timeout: float | None, called: str | None = None
    ) -> Callable[..., Awaitable[T]]:
        """Return the call with a limit to its time; `called` is the name of what it calls, for the error."""

        async def limited(*arguments: Any) -> T:
            seconds, error = self._left(timeout, called)
            return await within(self._journal.clock, seconds, functools.partial(call, *arguments), error)

        return limited

    def _left(self, timeout: float | None, called: str | None) -> tuple[float, TimedOutError]:
        """Return the seconds that a call may take, and the error after them: of the call, or of the step around it."""
        whole, own = self._whole, math.inf if timeout is None else timeout
        spent = self._journal.seconds_since(self._began_at)
        left = math.inf if whole is None else max(0.0, whole - spent)
        if whole is None or own < left:
            return own, TimedOutError(f"a call of {self._name if called is None else repr(called)}", own)
        return left, TimedOutError(self._name, whole)


# Attempts: the one loop that tries something again, as a policy says, for steps, their items and single calls.
#
# What failed, and how long to wait before the next attempt, stands in the log: a restart waits only for what is left.


JITTER_BITS = 32


def has_one_attempt(recorder: Recorder, path: str, policy: Retry | None) -> bool:
    """Return whether `retried` would make one attempt: no policy has another, and none has failed so far.

    For what is called for every step: to ask first costs less than `retried` and what it is given.
    """
    if policy is not None:
        return False
    if path in recorder.once.fresh:
        return True
    opened = recorder.journal.present.paths[path].open
    return opened is None or not opened.failures


async def retried(
    recorder: Recorder,
    place: Place,
    policy: Retry | None,
    make: Callable[[int], Awaitable[T]],
    *,
    key: str | None = None,
    within: str | None = None,
    place_of: Callable[[int], Place] | None = None,
) -> T:
    """Make attempts until one succeeds, or the policy has no further one; return what it gave.

    Parameters
    ----------
    place
        Of the step or item, or of the call; the timers between the attempts belong there.
    policy
        None for a single attempt.
    make
        Makes one attempt; receives how many have failed before it.
    key
        Name of the call within the step, where a single call is tried again and not the step or item.
    within
        Id of the operation that holds the timers between the attempts, if one does.
    place_of
        Returns the place of the operation of an attempt, where each is one.

    Raises
    ------
    Exception
        Whatever the last attempt raised.
    """
    item = place.iteration_index if key is None else key
    if place_of is not None:
        _pass_over(recorder, place, key, _failures(recorder, place, item)[0], place_of)
    while True:
        failures, delay = _failures(recorder, place, item)
        if failures:
            with recorder.waits.strands(place.path).before_attempt():
                if delay > 0:
                    await recorder.signals.sleep(place._replace(key=pause_key(key, failures)), delay, within)
        try:
            return await make(failures)
        except Exception as error:
            if not _will_try_again(recorder, place, policy, error, key):
                raise


def _pass_over(
    recorder: Recorder, place: Place, key: str | None, failures: int, place_of: Callable[[int], Place]
) -> None:
    """Note that nobody asks again for the attempts that had failed, nor for the pauses between them.

    What the log has of them is not ahead of the code (test_attempts_that_failed_are_not_history_ahead).
    """
    for failed in range(failures):
        recorder.once.pass_over(place_of(failed).operation_id)
        recorder.once.pass_over(place._replace(key=pause_key(key, failed)).operation_id)


def _failures(recorder: Recorder, place: Place, item: int | str | None) -> tuple[int, float]:
    opened: OpenStep | None = recorder.journal.present.paths[place.path].open
    return NO_FAILURE if opened is None else opened.failures.get(item, NO_FAILURE)


def _will_try_again(recorder: Recorder, place: Place, policy: Retry | None, error: Exception, key: str | None) -> bool:
    """Record that there is to be another attempt, if the policy says so and the log can still be written."""
    journal, index = recorder.journal, place.iteration_index
    if policy is None or journal.error is not None or place.path in recorder.once.diverged:
        return False
    failures = _failures(recorder, place, index if key is None else key)[0] + 1
    failure = fault_of(error)
    delay = retry_delay(policy, failures, failure, recorder.chance.bits(JITTER_BITS) / 2**JITTER_BITS)
    if delay is not None:
        retried_at = catalog.StepRetried(failures, failure.message, delay, None if key else index, key)
        journal.record(retried_at, place.path, place.step)
    return delay is not None


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
        wanted = OperationRequest.of(self.place(key, attempt), operation_type, parameters, self.known)
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
            OperationRequest.of(self.place(key), operation_type, parameters, self.known), body, setting, within
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

    def strands(self) -> ConcurrentCalls:
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
            One of `divebook.questions.question.DEFINABLE`.
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
