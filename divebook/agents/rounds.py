"""The last round of a turn: an agent that has called its tools often enough is told to answer with what it knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelRetry, UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.messages import InstructionPart, ModelResponse
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import RunContext

from divebook.agents.present import AgentTurn
from divebook.engine.retries import failure_text, names_of
from divebook.errors import AgentError, OperationError, ToolError
from divebook.text.shown import plural

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
    """Return why there is no answer, with the key that allows more where a limit of ours was reached."""
    if turn.unknown and isinstance(error.__cause__, ModelRetry):
        return (
            f'its model called unknown tool "{turn.unknown[0]}", was told so, and called it again; give the agent that '
            "tool, or another Model"
        )
    limit = _CORRECTIONS_USED.match(str(error))
    if limit is None:
        return str(error)
    subject = f"its call of tool {limit['tool']}" if limit["tool"] else "its answer"
    # An agent of pydantic-ai brings a limit of its own for each tool, which is the one that the message names.
    count = int(limit["tool_limit"] or limit["output_limit"])
    key = "`retries` of its pydantic_ai.Agent" if turn.corrections is None else "its Corrections"
    return (
        f"{subject} did not have the expected form ({_fault(error)}), also after {plural(count, 'correction')}; "
        f"raise {key}, or use another Model"
    )


_CORRECTIONS_USED = re.compile(
    r"Tool '(?P<tool>.+)' exceeded max retries count of (?P<tool_limit>\d+)"
    r"|Exceeded maximum output retries \((?P<output_limit>\d+)\)"
)
"""Messages of pydantic-ai for a model that has used up its corrections.

`test_a_model_that_has_used_up_its_corrections_is_told_which_key_allows_more` pins the texts.
"""


def _fault(error: Exception) -> str:
    """Return what was wrong with the last call or answer: one line, without the value that a model wrote."""
    cause = error.__cause__
    if isinstance(cause, ValidationError):
        first = cause.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        text = first["msg"].removeprefix("Value error, ")
        return f"{place}: {text}" if place else text
    return next(iter(str(cause).strip().splitlines()), "") or type(cause).__name__
