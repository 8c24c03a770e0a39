"""Budget of one agent turn: its own `Bounds`, in addition to those of the execution.

The consumption of subordinate agents counts as well. Before each request that is not in the log, the budget must have
room for the maximum that the request may consume. If it has not, a person is asked, as for the bounds of the execution,
or the turn fails. Example: with 1000 tokens allowed, 700 spent and 200 reserved by a running request, a request for up
to 200 tokens waits until the running one ends and releases what it did not use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

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
from divebook.questions.bounds import FAIL, Bounds
from divebook.questions.question import RESOURCE_EXHAUSTED, STOP

if TYPE_CHECKING:
    from divebook.agents.turn import TurnContext
    from divebook.engine.operations import Reserved


class TurnBudget:
    """Consumption and limits of a turn.

    Parameters
    ----------
    above
        Budget of the agent that delegated the task, if there is one.
    share
        Bounds that this agent assigned to the task, if it delegated several tasks at once.
    """

    def __init__(
        self, agent: str, bounds: Bounds, above: TurnBudget | None = None, share: Bounds | None = None
    ) -> None:
        self.agent = agent
        self.consumed = Consumption()
        self.bounds = bounds if share is None else within(bounds, share)
        self._share = share
        self._release: asyncio.Future[None] | None = None
        self.line: tuple[TurnBudget, ...] = (self, *(() if above is None else above.line))
        """This budget and those above it, nearest first."""

    @property
    def remaining(self) -> Bounds:
        """Remaining budget, limited also by the budgets above."""
        remaining = Bounds()
        for budget in self.line:
            remaining = within(left_after(budget.bounds, budget.consumed), remaining)
        return remaining

    async def admit(self, context: TurnContext, reserved: Reserved) -> None:
        """Wait until a request with this maximum consumption fits into this budget and those above.

        Raises
        ------
        BoundExceededError
            It does not fit, and a person chose to stop or the bounds do not allow a question.
        """
        for budget in self.line:
            require_price(budget.bounds, reserved)
        # Check every budget again after each question: concurrent calls have consumed more in the meantime
        # (test_while_a_bound_above_is_asked_about_those_below_may_be_reached).
        while True:
            budget, exhausted = self._first_exhausted(reserved)
            if exhausted is None:
                return
            # A running call releases the unused part of its reservation, so wait for it before asking a person.
            if not (exhausted.may_pass and await context.wait_beside_others(budget.next_release())):
                await budget.ask(context, exhausted)

    def _first_exhausted(self, reserved: Reserved) -> tuple[TurnBudget, Exhausted | None]:
        """Return the nearest budget that forbids a request, with its bound; None as the bound if all admit it."""
        for budget in self.line:
            exhausted = budget.met(reserved)
            if exhausted is not None:
                return budget, exhausted
        return self, None

    def next_release(self) -> asyncio.Future[None]:
        """Return a future that is done when the next counted request ends and releases its unused reservation."""
        if self._release is None:
            self._release = asyncio.get_running_loop().create_future()
        return self._release

    def met(self, reserved: Reserved) -> Exhausted | None:
        """Return the first of its own bounds that forbids a request with this maximum consumption.

        None if none does.
        """
        return bound_met(self.bounds, self.consumed, reserved)

    async def ask(self, context: TurnContext, exhausted: Exhausted) -> None:
        """Ask a person about a reached bound, and raise the bound to the value in the answer.

        Raises
        ------
        BoundExceededError
            The person chose to stop, or the bounds do not allow a question.
        """
        if self.bounds.on_exhausted == FAIL:
            raise self._error(exhausted)
        key = f"bound-{self.agent}-{exhausted.bound}-{exhausted.limit}"
        # An answer belongs to the question that was shown. Reuse its recorded wording and consumption
        # (test_a_question_about_a_bound_keeps_its_recorded_wording).
        recorded = context.recorded_question(key)
        if recorded is not None:
            question = recorded.question
            data = recorded.data
        else:
            question, details = asked_about(exhausted, f"{self._owner(exhausted)}: ")
            data = {**details, "agent": self.agent}
        answer = await context.question(RESOURCE_EXHAUSTED, question, key=key, data=data)
        response = answer.response or {}
        if response.get("decision") == STOP:
            raise self._error(exhausted)
        self.bounds = raised(self.bounds, exhausted.bound, None, response["data"]["to"])

    def _error(self, exhausted: Exhausted) -> BoundExceededError:
        """Return the error for a bound that stays as it is."""
        owner = self.line[1].agent if self._is_share(exhausted) else self.agent
        advice = f"Raise `{exhausted.name}` in the Bounds of agent {owner!r} and resume."
        return BoundExceededError(
            f"{self._owner(exhausted)}: {exhausted.summary} {advice}", exhausted.bound, exhausted.reason
        )

    def _owner(self, exhausted: Exhausted) -> str:
        """Return the owner of the reached bound as text for people."""
        agent = f"Agent {self.agent!r}"
        return (
            f"{agent} (its share of the bounds of agent {self.line[1].agent!r})" if self._is_share(exhausted) else agent
        )

    def _is_share(self, exhausted: Exhausted) -> bool:
        """Return True if the reached bound is the share that the agent above assigned."""
        share_limit = None if self._share is None else getattr(self._share, exhausted.bound)
        return share_limit is not None and str(share_limit) == str(exhausted.limit)

    @contextmanager
    def holding(self, reserved: Reserved) -> Iterator[None]:
        """Hold a reservation of the maximum consumption of a request while it runs."""
        for budget in self.line:
            budget.consumed = budget.consumed.begun(reserved)
        try:
            yield
        finally:
            for budget in self.line:
                budget.release(reserved)

    def release(self, reserved: Reserved) -> None:
        """End the reservation of a request and wake requests that wait for it."""
        self.consumed = self.consumed.ended(reserved)
        if self._release is not None:
            self._release.set_result(None)
            self._release = None

    def spend(self, usage: Mapping[str, int]) -> None:
        """Add the consumption of a request, here and in the budgets above."""
        for budget in self.line:
            budget.consumed = budget.consumed.spent(usage)

    @property
    def spent(self) -> dict[str, int] | None:
        """Consumption that the turn reports to the turn it worked for; None if it worked for none."""
        used = self.consumed
        return {"calls": used.calls, "tokens": used.tokens, "cost": used.cost} if len(self.line) > 1 else None

    def count(self, spent: Mapping[str, int]) -> None:
        """Add the consumption of a subordinate turn that had ended before this turn was resumed."""
        for budget in self.line:
            used = budget.consumed
            more = {name: getattr(used, name) + spent.get(name, 0) for name in ("calls", "tokens", "cost")}
            budget.consumed = used._replace(**more)
