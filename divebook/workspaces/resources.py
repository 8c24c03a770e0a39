"""Resources of a workspace, such as browsers or connections to databases, registered by key. A workspace also has files
and a shell, which are not resources.

A resource has ``close()``. It may also have ``setup()``, ``export_state()`` and ``restore_state(state)``,
``get_context_instructions()`` and ``get_toolsets()``. All of them may be coroutine functions.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from divebook.text.protocols import require_protocol
from divebook.text.redaction import logger

T = TypeVar("T")
_log = logger(__name__)
SavedResources: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Exported states of resources: ``{"entries": {key: {"state": {...}}}}``, plain data without secrets."""
_FORM = '{"entries": {key: {"state": {...}}}}'


@runtime_checkable
class Resource(Protocol):
    """Interface of a resource of a workspace: any object that can be closed."""

    def close(self) -> Any:
        """Release the resource. May be a coroutine function."""


ResourceFactory: TypeAlias = Callable[[Any], Awaitable[Any]]
"""Coroutine function that creates a resource for the workspace it gets."""
_FACTORY_KEY: ContextVar[str | None] = ContextVar("resource_being_made", default=None)
"""Key of the resource whose factory is running in this context."""


async def _call(resource: Any, method: str, *arguments: Any) -> Any:
    """Call an optional method of a resource and return its result. Return None if the resource has no such method."""
    function = getattr(resource, method, None)
    if function is None:
        return None
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result


