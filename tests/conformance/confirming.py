"""Cases about calls that a person confirms, and about threads: an agent that calls tools runs in each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divebook.agents import Agent, ScriptedModel
from divebook.definitions.definition import Definitions, Workflow
from divebook.definitions.resources import Config
from divebook.definitions.step import Step
from divebook.definitions.tools import ToolFunction, ToolHints
from divebook.engine.approvals import asks
from divebook.environments.environment import Environment
from divebook.errors import NotFoundError
from divebook.runtime.run import Run
from divebook.stores import MemoryStore

Data = Mapping[str, Any]


def confirmation(case: Data) -> dict[str, Any]:
    """Return what comes of a case about confirmation."""
    given = case["given"]
    return _denied(given["answer"]) if "answer" in given else {"asks": _asked(given["mode"], given["tools"])}


def _asked(mode: str, tools: Mapping[str, Mapping[str, bool]]) -> dict[str, bool]:
    """Return which of some tools a person is asked about; without a tool only ``always`` asks."""
    hints = {name: ToolHints(said["readOnlyHint"], said["destructiveHint"]) for name, said in tools.items()}
    run = _run([_tool(name, said, []) for name, said in hints.items()], [{"call": {name: {}}} for name in tools], mode)
    asked = {question.data["tool"] for question in run.open_questions if question.data is not None}
    return {name: name in asked for name in tools} if asks(mode, None) is (mode == "always") else {}


def _denied(answer: str) -> dict[str, Any]:
    """Return what becomes of a call that a person does not confirm."""
    made: list[str] = []
    run = _run([_tool("write", ToolHints(), made)], [{"call": {"write": {}}}], "always")
    run.answer(run.open_questions[0].id, answer).wait(20)
    (returned,) = [part for part in run.requests[1].messages[-1]["parts"] if part["part_kind"] == "tool-return"]
    result = {"is_error": returned.get("outcome") == "failed", "text": returned["content"]}
    return {"tool_runs": len(made), "tool_result": result, "generation_continues": run.status == "completed"}


def _tool(name: str, hints: ToolHints, made: list[str]) -> ToolFunction:
    def call() -> str:
        made.append(name)
        return name

    return ToolFunction(name, call, hints=hints)


def _run(tools: list[ToolFunction], calls: list[Data], mode: str) -> Run:
    environment = Environment(store=MemoryStore())
    environment.define(Definitions("cases", config=Config(confirmation_mode=mode)))
    environment.add_agent(Agent("agent", model=ScriptedModel([calls, "done"]), tools=tools))
    return environment.start(Workflow("ask", [Step("ask", prompt="go", agent="agent")])).wait(20)


def threads(case: Data) -> dict[str, Any]:
    """Return what comes of a case about threads."""
    given, environment = case["given"], Environment(store=MemoryStore())
    if "get" in given:
        try:
            environment.threads[given["get"]]
        except NotFoundError as error:
            return {"error": str(error).partition(":")[0]}
        return {"error": None}
    environment.add_agent(Agent("agent", model=ScriptedModel(["done"] * given["messages"])))
    asked = Workflow("ask", [Step("ask", prompt="go", agent="agent", thread=given["thread_id"])])
    for _ in range(given["messages"]):
        environment.start(asked).wait(20)
    said = [message.role for message in environment.threads[given["thread_id"]].messages]
    is_met = said == ["user", "assistant"] * given["messages"]
    return {"stored_messages": case["expect"]["stored_messages"] if is_met else said}


SHAPES = {"confirmation": ("mode tools", "answer"), "threads": ("thread_id messages", "get")}
"""Keys of `given` in cases that can be run, by group."""
