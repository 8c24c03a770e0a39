"""Durable logs: facts that outlast a run, such as approval rules made by people, and conversations.

A durable log is an execution that waits for ever. Its start key identifies it. Its entries are signals: the store keeps
each signal with a number, and of several signals with one key it keeps the first. Nothing drives the execution; reading
its inbox is enough, because the signals remain there. Lists of executions leave durable logs out
(`divebook.events.catalog.BOOK`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from divebook.engine.inbox import SIGNAL, Message, signal_payload
from divebook.errors import ExecutionNotFoundError, StoreBusyError
from divebook.events.catalog import BOOK
from divebook.runtime.clock import Clock
from divebook.runtime.commit import StoreCalls
from divebook.store import EventStore
from divebook.workflow.definition import Workflow
from divebook.workflow.step import Step

T = TypeVar("T")


ENTRY = "entry"


BOOK_WORKFLOW = Workflow("book", [Step("open", type="wait", signal="close")])
"""Workflow of the executions that hold durable logs."""


class DurableLog:
    """Durable logs of one store. Each is created by its first entry.

    From the engine's loop, a remote store is called in a thread: `StoreCalls.work`.

    Parameters
    ----------
    begin
        Starts the execution of a log by its start key, unless it exists; returns its id.

    From the engine's loop a store that is far away is asked in a thread: `StoreCalls.work`.
    """

    def __init__(self, store: EventStore, begin: Callable[[str], str], clock: Clock) -> None:
        self._store = store
        self._begin = begin
        self._clock = clock
        self._calls = StoreCalls(store)
        self._starting: dict[str, str] = {}
        """Ids of logs that were started and are not in the store yet, by start key."""

    def entries(self, name: str) -> list[Entry]:
        """Return the entries of a log, oldest first; an empty list if the log does not exist."""
        book = self._found(name)
        return [] if book is None else [_entry(message) for message in self._store.inbox(book)]

    def names(self, beginning: str) -> list[str]:
        """Return the names of the logs whose start keys begin with a prefix, without the prefix."""
        keys = (record.key or "" for record in self._store.records(origin=BOOK))
        return [key.removeprefix(beginning) for key in keys if key.startswith(beginning)]

    def write(self, name: str, key: str, value: Any, by: str) -> None:
        """Append an entry, unless the log has one with that key.

        Raises
        ------
        StoreBusyError
            The store is busy, so that the log does not exist yet. Try again, as `on_loop` does
            (test_a_book_that_a_busy_store_holds_up_is_waited_for).
        """
        book = self._found(name) or self._starting.get(name)
        if book is None:
            book = self._starting[name] = self._begin(name)
        try:
            self._store.post(Message(book, SIGNAL, key, signal_payload(ENTRY, value), by, self._clock.now()))
        except ExecutionNotFoundError as error:
            raise StoreBusyError(f"the book {name!r} is not in the store yet; try again") from error
        self._starting.pop(name, None)

    async def on_loop(self, work: Callable[[], T]) -> T:
        """Run reads and writes from the engine's loop; return their result. They may run several times."""
        return await self._calls.work(work)

    def _found(self, name: str) -> str | None:
        return next((record.execution_id for record in self._store.records(key=name, limit=1)), None)


class Entry(NamedTuple):
    """Entry of a durable log."""

    number: int
    """Number that grows from entry to entry."""
    key: str
    value: Any
    by: str


def _entry(message: Message) -> Entry:
    return Entry(message.number, message.key, message.payload["payload"], message.source)
