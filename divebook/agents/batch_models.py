"""Models that are asked for one thing only: how an answer of a type is asked for, or one that a batch has given."""

from __future__ import annotations

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings


class AskedForError(Exception):
    """A request was asked for that is not to be made here."""


class AskingModel(WrapperModel):
    """Notes how an answer of a type is asked for, and gives none."""

    parameters: ModelRequestParameters | None = None

    async def request(
        self,
        messages: list[ModelMessage],  # noqa: ARG002 - as what it overrides
        model_settings: ModelSettings | None,  # noqa: ARG002 - as what it overrides
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Note the parameters, and raise."""
        self.parameters = model_request_parameters
        raise AskedForError


class AnsweringModel(WrapperModel):
    """Gives the answer that a batch has, so that it is checked as any other."""

    def __init__(self, wrapped: Model, response: ModelResponse) -> None:
        super().__init__(wrapped)
        self._response = response

    async def request(
        self,
        messages: list[ModelMessage],  # noqa: ARG002 - as what it overrides
        model_settings: ModelSettings | None,  # noqa: ARG002 - as what it overrides
        model_request_parameters: ModelRequestParameters,  # noqa: ARG002 - as what it overrides
    ) -> ModelResponse:
        """Return the answer."""
        return self._response
