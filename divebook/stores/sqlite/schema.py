"""Tables of a store file, as a list of numbered migrations.

A migration is a list of SQL statements. A file has the number of its last migration in `user_version`. A released
migration never changes. To change the tables, add an entry at the end of `MIGRATIONS`, and a recorded file of the old
form to ``tests/store/recorded``.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from typing import TypeAlias

from divebook.errors import CorruptStoreError, NewerStoreError, ReadOnlyStoreError
from divebook.events.catalog import PAYLOADS
from divebook.stores.encoding import of_row
from divebook.stores.sql import LOAD_TYPES, typed
from divebook.stores.sqlite.connections import DIALECT, snapshot

Migration: TypeAlias = tuple[str, ...]

APPLICATION_ID = 0x64697665  # "dive"; tells `file` and us that the database is ours

_FIRST: Migration = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    """
    CREATE TABLE executions (
      key           INTEGER PRIMARY KEY,
      id            TEXT NOT NULL UNIQUE,
      workflow_name TEXT NOT NULL,
      status        TEXT NOT NULL,
      last_sequence INTEGER NOT NULL,
      size          INTEGER NOT NULL,  -- bytes of payload
      created_at    INTEGER NOT NULL,  -- times are microseconds since 1970, UTC
      started_at    INTEGER,
      ended_at      INTEGER,
      fingerprint   TEXT,
      error         TEXT
    )
    """,
    "CREATE TABLE event_types (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    # One log lies together on disk: place is executions.key << 32 | sequence. A rowid table rather than WITHOUT ROWID,
    # because the latter moves every row above 1 KB to an overflow page of its own: 2.7 against 5.3 KB for a step with a
    # payload of 2 KB.
    """
    CREATE TABLE events (
      place       INTEGER PRIMARY KEY,
      recorded_at INTEGER NOT NULL,
      type        INTEGER NOT NULL,  -- event_types.number
      id          BLOB NOT NULL,     -- 16 bytes of the UUIDv7 in event_..., or another id as text
      path        TEXT NOT NULL,
      step        TEXT NOT NULL,
      data        TEXT NOT NULL      -- JSON
    )
    """,
    # For people with an SQL shell.
    """
    CREATE VIEW log AS
    SELECT executions.id AS execution_id, events.place & 4294967295 AS sequence, events.recorded_at,
      event_types.name AS event_type, events.path, events.step, events.data
    FROM executions
    JOIN events ON events.place BETWEEN executions.key << 32 AND executions.key << 32 | 4294967295
    JOIN event_types ON event_types.number = events.type
    """,
)

# Checksums, leases, large values and checkpoints. Existing events get no checksum: writing them would take minutes for
# a file of some gigabytes.
_SECOND: Migration = (
    "ALTER TABLE executions ADD COLUMN token INTEGER NOT NULL DEFAULT 0",  # grows with every lease
    "ALTER TABLE executions ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0",  # of the last event
    "ALTER TABLE events ADD COLUMN checksum INTEGER",
    """
    CREATE TABLE leases (
      key            INTEGER PRIMARY KEY,  -- executions.key
      host           TEXT NOT NULL,
      pid            INTEGER NOT NULL,
      started        INTEGER NOT NULL,
      name           TEXT NOT NULL,
      boot           TEXT NOT NULL,
      expires_at     INTEGER NOT NULL,
      expires_uptime INTEGER               -- microseconds of the monotonic clock of that boot
    )
    """,
    """
    CREATE TABLE blobs (
      number     INTEGER PRIMARY KEY,
      digest     BLOB NOT NULL UNIQUE,  -- SHA-256 of the content
      compressed INTEGER NOT NULL,      -- 1: zlib
      data       BLOB NOT NULL
    )
    """,
    """
    CREATE TABLE blob_uses (
      key  INTEGER NOT NULL,  -- executions.key
      blob INTEGER NOT NULL,  -- blobs.number
      PRIMARY KEY (key, blob)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE checkpoints (
      key      INTEGER PRIMARY KEY,  -- executions.key
      sequence INTEGER NOT NULL,     -- of the last event in the fold
      checksum INTEGER NOT NULL,     -- of data
      data     BLOB NOT NULL
    )
    """,
)

# Messages, and the time at which an execution continues. Executions that an older version left unended count as
# running, so that they are recovered. Here their status becomes waiting if the last event of each of their paths is an
# unanswered question, an end, a branch or a join.
_THIRD: Migration = (
    "ALTER TABLE executions ADD COLUMN wake_at INTEGER",
    "ALTER TABLE executions ADD COLUMN taken INTEGER NOT NULL DEFAULT 0",  # messages.number
    "ALTER TABLE executions ADD COLUMN durability TEXT NOT NULL DEFAULT 'full'",
    # AUTOINCREMENT: numbers of deleted messages are not given again.
    """
    CREATE TABLE messages (
      number    INTEGER PRIMARY KEY AUTOINCREMENT,
      key       INTEGER NOT NULL,  -- executions.key
      kind      TEXT NOT NULL,     -- answer, signal
      name      TEXT NOT NULL,     -- of the question, or the signal's own
      payload   TEXT NOT NULL,     -- JSON
      source    TEXT NOT NULL,
      posted_at INTEGER NOT NULL,
      UNIQUE (key, kind, name)
    )
    """,
    """
    UPDATE executions SET status = 'waiting'
    WHERE status = 'running'
    AND EXISTS (
      SELECT 1 FROM events JOIN event_types ON number = type
      WHERE place BETWEEN key << 32 AND key << 32 | 4294967295 AND event_types.name = 'interrupt_raised'
    )
    AND NOT EXISTS (
      SELECT 1 FROM (
        SELECT type, max(place) FROM events
        WHERE place BETWEEN key << 32 AND key << 32 | 4294967295 AND path <> '' GROUP BY path
      ) JOIN event_types ON number = type
      WHERE event_types.name NOT IN (
        'interrupt_raised', 'path_completed', 'path_failed', 'path_cancelled', 'path_branched', 'path_waiting'
      )
    )
    """,
)

# Facts of the beginning of an execution, for lists and their filters. Checksums for rows of executions, for messages,
# and for checkpoints including their sequence number. Open questions, so that no log must be read for them.
_FOURTH: Migration = (
    "ALTER TABLE executions ADD COLUMN start_key TEXT",
    "ALTER TABLE executions ADD COLUMN origin TEXT NOT NULL DEFAULT 'run'",
    "ALTER TABLE executions ADD COLUMN parent TEXT",
    "ALTER TABLE executions ADD COLUMN tags TEXT NOT NULL DEFAULT '[]'",  # JSON
    "ALTER TABLE executions ADD COLUMN note TEXT",
    "ALTER TABLE executions ADD COLUMN notebook TEXT",
    "ALTER TABLE executions ADD COLUMN cell TEXT",
    "ALTER TABLE executions ADD COLUMN seal INTEGER",  # checksum of the row
    "CREATE UNIQUE INDEX executions_by_start_key ON executions (start_key) WHERE start_key IS NOT NULL",
    "CREATE INDEX executions_by_parent ON executions (parent) WHERE parent IS NOT NULL",
    "CREATE INDEX executions_by_age ON executions (created_at)",
    "CREATE INDEX executions_unended ON executions (created_at) WHERE ended_at IS NULL",
    """
    UPDATE executions SET origin = 'child', parent = first.parent
    FROM (
      SELECT place >> 32 AS key, json_extract(data, '$.parent') AS parent FROM events
      WHERE place & 4294967295 = 1 AND json_valid(data)
    ) AS first
    WHERE first.key = executions.key AND first.parent IS NOT NULL
    """,
    # Every row gets one, so that to have none is damage.
    """
    UPDATE executions SET seal = of_row(
      id, status, created_at, ended_at, last_sequence, error, size, wake_at, taken, durability,
      workflow_name, fingerprint, start_key, origin, parent, tags, note, notebook, cell
    )
    """,
    "ALTER TABLE messages ADD COLUMN checksum INTEGER",
    """
    UPDATE messages SET checksum = of_row(executions.id, kind, name, payload, source, posted_at)
    FROM executions WHERE executions.key = messages.key
    """,
    "DELETE FROM checkpoints",  # a cache
    """
    CREATE TABLE questions (
      key INTEGER NOT NULL,  -- executions.key
      id  TEXT NOT NULL,
      PRIMARY KEY (id, key)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX questions_by_execution ON questions (key)",
    """
    INSERT INTO questions (key, id)
    SELECT place >> 32, json_extract(data, '$.interrupt_id') AS asked FROM events JOIN event_types ON number = type
    WHERE name IN ('interrupt_raised', 'interrupt_resolved', 'interrupt_expired') AND json_valid(data) AND asked > ''
    GROUP BY place >> 32, asked HAVING sum(name <> 'interrupt_raised') = 0
    """,
)

# Indexes for the queries of lists, the inbox and recovery, whose work does not grow with the number of executions
# (tests/store/test_plans.py). `untaken` of a message and `is_over` of a question repeat facts of the execution's row,
# so that queries skip irrelevant messages and questions.
_FIFTH: Migration = (
    "DROP INDEX executions_unended",
    "DROP INDEX executions_by_parent",
    "CREATE INDEX executions_by_status ON executions (status, created_at)",
    "CREATE INDEX executions_by_workflow ON executions (workflow_name, created_at)",
    "CREATE INDEX executions_by_workflow_status ON executions (workflow_name, status, created_at)",
    "CREATE INDEX executions_by_origin ON executions (origin, created_at)",
    "CREATE INDEX executions_by_parent ON executions (parent, created_at) WHERE parent IS NOT NULL",
    "CREATE INDEX executions_by_notebook ON executions (notebook, created_at) WHERE notebook IS NOT NULL",
    "CREATE INDEX executions_by_cell ON executions (cell, created_at) WHERE cell IS NOT NULL",
    "CREATE INDEX executions_to_wake ON executions (wake_at) WHERE wake_at IS NOT NULL",
    """
    CREATE TABLE tags (
      tag   TEXT NOT NULL,
      began INTEGER NOT NULL,  -- executions.created_at
      key   INTEGER NOT NULL,  -- executions.key
      PRIMARY KEY (tag, began, key)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX tags_by_execution ON tags (key)",
    """
    INSERT OR IGNORE INTO tags (tag, began, key)
    SELECT each.value, created_at, executions.key FROM executions, json_each(tags) AS each WHERE json_valid(tags)
    """,
    # 1 as long as its execution has not taken it, nor ended.
    "ALTER TABLE messages ADD COLUMN untaken INTEGER NOT NULL DEFAULT 0",
    """
    UPDATE messages SET untaken = 1 FROM executions
    WHERE executions.key = messages.key AND number > taken AND ended_at IS NULL
    """,
    "CREATE INDEX messages_untaken ON messages (key) WHERE untaken",
    "CREATE INDEX messages_by_name ON messages (name, kind)",
    # 1 while its execution has ended: it may be resumed, and the question is open then.
    "ALTER TABLE questions ADD COLUMN is_over INTEGER NOT NULL DEFAULT 0",
    "UPDATE questions SET is_over = 1 FROM executions WHERE executions.key = questions.key AND ended_at IS NOT NULL",
    "CREATE INDEX questions_open ON questions (id, key) WHERE NOT is_over",
)

# Rows that stand for several events (`divebook.stores.encoding`). An older divebook cannot read them, and must not
# continue with the file. Existing rows do not change.
_SIXTH: Migration = (
    "DROP VIEW log",
    # An event a row, for people with an SQL shell. What stands in the data for a value of another event of the same row
    # ({"$type":"same","value":[0,"result"]}) stays, as references to large values do.
    """
    CREATE VIEW log AS
    SELECT executions.id AS execution_id, (events.place & 4294967295) + fact.key AS sequence, events.recorded_at,
      fact.value AS event_type, events.path,
      CASE WHEN instr(event_types.name, '+') AND substr(fact.value, 1, 5) = 'path_' AND fact.value <> 'path_branched'
        THEN '' ELSE events.step END AS step,
      CASE WHEN instr(event_types.name, '+') AND events.data LIKE '[%'
        THEN json_extract(events.data, '$[' || fact.key || ']') ELSE events.data END AS data
    FROM executions
    JOIN events ON events.place BETWEEN executions.key << 32 AND executions.key << 32 | 4294967295
    JOIN event_types ON event_types.number = events.type
    JOIN json_each('["' || replace(event_types.name, '+', '","') || '"]') AS fact
    """,
)

# Compressed data (`divebook.stores.encoding`), as bytes in place of text. An older divebook would report them as
# damaged. Existing rows and the tables do not change.
_SEVENTH: Migration = ()

# Summaries for lists: cached folds of logs (`divebook.stores.backend`).
_EIGHTH: Migration = (
    """
    CREATE TABLE summaries (
      key      INTEGER PRIMARY KEY,  -- executions.key
      sequence INTEGER NOT NULL,     -- of the last event in the fold
      checksum INTEGER NOT NULL,     -- of data
      data     BLOB NOT NULL
    )
    """,
)

# Forks, which share the first events of another execution, and have no rows for these.
_NINTH: Migration = (
    "ALTER TABLE executions ADD COLUMN opened INTEGER NOT NULL DEFAULT 1",  # number of its newest opening
    "ALTER TABLE executions ADD COLUMN source_key INTEGER",  # executions.key of the one whose first events it shares
    "ALTER TABLE executions ADD COLUMN forked_at INTEGER",  # number of the last of them
    "CREATE INDEX executions_by_source ON executions (source_key, forked_at) WHERE source_key IS NOT NULL",
    "DROP VIEW log",
    """
    CREATE VIEW log AS
    WITH RECURSIVE parts (id, key, upto) AS (
      SELECT id, key, 4294967295 FROM executions
      UNION ALL
      SELECT parts.id, above.source_key, min(above.forked_at, upto) FROM parts
      JOIN executions AS above ON above.key = parts.key WHERE above.source_key IS NOT NULL
    )
    SELECT parts.id AS execution_id, (events.place & 4294967295) + fact.key AS sequence, events.recorded_at,
      fact.value AS event_type, events.path,
      CASE WHEN instr(event_types.name, '+') AND substr(fact.value, 1, 5) = 'path_' AND fact.value <> 'path_branched'
        THEN '' ELSE events.step END AS step,
      CASE WHEN instr(event_types.name, '+') AND events.data LIKE '[%'
        THEN json_extract(events.data, '$[' || fact.key || ']') ELSE events.data END AS data
    FROM parts
    JOIN events ON events.place BETWEEN parts.key << 32 AND parts.key << 32 | upto
    JOIN event_types ON event_types.number = events.type
    JOIN json_each('["' || replace(event_types.name, '+', '","') || '"]') AS fact
    """,
)

# Queued executions, and the records of workers.
_TENTH: Migration = (
    """
    CREATE TABLE queued (
      key      INTEGER PRIMARY KEY,  -- executions.key
      queue    TEXT NOT NULL,
      priority INTEGER NOT NULL,
      withheld INTEGER NOT NULL      -- 1 while workers leave it alone: a person has paused it, or it has ended
    )
    """,
    "CREATE INDEX queued_by_queue ON queued (queue, priority DESC, key) WHERE NOT withheld",
    """
    CREATE TABLE workers (
      id         TEXT PRIMARY KEY,
      expires_at INTEGER NOT NULL,
      data       TEXT NOT NULL  -- JSON
    ) WITHOUT ROWID
    """,
)

# Moments up to which the due times of schedules have been handled.
_ELEVENTH: Migration = ("CREATE TABLE schedules (id TEXT PRIMARY KEY, seen INTEGER NOT NULL) WITHOUT ROWID",)

# Several checkpoints of an execution, so that a fork in the middle of a log finds one before it.
_TWELFTH: Migration = (
    "ALTER TABLE checkpoints RENAME TO newest_checkpoints",
    """
    CREATE TABLE checkpoints (
      key      INTEGER NOT NULL,  -- executions.key
      sequence INTEGER NOT NULL,  -- of the last event in the fold
      checksum INTEGER NOT NULL,  -- of data and of the log up to there
      data     BLOB NOT NULL,
      PRIMARY KEY (key, sequence)
    ) WITHOUT ROWID
    """,
    "INSERT INTO checkpoints SELECT key, sequence, checksum, data FROM newest_checkpoints",
    "DROP TABLE newest_checkpoints",
)

# A read-only snapshot had the status "picture". The checksum of a row covers its status, so it is computed again, but
# only if it is correct: a damaged row stays damaged. Checksums of events cover their types, so that the events keep the
# former type, and readers translate it (`divebook.events.upcast`).
_SEALED = """
  created_at, ended_at, last_sequence, error, size, wake_at, taken, durability, workflow_name, fingerprint, start_key,
  origin, parent, tags, note, notebook, cell
"""


def _seal(status: str) -> str:
    """Return the SQL expression for the checksum of an execution's row, with a status in the place of its own."""
    columns = f"id, '{status}', {_SEALED}"
    return f"CASE opened WHEN 1 THEN of_row({columns}) ELSE of_row({columns}, opened) END"


_THIRTEENTH: Migration = (
    f"""
    UPDATE executions SET status = 'snapshot', seal = {_seal("snapshot")}
    WHERE status = 'picture' AND seal = {_seal("picture")}
    """,  # noqa: S608 - our own text
)

MIGRATIONS: tuple[Migration, ...] = (
    *(_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH, _SIXTH),
    *(_SEVENTH, _EIGHTH, _NINTH, _TENTH, _ELEVENTH, _TWELFTH, _THIRTEENTH),
)


def place_of(key: int, sequence: int) -> int:
    """Return the primary key of a record in the table of events. It consists of the key of the record's execution and
    the number of the record's first event.
    """
    return key << 32 | sequence


def places_of(key: int) -> tuple[int, int]:
    """Return the lowest and the highest primary key that events of an execution can have in the table of events."""
    return place_of(key, 0), place_of(key, 0xFFFF_FFFF)


def check_version(connection: sqlite3.Connection, location: str, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Check that a file is a store, and not of a newer version than this one. Return the number of the last migration
    in it.
    """
    # In one snapshot: another process may be creating it (test_a_store_that_is_being_made_is_no_foreign_database).
    with snapshot(connection):
        return _read_version(connection, location, migrations)


def _read_version(connection: sqlite3.Connection, location: str, migrations: Sequence[Migration]) -> int:
    version = _pragma(connection, "user_version")
    mark = _pragma(connection, "application_id")
    # A file without mark, version and tables is empty, and becomes a store.
    if mark != APPLICATION_ID and (version or mark or _table_names(connection)):
        raise CorruptStoreError(
            f"{location} is a database of another program (tables: {', '.join(_table_names(connection)) or 'none'}), "
            "not a divebook store. Choose another path"
        )
    if version > len(migrations):
        raise NewerStoreError(
            f"{location} was written by a newer version of divebook: it has format {version}, but this version "
            "supports formats up to "
            f"{len(migrations)}. Upgrade divebook to open it"
        )
    return version


def check_format(cursor: sqlite3.Cursor, location: str) -> None:
    """Raise NewerStoreError if a newer divebook has migrated the store file since it was opened. Call this in a
    transaction.
    """
    version = int(cursor.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise NewerStoreError(
            f"a newer version of divebook has upgraded {location} to format {version} while this process had it "
            f"open, but this version supports formats up to {len(MIGRATIONS)}: nothing more is written. End this "
            "process, upgrade divebook, and resume the executions that have not ended"
        )


def check_current(connection: sqlite3.Connection, location: str) -> None:
    """Raise ReadOnlyStoreError if a read-only store file has an older format than this version, since it cannot be
    migrated.
    """
    version = check_version(connection, location)
    if version < len(MIGRATIONS):
        raise ReadOnlyStoreError(
            f"{location} has the older format {version} and is read-only, so it cannot be upgraded to format "
            f"{len(MIGRATIONS)}; open it once with write access"
        )


def migrate(connection: sqlite3.Connection, location: str, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Run the migrations that a store file lacks, in one transaction."""
    if check_version(connection, location, migrations) == len(migrations):
        return
    connection.create_function("of_row", -1, lambda *columns: of_row(columns), deterministic=True)
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read again: another process may have migrated while this one waited for the lock.
        for number in range(_read_version(connection, location, migrations), len(migrations)):
            for statement in migrations[number]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number + 1}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _table_names(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]


class EventTypes:
    """Cache of numbers: a store file has a number in place of the name of a record type, such as ``step_started``.

    A newer version, or another process, may have added types.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._lock = threading.Lock()
        self.names: dict[int, str] = {}
        self.numbers: dict[str, int] = {}
        self._is_stale = False

    def load(self, connection: sqlite3.Connection | sqlite3.Cursor) -> None:
        """Read the numbers and names of all record types from the file into the cache."""
        rows = connection.execute(DIALECT.text(LOAD_TYPES)).fetchall()
        with self._lock:
            self.names = dict(typed("event type", row, (int, str)) for row in rows)
            self.numbers = {name: number for number, name in rows}

    def register(self, connection: sqlite3.Connection) -> None:
        """Give each event type of this version of divebook a number in the store file, if it has none there yet."""
        self.load(connection)
        missing = [(name,) for name in PAYLOADS if name not in self.numbers]
        if missing:
            # IGNORE is necessary, since another process may add the same names at the same time.
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT OR IGNORE INTO event_types (name) VALUES (?)", missing)
            connection.execute("COMMIT")
            self.load(connection)

    def add(self, cursor: sqlite3.Cursor, name: str) -> int:
        """Add a record type to the store file and return the number by which the file refers to it."""
        # The number is not cached, since the caller's transaction may be rolled back. `refresh` loads it later
        # (test_a_batch_that_is_undone_leaves_no_type).
        self._is_stale = True
        cursor.execute("INSERT OR IGNORE INTO event_types (name) VALUES (?)", (name,))
        number: int = cursor.execute("SELECT number FROM event_types WHERE name = ?", (name,)).fetchone()[0]
        return number

    def refresh(self, connection: sqlite3.Cursor) -> None:
        """Load the cache of record types and their numbers from the store file again, if `add` has added a type that is
        not cached yet. Call this at the beginning of a transaction.
        """
        if self._is_stale:
            self._is_stale = False
            self.load(connection)

    def name(self, number: int, connection: sqlite3.Connection | sqlite3.Cursor) -> str:
        """Return the name of the record type that has a number in the file. If the number is not cached, the file is
        read again.

        Raises
        ------
        CorruptStoreError
            The number has no name.
        """
        name = self.names.get(number)
        if name is None:
            self.load(connection)
            name = self.names.get(number)
        if name is None:
            raise CorruptStoreError(f"{self._location} contains a record with the unknown type number {number}")
        return name
