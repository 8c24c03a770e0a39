"""Two sets of definitions become one."""

import pytest

from divebook.agents import Agent
from divebook.config import merge, merge_all
from divebook.definitions.reader import definitions_from, read_definitions
from divebook.environments.environment import Environment
from divebook.stores import MemoryStore


def merged(left, right):
    return merge(definitions_from(left, dialect="dive"), definitions_from(right, dialect="dive"))


def test_an_item_of_the_same_name_is_replaced_whole():
    base = {"Name": "e", "Agents": [{"Name": "a", "Goal": "g1", "Model": "m1"}]}
    agent = merged(base, {"Agents": [{"Name": "a", "Goal": "g2"}]}).agents[0]
    assert (agent.goal, agent.model) == ("g2", None)


def test_the_order_of_first_appearance_stays():
    steps = [{"Name": "s", "Script": "1"}]
    found = merged(
        {"Name": "e", "Agents": [{"Name": "zed"}, {"Name": "mid"}], "Workflows": [{"Name": "z", "Steps": steps}]},
        {"Agents": [{"Name": "abe"}, {"Name": "zed", "Goal": "new"}], "Workflows": [{"Name": "a", "Steps": steps}]},
    )
    assert [(agent.name, agent.goal) for agent in found.agents] == [("zed", "new"), ("mid", ""), ("abe", "")]
    assert [workflow.name for workflow in found.workflows] == ["z", "a"]


def test_documents_version_and_confirmation_mode_are_merged_too():
    found = merged(
        {"Name": "e", "Version": "1", "Documents": [{"Name": "a"}], "Config": {"ConfirmationMode": "never"}},
        {"Version": "2", "Documents": [{"Name": "b"}], "Config": {"ConfirmationMode": "always"}},
    )
    assert [document.name for document in found.documents] == ["a", "b"]
    assert (found.version, found.config.confirmation_mode) == ("2", "always")


def test_settings_that_the_later_one_does_not_give_stay():
    config = merged(
        {
            "Config": {
                "DefaultProvider": "anthropic",
                "DefaultModel": "m",
                "LogLevel": "info",
                "Providers": [{"Name": "a"}],
            }
        },
        {"Config": {"DefaultModel": "m2", "Providers": [{"Name": "b"}]}},
    ).config
    assert (config.default_provider, config.default_model, config.log_level) == ("anthropic", "m2", "info")
    assert [provider.name for provider in config.providers] == ["a", "b"]


def test_warnings_of_all_parts_are_kept():
    part = read_definitions("Documents: [{Name: d, ID: x}]", dialect="dive")
    assert len(merge_all([part, part]).warnings) == 2
    assert merge_all([]).name == ""


CONFIGURED = """
Config:
  DefaultProvider: openai
  Providers:
    - {Name: openai, RequestHeaders: {Team: blue}}
    - {Name: groq, RequestHeaders: {Team: red}}
Agents: [{Name: a}, {Name: b, Provider: groq}]
"""
LATER = """
Config: {DefaultProvider: openai, DefaultModel: gpt-5-mini, Providers: [{Name: openai, RequestHeaders: {Team: green}}]}
Agents: [{Name: c}]
"""


def agents_of(*parts):
    with MemoryStore() as store:
        environment = Environment(store=store)
        for part in parts:
            environment.define(part)
        made = {name: (agent.model_name, agent.definition) for name, agent in environment.definitions.agents.items()}
        return environment.internals.registry.config, made


@pytest.mark.parametrize(("first", "second"), [(CONFIGURED, LATER), (LATER, CONFIGURED)])
def test_two_cells_equal_two_files(first, second):
    parts = [read_definitions(first), read_definitions(second)]
    assert agents_of(*parts) == agents_of(merge_all(parts))


def test_settings_leave_an_agent_alone_that_came_as_an_object():
    with MemoryStore() as store:
        environment = Environment(store=store)
        environment.define(read_definitions(CONFIGURED))
        own = Agent("a", model="scripted")
        environment.add_agent(own, replace=True)
        environment.define(read_definitions(LATER))
        assert environment.internals.registry.agent("a") is own
