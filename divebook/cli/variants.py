"""``divebook what-if``: an execution gone through once more with one change, answered from its log."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
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
    number_option,
)
from divebook.cli.output import as_json, note, secrets, write
from divebook.errors import DefinitionError, NotFoundError, SetupError
from divebook.events.catalog import COMPLETED
from divebook.text.ranges import INTEGER

if TYPE_CHECKING:
    from divebook.environment.variants import TrialOptions, WhatIfOptions
    from divebook.replay.trial import StepTrial
    from divebook.replay.what_if import Plan, WhatIf
    from divebook.workflow.definition import Workflow


def what_if(
    execution_id: ExecutionId,
    file: Agents = None,
    *,
    at: Annotated[
        int | None,
        number_option(
            "--at",
            allowed=INTEGER,
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
    repeat: Annotated[int, number_option("--repeat", allowed=INTEGER, help="How many to make.")] = 1,
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
    from divebook.cli.project import add_definitions, existing_store, open_environment
    from divebook.config.answers import bounds_from, change_from

    existing_store(store)
    change = change_from(variables or (), inputs or (), answer or (), result or (), prompts=prompt or (), model=model)
    secrets.learn(change.variables, change.inputs)
    environment = open_environment(store, actions or (), note)
    if file is not None:
        add_definitions(environment, file, environment.execution(execution_id).workflow.dialect, code=code)
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
    """Return the facts about a plan that ``--json`` prints."""
    told = {name: getattr(plan, name) for name in ("source", "at", "reused", "cost", "unknown", "blocked")}
    return {**told, "change": plan.change.to_data(), "live": [call._asdict() for call in plan.live]}


def _facts(found: WhatIf) -> dict[str, Any]:
    """Return the facts about a what-if that ``--json`` prints."""
    execution = found.execution
    first = found.diff
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


# ``divebook try``: one step of an execution done again with the state it had, beside what is recorded.


def try_step(
    execution_id: ExecutionId,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step; of a workflow function, an agent it asked.")],
    file: Agents = None,
    *,
    times: Annotated[int, number_option("--times", allowed=INTEGER, help="How often.")] = 1,
    keys: Annotated[
        Path | None,
        typer.Option("--keys", metavar="FILE", help="YAML: keys that the step is to have in place of its own."),
    ] = None,
    variables: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A variable that it is to find otherwise; may be repeated."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-v", metavar="NAME=VALUE", help="An input that is to be otherwise; may be repeated."),
    ] = None,
    visit: Annotated[
        int | None,
        number_option("--visit", allowed=INTEGER, help="Which time that it was entered; default: the last."),
    ] = None,
    item: Annotated[
        int | None,
        number_option("--item", allowed=INTEGER, help="Of Each, one item alone, from 0."),
    ] = None,
    tools: Annotated[
        str,
        typer.Option("--tools", metavar="recorded|read-only|live", help="What may be executed without a record."),
    ] = "recorded",
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="FILE", help="Write the workflow with the changed step there.")
    ] = None,
    code: Code = False,
    actions: Actions = None,
    store: Store = None,
    model: ModelName = None,
    bounds: BoundsText = None,
    json: Json = False,
) -> None:
    """Try one step of an execution again, and compare.

    It has the state that it had; the execution stays as it is. Models are asked; actions and tools have the recorded
    result of the same call. Exit code 1 if a try has not completed.
    """
    from divebook.cli.project import add_definitions, existing_store, open_environment
    from divebook.config.answers import bounds_from, change_from
    from divebook.workflow.reader import with_keys

    existing_store(store)
    if keep is not None and keep.exists():
        raise SetupError(f"{keep} exists already; name another file for --keep")
    change = change_from(variables or (), inputs or ())
    limits = bounds_from(bounds)
    secrets.learn(change.variables, change.inputs)
    written = None if keys is None else keys.read_text(encoding="utf-8")
    environment = open_environment(store, actions or (), note)
    if file is not None:
        add_definitions(environment, file, environment.execution(execution_id).workflow.dialect, code=code)

    def changed(workflow: Workflow) -> Workflow:
        return workflow if written is None else with_keys(workflow, step, written, source_name=str(keys))

    options: TrialOptions = {"variables": change.variables, "inputs": change.inputs, "visit": visit, "item": item}
    options |= {"tools": tools, "model": model, "bounds": limits}
    try:
        trial = environment.try_step(execution_id, step, changed, times=times, **options)
    except (DefinitionError, NotFoundError) as error:
        if file is not None or keys is not None or getattr(error, "kind", "agent") not in ("agent", "action"):
            raise
        told = (
            "A log holds the workflow, not agents and actions: name their file (divebook try ID STEP FILE) or --actions"
        )
        raise SetupError(f"{error}. {told}") from error
    write(as_json(_trial_facts(trial), indent=2) if json else secrets.text(str(trial)))
    if keep is not None:
        trial.keep(keep)
        note(f"wrote {keep}")
    raise typer.Exit(0 if all(tried.status == COMPLETED for tried in trial.tries) else 1)


def _trial_facts(trial: StepTrial) -> dict[str, Any]:
    """Return the facts about a trial that ``--json`` prints."""
    entry = trial.entry._asdict()
    recorded, *tries = (asdict(tried) for tried in (trial.recorded, *trial.tries))
    return {"source": trial.source, **entry, "cost": trial.cost, "recorded": recorded, "tries": tries}
