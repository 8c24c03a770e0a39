"""An envelope as it stands in the log of its execution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from divebook.engine.state import ExecutionState
from divebook.errors import ResumeError
from divebook.pipeline.envelope import Envelope, FlowInterrupt, SlotNames, of_execution
from divebook.questions import Question
from divebook.workflow.definition import Workflow
from divebook.workflow.pipeline_steps import ENVELOPE, SLOTS, STATE, is_pipeline


def envelope_of(state: ExecutionState, workflow: Workflow | None) -> Envelope:
    """Return the envelope of an execution: of a pipeline the one that passes through its stages, else its own state.

    An execution of a pipeline that has not started has no envelope in its log yet; its own state stands for it.
    """
    if workflow is None or not is_pipeline(workflow) or not state.inputs:
        return of_execution.envelope_of(state, [] if workflow is None else [step.name for step in workflow.steps])
    envelope = Envelope.from_state_dict(state_of(state), slot_names=slots_from(state.inputs.get(SLOTS)))
    reflect(envelope, state, workflow)
    return envelope


def reflect(envelope: Envelope, state: ExecutionState, workflow: Workflow) -> None:
    """Bring an envelope, in place, up to the state of its execution."""
    envelope.take_over(state_of(state))
    question = question_inside(state, workflow)
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


def question_inside(state: ExecutionState, workflow: Workflow) -> Question | None:
    """Return a question that is asked in the middle of a stage: an approval, or an unknown outcome.

    The envelope knows nothing of it, since its stage has not ended.
    """
    if not is_pipeline(workflow):
        return None
    start = workflow.start.name
    return next((question for question in state.pending_interrupts() if question.step != start), None)


def slots_from(written: Mapping[str, Any] | None) -> SlotNames:
    """Return slot names as `slots_to` wrote them."""
    return SlotNames() if not written else SlotNames(**written)


def slots_to(names: SlotNames) -> dict[str, Any]:
    """Return slot names as plain data."""
    resets = {"retry_reset": sorted(names.retry_reset), "advance_reset": sorted(names.advance_reset)}
    return resets | {"archive": names.archive, "response": names.response, "response_key": names.response_key}
