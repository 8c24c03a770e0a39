"""Prompt steps: send a rendered text and content blocks to an agent."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from divebook.agents import Agent
from divebook.agents.turn import AgentTask, Answer
from divebook.errors import (
    NotFoundError,
    StepError,
    ToolError,
)
from divebook.runtime.context import StepContext
from divebook.runtime.errors import clean_failure
from divebook.runtime.step import Outcome
from divebook.steps.batched_rows import run_batches
from divebook.steps.evaluation import filled, render_texts
from divebook.steps.step_turn import TURN, AgentServices
from divebook.workflow.step import (
    Step,
)

if TYPE_CHECKING:
    pass
from divebook.steps.agent_turns import ask_agent, uses_tools
from divebook.steps.content_blocks import ContentBuilder


class PromptStep:
    """Handler of prompt steps.

    Parameters
    ----------
    find_agent
        Gives the agent of a name, or the default agent for None; None where there is none at all.
    content
        Turns content entries into blocks.
    services
        What the environment gives to agents.
    """

    def __init__(
        self, find_agent: Callable[[str | None], Agent | None], content: ContentBuilder, services: AgentServices
    ) -> None:
        self._find_agent = find_agent
        self._content = content
        self._services = services

    async def __call__(self, context: StepContext) -> Outcome:
        """Ask the agent. Its answer is the value and the output of the step."""
        step = context.step
        agent = self._find_agent(step.agent)
        if agent is None:
            raise StepError(f'no agent specified for prompt step "{step.name}"; define one, or name it with Agent')
        if step.each is not None and step.each.rows is not None:
            frame = await filled({"rows": step.each.rows}, context.names, cache=context.known)
            return await run_batches(context, agent, frame["rows"], self._services)
        prompt, thread = await render_texts([step.prompt or "", step.thread or ""], context.names)
        content = await self._content.blocks(step.content, context, agent.name)
        task = AgentTask(prompt, content, output=step.output, thread=thread or None)
        answer = await self._answer(context, agent, task)
        return Outcome(answer.text, answer.value)

    def agent_of_step(self, step: Step) -> Agent | None:
        """Return the agent of a step if it may call tools: its operations are calls of their own, each with its own
        retries.
        """
        try:
            agent = self._find_agent(step.agent)
        except NotFoundError:
            return None  # which the step says when it runs
        is_turn = agent is not None and (
            uses_tools(agent, self._services) or (step.output, step.thread) != (None, None)
        )
        return agent if is_turn else None

    async def ask(self, context: StepContext, name: str, task: AgentTask) -> Answer:
        """Ask an agent for a workflow function; raise `NotFoundError` for an unknown agent."""
        agent = self._find_agent(name)
        if agent is None:
            raise NotFoundError("agent", name)
        if context.record_of(f"{task.prefix}{TURN}") is None:
            self._services.check_agent(agent)  # its name was not known when the execution began
        return await self._answer(context, agent, task)

    async def _answer(self, context: StepContext, agent: Agent, task: AgentTask) -> Answer:
        blocks = functools.partial(self._content.of_agent, context)
        own_context = await blocks(agent, "")
        try:
            task_with_context = replace(task, context=own_context) if own_context else task
            return await ask_agent(context, agent, task_with_context, self._services, blocks)
        except ToolError as error:
            raise ToolError(error.agent, error.tool, error.cause) from error
        except Exception as error:
            raise StepError(f"agent {agent.name} failed: {clean_failure(error)}") from error
