"""Leases as rows: the token in the execution's row, where every append checks it, the rest in a row of its own."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from types import NoneType
from typing import Any

from divebook.store.leases import Lease, Moment
from divebook.store.owner import Owner
from divebook.store.sqlite.faults import typed
from divebook.store.sqlite.whereabouts import Log

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
