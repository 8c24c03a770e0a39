"""``divebook what-if``: an execution gone through once more with one change, answered from its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from divebook.cli.options import (
    Actions,
    Agents,
    AnswersChanged,
    BoundsText,
    Code,
    ExecutionId,
    InputsChanged,
    ModelName,
    PromptsChanged,
    ResultsChanged,
    Store,
    VariablesChanged,
)
from divebook.cli.result import EXIT_CODES
from divebook.cli.screen import note, write
from divebook.cli.text import secrets
from divebook.errors import DefinitionError, NotFoundError, SetupError

if TYPE_CHECKING:
    from divebook.what_ifs import WhatIfOptions


def what_if(
    execution_id: ExecutionId,
    file: Agents = None,
    *,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="N", help="The last event that stays; else the change takes full effect."),
    ] = None,
    variables: VariablesChanged = None,
    inputs: InputsChanged = None,
    answer: AnswersChanged = None,
    result: ResultsChanged = None,
    prompt: PromptsChanged = None,
    model: ModelName = None,
    tools: Annotated[
        str,
        typer.Option("--tools", metavar="recorded|read-only|live", help="What may be executed without a record."),
    ] = "recorded",
    repeat: Annotated[int, typer.Option("--repeat", metavar="N", help="How many to make.")] = 1,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what would be reused and what would be live; no call is made.")
    ] = False,
    bounds: BoundsText = None,
    code: Code = False,
    actions: Actions = None,
    store: Store = None,
) -> None:
    """Go through an execution again with one change.

    Everything that its log has a result for is answered from there, and models are asked; the execution stays as it is.
    Says what was served, live, blocked and unused, and what came out otherwise. Exit code as run has it.
    """
    from divebook.cli.project import existing_store, open_environment, take_in
    from divebook.config.answers import bounds_from
    from divebook.config.changed_words import change_from

    existing_store(store)
    change = change_from(variables or (), inputs or (), answer or (), result or (), prompts=prompt or (), model=model)
    secrets.learn(change.variables, change.inputs)
    environment = open_environment(store, actions or (), note)
    if file is not None:
        take_in(environment, file, environment.execution(execution_id).workflow.dialect, code=code)
    options: WhatIfOptions = {"tools": tools, "bounds": bounds_from(bounds)}
    try:
        if plan:
            write(secrets.text(repr(environment.what_if(execution_id, change, at, plan=True, **options))))
            return
        found = environment.what_if(execution_id, change, at, repeat=repeat, **options)
    except (DefinitionError, NotFoundError) as error:
        if file is not None or getattr(error, "kind", "agent") not in ("agent", "action"):
            raise
        told = (
            "A log holds the workflow, not agents and actions: name their file (divebook what-if ID FILE) or --actions"
        )
        raise SetupError(f"{error}. {told}") from error
    secrets.learn(*(each.execution.state.variables for each in found))
    write(secrets.text(str(found[0] if len(found) == 1 else found)))
    codes = (EXIT_CODES.get(each.execution.status, 1) for each in found)
    raise typer.Exit(next(filter(None, codes), 0))
