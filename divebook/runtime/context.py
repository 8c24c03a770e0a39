"""Step context: the object through which step handlers read the variables of a step and make recorded operations.

Everything non-deterministic in the code of a step (calls, time, random bits, questions, sleeping) is an operation of
the context. Also here: time limits of calls, and the retry loop.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

import anyio

from divebook.definitions.definition import Workflow
from divebook.definitions.json_schemas import FITTING
from divebook.definitions.step import Retry, Step
from divebook.engine.operations import (
    CONSUMED,
    RANDOM_GENERATION,
    TIME_ACCESS,
    TIMER,
    Place,
    Reserved,
    Setting,
    Slot,
    StreamedCall,
    consumption_of,
    operation_name,
    pause_keys,
)
from divebook.engine.retries import retry_delay
from divebook.engine.state import NO_FAILURE, NO_USAGE, OpenStep, OperationRecord, Usage, unknown
from divebook.errors import RENAMED, TimedOutError, UnstorableValueError, missing_attribute
from divebook.events import catalog
from divebook.events.codec import short_hash, storable
from divebook.events.event import to_datetime
from divebook.questions import Question, checked_answer
from divebook.questions.question import KINDS
from divebook.runtime.children import BeginSuccessor, DriveChild, continue_as_successor, successor_of
from divebook.runtime.clock import Chance, Clock, StepLog
from divebook.runtime.compute.dask import Executors
from divebook.runtime.concurrency import STRAND, ConcurrentCalls
from divebook.runtime.errors import fault_of
from divebook.runtime.operations import OperationRequest
from divebook.runtime.recorder import Body, Call, Recorder
from divebook.runtime.waiting import engine_code

MakeOperation: TypeAlias = Callable[
    [str, Mapping[str, Any], "str | int | None", "int | None", "float | None", Call], Coroutine[Any, Any, Any]
]
"""Replay or make an operation: its type, parameters, key, attempt and timeout (all as for `StepContext.operation`), and
the call.
"""
OperationWrapper: TypeAlias = Callable[
    [MakeOperation, str, Mapping[str, Any], "str | int | None", "int | None", "float | None", Call],
    Coroutine[Any, Any, Any],
]
"""Coroutine function with the arguments of `MakeOperation`, after the function that makes the operation."""


class StepContext:
    """Interface that a step handler gets for one attempt of a step, or of one item of the step's `Each`.

    Attributes
    ----------
    workflow, step
        The definitions being run.
    path, visit
        Id of the path, and the number of times it has entered the step, from 1.
    attempt, iteration_index, local
        Number of failed attempts of this visit; index of the item of `Each`, or None outside of `Each`; item of `Each`
        by its name (`As`).
    executors, workspaces
        Executors in which functions run, and workspaces of calls.
    miss_policy
        Policy of a what-if for operations without a recorded result; None in other executions. A what-if must not have
        lasting effects outside its log.
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
        prepared_calls: OrderedDict[tuple[int, int, int], Any] | None = None,
    ) -> None:
        self.workflow = workflow
        self.step = step
        self.path = path
        self.visit = visit
        self.attempt = attempt
        self.iteration_index = iteration_index
        self.local: Mapping[str, Any] = local or {}
        self.executors = executors or Executors()
        # An ordered dict drops its oldest entry in constant time, as a plain dict does not.
        self.prepared_calls = OrderedDict() if prepared_calls is None else prepared_calls
        """Calls that other steps and runs of the environment have prepared; see `divebook.runtime.calls`."""
        self._recorder = recorder
        self.approving = recorder.approving
        self.miss_policy = recorder.operations.miss_policy
        self._calls: dict[str, int] = {}
        self.known: dict[int, Any] = {}
        """Variables passed as whole values, by their ``id``. The log has them, so they need not be checked again."""
        self.is_limited = step.timeout is not None  # True if its calls have a time limit
        self.workspaces = recorder.workspaces
        # The limit of the step begins here, and not at its first call.
        self._limit = None if step.timeout is None else TimeLimit(step, recorder.journal)
        self.make_operation: MakeOperation | None = None
        """Function that makes the operations in place of this class; see `with_wrapper`."""

    if not TYPE_CHECKING:  # a type checker would accept any name otherwise

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name, RENAMED)

    @property
    def run_id(self) -> str:
        """Id of the execution that runs the step."""
        return self._recorder.journal.execution_id

    @property
    def seed(self) -> str:
        """Random string of the execution. Its forks and copies of its log have the same string."""
        return self._recorder.journal.present.seed

    @property
    def is_fresh(self) -> bool:
        """True if this is the first attempt at the step since it started, in the process that started it. The log then
        contains only events of the step that this process has just recorded.
        """
        return self.path in self._recorder.operations.fresh

    def is_given_up(self) -> bool:
        """Return whether the execution was cancelled, so that the results of its running calls are not used any
        more.
        """
        return self._recorder.is_given_up

    @property
    def started_at(self) -> datetime | None:
        """Start time of the execution in UTC, from the log. A fork has that of its source."""
        started_us = self._recorder.journal.present.code_started_us
        return None if started_us is None else to_datetime(started_us)

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The inputs of the execution, including default values."""
        return self._recorder.journal.present.inputs

    @property
    def model(self) -> str | None:
        """Name of a model that replaces the models of all agents in this execution, or None."""
        return self._recorder.journal.present.model

    @property
    def variables(self) -> Mapping[str, Any]:
        """The variables at the start of the step. Inside `Each`, also the current item under its name."""
        variables = self._recorder.journal.present.paths[self.path].variables
        return {**variables, **self.local} if self.local else variables

    @property
    def names(self) -> dict[str, Any]:
        """Values by the names that templates and scripts may use: ``inputs``, ``state`` (the variables), and the
        current item of `Each` under its name.
        """
        return {"inputs": self.inputs, "state": self.variables, **self.local}

    @property
    def usage(self) -> Usage:
        """Consumption of the model calls that this visit of the step has made so far."""
        return self._open_step.usage

    def operation(
        self,
        operation_type: str,
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        key: str | int | None = None,
        usage: Callable[[Any], Mapping[str, int]] | None = None,
        repeatable: bool = False,
        may_begin_early: bool = False,
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
        digest: str | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Return an awaitable that makes a non-deterministic call and records its result, or replays the recorded
        result.

        The awaitable always returns the recorded form of the result. Code that might modify the result must open it
        first with `divebook.events.recorded.opened`, which restores the original object.

        Parameters
        ----------
        operation_type
            Kind of call, for example ``http_request``.
        parameters
            Plain data that determines the call; compared with the log on replay.
        call
            Function that makes the call and returns plain data. It runs only if the log has no result.
        key
            Name of the operation within the step, for concurrent calls; by default calls are numbered.
        usage, noted
            Two functions of the result. `usage` returns the consumption of the call. `noted` returns an additional
            event for readers of the log, recorded with the operation.
        repeatable
            True if it does no harm to make the call twice. The call is then repeated if its outcome is unknown.
        may_begin_early
            True if the call may also begin before its start is in the log, because the call is declared idempotent; see
            `divebook.runtime.journal.Journal.nearly_durable`.
        attempt
            Number of the attempt from 0, for code that has its own retries.
        reserved
            Maximum consumption of a model call. The bounds of the execution must allow it before the call starts.
        streamed
            Function that makes the call in place of `call` while the streamed text has listeners.
        timeout
            Time limit in seconds. The remaining time of the step's own `Timeout` applies as well.
        slot, setting, within, workspace, undone
            In this order: slot of a limiter that the call must hold while it runs; settings recorded for readers; id of
            the enclosing operation; workspace of the call; reference to the rollback of the call.
        done, seen
            Two functions for a call with an unknown outcome. `done` converts a result that a person enters to the form
            that the call would have returned. `seen` returns a string that describes observable effects of the call.
        digest
            Hash of the parameters, if the caller has already computed it. The parameters must then have the form in
            which the log stores them.

        Raises
        ------
        OperationError
            The call raised, now or when it was recorded.
        DivergenceError, UnstorableValueError
            The log has another operation at this place; parameters or result are not plain data.
        """
        fields = (
            call,
            usage,
            repeatable,
            may_begin_early,
            reserved,
            streamed,
            noted,
            slot,
            setting,
            within,
            done,
            workspace,
            seen,
            undone,
            digest,
        )
        recorded_call = tuple.__new__(Call, fields)  # takes a third of the time of calling the class
        make = self.make_operation or self._replay_or_make
        return make(operation_type, parameters, key, attempt, timeout, recorded_call)

    def _replay_or_make(  # noqa: PLR0917 - the signature of `MakeOperation`
        self,
        operation_type: str,
        parameters: Mapping[str, Any],
        key: str | int | None,
        attempt: int | None,
        timeout: float | None,
        call: Call,
    ) -> Coroutine[Any, Any, Any]:
        # The limit surrounds the call only. Looking up the log and waiting for a slot or an answer do not count.
        if timeout is not None or self.step.timeout is not None:
            name = operation_name(operation_type, parameters)
            limit = self._limit or TimeLimit(self.step, self._recorder.journal)
            call = call._replace(
                make=limit.of(call.make, timeout, name),
                streamed=call.streamed and limit.of(call.streamed, timeout, name),
            )
        place = self.place(key, attempt)
        request = OperationRequest.of(place, operation_type, parameters, self.known, call.digest)
        return self._recorder.run(request, call)

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
        """Return an awaitable that runs a function which makes several recorded calls. The function as a whole is one
        more operation, with its own recorded result.

        When the operation has ended, a replay uses its result. Until then, a process that resumes the execution runs
        the function again and replays its recorded calls. The operation itself never counts as running. Its calls must
        be made `within` the operation and must end before it ends. Raises the errors of `operation`.

        Parameters
        ----------
        operation_type
            Type of the operation, one of `divebook.engine.operations.ENCLOSING`.
        body
            Function that makes the calls; receives the id of the operation.
        parameters, key, setting, within
            As for `operation`.
        """
        return self._recorder.enclosing(
            OperationRequest.of(self.place(key), operation_type, parameters, self.known), body, setting, within
        )

    def record_of(self, key: str | int, attempt: int | None = None) -> OperationRecord | None:
        """Return the log's record of an operation of this step by its name `key`, or the record of one attempt at it.
        Return None if the log has none.
        """
        return self._recorder.operations.known_at(self.place(key, attempt))

    async def start_of(self, key: str, attempt: int | None = None) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the recorded parameters and settings of the operation named `key`, or of one attempt at it. The log
        must have it.
        """
        return await self._recorder.operations.start_of(self.place(key, attempt))

    def operation_record(self, operation_id: str) -> OperationRecord | None:
        """Return the record of an operation of this step by its id. Return None if the step has no such operation."""
        return self._open_step.operations.get(operation_id)

    def failed_usage(self, operation_id: str) -> Usage:
        """Return the consumption of the attempts at a model call that failed before the execution was resumed.
        `Usage.requests` is the number of these attempts.
        """
        return self._open_step.failed_usage.get(operation_id, NO_USAGE)

    def question_of(self, key: str) -> Question | None:
        """Return the question named `key` of this step, with its answer if it has one, or None if it was not asked."""
        return self._recorder.operations.question_at(self.place(key))

    @property
    def items(self) -> Mapping[int, Any]:
        """Recorded results of the finished items of `Each`, or groups of rows of a frame, by number."""
        return self._open_step.iterations

    def has_unknown(self) -> bool:
        """Return True if the step has calls with a rollback for which it is unknown whether they took effect. A person
        must decide about these calls before the rollback.
        """
        return bool(unknown(self._open_step))

    def record_event(self, fact: catalog.Payload) -> None:
        """Record an event about the step. The event is not an operation: replayed code need not request it again."""
        self._recorder.operations.record(self.place("note"), fact)

    def writing(self, write: Callable[[], None]) -> AbstractContextManager[None]:
        """Return a context manager for code that buffers facts. Inside the `with` block the function `write` is
        registered, which records the buffered facts. If the execution is stopped during the block, `write` is called,
        so that no buffered fact is lost.

        The function `write` is called before the step ends, so that it can record buffered facts.
        """
        return self._recorder.writing(write)

    def has_history_ahead(self) -> bool:
        """Return whether the log has operations of this step that the replayed code has not requested yet."""
        return self._recorder.operations.has_history_ahead(self.place("ahead"))

    def abandon_waits(self, prefix: str) -> None:
        """Note that the code has abandoned its timers and waits for signals whose position (`STRAND`) begins with
        `prefix`.
        """
        self._recorder.operations.abandon(self.path, prefix)

    async def require_requested(self, is_abandoned: Callable[[str], bool]) -> None:
        """Raise `DivergenceError` if the log has a call of this step that has not ended and that the code has not
        requested. `is_abandoned` returns True if the code has made the call with the given key and then abandoned it.
        """
        if not self.attempt:  # an earlier attempt may have left calls
            await self._recorder.operations.require_requested(self.place("end"), is_abandoned)

    def retried(
        self,
        key: str | int,
        policy: Retry | None,
        make: Callable[[int], Awaitable[T]],
        within: str | None = None,
    ) -> Awaitable[T]:
        """Return an awaitable that makes a call, repeats it after failures as the retry policy allows, and returns the
        result of the last attempt.

        Parameters
        ----------
        key
            The key of the call's operation. Calls with different keys can be retried concurrently.
        make
            Function that makes one attempt. It receives the number of failed attempts, which is the `attempt` of its
            operation.
        within
            Id of the operation that encloses the attempts; see `enclosing`.
        """
        if has_one_attempt(self._recorder, self.path, policy):
            return make(0)
        name = f"call-{key}" if isinstance(key, int) else key
        place_of = functools.partial(self.place, key)
        counted_as = attempts_key(self, name)
        return retried(self._recorder, self.place(name), policy, make, key=counted_as, within=within, place_of=place_of)

    def mutate(self, mutations: Sequence[catalog.Mutation]) -> None:
        """Record changes of the workflow's variables. Do nothing for an empty list."""
        if mutations:
            self._recorder.journal.record(catalog.StateMutated(tuple(mutations)), self.path, self.step.name)

    def emit(self, name: str, data: Any = None, *, key: str | None = None) -> None:
        """Record a user-defined event. With a `key`, the event is recorded only once at this place of the step."""
        self._recorder.operations.emit(self.place(key or "emit"), name, data, is_once=key is not None)

    def strands(self) -> ConcurrentCalls:
        """Return the object that counts the concurrent tasks of the step's path, for code that starts several calls at
        once.
        """
        return self._recorder.waits.concurrent_calls(self.path)

    @staticmethod
    def storable(value: Any, path: str) -> Any:
        """Convert a value to the plain data that the log stores. Raises `UnstorableValueError`."""
        return storable(value, path)

    @property
    def _open_step(self) -> OpenStep:
        open_step = self._recorder.journal.present.paths[self.path].open
        return open_step or OpenStep(self._recorder.journal.state.variables)

    def place(self, key: str | int | None = None, attempt: int | None = None) -> Place:
        """Return the place (path, step, visit, item, key, attempt) of an operation. Without a `key`, the next number is
        its key.
        """
        name = self.next_key() if key is None else key
        if attempt is None:
            attempt = self.attempt
        elif self.attempt:  # another attempt of the step has calls of its own
            name = f"{name}@{self.attempt}"
        parts = self.path, self.step.name, self.visit, self.iteration_index, name, attempt
        return tuple.__new__(Place, parts)  # takes a third of the time of calling the class

    def next_key(self) -> str | int:
        """Return the key of the next operation without a name: a number. Each concurrent task counts its own
        operations, so that the order in which tasks run does not change the keys.
        """
        # Example: outside of `gather` the keys are 1, 2, 3. In the second call of the first `gather` they are
        # `gather-1.1-1`, `gather-1.1-2`.
        strand = STRAND.get()
        number = self._calls[strand] = self._calls.get(strand, 0) + 1
        return f"{strand}{number}" if strand else number

    def idempotency_key(self, key: str = "step", arguments: Mapping[str, Any] | None = None) -> str:
        """Return a string that is equal for all retries of this step, item or call, and different for any other.

        The string is the same in a copy of the log. If the log is copied while the call is running, the service that
        gets the key can therefore recognize a second call.

        With `arguments`, the string also depends on the arguments of the call. A fork has the same seed and places as
        its source. If the fork makes a call with changed arguments, the key is different, and the service treats it as
        another call.
        """
        place = Place(self.path, self.step.name, self.visit, self.iteration_index, key)
        start = f"{self.seed}-{place.idempotency_key}"
        if not arguments:
            return start
        try:
            return f"{start}-{short_hash(arguments)}"
        except UnstorableValueError:  # objects of this process, such as the envelope of a stage
            return start

    async def sleep(self, seconds: float) -> None:
        """Sleep for some seconds. The end time is recorded, so after a restart the call sleeps only for the remaining
        time.
        """
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
        """Ask a person a question, wait for the answer, and return the question with its answer. A waiting step uses no
        resources.

        Parameters
        ----------
        kind
            Kind of the question, such as ``"confirmation"`` or ``"choice"``: one of the names in
            `divebook.questions.question.DEFINABLE`.
        message, data, schema
            Details of the question: a string, plain data, and the JSON schema of the requested value.
        expires_in
            Seconds after which the question expires.
        default, has_default
            The answer that is used after the question has expired, in the form in which a person would give it.
        optional
            True if an empty answer is allowed. The default depends on the kind of the question.
        key
            Name of the question within the step, for concurrent questions.
        within
            Id of the operation that waits for the answer, if any; see `enclosing`.

        Raises
        ------
        InterruptExpiredError
            The question expired without an answer, and has no default.
        """
        request = Question("default", kind, question, self.path, self.step.name, message, data, schema, within)
        # Errors show the id "default": only the default can be invalid before the log assigns an id.
        request = request._replace(optional=KINDS[kind].optional if optional is None else optional)
        if has_default or default is not None:
            request = request._replace(default=checked_answer(request, default, FITTING, 0))
        return await self._recorder.asking.ask(self.place(key), request, expires_in)

    async def withdraw(self, key: str) -> None:
        """Withdraw the open question named `key` now, so that its default answer applies."""
        question = self.question_of(key)
        if question is not None and question.is_open:
            await self._recorder.waits.expire(question.id)

    async def wait_signal(self, name: str, within: float | None = None) -> Any:
        """Wait for a signal and return its payload. Each call returns the next signal of that name, in the order of the
        log.

        Raises OperationError if no signal arrived within `within` seconds.
        """
        return await self._recorder.signals.take(self.place(), name, within)

    async def child(self, workflow: str, inputs: Mapping[str, Any], drive: DriveChild, *, key: str) -> Any:
        """Run another workflow as a child execution of this one. Return the id, status and outputs of the child.

        Raises OperationError if the child did not complete.
        """
        return await self._recorder.children.run(self.place(key), workflow, inputs, drive)

    async def go_on_as_new(self, inputs: Mapping[str, Any], reason: str, begin: BeginSuccessor) -> NoReturn:
        """End this execution, and start a new execution of the same workflow as its successor. Raises StepError if a
        parent execution waits for this one.
        """
        journal = self._recorder.journal
        successor = successor_of(journal.state, self.workflow.name, inputs)
        await continue_as_successor(self.operation, successor, reason, begin, lambda: journal.state.active - 1)

    async def now(self, key: str | None = None) -> datetime:
        """Return the current time in UTC, recorded for replay. `key` distinguishes repeated or concurrent calls."""
        return await recorded_now(self.operation, self._recorder.journal.clock, key)

    async def random_bits(self, count: int, method: str = "bits") -> int:
        """Return `count` random bits, recorded for replay. `method` is their purpose: ``bits``, ``float`` or
        ``seed``.
        """
        return await recorded_bits(self.operation, self._recorder.chance, count, method)


