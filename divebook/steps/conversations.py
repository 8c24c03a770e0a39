"""Conversations over several runs: each turn of a thread begins with the messages of those before it.

A thread is a book; a turn writes one entry when it has ended, which names the entry that it came after.
Of two that came after the same one the first stays in the thread, and the other begins a branch, named
``ID~2``: neither hears of what it was not there for, and none is lost, whatever processes wrote them
(test_two_turns_at_the_same_place_become_branches).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from divebook.engine.inbox import SIGNAL, Message, signal_payload
from divebook.errors import ExecutionNotFoundError, NotFoundError, SetupError, StoreBusyError
from divebook.events.catalog import BOOK
from divebook.events.recorded import opened
from divebook.projections.model_requests import CallMessage, people_messages
from divebook.runtime.clock import Clock
from divebook.runtime.commit import StoreCalls
from divebook.store import EventStore
from divebook.text.format import plural
from divebook.workflow.definition import Workflow
from divebook.workflow.step import Step

# Books: facts that outlast a run, such as rules that people made and conversations, as executions that wait for ever.
#
# A book is found by its start key. What is written into it are signals: whoever sends one has it kept by the store,
# with a number of its own, and of several with one key the first stays. That is all a book needs: it is read from its
# inbox, where they remain, and nothing drives it. Lists leave books out (`divebook.events.catalog.BOOK`).


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


class DurableLog:
    """The books of one store, each begun when something is first written into it.

    Parameters
    ----------
    begin
        Begins the book of a start key, unless there is one; returns the id of the one that there is.

    From the engine's loop a store that is far away is asked in a thread: `StoreCalls.work`.
    """

    def __init__(self, store: EventStore, begin: Callable[[str], str], clock: Clock) -> None:
        self._store = store
        self._begin = begin
        self._clock = clock
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


NAMED = "divebook/thread/"
"""Before the id of a thread, in the start key of its book."""
AFTER = "after"
CHUNKS = "chunks"
KEEP = "keep"
BRANCHED = "thread_branched"
"""Event of an execution whose turn did not become the next one of its thread."""
_BRANCH = "~"


class ThreadTurn(NamedTuple):
    """One turn of a thread, or what was written in its place."""

    key: str
    """What it was written under; a turn of an agent names its execution and its place there."""
    messages: Sequence[Mapping[str, Any]]
    """What was said, in pydantic-ai's JSON form."""
    by: str

    def __repr__(self) -> str:
        """Return what fits on a line: what was said may fill pages."""
        return f"<turn {self.key}: {plural(len(self.messages), 'message')}>"

    @property
    def said(self) -> list[CallMessage]:
        """What was said, as people look at it."""
        return people_messages(self.messages)


class ThreadLine(NamedTuple):
    """A thread, or a branch of one, as it stands."""

    turns: tuple[tuple[str, Any, str], ...] = ()
    """Of each turn the key of its entry, its messages in the form in which they are kept, and who wrote it."""
    head: str | None = None
    """The latest entry."""
    keys: frozenset[str] = frozenset()

    def with_entry(self, entry: Entry) -> ThreadLine:
        """Return it after one entry more."""
        turns = (*self.turns, *((entry.key, chunk, entry.by) for chunk in entry.value.get(CHUNKS, ())))
        keep = entry.value.get(KEEP)
        kept = turns if keep is None else turns[max(0, len(turns) - keep) :]
        return ThreadLine(kept, entry.key, self.keys | {entry.key})


def lines_of(name: str, entries: Sequence[Entry]) -> dict[str, ThreadLine]:
    """Return a thread and its branches, by their ids, as the order of their entries makes them for everybody."""
    after: dict[str | None, list[Entry]] = {}
    for entry in entries:
        after.setdefault(entry.value.get(AFTER), []).append(entry)
    begun: list[tuple[int, ThreadLine]] = [(0, ThreadLine())]
    found: list[tuple[int, ThreadLine]] = []
    while begun:
        number, line = begun.pop()
        while following := after.get(line.head):
            begun += [(entry.number, line.with_entry(entry)) for entry in following[1:]]
            line = line.with_entry(following[0])
        found.append((number, line))
    names = (name if place == 1 else f"{name}{_BRANCH}{place}" for place in range(1, len(found) + 1))
    return dict(zip(names, (line for _, line in sorted(found, key=lambda one: one[0])), strict=True))


