"""How the code of an execution waits for something from outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from divebook.execution.log import StepLog
from divebook.execution.strands import Strands
from divebook.questions import Question


async def _nothing(_interrupt_id: str) -> None:
    """Let no question expire: a log that is only replayed has all that became of its questions."""


class Waits:
    """Where the strands of an execution wait, and for how long."""

    def __init__(self, journal: StepLog) -> None:
        self.idle: Callable[[Strands], None] = Strands.let_go
        """Takes the strands of a path that has nothing left to do."""
        self.changed: Callable[[], None] = lambda: None
        """Called when the strands of a path become blocked, and when they stop being so."""
        self.expire: Callable[[str], Awaitable[None]] = _nothing
        """Lets an open question expire before its time."""
        self._strands: dict[str, Strands] = {}
        """Of the step that each path is in, where that has asked for any."""
        self.deadlines: Callable[[str, int], None] | None = None
        """Takes a path that is to be looked at again, and when (microseconds)."""
        self._journal = journal

    def enter(self, path: str) -> None:
        """Forget the strands of the step that a path was in."""
        self._strands.pop(path, None)

    def strands(self, path: str) -> Strands:
        """Return the strands of the step that a path is in."""
        if path not in self._strands:
            self._strands[path] = Strands(self.idle, self._note_change)
        return self._strands[path]

    def _note_change(self) -> None:
        self.changed()

    def is_blocked(self, path: str) -> bool:
        """Whether the step of a path has an open call, and nothing can happen there before an answer comes."""
        strands = self._strands.get(path)
        return strands is not None and strands.is_blocked

    def count(self, path: str) -> int:
        """Return how many strands a path has; one, where its step has asked for none."""
        found = self._strands.get(path)
        return 1 if found is None else found.running + found.parked

    async def until(self, path: str, is_ready: Callable[[], bool]) -> None:
        """Return when `is_ready`, at `look_again` or when something comes; see `Strands.park`."""
        await self.strands(path).park(is_ready)

    def look_again(self, path: str, at: int | None) -> None:
        """Let a path look again at a time, though nothing comes; None for never."""
        if at is not None and self.deadlines is not None:
            self.deadlines(path, at)

    async def answer(self, path: str, interrupt_id: str) -> Question:
        """Return a question once it is settled.

        Raises
        ------
        Suspended
            It is not, and no strand of the path has anything else to do.
        """

        def is_settled() -> bool:
            return not self._journal.state.interrupts[interrupt_id].is_open

        await self.until(path, is_settled)
        return self._journal.state.interrupts[interrupt_id]
