"""Agents and workflows that a workflow names, in its own steps and in those of workflows that it runs."""

from __future__ import annotations

from collections.abc import Mapping

from divebook.workflow.definition import Workflow


def names(flow: Workflow, kind: str, name: str, workflows: Mapping[str, Workflow]) -> bool:
    """Return whether a step of a workflow, or of one that it runs, names an agent or workflow.

    Parameters
    ----------
    kind
        ``agent`` or ``workflow``.
    workflows
        Those that it can run, by their names.

    Examples
    --------
    >>> from divebook.workflow.definition import Step
    >>> inner = Workflow("inner", [Step("ask", agent="critic", prompt="Well?")])
    >>> outer = Workflow("outer", [Step("run", workflow="inner")])
    >>> names(outer, "agent", "critic", {"inner": inner}), names(outer, "agent", "other", {"inner": inner})
    (True, False)
    """
    seen, left = {flow.name}, [flow]
    while left:
        steps = left.pop().steps
        if any(getattr(step, kind) == name for step in steps):
            return True
        below = {str(step.workflow) for step in steps if step.workflow} & workflows.keys() - seen
        seen |= below
        left += [workflows[each] for each in below]
    return False
