"""Executors that run functions on Dask clusters and in `concurrent.futures` pools, and the table of all executors of an
environment.

A Dask client has a thread and event loop of its own, on which all requests to the cluster run. `DaskCluster`, which the
engine uses, and this loop meet in `_Connection.make`. The result of a call is pickled in the Dask worker, and errors of
the function are returned as values. Any exception of Dask itself therefore concerns the cluster, and leaves the outcome
of the call unknown.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib.util
import re
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from concurrent.futures import Future as FuturesFuture
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, cast

from divebook.errors import AlreadyRegisteredError, NotFoundError, OutcomeUnknownError, SetupError, StepError
from divebook.libraries import install_command
from divebook.runtime.compute.process_calls import make_pickled_call, pickle_call, unpickle_result
from divebook.runtime.compute.processes import Processes
from divebook.runtime.compute.threads import THREADS, Compute, LimitedSlot, SlotPool, Task, await_task, in_thread
from divebook.text.arguments import describe, require_string
from divebook.text.format import plural
from divebook.text.protocols import protocol_problems, require_protocol
from divebook.text.redaction import logger

if TYPE_CHECKING:
    from distributed import Client, Future
    from distributed.deploy import Cluster


class DaskCluster:
    """Dask cluster on which functions run: ``executors={"gpu": DaskCluster(client, resources={"GPU": 1})}``.

    Workers and scheduler need divebook and the modules that the functions import. A repeatable call continues if the
    process that sent it dies, and the process that resumes the execution finds its result. Any other call is started at
    most once.

    Parameters
    ----------
    cluster
        A `distributed.Client`; or the address of a scheduler, or a cluster object (``LocalCluster``), to which the
        first call connects.
    resources
        Resources that a call needs on its worker, as in ``dask worker --resources "GPU=2"``.
    priority
        Priority of the calls in the cluster. Waiting calls with a higher priority run first.
    keep
        True to publish repeatable calls longer than half a second in the cluster, so that they are found again after
        the death of this process.

    Raises
    ------
    SetupError
        The library is not installed, or the cluster is neither an address nor a synchronous client.
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
        """Check the arguments, without connecting. The first call opens the connection."""
        if importlib.util.find_spec("distributed") is None:
            raise SetupError(
                f"running functions on Dask needs the package distributed: {install_command('distributed')}"
            )
        if not is_client(cluster) and not is_cluster(cluster) and not _ADDRESS.fullmatch(str(cluster)):
            raise SetupError(
                f"a Dask cluster must be a distributed.Client, a cluster object or an address such as "
                f"tcp://HOST:PORT, not {cluster!r}"
            )
        if not isinstance(cluster, str) and cluster.asynchronous:
            kind = type(cluster).__name__
            raise SetupError(
                f"this {kind} is asynchronous and runs on the event loop of its caller: pass a synchronous {kind}, "
                "or the address of the scheduler"
            )
        self._cluster_or_address = cluster
        self._keep = keep
        self._options = {"resources": dict(resources or {}), "priority": priority}
        self._connection: _Connection | None = None
        self._lock = threading.Lock()
        # First sizes. `_fit` replaces them as soon as the number of threads of the cluster is known.
        self._shared_slots = SlotPool(WINDOW)
        self._exclusive_slots = SlotPool(1)

    @property
    def dashboard(self) -> str | None:
        """Address of the cluster's dashboard, once connected. Views of runs link to it."""
        return None if self._connection is None else self._connection.dashboard

    def slot(self, *, repeatable: bool, limited: bool) -> LimitedSlot:
        """Return the slot that a call must hold while it runs. Repeatable calls are limited by `WINDOW` and
        `WINDOW_OF_THREAD`, other calls by the number of threads in the cluster.

        A call with a time limit counts like a non-repeatable call: it starts only if a thread is free.
        """
        return (self._shared_slots if repeatable and not limited else self._exclusive_slots).slot()

    async def run(self, task: Task) -> Any:
        """Run a task in the cluster and return its result. If the call is cancelled before it has started, it is
        withdrawn. A call that is already running continues to its end.

        Raises
        ------
        OutcomeUnknownError
            The worker, the result or the scheduler of the call was lost. If the call is repeatable, this error is
            raised only after the call could not be found again and was repeated once.
        StepError
            The cluster is unreachable, or no worker has the required resources; nothing was called.
        UnpicklableError
            The function or an argument cannot be pickled. Nothing was called.
        """
        # Pickled first: an error here is certain to have called nothing.
        call = pickle_call(task.label, task.function, task.args, task.kwargs)
        try:
            return unpickle_result(await self._run(task, call))
        except _LostError as lost:
            if not task.repeatable:
                raise OutcomeUnknownError(str(lost)) from lost
            message = str(lost)
        try:
            return unpickle_result(await self._run(task, call))
        # The second attempt may have called nothing (`StepError`), but the first one may have taken effect.
        except (_LostError, StepError) as again:
            raise OutcomeUnknownError(f"{message}. {again}") from again

    async def _run(self, task: Task, call: bytes) -> bytes:
        # Connecting blocks, for up to `CONNECT_SECONDS`.
        connection = await in_thread(lambda: self._connected(task.label))
        self._fit(connection.threads)
        if connection.dashboard is not None:
            DASHBOARDS.add_address(task.key.partition("/")[0], connection.dashboard)
        call_future = asyncio.run_coroutine_threadsafe(connection.make(task, call, self._options), connection.loop)
        future = asyncio.wrap_future(call_future)
        outcome: bytes = await await_task(task, future, future.cancel)
        return outcome

    def close(self) -> None:
        """Remove results that this object has published from the cluster. Close the connection if this object has
        opened it.
        """
        with self._lock:
            connection = self._connection
            self._connection = None
        if connection is not None:
            if connection.dashboard is not None:
                DASHBOARDS.forget(connection.dashboard)
            connection.close()
            if not is_client(self._cluster_or_address):
                connection.client.close()

    def _connected(self, label: str) -> _Connection:
        with self._lock:
            if self._connection is None or self._connection.is_lost:
                self._connection = _Connection(self._client(label), keep=self._keep)
                client = self._connection.client
                dashboard = self._connection.dashboard
                _log.info("calls go to the Dask cluster %s, with the dashboard %s", client, dashboard)
            return self._connection

    def _client(self, label: str) -> Client:
        from distributed import Client

        if is_client(self._cluster_or_address):
            if self._cluster_or_address.status in {"closed", "closing"}:
                raise StepError(
                    f"{label} was not called: its Dask client is closed; create another environment with a new client"
                )
            return self._cluster_or_address
        try:
            return Client(self._cluster_or_address, timeout=CONNECT_SECONDS, set_as_default=False, name="divebook")
        except OSError as error:
            raise StepError(
                f"{label} was not called: no Dask scheduler answers at {self._cluster_or_address}: {error}. Start one "
                "(dask scheduler), or check the address"
            ) from None  # a TimeoutError as cause would mean that the call may have started

    def _fit(self, threads: int) -> None:
        self._shared_slots.resize(WINDOW + WINDOW_OF_THREAD * threads)
        self._exclusive_slots.resize(max(1, threads))


