"""Store files damaged at random: whatever is read is what was written, or is refused with an error of ours.

`python -m benchmarks.damage` tries as many as the project promises; the suite tries some (tests/store/test_damage.py).
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sqlite3
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from divebook.environment import Environment
from divebook.errors import DivebookError
from divebook.events.codec import event_to_dict
from divebook.execution.clock import SystemClock
from divebook.store import EventStore, Message, SqliteStore
from divebook.store.check import check
from divebook.workflow.definition import Step, Workflow

Values: TypeAlias = dict[tuple[str, ...], Any]
"""What a store says, by what was asked."""

EQUAL, REFUSED, WRONG, RAW = "equal", "refused", "wrong value", "raw error"


class _Ticks(SystemClock):
    """A clock that gives every file the same times."""

    def __init__(self) -> None:
        self._now = 1_700_000_000_000_000

    def now(self) -> int:
        """Return the next millisecond."""
        self._now += 1000
        return self._now


class _Chance:
    """Chance that gives every file the same ids."""

    def __init__(self) -> None:
        self.bits = Random(1).getrandbits  # noqa: S311 - seeded


def make_store(folder: Path) -> Path:
    """Write a store with a large value, a packed row, an open question, a message and a checkpoint; return the file."""
    path = folder / "whole.db"
    steps = [
        Step("make", script='"rows " * 20000', store="rows", next=["count"]),
        Step("count", script="len(state.rows)", store="n", next=["ask"]),
        Step("ask", ask="Fine?"),
    ]
    with SqliteStore(path, durability="relaxed") as store:
        environment = Environment(store=store, clock=_Ticks(), chance=_Chance())
        for _ in range(2):
            waiting = environment.start(Workflow("w", steps)).wait()
            store.post(Message(waiting.id, "signal", "note", {"amount": 5}, "ann", 1))
        short = Workflow("short", [Step("count", script="1 + 1", store="n")], inputs=["text"])
        environment.start(short, {"text": "word " * 600}).wait()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def read_all(store: EventStore, ids: list[str]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Give every value of a store that can be read, in plain form."""
    for record in _tried(store.records) or ():
        yield ("listed", record.execution_id), asdict(record)
    for lease in _tried(store.leases) or ():
        yield ("lease", lease.execution_id), asdict(lease)
    for look in (store.orphans, store.asking, store.untaken):
        _tried(look)
    for name in ids:
        yield from _read_one(store, name)


def _read_one(store: EventStore, name: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for asked, read in (("record", store.record), ("checkpoint", store.checkpoint)):
        found = _tried(read, name)
        if found is not None:
            yield (asked, name), found
    events, _ = _tried(store.read_sound, name) or ((), None)
    for event in events:
        yield ("event", name, str(event.sequence)), event_to_dict(event)
    for message in _tried(store.inbox, name) or ():
        yield ("message", name, message.key), (message.payload, message.kind, message.source)


def _tried(read: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except DivebookError:
        return None


class Damage:
    """A sound store, and what becomes of changed copies of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.whole = make_store(folder).read_bytes()
        with SqliteStore(folder / "whole.db") as store:
            self._ids = store.ids()
            self._sound = dict(read_all(store, self._ids))
            assert check(store).ok, check(store).all_damages()

    def flipped(self, random: Random) -> bytes:
        """Return the file with one byte changed."""
        place, mask = random.randrange(len(self.whole)), random.randrange(1, 256)
        return b"".join((self.whole[:place], bytes([self.whole[place] ^ mask]), self.whole[place + 1 :]))

    def cut(self, random: Random) -> bytes:
        """Return the file without its end."""
        return self.whole[: random.randrange(len(self.whole))]

    def outcome(self, content: bytes) -> tuple[str, str]:
        """Return what becomes of a file with that content, and more about it where it is bad."""
        path = self._folder / "damaged.db"
        for beside in self._folder.glob("damaged.db*"):
            beside.unlink()
        path.write_bytes(content)
        try:
            return self._read(path)
        except DivebookError:
            return REFUSED, ""
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            return RAW, "".join(traceback.format_exception(error))

    def _read(self, path: Path) -> tuple[str, str]:
        with SqliteStore(path, durability="relaxed") as store:
            values = dict(read_all(store, self._ids))
            report = check(store)
        wrong = [asked for asked, value in values.items() if self._sound.get(asked) != value]
        if wrong:
            return WRONG, str(wrong[0])
        lost = [asked for asked in self._sound if asked not in values and asked[0] != "checkpoint"]
        if lost and report.ok:
            return WRONG, f"{lost[0]} is gone, and check says nothing"
        return (REFUSED if lost or not report.ok else EQUAL), ""


def try_many(seed: int, flips: int, cuts: int) -> tuple[Counter[str], list[str]]:
    """Damage a store so often; return how often each outcome came, and what was bad."""
    random, counts, bad = Random(seed), Counter[str](), list[str]()  # noqa: S311 - seeded
    folder = Path(tempfile.mkdtemp())
    try:
        damage = Damage(folder)
        for make, times in ((damage.flipped, flips), (damage.cut, cuts)):
            for number in range(times):
                outcome, more = damage.outcome(make(random))
                counts[outcome] += 1
                if outcome in (WRONG, RAW):
                    bad.append(f"seed {seed}, {make.__name__} {number}: {outcome}: {more}")
    finally:
        shutil.rmtree(folder)
    return counts, bad


def main() -> None:
    """Print what became of the files; exit code 1 if a value was wrong or an error not ours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=2000)
    parser.add_argument("--cuts", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    logging.getLogger("divebook").setLevel(logging.ERROR)  # it warns of damage, as it should
    counts, bad = try_many(chosen.seed, chosen.flips, chosen.cuts)
    print(f"seed {chosen.seed}: {chosen.flips} bytes changed, {chosen.cuts} files cut: {dict(counts)}", *bad, sep="\n")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
