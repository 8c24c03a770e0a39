"""Sources of time and random bits, the generator of ids, and the protocol `StepLog`. Also texts that describe the
result of a call if the log cannot store the result.

A lost result is the return value of a call that succeeded, but whose value the log cannot store. `StepLog` is the part
of the journal that code of steps uses.

Nothing else in the engine reads the time or random bits. Tests and simulations pass their own `Clock` and `Chance`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

from divebook.errors import DivebookError
from divebook.events import Event
from divebook.events.catalog import Payload
from divebook.events.event import PAIRS, type_id
from divebook.text.format import as_unicode
from divebook.text.redaction import shared

if TYPE_CHECKING:  # `%load_ext` loads this module, and must be quick
    from divebook.engine.instructions import Fact
    from divebook.engine.state import ExecutionState

# An id has 48 bits of time in milliseconds and 74 random bits. Events count in the last ten of these.
RANDOM_BITS = 74
COUNTED_BITS = 10
SHARED_BITS = RANDOM_BITS - COUNTED_BITS


class Clock(Protocol):
    """Protocol of the source from which the engine reads the time."""

    def now(self) -> int:
        """Return the time in microseconds since 1970, UTC."""

    async def sleep(self, seconds: float, /) -> None:
        """Sleep for this number of seconds, without blocking the event loop."""


class Chance(Protocol):
    """Protocol of the source from which the engine gets random bits."""

    def bits(self, count: int, /) -> int:
        """Return `count` random bits."""


class SystemClock:
    """Clock that reads the time of the operating system and sleeps on the running event loop."""

    def now(self) -> int:
        """Return the time in microseconds since 1970, UTC."""
        return time.time_ns() // 1000

    async def sleep(self, seconds: float) -> None:
        """Sleep for some seconds on the running event loop."""
        await asyncio.sleep(seconds)


class SystemChance:
    """Random bits from a generator that the operating system seeds."""

    def __init__(self) -> None:
        self._random = random.Random()  # noqa: S311 - identifiers and sample values, no secrets

    def bits(self, count: int) -> int:
        """Return `count` random bits."""
        return self._random.getrandbits(count)


class Ids:
    """Generator of execution ids and event ids, from a clock and random bits.

    Event ids of one millisecond share their first 64 random bits, and the last ten bits count up. The ids therefore
    sort in the order of creation, and only the first id of a millisecond has to be assembled in full.
    """

    def __init__(self, clock: Clock, chance: Chance) -> None:
        self._clock = clock
        self._chance = chance
        self._milliseconds = -1
        self._beginning = ""
        self._count = 0
        self.following = 0
        """Number of ids that directly follow the latest event id, for further events of the same record."""

    def execution(self) -> str:
        """Return a new execution id: ``exec_`` and 26 characters."""
        return type_id("exec", self._clock.now() // 1000, self._chance.bits(RANDOM_BITS))

    def event(self, recorded_at: int, more: int = 0) -> str:
        """Return a new event id for an event that is recorded at `recorded_at`, in microseconds since 1970. `more` is
        the number of the ids after the latest one that its record has used, at most `following`.
        """
        milliseconds = recorded_at // 1000
        count = self._count + more
        # `PAIRS` has 1024 entries: the last ten bits are the count, and a full millisecond gets new random bits.
        if milliseconds != self._milliseconds or count == len(PAIRS):
            self._milliseconds = milliseconds
            count = 0
            self._beginning = type_id("event", milliseconds, self._chance.bits(SHARED_BITS) << COUNTED_BITS)[:-2]
        self._count = count + 1
        self.following = len(PAIRS) - count - 1
        return self._beginning + PAIRS[count]


# --- log of an execution as seen by step code ------------------------------------------------------------------------
#
# `divebook.runtime.journal` writes such a log. `divebook.replay.tape` compares with a recorded one.


class StepLog(Protocol):
    """Protocol of the log of one execution, as the code that runs the steps uses it."""

    @property
    def execution_id(self) -> str:
        """Id of the execution."""

    @property
    def clock(self) -> Clock:
        """Source of the time for this execution."""

    @property
    def error(self) -> Exception | None:
        """Error because of which nothing can be recorded any more, or None."""

    @property
    def recorded(self) -> int:
        """Sequence number of the last recorded event."""

    @property
    def state(self) -> ExecutionState:
        """State of the execution: the fold of all events recorded so far."""

    @property
    def present(self) -> ExecutionState:
        """Current state of the execution, possibly still mutable. Read fields from it at once, and do not keep a
        reference.
        """

    @property
    def moment(self) -> int:
        """Time of the latest record, in microseconds since 1970."""

    def record(
        self,
        data: Payload,
        path: str = "",
        step: str = "",
        *,
        more: Sequence[Payload] = (),
        may_wait: bool = False,
        now: int | None = None,
    ) -> None:
        """Append an event, given by its payload, path and step, and the events `more` of the same time, path and step.
        An event with `may_wait` may be written later, together with the next event. `now` is the present time, if it is
        known.
        """

    def record_all(self, facts: Sequence[Fact]) -> None:
        """Append several events, each with its path and step."""

    async def durable(self) -> None:
        """Wait until all events recorded so far are durable in the store."""

    async def nearly_durable(self) -> None:
        """Wait until an idempotent call may begin, whose start was just recorded."""

    def require_durable(self) -> None:
        """Require that the events recorded so far are durable before any further call begins."""

    async def event(self, sequence: int) -> Event:
        """Return the event with a sequence number, even if it is not written yet."""

    def seconds_since(self, moment: int) -> float:
        """Return the seconds since a time in microseconds. Time before the latest resumption of the execution is not
        counted.
        """


# --- lost results ----------------------------------------------------------------------------------------------------
#
# A call can return a value that the log cannot store: a UUID, a set, an open file, a value that is too large.
#
# Such a call took effect, and repeating it on resume could pay twice. Its recorded end is therefore a failure with a
# lost result (`divebook.events.catalog.OperationFailed.lost`), and a person is asked before it is repeated
# (`tests/runtime/test_lost_results.py`). A description of the result is recorded for that question.


LOST = "__divebook_lost__"
"""Attribute of an error raised after the call had returned, perhaps in another process: description of the result."""
FIELDS = {"type", "text", "digest"}
MOST_TEXT = 2_000
"""Maximum number of characters of a result that are recorded."""
MOST_OF_LONG = 100_000
"""Maximum number of characters or bytes of a long string that are described."""
ADVICE = (
    "The call itself returned. When you resume, you are asked for its result, and the call is not repeated without "
    "your answer"
)


def described(result: object) -> dict[str, str]:
    """Return a description of the result of a call. It is recorded if the log cannot store the result itself.

    Its keys are ``type``, ``text`` (the `repr` without secrets, shortened), and ``digest`` (SHA-256 of the full text).
    """
    kind = type(result)
    try:
        # A string of many megabytes is cut before `repr` copies it.
        text = repr(result[:MOST_OF_LONG] if isinstance(result, str | bytes) else result)
    except BaseException as error:  # noqa: BLE001 - `repr` of a user's class may raise anything
        text = f"<{kind.__name__}, whose repr raised {type(error).__name__}>"
    # Secrets are removed before the text is cut: half a secret would not be recognized.
    text = shared().text(as_unicode(text))
    digest = sha256(text.encode()).hexdigest()
    shown = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}... ({len(text) - MOST_TEXT:,} more characters)"
    return {"type": as_unicode(f"{kind.__module__}.{kind.__qualname__}"), "text": shown, "digest": digest}


def mark_lost(error: BaseException, result: object) -> None:
    """Add a description of a call's result to an error that was raised after the call had returned, for example because
    the log cannot store the result. People can then still learn the result.
    """
    setattr(error, LOST, described(result))


def lost_in(error: BaseException) -> Mapping[str, str] | None:
    """Return the description that `mark_lost` has attached to an error or to one of its causes. It describes the result
    of a call that could not be recorded. Return None if nothing is attached.

    An attribute that user code has set with other types is ignored.
    """
    link: BaseException | None = error
    # The limit protects from causes that form a cycle.
    for _ in range(10):
        if link is None:
            return None
        lost = vars(link).get(LOST)
        if isinstance(lost, dict) and lost.keys() == FIELDS and all(isinstance(part, str) for part in lost.values()):
            return lost
        link = link.__cause__
    return None


def add_advice(error: BaseException) -> None:
    """Add to the message of a `DivebookError` the advice that a resumed execution asks a person for the result of the
    call. Errors of other classes stay unchanged.
    """
    if isinstance(error, DivebookError) and error.args and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]}. {ADVICE}", *error.args[1:])


def told_of(lost: Mapping[str, Any]) -> str:
    """Describe the result of a call that could not be recorded. Return a phrase for the question to a person whether to
    repeat the call. `lost` has the text and type of the result.
    """
    return f"it returned {lost.get('text')} ({lost.get('type')}), which could not be recorded"
