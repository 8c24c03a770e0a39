"""Event store in an SQLite file, with one connection that writes and one reading connection per thread.

The store's methods open a transaction or a snapshot. Their statements are in `divebook.stores.sqlite.tables` (rows
beside the logs), `log_reader` and `log_writer`. After the store, this file has write transactions and their
syncs to the disk, the undecoded reads of `divebook check`, and backups.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import NoneType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from divebook.documents.policy import protect_store
from divebook.engine.inbox import Message
from divebook.errors import CorruptStoreError, DecryptionError, ReadOnlyStoreError, StoreError
from divebook.events.catalog import Payload
from divebook.events.event import Record
from divebook.stores.append import (
    FULL,
    RELAXED,
    Batch,
    Durability,
    Line,
    PreparedBatch,
    Refusal,
    record_of,
)
from divebook.stores.backend import (
    StoredLog,
    StoredMessage,
    StoredRecord,
    check_brought_numbers,
)
from divebook.stores.base import EventStore
from divebook.stores.embedded import close_when_dropped, weak_method
from divebook.stores.encoding import unencodable_error, unpack_id
from divebook.stores.leases import LEASE_SECONDS, Claim, Lease, Moment, Owner
from divebook.stores.sql import SqlQueues, find_strays, typed
from divebook.stores.sqlite import connections, log_reader, tables
from divebook.stores.sqlite.connections import (
    DIALECT,
    Readers,
    SqliteSession,
    disable_busy_timeout,
    network_type,
    open_reader,
    open_writer,
    set_durability,
    translate,
    translated,
    why_read_only,
)
from divebook.stores.sqlite.log_reader import (
    LINE_TYPES,
    MOST,
    RECORD,
    Log,
    find,
    load_decoded_records,
    load_facts,
    log_end_of,
    read_columns,
)
from divebook.stores.sqlite.log_writer import LogWriter
from divebook.stores.sqlite.schema import EventTypes, check_current, check_format, check_version, migrate
from divebook.stores.sqlite.tables import TABLES
from divebook.text.redaction import logger

if TYPE_CHECKING:
    from divebook.stores.pages import EventPage

_EVENTS = """
SELECT place & 4294967295, recorded_at, type, id, CAST(path AS BLOB), CAST(step AS BLOB),
  CAST(data AS BLOB), checksum FROM events
