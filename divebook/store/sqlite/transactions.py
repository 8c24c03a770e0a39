"""Write transactions of a store file: SQLite's write lock, detection of a replaced file, and syncs to the disk.

A transaction with durability ``full`` waits for the disk at its commit, so that it survives a power failure. If more
batches are about to be written, `DiskSync` moves that wait to another thread: the transactions are written as relaxed
ones, and one later sync of the write-ahead log covers all of them. For example, three appends without and with a
shared sync::

    commit 1, sync, commit 2, sync, commit 3, sync        3 syncs, each blocks the writer
    commit 1, commit 2, commit 3 | sync in a thread       1 sync, the writer does not block

An append is acknowledged as durable only after its sync. The write-ahead log is written in order, so a power failure
never takes a transaction without those that follow it, whatever process wrote them (``tests/store/test_syncing.py``).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from divebook.errors import StoreError
from divebook.store.append import Durability
from divebook.store.encoding import unencodable_error
from divebook.store.sqlite import connections
from divebook.store.sqlite.connections import set_durability, translate
from divebook.store.sqlite.schema import check_format

LOOP_SECONDS = 0.05
"""Maximum seconds that an event loop waits for the write lock.

The caller on the loop tries again later, and other tasks run meanwhile.
"""
PAUSE_SECONDS = 0.005
"""Seconds between two attempts to get the write lock."""
_sync_file: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # as SQLite does


class Transaction:
    """Write transaction (``BEGIN IMMEDIATE`` to ``COMMIT``); any exception in the block, also Ctrl-C, rolls it back.

    Entering also verifies that the path still refers to the open file, and that the file's format is not newer.
    """

    __slots__ = ("_durability", "_file", "_lock")

    def __init__(self, lock: WriteLock, file: OpenFile, durability: Durability) -> None:
        self._lock = lock
        self._file = file
        self._durability = durability

    def __enter__(self) -> sqlite3.Cursor:
        try:
            cursor = self._lock.begin(self._durability)
        except sqlite3.Error as error:
            self._file.check_in_place()
            raise translate(error, str(self._file.path)) from error
        if not self._file.is_in_place():
            cursor.execute("ROLLBACK")
            raise self._file.replaced_error()
        try:
            check_format(cursor, str(self._file.path))  # 3 microseconds a transaction
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
            if lock.connection.in_transaction:
                lock.connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise translate(error, str(self._file.path)) from error
        if isinstance(error, UnicodeEncodeError):
            raise unencodable_error(error) from error


class WriteLock:
    """SQLite's write lock, which begins transactions as soon as no other process writes.

    It releases the store's lock while it waits. SQLite's own waiting would keep that lock, and would block the engine's
    loop for as long as another thread waits for another process
    (test_a_thread_that_waits_for_the_file_does_not_hold_up_the_loop).

    Parameters
    ----------
    store_lock
        Condition on the store's lock.
    durability
        Present setting of the connection.
    """

    __slots__ = ("_durability", "_store_lock", "connection", "cursor")

    def __init__(self, connection: sqlite3.Connection, store_lock: threading.Condition, durability: Durability) -> None:
        self.connection = connection
        self._store_lock = store_lock
        self._durability = durability
        self.cursor = connection.cursor()
        """Cursor of all transactions, reused because creating a cursor costs as much as some statements."""

    def begin(self, durability: Durability) -> sqlite3.Cursor:
        """Start a transaction with a durability. Call this with the store's lock held."""
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
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                deadline = deadline or time.monotonic() + _max_wait()
                if time.monotonic() > deadline:
                    raise
            self._store_lock.wait(PAUSE_SECONDS)


def _max_wait() -> float:
    """Return the number of seconds that the calling thread may wait for the write lock."""
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
        """Return True if the path still refers to the open file."""
        try:
            status = os.stat(self._name)  # noqa: PTH116 - a string, see above
        except FileNotFoundError:
            return False
        return status.st_ino == self._inode and status.st_dev == self._device

    def check_in_place(self) -> None:
        """Raise StoreError if the path no longer refers to the open file."""
        if not self.is_in_place():
            raise self.replaced_error()

    def replaced_error(self) -> StoreError:
        """Return the error for a store file that was deleted or replaced while it was open."""
        return StoreError(
            f"{self.path} was deleted or replaced while it was open; nothing more is written. Put the file back, or "
            "open the path anew to go on with another file"
        )


class DiskSync:
    """Later syncs to the disk for transactions that were committed without waiting for the disk."""

    def __init__(self, path: Path) -> None:
        self.is_deferred = False
        """True while transactions are committed without waiting for the disk."""
        self._path = path.with_name(f"{path.name}-wal")
        self._descriptor: int | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Make the transactions in the block commit without waiting for the disk. Call this with the
        store's lock held.
        """
        self.is_deferred = True
        try:
            yield
        finally:
            self.is_deferred = False

    def sync(self) -> None:
        """Wait until the disk has all earlier writes; raise StoreError if the disk reports an error."""
        with self._lock:
            if self._is_closed:  # SQLite has written everything to the disk
                return
            try:
                if self._descriptor is None:
                    self._descriptor = self._open_log()
                _sync_file(self._descriptor)
            except OSError as error:
                raise StoreError(
                    f"what was written to {self._path} could not be brought to the disk: {error.strerror}; look at the "
                    "disk, then resume the executions that were running"
                ) from error

    def _open_log(self) -> int:
        """Open the write-ahead log, and sync its folder so that the file's name survives a power failure as well.

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
        """Close the descriptor of the write-ahead log. Call this after the writing connection was closed."""
        with self._lock:
            self._is_closed = True
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
