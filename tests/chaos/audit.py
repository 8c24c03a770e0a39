"""What must hold after the chaos: of every log, of the calls counted outside, and of what was acknowledged."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from divebook import Environment, Run
from divebook.engine.evolve import fold
from divebook.engine.lifecycle import TERMINAL, violations
from divebook.engine.operations import ACTION_EXECUTION, STEP_EXECUTION, TOOL_CALL
from divebook.errors import DivebookError
from divebook.events import Event, catalog
from divebook.questions.question import OUTCOME_UNKNOWN
from divebook.stores import EventStore
from divebook.stores.maintenance import check
from tests.chaos.subjects import CALLS, IDEMPOTENT, SIGNAL, Folder

ROUNDS = 60
COUNTED = (ACTION_EXECUTION, STEP_EXECUTION, TOOL_CALL)


# --- carrying everything to its end ----------------------------------------------------------------------------------


def finish(world: Environment) -> Iterator[str]:
    """Do what there is to do until everything has ended; yield what is stuck."""
    refused: dict[str, str] = {}
    for _ in range(ROUNDS):
        left = world.store.unended()
        if not left:
            return
        carried = [world.run_of(record.execution_id) for record in left]
        for execution in carried:
            try:
                refused.pop(execution.id, None)
                _carry_on(world, execution)
            except DivebookError as error:
                refused[execution.id] = f"{type(error).__name__}: {error}"
        _rest(carried)
    for record in world.store.unended():
        execution = world.run_of(record.execution_id)
        standing = execution.internals.standing
        yield f"{execution.id} ({execution.workflow.name}) is stuck: {standing}; {refused.get(execution.id)}"


def _carry_on(world: Environment, execution: Run) -> None:
    if execution.is_live:
        return
    if execution.open_questions:
        for question in execution.open_questions:
            world.answer(question.id, "retry" if question.kind == OUTCOME_UNKNOWN else "yes", execution.id)
    elif SIGNAL in execution.internals.standing:
        world.run_of(execution.id).signal(SIGNAL)
    else:
        world.run_of(execution.id).resume()


def _rest(executions: Sequence[Run]) -> None:
    end = time.monotonic() + 30
    while any(execution.is_live for execution in executions) and time.monotonic() < end:
        time.sleep(0.02)


# --- what must hold --------------------------------------------------------------------------------------------------


def audit(folder: Folder, store: EventStore) -> Iterator[str]:
    """Yield what is wrong."""
    report = check(store, fold=lambda events: fold(events[0].execution_id, events))
    yield from (f"check: {damage}" for damage in report.all_damages())
    yield from (f"lease left: {lease.execution_id}" for lease in store.leases())
    logs = {execution_id: store.read(execution_id) for execution_id in store.ids()}
    for execution_id, log in logs.items():
        yield from (f"{execution_id}: {text}" for _, text in violations(log))
        if store.record(execution_id).status not in TERMINAL:
            yield f"{execution_id} is {store.record(execution_id).status} after all"
    yield from _check_calls(folder, logs)
    yield from _check_acknowledged(folder, logs)


def _check_calls(folder: Folder, logs: dict[str, list[Event]]) -> Iterator[str]:
    """A copy of a log goes on with the token of its original: both are counted together, their common part once."""
    made = Counter((token, label) for token, label in folder.said(CALLS))
    intents: dict[tuple[str, str], set[tuple[object, ...]]] = defaultdict(set)
    completed: Counter[tuple[str, str]] = Counter()
    for execution_id, log in logs.items():
        token = log[0].data.inputs["token"]  # type: ignore[attr-defined]
        calls = Calls(execution_id)
        for event in log:
            calls.take(event)
        yield from calls.findings
        for label, begun in calls.begun.items():
            intents[token, label] |= begun
        completed.update((token, label) for label in calls.completed)
    for site, count in made.items():
        # A call that is declared idempotent may begin before its intent is written, and is made again after a death.
        if count > len(intents[site]) and site[1] not in IDEMPOTENT:
            yield f"{site} was called {count} times, with {len(intents[site])} intents"
    for site in completed:
        if not made[site]:
            yield f"{site} has completed without having been called"


class Calls:
    """The calls of one log."""

    def __init__(self, execution_id: str) -> None:
        self._id, self.findings = execution_id, list[str]()
        self.begun: dict[str, set[tuple[object, ...]]] = defaultdict(set)
        self.completed: set[str] = set()
        """Labels of those whose result is that of a call, and not what a person said."""
        self._labels: dict[str, str] = {}
        self._standing: dict[str, str] = {}
        self._asked: dict[str, str] = {}

    def take(self, event: Event) -> None:
        """Take an event in."""
        data = event.data
        if isinstance(data, catalog.ExecutionForked):
            # What is in flight there is its source's, which goes on with it or asks: a fork begins it anew.
            self._standing = {call: said for call, said in self._standing.items() if said != "begun"}
            self._asked.clear()
        elif isinstance(data, catalog.OperationStarted) and data.operation_type in COUNTED:
            self._started(event, data)
        elif isinstance(data, catalog.InterruptRaised) and data.kind == OUTCOME_UNKNOWN and data.operation_id:
            self._asked[data.interrupt_id] = data.operation_id
        elif isinstance(data, catalog.InterruptResolved) and data.interrupt_id in self._asked:
            self._standing[self._asked[data.interrupt_id]] = data.response["choice"]
        elif isinstance(data, catalog.OperationCompleted) and data.operation_id in self._labels:
            if self._standing[data.operation_id] != "done":
                self.completed.add(self._labels[data.operation_id])
            self._standing[data.operation_id] = "completed"
        elif isinstance(data, catalog.OperationFailed) and data.operation_id in self._labels:
            self._standing[data.operation_id] = "failed"

    def _started(self, event: Event, data: catalog.OperationStarted) -> None:
        label = _label(data.parameters or {})
        before = self._standing.get(data.operation_id, "")
        if before == "completed":
            self.findings.append(f"{self._id}: {label} began again though it had completed")
        if before == "begun" and label not in IDEMPOTENT:
            self.findings.append(f"{self._id}: {label} began again though nobody knows whether it took effect")
        self._labels[data.operation_id], self._standing[data.operation_id] = label, "begun"
        self.begun[label].add((data.operation_id, event.sequence, event.recorded_at))


def _label(parameters: Any) -> str:
    """Return the label of a call of an action, or of a step."""
    found: str = parameters["arguments"]["label"] if "arguments" in parameters else parameters["params"]["label"]
    return found


def _check_acknowledged(folder: Folder, logs: dict[str, list[Event]]) -> Iterator[str]:
    by_key: dict[str, set[str]] = defaultdict(set)
    for execution_id, *key in folder.said("started"):
        if execution_id not in logs:
            yield f"{execution_id} was started and is not in the store"
        if any(key):
            by_key[key[0]].add(execution_id)
    yield from (f"key {key} started {sorted(ids)}" for key, ids in by_key.items() if len(ids) > 1)
    answers = {
        (execution_id, event.data.interrupt_id): event.data.answered_by
        for execution_id, log in logs.items()
        for event in log
        if isinstance(event.data, catalog.InterruptResolved)
    }
    for execution_id, question, by in folder.said("answered"):
        if answers.get((execution_id, question), by) != by:
            yield f"{question} of {execution_id} was answered by {answers[execution_id, question]}, and by {by}"
