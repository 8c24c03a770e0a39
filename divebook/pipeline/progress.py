"""Movement of a request through the stages of its pipeline: pure functions of a definition and an envelope."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
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
    InterruptKind,
    ProcessingStatus,
    ReasonClass,
    SlotNames,
    TerminalReason,
    edge_key,
    merge_branches,
)
from divebook.pipeline.envelope import envelope as of_execution
from divebook.pipeline.envelope.plain import to_text
from divebook.questions import Question
from divebook.questions.question import RAISE, STOP
from divebook.workflow.definition import ENVELOPE, SLOTS, STATE, Workflow, is_pipeline
from divebook.workflow.pipelines import ASKING, END, START, AgentStage, PipelineConfig, RunMode

# An envelope as it stands in the log of its execution.


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
    """Update an envelope in place to the state of its execution."""
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
    config = PipelineConfig.from_text(str(workflow.start.script))
    error = path.error or ""
    ended_us = path.ended_us
    stage = next((stage for stage in config.agents if error.startswith(failure_of(stage.name))), None)
    if stage is None:
        return
    completed = [branch["value"] for _, branch in sorted(path.open.iterations.items())]
    merge_branches(envelope, [Envelope.from_state_dict(branch[ENVELOPE]) for branch in completed])
    for branch in completed:
        envelope.complete_stage(branch["stage"])
    message = error.removeprefix(failure_of(stage.name))
    clock = envelope.clock
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
    variables = state.variables.get(STATE, state.inputs)
    if not isinstance(variables, Mapping) or not isinstance(variables.get(ENVELOPE), Mapping):
        raise ResumeError(f"execution {state.execution_id} of {state.workflow_name!r} is not one of a pipeline")
    state_data: Mapping[str, Any] = variables[ENVELOPE]
    return state_data


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


# Which stages of a parallel run may begin: pure.


def ready_stages(
    config: PipelineConfig, completed: Collection[str], failed: Collection[str] = frozenset()
) -> list[str]:
    """Return the stages that may begin, in their order.

    A stage needs what it `requires` to be completed (any one of it for join ``any``), and what it comes `after` to have
    ended: completed, failed, or skipped because something it required failed. A stage that another one names as
    `error_next` is released by that one's failure as well.
    """
    ended = {*completed, *failed, *skipped_stages(config, completed, failed)}
    return [
        stage.name
        for stage in config.agents
        if stage.name not in ended
        and _is_joined(stage, {name for name in stage.requires if _releases(config, name, stage, completed, failed)})
        and ended.issuperset(stage.after)
    ]


def skipped_stages(
    config: PipelineConfig, completed: Collection[str], failed: Collection[str] = frozenset()
) -> list[str]:
    """Return the stages that can never run, because a stage they require has failed or is skipped itself."""
    skipped: dict[str, None] = {}
    while newly_skipped := [
        stage.name
        for stage in config.agents
        if stage.name not in skipped
        and stage.name not in completed
        and stage.name not in failed
        and not _is_joined(
            stage, {name for name in stage.requires if not _is_dead(config, name, stage, failed, skipped)}
        )
    ]:
        skipped |= dict.fromkeys(newly_skipped)
    return list(skipped)


def _is_joined(stage: AgentStage, released: Collection[str]) -> bool:
    """Return True if enough of a stage's requirements are fulfilled."""
    if stage.join_strategy == "any" and stage.requires:
        return bool(released)
    return len(released) == len(set(stage.requires))


def _releases(
    config: PipelineConfig, required: str, stage: AgentStage, completed: Collection[str], failed: Collection[str]
) -> bool:
    return required in completed or (required in failed and _hands_over(config, required, stage))


def _is_dead(
    config: PipelineConfig, required: str, stage: AgentStage, failed: Collection[str], skipped: Collection[str]
) -> bool:
    return required in skipped or (required in failed and not _hands_over(config, required, stage))


def _hands_over(config: PipelineConfig, source: str, stage: AgentStage) -> bool:
    """Return True if a stage is the error handler of another one."""
    source_stage = config.stage(source)
    return source_stage is not None and source_stage.error_next == stage.name


DENIED = "User denied confirmation"
_BOUNDS = {
    TerminalReason.MAX_ITERATIONS_EXCEEDED: ("max_iterations", "iteration"),
    TerminalReason.MAX_LLM_CALLS_EXCEEDED: ("max_llm_calls", "llm_call_count"),
    TerminalReason.MAX_AGENT_HOPS_EXCEEDED: ("max_agent_hops", "agent_hop_count"),
}
"""Bounds that a person can raise: their name, and the count that met them."""
_UNANSWERED: Mapping[str, TerminalReason] = {
    InterruptKind.CLARIFICATION: TerminalReason.CLARIFICATION_REQUIRED,
    InterruptKind.CONFIRMATION: TerminalReason.CONFIRMATION_REQUIRED,
}


# --- beginning and ending ---------------------------------------------------------------------------------------------


