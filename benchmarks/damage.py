"""Store files damaged at random: whatever is read is what was written, or is refused with an error of ours.

`python -m benchmarks.damage` tries as many as the project promises; the suite tries some (tests/store/test_damage.py).
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from benchmarks.harm import change_value, cut, flipped, make_store, make_wal
from divebook.errors import DivebookError
from divebook.events.codec import event_to_dict
from divebook.stores import EventStore, SqliteStore
from divebook.stores.maintenance import CheckReport, check

Values: TypeAlias = dict[tuple[str, ...], Any]
"""What a store says, by what was asked."""
LISTS = {"asking", "tagged"}
"""What is said by lists that are kept beside the logs, where it is enough that `check` finds what leads astray."""
Outcome: TypeAlias = tuple[str, str]
"""What became of a store, and more about it where that is bad."""

EQUAL, REFUSED, EARLIER, WRONG, RAW = "equal", "refused", "as of before", "wrong value", "raw error"


def read_all(store: EventStore, ids: list[str]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Give every value of a store that can be read, in plain form."""
    for record in _tried(store.records) or ():
        yield ("listed", record.execution_id), asdict(record)
    for lease in _tried(store.leases) or ():
        yield ("lease", lease.execution_id), asdict(lease)
    for look in (store.orphans, store.untaken):
        _tried(look)
    for execution_id, question in _tried(store.asking) or ():
        yield ("asking", execution_id), question
    for tag in ("a", "b"):
        for record in _tried(partial(store.records, tag=tag)) or ():
            yield ("tagged", tag, record.execution_id), True
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

    def flipped(self, random: Random) -> Outcome:
        """Change one byte of the file."""
        return self.outcome(flipped(self.whole, random))

    def cut(self, random: Random) -> Outcome:
        """Cut the file off."""
        return self.outcome(cut(self.whole, random))

    def changed(self, random: Random) -> Outcome:
        """Change a value of a row, as SQL has it."""
        path = self._copied(self.whole)
        changed = change_value(path, random)
        outcome, more = self._judged(path)
        return outcome, f"{changed}: {more}"

    def outcome(self, content: bytes) -> Outcome:
        """Return what becomes of a file with that content."""
        return self._judged(self._copied(content))

    def _copied(self, content: bytes, wal: bytes = b"") -> Path:
        path = self._folder / "damaged.db"
        for beside in self._folder.glob("damaged.db*"):
            beside.unlink()
        path.write_bytes(content)
        if wal:
            path.with_name("damaged.db-wal").write_bytes(wal)
        return path

    def _judged(self, path: Path) -> Outcome:
        try:
            return self._read(path)
        except DivebookError:
            return REFUSED, ""
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            return RAW, "".join(traceback.format_exception(error))

    def _read(self, path: Path) -> Outcome:
        values, report = _values(path, self._ids)
        wrong = [asked for asked, value in values.items() if self._sound.get(asked) != value]
        wrong = [asked for asked in wrong if report.ok or asked[0] not in LISTS]
        if wrong:
            return WRONG, str(wrong[0])
        lost = [asked for asked in self._sound if asked not in values and asked[0] != "checkpoint"]
        if lost and report.ok:
            return WRONG, f"{lost[0]} is gone, and check says nothing"
        return (REFUSED if lost or not report.ok else EQUAL), ""


class WalDamage(Damage):
    """A store whose latest commits are in its write-ahead log only, and what becomes of it where that is damaged.

    SQLite ends that log at the first page that does not have its checksum: what comes after is as if it had never been
    written, and nothing can tell. What is left must be a store as it was after one of its commits.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = make_wal(folder)
        path = self._copied(*self._files)
        with SqliteStore(path) as store:
            self._ids = store.ids()
        self._sound, report = _values(path, self._ids)
        assert report.ok, report.all_damages()

    def flipped(self, random: Random) -> Outcome:
        """Change one byte of the log."""
        return self._judged(self._copied(self._files.main, flipped(self._files.wal, random)))

    def cut(self, random: Random) -> Outcome:
        """Cut the log off."""
        return self._judged(self._copied(self._files.main, cut(self._files.wal, random)))

    def _read(self, path: Path) -> Outcome:
        values, report = _values(path, self._ids)
        if not report.ok:
            return WRONG, f"no commit left it like this: {report.all_damages()[0].text}"
        events = {asked: value for asked, value in values.items() if asked[0] == "event"}
        wrong = [asked for asked, value in events.items() if self._sound.get(asked) != value]
        if wrong:
            return WRONG, str(wrong[0])
        return (EQUAL if values == self._sound else EARLIER), ""


def _values(path: Path, ids: list[str]) -> tuple[Values, CheckReport]:
    with SqliteStore(path, durability="relaxed") as store:
        return dict(read_all(store, ids)), check(store)


def try_many(
    seed: int, flips: int, cuts: int, changes: int = 0, wals: int = 0
) -> tuple[dict[str, Counter[str]], list[str]]:
    """Damage a store so often, in each way; return how often each outcome came, and what was bad."""
    random, bad = Random(seed), list[str]()  # noqa: S311 - seeded
    with tempfile.TemporaryDirectory() as folder:
        whole, logged = Damage(Path(folder)), WalDamage(Path(folder))
        ways = {
            "bytes changed": (whole.flipped, flips),
            "files cut": (whole.cut, cuts),
            "values changed": (whole.changed, changes),
            "bytes of the write-ahead log changed": (logged.flipped, wals),
            "write-ahead logs cut": (logged.cut, wals),
        }
        counts = {way: Counter[str]() for way in ways}
        for way, (make, times) in ways.items():
            for number in range(times):
                outcome, more = make(random)
                counts[way][outcome] += 1
                if outcome in (WRONG, RAW):
                    bad.append(f"seed {seed}, {way}, {number}: {outcome}: {more}")
    return counts, bad


def main() -> None:
    """Print what became of the files; exit code 1 if a value was wrong or an error not ours."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.damage", description=__doc__)
    parser.add_argument("--flips", type=int, default=2000, help="bytes of the file")
    parser.add_argument("--cuts", type=int, default=600, help="files without their end")
    parser.add_argument("--changes", type=int, default=2000, help="values of rows")
    parser.add_argument("--wals", type=int, default=200, help="bytes of the write-ahead log, and as many cuts of it")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    logging.getLogger("divebook").setLevel(logging.ERROR)  # it warns of damage, as it should
    counts, bad = try_many(chosen.seed, chosen.flips, chosen.cuts, chosen.changes, chosen.wals)
    for way, outcomes in counts.items():
        print(f"seed {chosen.seed}: {outcomes.total()} {way}: {dict(outcomes)}")
    print(*bad, sep="\n", end="\n" if bad else "")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
