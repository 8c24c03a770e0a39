"""Tools for coding assistants in JupyterLab: metadata unless content is asked for, and no answers unless allowed."""

import asyncio
import json
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from divebook import Environment
from divebook.commands import assistant
from divebook.config import load
from divebook.errors import NotFoundError, StoreError

FLOW = """
Agents: [{Name: clerk}]
Workflows:
  - Name: release
    Inputs: [{Name: city}, {Name: api_key}]
    Steps:
      - {Name: greet, Script: '"violet " + inputs.city', Store: greeting}
      - {Name: write, Agent: clerk, Prompt: "Greet ${state.greeting}"}
      - {Name: sure, Ask: {Question: "Send violet mail?", Kind: confirmation}, Store: sure}
  - Name: broken
    Steps:
      - {Name: fail, Script: '{}["violet"]'}
"""
SECRET = "sk-abcdefghijklmnopqrstuvwx123456"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Return the ids of three recorded runs, in a store of the current folder. Their content has the word violet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DIVEBOOK_STORE", raising=False)
    monkeypatch.delenv(assistant.ANSWERS_VARIABLE, raising=False)
    Path("flow.yaml").write_text(FLOW)
    Path(".divebook").mkdir()
    with Environment(store=".divebook/executions.db") as environment:
        environment.define(load("flow.yaml"))
        started = [
            environment.start("release", {"city": city, "api_key": SECRET}).wait() for city in ("violet", "violets")
        ]
        return [run.id for run in (*started, environment.start("broken").wait())]


def text_of(data):
    return json.dumps(data, default=str)


def test_results_are_metadata(runs):
    first, second, broken = runs
    results = [
        assistant.divebook_runs(),
        assistant.divebook_show(first),
        assistant.divebook_show(broken),
        assistant.divebook_questions(),
        assistant.divebook_why("greeting", first),
        assistant.divebook_compare([first, second]),
    ]
    assert "violet" not in text_of(results)
    assert SECRET not in text_of(results)
    listed, shown, failed, questions, why, compared = results
    assert [run["id"] for run in listed["runs"]] == [broken, second, first]
    assert {run["status"] for run in listed["runs"]} == {"failed", "waiting"}
    assert (shown["workflow"], shown["status"], shown["variable_names"]) == ("release", "waiting", ["greeting"])
    assert shown["input_names"] == ["api_key", "city"]
    assert failed["has_error"]
    assert [question["kind"] for question in questions["questions"]] == ["confirmation"] * 2
    assert {origin["name"] for origin in why["origins"]} >= {"greeting", "inputs.city"}
    assert compared["differences"]


def test_content_is_returned_on_request_and_without_secrets(runs):
    first, second, broken = runs
    assert assistant.divebook_show(first, content=True)["variables"] == {"greeting": "violet violet"}
    assert "violet" in text_of(assistant.divebook_show(broken, content=True)["error"])
    assert "violet" in text_of(assistant.divebook_runs(content=True))
    assert "Send violet mail?" in text_of(assistant.divebook_questions(content=True))
    assert "violet" in text_of(assistant.divebook_why("greeting", first, content=True))
    assert "violet" in text_of(assistant.divebook_compare([first, second], content=True))
    assert SECRET not in text_of(assistant.divebook_show(first, content=True))


def test_runs_are_filtered(runs):
    assert [run["id"] for run in assistant.divebook_runs(status="failed")["runs"]] == runs[2:]
    assert len(assistant.divebook_runs(workflow="release", limit=1)["runs"]) == 1


def test_a_what_if_is_planned_without_a_run(runs):
    plan = assistant.divebook_what_if_plan(runs[0], inputs={"city": "Bonn"}, definitions="Agents: [{Name: clerk}]")
    assert plan["source"] == runs[0]
    assert "clerk" in text_of(plan["live"])
    assert assistant.divebook_runs()["total"] == 3


def test_a_definition_is_checked(runs):
    assert assistant.divebook_check_definition(FLOW) == {
        "problems": [],
        "workflows": ["release", "broken"],
        "agents": ["clerk"],
    }
    (problem, *_) = assistant.divebook_check_definition("Workflows: [{Name: w, Stepps: []}]")["problems"]
    assert problem["line"] == 1
    assert "Steps" in text_of(problem)


def test_a_key_is_explained():
    assert assistant.divebook_help("parallel").startswith("Parallel:")
    with pytest.raises(NotFoundError):
        assistant.divebook_help("no such key")


def test_a_missing_store_is_not_created(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DIVEBOOK_STORE", raising=False)
    with pytest.raises(StoreError, match="there is no store"):
        assistant.divebook_runs()
    assert not list(tmp_path.iterdir())


def test_answers_are_off_by_default(runs, monkeypatch):
    question = assistant.divebook_questions()["questions"][0]
    assert not [name for name in assistant.tools() if "answer" in name]
    with pytest.raises(PermissionError, match="DIVEBOOK_ASSISTANT_ANSWERS=1"):
        assistant.divebook_answer(question["address"], answer=True)
    monkeypatch.setenv(assistant.ANSWERS_VARIABLE, "1")
    assert "divebook.commands.assistant:divebook_answer" in assistant.tools()
    try:
        answered = assistant.divebook_answer(question["address"], answer=True)
        assert answered["run_id"] == question["run_id"]
        environment = next(iter(assistant._answering.values()))
        assert environment.run_of(answered["run_id"]).wait().variables["sure"] is True
    finally:
        for environment in assistant._answering.values():
            environment.close()
        assistant._answering.clear()


def test_the_entry_point_names_functions_that_exist():
    (point,) = entry_points(group="jupyter_server_mcp.tools", name="divebook")
    for name in point.load()():
        module, _, function = name.partition(":")
        assert module == assistant.__name__
        assert callable(getattr(assistant, function))


@pytest.mark.timeout(600)  # importing the package takes minutes on a busy machine
def test_jupyter_server_mcp_serves_the_tools(runs):
    """The package itself registers the functions, and calls one with the text that a client sends."""
    pytest.importorskip("jupyter_server_mcp", reason="jupyter-server-mcp is not installed")
    from jupyter_server_mcp.extension import MCPExtensionApp
    from jupyter_server_mcp.mcp_server import MCPServer

    app = MCPExtensionApp()
    app.mcp_server_instance = server = MCPServer(name="test", port=0)
    app._register_tools(app._discover_entrypoint_tools(), source="entrypoints")
    assert {tool["name"] for tool in server.list_tools()} == {name.partition(":")[2] for name in assistant.tools()}
    result = asyncio.run(server.mcp.call_tool("divebook_show", {"run": runs[0]}))
    assert result.structured_content["status"] == "waiting"
