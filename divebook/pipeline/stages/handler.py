"""The handler of the steps that a pipeline becomes."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from divebook.environment import Environment
from divebook.errors import DefinitionError, InterruptExpiredError, StepError
from divebook.execution.context import StepContext
from divebook.execution.iterations import Outcome
from divebook.pipeline.envelope import Envelope, FlowInterrupt, InterruptKind, TerminalReason, merge_branches
from divebook.pipeline.envelope.interrupt import as_question, parts_of
from divebook.pipeline.reflection import failure_of, slots_from
from divebook.pipeline.stages import progress
from divebook.pipeline.stages.functions import NO_FUNCTIONS, StageFunction, StageFunctions
from divebook.pipeline.stages.visit import Ended, Ticker, Visit
from divebook.pipeline.stages.work import Work
from divebook.steps.call import invoke
from divebook.text.logs import logger
from divebook.workflow.definition import Problem, Workflow
from divebook.workflow.pipeline_steps import (
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
)
from divebook.workflow.pipelines import END, AgentStage, PipelineConfig
from divebook.workflow.step import STAGE

_log = logger("divebook.pipeline")

pipeline_of = functools.lru_cache(maxsize=128)(PipelineConfig.from_text)
"""The pipeline that a workflow was made of, from the text in its first step."""

_FAILURES = (
    TerminalReason.TOOL_FAILED_RECOVERABLY,
    TerminalReason.TOOL_FAILED_FATALLY,
    TerminalReason.LLM_FAILED_FATALLY,
)
"""Reasons of requests that ended because a stage failed."""


class StageStep:
    """Carries out the steps that a pipeline becomes.

    Parameters
    ----------
    work
        Does what stages do.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._functions: dict[str, StageFunctions] = {}

    def bind(self, pipeline: str, functions: StageFunctions) -> None:
        """Take in the Python functions of a pipeline's stages; those of an earlier one of that name go."""
        self._functions[pipeline] = functions

    def check(self, workflow: Workflow) -> None:
        """Raise unless the functions of a pipeline's stages are here, and its agents may use what they name.

        Raises
        ------
        DefinitionError, NotFoundError, SetupError
            A function is missing, or an agent names something that is missing or not allowed.
        """
        bound = self._functions.get(workflow.name, NO_FUNCTIONS)
        missing = sorted(set(workflow.start.parameters.get(FUNCTIONS, ())) - bound.stages)
        if missing:
            message = f"pipeline {workflow.name!r} needs functions for {', '.join(missing)}"
            hint = "make its Pipeline with this environment first"
            raise DefinitionError([Problem(message, hint=hint)], f"workflow {workflow.name!r}")
        self._work.check(pipeline_of(workflow.start.script), bound)

    async def __call__(self, context: StepContext) -> Outcome:
        """Do the part of the step."""
        run = _Run(context, self._functions.get(context.workflow.name, NO_FUNCTIONS), self._work)
        part = context.step.parameters[PART]
        run.ticker.time = await context.now()
        if part == ROUTE:
            return await run.route()
        if part == BATCH:
            return await run.branch(str(context.local["stage"]))
        return await run.merge() if part == MERGE else await run.stage(str(context.step.parameters[NAME]))


def add_stages(environment: Environment) -> StageStep:
    """Let an environment carry out the steps that pipelines become; return what does."""
    handler = StageStep(Work(environment.agent, lambda: environment.actions, environment))
    environment.add_step_type(STAGE, handler, handler.check)
    return handler


def stage_step(environment: Environment) -> StageStep:
    """Return what carries out an environment's stages."""
    handler = environment.step_handler(STAGE)
    return handler if isinstance(handler, StageStep) else add_stages(environment)


