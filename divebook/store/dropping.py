"""Stores that nobody holds any more: their connections are closed at once, not when the garbage collector comes by."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Closing(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """Close it."""
        ...


def close_when_dropped(owner: object, connection: Closing) -> None:
    """Close a connection when what holds it is dropped; not at the end of the process, where a thread may use it."""
    weakref.finalize(owner, connection.close).atexit = False


def weakly(method: Callable[P, T]) -> Callable[P, T]:
    """Return a method that does not hold its object: without a circle, its files are closed as soon as nobody does."""
    held = weakref.WeakMethod(method)

    def call(*args: P.args, **named: P.kwargs) -> T:
        present = held()
        if present is None:
            raise ReferenceError("a store is asked that nobody holds any more")
        return present(*args, **named)

    return call
