"""The door to pydantic-ai: an agent's answer, for which each model request is an operation of the log.

`RecordedModel` stands between pydantic-ai and the real model: every request that the log knows is answered from there.
An agent without tools needs one request and no loop, which would cost more time than all else here together
(``python -m benchmarks.labelling``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from pydantic_ai.direct import model_request
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from divebook.agents.behind import telling
from divebook.agents.clients import CLIENTS
from divebook.agents.failures import keepable_errors, readable_replies
from divebook.agents.limits import TURNSTILES
from divebook.agents.models import RECORDED
from divebook.agents.paid_replies import note_reply, paid_replies
from divebook.agents.prices import estimate, tokens_of, tokens_of_definitions
from divebook.agents.scripted import ScriptedModel
from divebook.agents.scripted_model import ScriptedFunction
from divebook.agents.streaming import stream_response
from divebook.agents.wire import (
    in_time,
    plain_response,
    require_whole,
    response_of,
    settings_of,
    usage_of,
    user_block,
    with_values,
)
from divebook.engine.operations import AGENT_RESPONSE, RunOperation, Write
from divebook.errors import StepError
from divebook.history.messages import request_messages

if TYPE_CHECKING:
    from divebook.agents.agent import Agent


class RecordedModel(WrapperModel):
    """A model whose requests are recorded once and answered from the log ever after.

    Parameters
    ----------
    agent
        Says how long one request may take, streamed or not, and what its headers may name.
    """

    def __init__(self, wrapped: Model, operation: RunOperation, parameters: Mapping[str, Any], agent: Agent) -> None:
        super().__init__(wrapped)
        self._operation, self._parameters = operation, dict(parameters)
        self._seconds, self._policy = agent.definition.response_timeout, agent.policy

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Make the request, or return the recorded response."""

        async def call() -> dict[str, Any]:
            settings = with_values(model_settings, self._policy)
            return await made(self.wrapped.request(messages, settings, model_request_parameters))

        async def streamed(write: Write) -> dict[str, Any]:
            settings = with_values(model_settings, self._policy)
            return await made(stream_response(self.wrapped, messages, settings, model_request_parameters, write))

        async def made(request: Awaitable[ModelResponse]) -> dict[str, Any]:
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
            slot=TURNSTILES.slot(self.wrapped),
        )
        return response_of(recorded)


@dataclass(frozen=True, slots=True)
class Request:
    """A question to an agent: see `Agent.respond`."""

    prompt: str
    content: Sequence[Mapping[str, Any]]
    context: Sequence[Mapping[str, Any]]
    instructions: str

    def to_dict(self) -> dict[str, Any]:
        """Return its parts that hold something."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name))}

    def messages(self) -> list[ModelMessage]:
        """Return what `divebook.history.messages` reads off the log later, in pydantic-ai's form."""
        said = [message for message in request_messages(self.to_dict()) if message.role != "system"]
        bodies: list[str | list[UserContent]] = [[user_block(block) for block in message.content] for message in said]
        if not self.content:
            bodies[-1] = self.prompt
        *context, asked = [ModelRequest(parts=[UserPromptPart(body)]) for body in bodies]
        return [*context, replace(asked, instructions=self.instructions or None)]


async def respond(agent: Agent, message: Request, operation: RunOperation) -> str:
    """Return the text that an agent answers; see `Agent.respond`.

    Raises
    ------
    StepError
        The model answered without any text.
    """
    parameters = {"agent": agent.name, "prompt": "", "model": agent.model_name, **message.to_dict()}
    recorded, own = RecordedModel(await resolved(agent), operation, parameters, agent), agent.definition
    answer = await model_request(recorded, message.messages(), model_settings=settings_of(own), instrument=False)
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
    """Return the model of an agent in pydantic-ai's form, with the key that the agent names."""
    model = agent.model
    if isinstance(model, ScriptedModel):
        return ScriptedFunction(model)
    if not isinstance(model, str):
        return telling(model)
    if model.startswith(RECORDED):
        return _played()
    return await CLIENTS.model(model, agent.definition.api_key, agent.policy)


def _played() -> Model:
    """Return what stands for the model of an agent whose answers come from a run."""

    async def answer(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        raise StepError("a run that is played again was asked for an answer that it does not have")

    return FunctionModel(answer, model_name=RECORDED)