# --- contexts with another way to make operations --------------------------------------------------------------------


def with_wrapper(context: StepContext, wrapper: OperationWrapper, *, step: Step, is_limited: bool) -> StepContext:
    """Return a copy of a context whose recorded calls go through `wrapper`, which may limit their time or count their
    consumption. Questions, signals, children, sleeps and enclosing operations do not go through it.

    Parameters
    ----------
    step
        Step of the copy, for example with another retry policy.
    is_limited
        True if `wrapper` limits the time of the calls.
    """
    wrapped = copy.copy(context)
    # A context that has a wrapper already keeps it: its calls go through both.
    make = context.make_operation or context._replay_or_make  # noqa: SLF001 - a function of this module
    wrapped.make_operation = functools.partial(wrapper, make)
    wrapped.step = step
    wrapped.is_limited = context.is_limited or is_limited
    return wrapped


def attempts_key(context: StepContext, name: str) -> str:
    """Return the key under which the log counts the failed attempts of a call. The key has the number of the item and
    of the step's attempt, so that each of them counts its own.
    """
    item = "" if context.iteration_index is None else f"{context.iteration_index}/"
    again = f"@{context.attempt}" if context.attempt else ""
    return f"{item}{name}{again}"


# --- recorded time and random bits -----------------------------------------------------------------------------------


