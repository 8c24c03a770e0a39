"""What a step asks for that is not deterministic, carried out once: calls here, the rest in modules of their own.

`once` looks an operation up and records it, `signals` waits, `children` runs other workflows, `asking` asks people,
`outcomes` asks what became of a call that began and has no end in the log.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, TypeAlias

import anyio

from divebook.engine.operations import (
    ACTION_EXECUTION,
    CONSUMED,
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
from divebook.questions.question import DONE, FAIL, OUTCOME_UNKNOWN, RETRY
from divebook.runtime.children import Children
from divebook.runtime.clock import Chance, add_advice, described, lost_in, told_of
from divebook.runtime.concurrency import Suspended, Waits
from divebook.runtime.errors import clean_failure, clean_text
from divebook.runtime.operations import CallOptions, OperationLog, OperationRequest, in_short
from divebook.runtime.streaming import TextStreams
from divebook.runtime.waiting import ApprovalPolicy, Approving, Asking, Signals, engine_code
from divebook.runtime.workspaces import KEEP, RESTORE, WorkspaceLease, WorkspaceProvider, Workspaces

# Keeps what code inside a step raises from ending more than that step.
#
# SystemExit, a cancellation that the code made itself, and GeneratorExit would otherwise unwind the engine's own tasks,
# and with them executions that have nothing to do with it (`tests/execution/test_failing.py` raises each of them).


async def contained(call: Awaitable[Any], loop: asyncio.AbstractEventLoop) -> Any:
    """Await code that is not ours; what would end the whole engine, were it let through, becomes an ordinary error.

    `loop` is the one that runs, which takes longer to find than to be given.

    Raises
    ------
    OperationError
        The code called `sys.exit`, or raised KeyboardInterrupt or another error that derives from BaseException alone,
        or a cancellation that no code asked for.
    """
    task = asyncio.current_task(loop)
    try:
        with engine_code():
            return await call
    except (Exception, Suspended):
        raise
    except asyncio.CancelledError as error:
        if task is not None and task.cancelling():
            raise
        raise OperationError("it was cancelled from inside: something it awaited was cancelled") from error
    except GeneratorExit as error:
        if _running_task() is not task:  # it was not raised: this very coroutine is being thrown away
            raise
        raise _ending(error) from error
    except BaseExceptionGroup as group:
        _, others = group.split(Suspended)  # from a task group of the code's own
        if others is None:
            raise Suspended from group
        raise (others if isinstance(others, Exception) else _ending(group)) from group
    except BaseException as error:
        raise _ending(error) from error


def _ending(error: BaseException) -> OperationError:
    return OperationError(f"it raised {type(error).__name__}({error}), which would end the engine")


def _running_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # there is no loop on this thread
        return None


# Operations that hold others: begun once, and entered again by every process until they have ended.
#
# What happens inside is recorded by itself, so that nothing of it is lost or repeated, and the operation around it is
# never under way by itself: no pause waits for it, and nobody is asked what became of it
# (`tests/execution/test_enclosing.py`).


Body: TypeAlias = Callable[[str], Awaitable[Any]]
"""Does what an operation holds; is given the id of that operation."""


async def entered(
    once: OperationLog, loop: asyncio.AbstractEventLoop, wanted: OperationRequest, record: OperationRecord, body: Body
) -> Any:
    """Return what an operation that has begun comes to, once it is recorded.

    Raises
    ------
    OperationError
        What its body raised, as the log has it.
    Suspended
        It waits for something from outside, and has not ended.
    """
    place = wanted.place
    try:
        result = storable(await contained(body(record.operation_id), loop), "result")
    except Exception as error:  # whatever the body raises is the recorded outcome, unless the log is at fault
        once.require_agreement(place.path)
        if once.journal.error is not None:
            raise
        raise once.fail(place, record, clean_text(error), names_of(error), raised=error) from error
    once.complete(place, record, result)
    return result


# Calls that are seen through to their end, whatever becomes of the code that awaits them.
#
# What a call has done is to be undone if the execution fails or is cancelled, so that the log must have its end: an
# async function that were cut off in the middle might have booked a room that nobody cancels
# (`tests/execution/test_rollback_unknown.py`).


async def seen_through(made: Coroutine[Any, Any, Any], is_left: Callable[[], bool]) -> Any:
    """Return what comes of a call with all that is recorded of it; a cancellation comes afterwards.

    Parameters
    ----------
    is_left
        Whether the execution is left as if the process had ended: then the call is cut off as well.
    """
    task, cancelled = asyncio.ensure_future(made), None
    while not task.done():
        try:
            with anyio.CancelScope(shield=cancelled is not None):
                await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
            if is_left():
                task.cancel()
    if cancelled is not None:
        _ = task.cancelled() or task.exception()  # the log has it
        raise cancelled
    return task.result()


# Errors that leave it unknown whether a call took effect.


_UNKNOWN = frozenset(
    {
        "ConnectionError",  # Python's own, reset and broken pipe included, and that of requests
        "NetworkError",  # httpx: reading or writing broke off
        "OutcomeUnknownError",
        "ProtocolError",  # httpx, urllib3: the other side hung up in the middle
        "Timeout",  # requests
        "TimeoutError",  # Python's own, that of asyncio and concurrent.futures, aiohttp, urllib3
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
    """Return whether a call that raised this may have taken effect: it timed out, or its connection broke.

    HTTP libraries have errors of their own for that, and importing them all to compare would cost more than it is
    worth: they are known by the names of their classes. What an error was raised from, and the members of a group,
    count as well. A connection that was refused, or could not be made in time, carried nothing.

    Examples
    --------
    >>> leaves_outcome_unknown(ConnectionResetError()), leaves_outcome_unknown(ConnectionRefusedError())
    (True, False)
    """
    seen: list[BaseException] = []
    left = [error]
    while left:
        link = left.pop()
        names = set(names_of(link))
        if link in seen or names & _NEVER_SENT:
            continue
        if names & _UNKNOWN:
            return True
        seen.append(link)
        left += link.exceptions if isinstance(link, BaseExceptionGroup) else ()
        left += [link.__cause__] if link.__cause__ is not None else ()
    return False


# What surrounds the calls that are carried out: who traces them says it here, from above.
#
# A library that traces its own work, such as a client of HTTP, asks what it is a part of. It finds that in the context
# of the call, in whatever thread of this process that is made (`tests/telemetry`).


Surround: TypeAlias = Callable[[str, int], AbstractContextManager[object]]
"""An execution's id, and the number of the event with which a call began, to what is entered while it is made."""


