"""`Recorder`: makes each non-deterministic call of an execution's steps and records its outcome. It also decides
whether a call of unknown outcome is repeated or a person is asked about it.

It combines the parts that handle operations: `operations` looks up and records, `signals` waits for signals and time,
`children` runs other workflows, `asking` asks people, and `UnknownOutcomes` asks whether a call without a recorded end
took effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

import anyio

from divebook.engine.operations import (
    ACTION_EXECUTION,
    CONSUMED,
    CONTINUE_AS_NEW,
    STEP_EXECUTION,
    TOOL_CALL,
    Place,
    Reserved,
    Setting,
    Slot,
    StreamedCall,
    consumption_of,
    operation_arguments,
    operation_name,
)
from divebook.engine.retries import names_of
from divebook.engine.state import OperationRecord
from divebook.errors import OperationError
from divebook.events import catalog
from divebook.events.codec import storable
from divebook.events.rich_output import with_displays
from divebook.processes import is_kernel
from divebook.questions.question import FAIL, OUTCOME_UNKNOWN, RETRY
from divebook.questions.wording import Wording, outcome_unknown
from divebook.runtime.children import Children
from divebook.runtime.clock import Chance, add_advice, described, lost_in, told_of
from divebook.runtime.concurrency import Suspended, Waits
from divebook.runtime.errors import clean_failure, clean_text
from divebook.runtime.operations import CallOptions, OperationLog, OperationRequest, in_short
from divebook.runtime.streaming import TextStreams
from divebook.runtime.waiting import ApprovalPolicy, Approving, Asking, Signals, engine_code, is_workflow_code
from divebook.runtime.workspaces import KEEP, RESTORE, WorkspaceLease, WorkspaceProvider, Workspaces


class Recorder:
    """Recorder of all operations of one execution: makes the calls and records their outcomes. It also has the objects
    for questions, signals, children and workspaces. Those that most executions do not need are created when they are
    first used. Created on the event loop on which the operations run.
    """

    def __init__(  # noqa: PLR0917 - each is needed by one of its parts
        self,
        operations: OperationLog,
        waits: Waits,
        chance: Chance,
        texts: TextStreams,
        policy: ApprovalPolicy,
        workspace_provider: WorkspaceProvider | None = None,
        tracing: CallTracing | None = None,
    ) -> None:
        self.journal = operations.journal
        self.chance = chance
        self.loop = asyncio.get_running_loop()
        self.operations = operations
        self.waits = waits
        self.approving = Approving(self.operations, policy)
        self.workspaces = Workspaces(self.operations, self.waits, workspace_provider)
        self._texts = texts
        self._tracing = tracing or CallTracing()
        self.call_wrapper: CallWrapper | None = None
        """Function through which all calls go, if it is set. A verification sets it: there, some calls are not replayed
        from the log in the usual way."""
        self._on_idle: Callable[[], None] | None = None
        """Callback for a pause; set once no more operations may start."""
        self._running_calls = 0
        """Number of running calls that must not be repeated."""
        # Functions that record facts which code has buffered; see `writing`.
        self._unwritten: list[Callable[[], None]] = []
        self.is_given_up = False
        """True if the execution was cancelled. Only the results of calls with a rollback still matter then."""
        self.is_abandoned = False
        """True if the execution is left as if the process had ended."""

    @cached_property
    def children(self) -> Children:
        """Child executions of the execution."""
        return Children(self.operations, self.waits, self.chance)

    @cached_property
    def signals(self) -> Signals:
        """Timers and signal waits of the execution."""
        return Signals(self.operations, self.waits)

    @cached_property
    def asking(self) -> Asking:
        """Questions of the execution to people, and the check of its budget."""
        return Asking(self.operations, self.waits)

    @cached_property
    def _unknown(self) -> UnknownOutcomes:
        return UnknownOutcomes(self.operations, self.waits)

    def stop_when_idle(self, on_idle: Callable[[], None]) -> None:
        """Start no more calls. Then call `on_idle` as soon as all running calls that must not be repeated have ended;
        immediately if there are none.
        """
        self._on_idle = on_idle
        self.operations.is_stopping = True
        # Otherwise `_make` of the last of these calls does it.
        if not self._running_calls:
            on_idle()

    @contextmanager
    def writing(self, write: Callable[[], None]) -> Iterator[None]:
        """Register the function `write` while the `with` block runs. The block buffers facts, and `write` records them.
        If the execution is stopped meanwhile, `leave` calls `write`, so that no buffered fact is lost.
        """
        self._unwritten.append(write)
        try:
            yield
        finally:
            self._unwritten.remove(write)

    def leave(self) -> None:
        """Call the functions registered with `writing`, which record facts that code has buffered. Called before the
        paths of the execution are stopped.
        """
        for write in self._unwritten:
            write()

    def run(self, request: OperationRequest, call: Call) -> Coroutine[Any, Any, Any]:
        """Return an awaitable that replays the recorded result of a call, or makes the call and records its result.

        See `StepContext.operation`.
        """
        if self.call_wrapper is not None:
            return self.call_wrapper(self._replay_or_make, request, call)
        # The usual case, kept free of what only a recorded operation or a policy needs.
        if self.operations.is_unrecorded(request):
            return self._carry_out(request, call, None)
        return self._replay_or_make(request, call)

    def _replay_or_make(self, request: OperationRequest, call: Call) -> Coroutine[Any, Any, Any]:
        carry_out = partial(self._carry_out, request, call)
        if self.operations.miss_policy is None:
            return self.operations.run(request, carry_out)
        workspace_ref = None
        if call.workspace is not None:
            workspace_ref = self.workspaces.reference(call.workspace, request.place, request.operation_id)
        options = CallOptions(call.setting, call.within, call.extra_event, call.done, call.repeatable, workspace_ref)
        return self.operations.run(request, carry_out, options)

    def _carry_out(
        self, request: OperationRequest, call: Call, record: OperationRecord | None
    ) -> Coroutine[Any, Any, Any]:
        """Return an awaitable that makes a call. A `record` means that the call was started, or returned a result that
        the log could not store. It may have taken effect.
        """
        if record is not None and not call.repeatable:
            cause = None if record.lost is None else told_of(record.lost)
            return self._resolve_unknown(request, call, record, cause)
        if record is not None and call.workspace is not None:
            self.workspaces.expect(call.workspace, RESTORE)  # it runs again, on the files with which it started
        if call.slot is not None:
            return self._in_slot(request, call, call.slot)
        is_plain = call.reserved is None and call.workspace is None
        return self._make(request, call) if is_plain else self._begin(request, call)

    async def _resolve_unknown(
        self, request: OperationRequest, call: Call, record: OperationRecord, cause: str | None = None
    ) -> Any:
        """Ask a person about a call that may have taken effect. Depending on the answer, return the result that the
        person entered, or make the call again and return its result.

        If the call has a workspace, the question mentions changed files. They are restored before the call is repeated,
        and kept otherwise.
        """
        effects = "" if call.effects is None else call.effects()
        if call.workspace is not None:
            effects += await self.workspaces.difference(call.workspace, request.place)
        decision = await self._unknown.settle(
            request.place, record, request.parameters, cause, convert=call.done, effects=effects
        )
        # A repeated call needs the files with which it started. If it went through, its changes of files are kept.
        if call.workspace is not None:
            self.workspaces.expect(call.workspace, RESTORE if decision.again else KEEP)
        if decision.again:
            return await self._carry_out(request, call, None)
        # The call that a person has settled never returned here, so its additional event is recorded here.
        if call.extra_event is not None:
            self.operations.record(request.place, call.extra_event(decision.result))
        return decision.result

    async def _in_slot(self, request: OperationRequest, call: Call, slot: Slot) -> Any:
        while True:
            if call.reserved is not None:  # no slot is held while a person is asked
                await self.asking.within_bounds(request.place, call.reserved)
            async with slot:
                # Other calls may have used the budget during the wait for the slot. It is given back then, and the
                # bounds are checked again.
                if call.reserved is None or self.asking.is_within_bounds(call.reserved):
                    return await self._begin(request, call)
                # No call was made, which must not count as a success of its provider.
                slot.release()

    async def _begin(self, request: OperationRequest, call: Call) -> Any:
        if call.reserved is not None:
            await self.asking.within_bounds(request.place, call.reserved)
            with self.asking.model_call():
                return await self._make(request, call)
        if call.workspace is not None:
            return await self._begin_in_workspace(request, call, call.workspace)
        return await self._make(request, call)

    async def _begin_in_workspace(self, request: OperationRequest, call: Call, workspace: str) -> Any:
        """Make a call inside a workspace, and return its result. Record its outcome, and the changes that it has made
        to the files there.
        """
        lease = await self.workspaces.enter(workspace, request.place)
        with lease.mark_running(request.operation_id, request.place):
            call_inside = call._replace(make=lease.wrap(call.make), streamed=lease.wrap_streamed(call.make))
            return await self._make(request, call_inside, lease)

    async def _make(self, request: OperationRequest, call: Call, lease: WorkspaceLease | None = None) -> Any:
        # Counted before the start is recorded, so that a pause waits for every call whose start the log has.
        self._running_calls += not call.repeatable
        try:
            record = self.operations.begin(request, call.reserved, call.setting, call.within, call.rollback_ref)
            # The start must be durable before the call is made: otherwise a crash would leave a side effect of which
            # the log has no trace. An idempotent call is made again then, so that it may begin a little earlier.
            if call.may_begin_early:
                await self.journal.nearly_durable()
            else:
                await self.journal.durable()
            execution = self._execute(request, call, record, lease)
            # A successor that was started replaces this execution, which therefore ends with it although a
            # cancellation or pause was requested meanwhile. Otherwise the successor would run beside it
            # (test_a_request_during_the_start_of_the_successor_comes_too_late).
            is_replaced = request.operation_type == CONTINUE_AS_NEW
            if call.rollback_ref is not None or is_replaced:
                execution = run_to_end(execution, lambda: self.is_abandoned, has_result=is_replaced)
            result = await execution
            if isinstance(result, Unknown):
                return await self._resolve_unknown(request, call, record, result.cause)
        finally:
            # An idempotent call may begin early only if all results that it may depend on are idempotent ones: a random
            # number, for example, must be the same if the call is made again.
            if not call.may_begin_early:
                self.journal.require_durable()
            if not call.repeatable:
                self._running_calls -= 1
                if self._on_idle is not None and not self._running_calls:  # the last call before a requested pause
                    self._on_idle()
        return result

    async def _execute(
        self, request: OperationRequest, call: Call, record: OperationRecord, lease: WorkspaceLease | None
    ) -> Any:
        """Run a call whose start is recorded, and record its outcome. Return its result, or `Unknown` if the call may
        have taken effect.

        On an error there are three cases. The outcome is unknown: nothing is recorded here, and a person is asked. The
        call is repeatable: the failure is recorded, and the call can simply be repeated. Any other failure is recorded
        with the lost result, if there is one. File changes in the workspace are recorded in each case.
        """
        started_at = self.journal.clock.now()
        result = None
        has_returned = False
        try:
            awaitable = call.make() if call.streamed is None else self._streamed(record, call.make, call.streamed)
            surround = self._tracing.surround
            if surround is None:
                result = await contained(awaitable, self.loop)
            else:
                with surround(self.journal.execution_id, record.started_sequence):
                    result = await contained(awaitable, self.loop)
            has_returned = True
            # Inside the `try`: a result that the log cannot store is a failure of the call, although the call
            # returned.
            result = storable(result, "result", with_displays)
        except Exception as error:  # any exception of the call is its recorded outcome
            # The files changed even if the call failed. The changes are recorded after its end, so that both share
            # one commit.
            changed = () if lease is None else await lease.events_after(request.operation_id)
            # A call with a rollback has taken effect, but the log cannot store its result. A person enters the result,
            # which the rollback needs.
            is_unheld = has_returned and call.rollback_ref is not None
            if is_unheld or (not call.repeatable and leaves_outcome_unknown(error)):
                if changed:
                    self.workspaces.record_events(request.place, changed)
                return Unknown(clean_failure(error))
            lost = described(result) if has_returned else lost_in(error)
            if call.repeatable:
                lost = None  # it is repeated anyway
            if lost is not None:
                add_advice(error)
            usage = None
            if call.usage is not None:
                # A reply that was cut off, or that the log cannot store, was paid for.
                usage = call.usage(result) if has_returned else consumption_of(vars(error))
                if usage:
                    setattr(error, CONSUMED, dict(usage))
            details = clean_text(error), names_of(error), usage
            failure = self.operations.fail(request.place, record, *details, since=started_at, raised=error, lost=lost)
            if changed:
                self.workspaces.record_events(request.place, changed)
            raise failure from error
        changed = () if lease is None else await lease.events_after(request.operation_id)
        usage = None if call.usage is None else call.usage(result)
        # A turn of an agent starts its next operation at once, and both records then share one commit.
        is_inner = call.within is not None
        self.operations.complete(request.place, record, result, usage, since=started_at, may_wait=is_inner)
        if call.extra_event is not None:
            self.operations.record(request.place, call.extra_event(result))
        if changed:
            self.workspaces.record_events(request.place, changed)
        return result

    def enclosing(
        self, request: OperationRequest, body: Body, setting: Setting | None = None, within: str | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Return an awaitable that runs an operation with other operations inside it, and returns its result; see
        `StepContext.enclosing`.
        """

        async def carry_out(record: OperationRecord | None) -> Any:
            if record is None:
                record = self.operations.begin(request, None, setting, within)
            return await run_body(self.operations, self.loop, request, record, body)

        return self.operations.run(request, carry_out, CallOptions(setting, within))

    def _streamed(
        self, record: OperationRecord, make: Callable[[], Awaitable[Any]], streamed: StreamedCall
    ) -> Awaitable[Any]:
        execution_id = self.journal.execution_id
        # Without listeners the plain call is made, which costs less than a streamed one. The log is the same in both
        # cases.
        is_heard = self._texts.is_heard(execution_id)
        return self._texts.hand_on(execution_id, record.operation_id, streamed) if is_heard else make()


