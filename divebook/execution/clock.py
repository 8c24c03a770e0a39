"""Time, chance and identifiers: the only place they come from.

Tests and simulations pass their own `Clock` and `Chance`.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Protocol

from divebook.events.ids import PAIRS, type_id

MICROSECONDS = 1_000_000
"""Of a second; the unit of every recorded time."""
RANDOM_BITS = 74
COUNTED_BITS = 10
SHARED_BITS = RANDOM_BITS - COUNTED_BITS


class Clock(Protocol):
    """Tells the engine the time."""

    def now(self) -> int:
        """Return microseconds since 1970, UTC."""

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""


class Chance(Protocol):
    """Gives the engine random bits."""

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
    """Makes identifiers from a clock and a source of chance.

    Event ids of one millisecond share their 64 first random bits; the last ten count, so that they sort in the order in
    which they were made and only the first of them has to be put together.
    """

    def __init__(self, clock: Clock, chance: Chance) -> None:
        self._clock, self._chance = clock, chance
        self._milliseconds, self._beginning, self._count = -1, "", 0

    def execution(self) -> str:
        """Return a new execution id."""
        return type_id("exec", self._clock.now() // 1000, self._chance.bits(RANDOM_BITS))

    def event(self, recorded_at: int) -> str:
        """Return a new event id for a moment in microseconds."""
        milliseconds, count = recorded_at // 1000, self._count
        if milliseconds != self._milliseconds or count == len(PAIRS):
            self._milliseconds, count = milliseconds, 0
            self._beginning = type_id("event", milliseconds, self._chance.bits(SHARED_BITS) << COUNTED_BITS)[:-2]
        self._count = count + 1
        return self._beginning + PAIRS[count]

    def follow(self) -> bool:
        """Take the id after the latest one, its `successor`; return False if there is none."""
        follows = 0 < self._count < len(PAIRS)
        self._count += follows
        return follows
