"""Definitions from a file or a folder, and back to a file."""

from __future__ import annotations

import ast
import json
import re
import shlex
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from divebook.config.content import Sources, resolve_content
from divebook.errors import DefinitionError, Problem
from divebook.steps.code_problems import syntax_problems
from divebook.text.paths import as_path
from divebook.text.syntax import parse_python
from divebook.workflow.definition import Definitions, merge_all
from divebook.workflow.dialect import MANNERS, OWN, Dialect
from divebook.workflow.reader import Body, definitions_to_text, read_definitions
from divebook.workflow.table import MAX_TEXT, Format

# Which code cells of a notebook define something in Python: read, never run.
#
# Cells define that make a `@workflow`, `@step` or `@action`, or call one of `MAKERS`; to them belong the cells that
# give them the names they use. Lines of magics count as nothing, or as the value of the name they are assigned to.


DECORATORS = frozenset({"action", "step", "workflow"})
MAKERS = frozenset({"Action", "Agent", "Environment", "Workflow", "add_agent", "add_workflow", "allow", "define"})
_TRANSPARENT = frozenset({"%%capture", "%%prun", "%%time"})
"""Magics of whole cells whose body is Python of the notebook."""
_ASSIGNED = re.compile(r"(?m)^(\s*[\w, ]+=\s*)[%!].*$")
_MAGIC = re.compile(r"(?m)^(\s*)[%!].*$")
_HELP = re.compile(r"(?m)^(\s*)(?:\?{1,2}[\w.]+|[\w.]+\?{1,2})[ \t]*$")
_LOADS = re.compile(r"(?m)^\s*%load_ext\s")


def defining_cells(cells: Mapping[int, str]) -> list[int]:
    """Return the numbers of the cells that define something, and no others."""
    return [number for number, source in cells.items() if (tree := _tree(source)) and any(_defining(tree))]


def cells_to_run(cells: Mapping[int, str]) -> list[int]:
    """Return the numbers of the cells to run for what the notebook defines in Python, in the order of the notebook."""
    trees = {number: tree for number, source in cells.items() if (tree := _tree(source)) is not None}
    chosen = set(defining_cells(cells))
    wanted: set[str] = set()
    while True:
        wanted |= {name for number in chosen for name in (*_used(trees[number]), "*")}
        more = {number for number, tree in trees.items() if not wanted.isdisjoint(_bound(tree))} - chosen
        if not more:
            break
        chosen |= more
    if any(_MAGIC.search(cells[number]) or _ASSIGNED.search(cells[number]) for number in chosen):
        chosen |= {number for number, source in cells.items() if _LOADS.search(source)}
    return sorted(chosen)


