"""From a location to its store: one shared store per file and process."""

from __future__ import annotations

import atexit
import os
import threading
from pathlib import Path

from divebook.errors import SetupError
from divebook.store.base import EventStore
from divebook.store.memory import MemoryStore
from divebook.store.sqlite import SqliteStore

VARIABLE = "DIVEBOOK_STORE"
DEFAULT = Path(".divebook", "executions.db")

_stores: dict[tuple[int, Path], SqliteStore] = {}
_lock = threading.Lock()


def open_store(location: str | Path | None = None) -> EventStore:
    """Return the store at a location.

    Parameters
    ----------
    location
        A path; ``memory:`` for a new store in memory; None for what the environment variable ``DIVEBOOK_STORE`` says,
        or else ``.divebook/executions.db`` in the current directory. A file that is open already is shared: closing it
        closes it for everybody in this process. Once the file was deleted or replaced, it is opened anew.
    """
    text = str(location or os.environ.get(VARIABLE) or DEFAULT)
    if text == MemoryStore.location:
        return MemoryStore()
    if "://" in text:
        raise SetupError(f"no store for {text!r}: give the path of a file, or {MemoryStore.location!r}")
    # The process is part of the key: SQLite connections do not survive a fork.
    path = Path(text).expanduser().resolve()
    key = (os.getpid(), path)
    with _lock:
        store = _stores.get(key)
        if store is None or store.closed or not store.in_place:
            store = _stores[key] = SqliteStore(path)
        return store


@atexit.register
def _close_all() -> None:
    for (process, _), store in _stores.items():
        if process == os.getpid():
            store.close()
