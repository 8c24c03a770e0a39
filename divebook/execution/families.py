"""Parents and children among the executions of a store, as their rows have them.

A child ends with its parent. Who cancels an execution, or has it fail, cancels its children next, one level after the
other. A process that dies in between leaves children whose parent has ended, which wait or can be resumed: they are
*abandoned*. Whoever takes one up cancels it, and makes no call of it
(`tests/execution/test_cancelled_trees.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from divebook.engine.lifecycle import TERMINAL
from divebook.errors import ExecutionNotFoundError
from divebook.events.catalog import CANCELLED, CHILD, FAILED, MOVED, PICTURE, ExecutionResumed
from divebook.events.event import to_microseconds
from divebook.store.base import EventStore
from divebook.store.records import ExecutionRecord

ENDS = TERMINAL - {MOVED, PICTURE}
"""The statuses of a parent that nothing waits in: one that has moved, or is a snapshot, continues in another store."""


class Abandoned(NamedTuple):
    """An execution that has not ended, although its parent has."""

    id: str
    parent: str
    status: str
    """That of its parent, or the one that its parent is about to have."""

    @property
    def reason(self) -> str:
        """Why it is cancelled."""
        return orphaned(self.parent, self.status)


def orphaned(parent: str, status: str) -> str:
    """Return why an execution is cancelled whose parent has ended."""
    return f"its parent {parent} is {status}"


def children_to_end(store: EventStore, execution_id: str, status: str) -> list[Abandoned]:
    """Return what is to be cancelled below an execution that ends as `status`: its children that have not ended.

    Of a child that was cancelled already, or has failed, its own children: another process that does the same may not
    have come to them yet, or may have died.
    """
    below: list[Abandoned] = []
    for record in store.records(parent=execution_id, origin=CHILD):
        if record.status not in TERMINAL:
            below.append(Abandoned(record.execution_id, execution_id, status))
        elif record.status in (CANCELLED, FAILED):
            below += children_to_end(store, record.execution_id, record.status)
    return below


def has_ended(store: EventStore, execution_id: str) -> bool:
    """Return whether an execution has ended, so that nothing that it started continues."""
    return any(record.status in ENDS for record in islice(ancestors(store, execution_id), 1))


def ancestors(store: EventStore, execution_id: str) -> Iterator[ExecutionRecord]:
    """Give the row of an execution, then that of its parent, and so on; one that the store lacks ends the line."""
    name: str | None = execution_id
    while name is not None:
        try:
            record = store.record(name)
        except ExecutionNotFoundError:
            return
        yield record
        name = record.parent if record.origin == CHILD else None


def abandoned(store: EventStore, execution_id: str) -> list[Abandoned]:
    """Return what is to be cancelled instead of resuming an execution; nothing if that may continue.

    The execution comes first, then its parent, as far up as one of them has a parent that has ended.
    """
    line: list[ExecutionRecord] = []
    for record in ancestors(store, execution_id):
        if line and record.status in ENDS and not _was_resumed_apart(store, line[-1], record):
            # The parent of all but the last one is about to be cancelled.
            below = [Abandoned(child.execution_id, child.parent or "", CANCELLED) for child in line[:-1]]
            return [*below, Abandoned(line[-1].execution_id, record.execution_id, record.status)]
        if record.status in TERMINAL:
            return []
        line.append(record)
    return []


def all_abandoned(store: EventStore) -> list[ExecutionRecord]:
    """Return the executions that have not ended although an execution above them has, newest first."""
    unended = store.unended()
    ids = {record.execution_id for record in unended}
    children = [record for record in unended if record.origin == CHILD]
    names = {
        record.execution_id for record in children if record.parent not in ids and abandoned(store, record.execution_id)
    }
    for record in reversed(children):  # a parent is older than its children
        if record.parent in names:
            names.add(record.execution_id)
    return [record for record in children if record.execution_id in names]


def _was_resumed_apart(store: EventStore, child: ExecutionRecord, parent: ExecutionRecord) -> bool:
    """Return whether a person has resumed a child by itself, after it had ended with its parent."""
    if parent.ended_at is None:
        return False
    resumed = [
        event.recorded_at
        for event in store.read(child.execution_id)
        if isinstance(event.data, ExecutionResumed) and event.data.previous_status in TERMINAL
    ]
    return bool(resumed) and resumed[-1] >= to_microseconds(parent.ended_at)
