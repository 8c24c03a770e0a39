"""Leases as rows: the token in the execution's row, where every append checks it, the rest in a row of its own."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from types import NoneType
from typing import Any
from zlib import crc32

from divebook.engine.inbox import Message
from divebook.engine.lifecycle import STATUSES, TERMINAL
from divebook.errors import CorruptStoreError, DecryptionError
from divebook.events.catalog import BOOK, CHILD, ENQUEUED, RUNNING, WAITING, ExecutionEnqueued
from divebook.events.codec import decode, encode
from divebook.store.append import RecordFilter
from divebook.store.base import StoredSummary
from divebook.store.codec import Sealing
from divebook.store.encoding import of_row, reached
from divebook.store.leases import (
    Claim,
    Lease,
    Moment,
    Owner,
    QueuedExecution,
    WorkerRecord,
    worker_from,
    worker_to_data,
)
from divebook.store.notifications import Arrivals
from divebook.store.sqlite import connections
from divebook.store.sqlite.connections import typed
from divebook.store.sqlite.rows import COLUMNS, RECORD, Log, find, load_line
from divebook.store.sqlite.schema import place_of, places_of
from divebook.text.redaction import logger

_ALL = """
SELECT id, token, host, pid, started, name, boot, expires_at, expires_uptime
FROM leases CROSS JOIN executions USING (key)
"""
_OF_ONE = f"{_ALL} WHERE leases.key = ?"
_TYPES = (str, int, str, int, int, str, str, int, (int, NoneType))
_INSERT = """
INSERT OR REPLACE INTO leases (key, host, pid, started, name, boot, expires_at, expires_uptime)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_IS_LEFT = "SELECT 1 FROM leases WHERE key = ?"
_NEXT = "UPDATE executions SET token = token + 1 WHERE key = ? RETURNING token"
_RENEW = """
UPDATE leases SET expires_at = ?, expires_uptime = ?
WHERE key = (SELECT key FROM executions WHERE id = ? AND token = ?)
"""
_RELEASE = "DELETE FROM leases WHERE key = (SELECT key FROM executions WHERE id = ? AND token = ?)"


def load_leases(connection: sqlite3.Connection) -> list[Lease]:
    """Return all leases."""
    return [_lease(*row) for row in connection.execute(_ALL).fetchall()]


def load_lease(connection: sqlite3.Connection | sqlite3.Cursor, key: int) -> Lease | None:
    """Return the lease of one execution, if it has one."""
    row = connection.execute(_OF_ONE, (key,)).fetchone()
    return None if row is None else _lease(*row)


def _lease(*row: Any) -> Lease:
    execution_id, token, *owner, expires_at, expires_uptime = typed("lease", row, _TYPES)
    return Lease(execution_id, token, Owner(*owner), expires_at, expires_uptime)


def is_left(execution_id: str, columns: tuple[Any, ...], moment: Moment) -> bool:
    """Return whether an execution has no live lease; `columns` are its token and its lease, or nothing."""
    return columns[1] is None or not _lease(execution_id, *columns).keeps_out(moment)


def put_next(cursor: sqlite3.Cursor, log: Log, owner: Owner, until: Moment) -> Lease:
    """Write a lease with the next token, in place of an older one."""
    (token,) = cursor.execute(_NEXT, (log.key,)).fetchone()
    was_left = cursor.execute(_IS_LEFT, (log.key,)).fetchone() is not None
    lease = replace(until.lease(log.execution_id, token, owner), was_left=was_left)
    insert(cursor, log.key, lease)
    return lease


def insert(cursor: sqlite3.Cursor, key: int, lease: Lease) -> None:
    """Write a lease, in place of an older one."""
    owner = lease.owner
    row = (owner.host, owner.pid, owner.started, owner.name, owner.boot, lease.expires_at, lease.expires_uptime)
    cursor.execute(_INSERT, (key, *row))


def renew(cursor: sqlite3.Cursor, lease: Lease, until: Moment) -> bool:
    """Prolong a lease; False if it is not the present one."""
    return cursor.execute(_RENEW, (until.wall, until.uptime, lease.execution_id, lease.token)).rowcount == 1


def release(cursor: sqlite3.Cursor, lease: Lease) -> None:
    """Delete a lease if it is the present one."""
    cursor.execute(_RELEASE, (lease.execution_id, lease.token))


