"""One store into another one, of whatever kind: all executions as they stand, and the messages that wait for them.

What has been copied is read again, and compared by a hash over every event, file and status. A copy that broke off is
taken up by the same call: what is there already, and the same, stays, and a log of which the beginning is there goes on
from its end. Until all of such a log is there it waits under a lease, so that nobody takes it for one to go on with.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from io import BytesIO
from typing import Any

from divebook.engine.inbox import Message
from divebook.engine.lifecycle import TERMINAL
from divebook.engine.state import WAITING
from divebook.errors import CorruptStoreError, ExecutionNotFoundError, StoreError
from divebook.events.catalog import ExecutionForked
from divebook.events.event import to_microseconds
from divebook.events.record import Record
from divebook.events.stored_file import StoredFile
from divebook.store.base import EventStore
from divebook.store.batches import Batch
from divebook.store.contents import file_content
from divebook.store.jsonl import export
from divebook.store.leases import Lease
from divebook.store.owner import Owner
from divebook.store.records import ExecutionRecord
from divebook.text.shown import plural

PAGE = 500
"""Events that are written together."""
UNFINISHED = "an unfinished copy, which the same `divebook copy` ends"
UNFINISHED_SECONDS = 366 * 86400.0
"""Who holds an execution of which only the beginning is there, in place of a machine, and for how long.

A lease of this very process would end with it, and have the half taken for an execution whose driver has died
(test_a_copy_that_broke_off_amid_a_log_goes_on_there_and_nobody_takes_it_up_before).
"""


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What `copy` has copied."""

    executions: int
    already: int
    """How many executions were there before, the same."""
    events: int
    messages: int
    unended: int
    """How many of all can go on, in one of the two stores."""


def copy(source: EventStore, target: EventStore, tell: Callable[[str], object] = lambda _: None) -> CopyReport:
    """Copy all executions and messages of a store into another one, and compare what is there then.

    Checkpoints and summaries are made anew. What has not ended can go on in either store: use one of them only.

    Parameters
    ----------
    tell
        Called with the id of each execution once it is there.

    Raises
    ------
    StoreError
        An execution is being driven, or the target has another one of the same id, or messages of its own.
    CorruptStoreError
        Something cannot be read, or what was written is not what was read; names the execution.
    """
    _check_at_rest(source)
    copied, already, events = 0, 0, 0
    records = [source.record(name) for name in reversed(source.ids())]  # a fork comes after what it forks
    for record in records:
        reached = _reached(source, target, record)
        if reached == record.last_sequence:
            already += 1
        else:
            _copy(source, target, record, reached)
            copied, events = copied + 1, events + record.last_sequence - reached
        _compare(source, target, record)
        tell(record.execution_id)
    messages = _copy_messages(source, target)
    return CopyReport(copied, already, events, messages, sum(record.status not in TERMINAL for record in records))


def _check_at_rest(source: EventStore) -> None:
    held = source.live_leases()
    if held:
        raise StoreError(
            f"{plural(len(held), 'execution')} of {source.location} {'is' if len(held) == 1 else 'are'} being driven, "
            f"{held[0].execution_id} by {held[0].owner.name} (process {held[0].owner.pid} on {held[0].owner.host}); "
            "pause or end them, and copy then"
        )


def _has(store: EventStore, execution_id: str) -> bool:
    try:
        store.record(execution_id)
    except ExecutionNotFoundError:
        return False
    return True


def _reached(source: EventStore, target: EventStore, record: ExecutionRecord) -> int:
    """Return how many events of a log the target has; all of them where it has another one, which is compared then."""
    name = record.execution_id
    last = target.record(name).last_sequence if _has(target, name) else 0
    at = 0
    while at < min(last, record.last_sequence):
        page = min(at + PAGE, last)
        known, there = (
            [(found.id, found.last_sequence) for found in store.read_records(name, at, page)]
            for store in (source, target)
        )
        if known != there or known[-1][1] > last:
            return record.last_sequence
        at = known[-1][1]
    return at


def _copy(source: EventStore, target: EventStore, record: ExecutionRecord, reached: int) -> None:
    """Write what a log has beyond `reached`; nobody drives it before all of it is there."""
    name = record.execution_id
    lease = _hold(target, name) if reached else None
    shared = None if reached else _shared_in(source, target, record)
    for batch in _batches(source, record, shared, reached):
        (refusal,) = target.append_all([batch if lease is None else replace(batch, token=lease.token)])
        if refusal is not None:
            raise refusal
        if batch.last_sequence < record.last_sequence:  # anew, since an event that ended it for a while gives it back
            lease = _hold(target, name)
    if lease is not None:
        target.release(lease)


