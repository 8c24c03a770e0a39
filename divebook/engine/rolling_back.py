"""What is undone when an execution fails or is cancelled, as its state has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Undoing(NamedTuple):
    """A call that undoes what a step, an item of it or a call has done."""

    step: str
    action: str
    """Name of what is called."""
    parameters: Mapping[str, Any]
    kind: str
    """Whether that is an ``action``, or a function given to a ``step``."""


class RollingBack(NamedTuple):
    """How an execution ends that is being rolled back."""

    error: str
    reason: str | None
    is_cancelled: bool
