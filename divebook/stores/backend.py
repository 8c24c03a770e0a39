"""Protocols that the back ends of event stores implement, and the rows of their tables as they are stored, with their
checks, their decoding and the texts of their errors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self
from zlib import crc32

from divebook.engine.inbox import Message
from divebook.errors import CorruptStoreError, DecryptionError, NewerStoreError, StoreError
from divebook.events.codec import decode
from divebook.events.event import Record
from divebook.stores.append import ExecutionRecord, RecordFilter
from divebook.stores.codec import Sealing
from divebook.stores.encoding import Fetch, chain, decode_facts, head, of_row, reached, width_of
from divebook.stores.leases import Moment, QueuedExecution, WorkerRecord

MAX_CANDIDATES = 10
"""Maximum number of execution ids that an error message or a search by prefix lists."""


# --- the protocol for stores of users ---


class SimpleStore(Protocol):
    """Protocol of a small event store: lists of entries, to which entries are only appended.

    ``Environment(store=...)`` and the factories of `register_store` take such a store. `StoreAdapter` adds everything
    else: lists of executions, leases, messages, queues, open questions. It stores these in memory, so only one process
    can use the store at a time.

    An entry is a dict of strings, numbers, booleans, None, lists and dicts, which `json.dumps` accepts. A store returns
    entries exactly as it received them, and need not understand them. Only one thread at a time calls the methods, but
    not always the same thread.

    A store may also have the methods ``delete(execution_id)`` and ``close()``. Without `delete`, the entries of a
    deleted execution stay in the store and are ignored.
    """

    def append(self, execution_id: str, entries: Sequence[Mapping[str, Any]], expected: int, /) -> None:
        """Append entries to one list: all of them or none. When the method returns, the entries must be on disk.

        `expected` is the number of entries that the list must have before the call. If the list has a different number
        of entries, the store raises `divebook.errors.ConcurrentAppendError`, so that a second process cannot write by
        mistake. An `OSError` means that the store is busy: divebook appends the entries again later, unless they can
        already be read.
        """

    def read(self, execution_id: str, after: int, /) -> Iterable[Mapping[str, Any]]:
        """Return the entries of one list in their order, without the first `after` entries. For an unknown id, return
        no entries.
        """

    def ids(self) -> Iterable[str]:
        """Return the ids of all lists that have entries."""


# --- protocols ---
# The parts of a back end. `EventStore` checks the arguments before it calls them, holds its lock during calls that
# write, and encrypts and decrypts what they store.


class ListBackend(Protocol):
    """Rows of executions: one, or lists of them."""

    def record(self, execution_id: str) -> ExecutionRecord:
        """Return the row of one execution. Raise ExecutionNotFoundError for an unknown id."""

    def records(self, record_filter: RecordFilter, limit: int, offset: int) -> list[ExecutionRecord]:
        """Return the rows that a filter matches, newest first, without those that are damaged; `limit` 0 means all."""

    def orphans(self, moment: Moment) -> list[ExecutionRecord]:
        """Return the executions that can continue and have no live lease, newest first. `EventStore.orphans` filters
        them by origin and status.
        """

    def descendants(self, execution_id: str) -> int:
        """Return the number of direct and indirect child executions of an execution."""

    def asking(self, question_id: str | None) -> list[tuple[str, str]]:
        """Return the open questions of executions that have not ended, as pairs of execution id and question id: all
        of them, or those with one question id.
        """

    def ids(self, prefix: str | None = None) -> list[str]:
        """Return the ids of all executions, newest first. With a prefix, return the ids that begin with it, sorted; at
        most ``MAX_CANDIDATES + 1`` ids.
        """


class QueueBackend(Protocol):
    """Queue entries of executions, schedules, and records of workers."""

    def queued(self, *, withheld: bool) -> list[QueuedExecution]:
        """Return the queue entries of executions that have not ended, in the order in which workers claim them: with
        `withheld` the entries that workers skip, otherwise the entries that they may claim.
        """

    def withhold(self, execution_id: str) -> None:
        """Mark an execution so that workers skip it. If the execution is not in a queue, do nothing."""

    def schedule(self, name: str, moment: int, *, advances: bool) -> int:
        """Return the time up to which the due times of a schedule have been handled, in microseconds since 1970. Store
        `moment` as this time for a new schedule, and, with `advances`, in place of an earlier time.
        """

    def announce(self, worker: WorkerRecord, until: int, delete_before: int) -> None:
        """Write the record of a running worker, valid up to `until`. Delete the records of workers that expired before
        `delete_before`.
        """

    def retire(self, worker_id: str) -> None:
        """Delete the record of a worker."""

    def workers(self) -> list[WorkerRecord]:
        """Return the records of all workers, including expired ones."""


class CacheBackend(Protocol):
    """Caches of executions: checkpoints of their state, and summaries for lists."""

    def put_checkpoint(self, execution_id: str, sequence: int, data: bytes) -> None:
        """Write a checkpoint of an execution, and delete those that are not the newest of their part of the log
        (`part_of_log`). Call `check_reached` first, in the same transaction.
        """

    def checkpoint(self, execution_id: str, at: int) -> tuple[int, bytes] | None:
        """Return the newest checkpoint of an execution at or before event `at`, as sequence number and data. Return
        None if there is none, or if it is damaged or was made for a log with other events.
        """

    def checkpoints(self) -> list[str]:
        """Return the ids of the executions that have a checkpoint."""

    def drop_checkpoints(self, execution_ids: Sequence[str]) -> int:
        """Delete the checkpoints of executions; return the number of deleted checkpoints."""

    def put_summaries(self, summaries: Mapping[str, StoredSummary]) -> None:
        """Write summaries of executions in place of older ones; ignore unknown executions."""

    def summaries(self, execution_ids: Sequence[str]) -> dict[str, StoredSummary]:
        """Return the summaries of the given executions, without missing and damaged ones."""


class BlobBackend(Protocol):
    """Large values (blobs), each stored once for all executions that use it."""

    def blobs(self, without: Collection[str]) -> list[StoredBlob]:
        """Return each large value with its size, and whether an execution uses it. Executions whose ids are in
        `without` do not count as users.
        """

    def blob(self, digest: bytes) -> bytes | None:
        """Return the content of a large value, still encrypted; None if it is missing."""

    def drop_unused(self) -> int:
        """Delete the large values that no execution uses; return the number of deleted values."""


# --- stored forms ---
# Rows as a store contains them. All stores check and decode them here, so that errors have the same text everywhere.
# `divebook check` and `gc` use only these and the methods above, so that one implementation serves every kind of store.


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record of a log as the store contains it, with an undecoded payload."""

    sequence: int
    recorded_at: int
    type: str
    id: str
    path: str
    step: str
    payload: bytes
    checksum: int | None
    """Checksum of the record; None for events of versions that wrote no checksums."""

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last event of the record."""
        return self.sequence + width_of(self.type) - 1

    def checksum_after(self, previous: int) -> int:
        """Return the checksum that this record must have if the record before it in the log has the checksum
        `previous`.
        """
        return chain(previous, [head(self.recorded_at, self.type, self.id, self.path, self.step)], [self.payload])[0]

    def record(self, execution_id: str, payload: bytes) -> Record:
        """Decode this record. `payload` is its decrypted payload, in which large values were inserted in place of their
        references.

        Raises
        ------
        NewerStoreError, CorruptStoreError
            The facts in the payload cannot be decoded.
        """
        facts = tuple(decode_facts(self.type, payload))
        return Record(self.id, execution_id, self.sequence, self.recorded_at, facts, self.path, self.step)

    def decoded(self, execution_id: str, sealing: Sealing, fetch: Fetch) -> Record:
        """Decrypt and decode this record of an execution's log. Large values are loaded with `fetch`.

        Raises
        ------
        NewerStoreError, DecryptionError
            The record has a form that this version does not know, or cannot be decrypted.
        CorruptStoreError
            The payload is not in a form that this or an earlier version has written.
        """
        try:
            return self.record(execution_id, sealing.open_whole(self.payload, fetch))
        except (NewerStoreError, DecryptionError) as error:
            raise type(error)(f"event {self.sequence} of execution {execution_id}: {error}") from error
        # The last three: valid JSON that does not have the form of the payload.
        except (CorruptStoreError, TypeError, AttributeError, ValueError) as error:
            raise self.damage_error(execution_id, error) from error

    def damage_error(self, execution_id: str, reason: object) -> CorruptStoreError:
        """Return the error for this record, which is damaged for the given reason."""
        first = self.sequence
        last = self.last_sequence
        name = f"event {first}" if first == last else f"the record of events {first} to {last}"
        return damage_error(execution_id, name, reason)


WRONG_CHECKSUM = "its content does not match its checksum"
"""Reason why a record is damaged."""


def damage_error(execution_id: str, name: str, reason: object) -> CorruptStoreError:
    """Return the error for a damaged part of a log, such as ``event 3``, which is called `name`."""
    return CorruptStoreError(
        f"{name} of execution {execution_id} is damaged: {reason}. The events before it and the other executions are "
        "readable"
    )


def missing_event_error(execution_id: str, sequence: int) -> CorruptStoreError:
    """Return the error for a log in which an event is missing that its execution's row counts."""
    return CorruptStoreError(
        f"event {sequence} of execution {execution_id} is missing; the events before it are readable"
    )


