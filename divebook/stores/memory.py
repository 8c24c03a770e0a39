"""Event store in the memory of this process, for tests and for runs that need not be kept. Also the adapter that makes
an event store of a small store of a user (`divebook.stores.backend.SimpleStore`).

Payloads are stored encoded, as on disk. A reader therefore always gets a copy, and a value that a file could not store
fails here as well.
"""

from __future__ import annotations

import itertools
import json
import threading
import weakref
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from divebook.engine.inbox import Message
from divebook.engine.lifecycle import TERMINAL, check_may_receive
from divebook.errors import (
    ConcurrentAppendError,
    DivebookError,
    ExecutionNotFoundError,
    InvalidEventError,
    StartKeyTakenError,
    StoreBusyError,
    StoreError,
)
from divebook.events.catalog import CHILD, ENQUEUED, FORK, RUNNING, WAITING, ExecutionEnqueued
from divebook.events.event import Record, to_datetime
from divebook.events.upcast import present_status
from divebook.stores.append import (
    FULL,
    Beginning,
    Durability,
    ExecutionRecord,
    Ids,
    KnownIds,
    PreparedBatch,
    RecordFilter,
    Refusal,
    StatusColumns,
    fork_point_error,
)
from divebook.stores.backend import (
    MAX_CANDIDATES,
    SimpleStore,
    StoredBlob,
    StoredLog,
    StoredMessage,
    StoredRecord,
    StoredSummary,
    check_brought_numbers,
    check_reached,
    part_of_log,
)
from divebook.stores.base import EventStore
from divebook.stores.embedded import weak_method
from divebook.stores.encoding import reached, width_of
from divebook.stores.leases import Claim, Lease, Moment, Owner, QueuedExecution, WorkerRecord
from divebook.text.arguments import describe
from divebook.text.protocols import require_protocol
from divebook.text.redaction import logger

T = TypeVar("T")
_log = logger(__name__)

Head: TypeAlias = tuple[int, int, str, str, str, str]
"""First sequence, time, type, id, path and step of a record.

A plain tuple of plain values, because Python's garbage collector stops tracking such tuples. It would otherwise visit
all records of a long log again and again.
"""


