"""Handler of the steps of a compiled pipeline: runs stages with their functions, agents, tools and retries.

`StageStep` is the handler that an environment registers. Each step is one part of a pipeline (`_Run`): routing, one
stage, one stage of a parallel batch, or the merge of a batch. A stage is run by a `Visit`, which makes attempts
(`Trial`); `Work` produces the output of an attempt.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import anyio

from divebook.agents import Agent
from divebook.agents.turn import AgentTask
from divebook.definitions.definition import (
    BATCH,
    BRANCHES,
    DETACHED,
    ENVELOPE,
    FEEDBACK,
    FUNCTIONS,
    MERGE,
    METADATA,
    NAME,
    PART,
    REQUEST,
    RESPONSE,
    ROUTE,
    SESSION,
    SLOTS,
    STATE,
    USER,
    Workflow,
)
from divebook.definitions.functions import Takes, UserFunction
from divebook.definitions.pipelines import END, AgentStage, PipelineConfig
from divebook.definitions.step import STAGE, Retry
from divebook.engine.operations import ACTION_EXECUTION, AGENT_RESPONSE, ENCLOSING, STAGE_ATTEMPT
from divebook.engine.retries import Fault, retry_delay
from divebook.environments.environment import Environment
from divebook.errors import (
    BoundExceededError,
    DefinitionError,
    DivergenceError,
    InterruptExpiredError,
    NotFoundError,
    OperationError,
    Problem,
    StageTimeoutError,
    StepError,
    StoreError,
    UnstorableValueError,
)
from divebook.events.catalog import StepRetried
from divebook.events.codec import tagged_form
from divebook.events.values import normalize
from divebook.pipeline import progress
from divebook.pipeline.envelope import (
    Envelope,
    FlowInterrupt,
    InterruptKind,
    ProcessingStatus,
    TerminalReason,
    merge_branches,
)
from divebook.pipeline.envelope.envelope import UNSET, ManualClock, recorded_state
from divebook.pipeline.envelope.interrupts import as_question, parts_of
from divebook.pipeline.envelope.plain import json_object
from divebook.pipeline.progress import failure_of, question_id, slots_from, stage_error
from divebook.questions.bounds import exact_dollars
from divebook.runtime.calls import call, invoke
from divebook.runtime.context import MakeOperation, StepContext, attempts_key, with_wrapper
from divebook.runtime.errors import clean_text, links_of
from divebook.runtime.recorder import Call
from divebook.runtime.step import Outcome
from divebook.steps.actions import Action
from divebook.steps.checks import agents_with_subordinates
from divebook.steps.prompt import AgentServices, ask_agent
from divebook.steps.script_step import render_texts
from divebook.text.redaction import logger

# --- handler of the steps of pipelines --------------------------------------------------------------------------------


_log = logger("divebook.pipeline")

pipeline_of = functools.lru_cache(maxsize=128)(PipelineConfig.from_text)
"""Function that returns the pipeline of a compiled workflow, given the text in the workflow's first step."""

_FAILURES = (
    TerminalReason.TOOL_FAILED_RECOVERABLY,
    TerminalReason.TOOL_FAILED_FATALLY,
    TerminalReason.LLM_FAILED_FATALLY,
)
"""Terminal reasons of requests that ended because a stage failed."""


