"""Calls that may or may not have taken effect: a person is asked to look and to say which.

A log that has the beginning of a call and not its end cannot tell a call that was never made from one that was made.
To make it again could pay twice, to fail it could lose a payment, so neither is done without a word from a person
(`tests/execution/test_unknown_outcomes.py`). Only calls that are declared idempotent are simply made again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from divebook.engine.operations import TOOL_CALL, Place
from divebook.engine.records import OperationRecord
from divebook.events import catalog
from divebook.events.codec import storable
from divebook.execution.divergence import in_short
from divebook.execution.once import Once
from divebook.execution.waits import Waits
from divebook.questions.kinds import DONE, FAIL, OUTCOME_UNKNOWN, RETRY


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
        done: Callable[[Any], Any] | None = None,
    ) -> Settled:
        """Return what a person says of a call that began and has no outcome in the log; `cause` is why, if known.

        `done` makes of what that person gives as its result what the call would have returned.

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
            self._ask(place, record, question_id, parameters, cause)
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

    def _ask(self, place: Place, record: OperationRecord, question_id: str, parameters: Any, cause: str | None) -> None:
        why = "" if cause is None else f" ({cause})"
        question = (
            f"It is not known whether {_call_text(record, parameters, place)} took effect: it began and has no "
            f"recorded outcome{why}. Look, then answer retry, done (with its result) or fail"
        )
        data = {"parameters": parameters, "choices": [RETRY, DONE, FAIL]}
        raised = catalog.InterruptRaised(
            question_id, OUTCOME_UNKNOWN, question, data=data, operation_id=record.operation_id
        )
        self._once.record(place, raised)


def _call_text(record: OperationRecord, parameters: Any, place: Place) -> str:
    """Return a call in words; of a tool, which people do not know by its step, also what it was called with."""
    if record.operation_type != TOOL_CALL:
        return f"{record.operation_type} of step {place.step!r}"
    called = f"the call of the tool {parameters.get('tool')!r} with {in_short(parameters.get('arguments'))}"
    return f"{called} by {parameters['agent']!r}" if parameters.get("agent") else called
