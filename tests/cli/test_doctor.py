"""``divebook doctor``: libraries, keys and prices of the models that a definition names."""

import json

import pytest

from divebook import Environment, Step, Workflow
from tests.agents.model_server import PIECES, ModelServer
from tests.cli.conftest import write

AGENTS = """
Agents:
  - {Name: clerk, Model: "openai-chat:gpt-4o-mini"}
  - {Name: critic, Model: "openai-chat:gpt-4o-mini"}
  - {Name: offline}
"""


@pytest.fixture
def agents(folder):
    return write(folder / "agents.yaml", AGENTS)


def rows(result):
    return {row["model"]: row for row in json.loads(result.stdout)["models"]}


def test_a_missing_key_is_named(agents, divebook, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    result = divebook("doctor", agents, "--json")
    found = rows(result)["openai-chat:gpt-4o-mini"]
    assert result.exit_code == 1
    assert (found["agents"], found["library"], found["key"]) == ("clerk, critic", "installed", "set OPENAI_API_KEY")
    assert found["price"] == "known"
    assert rows(result)["scripted"]["usable"]


def test_a_key_is_named_and_never_shown(agents, divebook, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-something-secret")
    result = divebook("doctor", agents)
    assert result.exit_code == 0
    assert "OPENAI_API_KEY is set" in result.stdout
    assert "secret" not in result.output


STEPS = """
Agents: [{Name: clerk}]
Workflows:
  - Name: sort
    Steps:
      - {Name: a, Agent: clrek, Prompt: Sort this}
      - {Name: b, Action: Mail.Send}
      - {Name: c, Workflow: sort}
"""


def test_names_in_steps_that_do_not_exist_are_reported(folder, divebook):
    file = write(folder / "steps.yaml", STEPS)
    result = divebook("doctor", file, "--json")
    assert result.exit_code == 1
    agent, action = json.loads(result.stdout)["missing"]
    assert f"{file}:6:" in agent
    assert "agent clrek is not defined yet" in agent
    assert "did you mean 'clerk'" in agent
    assert f"{file}:7:" in action
    assert "Mail.Send" in action
    assert agent in result.stderr


KEYED = """
Agents:
  - {Name: clerk, Model: "openai-chat:gpt-4o-mini", ApiKey: "env://TEAM_KEY"}
  - {Name: critic, Model: "openai-chat:gpt-4o-mini"}
"""


def test_an_agent_with_a_key_of_its_own_needs_that_key(folder, divebook, monkeypatch):
    monkeypatch.setenv("DIVEBOOK_ALLOW", "environment:TEAM_KEY")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    file = write(folder / "keyed.yaml", KEYED)
    clerk, critic = json.loads(divebook("doctor", file, "--json").stdout)["models"]
    assert (clerk["agents"], clerk["usable"], "TEAM_KEY" in clerk["key"]) == ("clerk", False, True)
    assert (critic["agents"], critic["key"]) == ("critic", "set OPENAI_API_KEY")
    with ModelServer() as server:
        monkeypatch.setenv("TEAM_KEY", "sk-something-secret")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        clerk, _ = json.loads(divebook("doctor", file, "--ping", "--json").stdout)["models"]
    assert (clerk["key"], clerk["usable"], clerk["answer"]) == ("env://TEAM_KEY is set", True, "".join(PIECES))


def test_a_name_that_is_not_known_is_told_with_those_that_are(folder, divebook, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    result = divebook("doctor", write(folder / "a.yaml", "Agents: [{Name: a, Model: 'openai:gpt-6-lun'}]"))
    assert "known models of this provider: " in result.stderr
    assert "gpt-6-luna" in result.stderr


def test_a_missing_library_is_named_with_the_command_that_installs_it(folder, divebook, lacking):
    lacking("anthropic")
    result = divebook("doctor", write(folder / "a.yaml", "Agents: [{Name: a, Provider: anthropic}]"))
    assert result.exit_code == 1
    assert "pip install 'pydantic-ai-slim[anthropic]'" in result.stdout


def test_a_ping_makes_one_request(agents, divebook, monkeypatch):
    with ModelServer() as server:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        result = divebook("doctor", agents, "--ping", "--json")
        assert rows(result)["openai-chat:gpt-4o-mini"]["answer"] == "".join(PIECES)
        assert len(server.prompts) == 1


def test_a_ping_that_fails_says_why(agents, divebook, monkeypatch):
    with ModelServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    result = divebook("doctor", agents, "--ping", "--json")
    assert result.exit_code == 1
    assert rows(result)["openai-chat:gpt-4o-mini"]["answer"].startswith("ModelConnectionError")


def test_without_a_file_every_default_is_listed(divebook):
    assert "openai:gpt-6-luna" in divebook("doctor").stdout


def test_what_an_agent_names_that_is_not_there_is_told(folder, divebook):
    text = "Agents: [{Name: boss, Subordinates: [zz]}, {Name: a, Tools: [read_fiel]}, {Name: b, Model: 'recorded:x'}]"
    result = divebook("doctor", write(folder / "a.yaml", text))
    assert result.exit_code == 1
    assert "agent not found: zz, which agent boss names" in result.stderr
    assert "agent a names an unknown tool: read_fiel (did you mean 'read_file'?)" in result.stderr
    assert "there is no store at " in result.stderr


def test_a_run_that_agents_play_again_is_looked_for_in_the_store(folder, divebook):
    with Environment(store=folder / "s.db", workflows=[Workflow("w", [Step("a", script="1")])]) as world:
        run = world.start("w").wait(20).id
    text = f"Agents: [{{Name: a, Model: 'recorded:{run}'}}, {{Name: b, Model: 'recorded:exec_no'}}]"
    result = divebook("doctor", write(folder / "a.yaml", text), "--store", folder / "s.db", "--json")
    found = rows(result)
    assert found[f"recorded:{run}"]["problems"] == []
    (said,) = found["recorded:exec_no"]["problems"]
    assert "agent b: recorded:exec_no names a run that does not exist" in said
