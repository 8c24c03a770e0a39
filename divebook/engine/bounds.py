"""Bounds of an execution: consumption, the bound that is reached, and the question about it. Pure functions.

Model calls reserve the most that they may consume before they begin, and return the rest when they end. Calls side by
side therefore never overshoot a bound. Example: `max_tokens` is 100, 40 are spent and a call under way has reserved 50.
A call that may need 20 does not fit (40 + 50 + 20 > 100). It waits for the call under way, which may return what it
did not consume. A person is asked only when nothing is under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple

from divebook.engine.changes import SLEEPS, Draft, held_by_children, sleeps, without_held
from divebook.engine.changes import held_of as held_by
from divebook.engine.operations import AGENT_RESPONSE, CHILD_WORKFLOW, ENCLOSING, EVENT_EMITTED, Reserved
from divebook.engine.state import ENDED, ExecutionState, Ledger, OpenStep, OperationRecord, Outcome, PathState, Usage
from divebook.errors import BoundExceededError, CorruptStoreError
from divebook.events import catalog
from divebook.events.catalog import COMPLETED, FAILED, PENDING, RUNNING, WAITING, Payload
from divebook.events.payload import quickly_made
from divebook.questions import Question
from divebook.questions.bounds import ASK, FAIL, Bounds, edge_key
from divebook.questions.question import RAISE, RESOURCE_EXHAUSTED, STOP
from divebook.workflow.step import Step

# --- instructions to the driver --------------------------------------------------------------------------------------


@quickly_made
@dataclass(frozen=True, slots=True)
class Fact:
    """A payload to record, with its path and step."""

    data: Payload
    path: str = ""
    step: str = ""


@quickly_made
@dataclass(frozen=True, slots=True)
class RecordFacts:
    """Append these facts, in this order."""

    facts: tuple[Fact, ...]


@quickly_made
@dataclass(frozen=True, slots=True)
class RunStep:
    """Append `first`, then run a step. `resumed` means that the log has the start of the step already."""

    path: str
    step: str
    visit: int
    resumed: bool = False
    first: tuple[Fact, ...] = ()


@quickly_made
@dataclass(frozen=True, slots=True)
class EvaluateConditions:
    """Evaluate conditions of a step's edges and record each result in this order.

    `conditions` has pairs ``(condition, target)``.
    """

    path: str
    step: str
    conditions: tuple[tuple[str, str], ...]


@quickly_made
@dataclass(frozen=True, slots=True)
class AwaitJoin:
    """Wait at a join until the other paths have arrived or ended."""

    path: str


@quickly_made
@dataclass(frozen=True, slots=True)
class AwaitAnswer:
    """Append these facts, if any, and park the path until its question is answered."""

    path: str
    facts: tuple[Fact, ...] = ()


@quickly_made
@dataclass(frozen=True, slots=True)
class CancelPaths:
    """Stop every path that is still active, wait for it, and record that it was cancelled."""

    reason: str


PathInstruction = RecordFacts | RunStep | EvaluateConditions | AwaitJoin | AwaitAnswer
Instruction = PathInstruction | CancelPaths


MICROSECONDS = 1_000_000
NANODOLLARS = 1_000_000_000
"""Nanodollars in a US dollar. Costs are recorded in nanodollars."""

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
    """A bound that does not allow the next step or call."""

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
        """The typed reason."""
        return REASONS[self.bound]

    @property
    def may_pass(self) -> bool:
        """True if the call may fit once the calls under way have ended and returned what they did not spend."""
        return self.reserved is not None and Decimal(self.reserved) > 0

    @property
    def name(self) -> str:
        """Name of the key to raise: the bound, or the edge within `edges`."""
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
        """True if only the size of the next call exceeds the bound."""
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
    """Return the first bound that forbids a path to enter a step. `kinds` are the step types that call a model."""
    bounds = state.bounds
    ledger = state.ledger
    if bounds.max_seconds is not None and state.running_us > bounds.max_seconds * MICROSECONDS:
        return Exhausted("max_seconds", bounds.max_seconds, round(state.running_us / MICROSECONDS, 3))
    if bounds.max_iterations is not None and path.loops_to(step.name) and ledger.iterations >= bounds.max_iterations:
        return Exhausted("max_iterations", bounds.max_iterations, ledger.iterations)
    if bounds.edges and path.source is not None:
        key = edge_key(path.source, step.name)
        limit = bounds.edges.get(key)
        passed = ledger.edges.get(key, 0)
        if limit is not None and passed >= limit:
            return Exhausted("edges", limit, passed, key)
    if bounds.max_repeats is not None and path.repeats_of(step.name) >= bounds.max_repeats:
        return Exhausted("max_repeats", bounds.max_repeats, path.repeats_of(step.name))
    if step.type not in kinds:
        return None
    if bounds.max_agent_hops is not None and ledger.agent_hops >= bounds.max_agent_hops:
        return Exhausted("max_agent_hops", bounds.max_agent_hops, ledger.agent_hops)
    # Reservations of calls under way do not count here: they may be returned, and the call of this step waits for that.
    return bound_met(bounds, _consumption(state)._replace(held_tokens=0, held_cost=0), Reserved())


class Consumption(NamedTuple):
    """Consumption of model calls: number, tokens, cost in nanodollars, and the reservations of calls under way."""

    calls: int = 0
    tokens: int = 0
    cost: int = 0
    held_tokens: int = 0
    held_cost: int = 0

    def begun(self, reserved: Reserved) -> Consumption:
        """Return the consumption with one more call under way."""
        tokens = self.held_tokens + reserved.tokens
        cost = self.held_cost + reserved.cost
        return self._replace(calls=self.calls + 1, held_tokens=tokens, held_cost=cost)

    def ended(self, reserved: Reserved) -> Consumption:
        """Return the consumption with one call fewer under way."""
        return self._replace(held_tokens=self.held_tokens - reserved.tokens, held_cost=self.held_cost - reserved.cost)

    def spent(self, usage: Mapping[str, int]) -> Consumption:
        """Return the consumption with the recorded usage of a call added."""
        tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        return self._replace(tokens=self.tokens + tokens, cost=self.cost + usage.get("cost", 0))


def call_bound(state: ExecutionState, reserved: Reserved, *, is_alone: bool = False) -> Exhausted | None:
    """Return the first bound of an execution that forbids a model call which may consume `reserved`.

    `is_alone` means that no model call is under way. Calls that were cut off have no end in the log. Their reservations
    then do not count.
    """
    consumed = _consumption(state)
    reached = bound_met(state.bounds, consumed, reserved)
    if reached is None or not (reached.may_pass and is_alone):
        return reached
    held = held_by_children(state)
    return bound_met(state.bounds, consumed._replace(held_tokens=held.tokens, held_cost=held.cost), reserved)


def _consumption(state: ExecutionState) -> Consumption:
    ledger = state.ledger
    used = state.usage
    held = ledger.reserved_tokens, ledger.reserved_cost
    return Consumption(ledger.llm_calls, used.input_tokens + used.output_tokens, used.cost, *held)


def bound_met(bounds: Bounds, consumed: Consumption, reserved: Reserved) -> Exhausted | None:
    """Return the first of some bounds that forbids a model call which may consume `reserved`, or None.

    Calls under way count with their reservations.
    """
    if bounds.max_llm_calls is not None and consumed.calls >= bounds.max_llm_calls:
        return Exhausted("max_llm_calls", bounds.max_llm_calls, consumed.calls)
    if bounds.max_tokens is not None:
        used = consumed.tokens
        held = consumed.held_tokens
        if used + held >= bounds.max_tokens or used + held + reserved.tokens > bounds.max_tokens:
            reached = Exhausted("max_tokens", bounds.max_tokens, used)
            return reached if used >= bounds.max_tokens else reached._replace(reserved=held, needed=reserved.tokens)
    if bounds.max_cost is not None:
        spent = consumed.cost
        held = consumed.held_cost
        allowed = int(bounds.max_cost * NANODOLLARS)
        if spent + held >= allowed or spent + held + reserved.cost > allowed:
            reached = Exhausted("max_cost", str(bounds.max_cost), str(dollars(spent)))
            if spent >= allowed:
                return reached
            return reached._replace(reserved=str(dollars(held)), needed=str(dollars(reserved.cost)))
    return None


def require_price(bounds: Bounds, reserved: Reserved) -> None:
    """Raise BoundExceededError if the cost is bounded and the price of the model is unknown."""
    if bounds.max_cost is not None and not reserved.is_priced:
        raise BoundExceededError(
            "max_cost cannot be enforced: no price is known for this model; bound its tokens with max_tokens",
            "max_cost",
            "max_cost_exceeded",
        )


def raised(bounds: Bounds, name: str, edge: str | None, to: Any) -> Bounds:
    """Return bounds with one of them set to the value that a person chose."""
    if edge is not None:
        return replace(bounds, edges={**bounds.edges, edge: to})
    value: Any = Decimal(to) if name == "max_cost" else to
    return replace(bounds, **{name: value})


class Spent(NamedTuple):
    """Spent amount and limit of a bound, with their unit."""

    name: str
    amount: int | float | Decimal
    limit: int | float | Decimal
    unit: str


def spent_of(state: ExecutionState) -> list[Spent]:
    """Return the spent amount of each bound, including reservations of calls under way."""
    bounds = state.bounds
    ledger = state.ledger
    used = state.usage
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
    """Return the rest of an execution's bounds for a child. Bounds of edges and repeats are not shared."""
    bounds = state.bounds
    ledger = state.ledger
    used = state.usage
    tokens = used.input_tokens + used.output_tokens
    seconds = state.running_us / MICROSECONDS
    calls = ledger.llm_calls + ledger.reserved_calls
    held = (ledger.reserved_tokens, ledger.reserved_cost)
    return replace(
        left_after(bounds, Consumption(calls, tokens, used.cost, *held)),
        max_agent_hops=bounds.max_agent_hops,
        max_seconds=None if bounds.max_seconds is None else max(0.0, bounds.max_seconds - seconds),
    )


