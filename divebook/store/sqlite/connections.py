"""Opening a store file: where it may be, with which settings, for writing or for reading only."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from divebook.errors import CorruptStoreError, ExecutionNotFoundError, ReadOnlyStoreError, StoreBusyError, StoreError
from divebook.store.append import Durability
from divebook.store.base import StoredBlob
from divebook.store.codec import Sealing, no_text
from divebook.store.encoding import FILE, FOLDER, Blobs, Fetch, Packed, pack_blob, unpack_blob
from divebook.store.maintenance import close_when_dropped

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
    """Let SQLite itself wait for nothing from now on: `divebook.store.sqlite.store.WriteTurn` does."""
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
        self.connection = connection
        self.reading = threading.RLock()


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


# What SQLite's error codes mean to a user of the store, and what to do about them.


_CORRUPT = (
    "{0} is damaged: {1}. Keep a copy of the file, then save what is readable with "
    "`sqlite3 FILE .recover | sqlite3 NEW`, or go on with another store"
)
Types: TypeAlias = Sequence[type | tuple[type, ...]]

_FAULTS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (StoreBusyError, "{0} is locked: another process has been writing for too long. Try again"),
    sqlite3.SQLITE_CANTOPEN: (StoreError, "{0} cannot be opened: {1}. Check that the path is a file you may use"),
    sqlite3.SQLITE_CONSTRAINT: (CorruptStoreError, _CORRUPT),
    sqlite3.SQLITE_CORRUPT: (CorruptStoreError, _CORRUPT),
    sqlite3.SQLITE_FULL: (StoreBusyError, "{0} cannot grow: {1}. Nothing was written; free some space and resume"),
    sqlite3.SQLITE_IOERR: (StoreBusyError, "{0} cannot be read or written: {1}. Nothing was written; check the disk"),
    sqlite3.SQLITE_NOTADB: (CorruptStoreError, "{0} is not a divebook store: {1}. Move it away or choose another path"),
    sqlite3.SQLITE_PERM: (ReadOnlyStoreError, "{0} may not be used: {1}. Check the permissions of the file"),
    sqlite3.SQLITE_READONLY: (ReadOnlyStoreError, "{0}: {1}. Make the file and its folder writable, or choose another"),
}


def translate(error: sqlite3.Error, location: str) -> StoreError:
    """Return the store's error for one of SQLite's."""
    code = getattr(error, "sqlite_errorcode", None)  # absent if the sqlite3 module itself raised
    if code is not None:
        kind, text = _FAULTS.get(code & 0xFF, (StoreError, "{0}: {1}"))
        return kind(text.format(location, error))
    if "UTF-8" in str(error):
        return CorruptStoreError(_CORRUPT.format(location, error))
    return StoreError(f"{location}: {error}")


@contextmanager
def translated(location: str) -> Iterator[None]:
    """Turn what SQLite, the disk and the decoders raise inside the block into the store's errors.

    The only border: whatever is read or written passes it (tests/store/test_damage.py).
    """
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, location) from error
    except OSError as error:
        raise StoreError(f"{location} cannot be used: {error}. Check the path and its permissions") from error
    except UnicodeEncodeError as error:
        raise no_text(error) from error
    # What decoding raises for bytes, texts, numbers and dates that a store never writes.
    except (ValueError, TypeError, ArithmeticError) as error:
        raise CorruptStoreError(_CORRUPT.format(location, f"{type(error).__name__}: {error}")) from error


def typed(kind: str, row: tuple[Any, ...], types: Types) -> tuple[Any, ...]:
    """Return a row whose columns are of the types that were written; SQLite itself keeps any value in any column.

    Rows with a checksum need no such look: another type gives another checksum.

    Raises
    ------
    CorruptStoreError
        One is not.
    """
    for column, wanted in zip(row, types, strict=True):
        if not isinstance(column, wanted):
            raise CorruptStoreError(
                f"a {kind} is damaged: {column!r} stands where only another type of value is written. "
                "Run `divebook check`, and restore a backup"
            )
    return row


# Whether a file lies on a network file system, where SQLite's write-ahead log must not be used.
#
# The log's index is memory that all processes map; over a network each machine has a copy of its own, and the database
# is damaged.


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


def network_type(path: Path) -> str | None:
    """Return the kind of network file system that a path is on; None if it is local, or if that is not known."""
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:  # not Linux
        return None
    kind = type_of_mount(path.parent.resolve(), mounts)
    return kind if kind in _NETWORK else None


def type_of_mount(folder: Path, mounts: str) -> str | None:
    """Return the type of the file system that a folder is on, by the text of ``/proc/self/mountinfo``."""
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        place, _, source = line.partition(" - ")
        fields = place.split()
        if len(fields) < 5 or not source:
            continue
        point = Path(_unescape(fields[4]))
        # Of two mounts in one place, the later one hides the earlier.
        if folder.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = (len(point.parts), source.split()[0])
    return best[1] if best else None


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


# How surely what is written is on the disk, and when it gets there.
#
# A transaction that is to survive a power failure waits for the disk at its end. Where more is about to be written that
# wait can come apart from it: the transaction is then written as a relaxed one, and the write-ahead log is brought to
# the disk afterwards, by another thread, for all that was written meanwhile. Nothing that comes after a transaction in
# the log is ever there without it, whoever wrote it (tests/store/test_syncing.py).


_bring: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # as SQLite does


class Syncing:
    """Whether transactions wait for the disk just now, and the sync of those that did not."""

    def __init__(self, path: Path) -> None:
        self.comes_apart = False
        """Whether they do not."""
        self._path = path.with_name(f"{path.name}-wal")
        self._file: int | None = None
        self._is_closed = False
        self._syncing = threading.Lock()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Let transactions in the block not wait for the disk."""
        self.comes_apart = True
        try:
            yield
        finally:
            self.comes_apart = False

    def sync(self) -> None:
        """Bring to the disk what was written before; StoreError if the disk refuses it."""
        with self._syncing:
            if self._is_closed:  # SQLite has brought all of it to the disk
                return
            try:
                if self._file is None:
                    self._file = self._opened()
                _bring(self._file)
            except OSError as error:
                raise StoreError(
                    f"what was written to {self._path} could not be brought to the disk: {error.strerror}; look at the "
                    "disk, then resume the executions that were running"
                ) from error

    def _opened(self) -> int:
        """Open the write-ahead log, which stays the same file as long as the store is open, and keep its name as well.

        Closing it releases no lock of SQLite: those are on the other two files.
        """
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return os.open(self._path, os.O_RDWR)

    def close(self) -> None:
        """Release the file, once the connection is closed."""
        with self._syncing:
            self._is_closed = True
            if self._file is not None:
                os.close(self._file)
                self._file = None


