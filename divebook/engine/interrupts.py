"""Questions and which answers fit them: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divebook.engine.state import PENDING, Interrupt
from divebook.errors import InterruptError

OUTCOME_UNKNOWN = "outcome_unknown"
RETRY, DONE, FAIL = "retry", "done", "fail"
"""Answers to a question about an unknown outcome: make the call again, take it as done, take it as failed."""


def checked_response(question: Interrupt, response: Any) -> Any:
    """Return the response in its full form.

    Raises
    ------
    InterruptError
        The question has an answer already (the error shows it), or this one does not fit.
    """
    if question.status != PENDING:
        raise InterruptError(question.interrupt_id, f"it was answered already, with {question.response!r}")
    if question.kind == OUTCOME_UNKNOWN:
        return _checked_choice(question.interrupt_id, response)
    return response


def _checked_choice(interrupt_id: str, response: Any) -> dict[str, Any]:
    answer = {"choice": response} if isinstance(response, str) else response
    if not isinstance(answer, Mapping) or answer.get("choice") not in (RETRY, DONE, FAIL):
        raise InterruptError(interrupt_id, f"answer with retry, done or fail, not {response!r}")
    return dict(answer)