# --- containment of exceptions ---------------------------------------------------------------------------------------
#
# An exception of step code must not end more than its step. SystemExit, a cancellation by the code itself, and
# GeneratorExit would otherwise unwind tasks of the engine, and with them unrelated executions
# (`tests/runtime/test_failing.py` raises each of them).


async def contained(call: Awaitable[Any], loop: asyncio.AbstractEventLoop) -> Any:
    """Await user code and return its result. Exceptions that would end the tasks of the engine, such as SystemExit, are
    converted to `OperationError`.

    `loop` is the running loop, passed in because looking it up takes longer.

    Raises
    ------
    OperationError
        The code called `sys.exit`, or raised KeyboardInterrupt, another error that derives only from BaseException, or
        a cancellation that was not requested.
    """
    task = asyncio.current_task(loop)
    try:
        if not is_workflow_code():  # the usual case needs no mark
            return await call
        with engine_code():
            return await call
    except (Exception, Suspended):
        raise
    except asyncio.CancelledError as error:
        # `cancelling` counts requests to cancel this task. Without a request, the cancellation comes from something
        # that the code awaited.
        if task is not None and task.cancelling():
            raise
        raise OperationError("it was cancelled from inside: a task that it awaited was cancelled") from error
    except GeneratorExit as error:
        if _running_task() is not task:  # not raised by the code: this coroutine is being closed
            raise
        raise _ending(error) from error
    except BaseExceptionGroup as group:
        _, other_errors = group.split(Suspended)  # from a task group of user code
        if other_errors is None:
            raise Suspended from group
        raise (other_errors if isinstance(other_errors, Exception) else _ending(group)) from group
    except BaseException as error:
        raise _ending(error) from error


