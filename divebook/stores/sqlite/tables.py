"""SQL statements for the tables of a store file except the logs: leases, messages, queues, questions, lists, caches.

Each function runs one or a few statements. Functions with the parameter `cursor` write, inside of the caller's
transaction. Statements that stores in Postgres share are in `divebook.stores.sql`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from types import NoneType
from typing import Any
from zlib import crc32

from divebook.engine.inbox import Message
from divebook.engine.lifecycle import STATUSES, TERMINAL, check_may_receive
from divebook.errors import CorruptStoreError, ExecutionNotFoundError
from divebook.events.catalog import BOOK, CHILD, ENQUEUED, RUNNING, WAITING, ExecutionEnqueued
from divebook.events.codec import encode
from divebook.stores.append import RELAXED, ExecutionRecord, RecordFilter, load_sound_records
from divebook.stores.backend import (
    MAX_CANDIDATES,
    StoredMessage,
    StoredSummary,
    check_reached,
    digests_reached,
    part_of_log,
)
from divebook.stores.codec import Sealing
from divebook.stores.encoding import of_row
from divebook.stores.leases import (
    Claim,
    Lease,
    Moment,
    Owner,
)
from divebook.stores.listeners import NewsCounter
from divebook.stores.sql import (
    DELETE_EVENTS,
    DELETE_ROWS,
    DROP_SUPERSEDED,
    MESSAGES_AFTER,
    NEWEST_MESSAGE,
    PUT_CHECKPOINT,
    QUESTIONS_OF_ONE,
    REPLACE_SOURCE,
    SELECT_MESSAGES,
    SET_SIZE,
    SET_SOURCE,
    SqlCaches,
    typed,
)
from divebook.stores.sqlite import log_reader
from divebook.stores.sqlite.connections import DIALECT, SqliteSession
from divebook.stores.sqlite.log_reader import COLUMNS, RECORD, Log, find, load_line, load_record, log_end_of
from divebook.stores.sqlite.schema import EventTypes, place_of, places_of

# --- leases ---
# The token is in the execution's row, where every append checks it; the rest has a row of its own.


# CROSS JOIN, here and below, keeps SQLite from changing the order of the tables.
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
_NEXT = "UPDATE executions SET token = token + 1 WHERE key = ? RETURNING token"
_RENEW = """
UPDATE leases SET expires_at = ?, expires_uptime = ?
WHERE key = (SELECT key FROM executions WHERE id = ? AND token = ?)
"""
_RELEASE = "DELETE FROM leases WHERE key = (SELECT key FROM executions WHERE id = ? AND token = ?)"


def load_leases(connection: sqlite3.Connection) -> list[Lease]:
    """Return the leases of all executions, live or expired, without those that are damaged."""
    leases: list[Lease] = []
    for row in connection.execute(_ALL).fetchall():
        # A damaged lease must not hide the others (test_a_damaged_lease_hides_no_other_execution_that_nobody_drives).
        with suppress(CorruptStoreError):
            leases.append(_lease(*row))
    return leases


def load_lease(connection: sqlite3.Connection | sqlite3.Cursor, key: int) -> Lease | None:
    """Return the lease of one execution, live or expired, or None."""
    row = connection.execute(_OF_ONE, (key,)).fetchone()
    return None if row is None else _lease(*row)


def _lease(*row: Any) -> Lease:
    execution_id, token, *owner, expires_at, expires_uptime = typed("lease", row, _TYPES)
    return Lease(execution_id, token, Owner(*owner), expires_at, expires_uptime)


def has_no_live_lease(execution_id: str, columns: tuple[Any, ...], moment: Moment) -> bool:
    """Return True if no process has a live lease of an execution.

    `columns` are the execution's token and the columns of its lease, which are NULL without a lease.
    """
    return columns[1] is None or not _lease(execution_id, *columns).keeps_out(moment)


def write_next_lease(cursor: sqlite3.Cursor, log: Log, owner: Owner, until: Moment, *, was_left: bool) -> Lease:
    """Increase the lease token of an execution by one, and write a lease with it. With `was_left`, it takes the place
    of an earlier one, which was not released.
    """
    (token,) = cursor.execute(_NEXT, (log.key,)).fetchone()
    lease = replace(until.lease(log.execution_id, token, owner), was_left=was_left)
    insert_lease(cursor, log.key, lease)
    return lease


def insert_lease(cursor: sqlite3.Cursor, key: int, lease: Lease) -> None:
    """Write the lease of an execution in place of an earlier lease. The token in the execution's row is not changed."""
    owner = lease.owner
    row = (owner.host, owner.pid, owner.started, owner.name, owner.boot, lease.expires_at, lease.expires_uptime)
    cursor.execute(_INSERT, (key, *row))


