"""Tables and functions of a store in Postgres, as a list of numbered migrations.

The schema has the number of its last migration in the table `format`. A released migration never changes. To change the
tables, add an entry at the end of `MIGRATIONS`. One process migrates at a time, under a lock of the whole database, in
one transaction.

Strings contain no NUL, which Postgres refuses (`divebook.stores.postgres.connections`). All names are qualified with
the schema, since a pool such as PgBouncer would lose a ``search_path`` of the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from divebook.errors import CorruptStoreError, NewerStoreError

if TYPE_CHECKING:
    import psycopg


# --- functions of the server ---
# Each does in one call, and so in one round trip, a commit, a message or the read of a log. The server's session caches
# their plans. Prepared statements would do that as well, but a pool such as PgBouncer loses them.


PATIENCE: Final = """set_config('lock_timeout', '2s', true)"""
"""SQL expression that limits the wait for a locked row, such as one that a person has locked in an SQL shell.

Other writes of this process wait for so long as well. After that, the blocked executions report the reason, and try
again (test_who_locks_a_row_holds_executions_up_and_these_say_so).
"""
BLOB_USES_LOCK: Final = 0x64697666
"""Key of the advisory lock on uses of large values: shared by commits, exclusive for deleting unused values."""

# A batch is written if its execution's row has the checksums and the token that the writer has cached. Otherwise the
# item of the batch in the answer is 0, and the writer reads the log again. The rows of all records are inserted at the
# end, together. A fork locks the row of its source (FOR KEY SHARE) against a deletion before the commit.
#
# With `last_message`, a batch is not written if its execution has a later message. A sender holds FOR KEY SHARE on the
# row until its message is committed. FOR UPDATE waits for that, and the query after it sees the message. A sender that
# comes later waits for this transaction, and then reads the new status (`POST`).
COMMIT: Final = f"""
CREATE OR REPLACE FUNCTION divebook.commit_batches(
  _heads json, _relaxed boolean, _now bigint,
  _batches integer[], _sequences bigint[], _times bigint[], _types integer[], _ids bytea[], _paths text[],
  _steps text[], _data bytea[], _checksums bigint[],
  _users integer[], _digests bytea[], _compressed boolean[], _contents bytea[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  head record;
  entered bigint;
  has_unread boolean;
  keys bigint[] := '{{}}';
  skew bigint := 0;
BEGIN
  PERFORM {PATIENCE};
  IF _relaxed THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
  IF cardinality(_digests) > 0 THEN
    PERFORM pg_advisory_xact_lock_shared({BLOB_USES_LOCK});
  END IF;
  FOR head IN SELECT * FROM json_to_recordset(_heads) AS given(
    key bigint, known_seal bigint, known_token bigint, before bigint,
    id text, status text, created_at bigint, ended_at bigint, last_sequence bigint, error text, size bigint,
    wake_at bigint, taken bigint, durability text, workflow_name text, fingerprint text, start_key text, origin text,
    parent text, tags jsonb, note text, notebook text, cell text, opened bigint, seal bigint, checksum bigint,
    token bigint, source_key bigint, forked_at bigint, source_place bigint,
    host text, pid bigint, started bigint, owner text, boot text, expires_at bigint,
    is_over boolean, asked json, settled json, queue text, priority bigint, withheld boolean, last_message bigint
  ) LOOP
    entered := NULL;
    has_unread := false;
    IF head.last_message IS NOT NULL THEN
      PERFORM FROM divebook.executions WHERE key = head.key FOR UPDATE;
      has_unread := EXISTS (SELECT FROM divebook.messages WHERE key = head.key AND number > head.last_message);
    END IF;
    IF head.key IS NOT NULL THEN
      UPDATE divebook.executions SET
        status = head.status, ended_at = head.ended_at, last_sequence = head.last_sequence, error = head.error,
        size = head.size, wake_at = head.wake_at, taken = head.taken, tags = head.tags, note = head.note,
        seal = head.seal, checksum = head.checksum
      WHERE key = head.key AND seal = head.known_seal AND token = head.known_token AND checksum = head.before
        AND NOT has_unread
      RETURNING key INTO entered;
    ELSE
      IF head.source_key IS NOT NULL THEN
        PERFORM FROM divebook.executions WHERE key = head.source_key FOR KEY SHARE;
        PERFORM FROM divebook.events WHERE place = head.source_place AND checksum = head.before;
      END IF;
      IF head.source_key IS NULL OR FOUND THEN
        INSERT INTO divebook.executions (
          id, status, created_at, ended_at, last_sequence, error, size, wake_at, taken, durability, workflow_name,
          fingerprint, start_key, origin, parent, tags, note, notebook, cell, opened, seal, checksum, token, source_key,
          forked_at
        ) VALUES (
          head.id, head.status, head.created_at, head.ended_at, head.last_sequence, head.error, head.size, head.wake_at,
          head.taken, head.durability, head.workflow_name, head.fingerprint, head.start_key, head.origin, head.parent,
          head.tags, head.note, head.notebook, head.cell, head.opened, head.seal, head.checksum, head.token,
          head.source_key, head.forked_at
        ) ON CONFLICT DO NOTHING RETURNING key INTO entered;
      END IF;
      IF entered IS NOT NULL AND head.host IS NOT NULL THEN
        -- Leases end by the server's clock. Two clocks that agree to two seconds are the same.
        skew := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - _now;
        IF abs(skew) < 2000000 THEN
          skew := 0;
        END IF;
        INSERT INTO divebook.leases
        VALUES (entered, head.host, head.pid, head.started, head.owner, head.boot, head.expires_at + skew);
      END IF;
    END IF;
    keys := keys || coalesce(entered, 0);
    IF entered IS NOT NULL THEN
      IF head.is_over THEN
        DELETE FROM divebook.leases WHERE key = entered;
      END IF;
      IF head.asked IS NOT NULL THEN
        INSERT INTO divebook.questions SELECT entered, json_array_elements_text(head.asked) ON CONFLICT DO NOTHING;
      END IF;
      IF head.settled IS NOT NULL THEN
        DELETE FROM divebook.questions
        WHERE key = entered AND id IN (SELECT json_array_elements_text(head.settled));
      END IF;
      IF head.queue IS NOT NULL THEN
        INSERT INTO divebook.queued VALUES (entered, head.queue, head.priority, coalesce(head.withheld, false))
        ON CONFLICT (key) DO UPDATE
        SET queue = excluded.queue, priority = excluded.priority, withheld = excluded.withheld;
        PERFORM pg_notify('divebook', '');
      ELSIF head.withheld IS NOT NULL THEN
        UPDATE divebook.queued SET withheld = head.withheld WHERE key = entered;
      END IF;
      IF head.key IS NOT NULL THEN
        PERFORM FROM divebook.followers WHERE key = entered AND until > clock_timestamp();
        IF FOUND THEN
          PERFORM pg_notify('divebook', entered::text);
        END IF;
      END IF;
    END IF;
  END LOOP;
  INSERT INTO divebook.events (place, recorded_at, type, id, path, step, data, checksum)
  SELECT keys[batch] << 32 | sequence, recorded_at, type, id, path, step, data, checksum
  FROM unnest(_batches, _sequences, _times, _types, _ids, _paths, _steps, _data, _checksums)
    AS given(batch, sequence, recorded_at, type, id, path, step, data, checksum)
  WHERE keys[batch] <> 0;
  IF cardinality(_digests) > 0 THEN
    INSERT INTO divebook.blobs (digest, compressed, data)
    SELECT DISTINCT ON (digest) digest, compressed, data
    FROM unnest(_users, _digests, _compressed, _contents) AS given(batch, digest, compressed, data)
    WHERE keys[batch] <> 0 ORDER BY digest
    ON CONFLICT (digest) DO NOTHING;
    INSERT INTO divebook.blob_uses (key, digest)
    SELECT keys[batch], digest FROM unnest(_users, _digests) AS given(batch, digest) WHERE keys[batch] <> 0
    ON CONFLICT DO NOTHING;
  END IF;
  RETURN keys;
END
$$
"""  # noqa: S608 - our own text

# The same for batches that only extend logs, without an end, question, queue or large value, as nearly all do. One
# statement without JSON takes two thirds of the time (``python -m benchmarks.servers``).
CARRY_ON: Final = f"""
CREATE FUNCTION divebook.commit_batches_carrying_on(
  _relaxed boolean, _keys bigint[], _known_seals bigint[], _known_tokens bigint[], _befores bigint[],
  _statuses text[], _lasts bigint[], _sizes bigint[], _taken bigint[], _seals bigint[], _afters bigint[],
  _batches integer[], _sequences bigint[], _times bigint[], _types integer[], _ids bytea[], _paths text[],
  _steps text[], _data bytea[], _checksums bigint[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  entered bigint[];
BEGIN
  PERFORM {PATIENCE};
  IF _relaxed THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
  WITH carried_on AS (
    UPDATE divebook.executions AS own SET
      status = given.status, last_sequence = given.last, size = given.size, wake_at = NULL, taken = given.taken,
      seal = given.seal, checksum = given.after
    FROM unnest(
      _keys, _known_seals, _known_tokens, _befores, _statuses, _lasts, _sizes, _taken, _seals, _afters
    ) AS given(key, known_seal, known_token, before, status, last, size, taken, seal, after)
    WHERE own.key = given.key AND own.seal = given.known_seal AND own.token = given.known_token
      AND own.checksum = given.before
    RETURNING own.key AS key
  ), written AS (
    INSERT INTO divebook.events (place, recorded_at, type, id, path, step, data, checksum)
    SELECT key << 32 | sequence, recorded_at, type, id, path, step, data, checksum
    FROM unnest(_batches, _sequences, _times, _types, _ids, _paths, _steps, _data, _checksums)
      AS given(batch, sequence, recorded_at, type, id, path, step, data, checksum)
    JOIN carried_on ON key = _keys[batch]
  ), told AS (
    SELECT pg_notify('divebook', key::text) FROM carried_on
    WHERE EXISTS (SELECT FROM divebook.followers WHERE followers.key = carried_on.key AND until > clock_timestamp())
  )
  SELECT array_agg(key), (SELECT count(*) FROM told) INTO entered FROM carried_on;
  RETURN entered;
END
$$
"""  # noqa: S608 - our own text

# The number of a message comes from one row, which the sender locks until the commit. With a sequence, a later number
# could be visible before an earlier one, and a reader that has seen it would miss the earlier message.
#
# The answer is NULL for an unknown execution, and 0 for one that can never continue (`engine.lifecycle.FINAL`).
POST: Final = f"""
CREATE OR REPLACE FUNCTION divebook.post_message(
  _id text, _place bytea, _kind text, _name text, _payload bytea, _source text, _posted_at bigint, _checksum bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  found_key bigint;
  found_status text;
  found_number bigint;
BEGIN
  PERFORM {PATIENCE};
  SELECT key, status INTO found_key, found_status FROM divebook.executions WHERE id = _id FOR KEY SHARE;
  IF found_key IS NULL THEN
    RETURN NULL;
  END IF;
  SELECT number INTO found_number FROM divebook.messages WHERE key = found_key AND place = _place;
  IF found_number IS NULL AND found_status IN ('completed', 'moved', 'continued_as_new', 'snapshot') THEN
    RETURN 0;
  END IF;
  IF found_number IS NULL THEN
    UPDATE divebook.last_message SET number = number + 1;
    INSERT INTO divebook.messages
    SELECT number, found_key, _place, _kind, _name, _payload, _source, _posted_at, _checksum FROM divebook.last_message
    ON CONFLICT (key, place) DO NOTHING RETURNING number INTO found_number;
    PERFORM pg_notify('divebook', '');
    IF found_number IS NULL THEN
      SELECT number INTO found_number FROM divebook.messages WHERE key = found_key AND place = _place;
    END IF;
  END IF;
  RETURN found_number;
END
$$
"""  # noqa: S608 - our own text

# STABLE: all of it reads one snapshot. The first row describes the log: number of events, checksum, key, and the first
# event that the log does not share. The records with the requested events follow, and one or two before them.
#
# A log has one part for each execution in whose rows it lies. If C is a fork of B at event 7, and B a fork of A at
# event 4, the log of C is read with owners = [A, B, C], befores = [0, 4, 7] and uptos = [4, 7, 2**32 - 1].
READ: Final = """
CREATE FUNCTION divebook.read_log(_id text, _after bigint, _upto bigint) RETURNS TABLE (
  owner bigint, sequence bigint, recorded_at bigint, type integer, id bytea, path text, step text, data bytea,
  checksum bigint
) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
  head record;
  owners bigint[];
  befores bigint[];
  uptos bigint[];
  nearest bigint;
BEGIN
  SELECT key, last_sequence, executions.checksum, source_key, forked_at INTO head
  FROM divebook.executions WHERE executions.id = _id;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  owners := ARRAY[head.key];
  befores := ARRAY[coalesce(head.forked_at, 0)];
  uptos := ARRAY[4294967295];
  IF head.source_key IS NOT NULL THEN
    WITH RECURSIVE sources (key, upto, depth) AS (
      SELECT head.source_key, head.forked_at, 1
      UNION ALL
      SELECT above.source_key, above.forked_at, depth + 1
      FROM sources JOIN divebook.executions AS above ON above.key = sources.key
      WHERE above.source_key IS NOT NULL AND above.forked_at < upto
    ), parts AS (
      SELECT key, coalesce(lag(upto) OVER (ORDER BY depth DESC), 0) AS before, upto, depth FROM sources
    )
    SELECT array_agg(key ORDER BY depth DESC) || owners, array_agg(before ORDER BY depth DESC) || befores,
      array_agg(upto ORDER BY depth DESC) || uptos
    INTO owners, befores, uptos FROM parts;
  END IF;
  RETURN QUERY SELECT head.key, 0::bigint, head.last_sequence, NULL::integer, NULL::bytea, NULL::text, NULL::text,
    NULL::bytea, head.checksum;
  IF _after > 0 THEN
    SELECT min(sequence) INTO nearest FROM (
      SELECT place & 4294967295 AS sequence FROM unnest(owners, befores, uptos) AS part(key, before, upto)
      CROSS JOIN LATERAL (
        SELECT place FROM divebook.events
        WHERE place > (part.key << 32 | before) AND place <= (part.key << 32 | least(upto, _after + 1))
        ORDER BY place DESC LIMIT 2
      ) AS latest ORDER BY sequence DESC LIMIT 2
    ) AS around;
  END IF;
  FOR part IN 1..cardinality(owners) LOOP
    RETURN QUERY SELECT owners[part], place & 4294967295, events.recorded_at, events.type, events.id, events.path,
      events.step, events.data, events.checksum
    FROM divebook.events
    WHERE place > (owners[part] << 32 | greatest(befores[part], coalesce(nearest, 1) - 1))
      AND place <= (owners[part] << 32 | least(uptos[part], _upto))
    ORDER BY place;
  END LOOP;
END
$$
"""


Migration: TypeAlias = tuple[str, ...]
DataMigration: TypeAlias = "Callable[[psycopg.Connection[Any], str], None]"
"""Function that changes rows of a schema in a way that SQL cannot express, as a part of a migration."""

SCHEMA = "divebook"
"""Name of the schema in the statements of this package. A store in another schema replaces the name (`named`)."""
_LOCK = 0x64697665
"""Key of the advisory lock that a process holds while it migrates."""

_FIRST: Migration = (
    # The exclusion with a hash index makes start keys unique like UNIQUE, whose index refuses long texts.
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

# Queued executions, and the records of workers. The function is created again.
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

# A faster function for most commits. No commit waits for ever for a row that another session has locked.
_THIRD: Migration = (COMMIT, CARRY_ON, POST)

# Moments up to which the due times of schedules have been handled.
_FOURTH: Migration = ("CREATE TABLE divebook.schedules (id text PRIMARY KEY, seen bigint NOT NULL)",)

# A batch may require that its writer has read all messages. Executions that can never continue get no messages.
_FIFTH: Migration = (COMMIT, POST)

# Several checkpoints of an execution, so that a fork in the middle of a log finds one before it.
_SIXTH: Migration = (
    "ALTER TABLE divebook.checkpoints DROP CONSTRAINT checkpoints_pkey",
    "ALTER TABLE divebook.checkpoints ADD PRIMARY KEY (key, sequence)",
)

# The status "picture" of a read-only snapshot is called "snapshot". `divebook.stores.postgres.logs.rename_snapshots`
# changes the rows, since SQL cannot compute their checksums.
_SEVENTH: Migration = (POST,)

MIGRATIONS: tuple[Migration, ...] = (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH, _SIXTH, _SEVENTH)

TABLES = ("leases", "blob_uses", "checkpoints", "summaries", "messages", "questions", "followers", "queued")
"""Tables with rows that belong to an execution, except the table of events."""


PRESENT_FORMAT = "SELECT number FROM divebook.format"
IN_KNOWN_FORMAT = f"FROM divebook.format WHERE number <= {len(MIGRATIONS)}"
"""End of a writing statement, which then has no effect and returns no row once a newer divebook has migrated the
tables."""
KNOWN_FORMAT = f"EXISTS (SELECT {IN_KNOWN_FORMAT})"
"""Condition of a writing statement, with the same purpose as `IN_KNOWN_FORMAT`."""


def raised_format(location: str, version: int) -> NewerStoreError:
    """Return the error for a store whose tables a newer divebook has migrated while this process had it open."""
    return NewerStoreError(
        f"a newer version of divebook has upgraded {location} to format {version} while this process had it open, "
        f"but this version supports formats up to {len(MIGRATIONS)}: nothing more is written. End this process, "
        "upgrade divebook, and resume the executions that have not ended"
    )


def named(statement: str, schema: str) -> str:
    """Return an SQL statement in which the given schema takes the place of the default schema ``divebook``."""
    # All statements name the schema in front of each table and function.
    return statement if schema == SCHEMA else statement.replace("divebook.", f'"{schema}".')


def may_write(connection: psycopg.Connection[Any]) -> bool:
    """Return True if this connection may write: the server is not a standby of another one, and is not set to
    read-only.
    """
    return connection.execute("SHOW transaction_read_only").fetchall() == [("off",)]


def migrate(
    connection: psycopg.Connection[Any], schema: str, location: str, data_migrations: Mapping[int, DataMigration]
) -> None:
    """Run the migrations that a schema lacks, in one transaction. Raise NewerStoreError if a newer version has migrated
    it.

    `data_migrations` has a function for each migration that changes rows, by its number. It is called after the
    statements of the migration.

    Raises
    ------
    CorruptStoreError
        The schema contains tables of another program.
    """
    if _version(connection, schema, location) == len(MIGRATIONS):
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        # Read again: another process may have migrated while this one waited for the lock.
        present = _version(connection, schema, location)
        if not present:
            _make_schema(connection, schema)
            # `_version` recognizes a store by this table, which is created in the same transaction as all others.
            connection.execute(named("CREATE TABLE divebook.format (number integer NOT NULL)", schema))
            connection.execute(named("INSERT INTO divebook.format VALUES (0)", schema))
        for number, migration in enumerate(MIGRATIONS[present:], present + 1):
            for statement in migration:
                connection.execute(named(statement, schema).encode())
            if number in data_migrations:
                data_migrations[number](connection, schema)
        connection.execute(named("UPDATE divebook.format SET number = %s", schema), (len(MIGRATIONS),))


def _make_schema(connection: psycopg.Connection[Any], schema: str) -> None:
    """Create a schema if it does not exist. If it exists, no right to create schemas is needed: an administrator may
    have created it.
    """
    if not connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", (schema,)).fetchall():
        connection.execute(f'CREATE SCHEMA "{schema}"'.encode())


def _version(connection: psycopg.Connection[Any], schema: str, location: str) -> int:
    """Return the number of the last migration of a schema; 0 if it contains no store."""
    tables = connection.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY 1", (schema,)
    ).fetchall()
    names = [name for (name,) in tables]
    # A schema without tables becomes a store; one with other tables belongs to another program.
    if "format" not in names:
        if names:
            raise CorruptStoreError(
                f"the schema {schema!r} of {location} belongs to another program (tables: {', '.join(names)}). "
                "Choose another schema: ...?schema=NAME"
            )
        return 0
    (version,) = connection.execute(named("SELECT number FROM divebook.format", schema)).fetchone() or (0,)
    if version > len(MIGRATIONS):
        raise NewerStoreError(
            f"{location} was written by a newer version of divebook: it has format {version}, but this version "
            "supports formats up to "
            f"{len(MIGRATIONS)}. Upgrade divebook to open it"
        )
    return int(version)
