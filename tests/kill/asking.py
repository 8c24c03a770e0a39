"""``python -m tests.kill.asking ROLE FOLDER ...``: processes that drive or answer, and are killed while they do.

A driver dies right after a commit, when it has written so many questions or answers; calls are noted in a file, by
their action, so that they are counted outside of whoever makes them. Who answers only posts, dying after so many posts.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from divebook import Each, Environment, Step, Workflow
from divebook.errors import InterruptError
from divebook.events import catalog
from divebook.runtime.journal import Journal
from divebook.runtime.manager import Control
from divebook.steps.actions import Action
from divebook.stores import Batch, SqliteStore

PATHS, ITEMS = 10, 10
ANSWERERS = ("ann", "bob", "eve")
NEVER = 10**9


def workflow() -> Workflow:
    """Return ten paths side by side, each with a call, ten questions side by side, and a call for each answer."""
    steps = [Step("begin", script="1", next=[f"before{number}" for number in range(PATHS)])]
    for number in range(PATHS):
        asked = Each(list(range(ITEMS)), as_="i", parallel=ITEMS)
        answered = Each(f"$(state.a{number})", as_="answer", parallel=ITEMS)
        note = {"text": f"{number} ${{answer}}"}
        steps += [
            Step(f"before{number}", action="note", parameters={"text": f"before {number}"}, next=[f"ask{number}"]),
            Step(
                f"ask{number}",
                type="interrupt",
                ask=f"{number}.${{i}}",
                each=asked,
                store=f"a{number}",
                next=[f"after{number}"],
            ),
            Step(f"after{number}", action="note", parameters=note, each=answered, next=["end"]),
        ]
    return Workflow("hundred", [*steps, Step("end", script="1", join=True)])


def environment(folder: Path) -> Environment:
    """Return an environment whose only action writes a line, with one call of the system, to the file ``calls``."""

    async def note(text: str) -> None:
        with (folder / "calls").open("ab", buffering=0) as calls:
            calls.write(f"{text}\n".encode())

    store = SqliteStore(str(folder / "store.db"))
    return Environment(store=store, workflows=[workflow()], actions=[Action("note", note, idempotent=True)])


def drive(folder: Path, questions: int, answers: int) -> None:
    """Drive the one execution to its end, or die once so many questions or answers are written."""
    _die_after_commit({catalog.InterruptRaised: questions, catalog.InterruptResolved: answers})
    world = environment(folder)
    known = world.store.records()
    execution = world.run_of(known[0].execution_id).resume() if known else world.start("hundred")
    execution.wait()
    while not execution.state.is_over:
        time.sleep(0.01)
        if world.store.untaken() or execution.is_live:
            execution = execution if execution.is_live else world.run_of(execution.id).resume()
            execution.wait()


def _die_after_commit(limits: dict[type, int]) -> None:
    counts = dict.fromkeys(limits, 0)
    take, committed = Journal.take_batch, Journal.committed

    def counted(journal: Journal) -> object:
        batch = take(journal)
        for event in batch.events():
            if type(event.data) in counts:
                counts[type(event.data)] += 1
        return batch

    def die(journal: Journal, batch: Batch, outcome: Exception | None, **how: bool) -> None:
        committed(journal, batch, outcome, **how)
        if any(counts[kind] >= limit for kind, limit in limits.items()):
            os.kill(os.getpid(), signal.SIGKILL)

    Journal.take_batch, Journal.committed = counted, die  # type: ignore[assignment, method-assign]


def answer(folder: Path, name: str, seed: int, most: int) -> None:
    """Answer a third of the questions and some others in random order, or die right after so many were posted."""
    Control.continues_here = lambda *_: False  # type: ignore[method-assign]
    Control.continue_parked = lambda _, execution, **_options: execution  # type: ignore[method-assign]
    world = environment(folder)
    (record,) = world.store.records()
    asked = [question.id for question in world.run_of(record.execution_id).state.interrupts.values()]
    order = random.Random(seed)
    todo = [*sorted(asked)[ANSWERERS.index(name) :: len(ANSWERERS)], *order.sample(sorted(asked), 15)]
    order.shuffle(todo)
    for posted, interrupt_id in enumerate(todo, start=1):
        try:
            world.answer(interrupt_id, f"{name} {interrupt_id}", record.execution_id, name)
            (folder / f"accepted-{name}-{interrupt_id}").touch(exist_ok=False)
        except InterruptError as refused:
            if "already answered" not in str(refused):
                raise
        if posted == most:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    role, place, *rest = sys.argv[1:]
    if role == "drive":
        drive(Path(place), *map(int, rest))
    else:
        answer(Path(place), rest[0], int(rest[1]), int(rest[2]))
