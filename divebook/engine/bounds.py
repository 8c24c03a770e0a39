"""Bounds (budgets) of an execution: the consumption so far, the first bound that is reached, and the question to a
person whether to raise it. Pure functions.

Model calls reserve the most that they may consume before they begin, and return the rest when they end. Calls side by
side therefore do not exceed a bound together. The exception is a call that a crash has cut off: its consumption is not
in the log and does not count. Example: `max_tokens` is 100, 40 are spent and a call under way has reserved 50.
A call that may need 20 does not fit (40 + 50 + 20 > 100). It waits for the call under way, which may return what it
did not consume. A person is asked only when nothing is under way.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple

from divebook.definitions.step import Step
from divebook.engine.changes import held_by_children
from divebook.engine.instructions import Fact
from divebook.engine.operations import Reserved
from divebook.engine.state import Draft, ExecutionState, PathState, Usage
from divebook.errors import BoundExceededError
from divebook.events import catalog
from divebook.events.catalog import PENDING
from divebook.events.event import MICROSECONDS
from divebook.questions import Question
from divebook.questions.bounds import ASK, FAIL, Bounds, edge_key, exact_dollars, nanodollars
from divebook.questions.question import RAISE, RESOURCE_EXHAUSTED, RESUMED, STOP
from divebook.questions.wording import OR_STOP, Wording, bound_reached

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
"""Typed reason of the error at each bound."""

_SHARED = (
    "max_llm_calls",
    "max_agent_hops",
    "max_tokens",
    "max_cost",
    "max_seconds",
    "max_depth",
    "max_descendants",
)
"""Bounds that child executions share with their parent.

The last two hold for all descendants of the execution that has them. Only a successor inherits them.
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
    """Bound that does not allow the next step or model call. Contains its limit, the amount spent, the amount reserved
    for running calls, and the amount that the next call needs.
    """

    bound: str
    limit: int | float | str
    used: int | float | str | None
    edge: str | None = None
    reserved: int | str | None = None
    """Amount that calls under way may still spend."""
    needed: int | str | None = None
    """Most that the next call may spend."""

    @property
    def reason(self) -> str:
        """Typed reason of the error that this bound causes, such as ``max_cost_exceeded``."""
        return REASONS[self.bound]

    @property
    def may_pass(self) -> bool:
        """True if the refused call may become possible later: budget is reserved for running calls, and at their end
        the part that they did not spend is free again.
        """
        # Amounts of dollars are strings in events, so that they stay exact decimals.
        return self.reserved is not None and Decimal(self.reserved) > 0

    @property
    def name(self) -> str:
        """Key with which a user can raise the bound: the name of the bound, or for the bound of an edge its key in
        `edges`.
        """
        return f"edges[{self.edge!r}]" if self.edge else self.bound

    @property
    def summary(self) -> str:
        """Sentence for people that states how much of the bound is spent, reserved by running calls, and needed by the
        next call.
        """
        spent = _SPENT[self.bound].format(used=self._text(self.used), limit=self._text(self.limit), edge=self.edge)
        parts = [spent]
        if self.may_pass:
            parts.append(f"{self._text(self.reserved)} reserved by calls under way")
        if self.needs_room:
            parts.append(f"the next call needs up to {self._text(self.needed)}")
        # "3 of 3 model calls made" is one part; a bound of tokens or cost may have up to three.
        *before, last = parts
        return f"Budget reached: {', '.join(before)}, and {last}." if before else f"Budget reached: {last}."

    @property
    def needs_room(self) -> bool:
        """True if the bound is not reached yet, but the next call might exceed it."""
        return self.needed is not None and Decimal(self.needed) > 0

    def _text(self, amount: float | str | None) -> str:
        return text_of_dollars(amount or 0) if self.bound == "max_cost" else str(amount)

    def __str__(self) -> str:
        lower = ", or lower `MaxTokens`" if self.needs_room else ""
        return f"{self.summary} Raise `{self.name}`{lower}."


def text_of_dollars(amount: float | str) -> str:
    """Return an amount in US dollars as text: ``$1.20``, or with more decimals if the amount has more."""
    exact = Decimal(str(amount))
    decimals = max(2, -int(exact.normalize().as_tuple().exponent))
    return f"${exact:.{decimals}f}"