class StageStep:
    """Handler for the steps of a compiled pipeline. Each of these steps stands for a part of the pipeline, such as a
    stage, which the handler runs.

    Parameters
    ----------
    work
        Producer of the outputs of stages.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._functions: dict[str, StageFunctions] = {}

    def bind(self, pipeline: str, functions: StageFunctions) -> None:
        """Register the Python functions of a pipeline's stages. They replace those of an earlier pipeline with the same
        name.
        """
        self._functions[pipeline] = functions

    def check(self, workflow: Workflow) -> None:
        """Raise an error if a Python function that a pipeline needs is missing, or if one of its agents refers to
        something that is missing or not allowed.

        Raises
        ------
        DefinitionError, NotFoundError, SetupError
            A function is missing, or an agent names something that is missing or not allowed.
        """
        bound = self._functions.get(workflow.name, NO_FUNCTIONS)
        missing = sorted(set(workflow.first_step.parameters.get(FUNCTIONS, ())) - bound.stages)
        if missing:
            message = f"the functions of these stages of pipeline {workflow.name!r} are missing: {', '.join(missing)}"
            hint = "create the Pipeline object with this environment first"
            raise DefinitionError([Problem(message, hint=hint)], f"workflow {workflow.name!r}")
        self._work.check(pipeline_of(workflow.first_step.script), bound)

    async def __call__(self, context: StepContext) -> Outcome:
        """Run the part of a compiled pipeline for which the step stands: routing, a stage, a parallel branch, or the
        merge of branches.
        """
        run = _Run(context, self._functions.get(context.workflow.name, NO_FUNCTIONS), self._work)
        part = context.step.parameters[PART]
        # Recorded first. Until the next recorded time, everything in the envelope that needs a time gets this one.
        run.ticker.time = await context.now()
        if part == ROUTE:
            return await run.route()
        if part == BATCH:
            return await run.branch(str(context.local["stage"]))
        return await run.merge() if part == MERGE else await run.stage(str(context.step.parameters[NAME]))


def add_stages(environment: Environment) -> StageStep:
    """Register the handler that runs the steps of pipelines with an environment. Return the handler."""
    registry = environment.internals.registry
    handler = StageStep(Work(registry.agent, lambda: registry.actions, registry))
    environment.add_step_type(STAGE, handler, handler.check)
    return handler


def stage_step(environment: Environment) -> StageStep:
    """Return the handler that runs the steps of pipelines in an environment. Register it first if the environment has
    none.
    """
    handler = environment.internals.registry.step_handler(STAGE)
    return handler if isinstance(handler, StageStep) else add_stages(environment)


# --- one step of a pipeline: routing, one stage, or a parallel batch --------------------------------------------------
#
# The envelope travels in the variable `STATE` of the execution: {"envelope": {...}, "next": ["draft"], "again": False}.
# The step that routes fills in "next" and "again", and the edges of the compiled workflow follow them::
#
#     sequential   route -> stage "draft" -> route -> stage "check" -> route -> end
#     parallel     route -> batch (its items are the stages in "next") -> merge -> route -> end
#
# "again" leads back to the routing step: a question was asked, and the envelope must be looked at once more.


class _Run:
    """Processing of one step of a compiled pipeline: routing, one stage, one parallel branch, or the merge of the
    branches.
    """

    def __init__(self, context: StepContext, functions: StageFunctions, work: Work) -> None:
        self.ticker = ManualClock(UNSET)
        """Clock of the envelope. It has the last time that was recorded in the log, so that a replay gets the same."""
        self._context = context
        self._functions = functions
        self._work = work
        self._config = pipeline_of(context.workflow.first_step.script)
        self._state: Mapping[str, Any] = context.variables.get(STATE) or {}
        self._slots = slots_from(context.inputs.get(SLOTS))

    def _envelope(self, state: Mapping[str, Any]) -> Envelope:
        return Envelope.from_state_dict(state, slot_names=self._slots, clock=self.ticker)

    @property
    def _present(self) -> Envelope:
        # From the last step, or at the start from the inputs. A declared pipeline gets no envelope as input.
        state = self._state.get(ENVELOPE) or self._context.inputs.get(ENVELOPE)
        return self._new_envelope() if state is None else self._envelope(state)

    def _new_envelope(self) -> Envelope:
        """Return a new envelope at the first stage, for a request that the execution got as inputs."""
        # Ids are derived from the seed, so that a fork has the ids of its source: their first events are compared.
        inputs = self._context.inputs
        seed = self._context.seed
        envelope = Envelope(
            slot_names=self._slots,
            clock=self.ticker,
            new_id=lambda prefix: f"{prefix}_{seed.removeprefix('exec_')}",
            raw_input=str(inputs.get(REQUEST) or ""),
            user_id=str(inputs.get(USER) or "anonymous"),
            session_id=str(inputs.get(SESSION) or ""),
            metadata=dict(inputs.get(METADATA) or {}),
        )
        progress.begin(self._config, envelope, self._config.default_run_mode)
        return envelope

    @property
    def _is_declared(self) -> bool:
        """True if the pipeline comes from a definition file. The execution then gets the request as separate inputs,
        not as an envelope.
        """
        return ENVELOPE not in self._context.inputs

    # --- routing ---------------------------------------------------------------------------------------------------

    async def route(self) -> Outcome:
        """Ask the pending question of the envelope, if there is one. Else check the bounds, and choose the stages that
        run next.
        """
        envelope = self._present
        # A pending question stops everything else.
        if envelope.has_pending_interrupt() and not envelope.terminated:
            return _outcome(envelope, asks_again=await self._ask(envelope))
        # A bound of the execution stopped the last stage, which left the reason here.
        if exhausted := self._state.get("exhausted"):
            envelope.terminal_reason = exhausted
            return _outcome(envelope)
        chosen = progress.choose(self._config, envelope)
        # The outputs of a declared pipeline do not show a failure, so that its execution must fail.
        if self._is_declared and envelope.terminal_reason in _FAILURES:
            raise StepError(f"{failure_of(envelope.current_stage)}{envelope.termination_reason}")
        # No stage may run although the end is not reached: a bound of the envelope.
        stopped = not chosen and not envelope.terminated and envelope.current_stage != END
        if stopped and self._config.on_exhausted == "ask" and progress.ask_about_bound(envelope):
            return _outcome(envelope, asks_again=True)
        return _outcome(envelope, chosen)

    async def _ask(self, envelope: Envelope) -> bool:
        """Ask a person the pending question of an envelope, and apply the answer or the expiry to the envelope. Return
        False if nothing was asked.
        """
        interrupt = envelope.interrupt
        assert interrupt is not None  # noqa: S101 - it is pending
        # A response is either an input of the execution or an answer to its question. The expiry of an input is checked
        # here; the expiry of an answer is raised by the wait.
        response = None if self._state else self._context.inputs.get(RESPONSE)
        if response is None and interrupt.kind == InterruptKind.CHECKPOINT and self._config.resume_checkpoints:
            response = {}
        # The execution exists in memory only. It ends with the question, which its caller answers by `Pipeline.resume`.
        if response is None and self._context.inputs.get(DETACHED):
            return False
        if response is not None and interrupt.is_expired(self.ticker.time):
            await self._expire(envelope)
            return True
        try:
            response = await self._answer_to(interrupt) if response is None else response
        except InterruptExpiredError:
            await self._expire(envelope)
            return True
        self.ticker.time = await self._context.now()
        envelope.resolve_interrupt(response)
        progress.settle(self._config, envelope)
        if envelope.terminated:
            await self._save(envelope)
        else:
            # Questions of parallel branches are asked one after the other.
            envelope.ask_next_interrupt()
        return True

    async def _expire(self, envelope: Envelope) -> None:
        self.ticker.time = await self._context.now()
        progress.expire(self._config, envelope)
        if envelope.terminated:
            await self._save(envelope)

    async def _answer_to(self, interrupt: FlowInterrupt) -> dict[str, Any]:
        request = as_question(interrupt)
        expires = interrupt.expires_at
        remaining = None if expires is None else max(0.0, (expires - self.ticker.time).total_seconds())
        question = await self._context.interrupt(
            request.kind,
            request.question,
            message=request.message,
            data=request.data,
            expires_in=remaining,
            optional=request.optional,
            key="question",
        )
        return parts_of(question.response)

    # --- one stage -------------------------------------------------------------------------------------------------

    async def stage(self, name: str) -> Outcome:
        """Run one stage, and then move the envelope to the next stage."""
        stage = self._stage(name)
        envelope, visit_result = await self._visited(stage, self._present)
        if visit_result.exhausted is not None:
            return _outcome(envelope, exhausted=visit_result.exhausted)
        self.ticker.time = await self._context.now()
        stage_output: Mapping[str, Any] | None = visit_result.output
        if visit_result.error is None:
            output = visit_result.output or {}
            # Executions of a version that dropped the feedback lack this input. Their replay must drop it too.
            keeps = bool(self._context.inputs.get(FEEDBACK)) or self._is_declared
            progress.go_on(self._config, envelope, stage, stage.next_stage(output), output, keeps_feedback=keeps)
        elif stage.error_next:
            # A failure that another stage handles appears in `Pipeline.stream` as an empty output.
            stage_output = {}
            progress.go_on(self._config, envelope, stage, stage.error_next, {"question": visit_result.error})
        else:
            envelope.terminate(visit_result.error, visit_result.reason)
        await self._save(envelope)
        return _outcome(envelope, text=_output_text(stage_output))

    def _stage(self, name: str) -> AgentStage:
        stage = self._config.stage(name)
        assert stage is not None  # noqa: S101 - route chooses only stages that exist
        return stage

    async def _visited(self, stage: AgentStage, envelope: Envelope) -> tuple[Envelope, VisitResult]:
        """Run one stage. Return the envelope as the stage has left it, and the result of the visit.

        Raises
        ------
        StepError
            The stage of a declared pipeline failed. A pipeline in Python returns the envelope, which contains the
            failure; the outputs of a declared pipeline would not show it. The step of the stage itself must fail, so
            that a resumption runs the failed call again.
        """
        visit = Visit(
            self._context,
            self._config,
            stage,
            envelope,
            ticker=self.ticker,
            functions=self._functions,
            work=self._work,
            ends_step=self._is_declared and not stage.error_next,
        )
        visit_result = await visit.run()
        if visit_result.failure is not None:
            error = StepError(f"{failure_of(stage.name)}{visit_result.error}")
            error.__context__ = (
                visit_result.failure
            )  # names the failed call, which `__cause__` would name in the message too
            raise error
        return visit.envelope, visit_result

    # --- a batch ---------------------------------------------------------------------------------------------------

    async def branch(self, name: str) -> Outcome:
        """Run one stage of a parallel batch with its own copy of the envelope."""
        stage = self._stage(name)
        envelope = self._present
        # The id of a question that the branch asks is derived from the current stage.
        envelope.current_stage = name
        branch, visit_result = await self._visited(stage, envelope)
        result: dict[str, Any] = {"stage": name, ENVELOPE: recorded_state(branch), "error": visit_result.error}
        result |= {"reason": visit_result.reason and str(visit_result.reason), "exhausted": visit_result.exhausted}
        return Outcome(_output_text(visit_result.output), result)

    async def merge(self) -> Outcome:
        """Merge the envelopes of all stages of a parallel batch into one envelope."""
        envelope = self._present
        # A list of the results of `branch`: [{"stage": "a", "envelope": {...}, "error": None, ...}, ...].
        branches = self._context.variables[BRANCHES]
        merge_branches(envelope, [self._envelope(branch[ENVELOPE]) for branch in branches])
        exhausted = next((branch["exhausted"] for branch in branches if branch["exhausted"]), None)
        for branch in branches:
            self._note(envelope, branch)
        if exhausted is None and not envelope.terminated:
            self._look_ahead(envelope)
        await self._save(envelope)
        return _outcome(envelope, exhausted=exhausted)

    def _note(self, envelope: Envelope, branch: Mapping[str, Any]) -> None:
        name = branch["stage"]
        # The bound kept the stage from running. It is neither completed nor failed, and may start again.
        if branch["exhausted"]:
            envelope.active_stages.pop(name, None)
        elif branch["error"] is None:
            envelope.complete_stage(name)
        else:
            envelope.fail_stage(name, branch["error"])
            # Otherwise the request continues: the failure fulfils the requirement of the stage in `error_next`.
            if not envelope.terminated and not self._stage(name).error_next:
                envelope.terminate(branch["error"], branch["reason"])

    def _look_ahead(self, envelope: Envelope) -> None:
        """Set the current stage of an envelope in parallel mode to the next stage that can start. People then see where
        an envelope that waits will continue.
        """
        ready = progress.ready(self._config, envelope)
        envelope.current_stage = ready[0] if ready else END
        progress.finish_at_end(envelope)

    async def _save(self, envelope: Envelope) -> None:
        """Call the function `save` that the user passed, with the state of the envelope. Errors of the function are
        only logged.
        """
        if self._functions.save is None:
            return
        try:
            # Not an operation: if the step runs again, the function is called again.
            function = StageFunction("save", self._functions.save)
            await invoke(self._context, function, {"state": envelope.to_state_dict()}, "save")
        except Exception:  # noqa: BLE001 - a function of the person, which may raise anything
            _log.exception("the state of envelope %s could not be saved", envelope.envelope_id)


def _output_text(output: Mapping[str, Any] | None) -> str:
    """Return the output of a stage as JSON, which becomes the text result of its step; an empty string if the stage did
    not run. Values that JSON lacks, such as dates, are in tagged form.
    """
    if output is None:
        return ""
    return json.dumps(tagged_form(normalize(output, "output")), ensure_ascii=False)


def _outcome(
    envelope: Envelope,
    chosen: list[str] | None = None,
    *,
    asks_again: bool = False,
    exhausted: str | None = None,
    text: str = "",
) -> Outcome:
    state: dict[str, Any] = {ENVELOPE: recorded_state(envelope), "next": chosen or [], "again": asks_again}
    return Outcome(text, state if exhausted is None else {**state, "exhausted": exhausted})


# --- one visit of a stage: its attempts, and its output or failure ----------------------------------------------------
#
# Example: a stage "draft" with one retry. Its first attempt fails after one model call, the second one succeeds::
#
#     attempt 0   works on a clone of the envelope; the keys of its agent's operations begin with "draft/"
#     it fails    the log gets a `STAGE_ATTEMPT` with its consumption: 1 model call, 300 tokens; the clone is dropped
#     attempt 1   works on a new clone, which contains the 300 tokens; its keys begin with "draft@1/"
#     it ends     its clone replaces the envelope
#
# If the process dies during attempt 1, the log contains the failed attempt. The resumed execution does not repeat it,
# and reads its consumption from the log (`Visit._count_failed`).


@dataclass(frozen=True, slots=True)
class VisitResult:
    """Result of one visit of an envelope to a stage: the output of the stage, or its error."""

    output: Mapping[str, Any] | None = None
    """Output of the stage; None if the stage failed or did not run."""
    error: str | None = None
    reason: TerminalReason | None = None
    """Terminal reason of the envelope, if the error ends the request."""
    exhausted: str | None = None
    """Terminal reason, if a bound of the execution did not allow the stage to run."""
    failure: Exception | None = None
    """Exception with the text `error`, if the failure ends the step of the execution too."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Result of the last allowed attempt at a stage, if that attempt has failed."""

    trial: Trial
    error: Exception
    is_model: bool
    """True if the error occurred while the model of the stage, or its replacement, was running."""


