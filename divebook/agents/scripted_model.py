"""A scripted model in the form of those of pydantic-ai."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from divebook.agents.scripted import SCRIPTED, ScriptedModel, words
from divebook.agents.wire import COST
from divebook.engine.bounds import NANODOLLARS
from divebook.engine.operations import Reserved, Write


class ScriptedFunction(FunctionModel):
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