# --- dashboards ------------------------------------------------------------------------------------------------------
#
# Dashboards of the clusters to which this process sends calls of executions. They are not recorded in a log.


MOST = 1_000
"""Maximum number of executions with known dashboards: those that sent calls last."""


class Dashboards:
    """Addresses of the dashboards of Dask clusters, by id of the executions that sent calls there. Callable from any
    thread.

    Examples
    --------
    >>> dashboards = Dashboards()
    >>> dashboards.add_address("exec_1", "http://localhost:8787/status")
    >>> dashboards.of("exec_1"), dashboards.of("exec_2")
    (['http://localhost:8787/status'], [])
    """

    def __init__(self) -> None:
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def add_address(self, execution_id: str, address: str) -> None:
        """Remember that calls of an execution were sent to the cluster that has this dashboard."""
        with self._lock:
            addresses = self._addresses.pop(execution_id, ())  # moves the execution to the end
            self._addresses[execution_id] = addresses if address in addresses else (*addresses, address)
            if len(self._addresses) > MOST:
                del self._addresses[next(iter(self._addresses))]

    def forget(self, address: str) -> None:
        """Forget the dashboard of a cluster that gets no more calls."""
        with self._lock:
            for execution_id, addresses in [*self._addresses.items()]:
                remaining = tuple(other for other in addresses if other != address)
                if remaining != addresses:
                    self._addresses[execution_id] = remaining

    def of(self, execution_id: str) -> list[str]:
        """Return the dashboards of the clusters to which calls of an execution were sent."""
        with self._lock:
            return [*self._addresses.get(execution_id, ())]


