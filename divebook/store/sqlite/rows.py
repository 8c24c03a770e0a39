"""From rows of the file to events and execution records."""

from __future__ import annotations

import sqlite3
from typing import Any

from divebook.errors import CorruptStoreError, NewerStoreError
from divebook.events.catalog import Payload
from divebook.events.codec import decode_payload
from divebook.events.event import Event, to_datetime
from divebook.store.blobs import Fetch, embed
from divebook.store.records import ExecutionRecord
from divebook.store.sqlite.blobs import fetcher
from divebook.store.sqlite.compact import EventTypes, unpack_id
from divebook.store.sqlite.schema import place_of, places_of

RECORD = """
SELECT id, workflow_name, fingerprint, status, created_at, started_at, ended_at, last_sequence, error, size,
  wake_at, taken, durability
FROM executions
"""
RECORDS = f"""{RECORD}
WHERE (:status IS NULL OR status = :status) AND (:workflow IS NULL OR workflow_name = :workflow)
ORDER BY created_at DESC, key DESC LIMIT :limit OFFSET :offset
"""
# As BLOB, so that a damaged text reaches the decoder, which can say where it is.
_EVENTS = """
SELECT place, recorded_at, type, id, path, step, CAST(data AS BLOB) FROM events
WHERE place > ? AND place <= ? ORDER BY place LIMIT ?
"""


def load_record(row: tuple[Any, ...]) -> ExecutionRecord:
    """Build a record from a row of `RECORD`."""
    execution_id, workflow_name, fingerprint, status, created, started, ended, last_sequence, error, *rest = row
    size, wake_at, taken, durability = rest
    return ExecutionRecord(
        execution_id=execution_id,
        workflow_name=workflow_name,
        fingerprint=fingerprint,
        status=status,
        created_at=to_datetime(created),
        started_at=None if started is None else to_datetime(started),
        ended_at=None if ended is None else to_datetime(ended),
        last_sequence=last_sequence,
        error=error,
        size=size,
        wake_at=None if wake_at is None else to_datetime(wake_at),
        taken=taken,
        durability=durability,
    )


def load_events(
    connection: sqlite3.Connection, types: EventTypes, log: tuple[str, int], after: int, limit: int | None
) -> list[Event]:
    """Read events of one log (execution id and key), and make sure that none is missing between them."""
    execution_id, key = log
    _, last = places_of(key)
    sequence, offset = after, place_of(key, 0)
    events: list[Event] = []
    fetch = fetcher(connection)
    rows = connection.execute(_EVENTS, (offset + after, last, -1 if limit is None else limit))
    for place, recorded_at, number, event_id, path, step, raw in rows:
        sequence += 1
        if place != offset + sequence:
            raise CorruptStoreError(
                f"event {sequence} of execution {execution_id} is missing; the events before it are readable"
            )
        data = _load_payload(types.name(number, connection), raw, fetch, execution_id, sequence)
        events.append(Event(unpack_id(event_id), execution_id, sequence, recorded_at, data, path, step))
    return events


def _load_payload(event_type: str, raw: bytes, fetch: Fetch, execution_id: str, sequence: int) -> Payload:
    try:
        return decode_payload(event_type, embed(raw, fetch))
    except NewerStoreError as error:
        raise NewerStoreError(f"event {sequence} of execution {execution_id}: {error}") from error
    # The last two: JSON that is sound, but of another shape than the payload's.
    except (CorruptStoreError, TypeError, AttributeError) as error:
        raise CorruptStoreError(
            f"event {sequence} of execution {execution_id} is damaged: {error}. The events before it and the other "
            "executions are readable"
        ) from error
