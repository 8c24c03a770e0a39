"""Writing batches: what is sent to the server in one statement, and what this process knows of the logs that it writes.

A batch is made from what is known; the server enters it only if that is still so (`divebook.store.postgres.schema`).
Where it is not, or nothing is known, the log is looked up, and the batch is refused or made anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from divebook.errors import (
    ConcurrentAppendError,
    ConnectionLostError,
    CorruptStoreError,
    DecryptionError,
    ExecutionNotFoundError,
    InvalidEventError,
    NewerStoreError,
    StartKeyTakenError,
    StoreBusyError,
    StoreError,
)
from divebook.events.catalog import PAYLOADS
from divebook.events.codec import decode, encode
from divebook.events.event import Record, successor
from divebook.store.append import (
    RELAXED,
    Beginning,
    Durability,
    ExecutionRecord,
    Ids,
    KnownIds,
    Line,
    PreparedBatch,
    Refusal,
    first_line,
    line_after,
    no_place_to_fork,
    record_of,
)
from divebook.store.base import StoredRecord
from divebook.store.codec import Sealing
from divebook.store.encoding import Fetch, Packed, pack_blob, pack_id, unpack_blob, unpack_id, width_of
from divebook.store.leases import Lease
from divebook.store.postgres.connections import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    INTEGER,
    TEXT,
    BinaryArray,
    Connections,
    SentStatement,
    array_of,
    escaped,
    unescaped,
)
from divebook.store.postgres.schema import IN_KNOWN_FORMAT

# From rows of the tables to execution records and records of logs.


COLUMNS = """
executions.id, status, created_at, ended_at, last_sequence, error, size, wake_at, taken, durability,
  workflow_name, fingerprint, start_key, origin, parent, tags, note, notebook, cell, opened, seal
"""
WIDTH = COLUMNS.count(",") + 1
RECORD = f"SELECT {COLUMNS} FROM divebook.executions"  # noqa: S608 - our own text
_TAGS = Line._fields.index("tags")
_ODD = b"\xff"


def line_of(row: tuple[Any, ...]) -> tuple[Line, int]:
    """Return what the columns of `RECORD` say, and the checksum that they were written with."""
    columns: list[Any]
    *columns, seal = [unescaped(value) if isinstance(value, str) else value for value in row]
    columns[_TAGS] = encode([unescaped(tag) for tag in columns[_TAGS]]).decode()
    return Line(*columns), int(seal)


def load_line(row: tuple[Any, ...]) -> Line:
    """Return what the columns of `RECORD` say.

    Raises
    ------
    CorruptStoreError
        It is not what was written.
    """
    line, seal = line_of(row)
    if line.seal() != seal:
        raise CorruptStoreError(
            f"the row of execution {line.id} does not have the checksum it was written with, so what lists show of it "
            "is not to be trusted; `divebook check` says what is still readable"
        )
    return line


def load_record(row: tuple[Any, ...]) -> ExecutionRecord:
    """Return the line of an execution; CorruptStoreError if it is not what was written."""
    return record_of(load_line(row))


def written(line: Line) -> dict[str, Any]:
    """Return the columns of a row by their names."""
    found = {name: escaped(value) if isinstance(value, str) else value for name, value in line._asdict().items()}
    return {**found, "tags": [escaped(tag) for tag in decode(line.tags)], "seal": line.seal()}


def packed(event_id: str) -> bytes:
    """Return an id as the table has it, whose column has one type: 16 bytes, or FF and any other text."""
    found = pack_id(event_id)
    return found if isinstance(found, bytes) and found[:1] != _ODD else _ODD + event_id.encode()


def unpacked(found: bytes) -> str:
    """Undo `packed`; what is damaged becomes a text that no event has."""
    return found[1:].decode("utf-8", "replace") if is_odd(found) else unpack_id(found)


def is_odd(found: bytes) -> bool:
    """Return whether an id is none of our own form, which sort as their texts do."""
    return found[:1] == _ODD


class TypeNumbers:
    """The numbers that the database gives to types of records; another process may have added some."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}

    def load(self) -> None:
        """Read the table."""
        rows = self._connections.read("SELECT number, name FROM divebook.event_types")
        self.names = dict(rows)
        self._numbers = {name: number for number, name in rows}

    def number(self, name: str) -> int:
        """Return the number of a type; the first of a store makes one for each event type."""
        if name not in self._numbers:
            self._add({name, *PAYLOADS} - self._numbers.keys())
        return self._numbers[name]

    def are_known(self, names: Iterable[str]) -> bool:
        """Return whether the numbers of types are known, so that nothing need be asked."""
        return all(name in self._numbers for name in names)

    def _add(self, names: Collection[str]) -> None:
        insert = "INSERT INTO divebook.event_types (name) SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING"
        self._connections.write(insert, (sorted(names),))
        self.load()

    def name(self, number: int) -> str:
        """Return the name that a number stands for, looking again if it is new; ``type 7`` for one without."""
        if number not in self.names:
            self.load()
        return self.names.get(number, f"type {number}")

    def stored(self, row: tuple[Any, ...]) -> StoredRecord:
        """Return a record from a row of `divebook.read_log`."""
        _, sequence, recorded_at, number, event_id, path, step, data, checksum = row
        name = self.names.get(number) or self.name(number)
        return StoredRecord(
            sequence, recorded_at, name, unpacked(event_id), unescaped(path), unescaped(step), data, checksum
        )