Operation: TypeAlias = Callable[..., Awaitable[Any]]
"""Type of the method `StepContext.operation`."""


async def recorded_now(operation: Operation, clock: Clock, key: str | None) -> datetime:
    """Return the current time in UTC. The time is recorded, so that a replay returns the same time."""

    async def read() -> int:
        return clock.now()

    def extra_event(value: int) -> catalog.Payload:
        return catalog.TimeAccessed(to_datetime(value).isoformat(), to_datetime(value).isoformat())

    parameters = {"access_type": "now"}
    value = await operation(TIME_ACCESS, parameters, read, key=key, repeatable=True, noted=extra_event)
    return to_datetime(value)


async def recorded_bits(operation: Operation, chance: Chance, count: int, method: str) -> int:
    """Return `count` random bits. They are recorded, so that a replay returns the same bits. `method` is their purpose:
    ``bits``, ``float`` or ``seed``.
    """

    async def draw() -> int:
        return chance.bits(count)

    def extra_event(bits: int) -> catalog.Payload:
        value = bits / float(2**count) if method == "float" else bits
        return catalog.RandomGenerated(method, value, bits if method == "seed" else None)

    parameters = {"type": "bits", "count": count}
    return int(await operation(RANDOM_GENERATION, parameters, draw, repeatable=True, noted=extra_event))


