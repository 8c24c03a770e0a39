"""What a person can ask of a workflow function before it runs: does it come to the same whenever it runs again."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from divebook.errors import Problem, position_in
from divebook.text.arguments import require
from divebook.workflow.code import Doubt, doubts_of, shown_place
from divebook.workflow.definition import Workflow
from divebook.workflow.functions import WORKFLOW_FUNCTIONS


class Doubts(list[Problem]):
    """The problems of a function, in the order of its lines; as the last value of a cell a line for each."""

    def __init__(self, found: Iterable[Doubt]) -> None:
        doubts = list(found)
        super().__init__(doubt.problem for doubt in doubts)
        self._places = [shown_place(doubt.function, doubt.problem.line) for doubt in doubts]

    def __str__(self) -> str:
        told = zip(self._places, self, strict=True)
        lines = [
            f"{position_in(place, line, each.column)}: {each.message}; {each.hint}" for (place, line), each in told
        ]
        return "\n".join(lines) or "nothing that may come to something else when it runs again"

    def __repr__(self) -> str:
        return str(self)


def lint(workflow: Any) -> Doubts:
    """Return what may make a workflow function come to something else when it runs again, in the order of its lines.

    Parameters
    ----------
    workflow
        What ``@workflow`` made, or an async function; of a workflow that is no function nothing is found.

    Examples
    --------
    >>> import random
    >>> async def draw(ctx):
    ...     return random.choice("ab")
    >>> [found.message for found in lint(draw)]
    ['random.choice() gives something else whenever the function runs again']
    """
    known = WORKFLOW_FUNCTIONS.get(getattr(workflow, "name", ""))
    if known is not None and known.workflow == workflow:
        workflow = known.function
    expected = "what @workflow made, an async function, or a Workflow"
    require(workflow, "what to lint", expected, fits=isinstance(workflow, Workflow) or callable(workflow))
    return Doubts(doubts_of(workflow) if inspect.isfunction(workflow) else ())
