"""Conversations over several runs ("threads"): each turn of an agent begins with the messages of the earlier turns.

A thread is stored as a durable log. When a turn ends, it appends one entry, which names the entry that it followed. If
two entries follow the same entry, the first one continues the thread, and the second one starts a branch, named
``ID~2``. Example: turns A and B both begin after entry 1 and write entries 2 (A) and 3 (B). The thread ``ID`` then has
the turns 1 and A; the branch ``ID~2`` has 1 and B. No turn is lost, and none gets messages that it did not begin with,
even if several processes write at once (test_two_turns_at_the_same_place_become_branches).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from divebook.definitions.definition import Workflow
from divebook.definitions.step import Step
from divebook.engine.inbox import SIGNAL, Message, signal_payload
from divebook.errors import ExecutionNotFoundError, NameNotFoundError, NotFoundError, SetupError, StoreBusyError
from divebook.events.catalog import BOOK
from divebook.events.recorded import opened
from divebook.projections.model_requests import CallMessage, people_messages
from divebook.runtime.clock import Clock
from divebook.runtime.commit import StoreCalls
from divebook.stores import EventStore
from divebook.text.arguments import require_string
from divebook.text.format import plural

# --- durable log -----------------------------------------------------------------------------------------------------
#
# Durable logs: facts that outlast a run, such as approval rules made by people, and conversations.
#
# A durable log is an execution that waits for ever. Its start key identifies it. Its entries are signals: the store
# keeps each signal with a number, and of several signals with one key it keeps the first. Nothing drives the execution;
# reading its inbox is enough, because the signals remain there. Lists of executions leave durable logs out
# (`divebook.events.catalog.BOOK`).


T = TypeVar("T")


ENTRY = "entry"


BOOK_WORKFLOW = Workflow("book", [Step("open", type="wait", signal="close")])
"""Workflow of the executions that hold durable logs."""


class DurableLog:
    """Store of named append-only lists that outlast a run. Each list is stored as an execution of one event store, and
    is created by its first entry.

    Calls from the engine's event loop to a remote store run in a thread (`StoreCalls.work`).

    Parameters
    ----------
    begin
        Starts the execution that holds a log, unless it exists; gets its start key and returns its id.
    """

    def __init__(self, store: EventStore, begin: Callable[[str], str], clock: Clock) -> None:
        self._store = store
        self._begin = begin
        self._clock = clock
        self._calls = StoreCalls(store)
        self._starting: dict[str, str] = {}
        """Ids of logs that were started and are not in the store yet, by start key."""

    def entries(self, name: str) -> list[Entry]:
        """Return the entries of the list called `name`, oldest first; no entries if the list does not exist."""
        execution_id = self._execution_id(name)
        return [] if execution_id is None else [_entry(message) for message in self._store.inbox(execution_id)]

    def names(self, beginning: str) -> list[str]:
        """Return the names of all lists whose name begins with a prefix. The prefix is removed from the returned
        names.
        """
        keys = (record.key or "" for record in self._store.records(origin=BOOK))
        return [key.removeprefix(beginning) for key in keys if key.startswith(beginning)]

    def write(self, name: str, key: str, value: Any, by: str) -> None:
        """Append an entry to the list called `name`. Do nothing if the list already has an entry with this key.

        Raises
        ------
        StoreBusyError
            The store is busy, so that the execution of the log does not exist yet. Try again, as `on_loop` does
            (test_a_book_that_a_busy_store_holds_up_is_waited_for).
        """
        # A log that this process has just started may not be visible in the store yet.
        execution_id = self._execution_id(name) or self._starting.get(name)
        if execution_id is None:
            execution_id = self._starting[name] = self._begin(name)
        try:
            self._store.post(Message(execution_id, SIGNAL, key, signal_payload(ENTRY, value), by, self._clock.now()))
        except ExecutionNotFoundError as error:
            raise StoreBusyError(f"the conversation {name!r} is not in the store yet; try again") from error
        # The store knows the log from now on.
        self._starting.pop(name, None)

    async def on_loop(self, work: Callable[[], T]) -> T:
        """Run a blocking function that reads or writes durable logs, and return its result. Call on the engine's event
        loop.

        While the store is busy, `work` is run again, so it must be repeatable.
        """
        return await self._calls.work(work)

    def _execution_id(self, name: str) -> str | None:
        return next((record.execution_id for record in self._store.records(key=name, limit=1)), None)


class Entry(NamedTuple):
    """One entry of a list in a `DurableLog`: number, key, value and author."""

    number: int
    """Number that grows from entry to entry."""
    key: str
    value: Any
    by: str


def _entry(message: Message) -> Entry:
    return Entry(message.number, message.key, message.payload["payload"], message.source)


NAMED = "divebook/thread/"
"""Prefix of the start key of a thread's durable log, before the thread id."""


AFTER = "after"


CHUNKS = "chunks"


KEEP = "keep"