class SurroundedCalls:
    """Holds what calls are made in; None while nobody wants to know."""

    def __init__(self) -> None:
        self.surround: Surround | None = None


# Calls that may or may not have taken effect: a person is asked to look and to say which.
#
# A log that has the beginning of a call and not its end cannot tell a call that was never made from one that was made.
# To make it again could pay twice, to fail it could lose a payment, so neither is done without a word from a person
# (`tests/execution/test_unknown_outcomes.py`). Only calls that are declared idempotent are simply made again.


_KERNEL = "ipykernel.kernelapp"
REPEATING = "If it may be called twice, define its function with idempotent=True: Retry then makes such calls again."
MOST_ARGUMENTS = 10
"""Of a call, told in its question; all of them are in its data."""


class Settled(NamedTuple):
    """A person's answer about a call whose outcome was unknown."""

    again: bool
    """It is to be made again."""
    result: Any = None


class UnknownOutcomes:
    """Asks about each beginning of a call once."""

    def __init__(self, once: OperationLog, waits: Waits) -> None:
        self._once, self._waits = once, waits

    async def settle(
        self,
        place: Place,
        record: OperationRecord,
        parameters: Any,
        cause: str | None,
        *,
        done: Callable[[Any], Any] | None = None,
        seen: str = "",
    ) -> Settled:
        """Return what a person says of a call that began and has no outcome in the log; `cause` is why, if known.

        `done` makes of what that person gives as its result what the call would have returned; `seen` is told of what
        can be seen of it.

        Raises
        ------
        Suspended
            The question has no answer yet.
        OperationError
            The answer is that it failed.
        """
        state = self._once.journal.state
        question_id = state.question_id(record.operation_id, record.started_sequence)
        if question_id not in state.interrupts:
            message = _why(cause) + _given(parameters) + seen + _advice(record, cause)
            self._ask(place, record, question_id, parameters, message)
        response = (await self._waits.answer(place.path, question_id)).response
        if response["choice"] == RETRY:
            return Settled(again=True)
        now = self._once.journal.clock.now()
        if response["choice"] == FAIL:
            error = response.get("error") or "its outcome is unknown, and a person called it failed"
            raise self._once.fail(place, record, error, since=now)
        result = response.get("result")
        if done is not None:
            result = storable(done(result), "result")
        self._once.complete(place, record, result, since=now)
        return Settled(again=False, result=result)

    def _ask(self, place: Place, record: OperationRecord, question_id: str, parameters: Any, message: str) -> None:
        raised = catalog.InterruptRaised(
            question_id,
            OUTCOME_UNKNOWN,
            f"Did the call to {_called(record, parameters, place)} go through?",
            message=message,
            data={"parameters": parameters, "choices": [RETRY, DONE, FAIL]},
            operation_id=record.operation_id,
        )
        self._once.record(place, raised)


