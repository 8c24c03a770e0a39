"""Shared clients of model providers, and request limiters, which adapt the number of concurrent requests to the
provider.

There is one client per provider and process, shared by all agents and closed with the last environment. Creating a
client loads the provider's library and certificates (20 ms and more), and each client has its own connections. A client
per request would be slow and use up file descriptors (``tests/agents/test_clients.py``).
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias
from weakref import WeakSet

import anyio
import anyio.to_thread

from divebook.agents.models import DEFAULT_MODELS, install_command, missing_variables
from divebook.documents.policy import Policy, resolved
from divebook.engine.retries import chain_of
from divebook.errors import SetupError, nearest
from divebook.text.redaction import shared as redactor

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.providers import Provider


_Key: TypeAlias = tuple[int, int, str, str | None]
"""Process id, hash of the environ, name of the model or provider, and the key that the agent refers to."""


class RequestLimiter:
    """Limit of the number of concurrent requests to one model. The limit rises with successful requests and is halved
    when the provider answers 429 (too many requests). Bound to one event loop.

    Parameters
    ----------
    model
        Displayed name.
    clock
        Monotonic clock in seconds.
    """

    def __init__(self, model: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.model = model
        self._clock = clock
        self.limit = FIRST
        self.under_way = 0
        self.round = 0
        self._successes = 0
        """Successful requests since the last change of the limit."""
        self._was_reached = False
        """True if the limit was reached since its last change."""
        # Time of the monotonic clock at which the pause that the provider asked for ends.
        self._opens_at = -math.inf
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._alarm: asyncio.TimerHandle | None = None

    def slot(self, *, reports: bool = True) -> Permit:
        """Return a permit, with which the caller can wait for its turn and then make one request.

        `reports` is False if the models of a fallback model report the outcome; otherwise the permit reports the
        outcome.
        """
        return Permit(self, reports=reports)

    @contextmanager
    def observed(self, *, is_counted: bool) -> Iterator[None]:
        """Report success or failure of the request inside the ``with`` block to this limiter, so that it can adapt its
        limit. Used for each model of a fallback model.

        `is_counted` is True if the caller already holds a permit of this limiter.
        """
        began = self.round
        if not is_counted:
            self._count()
        try:
            yield
        except Exception as error:
            self._note_failure(began, error)
            raise
        else:
            self._note_success()
        finally:
            # A counted request is given back by its own permit (`leave`).
            self.under_way -= not is_counted
            self.admit()

    @property
    def state(self) -> LimitState:
        """Current state of the limiter, for display. Callable from any thread."""
        pause = max(0.0, self._opens_at - self._clock())
        return LimitState(self.model, self.under_way, self.limit, len(self._waiting), pause)

    async def enter(self) -> int:
        """Wait until a request may start. Return how often the limit has been halved so far. The caller passes this
        number to `leave`, which then halves the limit only once for all requests that fail together.
        """
        # Waiting requests come first, even if a slot is free by now.
        if self._waiting or not self._has_room():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            # Queued first and admitted from the queue, so that requests start in the order of their arrival. `admit`
            # also sets the timer of a pause.
            self._waiting.append(waiter)
            self.admit()
            try:
                await waiter
            except asyncio.CancelledError:
                # The waiter may have been admitted in the same turn of the loop; its slot would otherwise be lost.
                self._give_back(waiter)
                raise
        else:
            self._count()
        return self.round

    def leave(self, began: int | None, error: BaseException | None) -> None:
        """Report that a request to the provider has ended, which frees its place among the concurrent requests.

        Parameters
        ----------
        began
            The number that `enter` returned. None for a fallback model, whose inner models have reported the outcome
            themselves.
        error
            Error of the request; None if it succeeded.
        """
        self.under_way -= 1
        if began is None:
            pass
        elif error is None:
            self._note_success()
        else:
            self._note_failure(began, error)
        self.admit()

    def admit(self) -> None:
        """Start waiting requests until the limit is reached. If the provider asked for a pause, call this method again
        at the end of the pause.
        """
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        while self._waiting and self._has_room():
            waiter = self._waiting.popleft()
            if not waiter.done():  # a cancelled waiter that has not run yet is skipped
                self._count()
                waiter.set_result(None)
        pause = self._opens_at - self._clock()
        if self._waiting and pause > 0:
            self._alarm = asyncio.get_running_loop().call_later(pause, self.admit)

    def _has_room(self) -> bool:
        return self.under_way < self.limit and self._clock() >= self._opens_at

    def _count(self) -> None:
        self.under_way += 1
        self._was_reached |= self.under_way >= self.limit

    def _give_back(self, waiter: asyncio.Future[None]) -> None:
        """Undo the effect of `enter` for a cancelled request: remove it from the queue, or stop counting it as running
        if it was started at the same moment.
        """
        if not waiter.cancelled():
            self.under_way -= 1
        elif waiter in self._waiting:
            self._waiting.remove(waiter)
        self.admit()

    def _note_success(self) -> None:
        self._successes += 1
        # A limit that was never reached says nothing about the provider, so it is not raised.
        if self._successes >= self.limit and self._was_reached:
            self._change(min(MOST, self.limit + 1))

    def _note_failure(self, began: int, error: BaseException) -> None:
        chain = chain_of(error)
        stated_delays = [getattr(link, "retry_after", None) for link in chain]
        delays = [delay for delay in stated_delays if isinstance(delay, int | float)]
        # A delay that the provider states holds for all requests of the model, whatever the status of the error.
        self._opens_at = max(self._opens_at, self._clock() + max(delays, default=0))
        if began == self.round and any(getattr(link, "status_code", None) == TOO_MANY for link in chain):
            self.round += 1  # requests of the old round get the same 429 and must not halve the limit again
            self._change(max(LEAST, self.limit // 2))

    def _change(self, limit: int) -> None:
        self.limit = limit
        self._successes = 0
        self._was_reached = False


class ModelClients:
    """Cache of pydantic-ai models by name. All models of a provider share one client. Bound to one event loop.

    A client is created with the keys and addresses in the process's environ at that time. After a change of the
    environ, for example when a missing key is set, the next request gets a new client.
    """

    def __init__(self) -> None:
        self._models: dict[_Key, Model] = {}
        self._providers: dict[_Key, Provider[Any]] = {}
        self._entered_ids: set[int] = set()
        self._open = AsyncExitStack()
        # Weak, so that an environment that was dropped without being closed does not keep the clients open.
        self._users: WeakSet[object] = WeakSet()
        self._creation_lock = anyio.Lock()
        self._environ: tuple[Mapping[Any, Any], int] = ({}, 0)
        """Last seen environ and its hash."""

    def join(self, user: object) -> None:
        """Register an object that uses the clients, such as an environment. The clients stay open while at least one
        user is registered.
        """
        self._users.add(user)

    async def leave(self, user: object) -> None:
        """Unregister an object that used the clients, and close the clients if it was the last one. Call this on the
        event loop that created the clients.
        """
        self._users.discard(user)
        if not self._users:
            await self.close()

    async def model(self, name: str, api_key: str | None = None, policy: Policy | None = None) -> Model:
        """Return the pydantic-ai model called ``provider:model``. The model, and the client of its provider, are
        created when they are first needed.

        Parameters
        ----------
        api_key
            Reference to the key, ``env://NAME`` or ``file://PATH``. By default the provider's library finds the key.
        policy
            Policy for readable files and environment variables. The default is the variable ``DIVEBOOK_ALLOW`` and all
            environment variables.

        Raises
        ------
        SetupError
            The provider is unknown, its library is not installed, or it has no key.
        """
        # Resolved anew for each request, so that a key that was replaced in its file or variable is used at once.
        secret = None if api_key is None else resolved(api_key, policy or Policy.given().of_code())
        # The key includes the environ, because libraries read keys from it at any time, and the pid, because
        # connections must not be shared with a forked process.
        key = (os.getpid(), self._environ_hash(), name, secret)
        if key not in self._models:
            await self._add(key)
        return self._models[key]

    def _environ_hash(self) -> int:
        # `_data` holds the encoded environ. Decoding all of it would take longer than the rest of the look-up.
        environ = getattr(os.environ, "_data", os.environ)
        if environ != self._environ[0]:
            self._environ = (dict(environ), hash(frozenset(environ.items())))
        return self._environ[1]

    async def _add(self, key: _Key) -> None:
        async with self._creation_lock:
            # Checked again under the lock: another path may have created the model while this one waited.
            if key not in self._models:
                # Loading a provider's library takes up to a second. A thread keeps the event loop free for other paths.
                self._models[key] = await anyio.to_thread.run_sync(self._make, key)
                await self._enter_new()

    def _make(self, key: _Key) -> Model:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
        from pydantic_ai.providers import infer_provider, infer_provider_class

        pid, environ, name, secret = key

        # Called by `infer_model` for the provider of the name, so that all its models get the same client.
        def shared_provider(provider: str) -> Provider[Any]:
            provider_key = pid, environ, provider, secret
            provider_client = self._providers.get(provider_key)
            if provider_client is None:
                created = (
                    infer_provider(provider) if secret is None else _with_key(infer_provider_class(provider), secret)
                )
                provider_client = self._providers[provider_key] = _with_hidden_key(created)
            return provider_client

        try:
            return infer_model(name, shared_provider)
        except (UserError, ImportError, ValueError, SetupError) as error:
            raise SetupError(f"model {name!r} cannot be used: {_why_unusable(name, error)}") from error

    async def _enter_new(self) -> None:
        """Register the clients of new providers to be closed by `close`, because pydantic-ai would leave them open."""
        for provider in self._providers.values():
            if id(provider) not in self._entered_ids:
                self._entered_ids.add(id(provider))
                await self._open.enter_async_context(provider)

    async def close(self) -> None:
        """Close all clients of model providers. A later request creates new clients."""
        # The caches are emptied before the wait, so that a request during it does not get a client that is being
        # closed.
        open_clients = self._open
        self._open = AsyncExitStack()
        self._models = {}
        self._providers = {}
        self._entered_ids = set()
        await open_clients.aclose()


def _with_hidden_key(provider: Provider[Any]) -> Provider[Any]:
    """Return the provider unchanged, after registering the key of its client as a secret. Errors of the provider then
    show the key redacted.
    """
    key = getattr(provider.client, "api_key", None)
    if isinstance(key, str):
        redactor().know(key)
    return provider


def _why_unusable(name: str, error: Exception) -> str:
    """Return why the client of a model cannot be created, and the next step. pydantic-ai's own texts name its classes,
    which users of divebook do not write.
    """
    provider = name.partition(":")[0]
    if isinstance(error, ImportError):
        return f"the library of {provider} is not installed. Run `{install_command(error)}`, then resume the run"
    if isinstance(error, ValueError):
        similar = nearest(provider, DEFAULT_MODELS)
        return f"{error}; did you mean {similar}?" if similar else str(error)
    variables = missing_variables(error)
    if not variables:
        return str(error)
    key = " or ".join(variables)
    return (
        f"{provider} needs an API key in the environment variable {key}. Set it before you start the program (`export "
        f"{variables[0]}=...`) or in Python (`os.environ[{variables[0]!r}] = ...`), then resume the run; completed "
        "steps do not run again"
    )


def _with_key(provider: Callable[..., Provider[Any]], secret: str) -> Provider[Any]:
    try:
        return provider(api_key=secret)
    except TypeError as error:
        raise SetupError(
            "its provider does not accept ApiKey; remove ApiKey, and set the environment variables that the library of "
            f"the provider reads ({error})"
        ) from error


CLIENTS = ModelClients()
"""Clients of this process, on the engine's loop."""


