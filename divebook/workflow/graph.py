"""How the steps of a workflow hang together: what is reachable, and what is wrong or doubtful about it.

Works on steps alone, so that a definition text and a `Workflow` written in Python are checked by the same rules.
"""

from __future__ import annotations

import keyword
from collections.abc import Container, Iterable, Mapping, Sequence

from divebook.dialects import Manner
from divebook.errors import Place, Problem, Severity, did_you_mean
from divebook.workflow.rules import bare_names, escaped_references, step_problems
from divebook.workflow.step import Step

MOST_NAMES = 10
"""Of steps that an error lists."""
NAME_HINT = "write letters, digits and _, beginning with a letter; no keyword of Python"


def reachable_from(steps: Mapping[str, Step], name: str) -> frozenset[str]:
    """Return the steps that a path at step `name` can still come to: itself only if a circle leads back."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        step = steps.get(waiting.pop())
        for target in step.targets if step else ():
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return frozenset(seen)


def check_workflow(
    name: str,
    steps: Sequence[Step],
    linked: Sequence[Step],
    manner: Manner,
    *,
    inputs: Iterable[str] = (),
    outputs: Iterable[str] = (),
) -> list[Problem]:
    """Return everything wrong or doubtful about the parts of a workflow, of `steps` as written, and `linked`."""
    problems = [] if name.strip() else [Problem("workflow name required", key="Name", place=("Name",))]
    given = tuple(inputs)
    problems += duplicate_names("input", given, ("Inputs",), manner=manner)
    problems += duplicate_names("output", outputs, ("Outputs",), manner=manner)
    if manner.is_strict:
        problems += [*_no_names("input", given, ("Inputs",)), *_stores(steps)]
    if not steps:
        return [*problems, Problem("no steps found", key="Steps", place=("Steps",), hint="add at least one step")]
    problems += duplicate_names("step", (step.name for step in steps), ("Steps",), manner=manner)
    for index, step in enumerate(steps):
        problems += [found.below("Steps", index) for found in step_problems(step, manner)]
    doubts = (*_unreachable(linked), *_falling_through(steps, linked), *bare_names(steps, given))
    if manner.is_strict:
        doubts = (*doubts, *escaped_references(steps))
    return [*problems, *_dangling(linked, manner), *doubts]


def _no_names(kind: str, names: Iterable[str], place: Place) -> Iterable[Problem]:
    for index, name in enumerate(names):
        if not is_name(name):
            yield Problem(
                f"{kind} {name!r} is not a valid name", key="Name", hint=NAME_HINT, place=(*place, index, "Name")
            )


def _stores(steps: Sequence[Step]) -> Iterable[Problem]:
    """Find names of variables and items that no expression could mention."""
    for index, step in enumerate(steps):
        named: list[tuple[str | None, Place]] = [(step.store, ("Store",))]
        named += [(step.each.as_, ("Each", "As"))] if step.each else []
        named += [(policy.store, ("Catch", number, "Store")) for number, policy in enumerate(step.catch)]
        for name, place in named:
            if name and not is_name(name):
                key = str(place[-1])
                yield Problem(
                    f"{key} {name!r} is not a valid name", key=key, hint=NAME_HINT, place=("Steps", index, *place)
                )


def is_name(text: str) -> bool:
    """Whether expressions can mention it, as in ``state.text``."""
    return text.isidentifier() and not keyword.iskeyword(text)


def duplicate_names(
    kind: str, names: Iterable[str], place: Place = (), severity: Severity = "error", *, manner: Manner
) -> list[Problem]:
    """Return a problem for every name that an earlier item of the same list has."""
    first: dict[str, int] = {}
    problems = []
    for index, name in enumerate(names):
        if name and name in first:
            message = f"two {kind}s are called {name!r}" if manner.is_strict else f"{kind} already registered: {name}"
            twin = (*place, first[name], "Name") if manner.is_strict else ()
            where = (*place, index, "Name")
            problems.append(Problem(message, key="Name", severity=severity, place=where, twin=twin))
        first.setdefault(name, index)
    return problems


def _dangling(steps: Sequence[Step], manner: Manner) -> Iterable[Problem]:
    names = dict.fromkeys(step.name for step in steps)
    for index, step in enumerate(steps):
        targets = [("Next", number, edge.step) for number, edge in enumerate(step.edges)]
        targets += [("Catch", number, policy.step) for number, policy in enumerate(step.catch)]
        for key, number, target in targets:
            if target not in names:
                known = f"steps: {', '.join(names)}" if len(names) <= MOST_NAMES else None
                message = f"{key}: there is no step {target!r}"
                if not manner.is_strict and key == "Next":
                    message = f'edge to step "{target}" not found'
                place: Place = ("Steps", index, key, number, "Step")
                yield Problem(message, key="Step", place=place, hint=did_you_mean(target, names) or known)


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
        if len(step.edges) < 2:
            continue
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
