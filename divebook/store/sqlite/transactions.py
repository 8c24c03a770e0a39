"""One transaction: all of it or nothing, and only into the file that others see."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from pathlib import Path
from types import TracebackType

from divebook.errors import StoreError
from divebook.store.durability import Durability
from divebook.store.no_texts import no_text
from divebook.store.sqlite import connections
from divebook.store.sqlite.faults import translate
from divebook.store.sqlite.schema import check_format

LOOP_SECONDS = 0.05
"""How long an event loop waits for another process: it comes again later, and others have their turn meanwhile."""
PAUSE_SECONDS = 0.005


class Transaction:
    """``BEGIN IMMEDIATE`` ... ``COMMIT``, undone by any exception, KeyboardInterrupt included."""

    __slots__ = ("_file", "_turn", "_wanted")

    def __init__(self, turn: WriteTurn, file: OpenFile, wanted: Durability) -> None:
        self._turn, self._file, self._wanted = turn, file, wanted

    def __enter__(self) -> sqlite3.Cursor:
        try:
            cursor = self._turn.begin(self._wanted)
        except sqlite3.Error as error:
            self._file.check_in_place()
            raise translate(error, str(self._file.path)) from error
        if not self._file.is_in_place():
            cursor.execute("ROLLBACK")
            raise self._file.gone()
        try:
            check_format(cursor, str(self._file.path))  # 3 microseconds a transaction
        except BaseException:
            cursor.execute("ROLLBACK")
            raise
        return cursor

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        turn = self._turn
        try:
            if error is None:
                turn.cursor.execute("COMMIT")
        except sqlite3.Error as failure:
            self._file.check_in_place()
            raise translate(failure, str(self._file.path)) from failure
        finally:
            if turn.connection.in_transaction:
                turn.connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise translate(error, str(self._file.path)) from error
        if isinstance(error, UnicodeEncodeError):
            raise no_text(error) from error


class WriteTurn:
    """Begins the transactions of the writing connection, once no other process writes.

    The store's lock is free meanwhile: SQLite's own waiting would keep it, and with it the engine's loop, for as long
    as another thread waits for another process
    (test_a_thread_that_waits_for_the_file_does_not_hold_up_the_loop).

    Parameters
    ----------
    durability
        What the connection is set to.
    """

    __slots__ = ("_free", "_present", "connection", "cursor")

    def __init__(self, connection: sqlite3.Connection, free: threading.Condition, durability: Durability) -> None:
        self.connection, self._free, self._present = connection, free, durability
        self.cursor = connection.cursor()
        """That of all transactions: to make one takes as long as the store's part of some statements."""

    def begin(self, wanted: Durability) -> sqlite3.Cursor:
        """Begin a transaction of that durability; call it with the store's lock held."""
        if self.connection.in_transaction:  # a KeyboardInterrupt came between BEGIN and the block
            self.connection.execute("ROLLBACK")
        deadline: float | None = None
        while True:
            if wanted != self._present:  # each time: another thread may have written in between
                connections.set_durability(self.connection, wanted)
                self._present = wanted
            try:
                return self.cursor.execute("BEGIN IMMEDIATE")
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

    __slots__ = ("_device", "_inode", "_name", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = str(path)  # asked for with every transaction, and a Path costs twice as much
        found = path.stat()
        self._device, self._inode = found.st_dev, found.st_ino

    def is_in_place(self) -> bool:
        """Return whether the path still leads to this file."""
        try:
            found = os.stat(self._name)  # noqa: PTH116 - a text, see above
        except FileNotFoundError:
            return False
        return found.st_ino == self._inode and found.st_dev == self._device

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
