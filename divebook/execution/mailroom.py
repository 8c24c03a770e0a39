"""Brings messages from the store's inbox to the executions that this process drives.

One per store, on the engine's loop. What this process sends itself is handed over at once; what other processes send
the store tells of, while anything runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from divebook.errors import FencedError, StoreError
from divebook.execution.runner import Runner
from divebook.execution.store_calls import StoreCalls

INTERVAL = 0.05
"""Seconds after which the store is listened to: most executions have come to rest by then."""


class Mailroom:
    """The runners of one store, and the task that looks into the inbox when there is news."""

    def __init__(self, calls: StoreCalls) -> None:
        self._calls, self._store = calls, calls.store
        self._runners: dict[str, Runner] = {}
        self._seen: int | None = None
        """Number of the last message that was looked at; None where nobody has looked since runners came."""
        self._task: asyncio.Task[None] | None = None
        self._has_news = False
        self._alarm: asyncio.TimerHandle | None = None
        self._ignore: Callable[[], None] | None = None
        """Ends listening, if the store is listened to."""

    def admit(self, execution_id: str, runner: Runner) -> None:
        """Tell a runner of messages from now on; it looks for those that wait already when it begins."""
        if not self._runners:
            self._seen = None
        self._runners[execution_id] = runner
        if self._ignore is None and self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(INTERVAL, self._listen)

    def dismiss(self, execution_id: str) -> None:
        """Bring no more messages to the execution."""
        self._runners.pop(execution_id, None)
        if self._runners:
            return
        if self._ignore is not None:
            self._ignore()
            self._ignore = None
        if self._alarm is not None:  # it would hold on to this mailroom until its time has come
            self._alarm.cancel()
            self._alarm = None

    def knows(self, execution_id: str) -> bool:
        """Whether the execution was admitted; any thread."""
        return execution_id in self._runners

    async def deliver(self, execution_id: str) -> bool:
        """Hand over what waits for one execution; return False if no runner of this process takes it."""
        runner = self._runners.get(execution_id)
        if runner is None:
            return False
        try:
            return await runner.take()
        except FencedError:  # another process drives it now and reads its inbox; the driver of this process raises this
            return False

    def _listen(self) -> None:
        self._alarm = None
        if not self._runners or self._ignore is not None:
            return
        loop = asyncio.get_running_loop()

        def hear() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._begin_to_look)

        self._ignore = self._store.on_news(hear)

    def _begin_to_look(self) -> None:
        self._has_news = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._look(), name="divebook-mailroom")

    async def _look(self) -> None:
        try:
            while self._has_news and self._runners:
                self._has_news = False
                self._seen, addressed = await self._calls.patiently(self._news)
                for execution_id in addressed:
                    await self.deliver(execution_id)
        except StoreError:  # the store is gone, or damaged: the code that writes to it, or reads an inbox, says so
            return
        finally:
            self._task = None

    def _news(self) -> tuple[int, set[str]]:
        """Return the number of the last message, and the executions that may have one which nobody looked at.

        What came between the beginning of the first runner and the first look may be for any of them
        (test_a_signal_from_elsewhere_before_the_first_look_is_found).
        """
        if self._seen is None:
            return self._store.last_message(), set(self._runners)
        messages = self._store.new_messages(self._seen)
        last = max((message.number for message in messages), default=self._seen)
        return last, {message.execution_id for message in messages}
