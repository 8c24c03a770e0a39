"""The outputs of the stages, and what is kept of earlier attempts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from divebook.pipeline.envelope.copying import copied_map


@dataclass(frozen=True, slots=True)
class SlotNames:
    """Which output slots have a part in retries, stages and responses; the envelope itself knows no stage."""

    retry_reset: Collection[str] = frozenset({"plan", "arbiter", "execution", "synthesizer", "critic"})
    """Dropped when an attempt begins anew."""
    advance_reset: Collection[str] = frozenset({"plan", "execution", "critic"})
    """Dropped when the next stage of goals begins."""
    archive: str = "plan"
    """Kept in `prior_plans` when an attempt begins anew; its ``plan_id`` marks a completed stage."""
    response: str = "integration"
    """Holds the final response ..."""
    response_key: str = "final_response"
    """... under this key."""


DEFAULT_SLOT_NAMES = SlotNames()


@dataclass(slots=True)
class Slots:
    """One output per name, and the memory of attempts that came before."""

    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    prior_plans: list[dict[str, Any] | None] = field(default_factory=list)
    loop_feedback: list[str] = field(default_factory=list)

    def put(self, key: str, output: Mapping[str, Any]) -> None:
        """Replace a whole slot."""
        self.outputs[key] = output if isinstance(output, dict) else dict(output)

    def begin_anew(self, names: SlotNames, feedback: str | None) -> None:
        """Keep feedback and the archived slot, and drop what is to be made again."""
        if feedback is not None:
            self.loop_feedback.append(feedback)
        if names.archive in self.outputs:
            self.prior_plans.append(copied_map(self.outputs[names.archive], f"outputs.{names.archive}"))
        self.drop(names.retry_reset)

    def drop(self, keys: Collection[str]) -> None:
        """Remove slots; those that are not there do not matter."""
        for key in keys:
            self.outputs.pop(key, None)
