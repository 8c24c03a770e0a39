"""What an event store promises; every implementation passes ``tests/store/conformance.py``.

`EventStore` is made of one protocol for each thing that is kept (logs, leases, messages, checkpoints, large values,
what lists show) and of what its keeper needs. They do what all stores share: check and encode, keep one writer at a
time, tell listeners after the commit. An implementation writes the rows.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Self

from divebook.errors import StoreClosedError
from divebook.events.catalog import ENQUEUED, LEFT_ALONE
from divebook.store.checkpoints import Checkpoints
from divebook.store.codec import Codec, Sealing
from divebook.store.durability import FULL, Durability
from divebook.store.large_values import LargeValues
from divebook.store.leases import LeaseBook, Moment
from divebook.store.log import EventLogs
from divebook.store.messages import Arrivals, Mailbox
from divebook.store.news import News, NewsListener
from divebook.store.queues import Queues
from divebook.store.records import ExecutionRecord
from divebook.store.subscribers import Listener, Subscribers
from divebook.store.summaries import Listing
from divebook.store.upkeep import Upkeep


class EventStore(EventLogs, LeaseBook, Queues, Mailbox, Checkpoints, LargeValues, Listing, Upkeep):
    """Logs of executions. Methods block, and may be called from several threads.

    Examples
    --------
    >>> from divebook.store import MemoryStore
    >>> with MemoryStore() as store:
    ...     store.records()
    []
    """

    location: str
    """Where the events are: a path or a URL, without its password; `open_store` opens it again."""
    keeps: bool = True
    """Whether what is written outlasts the process."""
    shared: bool = True
    """Whether other processes can open it as well."""
    local: bool = True
    """Whether a commit is quick enough to be waited for where it stands; one over a network is not."""
    durability: Durability = FULL
    """How a batch is written that does not say."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._subscribers = Subscribers()
        self._arrivals = Arrivals()
        self._news = News()
        self.sealing = Sealing(packs=self.keeps)
        """Whether values are encrypted: set its `codec` before anything is written."""
        self._closed = False
        self._packed_lately: dict[bytes, None] = {}
        self._readable: dict[str, Codec | None] = {}
        """Executions whose logs were decrypted, with the codec that did it (`check_key`)."""

    def orphans(self, now: int | None = None) -> list[ExecutionRecord]:
        """Return the executions that have something to do and that no process drives, newest first.

        One that waits has something to do once its time has come, or a message for it is there, or its driver died
        before it had come to rest. What waits in a queue is for workers to `claim`.
        """
        self._check_open()
        found = self._orphans(self._moment(now))
        return [self._opened(left) for left in found if left.origin not in LEFT_ALONE and left.status != ENQUEUED]

    # --- listening and closing ---------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener(execution_id, events)`` after each commit; return a function that ends it.

        The calls come in the appending thread, in the order of the commits, and hold up other writers: hand the events
        over and return. A deleted execution is announced with no events. Appends of other processes are not announced;
        see `on_news`.
        """
        return self._subscribers.add(listener)

    def on_news(
        self,
        listener: NewsListener,
        execution_id: str | None = None,  # noqa: ARG002 - a server's store asks for it
    ) -> Callable[[], None]:
        """Call ``listener()`` in a thread of the store once soon, and then at all news; see `wait_for_news`.

        Call what is returned to end it. Appends of other processes are news at least to the log of `execution_id`: a
        server's store tells of no others.
        """
        return self._news.add(listener, self.wait_for_news)

    @property
    def in_place(self) -> bool:
        """Whether the location still leads to what is open; if not, it can be read, but no longer written to."""
        return True

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Release everything; may be called twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._close()
        self._arrivals.add()  # those who wait for news hear that it is closed
        self._news.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.location}>"

    def _check_open(self) -> None:
        if self._closed:
            told = f"the store {self.location} is closed; open it again with open_store({self.location!r})"
            raise StoreClosedError(told)

    @abstractmethod
    def _orphans(self, moment: Moment) -> list[ExecutionRecord]: ...

    @abstractmethod
    def _close(self) -> None: ...