# Messages as rows, and a way to see for next to nothing that there are no new ones.


SOONEST, LATEST = 0.02, 0.2
"""Seconds between two looks whether another process has written: at first, and when nothing has come for long."""
_SELECT = """
SELECT executions.id, messages.kind, messages.name, payload, source, posted_at, number, messages.checksum
FROM messages JOIN executions USING (key)
"""
_FIRST = f"{_SELECT} WHERE messages.key = ? AND kind = ? AND name = ?"
_MESSAGES_OF_ONE = f"{_SELECT} WHERE messages.key = ? AND number > ? ORDER BY number"
_OF_ALL = f"{_SELECT} WHERE number > ? ORDER BY number"
_INSERT_MESSAGE = """
INSERT INTO messages (number, key, kind, name, payload, source, posted_at, checksum, untaken)
SELECT ?, key, ?, ?, ?, ?, ?, ?, ended_at IS NULL AND ifnull(? > taken, 1) FROM executions WHERE key = ?
RETURNING number
"""
# Numbers of deleted messages count as well, so that a reader that has seen them misses none of the later ones.
_LAST = "SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'messages'"
_UNTAKEN = "SELECT DISTINCT id FROM messages CROSS JOIN executions USING (key) WHERE untaken"
_HAS_UNTAKEN = "SELECT 1 FROM messages WHERE key = ? AND untaken"
_TAKE = "UPDATE messages SET untaken = 0 WHERE key = ? AND untaken AND number <= ?"
_TURN = "UPDATE messages SET untaken = ? AND number > ? WHERE key = ?"
_STRAY = """
SELECT number FROM messages JOIN executions USING (key)
WHERE untaken <> (number > taken AND ended_at IS NULL) ORDER BY number
"""
_LAST_ADDRESSEE = """
SELECT id FROM messages CROSS JOIN executions USING (key) WHERE name = ? AND kind = ? ORDER BY number DESC LIMIT 1
"""


def wait_for_news(arrivals: Arrivals, has_news: Callable[[], bool], seen: int, seconds: float) -> int:
    """Look ever more rarely whether another process has written; what this one posts is heard of at once."""
    until = time.monotonic() + seconds
    pause = SOONEST
    while True:
        if has_news():
            arrivals.add()
        left = until - time.monotonic()
        found = arrivals.wait(seen, max(0.0, min(pause, left)))
        if found != seen or left <= 0:
            return found
        pause = min(LATEST, pause * 1.5)


def post(cursor: sqlite3.Cursor, sealing: Sealing, key: int, message: Message, payload: bytes) -> Message:
    """Write a message unless its place is taken; return the one that has the place."""
    first = cursor.execute(_FIRST, (key, message.kind, message.key)).fetchone()
    if first is not None:
        return _message(first, sealing)
    return replace(message, number=insert_messages(cursor, key, replace(message, number=0), payload))


def insert_messages(cursor: sqlite3.Cursor, key: int, message: Message, payload: bytes) -> int:
    """Write a message; return its number: the next one where it has none."""
    row = (message.kind, message.key, payload.decode(), message.source, message.posted_at)
    checksum = of_row((message.execution_id, *row))
    given = message.number or None
    number: int = cursor.execute(_INSERT_MESSAGE, (given, *row, checksum, given, key)).fetchone()[0]
    return number


def load_inbox(connection: sqlite3.Connection, sealing: Sealing, key: int, after: int) -> list[Message]:
    """Return the messages of one execution."""
    return [_message(row, sealing) for row in connection.execute(_MESSAGES_OF_ONE, (key, after)).fetchall()]


def load_all(connection: sqlite3.Connection, sealing: Sealing, after: int) -> list[Message]:
    """Return the messages of all executions, except those that are damaged or cannot be opened.

    These concern their own executions only, whose inboxes say so.
    """
    messages = []
    for row in connection.execute(_OF_ALL, (after,)).fetchall():
        with suppress(CorruptStoreError, DecryptionError):
            messages.append(_message(row, sealing))
    return messages


def find_faults(connection: sqlite3.Connection) -> list[str]:
    """Return which messages are damaged."""
    damaged = [_damage(row) for row in connection.execute(_OF_ALL, (0,)).fetchall() if not is_sound(row)]
    strays = [number for (number,) in connection.execute(_STRAY).fetchall()]
    return damaged + [f"message {number} is not listed as what its execution has made of it" for number in strays]


