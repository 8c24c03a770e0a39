"""Whether and why a request is over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from divebook.pipeline.envelope.enums import ReasonClass, TerminalReason


@dataclass(slots=True)
class Termination:
    """The end of a request; a typed reason alone says what keeps it from going on."""

    terminated: bool = False
    termination_reason: str | None = None
    """For people."""
    terminal_reason: TerminalReason | str | None = None
    """For programs."""
    completed_at: datetime | None = None

    def end(self, message: str, reason: str | None, now: datetime) -> None:
        """Note the end; without a typed reason an earlier one stays."""
        self.terminated, self.termination_reason, self.completed_at = True, message, now
        if reason is not None:
            self.terminal_reason = TerminalReason.read(reason)

    def forget_bound(self) -> None:
        """Take back a reason that named a bound, since no bound is reached any more."""
        reason = self.terminal_reason
        if isinstance(reason, TerminalReason) and reason.classification is ReasonClass.BOUNDS_EXCEEDED:
            self.terminal_reason = None
