"""The register of questions: who asked whom, until when an answer counts, and which one did."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Final

from divebook.pipeline.envelope.envelope import Clock, Envelope, IdSource, random_id, utc_now
from divebook.pipeline.envelope.interrupts import FlowInterrupt, InterruptResponse, seconds_from
from divebook.pipeline.envelope.plain import copied, copied_map, plain_part
from divebook.questions.question import InterruptKind, InterruptStatus


@dataclass(frozen=True, slots=True)
class InterruptPolicy:
    """Rules for questions of one kind."""

    ttl_seconds: float | None = 3600
    """How long an answer counts, unless a question says otherwise; None for ever."""
    auto_expire: bool = True
    """True if `expire_pending` ends those whose time has passed."""
    require_response: bool = True
    """True if an answer that says nothing is refused."""


DEFAULT_POLICIES: Final[Mapping[str, InterruptPolicy]] = {
    InterruptKind.CLARIFICATION: InterruptPolicy(24 * 3600),
    InterruptKind.CONFIRMATION: InterruptPolicy(3600),
    InterruptKind.AGENT_REVIEW: InterruptPolicy(1800),
    InterruptKind.CHECKPOINT: InterruptPolicy(None, auto_expire=False, require_response=False),
    InterruptKind.RESOURCE_EXHAUSTED: InterruptPolicy(300, require_response=False),
    InterruptKind.TIMEOUT: InterruptPolicy(300, require_response=False),
    InterruptKind.SYSTEM_ERROR: InterruptPolicy(3600, require_response=False),
}
OTHER_POLICY: Final = InterruptPolicy()
"""Of a kind that has none of its own."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a question. All fields may be empty."""

    request_id: str = ""
    user_id: str = ""
    """Who may answer."""
    session_id: str = ""
    envelope_id: str = ""
    trace_id: str = ""
    span_id: str = ""

    @classmethod
    def of(cls, envelope: Envelope) -> Origin:
        """Return the origin of an envelope's questions."""
        return cls(envelope.request_id, envelope.user_id, envelope.session_id, envelope.envelope_id)


NOWHERE: Final = Origin()


@dataclass(slots=True)
class InterruptRecord(FlowInterrupt):
    """A question with its origin and its standing; the service changes it as things happen."""

    status: InterruptStatus = InterruptStatus.PENDING
    resolved_at: datetime | None = None
    request_id: str = ""
    user_id: str = ""
    session_id: str = ""
    envelope_id: str = ""
    trace_id: str = ""
    span_id: str = ""

    @property
    def origin(self) -> Origin:
        """Where it comes from."""
        return Origin(**{each.name: getattr(self, each.name) for each in fields(Origin)})

    def to_dict(self) -> dict[str, Any]:
        """Return the question, its standing and its origin as plain data."""
        return plain_part(self, InterruptRecord, "interrupt")

    def as_interrupt(self) -> FlowInterrupt:
        """Return the question alone, as an independent value."""
        twin = copied(self, "interrupt")
        return FlowInterrupt(**{each.name: getattr(twin, each.name) for each in fields(FlowInterrupt)})


