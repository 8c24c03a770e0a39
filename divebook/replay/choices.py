"""What the choices after a step decide, by the definition alone: which variables, and up to which step.

A step that comes after a choice depends on it, unless it is reached whatever was chosen, and once (`Choices.merge`).
A variable depends on it too where it kept its value only because another way was not taken (`Choices.may_set`): of that
a log has no event.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from divebook.errors import DivebookError
from divebook.replay.origin import ValueOrigin
from divebook.scripting.conditions import unwrapped
from divebook.scripting.needs import changed_by_script
from divebook.scripting.reads import KNOWN_TYPES
from divebook.text.python import parse_python
from divebook.workflow.definition import Workflow
from divebook.workflow.functions import FUNCTION
from divebook.workflow.step import STAGE, Step

_CONTRARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.Lt: ast.GtE,
    ast.Gt: ast.LtE,
    ast.Is: ast.IsNot,
    ast.In: ast.NotIn,
}
_CONTRARY |= {other: one for one, other in _CONTRARY.items()}


class Choices:
    """The choices of one workflow; each answer is computed once."""

    def __init__(self, workflow: Workflow) -> None:
        self._steps = {step.name: step for step in workflow.steps}
        self._changed = {step.name: _changed_by(step) for step in workflow.steps}
        self._sets = {step.name: _set_by(step, self._changed[step.name]) for step in workflow.steps}
        self._merges: dict[str, str | None] = {}
        self._settable: dict[tuple[str, str], frozenset[str] | None] = {}

    def is_choice(self, name: str) -> bool:
        """Whether what follows a step is not the same always."""
        step = self._steps.get(name)
        return step is not None and (bool(step.catch) or any(edge.condition for edge in step.edges))

    def merge(self, name: str) -> str | None:
        """Return the first step that is reached once, whatever is chosen after a step; None if there is none."""
        if name not in self._merges:
            self._merges[name] = next((step for step in self._candidates(name) if self._merges_at(name, step)), None)
        return self._merges[name]

    def may_set(self, name: str, targets: Iterable[str]) -> frozenset[str] | None:
        """Return the variables that the ways from a step to some targets may set; None for any."""
        found: frozenset[str] = frozenset()
        for target in targets:
            settable = self._set_from(name, target)
            if settable is None:
                return None
            found |= settable
        return found

    def still_holding(self, control: tuple[int, ...], step: str, known: Sequence[ValueOrigin]) -> tuple[int, ...]:
        """Leave out the choices, numbers of `known`, whatever of which was chosen, a path would have come to a step."""
        if all(self.merge(known[number].step) != step for number in control):
            return control
        kept: dict[int, None] = {}
        waiting = [*reversed(control)]
        while waiting:
            choice = known[waiting.pop()]
            if self.merge(choice.step) == step:
                waiting += reversed(choice.because)
            else:
                kept[choice.number] = None
        return tuple(kept)

    def changed_by(self, name: str) -> frozenset[str] | None:
        """Return the variables that the script of a step may set or delete besides its result; None for any."""
        return self._changed.get(name, frozenset())

    def setters(self, variable: str) -> list[str]:
        """Return the steps that may set a variable."""
        return [name for name, known in self._sets.items() if known is None or variable in known]

    def _set_from(self, name: str, target: str) -> frozenset[str] | None:
        key = (name, target)
        if key not in self._settable:
            known = [self._sets[step] for step in self._reached([target], self.merge(name)) if step in self._sets]
            unknown = any(names is None for names in known)
            self._settable[key] = None if unknown else frozenset().union(*(names or () for names in known))
        return self._settable[key]

    def _candidates(self, name: str) -> Iterator[str]:
        """Yield the steps on a shortest way from a step to the end."""
        came: dict[str, str] = {}
        waiting = deque([name])
        while waiting:
            step = waiting.popleft()
            if step != name and self._may_end(step):
                way = [step]
                while (before := came[way[-1]]) != name:
                    way.append(before)
                yield from reversed(way)
                return
            for target in self._follows(step):
                if target not in came and target != name:
                    came[target] = step
                    waiting.append(target)

    def _merges_at(self, name: str, merge: str) -> bool:
        if self._may_end(name):
            return False
        between = self._reached(self._follows(name), merge)
        if any(self._may_end(step) for step in between):
            return False
        return self._steps[merge].join or all(_is_one_way(self._steps[step]) for step in (*between, name))

    def _reached(self, begin: Iterable[str], stop: str | None) -> list[str]:
        """Return the steps that can be reached without passing `stop`."""
        seen = dict.fromkeys(step for step in begin if step != stop)
        waiting = [*seen]
        while waiting:
            for target in self._follows(waiting.pop()):
                if target != stop and target not in seen:
                    seen[target] = None
                    waiting.append(target)
        return [*seen]

    def _follows(self, name: str) -> tuple[str, ...]:
        step = self._steps.get(name)
        return () if step is None else tuple(target for target in step.targets if target in self._steps)

    def _may_end(self, name: str) -> bool:
        """Whether a path may end after a step, with no way taken."""
        edges = self._steps[name].edges
        return not edges or (all(edge.condition for edge in edges) and not _are_contrary(self._steps[name]))


def _is_one_way(step: Step) -> bool:
    """Whether a path never splits after a step."""
    return len(step.edges) <= 1 or _are_contrary(step)


def _are_contrary(step: Step) -> bool:
    """Whether one of just two conditions holds: ``state.ok`` and ``not state.ok``, ``state.n < 3`` and ``>= 3``.

    >>> _are_contrary(Step("a", script="1", next=[("b", "$(state.n < 3)"), ("c", "$(state.n >= 3)")]))
    True
    """
    texts = [edge.condition for edge in step.edges if edge.condition]
    if len(texts) != 2 or len(step.edges) != 2:
        return False
    try:
        one, other = (parse_python(unwrapped(text), mode="eval").body for text in texts)
    except SyntaxError:
        return False
    return _is_not(one, other) or _is_not(other, one) or _is_contrary(one, other)


def _is_not(one: ast.expr, other: ast.expr) -> bool:
    return isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.Not) and ast.dump(one.operand) == ast.dump(other)


def _is_contrary(one: ast.expr, other: ast.expr) -> bool:
    if not (isinstance(one, ast.Compare) and isinstance(other, ast.Compare) and len(one.ops) == len(other.ops) == 1):
        return False
    sides = [ast.dump(found.left) + ast.dump(found.comparators[0]) for found in (one, other)]
    return sides[0] == sides[1] and _CONTRARY[type(one.ops[0])] is type(other.ops[0])


def _changed_by(step: Step) -> frozenset[str] | None:
    """Return the variables that a step may change beside its result; None if only running it tells."""
    if step.type in (FUNCTION, STAGE):
        return frozenset()
    if step.type not in KNOWN_TYPES:
        return None
    try:
        return changed_by_script(step.script) if step.type == "script" and step.script else frozenset()
    except DivebookError:  # it cannot run
        return frozenset()


def _set_by(step: Step, changed: frozenset[str] | None) -> frozenset[str] | None:
    """Return the variables that a step may set; None if only running it tells."""
    stored = {name for name in (step.store, *(policy.store for policy in step.catch)) if name}
    return None if changed is None else changed | stored
