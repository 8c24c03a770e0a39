"""From rows of the tables to execution records and records of logs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from divebook.errors import CorruptStoreError
from divebook.events.catalog import PAYLOADS
from divebook.events.codec import decode, encode
from divebook.store.execution_row import Line, record_of
from divebook.store.packed_ids import pack_id, unpack_id
from divebook.store.postgres.connections import Connections
from divebook.store.postgres.texts import escaped, unescaped
from divebook.store.records import ExecutionRecord
from divebook.store.upkeep import StoredRecord

COLUMNS = """
executions.id, status, created_at, ended_at, last_sequence, error, size, wake_at, taken, durability,
  workflow_name, fingerprint, start_key, origin, parent, tags, note, notebook, cell, opened, seal
"""
WIDTH = COLUMNS.count(",") + 1
RECORD = f"SELECT {COLUMNS} FROM divebook.executions"  # noqa: S608 - our own text
_TAGS = Line._fields.index("tags")
_ODD = b"\xff"


def line_of(row: tuple[Any, ...]) -> tuple[Line, int]:
    """Return what the columns of `RECORD` say, and the checksum that they were written with."""
    columns: list[Any]
    *columns, seal = [unescaped(value) if isinstance(value, str) else value for value in row]
    columns[_TAGS] = encode([unescaped(tag) for tag in columns[_TAGS]]).decode()
    return Line(*columns), int(seal)


def load_line(row: tuple[Any, ...]) -> Line:
    """Return what the columns of `RECORD` say.

    Raises
    ------
    CorruptStoreError
        It is not what was written.
    """
    line, seal = line_of(row)
    if line.seal() != seal:
        raise CorruptStoreError(
            f"the row of execution {line.id} does not have the checksum it was written with, so what lists show of it "
            "is not to be trusted; `divebook check` says what is still readable"
        )
    return line


def load_record(row: tuple[Any, ...]) -> ExecutionRecord:
    """Return the line of an execution; CorruptStoreError if it is not what was written."""
    return record_of(load_line(row))


def written(line: Line) -> dict[str, Any]:
    """Return the columns of a row by their names."""
    found = {name: escaped(value) if isinstance(value, str) else value for name, value in line._asdict().items()}
    return {**found, "tags": [escaped(tag) for tag in decode(line.tags)], "seal": line.seal()}


def packed(event_id: str) -> bytes:
    """Return an id as the table has it, whose column has one type: 16 bytes, or FF and any other text."""
    found = pack_id(event_id)
    return found if isinstance(found, bytes) and found[:1] != _ODD else _ODD + event_id.encode()


def unpacked(found: bytes) -> str:
    """Undo `packed`; what is damaged becomes a text that no event has."""
    return found[1:].decode("utf-8", "replace") if is_odd(found) else unpack_id(found)


def is_odd(found: bytes) -> bool:
    """Return whether an id is none of our own form, which sort as their texts do."""
    return found[:1] == _ODD


class TypeNumbers:
    """The numbers that the database gives to types of records; another process may have added some."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}

    def load(self) -> None:
        """Read the table."""
        rows = self._connections.read("SELECT number, name FROM divebook.event_types")
        self.names, self._numbers = dict(rows), {name: number for number, name in rows}

    def number(self, name: str) -> int:
        """Return the number of a type; the first of a store makes one for each event type."""
        if name not in self._numbers:
            self._add({name, *PAYLOADS} - self._numbers.keys())
        return self._numbers[name]

    def are_known(self, names: Iterable[str]) -> bool:
        """Return whether the numbers of types are known, so that nothing need be asked."""
        return all(name in self._numbers for name in names)

    def _add(self, names: Collection[str]) -> None:
        insert = "INSERT INTO divebook.event_types (name) SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING"
        self._connections.write(insert, (sorted(names),))
        self.load()

    def name(self, number: int) -> str:
        """Return the name that a number stands for, looking again if it is new; ``type 7`` for one without."""
        if number not in self.names:
            self.load()
        return self.names.get(number, f"type {number}")

    def stored(self, row: tuple[Any, ...]) -> StoredRecord:
        """Return a record from a row of `divebook.read_log`."""
        _, sequence, recorded_at, number, event_id, path, step, data, checksum = row
        name = self.names.get(number) or self.name(number)
        return StoredRecord(
            sequence, recorded_at, name, unpacked(event_id), unescaped(path), unescaped(step), data, checksum
        )
