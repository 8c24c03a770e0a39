"""Registry of questions of many requests: for each question its origin (such as request and user), expiry and status,
and its one valid answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final

from divebook.pipeline.envelope.envelope import Clock, Envelope, IdSource, random_id, utc_now
from divebook.pipeline.envelope.interrupts import (
    InterruptRecord,
    InterruptResponse,
    Origin,
    accepts_empty_answer,
    time_after,
)
from divebook.pipeline.envelope.plain import copied_map
from divebook.questions.question import InterruptKind, InterruptStatus
from divebook.text.arguments import DurationLike, seconds_of


@dataclass(frozen=True, slots=True)
class InterruptPolicy:
    """Rules about lifetime, expiry and empty answers for all questions of one kind."""

    ttl_seconds: float | None = 3600
    """Seconds after which a question expires, unless the question has its own lifetime; None for never."""
    auto_expire: bool = True
    """True if `expire_pending` ends questions of this kind whose lifetime has passed."""
    require_response: bool = True
    """True if an empty answer is refused (see `InterruptResponse.is_empty`)."""


_LIFETIMES: Final[Mapping[str, float | None]] = {
    InterruptKind.CLARIFICATION: 24 * 3600,
    InterruptKind.CONFIRMATION: 3600,
    InterruptKind.AGENT_REVIEW: 1800,
    InterruptKind.CHECKPOINT: None,
    InterruptKind.RESOURCE_EXHAUSTED: 300,
    InterruptKind.TIMEOUT: 300,
    InterruptKind.SYSTEM_ERROR: 3600,
}
"""Seconds after which a question expires, by kind; None for never."""
DEFAULT_POLICIES: Final[Mapping[str, InterruptPolicy]] = {
    kind: InterruptPolicy(seconds, auto_expire=seconds is not None, require_response=not accepts_empty_answer(kind))
    for kind, seconds in _LIFETIMES.items()
}
OTHER_POLICY: Final = InterruptPolicy()
"""Policy of kinds that have no policy of their own."""


NOWHERE: Final = Origin()


class InterruptService:
    """Registry of the questions of many requests. Each question can be answered once.

    Several threads may answer the same question at the same time; exactly one answer is accepted.

    Parameters
    ----------
    policies
        Policies by kind of question. `OTHER_POLICY` applies to all other kinds.
    clock
        Function that returns the current time as a datetime with a time zone.
    new_id
        Function that returns a new identifier for a prefix.

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
        # All questions by id, and those that wait for an answer. No lock is needed: the thread that
        # removes a question from `_pending` has answered or ended it, and `dict.pop` returns an entry only once.
        self._records: dict[str, InterruptRecord] = {}
        self._pending: dict[str, InterruptRecord] = {}

    def config(self, kind: str) -> InterruptPolicy:
        """Return the rules (`InterruptPolicy`) for questions of a kind."""
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
        """Register a new question; return its record.

        Parameters
        ----------
        kind
            An `InterruptKind`, or a custom string.
        question, message
            Text shown to the person: the question of a clarification, the message of any other kind.
        data
            Plain data for the person or program that answers.
        ttl_seconds
            Seconds after which the question expires. If this is None, 0 or negative, the policy for the kind of
            question decides.
        origin
            Origin of the question, with the user who may answer.
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
            expires_at=time_after(now, lifetime),
            **asdict(origin),
        )
        self._records[record.id] = self._pending[record.id] = record
        return record

    def create_resource_exhausted(
        self, resource_type: str, retry_after_seconds: float | None = None, *, origin: Origin = NOWHERE
    ) -> InterruptRecord:
        """Register a question of the kind ``resource_exhausted``: a resource, such as a quota, is used up."""
        return self.create(
            InterruptKind.RESOURCE_EXHAUSTED,
            message=f"Resource exhausted: {resource_type}",
            data={"resource_type": resource_type, "retry_after_seconds": retry_after_seconds},
            origin=origin,
        )

    def ask(self, envelope: Envelope, kind: str, **details: Any) -> InterruptRecord:
        """Register a new question and set a copy as the pending question of an envelope; arguments as in `create`."""
        record = self.create(kind, origin=Origin.of(envelope), **details)
        envelope.ask(record.as_interrupt())
        return record

    def answer(
        self, envelope: Envelope, response: InterruptResponse | Mapping[str, Any], user_id: str = ""
    ) -> InterruptRecord | None:
        """Answer the pending question of an envelope, in this registry and in the envelope. Return the record of the
        question; None if `resolve` does not accept the answer.
        """
        pending = envelope.pending_interrupt
        record = None if pending is None else self.resolve(pending.id, response, user_id)
        if record is not None:
            envelope.resolve_interrupt(response)
        return record

    def get(self, id: str) -> InterruptRecord | None:
        """Return the record of a question by id; None if the id is unknown."""
        return self._records.get(id)

    def pending_for_request(self, request_id: str) -> InterruptRecord | None:
        """Return the newest pending question of a request that has not expired; None if there is none."""
        records = [record for record in self._answerable() if record.request_id == request_id]
        return records[-1] if records else None

    def pending_for_session(self, session_id: str, kinds: Collection[str] | None = None) -> list[InterruptRecord]:
        """Return the pending questions of a session that have not expired, oldest first; with `kinds`, only questions
        of these kinds.
        """
        records = [record for record in self._answerable() if record.session_id == session_id]
        return [record for record in records if not kinds or record.kind in kinds]

    def resolve(
        self, id: str, response: InterruptResponse | Mapping[str, Any], user_id: str = ""
    ) -> InterruptRecord | None:
        """Store the answer to a pending question.

        Returns
        -------
        InterruptRecord or None
            The answered question. None if the answer is not accepted: the question does not exist, was answered or
            withdrawn before, belongs to another user, has expired (its status is set), or the answer is empty although
            the kind requires a response (the question stays pending).

        Raises
        ------
        InterruptError
            The answer has an unknown part, or a part of the wrong type. The question stays pending.
        """
        now = self._clock()
        record = self._pending.get(id)
        # Without a user id, the caller answers for any user.
        if record is None or (user_id and user_id != record.user_id):
            return None
        if record.is_expired(now):
            self._finish(record, InterruptStatus.EXPIRED)
            return None
        # All checks come before the question is removed from the pending ones: a refused answer leaves it open.
        answer = InterruptResponse.read(id, response, now)
        if answer.is_empty and self.config(record.kind).require_response:
            return None
        if self._pending.pop(id, None) is None:  # another thread was faster: only one answer counts
            return None
        record.response = answer
        record.resolved_at = now
        record.status = InterruptStatus.RESOLVED
        return record

    def cancel(self, id: str, reason: str = "") -> InterruptRecord | None:
        """Withdraw a pending question and store the reason in its data; return None if the question is not pending."""
        record = self._pending.get(id)
        if record is None or not self._finish(record, InterruptStatus.CANCELLED):
            return None
        record.data = {**(record.data or {}), "cancel_reason": reason}
        return record

    def expire_pending(self) -> int:
        """Mark the pending questions that have expired as ended, if the policy of their kind has `auto_expire`. Return
        their number.
        """
        now = self._clock()
        # Copies of the dicts, here and below: other threads may change them meanwhile.
        due = [record for record in list(self._pending.values()) if record.is_expired(now)]
        return sum(
            self._finish(record, InterruptStatus.EXPIRED) for record in due if self.config(record.kind).auto_expire
        )

    def cleanup(self, older_than: DurationLike) -> int:
        """Delete the records of answered or ended questions that were asked more than `older_than` ago. Return the
        number of deleted records.

        A number is an age in seconds.
        """
        limit = self._clock() - timedelta(seconds=float(seconds_of(older_than, "older_than")))
        over = [
            record
            for record in list(self._records.values())
            if record.status != InterruptStatus.PENDING and record.created_at < limit
        ]
        return sum(self._records.pop(record.id, None) is not None for record in over)

    def stats(self) -> dict[str, int]:
        """Return the total number of questions, and the number of questions with each status."""
        statuses = [record.status for record in list(self._records.values())]
        return {"total": len(statuses)} | {str(status): statuses.count(status) for status in InterruptStatus}

    def _finish(self, record: InterruptRecord, status: InterruptStatus) -> bool:
        """Set the final status of a pending question. Return False if another thread has answered or ended the question
        first.
        """
        if self._pending.pop(record.id, None) is None:
            return False
        record.status = status
        return True

    def _answerable(self) -> list[InterruptRecord]:
        now = self._clock()
        return [record for record in list(self._pending.values()) if not record.is_expired(now)]
