"""What was spent, held against what may be: counts, and the first bound they have reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from divebook.bounds import Bounds
from divebook.pipeline.envelope.enums import TerminalReason


@dataclass(slots=True)
class Usage:
    """What one request has spent so far."""

    iteration: int = 0
    llm_call_count: int = 0
    agent_hop_count: int = 0
    token_count: int = 0
    cost: Decimal = Decimal(0)
    """US dollars."""
    edge_counts: dict[str, int] = field(default_factory=dict)
    """Passages, by ``"from->to"``."""

    def count_edge(self, edge: str) -> int:
        """Count one more passage of an edge and return how many there were."""
        self.edge_counts[edge] = self.edge_counts.get(edge, 0) + 1
        return self.edge_counts[edge]


def exceeded_bound(bounds: Bounds, usage: Usage, elapsed_seconds: float = 0.0) -> TerminalReason | None:
    """Return the first bound that forbids to go on, or None.

    Iterations and edges may equal their bound; of all else, what has reached its bound is used up.
    """
    if bounds.max_iterations is not None and usage.iteration > bounds.max_iterations:
        return TerminalReason.MAX_ITERATIONS_EXCEEDED
    used_up = (
        (usage.llm_call_count, bounds.max_llm_calls, TerminalReason.MAX_LLM_CALLS_EXCEEDED),
        (usage.agent_hop_count, bounds.max_agent_hops, TerminalReason.MAX_AGENT_HOPS_EXCEEDED),
        (usage.token_count, bounds.max_tokens, TerminalReason.MAX_TOKENS_EXCEEDED),
        (usage.cost, bounds.max_cost, TerminalReason.MAX_COST_EXCEEDED),
        (elapsed_seconds, bounds.max_seconds, TerminalReason.MAX_SECONDS_EXCEEDED),
    )
    for count, bound, reason in used_up:
        if bound is not None and count >= bound:
            return reason
    return TerminalReason.MAX_LOOP_EXCEEDED if exceeded_edge(bounds, usage.edge_counts) else None


def exceeded_edge(bounds: Bounds, edge_counts: Mapping[str, int]) -> str | None:
    """Return the first edge that was passed more often than it may be, or None."""
    return next((edge for edge, limit in bounds.edges.items() if edge_counts.get(edge, 0) > limit), None)