def take(cursor: sqlite3.Cursor, key: int, taken: int) -> None:
    """Note that an execution has taken its messages up to a number."""
    cursor.execute(_TAKE, (key, taken))


def turn(cursor: sqlite3.Cursor, key: int, taken: int, *, is_over: bool) -> None:
    """Note that an execution has ended, and takes no more messages, or that it goes on."""
    cursor.execute(_TURN, (not is_over, taken, key))


def last_number(connection: sqlite3.Connection) -> int:
    """Return the highest number ever given."""
    number: int = connection.execute(_LAST).fetchone()[0]
    return number


def untaken(connection: sqlite3.Connection) -> set[str]:
    """Return the executions that have not ended, with messages that are not in their logs."""
    return {execution_id for (execution_id,) in connection.execute(_UNTAKEN).fetchall()}


def has_untaken(connection: sqlite3.Connection, key: int) -> bool:
    """Return whether an execution that has not ended has messages that are not in its log."""
    return connection.execute(_HAS_UNTAKEN, (key,)).fetchone() is not None


def last_addressee(connection: sqlite3.Connection, kind: str, key: str) -> str | None:
    """Return the execution that got the latest message of such a kind and key."""
    row = connection.execute(_LAST_ADDRESSEE, (key, kind)).fetchone()
    return None if row is None else row[0]


class Watch:
    """Asks for new messages only if another connection has written since, or this one has posted.

    ``PRAGMA data_version`` of the writing connection stands still while only that connection writes, and asking for it
    costs some microseconds.
    """

    def __init__(self, writer: sqlite3.Connection, sealing: Sealing) -> None:
        self._writer = writer
        self._sealing = sealing
        self._version = self._heard = -1
        self._last = 0

    def posted(self, number: int) -> None:
        """Hear of a message that this connection has written."""
        self._last = max(self._last, number)

    def has_news(self) -> bool:
        """Whether another connection has written since this was asked the last time."""
        before = self._heard
        (self._heard,) = self._writer.execute("PRAGMA data_version").fetchone()
        return before != self._heard

    def new_messages(self, after: int) -> list[Message]:
        """Return the messages of all executions above a number."""
        (version,) = self._writer.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._last = last_number(self._writer)
            self._version = version
        return load_all(self._writer, self._sealing, after) if self._last > after else []


def is_sound(row: tuple[Any, ...]) -> bool:
    """Return whether a message is as it was written."""
    *columns, _, checksum = row
    return bool(of_row(columns) == checksum)


def _damage(row: tuple[Any, ...]) -> str:
    return f"message {row[-2]} to execution {row[0]} does not have the checksum it was written with"


def _message(row: tuple[Any, ...], sealing: Sealing) -> Message:
    if not is_sound(row):
        raise CorruptStoreError(f"{_damage(row)}; delete that execution, or restore a backup")
    execution_id, kind, name, payload, source, posted_at, number, _ = row
    return Message(execution_id, kind, name, decode(sealing.open(payload.encode())), source, posted_at, number)