def _hold(target: EventStore, execution_id: str) -> Lease:
    """Take the lease of what is not whole yet, also from a copy that broke off, which does so no more."""
    held = target.lease_of(execution_id)
    is_copys = held is not None and held.owner.host == UNFINISHED
    owner = Owner(UNFINISHED, os.getpid(), 0, "divebook copy")
    return target.acquire(execution_id, owner, UNFINISHED_SECONDS, instead_of=held if is_copys else None)


def _shared_in(source: EventStore, target: EventStore, record: ExecutionRecord) -> tuple[str, int] | None:
    """Return the execution whose first events a fork shares in the target, and how many events that is.

    Logs share whole records. A fork at an event inside a record of its source has a record of its own for the
    beginning of that one, so that it shares only what comes before (`divebook.execution.forks.first_batch`).
    """
    if record.opened < 2:
        return None
    opening = source.facts(record.execution_id, [record.opened])[record.opened]
    if not isinstance(opening, ExecutionForked) or not _has(target, opening.source):
        return None
    last = record.opened - 1
    while last:
        own = source.read_records(record.execution_id, last - 1, last)[0]
        theirs = target.read_records(opening.source, last - 1, last)
        if [(found.id, found.last_sequence) for found in theirs] == [(own.id, last)] and own.last_sequence == last:
            return opening.source, last
        last = own.sequence - 1
    return None


def _batches(
    source: EventStore, record: ExecutionRecord, shared: tuple[str, int] | None, reached: int
) -> Iterator[Batch]:
    fork_of, reached = (None, reached) if shared is None else shared
    while reached < record.last_sequence:
        records = source.read_records(record.execution_id, reached, min(reached + PAGE, record.last_sequence))
        for found in records:
            _fill(source, found)
        is_last = records[-1].last_sequence >= record.last_sequence
        settings: dict[str, Any] = {"durability": record.durability, "taken": record.taken if is_last else 0}
        if not is_last:
            settings["status"] = WAITING  # for nothing: none of its questions has an answer here, nor a time come
        elif record.status not in TERMINAL:
            wake_at = record.wake_at
            settings |= {"status": record.status, "wake_at": None if wake_at is None else to_microseconds(wake_at)}
        yield Batch(record.execution_id, reached, records, source=fork_of, **settings)
        reached, fork_of = records[-1].last_sequence, None


def _fill(source: EventStore, found: Record) -> None:
    """Put the contents of files where a record names them, so that they are written with it."""
    for fact in found.facts:
        for named in StoredFile.all_in(fact):
            named.content = file_content(source, named.digest)


def _compare(source: EventStore, target: EventStore, record: ExecutionRecord) -> None:
    name = record.execution_id
    written = target.record(name)
    # A fork whose source is not there has its first events in full.
    same = replace(written, size=0) == replace(record, size=0) and digest(source, name) == digest(target, name)
    if not same:
        raise CorruptStoreError(
            f"execution {name} is not in {target.location} as it is in {source.location}; delete it there and copy "
            "again, or choose an empty store"
        )


def digest(store: EventStore, execution_id: str) -> str:
    """Return a hash of all that an execution's log says, with the files that it names, and of its status."""
    total = _Sum()
    export(store, execution_id, total)
    return total.hash.hexdigest()


class _Sum(BytesIO):
    """A stream that keeps only a hash of what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.hash = sha256()

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return len(data)


def _copy_messages(source: EventStore, target: EventStore) -> int:
    found = source.new_messages(0)
    present = {message.number: message for message in target.new_messages(0)}
    missing = [message for message in found if message.number not in present]
    target.bring(missing)
    brought = {message.number: message for message in target.new_messages(0)}
    lost = [message for message in found if brought.get(message.number) != message]
    if lost:
        raise StoreError(_other(lost[0], target))
    return len(missing)


def _other(message: Message, target: EventStore) -> str:
    return (
        f"message {message.number} to execution {message.execution_id} is not in {target.location}, which has "
        "messages of its own; choose an empty store"
    )
