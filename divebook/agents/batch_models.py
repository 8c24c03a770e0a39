"""Models that stand in for one which answers in batches: how a request is asked for, and an answer that is there."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings


class AskedError(Exception):
    """A request was asked for that is not to be made here."""


class AskingModel(WrapperModel):
    """Notes how an answer of a type is asked for, and gives none."""

    parameters: ModelRequestParameters | None = None

    async def request(  # noqa: D102 - as what it overrides
        self,
        messages: list[ModelMessage],  # noqa: ARG002 - as what it overrides
        model_settings: ModelSettings | None,  # noqa: ARG002 - as what it overrides
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        self.parameters = model_request_parameters
        raise AskedError


class AnsweringModel(WrapperModel):
    """Gives the answer that a batch has, so that it is checked as any other."""

    def __init__(self, wrapped: Model, response: ModelResponse) -> None:
        super().__init__(wrapped)
        self._response = response

    async def request(  # noqa: D102 - as what it overrides
        self,
        messages: list[ModelMessage],  # noqa: ARG002 - as what it overrides
        model_settings: ModelSettings | None,  # noqa: ARG002 - as what it overrides
        model_request_parameters: ModelRequestParameters,  # noqa: ARG002 - as what it overrides
    ) -> ModelResponse:
        return self._response


def innermost(model: Model) -> Any:
    """Return the model that a model of a person's own, or a fallback, is made around."""
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return model