WHERE place BETWEEN ? AND ? ORDER BY place
"""
_TYPES = (int, int, int, (bytes, str), bytes, bytes, bytes, (int, NoneType))
_USED = "SELECT digest FROM blob_uses JOIN blobs ON number = blob WHERE key = ?"
T = TypeVar("T")
_log = logger(__name__)
_ALL_PAGES = -1
_PAGES_PER_STEP = 1000  # 4 MB: without a write-ahead log, writers wait during a step of a backup
_BACKUP_PAUSE_SECONDS = 0.01


class SqliteStore(EventStore):
    """Event store in one SQLite file, which several threads and processes can use at the same time.

    Parameters
    ----------
    path
        File of the store. The file is created if it does not exist. A folder with the name ``.divebook`` is created,
        too.
    durability
        Durability of batches that do not specify one. Events written with ``full`` survive a power failure. Events
        written with ``relaxed`` survive the death of the process; after a power failure the latest of them may be
        missing, but a log is never half written. A transaction that contains a ``full`` batch is written with ``full``.
    network
        Function that returns the type of the network file system that a path is on, or None. On such a file system,
        all events are written with full durability and without a write-ahead log, and a RuntimeWarning is issued.

    Raises
    ------
    StoreError
        The path cannot be used for a store.
    CorruptStoreError
        The file has another format, or is damaged.
    NewerStoreError
        A newer version of divebook wrote the file.
    """

    _caches: tables.SqliteCaches

    def __init__(
        self,
        path: str | Path,
        *,
        durability: Durability = "full",
        network: Callable[[Path], str | None] = network_type,
    ) -> None:
        super().__init__()
        with translated(str(path)):
            self.path = Path(path).expanduser().absolute()
            protect_store(self.path)
            self.read_only = why_read_only(self.path)
            """Reason why the file cannot be written, or None."""
        self.location = str(self.path)
        self.durability: Durability = durability
        self._types = EventTypes(self.location)
        self._readers = Readers(weak_method(self._open_reader))
        self._writer: sqlite3.Connection | None = None
        self._write_lock: WriteLock | None = None
        self._watch: tables.MessageWatch | None = None
        self._network = None if self.read_only else network(self.path)
        # A rollback journal needs full durability (`divebook.stores.sqlite.connections._set_up_remote`).
        if self._network:
            self.durability = FULL
        unknown = weak_method(self._unknown)
        self._logs = LogWriter(self._types, self.durability, unknown)
        self._session = SqliteSession(self.location, self._readers, weak_method(self._transaction))
        self._lists = tables.SqliteLists(self._session, self._types, unknown)
        self._queues = SqlQueues(self._session)
        self._caches = tables.SqliteCaches(self._session, self._types, unknown)
        self._large_values = log_reader.SqliteBlobs(self._session)
        self._disk = DiskSync(self.path)
        with translated(self.location):
            self._open()
        # `_open` has created the file.
        self._file = OpenFile(self.path)

    def _open(self) -> None:
        if self.read_only:
            with self._session.snapshot() as connection:
                self._types.load(connection)
            return
        writer = open_writer(self.path, self.durability, self._network)
        # Nothing else refers to the connection yet, so an error must close it here.
        try:
            migrate(writer, self.location)
            self._types.register(writer)
        except BaseException:
            writer.close()
            raise
        # The migration relies on SQLite's own waiting, so this comes after it.
        disable_busy_timeout(writer)
        self._writer = writer
        self._watch = tables.MessageWatch(writer)
        self._write_lock = WriteLock(writer, threading.Condition(self._lock), self.durability)
        close_when_dropped(self, writer)

    def _open_reader(self) -> sqlite3.Connection:
        self._check_open()
        connection = open_reader(self.path, read_only=bool(self.read_only))
        if self.read_only:
            check_current(connection, self.location)
        return connection

    @property
    def in_place(self) -> bool:
        """True if the path still refers to the open file. It is False if the file was deleted or replaced; then the
        store can be read but not written.
        """
        return self._file.is_in_place()

    # --- writing -----------------------------------------------------------------------------------------------------

    def append_unsynced(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        """Append batches as `append_all` does, but do not wait for the disk. The events survive a power failure only
        after `sync`.
        """
        with self._disk.deferred():
            return self.append_all(batches)

    @property
    def syncs_apart(self) -> bool:
        """True unless the file is on a network file system. Another thread can then sync the write-ahead log of the
        file to the disk (`sync`).
        """
        return not self._network

    def sync(self) -> None:
        """Wait until the disk has stored all earlier appends."""
        # A closed store has nothing to sync, and raises no error (`DiskSync.sync`).
        if self._was_forked:
            raise self._unusable_error()
        self._disk.sync()

    def _durability_of(self, batches: Sequence[PreparedBatch]) -> Durability:
        if self._disk.take_deferral():
            return RELAXED
        # One full batch makes the whole transaction full (test_one_full_batch_makes_its_transaction_full).
        for batch in batches:
            if (batch.durability or self.durability) == FULL:
                return FULL
        return RELAXED

    def _transaction(self, durability: Durability | None = None) -> Transaction:
        if self._write_lock is None:
            raise ReadOnlyStoreError(
                f"{self.location} is read-only: {self.read_only}. Make it writable, or choose another store"
            )
        if durability is None or self._network:
            durability = self.durability
        return Transaction(self._write_lock, self._file, durability)

    def _write(self, batches: Sequence[PreparedBatch]) -> list[Refusal | None]:
        try:
            transaction = self._transaction(self._durability_of(batches))
            with transaction as cursor:
                answers = self._logs.write(cursor, batches, transaction.file_version)
        # The cache may have the logs as they would be after the commit.
        except BaseException:
            self._logs.forget([batch.execution_id for batch in batches])  # the transaction was rolled back
            raise
        has_posted = False
        for batch in batches:
            # Few batches change the status of their execution.
            if batch.status_change is not None:
                if batch.ends:  # an ended execution is seldom written again
                    self._logs.forget((batch.execution_id,))
                has_posted = has_posted or batch.to_parent is not None
        # The numbers of the messages to parents are only in the table.
        if has_posted and self._watch is not None:
            self._watch.on_post(self._last_message())
        return answers

    # --- leases -------------------------------------------------------------------------------------------------------
    # Relaxed durability: a power failure that takes a lease ends its owner as well. Events that were written under a
    # lease follow it in the same file, so they are never there without it.

    def _acquire(
        self, execution_id: str, owner: Owner, moment: Moment, until: Moment, instead_of: Lease | None
    ) -> Lease:
        with self._transaction(RELAXED) as cursor:
            # Read and written in one transaction, so that two processes cannot both find the lease free.
            log = self._find(cursor, execution_id)
            lease = tables.load_lease(cursor, log.key)
            if lease is not None and lease.keeps_out(moment, instead_of):
                raise lease.held_error()
            next_lease = tables.write_next_lease(cursor, log, owner, until, was_left=lease is not None)
        self._logs.note_lease(next_lease)
        return next_lease

    def _renew(self, leases: Sequence[Lease], until: Moment) -> list[bool]:
        with self._transaction(RELAXED) as cursor:
            return [tables.renew_lease(cursor, lease, until) for lease in leases]

    def _release(self, lease: Lease) -> None:
        with self._transaction(RELAXED) as cursor:
            tables.release_lease(cursor, lease)

    def _leases(self, execution_id: str | None = None) -> list[Lease]:
        with self._session.snapshot() as connection:
            if execution_id is None:
                return tables.load_leases(connection)
            lease = tables.load_lease(connection, self._find(connection, execution_id).key)
            return [] if lease is None else [lease]

    def _claim(self, claim: Claim, owner: Owner, moment: Moment, until: Moment) -> list[Lease]:
        with self._session.snapshot() as connection:
            if not any(tables.claimable(connection, claim, moment)):
                return []  # most polls find nothing, and need not wait for the write lock
        with self._transaction(RELAXED) as cursor:
            claimed = list(itertools.islice(tables.claimable(cursor, claim, moment), claim.limit))
            self._logs.forget(claimed)  # their tokens change
            leases: list[Lease] = []
            for execution_id in claimed:
                log = self._find(cursor, execution_id)
                was_left = tables.load_lease(cursor, log.key) is not None
                leases.append(tables.write_next_lease(cursor, log, owner, until, was_left=was_left))
        return leases

    # --- messages ----------------------------------------------------------------------------------------------------

    def _post(self, message: Message, payload: bytes) -> Message:
        with self._transaction() as cursor:
            log = self._find(cursor, message.execution_id)
            stored = tables.post_message(cursor, self.sealing, log.key, message, payload)
        if self._watch is not None:
            self._watch.on_post(stored.number)
        return stored

    def _post_and_acquire(
        self, message: Message, payload: bytes, owner: Owner, moment: Moment, after: int
    ) -> tuple[Message, Lease | None]:
        lease: Lease | None = None
        try:
            # The message is as durable as those of `_post`.
            with self._transaction() as cursor:
                log = self._find(cursor, message.execution_id)
                stored = tables.post_message(cursor, self.sealing, log.key, message, payload)
                present_lease = tables.load_lease(cursor, log.key)
                is_held = present_lease is not None and present_lease.keeps_out(moment)
                if stored.source == message.source and not is_held:
                    until = moment.plus(LEASE_SECONDS)
                    lease = tables.write_next_lease(cursor, log, owner, until, was_left=present_lease is not None)
                    unread = tables.load_inbox(cursor, log.key, after)
                    lease = replace(lease, unread=[stored_message.opened(self.sealing) for stored_message in unread])
        except (CorruptStoreError, DecryptionError):
            # A lease or an earlier message may be damaged. The new message was rolled back with the rest, and must not
            # be lost for that (test_a_damaged_row_of_an_execution_loses_no_message_to_it).
            return super()._post_and_acquire(message, payload, owner, moment, after)
        if self._watch is not None:
            self._watch.on_post(stored.number)
        if lease is not None:
            self._logs.note_lease(lease)
        return stored, lease

    def _bring(self, messages: Sequence[tuple[Message, bytes]]) -> None:
        with self._transaction() as cursor:
            check_brought_numbers(messages, tables.last_message_number(cursor))
            for message, payload in messages:
                tables.insert_message(cursor, self._find(cursor, message.execution_id).key, message, payload)
        if self._watch is not None:
            self._watch.on_post(messages[-1][0].number)

    def _stored_messages(self, after: int, execution_id: str | None = None) -> list[StoredMessage]:
        if execution_id is None and self._watch is not None:
            with translated(self.location):
                return self._watch.new_messages(after)
        with self._session.snapshot() as connection:
            if execution_id is None:
                return tables.load_new_messages(connection, after)
            # In one snapshot: the key of a deleted execution may be given to a new one.
            return tables.load_inbox(connection, self._find(connection, execution_id).key, after)

    def _wait_for_news(self, last_count: int, seconds: float) -> int:
        return tables.wait_for_news(self._news_counter, self._has_news, last_count, seconds)

    def _has_news(self) -> bool:
        self._check_open()
        with translated(self.location), self._lock:
            # `close` may have closed the connection between the check above and this lock.
            return self._watch is not None and not self._closed and self._watch.has_news()

    def _last_message(self) -> int:
        with self._session.snapshot() as connection:
            return tables.last_message_number(connection)

    def _has_untaken(self, execution_id: str) -> bool:
        with self._session.snapshot() as connection:
            return tables.has_untaken(connection, self._find(connection, execution_id).key)

    def _last_addressee(self, kind: str, key: str) -> str | None:
        with self._session.snapshot() as connection:
            return tables.last_addressee(connection, kind, key)

    # --- maintenance -------------------------------------------------------------------------------------------------

    def _stored_log(self, execution_id: str) -> StoredLog:
        with self._session.snapshot() as connection:
            return self._required(execution_id, load_stored(connection, self._types, execution_id))

    def _faults(self) -> list[str]:
        with self._session.snapshot() as connection:
            # The other queries could not be trusted with damaged pages.
            faults = find_damaged_pages(connection)
            if faults:
                return faults
            faults = find_faults(connection)
        return faults + self._caches.faults()

    def _discard(self, last_sequences: Mapping[str, int | None], moment: Moment | None) -> list[str]:
        discarded: list[str] = []
        changed_ids: list[str] = []
        with self._transaction() as cursor:
            for execution_id, last in last_sequences.items():
                if moment is not None and not tables.is_over(cursor, execution_id, last, moment):
                    continue
                deleted_and_heirs = tables.delete_execution(cursor, execution_id, self.sealing)
                discarded += deleted_and_heirs[:1]
                changed_ids += deleted_and_heirs
        # The cached row of an heir has another size than the one in the file.
        self._logs.forget(changed_ids)
        return discarded

    def _close(self) -> None:
        # The readers close first. As the last connection, the writer moves the write-ahead log into the file and
        # deletes it (test_closing_leaves_one_file).
        self._readers.close()
        if self._writer is not None:
            with translated(self.location):
                self._writer.close()
        self._disk.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read_records(self, execution_id: str, after: int, last: int) -> list[Record]:
        with self._session.snapshot() as connection:
            log = self._find(connection, execution_id)
            return load_decoded_records(connection, self._types, self.sealing, log, after=after, last=last)

    def _facts(self, execution_id: str, sequences: Sequence[int]) -> dict[int, Payload]:
        with self._session.snapshot() as connection:
            log = self._find(connection, execution_id)
            return load_facts(connection, self._types, self.sealing, log, sequences)

    def _page(self, execution_id: str, after: int, limit: int) -> EventPage:
        with self._session.snapshot() as connection:
            log = self._find(connection, execution_id)
            page = read_columns(connection, self._types, self.sealing, log, after=after, limit=limit)
        # Reading record by record names the damaged one.
        return super()._page(execution_id, after, limit) if page is None else page

    def _last_sequence(self, execution_id: str) -> int:
        with self._session.snapshot() as connection:
            return log_end_of(connection, self._types, self._find(connection, execution_id)).last_sequence

    def _find(self, connection: sqlite3.Connection | sqlite3.Cursor, execution_id: str) -> Log:
        return self._required(execution_id, find(connection, execution_id))

    def _required(self, execution_id: str, value: T | None) -> T:
        if value is None:
            raise self._unknown(execution_id)
        return value


# --- write transactions ---
# A transaction with durability ``full`` waits for the disk at its commit, so that it survives a power failure. If more
# batches are about to be written, `DiskSync` moves that wait to another thread: the transactions are written as relaxed
# ones, and one later sync of the write-ahead log covers all of them. For example, three appends without and with a
# shared sync::
#
#     commit 1, sync, commit 2, sync, commit 3, sync        3 syncs, each blocks the writer
#     commit 1, commit 2, commit 3 | sync in a thread       1 sync, the writer does not block
#
# An append is acknowledged as durable only after its sync. The write-ahead log is written in order, so a power failure
# never takes a transaction without those that follow it, whatever process wrote them (``tests/store/test_syncing.py``).


LOOP_SECONDS = 0.05
"""Maximum seconds that an event loop waits for the write lock.

