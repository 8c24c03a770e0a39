"""What executions of the two dialects do differently, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Dialect = Literal["divebook", "dive"]
"""``divebook`` is strict; ``dive`` reads a file of the old system as it did, with warnings."""

OWN: Dialect = "divebook"


@dataclass(frozen=True, slots=True)
class Manner:
    """How the executions of a workflow behave where the dialects differ; the defaults are our own."""

    is_strict: bool = True
    """Whether what would fail or be ignored is refused before anything runs."""
    has_extensions: bool = True
    """Whether there are waits, questions, retries and whatever else the old system did not have."""
    keeps_text: bool = False
    """Whether an action's result, and each item's, is stored as text, and errors are reported without their place."""
    flattens_items: bool = False
    """Whether nested items of ``Each`` are flattened all the way down."""
    numbers_all_branches: bool = False
    """Whether new paths are numbered over the whole execution and not below each path."""
    writes_state: bool = True
    """Whether scripts may change variables beside their step's Store."""
    converts_inputs: bool = True
    """Whether a text typed for an input becomes a number, or a list, where the input's Type says so."""
    confirmation_mode: str = ""
    """When calls of tools ask a person, where neither rules nor settings say; empty leaves it to each tool."""
    qualifies_tools: bool = True
    """Whether tools of one name have that of their server in front; else an agent cannot have both."""
    null_text: str = ""
    """What a script without a value prints."""


MANNERS: Mapping[Dialect, Manner] = {
    OWN: Manner(),
    "dive": Manner(
        is_strict=False,
        has_extensions=False,
        keeps_text=True,
        flattens_items=True,
        numbers_all_branches=True,
        writes_state=False,
        converts_inputs=False,
        confirmation_mode="if-not-read-only",
        qualifies_tools=False,
        null_text="nil",
    ),
}
