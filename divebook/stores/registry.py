"""Opening of stores by location. Each process has one shared store object for each file or URL."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from divebook import plugins
from divebook.errors import AlreadyRegisteredError, MissingLibraryError, SetupError, StoreError
from divebook.libraries import install_command
from divebook.report.hints import PRIVATE
from divebook.stores.backend import SimpleStore
from divebook.stores.base import EventStore
from divebook.stores.codec import KEY_VARIABLE, FernetCodec
from divebook.stores.memory import MemoryStore, as_store
from divebook.stores.sqlite import SqliteStore
from divebook.text.arguments import require
from divebook.text.passwords import names_database, without_password
from divebook.text.protocols import require_protocol

VARIABLE = "DIVEBOOK_STORE"
DEFAULT = Path(".divebook", "executions.db")
SQLITE = "sqlite"

Factory: TypeAlias = Callable[[str], EventStore | SimpleStore]
"""Function that opens the store at a URL. The URL may contain a password; the store's `location` must not."""


def _postgres(url: str) -> EventStore:
    from divebook.stores.postgres import PostgresStore

    try:
        return PostgresStore(url)
    except MissingLibraryError:
        raise
    except ImportError as error:  # psycopg is there, but its library of the server's client is not
        raise SetupError(f"a store in Postgres needs psycopg ({error}): {install_command('psycopg')}") from error


_factories: dict[str, Factory] = {"postgresql": _postgres, "postgres": _postgres}
_stores: weakref.WeakValueDictionary[tuple[int, str], EventStore] = weakref.WeakValueDictionary()
"""Open stores by process id and location. A store without other references is closed
(test_what_nobody_holds_is_closed)."""
_left_open: set[int] = set()
"""Ids of the processes whose stores stay open at the end of the process: this process, and its parents
before a fork."""
_lock = threading.Lock()


def register_store(scheme: str, factory: Factory) -> None:
    """Register the function that opens stores for a URL scheme, such as ``postgresql`` in ``postgresql://host/db``.

    Raises
    ------
    AlreadyRegisteredError
        The scheme has a factory.
    """
    require_protocol(factory, Factory, "factory", page="stores")
    if scheme in (*_factories, SQLITE):
        raise AlreadyRegisteredError("store scheme", scheme)
    _factories[scheme] = factory


def open_store(location: str | Path | None = None) -> EventStore:
    """Return the store at a location. If the store is already open in this process, return the shared store object;
    otherwise open the store.

    If the environment variable ``DIVEBOOK_KEY`` has keys, the values in the store are encrypted (`FernetCodec`).

    Parameters
    ----------
    location
        A path, or ``sqlite:///path``; ``memory:`` for a new store in memory; ``postgresql://user@host/db`` for a store
        that machines share (`divebook.stores.postgres.PostgresStore`), or a URL of a scheme that was registered with
        `register_store` or that a plugin has (`divebook.plugins`). None selects the location in the environment
        variable ``DIVEBOOK_STORE``, or else ``.divebook/executions.db`` in the current directory. Closing a shared
        store closes it for all users in this process. If the file of an open store was deleted or replaced, the path is
        opened again.

    Raises
    ------
    SetupError
        No factory is registered for the scheme, or a key is invalid.
    """
    require(location, "the location of a store", "a path or a URL", fits=isinstance(location, str | Path))
    location_text = str(location or os.environ.get(VARIABLE) or DEFAULT)
    # Stores in memory are never shared: each call returns an empty one.
    if location_text == MemoryStore.location:
        return MemoryStore()
    path_in_text = path_of(location_text)
    if path_in_text is None:
        return _shared(location_text, _factory_of(location_text.partition("://")[0], location_text))
    try:
        path = _resolved(path_in_text)
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle, no such user, a NUL
        raise StoreError(
            f"{location_text!r} cannot be the path of a store: {error}; name a file, or {MemoryStore.location}"
        ) from error
    return _shared(str(path), SqliteStore)


def store_address(store: EventStore) -> str:
    """Return the location of an open store. For a store that only this process can open, such as one in memory, add a
    number that no other store of the process has.
    """
    return store.location if store.shared else f"{store.location}{PRIVATE}{id(store)}"


def location_of(location: str | None = None) -> str:
    """Return the `EventStore.location` that `open_store` would give to the store at a location, without opening it.

    The location of a store that cannot be opened is returned as it is.
    """
    location_text = str(location or os.environ.get(VARIABLE) or DEFAULT)
    if location_text == MemoryStore.location:
        return location_text
    try:
        path = path_of(location_text)
        return without_password(location_text) if path is None else str(_resolved(path))
    except (SetupError, OSError, RuntimeError, ValueError):
        return location_text


def path_of(location: str) -> Path | None:
    """Return the file path of a store from its location; None if the location is the URL of a store on a server.

    Raises
    ------
    SetupError
        The location is a libpq connection string. As a path, it would write the password into the name of a file.
    """
    if names_database(location):
        raise SetupError(
            "a database must be given as a URL, not as ``host=... user=...``: write "
            "postgresql://user@host:port/database, and put the password in PGPASSWORD or ~/.pgpass"
        )
    scheme, mark, rest = location.partition("://")
    if mark and scheme != SQLITE:
        # Other schemes belong to stores on servers.
        return None
    # sqlite:///data/x.db -> /data/x.db
    return Path(rest if mark else location)


def _resolved(path_of_user: Path) -> Path:
    path = path_of_user.expanduser().resolve()
    if path.is_symlink():  # Python 3.13 and later do not raise for links in a circle
        raise RuntimeError("its symbolic links form a circle")
    return path


def _factory_of(scheme: str, url: str) -> Factory:
    factory = _factories.get(scheme) or plugins.find(plugins.STORES, scheme)
    if factory is None:
        schemes = ", ".join(f"{name}://" for name in sorted((*_factories, SQLITE, *plugins.names(plugins.STORES))))
        raise SetupError(
            f"no store for {without_password(url)!r}: use the path of a file, {MemoryStore.location!r}, or a URL with "
            f"one of {schemes}"
        )
    return factory


def _shared(name: str, factory: Factory) -> EventStore:
    # The process is part of the key: neither SQLite's connections nor those over a network survive a fork.
    key = (os.getpid(), name)
    with _lock:
        store = _stores.get(key)
        # A store that was closed, or whose file was replaced, is opened again under the same key.
        if store is None or store.closed or not store.in_place:
            store = _opened(factory(name), name)
            if os.environ.get(KEY_VARIABLE):
                store.sealing.codec = FernetCodec.from_environment()
            _stores[key] = store
        return store


def _opened(store: EventStore | SimpleStore, url: str) -> EventStore:
    """Return the result of a factory, in its adapter if it is a small store. Raise `SetupError` for another object."""
    if isinstance(store, EventStore):
        return store
    shown_url = without_password(url)
    require_protocol(store, SimpleStore, f"the return value of the factory of {shown_url}", page="stores")
    adapter = as_store(store)
    adapter.location = shown_url
    return adapter


def leave_open() -> None:
    """Leave the shared stores of this process open when it ends, because a thread still uses them.

    Closing a connection that another thread is using crashes the process with a segmentation fault
    (test_a_process_that_ends_while_executions_run_leaves_its_store_open).
    """
    _left_open.add(os.getpid())


@atexit.register
def _close_all() -> None:
    # A forked process also has the entries of its parent, whose connections it must not touch.
    for (process, _), store in list(_stores.items()):
        if process == os.getpid() and process not in _left_open:
            store.close()
