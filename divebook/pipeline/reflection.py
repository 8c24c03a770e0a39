"""An envelope as it stands in the log of its execution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from divebook.engine.bounds import dollars
from divebook.engine.state import ExecutionState
from divebook.errors import ResumeError
from divebook.events.event import to_datetime
from divebook.pipeline.envelope import (
    Envelope,
    FlowInterrupt,
    ProcessingStatus,
    SlotNames,
    TerminalReason,
    merge_branches,
    of_execution,
)
from divebook.pipeline.envelope.plain import to_text
from divebook.questions import Question
from divebook.workflow.definition import Workflow
from divebook.workflow.pipeline_steps import ENVELOPE, SLOTS, STATE, is_pipeline
from divebook.workflow.pipelines import PipelineConfig

PROCESSING_ERROR = "ProcessingError"
"""The type of the errors of stages."""


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
    _reflect_failure(envelope, state, workflow)
    question = question_inside(state, workflow)
    if question is not None and not envelope.interrupt_pending:
        mirrored = FlowInterrupt.of(question)
        envelope.ask(replace(mirrored, message=mirrored.message or mirrored.question))


def failure_of(stage: str) -> str:
    """Return how the error of an execution begins in which a stage has failed."""
    return f"stage {stage!r} failed: "


def _reflect_failure(envelope: Envelope, state: ExecutionState, workflow: Workflow) -> None:
    """Note the failure of a stage that ended the execution, and what the stages beside it have completed.

    The failure is read off the failed path. The variables do not have it, since a resumption begins the stage with the
    envelope as it was in front of it.
    """
    path = state.paths.get(state.failed_path or "")
    if path is None or path.open is None or path.ended_us is None or envelope.terminated:
        return
    config, error, ended_us = PipelineConfig.from_text(str(workflow.start.script)), path.error or "", path.ended_us
    stage = next((stage for stage in config.agents if error.startswith(failure_of(stage.name))), None)
    if stage is None:
        return
    completed = [branch["value"] for _, branch in sorted(path.open.iterations.items())]
    merge_branches(envelope, [Envelope.from_state_dict(branch[ENVELOPE]) for branch in completed])
    for branch in completed:
        envelope.complete_stage(branch["stage"])
    message, clock = error.removeprefix(failure_of(stage.name)), envelope.clock
    calls = max(0, state.ledger.llm_calls - envelope.llm_call_count)
    envelope.token_count = state.usage.input_tokens + state.usage.output_tokens
    envelope.cost = dollars(state.usage.cost)
    envelope.clock = lambda: to_datetime(ended_us)
    if config.default_run_mode == "parallel":
        envelope.fail_stage(stage.name, message)
    envelope.record_agent_start(stage.name, stage.stage_order)
    envelope.record_agent_complete(stage.name, ProcessingStatus.ERROR, message, calls)
    envelope.errors.append(stage_error(stage.name, message, envelope.clock()))
    reason = TerminalReason.LLM_FAILED_FATALLY if stage.has_llm else TerminalReason.TOOL_FAILED_FATALLY
    envelope.terminate(message, reason)
    envelope.clock = clock


def stage_error(stage: str, message: str, moment: datetime) -> dict[str, Any]:
    """Return the entry of a failed stage among the errors of an envelope."""
    return {"agent": stage, "error": message, "error_type": PROCESSING_ERROR, "timestamp": to_text(moment)}


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