# Queues as rows: which executions they have, kept with every append, and the workers that say they are there.


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
_ALL_QUEUES = """
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
_STRAY_QUEUE_ROWS = "SELECT id FROM queued JOIN executions USING (key) WHERE NOT withheld AND ended_at IS NOT NULL"


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
            if execution_id not in wanted.without and is_left(execution_id, tuple(columns), moment):
                yield execution_id


def load(connection: sqlite3.Connection, *, withheld: bool) -> list[QueuedExecution]:
    """Return what the queues have; or what workers leave alone of it."""
    return [QueuedExecution(*row) for row in connection.execute(_ALL_QUEUES.format(_WHICH[withheld])).fetchall()]


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


def find_queue_faults(connection: sqlite3.Connection) -> list[str]:
    """Return which executions a queue has though they have ended."""
    return [
        f"execution {execution_id} has ended, and is still in a queue"
        for (execution_id,) in connection.execute(_STRAY_QUEUE_ROWS).fetchall()
    ]


# The questions that are open, as rows: kept with every append, so that no log need be read for them.


_ASK = "INSERT OR IGNORE INTO questions (key, id) VALUES (?, ?)"
_SETTLE = "DELETE FROM questions WHERE key = ? AND id = ?"
_OPEN = """
SELECT executions.id, questions.id FROM questions CROSS JOIN executions USING (key)
WHERE NOT is_over ORDER BY created_at DESC, key DESC, questions.id
"""
# The index is named, as SQLite would look through those of executions that have ended by the table's own key.
_CALLED = """
SELECT executions.id, questions.id FROM questions INDEXED BY questions_open CROSS JOIN executions USING (key)
WHERE questions.id = ? AND NOT is_over ORDER BY created_at DESC, key DESC
"""
_SETTLE_QUESTIONS = "UPDATE questions SET is_over = ? WHERE key = ?"
_STRAY_QUESTIONS = """
SELECT questions.id, executions.id FROM questions JOIN executions USING (key) WHERE is_over <> (ended_at IS NOT NULL)
"""
_QUESTIONS_OF_ONE = "SELECT id FROM questions WHERE key = ?"


def note(cursor: sqlite3.Cursor, key: int, changes: Mapping[str, bool]) -> None:
    """Note which questions of an execution were asked, and which are settled."""
    for question_id, is_open in changes.items():
        cursor.execute(_ASK if is_open else _SETTLE, (key, question_id))


def settle_questions(cursor: sqlite3.Cursor, key: int, *, is_over: bool) -> None:
    """Note that an execution has ended, so that nobody answers its questions, or that it goes on."""
    cursor.execute(_SETTLE_QUESTIONS, (is_over, key))


def find_question_faults(connection: sqlite3.Connection) -> list[str]:
    """Return which questions are not listed as their executions have left them."""
    return [
        f"question {asked} of execution {execution_id} is not listed as what its execution has made of it"
        for asked, execution_id in connection.execute(_STRAY_QUESTIONS).fetchall()
    ]


def load_open(connection: sqlite3.Connection, question_id: str | None) -> list[tuple[str, str]]:
    """Return the open questions of executions that have not ended: all, or those of one id."""
    found = connection.execute(_OPEN) if question_id is None else connection.execute(_CALLED, (question_id,))
    return [(execution, asked) for execution, asked in (typed("question", row, (str, str)) for row in found)]


def open_of(connection: sqlite3.Connection, key: int) -> frozenset[str]:
    """Return the open questions of one execution, ended or not."""
    rows = connection.execute(_QUESTIONS_OF_ONE, (key,)).fetchall()
    return frozenset(question_id for (question_id,) in (typed("question", row, (str,)) for row in rows))


# Which executions fit what is asked of a list: each statement finds them by an index, and reads no others.
#
# A test of the statements' plans, and of the work they do as a store grows, is in tests/store/test_plans.py.


_log = logger(__name__)
_TAG = "INSERT OR IGNORE INTO tags (tag, began, key) VALUES (?, ?, ?)"
_STRAY_LIST_ROWS = """
SELECT id FROM (
  SELECT *, CASE WHEN json_valid(tags) THEN tags ELSE '[]' END AS said FROM executions
) AS row
WHERE (SELECT count(*) FROM tags WHERE tags.key = row.key) <> (SELECT count(DISTINCT value) FROM json_each(said))
  OR EXISTS (
    SELECT 1 FROM tags WHERE tags.key = row.key
    AND (began <> created_at OR tag NOT IN (SELECT value FROM json_each(said)))
  )
