"""Event store in a Postgres database, with one connection that writes and a few connections that read.

The statements are in `divebook.stores.postgres.tables` (rows beside the logs) and `logs`. `ServerNews` reports appends
and messages of other processes.
"""

from __future__ import annotations

import math
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from typing import TypeVar

from divebook.engine.inbox import Message
from divebook.engine.lifecycle import check_may_receive
from divebook.errors import (
    ConcurrentAppendError,
    ConnectionLostError,
    ReadOnlyStoreError,
    StoreError,
)
from divebook.events.catalog import Payload
from divebook.events.codec import decode
from divebook.events.event import Record
from divebook.stores.append import (
    FULL,
    Appending,
    Batch,
    Durability,
    PreparedBatch,
    Refusal,
)
from divebook.stores.backend import (
    StoredLog,
    StoredMessage,
    check_brought_numbers,
    missing_event_error,
)
from divebook.stores.base import EventStore
from divebook.stores.embedded import close_when_dropped, weak_method
from divebook.stores.leases import Claim, Lease, Moment, Owner
from divebook.stores.listeners import NewsCounter, NewsListener
from divebook.stores.postgres import tables
from divebook.stores.postgres.connections import (
    Connections,
    DatabaseAddress,
    Link,
    PostgresSession,
    escaped,
    ready,
    translated,
)
from divebook.stores.postgres.logs import (
    DATA_MIGRATIONS,
    LogReader,
    LogRows,
    LogWriter,
    SentBatches,
    TypeNumbers,
)
from divebook.stores.postgres.schema import may_write, migrate
from divebook.stores.sql import SqlQueues
from divebook.text.redaction import logger

_log = logger(__name__)
CHANNEL = "divebook"
FOLLOW_SECONDS = 60
"""Seconds for which a row in the table of followers makes the server notify this process of appends to a log."""
FOLLOW_RENEWAL = 20.0
"""Seconds after which this process renews its rows in the table of followers."""
PROBE_SECONDS = 2.0
"""Seconds within which a test notification must arrive. Otherwise the connection receives no notifications."""
MIN_POLL_PAUSE = 0.02
"""Seconds between the first two polls, used where no notifications arrive."""
MAX_POLL_PAUSE = 0.2
"""Maximum seconds between two polls, reached after some time without changes."""
RECONNECT_PAUSE = 1.0
"""Seconds to wait after a lost connection before the next connection is opened."""
_FOLLOW = """
INSERT INTO divebook.followers (key, follower, until)
SELECT key, %s, clock_timestamp() + make_interval(secs => %s) FROM divebook.executions WHERE id = ANY(%s)
ON CONFLICT (key, follower) DO UPDATE SET until = excluded.until
"""
_LEAVE = "DELETE FROM divebook.followers WHERE follower = %s OR until < clock_timestamp() - interval '1 hour'"
# The number of the next transaction changes with every transaction that writes.
_WRITTEN = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
T = TypeVar("T")


