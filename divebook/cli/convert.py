"""``divebook convert``: definitions of the legacy Dive dialect, or of several files, as one text of divebook's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from divebook.cli.screen import note, write
from divebook.dialects import OWN, Dialect
from divebook.errors import DefinitionError, InputError

DIFFERENCES = (
    "an action's result, and each item's, is kept as a value and not as text",
    "nested items of Each are not flattened",
    "scripts may change variables with state.set",
    "tools ask a person before a call only if they, or a rule, say so",
)
"""What a workflow of the dialect ``dive`` does differently once it is converted."""


def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE|FOLDER", help="Definitions to convert.")],
    *,
    dialect: Annotated[Dialect, typer.Option(help="The dialect they are written in.")] = "dive",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="A new file for the result; default: stdout.")
    ] = None,
    format: Annotated[Literal["yaml", "json"], typer.Option("--format", help="How it is written.")] = "yaml",
) -> None:
    """Write definitions of the legacy Dive dialect as divebook's own.

    Scripts become Python.

    What the result does differently, and what is wrong with it, is printed to stderr. The exit code is 1 if the result
    needs corrections before it can be run.
    """
    from divebook.config.loader import load_file, load_folder
    from divebook.steps.syntax import syntax_problems
    from divebook.workflow.reader import read_definitions
    from divebook.workflow.writer import definitions_to_text

    if output is not None and output.exists():
        raise InputError(f"{output} exists; name a file that does not, or remove it first")
    definitions = (load_folder if file.is_dir() else load_file)(file, dialect=dialect)
    for warning in definitions.warnings:
        note(warning.describe(str(file)), "yellow")
    text = definitions_to_text(definitions, format)
    if output is None:
        write(text)
    else:
        output.write_text(text, encoding="utf-8")
    if dialect != OWN and definitions.workflows:
        note("the converted workflows differ from those of the dialect dive:")
        for difference in DIFFERENCES:
            note(f"  {difference}")
    try:
        converted = read_definitions(text, source_name=str(output or "<converted>"), format=format)
        problems = syntax_problems(converted)
    except DefinitionError as error:
        problems = list(error.problems)
    for problem in problems:
        note(problem.describe(str(output or "<converted>")), "red")
    raise typer.Exit(1 if problems else 0)
