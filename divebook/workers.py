"""Workers: processes that take executions from the queues of a store and drive them.

There is no manager: systemd, Kubernetes, SLURM or a person starts them, and the store says who has what. A worker that
dies loses its leases, and others go on with what it had.
"""

from __future__ import annotations

import functools
import itertools
import os
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import wait
from datetime import datetime
from typing import Any, Self

from divebook.config.schedules import latest
from divebook.environment import Environment
from divebook.errors import (
    DivebookError,
    NeedsPersonError,
    ReadOnlyStoreError,
    SetupError,
    StoreClosedError,
    StoreError,
)
from divebook.execution.driver import Driver
from divebook.queueing import DEFAULT_QUEUE
from divebook.store.owner import Owner
from divebook.store.queues import WORKER_SECONDS, WorkerRecord
from divebook.text.logs import logger
from divebook.text.times import local_time
from divebook.workflow.definition import Definitions

AT_ONCE = 8
"""Executions that a worker drives at once unless it is told."""
LONGEST, SHORTEST = 0.5, 0.01
"""Seconds between two looks into the queues, without news and with them."""
AGAIN = 60.0
"""Seconds after which a worker tries again what it could not take up."""
PATIENCE = 60.0
"""Seconds that draining waits for calls that may not be made twice."""
_numbers = itertools.count(1)
_log = logger(__name__)


