"""From rows of the file to events and execution records."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain
from types import NoneType
from typing import Any, NamedTuple
from zlib import crc32

from divebook.errors import CorruptStoreError, DecryptionError, NewerStoreError
from divebook.events.catalog import Payload
from divebook.events.codec import encode
from divebook.events.event import Record
from divebook.store.append import Line
from divebook.store.base import StoredRecord
from divebook.store.codec import Sealing
from divebook.store.encoding import Fetch, head, unpack_id, width_of
from divebook.store.sqlite.connections import Types, fetcher, typed
from divebook.store.sqlite.schema import EventTypes, place_of

# Where the log of an execution lies in a file: in rows of its own, and for a fork in those of its sources as well.


# By the row itself: what an index says of a row may be damaged, and would lead to another execution.
_FIND = """
SELECT id, key, last_sequence, checksum, token, source_key, forked_at FROM executions NOT INDEXED
WHERE key = (SELECT key FROM executions WHERE id = ?)
"""
# The executions whose events a fork shares, the nearest first.
_SOURCES = """
WITH RECURSIVE sources (key, upto) AS (
  VALUES (:source, :upto)
  UNION ALL
  SELECT above.source_key, above.forked_at FROM sources JOIN executions AS above ON above.key = sources.key
  WHERE above.source_key IS NOT NULL AND above.forked_at < upto
)
SELECT key, upto FROM sources
"""
_LOG_TYPES = (str, int, int, int, int, (int, NoneType), (int, NoneType))
MOST = 0xFFFF_FFFF
"""The highest number that an event can have."""


class LogPart(NamedTuple):
    """Whose rows hold a part of a log: its own, or those of an execution that it was forked from."""

    key: int
    after: int
    """The number of the event before it."""
    upto: int


class Log(NamedTuple):
    """Where a log lies and how far it goes at least, by its execution's row."""

    execution_id: str
    key: int
    last_sequence: int
    checksum: int
    token: int
    parts: tuple[LogPart, ...]
    """Oldest first; only a fork has several."""

    @property
    def shared(self) -> int:
        """How many events it shares with an execution that it was forked from."""
        return self.parts[-1].after

    def ranges(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the first and last place of its records that begin with events from `first` to `last`, in order."""
        if len(self.parts) == 1:
            return [(place_of(self.key, first), place_of(self.key, min(last, MOST)))]
        cut = [(part.key, max(first, part.after + 1), min(last, part.upto)) for part in self.parts]
        return [(place_of(key, begin), place_of(key, end)) for key, begin, end in cut if begin <= end]


def find(connection: sqlite3.Connection | sqlite3.Cursor, execution_id: str) -> Log | None:
    """Return where a log lies; None if there is none, CorruptStoreError if the way there is damaged."""
    row = connection.execute(_FIND, (execution_id,)).fetchone()
    if row is None:
        return None
    name, key, last, checksum, token, source, upto = typed("row of an execution", row, _LOG_TYPES)
    parts = (LogPart(key, 0, MOST),) if source is None else _parts(connection, key, source, upto)
    log = Log(name, key, last, checksum, token, parts)
    if log.execution_id != execution_id:
        raise CorruptStoreError(
            f"execution {execution_id} cannot be found: its place in the file holds {log.execution_id}. "
            "Run `divebook check`, and restore a backup"
        )
    return log


def _parts(connection: sqlite3.Connection | sqlite3.Cursor, key: int, source: int, upto: int) -> tuple[LogPart, ...]:
    """Return whose rows a fork's log is made of."""
    shared = connection.execute(_SOURCES, {"source": source, "upto": upto}).fetchall()
    parts = []
    after = 0
    for owner, end in reversed(shared):
        parts.append(LogPart(owner, after, end))
        after = end
    return (*parts, LogPart(key, after, MOST))


# The last: whether the log of an execution that goes on is longer than its row says (`divebook.store.sqlite.log`).
COLUMNS = """
id, status, created_at, ended_at, last_sequence, error, size, wake_at, taken, durability,
  workflow_name, fingerprint, start_key, origin, parent, tags, note, notebook, cell, opened, seal,
  ended_at IS NULL AND EXISTS (
    SELECT 1 FROM events
    WHERE place BETWEEN executions.key << 32 | last_sequence + 1 AND executions.key << 32 | 4294967295
  )
"""
RECORD = f"SELECT {COLUMNS} FROM executions"  # noqa: S608 - our own text
# As BLOB, so that a damaged text reaches the decoder, which can say where it is.
_RECORDS = """
SELECT place, recorded_at, type, id, path, step, CAST(data AS BLOB), checksum FROM events
WHERE place >= ? AND place <= ? ORDER BY place
"""
_FACTS = """
SELECT events.place, events.recorded_at, events.type, events.id, events.path, events.step, CAST(events.data AS BLOB),
  events.checksum, before.place, before.type, before.checksum
FROM events LEFT JOIN events AS before ON before.place = (
  SELECT max(place) FROM events AS earlier WHERE earlier.place > :first AND earlier.place < events.place
)
WHERE events.place IN (
  SELECT (SELECT max(place) FROM events AS holder WHERE holder.place > :first AND holder.place <= value)
  FROM json_each(:places)
)
"""
# The record that holds an event, or the last one before it, and the one before that.
_AROUND = "SELECT place, type, checksum FROM events WHERE place > ? AND place <= ? ORDER BY place DESC LIMIT 2"
_FIRST_CHECKED = """
SELECT recorded_at, name, events.id, path, step, CAST(data AS BLOB), checksum
FROM events JOIN event_types ON number = type
WHERE place > ? AND place <= ? AND checksum IS NOT NULL ORDER BY place LIMIT 1
"""


_TEXT = (str, NoneType)
LINE_TYPES: Types = (
    *(str, str, int, (int, NoneType), int, _TEXT, int, (int, NoneType), int, str),
    *(str, _TEXT, _TEXT, str, _TEXT, str, _TEXT, _TEXT, _TEXT, int),
)
"""Those of the columns of a `Line`."""


def load_line(row: tuple[Any, ...]) -> Line:
    """Return a row of `RECORD`.

    Raises
    ------
    CorruptStoreError
        It is not what was written.
    """
    *columns, seal, _ = row
    line = Line(*columns)
    if line.seal() != seal:
        raise CorruptStoreError(
            f"the row of execution {line.id} does not have the checksum it was written with, so what lists show of it "
            "is not to be trusted; `divebook check` says what is still readable"
        )
    return line


def load_decoded(
    connection: sqlite3.Connection, types: EventTypes, sealing: Sealing, log: Log, *, after: int, last: int
) -> list[Record]:
    """Read the records that hold the events above `after` up to `last`; raises as `load_records` does."""
    means = (sealing, fetcher(connection, sealing))
    return [_decoded(record, means, log) for record in load_records(connection, types, log, after=after, last=last)]


def load_facts(
    connection: sqlite3.Connection, types: EventTypes, sealing: Sealing, log: Log, sequences: Sequence[int]
) -> dict[int, Payload]:
    """Read what some events say, wherever in the log they stand, with one query.

    Raises
    ------
    CorruptStoreError
        One of them is missing, or its record is not what was written.
    """
    means = (sealing, fetcher(connection, sealing))
    wanted = set(sequences)
    facts = dict[int, Payload]()
    for *row, earlier, number, kept in _around_facts(connection, log, sequences):
        record = _stored(types, log, row, connection)
        before = kept
        if earlier is None and record.sequence > 1:  # the first one of a part
            _, before = start(connection, types, log, record.sequence - 1)
        if (record.checksum, before) != (None, None) and record.checksum != record.checksum_after(before or 0):
            raise _damaged(log, record, "it does not have the checksum it was written with")
        if earlier is not None:
            _check_place(connection, types, log, row[0], (earlier, number))
        read = enumerate(_decoded(record, means, log).facts, record.sequence)
        facts |= {sequence: fact for sequence, fact in read if sequence in wanted}
    if missing := wanted - facts.keys():
        raise CorruptStoreError(f"event {min(missing)} of execution {log.execution_id} is missing")
    return facts


def _around_facts(connection: sqlite3.Connection, log: Log, sequences: Sequence[int]) -> Iterator[Any]:
    for key, after, upto in log.parts:
        places = [place_of(key, sequence) for sequence in sequences if after < sequence <= upto]
        if places:
            yield from connection.execute(_FACTS, {"places": encode(places).decode(), "first": place_of(key, after)})


def _stored(
    types: EventTypes, log: Log, row: Sequence[Any], connection: sqlite3.Connection | sqlite3.Cursor
) -> StoredRecord:
    place, recorded_at, number, packed, path, step, raw, kept = row
    name = types.names.get(number) or _type_name(types, number, log, place & MOST, connection)
    return StoredRecord(place & MOST, recorded_at, name, unpack_id(packed), path, step, raw, kept)


def load_records(
    connection: sqlite3.Connection | sqlite3.Cursor, types: EventTypes, log: Log, *, after: int, last: int
) -> Iterator[StoredRecord]:
    """Give the records that hold the events above `after` up to `last`, each once it has been found sound.

    The checksums cost about 1 microsecond a record; tests/store/test_damage.py shows what they find.

    Raises
    ------
    CorruptStoreError
        A record is missing, or is not what was written.
    """
    expected, checksum = start(connection, types, log, after)
    unchecked = False  # whether this record may have no checksum
    ranges = log.ranges(expected, last)
    # On a cursor of its own: what is asked meanwhile on this one would end the rows
    # (test_a_log_that_another_process_went_on_with_in_new_types_is_followed_to_its_end).
    apart = connection.connection if isinstance(connection, sqlite3.Cursor) else connection
    for row in chain.from_iterable(apart.execute(_RECORDS, places) for places in ranges):
        place = row[0]
        kept = row[-1]
        sequence = place & MOST
        if sequence > expected:
            break
        record = _stored(types, log, row, connection)
        if sequence < expected:
            raise _damaged(log, record, "it stands inside the record before it")
        if kept is None and checksum is None:
            unchecked = unchecked or _is_older(connection, log, sequence)
        expected = record.last_sequence + 1
        if not unchecked or checksum is not None or kept is not None:
            checksum = record.checksum_after(checksum or 0)
            if checksum != kept or (expected == log.last_sequence + 1 and checksum != log.checksum):
                raise _damaged(log, record, "it does not have the checksum it was written with")
        yield record
    if expected <= min(last, log.last_sequence):
        raise CorruptStoreError(
            f"event {expected} of execution {log.execution_id} is missing; the events before it are readable"
        )


def start(
    connection: sqlite3.Connection | sqlite3.Cursor, types: EventTypes, log: Log, after: int
) -> tuple[int, int | None]:
    """Return the first sequence of the record that holds the event after `after`, and the checksum before it.

    Raises
    ------
    CorruptStoreError
        It stands where no record can begin.
    """
    if not after:
        return 1, None
    around: list[Any] = []
    for first, last in reversed(log.ranges(1, after + 1)):
        around += connection.execute(_AROUND, (first - 1, last)).fetchall()
        if len(around) > 1:
            break
    if len(around) < 2:
        return around[0][0] & MOST if around else 1, None
    (place, *_), (earlier, number, checksum), *_ = around
    _check_place(connection, types, log, place, (earlier, number))
    return place & MOST, checksum


def _check_place(
    connection: sqlite3.Connection | sqlite3.Cursor, types: EventTypes, log: Log, place: int, before: tuple[int, int]
) -> None:
    """Raise CorruptStoreError if a record does not begin where the one before it ends.

    A checksum does not cover places: a record that moved into the one before it, or away from it, still follows it
    (tests/simulation/damaged.py). How far a record reached that is damaged itself, nobody can tell.
    """
    earlier, number = before
    sequence = earlier & MOST
    if sequence + width_of(types.names.get(number, "")) == place & MOST:
        return
    try:
        (record,) = load_records(connection, types, log, after=sequence - 1, last=sequence)
    except CorruptStoreError:
        return
    if record.last_sequence + 1 != place & MOST:
        what = f"a record that claims to begin with event {place & MOST}"
        raise _damage(log, what, f"the one before it ends with event {record.last_sequence}")


def _is_older(connection: sqlite3.Connection | sqlite3.Cursor, log: Log, sequence: int) -> bool:
    """Return whether an event without a checksum was written before there were any.

    Then the first event that has one begins the chain; what only lost its own leaves a chain that began before it.
    """
    if not log.checksum:
        return True
    ranges = log.ranges(sequence + 1, log.last_sequence)
    looked_at = (connection.execute(_FIRST_CHECKED, (first - 1, last)).fetchone() for first, last in ranges)
    found = next(filter(None, looked_at), None)
    if found is None:
        return False
    recorded_at, name, packed, path, step, raw, kept = found
    return bool(crc32(raw, crc32(head(recorded_at, name, unpack_id(packed), path, step))) == kept)


def _type_name(
    types: EventTypes, number: int, log: Log, sequence: int, connection: sqlite3.Connection | sqlite3.Cursor
) -> str:
    try:
        return types.name(number, connection)
    except CorruptStoreError as error:
        raise _damage(log, f"event {sequence}", error) from error


def _damaged(log: Log, record: StoredRecord, why: object) -> CorruptStoreError:
    first = record.sequence
    last = record.last_sequence
    return _damage(log, f"event {first}" if first == last else f"the record of events {first} to {last}", why)


def _damage(log: Log, what: str, why: object) -> CorruptStoreError:
    return CorruptStoreError(
        f"{what} of execution {log.execution_id} is damaged: {why}. The events before it and the other executions are "
        "readable"
    )


def _decoded(record: StoredRecord, means: tuple[Sealing, Fetch], log: Log) -> Record:
    sealing, fetch = means
    try:
        return record.record(log.execution_id, sealing.open_whole(record.payload, fetch))
    except (NewerStoreError, DecryptionError) as error:
        raise type(error)(f"event {record.sequence} of execution {log.execution_id}: {error}") from error
    # Those after the first: JSON that is sound, but of another shape than the payload's.
    except (CorruptStoreError, TypeError, AttributeError, ValueError) as error:
        raise _damaged(log, record, error) from error
