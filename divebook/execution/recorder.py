"""Runs an operation once: looked up in the log first, carried out and recorded only if it is not there.

An operation that was begun and has no outcome in the log (the process died, or the call broke off) is carried out again
only if it is repeatable. Otherwise nobody can know whether it took effect, and a person is asked.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from divebook.engine.evolve import TIMER
from divebook.engine.interrupts import DONE, FAIL, OUTCOME_UNKNOWN, RETRY
from divebook.engine.operations import Place
from divebook.engine.retries import names_of, text_of
from divebook.engine.state import COMPLETED, FAILED, PENDING, RUNNING, Interrupt, OperationRecord
from divebook.errors import DivergenceError, OperationError
from divebook.events import catalog
from divebook.events.codec import canonical_hash, storable
from divebook.events.values import normalize
from divebook.execution.breaking_off import leaves_outcome_unknown
from divebook.execution.clock import Chance
from divebook.execution.journal import Journal

HASH_DIGITS = 16
MICROSECONDS = 1_000_000


class Suspended(BaseException):
    """Unwinds a step that cannot go on before a question is answered."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is not deterministic."""

    operation_type: str
    parameters: Mapping[str, Any]
    make: Callable[[], Awaitable[Any]]
    usage: Callable[[Any], Mapping[str, int]] | None = None
    """Reads what was consumed from the result."""
    repeatable: bool = False
    """Whether making it twice does no harm."""


async def contained(call: Awaitable[Any]) -> Any:
    """Await code that is not ours; what would end the whole engine, were it let through, becomes an ordinary error.

    Raises
    ------
    OperationError
        The code called `sys.exit`, or raised KeyboardInterrupt or another error that derives from BaseException alone,
        or a cancellation that nobody asked for.
    """
    task = asyncio.current_task()
    try:
        return await call
    except (Exception, Suspended):
        raise
    except asyncio.CancelledError as error:
        if task is not None and task.cancelling():
            raise
        raise OperationError("it was cancelled from inside: something it awaited was cancelled") from error
    except GeneratorExit as error:
        if _running_task() is not task:  # nobody raised it: this very coroutine is being thrown away
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