class StoredMessage(NamedTuple):
    """Row of a message as the store contains it, with an encrypted payload."""

    execution_id: str
    kind: str
    key: str
    payload: str | bytes
    source: str
    posted_at: int
    number: int
    checksum: int

    @classmethod
    def of(cls, message: Message, payload: str | bytes) -> Self:
        """Return the row of a message with an encrypted payload."""
        row = (message.execution_id, message.kind, message.key, payload, message.source, message.posted_at)
        # The checksum does not cover the number, which the store may give later.
        return cls(*row, message.number, of_row(row))

    @property
    def is_sound(self) -> bool:
        """True if the row matches its checksum, which does not cover the number."""
        return of_row(self[:-2]) == self.checksum

    @property
    def damage(self) -> str:
        """Description of a row that does not match its checksum."""
        return f"message {self.number} to execution {self.execution_id} does not match its checksum"

    def opened(self, sealing: Sealing) -> Message:
        """Return the decrypted message.

        Raises
        ------
        CorruptStoreError
            The row does not match its checksum, or the payload is not in a form that divebook has written.
        DecryptionError
            The payload was encrypted with another key, or the key is missing.
        """
        if not self.is_sound:
            raise CorruptStoreError(f"{self.damage}; delete that execution, or restore a backup")
        raw = self.payload if isinstance(self.payload, bytes) else self.payload.encode()
        try:
            content = decode(sealing.decrypt(raw))
        except (TypeError, ValueError) as error:
            raise CorruptStoreError(
                f"message {self.number} to execution {self.execution_id} cannot be decoded: {error}; "
                "delete that execution, or restore a backup"
            ) from error
        return Message(self.execution_id, self.kind, self.key, content, self.source, self.posted_at, self.number)