class MemoryStore(EventStore):
    """Event store in memory. Its content is lost at the end of the process."""

    location: str = "memory:"
    keeps = shared = False
    _lists: MemoryLists
    _queues: MemoryQueues
    _large_values: MemoryBlobs

    def __init__(self) -> None:
        super().__init__()
        self._lists = MemoryLists(self._lock, weak_method(self._has_untaken), weak_method(self._unknown))
        self._logs = self._lists.logs
        self._unended_logs = self._lists.unended_logs
        self._find = self._lists.find
        self._queues = MemoryQueues(self._lists, weak_method(self._save_row), weak_method(self._save_schedule))
        self._caches = MemoryCaches(self._lists)
        self._large_values = MemoryBlobs(self._lists)
        self._log_numbers = itertools.count()
        self._start_keys: dict[str, str] = {}
        """Execution id by start key."""
        self._messages: dict[int, StoredMessage] = {}
        self._message_numbers: dict[str, list[int]] = {}
        """Message numbers of each execution id, ascending."""
        self._message_places: dict[tuple[str, str, str], int] = {}
        """Number of the message with an execution id, kind and key; later messages with these are not stored."""
        self._last_number = 0

    # --- writing -----------------------------------------------------------------------------------------------------

    def _write(self, batches: Sequence[PreparedBatch]) -> list[Refusal | None]:
        return list(map(self._write_one, batches))

    def _write_one(self, batch: PreparedBatch) -> Refusal | None:
        try:
            self._extend(self._log_for(batch), batch)
        except (StoreError, InvalidEventError) as refusal:
            return refusal
        # The store's lock makes the end of a child and the message to its parent visible together, as a transaction
        # would.
        if batch.to_parent is not None and batch.to_parent[0].execution_id in self._unended_logs:
            self._post(*batch.to_parent)
        return None

    def _log_for(self, batch: PreparedBatch) -> MemoryLog:
        log = self._logs.get(batch.execution_id)
        if log is None:
            return self._begin(batch)
        # The token is checked first, so that a writer that has lost its lease gets that error, and not that of a wrong
        # sequence.
        if batch.token != log.token and batch.expected_sequence:
            raise batch.fenced_error(log.token)
        if log.last_sequence != batch.expected_sequence:
            raise ConcurrentAppendError(batch.execution_id, batch.expected_sequence, log.last_sequence)
        if log.status_columns.status in TERMINAL:
            batch.check_may_follow(log.status_columns.status)
        if batch.last_message is not None:
            batch.check_has_read(self._newest_message(batch.execution_id))
        log.ids.refuse(batch.records, batch.ids, log.all_ids)
        return log

    def _begin(self, batch: PreparedBatch) -> MemoryLog:
        beginning = batch.beginning
        if beginning is None:
            raise self._unknown(batch.execution_id)
        if batch.token:
            raise batch.fenced_error(0)
        if beginning.key is not None and beginning.key in self._start_keys:
            raise StartKeyTakenError(beginning.key, self._start_keys[beginning.key])
        log = MemoryLog(beginning, batch.began_at, next(self._log_numbers), durability=batch.durability or FULL)
        if batch.source is None:
            return log
        source = self._find(batch.source)
        if not source.ends_record(batch.expected_sequence):
            raise fork_point_error(batch)
        # The fork gets its own lists, in which the source's encoded payloads are shared objects.
        return source.forked(batch.expected_sequence, log, self._reached)

    def _extend(self, log: MemoryLog, batch: PreparedBatch) -> None:
        """Append a batch to the log of an execution, and update the execution's status, lease, questions and other
        columns.

        `_log_for` has made all checks before.
        """
        log.extend(batch)
        for digest, content in batch.blobs.items():
            self._large_values.contents.setdefault(digest, content)
        self._logs[batch.execution_id] = log
        # A resumption makes an ended execution an unended one again.
        if log.status_columns.status in TERMINAL:
            self._unended_logs.pop(batch.execution_id, None)
        else:
            self._unended_logs[batch.execution_id] = log
        if batch.beginning is not None and batch.beginning.key is not None:
            self._start_keys[batch.beginning.key] = batch.execution_id

    def _reached(self, payload: bytes) -> Iterator[bytes]:
        return reached(self.sealing.open_packed(payload), self._content)

    def _read_records(self, execution_id: str, after: int, last: int) -> list[Record]:
        with self._lock:
            log = self._find(execution_id)
            # Decoded without the lock, because opening a payload may take long.
            stored = log.stored(after, min(last, log.last_sequence))
        return [record.decoded(execution_id, self.sealing, self._content) for record in stored]

    def _content(self, digest: bytes) -> bytes | None:
        return self.sealing.open_content(digest, self._large_values.contents.get(digest))

    def _drop(self, execution_id: str) -> None:
        start_key = self._logs.pop(execution_id).beginning.key
        self._unended_logs.pop(execution_id, None)
        if start_key is not None:
            # A key of a deleted execution may be used again.
            del self._start_keys[start_key]
        for number in self._message_numbers.pop(execution_id, ()):
            message = self._messages.pop(number)
            self._message_places.pop((execution_id, message.kind, message.key), None)

    # --- leases and checkpoints --------------------------------------------------------------------------------------

    def _acquire(
        self, execution_id: str, owner: Owner, moment: Moment, until: Moment, instead_of: Lease | None
    ) -> Lease:
        log = self._find(execution_id)
        if log.lease is not None and log.lease.keeps_out(moment, instead_of):
            raise log.lease.held_error()
        # The token also grows if the same process takes the lease again: a late write under the old one must be
        # refused.
        log.token += 1
        log.lease = replace(until.lease(execution_id, log.token, owner), was_left=log.lease is not None)
        self._save_row(execution_id)
        return log.lease

    def _renew(self, leases: Sequence[Lease], until: Moment) -> list[bool]:
        return [self._renew_one(lease, until) for lease in leases]

    def _renew_one(self, lease: Lease, until: Moment) -> bool:
        log = self._logs.get(lease.execution_id)
        if log is None or log.lease is None or log.token != lease.token:
            return False
        log.lease = until.lease(lease.execution_id, lease.token, log.lease.owner)
        return True

    def _release(self, lease: Lease) -> None:
        log = self._logs.get(lease.execution_id)
        # An outdated lease must not release that of a later holder.
        if log is not None and log.token == lease.token:
            log.lease = None
            self._save_row(lease.execution_id)

    def _leases(self, execution_id: str | None = None) -> list[Lease]:
        if execution_id is not None:
            lease = self._find(execution_id).lease
            return [] if lease is None else [lease]
        with self._lock:
            return [log.lease for log in self._logs.values() if log.lease is not None]

    def _save_row(self, execution_id: str) -> None:
        """Write the row of an execution, which has changed without an event. Nothing outlasts this store."""

    def _save_schedule(self, name: str, moment: int) -> None:
        """Write the time up to which a schedule has been handled. Nothing outlasts this store."""

    # --- queues -------------------------------------------------------------------------------------------------------

    def _claim(self, claim: Claim, owner: Owner, moment: Moment, until: Moment) -> list[Lease]:
        claimed = list(itertools.islice(self._claimable(claim, moment), claim.limit))
        return [self._acquire(execution_id, owner, moment, until, None) for execution_id in claimed]

    def _claimable(self, claim: Claim, moment: Moment) -> Iterator[str]:
        """Yield the ids of the executions that a worker may claim. Queues come in the worker's order, executions in the
        order of their queue.
        """
        # The worker's order of queues comes before priorities, which count within a queue only.
        for queue in claim.queues:
            for queued in self._queues.queued(withheld=False):
                if queued.queue != queue or queued.execution_id in claim.without:
                    continue
                has_workflow = claim.workflows.get(queued.workflow) == queued.fingerprint
                if has_workflow and self._can_continue(queued.execution_id, moment):
                    yield queued.execution_id

    def _can_continue(self, execution_id: str, moment: Moment) -> bool:
        log = self._logs[execution_id]
        if log.lease is not None and log.lease.keeps_out(moment):
            return False
        is_due = log.wake_at is not None and log.wake_at <= moment.wall
        if log.status == ENQUEUED:
            return log.wake_at is None or is_due
        # A lease that no longer excludes others was left by a driver that died or did not renew it.
        return log.status == RUNNING or log.lease is not None or is_due or self._has_untaken(execution_id)

    # --- messages ----------------------------------------------------------------------------------------------------

    def _post(self, message: Message, payload: bytes) -> Message:
        log = self._find(message.execution_id)
        key = (message.execution_id, message.kind, message.key)
        stored = self._messages.get(self._message_places.get(key, 0))
        if stored is not None:
            return stored.opened(self.sealing)
        check_may_receive(message.execution_id, log.status, message.kind)
        numbered = replace(message, number=self._last_number + 1)
        self._bring([(numbered, payload)])
        return numbered

    def _bring(self, messages: Sequence[tuple[Message, bytes]]) -> None:
        # All messages are checked before the first is stored, so that an error stores none of them.
        check_brought_numbers(messages, self._last_number)
        for message, _ in messages:
            self._find(message.execution_id)
        for message, payload in messages:
            self._keep(StoredMessage.of(message, payload))

    def _keep(self, message: StoredMessage) -> None:
        self._last_number = message.number
        self._message_places[message.execution_id, message.kind, message.key] = message.number
        self._messages[message.number] = message
        self._message_numbers.setdefault(message.execution_id, []).append(message.number)

    def _stored_messages(self, after: int, execution_id: str | None = None) -> list[StoredMessage]:
        if execution_id is None and after >= self._last_number:
            return []
        with self._lock:
            numbers: Iterable[int] = self._messages
            if execution_id is not None:
                self._find(execution_id)
                numbers = self._message_numbers.get(execution_id, ())
            return [self._messages[number] for number in numbers if number > after]

    def _last_message(self) -> int:
        return self._last_number

    def _has_untaken(self, execution_id: str) -> bool:
        with self._lock:
            log = self._find(execution_id)
            return self._newest_message(execution_id) > log.taken and log.status not in TERMINAL

    def _newest_message(self, execution_id: str) -> int:
        """Return the number of the newest message to an execution; 0 if it has received none."""
        return self._message_numbers.get(execution_id, (0,))[-1]

    def _last_addressee(self, kind: str, key: str) -> str | None:
        with self._lock:
            messages = self._messages.values()
            addressees = [message.execution_id for message in messages if (message.kind, message.key) == (kind, key)]
            return addressees[-1] if addressees else None

    # --- maintenance -------------------------------------------------------------------------------------------------

    def _stored_log(self, execution_id: str) -> StoredLog:
        with self._lock:
            log = self._find(execution_id)
            return StoredLog(
                record=log.line(execution_id),
                checksum=log.checksums[-1],
                records=log.stored(0, log.last_sequence),
                blobs=frozenset(log.blobs),
                questions=frozenset(log.open_questions()),
                shared=log.shared,
                shared_blobs=log.shared_blobs,
            )

    def _discard(self, last_sequences: Mapping[str, int | None], moment: Moment | None) -> list[str]:
        discarded = [
            name
            for name, last in last_sequences.items()
            if name in self._logs and (moment is None or self._logs[name].is_over(last, moment))
        ]
        for execution_id in discarded:
            self._drop(execution_id)
        return discarded

    def _close(self) -> None:
        self._logs.clear()
        self._unended_logs.clear()
        self._message_numbers.clear()
        self._messages.clear()


