"""Workers: threads that run the executions in the queues of a store, usually one worker in each process.

No central manager exists. systemd, Kubernetes, SLURM or a person starts the workers, and the leases in the store
assign the executions to them. The leases of a worker that dies expire, and other workers continue its executions.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from divebook.config.schedules import Schedules
from divebook.definitions.definition import Definitions
from divebook.definitions.resources import ScheduleDefinition
from divebook.environments.environment import Environment
from divebook.environments.registry import require_schedule
from divebook.environments.starts import DEFAULT_QUEUE
from divebook.errors import (
    DivebookError,
    NeedsPersonError,
    ReadOnlyStoreError,
    SetupError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    shown_number,
)
from divebook.runtime.driver import Driver
from divebook.stores.follow import on_change
from divebook.stores.leases import WORKER_SECONDS, Owner, WorkerRecord
from divebook.text.arguments import DurationLike, describe, list_of, seconds_of, suggest_arguments, wait_limit
from divebook.text.ranges import COUNT, SECONDS
from divebook.text.redaction import logger

__all__ = ["Worker"]

DEFAULT_PARALLEL = 8
"""Default for the number of executions that a worker drives concurrently."""
POLL_INTERVAL = 0.5
"""Seconds between two checks of the queues if the store sends no notification."""
SHORTEST_INTERVAL = 0.01
"""Minimum seconds between two checks of the queues, so that one check finds all executions of one commit."""
ANNOUNCE_SECONDS = WORKER_SECONDS / 3
"""Seconds after which a worker writes its record (its heartbeat) again. The record expires after `WORKER_SECONDS`, so
two writes may fail before that."""
RETRY_SECONDS = 60.0
"""Seconds after which a worker tries again to drive an execution that it could not drive."""
PATIENCE = 60.0
"""Default seconds that `Worker.drain` waits for calls that must not be repeated."""
DRAIN_INTERVAL = 0.1
"""Seconds between two checks, while draining, for executions that were just starting."""
MOST_REFUSED = 100
"""Maximum number of executions for which a worker publishes the reason why it cannot run them."""
_numbers = itertools.count(1)
_log = logger(__name__)


@suggest_arguments
class Worker:
    """Worker: a thread that takes executions from queues and drives them until it is drained.

    Parameters
    ----------
    environment
        Environment of the worker. The worker runs only executions whose workflow name and fingerprint match a workflow
        of this environment.
    queues
        Names of the queues, in the order in which they are read.
    parallel
        Maximum number of executions that the worker drives concurrently. An execution that waits for an answer or a
        signal is not driven, and does not count. An execution that sleeps (`ctx.sleep`) is still driven, and counts.
    schedules
        Definitions with schedules, or the schedules themselves, as returned by `Environment.schedules`. The worker
        enqueues their workflows in the first queue, once for each due time.
    name
        Name of the worker for people and for the store; by default its host, process id and a number. Running workers
        of one store must have different names.

    Raises
    ------
    SetupError
        An argument is not valid.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> from divebook.queues import Worker
    >>> workflow = Workflow("sum", [Step("add", script="1 + 1", store="n")])
    >>> environment = Environment(store="memory:", workflows=[workflow])
    >>> with Worker(environment):
    ...     environment.enqueue("sum").wait().variables
    {'n': 2}
    """

    def __init__(
        self,
        environment: Environment,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        *,
        parallel: int = DEFAULT_PARALLEL,
        schedules: Definitions | Iterable[ScheduleDefinition] | None = None,
        name: str | None = None,
    ) -> None:
        # All arguments are checked before anything is created. `Any` lets mypy accept checks that contradict the types.
        if not isinstance(environment, Environment):
            raise SetupError(f"a worker needs an Environment, not {describe(environment)}; write Worker(environment)")
        queue_names: Any = queues
        if (
            isinstance(queue_names, str)
            or not isinstance(queue_names, Iterable)
            or not queue_names
            or not all(isinstance(one, str) and one.strip() for one in queue_names)
        ):
            raise SetupError(f"queues must be a list of names, not {queues!r}; write queues=['labels']")
        if not COUNT.fits(parallel):
            raise SetupError(
                f"parallel must be {COUNT}, not {shown_number(parallel)}; write parallel={DEFAULT_PARALLEL}"
            )
        worker_name: Any = name
        if worker_name is not None and not (isinstance(worker_name, str) and worker_name.strip()):
            raise SetupError(f"the name of a worker must be a string, not {name!r}; remove it, or write name='gpu-1'")
        if schedules is not None and not isinstance(schedules, Definitions):
            entries = list_of(schedules, "schedules", "schedules=environment.schedules")
            schedules = Definitions(schedules=tuple(map(require_schedule, entries)))
        self.environment = environment
        self.queues = tuple(queues)
        self.parallel = parallel
        self.name = name or f"{socket.gethostname()}/{os.getpid()}/{next(_numbers)}"
        self.taken = 0
        """Number of executions that the worker has started to drive. Repeated starts count."""
        self._control = environment._control  # noqa: SLF001 - a worker belongs to its environment
        self._schedules = None if schedules is None else Schedules(environment, schedules, self.queues[0])
        self._process = os.getpid()
        self._news = threading.Event()
        self._drains = threading.Event()
        self._checked = threading.Condition()
        self._checks = 0
        """Number of checks of the queues that were started."""
        self._idle_check = 0
        """Number of the latest check that found no execution while the worker drove none."""
        self._thread: threading.Thread | None = None
        self._has_ended = False
        self._refused: dict[str, tuple[float, str]] = {}
        """Executions that the worker could not drive, by id: time of the next attempt, and reason."""
        self._trouble = ("", float("-inf"))
        """Latest logged problem of the store, and the time at which it was logged."""
        self._announced_at = float("-inf")
        self._scheduled_at = float("-inf")
        self._swept_at = float("-inf")

    def start_thread(self) -> Self:
        """Start the thread, which takes executions from the queues. Returns at once.

        Raises
        ------
        SetupError
            The environment has no workflows, or another running worker has the same name.
        DefinitionError
            A schedule can never be enqueued.
        """
        if self._thread is not None:
            raise SetupError(f"worker {self.name} was already started; create another one")
        if not self.environment.definitions.workflows:
            raise SetupError("the environment has no workflows, so the worker cannot run anything; add a workflow")
        if self._schedules is not None:
            self._schedules.require_sound(datetime.now().astimezone())
        with suppress(StoreBusyError):  # it announces itself as soon as the store is free
            self._require_unique_name()
            self._announce()
        self._thread = threading.Thread(target=self._work, name="divebook-queues", daemon=True)
        self._thread.start()
        return self

    def _require_unique_name(self) -> None:
        for worker in self.environment.store.workers():
            if worker.id == self.name:
                raise SetupError(
                    f"a worker {self.name!r} already exists (process {worker.owner.pid} on {worker.owner.host}); "
                    f"choose another name. If that worker is gone, its name is free after {WORKER_SECONDS:g} s"
                )

    if not TYPE_CHECKING:  # a type checker would accept any name otherwise

        def __getattr__(self, name: str) -> Any:
            if name == "start":
                raise AttributeError("Worker no longer has 'start'; write start_thread()")
            raise AttributeError(f"Worker has no attribute {name!r}", name=name, obj=self)

    def __enter__(self) -> Self:
        return self.start_thread()

    def __exit__(self, *_: object) -> None:
        self.drain()

    @property
    def driving(self) -> list[str]:
        """Ids of the executions that the worker drives at the moment, including child executions."""
        return [driver.id for driver in self._live()]

    @property
    def is_running(self) -> bool:
        """True if the worker can take executions: it was started, was not drained, and its store is open."""
        has_begun = self._thread is not None and self._process == os.getpid()
        return has_begun and not self._has_ended and not self._drains.is_set()

    def wait_until_idle(self, timeout: DurationLike | None = None) -> bool:
        """Wait until the worker drives no execution and its queues contain no execution that it can run.

        Return False after the `timeout`, or if the worker takes no more executions.
        """
        limit = wait_limit(timeout)
        if self._process != os.getpid():  # before the lock, as in `drain`
            return False
        with self._checked:
            # A check that runs at this moment may have missed an execution that was just enqueued. Only a later check
            # counts, and setting `_news` makes it start at once.
            last_check = self._checks
            self._news.set()
            self._checked.wait_for(lambda: self._idle_check > last_check or not self.is_running, limit)
            return self._idle_check > last_check

    def drain(self, patience: DurationLike = PATIENCE) -> None:
        """Stop taking executions, return the executions that the worker drives to their queues, and end the thread. A
        second call has no effect.

        Running calls that must not be repeated are completed. Other running calls are aborted, and repeated by the next
        worker. Child executions are returned to the queue with their parents.

        Parameters
        ----------
        patience
            Seconds to wait. After that, calls are aborted as if the process had died.
        """
        until = time.monotonic() + patience_of(patience)
        # A forked process has none of the worker's threads. Locks that they held at the fork stay locked there.
        if self._process != os.getpid():
            return
        # First the flag, then the wake-up: the thread sees the flag when it wakes.
        self._drains.set()
        self._news.set()
        if self._thread is None or self._thread is threading.current_thread():
            return
        # The thread must have ended: it could otherwise take an execution after the last one was returned.
        self._thread.join()
        while live := self._live():  # a later check finds executions that were about to start
            self._control.queues.give_back(live, f"worker {self.name} drains")
            remaining = until - time.monotonic()
            if remaining <= 0:
                break
            wait([driver.driving() for driver in live], min(remaining, DRAIN_INTERVAL), FIRST_COMPLETED)
        for driver in live:
            self._control.leave(driver)
            message = (
                "worker %s has waited %g s and stopped execution %s of %r: the process that resumes it repeats its "
                "calls"
            )
            asks = "or asks about calls that must not be repeated"
            _log.warning(f"{message}, {asks}", self.name, patience_of(patience), driver.id, driver.workflow.name)
        if not self.environment.store.closed:
            self.environment.store.retire(self.name)

    # --- in its thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        unsubscribe = on_change(self.environment.store, lambda _: self._news.set())
        try:
            while not self._drains.is_set():
                # Cleared before the check: news that arrive during the check make the next one start at once.
                self._news.clear()
                try:
                    count = self._check_queues()
                except StoreClosedError:
                    return
                except ReadOnlyStoreError:
                    _log.exception("worker %s stops: it cannot take runs from its queues", self.name)
                    return
                except StoreError as error:  # busy or unreachable: driven executions continue
                    self._warn(str(error))
                    count = 0
                if not count:
                    self._news.wait(POLL_INTERVAL)
                    self._drains.wait(SHORTEST_INTERVAL)  # one check then finds everything of one commit
        finally:
            unsubscribe()
            with self._checked:
                self._has_ended = True
                self._checked.notify_all()

    def _warn(self, trouble: str) -> None:
        """Log the reason why the queues cannot be read. The same reason is logged again only after `RETRY_SECONDS`."""
        now = time.monotonic()
        last_trouble, since = self._trouble
        if trouble != last_trouble or now - since >= RETRY_SECONDS:
            self._trouble = trouble, now
            _log.warning("worker %s could not read its queues: %s", self.name, trouble)

    def _check_queues(self) -> int:
        """Check the queues once: enqueue schedules that are due, publish the state of the worker, cancel children
        whose parent has ended, and take executions.
        Return how many were taken.
        """
        now = time.monotonic()
        with self._checked:
            self._checks += 1
        if self._schedules is not None and now - self._scheduled_at >= 1:
            self._schedules.enqueue_due(datetime.now().astimezone())
            self._scheduled_at = now
        if now - self._announced_at >= ANNOUNCE_SECONDS:
            self._announce()
            self._announced_at = now
        if now - self._swept_at >= RETRY_SECONDS:
            self._cancel_abandoned()
            self._swept_at = now
        free = self.parallel - len(self._heads())
        count = self._take(free) if free > 0 else 0
        # Idle means that nothing was driven before this check and that it has found nothing.
        if not count and free == self.parallel:
            with self._checked:
                self._idle_check = self._checks
                self._checked.notify_all()
        return count

    def _take(self, free: int) -> int:
        now = time.monotonic()
        # A refused execution is claimed again after `RETRY_SECONDS`: a definition or a service may be there by then.
        self._refused = {name: refusal for name, refusal in self._refused.items() if refusal[0] > now}
        leases = self._control.queues.claim(self.queues, self._can_run(), free, without=self._refused)
        for lease in leases:
            try:
                driver = self._control.queues.take_up(lease, self)
            except NeedsPersonError as error:
                _log.warning("%s", error)
            except DivebookError as error:
                self._refused[lease.execution_id] = now + RETRY_SECONDS, str(error)
                self._announced_at = float("-inf")  # announces the reason at once
                _log.warning("execution %s could not be resumed: %s", lease.execution_id, error)
            else:
                self.taken += 1
                driver.driving().add_done_callback(lambda _: self._news.set())
        return len(leases)

    def _cancel_abandoned(self) -> None:
        """Cancel the child executions in the queues whose parent has ended."""
        # The process that ended the parent died before it cancelled them. A child that waits for an answer has neither
        # a lease nor a message, so that no worker claims it and its question stays open
        # (test_a_worker_cancels_what_waits_for_an_answer_below_a_parent_that_has_ended).
        for record in self._control.abandoned():
            try:
                driver = self._control.find(record.execution_id)
                if driver.state.queue in self.queues:
                    self._control.cancel_with_parent(driver)
            except DivebookError as error:  # another process cancels it
                _log.debug("execution %s is not cancelled with its parent: %s", record.execution_id, error)

    def _live(self) -> list[Driver]:
        return [driver for driver in self._control.live() if driver.worker is self]

    def _heads(self) -> list[Driver]:
        """Return the executions that the worker drives. A child execution is left out if the worker also drives its
        parent.
        """
        live = self._live()
        ids = {driver.id for driver in live}
        # A child runs in the place of its parent, which only waits for it.
        return [driver for driver in live if driver.state.parent not in ids]

    def _can_run(self) -> dict[str, str]:
        return {name: workflow.fingerprint for name, workflow in self.environment.definitions.workflows.items()}

    def _announce(self) -> None:
        refused = {name: reason for name, (_, reason) in list(self._refused.items())[-MOST_REFUSED:]}
        record = WorkerRecord(
            self.name, Owner.current(), self.queues, self.parallel, self._can_run(), len(self._heads())
        )
        self.environment.store.announce(replace(record, refused=refused))

    def __repr__(self) -> str:
        return f"<Worker {self.name}: {', '.join(self.queues)}, {len(self._heads())} of {self.parallel}>"


def patience_of(patience: Any) -> float:
    """Check the duration that draining may wait, and return it in seconds. Raise `SetupError` if it is not a
    valid number.
    """
    seconds = seconds_of(patience, "patience")
    if not SECONDS.fits(seconds):
        raise SetupError(f"patience must be {SECONDS}, not {shown_number(patience)}; write patience={PATIENCE:g}")
    return float(seconds)
