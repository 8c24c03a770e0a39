"""Fallback models whose parts report their outcomes to their own request limiters.

A `FallbackModel` asks its models in order and reports only the final outcome. Its request waits at the limiter of the
first model (`divebook.agents.request_limits`), and each model reports its own outcome to its own limiter
(`test_each_model_behind_another_one_is_limited_by_what_its_own_provider_says`).
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext

from divebook.agents.request_limits import REQUEST_LIMITERS, RequestLimiters

if TYPE_CHECKING:
    pass


def reporting_model(model: Model, limiters: RequestLimiters = REQUEST_LIMITERS) -> Model:
    """Return a model whose parts, if it has any, report their outcomes to their limiters."""
    return _reporting(model, limiters, is_first=True) if isinstance(model, FallbackModel) else model


def _reporting(model: Model, limiters: RequestLimiters, *, is_first: bool) -> Model:
    if not isinstance(model, FallbackModel):
        return ReportingModel(model, limiters, is_counted=is_first)
    copied = copy.copy(model)  # the user's model stays unchanged
    copied.models = [
        _reporting(each, limiters, is_first=is_first and not place) for place, each in enumerate(model.models)
    ]
    return copied


class ReportingModel(WrapperModel):
    """One of several models. It reports the outcome of its requests to its limiter.

    Parameters
    ----------
    is_counted
        True if the caller already holds a slot of this limiter. Other parts take a slot without waiting: waiting at two
        limiters in different orders could deadlock.
    """

    def __init__(self, wrapped: Model, limiters: RequestLimiters, *, is_counted: bool) -> None:
        super().__init__(wrapped)
        self._limiters = limiters
        self._is_counted = is_counted

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Make the request."""
        with self._limiters.observed(self.wrapped, is_counted=self._is_counted):
            return await super().request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Make the request and yield its stream."""
        with self._limiters.observed(self.wrapped, is_counted=self._is_counted):
            opening = super().request_stream(messages, model_settings, model_request_parameters, run_context)
            async with opening as stream:
                yield stream
