"""``python -m benchmarks.soak [--executions N] [--store PATH]``: many executions of all kinds in one process.

They complete, fail, are tried again, ask, wait for signals, start others, are cancelled and resumed. Meanwhile memory,
open files, threads and tasks are looked at: what grows with the number of executions, by the slope of all looks but the
first ones, is a leak. At the end every log is checked. Prints JSON lines; ends with 1 if something grew, hung, failed,
is damaged, or came to another end than it should.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import combinations, cycle, islice
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeAlias

from benchmarks.reporting import lines_of
from divebook import Environment
from divebook.definitions.reader import read_definitions
from divebook.runtime.loop import ENGINE
from divebook.steps.actions import Action
from divebook.stores import EventStore, SqliteStore
from divebook.stores.maintenance import check

say = lines_of("soak")

AT_ONCE, LOOKS = 16, 20
PER_EXECUTION, ALLOWANCE = 400, 16_000_000
"""Bytes that memory may grow by for each execution, and at all: a process that works does not stand still."""
SPARE = 4
"""Files, threads and tasks that may be more than they were."""
PATIENCE_SECONDS, MOST_FAULTS = 120, 20
"""How long one execution may take, and after how many that went wrong it is enough."""
DEFINITIONS = """
Workflows:
- {Name: plain, Steps: [{Name: a, Action: one, Store: x}, {Name: b, Action: one, Store: y}, {Name: c, Action: one}]}
- {Name: asks, Steps: [{Name: ask, Ask: {Question: Go on?, Kind: confirmation}}, {Name: b, Action: one}]}
- {Name: fails, Steps: [{Name: a, Action: one}, {Name: b, Action: fail}]}
- Name: tries
  Inputs: [{Name: number}]
  Steps: [{Name: a, Action: flaky, Parameters: {number: $(inputs.number)}, Retry: {Attempts: 2, Seconds: 0}}]
