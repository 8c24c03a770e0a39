"""The one way to ask an agent from a step: each request to its model is recorded, counted and tried again by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from divebook.agents import Agent
from divebook.agents.turn import Answer, Offers
from divebook.engine.operations import RunOperation
from divebook.execution.context import StepContext
from divebook.steps.turns import take_turn
from divebook.workflow.policies import Retry


async def ask_agent(
    context: StepContext,
    agent: Agent,
    prompt: str,
    *,
    content: Sequence[Mapping[str, Any]] = (),
    own: Sequence[Mapping[str, Any]] = (),
    offers: Offers,
    prefix: str = "",
) -> Answer:
    """Return an agent's answer.

    Parameters
    ----------
    content
        Blocks that come before the prompt.
    own
        Blocks of the agent's own `Context`, which make an extra message in front of everything.
    offers
        What the environment gives to agents.
    prefix
        What stands in front of the keys of a turn, where a step has several.
    """
    agent = agent.with_model(context.model)
    if agent.has_hands:
        return await take_turn(context, agent, prompt, offers, content=content, own=own, prefix=prefix)
    # A step with a Retry of its own tries the whole step again; both together would multiply the requests.
    operation = context.operation if context.step.retry is not None else _tried_again(context, agent.retry)
    text = await agent.respond(prompt, operation, content=content, context=own, date=context.started_at)
    return Answer(text, text)


def _tried_again(context: StepContext, policy: Retry) -> RunOperation:
    """Return the context's `operation`, with a further one for each attempt that the policy allows."""

    async def operation(
        operation_type: str,
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        key: str | None = None,
        **options: Any,
    ) -> Any:
        name = context.next_key() if key is None else key

        async def attempt(failures: int) -> Any:
            return await context.operation(operation_type, parameters, call, key=name, attempt=failures, **options)

        return await context.retried(name, policy, attempt)

    return operation
