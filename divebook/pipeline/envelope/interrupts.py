"""Questions of an envelope to a person, their answers, and the enumerations of the envelope's fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Protocol

from divebook.errors import InterruptError, did_you_mean
from divebook.events.event import to_datetime
from divebook.pipeline.envelope.plain import SPARSE, EnvelopePart, copied, copied_map, deep_copy, plain_part
from divebook.questions import Question
from divebook.questions.answer import PART_TYPES, is_empty_answer, wrong_part
from divebook.questions.question import (
    CLARIFICATION,
    DEFINABLE,
    KINDS,
    RESOURCE_EXHAUSTED,
    InterruptKind,
    InterruptStatus,
    Word,
    is_expired_unanswered,
    is_overdue,
)
from divebook.questions.wording import pipeline_stopped
from divebook.text.arguments import DurationLike, seconds_of

# --- enumerations of the envelope's fields ----------------------------------------------------------------------------
#
# Members compare equal to their strings. `read` keeps a string that is not a member, so that a state written by another
# version of divebook stays readable.


class ReasonClass(Word):
    """Category of a `TerminalReason`: completed, waiting for a person, stopped at a bound, or failed."""

    COMPLETED = "completed"
    WAITING = "waiting"
    BOUNDS_EXCEEDED = "bounds_exceeded"
    FAILED = "failed"


class TerminalReason(Word):
    """Reason why an envelope ended, or why no stage may run now."""

    COMPLETED_SUCCESSFULLY = "completed_successfully"
    COMPLETED = "completed"
    CLARIFICATION_REQUIRED = "clarification_required"
    CONFIRMATION_REQUIRED = "confirmation_required"
    DENIED_BY_POLICY = "denied_by_policy"
    POLICY_VIOLATION = "policy_violation"
    TOOL_FAILED_RECOVERABLY = "tool_failed_recoverably"
    TOOL_FAILED_FATALLY = "tool_failed_fatally"
    LLM_FAILED_FATALLY = "llm_failed_fatally"
    MAX_ITERATIONS_EXCEEDED = "max_iterations_exceeded"
    MAX_LLM_CALLS_EXCEEDED = "max_llm_calls_exceeded"
    MAX_AGENT_HOPS_EXCEEDED = "max_agent_hops_exceeded"
    MAX_LOOP_EXCEEDED = "max_loop_exceeded"
    MAX_TOKENS_EXCEEDED = "max_tokens_exceeded"
    MAX_COST_EXCEEDED = "max_cost_exceeded"
    MAX_SECONDS_EXCEEDED = "max_seconds_exceeded"
    MAX_REPEATS_EXCEEDED = "max_repeats_exceeded"
    MAX_DEPTH_EXCEEDED = "max_depth_exceeded"
    MAX_DESCENDANTS_EXCEEDED = "max_descendants_exceeded"
    MAX_STAGE_VISITS_EXCEEDED = "max_stage_visits_exceeded"
    BREAK_REQUESTED = "break_requested"
    USER_CANCELLED = "user_cancelled"

    @property
    def classification(self) -> ReasonClass:
        """Category of the reason: completed, waiting for a person, stopped at a bound, or failed."""
        # The names follow the categories, so that a new bound needs no entry here.
        if self.value.startswith("max_"):
            return ReasonClass.BOUNDS_EXCEEDED
        if self.value.endswith("_required"):
            return ReasonClass.WAITING
        completed = (TerminalReason.COMPLETED_SUCCESSFULLY, TerminalReason.COMPLETED, TerminalReason.BREAK_REQUESTED)
        return ReasonClass.COMPLETED if self in completed else ReasonClass.FAILED


class RiskApproval(Word):
    """Decision of a person about a risky tool call."""

    APPROVED = "approved"
    DENIED = "denied"
    REQUIRES_CONFIRMATION = "requires_confirmation"
    PENDING = "pending"


class RiskLevel(Word):
    """Level of the harm that a tool call could cause."""

    READ_ONLY = "read_only"
    WRITE = "write"
    DESTRUCTIVE = "destructive"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def requires_confirmation(self) -> bool:
        """True for those risk levels at which a person must confirm a tool call before it runs."""
        return self in (RiskLevel.DESTRUCTIVE, RiskLevel.HIGH, RiskLevel.CRITICAL)


class LoopVerdict(Word):
    """Verdict of a stage that reviews other outputs. The routing rules of the pipeline determine its effect."""

    PROCEED = "proceed"
    LOOP_BACK = "loop_back"
    ADVANCE = "advance"
    ESCALATE = "escalate"


class ProcessingStatus(Word):
    """Status of an agent's run in a stage. The method `read` returns an unknown status as a plain string."""

    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    SKIPPED = "skipped"


