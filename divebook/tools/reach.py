"""What the tools that come with divebook have in common: what they may reach, and what they say of themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from divebook.documents import DocumentRepository, Policy
from divebook.workflow.approvals import IF_NOT_READ_ONLY
from divebook.workflow.tools import FileSpellings, ToolFunction, ToolHints

READS = ToolHints(read_only=True, destructive=False, idempotent=True, open_world=False)
WRITES = ToolHints(read_only=False, destructive=True, idempotent=True, open_world=False)


class ToolReach(NamedTuple):
    """What the tools of an environment may reach."""

    documents: DocumentRepository
    policy: Policy
    folder: Path
    """What paths of files are relative to."""


def coming(
    function: Callable[..., Any], hints: ToolHints, name: str = "", files: FileSpellings | None = None
) -> ToolFunction:
    """Return a function as a tool that comes with divebook: one that does more than read asks, unless a rule decides.

    It stays in this process, whatever the executor of other functions is.
    """
    return ToolFunction(
        name or function.__name__,
        function,
        inspect.getdoc(function) or "",
        hints=hints,
        confirmation=IF_NOT_READ_ONLY,
        executor="thread",
        files=files,
    )


def failed(message: str) -> Exception:
    """Return what to raise so that the model is told of a failure and goes on."""
    from pydantic_ai.exceptions import ToolFailed

    return ToolFailed(f"Error: {in_utf8(message)}")


def in_utf8(text: str) -> str:
    """Return a text with what no UTF-8 can say spelled out: names of files may be any bytes."""
    return text.encode("utf-8", "backslashreplace").decode()