DASHBOARDS = Dashboards()


# --- code that runs in the cluster -----------------------------------------------------------------------------------
#
# Workers make pickled calls, and the scheduler decides which task may start one.
#
# Dask starts a task again if it has lost its worker or its result. A call that is not repeatable therefore claims its
# key from the scheduler first, which grants each key once (`tests/runtime/test_dask.py`).


CLAIM = "divebook_claim"
MOST_TAKEN = 10_000
"""Number of granted keys after which keys without tasks are removed."""


def begin(call: bytes, key: str | None = None) -> bytes | None:
    """Make a pickled call in a Dask worker, and return its pickled outcome. A call with a key must run only once: the
    worker first claims the key from the scheduler. If another task has claimed it before, return None.
    """
    return make_pickled_call(call) if key is None or _is_claimed(key) else None


def _is_claimed(key: str) -> bool:
    """Claim a key from the scheduler for the task that runs in this thread. Return whether the scheduler grants the
    key, which it does only once.
    """
    from distributed import get_worker

    worker = get_worker()

    async def claim() -> bool:
        answer: bool = await getattr(worker.scheduler, CLAIM)(key=key)
        return answer

    # The task runs in a thread of the worker, and the connection to the scheduler belongs to the loop of the worker.
    return asyncio.run_coroutine_threadsafe(claim(), worker.loop.asyncio_loop).result()


def install(dask_scheduler: Any) -> None:
    """Install the handler that grants keys (`Claims`) in a Dask scheduler, if it has none."""
    dask_scheduler.handlers.setdefault(CLAIM, Claims(dask_scheduler).claim)


