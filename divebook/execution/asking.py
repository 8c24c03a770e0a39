"""Questions that code asks a person, and those that a bound asks before a model is called."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from divebook.engine.bounds import Exhausted, call_bound, facts_about, fails_at_bounds, question_about, require_price
from divebook.engine.operations import Place, Reserved
from divebook.errors import BoundExceededError, InterruptExpiredError
from divebook.events import catalog
from divebook.events.codec import checked
from divebook.events.values import normalize
from divebook.execution.once import Once
from divebook.execution.strands import Suspended
from divebook.execution.waits import Waits
from divebook.questions import Question
from divebook.questions.kinds import EXPIRED

MICROSECONDS = 1_000_000


class Asking:
    """Asks each question once; its answer stays with the question that was shown."""

    def __init__(self, once: Once, waits: Waits) -> None:
        self._once, self._waits = once, waits
        self._model_calls = 0
        """Model calls that are under way: each holds back what it may spend at most until it has ended."""
        self._next_end: asyncio.Event | None = None
        """Set when the next of them ends; None while nothing waits for that."""

    async def ask(self, place: Place, asked: Question, expires_in: float | None = None) -> Question:
        """Return the question that belongs to `place` with its answer; ask it if that has not been done.

        Raises
        ------
        Suspended
            There is no answer yet.
        InterruptExpiredError
            There never will be, and the question has no default.
        DivergenceError
            The log has another question, or a call, at this place.
        """
        wanted = asked._replace(id=self._once.question_id(place))
        if await self._once.look_up_question(place, wanted) is None:
            if self._once.only_settles(self._once.journal.present, place):
                raise Suspended
            self._raise(place, wanted, expires_in)
            settled = None if self._once.beyond is None else self._once.beyond.settled(wanted)
            if settled is not None:
                self._once.record(place, settled)
        answered = await self._waits.answer(place.path, wanted.id)
        if answered.status == EXPIRED and answered.response is None:
            raise InterruptExpiredError(answered.id, answered.question)
        return answered

    def _raise(self, place: Place, asked: Question, expires_in: float | None) -> None:
        expires_at = None
        if expires_in is not None:
            expires_at = self._once.journal.clock.now() + int(expires_in * MICROSECONDS)
        raised = catalog.InterruptRaised(
            asked.id,
            asked.kind,
            asked.question,
            asked.message,
            normalize(asked.data, "data"),
            normalize(asked.schema, "schema"),
            asked.operation_id,
            expires_at=expires_at,
            default=asked.default,
            optional=asked.optional or None,
        )
        self._once.record(place, checked(raised))
        self._waits.look_again(place.path, expires_at)

    def is_within_bounds(self, reserved: Reserved) -> bool:
        """Whether the bounds of the execution allow a model call that may consume so much."""
        return self._reached(reserved) is None

    def _reached(self, reserved: Reserved) -> Exhausted | None:
        return call_bound(self._once.journal.state, reserved, is_alone=not self._model_calls)

    async def within_bounds(self, place: Place, reserved: Reserved) -> None:
        """Return when the bounds of the execution allow a model call that may consume so much.

        Raises
        ------
        BoundExceededError
            They do not, and a person said stop, or no person is to be asked.
        """
        journal = self._once.journal
        require_price(journal.state.bounds, reserved)
        while (found := self._reached(reserved)) is not None:
            if found.may_pass and await self.model_call_ended():
                continue
            if fails_at_bounds(journal.state):
                raise BoundExceededError(str(found), found.bound, found.reason)
            if journal.state.stopped is not None:
                raise BoundExceededError(journal.state.stopped[0], found.bound, journal.state.stopped[1])
            interrupt_id = question_about(journal.state, found)
            journal.record_all(facts_about(journal.state, found, place.path, place.step))
            await self._waits.answer(place.path, interrupt_id)

    @contextmanager
    def model_call(self) -> Iterator[None]:
        """Surround a model call that has reserved a part of a budget, until its end is recorded."""
        self._model_calls += 1
        try:
            yield
        finally:
            self._model_calls -= 1
            if self._next_end is not None:
                self._next_end.set()
                self._next_end = None

    async def model_call_ended(self) -> bool:
        """Wait until one of the model calls that are under way ends; return False at once where there is none.

        A model call waits for nothing but its provider, so this comes to an end. A caller therefore counts as running
        meanwhile, and is not parked as if it waited for a person
        (test_calls_wait_for_the_budget_that_others_under_way_hold).
        """
        if not self._model_calls:
            return False
        if self._next_end is None:
            self._next_end = asyncio.Event()
        await self._next_end.wait()
        return True
