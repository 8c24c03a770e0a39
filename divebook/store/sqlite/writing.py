"""Writing batches: rows of records, and the rows of the executions they belong to.

Where a log stands is compared inside the transaction that inserts the records, so of two writers, threads or processes,
one is refused. What this process knows of the logs that it writes holds as long as no other connection has written to
the file (``PRAGMA data_version``); else each is looked up again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from divebook.errors import (
    ConcurrentAppendError,
    ExecutionNotFoundError,
    InvalidEventError,
    StartKeyTakenError,
    StoreError,
)
from divebook.store.appending import Refusal
from divebook.store.batches import PreparedBatch, no_place_to_fork
from divebook.store.durability import Durability
from divebook.store.execution_row import first_line, line_after
from divebook.store.known_ids import Ids, KnownIds
from divebook.store.packed_ids import pack_id
from divebook.store.packing import PACKED
from divebook.store.records import Beginning
from divebook.store.sqlite import blobs, leases, lists, messages, questions, queues
from divebook.store.sqlite.compact import EventTypes
from divebook.store.sqlite.open_log import OpenLog, known_ids, load_ids
from divebook.store.sqlite.reach import Reach, reach_of
from divebook.store.sqlite.rows import RECORD, load_line, load_records
from divebook.store.sqlite.schema import place_of
from divebook.store.sqlite.whereabouts import find

_INSERT_EXECUTION = """
INSERT INTO executions
  (id, status, created_at, ended_at, last_sequence, error, size, wake_at, taken, durability,
  workflow_name, fingerprint, start_key, origin, parent, tags, note, notebook, cell, opened, seal, checksum, token,
  source_key, forked_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_INSERT_RECORD = """
INSERT INTO events (place, recorded_at, type, id, path, step, data, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
MOST_KNOWN = 1000
"""Logs of which this process remembers where they stand; others, mostly waiting, are looked up when they go on."""
_RELEASE = "DELETE FROM leases WHERE key = ?"


class OpenLogs:
    """The logs that this process writes, and how batches are added to them."""

    def __init__(
        self, types: EventTypes, durability: Durability, unknown: Callable[[str], ExecutionNotFoundError]
    ) -> None:
        self._types = types
        self._durability = durability
        """That of executions whose first batch does not say."""
        self._unknown = unknown
        self._logs: dict[str, OpenLog] = {}
        self._version, self._generation = -1, 0
        """What others have written, by SQLite's count, and how often they have."""

    def write(self, cursor: sqlite3.Cursor, batches: Sequence[PreparedBatch]) -> list[Refusal | None]:
        """Write batches; return, for each, why it was refused, or None."""
        self._types.refresh(cursor)
        (version,) = cursor.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version, self._generation = version, self._generation + 1
        answers = [self._enter(cursor, batch) for batch in batches]
        while len(self._logs) > MOST_KNOWN:
            del self._logs[next(iter(self._logs))]
        return answers

    def forget(self, execution_ids: Iterable[str]) -> None:
        """Look again where these logs stand before something is added to them."""
        for execution_id in execution_ids:
            self._logs.pop(execution_id, None)

    def _enter(self, cursor: sqlite3.Cursor, batch: PreparedBatch) -> Refusal | None:
        ids = [pack_id(record.id) for record in batch.records]
        try:
            log, before = self._claim(cursor, batch)
        except (StoreError, InvalidEventError) as refusal:
            return refusal
        checksums = batch.checksums(before)
        grown = blobs.insert(cursor, log.key, batch.blobs, batch.packed) if batch.blobs else 0
        if batch.beginning is None:
            log.advance(cursor, batch, checksums[-1], grown)
        elif grown:
            log.write_row(cursor, batch, grown)
        if batch.ends:
            cursor.execute(_RELEASE, (log.key,))
        if batch.questions:
            questions.note(cursor, log.key, batch.questions)
        if batch.turn is not None and (batch.questions or batch.beginning is None):
            _turn(cursor, log, is_over=batch.ends)
        if batch.enqueued is not None:
            queues.put(cursor, log.key, batch.enqueued, withheld=bool(batch.withheld))
        elif batch.withheld is not None and batch.beginning is None:
            queues.withhold(cursor, log.key, withheld=batch.withheld)
        log.ids.add(batch.records, batch.ids)
        numbers, base = self._types.numbers, place_of(log.key, 0)
        rows: list[tuple[Any, ...]] = []
        entries = zip(batch.records, batch.types, ids, batch.payloads, checksums, strict=True)
        for record, name, first_id, payload, checksum in entries:
            number = numbers.get(name) or self._types.add(cursor, name)
            place, data = base + record.sequence, payload if payload[:1] == PACKED else payload.decode()
            rows.append((place, record.recorded_at, number, first_id, record.path, record.step, data, checksum))
        cursor.executemany(_INSERT_RECORD, rows)
        return None

    def _claim(self, cursor: sqlite3.Cursor, batch: PreparedBatch) -> tuple[OpenLog, int]:
        """Return the log that a batch goes on with, and the checksum before the batch, or raise if it does not fit."""
        if batch.beginning is not None:
            log, before = self._begin(cursor, batch, batch.beginning)
        else:
            log = self._present(cursor, batch.execution_id)
            if log.token != batch.token:
                raise batch.fenced(log.token)
            if log.reach.last_sequence != batch.expected_sequence:
                raise ConcurrentAppendError(batch.execution_id, batch.expected_sequence, log.reach.last_sequence)
            # Inside the transaction, as callers can only look before it: of two who saw it running, the second is
            # refused (test_nothing_follows_an_end_but_what_the_table_allows, tests/execution/test_meanwhile.py).
            batch.check_may_follow(log.line.status)
            log.ids.refuse(batch.records, batch.ids, lambda: self._ids_of(cursor, batch.execution_id))
            before = log.reach.checksum
        self._logs.pop(batch.execution_id, None)  # so that the one which was written last comes last
        self._logs[batch.execution_id] = log
        return log, before

    def _ids_of(self, cursor: sqlite3.Cursor, execution_id: str) -> list[Ids]:
        found = find(cursor, execution_id)
        return [] if found is None else load_ids(cursor, self._types, found)

    def _begin(self, cursor: sqlite3.Cursor, batch: PreparedBatch, beginning: Beginning) -> tuple[OpenLog, int]:
        if find(cursor, batch.execution_id) is not None:
            found = self._present(cursor, batch.execution_id)
            raise ConcurrentAppendError(batch.execution_id, 0, found.reach.last_sequence)
        if batch.token:
            raise batch.fenced(0)
        if beginning.key is not None:
            _refuse_taken(cursor, beginning.key)
        line = line_after(first_line(batch, beginning, batch.durability or self._durability), batch, batch.size)
        fork = None if batch.source is None else self._fork_of(cursor, batch, batch.source)
        before, owner = (0, None) if fork is None else fork
        checksum, token = batch.checksums(before)[-1], batch.lease.token if batch.lease else 0
        at = batch.expected_sequence if owner else None
        cursor.execute(_INSERT_EXECUTION, (*line, line.seal(), checksum, token, owner, at))
        key = cursor.lastrowid or 0
        if beginning.tags:
            lists.note_tags(cursor, key, line.created_at, beginning.tags)
        if batch.lease is not None:
            leases.insert(cursor, key, batch.lease)
        log = OpenLog(key, token, line, Reach(batch.last_sequence, checksum), self._generation)
        if owner is not None:
            log.ids = KnownIds(None)  # those that it shares are looked at where one is not new
        return log, before

    def _fork_of(self, cursor: sqlite3.Cursor, batch: PreparedBatch, source: str) -> tuple[int, int]:
        """Return the checksum of the last event that a fork shares with its source, and whose row that event is."""
        found, at = find(cursor, source), batch.expected_sequence
        if found is None:
            raise self._unknown(source)
        last = None
        for last in load_records(cursor, self._types, found, after=at - 1, last=at):  # noqa: B007 - there is one
            pass
        if last is None or last.last_sequence != at:
            raise no_place_to_fork(batch)
        owner = next(part.key for part in found.parts if part.after < at <= part.upto)
        return last.checksum or 0, owner

    def _present(self, cursor: sqlite3.Cursor, execution_id: str) -> OpenLog:
        """Return a log as it is in the file."""
        known = self._logs.get(execution_id)
        if known is not None and known.generation == self._generation:
            return known
        found = find(cursor, execution_id)
        if found is None:
            raise self._unknown(execution_id)
        line = load_line(cursor.execute(f"{RECORD} WHERE key = ?", (found.key,)).fetchone())
        log = OpenLog(found.key, found.token, line, reach_of(cursor, self._types, found), self._generation)
        is_known = known is not None and known.is_as(log)
        log.ids = known.ids if known is not None and is_known else known_ids(cursor, self._types, found)
        return log


def _turn(cursor: sqlite3.Cursor, log: OpenLog, *, is_over: bool) -> None:
    questions.turn(cursor, log.key, is_over=is_over)
    messages.turn(cursor, log.key, log.line.taken, is_over=is_over)


def _refuse_taken(cursor: sqlite3.Cursor, key: str) -> None:
    row = cursor.execute(f"{RECORD} WHERE start_key = ?", (key,)).fetchone()
    if row is not None:
        raise StartKeyTakenError(key, load_line(row).id)
