"""What a stage does: its mock, its service, its agent, or the tools of a plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from divebook.agents import Agent
from divebook.agents.turn import Assignment
from divebook.errors import (
    BoundExceededError,
    DivergenceError,
    NotFoundError,
    StageTimeoutError,
    StepError,
    StoreError,
    UnstorableValueError,
)
from divebook.execution.error_texts import clean_text
from divebook.pipeline.envelope import Envelope
from divebook.pipeline.stages.answers import object_in
from divebook.pipeline.stages.functions import StageFunctions, StageResult
from divebook.pipeline.stages.trial import WORK, Trial
from divebook.steps.actions import Action
from divebook.steps.agent_checks import all_asked
from divebook.steps.asking_agents import ask_agent
from divebook.steps.call import call
from divebook.steps.evaluation import render_texts
from divebook.steps.offers import Offers
from divebook.workflow.pipelines import AgentStage, PipelineConfig

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
    offers
        What the environment gives to agents.
    """

    def __init__(
        self, find_agent: Callable[[str], Agent], actions: Callable[[], Mapping[str, Action]], offers: Offers
    ) -> None:
        self._find_agent, self._actions, self._offers = find_agent, actions, offers

    def check(self, config: PipelineConfig, functions: StageFunctions) -> None:
        """Raise unless the agents that are asked may use what they name; an agent that is missing fails its stage."""
        in_place = {*functions.mocks, *functions.services}
        roles = {stage.model_role for stage in config.agents if stage.has_llm and stage.name not in in_place}
        for agent in all_asked(roles, self._known_agent, self._offers):
            self._offers.check_agent(agent)

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
        answer = await ask_agent(trial, agent, Assignment(prompt, prefix=trial.prefix), self._offers)
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
        """Carry out one step of a plan; a tool that fails is a result like any other."""
        told = step if isinstance(step, Mapping) else {}
        tool = str(told.get("tool", ""))
        result: dict[str, Any] = {"step_id": told.get("step_id") or f"step_{number}", "tool": tool}
        began = await trial.now()
        try:
            result |= {"success": True, "result": await self._call(trial, number, tool, told.get("parameters") or {})}
        except THROUGH:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is its recorded result
            result |= {"success": False, "error": clean_text(error)}
        took = await trial.now() - began
        return result | {"time_ms": int(took.total_seconds() * 1000)}

    async def _call(self, trial: Trial, number: int, tool: str, parameters: Any) -> Any:
        stage, known = trial.stage, self._actions()
        if not stage.allows(tool):
            raise StepError(f"stage {stage.name!r} may not use the tool {tool!r} (access {stage.tool_access})")
        if tool not in known:
            raise NotFoundError("action", tool, known, f"tool {tool!r} not found")
        if not isinstance(parameters, dict):
            raise StepError(f"parameters of {tool} must be a mapping, not {parameters!r:.100}")
        return await call(trial, known[tool], parameters, f"{stage.name}-tool-{number}")


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
