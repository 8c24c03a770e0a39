"""What lists show of executions beside their lines: cached folds of their logs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from divebook.errors import CorruptStoreError, SealedError
from divebook.store.codec import Sealing


class StoredSummary(NamedTuple):
    """What a log comes to, up to one of its events."""

    sequence: int
    """The last event in it."""
    data: bytes


class Listing(ABC):
    """What a store keeps for lists."""

    _lock: threading.RLock
    sealing: Sealing

    # --- summaries ---------------------------------------------------------------------------------------------------

    def put_summaries(self, summaries: Mapping[str, StoredSummary]) -> None:
        """Keep the summaries of executions, in place of older ones; what has no such execution is left out.

        A summary is a cache: deleting it changes nothing but the time it takes to list the execution.
        """
        self._check_open()
        sealed = {name: (sequence, self.sealing.seal_packed(data)) for name, (sequence, data) in summaries.items()}
        with self._lock:
            self._put_summaries({name: StoredSummary(*kept) for name, kept in sealed.items()})

    def summaries(self, execution_ids: Sequence[str]) -> dict[str, StoredSummary]:
        """Return the summaries of executions, with one look; without those that have none, or a damaged one."""
        self._check_open()
        found: dict[str, StoredSummary] = {}
        for name, (sequence, data) in self._summaries(execution_ids).items():
            with suppress(SealedError, CorruptStoreError):  # a cache that cannot be opened is none
                found[name] = StoredSummary(sequence, self.sealing.open_packed(data))
        return found

    @abstractmethod
    def _check_open(self) -> None: ...

    # --- what an implementation does; what writes is called with the lock held ---------------------------------------

    @abstractmethod
    def _put_summaries(self, summaries: Mapping[str, StoredSummary]) -> None: ...

    @abstractmethod
    def _summaries(self, execution_ids: Sequence[str]) -> dict[str, StoredSummary]: ...
