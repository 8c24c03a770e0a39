"""The large values of a store, each kept once under its hash; `divebook.store.blobs` puts references in their place."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """One large value."""

    digest: bytes
    stored: int
    """Bytes on disk."""
    used: bool
    """Whether any execution refers to it."""


class LargeValues(ABC):
    """What a store lets its keeper do with large values."""

    _lock: threading.RLock

    def blobs(self, without: Collection[str] = ()) -> list[StoredBlob]:
        """Return the large values; `used` leaves the executions `without` out of account."""
        self._check_open()
        return self._blobs(without)

    def blob(self, digest: bytes) -> bytes | None:
        """Return the content of a large value; None if it is missing.

        Raises
        ------
        CorruptStoreError
            It cannot be decompressed.
        """
        self._check_open()
        return self._blob(digest)

    def drop_blobs(self) -> int:
        """Delete the large values that no execution refers to; return how many."""
        self._check_open()
        with self._lock:
            return self._drop_blobs()

    @abstractmethod
    def _check_open(self) -> None: ...

    # --- what an implementation does; the last one is called with the lock held --------------------------------------

    @abstractmethod
    def _blobs(self, without: Collection[str]) -> list[StoredBlob]: ...

    @abstractmethod
    def _blob(self, digest: bytes) -> bytes | None: ...

    @abstractmethod
    def _drop_blobs(self) -> int: ...
