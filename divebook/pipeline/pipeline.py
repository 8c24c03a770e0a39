"""Pipelines: `Pipeline` compiles a `PipelineConfig` to a workflow and runs
envelopes through its stages as executions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, get_args

from divebook.agents import Agent
from divebook.definitions.definition import (
    BATCH,
    DETACHED,
    ENVELOPE,
    FEEDBACK,
    NAME,
    PART,
    RESPONSE,
    RUN,
    SLOTS,
    Workflow,
    compiled,
)
from divebook.definitions.json_schemas import FITTING
from divebook.definitions.pipelines import AgentStage, PipelineConfig, RunMode
from divebook.engine.bounds import Consumption, left_after
from divebook.environments.environment import Environment
from divebook.errors import ExecutionCancelledError, ExecutionFailedError, NotFoundError, ResumeError, SetupError
from divebook.events import Event, catalog
from divebook.events.event import to_microseconds
from divebook.pipeline import progress
from divebook.pipeline.envelope import Envelope, InterruptResponse
from divebook.pipeline.envelope.envelope import utc_now
from divebook.pipeline.envelope.interrupts import FlowInterrupt, as_question, parts_of, parts_of_response
from divebook.pipeline.envelope.plain import open_data
from divebook.pipeline.progress import question_inside, ready_stages, reflect, slots_to, state_of
from divebook.pipeline.stages import EnvelopeFunction, StageFunctions, stage_step
from divebook.projections.spans import Span, Spans
from divebook.questions import checked_answer
from divebook.questions.bounds import ASK, FAIL, Bounds, nanodollars
from divebook.questions.question import CONFIRMATION
from divebook.runtime.clock import SystemClock
from divebook.runtime.run import Run
from divebook.steps.actions import Action
from divebook.stores import MemoryStore

# --- outputs of stages, read from the log while an execution runs -----------------------------------------------------


LAST = "__end__"
"""Value of `StageOutput.stage` in the item after the last stage."""


@dataclass(frozen=True, slots=True)
class StageOutput:
    """Output of one stage, as `Pipeline.stream` yields it. The last one is named ``__end__`` and states whether the
    request was terminated.
    """

    stage: str
    output: dict[str, Any]


async def outputs_of(execution: Run) -> AsyncGenerator[StageOutput, None]:
    """Start an execution of a pipeline and yield the output of each stage, until the execution ends or waits for an
    answer.
    """
    reader = _Reader(execution.workflow)
    # Closed at once if the consumer stops early, so that the subscription ends.
    async with aclosing(_events_of(execution)) as batches:
        async for events in batches:
            for output in reader.read(events):
                yield output


async def _events_of(execution: Run) -> AsyncGenerator[Sequence[Event], None]:
    """Start an execution and yield its events in batches, as soon as they are committed."""
    loop = asyncio.get_running_loop()
    arrived = asyncio.Queue[Sequence[Event] | None]()

    def tell(events: Sequence[Event] | None) -> None:  # called on the engine's thread
        loop.call_soon_threadsafe(arrived.put_nowait, events)

    async def drive() -> None:
        try:
            await execution
        finally:
            arrived.put_nowait(None)  # marks the end

    # Subscribed before the start, so that no event is missed.
    unsubscribe = execution.subscribe(tell)
    execution.start()
    driving = asyncio.create_task(drive())
    last = 0
    try:
        while (events := await arrived.get()) is not None:
            if not events:  # the execution was deleted: the log is read below, which raises the error
                break
            last = events[-1].sequence
            yield events
        await driving
        # The end may be reported before the last events are delivered. These are read from the log.
        if remaining := execution.history(after=last):
            yield remaining
    finally:
        unsubscribe()
        driving.cancel()


class _Reader:
    """Parser that extracts the outputs of stages from the events of a pipeline's execution."""

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._spans = Spans()

    def read(self, events: Sequence[Event]) -> Iterator[StageOutput]:
        """Yield the outputs of those stages that have ended with one of the new events."""
        for event in events:
            self._spans.take(event)
            # Spans that have changed are collected for views. Here the collection would only grow.
            self._spans.changed.clear()
            span = self._spans.subject(event)
            if span is not None and isinstance(event.data, catalog.IterationCompleted | catalog.StepCompleted):
                yield from self._outputs_of(span)

    def _outputs_of(self, span: Span) -> Iterator[StageOutput]:
        """Yield the output of a stage if the span (a step or item in the log) is a completed visit of that stage and
        has an output. Else yield nothing.
        """
        parameters = self._workflow.step(span.step).parameters
        part = parameters.get(PART)
        stage = ""
        text = ""
        # In parallel mode, a stage is an item of the step that runs the batch. Otherwise it is a step of its own.
        if span.kind == "item" and part == BATCH:
            stage = str(span.item)
            text = span.result["text"]
        elif span.kind == "step" and part == RUN:
            stage = str(parameters[NAME])
            text = span.result
        if text:
            yield StageOutput(stage, open_data(json.loads(text)))


