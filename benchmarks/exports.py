"""Exports damaged at random: what is imported is what was exported, or is refused with an error of ours.

`python -m benchmarks.exports` tries as many as the project promises; the suite some (tests/store/test_exports.py).
"""

from __future__ import annotations

import argparse
import io
from collections import Counter
from collections.abc import Callable
from random import Random

from divebook.definitions.definition import Workflow
from divebook.definitions.step import Each, Step
from divebook.environments.environment import Environment
from divebook.errors import DivebookError
from divebook.events.event import Event
from divebook.stores import EventStore, MemoryStore, transfer

EQUAL, REFUSED, WRONG, RAW = "equal", "refused", "wrong value", "raw error"


def logs() -> tuple[EventStore, str, str]:
    """Return a store with an execution that has completed and one that waits."""
    store = MemoryStore()
    environment = Environment(store=store)
    steps = [
        Step("make", script='"rows \\u00e9 " * 50', store="rows", next=["count"]),
        Step("count", script="n * 1.5", each=Each([1, 2, 3], as_="n"), store="counts", next=["ask"]),
    ]
    ended = environment.start(Workflow("ended", [*steps, Step("ask", script="b'bytes'", store="raw")])).wait()
    waiting = environment.start(Workflow("waits", [*steps, Step("ask", ask="Fine?")])).wait()
    return store, ended.id, waiting.id


class Exported:
    """Two sound exports, and what becomes of changed ones."""

    def __init__(self) -> None:
        store, ended, waiting = logs()
        self.lines, self._other = _lines(store, ended), _lines(store, waiting)
        self.whole = b"\n".join(self.lines)
        self._sound = (store.read(ended), "completed", False)

    def flipped(self, random: Random) -> bytes:
        """Return the file with one byte changed."""
        place, mask = random.randrange(len(self.whole)), random.randrange(1, 256)
        return b"".join((self.whole[:place], bytes([self.whole[place] ^ mask]), self.whole[place + 1 :]))

    def cut(self, random: Random) -> bytes:
        """Return the file without its end, every other time at the end of a line."""
        if random.random() < 1 / 2:
            return b"\n".join(self.lines[: random.randrange(len(self.lines))])
        return self.whole[: random.randrange(len(self.whole))]

    def reordered(self, random: Random) -> bytes:
        """Return the file with lines left out, repeated, exchanged, or of the other export."""
        place, other = (random.randrange(len(self.lines)) for _ in range(2))
        before, after = self.lines[:place], self.lines[place:]
        mixed = [*self.lines]
        mixed[place], mixed[other] = mixed[other], mixed[place]
        merged = [*self.lines[: max(place, 1)], *self._other[random.randrange(len(self._other)) :]]
        ways = [[*before, *after[1:]], [*before, self.lines[other], *after], mixed, merged]
        return b"\n".join(random.choice([*ways, [*self.lines, *self._other]]))

    def outcome(self, content: bytes) -> tuple[str, str]:
        """Return what becomes of a file with that content, and more about it where it is bad."""
        try:
            found = transfer.read(io.BytesIO(content))
        except DivebookError:
            return REFUSED, ""
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            return RAW, f"{type(error).__name__}: {error}"
        said: tuple[list[Event], str | None, bool] = (found.events, found.status, found.is_moved)
        return (EQUAL, "") if said == self._sound else (WRONG, f"{len(found.events)} events, {found.status}")


def _lines(store: EventStore, execution_id: str) -> list[bytes]:
    stream = io.BytesIO()
    transfer.export(store, execution_id, stream)
    return stream.getvalue().splitlines()


def try_many(seed: int, flips: int, cuts: int, orders: int) -> tuple[Counter[str], list[str]]:
    """Damage an export so often; return how often each outcome came, and what was bad."""
    random, counts, bad = Random(seed), Counter[str](), list[str]()  # noqa: S311 - seeded
    exported = Exported()
    ways: list[tuple[Callable[[Random], bytes], int]] = [
        (exported.flipped, flips),
        (exported.cut, cuts),
        (exported.reordered, orders),
    ]
    for make, times in ways:
        for number in range(times):
            outcome, more = exported.outcome(make(random))
            counts[outcome] += 1
            if outcome in (WRONG, RAW):
                bad.append(f"seed {seed}, {make.__name__} {number}: {outcome}: {more}")
    return counts, bad


def main() -> None:
    """Print what became of the files; exit code 1 if a value was wrong or an error not ours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=2000)
    parser.add_argument("--cuts", type=int, default=600)
    parser.add_argument("--orders", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    counts, bad = try_many(chosen.seed, chosen.flips, chosen.cuts, chosen.orders)
    tried = f"{chosen.flips} bytes changed, {chosen.cuts} files cut, {chosen.orders} with other lines"
    print(f"seed {chosen.seed}: {tried}: {dict(counts)}", *bad, sep="\n")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
