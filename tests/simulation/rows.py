"""Rows of a log that are not as they were written: torn, changed, left out, repeated, exchanged, of another log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeAlias

from divebook.stores.backend import StoredRecord
from divebook.stores.encoding import JOINT

Rows: TypeAlias = list[StoredRecord]
UNKNOWN = "step_dreamt"
"""A type that no version has."""


@dataclass(frozen=True)
class Damage:
    """What became of the rows of a log."""

    kind: str
    rows: Rows


def damages(random: Random, rows: Sequence[StoredRecord], others: Sequence[StoredRecord]) -> list[Damage]:
    """Damage a log in every way there is, each time anew; `others` are rows of another log."""
    ways = [make(random, list(rows), others) for make in WAYS.values()]
    return [Damage(kind, sorted(way, key=lambda row: row.sequence)) for kind, way in zip(WAYS, ways, strict=True)]


def _torn(random: Random, rows: Rows, _others: Sequence[StoredRecord]) -> Rows:
    """Cut a row off inside its data: the last one, as a disk does, or any."""
    place = random.choice([len(rows) - 1, random.randrange(len(rows))])
    payload = rows[place].payload
    rows[place] = replace(rows[place], payload=payload[: random.randrange(len(payload))])
    return rows


def _narrowed(random: Random, rows: Rows, others: Sequence[StoredRecord]) -> Rows:
    """Leave out the last facts of a row, in its data and perhaps in its type."""
    wide = [place for place, row in enumerate(rows) if JOINT in row.type]
    if not wide:
        return _torn(random, rows, others)
    place = random.choice(wide)
    names, lines = rows[place].type.split(JOINT), rows[place].payload.split(b",\n")
    left = random.randrange(1, len(names))
    payload = lines[0][1:] if left == 1 else b",\n".join(lines[:left]) + b"]"
    kind = JOINT.join(names[:left]) if random.random() < 0.7 else rows[place].type
    rows[place] = replace(rows[place], type=kind, payload=payload)
    return rows


def _changed(random: Random, rows: Rows, _others: Sequence[StoredRecord]) -> Rows:
    """Change one field of a row by a little."""
    place = random.randrange(len(rows))
    row, kinds = rows[place], sorted({row.type for row in rows} | {UNKNOWN})
    other = random.choice([kind for kind in kinds if kind != row.type])
    last = "0" if row.id[-1] != "0" else "1"
    rows[place] = random.choice(
        [
            replace(row, recorded_at=row.recorded_at + 1),
            replace(row, type=other),
            replace(row, id=row.id[:-1] + last),
            replace(row, path=row.path + "-1"),
            replace(row, step=row.step + "x"),
            replace(row, payload=_flipped(random, row.payload)),
            replace(row, payload=_flipped(random, row.payload)),
            replace(row, checksum=None if random.random() < 0.3 else (row.checksum or 0) ^ 1 << random.randrange(32)),
        ]
    )
    return rows


def _flipped(random: Random, payload: bytes) -> bytes:
    place, bit = random.randrange(len(payload)), 1 << random.randrange(8)
    return b"".join((payload[:place], bytes([payload[place] ^ bit]), payload[place + 1 :]))


def _dropped(random: Random, rows: Rows, _others: Sequence[StoredRecord]) -> Rows:
    """Lose a few rows, perhaps the last ones, but not all."""
    first = random.randrange(len(rows))
    return rows[:first] + rows[first + random.choice([1, 1, 2, 5]) :] or rows


def _repeated(random: Random, rows: Rows, _others: Sequence[StoredRecord]) -> Rows:
    """Have a row stand where another one ends, or inside one, as well."""
    return _put_in(random, rows, random.choice(rows))


def _put_in(random: Random, rows: Rows, row: StoredRecord) -> Rows:
    """Put a row to where none begins: after the last one, or inside one."""
    inside = [sequence for row in rows for sequence in range(row.sequence + 1, row.last_sequence + 1)]
    end = rows[-1].last_sequence + 1
    return [*rows, replace(row, sequence=random.choice([end, random.choice([*inside, end])]))]


def _exchanged(random: Random, rows: Rows, _others: Sequence[StoredRecord]) -> Rows:
    """Have two rows change their places."""
    if len(rows) > 1:
        one, two = random.sample(range(len(rows)), 2)
        sequences = rows[one].sequence, rows[two].sequence
        rows[one], rows[two] = replace(rows[two], sequence=sequences[0]), replace(rows[one], sequence=sequences[1])
    return rows


def _foreign(random: Random, rows: Rows, others: Sequence[StoredRecord]) -> Rows:
    """Put a row of another log in: in place of one, after the end, or inside one."""
    row = random.choice(others)
    if random.random() < 0.5:
        return _put_in(random, rows, row)
    place = random.randrange(len(rows))
    same = [other for other in others if other.sequence == rows[place].sequence]
    rows[place] = replace(random.choice([row, *same]), sequence=rows[place].sequence)
    return rows


WAYS: dict[str, Callable[[Random, Rows, Sequence[StoredRecord]], Rows]] = {
    "torn": _torn,
    "narrowed": _narrowed,
    "changed": _changed,
    "dropped": _dropped,
    "repeated": _repeated,
    "exchanged": _exchanged,
    "foreign": _foreign,
}


def intact(rows: Sequence[StoredRecord], damaged: Sequence[StoredRecord]) -> Rows:
    """Return the rows that damage has left alone: each as it was, and with what it is compared with beside it.

    A checksum begins from that of the row before. Where a row and its checksum are gone, or others stand in their
    place, the one after it cannot be told from a changed one any more, and is refused as well.
    """
    before = {row.sequence: kept for row, kept in zip(rows[1:], rows, strict=False)}
    left = []
    for place, row in enumerate(damaged):
        mine, previous = before.get(row.sequence), damaged[place - 1] if place else None
        follows = (mine and mine.checksum) == (previous and previous.checksum)
        if follows and row in rows and all(other.sequence > row.last_sequence for other in damaged[place + 1 :]):
            left.append(row)
    return left