def left_after(bounds: Bounds, used: Consumption) -> Bounds:
    """Return the rest of the bounds for model calls. Reservations of calls under way count as spent."""
    tokens = used.tokens + used.held_tokens
    cost = dollars(used.cost + used.held_cost)
    return Bounds(
        max_llm_calls=None if bounds.max_llm_calls is None else max(0, bounds.max_llm_calls - used.calls),
        max_tokens=None if bounds.max_tokens is None else max(0, bounds.max_tokens - tokens),
        max_cost=None if bounds.max_cost is None else max(Decimal(0), bounds.max_cost - cost),
        on_exhausted=bounds.on_exhausted,
    )


def share_of(rest: Bounds, count: int) -> Bounds:
    """Return the share of one of `count` children that begin side by side."""
    cost = None if rest.max_cost is None else dollars(-(-int(rest.max_cost * NANODOLLARS) // count))
    return replace(
        rest,
        max_llm_calls=None if rest.max_llm_calls is None else -(-rest.max_llm_calls // count),
        max_tokens=None if rest.max_tokens is None else -(-rest.max_tokens // count),
        max_cost=cost,
    )


def reserved_for(bounds: Bounds) -> Reserved:
    """Return the reservation of a parent for a child with these bounds."""
    cost = int((bounds.max_cost or 0) * NANODOLLARS)
    return Reserved(bounds.max_tokens or 0, cost, calls=bounds.max_llm_calls or 0)


def given_with(state: ExecutionState, reserved: Reserved | None) -> Bounds:
    """Return the bounds of a child for which the parent has already reserved an amount."""
    left = left_of(state)
    held = reserved or Reserved()
    return replace(
        left,
        max_llm_calls=None if left.max_llm_calls is None else held.calls,
        max_tokens=None if left.max_tokens is None else held.tokens,
        max_cost=None if left.max_cost is None else dollars(held.cost),
    )


def given_again(state: ExecutionState, definition_bounds: Bounds, rest: Bounds, counted: Usage) -> Bounds:
    """Return the bounds of a child that its parent resumes.

    Each limit is the tighter of two: the child's own bounds, and the rest of the parent's bounds plus what the child
    has already spent (`counted`), since both count it. Bounds that a person raised in the child stay raised.

    Parameters
    ----------
    state
        State of the child.
    own
        Bounds in the child's workflow.
    left
        Rest of the parent's bounds.
    counted
        Usage of the child that the parent has counted.
    """
    present = state.bounds
    widest = dict[str, Any]()
    for name in _SHARED:
        limit = getattr(definition_bounds, name)
        widest[name] = None if limit is None else max(limit, getattr(present, name) or 0)
    tokens = counted.input_tokens + counted.output_tokens
    spent: dict[str, Any] = {
        "max_llm_calls": counted.requests,
        "max_tokens": tokens,
        "max_cost": dollars(counted.cost),
        "max_seconds": state.running_us / MICROSECONDS,
    }
    limits = {name: getattr(rest, name) for name in spent}
    total: dict[str, Any] = {name: limit + spent[name] for name, limit in limits.items() if limit is not None}
    mine = replace(present, on_exhausted=definition_bounds.on_exhausted, **widest)
    return within(mine, replace(rest, **total))


def within(bounds: Bounds, other: Bounds) -> Bounds:
    """Return bounds with the tighter of two limits each. `on_exhausted` is "fail" if either of them has it."""
    tighter: dict[str, Any] = {
        name: min((limit for limit in (getattr(bounds, name), getattr(other, name)) if limit is not None), default=None)
        for name in _SHARED
    }
    return replace(bounds, **tighter, on_exhausted=FAIL if FAIL in (bounds.on_exhausted, other.on_exhausted) else ASK)


def dollars(nanodollars: int) -> Decimal:
    """Return an amount in US dollars."""
    return (Decimal(nanodollars) / NANODOLLARS).normalize()


# --- asking --------------------------------------------------------------------------------------------------------

_OR_STOP = " and continue, or stop?"


def question_about(state: ExecutionState, exhausted: Exhausted) -> str:
    """Return the id of the question about a bound. All paths that reach the bound share it."""
    return state.question_id("bound", exhausted.bound, exhausted.edge, exhausted.limit, state.stops)


def facts_about(state: ExecutionState, exhausted: Exhausted, path: str, step: str) -> tuple[Fact, ...]:
    """Return the facts that make a path wait for the answer about a bound. Empty if it waits already."""
    interrupt_id = question_about(state, exhausted)
    pending = state.interrupts.get(interrupt_id)
    if pending is None:
        question, data = asked_about(exhausted)
        return (Fact(catalog.InterruptRaised(interrupt_id, RESOURCE_EXHAUSTED, question, data=data), path, step),)
    if pending.status == PENDING and path not in pending.waiting:
        return (Fact(catalog.InterruptJoined(interrupt_id), path, step),)
    return ()


def asked_about(exhausted: Exhausted, whose: str = "") -> tuple[str, dict[str, Any]]:
    """Return the text and the data of the question about a bound.

    `whose` stands in front of the text; it names the agent that the bound belongs to.
    """
    details = {"bound": exhausted.bound, "limit": exhausted.limit, "used": exhausted.used, "edge": exhausted.edge}
    details |= {"reason": exhausted.reason, "reserved": exhausted.reserved, "needed": exhausted.needed}
    data = {key: value for key, value in details.items() if value is not None} | {"choices": [RAISE, STOP]}
    return f"{whose}{exhausted.summary} Raise `{exhausted.name}`{_OR_STOP}", data


def _error_after_stop(question: str) -> str:
    """Return the error of an execution whose bound a person did not raise: the question without its last words."""
    if question.endswith(_OR_STOP):
        return f"{question.removesuffix(_OR_STOP)}."
    return question.partition(". Raise the bound")[0]  # the wording of older versions


def fails_at_bounds(state: ExecutionState) -> bool:
    """Return whether a reached bound ends the execution without a question."""
    return state.bounds.on_exhausted == FAIL


# --- fold: operations begin and end ----------------------------------------------------------------------------------


_RESERVES = frozenset({AGENT_RESPONSE, CHILD_WORKFLOW})
LONGEST_SECONDS = 1000 * 365 * 86400.0
"""Longest timer in seconds. Longer ones count as this long, because dates end with the year 9999."""


def operation_started(draft: Draft, data: catalog.OperationStarted) -> None:
    """Add the record of an operation. A model call is counted, and its reservation is deducted from the bounds."""
    path, opened = draft.open_step(data)
    kind = data.operation_type
    record = OperationRecord.begun(data.operation_id, kind, data.parameters_hash, draft.moment, draft.last_sequence)
    if kind in _RESERVES:
        held = Reserved.of(data.reserved)
        earlier = opened.operations.get(data.operation_id)
        ledger = draft.ledger.holding(_held_before(earlier, data), -1).holding(held)
        record = record._replace(reserved=held)
        draft.ledger = _asking_a_model(ledger, path, data) if kind == AGENT_RESPONSE else ledger
    if data.within is not None or data.setting_hash is not None or kind in ENCLOSING:
        record, opened = held_by(opened, record, data)
    if data.undone is not None:
        record = record._replace(undone=data.undone, item=data.iteration_index)
    if kind not in SLEEPS:
        path.open = opened.with_operation(record)
        return
    until = _end_of(draft, data)
    signal = (data.parameters or {}).get("signal")
    _put_sleeping(draft, path, opened, record._replace(until=until, signal=signal))


def _held_before(earlier: OperationRecord | None, data: catalog.OperationStarted) -> Reserved | None:
    """Return the reservation to release when a call begins again.

    The reservation of a child that another child replaces stays
    (test_it_stays_held_where_another_execution_takes_the_place).
    """
    is_same = earlier is not None and earlier.signal == (data.parameters or {}).get("signal")
    return earlier.reserved if earlier is not None and is_same else None


def _asking_a_model(ledger: Ledger, path: PathState, data: catalog.OperationStarted) -> Ledger:
    """Return the ledger with one more model call, also for a call that is repeated."""
    ledger = ledger._replace(llm_calls=ledger.llm_calls + 1)
    if path.hop is None:
        return ledger
    agent = (data.parameters or {}).get("agent")
    calls = ledger.history[path.hop].llm_calls
    return ledger.with_hop(path.hop, agent=agent, llm_calls=calls + 1)


def without_a_call(ledger: Ledger, path: PathState) -> Ledger:
    """Return the ledger with one model call fewer, for a call that was replayed from a log instead."""
    ledger = ledger._replace(llm_calls=ledger.llm_calls - 1)
    if path.hop is None:
        return ledger
    return ledger.with_hop(path.hop, llm_calls=ledger.history[path.hop].llm_calls - 1)


def _end_of(draft: Draft, data: catalog.OperationStarted) -> int | None:
    seconds = (data.parameters or {}).get("seconds")
    if not isinstance(seconds, int | float):
        return None
    return draft.moment + round(min(seconds, LONGEST_SECONDS) * MICROSECONDS)


def operation_completed(draft: Draft, data: catalog.OperationCompleted) -> None:
    """Record the result of a call. One that waited for a signal removes the oldest signal of that name."""
    record = _ended(draft, data, COMPLETED, (data.result, None, (), None))
    if record.signal is not None and record.operation_type != CHILD_WORKFLOW:
        remaining = draft.signals.get(record.signal, ())[1:]
        draft.signals = (
            draft.signals.set(record.signal, remaining) if remaining else draft.signals.delete(record.signal)
        )


def event_emitted(draft: Draft, data: catalog.EventEmitted) -> None:
    """Record a user event if its code requests it again on replay."""
    if data.operation_id is None:
        return
    path, opened = draft.open_step(data)
    moment = draft.moment
    sequence = draft.last_sequence
    record = OperationRecord.begun(data.operation_id, EVENT_EMITTED, data.parameters_hash, moment, sequence)
    path.open = opened.with_operation(record._replace(ended_sequence=sequence, status=COMPLETED))


def operation_failed(draft: Draft, data: catalog.OperationFailed) -> None:
    """Record the error of a call."""
    _ended(draft, data, FAILED, (None, data.error, tuple(data.error_names or ()), data.raised))
    path, opened = draft.open_step(data)
    record = opened.operations[data.operation_id]
    if data.final or data.lost != record.lost:
        is_final = record.is_final or bool(data.final)
        path.open = opened.with_operation(record._replace(is_final=is_final, lost=data.lost))


def _ended(
    draft: Draft, data: catalog.OperationCompleted | catalog.OperationFailed, status: str, outcome: Outcome
) -> OperationRecord:
    """Record the end of a call with its usage, and release its reservation. Return the record as it was before.

    Usage is added to the step and the execution. A call that was replayed from another log does not count as a model
    call. With `data.held`, the call keeps a reservation although it has ended.
    """
    path, opened = draft.open_step(data)
    record = opened.operations.get(data.operation_id)
    if record is None:
        raise CorruptStoreError(f"call {data.operation_id} of {draft.execution_id} ends without having begun")
    is_plain = record.reserved is None and record.operation_type not in SLEEPS and not data.usage and not data.served
    if is_plain and draft.ends_step and draft.bounds.max_repeats is None:
        return record  # the step ends with this event, so its records are dropped at once
    if data.usage:
        opened = opened._replace(usage=opened.usage.plus(data.usage))
        draft.usage = draft.usage.plus(data.usage)
    if record.reserved is not None:
        draft.ledger = draft.ledger.holding(record.reserved, -1)
    if data.served is not None and record.operation_type == AGENT_RESPONSE:
        draft.ledger = without_a_call(draft.ledger, path)
    ended = record.ended(draft.last_sequence, status, outcome)
    if data.held:
        reservation = Reserved.of(data.held)
        draft.ledger = draft.ledger.holding(reservation)
        ended = ended._replace(reserved=reservation)
    if status == COMPLETED and record.operation_type in ENCLOSING:
        opened = without_held(opened, record)
        ended = ended._replace(holds=())
    if record.operation_type not in SLEEPS:
        path.open = opened.with_operation(ended)
        return record
    if record.operation_type == CHILD_WORKFLOW:
        _child_ended(draft, record, data.usage)
    _put_sleeping(draft, path, opened, ended)
    return record


def _child_ended(draft: Draft, record: OperationRecord, usage: Mapping[str, int] | None) -> None:
    """Record the end of a child: count its usage, and drop its signals."""
    child = record.signal or ""
    draft.ledger = draft.ledger.with_child(child, usage or {})
    if child in draft.signals:
        draft.signals = draft.signals.delete(child)


def _put_sleeping(draft: Draft, path: PathState, opened: OpenStep, record: OperationRecord) -> None:
    path.open = after = opened.with_operation(record)
    draft.sleeping += sleeps(after) - sleeps(opened)


# --- fold: questions, answers, signals -------------------------------------------------------------------------------


def interrupt_raised(draft: Draft, data: catalog.InterruptRaised) -> None:
    """Add a question. Its path waits."""
    path = draft.path(data)
    question = Question(
        data.interrupt_id,
        data.kind,
        data.question,
        path.id,
        draft.step,
        message=data.message,
        data=data.data,
        schema=data.schema,
        operation_id=data.operation_id,
        raised_us=draft.moment,
        expires_us=data.expires_at,
        default=data.default,
        optional=bool(data.optional),
        waiting=(path.id,),
    )
    _wait(draft, path, question)


def interrupt_joined(draft: Draft, data: catalog.InterruptJoined) -> None:
    """Add a path to those that wait for a question."""
    question = _open_question(draft, data.interrupt_id)
    path = draft.path(data)
    _wait(draft, path, question._replace(waiting=(*question.waiting, path.id)))


def _wait(draft: Draft, path: PathState, question: Question) -> None:
    draft.interrupts = draft.interrupts.set(question.id, question)
    draft.asking += path.asking == 0
    path.asking += 1


def _open_question(state: ExecutionState, interrupt_id: str) -> Question:
    question = state.interrupts.get(interrupt_id)
    if question is None or not question.is_open:
        raise CorruptStoreError(f"question {interrupt_id} of {state.execution_id} is settled without being open")
    return question


def interrupt_resolved(draft: Draft, data: catalog.InterruptResolved) -> None:
    """Record an answer and wake the paths that waited for it."""
    question = _open_question(draft, data.interrupt_id)
    answered = question.resolved(data)
    _settle(draft, answered, data.message)
    if question.kind == RESOURCE_EXHAUSTED:
        follow_about_bounds(draft, answered)


def interrupt_expired(draft: Draft, data: catalog.InterruptExpired) -> None:
    """Record that a question expired. Its default, if it has one, becomes the answer."""
    question = _open_question(draft, data.interrupt_id)
    _settle(draft, question.expired(), data.message)


def _settle(draft: Draft, question: Question, message: int | None) -> None:
    if draft.status == WAITING and draft.asking:  # it has done nothing else since the last event
        draft.paused_us += max(0, draft.moment - draft.last_us)
    for path_id in question.waiting:
        path = draft.own(path_id)
        draft.asking -= path.asking == 1 and path.phase != ENDED
        path.asking -= 1
        path.woken += 1
    draft.interrupts = draft.interrupts.set(question.id, question._replace(settled_us=draft.moment))
    _take(draft, message)


def _take(draft: Draft, message: int | None) -> None:
    if message is not None:
        draft.taken = max(draft.taken, message)


def follow_about_bounds(draft: Draft, question: Question) -> None:
    """Raise a bound or stop the execution, depending on the answer."""
    response = question.response or {}
    details = question.data or {}
    if (
        "bound" not in details or "agent" in details
    ):  # a question of the definition, or of an agent's turn, which handles it
        return
    if response.get("decision") == STOP:
        draft.stops += 1
        draft.stopped = (_error_after_stop(question.question), details.get("reason", ""))
    elif response.get("decision") == RAISE:
        draft.bounds = raised(draft.bounds, details["bound"], details.get("edge"), response["data"]["to"])


def signal_received(draft: Draft, data: catalog.SignalReceived) -> None:
    """Store a signal until a call receives it."""
    name = data.signal_type
    draft.signals = draft.signals.set(name, (*draft.signals.get(name, ()), data.payload))
    _take(draft, data.message)
    for path in draft.active_paths():
        records = path.open.operations.values() if path.open is not None else ()
        if any(record.signal == name and record.status == RUNNING for record in records):
            draft.own(path.id).woken += 1
