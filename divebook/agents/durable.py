"""The door to pydantic-ai: an agent's answer, for which each model request is an operation of the log.

`RecordedModel` stands between pydantic-ai and the real model: every request that the log knows is answered from there.
An agent without tools needs one request and no loop, which would cost more time than all else here together
(``python -m benchmarks.labelling``).
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from functools import partial
from typing import Any, cast

import anyio
from pydantic import TypeAdapter
from pydantic_ai.direct import model_request
from pydantic_ai.messages import (
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings, ThinkingLevel
from pydantic_ai.usage import RequestUsage

from divebook.agents.clients import CLIENTS
from divebook.agents.prices import cost_of, estimate
from divebook.agents.scripted import SCRIPTED, ScriptedModel, words
from divebook.agents.streaming import stream_response
from divebook.engine.bounds import NANODOLLARS
from divebook.engine.operations import AGENT_RESPONSE, Reserved, RunOperation, Write
from divebook.errors import SetupError, StepError
from divebook.history.messages import request_messages
from divebook.workflow.definition import AgentDefinition
from divebook.workflow.definition import ModelSettings as SettingsDefinition

COST = "cost_nanodollars"
_RESPONSE = TypeAdapter(ModelResponse)


class RecordedModel(WrapperModel):
    """A model whose requests are recorded once and answered from the log ever after.

    Parameters
    ----------
    seconds
        How long one request may take, streamed or not.
    """

    def __init__(self, wrapped: Model, operation: RunOperation, parameters: Mapping[str, Any], seconds: float) -> None:
        super().__init__(wrapped)
        self._operation, self._parameters, self._seconds = operation, dict(parameters), seconds

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Make the request, or return the recorded response."""

        async def call() -> dict[str, Any]:
            request = self.wrapped.request(messages, model_settings, model_request_parameters)
            return _plain(await self._in_time(request))

        async def streamed(write: Write) -> dict[str, Any]:
            ask = self.wrapped.stream if isinstance(self.wrapped, _Scripted) else partial(stream_response, self.wrapped)
            return _plain(await self._in_time(ask(messages, model_settings, model_request_parameters, write)))

        recorded = await self._operation(
            AGENT_RESPONSE,
            self._parameters,
            call,
            usage=_usage,
            repeatable=True,
            reserved=self._reserved(messages, model_settings),
            streamed=streamed,
        )
        return _RESPONSE.validate_python({key: value for key, value in recorded.items() if key != COST})

    async def _in_time(self, request: Awaitable[ModelResponse]) -> ModelResponse:
        """Return the response, or raise TimeoutError; a provider's own timeout holds for each piece by itself."""
        with anyio.move_on_after(self._seconds):
            return await request
        raise TimeoutError(
            f"the response was not complete after {self._seconds:g} seconds; to allow more, raise ResponseTimeout"
        )

    def _reserved(self, messages: list[ModelMessage], settings: ModelSettings | None) -> Reserved:
        if isinstance(self.wrapped, _Scripted):
            return self.wrapped.reserved
        return estimate(self.wrapped, messages, settings)


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
        bodies: list[str | list[UserContent]] = [[_user_block(block) for block in message.content] for message in said]
        if not self.content:
            bodies[-1] = self.prompt
        *context, asked = [ModelRequest(parts=[UserPromptPart(body)]) for body in bodies]
        return [*context, replace(asked, instructions=self.instructions or None)]


async def respond(
    definition: AgentDefinition,
    model: Model | ScriptedModel | str,
    model_name: str,
    message: Request,
    operation: RunOperation,
) -> str:
    """Return the text that an agent answers; see `Agent.respond`.

    Raises
    ------
    StepError
        The model answered without any text.
    """
    parameters = {"agent": definition.name, "prompt": "", "model": model_name, **message.to_dict()}
    recorded = RecordedModel(await _resolved(model), operation, parameters, definition.response_timeout)
    answer = await model_request(recorded, message.messages(), model_settings=_settings(definition), instrument=False)
    if not answer.text:
        raise StepError(
            f"the model of agent {definition.name} answered without text (it ended with {answer.finish_reason}); "
            "try again, or give it more MaxTokens"
        )
    return answer.text


