"""A store file with something in every table, and ways to harm it: bytes, cuts, values of rows, the write-ahead log."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from divebook.definitions.definition import Workflow
from divebook.definitions.step import Step
from divebook.environments.environment import Environment
from divebook.runtime import journal
from divebook.runtime.clock import SystemClock
from divebook.stores import Message, SqliteStore

STEPS = [
    Step("make", script='"rows " * 20000', store="rows", next=["count"]),
    Step("count", script="len(state.rows)", store="n", next=["ask"]),
    Step("ask", ask="Fine?"),
]
CHECKPOINT_EVENTS = 10
"""Events between two checkpoints: fewer than usual, so that short runs have one."""
TABLES = {
    "events": 12,
    "executions": 3,
    "blobs": 2,
    "checkpoints": 2,
    "messages": 1,
    "questions": 1,
    "tags": 1,
    "blob_uses": 1,
    "event_types": 1,
}
"""How often a value of each table is changed. Not of `leases`: nothing compares them, and to lose one is safe."""
UNCOMPARED = {("executions", "token"), ("messages", "number")}
"""Values that nothing compares: the count of the leases that an execution had, which a writer of now would be refused
for at most, and the order in which messages came."""


class Ticks(SystemClock):
    """A clock that gives every file the same times."""

    def __init__(self) -> None:
        self._now = 1_700_000_000_000_000

    def now(self) -> int:
        """Return the next millisecond."""
        self._now += 1000
        return self._now


class Chance:
    """Chance that gives every file the same ids."""

    def __init__(self) -> None:
        self.bits = Random(1).getrandbits  # noqa: S311 - seeded


class Files(NamedTuple):
    """What lies on the disk."""

    main: bytes
    wal: bytes = b""


def make_store(folder: Path) -> Path:
    """Write a store: large values, a packed row, open questions, messages, checkpoints; return the file."""
    path = folder / "whole.db"
    with SqliteStore(path, durability="relaxed") as store:
        _fill(store)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def make_wal(folder: Path) -> Files:
    """Return the files of a store whose latest commits are in its write-ahead log only."""
    path = folder / "begun.db"
    with SqliteStore(path, durability="relaxed") as store:
        environment = _fill(store)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        environment.start(Workflow("w", STEPS), tags=["late"]).wait()
        environment.start(Workflow("short", [Step("count", script="1 + 1", store="n")])).wait()
        return Files(path.read_bytes(), path.with_name("begun.db-wal").read_bytes())


def _fill(store: SqliteStore) -> Environment:
    usual, journal.CHECKPOINT_EVENTS = journal.CHECKPOINT_EVENTS, CHECKPOINT_EVENTS
    try:
        environment = Environment(store=store, clock=Ticks(), chance=Chance())
        for number in range(2):
            waiting = environment.start(Workflow("w", STEPS), tags=["a", "b"], key=f"key {number}").wait()
            store.post(Message(waiting.id, "signal", "note", {"amount": 5}, "ann", 1))
        short = Workflow("short", [Step("count", script="1 + 1", store="n")], inputs=["text"])
        environment.start(short, {"text": "word " * 600}).wait()
    finally:
        journal.CHECKPOINT_EVENTS = usual
    return environment


def flipped(content: bytes, random: Random) -> bytes:
    """Return bytes of which one is changed."""
    place, mask = random.randrange(len(content)), random.randrange(1, 256)
    return b"".join((content[:place], bytes([content[place] ^ mask]), content[place + 1 :]))


def cut(content: bytes, random: Random) -> bytes:
    """Return bytes without their end."""
    return content[: random.randrange(len(content))]


def change_value(path: Path, random: Random) -> str:
    """Change one value of one row; return which, as ``table.column``."""
    with closing(sqlite3.connect(path)) as connection:
        while True:
            (table,) = random.choices(list(TABLES), list(TABLES.values()))
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            rows = connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - our own text
            row, column = dict(zip(names, random.choice(rows), strict=True)), random.choice(names)
            if (table, column) not in UNCOMPARED and _is_changed(connection, table, row, column, random):
                return f"{table}.{column}"


def _is_changed(connection: sqlite3.Connection, table: str, row: dict[str, Any], column: str, random: Random) -> bool:
    """Change a value, and return whether the table takes the new one."""
    wanted = " AND ".join(f"{name} IS ?" for name in row)
    written, value = _other(row[column], random)
    statement = f"UPDATE {table} SET {column} = {written} WHERE {wanted}"  # noqa: S608 - our own text
    try:
        with connection:
            connection.execute(statement, (value, *row.values()))
    except sqlite3.IntegrityError:
        return False
    return True


def _other(value: Any, random: Random) -> tuple[str, Any]:
    """Return a value that differs by one bit or byte, or is of another kind, and how it is written in a statement."""
    if value is None or random.random() < 0.1:
        return "?", random.choice([choice for choice in (None, 7, "x", b"\xff") if choice != value])
    if isinstance(value, int):
        return "?", value ^ 1 << random.randrange(40)
    raw = value.encode() if isinstance(value, str) else value
    if not raw:
        return "?", "x"
    return ("CAST(? AS TEXT)" if isinstance(value, str) else "?"), flipped(raw, random)