def step_bound(state: ExecutionState, path: PathState, step: Step, kinds: frozenset[str]) -> Exhausted | None:
    """Return the first bound that forbids a path to enter a step. Return None if all bounds allow it. `kinds` are the
    step types that call a model.
    """
    bounds = state.bounds
    ledger = state.ledger
    # Bounds that hold for steps of every type come first, those of model calls last.
    if bounds.max_seconds is not None and state.running_us > bounds.max_seconds * MICROSECONDS:
        return Exhausted("max_seconds", bounds.max_seconds, round(state.running_us / MICROSECONDS, 3))
    if bounds.max_iterations is not None and path.loops_to(step.name) and ledger.iterations >= bounds.max_iterations:
        return Exhausted("max_iterations", bounds.max_iterations, ledger.iterations)
    # A root path enters its first step over no edge.
    if bounds.edges and path.source is not None:
        key = edge_key(path.source, step.name)
        limit = bounds.edges.get(key)
        passages = ledger.edges.get(key, 0)
        if limit is not None and passages >= limit:
            return Exhausted("edges", limit, passages, key)
    if bounds.max_repeats is not None and path.repeats_of(step.name) >= bounds.max_repeats:
        return Exhausted("max_repeats", bounds.max_repeats, path.repeats_of(step.name))
    if step.type not in kinds:
        return None
    if bounds.max_agent_hops is not None and ledger.agent_hops >= bounds.max_agent_hops:
        return Exhausted("max_agent_hops", bounds.max_agent_hops, ledger.agent_hops)
    # Reservations of calls under way do not count here: they may be returned, and the call of this step waits for that.
    return bound_met(bounds, _consumption(state)._replace(held_tokens=0, held_cost=0), Reserved())


class Consumption(NamedTuple):
    """Sums over the model calls of an execution: number of calls, tokens and cost (in nanodollars), and the tokens and
    cost that are reserved for running calls.
    """

    calls: int = 0
    tokens: int = 0
    cost: int = 0
    held_tokens: int = 0
    held_cost: int = 0

    def begun(self, reserved: Reserved) -> Consumption:
        """Return the consumption after one more call has started. The call is counted, and the amounts reserved for it
        are added.
        """
        tokens = self.held_tokens + reserved.tokens
        cost = self.held_cost + reserved.cost
        return self._replace(calls=self.calls + 1, held_tokens=tokens, held_cost=cost)

    def ended(self, reserved: Reserved) -> Consumption:
        """Return the consumption after a call has ended: the amounts reserved for the call are removed. The amounts
        that the call has spent are added by `spent`.
        """
        return self._replace(held_tokens=self.held_tokens - reserved.tokens, held_cost=self.held_cost - reserved.cost)

    def spent(self, usage: Mapping[str, int]) -> Consumption:
        """Return the consumption after the recorded usage (tokens and cost) of a call was added."""
        tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        return self._replace(tokens=self.tokens + tokens, cost=self.cost + usage.get("cost", 0))


def call_bound(state: ExecutionState, reserved: Reserved, *, is_alone: bool = False) -> Exhausted | None:
    """Return the first bound of an execution that forbids a model call, or None if all bounds allow it. `reserved` has
    the most that the call may consume.

    `is_alone` means that no model call is under way. Calls that were cut off have no end in the log. Their reservations
    then do not count.
    """
    consumed = _consumption(state)
    # Example with max_tokens=100: 40 are spent, and the log has a call that reserved 50 and no end of it. A call that
    # may need 20 does not fit: 40 + 50 + 20 > 100. If no model call is under way in this process, that call was cut off
    # and returns nothing. Only reservations of children count then, and 40 + 20 fits.
    exhausted = bound_met(state.bounds, consumed, reserved)
    if exhausted is None or not (exhausted.may_pass and is_alone):
        return exhausted
    held = held_by_children(state)
    return bound_met(state.bounds, consumed._replace(held_tokens=held.tokens, held_cost=held.cost), reserved)


def _consumption(state: ExecutionState) -> Consumption:
    ledger = state.ledger
    used = state.usage
    held = ledger.reserved_tokens, ledger.reserved_cost
    return Consumption(ledger.llm_calls, used.input_tokens + used.output_tokens, used.cost, *held)