# --- time limits of steps and calls, measured with the clock of the execution ----------------------------------------


T = TypeVar("T")


async def within(clock: Clock, seconds: float, call: Callable[[], Awaitable[T]], error: TimedOutError) -> T:
    """Await a call for at most `seconds`, measured with the clock of the execution, and return its result.

    Raises
    ------
    TimedOutError
        The object `error`, if the call took longer. It is a `TimeoutError`, so the outcome of a non-repeatable call is
        then unknown.
    """
    # The alarm cancels the scope, which then swallows the cancellation of the call. The last line is reached in this
    # case only.
    with anyio.CancelScope() as scope:
        alarm = asyncio.create_task(_ring(clock, seconds, scope))
        try:
            return await call()
        except asyncio.CancelledError as cancelled:
            # A request that had begun to reply was paid for (test_a_stream_that_its_step_cuts_off_counts).
            consumed = consumption_of(vars(cancelled))
            if consumed is not None:
                setattr(error, CONSUMED, consumed)
            raise
        finally:
            alarm.cancel()
    raise error


async def _ring(clock: Clock, seconds: float, scope: anyio.CancelScope) -> None:
    with engine_code():  # a clock may be user code
        await clock.sleep(seconds)
    scope.cancel()


class TimeLimit:
    """Time limits of the calls of one step. Each call may have a limit of its own, and all calls together have the
    limit of the step.
    """

    def __init__(self, step: Step, journal: StepLog) -> None:
        self._whole = step.timeout
        self._name = f"step {step.name!r}"
        self._journal = journal
        self._began_at = 0 if step.timeout is None else journal.clock.now()

    def of(
        self, call: Callable[..., Awaitable[T]], timeout: float | None, called: str | None = None
    ) -> Callable[..., Awaitable[T]]:
        """Add the time limit to a call: return a function with the same arguments that makes the call. `called` is the
        name of the called function, for the error after the limit.
        """

        async def limited(*arguments: Any) -> T:
            seconds, error = self._left(timeout, called)
            return await within(self._journal.clock, seconds, functools.partial(call, *arguments), error)

        return limited

    def _left(self, timeout: float | None, called: str | None) -> tuple[float, TimedOutError]:
        """Return the seconds that a call may take, and the error to raise if it takes longer. The seconds are its own
        limit or the rest of the step's limit, whichever is shorter.
        """
        limit_of_step = self._whole
        limit_of_call = math.inf if timeout is None else timeout
        # Time during which the code was parked does not count against the limit of the step.
        spent = self._journal.seconds_since(self._began_at)
        remaining = math.inf if limit_of_step is None else max(0.0, limit_of_step - spent)
        if limit_of_step is None or limit_of_call < remaining:
            return limit_of_call, TimedOutError(
                f"a call of {self._name if called is None else repr(called)}", limit_of_call
            )
        return remaining, TimedOutError(self._name, limit_of_step)


