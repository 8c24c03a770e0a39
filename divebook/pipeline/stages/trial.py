"""One attempt at a stage: its hooks and its work, and what they have counted and changed."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import anyio

from divebook.engine.bounds import NANODOLLARS
from divebook.engine.operations import ACTION_EXECUTION, AGENT_RESPONSE, StreamedCall
from divebook.errors import BoundExceededError, OperationError, StageTimeoutError, StepError
from divebook.events.catalog import StepRetried
from divebook.execution.context import StepContext
from divebook.pipeline.envelope import Envelope
from divebook.pipeline.stages.functions import EnvelopeFunction, StageFunction, StageResult
from divebook.steps.call import call
from divebook.workflow.pipelines import AgentStage
from divebook.workflow.policies import Retry

STAGE_CALL = "stage_call"
"""A function of a stage."""
BEFORE, WORK, AFTER = "before", "work", "after"
FIRST_DELAY, FACTOR, LONGEST_DELAY = 1.0, 2.0, 30.0
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
        self.stage, self.envelope = stage, envelope.clone()
        self.is_limited = seconds is not None
        self.said_calls = 0
        """Model calls that a function says it made."""
        self._requests: Counter[str | int] = Counter()
        self._counted: Counter[str | int] = Counter()
        """Failed attempts at a call whose consumption is counted, by the key of the call."""
        self._number, self._seconds, self._began = number, seconds, anyio.current_time()
        self._numbered = itertools.count(1)

    @property
    def prefix(self) -> str:
        """Prefix of the keys of an agent's turn: each attempt has a turn of its own."""
        return f"{self.stage.name}/" if self._number == 0 else f"{self.stage.name}@{self._number}/"

    @property
    def has_asked(self) -> bool:
        """Whether it raised a question."""
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
        key, failures = self._next_key() if key is None else key, attempt or 0
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
        left = max(0.0, self._seconds - (anyio.current_time() - self._began))
        with anyio.move_on_after(left):
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
        before, twin, name = self.envelope.to_state_dict(), self.envelope.clone(), self.stage.name

        def kept(told: Any) -> dict[str, Any]:
            after = twin.to_state_dict()
            changes = {key: value for key, value in after.items() if value != before[key]}
            return {**_plain(name, part, told), "changes": changes}

        recorded = await call(
            self,
            StageFunction(name, function, idempotent=repeatable),
            {"envelope": twin} if output is None else {"envelope": twin, "output": output},
            self._next_key(),
            recorded=(STAGE_CALL, {"stage": name, "part": part}),
            kept=kept,
        )
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
