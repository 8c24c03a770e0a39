"""Functions on a Dask cluster.

A client of the cluster has a thread and loop of its own, on which all that is asked of the cluster is asked; it and
`DaskCluster` (what the engine sees) meet in `_Connection.make`. What a call comes to is made bytes in the worker, and
the function's own errors come back as values: whatever Dask itself raises tells of the cluster, and leaves the outcome
of the call unknown.
"""

from __future__ import annotations

import asyncio
import importlib.util
import re
import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeGuard

from divebook.errors import OutcomeUnknownError, SetupError, StepError
from divebook.execution.compute import LimitedSlot, Places, Task, carried_out
from divebook.execution.dashboards import DASHBOARDS
from divebook.execution.dask_workers import begin, install
from divebook.execution.shipping import ship, unship
from divebook.execution.threads import in_thread
from divebook.text.logs import logger

if TYPE_CHECKING:
    from distributed import Client, Future
    from distributed.deploy import Cluster

WINDOW, WINDOW_OF_THREAD = 64, 16
"""Calls that may be made twice and are with the cluster at a time: so many, and so many for each of its threads."""
CONNECT_SECONDS = 10
LONG = 0.5
"""Seconds after which a call is worth two messages to the scheduler, so that it is found again."""
KEPT_SECONDS = 2.0
"""How long a result stays with the cluster after it has come back: until it is surely in the log."""
PUBLISHED = "divebook/"
MOST_LOOKED = 10_000
"""Executions that are kept, of which it is known what was left of them."""
LARGE = 1_000_000
"""Bytes of a call from which on Dask might advise to send it in another way."""
MUCH = 2**60
SOONER = 0.5
"""How much higher the priority is of calls that are to run when they have begun."""
_ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx)://(\[[^\]\s]+\]|[^:/\s]+):\d+(/\S*)?|inproc://\S+")

_log = logger(__name__)


