"""What `divebook check` and `gc` ask of a store: logs as they are stored, before decoding, and what may be deleted.

`check` and `gc` are written on this, once for every kind of store.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from divebook.events.record import Record
from divebook.store.checksums import chain, head
from divebook.store.facts import decode_facts, width_of
from divebook.store.leases import Moment
from divebook.store.records import ExecutionRecord
from divebook.store.subscribers import Subscribers


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
        """Of its last event."""
        return self.sequence + width_of(self.type) - 1

    def checksum_after(self, previous: int) -> int:
        """Return the checksum that it must have after one with checksum `previous`."""
        return chain(previous, [head(self.recorded_at, self.type, self.id, self.path, self.step)], [self.payload])[0]

    def record(self, execution_id: str, payload: bytes) -> Record:
        """Return it decoded; `payload` is its own, opened and with its large values in it.

        Raises
        ------
        NewerStoreError, CorruptStoreError
            They cannot be read.
        """
        facts = tuple(decode_facts(self.type, payload))
        return Record(self.id, execution_id, self.sequence, self.recorded_at, facts, self.path, self.step)


@dataclass(frozen=True, slots=True)
class StoredLog:
    """One execution's line and log, as of one moment."""

    record: ExecutionRecord
    """As it was noted: the log of an execution that goes on may be longer."""
    checksum: int
    """That of the record which ends with the last event that was noted."""
    records: list[StoredRecord]
    blobs: frozenset[bytes]
    """The large values that the execution is noted to refer to."""
    questions: frozenset[str]
    """The questions that are noted to be open."""
    shared: int = 0
    """How many of the events are those of the execution that it forked; its size does not count them."""
    shared_blobs: frozenset[bytes] = frozenset()
    """The large values that others are noted to refer to, whose events it shares."""
    broken: str | None = None
    """Why no more records can be read, if so."""
    altered: bool = False
    """Whether the record is not as it was written, by a checksum of its own."""
    checkpoint_fits: bool = True
    """Whether its checkpoint, if it has one, is as it was written, and of this log."""


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
        """Return what is wrong with the store as a whole, as far as the store itself can tell."""
        self._check_open()
        return self._faults()

    def discard(self, execution_ids: Sequence[str], now: int | None = None) -> list[str]:
        """Delete, of some executions, those that have ended and that no process has begun to resume; return which."""
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
