"""Brings messages from the store's inbox to the executions that this process drives.

One per store, on the engine's loop. What this process sends itself is handed over at once; what other processes send
is looked for a few times a second, while anything runs.
"""

from __future__ import annotations

import asyncio

from divebook.errors import StoreError
from divebook.execution.runner import Runner
from divebook.execution.store_calls import StoreCalls

INTERVAL = 0.05
"""Seconds between two looks."""


class Mailroom:
    """The runners of one store, and the task that watches the inbox while there are any."""

    def __init__(self, calls: StoreCalls) -> None:
        self._calls, self._store = calls, calls.store
        self._runners: dict[str, Runner] = {}
        self._seen = 0
        self._admission = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def admit(self, execution_id: str, runner: Runner) -> None:
        """Tell a runner of messages from now on; it looks for those that wait already when it begins."""
        async with self._admission:  # nobody begins before it is known which messages are new
            if not self._runners:
                self._seen = await self._calls.patiently(self._store.last_message)
            self._runners[execution_id] = runner
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._watch(), name="divebook-mailroom")

    def dismiss(self, execution_id: str) -> None:
        """Bring no more messages to the execution."""
        self._runners.pop(execution_id, None)

    async def deliver(self, execution_id: str) -> bool:
        """Hand over what waits for one execution; return False if no runner of this process takes it."""
        runner = self._runners.get(execution_id)
        return runner is not None and await runner.take()

    async def _watch(self) -> None:
        while self._runners:
            await asyncio.sleep(INTERVAL)
            try:
                messages = await self._calls.once(lambda: self._store.new_messages(self._seen))
                for execution_id in {message.execution_id for message in messages}:
                    await self.deliver(execution_id)
            except StoreError:  # the store is busy or gone: the code that writes to it says so
                continue
            self._seen = max((message.number for message in messages), default=self._seen)