class Visit:
    """One visit of a stage by an envelope: runs the attempts and records the result in the envelope.

    Parameters
    ----------
    ends_step
        True if a failure of the stage fails the step of the execution, so that a resumption makes another attempt. The
        failure is not recorded in the envelope then. By default, the envelope records the failure, and the step
        completes.
    """

    def __init__(
        self,
        context: StepContext,
        config: PipelineConfig,
        stage: AgentStage,
        envelope: Envelope,
        *,
        ticker: ManualClock,
        functions: StageFunctions,
        work: Work,
        ends_step: bool = False,
    ) -> None:
        self._context = context
        self._config = config
        self._stage = stage
        self._ends_step = ends_step
        self.envelope = envelope
        self._ticker = ticker
        self._functions = functions
        self._work = work
        self._policy = policy_of(stage)
        # Model calls of all attempts in this visit, and the number of failed attempts that are counted in the envelope.
        self._llm_calls = 0
        self._counted = 0
        # True while the model of the stage, or the function that replaces it, is running.
        self._is_at_work = False

    async def run(self) -> VisitResult:
        """Run the stage with its retries, and record the result in the envelope. May be called only once."""
        stage = self._stage
        # Cloned before the start is recorded: a stage that a bound has stopped leaves no record in the history.
        before = self.envelope.clone()
        self.envelope.record_agent_start(stage.name, stage.stage_order)
        # Each attempt works on a clone of the envelope, so that a failed attempt leaves no trace but its consumption.
        outcome = await self._context.retried(self._attempts, self._policy, self._try)
        if isinstance(outcome, Trial):
            self._adopt(outcome)
            await self._complete(ProcessingStatus.SUCCESS)
            return VisitResult(self.envelope.get_output(stage.output_key) or {})
        exhausted = Fault.of(outcome.error, "").reason
        if exhausted is None:
            return await self._failed(outcome)
        # A bound of the execution has stopped the stage. The stage can run again when the bound has been raised.
        self._undo(before, outcome.trial)
        return VisitResult(exhausted=exhausted)

    @property
    def _attempts(self) -> str:
        return f"{self._stage.name}-attempts"

    def _adopt(self, trial: Trial) -> None:
        """Replace the envelope of the visit by the envelope of one of its attempts: the one that succeeded, or the last
        failed one.
        """
        self.envelope = trial.envelope
        question = self.envelope.interrupt
        if trial.has_asked and question is not None and not question.id:
            question.id = question_id(self.envelope)

    def _undo(self, before: Envelope, trial: Trial) -> None:
        """Restore the envelope as it was before the stage, but keep the model calls, tokens and cost that the attempts
        consumed.
        """
        before.llm_call_count += self._llm_calls
        # The envelope of the last attempt contains the tokens and cost of the earlier ones too (`_count_failed`).
        before.token_count = trial.envelope.token_count
        before.cost = trial.envelope.cost
        self.envelope = before

    async def _complete(self, status: ProcessingStatus, error: str | None = None) -> None:
        self._ticker.time = await self._context.now()
        self.envelope.record_agent_complete(self._stage.name, status, error, self._llm_calls)

    async def _failed(self, failed: Failed) -> VisitResult:
        error = clean_text(failed.error)
        if self._ends_step:
            return VisitResult(error=error, failure=failed.error)
        self._adopt(failed.trial)
        await self._complete(ProcessingStatus.ERROR, error)
        self.envelope.errors.append(stage_error(self._stage.name, error, self._ticker.time))
        reason = TerminalReason.LLM_FAILED_FATALLY if failed.is_model else TerminalReason.TOOL_FAILED_FATALLY
        return VisitResult(error=error, reason=reason)

    # --- attempts --------------------------------------------------------------------------------------------------

    async def _try(self, failures: int) -> Trial | Failed:
        """Run one attempt at the stage. Return the attempt if it succeeded, or a `Failed` if no retry may follow; raise
        the error if a retry may follow.
        """
        await self._count_failed(failures)
        trial = Trial(self._context, self._stage, self.envelope, failures, self._config.seconds(self._stage))
        try:
            await self._attempt(trial)
        # The execution itself cannot continue. This is not a failure of the stage.
        except (StoreError, DivergenceError):
            raise
        except Exception as error:
            fault = Fault.of(error, clean_text(error))
            # No attempt is left, or a retry cannot help. An attempt that has asked a person is the last one, too.
            if retry_delay(self._policy, failures + 1, fault, 0.0) is None or trial.has_asked:
                if self._ends_step and fault.reason is None and not is_of_call(error):
                    # Its calls have results, which a resumption would take from the log: only another attempt calls.
                    await self._consumption(failures, trial)
                    trial.leave_to_resumption(self._attempts, fault.message)
                self._llm_calls += trial.llm_calls
                return Failed(trial, error, self._is_at_work and self._stage.has_llm)
            await self._consumption(failures, trial)
            raise
        self._llm_calls += trial.llm_calls
        return trial

    async def _consumption(self, number: int, trial: Trial | None = None) -> Mapping[str, Any]:
        """Return the model calls, tokens and cost that a failed attempt consumed. They are recorded in the log, because
        a resumed execution does not repeat the attempt and could not count them again.
        """

        async def consumption() -> dict[str, Any]:
            assert trial is not None  # noqa: S101 - an attempt is recorded before it is followed by another
            tokens = trial.envelope.token_count - self.envelope.token_count
            return {
                "llm_calls": trial.llm_calls,
                "tokens": tokens,
                "cost": str(trial.envelope.cost - self.envelope.cost),
            }

        data = {"stage": self._stage.name, "attempt": number}
        key = f"{self._stage.name}-spent-{number}"
        recorded: dict[str, Any] = await self._context.operation(
            STAGE_ATTEMPT, data, consumption, key=key, repeatable=True
        )
        return recorded

    async def _count_failed(self, failures: int) -> None:
        """Add the model calls, tokens and cost of the failed attempts at this stage to the envelope. This includes
        attempts that ran in a process that died.
        """
        while self._counted < failures:
            recorded = await self._consumption(self._counted)
            self._llm_calls += recorded["llm_calls"]
            self.envelope.token_count += recorded["tokens"]
            self.envelope.cost += Decimal(recorded["cost"])
            self._counted += 1

    async def _attempt(self, trial: Trial) -> None:
        stage = self._stage
        functions = self._functions
        # The functions of a stage with retries may run several times.
        repeatable = stage.max_retries > 0
        self._is_at_work = False
        if stage.name in functions.before:
            await trial.run(functions.before[stage.name], BEFORE, repeatable=repeatable)
        self._is_at_work = True
        output = await self._work.do(trial, self._config, functions)
        self._is_at_work = False
        missing = [name for name in stage.required_output_fields if name not in output]
        if missing:
            raise StepError(f"stage {stage.name!r} must return {', '.join(missing)}, but did not")
        trial.envelope.set_output(stage.output_key, output)
        if stage.name in functions.after:
            await trial.run(functions.after[stage.name], AFTER, repeatable=repeatable, output=output)


