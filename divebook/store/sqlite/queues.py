"""Queues as rows: which executions they have, kept with every append, and the workers that say they are there."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from divebook.errors import CorruptStoreError
from divebook.events.catalog import ENQUEUED, RUNNING, ExecutionEnqueued
from divebook.events.codec import decode, encode
from divebook.store.leases import Moment
from divebook.store.queues import Claim, QueuedExecution, WorkerRecord, worker_from, worker_to_data
from divebook.store.sqlite import leases
from divebook.store.sqlite.faults import typed

_PUT = "INSERT OR REPLACE INTO queued (key, queue, priority, withheld) VALUES (?, ?, ?, ?)"
_WITHHOLD = "UPDATE queued SET withheld = ? WHERE key = ?"
_WITHHOLD_ONE = "UPDATE queued SET withheld = 1 WHERE key = (SELECT key FROM executions WHERE id = ?)"
# With the lease that each has, or had: whether one is live is not for SQL to know. In the order of the index.
_TO_DO = f"""
SELECT executions.id, token, host, pid, started, name, boot, expires_at, expires_uptime
FROM queued CROSS JOIN executions USING (key) LEFT JOIN leases USING (key)
WHERE queue = :queue AND NOT withheld AND ended_at IS NULL
  AND EXISTS (SELECT 1 FROM json_each(:workflows) AS known WHERE known.key = workflow_name AND value = fingerprint)
  AND CASE status WHEN '{RUNNING}' THEN 1 WHEN '{ENQUEUED}' THEN wake_at IS NULL OR wake_at <= :now
    ELSE wake_at <= :now OR leases.key IS NOT NULL
    OR EXISTS (SELECT 1 FROM messages WHERE messages.key = executions.key AND untaken) END
ORDER BY priority DESC, queued.key
"""  # noqa: S608 - our own text
_ALL = """
SELECT executions.id, queue, priority, workflow_name, fingerprint FROM queued CROSS JOIN executions USING (key)
WHERE {} AND ended_at IS NULL AND origin <> 'fork' ORDER BY queue, priority DESC, queued.key
"""
_WHICH = "NOT withheld", "withheld"
_SEEN = "SELECT seen FROM schedules WHERE id = ?"
_SEE = """
INSERT INTO schedules (id, seen) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET seen = max(seen, excluded.seen)
"""
_ANNOUNCE = "INSERT OR REPLACE INTO workers (id, expires_at, data) VALUES (?, ?, ?)"
_FORGET = "DELETE FROM workers WHERE expires_at < ?"
_RETIRE = "DELETE FROM workers WHERE id = ?"
_STRAY = "SELECT id FROM queued JOIN executions USING (key) WHERE NOT withheld AND ended_at IS NOT NULL"


def put(cursor: sqlite3.Cursor, key: int, enqueued: ExecutionEnqueued, *, withheld: bool) -> None:
    """Note that an execution is in a queue."""
    cursor.execute(_PUT, (key, enqueued.queue, enqueued.priority, withheld))


def withhold(cursor: sqlite3.Cursor, key: int, *, withheld: bool) -> None:
    """Note whether workers are to leave an execution alone, if it is in a queue."""
    cursor.execute(_WITHHOLD, (withheld, key))


def withhold_one(cursor: sqlite3.Cursor, execution_id: str) -> None:
    """Note that workers are to leave an execution alone, if it is in a queue."""
    cursor.execute(_WITHHOLD_ONE, (execution_id,))


def to_do(connection: sqlite3.Connection | sqlite3.Cursor, wanted: Claim, moment: Moment) -> Iterator[str]:
    """Yield the wanted executions that have something to do, and that nobody drives, in their order."""
    asked = {"workflows": encode(dict(wanted.workflows)).decode(), "now": moment.wall}
    for queue in wanted.queues:
        for execution_id, *columns in connection.execute(_TO_DO, {**asked, "queue": queue}):
            if execution_id not in wanted.without and leases.is_left(execution_id, tuple(columns), moment):
                yield execution_id


def load(connection: sqlite3.Connection, *, withheld: bool) -> list[QueuedExecution]:
    """Return what the queues have; or what workers leave alone of it."""
    return [QueuedExecution(*row) for row in connection.execute(_ALL.format(_WHICH[withheld])).fetchall()]


def seen_to(connection: sqlite3.Connection | sqlite3.Cursor, schedule: str) -> int | None:
    """Return up to when the due times of a schedule are seen to; None for a new one."""
    row = connection.execute(_SEEN, (schedule,)).fetchone()
    return None if row is None else typed("schedule", row, (int,))[0]


def see_to(cursor: sqlite3.Cursor, schedule: str, moment: int) -> None:
    """Note that they are up to a moment, if they are not beyond it."""
    cursor.execute(_SEE, (schedule, moment))


def announce(cursor: sqlite3.Cursor, worker: WorkerRecord, until: int, forgotten: int) -> None:
    """Write what a worker says of itself; forget those that have said nothing since a moment."""
    cursor.execute(_FORGET, (forgotten,))
    cursor.execute(_ANNOUNCE, (worker.id, until, encode(worker_to_data(worker)).decode()))


def retire(cursor: sqlite3.Cursor, worker_id: str) -> None:
    """Forget a worker."""
    cursor.execute(_RETIRE, (worker_id,))


def load_workers(connection: sqlite3.Connection) -> list[WorkerRecord]:
    """Return what workers have said of themselves."""
    rows = connection.execute("SELECT id, expires_at, data FROM workers").fetchall()
    return [_worker(*typed("worker", row, (str, int, str))) for row in rows]


def _worker(worker_id: str, expires_at: int, data: Any) -> WorkerRecord:
    try:
        return worker_from(worker_id, decode(data), expires_at)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptStoreError(f"what worker {worker_id} says of itself is damaged: {error}") from error


def find_faults(connection: sqlite3.Connection) -> list[str]:
    """Return which executions a queue has though they have ended."""
    return [
        f"execution {execution_id} has ended, and is still in a queue"
        for (execution_id,) in connection.execute(_STRAY).fetchall()
    ]