def _called(record: OperationRecord, parameters: Any, place: Place) -> str:
    """Return what was called, as people know it; of a tool also by whom."""
    by = f" by {parameters['agent']}" if record.operation_type == TOOL_CALL and parameters.get("agent") else ""
    return f"{operation_name(record.operation_type, parameters) or place.step}{by}"


def _why(cause: str | None) -> str:
    if cause is not None:
        return f"It began, and then: {cause}."
    return f"The {'kernel' if _KERNEL in sys.modules else 'process'} stopped after it began, or the run was cancelled."


def _advice(record: OperationRecord, cause: str | None) -> str:
    """Return what lets a person's own function be tried again without a question, where an error has led to it."""
    is_own = record.operation_type in (ACTION_EXECUTION, STEP_EXECUTION)
    return f" {REPEATING}" if is_own and cause is not None else ""


def _given(parameters: Any) -> str:
    """Return what a call was made with, on the line of the question: who decides need not open anything."""
    given = operation_arguments(parameters) or {}
    told = ", ".join(f"{name} = {in_short(value)}" for name, value in list(given.items())[:MOST_ARGUMENTS])
    return f" It was called with {told}." if told else ""


class Call(NamedTuple):
    """A call that is not deterministic."""

    make: Callable[[], Awaitable[Any]]
    usage: Callable[[Any], Mapping[str, int]] | None = None
    """Reads what was consumed from the result."""
    repeatable: bool = False
    """Whether making it twice does no harm."""
    reserved: Reserved | None = None
    """What a model call may consume at most; None for any other call."""
    streamed: StreamedCall | None = None
    """Makes the call while somebody listens to its text."""
    noted: Callable[[Any], catalog.Payload] | None = None
    """What the log is to say besides, in the words of the catalogue, once the call has returned."""
    slot: Slot | None = None
    """What it must hold before it begins."""
    setting: Setting | None = None
    """What it is made with that is only kept."""
    within: str | None = None
    """Id of the operation that holds it."""
    done: Callable[[Any], Any] | None = None
    """Makes of what a person says it has returned what it would have returned."""
    workspace: str | None = None
    """The workspace that it works in."""
    seen: Callable[[], str] | None = None
    """Says what can be seen of it where a person is asked whether it went through."""
    undone: str | None = None
    """What has its undoing, where it has one, as `divebook.events.catalog.OperationStarted` says it."""


class Unknown(NamedTuple):
    """What comes of a call of which nobody knows whether it took effect."""

    cause: str


