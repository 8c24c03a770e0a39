"""One measured figure and the target it is held against."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured."""

    name: str
    store: str
    """``memory``, ``relaxed``, ``full``, or empty where it does not matter."""
    value: float
    unit: str
    target: float | None = None
    """None where the figure only stands beside others."""
    at_least: bool = False
    """Whether the target is the least and not the most that is good."""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """``ok``, ``missed``, or empty without a target."""
        if self.target is None:
            return ""
        good = self.value >= self.target if self.at_least else self.value <= self.target
        return "ok" if good else "missed"

    @property
    def limit(self) -> str:
        """The target as text."""
        return "" if self.target is None else f"{'>=' if self.at_least else '<='} {self.target:g}"

    @property
    def cells(self) -> tuple[str, ...]:
        """The figure as a row of a table."""
        shown = f"{self.value:.3g}" if abs(self.value) < 100 else f"{self.value:,.0f}"
        details = ", ".join(f"{name} {value}" for name, value in self.details.items())
        return self.name, self.store, f"{shown} {self.unit}".strip(), self.limit, self.verdict, details


HEADINGS = ("what", "store", "figure", "target", "verdict", "details")
