"""Waiting for time to pass, and for signals from outside."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from numbers import Real
from typing import Any, cast

from divebook.engine.operations import SIGNAL_WAIT, TIMER, Place
from divebook.engine.records import OperationRecord
from divebook.engine.retries import names_of
from divebook.errors import StepError, shown_number
from divebook.events import catalog
from divebook.events.codec import checked
from divebook.execution.beyond import Beside
from divebook.execution.once import Once
from divebook.execution.unrecorded_waits import engine_code
from divebook.execution.waits import Waits
from divebook.execution.wanted import Wanted
from divebook.text.durations import parse_duration
from divebook.text.ranges import MOST_SECONDS

MICROSECONDS = 1_000_000


def seconds_of(value: Any, call: str) -> float:
    """Return a number of seconds as it is.

    Raises
    ------
    StepError
        It is something else.
    """
    is_number = type(value) is not bool and isinstance(value, Real)
    if is_number and abs(value) <= MOST_SECONDS:
        return cast("float", value)
    wanted = ""
    with suppress(ValueError):
        wanted = f"; write {parse_duration(value):g}" if isinstance(value, str) else ""
    if isinstance(value, timedelta):
        wanted = "; write its total_seconds()"
    allowed = f" of at most {MOST_SECONDS:,} (100 years)" if is_number and abs(value) > MOST_SECONDS else ""
    raise StepError(f"{call} takes a number of seconds{allowed}, got {shown_number(value)}{wanted}")


class Signals:
    """The timers and the waits for signals of one execution."""

    def __init__(self, once: Once, waits: Waits) -> None:
        self._once, self._waits = once, waits

    async def sleep(self, place: Place, seconds: float, holder: str | None = None) -> None:
        """Let time pass, counted from when the timer was first set; `holder` is the operation that holds it, if any."""
        wanted = Wanted.of(place, TIMER, {"seconds": seconds})

        async def carry_out(record: OperationRecord | None) -> None:
            begun = record or self._once.begin(wanted, within=holder)
            await self._once.journal.durable()
            await self._let_pass(begun.started_at, seconds)
            self._once.complete(place, begun)

        await self._once.run(wanted, carry_out, Beside(within=holder))

    async def _let_pass(self, started_at: int, seconds: float) -> None:
        clock = self._once.journal.clock
        left = seconds - (clock.now() - started_at) / MICROSECONDS
        if left > 0:
            with engine_code():  # the clock may be a person's
                await clock.sleep(min(left, seconds))

    async def take(self, place: Place, name: str, within: float | None) -> Any:
        """Return the payload of the next signal of that name that no step has taken yet.

        Raises
        ------
        OperationError
            None came in time.
        """
        checked(catalog.SignalReceived(name))  # one that could not be recorded never comes
        wanted = Wanted.of(place, SIGNAL_WAIT, {"signal": name, "seconds": within})

        async def carry_out(record: OperationRecord | None) -> Any:
            begun = record or self._once.begin(wanted)
            until = None if within is None else begun.started_at + int(within * MICROSECONDS)
            self._waits.look_again(place.path, until)
            await self._arrived(place.path, name, until)
            arrived = self._once.journal.state.signals.get(name)
            if arrived is None:
                error = TimeoutError(f"no signal {name!r} came within {within:g} seconds")
                raise self._once.fail(place, begun, str(error), names_of(error))
            self._once.complete(place, begun, arrived[0])
            return arrived[0]

        return await self._once.run(wanted, carry_out)

    async def _arrived(self, path: str, name: str, until: int | None) -> None:
        journal = self._once.journal

        def is_ready() -> bool:
            return name in journal.state.signals or (until is not None and journal.clock.now() >= until)

        while not is_ready():  # another strand may have taken what this one was woken for
            await self._waits.until(path, is_ready)