def renew_lease(cursor: sqlite3.Cursor, lease: Lease, until: Moment) -> bool:
    """Set a new expiry for a lease and return True; return False if it was released or replaced by a newer one."""
    return cursor.execute(_RENEW, (until.wall, until.uptime, lease.execution_id, lease.token)).rowcount == 1


def release_lease(cursor: sqlite3.Cursor, lease: Lease) -> None:
    """Delete a lease. If the execution has a newer lease, do nothing."""
    cursor.execute(_RELEASE, (lease.execution_id, lease.token))


# --- messages ---
# The numbers ascend over all executions. The log of an execution has its messages up to the number `taken` of its row,
# and `untaken` repeats this in the rows of the messages, so that no other rows must be read. For example, A gets the
# messages 3 and 8, B gets message 5, and A has `taken` 3: only 5 and 8 are untaken, and a reader that has seen 5 asks
# for numbers above 5.


MIN_POLL_PAUSE = 0.02
"""Seconds between the first two polls for writes of other processes."""
MAX_POLL_PAUSE = 0.2
"""Maximum seconds between two polls, reached after some time without writes of other processes."""
_SELECT = DIALECT.text(SELECT_MESSAGES)
_FIRST = f"{_SELECT} WHERE messages.key = ? AND kind = ? AND name = ?"
_MESSAGES_OF_ONE = f"{_SELECT} WHERE messages.key = ? AND number > ? ORDER BY number"
_OF_ALL = DIALECT.text(MESSAGES_AFTER)
_STATUS = "SELECT status FROM executions WHERE key = ?"
_NEWEST_MESSAGE = DIALECT.text(NEWEST_MESSAGE)
_UNENDED_KEY = "SELECT key FROM executions WHERE id = ? AND ended_at IS NULL"
# `untaken` is 0 if the execution has ended, or if a message from another store is in its log already.
_INSERT_MESSAGE = """
INSERT INTO messages (number, key, kind, name, payload, source, posted_at, checksum, untaken)
SELECT ?, key, ?, ?, ?, ?, ?, ?, ended_at IS NULL AND ifnull(? > taken, 1) FROM executions WHERE key = ?
RETURNING number
"""
# Includes the numbers of deleted messages, so that a reader which has seen those does not miss later ones.
_LAST = "SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'messages'"
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


def wait_for_news(news_counter: NewsCounter, has_news: Callable[[], bool], last_count: int, seconds: float) -> int:
    """Wait until another process writes to the file (polled with growing pauses) or this process posts a message.
    Return the present count of such news.
    """
    deadline = time.monotonic() + seconds
    pause = MIN_POLL_PAUSE
    while True:
        if has_news():
            news_counter.add()
        remaining = deadline - time.monotonic()
        # Messages of this process end the wait at once; only writes of other processes depend on the poll.
        count = news_counter.wait(last_count, max(0.0, min(pause, remaining)))
        if count != last_count or remaining <= 0:
            return count
        pause = min(MAX_POLL_PAUSE, pause * 1.5)


def post_message(cursor: sqlite3.Cursor, sealing: Sealing, key: int, message: Message, payload: bytes) -> Message:
    """Write a message and return it, or the message of the same kind and key that its execution already has.

    Raises
    ------
    ExecutionEndedError
        The execution has ended and can never continue.
    """
    row = cursor.execute(_FIRST, (key, message.kind, message.key)).fetchone()
    if row is not None:
        return StoredMessage(*row).opened(sealing)
    (status,) = cursor.execute(_STATUS, (key,)).fetchone()
    check_may_receive(message.execution_id, status, message.kind)
    return replace(message, number=insert_message(cursor, key, replace(message, number=0), payload))


