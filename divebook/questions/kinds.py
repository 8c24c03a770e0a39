"""The kinds of question, and the words of their answers and their standing: the only list of each."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple, Self


class Word(StrEnum):
    """A text of a known vocabulary, which compares equal to its plain form.

    `read` keeps a text that no member has, so that what another version wrote stays readable.
    """

    @classmethod
    def read(cls, text: str) -> Self | str:
        """Return the member, or the text itself if there is none."""
        try:
            return cls(text)
        except ValueError:
            return text


class InterruptKind(Word):
    """What a question is about."""

    CLARIFICATION = "clarification"
    CONFIRMATION = "confirmation"
    AGENT_REVIEW = "agent_review"
    CHECKPOINT = "checkpoint"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    TIMEOUT = "timeout"
    SYSTEM_ERROR = "system_error"
    OUTCOME_UNKNOWN = "outcome_unknown"
    AGENT_CHANGED = "agent_changed"


class InterruptStatus(Word):
    """Where a question stands; all but `PENDING` are final."""

    PENDING = "pending"
    RESOLVED = "resolved"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


CLARIFICATION: Final = InterruptKind.CLARIFICATION.value
CONFIRMATION: Final = InterruptKind.CONFIRMATION.value
AGENT_REVIEW: Final = InterruptKind.AGENT_REVIEW.value
CHECKPOINT: Final = InterruptKind.CHECKPOINT.value
RESOURCE_EXHAUSTED: Final = InterruptKind.RESOURCE_EXHAUSTED.value
TIMEOUT: Final = InterruptKind.TIMEOUT.value
SYSTEM_ERROR: Final = InterruptKind.SYSTEM_ERROR.value
OUTCOME_UNKNOWN: Final = InterruptKind.OUTCOME_UNKNOWN.value
AGENT_CHANGED: Final = InterruptKind.AGENT_CHANGED.value

PENDING: Final = InterruptStatus.PENDING.value
RESOLVED: Final = InterruptStatus.RESOLVED.value
EXPIRED: Final = InterruptStatus.EXPIRED.value
CANCELLED: Final = InterruptStatus.CANCELLED.value

RETRY, DONE, FAIL = "retry", "done", "fail"
"""Answers to a question about an unknown outcome: make the call again, take it as done, take it as failed."""
FINISH, ANEW = "finish", "anew"
"""Answers to a question about an agent that has changed: finish its turn with what it began with, or begin it anew."""
RAISE, STOP = "raise", "stop"
"""Answers to a question about a bound: raise it and go on, or stop."""
APPROVE, REJECT, MODIFY = "approve", "reject", "modify"
JUDGED = (CONFIRMATION, AGENT_REVIEW)
"""Kinds that a word answers, perhaps with a reason; the schema of one is that of data which may come with the word."""
YES, NO = ("yes", "y", "true", "approve", "approved"), ("no", "n", "false", "deny", "denied", "reject")


class KindOfQuestion(NamedTuple):
    """What holds for all questions of a kind."""

    wanted: str
    """What a person may answer, in a few words."""
    example: str
    """An answer as it can be typed; in capitals what is to be replaced."""
    optional: bool = False
    """Whether an empty answer settles it, where the question does not say otherwise."""
    definable: bool = True
    """Whether a definition may ask such a question; the others are asked by the engine alone."""


KINDS: Final[dict[str, KindOfQuestion]] = {
    CLARIFICATION: KindOfQuestion("a text", "TEXT"),
    CONFIRMATION: KindOfQuestion("yes or no", "yes"),
    AGENT_REVIEW: KindOfQuestion("approve, reject or modify (with data)", APPROVE),
    CHECKPOINT: KindOfQuestion("a text", "seen", optional=True),
    RESOURCE_EXHAUSTED: KindOfQuestion("raise, the new bound as a number, or stop", RAISE),
    TIMEOUT: KindOfQuestion("a text", "TEXT", optional=True),
    SYSTEM_ERROR: KindOfQuestion("a text", "TEXT", optional=True),
    OUTCOME_UNKNOWN: KindOfQuestion("retry, done or fail (done: with its result)", RETRY, definable=False),
    AGENT_CHANGED: KindOfQuestion("finish (as it began) or anew (begin again), as offered", ANEW, definable=False),
}
DEFINABLE: Final = tuple(kind for kind, about in KINDS.items() if about.definable)
"""Kinds of question that a definition, a function or a pipeline may ask."""
