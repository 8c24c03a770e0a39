"""Workers: processes that take executions from the queues of a store and drive them.

There is no manager: systemd, Kubernetes, SLURM or a person starts them, and the store says who has what. A worker that
dies loses its leases, and others go on with what it had.
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
from typing import Any, Self

from divebook.config.schedules import Schedules
from divebook.environment.environment import Environment
from divebook.environment.queues import DEFAULT_QUEUE
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
from divebook.store.leases import WORKER_SECONDS, Owner, WorkerRecord
from divebook.text.arguments import describe
from divebook.text.ranges import COUNT, SECONDS
from divebook.text.redaction import logger
from divebook.workflow.definition import Definitions
from divebook.workflow.resources import ScheduleDefinition

AT_ONCE = 8
"""Executions that a worker drives at once unless it is told."""
LONGEST, SHORTEST = 0.5, 0.01
"""Seconds between two looks into the queues, without news and with them."""
AGAIN = 60.0
"""Seconds after which a worker tries again what it could not take up."""
PATIENCE = 60.0
"""Seconds that draining waits for calls that may not be made twice."""
GLANCE = 0.1
"""Seconds between two looks, while it drains, for what was begun meanwhile."""
MOST_REFUSED = 100
"""Executions that it could not take up of which it says why."""
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
        Definitions whose schedules it puts into the first queue when they are due, each due time once; or the
        schedules themselves, as `Environment.schedules` gives them.
    name
        Who it is, for people and for the store; by default its host, process and number. No two that are there have
        one name.

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
        schedules: Definitions | Iterable[ScheduleDefinition] | None = None,
        name: str | None = None,
    ) -> None:
        if not isinstance(environment, Environment):
            raise SetupError(f"a worker needs an Environment, not {describe(environment)}; write Worker(environment)")
        named: Any = queues
        if isinstance(named, str) or not named or not all(isinstance(one, str) and one.strip() for one in named):
            raise SetupError(f"queues is a list of names, not {queues!r}; write queues=['labels']")
        if not COUNT.fits(parallel):
            raise SetupError(f"parallel is {COUNT}, not {shown_number(parallel)}; write parallel={AT_ONCE}")
        called: Any = name
        if called is not None and not (isinstance(called, str) and called.strip()):
            raise SetupError(f"the name of a worker is a text, not {name!r}; leave it out, or write name='gpu-1'")
        self.environment = environment
        self.queues = tuple(queues)
        self.parallel = parallel
        self.name = name or f"{socket.gethostname()}/{os.getpid()}/{next(_numbers)}"
        self.taken = 0
        """How often it has taken an execution up."""
        self._control = environment._control  # noqa: SLF001 - it is a part of the same
        if schedules is not None and not isinstance(schedules, Definitions):
            schedules = Definitions(schedules=tuple(schedules))
        self._schedules = None if schedules is None else Schedules(environment, schedules, self.queues[0])
        self._process = os.getpid()
        self._news = threading.Event()
        self._drains = threading.Event()
        self._looked = threading.Condition()
        self._looks = self._idle_look = 0
        """How often it has begun to look into the queues, and the last look that found nothing to do, nor to drive."""
        self._thread: threading.Thread | None = None
        self._has_ended = False
        self._refused: dict[str, tuple[float, str]] = {}
        """Executions that it could not take up: when it tries again, and why it could not."""
        self._trouble = ("", float("-inf"))
        """What it said last of its store, and when."""
        self._announced = self._scheduled = float("-inf")

    def start(self) -> Self:
        """Begin to take executions; return at once.

        Raises
        ------
        SetupError
            It has nothing to run, or another worker has its name.
        DefinitionError
            A schedule could never be enqueued.
        """
        if self._thread is not None:
            raise SetupError(f"worker {self.name} was started already; make another one")
        if not self.environment.workflows:
            raise SetupError("the environment has no workflows, so that the worker could run nothing; add some")
        if self._schedules is not None:
            self._schedules.require_sound(datetime.now().astimezone())
        with suppress(StoreBusyError):  # it says that it is there as soon as it can
            self._require_own_name()
            self._announce()
        self._thread = threading.Thread(target=self._work, name="divebook-queues", daemon=True)
        self._thread.start()
        return self

    def _require_own_name(self) -> None:
        for there in self.environment.store.workers():
            if there.id == self.name:
                raise SetupError(
                    f"a worker {self.name!r} is there already (process {there.owner.pid} on {there.owner.host}); give "
                    f"this one another name. If that one is gone, its name is free after {WORKER_SECONDS:g} s"
                )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.drain()

    @property
    def driving(self) -> list[str]:
        """The executions that it drives now, with those that these have started."""
        return [driver.id for driver in self._live()]

    @property
    def is_running(self) -> bool:
        """Whether it takes executions: it was started, and has not been drained, nor lost its store."""
        has_begun = self._thread is not None and self._process == os.getpid()
        return has_begun and not self._has_ended and not self._drains.is_set()

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
        """Take no more, give back what it drives, with what that has started, and end.

        Calls that may not be made twice are waited for, others are broken off and made again by whoever takes the
        execution next. Calling it twice is the same as once.

        Parameters
        ----------
        patience
            Seconds to wait; what goes on after them is broken off as if the process had died.
        """
        until = time.monotonic() + patience_of(patience)
        self._drains.set()
        self._news.set()
        if self._thread is None or self._thread is threading.current_thread() or self._process != os.getpid():
            return
        self._thread.join()
        while live := self._live():  # what was about to be begun is found by a later look
            self._control.give_back(live, f"worker {self.name} drains")
            if (left := until - time.monotonic()) <= 0:
                break
            wait([driver.driving() for driver in live], min(left, GLANCE), FIRST_COMPLETED)
        for driver in live:
            self._control.leave(driver)
            told = (
                "worker %s has waited %g s and broken off execution %s of %r: whoever takes it up makes its calls again"
            )
            asks = "or asks about those that may not be made twice"
            _log.warning(f"{told}, {asks}", self.name, patience, driver.id, driver.workflow.name)
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
                    self._warn(str(error))
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

    def _warn(self, trouble: str) -> None:
        """Say what keeps it from looking into its queues, once as long as it stays so."""
        now = time.monotonic()
        (said, since) = self._trouble
        if trouble != said or now - since >= AGAIN:
            self._trouble = trouble, now
            _log.warning("worker %s could not look into its queues: %s", self.name, trouble)

    def _look(self) -> int:
        """Enqueue what is due, say that it is there, and take what there is; return how many it has taken."""
        now = time.monotonic()
        with self._looked:
            self._looks += 1
        if self._schedules is not None and now - self._scheduled >= 1:
            self._schedules.enqueue_due(datetime.now().astimezone())
            self._scheduled = now
        if now - self._announced >= WORKER_SECONDS / 3:
            self._announce()
            self._announced = now
        free = self.parallel - len(self._heads())
        took = self._take(free) if free > 0 else 0
        if not took and free == self.parallel:
            with self._looked:
                self._idle_look = self._looks
                self._looked.notify_all()
        return took

    def _take(self, free: int) -> int:
        now = time.monotonic()
        self._refused = {name: refusal for name, refusal in self._refused.items() if refusal[0] > now}
        leases = self._control.claim(self.queues, self._can_run(), free, without=self._refused)
        for lease in leases:
            try:
                driver = self._control.take_up(lease, self)
            except NeedsPersonError as error:
                self.environment.store.withhold(lease.execution_id)
                _log.warning("%s", error)
            except DivebookError as error:
                self._refused[lease.execution_id] = now + AGAIN, str(error)
                self._announced = float("-inf")  # why is said at once
                _log.warning("execution %s could not be taken up: %s", lease.execution_id, error)
            else:
                self.taken += 1
                driver.driving().add_done_callback(lambda _: self._news.set())
        return len(leases)

    def _live(self) -> list[Driver]:
        return [driver for driver in self._control.live() if driver.worker is self]

    def _heads(self) -> list[Driver]:
        """Return those that it drives without those that one of them has started, and waits for."""
        live = self._live()
        ids = {driver.id for driver in live}
        return [driver for driver in live if driver.state.parent not in ids]

    def _can_run(self) -> dict[str, str]:
        return {name: workflow.fingerprint for name, workflow in self.environment.workflows.items()}

    def _announce(self) -> None:
        refused = {name: reason for name, (_, reason) in list(self._refused.items())[-MOST_REFUSED:]}
        said = WorkerRecord(self.name, Owner.current(), self.queues, self.parallel, self._can_run(), len(self._heads()))
        self.environment.store.announce(replace(said, refused=refused))

    def __repr__(self) -> str:
        return f"<Worker {self.name}: {', '.join(self.queues)}, {len(self._heads())} of {self.parallel}>"


def patience_of(patience: Any) -> float:
    """Return how many seconds draining is to wait; raises `SetupError`."""
    if not SECONDS.fits(patience):
        raise SetupError(f"patience is {SECONDS}, not {shown_number(patience)}; write patience={PATIENCE:g}")
    return float(patience)
