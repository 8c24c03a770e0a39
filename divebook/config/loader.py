"""Loading of definitions from files, folders, notebooks and Python modules, and saving to a file."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import re
import shlex
import sys
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from divebook.agents import Agent
from divebook.config.content import Sources, resolve_content
from divebook.definitions.definition import Definitions, Workflow, merge_all
from divebook.definitions.dialect import DIALECT_RULES, OWN, Dialect
from divebook.definitions.reader import Body, definitions_to_text, read_definitions
from divebook.definitions.resources import ScheduleDefinition
from divebook.definitions.servers import MCPServerDefinition
from divebook.definitions.table import MAX_TEXT, Format
from divebook.environments.environment import Environment
from divebook.errors import DefinitionError, Problem, SetupError
from divebook.report.hints import advised
from divebook.steps.checks import syntax_problems
from divebook.text.path_arguments import as_path, similar_file
from divebook.text.syntax import parse_python

# --- files and folders -----------------------------------------------------------------------------------------------

NOTEBOOK = ".ipynb"
FORMATS: dict[str, Format] = {".yaml": "yaml", ".yml": "yaml", ".json": "json"}


def load(path: str | Path, *, dialect: Dialect = OWN, sources: Sources | None = None) -> Definitions:
    """Read a definition file, or all files of a folder, and load the content that the definitions refer to.

    The files of a folder are merged in the order of their names.

    Subfolders are ignored. All files of a folder are read before an error is raised, so that one `DefinitionError` has
    the problems of all files. Paths in definitions are relative to the folder. Web pages that the definitions refer to
    are fetched now.
    """
    path = as_path(path, "the path to load")
    # A missing path without a suffix is reported as a missing folder.
    is_folder = path.is_dir() or not path.suffix
    definitions = load_folder(path, dialect=dialect) if is_folder else load_file(path, dialect=dialect)
    return resolve_content(definitions, sources or Sources(path if is_folder else path.parent))


def load_file(path: Path, *, dialect: Dialect = OWN) -> Definitions:
    """Read the definitions in one definition file, or in the ``%%dive`` cells of a notebook; the suffix determines the
    format.
    """
    if path.suffix.lower() == NOTEBOOK:
        return definitions_of_notebook(text_of(path), str(path))
    definitions = read_definitions(text_of(path), source_name=str(path), dialect=dialect, format=_format_of(path))
    problems = syntax_problems(definitions)  # checked here, where the file of a problem is known
    if problems:
        raise DefinitionError(problems, str(path))
    return definitions


def load_folder(folder: Path, *, dialect: Dialect = OWN) -> Definitions:
    """Read all definition files of a folder, and return their merged definitions."""
    parts: list[Definitions] = []
    failed: list[tuple[Path, DefinitionError]] = []
    for path in definition_files(folder):
        try:
            parts.append(load_file(path, dialect=dialect))
        except DefinitionError as error:
            failed.append((path, error))
    # A single error keeps its file and lines. Several errors become one, in which each message names its file.
    if len(failed) == 1:
        raise failed[0][1]
    if failed:
        raise DefinitionError(
            [_with_file_name(problem, path) for path, error in failed for problem in error.problems], str(folder)
        )
    return merge_all(parts)


def definition_files(folder: Path) -> list[Path]:
    """Return the paths of a folder's definition files, sorted; raise `DefinitionError` if there are none."""
    try:
        names = sorted(path for path in folder.iterdir() if path.suffix.lower() in FORMATS and path.is_file())
    except OSError as error:
        similar = similar_file(folder) if isinstance(error, FileNotFoundError) else ""
        raise _unreadable(folder, f"failed to read directory: {folder}: {error.strerror}{similar}") from error
    if not names:
        raise _unreadable(folder, f"no yaml or json files found in directory: {folder}")
    return names


def save(definitions: Definitions, path: str | Path) -> None:
    """Write definitions to a YAML or JSON file, from which `load` reads equal definitions.

    The suffix of the path determines the format.
    """
    path = Path(path)
    path.write_text(definitions_to_text(definitions, _format_of(path)), encoding="utf-8")


def _format_of(path: Path) -> Format:
    try:
        return FORMATS[path.suffix.lower()]
    except KeyError:
        hint = f"use one of {', '.join(FORMATS)}"
        raise _unreadable(path, f"unsupported file extension: {path.suffix}", hint) from None