def _ending(error: BaseException) -> OperationError:
    return OperationError(f"it raised {type(error).__name__}({error}), which would end the engine")


def _running_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # this thread has no running loop
        return None


# --- enclosing operations --------------------------------------------------------------------------------------------
#
# An enclosing operation contains other operations. It is recorded as started once, and every process enters it again
# until it has ended.
#
# Its inner operations are recorded separately, so none is lost or repeated. The enclosing operation itself never counts
# as running: no pause waits for it, and no person is asked about its outcome (`tests/runtime/test_enclosing.py`).


Body: TypeAlias = Callable[[str], Awaitable[Any]]
"""The body of an enclosing operation. It receives the id of the operation."""


async def run_body(
    operations: OperationLog,
    loop: asyncio.AbstractEventLoop,
    request: OperationRequest,
    record: OperationRecord,
    body: Body,
) -> Any:
    """Run the function of an operation that has other operations inside it. The start of the operation must be
    recorded. Record its outcome, and return its result.

    Raises
    ------
    OperationError
        The body raised; this is the recorded form of its error.
    Suspended
        The body waits for something from outside and has not ended.
    """
    place = request.place
    try:
        result = storable(await contained(body(record.operation_id), loop), "result", with_displays)
    except Exception as error:  # any exception of the body is the recorded outcome, unless the log failed
        operations.require_agreement(place.path)
        if operations.journal.error is not None:
            raise
        raise operations.fail(place, record, clean_text(error), names_of(error), raised=error) from error
    operations.complete(place, record, result)
    return result


