"""The store on an SQLite file: one writing connection with a lock, one reading connection per thread."""

from __future__ import annotations

import asyncio
import itertools
import os
import sqlite3
import stat
import tempfile
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import NoneType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from divebook.documents.policy import protect_store
from divebook.engine.inbox import Message
from divebook.errors import CorruptStoreError, ForkedStoreError, ReadOnlyStoreError, StoreError
from divebook.events.catalog import Payload
from divebook.events.event import Record
from divebook.store.append import (
    FULL,
    RELAXED,
    Batch,
    Durability,
    ExecutionRecord,
    Line,
    PreparedBatch,
    RecordFilter,
    Refusal,
    record_of,
    sound,
)
from divebook.store.base import (
    MAX_CANDIDATES,
    EventStore,
    StoredBlob,
    StoredLog,
    StoredRecord,
    StoredSummary,
    check_reached,
)
from divebook.store.codec import no_text
from divebook.store.encoding import unpack_id
from divebook.store.leases import THIS_PROCESS, Claim, Lease, Moment, Owner, QueuedExecution, WorkerRecord
from divebook.store.maintenance import close_when_dropped, weakly
from divebook.store.sqlite import connections, tables
from divebook.store.sqlite.connections import (
    Readers,
    Syncing,
    network_type,
    open_reader,
    open_writer,
    translate,
    translated,
    typed,
    wait_in_turns,
    why_read_only,
)
from divebook.store.sqlite.log import OpenLogs, load_record, reach_of, splice
from divebook.store.sqlite.rows import LINE_TYPES, MOST, RECORD, Log, find, load_decoded, load_facts
from divebook.store.sqlite.schema import EventTypes, check_current, check_format, check_version, migrate
from divebook.store.sqlite.tables import TABLES
from divebook.text.redaction import logger

if TYPE_CHECKING:
    from divebook.store.pages import EventPage


# One transaction: all of it or nothing, and only into the file that others see.


LOOP_SECONDS = 0.05
"""How long an event loop waits for another process: it comes again later, and others have their turn meanwhile."""
PAUSE_SECONDS = 0.005


class Transaction:
    """``BEGIN IMMEDIATE`` ... ``COMMIT``, undone by any exception, KeyboardInterrupt included."""

    __slots__ = ("_file", "_turn", "_wanted")

    def __init__(self, turn: WriteTurn, file: OpenFile, wanted: Durability) -> None:
        self._turn = turn
        self._file = file
        self._wanted = wanted

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
        self.connection = connection
        self._free = free
        self._present = durability
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
        self._device = found.st_dev
        self._inode = found.st_ino

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


# What is asked of all executions of a store file: which there are, what is kept beside their rows, and queues.


