"""Books: facts that outlast a run, such as rules that people made and conversations, as executions that wait for ever.

A book is found by its start key. What is written into it are signals: whoever sends one has it kept by the store, with
a number of its own, and of several with one key the first stays. That is all a book needs: it is read from its inbox,
where they remain, and nothing drives it. Lists leave books out (`divebook.events.catalog.BOOK`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from divebook.engine.inbox import SIGNAL, Message, signal_payload
from divebook.errors import ExecutionNotFoundError, StoreBusyError
from divebook.events.catalog import BOOK
from divebook.execution.clock import Clock
from divebook.execution.store_calls import StoreCalls
from divebook.store import EventStore
from divebook.workflow.definition import Workflow
from divebook.workflow.step import Step

T = TypeVar("T")
ENTRY = "entry"
BOOK_WORKFLOW = Workflow("book", [Step("open", type="wait", signal="close")])
"""What a book is an execution of."""


class Entry(NamedTuple):
    """Something that was written into a book."""

    number: int
    """It grows from entry to entry."""
    key: str
    value: Any
    by: str


class Books:
    """The books of one store, each begun when something is first written into it.

    Parameters
    ----------
    begin
        Begins the book of a start key, unless there is one; returns the id of the one that there is.

    From the engine's loop a store that is far away is asked in a thread: `StoreCalls.work`.
    """

    def __init__(self, store: EventStore, begin: Callable[[str], str], clock: Clock) -> None:
        self._store, self._begin, self._clock = store, begin, clock
        self._calls = StoreCalls(store)
        self._begun: dict[str, str] = {}
        """Books that were begun and are not in the store yet, by start key."""

    def entries(self, name: str) -> list[Entry]:
        """Return what a book says, oldest first; nothing for one that was never begun."""
        book = self._found(name)
        return [] if book is None else [_entry(message) for message in self._store.inbox(book)]

    def names(self, beginning: str) -> list[str]:
        """Return what the books are called whose names begin so, without that."""
        keys = (record.key or "" for record in self._store.records(origin=BOOK))
        return [key.removeprefix(beginning) for key in keys if key.startswith(beginning)]

    def write(self, name: str, key: str, value: Any, by: str) -> None:
        """Write an entry, unless the book has one of that key.

        Raises
        ------
        StoreBusyError
            The store lets nothing through just now, so that the book is not begun yet: to be done again, which
            `on_loop` does (test_a_book_that_a_busy_store_holds_up_is_waited_for).
        """
        book = self._found(name) or self._begun.get(name)
        if book is None:
            book = self._begun[name] = self._begin(name)
        try:
            self._store.post(Message(book, SIGNAL, key, signal_payload(ENTRY, value), by, self._clock.now()))
        except ExecutionNotFoundError as error:
            raise StoreBusyError(f"the book {name!r} is not in the store yet; try again") from error
        self._begun.pop(name, None)

    async def on_loop(self, work: Callable[[], T]) -> T:
        """Return what some reading and writing gives, on the engine's loop; it may be done several times."""
        return await self._calls.work(work)

    def _found(self, name: str) -> str | None:
        return next((record.execution_id for record in self._store.records(key=name, limit=1)), None)


def _entry(message: Message) -> Entry:
    return Entry(message.number, message.key, message.payload["payload"], message.source)