class Claims:
    """Handler in a Dask scheduler that grants each key to the first task that claims it. A call that must not be
    repeated therefore starts only once.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._granted_keys = set[str]()

    def claim(self, key: str) -> bool:
        """Return whether the task with this key may start. It may not if the key was granted before, or if the
        scheduler has no such task any more.
        """
        # A task that was cancelled is not among the tasks of the scheduler, so it can never start.
        if key in self._granted_keys or key not in self._scheduler.tasks:
            return False
        # A key is needed as long as its task exists, since Dask may start the task again until then.
        if len(self._granted_keys) >= MOST_TAKEN:
            self._granted_keys.intersection_update(self._scheduler.tasks)
        self._granted_keys.add(key)
        return True


WINDOW = 64
"""Maximum number of repeatable calls in the cluster at a time, in addition to `WINDOW_OF_THREAD` for each thread."""
WINDOW_OF_THREAD = 16
CONNECT_SECONDS = 10
LONG = 0.5
"""Seconds after which a call is published in the scheduler, which costs two messages, so that it can be found again."""
KEPT_SECONDS = 2.0
"""Seconds for which a returned result stays in the cluster, until it is certainly in the log."""
PUBLISHED = "divebook/"
MOST_LOOKED = 10_000
"""Maximum number of executions remembered in `_Connection._checked_executions`."""
LARGE = 1_000_000
"""Bytes of a call above which Dask may warn about its size."""
# A threshold that no call reaches.
MUCH = 2**60
SOONER = 0.5
"""Additional priority of calls that must run as soon as they have started."""
_ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx)://(\[[^\]\s]+\]|[^:/\s]+):\d+(/\S*)?|inproc://\S+")

_log = logger(__name__)


class _LostError(Exception):
    """Error: the cluster has lost a call or its result, so that the outcome of the call is unknown."""


class _Connection:
    """Connection to a Dask cluster. Its methods run on the event loop of the Dask client, unless they state
    otherwise.
    """

    def __init__(self, client: Client, *, keep: bool) -> None:
        self.client = client
        self._keep = keep
        self.dashboard: str | None = client.dashboard_link
        self.loop: asyncio.AbstractEventLoop = client.loop.asyncio_loop
        self.threads: int = sum(client.nthreads().values())
        self._scheduler: str | None = None
        """Id of the scheduler that has the claim handler."""
        self._setup_lock = asyncio.Lock()
        self._abandoned_names: set[str] = set()
        """Names under which another process has left calls or results in the cluster."""
        self._checked_executions: set[str] = set()
        """Ids of executions for which the cluster was searched for such calls. Calls that another process leaves later
        belong to other executions, or are resumed here.
        """
        self._ended_names: list[str] = []
        """Names of ended calls that are still published in the scheduler."""

    @property
    def is_lost(self) -> bool:
        """True if the connection is closed. Callable from any thread."""
        return self.client.status in {"closed", "closing"}

    def close(self) -> None:
        """Remove the published results of ended calls from the scheduler. Call from a thread other than the loop's."""
        if not self.is_lost:
            with suppress(OSError, TimeoutError):
                asyncio.run_coroutine_threadsafe(self._unpublish(), self.loop).result(CONNECT_SECONDS)

    async def make(self, task: Task, call: bytes, options: Mapping[str, Any]) -> bytes:
        """Make a pickled call in the cluster and return its pickled outcome; see `DaskCluster.run`."""
        try:
            await self._install_claims()
            if self._keep and task.repeatable:
                await self._find_abandoned(task.key.partition("/")[0])
            if options["resources"]:
                await self._require(task.label, options["resources"])
        except (ImportError, OSError) as error:
            message = f"{task.label} was not called: the cluster at {self.client.scheduler.address} refused it"
            way_on = "its scheduler and workers must be reachable and have the same version of divebook as this process"
            raise StepError(f"{message}: {type(error).__name__}: {error}; {way_on}") from None  # no cause, as above
        outcome = await self._run(task, call, options)
        if outcome is None:
            raise _LostError(f"{task.label} may or may not have taken effect: its Dask worker or its result was lost")
        return outcome

    async def _run(self, task: Task, call: bytes, options: Mapping[str, Any]) -> bytes | None:
        name = PUBLISHED + task.key if self._keep and task.repeatable else None
        # `name` is None for calls that are not published: nothing is found for them.
        future = await self._published(name)
        is_named = future is not None
        outcome: bytes | None = None
        if future is None:
            future = self._submit(task, call, options)
        try:
            # Short calls are not published. If this process dies during one, the call is simply repeated.
            if name is not None and not is_named and not await _ends_soon(future):
                is_named = True
                await self.client.publish_dataset(future, name=name, override=True)
            outcome = await future
        except asyncio.CancelledError:  # cancelled by the caller
            # `force` also cancels a call that another client waits for.
            await future.cancel(force=True)
            raise
        except Exception as error:  # any error of the cluster; those of the function are results
            cause = f"{type(error).__name__}: {error}"
            raise _LostError(f"{task.label} may or may not have taken effect: {cause}") from error
        finally:
            if name is not None and (is_named or outcome is not None):  # another process may have published it
                self._end(name)
        return outcome

    async def _published(self, name: str | None) -> Future | None:
        """Return the future of a call that another process has left in the cluster under this name, so that the call
        need not be made again. Return None if there is none.
        """
        if name not in self._abandoned_names:
            return None
        self._abandoned_names.discard(name)
        return await self.client.get_dataset(name, default=None)

    def _submit(self, task: Task, call: bytes, options: Mapping[str, Any]) -> Future:
        import dask

        label = re.sub(r"\W+", "_", task.label)  # the dashboard shows the part before the hyphen
        key = f"{label}-{task.key}"
        if not task.repeatable:  # a new key for each attempt, because a granted key means that its task has started
            key = f"{key}/{uuid.uuid4().hex}"
        claim_key = None if task.repeatable else key
        extra_priority = SOONER if task.is_limited or not task.repeatable else 0
        submit_options = {
            **options,
            "priority": options["priority"] + extra_priority,
            "key": key,
            "pure": False,
            "retries": 0,
        }
        if len(call) < LARGE:
            return self.client.submit(begin, call, claim_key, **submit_options)
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": MUCH}):  # it must be sent anyway
            return self.client.submit(begin, call, claim_key, **submit_options)

    # --- before the first call ---------------------------------------------------------------------------------------

    async def _install_claims(self) -> None:
        """Install the handler that grants keys in the scheduler, once for each scheduler."""
        async with self._setup_lock:
            while self.client.status == "connecting":  # noqa: ASYNC110 - calls submitted too early are lost silently
                await asyncio.sleep(0.05)
            info = self.client.scheduler_info()  # cached by the client: sends no request on this loop
            self.threads = info["total_threads"]
            if info["id"] == self._scheduler:
                return
            await self.client.run_on_scheduler(install)
            # This is another scheduler: what was found in the earlier one no longer holds.
            self._checked_executions.clear()
            self._scheduler = info["id"]

    async def _find_abandoned(self, execution_id: str) -> None:
        """Find the calls of an execution that another process has started in the cluster and left there. Done once,
        before the first call of the execution from this process.
        """
        async with self._setup_lock:
            if execution_id in self._checked_executions:
                return
            if len(self._checked_executions) >= MOST_LOOKED:
                self._checked_executions.clear()
            self._checked_executions.add(execution_id)
            prefix = f"{PUBLISHED}{execution_id}/"
            self._abandoned_names |= {
                name for name in await self.client.list_datasets() if str(name).startswith(prefix)
            }

    async def _require(self, label: str, resources: Mapping[str, float]) -> None:
        """Raise `StepError` if no worker of the cluster has the resources that a call needs, because the call would
        wait for ever. Otherwise do nothing.

        A cluster without workers passes, because workers can join later.
        """
        identity = await self.client.scheduler.identity(n_workers=-1)
        resources_of_workers = [worker["resources"] for worker in identity["workers"].values()]
        fits = (
            all(offer.get(name, 0) >= amount for name, amount in resources.items()) for offer in resources_of_workers
        )
        if resources_of_workers and not any(fits):
            offers = sorted({_listed(offer) for offer in resources_of_workers})
            raise StepError(
                f"{label} was not called: it needs {_listed(resources)}, but no worker of the cluster at "
                f"{identity['address']} offers that ({plural(len(resources_of_workers), 'worker')}, available: "
                f"{'; '.join(offers)}): start one with "
                f'dask worker --resources "{_listed(resources)}"'
            )

    # --- after a call ------------------------------------------------------------------------------------------------

    def _end(self, name: str) -> None:
        """Remove the result of an ended call from the scheduler after `KEPT_SECONDS`, together with those of other
        calls. By then it is in the log.
        """
        self._ended_names.append(name)
        # The first name starts the timer, and the names that follow are removed with it in one request.
        if len(self._ended_names) == 1:
            self.loop.call_later(KEPT_SECONDS, lambda: asyncio.ensure_future(self._unpublish()))

    async def _unpublish(self) -> None:
        names = self._ended_names
        self._ended_names = []
        if names:
            with suppress(OSError):  # a closed cluster keeps nothing
                await self.client.unpublish_dataset(names)


