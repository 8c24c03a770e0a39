"""What is sent to executions from outside, kept until their logs take it in.

A message is not an event: an answer or signal may come from any process at any time, also while no process drives the
execution, so it waits here. The process that drives it next takes the messages above `ExecutionRecord.taken` into the
log, in the order of their numbers, and writes with those events how far it has come (`Batch.taken`).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from divebook.engine.inbox import ANNOTATION, ANSWER, REVOCATION, SIGNAL, Message
from divebook.errors import StoreClosedError, StoreError
from divebook.events.codec import encode, storable
from divebook.events.event import Event, Record
from divebook.store.codec import Sealing
from divebook.text.redaction import logger

KINDS = (ANSWER, SIGNAL, REVOCATION, ANNOTATION)


class Arrivals:
    """Counts what comes from outside, for those who wait for it."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._count = 0

    def add(self) -> None:
        """Wake those who wait."""
        with self._condition:
            self._count += 1
            self._condition.notify_all()

    def wait(self, seen: int, seconds: float) -> int:
        """Return the count as soon as it is not `seen`, or when the time is over."""
        with self._condition:
            self._condition.wait_for(lambda: self._count != seen, seconds)
            return self._count


class Mailbox(ABC):
    """The messages of a store."""

    _lock: threading.RLock
    _arrivals: Arrivals
    sealing: Sealing

    def post(self, message: Message) -> Message:
        """Keep a message and return it with its number; it is durable then.

        Of all messages with one execution, kind and key, from however many threads and processes, the first stays:
        every later call returns that one, unchanged.

        Raises
        ------
        ExecutionNotFoundError
            The store has no such execution.
        UnstorableValueError
            With the path to what cannot be stored.
        DecryptionError
            The execution was encrypted with another key, or there is no key.
        """
        self._check_open()
        _check(message)
        self.check_key(message.execution_id)
        payload = storable(message.payload, "payload")
        with self._lock:
            kept = self._post(replace(message, payload=payload), self.sealing.seal(encode(payload)))
        self._arrivals.add()
        return kept

    def bring(self, messages: Sequence[Message]) -> None:
        """Keep messages of another store under the numbers that they have there, all or none.

        Raises
        ------
        StoreError
            This store has given one of the numbers already.
        ExecutionNotFoundError
            The store has no such execution.
        DecryptionError
            One of the executions was encrypted with another key, or there is no key.
        """
        self._check_open()
        with self._lock:
            last = self._last_message()
            for message in messages:
                if message.number <= last:
                    raise StoreError(
                        f"message {message.number} cannot be brought here: numbers up to {last} are given already. "
                        "Choose an empty store"
                    )
            for execution_id in {message.execution_id for message in messages}:
                self.check_key(execution_id)
            if messages:
                self._bring([(message, self.sealing.seal(encode(message.payload))) for message in messages])
        self._arrivals.add()

    def inbox(self, execution_id: str, after: int = 0) -> list[Message]:
        """Return an execution's messages with numbers above `after`, ascending.

        Raises
        ------
        ExecutionNotFoundError
            The store has no such execution.
        """
        self._check_open()
        return self._inbox(execution_id, after)

    def new_messages(self, after: int) -> list[Message]:
        """Return the messages of all executions with numbers above `after`, ascending.

        Call it when there is news (`wait_for_news`); while no other process writes to the store it costs microseconds.
        """
        self._check_open()
        with self._lock:
            return self._new_messages(after)

    def wait_for_news(self, seen: int, seconds: float) -> int:
        """Block until there is news: a message, or anything that another process wrote; return a number for it.

        Parameters
        ----------
        seen
            What this returned the last time; it is returned again where nothing comes within `seconds`. -1 for none.
        """
        self._check_open()
        return self._wait_for_news(seen, seconds)

    def _wait_for_news(self, seen: int, seconds: float) -> int:
        return self._arrivals.wait(seen, seconds)

    def last_message(self) -> int:
        """Return the highest number ever given; 0 before the first message."""
        self._check_open()
        return self._last_message()

    def untaken(self) -> set[str]:
        """Return the ids of the executions that have not ended, with messages that their logs have not taken in."""
        self._check_open()
        return self._untaken()

    def has_untaken(self, execution_id: str) -> bool:
        """Return whether an execution is one of the `untaken`; ExecutionNotFoundError if there is no such log."""
        self._check_open()
        return self._has_untaken(execution_id)

    @abstractmethod
    def _check_open(self) -> None: ...

    @abstractmethod
    def check_key(self, execution_id: str) -> None: ...  # noqa: D102 - documented in `divebook.store.base`

    def last_addressee(self, kind: str, key: str) -> str | None:
        """Return the id of the execution, ended or not, that got the latest message of such a kind and key."""
        self._check_open()
        return self._last_addressee(kind, key)

    # --- what an implementation does; `_post`, `_bring` and `_new_messages` are called with the lock held -------------

    @abstractmethod
    def _post(self, message: Message, payload: bytes) -> Message:
        """Keep a message whose payload is also given encoded, unless there is one already; return the one that is kept.

        What is returned shares no payload with what is kept.
        """

    @abstractmethod
    def _bring(self, messages: Sequence[tuple[Message, bytes]]) -> None:
        """Keep numbered messages with their encoded payloads; ascending, above all that were given."""

    @abstractmethod
    def _inbox(self, execution_id: str, after: int) -> list[Message]: ...

    @abstractmethod
    def _new_messages(self, after: int) -> list[Message]: ...

    @abstractmethod
    def _last_message(self) -> int: ...

    @abstractmethod
    def _untaken(self) -> set[str]: ...

    @abstractmethod
    def _has_untaken(self, execution_id: str) -> bool: ...

    @abstractmethod
    def _last_addressee(self, kind: str, key: str) -> str | None: ...


