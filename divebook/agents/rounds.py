"""The last round of a turn: an agent that has called its tools often enough is told to answer with what it knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelRetry, UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.messages import InstructionPart, ModelResponse
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import RunContext

from divebook.agents.present import AgentTurn
from divebook.engine.retries import failure_text, names_of
from divebook.errors import AgentError, OperationError, ToolError

ANSWER_NOW = (
    "You have called tools as often as you may for this prompt, and cannot call one any more. "
    "Answer now, with what you know."
)


class LastRound(AbstractCapability[Any]):
    """Takes the tools out of a model's hands after so many rounds of calls; one request more is all that it gets.

    Parameters
    ----------
    agent
        Its name.
    limit
        Requests after which tools may be called.
    """

    def __init__(self, agent: str, limit: int) -> None:
        self._agent, self._limit = agent, limit

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Have the last request say that it is the last."""
        if ctx.run_step <= self._limit:
            return request_context
        given = request_context.model_request_parameters
        told = [*(given.instruction_parts or ()), InstructionPart(content=ANSWER_NOW)]
        return replace(
            request_context,
            model_request_parameters=replace(given, instruction_parts=told),
            model_settings={**(request_context.model_settings or {}), "tool_choice": "none"},
        )

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Refuse calls that a model makes all the same: none of them is carried out."""
        outputs = {tool.name for tool in request_context.model_request_parameters.output_tools}
        called = [call.tool_name for call in response.tool_calls if call.tool_name not in outputs]
        if ctx.run_step > self._limit and called:
            raise AgentError(
                self._agent,
                ctx.run_step,
                f"its model called {called[0]} again after {self._limit} rounds of calls, which was not carried out; "
                "raise its ToolIterationLimit",
            )
        return response


@contextmanager
def answering(turn: AgentTurn) -> Iterator[None]:
    """Say of a turn that ends without an answer whose it was, and how far it came.

    Raises
    ------
    AgentError
        The model did not give what was asked of it, or not in the rounds that it had.
    ToolError
        A tool raised, and no hook of the agent has made something else of that.
    """
    record = turn.record
    try:
        yield
    except (UnexpectedModelBehavior, UsageLimitExceeded) as error:
        raise AgentError(record.agent, record.requests, _reason(turn, error)) from error
    except OperationError as error:
        if isinstance(error, ToolError):  # of an agent that was given work
            raise ToolError(error.agent, error.tool, error.cause, names_of(error)) from error
        tool = next((tool for tool, raised in turn.failed if raised is error), None)
        if tool is None:
            raise
        raise ToolError(record.agent, tool, failure_text(error), names_of(error)) from error


def _reason(turn: AgentTurn, error: Exception) -> str:
    """Return why there is no answer; of a tool that is not there without the library's advice to raise a limit."""
    if not (turn.unknown and isinstance(error.__cause__, ModelRetry)):
        return str(error)
    return (
        f'its model called unknown tool "{turn.unknown[0]}", was told so, and called it again; give the agent that '
        "tool, or another Model"
    )
