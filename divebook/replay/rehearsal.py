"""Rehearsal: a fork runs in memory without external calls, to find out what it would do.

Code stops at each operation that has no recorded answer. The rehearsal therefore shows which calls a change would make,
and its results are discarded (`tests/replay/test_what_if.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from divebook.engine.bounds import NANODOLLARS
from divebook.engine.decide import steps_ahead
from divebook.engine.operations import CHILD_WORKFLOW, operation_kind, operation_name
from divebook.engine.state import ExecutionState
from divebook.errors import ExecutionNotFoundError, SourceGoneError
from divebook.events import catalog
from divebook.events.event import Event
from divebook.interrupts import interruptible_result
from divebook.replay.recorded_answers import REQUESTS, RecordedAnswers, ReuseInputs, answering
from divebook.runtime.commit import StoreCalls
from divebook.runtime.manager import Control
from divebook.runtime.operations import FindMissPolicy, MissPolicy, OperationRequest
from divebook.store import EventStore
from divebook.store.memory import MemoryStore
from divebook.workflow.definition import Workflow

ControlOver: TypeAlias = Callable[[EventStore, FindMissPolicy], Control]
"""Function that returns a control over another store with the definitions of an environment."""


class RehearsalHost(NamedTuple):
    """Dependencies of a rehearsal that an environment provides."""

    control_over: ControlOver
    grounds: ReuseInputs


class Rehearsal(NamedTuple):
    """Result of a rehearsal."""

    events: Sequence[Event]
    """Its log, with the events shared with its source."""
    state: ExecutionState
    answers: RecordedAnswers
    """Its miss policy, with the unused recorded ends."""

    @property
    def unanswered(self) -> Sequence[OperationRequest]:
        """Calls that would run, at which code has stopped."""
        return self.answers.unanswered

    def behind(self, workflow: Workflow) -> tuple[str, ...]:
        """Return the steps that come after those at which code rests or waits for a person."""
        asking = {path.current_step for path in self.state.active_paths() if path.asking}
        resting = asking.union(request.place.step for request in self.unanswered)
        if self.state.is_over or not resting:
            return ()
        ahead = steps_ahead(workflow, self.state)
        return tuple(step.name for step in workflow.steps if step.name in ahead and step.name not in resting)


def rehearsed(world: RehearsalHost, events: Sequence[Event], forked: catalog.ExecutionForked) -> Rehearsal:
    """Run a fork of an execution in memory; return the result.

    Parameters
    ----------
    events
        The whole log of the source.
    forked
        How the fork begins.
    """
    answers: list[RecordedAnswers] = []

    async def find(state: ExecutionState, calls: StoreCalls) -> MissPolicy:
        events_of_fork = await calls.patiently(lambda: store.read(state.execution_id))
        begun_by = forked_by(events_of_fork)
        recorded = answering(events, events_of_fork, begun_by, world.grounds, rests=True)
        answers.append(recorded)
        return answers[-1]

    with MemoryStore() as store:
        control = world.control_over(store, find)
        try:
            store.append(forked.source, events[: forked.at], 0)
            driver = control.fork(forked.source, forked.at, forked)
            interruptible_result(driver.driving())
            return Rehearsal(store.read(driver.id), driver.refresh().state, answers[-1])
        finally:
            control.close()


async def answers_for(
    store: EventStore, grounds: ReuseInputs, state: ExecutionState, calls: StoreCalls
) -> RecordedAnswers:
    """Return the miss policy of an execution that starts or resumes; raises `SourceGoneError`."""

    def read() -> RecordedAnswers:
        events_of_fork = store.read(state.execution_id)
        begun_by = forked_by(events_of_fork)
        assert isinstance(begun_by.data, catalog.ExecutionForked)  # noqa: S101 - that is what it looks for
        try:
            source = store.read(begun_by.data.source)
        except ExecutionNotFoundError:
            if begun_by.data.tools not in catalog.GOING_ON:
                raise SourceGoneError(state.execution_id, begun_by.data.source) from None
            source = events_of_fork[
                : begun_by.data.at
            ]  # deleted: what it shares is its own by now, and all else is made anew
        return answering(source, events_of_fork, begun_by, grounds)

    return await calls.patiently(read)


def forked_by(events: Sequence[Event]) -> Event:
    """Return the event with which an execution went apart from its source; of a fork of forks the last one."""
    return next(event for event in reversed(events) if isinstance(event.data, catalog.ExecutionForked))


# --- planned calls and their estimated cost ---


class Planned(NamedTuple):
    """A call that would be made."""

    operation_type: str
    name: str
    step: str

    def __str__(self) -> str:
        return " ".join(filter(None, (operation_kind(self.operation_type), self.name, f"(step {self.step})")))


def planned_call(request: OperationRequest) -> Planned:
    """Return the call that code wants to make."""
    kind = request.operation_type
    return Planned(kind, operation_name(kind, request.parameters) or "", request.place.step)


def likely_cost(events: Iterable[Event], requests: Sequence[OperationRequest]) -> float | None:
    """Return about what calls cost in dollars, as the requests of the same agents in a log did.

    None where one of an agent is among them of which the log has no request, or another workflow.
    """
    if any(each.operation_type == CHILD_WORKFLOW for each in requests):
        return None
    spent = {agent: sum(costs) / len(costs) for agent, costs in _spent(events, by_turn=False).items()}
    agents = [operation_name(each.operation_type, each.parameters) for each in requests]
    agents = [agent for each, agent in zip(requests, agents, strict=True) if each.operation_type in REQUESTS]
    return None if any(agent not in spent for agent in agents) else sum(spent[agent] for agent in agents) / NANODOLLARS


def items_to_come(events: Iterable[Event], state: ExecutionState) -> dict[str, int]:
    """Return how many items have not begun of the steps that are open, by step."""
    started: defaultdict[str, set[int]] = defaultdict(set)
    totals: Counter[str] = Counter()
    for event in events:
        if isinstance(event.data, catalog.StepStarted):
            started[event.path] = set()
            totals[event.path] = 0
        elif isinstance(event.data, catalog.IterationStarted):
            started[event.path].add(event.data.iteration_index)
            totals[event.path] = max(totals[event.path], event.data.total or 0)
    counts: Counter[str] = Counter()
    for path in state.active_paths():
        counts[path.current_step] += max(0, totals[path.id] - len(started[path.id]))
    return {step: count for step, count in counts.items() if count}


def likely_items(events: Sequence[Event], remaining: Mapping[str, int]) -> float | None:
    """Return about what items that have not begun cost in dollars, as the items of the same steps in a log did.

    None where no item of one of the steps is done whose requests were paid for.
    """
    done = Counter(event.step for event in events if isinstance(event.data, catalog.IterationCompleted))
    spent: Counter[str] = Counter()
    for event in events:
        data = event.data
        if isinstance(data, catalog.OperationCompleted) and data.operation_type in REQUESTS and data.usage:
            spent[event.step] += data.usage.get("cost", 0)
    if any(spent[step] and not done[step] for step in remaining):
        return None
    return sum(count * spent[step] / done[step] for step, count in remaining.items() if spent[step]) / NANODOLLARS


def likely_turns(events: Sequence[Event], workflow: Workflow, steps: Iterable[str]) -> float | None:
    """Return about what the agents of steps cost that the log has nothing of, as other turns of the same agents did.

    What the log has of a step is likely to be used again. None where it has no turn of an agent.
    """
    recorded_steps = {event.step for event in events if isinstance(event.data, catalog.OperationStarted)}
    spent = {agent: sum(costs) / len(costs) for agent, costs in _spent(events, by_turn=True).items()}
    new_steps = set(steps) - recorded_steps
    agents = [step.agent for step in workflow.steps if step.name in new_steps and step.prompt is not None]
    return None if any(agent not in spent for agent in agents) else sum(spent[agent] for agent in agents) / NANODOLLARS


def _spent(events: Iterable[Event], *, by_turn: bool) -> dict[str | None, list[int]]:
    """Return what each request of an agent cost, or all requests that it made in a step of a path, or for an item."""
    costs_of_agents: dict[str | None, dict[tuple[str | int | None, ...], int]] = {}
    items: dict[str, int | None] = {}
    agents: dict[str, str | None] = {}
    for event in events:
        match event.data:
            case catalog.OperationStarted() as data if data.operation_type in REQUESTS:
                items[data.operation_id] = data.iteration_index
                agents[data.operation_id] = data.name or operation_name(data.operation_type, data.parameters)
            case catalog.OperationCompleted() as data if data.operation_id in agents and data.usage:
                costs = costs_of_agents.setdefault(agents[data.operation_id], {})
                turn = event.path, event.step, items[data.operation_id]
                key = turn if by_turn else (data.operation_id,)
                costs[key] = costs.get(key, 0) + data.usage.get("cost", 0)
    return {agent: [*costs.values()] for agent, costs in costs_of_agents.items()}
