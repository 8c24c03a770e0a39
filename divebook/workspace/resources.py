"""What a workspace holds beside files and a shell, by key: browsers, connections, whatever can be closed.

A resource has ``close()``. It may have ``setup()``, ``export_state()`` and ``restore_state(state)``,
``get_context_instructions()`` and ``get_toolsets()``; all of them may be coroutine functions.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from divebook.text.redaction import logger

T = TypeVar("T")
_log = logger(__name__)
SavedResources: TypeAlias = Mapping[str, Mapping[str, Any]]
"""``{"entries": {key: {"state": {...}}}}``, plain data without secrets."""
_FORM = '{"entries": {key: {"state": {...}}}}'


@runtime_checkable
class Resource(Protocol):
    """Anything that can be closed."""

    def close(self) -> Any:
        """Let go of it; may be a coroutine function."""


ResourceFactory: TypeAlias = Callable[[Any], Awaitable[Any]]
"""Makes a resource for a workspace."""
_MADE_FOR: ContextVar[str | None] = ContextVar("resource_being_made", default=None)
"""The key whose factory asks, as far as one does."""


async def _done(resource: Any, method: str, *arguments: Any) -> Any:
    """Return what a method of a resource gives, if it has one."""
    found = getattr(resource, method, None)
    if found is None:
        return None
    result = found(*arguments)
    return await result if inspect.isawaitable(result) else result


class ResourceRegistry:
    """Resources by key, in the order in which they came."""

    def __init__(self) -> None:
        self._workspace: Any = None
        self._resources: dict[str, Any] = {}
        self._factories: dict[str, ResourceFactory] = {}
        self._saved: dict[str, Mapping[str, Any]] = {}
        self._making: dict[str, asyncio.Task[Any]] = {}
        self._awaited: dict[str, list[str]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def bind(self, workspace: Any) -> None:
        """Let factories make resources for a workspace."""
        self._workspace = workspace

    def set(self, key: str, resource: Any) -> None:
        """Register a resource; one that had the key is closed.

        Raises
        ------
        TypeError
            It cannot be closed.
        """
        if not isinstance(resource, Resource):
            raise TypeError(f"resource {key!r} has no close(): {type(resource).__name__} is none")
        old = self._resources.pop(key, None)
        self._resources[key] = resource
        if old is not None and old is not resource:
            self._close_later(key, old)

    def _close_later(self, key: str, resource: Any) -> None:
        """Close what was replaced: at once if that waits for nothing."""
        try:
            closed = resource.close()
        except Exception as error:  # noqa: BLE001 - whatever it raises, the new one is there
            _log.warning("resource %s, which was replaced, could not be closed: %s", key, error)
            return
        if inspect.isawaitable(closed):
            task = asyncio.ensure_future(_awaited(key, closed))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def get(self, key: str) -> Any:
        """Return a resource; None if there is none."""
        return self._resources.get(key)

    def get_typed(self, key: str, kind: type[T]) -> T | None:
        """Return a resource if it is of a kind; else None."""
        found = self._resources.get(key)
        return found if isinstance(found, kind) else None

    def remove(self, key: str) -> Any:
        """Take a resource out without closing it; return it, or None."""
        return self._resources.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return key in self._resources

    def __len__(self) -> int:
        return len(self._resources)

    def keys(self) -> list[str]:
        """Return the keys, in order."""
        return list(self._resources)

    def register_factory(self, key: str, factory: ResourceFactory) -> None:
        """Say how the resource of a key is made, when somebody asks for it."""
        self._factories[key] = factory

    async def get_or_create(self, key: str) -> Any:
        """Return a resource, made and set up if it is not there yet, with the state that was saved of it.

        Raises
        ------
        KeyError
            Nothing says how it is made.
        RuntimeError
            There is no workspace to make it for, or its factory waits for itself, also by way of others.
        """
        if key in self._resources:
            return self._resources[key]
        if key not in self._factories:
            raise KeyError(f"no factory for resource {key!r}: register_factory({key!r}, ...)")
        if self._workspace is None:
            raise RuntimeError("the registry is not bound to a workspace: enter one first")
        with self._awaiting(key):
            making = self._making.get(key)
            if making is None:
                making = self._making[key] = asyncio.ensure_future(self._make(key))
                making.add_done_callback(lambda _: self._making.pop(key, None))
            return await asyncio.shield(making)

    @contextmanager
    def _awaiting(self, key: str) -> Iterator[None]:
        """Take note that the factory that asks waits for a key; one that would wait for itself is refused."""
        asking = _MADE_FOR.get()
        if asking is None or asking not in self._making:
            yield
            return
        circle = self._way(key, asking)
        if circle is not None:
            told = " -> ".join(repr(each) for each in (asking, *circle))
            raise RuntimeError(f"the factories of resources wait for each other ({told}): have one of them not ask")
        self._awaited.setdefault(asking, []).append(key)
        try:
            yield
        finally:
            self._awaited[asking].remove(key)

    def _way(self, key: str, end: str) -> list[str] | None:
        """Return the keys by which one that is made waits for another, both with it; None if it does not."""
        if key == end:
            return [key]
        ways = (self._way(each, end) for each in self._awaited.get(key, ()))
        return next(([key, *way] for way in ways if way is not None), None)

    async def get_or_create_typed(self, key: str, kind: type[T]) -> T:
        """Return a resource of a kind, made if it is not there; TypeError if it is of another."""
        found = await self.get_or_create(key)
        if not isinstance(found, kind):
            raise TypeError(f"resource {key!r} is a {type(found).__name__}, not a {kind.__name__}")
        return found

    async def _make(self, key: str) -> Any:
        _MADE_FOR.set(key)
        resource = await self._factories[key](self._workspace)
        try:
            await _done(resource, "setup")
            if key in self._saved:
                await _done(resource, "restore_state", self._saved[key].get("state", {}))
            self.set(key, resource)
        except BaseException:  # half of it may be there
            await self._close(key, resource)
            raise
        self._saved.pop(key, None)
        return resource

    # --- state -----------------------------------------------------------------------------------------------------

    def pend(self, saved: SavedResources | None) -> None:
        """Keep saved states until their resources are made; None leaves things as they are.

        Raises
        ------
        TypeError
            It is not what `export_state` gives.
        """
        if saved is None:
            return
        given: Any = saved  # people hand in what they find in their files
        entries = given.get("entries", {}) if isinstance(given, Mapping) else given
        states = entries.values() if isinstance(entries, Mapping) else [entries]
        for state in states:
            if not isinstance(state, Mapping):
                raise TypeError(
                    f"a saved state of resources is {_FORM}, not with {state!r}: give what export_state() returned"
                )
        self._saved.update(entries)

    async def export_state(self) -> dict[str, Any]:
        """Return the states of all that have one, and those that nobody has asked for yet."""
        entries = {key: dict(state) for key, state in self._saved.items()}
        for key, resource in self._resources.items():
            if hasattr(resource, "export_state") and hasattr(resource, "restore_state"):
                entries[key] = {"state": await _done(resource, "export_state")}
        return {"entries": entries}

    async def restore_all(self) -> int:
        """Make every resource of which a state was saved; return how many. KeyError for one without a factory."""
        keys = list(self._saved)
        for key in keys:
            await self.get_or_create(key)
        return len(keys)

    async def restore_one(self, key: str) -> bool:
        """Make the resource of a key of which a state was saved; return whether one was."""
        if key not in self._saved:
            return False
        await self.get_or_create(key)
        return True

    # --- closing ---------------------------------------------------------------------------------------------------

    async def close_all(self, *, parallel: bool = False) -> list[Exception]:
        """Close all resources, the last one first; return what went wrong, which is logged.

        Factories stay, so that a workspace that is entered again can make them anew.
        """
        resources = list(self._resources.items())[::-1]
        self._resources.clear()
        if parallel:
            found: Iterable[Exception | None] = await asyncio.gather(*(self._close(*each) for each in resources))
        else:
            found = [await self._close(*each) for each in resources]
        await asyncio.gather(*self._closing)
        return [error for error in found if error is not None]

    async def _close(self, key: str, resource: Any) -> Exception | None:
        try:
            await _done(resource, "close")
        except Exception as error:  # noqa: BLE001 - the others are to be closed whatever this one raises
            _log.warning("resource %s could not be closed: %s", key, error)
            return error
        return None

    # --- what agents get -------------------------------------------------------------------------------------------

    def get_toolsets(self) -> list[Any]:
        """Return the toolsets that resources offer."""
        found = (getattr(resource, "get_toolsets", None) for resource in self._resources.values())
        return [toolset for offer in found if offer is not None for toolset in offer()]

    async def instructions(self) -> dict[str, str]:
        """Return what resources have an agent told, by key; one that fails is left out."""
        told: dict[str, str] = {}
        for key, resource in self._resources.items():
            try:
                text = await _done(resource, "get_context_instructions")
            except Exception as error:  # noqa: BLE001 - an agent works without
                _log.warning("resource %s has nothing to say: %s", key, error)
            else:
                told |= {key: str(text)} if text else {}
        return told


async def _awaited(key: str, closed: Awaitable[Any]) -> None:
    try:
        await closed
    except Exception as error:  # noqa: BLE001 - whatever it raises, the new one is there
        _log.warning("resource %s, which was replaced, could not be closed: %s", key, error)