class PostgresStore(EventStore):
    """Event store in a schema of a Postgres database, shared by threads, processes and machines.

    Parameters
    ----------
    url
        ``postgresql://user:password@host:port/database``, with any parameter of libpq, and ``schema`` for the schema
        of the tables (default ``divebook``). Schema and tables are created if necessary.
    durability
        Durability of batches that do not specify one. Events written with ``full`` survive a failure of the server's
        machine. With ``relaxed`` (``synchronous_commit = off``), the events of the last second may be missing after
        such a failure, but a log is never half written. A transaction that contains a `full` batch is written with
        `full`.

    Raises
    ------
    ConnectionLostError
        The server cannot be reached.
    StoreError
        The server refuses the connection: wrong password, no such database, no TLS.
    SetupError
        The URL is invalid.
    CorruptStoreError
        The schema belongs to another program.
    NewerStoreError
        A newer version of divebook wrote the file.
    """

    local = False
    _caches: tables.PostgresCaches

    def __init__(self, url: str, *, durability: Durability = FULL) -> None:
        super().__init__()
        address = DatabaseAddress.of(url)
        self.location = address.location
        self.durability: Durability = durability
        self._connections = Connections(address)
        # The tables come first, since all other parts need them.
        self._prepare(address)
        self._types = TypeNumbers(self._connections)
        self._reader = LogReader(self._connections, self._types)
        unknown = weak_method(self._unknown)
        self._logs = LogWriter(self._connections, self._types, self._reader, unknown)
        self._lists = tables.PostgresLists(self._connections, unknown)
        self._queues = SqlQueues(PostgresSession(self._connections))
        self._caches = tables.PostgresCaches(self._connections, unknown)
        self._large_values = tables.PostgresBlobs(self._connections, self._reader)
        self._server_news = ServerNews(self._connections, self._news_counter)
        for part in (self._connections, self._server_news):
            close_when_dropped(self, part)

    def _prepare(self, address: DatabaseAddress) -> None:
        with self._connections.opened() as link:
            self._connections.may_write = may_write(link)
            migrate(link, address.schema, self.location, DATA_MIGRATIONS)
        address.remember()

    def _moment(self, now: int | None) -> Moment:
        if now is not None:
            return Moment(now, None)
        ((wall,),) = self._connections.read(tables.NOW)
        return Moment(wall, None)

    # --- writing -----------------------------------------------------------------------------------------------------

    def append_all(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        """Append batches as `EventStore.append_all` does. Repeat refused batches if an earlier attempt to write them
        ended with a lost connection.
        """
        answers = super().append_all(batches)
        # The server may have made the commit in doubt only now, after this process read the log
        # (test_a_commit_that_the_server_makes_after_all_is_not_made_twice).
        retried = [
            index
            for index, batch in enumerate(batches)
            if batch.again and isinstance(answers[index], ConcurrentAppendError)
        ]
        new_answers: list[Refusal | None]
        try:
            new_answers = super().append_all([batches[index] for index in retried])
        except ConnectionLostError:
            raise
        except StoreError as error:  # the other batches were written
            new_answers = [error] * len(retried)
        for index, answer in zip(retried, new_answers, strict=True):
            answers[index] = answer
        return answers

    def append_in_a_moment(self, batches: Sequence[Batch], seconds: float) -> Appending:
        """Append as `EventStore.append_in_a_moment` does. Batches that only add events to cached logs are sent at once;
        `finish` writes all other batches.
        """
        self._check_open()
        # A check of the key, and a look for records of a lost commit, wait for the server.
        can_skip_keys = all(not batch.expected_sequence or self._is_readable(batch.execution_id) for batch in batches)
        if not batches or not can_skip_keys or any(batch.again for batch in batches):
            return super().append_in_a_moment(batches, seconds)
        checked = [self._prepare_batch(batch) for batch in batches]
        prepared = [entry for entry in checked if isinstance(entry, PreparedBatch)]
        # A batch was refused, or has no records.
        if len(prepared) < len(batches):
            return super().append_in_a_moment(batches, seconds)
        # Another thread writes, and the wait for it could exceed `seconds`.
        if not self._lock.acquire(blocking=False):
            return Appending(lambda: self._write_and_notify(prepared))
        try:
            sent = self._logs.begin(prepared, self.durability, self._notify)
            if sent is None:
                return Appending(lambda: self._write_and_notify(prepared))
            if sent.is_answered(seconds):
                return Appending(list, self._finish(sent))
            return Appending(lambda: self._finish(sent), is_begun=True)
        finally:
            self._lock.release()

    def _finish(self, sent: SentBatches) -> list[Refusal | None]:
        with self._lock:
            return self._logs.outcome(sent)

    def _write(self, batches: Sequence[PreparedBatch]) -> list[Refusal | None]:
        return self._logs.write(batches, self.durability)

    # --- leases ------------------------------------------------------------------------------------------------------

    def _acquire(
        self, execution_id: str, owner: Owner, moment: Moment, until: Moment, instead_of: Lease | None
    ) -> Lease:
        try:
            with self._connections.transaction() as execute:
                # The lock precedes the reading of the lease, so that two processes cannot both find it free.
                tables.lock_execution(execute, execution_id)
                row = tables.load_lease(execute, execution_id)
                if row is not None:
                    (lease,) = row
                    if lease is not None and lease.keeps_out(moment, instead_of):
                        raise lease.held_error()
                    self._logs.forget((execution_id,))  # its token changes
                    return tables.write_next_lease(execute, execution_id, owner, until)
        except ConnectionLostError:
            # It is unknown whether the commit took place. No other call writes a lease with this owner and this expiry.
            (written_lease,) = tables.load_lease(self._connections.read, execution_id) or (None,)
            if written_lease is None or (written_lease.owner, written_lease.expires_at) != (owner, until.wall):
                raise
            return written_lease  # the commit succeeded, and only the answer was lost
        raise self._unknown(execution_id)

    def _renew(self, leases: Sequence[Lease], until: Moment) -> list[bool]:
        return tables.renew_leases(self._connections.write, leases, until)

    def _release(self, lease: Lease) -> None:
        tables.release_lease(self._connections.write, lease)

    def _leases(self, execution_id: str | None = None) -> list[Lease]:
        if execution_id is None:
            return tables.load_leases(self._connections.read)
        (lease,) = self._required(execution_id, tables.load_lease(self._connections.read, execution_id))
        return [] if lease is None else [lease]

    # --- messages ----------------------------------------------------------------------------------------------------

    def _post(self, message: Message, payload: bytes) -> Message:
        while not (number := tables.post_message(self._connections, message, payload)):
            if number is None:
                raise self._unknown(message.execution_id)
            # Raises, because a final status does not change. Only if the execution was deleted and imported again in
            # between, the message is posted again.
            check_may_receive(message.execution_id, self._lists.record(message.execution_id).status, message.kind)
        # The number may be that of an earlier message with the same kind and key, which is then returned.
        stored = tables.load_message(self._connections.read, self.sealing, number)
        # The message may have been deleted meanwhile, with its execution.
        return stored or replace(message, payload=decode(self.sealing.decrypt(payload)), number=number)

    def _bring(self, messages: Sequence[tuple[Message, bytes]]) -> None:
        with self._connections.transaction() as execute:
            check_brought_numbers(messages, tables.lock_last_message_number(execute))
            for message, payload in messages:
                if not tables.insert_message(execute, message, payload):
                    raise self._unknown(message.execution_id)

    def _stored_messages(self, after: int, execution_id: str | None = None) -> list[StoredMessage]:
        if execution_id is None:
            return tables.load_new_messages(self._connections.read, after)
        return self._required(execution_id, tables.load_inbox(self._connections.read, execution_id, after))

    def on_news(self, listener: NewsListener, execution_id: str | None = None) -> Callable[[], None]:
        """Call ``listener()`` when a message arrives or another process has appended events, as `EventStore.on_news`
        does.
        """
        removers = [super().on_news(listener)]
        if execution_id is not None:
            removers.append(self._server_news.follow(execution_id))

        def remove() -> None:
            for remove_one in removers:
                remove_one()

        return remove

    def _wait_for_news(self, last_count: int, seconds: float) -> int:
        self._server_news.start_thread()
        count = super()._wait_for_news(last_count, seconds)
        self._check_open()
        return count

    def _last_message(self) -> int:
        return tables.last_message_number(self._connections.read)

    def _has_untaken(self, execution_id: str) -> bool:
        return self._required(execution_id, tables.has_untaken(self._connections.read, execution_id))

    def _last_addressee(self, kind: str, key: str) -> str | None:
        return tables.last_addressee(self._connections.read, kind, key)

    # --- queues ------------------------------------------------------------------------------------------------------

    def _claim(self, claim: Claim, owner: Owner, moment: Moment, until: Moment) -> list[Lease]:
        with self._connections.transaction() as execute:
            leases = tables.claim_executions(execute, claim, owner, moment, until)
        self._logs.forget([lease.execution_id for lease in leases])  # their tokens change
        return leases

    # --- maintenance -------------------------------------------------------------------------------------------------

    def _stored_log(self, execution_id: str) -> StoredLog:
        with self._lock, self._connections.transaction(writes=False) as execute:
            # All statements see one snapshot, so that the row fits the records.
            execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            stored = tables.load_stored(execute, self._types, execution_id)
        return self._required(execution_id, stored)

    def _faults(self) -> list[str]:
        return tables.find_faults(self._connections.read) + self._caches.faults()

    def _discard(self, last_sequences: Mapping[str, int | None], moment: Moment | None) -> list[str]:
        discarded: list[str] = []
        changed_ids: list[str] = []
        with self._connections.transaction() as execute:
            # In the order of the ids, so that two processes that delete the same executions do not wait for each other.
            for execution_id, last in sorted(last_sequences.items(), key=itemgetter(0)):
                if moment is not None and not tables.is_over(execute, execution_id, last, moment):
                    continue
                deleted_and_heirs = tables.delete_execution(execute, execution_id, self.sealing)
                discarded += deleted_and_heirs[:1]
                changed_ids += deleted_and_heirs
        # The cached row of an heir has another size than the one in the database.
        self._logs.forget(changed_ids)
        return discarded

    def _close(self) -> None:
        self._server_news.close()
        self._connections.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read_records(self, execution_id: str, after: int, last: int) -> list[Record]:
        log = self._required(execution_id, self._reader.find(execution_id, after, last))
        return self._reader.decoded_records(log, last, self.sealing)

    def _facts(self, execution_id: str, sequences: Sequence[int]) -> dict[int, Payload]:
        # One query returns the rows around each event; a record may hold several of the events.
        sequence_set = set(sequences)
        facts = dict[int, Payload]()
        logs: list[LogRows] = self._reader.around(execution_id, sorted(sequence_set))
        if not logs:
            raise self._unknown(execution_id)
        # `around` returns the logs in the order of the sequence numbers.
        for sequence, log in zip(sorted(sequence_set), logs, strict=True):
            for record in self._reader.decoded_records(log, sequence, self.sealing):
                for number, fact in enumerate(record.facts, record.sequence):
                    if number in sequence_set:
                        facts[number] = fact
        missing = sequence_set - facts.keys()
        if missing:
            raise missing_event_error(execution_id, min(missing))
        return facts

    def _required(self, execution_id: str, value: T | None) -> T:
        if value is None:
            raise self._unknown(execution_id)
        return value


# --- news of the server ---
# The server notifies of every message, and of appends to the logs that are in the table of followers. It does not
# notify of every commit, since commits would then wait for each other. Behind a pool that gives each transaction
# another session (the usual mode of PgBouncer), no notification arrives. `ServerNews` detects that with a probe, and
# polls the server instead, with growing pauses while nothing is written.


class ServerNews:
    """Thread that receives notifications from the database server about new messages and appends of other processes.

    The thread starts with the first wait for news.
    """

    def __init__(self, connections: Connections, news_counter: NewsCounter) -> None:
        self._connections = connections
        self._news_counter = news_counter
        self._follower = secrets.token_bytes(16)
        """Id of this store object in the table of followers."""
        self._followed: Counter[str] = Counter()
        """Number of listeners for each followed execution id."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        # A byte in this pair of sockets wakes the thread.
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_writer.settimeout(0)

    def start_thread(self) -> None:
        """Start the thread that receives notifications. Do nothing if it runs already or if the store is closed."""
        with self._lock:
            if self._thread is None and not self._is_closing:
                self._thread = threading.Thread(target=self._run, name="divebook-postgres-news", daemon=True)
                self._thread.start()

    def follow(self, execution_id: str) -> Callable[[], None]:
        """Request notifications of appends to the log of an execution. Return a function that ends the request."""
        with self._lock:
            self._followed[execution_id] += 1
        self._wake()

        def unfollow() -> None:
            with self._lock:
                self._followed[execution_id] -= 1
                self._followed += Counter()  # removes entries with count 0

        return unfollow

    def close(self) -> None:
        """End the thread that receives notifications, and close the sockets that wake it."""
        with self._lock:
            self._is_closing = True
            thread = self._thread
        self._wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join(RECONNECT_PAUSE)
        self._wake_reader.close()
        self._wake_writer.close()

    def _wake(self) -> None:
        with suppress(OSError):  # its buffer is full, so the thread is awake
            self._wake_writer.send(b"!")

    def _run(self) -> None:
        while not self._is_closing:
            try:
                self._receive()
            except StoreError as error:  # code that writes to the store reports the problem to the user
                _log.debug("no news of the store: %s", error)
                self._wait(None, RECONNECT_PAUSE)

    def _receive(self) -> None:
        link = self._connections.connect()
        location = self._connections.address.location
        try:
            with translated(location):
                link.execute(f"LISTEN {CHANNEL}".encode())
                self._news_counter.add()  # earlier changes caused no notification
                if self._receives_notifications(link):
                    self._listen(link)
                else:
                    self._poll(link)
        except ReadOnlyStoreError:
            # A standby sends no notifications, and a user that may only read cannot write the table of followers
            # (test_who_may_only_read_asks_for_news).
            with translated(location):
                # The deadline lets the thread try to listen again, since the server may have become writable.
                self._poll(link, time.monotonic() + FOLLOW_SECONDS)
        finally:
            with suppress(StoreError), translated(location):
                link.execute(self._connections.statement(_LEAVE).encode(), (self._follower,))
            link.close()

    def _receives_notifications(self, link: Link) -> bool:
        # From another connection: behind a pool, this one would receive the notification of its own transaction.
        self._connections.read("SELECT pg_notify(%s, 'trial')", (CHANNEL,))
        deadline = time.monotonic() + PROBE_SECONDS
        while not self._is_closing and (remaining := deadline - time.monotonic()) > 0:
            if self._has_notification(link):
                return True
            self._wait(link, remaining)
        return False

    def _listen(self, link: Link) -> None:
        announced: frozenset[str] = frozenset()
        renew_at = 0.0
        while not self._is_closing:
            self._connections.close_idle()
            announced, renew_at = self._announce_followed(link, announced, renew_at)
            if self._has_notification(link):
                self._news_counter.add()
            else:
                self._wait(link, max(0.0, renew_at - time.monotonic()))

    def _announce_followed(
        self, link: Link, announced: frozenset[str], renew_at: float
    ) -> tuple[frozenset[str], float]:
        """Write rows into the table of followers, so that other processes send notifications of appends to the followed
        logs. Do so if logs were added, or if the earlier rows expire soon.

        Return the followed logs, and the monotonic time at which to renew the rows.
        """
        with self._lock:
            followed = frozenset(self._followed)
        # A log that is not followed any more needs no statement, because its row expires.
        if followed <= announced and time.monotonic() < renew_at:
            return announced, renew_at
        if followed:
            ids = [escaped(name) for name in followed]
            link.execute(self._connections.statement(_FOLLOW).encode(), (self._follower, FOLLOW_SECONDS, ids))
        self._news_counter.add()  # earlier appends to these logs caused no notification
        return followed, time.monotonic() + FOLLOW_RENEWAL

    def _poll(self, link: Link, deadline: float = math.inf) -> None:
        last_written = ""
        pause = MIN_POLL_PAUSE
        while not self._is_closing and time.monotonic() < deadline:
            self._connections.close_idle()
            ((written,),) = link.execute(_WRITTEN).fetchall()
            if written != last_written:
                last_written = written
                pause = MIN_POLL_PAUSE
                self._news_counter.add()
            self._wait(None, pause)
            pause = min(MAX_POLL_PAUSE, pause * 1.5)

    def _has_notification(self, link: Link) -> bool:
        """Return True if the server has sent a notification since the previous check. Do not wait for one."""
        return bool(list(link.notifies(timeout=0)))

    def _wait(self, link: Link | None, seconds: float) -> None:
        # `_poll` passes no connection, since it reads no notifications.
        sources: list[socket.socket | Link] = [self._wake_reader] if link is None else [self._wake_reader, link]
        if self._wake_reader in ready(sources, seconds):
            with suppress(OSError):
                self._wake_reader.recv(4096)
