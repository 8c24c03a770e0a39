"""One attempt at a stage: its hooks and its work, and what they have counted and changed."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import anyio

from divebook.engine.bounds import NANODOLLARS
from divebook.engine.operations import ACTION_EXECUTION, AGENT_RESPONSE, RunOperation, StreamedCall, Write
from divebook.errors import BoundExceededError, StageTimeoutError, StepError
from divebook.execution.context import StepContext
from divebook.pipeline.envelope import Envelope
from divebook.pipeline.stage import AgentStage
from divebook.pipeline.stages.functions import StageFunction, StageResult, called
from divebook.workflow.policies import Retry

STAGE_CALL = "stage_call"
"""A function of a stage."""
BEFORE, WORK, AFTER = "before", "work", "after"


class Trial:
    """An attempt: an envelope of its own, and calls that are recorded once.

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
        self.context, self.stage, self.envelope = context, stage, envelope.clone()
        self.llm_calls = 0
        self._number, self._seconds, self._began = number, seconds, anyio.current_time()
        self._calls = 0

    @property
    def has_asked(self) -> bool:
        """Whether it raised a question."""
        return self.envelope.has_pending_interrupt()

    async def now(self) -> datetime:
        """Return the time, recorded."""
        self._calls += 1
        return await self.context.now(f"{self.stage.name}-{self._number}-time-{self._calls}")

    async def operation(
        self,
        operation_type: str,
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        key: str | None = None,
        usage: Callable[[Any], Mapping[str, int]] | None = None,
        streamed: StreamedCall | None = None,
        **options: Any,
    ) -> Any:
        """Make a call within the time of the attempt: recorded once, answered from the log ever after."""
        key = key or self._next_key()
        self.llm_calls += operation_type == AGENT_RESPONSE

        async def limited() -> Any:
            return await self._in_time(call, is_tool=operation_type == ACTION_EXECUTION)

        try:
            result = await self.context.operation(
                operation_type,
                parameters,
                limited,
                key=key,
                usage=usage,
                attempt=self._number,
                streamed=None if streamed is None else functools.partial(self._stream_in_time, streamed),
                **options,
            )
        except BoundExceededError:
            self.llm_calls -= operation_type == AGENT_RESPONSE  # it was not made
            raise
        if usage is not None:
            self._count(usage(result))
        return result

    def tried_again(self, policy: Retry) -> RunOperation:
        """Return `operation`, with a further one for each attempt that the policy allows; all of them count."""

        async def operation(
            operation_type: str, parameters: Mapping[str, Any], call: Callable[[], Awaitable[Any]], **options: Any
        ) -> Any:
            key, before = self._next_key(), self.llm_calls

            async def attempt(failures: int) -> Any:
                self.llm_calls = before + failures  # also those of a process that has died
                name = f"{key}-again-{failures}" if failures else key
                return await self.operation(operation_type, parameters, call, key=name, **options)

            return await self.context.retried(f"{key}-requests", policy, attempt)

        return operation

    def _next_key(self) -> str:
        self._calls += 1
        return f"{self.stage.name}-{self._calls}"

    async def _stream_in_time(self, streamed: StreamedCall, write: Write) -> Any:
        return await self._in_time(lambda: streamed(write), is_tool=False)

    async def _in_time(self, call: Callable[[], Awaitable[Any]], *, is_tool: bool) -> Any:
        if self._seconds is None:
            return await call()
        left = max(0.0, self._seconds - (anyio.current_time() - self._began))
        with anyio.move_on_after(left):
            return await call()
        cause = TimeoutError("a tool may have taken effect") if is_tool else None
        raise StageTimeoutError(self.stage.name, self._seconds) from cause

    def _count(self, used: Mapping[str, int]) -> None:
        self.envelope.token_count += used.get("input_tokens", 0) + used.get("output_tokens", 0)
        self.envelope.cost += Decimal(used.get("cost", 0)) / NANODOLLARS

    async def run(self, function: StageFunction, part: str, *arguments: Any, repeatable: bool) -> StageResult:
        """Call a function of the stage with the envelope; what it changes there is recorded with what it returns."""
        before = self.envelope.to_state_dict()

        async def call() -> dict[str, Any]:
            twin = self.envelope.clone()
            told = await called(function, twin, *arguments)
            after = twin.to_state_dict()
            changes = {key: value for key, value in after.items() if value != before[key]}
            return {**_plain(self.stage.name, part, told), "changes": changes}

        parameters = {"stage": self.stage.name, "part": part}
        recorded = await self.operation(STAGE_CALL, parameters, call, repeatable=repeatable)
        if recorded["changes"]:
            self.envelope.take_over({**before, **recorded["changes"]})
        return StageResult(recorded["output"], recorded["llm_calls"])


def _plain(stage: str, part: str, told: Any) -> dict[str, Any]:
    """Return what a function returned as the log holds it; of hooks nothing is expected."""
    if part != WORK:
        return {"output": {}, "llm_calls": None}
    result = told if isinstance(told, StageResult) else StageResult({} if told is None else told)
    if not isinstance(result.output, Mapping):
        raise StepError(f"the function of stage {stage!r} must return a mapping, not {result.output!r:.100}")
    return {"output": dict(result.output), "llm_calls": result.llm_calls}
