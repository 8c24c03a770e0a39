"""Executions in queues: an environment puts them there, and workers (`divebook.Worker`) drive them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Unpack

from divebook.errors import InputError, SetupError, StartKeyTakenError, shown_number
from divebook.events import catalog
from divebook.events.event import to_microseconds
from divebook.execution.execution import Execution
from divebook.executions import Executions
from divebook.starting import WARN, StartOptions, started_before
from divebook.store.queues import QueuedExecution, WorkerRecord
from divebook.workflow.definition import Workflow

DEFAULT_QUEUE = "default"
MOST_PRIORITY = 1_000_000


class Queueing(Executions):
    """Executions that wait for a worker."""

    @abstractmethod
    def create(  # noqa: D102 - as documented where it is promised
        self, workflow: Workflow | str, inputs: Mapping[str, Any] | None = None, **options: Unpack[StartOptions]
    ) -> Execution: ...

    def enqueue(
        self,
        workflow: Workflow | str,
        inputs: Mapping[str, Any] | None = None,
        *,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        at: datetime | None = None,
        **options: Unpack[StartOptions],
    ) -> Execution:
        """Put an execution into a queue and return once it is in the store; a worker of that queue drives it.

        It has the status ``enqueued`` until one begins. `Execution.wait` waits for its end, whoever drives it. Its
        answers and signals reach its workers; `resume` takes it up in this process.

        Parameters
        ----------
        inputs
            Plain data by name.
        queue
            A name; queues need not be made.
        priority
            A whole number: of those in a queue, higher ones are begun first.
        at
            When it may begin at the earliest; a time without a zone is local.
        options
            As for `Environment.start`. With a `key` it is enqueued once: a second call with that key returns the
            execution that exists, as it stands; `on_conflict` says what to do if that has other inputs.

        Raises
        ------
        SetupError
            The queue, the priority or the time is none.
        StartKeyTakenError
            An execution of another workflow has the key.
        """
        place = _place(queue, priority, at)
        created = self.create(workflow, inputs, **options)
        try:
            return self._handle(self._control.enqueue(created._driver, place))  # noqa: SLF001 - it is ours
        except StartKeyTakenError as taken:
            return self._started_before(taken, created, options.get("on_conflict", WARN))

    def _started_before(self, taken: StartKeyTakenError, created: Execution, on_conflict: str) -> Execution:
        """Return the execution that has the key with which another one was to be started."""
        opening = created._driver.opening  # noqa: SLF001 - it is ours
        inputs = None if opening is None else opening.inputs
        return self.execution(started_before(taken, created.workflow.name, self.store, inputs, on_conflict))

    def queued(self, *, withheld: bool = False) -> list[QueuedExecution]:
        """Return what the queues have that has not ended, queue by queue, in the order in which it is taken.

        With `withheld` what workers leave alone of it, in place of that: a person has paused it, or it was interrupted
        too often. `resume` goes on with it.
        """
        return self.store.queued(withheld=withheld)

    def workers(self) -> list[WorkerRecord]:
        """Return the workers that are there, with what each can run."""
        return self.store.workers()


def time_named(text: str | None) -> datetime | None:
    """Return the time that a person has written; InputError if it is none."""
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"--at {text!r} is no time; write --at 2026-05-01T08:00") from error


def _place(queue: Any, priority: Any, at: Any) -> catalog.ExecutionEnqueued:
    if not isinstance(queue, str) or not queue.strip():
        raise SetupError(f"a queue has a name, not {queue!r}; write queue='labels'")
    if type(priority) is not int or abs(priority) > MOST_PRIORITY:
        most = f"{MOST_PRIORITY:,}"
        raise SetupError(
            f"a priority is a whole number from -{most} to {most}, not {shown_number(priority)}; write priority=0"
        )
    if at is not None and not isinstance(at, datetime):
        raise SetupError(f"at is a datetime, not {at!r}; write at=datetime.now() + timedelta(hours=1)")
    return catalog.ExecutionEnqueued(queue, priority, None if at is None else _moment(at))


def _moment(at: datetime) -> int:
    try:
        return to_microseconds(at.astimezone())
    except (ValueError, OverflowError) as error:  # with its zone it lies before the year 1, or after 9999
        raise SetupError(f"at is a time that clocks can show, not {at.isoformat()}; write a nearer one") from error