def is_of_call(error: BaseException) -> bool:
    """Return True if an error was raised by a failed operation. Such an operation runs again if the execution is
    resumed.

    A failed turn of an agent alone does not count: if no operation in it failed, a resumption would read the same
    results from the log and fail again.
    """
    calls = (link for link in links_of(error) if isinstance(link, OperationError) and link.operation_id)
    return any(link.operation_type not in ENCLOSING for link in calls)


# --- one attempt at a stage -------------------------------------------------------------------------------------------


STAGE_CALL = "stage_call"
"""Type of the recorded operation for a function of a stage."""
BEFORE = "before"
WORK = "work"
AFTER = "after"
FIRST_DELAY = 1.0
FACTOR = 2.0
LONGEST_DELAY = 30.0
"""Longest time between two attempts at a stage, in seconds."""


def policy_of(stage: AgentStage) -> Retry:
    """Return the retry policy of a stage: the number of attempts, and the delays between them."""
    return Retry(stage.max_retries + 1, FIRST_DELAY, FACTOR, LONGEST_DELAY, jitter=0.0)


class Trial:
    """One attempt at a stage, with its own copy of the envelope, the time limit of the attempt, and a context that
    counts the consumption of its operations.

    Parameters
    ----------
    number
        Number of attempts at the stage that failed before in this visit.
    seconds
        Time limit of the whole attempt; None for no limit.
    """

    def __init__(
        self, context: StepContext, stage: AgentStage, envelope: Envelope, number: int, seconds: float | None
    ) -> None:
        # A stage that may be retried is tried again as a whole; both together would multiply the calls.
        step = replace(context.step, retry=policy_of(stage)) if stage.max_retries else context.step
        self.context = with_wrapper(context, self._operation, step=step, is_limited=seconds is not None)
        self.stage = stage
        self.envelope = envelope.clone()
        self.reported_calls = 0
        """Number of model calls that the function of the stage reported."""
        self._requests: Counter[str | int] = Counter()
        self._counted: Counter[str | int] = Counter()
        """Number of failed attempts at each operation whose consumption is already counted, by key of the operation."""
        self._number = number
        self._seconds = seconds
        self._began = anyio.current_time()
        self._numbered = itertools.count(1)

    @property
    def prefix(self) -> str:
        """Prefix for the keys of the operations that an agent makes in this attempt. Each attempt has its own prefix,
        so that the agent starts a new turn in it.
        """
        return f"{self.stage.name}/" if self._number == 0 else f"{self.stage.name}@{self._number}/"

    @property
    def has_asked(self) -> bool:
        """True if the attempt has left a pending question in its envelope."""
        return self.envelope.has_pending_interrupt()

    @property
    def llm_calls(self) -> int:
        """Number of model calls that the attempt made."""
        return self.reported_calls + self._requests.total()

    def leave_to_resumption(self, key: str, error: str) -> None:
        """Record that this attempt has failed and that the next attempt is made only when the execution is resumed.

        The next attempt makes its own operations; it does not reuse the recorded results of this attempt.

        `key` is the key that was passed to `retried`, under which the attempts are counted.
        """
        self.context.record_event(StepRetried(self._number + 1, error, 0.0, None, attempts_key(self.context, key)))

    async def _operation(  # noqa: PLR0917 - the signature of `OperationWrapper`
        self,
        make: MakeOperation,
        operation_type: str,
        parameters: Mapping[str, Any],
        key: str | int | None,
        attempt: int | None,
        time_limit: float | None,
        call: Call,
    ) -> Any:
        """Run an operation, or replay it from the log, within the time limit of the attempt. Add the tokens and cost
        that it consumes to the envelope.
        """
        # Operations without a key are numbered in the order of the calls, which is the same in a replay.
        key = self._next_key() if key is None else key
        failures = attempt or 0
        is_tool = operation_type == ACTION_EXECUTION
        number = self._number if call.within is None else 0  # the keys of a turn have the number in their prefix
        if operation_type == AGENT_RESPONSE:
            self._requests[key] = failures + 1  # also those of a process that has died
        self._count_failures(key, failures)
        # The limits of the step and of the call surround that of the stage.
        call_in_time = call._replace(
            make=functools.partial(self._in_time, call.make, is_tool=is_tool),
            streamed=call.streamed and functools.partial(self._in_time, call.streamed, is_tool=is_tool),
        )
        try:
            result = await make(operation_type, parameters, key, number + failures, time_limit, call_in_time)
        except BoundExceededError:
            if operation_type == AGENT_RESPONSE:
                self._requests[key] = failures  # the bound refused the request before it was sent
            raise
        except OperationError:
            self._count_failures(key, failures + 1)
            raise
        if call.usage is not None:
            self._count(call.usage(result))
        return result

    def _next_key(self) -> str:
        return f"{self.stage.name}-{next(self._numbered)}"

    async def _in_time(self, call: Callable[..., Awaitable[Any]], *arguments: Any, is_tool: bool) -> Any:
        if self._seconds is None:
            return await call(*arguments)
        remaining = max(0.0, self._seconds - (anyio.current_time() - self._began))
        with anyio.move_on_after(remaining):
            return await call(*arguments)
        # Reached only when the time is over. The recorder looks at the cause (`leaves_outcome_unknown`): a tool that
        # was interrupted may have taken effect, and is not simply called again. A model call may be repeated.
        cause = TimeoutError("a tool may have taken effect") if is_tool else None
        raise StageTimeoutError(self.stage.name, self._seconds) from cause

    def _count_failures(self, key: str | int, attempts: int) -> None:
        """Add the tokens and cost of the first `attempts` failed attempts at an operation to the envelope. This
        includes attempts that ran in a process that died.
        """
        for attempt in range(self._counted[key], attempts):
            # A failed attempt without a record has consumed nothing.
            record = self.context.record_of(key, self._number + attempt)
            self._count({} if record is None else record.consumed)
        self._counted[key] = max(self._counted[key], attempts)

    def _count(self, used: Mapping[str, int]) -> None:
        self.envelope.token_count += used.get("input_tokens", 0) + used.get("output_tokens", 0)
        self.envelope.cost += exact_dollars(used.get("cost", 0))

    async def run(
        self, function: EnvelopeFunction, part: str, *, repeatable: bool, output: Mapping[str, Any] | None = None
    ) -> StageResult:
        """Run a Python function of the stage with a copy of the envelope. Record its result, and the changes that it
        made to the envelope.
        """
        # The function works on a copy. A live run and a replay apply the changes in the same way, from the record. Only
        # changed fields are recorded, since the whole envelope would be repeated in each event.
        before = self.envelope.to_state_dict()
        envelope = self.envelope.clone()
        name = self.stage.name

        def stored(result: Any) -> dict[str, Any]:
            after = envelope.to_state_dict()
            changes = {key: value for key, value in after.items() if value != before[key]}
            return {**_plain(name, part, result), "changes": changes}

        recorded = await call(
            self.context,
            StageFunction(name, function, idempotent=repeatable),
            {"envelope": envelope} if output is None else {"envelope": envelope, "output": output},
            self._next_key(),
            recorded=(STAGE_CALL, {"stage": name, "part": part}),
            convert=stored,
        )
        if recorded["changes"]:
            self.envelope.take_over({**before, **recorded["changes"]})
        return StageResult(recorded["output"], recorded["llm_calls"])


