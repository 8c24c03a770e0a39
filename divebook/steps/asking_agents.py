"""The one way to ask an agent from a step: each request to its model is recorded, counted and tried again by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from divebook.agents import Agent
from divebook.agents.turn import Answer, Assignment
from divebook.engine.operations import RunOperation
from divebook.execution.context import StepContext
from divebook.steps.offers import Offers
from divebook.steps.taking_turns import Blocks, has_hands, take_turn
from divebook.steps.turns import TURN, as_asked
from divebook.workflow.policies import Retry


async def ask_agent(
    context: StepContext, agent: Agent, asked: Assignment, offers: Offers, blocks: Blocks | None = None
) -> Answer:
    """Return an agent's answer.

    Parameters
    ----------
    offers
        What its environment gives it.
    blocks
        Gives what agents that it gives work to know; by default nothing.
    """
    agent = as_asked(context, agent, offers)
    has_begun = context.record_of(f"{asked.prefix}{TURN}") is not None  # with tools, which it may have no more
    if has_begun or has_hands(agent, offers) or asked.output is not None or asked.thread is not None:
        return await take_turn(context, agent, asked, offers, blocks or _none)
    # A step with a Retry of its own tries the whole step again; both together would multiply the requests.
    operation = context.operation if context.step.retry is not None else _tried_again(context, agent.retry)
    text = await agent.respond(
        asked.prompt, operation, content=asked.content, context=asked.context, date=context.started_at
    )
    return Answer(text, text)


async def _none(*_: object) -> Sequence[Mapping[str, Any]]:
    return ()


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
