"""Definitions of a notebook: those of its ``%%dive`` cells, read without running anything."""

from __future__ import annotations

import json
import shlex
from argparse import ArgumentError, ArgumentParser, Namespace
from typing import Any, get_args

from divebook.dialects import MANNERS, OWN
from divebook.errors import DefinitionError, Problem
from divebook.workflow.definition import Definitions
from divebook.workflow.merge import merge_all
from divebook.workflow.reader import Body, read_definitions

MAGIC = "%%dive"


def definitions_of_notebook(text: str, source_name: str) -> Definitions:
    """Return what the ``%%dive`` cells of a notebook define, later ones over earlier ones.

    Raises
    ------
    DefinitionError
        The text is no notebook, or something in a cell is wrong; the cell is named by its number from 1.
    """
    try:
        notebook = json.loads(text)
        cells = [_source(cell) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        message = f"not a notebook: {type(error).__name__}: {error}"
        raise DefinitionError([Problem(message)], source_name) from error
    defining = [(number, cell) for number, cell in enumerate(cells, 1) if _defines(cell)]
    parts = [_read(cell, f"{source_name}, code cell {number}") for number, cell in defining]
    if not parts:
        hint = f"a cell that begins with {MAGIC} defines agents and workflows"
        raise DefinitionError([Problem(f"no cell begins with {MAGIC}", hint=hint)], source_name)
    return merge_all(parts)


def _source(cell: Any) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def _defines(source: str) -> bool:
    return source.lstrip().split(None, 1)[:1] == [MAGIC]


def _read(source: str, where: str) -> Definitions:
    first, _, body = source.lstrip().partition("\n")
    said = _said(first, where)
    above = source[: len(source) - len(source.lstrip())].count("\n")
    return read_definitions(
        body, source_name=where, dialect=said.dialect, line_offset=1 + above, body=said.kind, name=said.name
    )


def _said(first: str, where: str) -> Namespace:
    """Return what the first line of a cell says."""
    line = ArgumentParser(MAGIC, add_help=False, exit_on_error=False)
    line.add_argument("kind", nargs="?", default="file", choices=get_args(Body))
    line.add_argument("name", nargs="?")
    line.add_argument("--dialect", default=OWN, choices=tuple(MANNERS))
    try:
        said, unknown = line.parse_known_args(shlex.split(first)[1:])
    except (ArgumentError, ValueError) as error:
        raise DefinitionError([Problem(f"{first!r} is not understood: {error}")], where) from error
    if unknown:
        raise DefinitionError([Problem(f"{first!r} is not understood: unexpected {' '.join(unknown)}")], where)
    return said