def _plain(stage: str, part: str, value: Any) -> dict[str, Any]:
    """Convert the return value of a stage's Python function to the form in which the log records it. The return value
    of a hook (a function before or after a stage) is ignored.
    """
    if part != WORK:
        return {"output": {}, "llm_calls": None}
    result = value if isinstance(value, StageResult) else StageResult({} if value is None else value)
    if not isinstance(result.output, Mapping):
        raise StepError(f"the function of stage {stage!r} must return a mapping, not {result.output!r:.100}")
    return {"output": dict(result.output), "llm_calls": result.llm_calls}


# --- the work of a stage: mock, service, agent, or tools of a plan ----------------------------------------------------


THROUGH = (BoundExceededError, DivergenceError, StageTimeoutError, StoreError, UnstorableValueError)
"""Errors of a tool call that the tool did not cause. They are not recorded as results of the tool."""


class Work:
    """Computes the outputs of stages: from a mock, with a Python function, with an agent, or by calling the tools that
    a plan lists. A plan is the output of an earlier stage.

    Parameters
    ----------
    find_agent
        Function that returns an agent by name.
    actions
        Function that returns the actions, by name. A tool of a stage is an action.
    services
        Dependencies that the environment provides to agents.
    """

    def __init__(
        self, find_agent: Callable[[str], Agent], actions: Callable[[], Mapping[str, Action]], services: AgentServices
    ) -> None:
        self._find_agent = find_agent
        self._actions = actions
        self._services = services

    def check(self, config: PipelineConfig, functions: StageFunctions) -> None:
        """Raise an error if an agent that a pipeline uses refers to a tool, server, agent or workspace that is missing
        or not allowed.

        A missing agent does not raise an error here: its stage fails when it runs.
        """
        # Stages whose work is a mock or a function need no agent.
        in_place = {*functions.mocks, *functions.services}
        roles = {stage.model_role for stage in config.agents if stage.has_llm and stage.name not in in_place}
        for agent in agents_with_subordinates(roles, self._known_agent, self._services):
            self._services.check_agent(agent)

    def _known_agent(self, name: str) -> Agent | None:
        try:
            return self._find_agent(name)
        except NotFoundError:
            return None

    async def do(self, trial: Trial, config: PipelineConfig, functions: StageFunctions) -> dict[str, Any]:
        """Compute the output of a stage. The model calls are counted in `trial` (the attempt), also if the stage
        fails.
        """
        stage = trial.stage
        if stage.name in functions.mocks:
            return await self._mock(trial, functions.mocks[stage.name])
        if stage.name in functions.services:
            return await self._serve(trial, functions)
        if stage.has_llm:
            return await self._ask(trial, config)
        if stage.has_tools:
            return await self._use_tools(trial)
        return {}

    @staticmethod
    async def _mock(trial: Trial, mock: Any) -> dict[str, Any]:
        if isinstance(mock, Mapping):
            return dict(mock)
        return dict((await trial.run(mock, WORK, repeatable=True)).output)

    @staticmethod
    async def _serve(trial: Trial, functions: StageFunctions) -> dict[str, Any]:
        stage = trial.stage
        # Set before the call, so that a call that fails counts too.
        trial.reported_calls = int(stage.has_llm)
        repeatable = stage.has_llm or stage.max_retries > 0
        result: StageResult = await trial.run(functions.services[stage.name], WORK, repeatable=repeatable)
        if result.llm_calls is not None:
            trial.reported_calls = result.llm_calls
        return dict(result.output)

    # --- a model ---------------------------------------------------------------------------------------------------

    async def _ask(self, trial: Trial, config: PipelineConfig) -> dict[str, Any]:
        stage = trial.stage
        agent = self._find_agent(stage.model_role).with_settings(
            temperature=stage.temperature, max_tokens=stage.max_tokens
        )
        prompt = await prompt_of(config, stage, trial.envelope)
        answer = await ask_agent(trial.context, agent, AgentTask(prompt, prefix=trial.prefix), self._services)
        return object_in(answer.text)

    # --- tools -----------------------------------------------------------------------------------------------------

    async def _use_tools(self, trial: Trial) -> dict[str, Any]:
        # A plan has the form {"steps": [{"step_id": "s1", "tool": "search", "parameters": {...}}, ...]}.
        plan = trial.envelope.get_output(trial.envelope.slot_names.archive) or {}
        steps = plan.get("steps", [])
        if not isinstance(steps, list):
            raise StepError(f"the steps of a plan must be a list, not {steps!r:.100}")
        results = [await self._use_tool(trial, number, step) for number, step in enumerate(steps)]
        return {
            "results": results,
            "total_time_ms": sum(result["time_ms"] for result in results),
            "all_succeeded": all(result["success"] for result in results),
        }

    async def _use_tool(self, trial: Trial, number: int, step: Any) -> dict[str, Any]:
        """Call the tool for one step of a plan (an output that lists tool calls), and return the result. An error of
        the tool is returned as the result.
        """
        entry = step if isinstance(step, Mapping) else {}
        tool = str(entry.get("tool", ""))
        result: dict[str, Any] = {"step_id": entry.get("step_id") or f"step_{number}", "tool": tool}
        # Both times are recorded, so that a replay reports the same duration.
        began = await trial.context.now()
        try:
            result |= {"success": True, "result": await self._call(trial, number, tool, entry.get("parameters") or {})}
        except THROUGH:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is its recorded result
            result |= {"success": False, "error": clean_text(error)}
        duration = await trial.context.now() - began
        return result | {"time_ms": int(duration.total_seconds() * 1000)}

    async def _call(self, trial: Trial, number: int, tool: str, parameters: Any) -> Any:
        stage = trial.stage
        actions = self._actions()
        if not stage.allows(tool):
            raise StepError(f"stage {stage.name!r} may not use the tool {tool!r} (access {stage.tool_access})")
        if tool not in actions:
            raise NotFoundError("action", tool, actions, f"tool {tool!r} not found")
        if not isinstance(parameters, dict):
            raise StepError(f"parameters of {tool} must be a mapping, not {parameters!r:.100}")
        return await call(trial.context, actions[tool], parameters, f"{stage.name}-tool-{number}")


