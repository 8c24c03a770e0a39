"""Parts of a back end, and SQL statements, that stores in SQLite and in Postgres share.

A statement is written once, in the words of Postgres, and `Dialect.text` converts it::

    INSERT INTO divebook.schedules (id, seen) SELECT %s, %s WHERE {known_format}      shared
    INSERT INTO schedules (id, seen) SELECT ?, ? WHERE true                           SQLite

A statement that the two databases cannot share, such as one with a hint for SQLite's planner, is in `sqlite` or
`postgres`. ``tests/store/test_backends.py`` checks that none is in both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from divebook.errors import CorruptStoreError
from divebook.report.hints import advised
from divebook.stores.backend import StoredSummary, summary_damage
from divebook.stores.leases import QueuedExecution, WorkerRecord, stored_worker, worker_from

Types: TypeAlias = Sequence[type | tuple[type, ...]]
T = TypeVar("T")


class Dialect(NamedTuple):
    """Words of SQL in which the databases differ. Shared statements name the fields in braces."""

    prefix: str
    """Prefix of the tables, which are written as ``divebook.executions``."""
    parameter: str
    """Placeholder of a parameter, which is written as ``%s``."""
    known_format: str
    """Condition of a writing statement. It is false if a newer divebook has migrated the tables."""
    cross_join: str
    """Join that reads the left table first. Postgres chooses the order itself, by its statistics."""
    in_list: str
    """Condition that a column is one of the strings in the list that is the next parameter."""
    binary: str
    """Collation that compares strings by their bytes."""

    def text(self, statement: str) -> str:
        """Convert a shared statement to this dialect."""
        return _converted(statement, self)


@functools.cache
def _converted(statement: str, dialect: Dialect) -> str:
    text = statement.format_map(dialect._asdict())
    return text.replace("divebook.", dialect.prefix).replace("%s", dialect.parameter)


class SqlSession(Protocol):
    """Access to a database, in which a shared part executes its statements."""

    def read(self, statement: str, values: Sequence[Any], decode: Callable[..., T]) -> list[T]:
        """Execute a statement that reads. Return for each row what `decode` returns for its columns.

        Errors of the database, and errors of `decode` that are due to damaged rows, are raised as errors of divebook.
        """
        ...

    def write(self, statement: str, values: Sequence[Any], *, is_relaxed: bool = False) -> list[tuple[Any, ...]]:
        """Execute a statement that writes in a transaction of its own; return its rows.

        An `is_relaxed` write may be lost if the power fails. A store on a server ignores this.

        Raises
        ------
        NewerStoreError
            A newer divebook has raised the format since the store was opened.
        """
        ...


def typed(kind: str, row: tuple[Any, ...], types: Types) -> tuple[Any, ...]:
    """Return a row after a check that its columns have the expected Python types.

    SQLite accepts any type of value in any column. Rows with a checksum need no such check: a value of another type
    changes the checksum.

    Raises
    ------
    CorruptStoreError
        A column has another type.
    """
    for column, column_type in zip(row, types, strict=True):
        if not isinstance(column, column_type):
            raise CorruptStoreError(
                f"a {kind} is damaged: its value {column!r} has the wrong type. "
                f"Run `{advised('check')}`, and restore a backup"
            )
    return row


# --- statements that the modules of each database execute themselves ---


LOAD_TYPES = "SELECT number, name FROM divebook.event_types"
LOAD_BLOB = "SELECT compressed, data FROM divebook.blobs WHERE digest = %s"
SELECT_MESSAGES = """
SELECT executions.id, messages.kind, messages.name, payload, source, posted_at, number, messages.checksum
FROM divebook.messages JOIN divebook.executions USING (key)
"""
MESSAGES_AFTER = f"{SELECT_MESSAGES} WHERE number > %s ORDER BY number"
NEWEST_MESSAGE = "SELECT coalesce(max(number), 0) FROM divebook.messages WHERE key = %s"
# An execution is deleted whose events forks share: one of them takes over the events, and the others refer to that one.
SET_SOURCE = "UPDATE divebook.executions SET source_key = %s, forked_at = %s WHERE key = %s"
REPLACE_SOURCE = "UPDATE divebook.executions SET source_key = %s WHERE source_key = %s"
SET_SIZE = "UPDATE divebook.executions SET size = %s, seal = %s WHERE key = %s"
DELETE_EVENTS = "DELETE FROM divebook.events WHERE place BETWEEN %s AND %s"
DELETE_ROWS = "DELETE FROM divebook.{{table}} WHERE key = %s"
"""Statement that deletes the rows of an execution from a table, whose name takes the place of ``{table}``."""
QUESTIONS_OF_ONE = "SELECT id FROM divebook.questions WHERE key = %s"
PUT_CHECKPOINT = """
INSERT INTO divebook.checkpoints (key, sequence, checksum, data) VALUES (%s, %s, %s, %s)
ON CONFLICT (key, sequence) DO UPDATE SET checksum = excluded.checksum, data = excluded.data
"""
# The key of the execution, and the first and the last event of the part of the log, twice.
DROP_SUPERSEDED = """
DELETE FROM divebook.checkpoints WHERE key = %s AND sequence BETWEEN %s AND %s AND sequence < (
  SELECT max(sequence) FROM divebook.checkpoints WHERE key = %s AND sequence BETWEEN %s AND %s
)
"""


# --- queues, schedules and workers ---


_QUEUED = """
SELECT executions.id, queue, priority, workflow_name, fingerprint
FROM divebook.queued {cross_join} divebook.executions USING (key)
WHERE NOT withheld AND ended_at IS NULL AND origin <> 'fork' ORDER BY queue COLLATE {binary}, priority DESC, queued.key
"""
_WITHHELD = _QUEUED.replace("NOT withheld", "withheld")
_WITHHOLD = """
UPDATE divebook.queued SET withheld = true
WHERE key = (SELECT key FROM divebook.executions WHERE id = %s) AND {known_format}
"""
_SCHEDULE = "SELECT seen FROM divebook.schedules WHERE id = %s"
_ADD_SCHEDULE = """
INSERT INTO divebook.schedules (id, seen) SELECT %s, %s WHERE {known_format} ON CONFLICT DO NOTHING
"""
_ADVANCE_SCHEDULE = """
INSERT INTO divebook.schedules (id, seen) SELECT %s, %s WHERE {known_format} ON CONFLICT (id)
DO UPDATE SET seen = CASE WHEN excluded.seen > schedules.seen THEN excluded.seen ELSE schedules.seen END
RETURNING seen
"""
_PUT_WORKER = """
INSERT INTO divebook.workers (id, expires_at, data) SELECT %s, %s, %s WHERE {known_format}
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, data = excluded.data
"""
_DELETE_EXPIRED_WORKERS = "DELETE FROM divebook.workers WHERE expires_at < %s AND {known_format}"
_DELETE_WORKER = "DELETE FROM divebook.workers WHERE id = %s AND {known_format}"
_WORKERS = "SELECT id, expires_at, data FROM divebook.workers"


class SqlQueues:
    """Queue entries, schedules and records of workers in a database; a `divebook.stores.backend.QueueBackend`."""

    def __init__(self, session: SqlSession) -> None:
        self._session = session

    def queued(self, *, withheld: bool) -> list[QueuedExecution]:
        """Return the queue entries of executions that have not ended, in the order in which workers claim them."""
        return self._session.read(_WITHHELD if withheld else _QUEUED, (), QueuedExecution)

    def withhold(self, execution_id: str) -> None:
        """Mark an execution so that workers skip it."""
        self._session.write(_WITHHOLD, (execution_id,))

    def schedule(self, name: str, moment: int, *, advances: bool) -> int:
        """Return the time up to which the due times of a schedule have been handled, and store it."""
        if advances:
            ((latest,),) = self._session.write(_ADVANCE_SCHEDULE, (name, moment))
            return int(latest)
        rows = self._session.read(_SCHEDULE, (name,), _time_of_schedule)
        if not rows:
            # If another process was faster, its moment stays, and the second read returns it.
            self._session.write(_ADD_SCHEDULE, (name, moment))
            rows = self._session.read(_SCHEDULE, (name,), _time_of_schedule)
        return rows[0]

    def announce(self, worker: WorkerRecord, until: int, delete_before: int) -> None:
        """Write the record of a running worker, and delete the records of workers that expired long ago."""
        self._session.write(_PUT_WORKER, (worker.id, until, stored_worker(worker)), is_relaxed=True)
        # Workers that died leave their records.
        self._session.write(_DELETE_EXPIRED_WORKERS, (delete_before,), is_relaxed=True)

    def retire(self, worker_id: str) -> None:
        """Delete the record of a worker."""
        self._session.write(_DELETE_WORKER, (worker_id,), is_relaxed=True)

    def workers(self) -> list[WorkerRecord]:
        """Return the records of all workers, including expired ones."""
        return self._session.read(_WORKERS, (), _worker)


def _time_of_schedule(*row: Any) -> int:
    (moment,) = typed("schedule", row, (int,))
    return int(moment)


def _worker(*row: Any) -> WorkerRecord:
    worker_id, expires_at, data = typed("worker", row, (str, int, str))
    return worker_from(worker_id, data, expires_at)


# --- checkpoints and summaries ---


_CHECKPOINTS = "SELECT DISTINCT id FROM divebook.checkpoints JOIN divebook.executions USING (key)"
_DROP_CHECKPOINTS = """
DELETE FROM divebook.checkpoints
WHERE key IN (SELECT key FROM divebook.executions WHERE id {in_list}) AND {known_format} RETURNING key
"""
_SUMMARIES = """
SELECT executions.id, sequence, summaries.checksum, data
FROM divebook.summaries JOIN divebook.executions USING (key)
"""
_SUMMARIES_OF = f"{_SUMMARIES} WHERE executions.id {{in_list}}"


class SqlCaches:
    """Checkpoints and summaries in a database, except the methods of a `divebook.stores.backend.CacheBackend` that a
    subclass for each database has.
    """

    def __init__(self, session: SqlSession) -> None:
        self._session = session

    def checkpoints(self) -> list[str]:
        """Return the ids of the executions that have a checkpoint."""
        return self._session.read(_CHECKPOINTS, (), str)

    def drop_checkpoints(self, execution_ids: Sequence[str]) -> int:
        """Delete the checkpoints of executions; return the number of deleted checkpoints."""
        return len(self._session.write(_DROP_CHECKPOINTS, (list(execution_ids),)))

    def summaries(self, execution_ids: Sequence[str]) -> dict[str, StoredSummary]:
        """Return the summaries of the given executions, without missing and damaged ones."""
        rows = self._session.read(_SUMMARIES_OF, (list(execution_ids),), _summary)
        return {execution_id: summary for execution_id, summary, is_sound in rows if is_sound}

    def faults(self) -> list[str]:
        """Return descriptions of summaries that do not match their checksums."""
        rows = self._session.read(_SUMMARIES, (), _summary)
        return [summary_damage(execution_id) for execution_id, _, is_sound in rows if not is_sound]


def _summary(execution_id: str, sequence: int, checksum: int, data: Any) -> tuple[str, StoredSummary, bool]:
    """Return the id of the execution, the summary, and True if it matches its checksum."""
    summary = StoredSummary(sequence, data)
    # A damaged file may have another type in the column.
    return execution_id, summary, isinstance(data, bytes) and summary.checksum(execution_id) == checksum


# --- verification ---


_STRAY_EVENTS = """
SELECT count(*) FROM divebook.events WHERE NOT EXISTS (SELECT 1 FROM divebook.executions WHERE key = place >> 32)
"""
_STRAY_ROWS = """
SELECT count(*) FROM divebook.part AS part WHERE NOT EXISTS (SELECT 1 FROM divebook.executions WHERE key = part.key)
"""


def find_strays(tables: Sequence[str], count: Callable[[str], int]) -> list[str]:
    """Return descriptions of rows that belong to no execution.

    Parameters
    ----------
    tables
        Tables with rows that belong to an execution, except the table of events.
    count
        Function that executes a shared statement, and returns the number in its only row.
    """
    counts = {"events": count(_STRAY_EVENTS)}
    for table in tables:
        counts[f"rows of table {table}"] = count(_STRAY_ROWS.replace("divebook.part", f"divebook.{table}"))
    return [f"{number} {rows} belong to no execution" for rows, number in counts.items() if number]