class SqliteListing(EventStore):
    """The part of a store on a file that lists executions."""

    _types: EventTypes
    _warned: set[str]
    _readers: Readers
    _logs: OpenLogs

    @abstractmethod
    def _transaction(self, durability: Durability | None = None) -> Transaction: ...

    @abstractmethod
    def _find(self, connection: Any, execution_id: str) -> Log: ...

    def _records(self, wanted: RecordFilter, limit: int, offset: int) -> list[ExecutionRecord]:
        return self._listed(*tables.fitting(wanted, limit, offset))

    def _unended(self) -> list[ExecutionRecord]:
        return self._listed(tables.UNENDED, {})

    def _listed(self, statement: str, asked: Mapping[str, Any]) -> list[ExecutionRecord]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            rows = connection.execute(statement, asked).fetchall()
            return sound(rows, lambda row: load_record(connection, self._types, row), self._warned)

    def _orphans(self, moment: Moment) -> list[ExecutionRecord]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            rows = connection.execute(tables.ORPHANS, {"now": moment.wall}).fetchall()

            def load(row: tuple[Any, ...]) -> ExecutionRecord | None:
                is_left = tables.is_left(row[0], row[tables.WIDTH :], moment)
                return load_record(connection, self._types, row[: tables.WIDTH]) if is_left else None

            return sound(rows, load, self._warned)

    def _descendants(self, execution_id: str) -> int:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return int(connection.execute(tables.DESCENDANTS, {"parent": execution_id}).fetchone()[0])

    def _asking(self, question_id: str | None) -> list[tuple[str, str]]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return tables.load_open(connection, question_id)

    def _candidates(self, prefix: str) -> list[str]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            rows = connection.execute(tables.CANDIDATES, (prefix, prefix, MAX_CANDIDATES + 1)).fetchall()
        return [execution_id for (execution_id,) in rows]

    # --- queues -------------------------------------------------------------------------------------------------------

    def _claim(self, wanted: Claim, owner: Owner, moment: Moment, until: Moment) -> list[Lease]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            if not any(tables.to_do(connection, wanted, moment)):
                return []  # most look in vain, and need not wait for those who write
        with self._transaction(RELAXED) as cursor:
            found = list(itertools.islice(tables.to_do(cursor, wanted, moment), wanted.limit))
            self._logs.forget(found)  # their tokens are others
            return [tables.put_next(cursor, self._find(cursor, name), owner, until) for name in found]

    def _queued(self, *, withheld: bool) -> list[QueuedExecution]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return tables.load(connection, withheld=withheld)

    def _seen_to(self, schedule: str, moment: int) -> int:
        with translated(self.location), self._readers.at_one_moment() as connection:
            known = tables.seen_to(connection, schedule)
        if known is None:
            with self._transaction() as cursor:
                if (known := tables.seen_to(cursor, schedule)) is None:
                    tables.see_to(cursor, schedule, moment)
        return moment if known is None else known

    def _see_to(self, schedule: str, moment: int) -> None:
        with self._transaction() as cursor:
            tables.see_to(cursor, schedule, moment)

    def _withhold(self, execution_id: str) -> None:
        with self._transaction() as cursor:
            tables.withhold_one(cursor, execution_id)

    def _announce(self, worker: WorkerRecord, until: int, forgotten: int) -> None:
        with self._transaction(RELAXED) as cursor:
            tables.announce(cursor, worker, until, forgotten)

    def _retire(self, worker_id: str) -> None:
        with self._transaction(RELAXED) as cursor:
            tables.retire(cursor, worker_id)

    def _workers(self) -> list[WorkerRecord]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return tables.load_workers(connection)

    # --- beside the rows ----------------------------------------------------------------------------------------------

    def _put_summaries(self, kept: Mapping[str, StoredSummary]) -> None:
        with self._transaction(RELAXED) as cursor:
            tables.put_summary(cursor, kept)

    def _summaries(self, execution_ids: Sequence[str]) -> dict[str, StoredSummary]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return tables.load_summaries(connection, execution_ids)


# Reading a file for `check`: rows as they are, and what is wrong with the file as a whole.


_EVENTS = """
SELECT place & 4294967295, recorded_at, type, id, CAST(path AS BLOB), CAST(step AS BLOB),
  CAST(data AS BLOB), checksum FROM events
WHERE place BETWEEN ? AND ? ORDER BY place
"""
_TYPES = (int, int, int, (bytes, str), bytes, bytes, bytes, (int, NoneType))
_USED = "SELECT digest FROM blob_uses JOIN blobs ON number = blob WHERE key = ?"
_STRAY_EVENTS = "SELECT count(*) FROM events WHERE place >> 32 NOT IN (SELECT key FROM executions)"
_STRAY = "SELECT count(*) FROM {} WHERE key NOT IN (SELECT key FROM executions)"


