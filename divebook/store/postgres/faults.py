"""What Postgres's errors mean to a user of the store, and what to do about them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from divebook.errors import (
    ConnectionLostError,
    CorruptStoreError,
    ReadOnlyStoreError,
    StoreBusyError,
    StoreError,
)

if TYPE_CHECKING:
    import psycopg

_LOST = ("08", "57P")  # the connection; the server is shut down, or starts
_FAULTS: tuple[tuple[str, type[StoreError], str], ...] = (
    ("25006", ReadOnlyStoreError, "nothing can be written to {0}: {1}. Name the server that may be written to"),
    ("28", StoreError, "{0} refuses the user: {1}. Check the user and the password"),
    ("3D", StoreError, "{0}: {1}. Create the database, or name another one"),
    ("40", StoreBusyError, "{0} is busy: {1}. Nothing was written; try again"),
    ("42501", ReadOnlyStoreError, "{0}: {1}. Grant the user what it needs in that schema, or name another schema"),
    ("53", StoreBusyError, "{0} has no room: {1}. Nothing was written; free some space or connections"),
    ("55P03", StoreBusyError, "{0} is locked: {1}. Try again"),
    ("57014", StoreBusyError, "{0} was interrupted: {1}. Try again"),
    ("58", StoreBusyError, "{0} cannot be read or written: {1}. Nothing was written; check the server's disk"),
    ("XX", CorruptStoreError, "{0} is damaged: {1}. Restore a backup"),
)


def translate(error: psycopg.Error, location: str) -> StoreError:
    """Return the store's error for one of Postgres's."""
    import psycopg

    code, said = error.sqlstate or "", " ".join(str(error).split())
    for beginning, kind, text in _FAULTS:
        if code.startswith(beginning):
            return kind(text.format(location, said))
    if code.startswith(_LOST) or (not code and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)):
        return ConnectionLostError(f"{location} is out of reach: {said}. Check the server; what waits goes on with it")
    return StoreError(f"{location}: {said}")


@contextmanager
def translated(location: str) -> Iterator[None]:
    """Turn what Postgres and the decoders raise inside the block into the store's errors."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise translate(error, location) from error
    # What decoding raises for bytes and numbers that a store never writes.
    except (ValueError, TypeError, ArithmeticError) as error:
        raise CorruptStoreError(f"{location} is damaged: {type(error).__name__}: {error}. Restore a backup") from error
