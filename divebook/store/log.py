"""The logs of a store: events in the order they were appended, and a line about each execution."""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING

from divebook.engine.lifecycle import STATUSES
from divebook.errors import (
    CorruptStoreError,
    ExecutionEndedError,
    ExecutionNotFoundError,
    InvalidEventError,
    NewerStoreError,
    NotFoundError,
    SealedError,
    StoreError,
)
from divebook.events.catalog import BOOK, ORIGINS, Payload
from divebook.events.event import Event, to_microseconds
from divebook.events.record import Record
from divebook.store.appending import Appending, Refusal
from divebook.store.batches import Batch, PreparedBatch, records_of
from divebook.store.blobs import packed_but
from divebook.store.codec import Codec, Sealing
from divebook.store.past import History
from divebook.store.preparing import prepare
from divebook.store.records import ExecutionRecord, RecordFilter
from divebook.store.subscribers import Subscribers
from divebook.text.arguments import id_of, require

if TYPE_CHECKING:
    from divebook.store.pages import EventPage

SOUND_PAGE = 200
"""Events read at once from a log that may be damaged."""
MAX_CANDIDATES = 10
"""How many execution ids an error or a look-up names."""
MAX_READABLE = 10_000
"""Executions of which a store remembers that its codec decrypts their logs."""


class EventLogs(ABC):
    """The logs of a store."""

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

        A refused batch does not hold up the others. If the transaction itself fails (disk full, read-only) it raises,
        and nothing is written; with `ConnectionLostError` all of it may be, and a later attempt with the same records
        says so (`Batch.again`) and finds out. A batch without records is not looked at.
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
        """Append as `append_all` does, as far as that takes so many seconds at most; the rest is for another thread.

        A store on a server sends them, and waits so long for its answer. Raises as `append_all` does.
        """
        del seconds  # nothing is known of how long it takes
        return Appending(lambda: self.append_all(batches))

    @property
    def syncs_apart(self) -> bool:
        """Whether `append_unsynced` returns sooner than `append_all` would."""
        return False

    def append_unsynced(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        """As `append_all`, but what is to survive a power failure may do so only after the next `sync`.

        Whoever reads sees it at once, and what is appended after it never survives without it.
        """
        return self.append_all(batches)

    def sync(self) -> None:
        """Return when all that was appended before survives a power failure, as far as it is to.

        Another thread may append meanwhile.
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
        except (InvalidEventError, ExecutionEndedError, SealedError) as error:
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
        SealedError
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
        """Return whether it is known already that this store can decrypt the end of a log."""
        return self._readable.get(execution_id, self) is self.sealing.codec

    def _note_readable(self, execution_id: str) -> None:
        self._readable[execution_id] = self.sealing.codec
        while len(self._readable) > MAX_READABLE:
            self._readable.pop(next(iter(self._readable)), None)

    def _left_of(self, batch: Batch) -> Batch:
        """Return a batch without those of its records that the log has, of which listeners hear now.

        Ids are never given twice, so the end of the log is an exact answer
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
        """Tell listeners of what was written, and note which executions this process has begun."""
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

        For whoever folds them: events are made of them only where somebody looks.
        """
        self._check_open()
        records = self._read_records(execution_id, max(after, 0), last)
        if records and last == sys.maxsize:
            self._note_readable(execution_id)
        return records[1:] if records and records[0].last_sequence <= after else records

    def facts(self, execution_id: str, sequences: Sequence[int]) -> dict[int, Payload]:
        """Return what some events of a log say, by sequence number, with one look at it; raises as `read` does."""
        self._check_open()
        return self._facts(execution_id, sequences) if sequences else {}

    def page(self, execution_id: str, after: int, limit: int) -> EventPage:
        """Return events as `read` does, as columns; what they say stays undecoded.

        Raises
        ------
        ExecutionNotFoundError, NewerStoreError, CorruptStoreError
            As of `read`. What only decoding finds is found when it is decoded.
        """
        self._check_open()
        return self._page(execution_id, after, limit)

    def read_sound(self, execution_id: str) -> tuple[list[Event], CorruptStoreError | NewerStoreError | None]:
        """Return the events from the first one on, as far as they can be read, and why there are no more of them.

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
                step = 1  # now event by event, as far as the damaged one
                continue
            if not page:
                return events, None
            events += page

    def record(self, execution_id: str) -> ExecutionRecord:
        """Return the line of one execution; ExecutionNotFoundError if there is none."""
        self._check_open()
        return self._opened(self._record(id_of(execution_id)))

    def _opened(self, record: ExecutionRecord) -> ExecutionRecord:
        error, note = self.sealing.open_text(record.error), self.sealing.open_text(record.note)
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
        """Return the lines of the executions that fit, newest first; limit 0 means all, and `key` names books too."""
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
        """Return how many executions one has started, and those in turn, ended ones as well."""
        self._check_open()
        return self._descendants(execution_id)

    def asking(self, question_id: str | None = None) -> list[tuple[str, str]]:
        """Return the open questions of executions that have not ended, each with the id of its execution before it.

        The newest execution comes first. No log is read.

        Parameters
        ----------
        question_id
            Only those of this id; several executions may ask one.
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
    """Return the first ids in order, as `_candidates` wants them."""
    return sorted(ids)[: MAX_CANDIDATES + 1]
