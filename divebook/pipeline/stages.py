"""The handler of the steps that a pipeline becomes."""

from __future__ import annotations

import functools
import inspect
import itertools
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import anyio

from divebook.agents import Agent
from divebook.agents.turn import AgentTask
from divebook.engine.bounds import NANODOLLARS
from divebook.engine.operations import ACTION_EXECUTION, AGENT_RESPONSE, ENCLOSING, STAGE_ATTEMPT, StreamedCall
from divebook.engine.retries import Fault, retry_delay
from divebook.environment.environment import Environment
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
from divebook.pipeline import progress
from divebook.pipeline.envelope import (
    Envelope,
    FlowInterrupt,
    InterruptKind,
    ProcessingStatus,
    TerminalReason,
    merge_branches,
)
from divebook.pipeline.envelope.interrupts import as_question, parts_of
from divebook.pipeline.progress import failure_of, question_id, slots_from, stage_error
from divebook.runtime.context import StepContext
from divebook.runtime.errors import clean_text, links_of
from divebook.runtime.step import Outcome
from divebook.steps.actions import Action
from divebook.steps.call import call, invoke
from divebook.steps.checks import agents_with_subordinates
from divebook.steps.prompt import ask_agent
from divebook.steps.script_step import render_texts
from divebook.steps.step_turn import AgentServices
from divebook.text.redaction import logger
from divebook.workflow.definition import (
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
from divebook.workflow.functions import Takes, UserFunction
from divebook.workflow.pipelines import END, AgentStage, PipelineConfig
from divebook.workflow.step import STAGE, Retry

# The Python functions of a pipeline's stages, and what they may return.


EnvelopeFunction = Callable[..., Any]
"""Takes an envelope, which it may change; a coroutine function or an ordinary one, which runs in a thread."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """Result of a stage's function that has more than an output."""

    output: Mapping[str, Any] = field(default_factory=dict)
    llm_calls: int | None = None
    """Model calls it made; by default 1 for a stage with a model, else 0."""


@dataclass(frozen=True, slots=True)
class StageFunctions:
    """The functions of a pipeline, by stage.

    All of them receive the envelope and may change it (ask with `set_interrupt`, keep metadata); what they change is
    recorded with their result.
    """

    services: Mapping[str, EnvelopeFunction] = field(default_factory=dict)
    """``f(envelope)`` returns the output, or a `StageResult`."""
    mocks: Mapping[str, EnvelopeFunction | Mapping[str, Any]] = field(default_factory=dict)
    """Outputs, or functions of an envelope, in place of whatever else a stage does; they count no model call."""
    before: Mapping[str, EnvelopeFunction] = field(default_factory=dict)
    """``f(envelope)`` runs in front of a stage's work."""
    after: Mapping[str, EnvelopeFunction] = field(default_factory=dict)
    """``f(envelope, output)`` runs once the output is in its slot."""
    save: Callable[[dict[str, Any]], Any] | None = None
    """``f(state)`` receives the envelope's state when a stage, or batch, has ended; what it raises is logged only."""

    @property
    def stages(self) -> set[str]:
        """The names of the stages that have a function."""
        return {*self.services, *self.mocks, *self.before, *self.after}


NO_FUNCTIONS = StageFunctions()


class StageFunction(UserFunction):
    """A function of a stage, called with an envelope, and a hook after the work with the output as well."""

    __slots__ = ()
    kind = "stage"
    stays_here = True

    @property
    def takes(self) -> Takes:
        """Return that nothing comes with the call, whatever its parameters are called."""
        return Takes(inspect.iscoroutinefunction(self.function))

    def bound(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the arguments by position: a person may call them as they like."""
        return tuple(arguments.values()), {}


# One attempt at a stage: its hooks and its work, and what they have counted and changed.


STAGE_CALL = "stage_call"
"""A function of a stage."""
BEFORE = "before"
WORK = "work"
AFTER = "after"
FIRST_DELAY = 1.0
FACTOR = 2.0
LONGEST_DELAY = 30.0
"""Seconds between the attempts at a stage."""


def policy_of(stage: AgentStage) -> Retry:
    """Return how a stage is tried again."""
    return Retry(stage.max_retries + 1, FIRST_DELAY, FACTOR, LONGEST_DELAY, jitter=0.0)


class Trial(StepContext):
    """An attempt: the context of its step with an envelope of its own, whose calls have the time of the attempt.

    Parameters
    ----------
    number
        How often the stage has failed before in this visit.
    seconds
        How long the whole attempt may take; None for as long as it likes.
    """

    def __init__(
        self, context: StepContext, stage: AgentStage, envelope: Envelope, number: int, seconds: float | None
    ) -> None:
        vars(self).update(vars(context))
        # A stage that may be retried is tried again as a whole; both together would multiply the calls.
        self.step = replace(context.step, retry=policy_of(stage)) if stage.max_retries else context.step
        self.stage = stage
        self.envelope = envelope.clone()
        self.is_limited = seconds is not None
        self.said_calls = 0
        """Model calls that a function says it made."""
        self._requests: Counter[str | int] = Counter()
        self._counted: Counter[str | int] = Counter()
        """Failed attempts at a call whose consumption is counted, by the key of the call."""
        self._number = number
        self._seconds = seconds
        self._began = anyio.current_time()
        self._numbered = itertools.count(1)

    @property
    def prefix(self) -> str:
        """Prefix of the keys of an agent's turn: each attempt has a turn of its own."""
        return f"{self.stage.name}/" if self._number == 0 else f"{self.stage.name}@{self._number}/"

    @property
    def has_asked(self) -> bool:
        """True if it raised a question."""
        return self.envelope.has_pending_interrupt()

    @property
    def llm_calls(self) -> int:
        """How many model calls it made."""
        return self.said_calls + self._requests.total()

    def leave_to_resumption(self, key: str, error: str) -> None:
        """Record that the attempt has failed, and that only a resumption makes the next one, with calls of its own.

        `key` is that of `retried`, under which the attempts are counted.
        """
        self.note(StepRetried(self._number + 1, error, 0.0, None, self._attempts_of(key)))

    async def operation(
        self,
        operation_type: str,
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        key: str | int | None = None,
        usage: Callable[[Any], Mapping[str, int]] | None = None,
        attempt: int | None = None,
        streamed: StreamedCall | None = None,
        within: str | None = None,
        **options: Any,
    ) -> Any:
        """Make a call within the time of the attempt, and count what it consumes."""
        key = self._next_key() if key is None else key
        failures = attempt or 0
        is_tool = operation_type == ACTION_EXECUTION
        number = self._number if within is None else 0  # the keys of a turn have the number in their prefix
        if operation_type == AGENT_RESPONSE:
            self._requests[key] = failures + 1  # also those of a process that has died
        self._count_failures(key, failures)
        try:
            result = await super().operation(
                operation_type,
                parameters,
                functools.partial(self._in_time, call, is_tool=is_tool),
                key=key,
                usage=usage,
                attempt=number + failures,
                streamed=streamed and functools.partial(self._in_time, streamed, is_tool=is_tool),
                within=within,
                **options,
            )
        except BoundExceededError:
            if operation_type == AGENT_RESPONSE:
                self._requests[key] = failures  # it was not made
            raise
        except OperationError:
            self._count_failures(key, failures + 1)
            raise
        if usage is not None:
            self._count(usage(result))
        return result

    def _next_key(self) -> str:
        return f"{self.stage.name}-{next(self._numbered)}"

    async def _in_time(self, call: Callable[..., Awaitable[Any]], *arguments: Any, is_tool: bool) -> Any:
        if self._seconds is None:
            return await call(*arguments)
        remaining = max(0.0, self._seconds - (anyio.current_time() - self._began))
        with anyio.move_on_after(remaining):
            return await call(*arguments)
        cause = TimeoutError("a tool may have taken effect") if is_tool else None
        raise StageTimeoutError(self.stage.name, self._seconds) from cause

    def _count_failures(self, key: str | int, attempts: int) -> None:
        """Count what the first attempts at a call consumed although they failed, also those of another process."""
        for attempt in range(self._counted[key], attempts):
            record = self.record_of(key, self._number + attempt)
            self._count({} if record is None else record.consumed)
        self._counted[key] = max(self._counted[key], attempts)

    def _count(self, used: Mapping[str, int]) -> None:
        self.envelope.token_count += used.get("input_tokens", 0) + used.get("output_tokens", 0)
        self.envelope.cost += Decimal(used.get("cost", 0)) / NANODOLLARS

    async def run(
        self, function: EnvelopeFunction, part: str, *, repeatable: bool, output: Mapping[str, Any] | None = None
    ) -> StageResult:
        """Call a function of the stage with the envelope; what it changes there is recorded with what it returns."""
        before = self.envelope.to_state_dict()
        twin = self.envelope.clone()
        name = self.stage.name

        def stored(result: Any) -> dict[str, Any]:
            after = twin.to_state_dict()
            changes = {key: value for key, value in after.items() if value != before[key]}
            return {**_plain(name, part, result), "changes": changes}

        recorded = await call(
            self,
            StageFunction(name, function, idempotent=repeatable),
            {"envelope": twin} if output is None else {"envelope": twin, "output": output},
            self._next_key(),
            recorded=(STAGE_CALL, {"stage": name, "part": part}),
            convert=stored,
        )
        if recorded["changes"]:
            self.envelope.take_over({**before, **recorded["changes"]})
        return StageResult(recorded["output"], recorded["llm_calls"])


def _plain(stage: str, part: str, value: Any) -> dict[str, Any]:
    """Return what a function returned as the log holds it; of hooks nothing is expected."""
    if part != WORK:
        return {"output": {}, "llm_calls": None}
    result = value if isinstance(value, StageResult) else StageResult({} if value is None else value)
    if not isinstance(result.output, Mapping):
        raise StepError(f"the function of stage {stage!r} must return a mapping, not {result.output!r:.100}")
    return {"output": dict(result.output), "llm_calls": result.llm_calls}


# From the text that a model wrote to the object in it.


MOST_SHOWN = 200
"""Characters of a text that an error shows."""


def object_in(text: str) -> dict[str, Any]:
    """Return the JSON object that a text is, or the first one inside it.

    Raises
    ------
    StepError
        There is none.

    Examples
    --------
    >>> object_in('Here it is: {"verdict": "proceed", "why": "no } is missing"} Anything else?')
    {'verdict': 'proceed', 'why': 'no } is missing'}
    """
    decoder = json.JSONDecoder(parse_constant=_refuse)
    start = text.find("{")
    while start >= 0:
        try:
            value, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
        else:
            return dict(value)
    shown = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
    raise StepError(f"the answer holds no JSON object: {shown!r}; ask for one in the agent's instructions")


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# What a stage does: its mock, its service, its agent, or the tools of a plan.


THROUGH = (BoundExceededError, DivergenceError, StageTimeoutError, StoreError, UnstorableValueError)
"""Errors of a tool call that are not the tool's own."""


class Work:
    """Carries out the work of stages.

    Parameters
    ----------
    find_agent
        Gives the agent of a name.
    actions
        The actions that tools are.
    services
        What the environment gives to agents.
    """

    def __init__(
        self, find_agent: Callable[[str], Agent], actions: Callable[[], Mapping[str, Action]], services: AgentServices
    ) -> None:
        self._find_agent = find_agent
        self._actions = actions
        self._services = services

    def check(self, config: PipelineConfig, functions: StageFunctions) -> None:
        """Raise unless the agents that are asked may use what they name; an agent that is missing fails its stage."""
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
        """Return the output of a stage; model calls are counted in the trial, also those that fail."""
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
        trial.said_calls = int(stage.has_llm)
        repeatable = stage.has_llm or stage.max_retries > 0
        result: StageResult = await trial.run(functions.services[stage.name], WORK, repeatable=repeatable)
        if result.llm_calls is not None:
            trial.said_calls = result.llm_calls
        return dict(result.output)

    # --- a model ---------------------------------------------------------------------------------------------------

    async def _ask(self, trial: Trial, config: PipelineConfig) -> dict[str, Any]:
        stage = trial.stage
        agent = self._find_agent(stage.model_role).with_settings(
            temperature=stage.temperature, max_tokens=stage.max_tokens
        )
        prompt = await prompt_of(config, stage, trial.envelope)
        answer = await ask_agent(trial, agent, AgentTask(prompt, prefix=trial.prefix), self._services)
        return object_in(answer.text)

    # --- tools -----------------------------------------------------------------------------------------------------

    async def _use_tools(self, trial: Trial) -> dict[str, Any]:
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
        """Run one step of a plan. A failed tool is a result like any other."""
        entry = step if isinstance(step, Mapping) else {}
        tool = str(entry.get("tool", ""))
        result: dict[str, Any] = {"step_id": entry.get("step_id") or f"step_{number}", "tool": tool}
        began = await trial.now()
        try:
            result |= {"success": True, "result": await self._call(trial, number, tool, entry.get("parameters") or {})}
        except THROUGH:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is its recorded result
            result |= {"success": False, "error": clean_text(error)}
        took = await trial.now() - began
        return result | {"time_ms": int(took.total_seconds() * 1000)}

    async def _call(self, trial: Trial, number: int, tool: str, parameters: Any) -> Any:
        stage = trial.stage
        actions = self._actions()
        if not stage.allows(tool):
            raise StepError(f"stage {stage.name!r} may not use the tool {tool!r} (access {stage.tool_access})")
        if tool not in actions:
            raise NotFoundError("action", tool, actions, f"tool {tool!r} not found")
        if not isinstance(parameters, dict):
            raise StepError(f"parameters of {tool} must be a mapping, not {parameters!r:.100}")
        return await call(trial, actions[tool], parameters, f"{stage.name}-tool-{number}")


async def prompt_of(config: PipelineConfig, stage: AgentStage, envelope: Envelope) -> str:
    """Return what a stage's agent is asked: its prompt filled in, or by default all that the envelope holds for it.

    These are the request, the outputs so far, the plans and the feedback of earlier passes through a loop, and the
    answer of a person.
    """
    if stage.prompt_key and stage.prompt_key not in config.prompts:
        raise NotFoundError("prompt", stage.prompt_key, config.prompts)
    template = stage.prompt or (config.prompts[stage.prompt_key] if stage.prompt_key else "")
    if template:
        (prompt,) = await render_texts([template], {"envelope": envelope.to_state_dict()})
        return prompt
    outputs = json.dumps(envelope.outputs, ensure_ascii=False, default=str) if envelope.outputs else ""
    answered = envelope.interrupt.response if envelope.interrupt is not None else None
    answer = json.dumps(answered.to_dict(), ensure_ascii=False) if answered is not None else ""
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


# One visit of a stage by an envelope: its attempts, its output or failure, and what is noted of them.


@dataclass(slots=True)
class Ticker:
    """The clock of an envelope inside a step: stands still at the last time that was recorded."""

    time: datetime

    def __call__(self) -> datetime:
        """Return that time."""
        return self.time


@dataclass(frozen=True, slots=True)
class VisitResult:
    """Result of a visit."""

    output: Mapping[str, Any] | None = None
    """None where there is none."""
    error: str | None = None
    reason: TerminalReason | None = None
    """The typed reason, for a request that ends with the error."""
    exhausted: str | None = None
    """The typed reason for which a bound of the execution did not let it be carried out."""
    failure: Exception | None = None
    """The error of which `error` is the text, where it ends the step as well."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The last attempt at a stage, which has failed, or has failed after it had asked a person."""

    trial: Trial
    error: Exception
    is_model: bool
    """True if its model, or what stands for it, was at work."""


class Visit:
    """One visit of a stage; made for one `run`.

    Parameters
    ----------
    ends_step
        Whether its failure ends the step, so that a resumption makes another attempt: nothing is noted of it in the
        envelope then. By default the envelope notes it, and the step completes.
    """

    def __init__(
        self,
        context: StepContext,
        config: PipelineConfig,
        stage: AgentStage,
        envelope: Envelope,
        *,
        ticker: Ticker,
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
        self._llm_calls = 0
        self._counted = 0
        self._is_at_work = False

    async def run(self) -> VisitResult:
        """Run the stage with its retries, and record the result in the envelope."""
        stage = self._stage
        before = self.envelope.clone()
        self.envelope.record_agent_start(stage.name, stage.stage_order)
        outcome = await self._context.retried(self._attempts, self._policy, self._try)
        if isinstance(outcome, Trial):
            self._take(outcome)
            await self._complete(ProcessingStatus.SUCCESS)
            return VisitResult(self.envelope.get_output(stage.output_key) or {})
        exhausted = Fault.of(outcome.error, "").reason
        if exhausted is None:
            return await self._failed(outcome)
        self._undo(before, outcome.trial)
        return VisitResult(exhausted=exhausted)

    @property
    def _attempts(self) -> str:
        return f"{self._stage.name}-attempts"

    def _take(self, trial: Trial) -> None:
        """Keep what an attempt did to the envelope."""
        self.envelope = trial.envelope
        question = self.envelope.interrupt
        if trial.has_asked and question is not None and not question.id:
            question.id = question_id(self.envelope)

    def _undo(self, before: Envelope, trial: Trial) -> None:
        """Leave the stage as if it had not begun, but for what it has spent."""
        before.llm_call_count += self._llm_calls
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
        self._take(failed.trial)
        await self._complete(ProcessingStatus.ERROR, error)
        self.envelope.errors.append(stage_error(self._stage.name, error, self._ticker.time))
        reason = TerminalReason.LLM_FAILED_FATALLY if failed.is_model else TerminalReason.TOOL_FAILED_FATALLY
        return VisitResult(error=error, reason=reason)

    # --- attempts --------------------------------------------------------------------------------------------------

    async def _try(self, failures: int) -> Trial | Failed:
        """Return an attempt that succeeded, or why it is the last; raise where another may follow."""
        await self._count_failed(failures)
        trial = Trial(self._context, self._stage, self.envelope, failures, self._config.seconds(self._stage))
        try:
            await self._attempt(trial)
        except (StoreError, DivergenceError):
            raise
        except Exception as error:
            fault = Fault.of(error, clean_text(error))
            if retry_delay(self._policy, failures + 1, fault, 0.0) is None or trial.has_asked:
                if self._ends_step and fault.reason is None and not is_of_call(error):
                    # Its calls have results, which a resumption would take from the log: only another attempt calls.
                    await self._spent(failures, trial)
                    trial.leave_to_resumption(self._attempts, fault.message)
                self._llm_calls += trial.llm_calls
                return Failed(trial, error, self._is_at_work and self._stage.has_llm)
            await self._spent(failures, trial)
            raise
        self._llm_calls += trial.llm_calls
        return trial

    async def _spent(self, number: int, trial: Trial | None = None) -> Mapping[str, Any]:
        """Return what an attempt that failed has spent; recorded, since it is not made again on resume."""

        async def tell() -> dict[str, Any]:
            assert trial is not None  # noqa: S101 - an attempt is recorded before it is followed by another
            tokens = trial.envelope.token_count - self.envelope.token_count
            return {
                "llm_calls": trial.llm_calls,
                "tokens": tokens,
                "cost": str(trial.envelope.cost - self.envelope.cost),
            }

        data = {"stage": self._stage.name, "attempt": number}
        key = f"{self._stage.name}-spent-{number}"
        spent: dict[str, Any] = await self._context.operation(STAGE_ATTEMPT, data, tell, key=key, repeatable=True)
        return spent

    async def _count_failed(self, failures: int) -> None:
        """Count what earlier attempts have spent, also those of a process that has died."""
        while self._counted < failures:
            spent = await self._spent(self._counted)
            self._llm_calls += spent["llm_calls"]
            self.envelope.token_count += spent["tokens"]
            self.envelope.cost += Decimal(spent["cost"])
            self._counted += 1

    async def _attempt(self, trial: Trial) -> None:
        stage = self._stage
        functions = self._functions
        repeatable = stage.max_retries > 0
        self._is_at_work = False
        if stage.name in functions.before:
            await trial.run(functions.before[stage.name], BEFORE, repeatable=repeatable)
        self._is_at_work = True
        output = await self._work.do(trial, self._config, functions)
        self._is_at_work = False
        missing = [name for name in stage.required_output_fields if name not in output]
        if missing:
            raise StepError(f"stage {stage.name!r} returned no {', '.join(missing)}, which it must")
        trial.envelope.set_output(stage.output_key, output)
        if stage.name in functions.after:
            await trial.run(functions.after[stage.name], AFTER, repeatable=repeatable, output=output)


def is_of_call(error: BaseException) -> bool:
    """Return whether an error comes from a failed call, which a resumption makes again.

    A failed turn of an agent is not one: without a failed call in it, a resumption finds the same answers in the log.
    """
    calls = (link for link in links_of(error) if isinstance(link, OperationError) and link.operation_id)
    return any(link.operation_type not in ENCLOSING for link in calls)


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
        """Run the part of the step."""
        run = _Run(context, self._functions.get(context.workflow.name, NO_FUNCTIONS), self._work)
        part = context.step.parameters[PART]
        run.ticker.time = await context.now()
        if part == ROUTE:
            return await run.route()
        if part == BATCH:
            return await run.branch(str(context.local["stage"]))
        return await run.merge() if part == MERGE else await run.stage(str(context.step.parameters[NAME]))


def add_stages(environment: Environment) -> StageStep:
    """Register the handler of pipeline steps with an environment; return the handler."""
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
        self._context = context
        self._functions = functions
        self._work = work
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
        """True if the pipeline was declared in a definition file, and its request came as inputs."""
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
        # A response may be an input of the execution, or come as an answer to its question. The expiry of the first is
        # checked here; that of the second is an error of the wait.
        response = None if self._state else self._context.inputs.get(RESPONSE)
        if response is None and interrupt.kind == InterruptKind.CHECKPOINT and self._config.resume_checkpoints:
            response = {}
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
            envelope.ask_next_interrupt()
        return True

    async def _expire(self, envelope: Envelope) -> None:
        self.ticker.time = await self._context.now()
        progress.expire(self._config, envelope)
        if envelope.terminated:
            await self._save(envelope)

    async def _answer_to(self, interrupt: FlowInterrupt) -> dict[str, Any]:
        question = as_question(interrupt)
        expires = interrupt.expires_at
        remaining = None if expires is None else max(0.0, (expires - self.ticker.time).total_seconds())
        answered = await self._context.interrupt(
            question.kind,
            question.question,
            message=question.message,
            data=question.data,
            expires_in=remaining,
            optional=question.optional,
            key="question",
        )
        return parts_of(answered.response)

    # --- one stage -------------------------------------------------------------------------------------------------

    async def stage(self, name: str) -> Outcome:
        """Run one stage and move the envelope."""
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

    async def _visited(self, stage: AgentStage, envelope: Envelope) -> tuple[Envelope, VisitResult]:
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
        """Run one stage of a batch on its own copy of the envelope."""
        stage = self._stage(name)
        twin = self._present
        twin.current_stage = name
        branch, ended = await self._visited(stage, twin)
        result: dict[str, Any] = {"stage": name, ENVELOPE: branch.to_state_dict(), "error": ended.error}
        result |= {"reason": ended.reason and str(ended.reason), "exhausted": ended.exhausted}
        return Outcome(_emitted(ended.output), result)

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
        """Set the next stage, so that a waiting envelope names the stage at which it will continue."""
        ready = progress.ready(self._config, envelope)
        envelope.current_stage = ready[0] if ready else END
        progress.finish_at_end(envelope)

    async def _save(self, envelope: Envelope) -> None:
        """Call the user's function that saves the state. Its errors do not affect the request."""
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
