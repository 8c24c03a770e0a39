"""``divebook runs``, ``show`` and ``cancel``: what the store knows of executions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from divebook.cli.options import ExecutionId, Json, Store, within
from divebook.cli.refusal import ending_damaged
from divebook.cli.screen import DAMAGED, columns, note, note_damage, say, status_text, write
from divebook.cli.text import as_json, one_line, secrets
from divebook.engine.bounds import NANODOLLARS
from divebook.engine.lifecycle import TERMINAL
from divebook.errors import ConcurrentAppendError, SetupError, StoreError
from divebook.text.durations import seconds
from divebook.text.ranges import COUNT_OR_ZERO
from divebook.text.shown import size
from divebook.text.times import json_time, local_time

if TYPE_CHECKING:
    from rich.text import Text

    from divebook.config.many import Handled
    from divebook.environment import Environment
    from divebook.execution.execution import Execution
    from divebook.execution.overview import RunLine
    from divebook.history.aligned import Pair, Row
    from divebook.store import EventStore, ExecutionRecord

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
    limit: Annotated[
        int, typer.Option("--limit", "-n", callback=within(COUNT_OR_ZERO), help="At most N; 0 for all.")
    ] = 20,
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
    from divebook.execution.overview import Overview

    logs = existing_store(store)
    records = logs.records(status, workflow, limit, tag=tag, origin=origin, notebook=notebook)
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
    """Take note of the secrets among the inputs of an execution: its error may repeat them."""
    from divebook.execution.definitions import recorded_opening

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

    In place of an ID it takes a file, as `divebook open` does. Of a damaged log the sound beginning is shown, with exit
    code 1.
    """
    from divebook.cli.project import existing_environment
    from divebook.cli.result import print_details

    is_file, whole_id, fault = _is_file(execution_id), execution_id, None
    if is_file:
        whole_id, environment, fault = _in_file(execution_id)
    else:
        environment = existing_environment(store)
    with ending_damaged():
        execution = environment.execution(whole_id)
        damage = fault or execution.damage
        print_details(execution, json=json, events=events, damage=damage)
        if damage is not None:
            last = None if is_file else execution.store.record(execution.id).last_sequence
            note_damage(execution.state.last_sequence, last, damage)
            raise typer.Exit(DAMAGED)


def open_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="NAME.html, NAME.ipynb or NAME.jsonl.")],
    *,
    events: Annotated[bool, typer.Option("--events", "-e", help="Every event of its log as well.")] = False,
    json: Json = False,
) -> None:
    """Show the run that an exported file holds.

    No store is needed, and none changes. Of a file that is damaged elsewhere than in the log the run is shown, with
    exit code 1.
    """
    if not _is_file(file):
        raise SetupError(
            f"{file} is no file that divebook exports (NAME.html, NAME.ipynb, NAME.jsonl); name such a one"
        )
    show(file, events=events, json=json)


def _is_file(name: str) -> bool:
    from divebook.store.carried import is_carrier

    return name.endswith((".jsonl", ".json")) or is_carrier(name)


def _in_file(file: str) -> tuple[str, Environment, Exception | None]:
    """Return the execution of a file as it was when it was exported, where it is, and what is wrong after it."""
    from divebook.environment import Environment
    from divebook.store import MemoryStore, jsonl

    log, damage = jsonl.read_sound(file)
    if not log.events:
        raise damage or StoreError(f"{file} holds no events")
    environment, execution_id = Environment(store=MemoryStore()), log.events[0].execution_id
    environment.store.append(execution_id, log.events, 0)
    return execution_id, environment, damage


def compare(
    execution_ids: Annotated[list[str], typer.Argument(metavar="ID ID...", help="Executions of one workflow.")],
    store: Store = None,
    *,
    json: Json = False,
) -> None:
    """Lay executions side by side, with the first difference first.

    Each place is the same, changed, added or removed. The first execution is compared with each of the others. Exit
    code 1 where they differ.
    """
    from divebook.cli.project import existing_environment

    if len(execution_ids) < 2:
        raise typer.BadParameter("name two executions or more; divebook runs lists them")
    found = existing_environment(store).compare(*execution_ids)
    if json:
        write(as_json([_difference(pair, row) for pair in found.pairs for row in pair.differences], indent=2))
    else:
        write(secrets.text(repr(found)))
    raise typer.Exit(0 if found.is_same else 1)


