"""Single recorded model requests of agents without tools.

`RecordedModel` stands between pydantic-ai and the real model, and answers recorded requests from the log. An agent
without tools needs one request and no loop. The loop would take more time than everything else here together
(``python -m benchmarks.labelling``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserContent, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from divebook.agents.clients import CLIENTS
from divebook.agents.conversions import (
    in_time,
    plain_response,
    require_whole,
    response_of,
    settings_of,
    usage_of,
    user_block,
    with_values,
)
from divebook.agents.model_errors import keepable_errors, readable_replies
from divebook.agents.models import RECORDED, estimate, tokens_of, tokens_of_definitions
from divebook.agents.request_limits import REQUEST_LIMITERS
from divebook.agents.response_stream import note_reply, paid_replies, stream_response
from divebook.agents.scripted import ScriptedModel
from divebook.agents.scripted_model import ScriptedFunction
from divebook.engine.operations import AGENT_RESPONSE, RunOperation, Write
from divebook.errors import StepError
from divebook.projections.model_requests import request_messages

if TYPE_CHECKING:
    from divebook.agents.agent import Agent
from divebook.agents.fallbacks import reporting_model


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt for an agent, with content, context and instructions; see `Agent.respond`."""

    prompt: str
    content: Sequence[Mapping[str, Any]]
    context: Sequence[Mapping[str, Any]]
    instructions: str

    def to_dict(self) -> dict[str, Any]:
        """Return the parts that are not empty."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name))}

    def messages(self) -> list[ModelMessage]:
        """Return the messages in pydantic-ai's form. `divebook.projections.requests` rebuilds the same from the log."""
        messages = [message for message in request_messages(self.to_dict()) if message.role != "system"]
        bodies: list[str | list[UserContent]] = [
            [user_block(block) for block in message.content] for message in messages
        ]
        if not self.content:
            bodies[-1] = self.prompt
        *context, prompt_message = [ModelRequest(parts=[UserPromptPart(body)]) for body in bodies]
        return [*context, replace(prompt_message, instructions=self.instructions or None)]


async def respond(agent: Agent, message: Request, operation: RunOperation) -> str:
    """Return an agent's text answer; see `Agent.respond`.

    Raises
    ------
    StepError
        The model answered without any text.
    """
    parameters = {"agent": agent.name, "prompt": "", "model": agent.model_name, **message.to_dict()}
    recorded = RecordedModel(await resolved(agent), operation, parameters, agent)
    definition = agent.definition
    answer = await model_request(recorded, message.messages(), model_settings=settings_of(definition), instrument=False)
    if not answer.text and answer.tool_calls:
        called = answer.tool_calls[0].tool_name
        raise StepError(
            f'the model of agent {agent.name} called unknown tool "{called}": the agent has no tools; give it that '
            "tool, or another Model"
        )
    if not answer.text:
        raise StepError(
            f"the model of agent {agent.name} answered without text (it ended with {answer.finish_reason}); "
            "try again, or give it more MaxTokens"
        )
    return answer.text


async def resolved(agent: Agent) -> Model:
    """Return the agent's model in pydantic-ai's form, with the key that the agent refers to."""
    model = agent.model
    if isinstance(model, ScriptedModel):
        return ScriptedFunction(model)
    if not isinstance(model, str):
        return reporting_model(model)
    if model.startswith(RECORDED):
        return _played()
    return await CLIENTS.model(model, agent.definition.api_key, agent.policy)


class RecordedModel(WrapperModel):
    """Model whose requests are recorded once and then answered from the log.

    Parameters
    ----------
    agent
        Agent with the time limit of a request, streamed or not, and the policy for references in headers.
    """

    def __init__(self, wrapped: Model, operation: RunOperation, parameters: Mapping[str, Any], agent: Agent) -> None:
        super().__init__(wrapped)
        self._operation = operation
        self._parameters = dict(parameters)
        self._seconds = agent.definition.response_timeout
        self._policy = agent.policy

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Make the request, or return the recorded response."""

        async def call() -> dict[str, Any]:
            settings = with_values(model_settings, self._policy)
            return await perform(self.wrapped.request(messages, settings, model_request_parameters))

        async def streamed(write: Write) -> dict[str, Any]:
            settings = with_values(model_settings, self._policy)
            return await perform(stream_response(self.wrapped, messages, settings, model_request_parameters, write))

        async def perform(request: Awaitable[ModelResponse]) -> dict[str, Any]:
            with paid_replies(self.wrapped), keepable_errors(), readable_replies(self.wrapped.model_name):
                response = await in_time(request, self._seconds)
                note_reply(response)
                require_whole(response, self._parameters["agent"])
                return plain_response(response, self.wrapped)

        written = sum(map(tokens_of, messages)) + tokens_of_definitions(model_request_parameters)
        recorded = await self._operation(
            AGENT_RESPONSE,
            self._parameters,
            call,
            usage=usage_of,
            repeatable=True,
            reserved=estimate(self.wrapped, written, model_settings),
            streamed=streamed,
            slot=REQUEST_LIMITERS.slot(self.wrapped),
        )
        return response_of(recorded)


def _played() -> Model:
    """Return a placeholder model for an agent whose answers come from a recorded run."""

    async def answer(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        raise StepError("a run that is played again was asked for an answer that it does not have")

    return FunctionModel(answer, model_name=RECORDED)
