"""A question, from the moment code asks it until it is settled."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from divebook.events.catalog import InterruptResolved
from divebook.events.event import to_datetime
from divebook.events.values import normalize
from divebook.questions.kinds import EXPIRED, PENDING, RESOLVED


class Question(NamedTuple):
    """A question to a person and, once there is one, its answer.

    What code asks has neither id nor place yet; the log gives it both, and everybody reads it from there.
    """

    id: str
    """``ask_...``; in the log and in messages it is called ``interrupt_id``."""
    kind: str
    question: str
    path: str = ""
    step: str = ""
    message: str | None = None
    """More than the question itself, for people."""
    data: Mapping[str, Any] | None = None
    schema: Mapping[str, Any] | None = None
    """JSON schema of the value that is asked for."""
    operation_id: str | None = None
    """The call that waits for the answer, if it is one."""
    raised_us: int = 0
    expires_us: int | None = None
    """When it expires, microseconds since 1970; None for never."""
    default: Mapping[str, Any] | None = None
    """The response, in full form, that holds once it has expired; without one the step fails then."""
    optional: bool = False
    """Whether an empty answer will do."""
    status: str = PENDING
    """One of `divebook.questions.kinds.InterruptStatus`."""
    response: Any = None
    answered_by: str | None = None
    settled_us: int | None = None
    waiting: tuple[str, ...] = ()
    """The paths that wait for the answer."""

    @property
    def interrupt_id(self) -> str:
        """Its id, as the log and messages call it."""
        return self.id

    @property
    def is_open(self) -> bool:
        """Whether it waits for an answer, as far as its log says."""
        return self.status == PENDING

    @property
    def order(self) -> tuple[int, str]:
        """What sorts questions, the oldest first."""
        return self.raised_us, self.id

    def resolved(self, data: InterruptResolved) -> Question:
        """Return it with the answer that somebody gave."""
        return self._replace(status=RESOLVED, response=data.response, answered_by=data.answered_by)

    def expired(self) -> Question:
        """Return the question as it is once it has expired: its default, if there is one, is the answer."""
        return self._replace(status=EXPIRED, response=self.default)

    @property
    def raised_at(self) -> datetime:
        """When it was asked, UTC."""
        return to_datetime(self.raised_us)

    @property
    def expires_at(self) -> datetime | None:
        """When it expires, UTC; None for never."""
        return None if self.expires_us is None else to_datetime(self.expires_us)

    @property
    def content(self) -> dict[str, Any]:
        """What a person is shown and answers, as plain data: the same for equal questions of any execution.

        An answer releases exactly this and nothing else, so replay compares it with what the code asks now
        (test_no_answer_reaches_a_question_that_differs_from_the_one_that_was_shown).
        """
        return {
            "kind": self.kind,
            "question": self.question,
            "message": self.message or None,
            "data": normalize(self.data, "data") or None,
            "schema": normalize(self.schema, "schema") or None,
            "operation": self.operation_id,
        }