The caller on the loop tries again later, and other tasks run meanwhile.
"""
PAUSE_SECONDS = 0.005
"""Seconds between two attempts to get the write lock."""
_sync_file: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # as SQLite does


class Transaction:
    """Write transaction (``BEGIN IMMEDIATE`` to ``COMMIT``). Any exception in the `with` block rolls it back, including
    a keyboard interrupt (Ctrl-C).

    Entering also verifies that the path still refers to the open file, and that the file's format is not newer if
    another connection has written to the file.
    """

    __slots__ = ("_durability", "_file", "_lock")

    def __init__(self, lock: WriteLock, file: OpenFile, durability: Durability) -> None:
        self._lock = lock
        self._file = file
        self._durability = durability

    @property
    def file_version(self) -> int:
        """``PRAGMA data_version`` of the file, which changes when another connection writes to the file."""
        return self._lock.file_version

    def __enter__(self) -> sqlite3.Cursor:
        try:
            cursor = self._lock.begin(self._durability)
        except sqlite3.Error as error:
            # SQLite's error does not name a deleted or replaced file as the cause.
            self._file.check_in_place()
            raise translate(error, str(self._file.path)) from error
        if not self._file.is_in_place():
            cursor.execute("ROLLBACK")
            raise self._file.replaced_error()
        try:
            (version,) = cursor.execute("PRAGMA data_version").fetchone()
            if version != self._lock.file_version:
                check_format(cursor, str(self._file.path))
                self._lock.file_version = version
        except BaseException:
            cursor.execute("ROLLBACK")
            raise
        return cursor

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        lock = self._lock
        try:
            if error is None:
                lock.cursor.execute("COMMIT")
        except sqlite3.Error as failure:
            self._file.check_in_place()
            raise translate(failure, str(self._file.path)) from failure
        finally:
            # The block has failed, or the commit did.
            if lock.connection.in_transaction:
                lock.connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise translate(error, str(self._file.path)) from error
        if isinstance(error, UnicodeEncodeError):
            raise unencodable_error(error) from error


class WriteLock:
    """SQLite's write lock on the file. It begins a transaction as soon as no other process writes.

    The store's lock is released during the wait. SQLite's own waiting would keep that lock, and would block the
    engine's loop for as long as another thread waits for another process
    (test_a_thread_that_waits_for_the_file_does_not_hold_up_the_loop).

    Parameters
    ----------
    store_lock
        Condition on the store's lock.
    durability
        Present setting of the connection.
    """

    __slots__ = ("_durability", "_store_lock", "connection", "cursor", "file_version")

    def __init__(self, connection: sqlite3.Connection, store_lock: threading.Condition, durability: Durability) -> None:
        self.connection = connection
        self._store_lock = store_lock
        self._durability = durability
        self.cursor = connection.cursor()
        """Cursor of all transactions, reused because creating a cursor costs as much as some statements."""
        self.file_version = -1
        """``PRAGMA data_version`` of the file at the last check of its format."""

    def begin(self, durability: Durability) -> sqlite3.Cursor:
        """Start a transaction that has the given durability, and return its cursor. Call this with the store's lock
        held.
        """
        if self.connection.in_transaction:  # a KeyboardInterrupt came between BEGIN and the block
            self.connection.execute("ROLLBACK")
        deadline: float | None = None
        while True:
            if durability != self._durability:  # in each round: another thread may have written in between
                set_durability(self.connection, durability)
                self._durability = durability
            try:
                return self.cursor.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                # Extended error codes have the basic code in their lowest byte.
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                deadline = deadline or time.monotonic() + _max_wait()
                if time.monotonic() > deadline:
                    raise
            self._store_lock.wait(PAUSE_SECONDS)


def _max_wait() -> float:
    """Return the number of seconds that the calling thread may wait for the write lock; less if the thread runs an
    event loop.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return connections.BUSY_SECONDS
    return LOOP_SECONDS


