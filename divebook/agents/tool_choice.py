"""Which tool a model must call: the key ``ToolChoice`` of an agent's ``ModelSettings``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.settings import ModelSettings, ToolChoice
from pydantic_ai.tools import RunContext

from divebook.workflow.definition import AgentDefinition


def choosing(definition: AgentDefinition) -> list[AbstractCapability[Any]]:
    """Return what makes the model of an agent call the tool that its definition chooses, if it chooses one."""
    settings = definition.model_settings
    return [] if settings is None or settings.tool_choice is None else [ChosenTool(settings.tool_choice)]


class ChosenTool(AbstractCapability[Any]):
    """Sends the choice with requests: one of a tool, or of any, with the first of a turn only, or no turn would end."""

    def __init__(self, choice: Mapping[str, Any]) -> None:
        chosen: dict[str, ToolChoice] = {"any": "required", "tool": [str(choice.get("name"))]}
        self._always: ToolChoice = "none" if choice["type"] == "none" else None
        self._first = chosen.get(choice["type"])

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Add the choice to the settings of a request."""
        choice = self._always or (self._first if ctx.run_step == 1 else None)
        if choice is None:
            return request_context
        settings = ModelSettings(**(request_context.model_settings or {}))
        settings["tool_choice"] = choice
        return replace(request_context, model_settings=settings)
