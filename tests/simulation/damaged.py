"""Logs of a simulation with damaged rows: each damage is found, or changes nothing, and costs no record but its own."""

from __future__ import annotations

import sqlite3
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

from divebook.engine.lifecycle import TERMINAL
from divebook.errors import CorruptStoreError, NewerStoreError
from divebook.events.event import Record, type_id
from divebook.stores import Batch, EventStore, MemoryStore, SqliteStore
from divebook.stores.maintenance import check
from divebook.stores.pages import EventPage
from tests.simulation.rows import Damage, Rows, damages, intact
from tests.store.tampering import put_rows

FOUND, EQUAL = "found", "equal"
LOOKS = 16
"""Sound records of a damaged log that are read by themselves."""
NEIGHBOUR = type_id("exec", 1, 1)
"""An execution beside the damaged one."""


def damage_log(random: Random, records: Sequence[Record], others: Sequence[Record]) -> Counter[str]:
    """Damage one log in many ways, in both kinds of store; return how often that was found, and changed nothing.

    Parameters
    ----------
    others
        Those of a log beside it, which must not suffer, and of which some get into the damaged one.

    Raises
    ------
    AssertionError
        Damage is not found, or costs more than it should.
    """
    records = records[: random.choice([len(records), random.randint(1, len(records))])]
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        file = SqliteStore(Path(folder) / "damaged.db", durability="relaxed")
        for kind, store in ((_InMemory, MemoryStore()), (_InFile, file)):
            with store:
                trial = kind(store, random, records, others)
                outcomes.update(trial.outcome(damage) for damage in damages(random, trial.rows, trial.others))
    return outcomes


class _Trial(ABC):
    """One store with the log, and one beside it."""

    def __init__(self, store: EventStore, random: Random, records: Sequence[Record], others: Sequence[Record]) -> None:
        self.store, self.id, self.random = store, records[0].execution_id, random
        _write(store, random, records)
        _write(store, random, [_beside(record) for record in others])
        self.events, self.beside = store.read(self.id), store.read(NEIGHBOUR)
        log = store.stored_log(self.id)
        self.rows, self.others = log.records, store.stored_log(NEIGHBOUR).records
        ended = log.record.status in TERMINAL
        self.noted = log.record.last_sequence if not ended else len(self.events)
        """An execution that goes on may have lost what came after this: it is then as if it had never been written."""
        assert check(store).ok

    def outcome(self, damage: Damage) -> str:
        """Return what a damage comes to."""
        self.put(damage.rows)
        report = check(self.store)
        assert not [found for found in report.all_damages() if found.execution_id == NEIGHBOUR], damage.kind
        assert self.store.read(NEIGHBOUR) == self.beside, f"{damage.kind}: another log suffers"
        self.read_damaged(damage)
        if not report.ok:
            return FOUND
        found = self.store.read(self.id)
        assert found == self.events[: len(found)], f"{damage.kind}: check says nothing, and the log reads differently"
        assert len(found) >= self.noted, f"{damage.kind}: check says nothing of the {len(found)} events that are left"
        return EQUAL

    @abstractmethod
    def put(self, rows: Rows) -> None:
        """Have the log consist of these rows."""

    @abstractmethod
    def read_damaged(self, damage: Damage) -> None:
        """Make sure that whatever can be read is what was written."""


class _InMemory(_Trial):
    """A store that compares checksums when it is checked only: what it holds, nobody else can reach."""

    store: MemoryStore

    def put(self, rows: Rows) -> None:
        """Have the log consist of these rows."""
        log = self.store._logs[self.id]
        log.heads = [(row.sequence, row.recorded_at, row.type, row.id, row.path, row.step) for row in rows]
        log.payloads = [row.payload for row in rows]
        log.checksums = [row.checksum for row in rows]  # type: ignore[misc]  # of damaged ones None, too

    def read_damaged(self, damage: Damage) -> None:
        """Nothing is promised."""


class _InFile(_Trial):
    """A store that compares checksums whenever it reads."""

    store: SqliteStore

    def put(self, rows: Rows) -> None:
        """Have the log consist of these rows."""
        with closing(sqlite3.connect(self.store.path)) as connection, connection:
            put_rows(connection, self.id, rows)

    def read_damaged(self, damage: Damage) -> None:
        """Make sure that whatever can be read is what was written, and that sound records can be."""
        if damage.rows[0] in self.others:  # every chain of checksums begins alike: `check` finds it
            return
        sound, _ = self.store.read_sound(self.id)
        assert sound == self.events[: len(sound)], f"{damage.kind}: what is read was never written"
        left = intact(self.rows, damage.rows)
        for row in self.random.sample(left, min(len(left), LOOKS)):
            after, last = row.sequence - 1, row.last_sequence
            found = self.store.read(self.id, after, last - after)
            assert found == self.events[after:last], f"{damage.kind}: sound event {row.sequence} cannot be read"
        try:
            page = self.store.page(self.id, 0, len(self.events) + 1)
        except (CorruptStoreError, NewerStoreError):
            return
        assert _plain(page) == _plain(EventPage.of(self.events[: len(page.sequences)])), f"{damage.kind}: other columns"


def _beside(record: Record) -> Record:
    """Return a record as one of an execution that began at another time."""
    return replace(record, execution_id=NEIGHBOUR, recorded_at=record.recorded_at + 1)


def _plain(page: EventPage) -> list[list[object]]:
    return [column.tolist() for column in page]


def _write(store: EventStore, random: Random, records: Sequence[Record]) -> None:
    """Append a log in commits of a few records each."""
    place, last = 0, 0
    while place < len(records):
        part = records[place : place + random.choice([1, 2, 5, 40])]
        assert store.append_all([Batch(part[0].execution_id, last, part)]) == [None]
        place, last = place + len(part), part[-1].last_sequence
