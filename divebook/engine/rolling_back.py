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
    function: str | None = None
    """Where such a function is defined; None in older logs."""

    @property
    def called(self) -> str:
        """By what it is found."""
        return self.function or self.action


class RollingBack(NamedTuple):
    """How an execution ends that is being rolled back."""

    error: str
    reason: str | None
    is_cancelled: bool
