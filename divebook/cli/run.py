"""``divebook run`` and ``divebook resume``: carry an execution out and wait for it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from divebook.cli.options import Actions, Agents, Durability, ExecutionId, Json, Quiet, Store
from divebook.errors import (
    ConcurrentAppendError,
    DefinitionError,
    ExecutionNotFoundError,
    FencedError,
    NotFoundError,
    SetupError,
)

if TYPE_CHECKING:
    from divebook.cli.progress import Progress
    from divebook.environment import Environment
    from divebook.execution import Execution


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
    durability: Durability = None,
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
        started = partial(environment.start, chosen, given, coerce_text=True, durability=durability)
        ended = _finish(started, environment, progress)
    _conclude(*ended, [str(file), *_again(actions, store)], json=json)


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
        ended = _finish(lambda: _resumed(environment, execution_id, has_file=file is not None), environment, progress)
    names = [] if file is None else [str(file)]
    _conclude(*ended, [*names, *_again(actions, store)], json=json)


def answer(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="Id of the question, as inbox shows it.")],
    response: Annotated[
        str, typer.Argument(metavar="ANSWER", help="The answer; for unknown outcomes retry, done, fail.")
    ],
    file: Agents = None,
    *,
    result: Annotated[
        str | None, typer.Option("--result", metavar="JSON", help="With done: what the call returned.")
    ] = None,
    actions: Actions = None,
    store: Store = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Answer a question and finish its execution."""
    from divebook.cli.progress import make_progress
    from divebook.cli.project import existing_store, open_environment, parsed_json, read

    existing_store(store)
    given = {"choice": response, "result": parsed_json("--result", result)} if result is not None else response
    with make_progress(quiet=quiet) as progress:
        environment = open_environment(store, actions or (), progress.print)
        if file is not None:
            environment.define(read(file, "divebook"))
        ended = _finish(lambda: environment.answer(question, given), environment, progress)
    names = [] if file is None else [str(file)]
    _conclude(*ended, [*names, *_again(actions, store)], json=json)


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


def _finish(start: Callable[[], Execution], environment: Environment, progress: Progress) -> tuple[Execution, bool]:
    """Start an execution and wait for its end; return whether somebody pressed Ctrl-C as well."""
    from divebook.cli.interrupts import Interrupts

    progress.watch(environment.store)
    with Interrupts(progress.print) as interrupts:
        execution = start()
        interrupts.guard(execution)
        try:
            execution.wait()
        except (ConcurrentAppendError, FencedError):
            if environment.store.record(execution.id).ended_at is None:
                raise
            execution = _as_recorded(environment, execution)  # another process cancelled it
        return execution, bool(interrupts.count)


def _as_recorded(environment: Environment, execution: Execution) -> Execution:
    from divebook.environment import Environment

    return Environment(store=environment.store).execution(execution.id)


def _again(actions: Sequence[str] | None, store: str | None) -> list[str]:
    """Return the options that a resumption needs again."""
    named = [part for source in actions or () for part in ("--actions", source)]
    return [*named, *(("--store", store) if store else ())]


def _conclude(execution: Execution, interrupted: bool, again: Sequence[str], *, json: bool) -> None:  # noqa: FBT001
    """Print the result, and how to go on if there is something to go on with; leave with the exit code."""
    from divebook.cli.interrupts import INTERRUPTED
    from divebook.cli.result import print_result
    from divebook.cli.screen import note

    code = print_result(execution, json=json)
    if code and execution.store.location != "memory:":
        note(f"to go on: {shlex.join(['divebook', 'resume', execution.id, *again])}", "yellow")
    raise typer.Exit(INTERRUPTED if code and interrupted else code)
