"""What must hold at every commit, before every call, and in the end."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from divebook.engine.checkpoint import dump_state, load_state
from divebook.engine.evolve import evolve, fold
from divebook.engine.lifecycle import STATUS_AFTER, TERMINAL, violations
from divebook.engine.operations import SIGNAL_WAIT, STEP_EXECUTION, TIMER, TOOL_CALL
from divebook.engine.state import ENDED, JOINING, ExecutionState, PathState
from divebook.events import Event, catalog
from divebook.events.catalog import RUNNING
from divebook.events.event import to_datetime
from divebook.stores.append import Batch
from divebook.stores.base import EventStore
from tests.simulation.world import World, call_site

FUNCTION_CALLS = frozenset({STEP_EXECUTION, TOOL_CALL})
"""Types of the calls that the function of a workflow makes, by itself or within a turn."""


@dataclass
class _Operation:
    """What the log says of one operation id so far."""

    site: str
    repeatable: bool
    is_open: bool = False
    has_failed: bool = False
    may_restart: bool = False
    """A person said that it should be made again."""


@dataclass
class Ledger:
    """The operations of one log, checked as their events are committed."""

    world: World
    operations: dict[str, _Operation] = field(default_factory=dict)
    questions: dict[str, str] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)
    completed: Counter[str] = field(default_factory=Counter)
    given: set[str] = field(default_factory=set)

    def note(self, event: Event) -> None:
        """Take one committed event in."""
        data = event.data
        if isinstance(data, catalog.OperationStarted):
            self._started(event, data)
        elif isinstance(data, catalog.OperationCompleted):
            self._completed(data)
        elif isinstance(data, catalog.OperationFailed) and data.operation_id in self.operations:
            operation = self.operations[data.operation_id]
            operation.is_open, operation.has_failed = False, True
        elif isinstance(data, catalog.InterruptRaised):
            self.questions[data.interrupt_id] = data.operation_id or ""
        elif isinstance(data, catalog.InterruptResolved):
            self._answered(self.operations[self.questions[data.interrupt_id]], data.response["choice"])

    def _started(self, event: Event, data: catalog.OperationStarted) -> None:
        site, repeatable = self._site(event, data)
        if site is None:
            return
        operation = self.operations.setdefault(data.operation_id, _Operation(site, repeatable))
        if operation.is_open or operation.has_failed:
            allowed = repeatable or operation.may_restart or operation.has_failed
            assert allowed, f"{site} was begun again though nobody knows whether it took effect"
        assert not self.completed[data.operation_id], f"{site} was begun again though it had completed"
        operation.is_open, operation.has_failed, operation.may_restart = True, False, False
        self.starts[site] += 1

    def _site(self, event: Event, data: catalog.OperationStarted) -> tuple[str | None, bool]:
        """Return the site of an operation and whether it may be repeated; None for time, chance and timers."""
        scenario = self.world.scenario
        if data.operation_type in FUNCTION_CALLS and data.parameters and scenario.function:
            number = data.parameters["arguments"]["number"]
            return call_site(number), scenario.function.calls[number].repeatable
        if data.operation_id in self.world.sites:
            return self.world.sites[data.operation_id], scenario.plans[event.step].repeatable
        return None, False

    def _completed(self, data: catalog.OperationCompleted) -> None:
        self.completed[data.operation_id] += 1
        assert self.completed[data.operation_id] == 1, f"{data.operation_type} completed twice: {data.operation_id}"
        operation = self.operations.get(data.operation_id)
        if operation is not None:
            operation.is_open = False

    def _answered(self, operation: _Operation, choice: str) -> None:
        operation.may_restart = choice == "retry"
        if choice == "done":
            self.given.add(operation.site)


class Audit:
    """Watches one execution."""

    def __init__(self, execution_id: str, store: EventStore, world: World) -> None:
        self.execution_id, self._store = execution_id, store
        self.world, self.ledger = world, Ledger(world)
        self.state = ExecutionState(execution_id)
        self.violations: list[str] = []
        """What was found where raising would look to the engine like a failing step or store."""
        self.live: Callable[[], ExecutionState | None] = lambda: None
        """Gives the state that the engine believes in."""
        world.before_call = self._intent_is_durable

    def committed(self, batch: Batch) -> None:
        """Check what was just written."""
        try:
            self._check_committed(batch)
        except AssertionError as error:
            self.violations.append(str(error))
            raise

    def _check_committed(self, batch: Batch) -> None:
        events = self._store.read(self.execution_id, after=self.state.last_sequence)
        assert len(events) == len(batch.events()), "the log has other events than were appended"
        for event in events:
            self.ledger.note(event)
            self.state = evolve(self.state, event)
        check_counters(self.state)
        self._check_record(batch)
        live = self.live()
        if live is not None and live.last_sequence == self.state.last_sequence:
            assert live == self.state, f"live state and fold differ at event {self.state.last_sequence}"

    def _check_record(self, batch: Batch) -> None:
        if batch.status is None:  # torn
            return
        record, wake_at = self._store.record(self.execution_id), self.state.wake_at
        assert record.status == self.state.status, f"the record says {record.status}, the fold {self.state.status}"
        assert record.wake_at == (None if wake_at is None else to_datetime(wake_at)), "the record wakes at another time"

    def _intent_is_durable(self, site: str, begun: int) -> None:
        if site not in self.world.repeatable and self.ledger.starts[site] <= begun:
            self.violations.append(f"{site} is called before its intent is durable")

    def check_log(self) -> None:
        """Check the whole log from its beginning."""
        assert not self.violations, self.violations[0]
        events = self._store.read(self.execution_id)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1)), "sequences have a gap"
        assert not list(violations(events)), next(violations(events))
        assert fold(self.execution_id, events) == self.state, "the fold of the log is not the watched state"
        kept = load_state(dump_state(self.state), functools.partial(self._store.facts, self.execution_id))
        assert kept == self.state, "the state does not survive as a checkpoint"
        self._check_timers(events)

    @staticmethod
    def _check_timers(events: Sequence[Event]) -> None:
        started = [event.data for event in events if isinstance(event.data, catalog.OperationStarted)]
        begun = Counter(data.operation_id for data in started if data.operation_type == TIMER)
        assert set(begun.values()) <= {1}, "a timer was set twice"

    def check_end(self, *, honest: bool) -> None:
        """Check that the execution has come to its end and that every call was made as often as it should."""
        self.check_log()
        events = self._store.read(self.execution_id)
        resumed = max((e.sequence for e in events if isinstance(e.data, catalog.ExecutionResumed)), default=0)
        ends = [e.sequence for e in events[resumed:] if STATUS_AFTER.get(type(e.data)) in TERMINAL]
        assert ends == [len(events)], f"the log ends with {events[-1].event_type}; ends since {resumed}: {ends}"
        assert self._store.record(self.execution_id).status == self.state.status
        assert all(path.phase == ENDED for path in self.state.paths.values()), "a path has not ended"
        self._check_calls(honest=honest)

    def _check_calls(self, *, honest: bool) -> None:
        ledger, world = self.ledger, self.world
        for site, starts in ledger.starts.items():
            begun, effects = world.begun[site], world.effects[site]
            # An idempotent call may begin before its intent is written, and is made again after a death.
            is_in_log = begun <= starts or site in world.repeatable
            counts = f"{site}: {starts} intents, {begun} calls, {effects} effects"
            assert effects <= begun, counts
            assert is_in_log, counts
        for operation_id, operation in ledger.operations.items():
            if not ledger.completed[operation_id] or operation.repeatable:
                continue
            site = operation.site
            if honest:
                assert world.effects[site] == 1, f"{site} took effect {world.effects[site]} times"
            elif site not in ledger.given and ledger.starts[site] == 1:
                assert world.begun[site] == world.effects[site] == 1, f"{site} did not run once"


def check_counters(state: ExecutionState) -> None:
    """Check that what is counted along the way is what a count gives."""
    active = [path for path in state.paths.values() if path.phase != ENDED]
    counted = {
        "active": len(active),
        "joining": sum(path.phase == JOINING for path in active),
        "asking": sum(path.asking > 0 for path in active),
        "sleeping": sum(map(is_sleeping, active)),
    }
    kept = {name: getattr(state, name) for name in counted}
    assert kept == counted, f"counters at event {state.last_sequence}: {kept}, a count gives {counted}"
    open_questions = Counter(question.path for question in state.interrupts.values() if question.status == "pending")
    asking = {path.id: path.asking for path in state.paths.values() if path.asking}
    assert asking == open_questions, f"questions by path: {asking}, a count gives {dict(open_questions)}"


def is_sleeping(path: PathState) -> bool:
    """Whether a timer of the path is set, or it waits for a signal."""
    records = path.open.operations.values() if path.open is not None else ()
    return any(record.operation_type in (TIMER, SIGNAL_WAIT) and record.status == RUNNING for record in records)