def _difference(pair: Pair, row: Row) -> dict[str, str | int | None]:
    from divebook.history.aligned import told

    return {
        "difference": row.difference,
        "kind": row.present.kind,
        "place": row.place,
        "facet": row.facet,
        "text": told(row),
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
    status: Annotated[Status | None, typer.Option("--status", "-s", help="All of this status.")] = None,
    workflow: Annotated[str | None, typer.Option("--workflow", "-w", metavar="NAME", help="All of it.")] = None,
    tagged: Annotated[str | None, typer.Option("--tag", "-t", metavar="TAG", help="All with this tag.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list which they are.")] = False,
) -> None:
    """Cancel executions.

    They are named one by one, or all that have not ended are meant which the options leave. If another process runs
    one, it stops there before its next step. What cannot be cancelled is said, and the others are.
    """
    from divebook.cli.project import existing_environment
    from divebook.config.many import handle_each

    environment = existing_environment(store)
    records = _chosen(environment, execution_ids, status, workflow, tagged, tag_option="--tag")
    chosen = execution_ids or [record.execution_id for record in records if record.status not in TERMINAL]
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
    """Return the executions that options leave, where none is named."""
    if bool(execution_ids) == bool(status or workflow or tagged):
        raise typer.BadParameter(f"name executions, or say which with --status, --workflow or {tag_option}")
    return [] if execution_ids else environment.store.records(status, workflow, 0, tag=tagged)


def _tell_each(rows: Sequence[Handled]) -> None:
    """Say what became of each; exit code 1 where something failed."""
    for row in rows:
        say(status_text(row.status or "failed"), row.execution_id, "" if row.error is None else str(row.error))
    if any(row.error is not None for row in rows):
        raise typer.Exit(1)


def _cancelled(environment: Environment, execution_id: str) -> Execution:
    """Cancel, again if the process that runs it wrote something in between."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return environment.cancel(execution_id).wait()
        except ConcurrentAppendError:
            continue
    return environment.cancel(execution_id).wait()


def tag(
    execution_id: ExecutionId,
    tags: Annotated[list[str] | None, typer.Argument(metavar="[TAG]...", help="Words to give it.")] = None,
    store: Store = None,
    *,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", "-r", metavar="TAG", help="Take this one away; also several.")
    ] = None,
) -> None:
    """Give an execution tags, or take them away.

    Without any it prints those that the execution has. `divebook runs --tag TAG` finds it by them. They are events of
    its log, also after its end.
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
    text: Annotated[
        str | None, typer.Option("--note", "-n", metavar="TEXT", help="The note; '' takes it away.")
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label", "-l", metavar="NAME=VALUE", help="A label, value in YAML; null removes it; also several."
        ),
    ] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", "-t", metavar="TAG", help="Give it; also several.")] = None,
    untag: Annotated[
        list[str] | None, typer.Option("--untag", "-u", metavar="TAG", help="Take it away; also several.")
    ] = None,
    status: Annotated[Status | None, typer.Option("--status", "-s", help="All of this status.")] = None,
    workflow: Annotated[str | None, typer.Option("--workflow", "-w", metavar="NAME", help="All of it.")] = None,
    tagged: Annotated[str | None, typer.Option("--tagged", metavar="TAG", help="All with this tag.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list which they are.")] = False,
) -> None:
    """Say something of executions: a note, labels, tags.

    They are named one by one, or all are meant which the options leave. It is an event of each log, also after its end.
    What cannot be said of one is told, and the others have it.
    """
    from divebook.cli.project import existing_environment
    from divebook.config.many import annotating, handle_each

    environment = existing_environment(store)
    verb = annotating(note=text, labels=labels or (), tags=tags or (), untag=untag or ())
    records = _chosen(environment, execution_ids, status, workflow, tagged, tag_option="--tagged")
    chosen = execution_ids or [record.execution_id for record in records]
    _tell_each(handle_each(environment, chosen, verb, dry_run=dry_run))


def _facts(line: RunLine) -> dict[str, str | float | list[str] | None]:
    record, worked = line.record, _worked(line)
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
    record, worked = line.record, _worked(line)
    name = line.named(40)
    about = ", ".join(filter(None, [line.stand, line.about]))
    told = ("" if worked is None else seconds(worked), line.price, one_line(about, 80))
    extent = str(record.last_sequence), size(record.size)
    return record.execution_id, name, status_text(line.status), local_time(record.started_at), *told, *extent


def _worked(line: RunLine) -> float | None:
    worked = line.worked_us(time.time_ns() // 1000)
    return None if worked is None else worked / 1e6


def _note_relaxed(records: Sequence[ExecutionRecord]) -> None:
    """Name the executions of which a power failure may take the end."""
    from divebook.store.durability import RELAXED

    relaxed = [record.execution_id for record in records if record.durability == RELAXED]
    if relaxed:
        note(f"relaxed durability: {', '.join(relaxed)}", "yellow")
