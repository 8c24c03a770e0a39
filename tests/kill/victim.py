"""What runs in the process that is killed, and in the one that comes after it.

`take_up` starts the execution, or resumes it where the store has it, answers every question (yes, or ``retry``), and
writes down what it came to. It is that of a workflow of many steps, or of an agent at work (`tests.kill.turn`).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from divebook import Catch, Each, Environment, Retry, Run, Step, Workflow
from divebook.definitions.functions import WORKFLOW_FUNCTIONS, WorkflowFunction, step
from divebook.errors import OperationError
from divebook.questions.question import OUTCOME_UNKNOWN
from divebook.runtime import journal
from divebook.steps.actions import Action
from divebook.steps.function import Context
from divebook.stores import Batch, EventStore, SqliteStore
from divebook.stores.append import RELAXED, Durability, Refusal
from divebook.stores.sqlite.store import Transaction
from tests.kill import turn
from tests.kill.counting import write_down

BEFORE, WRITTEN, AFTER = "before the append of event", "before the commit of event", "after the commit of event"
AMID = "amid the commit of event"
CALL, CALLED = "before the effect of call", "after the effect of call"
CHECKPOINT, CHECKPOINT_WRITTEN, CHECKPOINTED = (
    "before the checkpoint of event",
    "before the commit of the checkpoint of event",
    "after the checkpoint of event",
)
TIME = "after milliseconds of work"
STORE = "DIVEBOOK_KILL_STORE"
"""The variable that names a database, for processes that have no file."""
CHECKPOINT_EVENTS = 20
"""Events between two checkpoints: fewer than usual, so that there are some in a short run."""


@dataclass(frozen=True)
class Place:
    """Where one life of the process keeps its files."""

    folder: Path

    @property
    def database(self) -> Path:
        """The store."""
        return self.folder / "log.db"

    def opened(self, killer: Killer | None = None) -> EventStore:
        """Return its store, one that kills if there is a killer: a file, or a schema where `STORE` names a database."""
        url = os.environ.get(STORE)
        if url is not None:
            from tests.postgres.killing import opened_in

            return opened_in(url, self.folder, killer)
        return SqliteStore(self.database) if killer is None else KillingStore(self.database, killer)

    @property
    def calls(self) -> Path:
        """A line for every call made."""
        return self.folder / "calls"

    @property
    def result(self) -> Path:
        """What it came to."""
        return self.folder / "result.json"

    @property
    def worked(self) -> Path:
        """Milliseconds of processor time that it took."""
        return self.folder / "milliseconds"

    def counts(self) -> list[str]:
        """Return the labels of the calls made so far."""
        return self.calls.read_text().split() if self.calls.exists() else []


def kill_self() -> None:
    """End as a power cut would: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


class Killer:
    """Ends the process at one point: ``(kind, number)``.

    Numbers count calls, or events from the first one that this life writes: unlike the number of transactions, both are
    the same in every run, however fast the machine is. A point in time is left to the system, which kills wherever the
    process is then.
    """

    def __init__(self, place: Place, point: tuple[str, float] | None) -> None:
        self._place, self._point = place, point
        if point is not None and point[0] == TIME:
            signal.setitimer(signal.ITIMER_PROF, point[1] / 1000)
        self._calls = self._written = 0

    def reached(self, kind: str, number: int) -> None:
        """Die if this is the point, or the first chance after it."""
        if self._point is not None and kind == self._point[0] and number >= self._point[1]:
            kill_self()

    def written(self, batches: Sequence[Batch]) -> int:
        """Return the number, in this life, of the last event of an append."""
        self._written += sum(len(batch.events()) for batch in batches)
        return self._written

    def count(self, label: str) -> int:
        """Write a call of this process down; return how often it was made before."""
        before = self._place.counts().count(label)
        self._calls += 1
        number = self._calls
        self.reached(CALL, number)
        write_down(self._place.calls, label)
        self.reached(CALLED, number)
        return before


class KillingTransaction(Transaction):
    """A transaction of SQLite that is cut off when all of it is written and nothing is committed."""

    __slots__ = ("_reached",)

    def __init__(self, transaction: Transaction, reached: Callable[[], None]) -> None:
        super().__init__(transaction._lock, transaction._file, transaction._durability)
        self._reached = reached

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._reached()
        super().__exit__(kind, error, at)


