"""Limits on how many executions one execution may start, directly and through those that it started.

Every execution that is not a child has both limits, also where nobody set them: a workflow that starts itself by
mistake ends with an error instead of starting executions for as long as the process lives. A child that sets a bound of
its own has that limit for what is below it as well.

How deep a child is, and how many there are, is read from the store, so that a limit holds in whichever process the tree
continues. Each process counts what it starts itself exactly, and what other processes start every `RECOUNT_AFTER`
starts: where several processes drive one tree, each of them may pass the limit by that many.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from divebook.bounds import DEFAULT_MAX_DEPTH, DEFAULT_MAX_DESCENDANTS, Bounds
from divebook.engine.bounds import REASONS
from divebook.errors import BoundExceededError, ExecutionNotFoundError
from divebook.execution.driver import Driver
from divebook.execution.families import ancestors
from divebook.store.base import EventStore
from divebook.store.records import ExecutionRecord

RECOUNT_AFTER = 100
"""Executions that a process starts in one tree before it counts again what the store has of that."""

MOST_COUNTS = 1000
"""Trees whose counts a process remembers; others are counted again when they start something."""


@dataclass(slots=True)
class _Count:
    """The number of executions below one, as far as this process knows it."""

    stored: int
    """As the store had it."""
    started: set[str] = field(default_factory=set)
    """Ids of those that this process has started since, or is about to start."""

    @property
    def total(self) -> int:
        return self.stored + len(self.started)


class FamilyBounds:
    """Checks of `max_depth` and `max_descendants` before a child begins; any thread.

    Parameters
    ----------
    find
        Finds an execution, with its newest state.
    """

    def __init__(self, store: EventStore, find: Callable[[str], Driver]) -> None:
        self._store, self._find = store, find
        self._counts: OrderedDict[str, _Count] = OrderedDict()
        """By id, the one that was counted last at the end."""
        self._lock = threading.Lock()

    def admit(self, child: str, parent: str) -> None:
        """Count a child that is about to begin.

        Raises
        ------
        BoundExceededError
            It would be too deep below an execution above it, or one too many.
        """
        line = list(ancestors(self._store, parent))
        counts: list[_Count] = []
        with self._lock:
            for depth, record in enumerate(line, 1):
                driver = self._find(record.execution_id)
                most_depth, most = limits_of(driver.state.bounds, is_root=depth == len(line))
                if most_depth is not None and depth > most_depth:
                    raise _exceeded("max_depth", record, most_depth, f"a child of {parent} would be on level {depth}")
                if most is not None:
                    counts.append(count := self._count(driver, record, child, most))
                    if count.total >= most and child not in count.started:
                        raise _exceeded("max_descendants", record, most, f"has {count.total}")
            for count in counts:
                count.started.add(child)

    def forget(self, execution_id: str) -> None:
        """Forget how many executions one has below it, as it has ended; if it is resumed, they are counted again."""
        with self._lock:
            self._counts.pop(execution_id, None)

    def left_for_successor(self, execution_id: str) -> Bounds:
        """Return what the execution as which one continues may start: what is left of the limits that were set."""
        driver = self._find(execution_id)
        bounds = driver.state.bounds
        most = bounds.max_descendants
        if most is not None:
            with self._lock:
                (record,) = list(ancestors(self._store, execution_id))[:1]
                most = max(0, most - self._recount(driver, record, ()).total)
        return Bounds(max_depth=bounds.max_depth, max_descendants=most)

    def _count(self, driver: Driver, record: ExecutionRecord, child: str, most: int) -> _Count:
        """Return how many there are below one: counted again from time to time, and before one is refused."""
        count = self._counts.pop(driver.id, None)
        if count is None or len(count.started) >= RECOUNT_AFTER or (count.total >= most and child not in count.started):
            count = self._recount(driver, record, () if count is None else count.started)
        self._counts[driver.id] = count
        while len(self._counts) > MOST_COUNTS:
            self._counts.popitem(last=False)
        return count

    def _recount(self, driver: Driver, record: ExecutionRecord, started: Collection[str]) -> _Count:
        missing = self._missing(started)
        while True:
            stored = self._store.descendants(record.execution_id) + self._inherited(driver, record)
            still_missing = self._missing(missing)
            if still_missing == missing:
                return _Count(stored, still_missing)
            missing = still_missing  # one was written meanwhile, and may or may not have been counted

    def _missing(self, names: Collection[str]) -> set[str]:
        """Return which executions the store does not have yet."""
        return {name for name in names if not any(ancestors(self._store, name))}

    def _inherited(self, driver: Driver, record: ExecutionRecord) -> int:
        """Return how many executions a fork has below it through the events that it shares with its source."""
        total = 0
        for name in driver.state.ledger.children if record.opened > 1 else ():
            try:
                if self._store.record(name).parent != record.execution_id:
                    total += 1 + self._store.descendants(name)
            except ExecutionNotFoundError:  # it was deleted
                total += 1
        return total


def limits_of(bounds: Bounds, *, is_root: bool) -> tuple[int | None, int | None]:
    """Return how deep an execution may start others, and how many; None where nothing bounds that."""
    default = (DEFAULT_MAX_DEPTH, DEFAULT_MAX_DESCENDANTS) if is_root else (None, None)
    depth = default[0] if bounds.max_depth is None else bounds.max_depth
    return depth, default[1] if bounds.max_descendants is None else bounds.max_descendants


def _exceeded(name: str, record: ExecutionRecord, limit: int, found: str) -> BoundExceededError:
    below = "levels of executions" if name == "max_depth" else "executions"
    return BoundExceededError(
        f"{name} is reached: execution {record.execution_id} of {record.workflow_name!r} may have at most {limit} "
        f"{below} below it, and {found}. Look for a workflow that starts itself; if so many are meant, raise the bound "
        f"and resume that execution: bounds={{'{name}': {max(2 * limit, 1)}}}",
        name,
        REASONS[name],
    )