def post_to_unended(cursor: sqlite3.Cursor, message: Message, payload: bytes) -> None:
    """Write a message, unless its execution is unknown or has ended, or has a message of the same kind and key."""
    row = cursor.execute(_UNENDED_KEY, (message.execution_id,)).fetchone()
    if row is not None and cursor.execute(_FIRST, (*row, message.kind, message.key)).fetchone() is None:
        insert_message(cursor, row[0], message, payload)


def insert_message(cursor: sqlite3.Cursor, key: int, message: Message, payload: bytes) -> int:
    """Write a message and return its number. A message that has a number keeps it; a message with number 0 gets the
    next free number.
    """
    # The checksum covers the id of the execution and not its key, which another execution may get after a deletion.
    _, *columns, _, checksum = StoredMessage.of(message, payload.decode())
    number_or_none = message.number or None
    row = (number_or_none, *columns, checksum, number_or_none, key)
    number: int = cursor.execute(_INSERT_MESSAGE, row).fetchone()[0]
    return number


def newest_message_number(cursor: sqlite3.Cursor, key: int) -> int:
    """Return the number of the newest message to one execution; 0 if it has received none."""
    return int(cursor.execute(_NEWEST_MESSAGE, (key,)).fetchone()[0])


def load_inbox(connection: sqlite3.Connection | sqlite3.Cursor, key: int, after: int) -> list[StoredMessage]:
    """Return the messages of one execution with numbers above `after`, ascending."""
    return [StoredMessage(*row) for row in connection.execute(_MESSAGES_OF_ONE, (key, after)).fetchall()]


def load_new_messages(connection: sqlite3.Connection, after: int) -> list[StoredMessage]:
    """Return the messages of all executions with numbers above `after`, ascending."""
    return [StoredMessage(*row) for row in connection.execute(_OF_ALL, (after,)).fetchall()]


def find_message_faults(connection: sqlite3.Connection) -> list[str]:
    """Return descriptions of messages that do not match their checksums, or that are wrongly listed as contained, or
    not contained, in the log of their execution.
    """
    damaged = [message.damage for message in load_new_messages(connection, 0) if not message.is_sound]
    strays = [number for (number,) in connection.execute(_STRAY).fetchall()]
    return damaged + [f"message {number} is not listed with its current state" for number in strays]


def mark_messages_taken(cursor: sqlite3.Cursor, key: int, last_taken: int) -> None:
    """Record that the log of an execution contains all messages to it with numbers up to `last_taken`."""
    cursor.execute(_TAKE, (key, last_taken))


def set_messages_over(cursor: sqlite3.Cursor, key: int, last_taken: int, *, is_over: bool) -> None:
    """Record in the rows of an execution's messages that the execution has ended (`is_over`), or that it continues and
    has yet to take the messages after number `last_taken`.
    """
    cursor.execute(_TURN, (not is_over, last_taken, key))


def last_message_number(connection: sqlite3.Connection | sqlite3.Cursor) -> int:
    """Return the highest number that a message in this store ever had, even if that message was deleted."""
    number: int = connection.execute(_LAST).fetchone()[0]
    return number


def has_untaken(connection: sqlite3.Connection, key: int) -> bool:
    """Return True if an execution has not ended and has messages that are not in its log."""
    return connection.execute(_HAS_UNTAKEN, (key,)).fetchone() is not None


def last_addressee(connection: sqlite3.Connection, kind: str, key: str) -> str | None:
    """Return the id of the execution that received the latest message with a kind and a key; None if none has received
    one.
    """
    row = connection.execute(_LAST_ADDRESSEE, (key, kind)).fetchone()
    return None if row is None else row[0]


class MessageWatch:
    """Reader of new messages. It queries the table of messages only after another connection has written to the file or
    this process has posted a message.

    ``PRAGMA data_version`` of the writing connection changes only when another connection writes. Reading it costs some
    microseconds, much less than a query for messages.
    """

    def __init__(self, writer: sqlite3.Connection) -> None:
        self._writer = writer
        self._version = -1
        """``PRAGMA data_version`` of the file at the last query for messages."""
        self._news_version = -1
        """``PRAGMA data_version`` of the file at the last call of `has_news`."""
        self._last = 0
        """Highest number of a message that this object knows of."""

    def on_post(self, number: int) -> None:
        """Record the number of a message that this process has posted, so that `new_messages` searches for new
        messages.
        """
        self._last = max(self._last, number)

    def has_news(self) -> bool:
        """Return True if another connection has written to the file since the previous call of `has_news`."""
        before = self._news_version
        (self._news_version,) = self._writer.execute("PRAGMA data_version").fetchone()
        return before != self._news_version

    def new_messages(self, after: int) -> list[StoredMessage]:
        """Return the new messages of all executions, those with numbers above `after`."""
        (version,) = self._writer.execute("PRAGMA data_version").fetchone()
        # Only another connection's write changes the version; own messages are noted by `on_post`.
        if version != self._version:
            self._last = last_message_number(self._writer)
            self._version = version
        return load_new_messages(self._writer, after) if self._last > after else []


