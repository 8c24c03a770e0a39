"""Definitions of a notebook: those of its ``%%dive`` cells, read without running anything.

Cells that define in Python are named in a warning; `cells_to_run` tells which those are for people who want them run.
"""

from __future__ import annotations

import json
import shlex
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Collection
from dataclasses import replace
from typing import Any, get_args

from divebook.config.notebook_code import cells_to_run, defining_cells
from divebook.dialects import MANNERS, OWN
from divebook.errors import DefinitionError, Problem
from divebook.workflow.definition import Definitions
from divebook.workflow.merge import merge_all
from divebook.workflow.reader import Body, read_definitions

MAGIC = "%%dive"


def definitions_of_notebook(text: str, source_name: str, *, code_runs: bool = False) -> Definitions:
    """Return what the ``%%dive`` cells of a notebook define, later ones over earlier ones.

    Parameters
    ----------
    code_runs
        Its Python is run as well: there may be no such cell, and cells in Python are not warned of.

    Raises
    ------
    DefinitionError
        The text is not a notebook, or something in a cell is wrong; the cell is named by its number from 1.
    """
    cells = _code_cells(text, source_name)
    parts = [_read(cell, f"{source_name}, code cell {number}") for number, cell in cells.items() if _defines(cell)]
    numbers = defining_cells(cells)
    left = None if code_runs else _left_out(numbers, source_name)
    if not parts and not (code_runs and numbers):
        hint = left.hint if left else f"a cell that begins with {MAGIC} defines agents and workflows"
        message = f"no cell begins with {MAGIC}" + (f", and {left.message}" if left else "")
        raise DefinitionError([Problem(message, hint=hint)], source_name)
    found = merge_all(parts) if parts else Definitions()
    return replace(found, warnings=(*found.warnings, left)) if left else found


def python_of_notebook(text: str, source_name: str) -> dict[int, str]:
    """Return the code cells that have to be run for what a notebook defines in Python, by their numbers from 1."""
    cells = _code_cells(text, source_name)
    return {number: cells[number] for number in cells_to_run(cells)}


def cells_named(numbers: Collection[int]) -> str:
    """Return how cells are called: ``code cell 3``, ``code cells 3, 5``."""
    return ("code cells " if len(numbers) > 1 else "code cell ") + ", ".join(map(str, numbers))


def _code_cells(text: str, source_name: str) -> dict[int, str]:
    """Return the code cells of a notebook by their numbers from 1; raises DefinitionError."""
    try:
        cells = [_source(cell) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        message = f"not a notebook: {type(error).__name__}: {error}"
        raise DefinitionError([Problem(message)], source_name) from error
    return dict(enumerate(cells, 1))


def _left_out(numbers: Collection[int], source_name: str) -> Problem | None:
    """Return a warning that names the cells that define in Python, which are not run."""
    if not numbers:
        return None
    verb = "define" if len(numbers) > 1 else "defines"
    command = f"divebook run {shlex.quote(source_name)} --code"
    hint = f"to have the code run: {command}"
    return Problem(
        f"{cells_named(numbers)} {verb} in Python, and code is run only when asked", severity="warning", hint=hint
    )


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