"""
_NEWEST = "ORDER BY created_at DESC, key DESC"
_COLUMNS_OF = {
    "key": "start_key",
    "parent": "parent",
    "cell": "cell",
    "notebook": "notebook",
    "workflow": "workflow_name",
    "status": "status",
    "origin": "origin",
}
"""The column of each filter but the tag. The first that is asked for leads to the rows: it is likely to fit the fewest.
"""
_TAGGED = f"SELECT {COLUMNS} FROM tags CROSS JOIN executions USING (key)"  # noqa: S608 - our own text
IDS = "SELECT id FROM executions ORDER BY +created_at DESC, key DESC"  # +: an index may be damaged
CANDIDATES = "SELECT id FROM executions WHERE id >= ? AND id < ? || char(1114111) ORDER BY id LIMIT ?"
# UNION, and not UNION ALL: rows that name each other as parents, which only damage can make, end the search.
DESCENDANTS = f"""
WITH RECURSIVE below (id) AS (
  SELECT id FROM executions WHERE parent = :parent AND origin = '{CHILD}'
  UNION
  SELECT executions.id FROM below CROSS JOIN executions ON parent = below.id AND origin = '{CHILD}'
)
SELECT count(*) FROM below
"""  # noqa: S608 - our own text
_UNENDED = ", ".join(f"'{status}'" for status in sorted(set(STATUSES) - TERMINAL))
_ACTIVE = ", ".join(f"'{status}'" for status in sorted(set(STATUSES) - TERMINAL - {WAITING}))
UNENDED = f"{RECORD} WHERE status IN ({_UNENDED}) {_NEWEST}"
# With the lease that each has, or had; whether one is live is not for SQL to know: its owner may have died.
ORPHANS = f"""
WITH pressed (key) AS (
  SELECT key FROM executions WHERE status IN ({_ACTIVE})
  UNION SELECT key FROM executions WHERE wake_at <= :now
  UNION SELECT key FROM leases
  UNION SELECT key FROM messages WHERE untaken
)
SELECT {COLUMNS}, token, host, pid, started, name, boot, expires_at, expires_uptime
FROM pressed CROSS JOIN executions USING (key) LEFT JOIN leases USING (key)
WHERE ended_at IS NULL {_NEWEST}
"""  # noqa: S608 - our own text
WIDTH = COLUMNS.count(",") + 1
"""How many columns of a row of `ORPHANS` are those of `RECORD`."""


def fitting(wanted: RecordFilter, limit: int, offset: int) -> tuple[str, dict[str, Any]]:
    """Return the statement that lists the executions that fit, newest first, and its parameters."""
    asked = {name: value for name, value in asdict(wanted).items() if value is not None}
    without_books = [] if asked.pop("with_books") else [f"+origin IS NOT '{BOOK}'"]
    names = [name for name in _COLUMNS_OF if name in asked]
    leading = [] if "tag" in asked else names[: 2 if names[:2] == ["workflow", "status"] else 1]
    # +: no index is used for it, so that SQLite, which knows nothing of the data, need not choose between two.
    conditions = [f"{'' if name in leading else '+'}{_COLUMNS_OF[name]} = :{name}" for name in names]
    source, order = (_TAGGED, "began") if "tag" in asked else (RECORD, "created_at")
    where = " AND ".join(["tag = :tag"] * ("tag" in asked) + conditions + without_books)
    order = f"ORDER BY {order} DESC, key DESC LIMIT :limit OFFSET :offset"
    return f"{source} {where and 'WHERE'} {where} {order}", {**asked, "limit": limit or -1, "offset": offset}


def note_tags(cursor: sqlite3.Cursor, key: int, began: int, tags: Iterable[str]) -> None:
    """Have an execution found by its tags."""
    cursor.executemany(_TAG, [(tag, began, key) for tag in tags])


def forget_tags(cursor: sqlite3.Cursor, key: int) -> None:
    """Have an execution found by no tag."""
    cursor.execute("DELETE FROM tags WHERE key = ?", (key,))


def find_list_faults(connection: sqlite3.Connection) -> list[str]:
    """Return which executions are not found by their tags."""
    strays = [execution_id for (execution_id,) in connection.execute(_STRAY_LIST_ROWS).fetchall()]
    return [f"execution {execution_id} is not listed under the tags that its row has" for execution_id in strays]


# What lists show beside the rows of executions: summaries, each with a checksum of its own.


_PUT_SUMMARY = """
INSERT INTO summaries (key, sequence, checksum, data) SELECT key, ?, ?, ? FROM executions WHERE id = ?
ON CONFLICT (key) DO UPDATE SET sequence = excluded.sequence, checksum = excluded.checksum, data = excluded.data
"""
_GET = """
SELECT executions.id, sequence, summaries.checksum, data FROM summaries JOIN executions USING (key)
WHERE executions.id IN (SELECT value FROM json_each(?))
"""
_ALL_SUMMARIES = "SELECT executions.id, sequence, summaries.checksum, data FROM summaries JOIN executions USING (key)"


def put_summary(cursor: sqlite3.Cursor, summaries: Mapping[str, StoredSummary]) -> None:
    """Write summaries in place of older ones."""
    rows = [(kept.sequence, _checksum(name, *kept), kept.data, name) for name, kept in summaries.items()]
    cursor.executemany(_PUT_SUMMARY, rows)


def load_summaries(connection: sqlite3.Connection, execution_ids: Sequence[str]) -> dict[str, StoredSummary]:
    """Return the summaries of some executions, as far as they are as they were written."""
    rows = connection.execute(_GET, (encode(list(execution_ids)).decode(),)).fetchall()
    return {row[0]: StoredSummary(row[1], row[3]) for row in rows if _is_sound(row)}


def find_summary_faults(connection: sqlite3.Connection) -> list[str]:
    """Return which summaries are damaged."""
    return [
        f"the summary of execution {row[0]} is damaged. It is not used, and nothing is lost: it is made again when the "
        "execution is listed"
        for row in connection.execute(_ALL_SUMMARIES)
        if not _is_sound(row)
    ]


def _is_sound(row: tuple[Any, ...]) -> bool:
    execution_id, sequence, checksum, data = row
    return isinstance(data, bytes) and _checksum(execution_id, sequence, data) == checksum


def _checksum(execution_id: str, sequence: int, data: bytes) -> int:
    return crc32(data, of_row((execution_id, sequence)))


# The newest checkpoint of each execution, with a checksum over it and over the log up to it.
#
# One that is damaged, belongs to another log, or to what its log was before, counts as none; `check` says so.


_PUT_CHECKPOINT = """
INSERT INTO checkpoints (key, sequence, checksum, data) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET sequence = excluded.sequence, checksum = excluded.checksum, data = excluded.data
WHERE excluded.sequence >= sequence
"""
_GET_CHECKPOINT = "SELECT sequence, checksum, data FROM checkpoints WHERE key = ?"
_CHAIN = "SELECT checksum FROM events WHERE place > ? AND place <= ? ORDER BY place DESC LIMIT 1"
_LIST = "SELECT id FROM checkpoints JOIN executions USING (key)"
_DROP = "DELETE FROM checkpoints WHERE key = (SELECT key FROM executions WHERE id = ?)"


def _checkpoint_checksum(connection: sqlite3.Connection | sqlite3.Cursor, log: Log, sequence: int, data: bytes) -> int:
    # That of the last record in the fold covers all before it: what was folded is what is there.
    first, last = log.ranges(1, sequence)[-1]
    chain = connection.execute(_CHAIN, (first - 1, last)).fetchone()
    return crc32(data, of_row((log.execution_id, sequence, chain)))


def put_checkpoint(cursor: sqlite3.Cursor, log: Log, sequence: int, data: bytes) -> None:
    """Write a checkpoint in place of an older one."""
    cursor.execute(_PUT_CHECKPOINT, (log.key, sequence, _checkpoint_checksum(cursor, log, sequence, data), data))


def get(connection: sqlite3.Connection, log: Log) -> tuple[int, bytes] | None:
    """Return sequence and data of an execution's checkpoint, unless it is damaged or does not belong to the log."""
    row = connection.execute(_GET_CHECKPOINT, (log.key,)).fetchone()
    if row is None or not (isinstance(row[0], int) and isinstance(row[2], bytes)):
        return None
    sequence, checksum, data = row
    return (sequence, data) if _checkpoint_checksum(connection, log, sequence, data) == checksum else None