# --- attempts --------------------------------------------------------------------------------------------------------
#
# `retried` is the only retry loop, for steps, their items and single calls. The log has the failures and the pause
# before the next attempt, so a restart waits only for the remaining time.


JITTER_BITS = 32


def has_one_attempt(recorder: Recorder, path: str, policy: Retry | None) -> bool:
    """Return whether code can run a step, item or call once, without the loop that retries it. This is so without a
    retry policy if no attempt has failed so far.

    This check runs for every step, because it is cheaper than `retried` and its arguments.
    """
    if policy is not None:
        return False
    if path in recorder.operations.fresh:
        return True
    open_step = recorder.journal.present.paths[path].open
    return open_step is None or not open_step.failures


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
    """Make attempts at a step, an item or a call until one succeeds or the retry policy allows no further attempt.
    Return the result.

    Parameters
    ----------
    place
        Place of the step, item or call. The timers between the attempts use it as well.
    policy
        None for a single attempt.
    make
        Makes one attempt; receives the number of failed ones before it.
    key
        Name of the call within the step, if a single call is retried instead of the step or item.
    within
        Id of the operation that encloses the timers between the attempts, if any.
    place_of
        Returns the place of the operation of an attempt, if each attempt is an operation.

    Raises
    ------
    Exception
        The exception of the last attempt.
    """
    # Example with three attempts: attempt 0 fails, `step_retried` records 1 failure and a pause of 2 s. A timer waits
    # for 2 s and attempt 1 runs. If the process dies 1.5 s into the pause, the next process reads 1 failure from the
    # log, waits for 0.5 s, and runs attempt 1.
    item = place.iteration_index if key is None else key
    if place_of is not None:
        _skip_attempts(recorder, place, key, _failures(recorder, place, item)[0], place_of)
    while True:
        # Read from the log: after a restart, the attempts and the pause continue where they were.
        failures, delay = _failures(recorder, place, item)
        # Each pause is a recorded timer with the number of failures in its key. A replay finds the timers of earlier
        # pauses under other keys.
        if failures:
            with recorder.waits.concurrent_calls(place.path).before_attempt():
                if delay > 0:
                    await recorder.signals.sleep(_pause_place(recorder, place, key, failures), delay, within)
        try:
            return await make(failures)
        # `Suspended` is not an `Exception`: code that waits has not failed.
        except Exception as error:
            if not _will_try_again(recorder, place, policy, error, key):
                raise


