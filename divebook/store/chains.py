"""Chains: executions each of which goes on where the one before has ended, to keep its log short."""

from __future__ import annotations

from divebook.errors import ExecutionNotFoundError
from divebook.events.catalog import RUN
from divebook.store.base import EventStore


def chain_of(store: EventStore, execution_id: str) -> list[str]:
    """Return the ids of the executions of which one went on as the next, the first one first.

    One that has been deleted ends the chain on its side; most executions are a chain of their own.

    Raises
    ------
    ExecutionNotFoundError
        There is no such execution.
    """
    chain = [execution_id]
    while (before := _before(store, chain[0])) is not None:
        chain.insert(0, before)
    while after := store.records(parent=chain[-1], origin=RUN):
        chain.append(after[0].execution_id)
    return chain


def _before(store: EventStore, execution_id: str) -> str | None:
    record = store.record(execution_id)
    if record.origin != RUN or record.parent is None:
        return None
    try:
        return store.record(record.parent).execution_id
    except ExecutionNotFoundError:
        return None