class GoalStatus(Word):
    """Status of one goal of an envelope."""

    PENDING = "pending"
    SATISFIED = "satisfied"


@dataclass(slots=True)
class InterruptResponse(EnvelopePart):
    """Answer to a question of an envelope. A part of the answer (text, approval, decision, data) that is None was not
    given; an empty text and False count as given.
    """

    text: str | None = field(default=None, metadata=SPARSE)
    """Text that answers a clarification."""
    approved: bool | None = field(default=None, metadata=SPARSE)
    """Decision about a confirmation. Only True is an approval."""
    decision: str | None = field(default=None, metadata=SPARSE)
    """Decision of a review: ``approve``, ``reject``, ``modify``, or another word that the asking stage understands."""
    data: dict[str, Any] | None = field(default=None, metadata=SPARSE)
    received_at: datetime | None = None
    """Set by the code that receives the answer."""

    @classmethod
    def read(cls, interrupt_id: str, given: InterruptResponse | Mapping[str, Any], now: datetime) -> InterruptResponse:
        """Check an answer to a question and return a copy of it, with `now` as the time of receipt.

        Raises
        ------
        InterruptError
            The answer has an unknown part, or a part of the wrong type.
        """
        if isinstance(given, InterruptResponse):
            given = parts_of_response(given)
        if not isinstance(given, Mapping):
            raise InterruptError(interrupt_id, f"answer with a mapping such as {{'text': ...}}, not {given!r}")
        # The time of receipt is that of this process, whatever the answer contains.
        parts = {key: value for key, value in given.items() if key != "received_at"}
        unknown = next((key for key in parts if key not in _PART_TYPES), None)
        if unknown is not None:
            advice = did_you_mean(str(unknown), _PART_TYPES) or f"valid keys: {', '.join(_PART_TYPES)}"
            raise InterruptError(interrupt_id, f"unknown key {unknown!r} in an answer; {advice}")
        wrong = wrong_part(parts, _PART_TYPES)
        if wrong is not None:
            expected = _PART_TYPES[wrong].__name__
            raise InterruptError(interrupt_id, f"{wrong} must be a {expected}, not {parts[wrong]!r}")
        return cls(**deep_copy(parts, "response"), received_at=now)

    @classmethod
    def of(cls, question: Question) -> InterruptResponse | None:
        """Convert the answer to a question of an execution to an `InterruptResponse`; return None if the question is
        open, or expired without an answer.
        """
        if question.is_open or is_expired_unanswered(question):
            return None
        settled = to_datetime(question.settled_us or 0)
        return cls(**copied_map(parts_of(question.response), "response"), received_at=settled)

    @property
    def is_empty(self) -> bool:
        """True if the answer has no text, no decision and no data. A refusal (`approved` is False) is not empty."""
        return is_empty_answer(parts_of_response(self))

    def to_dict(self) -> dict[str, Any]:
        """Return the time of receipt, and those parts of the answer that are not None, as plain data."""
        return plain_part(self, InterruptResponse, "response")


@dataclass(slots=True)
class FlowInterrupt(EnvelopePart):
    """Question of an envelope to a person. The pipeline stops until the question is answered or withdrawn."""

    kind: InterruptKind | str
    id: str
    created_at: datetime
    question: str = ""
    """Text to show, if the question is a clarification."""
    message: str = ""
    """Text to show, if the question is of any other kind, such as a confirmation."""
    data: dict[str, Any] | None = None
    response: InterruptResponse | None = field(default=None, metadata=SPARSE)
    expires_at: datetime | None = field(default=None, metadata=SPARSE)

    @classmethod
    def of(cls, question: Question) -> FlowInterrupt:
        """Convert a question of an execution to a question of an envelope, with the answer if it has one."""
        return cls(
            kind=InterruptKind.read(question.kind),
            id=question.id,
            created_at=question.raised_at,
            question=question.question,
            message=question.message or "",
            data=None if question.data is None else copied_map(question.data, "interrupt.data"),
            response=InterruptResponse.of(question),
            expires_at=question.expires_at,
        )

    def clone(self) -> FlowInterrupt:
        """Return an independent deep copy of the question, with the same id, data and answer.

        Raises
        ------
        UncopyableValueError
            The data contain a value that cannot be copied.
        """
        copy: FlowInterrupt = copied(self, "interrupt")
        return copy

    def is_expired(self, now: datetime) -> bool:
        """Return True if the question has an expiry time and that time has passed at `now`."""
        return is_overdue(self.expires_at, now)

    def to_dict(self) -> dict[str, Any]:
        """Return the question as plain data. The keys ``expires_at`` and ``response`` are left out if they are None."""
        return plain_part(self, FlowInterrupt, "interrupt")