def bound_met(bounds: Bounds, consumed: Consumption, reserved: Reserved) -> Exhausted | None:
    """Return the first limit in `bounds` that forbids a model call, or None if all limits allow it. `reserved` has the
    most that the call may consume.

    Calls under way count with their reservations.
    """
    if bounds.max_llm_calls is not None and consumed.calls >= bounds.max_llm_calls:
        return Exhausted("max_llm_calls", bounds.max_llm_calls, consumed.calls)
    if bounds.max_tokens is not None:
        used = consumed.tokens
        held = consumed.held_tokens
        # The first test stops a call of unknown size, which reserves 0. The second one lets a call pass that fits
        # exactly: 60 spent and 40 needed of 100.
        if used + held >= bounds.max_tokens or used + held + reserved.tokens > bounds.max_tokens:
            exhausted = Exhausted("max_tokens", bounds.max_tokens, used)
            # Reserved and needed amounts are named only if tokens are left, which may suffice for a smaller or a later
            # call.
            return exhausted if used >= bounds.max_tokens else exhausted._replace(reserved=held, needed=reserved.tokens)
    if bounds.max_cost is not None:
        spent = consumed.cost
        held = consumed.held_cost
        limit = nanodollars(bounds.max_cost)
        if spent + held >= limit or spent + held + reserved.cost > limit:
            exhausted = Exhausted("max_cost", str(bounds.max_cost), str(exact_dollars(spent)))
            if spent >= limit:
                return exhausted
            return exhausted._replace(reserved=str(exact_dollars(held)), needed=str(exact_dollars(reserved.cost)))
    return None


def require_price(bounds: Bounds, reserved: Reserved) -> None:
    """Raise `BoundExceededError` if the bounds limit the cost but the price of the model that is to be called is
    unknown. Otherwise do nothing.
    """
    if bounds.max_cost is not None and not reserved.is_priced:
        raise BoundExceededError(
            "max_cost cannot be enforced: no price is known for this model; bound its tokens with max_tokens. "
            "Models of Ollama count as free",
            "max_cost",
            "max_cost_exceeded",
        )


def raised(bounds: Bounds, name: str, edge: str | None, to: Any) -> Bounds:
    """Return a copy of the bounds in which one bound has the higher value that a person chose. With `edge`, it is the
    bound of this edge.
    """
    if edge is not None:
        return replace(bounds, edges={**bounds.edges, edge: to})
    value: Any = Decimal(to) if name == "max_cost" else to
    return replace(bounds, **{name: value})


class Spent(NamedTuple):
    """Row of a budget overview: the name of one bound, the amount spent, the limit, and the unit of both."""

    name: str
    amount: int | float | Decimal
    limit: int | float | Decimal
    unit: str


def spent_of(state: ExecutionState) -> list[Spent]:
    """Return the amount spent and the limit for each bound that an execution has. Amounts reserved for running calls
    count as spent.
    """
    bounds = state.bounds
    ledger = state.ledger
    used = state.usage
    tokens = used.input_tokens + used.output_tokens + ledger.reserved_tokens
    rows = (
        ("model calls", ledger.llm_calls, bounds.max_llm_calls, ""),
        ("agent steps", ledger.agent_hops, bounds.max_agent_hops, ""),
        ("loops", ledger.iterations, bounds.max_iterations, ""),
        ("tokens", tokens, bounds.max_tokens, ""),
        ("cost", exact_dollars(used.cost + ledger.reserved_cost), bounds.max_cost, "$"),
        ("time", state.running_us / MICROSECONDS, bounds.max_seconds, "s"),
    )
    return [Spent(name, amount, limit, unit) for name, amount, limit, unit in rows if limit is not None]


def remaining_bounds(state: ExecutionState) -> Bounds:
    """Return the part of an execution's bounds that is not spent or reserved, for a child execution that it starts.
    Bounds of edges and of repeated steps are not passed on to the child.
    """
    bounds = state.bounds
    ledger = state.ledger
    used = state.usage
    tokens = used.input_tokens + used.output_tokens
    seconds = state.running_us / MICROSECONDS
    # Model calls count from their start, so only the calls that running children may still make are reserved.
    calls = ledger.llm_calls + ledger.reserved_calls
    held = (ledger.reserved_tokens, ledger.reserved_cost)
    return replace(
        left_after(bounds, Consumption(calls, tokens, used.cost, *held)),
        # Agent steps of a child are not added to those of its parent, so the child gets the whole bound.
        max_agent_hops=bounds.max_agent_hops,
        max_seconds=None if bounds.max_seconds is None else max(0.0, bounds.max_seconds - seconds),
    )


