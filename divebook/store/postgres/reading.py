"""Reading a log: its records as one look finds them, each once it is sure that it is what was written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from divebook.errors import CorruptStoreError, NewerStoreError, SealedError
from divebook.events.record import Record
from divebook.store.blobs import Fetch, Packed, unpack
from divebook.store.codec import Sealing
from divebook.store.facts import width_of
from divebook.store.known_ids import Ids
from divebook.store.postgres.connections import Connections
from divebook.store.postgres.rows import TypeNumbers, unpacked
from divebook.store.postgres.texts import escaped
from divebook.store.upkeep import StoredRecord

MOST = 0xFFFF_FFFF
"""The highest number that an event can have."""
_READ = "SELECT * FROM divebook.read_log(%s, %s, %s)"
_IDS = "SELECT id, type FROM divebook.read_log(%s, 0, %s) WHERE sequence > 0"
_AROUND = """
SELECT found.* FROM unnest(%s::bigint[]) AS wanted(sequence)
CROSS JOIN LATERAL divebook.read_log(%s, wanted.sequence - 1, wanted.sequence) AS found
"""
_BLOB = "SELECT compressed, data FROM divebook.blobs WHERE digest = %s"


class FoundLog(NamedTuple):
    """What one look at a log finds."""

    execution_id: str
    key: int
    last_sequence: int
    checksum: int
    """That of the last record, by the execution's row."""
    rows: list[tuple[Any, ...]]
    """The wanted records, after one or two that stand before them; the first column says whose execution's they are."""


class LogReader:
    """Reads logs."""

    def __init__(self, connections: Connections, types: TypeNumbers) -> None:
        self._connections, self._types = connections, types

    def find(self, execution_id: str, after: int, last: int) -> FoundLog | None:
        """Return the records that hold the events above `after` up to `last`, as they are; None if there is no log."""
        wanted = (escaped(execution_id), min(after, MOST), min(last, MOST))
        rows = self._connections.read(_READ, wanted)
        if not rows:
            return None
        key, _, length, *_, checksum = rows[0]
        return FoundLog(execution_id, key, length, checksum, rows[1:])

    def records(self, log: FoundLog, last: int) -> Iterator[StoredRecord]:
        """Give the records of a log, each once it has been found sound; one before the wanted ones does not matter.

        Raises
        ------
        CorruptStoreError
            A record is missing, or is not what was written.
        """
        found = [self._types.stored(row) for row in log.rows]
        expected, checksum = 1, 0
        if found and found[0].sequence > 1:
            expected, checksum = found[0].last_sequence + 1, found[0].checksum or 0
            del found[0]
        for record in found:
            if record.sequence != expected:
                break
            expected, checksum = record.last_sequence + 1, record.checksum_after(checksum)
            if checksum != record.checksum or (record.last_sequence == log.last_sequence and checksum != log.checksum):
                raise _damaged(log, record, "it does not have the checksum it was written with")
            yield record
        if expected <= min(last, log.last_sequence):
            raise CorruptStoreError(
                f"event {expected} of execution {log.execution_id} is missing; the events before it are readable"
            )

    def decoded(self, log: FoundLog, last: int, sealing: Sealing) -> list[Record]:
        """Return the records of a log with what they say; raises as `records` does."""
        fetch = self.fetcher(sealing)
        return [_decoded(record, sealing, fetch, log) for record in self.records(log, last)]

    def around(self, execution_id: str, sequences: Sequence[int]) -> list[FoundLog]:
        """Return, for each event, what one look at the record that holds it finds; nothing if there is no log."""
        rows = self._connections.read(_AROUND, (list(sequences), escaped(execution_id)))
        looks: list[FoundLog] = []
        for row in rows:
            if row[1] == 0:
                looks.append(FoundLog(execution_id, row[0], row[2], row[-1], []))
            else:
                looks[-1].rows.append(row)
        return looks

    def ids(self, execution_id: str) -> list[Ids]:
        """Return the ids of the records of a log."""
        rows = self._connections.read(_IDS, (escaped(execution_id), MOST))
        return [(unpacked(event_id), width_of(self._types.name(number))) for event_id, number in rows]

    def blob(self, digest: bytes) -> bytes | None:
        """Return a content as it was written; None if it is missing, CorruptStoreError if it cannot be decompressed."""
        rows = self._connections.read(_BLOB, (digest,))
        return unpack(Packed(*rows[0])) if rows else None

    def fetcher(self, sealing: Sealing) -> Fetch:
        """Return a function that loads and verifies each content once."""
        loaded: dict[bytes, bytes | None] = {}

        def fetch(digest: bytes) -> bytes | None:
            if digest not in loaded:
                loaded[digest] = sealing.open_content(digest, self.blob(digest))
            return loaded[digest]

        return fetch


def _damaged(log: FoundLog, record: StoredRecord, why: object) -> CorruptStoreError:
    first, last = record.sequence, record.last_sequence
    what = f"event {first}" if first == last else f"the record of events {first} to {last}"
    return CorruptStoreError(
        f"{what} of execution {log.execution_id} is damaged: {why}. The events before it and the other executions are "
        "readable"
    )


def _decoded(record: StoredRecord, sealing: Sealing, fetch: Fetch, log: FoundLog) -> Record:
    try:
        return record.record(log.execution_id, sealing.open_whole(record.payload, fetch))
    except (NewerStoreError, SealedError) as error:
        raise type(error)(f"event {record.sequence} of execution {log.execution_id}: {error}") from error
    # Those after the first: JSON that is sound, but of another shape than the payload's.
    except (CorruptStoreError, TypeError, AttributeError, ValueError) as error:
        raise _damaged(log, record, error) from error