# --- request limits --------------------------------------------------------------------------------------------------
#
# Adaptive concurrency limits of model requests, one per model and key, for the whole process.
#
# A provider answers 429 to any execution once all of them together send too much, so all requests of one model and key
# share a limiter. It starts with `FIRST` concurrent requests, halves the limit after a 429, and raises it by one after
# each round without a 429. Example: at a limit of 20, a 429 lowers it to 10. Further 429s for requests of the same
# round change nothing. Ten successes later the limit is 11, if it was used up meanwhile. During a pause that the
# provider asks for (Retry-After) the limiter admits no request. A waiting request has not started: it is not in the
# log, and its time limit does not run.


FIRST = 20


LEAST = 1


MOST = 200


TOO_MANY = 429


class RequestLimiters:
    """Request limiters of this process, one for each combination of provider, address, key and model."""

    def __init__(self) -> None:
        self._limiters: dict[tuple[int, str, str, str, str], RequestLimiter] = {}

    def slot(self, model: Model) -> Permit | None:
        """Return the permit that a request to a model needs, which limits the number of concurrent requests. Return
        None for a model without a provider, such as a scripted model: its requests are not limited.

        A fallback model is limited by its first model, which every request asks first. Each of its models reports its
        own outcomes (`divebook.agents.requests`).
        """
        from pydantic_ai.models.fallback import FallbackModel  # lazy: not needed to read a log

        limiter = self._of(model)
        return None if limiter is None else limiter.slot(reports=not isinstance(model, FallbackModel))

    def observed(self, model: Model, *, is_counted: bool) -> AbstractContextManager[None]:
        """Return a context manager that reports success or failure of a request to one model of a fallback model to the
        limiter of that model; see `RequestLimiter.observed`. For a model without a limiter, it does nothing.
        """
        limiter = self._of(model)
        return nullcontext() if limiter is None else limiter.observed(is_counted=is_counted)

    def _of(self, model: Model) -> RequestLimiter | None:
        from pydantic_ai.models.fallback import FallbackModel
        from pydantic_ai.models.wrapper import WrapperModel

        # The first model of a fallback is asked first, and wrappers have no provider of their own.
        while isinstance(model, FallbackModel | WrapperModel):
            model = model.models[0] if isinstance(model, FallbackModel) else model.wrapped
        provider = model.provider
        if provider is None:
            return None
        key = getattr(provider.client, "api_key", None)
        # A digest, because the key itself should not be kept in more places than the client.
        digest = hashlib.sha256(str(key).encode()).hexdigest()
        limiter_key = os.getpid(), provider.name, provider.base_url, digest, model.model_name
        limiter = self._limiters.get(limiter_key)
        return limiter or self._limiters.setdefault(limiter_key, RequestLimiter(model.model_id))

    def states(self) -> list[LimitState]:
        """Return the states of the limiters that have running or waiting requests, or a pause. Idle limiters are left
        out. Callable from any thread.
        """
        # Copied, because the engine's loop may add a limiter while another thread reads the states.
        states = [limiter.state for limiter in list(self._limiters.values())]
        return [state for state in states if state.under_way or state.waiting or state.pause]