class DaskCluster:
    """A Dask cluster on which functions run: ``executors={"gpu": DaskCluster(client, resources={"GPU": 1})}``.

    Workers and scheduler need divebook and whatever the functions import. A call that may be made twice goes on where
    the process that asked for it has died, and who resumes the execution finds its result; any other is begun once.

    Parameters
    ----------
    cluster
        A `distributed.Client`; or the address of a scheduler, or what has started one (``LocalCluster``), to which a
        connection is made with the first call.
    resources
        What a call takes of its worker, as ``dask worker --resources "GPU=2"`` has it.
    priority
        Of its calls among those that wait; higher is sooner.
    keep
        Whether calls of more than half a second that may be made twice are known to the cluster by name, so that they
        are found again when this process has died.

    Raises
    ------
    SetupError
        The library is not installed, or the cluster is neither an address nor a client that is not asynchronous.
    """

    shares_memory = False

    def __init__(
        self,
        cluster: Client | Cluster | str,
        *,
        resources: Mapping[str, float] | None = None,
        priority: int = 0,
        keep: bool = True,
    ) -> None:
        if importlib.util.find_spec("distributed") is None:
            raise SetupError("functions run on Dask with the package distributed: pip install 'divebook[dask]'")
        if not is_client(cluster) and not is_cluster(cluster) and not _ADDRESS.fullmatch(str(cluster)):
            raise SetupError(
                f"a Dask cluster is a distributed.Client, a cluster or an address, tcp://HOST:PORT, not {cluster!r}"
            )
        if not isinstance(cluster, str) and cluster.asynchronous:
            kind = type(cluster).__name__
            raise SetupError(f"this {kind} is asynchronous, and shares its loop: give an ordinary one, or its address")
        self._given, self._keep = cluster, keep
        self._options = {"resources": dict(resources or {}), "priority": priority}
        self._connection: _Connection | None = None
        self._lock = threading.Lock()
        self._places, self._places_of_one = Places(WINDOW), Places(1)

    @property
    def dashboard(self) -> str | None:
        """The address of the cluster's dashboard, once it is connected to; views of runs have a link to it."""
        return None if self._connection is None else self._connection.dashboard

    def slot(self, *, repeatable: bool, limited: bool) -> LimitedSlot:
        """Return what a call must hold: one that is to run when it has begun begins if there is a thread for it."""
        return (self._places if repeatable and not limited else self._places_of_one).slot()

    async def run(self, task: Task) -> Any:
        """Return the result; a call that is cut off is taken back if it has not begun, and runs on if it has.

        Raises
        ------
        OutcomeUnknownError
            Its worker, its result or the scheduler was lost. A call that may be made twice is found again, or made once
            more, first.
        StepError
            The cluster cannot be reached, or no worker has what the call takes; nothing was called.
        UnpicklableError
            Its code or an argument cannot leave this process; nothing was called.
        """
        call = ship(task.label, task.function, task.args, task.kwargs)
        try:
            return unship(await self._made(task, call))
        except _LostError as lost:
            if not task.repeatable:
                raise OutcomeUnknownError(str(lost)) from lost
            told = str(lost)
        try:
            return unship(await self._made(task, call))
        except (_LostError, StepError) as again:
            raise OutcomeUnknownError(f"{told}. {again}") from again

    async def _made(self, task: Task, call: bytes) -> bytes:
        connection = await in_thread(lambda: self._connected(task.label))
        self._fit(connection.threads)
        if connection.dashboard is not None:
            DASHBOARDS.note(task.key.partition("/")[0], connection.dashboard)
        making = asyncio.run_coroutine_threadsafe(connection.make(task, call, self._options), connection.loop)
        made = asyncio.wrap_future(making)
        outcome: bytes = await carried_out(task, made, made.cancel)
        return outcome

    def close(self) -> None:
        """Have the cluster forget the results that it gave, and end a connection that was made here."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            if connection.dashboard is not None:
                DASHBOARDS.forget(connection.dashboard)
            connection.close()
            if not is_client(self._given):
                connection.client.close()

    def _connected(self, label: str) -> _Connection:
        with self._lock:
            if self._connection is None or self._connection.is_lost:
                self._connection = _Connection(self._client(label), keep=self._keep)
                client, dashboard = self._connection.client, self._connection.dashboard
                _log.info("calls go to the Dask cluster %s, with the dashboard %s", client, dashboard)
            return self._connection

    def _client(self, label: str) -> Client:
        from distributed import Client

        if is_client(self._given):
            if self._given.status in {"closed", "closing"}:
                raise StepError(
                    f"{label} was not called: its Client of Dask is closed; make another environment with a new one"
                )
            return self._given
        try:
            return Client(self._given, timeout=CONNECT_SECONDS, set_as_default=False, name="divebook")
        except OSError as error:
            raise StepError(
                f"{label} was not called: no scheduler of Dask answers at {self._given}: {error}. Start one (dask "
                "scheduler), or look whether the address is right"
            ) from None  # a time limit that an error comes from says that its call may have begun, and this has not

    def _fit(self, threads: int) -> None:
        self._places.resize(WINDOW + WINDOW_OF_THREAD * threads)
        self._places_of_one.resize(max(1, threads))


class _LostError(Exception):
    """The cluster has lost a call, or what it came to."""


class _Connection:
    """What is asked of a cluster; on the loop of its client, but for what says otherwise."""

    def __init__(self, client: Client, *, keep: bool) -> None:
        self.client, self._keep = client, keep
        self.dashboard: str | None = client.dashboard_link
        self.loop: asyncio.AbstractEventLoop = client.loop.asyncio_loop
        self.threads: int = sum(client.nthreads().values())
        self._scheduler: str | None = None
        """The id of the one that gives keys away."""
        self._meeting = asyncio.Lock()
        self._left: set[str] = set()
        """Under which names a process that is gone has left calls, or what they came to."""
        self._looked: set[str] = set()
        """The executions that it is known of; what another process leaves later is of another one, or taken up here."""
        self._over: list[str] = []
        """Names of calls that have come back."""

    @property
    def is_lost(self) -> bool:
        """Whether it is of no use any more; from any thread."""
        return self.client.status in {"closed", "closing"}

    def close(self) -> None:
        """Unpublish what has come back; from another thread."""
        if not self.is_lost:
            with suppress(OSError, TimeoutError):
                asyncio.run_coroutine_threadsafe(self._unpublish(), self.loop).result(CONNECT_SECONDS)

    async def make(self, task: Task, call: bytes, options: Mapping[str, Any]) -> bytes:
        """Return what a shipped call comes to; see `DaskCluster.run`."""
        try:
            await self._meet()
            if self._keep and task.repeatable:
                await self._look(task.key.partition("/")[0])
            if options["resources"]:
                await self._require(task.label, options["resources"])
        except (ImportError, OSError) as error:
            told = f"{task.label} was not called: the cluster at {self.client.scheduler.address} does not take it"
            way_on = "its scheduler and workers need divebook as it is here, and to be reached"
            raise StepError(f"{told}: {type(error).__name__}: {error}; {way_on}") from None  # as above
        outcome = await self._made(task, call, options)
        if outcome is None:
            raise _LostError(
                f"{task.label} may or may not have taken effect: it was begun by a worker of the cluster that was lost "
                "since, or its result was"
            )
        return outcome

    async def _made(self, task: Task, call: bytes, options: Mapping[str, Any]) -> bytes | None:
        name = PUBLISHED + task.key if self._keep and task.repeatable else None
        future = await self._found(name)
        is_named = future is not None
        outcome: bytes | None = None
        if future is None:
            future = self._submitted(task, call, options)
        try:
            if name is not None and not is_named and not await _ends_soon(future):
                is_named = True
                await self.client.publish_dataset(future, name=name, override=True)
            outcome = await future
        except asyncio.CancelledError:  # by who asked
            await future.cancel(force=True)
            raise
        except Exception as error:  # of the cluster, whatever it is: those of the function are results
            told = f"{type(error).__name__}: {error}"
            raise _LostError(f"{task.label} may or may not have taken effect: {told}") from error
        finally:
            if name is not None and (is_named or outcome is not None):  # which another process may have named
                self._end(name)
        return outcome

    async def _found(self, name: str | None) -> Future | None:
        """Return the call that a process left under a name, if it did."""
        if name not in self._left:
            return None
        self._left.discard(name)
        return await self.client.get_dataset(name, default=None)

    def _submitted(self, task: Task, call: bytes, options: Mapping[str, Any]) -> Future:
        import dask

        shown = re.sub(r"\W+", "_", task.label)  # by the dashboard: what stands before the hyphen
        key = f"{shown}-{task.key}"
        if not task.repeatable:  # a key of its own each time: one that was given away says what has begun
            key = f"{key}/{uuid.uuid4().hex}"
        claimed = None if task.repeatable else key
        sooner = SOONER if task.is_limited or not task.repeatable else 0
        given = {**options, "priority": options["priority"] + sooner, "key": key, "pure": False, "retries": 0}
        if len(call) < LARGE:
            return self.client.submit(begin, call, claimed, **given)
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": MUCH}):  # it must go in any case
            return self.client.submit(begin, call, claimed, **given)

    # --- before the first call -------------------------------------------------------------------------------------

    async def _meet(self) -> None:
        """Have the scheduler give keys away; once for each scheduler."""
        async with self._meeting:
            while self.client.status == "connecting":  # noqa: ASYNC110 - what is submitted meanwhile is lost silently
                await asyncio.sleep(0.05)
            about = self.client.scheduler_info()  # as it was kept last: nothing is asked on this loop
            self.threads = about["total_threads"]
            if about["id"] == self._scheduler:
                return
            await self.client.run_on_scheduler(install)
            self._looked.clear()
            self._scheduler = about["id"]

    async def _look(self, execution_id: str) -> None:
        """Learn what was left of an execution whose first call this is, here: another process may have had it."""
        async with self._meeting:
            if execution_id in self._looked:
                return
            if len(self._looked) >= MOST_LOOKED:
                self._looked.clear()
            self._looked.add(execution_id)
            begin = f"{PUBLISHED}{execution_id}/"
            self._left |= {name for name in await self.client.list_datasets() if str(name).startswith(begin)}

    async def _require(self, label: str, resources: Mapping[str, float]) -> None:
        """Raise StepError where no worker has what a call takes, since it would wait for ever."""
        about = await self.client.scheduler.identity(n_workers=-1)
        there = [worker["resources"] for worker in about["workers"].values()]
        fits = (all(has.get(name, 0) >= amount for name, amount in resources.items()) for has in there)
        if there and not any(fits):
            having = sorted({_listed(has) for has in there})
            raise StepError(
                f"{label} was not called: it takes {_listed(resources)}, and of {len(there)} workers of the cluster at "
                f"{about['address']} none has that (they have {'; '.join(having)}): start one with "
                f'dask worker --resources "{_listed(resources)}"'
            )

    # --- after a call ----------------------------------------------------------------------------------------------

    def _end(self, name: str) -> None:
        """Unpublish a call a little later, together with others: by then its result is in the log."""
        self._over.append(name)
        if len(self._over) == 1:
            self.loop.call_later(KEPT_SECONDS, lambda: asyncio.ensure_future(self._unpublish()))

    async def _unpublish(self) -> None:
        over, self._over = self._over, []
        if over:
            with suppress(OSError):  # a cluster that is gone keeps nothing
                await self.client.unpublish_dataset(over)


async def _ends_soon(future: Future) -> bool:
    """Return whether a call is over in a moment."""
    ended: asyncio.Future[Any] = asyncio.ensure_future(future.exception())  # which raises nothing
    try:
        await asyncio.wait((ended,), timeout=LONG)
        return ended.done()
    finally:
        ended.cancel()


def is_client(asked: object) -> TypeGuard[Client]:
    """Return whether something is a client of Dask, without importing Dask."""
    return _is_of_dask(asked, "Client")


def is_cluster(asked: object) -> TypeGuard[Cluster]:
    """Return whether something is what starts workers for Dask, without importing Dask."""
    return _is_of_dask(asked, "Cluster")


def _is_of_dask(asked: object, name: str) -> bool:
    return any(kind.__name__ == name and kind.__module__.startswith("distributed.") for kind in type(asked).__mro__)


def is_address(asked: object) -> bool:
    """Return whether a text is the address of a scheduler."""
    return isinstance(asked, str) and asked.partition("://")[0] in {"tcp", "tls", "ws", "wss", "ucx", "inproc"}


def _listed(resources: Mapping[str, float]) -> str:
    """Return resources as Dask writes them.

    >>> _listed({"GPU": 1.0, "MEM": 2.5}), _listed({})
    ('GPU=1,MEM=2.5', 'none')
    """
    return ",".join(f"{name}={amount:g}" for name, amount in sorted(resources.items())) or "none"
