"""Calls that would be made, known before one is: what each is, and about what they cost. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from divebook.engine.bounds import NANODOLLARS
from divebook.engine.operations import CHILD_WORKFLOW, operation_kind, operation_name
from divebook.engine.state import ExecutionState
from divebook.events import catalog
from divebook.events.event import Event
from divebook.execution.wanted import Wanted
from divebook.replay.pool import REQUESTS
from divebook.workflow.definition import Workflow


class Planned(NamedTuple):
    """A call that would be made."""

    operation_type: str
    name: str
    step: str

    def __str__(self) -> str:
        return " ".join(filter(None, (operation_kind(self.operation_type), self.name, f"(step {self.step})")))


def planned_call(wanted: Wanted) -> Planned:
    """Return the call that code wants to make."""
    kind = wanted.operation_type
    return Planned(kind, operation_name(kind, wanted.parameters) or "", wanted.place.step)


def likely_cost(events: Iterable[Event], wanted: Sequence[Wanted]) -> float | None:
    """Return about what calls cost in dollars, as the requests of the same agents in a log did.

    None where one of an agent is among them of which the log has no request, or another workflow.
    """
    if any(each.operation_type == CHILD_WORKFLOW for each in wanted):
        return None
    spent = {agent: sum(costs) / len(costs) for agent, costs in _spent(events, by_turn=False).items()}
    asked = [operation_name(each.operation_type, each.parameters) for each in wanted]
    asked = [agent for each, agent in zip(wanted, asked, strict=True) if each.operation_type in REQUESTS]
    return None if any(agent not in spent for agent in asked) else sum(spent[agent] for agent in asked) / NANODOLLARS


def items_to_come(events: Iterable[Event], state: ExecutionState) -> dict[str, int]:
    """Return how many items have not begun of the steps that are open, by step."""
    begun: defaultdict[str, set[int]] = defaultdict(set)
    totals: Counter[str] = Counter()
    for event in events:
        if isinstance(event.data, catalog.StepStarted):
            begun[event.path], totals[event.path] = set(), 0
        elif isinstance(event.data, catalog.IterationStarted):
            begun[event.path].add(event.data.iteration_index)
            totals[event.path] = max(totals[event.path], event.data.total or 0)
    found: Counter[str] = Counter()
    for path in state.active_paths():
        found[path.current_step] += max(0, totals[path.id] - len(begun[path.id]))
    return {step: count for step, count in found.items() if count}


def likely_items(events: Sequence[Event], left: Mapping[str, int]) -> float | None:
    """Return about what items that have not begun cost in dollars, as the items of the same steps in a log did.

    None where no item of one of the steps is done whose requests were paid for.
    """
    done = Counter(event.step for event in events if isinstance(event.data, catalog.IterationCompleted))
    spent: Counter[str] = Counter()
    for event in events:
        data = event.data
        if isinstance(data, catalog.OperationCompleted) and data.operation_type in REQUESTS and data.usage:
            spent[event.step] += data.usage.get("cost", 0)
    if any(spent[step] and not done[step] for step in left):
        return None
    return sum(count * spent[step] / done[step] for step, count in left.items() if spent[step]) / NANODOLLARS


def likely_turns(events: Sequence[Event], workflow: Workflow, steps: Iterable[str]) -> float | None:
    """Return about what the agents of steps cost that the log has nothing of, as other turns of the same agents did.

    What the log has of a step is likely to be used again. None where it has no turn of an agent.
    """
    known = {event.step for event in events if isinstance(event.data, catalog.OperationStarted)}
    spent = {agent: sum(costs) / len(costs) for agent, costs in _spent(events, by_turn=True).items()}
    named = set(steps) - known
    agents = [step.agent for step in workflow.steps if step.name in named and step.prompt is not None]
    return None if any(agent not in spent for agent in agents) else sum(spent[agent] for agent in agents) / NANODOLLARS


def _spent(events: Iterable[Event], *, by_turn: bool) -> dict[str | None, list[int]]:
    """Return what each request of an agent cost, or all requests that it made in a step of a path, or for an item."""
    found: dict[str | None, dict[tuple[str | int | None, ...], int]] = {}
    items: dict[str, int | None] = {}
    agents: dict[str, str | None] = {}
    for event in events:
        match event.data:
            case catalog.OperationStarted() as data if data.operation_type in REQUESTS:
                items[data.operation_id] = data.iteration_index
                agents[data.operation_id] = data.name or operation_name(data.operation_type, data.parameters)
            case catalog.OperationCompleted() as data if data.operation_id in agents and data.usage:
                costs = found.setdefault(agents[data.operation_id], {})
                turn = event.path, event.step, items[data.operation_id]
                key = turn if by_turn else (data.operation_id,)
                costs[key] = costs.get(key, 0) + data.usage.get("cost", 0)
    return {agent: [*costs.values()] for agent, costs in found.items()}
