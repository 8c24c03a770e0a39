"""Models that are never asked, since a log answers for them: no key, no client and no network."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from divebook.agents.agent import Agent
from divebook.agents.models import RECORDED
from divebook.agents.scripted import SCRIPTED
from divebook.errors import StepError

if TYPE_CHECKING:
    from pydantic_ai.models import Model


def unasked(agent: Agent) -> Agent:
    """Return an agent whose requests are what they are live, as its model has the same name; it needs no key."""
    if not isinstance(agent.model, str) or agent.model == SCRIPTED or agent.model.startswith(RECORDED):
        return agent
    other = copy.copy(agent)
    other.model = _model_called(agent.model)
    return other


def _model_called(model: str) -> Model:
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.providers import infer_provider_class

    provider, _, name = model.partition(":")

    class Unasked(FunctionModel):
        @property
        def system(self) -> str:
            return provider

    async def answer(*_: Any) -> Any:
        raise StepError(f"model {model!r} was asked for an answer that its log does not have")

    try:
        profile = infer_provider_class(provider).model_profile(name)
    except (ImportError, ValueError):  # its library is not here, or nobody knows it: the usual form of requests
        profile = None
    return Unasked(answer, model_name=name, profile=profile)
