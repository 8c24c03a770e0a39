"""Deleting executions with everything that belongs to them, large values, checkpoints, and logs as they are stored."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any
from zlib import crc32

from divebook.engine.lifecycle import TERMINAL
from divebook.errors import CorruptStoreError, SealedError
from divebook.store.blobs import Fetch, Packed, reached, unpack
from divebook.store.checksums import of_row
from divebook.store.codec import Sealing
from divebook.store.execution_row import record_of
from divebook.store.large_values import StoredBlob
from divebook.store.leases import Moment
from divebook.store.postgres import leases, lists, messages
from divebook.store.postgres.commits import KEEPING
from divebook.store.postgres.connections import SendStatement
from divebook.store.postgres.reading import MOST
from divebook.store.postgres.rows import RECORD, TypeNumbers, line_of, load_line
from divebook.store.postgres.schema import TABLES
from divebook.store.postgres.texts import escaped, unescaped
from divebook.store.upkeep import StoredLog

_FIND = f"""
{leases.WITH_PATIENCE}
SELECT key, source_key, forked_at FROM divebook.executions, patience WHERE id = %s FOR UPDATE OF executions
"""  # noqa: S608 - our own text
_ENDED = "SELECT id FROM divebook.executions WHERE ended_at < %s"  # resuming clears it
_HEIRS = """
SELECT key, id, forked_at FROM divebook.executions WHERE source_key = %s ORDER BY forked_at DESC, key FOR UPDATE
"""
_MOVE = "UPDATE divebook.events SET place = place + %s WHERE place BETWEEN %s AND %s RETURNING length(data)"
_PAYLOADS = "SELECT data FROM divebook.events WHERE place BETWEEN %s AND %s"
_INHERIT = "UPDATE divebook.executions SET source_key = %s, forked_at = %s WHERE key = %s"
_FOLLOW = "UPDATE divebook.executions SET source_key = %s WHERE source_key = %s"
_GROW = "UPDATE divebook.executions SET size = %s, seal = %s WHERE key = %s"
_SHARE = "SELECT pg_advisory_xact_lock_shared(%s)"
_USED = "SELECT digest FROM divebook.blob_uses WHERE key = %s"
_TAKE_OVER = """
INSERT INTO divebook.blob_uses SELECT %s, digest FROM unnest(%s::bytea[]) AS digest ON CONFLICT DO NOTHING
RETURNING digest
"""
_BLOB = "SELECT compressed, data FROM divebook.blobs WHERE digest = %s"
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
_PUT = """
INSERT INTO divebook.checkpoints AS kept (key, sequence, checksum, data) VALUES (%s, %s, %s, %s)
ON CONFLICT (key) DO UPDATE SET sequence = excluded.sequence, checksum = excluded.checksum, data = excluded.data
WHERE excluded.sequence >= kept.sequence
"""
_CHECKPOINT = """
SELECT kept.sequence, kept.checksum, kept.data, (
  SELECT checksum FROM divebook.read_log(%s, kept.sequence - 1, kept.sequence) WHERE sequence > 0
  ORDER BY sequence DESC LIMIT 1
) FROM divebook.checkpoints AS kept JOIN divebook.executions USING (key) WHERE id = %s
"""
_CHAIN = """
SELECT owner, sequence, recorded_at, checksum FROM divebook.read_log(%s, %s, %s) ORDER BY sequence
"""
_STRAY_EVENTS = """
SELECT count(*) FROM divebook.events WHERE NOT EXISTS (SELECT FROM divebook.executions WHERE key = place >> 32)
"""
_STRAY = (
    "SELECT count(*) FROM divebook.{} AS part WHERE NOT EXISTS (SELECT FROM divebook.executions WHERE key = part.key)"
)


# --- deleting --------------------------------------------------------------------------------------------------------


def delete(ask: SendStatement, execution_id: str, sealing: Sealing) -> list[str]:
    """Delete an execution; return which rows of others are other ones then, with its own id: none if there is none.

    What forks share of it goes to the one that shares most, its heir, and the other forks refer to that one then.
    """
    rows = ask(_FIND, (escaped(execution_id),))
    if not rows:
        return []
    key, source, after = rows[0]
    ask(_SHARE, (KEEPING,))
    changed = [execution_id, *_hand_over(ask, key, source, after or 0, sealing)]
    ask("DELETE FROM divebook.events WHERE place BETWEEN %s AND %s", (key << 32, key << 32 | MOST))
    for table in ("executions", *TABLES):
        ask(f"DELETE FROM divebook.{table} WHERE key = %s", (key,))  # noqa: S608 - one of our own tables
    return changed


def _hand_over(ask: SendStatement, key: int, source: int | None, after: int, sealing: Sealing) -> list[str]:
    """Give what forks share of a log to its heir; return the id of that one."""
    forks = ask(_HEIRS, (key,))
    if not forks:
        return []
    heir, name, upto = forks[0]
    sizes = ask(_MOVE, ((heir - key) << 32, key << 32 | after + 1, key << 32 | upto))
    ask(_INHERIT, (source, after or None, heir))
    ask(_FOLLOW, (heir, key))
    used = _reached(ask, heir << 32, heir << 32 | upto, sealing)
    shared = [digest for (digest,) in ask(_USED, (key,)) if used is None or digest in used]
    taken = ask(_TAKE_OVER, (heir, shared)) if shared else []
    grown = sum(size for (size,) in sizes) + sum(len(_content(ask, digest) or b"") for (digest,) in taken)
    with suppress(CorruptStoreError):  # a row that is damaged stays so, and `check` says it
        line = load_line(ask(f"{RECORD} WHERE key = %s", (heir,))[0])
        line = line._replace(size=line.size + grown)
        ask(_GROW, (line.size, line.seal(), heir))
    return [unescaped(name)]


def _reached(ask: SendStatement, first: int, last: int, sealing: Sealing) -> frozenset[bytes] | None:
    """Return the large values that some records refer to; None for all, where that cannot be read."""

    def fetch(digest: bytes) -> bytes | None:
        return sealing.open_content(digest, _content(ask, digest))

    look: Fetch = fetch
    rows = ask(_PAYLOADS, (first, last))
    try:
        return frozenset(digest for (data,) in rows for digest in reached(sealing.open_packed(data), look))
    except (CorruptStoreError, SealedError):
        return None


def _content(ask: SendStatement, digest: bytes) -> bytes | None:
    rows = ask(_BLOB, (digest,))
    return unpack(Packed(*rows[0])) if rows else None


def ended_before(ask: SendStatement, before: int) -> list[str]:
    """Return the executions that ended before a moment, in microseconds."""
    return [unescaped(name) for (name,) in ask(_ENDED, (before,))]


def is_over(ask: SendStatement, execution_id: str, moment: Moment) -> bool:
    """Return whether an execution has ended and no process has begun to resume it."""
    leases.lock(ask, execution_id)
    rows = ask(f"{RECORD} WHERE id = %s", (escaped(execution_id),))
    if not rows or load_line(rows[0]).status not in TERMINAL:
        return False
    (lease,) = leases.load_lease(ask, execution_id) or (None,)
    return lease is None or not lease.keeps_out(moment)


# --- large values ----------------------------------------------------------------------------------------------------


def list_blobs(ask: SendStatement, without: Collection[str]) -> list[StoredBlob]:
    """Return the large values, and whether executions other than `without` refer to them."""
    return [StoredBlob(*row) for row in ask(_BLOBS, ([escaped(name) for name in without],))]


def drop_unused(ask: SendStatement) -> int:
    """Delete what no execution refers to; return how many. Who refers to one meanwhile waits, and writes it anew."""
    ask("SELECT pg_advisory_xact_lock(%s)", (KEEPING,))
    return len(ask(_DROP_BLOBS))


# --- checkpoints -----------------------------------------------------------------------------------------------------


def put_checkpoint(ask: SendStatement, key: int, execution_id: str, sequence: int, data: bytes) -> None:
    """Write a checkpoint in place of an older one."""
    rows = ask(_CHAIN, (escaped(execution_id), sequence - 1, sequence))
    ask(_PUT, (key, sequence, _checksum(execution_id, sequence, rows[-1][-1], data), data))


def load_checkpoint(ask: SendStatement, execution_id: str) -> tuple[int, bytes] | None:
    """Return sequence and data of an execution's checkpoint, unless it is damaged or does not belong to the log."""
    name = escaped(execution_id)
    for sequence, checksum, data, chain in ask(_CHECKPOINT, (name, name)):
        if _checksum(execution_id, sequence, chain, data) == checksum:
            return sequence, data
    return None


