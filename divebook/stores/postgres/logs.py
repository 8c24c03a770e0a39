"""Writing and reading of logs in a Postgres database; batches are written in one round trip.

`LogWriter` caches the ends of the logs that this process writes. It prepares a batch from the cached end of its log,
and sends that end along. A function of the server (`divebook.stores.postgres.schema`) writes the batch only if the
execution's row still matches it. For example, a process has cached that the log of A ends with event 7, and sends
events 8 and 9, but another process has appended an event 8 in the meantime. The server then writes nothing, and
`LogWriter` reads the log again, and refuses the batch or sends it once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from divebook.engine.inbox import Message
from divebook.errors import (
    ConcurrentAppendError,
    ConnectionLostError,
    CorruptStoreError,
    ExecutionNotFoundError,
    InvalidEventError,
    StartKeyTakenError,
    StoreBusyError,
    StoreError,
)
from divebook.events.catalog import PAYLOADS
from divebook.events.codec import decode, encode
from divebook.events.event import Record, successor
from divebook.report.hints import advised
from divebook.stores.append import (
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
    fork_point_error,
    line_after,
    record_of,
)
from divebook.stores.backend import WRONG_CHECKSUM, StoredRecord, missing_event_error
from divebook.stores.codec import Sealing
from divebook.stores.encoding import Packed, of_row, pack_blob, pack_id, unpack_blob, unpack_id, width_of
from divebook.stores.leases import Lease
from divebook.stores.postgres.connections import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DIALECT,
    INTEGER,
    TEXT,
    BinaryArray,
    Connections,
    SentStatement,
    array_of,
    escaped,
    unescaped,
)
from divebook.stores.postgres.schema import IN_KNOWN_FORMAT, DataMigration, named
from divebook.stores.sql import LOAD_BLOB, LOAD_TYPES, NEWEST_MESSAGE

if TYPE_CHECKING:
    import psycopg

COLUMNS = """
executions.id, status, created_at, ended_at, last_sequence, error, size, wake_at, taken, durability,
  workflow_name, fingerprint, start_key, origin, parent, tags, note, notebook, cell, opened, seal
"""
WIDTH = COLUMNS.count(",") + 1
RECORD = f"SELECT {COLUMNS} FROM divebook.executions"  # noqa: S608 - our own text
_TAGS = Line._fields.index("tags")
_OTHER_FORM = b"\xff"
MOST = 0xFFFF_FFFF
"""Highest possible sequence number of an event."""
MAX_CACHED_LOGS = 1000
"""Maximum number of cached logs. Logs beyond that, mostly of waiting executions, are read again when needed."""
MAX_SENT_BYTES = 1 << 16
"""Maximum payload size of a batch that is sent while the engine's event loop waits."""
MAX_ATTEMPTS = 8
"""Maximum number of consecutive rounds in which other processes changed the logs first, so that no batch
was settled."""
Notify: TypeAlias = Callable[[Sequence[PreparedBatch], Sequence[Refusal | None]], None]
"""Function that notifies listeners of the batches that were written."""
Row: TypeAlias = tuple[Any, ...]
_READ = "SELECT * FROM divebook.read_log(%s, %s, %s)"
_IDS = "SELECT id, type FROM divebook.read_log(%s, 0, %s) WHERE sequence > 0"
_AROUND = """
SELECT found.* FROM unnest(%s::bigint[]) AS wanted(sequence)
CROSS JOIN LATERAL divebook.read_log(%s, wanted.sequence - 1, wanted.sequence) AS found
"""
_BLOB = DIALECT.text(LOAD_BLOB)
# %b sends a parameter in the binary format (`BinaryArray`).
_COMMIT = f"""
SELECT divebook.commit_batches(
  %s::json, %s, %s, %b::integer[], %b::bigint[], %b::bigint[], %b::integer[], %b::bytea[], %b::text[], %b::text[],
  %b::bytea[], %b::bigint[], %b::integer[], %b::bytea[], %b::boolean[], %b::bytea[]
) AS keys {IN_KNOWN_FORMAT}
"""
# Also posts messages to the parents of executions that end with their batch. The messages come last, because they lock
# the one row with the number of the last message until the commit.
_COMMIT_AND_POST = f"""
WITH committed AS MATERIALIZED ({_COMMIT})
SELECT keys, (
  SELECT count(divebook.post_message(id, place, kind, name, payload, source, posted_at, checksum))
  FROM (
    SELECT given.* FROM unnest(
      %b::integer[], %b::text[], %b::bytea[], %b::text[], %b::text[], %b::bytea[], %b::text[], %b::bigint[],
      %b::bigint[]
    ) AS given(batch, id, place, kind, name, payload, source, posted_at, checksum)
    WHERE keys[batch] <> 0
      AND EXISTS (SELECT FROM divebook.executions AS parent WHERE parent.id = given.id AND parent.ended_at IS NULL)
    ORDER BY batch
  ) AS in_order
) FROM committed
"""  # noqa: S608 - our own text
_EXTEND_LOGS = f"""
SELECT divebook.commit_batches_carrying_on(
  $1::boolean, $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[],
  $9::bigint[], $10::bigint[], $11::bigint[], $12::integer[], $13::bigint[], $14::bigint[], $15::integer[],
  $16::bytea[], $17::text[], $18::text[], $19::bytea[], $20::bigint[]
) {IN_KNOWN_FORMAT}
"""
_LOG = (BIGINT, BIGINT, BIGINT, BIGINT, TEXT, BIGINT, BIGINT, BIGINT, BIGINT, BIGINT)
_ROW = (INTEGER, BIGINT, BIGINT, INTEGER, BYTEA, TEXT, TEXT, BYTEA, BIGINT)
_USE = (INTEGER, BYTEA, BOOLEAN, BYTEA)
_POST = (INTEGER, TEXT, BYTEA, TEXT, TEXT, BYTEA, TEXT, BIGINT, BIGINT)
"""Types of the columns that are sent as arrays: of extended logs (`_LOG`), of records (`_ROW`), of uses of large values
(`_USE`), of messages to parents (`_POST`)."""
_LOAD = f"""
SELECT {COLUMNS}, executions.key, token, executions.checksum, forked_at, latest.id, latest.type,
  ARRAY(SELECT digest FROM divebook.blob_uses AS used WHERE used.key = executions.key)
FROM divebook.executions LEFT JOIN LATERAL (
  SELECT id, type FROM divebook.events
  WHERE place BETWEEN executions.key << 32 AND executions.key << 32 | 4294967295 ORDER BY id DESC LIMIT 1
) AS latest ON true
WHERE executions.id = ANY(%s)
"""  # noqa: S608 - our own text
_NEWEST_MESSAGE = DIALECT.text(NEWEST_MESSAGE)
_HOLDER = "SELECT id FROM divebook.executions WHERE start_key = %s"
_ADD_TYPES = (
    f"INSERT INTO divebook.event_types (name) SELECT unnest(%s::text[]) {IN_KNOWN_FORMAT} ON CONFLICT DO NOTHING"
)


