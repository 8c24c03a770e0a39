"""The executors of an environment, by name: ``thread``, ``process``, and any `concurrent.futures.Executor`."""

from __future__ import annotations

import asyncio
import contextvars
import re
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from typing import Any, cast

import anyio

from divebook.errors import AlreadyRegisteredError, NotFoundError, OutcomeUnknownError, SetupError, StepError
from divebook.execution.compute import THREADS, Compute, LimitedSlot, Places, Task, carried_out
from divebook.execution.dask_cluster import DaskCluster, is_address, is_client, is_cluster
from divebook.execution.processes import Processes
from divebook.execution.shipping import make_shipped, ship, unship

THREAD, PROCESS = "thread", "process"
_PLACE = re.compile(r"(https?://.*|[^\s/]+:\d+)")
"""What looks like an address."""


Given = Executor | Callable[[], Executor]
"""An executor, or what makes one when it is needed."""


class _Workers(Places):
    """A place for each worker of an executor, which is free again when the worker is: some calls are not waited for."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._awaited = 0
        """How many places are to be kept, of those that are given back next: it does not matter which."""
        self._kept: list[_Place] = []

    def slot(self) -> LimitedSlot:
        """Return one; on the loop that is to wait for it."""
        return _Place(self.limiter(), self)

    def keep_until(self, busy: asyncio.Future[Any]) -> None:
        """Keep the place of a call that is given up, until it has ended."""
        self._awaited += 1
        busy.add_done_callback(self._let_go)

    def keeps(self, place: _Place) -> bool:
        """Whether a place that is given back is kept."""
        if self._awaited:
            self._awaited -= 1
            self._kept.append(place)
            return True
        return False

    def _let_go(self, busy: asyncio.Future[Any]) -> None:
        _ = busy.cancelled() or busy.exception()  # nobody waits for it
        if self._kept:
            self._kept.pop().let_go()
        else:
            self._awaited -= 1


class _Place(LimitedSlot):
    """One of them."""

    def __init__(self, places: anyio.CapacityLimiter, workers: _Workers) -> None:
        super().__init__(places)
        self._workers = workers

    def release(self) -> None:
        """Let the next call have it, as soon as its worker is free."""
        if self._is_held and not self._workers.keeps(self):
            self.let_go()
        self._is_held = False

    def let_go(self) -> None:
        """Let the next call have it."""
        self._places.release_on_behalf_of(self)


class Pool:
    """Any executor: threads, processes, loky, ``client.get_executor()`` of Dask.

    One that is made here, by a function that was given, is made anew after it broke, and closed. Only as many calls are
    handed over as it says that it has workers, so that others have not begun; one that does not say it has them all.
    """

    def __init__(self, given: Given) -> None:
        self._make = None if isinstance(given, Executor) else given
        self._executor = given if isinstance(given, Executor) else None
        self._places: _Workers | None = None

    @property
    def shares_memory(self) -> bool:
        """Whether code runs in this process."""
        return isinstance(self._present(), ThreadPoolExecutor)

    def _present(self) -> Executor:
        if self._executor is None:
            assert self._make is not None  # noqa: S101 - one of the two was given
            self._executor = self._make()
        return self._executor

    def slot(self, *, repeatable: bool, limited: bool) -> LimitedSlot | None:  # noqa: ARG002 - the same for all
        """Return what a call must hold while it is under way: a worker of the executor."""
        workers = getattr(self._present(), "_max_workers", None)
        if not isinstance(workers, int) or workers < 1:
            return None
        if self._places is None:
            self._places = _Workers(workers)
        self._places.resize(workers)
        return self._places.slot()

    async def run(self, task: Task) -> Any:
        """Return the result. A call that is given up is taken back if it has not begun, and not waited for if it has.

        Raises
        ------
        OutcomeUnknownError
            The executor broke while the task was with it, as when one of its processes died. A call that may be made
            twice is made once more first, if there is another executor for it.
        StepError
            It takes no calls; nothing was called.
        """
        try:
            return await self._made(task)
        except BrokenExecutor as error:
            broke, told = error, f"{task.label} may or may not have taken effect: {_said(error)} while it was under way"
        if not task.repeatable:
            raise OutcomeUnknownError(told) from broke
        try:
            return await self._made(task)
        except StepError as error:
            raise OutcomeUnknownError(f"{told}. {error}") from broke
        except BrokenExecutor as error:
            raise OutcomeUnknownError(f"{told}; it was made twice") from error

    async def _made(self, task: Task) -> Any:
        submitted = self._submit(task)
        made = asyncio.wrap_future(submitted)
        # A thread cannot be ended in the middle of a call, as in `Threads`.
        given = task._replace(repeatable=False, is_given_up=submitted.cancel) if self.shares_memory else task
        is_cut = False

        def cut() -> None:
            nonlocal is_cut
            is_cut = made.cancel()

        try:
            outcome = await carried_out(given, made, cut)
        except asyncio.CancelledError:
            if is_cut and not submitted.done() and self._places is not None:
                self._places.keep_until(asyncio.wrap_future(submitted))
            if is_cut or not submitted.cancelled():
                raise
            raise StepError(
                f"{task.label} was not called: {type(self._executor).__name__} was shut down while it waited there "
                "(shutdown(cancel_futures=True)); resume it with another executor"
            ) from None
        return outcome if self.shares_memory else unship(outcome)

    def _submit(self, task: Task) -> Future[Any]:
        if self.shares_memory:
            within = contextvars.copy_context()  # what libraries trace there, and its workspace, are those of the call
            return self._handed_over(task, within.run, task.function, *task.args, **task.kwargs)
        return self._handed_over(task, make_shipped, ship(task.label, task.function, task.args, task.kwargs))

    def _handed_over(self, task: Task, *args: Any, **kwargs: Any) -> Future[Any]:
        try:
            return self._present().submit(*args, **kwargs)
        except RuntimeError as error:  # BrokenExecutor among them
            if self._make is None:
                raise StepError(
                    f"{task.label} was not called: {type(self._executor).__name__} takes no calls: {error}. Give the "
                    "environment a function that makes one, which is called again then, or take "
                    f'executor="{PROCESS}", whose processes are replaced where one dies'
                ) from error
        self.close()
        return self._present().submit(*args, **kwargs)

    def close(self) -> None:
        """Close the executor if it was made here."""
        if self._make is not None and self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class Executors:
    """Where the functions of an environment run.

    Parameters
    ----------
    default
        For functions and steps that do not say.
    named
        What they may name besides ``thread`` and ``process``.
    """

    def __init__(self, default: object = None, named: Mapping[str, object] | None = None) -> None:
        self._processes: Processes | None = None
        self._pools: dict[int, Pool] = {}
        """By what was given: an executor has its workers once."""
        self._clusters: dict[object, DaskCluster] = {}
        """By client or address."""
        self._named: dict[str, Compute] = {}
        for name, executor in (named or {}).items():
            self.add(name, executor)
        self.default: Compute = THREADS if default is None else self.find(default)

    @property
    def names(self) -> tuple[str, ...]:
        """What a function or step may name."""
        return (THREAD, PROCESS, *self._named)

    def add(self, name: str, executor: object, *, replace: bool = False) -> None:
        """Let functions and steps name an executor; the same one again is nothing new."""
        found = self.find(executor)
        if name in self.names and self._named.get(name) is not found and not replace:
            raise AlreadyRegisteredError("executor", name)
        self._named[name] = found

    def find(self, asked: object) -> Compute:
        """Return an executor by its name, or as something that runs tasks.

        Raises
        ------
        NotFoundError
            There is none of that name.
        SetupError
            It is no executor.
        """
        if is_client(asked) or is_cluster(asked) or is_address(asked):
            return self._cluster(asked)
        if isinstance(asked, str):
            return self.named(asked)
        if isinstance(asked, Compute):
            return asked
        if isinstance(asked, Executor) or callable(asked):
            return self._pools.setdefault(id(asked), Pool(cast("Given", asked)))
        raise SetupError(
            f"an executor is a name ({', '.join(self.names)}), a concurrent.futures.Executor or a function that makes "
            f"one, or a Dask client, cluster or address, not {asked!r}"
        )

    def _cluster(self, asked: Any) -> DaskCluster:
        if asked not in self._clusters:
            self._clusters[asked] = DaskCluster(asked)
        return self._clusters[asked]

    def named(self, name: str) -> Compute:
        """Return what a function or step names; an address only if it was added, so that no definition sends code away.

        Raises
        ------
        NotFoundError
            There is none of that name.
        SetupError
            It looks like an address, and is none of Dask.
        """
        if name == THREAD:
            return THREADS
        if name == PROCESS:
            if self._processes is None:
                self._processes = Processes()
            return self._processes
        if name not in self._named:
            if _PLACE.fullmatch(name):
                raise SetupError(f"{name!r} is no executor: the address of a scheduler of Dask is tcp://HOST:PORT")
            raise NotFoundError("executor", name, self.names)
        return self._named[name]

    def take_in(self, other: Executors) -> None:
        """Have what another one has, by name and by default."""
        self._named |= other._named
        if other.default is not THREADS:
            self.default = other.default

    def close(self) -> None:
        """End the processes and executors that were made here; those that were given belong to who made them."""
        if self._processes is not None:
            self._processes.close()
        for pool in self._pools.values():
            pool.close()
        for cluster in self._clusters.values():
            cluster.close()