def sound_messages(rows: Iterable[StoredMessage], sealing: Sealing) -> list[Message]:
    """Return the messages in some rows, without those that are damaged or cannot be decrypted.

    A damaged message affects only its own execution, and reading that inbox raises an error.
    """
    messages = []
    for row in rows:
        with suppress(CorruptStoreError, DecryptionError):
            messages.append(row.opened(sealing))
    return messages


@dataclass(frozen=True, slots=True)
class StoredLog:
    """Row of one execution and the records of its log, not decoded, all read at one moment."""

    record: ExecutionRecord
    """Row as it was stored. The log of a running execution may be longer."""
    checksum: int
    """Checksum of the log's last record, as the execution's row states it."""
    records: list[StoredRecord]
    """All readable records; for a fork, beginning with the records that it shares with its source."""
    blobs: frozenset[bytes]
    """Digests of the large values that the store lists as used by the execution."""
    questions: frozenset[str]
    """Ids of the questions that the store lists as open for the execution."""
    shared: int = 0
    """Number of events that a fork shares with its source; these do not count towards the size of the log."""
    shared_blobs: frozenset[bytes] = frozenset()
    """Digests of the large values that the store lists as used by the sources of a fork."""
    broken: str | None = None
    """Reason why the remaining records cannot be read, or None."""
    altered: bool = False
    """True if the execution's row does not match its own checksum."""
    checkpoint_fits: bool = True
    """False if a checkpoint is damaged or belongs to another log."""


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """Size of one large value (blob) in the store, and whether an execution uses it."""

    digest: bytes
    stored: int
    """Size on disk in bytes."""
    used: bool
    """True if an execution refers to the value."""