class ResourceRegistry:
    """The resources of a workspace by key. A resource that has a factory function is created when it is first
    requested.
    """

    def __init__(self) -> None:
        self._workspace: Any = None
        self._resources: dict[str, Any] = {}
        self._factories: dict[str, ResourceFactory] = {}
        self._saved: dict[str, Mapping[str, Any]] = {}
        # Running creations by key, which concurrent requests of the same key share.
        self._creating: dict[str, asyncio.Task[Any]] = {}
        # {key of a resource whose factory is running: keys of the resources that this factory waits for}
        self._awaited: dict[str, list[str]] = {}
        # References to the tasks that close replaced resources: asyncio itself keeps only weak ones.
        self._closing: set[asyncio.Task[None]] = set()

    def bind(self, workspace: Any) -> None:
        """Set the workspace that factory functions of resources get as their argument. It is None while the workspace
        is not entered.
        """
        self._workspace = workspace

    def set(self, key: str, resource: Any) -> None:
        """Register a resource under a key. An earlier resource with this key is closed.

        Raises
        ------
        TypeError
            The resource has no ``close()``.
        """
        if not isinstance(resource, Resource):
            raise TypeError(f"resource {key!r} has no close(), because {type(resource).__name__} is not a resource")
        # Removed and added again, so that the new resource is the last one and is closed first.
        old = self._resources.pop(key, None)
        self._resources[key] = resource
        if old is not None and old is not resource:
            self._close_later(key, old)

    def _close_later(self, key: str, resource: Any) -> None:
        """Close a resource that was replaced. If its method ``close`` is a coroutine function, it runs in an asyncio
        task. Errors are logged.
        """
        try:
            result = resource.close()
        except Exception as error:  # noqa: BLE001 - whatever it raises, the new one is there
            _log.warning("resource %s, which was replaced, could not be closed: %s", key, error)
            return
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(_log_close_error(key, result))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def get(self, key: str) -> Any:
        """Return the resource that is registered under a key. Return None if there is none; a factory is not called."""
        return self._resources.get(key)

    def get_typed(self, key: str, kind: type[T]) -> T | None:
        """Return the resource that is registered under a key if it is an instance of `kind`. Return None otherwise."""
        resource = self._resources.get(key)
        return resource if isinstance(resource, kind) else None

    def remove(self, key: str) -> Any:
        """Remove the resource with a key without closing it, and return it. Return None if there is none."""
        return self._resources.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return key in self._resources

    def __len__(self) -> int:
        return len(self._resources)

    def keys(self) -> list[str]:
        """Return the keys of all resources, in order of registration."""
        return list(self._resources)

    def register_factory(self, key: str, factory: ResourceFactory) -> None:
        """Register the function that creates the resource with a key when the resource is first requested."""
        require_protocol(factory, ResourceFactory, "factory", page="workspaces")
        self._factories[key] = factory

    async def get_or_create(self, key: str) -> Any:
        """Return the resource with a key. If it does not exist yet, create it by its factory, set it up and restore its
        saved state.

        Raises
        ------
        KeyError
            The key has no factory.
        RuntimeError
            No workspace is present, or the factory waits for itself, directly or through other factories.
        """
        if key in self._resources:
            return self._resources[key]
        if key not in self._factories:
            raise KeyError(f"no factory for resource {key!r}; call register_factory({key!r}, ...) first")
        if self._workspace is None:
            raise RuntimeError("the resource registry is not bound to a workspace; enter a workspace first")
        # One task for all concurrent requests of a key; it is shielded, because another request may still wait for it.
        with self._waiting_for(key):
            task = self._creating.get(key)
            if task is None:
                task = self._creating[key] = asyncio.ensure_future(self._create(key))
                task.add_done_callback(lambda _: self._creating.pop(key, None))
            return await asyncio.shield(task)

    @contextmanager
    def _waiting_for(self, key: str) -> Iterator[None]:
        """Note that the running factory function waits for the resource `key` during the ``with`` block. From these
        notes, factories that wait for each other are detected.

        Raise RuntimeError if the factory would wait for itself.

        Example: the factory of ``a`` requests ``b``, and that of ``b`` requests ``a``. Without the check both would
        wait for ever.
        """
        requester = _FACTORY_KEY.get()
        # The request does not come from a factory, or comes from a task that has outlived the factory that started it.
        if requester is None or requester not in self._creating:
            yield
            return
        cycle = self._chain(key, requester)
        if cycle is not None:
            keys = " -> ".join(repr(each) for each in (requester, *cycle))
            raise RuntimeError(
                f"the factories of resources wait for each other ({keys}); remove one of these dependencies"
            )
        self._awaited.setdefault(requester, []).append(key)
        try:
            yield
        finally:
            self._awaited[requester].remove(key)

    def _chain(self, key: str, end: str) -> list[str] | None:
        """Return a chain of resource keys from `key` to `end`, in which the factory of each key waits for the next key.
        Return None if no such chain exists.
        """
        if key == end:
            return [key]
        paths = (self._chain(each, end) for each in self._awaited.get(key, ()))
        return next(([key, *path] for path in paths if path is not None), None)

    async def get_or_create_typed(self, key: str, kind: type[T]) -> T:
        """Return the resource with a key, created if necessary, like `get_or_create`. Raise TypeError if it is not an
        instance of `kind`.
        """
        resource = await self.get_or_create(key)
        if not isinstance(resource, kind):
            raise TypeError(f"resource {key!r} is a {type(resource).__name__}, not a {kind.__name__}")
        return resource

    async def _create(self, key: str) -> Any:
        # Not reset: this coroutine is a task with its own context.
        _FACTORY_KEY.set(key)
        resource = await self._factories[key](self._workspace)
        try:
            await _call(resource, "setup")
            if key in self._saved:
                await _call(resource, "restore_state", self._saved[key].get("state", {}))
            self.set(key, resource)
        except BaseException:  # it may be partly set up
            await self._close(key, resource)
            raise
        # Dropped only after the restore, so that a failed creation can be repeated with the saved state.
        self._saved.pop(key, None)
        return resource

    # --- state -----------------------------------------------------------------------------------------------------

    def pend(self, saved: SavedResources | None) -> None:
        """Store the states `saved`, which `export_state` returned earlier. Each state is restored when its resource is
        created. If `saved` is None, do nothing.

        Raises
        ------
        TypeError
            `saved` is not a result of `export_state`.
        """
        if saved is None:
            return
        value: Any = saved  # may come from a file of the user, so its type is not certain
        entries = value.get("entries", {}) if isinstance(value, Mapping) else value
        states = entries.values() if isinstance(entries, Mapping) else [entries]
        for state in states:
            if not isinstance(state, Mapping):
                raise TypeError(
                    f"a saved state of resources must have the form {_FORM}, not {state!r}; pass the result of "
                    "export_state()"
                )
        self._saved.update(entries)

    async def export_state(self) -> dict[str, Any]:
        """Return the states of all resources that can export one. The saved states of resources that were not created
        yet are included.
        """
        entries = {key: dict(state) for key, state in self._saved.items()}
        for key, resource in self._resources.items():
            if hasattr(resource, "export_state") and hasattr(resource, "restore_state"):
                entries[key] = {"state": await _call(resource, "export_state")}
        return {"entries": entries}

    async def restore_all(self) -> int:
        """Create all resources that have a saved state, and return their number. Raise KeyError if a saved state has a
        key without a factory function.
        """
        # A copy, since `_create` removes each state that it has restored.
        keys = list(self._saved)
        for key in keys:
            await self.get_or_create(key)
        return len(keys)

    async def restore_one(self, key: str) -> bool:
        """Create the resource with a key if the key has a saved state. Return True in this case, False if it
        has none.
        """
        if key not in self._saved:
            return False
        await self.get_or_create(key)
        return True

    # --- closing ---------------------------------------------------------------------------------------------------

    async def close_all(self, *, parallel: bool = False) -> list[Exception]:
        """Close all resources, in reverse order of registration. Errors are logged and returned.

        Factories are kept, so that a workspace that is entered again can create the resources again.
        """
        # Removed before they are closed, so that nothing gets a resource that is being closed.
        resources = list(self._resources.items())[::-1]
        self._resources.clear()
        if parallel:
            errors: Iterable[Exception | None] = await asyncio.gather(*(self._close(*each) for each in resources))
        else:
            errors = [await self._close(*each) for each in resources]
        # Resources that were replaced earlier, and whose `close` is still running.
        await asyncio.gather(*self._closing)
        return [error for error in errors if error is not None]

    async def _close(self, key: str, resource: Any) -> Exception | None:
        try:
            await _call(resource, "close")
        except Exception as error:  # noqa: BLE001 - the other resources must be closed whatever this one raises
            _log.warning("resource %s could not be closed: %s", key, error)
            return error
        return None

    # --- for agents ------------------------------------------------------------------------------------------------

    def get_toolsets(self) -> list[Any]:
        """Return the toolsets for agents that the resources offer. Resources need not offer any."""
        toolsets: list[Any] = []
        for resource in self._resources.values():
            get_toolsets = getattr(resource, "get_toolsets", None)
            if get_toolsets is not None:
                toolsets += get_toolsets()
        return toolsets

    async def instructions(self) -> dict[str, str]:
        """Return the descriptions that resources give to agents, by key. A resource that raises an error or has no
        description is left out; errors are logged.
        """
        texts: dict[str, str] = {}
        for key, resource in self._resources.items():
            try:
                text = await _call(resource, "get_context_instructions")
            except Exception as error:  # noqa: BLE001 - an agent works without
                _log.warning("the description of resource %s is not available: %s", key, error)
            else:
                texts |= {key: str(text)} if text else {}
        return texts


async def _log_close_error(key: str, closing: Awaitable[Any]) -> None:
    try:
        await closing
    except Exception as error:  # noqa: BLE001 - whatever it raises, the new one is there
        _log.warning("resource %s, which was replaced, could not be closed: %s", key, error)
