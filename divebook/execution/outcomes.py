"""Calls that may or may not have taken effect: a person is asked to look and to say which.

A log that has the beginning of a call and not its end cannot tell a call that was never made from one that was made.
To make it again could pay twice, to fail it could lose a payment, so neither is done without a word from a person
(`tests/execution/test_unknown_outcomes.py`). Only calls that are declared idempotent are simply made again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from divebook.engine.operations import (
    ACTION_EXECUTION,
    STEP_EXECUTION,
    TOOL_CALL,
    Place,
    operation_arguments,
    operation_name,
)
from divebook.engine.records import OperationRecord
from divebook.events import catalog
from divebook.events.codec import storable
from divebook.execution.divergence import in_short
from divebook.execution.once import Once
from divebook.execution.waits import Waits
from divebook.questions.kinds import DONE, FAIL, OUTCOME_UNKNOWN, RETRY

_KERNEL = "ipykernel.kernelapp"
REPEATING = "If it may be called twice, define its function with idempotent=True: Retry then makes such calls again."
MOST_ARGUMENTS = 10
"""Of a call, told in its question; all of them are in its data."""


class Settled(NamedTuple):
    """A person's answer about a call whose outcome was unknown."""

    again: bool
    """It is to be made again."""
    result: Any = None


class UnknownOutcomes:
    """Asks about each beginning of a call once."""

    def __init__(self, once: Once, waits: Waits) -> None:
        self._once, self._waits = once, waits

    async def settle(
        self,
        place: Place,
        record: OperationRecord,
        parameters: Any,
        cause: str | None,
        *,
        done: Callable[[Any], Any] | None = None,
        seen: str = "",
    ) -> Settled:
        """Return what a person says of a call that began and has no outcome in the log; `cause` is why, if known.

        `done` makes of what that person gives as its result what the call would have returned; `seen` is told of what
        can be seen of it.

        Raises
        ------
        Suspended
            The question has no answer yet.
        OperationError
            The answer is that it failed.
        """
        state = self._once.journal.state
        question_id = state.question_id(record.operation_id, record.started_sequence)
        if question_id not in state.interrupts:
            message = _why(cause) + _given(parameters) + seen + _advice(record, cause)
            self._ask(place, record, question_id, parameters, message)
        response = (await self._waits.answer(place.path, question_id)).response
        if response["choice"] == RETRY:
            return Settled(again=True)
        now = self._once.journal.clock.now()
        if response["choice"] == FAIL:
            error = response.get("error") or "its outcome is unknown, and a person called it failed"
            raise self._once.fail(place, record, error, since=now)
        result = response.get("result")
        if done is not None:
            result = storable(done(result), "result")
        self._once.complete(place, record, result, since=now)
        return Settled(again=False, result=result)

    def _ask(self, place: Place, record: OperationRecord, question_id: str, parameters: Any, message: str) -> None:
        raised = catalog.InterruptRaised(
            question_id,
            OUTCOME_UNKNOWN,
            f"Did the call to {_called(record, parameters, place)} go through?",
            message=message,
            data={"parameters": parameters, "choices": [RETRY, DONE, FAIL]},
            operation_id=record.operation_id,
        )
        self._once.record(place, raised)


def _called(record: OperationRecord, parameters: Any, place: Place) -> str:
    """Return what was called, as people know it; of a tool also by whom."""
    by = f" by {parameters['agent']}" if record.operation_type == TOOL_CALL and parameters.get("agent") else ""
    return f"{operation_name(record.operation_type, parameters) or place.step}{by}"


def _why(cause: str | None) -> str:
    if cause is not None:
        return f"It began, and then: {cause}."
    return f"The {'kernel' if _KERNEL in sys.modules else 'process'} stopped after it began, or the run was cancelled."


def _advice(record: OperationRecord, cause: str | None) -> str:
    """Return what lets a person's own function be tried again without a question, where an error has led to it."""
    is_own = record.operation_type in (ACTION_EXECUTION, STEP_EXECUTION)
    return f" {REPEATING}" if is_own and cause is not None else ""


def _given(parameters: Any) -> str:
    """Return what a call was made with, on the line of the question: who decides need not open anything."""
    given = operation_arguments(parameters) or {}
    told = ", ".join(f"{name} = {in_short(value)}" for name, value in list(given.items())[:MOST_ARGUMENTS])
    return f" It was called with {told}." if told else ""