class StoreAdapter(MemoryStore):
    """Event store over a `SimpleStore`, a small store of a user. Everything else is in memory.

    When it is opened, it reads all entries. Each commit appends one entry to the list of its execution::

        {"records": [...], "row": {...}, "blobs": {...}, "messages": [...]}

    An entry has the new records with their payloads as JSON text, the row of the execution after the commit, the large
    values that its list does not have yet, and messages. Other changes append an entry with some of these parts: a
    message that arrives, a lease that is acquired or released. A fork repeats the events that it shares.

    Limits: one process at a time; all events in memory; no renewal of a lease, checkpoint, summary or record of a
    worker outlasts the process; several batches are several appends, not one transaction.

    Parameters
    ----------
    simple_store
        The store of the user. The adapter calls it from one thread at a time.

    Raises
    ------
    SetupError
        The object does not implement `divebook.stores.backend.SimpleStore`.
    """

    keeps = True
    local = False

    def __init__(self, simple_store: SimpleStore) -> None:
        require_protocol(simple_store, SimpleStore, "store", page="stores")
        super().__init__()
        # Entries are JSON, so that payloads stay text.
        self.sealing.compresses = False
        self.simple_store = simple_store
        self.location = type(simple_store).__qualname__
        self._counts: dict[str, int] = {}
        """Number of entries of each list."""
        self._messages_in_ends: dict[str, list[int]] = {}
        """Numbers of the messages to parents that are in the list of a child, by the id of the child."""
        self._damages: list[str] = []
        self._load()

    # --- writing ------------------------------------------------------------------------------------------------------

    def _extend(self, log: MemoryLog, batch: PreparedBatch) -> None:
        # A copy of the row collects the records of the batch. The log itself changes after they are written.
        after = replace(
            log,
            heads=[],
            payloads=[],
            checksums=log.checksums[-1:],
            ids=KnownIds(),
            blobs=set(log.blobs),
            questions=dict(log.questions),
        )
        after.extend(batch)
        records = _records_of(after.heads, after.payloads, after.checksums[-len(after.heads) :])
        new_blobs = after.blobs - log.blobs
        if batch.beginning is not None:  # a fork begins with the records that it shares
            records = _records_of(log.heads, log.payloads, log.checksums) + records
            new_blobs |= log.shared_blobs
        contents = ChainMap(batch.blobs, self._large_values.contents)
        to_parent = self._message_to_parent(batch)
        entry = {
            "records": records,
            "row": _row_of(after),
            "blobs": {digest.hex(): b64encode(contents[digest]).decode() for digest in sorted(new_blobs)},
            "messages": [_message_data(StoredMessage.of(*message)) for message in to_parent],
        }
        self._put(batch.execution_id, {name: part for name, part in entry.items() if part})
        super()._extend(log, batch)
        super()._bring(to_parent)
        if to_parent:
            numbers = [message.number for message, _ in to_parent]
            self._messages_in_ends.setdefault(batch.execution_id, []).extend(numbers)

    def _message_to_parent(self, batch: PreparedBatch) -> list[tuple[Message, bytes]]:
        """Return the message by which a batch that ends a child wakes its parent, with its number, as a list; an empty
        list if there is none. It is in the entry of the batch, so that both are written or neither.
        """
        if batch.to_parent is None:
            return []
        message, payload = batch.to_parent
        is_posted = (message.execution_id, message.kind, message.key) in self._message_places
        if message.execution_id not in self._unended_logs or is_posted:
            return []
        return [(replace(message, number=self._last_number + 1), payload)]

    def _bring(self, messages: Sequence[tuple[Message, bytes]]) -> None:
        check_brought_numbers(messages, self._last_number)
        for message, _ in messages:
            self._find(message.execution_id)
        for message, payload in messages:
            self._put(message.execution_id, {"messages": [_message_data(StoredMessage.of(message, payload))]})
            super()._bring([(message, payload)])

    def _acquire(
        self, execution_id: str, owner: Owner, moment: Moment, until: Moment, instead_of: Lease | None
    ) -> Lease:
        log = self._find(execution_id)
        before = (log.token, log.lease)
        try:
            return super()._acquire(execution_id, owner, moment, until, instead_of)
        except StoreError:
            log.token, log.lease = before
            raise

    def _save_row(self, execution_id: str) -> None:
        self._put(execution_id, {"row": _row_of(self._logs[execution_id])})

    def _save_schedule(self, name: str, moment: int) -> None:
        self._put(SCHEDULES, {"schedules": {name: moment}})

    def _drop(self, execution_id: str) -> None:
        # The messages in the list of a child outlast the child.
        for number in self._messages_in_ends.pop(execution_id, ()):
            message = self._messages.get(number)
            if message is not None and message.execution_id in self._logs:
                self._put(message.execution_id, {"messages": [_message_data(message)]})
        delete = getattr(self.simple_store, "delete", None)
        if delete is None:
            self._put(execution_id, {"deleted": True})
        else:
            self._call("delete", lambda: delete(execution_id))
            self._counts.pop(execution_id, None)
        super()._drop(execution_id)

    def _put(self, list_id: str, entry: Mapping[str, Any]) -> None:
        """Append one entry to a list of the user's store.

        Raises
        ------
        StoreBusyError
            The store raised an `OSError`, and does not have the entry.
        StoreError
            It raised another error, or another process has written to the list.
        """
        count = self._counts.get(list_id, 0)
        try:
            self.simple_store.append(list_id, [entry], count)
        except ConcurrentAppendError as error:
            raise StoreError(
                f"{self.location} has entries of {list_id} that another process wrote. Only one process at a time "
                "can use such a store: close it in the other processes, and open it again"
            ) from error
        except Exception as error:
            # The error may have come after the entry was written.
            present = self._call("read", lambda: [*self.simple_store.read(list_id, count)])
            if present != [_as_json(entry)]:
                raise _failure(self.location, "append", error) from error
        self._counts[list_id] = count + 1

    def _call(self, method: str, call: Callable[[], T]) -> T:
        """Call a method of the user's store. An error of any class becomes a StoreError with the name of the method."""
        try:
            return call()
        except Exception as error:
            raise _failure(self.location, method, error) from error

    # --- reading ------------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        # First each list by itself. The numbers, keys and messages of all logs follow from all of them.
        messages: list[StoredMessage] = []
        for list_id in self._call("ids", lambda: [*self.simple_store.ids()]):
            if not isinstance(list_id, str):
                raise StoreError(f"ids() of {self.location} must return strings, not {describe(list_id)}")
            entries = self._call("read", lambda name=list_id: [*self.simple_store.read(name, 0)])  # type: ignore[misc]
            self._counts[list_id] = len(entries)
            try:
                messages += self._load_list(list_id, entries)
            except (AttributeError, KeyError, LookupError, TypeError, ValueError, DivebookError) as error:
                # One damaged list must not hide the others.
                self._damages.append(f"the entries of execution {list_id} are damaged: {type(error).__name__}: {error}")
                _log.warning("%s: %s", self.location, self._damages[-1])
        for execution_id, log in sorted(self._logs.items(), key=lambda item: item[1].number):
            if log.status not in TERMINAL:
                self._unended_logs[execution_id] = log
            if log.beginning.key is not None:
                self._start_keys[log.beginning.key] = execution_id
        self._log_numbers = itertools.count(max((log.number for log in self._logs.values()), default=-1) + 1)
        last_number = self._last_number
        for message in sorted(messages, key=lambda message: message.number):
            if message.execution_id in self._logs:
                self._keep(message)
            self._last_number = max(last_number, message.number)

    def _load_list(self, list_id: str, entries: Sequence[Mapping[str, Any]]) -> list[StoredMessage]:
        """Load one list of entries, and return the messages in it.

        Rows replace each other, so that the last one counts; records, large values and messages add up.
        """
        if list_id == SCHEDULES:
            for entry in entries:
                self._queues.schedules |= {str(name): int(moment) for name, moment in entry["schedules"].items()}
            return []
        log: MemoryLog | None = None
        messages: list[StoredMessage] = []
        blobs: dict[bytes, bytes] = {}
        for entry in entries:
            if entry.get("deleted"):
                log = None
                blobs = {}
                # Those to other runs stay, such as word of its end to its parent. No number is used again.
                self._last_number = max([self._last_number, *(message.number for message in messages)])
                messages = [message for message in messages if message.execution_id != list_id]
                continue
            blobs |= {bytes.fromhex(digest): b64decode(content) for digest, content in entry.get("blobs", {}).items()}
            messages += [_message_from(fields) for fields in entry.get("messages", ())]
            if "row" in entry:
                log = _log_from(entry["row"], log)
            for *head, payload, checksum in entry.get("records", ()):
                if log is None:
                    raise ValueError("records without a row")
                log.heads.append(tuple(head))
                log.payloads.append(payload.encode())
                log.checksums.append(checksum)
        in_end = [message.number for message in messages if message.execution_id != list_id]
        if in_end:
            self._messages_in_ends[list_id] = in_end
        if log is not None:
            log.blobs = {*blobs} - log.shared_blobs
            self._large_values.contents |= blobs
            self._logs[list_id] = log
        return messages

    def _faults(self) -> list[str]:
        return self._damages

    def _close(self) -> None:
        super()._close()
        close = getattr(self.simple_store, "close", None)
        if close is not None:
            close()


