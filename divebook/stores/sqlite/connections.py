"""Connections to a store file: opening, snapshot reads, and translation of SQLite's errors.

One connection writes; `divebook.stores.sqlite.store` has its transactions. Each thread that reads has a
connection of its own (`Readers`).
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

from divebook.documents.private_files import FILE, FOLDER
from divebook.errors import CorruptStoreError, ExecutionNotFoundError, ReadOnlyStoreError, StoreBusyError, StoreError
from divebook.events.codec import encode
from divebook.stores.append import RELAXED, Durability
from divebook.stores.embedded import close_when_dropped
from divebook.stores.encoding import unencodable_error
from divebook.stores.sql import Dialect
from divebook.text.user_warning import warn_user

T = TypeVar("T")
BUSY_SECONDS = 5.0
_SYNCHRONOUS: dict[Durability, str] = {"full": "FULL", "relaxed": "NORMAL"}
_CHECKPOINT_PAGES = 4000  # 16 MB of WAL; a fifth more events per second than with SQLite's 1000
_CORRUPT = (
    "{0} is damaged: {1}. Keep a copy of the file, then save what is readable with `sqlite3 FILE .recover | sqlite3 "
    "NEW`, or continue with another store"
)
_FAULTS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (
        StoreBusyError,
        "{0} is locked: another process has been writing to it for too long. Try again",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        StoreError,
        "{0} cannot be opened: {1}. Check that the path is a file and that you have permission to use it",
    ),
    sqlite3.SQLITE_CONSTRAINT: (CorruptStoreError, _CORRUPT),
    sqlite3.SQLITE_CORRUPT: (CorruptStoreError, _CORRUPT),
    sqlite3.SQLITE_FULL: (StoreBusyError, "{0} cannot grow: {1}. Nothing was written; free some space and resume"),
    sqlite3.SQLITE_IOERR: (StoreBusyError, "{0} cannot be read or written: {1}. Nothing was written; check the disk"),
    sqlite3.SQLITE_NOTADB: (CorruptStoreError, "{0} is not a divebook store: {1}. Move it away or choose another path"),
    sqlite3.SQLITE_PERM: (ReadOnlyStoreError, "{0} cannot be accessed: {1}. Check the permissions of the file"),
    sqlite3.SQLITE_READONLY: (
        ReadOnlyStoreError,
        "{0}: {1}. Make the file and its folder writable, or choose another path",
    ),
}
_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "drvfs",
        "fuse.ceph",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.grpcfuse",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "fuse.vmhgfs-fuse",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "prl_fs",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "vmhgfs",
        "wekafs",
    }
)


# --- opening ---


def why_read_only(path: Path) -> str | None:
    """Return the reason why a store file cannot be written to, or None if it can. If the file is in a folder
    ``.divebook`` that is missing, create the folder.

    Raises
    ------
    StoreError
        The path cannot be used for a store.
    """
    folder = path.parent
    if path.is_dir():
        raise StoreError(f"{path} is a folder; name a file, for example {path / 'executions.db'}")
    # Only the default folder is created (test_no_other_folder_is_made).
    if folder.name == ".divebook" and folder.parent.is_dir():
        _create_folder(folder)
    if not folder.is_dir():
        raise StoreError(f"the folder {folder} does not exist; create it, or choose another path for the store")
    if path.exists() and not os.access(path, os.W_OK):
        return f"the file {path} is not writable"
    if os.access(folder, os.W_OK):
        return None
    if not path.exists():
        raise ReadOnlyStoreError(f"{path} cannot be created: the folder {folder} is not writable")
    return f"the folder {folder} is not writable, and SQLite keeps its journal there"


def open_writer(path: Path, durability: Durability, network: str | None = None) -> sqlite3.Connection:
    """Open or create a store file for writing.

    `network` is the type of the network file system that the file is on; None for a local disk.
    """
    # SQLite creates the files beside it with the same permissions.
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


def open_reader(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Open a store file for reading. If the file is `read_only`, and SQLite cannot create the files that it needs
    beside it, open it as a file that does not change.
    """
    if not read_only:
        return _connect(path, "mode=ro")
    connection = _connect(path, "mode=ro")
    try:
        # The first read of a file with a write-ahead log needs the log's index in the same folder.
        connection.execute("PRAGMA schema_version")
    except sqlite3.OperationalError:
        connection.close()
        return _open_immutable(path)
    except BaseException:
        connection.close()
        raise
    return connection


def set_durability(connection: sqlite3.Connection, durability: Durability) -> None:
    """Set whether the next transactions of a connection wait for the disk. Do not use this on a network file system."""
    connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")