class StoredSummary(NamedTuple):
    """Cached summary of an execution, computed from the events of its log up to one of them."""

    sequence: int
    """Sequence number of the last summarized event."""
    data: bytes

    def checksum(self, execution_id: str) -> int:
        """Return the checksum with which the summary of an execution is stored."""
        return crc32(self.data, of_row((execution_id, self.sequence)))


def summary_damage(execution_id: str) -> str:
    """Return the description of the cached summary of an execution, which does not match its checksum."""
    return (
        f"the summary of execution {execution_id} is damaged. The summary is not used, and no data is lost: "
        "divebook creates it again when the execution is listed"
    )


# --- checks that stores share ---


def check_reached(execution_id: str, sequence: int, last: int) -> None:
    """Check that a log contains event `sequence`, for which a checkpoint is to be stored. Raise StoreError if the last
    event of the log, number `last`, is before it.
    """
    if not 0 < sequence <= last:
        raise StoreError(
            f"execution {execution_id} has events 1 to {last}, so it cannot have a checkpoint at event {sequence}; "
            "write the events first"
        )


def part_of_log(sequence: int) -> tuple[int, int]:
    """Return the first and the last event of the part of a log, of which only the newest checkpoint is kept. Each part
    is as long as all parts before it together, so that a log of n events has at most log2(n) checkpoints.

    >>> [part_of_log(sequence) for sequence in (1, 2, 5, 8)]
    [(1, 1), (2, 3), (4, 7), (8, 15)]
    """
    first = 1 << (sequence.bit_length() - 1)
    return first, 2 * first - 1


def check_brought_numbers(messages: Iterable[tuple[Message, bytes]], last: int) -> None:
    """Raise StoreError if a message that is to be stored under its own number does not exceed `last`, the highest
    number that a message in the store ever had.

    A reader asks only for numbers above the last one that it has seen, so no lower number may appear later. The number
    must be read in the transaction that writes, because another process may post meanwhile
    (test_no_message_is_brought_below_one_that_another_process_has_just_posted).
    """
    for message, _ in messages:
        if message.number <= last:
            raise StoreError(
                f"message {message.number} cannot be copied to this store, which already has messages with numbers "
                f"up to {last}. Choose an empty store"
            )


def digests_reached(payloads: Iterable[bytes], sealing: Sealing, fetch: Fetch) -> frozenset[bytes] | None:
    """Return the hashes of all large values to which records with the given payloads refer. Return None if a payload
    cannot be read; the caller then assumes that the records refer to all values.
    """
    try:
        return frozenset(digest for payload in payloads for digest in reached(sealing.open_packed(payload), fetch))
    except (CorruptStoreError, DecryptionError):
        return None