# --- queues ---
# Every append updates the row of its execution, so that a claim reads no logs.


_PUT = "INSERT OR REPLACE INTO queued (key, queue, priority, withheld) VALUES (?, ?, ?, ?)"
_WITHHOLD = "UPDATE queued SET withheld = ? WHERE key = ?"
# With the lease of each, live or not: SQL cannot decide whether the owner has died. In the order of the index.
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
_STRAY_QUEUE_ROWS = "SELECT id FROM queued JOIN executions USING (key) WHERE NOT withheld AND ended_at IS NOT NULL"


def put_in_queue(cursor: sqlite3.Cursor, key: int, enqueued: ExecutionEnqueued, *, withheld: bool) -> None:
    """Write the queue entry of an execution in place of an earlier one."""
    cursor.execute(_PUT, (key, enqueued.queue, enqueued.priority, withheld))


def set_withheld(cursor: sqlite3.Cursor, key: int, *, withheld: bool) -> None:
    """Set whether workers skip an execution. If the execution is not in a queue, do nothing."""
    cursor.execute(_WITHHOLD, (withheld, key))


def claimable(connection: sqlite3.Connection | sqlite3.Cursor, claim: Claim, moment: Moment) -> Iterator[str]:
    """Yield the ids of the executions that a worker may claim, in the order of claims, without those whose lease is
    damaged: they must not keep the others from workers.
    """
    parameters = {"workflows": encode(dict(claim.workflows)).decode(), "now": moment.wall}
    for queue in claim.queues:
        for execution_id, *columns in connection.execute(_TO_DO, {**parameters, "queue": queue}):
            is_free = False
            with suppress(CorruptStoreError):
                is_free = has_no_live_lease(execution_id, tuple(columns), moment)
            if is_free and execution_id not in claim.without:
                yield execution_id


def find_queue_faults(connection: sqlite3.Connection) -> list[str]:
    """Return descriptions of queue entries that should not exist, because their execution has ended."""
    return [
        f"execution {execution_id} has ended, but is still in a queue"
        for (execution_id,) in connection.execute(_STRAY_QUEUE_ROWS).fetchall()
    ]


# --- open questions ---
# Every append updates them, so that the inbox reads no logs.


_ASK = "INSERT OR IGNORE INTO questions (key, id) VALUES (?, ?)"
_SETTLE = "DELETE FROM questions WHERE key = ? AND id = ?"
_OPEN = """
SELECT executions.id, questions.id FROM questions CROSS JOIN executions USING (key)
WHERE NOT is_over ORDER BY created_at DESC, key DESC, questions.id
"""
# INDEXED BY: with the table's own key, SQLite would also visit the questions of executions that have ended.
_CALLED = """
SELECT executions.id, questions.id FROM questions INDEXED BY questions_open CROSS JOIN executions USING (key)
WHERE questions.id = ? AND NOT is_over ORDER BY created_at DESC, key DESC
"""
_SETTLE_QUESTIONS = "UPDATE questions SET is_over = ? WHERE key = ?"
_STRAY_QUESTIONS = """
SELECT questions.id, executions.id FROM questions JOIN executions USING (key) WHERE is_over <> (ended_at IS NOT NULL)
"""
_QUESTIONS_OF_ONE = DIALECT.text(QUESTIONS_OF_ONE)


def write_questions(cursor: sqlite3.Cursor, key: int, changes: Mapping[str, bool]) -> None:
    """Store changes of an execution's questions: add a question that was asked (True), and delete one that was settled
    (False).
    """
    for question_id, is_open in changes.items():
        cursor.execute(_ASK if is_open else _SETTLE, (key, question_id))


