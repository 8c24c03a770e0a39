"""A workspace as the log has it: where it is, and which files it has at a place of the log. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from divebook.engine.records import EMPTY

ABOUT_FILES = "files-"
"""Begins what a question stands for, in place of an operation, that asks what is to be done with files that were found
otherwise than the execution had left them; the name of the workspace follows."""


class HeldWorkspace(NamedTuple):
    """A workspace that an execution has used."""

    kind: str
    """Where its commands run: ``local``, ``fenced``, ``virtualenv``."""
    reference: Mapping[str, Any] = EMPTY
    """What it is found again by: its folder, its container."""
    source: str | None = None
    """The folder that its files are a copy of; None where it is that folder itself."""
    first: str | None = None
    """Digest of the files that it had when the execution began to use it."""
    tree: str | None = None
    """Digest of the files that it has now."""
    at: int = 0
    """The event that has its files, or what has changed of them last; 0 where nothing is known of them."""
    is_own: bool = True
    """Whether it has a place; a fork has the files of its source, and makes a place of its own for them once it works
    there."""
