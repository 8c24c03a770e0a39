"""Interface of an event store (`EventStore`), a wrapper around a back end.

Every store passes ``tests/store/conformance.py``.

The public methods of `EventStore` contain the code that all stores share: they check and encode input, encrypt and
decrypt, allow one writer at a time, and notify listeners after the commit. A back end reads and writes the rows. For
lists, queues, caches and large values it has parts, whose protocols are in `divebook.stores.backend`. For logs, leases
and messages, a subclass has methods with the same names and an underscore: `acquire` computes the expiry and takes the
lock, `_acquire` writes the row.
"""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Self

import divebook.events.rich_output  # noqa: F401 - makes its class known, whose instances logs contain
from divebook.engine.inbox import ANNOTATION, ANSWER, REVOCATION, SIGNAL, Message
from divebook.engine.lifecycle import STATUSES, unknown_status
from divebook.errors import (
    CorruptStoreError,
    DecryptionError,
    ExecutionEndedError,
    ExecutionNotFoundError,
    ForkedStoreError,
    InvalidEventError,
    LeaseHeldError,
    NewerStoreError,
    NotFoundError,
    StoreClosedError,
    StoreError,
)
from divebook.events.catalog import BOOK, ENQUEUED, NOT_RESUMED_AUTOMATICALLY, ORIGINS, Payload
from divebook.events.codec import encode, storable
from divebook.events.event import Event, Record
from divebook.stores.append import (
    FULL,
    Appending,
    Batch,
    Durability,
    ExecutionRecord,
    PreparedBatch,
    RecordFilter,
    Refusal,
    prepare,
    records_of,
)
from divebook.stores.backend import (
    MAX_CANDIDATES,
    BlobBackend,
    CacheBackend,
    ListBackend,
    QueueBackend,
    StoredBlob,
    StoredLog,
    StoredMessage,
    StoredSummary,
    missing_event_error,
    sound_messages,
)
from divebook.stores.codec import Codec, Sealing
from divebook.stores.encoding import pack_new_blobs
from divebook.stores.history import History
from divebook.stores.leases import (
    LEASE_SECONDS,
    THIS_PROCESS,
    WORKER_SECONDS,
    Claim,
    Lease,
    Moment,
    Owner,
    QueuedExecution,
    WorkerRecord,
)
from divebook.stores.listeners import Listener, NewsCounter, NewsListener, NewsListeners, Subscribers
from divebook.text.arguments import id_of, require
from divebook.text.protocols import require_protocol

if TYPE_CHECKING:
    from divebook.stores.pages import EventPage


SOUND_PAGE = 200
"""Number of events that `read_sound` reads at a time from a log that may be damaged."""
MAX_READABLE = 10_000
"""Maximum number of executions for which a store caches that its codec decrypts their logs."""
WORKER_RECORD_SECONDS = 3600.0
"""Seconds between the expiry of a worker's record and its deletion."""
MESSAGE_KINDS = (ANSWER, SIGNAL, REVOCATION, ANNOTATION)


