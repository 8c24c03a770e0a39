"""Questions that one answer does for: those of one step of a workflow that want the same.

The page offers the same (`sortOf` and `forOthers` in ``widgets/src/prompt/kinds.ts``).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from divebook.events.codec import encode_shown
from divebook.questions.kinds import AGENT_CHANGED, JUDGED, OUTCOME_UNKNOWN, RESOURCE_EXHAUSTED
from divebook.questions.question import Question

OF_ITS_OWN = frozenset({OUTCOME_UNKNOWN, RESOURCE_EXHAUSTED, AGENT_CHANGED})
"""Kinds of which each question is about one call, or one run, alone."""
_ABOUT = ("agent", "tool", "action")


def sort_of(workflow: str, question: Question) -> Hashable | None:
    """Return what questions that one answer does for have in common; None if each needs its own."""
    if question.kind in OF_ITS_OWN:
        return None
    about = tuple(str((question.data or {}).get(name)) for name in _ABOUT)
    return workflow, question.kind, question.step, encode_shown(question.schema), about


def for_others(question: Question, response: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer in full as it may be given to others: changed arguments and rules are of one call alone."""
    is_judged = question.kind in JUDGED
    return {name: value for name, value in response.items() if not (is_judged and name == "data")}
