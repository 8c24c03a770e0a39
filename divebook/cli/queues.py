"""Subcommands ``enqueue``, ``queue``, ``worker``, ``schedule``: queued executions and processes that run them."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divebook.cli.options import Actions, Code, Json, Note, OnConflict, Store, Tags, number_option
from divebook.cli.output import as_json, columns, note, say, secrets, section
from divebook.cli.run import INTERRUPTED
from divebook.errors import DefinitionError, InputError, StoreError
from divebook.text.format import local_time, plural
from divebook.text.ranges import INTEGER, SECONDS

if TYPE_CHECKING:
    from divebook.analysis.lists import QueueLine
    from divebook.config.schedules import Due
    from divebook.environments.environment import Environment
    from divebook.environments.starts import StartOptions
    from divebook.queues import Worker


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
    priority: Annotated[
        int, number_option("--priority", allowed=INTEGER, help="Executions with a higher one are started first.")
    ] = 0,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Earliest start: 2026-05-01T08:00, local time.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="TEXT", help="With a key it is enqueued once, however often asked.")
    ] = None,
    on_conflict: OnConflict = "warn",
    code: Code = False,
    actions: Actions = None,
    store: Store = None,
    tag: Tags = None,
    note: Note = None,
    json: Json = False,
) -> None:
    """Put a run of a workflow into a queue, for a worker to start.

    Prints the id of the execution.
    """
    from divebook.cli.project import add_definitions, choose_workflow, inputs_from, open_environment
    from divebook.environments.starts import time_named

    # Wrong arguments are reported before a store is opened or created.
    values = inputs_from(inputs or ())
    when = time_named(at)
    secrets.learn(values)
    environment = open_environment(store, actions or (), say)
    add_definitions(environment, file, code=code)
    chosen = choose_workflow(environment, workflow, file)
    # Values of the command line are texts, which the types of the workflow convert.
    options: StartOptions = {"coerce_text": True, "key": key, "on_conflict": on_conflict, "tags": tag, "note": note}
    execution = environment.enqueue(chosen, values, queue=queue, priority=priority, at=when, **options)
    if json:
        say(as_json({"id": execution.id, "status": execution.status, "queue": execution.state.queue}))
    else:
        say(execution.id)


def queue(store: Store = None, *, json: Json = False) -> None:
    """List the executions in queues, and the running workers.

    For each execution: which workers can run it, or why none can; and which executions workers leave alone.
    """
    from divebook.analysis.lists import queue_lines
    from divebook.cli.project import existing_environment

    environment = existing_environment(store)
    workers = environment.workers()
    lines = [*queue_lines(environment, workers)]
    # Withheld executions are paused, or were interrupted too often: workers leave them alone.
    waiting = [line for line in lines if not line.withheld]
    withheld_lines = [line for line in lines if line.withheld]
    if json:
        facts = {
            "queued": [line.to_dict() for line in waiting],
            "left_alone": [line.to_dict() for line in withheld_lines],
            "workers": [
                {"id": worker.id, "queues": worker.queues, "driving": worker.driving, "parallel": worker.parallel}
                for worker in workers
            ],
        }
        say(as_json(facts, indent=2))
        return
    if waiting:
        columns(("queue", "priority", "id", "workflow", "status", "due", "key", "workers"), map(_shown, waiting))
    else:
        say("no queue has anything")
    # Reasons only for executions that no worker can run.
    for line in waiting:
        if line.workers:
            continue
        for name, reason in line.reasons.items():
            say(f"{line.execution_id}: worker {name} cannot run it: {reason}")
    if withheld_lines:
        say("workers leave alone:")
        shown = ([line.queue, line.execution_id, line.workflow, line.why or ""] for line in withheld_lines)
        columns(("queue", "id", "workflow", "why"), shown)
        say("to resume one: divebook resume ID FILE")
    for worker in workers:
        say(f"worker {worker.id}: {', '.join(worker.queues)}; drives {worker.driving} of {worker.parallel}")
    if not workers:
        say("no running worker; start one: divebook worker FILE")


def _shown(line: QueueLine) -> tuple[str, ...]:
    from divebook.analysis.lists import NOBODY

    attempts = f", {plural(line.attempts, 'attempt')}" if line.attempts else ""
    due = "" if line.due is None else local_time(line.due)
    able = plural(len(line.workers), "worker") if line.workers else NOBODY
    cells = (line.queue, str(line.priority), line.execution_id, line.workflow)
    return (*cells, f"{line.status}{attempts}", due, line.key or "", able)


def worker(
    file: Annotated[Path, typer.Argument(metavar="FILE|FOLDER", help="Definitions of the workflows that it can run.")],
    *,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="NAME",
            help="A queue to serve; may be repeated, the first ones have priority; default: default.",
        ),
    ] = None,
    parallel: Annotated[
        int,
        number_option(
            "--parallel", allowed=INTEGER, help="Maximum number of executions that it drives at the same time."
        ),
    ] = 8,
    patience: Annotated[
        float,
        number_option(
            "--patience",
            metavar="SECONDS",
            allowed=SECONDS,
            help="At its end: how long to wait for calls before they are aborted.",
        ),
    ] = 60,
    schedules: Annotated[
        bool, typer.Option("--schedules", help="Enqueue the workflows in Schedules when they are due.")
    ] = False,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when nothing is left to do.")] = False,
    code: Code = False,
    actions: Actions = None,
    store: Store = None,
) -> None:
    """Run executions from queues until stopped.

    At SIGTERM or Ctrl-C, the worker starts no more executions, returns the running ones to their queues and ends. A
    second signal ends it at once. If a worker dies, other workers resume its executions.
    """
    from divebook.cli.project import add_definitions, open_environment, schedules_of
    from divebook.queues import Worker, patience_of

    environment = open_environment(store, actions or (), say)
    add_definitions(environment, file, code=code)
    # Only a worker that was asked to starts what is due; several workers may do so, and the start key prevents a second
    # start.
    definitions = schedules_of(environment, file, code=code) if schedules else None
    if definitions is not None and not definitions.schedules:
        note(f"--schedules finds no Schedules in {file}", "yellow")
    instance = Worker(environment, queues or ["default"], parallel=parallel, schedules=definitions)
    try:
        _work(instance, patience_of(patience), until_idle=until_idle)
    # The error gets the name of the file, which `Worker` does not know.
    except DefinitionError as error:
        raise DefinitionError(error.problems, str(file)) from error


def _work(worker: Worker, patience: float, *, until_idle: bool) -> None:
    stop = threading.Event()

    def end(*_: object) -> None:
        if stop.is_set():
            # The leases of the driven executions expire, and other workers resume them.
            os._exit(INTERRUPTED)
        stop.set()

    # Before the start, so that no execution is taken without a way to drain.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    worker.start()
    note(f"worker {worker.name} takes from {', '.join(worker.queues)}; SIGTERM or Ctrl-C drains it")
    # With --until-idle, `wait_until_idle` waits in place of `stop.wait`.
    while not stop.wait(0 if until_idle else 0.2) and worker.is_running:
        if until_idle and worker.wait_until_idle(0.2):
            break
    # Read before `drain`, which ends the worker as well.
    is_lost = not worker.is_running
    worker.drain(patience)
    note(f"worker {worker.name} has ended; it took up {plural(worker.taken, 'execution')}")
    if is_lost:
        raise StoreError(
            f"worker {worker.name} cannot take anything any more; what it logged says why. Begin another one"
        )


# ``divebook schedule``: what is due when, and the start of what is due.


RUN = "run"
USAGE = "write divebook schedule FILE, or divebook schedule run FILE"


def schedule(
    words: Annotated[list[str], typer.Argument(metavar="[run] FILE|FOLDER", help="Definitions with Schedules.")],
    *,
    actions: Actions = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """List when schedules are due, or start the due runs.

    `schedule run` starts the latest due time of each schedule once: the start key prevents a second start, also from
    another process. If several due times were missed while the machine was off, only the latest one is started. Times
    are in the Zone of each schedule, by default that of this machine.
    """
    is_run = len(words) == 2 and words[0] == RUN
    if len(words) != 1 + is_run:
        raise InputError(f"unexpected {' '.join(words)!r}; {USAGE}")
    file = Path(words[-1])
    # With the zone of this machine, the default of schedules.
    now = datetime.now().astimezone()
    if is_run:
        _start(file, now, actions or (), store)
    else:
        _list(file, now, actions or (), json=json)


def _list(file: Path, now: datetime, actions: list[str] | tuple[()], *, json: bool) -> None:
    from divebook.cli.project import add_definitions, open_environment, schedules_of
    from divebook.config.schedules import coming

    # A list needs no store.
    environment = open_environment("memory:", actions, say)
    add_definitions(environment, file)
    due = coming(schedules_of(environment, file), now)
    rows = [
        {"schedule": one.schedule, "workflow": one.workflow, "due": one.at.isoformat(), "key": one.key} for one in due
    ]
    if json:
        say(as_json(rows, indent=2))
        return
    if not rows:
        say("no schedule is active; add Schedules: [{Name: ..., Cron: ..., Workflow: ...}]")
        return
    columns(("schedule", "workflow", "due"), ([row["schedule"], row["workflow"], row["due"]] for row in rows))
    # The same Python and the absolute path, because cron has another PATH and working directory.
    command = shlex.join([sys.executable, "-m", "divebook", "schedule", RUN, str(file.absolute())])
    place = shlex.quote(str(Path.cwd()))
    section(
        "to start them when they are due",
        [
            ("cron", f"* * * * * cd {place} && {command}"),
            ("systemd", f"systemd-run --user --on-calendar=minutely --working-directory={place} {command}"),
        ],
    )


def _start(file: Path, now: datetime, actions: list[str] | tuple[()], store: str | None) -> None:
    from divebook.cli.project import add_definitions, open_environment, schedules_of
    from divebook.config.schedules import latest

    environment = open_environment(store, actions, say)
    add_definitions(environment, file)
    definitions = schedules_of(environment, file)
    for due in latest(definitions, now):  # before anything is started
        environment.internals.registry.workflow(due.workflow)
    codes = [_begin(environment, due) for due in latest(definitions, now)]
    raise typer.Exit(max(codes, default=0))


def _begin(environment: Environment, due: Due) -> int:
    """Start the run of a schedule that is due, wait for its end, and return the exit code: 1 if the run failed, else 0.
    Do nothing if a run was already started for this due time.
    """
    # For a schedule that is new to this store, `due.at` itself counts as new.
    if not due.is_new(environment.store, due.at):
        return 0
    if environment.store.records(key=due.key):  # by another process, at this moment
        # Noted here too, so that the next call does not look again.
        due.see_to(environment.store)
        return 0
    execution = environment.start(due.workflow, due.inputs, key=due.key, note=f"due {local_time(due.at)}")
    # Noted after the start: if the process dies between both, the start key prevents a second start.
    due.see_to(environment.store)
    execution.wait()
    say(f"{due.key}  {execution.status}  {execution.id}")
    return 1 if execution.status == "failed" else 0
