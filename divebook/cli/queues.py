"""``divebook enqueue``, ``queue`` and ``worker``: executions that wait, and processes that drive them."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divebook.cli.interrupts import INTERRUPTED
from divebook.cli.options import Actions, Code, Json, Note, Store, Tags
from divebook.cli.screen import columns, note, say
from divebook.cli.text import as_json, secrets
from divebook.errors import DefinitionError, InputError, StoreError
from divebook.events.catalog import ENQUEUED
from divebook.text.shown import plural
from divebook.text.times import local_time

if TYPE_CHECKING:
    from divebook.environment import Environment
    from divebook.store.queues import QueuedExecution, WorkerRecord
    from divebook.workers import Worker

NOBODY = "nobody there can run it"
LEFT_ALONE = ("queue", "execution_id", "workflow", "why")


def enqueue(
    file: Annotated[Path, typer.Argument(metavar="FILE|FOLDER", help="Definitions: YAML, JSON, a notebook or Python.")],
    *,
    workflow: Annotated[
        str | None, typer.Option("--workflow", "-w", metavar="NAME", help="The workflow to run.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-v", metavar="KEY=VALUE", help="An input; KEY:=JSON for lists and maps."),
    ] = None,
    queue: Annotated[str, typer.Option("--queue", metavar="NAME", help="The queue that it waits in.")] = "default",
    priority: Annotated[int, typer.Option("--priority", metavar="N", help="Higher ones are begun first.")] = 0,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="When it may begin: 2026-05-01T08:00, local time.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="TEXT", help="With a key it is enqueued once, however often asked.")
    ] = None,
    code: Code = False,
    actions: Actions = None,
    store: Store = None,
    tag: Tags = None,
    note: Note = None,
    json: Json = False,
) -> None:
    """Put a workflow into a queue, from which a worker takes it.

    Prints the id of the execution.
    """
    from divebook.cli.project import choose_workflow, inputs_from, open_environment, take_in

    given, when = inputs_from(inputs or ()), _time(at)
    secrets.learn(given)
    environment = open_environment(store, actions or (), say)
    take_in(environment, file, code=code)
    chosen = choose_workflow(environment, workflow, file)
    execution = environment.enqueue(
        chosen, given, queue=queue, priority=priority, at=when, coerce_text=True, key=key, tags=tag, note=note
    )
    say(
        as_json({"id": execution.id, "status": execution.status, "queue": execution.state.queue})
        if json
        else execution.id
    )


def _time(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"--at {text!r} is no time; write --at 2026-05-01T08:00") from error


def queue(store: Store = None, *, json: Json = False) -> None:
    """List what waits in queues, and the workers.

    With who of them can run it, or why none can, and with what workers leave alone.
    """
    from divebook.cli.project import existing_environment

    environment = existing_environment(store)
    workers = environment.workers()
    rows = [_row(environment, one, workers) for one in environment.queued()]
    left = [
        {**_row(environment, one, workers), "why": _why(environment, one)} for one in environment.queued(withheld=True)
    ]
    if json:
        told = [
            {"id": one.id, "queues": one.queues, "driving": one.driving, "parallel": one.parallel} for one in workers
        ]
        say(as_json({"queued": rows, "left_alone": left, "workers": told}, indent=2))
        return
    if rows:
        columns(("queue", "priority", "id", "workflow", "status", "due", "key", "workers"), map(_shown, rows))
    else:
        say("no queue has anything")
    for row in rows:
        for name, reason in row["reasons"].items() if not row["workers"] else ():
            say(f"{row['execution_id']}: worker {name} cannot run it: {reason}")
    if left:
        say("workers leave alone:")
        columns(("queue", "id", "workflow", "why"), ([row[name] for name in LEFT_ALONE] for row in left))
        say("to go on with one: divebook resume ID FILE")
    for worker in workers:
        say(f"worker {worker.id}: {', '.join(worker.queues)}; drives {worker.driving} of {worker.parallel}")
    if not workers:
        say("no worker is there; begin one: divebook worker FILE")


def _row(environment: Environment, queued: QueuedExecution, workers: list[WorkerRecord]) -> dict[str, Any]:
    from divebook.execution.recovery import attempts_made

    record = environment.store.record(queued.execution_id)
    reasons = {worker.id: worker.why_not(queued) for worker in workers}
    return {
        **asdict(queued),
        "status": record.status,
        "due": record.wake_at.isoformat() if record.wake_at is not None and record.status == ENQUEUED else None,
        "key": record.key,
        "attempts": attempts_made(environment.store, queued.execution_id),
        "workers": [name for name, reason in reasons.items() if reason is None],
        "reasons": {name: reason for name, reason in reasons.items() if reason is not None},
    }


def _why(environment: Environment, queued: QueuedExecution) -> str:
    """Return why workers leave an execution alone."""
    paused = environment.execution(queued.execution_id).state.paused
    return paused or "it was interrupted too often, each time before it made progress"


def _shown(row: dict[str, Any]) -> tuple[str, ...]:
    named = (row["queue"], str(row["priority"]), row["execution_id"], row["workflow"])
    attempts = f", {plural(row['attempts'], 'attempt')}" if row["attempts"] else ""
    due = "" if row["due"] is None else local_time(datetime.fromisoformat(row["due"]))
    able = plural(len(row["workers"]), "worker") if row["workers"] else NOBODY
    return (*named, f"{row['status']}{attempts}", due, row["key"] or "", able)


def worker(
    file: Annotated[Path, typer.Argument(metavar="FILE|FOLDER", help="Definitions of what it can run.")],
    *,
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="NAME", help="A queue to take from, the first ones first; default: default."),
    ] = None,
    parallel: Annotated[int, typer.Option("--parallel", metavar="N", help="Executions that it drives at once.")] = 8,
    patience: Annotated[
        float, typer.Option("--patience", metavar="SECONDS", help="How long it drains before it breaks off.")
    ] = 60,
    schedules: Annotated[bool, typer.Option("--schedules", help="Enqueue what Schedules say, when it is due.")] = False,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when there is nothing left to do.")] = False,
    code: Code = False,
    actions: Actions = None,
    store: Store = None,
) -> None:
    """Take executions from queues and drive them.

    At SIGTERM or Ctrl-C it takes no more, gives back what it drives, and ends; a second signal ends it at once. What a
    worker that dies had is taken up by others.
    """
    from divebook.cli.project import open_environment, read, take_in
    from divebook.dialects import OWN
    from divebook.workers import Worker, patience_of

    if schedules and file.suffix.lower() == ".py":
        raise InputError(
            f"--schedules reads Schedules, which stand in YAML, JSON or %%dive cells, and {file} is Python; leave it "
            "out, or write the workflow and its schedule in YAML"
        )
    environment = open_environment(store, actions or (), say)
    take_in(environment, file, code=code)
    definitions = read(file, OWN) if schedules else None
    if definitions is not None and not definitions.schedules:
        note(f"--schedules finds no Schedules in {file}", "yellow")
    made = Worker(environment, queues or ["default"], parallel=parallel, schedules=definitions)
    try:
        _work(made, patience_of(patience), until_idle=until_idle)
    except DefinitionError as error:
        raise DefinitionError(error.problems, str(file)) from error


def _work(made: Worker, patience: float, *, until_idle: bool) -> None:
    stop = threading.Event()

    def end(*_: object) -> None:
        if stop.is_set():
            os._exit(INTERRUPTED)  # what it drives is taken up by others
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    made.start()
    note(f"worker {made.name} takes from {', '.join(made.queues)}; SIGTERM or Ctrl-C drains it")
    while not stop.wait(0 if until_idle else 0.2) and made.is_running:
        if until_idle and made.wait_until_idle(0.2):
            break
    is_lost = not made.is_running
    made.drain(patience)
    note(f"worker {made.name} has ended; it took up {plural(made.taken, 'execution')}")
    if is_lost:
        raise StoreError(
            f"worker {made.name} cannot take anything any more; what it logged says why. Begin another one"
        )
