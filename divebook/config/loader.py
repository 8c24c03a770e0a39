"""Definitions from a file or a folder, and back to a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from divebook.config.content import Sources, resolve_content
from divebook.config.notebooks import definitions_of_notebook
from divebook.dialects import OWN, Dialect
from divebook.errors import DefinitionError
from divebook.steps.syntax import syntax_problems
from divebook.text.paths import as_path
from divebook.workflow.definition import Definitions, Problem
from divebook.workflow.located import MAX_TEXT
from divebook.workflow.merge import merge_all
from divebook.workflow.reader import read_definitions
from divebook.workflow.reading import Format
from divebook.workflow.writer import definitions_to_text

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
