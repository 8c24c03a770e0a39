"""SQL statements for the tables of a Postgres store except the logs: leases, messages, lists, large values, caches.

Each function runs one or a few statements. `execute` sends a statement on a reading connection, or in the caller's
transaction. Statements that SQLite stores share are in `divebook.stores.sql`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any
from zlib import crc32

from divebook.engine.inbox import Message
from divebook.engine.lifecycle import TERMINAL
from divebook.errors import CorruptStoreError, ExecutionNotFoundError
from divebook.events.catalog import BOOK, CHILD, ENQUEUED, RUNNING, WAITING
from divebook.stores.append import ExecutionRecord, RecordFilter, load_sound_records, record_of
from divebook.stores.backend import (
    MAX_CANDIDATES,
    StoredBlob,
    StoredLog,
    StoredMessage,
    StoredSummary,
    check_reached,
    digests_reached,
    part_of_log,
)
from divebook.stores.codec import Sealing
from divebook.stores.encoding import Packed, of_row, unpack_blob
from divebook.stores.leases import (
    Claim,
    Lease,
    Moment,
    Owner,
)
from divebook.stores.postgres.connections import (
    DIALECT,
    Connections,
    PostgresSession,
    SendStatement,
    escaped,
    unescaped,
    unescaped_row,
)
from divebook.stores.postgres.logs import COLUMNS as ROWS_COLUMNS
from divebook.stores.postgres.logs import (
    MOST,
    RECORD,
    WIDTH,
    LogReader,
    TypeNumbers,
    arguments_of_post,
    line_of,
    load_line,
    load_record,
    place_of_message,
)
from divebook.stores.postgres.schema import BLOB_USES_LOCK, IN_KNOWN_FORMAT, KNOWN_FORMAT, PATIENCE, TABLES
from divebook.stores.sql import (
    DELETE_EVENTS,
    DELETE_ROWS,
    DROP_SUPERSEDED,
    LOAD_BLOB,
    MESSAGES_AFTER,
    PUT_CHECKPOINT,
    QUESTIONS_OF_ONE,
    REPLACE_SOURCE,
    SELECT_MESSAGES,
    SET_SIZE,
    SET_SOURCE,
    SqlCaches,
    find_strays,
)

# --- leases ---
# The token is in the execution's row, where every commit compares it; the rest has a row of its own. Leases expire by
# the server's clock, which is the same for all machines.


COLUMNS = "token, host, pid, started, name, boot, expires_at"
_ALL = f"SELECT id, {COLUMNS} FROM divebook.leases JOIN divebook.executions USING (key)"  # noqa: S608 - our own text
_OF_ONE = f"SELECT id, {COLUMNS} FROM divebook.executions LEFT JOIN divebook.leases USING (key) WHERE id = %s"  # noqa: S608
WITH_PATIENCE = f"WITH patience AS MATERIALIZED (SELECT {PATIENCE})"
"""Beginning of a statement that joins tables with ``patience`` and locks rows: limits the wait, also in the rest of the
transaction."""
_LOCK = f"{WITH_PATIENCE} SELECT FROM divebook.executions, patience WHERE id = %s FOR UPDATE OF executions"
# All parts of a statement see the tables as they were before it, so EXISTS finds only an earlier lease.
_NEXT = """
WITH advanced AS (
  UPDATE divebook.executions SET token = token + 1 WHERE id = %s RETURNING key, token
), put AS (
  INSERT INTO divebook.leases (key, host, pid, started, name, boot, expires_at)
  SELECT key, %s, %s, %s, %s, %s, %s FROM advanced
  ON CONFLICT (key) DO UPDATE SET host = excluded.host, pid = excluded.pid, started = excluded.started,
    name = excluded.name, boot = excluded.boot, expires_at = excluded.expires_at
)
SELECT token, EXISTS (SELECT FROM divebook.leases WHERE leases.key = advanced.key) FROM advanced
"""
# A statement that waits for a take-over to commit is evaluated again with the new row of the lease, but with the old
# rows of the other tables, in which the token still matches. The owner is in the row of the lease, so it is compared as
# well (test_what_waits_for_a_take_over_does_not_act_on_the_new_lease).
_RENEW = f"""
UPDATE divebook.leases SET expires_at = %s
FROM divebook.executions JOIN unnest(
  %s::text[], %s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::text[], %s::text[]
) AS held(id, token, host, pid, started, name, boot) USING (id, token)
WHERE leases.key = executions.key AND {KNOWN_FORMAT}
  AND (leases.host, leases.pid, leases.started, leases.name, leases.boot)
    = (held.host, held.pid, held.started, held.name, held.boot)
