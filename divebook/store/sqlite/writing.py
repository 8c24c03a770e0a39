"""Writing batches: rows of records, and the rows of the executions they belong to.

The execution's row is changed by ``UPDATE ... WHERE last_sequence = expected`` inside the transaction that inserts the
records, so of two writers, threads or processes, one is refused.
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
from divebook.store.batches import PreparedBatch
from divebook.store.durability import Durability
from divebook.store.log import Refusal
from divebook.store.records import Beginning
from divebook.store.sqlite import blobs, leases, lists, messages, questions
from divebook.store.sqlite.compact import EventTypes, pack_id
from divebook.store.sqlite.open_log import OpenLog, load_stems
from divebook.store.sqlite.rows import RECORD, find, first_line, line_after, load_line
from divebook.store.sqlite.schema import place_of

_INSERT_EXECUTION = """
INSERT INTO executions
  (id, status, created_at, ended_at, last_sequence, error, size, wake_at, taken, durability,
  workflow_name, fingerprint, start_key, origin, parent, tags, note, notebook, cell, seal, checksum, token)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_INSERT_RECORD = """
INSERT INTO events (place, recorded_at, type, id, path, step, data, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
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

    def write(self, cursor: sqlite3.Cursor, batches: Sequence[PreparedBatch]) -> list[Refusal | None]:
        """Write batches; return, for each, why it was refused, or None."""
        self._types.refresh(cursor)
        return [self._enter(cursor, batch) for batch in batches]

    def forget(self, execution_ids: Iterable[str]) -> None:
        """Look again where these logs stand before something is added to them."""
        for execution_id in execution_ids:
            self._logs.pop(execution_id, None)

    def _enter(self, cursor: sqlite3.Cursor, batch: PreparedBatch) -> Refusal | None:
        ids = [pack_id(record.id) for record in batch.records]
        try:
            log, checksums = self._claim(cursor, batch, ids)
        except (StoreError, InvalidEventError) as refusal:
            return refusal
        if batch.ends:
            cursor.execute(_RELEASE, (log.key,))
        if batch.blobs and (grown := blobs.insert(cursor, log.key, batch.blobs, batch.packed)):
            log.grow(cursor, grown)
        if batch.questions:
            questions.note(cursor, log.key, batch.questions)
        if batch.turn is not None and (batch.questions or batch.beginning is None):
            _turn(cursor, log, is_over=batch.ends)
        log.note(ids)
        numbers, base = self._types.numbers, place_of(log.key, 0)
        rows: list[tuple[Any, ...]] = []
        entries = zip(batch.records, batch.types, ids, batch.payloads, checksums, strict=True)
        for record, name, first_id, payload, checksum in entries:
            number = numbers.get(name) or self._types.add(cursor, name)
            place, text = base + record.sequence, payload.decode()
            rows.append((place, record.recorded_at, number, first_id, record.path, record.step, text, checksum))
        cursor.executemany(_INSERT_RECORD, rows)
        return None

    def _claim(
        self, cursor: sqlite3.Cursor, batch: PreparedBatch, ids: Sequence[bytes | str]
    ) -> tuple[OpenLog, list[int]]:
        """Advance the execution's row; return the log and the new checksums, or raise if the batch does not fit."""
        if batch.beginning is not None:
            return self._begin(cursor, batch, batch.beginning)
        log = self._logs.get(batch.execution_id)
        if log is not None and log.line.last_sequence == batch.expected_sequence:
            log.refuse_known(cursor, batch, ids)
            checksums = batch.checksums(log.checksum)
            if log.advance(cursor, batch, checksums[-1]):
                return log, checksums
        # The first append of this process, or another process was here.
        log = self._logs[batch.execution_id] = self._take_over(cursor, batch)
        log.refuse_known(cursor, batch, ids)
        checksums = batch.checksums(log.checksum)
        log.advance(cursor, batch, checksums[-1])
        return log, checksums

    def _begin(self, cursor: sqlite3.Cursor, batch: PreparedBatch, beginning: Beginning) -> tuple[OpenLog, list[int]]:
        if (found := find(cursor, batch.execution_id)) is not None:
            raise ConcurrentAppendError(batch.execution_id, 0, found.last_sequence)
        if batch.token:
            raise batch.fenced(0)
        if beginning.key is not None:
            _refuse_taken(cursor, beginning.key)
        line = line_after(first_line(batch, beginning, batch.durability or self._durability), batch)
        checksums, token = batch.checksums(0), batch.lease.token if batch.lease else 0
        cursor.execute(_INSERT_EXECUTION, (*line, line.seal(), checksums[-1], token))
        key = cursor.lastrowid or 0
        if beginning.tags:
            lists.note_tags(cursor, key, line.created_at, beginning.tags)
        if batch.lease is not None:
            leases.insert(cursor, key, batch.lease)
        log = self._logs[batch.execution_id] = OpenLog(key, line, checksums[-1])
        return log, checksums

    def _take_over(self, cursor: sqlite3.Cursor, batch: PreparedBatch) -> OpenLog:
        log = find(cursor, batch.execution_id)
        if log is None:
            raise self._unknown(batch.execution_id)
        if log.token != batch.token:
            raise batch.fenced(log.token)
        if log.last_sequence != batch.expected_sequence:
            raise ConcurrentAppendError(batch.execution_id, batch.expected_sequence, log.last_sequence)
        line = load_line(cursor.execute(f"{RECORD} WHERE key = ?", (log.key,)).fetchone())
        # Inside the transaction, as callers can only look before it: of two who saw it running, the second is refused
        # (test_nothing_follows_an_end_but_what_the_table_allows, tests/execution/test_meanwhile.py).
        batch.check_may_follow(line.status)
        return OpenLog(log.key, line, log.checksum, load_stems(cursor, log.key))


def _turn(cursor: sqlite3.Cursor, log: OpenLog, *, is_over: bool) -> None:
    questions.turn(cursor, log.key, is_over=is_over)
    messages.turn(cursor, log.key, log.line.taken, is_over=is_over)


def _refuse_taken(cursor: sqlite3.Cursor, key: str) -> None:
    row = cursor.execute(f"{RECORD} WHERE start_key = ?", (key,)).fetchone()
    if row is not None:
        raise StartKeyTakenError(key, load_line(row).id)