# --- calls with a rollback -------------------------------------------------------------------------------------------
#
# The effect of such a call must be rolled back if the execution fails or is cancelled, so the log must have its end. An
# async function aborted in the middle might have booked a room that is then never cancelled
# (`tests/runtime/test_rollback_unknown.py`).


async def run_to_end(
    call: Coroutine[Any, Any, Any], is_abandoned: Callable[[], bool], *, has_result: bool = False
) -> Any:
    """Run a call, such as one that has a rollback, to its end, even if the caller is cancelled meanwhile, and return
    its result. After a cancellation, raise the cancellation instead.

    Parameters
    ----------
    is_abandoned
        Return whether the execution is left as if the process had ended. The call is then aborted as well.
    has_result
        Whether to return the result also after a cancellation, if the call has not failed.
    """
    task = asyncio.ensure_future(call)
    cancelled = None
    # `asyncio.wait` does not cancel the task if it is cancelled itself. After the first cancellation the wait is
    # shielded; a direct `Task.cancel` still interrupts it and is checked again.
    while not task.done():
        try:
            with anyio.CancelScope(shield=cancelled is not None):
                await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
            if is_abandoned():
                task.cancel()
    is_kept = has_result and not task.cancelled() and task.exception() is None
    if cancelled is not None and not is_kept:
        _ = task.cancelled() or task.exception()  # retrieve the outcome, which the log has
        raise cancelled
    return task.result()