def load_stored(connection: sqlite3.Connection, types: EventTypes, execution_id: str) -> StoredLog | None:
    """Return a log as it is, None if there is none; `connection` reads at one moment."""
    row = connection.execute(f"{RECORD} WHERE id = ?", (execution_id,)).fetchone()
    found = find(connection, execution_id)
    if row is None or found is None:
        return None
    rows, broken = _as_far_as_possible(connection, found.ranges(1, MOST))
    blobs = _used(connection, found.key)
    shared_blobs = frozenset[bytes]().union(*(_used(connection, part.key) for part in found.parts[:-1]))
    asked = tables.open_of(connection, found.key)
    fits = tables.fits(connection, found)
    records = [_record(row, types, connection) for row in rows]
    line = Line(*typed("row of an execution", row[:-2], LINE_TYPES))
    noted = blobs, asked, found.shared, shared_blobs
    return StoredLog(record_of(line), found.checksum, records, *noted, broken, row[-2] != line.seal(), fits)


def _used(connection: sqlite3.Connection, key: int) -> frozenset[bytes]:
    return frozenset(digest for (digest,) in connection.execute(_USED, (key,)).fetchall())


def _as_far_as_possible(
    connection: sqlite3.Connection, ranges: Sequence[tuple[int, int]]
) -> tuple[list[tuple[Any, ...]], str | None]:
    rows: list[tuple[Any, ...]] = []
    try:
        for places in ranges:
            rows.extend(typed("event", row, _TYPES) for row in connection.execute(_EVENTS, places))  # up to an error
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
    return raw.decode("utf-8", "replace")  # what is damaged shows in the checksum


def find_faults(connection: sqlite3.Connection) -> list[str]:
    """Return what SQLite finds wrong with its pages, and rows that belong to nothing."""
    faults = [f"the file's structure is damaged: {text}" for text in _damaged_pages(connection)]
    if faults:
        return faults
    (events,) = connection.execute(_STRAY_EVENTS).fetchone()
    if events:
        faults.append(f"{events} events belong to no execution")
    for table in TABLES:
        (count,) = connection.execute(_STRAY.format(table)).fetchone()
        if count:
            faults.append(f"{count} rows of table {table} belong to no execution")
    for find_faults in (
        tables.find_queue_faults,
        tables.find_faults,
        tables.find_question_faults,
        tables.find_list_faults,
        tables.find_summary_faults,
    ):
        faults += find_faults(connection)
    return faults


def _damaged_pages(connection: sqlite3.Connection) -> list[str]:
    try:
        return [text for (text,) in connection.execute("PRAGMA integrity_check(20)").fetchall() if text != "ok"]
    except sqlite3.DatabaseError as error:  # some damage even ends the search for damage
        return [str(error)]


T = TypeVar("T")

_log = logger(__name__)


