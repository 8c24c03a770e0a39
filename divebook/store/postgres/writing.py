"""Writing batches: what is sent to the server in one statement, and what this process knows of the logs that it writes.

A batch is made from what is known; the server enters it only if that is still so (`divebook.store.postgres.commits`).
Where it is not, or nothing is known, the log is looked up, and the batch is refused or made anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from divebook.errors import (
    ConcurrentAppendError,
    ConnectionLostError,
    ExecutionNotFoundError,
    InvalidEventError,
    StartKeyTakenError,
    StoreBusyError,
    StoreError,
)
from divebook.events.codec import encode
from divebook.events.ids import successor
from divebook.store.appending import Refusal
from divebook.store.batches import PreparedBatch, no_place_to_fork
from divebook.store.blobs import pack
from divebook.store.durability import RELAXED, Durability
from divebook.store.execution_row import first_line, line_after
from divebook.store.facts import width_of
from divebook.store.known_ids import KnownIds
from divebook.store.postgres.arrays import BIGINT, BOOLEAN, BYTEA, INTEGER, TEXT, BinaryArray, array_of
from divebook.store.postgres.connections import Connections, SentStatement
from divebook.store.postgres.drafts import DraftBatch, KnownLog, SentBatches, Tell, lease_of
from divebook.store.postgres.reading import LogReader
from divebook.store.postgres.rows import COLUMNS, WIDTH, TypeNumbers, is_odd, load_line, packed, unpacked
from divebook.store.postgres.schema import IN_KNOWN_FORMAT
from divebook.store.postgres.texts import escaped, unescaped
from divebook.store.records import Beginning

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
        self._connections, self._types, self._reader, self._unknown = connections, types, reader, unknown
        self._logs: dict[str, KnownLog] = {}

    def write(self, batches: Sequence[PreparedBatch], durability: Durability) -> list[Refusal | None]:
        """Write batches; return, for each, why it was refused, or None."""
        self._connections.settle()
        answers: list[Refusal | None] = [None] * len(batches)
        todo, idle, is_first = list(range(len(batches))), 0, True
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
            self._connections.unanswered, sent.error = None, error
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
                kept = batch.packed.get(digest) or pack(content)
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
