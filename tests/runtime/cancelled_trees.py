"""Cancel random trees of executions at random moments: ``python -m tests.runtime.cancelled_trees [TREES] [SEED]``.

A tree is an execution with the executions that it starts, up to four levels deep: one after the other, side by side,
for each item of a step, beside a time limit or in a ``try``; each works, sleeps, asks, or waits for a signal. Each tree
is cancelled after a random number of commits: by the environment that drives it, by another one over the same file, or
while the workers of a queue drive it. In every second tree the process "dies" at a random commit after the cancellation
of the root was recorded: what the store holds at that moment is recovered by a new environment.

Of each tree that no worker drives, a new environment cancels what the store held just before the cancellation, as if
the process had been killed then.

After ``cancel().wait()``, or after `recover`, nothing of the tree runs or waits, and no call of it is made any more. Of
a tree that is cancelled again after it was resumed the same holds. Every call with a rollback is undone.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import traceback
from collections import Counter
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from random import Random

from divebook import Each, Environment, Rollback, Step, Workflow
from divebook.definitions.functions import step, workflow
from divebook.engine.lifecycle import TERMINAL
from divebook.engine.state import ExecutionState
from divebook.errors import ExecutionError, OperationError
from divebook.events.event import to_microseconds
from divebook.queues import Worker
from divebook.runtime.leases import DRIVEN_LEASES
from divebook.steps.actions import Action
from divebook.stores import MemoryStore, SqliteStore
from divebook.stores.append import Batch, records_of
from tests.runtime.worlds import becomes

DEPTH, MOST_CHILDREN, LAST_COMMIT = 4, 3, 40
MODES = ("here", "elsewhere", "queue")
SECONDS = 60
MOST_ROUNDS = 10
MADE: list[str] = []
"""The calls that were made, each as it began."""


def spec_of(random: Random, name: str = "0", depth: int = 0) -> dict:
    """Return what a random execution does, as plain data."""
    acts = []
    for number in range(random.randint(1, MOST_CHILDREN)):
        kinds = ["work", "work", "sleep", "ask", "signal"]
        if depth < DEPTH:
            kinds += ["run", "run", "gather", "gather", "caught", "limited", "each", "beside", "beside"]
        kind = random.choice(kinds if depth else kinds[5:])
        count = random.randint(1, MOST_CHILDREN) if kind in ("gather", "each", "beside") else 1
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


def unbook(name: str) -> None:
    """Undo a booking. Like the booking it does not count as a call that the tree makes after its end."""


@step(name="tree_book", idempotent=True, rollback=unbook)
async def book(name: str, turns: int) -> None:
    """Book for some time, so that a process can be killed meanwhile."""
    for _ in range(turns):
        await asyncio.sleep(0.0005)


@step(name="tree_limit", idempotent=True)
async def limit(name: str, turns: int) -> None:
    """Fail after some time, which ends what is gathered beside it."""
    MADE.append(f"limit of {name}")
    await asyncio.sleep(turns / 100)
    raise TimeoutError(name)


async def fails(call) -> bool:
    """Return whether a call, or one of several that are gathered, fails."""
    try:
        await call
    except OperationError:
        return True
    return False


async def act_out(ctx, act: dict) -> None:  # noqa: C901 - one case for each kind
    """Do one thing of those that an execution does."""
    name, turns, specs = act["name"], act["turns"], act["children"]
    calls = (
        [] if act["kind"] == "each" else [ctx.run("undone" if one["books"] else "tree", {"spec": one}) for one in specs]
    )
    match act["kind"]:
        case "work":
            await work(name, turns)
        case "sleep":
            await ctx.sleep(3600)
        case "ask":
            await ctx.ask("Which one?")
        case "signal":
            await ctx.wait_signal("go")
        case "each":
            await ctx.run("each", {"specs": specs})
        case "gather":
            await ctx.gather(*calls)
        case "beside":
            waits = [partial(ctx.sleep, 3600), partial(ctx.wait_signal, "go"), partial(ctx.ask, "Which one?")]
            wait = [*waits, partial(work, name, turns)][turns % 4]
            await ctx.gather(wait(), book(name, turns * 5), *calls)
        case "limited":
            if await fails(ctx.gather(calls[0], limit(name, turns))):
                await work(name, turns)
        case "caught":
            if await fails(calls[0]):
                await work(name, turns)
        case "run":
            await calls[0]


def definitions() -> list[Workflow]:
    """Return the workflows; made anew, as the tests of one module forget what another has made at import."""

    @workflow(name="tree")
    async def tree(ctx, spec: dict):
        for act in spec["acts"]:
            await act_out(ctx, act)

    below = Step("below", workflow="tree", inputs={"spec": "$(inputs.spec)"})
    undone = [Step("book", action="book", rollback=Rollback("unbook")), below]
    items = Each("$(inputs.specs)", as_="spec", parallel=2)
    each = Step("all", workflow="tree", inputs={"spec": "$(state.spec)"}, each=items)
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
    messages = [message for record in copied.records() for message in store.inbox(record.execution_id)]
    copied.bring(sorted(messages, key=attrgetter("number")))
    return copied


class Commits:
    """Counts the commits to a store, and copies it at one of those that come after the end of the root."""

    def __init__(self, store, until: int, copies_at: int | None) -> None:
        self._store, self._left, self._copies_at = store, until, copies_at
        self.reached, self.copy, self.killed = threading.Event(), None, None
        self.root = ""

    def __call__(self, execution_id: str, events) -> None:
        self._left -= 1
        if self._left <= 0 and not self.reached.is_set():
            self.killed = copy_of(self._store)
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
    faults += [f"{when}: {record.execution_id} could be recovered" for record in world.queues.recoverable()]
    driven = [
        record.execution_id
        for record in world.store.records()
        if drives and DRIVEN_LEASES.drives(world.store, record.execution_id)
    ]
    return faults + [f"{when}: {name} is driven" for name in driven]


def left_behind(world: Environment, when: str) -> list[str]:
    """Return the executions that have been cancelled without undoing a call that has a rollback."""
    return [
        f"{when}: {state.execution_id} is not rolled back"
        for state in states_in(world)
        if state.status in {"cancelled", "failed"} and (state.rollbacks or state.unsettled) and not state.is_rolled_back
    ]


def states_in(world: Environment) -> list[ExecutionState]:
    return [world.run_of(record.execution_id).state for record in world.store.records()]


def recover(world: Environment) -> None:
    """Recover all that is to be recovered, as `Recover: auto` does, until nothing is left.

    A call that undoes another one may have been under way when the process died. Its question is answered: again.
    """
    for _ in range(MOST_ROUNDS):
        recoverable = world.queues.recoverable()
        for record in recoverable:
            world.queues.recover(record.execution_id)
        for record in world.store.records():
            if (execution := world.run_of(record.execution_id)).is_live:
                execution.wait(SECONDS)
        questions = [
            (execution_id, question) for execution_id, question in world.inbox() if question.kind == "outcome_unknown"
        ]
        for execution_id, question in questions:
            world.answer(question.id, "retry", execution_id)  # workers, or the next round, continue it
        # An ended child continues its parent, which nothing drives for a moment.
        if not recoverable and not questions and becomes(lambda: not unended(world.store), 2):
            return
    raise AssertionError(f"not ended after {MOST_ROUNDS} rounds: {unended(world.store)}")


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
    worker = Worker(world, parallel=50).start_thread() if mode == "queue" else None
    try:
        root = world.enqueue("tree", inputs) if worker else world.start("tree", inputs)
        commits.root = root.id
        commits.reached.wait(0.5)  # one that waits commits nothing more
        canceller = world
        if mode == "elsewhere" or (worker and random.random() < 0.5):
            others.append(canceller := world_over(SqliteStore(place)))
            canceller.store.subscribe(commits)
        try:
            canceller.run_of(root.id).cancel().wait(SECONDS)
        except ExecutionError:  # it has ended by itself
            ended = world.run_of(root.id).wait(SECONDS)
            assert ended.status in ("completed", "failed")
        if again and not canceller.run_of(root.id).state.is_final:
            canceller.run_of(root.id).resume()
            canceller.run_of(root.id).cancel().wait(SECONDS)
        # A child that another process was about to begin at that moment is cancelled by that process, a moment later.
        # So this waits until that process, which is this one here, drives nothing of the tree any more, or only sleeps.
        drives = canceller is world
        drives or becomes(lambda: not faults_of(canceller, "soon"), 2)
        made = len(MADE)
        faults = faults_of(canceller, "after cancel().wait()", drives=drives)
        seen = Counter(trees=1, executions=len(world.store.records()), calls=made)
        seen[f"cancelled {mode}"] += canceller.run_of(root.id).status == "cancelled"
        if commits.copy is not None:
            others.append(later := world_over(commits.copy))
            seen["died"], seen["unended when it died"] = 1, len(unended(commits.copy))
            recover(later)
            faults += faults_of(later, "after recovery", drives=drives)
        if commits.killed is not None and mode != "queue":
            others.append(after := world_over(commits.killed))
            if after.run_of(root.id).status not in TERMINAL:
                seen["killed"] = 1
                seen["killed during a booking"] = any(state.unsettled for state in states_in(after))
                after.run_of(root.id).cancel().wait(SECONDS)
                faults += faults_of(after, "killed") + left_behind(after, "killed")
        faults += left_behind(canceller, "at the end")
        recover(canceller)
        faults += faults_of(canceller, "at the end", drives=drives)
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
            try:
                faults, seen = one_tree(seed, Path(folder))
            except Exception as error:  # noqa: BLE001 - a fault of its own, after which the other trees are still tried
                faults, seen = [f"raised {type(error).__name__}: {error}\n{traceback.format_exc()}"], Counter()
            total += seen
            wrong += bool(faults)
            for fault in faults:
                sys.stdout.write(f"seed {seed}: {fault}\n")
            sys.stdout.flush()  # so that a run that is stopped has shown its faults
    sys.stdout.write(f"{dict(total)} | trees with faults: {wrong}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*[int(each) for each in sys.argv[1:] if each.isdigit()] or [500]))