def set_questions_over(cursor: sqlite3.Cursor, key: int, *, is_over: bool) -> None:
    """Record in the rows of an execution's questions that the execution has ended (`is_over`) or continues. The
    questions of ended executions are not listed.
    """
    cursor.execute(_SETTLE_QUESTIONS, (is_over, key))


def find_question_faults(connection: sqlite3.Connection) -> list[str]:
    """Return descriptions of questions whose row contradicts the row of their execution, which states if the execution
    has ended.
    """
    return [
        f"question {question_id} of execution {execution_id} is not listed with its current state"
        for question_id, execution_id in connection.execute(_STRAY_QUESTIONS).fetchall()
    ]


def open_questions_of(connection: sqlite3.Connection, key: int) -> frozenset[str]:
    """Return the ids of the open questions of one execution, which may have ended."""
    rows = connection.execute(_QUESTIONS_OF_ONE, (key,)).fetchall()
    return frozenset(question_id for (question_id,) in (typed("question", row, (str,)) for row in rows))


# --- lists of executions ---
# Each statement finds the executions by an index, and reads no others. tests/store/test_plans.py checks the plans of
# the statements, and the work that they do as a store grows.


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
"""Column for each field of `RecordFilter` except the tag, ordered by how few rows a value probably has.

SQLite uses the index of the first column.
"""
_TAGGED = f"SELECT {COLUMNS} FROM tags CROSS JOIN executions USING (key)"  # noqa: S608 - our own text
_IDS = "SELECT id FROM executions ORDER BY +created_at DESC, key DESC"  # +: an index may be damaged
# char(1114111) is the highest character, so the range has all ids that begin with the prefix, and uses the index.
_CANDIDATES = "SELECT id FROM executions WHERE id >= ? AND id < ? || char(1114111) ORDER BY id LIMIT ?"
# UNION and not UNION ALL, so that rows which name each other as parents (only damage can cause that) end the search.
_DESCENDANTS = f"""
WITH RECURSIVE below (id) AS (
  SELECT id FROM executions WHERE parent = :parent AND origin = '{CHILD}'
  UNION
  SELECT executions.id FROM below CROSS JOIN executions ON parent = below.id AND origin = '{CHILD}'
)
SELECT count(*) FROM below
"""  # noqa: S608 - our own text
_UNENDED = ", ".join(f"'{status}'" for status in sorted(set(STATUSES) - TERMINAL))
_ACTIVE = ", ".join(f"'{status}'" for status in sorted(set(STATUSES) - TERMINAL - {WAITING}))
# With the lease of each, live or not: SQL cannot decide whether the owner has died.
_ORPHANS = f"""
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
_WIDTH = COLUMNS.count(",") + 1
"""Number of leading columns in a row of `_ORPHANS` that form a row of `RECORD`."""


class SqliteLists:
    """Rows of executions in a store file; a `divebook.stores.backend.ListBackend`."""

    def __init__(
        self, session: SqliteSession, types: EventTypes, unknown: Callable[[str], ExecutionNotFoundError]
    ) -> None:
        self._session = session
        self._types = types
        self._unknown = unknown
        self._warned: set[str] = set()

    def record(self, execution_id: str) -> ExecutionRecord:
        """Return the row of one execution."""
        with self._session.snapshot() as connection:
            row = connection.execute(f"{RECORD} WHERE id = ?", (execution_id,)).fetchone()
            if row is None:
                raise self._unknown(execution_id)
            return load_record(connection, self._types, row)

    def records(self, record_filter: RecordFilter, limit: int, offset: int) -> list[ExecutionRecord]:
        """Return the rows that a filter matches, newest first, without those that are damaged."""
        with self._session.snapshot() as connection:
            rows = connection.execute(*list_statement(record_filter, limit, offset)).fetchall()
            return load_sound_records(rows, lambda row: load_record(connection, self._types, row), self._warned)

    def orphans(self, moment: Moment) -> list[ExecutionRecord]:
        """Return the executions that can continue and have no live lease, newest first."""
        with self._session.snapshot() as connection:
            rows = connection.execute(_ORPHANS, {"now": moment.wall}).fetchall()

            def load(row: tuple[Any, ...]) -> ExecutionRecord | None:
                # The columns of the execution's row precede its token and its lease, or NULL.
                has_no_driver = has_no_live_lease(row[0], row[_WIDTH:], moment)
                return load_record(connection, self._types, row[:_WIDTH]) if has_no_driver else None

            return load_sound_records(rows, load, self._warned)

    def descendants(self, execution_id: str) -> int:
        """Return the number of direct and indirect child executions of an execution."""
        with self._session.snapshot() as connection:
            return int(connection.execute(_DESCENDANTS, {"parent": execution_id}).fetchone()[0])

    def asking(self, question_id: str | None) -> list[tuple[str, str]]:
        """Return the open questions of executions that have not ended, as pairs of execution id and question id."""
        with self._session.snapshot() as connection:
            rows = connection.execute(_OPEN) if question_id is None else connection.execute(_CALLED, (question_id,))
            typed_rows = [typed("question", row, (str, str)) for row in rows]
            return [(execution_id, question) for execution_id, question in typed_rows]

    def ids(self, prefix: str | None = None) -> list[str]:
        """Return the ids of all executions, newest first, or those that begin with a prefix, sorted."""
        if prefix is None:
            return self._session.read(_IDS, (), str)
        return self._session.read(_CANDIDATES, (prefix, prefix, MAX_CANDIDATES + 1), str)


def list_statement(record_filter: RecordFilter, limit: int, offset: int) -> tuple[str, dict[str, Any]]:
    """Return the SQL statement that lists the executions that match a filter, newest first, and the statement's
    parameters.
    """
    parameters = {name: value for name, value in asdict(record_filter).items() if value is not None}
    without_books = [] if parameters.pop("with_books") else [f"+origin IS NOT '{BOOK}'"]
    unended = [f"status IN ({_UNENDED})"] if parameters.pop("unended") else []
    names = [name for name in _COLUMNS_OF if name in parameters]
    has_tag = "tag" in parameters
    # Columns whose index SQLite may use. With a tag, the rows come from the table of tags; workflow and status share an
    # index.
    if has_tag or unended:
        leading = []
    elif names[:2] == ["workflow", "status"]:
        leading = names[:2]
    else:
        leading = names[:1]
    # +: SQLite uses no index for this column. It has no statistics to choose between two indexes.
    conditions = [f"{'' if name in leading else '+'}{_COLUMNS_OF[name]} = :{name}" for name in names]
    source = _TAGGED if has_tag else RECORD
    created = "began" if has_tag else "created_at"
    where = " AND ".join([*(["tag = :tag"] if has_tag else []), *unended, *conditions, *without_books])
    order = f"ORDER BY {created} DESC, key DESC LIMIT :limit OFFSET :offset"
    return f"{source} {where and 'WHERE'} {where} {order}", {**parameters, "limit": limit or -1, "offset": offset}


def insert_tags(cursor: sqlite3.Cursor, key: int, created_at: int, tags: Iterable[str]) -> None:
    """Add the tags of an execution to the table of tags, which is used to find executions by tag."""
    cursor.executemany(_TAG, [(tag, created_at, key) for tag in tags])


def delete_tags(cursor: sqlite3.Cursor, key: int) -> None:
    """Delete all tags of an execution from the table of tags."""
    cursor.execute("DELETE FROM tags WHERE key = ?", (key,))


def find_list_faults(connection: sqlite3.Connection) -> list[str]:
    """Return descriptions of executions whose tags in their row differ from those in the table of tags."""
    strays = [execution_id for (execution_id,) in connection.execute(_STRAY_LIST_ROWS).fetchall()]
    return [f"execution {execution_id} is not listed under the tags in its row" for execution_id in strays]


# --- checkpoints and summaries ---
# A checkpoint has a checksum over it and over the log up to it. One that is damaged, or that belongs to another log or
# to an earlier state of its log, counts as missing; `divebook check` reports it.


_PUT_SUMMARY = """
INSERT INTO summaries (key, sequence, checksum, data) SELECT key, ?, ?, ? FROM executions WHERE id = ?
ON CONFLICT (key) DO UPDATE SET sequence = excluded.sequence, checksum = excluded.checksum, data = excluded.data
"""
_PUT_CHECKPOINT = DIALECT.text(PUT_CHECKPOINT)
_DROP_SUPERSEDED = DIALECT.text(DROP_SUPERSEDED)
_CHECKPOINTS = "SELECT sequence, checksum, data FROM checkpoints WHERE key = ?"
_CHECKPOINT = f"{_CHECKPOINTS} AND sequence <= ? ORDER BY sequence DESC LIMIT 1"
_CHAIN = "SELECT checksum FROM events WHERE place > ? AND place <= ? ORDER BY place DESC LIMIT 1"


class SqliteCaches(SqlCaches):
    """Checkpoints and summaries in a store file; a `divebook.stores.backend.CacheBackend`."""

    def __init__(
        self, session: SqliteSession, types: EventTypes, unknown: Callable[[str], ExecutionNotFoundError]
    ) -> None:
        super().__init__(session)
        self._file = session
        self._types = types
        self._unknown = unknown

    # Relaxed durability: a cache may be lost at any time.

    def put_checkpoint(self, execution_id: str, sequence: int, data: bytes) -> None:
        """Write a checkpoint of an execution, and delete those that are not the newest of their part of the log."""
        with self._file.transaction(RELAXED) as cursor:
            log = find(cursor, execution_id)
            if log is None:
                raise self._unknown(execution_id)
            check_reached(execution_id, sequence, log_end_of(cursor, self._types, log).last_sequence)
            checksum = _checkpoint_checksum(cursor, log, sequence, data)
            cursor.execute(_PUT_CHECKPOINT, (log.key, sequence, checksum, data))
            cursor.execute(_DROP_SUPERSEDED, 2 * (log.key, *part_of_log(sequence)))

    def checkpoint(self, execution_id: str, at: int) -> tuple[int, bytes] | None:
        """Return the newest checkpoint of an execution at or before event `at`, as sequence number and data; None if it
        is missing or damaged.
        """
        with self._file.snapshot() as connection:
            log = find(connection, execution_id)
            row = None if log is None else connection.execute(_CHECKPOINT, (log.key, at)).fetchone()
            # An older checkpoint would do, but damage is rare, and the log is always right.
            return (row[0], row[2]) if log is not None and row and _is_sound(connection, log, *row) else None

    def put_summaries(self, summaries: Mapping[str, StoredSummary]) -> None:
        """Write summaries of executions in place of older ones."""
        rows = [
            (summary.sequence, summary.checksum(execution_id), summary.data, execution_id)
            for execution_id, summary in summaries.items()
        ]
        with self._file.transaction(RELAXED) as cursor:
            cursor.executemany(_PUT_SUMMARY, rows)


def _checkpoint_checksum(connection: sqlite3.Connection | sqlite3.Cursor, log: Log, sequence: int, data: bytes) -> int:
    # The checksum of the last record covers all records before it, so it proves that these are the folded ones.
    first, last = log.ranges(1, sequence)[-1]
    chain = connection.execute(_CHAIN, (first - 1, last)).fetchone()
    return crc32(data, of_row((log.execution_id, sequence, chain)))


def _is_sound(connection: sqlite3.Connection, log: Log, sequence: Any, checksum: Any, data: Any) -> bool:
    """Return False if the row of a checkpoint is damaged or was made for a log with other events."""
    has_right_types = isinstance(sequence, int) and isinstance(data, bytes)
    return has_right_types and _checkpoint_checksum(connection, log, sequence, data) == checksum


def checkpoints_fit(connection: sqlite3.Connection, log: Log) -> bool:
    """Return False if a checkpoint of an execution is damaged or was made for a log with other events."""
    return all(
        _is_sound(connection, log, *row) or _is_of_older_version(log, *row)
        for row in connection.execute(_CHECKPOINTS, (log.key,)).fetchall()
    )


def _is_of_older_version(log: Log, sequence: Any, checksum: Any, data: Any) -> bool:
    # Older versions computed the checksum without the log. Such a checkpoint is sound, although it is not used.
    has_right_types = isinstance(sequence, int) and isinstance(data, bytes)
    return has_right_types and checksum in (crc32(data, of_row((log.execution_id, sequence))), crc32(data, sequence))


# --- deletion of executions ---


TABLES = ("leases", "blob_uses", "checkpoints", "summaries", "messages", "questions", "tags", "queued")
"""Tables with rows that belong to an execution, except the table of events."""

_HEIRS = "SELECT key, forked_at FROM executions WHERE source_key = ? ORDER BY forked_at DESC, key"
_MOVE = "UPDATE events SET place = place + ? WHERE place BETWEEN ? AND ?"
_LONG = "SELECT ifnull(sum(length(CAST(data AS BLOB))), 0) FROM events WHERE place BETWEEN ? AND ?"
_PAYLOADS = "SELECT CAST(data AS BLOB) FROM events WHERE place BETWEEN ? AND ?"
_INHERIT = DIALECT.text(SET_SOURCE)
_FOLLOW = DIALECT.text(REPLACE_SOURCE)
_GROW = DIALECT.text(SET_SIZE)
_DELETE_EVENTS = DIALECT.text(DELETE_EVENTS)
_DELETE_ROWS = DIALECT.text(DELETE_ROWS)


def delete_execution(cursor: sqlite3.Cursor, execution_id: str, sealing: Sealing) -> list[str]:
    """Delete an execution and its log. Return its id and the ids of forks that have taken over shared events, or an
    empty list if it is unknown.

    Forks may share events of the deleted log. These move to the fork that shares most of them, the heir, and the other
    forks then refer to the heir. Example: the log of A has events 1 to 9, fork B shares 1 to 7, fork C shares 1 to 4.
    Deleting A moves its events 1 to 7 to B, and C shares 1 to 4 with B from then on.
    """
    log = find(cursor, execution_id)
    changed_ids: list[str] = []
    if log is not None:
        changed_ids = [execution_id, *_move_shared_events(cursor, log, sealing)]
        cursor.execute(_DELETE_EVENTS, places_of(log.key))
        for table in ("executions", *TABLES):
            cursor.execute(_DELETE_ROWS.format(table=table), (log.key,))
    return changed_ids


def _move_shared_events(cursor: sqlite3.Cursor, log: Log, sealing: Sealing) -> list[str]:
    """Move the events that forks share with a deleted execution to the fork that shares most of them. Return a list
    with the id of this fork, or an empty list if there are no forks.
    """
    # The heir comes first (`_HEIRS`): the fork that shares the most events.
    forks = cursor.execute(_HEIRS, (log.key,)).fetchall()
    if not forks:
        return []
    (heir, upto) = forks[0]
    # The deleted log may be a fork itself. Its first events are not its own, and the heir then shares them with the
    # same source.
    after = log.shared
    source_key = log.parts[-2].key if after else None
    first = place_of(log.key, after + 1)
    last = place_of(log.key, upto)
    (grown,) = cursor.execute(_LONG, (first, last)).fetchone()
    # A place is key * 2**32 + sequence, so adding the difference of the keys moves rows to the heir.
    cursor.execute(_MOVE, (place_of(heir - log.key, 0), first, last))
    cursor.execute(_INHERIT, (source_key, after or None, heir))
    cursor.execute(_FOLLOW, (heir, log.key))
    # The size of a log does not include what it shares, so the heir's log grows by what it takes over.
    payloads = [data for (data,) in cursor.execute(_PAYLOADS, (place_of(heir, 1), place_of(heir, upto))).fetchall()]
    reached_digests = digests_reached(payloads, sealing, log_reader.fetcher(cursor, sealing))
    grown += log_reader.inherit_blobs(cursor, log.key, heir, reached_digests)
    row = cursor.execute(f"{RECORD} WHERE key = ?", (heir,)).fetchone()
    with suppress(CorruptStoreError):  # a damaged row stays damaged, and `divebook check` reports it
        line = load_line(row)
        line = line._replace(size=line.size + grown)
        cursor.execute(_GROW, (line.size, line.seal(), heir))
    return [row[0]]


def is_over(cursor: sqlite3.Cursor, execution_id: str, last_sequence: int | None, moment: Moment) -> bool:
    """Return True if an execution has ended with the event `last_sequence` and no process is resuming it. None stands
    for any last event.
    """
    row = cursor.execute(f"{RECORD} WHERE id = ?", (execution_id,)).fetchone()
    log = find(cursor, execution_id)
    if row is None or log is None:
        return False
    line = load_line(row)
    if line.status not in TERMINAL or last_sequence not in (None, line.last_sequence):
        return False
    lease = load_lease(cursor, log.key)
    return lease is None or not lease.keeps_out(moment)
