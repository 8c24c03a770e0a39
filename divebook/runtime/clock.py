"""Time, chance and identifiers: the only place they come from.

Tests and simulations pass their own `Clock` and `Chance`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Protocol

from divebook.engine.bounds import Fact
from divebook.engine.state import ExecutionState
from divebook.errors import DivebookError
from divebook.events import Event
from divebook.events.catalog import Payload
from divebook.events.event import PAIRS, type_id
from divebook.text.format import as_unicode
from divebook.text.redaction import shared

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


# What the code of steps asks of the log of its execution: to record facts, and what they have led to.
#
# `divebook.runtime.journal` writes one; `divebook.replay.tape` compares with one that is written already.


class StepLog(Protocol):
    """The log of one execution, as those see it who act on its paths."""

    @property
    def execution_id(self) -> str:
        """The execution this is the log of."""

    @property
    def clock(self) -> Clock:
        """Tells the time."""

    @property
    def error(self) -> Exception | None:
        """Why nothing more can be recorded, if that is so."""

    @property
    def recorded(self) -> int:
        """Sequence number up to which events are recorded."""

    @property
    def state(self) -> ExecutionState:
        """The fold of everything recorded so far."""

    @property
    def present(self) -> ExecutionState:
        """The same to look at and not to keep: it may go on changing."""

    @property
    def moment(self) -> int:
        """When the latest fact was recorded, microseconds since 1970."""

    def record(self, data: Payload, path: str = "", step: str = "", *, may_wait: bool = False) -> None:
        """Append a fact; one that `may_wait` need not be written at once."""

    def record_all(self, facts: Sequence[Fact]) -> None:
        """Append several facts."""

    async def durable(self) -> None:
        """Return when everything recorded so far is written."""

    async def event(self, sequence: int) -> Event:
        """Return one event."""

    def seconds_since(self, moment: int) -> float:
        """Return how long ago a moment was, without the time before the last rest."""


# Calls that returned, but whose result the log cannot hold: a UUID, a set, an open file, a value that is too large.
#
# Such a call took effect. To make it again on resume could pay twice, so its end is an outcome of its own: it failed,
# and its result was lost (`divebook.events.catalog.OperationFailed.lost`). A person is asked before it is made again
# (`tests/execution/test_lost_results.py`). What can be kept of the result is kept for that question.


LOST = "__divebook_lost__"
"""Attribute of an error that was raised after the call had returned, also in another process: its result, described."""
FIELDS = {"type", "text", "digest"}
MOST_TEXT = 2_000
"""Characters of a result that are kept."""
MOST_OF_LONG = 100_000
"""Characters or bytes of a long string of which the description is made."""
ADVICE = "The call itself returned: resuming asks what its result was, and does not call again unasked"


def described(result: object) -> dict[str, str]:
    """Return what is kept of a result: its ``type``, its ``text`` without secrets, and the SHA-256 of that text."""
    kind = type(result)
    try:
        text = repr(result[:MOST_OF_LONG] if isinstance(result, str | bytes) else result)
    except BaseException as error:  # noqa: BLE001 - a person's class may raise anything when its repr is made
        text = f"<{kind.__name__}, whose repr raised {type(error).__name__}>"
    text = shared().text(as_unicode(text))
    digest = sha256(text.encode()).hexdigest()
    shown = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}... ({len(text) - MOST_TEXT:,} more characters)"
    return {"type": as_unicode(f"{kind.__module__}.{kind.__qualname__}"), "text": shown, "digest": digest}


def mark_lost(error: BaseException, result: object) -> None:
    """Note in an error that it was raised after the call had returned, and what that returned."""
    setattr(error, LOST, described(result))


def lost_in(error: BaseException) -> Mapping[str, str] | None:
    """Return the description of the result that `mark_lost` has noted, in the error or in one that it was raised from.

    One that was made up by a person's code, of other types, is none.
    """
    link: BaseException | None = error
    for _ in range(10):
        if link is None:
            return None
        lost = vars(link).get(LOST)
        if isinstance(lost, dict) and lost.keys() == FIELDS and all(isinstance(part, str) for part in lost.values()):
            return lost
        link = link.__cause__
    return None


def add_advice(error: BaseException) -> None:
    """Add to the message of one of divebook's errors what a resumption does."""
    if isinstance(error, DivebookError) and error.args and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]}. {ADVICE}", *error.args[1:])


def told_of(lost: Mapping[str, Any]) -> str:
    """Return what a person who is asked is told of the result."""
    return f"it returned {lost.get('text')} ({lost.get('type')}), which could not be recorded"
