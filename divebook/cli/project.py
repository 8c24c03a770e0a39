"""Functions that turn command-line arguments into environments, definitions, inputs and stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from divebook.cli.output import print_note
from divebook.config import load, with_documents
from divebook.config.loader import (
    NOTEBOOK,
    add_values,
    cells_text,
    definitions_of_notebook,
    import_actions,
    python_of_notebook,
    text_of,
)
from divebook.definitions.definition import Definitions
from divebook.definitions.dialect import OWN, Dialect
from divebook.documents import FileDocuments
from divebook.environments.environment import Environment
from divebook.errors import SetupError


def open_environment(store: str | None, actions: Sequence[str], printer: Callable[[str], None]) -> Environment:
    """Import the actions (Python modules and files) that the command line names, and return an environment over a
    store.
    """
    # Imported first: definitions refer to actions by name.
    for source in actions:
        import_actions(source)
    return Environment(store=store, printer=printer)


def read(path: Path, dialect: Dialect) -> Definitions:
    """Read the definitions of a file or folder, with the contents of their documents. Warnings are printed on
    stderr.
    """
    return _resolved(load(path, dialect=dialect), path)


def _resolved(definitions: Definitions, path: Path) -> Definitions:
    for warning in definitions.warnings:
        print_note(warning.describe(str(path)), "yellow")
    # Paths of documents are relative to the file that names them.
    return with_documents(definitions, path if path.is_dir() else path.parent, FileDocuments())


def add_definitions(environment: Environment, path: Path, dialect: Dialect = OWN, *, code: bool = False) -> None:
    """Add the definitions in a file or folder to an environment. Of a Python file, the definitions in its module are
    added.

    Parameters
    ----------
    code
        Whether to run the code cells of a notebook with definitions in Python.
    """
    # Without this error, --code would silently do nothing.
    if code and path.suffix.lower() != NOTEBOOK:
        raise SetupError(f"--code runs the code cells of a notebook, but {path} is not a notebook; remove --code")
    if code:
        _add_notebook(environment, path)
    elif path.suffix == ".py":
        add_values(environment, vars(import_actions(str(path), "definitions")).values())
    else:
        environment.define(read(path, dialect))


def schedules_of(environment: Environment, path: Path, *, code: bool = False) -> Definitions:
    """Return the definitions in a file or folder, from which the caller takes the schedules. For a Python file, return
    the schedules of the environment, because importing the file has already added them.
    """
    if path.suffix.lower() == ".py":
        return Definitions(schedules=tuple(environment.schedules))
    definitions = read(path, OWN)
    # Cells that ran may have defined schedules too.
    return replace(definitions, schedules=tuple(environment.schedules)) if code else definitions


def _add_notebook(environment: Environment, path: Path) -> None:
    """Add the YAML definitions of a notebook to an environment, and those that its Python cells create when
    they run.
    """
    text = text_of(path)
    cells = python_of_notebook(text, str(path))
    environment.define(_resolved(definitions_of_notebook(text, str(path), code_runs=True), path))
    if cells:
        from divebook.notebook.cells import run_cells

        print_note(f"running {cells_text(cells)} of {path}", "yellow")
        add_values(environment, run_cells(cells.items(), path))


def choose_workflow(environment: Environment, name: str | None, file: Path) -> str:
    """Return the name of the workflow to run: the given name, else the default workflow, else the only workflow."""
    names = list(environment.definitions.workflows)
    chosen = name or environment.internals.registry.config.default_workflow
    if chosen:
        return environment.internals.registry.workflow(chosen).name
    if len(names) == 1:
        return names[0]
    if not names:
        raise SetupError(f"there is no workflow in {file}; add a workflow (in YAML: under Workflows)")
    raise SetupError(f"there are several workflows in {file}: {', '.join(names)}. Choose one with -w NAME")