# --- writing ---


class LogWriter:
    """Writer of batches to logs in Postgres, with a cache of the logs that this process writes.

    The methods need the store's lock.
    """

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
        self._logs: dict[str, CachedLog] = {}

    def write(self, batches: Sequence[PreparedBatch], durability: Durability) -> list[Refusal | None]:
        """Write batches. Return for each batch the error with which it was refused, or None if it was written.

        Each round sends at most one batch for each execution. Batches that the server did not accept, and later batches
        of the same execution, remain for the next round.
        """
        self._connections.settle()
        answers: list[Refusal | None] = [None] * len(batches)
        pending = list(range(len(batches)))
        rounds_without_progress = 0
        is_first = True
        try:
            while pending and rounds_without_progress < MAX_ATTEMPTS:
                remaining = self._round(batches, pending, answers, durability, is_first=is_first)
                has_progress = len(remaining) < len(pending)
                rounds_without_progress = 0 if has_progress else rounds_without_progress + 1
                pending = remaining
                is_first = False
        except BaseException as error:
            self.forget([batch.execution_id for batch in batches])  # the ends of these logs are unknown
            # Earlier rounds were committed, so that only the pending batches are refused.
            if is_first or not isinstance(error, StoreError) or isinstance(error, ConnectionLostError):
                raise
            for index in pending:
                answers[index] = error
            return answers
        for index in pending:
            answers[index] = StoreBusyError(
                f"execution {batches[index].execution_id} cannot be written, because other processes keep changing "
                "it at the same time. Try again"
            )
        self.forget([batch.execution_id for batch in batches if batch.ends])
        while len(self._logs) > MAX_CACHED_LOGS:
            del self._logs[next(iter(self._logs))]
        return answers

    def begin(self, batches: Sequence[PreparedBatch], durability: Durability, notify: Notify) -> SentBatches | None:
        """Send batches to the server without waiting for the answer, and return them as `SentBatches`. If a batch needs
        a query first, send nothing and return None.

        Batches that only extend cached logs need no query. The answer is processed by `outcome`, or by the next write.
        """
        # Each batch is compared with the cached end of its log, so a second batch of the same log has to wait.
        is_one_each = len({batch.execution_id for batch in batches}) == len(batches)
        if not (is_one_each and self._connections.can_send() and all(map(self._can_send_at_once, batches))):
            return None
        try:
            drafts = {index: self._draft(batch, durability, is_first=True) for index, batch in enumerate(batches)}
        except (StoreError, InvalidEventError):  # `write` refuses the batch, or reads its log again
            return None
        if not all(draft.only_extends_log(batches[index]) for index, draft in drafts.items()):
            return None
        rows, _ = self._rows(batches, drafts)
        is_relaxed = _is_relaxed(batches, drafts, durability)
        sent = SentBatches(
            batches, drafts, self._send_extensions(drafts, rows, is_relaxed=is_relaxed), durability, notify
        )
        # The next write waits for this answer first (`Connections.settle`), since it needs the ends of the logs.
        self._connections.unanswered = lambda: self._settle(sent)
        return sent

    def _can_send_at_once(self, batch: PreparedBatch) -> bool:
        """Return True if a batch needs no query before it is sent: it is small, and its log and the types of its
        records are cached.
        """
        log = self._logs.get(batch.execution_id)
        is_cached = log is not None and log.ids.are_below(batch.ids) and self._types.are_known(batch.types)
        needs_no_query = batch.beginning is None and batch.last_message is None
        return needs_no_query and is_cached and batch.size <= MAX_SENT_BYTES

    def outcome(self, sent: SentBatches) -> list[Refusal | None]:
        """Wait for the answer to batches that `begin` has sent. Return for each batch the error with which it was
        refused, or None if it was written.

        Raises the errors of `write`.
        """
        if sent.answers is None and sent.error is None:
            self._connections.settle()
        if sent.answers is None:
            assert sent.error is not None  # noqa: S101 - it is settled
            raise sent.error
        return sent.answers

    def _settle(self, sent: SentBatches) -> None:
        """Wait for the answer to batches that `begin` has sent, and store their outcome in `sent`. If the wait is
        interrupted, it can be repeated.
        """
        try:
            entered = sent.statement.numbers()
            # Reset before refused batches are written again: that write would otherwise wait for this answer.
            self._connections.unanswered = None
            sent.answers = self._finish_sent(sent, entered)
        except Exception as error:  # noqa: BLE001 - `outcome` raises it to the sender, not to the next writer
            self._connections.unanswered = None
            sent.error = error
            self.forget([batch.execution_id for batch in sent.batches])
        else:
            sent.notify(sent.batches, sent.answers)

    def _finish_sent(self, sent: SentBatches, entered: Collection[int]) -> list[Refusal | None]:
        """Finish the append of batches that `begin` has sent. Return for each batch the error with which it was
        refused, or None if it was written. A batch that no longer fits its log, because another process has changed the
        log, is first written again with `write`.
        """
        answers: list[Refusal | None] = [None] * len(sent.batches)
        refused = self._update_cache(sent.batches, sent.drafts, _keys(sent.drafts, entered))
        if refused:
            try:
                new_answers = self.write([sent.batches[index] for index in refused], sent.durability)
            except ConnectionLostError:
                raise
            except StoreError as error:  # the other batches were written
                new_answers = [error] * len(refused)
            for index, answer in zip(refused, new_answers, strict=True):
                answers[index] = answer
        return answers

    def forget(self, execution_ids: Iterable[str]) -> None:
        """Remove the logs of executions from the cache, so that the next write reads their state from the database."""
        for execution_id in execution_ids:
            self._logs.pop(execution_id, None)

    def _round(
        self,
        batches: Sequence[PreparedBatch],
        pending: Sequence[int],
        answers: list[Refusal | None],
        durability: Durability,
        *,
        is_first: bool,
    ) -> list[int]:
        """Send the first batch of each execution that has pending batches. Return the indices of the batches that are
        still pending; `write` repeats this until none is left.

        In the first round, a batch that begins a log is sent without a query: it is almost always new. A fork waits for
        the next round if its source is written in this one. A batch that does not fit a cached log stays pending, since
        another process may have written to the log; after a query it is refused.
        """
        # One batch per execution and round, because each one is compared with the log that the one before leads to.
        firsts: dict[str, int] = {}
        for index in pending:
            firsts.setdefault(batches[index].execution_id, index)
        remaining = [index for index in pending if firsts[batches[index].execution_id] != index]
        if is_first:
            self.forget([batches[index].execution_id for index in firsts.values() if batches[index].beginning])
        loaded = self._load_uncached(
            batches[index] for index in firsts.values() if batches[index].beginning is None or not is_first
        )
        drafts: dict[int, DraftBatch] = {}
        for execution_id, index in firsts.items():
            batch = batches[index]
            # The source is written in this round, so the checksum at the fork point is known only afterwards.
            if batch.source in firsts and firsts[batch.source] < index:
                remaining.append(index)
                continue
            try:
                drafts[index] = self._draft(batch, durability, is_first=is_first)
            except (StoreError, InvalidEventError) as refusal:
                self.forget([execution_id])
                if isinstance(refusal, StoreBusyError):
                    raise
                # A cached log can be outdated. A refusal counts only if the log was read in this round.
                if batch.beginning is None and execution_id not in loaded:
                    remaining.append(index)  # another process may have written to it since
                else:
                    answers[index] = refusal
        if drafts:
            remaining += self._send(batches, drafts, durability)
        return sorted(remaining)

    def _load_uncached(self, batches: Iterable[PreparedBatch]) -> Collection[str]:
        """Load the logs that the given batches extend into the cache, if they are not cached. Return the execution ids
        that were looked up.
        """
        uncached = [batch.execution_id for batch in batches if batch.execution_id not in self._logs]
        if not uncached:
            return ()
        for row in self._connections.read(_LOAD, ([escaped(name) for name in uncached],)):
            line = load_line(row[:WIDTH])
            key, token, checksum, forked_at, latest, number, used = row[WIDTH:]
            # The check of a batch needs only the row, the highest id and the large values of the log.
            self._logs[line.id] = CachedLog(key, token, line, checksum, self._ids(forked_at, latest, number), {*used})
        return uncached

    def _ids(self, forked_at: int | None, latest: bytes | None, number: int | None) -> KnownIds:
        """Return the event ids of a log for the detection of duplicates. They are represented by the highest id if that
        is sufficient.

        The highest id is not sufficient for a fork, or for ids that divebook did not create.
        """
        # `latest` is the highest id among the rows of the log itself, without those that a fork shares.
        if forked_at is not None or latest is None or number is None or has_other_form(latest):
            return KnownIds(None)
        try:
            return KnownIds(successor(unpack_event_id(latest), width_of(self._types.name(number)) - 1))
        except ValueError:  # divebook does not write such an id
            return KnownIds(None)

    def _draft(self, batch: PreparedBatch, durability: Durability, *, is_first: bool) -> DraftBatch:
        """Prepare a batch for sending, based on the cached state of its log. Raise StoreError or InvalidEventError if
        the batch does not fit this state.
        """
        log = self._logs.get(batch.execution_id)
        if batch.beginning is not None:
            if log is not None:
                raise ConcurrentAppendError(batch.execution_id, 0, log.line.last_sequence)
            return self._begin(batch, batch.beginning, durability, is_first=is_first)
        if log is None:
            raise self._unknown(batch.execution_id)
        # The token is checked before the number: a process that lost its lease learns that, and not that another was
        # faster.
        if log.token != batch.token:
            raise batch.fenced_error(log.token)
        if log.line.last_sequence != batch.expected_sequence:
            raise ConcurrentAppendError(batch.execution_id, batch.expected_sequence, log.line.last_sequence)
        batch.check_may_follow(log.line.status)
        if batch.last_message is not None:
            # For a clear error. A message that is posted after this query makes the server refuse the batch
            # (`schema.COMMIT`), and the next round finds that message here.
            ((newest,),) = self._connections.read(_NEWEST_MESSAGE, (log.key,))
            batch.check_has_read(newest)
        log.ids.refuse(batch.records, batch.ids, lambda: self._reader.ids(batch.execution_id))
        new_blobs = {digest: content for digest, content in batch.blobs.items() if digest not in log.digests}
        size = log.line.size + batch.size + sum(map(len, new_blobs.values()))
        checksums = batch.checksums(log.checksum)
        after = CachedLog(
            log.key,
            log.token,
            line_after(log.line, batch, size),
            checksums[-1],
            log.ids,
            log.digests | new_blobs.keys(),
        )
        return DraftBatch(log, {}, checksums, after, new_blobs)

    def _begin(
        self, batch: PreparedBatch, beginning: Beginning, durability: Durability, *, is_first: bool
    ) -> DraftBatch:
        """Prepare the batch that begins a new log for sending. Raise StoreError if the batch may not begin a log.

        The server refuses it if the log or the start key exists. The next round finds out which of them it was.
        """
        if batch.token:
            raise batch.fenced_error(0)
        # The first round only sends; a taken key is found out after the server has refused the batch.
        if beginning.key is not None and not is_first:
            self._refuse_used_start_key(beginning.key)
        before, shared = (0, {}) if batch.source is None else self._fork_point(batch, batch.source)
        size = batch.size + sum(map(len, batch.blobs.values()))
        line = line_after(first_line(batch, beginning, batch.durability or durability), batch, size)
        checksums = batch.checksums(before)
        token = batch.lease.token if batch.lease else 0
        ids = KnownIds(None) if shared else KnownIds()
        after = CachedLog(0, token, line, checksums[-1], ids, {*batch.blobs})
        lease = {} if batch.lease is None else lease_columns(batch.lease)
        head = {"before": before, "token": token, **shared, **lease}
        return DraftBatch(None, head, checksums, after, dict(batch.blobs))

    def _refuse_used_start_key(self, key: str) -> None:
        for (holder,) in self._connections.read(_HOLDER, (escaped(key),)):
            raise StartKeyTakenError(key, unescaped(holder))

    def _fork_point(self, batch: PreparedBatch, source: str) -> tuple[int, dict[str, Any]]:
        """Return the checksum of the last event that a new fork shares with its source execution. Also return columns
        for the fork's row, which refer to the database row of this event.
        """
        sequence = batch.expected_sequence
        log = self._reader.find(source, sequence - 1, sequence)
        if log is None:
            raise self._unknown(source)
        records = list(self._reader.records(log, min(sequence, log.last_sequence)))
        if not records or records[-1].last_sequence != sequence:
            raise fork_point_error(batch)
        owner_key = log.rows[-1][0]
        source_place = owner_key << 32 | records[-1].sequence
        return records[-1].checksum or 0, {"source_key": owner_key, "forked_at": sequence, "source_place": source_place}

    def _send(
        self, batches: Sequence[PreparedBatch], drafts: dict[int, DraftBatch], durability: Durability
    ) -> list[int]:
        """Send batches that are prepared for sending (`DraftBatch`) in one transaction, and wait for the answer. Return
        the indices of the batches that the server did not accept.
        """
        rows, uses = self._rows(batches, drafts)
        is_relaxed = _is_relaxed(batches, drafts, durability)
        # The usual case needs no JSON and can be sent without waiting.
        if all(draft.only_extends_log(batches[index]) for index, draft in drafts.items()):
            keys = _keys(drafts, self._send_extensions(drafts, rows, is_relaxed=is_relaxed).numbers())
        else:
            heads = encode([draft.head(batches[index]) for index, draft in drafts.items()]).decode()
            values = (heads, is_relaxed, time.time_ns() // 1000, *_arrays(_ROW, rows), *_arrays(_USE, uses))
            messages = [
                (number, *arguments_of_post(*to_parent))
                for number, index in enumerate(drafts, 1)
                if (to_parent := batches[index].to_parent) is not None
            ]
            if messages:
                answer = self._connections.write(_COMMIT_AND_POST, (*values, *_arrays(_POST, messages)))
            else:
                answer = self._connections.write(_COMMIT, values)
            keys = answer[0][0]
        return self._update_cache(batches, drafts, keys)

    def _send_extensions(
        self, drafts: Mapping[int, DraftBatch], rows: Sequence[Row], *, is_relaxed: bool
    ) -> SentStatement:
        """Send batches that are prepared for sending (`DraftBatch`) and only add events to cached logs. Do not wait for
        the answer.
        """
        logs = [draft.row() for draft in drafts.values()]
        return self._connections.send(_EXTEND_LOGS, (is_relaxed, *_arrays(_LOG, logs), *_arrays(_ROW, rows)))

    def _rows(self, batches: Sequence[PreparedBatch], drafts: Mapping[int, DraftBatch]) -> tuple[list[Row], list[Row]]:
        """Return the database rows that the given batches insert: the rows of their records, and the rows of large
        values that their executions did not use before.
        """
        rows: list[Row] = []
        uses: list[Row] = []
        # Arrays of SQL count from 1, and `number` is the place of the batch among those that are sent.
        for number, (index, draft) in enumerate(drafts.items(), 1):
            batch = batches[index]
            entries = zip(batch.records, batch.types, batch.payloads, draft.checksums, strict=True)
            for record, name, payload, checksum in entries:
                identity = (
                    number,
                    record.sequence,
                    record.recorded_at,
                    self._types.number(name),
                    pack_event_id(record.id),
                )
                rows.append((*identity, escaped(record.path), escaped(record.step), payload, checksum))
            for digest, content in draft.new_blobs.items():
                packed = batch.packed.get(digest) or pack_blob(content)
                uses.append((number, digest, packed.compressed, packed.data))
        return rows, uses

    def _update_cache(
        self, batches: Sequence[PreparedBatch], drafts: Mapping[int, DraftBatch], keys: Sequence[int]
    ) -> list[int]:
        """Update the cache with the logs whose draft batches the server accepted. `keys` contains 0 for each batch that
        it did not accept; return the indices of these batches.
        """
        refused = []
        for (index, draft), key in zip(drafts.items(), keys, strict=True):
            self._logs.pop(batches[index].execution_id, None)  # the log that was written last is the last key
            if key:
                # The server gives a new log its key with this answer.
                draft.log.key = key
                draft.log.ids.add(batches[index].records, batches[index].ids)
                self._logs[batches[index].execution_id] = draft.log
            else:
                refused.append(index)
        return refused


@dataclass(slots=True)
class CachedLog:
    """State of a log that this process writes, kept so that it need not be read again: the execution's row, the end of
    the log, and its event ids.
    """

    key: int
    token: int
    """Token of the execution's latest lease."""
    line: Line
    """Row of the execution as it is in the database."""
    checksum: int
    """Checksum of the last record of the log."""
    ids: KnownIds = field(default_factory=KnownIds)
    digests: set[bytes] = field(default_factory=set)
    """Digests of the large values that the database lists as used by the execution."""


@dataclass(slots=True)
class DraftBatch:
    """Batch that is prepared for sending to the server, with the state of its log before and after the batch."""

    before: CachedLog | None
    """Log before the batch; None if the batch begins the log."""
    head_of_new_log: dict[str, Any]
    """Columns that only the first batch of a log sends, such as its lease."""
    checksums: list[int]
    """Checksum of each record."""
    log: CachedLog
    """Log after the batch."""
    new_blobs: dict[bytes, bytes]
    """Contents of the large values that the execution did not use before, by digest."""

    def only_extends_log(self, batch: PreparedBatch) -> bool:
        """Return True if the batch only appends events to an existing log, and changes no status, question, queue, tags
        or large values. False also if the server has to look for unread messages.
        """
        has_status_change = batch.status_change is not None or batch.wake_at is not None
        has_more = batch.questions or batch.annotations or batch.enqueued is not None or batch.withheld is not None
        is_plain = not (has_status_change or has_more or self.new_blobs)
        return self.before is not None and is_plain and batch.last_message is None

    def row(self) -> tuple[Any, ...]:
        """Return the values with which the server updates an execution's row, for a batch that only appends events. The
        server compares the first values with the present row, and then writes the others.
        """
        before = self.before
        after = self.log
        assert before is not None  # noqa: S101 - the batch extends a log
        line = after.line
        compared = before.key, before.line.seal(), before.token, before.checksum
        return (*compared, line.status, line.last_sequence, line.size, line.taken, line.seal(), after.checksum)

    def head(self, batch: PreparedBatch) -> dict[str, Any]:
        """Return the data (JSON) with which the server writes or updates an execution's row. The server compares some
        of the values with the present row before it writes the others.
        """
        before = self.before
        compared = self.head_of_new_log
        if before is not None:
            compared = {"key": before.key, "known_seal": before.line.seal(), "known_token": before.token}
            compared |= {"before": before.checksum, "last_message": batch.last_message}
        return {**compared, **_head(batch, self.log)}


@dataclass(slots=True)
class SentBatches:
    """Batches of records that `LogWriter.begin` sent to the server without waiting for the answer, and their outcome.
    Only batches that add events to a known log are sent so.
    """

    batches: Sequence[PreparedBatch]
    drafts: dict[int, DraftBatch]
    statement: SentStatement
    durability: Durability
    notify: Notify
    answers: list[Refusal | None] | None = None
    """For each batch the error that refused it, or None; None instead of the list until the answer was processed."""
    error: Exception | None = None
    """Error of the statement as a whole, or None. Unless the connection was lost, no batch was written."""

    def is_answered(self, seconds: float) -> bool:
        """Wait for at most `seconds`. Return True if the server has answered or the connection was lost, so that
        `outcome` does not block.
        """
        try:
            return self.statement.has_answer(seconds)
        except StoreError:  # `outcome` raises it
            return True


def _head(batch: PreparedBatch, after: CachedLog) -> dict[str, Any]:
    open_questions = [escaped(name) for name, is_open in batch.questions.items() if is_open]
    settled = [escaped(name) for name, is_open in batch.questions.items() if not is_open]
    questions = {"asked": open_questions or None, "settled": settled or None}
    withheld = batch.withheld if batch.beginning is None or batch.enqueued is not None else None
    queue = (
        {} if batch.enqueued is None else {"queue": escaped(batch.enqueued.queue), "priority": batch.enqueued.priority}
    )
    state = {"is_over": batch.ends, "withheld": withheld, **queue}
    return {**columns_of(after.line), "checksum": after.checksum, **state, **questions}


def lease_columns(lease: Lease) -> dict[str, Any]:
    """Return a lease as database columns by name. They are written with the first batch of a log if the new execution
    is leased from the beginning.
    """
    owner = lease.owner
    strings = {"host": owner.host, "owner": owner.name, "boot": owner.boot}
    columns = {name: escaped(text) for name, text in strings.items()}
    return {**columns, "pid": owner.pid, "started": owner.started, "expires_at": lease.expires_at}


def place_of_message(kind: str, key: str) -> bytes:
    """Return the hash by which the database finds the message of an execution with this kind and key. An index refuses
    long texts.
    """
    return sha256(f"{kind}\n{key}".encode(errors="surrogatepass")).digest()


def arguments_of_post(message: Message, payload: bytes) -> tuple[str, bytes, str, str, bytes, str, int, int]:
    """Return the arguments of the SQL function ``post_message`` that store a message."""
    row = (message.kind, message.key, payload, message.source, message.posted_at)
    checksum = of_row((message.execution_id, *row))
    strings = (escaped(message.key), payload, escaped(message.source))
    place_hash = place_of_message(message.kind, message.key)
    return escaped(message.execution_id), place_hash, message.kind, *strings, message.posted_at, checksum


def _is_relaxed(batches: Sequence[PreparedBatch], drafts: Mapping[int, DraftBatch], durability: Durability) -> bool:
    # One full batch makes the whole transaction full.
    return {batches[index].durability or durability for index in drafts} == {RELAXED}


def _keys(drafts: Mapping[int, DraftBatch], entered: Collection[int]) -> list[int]:
    """Return the database key of the log of each draft batch, with 0 for a batch that the server did not accept.
    `entered` has the keys of the logs whose batches it accepted.
    """
    keys = [draft.log.key for draft in drafts.values()]
    return [key if key in entered else 0 for key in keys]


def _arrays(kinds: Sequence[int], rows: Sequence[tuple[Any, ...]]) -> list[BinaryArray]:
    columns = zip(*rows, strict=True) if rows else [()] * len(kinds)
    return [array_of(kind, column) for kind, column in zip(kinds, columns, strict=True)]


# --- reading ---


class LogReader:
    """Reader of logs in Postgres, which verifies their checksums."""

    def __init__(self, connections: Connections, types: TypeNumbers) -> None:
        self._connections = connections
        self._types = types

    def find(self, execution_id: str, after: int, last: int) -> LogRows | None:
        """Read the rows of a log that contain the events above `after` up to `last`. Return None for an unknown
        execution.
        """
        values = (escaped(execution_id), min(after, MOST), min(last, MOST))
        rows = self._connections.read(_READ, values)
        if not rows:
            return None
        # The first row describes the log, and has the number 0 in place of a sequence.
        key, _, length, *_, checksum = rows[0]
        return LogRows(execution_id, key, length, checksum, rows[1:])

    def records(self, log: LogRows, last: int) -> Iterator[StoredRecord]:
        """Yield the records in `log`, the rows that a query returned, up to event `last`. Their checksums are verified.

        Raises
        ------
        CorruptStoreError
            A record is missing, or was changed.
        """
        records = [self._types.stored(row) for row in log.rows]
        expected = 1
        checksum = 0
        # The rows begin with one or two records before the requested ones. The first of them only gives the checksum
        # from which the next continues.
        if records and records[0].sequence > 1:
            expected = records[0].last_sequence + 1
            checksum = records[0].checksum or 0
            del records[0]
        for record in records:
            if record.sequence != expected:
                break
            expected = record.last_sequence + 1
            checksum = record.checksum_after(checksum)
            if checksum != record.checksum or (record.last_sequence == log.last_sequence and checksum != log.checksum):
                raise record.damage_error(log.execution_id, WRONG_CHECKSUM)
            yield record
        if expected <= min(last, log.last_sequence):
            raise missing_event_error(log.execution_id, expected)

    def decoded_records(self, log: LogRows, last: int, sealing: Sealing) -> list[Record]:
        """Return the records in the rows that a query returned, with decoded payloads. Their checksums are verified.

        Raises the errors of `records`.
        """
        fetch = sealing.fetcher(self.blob)
        return [record.decoded(log.execution_id, sealing, fetch) for record in self.records(log, last)]

    def around(self, execution_id: str, sequences: Sequence[int]) -> list[LogRows]:
        """Read single events of a log. For each, return the row that contains it, after the rows before it that are
        needed to verify its checksum. Return an empty list for an unknown execution.
        """
        rows = self._connections.read(_AROUND, (list(sequences), escaped(execution_id)))
        logs: list[LogRows] = []
        for row in rows:
            # The description of the log begins the rows around each event.
            if row[1] == 0:
                logs.append(LogRows(execution_id, row[0], row[2], row[-1], []))
            else:
                logs[-1].rows.append(row)
        return logs

    def ids(self, execution_id: str) -> list[Ids]:
        """Return the event ids of each record of a log, as pairs of the first id and the number of events."""
        rows = self._connections.read(_IDS, (escaped(execution_id), MOST))
        return [(unpack_event_id(event_id), width_of(self._types.name(number))) for event_id, number in rows]

    def blob(self, digest: bytes) -> bytes | None:
        """Return the content of a large value, still encrypted; None if it is missing. Raise CorruptStoreError if it is
        damaged.
        """
        rows = self._connections.read(_BLOB, (digest,))
        return unpack_blob(Packed(*rows[0])) if rows else None


class LogRows(NamedTuple):
    """Rows of the table of events that a query returned for one log."""

    execution_id: str
    key: int
    last_sequence: int
    checksum: int
    """Checksum of the last record of the log, as the execution's row states it."""
    rows: list[tuple[Any, ...]]
    """Rows of the requested records, after one or two rows before them. The first column is the key of the execution
    that has the row."""


# --- rows ---


def line_of(row: tuple[Any, ...]) -> tuple[Line, int]:
    """Convert a row that the query `RECORD` returned to a `Line`, the row of an execution. Return it with the checksum
    that is stored in the row.
    """
    columns: list[Any]
    *columns, seal = [unescaped(value) if isinstance(value, str) else value for value in row]
    # Tags are a JSON array in the database, and a JSON text in a `Line`, whose checksum must be the same in all stores.
    columns[_TAGS] = encode([unescaped(tag) for tag in columns[_TAGS]]).decode()
    return Line(*columns), int(seal)


def load_line(row: tuple[Any, ...]) -> Line:
    """Convert a row that the query `RECORD` returned to a `Line` (row of an execution), after a check of its checksum.

    Raises
    ------
    CorruptStoreError
        The row was changed.
    """
    line, seal = line_of(row)
    if line.seal() != seal:
        raise CorruptStoreError(
            f"the row of execution {line.id} does not match its checksum, so lists may show wrong values for it; "
            f"`{advised('check')}` reports which data is still readable"
        )
    return line


def load_record(row: tuple[Any, ...]) -> ExecutionRecord:
    """Convert a row that the query `RECORD` returned to an `ExecutionRecord`. Raise CorruptStoreError if its checksum
    does not match.
    """
    return record_of(load_line(row))


def rename_snapshots(connection: psycopg.Connection[Any], schema: str) -> None:
    """Change the status "picture" of read-only snapshots to "snapshot", with the checksums of their rows.

    A damaged row stays as it is. Checksums of events cover their types, so that the events keep the former type, and
    readers translate it (`divebook.events.upcast`).
    """
    for row in connection.execute(named(f"{RECORD} WHERE status = 'picture'", schema).encode()).fetchall():
        line, seal = line_of(row)
        if line.seal() == seal:
            update = named("UPDATE divebook.executions SET status = 'snapshot', seal = %s WHERE id = %s", schema)
            connection.execute(update.encode(), (line._replace(status="snapshot").seal(), row[0]))


DATA_MIGRATIONS: Mapping[int, DataMigration] = {7: rename_snapshots}
"""Changes of rows by the number of their migration (`divebook.stores.postgres.schema.migrate`)."""


def columns_of(line: Line) -> dict[str, Any]:
    """Return the columns of an execution's row (`line`) by name, converted as Postgres needs them."""
    columns = {name: escaped(value) if isinstance(value, str) else value for name, value in line._asdict().items()}
    return {**columns, "tags": [escaped(tag) for tag in decode(line.tags)], "seal": line.seal()}


def pack_event_id(event_id: str) -> bytes:
    """Return an event id as bytes: 16 bytes for an id in divebook's own format, else ``FF`` and the id in UTF-8."""
    packed = pack_id(event_id)
    # A packed id that begins with FF would look like the other form.
    return packed if isinstance(packed, bytes) and packed[:1] != _OTHER_FORM else _OTHER_FORM + event_id.encode()


def unpack_event_id(packed: bytes) -> str:
    """Return the event id for bytes that `pack_event_id` returned. For damaged bytes, return a string that is not the
    id of any event.
    """
    return packed[1:].decode("utf-8", "replace") if has_other_form(packed) else unpack_id(packed)


def has_other_form(packed: bytes) -> bool:
    """Return True if bytes from `pack_event_id` are those of an event id in another format than divebook's own.

    Packed ids of divebook's form sort as their strings do.
    """
    return packed[:1] == _OTHER_FORM


class TypeNumbers:
    """Cache of numbers: the database stores a number in place of the name of a record type, such as ``step_started``.

    Another process may have added types.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}

    def load(self) -> None:
        """Read the numbers and names of all record types from the database into the cache."""
        rows = self._connections.read(DIALECT.text(LOAD_TYPES))
        self.names = dict(rows)
        self._numbers = {name: number for number, name in rows}

    def number(self, name: str) -> int:
        """Return the number of a record type; if the database has no number for it, add it."""
        if name not in self._numbers:
            self._add({name, *PAYLOADS} - self._numbers.keys())
        return self._numbers[name]

    def are_known(self, names: Iterable[str]) -> bool:
        """Return True if the numbers of all given record types are cached, so that no query is necessary."""
        return all(name in self._numbers for name in names)

    def _add(self, names: Collection[str]) -> None:
        self._connections.write(_ADD_TYPES, (sorted(names),))
        self.load()

    def name(self, number: int) -> str:
        """Return the name of the record type that has a number. If the number is not cached, read all numbers again;
        for an unknown number 7, return ``type 7``.
        """
        if number not in self.names:
            self.load()
        return self.names.get(number, f"type {number}")

    def stored(self, row: tuple[Any, ...]) -> StoredRecord:
        """Convert a row that the database function `divebook.read_log` returned to a record whose payload is not
        decoded.
        """
        _, sequence, recorded_at, number, event_id, path, step, data, checksum = row
        name = self.names.get(number) or self.name(number)
        return StoredRecord(
            sequence, recorded_at, name, unpack_event_id(event_id), unescaped(path), unescaped(step), data, checksum
        )
