"""Prompt steps: a rendered text and content blocks go to an agent."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from divebook.agents import Agent
from divebook.agents.turn import Answer, Assignment
from divebook.errors import NotFoundError, StepError, ToolError
from divebook.execution.context import StepContext
from divebook.execution.error_texts import clean_failure
from divebook.execution.iterations import Outcome
from divebook.steps.asking_agents import ask_agent
from divebook.steps.batched_rows import run_batches
from divebook.steps.content import ContentBuilder
from divebook.steps.evaluation import filled, render_texts
from divebook.steps.offers import Offers
from divebook.steps.taking_turns import has_hands
from divebook.steps.turns import TURN
from divebook.workflow.step import Step


class PromptStep:
    """Carries out prompt steps.

    Parameters
    ----------
    find_agent
        Gives the agent of a name, or the default agent for None; None where there is none at all.
    content
        Turns content entries into blocks.
    offers
        What the environment gives to agents.
    """

    def __init__(
        self, find_agent: Callable[[str | None], Agent | None], content: ContentBuilder, offers: Offers
    ) -> None:
        self._find_agent, self._content, self._offers = find_agent, content, offers

    async def __call__(self, context: StepContext) -> Outcome:
        """Ask the agent; its answer is the step's value and output."""
        step = context.step
        agent = self._find_agent(step.agent)
        if agent is None:
            raise StepError(f'no agent specified for prompt step "{step.name}"; define one, or name it with Agent')
        if step.each is not None and step.each.rows is not None:
            frame = await filled({"rows": step.each.rows}, context.names, known=context.known)
            return await run_batches(context, agent, frame["rows"], self._offers)
        prompt, thread = await render_texts([step.prompt or "", step.thread or ""], context.names)
        content = await self._content.blocks(step.content, context, agent.name)
        asked = Assignment(prompt, content, output=step.output, thread=thread or None)
        answer = await self._answer(context, agent, asked)
        return Outcome(answer.text, answer.value)

    def hands_of(self, step: Step) -> Agent | None:
        """Return the agent of a step if it may call tools: what it does are calls of its own, each tried by itself."""
        try:
            agent = self._find_agent(step.agent)
        except NotFoundError:
            return None  # which the step says when it runs
        is_turn = agent is not None and (has_hands(agent, self._offers) or (step.output, step.thread) != (None, None))
        return agent if is_turn else None

    async def ask(self, context: StepContext, name: str, asked: Assignment) -> Answer:
        """Return the answer of an agent to a workflow function; raises `NotFoundError`."""
        agent = self._find_agent(name)
        if agent is None:
            raise NotFoundError("agent", name)
        if context.record_of(f"{asked.prefix}{TURN}") is None:
            self._offers.check_agent(agent)  # its name was not known when the execution began
        return await self._answer(context, agent, asked)

    async def _answer(self, context: StepContext, agent: Agent, asked: Assignment) -> Answer:
        blocks = functools.partial(self._content.of_agent, context)
        own = await blocks(agent, "")
        try:
            given = replace(asked, context=own) if own else asked
            return await ask_agent(context, agent, given, self._offers, blocks)
        except ToolError as error:
            raise ToolError(error.agent, error.tool, error.cause) from error
        except Exception as error:
            raise StepError(f"agent {agent.name} failed: {clean_failure(error)}") from error
