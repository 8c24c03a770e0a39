"""Times at which paths are looked at again, though nothing comes: signals that are late, questions that expire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from divebook.execution.groups import Group
from divebook.execution.journal import Journal
from divebook.execution.unrecorded_waits import engine_code

MICROSECONDS = 1_000_000


class Woken(Protocol):
    """Whose paths they are."""

    def may_take(self) -> bool:
        """Whether its paths may go on."""

    async def take(self) -> bool:
        """Record what lies in the inbox, and let paths go on that waited for it."""

    def wake(self, path: str) -> None:
        """Let a path look again."""


class Alarms:
    """The alarms of one execution.

    Parameters
    ----------
    claim_expired
        Claims a question of an execution whose time is up.
    """

    def __init__(
        self, journal: Journal, group: Group, woken: Woken, claim_expired: Callable[[str, str], Awaitable[object]]
    ) -> None:
        self._journal, self._group, self._woken, self._claim_expired = journal, group, woken, claim_expired

    def set(self, path: str, deadline: int) -> None:
        """Have a path looked at again at a time, microseconds since 1970."""
        self._group.start(self._ring(path, deadline), is_aside=True)

    async def expire(self, interrupt_id: str) -> None:
        """Let an open question expire before its time, and its paths go on; an answer that came first counts."""
        await self._claim_expired(self._journal.execution_id, interrupt_id)
        await self._woken.take()

    def set_all(self) -> None:
        """Set those that the log asks for."""
        for path, deadline in self._journal.state.deadlines():
            self.set(path, deadline)

    def stop(self) -> None:
        """Set all of them off."""
        self._group.cancel_aside()

    async def go_on(self) -> None:
        """Set those that the log asks for, after a rest; what is due by now is looked at before that."""
        for path, deadline in self._journal.state.deadlines():
            if deadline <= self._journal.clock.now():
                await self._ring(path, deadline)
            else:
                self.set(path, deadline)

    async def _ring(self, path: str, deadline: int) -> None:
        """Let a path go on at a certain time, and claim its questions that have no answer by then."""
        left = deadline - self._journal.clock.now()
        while left > 0:
            with engine_code():  # the clock may be a person's
                await self._journal.clock.sleep(left / MICROSECONDS)
            left = deadline - self._journal.clock.now()
        if not self._woken.may_take():
            return
        questions = self._journal.state.pending_interrupts()
        expired = [found for found in questions if found.expires_us is not None and found.expires_us <= deadline]
        for question in expired:
            await self._claim_expired(self._journal.execution_id, question.interrupt_id)
        if expired:
            await self._woken.take()
        if self._woken.may_take():
            self._woken.wake(path)