def fits(connection: sqlite3.Connection, log: Log) -> bool:
    """Return whether the checkpoint of a log, if it has one, is as it was written, and of that log."""
    row = connection.execute(_GET_CHECKPOINT, (log.key,)).fetchone()
    if row is None or get(connection, log) is not None:
        return True
    sequence, checksum, data = row
    if not (isinstance(sequence, int) and isinstance(data, bytes)):
        return False
    # What the checksum was made of before it covered the log: such a one is sound, though it is not used.
    return checksum in (crc32(data, of_row((log.execution_id, sequence))), crc32(data, sequence))


def list_ids(connection: sqlite3.Connection) -> list[str]:
    """Return the ids of the executions that have a checkpoint."""
    return [execution_id for (execution_id,) in connection.execute(_LIST).fetchall()]


def drop(cursor: sqlite3.Cursor, execution_ids: Sequence[str]) -> int:
    """Delete checkpoints; return how many."""
    return sum(cursor.execute(_DROP, (execution_id,)).rowcount for execution_id in execution_ids)


# Deleting executions, with everything that belongs to them.


TABLES = ("leases", "blob_uses", "checkpoints", "summaries", "messages", "questions", "tags", "queued")
"""What belongs to executions, beside their events."""

_ENDED = "SELECT id FROM executions WHERE ended_at < ?"  # resuming clears it