# What this process knows of the logs that it writes, and batches as they are sent for them.


Tell: TypeAlias = Callable[[Sequence[PreparedBatch], Sequence[Refusal | None]], None]
"""Tells listeners what has become of batches."""


@dataclass(slots=True)
class KnownLog:
    """A log that this process writes, as it knows it."""

    key: int
    token: int
    """That of the execution's latest lease."""
    line: Line
    """The execution's row."""
    checksum: int
    """That of the last record."""
    ids: KnownIds = field(default_factory=KnownIds)
    used: set[bytes] = field(default_factory=set)
    """The large values that it is noted to refer to."""


@dataclass(slots=True)
class DraftBatch:
    """A batch as it is sent, and what is known of its log once it is written."""

    before: KnownLog | None
    """What is known of the log that it carries on; None if it begins one."""
    began: dict[str, Any]
    """What is compared, and said, of one that begins."""
    checksums: list[int]
    log: KnownLog
    used: dict[bytes, bytes]
    """The large values that the log did not refer to before."""

    def only_carries_on(self, batch: PreparedBatch) -> bool:
        """Return whether it has records for a log, and nothing else to say."""
        has_turn = batch.turn is not None or batch.wake_at is not None
        has_more = batch.questions or batch.annotations or batch.enqueued is not None or batch.withheld is not None
        return self.before is not None and not (has_turn or has_more or self.used)

    def row(self) -> tuple[Any, ...]:
        """Return what is compared with the row of a log that is carried on, and what that becomes."""
        before = self.before
        after = self.log
        assert before is not None  # noqa: S101 - it only carries on
        line = after.line
        compared = before.key, before.line.seal(), before.token, before.checksum
        return (*compared, line.status, line.last_sequence, line.size, line.taken, line.seal(), after.checksum)

    def head(self, batch: PreparedBatch) -> dict[str, Any]:
        """Return what is compared with the execution's row, and what that becomes."""
        before = self.before
        known = self.began
        if before is not None:
            known = {"key": before.key, "known_seal": before.line.seal(), "known_token": before.token}
            known["before"] = before.checksum
        return {**known, **_head(batch, self.log)}


@dataclass(slots=True)
class SentBatches:
    """Batches on their way to the server, each of which only carries on a log."""

    batches: Sequence[PreparedBatch]
    drafts: dict[int, DraftBatch]
    sent: SentStatement
    durability: Durability
    tell: Tell
    answers: list[Refusal | None] | None = None
    """Why each was refused, or None, once that is taken in."""
    error: Exception | None = None
    """What has kept all of them from being written, as far as is known here."""

    def is_answered(self, seconds: float) -> bool:
        """Return whether the server has answered, after so many seconds at most, or will not."""
        try:
            return self.sent.has_answer(seconds)
        except StoreError:  # it is raised to who takes the answer in
            return True


def _head(batch: PreparedBatch, after: KnownLog) -> dict[str, Any]:
    asked = [escaped(name) for name, is_open in batch.questions.items() if is_open]
    settled = [escaped(name) for name, is_open in batch.questions.items() if not is_open]
    questions = {"asked": asked or None, "settled": settled or None}
    withheld = batch.withheld if batch.beginning is None or batch.enqueued is not None else None
    waits = (
        {} if batch.enqueued is None else {"queue": escaped(batch.enqueued.queue), "priority": batch.enqueued.priority}
    )
    standing = {"is_over": batch.ends, "withheld": withheld, **waits}
    return {**written(after.line), "checksum": after.checksum, **standing, **questions}


