"""A log that this process appends to: where it stands, and the step from one batch to the next."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

from divebook.events.codec import decode
from divebook.events.ids import successor
from divebook.store.batches import PreparedBatch
from divebook.store.execution_row import Line, line_after
from divebook.store.facts import width_of
from divebook.store.known_ids import Ids, KnownIds
from divebook.store.packed_ids import unpack_id
from divebook.store.sqlite import lists, messages
from divebook.store.sqlite.compact import EventTypes
from divebook.store.sqlite.reach import NOTED_EVERY, Reach
from divebook.store.sqlite.whereabouts import MOST, Log

_NOTE = """
UPDATE executions SET status = ?, ended_at = ?, last_sequence = ?, error = ?, size = ?, wake_at = ?, taken = ?,
  checksum = ?, seal = ? WHERE key = ?
"""
_ANNOTATE = "UPDATE executions SET tags = ?, note = ? WHERE key = ?"
# What changes with every record. To name a column is to write its indexes anew, whether it changes or not.
_GROW = "UPDATE executions SET last_sequence = ?, size = ?, checksum = ?, seal = ? WHERE key = ?"
# As bytes they sort as the texts do; the type is that of the row with the highest one.
_HIGHEST = """
SELECT max(id), type, sum(typeof(id) <> 'blob' OR length(id) <> 16) FROM events WHERE place BETWEEN ? AND ?
"""
_IDS = "SELECT id, type FROM events WHERE place BETWEEN ? AND ?"


@dataclass(slots=True)
class OpenLog:
    """A log that this process writes, as it knows it.

    A unique index on event ids would cost 160 bytes a step and a quarter of the speed. The ids are UUIDv7, and a batch
    sent twice is refused by its expected sequence, so what is left is a double id made inside one execution: what is
    known of the ids of the logs being written is kept here, and read when this process takes a log over.
    """

    key: int
    token: int
    """That of the execution's latest lease."""
    line: Line
    """The execution's row as it stands in the file."""
    reach: Reach
    """Where the log ends."""
    generation: int
    """What was known of the writers of the file when this was true (`OpenLogs`)."""
    ids: KnownIds = field(default_factory=KnownIds)

    def is_as(self, other: OpenLog) -> bool:
        """Return whether it says the same of the file."""
        return (self.token, self.line, self.reach) == (other.token, other.line, other.reach)

    def advance(self, cursor: sqlite3.Cursor, batch: PreparedBatch, checksum: int, grown: int) -> None:
        """Go on to the end of a batch, by which the large values have `grown`."""
        added, records = self.reach.added + batch.size, self.reach.records + len(batch.records)
        self.reach = Reach(batch.last_sequence, checksum, added, records)
        line = self.line
        is_changed = batch.turn is not None or batch.wake_at != line.wake_at or batch.taken > line.taken
        if is_changed or batch.annotations or batch.status not in (None, line.status):
            self.write_row(cursor, batch, grown)
        elif grown or records >= NOTED_EVERY:
            self._note_growth(cursor, grown)

    def _note_growth(self, cursor: sqlite3.Cursor, grown: int) -> None:
        """Write how far the log goes in the execution's row."""
        last, checksum, added, _ = self.reach
        self.line = line = self.line._replace(last_sequence=last, size=self.line.size + added + grown)
        self.reach = Reach(last, checksum)
        cursor.execute(_GROW, (last, line.size, checksum, line.seal(), self.key))

    def write_row(self, cursor: sqlite3.Cursor, batch: PreparedBatch, grown: int) -> None:
        """Write the execution's row as it is after a batch."""
        last, checksum, added, _ = self.reach
        line = line_after(self.line, batch, self.line.size + added + grown)
        status = (line.status, line.ended_at, line.last_sequence, line.error, line.size, line.wake_at, line.taken)
        cursor.execute(_NOTE, (*status, checksum, line.seal(), self.key))
        if batch.annotations:
            cursor.execute(_ANNOTATE, (line.tags, line.note, self.key))
            lists.forget_tags(cursor, self.key)
            lists.note_tags(cursor, self.key, line.created_at, decode(line.tags))
        if line.taken > self.line.taken:
            messages.take(cursor, self.key, line.taken)
        self.line, self.reach = line, Reach(last, checksum)


def known_ids(cursor: sqlite3.Cursor, types: EventTypes, log: Log) -> KnownIds:
    """Return the ids of a log, of which the highest is enough if all are of our form."""
    found = [cursor.execute(_HIGHEST, places).fetchone() for places in log.ranges(1, MOST)]
    others = any(odd for *_, odd in found)
    packed, number = (None, 0) if others else max([row[:2] for row in found if row[0] is not None], default=(None, 0))
    if packed is None:
        return KnownIds(None if others else "")
    try:
        return KnownIds(successor(unpack_id(packed), width_of(types.name(number, cursor)) - 1))
    except ValueError:  # nobody wrote it so
        return KnownIds(None)


def load_ids(cursor: sqlite3.Cursor, types: EventTypes, log: Log) -> list[Ids]:
    """Return the ids of the records of a log."""
    # Fetched first: what is asked meanwhile on the same cursor, the name of a type, would end them.
    rows = [row for places in log.ranges(1, MOST) for row in cursor.execute(_IDS, places).fetchall()]
    return [(unpack_id(packed), width_of(types.name(number, cursor))) for packed, number in rows]
