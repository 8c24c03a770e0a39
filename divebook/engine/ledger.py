"""What an execution has spent and done so far, apart from tokens: part of its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from immutables import Map

from divebook.bounds import Bounds
from divebook.engine.operations import Reserved
from divebook.engine.records import NO_USAGE, Usage

NO_BOUNDS = Bounds()
NO_EDGES: Map[str, int] = Map()
NO_CHILDREN: Map[str, Usage] = Map()


class Hop(NamedTuple):
    """One agent step."""

    step: str
    path: str
    started_us: int
    agent: str | None = None
    """The agent that was asked; None until it has been."""
    ended_us: int | None = None
    status: str = "running"
    """``running``, ``success`` or ``error``."""
    error: str | None = None
    llm_calls: int = 0


NO_HOPS: Map[int, Hop] = Map()
NO_ERRORS: Map[int, Mapping[str, Any]] = Map()


class Ledger(NamedTuple):
    """Counters, history and errors; every call counts from when it has begun."""

    llm_calls: int = 0
    agent_hops: int = 0
    iterations: int = 0
    """Passes through loops beyond the first."""
    reserved_tokens: int = 0
    reserved_cost: int = 0
    """What the calls that run may still consume; cost in nanodollars."""
    reserved_calls: int = 0
    """What the executions that it started, and that run, may still ask of models."""
    edges: Map[str, int] = NO_EDGES
    """Passages by ``"from->to"``, of the edges that have a bound."""
    history: Map[int, Hop] = NO_HOPS
    """The agent steps, by number."""
    children: Map[str, Usage] = NO_CHILDREN
    """What the executions that it started have consumed, by id; it counts here as well."""
    errors: Map[int, Mapping[str, Any]] = NO_ERRORS
    """Errors of steps: ``agent``, ``error``, ``error_type``, ``timestamp`` (microseconds)."""

    def holding(self, reserved: Reserved | None, sign: int = 1) -> Ledger:
        """Return the ledger with more reserved, or less if `sign` is -1."""
        if reserved is None:
            return self
        return self._replace(
            reserved_tokens=self.reserved_tokens + sign * reserved.tokens,
            reserved_cost=self.reserved_cost + sign * reserved.cost,
            reserved_calls=self.reserved_calls + sign * reserved.calls,
        )

    def with_child(self, child: str, usage: Mapping[str, int]) -> Ledger:
        """Return the ledger with more that an execution has consumed which this one started."""
        counted = self.children.set(child, self.children.get(child, NO_USAGE).plus(usage))
        return self._replace(llm_calls=self.llm_calls + usage.get("requests", 0), children=counted)

    def with_error(self, step: str, error: str, at: int) -> Ledger:
        """Return the ledger with one more error."""
        told = {"agent": step, "error": error, "error_type": "ProcessingError", "timestamp": at}
        return self._replace(errors=self.errors.set(len(self.errors), told))

    def with_hop(self, number: int, **changes: Any) -> Ledger:
        """Return the ledger with something more known of an agent step."""
        return self._replace(history=self.history.set(number, self.history[number]._replace(**changes)))


NOTHING_SPENT = Ledger()
