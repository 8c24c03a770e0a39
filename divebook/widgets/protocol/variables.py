"""Variables and inputs as they are now."""

from __future__ import annotations

from typing import Literal, TypedDict


class VariableView(TypedDict):
    """A variable or input as it is: short texts only."""

    name: str
    source: str
    """The step that sets it, or ``input``; empty if no step names it."""
    type: str
    """In a word: ``text``, ``list``, ``DataFrame``; empty if it is not set yet."""
    size: str
    """Characters of a text, parts of a list or mapping, rows and columns of a table."""
    text: str
    """Its beginning; empty where rows are shown."""
    columns: list[str]
    rows: list[list[str]]
    """The first rows of a table, a cell for each of `columns`."""
    total: int
    """How many rows the table has."""


class Variables(TypedDict):
    """Answer to `VariableQuery`."""

    type: Literal["variables"]
    view: str
    version: int
    """Grows with each change."""
    variables: list[VariableView] | None
    """Null if nothing has changed since the version that the view has."""


class VariableQuery(TypedDict):
    """A view asks for the variables as they are now."""

    type: Literal["variables"]
    view: str
    version: int
    """Of those that it has; 0 for none."""