def disable_busy_timeout(connection: sqlite3.Connection) -> None:
    """Make SQLite raise an error at once if another process writes, instead of waiting. The store waits itself
    (`WriteLock`).
    """
    connection.execute("PRAGMA busy_timeout = 0")


def _create_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=FOLDER, exist_ok=True)
    except OSError as error:
        raise StoreError(f"the folder {folder} cannot be created: {error.strerror}") from error


def _set_up_remote(connection: sqlite3.Connection, path: Path, network: str) -> None:
    # Without a write-ahead log, anything less than FULL may damage the file when the power fails.
    _patiently(lambda: connection.execute("PRAGMA journal_mode = TRUNCATE"))
    connection.execute("PRAGMA synchronous = FULL")
    warn_user(
        f"{path} is on a network file system ({network}): events are written with a rollback journal, which is safe "
        "there but slower, and only as reliable as that file system's locks. Keep the store on a local disk if you can",
        RuntimeWarning,
    )


def _open_immutable(path: Path) -> sqlite3.Connection:
    # If not even the WAL's index can be created, SQLite reads a file only in the mode `immutable`. It then ignores the
    # WAL, which must therefore be empty.
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
    # SQLite does not wait for its lock when it changes the journal mode, so two processes that create a file at the
    # same time would fail (test_processes_that_create_one_file_at_once_all_succeed).
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


# --- connections that read ---


class Readers:
    """Reading connections of a store, one for each thread. A connection is closed when its thread ends or the store is
    closed.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._local = threading.local()
        self._all: weakref.WeakSet[_Reader] = weakref.WeakSet()
        self._lock = threading.Lock()

    def of_this_thread(self) -> _Reader:
        """Return the reading connection of the calling thread; open one if the thread has none."""
        reader: _Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = _Reader(self._connect())
            self._local.reader = reader
            # The end of the thread drops its local data, and with them the reader
            # (test_the_connection_of_a_thread_is_closed_with_it).
            close_when_dropped(reader, reader.connection)
            with self._lock:
                self._all.add(reader)
        return reader

    def drop(self, reader: _Reader) -> None:
        """Close the calling thread's connection. The next read opens another one."""
        self._local.reader = None
        reader.connection.close()

    def close(self) -> None:
        """Close the connections of all threads, each after its present read. Skip a connection whose read takes too
        long.
        """
        with self._lock:
            for reader in self._all:
                # Closing a connection in use crashes the process, so a long read leaves its connection open.
                if reader.lock.acquire(timeout=BUSY_SECONDS):
                    try:
                        reader.connection.close()
                    finally:
                        reader.lock.release()


class _Reader:
    """Reading connection of one thread. Its lock is held during each read, so that `Readers.close` can wait for the end
    of the read.

    SQLite crashes the whole process if a connection is closed while another thread uses it.
    """

    __slots__ = ("__weakref__", "connection", "lock")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.lock = threading.RLock()


