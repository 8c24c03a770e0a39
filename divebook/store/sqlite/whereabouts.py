"""Where the log of an execution lies in a file: in rows of its own, and for a fork in those of its sources as well."""

from __future__ import annotations

import sqlite3
from types import NoneType
from typing import NamedTuple

from divebook.errors import CorruptStoreError
from divebook.store.sqlite.faults import typed
from divebook.store.sqlite.schema import place_of

# By the row itself: what an index says of a row may be damaged, and would lead to another execution.
_FIND = """
SELECT id, key, last_sequence, checksum, token, source_key, forked_at FROM executions NOT INDEXED
WHERE key = (SELECT key FROM executions WHERE id = ?)
"""
# The executions whose events a fork shares, the nearest first.
_SOURCES = """
WITH RECURSIVE sources (key, upto) AS (
  VALUES (:source, :upto)
  UNION ALL
  SELECT above.source_key, above.forked_at FROM sources JOIN executions AS above ON above.key = sources.key
  WHERE above.source_key IS NOT NULL AND above.forked_at < upto
)
SELECT key, upto FROM sources
"""
_LOG_TYPES = (str, int, int, int, int, (int, NoneType), (int, NoneType))
MOST = 0xFFFF_FFFF
"""The highest number that an event can have."""


class LogPart(NamedTuple):
    """Whose rows hold a part of a log: its own, or those of an execution that it was forked from."""

    key: int
    after: int
    """The number of the event before it."""
    upto: int


class Log(NamedTuple):
    """Where a log lies and how far it goes at least, by its execution's row."""

    execution_id: str
    key: int
    last_sequence: int
    checksum: int
    token: int
    parts: tuple[LogPart, ...]
    """Oldest first; only a fork has several."""

    @property
    def shared(self) -> int:
        """How many events it shares with an execution that it was forked from."""
        return self.parts[-1].after

    def ranges(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the first and last place of its records that begin with events from `first` to `last`, in order."""
        if len(self.parts) == 1:
            return [(place_of(self.key, first), place_of(self.key, min(last, MOST)))]
        cut = [(part.key, max(first, part.after + 1), min(last, part.upto)) for part in self.parts]
        return [(place_of(key, begin), place_of(key, end)) for key, begin, end in cut if begin <= end]


def find(connection: sqlite3.Connection | sqlite3.Cursor, execution_id: str) -> Log | None:
    """Return where a log lies; None if there is none, CorruptStoreError if the way there is damaged."""
    row = connection.execute(_FIND, (execution_id,)).fetchone()
    if row is None:
        return None
    name, key, last, checksum, token, source, upto = typed("row of an execution", row, _LOG_TYPES)
    parts = (LogPart(key, 0, MOST),) if source is None else _parts(connection, key, source, upto)
    log = Log(name, key, last, checksum, token, parts)
    if log.execution_id != execution_id:
        raise CorruptStoreError(
            f"execution {execution_id} cannot be found: its place in the file holds {log.execution_id}. "
            "Run `divebook check`, and restore a backup"
        )
    return log


def _parts(connection: sqlite3.Connection | sqlite3.Cursor, key: int, source: int, upto: int) -> tuple[LogPart, ...]:
    """Return whose rows a fork's log is made of."""
    shared = connection.execute(_SOURCES, {"source": source, "upto": upto}).fetchall()
    parts, after = [], 0
    for owner, end in reversed(shared):
        parts.append(LogPart(owner, after, end))
        after = end
    return (*parts, LogPart(key, after, MOST))
