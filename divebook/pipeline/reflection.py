"""An envelope as it stands in the log of its execution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from divebook.engine.state import ExecutionState
from divebook.errors import ResumeError
from divebook.execution.execution import Execution
from divebook.pipeline.compiled import ENVELOPE, STATE
from divebook.pipeline.envelope import Envelope, FlowInterrupt
from divebook.questions import Question
from divebook.workflow.step import STAGE


def reflect(envelope: Envelope, execution: Execution) -> None:
    """Make an envelope, in place, what its execution has made of it."""
    envelope.take_over(state_of(execution.state))
    question = question_inside(execution)
    if question is not None and not envelope.interrupt_pending:
        mirrored = FlowInterrupt.of(question)
        envelope.ask(replace(mirrored, message=mirrored.message or mirrored.question))


def state_of(state: ExecutionState) -> Mapping[str, Any]:
    """Return the envelope's state in the fold of a log.

    Raises
    ------
    ResumeError
        The execution is not one of a pipeline.
    """
    told = state.variables.get(STATE, state.inputs)
    if not isinstance(told, Mapping) or not isinstance(told.get(ENVELOPE), Mapping):
        raise ResumeError(f"execution {state.execution_id} of {state.workflow_name!r} is not one of a pipeline")
    found: Mapping[str, Any] = told[ENVELOPE]
    return found


def question_inside(execution: Execution) -> Question | None:
    """Return a question that an execution asks in the middle of a stage: an approval, or an unknown outcome.

    The envelope knows nothing of it, since its stage has not ended.
    """
    start = execution.workflow.start
    if start.type != STAGE:
        return None
    return next((question for question in execution.interrupts if question.step != start.name), None)