# --- questions in the registry of `divebook.pipeline.envelope.service` ------------------------------------------------


class _RequestIds(Protocol):
    """Protocol of objects, such as envelopes, that have the identifiers of a request, user, session and envelope."""

    request_id: str
    user_id: str
    session_id: str
    envelope_id: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a question: ids of the pipeline request, user, session, envelope and trace. All fields may be empty."""

    request_id: str = ""
    user_id: str = ""
    """User who may answer."""
    session_id: str = ""
    envelope_id: str = ""
    trace_id: str = ""
    span_id: str = ""

    @classmethod
    def of(cls, envelope: _RequestIds) -> Origin:
        """Return the origin of all questions of an envelope: its ids of request, user, session and envelope."""
        return cls(envelope.request_id, envelope.user_id, envelope.session_id, envelope.envelope_id)


@dataclass(slots=True)
class InterruptRecord(FlowInterrupt):
    """Question in the registry `InterruptService`, with its origin (ids of the request, user and others) and status.
    The registry updates the status and the answer.
    """

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
        """Origin of the question: ids of the pipeline request, user, session, envelope and trace."""
        return Origin(**{each.name: getattr(self, each.name) for each in fields(Origin)})

    def to_dict(self) -> dict[str, Any]:
        """Return the question, its status and its origin (ids of the request, user and others) as plain data."""
        return plain_part(self, InterruptRecord, "interrupt")

    def as_interrupt(self) -> FlowInterrupt:
        """Return an independent copy of the question as a `FlowInterrupt`, which has neither a status nor an origin
        (ids of the request, user and others).
        """
        question = copied(self, "interrupt")
        return FlowInterrupt(**{each.name: getattr(question, each.name) for each in fields(FlowInterrupt)})


# --- conversion between questions of envelopes and of executions ------------------------------------------------------


def time_after(now: datetime, duration: DurationLike | None) -> datetime | None:
    """Return the time that is `duration` after `now`; None if `duration` is None."""
    if duration is None:
        return None
    return now + timedelta(seconds=float(seconds_of(duration, "the lifetime of a question")))


def as_question(interrupt: FlowInterrupt) -> Question:
    """Convert a question of an envelope to a question of an execution, so that the same rules check the answers to
    both.
    """
    # A kind that the engine does not know is asked as a clarification, which accepts any text.
    kind = str(interrupt.kind) if interrupt.kind in DEFINABLE else CLARIFICATION
    text = interrupt.question or interrupt.message or pipeline_stopped(interrupt.kind)
    return Question(
        interrupt.id,
        kind,
        text,
        message=interrupt.message if interrupt.message != text else None,
        data=interrupt.data,
        optional=accepts_empty_answer(kind, interrupt.data),
    )


def accepts_empty_answer(kind: str, data: Mapping[str, Any] | None = None) -> bool:
    """Return True if the question of an envelope may be answered without a text, decision or data."""
    # A question about a bound needs a decision, "raise" or "stop". Other exhausted resources only need a reply.
    if kind == RESOURCE_EXHAUSTED:
        return "limit" not in (data or {})
    return kind in KINDS and KINDS[kind].optional


def parts_of_response(response: InterruptResponse) -> dict[str, Any]:
    """Return those parts of the answer to a question of an envelope that were given, without the time of receipt."""
    parts = {part: getattr(response, part) for part in _PART_TYPES}
    return {part: value for part, value in parts.items() if value is not None}


def parts_of(answer: Mapping[str, Any] | None) -> dict[str, Any]:
    """Convert the answer that an execution has recorded to the parts of an `InterruptResponse`: text, approved,
    decision, data.
    """
    parts = {part: answer[part] for part in _PART_TYPES if part in answer} if answer else {}
    if answer and not parts:  # the answer about an unknown outcome has other parts
        parts = {"decision": str(answer.get("choice")), "data": dict(answer)}
    if "data" in parts and not isinstance(parts["data"], dict):
        # The field `data` is a dict, but the answer to a question of an execution may have a list or a number there.
        parts["data"] = {"value": parts["data"]}
    return parts


_PART_TYPES = {**PART_TYPES, "data": dict}


__all__ = [
    "GoalStatus",
    "InterruptKind",
    "InterruptStatus",
    "LoopVerdict",
    "ProcessingStatus",
    "ReasonClass",
    "RiskApproval",
    "RiskLevel",
    "TerminalReason",
]