def left_after(bounds: Bounds, used: Consumption) -> Bounds:
    """Return what is left of bounds for model calls after the consumption `used`, at least 0 for each bound. Amounts
    reserved for running calls count as spent.
    """
    tokens = used.tokens + used.held_tokens
    cost = exact_dollars(used.cost + used.held_cost)
    return Bounds(
        max_llm_calls=None if bounds.max_llm_calls is None else max(0, bounds.max_llm_calls - used.calls),
        max_tokens=None if bounds.max_tokens is None else max(0, bounds.max_tokens - tokens),
        max_cost=None if bounds.max_cost is None else max(Decimal(0), bounds.max_cost - cost),
        on_exhausted=bounds.on_exhausted,
    )


def share_of(remaining: Bounds, count: int) -> Bounds:
    """Return the part of the remaining bounds that one of `count` child executions gets if they start at the
    same time.
    """
    # Shares are rounded up (`-(-a // b)` is a ceiling division), so that a small rest is not lost. The shares of child
    # executions stay within the rest, since each is computed after the earlier ones are reserved. Example with 10 calls
    # and 3 children: 4 of 10 for 3, then 3 of 6 for 2, then 3 of 3 for 1.
    cost = None if remaining.max_cost is None else exact_dollars(-(-nanodollars(remaining.max_cost) // count))
    return replace(
        remaining,
        max_llm_calls=None if remaining.max_llm_calls is None else -(-remaining.max_llm_calls // count),
        max_tokens=None if remaining.max_tokens is None else -(-remaining.max_tokens // count),
        max_cost=cost,
    )


def reserved_for(bounds: Bounds) -> Reserved:
    """Return the amounts that a parent execution reserves from its budget for a child execution with these bounds:
    tokens, cost and model calls. An amount without a bound is 0.
    """
    cost = nanodollars(bounds.max_cost or 0)
    return Reserved(bounds.max_tokens or 0, cost, calls=bounds.max_llm_calls or 0)


def bounds_with_reservation(state: ExecutionState, reserved: Reserved | None) -> Bounds:
    """Return the bounds of a child execution whose parent has already reserved a part of its own budget for it. If the
    parent has a limit of model calls, tokens or cost, the child's limit is exactly the reserved amount.
    """
    remaining = remaining_bounds(state)
    held = reserved or Reserved()
    return replace(
        remaining,
        max_llm_calls=None if remaining.max_llm_calls is None else held.calls,
        max_tokens=None if remaining.max_tokens is None else held.tokens,
        max_cost=None if remaining.max_cost is None else exact_dollars(held.cost),
    )


def bounds_for_resumption(state: ExecutionState, definition_bounds: Bounds, rest: Bounds, counted: Usage) -> Bounds:
    """Return the bounds with which a parent execution resumes a child execution that has run and spent before.

    Each limit is the tighter of two: the child's own bounds, and the rest of the parent's bounds plus what the child
    has already spent (`counted`), since both count it. Bounds that a person raised in the child stay raised.

    Parameters
    ----------
    state
        State of the child.
    definition_bounds
        Bounds in the child's workflow.
    rest
        Rest of the parent's bounds.
    counted
        Usage of the child that the parent has counted.
    """
    # Example: the child may use 100 tokens and has used 60, which the parent counts as spent. The parent has 20 left.
    # The limit of the child becomes min(100, 20 + 60) = 80, so it may use 20 more.
    present = state.bounds
    widest = dict[str, Any]()
    for name in _SHARED:
        limit = getattr(definition_bounds, name)
        # A person may have raised the bound in the child, above the limit of its definition.
        widest[name] = None if limit is None else max(limit, getattr(present, name) or 0)
    tokens = counted.input_tokens + counted.output_tokens
    spent: dict[str, Any] = {
        "max_llm_calls": counted.requests,
        "max_tokens": tokens,
        "max_cost": exact_dollars(counted.cost),
        "max_seconds": state.running_us / MICROSECONDS,
    }
    limits = {name: getattr(rest, name) for name in spent}
    total: dict[str, Any] = {name: limit + spent[name] for name, limit in limits.items() if limit is not None}
    mine = replace(present, on_exhausted=definition_bounds.on_exhausted, **widest)
    return within(mine, replace(rest, **total))


def within(bounds: Bounds, other: Bounds) -> Bounds:
    """Return `bounds` with tighter limits. For each bound that parents share with their children, the result has the
    smaller limit of the two arguments. `on_exhausted` is "fail" if it is "fail" in one of them.
    """
    tighter: dict[str, Any] = {
        name: min((limit for limit in (getattr(bounds, name), getattr(other, name)) if limit is not None), default=None)
        for name in _SHARED
    }
    return replace(bounds, **tighter, on_exhausted=FAIL if FAIL in (bounds.on_exhausted, other.on_exhausted) else ASK)


# --- asking ----------------------------------------------------------------------------------------------------------
#
# A question about a bound belongs to the execution, not to a path: its id is a hash of the bound, its limit and the
# number of answers "stop" so far. Paths that reach the same bound join the question. After an answer "raise" the limit
# differs, and after "stop" the number, so the next time is another question. A resumption with other bounds answers the
# questions about the former ones. If a limit returns in this way, its question has a further number.


def question_about(state: ExecutionState, exhausted: Exhausted) -> str:
    """Return the id of the question to a person whether to raise an exhausted bound. All paths that reach the bound
    share the question.
    """
    about = "bound", exhausted.bound, exhausted.edge, exhausted.limit, state.stops
    interrupt_id = state.question_id(*about)
    for number in itertools.count(1):
        question = state.interrupts.get(interrupt_id)
        if question is None or question.is_open:
            break
        interrupt_id = state.question_id(*about, number)
    return interrupt_id


def facts_about(state: ExecutionState, exhausted: Exhausted, path: str, step: str) -> tuple[Fact, ...]:
    """Return the events that make a path wait until a person decides about an exhausted bound. They include the
    question, if it was not asked yet. Return no events if the path waits for the decision already.
    """
    interrupt_id = question_about(state, exhausted)
    # Three cases: the question is new; it is open and this path joins it; or this path waits for it already.
    pending = state.interrupts.get(interrupt_id)
    if pending is None:
        return (Fact(asked_about(exhausted).event(interrupt_id, RESOURCE_EXHAUSTED), path, step),)
    if pending.status == PENDING and path not in pending.waiting:
        return (Fact(catalog.InterruptJoined(interrupt_id), path, step),)
    return ()


def answers_by_bounds(state: ExecutionState, bounds: Bounds) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the answers of a resumption with `bounds` to the open questions about bounds of an execution whose limits
    differ in `bounds`, as pairs of question id and answer.
    """
    for question in state.pending_interrupts():
        if question.kind != RESOURCE_EXHAUSTED or not is_about_bounds(question):
            continue
        details = question.data or {}
        name, edge = details["bound"], details.get("edge")
        limit = getattr(bounds, name) if edge is None else bounds.edges.get(edge)
        # Amounts of dollars are strings in events.
        limit = str(limit) if isinstance(limit, Decimal) else limit
        if limit != details.get("limit"):
            yield question.id, {"decision": RESUMED, **({} if limit is None else {"data": {"to": limit}})}


def asked_about(exhausted: Exhausted, owner: str = "") -> Wording:
    """Return the question to a person whether to raise an exhausted bound. `owner` names the agent that the bound
    belongs to.
    """
    details = {"bound": exhausted.bound, "limit": exhausted.limit, "used": exhausted.used, "edge": exhausted.edge}
    details |= {"reason": exhausted.reason, "reserved": exhausted.reserved, "needed": exhausted.needed}
    data = {key: value for key, value in details.items() if value is not None}
    return bound_reached(exhausted.summary, exhausted.name, data, owner)


def _error_after_stop(question: str) -> str:
    """Return the error text of an execution after a person answered "stop" at a bound: the text of the question without
    its last words, which ask whether to raise the bound.
    """
    if question.endswith(OR_STOP):
        return f"{question.removesuffix(OR_STOP)}."
    return question.partition(". Raise the bound")[0]  # the wording of older versions


def fails_at_bounds(state: ExecutionState) -> bool:
    """Return whether an execution fails when it reaches a bound. Otherwise a person is asked."""
    return state.bounds.on_exhausted == FAIL


def is_about_bounds(question: Question) -> bool:
    """Return whether a question is about a bound of its execution, and not one of the definition, or of an agent's
    turn, which handles its answer itself.
    """
    details = question.data or {}
    return "bound" in details and "agent" not in details


def follow_about_bounds(draft: Draft, question: Question) -> None:
    """Apply the answer to a question about a bound of an execution to the state: raise the bound, or make the paths
    stop before their next step. Other questions (about the bound of a single agent, or asked by the workflow) change
    nothing here.
    """
    if not is_about_bounds(question):
        return
    response = question.response or {}
    details = question.data or {}
    if response.get("decision") == STOP:
        draft.stops += 1
        draft.stopped = (_error_after_stop(question.question), details.get("reason", ""))
    elif response.get("decision") == RAISE:
        draft.bounds = raised(draft.bounds, details["bound"], details.get("edge"), response["data"]["to"])