class ConversationStore:
    """The threads of one store."""

    def __init__(self, books: DurableLog) -> None:
        self._books = books

    def lines(self, thread: str) -> dict[str, ThreadLine]:
        """Return a thread with all its branches, also where it is one of them that is named."""
        name = _book_of(thread)
        return lines_of(name, self._books.entries(NAMED + name))

    def line(self, thread: str) -> ThreadLine:
        """Return a thread or a branch; raises `NotFoundError` for a branch that is not there."""
        lines = self.lines(thread)
        if thread not in lines:
            raise NotFoundError("thread", thread, lines, f"thread not found: {thread}")
        return lines[thread]

    @property
    def ids(self) -> list[str]:
        """The ids of all threads, without their branches."""
        return self._books.names(NAMED)

    async def begin(self, thread: str) -> dict[str, Any]:
        """Return where a turn begins, and what was said before, nothing if it is the first; on the engine's loop."""
        line = await self._books.on_loop(lambda: self.line(thread))
        return {"id": thread, "at": line.head, "history": [chunk for _, chunk, _ in line.turns]}

    async def append(self, thread: Mapping[str, Any], key: str, chunk: Any, by: str) -> str:
        """Write what a turn said, once; return the id of the thread, or branch, it stands in. On the engine's loop."""
        name = thread["id"]

        def work() -> dict[str, ThreadLine]:
            self.write(name, key, {AFTER: thread["at"], CHUNKS: [chunk]}, by)
            return self.lines(name)

        lines = await self._books.on_loop(work)
        return next((found for found, line in lines.items() if key in line.keys), name)

    def write(self, thread: str, key: str, value: Mapping[str, Any], by: str) -> None:
        """Write an entry of any kind."""
        self._books.write(NAMED + _book_of(thread), key, value, by)


def _book_of(thread: str) -> str:
    """Return the id of the thread that one is a branch of, or its own."""
    if not thread.strip():
        raise SetupError(f"the id of a thread cannot be {thread!r}; write a word, such as support-17")
    name, mark, number = thread.rpartition(_BRANCH)
    return name if mark and name and number.isdecimal() else thread


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation over several runs; what it says is read when it is asked for.

    Examples
    --------
    ::

        thread = environment.thread("support-17")
        thread.messages[-1].text
        again = thread.branch(at=1)  # as it was after its first turn
    """

    id: str
    _threads: ConversationStore = field(repr=False)
    _by: str = field(repr=False)

    @property
    def turns(self) -> list[ThreadTurn]:
        """Its turns, oldest first."""
        return [ThreadTurn(key, opened(chunk), by) for key, chunk, by in self._threads.line(self.id).turns]

    @property
    def messages(self) -> list[CallMessage]:
        """What was said in it, as people look at it."""
        return [said for turn in self.turns for said in turn.said]

    @property
    def branches(self) -> list[str]:
        """The ids of its branches, oldest first, and of itself."""
        return [*self._threads.lines(self.id)]

    def branch(self, at: int, id: str | None = None) -> Thread:
        """Return a thread of its own that goes on after the first `at` turns of this one, which stays as it is.

        Parameters
        ----------
        id
            By default ``ID@AT``, the same whenever that is asked for. That of another thread is refused.
        """
        turns = self._threads.line(self.id).turns
        if not 0 <= at <= len(turns):
            raise SetupError(f"thread {self.id} has {len(turns)} turns; at is 0 to {len(turns)}, not {at!r}")
        name = id or f"{self.id.replace(_BRANCH, '-')}@{at}"
        chunks = [chunk for _, chunk, _ in turns[:at]]
        key = f"{self.id}@{at}"
        there = self._threads.lines(name).get(name)
        if there is None or (there.keys and key not in there.keys):
            raise SetupError(
                f"what goes on after turn {at} of thread {self.id} cannot be called {name!r}, which is another thread: "
                "give it an id that none has, or none at all"
            )
        self._threads.write(name, key, {AFTER: None, CHUNKS: chunks}, self._by)
        return Thread(name, self._threads, self._by)

    def trim(self, keep: int) -> Thread:
        """Let turns to come hear of the latest `keep` turns only; return the thread.

        What was said before remains in the logs of the runs that said it.
        """
        if keep < 0:
            raise SetupError(f"a thread keeps 0 turns or more, not {keep!r}")
        head = self._threads.line(self.id).head
        self._threads.write(self.id, f"trim/{head}/{keep}", {AFTER: head, KEEP: keep}, self._by)
        return self