class OpenFile:
    """Device and inode of the open store file, to detect that its path refers to another file.

    SQLite continues to write to a file that was deleted or replaced, and the content is lost when the last process
    closes it. The check costs 2 microseconds a transaction.
    """

    __slots__ = ("_device", "_inode", "_name", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = str(path)  # every transaction needs it, and a Path costs twice as much
        status = path.stat()
        self._device = status.st_dev
        self._inode = status.st_ino

    def is_in_place(self) -> bool:
        """Return True if the store's path still refers to the open file."""
        try:
            status = os.stat(self._name)  # noqa: PTH116 - a string, see above
        except FileNotFoundError:
            return False
        return status.st_ino == self._inode and status.st_dev == self._device

    def check_in_place(self) -> None:
        """Raise StoreError if the store's path no longer refers to the open file, because the file was deleted or
        replaced.
        """
        if not self.is_in_place():
            raise self.replaced_error()

    def replaced_error(self) -> StoreError:
        """Return the error for a store whose file was deleted or replaced while the store was open."""
        return StoreError(
            f"{self.path} was deleted or replaced while it was open; nothing more is written. Restore the file, or "
            "open the path again to continue with another file"
        )


class _Deferral(threading.local):
    """Mark of the calling thread that its next append need not wait for the disk.

    A mark of the store would also apply to other threads. They append while this one waits for another process, since
    `WriteLock.begin` then releases the store's lock
    (test_who_waits_for_another_process_unsynced_takes_nothing_from_the_commits_of_others).
    """

    is_on = False


class DiskSync:
    """Delayed syncs of a store file to the disk. The first transaction in the `with` block of `deferred` commits
    without waiting for the disk, and `sync` waits for it later.
    """

    def __init__(self, path: Path) -> None:
        self._deferral = _Deferral()
        self._path = path.with_name(f"{path.name}-wal")
        self._descriptor: int | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Make the next append of the calling thread commit without waiting for the disk, if it is inside the `with`
        block.
        """
        self._deferral.is_on = True
        try:
            yield
        finally:
            self._deferral.is_on = False

    def take_deferral(self) -> bool:
        """Return True if the present append need not wait for the disk, because its thread is inside a `with` block of
        `deferred`.

        Only the first append in a `deferred` block gets True. Later ones are appends of listeners, which have to wait
        (test_what_a_listener_appends_after_an_unsynced_append_is_full).
        """
        is_on = self._deferral.is_on
        self._deferral.is_on = False
        return is_on

    def sync(self) -> None:
        """Wait until the disk has all earlier writes to the file; raise StoreError if the disk reports an error."""
        with self._lock:
            if self._is_closed:  # SQLite has written everything to the disk
                return
            try:
                if self._descriptor is None:
                    self._descriptor = self._open_log()
                _sync_file(self._descriptor)
            except OSError as error:
                raise StoreError(
                    f"the data written to {self._path} could not be flushed to the disk: {error.strerror}; check "
                    "the disk, then resume the executions that were running"
                ) from error

    def _open_log(self) -> int:
        """Open SQLite's write-ahead log and return its descriptor. The folder is synced, so that the name of the log
        survives a power failure.

        The log stays the same file as long as the store is open. Closing the descriptor releases no lock of SQLite:
        those are on the other two files.
        """
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return os.open(self._path, os.O_RDWR)

    def close(self) -> None:
        """Close the descriptor of SQLite's write-ahead log. Call this after the writing connection was closed."""
        with self._lock:
            self._is_closed = True
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None


# --- undecoded rows, for `divebook check` ---


def load_stored(connection: sqlite3.Connection, types: EventTypes, execution_id: str) -> StoredLog | None:
    """Return the row of an execution and the records of its log, not decoded; None if the execution does not exist.

    `connection` must be in a snapshot.
    """
    row = connection.execute(f"{RECORD} WHERE id = ?", (execution_id,)).fetchone()
    log = find(connection, execution_id)
    if row is None or log is None:
        return None
    event_rows, broken = _readable_rows(connection, log.ranges(1, MOST))
    shared_blobs = frozenset[bytes]()
    # The last part has the log's own rows, and the others are those of its sources.
    for part in log.parts[:-1]:
        shared_blobs |= _digests_used(connection, part.key)
    *columns, seal, _ = row
    line = Line(*typed("row of an execution", tuple(columns), LINE_TYPES))
    return StoredLog(
        record=record_of(line),
        checksum=log.checksum,
        records=[_record(event_row, types, connection) for event_row in event_rows],
        blobs=_digests_used(connection, log.key),
        questions=tables.open_questions_of(connection, log.key),
        shared=log.shared,
        shared_blobs=shared_blobs,
        broken=broken,
        altered=seal != line.seal(),
        checkpoint_fits=tables.checkpoints_fit(connection, log),
    )


def _digests_used(connection: sqlite3.Connection, key: int) -> frozenset[bytes]:
    return frozenset(digest for (digest,) in connection.execute(_USED, (key,)).fetchall())


def _readable_rows(
    connection: sqlite3.Connection, ranges: Sequence[tuple[int, int]]
) -> tuple[list[tuple[Any, ...]], str | None]:
    """Return the event rows of a log before the first row that cannot be read. Also return the error of that row, or
    None if all rows can be read.
    """
    rows: list[tuple[Any, ...]] = []
    try:
        for places in ranges:
            # `extend` keeps the rows before an error.
            rows.extend(typed("event", row, _TYPES) for row in connection.execute(_EVENTS, places))
    except (sqlite3.DatabaseError, CorruptStoreError) as error:
        return rows, str(error)
    return rows, None


def _record(row: tuple[Any, ...], types: EventTypes, connection: sqlite3.Connection) -> StoredRecord:
    sequence, recorded_at, number, event_id, path, step, payload, checksum = row
    try:
        name = types.name(number, connection)
    except CorruptStoreError:
        name = f"type {number}"
    return StoredRecord(sequence, recorded_at, name, unpack_id(event_id), _text(path), _text(step), payload, checksum)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")  # the checksum reveals damage


def find_faults(connection: sqlite3.Connection) -> list[str]:
    """Return descriptions of rows that belong to no execution or contradict other rows."""
    faults = find_strays(TABLES, lambda statement: connection.execute(DIALECT.text(statement)).fetchone()[0])
    faults += tables.find_queue_faults(connection)
    faults += tables.find_message_faults(connection)
    faults += tables.find_question_faults(connection)
    faults += tables.find_list_faults(connection)
    return faults


def find_damaged_pages(connection: sqlite3.Connection) -> list[str]:
    """Return descriptions of damaged pages of the file."""
    try:
        texts = [text for (text,) in connection.execute("PRAGMA integrity_check(20)").fetchall() if text != "ok"]
    except sqlite3.DatabaseError as error:  # some damage makes the check itself fail
        texts = [str(error)]
    return [f"the file's structure is damaged: {text}" for text in texts]


# --- backup ---


def back_up(path: Path, destination: Path) -> Path:
    """Copy a store into a new file while other processes write to the store; return the path of the new file.

    SQLite's online backup does not block writers, and copies whole transactions. The copy has every event that was
    acknowledged before the call, needs no other file beside it, and appears under its name only when all of it is on
    disk. The content is not verified; `divebook check` does that.

    Parameters
    ----------
    path
        The store. An older format is kept.
    destination
        A new file, or a folder for a file of the same name.

    Raises
    ------
    StoreError
        The store does not exist, or the destination exists already or cannot be written.
    CorruptStoreError
        The file is not a store, or too damaged to be copied.
    """
    if not path.exists():
        raise StoreError(f"there is no store at {path}; nothing to back up")
    target = destination / path.name if destination.is_dir() else destination
    _check_destination(target)
    try:
        # The temporary folder is in the folder of the target, since a rename is atomic only within a file system. After
        # an error it is removed with the unfinished copy.
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
            partial = Path(folder, target.name)
            _copy(path, partial)
            # The mode is set before the rename, so that the backup is never more public than the store
            # (test_a_backup_is_as_private_as_the_store).
            partial.chmod(stat.S_IMODE(path.stat().st_mode))
            partial.rename(target)
            _sync_folder(target.parent)
    except OSError as error:
        raise StoreError(f"the backup {target} cannot be written: {error}. Choose another place for it") from error
    return target


def _check_destination(target: Path) -> None:
    if not target.parent.is_dir():
        raise StoreError(
            f"the folder {target.parent} does not exist; create it, or choose another place for the backup"
        )
    # SQLite would take an existing journal for that of the new file, and replay it.
    for name in (target.name, f"{target.name}-wal", f"{target.name}-journal"):
        if target.with_name(name).exists():
            raise StoreError(f"{target.with_name(name)} exists already; choose another name for the backup")


def _copy(path: Path, partial: Path) -> None:
    with (
        translated(str(path)),
        closing(open_reader(path, read_only=why_read_only(path) is not None)) as source,
        closing(sqlite3.connect(partial)) as target,
    ):
        if not check_version(source, str(path)):
            raise CorruptStoreError(f"{path} is empty, so it is not a divebook store. Use another file")
        # With a write-ahead log, writers do not wait for readers, so that all pages are copied in one step.
        (mode,) = source.execute("PRAGMA journal_mode").fetchone()
        source.backup(target, pages=_ALL_PAGES if mode == "wal" else _PAGES_PER_STEP, sleep=_BACKUP_PAUSE_SECONDS)


def _sync_folder(folder: Path) -> None:
    """Write the entries of a folder to the disk, so that the name of a new file in it survives a power failure."""
    if hasattr(os, "O_DIRECTORY"):  # Windows has no handles of folders
        descriptor = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