def _tree(source: str) -> ast.Module | None:
    """Return a cell as Python, without its magics; None where it is none."""
    first, _, body = source.lstrip().partition("\n")
    if first.startswith("%%"):
        if first.split(None, 1)[0] not in _TRANSPARENT:
            return None
        source = body
    without_magics = _HELP.sub(r"\1pass", _MAGIC.sub(r"\1pass", _ASSIGNED.sub(r"\1None", source)))
    for text in (source, without_magics):
        try:
            return parse_python(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _defining(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what defines something in the statements of a cell, not in the functions that it only defines."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            decorators: Sequence[ast.expr] = getattr(node, "decorator_list", ())
            yield from (one for one in decorators if _called(one) in DECORATORS)
            continue
        if isinstance(node, ast.Call) and _called(node) in MAKERS | DECORATORS:
            yield node
        pending.extend(ast.iter_child_nodes(node))


def _called(node: ast.expr) -> str:
    """Return the last part of the name of what decorates or is called."""
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _used(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _bound(tree: ast.Module) -> set[str]:
    """Return the names that a cell gives; ``*`` stands for those of a star import, which may be any."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {(one.asname or one.name).partition(".")[0] for one in names}
    return found


# Definitions of a notebook: those of its ``%%dive`` cells, read without running anything.
#
# Cells that define in Python are named in a warning; `cells_to_run` tells which those are for people who want them run.


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


NOTEBOOK = ".ipynb"
FORMATS: dict[str, Format] = {".yaml": "yaml", ".yml": "yaml", ".json": "json"}


def load(path: str | Path, *, dialect: Dialect = OWN, sources: Sources | None = None) -> Definitions:
    """Read a definition file, or all of a folder merged in the order of their names, and the content they name.

    Subfolders are not looked into. Every file of a folder is read before problems are raised, so that one
    `DefinitionError` tells of all files. Paths are relative to the folder, web addresses are fetched now.
    """
    path = as_path(path, "what to load")
    is_folder = path.is_dir() or not path.suffix
    found = load_folder(path, dialect=dialect) if is_folder else load_file(path, dialect=dialect)
    return resolve_content(found, sources or Sources(path if is_folder else path.parent))


def load_file(path: Path, *, dialect: Dialect = OWN) -> Definitions:
    """Read one definition file, or the ``%%dive`` cells of a notebook; its suffix tells its format."""
    if path.suffix.lower() == NOTEBOOK:
        return definitions_of_notebook(text_of(path), str(path))
    found = read_definitions(text_of(path), source_name=str(path), dialect=dialect, format=_format_of(path))
    problems = syntax_problems(found)  # here, where it is known which file they stand in
    if problems:
        raise DefinitionError(problems, str(path))
    return found


def load_folder(folder: Path, *, dialect: Dialect = OWN) -> Definitions:
    """Read and merge the definition files of a folder."""
    parts: list[Definitions] = []
    failed: list[tuple[Path, DefinitionError]] = []
    for path in definition_files(folder):
        try:
            parts.append(load_file(path, dialect=dialect))
        except DefinitionError as error:
            failed.append((path, error))
    if len(failed) == 1:
        raise failed[0][1]
    if failed:
        raise DefinitionError(
            [_named(problem, path) for path, error in failed for problem in error.problems], str(folder)
        )
    return merge_all(parts)


def definition_files(folder: Path) -> list[Path]:
    """Return the definition files of a folder, sorted; it is an error if there are none."""
    try:
        names = sorted(path for path in folder.iterdir() if path.suffix.lower() in FORMATS and path.is_file())
    except OSError as error:
        raise _unreadable(folder, f"failed to read directory: {folder}: {error.strerror}") from error
    if not names:
        raise _unreadable(folder, f"no yaml or json files found in directory: {folder}")
    return names


def save(definitions: Definitions, path: str | Path) -> None:
    """Write definitions to a file that `load` reads as the same; its suffix tells the format."""
    path = Path(path)
    path.write_text(definitions_to_text(definitions, _format_of(path)), encoding="utf-8")


def _format_of(path: Path) -> Format:
    try:
        return FORMATS[path.suffix.lower()]
    except KeyError:
        hint = f"use one of {', '.join(FORMATS)}"
        raise _unreadable(path, f"unsupported file extension: {path.suffix}", hint) from None


def text_of(path: Path) -> str:
    """Return the text of a definition file; raises DefinitionError."""
    try:
        if path.stat().st_size > 4 * MAX_TEXT:
            raise _unreadable(path, f"failed to read file {path}: it has more than {4 * MAX_TEXT} bytes")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"failed to read file {path}: not UTF-8 at byte {error.start}") from error
    except OSError as error:
        raise _unreadable(path, f"failed to read file {path}: {error.strerror}") from error


def _unreadable(path: Path, message: str, hint: str | None = None) -> DefinitionError:
    return DefinitionError([Problem(message, hint=hint)], str(path))


def _named(problem: Problem, path: Path) -> Problem:
    where = f"{path.name}:{problem.line}:{problem.column}" if problem.line else path.name
    return replace(problem.at(0, 0), message=f"{where}: {problem.message}", place=())
