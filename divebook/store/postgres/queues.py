"""Queues as rows: which executions they have, kept with every commit, and the workers that say they are there."""

from __future__ import annotations

from typing import Any

from divebook.errors import CorruptStoreError
from divebook.events.catalog import ENQUEUED, RUNNING
from divebook.events.codec import decode, encode
from divebook.store.leases import Lease, Moment
from divebook.store.owner import Owner
from divebook.store.postgres import leases
from divebook.store.postgres.connections import SendStatement
from divebook.store.postgres.texts import escaped, unescaped
from divebook.store.queues import Claim, QueuedExecution, WorkerRecord, worker_from, worker_to_data

# Those that another one claims at this moment are passed over, so that no worker waits for another. Which leases were
# left by owners that have died is not for SQL to know: these are looked for before, among those of this host.
_TO_DO = f"""
SELECT executions.id FROM divebook.queued JOIN divebook.executions USING (key)
LEFT JOIN divebook.leases USING (key)
WHERE left(queue, 200) = left(%(queue)s, 200) AND queue = %(queue)s AND NOT withheld AND ended_at IS NULL
  AND EXISTS (
    SELECT FROM unnest(%(names)s::text[], %(prints)s::text[]) AS known(name, print)
    WHERE name = workflow_name AND print = fingerprint
  )
  AND NOT executions.id = ANY(%(without)s)
  AND (leases.key IS NULL OR leases.expires_at <= %(now)s OR executions.id = ANY(%(left)s))
  AND CASE status WHEN '{RUNNING}' THEN true WHEN '{ENQUEUED}' THEN wake_at IS NULL OR wake_at <= %(now)s
    ELSE wake_at <= %(now)s OR leases.key IS NOT NULL
    OR EXISTS (SELECT FROM divebook.messages WHERE messages.key = executions.key AND number > taken) END
ORDER BY priority DESC, queued.key LIMIT %(limit)s FOR UPDATE OF executions SKIP LOCKED
"""  # noqa: S608 - our own text
_HELD_HERE = f"""
SELECT executions.id, {leases.COLUMNS} FROM divebook.leases JOIN divebook.queued USING (key)
JOIN divebook.executions USING (key) WHERE host = %s AND expires_at > %s
"""  # noqa: S608 - our own text
_ALL = """
SELECT id, queue, priority, workflow_name, fingerprint FROM divebook.queued JOIN divebook.executions USING (key)
WHERE {} AND ended_at IS NULL AND origin <> 'fork'
ORDER BY queue COLLATE "C", priority DESC, queued.key
"""
_WHICH = "NOT withheld", "withheld"
_SEEN = "SELECT seen FROM divebook.schedules WHERE id = %s"
_SEE_FIRST = "INSERT INTO divebook.schedules VALUES (%s, %s) ON CONFLICT DO NOTHING"
_SEE = """
INSERT INTO divebook.schedules VALUES (%s, %s)
ON CONFLICT (id) DO UPDATE SET seen = greatest(schedules.seen, excluded.seen)
"""
_WITHHOLD = """
UPDATE divebook.queued SET withheld = true FROM divebook.executions
WHERE queued.key = executions.key AND id = %s
"""
_ANNOUNCE = """
WITH forgotten AS (DELETE FROM divebook.workers WHERE expires_at < %s AND id <> %s)
INSERT INTO divebook.workers VALUES (%s, %s, %s)
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, data = excluded.data
"""
_RETIRE = "DELETE FROM divebook.workers WHERE id = %s"


def claim(ask: SendStatement, wanted: Claim, owner: Owner, moment: Moment, until: Moment) -> list[Lease]:
    """Take the leases of executions that have something to do, in a transaction."""
    rows = ask(_HELD_HERE, (escaped(owner.host), moment.wall))
    here = [(name, leases.lease_of(name, columns)) for name, *columns in rows]
    asked: dict[str, Any] = {
        "names": [escaped(name) for name in wanted.workflows],
        "prints": [escaped(fingerprint) for fingerprint in wanted.workflows.values()],
        "without": [escaped(name) for name in wanted.without],
        "left": [name for name, lease in here if lease is not None and not lease.keeps_out(moment)],
        "now": moment.wall,
    }
    taken: list[Lease] = []
    for queue in wanted.queues:
        if len(taken) < wanted.limit:
            rows = ask(_TO_DO, {**asked, "queue": escaped(queue), "limit": wanted.limit - len(taken)})
            taken += [leases.put_next(ask, unescaped(name), owner, until) for (name,) in rows]
    return taken


def load(ask: SendStatement, *, withheld: bool) -> list[QueuedExecution]:
    """Return what the queues have; or what workers leave alone of it."""
    return [
        QueuedExecution(unescaped(name), unescaped(queue), priority, unescaped(workflow), unescaped(fingerprint))
        for name, queue, priority, workflow, fingerprint in ask(_ALL.format(_WHICH[withheld]))
    ]


def seen_to(read: SendStatement, write: SendStatement, schedule: str, moment: int) -> int:
    """Return up to when the due times of a schedule are seen to; of a new one note that they are up to a moment."""
    name = escaped(schedule)
    rows = read(_SEEN, (name,))
    if not rows:
        write(_SEE_FIRST, (name, moment))
        rows = read(_SEEN, (name,))
    return int(rows[0][0])


def see_to(write: SendStatement, schedule: str, moment: int) -> None:
    """Note that they are up to a moment, if they are not beyond it."""
    write(_SEE, (escaped(schedule), moment))


def withhold(ask: SendStatement, execution_id: str) -> None:
    """Note that workers are to leave an execution alone, if it is in a queue."""
    ask(_WITHHOLD, (escaped(execution_id),))


def announce(ask: SendStatement, worker: WorkerRecord, until: int, forgotten: int) -> None:
    """Write what a worker says of itself; forget those that have said nothing since a moment."""
    name = escaped(worker.id)
    ask(_ANNOUNCE, (forgotten, name, name, until, escaped(encode(worker_to_data(worker)).decode())))


def retire(ask: SendStatement, worker_id: str) -> None:
    """Forget a worker."""
    ask(_RETIRE, (escaped(worker_id),))


def load_workers(ask: SendStatement) -> list[WorkerRecord]:
    """Return what workers have said of themselves."""
    rows = ask("SELECT id, expires_at, data FROM divebook.workers")
    return [_worker(unescaped(name), expires_at, unescaped(data)) for name, expires_at, data in rows]


def _worker(worker_id: str, expires_at: int, data: str) -> WorkerRecord:
    try:
        return worker_from(worker_id, decode(data), expires_at)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptStoreError(f"what worker {worker_id} says of itself is damaged: {error}") from error