class Recorder:
    """The operations of one execution; made on the loop on which they run."""

    def __init__(  # noqa: PLR0917 - each is what one of its parts is made of
        self,
        once: OperationLog,
        waits: Waits,
        chance: Chance,
        texts: TextStreams,
        policy: ApprovalPolicy,
        lender: WorkspaceProvider | None = None,
        surrounded: SurroundedCalls | None = None,
    ) -> None:
        self.journal, self.chance, self.loop = once.journal, chance, asyncio.get_running_loop()
        self.once, self.waits = once, waits
        self.signals = Signals(self.once, self.waits)
        self.children = Children(self.once, self.waits, chance)
        self.asking = Asking(self.once, self.waits)
        self.approving = Approving(self.once, policy)
        self._unknown = UnknownOutcomes(self.once, self.waits)
        self.workspaces = Workspaces(self.once, self.waits, lender)
        self._texts, self._surrounded = texts, surrounded or SurroundedCalls()
        self._at_rest: Callable[[], None] | None = None
        """Set once nothing more is to begin."""
        self._under_way = 0
        """Calls that run and may not be made twice."""
        self._unwritten: list[Callable[[], None]] = []
        self.is_given_up = False
        """Whether the execution was cancelled: nobody wants to know what its calls come to, unless they are undone."""
        self.is_broken_off = False
        """Whether it is left as if the process had ended."""

    def pause(self, at_rest: Callable[[], None]) -> None:
        """Begin no further call, and call `at_rest` as soon as none is under way that may not be made twice."""
        self._at_rest, self.once.begins_nothing = at_rest, True
        if not self._under_way:
            at_rest()

    @contextmanager
    def writing(self, write: Callable[[], None]) -> Iterator[None]:
        """Have what a call keeps for a while written before all paths are left: what it has done so far counts."""
        self._unwritten.append(write)
        try:
            yield
        finally:
            self._unwritten.remove(write)

    def leave(self) -> None:
        """Write what calls keep, before their paths are left."""
        for write in self._unwritten:
            write()

    def run(self, wanted: OperationRequest, call: Call) -> Coroutine[Any, Any, Any]:
        """Return what awaits the recorded result of a call, or makes it; see `StepContext.operation`."""

        def carry_out(record: OperationRecord | None) -> Coroutine[Any, Any, Any]:
            if record is not None and not call.repeatable:
                cause = None if record.lost is None else told_of(record.lost)
                return self._settled(wanted, call, record, cause)
            if record is not None and call.workspace is not None:
                self.workspaces.expect(call.workspace, RESTORE)  # it is made again, from the files that it found
            return self._begun(wanted, call)

        if self.once.beyond is None:
            return self.once.run(wanted, carry_out)
        inside = None
        if call.workspace is not None:
            inside = self.workspaces.inside(call.workspace, wanted.place, wanted.operation_id)
        beside = CallOptions(call.setting, call.within, call.noted, call.done, call.repeatable, inside)
        return self.once.run(wanted, carry_out, beside)

    async def _settled(
        self, wanted: OperationRequest, call: Call, record: OperationRecord, cause: str | None = None
    ) -> Any:
        """Return the result that a person gave for a call that may have taken effect, or make it again."""
        seen = "" if call.seen is None else call.seen()
        if call.workspace is not None:
            seen += await self.workspaces.difference(call.workspace, wanted.place)
        settled = await self._unknown.settle(wanted.place, record, wanted.parameters, cause, done=call.done, seen=seen)
        if call.workspace is not None:
            self.workspaces.expect(call.workspace, RESTORE if settled.again else KEEP)
        if settled.again:
            return await self._begun(wanted, call)
        if call.noted is not None:
            self.once.record(wanted.place, call.noted(settled.result))
        return settled.result

    def _begun(self, wanted: OperationRequest, call: Call) -> Coroutine[Any, Any, Any]:
        return self._begin(wanted, call) if call.slot is None else self._in_slot(wanted, call, call.slot)

    async def _in_slot(self, wanted: OperationRequest, call: Call, slot: Slot) -> Any:
        while True:
            if call.reserved is not None:  # who waits for a person holds no slot meanwhile
                await self.asking.within_bounds(wanted.place, call.reserved)
            async with slot:
                if call.reserved is None or self.asking.is_within_bounds(call.reserved):
                    return await self._begin(wanted, call)

    async def _begin(self, wanted: OperationRequest, call: Call) -> Any:
        if call.reserved is not None:
            await self.asking.within_bounds(wanted.place, call.reserved)
            with self.asking.model_call():
                return await self._make(wanted, call)
        if call.workspace is not None:
            return await self._begin_inside(wanted, call, call.workspace)
        return await self._make(wanted, call)

    async def _begin_inside(self, wanted: OperationRequest, call: Call, workspace: str) -> Any:
        """Make a call that works in a workspace, and record what it has done to the files there."""
        entered = await self.workspaces.enter(workspace, wanted.place)
        with entered.staying(wanted.operation_id, wanted.place):
            inside = call._replace(make=entered.around(call.make), streamed=entered.heard(call.make))
            return await self._make(wanted, inside, entered)

    async def _make(self, wanted: OperationRequest, call: Call, entered: WorkspaceLease | None = None) -> Any:
        self._under_way += not call.repeatable
        try:
            record = self.once.begin(wanted, call.reserved, call.setting, call.within, call.undone)
            await self.journal.durable()
            carried_out = self._carried_out(wanted, call, record, entered)
            if call.undone is not None:
                carried_out = seen_through(carried_out, lambda: self.is_broken_off)
            result = await carried_out
            if isinstance(result, Unknown):
                return await self._settled(wanted, call, record, result.cause)
        finally:
            if not call.repeatable:
                self._end()
        return result

    async def _carried_out(
        self, wanted: OperationRequest, call: Call, record: OperationRecord, entered: WorkspaceLease | None
    ) -> Any:
        """Return what comes of a call, recorded: its result, or `Unknown`."""
        started_at = self.journal.clock.now()
        result, has_returned = None, False
        try:
            made = call.make() if call.streamed is None else self._streamed(record, call.make, call.streamed)
            surround = self._surrounded.surround
            if surround is None:
                result = await contained(made, self.loop)
            else:
                with surround(self.journal.execution_id, record.started_sequence):
                    result = await contained(made, self.loop)
            has_returned = True
            result = storable(result, "result")
        except Exception as error:  # whatever the call raises is the operation's recorded outcome
            changed = () if entered is None else await entered.left(wanted.operation_id)
            # What has taken effect is undone with its result, which a person has where the log cannot hold it.
            is_unheld = has_returned and call.undone is not None
            if is_unheld or (not call.repeatable and leaves_outcome_unknown(error)):
                self.workspaces.note(wanted.place, changed)
                return Unknown(clean_failure(error))
            lost = described(result) if has_returned else lost_in(error)
            if call.repeatable:
                lost = None  # it is made again anyway
            if lost is not None:
                add_advice(error)
            used = None
            if call.usage is not None:
                # A reply that was cut off, or that the log cannot hold, was paid.
                used = call.usage(result) if has_returned else consumption_of(vars(error))
                if used:
                    setattr(error, CONSUMED, dict(used))
            told = clean_text(error), names_of(error), used
            failed = self.once.fail(wanted.place, record, *told, since=started_at, raised=error, lost=lost)
            self.workspaces.note(wanted.place, changed)
            raise failed from error
        changed = () if entered is None else await entered.left(wanted.operation_id)
        used = None if call.usage is None else call.usage(result)
        # A turn of an agent goes on at once with what comes next, whose beginning then takes the same commit.
        self.once.complete(wanted.place, record, result, used, since=started_at, may_wait=call.within is not None)
        if call.noted is not None:
            self.once.record(wanted.place, call.noted(result))
        self.workspaces.note(wanted.place, changed)
        return result

    def enclosing(
        self, wanted: OperationRequest, body: Body, setting: Setting | None = None, within: str | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Return what awaits the recorded result of an operation that holds others; see `StepContext.enclosing`."""

        async def carry_out(record: OperationRecord | None) -> Any:
            if record is None:
                record = self.once.begin(wanted, None, setting, within)
            return await entered(self.once, self.loop, wanted, record, body)

        return self.once.run(wanted, carry_out, CallOptions(setting, within))

    def _streamed(
        self, record: OperationRecord, make: Callable[[], Awaitable[Any]], streamed: StreamedCall
    ) -> Awaitable[Any]:
        execution_id = self.journal.execution_id
        is_heard = self._texts.is_heard(execution_id)
        return self._texts.hand_on(execution_id, record.operation_id, streamed) if is_heard else make()

    def _end(self) -> None:
        """Note that a call that may not be made twice is under way no more."""
        self._under_way -= 1
        if self._at_rest is not None and not self._under_way:
            self._at_rest()
