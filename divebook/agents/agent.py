"""An agent: a model with a role and instructions, whose every model request is a recorded operation."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from divebook.agents.models import model_name
from divebook.agents.scripted import SCRIPTED, ScriptedModel
from divebook.engine.operations import RunOperation
from divebook.errors import SetupError, TemplateError
from divebook.scripting import render_template
from divebook.workflow.definition import AgentDefinition, ModelSettings
from divebook.workflow.policies import Retry
from divebook.workflow.tools import ToolFunction, tool_of

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from divebook.agents.turn import TurnContext

DURABLE, LOOP = "divebook.agents.durable", "divebook.agents.loop"
MODEL_RETRY = Retry(
    seconds=0.5,
    max_seconds=8.0,
    jitter=0.5,
    errors=("ModelConnectionError", "ModelRateLimitError", "ModelServerError", "ModelUnavailableError"),
)
"""What the clients of providers do by themselves, here recorded and counted: two more attempts after a lost connection,
429 and 5xx, no sooner than the provider's Retry-After. A quota that is used up, and a time-out, are not tried again."""


class Agent:
    """A model with a name, a goal and instructions.

    Parameters
    ----------
    definition
        What it is; a plain text is its name.
    model
        A pydantic-ai model, a name such as ``"openai:gpt-5-mini"``, or a `ScriptedModel`. By default what the
        definition says; without any, the offline scripted model.
    default_provider, default_model
        Used where the definition is silent.
    tools
        Functions that it may call, or names of tools of its environment, beside those of its definition.

    Examples
    --------
    >>> agent = Agent("poet", model=ScriptedModel(["roses are red"]))
    >>> agent.model_name
    'scripted'
    """

    def __init__(
        self,
        definition: AgentDefinition | str,
        *,
        model: Model | ScriptedModel | str | None = None,
        default_provider: str = "",
        default_model: str = "",
        tools: Iterable[ToolFunction | Callable[..., Any] | str] = (),
    ) -> None:
        self.definition = AgentDefinition(definition) if isinstance(definition, str) else definition
        named = model if isinstance(model, str) else None
        own = self.definition
        self._name = model_name(None if named else own.provider, named or own.model, default_provider, default_model)
        self._model: Model | ScriptedModel | str = self._name if model is None or named else model
        if self._model == SCRIPTED:
            self._model = ScriptedModel()
        given = list(tools)
        self.tools = tuple(tool_of(tool) for tool in given if not isinstance(tool, str))
        """Those that it was given, beside those that its definition names."""
        if names := tuple(tool for tool in given if isinstance(tool, str)):
            self.definition = replace(self.definition, tools=(*self.definition.tools, *names))

    def __repr__(self) -> str:
        return f"<Agent {self.name!r}: {self.model_name}>"

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name

    @property
    def is_supervisor(self) -> bool:
        """Whether it answers prompts that name no agent."""
        return self.definition.is_supervisor

    @property
    def model_name(self) -> str:
        """``provider:model`` or ``scripted``."""
        if isinstance(self._model, ScriptedModel):
            return SCRIPTED
        return self._model if isinstance(self._model, str) else self._model.model_id

    @property
    def model(self) -> Model | ScriptedModel | str:
        """What it asks: a model of pydantic-ai, one with a script, or the name of a model."""
        return self._model

    @property
    def retry(self) -> Retry:
        """How a request to its model is tried again: its own policy, else `MODEL_RETRY`."""
        return self.definition.retry or MODEL_RETRY

    @property
    def missing(self) -> str:
        """What its provider's default model, which it did not name itself, lacks here; empty if it can be asked."""
        from divebook.agents.examination import examine

        if self.definition.model is not None or not isinstance(self._model, str):
            return ""
        found = examine(self._model)
        return found.library or found.key

    @property
    def is_scripted(self) -> bool:
        """Whether its answers come from a script."""
        return isinstance(self._model, ScriptedModel)

    @property
    def has_hands(self) -> bool:
        """Whether it may do more than answer: then what it does is a turn of requests and calls."""
        return bool(self.tools or self.definition.tools)

    def with_model(self, name: str | None) -> Agent:
        """Return this agent with another model, ``provider:model`` or ``scripted``; None leaves it its own."""
        return self if name is None else Agent(self.definition, model=name, tools=self.tools)

    def with_settings(self, *, temperature: float | None = None, max_tokens: int | None = None) -> Agent:
        """Return this agent with other settings of its model; None leaves one as it is."""
        given = {"temperature": temperature, "max_tokens": max_tokens}
        changed = {name: value for name, value in given.items() if value is not None}
        if not changed:
            return self
        settings = replace(self.definition.model_settings or ModelSettings(), **changed)  # type: ignore[arg-type]
        return Agent(replace(self.definition, model_settings=settings), model=self._model, tools=self.tools)

    def instructions(self, date: datetime | None) -> str:
        """Return the system prompt; `date` is what a date-aware agent takes for today."""
        own = self.definition
        today = f"Today is {date:%A, %d %B %Y}." if own.date_awareness and date is not None else ""
        if own.system_prompt is not None:
            return "\n\n".join(filter(None, (self._custom_prompt(own.system_prompt), today)))
        role = f"You are {own.name}."
        goal = f"Your goal: {own.goal}" if own.goal else ""
        return "\n\n".join(filter(None, (role, goal, own.instructions, today)))

    def _custom_prompt(self, template: str) -> str:
        own = self.definition
        agent = {"name": own.name, "goal": own.goal, "instructions": own.instructions}
        try:
            return render_template(template, {"agent": agent})
        except TemplateError as error:
            raise SetupError(f"invalid system prompt template of agent {own.name}: {error}") from error

    async def respond(
        self,
        prompt: str,
        operation: RunOperation,
        *,
        content: Sequence[Mapping[str, Any]] = (),
        context: Sequence[Mapping[str, Any]] = (),
        date: datetime | None = None,
    ) -> str:
        """Answer a prompt; every request to the model goes through `operation`.

        Parameters
        ----------
        prompt
            The text, which comes last in the message.
        content
            Blocks (``{"type": "text", ...}``) that come before it.
        context
            Blocks that make an extra message in front of everything.
        date
            What to take for today.
        """
        durable = await _loaded(DURABLE)
        message = durable.Request(prompt, content, context, self.instructions(date))
        answer: str = await durable.respond(self.definition, self._model, self.model_name, message, operation)
        return answer

    async def turn(
        self,
        prompt: str,
        turn_context: TurnContext,
        tools: Sequence[ToolFunction],
        *,
        content: Sequence[Mapping[str, Any]] = (),
        context: Sequence[Mapping[str, Any]] = (),
    ) -> dict[str, Any]:
        """Answer a prompt with requests and calls of `tools` that `turn_context` records; return the turn's result."""
        loop, durable = await _loaded(LOOP), await _loaded(DURABLE)
        message = durable.Request(prompt, content, context, self.instructions(turn_context.started_at))
        result: dict[str, Any] = await loop.run_turn(self, message, turn_context, [*tools, *self.tools])
        return result


async def _loaded(name: str) -> Any:
    """Return a module that needs pydantic-ai, which takes half a second to load."""
    found = sys.modules.get(name)
    # in a thread, so that other paths go on meanwhile
    return await anyio.to_thread.run_sync(importlib.import_module, name) if found is None else found
