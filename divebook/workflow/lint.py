"""The public function `lint`: find code in a workflow function that may give a different result on replay."""

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
    """Problems of a function in the order of its lines. A notebook shows them one per line."""

    def __init__(self, doubts: Iterable[Doubt]) -> None:
        doubts = list(doubts)
        super().__init__(doubt.problem for doubt in doubts)
        self._places = [shown_place(doubt.function, doubt.problem.line) for doubt in doubts]

    def __str__(self) -> str:
        lines = []
        for (place, line), problem in zip(self._places, self, strict=True):
            lines.append(f"{position_in(place, line, problem.column)}: {problem.message}; {problem.hint}")
        return "\n".join(lines) or "nothing that may come to something else when it runs again"

    def __repr__(self) -> str:
        return str(self)


def lint(workflow: Any) -> Doubts:
    """Return the code of a workflow function that may give a different result on replay, in the order of its lines.

    Parameters
    ----------
    workflow
        Result of ``@workflow``, or an async function. For a workflow without a function the result is empty.

    Examples
    --------
    >>> import random
    >>> async def draw(ctx):
    ...     return random.choice("ab")
    >>> [found.message for found in lint(draw)]
    ['random.choice() gives something else whenever the function runs again']
    """
    registered = WORKFLOW_FUNCTIONS.get(getattr(workflow, "name", ""))
    if registered is not None and registered.workflow == workflow:
        workflow = registered.function
    expected = "what @workflow made, an async function, or a Workflow"
    require(workflow, "what to lint", expected, fits=isinstance(workflow, Workflow) or callable(workflow))
    return Doubts(doubts_of(workflow) if inspect.isfunction(workflow) else ())
