"""Prompt steps: a rendered text and content blocks go to an agent."""

from __future__ import annotations

from collections.abc import Callable

from divebook.agents import Agent
from divebook.engine.retries import text_of
from divebook.errors import StepError
from divebook.execution.context import StepContext
from divebook.execution.iterations import Outcome
from divebook.steps.asking_agents import ask_agent
from divebook.steps.content import ContentBuilder
from divebook.steps.evaluation import render_texts


class PromptStep:
    """Carries out prompt steps.

    Parameters
    ----------
    find_agent
        Gives the agent of a name, or the default agent for None; None where there is none at all.
    content
        Turns content entries into blocks.
    """

    def __init__(self, find_agent: Callable[[str | None], Agent | None], content: ContentBuilder) -> None:
        self._find_agent, self._content = find_agent, content

    async def __call__(self, context: StepContext) -> Outcome:
        """Ask the agent; its answer is the step's value and output."""
        step = context.step
        agent = self._find_agent(step.agent)
        if agent is None:
            raise StepError(f'no agent specified for prompt step "{step.name}"; define one, or name it with Agent')
        (prompt,) = await render_texts([step.prompt or ""], context.names)
        content = await self._content.blocks(step.content, context, agent.name)
        own_context = await self._content.blocks(agent.definition.context, context, agent.name)
        try:
            answer = await ask_agent(context, agent, prompt, content=content, own=own_context)
        except Exception as error:
            raise StepError(f"agent response operation failed: {text_of(error)}") from error
        return Outcome(answer, answer)
