"""What this process knows of the logs that it writes, and batches as they are sent for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from divebook.errors import StoreError
from divebook.store.appending import Refusal
from divebook.store.batches import PreparedBatch
from divebook.store.durability import Durability
from divebook.store.execution_row import Line
from divebook.store.known_ids import KnownIds
from divebook.store.leases import Lease
from divebook.store.postgres.connections import SentStatement
from divebook.store.postgres.rows import written
from divebook.store.postgres.texts import escaped

Tell: TypeAlias = Callable[[Sequence[PreparedBatch], Sequence[Refusal | None]], None]
"""Tells listeners what has become of batches."""


@dataclass(slots=True)
class KnownLog:
    """A log that this process writes, as it knows it."""

    key: int
    token: int
    """That of the execution's latest lease."""
    line: Line
    """The execution's row."""
    checksum: int
    """That of the last record."""
    ids: KnownIds = field(default_factory=KnownIds)
    used: set[bytes] = field(default_factory=set)
    """The large values that it is noted to refer to."""


@dataclass(slots=True)
class DraftBatch:
    """A batch as it is sent, and what is known of its log once it is written."""

    before: KnownLog | None
    """What is known of the log that it carries on; None if it begins one."""
    began: dict[str, Any]
    """What is compared, and said, of one that begins."""
    checksums: list[int]
    log: KnownLog
    used: dict[bytes, bytes]
    """The large values that the log did not refer to before."""

    def only_carries_on(self, batch: PreparedBatch) -> bool:
        """Return whether it has records for a log, and nothing else to say."""
        has_turn = batch.turn is not None or batch.wake_at is not None
        has_more = batch.questions or batch.annotations or batch.enqueued is not None or batch.withheld is not None
        return self.before is not None and not (has_turn or has_more or self.used)

    def row(self) -> tuple[Any, ...]:
        """Return what is compared with the row of a log that is carried on, and what that becomes."""
        before, after = self.before, self.log
        assert before is not None  # noqa: S101 - it only carries on
        line = after.line
        compared = before.key, before.line.seal(), before.token, before.checksum
        return (*compared, line.status, line.last_sequence, line.size, line.taken, line.seal(), after.checksum)

    def head(self, batch: PreparedBatch) -> dict[str, Any]:
        """Return what is compared with the execution's row, and what that becomes."""
        before, known = self.before, self.began
        if before is not None:
            known = {"key": before.key, "known_seal": before.line.seal(), "known_token": before.token}
            known["before"] = before.checksum
        return {**known, **_head(batch, self.log)}


@dataclass(slots=True)
class SentBatches:
    """Batches on their way to the server, each of which only carries on a log."""

    batches: Sequence[PreparedBatch]
    drafts: dict[int, DraftBatch]
    sent: SentStatement
    durability: Durability
    tell: Tell
    answers: list[Refusal | None] | None = None
    """Why each was refused, or None, once that is taken in."""
    error: Exception | None = None
    """What has kept all of them from being written, as far as is known here."""

    def is_answered(self, seconds: float) -> bool:
        """Return whether the server has answered, after so many seconds at most, or will not."""
        try:
            return self.sent.has_answer(seconds)
        except StoreError:  # it is raised to who takes the answer in
            return True


def _head(batch: PreparedBatch, after: KnownLog) -> dict[str, Any]:
    asked = [escaped(name) for name, is_open in batch.questions.items() if is_open]
    settled = [escaped(name) for name, is_open in batch.questions.items() if not is_open]
    questions = {"asked": asked or None, "settled": settled or None}
    withheld = batch.withheld if batch.beginning is None or batch.enqueued is not None else None
    waits = (
        {} if batch.enqueued is None else {"queue": escaped(batch.enqueued.queue), "priority": batch.enqueued.priority}
    )
    standing = {"is_over": batch.ends, "withheld": withheld, **waits}
    return {**written(after.line), "checksum": after.checksum, **standing, **questions}


def lease_of(lease: Lease) -> dict[str, Any]:
    """Return a lease as it is sent with the beginning of a log."""
    owner = lease.owner
    texts = {"host": owner.host, "owner": owner.name, "boot": owner.boot}
    named = {name: escaped(text) for name, text in texts.items()}
    return {**named, "pid": owner.pid, "started": owner.started, "expires_at": lease.expires_at}