# --- errors that leave the outcome unknown ---------------------------------------------------------------------------


_UNKNOWN = frozenset(
    {
        "ConnectionError",  # Python's own, including reset and broken pipe; requests
        "NetworkError",  # httpx: reading or writing failed
        "OutcomeUnknownError",
        "ProtocolError",  # httpx, urllib3: the peer closed the connection early
        "Timeout",  # requests
        "TimeoutError",  # Python's own, asyncio, concurrent.futures, aiohttp, urllib3
        "TimeoutException",  # httpx
    }
)
_NEVER_SENT = frozenset(
    {
        "ConnectError",  # httpx
        "ConnectTimeout",  # httpx, requests
        "ConnectTimeoutError",  # urllib3
        "ConnectionRefusedError",
        "PoolTimeout",  # httpx
    }
)


def leaves_outcome_unknown(error: BaseException) -> bool:
    """Return whether it is unknown after an error if the call took effect, because the call timed out or its connection
    broke.

    HTTP libraries have their own error classes, and importing all of them to compare would cost too much. The classes
    are recognized by name instead. Causes of an error and members of a group are checked as well. A refused connection,
    or one that could not be made in time, transferred nothing.

    Examples
    --------
    >>> leaves_outcome_unknown(ConnectionResetError()), leaves_outcome_unknown(ConnectionRefusedError())
    (True, False)
    """
    visited: list[BaseException] = []
    pending = [error]
    while pending:
        link = pending.pop()
        # All base classes too. `httpx.ConnectTimeout` is also a `TimeoutException`, so `_NEVER_SENT` is checked
        # first.
        names = set(names_of(link))
        if link in visited or names & _NEVER_SENT:
            continue
        if names & _UNKNOWN:
            return True
        visited.append(link)
        # Only `__cause__`, which the raiser has set on purpose. An unrelated error that was being handled
        # (`__context__`) says nothing about the call.
        pending += link.exceptions if isinstance(link, BaseExceptionGroup) else ()
        pending += [link.__cause__] if link.__cause__ is not None else ()
    return False


