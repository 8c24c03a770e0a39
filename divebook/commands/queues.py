"""Commands about queued and interrupted runs: ``queue``, ``recover``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict, cast

from divebook.commands.command import QUEUES, START, Invocation, command, option, word
from divebook.errors import SetupError
from divebook.report.hints import advised
from divebook.text.format import json_time
from divebook.text.ranges import COUNT

if TYPE_CHECKING:
    from divebook.analysis.lists import QueueLine
    from divebook.environments.environment import Environment
    from divebook.stores import ExecutionRecord
    from divebook.stores.leases import WorkerRecord


# --- queue -----------------------------------------------------------------------------------------------------------


class WorkerData(TypedDict):
    """A running worker as JSON."""

    id: str
    queues: list[str]
    driving: int
    parallel: int


class QueuedRunData(TypedDict):
    """A run in a queue as JSON, with the workers that can run it and the reasons why others cannot. `why` is the reason
    why workers leave it alone.
    """

    run_id: str
    queue: str
    priority: int
    workflow: str
    fingerprint: str | None
    status: str
    due: str | None
    key: str | None
    attempts: int
    workers: list[str]
    reasons: dict[str, str]
    why: NotRequired[str | None]


class QueueData(TypedDict):
    """Result of ``queue`` as JSON."""

    queued: list[QueuedRunData]
    left_alone: list[QueuedRunData]
    workers: list[WorkerData]


@dataclass(frozen=True)
class Queue:
    """The runs that wait in queues, and the running workers."""

    environment: Environment
    workers: Sequence[WorkerRecord]
    lines: Sequence[QueueLine]

    @property
    def waiting(self) -> list[QueueLine]:
        """The runs that workers may take."""
        return [line for line in self.lines if not line.withheld]

    @property
    def withheld(self) -> list[QueueLine]:
        """The runs that workers leave alone, because they are paused or were interrupted too often."""
        return [line for line in self.lines if line.withheld]

    @property
    def worker_lines(self) -> list[str]:
        """A line for each running worker, or one that says how to start a worker."""
        lines = [
            f"worker {worker.id}: {', '.join(worker.queues)}; {worker.driving} of at most {worker.parallel} runs"
            for worker in self.workers
        ]
        return lines or [f"no running worker; start a worker with {advised('worker FILE')}"]


def queue_data(queue: Queue) -> QueueData:
    """Return the runs in queues and the running workers as plain data."""
    return {
        "queued": list(map(_queued_data, queue.waiting)),
        "left_alone": list(map(_queued_data, queue.withheld)),
        "workers": [
            {
                "id": worker.id,
                "queues": list(worker.queues),
                "driving": worker.driving,
                "parallel": worker.parallel,
            }
            for worker in queue.workers
        ],
    }


def _queued_data(line: QueueLine) -> QueuedRunData:
    data = line.to_dict()
    return cast("QueuedRunData", {"run_id": data.pop("execution_id"), **data})


@command(
    "queue",
    QUEUES,
    example="queue",
    python="environment.queues.queued",
    data=queue_data,
    notebook_help="The running workers are printed, and the command returns a DataFrame of the runs.",
)
def queue(call: Invocation) -> Queue:
    """List the runs in queues, and the running workers.

    For each run, the list shows the workers that can run it, or the reason why none can. Runs that no worker takes are
    listed separately.
    """
    from divebook.analysis.lists import queue_lines

    workers = call.environment.queues.workers()
    return Queue(call.environment, workers, [*queue_lines(call.environment, workers)])


# --- recover ---------------------------------------------------------------------------------------------------------


class InterruptedRun(TypedDict):
    """An interrupted run as JSON."""

    id: str
    workflow: str
    status: str
    started_at: str | None


class InterruptedData(TypedDict):
    """Result of ``recover`` as JSON."""

    runs: list[InterruptedRun]


@dataclass(frozen=True)
class Interrupted:
    """Interrupted runs. The interface lists them, or resumes them and reports the result of each."""

    environment: Environment
    records: list[ExecutionRecord]
    page: int
    resumes: bool
    store: str | None
    """Store that the command names; None for the usual one."""
    definitions: Path | None
    """File of definitions that the command names."""


def interrupted_data(interrupted: Interrupted) -> InterruptedData:
    """Return the interrupted runs as plain data."""
    from divebook.projections.summary import Overview

    statuses = Overview(interrupted.environment.store).statuses(interrupted.records)
    return {
        "runs": [
            {
                "id": record.execution_id,
                "workflow": record.workflow_name,
                "status": statuses[record.execution_id],
                "started_at": json_time(record.started_at),
            }
            for record in interrupted.records
        ]
    }


@command(
    "recover",
    START,
    example="recover --all",
    python="environment.queues.recover",
    data=interrupted_data,
    needs_definitions=True,
    shell_help="The exit code is 1 if a run failed or cannot continue, and 3 if a run waits.",
    notebook_help="The runs continue in the background. The environment variable DIVEBOOK_RECOVER, or Recover in the "
    "Config of a definition, controls what %load_ext does with interrupted runs: ask (print a line), auto (resume "
    "them) or off (nothing).",
)
def recover(
    call: Invocation,
    run: Annotated[
        str | None,
        word("RUN", "Run to resume: its id, or the first characters of the id.", completes="interrupted run"),
    ] = None,
    *,
    every: Annotated[
        bool, option("--all", help="Resume all interrupted runs whose agents and actions are defined.")
    ] = False,
    page: Annotated[int, option("--page", allowed=COUNT, help="Page of a long list.")] = 1,
) -> Interrupted:
    """List runs whose process has died, or resume them."""
    from divebook.config.answers import interrupted

    if every and run is not None:
        raise SetupError(f"{advised('recover')} accepts a run or --all, not both")
    call.add_definitions()
    records = interrupted(call.environment, run)
    return Interrupted(call.environment, records, page, every or run is not None, call.store, call.definitions)
