"""What waits in the queues of a store, and who can run it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pandas as pd

from divebook.analysis.columns import ANYTHING, COUNT, MOMENT, TEXT, Column, Columns, documented, frame
from divebook.environment import Environment
from divebook.events.catalog import ENQUEUED
from divebook.execution.recovery import attempts_made
from divebook.store.queues import QueuedExecution, WorkerRecord

NOBODY = "nobody there can run it"
INTERRUPTED = "it was interrupted too often, each time before it made progress"


class QueueLine:
    """An execution in a queue, with what its row and the workers say of it."""

    def __init__(
        self, environment: Environment, queued: QueuedExecution, workers: list[WorkerRecord], *, withheld: bool
    ) -> None:
        record = environment.store.record(queued.execution_id)
        self.queue, self.priority, self.execution_id = queued.queue, queued.priority, queued.execution_id
        self.workflow, self.status, self.key = queued.workflow, record.status, record.key
        self.due = record.wake_at if record.status == ENQUEUED else None
        self.attempts = attempts_made(environment.store, queued.execution_id)
        reasons = {worker.id: worker.why_not(queued) for worker in workers}
        self.workers = [name for name, reason in reasons.items() if reason is None]
        self.reasons = {name: reason for name, reason in reasons.items() if reason is not None}
        self.withheld = withheld
        self._paused = environment.execution(queued.execution_id).state.paused if withheld else None
        self._queued = queued

    @property
    def why(self) -> str | None:
        """Why it stands still: workers leave it alone, or none of them can run it; None if one can."""
        if self.withheld:
            return self._paused or INTERRUPTED
        if self.workers:
            return None
        return "; ".join([NOBODY, *(f"{name}: {reason}" for name, reason in self.reasons.items())])

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        told: dict[str, Any] = {
            "status": self.status,
            "due": None if self.due is None else self.due.isoformat(),
            "key": self.key,
        }
        told |= {"attempts": self.attempts, "workers": self.workers, "reasons": self.reasons}
        return {**asdict(self._queued), **told, **({"why": self.why} if self.withheld else {})}


def queue_lines(environment: Environment, workers: list[WorkerRecord]) -> Iterator[QueueLine]:
    """Give what waits, in the order in which it is taken, and then what workers leave alone."""
    for withheld in (False, True):
        for queued in environment.queued(withheld=withheld):
            yield QueueLine(environment, queued, workers, withheld=withheld)


QUEUE_COLUMNS: Columns = {
    "queue": Column(TEXT, "the queue that it waits in"),
    "priority": Column(COUNT, "higher ones are begun first"),
    "execution_id": Column(TEXT, "``exec_...``"),
    "workflow": Column(TEXT, "the workflow that it runs"),
    "status": Column(TEXT, "``enqueued``, or as it stands between two workers"),
    "due": Column(MOMENT, "when it may begin, UTC"),
    "key": Column(TEXT, "its start key"),
    "attempts": Column(COUNT, "how often a worker died with it since it made progress"),
    "workers": Column(ANYTHING, "the workers that can run it"),
    "why": Column(TEXT, "why it stands still: paused, interrupted too often, or why nobody can run it"),
}


@documented(QUEUE_COLUMNS)
def queue_frame(environment: Environment) -> pd.DataFrame:
    """Return one row per execution in a queue that has not ended, in the order in which workers take them."""
    return frame(QUEUE_COLUMNS, list(queue_lines(environment, environment.workers())))