def text_of(path: Path) -> str:
    """Return the text of a definition file; raise `DefinitionError` if the file is unreadable or too large."""
    try:
        # The size is checked before reading. MAX_TEXT counts characters, each of which has up to four bytes.
        if path.stat().st_size > 4 * MAX_TEXT:
            raise _unreadable(path, f"failed to read file {path}: it has more than {4 * MAX_TEXT} bytes")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"failed to read file {path}: not UTF-8 at byte {error.start}") from error
    except OSError as error:
        similar = similar_file(path) if isinstance(error, FileNotFoundError) else ""
        raise _unreadable(path, f"failed to read file {path}: {error.strerror}{similar}") from error


def _unreadable(path: Path, message: str, hint: str | None = None) -> DefinitionError:
    return DefinitionError([Problem(message, hint=hint)], str(path))


def _with_file_name(problem: Problem, path: Path) -> Problem:
    where = f"{path.name}:{problem.line}:{problem.column}" if problem.line else path.name
    # The message contains the line, which would refer to the folder as the place of the problem.
    return replace(problem.at(0, 0), message=f"{where}: {problem.message}", place=())


# --- code cells of a notebook with definitions in Python: they are parsed here, and never run ------------------------
#
# A cell has a definition if it contains a `@workflow`, `@step` or `@action`, or calls one of `CONSTRUCTORS`. To run it,
# the cells that bind the names it uses are needed too. Lines of magics are ignored; a magic that is assigned to a name
# binds that name.


DECORATORS = frozenset({"action", "step", "workflow"})
CONSTRUCTORS = frozenset({"Action", "Agent", "Environment", "Workflow", "add_agent", "add_workflow", "allow", "define"})
_TRANSPARENT = frozenset({"%%capture", "%%prun", "%%time"})
"""Cell magics whose body is ordinary Python code of the notebook."""
# "files = !ls" -> "files = None"
_ASSIGNED = re.compile(r"(?m)^(\s*[\w, ]+=\s*)[%!].*$")
# "%matplotlib inline", "!pip install x" -> "pass"
_MAGIC = re.compile(r"(?m)^(\s*)[%!].*$")
# "?len", "len??" -> "pass"
_HELP = re.compile(r"(?m)^(\s*)(?:\?{1,2}[\w.]+|[\w.]+\?{1,2})[ \t]*$")
_LOADS = re.compile(r"(?m)^\s*%load_ext\s")


def defining_cells(cells: Mapping[int, str]) -> list[int]:
    """Return the numbers of the notebook cells whose Python code defines a workflow, an agent or another definition."""
    numbers = []
    for number, source in cells.items():
        tree = _tree(source)
        if tree is not None and any(_definitions_in(tree)):
            numbers.append(number)
    return numbers


def cells_to_run(cells: Mapping[int, str]) -> list[int]:
    """Return the numbers of the notebook cells that must run to create the notebook's Python definitions, in order.

    These are the cells with definitions, and repeatedly the cells that bind a name which a selected cell uses. Example:
    cell 5 defines ``@step def load(): return DATA[LIMIT]``, cell 3 sets ``DATA = read(PATH)`` and cell 1 sets ``PATH``:
    all three are needed. If a selected cell uses magics, the cells with ``%load_ext`` are needed too.
    """
    trees = {}
    for number, source in cells.items():
        tree = _tree(source)
        if tree is not None:
            trees[number] = tree
    selected = set(defining_cells(cells))
    used_names: set[str] = set()
    # Each round adds the cells that bind a used name, until no further cell is needed.
    while True:
        for number in selected:
            # A star import may bind any name (test_a_star_import_may_give_any_name).
            used_names |= {*_used(trees[number]), "*"}
        binding_cells = {number for number, tree in trees.items() if not used_names.isdisjoint(_bound(tree))}
        if binding_cells <= selected:
            break
        selected |= binding_cells
    if any(_MAGIC.search(cells[number]) or _ASSIGNED.search(cells[number]) for number in selected):
        selected |= {number for number, source in cells.items() if _LOADS.search(source)}
    return sorted(selected)