def _checksum(execution_id: str, sequence: int, chain: int | None, data: bytes) -> int:
    # That of the last record in the fold covers all before it: what was folded is what is there.
    return crc32(data, of_row((execution_id, sequence, chain)))


# --- as it is stored -------------------------------------------------------------------------------------------------


def load_stored(ask: SendStatement, types: TypeNumbers, execution_id: str) -> StoredLog | None:
    """Return a log as it is, record and events of the transaction's moment; None if there is none."""
    name = escaped(execution_id)
    rows = ask(f"{RECORD} WHERE id = %s", (name,))
    looked = ask("SELECT * FROM divebook.read_log(%s, 0, %s)", (name, MOST))
    if not rows or not looked:
        return None
    line, seal = line_of(rows[0])
    key, *_, checksum = looked[0]
    owners = {row[0] for row in looked[1:]} - {key}
    asked = ask("SELECT id FROM divebook.questions WHERE key = %s", (key,))
    ((shared,),) = ask("SELECT coalesce(forked_at, 0) FROM divebook.executions WHERE key = %s", (key,))
    has_checkpoint = bool(ask("SELECT FROM divebook.checkpoints WHERE key = %s", (key,)))
    return StoredLog(
        record_of(line),
        checksum,
        [types.stored(row) for row in looked[1:]],
        _used(ask, key),
        frozenset(unescaped(question) for (question,) in asked),
        shared,
        frozenset[bytes]().union(*(_used(ask, owner) for owner in owners)),
        altered=seal != line.seal(),
        checkpoint_fits=not has_checkpoint or load_checkpoint(ask, execution_id) is not None,
    )


def _used(ask: SendStatement, key: int) -> frozenset[bytes]:
    return frozenset(digest for (digest,) in ask(_USED, (key,)))


def find_faults(ask: SendStatement) -> list[str]:
    """Return which rows belong to nothing, or are damaged; pages and indexes are the server's own (`amcheck`)."""
    faults = []
    counts: list[tuple[str, Any]] = [("events", ask(_STRAY_EVENTS)[0][0])]
    counts += [(f"rows of table {table}", ask(_STRAY.format(table))[0][0]) for table in TABLES]
    for what, count in counts:
        if count:
            faults.append(f"{count} {what} belong to no execution")
    return faults + messages.find_faults(ask) + lists.find_faults(ask)
