"""Hearing from the server that something has come: messages, and appends to logs that somebody here follows.

The server tells of every message, and of appends to logs in the table of followers only: to tell of every commit would
make all of them wait for each other. Behind a pool that gives each transaction another session (PgBouncer's usual mode)
nothing is ever heard; there the server is asked instead, ever more rarely while nothing has been written.
"""

from __future__ import annotations

import math
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from divebook.errors import ReadOnlyStoreError, StoreError
from divebook.store.messages import Arrivals
from divebook.store.postgres.connections import Connections, Link, ready
from divebook.store.postgres.faults import translated
from divebook.store.postgres.texts import escaped
from divebook.text.logs import logger

_log = logger(__name__)
CHANNEL = "divebook"
RENEW, LASTS = 20.0, 60
"""Seconds after which it is said again which logs are followed, and how long that holds."""
PROBE = 2.0
"""Seconds in which the server's word for a trial must have come."""
SOONEST, LATEST = 0.02, 0.2
"""Seconds between two questions where nothing is heard."""
PAUSE = 1.0
"""Seconds after a connection was lost."""
_FOLLOW = """
INSERT INTO divebook.followers (key, follower, until)
SELECT key, %s, clock_timestamp() + make_interval(secs => %s) FROM divebook.executions WHERE id = ANY(%s)
ON CONFLICT (key, follower) DO UPDATE SET until = excluded.until
"""
_LEAVE = "DELETE FROM divebook.followers WHERE follower = %s OR until < clock_timestamp() - interval '1 hour'"
_WRITTEN = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"


class ServerNews:
    """The thread that hears the server, from the first who waits for news until the store is closed."""

    def __init__(self, connections: Connections, arrivals: Arrivals) -> None:
        self._connections, self._arrivals = connections, arrivals
        self._follower = secrets.token_bytes(16)
        self._followed: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ends = False
        self._ear, self._mouth = socket.socketpair()
        self._mouth.settimeout(0)

    def start(self) -> None:
        """Begin to listen, unless that has begun."""
        with self._lock:
            if self._thread is None and not self._ends:
                self._thread = threading.Thread(target=self._run, name="divebook-postgres-news", daemon=True)
                self._thread.start()

    def follow(self, execution_id: str) -> Callable[[], None]:
        """Hear of appends to a log as well; call what is returned to end it."""
        with self._lock:
            self._followed[execution_id] += 1
        self._wake()

        def end() -> None:
            with self._lock:
                self._followed[execution_id] -= 1
                self._followed += Counter()  # without those that nobody follows any more

        return end

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._ends, thread = True, self._thread
        self._wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join(PAUSE)
        self._ear.close()
        self._mouth.close()

    def _wake(self) -> None:
        with suppress(OSError):  # it is full, and so awake
            self._mouth.send(b"!")

    def _run(self) -> None:
        while not self._ends:
            try:
                self._hear()
            except StoreError as error:  # the code that writes says what is wrong
                _log.debug("no news of the store: %s", error)
                self._wait(None, PAUSE)

    def _hear(self) -> None:
        link, location = self._connections.open(), self._connections.address.location
        try:
            with translated(location):
                link.execute(f"LISTEN {CHANNEL}".encode())
                self._arrivals.add()  # what came before that was not heard
                if self._is_heard(link):
                    self._listen(link)
                else:
                    self._ask(link)
        except ReadOnlyStoreError:
            # A standby tells nobody anything, and who may only read cannot say what is followed
            # (test_who_may_only_read_asks_for_news).
            with translated(location):
                self._ask(link, time.monotonic() + LASTS)
        finally:
            with suppress(StoreError), translated(location):
                link.execute(self._connections.statement(_LEAVE).encode(), (self._follower,))
            link.close()

    def _is_heard(self, link: Link) -> bool:
        # From another connection: a pool gives this one the word that is said in its own transaction.
        self._connections.read("SELECT pg_notify(%s, 'trial')", (CHANNEL,))
        until = time.monotonic() + PROBE
        while not self._ends and (left := until - time.monotonic()) > 0:
            if self._heard(link):
                return True
            self._wait(link, left)
        return False

    def _listen(self, link: Link) -> None:
        said: frozenset[str] = frozenset()
        until = 0.0
        while not self._ends:
            self._connections.close_idle()
            said, until = self._say(link, said, until)
            if self._heard(link):
                self._arrivals.add()
            else:
                self._wait(link, max(0.0, until - time.monotonic()))

    def _say(self, link: Link, said: frozenset[str], until: float) -> tuple[frozenset[str], float]:
        """Tell the server which logs are followed, if that has changed or is about to lapse."""
        with self._lock:
            followed = frozenset(self._followed)
        if followed <= said and time.monotonic() < until:
            return said, until
        if followed:
            names = [escaped(name) for name in followed]
            link.execute(self._connections.statement(_FOLLOW).encode(), (self._follower, LASTS, names))
        self._arrivals.add()  # what was appended before that was not told
        return followed, time.monotonic() + RENEW

    def _ask(self, link: Link, until: float = math.inf) -> None:
        seen, pause = "", SOONEST
        while not self._ends and time.monotonic() < until:
            self._connections.close_idle()
            ((written,),) = link.execute(_WRITTEN).fetchall()
            if written != seen:
                seen, pause = written, SOONEST
                self._arrivals.add()
            self._wait(None, pause)
            pause = min(LATEST, pause * 1.5)

    def _heard(self, link: Link) -> bool:
        """Return whether the server has told of something since, without waiting."""
        return bool([*link.notifies(timeout=0)])

    def _wait(self, link: Link | None, seconds: float) -> None:
        sources: list[socket.socket | Link] = [self._ear] if link is None else [self._ear, link]
        if self._ear in ready(sources, seconds):
            with suppress(OSError):
                self._ear.recv(4096)
