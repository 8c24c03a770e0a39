"""Cases about agents: each is asked by a step, and what the log says of it is held against the case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from divebook.agents import Agent, ScriptedModel
from divebook.definitions import AgentDefinition
from divebook.definitions.definition import Workflow
from divebook.definitions.step import Step
from divebook.environments.environment import Environment
from divebook.errors import StepError
from divebook.runtime.run import Run
from divebook.stores import MemoryStore

Data = Mapping[str, Any]
TIMEOUT = 30.0
SHAPES = ("input", "tool_iteration_limit", "call")
"""Keys of `given` in cases that can be run."""


def run(case: Data) -> dict[str, Any]:
    """Return what comes of a case."""
    given = case["given"]
    if "call" in given:
        return _calling(given["call"])
    return _limited(given["tool_iteration_limit"], case["expect"]) if "input" not in given else _answered(case)


def _asked(agent: Agent, prompt: str, store: MemoryStore) -> Run:
    workflow = Workflow("ask", [Step("ask", prompt=prompt, agent=agent.name, store="text")])
    return Environment(store=store, agents=[agent], workflows=[workflow]).start("ask").wait(TIMEOUT)


def _answered(case: Data) -> dict[str, Any]:
    ((name, spec),) = case["agents"].items()
    agent = Agent(name, model=ScriptedModel(spec["replies"], usage=spec["usage"]))
    with MemoryStore() as store:
        execution = _asked(agent, case["given"]["input"], store)
        used = execution.state.own_usage.to_dict()
        return {"text": execution.variables["text"], "usage": {key: used[key] for key in case["expect"]["usage"]}}


def _look() -> str:
    """Look."""
    return "nothing"


def _calling(name: str) -> dict[str, Any]:
    """Ask an agent whose model calls a tool that it does not have, and nothing else."""

    def answer(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart(name, {})])

    with MemoryStore() as store:
        execution = _asked(Agent("a", model=FunctionModel(answer), tools=[_look]), "Go on", store)
        raise StepError(f"{execution.status}: {execution.error}")


def _limited(limit: int, expect: Data) -> dict[str, Any]:
    """Ask an agent whose model calls a tool for as long as it may."""
    asked: list[tuple[Any, str]] = []

    def answer(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        choice = (info.model_settings or {}).get("tool_choice")
        asked.append((choice, info.instructions or ""))
        return ModelResponse(parts=[TextPart("enough") if choice == "none" else ToolCallPart("_look", {})])

    agent = Agent(AgentDefinition("a", tool_iteration_limit=limit), model=FunctionModel(answer), tools=[_look])
    with MemoryStore() as store:
        assert _asked(agent, "Go on", store).variables == {"text": "enough"}
    *earlier, (choice, instructions) = asked
    is_told = choice == "none" and "answer now" in instructions.lower()
    is_met = is_told and all(before is None for before, _ in earlier)
    return {"llm_calls_max": len(asked), "last_round": expect["last_round"] if is_met else asked[-1]}