class SqliteStore(SqliteListing):
    """Logs in one file, shared by threads and processes.

    Parameters
    ----------
    path
        The file; it is created if need be, and so is its folder if that is called ``.divebook``.
    durability
        How it is written where a batch does not say: ``full``, so that it survives a power failure, or ``relaxed``, so
        that it survives the death of the process, while a power failure may take the latest events, but never leaves a
        log half written. A transaction with a batch that is to be full is full.
    network
        Returns the kind of network file system that a path is on, or None. There, events are always written with full
        durability and without a write-ahead log, and a RuntimeWarning says so.

    Raises
    ------
    StoreError
        There can be no store at that path.
    CorruptStoreError
        The file is something else, or damaged.
    NewerStoreError
        A newer divebook wrote it.
    """

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
            """Why nothing can be written, or None."""
        self.location = str(self.path)
        self.durability: Durability = durability
        self._process = THIS_PROCESS.number
        self._types = EventTypes(self.location)
        self._warned: set[str] = set()
        self._readers = Readers(weakly(self._open_reader))
        self._writer: sqlite3.Connection | None = None
        self._turn: WriteTurn | None = None
        self._watch: tables.Watch | None = None
        self._network = None if self.read_only else network(self.path)
        if self._network:
            self.durability = FULL
        self._logs = OpenLogs(self._types, self.durability, weakly(self._unknown))
        self._syncing = Syncing(self.path)
        with translated(self.location):
            self._open()
        self._file = OpenFile(self.path)

    def _open(self) -> None:
        if self.read_only:
            with self._readers.at_one_moment() as connection:
                self._types.load(connection)
            return
        writer = open_writer(self.path, self.durability, self._network)
        try:
            migrate(writer, self.location)
            self._types.register(writer)
        except BaseException:
            writer.close()
            raise
        wait_in_turns(writer)
        self._writer, self._watch = writer, tables.Watch(writer, self.sealing)
        self._turn = WriteTurn(writer, threading.Condition(self._lock), self.durability)
        close_when_dropped(self, writer)

    def _open_reader(self) -> sqlite3.Connection:
        self._check_open()
        connection = open_reader(self.path, read_only=bool(self.read_only))
        if self.read_only:
            check_current(connection, self.location)
        return connection

    @property
    def in_place(self) -> bool:
        """Whether the path still leads to the open file; if not, it can be read, but no longer written to."""
        return self._file.is_in_place()

    def _check_open(self) -> None:
        super()._check_open()
        if self._process != THIS_PROCESS.number:
            raise ForkedStoreError(
                f"{self.location} was opened by process {self._process}, from which this one was forked, and SQLite "
                "does not survive that; open it again here, with open_store or a new Environment"
            )

    # --- writing -----------------------------------------------------------------------------------------------------

    def append_unsynced(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        """As `append_all`; what is to survive a power failure does so after the next `sync`."""
        with self._lock, self._syncing.apart():
            return self.append_all(batches)

    @property
    def syncs_apart(self) -> bool:
        """Whether it has a write-ahead log, which can be brought to the disk by another thread."""
        return not self._network

    def sync(self) -> None:
        """Bring to the disk what was appended before."""
        self._syncing.sync()

    def _wanted(self, batches: Sequence[PreparedBatch]) -> Durability:
        full = [batch for batch in batches if (batch.durability or self.durability) == FULL]
        return FULL if full and not self._syncing.comes_apart else RELAXED

    def _transaction(self, durability: Durability | None = None) -> Transaction:
        if self._turn is None:
            raise ReadOnlyStoreError(
                f"nothing can be written to {self.location}: {self.read_only}. Make it writable, or choose another"
            )
        wanted = self.durability if durability is None or self._network else durability
        return Transaction(self._turn, self._file, wanted)

    def _write(self, batches: Sequence[PreparedBatch]) -> list[Refusal | None]:
        try:
            with self._transaction(self._wanted(batches)) as cursor:
                answers = self._logs.write(cursor, batches)
        except BaseException:
            self._logs.forget([batch.execution_id for batch in batches])  # they did not advance after all
            raise
        self._logs.forget([batch.execution_id for batch in batches if batch.ends])
        return answers

    def _delete(self, execution_id: str) -> None:
        with self._transaction() as cursor:
            changed = tables.delete(cursor, execution_id, self.sealing)
        if not changed:
            raise self._unknown(execution_id)
        self._logs.forget(changed)

    def _cleanup(self, before: int) -> list[str]:
        with self._transaction() as cursor:
            ended = tables.ended_before(cursor, before)
            changed = [name for execution_id in ended for name in tables.delete(cursor, execution_id, self.sealing)]
        self._logs.forget(changed)
        return ended

    # --- leases and checkpoints --------------------------------------------------------------------------------------
    # Relaxed: checkpoints may be lost at any time, and a power failure that takes a lease ends its holder as well; what
    # is written under a lease comes after it in the same file, so that it is never there without it.

    def _acquire(
        self, execution_id: str, owner: Owner, moment: Moment, until: Moment, instead_of: Lease | None
    ) -> Lease:
        with self._transaction(RELAXED) as cursor:
            log = self._find(cursor, execution_id)
            held = tables.load_lease(cursor, log.key)
            if held is not None and held.keeps_out(moment, instead_of):
                raise held.held_error()
            self._logs.forget((execution_id,))  # its token is another
            return tables.put_next(cursor, log, owner, until)

    def _renew(self, held: Sequence[Lease], until: Moment) -> list[bool]:
        with self._transaction(RELAXED) as cursor:
            return [tables.renew(cursor, lease, until) for lease in held]

    def _release(self, lease: Lease) -> None:
        with self._transaction(RELAXED) as cursor:
            tables.release(cursor, lease)

    def _leases(self) -> list[Lease]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return tables.load_leases(connection)

    def _lease_of(self, execution_id: str) -> Lease | None:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return tables.load_lease(connection, self._find(connection, execution_id).key)

    def _put_checkpoint(self, execution_id: str, sequence: int, data: bytes) -> None:
        with self._transaction(RELAXED) as cursor:
            log = self._find(cursor, execution_id)
            check_reached(execution_id, sequence, reach_of(cursor, self._types, log).last_sequence)
            tables.put_checkpoint(cursor, log, sequence, data)

    def _checkpoint(self, execution_id: str) -> tuple[int, bytes] | None:
        with translated(self.location), self._readers.at_one_moment() as connection:
            log = find(connection, execution_id)
            return None if log is None else tables.get(connection, log)

    def _checkpoints(self) -> list[str]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return tables.list_ids(connection)

    def _drop_checkpoints(self, execution_ids: Sequence[str]) -> int:
        with self._transaction() as cursor:
            return tables.drop(cursor, execution_ids)

    # --- messages ----------------------------------------------------------------------------------------------------

    def _post(self, message: Message, payload: bytes) -> Message:
        with self._transaction() as cursor:
            log = self._find(cursor, message.execution_id)
            kept = tables.post(cursor, self.sealing, log.key, message, payload)
        if self._watch is not None:
            self._watch.posted(kept.number)
        return kept

    def _bring(self, brought: Sequence[tuple[Message, bytes]]) -> None:
        with self._transaction() as cursor:
            for message, payload in brought:
                tables.insert_messages(cursor, self._find(cursor, message.execution_id).key, message, payload)
        if self._watch is not None:
            self._watch.posted(brought[-1][0].number)

    def _inbox(self, execution_id: str, after: int) -> list[Message]:
        # Of one moment: a deleted execution's key goes to the next one.
        with translated(self.location), self._readers.at_one_moment() as connection:
            return tables.load_inbox(connection, self.sealing, self._find(connection, execution_id).key, after)

    def _new_messages(self, after: int) -> list[Message]:
        if self._watch is not None:
            with translated(self.location):
                return self._watch.new_messages(after)
        with translated(self.location), self._readers.at_one_moment() as connection:
            return tables.load_all(connection, self.sealing, after)

    def _wait_for_news(self, seen: int, seconds: float) -> int:
        return tables.wait_for_news(self._arrivals, self._has_news, seen, seconds)

    def _has_news(self) -> bool:
        self._check_open()
        with translated(self.location), self._lock:
            return self._watch is not None and not self._closed and self._watch.has_news()

    def _last_message(self) -> int:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return tables.last_number(connection)

    def _untaken(self) -> set[str]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return tables.untaken(connection)

    def _has_untaken(self, execution_id: str) -> bool:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return tables.has_untaken(connection, self._find(connection, execution_id).key)

    def _last_addressee(self, kind: str, key: str) -> str | None:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return tables.last_addressee(connection, kind, key)

    # --- keeping in order --------------------------------------------------------------------------------------------

    def _ids(self) -> list[str]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return [execution_id for (execution_id,) in connection.execute(tables.IDS).fetchall()]

    def _stored_log(self, execution_id: str) -> StoredLog:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return self._found(execution_id, load_stored(connection, self._types, execution_id))

    def _blobs(self, without: Collection[str]) -> list[StoredBlob]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return connections.list_blobs(connection, without)

    def _blob(self, digest: bytes) -> bytes | None:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return connections.load_blob(connection, digest)

    def _faults(self) -> list[str]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return find_faults(connection)

    def _discard(self, execution_ids: Sequence[str], moment: Moment) -> list[str]:
        with self._transaction() as cursor:
            gone = [name for name in execution_ids if tables.is_over(cursor, name, moment)]
            changed = [name for execution_id in gone for name in tables.delete(cursor, execution_id, self.sealing)]
        self._logs.forget(changed)
        return gone

    def _drop_blobs(self) -> int:
        with self._transaction() as cursor:
            return connections.drop_unused(cursor)

    def _close(self) -> None:
        self._readers.close()
        if self._writer is not None:
            with translated(self.location):
                self._writer.close()
        self._syncing.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read_records(self, execution_id: str, after: int, last: int) -> list[Record]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            log = self._find(connection, execution_id)
            return load_decoded(connection, self._types, self.sealing, log, after=after, last=last)

    def _facts(self, execution_id: str, sequences: Sequence[int]) -> dict[int, Payload]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            log = self._find(connection, execution_id)
            return load_facts(connection, self._types, self.sealing, log, sequences)

    def _page(self, execution_id: str, after: int, limit: int) -> EventPage:
        with translated(self.location), self._readers.at_one_moment() as connection:
            log = self._find(connection, execution_id)
            page = splice(connection, self._types, self.sealing, log, after=after, limit=limit)
        return super()._page(execution_id, after, limit) if page is None else page

    def _last_sequence(self, execution_id: str) -> int:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return reach_of(connection, self._types, self._find(connection, execution_id)).last_sequence

    def _find(self, connection: sqlite3.Connection | sqlite3.Cursor, execution_id: str) -> Log:
        return self._found(execution_id, find(connection, execution_id))

    def _found(self, execution_id: str, found: T | None) -> T:
        if found is None:
            raise self._unknown(execution_id)
        return found

    def _record(self, execution_id: str) -> ExecutionRecord:
        with translated(self.location), self._readers.at_one_moment() as connection:
            row = connection.execute(f"{RECORD} WHERE id = ?", (execution_id,)).fetchone()
            return load_record(connection, self._types, self._found(execution_id, row))


# A copy of a store file while others write to it, by SQLite's online backup.


_ALL_AT_ONCE = -1
_PORTION = 1000  # pages, 4 MB: as much as a writer may be kept waiting for where there is no write-ahead log
_PAUSE_SECONDS = 0.01


def back_up(path: Path, destination: Path) -> Path:
    """Copy a store into a new file and return that; writers are not held up, and no write is copied in part.

    The copy has every event acknowledged before it began, needs no other file beside it, and appears under its name
    only when all of it is on disk. Nothing in it is verified: that is for `divebook check`.

    Parameters
    ----------
    path
        The store; its format may be an older one, and is kept.
    destination
        A new file, or a folder for a file of the same name.

    Raises
    ------
    StoreError
        There is no such store, or the destination exists already, or cannot be written.
    CorruptStoreError
        The file is not a store, or too damaged to be copied.
    """
    if not path.exists():
        raise StoreError(f"there is no store at {path}; nothing to back up")
    target = destination / path.name if destination.is_dir() else destination
    _check_free(target)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
            partial = Path(folder, target.name)
            _copy(path, partial)
            partial.chmod(stat.S_IMODE(path.stat().st_mode))
            partial.rename(target)
            _keep_name(target.parent)
    except OSError as error:
        raise StoreError(f"the backup {target} cannot be written: {error}. Choose another place for it") from error
    return target


def _check_free(target: Path) -> None:
    if not target.parent.is_dir():
        raise StoreError(
            f"the folder {target.parent} does not exist; create it, or choose another place for the backup"
        )
    # A journal that lies there would be taken for the new file's own, and played into it.
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
            raise CorruptStoreError(f"{path} is empty, and not a divebook store. Name another file")
        (mode,) = source.execute("PRAGMA journal_mode").fetchone()
        source.backup(target, pages=_ALL_AT_ONCE if mode == "wal" else _PORTION, sleep=_PAUSE_SECONDS)


def _keep_name(folder: Path) -> None:
    """Have a new name in a folder survive a power failure, as the content does already."""
    if hasattr(os, "O_DIRECTORY"):  # Windows has no handles of folders
        descriptor = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