SCHEDULES = "schedules"
"""Id of the list of entries, in the store of a user, with the times up to which schedules have been handled."""


def as_store(store: EventStore | SimpleStore) -> EventStore:
    """Return an event store unchanged. For a `SimpleStore`, return its adapter, the same for each call."""
    if isinstance(store, EventStore):
        return store
    with _adapters_lock:
        # The adapter holds the user's store, so that the id is not used again meanwhile.
        adapter = _adapters.get(id(store))
        if adapter is None or adapter.closed:
            adapter = _adapters[id(store)] = StoreAdapter(store)
        return adapter


_adapters: weakref.WeakValueDictionary[int, StoreAdapter] = weakref.WeakValueDictionary()
_adapters_lock = threading.Lock()


def _failure(location: str, method: str, error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    message = f"{method}() of the store {location} raised {type(error).__name__}: {error}"
    return StoreBusyError(message) if isinstance(error, OSError) else StoreError(message)


def _as_json(value: Any) -> Any:
    """Return plain data as a store returns them that writes JSON: with lists in place of tuples."""
    return json.loads(json.dumps(value))


def _records_of(heads: Sequence[Head], payloads: Sequence[bytes], checksums: Sequence[int]) -> list[list[Any]]:
    rows = zip(heads, payloads, checksums, strict=True)
    return [[*head, payload.decode(), checksum] for head, payload, checksum in rows]


def _message_data(message: StoredMessage) -> list[Any]:
    payload = message.payload
    text = payload if isinstance(payload, str) else payload.decode()
    return [*message._replace(payload=text)]


def _message_from(fields: Sequence[Any]) -> StoredMessage:
    message = StoredMessage(*fields)
    # The checksum covers bytes.
    return message._replace(payload=str(message.payload).encode())


_COLUMNS = (
    "created_at",
    "number",
    "shared",
    "last_sequence",
    "size",
    "token",
    "wake_at",
    "taken",
    "durability",
    "withheld",
)
"""Attributes of a `MemoryLog` that its row in an entry has unchanged."""


def _row_of(log: MemoryLog) -> dict[str, Any]:
    """Return the columns of an execution's row as plain data; `_log_from` reads them."""
    return {
        **{name: getattr(log, name) for name in _COLUMNS},
        "beginning": {**log.beginning._asdict(), "tags": [*log.beginning.tags]},
        "status": asdict(log.status_columns),
        "lease": None if log.lease is None else asdict(log.lease),
        "questions": log.questions,
        "enqueued": None if log.enqueued is None else log.enqueued.to_data(),
        "shared_blobs": [digest.hex() for digest in sorted(log.shared_blobs)],
    }


def _log_from(row: Mapping[str, Any], log: MemoryLog | None) -> MemoryLog:
    """Return a log with the columns of a row, and the records of `log`, its earlier state, if there is one."""
    lease = row["lease"]
    enqueued = row["enqueued"]
    return MemoryLog(
        beginning=Beginning(**{**row["beginning"], "tags": tuple(row["beginning"]["tags"])}),
        status_columns=StatusColumns(**{**row["status"], "status": present_status(row["status"]["status"])}),
        heads=[] if log is None else log.heads,
        payloads=[] if log is None else log.payloads,
        checksums=[] if log is None else log.checksums,
        ids=KnownIds(None),
        lease=None if lease is None else Lease(**{**lease, "owner": Owner(**lease["owner"])}),
        questions=dict(row["questions"]),
        enqueued=None if enqueued is None else ExecutionEnqueued(**enqueued),
        shared_blobs=frozenset(map(bytes.fromhex, row["shared_blobs"])),
        **{name: row[name] for name in _COLUMNS},
    )


class MemoryLists:
    """Logs of a `MemoryStore` by execution id, and lists of them; a `divebook.stores.backend.ListBackend`.

    Parameters
    ----------
    lock
        Lock of the store.
    has_untaken
        Function that returns True if an execution has not ended and has received messages that are not in its log yet.
    unknown
        Function that returns the error for an unknown execution id.
    """

    def __init__(
        self,
        lock: threading.RLock,
        has_untaken: Callable[[str], bool],
        unknown: Callable[[str], ExecutionNotFoundError],
    ) -> None:
        self.lock = lock
        self._unknown = unknown
        self._has_untaken = has_untaken
        self.logs: dict[str, MemoryLog] = {}
        self.unended_logs: dict[str, MemoryLog] = {}
        """Logs of executions that have not ended, so that the inbox and recovery need not search all logs."""

    def find(self, execution_id: str) -> MemoryLog:
        """Return the log of an execution. Raise ExecutionNotFoundError for an unknown id."""
        log = self.logs.get(execution_id)
        if log is None:
            raise self._unknown(execution_id)
        return log

    def record(self, execution_id: str) -> ExecutionRecord:
        """Return the row of one execution."""
        with self.lock:
            return self.find(execution_id).line(execution_id)

    def records(self, record_filter: RecordFilter, limit: int, offset: int) -> list[ExecutionRecord]:
        """Return the rows that a filter matches, newest first."""
        with self.lock:
            logs = self.unended_logs if record_filter.unended else self.logs
            matching = [name for name, log in logs.items() if (log.status, log.beginning) in record_filter]
            page = self._newest(matching)[offset : offset + limit if limit else None]
            return [self.logs[name].line(name) for name in page]

    def _newest(self, names: list[str]) -> list[str]:
        """Return the given execution ids, sorted by the creation of the executions, newest first."""
        return sorted(names, key=lambda name: (self.logs[name].created_at, self.logs[name].number), reverse=True)

    def orphans(self, moment: Moment) -> list[ExecutionRecord]:
        """Return the executions that can continue and have no live lease, newest first."""
        now = to_datetime(moment.wall)
        # One lock covers all reads, so that leases, messages and rows are of the same moment.
        with self.lock:
            unended = self.records(RecordFilter(with_books=True, unended=True), 0, 0)
            return [record for record in unended if self._is_orphan(record, moment, now)]

    def _is_orphan(self, record: ExecutionRecord, moment: Moment, now: datetime) -> bool:
        lease = self.logs[record.execution_id].lease
        if lease is not None:
            return not lease.keeps_out(moment)
        return record.status != WAITING or record.is_due(now) or self._has_untaken(record.execution_id)

    def descendants(self, execution_id: str) -> int:
        """Return the number of direct and indirect child executions of an execution."""
        # One pass over all logs is cheaper than one search per execution below. `pop` ensures that the walk ends.
        children_of: dict[str, list[str]] = {}
        with self.lock:
            for name, log in self.logs.items():
                if log.beginning.origin == CHILD and log.beginning.parent is not None:
                    children_of.setdefault(log.beginning.parent, []).append(name)
        total = 0
        to_visit = [execution_id]
        while to_visit:
            children = children_of.pop(to_visit.pop(), [])
            total += len(children)
            to_visit += children
        return total

    def asking(self, question_id: str | None) -> list[tuple[str, str]]:
        """Return the open questions of executions that have not ended, as pairs of execution id and question id."""
        with self.lock:
            asking = [name for name, log in self.unended_logs.items() if any(log.questions.values())]
            return [
                (name, question)
                for name in self._newest(asking)
                for question in self.unended_logs[name].open_questions()
                if question_id in (None, question)
            ]

    def ids(self, prefix: str | None = None) -> list[str]:
        """Return the ids of all executions, newest first, or those that begin with a prefix, sorted."""
        with self.lock:
            if prefix is None:
                return self._newest(list(self.logs))
            return sorted(name for name in self.logs if name.startswith(prefix))[: MAX_CANDIDATES + 1]


class MemoryQueues:
    """Queue entries, schedules and records of workers in memory; a `divebook.stores.backend.QueueBackend`."""

    def __init__(
        self, lists: MemoryLists, save_row: Callable[[str], None], save_schedule: Callable[[str, int], None]
    ) -> None:
        self._lists = lists
        self._save_row = save_row
        self._save_schedule = save_schedule
        self.schedules: dict[str, int] = {}
        """Time up to which the due times of each schedule have been handled, in microseconds."""
        self._workers: dict[str, WorkerRecord] = {}

    def queued(self, *, withheld: bool) -> list[QueuedExecution]:
        """Return the queue entries of executions that have not ended, in the order in which workers claim them."""
        with self._lists.lock:
            entries = [
                # The order within a queue is: higher priorities first, then older executions.
                (log.enqueued.queue, -log.enqueued.priority, log.number, execution_id, log.beginning)
                for execution_id, log in self._lists.logs.items()
                if log.enqueued is not None and log.withheld is withheld and log.status not in TERMINAL
                if log.beginning.origin != FORK
            ]
        return [
            QueuedExecution(execution_id, queue, -negative_priority, beginning.workflow_name, beginning.fingerprint)
            for queue, negative_priority, _, execution_id, beginning in sorted(entries)
        ]

    def withhold(self, execution_id: str) -> None:
        """Mark an execution so that workers skip it."""
        if execution_id in self._lists.logs:
            self._lists.logs[execution_id].withheld = True
            self._save_row(execution_id)

    def schedule(self, name: str, moment: int, *, advances: bool) -> int:
        """Return the time up to which the due times of a schedule have been handled, and store it."""
        earlier = self.schedules.get(name)
        present = moment if earlier is None else max(moment, earlier) if advances else earlier
        if present != earlier:
            self._save_schedule(name, present)
            self.schedules[name] = present
        return present

    def announce(self, worker: WorkerRecord, until: int, delete_before: int) -> None:
        """Write the record of a running worker, and delete the records of workers that expired long ago."""
        self._workers = {name: other for name, other in self._workers.items() if other.expires_at >= delete_before}
        self._workers[worker.id] = replace(worker, expires_at=until)

    def retire(self, worker_id: str) -> None:
        """Delete the record of a worker."""
        self._workers.pop(worker_id, None)

    def workers(self) -> list[WorkerRecord]:
        """Return the records of all workers, including expired ones."""
        return list(self._workers.values())


class MemoryCaches:
    """Checkpoints and summaries in memory; a `divebook.stores.backend.CacheBackend`."""

    def __init__(self, lists: MemoryLists) -> None:
        self._lists = lists

    def put_checkpoint(self, execution_id: str, sequence: int, data: bytes) -> None:
        """Write a checkpoint of an execution, and delete those that are not the newest of their part of the log."""
        log = self._lists.find(execution_id)
        check_reached(execution_id, sequence, log.last_sequence)
        with self._lists.lock:
            log.checkpoints[sequence] = data
            first, last = part_of_log(sequence)
            for superseded in sorted(number for number in log.checkpoints if first <= number <= last)[:-1]:
                del log.checkpoints[superseded]

    def checkpoint(self, execution_id: str, at: int) -> tuple[int, bytes] | None:
        """Return the newest checkpoint of an execution at or before event `at`, as sequence number and data; None if
        there is none.
        """
        with self._lists.lock:
            log = self._lists.logs.get(execution_id)
            checkpoints = log.checkpoints if log else {}
            return max((each for each in checkpoints.items() if each[0] <= at), default=None)

    def checkpoints(self) -> list[str]:
        """Return the ids of the executions that have a checkpoint."""
        with self._lists.lock:
            return [execution_id for execution_id, log in self._lists.logs.items() if log.checkpoints]

    def drop_checkpoints(self, execution_ids: Sequence[str]) -> int:
        """Delete the checkpoints of executions; return the number of deleted checkpoints."""
        deleted = 0
        for execution_id in set(execution_ids).intersection(self.checkpoints()):
            log = self._lists.logs[execution_id]
            deleted += len(log.checkpoints)
            log.checkpoints = {}
        return deleted

    def put_summaries(self, summaries: Mapping[str, StoredSummary]) -> None:
        """Write summaries of executions in place of older ones."""
        for execution_id in summaries.keys() & self._lists.logs.keys():
            self._lists.logs[execution_id].summary = summaries[execution_id]

    def summaries(self, execution_ids: Sequence[str]) -> dict[str, StoredSummary]:
        """Return the summaries of the given executions, without missing ones."""
        with self._lists.lock:
            logs = self._lists.logs
            stored = {name: logs[name].summary for name in execution_ids if name in logs}
        return {name: summary for name, summary in stored.items() if summary is not None}


class MemoryBlobs:
    """Large values in memory; a `divebook.stores.backend.BlobBackend`."""

    def __init__(self, lists: MemoryLists) -> None:
        self._lists = lists
        self.contents: dict[bytes, bytes] = {}
        """Content of each large value by its digest."""

    def blobs(self, without: Collection[str]) -> list[StoredBlob]:
        """Return each large value with its size, and whether an execution uses it."""
        with self._lists.lock:
            logs = [log for name, log in self._lists.logs.items() if name not in without]
            used = {digest for log in logs for digest in log.blobs | log.shared_blobs}
            return [StoredBlob(digest, len(data), digest in used) for digest, data in self.contents.items()]

    def blob(self, digest: bytes) -> bytes | None:
        """Return the content of a large value, still encrypted; None if it is missing."""
        return self.contents.get(digest)

    def drop_unused(self) -> int:
        """Delete the large values that no execution uses; return the number of deleted values."""
        unused = [blob.digest for blob in self.blobs(()) if not blob.used]
        for digest in unused:
            del self.contents[digest]
        return len(unused)


@dataclass(slots=True)
class MemoryLog:
    """Log of one execution in a `MemoryStore`, with the columns of the execution's row."""

    beginning: Beginning
    created_at: int
    number: int
    """Position of the log among all logs of the store, in the order of creation."""
    status_columns: StatusColumns = field(default_factory=lambda: StatusColumns(RUNNING, None, None))
    heads: list[Head] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    ids: KnownIds = field(default_factory=KnownIds)
    checksums: list[int] = field(default_factory=list)
    blobs: set[bytes] = field(default_factory=set)
    shared: int = 0
    """Number of events that a fork shares with its source; `size` does not count them."""
    shared_blobs: frozenset[bytes] = frozenset()
    """Digests of the large values that the shared events refer to."""
    last_sequence: int = 0
    size: int = 0
    token: int = 0
    lease: Lease | None = None
    checkpoints: dict[int, bytes] = field(default_factory=dict)
    """Data of the kept checkpoints, by sequence number."""
    summary: StoredSummary | None = None
    questions: dict[str, bool] = field(default_factory=dict)
    wake_at: int | None = None
    taken: int = 0
    durability: Durability = FULL
    enqueued: ExecutionEnqueued | None = None
    """Latest event that put the execution into a queue, or None."""
    withheld: bool = False
    """True if workers skip the execution."""

    @property
    def status(self) -> str:
        """Status of the execution at present."""
        return self.status_columns.status

    def extend(self, batch: PreparedBatch) -> None:
        """Append the records of a batch, and update the columns of the execution's row."""
        self.checksums.extend(batch.checksums(self.checksums[-1] if self.checksums else 0))
        for record, record_type in zip(batch.records, batch.types, strict=True):
            self.heads.append((record.sequence, record.recorded_at, record_type, record.id, record.path, record.step))
        self.payloads.extend(batch.payloads)
        self.ids.add(batch.records, batch.ids)
        self.last_sequence = batch.last_sequence
        self.size += batch.size
        for digest, content in batch.blobs.items():
            if digest not in self.blobs:
                self.blobs.add(digest)
                self.size += len(content)
        if batch.status_change is not None:
            self.status_columns = batch.status_change
        elif batch.status not in (None, self.status_columns.status):
            self.status_columns = replace(self.status_columns, status=batch.status)
        if batch.questions:
            self.questions |= batch.questions
        if batch.annotations:
            self.beginning = self.beginning.annotated(batch.annotations)
        # The latest entry counts; a batch without one leaves it.
        self.enqueued = batch.enqueued or self.enqueued
        # `wake_at` is always replaced, also by None: each batch states it for the state that it leads to.
        self.withheld = self.withheld if batch.withheld is None else batch.withheld
        self.wake_at = batch.wake_at
        # A batch without messages has 0 here, and must not lower the number.
        self.taken = max(self.taken, batch.taken)
        if batch.lease is not None:
            self.token = 1
            self.lease = batch.lease
        if batch.ends:
            self.lease = None

    def stored(self, after: int, last: int) -> list[StoredRecord]:
        """Return the records that contain the events of this log above `after` up to `last`, with encoded payloads."""
        # The first record is the one with event ``after + 1``, which may begin before it: heads [1, 4, 8] and after=5
        # -> record 4.
        first = max(bisect_right(self.heads, after + 1, key=itemgetter(0)) - 1, 0)
        selection = slice(first, bisect_right(self.heads, last, key=itemgetter(0)))
        rows = zip(self.heads[selection], self.payloads[selection], self.checksums[selection], strict=True)
        return [StoredRecord(*head, payload, checksum) for head, payload, checksum in rows]

    def forked(self, at: int, new_log: MemoryLog, digests_in: Callable[[bytes], Iterable[bytes]]) -> MemoryLog:
        """Return a copy of `new_log`, the empty log of a fork, in which the events of this log up to event `at` are the
        first events.

        `digests_in` returns the digests of the large values that a payload refers to.
        """
        count = bisect_right(self.heads, at, key=itemgetter(0))
        heads = self.heads[:count]
        payloads = self.payloads[:count]
        checksums = self.checksums[:count]
        # Searching the payloads takes time, and is useless if no event of this log refers to a large value.
        shared_blobs = frozenset[bytes]()
        if self.blobs or self.shared_blobs:
            shared_blobs = frozenset(digest for payload in payloads for digest in digests_in(payload))
        return replace(
            new_log,
            heads=heads,
            payloads=payloads,
            checksums=checksums,
            # The ids of the shared events are read only if a batch needs them.
            ids=KnownIds(None),
            last_sequence=at,
            shared=at,
            shared_blobs=shared_blobs,
        )

    def ends_record(self, sequence: int) -> bool:
        """Return True if the event with a sequence number is the last event of its record."""
        stored = self.stored(sequence - 1, sequence)
        return bool(stored) and stored[0].last_sequence == sequence

    def all_ids(self) -> list[Ids]:
        """Return the event ids of each record of the log, as pairs of the first id and the number of events."""
        return [(first_id, width_of(record_type)) for _, _, record_type, first_id, _, _ in self.heads]

    def open_questions(self) -> list[str]:
        """Return the ids of the execution's open questions, sorted."""
        return sorted(question for question, is_open in self.questions.items() if is_open)

    def is_over(self, last_sequence: int | None, moment: Moment) -> bool:
        """Return True if the execution has ended with the event `last_sequence` and no process is resuming it. None
        stands for any last event.
        """
        is_same = last_sequence in (None, self.last_sequence)
        return is_same and self.status in TERMINAL and not (self.lease and self.lease.keeps_out(moment))

    def line(self, execution_id: str) -> ExecutionRecord:
        """Return the summary row of the execution, as lists of executions show it."""
        created = to_datetime(self.created_at)
        return ExecutionRecord(
            execution_id=execution_id,
            status=self.status,
            created_at=created,
            started_at=created,
            ended_at=None if self.status_columns.ended_at is None else to_datetime(self.status_columns.ended_at),
            last_sequence=self.last_sequence,
            error=self.status_columns.error,
            size=self.size,
            wake_at=None if self.wake_at is None else to_datetime(self.wake_at),
            taken=self.taken,
            durability=self.durability,
            **self.beginning._asdict(),
        )
