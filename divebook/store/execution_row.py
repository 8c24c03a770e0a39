"""An execution's row in a store that has tables: what a list shows of it, and the step from one batch to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from divebook.errors import CorruptStoreError
from divebook.events.catalog import RUNNING
from divebook.events.codec import decode, encode
from divebook.events.event import to_datetime
from divebook.store.batches import PreparedBatch
from divebook.store.checksums import of_row
from divebook.store.durability import Durability
from divebook.store.records import Beginning, ExecutionRecord
from divebook.text.logs import logger

_log = logger(__name__)


class Line(NamedTuple):
    """An execution's row: what a list shows of it, as the file has it."""

    id: str
    status: str
    created_at: int
    ended_at: int | None
    last_sequence: int
    error: str | None
    size: int
    wake_at: int | None
    taken: int
    durability: Durability
    workflow_name: str
    fingerprint: str | None
    start_key: str | None
    origin: str
    parent: str | None
    tags: str
    note: str | None
    notebook: str | None
    cell: str | None
    opened: int = 1

    def seal(self) -> int:
        """Return the checksum of the row; of one that is no fork, it is as it was before there were any."""
        return of_row(self if self.opened > 1 else self[:-1])


def record_of(line: Line) -> ExecutionRecord:
    """Return a row as lists have it."""
    created = to_datetime(line.created_at)
    return ExecutionRecord(
        execution_id=line.id,
        status=line.status,
        created_at=created,
        started_at=created,
        ended_at=None if line.ended_at is None else to_datetime(line.ended_at),
        last_sequence=line.last_sequence,
        error=line.error,
        size=line.size,
        wake_at=None if line.wake_at is None else to_datetime(line.wake_at),
        taken=line.taken,
        durability=line.durability,
        **_beginning(line)._asdict(),
    )


def _beginning(line: Line) -> Beginning:
    names = (line.workflow_name, line.fingerprint, line.start_key, line.origin, line.parent)
    return Beginning(*names, tuple(decode(line.tags)), *line[16:])


def first_line(batch: PreparedBatch, beginning: Beginning, durability: Durability) -> Line:
    """Return the row of an execution before its first events."""
    created = batch.began_at
    extent = (0, None, 0, None, 0, durability)
    name, fingerprint, key, origin, parent, tags, note, notebook, cell, opened = beginning
    listed = encode(list(tags)).decode()
    row = (batch.execution_id, RUNNING, created, None, *extent, name, fingerprint, key, origin, parent, listed)
    return Line(*row, note, notebook, cell, opened)


def line_after(line: Line, batch: PreparedBatch, size: int) -> Line:
    """Return an execution's row once a batch is written and its log has such a size."""
    status, ended_at, error = batch.status or line.status, line.ended_at, line.error
    if batch.turn is not None:
        status, ended_at, error = batch.turn.status, batch.turn.ended_at, batch.turn.error
    taken = max(line.taken, batch.taken)
    if batch.annotations:
        said = _beginning(line).annotated(batch.annotations)
        line = line._replace(tags=encode(list(said.tags)).decode(), note=said.note)
    return Line(
        line.id, status, line.created_at, ended_at, batch.last_sequence, error, size, batch.wake_at, taken, *line[9:]
    )


def sound(
    rows: Iterable[tuple[Any, ...]], load: Callable[[tuple[Any, ...]], ExecutionRecord | None], warned: set[str]
) -> list[ExecutionRecord]:
    """Return what rows say; of one that is damaged there is a warning, once, and the others are listed."""
    found = []
    for row in rows:
        try:
            found.append(load(row))
        except CorruptStoreError as error:
            if str(error) not in warned:
                warned.add(str(error))
                _log.warning("%s", error)
    return [record for record in found if record is not None]