BRANCHED = "thread_branched"
"""Event of an execution whose turn became a branch instead of the next turn of its thread."""


_BRANCH = "~"


@dataclass(frozen=True, slots=True)
class Thread:
    """Conversation over several runs. Its turns and messages are read from the store at each access.

    Examples
    --------
    ::

        thread = environment.threads["support-17"]
        thread.messages[-1].text
        again = thread.branch(at=1)  # as it was after its first turn
    """

    id: str
    _threads: ConversationStore = field(repr=False)
    _by: str = field(repr=False)

    @property
    def turns(self) -> list[ThreadTurn]:
        """Turns of the conversation, oldest first."""
        return [ThreadTurn(key, opened(chunk), by) for key, chunk, by in self._threads.line(self.id).turns]

    @property
    def messages(self) -> list[CallMessage]:
        """Messages of all turns of the conversation, oldest first, in the form that views display."""
        return [message for turn in self.turns for message in turn.said]

    @property
    def branches(self) -> list[str]:
        """Ids of the conversation and of its branches, oldest first."""
        return [*self._threads.lines(self.id)]

    def branch(self, at: int, id: str | None = None) -> Thread:
        """Create a thread that begins with the first `at` turns of this thread; return the new thread. This thread does
        not change.

        Parameters
        ----------
        id
            Id of the new thread. By default ``ID@AT``, so that the same branch always gets the same id. An id that
            another thread already has is an error.
        """
        turns = self._threads.line(self.id).turns
        if not 0 <= at <= len(turns):
            raise SetupError(f"thread {self.id} has {len(turns)} turns; at must be from 0 to {len(turns)}, not {at!r}")
        # "~" marks branches, so it is replaced in the id of a new thread.
        name = id or f"{self.id.replace(_BRANCH, '-')}@{at}"
        chunks = [chunk for _, chunk, _ in turns[:at]]
        key = f"{self.id}@{at}"
        # The same branch may be created twice: its entry has the same key. Any other content is a different thread.
        existing = self._threads.lines(name).get(name)
        if existing is None or (existing.keys and key not in existing.keys):
            raise SetupError(
                f"the continuation after turn {at} of thread {self.id} cannot have the id {name!r}, because another "
                "thread has it: choose an unused id, or leave it out"
            )
        # The copied turns are the first entry of the new thread, which follows no other entry.
        self._threads.write(name, key, {AFTER: None, CHUNKS: chunks}, self._by)
        return Thread(name, self._threads, self._by)

    def trim(self, keep: int) -> Thread:
        """Limit the history that later turns receive to the messages of the latest `keep` turns. Return this thread.

        The earlier messages remain in the logs of their runs.
        """
        if keep < 0:
            raise SetupError(f"a thread must keep 0 turns or more, not {keep!r}")
        head = self._threads.line(self.id).head
        # The same trim at the same place has the same key, and so is written once.
        self._threads.write(self.id, f"trim/{head}/{keep}", {AFTER: head, KEEP: keep}, self._by)
        return self


class ConversationStore:
    """Access to the conversations that are stored in one event store."""

    def __init__(self, log: DurableLog) -> None:
        self._log = log

    def lines(self, thread: str) -> dict[str, ThreadLine]:
        """Return the states of a thread and of each of its branches, by id. `thread` is the id of the thread or of any
        of its branches.
        """
        name = _book_of(thread)
        return lines_of(name, self._log.entries(NAMED + name))

    def line(self, thread: str) -> ThreadLine:
        """Return the state of the thread or branch with this id; raise `NotFoundError` for an unknown branch."""
        lines = self.lines(thread)
        if thread not in lines:
            raise NotFoundError("thread", thread, lines, f"thread not found: {thread}")
        return lines[thread]

    @property
    def ids(self) -> list[str]:
        """Ids of all threads. Branches are not listed."""
        return self._log.names(NAMED)

    async def begin(self, thread: str) -> dict[str, Any]:
        """Return the state of a thread from which a new turn begins: the thread's id, the key of its latest entry, and
        the messages of its earlier turns. Call on the engine's event loop.
        """
        line = await self._log.on_loop(lambda: self.line(thread))
        return {"id": thread, "at": line.head, "history": [chunk for _, chunk, _ in line.turns]}

    async def append(self, thread: Mapping[str, Any], key: str, chunk: Any, by: str) -> str:
        """Append the messages of a turn to a thread, unless they are stored already. Return the id of the thread or
        branch that now contains the turn. Call on the engine's event loop.
        """
        name = thread["id"]

        # Written and read again in one piece of work. If it is repeated, the write has no effect.
        def work() -> dict[str, ThreadLine]:
            self.write(name, key, {AFTER: thread["at"], CHUNKS: [chunk]}, by)
            return self.lines(name)

        lines = await self._log.on_loop(work)
        return next((line_id for line_id, line in lines.items() if key in line.keys), name)

    def write(self, thread: str, key: str, value: Mapping[str, Any], by: str) -> None:
        """Append an entry to the durable log of a thread. The entry has the messages of a turn, the messages that a
        branch copied from another thread, or a trim that limits the history.
        """
        self._log.write(NAMED + _book_of(thread), key, value, by)