async def _ends_soon(future: Future) -> bool:
    """Wait for the end of a call for at most `LONG` seconds. Return whether it has ended."""
    end: asyncio.Future[Any] = asyncio.ensure_future(future.exception())  # `exception()` raises nothing
    try:
        await asyncio.wait((end,), timeout=LONG)
        return end.done()
    finally:
        end.cancel()


def is_client(value: object) -> TypeGuard[Client]:
    """Return whether an object is a Dask client, without importing Dask."""
    return _is_of_dask(value, "Client")


def is_cluster(value: object) -> TypeGuard[Cluster]:
    """Return whether an object is a Dask cluster, without importing Dask."""
    return _is_of_dask(value, "Cluster")


def _is_of_dask(value: object, name: str) -> bool:
    return any(kind.__name__ == name and kind.__module__.startswith("distributed.") for kind in type(value).__mro__)


def is_address(value: object) -> bool:
    """Return whether an object is the address of a Dask scheduler, such as ``tcp://HOST:PORT``."""
    return isinstance(value, str) and value.partition("://")[0] in {"tcp", "tls", "ws", "wss", "ucx", "inproc"}


def _listed(resources: Mapping[str, float]) -> str:
    """Return the resources of a worker or call in the syntax of Dask's command line; ``none`` if there are none.

    >>> _listed({"GPU": 1.0, "MEM": 2.5}), _listed({})
    ('GPU=1,MEM=2.5', 'none')
    """
    return ",".join(f"{name}={amount:g}" for name, amount in sorted(resources.items())) or "none"