def begin(config: PipelineConfig, envelope: Envelope, mode: RunMode) -> None:
    """Put an envelope in front of the first stage; its order and bounds are the pipeline's from now on."""
    take_in(config, envelope)
    envelope.current_stage = config.order[0] if config.order else END
    envelope.parallel_mode = mode == "parallel"
    envelope.edge_counts = {}
    if envelope.parallel_mode:
        envelope.active_stages = {}
        envelope.completed_stage_set = {}
        envelope.failed_stages = {}


def take_in(config: PipelineConfig, envelope: Envelope) -> None:
    """Give an envelope the order and the bounds of the pipeline."""
    envelope.stage_order = list(config.order)
    envelope.max_iterations = config.max_iterations
    envelope.max_llm_calls = config.max_llm_calls
    envelope.max_agent_hops = config.max_agent_hops


def finish_at_end(envelope: Envelope) -> None:
    """Mark an envelope as complete if it has reached its end regularly."""
    if envelope.current_stage != END or envelope.terminated or envelope.interrupt_pending:
        return
    if envelope.terminal_reason is None or _is_bound(envelope.terminal_reason):
        envelope.terminal_reason = TerminalReason.COMPLETED


def reopen(envelope: Envelope, config: PipelineConfig) -> None:
    """Start an envelope again at its current stage. An envelope that has not begun starts at the first stage."""
    if envelope.current_stage == START and config.stage(START) is None:
        envelope.current_stage = config.order[0] if config.order else END
    if not envelope.terminated and envelope.terminal_reason == TerminalReason.COMPLETED:
        envelope.terminal_reason = None


def _is_bound(reason: TerminalReason | str) -> bool:
    return isinstance(reason, TerminalReason) and reason.classification is ReasonClass.BOUNDS_EXCEEDED


# --- what is next -----------------------------------------------------------------------------------------------------


def choose(config: PipelineConfig, envelope: Envelope) -> list[str]:
    """Return the stages that run next: one, or in parallel mode all that are ready; none where it ends or must stop."""
    if envelope.terminated:
        return []
    # The end is checked first, since `reopen` would discard the reason of an envelope that has ended regularly.
    # Stages of a batch are started only after all checks have passed.
    batch = ready(config, envelope) if envelope.parallel_mode else []
    if envelope.parallel_mode:
        envelope.current_stage = batch[0] if batch else END
    if envelope.current_stage == END:
        finish_at_end(envelope)
        return []
    reopen(envelope, config)
    if not envelope.can_continue():
        return []
    if not _may_enter(config, envelope):
        return []
    for name in batch:
        envelope.start_stage(name)
    return batch or [envelope.current_stage]


def _may_enter(config: PipelineConfig, envelope: Envelope) -> bool:
    """Return True if the envelope's stage exists and has visits left. Otherwise the request ends."""
    name = envelope.current_stage
    stage = config.stage(name)
    if stage is None:
        envelope.terminate(f"Unknown stage: {name}", TerminalReason.TOOL_FAILED_FATALLY)
        return False
    visits = sum(record.agent == name for record in envelope.processing_history)
    if 0 < stage.max_visits <= visits:
        envelope.terminate(f"Stage visits exceeded: {name}", TerminalReason.MAX_STAGE_VISITS_EXCEEDED)
        return False
    return True


def ready(config: PipelineConfig, envelope: Envelope) -> list[str]:
    """Return the stages that may begin in parallel mode."""
    completed = {name for name, done in envelope.completed_stage_set.items() if done}
    return ready_stages(config, completed, envelope.failed_stages.keys())


def go_on(
    config: PipelineConfig,
    envelope: Envelope,
    stage: AgentStage,
    target: str,
    output: Mapping[str, Any],
    *,
    keeps_feedback: bool = True,
) -> None:
    """Move an envelope from a stage to a target.

    Another stage counts an edge. An earlier one counts an iteration as well, and takes the ``feedback`` of the output
    along. An edge that was passed too often ends the request. A target that asks raises its question with the
    ``question`` or ``message`` of the output, and the request stays at the stage.

    Parameters
    ----------
    keeps_feedback
        False for executions whose log was begun by a version that dropped the feedback: they are replayed as recorded.
    """
    if target in ASKING:
        _raise_question(envelope, target, output)
        target = stage.name
    elif target not in (stage.name, END):
        feedback = feedback_in(output) if keeps_feedback else None
        target = _pass_edge(config, envelope, stage.name, target, feedback)
    envelope.current_stage = target
    finish_at_end(envelope)


def feedback_in(output: Mapping[str, Any]) -> str | None:
    """Return the feedback of an output as a string: a list one entry a line, other data as JSON; None without any."""
    feedback = output.get("feedback")
    if feedback is None or isinstance(feedback, str):
        return feedback
    entries = feedback if isinstance(feedback, list | tuple) else [feedback]
    return "\n".join(entry if isinstance(entry, str) else json.dumps(entry, default=str) for entry in entries)


