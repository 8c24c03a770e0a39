"""Messages as rows, numbered in the order in which others see them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from typing import Any

from divebook.engine.inbox import Message
from divebook.errors import CorruptStoreError, SealedError
from divebook.events.codec import decode
from divebook.store.checksums import of_row
from divebook.store.codec import Sealing
from divebook.store.postgres.connections import Connections, Rows, SendStatement
from divebook.store.postgres.schema import IN_KNOWN_FORMAT
from divebook.store.postgres.texts import escaped, unescaped

_POST = f"SELECT divebook.post_message(%s, %s, %s, %s, %s, %s, %s, %s) {IN_KNOWN_FORMAT}"
_BRING = """
WITH counted AS (UPDATE divebook.last_message SET number = %s)
INSERT INTO divebook.messages SELECT %s, key, %s, %s, %s, %s, %s, %s, %s FROM divebook.executions WHERE id = %s
RETURNING number
"""
_SELECT = """
SELECT executions.id, messages.kind, messages.name, payload, source, posted_at, number, messages.checksum
FROM divebook.messages JOIN divebook.executions USING (key)
"""
_ONE = f"{_SELECT} WHERE number = %s"
# Of an execution without messages there is a row without a message.
_OF_ONE = """
SELECT executions.id, messages.kind, messages.name, payload, source, posted_at, number, messages.checksum
FROM divebook.executions LEFT JOIN divebook.messages ON messages.key = executions.key AND number > %s
WHERE executions.id = %s ORDER BY number
"""
_OF_ALL = f"{_SELECT} WHERE number > %s ORDER BY number"
_LAST = "SELECT number FROM divebook.last_message"
_UNTAKEN = """
SELECT id FROM divebook.executions WHERE ended_at IS NULL
AND EXISTS (SELECT FROM divebook.messages WHERE messages.key = executions.key AND number > taken)
"""
_HAS_UNTAKEN = """
SELECT ended_at IS NULL
  AND EXISTS (SELECT FROM divebook.messages WHERE messages.key = executions.key AND number > taken)
FROM divebook.executions WHERE id = %s
"""
_LAST_ADDRESSEE = """
SELECT id FROM divebook.messages JOIN divebook.executions USING (key) WHERE place = %s ORDER BY number DESC LIMIT 1
"""


def _place(kind: str, key: str) -> bytes:
    return sha256(f"{kind}\n{key}".encode(errors="surrogatepass")).digest()


def post(connections: Connections, message: Message, payload: bytes) -> int | None:
    """Write a message unless its place is taken; return the number of the one that has it; None: no such execution."""
    row = (message.kind, message.key, payload, message.source, message.posted_at)
    checksum = of_row((message.execution_id, *row))
    texts = (escaped(message.key), payload, escaped(message.source))
    place = _place(message.kind, message.key)
    values = (escaped(message.execution_id), place, message.kind, *texts, message.posted_at, checksum)
    answer = connections.write(_POST, values)
    if not answer:
        raise connections.refused_format()
    ((number,),) = answer
    return None if number is None else int(number)


def insert(ask: SendStatement, message: Message, payload: bytes) -> bool:
    """Write a message with its number; return whether there is such an execution."""
    row = (message.kind, message.key, payload, message.source, message.posted_at)
    checksum = of_row((message.execution_id, *row))
    texts = (escaped(message.key), payload, escaped(message.source))
    named = (message.number, message.number, _place(message.kind, message.key), message.kind, *texts)
    return bool(ask(_BRING, (*named, message.posted_at, checksum, escaped(message.execution_id))))


def load_one(ask: SendStatement, sealing: Sealing, number: int) -> Message | None:
    """Return the message of a number; None if it was deleted."""
    rows = ask(_ONE, (number,))
    return _message(rows[0], sealing) if rows else None


def load_inbox(ask: SendStatement, sealing: Sealing, execution_id: str, after: int) -> list[Message] | None:
    """Return the messages of one execution; None if there is none."""
    rows = ask(_OF_ONE, (after, escaped(execution_id)))
    return [_message(row, sealing) for row in rows if row[1] is not None] if rows else None


def load_all(ask: SendStatement, sealing: Sealing, after: int) -> list[Message]:
    """Return the messages of all executions, except those that are damaged or cannot be opened.

    These concern their own executions only, whose inboxes say so.
    """
    messages = []
    for row in ask(_OF_ALL, (after,)):
        with suppress(CorruptStoreError, SealedError):
            messages.append(_message(row, sealing))
    return messages


def find_faults(ask: SendStatement) -> list[str]:
    """Return which messages are damaged."""
    return [_damage(row) for row in _plain(ask(_OF_ALL, (0,))) if not _is_sound(row)]


def last_number(ask: SendStatement) -> int:
    """Return the highest number ever given."""
    ((number,),) = ask(_LAST)
    return int(number)


def untaken(ask: SendStatement) -> set[str]:
    """Return the executions that have not ended, with messages that are not in their logs."""
    return {unescaped(execution_id) for (execution_id,) in ask(_UNTAKEN)}


def has_untaken(ask: SendStatement, execution_id: str) -> bool | None:
    """Return whether an execution that has not ended has messages that are not in its log; None if there is none."""
    rows = ask(_HAS_UNTAKEN, (escaped(execution_id),))
    return bool(rows[0][0]) if rows else None


def last_addressee(ask: SendStatement, kind: str, key: str) -> str | None:
    """Return the execution that got the latest message of such a kind and key."""
    rows = ask(_LAST_ADDRESSEE, (_place(kind, key),))
    return unescaped(rows[0][0]) if rows else None


def _plain(rows: Rows) -> Iterable[tuple[Any, ...]]:
    for row in rows:
        yield tuple(unescaped(value) if isinstance(value, str) else value for value in row)


def _is_sound(row: tuple[Any, ...]) -> bool:
    *columns, _, checksum = row
    return bool(of_row(columns) == checksum)


def _damage(row: tuple[Any, ...]) -> str:
    return f"message {row[-2]} to execution {row[0]} does not have the checksum it was written with"


def _message(found: tuple[Any, ...], sealing: Sealing) -> Message:
    (row,) = _plain([found])
    if not _is_sound(row):
        raise CorruptStoreError(f"{_damage(row)}; delete that execution, or restore a backup")
    execution_id, kind, name, payload, source, posted_at, number, _ = row
    return Message(execution_id, kind, name, decode(sealing.open(payload)), source, posted_at, number)
