"""The questions that are open, as rows: kept with every append, so that no log need be read for them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from divebook.store.sqlite.faults import typed

_ASK = "INSERT OR IGNORE INTO questions (key, id) VALUES (?, ?)"
_SETTLE = "DELETE FROM questions WHERE key = ? AND id = ?"
_OPEN = """
SELECT executions.id, questions.id FROM questions CROSS JOIN executions USING (key)
WHERE NOT is_over ORDER BY created_at DESC, key DESC, questions.id
"""
# The index is named, as SQLite would look through those of executions that have ended by the table's own key.
_CALLED = """
SELECT executions.id, questions.id FROM questions INDEXED BY questions_open CROSS JOIN executions USING (key)
WHERE questions.id = ? AND NOT is_over ORDER BY created_at DESC, key DESC
"""
_TURN = "UPDATE questions SET is_over = ? WHERE key = ?"
_STRAY = """
SELECT questions.id, executions.id FROM questions JOIN executions USING (key) WHERE is_over <> (ended_at IS NOT NULL)
"""
_OF_ONE = "SELECT id FROM questions WHERE key = ?"


def note(cursor: sqlite3.Cursor, key: int, changes: Mapping[str, bool]) -> None:
    """Note which questions of an execution were asked, and which are settled."""
    for question_id, is_open in changes.items():
        cursor.execute(_ASK if is_open else _SETTLE, (key, question_id))


def turn(cursor: sqlite3.Cursor, key: int, *, is_over: bool) -> None:
    """Note that an execution has ended, so that nobody answers its questions, or that it goes on."""
    cursor.execute(_TURN, (is_over, key))


def find_faults(connection: sqlite3.Connection) -> list[str]:
    """Return which questions are not listed as their executions have left them."""
    return [
        f"question {asked} of execution {execution_id} is not listed as what its execution has made of it"
        for asked, execution_id in connection.execute(_STRAY).fetchall()
    ]


def load_open(connection: sqlite3.Connection, question_id: str | None) -> list[tuple[str, str]]:
    """Return the open questions of executions that have not ended: all, or those of one id."""
    found = connection.execute(_OPEN) if question_id is None else connection.execute(_CALLED, (question_id,))
    return [(execution, asked) for execution, asked in (typed("question", row, (str, str)) for row in found)]


def open_of(connection: sqlite3.Connection, key: int) -> frozenset[str]:
    """Return the open questions of one execution, ended or not."""
    rows = connection.execute(_OF_ONE, (key,)).fetchall()
    return frozenset(question_id for (question_id,) in (typed("question", row, (str,)) for row in rows))
