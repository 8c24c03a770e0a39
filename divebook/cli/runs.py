"""Subcommands that show, compare, annotate or cancel executions, show their files, or derive what-ifs and trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

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
from divebook.cli.output import (
    as_json,
    note,
    one_line,
    say,
    secrets,
    status_text,
    write,
)
from divebook.engine.lifecycle import TERMINAL
from divebook.errors import ConcurrentAppendError, DefinitionError, NotFoundError, SetupError
from divebook.events.catalog import COMPLETED
from divebook.text.ranges import INTEGER

if TYPE_CHECKING:
    from divebook.config.answers import BulkResult
    from divebook.definitions.definition import Workflow
    from divebook.environments.environment import Environment
    from divebook.environments.variants import TrialOptions, WhatIfOptions
    from divebook.replay.trial import StepTrial
    from divebook.replay.what_if import Plan, WhatIf
    from divebook.runtime.run import Run
    from divebook.stores import ExecutionRecord


Status = Literal[
    "pending",
    "enqueued",
    "running",
    "waiting",
    "completed",
    "failed",
    "cancelled",
    "moved",
    "continued_as_new",
    "picture",
]
_ATTEMPTS = 20


def cancel(
    execution_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Executions; the beginning of an id is enough.")
    ] = None,
    store: Store = None,
    *,
    status: Annotated[Status | None, typer.Option("--status", "-s", help="All executions with this status.")] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", "-w", metavar="NAME", help="All executions of this workflow.")
    ] = None,
    tagged: Annotated[
        str | None, typer.Option("--tag", "-t", metavar="TAG", help="All executions with this tag.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the executions.")] = False,
) -> None:
    """Cancel executions.

    Name the executions, or select all that have not ended with the options. If another process runs an execution, it
    stops before its next step. Executions that cannot be cancelled are reported; the others are cancelled.
    """
    from divebook.cli.project import existing_environment
    from divebook.config.answers import handle_each

    environment = existing_environment(store)
    records = _chosen(environment, execution_ids, status, workflow, tagged, tag_option="--tag")
    # Executions that are named are all tried, so that one which has ended is reported. The options select only those
    # that can be cancelled.
    chosen = execution_ids or [record.execution_id for record in records if record.status not in TERMINAL]
    # The error of a single execution is that of the command, with exit code 2.
    if len(chosen) == 1 and execution_ids and not dry_run:
        execution = _cancelled(environment.run_of(chosen[0]))
        say(status_text(execution.status), execution.id)
        return
    _tell_each(handle_each(environment, chosen, _cancelled, dry_run=dry_run))


def _chosen(
    environment: Environment,
    execution_ids: Sequence[str] | None,
    status: str | None,
    workflow: str | None,
    tagged: str | None,
    *,
    tag_option: str,
) -> list[ExecutionRecord]:
    """Return the records of the executions that match the filters of the command line. If the command line names
    executions instead, return an empty list. Raise `BadParameter` if it contains both or neither.
    """
    if bool(execution_ids) == bool(status or workflow or tagged):
        raise typer.BadParameter(f"name executions, or select them with --status, --workflow or {tag_option}")
    return [] if execution_ids else environment.store.records(status, workflow, 0, tag=tagged)


def _tell_each(rows: Sequence[BulkResult]) -> None:
    """Print one line for each result of a bulk operation: status, execution and error. Exit with code 1 if any
    execution has an error.
    """
    for row in rows:
        say(status_text(row.status or "failed"), row.execution_id, "" if row.error is None else str(row.error))
    if any(row.error is not None for row in rows):
        raise typer.Exit(1)


def _cancelled(run: Run) -> Run:
    """Cancel a run, wait for its end, and return it. Retry a few times if the process that drives the execution
    appends an event at the same moment.
    """
    # The last attempt is outside of the loop, and raises its error.
    for _ in range(_ATTEMPTS - 1):
        try:
            return run.cancel().wait()
        except ConcurrentAppendError:
            continue
    return run.cancel().wait()


def tag(
    execution_id: ExecutionId,
    tags: Annotated[list[str] | None, typer.Argument(metavar="[TAG]...", help="Tags to add.")] = None,
    store: Store = None,
    *,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", "-r", metavar="TAG", help="A tag to remove; may be repeated.")
    ] = None,
) -> None:
    """Add tags to an execution, or remove them.

    Without tags, the command prints the tags of the execution. `divebook runs --tag TAG` finds executions by tag. Tags
    are events of the log, also after the end of the execution.
    """
    from divebook.cli.project import existing_environment

    environment = existing_environment(store)
    record = environment.store.record(environment.store.resolve(execution_id))
    if tags or remove:
        record = environment.run_of(record.execution_id).annotate(tags=tags or (), untag=remove or ()).record
    say(one_line(", ".join(record.tags)) or "no tags", record.execution_id)


def annotate(
    execution_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Executions; the beginning of an id is enough.")
    ] = None,
    store: Store = None,
    *,
    text: Annotated[str | None, typer.Option("--note", "-n", metavar="TEXT", help="The note; '' removes it.")] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            "-l",
            metavar="NAME=VALUE",
            help="A label, with a value in YAML; null removes it; may be repeated.",
        ),
    ] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", "-t", metavar="TAG", help="A tag to add; may be repeated.")
    ] = None,
    untag: Annotated[
        list[str] | None, typer.Option("--untag", "-u", metavar="TAG", help="A tag to remove; may be repeated.")
    ] = None,
    status: Annotated[Status | None, typer.Option("--status", "-s", help="All executions with this status.")] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", "-w", metavar="NAME", help="All executions of this workflow.")
    ] = None,
    tagged: Annotated[str | None, typer.Option("--tagged", metavar="TAG", help="All executions with this tag.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the executions.")] = False,
) -> None:
    """Set the note, labels and tags of executions.

    Name the executions, or select them with the options. The annotation is an event of each log, also after the end of
    the execution. Executions that cannot be annotated are reported; the others are annotated.
    """
    from divebook.cli.project import existing_environment
    from divebook.config.answers import annotating, handle_each

    environment = existing_environment(store)
    verb = annotating(note=text, labels=labels or (), tags=tags or (), untag=untag or ())
    records = _chosen(environment, execution_ids, status, workflow, tagged, tag_option="--tagged")
    chosen = execution_ids or [record.execution_id for record in records]
    _tell_each(handle_each(environment, chosen, verb, dry_run=dry_run))


# ``divebook files``, ``diff``, ``apply``, ``restore``: what executions did to files, taken over or put back.


# ``divebook why``, ``inspect``, ``verify``, ``to-test``: where a value came from, what is still as recorded.


# --- variants --------------------------------------------------------------------------------------------------------
#
# ``divebook what-if``: an execution gone through once more with one change, answered from its log.


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
    """Run an execution again with one change, reusing its results.

    Results come from the log where it has them; models are called; the execution does not change. Prints which calls
    were replayed, live, blocked and unused, and which results differ. Exit codes are those of run. JSON is an object,
    with --repeat above 1 a list of objects.
    """
    from divebook.cli.project import environment_for, existing_store
    from divebook.config.answers import bounds_from, change_from

    # The store must exist already: `environment_for` would create it.
    existing_store(store)
    change = change_from(variables or (), inputs or (), answer or (), result or (), prompts=prompt or (), model=model)
    # Secrets are learned before anything is run that could print them.
    secrets.learn(change.variables, change.inputs)
    environment = environment_for(execution_id, file, actions, store, note, code=code)
    options: WhatIfOptions = {"tools": tools, "bounds": bounds_from(bounds)}
    with _advising_file("divebook what-if ID FILE", has_file=file is not None):
        if plan:
            planned = environment.run_of(execution_id).what_if(change, at, plan=True, **options)
            write(as_json(_planned(planned), indent=2) if json else secrets.text(repr(planned)))
            return
        variants = environment.run_of(execution_id).what_if(change, at, repeat=repeat, **options)
    from divebook.cli.result import EXIT_CODES

    # Answers of models may have added secrets to the variables.
    secrets.learn(*(each.run.state.variables for each in variants))
    if json:
        facts = [_variant_facts(each) for each in variants]
        write(as_json(facts if repeat > 1 else facts[0], indent=2))
    else:
        write(secrets.text(str(variants if repeat > 1 else variants[0])))
    # A status without a code, such as "moved", counts as a failure. The first failure determines the exit code.
    codes = [EXIT_CODES.get(each.run.status, 1) for each in variants]
    failures = [code for code in codes if code != 0]
    raise typer.Exit(failures[0] if failures else 0)


@contextmanager
def _advising_file(usage: str, *, has_file: bool) -> Iterator[None]:
    """Replace an error about a missing agent or action, raised in the ``with`` block, by a `SetupError` that advises to
    name the file of definitions. With `has_file`, the file is already named, and the error is not replaced. Other
    errors are never replaced.
    """
    try:
        yield
    except (DefinitionError, NotFoundError) as error:
        # A file would not help if something else is missing, such as the execution or a step.
        if has_file or getattr(error, "kind", "agent") not in ("agent", "action"):
            raise
        advice = f"A log holds the workflow, not agents and actions: name their file ({usage}) or --actions"
        raise SetupError(f"{error}. {advice}") from error


def _planned(plan: Plan) -> dict[str, Any]:
    """Return the plan of a what-if (reused and live calls, expected cost) as the dictionary that ``--json`` prints."""
    facts = {name: getattr(plan, name) for name in ("source", "at", "reused", "cost", "unknown", "blocked")}
    return {**facts, "change": plan.change.to_data(), "live": [call._asdict() for call in plan.live]}


def _variant_facts(variant: WhatIf) -> dict[str, Any]:
    """Return the result of a what-if as the dictionary that ``--json`` prints."""
    execution = variant.run
    first = variant.diff
    return {
        "id": execution.id,
        "source": variant.source,
        "at": variant.at,
        "change": variant.change.to_data(),
        "status": execution.status,
        "error": execution.error,
        "outputs": variant.outputs,
        **asdict(variant.tally),
        "cost": variant.cost,
        "comparable": variant.comparable,
        "calls": [call._asdict() for call in variant.calls],
        "first_difference": None if first is None else {"event": first.event, "step": first.step, "text": first.text},
        "differences": variant.comparison.pairs[0].counts,
        "unchecked": variant.unchecked,
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
    """Run one step of an execution again, and compare the results.

    The step starts with its recorded state; the execution does not change. Models are called; actions and tools return
    the recorded result of the same call. Exit code 1 if a try did not complete.
    """
    from divebook.cli.project import environment_for, existing_store
    from divebook.config.answers import bounds_from, change_from
    from divebook.definitions.reader import with_keys

    existing_store(store)
    # Checked before the tries, which may cost money.
    if keep is not None and keep.exists():
        raise SetupError(f"{keep} exists already; name another file for --keep")
    change = change_from(variables or (), inputs or ())
    limits = bounds_from(bounds)
    secrets.learn(change.variables, change.inputs)
    # The same for the file of keys: an error must not come after the first calls.
    keys_text = None if keys is None else keys.read_text(encoding="utf-8")
    environment = environment_for(execution_id, file, actions, store, note, code=code)

    def changed(workflow: Workflow) -> Workflow:
        return workflow if keys_text is None else with_keys(workflow, step, keys_text, source_name=str(keys))

    options: TrialOptions = {"variables": change.variables, "inputs": change.inputs, "visit": visit, "item": item}
    options |= {"tools": tools, "model": model, "bounds": limits}
    # An error about a missing name may be caused by the keys, and then a file of agents does not help.
    with _advising_file("divebook try ID STEP FILE", has_file=file is not None or keys is not None):
        trial = environment.run_of(execution_id).try_step(step, changed, times=times, **options)
    write(as_json(_trial_facts(trial), indent=2) if json else secrets.text(str(trial)))
    if keep is not None:
        trial.keep(keep)
        note(f"wrote {keep}")
    raise typer.Exit(0 if all(tried.status == COMPLETED for tried in trial.tries) else 1)


def _trial_facts(trial: StepTrial) -> dict[str, Any]:
    """Return the result of a trial as the dictionary that ``--json`` prints."""
    entry = trial.entry._asdict()
    recorded, *tries = (asdict(tried) for tried in (trial.recorded, *trial.tries))
    return {"source": trial.source, **entry, "cost": trial.cost, "recorded": recorded, "tries": tries}