def _check(message: Message) -> None:
    if message.kind not in KINDS:
        raise ValueError(f"kind of a message must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {message.kind!r}")
    for name in ("execution_id", "key", "source"):
        if not getattr(message, name):
            raise ValueError(f"{name} of a message must not be empty")
        encode(getattr(message, name), name)


# Hearing that something has come to a store from outside: one thread per store asks it, while anybody listens.


NewsListener: TypeAlias = Callable[[], object]
Wait: TypeAlias = Callable[[int, float], int]

LINGER = 1.0
"""Seconds that the thread goes on after the last listener has left, as the next one often comes soon."""

_log = logger(__name__)


class News:
    """The listeners to one store's news, and the thread that waits for it.

    However many executions wait, and however many people follow them, the store is asked by one thread
    (test_news_are_waited_for_by_one_thread_however_many_listen).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[tuple[NewsListener], ...] = ()
        self._thread: threading.Thread | None = None

    def add(self, listener: NewsListener, wait: Wait) -> Callable[[], None]:
        """Add a listener, which is called once soon, and at all news; call what is returned to remove it.

        `wait` is the store's `wait_for_news`.
        """
        entry = (listener,)  # a tuple of its own, so that one listener added twice is two things to remove

        def remove() -> None:
            with self._lock:
                self._listeners = tuple(known for known in self._listeners if known is not entry)

        with self._lock:
            self._listeners = (*self._listeners, entry)
            if self._thread is None or not self._thread.is_alive():  # none is alive in a forked process
                self._thread = threading.Thread(target=self._watch, args=(wait,), name="divebook-news", daemon=True)
                self._thread.start()
                return remove
        listener()
        return remove

    def join(self) -> None:
        """Wait for the thread to end, once the store is closed (test_unloading_leaves_no_thread_file_or_socket)."""
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(LINGER)

    def _watch(self, wait: Wait) -> None:
        seen = -1
        while self._has_listeners():
            try:
                found = wait(seen, LINGER)
            except StoreClosedError:
                self._end()
                return
            except StoreError as error:  # the code that writes to it says what is wrong
                _log.debug("no news of the store: %s", error)
                threading.Event().wait(LINGER)
                continue
            if found != seen:
                seen = found
                self._tell()

    def _tell(self) -> None:
        for (listener,) in self._listeners:
            try:
                listener()
            except Exception:  # noqa: BLE001 - the others are to hear as well
                _log.exception("a listener to the store's news failed")

    def _has_listeners(self) -> bool:
        with self._lock:
            if not self._listeners:
                self._thread = None
            return bool(self._listeners)

    def _end(self) -> None:
        with self._lock:
            self._thread = None


# Listeners to appended events: called after the commit, in the thread that appended, in order.


Listener: TypeAlias = Callable[[str, Sequence[Event]], None]


class Subscribers:
    """The listeners of one store. The caller of `tell` holds the store's lock, which keeps the order."""

    def __init__(self) -> None:
        self.listeners: tuple[tuple[Listener], ...] = ()
        self._lock = threading.Lock()
        """Its own: a commit to a server may hold that of the store for long."""
        self._news: deque[tuple[str, Sequence[Event]]] = deque()
        self._telling = False

    def add(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; call what is returned to remove it."""
        entry = (listener,)  # a tuple of its own, so that one listener added twice is two things to remove
        with self._lock:
            self.listeners = (*self.listeners, entry)

        def unsubscribe() -> None:
            with self._lock:
                self.listeners = tuple(known for known in self.listeners if known is not entry)

        return unsubscribe

    def tell(self, execution_id: str, records: Sequence[Record]) -> None:
        """Tell every listener what events there are; what one of them appends meanwhile, all hear of afterwards."""
        if not self.listeners:
            return
        self._news.append((execution_id, tuple(event for record in records for event in record.events())))
        if self._telling:
            return
        self._telling = True
        try:
            while self._news:
                self._tell_one(*self._news.popleft())
        finally:
            self._telling = False

    def _tell_one(self, execution_id: str, events: Sequence[Event]) -> None:
        for (listener,) in self.listeners:
            try:
                listener(execution_id, events)
            except Exception:  # noqa: BLE001 - the events are committed: the appender must not take this for a failure
                _log.exception("a listener of the event store failed at execution %s", execution_id)
