"""Leases as rows: the token in the execution's row, where every commit compares it, the rest in a row of its own.

They end by the server's clock, which is the same for all machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from divebook.store.leases import Lease, Moment
from divebook.store.owner import Owner
from divebook.store.postgres.commits import PATIENCE
from divebook.store.postgres.connections import SendStatement
from divebook.store.postgres.texts import escaped, unescaped

COLUMNS = "token, host, pid, started, name, boot, expires_at"
_ALL = f"SELECT id, {COLUMNS} FROM divebook.leases JOIN divebook.executions USING (key)"  # noqa: S608 - our own text
_OF_ONE = f"SELECT id, {COLUMNS} FROM divebook.executions LEFT JOIN divebook.leases USING (key) WHERE id = %s"  # noqa: S608
WITH_PATIENCE = f"WITH patience AS MATERIALIZED (SELECT {PATIENCE})"
"""Before a statement that locks rows of what it joins with ``patience``, and for the rest of its transaction."""
_LOCK = f"{WITH_PATIENCE} SELECT FROM divebook.executions, patience WHERE id = %s FOR UPDATE OF executions"
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
_RENEW = """
UPDATE divebook.leases SET expires_at = %s
FROM divebook.executions JOIN unnest(%s::text[], %s::bigint[]) AS held(id, token) USING (id, token)
WHERE leases.key = executions.key RETURNING id
"""
_RELEASE = """
DELETE FROM divebook.leases USING divebook.executions
WHERE leases.key = executions.key AND id = %s AND token = %s
"""
NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


def load_leases(ask: SendStatement) -> list[Lease]:
    """Return all leases."""
    return [lease for row in ask(_ALL) if (lease := lease_of(row[0], row[1:])) is not None]


def load_lease(ask: SendStatement, execution_id: str) -> tuple[Lease | None] | None:
    """Return the lease of one execution, or None in its place if it has none; None if there is no such execution."""
    rows = ask(_OF_ONE, (escaped(execution_id),))
    return (lease_of(rows[0][0], rows[0][1:]),) if rows else None


def lease_of(execution_id: str, columns: Sequence[Any]) -> Lease | None:
    """Return the lease that `COLUMNS` say; None if they have none."""
    token, host, pid, started, name, boot, expires_at = columns
    if host is None:
        return None
    owner = Owner(unescaped(host), pid, started, unescaped(name), unescaped(boot))
    return Lease(unescaped(execution_id), token, owner, expires_at)


def lock(ask: SendStatement, execution_id: str) -> None:
    """Let nobody else change an execution's row, nor delete it, until the transaction has ended."""
    ask(_LOCK, (escaped(execution_id),))


def put_next(ask: SendStatement, execution_id: str, owner: Owner, until: Moment) -> Lease:
    """Write a lease with the next token, in place of an older one."""
    named = (escaped(owner.host), owner.pid, owner.started, escaped(owner.name), escaped(owner.boot), until.wall)
    ((token, was_left),) = ask(_NEXT, (escaped(execution_id), *named))
    return Lease(execution_id, token, owner, until.wall, was_left=was_left)


def renew(ask: SendStatement, leases: Sequence[Lease], until: Moment) -> list[bool]:
    """Prolong leases; say for each whether it is the present one."""
    named = ([escaped(lease.execution_id) for lease in leases], [lease.token for lease in leases])
    held = {unescaped(name) for (name,) in ask(_RENEW, (until.wall, *named))}
    return [lease.execution_id in held for lease in leases]


def release(ask: SendStatement, lease: Lease) -> None:
    """Delete a lease if it is the present one."""
    ask(_RELEASE, (escaped(lease.execution_id), lease.token))
