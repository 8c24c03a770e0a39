"""A log that this process appends to: where it stands, and the step from one batch to the next."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field

from divebook.store.batches import PreparedBatch
from divebook.store.facts import width_of
from divebook.store.known_ids import Span, refuse_twice
from divebook.store.sqlite import messages
from divebook.store.sqlite.compact import stem_of, unpack_id
from divebook.store.sqlite.rows import Line, line_after
from divebook.store.sqlite.schema import places_of

_KNOWN = "WHERE key = ? AND id = ? AND last_sequence = ? AND token = ? AND checksum = ?"
_ADVANCE = f"""
UPDATE executions SET status = ?, last_sequence = ?, size = ?, wake_at = ?, taken = ?, checksum = ?, seal = ? {_KNOWN}
"""  # noqa: S608 - our own text
_TURN = f"""
UPDATE executions SET ended_at = ?, error = ?,
  status = ?, last_sequence = ?, size = ?, wake_at = ?, taken = ?, checksum = ?, seal = ? {_KNOWN}
"""  # noqa: S608 - our own text
_IDS = """
SELECT events.id, name FROM events JOIN event_types ON number = type WHERE place BETWEEN ? AND ?
"""
_GROW = "UPDATE executions SET size = ?, seal = ? WHERE key = ?"


@dataclass(slots=True)
class OpenLog:
    """A log that this process writes, as it knows it.

    A unique index on event ids would cost 160 bytes a step and a quarter of the speed. The ids are UUIDv7, and a batch
    sent twice is refused by its expected sequence, so what is left is a double id made inside one execution: the stems
    of the ids of the logs being written are kept here, and read once when this process takes a log over.
    """

    key: int
    line: Line
    """The execution's row as it stands."""
    checksum: int
    stems: set[bytes | str] = field(default_factory=set)

    def refuse_known(self, cursor: sqlite3.Cursor, batch: PreparedBatch, ids: Sequence[bytes | str]) -> None:
        """Raise `InvalidEventError` if the log holds one of the ids."""
        if not self.stems.isdisjoint(map(stem_of, ids)):
            rows = cursor.execute(_IDS, places_of(self.key)).fetchall()
            refuse_twice(batch.records, [Span(unpack_id(packed), width_of(name)) for packed, name in rows])

    def note(self, ids: Sequence[bytes | str]) -> None:
        """Remember the ids of records that are written."""
        self.stems.update(map(stem_of, ids))

    def advance(self, cursor: sqlite3.Cursor, batch: PreparedBatch, checksum: int) -> bool:
        """Bring the execution's row up to the end of a batch; False if the row is not as this process knows it."""
        line = line_after(self.line, batch)
        row = (line.status, line.last_sequence, line.size, line.wake_at, line.taken, checksum, line.seal())
        known = (self.key, batch.execution_id, batch.expected_sequence, batch.token, self.checksum)
        turn = () if batch.turn is None else (line.ended_at, line.error)
        if cursor.execute(_TURN if turn else _ADVANCE, (*turn, *row, *known)).rowcount != 1:
            return False
        if line.taken > self.line.taken:
            messages.take(cursor, self.key, line.taken)
        self.line, self.checksum = line, checksum
        return True

    def grow(self, cursor: sqlite3.Cursor, size: int) -> None:
        """Note that large values have been written for this execution."""
        self.line = self.line._replace(size=self.line.size + size)
        cursor.execute(_GROW, (self.line.size, self.line.seal(), self.key))


def load_stems(cursor: sqlite3.Cursor, key: int) -> set[bytes | str]:
    """Return what the ids of a log begin with."""
    rows = cursor.execute("SELECT id FROM events WHERE place BETWEEN ? AND ?", places_of(key))
    return {stem_of(packed) for (packed,) in rows}