# Large values as rows: each content once, and beside it which executions refer to it.


_FIND = "SELECT number FROM blobs WHERE digest = ?"
_INSERT = "INSERT INTO blobs (digest, compressed, data) VALUES (?, ?, ?) RETURNING number"
_USE = "INSERT OR IGNORE INTO blob_uses (key, blob) VALUES (?, ?)"
_INHERITED = """
SELECT number, digest FROM blob_uses JOIN blobs ON number = blob
WHERE key = ? AND blob NOT IN (SELECT blob FROM blob_uses WHERE key = ?)
"""
_LIST = """
SELECT digest, length(data), number IN (
  SELECT blob FROM blob_uses WHERE key NOT IN (SELECT key FROM executions WHERE id IN (SELECT value FROM json_each(?)))
) FROM blobs
"""
_DROP = "DELETE FROM blobs WHERE number NOT IN (SELECT blob FROM blob_uses)"


def insert(cursor: sqlite3.Cursor, key: int, blobs: Blobs, packed: Mapping[bytes, Packed]) -> int:
    """Write what is not there yet, note that an execution refers to it, and return by how much that one has grown."""
    grown = 0
    for digest, content in blobs.items():
        found = cursor.execute(_FIND, (digest,)).fetchone()
        (number,) = found or _insert(cursor, digest, packed.get(digest) or pack_blob(content))
        if cursor.execute(_USE, (key, number)).rowcount:
            grown += len(content)
    return grown


def inherit(cursor: sqlite3.Cursor, source: int, heir: int, used: Collection[bytes] | None) -> int:
    """Note that an execution refers to what another one does, of that only what is `used`, None for all.

    Return by how much it has grown.
    """
    grown = 0
    for number, digest in cursor.execute(_INHERITED, (source, heir)).fetchall():
        if used is None or digest in used:
            grown += len(load_blob(cursor, digest) or b"")
            cursor.execute(_USE, (heir, number))
    return grown


def _insert(cursor: sqlite3.Cursor, digest: bytes, packed: Packed) -> tuple[int]:
    row: tuple[int] = cursor.execute(_INSERT, (digest, packed.compressed, packed.data)).fetchone()
    return row


def load_blob(connection: sqlite3.Connection | sqlite3.Cursor, digest: bytes) -> bytes | None:
    """Return a content as it was written; None if it is missing, CorruptStoreError if it cannot be decompressed."""
    row = connection.execute("SELECT compressed, data FROM blobs WHERE digest = ?", (digest,)).fetchone()
    return None if row is None else unpack_blob(Packed(bool(row[0]), row[1]))


def fetcher(connection: sqlite3.Connection | sqlite3.Cursor, sealing: Sealing) -> Fetch:
    """Return a function that loads and verifies each content once."""
    loaded: dict[bytes, bytes | None] = {}

    def fetch(digest: bytes) -> bytes | None:
        if digest not in loaded:
            loaded[digest] = sealing.open_content(digest, load_blob(connection, digest))
        return loaded[digest]

    return fetch


def list_blobs(connection: sqlite3.Connection, without: Collection[str]) -> list[StoredBlob]:
    """Return the large values, and whether executions other than `without` refer to them."""
    rows = connection.execute(_LIST, (json.dumps(list(without)),)).fetchall()
    checked = (typed("large value", row, (bytes, int, int)) for row in rows)
    return [StoredBlob(digest, stored, bool(used)) for digest, stored, used in checked]


def drop_unused(cursor: sqlite3.Cursor) -> int:
    """Delete what no execution refers to; return how many."""
    return cursor.execute(_DROP).rowcount
