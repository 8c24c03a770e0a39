"""The store on an SQLite file: one writing connection with a lock, one reading connection per thread."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from divebook.documents.protected import protect_store
from divebook.engine.inbox import Message
from divebook.errors import ForkedStoreError, ReadOnlyStoreError
from divebook.events.catalog import Payload
from divebook.events.record import Record
from divebook.store.appending import Refusal
from divebook.store.batches import Batch, PreparedBatch
from divebook.store.checkpoints import check_reached
from divebook.store.dropping import close_when_dropped, weakly
from divebook.store.durability import FULL, RELAXED, Durability
from divebook.store.large_values import StoredBlob
from divebook.store.leases import Lease, Moment
from divebook.store.owner import THIS_PROCESS, Owner
from divebook.store.records import ExecutionRecord
from divebook.store.sqlite import blobs, checkpoints, deletion, leases, lists, messages
from divebook.store.sqlite.audit import find_faults, load_stored
from divebook.store.sqlite.compact import EventTypes
from divebook.store.sqlite.connections import (
    Readers,
    open_reader,
    open_writer,
    wait_in_turns,
    why_read_only,
)
from divebook.store.sqlite.faults import translated
from divebook.store.sqlite.filesystem import network_type
from divebook.store.sqlite.listing import SqliteListing
from divebook.store.sqlite.reach import load_record, reach_of
from divebook.store.sqlite.rows import RECORD, load_decoded, load_facts
from divebook.store.sqlite.schema import check_current, migrate
from divebook.store.sqlite.splicing import splice
from divebook.store.sqlite.syncing import Syncing
from divebook.store.sqlite.transactions import OpenFile, Transaction, WriteTurn
from divebook.store.sqlite.whereabouts import Log, find
from divebook.store.sqlite.writing import OpenLogs
from divebook.store.upkeep import StoredLog
from divebook.text.logs import logger

if TYPE_CHECKING:
    from divebook.store.pages import EventPage

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
        self._watch: messages.Watch | None = None
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
        self._writer, self._watch = writer, messages.Watch(writer, self.sealing)
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
            changed = deletion.delete(cursor, execution_id, self.sealing)
        if not changed:
            raise self._unknown(execution_id)
        self._logs.forget(changed)

    def _cleanup(self, before: int) -> list[str]:
        with self._transaction() as cursor:
            ended = deletion.ended_before(cursor, before)
            changed = [name for execution_id in ended for name in deletion.delete(cursor, execution_id, self.sealing)]
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
            held = leases.load_lease(cursor, log.key)
            if held is not None and held.keeps_out(moment, instead_of):
                raise held.held_error()
            self._logs.forget((execution_id,))  # its token is another
            return leases.put_next(cursor, log, owner, until)

    def _renew(self, held: Sequence[Lease], until: Moment) -> list[bool]:
        with self._transaction(RELAXED) as cursor:
            return [leases.renew(cursor, lease, until) for lease in held]

    def _release(self, lease: Lease) -> None:
        with self._transaction(RELAXED) as cursor:
            leases.release(cursor, lease)

    def _leases(self) -> list[Lease]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return leases.load_leases(connection)

    def _lease_of(self, execution_id: str) -> Lease | None:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return leases.load_lease(connection, self._find(connection, execution_id).key)

    def _put_checkpoint(self, execution_id: str, sequence: int, data: bytes) -> None:
        with self._transaction(RELAXED) as cursor:
            log = self._find(cursor, execution_id)
            check_reached(execution_id, sequence, reach_of(cursor, self._types, log).last_sequence)
            checkpoints.put(cursor, log, sequence, data)

    def _checkpoint(self, execution_id: str) -> tuple[int, bytes] | None:
        with translated(self.location), self._readers.at_one_moment() as connection:
            log = find(connection, execution_id)
            return None if log is None else checkpoints.get(connection, log)

    def _checkpoints(self) -> list[str]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return checkpoints.list_ids(connection)

    def _drop_checkpoints(self, execution_ids: Sequence[str]) -> int:
        with self._transaction() as cursor:
            return checkpoints.drop(cursor, execution_ids)

    # --- messages ----------------------------------------------------------------------------------------------------

    def _post(self, message: Message, payload: bytes) -> Message:
        with self._transaction() as cursor:
            log = self._find(cursor, message.execution_id)
            kept = messages.post(cursor, self.sealing, log.key, message, payload)
        if self._watch is not None:
            self._watch.posted(kept.number)
        return kept

    def _bring(self, brought: Sequence[tuple[Message, bytes]]) -> None:
        with self._transaction() as cursor:
            for message, payload in brought:
                messages.insert(cursor, self._find(cursor, message.execution_id).key, message, payload)
        if self._watch is not None:
            self._watch.posted(brought[-1][0].number)

    def _inbox(self, execution_id: str, after: int) -> list[Message]:
        # Of one moment: a deleted execution's key goes to the next one.
        with translated(self.location), self._readers.at_one_moment() as connection:
            return messages.load_inbox(connection, self.sealing, self._find(connection, execution_id).key, after)

    def _new_messages(self, after: int) -> list[Message]:
        if self._watch is not None:
            with translated(self.location):
                return self._watch.new_messages(after)
        with translated(self.location), self._readers.at_one_moment() as connection:
            return messages.load_all(connection, self.sealing, after)

    def _wait_for_news(self, seen: int, seconds: float) -> int:
        return messages.wait_for_news(self._arrivals, self._has_news, seen, seconds)

    def _has_news(self) -> bool:
        self._check_open()
        with translated(self.location), self._lock:
            return self._watch is not None and not self._closed and self._watch.has_news()

    def _last_message(self) -> int:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return messages.last_number(connection)

    def _untaken(self) -> set[str]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return messages.untaken(connection)

    def _has_untaken(self, execution_id: str) -> bool:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return messages.has_untaken(connection, self._find(connection, execution_id).key)

    def _last_addressee(self, kind: str, key: str) -> str | None:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return messages.last_addressee(connection, kind, key)

    # --- keeping in order --------------------------------------------------------------------------------------------

    def _ids(self) -> list[str]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return [execution_id for (execution_id,) in connection.execute(lists.IDS).fetchall()]

    def _stored_log(self, execution_id: str) -> StoredLog:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return self._found(execution_id, load_stored(connection, self._types, execution_id))

    def _blobs(self, without: Collection[str]) -> list[StoredBlob]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return blobs.list_blobs(connection, without)

    def _blob(self, digest: bytes) -> bytes | None:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return blobs.load_blob(connection, digest)

    def _faults(self) -> list[str]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return find_faults(connection)

    def _discard(self, execution_ids: Sequence[str], moment: Moment) -> list[str]:
        with self._transaction() as cursor:
            gone = [name for name in execution_ids if deletion.is_over(cursor, name, moment)]
            changed = [name for execution_id in gone for name in deletion.delete(cursor, execution_id, self.sealing)]
        self._logs.forget(changed)
        return gone

    def _drop_blobs(self) -> int:
        with self._transaction() as cursor:
            return blobs.drop_unused(cursor)

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
