"""Budget of one agent turn: the bounds of the agent, which apply in addition to the bounds of the execution.

The consumption of subordinate agents counts as well. Before each request that is not in the log, the budget must have
room for the maximum that the request may consume. If the budget is too small, a person is asked, as for the bounds of
the execution, or the turn fails. Example: with 1000 tokens allowed, 700 spent and 200 reserved by a running request, a
request for up to 200 tokens waits until the running request ends and releases the part of its reservation that it did
not use.
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
from divebook.questions.wording import Wording, bound_of_agent_exceeded, owner_of_bound

if TYPE_CHECKING:
    from divebook.agents.turn import StepTurn
    from divebook.engine.operations import Reserved


class TurnBudget:
    """Budget of one agent turn: its bounds (limits), the consumption so far, and the budgets of the agents that
    delegated the task.

    Parameters
    ----------
    above
        Budget of the agent that delegated the task; None for a task of a step.
    share
        Bounds that the delegating agent assigned to the task, if it delegated several tasks at once.
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
        """Part of the budget that is not consumed or reserved yet. The budgets of the agents that delegated the task
        limit it too.
        """
        remaining = Bounds()
        for budget in self.line:
            remaining = within(left_after(budget.bounds, budget.consumed), remaining)
        return remaining

    async def admit(self, context: StepTurn, reserved: Reserved) -> None:
        """Wait until a model request fits into this budget and into the budgets of the agents that delegated the task.
        `reserved` is the maximum consumption of the request.

        Raises
        ------
        BoundExceededError
            The request does not fit, and a person chose to stop or the bounds do not allow a question.
        """
        # Without a price, no wait and no answer of a person can make the request fit `max_cost`.
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
        """Return the first budget that a model request would exceed, and the exceeded bound. `reserved` is the maximum
        consumption of the request. The agent's own budget is checked first, then those of delegating agents. If all
        have room, return this budget and None.
        """
        for budget in self.line:
            exhausted = budget.met(reserved)
            if exhausted is not None:
                return budget, exhausted
        return self, None

    def next_release(self) -> asyncio.Future[None]:
        """Return a future that completes as soon as one of this budget's running model requests ends. The consumption
        that was reserved for the request is then free again.
        """
        if self._release is None:
            self._release = asyncio.get_running_loop().create_future()
        return self._release

    def met(self, reserved: Reserved) -> Exhausted | None:
        """Return the first bound of this budget that a model request would exceed, or None if the request fits.
        `reserved` is the maximum consumption of the request.
        """
        return bound_met(self.bounds, self.consumed, reserved)

    async def ask(self, context: StepTurn, exhausted: Exhausted) -> None:
        """Ask a person whether to raise a reached bound of this budget, and raise the bound to the value that the
        person enters.

        Raises
        ------
        BoundExceededError
            The person chose to stop, or the bounds do not allow a question.
        """
        if self.bounds.on_exhausted == FAIL:
            raise self._error(exhausted)
        # The limit is part of the key: if the raised bound is reached again, that is another question.
        key = f"bound-{self.agent}-{exhausted.bound}-{exhausted.limit}"
        # An answer belongs to the question that was shown. Reuse its recorded wording and consumption
        # (test_a_question_about_a_bound_keeps_its_recorded_wording).
        recorded = context.recorded_question(key)
        if recorded is not None:
            wording = Wording.of(recorded)
        else:
            wording = asked_about(exhausted, owner_of_bound(*self._agents(exhausted)))
            wording = wording._replace(data={**(wording.data or {}), "agent": self.agent})
        answer = await context.question(RESOURCE_EXHAUSTED, wording.question, key=key, data=wording.data)
        response = answer.response or {}
        if response.get("decision") == STOP:
            raise self._error(exhausted)
        self.bounds = raised(self.bounds, exhausted.bound, None, response["data"]["to"])

    def _error(self, exhausted: Exhausted) -> BoundExceededError:
        """Return the error that stops the turn when a bound is reached and not raised. The error names the agent and
        the bound.
        """
        text = bound_of_agent_exceeded(exhausted.summary, exhausted.name, *self._agents(exhausted))
        return BoundExceededError(text, exhausted.bound, exhausted.reason)

    def _agents(self, exhausted: Exhausted) -> tuple[str, str | None]:
        """Return the name of this budget's agent, and that of the delegating agent if the reached bound is a share of
        that agent's bounds, both in quotation marks.
        """
        return repr(self.agent), repr(self.line[1].agent) if self._is_share(exhausted) else None

    def _is_share(self, exhausted: Exhausted) -> bool:
        """Return True if the reached bound is only the agent's part of a delegating agent's bounds, which several tasks
        share. Return False if it is one of the agent's own bounds.
        """
        # The bounds are the lower ones of the agent's own and its share. Costs are texts in `exhausted`, so texts
        # compare.
        share_limit = None if self._share is None else getattr(self._share, exhausted.bound)
        return share_limit is not None and str(share_limit) == str(exhausted.limit)

    @contextmanager
    def holding(self, reserved: Reserved) -> Iterator[None]:
        """Count the maximum consumption of a request as reserved during the ``with`` block, in this budget and in the
        budgets of delegating agents. Concurrent requests then cannot exceed a bound together.
        """
        # All budgets change without an await in between, so no other request sees only some of them changed.
        for budget in self.line:
            budget.consumed = budget.consumed.begun(reserved)
        try:
            yield
        finally:
            for budget in self.line:
                budget.release(reserved)

    def release(self, reserved: Reserved) -> None:
        """Remove the maximum consumption of an ended request from the reserved amount, and wake the requests that wait
        for this budget.
        """
        self.consumed = self.consumed.ended(reserved)
        if self._release is not None:
            # All waiting requests share this future. Each of them checks the bounds again (`admit`).
            self._release.set_result(None)
            self._release = None

    def spend(self, usage: Mapping[str, int]) -> None:
        """Add the actual consumption of a request to this budget and to the budgets of the agents that delegated the
        task.
        """
        for budget in self.line:
            budget.consumed = budget.consumed.spent(usage)

    @property
    def spent(self) -> dict[str, int] | None:
        """Consumption of a delegated turn (calls, tokens, cost), for the result that the delegating agent gets. None if
        the turn was not delegated.
        """
        used = self.consumed
        return {"calls": used.calls, "tokens": used.tokens, "cost": used.cost} if len(self.line) > 1 else None

    def count(self, spent: Mapping[str, int]) -> None:
        """Add the recorded consumption of a delegated turn to this budget. Needed if the delegated turn ended in an
        earlier process, whose budget is lost.
        """
        for budget in self.line:
            used = budget.consumed
            totals = {name: getattr(used, name) + spent.get(name, 0) for name in ("calls", "tokens", "cost")}
            budget.consumed = used._replace(**totals)
