"""One visit of a stage by an envelope: its attempts, its output or failure, and what is noted of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from divebook.engine.operations import ENCLOSING, STAGE_ATTEMPT
from divebook.engine.retries import Fault, retry_delay
from divebook.errors import DivergenceError, OperationError, StepError, StoreError
from divebook.execution.context import StepContext
from divebook.execution.error_texts import clean_text
from divebook.execution.raised import links_of
from divebook.pipeline.envelope import Envelope, ProcessingStatus, TerminalReason
from divebook.pipeline.reflection import stage_error
from divebook.pipeline.stages.functions import StageFunctions
from divebook.pipeline.stages.progress import question_id
from divebook.pipeline.stages.trial import AFTER, BEFORE, Trial, policy_of
from divebook.pipeline.stages.work import Work
from divebook.workflow.pipelines import AgentStage, PipelineConfig


@dataclass(slots=True)
class Ticker:
    """The clock of an envelope inside a step: stands still at the last time that was recorded."""

    time: datetime

    def __call__(self) -> datetime:
        """Return that time."""
        return self.time


@dataclass(frozen=True, slots=True)
class Ended:
    """How a visit ended."""

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
    """Whether its model, or what stands for it, was at work."""


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
        self._context, self._config, self._stage = context, config, stage
        self._ends_step = ends_step
        self.envelope, self._ticker = envelope, ticker
        self._functions, self._work, self._policy = functions, work, policy_of(stage)
        self._llm_calls, self._counted, self._is_at_work = 0, 0, False

    async def run(self) -> Ended:
        """Carry the stage out, as often as it may be tried, and note it in the envelope."""
        stage = self._stage
        before = self.envelope.clone()
        self.envelope.record_agent_start(stage.name, stage.stage_order)
        outcome = await self._context.retried(self._attempts, self._policy, self._try)
        if isinstance(outcome, Trial):
            self._take(outcome)
            await self._complete(ProcessingStatus.SUCCESS)
            return Ended(self.envelope.get_output(stage.output_key) or {})
        exhausted = Fault.of(outcome.error, "").reason
        if exhausted is None:
            return await self._failed(outcome)
        self._undo(before, outcome.trial)
        return Ended(exhausted=exhausted)

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
        before.token_count, before.cost = trial.envelope.token_count, trial.envelope.cost
        self.envelope = before

    async def _complete(self, status: ProcessingStatus, error: str | None = None) -> None:
        self._ticker.time = await self._context.now()
        self.envelope.record_agent_complete(self._stage.name, status, error, self._llm_calls)

    async def _failed(self, failed: Failed) -> Ended:
        error = clean_text(failed.error)
        if self._ends_step:
            return Ended(error=error, failure=failed.error)
        self._take(failed.trial)
        await self._complete(ProcessingStatus.ERROR, error)
        self.envelope.errors.append(stage_error(self._stage.name, error, self._ticker.time))
        reason = TerminalReason.LLM_FAILED_FATALLY if failed.is_model else TerminalReason.TOOL_FAILED_FATALLY
        return Ended(error=error, reason=reason)

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

        told = {"stage": self._stage.name, "attempt": number}
        key = f"{self._stage.name}-spent-{number}"
        spent: dict[str, Any] = await self._context.operation(STAGE_ATTEMPT, told, tell, key=key, repeatable=True)
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
        stage, functions = self._stage, self._functions
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