async def prompt_of(config: PipelineConfig, stage: AgentStage, envelope: Envelope) -> str:
    """Return the prompt that the agent of a stage gets: the rendered template of the stage, or a default prompt if it
    has none.

    The default prompt contains the request, the outputs so far, the plans and the feedback of earlier iterations, and
    the answer of a person.
    """
    if stage.prompt_key and stage.prompt_key not in config.prompts:
        raise NotFoundError("prompt", stage.prompt_key, config.prompts)
    template = stage.prompt or (config.prompts[stage.prompt_key] if stage.prompt_key else "")
    if template:
        (prompt,) = await render_texts([template], {"envelope": envelope.to_state_dict()})
        return prompt
    outputs = json.dumps(envelope.outputs, ensure_ascii=False, default=str) if envelope.outputs else ""
    response = envelope.interrupt.response if envelope.interrupt is not None else None
    answer = json.dumps(response.to_dict(), ensure_ascii=False) if response is not None else ""
    # Without feedback the prompt stays as earlier versions wrote it, so that their logs are replayed unchanged.
    plans = json.dumps(envelope.prior_plans, ensure_ascii=False, default=str) if envelope.prior_plans else ""
    feedback = "\n".join(f"{number}. {text}" for number, text in enumerate(envelope.loop_feedback, 1))
    parts = [
        envelope.raw_input,
        outputs and f"Outputs so far: {outputs}",
        feedback and plans and f"Plans of earlier passes: {plans}",
        feedback and f"Feedback on earlier passes:\n{feedback}",
        answer and f"Answer of a person: {answer}",
    ]
    return "\n\n".join(part for part in parts if part)


