"""The time and random bits as step code asks for them: recorded once, and the same ever after."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeAlias

from divebook.engine.operations import RANDOM_GENERATION, TIME_ACCESS
from divebook.events import catalog
from divebook.events.event import to_datetime
from divebook.execution.clock import Chance, Clock

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
