"""Rules that move an envelope through the stages of its pipeline. They are functions of the definition and the
envelope, without external calls.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from divebook.definitions.definition import ENVELOPE, SLOTS, STATE, Workflow, is_pipeline
from divebook.definitions.pipelines import ASKING, END, START, AgentStage, PipelineConfig, RunMode
from divebook.engine.bounds import REASONS
from divebook.engine.state import ExecutionState
from divebook.errors import ResumeError
from divebook.events.event import hashed_id, to_datetime
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
from divebook.pipeline.envelope.envelope import COUNTS, MAXIMA, ManualClock, envelope_from_state
from divebook.questions import Question
from divebook.questions.answer import proposed_bound
from divebook.questions.bounds import exact_dollars
from divebook.questions.question import RAISE, STOP
from divebook.questions.wording import bound_of_envelope_reached
from divebook.text.format import rfc3339

# --- the envelope in the log of its execution -------------------------------------------------------------------------


PROCESSING_ERROR = "ProcessingError"
"""Value of ``error_type`` in the errors of stages."""


def envelope_of(state: ExecutionState, workflow: Workflow | None) -> Envelope:
    """Return the envelope of an execution. For a pipeline it is the recorded envelope; for other workflows it is
    computed from the state.

    An execution of a pipeline that has not started has no envelope in its log yet; an envelope computed from its state
    is returned then.
    """
    if workflow is None or not is_pipeline(workflow) or not state.inputs:
        return envelope_from_state(state, [] if workflow is None else [step.name for step in workflow.steps])
    envelope = Envelope(slot_names=slots_from(state.inputs.get(SLOTS)))
    reflect(envelope, state, workflow)
    return envelope


def reflect(envelope: Envelope, state: ExecutionState, workflow: Workflow) -> None:
    """Copy the envelope that the state of an execution contains into another envelope, with the failure or the question
    of the execution.
    """
    failed = _failed_envelope(envelope.slot_names, state, workflow)
    envelope.take_over(state_of(state) if failed is None else failed.to_state_dict())
    question = question_inside(state, workflow)
    # A pending question of the envelope itself takes precedence.
    if question is not None and not envelope.interrupt_pending:
        mirrored = FlowInterrupt.of(question)
        envelope.ask(replace(mirrored, message=mirrored.message or mirrored.question))


def failure_of(stage: str) -> str:
    """Return the beginning of the error message that an execution has if the given stage has failed."""
    return f"stage {stage!r} failed: "


def _failed_envelope(slot_names: SlotNames, state: ExecutionState, workflow: Workflow) -> Envelope | None:
    """Return the envelope of an execution that a failed stage has ended, with the failure and the parallel stages that
    completed before. Return None if no stage has ended the execution.

    The failure is read from the failed path. The variables do not contain it, because a resumption starts the stage
    again with the envelope from before the stage.
    """
    path = state.paths.get(state.failed_path or "")
    if path is None or path.open is None or path.ended_us is None:
        return None
    config = PipelineConfig.from_text(str(workflow.first_step.script))
    error = path.error or ""
    # The error text begins with the name of the stage (`failure_of`).
    stage = next((stage for stage in config.agents if error.startswith(failure_of(stage.name))), None)
    # The time of the failure, and not of this call: equal logs give equal envelopes.
    clock = ManualClock(to_datetime(path.ended_us))
    envelope = Envelope.from_state_dict(state_of(state), slot_names=slot_names, clock=clock)
    if stage is None or envelope.terminated:
        return None
    # The branches of the batch that ended before the failure: {number of the branch: {"value": its result, ...}}.
    completed = [branch["value"] for _, branch in sorted(path.open.iterations.items())]
    merge_branches(envelope, [Envelope.from_state_dict(branch[ENVELOPE]) for branch in completed])
    for branch in completed:
        envelope.complete_stage(branch["stage"])
    message = error.removeprefix(failure_of(stage.name))
    # Calls that the envelope does not contain yet are those of the failed stage.
    calls = max(0, state.ledger.llm_calls - envelope.llm_call_count)
    envelope.token_count = state.usage.input_tokens + state.usage.output_tokens
    envelope.cost = exact_dollars(state.usage.cost)
    # Only envelopes in parallel mode list their failed stages.
    if config.default_run_mode == "parallel":
        envelope.fail_stage(stage.name, message)
    envelope.record_agent_start(stage.name, stage.stage_order)
    envelope.record_agent_complete(stage.name, ProcessingStatus.ERROR, message, calls)
    envelope.errors.append(stage_error(stage.name, message, clock.time))
    reason = TerminalReason.LLM_FAILED_FATALLY if stage.has_llm else TerminalReason.TOOL_FAILED_FATALLY
    envelope.terminate(message, reason)
    return envelope


def stage_error(stage: str, message: str, moment: datetime) -> dict[str, Any]:
    """Return the entry about a failed stage that is added to `Envelope.errors`."""
    return {"agent": stage, "error": message, "error_type": PROCESSING_ERROR, "timestamp": rfc3339(moment)}


def state_of(state: ExecutionState) -> Mapping[str, Any]:
    """Return the envelope that the state of an execution contains, as plain data that `Envelope.from_state_dict` reads.

    Raises
    ------
    ResumeError
        The execution does not belong to a pipeline.
    """
    # Before the first step has ended, only the inputs contain the envelope.
    variables = state.variables.get(STATE, state.inputs)
    if not isinstance(variables, Mapping) or not isinstance(variables.get(ENVELOPE), Mapping):
        raise ResumeError(
            f"execution {state.execution_id} of workflow {state.workflow_name!r} does not belong to a pipeline"
        )
    state_data: Mapping[str, Any] = variables[ENVELOPE]
    return state_data


def question_inside(state: ExecutionState, workflow: Workflow) -> Question | None:
    """Return the open question that was asked inside a stage: an approval, or the outcome of an interrupted call. None
    if no such question is open.

    The envelope does not contain the question, because the envelope is saved only when the stage has ended.
    """
    if not is_pipeline(workflow):
        return None
    start = workflow.first_step.name
    # The first step, which routes, asks the questions of the envelope. All other questions come from stages.
    return next((question for question in state.pending_interrupts() if question.step != start), None)


def slots_from(data: Mapping[str, Any] | None) -> SlotNames:
    """Convert plain data to `SlotNames` (names of an envelope's outputs with a special role). Return the default names
    for None.
    """
    return SlotNames() if not data else SlotNames(**data)


def slots_to(names: SlotNames) -> dict[str, Any]:
    """Convert `SlotNames` (names of an envelope's outputs with a special role) to plain data."""
    resets = {"retry_reset": sorted(names.retry_reset), "advance_reset": sorted(names.advance_reset)}
    return resets | {"archive": names.archive, "response": names.response, "response_key": names.response_key}


# --- stages of a parallel run that may start --------------------------------------------------------------------------


def ready_stages(
    config: PipelineConfig, completed: Collection[str], failed: Collection[str] = frozenset()
) -> list[str]:
    """Return the names of the stages that may start next in a parallel run, in the order of the pipeline.

    A stage may start when all stages in its `requires` have completed (any of them for `join_strategy` ``any``), and
    all stages in its `after` have ended: completed, failed, or skipped because a required stage failed. If a required
    stage fails and names this stage as its `error_next`, the requirement also counts as fulfilled.
    """
    # Example: a and b require nothing, c requires a and b, d requires c, and e comes after d.
    #
    #     completed  failed   skipped   may start
    #     -          -        -         a, b
    #     a          -        -         b
    #     a, b       -        -         c
    #     a          b        c, d      e
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
    """Return the stages that can never run, because a stage they require has failed or is skipped."""
    # A skipped stage may make those that require it impossible, so this repeats until nothing changes.
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
    """Return True if a stage may start because enough of the stages that it requires have ended: all of them, or one
    with the strategy ``any``.
    """
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
    """Return True if `stage` is the stage that runs next when the stage `source` fails (its `error_next`)."""
    source_stage = config.stage(source)
    return source_stage is not None and source_stage.error_next == stage.name


DENIED = "User denied confirmation"
_UNANSWERED: Mapping[str, TerminalReason] = {
    InterruptKind.CLARIFICATION: TerminalReason.CLARIFICATION_REQUIRED,
    InterruptKind.CONFIRMATION: TerminalReason.CONFIRMATION_REQUIRED,
}


# --- beginning and ending ---------------------------------------------------------------------------------------------


def begin(config: PipelineConfig, envelope: Envelope, mode: RunMode) -> None:
    """Move an envelope to the first stage of a pipeline, and set the stage order and the bounds that the pipeline
    defines.
    """
    apply_settings(config, envelope)
    envelope.current_stage = config.order[0] if config.order else END
    envelope.parallel_mode = mode == "parallel"
    envelope.edge_counts = {}
    if envelope.parallel_mode:
        envelope.active_stages = {}
        envelope.completed_stage_set = {}
        envelope.failed_stages = {}


def apply_settings(config: PipelineConfig, envelope: Envelope) -> None:
    """Set the stage order and the bounds of an envelope to the values that the pipeline defines."""
    envelope.stage_order = list(config.order)
    envelope.max_iterations = config.max_iterations
    envelope.max_llm_calls = config.max_llm_calls
    envelope.max_agent_hops = config.max_agent_hops


def finish_at_end(envelope: Envelope) -> None:
    """Mark an envelope as completed if it has passed the last stage, has no pending question and has not been
    terminated for another reason.
    """
    if envelope.current_stage != END or envelope.terminated or envelope.interrupt_pending:
        return
    # A bound that the last stage has reached does not matter any more.
    if envelope.terminal_reason is None or _is_bound(envelope.terminal_reason):
        envelope.terminal_reason = TerminalReason.COMPLETED


def reopen(envelope: Envelope, config: PipelineConfig) -> None:
    """Prepare an envelope to continue at its current stage. An envelope that has not entered a stage yet continues at
    the first one.
    """
    if envelope.current_stage == START and config.stage(START) is None:
        envelope.current_stage = config.order[0] if config.order else END
    if not envelope.terminated and envelope.terminal_reason == TerminalReason.COMPLETED:
        envelope.terminal_reason = None


def _is_bound(reason: TerminalReason | str) -> bool:
    return isinstance(reason, TerminalReason) and reason.classification is ReasonClass.BOUNDS_EXCEEDED


# --- what is next -----------------------------------------------------------------------------------------------------


def choose(config: PipelineConfig, envelope: Envelope) -> list[str]:
    """Return the names of the stages that run next: one stage, or in parallel mode all stages that are ready.

    The list is empty if the envelope has ended or must stop; the reason is then stored in the envelope.
    """
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
    """Return True if the current stage of an envelope exists and may be visited again. If not, end the pipeline request
    and return False.
    """
    name = envelope.current_stage
    stage = config.stage(name)
    if stage is None:
        envelope.terminate(f"Unknown stage: {name}", TerminalReason.TOOL_FAILED_FATALLY)
        return False
    visits = sum(record.agent == name for record in envelope.processing_history)
    # 0 means no limit, here and for edges.
    if 0 < stage.max_visits <= visits:
        envelope.terminate(f"Stage visits exceeded: {name}", TerminalReason.MAX_STAGE_VISITS_EXCEEDED)
        return False
    return True


def ready(config: PipelineConfig, envelope: Envelope) -> list[str]:
    """Return the names of the stages that may start now for an envelope in parallel mode."""
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
    """Move an envelope from a completed stage to the stage, question or end that the routing rules of the stage chose
    (`target`).

    If the target is another stage, the edge between the stages is counted. If the target is an earlier stage, the
    iteration is counted as well, and the ``feedback`` of the output is stored. The request is terminated if the edge
    was followed too often. If the target is a question (such as ``clarification``), the question is asked with the
    ``question`` or ``message`` of the output, and the envelope stays at the stage.

    Parameters
    ----------
    keeps_feedback
        False for executions that were started by a version that dropped the feedback, so that their logs still replay.
    """
    if target in ASKING:
        # The envelope stays at the stage, which runs again when the question is answered (or the stage that `settle`
        # chooses).
        _raise_question(envelope, target, output)
        target = stage.name
    elif target not in (stage.name, END):
        feedback = feedback_in(output) if keeps_feedback else None
        target = _pass_edge(config, envelope, stage.name, target, feedback)
    envelope.current_stage = target
    finish_at_end(envelope)


def feedback_in(output: Mapping[str, Any]) -> str | None:
    """Return the entry ``feedback`` in the output of a stage as a string; None if the output has no such entry.

    A list becomes one line per entry. Entries that are not strings are converted to JSON.
    """
    feedback = output.get("feedback")
    if feedback is None or isinstance(feedback, str):
        return feedback
    entries = feedback if isinstance(feedback, list | tuple) else [feedback]
    return "\n".join(entry if isinstance(entry, str) else json.dumps(entry, default=str) for entry in entries)


def _pass_edge(config: PipelineConfig, envelope: Envelope, source: str, target: str, feedback: str | None) -> str:
    edge = edge_key(source, target)
    passed = envelope.count_edge(edge)
    # A step backwards in the order of the stages begins a new iteration.
    if config.order.index(target) < config.order.index(source):
        envelope.increment_iteration(feedback)
    limit = config.edge_limit(source, target)
    if 0 < limit < passed:
        envelope.terminate(f"Edge limit exceeded: {edge}", TerminalReason.MAX_LOOP_EXCEEDED)
        return END
    return target


# --- questions --------------------------------------------------------------------------------------------------------


def _raise_question(envelope: Envelope, kind: str, details: Mapping[str, Any]) -> None:
    """Set a question to a person as the pending question of the envelope, with texts from the output of a stage. Do
    nothing if the stage has already asked a question itself.
    """
    if envelope.has_pending_interrupt():
        return
    texts = {key: details[key] for key in ("question", "message") if isinstance(details.get(key), str)}
    # A clarification shows its question and a confirmation its message. A stage may use either name.
    if kind == InterruptKind.CONFIRMATION and "message" not in texts and "question" in texts:
        texts["message"] = texts["question"]
    if kind == InterruptKind.CLARIFICATION and "question" not in texts and "message" in texts:
        texts["question"] = texts["message"]
    envelope.set_interrupt(kind, question_id(envelope), **texts)


def question_id(envelope: Envelope, about: str = "") -> str:
    """Compute the id of an envelope's question from the stage and the attempt that ask it. A replay therefore gives the
    question the same id.
    """
    visit = envelope.current_stage, envelope.agent_hop_count, envelope.iteration
    return hashed_id("int", envelope.envelope_id, *visit, about)


def ask_about_bound(envelope: Envelope) -> bool:
    """Set a question to a person that asks to raise the bound that stops an envelope. Return False if no bound that can
    be raised has been exceeded.
    """
    reason = envelope.exceeded_bound()
    bound = next((name for name in MAXIMA if REASONS[name] == reason), None)
    if envelope.terminated or envelope.interrupt_pending or bound is None:
        return False
    limit = getattr(envelope, bound)
    used = getattr(envelope, COUNTS[bound])
    message = bound_of_envelope_reached(bound, used, limit)
    data = {"resource_type": bound, "limit": limit, "used": used, "choices": [RAISE, STOP]}
    # The limit is part of the id: when the raised bound is reached, the question is a new one.
    identity = question_id(envelope, f"{bound}={limit}")
    envelope.set_interrupt(InterruptKind.RESOURCE_EXHAUSTED, identity, message=message, data=data)
    return True


def settle(config: PipelineConfig, envelope: Envelope) -> None:
    """Apply the answer to the question of an envelope. A denial ends the pipeline request; other answers raise the
    bound, or move the envelope to another stage.
    """
    interrupt = envelope.interrupt
    if interrupt is None or interrupt.response is None:
        return
    response = interrupt.response
    # A denial ends the whole request, with all queued questions.
    if interrupt.kind == InterruptKind.CONFIRMATION and response.approved is not True:
        envelope.interrupt_queue = []
        envelope.terminate(DENIED, TerminalReason.USER_CANCELLED)
        return
    data = interrupt.data or {}
    if interrupt.kind == InterruptKind.RESOURCE_EXHAUSTED and data.get("resource_type") in MAXIMA:
        _raise_bound(envelope, data, response.decision, (response.data or {}).get("to"))
        return
    target = config.resume_stage(str(interrupt.kind))
    if target:
        _jump(envelope, target)


def _raise_bound(envelope: Envelope, details: Mapping[str, Any], decision: str | None, to: Any) -> None:
    bound = details["resource_type"]
    if decision == RAISE:
        doubled = proposed_bound(details["limit"], details["used"])
        setattr(envelope, bound, int(to) if isinstance(to, int | float) else doubled)
        return
    envelope.interrupt_queue = []
    envelope.terminate(f"{bound} reached, and a person chose to stop", REASONS[bound])


def _jump(envelope: Envelope, target: str) -> None:
    """Move an envelope to a stage that an answer chose. In parallel mode, the stage no longer counts as completed or
    failed, so that it runs again.
    """
    envelope.current_stage = target
    if envelope.parallel_mode:
        envelope.completed_stage_set.pop(target, None)
        envelope.failed_stages.pop(target, None)


def expire(config: PipelineConfig, envelope: Envelope) -> None:
    """Apply the pipeline's rule about an expired question of an envelope: terminate the request, or ask again."""
    interrupt = envelope.interrupt
    if interrupt is None:
        return
    # The same question again, with the same time to answer.
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
