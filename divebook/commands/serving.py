"""Commands that keep a process running or start what is due: ``worker``, ``schedule``, ``mcp``. They exist in a shell
only.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

from divebook.commands.command import EXIT_CODES, QUEUES, SHELL, STORES, Invocation, command, option
from divebook.commands.parameters import ReadDialect
from divebook.errors import DefinitionError, SetupError, StoreError
from divebook.text.format import json_time, local_time, plural
from divebook.text.ranges import COUNT, SECONDS

if TYPE_CHECKING:
    from divebook.config.schedules import Due
    from divebook.environments.environment import Environment
    from divebook.queues import Worker


# --- worker ----------------------------------------------------------------------------------------------------------


@command(
    "worker",
    QUEUES,
    example="worker audit.yaml --queue labels --parallel 8",
    python="divebook.queues.Worker",
    interfaces=[SHELL],
    file_help="File or folder with the definitions that the worker can run.",
    makes_store=True,
)
def worker(
    call: Invocation,
    *,
    queues: Annotated[
        list[str] | None,
        option(
            "--queue",
            metavar="NAME",
            completes="queue",
            help="Queue to serve. May be repeated; the first queues have priority. Default: default.",
        ),
    ] = None,
    parallel: Annotated[int, option("--parallel", allowed=COUNT, help="Maximum number of runs at the same time.")] = 8,
    patience: Annotated[
        float,
        option(
            "--patience",
            metavar="SECONDS",
            allowed=SECONDS,
            help="Seconds to wait for running calls when the worker stops, before they are aborted.",
        ),
    ] = 60,
    schedules: Annotated[
        bool, option("--schedules", help="Enqueue the workflows in Schedules when they are due.")
    ] = False,
    until_idle: Annotated[bool, option("--until-idle", help="End when the queues contain no more work.")] = False,
) -> None:
    """Run queued workflows until stopped.

    At SIGTERM or Ctrl-C, the worker starts no more runs, returns the current ones to their queues and ends. A second
    signal ends it at once. If a worker dies, other workers resume its runs.
    """
    from divebook.queues import Worker, patience_of

    call.add_definitions()
    # Only a worker that was asked to starts what is due; several workers may do so, and the start key prevents a second
    # start.
    definitions = call.schedules(call.environment) if schedules else None
    if definitions is not None and not definitions.schedules:
        call.print_note(f"--schedules has no effect: {call.definitions} defines no Schedules", "yellow")
    instance = Worker(call.environment, queues or ["default"], parallel=parallel, schedules=definitions)
    try:
        _work(call, instance, patience_of(patience), until_idle=until_idle)
    # The error gets the name of the file, which `Worker` does not know.
    except DefinitionError as error:
        raise DefinitionError(error.problems, str(call.definitions)) from error


def _work(call: Invocation, worker: Worker, patience: float, *, until_idle: bool) -> None:
    stop = threading.Event()

    def end(*_: object) -> None:
        if stop.is_set():
            # The leases of the driven executions expire, and other workers resume them.
            os._exit(EXIT_CODES["cancelled"])
        stop.set()

    # Before the start, so that no execution is taken without a way to drain.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    worker.start_thread()
    call.print_note(
        f"worker {worker.name} serves the queues {', '.join(worker.queues)}; press Ctrl-C or send SIGTERM to stop it"
    )
    # With --until-idle, `wait_until_idle` waits in place of `stop.wait`.
    while not stop.wait(0 if until_idle else 0.2) and worker.is_running:
        if until_idle and worker.wait_until_idle(0.2):
            break
    # Read before `drain`, which ends the worker as well.
    is_lost = not worker.is_running
    worker.drain(patience)
    call.print_note(f"worker {worker.name} has ended after {plural(worker.taken, 'run')}")
    if is_lost:
        raise StoreError(
            f"worker {worker.name} cannot run anything any more; see its log for the reason, and start another worker"
        )


# --- schedule --------------------------------------------------------------------------------------------------------


class DueData(TypedDict):
    """One due time of a schedule as JSON."""

    schedule: str
    workflow: str
    due_at: str
    key: str


class ScheduleData(TypedDict):
    """Result of ``schedule`` as JSON: the next due time of each schedule, or with ``--start`` the started runs."""

    due: list[DueData]
    started: list[str]


@dataclass(frozen=True)
class Schedules:
    """When schedules are due, and the runs that were started."""

    file: Path
    due: list[Due]
    lines: list[str]
    """One line for each run that was started, with its end."""
    started: list[str]
    has_failed: bool = False


def schedule_data(schedules: Schedules) -> ScheduleData:
    """Return due times and started runs as plain data."""
    return {
        "due": [
            {"schedule": one.schedule, "workflow": one.workflow, "due_at": json_time(one.at), "key": one.key}
            for one in schedules.due
        ],
        "started": schedules.started,
    }


@command(
    "schedule",
    QUEUES,
    example="schedule audit.yaml --start",
    no_python="`divebook.queues.Worker(environment, schedules=...)` starts the runs that are due.",
    interfaces=[SHELL],
    data=schedule_data,
    exit_code=lambda schedules: int(schedules.has_failed),
    file_help="File or folder with definitions that contain Schedules.",
    makes_store=True,
)
def schedule(
    call: Invocation,
    *,
    start: Annotated[bool, option("--start", help="Start the runs that are due, and wait for them.")] = False,
) -> Schedules:
    """List when schedules are due, or start the due runs.

    `--start` starts one run for the latest due time of each schedule. The start key prevents a second start, also by
    another process. If several due times were missed while the machine was off, only the latest one is started. Times
    are in the Zone of each schedule, by default in the zone of this machine.
    """
    from divebook.config.schedules import coming, latest
    from divebook.environments.environment import Environment

    file = call.definitions
    if file is None:
        raise SetupError("no file of definitions is named; name a file that contains Schedules")
    # With the zone of this machine, the default of schedules.
    now = datetime.now().astimezone()
    if not start:
        # A list needs no store.
        environment = Environment(store="memory:")
        call.define(environment, None)
        return Schedules(file, list(coming(call.schedules(environment), now)), [], [])
    call.add_definitions()
    environment = call.environment
    definitions = call.schedules(environment)
    for due in latest(definitions, now):  # before anything is started
        environment.internals.registry.workflow(due.workflow)
    lines: list[str] = []
    started: list[str] = []
    statuses = [_begin(environment, due, lines, started) for due in latest(definitions, now)]
    return Schedules(file, [], lines, started, "failed" in statuses)


def _begin(environment: Environment, due: Due, lines: list[str], started: list[str]) -> str:
    """Start the run of a schedule that is due, wait for its end, and return its status. Do nothing if a run was already
    started for this due time.
    """
    # For a schedule that is new to this store, `due.at` itself counts as new.
    if not due.is_new(environment.store, due.at):
        return ""
    if environment.store.records(key=due.key):  # by another process, at this moment
        # Noted here too, so that the next call does not look again.
        due.see_to(environment.store)
        return ""
    run = environment.start(due.workflow, due.inputs, key=due.key, note=f"due {local_time(due.at)}")
    # Noted after the start: if the process dies between both, the start key prevents a second start.
    due.see_to(environment.store)
    run.wait()
    lines.append(f"{due.key}  {run.status}  {run.id}")
    started.append(run.id)
    return run.status


def start_command(file: Path) -> str:
    """Return the shell command that starts what is due, for cron and systemd: with the same Python and an absolute
    path, because they have another PATH and working directory.
    """
    return shlex.join([sys.executable, "-m", "divebook", "schedule", str(file.absolute()), "--start"])


# --- mcp -------------------------------------------------------------------------------------------------------------


@command(
    "mcp",
    STORES,
    example="mcp audit.yaml --store runs.db",
    python="divebook.serve.serve_stdio",
    interfaces=[SHELL],
    file_help="File or folder with definitions: YAML, JSON, a notebook or Python.",
    file_default=Path(),
    makes_store=True,
)
def mcp(
    call: Invocation,
    *,
    wait: Annotated[
        float,
        option(
            "--wait",
            metavar="SECONDS",
            allowed=SECONDS,
            help="Maximum time that a call waits for its run. The run continues afterwards.",
        ),
    ] = 50.0,
    http: Annotated[
        str | None,
        option("--http", metavar="HOST:PORT", help="Serve http://HOST:PORT/mcp instead of standard input and output."),
    ] = None,
    token: Annotated[
        str | None,
        option(
            "--token",
            metavar="env://NAME",
            help="Bearer token that clients must send; required if other machines can connect.",
        ),
    ] = None,
    dialect: ReadDialect = "divebook",
) -> None:
    """Publish workflows as tools of an MCP server.

    The server uses standard streams or HTTP. Each workflow is a tool. If a run asks a person, the MCP client shows the
    question; it can also be answered in a notebook or with `divebook answer`. A run can continue after the call, the
    client and this process have ended.
    """
    import asyncio

    from divebook.documents.policy import KINDS, Policy, resolved
    from divebook.serve import serve_stdio
    from divebook.serve.server import serve_http

    if token is not None and http is None:
        raise SetupError("--token applies only to HTTP clients; add --http HOST:PORT")
    with call.environment as environment:
        call.add_definitions(dialect)
        token_value = resolved(token, Policy(*KINDS))  # the command line names it, and no definition
        if http is None:
            asyncio.run(serve_stdio(environment, wait=wait))
        else:
            asyncio.run(serve_http(environment, http, token=token_value, wait=wait))
