"""Interface of an event store. Every implementation passes ``tests/store/conformance.py``.

`EventStore` combines one abstract class for each kind of data (logs, leases, messages, checkpoints, large values,
summaries for lists) with one for maintenance. These classes contain the code that all stores share: they check and
encode input, allow one writer at a time, and notify listeners after the commit. A subclass reads and writes the rows.
"""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, Self

from divebook.engine.lifecycle import STATUSES
from divebook.errors import (
    CorruptStoreError,
    DecryptionError,
    ExecutionEndedError,
    ExecutionNotFoundError,
    InvalidEventError,
    NewerStoreError,
    NotFoundError,
    StoreClosedError,
    StoreError,
)
from divebook.events.catalog import BOOK, ENQUEUED, LEFT_ALONE, ORIGINS, Payload
from divebook.events.event import Event, Record, to_microseconds
from divebook.store.append import (
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
from divebook.store.codec import Codec, Sealing
from divebook.store.encoding import chain, decode_facts, head, packed_but, width_of
from divebook.store.history import History
from divebook.store.leases import LeaseBook, Moment, Queues
from divebook.store.messages import Arrivals, Listener, Mailbox, News, NewsListener, Subscribers
from divebook.text.arguments import id_of, require

if TYPE_CHECKING:
    from divebook.store.pages import EventPage


# --- event logs ---------
# Events in the order in which they were appended, and one summary row for each execution.


SOUND_PAGE = 200
"""Number of events that `read_sound` reads at a time from a log that may be damaged."""
MAX_CANDIDATES = 10
"""Maximum number of execution ids that an error or a look-up names."""
MAX_READABLE = 10_000
"""Maximum number of executions for which a store caches that its codec decrypts their logs."""


class EventLogs(ABC):
    """Event logs of a store: append, delete, read and list."""

    _lock: threading.RLock
    _subscribers: Subscribers
    sealing: Sealing
    keeps: bool
    _packed_lately: dict[bytes, None]
    _readable: dict[str, Codec | None]

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(
        self, execution_id: str, events: Sequence[Event], expected_sequence: int, token: int | None = None
    ) -> None:
        """Append events to one log, all or none.

        The events that end an execution also release its lease.

        Raises
        ------
        ConcurrentAppendError
            The log does not end at `expected_sequence`.
        FencedError
            `token` is not that of the execution's latest lease.
        ExecutionEndedError
            The execution has ended, and the events may not follow that (`divebook.engine.lifecycle`).
        StartKeyTakenError
            Another execution was started with this key; names it.
        InvalidEventError
            ``invalid event at index i: ...``.
        ExecutionNotFoundError
            `expected_sequence` is not 0 and there is no such log.
        """
        (refusal,) = self.append_all((Batch(execution_id, expected_sequence, records_of(events), token),))
        if refusal is not None:
            raise refusal

    def append_all(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        """Append many batches in one transaction; return, for each, why it was refused, or None.

        A refused batch does not affect the others. If the transaction itself fails (disk full, read-only), the error is
        raised and nothing is written. After a `ConnectionLostError` everything may have been written: a retry with the
        same records sets `Batch.again`, and skips those that the log has. A batch without records is ignored.
        """
        self._check_open()
        checked = [self._checked(batch) for batch in batches]
        accepted = [entry for entry in checked if isinstance(entry, PreparedBatch)]
        answers = self._write_and_tell(accepted) if accepted else []
        if len(answers) == len(checked):
            return answers
        remaining = iter(answers)
        return [next(remaining) if isinstance(entry, PreparedBatch) else entry for entry in checked]

    def append_in_a_moment(self, batches: Sequence[Batch], seconds: float) -> Appending:
        """Start an `append_all` that blocks for at most `seconds`; another thread can finish it.

        A store on a server sends the batches and waits up to `seconds` for the answer. Raises as `append_all` does.
        """
        del seconds  # the duration of a commit is unknown here
        return Appending(lambda: self.append_all(batches))

    @property
    def syncs_apart(self) -> bool:
        """True if `append_unsynced` returns sooner than `append_all`."""
        return False

    def append_unsynced(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        """Append as `append_all` does, but survive a power failure possibly only after the next `sync`.

        Readers see the events at once. Later appends never survive a power failure without these events.
        """
        return self.append_all(batches)

    def sync(self) -> None:
        """Block until earlier appends survive a power failure, as far as their durability requires it.

        Another thread may append during the call.
        """
        self._check_open()

    def _checked(self, batch: Batch) -> PreparedBatch | Refusal | None:
        """Return a batch ready to be written, or why it is refused; None for one without records that the log lacks."""
        if batch.again:
            batch = self._left_of(batch)
        if not batch.records:
            return None
        try:
            if batch.expected_sequence:
                self.check_key(batch.source or batch.execution_id)
            prepared = prepare(batch, self.sealing)
        except (InvalidEventError, ExecutionEndedError, DecryptionError) as error:
            return error
        if prepared.blobs and self.keeps:
            prepared.packed = packed_but(prepared.blobs, self._packed_lately)
        return prepared

    def check_key(self, execution_id: str) -> None:
        """Check that this store can decrypt the end of a log. Every write to an existing execution needs that.

        Events written with another key, or in plain text, would make the log unreadable for those who have its key, or
        disclose what it encrypts. Costs one read per execution and process; executions begun here need none.

        Raises
        ------
        DecryptionError
            The log was encrypted with another key, or there is no key. Nothing was written.
        """
        if self._is_readable(execution_id):
            return
        # Damage and unknown executions are reported by the write itself; a damaged log still accepts notes.
        with suppress(ExecutionNotFoundError, CorruptStoreError, NewerStoreError):
            last = self._last_sequence(execution_id)
            self._read_records(execution_id, last - 1, last)
            self._note_readable(execution_id)

    def _is_readable(self, execution_id: str) -> bool:
        """Return True if the cache records that this store can decrypt the end of a log."""
        return self._readable.get(execution_id, self) is self.sealing.codec

    def _note_readable(self, execution_id: str) -> None:
        self._readable[execution_id] = self.sealing.codec
        while len(self._readable) > MAX_READABLE:
            self._readable.pop(next(iter(self._readable)), None)

    def _left_of(self, batch: Batch) -> Batch:
        """Return a batch without the records that the log already has, and notify listeners of those.

        Record ids are unique, so comparing them with the end of the log is exact
        (test_a_batch_whose_commit_nobody_knows_of_is_written_once).
        """
        try:
            wanted = batch.last_sequence - batch.expected_sequence
            found = {event.id for event in self._read(batch.execution_id, batch.expected_sequence, wanted)}
        except ExecutionNotFoundError:
            return batch
        written = len(list(takewhile(lambda record: record.id in found, batch.records)))
        if written:
            with self._lock:
                self._subscribers.tell(batch.execution_id, batch.records[:written])
        return batch.without(written)

    def _write_and_tell(self, batches: Sequence[PreparedBatch]) -> list[Refusal | None]:
        with self._lock:
            answers = self._write(batches)
            self._tell(batches, answers)
        return answers

    def _tell(self, batches: Sequence[PreparedBatch], answers: Sequence[Refusal | None]) -> None:
        """Notify listeners of written records, and mark executions begun by this process as readable."""
        has_listeners = bool(self._subscribers.listeners)
        for batch, answer in zip(batches, answers, strict=True):
            if answer is None and batch.beginning is not None:
                self._note_readable(batch.execution_id)
            if answer is None and has_listeners:
                self._subscribers.tell(batch.execution_id, batch.records)

    def delete(self, execution_id: str) -> None:
        """Delete one log for good, whatever its status."""
        self._check_open()
        with self._lock:
            self._delete(execution_id)
            self._subscribers.tell(execution_id, ())

    def cleanup(self, before: datetime) -> int:
        """Delete completed, failed and cancelled executions that ended before a moment; return how many."""
        self._check_open()
        if before.tzinfo is None:
            raise ValueError(f"before needs a time zone, got {before.isoformat()}; use datetime.now(UTC) - age")
        with self._lock:
            deleted = self._cleanup(to_microseconds(before))
            for execution_id in deleted:
                self._subscribers.tell(execution_id, ())
        return len(deleted)

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the events with sequences above `after`, ascending, at most `limit`.

        Raises
        ------
        ExecutionNotFoundError
            There is no such log.
        NewerStoreError
            A newer divebook wrote one of the events.
        CorruptStoreError
            An event cannot be decoded, or one is missing.
        """
        self._check_open()
        if limit is not None:
            _check_not_negative("limit", limit)
        return self._read(id_of(execution_id), max(after, 0), limit)

    def _read(self, execution_id: str, after: int, limit: int | None) -> list[Event]:
        last = sys.maxsize if limit is None else after + limit
        records = self._read_records(execution_id, after, last)
        return [event for record in records for event in record.events_above(after, last)]

    def history(self, execution_id: str, after: int = 0) -> History:
        """Return the events of one log with sequences above `after`, which are read when they are looked at.

        Raises
        ------
        ExecutionNotFoundError
            There is no such log.
        """
        self._check_open()
        return History(self, execution_id, max(after, 0), self._last_sequence(execution_id))

    def read_records(self, execution_id: str, after: int = 0, last: int = sys.maxsize) -> list[Record]:
        """Return the records that hold the events with sequences above `after` up to `last`; raises as `read` does.

        For callers that fold a log: a record creates its `Event` objects only on access.
        """
        self._check_open()
        records = self._read_records(execution_id, max(after, 0), last)
        if records and last == sys.maxsize:
            self._note_readable(execution_id)
        return records[1:] if records and records[0].last_sequence <= after else records

    def facts(self, execution_id: str, sequences: Sequence[int]) -> dict[int, Payload]:
        """Return the payloads of some events of a log by sequence number, in one read; raises as `read` does."""
        self._check_open()
        return self._facts(execution_id, sequences) if sequences else {}

    def page(self, execution_id: str, after: int, limit: int) -> EventPage:
        """Return events as `read` does, as columns with undecoded payloads.

        Raises
        ------
        ExecutionNotFoundError, NewerStoreError, CorruptStoreError
            As of `read`. Faults of a payload are raised when it is decoded.
        """
        self._check_open()
        return self._page(execution_id, after, limit)

    def read_sound(self, execution_id: str) -> tuple[list[Event], CorruptStoreError | NewerStoreError | None]:
        """Return the readable events from the first one on, and the error that ended the read, or None.

        Raises
        ------
        ExecutionNotFoundError
            There is no such log.
        """
        events: list[Event] = []
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

    def record(self, execution_id: str) -> ExecutionRecord:
        """Return the summary row of one execution; raise ExecutionNotFoundError if there is none."""
        self._check_open()
        return self._opened(self._record(id_of(execution_id)))

    def _opened(self, record: ExecutionRecord) -> ExecutionRecord:
        error = self.sealing.open_text(record.error)
        note = self.sealing.open_text(record.note)
        return record if (error, note) == (record.error, record.note) else replace(record, error=error, note=note)

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
        """Return the rows of matching executions, newest first. Limit 0 means all; a `key` also matches books."""
        self._check_open()
        _check_not_negative("limit", limit)
        _check_not_negative("offset", offset)
        texts = {"status": status, "workflow": workflow, "tag": tag, "origin": origin, "parent": parent}
        for name, value in {**texts, "notebook": notebook, "cell": cell, "key": key}.items():
            require(value, name, "a string", fits=isinstance(value, str))
        if status is not None and status not in STATUSES:
            raise NotFoundError("status", status, STATUSES)
        if origin is not None and origin not in ORIGINS:
            raise NotFoundError("origin", origin, ORIGINS)
        wanted = RecordFilter(status, workflow, tag, origin, parent, notebook, cell, key, bool(key) or origin == BOOK)
        return [self._opened(record) for record in self._records(wanted, limit, offset)]

    def unended(self) -> list[ExecutionRecord]:
        """Return the executions that have not ended, newest first, without books."""
        self._check_open()
        return [self._opened(record) for record in self._unended() if record.origin != BOOK]

    def descendants(self, execution_id: str) -> int:
        """Return the number of direct and indirect child executions, including ended ones."""
        self._check_open()
        return self._descendants(execution_id)

    def asking(self, question_id: str | None = None) -> list[tuple[str, str]]:
        """Return the open questions of executions that have not ended, each with the id of its execution before it.

        The newest execution comes first. No log is read.

        Parameters
        ----------
        question_id
            Return only questions with this id. Several executions may have one.
        """
        self._check_open()
        return self._asking(question_id)

    def resolve(self, prefix: str) -> str:
        """Return the one execution id that begins with `prefix`; the leading ``exec_`` may be left out.

        Raises
        ------
        ExecutionNotFoundError
            None does; names those that exist.
        StoreError
            Several do; names them.
        """
        self._check_open()
        prefix = id_of(prefix)
        candidates = self._candidates(prefix) or self._candidates(f"exec_{prefix}")
        if prefix in candidates or len(candidates) == 1:
            return prefix if prefix in candidates else candidates[0]
        if not candidates or not prefix:
            raise self._unknown(prefix)
        more = ", ..." if len(candidates) > MAX_CANDIDATES else ""
        raise StoreError(
            f"execution id {prefix!r} is ambiguous: {', '.join(candidates[:MAX_CANDIDATES])}{more}. Type more of it"
        )

    def _unknown(self, execution_id: str) -> ExecutionNotFoundError:
        latest = self._records(RecordFilter(), MAX_CANDIDATES, 0)
        return ExecutionNotFoundError(execution_id, [record.execution_id for record in latest])

    @abstractmethod
    def _check_open(self) -> None: ...

    # --- what an implementation does; whatever writes is called with the lock held -----------------------------------

    @abstractmethod
    def _write(self, batches: Sequence[PreparedBatch]) -> list[Refusal | None]: ...

    @abstractmethod
    def _read_records(self, execution_id: str, after: int, last: int) -> list[Record]:
        """Return the records that hold the events above `after` up to `last`; one before them does not matter."""

    @abstractmethod
    def _facts(self, execution_id: str, sequences: Sequence[int]) -> dict[int, Payload]: ...

    def _page(self, execution_id: str, after: int, limit: int) -> EventPage:
        from divebook.store.pages import EventPage

        return EventPage.of(self._read(execution_id, after, limit))

    def _last_sequence(self, execution_id: str) -> int:
        return self._record(execution_id).last_sequence

    @abstractmethod
    def _record(self, execution_id: str) -> ExecutionRecord: ...

    @abstractmethod
    def _records(self, wanted: RecordFilter, limit: int, offset: int) -> list[ExecutionRecord]: ...

    @abstractmethod
    def _unended(self) -> list[ExecutionRecord]: ...

    @abstractmethod
    def _descendants(self, execution_id: str) -> int: ...

    @abstractmethod
    def _asking(self, question_id: str | None) -> list[tuple[str, str]]: ...

    @abstractmethod
    def _candidates(self, prefix: str) -> list[str]:
        """Return ids that begin with `prefix`, sorted, at most one more than `MAX_CANDIDATES`."""

    @abstractmethod
    def _delete(self, execution_id: str) -> None: ...

    @abstractmethod
    def _cleanup(self, before: int) -> list[str]:
        """Delete what ended before, in microseconds; return the ids."""


def _check_not_negative(name: str, value: int) -> None:
    if value < 0:
        raise ValueError(f"{name} must not be negative, got {value}")


def first_sorted(ids: Iterable[str]) -> list[str]:
    """Return the first ids in sorted order, with the length limit of `_candidates`."""
    return sorted(ids)[: MAX_CANDIDATES + 1]


# --- checkpoints ---------
# Cached folds of logs up to an event, so that a long log need not be folded from its beginning.


class Checkpoints(ABC):
    """The newest checkpoint of each execution."""

    _lock: threading.RLock
    sealing: Sealing

    def put_checkpoint(self, execution_id: str, sequence: int, data: bytes) -> None:
        """Store the fold of a log up to an event. It replaces an older checkpoint, but never a newer one.

        A checkpoint is a cache: deleting it changes nothing but the time it takes to fold the log again.

        Raises
        ------
        StoreError
            The log does not reach that far.
        ExecutionNotFoundError
            There is no such log.
        DecryptionError
            The log was encrypted with another key, or there is no key.
        """
        self._check_open()
        self.check_key(execution_id)
        with self._lock:
            self._put_checkpoint(execution_id, sequence, self.sealing.seal_packed(data))

    def drop_checkpoints(self, execution_ids: Sequence[str] | None = None) -> int:
        """Delete the checkpoints of some executions, or of all; return how many."""
        self._check_open()
        with self._lock:
            return self._drop_checkpoints(self._checkpoints() if execution_ids is None else execution_ids)

    def checkpoint(self, execution_id: str) -> tuple[int, bytes] | None:
        """Return the sequence number and the data of the newest checkpoint; None if there is none, or it is damaged."""
        self._check_open()
        found = self._checkpoint(execution_id)
        return None if found is None else (found[0], self.sealing.open_packed(found[1]))

    def checkpoints(self) -> list[str]:
        """Return the ids of the executions that have a checkpoint, sorted."""
        self._check_open()
        return sorted(self._checkpoints())

    @abstractmethod
    def _check_open(self) -> None: ...

    @abstractmethod
    def check_key(self, execution_id: str) -> None: ...  # noqa: D102 - documented in `divebook.store.base`

    # --- what an implementation does; what writes is called with the lock held ---------------------------------------

    @abstractmethod
    def _put_checkpoint(self, execution_id: str, sequence: int, data: bytes) -> None: ...

    @abstractmethod
    def _checkpoint(self, execution_id: str) -> tuple[int, bytes] | None: ...

    @abstractmethod
    def _checkpoints(self) -> list[str]: ...

    @abstractmethod
    def _drop_checkpoints(self, execution_ids: Sequence[str]) -> int: ...


def check_reached(execution_id: str, sequence: int, last: int) -> None:
    """Raise StoreError unless the log contains the event of a checkpoint."""
    if not 0 < sequence <= last:
        raise StoreError(
            f"execution {execution_id} has events 1 to {last}, so it can have no checkpoint at {sequence}; "
            "write the events first"
        )


# --- large values ---------
# Each is stored once under its hash; `divebook.store.encoding` replaces it by a reference.


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """One large value."""

    digest: bytes
    stored: int
    """Bytes on disk."""
    used: bool
    """True if an execution refers to the value."""


class LargeValues(ABC):
    """Maintenance of large values: list, read, and delete unreferenced ones."""

    _lock: threading.RLock

    def blobs(self, without: Collection[str] = ()) -> list[StoredBlob]:
        """Return the large values; `used` ignores references from the executions in `without`."""
        self._check_open()
        return self._blobs(without)

    def blob(self, digest: bytes) -> bytes | None:
        """Return the content of a large value; None if it is missing.

        Raises
        ------
        CorruptStoreError
            It cannot be decompressed.
        """
        self._check_open()
        return self._blob(digest)

    def drop_blobs(self) -> int:
        """Delete the large values that no execution refers to; return how many."""
        self._check_open()
        with self._lock:
            return self._drop_blobs()

    @abstractmethod
    def _check_open(self) -> None: ...

    # --- what an implementation does; the last one is called with the lock held --------------------------------------

    @abstractmethod
    def _blobs(self, without: Collection[str]) -> list[StoredBlob]: ...

    @abstractmethod
    def _blob(self, digest: bytes) -> bytes | None: ...

    @abstractmethod
    def _drop_blobs(self) -> int: ...


# --- summaries for lists ---------
# Cached folds of logs that lists show in addition to the rows of the executions.


class StoredSummary(NamedTuple):
    """Cached summary of a log up to one of its events."""

    sequence: int
    """Sequence number of the last summarized event."""
    data: bytes


class Listing(ABC):
    """Cache of the summaries that lists of executions show."""

    _lock: threading.RLock
    sealing: Sealing

    # --- summaries ---------------------------------------------------------------------------------------------------

    def put_summaries(self, summaries: Mapping[str, StoredSummary]) -> None:
        """Keep the summaries of executions, in place of older ones; ignore unknown executions.

        A summary is a cache: deleting it changes nothing but the time it takes to list the execution.
        """
        self._check_open()
        sealed = {name: (sequence, self.sealing.seal_packed(data)) for name, (sequence, data) in summaries.items()}
        with self._lock:
            self._put_summaries({name: StoredSummary(*kept) for name, kept in sealed.items()})

    def summaries(self, execution_ids: Sequence[str]) -> dict[str, StoredSummary]:
        """Return the summaries of executions, with one look; without those that have none, or a damaged one."""
        self._check_open()
        found: dict[str, StoredSummary] = {}
        for name, (sequence, data) in self._summaries(execution_ids).items():
            with suppress(DecryptionError, CorruptStoreError):  # an unreadable cache entry counts as missing
                found[name] = StoredSummary(sequence, self.sealing.open_packed(data))
        return found

    @abstractmethod
    def _check_open(self) -> None: ...

    # --- what an implementation does; what writes is called with the lock held ---------------------------------------

    @abstractmethod
    def _put_summaries(self, summaries: Mapping[str, StoredSummary]) -> None: ...

    @abstractmethod
    def _summaries(self, execution_ids: Sequence[str]) -> dict[str, StoredSummary]: ...


# --- maintenance ---------
# Undecoded logs and deletion. `divebook check` and `gc` use only this interface, so one implementation serves every
# kind of store.


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record, undecoded."""

    sequence: int
    recorded_at: int
    type: str
    id: str
    path: str
    step: str
    payload: bytes
    checksum: int | None
    """None for events that were written before there were checksums."""

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last event of the record."""
        return self.sequence + width_of(self.type) - 1

    def checksum_after(self, previous: int) -> int:
        """Return the checksum expected for the record if the preceding record has checksum `previous`."""
        return chain(previous, [head(self.recorded_at, self.type, self.id, self.path, self.step)], [self.payload])[0]

    def record(self, execution_id: str, payload: bytes) -> Record:
        """Return the decoded record. `payload` is its decrypted payload with the large values inserted.

        Raises
        ------
        NewerStoreError, CorruptStoreError
            The facts in the payload cannot be decoded.
        """
        facts = tuple(decode_facts(self.type, payload))
        return Record(self.id, execution_id, self.sequence, self.recorded_at, facts, self.path, self.step)


@dataclass(frozen=True, slots=True)
class StoredLog:
    """One execution's line and log, as of one moment."""

    record: ExecutionRecord
    """Row as it was stored. The log of a running execution may be longer."""
    checksum: int
    """Checksum of the record that ends with the last event counted in the row."""
    records: list[StoredRecord]
    blobs: frozenset[bytes]
    """Digests of the large values that the store lists as referenced by the execution."""
    questions: frozenset[str]
    """Ids of the questions that the store lists as open."""
    shared: int = 0
    """Number of events shared with the execution that was forked. They do not count towards the size of the log."""
    shared_blobs: frozenset[bytes] = frozenset()
    """Digests of the large values listed for the executions whose events this log shares."""
    broken: str | None = None
    """Reason why the remaining records cannot be read, or None."""
    altered: bool = False
    """True if the row does not match its own checksum."""
    checkpoint_fits: bool = True
    """False if there is a checkpoint that is damaged or belongs to another log."""


class Upkeep(ABC):
    """The maintenance of a store: logs as they are stored, and what may be deleted."""

    _lock: threading.RLock
    _subscribers: Subscribers

    def ids(self) -> list[str]:
        """Return the ids of all executions, newest first; records that are damaged do not matter."""
        self._check_open()
        return self._ids()

    def stored_log(self, execution_id: str) -> StoredLog:
        """Return a log undecoded; ExecutionNotFoundError if there is none."""
        self._check_open()
        return self._stored_log(execution_id)

    def faults(self) -> list[str]:
        """Return descriptions of the faults that the store detects in itself as a whole."""
        self._check_open()
        return self._faults()

    def discard(self, execution_ids: Sequence[str], now: int | None = None) -> list[str]:
        """Delete those of the executions that have ended and that no process is resuming; return their ids."""
        self._check_open()
        with self._lock:
            discarded = self._discard(execution_ids, self._moment(now))
            for execution_id in discarded:
                self._subscribers.tell(execution_id, ())
        return discarded

    @abstractmethod
    def _moment(self, now: int | None) -> Moment: ...

    @abstractmethod
    def _check_open(self) -> None: ...

    # --- what an implementation does; the last one is called with the lock held -------------------------------------

    @abstractmethod
    def _ids(self) -> list[str]: ...

    @abstractmethod
    def _stored_log(self, execution_id: str) -> StoredLog: ...

    @abstractmethod
    def _faults(self) -> list[str]: ...

    @abstractmethod
    def _discard(self, execution_ids: Sequence[str], moment: Moment) -> list[str]: ...


class EventStore(EventLogs, LeaseBook, Queues, Mailbox, Checkpoints, LargeValues, Listing, Upkeep):
    """Logs of executions. Methods block, and may be called from several threads.

    Examples
    --------
    >>> from divebook.store import MemoryStore
    >>> with MemoryStore() as store:
    ...     store.records()
    []
    """

    location: str
    """Path or URL of the store, without its password. `open_store` opens it again."""
    keeps: bool = True
    """True if written data outlives the process."""
    shared: bool = True
    """True if other processes can open the store as well."""
    local: bool = True
    """True if a commit is fast enough to block the calling event loop; a commit over a network is not."""
    durability: Durability = FULL
    """Durability of batches that do not specify one."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._subscribers = Subscribers()
        self._arrivals = Arrivals()
        self._news = News()
        self.sealing = Sealing(packs=self.keeps)
        """Encryption of values. Set its `codec` before the first write."""
        self._closed = False
        self._packed_lately: dict[bytes, None] = {}
        self._readable: dict[str, Codec | None] = {}
        """Executions whose logs were decrypted, with the codec that did it (`check_key`)."""

    def orphans(self, now: int | None = None) -> list[ExecutionRecord]:
        """Return the executions that can continue but that no process drives, newest first.

        A waiting execution can continue when its timer is due, when it has a message, or when its driver died before
        it had parked the execution. Enqueued executions are excluded: workers `claim` those.
        """
        self._check_open()
        found = self._orphans(self._moment(now))
        return [self._opened(left) for left in found if left.origin not in LEFT_ALONE and left.status != ENQUEUED]

    # --- listening and closing ---------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener(execution_id, events)`` after each commit; return a function that ends it.

        The appending thread makes the calls, in commit order, and they block other writers: pass the events on and
        return. For a deleted execution `events` is empty. Appends of other processes cause no call; see `on_news`.
        """
        return self._subscribers.add(listener)

    def on_news(
        self,
        listener: NewsListener,
        execution_id: str | None = None,  # noqa: ARG002 - a server's store asks for it
    ) -> Callable[[], None]:
        """Call ``listener()`` in a thread of the store once soon, and then at all news; see `wait_for_news`.

        Call the returned function to stop. Appends of other processes are reported at least for the log of
        `execution_id`; a store on a server reports no others.
        """
        return self._news.add(listener, self.wait_for_news)

    @property
    def in_place(self) -> bool:
        """True if the location still refers to the open store. If not, the store can be read but not written."""
        return True

    @property
    def closed(self) -> bool:
        """True if `close` was called."""
        return self._closed

    def close(self) -> None:
        """Release all resources. A second call has no effect on the store."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._close()
        self._arrivals.add()  # wake the threads that wait for news, so that they see the store is closed
        self._news.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.location}>"

    def _check_open(self) -> None:
        if self._closed:
            told = f"the store {self.location} is closed; open it again with open_store({self.location!r})"
            raise StoreClosedError(told)

    @abstractmethod
    def _orphans(self, moment: Moment) -> list[ExecutionRecord]: ...

    @abstractmethod
    def _close(self) -> None: ...
