"""What SQLite's error codes mean to a user of the store, and what to do about them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from divebook.errors import CorruptStoreError, ReadOnlyStoreError, StoreBusyError, StoreError
from divebook.store.no_texts import no_text

_CORRUPT = (
    "{0} is damaged: {1}. Keep a copy of the file, then save what is readable with "
    "`sqlite3 FILE .recover | sqlite3 NEW`, or go on with another store"
)
Types: TypeAlias = Sequence[type | tuple[type, ...]]

_FAULTS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (StoreBusyError, "{0} is locked: another process has been writing for too long. Try again"),
    sqlite3.SQLITE_CANTOPEN: (StoreError, "{0} cannot be opened: {1}. Check that the path is a file you may use"),
    sqlite3.SQLITE_CONSTRAINT: (CorruptStoreError, _CORRUPT),
    sqlite3.SQLITE_CORRUPT: (CorruptStoreError, _CORRUPT),
    sqlite3.SQLITE_FULL: (StoreBusyError, "{0} cannot grow: {1}. Nothing was written; free some space and resume"),
    sqlite3.SQLITE_IOERR: (StoreBusyError, "{0} cannot be read or written: {1}. Nothing was written; check the disk"),
    sqlite3.SQLITE_NOTADB: (CorruptStoreError, "{0} is not a divebook store: {1}. Move it away or choose another path"),
    sqlite3.SQLITE_PERM: (ReadOnlyStoreError, "{0} may not be used: {1}. Check the permissions of the file"),
    sqlite3.SQLITE_READONLY: (ReadOnlyStoreError, "{0}: {1}. Make the file and its folder writable, or choose another"),
}


def translate(error: sqlite3.Error, location: str) -> StoreError:
    """Return the store's error for one of SQLite's."""
    code = getattr(error, "sqlite_errorcode", None)  # absent if the sqlite3 module itself raised
    if code is not None:
        kind, text = _FAULTS.get(code & 0xFF, (StoreError, "{0}: {1}"))
        return kind(text.format(location, error))
    if "UTF-8" in str(error):
        return CorruptStoreError(_CORRUPT.format(location, error))
    return StoreError(f"{location}: {error}")


@contextmanager
def translated(location: str) -> Iterator[None]:
    """Turn what SQLite, the disk and the decoders raise inside the block into the store's errors.

    The only border: whatever is read or written passes it (tests/store/test_damage.py).
    """
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, location) from error
    except OSError as error:
        raise StoreError(f"{location} cannot be used: {error}. Check the path and its permissions") from error
    except UnicodeEncodeError as error:
        raise no_text(error) from error
    # What decoding raises for bytes, texts, numbers and dates that a store never writes.
    except (ValueError, TypeError, ArithmeticError) as error:
        raise CorruptStoreError(_CORRUPT.format(location, f"{type(error).__name__}: {error}")) from error


def typed(kind: str, row: tuple[Any, ...], types: Types) -> tuple[Any, ...]:
    """Return a row whose columns are of the types that were written; SQLite itself keeps any value in any column.

    Rows with a checksum need no such look: another type gives another checksum.

    Raises
    ------
    CorruptStoreError
        One is not.
    """
    for column, wanted in zip(row, types, strict=True):
        if not isinstance(column, wanted):
            raise CorruptStoreError(
                f"a {kind} is damaged: {column!r} stands where only another type of value is written. "
                "Run `divebook check`, and restore a backup"
            )
    return row