_HEIRS = "SELECT key, forked_at FROM executions WHERE source_key = ? ORDER BY forked_at DESC, key"
_MOVE = "UPDATE events SET place = place + ? WHERE place BETWEEN ? AND ?"
_LONG = "SELECT ifnull(sum(length(CAST(data AS BLOB))), 0) FROM events WHERE place BETWEEN ? AND ?"
_PAYLOADS = "SELECT CAST(data AS BLOB) FROM events WHERE place BETWEEN ? AND ?"
_INHERIT = "UPDATE executions SET source_key = ?, forked_at = ? WHERE key = ?"
_FOLLOW = "UPDATE executions SET source_key = ? WHERE source_key = ?"
_GROW = "UPDATE executions SET size = ?, seal = ? WHERE key = ?"


def delete(cursor: sqlite3.Cursor, execution_id: str, sealing: Sealing) -> list[str]:
    """Delete an execution; return which rows of others are other ones then, with its own id: none if there is none.

    What forks share of it goes to the one that shares most, its heir, and the other forks refer to that one then.
    """
    log = find(cursor, execution_id)
    changed: list[str] = []
    if log is not None:
        changed = [execution_id, *_hand_over(cursor, log, sealing)]
        cursor.execute("DELETE FROM events WHERE place BETWEEN ? AND ?", places_of(log.key))
        for table in ("executions", *TABLES):
            cursor.execute(f"DELETE FROM {table} WHERE key = ?", (log.key,))  # noqa: S608 - one of our own tables
    return changed


def _hand_over(cursor: sqlite3.Cursor, log: Log, sealing: Sealing) -> list[str]:
    """Give what forks share of a log to its heir; return the id of that one."""
    forks = cursor.execute(_HEIRS, (log.key,)).fetchall()
    if not forks:
        return []
    (heir, upto) = forks[0]
    after = log.shared
    above = log.parts[-2].key if after else None
    first = place_of(log.key, after + 1)
    last = place_of(log.key, upto)
    (grown,) = cursor.execute(_LONG, (first, last)).fetchone()
    cursor.execute(_MOVE, (place_of(heir - log.key, 0), first, last))
    cursor.execute(_INHERIT, (above, after or None, heir))
    cursor.execute(_FOLLOW, (heir, log.key))
    grown += connections.inherit(cursor, log.key, heir, _used(cursor, heir, upto, sealing))
    row = cursor.execute(f"{RECORD} WHERE key = ?", (heir,)).fetchone()
    with suppress(CorruptStoreError):  # a row that is damaged stays so, and `check` says it
        line = load_line(row)
        line = line._replace(size=line.size + grown)
        cursor.execute(_GROW, (line.size, line.seal(), heir))
    return [row[0]]


def _used(cursor: sqlite3.Cursor, heir: int, upto: int, sealing: Sealing) -> frozenset[bytes] | None:
    """Return the large values of what an heir was handed; None for all, where that cannot be read."""
    fetch = connections.fetcher(cursor, sealing)
    rows = cursor.execute(_PAYLOADS, (place_of(heir, 1), place_of(heir, upto))).fetchall()
    try:
        return frozenset(digest for (data,) in rows for digest in reached(sealing.open_packed(data), fetch))
    except (CorruptStoreError, DecryptionError):
        return None


def ended_before(cursor: sqlite3.Cursor, before: int) -> list[str]:
    """Return the executions that ended before a moment, in microseconds."""
    return [execution_id for (execution_id,) in cursor.execute(_ENDED, (before,)).fetchall()]


def is_over(cursor: sqlite3.Cursor, execution_id: str, moment: Moment) -> bool:
    """Return whether an execution has ended and no process has begun to resume it."""
    row = cursor.execute(f"{RECORD} WHERE id = ?", (execution_id,)).fetchone()
    log = find(cursor, execution_id)
    if row is None or log is None or load_line(row).status not in TERMINAL:
        return False
    lease = load_lease(cursor, log.key)
    return lease is None or not lease.keeps_out(moment)
