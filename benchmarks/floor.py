"""The least a durable journal can cost here: the floor that divebook's own figures are divided by.

An asyncio journal on the same SQLite settings, with nothing around it: an intent row and a result row per step, one
commit per turn of the event loop, and every intent on disk before its step runs. No definition, no state, no types.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson

SYNCHRONOUS = {"relaxed": "NORMAL", "full": "FULL"}
CHECKPOINT_PAGES = 4000
INSERT = "INSERT INTO events (sequence, recorded_at, type, data) VALUES (?, 0, ?, ?)"


class FloorJournal:
    """Rows in order, committed together once per turn of the loop."""

    def __init__(self, path: Path, durability: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        self._connection.execute(
            "CREATE TABLE events (sequence INTEGER PRIMARY KEY, recorded_at INTEGER, type TEXT, data BLOB)"
        )
        self._rows: list[tuple[int, str, bytes]] = []
        self._sequence = 0
        self._turn: asyncio.Future[None] | None = None

    def append(self, kind: str, data: object) -> None:
        """Take one row; it is written at the end of this turn."""
        self._sequence += 1
        self._rows.append((self._sequence, kind, orjson.dumps(data)))
        if self._turn is None:
            loop = asyncio.get_running_loop()
            self._turn = loop.create_future()
            loop.call_soon(self._commit)

    async def durable(self) -> None:
        """Return when everything taken so far is written."""
        if self._turn is not None:
            await asyncio.shield(self._turn)

    def _commit(self) -> None:
        rows, turn = self._rows, self._turn
        self._rows, self._turn = [], None
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(INSERT, rows)
        self._connection.execute("COMMIT")
        if turn is not None:
            turn.set_result(None)

    def count(self) -> int:
        """Return how many rows are in the file."""
        (count,) = self._connection.execute("SELECT count(*) FROM events").fetchone()
        return int(count)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


async def run_step(journal: FloorJournal, number: int, call: Callable[[], Awaitable[int]]) -> None:
    """Run one step: intent on disk, the call, its result."""
    journal.append("intent", {"step": number})
    await journal.durable()
    journal.append("result", {"step": number, "value": await call()})


async def run_sequence(journal: FloorJournal, steps: int, call: Callable[[], Awaitable[int]]) -> None:
    """Run steps one after the other."""
    for number in range(steps):
        await run_step(journal, number, call)
    await journal.durable()


async def run_together(journal: FloorJournal, steps: int, call: Callable[[], Awaitable[int]]) -> None:
    """Run steps side by side."""
    await asyncio.gather(*(run_step(journal, number, call) for number in range(steps)))
    await journal.durable()
