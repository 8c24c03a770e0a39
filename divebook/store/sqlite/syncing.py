"""How surely what is written is on the disk, and when it gets there.

A transaction that is to survive a power failure waits for the disk at its end. Where more is about to be written that
wait can come apart from it: the transaction is then written as a relaxed one, and the write-ahead log is brought to the
disk afterwards, by another thread, for all that was written meanwhile. Nothing that comes after a transaction in the
log is ever there without it, whoever wrote it (tests/store/test_syncing.py).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from divebook.errors import StoreError

_bring: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # as SQLite does


class Syncing:
    """Whether transactions wait for the disk just now, and the sync of those that did not."""

    def __init__(self, path: Path) -> None:
        self.comes_apart = False
        """Whether they do not."""
        self._path = path.with_name(f"{path.name}-wal")
        self._file: int | None = None
        self._is_closed = False
        self._syncing = threading.Lock()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Let transactions in the block not wait for the disk."""
        self.comes_apart = True
        try:
            yield
        finally:
            self.comes_apart = False

    def sync(self) -> None:
        """Bring to the disk what was written before; StoreError if the disk refuses it."""
        with self._syncing:
            if self._is_closed:  # SQLite has brought all of it to the disk
                return
            try:
                if self._file is None:
                    self._file = self._opened()
                _bring(self._file)
            except OSError as error:
                raise StoreError(
                    f"what was written to {self._path} could not be brought to the disk: {error.strerror}; look at the "
                    "disk, then resume the executions that were running"
                ) from error

    def _opened(self) -> int:
        """Open the write-ahead log, which stays the same file as long as the store is open, and keep its name as well.

        Closing it releases no lock of SQLite: those are on the other two files.
        """
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return os.open(self._path, os.O_RDWR)

    def close(self) -> None:
        """Release the file, once the connection is closed."""
        with self._syncing:
            self._is_closed = True
            if self._file is not None:
                os.close(self._file)
                self._file = None