class EventStore(ABC):
    """Event logs of executions, with the leases, queues, messages, caches and large values that belong to them.

    Methods block, and may be called from several threads.

    Examples
    --------
    >>> from divebook.stores import MemoryStore
    >>> with MemoryStore() as store:
    ...     store.records()
    []
    """

    location: str
    """Path or URL of the store, without its password. `open_store` opens it again."""
    keeps: bool = True
    """True if stored data survive the end of the process. False for a store in memory."""
    shared: bool = True
    """True if other processes can open the store as well."""
    local: bool = True
    """True if a commit is fast enough to block the calling event loop; False for a store on a server."""
    durability: Durability = FULL
    """Durability of batches whose `Batch.durability` is None."""
    # The parts of the back end. A subclass sets them when it opens the store.
    _lists: ListBackend
    _queues: QueueBackend
    _caches: CacheBackend
    _large_values: BlobBackend
    _lock: threading.RLock

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process = THIS_PROCESS.number
        self._subscribers = Subscribers()
        self._news_counter = NewsCounter()
        self._news_listeners = NewsListeners()
        self.sealing = Sealing(compresses=self.keeps)
        """Encryption and compression of stored values. Set its `codec` before the first write."""
        self._closed = False
        self._packed_lately: dict[bytes, None] = {}
        """Hashes of the large values that were compressed last, so that `pack_new_blobs` skips these values."""
        self._readable: dict[str, Codec | None] = {}
        """Cache of `check_key`: id of each execution whose log was decrypted, and the codec that decrypted the log."""

    # --- append and delete --------------------------------------------------------------------------------------------

    def append(
        self, execution_id: str, events: Sequence[Event], expected_sequence: int, token: int | None = None
    ) -> None:
        """Append events to the log of one execution: either all of them or none.

        The events that end an execution also release its lease.

        Raises
        ------
        ConcurrentAppendError
            The log does not end at `expected_sequence`.
        FencedError
            `token` is not that of the execution's latest lease.
        ExecutionEndedError
            The execution has ended, and these events are not allowed after its end (`divebook.engine.lifecycle`).
        StartKeyTakenError
            Another execution was started with this key. The error names it.
        InvalidEventError
            ``invalid event at index i: ...``.
        ExecutionNotFoundError
            `expected_sequence` is not 0 and the log does not exist.
        """
        (refusal,) = self.append_all((Batch(execution_id, expected_sequence, records_of(events), token),))
        if refusal is not None:
            raise refusal

    def append_all(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        """Append many batches in one transaction. Return for each batch the error with which it was refused, or None if
        it was appended.

        A refused batch does not affect the others. Refusals are the errors of `append`, and `UnreadMessageError` for a
        batch with `Batch.last_message`. If the transaction itself fails (disk full, read-only), the error is raised and
        nothing is written. A store on a server may need further transactions for some of the batches. If one of these
        transactions fails, its batches get the error (`StoreBusyError` if they can be written later), and the other
        batches stay written. After a `ConnectionLostError`, it is unknown whether the batches were written. A retry
        with the same records must set `Batch.again`; it skips the records that the log already has. A batch without
        records is ignored.
        """
        self._check_open()
        checked = list(map(self._prepare_batch, batches))
        # Refused batches and batches without records are not written.
        prepared: list[PreparedBatch] = []
        for entry in checked:
            if isinstance(entry, PreparedBatch):
                prepared.append(entry)  # noqa: PERF401 - a list comprehension takes a call in Python 3.11
        answers = self._write_and_notify(prepared) if prepared else []
        if len(answers) == len(checked):
            return answers
        # The answers take the places of their batches: results [batch, error, batch] and answers [a, b] -> [a, error,
        # b].
        remaining = iter(answers)
        return [next(remaining) if isinstance(entry, PreparedBatch) else entry for entry in checked]

    def append_in_a_moment(self, batches: Sequence[Batch], seconds: float) -> Appending:
        """Start to append batches, and block for at most `seconds`. If this time is too short, call `finish` of the
        result, in any thread, to complete the append.

        If a store cannot limit the time of a commit, `finish` does all the work. A store on a server sends only batches
        that extend cached logs, and waits up to `seconds` for the answer. Raises as `append_all` does.
        """
        del seconds  # the duration of a commit is unknown here
        return Appending(lambda: self.append_all(batches))

    @property
    def syncs_apart(self) -> bool:
        """True if `append_unsynced` returns sooner than `append_all`, because it does not wait for the disk. In this
        case it is faster to call `append_unsynced` several times, and then `sync` once.
        """
        return False

    def append_unsynced(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        """Append batches as `append_all` does, but do not wait for the disk. The events survive a power failure only
        after `sync`.

        Readers see the events at once. Later appends never survive a power failure without these events.
        """
        return self.append_all(batches)

    def sync(self) -> None:
        """Wait until all earlier appends would survive a power failure. Appends with the durability `relaxed` are
        excepted.

        Another thread may append during the call.
        """
        self._check_open()

    def check_key(self, execution_id: str) -> None:
        """Check that this process has the encryption key of an execution's log, by decrypting the last record of the
        log.

        Every write to an existing execution needs this check.

        Events written with another key would make the log unreadable for users who have the right key. Events written
        in plain text would disclose encrypted data. The check costs one read per execution and process. Executions that
        this process has started need no check.

        Raises
        ------
        DecryptionError
            The log was encrypted with another key, or the key is missing. Nothing was written.
        """
        if self._is_readable(execution_id):
            return
        # Damage and unknown executions are reported by the write itself; a damaged log still accepts notes.
        with suppress(ExecutionNotFoundError, CorruptStoreError, NewerStoreError):
            last = self._last_sequence(execution_id)
            # Reading decrypts the payload of the record, and so fails without the right key.
            self._read_records(execution_id, last - 1, last)
            self._mark_readable(execution_id)

    def delete(self, execution_id: str) -> None:
        """Delete one execution and its log for good, whatever its status."""
        self._check_open()
        if not self._discard_and_notify({execution_id: None}, None):
            raise self._unknown(execution_id)

    def cleanup(self, before: datetime, now: int | None = None) -> int:
        """Delete the executions that ended before a moment, with any final status, and that no process is resuming.
        Return the number of deleted executions. Executions with a damaged row are not deleted, so that a check can
        report them.

        Parameters
        ----------
        now
            Time in microseconds since 1970; by default the time of the store's clock. An execution with a lease that is
            live at this time is not deleted.
        """
        self._check_open()
        if before.tzinfo is None:
            raise ValueError(f"before needs a time zone, got {before.isoformat()}; use datetime.now(UTC) - age")
        # `_discard` compares the last sequences, and so spares an execution that is resumed after it was listed.
        last_sequences: dict[str, int | None] = {
            record.execution_id: record.last_sequence
            for record in self._lists.records(RecordFilter(with_books=True), 0, 0)
            if record.ended_at is not None and record.ended_at < before
        }
        return len(self._discard_and_notify(last_sequences, self._moment(now)))

    def _discard_and_notify(self, last_sequences: Mapping[str, int | None], moment: Moment | None) -> list[str]:
        with self._lock:
            discarded = self._discard(last_sequences, moment)
            for execution_id in discarded:
                # No events mean a deletion (`subscribe`).
                self._subscribers.notify(execution_id, ())
        return discarded

    def _prepare_batch(self, batch: Batch) -> PreparedBatch | Refusal | None:
        """Check and encode a batch, and return the result. Return the error if the batch is refused, or None if the log
        already has all its records.
        """
        # After a lost connection it is unknown whether the earlier attempt was committed.
        if batch.again:
            batch = self._without_written(batch)
        if not batch.records:
            return None
        try:
            # A batch that begins a log has nothing to decrypt yet. A fork shares events of its source, so it needs the
            # source's key.
            if batch.expected_sequence and not self._is_readable(log := batch.source or batch.execution_id):
                self.check_key(log)
            prepared = prepare(batch, self.sealing)
        except (InvalidEventError, ExecutionEndedError, DecryptionError) as error:
            return error
        # Compression happens before the write transaction, during which no other process can write.
        if prepared.blobs and self.keeps:
            prepared.packed = pack_new_blobs(prepared.blobs, self._packed_lately)
        return prepared

    def _is_readable(self, execution_id: str) -> bool:
        """Return True if this process has decrypted the last record of an execution's log before, with the present
        codec. The check of the encryption key (`check_key`) can then be skipped.
        """
        # None is a valid codec (plain text), so the default must be another object.
        return self._readable.get(execution_id, self) is self.sealing.codec

    def _mark_readable(self, execution_id: str) -> None:
        self._readable[execution_id] = self.sealing.codec
        # The oldest entry is dropped first, since a dict keeps the order of insertion.
        while len(self._readable) > MAX_READABLE:
            self._readable.pop(next(iter(self._readable)), None)

    def _without_written(self, batch: Batch) -> Batch:
        """Return a batch without the records that the log already has, because an earlier attempt to append them
        succeeded. Listeners are notified of the omitted records.

        Record ids are unique, so comparing them with the end of the log is exact
        (test_a_batch_whose_commit_nobody_knows_of_is_written_once).
        """
        try:
            # The written records can only be the first ones of the batch, directly after `expected_sequence`.
            count = batch.last_sequence - batch.expected_sequence
            ids = {event.id for event in self._read(batch.execution_id, batch.expected_sequence, count)}
        except ExecutionNotFoundError:
            return batch
        written = len(list(takewhile(lambda record: record.id in ids, batch.records)))
        # The earlier attempt raised an error after its commit, and so notified no listener.
        if written:
            with self._lock:
                self._subscribers.notify(batch.execution_id, batch.records[:written])
        return batch.without(written)

    def _write_and_notify(self, batches: Sequence[PreparedBatch]) -> list[Refusal | None]:
        # One lock covers both steps, so that listeners get the events in the order of the commits.
        with self._lock:
            answers = self._write(batches)
            self._notify(batches, answers)
        return answers

    def _notify(self, batches: Sequence[PreparedBatch], answers: Sequence[Refusal | None]) -> None:
        """Notify listeners of the events of accepted batches. Mark the executions that these batches begin as readable,
        so that `check_key` skips them.
        """
        has_listeners = bool(self._subscribers.listeners.entries)
        for batch, answer in zip(batches, answers, strict=True):
            # This process has just encrypted the log itself, so it has the key.
            if answer is None and batch.beginning is not None:
                self._mark_readable(batch.execution_id)
            # The batch has posted a message to the parent of its execution, which wakes waiting threads as `post` does.
            if answer is None and batch.to_parent is not None:
                self._news_counter.add()
            if answer is None and has_listeners:
                self._subscribers.notify(batch.execution_id, batch.records)

    # --- read one log -------------------------------------------------------------------------------------------------

    def read(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the events of one log with sequence numbers above `after`, ascending, at most `limit` events.

        Raises
        ------
        ExecutionNotFoundError
            The store has no such log.
        NewerStoreError
            A newer version of divebook wrote one of the events.
        CorruptStoreError
            An event cannot be decoded, or one is missing.
        """
        self._check_open()
        if limit is not None:
            _check_not_negative("limit", limit)
        return self._read(id_of(execution_id), max(after, 0), limit)

    def read_records(self, execution_id: str, after: int = 0, last: int = sys.maxsize) -> list[Record]:
        """Return the records of a log that contain the events above `after` up to `last`. A record is a group of events
        that were written together.

        Raises the errors of `read`. For callers that fold a log: a record creates its `Event` objects only on access.
        The first and the last record may also contain events outside of the range.
        """
        self._check_open()
        records = self._read_records(execution_id, max(after, 0), last)
        # Without an upper limit, the result has the last record of the log, which is the one that `check_key` decrypts.
        if records and last == sys.maxsize:
            self._mark_readable(execution_id)
        # `_read_records` may begin with the record before the requested ones.
        return records[1:] if records and records[0].last_sequence <= after else records

    def history(self, execution_id: str, after: int = 0) -> History:
        """Return the events of a log after event number `after` as a sequence. It does not read events from the store
        until they are accessed.

        Raises
        ------
        ExecutionNotFoundError
            The store has no such log.
        """
        self._check_open()
        return History(self, execution_id, max(after, 0), self._last_sequence(execution_id))

    def page(self, execution_id: str, after: int, limit: int) -> EventPage:
        """Return at most `limit` events of a log after event number `after` as columns. Their payloads are JSON that is
        not decoded yet.

        Raises
        ------
        ExecutionNotFoundError, NewerStoreError, CorruptStoreError
            As for `read`. Errors in a payload are raised when the payload is decoded.
        """
        self._check_open()
        return self._page(execution_id, after, limit)

    def facts(self, execution_id: str, sequences: Sequence[int]) -> dict[int, Payload]:
        """Return the payloads of the events with the given sequence numbers, by number, in a single query. Raises the
        errors of `read`.
        """
        self._check_open()
        return self._facts(execution_id, sequences) if sequences else {}

    def read_sound(self, execution_id: str) -> tuple[list[Event], CorruptStoreError | NewerStoreError | None]:
        """Return the events of a log before the first damaged event, and the error of the damaged event, or None.

        Raises
        ------
        ExecutionNotFoundError
            The store has no such log.
        """
        events: list[Event] = []
        # After an error in a page, its events are read one by one. The first one that fails is the damaged one.
        step = SOUND_PAGE
        while True:
            try:
                page = self.read(execution_id, len(events), step)
            except (CorruptStoreError, NewerStoreError) as error:
                if step == 1:
                    return events, error
                step = 1  # read event by event up to the damaged one
                continue
            if not page:
                return events, None
            events += page

    def _read(self, execution_id: str, after: int, limit: int | None) -> list[Event]:
        last = sys.maxsize if limit is None else after + limit
        records = self._read_records(execution_id, after, last)
        return [event for record in records for event in record.events_above(after, last)]

    # --- list executions ----------------------------------------------------------------------------------------------

    def record(self, execution_id: str) -> ExecutionRecord:
        """Return the summary row of one execution; raise ExecutionNotFoundError if there is none."""
        self._check_open()
        return self._decrypted(self._lists.record(id_of(execution_id)))

    def records(
        self,
        status: str | None = None,
        workflow: str | None = None,
        limit: int = 0,
        offset: int = 0,
        *,
        tag: str | None = None,
        origin: str | None = None,
        parent: str | None = None,
        notebook: str | None = None,
        cell: str | None = None,
        key: str | None = None,
    ) -> list[ExecutionRecord]:
        """Return the summary rows of matching executions, newest first; `limit` 0 means all.

        Executions that only store conversations ("books") are left out unless `key` or ``origin="book"`` selects them.
        """
        self._check_open()
        _check_not_negative("limit", limit)
        _check_not_negative("offset", offset)
        filters = {"status": status, "workflow": workflow, "tag": tag, "origin": origin, "parent": parent}
        filters |= {"notebook": notebook, "cell": cell, "key": key}
        for name, value in filters.items():
            require(value, name, "a string", fits=isinstance(value, str))
        if status is not None and status not in STATUSES:
            raise unknown_status(status, STATUSES)
        if origin is not None and origin not in ORIGINS:
            raise NotFoundError("origin", origin, ORIGINS)
        with_books = bool(key) or origin == BOOK
        record_filter = RecordFilter(status, workflow, tag, origin, parent, notebook, cell, key, with_books)
        return [self._decrypted(record) for record in self._lists.records(record_filter, limit, offset)]

    def unended(self) -> list[ExecutionRecord]:
        """Return the summary rows of the executions that have not ended, newest first.

        Executions that only store conversations ("books") are left out.
        """
        self._check_open()
        return [self._decrypted(record) for record in self._lists.records(RecordFilter(unended=True), 0, 0)]

    def orphans(self, now: int | None = None) -> list[ExecutionRecord]:
        """Return the summary rows of the executions that could continue but that no process drives, newest first.

        A waiting execution can continue when its timer is due, when it has a message that is not in its log, or when
        its driver has not released the lease (it died, or the lease expired). Enqueued executions are left out, because
        workers `claim` them. Executions with an origin in `divebook.events.catalog.NOT_RESUMED_AUTOMATICALLY` are left
        out, too.
        """
        self._check_open()
        # A worker claims enqueued executions, and nothing may resume experiments and conversations by itself.
        return [
            self._decrypted(record)
            for record in self._lists.orphans(self._moment(now))
            if record.origin not in NOT_RESUMED_AUTOMATICALLY and record.status != ENQUEUED
        ]

    def descendants(self, execution_id: str) -> int:
        """Return the number of direct and indirect child executions of an execution, including ended ones."""
        self._check_open()
        return self._lists.descendants(execution_id)

    def asking(self, question_id: str | None = None) -> list[tuple[str, str]]:
        """Return the open questions of all executions that have not ended, as pairs of execution id and question id.

        The newest execution comes first. No log is read.

        Parameters
        ----------
        question_id
            Return only questions with this id. Several executions may have a question with the same id.
        """
        self._check_open()
        return self._lists.asking(question_id)

    def resolve(self, prefix: str) -> str:
        """Return the only execution id that begins with `prefix`; the leading ``exec_`` may be omitted.

        Raises
        ------
        ExecutionNotFoundError
            No id begins with the prefix. The error names the latest executions.
        StoreError
            Several ids begin with the prefix. The error names them.
        """
        self._check_open()
        prefix = id_of(prefix)
        candidates = self._lists.ids(prefix) or self._lists.ids(f"exec_{prefix}")
        # An id may be the beginning of a longer one; the exact match wins (test_a_whole_id_wins_over_longer_ones).
        if prefix in candidates or len(candidates) == 1:
            return prefix if prefix in candidates else candidates[0]
        # An empty prefix begins every id, so the error lists the latest ones, as for an unknown prefix.
        if not candidates or not prefix:
            raise self._unknown(prefix)
        # `ListBackend.ids` returns one more id than the error lists, to reveal that there are further ones.
        more = ", ..." if len(candidates) > MAX_CANDIDATES else ""
        raise StoreError(
            f"execution id {prefix!r} is ambiguous: {', '.join(candidates[:MAX_CANDIDATES])}{more}. Type more "
            "characters of the id"
        )

    def _decrypted(self, record: ExecutionRecord) -> ExecutionRecord:
        error = self.sealing.open_text(record.error)
        note = self.sealing.open_text(record.note)
        if (error, note) == (record.error, record.note):
            return record
        return replace(record, error=error, note=note)

    def _unknown(self, execution_id: str) -> ExecutionNotFoundError:
        latest = self._lists.records(RecordFilter(), MAX_CANDIDATES, 0)
        return ExecutionNotFoundError(execution_id, [record.execution_id for record in latest])

    # --- leases -------------------------------------------------------------------------------------------------------

    def acquire(
        self,
        execution_id: str,
        owner: Owner,
        ttl_seconds: float = LEASE_SECONDS,
        now: int | None = None,
        instead_of: Lease | None = None,
    ) -> Lease:
        """Take the lease of an execution. A lease whose owner has died or has not renewed it in time is replaced.

        The owner may drive the execution until the lease expires. The token of the lease is one higher than that of any
        earlier lease, and the store refuses appends with an earlier token.

        Parameters
        ----------
        now
            Microseconds since 1970, for tests; by default the time of the store's clock.
        instead_of
            A live lease that the new lease replaces. From then on, the store refuses the token of the replaced lease.

        Raises
        ------
        LeaseHeldError
            A process already drives the execution; it may be this process. The error names the process and the time at
            which its lease expires.
        ExecutionNotFoundError
            The store has no such log.
        """
        self._check_open()
        moment = self._moment(now)
        with self._lock:
            return self._acquire(execution_id, owner, moment, moment.plus(ttl_seconds), instead_of)

    def renew(self, leases: Sequence[Lease], ttl_seconds: float = LEASE_SECONDS, now: int | None = None) -> list[bool]:
        """Renew leases, each for `ttl_seconds`, in one transaction. For each lease, return True if its holder still has
        it, and False if it was released or replaced.

        The holder of an expired lease still has it as long as no other process has acquired the execution.
        """
        self._check_open()
        until = self._moment(now).plus(ttl_seconds)
        with self._lock:
            return self._renew(leases, until) if leases else []

    def release(self, lease: Lease) -> None:
        """Release a lease before it expires. If the execution has a newer lease, do nothing."""
        self._check_open()
        with self._lock:
            self._release(lease)

    def leases(self) -> list[Lease]:
        """Return the leases that were neither released nor replaced, including expired leases, sorted by
        execution id.
        """
        self._check_open()
        return sorted(self._leases(), key=lambda lease: lease.execution_id)

    def lease_of(self, execution_id: str) -> Lease | None:
        """Return the lease of an execution, live or expired; None if it has no lease. Raise ExecutionNotFoundError for
        an unknown id.
        """
        self._check_open()
        leases = self._leases(execution_id)
        return leases[0] if leases else None

    def live_lease_of(self, execution_id: str, now: int | None = None) -> Lease | None:
        """Return the lease of an execution if it is live, otherwise None. Raise ExecutionNotFoundError for an unknown
        id.
        """
        lease = self.lease_of(execution_id)
        if lease is None or not lease.keeps_out(self._moment(now)):
            return None
        return lease

    def live_leases(self, now: int | None = None) -> list[Lease]:
        """Return the leases that are live by the store's clock, sorted by execution id."""
        moment = self._moment(now)
        return [lease for lease in self.leases() if lease.keeps_out(moment)]

    # --- queues, schedules and workers --------------------------------------------------------------------------------

    def claim(
        self,
        queues: Collection[str],
        workflows: Mapping[str, str],
        owner: Owner,
        limit: int,
        *,
        without: Collection[str] = (),
        ttl_seconds: float = LEASE_SECONDS,
        now: int | None = None,
    ) -> list[Lease]:
        """Take the leases of up to `limit` queued executions that can continue and that no process drives.

        Queues are read in the given order; within a queue, higher priorities first, then older executions. Two
        workers that claim at the same time get different executions.

        Parameters
        ----------
        workflows
            Workflows that the worker has: names, each with the fingerprint that the execution must have started with.
        without
            Ids of executions to skip.
        now
            As for `acquire`.
        """
        self._check_open()
        if limit < 1 or not queues or not workflows:
            return []
        moment = self._moment(now)
        claim = Claim(tuple(queues), dict(workflows), limit, frozenset(without))
        with self._lock:
            return self._claim(claim, owner, moment, moment.plus(ttl_seconds))

    def queued(self, *, withheld: bool = False) -> list[QueuedExecution]:
        """Return the executions in queues that have not ended, in the order in which workers claim them.

        With `withheld`, return instead the executions that workers skip, because a person paused them (`withhold`).
        """
        self._check_open()
        return self._queues.queued(withheld=withheld)

    def withhold(self, execution_id: str) -> None:
        """Mark a queued execution so that workers skip it until it is resumed. If the execution is not in a queue, do
        nothing.
        """
        self._check_open()
        with self._lock:
            self._queues.withhold(execution_id)

    def seen_to(self, schedule: str, moment: int) -> int:
        """Return the time up to which the due times of a schedule have been handled. For a new schedule, store `moment`
        as this time.

        Both are microseconds since 1970. If two processes ask about a new schedule at the same time, both get the
        moment of the process that asked first.
        """
        self._check_open()
        with self._lock:
            return self._queues.schedule(schedule, moment, advances=False)

    def see_to(self, schedule: str, moment: int) -> None:
        """Record that all due times of a schedule up to a moment have been handled. If a later moment is recorded
        already, do nothing.
        """
        self._check_open()
        with self._lock:
            self._queues.schedule(schedule, moment, advances=True)

    def announce(self, worker: WorkerRecord, now: int | None = None) -> None:
        """Write the record of a running worker, valid for `WORKER_SECONDS`. Delete the records of workers that expired
        an hour ago.
        """
        self._check_open()
        moment = self._moment(now)
        with self._lock:
            self._queues.announce(worker, moment.plus(WORKER_SECONDS).wall, moment.plus(-WORKER_RECORD_SECONDS).wall)

    def retire(self, worker_id: str) -> None:
        """Delete the record of a worker, because the worker stops."""
        self._check_open()
        with self._lock:
            self._queues.retire(worker_id)

    def workers(self, now: int | None = None) -> list[WorkerRecord]:
        """Return the workers whose records have not expired and whose processes have not died, sorted by id."""
        self._check_open()
        moment = self._moment(now)
        return [
            worker
            for worker in sorted(self._queues.workers(), key=lambda worker: worker.id)
            if worker.expires_at > moment.wall and not worker.owner.has_died()
        ]

    # --- messages from outside ----------------------------------------------------------------------------------------

    def post(self, message: Message) -> Message:
        """Store a message for an execution durably; return the message with the number that it got.

        A message is not an event: an answer or a signal may come from any process at any time, also while no process
        drives the execution. The process that drives it next copies the messages above `ExecutionRecord.taken` into the
        log, in the order of their numbers, and writes the new `taken` with those events (`Batch.taken`).

        If several messages have the same execution, kind and key, also from several threads or processes, the store
        keeps the first one, and every later call returns that one, unchanged.

        An execution that has failed or was cancelled still receives messages, because it may be resumed.

        Raises
        ------
        ExecutionNotFoundError
            The store has no such execution.
        ExecutionEndedError
            The execution has ended with a status that allows no resumption (`divebook.engine.lifecycle.FINAL`), for
            example "completed" or "moved". The status is read in the transaction that would store the message.
        UnstorableValueError
            The payload cannot be stored. The error names the path to the value.
        DecryptionError
            The execution was encrypted with another key, or the key is missing.
        """
        checked, payload = self._sealed(message)
        with self._lock:
            stored = self._post(checked, payload)
        # Threads wake up only after the write, so that they find the message.
        self._news_counter.add()
        return stored

    def post_and_acquire(self, message: Message, owner: Owner, after: int = 0) -> tuple[Message, Lease | None]:
        """Store a message as `post` does, and take the lease of its execution as `acquire` does. If the store is a
        file, both together need only one commit. Return the stored message and the lease, which names the unread
        messages (`Lease.unread`): those with numbers above `after`.

        The lease is None if a process drives the execution, or if the returned message is an earlier message from
        another source. Raises as `post` does.
        """
        checked, payload = self._sealed(message)
        moment = self._moment(None)
        with self._lock:
            delivery = self._post_and_acquire(checked, payload, owner, moment, after)
        self._news_counter.add()
        return delivery

    def _sealed(self, message: Message) -> tuple[Message, bytes]:
        """Check a message that is to be stored. Return it with the encoded payload."""
        self._check_open()
        _check_message(message)
        self.check_key(message.execution_id)
        payload = storable(message.payload, "payload")
        return replace(message, payload=payload), self.sealing.seal(encode(payload))

    def bring(self, messages: Sequence[Message]) -> None:
        """Store messages copied from another store under their original numbers, either all of them or none.

        Raises
        ------
        StoreError
            This store has used one of the numbers already.
        ExecutionNotFoundError
            The store has no such execution.
        DecryptionError
            One of the executions was encrypted with another key, or the key is missing.
        """
        self._check_open()
        with self._lock:
            for execution_id in {message.execution_id for message in messages}:
                self.check_key(execution_id)
            if messages:
                self._bring([(message, self.sealing.seal(encode(message.payload))) for message in messages])
        self._news_counter.add()

    def inbox(self, execution_id: str, after: int = 0) -> list[Message]:
        """Return the messages that an execution has received, with numbers above `after`, ascending.

        Raises
        ------
        ExecutionNotFoundError
            The store has no such execution.
        """
        self._check_open()
        return [stored.opened(self.sealing) for stored in self._stored_messages(after, execution_id)]

    def new_messages(self, after: int) -> list[Message]:
        """Return the messages of all executions with numbers above `after`, ascending.

        Call it after `wait_for_news`. A call costs microseconds while no other process writes to the store.
        """
        self._check_open()
        with self._lock:
            return sound_messages(self._stored_messages(after), self.sealing)

    def last_message(self) -> int:
        """Return the highest number that a message in this store ever had; 0 if there was none."""
        self._check_open()
        return self._last_message()

    def untaken(self) -> set[str]:
        """Return the ids of the executions that have not ended and have received messages which are not in their logs
        yet. Reads the messages of each execution that has not ended.
        """
        self._check_open()
        unended = self._lists.records(RecordFilter(with_books=True, unended=True), 0, 0)
        addressees = set[str]()
        for record in unended:
            with suppress(ExecutionNotFoundError):  # it was deleted meanwhile
                if self._has_untaken(record.execution_id):
                    addressees.add(record.execution_id)
        return addressees

    def has_untaken(self, execution_id: str) -> bool:
        """Return True if an execution has not ended and has received messages that are not in its log yet. Raise
        ExecutionNotFoundError for an unknown id.
        """
        self._check_open()
        return self._has_untaken(execution_id)

    def last_addressee(self, kind: str, key: str) -> str | None:
        """Return the id of the execution that received the latest message with a kind and a key; None if none has
        received one.

        The execution may have ended.
        """
        self._check_open()
        return self._last_addressee(kind, key)

    # --- checkpoints and summaries: caches ----------------------------------------------------------------------------

    def put_checkpoint(self, execution_id: str, sequence: int, data: bytes) -> None:
        """Store the encoded state of an execution after an event as a checkpoint. Older checkpoints are deleted, except
        for the newest checkpoint of each part of the log (`divebook.stores.backend.part_of_log`).

        A checkpoint is a cache: if it is deleted, only reading the log takes longer.

        Raises
        ------
        StoreError
            The log does not contain this event.
        ExecutionNotFoundError
            The store has no such log.
        DecryptionError
            The log was encrypted with another key, or the key is missing.
        """
        self._check_open()
        self.check_key(execution_id)
        with self._lock:
            self._caches.put_checkpoint(execution_id, sequence, self.sealing.seal_packed(data))

    def checkpoint(self, execution_id: str, at: int = sys.maxsize) -> tuple[int, bytes] | None:
        """Return the newest checkpoint of an execution, its cached state, at or before event `at`, as sequence number
        and data; None if it is missing or damaged.
        """
        self._check_open()
        stored = self._caches.checkpoint(execution_id, at)
        if stored is None:
            return None
        sequence, data = stored
        return sequence, self.sealing.open_packed(data)

    def checkpoints(self) -> list[str]:
        """Return the ids of the executions that have a checkpoint, sorted."""
        self._check_open()
        return sorted(self._caches.checkpoints())

    def drop_checkpoints(self, execution_ids: Sequence[str] | None = None) -> int:
        """Delete the checkpoints of the given executions, or of all executions; return the number of deleted
        checkpoints.
        """
        self._check_open()
        with self._lock:
            return self._caches.drop_checkpoints(self._caches.checkpoints() if execution_ids is None else execution_ids)

    def put_summaries(self, summaries: Mapping[str, StoredSummary]) -> None:
        """Store the summaries of executions in place of older summaries; ignore unknown executions.

        A summary is a cache: if it is deleted, only listing the execution takes longer.
        """
        self._check_open()
        encrypted = {
            execution_id: StoredSummary(summary.sequence, self.sealing.seal_packed(summary.data))
            for execution_id, summary in summaries.items()
        }
        with self._lock:
            self._caches.put_summaries(encrypted)

    def summaries(self, execution_ids: Sequence[str]) -> dict[str, StoredSummary]:
        """Return the cached summaries of executions in one query; omit missing and damaged summaries."""
        self._check_open()
        readable: dict[str, StoredSummary] = {}
        for execution_id, (sequence, data) in self._caches.summaries(execution_ids).items():
            with suppress(DecryptionError, CorruptStoreError):  # an unreadable cache entry counts as missing
                readable[execution_id] = StoredSummary(sequence, self.sealing.open_packed(data))
        return readable

    # --- large values -------------------------------------------------------------------------------------------------

    def blobs(self, without: Collection[str] = ()) -> list[StoredBlob]:
        """Return the large values (blobs) of the store, each with its size and whether an execution refers to it.

        References from the executions in `without` are not counted.
        """
        self._check_open()
        return self._large_values.blobs(without)

    def blob(self, digest: bytes) -> bytes | None:
        """Return the content of the large value that has a SHA-256 hash; None if the store does not have it.

        Raises
        ------
        CorruptStoreError
            The value cannot be decompressed.
        """
        self._check_open()
        return self._large_values.blob(digest)

    def drop_blobs(self) -> int:
        """Delete the large values that no execution refers to; return the number of deleted values."""
        self._check_open()
        with self._lock:
            return self._large_values.drop_unused()

    # --- maintenance --------------------------------------------------------------------------------------------------

    def ids(self) -> list[str]:
        """Return the ids of all executions, newest first, including those whose rows are damaged."""
        self._check_open()
        return self._lists.ids()

    def stored_log(self, execution_id: str) -> StoredLog:
        """Return the row and the undecoded log of an execution; raise ExecutionNotFoundError if there is none."""
        self._check_open()
        return self._stored_log(execution_id)

    def faults(self) -> list[str]:
        """Return descriptions of faults that do not belong to a single log, such as damaged pages or rows that
        contradict others.
        """
        self._check_open()
        return self._faults()

    def discard(self, execution_ids: Sequence[str] | Mapping[str, int], now: int | None = None) -> list[str]:
        """Delete those of the given executions that have ended and that no process resumes; return their ids.

        If `execution_ids` is a mapping, its values are the sequence numbers of the last events. An execution is not
        deleted if its log now ends with a different event, because the execution was resumed and has ended again.
        """
        self._check_open()
        last_sequences: dict[str, int | None] = (
            {**execution_ids} if isinstance(execution_ids, Mapping) else dict.fromkeys(execution_ids)
        )
        return self._discard_and_notify(last_sequences, self._moment(now))

    # --- notifications ------------------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener(execution_id, events)`` after each commit of this process; return a function that removes the
        listener.

        The thread that appends the events calls the listener, in the order of the commits. The call blocks other
        writers, so the listener should only pass the events on and return. For a deleted execution, `events` is empty.
        Appends by other processes do not cause a call; see `on_news`.
        """
        require_protocol(listener, Listener, "listener")
        return self._subscribers.listeners.add(listener)

    def on_news(
        self,
        listener: NewsListener,
        execution_id: str | None = None,  # noqa: ARG002 - a server's store asks for it
    ) -> Callable[[], None]:
        """Call ``listener()`` once soon, and then whenever a message arrives or another process has appended events.

        The calls happen in a thread of the store; see `wait_for_news`.

        Call the returned function to stop. Appends by other processes are reported at least for the log of
        `execution_id`. A store on a server reports them only for this log.
        """
        require_protocol(listener, NewsListener, "listener")
        return self._news_listeners.add(listener, self.wait_for_news)

    def wait_for_news(self, seen: int, seconds: float) -> int:
        """Wait until a message arrives or another process has appended events. Return the number of such changes so
        far.

        Parameters
        ----------
        seen
            Count that the last call returned, or -1. If nothing changes within `seconds`, the call returns the same
            count again.
        """
        self._check_open()
        return self._wait_for_news(seen, seconds)

    # --- closing ------------------------------------------------------------------------------------------------------

    @property
    def in_place(self) -> bool:
        """True if the store's location still refers to the open store. It is False if the store file was deleted or
        replaced; then the store can be read but not written.
        """
        return True

    @property
    def closed(self) -> bool:
        """True if the store was closed with `close`."""
        return self._closed

    def close(self) -> None:
        """Release all resources, and wait until the thread that `on_news` started has ended. If the store is closed
        already, do nothing.
        """
        if self._was_forked:  # its connections, and the locks of its threads, belong to the process that opened it
            self._closed = True
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                self._close()
        self._news_counter.add()  # wake the threads that wait for news, so that they see the store is closed
        self._news_listeners.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.location}>"

    def _check_open(self) -> None:
        # The condition of `_was_forked` is repeated, because every call of a store runs this check, and a call of a
        # property would make it twice as slow.
        if self._closed or (self.shared and self._process != THIS_PROCESS.number):
            raise self._unusable_error()

    def _unusable_error(self) -> StoreError:
        """Return the error for a store that was closed, or was opened by the process from which this one was forked."""
        if self._closed:
            return StoreClosedError(
                f"the store {self.location} is closed; open it again with open_store({self.location!r})"
            )
        return ForkedStoreError(
            f"the store {self.location} was opened by process {self._process}, from which this process was forked. "
            "A connection does not survive a fork; open the store again in this process, with open_store or a new "
            "Environment"
        )

    @property
    def _was_forked(self) -> bool:
        """True if this process was forked from the process that opened the store, and that process has connections.
        Check this before `_lock` is acquired: a thread of the other process may have held `_lock` at the fork.
        """
        return self.shared and self._process != THIS_PROCESS.number

    # --- implemented by each store: logs. The lock is held during calls that write ------------------------------------

    @abstractmethod
    def _write(self, batches: Sequence[PreparedBatch]) -> list[Refusal | None]:
        """Write batches in one transaction. Return for each batch the error with which it was refused, or None if it
        was written.
        """

    @abstractmethod
    def _read_records(self, execution_id: str, after: int, last: int) -> list[Record]:
        """Return the records (groups of events) of a log that contain the events above `after` up to `last`. The result
        may begin with the record before these.
        """

    def _facts(self, execution_id: str, sequences: Sequence[int]) -> dict[int, Payload]:
        facts: dict[int, Payload] = {}
        for sequence in sequences:
            events = self._read(execution_id, sequence - 1, 1)
            if not events:
                raise missing_event_error(execution_id, sequence)
            facts[sequence] = events[0].data
        return facts

    def _page(self, execution_id: str, after: int, limit: int) -> EventPage:
        # The import is late, since the module loads numpy and pyarrow.
        from divebook.stores.pages import EventPage

        return EventPage.of(self._read(execution_id, after, limit))

    def _last_sequence(self, execution_id: str) -> int:
        return self._lists.record(execution_id).last_sequence

    # --- implemented by each store: leases ----------------------------------------------------------------------------

    def _moment(self, now: int | None) -> Moment:
        """Return the present time by the store's clock, or the moment `now` if it is not None. A store on a server asks
        the server.

        The clocks of machines differ. If each used its own, a machine whose clock is ahead would take live leases from
        the others.
        """
        return Moment.at(now)

    @abstractmethod
    def _acquire(
        self, execution_id: str, owner: Owner, moment: Moment, until: Moment, instead_of: Lease | None
    ) -> Lease: ...

    @abstractmethod
    def _renew(self, leases: Sequence[Lease], until: Moment) -> list[bool]: ...

    @abstractmethod
    def _release(self, lease: Lease) -> None: ...

    @abstractmethod
    def _leases(self, execution_id: str | None = None) -> list[Lease]:
        """Return the leases of all executions, or that of one execution. Raise ExecutionNotFoundError for an unknown
        id.
        """

    @abstractmethod
    def _claim(self, claim: Claim, owner: Owner, moment: Moment, until: Moment) -> list[Lease]: ...

    # --- implemented by each store: messages --------------------------------------------------------------------------

    @abstractmethod
    def _post(self, message: Message, payload: bytes) -> Message:
        """Store a message and return it; if its execution already has a message of the same kind and key, return that
        one.

        `payload` is the encoded payload.

        The returned message shares no mutable payload with the stored one.
        """

    def _post_and_acquire(
        self, message: Message, payload: bytes, owner: Owner, moment: Moment, after: int
    ) -> tuple[Message, Lease | None]:
        """Store a message and take a lease, as `post_and_acquire` does. A store whose transactions cost much replaces
        this by a single one.
        """
        stored = self._post(message, payload)
        if stored.source != message.source:
            return stored, None
        # The message is stored, so an error of the store must not say otherwise. It comes again if the caller acquires
        # the lease, or reads the inbox (test_a_signal_that_a_busy_store_keeps_from_its_execution_is_kept).
        lease: Lease | None = None
        with suppress(LeaseHeldError, StoreError):
            lease = self._acquire(message.execution_id, owner, moment, moment.plus(LEASE_SECONDS), None)
            lease = replace(lease, unread=self.inbox(message.execution_id, after))
        return stored, lease

    @abstractmethod
    def _bring(self, messages: Sequence[tuple[Message, bytes]]) -> None:
        """Store messages of another store, each with its encoded payload, under the numbers that they have there. Call
        `check_brought_numbers` first, in the same transaction.
        """

    @abstractmethod
    def _stored_messages(self, after: int, execution_id: str | None = None) -> list[StoredMessage]:
        """Return the messages with numbers above `after`, ascending: those of all executions, or those of one
        execution. Raise ExecutionNotFoundError for an unknown id.
        """

    def _wait_for_news(self, last_count: int, seconds: float) -> int:
        return self._news_counter.wait(last_count, seconds)

    @abstractmethod
    def _last_message(self) -> int: ...

    @abstractmethod
    def _has_untaken(self, execution_id: str) -> bool: ...

    @abstractmethod
    def _last_addressee(self, kind: str, key: str) -> str | None: ...

    # --- implemented by each store: maintenance -----------------------------------------------------------------------

    @abstractmethod
    def _stored_log(self, execution_id: str) -> StoredLog: ...

    def _faults(self) -> list[str]:
        return []

    @abstractmethod
    def _discard(self, last_sequences: Mapping[str, int | None], moment: Moment | None) -> list[str]:
        """Delete executions in one transaction; return the ids of those that were deleted.

        With a moment, delete only those that have ended with the given event (None: with any event), and that have no
        live lease at the moment. The check is part of the transaction. Without a moment, delete all that exist.
        """

    def _close(self) -> None:  # noqa: B027 - a store may have nothing to close
        """Close connections and files. `EventStore.close` calls this once."""


def _check_not_negative(name: str, value: int) -> None:
    if value < 0:
        raise ValueError(f"{name} must not be negative, got {value}")


def _check_message(message: Message) -> None:
    if message.kind not in MESSAGE_KINDS:
        *kinds, last_kind = MESSAGE_KINDS
        raise ValueError(f"kind of a message must be {', '.join(kinds)} or {last_kind}, got {message.kind!r}")
    for name in ("execution_id", "key", "source"):
        if not getattr(message, name):
            raise ValueError(f"{name} of a message must not be empty")
        # The encoder refuses half a surrogate pair, which UTF-8 cannot represent.
        encode(getattr(message, name), name)