RETURNING id
"""  # noqa: S608 - our own text
_RELEASE = f"""
DELETE FROM divebook.leases USING divebook.executions
WHERE leases.key = executions.key AND id = %s AND token = %s AND {KNOWN_FORMAT}
  AND (host, pid, started, name, boot) = (%s, %s, %s, %s, %s)
"""  # noqa: S608 - our own text
NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


def load_leases(execute: SendStatement) -> list[Lease]:
    """Return the leases of all executions, live or expired."""
    leases = [lease_from_columns(row[0], row[1:]) for row in execute(_ALL)]
    return [lease for lease in leases if lease is not None]


def load_lease(execute: SendStatement, execution_id: str) -> tuple[Lease | None] | None:
    """Return the lease of one execution in a tuple, ``(None,)`` if it has no lease. For an unknown execution, return
    None instead of a tuple.
    """
    rows = execute(_OF_ONE, (escaped(execution_id),))
    return (lease_from_columns(rows[0][0], rows[0][1:]),) if rows else None


def lease_from_columns(execution_id: str, columns: Sequence[Any]) -> Lease | None:
    """Return the lease in the values of the columns `COLUMNS` of an execution's row. Return None if they are NULL,
    because the execution has no lease.
    """
    token, host, pid, started, name, boot, expires_at = columns
    if host is None:
        return None
    owner = Owner(unescaped(host), pid, started, unescaped(name), unescaped(boot))
    return Lease(unescaped(execution_id), token, owner, expires_at)


def lock_execution(execute: SendStatement, execution_id: str) -> None:
    """Lock an execution's row against changes and deletion until the end of the transaction."""
    execute(_LOCK, (escaped(execution_id),))


def write_next_lease(execute: SendStatement, execution_id: str, owner: Owner, until: Moment) -> Lease:
    """Increase the lease token of an execution by one, and write a lease with it in place of an earlier lease."""
    ((token, was_left),) = execute(_NEXT, (escaped(execution_id), *_columns_of(owner), until.wall))
    return Lease(execution_id, token, owner, until.wall, was_left=was_left)


def renew_leases(execute: SendStatement, leases: Sequence[Lease], until: Moment) -> list[bool]:
    """Set a new expiry for leases. Return for each lease True, or False if it was released or replaced by a newer
    lease.
    """
    rows = [(escaped(lease.execution_id), lease.token, *_columns_of(lease.owner)) for lease in leases]
    columns = [list(column) for column in zip(*rows, strict=True)]
    renewed = {unescaped(name) for (name,) in execute(_RENEW, (until.wall, *columns))}
    return [lease.execution_id in renewed for lease in leases]


def release_lease(execute: SendStatement, lease: Lease) -> None:
    """Delete a lease. If the execution has a newer lease, do nothing."""
    execute(_RELEASE, (escaped(lease.execution_id), lease.token, *_columns_of(lease.owner)))


def _columns_of(owner: Owner) -> tuple[str, int, int, str, str]:
    """Return the columns of a lease that identify its owner."""
    return escaped(owner.host), owner.pid, owner.started, escaped(owner.name), escaped(owner.boot)


# --- messages ---
# Their numbers ascend in the order in which readers see them.


