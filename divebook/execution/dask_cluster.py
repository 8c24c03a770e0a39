"""Calls on the workers of a Dask cluster, which have divebook and what the calls need installed.

An `Executor` of Dask's would do, but has no keys, priorities or resources: under its key a call that is long is known
to the cluster by more than this process, so that who resumes the execution finds it there, under way or done.
"""

from __future__ import annotations

import asyncio
import functools
import math
import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import anyio

from divebook.errors import ExecutionError, OutcomeUnknownError, SetupError, StepError
from divebook.execution.compute import LimitedSlot, Task, carried_out
from divebook.execution.shipping import make_shipped, ship, unship
from divebook.text.logs import logger

Client: TypeAlias = Any
"""``distributed.Client``, which has hardly any types."""
Future: TypeAlias = Any
"""``distributed.Future``, of what `make_shipped` returns."""
AT_ONCE = 128
"""Calls that are with the cluster at once."""
LONG = 0.5
"""Seconds after which a call is worth two messages to the scheduler, so that it is found again."""
CONNECTING = 10.0
"""Seconds in which the scheduler must answer."""
PREFIX = "divebook/"
_log = logger(__name__)


class DaskCluster:
    """Runs calls on a cluster: ``executor=DaskCluster("tcp://scheduler:8786")``, or the client or address itself.

    Parameters
    ----------
    cluster
        A client, which who made it closes, or the address of a scheduler.
    resources
        What each call needs of its worker, as the cluster's workers declare it: ``{"GPU": 1}``.
    priority
        Of calls that wait, those with higher ones are begun first.
    keep
        Whether calls of more than half a second that may be made twice are known to the cluster by name, so that they
        are found again when this process has died.

    Raises
    ------
    SetupError
        distributed is not installed, or the cluster is neither a client nor an address.
    """

    shares_memory = False

    def __init__(
        self,
        cluster: Client | str,
        *,
        resources: Mapping[str, float] | None = None,
        priority: int = 0,
        keep: bool = True,
    ) -> None:
        if not isinstance(cluster, str) and not is_client(cluster):
            raise SetupError(f"a Dask cluster is a distributed.Client or an address, tcp://HOST:PORT, not {cluster!r}")
        _require_distributed()
        self._given, self.resources, self.priority, self.keep = cluster, dict(resources or {}), priority, keep
        self._client: Client | None = None
        self._known: set[str] = set()
        """Calls that another process left with the cluster."""
        self._lock = threading.Lock()
        self._places: tuple[asyncio.AbstractEventLoop, anyio.CapacityLimiter] | None = None
        self._looked = -math.inf

    @property
    def dashboard(self) -> str | None:
        """The address of the cluster's dashboard, once it is connected to."""
        return None if self._client is None else self._client.dashboard_link

    def slot(self) -> LimitedSlot:
        """Return what a call must hold while it is with the cluster."""
        loop = asyncio.get_running_loop()
        if self._places is None or self._places[0] is not loop:
            self._places = loop, anyio.CapacityLimiter(AT_ONCE)
        return LimitedSlot(self._places[1])

    async def run(self, task: Task) -> Any:
        """Return the result. Cancelled, it takes the call back; what a worker has begun runs to its end there.

        Raises
        ------
        OutcomeUnknownError
            Its worker died, or the cluster did, and the call may have begun.
        StepError
            The cluster is out of reach, or none of its workers has the resources; nothing was called.
        UnpicklableError
            Its code or an argument cannot leave this process; nothing was called.
        """
        errand = _DaskErrand(task)
        return await carried_out(task, functools.partial(self._make, errand), errand.cut)

    def _make(self, errand: _DaskErrand) -> Any:
        """Make a call, in a thread that waits for it."""
        task = errand.task
        shipped = ship(task.label, task.function, task.args, task.kwargs)
        client = self._connected(task)
        self._require_resources(client, task)
        name = f"{PREFIX}{task.key}"
        future = self._found(client, name) if task.repeatable and self.keep else None
        is_named = future is not None
        if future is None:
            future = self._submitted(client, task, shipped, name)
        errand.hold(future)
        try:
            if task.repeatable and self.keep and not is_named:
                is_named = self._named(client, future, name)
            outcome = future.result()
        except Exception as error:
            raise self._not_made(task, future, error) from error
        finally:
            errand.release()
            if is_named:
                with suppress(Exception):  # the cluster is gone, and the name with it
                    client.unpublish_dataset(name)
        if outcome is None:
            raise OutcomeUnknownError(
                f"{task.label} may or may not have taken effect: the worker that had begun it was lost"
            )
        return unship(outcome)

    def _not_made(self, task: Task, future: Future, error: Exception) -> ExecutionError | StepError:
        """Return the error for a call of which nothing came back."""
        from distributed import KilledWorker

        if future.status == "error" and not isinstance(error, KilledWorker):
            return StepError(
                f"{task.label} was not called: a Dask worker could not begin it: {type(error).__name__}: {error}. "
                "Install divebook, of this version, where the workers are"
            )
        told = f"{task.label} may or may not have taken effect: {type(error).__name__} while it was under way"
        return OutcomeUnknownError(f"{told} on the cluster: {error}")

    def _submitted(self, client: Client, task: Task, shipped: bytes, name: str) -> Future:
        from divebook.execution.dask_claims import make_once

        options: dict[str, Any] = {"priority": self.priority, "resources": self.resources or None}
        if task.repeatable:
            return client.submit(make_shipped, shipped, key=f"{name}-{secrets.token_hex(4)}", **options)
        key = f"{name}-{secrets.token_hex(8)}"  # whoever makes it again after a person's yes has another one
        return client.submit(make_once, shipped, key, key=key, **options)

    def _found(self, client: Client, name: str) -> Future | None:
        """Return what another process left under a name, if it did."""
        with self._lock:
            if name not in self._known:
                return None
            self._known.discard(name)
        found = client.get_dataset(name, default=None)
        return None if found is None or found.status in ("error", "lost", "cancelled") else found

    def _named(self, client: Client, future: Future, name: str) -> bool:
        """Wait for a call; have one that is long known by name, and say so."""
        from distributed import TimeoutError as StillRunningError

        try:
            future.result(timeout=LONG)
        except StillRunningError:
            client.publish_dataset(future, name=name, override=True)
            return True
        return False

    # --- the cluster -------------------------------------------------------------------------------------------------

    def _connected(self, task: Task) -> Client:
        with self._lock:
            if self._client is None:
                try:
                    self._client = self._opened()
                except OSError as error:  # TimeoutError among them
                    raise StepError(
                        f"{task.label} was not called: the Dask cluster {self._given} is out of reach: {error}. See "
                        "that its scheduler runs, and try again"
                    ) from error
            return self._client

    def _opened(self) -> Client:
        import distributed

        from divebook.execution.dask_claims import Claims

        given = self._given
        client: Client = given
        if isinstance(given, str):
            client = distributed.Client(given, set_as_default=False, timeout=CONNECTING)  # type: ignore[no-untyped-call]
        client.register_plugin(Claims())
        self._known = {name for name in client.list_datasets() if isinstance(name, str) and name.startswith(PREFIX)}
        _log.info("calls go to the Dask cluster %s; its dashboard: %s", client.scheduler.address, client.dashboard_link)
        return client

    def _require_resources(self, client: Client, task: Task) -> None:
        """Raise unless a worker has what calls need: one that nobody has would wait for ever, and say nothing."""
        if not self.resources or time.monotonic() - self._looked < 1:
            return
        workers = client.scheduler_info()["workers"].values()
        there = [dict(worker.get("resources") or {}) for worker in workers]
        if not any(all(has.get(name, 0) >= count for name, count in self.resources.items()) for has in there):
            wanted = ", ".join(f"{name}={count:g}" for name, count in self.resources.items())
            known = sorted({f"{name}={count:g}" for has in there for name, count in has.items()})
            raise StepError(
                f"{task.label} was not called: it needs {wanted} of a Dask worker, and none of the {len(there)} there "
                f"has that (there is {', '.join(known) or 'nothing of the kind'}). Start one with --resources "
                f"'{wanted}'"
            )
        self._looked = time.monotonic()

    def close(self) -> None:
        """Leave the cluster, if the client was made here; what is under way there goes on."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None and isinstance(self._given, str):
            client.close()


class _DaskErrand:
    """A call, and its future once it is with the cluster."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._future: Future | None = None
        self._is_cut = False
        self._lock = threading.Lock()

    def hold(self, future: Future) -> None:
        """Have a future cancelled when the call is given up, or at once if it was."""
        with self._lock:
            self._future = future
            if self._is_cut:
                future.cancel()

    def release(self) -> None:
        """Let the cluster forget the result."""
        with self._lock:
            future, self._future = self._future, None
        if future is not None:
            future.release()

    def cut(self) -> None:
        """Give it up."""
        with self._lock:
            self._is_cut = True
            if self._future is not None:
                self._future.cancel()


def is_client(asked: object) -> bool:
    """Return whether something is a client of Dask, without importing Dask."""
    return any(kind.__name__ == "Client" and kind.__module__.startswith("distributed.") for kind in type(asked).__mro__)


def is_address(asked: object) -> bool:
    """Return whether a text is the address of a scheduler."""
    return isinstance(asked, str) and asked.partition("://")[0] in ("tcp", "tls", "ws", "wss", "ucx", "inproc")


def _require_distributed() -> None:
    try:
        import distributed  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise SetupError("Dask clusters need the library distributed: pip install 'divebook[dask]'") from error
