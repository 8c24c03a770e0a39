"""The workspace that the present call of an execution works in: set by what carries the call out."""

from __future__ import annotations

from contextvars import ContextVar

from divebook.errors import WorkspaceNotEnteredError
from divebook.workspace.workspace import Workspace

PRESENT: ContextVar[Workspace | None] = ContextVar("divebook_workspace", default=None)


def present_workspace() -> Workspace:
    """Return it; raises `WorkspaceNotEnteredError` outside of such a call."""
    found = PRESENT.get()
    if found is None:
        raise WorkspaceNotEnteredError("there is no workspace here: let the agent, step or workflow name one")
    return found