# --- executors of an environment -------------------------------------------------------------------------------------
#
# By name: ``thread``, ``process``, and any `concurrent.futures.Executor`.


THREAD = "thread"
PROCESS = "process"
_PLACE = re.compile(r"(https?://.*|[^\s/]+:\d+)")
"""Pattern of strings that look like an address."""


MakeExecutor: TypeAlias = Callable[[], Executor]
ExecutorSource = Executor | MakeExecutor
"""An executor, or a function that creates one when needed."""


class _WorkerSlots:
    """Slots (permits to run) for calls, one for each worker of an executor. If the caller gives up a running call, its
    slot stays occupied until the worker is free.
    """

    def __init__(self, size: int) -> None:
        self._pool = SlotPool(size)
        self._unfinished = 0
        """Number of slots to keep occupied among the slots released next. It does not matter which."""
        self._kept_slots: list[LimitedSlot] = []

    def slot(self) -> LimitedSlot:
        """Return a slot, which a call acquires in an `async with` block. Call on the event loop that waits for it."""
        return LimitedSlot(self._pool.limiter(), self._must_keep)

    def resize(self, size: int) -> None:
        """Change the number of slots. Call on the event loop of the slots."""
        self._pool.resize(size)

    def keep_until(self, busy: asyncio.Future[Any]) -> None:
        """Keep the slot of a call occupied after its caller has given it up, until the future `busy` is done at the end
        of the call.
        """
        self._unfinished += 1
        busy.add_done_callback(self._on_end)

    def _must_keep(self, slot: LimitedSlot) -> bool:
        """Return whether a released slot stays occupied for now. It does if its call was given up and the worker may
        still be busy with the call.
        """
        if self._unfinished:
            self._unfinished -= 1
            self._kept_slots.append(slot)
            return True
        return False

    def _on_end(self, busy: asyncio.Future[Any]) -> None:
        _ = busy.cancelled() or busy.exception()  # the outcome is not used
        # The call may end before its slot was released. Then no slot has to stay occupied for it any more.
        if self._kept_slots:
            self._kept_slots.pop().free()
        else:
            self._unfinished -= 1