class Snapshot:
    """One read of a store file: all statements in the `with` block see the file as of one moment.

    An error in the block closes the connection: a statement that was not read to its end would keep it at this moment
    for as long as anything refers to the error's traceback, as a notebook does. A block inside another one of the same
    thread ends the snapshot of the outer one. Errors are raised as errors of divebook (`translated`).

    A class and not a generator function, because every answer to a question makes several reads, and a generator costs
    each of them some microseconds more.
    """

    __slots__ = ("_location", "_reader", "_readers")

    def __init__(self, location: str, readers: Readers) -> None:
        self._location = location
        self._readers = readers

    def __enter__(self) -> sqlite3.Connection:
        try:
            reader = self._reader = self._readers.of_this_thread()
        except Exception as error:
            raise_translated(error, self._location)
            raise
        reader.lock.acquire()
        try:
            _begin_read(reader.connection)
        except BaseException as error:
            self._end(error)
            raise
        return reader.connection

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        """End the read, and raise the error of divebook for an error of the block."""
        reader = self._reader
        try:
            try:
                _end_read(reader.connection)
            except sqlite3.Error as failure:
                error = error or failure
            except BaseException:  # a Ctrl-C before the read has ended
                self._readers.drop(reader)
                raise
            # An unknown execution is a result, and not a fault of the connection.
            if error is not None and not isinstance(error, ExecutionNotFoundError):
                self._readers.drop(reader)
        finally:
            reader.lock.release()
        if error is not None:
            raise_translated(error, self._location)


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Make all reads of a connection in the `with` block see the file as of one moment."""
    _begin_read(connection)
    try:
        yield
    finally:
        _end_read(connection)


def _begin_read(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:  # a KeyboardInterrupt came between BEGIN and the block
        connection.execute("ROLLBACK")
    connection.execute("BEGIN")


def _end_read(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:  # an error may have ended it already; COMMIT would raise that once more
        connection.execute("ROLLBACK")


DIALECT = Dialect(
    prefix="",
    parameter="?",
    known_format="true",  # `Transaction` checks the format
    cross_join="CROSS JOIN",
    in_list="IN (SELECT value FROM json_each(%s))",
    binary="BINARY",
)


class SqliteSession:
    """Reads and write transactions of a store file; a `divebook.stores.sql.SqlSession`.

    `transaction` opens a write transaction with a durability, or with that of the store for None.
    """

    def __init__(
        self,
        location: str,
        readers: Readers,
        transaction: Callable[[Durability | None], AbstractContextManager[sqlite3.Cursor]],
    ) -> None:
        self._location = location
        self._readers = readers
        self.transaction = transaction

    def snapshot(self) -> Snapshot:
        """Return the context manager of one read."""
        return Snapshot(self._location, self._readers)

    def read(self, statement: str, values: Sequence[Any], decode: Callable[..., T]) -> list[T]:
        """Execute a statement that reads. Return for each row what `decode` returns for its columns."""
        with Snapshot(self._location, self._readers) as connection:
            rows = connection.execute(DIALECT.text(statement), _parameters(values)).fetchall()
            return [decode(*row) for row in rows]

    def write(self, statement: str, values: Sequence[Any], *, is_relaxed: bool = False) -> list[tuple[Any, ...]]:
        """Execute a statement that writes in a transaction of its own; return its rows."""
        with self.transaction(RELAXED if is_relaxed else None) as cursor:
            return cursor.execute(DIALECT.text(statement), _parameters(values)).fetchall()


def _parameters(values: Sequence[Any]) -> list[Any]:
    """Return the parameters of a statement, in which a list of strings is a JSON array (`Dialect.in_list`)."""
    return [encode(value).decode() if isinstance(value, list) else value for value in values]


# --- errors ---


def translate(error: sqlite3.Error, location: str) -> StoreError:
    """Return the error of divebook (a `StoreError`) that corresponds to an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", None)  # absent if the sqlite3 module itself raised
    if code is not None:
        kind, text = _FAULTS.get(code & 0xFF, (StoreError, "{0}: {1}"))
        return kind(text.format(location, error))
    # sqlite3 itself raises this error for a text that is not UTF-8, which only damage can cause.
    if "UTF-8" in str(error):
        return CorruptStoreError(_CORRUPT.format(location, error))
    return StoreError(f"{location}: {error}")


@contextmanager
def translated(location: str) -> Iterator[None]:
    """Convert each error of SQLite, of the disk, or of the decoding of data inside the `with` block to an error of
    divebook, and raise that one.

    All reads and writes of a store run inside of such a block (tests/store/test_damage.py).
    """
    try:
        yield
    except Exception as error:
        raise_translated(error, location)
        raise


def raise_translated(error: BaseException, location: str) -> None:
    """Raise the error of divebook for an error of SQLite, of the disk, or of the decoding of data. Return for any other
    error.
    """
    if isinstance(error, sqlite3.Error):
        raise translate(error, location) from error
    if isinstance(error, OSError):
        raise StoreError(f"{location} cannot be used: {error}. Check the path and its permissions") from error
    if isinstance(error, UnicodeEncodeError):
        raise unencodable_error(error) from error
    # Decoders raise these for bytes, texts, numbers and dates that a store never writes.
    if isinstance(error, ValueError | TypeError | ArithmeticError):
        raise CorruptStoreError(_CORRUPT.format(location, f"{type(error).__name__}: {error}")) from error


# --- network file systems ---
# SQLite's write-ahead log must not be used there. Its index is memory that all processes map; over a network each
# machine has a copy of its own, and the database is damaged.


def network_type(path: Path) -> str | None:
    """Return the type of the network file system that a path is on; None for a local or unknown file system."""
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:  # not Linux
        return None
    kind = type_of_mount(path.parent.resolve(), mounts)
    return kind if kind in _NETWORK else None


def type_of_mount(folder: Path, mounts: str) -> str | None:
    """Return the type of the file system that a folder is on, from the content of ``/proc/self/mountinfo``."""
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        # 36 35 98:0 / /home/ann rw,noatime shared:1 - nfs4 server:/ann rw -> mount point /home/ann, type nfs4
        mount, _, source = line.partition(" - ")
        fields = mount.split()
        if len(fields) < 5 or not source:
            continue
        point = Path(_unescape(fields[4]))
        # If two mounts have the same mount point, the later one hides the earlier.
        if folder.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = (len(point.parts), source.split()[0])
    return best[1] if best else None


def _unescape(text: str) -> str:
    # A space in the path is written as ``\040``.
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
