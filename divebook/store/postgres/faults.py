"""What Postgres's errors mean to a user of the store, and what to do about them."""

from __future__ import annotations

import re
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
from divebook.store.no_texts import no_text

if TYPE_CHECKING:
    import psycopg

_LOST = ("08", "57P")  # the connection; the server is shut down, or starts
_READ_ONLY = "25006"
_FAULTS: tuple[tuple[str, type[StoreError], str], ...] = (
    (_READ_ONLY, ReadOnlyStoreError, "nothing can be written to {0}: {1}. Name the server that may be written to"),
    ("28", StoreError, "{0} refuses the user: {1}. Check the user and the password"),
    ("3D", StoreError, "{0}: {1}. Create the database, or name another one"),
    ("40", StoreBusyError, "{0} is busy: {1}. Nothing was written; try again"),
    ("42501", ReadOnlyStoreError, "{0}: {1}. Grant the user what it needs in that schema, or name another schema"),
    ("53", StoreBusyError, "{0} has no room: {1}. Nothing was written; free some space or connections"),
    (
        "55P03",
        StoreBusyError,
        "{0} is locked by another session (see pg_stat_activity): {1}. Nothing was written",
    ),
    ("57014", StoreBusyError, "{0} was interrupted: {1}. Try again"),
    ("58", StoreBusyError, "{0} cannot be read or written: {1}. Nothing was written; check the server's disk"),
    ("XX001", CorruptStoreError, "{0} is damaged: {1}. Restore a backup"),
    ("XX002", CorruptStoreError, "{0} has a damaged index: {1}. REINDEX it, or restore a backup"),
    ("XX", StoreBusyError, "{0} has met an error of its own: {1}. Nothing was written; the server's log says more"),
)
_STATEMENTS = "not allowed in statement pooling mode"
_OTHER_MODES = "Have it do so for each transaction (pool_mode = transaction)"
_REFUSED: tuple[tuple[str, str], ...] = (
    (
        r"authentication failed|no password|pg_hba\.conf|role .* (does not exist|is not perm)|no such user|certificate",
        "{0} refuses the user: {1}. Check the user and the password, in the URL, PGPASSWORD or ~/.pgpass",
    ),
    (r"database .* does not exist|no such database", "{0}: {1}. Create the database, or name another one"),
    (r"permission denied for database", "{0}: {1}. Grant the user CONNECT, or name another database"),
    (r"\bSSL\b", "{0} and this process do not agree about TLS: {1}. Say in the URL what the server has: sslmode=..."),
    (r"invalid .*(value|number|option)|bad value|unrecognized|unsupported", "{0}: {1}. Correct that in the URL"),
)
"""What a server, or libpq, says to a connection that will never be made as it is, and what to do about it.

That has no code, and its words are of one language: in another one the server is told to be out of reach.
"""
_PASSING = re.compile(
    r"refused|timed out|timeout expired|starting up|shutting down|in recovery|No such file|unreachable|reset by|resolve"
    r"|read-only|closed the connection|terminat|too many|remaining connection"
)


def refusal(error: psycopg.Error, location: str) -> StoreError:
    """Return the store's error for a first connection that was not made: one that is refused is waited for in vain."""
    said = _said(error)
    if not error.sqlstate and not _PASSING.search(said):
        for pattern, text in _REFUSED:
            if re.search(pattern, said):
                return StoreError(text.format(location, said))
    return translate(error, location)


def outage(error: ReadOnlyStoreError, location: str) -> StoreBusyError | None:
    """Return what it means that a server which could be written to cannot any more; None if it is the user who may not.

    It has become the standby of another one, or is about to.
    """
    import psycopg

    cause = error.__cause__
    if not isinstance(cause, psycopg.Error) or cause.sqlstate != _READ_ONLY:
        return None
    said = _said(cause)
    return StoreBusyError(
        f"nothing can be written to {location} at present: {said}. What waits goes on once it can be written to again, "
        "or another server in its place"
    )


def translate(error: psycopg.Error, location: str) -> StoreError:
    """Return the store's error for one of Postgres's."""
    import psycopg

    code, said = error.sqlstate or "", _said(error)
    if _STATEMENTS in said:
        return StoreError(f"{location} is a pool that gives each statement another session: {said}. {_OTHER_MODES}")
    for beginning, kind, text in _FAULTS:
        if code.startswith(beginning):
            return kind(text.format(location, said))
    if code.startswith(_LOST) or (not code and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)):
        return ConnectionLostError(f"{location} is out of reach: {said}. Check the server; what waits goes on with it")
    return StoreError(f"{location}: {said}")


def _said(error: psycopg.Error) -> str:
    """Return what a server, or libpq, says, on one line and without the statement, which is ours."""
    parts = [error.diag.message_primary or str(error), error.diag.message_detail or ""]
    return " ".join(" ".join(parts).split())


@contextmanager
def translated(location: str) -> Iterator[None]:
    """Turn what Postgres and the decoders raise inside the block into the store's errors."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise translate(error, location) from error
    except UnicodeEncodeError as error:
        raise no_text(error) from error
    # What decoding raises for bytes and numbers that a store never writes.
    except (ValueError, TypeError, ArithmeticError) as error:
        raise CorruptStoreError(f"{location} is damaged: {type(error).__name__}: {error}. Restore a backup") from error