def _pass_edge(config: PipelineConfig, envelope: Envelope, source: str, target: str, feedback: str | None) -> str:
    edge = edge_key(source, target)
    passed = envelope.count_edge(edge)
    if config.order.index(target) < config.order.index(source):
        envelope.increment_iteration(feedback)
    limit = config.edge_limit(source, target)
    if 0 < limit < passed:
        envelope.terminate(f"Edge limit exceeded: {edge}", TerminalReason.MAX_LOOP_EXCEEDED)
        return END
    return target


# --- questions --------------------------------------------------------------------------------------------------------


def _raise_question(envelope: Envelope, kind: str, details: Mapping[str, Any]) -> None:
    """Add the question in an output, unless the stage has already asked one."""
    if envelope.has_pending_interrupt():
        return
    texts = {key: details[key] for key in ("question", "message") if isinstance(details.get(key), str)}
    if kind == InterruptKind.CONFIRMATION and "message" not in texts and "question" in texts:
        texts["message"] = texts["question"]
    if kind == InterruptKind.CLARIFICATION and "question" not in texts and "message" in texts:
        texts["question"] = texts["message"]
    envelope.set_interrupt(kind, question_id(envelope), **texts)


def question_id(envelope: Envelope, about: str = "") -> str:
    """Return the id of a question for which none was given: the same whenever this point is reached again."""
    text = f"{envelope.envelope_id}/{envelope.current_stage}/{envelope.agent_hop_count}/{envelope.iteration}/{about}"
    return f"int_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def ask_about_bound(envelope: Envelope) -> bool:
    """Ask whether to raise the bound that stops an envelope; return False where there is none that can be raised."""
    reason = envelope.exceeded_bound()
    if envelope.terminated or envelope.interrupt_pending or reason not in _BOUNDS:
        return False
    bound, count = _BOUNDS[TerminalReason(reason)]
    limit = getattr(envelope, bound)
    used = getattr(envelope, count)
    message = f"{bound} is reached: {used} used, at most {limit} allowed. Raise the bound and go on, or stop?"
    data = {"resource_type": bound, "limit": limit, "used": used, "choices": [RAISE, STOP]}
    identity = question_id(envelope, f"{bound}={limit}")
    envelope.set_interrupt(InterruptKind.RESOURCE_EXHAUSTED, identity, message=message, data=data)
    return True


def settle(config: PipelineConfig, envelope: Envelope) -> None:
    """Apply the answer to the envelope's question, after it has been resolved."""
    interrupt = envelope.interrupt
    if interrupt is None or interrupt.response is None:
        return
    response = interrupt.response
    if interrupt.kind == InterruptKind.CONFIRMATION and response.approved is not True:
        envelope.interrupt_queue = []
        envelope.terminate(DENIED, TerminalReason.USER_CANCELLED)
        return
    data = interrupt.data or {}
    if interrupt.kind == InterruptKind.RESOURCE_EXHAUSTED and data.get("resource_type") in dict(_BOUNDS.values()):
        _raise_bound(envelope, data, response.decision, (response.data or {}).get("to"))
        return
    target = config.resume_stage(str(interrupt.kind))
    if target:
        _jump(envelope, target)


def _raise_bound(envelope: Envelope, details: Mapping[str, Any], decision: str | None, to: Any) -> None:
    bound = details["resource_type"]
    if decision == RAISE:
        doubled = 2 * max(details["limit"], details["used"], 1)
        setattr(envelope, bound, int(to) if isinstance(to, int | float) else doubled)
        return
    reason = next(reason for reason, (name, _) in _BOUNDS.items() if name == bound)
    envelope.interrupt_queue = []
    envelope.terminate(f"{bound} is reached, and a person said stop", reason)


def _jump(envelope: Envelope, target: str) -> None:
    """Go on at a stage, which in parallel mode then counts as not done yet."""
    envelope.current_stage = target
    if envelope.parallel_mode:
        envelope.completed_stage_set.pop(target, None)
        envelope.failed_stages.pop(target, None)


def expire(config: PipelineConfig, envelope: Envelope) -> None:
    """Apply the pipeline's rule for a question that expired without an answer: terminate, or ask again."""
    interrupt = envelope.interrupt
    if interrupt is None:
        return
    if config.on_expired == "ask" and interrupt.expires_at is not None:
        envelope.set_interrupt(
            interrupt.kind,
            interrupt.id,
            question=interrupt.question,
            message=interrupt.message,
            data=interrupt.data,
            expires_in=interrupt.expires_at - interrupt.created_at,
        )
        return
    envelope.interrupt_pending = False
    envelope.interrupt_queue = []
    question = interrupt.question or interrupt.message or interrupt.kind
    reason = _UNANSWERED.get(interrupt.kind, TerminalReason.USER_CANCELLED)
    envelope.terminate(f"The question expired without an answer: {question}", reason)
