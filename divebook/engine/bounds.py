"""What an execution has spent, which bound that meets, and what is asked then: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple

from divebook.bounds import ASK, FAIL, Bounds, edge_key
from divebook.engine.instructions import Fact
from divebook.engine.operations import Reserved
from divebook.engine.paths import held_by_children
from divebook.engine.records import Usage
from divebook.engine.state import PENDING, ExecutionState, PathState
from divebook.errors import BoundExceededError
from divebook.events import catalog
from divebook.questions.kinds import RAISE, RESOURCE_EXHAUSTED, STOP
from divebook.workflow.step import Step

MICROSECONDS = 1_000_000
NANODOLLARS = 1_000_000_000
"""A US dollar, in the unit in which costs are recorded."""

REASONS = {
    "max_iterations": "max_iterations_exceeded",
    "max_llm_calls": "max_llm_calls_exceeded",
    "max_agent_hops": "max_agent_hops_exceeded",
    "max_tokens": "max_tokens_exceeded",
    "max_cost": "max_cost_exceeded",
    "max_seconds": "max_seconds_exceeded",
    "edges": "max_loop_exceeded",
    "max_repeats": "max_repeats_exceeded",
    "max_depth": "max_depth_exceeded",
    "max_descendants": "max_descendants_exceeded",
}
"""The typed reason for which an execution ends at each bound."""

_SHARED = (
    "max_llm_calls",
    "max_agent_hops",
    "max_tokens",
    "max_cost",
    "max_seconds",
    "max_depth",
    "max_descendants",
)
"""What an execution gives on of its bounds to those that it starts.

