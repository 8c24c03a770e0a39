"""``divebook run`` and ``divebook resume``: carry an execution out and wait for it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from divebook.cli.options import Actions, Agents, ExecutionId, Json, Quiet, Store
from divebook.errors import (
    ConcurrentAppendError,
    DefinitionError,
    ExecutionError,
    ExecutionNotFoundError,
    NotFoundError,
    SetupError,
)

if TYPE_CHECKING:
    from divebook.environment import Environment
    from divebook.execution import Execution

INTERRUPTED = 130


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE|FOLDER", help="Definitions: YAML or JSON.")],
    *,
    workflow: Annotated[str | None, typer.Option("--workflow", "-w", metavar="NAME", help="Which workflow.")] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-v", metavar="KEY=VALUE", help="An input; KEY:=JSON for lists and maps."),
    ] = None,
    actions: Actions = None,
    store: Store = None,
    dialect: Annotated[Literal["divebook", "dive"], typer.Option(help="dive: as the old system read it.")] = "divebook",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a workflow and print its result.

    Ctrl-C cancels it in such a way that it can be resumed.
    """
    from divebook.cli.progress import make_progress
    from divebook.cli.project import choose_workflow, inputs_from, open_environment, read

    given = inputs_from(inputs or ())
    with make_progress(quiet=quiet) as progress:
        definitions = read(file, dialect)
        environment = open_environment(store, actions or (), progress.print)
        environment.define(definitions)
        chosen = choose_workflow(environment, workflow)
        progress.watch(environment.store)
        execution = _finish(environment.start(chosen, given, coerce_text=True), environment)
    _conclude(execution, ["resume", execution.id, str(file), *_again(actions, store)], json=json)


def resume(
    execution_id: ExecutionId,
    file: Agents = None,
    actions: Actions = None,
    store: Store = None,
    *,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take an execution up where its log ends.

    What completed is not run again. Prints the result, as run does.
    """
    from divebook.cli.progress import make_progress
    from divebook.cli.project import existing_store, open_environment, read

    existing_store(store)
    with make_progress(quiet=quiet) as progress:
        environment = open_environment(store, actions or (), progress.print)
        if file is not None:
            environment.define(read(file, environment.execution(execution_id).workflow.dialect))
        progress.watch(environment.store)
        execution = _finish(_resumed(environment, execution_id, has_file=file is not None), environment)
    names = [] if file is None else [str(file)]
    _conclude(execution, ["resume", execution.id, *names, *_again(actions, store)], json=json)


def _resumed(environment: Environment, execution_id: str, *, has_file: bool) -> Execution:
    try:
        return environment.resume(execution_id)
    except ExecutionNotFoundError:
        raise
    except (DefinitionError, NotFoundError) as error:
        if has_file:
            raise
        raise SetupError(
            f"{error}. A log holds the workflow, not agents and actions: "
            "name their file (divebook resume ID FILE) or --actions"
        ) from error


def _finish(execution: Execution, environment: Environment) -> Execution:
    """Wait for the end of an execution; Ctrl-C cancels it, a second one leaves at once."""
    try:
        execution.wait()
    except KeyboardInterrupt:
        _cancel(execution)
    except ConcurrentAppendError:
        ended = environment.store.record(execution.id)
        if ended.ended_at is None:
            raise
        return _as_recorded(environment, execution)  # another process cancelled it
    return execution


def _as_recorded(environment: Environment, execution: Execution) -> Execution:
    from divebook.environment import Environment

    return Environment(store=environment.store).execution(execution.id)


def _cancel(execution: Execution) -> None:
    from divebook.cli.screen import note

    note("cancelling; press Ctrl-C again to leave at once", "yellow")
    try:
        execution.cancel()
        execution.wait()
    except ExecutionError:
        return  # it ended just before
    except KeyboardInterrupt:
        note(f"left at once; execution {execution.id} can be resumed", "yellow")
        sys.stderr.flush()
        os._exit(INTERRUPTED)  # a blocking action would hold up the usual way out


def _again(actions: Sequence[str] | None, store: str | None) -> list[str]:
    """Return the options that a resumption needs as well."""
    named = [part for source in actions or () for part in ("--actions", source)]
    return [*named, *(("--store", store) if store else ())]


def _conclude(execution: Execution, again: Sequence[str], *, json: bool) -> None:
    from divebook.cli.result import print_result
    from divebook.cli.screen import note

    code = print_result(execution, json=json)
    if code and execution.store.location != "memory:":
        note(f"to go on: divebook {shlex.join(again)}", "yellow")
    raise typer.Exit(code)
