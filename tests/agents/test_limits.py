"""How many requests to a model are under way at once: what a provider says of one holds for all."""

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divebook.agents.clients import FIRST, MOST, LimitState, RequestLimiter


class TooManyError(Exception):
    """What a provider answers to whoever asks too much of it."""

    def __init__(self, retry_after=None):
        super().__init__("429")
        self.status_code, self.retry_after = 429, retry_after


class Clock:
    """A clock that stands still."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def limiter(clock):
    return RequestLimiter("openai:gpt-6", clock)


async def turns():
    """Let everything run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def entered(limiter, number):
    """Hold slots; return them."""
    slots = [limiter.slot() for _ in range(number)]
    for slot in slots:
        await slot.__aenter__()
    return slots


async def ended(slots, error=None):
    for slot in slots:
        await slot.__aexit__(type(error) if error else None, error, None)


def test_so_many_begin_and_the_next_waits_for_one_to_end(limiter):
    async def play():
        first, *rest = await entered(limiter, FIRST)
        next_one = asyncio.ensure_future(entered(limiter, 1))
        await turns()
        waited = limiter.state
        await ended([first])
        await ended([*rest, *await next_one])
        return waited

    assert asyncio.run(play())[1:4] == (FIRST, FIRST, 1)
    assert limiter.under_way == 0


def test_a_429_halves_the_limit_once_however_many_requests_hear_it(limiter):
    async def play():
        await ended(await entered(limiter, FIRST), TooManyError())
        halved = limiter.limit
        await ended(await entered(limiter, 1), TooManyError())
        return halved, limiter.limit

    assert asyncio.run(play()) == (FIRST // 2, FIRST // 4)


def test_it_never_shuts_for_good(limiter):
    async def play():
        for _ in range(9):
            await ended(await entered(limiter, 1), TooManyError())
        return limiter.limit

    assert asyncio.run(play()) == 1


def test_nobody_asks_before_the_provider_wants_it(limiter, clock):
    async def play():
        slots = await entered(limiter, 2)
        await ended(slots[:1], TooManyError(retry_after=7))
        waiting = asyncio.ensure_future(entered(limiter, 1))
        await ended(slots[1:])
        await turns()
        standings = [limiter.state]
        clock.now += 6.9
        limiter.admit()
        await turns()
        standings.append(limiter.state)
        clock.now += 0.1
        limiter.admit()
        await ended(await waiting)
        return [str(standing) for standing in standings], limiter.state.pause

    said, left = asyncio.run(play())
    assert said == [
        "openai:gpt-6: 0 of at most 10 concurrent requests, 1 waiting, paused for 7 s at the provider's request",
        "openai:gpt-6: 0 of at most 10 concurrent requests, 1 waiting, paused for 1 s at the provider's request",
    ]
    assert left == 0


def test_the_pause_ends_by_itself():
    async def play():
        limiter = RequestLimiter("m")
        await ended(await entered(limiter, 1), TooManyError(retry_after=0.001))
        await ended(await entered(limiter, 1))
        return limiter.state

    assert asyncio.run(play()) == LimitState("m", 0, FIRST // 2, 0, 0)


def test_it_grows_by_one_after_a_round_that_was_full_and_clean(limiter):
    async def play():
        await ended(await entered(limiter, FIRST))
        grown = limiter.limit
        for _ in range(3 * FIRST):
            await ended(await entered(limiter, 1))
        return grown, limiter.limit

    assert asyncio.run(play()) == (FIRST + 1, FIRST + 1)


def test_it_grows_no_further_than_is_sensible(limiter):
    async def play():
        for _ in range(MOST):
            await ended(await entered(limiter, limiter.limit))
        return limiter.limit

    assert asyncio.run(play()) == MOST


def test_an_error_of_another_kind_changes_nothing(limiter):
    asyncio.run(_failed(limiter, ValueError("no")))
    assert limiter.limit == FIRST


async def _failed(limiter, error):
    await ended(await entered(limiter, FIRST), error)


def test_what_a_429_became_counts_as_well(limiter):
    error = RuntimeError("the operation failed")
    error.__cause__ = TooManyError(retry_after=3)
    asyncio.run(_failed(limiter, error))
    assert (limiter.limit, limiter.state.pause) == (FIRST // 2, 3)


def test_who_gives_up_keeps_nobody_waiting(limiter):
    async def play():
        held = await entered(limiter, FIRST)
        waiting = [asyncio.ensure_future(entered(limiter, 1)) for _ in range(3)]
        await turns()
        waiting[0].cancel()  # while it waits
        waiting[1].cancel()
        await ended(held[:1])  # it is let through and given up at once
        await turns()
        slots = await waiting[2]
        await ended([*held[1:], *slots])

    asyncio.run(play())
    assert (limiter.under_way, limiter.state.waiting) == (0, 0)


@given(st.lists(st.sampled_from(["enter", "end", "fail", "busy", "cancel", "pass_by"]), max_size=80))
def test_no_slot_is_lost_and_the_limit_is_kept_whatever_happens(played):
    async def play():
        game = Game()
        for move in played:
            before = game.limiter.under_way
            getattr(game, move)()
            await turns()
            assert game.limiter.under_way <= max(before, game.limiter.limit)
        game.pass_by()
        while game.tasks:
            game.end()
        await turns()
        return game.limiter.state

    standing = asyncio.run(play())
    assert (standing.under_way, standing.waiting) == (0, 0)


class Game:
    """Requests that begin, end, fail and are given up in any order."""

    def __init__(self):
        self.clock, self.tasks = Clock(), []
        self.limiter = RequestLimiter("m", self.clock)

    def enter(self):
        end = asyncio.get_running_loop().create_future()
        self.tasks.append((asyncio.ensure_future(self.hold(end)), end))

    async def hold(self, end):
        with contextlib.suppress(ValueError, TooManyError):
            async with self.limiter.slot():
                if error := await end:
                    raise error

    def end(self, error=None):
        if self.tasks:
            self.tasks.pop(0)[1].set_result(error)

    def fail(self):
        self.end(ValueError())

    def busy(self):
        self.end(TooManyError(retry_after=4))

    def cancel(self):
        if self.tasks:
            self.tasks.pop()[0].cancel()

    def pass_by(self):
        self.clock.now += 5
        self.limiter.admit()