_POST = f"SELECT divebook.post_message(%s, %s, %s, %s, %s, %s, %s, %s) {IN_KNOWN_FORMAT}"
# Later messages get higher numbers than the one that is brought.
_BRING = """
WITH counted AS (UPDATE divebook.last_message SET number = %s)
INSERT INTO divebook.messages SELECT %s, key, %s, %s, %s, %s, %s, %s, %s FROM divebook.executions WHERE id = %s
RETURNING number
"""
_SELECT = DIALECT.text(SELECT_MESSAGES)
_ONE = f"{_SELECT} WHERE number = %s"
# An execution without messages has one row, with NULL in place of a message.
_MESSAGES_OF_ONE = """
SELECT executions.id, messages.kind, messages.name, payload, source, posted_at, number, messages.checksum
FROM divebook.executions LEFT JOIN divebook.messages ON messages.key = executions.key AND number > %s
WHERE executions.id = %s ORDER BY number
"""
_OF_ALL = DIALECT.text(MESSAGES_AFTER)
_LAST = "SELECT number FROM divebook.last_message"
_LOCK_LAST = f"""
{WITH_PATIENCE}
SELECT number FROM divebook.last_message, patience FOR UPDATE OF last_message
"""  # noqa: S608 - our own text
_HAS_UNTAKEN = """
SELECT ended_at IS NULL
  AND EXISTS (SELECT FROM divebook.messages WHERE messages.key = executions.key AND number > taken)
FROM divebook.executions WHERE id = %s
"""
_LAST_ADDRESSEE = """
SELECT id FROM divebook.messages JOIN divebook.executions USING (key) WHERE place = %s ORDER BY number DESC LIMIT 1
"""


def post_message(connections: Connections, message: Message, payload: bytes) -> int | None:
    """Write a message and return its number. If its execution already has a message of the same kind and key, return
    the number of that one.

    Return None if the execution does not exist, and 0 if it has ended and can never continue.
    """
    ((number,),) = connections.write(_POST, arguments_of_post(message, payload))
    return None if number is None else int(number)


def insert_message(execute: SendStatement, message: Message, payload: bytes) -> bool:
    """Write a message under the number that it already has, as from another store. Return False if its execution does
    not exist.
    """
    checksum = StoredMessage.of(message, payload).checksum
    strings = (escaped(message.key), payload, escaped(message.source))
    columns = (message.number, message.number, place_of_message(message.kind, message.key), message.kind, *strings)
    return bool(execute(_BRING, (*columns, message.posted_at, checksum, escaped(message.execution_id))))


def load_message(execute: SendStatement, sealing: Sealing, number: int) -> Message | None:
    """Return the message that has a number; None if the message was deleted."""
    messages = _messages_in(execute(_ONE, (number,)))
    return messages[0].opened(sealing) if messages else None


def load_inbox(execute: SendStatement, execution_id: str, after: int) -> list[StoredMessage] | None:
    """Return the messages of one execution with numbers above `after`; None if the execution does not exist."""
    rows = execute(_MESSAGES_OF_ONE, (after, escaped(execution_id)))
    return _messages_in(row for row in rows if row[1] is not None) if rows else None


def load_new_messages(execute: SendStatement, after: int) -> list[StoredMessage]:
    """Return the messages of all executions with numbers above `after`, ascending."""
    return _messages_in(execute(_OF_ALL, (after,)))


def find_message_faults(execute: SendStatement) -> list[str]:
    """Return descriptions of messages that do not match their checksums."""
    return [message.damage for message in load_new_messages(execute, 0) if not message.is_sound]


def last_message_number(execute: SendStatement) -> int:
    """Return the highest number that a message in this store ever had, even if that message was deleted."""
    ((number,),) = execute(_LAST)
    return int(number)


def lock_last_message_number(execute: SendStatement) -> int:
    """Return the highest number that a message in this store ever had. Until the end of the transaction, no other
    process can post a message.
    """
    ((number,),) = execute(_LOCK_LAST)
    return int(number)


def has_untaken(execute: SendStatement, execution_id: str) -> bool | None:
    """Return True if an execution has not ended and has messages that are not in its log; None for an unknown
    execution.
    """
    rows = execute(_HAS_UNTAKEN, (escaped(execution_id),))
    return bool(rows[0][0]) if rows else None