class Worker:
    """Takes executions from queues and drives them, in a thread of its own, until it is drained.

    Parameters
    ----------
    environment
        Has the workflows that it can run: executions of these names that began with these fingerprints.
    queues
        In the order in which they are served.
    parallel
        How many executions it drives at once; one that waits for an answer, a signal or a time is not driven.
    schedules
        Definitions whose schedules it puts into the first queue when they are due, each due time once.
    name
        Who it is, for people and for the store; by default its host, process and number.

    Raises
    ------
    SetupError
        Nothing can be done with what is given.

    Examples
    --------
    >>> from divebook import Environment, Step, Worker, Workflow
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
        parallel: int = AT_ONCE,
        schedules: Definitions | None = None,
        name: str | None = None,
    ) -> None:
        named: Any = queues
        if isinstance(named, str) or not named or not all(isinstance(queue, str) and queue for queue in named):
            raise SetupError(f"queues is a list of names, not {queues!r}; write queues=['labels']")
        if type(parallel) is not int or parallel < 1:
            raise SetupError(f"parallel is a whole number from 1 on, not {parallel!r}; write parallel={AT_ONCE}")
        self.environment, self.queues, self.parallel = environment, tuple(queues), parallel
        self.name = name or f"{socket.gethostname()}/{os.getpid()}/{next(_numbers)}"
        self.taken = 0
        """How often it has taken an execution up."""
        self._schedules, self._control = schedules, environment._control  # noqa: SLF001 - it is a part of the same
        self._news, self._drains = threading.Event(), threading.Event()
        self._looked = threading.Condition()
        self._looks = self._idle_look = 0
        """How often it has begun to look into the queues, and the last look that found nothing to do, nor to drive."""
        self._own: set[str] = set()
        """The executions that it has taken, until they end."""
        self._thread: threading.Thread | None = None
        self._has_ended = False
        self._refused: dict[str, float] = {}
        """Executions that it could not take up, and when it tries again."""
        self._announced = self._scheduled = float("-inf")

    def start(self) -> Self:
        """Begin to take executions; return at once."""
        if self._thread is not None:
            raise SetupError(f"worker {self.name} was started already; make another one")
        if not self.environment.workflows:
            raise SetupError("the environment has no workflows, so that the worker could run nothing; add some")
        self._thread = threading.Thread(target=self._work, name="divebook-queues", daemon=True)
        self._thread.start()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.drain()

    @property
    def driving(self) -> list[str]:
        """The executions that it drives now."""
        return [driver.id for driver in self._live()]

    @property
    def is_running(self) -> bool:
        """Whether it takes executions: it was started, and has not been drained, nor lost its store."""
        return self._thread is not None and not self._has_ended and not self._drains.is_set()

    def wait_until_idle(self, timeout: float | None = None) -> bool:
        """Block until it drives nothing and its queues have nothing for it.

        Return False if that takes longer, or if it takes nothing any more.
        """
        with self._looked:
            asked = self._looks
            self._news.set()
            self._looked.wait_for(lambda: self._idle_look > asked or not self.is_running, timeout)
            return self._idle_look > asked

    def drain(self, patience: float = PATIENCE) -> None:
        """Take no more, give back what it drives, and end.

        Calls that may not be made twice are waited for, others are broken off and made again by whoever takes the
        execution next. Calling it twice is the same as once.

        Parameters
        ----------
        patience
            Seconds to wait; what goes on after them is broken off as if the process had died.
        """
        self._drains.set()
        self._news.set()
        if self._thread is None or self._thread is threading.current_thread():
            return
        self._thread.join()
        for driver in self._live():
            self._control.give_back(driver, f"worker {self.name} drains")
        left = wait([driver.driving() for driver in self._live()], patience).not_done
        for driver in self._live() if left else ():
            self._control.leave(driver)
        if not self.environment.store.closed:
            self.environment.store.retire(self.name)

    # --- in its thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        ignore = self.environment.store.on_news(self._news.set)
        forget = self.environment.store.subscribe(lambda *_: self._news.set())
        try:
            while not self._drains.is_set():
                self._news.clear()
                try:
                    took = self._look()
                except StoreClosedError:
                    return
                except ReadOnlyStoreError:
                    _log.exception("worker %s ends: it cannot take anything", self.name)
                    return
                except StoreError as error:  # busy, or out of reach: what it drives goes on
                    _log.warning("worker %s could not look into its queues: %s", self.name, error)
                    took = 0
                if not took:
                    self._news.wait(LONGEST)
                    self._drains.wait(SHORTEST)  # what is committed at the same moment comes together
        finally:
            ignore()
            forget()
            with self._looked:
                self._has_ended = True
                self._looked.notify_all()

    def _look(self) -> int:
        """Enqueue what is due, say that it is there, and take what there is; return how many it has taken."""
        now = time.monotonic()
        with self._looked:
            self._looks += 1
        if self._schedules is not None and now - self._scheduled >= 1:
            self._enqueue_due(self._schedules)
            self._scheduled = now
        if now - self._announced >= WORKER_SECONDS / 3:
            self._announce()
            self._announced = now
        free = self.parallel - len(self._live())
        took = self._take(free) if free > 0 else 0
        if not took and free == self.parallel:
            with self._looked:
                self._idle_look = self._looks
                self._looked.notify_all()
        return took

    def _take(self, free: int) -> int:
        now = time.monotonic()
        self._refused = {name: until for name, until in self._refused.items() if until > now}
        leases = self.environment.store.claim(
            self.queues, self._can_run(), Owner.current(), free, without=self._refused
        )
        for lease in leases:
            try:
                driver = self._control.take_up(lease)
            except NeedsPersonError as error:
                self.environment.store.withhold(lease.execution_id)
                _log.warning("%s", error)
            except DivebookError as error:
                self._refused[lease.execution_id] = now + AGAIN
                _log.warning("execution %s could not be taken up: %s", lease.execution_id, error)
            else:
                self.taken += 1
                self._own.add(driver.id)
                driver.driving().add_done_callback(functools.partial(self._came_to_rest, driver))
        return len(leases)

    def _came_to_rest(self, driver: Driver, _: object) -> None:
        if driver.state.is_over:
            self._own.discard(driver.id)
        self._news.set()

    def _live(self) -> list[Driver]:
        return [driver for driver in self._control.live() if driver.id in self._own]

    def _can_run(self) -> dict[str, str]:
        return {name: workflow.fingerprint for name, workflow in self.environment.workflows.items()}

    def _announce(self) -> None:
        said = WorkerRecord(self.name, Owner.current(), self.queues, self.parallel, self._can_run(), len(self._live()))
        self.environment.store.announce(said)

    def _enqueue_due(self, definitions: Definitions) -> None:
        for due in latest(definitions, datetime.now().astimezone()):
            if not self.environment.store.records(key=due.key):
                note = f"due {local_time(due.at)}"
                self.environment.enqueue(due.workflow, queue=self.queues[0], key=due.key, note=note)

    def __repr__(self) -> str:
        return f"<Worker {self.name}: {', '.join(self.queues)}, {len(self._live())} of {self.parallel}>"
