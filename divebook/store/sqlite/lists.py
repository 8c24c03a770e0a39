"""Which executions fit what is asked of a list: each statement finds them by an index, and reads no others.

A test of the statements' plans, and of the work they do as a store grows, is in tests/store/test_plans.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from divebook.engine.lifecycle import STATUSES, TERMINAL
from divebook.events.catalog import BOOK, CHILD, WAITING
from divebook.store.records import RecordFilter
from divebook.store.sqlite.rows import COLUMNS, RECORD
from divebook.text.logs import logger

_log = logger(__name__)
_TAG = "INSERT OR IGNORE INTO tags (tag, began, key) VALUES (?, ?, ?)"
_STRAY = """
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


def find_faults(connection: sqlite3.Connection) -> list[str]:
    """Return which executions are not found by their tags."""
    strays = [execution_id for (execution_id,) in connection.execute(_STRAY).fetchall()]
    return [f"execution {execution_id} is not listed under the tags that its row has" for execution_id in strays]