def last_addressee(execute: SendStatement, kind: str, key: str) -> str | None:
    """Return the id of the execution that received the latest message with a kind and a key; None if none has received
    one.
    """
    rows = execute(_LAST_ADDRESSEE, (place_of_message(kind, key),))
    return unescaped(rows[0][0]) if rows else None


def _messages_in(rows: Iterable[tuple[Any, ...]]) -> list[StoredMessage]:
    return [StoredMessage(*row) for row in map(unescaped_row, rows)]


# --- queues ---
# Every commit updates the row of its execution, so that a claim reads no logs.


# SKIP LOCKED: a worker skips executions that another one is claiming, so that none waits for another. SQL cannot decide
# whether the owner of a lease has died. `claim_executions` finds such leases of this host before, as `left`.
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
SELECT executions.id, {COLUMNS} FROM divebook.leases JOIN divebook.queued USING (key)
JOIN divebook.executions USING (key) WHERE host = %s AND expires_at > %s
"""  # noqa: S608 - our own text


def claim_executions(execute: SendStatement, claim: Claim, owner: Owner, moment: Moment, until: Moment) -> list[Lease]:
    """Acquire the leases of queued executions that a worker may claim, and return the leases. Call this in a
    transaction.
    """
    rows = execute(_HELD_HERE, (escaped(owner.host), moment.wall))
    held_here = [(name, lease_from_columns(name, columns)) for name, *columns in rows]
    parameters: dict[str, Any] = {
        "names": [escaped(name) for name in claim.workflows],
        "prints": [escaped(fingerprint) for fingerprint in claim.workflows.values()],
        "without": [escaped(name) for name in claim.without],
        # These leases have not expired, but their processes on this host have died.
        "left": [name for name, lease in held_here if lease is not None and not lease.keeps_out(moment)],
        "now": moment.wall,
    }
    leases: list[Lease] = []
    for queue in claim.queues:
        if len(leases) < claim.limit:
            rows = execute(_TO_DO, {**parameters, "queue": escaped(queue), "limit": claim.limit - len(leases)})
            leases += [write_next_lease(execute, unescaped(name), owner, until) for (name,) in rows]
    return leases


# --- lists of executions ---


_NEWEST = "ORDER BY created_at DESC, executions.key DESC"
# Indexes have the first 200 characters of long texts, so a condition on these makes the index usable.
_CUT = "left({0}, 200) = left(%({1})s, 200) AND {0} = %({1})s"
_CONDITIONS = {
    "key": "start_key = %(key)s",
    "parent": _CUT.format("parent", "parent"),
    "cell": "cell = %(cell)s",
    "notebook": _CUT.format("notebook", "notebook"),
    "workflow": _CUT.format("workflow_name", "workflow"),
    "status": "status = %(status)s",
    "origin": "origin = %(origin)s",
    "tag": "tags ? %(tag)s",
}
_IDS = f"SELECT id FROM divebook.executions {_NEWEST}"  # noqa: S608 - our own text
# With the lease of each, live or not: SQL cannot decide whether the owner has died.
_ORPHANS = f"""
SELECT {ROWS_COLUMNS}, {COLUMNS} FROM divebook.executions LEFT JOIN divebook.leases USING (key)
WHERE ended_at IS NULL AND (
  status <> '{WAITING}' OR wake_at <= %s OR host IS NOT NULL
  OR EXISTS (SELECT FROM divebook.messages WHERE messages.key = executions.key AND number > taken)
) {_NEWEST}
"""  # noqa: S608 - our own text
# UNION and not UNION ALL, so that rows which name each other as parents (only damage can cause that) end the search.
_DESCENDANTS = f"""
WITH RECURSIVE below (id) AS (
  SELECT id FROM divebook.executions WHERE {_CUT.format("parent", "parent")} AND origin = '{CHILD}'
  UNION
  SELECT executions.id FROM below JOIN divebook.executions
  ON left(parent, 200) = left(below.id, 200) AND parent = below.id AND origin = '{CHILD}'
)
SELECT count(*) FROM below
"""  # noqa: S608 - our own text
_CANDIDATES = "SELECT id FROM divebook.executions WHERE starts_with(id, %s) ORDER BY id LIMIT %s"
_ASKING = """
SELECT executions.id, questions.id FROM divebook.questions JOIN divebook.executions USING (key)
WHERE ended_at IS NULL AND (%s::text IS NULL OR questions.id = %s::text)
ORDER BY created_at DESC, executions.key DESC, questions.id COLLATE "C"
"""


class PostgresLists:
    """Rows of executions in a database; a `divebook.stores.backend.ListBackend`."""

    def __init__(self, connections: Connections, unknown: Callable[[str], ExecutionNotFoundError]) -> None:
        self._connections = connections
        self._session = PostgresSession(connections)
        self._unknown = unknown
        self._warned: set[str] = set()

    def record(self, execution_id: str) -> ExecutionRecord:
        """Return the row of one execution."""
        rows = self._connections.read(f"{RECORD} WHERE id = %s", (escaped(execution_id),))
        if not rows:
            raise self._unknown(execution_id)
        return load_record(rows[0])

    def records(self, record_filter: RecordFilter, limit: int, offset: int) -> list[ExecutionRecord]:
        """Return the rows that a filter matches, newest first, without those that are damaged."""
        rows = self._connections.read(*list_statement(record_filter, limit, offset))
        return load_sound_records(rows, load_record, self._warned)

    def orphans(self, moment: Moment) -> list[ExecutionRecord]:
        """Return the executions that can continue and have no live lease, newest first."""
        rows = self._connections.read(_ORPHANS, (moment.wall,))
        leases = [lease_from_columns(row[0], row[WIDTH:]) for row in rows]
        orphans = [
            row[:WIDTH] for row, lease in zip(rows, leases, strict=True) if not (lease and lease.keeps_out(moment))
        ]
        return load_sound_records(orphans, load_record, self._warned)

    def descendants(self, execution_id: str) -> int:
        """Return the number of direct and indirect child executions of an execution."""
        ((count,),) = self._connections.read(_DESCENDANTS, {"parent": escaped(execution_id)})
        return int(count)

    def asking(self, question_id: str | None) -> list[tuple[str, str]]:
        """Return the open questions of executions that have not ended, as pairs of execution id and question id."""
        return self._session.read(_ASKING, (question_id, question_id), lambda *row: row)

    def ids(self, prefix: str | None = None) -> list[str]:
        """Return the ids of all executions, newest first, or those that begin with a prefix, sorted."""
        if prefix is None:
            return self._session.read(_IDS, (), str)
        return self._session.read(_CANDIDATES, (prefix, MAX_CANDIDATES + 1), str)


def list_statement(record_filter: RecordFilter, limit: int, offset: int) -> tuple[str, dict[str, Any]]:
    """Return the SQL statement that lists the executions that match a filter, newest first, and the statement's
    parameters.
    """
    filters = {name: value for name, value in asdict(record_filter).items() if value is not None}
    conditions = [] if filters.pop("with_books") else [f"origin <> '{BOOK}'"]
    if filters.pop("unended"):
        conditions.append("ended_at IS NULL")
    conditions += [_CONDITIONS[name] for name in filters]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    values = {name: escaped(value) for name, value in filters.items()}
    return f"{RECORD} {where} {_NEWEST} LIMIT %(limit)s OFFSET %(offset)s", {
        **values,
        "limit": limit or None,
        "offset": offset,
    }


# --- deletion, large values, checkpoints, and undecoded logs ---


_FIND = f"""
{WITH_PATIENCE}
SELECT key, source_key, forked_at FROM divebook.executions, patience WHERE id = %s FOR UPDATE OF executions
"""  # noqa: S608 - our own text
_HEIRS = """
SELECT key, id, forked_at FROM divebook.executions WHERE source_key = %s ORDER BY forked_at DESC, key FOR UPDATE
"""
_MOVE = "UPDATE divebook.events SET place = place + %s WHERE place BETWEEN %s AND %s RETURNING length(data)"
_PAYLOADS = "SELECT data FROM divebook.events WHERE place BETWEEN %s AND %s"
_INHERIT = DIALECT.text(SET_SOURCE)
_FOLLOW = DIALECT.text(REPLACE_SOURCE)
_GROW = DIALECT.text(SET_SIZE)
_DELETE_EVENTS = DIALECT.text(DELETE_EVENTS)
_DELETE_ROWS = DIALECT.text(DELETE_ROWS)
_SHARE = "SELECT pg_advisory_xact_lock_shared(%s)"
_USED = "SELECT digest FROM divebook.blob_uses WHERE key = %s"
_TAKE_OVER = """
INSERT INTO divebook.blob_uses SELECT %s, digest FROM unnest(%s::bytea[]) AS digest ON CONFLICT DO NOTHING
RETURNING digest
"""
_BLOB = DIALECT.text(LOAD_BLOB)
_BLOBS = """
SELECT digest, length(data), EXISTS (
  SELECT FROM divebook.blob_uses AS used JOIN divebook.executions USING (key)
  WHERE used.digest = blobs.digest AND NOT id = ANY(%s)
) FROM divebook.blobs
"""
_DROP_BLOBS = """
DELETE FROM divebook.blobs WHERE NOT EXISTS (SELECT FROM divebook.blob_uses AS used WHERE used.digest = blobs.digest)
RETURNING 1
"""
_PUT_CHECKPOINT = DIALECT.text(PUT_CHECKPOINT)
_PUT_SUMMARIES = f"""
INSERT INTO divebook.summaries AS kept (key, sequence, checksum, data)
SELECT executions.key, given.sequence, given.checksum, given.data
FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %b::bytea[]) AS given(id, sequence, checksum, data)
JOIN divebook.executions USING (id) WHERE {KNOWN_FORMAT}
ON CONFLICT (key) DO UPDATE SET sequence = excluded.sequence, checksum = excluded.checksum, data = excluded.data
"""  # noqa: S608 - our own text
_DROP_SUPERSEDED = DIALECT.text(DROP_SUPERSEDED)
_CHECKPOINTS = """
SELECT kept.sequence, kept.checksum, kept.data, (
  SELECT checksum FROM divebook.read_log(%s, kept.sequence - 1, kept.sequence) WHERE sequence > 0
  ORDER BY sequence DESC LIMIT 1
) FROM divebook.checkpoints AS kept JOIN divebook.executions USING (key) WHERE id = %s
"""
_CHECKPOINT = f"{_CHECKPOINTS} AND kept.sequence <= %s ORDER BY kept.sequence DESC LIMIT 1"
_CHAIN = """
SELECT owner, sequence, recorded_at, checksum FROM divebook.read_log(%s, %s, %s) ORDER BY sequence
"""


# --- deleting --------------------------------------------------------------------------------------------------------


def delete_execution(execute: SendStatement, execution_id: str, sealing: Sealing) -> list[str]:
    """Delete an execution and its log. Return its id and the ids of forks that have taken over shared events, or an
    empty list if it is unknown.

    Events that forks share with it move to the fork that shares most of them, the heir, and the other forks then refer
    to the heir (`divebook.stores.sqlite.tables.delete_execution` has an example).
    """
    rows = execute(_FIND, (escaped(execution_id),))
    if not rows:
        return []
    key, source, after = rows[0]
    # Uses of large values change below, which must not coincide with `drop_unused`.
    execute(_SHARE, (BLOB_USES_LOCK,))
    changed_ids = [execution_id, *_move_shared_events(execute, key, source, after or 0, sealing)]
    execute(_DELETE_EVENTS, (key << 32, key << 32 | MOST))
    for table in ("executions", *TABLES):
        execute(_DELETE_ROWS.format(table=table), (key,))
    return changed_ids


def _move_shared_events(
    execute: SendStatement, key: int, source: int | None, after: int, sealing: Sealing
) -> list[str]:
    """Move the events that forks share with a deleted execution to the fork that shares most of them. Return a list
    with the id of this fork, or an empty list if there are no forks.
    """
    # The heir comes first (`_HEIRS`): the fork that shares the most events.
    forks = execute(_HEIRS, (key,))
    if not forks:
        return []
    heir, heir_id, upto = forks[0]
    # A place is key * 2**32 + sequence, so adding the difference of the keys moves rows to the heir.
    sizes = execute(_MOVE, ((heir - key) << 32, key << 32 | after + 1, key << 32 | upto))
    # A deleted fork has its first events from a source, which the heir then shares in its place.
    execute(_INHERIT, (source, after or None, heir))
    execute(_FOLLOW, (heir, key))
    payloads = [data for (data,) in execute(_PAYLOADS, (heir << 32, heir << 32 | upto))]
    fetch = sealing.fetcher(lambda digest: _content(execute, digest))
    reached_digests = digests_reached(payloads, sealing, fetch)
    digests = [digest for (digest,) in execute(_USED, (key,)) if reached_digests is None or digest in reached_digests]
    inherited = execute(_TAKE_OVER, (heir, digests)) if digests else []
    grown = sum(size for (size,) in sizes) + sum(len(_content(execute, digest) or b"") for (digest,) in inherited)
    with suppress(CorruptStoreError):  # a damaged row stays damaged, and `divebook check` reports it
        line = load_line(execute(f"{RECORD} WHERE key = %s", (heir,))[0])
        line = line._replace(size=line.size + grown)
        execute(_GROW, (line.size, line.seal(), heir))
    return [unescaped(heir_id)]


def _content(execute: SendStatement, digest: bytes) -> bytes | None:
    rows = execute(_BLOB, (digest,))
    return unpack_blob(Packed(*rows[0])) if rows else None


def is_over(execute: SendStatement, execution_id: str, last_sequence: int | None, moment: Moment) -> bool:
    """Return True if an execution has ended with the event `last_sequence` and no process is resuming it. None stands
    for any last event.
    """
    # The lock lasts until the end of the transaction, so that no process resumes the execution between this check and
    # its deletion.
    lock_execution(execute, execution_id)
    rows = execute(f"{RECORD} WHERE id = %s", (escaped(execution_id),))
    if not rows:
        return False
    line = load_line(rows[0])
    if line.status not in TERMINAL or last_sequence not in (None, line.last_sequence):
        return False
    (lease,) = load_lease(execute, execution_id) or (None,)
    return lease is None or not lease.keeps_out(moment)


# --- large values ----------------------------------------------------------------------------------------------------


class PostgresBlobs:
    """Large values in a database; a `divebook.stores.backend.BlobBackend`."""

    def __init__(self, connections: Connections, reader: LogReader) -> None:
        self._connections = connections
        self._reader = reader

    def blobs(self, without: Collection[str]) -> list[StoredBlob]:
        """Return each large value with its size, and whether an execution uses it."""
        return [StoredBlob(*row) for row in self._connections.read(_BLOBS, ([escaped(name) for name in without],))]

    def blob(self, digest: bytes) -> bytes | None:
        """Return the content of a large value, still encrypted; None if it is missing."""
        return self._reader.blob(digest)

    def drop_unused(self) -> int:
        """Delete the large values that no execution uses; return the number of deleted values."""
        with self._connections.transaction() as execute:
            # A commit that refers to one of them in the meantime waits for the lock, and then writes the value again.
            execute("SELECT pg_advisory_xact_lock(%s)", (BLOB_USES_LOCK,))
            return len(execute(_DROP_BLOBS))


# --- checkpoints and summaries ----------------------------------------------------------------------------------------


class PostgresCaches(SqlCaches):
    """Checkpoints and summaries in a database; a `divebook.stores.backend.CacheBackend`."""

    def __init__(self, connections: Connections, unknown: Callable[[str], ExecutionNotFoundError]) -> None:
        super().__init__(PostgresSession(connections))
        self._connections = connections
        self._unknown = unknown

    def put_checkpoint(self, execution_id: str, sequence: int, data: bytes) -> None:
        """Write a checkpoint of an execution, and delete those that are not the newest of their part of the log."""
        name = escaped(execution_id)
        with self._connections.transaction() as execute:
            lock_execution(execute, execution_id)
            rows = execute("SELECT key, last_sequence FROM divebook.executions WHERE id = %s", (name,))
            if rows:
                ((key, last),) = rows
                check_reached(execution_id, sequence, last)
                *_, chain = execute(_CHAIN, (name, sequence - 1, sequence))[-1]
                checksum = _checkpoint_checksum(execution_id, sequence, chain, data)
                execute(_PUT_CHECKPOINT, (key, sequence, checksum, data))
                execute(_DROP_SUPERSEDED, 2 * (key, *part_of_log(sequence)))
                return
        raise self._unknown(execution_id)

    def checkpoint(self, execution_id: str, at: int) -> tuple[int, bytes] | None:
        """Return the newest checkpoint of an execution at or before event `at`, as sequence number and data; None if it
        is missing or damaged.
        """
        name = escaped(execution_id)
        rows = self._connections.read(_CHECKPOINT, (name, name, at))
        # At most one row.
        return next(((row[0], row[2]) for row in rows if _is_sound(execution_id, *row)), None)

    def put_summaries(self, summaries: Mapping[str, StoredSummary]) -> None:
        """Write summaries of executions in place of older ones."""
        rows = [
            (escaped(execution_id), summary.sequence, summary.checksum(execution_id), summary.data)
            for execution_id, summary in summaries.items()
        ]
        if rows:
            self._connections.write(_PUT_SUMMARIES, [list(column) for column in zip(*rows, strict=True)])


def _is_sound(execution_id: str, sequence: int, checksum: int, data: bytes, chain: int | None) -> bool:
    """Return False if the row of a checkpoint is damaged or was made for a log with other events."""
    return _checkpoint_checksum(execution_id, sequence, chain, data) == checksum


def _checkpoint_checksum(execution_id: str, sequence: int, chain: int | None, data: bytes) -> int:
    # The checksum of the last record covers all records before it, so it proves that these are the folded ones.
    return crc32(data, of_row((execution_id, sequence, chain)))


# --- as it is stored -------------------------------------------------------------------------------------------------


def load_stored(execute: SendStatement, types: TypeNumbers, execution_id: str) -> StoredLog | None:
    """Return the row of an execution and the records of its log, not decoded, all read at one moment; None for an
    unknown execution.
    """
    escaped_id = escaped(execution_id)
    rows = execute(f"{RECORD} WHERE id = %s", (escaped_id,))
    log_rows = execute("SELECT * FROM divebook.read_log(%s, 0, %s)", (escaped_id, MOST))
    if not rows or not log_rows:
        return None
    line, seal = line_of(rows[0])
    key, *_, checksum = log_rows[0]
    # The owners are the executions in whose rows a fork's shared events are.
    owners = {row[0] for row in log_rows[1:]} - {key}
    question_rows = execute(DIALECT.text(QUESTIONS_OF_ONE), (key,))
    ((shared,),) = execute("SELECT coalesce(forked_at, 0) FROM divebook.executions WHERE key = %s", (key,))
    checkpoints = execute(_CHECKPOINTS, (escaped_id, escaped_id))
    return StoredLog(
        record_of(line),
        checksum,
        [types.stored(row) for row in log_rows[1:]],
        _digests_used(execute, key),
        frozenset(unescaped(question) for (question,) in question_rows),
        shared,
        frozenset[bytes]().union(*(_digests_used(execute, owner) for owner in owners)),
        altered=seal != line.seal(),
        checkpoint_fits=all(_is_sound(execution_id, *row) for row in checkpoints),
    )


def _digests_used(execute: SendStatement, key: int) -> frozenset[bytes]:
    return frozenset(digest for (digest,) in execute(_USED, (key,)))


def find_faults(execute: SendStatement) -> list[str]:
    """Return descriptions of rows in a Postgres store that are damaged or belong to no execution.

    The server's extension `amcheck` verifies pages and indexes.
    """
    faults = find_strays(TABLES, lambda statement: int(execute(DIALECT.text(statement))[0][0]))
    return faults + find_message_faults(execute)
