"""Folds of logs up to some event, kept so that long logs need not be folded from the beginning."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence

from divebook.errors import StoreError
from divebook.store.codec import Sealing


class Checkpoints(ABC):
    """The newest checkpoint of each execution."""

    _lock: threading.RLock
    sealing: Sealing

    def put_checkpoint(self, execution_id: str, sequence: int, data: bytes) -> None:
        """Keep the fold of a log up to an event, in place of an older one; a newer one stays.

        A checkpoint is a cache: deleting it changes nothing but the time it takes to fold the log again.

        Raises
        ------
        StoreError
            The log does not reach that far.
        ExecutionNotFoundError
            There is no such log.
        SealedError
            The log was encrypted with another key, or there is no key.
        """
        self._check_open()
        self.check_key(execution_id)
        with self._lock:
            self._put_checkpoint(execution_id, sequence, self.sealing.seal_packed(data))

    def drop_checkpoints(self, execution_ids: Sequence[str] | None = None) -> int:
        """Delete the checkpoints of some executions, or of all; return how many."""
        self._check_open()
        with self._lock:
            return self._drop_checkpoints(self._checkpoints() if execution_ids is None else execution_ids)

    def checkpoint(self, execution_id: str) -> tuple[int, bytes] | None:
        """Return the sequence number and the data of the newest checkpoint; None if there is none, or it is damaged."""
        self._check_open()
        found = self._checkpoint(execution_id)
        return None if found is None else (found[0], self.sealing.open_packed(found[1]))

    def checkpoints(self) -> list[str]:
        """Return the ids of the executions that have a checkpoint, sorted."""
        self._check_open()
        return sorted(self._checkpoints())

    @abstractmethod
    def _check_open(self) -> None: ...

    @abstractmethod
    def check_key(self, execution_id: str) -> None: ...  # noqa: D102 - documented in `divebook.store.log`

    # --- what an implementation does; what writes is called with the lock held ---------------------------------------

    @abstractmethod
    def _put_checkpoint(self, execution_id: str, sequence: int, data: bytes) -> None: ...

    @abstractmethod
    def _checkpoint(self, execution_id: str) -> tuple[int, bytes] | None: ...

    @abstractmethod
    def _checkpoints(self) -> list[str]: ...

    @abstractmethod
    def _drop_checkpoints(self, execution_ids: Sequence[str]) -> int: ...


def check_reached(execution_id: str, sequence: int, last: int) -> None:
    """Make sure that a checkpoint is one of events that are there."""
    if not 0 < sequence <= last:
        raise StoreError(
            f"execution {execution_id} has events 1 to {last}, so it can have no checkpoint at {sequence}; "
            "write the events first"
        )
