"""Closing of connections as soon as nothing refers to their store, without waiting for the garbage collector."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Closable(Protocol):
    """Object with a method `close`."""

    def close(self) -> None:
        """Release all resources."""
        ...


def close_when_dropped(owner: object, connection: Closable) -> None:
    """Close a connection when its owner is dropped. At the end of the process it stays open: a thread may use it."""
    weakref.finalize(owner, connection.close).atexit = False


def weakly(method: Callable[P, T]) -> Callable[P, T]:
    """Return a function that calls a bound method without a reference to its object.

    A store passes its methods to its parts in this way. Without the reference cycle, Python drops the store, and closes
    its files, as soon as nothing else refers to it.
    """
    reference = weakref.WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        present = reference()
        if present is None:
            raise ReferenceError("a store is asked that nobody holds any more")
        return present(*args, **kwargs)

    return call
