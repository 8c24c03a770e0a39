"""Subcommands that show, compare, annotate or cancel executions, show their files, or derive what-ifs and trials."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
    DAMAGED,
    as_json,
    columns,
    ending_damaged,
    note,
    note_damage,
    one_line,
    say,
    secrets,
    status_text,
    write,
)
from divebook.engine.bounds import NANODOLLARS
from divebook.engine.lifecycle import TERMINAL
from divebook.errors import ConcurrentAppendError, DefinitionError, DivebookError, NotFoundError, SetupError, StoreError
from divebook.events.catalog import COMPLETED
from divebook.text.format import json_time, local_time, seconds, size
from divebook.text.ranges import COUNT, COUNT_OR_ZERO, INTEGER

if TYPE_CHECKING:
    from rich.text import Text

    from divebook.config.answers import BulkResult
    from divebook.definitions.definition import Workflow
    from divebook.environments.environment import Environment
    from divebook.environments.variants import TrialOptions, WhatIfOptions
    from divebook.projections.compare import Pair, Row
    from divebook.projections.summary import RunLine
    from divebook.replay.files import KeptFiles
    from divebook.replay.trial import StepTrial
    from divebook.replay.what_if import Plan, WhatIf
    from divebook.runtime.run import Run
    from divebook.stores import EventStore, ExecutionRecord


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
Origin = Literal["run", "resume", "fork", "what-if", "trial", "child", "import", "book"]
_ATTEMPTS = 20


def runs(
    status: Annotated[Status | None, typer.Option("--status", "-s", help="Only executions of this status.")] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", "-w", metavar="NAME", help="Only this workflow.")
    ] = None,
    limit: Annotated[int, number_option("--limit", "-n", allowed=COUNT_OR_ZERO, help="At most N; 0 for all.")] = 20,
    store: Store = None,
    *,
    tag: Annotated[
        str | None, typer.Option("--tag", "-t", metavar="TAG", help="Only executions with this tag.")
    ] = None,
    origin: Annotated[Origin | None, typer.Option("--origin", help="Only executions of this origin.")] = None,
    notebook: Annotated[
        str | None, typer.Option("--notebook", metavar="PATH", help="Only executions that it began.")
    ] = None,
    json: Json = False,
) -> None:
    """List executions, newest first."""
    from divebook.cli.project import existing_store
    from divebook.projections.summary import Overview

    # Not `open_environment`: a command that only reads must not create a store.
    logs = existing_store(store)
    records = logs.records(status, workflow, limit, tag=tag, origin=origin, notebook=notebook)
    # Of a list, only errors can repeat an input. Logs of the other executions are not read for their secrets.
    for record in records:
        if record.error:
            _learn_inputs(logs, record.execution_id)
    lines = Overview(logs).lines(records)
    if json:
        write(as_json(list(map(_facts, lines)), indent=2))
    elif records:
        titles = ("id", "workflow", "status", "started", "worked", "cost", "about", "events", "size")
        columns(titles, map(_cells, lines), whole=("id", "status"))
        _note_relaxed(records)
    else:
        note("no runs" + (" of that kind" if status or workflow or tag or origin or notebook else " yet"))


def _learn_inputs(store: EventStore, execution_id: str) -> None:
    """Find the secrets in the inputs of an execution, so that they are replaced when an error that contains them is
    printed. A damaged log is skipped.
    """
    from divebook.runtime.forks import recorded_opening

    with suppress(StoreError):  # a damaged log has none that could be shown
        secrets.learn(recorded_opening(execution_id, store).inputs)


def show(
    execution_id: ExecutionId,
    store: Store = None,
    *,
    events: Annotated[bool, typer.Option("--events", "-e", help="Every event of its log as well.")] = False,
    json: Json = False,
) -> None:
    """Show the status and the values of an execution.

    The ID can also be an exported file, as for `divebook open`. Of a damaged log, the readable events are shown, with
    exit code 1.
    """
    from divebook.cli.project import existing_environment
    from divebook.cli.result import print_details

    # An id never ends like a file name, so the ending decides.
    is_file = _is_file(execution_id)
    whole_id = execution_id
    fault = None
    if is_file:
        whole_id, environment, fault = _in_file(execution_id)
    else:
        environment = existing_environment(store)
    with ending_damaged():
        execution = environment.execution(whole_id)
        # The damage of a file was found while it was read; that of a stored log is found by the execution.
        damage = fault or execution.damage
        print_details(execution, json=json, events=events, damage=damage)
        if damage is not None:
            # A damaged file does not say how many events it had.
            last = None if is_file else execution.store.record(execution.id).last_sequence
            note_damage(execution.state.last_sequence, last, damage)
            raise typer.Exit(DAMAGED)


def open_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="NAME.html, NAME.ipynb or NAME.jsonl.")],
    *,
    events: Annotated[bool, typer.Option("--events", "-e", help="Every event of its log as well.")] = False,
    json: Json = False,
) -> None:
    """Show the run in an exported file.

    No store is needed or changed. If the file is damaged outside its log, the run is shown, with exit code 1.
    """
    if not _is_file(file):
        raise SetupError(f"{file} is not a file that divebook exports; name one that ends with .html, .ipynb or .jsonl")
    show(file, events=events, json=json)


def _is_file(name: str) -> bool:
    from divebook.stores.embedded import may_embed_log

    return name.endswith((".jsonl", ".json")) or may_embed_log(name)


def _in_file(file: str) -> tuple[str, Environment, Exception | None]:
    """Load the execution of an exported file into a new store in memory. Return its id, an environment over this store,
    and the error that describes the damage of the file (None if it is intact).
    """
    from divebook.environments.environment import Environment
    from divebook.stores import MemoryStore
    from divebook.stores import transfer as jsonl

    log, damage = jsonl.read_sound(file)
    if not log.events:
        raise damage or StoreError(f"{file} holds no events")
    environment = Environment(store=MemoryStore())
    execution_id = log.events[0].execution_id
    # Only the sound events are in the new store, so that they can be folded and shown.
    environment.store.append(execution_id, log.events, 0)
    return execution_id, environment, damage


def compare(
    execution_ids: Annotated[list[str], typer.Argument(metavar="ID ID...", help="Executions of one workflow.")],
    store: Store = None,
    *,
    json: Json = False,
) -> None:
    """Compare executions side by side, with the first difference first.

    Each place is the same, changed, added or removed. The first execution is compared with each of the others. Exit
    code 1 if they differ.
    """
    from divebook.cli.project import existing_environment

    if len(execution_ids) < 2:
        raise typer.BadParameter("name two executions or more; divebook runs lists them")
    comparison = existing_environment(store).compare(*execution_ids)
    if json:
        write(as_json([_difference(pair, row) for pair in comparison.pairs for row in pair.differences], indent=2))
    else:
        write(secrets.text(repr(comparison)))
    raise typer.Exit(0 if comparison.is_same else 1)


def _difference(pair: Pair, row: Row) -> dict[str, str | int | None]:
    from divebook.projections.compare import describe

    return {
        "difference": row.difference,
        "kind": row.present.kind,
        "place": row.place,
        "facet": row.facet,
        "text": describe(row),
        "a": pair.a.id,
        "event_a": row.event_of(row.a),
        "b": pair.b.id,
        "event_b": row.event_of(row.b),
    }


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
        execution = _cancelled(environment, chosen[0])
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


def _cancelled(environment: Environment, execution_id: str) -> Run:
    """Cancel an execution, wait for its end, and return it. Retry a few times if the process that drives the execution
    appends an event at the same moment.
    """
    # The last attempt is outside of the loop, and raises its error.
    for _ in range(_ATTEMPTS - 1):
        try:
            return environment.cancel(execution_id).wait()
        except ConcurrentAppendError:
            continue
    return environment.cancel(execution_id).wait()


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
        record = environment.annotate(record.execution_id, tags=tags or (), untag=remove or ())
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


def _facts(line: RunLine) -> dict[str, str | float | list[str] | None]:
    record = line.record
    worked = _worked(line)
    return {
        "id": record.execution_id,
        "workflow": record.workflow_name,
        "status": record.status,
        "error": record.error,
        "started_at": json_time(record.started_at),
        "ended_at": json_time(record.ended_at),
        "worked_seconds": worked,
        "cost": None if line.cost is None else line.cost / NANODOLLARS,
        "questions": line.questions,
        "events": record.last_sequence,
        "bytes": record.size,
        "durability": record.durability,
        "key": record.key,
        "origin": record.origin,
        "parent": record.parent,
        "tags": list(record.tags),
        "note": record.note,
        "notebook": record.notebook,
        "cell": record.cell,
    }


def _cells(line: RunLine) -> tuple[Text | str, ...]:
    record = line.record
    worked = _worked(line)
    name = line.named(40)
    about = ", ".join(filter(None, [line.stand, line.about]))
    figures = ("" if worked is None else seconds(worked), line.price, one_line(about, 80))
    extent = str(record.last_sequence), size(record.size)
    return record.execution_id, name, status_text(line.status), local_time(record.started_at), *figures, *extent


def _worked(line: RunLine) -> float | None:
    worked = line.worked_us(time.time_ns() // 1000)
    return None if worked is None else worked / 1e6


def _note_relaxed(records: Sequence[ExecutionRecord]) -> None:
    """Print on stderr the ids of executions with relaxed durability, which could lose their last events in a power
    failure. Print nothing if there are none.
    """
    from divebook.stores.append import RELAXED

    relaxed = [record.execution_id for record in records if record.durability == RELAXED]
    if relaxed:
        note(f"relaxed durability: {', '.join(relaxed)}", "yellow")


# ``divebook files``, ``diff``, ``apply``, ``restore``: what executions did to files, taken over or put back.


Workspace = Annotated[
    str | None, typer.Option("--workspace", metavar="NAME", help="Which workspace, where it has used several.")
]
At = Annotated[
    int | None,
    number_option("--at", allowed=COUNT, help="As they were at event N, and not at the end."),
]
Since = Annotated[
    int | None,
    number_option("--since", allowed=COUNT, help="From event N on, and not from the beginning."),
]
Files = Annotated[
    list[str] | None, typer.Argument(metavar="[FILE]...", help="Only these files, by their paths in the workspace.")
]


def _files(execution_id: str, store: str | None, workspace: str | None) -> KeptFiles:
    from divebook.cli.project import existing_environment

    return existing_environment(store).files(execution_id, workspace)


def files(
    execution_id: ExecutionId,
    store: Store = None,
    *,
    workspace: Workspace = None,
    since: Since = None,
    at: At = None,
    json: Json = False,
) -> None:
    """List the files that an execution has changed."""
    _show(_files(execution_id, store, workspace), None, since, at, json=json, whole=False)


def diff(
    execution_id: ExecutionId,
    paths: Files = None,
    store: Store = None,
    *,
    workspace: Workspace = None,
    since: Since = None,
    at: At = None,
    json: Json = False,
) -> None:
    """Print the changes that an execution made to files."""
    _show(_files(execution_id, store, workspace), paths, since, at, json=json, whole=True)


def _show(
    files: KeptFiles, paths: list[str] | None, since: int | None, at: int | None, *, json: bool, whole: bool
) -> None:
    changes = files.changed(since, at, paths or None, whole=whole)
    write(as_json(changes.to_dict()) if json else str(changes))


def apply(
    execution_id: ExecutionId,
    paths: Files = None,
    store: Store = None,
    *,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Into this folder, not that which was copied.")
    ] = None,
    workspace: Workspace = None,
    since: Since = None,
    at: At = None,
) -> None:
    """Copy the changes of an execution into the original folder.

    The changes were made in a copy of the folder. All of them are copied, or none: if a file in the folder has changed
    since, the command names it and writes nothing. Hidden files (`.envrc`, `.vscode/`) and version-control metadata
    (`.git/`) are copied only if you name them or their folder.
    """
    from divebook.workspaces.snapshots.restore import left_out_text

    files = _files(execution_id, store, workspace)
    report = files.apply(to, paths or None, since=since, until=at)
    for path in report.written:
        write(one_line(path))
    # Files that already have the content after the change are not written.
    unchanged = f", {len(report.there)} were so already" if report.there else ""
    note(f"{len(report.written)} taken over into {to or files.source}{unchanged}")
    if report.left_out:
        note(left_out_text(report.left_out, f"divebook apply {execution_id} {{}}"))


def restore(
    execution_id: ExecutionId,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder, which then holds nothing else.")],
    store: Store = None,
    *,
    workspace: Workspace = None,
    at: At = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Also if the folder holds something.")] = False,
    include: Annotated[
        list[str] | None,
        typer.Option(
            "--include", metavar="PATH", help="Also this hidden file, or all of this hidden folder. Repeatable."
        ),
    ] = None,
) -> None:
    """Restore the files of a workspace, as of an event, to a folder.

    All files, or no change. Hidden files and version-control metadata (`.git/`) in the folder do not change, unless you
    name them with `--include`.
    """
    from divebook.workspaces.snapshots.restore import left_out_text

    files = _files(execution_id, store, workspace)
    tree = files.restore(folder, at, force=force, by_name=include or ())
    note(f"{len(tree.entries)} files and folders as of event {at or files.last} are in {folder}")
    if tree.problems:
        note(left_out_text([path for path, _ in tree.problems], "--include {}"))


# ``divebook why``, ``inspect``, ``verify``, ``to-test``: where a value came from, what is still as recorded.


def why(
    execution_id: ExecutionId,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The variable; inputs.NAME for an input, state for all variables.")
    ],
    store: Store = None,
    *,
    at: Annotated[
        int | None,
        number_option("--at", allowed=COUNT, help="As it was at event N, and not at the end."),
    ] = None,
    row: Annotated[
        int | None,
        number_option("--row", allowed=COUNT_OR_ZERO, help="Of a list or frame that items have made: row N."),
    ] = None,
    column: Annotated[str | None, typer.Option("--column", metavar="NAME", help="And of that row this column.")] = None,
    form: Annotated[
        Literal["text", "mermaid"], typer.Option("--form", help="In words, or as a flow chart for Mermaid.")
    ] = "text",
) -> None:
    """Show the origin of the value of a variable.

    The events, steps, calls, variables, inputs and choices that led to it, back to the start.
    """
    from divebook.cli.project import existing_environment

    provenance = existing_environment(store).why(execution_id, name, at, row=row, column=column)
    write(str(provenance) if form == "text" else provenance.graph)


def inspect(execution_id: ExecutionId, store: Store = None) -> None:
    """Show what an execution waited for, and what it cost.

    The critical path, time by kind, retries, and the costs of agents, models and steps.
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
    """Check that definitions still reproduce recorded logs.

    No external call is made. The first difference names event, step, line, the expected and the actual value. Without a
    file, the definition in the log is checked. Exit code 1 if any execution differs, or cannot be checked.
    """
    from divebook.cli.project import add_definitions, existing_store, open_environment

    if not every and execution_id is None:
        raise SetupError("name one execution, or --all for every one of the store: divebook verify exec_01k8")
    # The store must exist already: `open_environment` would create it.
    records = existing_store(store).records()
    environment = open_environment(store, actions or (), note)
    # `divebook verify --all FILE` takes no id: the first argument is the file.
    definitions = Path(execution_id) if every and execution_id is not None else file
    if definitions is not None:
        add_definitions(environment, definitions, code=code)
    is_equal = True
    names = [record.execution_id for record in records] if every else [str(execution_id)]
    for name in names:
        try:
            execution = environment.execution(name)
            # The definition with the same name, if a file was read; None stands for the definition in the log.
            result = environment.verify(execution.id, environment.workflows.get(execution.workflow.name))
        except DivebookError as error:
            # With --all, one execution that cannot be checked does not end the command, and counts as a difference.
            if not every:
                raise
            text = f"{name}: not checked: {error}"
            is_equal = False
        else:
            text = str(result)
            is_equal = is_equal and result.equal
        write(secrets.text(text))
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
    """Write a run as a pytest file, with its log in a second file.

    The test needs neither key nor network, and fails at the first difference from its log, with event, step and line.
    It reads the definition from FILE; without FILE, from a copy of the definition in the log. Secrets are left out.
    """
    from divebook.cli.project import add_definitions, existing_store, open_environment
    from divebook.export.pytest import write_test

    existing_store(store)
    environment = open_environment(store, actions or (), note)
    if file is not None:
        add_definitions(environment, file)
    # The test reads YAML files and notebooks again. Instead of a Python file, it reads the copy of the definition in
    # the log.
    read_from = None if file is None or file.suffix == ".py" else file
    execution = environment.execution(execution_id)
    test = write_test(environment, execution, to, definitions=read_from, overwrite=force)
    note(f"wrote {test} and its log; python -m pytest {shlex.quote(str(test))} runs it")


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
            planned = environment.what_if(execution_id, change, at, plan=True, **options)
            write(as_json(_planned(planned), indent=2) if json else secrets.text(repr(planned)))
            return
        variants = environment.what_if(execution_id, change, at, repeat=repeat, **options)
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
        trial = environment.try_step(execution_id, step, changed, times=times, **options)
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
