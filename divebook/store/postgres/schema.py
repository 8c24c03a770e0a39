"""The tables of a store in Postgres, as a list of numbered migrations.

The schema carries the number of its last migration in the table `format`. A released migration never changes; a new
form is a new entry at the end of `MIGRATIONS`. One process migrates at a time, under a lock of the whole database, and
all or none of it is done.

Texts have no NUL, which Postgres refuses (`divebook.store.postgres.texts`). All names carry their schema: a
``search_path`` of the connection would be lost in a pool such as PgBouncer's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from divebook.errors import CorruptStoreError, NewerStoreError
from divebook.store.postgres.commits import CARRY_ON, COMMIT, POST, READ

if TYPE_CHECKING:
    import psycopg

Migration: TypeAlias = tuple[str, ...]

SCHEMA = "divebook"
"""The schema in the statements of this package; a store may have another one."""
_LOCK = 0x64697665
"""Key of the lock under which one process migrates."""

_FIRST: Migration = (
    """
    CREATE TABLE divebook.executions (
      key           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      id            text COLLATE "C" NOT NULL UNIQUE,
      status        text NOT NULL,
      created_at    bigint NOT NULL,  -- times are microseconds since 1970, UTC
      ended_at      bigint,
      last_sequence bigint NOT NULL,
      error         text,
      size          bigint NOT NULL,  -- bytes of payload
      wake_at       bigint,
      taken         bigint NOT NULL,  -- messages.number
      durability    text NOT NULL,
      workflow_name text NOT NULL,
      fingerprint   text,
      start_key     text,
      origin        text NOT NULL,
      parent        text,
      tags          jsonb NOT NULL,
      note          text,
      notebook      text,
      cell          text,
      opened        bigint NOT NULL,  -- number of its newest opening
      seal          bigint NOT NULL,  -- checksum of the columns so far
      checksum      bigint NOT NULL,  -- of the last record
      token         bigint NOT NULL,  -- grows with every lease
      source_key    bigint,           -- executions.key of the one whose first events it shares
      forked_at     bigint,           -- number of the last of them
      EXCLUDE USING hash (start_key WITH =)
    ) WITH (fillfactor = 70)
    """,  # every commit writes a row here anew: beside the old one, no index is touched
    "CREATE INDEX executions_by_age ON divebook.executions (created_at, key)",
    "CREATE INDEX executions_unended ON divebook.executions (created_at, key) WHERE ended_at IS NULL",
    "CREATE INDEX executions_ended ON divebook.executions (ended_at) WHERE ended_at IS NOT NULL",
    # Cut, since an index refuses long texts.
    "CREATE INDEX executions_by_workflow ON divebook.executions (left(workflow_name, 200), created_at, key)",
    """
    CREATE INDEX executions_by_parent ON divebook.executions (left(parent, 200), created_at, key)
    WHERE parent IS NOT NULL
    """,
    """
    CREATE INDEX executions_by_notebook ON divebook.executions (left(notebook, 200), created_at, key)
    WHERE notebook IS NOT NULL
    """,
    "CREATE INDEX executions_by_source ON divebook.executions (source_key, forked_at) WHERE source_key IS NOT NULL",
    "CREATE INDEX executions_by_tag ON divebook.executions USING gin (tags)",
    """
    CREATE TABLE divebook.event_types (
      number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      name   text NOT NULL UNIQUE
    )
    """,
    # data are bytes, as what is worth it is packed. jsonb would refuse some JSON, and give other text back.
    """
    CREATE TABLE divebook.events (
      place       bigint PRIMARY KEY,  -- executions.key << 32 | sequence
      recorded_at bigint NOT NULL,
      checksum    bigint NOT NULL,     -- of this and all records before it
      type        integer NOT NULL,    -- event_types.number
      id          bytea NOT NULL,      -- 16 bytes of the UUIDv7 in event_..., or FF and another id as text
      path        text NOT NULL,
      step        text NOT NULL,
      data        bytea NOT NULL
    )
    """,
    """
    CREATE TABLE divebook.leases (
      key            bigint PRIMARY KEY,  -- executions.key
      host           text NOT NULL,
      pid            bigint NOT NULL,
      started        bigint NOT NULL,
      name           text NOT NULL,
      boot           text NOT NULL,
      expires_at     bigint NOT NULL      -- by the server's clock
    )
    """,
    """
    CREATE TABLE divebook.blobs (
      digest     bytea PRIMARY KEY,  -- SHA-256 of the content
      compressed boolean NOT NULL,
      data       bytea NOT NULL
    )
    """,
    "ALTER TABLE divebook.blobs ALTER data SET STORAGE external",  # it is packed
    """
    CREATE TABLE divebook.blob_uses (
      key    bigint NOT NULL,  -- executions.key
      digest bytea NOT NULL,   -- blobs.digest
      PRIMARY KEY (key, digest)
    )
    """,
    "CREATE INDEX blob_uses_by_blob ON divebook.blob_uses (digest)",
    """
    CREATE TABLE divebook.checkpoints (
      key      bigint PRIMARY KEY,  -- executions.key
      sequence bigint NOT NULL,     -- of the last event in the fold
      checksum bigint NOT NULL,     -- of data and of the log up to there
      data     bytea NOT NULL
    )
    """,
    """
    CREATE TABLE divebook.summaries (
      key      bigint PRIMARY KEY,  -- executions.key
      sequence bigint NOT NULL,     -- of the last event in the fold
      checksum bigint NOT NULL,     -- of data
      data     bytea NOT NULL
    )
    """,
    """
    CREATE TABLE divebook.questions (
      key bigint NOT NULL,  -- executions.key
      id  text NOT NULL,
      PRIMARY KEY (key, id)
    )
    """,
    # Numbers of deleted messages are not given again.
    "CREATE TABLE divebook.last_message (number bigint NOT NULL)",
    "INSERT INTO divebook.last_message VALUES (0)",
    """
    CREATE TABLE divebook.messages (
      number    bigint PRIMARY KEY,
      key       bigint NOT NULL,  -- executions.key
      place     bytea NOT NULL,   -- SHA-256 of kind and name: an index refuses long texts
      kind      text NOT NULL,
      name      text NOT NULL,    -- of the question, or the signal's own
      payload   bytea NOT NULL,   -- JSON
      source    text NOT NULL,
      posted_at bigint NOT NULL,
      checksum  bigint NOT NULL,
      UNIQUE (key, place)
    )
    """,
    "CREATE INDEX messages_by_execution ON divebook.messages (key, number)",
    "CREATE INDEX messages_by_place ON divebook.messages (place, number)",
    # Logs that somebody follows in another process: only of these, appends are announced.
    """
    CREATE TABLE divebook.followers (
      key      bigint NOT NULL,  -- executions.key
      follower bytea NOT NULL,
      until    timestamptz NOT NULL,
      PRIMARY KEY (key, follower)
    )
    """,
    COMMIT,
    POST,
    READ,
    # For people with an SQL shell; what is packed they cannot read.
    """
    CREATE VIEW divebook.log AS
    WITH RECURSIVE parts (id, key, upto) AS (
      SELECT id, key, 4294967295 FROM divebook.executions
      UNION ALL
      SELECT parts.id, above.source_key, least(above.forked_at, upto) FROM parts
      JOIN divebook.executions AS above ON above.key = parts.key WHERE above.source_key IS NOT NULL
    )
    SELECT parts.id AS execution_id, events.place & 4294967295 AS sequence, to_timestamp(recorded_at / 1e6) AS at,
      event_types.name AS event_types, path, step,
      CASE WHEN get_byte(data, 0) IN (91, 123) THEN convert_from(data, 'UTF8') END AS data
    FROM parts
    JOIN divebook.events ON place BETWEEN parts.key << 32 AND parts.key << 32 | upto
    JOIN divebook.event_types ON number = type
    """,
)

# Executions that wait for a worker, and the workers that say they are there. The function is made anew.
_SECOND: Migration = (
    """
    CREATE TABLE divebook.queued (
      key      bigint PRIMARY KEY,  -- executions.key
      queue    text NOT NULL,
      priority bigint NOT NULL,
      withheld boolean NOT NULL     -- while workers leave it alone: a person has paused it, or it has ended
    )
    """,
    "CREATE INDEX queued_by_queue ON divebook.queued (left(queue, 200), priority DESC, key) WHERE NOT withheld",
    "CREATE TABLE divebook.workers (id text PRIMARY KEY, expires_at bigint NOT NULL, data text NOT NULL)",
    COMMIT,
)

# A shorter way for what most commits are; none of them waits for ever for a row that somebody else has locked.
_THIRD: Migration = (COMMIT, CARRY_ON, POST)

# Up to when the due times of schedules are seen to.
_FOURTH: Migration = ("CREATE TABLE divebook.schedules (id text PRIMARY KEY, seen bigint NOT NULL)",)

MIGRATIONS: tuple[Migration, ...] = (_FIRST, _SECOND, _THIRD, _FOURTH)

TABLES = ("leases", "blob_uses", "checkpoints", "summaries", "messages", "questions", "followers", "queued")
"""What belongs to executions, beside their events."""


PRESENT_FORMAT = "SELECT number FROM divebook.format"
IN_KNOWN_FORMAT = f"FROM divebook.format WHERE number <= {len(MIGRATIONS)}"
"""End of a statement that writes: it does nothing, and answers with no row, once a newer divebook raised the format."""


def raised_format(location: str, version: int) -> NewerStoreError:
    """Return the error for a store whose format a newer divebook raised while it was open here."""
    return NewerStoreError(
        f"a newer divebook has raised {location} to format {version} while it was open here, and this version knows up "
        f"to {len(MIGRATIONS)}: nothing more is written. End this process, upgrade divebook, and resume what had not "
        "ended"
    )


def named(statement: str, schema: str) -> str:
    """Return a statement with the names of its tables in a schema."""
    return statement if schema == SCHEMA else statement.replace("divebook.", f'"{schema}".')


def may_write(connection: psycopg.Connection[Any]) -> bool:
    """Return whether this user can write to this server: it is no standby, nor set to be read only."""
    return connection.execute("SHOW transaction_read_only").fetchall() == [("off",)]


def migrate(connection: psycopg.Connection[Any], schema: str, location: str) -> None:
    """Bring a schema up to the last migration, all or none of the way; NewerStoreError if it is beyond that.

    Raises
    ------
    CorruptStoreError
        The schema has tables, but not ours.
    """
    if _version(connection, schema, location) == len(MIGRATIONS):
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        # Asked again: another process may have migrated while this one waited for the lock.
        present = _version(connection, schema, location)
        if not present:
            _make_schema(connection, schema)
            connection.execute(named("CREATE TABLE divebook.format (number integer NOT NULL)", schema))
            connection.execute(named("INSERT INTO divebook.format VALUES (0)", schema))
        for migration in MIGRATIONS[present:]:
            for statement in migration:
                connection.execute(named(statement, schema).encode())
        connection.execute(named("UPDATE divebook.format SET number = %s", schema), (len(MIGRATIONS),))


def _make_schema(connection: psycopg.Connection[Any], schema: str) -> None:
    """Make a schema, unless an administrator has made it, for a user that may make none."""
    if not connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", (schema,)).fetchall():
        connection.execute(f'CREATE SCHEMA "{schema}"'.encode())


def _version(connection: psycopg.Connection[Any], schema: str, location: str) -> int:
    """Return the number of the last migration; 0 where there is no store yet."""
    tables = connection.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY 1", (schema,)
    ).fetchall()
    names = [name for (name,) in tables]
    if "format" not in names:
        if names:
            raise CorruptStoreError(
                f"the schema {schema!r} of {location} belongs to another program (tables: {', '.join(names)}). Choose "
                "another one: ...?schema=NAME"
            )
        return 0
    (version,) = connection.execute(named("SELECT number FROM divebook.format", schema)).fetchone() or (0,)
    if version > len(MIGRATIONS):
        raise NewerStoreError(
            f"{location} was written by a newer divebook: it has format {version}, this version knows up to "
            f"{len(MIGRATIONS)}. Upgrade divebook to open it"
        )
    return int(version)