def lease_of(lease: Lease) -> dict[str, Any]:
    """Return a lease as it is sent with the beginning of a log."""
    owner = lease.owner
    texts = {"host": owner.host, "owner": owner.name, "boot": owner.boot}
    named = {name: escaped(text) for name, text in texts.items()}
    return {**named, "pid": owner.pid, "started": owner.started, "expires_at": lease.expires_at}


# Reading a log: its records as one look finds them, each once it is sure that it is what was written.


MOST = 0xFFFF_FFFF
"""The highest number that an event can have."""
_READ = "SELECT * FROM divebook.read_log(%s, %s, %s)"
_IDS = "SELECT id, type FROM divebook.read_log(%s, 0, %s) WHERE sequence > 0"
_AROUND = """
SELECT found.* FROM unnest(%s::bigint[]) AS wanted(sequence)
CROSS JOIN LATERAL divebook.read_log(%s, wanted.sequence - 1, wanted.sequence) AS found
"""
_BLOB = "SELECT compressed, data FROM divebook.blobs WHERE digest = %s"


class FoundLog(NamedTuple):
    """What one look at a log finds."""

    execution_id: str
    key: int
    last_sequence: int
    checksum: int
    """That of the last record, by the execution's row."""
    rows: list[tuple[Any, ...]]
    """The wanted records, after one or two that stand before them; the first column says whose execution's they are."""


class LogReader:
    """Reads logs."""

    def __init__(self, connections: Connections, types: TypeNumbers) -> None:
        self._connections = connections
        self._types = types

    def find(self, execution_id: str, after: int, last: int) -> FoundLog | None:
        """Return the records that hold the events above `after` up to `last`, as they are; None if there is no log."""
        wanted = (escaped(execution_id), min(after, MOST), min(last, MOST))
        rows = self._connections.read(_READ, wanted)
        if not rows:
            return None
        key, _, length, *_, checksum = rows[0]
        return FoundLog(execution_id, key, length, checksum, rows[1:])

    def records(self, log: FoundLog, last: int) -> Iterator[StoredRecord]:
        """Give the records of a log, each once it has been found sound; one before the wanted ones does not matter.

        Raises
        ------
        CorruptStoreError
            A record is missing, or is not what was written.
        """
        found = [self._types.stored(row) for row in log.rows]
        expected = 1
        checksum = 0
        if found and found[0].sequence > 1:
            expected = found[0].last_sequence + 1
            checksum = found[0].checksum or 0
            del found[0]
        for record in found:
            if record.sequence != expected:
                break
            expected = record.last_sequence + 1
            checksum = record.checksum_after(checksum)
            if checksum != record.checksum or (record.last_sequence == log.last_sequence and checksum != log.checksum):
                raise _damaged(log, record, "it does not have the checksum it was written with")
            yield record
        if expected <= min(last, log.last_sequence):
            raise CorruptStoreError(
                f"event {expected} of execution {log.execution_id} is missing; the events before it are readable"
            )

    def decoded(self, log: FoundLog, last: int, sealing: Sealing) -> list[Record]:
        """Return the records of a log with what they say; raises as `records` does."""
        fetch = self.fetcher(sealing)
        return [_decoded(record, sealing, fetch, log) for record in self.records(log, last)]

    def around(self, execution_id: str, sequences: Sequence[int]) -> list[FoundLog]:
        """Return, for each event, what one look at the record that holds it finds; nothing if there is no log."""
        rows = self._connections.read(_AROUND, (list(sequences), escaped(execution_id)))
        looks: list[FoundLog] = []
        for row in rows:
            if row[1] == 0:
                looks.append(FoundLog(execution_id, row[0], row[2], row[-1], []))
            else:
                looks[-1].rows.append(row)
        return looks

    def ids(self, execution_id: str) -> list[Ids]:
        """Return the ids of the records of a log."""
        rows = self._connections.read(_IDS, (escaped(execution_id), MOST))
        return [(unpacked(event_id), width_of(self._types.name(number))) for event_id, number in rows]

    def blob(self, digest: bytes) -> bytes | None:
        """Return a content as it was written; None if it is missing, CorruptStoreError if it cannot be decompressed."""
        rows = self._connections.read(_BLOB, (digest,))
        return unpack_blob(Packed(*rows[0])) if rows else None

    def fetcher(self, sealing: Sealing) -> Fetch:
        """Return a function that loads and verifies each content once."""
        loaded: dict[bytes, bytes | None] = {}

        def fetch(digest: bytes) -> bytes | None:
            if digest not in loaded:
                loaded[digest] = sealing.open_content(digest, self.blob(digest))
            return loaded[digest]

        return fetch


