"""Keys and headers that a definition names: they reach the provider they are for, and nothing else holds them."""

import importlib.util
import logging

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow, tool
from divebook.agents.clients import CLIENTS
from divebook.definitions.resources import AgentDefinition, ModelSettings
from divebook.documents import Policy
from divebook.errors import SetupError
from divebook.runtime.loop import ENGINE
from tests.agents.model_server import PATIENCE, TEXT, ModelServer

KEY = "k-7c1f0a9e52b84d36"
ASK = Workflow("w", [Step("ask", prompt="Go", store="r")])
NAMED = "openai-chat:gpt-4o-mini"


@pytest.fixture
def server(require, monkeypatch):
    """Return a server that takes `KEY` only."""
    require("the library openai", importlib.util.find_spec("openai") is not None)
    with ModelServer(key=KEY) as found:
        monkeypatch.setenv("OPENAI_BASE_URL", found.url)
        monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-somebody-else")
        monkeypatch.setenv("RESEARCH_KEY", KEY)
        yield found
        ENGINE.submit(CLIENTS.close()).result(PATIENCE)


@tool
async def note(text: str) -> str:
    """Note a text."""
    return text


@pytest.fixture(params=[(), (note,)], ids=["plain", "with tools"])
def run(request, tmp_path, caplog):
    """Return ``run(definition)``: the execution, and all that is left of it in files, texts and log records."""

    def run(**definition):
        caplog.set_level(logging.DEBUG, "divebook")
        agent = Agent(AgentDefinition("a", **definition), model=NAMED, tools=request.param)
        with Environment(store=str(tmp_path / "runs.db"), agents=[agent]) as environment:
            execution = environment.start(ASK).wait(PATIENCE)
            exported = tmp_path / "run.jsonl"
            environment.run_of(execution.id).export(exported)
            said = repr([agent, agent.definition, execution, execution.error, execution.requests, execution.variables])
        files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        return execution, files.decode("utf-8", "replace") + said + caplog.text

    return run


def test_a_key_reaches_its_provider_and_stays_out_of_everything_else(server, run):
    execution, left = run(api_key="env://RESEARCH_KEY")
    assert execution.variables == {"r": TEXT}
    assert KEY not in left


def test_so_does_a_header(server, run, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("TENANT", "tenant-5a0f77c2")
    settings = ModelSettings(request_headers={"X-Tenant": ["Bearer env://TENANT"], "X-Plain": ["a", "b"]})
    execution, left = run(model_settings=settings)
    assert execution.variables == {"r": TEXT}
    (sent,) = server.headers
    assert (sent["X-Tenant"], sent["X-Plain"]) == ("Bearer tenant-5a0f77c2", "a, b")
    assert "tenant-5a0f77c2" not in left


def test_a_provider_that_repeats_a_wrong_key_does_not_get_it_into_the_log(server, run, monkeypatch):
    monkeypatch.setenv("RESEARCH_KEY", "k-wrong-0d4b8a61f2")
    execution, left = run(api_key="env://RESEARCH_KEY")
    assert "status_code: 401" in execution.error
    assert "invalid key: [redacted]" in execution.error
    assert "k-wrong-0d4b8a61f2" not in left


def test_a_key_that_is_not_there_is_said_and_the_run_goes_on_with_it(server, monkeypatch):
    monkeypatch.delenv("RESEARCH_KEY")
    with Environment(store="memory:", agents=[Agent("a", model=NAMED, api_key="env://RESEARCH_KEY")]) as environment:
        execution = environment.start(ASK).wait(PATIENCE)
        assert "env://RESEARCH_KEY refers to an environment variable that is not set or is empty" in execution.error
        assert "set RESEARCH_KEY and run again" in execution.error
        monkeypatch.setenv("RESEARCH_KEY", KEY)
        assert environment.run_of(execution.id).resume().wait(PATIENCE).variables == {"r": TEXT}


def test_a_key_may_stand_in_a_file(server, tmp_path, monkeypatch):
    (tmp_path / "key").write_text(f"{KEY}\n")
    monkeypatch.chdir(tmp_path)
    with Environment(store="memory:", agents=[Agent("a", model=NAMED, api_key="file://key")]) as environment:
        assert environment.start(ASK).wait(PATIENCE).variables == {"r": TEXT}


@pytest.mark.parametrize("more", [{}, {"tools": [note]}], ids=["plain", "with tools"])
def test_files_that_may_be_named_are_those_of_the_environments_policy(server, tmp_path, monkeypatch, more):
    (tmp_path / "key").write_text(f"{KEY}\n")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    settings = ModelSettings(request_headers={"X-Tenant": ["file://../key"]})
    key, header = {"api_key": "file://../key"}, {"api_key": "env://RESEARCH_KEY", "model_settings": settings}
    for named in (key, header):
        agent = Agent(AgentDefinition("a", **named), model=NAMED, **more)
        outside = pytest.raises(SetupError, match=r"'\.\./key' is outside the definition's folder")
        with Environment(store="memory:", agents=[agent]) as strict, outside:
            strict.start(ASK)
        with Environment(store="memory:", agents=[agent], policy=Policy("files")) as open_world:
            assert open_world.start(ASK).wait(PATIENCE).variables == {"r": TEXT}


def test_agents_with_different_keys_do_not_share_a_client(server):
    agents = [Agent("a", model=NAMED, api_key="env://RESEARCH_KEY"), Agent("b", model=NAMED)]
    with Environment(store="memory:", agents=agents) as environment:
        ends = [environment.start(Workflow("w", [Step("s", agent=name, prompt="x")])) for name in "ab"]
        assert [end.wait(PATIENCE).status for end in ends] == ["completed", "failed"]


def test_another_provider_gets_neither_key_nor_header():
    headers = {"Authorization": ["Bearer env://TENANT"], "X-Plain": ["a"]}
    own = AgentDefinition("a", api_key="env://RESEARCH_KEY", model_settings=ModelSettings(request_headers=headers))
    agent = Agent(own, model=NAMED)
    same, other = agent.with_model("openai-chat:gpt-6").definition, agent.with_model("groq:llama").definition
    assert (same.api_key, dict(same.model_settings.request_headers)) == ("env://RESEARCH_KEY", headers)
    assert (other.api_key, dict(other.model_settings.request_headers)) == (None, {"X-Plain": ["a"]})


def test_a_key_itself_is_refused_without_being_repeated():
    with pytest.raises(SetupError, match=r"write env://NAME or file://PATH") as caught:
        Agent("a", model=NAMED, api_key=KEY)
    assert KEY not in str(caught.value)


def test_a_model_that_has_its_key_takes_no_other(require):
    from pydantic_ai.models.test import TestModel

    with pytest.raises(SetupError, match="remove one"):
        Agent("a", model=TestModel(), api_key="env://RESEARCH_KEY")
    assert Agent("a", model=ScriptedModel(["x"]), api_key="env://RESEARCH_KEY").is_scripted