# --- tracing of calls ------------------------------------------------------------------------------------------------
#
# Telemetry registers a context manager here that surrounds each call. A library that traces its own work, such as an
# HTTP client, finds its parent span in the context of the call, in whatever thread of this process the call runs
# (`tests/telemetry`).


Surround: TypeAlias = Callable[[str, int], AbstractContextManager[object]]
"""Return the context manager that surrounds a call, for the id of its execution and the number of its start event."""


class CallTracing:
    """Holder of an optional function that returns a context manager to trace a call. It is None if calls are not
    traced.
    """

    def __init__(self) -> None:
        self.surround: Surround | None = None


# --- calls with an unknown outcome -----------------------------------------------------------------------------------
#
# If the log has the start of a call but not its end, the call may or may not have taken effect. Repeating it could pay
# twice, and failing it could lose a payment, so a person has to decide (`tests/runtime/test_unknown_outcomes.py`).
# Only calls that are declared idempotent are repeated without a question.


MOST_ARGUMENTS = 10
"""Maximum number of arguments in the text of the question. Its data has all of them."""


class OutcomeDecision(NamedTuple):
    """Decision of a person about a call whose outcome was unknown: repeat the call, or continue with a result that the
    person entered.
    """

    again: bool
    """True if the call is to be repeated."""
    result: Any = None


class UnknownOutcomes:
    """Questions that ask people whether calls with an unknown outcome took effect. Each start of a call has its own
    question.
    """

    def __init__(self, operations: OperationLog, waits: Waits) -> None:
        self._operations = operations
        self._waits = waits

    async def settle(
        self,
        place: Place,
        record: OperationRecord,
        parameters: Any,
        cause: str | None,
        *,
        convert: Callable[[Any], Any] | None = None,
        effects: str = "",
    ) -> OutcomeDecision:
        """Ask a person about a call whose start is in the log but whose end is not: did it take effect? The answer is
        recorded as the end of the call, unless the call is to be repeated. Return the decision.

        `cause` is the reason, if known. `convert` converts the result that the person enters to the value that the call
        would have returned. `effects` is a text about the observable effects of the call.

        Raises
        ------
        Suspended
            The question has no answer yet.
        OperationError
            The answer is that the call failed.
        """
        state = self._operations.journal.state
        # The number of the start event is part of the id, so a repeated call whose outcome is unknown again gets a
        # new question.
        question_id = state.question_id(record.operation_id, record.started_sequence)
        if question_id not in state.interrupts:
            wording = _wording(record, parameters, place, cause, effects)
            self._operations.record(place, wording.event(question_id, OUTCOME_UNKNOWN, record.operation_id))
        response = (await self._waits.wait_for_answer(place.path, question_id)).response
        if response["choice"] == RETRY:
            return OutcomeDecision(again=True)
        # Time begins here, because the time that the person took is not the duration of the call.
        now = self._operations.journal.clock.now()
        if response["choice"] == FAIL:
            error = response.get("error") or "its outcome is unknown, and a person marked it as failed"
            raise self._operations.fail(place, record, error, since=now)
        result = response.get("result")
        if convert is not None:
            result = storable(convert(result), "result", with_displays)
        self._operations.complete(place, record, result, since=now)
        return OutcomeDecision(again=False, result=result)