class Recorder:
    """The operations of one execution."""

    def __init__(self, journal: Journal, chance: Chance) -> None:
        self.journal, self.chance = journal, chance
        self._met: set[str] = set()
        """Operations that code has asked for in this process."""

    def has_history_ahead(self, place: Place) -> bool:
        """Whether the log holds operations of this step that its code has not asked for again yet."""
        return any(operation_id not in self._met for operation_id in self._records(place))

    async def run(self, place: Place, call: Call) -> Any:
        """Return the recorded result of the operation at `place`, or carry it out; see `StepContext.operation`."""
        operation_id = place.operation_id
        self._met.add(operation_id)
        plain = normalize(call.parameters, "parameters")
        digest = canonical_hash(plain, "parameters")[:HASH_DIGITS]
        known = self._known(place, operation_id, call.operation_type, digest)
        if known is not None and known.status == COMPLETED:
            return known.result
        if known is not None and known.status == FAILED:
            raise OperationError(known.error or "failed", operation_id, call.operation_type, known.error_names)
        if known is not None and not call.repeatable:
            answer = self._settled(place, call, known)
            if answer != RETRY:
                return answer["result"]
        self._begin(place, operation_id, call.operation_type, plain, digest)
        await self.journal.durable()
        return await self._make(place, operation_id, call)

    async def sleep(self, place: Place, seconds: float) -> None:
        """Let time pass, counted from when the timer was first set."""
        operation_id, parameters = place.operation_id, {"seconds": seconds}
        self._met.add(operation_id)
        digest = canonical_hash(parameters)[:HASH_DIGITS]
        known = self._known(place, operation_id, TIMER, digest)
        if known is not None and known.status == COMPLETED:
            return
        if known is None or known.status != RUNNING:
            self._begin(place, operation_id, TIMER, parameters, digest)
        started_at = self._records(place)[operation_id].started_at
        await self.journal.durable()
        await self._let_pass(started_at, seconds)
        duration = max(0, self.journal.clock.now() - started_at) * 1000
        self._record(place, catalog.OperationCompleted(operation_id, TIMER, duration))

    async def _let_pass(self, started_at: int, seconds: float) -> None:
        left = seconds - (self.journal.clock.now() - started_at) / MICROSECONDS
        if left > 0:
            await self.journal.clock.sleep(min(left, seconds))

    # --- what the log knows ----------------------------------------------------------------------------------------

    def _records(self, place: Place) -> Mapping[str, OperationRecord]:
        opened = self.journal.state.paths[place.path].open
        return opened.operations if opened is not None else {}

    def _known(self, place: Place, operation_id: str, operation_type: str, digest: str) -> OperationRecord | None:
        record = self._records(place).get(operation_id)
        if record is None:
            return None
        if record.operation_type != operation_type or record.parameters_hash not in (None, digest):
            recorded = f"{record.operation_type} with parameters {record.parameters_hash}"
            raise DivergenceError(str(place), recorded, f"{operation_type} with parameters {digest}")
        return record

    # --- calls whose outcome nobody knows --------------------------------------------------------------------------

    def _settled(self, place: Place, call: Call, record: OperationRecord) -> Any:
        """Return `RETRY`, or ``{"result": ...}`` where a person gave it; raise if the answer is that it failed.

        Raises
        ------
        Suspended
            The question has no answer yet.
        """
        question = self.journal.state.interrupts.get(self._question_id(record))
        if question is None:
            self._ask(place, call, record)
            raise Suspended
        if question.status == PENDING:
            raise Suspended
        return self._answered(place, record, question)

    def _answered(self, place: Place, record: OperationRecord, question: Interrupt) -> Any:
        response = question.response
        if response["choice"] == RETRY:
            return RETRY
        operation_id, operation_type = record.operation_id, record.operation_type
        if response["choice"] == FAIL:
            error = response.get("error") or "its outcome is unknown, and a person called it failed"
            self._record(place, catalog.OperationFailed(operation_id, operation_type, 0, error))
            raise OperationError(error, operation_id, operation_type)
        self._record(place, catalog.OperationCompleted(operation_id, operation_type, 0, response.get("result")))
        return {"result": response.get("result")}

    def _ask(self, place: Place, call: Call, record: OperationRecord) -> None:
        question = (
            f"Nobody knows whether {call.operation_type} of step {place.step!r} took effect: it began and has no "
            "recorded outcome. Look, then say retry, done (with its result) or fail"
        )
        data = {"parameters": normalize(call.parameters, "parameters"), "choices": [RETRY, DONE, FAIL]}
        raised = catalog.InterruptRaised(
            self._question_id(record), OUTCOME_UNKNOWN, question, data, operation_id=record.operation_id
        )
        self._record(place, raised)

    def _question_id(self, record: OperationRecord) -> str:
        """Return the id of the question about this beginning of the operation."""
        told = f"{self.journal.execution_id}/{record.operation_id}/{record.started_sequence}"
        return f"ask_{hashlib.sha256(told.encode()).hexdigest()[:16]}"

    # --- making the call -------------------------------------------------------------------------------------------

    def _begin(self, place: Place, operation_id: str, operation_type: str, parameters: Any, digest: str) -> None:
        started = catalog.OperationStarted(
            operation_id, operation_type, parameters, digest, place.iteration_index, place.key
        )
        self._record(place, started)

    async def _make(self, place: Place, operation_id: str, call: Call) -> Any:
        started_at = self.journal.clock.now()
        try:
            result = storable(await contained(call.make()), "result")
        except Exception as error:  # whatever the call raises is the operation's recorded outcome
            if not call.repeatable and leaves_outcome_unknown(error):
                self._ask(place, call, self._records(place)[operation_id])
                raise Suspended from error
            self._fail(place, operation_id, call, started_at, error)
            raise
        used = call.usage(result) if call.usage is not None else None
        duration = self._since(started_at)
        self._record(
            place, catalog.OperationCompleted(operation_id, call.operation_type, duration, result, used or None)
        )
        return result

    def _fail(self, place: Place, operation_id: str, call: Call, started_at: int, error: Exception) -> None:
        text = text_of(error)
        duration, names = self._since(started_at), names_of(error)
        failed = catalog.OperationFailed(operation_id, call.operation_type, duration, text, names)
        self._record(place, failed)

    def _since(self, started_at: int) -> int:
        return max(0, self.journal.clock.now() - started_at) * 1000

    def _record(self, place: Place, data: catalog.Payload) -> None:
        self.journal.record(data, place.path, place.step)