async def _resolved(model: Model | ScriptedModel | str) -> Model:
    if isinstance(model, ScriptedModel):
        return _Scripted(model)
    return await CLIENTS.model(model) if isinstance(model, str) else model


class _Scripted(FunctionModel):
    """A scripted model in pydantic-ai's form; it claims the tokens its script says and no estimate."""

    def __init__(self, script: ScriptedModel) -> None:
        async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
            return ModelResponse(parts=[TextPart(script.reply(_last_prompt(messages)))])

        super().__init__(answer, model_name=SCRIPTED)
        self._script = script

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Answer from the script."""
        response = await super().request(messages, model_settings, model_request_parameters)
        response.usage = _claimed(self._script)
        response.provider_details = {COST: int(Decimal(str(self._script.price)) * NANODOLLARS)}
        return response

    async def stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        write: Write,
    ) -> ModelResponse:
        """Answer from the script, word by word."""
        response = await self.request(messages, model_settings, model_request_parameters)
        for place, word in enumerate(words(response.text or "")):
            if place and self._script.pace is not None:
                await self._script.pace()
            write(word)
        return response

    @property
    def reserved(self) -> Reserved:
        """What its next answer consumes."""
        tokens = sum(self._script.usage.get(name, 0) for name in ("input_tokens", "output_tokens"))
        return Reserved(tokens, int(Decimal(str(self._script.price)) * NANODOLLARS))


def _claimed(script: ScriptedModel) -> RequestUsage:
    usage = RequestUsage()
    for name, tokens in script.usage.items():
        setattr(usage, name, tokens)
    return usage


def _last_prompt(messages: Sequence[ModelMessage]) -> str:
    for message in reversed(messages):
        for part in reversed(message.parts):
            if isinstance(part, UserPromptPart):
                found = (
                    [part.content] if isinstance(part.content, str) else [c for c in part.content if isinstance(c, str)]
                )
                return found[-1] if found else ""
    return ""


def _plain(response: ModelResponse) -> dict[str, Any]:
    """Return a response as plain data, without what says nothing."""
    data: dict[str, Any] = _RESPONSE.dump_python(response, mode="json", exclude_none=True)
    data["usage"] = {name: value for name, value in data["usage"].items() if value}
    cost = (response.provider_details or {}).get(COST)
    data[COST] = cost_of(response) if cost is None else cost
    return data


def _usage(recorded: Mapping[str, Any]) -> dict[str, int]:
    used = recorded["usage"]
    names = ("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens")
    cost = {"cost": recorded[COST]} if recorded.get(COST) else {}
    return {"requests": 1} | {name: used[name] for name in names if used.get(name)} | cost


def _settings(definition: AgentDefinition) -> ModelSettings:
    """Return pydantic-ai's settings for an agent."""
    settings = ModelSettings(timeout=definition.response_timeout, max_retries=0)
    own = definition.model_settings
    if own is None:
        return settings
    for name in ("temperature", "presence_penalty", "frequency_penalty", "max_tokens", "parallel_tool_calls"):
        value = getattr(own, name)
        if value is not None:
            settings[name] = value
    return _with_special_settings(settings, own)


def _with_special_settings(settings: ModelSettings, own: SettingsDefinition) -> ModelSettings:
    if own.reasoning_effort:
        settings["thinking"] = cast("ThinkingLevel", own.reasoning_effort)
    if own.request_headers:
        settings["extra_headers"] = {name: ", ".join(values) for name, values in own.request_headers.items()}
    return settings


def _user_block(block: Mapping[str, Any]) -> UserContent:
    """Return a content block in pydantic-ai's form."""
    kind = block.get("type")
    if kind == "text":
        return str(block["text"])
    source = block.get("source") or {}
    if kind not in ("image", "document") or source.get("type") not in ("base64", "url"):
        raise SetupError(f"content block of type {kind!r} is not known; use text, image or document")
    if source["type"] == "base64":
        return BinaryContent(base64.b64decode(source["data"]), media_type=source["media_type"])
    return ImageUrl(source["url"]) if kind == "image" else DocumentUrl(source["url"])
