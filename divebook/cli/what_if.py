"""``divebook what-if``: an execution gone through once more with one change, answered from its log."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divebook.cli.options import (
    Actions,
    Agents,
    AnswersChanged,
    BoundsText,
    Code,
    ExecutionId,
    InputsChanged,
    Json,
    ModelName,
    PromptsChanged,
    ResultsChanged,
    Store,
    VariablesChanged,
    within,
)
from divebook.cli.screen import note, write
from divebook.cli.text import as_json, secrets
from divebook.errors import DefinitionError, NotFoundError, SetupError
from divebook.text.ranges import INTEGER

if TYPE_CHECKING:
    from divebook.replay.what_if import Plan
    from divebook.replay.what_if_result import WhatIf
    from divebook.what_ifs import WhatIfOptions


def what_if(
    execution_id: ExecutionId,
    file: Agents = None,
    *,
    at: Annotated[
        int | None,
        typer.Option(
            "--at",
            metavar="N",
            callback=within(INTEGER),
            help="The last event that stays; else the change takes full effect.",
        ),
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
    repeat: Annotated[
        int, typer.Option("--repeat", metavar="N", callback=within(INTEGER), help="How many to make.")
    ] = 1,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what would be reused and what would be live; no call is made.")
    ] = False,
    bounds: BoundsText = None,
    code: Code = False,
    actions: Actions = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Go through an execution again with one change.

    Everything that its log has a result for is answered from there, and models are asked; the execution stays as it is.
    Says what was served, live, blocked and unused, and what came out otherwise. Exit code as run has it. JSON is
    an object, with --repeat above 1 a list of them.
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
            planned = environment.what_if(execution_id, change, at, plan=True, **options)
            write(as_json(_planned(planned), indent=2) if json else secrets.text(repr(planned)))
            return
        found = environment.what_if(execution_id, change, at, repeat=repeat, **options)
    except (DefinitionError, NotFoundError) as error:
        if file is not None or getattr(error, "kind", "agent") not in ("agent", "action"):
            raise
        told = (
            "A log holds the workflow, not agents and actions: name their file (divebook what-if ID FILE) or --actions"
        )
        raise SetupError(f"{error}. {told}") from error
    from divebook.cli.result import EXIT_CODES

    secrets.learn(*(each.execution.state.variables for each in found))
    if json:
        facts = [_facts(each) for each in found]
        write(as_json(facts if repeat > 1 else facts[0], indent=2))
    else:
        write(secrets.text(str(found if repeat > 1 else found[0])))
    codes = (EXIT_CODES.get(each.execution.status, 1) for each in found)
    raise typer.Exit(next(filter(None, codes), 0))


def _planned(plan: Plan) -> dict[str, Any]:
    """Return what ``--json`` prints of a plan."""
    told = {name: getattr(plan, name) for name in ("source", "at", "reused", "cost", "unknown", "blocked")}
    return {**told, "change": plan.change.to_data(), "live": [call._asdict() for call in plan.live]}


def _facts(found: WhatIf) -> dict[str, Any]:
    """Return what ``--json`` prints of a what-if."""
    execution, first = found.execution, found.diff
    return {
        "id": execution.id,
        "source": found.source,
        "at": found.at,
        "change": found.change.to_data(),
        "status": execution.status,
        "error": execution.error,
        "outputs": found.outputs,
        **asdict(found.tally),
        "cost": found.cost,
        "comparable": found.comparable,
        "calls": [call._asdict() for call in found.calls],
        "first_difference": None if first is None else {"event": first.event, "step": first.step, "text": first.text},
        "differences": found.comparison.pairs[0].counts,
        "unchecked": found.unchecked,
    }