def _skip_attempts(
    recorder: Recorder, place: Place, key: str | None, failures: int, place_of: Callable[[int], Place]
) -> None:
    """Note that replayed code will not request the operations of failed attempts again, nor the timers between the
    attempts.

    Otherwise their records would count as history ahead: recorded operations that replayed code has not reached yet
    (test_attempts_that_failed_are_not_history_ahead).
    """
    for attempt in range(failures):
        recorder.operations.skip(place_of(attempt).operation_id)
        recorder.operations.skip(_pause_place(recorder, place, key, attempt).operation_id)


def _pause_place(recorder: Recorder, place: Place, key: str | None, failures: int) -> Place:
    """Return the place of the timer that pauses before another attempt. If the log has the timer under the key of an
    earlier version, return the place with that key.
    """
    name, former_name = pause_keys(key, failures)
    former_place = place._replace(key=former_name)
    record = recorder.operations.known_at(former_place)
    # The other operation that can have this key is a tool call, whose id the model chose.
    is_recorded = record is not None and record.operation_type == TIMER
    return former_place if is_recorded else place._replace(key=name)


def _failures(recorder: Recorder, place: Place, item: int | str | None) -> tuple[int, float]:
    open_step: OpenStep | None = recorder.journal.present.paths[place.path].open
    return NO_FAILURE if open_step is None else open_step.failures.get(item, NO_FAILURE)


def _will_try_again(recorder: Recorder, place: Place, policy: Retry | None, error: Exception, key: str | None) -> bool:
    """Record that another attempt follows a failure, if the retry policy allows one and the log can still be written.
    Return whether another attempt follows.
    """
    journal = recorder.journal
    index = place.iteration_index
    if policy is None or journal.error is not None or place.path in recorder.operations.diverged:
        return False
    failures = _failures(recorder, place, index if key is None else key)[0] + 1
    failure = fault_of(error)
    # A random part of the pause, from 0 to 1 (exclusive), keeps calls that failed together from being repeated
    # together.
    delay = retry_delay(policy, failures, failure, recorder.chance.bits(JITTER_BITS) / 2**JITTER_BITS)
    if delay is not None:
        event = catalog.StepRetried(failures, failure.message, delay, None if key else index, key)
        journal.record(event, place.path, place.step)
    return delay is not None