def _damaged(log: FoundLog, record: StoredRecord, why: object) -> CorruptStoreError:
    first = record.sequence
    last = record.last_sequence
    what = f"event {first}" if first == last else f"the record of events {first} to {last}"
    return CorruptStoreError(
        f"{what} of execution {log.execution_id} is damaged: {why}. The events before it and the other executions are "
        "readable"
    )


def _decoded(record: StoredRecord, sealing: Sealing, fetch: Fetch, log: FoundLog) -> Record:
    try:
        return record.record(log.execution_id, sealing.open_whole(record.payload, fetch))
    except (NewerStoreError, DecryptionError) as error:
        raise type(error)(f"event {record.sequence} of execution {log.execution_id}: {error}") from error
    # Those after the first: JSON that is sound, but of another shape than the payload's.
    except (CorruptStoreError, TypeError, AttributeError, ValueError) as error:
        raise _damaged(log, record, error) from error


MOST_KNOWN = 1000
"""Logs of which this process remembers where they stand; others, mostly waiting, are looked up when they go on."""
MOST_AT_ONCE = 1 << 16
"""Bytes that are sent while somebody waits for it."""
Row: TypeAlias = tuple[Any, ...]
ATTEMPTS = 8
"""How often batches are made anew of which none can be written, nor refused: others are always there before them."""

_COMMIT = f"""
SELECT divebook.commit_batches(
  %s::json, %s, %s, %b::integer[], %b::bigint[], %b::bigint[], %b::integer[], %b::bytea[], %b::text[], %b::text[],
  %b::bytea[], %b::bigint[], %b::integer[], %b::bytea[], %b::boolean[], %b::bytea[]
) {IN_KNOWN_FORMAT}
"""
_CARRY_ON = f"""
SELECT divebook.commit_batches_carrying_on(
  $1::boolean, $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[],
  $9::bigint[], $10::bigint[], $11::bigint[], $12::integer[], $13::bigint[], $14::bigint[], $15::integer[],
  $16::bytea[], $17::text[], $18::text[], $19::bytea[], $20::bigint[]
) {IN_KNOWN_FORMAT}
"""
_LOG = (BIGINT, BIGINT, BIGINT, BIGINT, TEXT, BIGINT, BIGINT, BIGINT, BIGINT, BIGINT)
_ROW = (INTEGER, BIGINT, BIGINT, INTEGER, BYTEA, TEXT, TEXT, BYTEA, BIGINT)
_USE = (INTEGER, BYTEA, BOOLEAN, BYTEA)
"""The types of what is given as arrays: of logs that are carried on, records, and the large values they refer to."""
_LOAD = f"""
SELECT {COLUMNS}, executions.key, token, executions.checksum, forked_at, latest.id, latest.type,
  ARRAY(SELECT digest FROM divebook.blob_uses AS used WHERE used.key = executions.key)
FROM divebook.executions LEFT JOIN LATERAL (
  SELECT id, type FROM divebook.events
  WHERE place BETWEEN executions.key << 32 AND executions.key << 32 | 4294967295 ORDER BY id DESC LIMIT 1
) AS latest ON true
WHERE executions.id = ANY(%s)
"""  # noqa: S608 - our own text
_HOLDER = "SELECT id FROM divebook.executions WHERE start_key = %s"


