"""``divebook try``: one step of an execution done again with the state it had, beside what is recorded."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divebook.cli.options import Actions, Agents, BoundsText, Code, ExecutionId, Json, ModelName, Store, within
from divebook.cli.screen import note, write
from divebook.cli.text import as_json, secrets
from divebook.errors import DefinitionError, NotFoundError, SetupError
from divebook.events.catalog import COMPLETED
from divebook.text.ranges import INTEGER

if TYPE_CHECKING:
    from divebook.replay.trial import StepTrial
    from divebook.trials import TrialOptions
    from divebook.workflow.definition import Workflow


def try_step(
    execution_id: ExecutionId,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step; of a workflow function, an agent it asked.")],
    file: Agents = None,
    *,
    times: Annotated[int, typer.Option("--times", metavar="N", callback=within(INTEGER), help="How often.")] = 1,
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
        typer.Option(
            "--visit", metavar="N", callback=within(INTEGER), help="Which time that it was entered; default: the last."
        ),
    ] = None,
    item: Annotated[
        int | None,
        typer.Option("--item", metavar="N", callback=within(INTEGER), help="Of Each, one item alone, from 0."),
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
    from divebook.cli.project import existing_store, open_environment, take_in
    from divebook.config.answers import bounds_from
    from divebook.config.changed_words import change_from
    from divebook.workflow.changed_step import with_keys

    existing_store(store)
    if keep is not None and keep.exists():
        raise SetupError(f"{keep} exists already; name another file for --keep")
    change, limits = change_from(variables or (), inputs or ()), bounds_from(bounds)
    secrets.learn(change.variables, change.inputs)
    written = None if keys is None else keys.read_text(encoding="utf-8")
    environment = open_environment(store, actions or (), note)
    if file is not None:
        take_in(environment, file, environment.execution(execution_id).workflow.dialect, code=code)

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
    write(as_json(_facts(trial), indent=2) if json else secrets.text(str(trial)))
    if keep is not None:
        trial.keep(keep)
        note(f"wrote {keep}")
    raise typer.Exit(0 if all(tried.status == COMPLETED for tried in trial.tries) else 1)


def _facts(trial: StepTrial) -> dict[str, Any]:
    """Return what ``--json`` prints of a trial."""
    entry = trial.entry._asdict()
    recorded, *tries = (asdict(tried) for tried in (trial.recorded, *trial.tries))
    return {"source": trial.source, **entry, "cost": trial.cost, "recorded": recorded, "tries": tries}