class Threads(Mapping[str, Thread]):
    """Threads of a store by id, including branches (``ID~2``). A thread exists as soon as it has messages.

    Parameters
    ----------
    by
        Name of the person who is recorded as the author of branches and trims.
    """

    def __init__(self, threads: ConversationStore, by: str) -> None:
        self._threads = threads
        self._by = by

    def __getitem__(self, id: str) -> Thread:
        line = self._threads.lines(id).get(id)
        if line is None or line.head is None:
            raise NameNotFoundError("thread", id, self._threads.ids, "a step with the key Thread starts one")
        return Thread(id, self._threads, self._by)

    def __iter__(self) -> Iterator[str]:
        return iter(self._threads.ids)

    def __len__(self) -> int:
        return len(self._threads.ids)

    def __repr__(self) -> str:
        return f"<{plural(len(self), 'thread')}>"


class ThreadTurn(NamedTuple):
    """One turn of a thread, or the messages that `Thread.branch` copied from another thread."""

    key: str
    """Key of the turn in the conversation. For a turn of an agent, the key contains the execution id and the place of
    the turn.
    """
    messages: Sequence[Mapping[str, Any]]
    """Messages in pydantic-ai's JSON form."""
    by: str

    def __repr__(self) -> str:
        """Return one line with the key of the turn and its number of messages. The messages themselves could fill
        pages.
        """
        return f"<turn {self.key}: {plural(len(self.messages), 'message')}>"

    @property
    def said(self) -> list[CallMessage]:
        """Messages of this turn in the form that views display."""
        return people_messages(self.messages)


class ThreadLine(NamedTuple):
    """State of a thread or of one of its branches: its turns with their messages, and the key of its latest entry in
    the durable log.
    """

    turns: tuple[tuple[str, Any, str], ...] = ()
    """For each turn the key of its entry, its messages in stored form, and its author."""
    head: str | None = None
    """Key of the latest entry."""
    keys: frozenset[str] = frozenset()

    def with_entry(self, entry: Entry) -> ThreadLine:
        """Return the state of the thread or branch after one more entry of its durable log. This state stays
        unchanged.
        """
        turns = (*self.turns, *((entry.key, chunk, entry.by) for chunk in entry.value.get(CHUNKS, ())))
        keep = entry.value.get(KEEP)
        # `turns[-keep:]` would be all turns for 0.
        remaining = turns if keep is None else turns[max(0, len(turns) - keep) :]
        return ThreadLine(remaining, entry.key, self.keys | {entry.key})


def lines_of(name: str, entries: Sequence[Entry]) -> dict[str, ThreadLine]:
    """Compute the state of a thread and of each of its branches from the entries of the thread's durable log. Return
    the states by id of the thread or branch.

    Only the order of the entries determines the result, so all processes compute the same.

    The entries form a tree: each entry names the entry that it follows. Of several entries that follow the same entry,
    the entry with the lowest number continues the thread or branch, and each other entry starts a new branch. Branches
    are numbered in the order of the entries that started them.
    """
    # {key of the followed entry: [entry, ...]}; None for the first entry of the thread.
    followers: dict[str | None, list[Entry]] = {}
    for entry in entries:
        followers.setdefault(entry.value.get(AFTER), []).append(entry)
    open_lines: list[tuple[int, ThreadLine]] = [(0, ThreadLine())]
    lines: list[tuple[int, ThreadLine]] = []
    # Each line is followed to its end. At a fork the first entry continues it, and the others wait in `open_lines` as
    # new lines. Their number is that of the entry at the fork, which determines the order of branches.
    while open_lines:
        number, line = open_lines.pop()
        while next_entries := followers.get(line.head):
            open_lines += [(entry.number, line.with_entry(entry)) for entry in next_entries[1:]]
            line = line.with_entry(next_entries[0])
        lines.append((number, line))
    lines.sort(key=lambda numbered: numbered[0])
    names = [name, *(f"{name}{_BRANCH}{number}" for number in range(2, len(lines) + 1))]
    return dict(zip(names, (line for _, line in lines), strict=True))


def _book_of(thread: str) -> str:
    """Return the id of the whole thread for `thread`, the id of a thread or of one of its branches. For ``ID`` and for
    its branch ``ID~2`` it is ``ID``. Raise `SetupError` for an empty id.
    """
    require_string(thread, "the id of a thread")
    if not thread.strip():
        raise SetupError(f"the id of a thread cannot be {thread!r}; write a word, such as support-17")
    # "support-17~2" -> "support-17"; "a~b" stays "a~b".
    name, mark, number = thread.rpartition(_BRANCH)
    return name if mark and name and number.isdecimal() else thread