class _Run:
    """One part of a pipeline, for one envelope."""

    def __init__(self, context: StepContext, functions: StageFunctions, work: Work) -> None:
        self.ticker = Ticker(datetime.min)  # noqa: DTZ901 - set before it is asked
        self._context, self._functions, self._work = context, functions, work
        self._config = pipeline_of(context.workflow.start.script)
        self._state: Mapping[str, Any] = context.variables.get(STATE) or {}
        self._slots = slots_from(context.inputs.get(SLOTS))

    def _envelope(self, state: Mapping[str, Any]) -> Envelope:
        return Envelope.from_state_dict(state, slot_names=self._slots, clock=self.ticker)

    @property
    def _present(self) -> Envelope:
        state = self._state.get(ENVELOPE) or self._context.inputs.get(ENVELOPE)
        return self._begun() if state is None else self._envelope(state)

    def _begun(self) -> Envelope:
        """Return the envelope of a request that was given as inputs, in front of the first stage."""
        # A fork has the same ids: it is held against the events that it shares with its source.
        inputs, seed = self._context.inputs, self._context.seed
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
        """Whether the pipeline was declared in a definition file, and its request came as inputs."""
        return ENVELOPE not in self._context.inputs

    # --- what is next ----------------------------------------------------------------------------------------------

    async def route(self) -> Outcome:
        """Ask what is to be asked, check the bounds, and choose what runs next."""
        envelope = self._present
        if envelope.has_pending_interrupt() and not envelope.terminated:
            return _outcome(envelope, again=await self._ask(envelope))
        if exhausted := self._state.get("exhausted"):
            envelope.terminal_reason = exhausted
            return _outcome(envelope)
        chosen = progress.choose(self._config, envelope)
        if self._is_declared and envelope.terminal_reason in _FAILURES:
            raise StepError(f"{failure_of(envelope.current_stage)}{envelope.termination_reason}")
        stopped = not chosen and not envelope.terminated and envelope.current_stage != END
        if stopped and self._config.on_exhausted == "ask" and progress.ask_about_bound(envelope):
            return _outcome(envelope, again=True)
        return _outcome(envelope, chosen)

    async def _ask(self, envelope: Envelope) -> bool:
        """Ask the envelope's question and do what the answer, or its lack, means; return False if none is asked."""
        interrupt = envelope.interrupt
        assert interrupt is not None  # noqa: S101 - it is pending
        given = None if self._state else self._context.inputs.get(RESPONSE)
        if given is None and interrupt.kind == InterruptKind.CHECKPOINT and self._config.resume_checkpoints:
            given = {}
        if given is None and self._context.inputs.get(DETACHED):
            return False
        if given is not None and interrupt.is_expired(self.ticker.time):
            await self._expire(envelope)
            return True
        try:
            response = await self._answer_to(interrupt) if given is None else given
        except InterruptExpiredError:
            await self._expire(envelope)
            return True
        self.ticker.time = await self._context.now()
        envelope.resolve_interrupt(response)
        progress.settle(self._config, envelope)
        if envelope.terminated:
            await self._save(envelope)
        else:
            envelope.ask_next_interrupt()
        return True

    async def _expire(self, envelope: Envelope) -> None:
        self.ticker.time = await self._context.now()
        progress.expire(self._config, envelope)
        if envelope.terminated:
            await self._save(envelope)

    async def _answer_to(self, interrupt: FlowInterrupt) -> dict[str, Any]:
        asked, expires = as_question(interrupt), interrupt.expires_at
        left = None if expires is None else max(0.0, (expires - self.ticker.time).total_seconds())
        answered = await self._context.interrupt(
            asked.kind,
            asked.question,
            message=asked.message,
            data=asked.data,
            expires_in=left,
            optional=asked.optional,
            key="question",
        )
        return parts_of(answered.response)

    # --- one stage -------------------------------------------------------------------------------------------------

    async def stage(self, name: str) -> Outcome:
        """Carry out one stage and move the envelope on."""
        stage = self._stage(name)
        envelope, ended = await self._visited(stage, self._present)
        if ended.exhausted is not None:
            return _outcome(envelope, exhausted=ended.exhausted)
        self.ticker.time = await self._context.now()
        handled: Mapping[str, Any] | None = ended.output
        if ended.error is None:
            output = ended.output or {}
            keeps = bool(self._context.inputs.get(FEEDBACK)) or self._is_declared
            progress.go_on(self._config, envelope, stage, stage.next_stage(output), output, keeps_feedback=keeps)
        elif stage.error_next:
            handled = {}
            progress.go_on(self._config, envelope, stage, stage.error_next, {"question": ended.error})
        else:
            envelope.terminate(ended.error, ended.reason)
        await self._save(envelope)
        return _outcome(envelope, text=_emitted(handled))

    def _stage(self, name: str) -> AgentStage:
        stage = self._config.stage(name)
        assert stage is not None  # noqa: S101 - route chooses only stages that exist
        return stage

    async def _visited(self, stage: AgentStage, envelope: Envelope) -> tuple[Envelope, Ended]:
        """Return the envelope after a stage, and how that ended.

        Raises
        ------
        StepError
            It failed, and the failure ends the execution. Callers of a pipeline in Python get its envelope, which
            holds the failure; the outputs of a declared pipeline do not. The step of the stage fails, and no later one:
            so a resumption makes the failed call again.
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
        ended = await visit.run()
        if ended.failure is not None:
            error = StepError(f"{failure_of(stage.name)}{ended.error}")
            error.__context__ = ended.failure  # names the failed call, which `__cause__` would name in the message too
            raise error
        return visit.envelope, ended

    # --- a batch ---------------------------------------------------------------------------------------------------

    async def branch(self, name: str) -> Outcome:
        """Carry out one stage of a batch on its own copy of the envelope."""
        stage, twin = self._stage(name), self._present
        twin.current_stage = name
        branch, ended = await self._visited(stage, twin)
        told: dict[str, Any] = {"stage": name, ENVELOPE: branch.to_state_dict(), "error": ended.error}
        told |= {"reason": ended.reason and str(ended.reason), "exhausted": ended.exhausted}
        return Outcome(_emitted(ended.output), told)

    async def merge(self) -> Outcome:
        """Join what the branches of a batch became."""
        envelope = self._present
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
        if branch["exhausted"]:
            envelope.active_stages.pop(name, None)
        elif branch["error"] is None:
            envelope.complete_stage(name)
        else:
            envelope.fail_stage(name, branch["error"])
            if not envelope.terminated and not self._stage(name).error_next:
                envelope.terminate(branch["error"], branch["reason"])

    def _look_ahead(self, envelope: Envelope) -> None:
        """Name the stage that is next, so that an envelope that waits says where it will go on."""
        ready = progress.ready(self._config, envelope)
        envelope.current_stage = ready[0] if ready else END
        progress.finish_at_end(envelope)

    async def _save(self, envelope: Envelope) -> None:
        """Hand the state to the person's function that saves it; what goes wrong there does not concern the request."""
        if self._functions.save is None:
            return
        try:
            function = StageFunction("save", self._functions.save)
            await invoke(self._context, function, {"state": envelope.to_state_dict()}, "save")
        except Exception:  # noqa: BLE001 - a function of the person, which may raise anything
            _log.exception("the state of %s could not be saved", envelope.envelope_id)


def _emitted(output: Mapping[str, Any] | None) -> str:
    """Return an output as the text of its step; of a stage that was not carried out, none."""
    return "" if output is None else json.dumps(output, ensure_ascii=False)


def _outcome(
    envelope: Envelope,
    chosen: list[str] | None = None,
    *,
    again: bool = False,
    exhausted: str | None = None,
    text: str = "",
) -> Outcome:
    state: dict[str, Any] = {ENVELOPE: envelope.to_state_dict(), "next": chosen or [], "again": again}
    return Outcome(text, state if exhausted is None else {**state, "exhausted": exhausted})
