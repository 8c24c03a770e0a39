"""Messages as rows, and a way to see for next to nothing that there are no new ones."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from divebook.engine.inbox import Message
from divebook.errors import CorruptStoreError, SealedError
from divebook.events.codec import decode
from divebook.store.checksums import of_row
from divebook.store.codec import Sealing
from divebook.store.messages import Arrivals

SOONEST, LATEST = 0.02, 0.2
"""Seconds between two looks whether another process has written: at first, and when nothing has come for long."""
_SELECT = """
SELECT executions.id, messages.kind, messages.name, payload, source, posted_at, number, messages.checksum
FROM messages JOIN executions USING (key)
"""
_FIRST = f"{_SELECT} WHERE messages.key = ? AND kind = ? AND name = ?"
_OF_ONE = f"{_SELECT} WHERE messages.key = ? AND number > ? ORDER BY number"
_OF_ALL = f"{_SELECT} WHERE number > ? ORDER BY number"
_INSERT = """
INSERT INTO messages (number, key, kind, name, payload, source, posted_at, checksum, untaken)
SELECT ?, key, ?, ?, ?, ?, ?, ?, ended_at IS NULL AND ifnull(? > taken, 1) FROM executions WHERE key = ?
RETURNING number
"""
# Numbers of deleted messages count as well, so that a reader that has seen them misses none of the later ones.
_LAST = "SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'messages'"
_UNTAKEN = "SELECT DISTINCT id FROM messages CROSS JOIN executions USING (key) WHERE untaken"
_HAS_UNTAKEN = "SELECT 1 FROM messages WHERE key = ? AND untaken"
_TAKE = "UPDATE messages SET untaken = 0 WHERE key = ? AND untaken AND number <= ?"
_TURN = "UPDATE messages SET untaken = ? AND number > ? WHERE key = ?"
_STRAY = """
SELECT number FROM messages JOIN executions USING (key)
WHERE untaken <> (number > taken AND ended_at IS NULL) ORDER BY number
"""
_LAST_ADDRESSEE = """
SELECT id FROM messages CROSS JOIN executions USING (key) WHERE name = ? AND kind = ? ORDER BY number DESC LIMIT 1
"""


def wait_for_news(arrivals: Arrivals, has_news: Callable[[], bool], seen: int, seconds: float) -> int:
    """Look ever more rarely whether another process has written; what this one posts is heard of at once."""
    until, pause = time.monotonic() + seconds, SOONEST
    while True:
        if has_news():
            arrivals.add()
        left = until - time.monotonic()
        found = arrivals.wait(seen, max(0.0, min(pause, left)))
        if found != seen or left <= 0:
            return found
        pause = min(LATEST, pause * 1.5)


def post(cursor: sqlite3.Cursor, sealing: Sealing, key: int, message: Message, payload: bytes) -> Message:
    """Write a message unless its place is taken; return the one that has the place."""
    first = cursor.execute(_FIRST, (key, message.kind, message.key)).fetchone()
    if first is not None:
        return _message(first, sealing)
    return replace(message, number=insert(cursor, key, replace(message, number=0), payload))


def insert(cursor: sqlite3.Cursor, key: int, message: Message, payload: bytes) -> int:
    """Write a message; return its number: the next one where it has none."""
    row = (message.kind, message.key, payload.decode(), message.source, message.posted_at)
    checksum = of_row((message.execution_id, *row))
    given = message.number or None
    number: int = cursor.execute(_INSERT, (given, *row, checksum, given, key)).fetchone()[0]
    return number


def load_inbox(connection: sqlite3.Connection, sealing: Sealing, key: int, after: int) -> list[Message]:
    """Return the messages of one execution."""
    return [_message(row, sealing) for row in connection.execute(_OF_ONE, (key, after)).fetchall()]


def load_all(connection: sqlite3.Connection, sealing: Sealing, after: int) -> list[Message]:
    """Return the messages of all executions, except those that are damaged or cannot be opened.

    These concern their own executions only, whose inboxes say so.
    """
    messages = []
    for row in connection.execute(_OF_ALL, (after,)).fetchall():
        with suppress(CorruptStoreError, SealedError):
            messages.append(_message(row, sealing))
    return messages


def find_faults(connection: sqlite3.Connection) -> list[str]:
    """Return which messages are damaged."""
    damaged = [_damage(row) for row in connection.execute(_OF_ALL, (0,)).fetchall() if not is_sound(row)]
    strays = [number for (number,) in connection.execute(_STRAY).fetchall()]
    return damaged + [f"message {number} is not listed as what its execution has made of it" for number in strays]


def take(cursor: sqlite3.Cursor, key: int, taken: int) -> None:
    """Note that an execution has taken its messages up to a number."""
    cursor.execute(_TAKE, (key, taken))


def turn(cursor: sqlite3.Cursor, key: int, taken: int, *, is_over: bool) -> None:
    """Note that an execution has ended, and takes no more messages, or that it goes on."""
    cursor.execute(_TURN, (not is_over, taken, key))


def last_number(connection: sqlite3.Connection) -> int:
    """Return the highest number ever given."""
    number: int = connection.execute(_LAST).fetchone()[0]
    return number


def untaken(connection: sqlite3.Connection) -> set[str]:
    """Return the executions that have not ended, with messages that are not in their logs."""
    return {execution_id for (execution_id,) in connection.execute(_UNTAKEN).fetchall()}


def has_untaken(connection: sqlite3.Connection, key: int) -> bool:
    """Return whether an execution that has not ended has messages that are not in its log."""
    return connection.execute(_HAS_UNTAKEN, (key,)).fetchone() is not None


def last_addressee(connection: sqlite3.Connection, kind: str, key: str) -> str | None:
    """Return the execution that got the latest message of such a kind and key."""
    row = connection.execute(_LAST_ADDRESSEE, (key, kind)).fetchone()
    return None if row is None else row[0]


class Watch:
    """Asks for new messages only if another connection has written since, or this one has posted.

    ``PRAGMA data_version`` of the writing connection stands still while only that connection writes, and asking for it
    costs some microseconds.
    """

    def __init__(self, writer: sqlite3.Connection, sealing: Sealing) -> None:
        self._writer, self._sealing = writer, sealing
        self._version = self._heard = -1
        self._last = 0

    def posted(self, number: int) -> None:
        """Hear of a message that this connection has written."""
        self._last = max(self._last, number)

    def has_news(self) -> bool:
        """Whether another connection has written since this was asked the last time."""
        before, (self._heard,) = self._heard, self._writer.execute("PRAGMA data_version").fetchone()
        return before != self._heard

    def new_messages(self, after: int) -> list[Message]:
        """Return the messages of all executions above a number."""
        (version,) = self._writer.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._last, self._version = last_number(self._writer), version
        return load_all(self._writer, self._sealing, after) if self._last > after else []


def is_sound(row: tuple[Any, ...]) -> bool:
    """Return whether a message is as it was written."""
    *columns, _, checksum = row
    return bool(of_row(columns) == checksum)


def _damage(row: tuple[Any, ...]) -> str:
    return f"message {row[-2]} to execution {row[0]} does not have the checksum it was written with"


def _message(row: tuple[Any, ...], sealing: Sealing) -> Message:
    if not is_sound(row):
        raise CorruptStoreError(f"{_damage(row)}; delete that execution, or restore a backup")
    execution_id, kind, name, payload, source, posted_at, number, _ = row
    return Message(execution_id, kind, name, decode(sealing.open(payload.encode())), source, posted_at, number)