def _tree(source: str) -> ast.Module | None:
    """Return the syntax tree of a notebook cell without its magics; None if the rest is not valid Python."""
    first, _, body = source.lstrip().partition("\n")
    if first.startswith("%%"):
        if first.split(None, 1)[0] not in _TRANSPARENT:
            return None
        source = body
    without_magics = _HELP.sub(r"\1pass", _MAGIC.sub(r"\1pass", _ASSIGNED.sub(r"\1None", source)))
    # The whole cell is tried first. In valid Python, a line may begin with % as the continuation of an expression.
    for text in (source, without_magics):
        try:
            return parse_python(text)
        # Deeply nested code raises RecursionError or MemoryError.
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _definitions_in(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the syntax nodes of a cell that create a definition: decorators such as ``@step``, and constructor calls
    outside of functions.
    """
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            decorators: Sequence[ast.expr] = getattr(node, "decorator_list", ())
            yield from (decorator for decorator in decorators if _function_name(decorator) in DECORATORS)
            # Calls in the body do not count, since most bodies do not run with the cell.
            continue
        if isinstance(node, ast.Call) and _function_name(node) in CONSTRUCTORS | DECORATORS:
            yield node
        pending.extend(ast.iter_child_nodes(node))


def _function_name(node: ast.expr) -> str:
    """Return the name of the function that a decorator or call uses, without its module: ``step`` for
    ``@divebook.step(retry=2)``.
    """
    while isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _used(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _bound(tree: ast.Module) -> set[str]:
    """Return the names that the code of a notebook cell assigns, defines or imports. The name ``*`` stands for all
    names of a star import.
    """
    bound: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                bound |= {(alias.asname or alias.name).partition(".")[0] for alias in names}
    return bound


# --- definitions in ``%%dive`` cells of a notebook, read without running code ----------------------------------------
#
# A warning names the cells with definitions in Python, which `cells_to_run` selects for people who want to run them.


MAGIC = "%%dive"


def definitions_of_notebook(text: str, source_name: str, *, code_runs: bool = False) -> Definitions:
    """Return the definitions in the ``%%dive`` cells of a notebook. A definition replaces one of the same name in an
    earlier cell.

    Parameters
    ----------
    code_runs
        True if the cells in Python are run as well. Then they cause no warning, and a notebook without
        ``%%dive`` cells is allowed if it has such cells.

    Raises
    ------
    DefinitionError
        The text is not a notebook, or a cell has an error. The message contains the number of the cell, from 1.
    """
    cells = _code_cells(text, source_name)
    parts = []
    for number, cell in cells.items():
        if _is_dive_cell(cell):
            parts.append(_read(cell, f"{source_name}, code cell {number}"))
    numbers = defining_cells(cells)
    warning = None if code_runs else _warning_about_code(numbers, source_name)
    # A notebook without any definition is an error. If it has some in Python that are not run, the error names their
    # cells.
    if not parts and not (code_runs and numbers):
        message = f"no cell starts with {MAGIC}"
        hint: str | None = f"start a cell with {MAGIC} to define agents and workflows"
        if warning is not None:
            message = f"{message}, and {warning.message}"
            hint = warning.hint
        raise DefinitionError([Problem(message, hint=hint)], source_name)
    definitions = merge_all(parts) if parts else Definitions()
    if warning is None:
        return definitions
    return replace(definitions, warnings=(*definitions.warnings, warning))


def python_of_notebook(text: str, source_name: str) -> dict[int, str]:
    """Return the sources of the code cells that must run to create a notebook's Python definitions, by cell number from
    1.
    """
    cells = _code_cells(text, source_name)
    return {number: cells[number] for number in cells_to_run(cells)}


def cells_text(numbers: Collection[int]) -> str:
    """Return the numbers of notebook cells as text for a message, such as ``code cell 3`` or ``code cells 3, 5``."""
    return ("code cells " if len(numbers) > 1 else "code cell ") + ", ".join(map(str, numbers))


def _code_cells(text: str, source_name: str) -> dict[int, str]:
    """Return the sources of a notebook's code cells by number from 1; raise `DefinitionError` if the text is not a
    notebook.
    """
    try:
        cells = [_source(cell) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        message = f"not a notebook: {type(error).__name__}: {error}"
        raise DefinitionError([Problem(message)], source_name) from error
    return dict(enumerate(cells, 1))


def _warning_about_code(numbers: Collection[int], source_name: str) -> Problem | None:
    """Return a warning that some cells of a notebook, `numbers`, define workflows or agents in Python but are not run.
    Return None if there are no such cells.
    """
    if not numbers:
        return None
    verb = "contain" if len(numbers) > 1 else "contains"
    command = advised(f"run {shlex.quote(source_name)} --code")
    hint = f"to run the code: {command}"
    return Problem(
        f"{cells_text(numbers)} {verb} definitions in Python, but Python code runs only on request",
        severity="warning",
        hint=hint,
    )


def _source(cell: Any) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def _is_dive_cell(source: str) -> bool:
    return source.lstrip().split(None, 1)[:1] == [MAGIC]


def _read(source: str, where: str) -> Definitions:
    first, _, body = source.lstrip().partition("\n")
    options = _first_line_options(first, where)
    # Errors count lines from the top of the cell, so the lines above the body are added: blank ones and the magic.
    above = source[: len(source) - len(source.lstrip())].count("\n")
    return read_definitions(
        body, source_name=where, dialect=options.dialect, line_offset=1 + above, body=options.kind, name=options.name
    )


def _first_line_options(first: str, where: str) -> Namespace:
    """Parse the options ``kind``, ``name`` and ``dialect`` in the first line of a ``%%dive`` cell; raise
    `DefinitionError` for other options.
    """
    parser = ArgumentParser(MAGIC, add_help=False, exit_on_error=False)
    parser.add_argument("kind", nargs="?", default="file", choices=get_args(Body))
    parser.add_argument("name", nargs="?")
    parser.add_argument("--dialect", default=OWN, choices=tuple(DIALECT_RULES))
    try:
        # With `parse_args`, some versions of Python exit for unknown arguments although `exit_on_error` is false.
        options, unknown = parser.parse_known_args(shlex.split(first)[1:])
    except (ArgumentError, ValueError) as error:
        raise DefinitionError([Problem(f"{first!r} is not valid: {error}")], where) from error
    if unknown:
        raise DefinitionError([Problem(f"{first!r} is not valid: unexpected arguments {' '.join(unknown)}")], where)
    return options


# --- modules ---------------------------------------------------------------------------------------------------------
#
# Python modules and files whose agents, workflows and actions an environment uses.


def add_values(environment: Environment, values: Iterable[Any]) -> None:
    """Add the agents, workflows and other definitions among `values` to an environment, and ignore all other values.
    `values` are the values of the variables of a module or notebook.

    The contents of environments are added first, so that single agents and workflows replace those of the same names.
    """
    for value in values:
        if isinstance(value, Environment):
            environment.internals.take_in(value)
    for value in values:
        if isinstance(value, Agent):
            environment.add_agent(value, replace=True)
        elif isinstance(value, Workflow):
            environment.add_workflow(value, replace=True)
        elif isinstance(value, ScheduleDefinition):
            environment.schedules.add(value, replace=True)
        elif isinstance(value, MCPServerDefinition):
            environment.add_server(value, replace=True)


def import_actions(source: str, what: str = "actions") -> ModuleType:
    """Import a module or Python file, so that its ``@action`` and ``@workflow`` functions are registered.

    Parameters
    ----------
    what
        The purpose of the module, for errors.

    Raises
    ------
    SetupError
        The import raises any exception.
    """
    path = Path(source)
    is_file = source.endswith(".py")
    if is_file and not path.exists():
        raise SetupError(f"{what} {source!r} cannot be imported: there is no such file{similar_file(path)}")
    try:
        if is_file:
            return _import_file(path)
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as `python -m` does
        return importlib.import_module(source)
    except Exception as error:  # code of users may raise anything
        raise SetupError(f"{what} {source!r} cannot be imported: {type(error).__name__}: {error}") from error


def _import_file(path: Path) -> ModuleType:
    # A prefix, so that a file called json.py does not take the place of json.
    spec = importlib.util.spec_from_file_location(f"divebook_actions_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not Python")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.absolute()))  # as `python FILE` does
    # The module is registered before it runs, as `import` does: dataclasses look up their module while they are
    # created.
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module
