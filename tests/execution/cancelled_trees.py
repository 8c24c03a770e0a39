"""Cancel random trees of executions at random moments: ``python -m tests.execution.cancelled_trees [TREES] [SEED]``.

A tree is an execution with the executions that it starts, up to four levels deep: one after the other, side by side,
for each item of a step, below a time limit or a ``try``; each works, sleeps, asks, or waits for a signal. Each tree is
cancelled after a random number of commits: by the environment that drives it, by another one over the same file, or
while the workers of a queue drive it. In every second tree the process "dies" at a random commit after the cancellation
of the root was recorded: what the store holds at that moment is recovered by a new environment.

After ``cancel().wait()``, or after `recover`, nothing of the tree runs or waits, and no call of it is made any more. Of
a tree that is cancelled in its turn after it was resumed the same holds.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

from divebook import Each, Environment, Rollback, Step, Worker, Workflow
from divebook.engine.lifecycle import TERMINAL
from divebook.errors import ExecutionError
from divebook.events.event import to_microseconds
from divebook.execution.leases import HANDS
from divebook.steps.actions import Action
from divebook.store import MemoryStore, SqliteStore
from divebook.store.batches import Batch, records_of
from divebook.workflow.functions import step, workflow

DEPTH, MOST_CHILDREN, LAST_COMMIT = 4, 3, 40
MODES = ("here", "elsewhere", "queue")
SECONDS = 60
MADE: list[str] = []
"""The calls that were made, each as it began."""


def spec_of(random: Random, name: str = "0", depth: int = 0) -> dict:
    """Return what a random execution does, as plain data."""
    acts = []
    for number in range(random.randint(1, MOST_CHILDREN)):
        kinds = ["work", "work", "sleep", "ask", "signal"]
        if depth < DEPTH:
            kinds += ["run", "run", "run", "gather", "gather", "caught", "limited", "each"]
        kind = random.choice(kinds if depth else kinds[5:])
        count = random.randint(1, MOST_CHILDREN) if kind in ("gather", "each") else 1
        below = kind not in ("work", "sleep", "ask", "signal")
        children = [spec_of(random, f"{name}.{number}{i}", depth + 1) for i in range(count)] if below else []
        acts.append({"kind": kind, "name": f"{name}.{number}", "turns": random.randint(0, 20), "children": children})
    return {"acts": acts, "books": random.random() < 0.3}


@step(name="tree_work", idempotent=True)
async def work(name: str, turns: int) -> str:
    MADE.append(name)
    for _ in range(turns):
        await asyncio.sleep(0.0005)
    return name


def definitions() -> list[Workflow]:
    """Return the workflows; made anew, as the tests of one module forget what another has made at import."""

    @workflow(name="tree")
    async def tree(ctx, spec: dict):
        for act in spec["acts"]:
            children = [ctx.run("undone" if child["books"] else "tree", {"spec": child}) for child in act["children"]]
            if act["kind"] == "work":
                await work(act["name"], act["turns"])
            elif act["kind"] == "sleep":
                await ctx.sleep(3600)
            elif act["kind"] == "ask":
                await ctx.ask("Which one?")
            elif act["kind"] == "signal":
                await ctx.wait_signal("go")
            elif act["kind"] == "each":
                for child in children:
                    child.close()
                await ctx.run("each", {"specs": act["children"]})
            elif act["kind"] == "gather":
                await ctx.gather(*children)
            elif act["kind"] == "limited":
                try:
                    async with asyncio.timeout(act["turns"] / 100):
                        await children[0]
                except TimeoutError:
                    await work(act["name"], act["turns"])
            elif act["kind"] == "caught":
                try:
                    await children[0]
                except ExecutionError:
                    await work(act["name"], act["turns"])
            else:
                await children[0]

    undone = [
        Step("book", action="book", rollback=Rollback("unbook")),
        Step("below", workflow="tree", inputs={"spec": "$(inputs.spec)"}),
    ]
    each = Step(
        "all", workflow="tree", inputs={"spec": "$(state.spec)"}, each=Each("$(inputs.specs)", as_="spec", parallel=2)
    )
    return [tree, Workflow("undone", undone, inputs=["spec"]), Workflow("each", [each], inputs=["specs"])]


def world_over(store) -> Environment:
    async def nothing() -> None:
        """Book, or undo that: neither counts as a call that the tree makes after its end."""

    actions = [Action(name, nothing, idempotent=True) for name in ("book", "unbook")]
    return Environment(store=store, workflows=definitions(), actions=actions)


def copy_of(store) -> MemoryStore:
    """Return what a store holds at this moment, without leases: those that drove its executions have died."""
    copied = MemoryStore()
    for record in reversed(store.records()):
        batch = Batch(record.execution_id, 0, records_of(store.read(record.execution_id)), taken=record.taken)
        wake_at = None if record.wake_at is None else to_microseconds(record.wake_at)
        waits = "waiting" if record.status == "waiting" else None
        copied.append_all([replace(batch, status=waits, wake_at=wake_at)])
    return copied


class Commits:
    """Counts the commits to a store, and copies it at one of those that come after the end of the root."""

    def __init__(self, store, until: int, copies_at: int | None) -> None:
        self._store, self._left, self._copies_at = store, until, copies_at
        self.reached, self.copy = threading.Event(), None
        self.root = ""

    def __call__(self, execution_id: str, events) -> None:
        self._left -= 1
        if self._left <= 0:
            self.reached.set()
        if self._copies_at is None or not self.root or self.copy is not None:
            return
        if self._store.record(self.root).status == "cancelled":
            if not self._copies_at:
                self.copy = copy_of(self._store)
            self._copies_at -= 1


def unended(store) -> list[tuple[str, str]]:
    return [(record.execution_id, record.status) for record in store.records() if record.status not in TERMINAL]


def faults_of(world: Environment, when: str, *, drives: bool = True) -> list[str]:
    """Return what is wrong with a tree that was cancelled: what runs, waits, could be recovered, or is driven.

    Unless the environment `drives` it: what drove it then sees with the next step that it has ended.
    """
    faults = [f"{when}: {name} is {status}" for name, status in unended(world.store)]
    faults += [f"{when}: {record.execution_id} could be recovered" for record in world.recoverable()]
    driven = [record.execution_id for record in world.executions() if drives and HANDS.drives(record.execution_id)]
    return faults + [f"{when}: {name} is driven" for name in driven]


def recover(world: Environment) -> None:
    """Recover all that is to be recovered, as `Recover: auto` does."""
    while left := world.recoverable():
        for record in left:
            world.recover(record.execution_id)
        for record in world.executions():
            if (execution := world.execution(record.execution_id)).is_live:
                execution.wait(SECONDS)


def one_tree(seed: int, folder: Path) -> tuple[list[str], Counter]:
    """Grow one tree and cancel it; return the faults, and what was seen."""
    random = Random(seed)
    mode, dies, again = MODES[seed % len(MODES)], seed % 2 == 1, random.random() < 0.2
    until, copies_at = random.randint(1, LAST_COMMIT), random.choice([0, 0, 1, 2, 3, 5, 8])
    inputs = {"spec": spec_of(random)}
    place = folder / f"{seed}.db"
    store = MemoryStore() if mode == "here" else SqliteStore(place)
    world, others = world_over(store), []
    commits = Commits(store, until, copies_at if dies else None)
    store.subscribe(commits)
    worker = Worker(world, parallel=50).start() if mode == "queue" else None
    try:
        root = world.enqueue("tree", inputs) if worker else world.start("tree", inputs)
        commits.root = root.id
        commits.reached.wait(0.5)  # one that waits commits nothing more
        canceller = world
        if mode == "elsewhere" or (worker and random.random() < 0.5):
            others.append(canceller := world_over(SqliteStore(place)))
            canceller.store.subscribe(commits)
        try:
            canceller.cancel(root.id).wait(SECONDS)
        except ExecutionError:  # it has ended by itself
            ended = world.execution(root.id).wait(SECONDS)
            assert ended.status in ("completed", "failed")
        if again and canceller.execution(root.id).status == "cancelled":
            canceller.resume(root.id)
            canceller.cancel(root.id).wait(SECONDS)
        made = len(MADE)
        faults = faults_of(canceller, "after cancel().wait()", drives=canceller is world)
        seen = Counter(trees=1, executions=len(world.executions()), calls=made)
        seen[f"cancelled {mode}"] += canceller.execution(root.id).status == "cancelled"
        if commits.copy is not None:
            others.append(later := world_over(commits.copy))
            seen["died"], seen["unended when it died"] = 1, len(unended(commits.copy))
            recover(later)
            faults += faults_of(later, "after recovery", drives=canceller is world)
        recover(canceller)
        faults += faults_of(canceller, "at the end", drives=canceller is world)
        if len(MADE) > made:
            faults.append(f"calls made after the end: {MADE[made:]}")
    finally:
        if worker is not None:
            worker.drain()
        for each in (*others, world):
            each.close()
            each.store.close()
    MADE.clear()
    return faults, seen


def main(trees: int, first: int = 0) -> int:
    total: Counter = Counter()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + trees):
            faults, seen = one_tree(seed, Path(folder))
            total += seen
            wrong += bool(faults)
            for fault in faults:
                print(f"seed {seed}: {fault}")
    print(dict(total), "| trees with faults:", wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*[int(each) for each in sys.argv[1:] if each.isdigit()] or [500]))