- {Name: waits, Steps: [{Name: a, Type: wait, Signal: go, Store: x}, {Name: b, Action: one}]}
- {Name: parent, Steps: [{Name: a, Type: workflow, Workflow: child}]}
- {Name: child, Steps: [{Name: a, Action: one}]}
"""


class World:
    """What the executions call, and how each kind of them is brought to its end."""

    def __init__(self, store: EventStore) -> None:
        self._tried: set[int] = set()
        self._numbers = iter(range(sys.maxsize))
        actions = [Action("one", self._one), Action("fail", self._fail), Action("flaky", self._flaky, idempotent=True)]
        self.environment = Environment(store=store, actions=actions)
        self.environment.define(read_definitions(DEFINITIONS, source_name="soak"))

    async def _one(self) -> int:
        return 1

    async def _fail(self) -> None:
        raise RuntimeError("as planned")

    async def _flaky(self, number: int) -> int:
        """Fail the first time."""
        if number not in self._tried:
            self._tried.add(number)
            raise RuntimeError("try again")
        self._tried.discard(number)
        return number

    async def plain(self) -> Counter[str]:
        """Run three steps."""
        await self.environment.start("plain")
        return Counter(completed=1)

    async def answered(self) -> Counter[str]:
        """Ask, and be answered."""
        execution = await self.environment.start("asks")
        (question,) = execution.open_questions
        await asyncio.to_thread(execution.answer, question.id, response=True)
        await execution
        return Counter(completed=1)

    async def cancelled(self) -> Counter[str]:
        """Ask, and be cancelled."""
        execution = await self.environment.start("asks")
        await asyncio.to_thread(execution.cancel)
        await execution
        return Counter(cancelled=1)

    async def failed(self) -> Counter[str]:
        """Fail."""
        await self.environment.start("fails")
        return Counter(failed=1)

    async def resumed(self) -> Counter[str]:
        """Fail, be resumed, and fail again."""
        execution = await self.environment.start("fails")
        await asyncio.to_thread(execution.resume)
        await execution
        return Counter(failed=1)

    async def tried_again(self) -> Counter[str]:
        """Fail once, and be tried again."""
        await self.environment.start("tries", {"number": next(self._numbers)})
        return Counter(completed=1)

    async def signalled(self) -> Counter[str]:
        """Wait for a signal."""
        execution = await self.environment.start("waits")
        await asyncio.to_thread(execution.signal, "go", 1)
        await execution
        return Counter(completed=1)

    async def started_another(self) -> Counter[str]:
        """Start another one, and wait for its end."""
        await self.environment.start("parent")
        return Counter(completed=2)


Life: TypeAlias = Callable[[World], Awaitable[Counter[str]]]
LIVES: dict[Life, int] = {
    World.plain: 13,
    World.answered: 2,
    World.cancelled: 1,
    World.failed: 1,
    World.resumed: 1,
    World.tried_again: 1,
    World.signalled: 1,
    World.started_another: 1,
}
"""Each kind of execution, and how many of them there are among so many."""
_ROUND = [life for life, share in LIVES.items() for _ in range(share)]


class Look(NamedTuple):
    """What the process holds at one moment."""

    executions: int
    memory: int
    """Bytes."""
    files: int
    threads: int
    tasks: int


def look(executions: int) -> Look:
    """Look at this process."""
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    memory = int(status.partition("VmRSS:")[2].split()[0]) * 1024
    files, tasks = len(list(Path("/proc/self/fd").iterdir())), len(asyncio.all_tasks(ENGINE.loop))
    return Look(executions, memory, files, threading.active_count(), tasks)


def grown(looks: list[Look]) -> list[str]:
    """Return what grows with the number of executions, once a process has warmed up."""
    warm = looks[len(looks) // 4 :]
    more = warm[-1].executions - warm[0].executions
    allowed = {"memory": ALLOWANCE + PER_EXECUTION * more, "files": SPARE, "threads": SPARE, "tasks": SPARE}
    found = []
    for name, most in allowed.items():
        rise = slope([(seen.executions, getattr(seen, name)) for seen in warm])
        if rise * more > most:
            found.append(f"{name} grow by {rise:,.4g} an execution, by {rise * more:,.0f} from {warm[0]} to {warm[-1]}")
    return found


def slope(points: Sequence[tuple[int, int]]) -> float:
    """Return how steeply points rise: the median of the slopes of all pairs, which a few odd ones do not change."""
    pairs = combinations(points, 2)
    return median([(last[1] - first[1]) / (last[0] - first[0]) for first, last in pairs if last[0] > first[0]] or [0.0])


class Soaking:
    """Runs executions of all kinds, so many at once.

    Attributes
    ----------
    ends
        How they ended.
    looks
        What was seen meanwhile.
    faults
        Lives that hung or raised what they should not.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.ends: Counter[str] = Counter()
        self.looks: list[Look] = []
        self.faults: list[str] = []
        self._lives = cycle(_ROUND)

    async def run(self, executions: int, see: Callable[[Look], object]) -> None:
        """Run so many, and look now and then."""
        for part in range(LOOKS):
            wanted = max(executions * (part + 1) // LOOKS - self.ends.total(), 0)
            shares = [wanted // AT_ONCE + (number < wanted % AT_ONCE) for number in range(AT_ONCE)]
            await asyncio.gather(*map(self._work, shares))
            self.looks.append(look(self.ends.total()))
            see(self.looks[-1])
            if len(self.faults) >= MOST_FAULTS:
                return

    async def _work(self, count: int) -> None:
        for life in islice(self._lives, count):
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    self.ends.update(await life(self.world))
            except Exception as error:  # noqa: BLE001 - whatever goes wrong is what is looked for
                self.faults.append(f"{life.__name__}: {type(error).__name__}: {error}")
                if len(self.faults) >= MOST_FAULTS:
                    return


def main() -> int:
    """Soak, and say what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--executions", type=int, default=200_000)
    parser.add_argument("--store", type=Path, help="keep the store there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        path = arguments.store or Path(folder) / "soak.db"
        with SqliteStore(path, durability="relaxed") as store:
            found = run(store, arguments.executions)
    return 1 if found else 0


def run(store: EventStore, executions: int) -> list[str]:
    """Soak a store, check it, print both; return what is wrong."""
    began = time.monotonic()
    soaking = Soaking(World(store))

    def see(seen: Look) -> None:
        seconds = time.monotonic() - began
        pace = {"seconds": round(seconds), "a_second": round(seen.executions / seconds), "of": executions}
        say("progress", **seen._asdict(), **pace, faults=len(soaking.faults))

    asyncio.run(soaking.run(executions, see))
    soaking.world.environment.close()
    ends, looks = soaking.ends, soaking.looks
    seconds, worked = time.monotonic() - began, time.process_time()
    found = soaking.faults + grown(looks) + [damage.text for damage in check(store).all_damages()]
    stored = Counter(record.status for record in store.records())
    if stored != ends:
        found.append(f"the store has {dict(stored)}, and there were {dict(ends)}")
    for text in found:
        say("finding", text=text)
    checking = round(time.monotonic() - began - seconds, 1)
    took = {"seconds": round(seconds, 1), "of a processor": round(worked, 1), "checking": checking}
    per = round(slope([(seen.executions, seen.memory) for seen in looks[len(looks) // 4 :]]))
    say("done", **took, bytes_an_execution=per, a_second=round(ends.total() / seconds), **ends, found=len(found))
    return found


if __name__ == "__main__":
    sys.exit(main())