def _wording(record: OperationRecord, parameters: Any, place: Place, cause: str | None, effects: str) -> Wording:
    arguments = list((operation_arguments(parameters) or {}).items())[:MOST_ARGUMENTS]
    return outcome_unknown(
        _call_name(record, parameters, place),
        parameters,
        process="kernel" if is_kernel() else "process",
        cause=cause,
        arguments=", ".join(f"{name} = {in_short(value)}" for name, value in arguments),
        effects=effects,
        is_own=record.operation_type in (ACTION_EXECUTION, STEP_EXECUTION),
    )


def _call_name(record: OperationRecord, parameters: Any, place: Place) -> str:
    """Return the name of the called function, for the question whether the call took effect. For a tool, the agent that
    called it is added.
    """
    by = f" by {parameters['agent']}" if record.operation_type == TOOL_CALL and parameters.get("agent") else ""
    return f"{operation_name(record.operation_type, parameters) or place.step}{by}"


class Call(NamedTuple):
    """Non-deterministic call that a step requests: the function to await, and options for making and recording the
    call.
    """

    make: Callable[[], Awaitable[Any]]
    usage: Callable[[Any], Mapping[str, int]] | None = None
    """Extract the consumption from the result."""
    repeatable: bool = False
    """True if running it twice does no harm."""
    may_begin_early: bool = False
    """True if it may begin before its start is durable, because it is declared idempotent. It is then repeatable."""
    reserved: Reserved | None = None
    """Maximum consumption of a model call; None for any other call."""
    streamed: StreamedCall | None = None
    """Run the call while its streamed text has listeners."""
    extra_event: Callable[[Any], catalog.Payload] | None = None
    """Return an additional event to record once the call has returned."""
    slot: Slot | None = None
    """Slot of a limiter that the call must hold while it runs."""
    setting: Setting | None = None
    """Settings that are recorded but not compared."""
    within: str | None = None
    """Id of the enclosing operation."""
    done: Callable[[Any], Any] | None = None
    """Convert a result entered by a person to the value that the call would have returned."""
    workspace: str | None = None
    """Name of the workspace in which it runs."""
    effects: Callable[[], str] | None = None
    """Return a text about the observable effects of the call, for a person who must decide whether it went through."""
    rollback_ref: str | None = None
    """Reference to its rollback, if it has one, as in `divebook.events.catalog.OperationStarted`."""
    digest: str | None = None
    """Hash of its parameters, if it is known; see `OperationRequest.of`."""


RunCall: TypeAlias = Callable[[OperationRequest, Call], Coroutine[Any, Any, Any]]
"""Replay or make a call, and return its result; see `Recorder.run`."""
CallWrapper: TypeAlias = Callable[[RunCall, OperationRequest, Call], Coroutine[Any, Any, Any]]
"""Function with the arguments of `RunCall`, after the function that replays or makes the call."""


class Unknown(NamedTuple):
    """Marker in place of a call's result: the call may or may not have taken effect. It contains the reason."""

    cause: str
