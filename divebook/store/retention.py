"""Deleting what is no longer wanted: old executions, unused large values, checkpoints of what has ended."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from divebook.engine.lifecycle import TERMINAL
from divebook.errors import NotFoundError
from divebook.events.event import to_datetime
from divebook.store.base import EventStore
from divebook.store.records import ExecutionRecord


@dataclass(frozen=True, slots=True)
class GcReport:
    """What `gc` deleted, or would delete."""

    dry_run: bool
    executions: tuple[ExecutionRecord, ...]
    events: int
    blobs: int
    blob_bytes: int
    """Bytes on disk of the blobs; a file does not shrink, but uses the space again."""
    checkpoints: int
    """Those of executions that have ended and stay."""


def gc(
    store: EventStore,
    *,
    older_than: timedelta | None = None,
    keep_last: int | None = None,
    statuses: Collection[str] = TERMINAL,
    dry_run: bool = False,
    now: int | None = None,
) -> GcReport:
    """Delete ended executions by age or number, then what is not needed any more.

    Without `older_than` and `keep_last`, no execution is deleted. What has not ended, or is about to be resumed, stays.

    Parameters
    ----------
    older_than
        Spare what ended more recently.
    keep_last
        Spare so many of each workflow, counting its ended executions from the newest.
    statuses
        Spare those with another status.
    now
        Microseconds since 1970; the present by default.
    """
    _check(older_than, keep_last, statuses)
    moment = to_datetime(time.time_ns() // 1000 if now is None else now)
    unwanted = [] if older_than is None and keep_last is None else list(_old(store, keep_last, statuses))
    if older_than is not None:
        unwanted = [record for record in unwanted if _end(record) < moment - older_than]
    driven = {lease.execution_id for lease in store.live_leases(now)}
    unwanted = [record for record in unwanted if record.execution_id not in driven]
    if not dry_run:
        gone = set(store.discard([record.execution_id for record in unwanted], now))
        unwanted = [record for record in unwanted if record.execution_id in gone]
    return _finish(store, unwanted, dry_run=dry_run)


def _check(older_than: timedelta | None, keep_last: int | None, statuses: Collection[str]) -> None:
    for status in statuses:
        if status not in TERMINAL:
            raise NotFoundError("status", status, TERMINAL, f"only what has ended can be deleted, not {status!r}")
    if keep_last is not None and keep_last < 0:
        raise ValueError(f"keep_last must not be negative, got {keep_last}")
    if older_than is not None and older_than < timedelta(0):
        raise ValueError(f"older_than must not be negative, got {older_than}")


def _old(store: EventStore, keep_last: int | None, statuses: Collection[str]) -> Iterator[ExecutionRecord]:
    seen: Counter[str] = Counter()
    for record in store.records():  # newest first
        if record.status not in TERMINAL:
            continue
        seen[record.workflow_name] += 1
        if record.status in statuses and seen[record.workflow_name] > (keep_last or 0):
            yield record


def _end(record: ExecutionRecord) -> datetime:
    return record.ended_at or record.created_at


def _finish(store: EventStore, deleted: list[ExecutionRecord], *, dry_run: bool) -> GcReport:
    ids = {record.execution_id for record in deleted}
    ended = {record.execution_id for record in store.records() if record.status in TERMINAL} - ids
    checkpoints = [execution_id for execution_id in store.checkpoints() if execution_id in ended]
    orphans = [blob for blob in store.blobs(ids) if not blob.used]
    if not dry_run:
        store.drop_checkpoints(checkpoints)
        store.drop_blobs()
    size = sum(blob.stored for blob in orphans)
    events = sum(record.last_sequence for record in deleted)
    return GcReport(dry_run, tuple(deleted), events, len(orphans), size, len(checkpoints))