# --- JSON in the text of a model --------------------------------------------------------------------------------------


MOST_SHOWN = 200
"""Number of characters of a text that an error message shows."""


def object_in(text: str) -> dict[str, Any]:
    """Parse the JSON object in a text: the whole text, or the first JSON object inside it.

    Raises
    ------
    StepError
        The text contains no JSON object.

    Examples
    --------
    >>> object_in('Here it is: {"verdict": "proceed", "why": "no } is missing"} Anything else?')
    {'verdict': 'proceed', 'why': 'no } is missing'}
    """
    start = text.find("{")
    while start >= 0:
        value, _ = json_object(text, start)
        if value is not None:
            return value
        # Not an object, such as a brace in prose. The next brace may begin one.
        start = text.find("{", start + 1)
    shown = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
    raise StepError(f"the answer holds no JSON object: {shown!r}; ask for one in the agent's instructions")


# --- Python functions of stages ---------------------------------------------------------------------------------------


EnvelopeFunction = Callable[..., Any]
"""Function that receives an envelope and may change it. An ordinary function runs in a thread."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """Return type for Python functions of stages: the output of the stage, and the number of model calls that the
    function made.
    """

    output: Mapping[str, Any] = field(default_factory=dict)
    llm_calls: int | None = None
    """Number of model calls that the function made; by default 1 for a stage with a model, else 0."""


@dataclass(frozen=True, slots=True)
class StageFunctions:
    """Python functions that a pipeline uses, by name of the stage.

    All functions receive the envelope and may change it (ask with `set_interrupt`, set metadata). The changes are
    recorded with the result of the function.
    """

    services: Mapping[str, EnvelopeFunction] = field(default_factory=dict)
    """Functions that do the work of stages: ``f(envelope)`` returns the output, or a `StageResult`."""
    mocks: Mapping[str, EnvelopeFunction | Mapping[str, Any]] = field(default_factory=dict)
    """Outputs, or functions ``f(envelope)``, that replace the work of stages. They count no model call."""
    before: Mapping[str, EnvelopeFunction] = field(default_factory=dict)
    """Functions ``f(envelope)`` that run before the work of stages."""
    after: Mapping[str, EnvelopeFunction] = field(default_factory=dict)
    """Functions ``f(envelope, output)`` that run after the output of a stage was stored in its slot."""
    save: Callable[[dict[str, Any]], Any] | None = None
    """Function ``f(state)`` that receives the envelope's state after each stage or batch. Errors are only logged."""

    @property
    def stages(self) -> set[str]:
        """Names of the stages that have at least one Python function or mock."""
        return {*self.services, *self.mocks, *self.before, *self.after}


NO_FUNCTIONS = StageFunctions()


class StageFunction(UserFunction):
    """Wrapper for the Python function or hook of a stage, so that steps can call it like other user functions."""

    __slots__ = ()
    kind = "stage"
    stays_here = True

    @property
    def takes(self) -> Takes:
        """Description of the arguments that a call of the function must pass. A stage's function gets no extra
        arguments, such as the context, even if its parameters have the names that request them in other functions.
        """
        return Takes(inspect.iscoroutinefunction(self.function))

    def bound(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Convert named arguments to positional arguments for the stage's function, because users may choose any names
        for its parameters.
        """
        return tuple(arguments.values()), {}
