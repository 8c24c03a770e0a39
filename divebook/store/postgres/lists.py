"""Which executions fit what is asked of a list, and what lists show beside their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from zlib import crc32

from divebook.events.catalog import BOOK, CHILD, WAITING
from divebook.store.checksums import of_row
from divebook.store.log import MAX_CANDIDATES
from divebook.store.postgres import leases
from divebook.store.postgres.connections import SendStatement
from divebook.store.postgres.rows import COLUMNS, RECORD
from divebook.store.postgres.texts import escaped, unescaped
from divebook.store.records import RecordFilter
from divebook.store.summaries import StoredSummary
from divebook.text.logs import logger

_log = logger(__name__)
_NEWEST = "ORDER BY created_at DESC, executions.key DESC"
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
IDS = f"SELECT id FROM divebook.executions {_NEWEST}"  # noqa: S608 - our own text
UNENDED = f"{RECORD} WHERE ended_at IS NULL {_NEWEST}"
# With the lease that each has, or had; whether one is live is not for SQL to know: its owner may have died.
ORPHANS = f"""
SELECT {COLUMNS}, {leases.COLUMNS} FROM divebook.executions LEFT JOIN divebook.leases USING (key)
WHERE ended_at IS NULL AND (
  status <> '{WAITING}' OR wake_at <= %s OR host IS NOT NULL
  OR EXISTS (SELECT FROM divebook.messages WHERE messages.key = executions.key AND number > taken)
) {_NEWEST}
"""  # noqa: S608 - our own text
# UNION, and not UNION ALL: rows that name each other as parents, which only damage can make, end the search.
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
_PUT = """
INSERT INTO divebook.summaries AS kept (key, sequence, checksum, data)
SELECT executions.key, given.sequence, given.checksum, given.data
FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %b::bytea[]) AS given(id, sequence, checksum, data)
JOIN divebook.executions USING (id)
ON CONFLICT (key) DO UPDATE SET sequence = excluded.sequence, checksum = excluded.checksum, data = excluded.data
"""
_SUMMARIES = """
SELECT id, sequence, summaries.checksum, data FROM divebook.summaries JOIN divebook.executions USING (key)
"""


def fitting(wanted: RecordFilter, limit: int, offset: int) -> tuple[str, dict[str, Any]]:
    """Return the statement that lists the executions that fit, newest first, and its parameters."""
    asked = {name: value for name, value in asdict(wanted).items() if value is not None}
    conditions = [] if asked.pop("with_books") else [f"origin <> '{BOOK}'"]
    conditions += [_CONDITIONS[name] for name in asked]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    values = {name: escaped(value) for name, value in asked.items()}
    return f"{RECORD} {where} {_NEWEST} LIMIT %(limit)s OFFSET %(offset)s", {
        **values,
        "limit": limit or None,
        "offset": offset,
    }


def candidates(ask: SendStatement, prefix: str) -> list[str]:
    """Return ids that begin with `prefix`, sorted, at most one more than `MAX_CANDIDATES`."""
    return [unescaped(name) for (name,) in ask(_CANDIDATES, (escaped(prefix), MAX_CANDIDATES + 1))]


def descendants(read: SendStatement, execution_id: str) -> int:
    """Return how many executions are below one."""
    ((count,),) = read(_DESCENDANTS, {"parent": escaped(execution_id)})
    return int(count)


def asking(ask: SendStatement, question_id: str | None) -> list[tuple[str, str]]:
    """Return the open questions of executions that have not ended: all, or those of one id."""
    asked = escaped(question_id)
    return [(unescaped(name), unescaped(question)) for name, question in ask(_ASKING, (asked, asked))]


def put_summaries(write: SendStatement, summaries: Mapping[str, StoredSummary]) -> None:
    """Write summaries in place of older ones."""
    rows = [(escaped(name), kept.sequence, _checksum(name, *kept), kept.data) for name, kept in summaries.items()]
    if rows:
        write(_PUT, [list(column) for column in zip(*rows, strict=True)])


def load_summaries(ask: SendStatement, execution_ids: Sequence[str]) -> dict[str, StoredSummary]:
    """Return the summaries of some executions, as far as they are as they were written."""
    rows = ask(f"{_SUMMARIES} WHERE id = ANY(%s)", ([escaped(name) for name in execution_ids],))
    return {
        unescaped(name): StoredSummary(sequence, data)
        for name, sequence, checksum, data in rows
        if _checksum(unescaped(name), sequence, data) == checksum
    }


def find_faults(ask: SendStatement) -> list[str]:
    """Return which summaries are damaged."""
    return [
        f"the summary of execution {unescaped(name)} is damaged. It is not used, and nothing is lost: it is made again "
        "when the execution is listed"
        for name, sequence, checksum, data in ask(_SUMMARIES)
        if _checksum(unescaped(name), sequence, data) != checksum
    ]


def _checksum(execution_id: str, sequence: int, data: bytes) -> int:
    return crc32(data, of_row((execution_id, sequence)))
