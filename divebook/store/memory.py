"""Events in this process's memory: for tests, and for runs that need not be kept.

Payloads are kept encoded, as on disk, so that what is read is always a copy and fails where a file would fail.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TypeAlias

from divebook.engine.inbox import Message
from divebook.engine.lifecycle import TERMINAL
from divebook.errors import ConcurrentAppendError, DecryptionError, InvalidEventError, StartKeyTakenError, StoreError
from divebook.events.catalog import CHILD, ENQUEUED, FORK, RUNNING, WAITING, ExecutionEnqueued, Payload
from divebook.events.codec import decode
from divebook.events.event import Record, to_datetime
from divebook.store.append import (
    FULL,
    Beginning,
    Durability,
    ExecutionRecord,
    Ids,
    KnownIds,
    PreparedBatch,
    RecordFilter,
    Refusal,
    Turn,
    no_place_to_fork,
)
from divebook.store.base import (
    EventStore,
    StoredBlob,
    StoredLog,
    StoredRecord,
    StoredSummary,
    check_reached,
    first_sorted,
)
from divebook.store.encoding import reached, width_of
from divebook.store.leases import Claim, Lease, Moment, Owner, QueuedExecution, WorkerRecord

# One log in this process's memory.


Head: TypeAlias = tuple[int, int, str, str, str, str]
"""First sequence, time, type, id, path and step of a record. Plain tuples of plain values, so that Python's search for
garbage does not look through all of a long log again and again."""


@dataclass(slots=True)
class MemoryLog:
    """What a store in memory has of one execution."""

    beginning: Beginning
    created_at: int
    number: int
    """Of the logs of its store, in the order in which they began."""
    turn: Turn = field(default_factory=lambda: Turn(RUNNING, None, None))
    heads: list[Head] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    ids: KnownIds = field(default_factory=KnownIds)
    checksums: list[int] = field(default_factory=list)
    blobs: set[bytes] = field(default_factory=set)
    shared: int = 0
    """How many events are those of the log that it was forked from: the same objects, which its size does not count."""
    shared_blobs: frozenset[bytes] = frozenset()
    """The large values that those refer to."""
    last_sequence: int = 0
    size: int = 0
    token: int = 0
    lease: Lease | None = None
    checkpoint: tuple[int, bytes] | None = None
    summary: StoredSummary | None = None
    questions: dict[str, bool] = field(default_factory=dict)
    wake_at: int | None = None
    taken: int = 0
    durability: Durability = FULL
    enqueued: ExecutionEnqueued | None = None
    """The queue that has it, if one does."""
    withheld: bool = False
    """Whether workers leave it alone."""

    def stored(self, after: int, last: int) -> list[StoredRecord]:
        """Return the records that hold the events above `after` up to `last`."""
        first = max(bisect_right(self.heads, after + 1, key=itemgetter(0)) - 1, 0)
        wanted = slice(first, bisect_right(self.heads, last, key=itemgetter(0)))
        rows = zip(self.heads[wanted], self.payloads[wanted], self.checksums[wanted], strict=True)
        return [StoredRecord(*head, payload, checksum) for head, payload, checksum in rows]

    def forked(self, at: int, like: MemoryLog, used: Callable[[bytes], Iterable[bytes]]) -> MemoryLog:
        """Return a log like another new one that begins with the events of this one up to `at`.

        `used` says which large values a payload refers to.
        """
        known = self.shared_blobs.union(self.blobs)
        count = bisect_right(self.heads, at, key=itemgetter(0))
        heads = self.heads[:count]
        payloads = self.payloads[:count]
        checksums = self.checksums[:count]
        return replace(
            like,
            heads=heads,
            payloads=payloads,
            checksums=checksums,
            ids=KnownIds(None),
            last_sequence=at,
            shared=at,
            shared_blobs=frozenset(found for payload in payloads for found in used(payload)) if known else known,
        )

    def ends_record(self, sequence: int) -> bool:
        """Return whether a record ends with an event."""
        stored = self.stored(sequence - 1, sequence)
        return bool(stored) and stored[0].last_sequence == sequence

    def all_ids(self) -> list[Ids]:
        """Return the ids of its records."""
        return [(first_id, width_of(record_type)) for _, _, record_type, first_id, _, _ in self.heads]

    def open_questions(self) -> list[str]:
        """Return the questions that are asked and not settled."""
        return sorted(asked for asked, is_open in self.questions.items() if is_open)

    def is_over(self, moment: Moment) -> bool:
        """Return whether it has ended and no process has begun to resume it."""
        return self.turn.status in TERMINAL and not (self.lease and self.lease.keeps_out(moment))

    def ended_before(self, moment: int) -> bool:
        """Return whether it has ended, and did before a moment."""
        turn = self.turn
        return turn.status in TERMINAL and turn.ended_at is not None and turn.ended_at < moment

    def line(self, execution_id: str) -> ExecutionRecord:
        """Return it as lists have it."""
        created = to_datetime(self.created_at)
        return ExecutionRecord(
            execution_id=execution_id,
            status=self.turn.status,
            created_at=created,
            started_at=created,
            ended_at=None if self.turn.ended_at is None else to_datetime(self.turn.ended_at),
            last_sequence=self.last_sequence,
            error=self.turn.error,
            size=self.size,
            wake_at=None if self.wake_at is None else to_datetime(self.wake_at),
            taken=self.taken,
            durability=self.durability,
            **self.beginning._asdict(),
        )


def head_of(record: Record, record_type: str) -> Head:
    """Return what is kept of a record beside its data."""
    return record.sequence, record.recorded_at, record_type, record.id, record.path, record.step


# The queues of a store in memory.


class MemoryQueues(EventStore):
    """The part of a store in memory that has queues and workers."""

    def __init__(self) -> None:
        super().__init__()
        self._logs: dict[str, MemoryLog] = {}
        self._announced: dict[str, WorkerRecord] = {}
        self._schedules: dict[str, int] = {}

    @abstractmethod
    def _has_untaken(self, execution_id: str) -> bool: ...

    def _claim(self, wanted: Claim, owner: Owner, moment: Moment, until: Moment) -> list[Lease]:
        ordered = (known for queue in wanted.queues for known in self._waiting() if known.queue == queue)
        fitting = (known.execution_id for known in ordered if wanted.workflows.get(known.workflow) == known.fingerprint)
        to_do = (name for name in fitting if name not in wanted.without and self._is_to_do(name, moment))
        return [self._acquire(name, owner, moment, until, None) for name in [*itertools.islice(to_do, wanted.limit)]]

    def _is_to_do(self, execution_id: str, moment: Moment) -> bool:
        log = self._logs[execution_id]
        if log.lease is not None and log.lease.keeps_out(moment):
            return False
        is_due = log.wake_at is not None and log.wake_at <= moment.wall
        if log.turn.status == ENQUEUED:
            return log.wake_at is None or is_due
        return log.turn.status == RUNNING or log.lease is not None or is_due or self._has_untaken(execution_id)

    def _waiting(self, *, withheld: bool = False) -> Iterator[QueuedExecution]:
        """Yield what the queues have, in its order; or what workers leave alone of it."""
        with self._lock:
            kept = [
                (-log.enqueued.priority, log.number, name, log.enqueued.queue, log.beginning)
                for name, log in self._logs.items()
                if log.enqueued is not None and log.withheld is withheld and log.turn.status not in TERMINAL
                if log.beginning.origin != FORK
            ]
        for less, _, name, queue, beginning in sorted(kept, key=lambda entry: (entry[3], *entry[:2])):
            yield QueuedExecution(name, queue, -less, beginning.workflow_name, beginning.fingerprint)

    def _queued(self, *, withheld: bool) -> list[QueuedExecution]:
        return list(self._waiting(withheld=withheld))

    def _seen_to(self, schedule: str, moment: int) -> int:
        return self._schedules.setdefault(schedule, moment)

    def _see_to(self, schedule: str, moment: int) -> None:
        self._schedules[schedule] = max(moment, self._schedules.get(schedule, moment))

    def _withhold(self, execution_id: str) -> None:
        if execution_id in self._logs:
            self._logs[execution_id].withheld = True

    def _announce(self, worker: WorkerRecord, until: int, forgotten: int) -> None:
        self._announced = {name: known for name, known in self._announced.items() if known.expires_at >= forgotten}
        self._announced[worker.id] = replace(worker, expires_at=until)

    def _retire(self, worker_id: str) -> None:
        self._announced.pop(worker_id, None)

    def _workers(self) -> list[WorkerRecord]:
        return list(self._announced.values())


class MemoryStore(MemoryQueues):
    """A store that is gone with the process."""

    location = "memory:"
    keeps = shared = False

    def __init__(self) -> None:
        super().__init__()
        self._going: dict[str, MemoryLog] = {}
        """Those that have not ended, so that the inbox and recovery need not look through the others."""
        self._numbers = itertools.count()
        self._keys: dict[str, str] = {}
        self._contents: dict[bytes, bytes] = {}
        self._messages: dict[int, tuple[Message, bytes]] = {}
        self._boxes: dict[str, list[int]] = {}
        """The messages of each execution."""
        self._places: dict[tuple[str, str, str], int] = {}
        """The message of each execution, kind and key: only the first one is kept."""
        self._last_number = 0

    def _write(self, batches: Sequence[PreparedBatch]) -> list[Refusal | None]:
        return [self._write_one(batch) for batch in batches]

    def _write_one(self, batch: PreparedBatch) -> Refusal | None:
        try:
            log = self._log_for(batch)
        except (StoreError, InvalidEventError) as refusal:
            return refusal
        self._extend(log, batch)
        return None

    def _log_for(self, batch: PreparedBatch) -> MemoryLog:
        log = self._logs.get(batch.execution_id)
        if log is None:
            return self._begun(batch)
        if batch.token != log.token and batch.expected_sequence:
            raise batch.fenced(log.token)
        if log.last_sequence != batch.expected_sequence:
            raise ConcurrentAppendError(batch.execution_id, batch.expected_sequence, log.last_sequence)
        batch.check_may_follow(log.turn.status)
        log.ids.refuse(batch.records, batch.ids, log.all_ids)
        return log

    def _begun(self, batch: PreparedBatch) -> MemoryLog:
        beginning = batch.beginning
        if beginning is None:
            raise self._unknown(batch.execution_id)
        if batch.token:
            raise batch.fenced(0)
        if beginning.key is not None and beginning.key in self._keys:
            raise StartKeyTakenError(beginning.key, self._keys[beginning.key])
        begun = MemoryLog(beginning, batch.began_at, next(self._numbers), durability=batch.durability or FULL)
        if batch.source is None:
            return begun
        source = self._find(batch.source)
        if not source.ends_record(batch.expected_sequence):
            raise no_place_to_fork(batch)
        return source.forked(batch.expected_sequence, begun, self._reached)

    def _extend(self, log: MemoryLog, batch: PreparedBatch) -> None:
        log.checksums.extend(batch.checksums(log.checksums[-1] if log.checksums else 0))
        log.heads.extend(map(head_of, batch.records, batch.types))
        log.payloads.extend(batch.payloads)
        log.ids.add(batch.records, batch.ids)
        log.last_sequence = batch.last_sequence
        log.size += batch.size
        for digest, content in batch.blobs.items():
            self._refer(log, digest, content)
        if batch.turn is not None:
            log.turn = batch.turn
        elif batch.status not in (None, log.turn.status):
            log.turn = replace(log.turn, status=batch.status)
        if batch.questions:
            log.questions |= batch.questions
        if batch.annotations:
            log.beginning = log.beginning.annotated(batch.annotations)
        log.enqueued = batch.enqueued or log.enqueued
        log.withheld = log.withheld if batch.withheld is None else batch.withheld
        log.wake_at = batch.wake_at
        log.taken = max(log.taken, batch.taken)
        if batch.lease is not None:
            log.token = 1
            log.lease = batch.lease
        if batch.ends:
            log.lease = None
        self._logs[batch.execution_id] = log
        if log.turn.status in TERMINAL:
            self._going.pop(batch.execution_id, None)
        else:
            self._going[batch.execution_id] = log
        if batch.beginning is not None and batch.beginning.key is not None:
            self._keys[batch.beginning.key] = batch.execution_id

    def _reached(self, payload: bytes) -> Iterator[bytes]:
        return reached(self.sealing.open_packed(payload), self._content)

    def _refer(self, log: MemoryLog, digest: bytes, content: bytes) -> None:
        self._contents.setdefault(digest, content)
        if digest not in log.blobs:
            log.blobs.add(digest)
            log.size += len(content)

    def _read_records(self, execution_id: str, after: int, last: int) -> list[Record]:
        with self._lock:
            log = self._find(execution_id)
            stored = log.stored(after, min(last, log.last_sequence))
        return [self._decoded(execution_id, record) for record in stored]

    def _decoded(self, execution_id: str, record: StoredRecord) -> Record:
        return record.record(execution_id, self.sealing.open_whole(record.payload, self._content))

    def _facts(self, execution_id: str, sequences: Sequence[int]) -> dict[int, Payload]:
        return {sequence: self._read(execution_id, sequence - 1, 1)[0].data for sequence in sequences}

    def _content(self, digest: bytes) -> bytes | None:
        return self.sealing.open_content(digest, self._contents.get(digest))

    def _record(self, execution_id: str) -> ExecutionRecord:
        with self._lock:
            return self._find(execution_id).line(execution_id)

    def _records(self, wanted: RecordFilter, limit: int, offset: int) -> list[ExecutionRecord]:
        with self._lock:
            fitting = [name for name, log in self._logs.items() if (log.turn.status, log.beginning) in wanted]
            page = self._newest(fitting)[offset : offset + limit if limit else None]
            return [self._logs[name].line(name) for name in page]

    def _newest(self, names: list[str]) -> list[str]:
        """Return them newest first; of two created at once the later one comes first."""
        return sorted(names, key=lambda name: (self._logs[name].created_at, self._logs[name].number), reverse=True)

    def _unended(self) -> list[ExecutionRecord]:
        with self._lock:
            return [self._going[name].line(name) for name in self._newest(list(self._going))]

    def _orphans(self, moment: Moment) -> list[ExecutionRecord]:
        with self._lock:
            leases = self._leases()
            untaken = self._untaken()
            now = to_datetime(moment.wall)
            driven = {lease.execution_id for lease in leases if lease.keeps_out(moment)}
            pressed = untaken | {lease.execution_id for lease in leases}
            idle = [record for record in self._unended() if record.execution_id not in driven]
        return [
            record
            for record in idle
            if record.status != WAITING or record.is_due(now) or record.execution_id in pressed
        ]

    def _descendants(self, execution_id: str) -> int:
        below: dict[str, list[str]] = {}
        with self._lock:
            for name, log in self._logs.items():
                if log.beginning.origin == CHILD and log.beginning.parent is not None:
                    below.setdefault(log.beginning.parent, []).append(name)
        total = 0
        left = [execution_id]
        while left:
            children = below.pop(left.pop(), [])
            total += len(children)
            left += children
        return total

    def _asking(self, question_id: str | None) -> list[tuple[str, str]]:
        with self._lock:
            asking = [name for name, log in self._going.items() if any(log.questions.values())]
            return [
                (name, asked)
                for name in self._newest(asking)
                for asked in self._going[name].open_questions()
                if question_id in (None, asked)
            ]

    def _candidates(self, prefix: str) -> list[str]:
        with self._lock:
            return first_sorted(execution_id for execution_id in self._logs if execution_id.startswith(prefix))

    def _delete(self, execution_id: str) -> None:
        self._find(execution_id)
        self._drop(execution_id)

    def _cleanup(self, before: int) -> list[str]:
        gone = [execution_id for execution_id, log in self._logs.items() if log.ended_before(before)]
        for execution_id in gone:
            self._drop(execution_id)
        return gone

    def _drop(self, execution_id: str) -> None:
        key = self._logs.pop(execution_id).beginning.key
        self._going.pop(execution_id, None)
        if key is not None:
            del self._keys[key]
        for number in self._boxes.pop(execution_id, ()):
            message, _ = self._messages.pop(number)
            self._places.pop((execution_id, message.kind, message.key), None)

    # --- leases and checkpoints --------------------------------------------------------------------------------------

    def _acquire(
        self, execution_id: str, owner: Owner, moment: Moment, until: Moment, instead_of: Lease | None
    ) -> Lease:
        log = self._find(execution_id)
        if log.lease is not None and log.lease.keeps_out(moment, instead_of):
            raise log.lease.held_error()
        log.token += 1
        log.lease = replace(until.lease(execution_id, log.token, owner), was_left=log.lease is not None)
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
        if log is not None and log.token == lease.token:
            log.lease = None

    def _leases(self) -> list[Lease]:
        with self._lock:
            return [log.lease for log in self._logs.values() if log.lease is not None]

    def _lease_of(self, execution_id: str) -> Lease | None:
        return self._find(execution_id).lease

    def _put_checkpoint(self, execution_id: str, sequence: int, data: bytes) -> None:
        log = self._find(execution_id)
        check_reached(execution_id, sequence, log.last_sequence)
        if log.checkpoint is None or log.checkpoint[0] <= sequence:
            log.checkpoint = (sequence, data)

    def _checkpoint(self, execution_id: str) -> tuple[int, bytes] | None:
        log = self._logs.get(execution_id)
        return log.checkpoint if log else None

    def _checkpoints(self) -> list[str]:
        with self._lock:
            return [execution_id for execution_id, log in self._logs.items() if log.checkpoint]

    def _drop_checkpoints(self, execution_ids: Sequence[str]) -> int:
        logs = [self._logs[execution_id] for execution_id in self._checkpoints() if execution_id in execution_ids]
        for log in logs:
            log.checkpoint = None
        return len(logs)

    # --- what lists show ---------------------------------------------------------------------------------------------

    def _put_summaries(self, summaries: Mapping[str, StoredSummary]) -> None:
        for execution_id in summaries.keys() & self._logs.keys():
            self._logs[execution_id].summary = summaries[execution_id]

    def _summaries(self, execution_ids: Sequence[str]) -> dict[str, StoredSummary]:
        with self._lock:
            found = {name: self._logs[name].summary for name in execution_ids if name in self._logs}
        return {name: summary for name, summary in found.items() if summary is not None}

    # --- messages ----------------------------------------------------------------------------------------------------

    def _post(self, message: Message, payload: bytes) -> Message:
        self._find(message.execution_id)
        place = (message.execution_id, message.kind, message.key)
        if (found := self._messages.get(self._places.get(place, 0))) is not None:
            kept, encoded = found
            return replace(kept, payload=decode(self.sealing.open(encoded)))
        numbered = replace(message, number=self._last_number + 1)
        self._bring([(numbered, payload)])
        return numbered

    def _bring(self, messages: Sequence[tuple[Message, bytes]]) -> None:
        for message, _ in messages:
            self._find(message.execution_id)
        for message, payload in messages:
            self._last_number = message.number
            self._places[message.execution_id, message.kind, message.key] = message.number
            self._messages[message.number] = (replace(message, payload=None), payload)
            self._boxes.setdefault(message.execution_id, []).append(message.number)

    def _inbox(self, execution_id: str, after: int) -> list[Message]:
        with self._lock:
            self._find(execution_id)
            sent = [self._messages[number] for number in self._boxes.get(execution_id, ()) if number > after]
            return [replace(message, payload=decode(self.sealing.open(payload))) for message, payload in sent]

    def _new_messages(self, after: int) -> list[Message]:
        if after >= self._last_number:
            return []
        found = []
        for message, payload in (entry for number, entry in self._messages.items() if number > after):
            with suppress(DecryptionError):  # the inbox of its execution says so
                found.append(replace(message, payload=decode(self.sealing.open(payload))))
        return found

    def _last_message(self) -> int:
        return self._last_number

    def _untaken(self) -> set[str]:
        with self._lock:
            return {name for name in self._going if self._has_untaken(name)}

    def _has_untaken(self, execution_id: str) -> bool:
        with self._lock:
            log = self._find(execution_id)
            latest = self._boxes.get(execution_id, (0,))[-1]
            return latest > log.taken and log.turn.status not in TERMINAL

    def _last_addressee(self, kind: str, key: str) -> str | None:
        with self._lock:
            messages = [message for message, _ in self._messages.values()]
            found = [message.execution_id for message in messages if (message.kind, message.key) == (kind, key)]
            return found[-1] if found else None

    # --- keeping in order --------------------------------------------------------------------------------------------

    def _ids(self) -> list[str]:
        with self._lock:
            return self._newest(list(self._logs))

    def _stored_log(self, execution_id: str) -> StoredLog:
        with self._lock:
            log = self._find(execution_id)
            stored = log.stored(0, log.last_sequence)
            noted = frozenset(log.blobs), frozenset(log.open_questions())
            return StoredLog(log.line(execution_id), log.checksums[-1], stored, *noted, log.shared, log.shared_blobs)

    def _blobs(self, without: Collection[str]) -> list[StoredBlob]:
        with self._lock:
            kept = [log for name, log in self._logs.items() if name not in without]
            used = {digest for log in kept for digest in log.blobs | log.shared_blobs}
            return [StoredBlob(digest, len(data), digest in used) for digest, data in self._contents.items()]

    def _blob(self, digest: bytes) -> bytes | None:
        return self._contents.get(digest)

    def _faults(self) -> list[str]:
        return []

    def _discard(self, execution_ids: Sequence[str], moment: Moment) -> list[str]:
        gone = [name for name in execution_ids if name in self._logs and self._logs[name].is_over(moment)]
        for execution_id in gone:
            self._drop(execution_id)
        return gone

    def _drop_blobs(self) -> int:
        unused = [blob.digest for blob in self._blobs(()) if not blob.used]
        for digest in unused:
            del self._contents[digest]
        return len(unused)

    def _close(self) -> None:
        self._logs.clear()
        self._going.clear()
        self._boxes.clear()
        self._messages.clear()

    def _find(self, execution_id: str) -> MemoryLog:
        log = self._logs.get(execution_id)
        if log is None:
            raise self._unknown(execution_id)
        return log
