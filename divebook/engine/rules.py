"""A rule that a person made for calls to come, while an execution was under way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class StandingRule(NamedTuple):
    """What a person has said of calls to come: of those that are like the one that was approved, and no others."""

    rule_id: str
    outcome: str
    tool: str
    kind: str = "tool"
    """``tool``, ``action`` or ``step``."""
    # None is a call that no agent makes, and a tool of no server.
    agent: str | None = None
    server: str | None = None
    arguments: Mapping[str, Any] | None = None
    """What the arguments must be, by name."""
    scope: str = "run"
    """``run`` or ``always``."""
    expires_us: int | None = None
    """When it holds no more, microseconds since 1970."""
    question: str | None = None
    """Id of the question whose answer made it."""
    by: str | None = None
    added_us: int = 0