class LimitState(NamedTuple):
    """State of a request limiter, for display: its model, limit, running and waiting requests, and pause."""

    model: str
    under_way: int
    limit: int
    waiting: int
    """Number of requests that wait for admission."""
    pause: float
    """Remaining seconds of a pause in which no request is admitted; 0 for no pause."""

    def __str__(self) -> str:
        paused = f", paused for {math.ceil(self.pause)} s at the provider's request" if self.pause else ""
        waiting = f", {self.waiting} waiting" if self.waiting else ""
        return f"{self.model}: {self.under_way} of at most {self.limit} concurrent requests{waiting}{paused}"


class Permit:
    """Permission to make one request to a model. It is held from before the request is recorded until the request has
    ended.
    """

    def __init__(self, limiter: RequestLimiter, *, reports: bool = True) -> None:
        self._limiter = limiter
        self._reports = reports
        self._began: int | None = None

    async def __aenter__(self) -> Self:
        self._began = await self._limiter.enter()
        return self

    async def __aexit__(self, *raised: object) -> None:
        error = raised[1]
        self._leave(error if isinstance(error, BaseException) else None, reports=self._reports)

    def release(self) -> None:
        """Release the permit without a request, so that the next request can start. The limiter learns nothing from it.
        A second release has no effect.
        """
        self._leave(None, reports=False)

    def _leave(self, error: BaseException | None, *, reports: bool) -> None:
        if self._began is not None:
            # Reset first, so that a second release has no effect.
            began = self._began
            self._began = None
            self._limiter.leave(began if reports else None, error)


REQUEST_LIMITERS = RequestLimiters()