Response = InterruptResponse | Mapping[str, Any] | str | bool | int


class Pipeline:
    """Sequence or graph of stages that process a request, given as an `Envelope`.

    The pipeline is compiled to a workflow. Each request is therefore an execution: durable, visible in lists, and with
    questions that can be answered like the questions of any other execution.

    Parameters
    ----------
    config
        A `PipelineConfig`, or a mapping with its fields.
    services, mocks, before, after
        Python functions by name of the stage; see `divebook.pipeline.stages.StageFunctions`. A stage without a service
        or mock runs the agent named by its `model_role` (if `has_llm`), or calls the tools of the plan (if
        `has_tools`), or does nothing.
    save
        Function that receives the state of the envelope as plain data after every stage. Its errors are only logged.
    environment
        Environment that runs and stores the executions. The default is a new environment in memory, which deletes each
        execution after it has ended and its envelope was returned.
    agents, actions
        Agents and actions of the default environment in memory.
    clock
        Clock of the default environment in memory: a function that returns the current time as a datetime with a time
        zone.

    Examples
    --------
    >>> from divebook.pipeline import Pipeline, create_envelope
    >>> config = {"name": "review", "max_iterations": 2, "agents": [
    ...     {"name": "draft", "stage_order": 1, "default_next": "check"},
    ...     {"name": "check", "stage_order": 2, "routing_rules": [
    ...         {"condition": "verdict", "value": "loop_back", "target": "draft"}]}]}
    >>> pipeline = Pipeline(config, services={
    ...     "draft": lambda envelope: {"text": f"version {envelope.iteration + 1}"},
    ...     "check": lambda envelope: {"verdict": "proceed" if envelope.iteration else "loop_back"}})
    >>> envelope = pipeline.run(create_envelope("Write it", "ann", "s1"))
    >>> envelope.outputs["draft"], envelope.iteration, str(envelope.terminal_reason)
    ({'text': 'version 2'}, 1, 'completed')
    """

    def __init__(
        self,
        config: PipelineConfig | Mapping[str, Any],
        *,
        services: Mapping[str, EnvelopeFunction] | None = None,
        mocks: Mapping[str, EnvelopeFunction | Mapping[str, Any]] | None = None,
        before: Mapping[str, EnvelopeFunction] | None = None,
        after: Mapping[str, EnvelopeFunction] | None = None,
        save: Callable[[dict[str, Any]], Any] | None = None,
        environment: Environment | None = None,
        agents: Iterable[Agent] = (),
        actions: Iterable[Action] = (),
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.config = PipelineConfig.of(config)
        self.functions = StageFunctions(services or {}, mocks or {}, before or {}, after or {}, save)
        for name in self.functions.stages:
            if self.config.stage(name) is None:
                raise NotFoundError("stage", name, self.config.order)
        # False: executions exist in memory only, and are deleted when they have ended.
        self._is_kept = environment is not None
        self.environment = environment or Environment(
            store=MemoryStore(), agents=agents, actions=actions, clock=EngineClock(clock)
        )
        stage_step(self.environment).bind(self.config.name, self.functions)
        self._waiting: dict[str, str] = {}
        """Ids of the executions in memory that wait inside a stage, by envelope id."""

    # --- stages ----------------------------------------------------------------------------------------------------

    @property
    def order(self) -> list[str]:
        """Names of the stages of the pipeline, in their order."""
        return self.config.order

    @property
    def stages(self) -> dict[str, AgentStage]:
        """Stages of the pipeline by name."""
        return {stage.name: stage for stage in self.config.agents}

    def ready(self, completed: Mapping[str, bool], failed: Iterable[str] = ()) -> list[str]:
        """Return the names of the stages that can start next in a parallel run. `completed` and `failed` are the stages
        that have ended.
        """
        return ready_stages(self.config, {name for name, done in completed.items() if done}, set(failed))

    def edge_limit(self, source: str, target: str) -> int:
        """Return how often an envelope may follow the edge between two stages; 0 for no limit."""
        return self.config.edge_limit(source, target)

    # --- running ---------------------------------------------------------------------------------------------------

    def start(self, envelope: Envelope, *, mode: RunMode | None = None, from_first_stage: bool = True) -> Run:
        """Start processing an envelope in the background. Return its execution immediately.

        The envelope that is passed does not change; `Pipeline.envelope` returns the current envelope.

        Parameters
        ----------
        mode
            ``sequential`` or ``parallel``; by default the mode of the pipeline.
        from_first_stage
            True to begin at the first stage; False to continue at the current stage of the envelope, for example after
            a bound was raised.

        Examples
        --------
        >>> from divebook.pipeline import create_envelope
        >>> pipeline = Pipeline({"name": "p", "agents": [{"name": "greet"}]}, mocks={"greet": {"text": "hello"}})
        >>> execution = pipeline.start(create_envelope("", "ann", "s1")).wait()
        >>> pipeline.envelope(execution).outputs
        {'greet': {'text': 'hello'}}
        """
        return self._prepared(envelope, mode, from_first_stage=from_first_stage).start()

    def run(self, envelope: Envelope, *, mode: RunMode | None = None, from_first_stage: bool = True) -> Envelope:
        """Run one request through the stages until it ends, waits for an answer, or reaches a bound. Return the
        envelope, which is the state of the request.

        The envelope is modified in place. The parameters are those of `start`.

        Raises
        ------
        ExecutionFailedError, ExecutionCancelledError
            The execution failed or was cancelled. The failure of a stage does not raise an error; it ends the request.
        """
        return self._carried(envelope, self._prepared(envelope, mode, from_first_stage=from_first_stage).start().wait())

    async def arun(self, envelope: Envelope, *, mode: RunMode | None = None, from_first_stage: bool = True) -> Envelope:
        """Run an envelope through the stages like `run`, without blocking the event loop."""
        execution = await self._awaited(self._prepared(envelope, mode, from_first_stage=from_first_stage).start())
        return self._carried(envelope, execution)

    async def stream(
        self, envelope: Envelope, *, mode: RunMode | None = None, from_first_stage: bool = True
    ) -> AsyncGenerator[StageOutput, None]:
        """Run an envelope like `run`, and yield the output of every stage. A last item named ``__end__`` follows at the
        end.

        Examples
        --------
        >>> import asyncio
        >>> from divebook.pipeline import create_envelope
        >>> pipeline = Pipeline({"name": "p", "agents": [{"name": "greet"}]}, mocks={"greet": {"text": "hello"}})
        >>> async def show():
        ...     async for item in pipeline.stream(create_envelope("", "ann", "s1")):
        ...         print(item.stage, item.output)
        >>> asyncio.run(show())
        greet {'text': 'hello'}
        __end__ {'terminated': False}
        """
        execution = self._prepared(envelope, mode, from_first_stage=from_first_stage)
        try:
            async with aclosing(outputs_of(execution)) as outputs:
                async for output in outputs:
                    yield output
        finally:
            self._leave(execution)
        self._carried(envelope, execution)
        yield StageOutput(LAST, {"terminated": envelope.terminated})

    def envelope(self, execution: Run | str) -> Envelope:
        """Return the envelope of an execution of this pipeline, running or ended, according to the event log."""
        existing = self.environment.run_of(execution) if isinstance(execution, str) else execution
        state_of(existing.state)  # raises an error if it is not an execution of a pipeline
        envelope: Envelope = existing.envelope
        return envelope

    def _prepared(self, envelope: Envelope, mode: RunMode | None, *, from_first_stage: bool) -> Run:
        if mode not in (None, *get_args(RunMode)):
            raise SetupError(f"the mode of a pipeline must be {' or '.join(get_args(RunMode))}, not {mode!r}")
        if from_first_stage:
            progress.begin(self.config, envelope, mode or self.config.default_run_mode)
        return self._created(envelope)

    def _created(self, envelope: Envelope, answer: InterruptResponse | None = None) -> Run:
        """Create a pending execution that continues an envelope at its current stage. `answer` is the answer to the
        envelope's question, if one was given.
        """
        mode: RunMode = "parallel" if envelope.parallel_mode else "sequential"
        progress.reopen(envelope, self.config)
        # FEEDBACK: the execution keeps feedback (`progress.go_on`). DETACHED: it ends with a question and does not
        # wait.
        inputs: dict[str, Any] = {FEEDBACK: True} | ({} if self._is_kept else {DETACHED: True})
        if answer is not None:
            inputs[RESPONSE] = parts_of_response(answer)
        return self.environment.create(
            compiled(self.config, mode, self.functions.stages),
            {ENVELOPE: envelope.to_state_dict(), SLOTS: slots_to(envelope.slot_names), **inputs},
            bounds=_remaining_bounds(envelope, self.config),
            identity={
                "envelope_id": envelope.envelope_id,
                "request_id": envelope.request_id,
                "user_id": envelope.user_id,
                "session_id": envelope.session_id,
            },
        )

    async def _awaited(self, execution: Run) -> Run:
        try:
            return await execution
        finally:
            self._leave(execution)

    def _leave(self, execution: Run) -> None:
        """Cancel an execution because its caller has stopped waiting for it. This is done only if the execution exists
        in memory only, so that no other code could find it.
        """
        if not self._is_kept and execution.is_live and not execution.internals.is_blocked:
            execution.cancel("the caller no longer waits for the result")

    def _carried(self, envelope: Envelope, execution: Run) -> Envelope:
        """Update an envelope from the state of its execution, and return it. An execution that exists in memory only is
        deleted if it has ended.
        """
        reflect(envelope, execution.state, execution.workflow)
        if execution.status == catalog.FAILED:
            raise ExecutionFailedError(execution.id, execution.error or "unknown error")
        if execution.status == catalog.CANCELLED:
            raise ExecutionCancelledError(execution.id, execution.error or "")
        if self._is_kept:
            return envelope
        # The stage itself waits, so that its question can only be answered in this execution, which is kept for that.
        if question_inside(execution.state, execution.workflow) is not None:
            self._waiting[envelope.envelope_id] = execution.id
        else:
            self._waiting.pop(envelope.envelope_id, None)
            self.environment.store.delete(execution.id)
        return envelope

    # --- resuming --------------------------------------------------------------------------------------------------

    def resume(self, envelope: Envelope, response: Response, *, interrupt_id: str | None = None) -> Envelope:
        """Answer the pending question of an envelope and continue its request; return the envelope.

        If an execution in the pipeline's environment waits with this envelope, that execution continues. An envelope
        that was saved elsewhere, for example with `to_state_dict`, continues in a new execution. Completed stages do
        not run again.

        Parameters
        ----------
        response
            ``{"text": ...}``, ``{"approved": True}``, ``{"decision": "approve"}``, ``{"data": {...}}``, or a short form
            such as a string; see `Environment.answer`. Every response except an approval denies a confirmation.
        interrupt_id
            Id of the question that is answered; an error if another question is pending.

        Raises
        ------
        ResumeError
            The envelope has no pending question, or a different one. Or its execution has continued in the meantime, so
            that this object is outdated.
        InterruptError
            The answer does not fit the question. The question stays open.
        """
        return self._carried(envelope, self._answer_and_continue(envelope, response, interrupt_id).wait())

    async def aresume(self, envelope: Envelope, response: Response, *, interrupt_id: str | None = None) -> Envelope:
        """Answer the pending question like `resume`, without blocking the event loop."""
        # In a thread, since it reads the store, which may block.
        execution = await asyncio.to_thread(self._answer_and_continue, envelope, response, interrupt_id)
        return self._carried(envelope, await self._awaited(execution))

    def _answer_and_continue(self, envelope: Envelope, response: Response, interrupt_id: str | None) -> Run:
        """Answer the pending question of an envelope. Return the execution that continues the request: the one that
        waits for the answer, or a new one.
        """
        question = envelope.interrupt
        if not envelope.has_pending_interrupt() or question is None:
            raise ResumeError(f"envelope {envelope.envelope_id} has no pending interrupt, so it cannot be resumed")
        if interrupt_id is not None and interrupt_id != question.id:
            raise ResumeError(
                f"envelope {envelope.envelope_id} waits for an answer to {question.id!r}, not to {interrupt_id!r}"
            )
        parked_execution = self._waiting_execution(envelope)
        if parked_execution is not None:
            return self._answer_execution(parked_execution, envelope, response)
        answer = InterruptResponse.read(question.id, parts_of(_checked(question, response)), envelope.clock())
        # The envelope comes from another version of the pipeline, or has not been in a pipeline before.
        if envelope.stage_order != self.config.order:
            envelope.parallel_mode = envelope.parallel_mode or self.config.default_run_mode == "parallel"
            progress.apply_settings(self.config, envelope)
        return self._created(envelope, answer).start()

    def _waiting_execution(self, envelope: Envelope) -> Run | None:
        """Return the execution that waits for the answer to the question of an envelope; None if no execution waits."""
        if not self._is_kept:
            waiting = self._waiting.get(envelope.envelope_id)
            return None if waiting is None else self.environment.run_of(waiting)
        for execution_id, _ in self.environment.inbox():
            execution = self.environment.run_of(execution_id)
            is_ours = execution.workflow.name == self.config.name
            if is_ours and execution.state.identity.get("envelope_id") == envelope.envelope_id:
                return execution
        return None

    def _answer_execution(self, execution: Run, envelope: Envelope, response: Response) -> Run:
        present = self.envelope(execution)
        if present.to_state_dict() != envelope.to_state_dict():
            raise ResumeError(
                f"envelope {envelope.envelope_id} has continued in execution {execution.id}, so this object is "
                "outdated; get the current envelope with pipeline.envelope(execution), and answer its question"
            )
        # A question of a stage is checked by the rules of the engine, a question of the envelope by those of pipelines.
        inside = question_inside(execution.state, execution.workflow)
        question = envelope.interrupt
        if inside is not None or question is None:
            return execution.answer((inside or execution.open_questions[0]).id, _parts_of_response(response))
        return execution.answer(execution.open_questions[0].id, _checked(question, response))


class EngineClock:
    """Clock for the engine, which gets its time from the function that envelopes use as their clock, and sleeps in real
    time.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self.sleep = SystemClock().sleep

    def now(self) -> int:
        """Return the current time in microseconds since 1970, UTC."""
        return to_microseconds(self._clock())


def _parts_of_response(response: Response) -> Any:
    """Convert an `InterruptResponse` to a dict with its text, approval, decision and data. Return an answer of another
    type unchanged.
    """
    return parts_of_response(response) if isinstance(response, InterruptResponse) else response


def _checked(question: FlowInterrupt, response: Response) -> dict[str, Any]:
    """Check the answer to a question of an envelope. Return it as a dict with the parts that the kind of question
    allows.

    In a pipeline, every response to a confirmation except an approval is a denial, also an empty one.
    """
    parts = _parts_of_response(response)
    if question.kind == CONFIRMATION and isinstance(parts, Mapping) and parts.get("approved") is None:
        parts = {**parts, "approved": False}
    return checked_answer(as_question(question), parts, FITTING, 0)


def _remaining_bounds(envelope: Envelope, config: PipelineConfig) -> Bounds | None:
    """Return the bounds of the execution that continues an envelope: the part of the envelope's budget that is left for
    model calls. Return None if the budget is unlimited.

    The engine reserves the cost of each model call in advance, so that parallel stages do not exceed the budget
    together. If a person may be asked to raise the bound, model calls are counted only between stages.
    """
    used = Consumption(envelope.llm_call_count, envelope.token_count, nanodollars(envelope.cost))
    remaining = left_after(envelope.bounds, used)
    if config.on_exhausted == ASK:
        remaining = replace(remaining, max_llm_calls=None)
    is_limited = any(limit is not None for limit in (remaining.max_llm_calls, remaining.max_tokens, remaining.max_cost))
    return replace(remaining, on_exhausted=FAIL) if is_limited else None
