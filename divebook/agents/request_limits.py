"""Adaptive concurrency limits of model requests, one per model and key, for the whole process.

A provider answers 429 to any execution once all of them together send too much, so all requests of one model and key
share a limiter. It starts with `FIRST` concurrent requests, halves the limit after a 429, and raises it by one after
each round without a 429. Example: at a limit of 20, a 429 lowers it to 10. Further 429s for requests of the same round
change nothing. Ten successes later the limit is 11, if it was used up meanwhile. During a pause that the provider asks
for (Retry-After) the limiter admits no request. A waiting request has not started: it is not in the log, and its time
limit does not run.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple, Self

from divebook.engine.retries import chain_of

if TYPE_CHECKING:
    from pydantic_ai.models import Model


FIRST = 20


LEAST = 1


MOST = 200


TOO_MANY = 429


class RequestLimiters:
    """Limiters of this process, by provider, address, key and model."""

    def __init__(self) -> None:
        self._limiters: dict[tuple[int, str, str, str, str], RequestLimiter] = {}

    def slot(self, model: Model) -> Permit | None:
        """Return the permit that a request needs; None for a model without a provider, such as a script.

        A fallback model is limited by its first model, which every request asks first. Each of its models reports its
        own outcomes (`divebook.agents.fallbacks`).
        """
        from pydantic_ai.models.fallback import FallbackModel  # lazy: not needed to read a log

        limiter = self._of(model)
        return None if limiter is None else limiter.slot(reports=not isinstance(model, FallbackModel))

    def observed(self, model: Model, *, is_counted: bool) -> AbstractContextManager[None]:
        """Record the outcome of a part of a request; see `RequestLimiter.observed`."""
        limiter = self._of(model)
        return nullcontext() if limiter is None else limiter.observed(is_counted=is_counted)

    def _of(self, model: Model) -> RequestLimiter | None:
        from pydantic_ai.models.fallback import FallbackModel
        from pydantic_ai.models.wrapper import WrapperModel

        while isinstance(model, FallbackModel | WrapperModel):
            model = model.models[0] if isinstance(model, FallbackModel) else model.wrapped
        provider = model.provider
        if provider is None:
            return None
        key = getattr(provider.client, "api_key", None)
        digest = hashlib.sha256(str(key).encode()).hexdigest()
        place = os.getpid(), provider.name, provider.base_url, digest, model.model_name
        limiter = self._limiters.get(place)
        return limiter or self._limiters.setdefault(place, RequestLimiter(model.model_id))

    def states(self) -> list[LimitState]:
        """Return the states of limiters that are in use or paused. Safe from any thread."""
        states = [limiter.state for limiter in list(self._limiters.values())]
        return [each for each in states if each.under_way or each.waiting or each.pause]


class RequestLimiter:
    """Adaptive limit of concurrent requests to one model. Bound to one event loop.

    Parameters
    ----------
    model
        Displayed name.
    clock
        Monotonic clock in seconds.
    """

    def __init__(self, model: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.model = model
        self._clock = clock
        self.limit = FIRST
        self.under_way = 0
        self.round = 0
        self._clean = 0
        """Successful requests since the last change of the limit."""
        self._is_used = False
        """True if the limit was reached since its last change."""
        self._opens_at = -math.inf
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._alarm: asyncio.TimerHandle | None = None

    def slot(self, *, reports: bool = True) -> Permit:
        """Return a permit for one request.

        It reports the outcome of the request, unless the request's parts do (`reports`).
        """
        return Permit(self, reports=reports)

    @contextmanager
    def observed(self, *, is_counted: bool) -> Iterator[None]:
        """Record the outcome of a part of a request that runs inside the block.

        `is_counted`: the part already holds a slot here.
        """
        began = self.round
        if not is_counted:
            self._count()
        try:
            yield
        except Exception as error:
            self._note_failure(began, error)
            raise
        else:
            self._note_success()
        finally:
            self.under_way -= not is_counted
            self.admit()

    @property
    def state(self) -> LimitState:
        """Current state. Safe from any thread."""
        pause = max(0.0, self._opens_at - self._clock())
        return LimitState(self.model, self.under_way, self.limit, len(self._waiting), pause)

    async def enter(self) -> int:
        """Wait for admission; return the number of the current round."""
        if self._waiting or not self._has_room():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            self.admit()
            try:
                await waiter
            except asyncio.CancelledError:
                self._give_back(waiter)
                raise
        else:
            self._count()
        return self.round

    def leave(self, began: int | None, error: BaseException | None) -> None:
        """End a request. `began` is the round in which it was admitted; None if its parts have reported the outcome."""
        self.under_way -= 1
        if began is None:
            pass
        elif error is None:
            self._note_success()
        else:
            self._note_failure(began, error)
        self.admit()

    def admit(self) -> None:
        """Let waiting requests start while there is room. Set a timer if a pause has to end first."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        while self._waiting and self._has_room():
            waiter = self._waiting.popleft()
            if not waiter.done():  # a cancelled waiter that has not run yet is skipped
                self._count()
                waiter.set_result(None)
        pause = self._opens_at - self._clock()
        if self._waiting and pause > 0:
            self._alarm = asyncio.get_running_loop().call_later(pause, self.admit)

    def _has_room(self) -> bool:
        return self.under_way < self.limit and self._clock() >= self._opens_at

    def _count(self) -> None:
        self.under_way += 1
        self._is_used |= self.under_way >= self.limit

    def _give_back(self, waiter: asyncio.Future[None]) -> None:
        """Remove a cancelled request, which may have been admitted at the same moment."""
        if not waiter.cancelled():
            self.under_way -= 1
        elif waiter in self._waiting:
            self._waiting.remove(waiter)
        self.admit()

    def _note_success(self) -> None:
        self._clean += 1
        if self._clean >= self.limit and self._is_used:
            self._change(min(MOST, self.limit + 1))

    def _note_failure(self, began: int, error: BaseException) -> None:
        chain = chain_of(error)
        stated = [getattr(link, "retry_after", None) for link in chain]
        delays = [delay for delay in stated if isinstance(delay, int | float)]
        self._opens_at = max(self._opens_at, self._clock() + max(delays, default=0))
        if began == self.round and any(getattr(link, "status_code", None) == TOO_MANY for link in chain):
            self.round += 1  # requests of the old round get the same 429 and must not halve the limit again
            self._change(max(LEAST, self.limit // 2))

    def _change(self, limit: int) -> None:
        self.limit = limit
        self._clean = 0
        self._is_used = False


class LimitState(NamedTuple):
    """State of a limiter, for display."""

    model: str
    under_way: int
    limit: int
    waiting: int
    """Number of requests that wait for admission."""
    pause: float
    """Remaining seconds of a pause in which no request is admitted; 0 for no pause."""

    def __str__(self) -> str:
        paused = f", waits {math.ceil(self.pause)} s as its provider asks" if self.pause else ""
        waiting = f", {self.waiting} more wait" if self.waiting else ""
        return f"{self.model}: {self.under_way} of {self.limit} at once{waiting}{paused}"


class Permit:
    """Slot of one request, held from before it is recorded until it has ended.

    It reports the outcome to its limiter.
    """

    def __init__(self, limiter: RequestLimiter, *, reports: bool = True) -> None:
        self._limiter = limiter
        self._reports = reports
        self._began: int | None = None

    async def __aenter__(self) -> Self:
        self._began = await self._limiter.enter()
        return self

    async def __aexit__(self, *raised: object) -> None:
        error = raised[1]
        self._leave(error if isinstance(error, BaseException) else None)

    def release(self) -> None:
        """Release the slot, so that the next request can start. Idempotent."""
        self._leave(None)

    def _leave(self, error: BaseException | None) -> None:
        if self._began is not None:
            began = self._began
            self._began = None
            self._limiter.leave(began if self._reports else None, error)


REQUEST_LIMITERS = RequestLimiters()
