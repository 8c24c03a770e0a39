"""Models that stand behind another one: what their providers say of too many requests counts for each of them.

A `FallbackModel` asks one after the other and says only what came of it: its request waits at the turnstile of the
first one (`divebook.agents.limits`), and each of its models tells its own turnstile how it fared
(`test_each_model_behind_another_one_is_limited_by_what_its_own_provider_says`).
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext

from divebook.agents.limits import TURNSTILES, Turnstiles


def telling(model: Model, known: Turnstiles = TURNSTILES) -> Model:
    """Return a model whose parts, if it has any, tell their turnstiles how they fare."""
    return _telling(model, known, is_first=True) if isinstance(model, FallbackModel) else model


def _telling(model: Model, known: Turnstiles, *, is_first: bool) -> Model:
    if not isinstance(model, FallbackModel):
        return TellingModel(model, known, is_counted=is_first)
    other = copy.copy(model)  # that of a person stays as it is
    other.models = [_telling(each, known, is_first=is_first and not place) for place, each in enumerate(model.models)]
    return other


class TellingModel(WrapperModel):
    """One of several models, which tells its turnstile how its requests end.

    Parameters
    ----------
    is_counted
        Whether who asks has a place at its turnstile already. Others take one without waiting: who waits at two
        turnstiles could wait for one who waits the other way round.
    """

    def __init__(self, wrapped: Model, known: Turnstiles, *, is_counted: bool) -> None:
        super().__init__(wrapped)
        self._known, self._is_counted = known, is_counted

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Make the request."""
        with self._known.heard(self.wrapped, is_counted=self._is_counted):
            return await super().request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Make the request, and hand on its answer as it comes."""
        with self._known.heard(self.wrapped, is_counted=self._is_counted):
            made = super().request_stream(messages, model_settings, model_request_parameters, run_context)
            async with made as stream:
                yield stream
