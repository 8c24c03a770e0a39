"""One transaction: all of it or nothing, and only into the file that others see."""

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
from divebook.store.sqlite import connections
from divebook.store.sqlite.faults import translate

LOOP_SECONDS = 0.05
"""How long an event loop waits for another process: it comes again later, and others have their turn meanwhile."""
PAUSE_SECONDS = 0.005


class Transaction:
    """``BEGIN IMMEDIATE`` ... ``COMMIT``, undone by any exception, KeyboardInterrupt included."""

    __slots__ = ("_connection", "_file", "_turn")

    def __init__(self, connection: sqlite3.Connection, file: OpenFile, turn: WriteTurn) -> None:
        self._connection = connection
        self._file = file
        self._turn = turn

    def __enter__(self) -> sqlite3.Cursor:
        try:
            if self._connection.in_transaction:  # a KeyboardInterrupt came between BEGIN and the block
                self._connection.execute("ROLLBACK")
            cursor = self._turn.begin(self._connection)
        except sqlite3.Error as error:
            self._file.check_in_place()
            raise translate(error, str(self._file.path)) from error
        if not self._file.is_in_place():
            self._connection.execute("ROLLBACK")
            raise self._file.gone()
        return cursor

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        try:
            if error is None:
                self._connection.execute("COMMIT")
        except sqlite3.Error as failure:
            self._file.check_in_place()
            raise translate(failure, str(self._file.path)) from failure
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise translate(error, str(self._file.path)) from error


@contextmanager
def at_one_moment(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Let everything that is read in the block be as of one moment."""
    if connection.in_transaction:  # a KeyboardInterrupt came between BEGIN and the block
        connection.execute("ROLLBACK")
    connection.execute("BEGIN")
    try:
        yield connection
    finally:
        if connection.in_transaction:  # an error may have ended it already; COMMIT would raise that once more
            connection.execute("ROLLBACK")


class WriteTurn:
    """Waits until no other process writes, with the store's lock free meanwhile.

    SQLite's own waiting would keep the lock, and with it the engine's loop, for as long as another thread waits for
    another process (test_a_thread_that_waits_for_the_file_does_not_hold_up_the_loop).
    """

    __slots__ = ("_free", "_prepare")

    def __init__(self, free: threading.Condition, prepare: Callable[[], object]) -> None:
        self._free, self._prepare = free, prepare

    def begin(self, connection: sqlite3.Connection) -> sqlite3.Cursor:
        """Begin a transaction; call it with the store's lock held."""
        deadline: float | None = None
        while True:
            self._prepare()  # each time: another thread may have written in between
            try:
                return connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                deadline = deadline or time.monotonic() + _patience()
                if time.monotonic() > deadline:
                    raise
            self._free.wait(PAUSE_SECONDS)


def _patience() -> float:
    """Return how many seconds the caller may be held up."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return connections.BUSY_SECONDS
    return LOOP_SECONDS


class OpenFile:
    """The file that a connection has open, and whether its path still leads to it.

    SQLite goes on writing to a file that was deleted or replaced; what it writes is gone when the last process closes
    it. Asking costs 2 microseconds a transaction.
    """

    __slots__ = ("_identity", "_name", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = str(path)  # asked for with every transaction, and a Path costs twice as much
        self._identity = self._look()

    def _look(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._name)  # noqa: PTH116 - a text, see above
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def is_in_place(self) -> bool:
        """Return whether the path still leads to this file."""
        return self._look() == self._identity

    def check_in_place(self) -> None:
        """Raise if the path leads elsewhere by now."""
        if not self.is_in_place():
            raise self.gone()

    def gone(self) -> StoreError:
        """Return the error for a file that is no longer in its place."""
        return StoreError(
            f"{self.path} was deleted or replaced while it was open; nothing more is written. Put the file back, or "
            "open the path anew to go on with another file"
        )
