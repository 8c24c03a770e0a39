"""Time, chance and identifiers: the only place they come from.

Tests and simulations pass their own `Clock` and `Chance`.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Protocol

from divebook.events.ids import type_id

RANDOM_BITS = 74


class Clock(Protocol):
    """What the engine asks for the time."""

    def now(self) -> int:
        """Return microseconds since 1970, UTC."""

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""


class Chance(Protocol):
    """What the engine asks for chance."""

    def bits(self, count: int) -> int:
        """Return that many random bits."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        """Return microseconds since 1970, UTC."""
        return time.time_ns() // 1000

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(seconds)


class SystemChance:
    """The operating system's entropy."""

    def __init__(self) -> None:
        self._random = random.Random()  # noqa: S311 - identifiers and sample values, no secrets

    def bits(self, count: int) -> int:
        """Return that many random bits."""
        return self._random.getrandbits(count)


class Ids:
    """Makes identifiers from a clock and a source of chance."""

    def __init__(self, clock: Clock, chance: Chance) -> None:
        self._clock, self._chance = clock, chance

    def execution(self) -> str:
        """Return a new execution id."""
        return type_id("exec", self._clock.now() // 1000, self._chance.bits(RANDOM_BITS))

    def event(self, recorded_at: int) -> str:
        """Return a new event id for a moment in microseconds."""
        return type_id("event", recorded_at // 1000, self._chance.bits(RANDOM_BITS))
