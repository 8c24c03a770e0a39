"""How far a log goes beyond what its execution's row says.

The row is written when something changes that lists or recovery ask for, and else every `NOTED_EVERY` records: to write
it with each commit would cost as much as the records do. What it says of the log (the last event, the size, the
checksum) is so of the moment it was written, and the few records after it are looked at where that matters.
"""

from __future__ import annotations

import sqlite3
import sys
from typing import Any, NamedTuple

from divebook.store.execution_row import record_of
from divebook.store.records import ExecutionRecord
from divebook.store.sqlite.compact import EventTypes
from divebook.store.sqlite.rows import load_line, load_records
from divebook.store.sqlite.whereabouts import Log, find

NOTED_EVERY = 32
"""Records after which the row is written in any case, so that to look for its log's end never costs much."""


class Reach(NamedTuple):
    """Where a log ends."""

    last_sequence: int
    checksum: int
    """That of its last record."""
    added: int = 0
    """Bytes of data since the row was written."""
    records: int = 0
    """Records since then."""


def reach_of(connection: sqlite3.Connection | sqlite3.Cursor, types: EventTypes, log: Log) -> Reach:
    """Return where a log ends; CorruptStoreError if that is damaged."""
    reach = Reach(log.last_sequence, log.checksum)
    for record in load_records(connection, types, log, after=log.last_sequence, last=sys.maxsize):
        if record.sequence > log.last_sequence:
            added, count = reach.added + len(record.payload), reach.records + 1
            reach = Reach(record.last_sequence, record.checksum or 0, added, count)
    return reach


def load_record(connection: sqlite3.Connection, types: EventTypes, row: tuple[Any, ...]) -> ExecutionRecord:
    """Return the line of an execution from a row of `RECORD`; CorruptStoreError if it is not what was written."""
    line, goes_on = load_line(row), row[-1]
    if goes_on and (log := find(connection, line.id)) is not None:
        reach = reach_of(connection, types, log)
        line = line._replace(last_sequence=reach.last_sequence, size=line.size + reach.added)
    return record_of(line)