class KillingStore(SqliteStore):
    """SQLite with `synchronous=FULL`, and death around its transactions."""

    def __init__(self, path: Path, killer: Killer) -> None:
        self._killer = killer
        self._last = self._checkpointed = self._statements = 0
        """Number of the last event of the append, or checkpoint, on its way; 0 while something else is written."""
        super().__init__(path, durability="full")
        assert self._writer is not None
        self._writer.set_trace_callback(self._stated)

    def append_all(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        """Write."""
        self._last, self._statements = self._killer.written(batches), 0
        self._killer.reached(BEFORE, self._last)
        answers = super().append_all(batches)
        self._killer.reached(AFTER, self._last)
        self._last = 0
        return answers

    def put_checkpoint(self, execution_id: str, sequence: int, data: bytes) -> None:
        """Keep a state."""
        self._killer.reached(CHECKPOINT, sequence)
        self._checkpointed = sequence
        super().put_checkpoint(execution_id, sequence, data)
        self._checkpointed = 0
        self._killer.reached(CHECKPOINTED, sequence)

    def _transaction(self, durability: Durability | None = None) -> Transaction:
        assert durability != RELAXED or not self._last  # no append is
        return KillingTransaction(super()._transaction(durability), self._uncommitted)

    def _stated(self, _statement: str) -> None:
        """Hear of each statement, also of each row of several, just before SQLite runs it."""
        self._statements += 1
        if self._statements > 2 + self._last % 3:  # after BEGIN and at most two more
            self._killer.reached(AMID, self._last)

    def _uncommitted(self) -> None:
        for kind in (AMID, WRITTEN):
            self._killer.reached(kind, self._last)
        self._killer.reached(CHECKPOINT_WRITTEN, self._checkpointed)


ITEMS = ["a", "b", "c", "d", "e"]
SOON = Retry(3, seconds=0.001, jitter=0)


def action(name: str, label: str, **settings: Any) -> Step:
    """Return a step that makes one call."""
    return Step(name, action="call", parameters={"label": label}, store=settings.pop("store", name), **settings)


WORKFLOW = Workflow(
    "killed",
    [
        action("first", "first", next=["left", "middle", "right"]),
        Step(
            "left",
            action="call_item",
            parameters={"label": "left-${item}"},
            each=Each(ITEMS, as_="item", parallel=3),
            store="left",
            next="join",
        ),
        action("middle", "middle"),
        Step("pause", type="wait", seconds=0.001),
        Step("flaky", action="flaky", parameters={"label": "flaky"}, retry=SOON, store="flaky", next="join"),
        Step(
            "right",
            action="call_item",
            parameters={"label": "right-${number}"},
            each=Each([1, 2, 3], as_="number"),
            store="right",
            next="join",
        ),
        action("join", "join", join=True, next=[("broken", "true"), ("never", "false")]),
        action("never", "never", end=True),
        Step("broken", action="broken", parameters={"label": "broken"}, catch=Catch("rescue", store="problem")),
        action("rescue", "rescue"),
        Step("python", type="function", script="# see `function`", store="python"),
        Step("keyed", action="keyed", parameters={"label": "keyed"}, store="keyed"),
        action("last", "last", store="last"),
    ],
    outputs=["left", "python", "last"],
)
REPEATABLE = {"keyed", "idempotent-21"} | turn.REPEATABLE
"""Labels of calls that are simply made again where their outcome is not known."""


def actions(killer: Killer) -> list[Action]:
    """Return the actions of the workflow."""

    async def call(label: str) -> str:
        killer.count(label)
        return f"{label} done"

    async def call_item(label: str) -> str:
        killer.count(label)
        await asyncio.sleep(0.001)
        return f"{label} done"

    async def flaky(label: str) -> str:
        if not killer.count(label):
            raise RuntimeError("not yet")
        return label

    async def broken(label: str) -> str:
        killer.count(label)
        raise ValueError("never works")

    async def keyed(label: str, idempotency_key: str) -> str:
        killer.count(label)
        return idempotency_key.partition("-")[2]

    named = {"call": call, "call_item": call_item, "flaky": flaky, "broken": broken, "keyed": keyed}
    return [Action(name, function) for name, function in named.items()]


def register_function(killer: Killer) -> None:
    """Have this process know what the step `python` does."""

    @step
    async def add(left: int, right: int) -> int:
        killer.count(f"add-{left}-{right}")
        return left + right

    @step(idempotent=True)
    def idempotent(number: int) -> int:
        killer.count(f"idempotent-{number}")
        return number * 2

    @step(retry=SOON)
    async def stubborn() -> str:
        if not killer.count("stubborn"):
            raise RuntimeError("not yet")
        return "stubborn"

    @step
    async def refusing() -> None:
        killer.count("refusing")
        raise ValueError("never works")

    async def function(context: Context) -> list[Any]:
        await context.now()
        await context.random()
        added = await context.gather(*[add(number, number) for number in range(3)])
        try:
            await refusing()
        except OperationError as error:
            added.append(str(error))
        return [*added, await idempotent(21), await stubborn()]

    WORKFLOW_FUNCTIONS[WORKFLOW.name] = WorkflowFunction.from_definition(function, WORKFLOW)


def take_up(folder: Path, point: tuple[str, float] | None = None, subject: str = WORKFLOW.name) -> None:
    """Carry the execution of a folder on to its end, or to the point of death; `subject` names its workflow."""
    place = Place(folder)
    folder.mkdir(exist_ok=True)
    journal.CHECKPOINT_EVENTS = CHECKPOINT_EVENTS
    killer = Killer(place, point)
    register_function(killer)
    with place.opened(killer) as store:
        workflows, agents = [WORKFLOW, turn.WORKFLOW], turn.agents(killer.count)
        environment = Environment(
            store=store,
            workflows=workflows,
            actions=actions(killer),
            agents=agents,
            servers=[turn.server(place.calls)],
        )
        execution = begun(environment, subject).wait(60)
        while execution.status == "waiting":
            question = execution.open_questions[0]
            answer = "retry" if question.kind == OUTCOME_UNKNOWN else "yes"
            execution = environment.answer(question.id, answer).wait(60)
        place.result.write_text(json.dumps(comparable(execution)))
        place.worked.write_text(str(time.process_time() * 1000))


def begun(environment: Environment, subject: str) -> Run:
    """Return the execution of the store on its way, or as it ended; start it if there is none."""
    known = environment.store.records()
    if not known:
        return environment.start(subject)
    execution = environment.run_of(known[0].execution_id)
    return execution if execution.status == "completed" else environment.run_of(execution.id).resume()


def comparable(execution: Run) -> dict[str, Any]:
    """Return what must be the same however often the process was killed."""
    paths = {
        path.id: [path.parent, path.status, path.current_step, sorted(path.step_outputs.items())]
        for path in sorted(execution.internals.paths.values(), key=lambda path: path.id)
    }
    found = [execution.status, execution.error, execution.variables, execution.outputs]
    return {"execution": found, "paths": paths, "heard": turn.heard(execution)}
