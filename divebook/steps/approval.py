"""Calls that a person must approve first, and may change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divebook.errors import ApprovalDeniedError
from divebook.execution.context import StepContext
from divebook.questions.kinds import CONFIRMATION

EDITED = {
    "type": "object",
    "properties": {"parameters": {"type": "object"}},
    "required": ["parameters"],
    "additionalProperties": False,
}
"""JSON schema of the data that an approval may come with."""


async def approved(
    context: StepContext, kind: str, name: str, parameters: dict[str, Any], *, description: str = "", key: str
) -> dict[str, Any]:
    """Return the parameters with which a call may be made: those that were shown, or what the person made of them.

    Both come from the record of the question and its answer, not from the code that asked, which may have changed.

    Parameters
    ----------
    kind
        What is called: ``action`` or ``step``.
    key
        Name of the question within the step.

    Raises
    ------
    ApprovalDeniedError
        The answer was anything but an approval.
    """
    question = f"Run {name}?"
    shown = {kind: name, "parameters": parameters}
    answered = await context.interrupt(
        CONFIRMATION, question, message=description or None, data=shown, schema=EDITED, key=key
    )
    response: Mapping[str, Any] = answered.response or {}
    if response.get("approved") is not True:
        raise ApprovalDeniedError(question, response.get("text") or "")
    return dict((response.get("data") or answered.data or {}).get("parameters", parameters))
