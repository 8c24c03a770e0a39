"""Opening a store file: where it may be, with which settings, for writing or for reading only."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from divebook.errors import ExecutionNotFoundError, ReadOnlyStoreError, StoreError
from divebook.store.dropping import close_when_dropped
from divebook.store.durability import Durability
from divebook.store.private import FILE, FOLDER

BUSY_SECONDS = 5.0
_SYNCHRONOUS: dict[Durability, str] = {"full": "FULL", "relaxed": "NORMAL"}
_CHECKPOINT_PAGES = 4000  # 16 MB of WAL; a fifth more events per second than with SQLite's 1000


def why_read_only(path: Path) -> str | None:
    """Return why a store file cannot be written to, or None; make the folder ``.divebook`` if that is all it lacks.

    Raises
    ------
    StoreError
        There can be no store at that path.
    """
    folder = path.parent
    if path.is_dir():
        raise StoreError(f"{path} is a folder; name a file, for example {path / 'executions.db'}")
    if folder.name == ".divebook" and folder.parent.is_dir():
        _make(folder)
    if not folder.is_dir():
        raise StoreError(f"the folder {folder} does not exist; create it, or choose another path for the store")
    if path.exists() and not os.access(path, os.W_OK):
        return f"the file {path} is not writable"
    if os.access(folder, os.W_OK):
        return None
    if not path.exists():
        raise ReadOnlyStoreError(f"{path} cannot be created: the folder {folder} is not writable")
    return f"the folder {folder} is not writable, and SQLite keeps its journal there"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=FOLDER, exist_ok=True)
    except OSError as error:
        raise StoreError(f"the folder {folder} cannot be created: {error.strerror}") from error


def open_writer(path: Path, durability: Durability, network: str | None = None) -> sqlite3.Connection:
    """Open, or create, a file for writing; `network` names the network file system that it is on."""
    # SQLite gives the files beside it the same permissions.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, FILE))
    connection = _connect(path, "mode=rwc")
    try:
        if network is not None:
            _set_up_remote(connection, path, network)
            return connection
        _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL"))
        set_durability(connection, durability)
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    except BaseException:
        connection.close()
        raise
    return connection


def set_durability(connection: sqlite3.Connection, durability: Durability) -> None:
    """Have the connection's transactions from now on written so; on a network file system they are always full."""
    connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")


def wait_in_turns(connection: sqlite3.Connection) -> None:
    """Let SQLite itself wait for nothing from now on: `divebook.store.sqlite.transactions.WriteTurn` does."""
    connection.execute("PRAGMA busy_timeout = 0")


def _set_up_remote(connection: sqlite3.Connection, path: Path, network: str) -> None:
    # Without a write-ahead log, anything less than FULL may damage the file when the power fails.
    _patiently(lambda: connection.execute("PRAGMA journal_mode = TRUNCATE"))
    connection.execute("PRAGMA synchronous = FULL")
    warnings.warn(
        f"{path} is on a network file system ({network}): events are written with a rollback journal, which is safe "
        "there but slower, and only as reliable as that file system's locks. Keep the store on a local disk if you can",
        RuntimeWarning,
        stacklevel=5,  # the code that made the store
    )


def open_reader(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Open a file for reading; `read_only` if nothing at all may be written beside it either."""
    if not read_only:
        return _connect(path, "mode=ro")
    connection = _connect(path, "mode=ro")
    try:
        connection.execute("PRAGMA schema_version")
    except sqlite3.OperationalError:
        connection.close()
        return _open_immutable(path)
    except BaseException:
        connection.close()
        raise
    return connection


def _open_immutable(path: Path) -> sqlite3.Connection:
    # Where not even the WAL's index can be made, SQLite reads a file only if told that no process changes it; it then
    # ignores the WAL, so there must be nothing in it.
    journal = path.with_name(f"{path.name}-wal")
    if journal.exists() and journal.stat().st_size:
        raise ReadOnlyStoreError(
            f"the latest events of {path} are in {journal.name}, which cannot be read in a read-only folder; "
            "copy both files to a writable folder and open them there"
        )
    return _connect(path, "mode=ro&immutable=1")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # One lock guards the writer, each reader belongs to one thread; close() alone comes from elsewhere.
    return sqlite3.connect(
        f"file:{quote(str(path))}?{mode}", uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


def _patiently(action: Callable[[], object]) -> None:
    # SQLite does not wait for its lock while it changes the journal mode, so two processes that create a file at once
    # would fail; test_processes_that_create_one_file_at_once_all_succeed.
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            action()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


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


class _Held:
    """The connection of one thread, and the lock that the thread holds while it reads: `Readers.close` waits for it.

    SQLite ends the whole process if a connection is closed while another thread uses it.
    """

    __slots__ = ("__weakref__", "connection", "reading")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection, self.reading = connection, threading.RLock()


class Readers:
    """One reading connection per thread, closed when the thread ends or the store is closed."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._local = threading.local()
        self._held: weakref.WeakSet[_Held] = weakref.WeakSet()
        self._lock = threading.Lock()

    @contextmanager
    def at_one_moment(self) -> Iterator[sqlite3.Connection]:
        """Let everything that is read on this thread's connection in the block be as of one moment.

        The connection ends with an error in the block: a statement that was not read to its end keeps it at this
        moment, for as long as anything holds the error's traceback, as a notebook does. A block in another one of the
        same thread ends the moment of that one.
        """
        held = self.held()
        with held.reading:
            try:
                with at_one_moment(held.connection) as connection:
                    yield connection
            except ExecutionNotFoundError:  # told of, and no damage
                raise
            except BaseException:
                self._local.held = None
                held.connection.close()
                raise

    def held(self) -> _Held:
        """Return the connection of this thread."""
        held: _Held | None = getattr(self._local, "held", None)
        if held is None:
            held = self._local.held = _Held(self._connect())
            close_when_dropped(held, held.connection)
            with self._lock:
                self._held.add(held)
        return held

    def close(self) -> None:
        """Close the connections of all threads, each after what it reads; one that reads on is left to its thread."""
        with self._lock:
            for held in self._held:
                if held.reading.acquire(timeout=BUSY_SECONDS):
                    try:
                        held.connection.close()
                    finally:
                        held.reading.release()
