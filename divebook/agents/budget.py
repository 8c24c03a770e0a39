"""What one turn of an agent may spend: its own `Bounds`, beside those of the execution.

What the turns of its subordinates spend counts as well. Before each request that the log has not yet, what the request
may consume at most must be left; at a bound a person is asked, as at those of the execution, or the turn fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from divebook.bounds import FAIL, Bounds
from divebook.engine.bounds import (
    Consumption,
    Exhausted,
    asked_about,
    bound_met,
    left_after,
    raised,
    require_price,
    within,
)
from divebook.errors import BoundExceededError
from divebook.questions.kinds import RESOURCE_EXHAUSTED, STOP

if TYPE_CHECKING:
    from divebook.agents.turn import TurnContext
    from divebook.engine.operations import Reserved


class TurnBudget:
    """What a turn has spent, and what it still may.

    Parameters
    ----------
    above
        That of the agent which handed it the work, if one did.
    share
        What that gave it, where it handed on more than one work at once.
    """

    def __init__(
        self, agent: str, bounds: Bounds, above: TurnBudget | None = None, share: Bounds | None = None
    ) -> None:
        self.agent, self.consumed = agent, Consumption()
        self.bounds = bounds if share is None else within(bounds, share)
        self._share = share
        self._release: asyncio.Future[None] | None = None
        self.line: tuple[TurnBudget, ...] = (self, *(() if above is None else above.line))
        """Itself and those above, the nearest first."""

    @property
    def left(self) -> Bounds:
        """What may still be spent, in the bounds of those above as well."""
        left = Bounds()
        for budget in self.line:
            left = within(left_after(budget.bounds, budget.consumed), left)
        return left

    async def admit(self, context: TurnContext, reserved: Reserved) -> None:
        """Return when a request that may consume so much fits, in the bounds of those above as well.

        Raises
        ------
        BoundExceededError
            It does not, and a person said stop, or no person is to be asked.
        """
        for budget in self.line:
            require_price(budget.bounds, reserved)
        # Each is looked at again after every question: what runs beside it has gone on meanwhile
        # (test_while_a_bound_above_is_asked_about_those_below_may_be_reached).
        while (met := next(((one, found) for one in self.line if (found := one.met(reserved))), None)) is not None:
            budget, found = met
            # Calls under way return what they do not spend of their reservation.
            if not (found.may_pass and await context.wait_beside_others(budget.next_release())):
                await budget.ask(context, found)

    def next_release(self) -> asyncio.Future[None]:
        """Return what is done when the next request that counts here ends, and gives back what it did not spend."""
        if self._release is None:
            self._release = asyncio.get_running_loop().create_future()
        return self._release

    def met(self, reserved: Reserved) -> Exhausted | None:
        """Return the first of its own bounds that forbids a request which may consume so much."""
        return bound_met(self.bounds, self.consumed, reserved)

    async def ask(self, context: TurnContext, found: Exhausted) -> None:
        """Raise a bound as a person says."""
        if self.bounds.on_exhausted == FAIL:
            raise self._error(found)
        key = f"bound-{self.agent}-{found.bound}-{found.limit}"
        # An answer belongs to the question that was shown: how it was worded, and how much was spent then, stays as it
        # was recorded (test_a_question_about_a_bound_keeps_its_recorded_wording).
        recorded = context.asked(key)
        if recorded is not None:
            question, data = recorded.question, recorded.data
        else:
            question, own = asked_about(found, f"{self._owner(found)}: ")
            data = {**own, "agent": self.agent}
        asked = await context.question(RESOURCE_EXHAUSTED, question, key=key, data=data)
        response = asked.response or {}
        if response.get("decision") == STOP:
            raise self._error(found)
        self.bounds = raised(self.bounds, found.bound, None, response["data"]["to"])

    def _error(self, found: Exhausted) -> BoundExceededError:
        """Return the error of a bound that is not raised."""
        owner = self.line[1].agent if self._is_share(found) else self.agent
        advice = f"Raise `{found.name}` in the Bounds of agent {owner!r} and resume."
        return BoundExceededError(f"{self._owner(found)}: {found.summary} {advice}", found.bound, found.reason)

    def _owner(self, found: Exhausted) -> str:
        """Return whose bound is met, as people read it."""
        agent = f"Agent {self.agent!r}"
        return f"{agent} (its share of the bounds of agent {self.line[1].agent!r})" if self._is_share(found) else agent

    def _is_share(self, found: Exhausted) -> bool:
        """Whether a bound that is met is what the agent above gave it of its own."""
        given = None if self._share is None else getattr(self._share, found.bound)
        return given is not None and str(given) == str(found.limit)

    @contextmanager
    def holding(self, reserved: Reserved) -> Iterator[None]:
        """Count a request that is under way with what it may consume."""
        for budget in self.line:
            budget.consumed = budget.consumed.begun(reserved)
        try:
            yield
        finally:
            for budget in self.line:
                budget.release(reserved)

    def release(self, reserved: Reserved) -> None:
        """Count a request no longer as under way, and let requests look again that wait for its reservation."""
        self.consumed = self.consumed.ended(reserved)
        if self._release is not None:
            self._release.set_result(None)
            self._release = None

    def spend(self, usage: Mapping[str, int]) -> None:
        """Count what a request has consumed."""
        for budget in self.line:
            budget.consumed = budget.consumed.spent(usage)

    @property
    def spent(self) -> dict[str, int] | None:
        """What it says at its end to the turn that it worked for, if it did for one."""
        used = self.consumed
        return {"calls": used.calls, "tokens": used.tokens, "cost": used.cost} if len(self.line) > 1 else None

    def count(self, spent: Mapping[str, int]) -> None:
        """Count what a turn has spent that worked for this one, and had ended when this one was taken up again."""
        for budget in self.line:
            used = budget.consumed
            more = {name: getattr(used, name) + spent.get(name, 0) for name in ("calls", "tokens", "cost")}
            budget.consumed = used._replace(**more)