class LogWriter:
    """The logs that this process writes, and how batches are added to them."""

    def __init__(
        self,
        connections: Connections,
        types: TypeNumbers,
        reader: LogReader,
        unknown: Callable[[str], ExecutionNotFoundError],
    ) -> None:
        self._connections = connections
        self._types = types
        self._reader = reader
        self._unknown = unknown
        self._logs: dict[str, KnownLog] = {}

    def write(self, batches: Sequence[PreparedBatch], durability: Durability) -> list[Refusal | None]:
        """Write batches; return, for each, why it was refused, or None."""
        self._connections.settle()
        answers: list[Refusal | None] = [None] * len(batches)
        todo = list(range(len(batches)))
        idle = 0
        is_first = True
        try:
            while todo and idle < ATTEMPTS:
                left = self._round(batches, todo, answers, durability, is_first=is_first)
                todo, idle, is_first = left, 0 if len(left) < len(todo) else idle + 1, False
        except BaseException as error:
            self.forget([batch.execution_id for batch in batches])  # they did not advance after all
            # What went well before is there, so that the others are refused.
            if is_first or not isinstance(error, StoreError) or isinstance(error, ConnectionLostError):
                raise
            for place in todo:
                answers[place] = error
            return answers
        for place in todo:
            answers[place] = StoreBusyError(
                f"execution {batches[place].execution_id} cannot be written: other processes always change it before. "
                "Try again"
            )
        self.forget([batch.execution_id for batch in batches if batch.ends])
        while len(self._logs) > MOST_KNOWN:
            del self._logs[next(iter(self._logs))]
        return answers

    def begin(self, batches: Sequence[PreparedBatch], durability: Durability, tell: Tell) -> SentBatches | None:
        """Send batches that only carry on logs which are known here, where nothing need be asked; None for others.

        Whoever writes next takes in what has come of them, if nobody has asked for their `outcome` until then.
        """
        is_one_each = len({batch.execution_id for batch in batches}) == len(batches)
        if not (is_one_each and self._connections.can_send() and all(map(self._is_plain, batches))):
            return None
        try:
            drafts = {place: self._draft(batch, durability, is_first=True) for place, batch in enumerate(batches)}
        except (StoreError, InvalidEventError):  # it is refused where that is looked into
            return None
        if not all(draft.only_carries_on(batches[place]) for place, draft in drafts.items()):
            return None
        rows, _ = self._rows(batches, drafts)
        is_relaxed = _is_relaxed(batches, drafts, durability)
        sent = SentBatches(batches, drafts, self._carry_on(drafts, rows, is_relaxed), durability, tell)
        self._connections.unanswered = lambda: self._settle(sent)
        return sent

    def _is_plain(self, batch: PreparedBatch) -> bool:
        """Return whether a batch can be sent without asking the server anything, and is soon sent."""
        log = self._logs.get(batch.execution_id)
        is_known = log is not None and log.ids.are_below(batch.ids) and self._types.are_known(batch.types)
        return batch.beginning is None and is_known and batch.size <= MOST_AT_ONCE

    def outcome(self, sent: SentBatches) -> list[Refusal | None]:
        """Return why each of the batches that were sent was refused, or None; raises as `write` does."""
        if sent.answers is None and sent.error is None:
            self._connections.settle()
        if sent.answers is None:
            assert sent.error is not None  # noqa: S101 - it is settled
            raise sent.error
        return sent.answers

    def _settle(self, sent: SentBatches) -> None:
        """Keep what has come of batches that were sent; who breaks that off can have it done again."""
        try:
            entered = sent.sent.numbers()
            self._connections.unanswered = None
            sent.answers = self._taken_in(sent, entered)
        except Exception as error:  # noqa: BLE001 - it is raised to who has sent them, and not to who comes next
            self._connections.unanswered = None
            sent.error = error
            self.forget([batch.execution_id for batch in sent.batches])
        else:
            sent.tell(sent.batches, sent.answers)

    def _taken_in(self, sent: SentBatches, entered: Collection[int]) -> list[Refusal | None]:
        """Return what has come of batches that were sent; those that were not entered are looked into, and written."""
        answers: list[Refusal | None] = [None] * len(sent.batches)
        left = self._entered(sent.batches, sent.drafts, _keys(sent.drafts, entered))
        if left:
            try:
                again = self.write([sent.batches[place] for place in left], sent.durability)
            except ConnectionLostError:
                raise
            except StoreError as error:  # the others are there
                again = [error] * len(left)
            for place, answer in zip(left, again, strict=True):
                answers[place] = answer
        return answers

    def forget(self, execution_ids: Iterable[str]) -> None:
        """Look again where these logs stand before something is added to them."""
        for execution_id in execution_ids:
            self._logs.pop(execution_id, None)

    def _round(
        self,
        batches: Sequence[PreparedBatch],
        todo: Sequence[int],
        answers: list[Refusal | None],
        durability: Durability,
        *,
        is_first: bool,
    ) -> list[int]:
        """Send one batch of each execution; return which are still to be written."""
        firsts: dict[str, int] = {}
        for place in todo:
            firsts.setdefault(batches[place].execution_id, place)
        left = [place for place in todo if firsts[batches[place].execution_id] != place]
        if is_first:
            self.forget([batches[place].execution_id for place in firsts.values() if batches[place].beginning])
        found = self._look_up(
            batches[place] for place in firsts.values() if batches[place].beginning is None or not is_first
        )
        drafts: dict[int, DraftBatch] = {}
        for execution_id, place in firsts.items():
            batch = batches[place]
            if batch.source in firsts and firsts[batch.source] < place:
                left.append(place)
                continue
            try:
                drafts[place] = self._draft(batch, durability, is_first=is_first)
            except (StoreError, InvalidEventError) as refusal:
                self.forget([execution_id])
                if isinstance(refusal, StoreBusyError):
                    raise
                if batch.beginning is None and execution_id not in found:
                    left.append(place)  # another process may have written to it since
                else:
                    answers[place] = refusal
        if drafts:
            left += self._send(batches, drafts, durability)
        return sorted(left)

    def _look_up(self, batches: Iterable[PreparedBatch]) -> Collection[str]:
        """Find the logs that are not known; return which these are, or would be."""
        wanted = [batch.execution_id for batch in batches if batch.execution_id not in self._logs]
        if not wanted:
            return ()
        for row in self._connections.read(_LOAD, ([escaped(name) for name in wanted],)):
            line = load_line(row[:WIDTH])
            key, token, checksum, forked_at, latest, number, used = row[WIDTH:]
            self._logs[line.id] = KnownLog(key, token, line, checksum, self._ids(forked_at, latest, number), {*used})
        return wanted

    def _ids(self, forked_at: int | None, latest: bytes | None, number: int | None) -> KnownIds:
        """Return the ids of a log, of which the highest is enough if all are of our form; a fork's are looked at."""
        if forked_at is not None or latest is None or number is None or is_odd(latest):
            return KnownIds(None)
        try:
            return KnownIds(successor(unpacked(latest), width_of(self._types.name(number)) - 1))
        except ValueError:  # nobody wrote it so
            return KnownIds(None)

    def _draft(self, batch: PreparedBatch, durability: Durability, *, is_first: bool) -> DraftBatch:
        """Return a batch as it is sent, or raise if it does not fit."""
        log = self._logs.get(batch.execution_id)
        if batch.beginning is not None:
            if log is not None:
                raise ConcurrentAppendError(batch.execution_id, 0, log.line.last_sequence)
            return self._begin(batch, batch.beginning, durability, is_first=is_first)
        if log is None:
            raise self._unknown(batch.execution_id)
        if log.token != batch.token:
            raise batch.fenced(log.token)
        if log.line.last_sequence != batch.expected_sequence:
            raise ConcurrentAppendError(batch.execution_id, batch.expected_sequence, log.line.last_sequence)
        batch.check_may_follow(log.line.status)
        log.ids.refuse(batch.records, batch.ids, lambda: self._reader.ids(batch.execution_id))
        used = {digest: content for digest, content in batch.blobs.items() if digest not in log.used}
        size = log.line.size + batch.size + sum(map(len, used.values()))
        checksums = batch.checksums(log.checksum)
        after = KnownLog(
            log.key, log.token, line_after(log.line, batch, size), checksums[-1], log.ids, log.used | used.keys()
        )
        return DraftBatch(log, {}, checksums, after, used)

    def _begin(
        self, batch: PreparedBatch, beginning: Beginning, durability: Durability, *, is_first: bool
    ) -> DraftBatch:
        if batch.token:
            raise batch.fenced(0)
        if beginning.key is not None and not is_first:
            self._refuse_taken(beginning.key)
        before, shared = (0, {}) if batch.source is None else self._fork_of(batch, batch.source)
        size = batch.size + sum(map(len, batch.blobs.values()))
        line = line_after(first_line(batch, beginning, batch.durability or durability), batch, size)
        checksums = batch.checksums(before)
        token = batch.lease.token if batch.lease else 0
        ids = KnownIds(None) if shared else KnownIds()
        after = KnownLog(0, token, line, checksums[-1], ids, {*batch.blobs})
        lease = {} if batch.lease is None else lease_of(batch.lease)
        began = {"before": before, "token": token, **shared, **lease}
        return DraftBatch(None, began, checksums, after, dict(batch.blobs))

    def _refuse_taken(self, key: str) -> None:
        for (holder,) in self._connections.read(_HOLDER, (escaped(key),)):
            raise StartKeyTakenError(key, unescaped(holder))

    def _fork_of(self, batch: PreparedBatch, source: str) -> tuple[int, dict[str, Any]]:
        """Return the checksum of the last event that a fork shares with its source, and whose row that event is."""
        at = batch.expected_sequence
        found = self._reader.find(source, at - 1, at)
        if found is None:
            raise self._unknown(source)
        records = list(self._reader.records(found, min(at, found.last_sequence)))
        if not records or records[-1].last_sequence != at:
            raise no_place_to_fork(batch)
        owner = found.rows[-1][0]
        place = owner << 32 | records[-1].sequence
        return records[-1].checksum or 0, {"source_key": owner, "forked_at": at, "source_place": place}

    def _send(
        self, batches: Sequence[PreparedBatch], drafts: dict[int, DraftBatch], durability: Durability
    ) -> list[int]:
        """Send drafts; return which were not entered."""
        rows, uses = self._rows(batches, drafts)
        is_relaxed = _is_relaxed(batches, drafts, durability)
        if all(draft.only_carries_on(batches[place]) for place, draft in drafts.items()):
            keys = _keys(drafts, self._carry_on(drafts, rows, is_relaxed).numbers())
        else:
            heads = encode([draft.head(batches[place]) for place, draft in drafts.items()]).decode()
            values = (heads, is_relaxed, time.time_ns() // 1000, *_arrays(_ROW, rows), *_arrays(_USE, uses))
            answer = self._connections.write(_COMMIT, values)
            if not answer:
                raise self._connections.refused_format()
            ((keys,),) = answer
        return self._entered(batches, drafts, keys)

    def _carry_on(self, drafts: Mapping[int, DraftBatch], rows: Sequence[Row], is_relaxed: bool) -> SentStatement:  # noqa: FBT001
        logs = [draft.row() for draft in drafts.values()]
        return self._connections.send(_CARRY_ON, (is_relaxed, *_arrays(_LOG, logs), *_arrays(_ROW, rows)))

    def _rows(self, batches: Sequence[PreparedBatch], drafts: Mapping[int, DraftBatch]) -> tuple[list[Row], list[Row]]:
        """Return the records of drafts, and the large values that they refer to."""
        rows: list[Row] = []
        uses: list[Row] = []
        for number, (place, draft) in enumerate(drafts.items(), 1):
            batch = batches[place]
            entries = zip(batch.records, batch.types, batch.payloads, draft.checksums, strict=True)
            for record, name, payload, checksum in entries:
                named = (number, record.sequence, record.recorded_at, self._types.number(name), packed(record.id))
                rows.append((*named, escaped(record.path), escaped(record.step), payload, checksum))
            for digest, content in draft.used.items():
                kept = batch.packed.get(digest) or pack_blob(content)
                uses.append((number, digest, kept.compressed, kept.data))
        return rows, uses

    def _entered(
        self, batches: Sequence[PreparedBatch], drafts: Mapping[int, DraftBatch], keys: Sequence[int]
    ) -> list[int]:
        """Note the logs of drafts that were entered, whose keys are not 0; return which were not."""
        left = []
        for (place, draft), key in zip(drafts.items(), keys, strict=True):
            self._logs.pop(batches[place].execution_id, None)  # so that the one which was written last comes last
            if key:
                draft.log.key = key
                draft.log.ids.add(batches[place].records, batches[place].ids)
                self._logs[batches[place].execution_id] = draft.log
            else:
                left.append(place)
        return left


def _is_relaxed(batches: Sequence[PreparedBatch], drafts: Mapping[int, DraftBatch], durability: Durability) -> bool:
    return {batches[place].durability or durability for place in drafts} == {RELAXED}


def _keys(drafts: Mapping[int, DraftBatch], entered: Collection[int]) -> list[int]:
    """Return the keys of the logs that were carried on, 0 for others."""
    known = [draft.log.key for draft in drafts.values()]
    return [key if key in entered else 0 for key in known]


def _arrays(kinds: Sequence[int], rows: Sequence[tuple[Any, ...]]) -> list[BinaryArray]:
    columns = zip(*rows, strict=True) if rows else [()] * len(kinds)
    return [array_of(kind, column) for kind, column in zip(kinds, columns, strict=True)]
