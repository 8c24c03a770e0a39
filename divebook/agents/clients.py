"""Shared clients of model providers, and adaptive limits of concurrent requests.

There is one client per provider and process, shared by all agents and closed with the last environment. Creating a
client loads the provider's library and certificates (20 ms and more), and each client has its own connections. A client
per request would be slow and use up file descriptors (``tests/agents/test_clients.py``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakSet

import anyio
import anyio.to_thread

from divebook.agents.models import DEFAULT_MODELS
from divebook.documents.policy import Policy, resolved
from divebook.errors import SetupError, nearest
from divebook.text.redaction import shared as redactor

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.providers import Provider


_Key: TypeAlias = tuple[int, int, str, str | None]
"""Process id, hash of the environ, name of the model or provider, and the key that the agent refers to."""


class ModelClients:
    """Models by name, each using the shared client of its provider. Bound to one event loop.

    A client is created with the keys and addresses in the process's environ at that time. After a change of the
    environ, for example when a missing key is set, the next request gets a new client.
    """

    def __init__(self) -> None:
        self._models: dict[_Key, Model] = {}
        self._providers: dict[_Key, Provider[Any]] = {}
        self._entered: set[int] = set()
        self._open = AsyncExitStack()
        self._users: WeakSet[object] = WeakSet()
        self._making = anyio.Lock()
        self._environ: tuple[Mapping[Any, Any], int] = ({}, 0)
        """Last seen environ and its hash."""

    def join(self, user: object) -> None:
        """Register a user, such as an environment. Clients stay open while there is one."""
        self._users.add(user)

    async def leave(self, user: object) -> None:
        """Unregister a user, and close the clients after the last one. Call this on the loop that created them."""
        self._users.discard(user)
        if not self._users:
            await self.close()

    async def model(self, name: str, api_key: str | None = None, policy: Policy | None = None) -> Model:
        """Return the model called ``provider:model``.

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
        secret = None if api_key is None else resolved(api_key, policy or Policy.given().of_code())
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
        async with self._making:
            if key not in self._models:
                # Loading a provider's library takes up to a second. A thread keeps the event loop free for other paths.
                self._models[key] = await anyio.to_thread.run_sync(self._make, key)
                await self._enter_new()

    def _make(self, key: _Key) -> Model:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
        from pydantic_ai.providers import infer_provider, infer_provider_class

        pid, environ, name, secret = key

        def shared(provider: str) -> Provider[Any]:
            place = pid, environ, provider, secret
            provider_client = self._providers.get(place)
            if provider_client is None:
                created = (
                    infer_provider(provider) if secret is None else _with_key(infer_provider_class(provider), secret)
                )
                provider_client = self._providers[place] = _known_to_redactor(created)
            return provider_client

        try:
            return infer_model(name, shared)
        except (UserError, ImportError, ValueError, SetupError) as error:
            close = nearest(name.partition(":")[0], DEFAULT_MODELS) if isinstance(error, ValueError) else None
            advice = f"; did you mean {close}?" if close else ""
            raise SetupError(f"model {name!r} cannot be used: {error}{advice}") from error

    async def _enter_new(self) -> None:
        """Register new providers for closing. pydantic-ai would leave them open."""
        for provider in self._providers.values():
            if id(provider) not in self._entered:
                self._entered.add(id(provider))
                await self._open.enter_async_context(provider)

    async def close(self) -> None:
        """Close all clients. The next request creates new ones."""
        opened = self._open
        self._open = AsyncExitStack()
        self._models = {}
        self._providers = {}
        self._entered = set()
        await opened.aclose()


def _known_to_redactor(provider: Provider[Any]) -> Provider[Any]:
    """Register the provider's key with the redactor, because the provider's errors may repeat it."""
    key = getattr(provider.client, "api_key", None)
    if isinstance(key, str):
        redactor().know(key)
    return provider


def _with_key(provider: Callable[..., Provider[Any]], secret: str) -> Provider[Any]:
    try:
        return provider(api_key=secret)
    except TypeError as error:
        raise SetupError(f"it takes no ApiKey: leave that out, and set what its library reads ({error})") from error


CLIENTS = ModelClients()
"""Clients of this process, on the engine's loop."""