class Pool:
    """Adapter that makes any `concurrent.futures.Executor` an executor of divebook: threads, processes, loky,
    ``client.get_executor()`` of Dask.

    An executor that a given function creates is created again after it broke, and is shut down by `close`. Only as many
    calls are submitted as the executor has workers, so that the others have not started. If the number of workers is
    unknown, all calls are submitted.
    """

    def __init__(self, executor: ExecutorSource) -> None:
        self._make = None if isinstance(executor, Executor) else executor
        self._executor = executor if isinstance(executor, Executor) else None
        self._slots: _WorkerSlots | None = None

    @property
    def shares_memory(self) -> bool:
        """True if the executor's calls run in this process."""
        return isinstance(self._present(), ThreadPoolExecutor)

    def _present(self) -> Executor:
        if self._executor is None:
            assert self._make is not None  # noqa: S101 - one of the two was given
            executor: object = self._make()
            if not isinstance(executor, Executor):
                raise SetupError(
                    f"a function that creates an executor must return an Executor, not {describe(executor)}"
                )
            self._executor = executor
        return self._executor

    def slot(self, *, repeatable: bool, limited: bool) -> LimitedSlot | None:  # noqa: ARG002 - the same for all calls
        """Return the slot that a call must hold while it runs, one for each worker of the executor. Return None, so
        that calls are not limited, if the number of workers is unknown.
        """
        workers = getattr(self._present(), "_max_workers", None)
        if not isinstance(workers, int) or workers < 1:
            return None
        if self._slots is None:
            self._slots = _WorkerSlots(workers)
        # An executor that replaced a broken one may have another number of workers.
        self._slots.resize(workers)
        return self._slots.slot()

    async def run(self, task: Task) -> Any:
        """Run a task in the executor and return its result.

        A call that is given up is withdrawn if not started, and not awaited otherwise.

        Raises
        ------
        OutcomeUnknownError
            The executor broke during the task, for example because one of its processes died. A repeatable call is
            repeated once before, if another executor can be created.
        StepError
            The executor accepts no calls; nothing was called.
        """
        try:
            return await self._run(task)
        except BrokenExecutor as error:
            cause = error
            message = f"{task.label} may or may not have taken effect: {_error_text(error)} while the call was running"
        if not task.repeatable:
            raise OutcomeUnknownError(message) from cause
        try:
            return await self._run(task)
        except StepError as error:
            raise OutcomeUnknownError(f"{message}. {error}") from cause
        except BrokenExecutor as error:
            raise OutcomeUnknownError(f"{message}; the call was attempted twice") from error

    async def _run(self, task: Task) -> Any:
        submitted = self._submit(task)
        future = asyncio.wrap_future(submitted)
        # A thread cannot be ended in the middle of a call, as in `Threads`.
        cancellable = task._replace(repeatable=False, is_given_up=submitted.cancel) if self.shares_memory else task
        is_cut = False

        def cut() -> None:
            nonlocal is_cut
            is_cut = future.cancel()

        try:
            outcome = await await_task(cancellable, future, cut)
        except asyncio.CancelledError:
            # The caller has left, but the worker is still busy, so the slot stays occupied.
            if is_cut and not submitted.done() and self._slots is not None:
                self._slots.keep_until(asyncio.wrap_future(submitted))
            # Neither cancelled by the caller nor running: the executor itself has dropped the call.
            if is_cut or not submitted.cancelled():
                raise
            raise StepError(
                f"{task.label} was not called: {type(self._executor).__name__} was shut down while the call waited in "
                "it (shutdown(cancel_futures=True)); resume with another executor"
            ) from None
        return outcome if self.shares_memory else unpickle_result(outcome)

    def _submit(self, task: Task) -> FuturesFuture[Any]:
        if self.shares_memory:
            context = contextvars.copy_context()  # keeps the tracing context and workspace of the call
            return self._submit_to(task, context.run, task.function, *task.args, **task.kwargs)
        return self._submit_to(task, make_pickled_call, pickle_call(task.label, task.function, task.args, task.kwargs))

    def _submit_to(self, task: Task, *args: Any, **kwargs: Any) -> FuturesFuture[Any]:
        try:
            return self._present().submit(*args, **kwargs)
        except RuntimeError as error:  # includes BrokenExecutor
            if self._make is None:
                raise StepError(
                    f"{task.label} was not called: {type(self._executor).__name__} accepts no more calls: {error}. "
                    "Pass the environment a function that returns a new executor, or use "
                    f'executor="{PROCESS}", which replaces processes that have ended'
                ) from error
        # The broken executor is replaced by a new one from the function of the user.
        self.close()
        return self._present().submit(*args, **kwargs)

    def close(self) -> None:
        """Shut down the executor if this object has created it."""
        if self._make is not None and self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class Executors:
    """Table of the executors of an environment, by name. Executors run the functions of actions and steps.

    Parameters
    ----------
    default
        Executor of functions and steps that name none.
    named
        Additional executors by name, besides ``thread`` and ``process``.
    """

    def __init__(self, default: object = None, executors: Mapping[str, object] | None = None) -> None:
        self._processes: Processes | None = None
        self._pools: dict[int, Pool] = {}
        """By id of the given object: each executor has one pool."""
        self._clusters: dict[object, DaskCluster] = {}
        """By client or address."""
        self._by_name: dict[str, Compute] = {}
        for name, executor in (executors or {}).items():
            self.add(name, executor)
        self.default: Compute = THREADS if default is None else self.find(default)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the executors that a function or step may use: ``thread``, ``process``, and those that were
        added.
        """
        return (THREAD, PROCESS, *self._by_name)

    def add(self, name: str, executor: object, *, replace: bool = False) -> None:
        """Register an executor under a name. Registering the same executor again has no effect."""
        require_string(name, "name")
        compute = self.find(executor)
        if name in self.names and self._by_name.get(name) is not compute and not replace:
            raise AlreadyRegisteredError("executor", name)
        self._by_name[name] = compute

    def find(self, executor: object) -> Compute:
        """Return the executor with a name. For an object (pool, Dask client, address), return the executor that wraps
        this object.

        Raises
        ------
        NotFoundError
            No executor has this name.
        SetupError
            The object is not an executor.
        """
        if is_client(executor) or is_cluster(executor) or is_address(executor):
            return self._cluster(executor)
        if isinstance(executor, str):
            return self.named(executor)
        if isinstance(executor, Compute):
            require_protocol(executor, Compute, "executor", page="executors")
            return executor
        if isinstance(executor, Executor) or (callable(executor) and not protocol_problems(executor, MakeExecutor)):
            # The pool references the executor, so its id is not used again meanwhile.
            return self._pools.setdefault(id(executor), Pool(cast("ExecutorSource", executor)))
        raise SetupError(
            f"an executor must be a name ({', '.join(self.names)}), a concurrent.futures.Executor, a function without "
            f"arguments that returns one, or a Dask client, cluster or address, not {executor!r}"
        )

    def _cluster(self, cluster: Any) -> DaskCluster:
        if cluster not in self._clusters:
            self._clusters[cluster] = DaskCluster(cluster)
        return self._clusters[cluster]

    def named(self, name: str) -> Compute:
        """Return the executor with this name. Unlike `find`, this accepts no addresses or objects that were not
        registered before, so that no definition can send code elsewhere.

        Raises
        ------
        NotFoundError
            No executor has this name.
        SetupError
            The name looks like an address, but not like one of Dask.
        """
        if name == THREAD:
            return THREADS
        if name == PROCESS:
            if self._processes is None:
                self._processes = Processes()
            return self._processes
        if name not in self._by_name:
            if _PLACE.fullmatch(name):
                raise SetupError(f"{name!r} is not an executor: the address of a Dask scheduler is tcp://HOST:PORT")
            raise NotFoundError("executor", name, self.names)
        return self._by_name[name]

    def merge_from(self, other: Executors) -> None:
        """Add the named executors of another environment to this table. Its default executor becomes the default here
        as well, unless it is the thread pool.
        """
        self._by_name |= other._by_name
        if other.default is not THREADS:
            self.default = other.default

    def close(self) -> None:
        """End the processes and pools that this object has created. Executors that a user passed in stay open."""
        if self._processes is not None:
            self._processes.close()
        for pool in self._pools.values():
            pool.close()
        for cluster in self._clusters.values():
            cluster.close()