Only one that continues as a new one gives on the last two: they hold for all that is below the execution that has them.
"""
_SPENT = {
    "max_iterations": "{used} of {limit} passes through loops used",
    "max_llm_calls": "{used} of {limit} model calls made",
    "max_agent_hops": "{used} of {limit} agent steps made",
    "max_tokens": "{used} of {limit} tokens used",
    "max_cost": "{used} of {limit} spent",
    "max_seconds": "{used} of {limit} seconds used",
    "edges": "{used} of {limit} passages of the edge {edge} used",
    "max_repeats": "{used} of {limit} repetitions of a step made",
}


class Exhausted(NamedTuple):
    """A bound that does not allow what is to come."""

    bound: str
    limit: int | float | str
    used: int | float | str | None
    edge: str | None = None
    reserved: int | str | None = None
    """What calls under way may still spend."""
    needed: int | str | None = None
    """What the next call may spend at most."""

    @property
    def reason(self) -> str:
        """The typed reason."""
        return REASONS[self.bound]

    @property
    def may_pass(self) -> bool:
        """Whether the call could fit once the calls under way have ended and returned what they did not spend."""
        return self.reserved is not None and Decimal(self.reserved) > 0

    @property
    def name(self) -> str:
        """Name that a person raises: the bound, or the edge within `edges`."""
        return f"edges[{self.edge!r}]" if self.edge else self.bound

    @property
    def summary(self) -> str:
        """Sentence that states the spent, reserved and needed amounts."""
        spent = _SPENT[self.bound].format(used=self._text(self.used), limit=self._text(self.limit), edge=self.edge)
        parts = [spent]
        if self.may_pass:
            parts.append(f"{self._text(self.reserved)} reserved by calls under way")
        if self.needs_room:
            parts.append(f"the next call needs up to {self._text(self.needed)}")
        *before, last = parts
        return f"Budget reached: {', '.join(before)}, and {last}." if before else f"Budget reached: {last}."

    @property
    def needs_room(self) -> bool:
        """Whether the size of the next call is what does not fit."""
        return self.needed is not None and Decimal(self.needed) > 0

    def _text(self, amount: float | str | None) -> str:
        return text_of_dollars(amount or 0) if self.bound == "max_cost" else str(amount)

    def __str__(self) -> str:
        lower = ", or lower `MaxTokens`" if self.needs_room else ""
        return f"{self.summary} Raise `{self.name}`{lower}."


def text_of_dollars(amount: float | str) -> str:
    """Return an amount in US dollars as people write it: two decimals, or as many as it has."""
    exact = Decimal(str(amount))
    decimals = max(2, -int(exact.normalize().as_tuple().exponent))
    return f"${exact:.{decimals}f}"


def step_bound(state: ExecutionState, path: PathState, step: Step, kinds: frozenset[str]) -> Exhausted | None:
    """Return the first bound that forbids a path to enter a step; `kinds` are the types of step that ask a model."""
    bounds, ledger = state.bounds, state.ledger
    if bounds.max_seconds is not None and state.running_us > bounds.max_seconds * MICROSECONDS:
        return Exhausted("max_seconds", bounds.max_seconds, round(state.running_us / MICROSECONDS, 3))
    if bounds.max_iterations is not None and path.loops_to(step.name) and ledger.iterations >= bounds.max_iterations:
        return Exhausted("max_iterations", bounds.max_iterations, ledger.iterations)
    if bounds.edges and path.source is not None:
        key = edge_key(path.source, step.name)
        limit, passed = bounds.edges.get(key), ledger.edges.get(key, 0)
        if limit is not None and passed >= limit:
            return Exhausted("edges", limit, passed, key)
    if bounds.max_repeats is not None and path.repeats_of(step.name) >= bounds.max_repeats:
        return Exhausted("max_repeats", bounds.max_repeats, path.repeats_of(step.name))
    if step.type not in kinds:
        return None
    if bounds.max_agent_hops is not None and ledger.agent_hops >= bounds.max_agent_hops:
        return Exhausted("max_agent_hops", bounds.max_agent_hops, ledger.agent_hops)
    # What calls under way have reserved may come back, so that a step may begin: its own call waits for that.
    return bound_met(bounds, _consumption(state)._replace(held_tokens=0, held_cost=0), Reserved())


class Consumption(NamedTuple):
    """What model calls have consumed, and what those under way may still consume."""

    calls: int = 0
    tokens: int = 0
    cost: int = 0
    held_tokens: int = 0
    held_cost: int = 0

    def begun(self, reserved: Reserved) -> Consumption:
        """Return it with a call more that is under way."""
        tokens, cost = self.held_tokens + reserved.tokens, self.held_cost + reserved.cost
        return self._replace(calls=self.calls + 1, held_tokens=tokens, held_cost=cost)

    def ended(self, reserved: Reserved) -> Consumption:
        """Return it with one fewer under way."""
        return self._replace(held_tokens=self.held_tokens - reserved.tokens, held_cost=self.held_cost - reserved.cost)

    def spent(self, usage: Mapping[str, int]) -> Consumption:
        """Return it with what a call has consumed."""
        tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        return self._replace(tokens=self.tokens + tokens, cost=self.cost + usage.get("cost", 0))


def call_bound(state: ExecutionState, reserved: Reserved, *, is_alone: bool = False) -> Exhausted | None:
    """Return the first bound of an execution that forbids a model call which may consume `reserved`.

    `is_alone`: no model call is under way. Calls that were cut off have no end in the log, and hold nothing then.
    """
    reached = bound_met(state.bounds, consumed := _consumption(state), reserved)
    if reached is None or not (reached.may_pass and is_alone):
        return reached
    held = held_by_children(state)
    return bound_met(state.bounds, consumed._replace(held_tokens=held.tokens, held_cost=held.cost), reserved)


def _consumption(state: ExecutionState) -> Consumption:
    ledger, used = state.ledger, state.usage
    held = ledger.reserved_tokens, ledger.reserved_cost
    return Consumption(ledger.llm_calls, used.input_tokens + used.output_tokens, used.cost, *held)


def bound_met(bounds: Bounds, consumed: Consumption, reserved: Reserved) -> Exhausted | None:
    """Return the first of some bounds that forbids a model call which may consume `reserved`.

    Calls that have begun and not ended count with what they have reserved, so that calls side by side never overshoot.
    """
    if bounds.max_llm_calls is not None and consumed.calls >= bounds.max_llm_calls:
        return Exhausted("max_llm_calls", bounds.max_llm_calls, consumed.calls)
    if bounds.max_tokens is not None:
        used, held = consumed.tokens, consumed.held_tokens
        if used + held >= bounds.max_tokens or used + held + reserved.tokens > bounds.max_tokens:
            reached = Exhausted("max_tokens", bounds.max_tokens, used)
            return reached if used >= bounds.max_tokens else reached._replace(reserved=held, needed=reserved.tokens)
    if bounds.max_cost is not None:
        spent, held = consumed.cost, consumed.held_cost
        allowed = int(bounds.max_cost * NANODOLLARS)
        if spent + held >= allowed or spent + held + reserved.cost > allowed:
            found = Exhausted("max_cost", str(bounds.max_cost), str(dollars(spent)))
            if spent >= allowed:
                return found
            return found._replace(reserved=str(dollars(held)), needed=str(dollars(reserved.cost)))
    return None


def require_price(bounds: Bounds, reserved: Reserved) -> None:
    """Raise BoundExceededError where a cost is bounded and nobody knows what a call costs."""
    if bounds.max_cost is not None and not reserved.is_priced:
        raise BoundExceededError(
            "max_cost cannot be enforced: no price is known for this model; bound its tokens with max_tokens",
            "max_cost",
            "max_cost_exceeded",
        )


def raised(bounds: Bounds, name: str, edge: str | None, to: Any) -> Bounds:
    """Return bounds of which one is raised as a person said."""
    if edge is not None:
        return replace(bounds, edges={**bounds.edges, edge: to})
    value: Any = Decimal(to) if name == "max_cost" else to
    return replace(bounds, **{name: value})


class Spent(NamedTuple):
    """How much of a bound is spent."""

    name: str
    amount: int | float | Decimal
    limit: int | float | Decimal
    unit: str


def spent_of(state: ExecutionState) -> list[Spent]:
    """Return what is spent of each bound, what calls under way may still consume included."""
    bounds, ledger, used = state.bounds, state.ledger, state.usage
    tokens = used.input_tokens + used.output_tokens + ledger.reserved_tokens
    rows = (
        ("model calls", ledger.llm_calls, bounds.max_llm_calls, ""),
        ("agent steps", ledger.agent_hops, bounds.max_agent_hops, ""),
        ("loops", ledger.iterations, bounds.max_iterations, ""),
        ("tokens", tokens, bounds.max_tokens, ""),
        ("cost", dollars(used.cost + ledger.reserved_cost), bounds.max_cost, "$"),
        ("time", state.running_us / MICROSECONDS, bounds.max_seconds, "s"),
    )
    return [Spent(name, amount, limit, unit) for name, amount, limit, unit in rows if limit is not None]


def left_of(state: ExecutionState) -> Bounds:
    """Return what an execution may still spend, for one that it starts; edges and repeats are its own affair."""
    bounds, ledger, used = state.bounds, state.ledger, state.usage
    tokens, seconds = used.input_tokens + used.output_tokens, state.running_us / MICROSECONDS
    calls, held = ledger.llm_calls + ledger.reserved_calls, (ledger.reserved_tokens, ledger.reserved_cost)
    return replace(
        left_after(bounds, Consumption(calls, tokens, used.cost, *held)),
        max_agent_hops=bounds.max_agent_hops,
        max_seconds=None if bounds.max_seconds is None else max(0.0, bounds.max_seconds - seconds),
    )


def left_after(bounds: Bounds, used: Consumption) -> Bounds:
    """Return what calls of models may still spend; what those under way may consume counts as spent."""
    tokens, cost = used.tokens + used.held_tokens, dollars(used.cost + used.held_cost)
    return Bounds(
        max_llm_calls=None if bounds.max_llm_calls is None else max(0, bounds.max_llm_calls - used.calls),
        max_tokens=None if bounds.max_tokens is None else max(0, bounds.max_tokens - tokens),
        max_cost=None if bounds.max_cost is None else max(Decimal(0), bounds.max_cost - cost),
        on_exhausted=bounds.on_exhausted,
    )


def share_of(left: Bounds, count: int) -> Bounds:
    """Return what one of so many that begin side by side may spend of what is left."""
    cost = None if left.max_cost is None else dollars(-(-int(left.max_cost * NANODOLLARS) // count))
    return replace(
        left,
        max_llm_calls=None if left.max_llm_calls is None else -(-left.max_llm_calls // count),
        max_tokens=None if left.max_tokens is None else -(-left.max_tokens // count),
        max_cost=cost,
    )


def reserved_for(given: Bounds) -> Reserved:
    """Return what an execution holds back of its own bounds for one that may spend so much."""
    cost = int((given.max_cost or 0) * NANODOLLARS)
    return Reserved(given.max_tokens or 0, cost, calls=given.max_llm_calls or 0)


def given_with(state: ExecutionState, reserved: Reserved | None) -> Bounds:
    """Return what an execution may spend for which so much is held back already."""
    left, held = left_of(state), reserved or Reserved()
    return replace(
        left,
        max_llm_calls=None if left.max_llm_calls is None else held.calls,
        max_tokens=None if left.max_tokens is None else held.tokens,
        max_cost=None if left.max_cost is None else dollars(held.cost),
    )


def given_again(state: ExecutionState, own: Bounds, left: Bounds, counted: Usage) -> Bounds:
    """Return what an execution may spend that another one resumes, which has so much left: within its own bounds.

    What was `counted` there is spent of both; what a person raised in it, above what its workflow says, stays raised.
    """
    present, widest = state.bounds, dict[str, Any]()
    for name in _SHARED:
        limit = getattr(own, name)
        widest[name] = None if limit is None else max(limit, getattr(present, name) or 0)
    tokens = counted.input_tokens + counted.output_tokens
    spent: dict[str, Any] = {
        "max_llm_calls": counted.requests,
        "max_tokens": tokens,
        "max_cost": dollars(counted.cost),
        "max_seconds": state.running_us / MICROSECONDS,
    }
    limits = {name: getattr(left, name) for name in spent}
    total: dict[str, Any] = {name: limit + spent[name] for name, limit in limits.items() if limit is not None}
    mine = replace(present, on_exhausted=own.on_exhausted, **widest)
    return within(mine, replace(left, **total))


def within(own: Bounds, given: Bounds) -> Bounds:
    """Return bounds of which each is the tighter of two; how they are met is that of `own`, unless that asks."""
    tighter: dict[str, Any] = {
        name: min((limit for limit in (getattr(own, name), getattr(given, name)) if limit is not None), default=None)
        for name in _SHARED
    }
    return replace(own, **tighter, on_exhausted=FAIL if FAIL in (own.on_exhausted, given.on_exhausted) else ASK)


def dollars(nanodollars: int) -> Decimal:
    """Return an amount in US dollars."""
    return (Decimal(nanodollars) / NANODOLLARS).normalize()


# --- asking --------------------------------------------------------------------------------------------------------


def question_about(state: ExecutionState, found: Exhausted) -> str:
    """Return the id of the question whether to raise a bound: one for all paths that meet it."""
    return state.question_id("bound", found.bound, found.edge, found.limit, state.stops)


def facts_about(state: ExecutionState, found: Exhausted, path: str, step: str) -> tuple[Fact, ...]:
    """Return what to record so that a path waits until somebody raises the bound: nothing if it waits already."""
    interrupt_id = question_about(state, found)
    asked = state.interrupts.get(interrupt_id)
    if asked is None:
        question, data = asked_about(found)
        return (Fact(catalog.InterruptRaised(interrupt_id, RESOURCE_EXHAUSTED, question, data=data), path, step),)
    if asked.status == PENDING and path not in asked.waiting:
        return (Fact(catalog.InterruptJoined(interrupt_id), path, step),)
    return ()


def asked_about(found: Exhausted, whose: str = "") -> tuple[str, dict[str, Any]]:
    """Return the question whether to raise a bound, and its data.

    `whose` names the agent that the bound belongs to, in front of the question.
    """
    told = {"bound": found.bound, "limit": found.limit, "used": found.used, "edge": found.edge}
    told |= {"reason": found.reason, "reserved": found.reserved, "needed": found.needed}
    data = {key: value for key, value in told.items() if value is not None} | {"choices": [RAISE, STOP]}
    return f"{whose}{found.summary} Raise `{found.name}` and continue, or stop?", data


def fails_at_bounds(state: ExecutionState) -> bool:
    """Whether a bound ends the execution without a question."""
    return state.bounds.on_exhausted == FAIL