class InterruptService:
    """Keeps questions of many requests and lets each be answered once.

    A question may be answered from several threads at the same time, and exactly one counts: the caller that takes the
    question out of the pending ones has it alone, and a dict gives each of its entries away only once.

    Parameters
    ----------
    policies
        By kind; of the kinds that are left out, `OTHER_POLICY` holds.
    clock
        Returns the present, aware.
    new_id
        Returns a new identifier for a prefix.

    Examples
    --------
    >>> service = InterruptService()
    >>> question = service.create("confirmation", message="Delete 3 files?", origin=Origin(user_id="ann"))
    >>> service.resolve(question.id, {"approved": True}, user_id="bob")
    >>> service.resolve(question.id, {"approved": False}, user_id="ann").response.approved
    False
    """

    def __init__(
        self,
        policies: Mapping[str, InterruptPolicy] = DEFAULT_POLICIES,
        *,
        clock: Clock = utc_now,
        new_id: IdSource = random_id,
    ) -> None:
        self._policies = policies
        self._clock = clock
        self._new_id = new_id
        self._records: dict[str, InterruptRecord] = {}
        self._pending: dict[str, InterruptRecord] = {}

    def config(self, kind: str) -> InterruptPolicy:
        """Return how questions of a kind are treated."""
        return self._policies.get(kind, OTHER_POLICY)

    def create(
        self,
        kind: str,
        *,
        question: str = "",
        message: str = "",
        data: Mapping[str, Any] | None = None,
        ttl_seconds: float | None = None,
        origin: Origin = NOWHERE,
    ) -> InterruptRecord:
        """Register a question.

        Parameters
        ----------
        kind
            One of `InterruptKind`, or a text of your own.
        question, message
            What is shown: the question of a clarification, the message of any other kind.
        data
            Plain data for the person or program that answers.
        ttl_seconds
            How long an answer counts; None, 0 and less leave it to the kind.
        origin
            Where it comes from, and who may answer.
        """
        now = self._clock()
        lifetime = ttl_seconds if ttl_seconds is not None and ttl_seconds > 0 else self.config(kind).ttl_seconds
        record = InterruptRecord(
            InterruptKind.read(kind),
            self._new_id("int"),
            now,
            question,
            message,
            None if data is None else copied_map(data, "data"),
            expires_at=seconds_from(now, lifetime),
            **asdict(origin),
        )
        self._records[record.id] = self._pending[record.id] = record
        return record

    def create_resource_exhausted(
        self, resource_type: str, retry_after_seconds: float | None = None, *, origin: Origin = NOWHERE
    ) -> InterruptRecord:
        """Register that a resource is used up."""
        return self.create(
            InterruptKind.RESOURCE_EXHAUSTED,
            message=f"Resource exhausted: {resource_type}",
            data={"resource_type": resource_type, "retry_after_seconds": retry_after_seconds},
            origin=origin,
        )

    def ask(self, envelope: Envelope, kind: str, **details: Any) -> InterruptRecord:
        """Register a question of an envelope, which keeps a copy as its present one; for details see `create`."""
        record = self.create(kind, origin=Origin.of(envelope), **details)
        envelope.ask(record.as_interrupt())
        return record

    def answer(
        self, envelope: Envelope, response: InterruptResponse | Mapping[str, Any], user_id: str = ""
    ) -> InterruptRecord | None:
        """Answer the present question of an envelope, which keeps the answer if it counts; see `resolve`."""
        pending = envelope.pending_interrupt
        record = None if pending is None else self.resolve(pending.id, response, user_id)
        if record is not None:
            envelope.resolve_interrupt(response)
        return record

    def get(self, id: str) -> InterruptRecord | None:
        """Return a question or None."""
        return self._records.get(id)

    def pending_for_request(self, request_id: str) -> InterruptRecord | None:
        """Return the newest question of a request that can be answered now, or None."""
        records = [record for record in self._answerable() if record.request_id == request_id]
        return records[-1] if records else None

    def pending_for_session(self, session_id: str, kinds: Collection[str] | None = None) -> list[InterruptRecord]:
        """Return the questions of a session that can be answered now, oldest first, of all kinds or of these."""
        records = [record for record in self._answerable() if record.session_id == session_id]
        return [record for record in records if not kinds or record.kind in kinds]

    def resolve(
        self, id: str, response: InterruptResponse | Mapping[str, Any], user_id: str = ""
    ) -> InterruptRecord | None:
        """Answer a question.

        Returns
        -------
        InterruptRecord or None
            None if the answer does not count: no such question, answered or taken back before, another user's, too late
            (it is expired then), or empty where the kind requires an answer (it stays pending then).

        Raises
        ------
        InterruptError
            The answer has an unknown part, or one of the wrong type; the question stays pending.
        """
        now = self._clock()
        record = self._pending.get(id)
        if record is None or (user_id and user_id != record.user_id):
            return None
        if record.is_expired(now):
            self._finish(record, InterruptStatus.EXPIRED)
            return None
        answer = InterruptResponse.read(id, response, now)
        if answer.is_empty and self.config(record.kind).require_response:
            return None
        if self._pending.pop(id, None) is None:
            return None
        record.response = answer
        record.resolved_at = now
        record.status = InterruptStatus.RESOLVED
        return record

    def cancel(self, id: str, reason: str = "") -> InterruptRecord | None:
        """Take a pending question back and note why in its data; None if it is not pending."""
        record = self._pending.get(id)
        if record is None or not self._finish(record, InterruptStatus.CANCELLED):
            return None
        record.data = {**(record.data or {}), "cancel_reason": reason}
        return record

    def expire_pending(self) -> int:
        """End the pending questions whose time has passed, if their kind wants it; return how many there were."""
        now = self._clock()
        due = [record for record in list(self._pending.values()) if record.is_expired(now)]
        return sum(
            self._finish(record, InterruptStatus.EXPIRED) for record in due if self.config(record.kind).auto_expire
        )

    def cleanup(self, older_than: float | timedelta) -> int:
        """Forget questions that are over and were asked longer ago than that, in seconds; return how many."""
        age = older_than if isinstance(older_than, timedelta) else timedelta(seconds=older_than)
        limit = self._clock() - age
        over = [
            record
            for record in list(self._records.values())
            if record.status != InterruptStatus.PENDING and record.created_at < limit
        ]
        return sum(self._records.pop(record.id, None) is not None for record in over)

    def stats(self) -> dict[str, int]:
        """Return how many questions there are, and how many of each status."""
        statuses = [record.status for record in list(self._records.values())]
        return {"total": len(statuses)} | {str(status): statuses.count(status) for status in InterruptStatus}

    def _finish(self, record: InterruptRecord, status: InterruptStatus) -> bool:
        """Set the final status of a pending question; return False if another caller did so first."""
        if self._pending.pop(record.id, None) is None:
            return False
        record.status = status
        return True

    def _answerable(self) -> list[InterruptRecord]:
        now = self._clock()
        return [record for record in list(self._pending.values()) if not record.is_expired(now)]
