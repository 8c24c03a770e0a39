"""Runs an operation once: looked up in the log first, carried out and recorded only if it is not there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from divebook.engine.evolve import TIMER
from divebook.engine.operations import Place
from divebook.engine.state import COMPLETED, FAILED, RUNNING, OperationRecord
from divebook.errors import DivergenceError, OperationError
from divebook.events import catalog
from divebook.events.codec import canonical_hash, storable
from divebook.events.values import normalize
from divebook.execution.clock import Chance
from divebook.execution.journal import Journal

HASH_DIGITS = 16
MICROSECONDS = 1_000_000


class Recorder:
    """The operations of one execution."""

    def __init__(self, journal: Journal, chance: Chance) -> None:
        self.journal, self.chance = journal, chance

    async def run(
        self,
        place: Place,
        operation_type: str,
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        usage: Callable[[Any], Mapping[str, int]] | None = None,
    ) -> Any:
        """Return the recorded result of the operation at `place`, or carry it out; see `StepContext.operation`."""
        operation_id = place.operation_id
        plain = normalize(parameters, "parameters")
        digest = canonical_hash(plain, "parameters")[:HASH_DIGITS]
        known = self._known(place, operation_id, operation_type, digest)
        if known is not None and known.status == COMPLETED:
            return known.result
        if known is not None and known.status == FAILED:
            raise OperationError(known.error or "failed", operation_id, operation_type)
        self._begin(place, operation_id, operation_type, plain, digest)
        await self.journal.durable()
        return await self._call(place, operation_id, operation_type, call, usage)

    async def sleep(self, place: Place, seconds: float) -> None:
        """Let time pass, counted from when the timer was first set."""
        operation_id, parameters = place.operation_id, {"seconds": seconds}
        digest = canonical_hash(parameters)[:HASH_DIGITS]
        known = self._known(place, operation_id, TIMER, digest)
        if known is not None and known.status == COMPLETED:
            return
        if known is None or known.status != RUNNING:
            self._begin(place, operation_id, TIMER, parameters, digest)
        started_at = self._records(place)[operation_id].started_at
        await self.journal.durable()
        await self._let_pass(started_at, seconds)
        duration = (self.journal.clock.now() - started_at) * 1000
        self._record(place, catalog.OperationCompleted(operation_id, TIMER, duration))

    async def _let_pass(self, started_at: int, seconds: float) -> None:
        left = seconds - (self.journal.clock.now() - started_at) / MICROSECONDS
        if left > 0:
            await self.journal.clock.sleep(min(left, seconds))

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

    def _begin(self, place: Place, operation_id: str, operation_type: str, parameters: Any, digest: str) -> None:
        started = catalog.OperationStarted(
            operation_id, operation_type, parameters, digest, place.iteration_index, place.key
        )
        self._record(place, started)

    async def _call(
        self,
        place: Place,
        operation_id: str,
        operation_type: str,
        call: Callable[[], Awaitable[Any]],
        usage: Callable[[Any], Mapping[str, int]] | None,
    ) -> Any:
        started_at = self.journal.clock.now()
        try:
            result = storable(await call(), "result")
        except Exception as error:  # whatever the call raises is the operation's recorded outcome
            self._record(
                place, catalog.OperationFailed(operation_id, operation_type, self._since(started_at), _text(error))
            )
            raise
        used = usage(result) if usage is not None else None
        completed = catalog.OperationCompleted(
            operation_id, operation_type, self._since(started_at), result, used or None
        )
        self._record(place, completed)
        return result

    def _since(self, started_at: int) -> int:
        return max(0, self.journal.clock.now() - started_at) * 1000

    def _record(self, place: Place, data: catalog.Payload) -> None:
        self.journal.record(data, place.path, place.step)


def _text(error: BaseException) -> str:
    """Return the error's message, or its class where it has none."""
    return str(error) or type(error).__name__
