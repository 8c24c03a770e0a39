"""How the steps of a workflow hang together: what is reachable, and what is wrong or doubtful about it.

Works on steps alone, so that a definition text and a `Workflow` written in Python are checked by the same rules.
"""

from __future__ import annotations

import keyword
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from divebook.errors import nearest
from divebook.workflow.problem import Place, Problem, Severity
from divebook.workflow.rules import bare_names, step_problems
from divebook.workflow.step import Dialect, Step, chained

if TYPE_CHECKING:
    from divebook.workflow.definition import Definitions, Workflow

NAME_HINT = "write letters, digits and _, beginning with a letter, and no word of Python's own"


def reachable_from(steps: Mapping[str, Step], name: str) -> frozenset[str]:
    """Return the steps that a path at step `name` can still come to: itself only if a circle leads back."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        step = steps.get(waiting.pop())
        targets = set(step.targets) - seen if step else set()
        seen |= targets
        waiting.extend(targets)
    return frozenset(seen)


def reachable(workflow: Workflow, step: str) -> frozenset[str]:
    """Return the steps that a path at `step` can still come to; each answer is computed once per workflow."""
    return workflow.reachable(step)


def check_workflow(
    name: str, steps: Sequence[Step], dialect: Dialect, inputs: Iterable[str] = (), outputs: Iterable[str] = ()
) -> list[Problem]:
    """Return everything wrong or doubtful about the parts of a workflow, `steps` as written (not yet chained)."""
    problems = [] if name.strip() else [Problem("workflow name required", key="Name", place=("Name",))]
    given = tuple(inputs)
    problems += duplicate_names("input", given, ("Inputs",))
    problems += duplicate_names("output", outputs, ("Outputs",))
    if dialect == "divebook":
        problems += [*_no_names("input", given, ("Inputs",)), *_stores(steps)]
    if not steps:
        return [*problems, Problem("no steps found", key="Steps", place=("Steps",), hint="add at least one step")]
    problems += duplicate_names("step", (step.name for step in steps), ("Steps",))
    for index, step in enumerate(steps):
        problems += [found.below("Steps", index) for found in step_problems(step, dialect)]
    linked = chained(steps)
    doubts = (*_unreachable(linked), *_falling_through(steps, linked), *bare_names(steps, given))
    return [*problems, *_dangling(linked), *doubts]


def _no_names(kind: str, names: Iterable[str], place: Place) -> Iterable[Problem]:
    for index, name in enumerate(names):
        if not is_name(name):
            yield Problem(f"{kind} {name!r} is no name", key="Name", hint=NAME_HINT, place=(*place, index, "Name"))


def _stores(steps: Sequence[Step]) -> Iterable[Problem]:
    """Find names of variables and items that no expression could mention."""
    for index, step in enumerate(steps):
        named: list[tuple[str | None, Place]] = [(step.store, ("Store",))]
        named += [(step.each.as_, ("Each", "As"))] if step.each else []
        named += [(policy.store, ("Catch", number, "Store")) for number, policy in enumerate(step.catch)]
        for name, place in named:
            if name and not is_name(name):
                key = str(place[-1])
                yield Problem(f"{key} {name!r} is no name", key=key, hint=NAME_HINT, place=("Steps", index, *place))


def is_name(text: str) -> bool:
    """Whether expressions can mention it, as in ``state.text``."""
    return text.isidentifier() and not keyword.iskeyword(text)


def duplicate_names(kind: str, names: Iterable[str], place: Place = (), severity: Severity = "error") -> list[Problem]:
    """Return a problem for every name that an earlier item of the same list has."""
    seen: set[str] = set()
    problems = []
    for index, name in enumerate(names):
        if name and name in seen:
            message, where = f"{kind} already registered: {name}", (*place, index, "Name")
            problems.append(Problem(message, key="Name", severity=severity, place=where))
        seen.add(name)
    return problems


def check_references(definitions: Definitions, known_agents: Iterable[str] = ()) -> list[Problem]:
    """Return the steps and agents that name an agent which neither `definitions` nor `known_agents` hold."""
    known = {*known_agents, *(agent.name for agent in definitions.agents)}
    problems = [
        found.below("Workflows", index)
        for index, workflow in enumerate(definitions.workflows)
        for found in missing_agents(workflow, known)
    ]
    for index, agent in enumerate(definitions.agents):
        for number, name in enumerate(agent.subordinates):
            if name not in known:
                problems.append(_no_agent(name, known).below("Agents", index, "Subordinates", number))
    return [found.at(*definitions.positions.get(found.place, (0, 0))) for found in problems]


def missing_agents(workflow: Workflow, known: Iterable[str]) -> list[Problem]:
    """Return the steps that name an agent which is not `known`; a step without one takes the default agent."""
    names = frozenset(known)
    return [
        _no_agent(step.agent, names).below("Steps", index, "Agent")
        for index, step in enumerate(workflow.steps)
        if step.agent is not None and step.agent not in names
    ]


def _no_agent(name: str, known: Iterable[str]) -> Problem:
    names = sorted(known)
    others = f"there is {', '.join(names[:10])}" if names else "no agent is defined"
    return Problem(f"agent {name} not found", key="Agent", hint=_did_you_mean(name, names) or others)


def _did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    match = nearest(name, candidates)
    return f"did you mean {match!r}?" if match else None


def _dangling(steps: Sequence[Step]) -> Iterable[Problem]:
    names = {step.name for step in steps}
    for index, step in enumerate(steps):
        for number, edge in enumerate(step.edges):
            if edge.step not in names:
                place: Place = ("Steps", index, "Next", number, "Step")
                hint = _did_you_mean(edge.step, names)
                yield Problem(f'edge to step "{edge.step}" not found', key="Step", place=place, hint=hint)
        for number, policy in enumerate(step.catch):
            if policy.step not in names:
                place = ("Steps", index, "Catch", number, "Step")
                hint = _did_you_mean(policy.step, names)
                yield Problem(
                    f'Catch goes to step "{policy.step}", which does not exist', key="Step", place=place, hint=hint
                )


def _unreachable(steps: Sequence[Step]) -> Iterable[Problem]:
    start = steps[0].name
    reached: Container[str] = reachable_from({step.name: step for step in steps}, start) | {start}
    for index, step in enumerate(steps):
        if step.name not in reached:
            yield Problem(
                f"no path leads to step {step.name!r}", key="Name", severity="warning", place=("Steps", index, "Name")
            )


def _falling_through(written: Sequence[Step], linked: Sequence[Step]) -> Iterable[Problem]:
    """Find branch targets that go on into their listed neighbour, which is a target of the same branch."""
    position = {step.name: index for index, step in enumerate(written)}
    warned: set[str] = set()
    for step in linked:
        targets = {edge.step for edge in step.edges}
        for name in sorted(targets - warned, key=lambda name: position.get(name, -1)):
            index = position.get(name, -1)
            if index < 0 or not written[index].is_open or not linked[index].edges:
                continue
            sibling = linked[index].edges[0].step
            if sibling in targets and sibling != name and not linked[index + 1].join:
                warned.add(name)
                yield _fall_through(name, sibling, step.name, index)


def _fall_through(name: str, sibling: str, branching: str, index: int) -> Problem:
    return Problem(
        f"step {name!r} goes on into {sibling!r}, its sibling in the branch of {branching!r}, listed right after it",
        key="Name",
        severity="warning",
        hint="write End: true, or Next",
        place=("Steps", index, "Name"),
    )
