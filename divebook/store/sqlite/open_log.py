"""A log that this process appends to: where it stands, and the step from one batch to the next."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field

from divebook.store.batches import PreparedBatch, duplicate_id

_ADVANCE = """
UPDATE executions SET last_sequence = ?, size = size + ?, checksum = ?,
  status = ifnull(?, status), wake_at = ?, taken = max(taken, ?)
WHERE key = ? AND id = ? AND last_sequence = ? AND token = ? AND checksum = ?
"""


@dataclass(slots=True)
class OpenLog:
    """What this process knows of a log.

    A unique index on event ids would cost 160 bytes a step and a quarter of the speed. The ids are UUIDv7, and a batch
    sent twice is refused by its expected sequence, so what is left is a double id made inside one execution: the ids of
    the logs being written are kept here, and read once when this process takes a log over.
    """

    key: int
    sequence: int
    checksum: int
    ids: set[bytes | str] = field(default_factory=set)

    def refuse_known(self, batch: PreparedBatch, ids: Sequence[bytes | str]) -> None:
        """Raise `InvalidEventError` if the log holds one of the ids."""
        if not self.ids.isdisjoint(ids):
            index = next(index for index, event_id in enumerate(ids) if event_id in self.ids)
            raise duplicate_id(index, batch.events[index].id)

    def advance(self, cursor: sqlite3.Cursor, batch: PreparedBatch, checksum: int) -> bool:
        """Bring the execution's row up to the end of a batch; False if the row is not as this process knows it."""
        news = (batch.last_sequence, batch.size, checksum, batch.status, batch.wake_at, batch.taken)
        known = (self.key, batch.execution_id, batch.expected_sequence, batch.token, self.checksum)
        return cursor.execute(_ADVANCE, news + known).rowcount == 1
