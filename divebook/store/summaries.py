"""What lists show of executions beside their lines: cached folds of their logs, and the tags that people give them."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from divebook.errors import CorruptStoreError, SealedError, SetupError
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

    # --- tags --------------------------------------------------------------------------------------------------------

    def retag(self, execution_id: str, add: Iterable[str] = (), remove: Iterable[str] = ()) -> tuple[str, ...]:
        """Give an execution tags, or take them away, whatever its status; return those it has now.

        They stand in its line only: no event says so, and nothing that an execution does depends on its tags.

        Raises
        ------
        ExecutionNotFoundError
            There is no such execution.
        SetupError
            A tag is no word.
        """
        self._check_open()
        added, removed = [_tag(tag) for tag in add], {_tag(tag) for tag in remove}
        with self._lock:
            return self._retag(execution_id, added, removed)

    @abstractmethod
    def _check_open(self) -> None: ...

    # --- what an implementation does; what writes is called with the lock held ---------------------------------------

    @abstractmethod
    def _put_summaries(self, summaries: Mapping[str, StoredSummary]) -> None: ...

    @abstractmethod
    def _summaries(self, execution_ids: Sequence[str]) -> dict[str, StoredSummary]: ...

    @abstractmethod
    def _retag(self, execution_id: str, added: Sequence[str], removed: Collection[str]) -> tuple[str, ...]:
        """Change the tags of an execution with `tags_after`; ExecutionNotFoundError if there is none."""


def tags_after(tags: Sequence[str], added: Sequence[str], removed: Collection[str]) -> tuple[str, ...]:
    """Return tags after a change, each once, in the order in which they were given."""
    return tuple(tag for tag in dict.fromkeys([*tags, *added]) if tag not in removed)


def _tag(given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise SetupError(f"a tag must be a word, not {given!r}; give it a text such as 'baseline'")
    return given.strip()
