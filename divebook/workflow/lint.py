"""What a person can ask of a workflow function before it runs: does it come to the same whenever it runs again."""

from __future__ import annotations

import inspect
from typing import Any

from divebook.errors import Problem
from divebook.workflow.determinism import doubts_of
from divebook.workflow.functions import WORKFLOW_FUNCTIONS


def lint(workflow: Any) -> list[Problem]:
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
    return [doubt.problem for doubt in doubts_of(workflow)] if inspect.isfunction(workflow) else []
