"""``divebook why``, ``inspect``, ``verify``, ``to-test``: where a value came from, what is still as recorded."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from divebook.cli.options import Actions, Code, ExecutionId, Store, within
from divebook.cli.screen import note, write
from divebook.cli.text import secrets
from divebook.errors import DivebookError, SetupError
from divebook.text.ranges import COUNT, COUNT_OR_ZERO


def why(
    execution_id: ExecutionId,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The variable; inputs.NAME for an input, state for all variables.")
    ],
    store: Store = None,
    *,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="N", callback=within(COUNT), help="As it was at event N, and not at the end."),
    ] = None,
    row: Annotated[
        int | None,
        typer.Option(
            "--row", metavar="N", callback=within(COUNT_OR_ZERO), help="Of a list or frame that items have made: row N."
        ),
    ] = None,
    column: Annotated[str | None, typer.Option("--column", metavar="NAME", help="And of that row this column.")] = None,
    form: Annotated[
        Literal["text", "mermaid"], typer.Option("--form", help="In words, or as a flow chart for Mermaid.")
    ] = "text",
) -> None:
    """Say where the value of a variable came from.

    Which events, steps, calls, variables, inputs and choices made it, all the way back.
    """
    from divebook.cli.project import existing_environment

    found = existing_environment(store).why(execution_id, name, at, row=row, column=column)
    write(str(found) if form == "text" else found.graph)


def inspect(execution_id: ExecutionId, store: Store = None) -> None:
    """Say what an execution waited for and spent.

    The critical path, time by kind, what was tried again, and what agents, models and steps cost.
    """
    from divebook.cli.project import existing_environment

    write(str(existing_environment(store).inspect(execution_id)))


def verify(
    execution_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The execution; the beginning of its id is enough.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE|FOLDER]", help="Definitions to check, and the agents they need."),
    ] = None,
    store: Store = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Every execution of the store, a line each.")] = False,
    code: Code = False,
    actions: Actions = None,
) -> None:
    """Check definitions against logs, without a call.

    The first difference names event, step, line, what was expected and what came instead. Without a file it is the
    definition that the log holds. Exit code 1 if any execution differs, or cannot be checked.
    """
    from divebook.cli.project import existing_store, open_environment, take_in

    if not every and execution_id is None:
        raise SetupError("name one execution, or --all for every one of the store: divebook verify exec_01k8")
    records = existing_store(store).records()
    environment = open_environment(store, actions or (), note)
    definitions = Path(execution_id) if every and execution_id is not None else file
    if definitions is not None:
        take_in(environment, definitions, code=code)
    is_equal = True
    for name in [record.execution_id for record in records] if every else [str(execution_id)]:
        try:
            execution = environment.execution(name)
            found = environment.verify(execution.id, environment.workflows.get(execution.workflow.name))
        except DivebookError as error:
            if not every:
                raise
            told, is_equal = f"{name}: not checked: {error}", False
        else:
            told, is_equal = str(found), is_equal and found.equal
        write(secrets.text(told))
    raise typer.Exit(0 if is_equal else 1)


def to_test(
    execution_id: ExecutionId,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE|FOLDER]", help="Its definition, and the agents it needs: the test reads them."),
    ] = None,
    store: Store = None,
    *,
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="The test; by default test_NAME.py.")] = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite the files of an earlier one.")] = False,
    actions: Actions = None,
) -> None:
    """Write a run as a test for pytest, with its log beside it.

    The test needs neither key nor network, and fails at the first thing that is done otherwise than its log says, with
    event, step and line. It reads the definition from FILE; without it, from a copy of that in the log. Secrets are
    left out.
    """
    from divebook.cli.project import existing_store, open_environment, take_in
    from divebook.export.as_test import write_test

    existing_store(store)
    environment = open_environment(store, actions or (), note)
    if file is not None:
        take_in(environment, file)
    read_from = None if file is None or file.suffix == ".py" else file
    execution = environment.execution(execution_id)
    written = write_test(environment, execution, to, definitions=read_from, overwrite=force)
    note(f"wrote {written} and its log; python -m pytest {shlex.quote(str(written))} runs it")
