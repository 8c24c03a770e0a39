"""What must hold before an environment can be built."""

import pytest

from divebook.definitions.definition import (
    Definitions,
    check_default_workflow,
    check_providers,
    combined_settings,
    missing_agents,
    require_name,
    with_defaults,
)
from divebook.definitions.reader import definitions_from, definitions_to_text, read_agent, read_definitions
from divebook.definitions.resources import AgentDefinition, Config, ModelSettings, ProviderSettings
from divebook.errors import DefinitionError, SetupError


def test_a_whole_environment_is_accepted_as_the_old_system_wrote_it():
    found = definitions_from(
        {
            "Name": "test-env",
            "Description": "Test Environment",
            "Config": {"DefaultProvider": "anthropic", "LogLevel": "info", "ConfirmationMode": "never"},
            "Tools": [{"Name": "read_file"}],
            "Agents": [
                {"Name": "researcher", "Goal": "Assist with research", "Tools": ["read_file"]},
                {"Name": "writer", "Goal": "Write compelling content", "Tools": ["read_file"]},
            ],
            "Workflows": [
                {
                    "Name": "Research and Write",
                    "Steps": [{"Name": "Research", "Next": [{"Step": "Write"}]}, {"Name": "Write"}],
                }
            ],
            "Triggers": [{"Name": "manual", "Type": "manual"}],
        },
        dialect="dive",
    )
    assert require_name(found) == "test-env"
    assert [agent.name for agent in found.agents if not agent.is_supervisor] == ["researcher", "writer"]
    assert [step.name for step in found.workflows[0].steps] == ["Research", "Write"]
    assert missing_agents(found.workflows[0], ()) == []


def test_an_environment_needs_a_name():
    with pytest.raises(SetupError, match="environment name is required"):
        require_name(definitions_from({"Agents": []}))


def test_an_unknown_provider_is_refused():
    definitions = definitions_from({"Name": "e", "Agents": [{"Name": "a", "Provider": "acme"}]})
    with pytest.raises(SetupError, match='unsupported provider: "acme"'):
        check_providers(definitions, {"openai"}.__contains__)
    check_providers(definitions, {"acme"}.__contains__)


def test_the_default_provider_is_checked_too():
    definitions = definitions_from({"Config": {"DefaultProvider": "acme"}})
    with pytest.raises(SetupError, match='unsupported provider: "acme"'):
        check_providers(definitions, lambda name: False)


def test_an_agent_that_a_step_names_must_exist():
    steps = [{"Name": "s", "Agent": "ghost", "Prompt": "x"}]
    definitions = definitions_from({"Name": "e", "Workflows": [{"Name": "w", "Steps": steps}]})
    assert missing_agents(definitions.workflows[0], ())[0].message == "agent ghost not found"


@pytest.mark.parametrize(("value", "seconds"), [("30s", 30), ("1m30s", 90), (30, 30), (1.9, 1.9), (0.5, 0.5)])
def test_the_forms_of_a_response_timeout(value, seconds):
    assert read_agent({"Name": "a", "ResponseTimeout": value}).response_timeout == seconds


@pytest.mark.parametrize(("value", "seconds"), [(1.9, 1), (0.5, 600), (0, 600)])
def test_the_legacy_dialect_cuts_the_fraction_of_a_response_timeout(value, seconds):
    assert read_agent({"Name": "a", "ResponseTimeout": value}, dialect="dive").response_timeout == seconds


@pytest.mark.parametrize(("value", "dialect", "limit"), [(0, "divebook", 0), (0, "dive", 16), (-1, "dive", 16)])
def test_an_agent_with_the_iteration_limit_0_calls_no_tools_except_in_the_legacy_dialect(value, dialect, limit):
    agent = read_agent({"Name": "a", "ToolIterationLimit": value}, dialect=dialect)
    assert agent.tool_iteration_limit == limit
    text = definitions_to_text(Definitions(agents=(agent,)))
    assert read_definitions(text).agents[0].tool_iteration_limit == limit


@pytest.mark.parametrize("value", ["soon", -1, True, ["1s"], 0, 0.0, "0", "0s", "0m0s"])
def test_a_response_timeout_that_is_none(value):
    with pytest.raises(DefinitionError, match="ResponseTimeout must be a number of seconds"):
        read_agent({"Name": "a", "ResponseTimeout": value})


def test_the_default_workflow_must_exist():
    with pytest.raises(SetupError, match="default workflow not found: ghost"):
        check_default_workflow(Config(default_workflow="ghost"), ["w"])
    check_default_workflow(Config(), [])


def test_features_and_headers_of_provider_and_agent_are_united_and_the_agent_wins():
    provider = ProviderSettings("anthropic", caching=True, features=("b",), request_headers={"H": ["1"]})
    own = ModelSettings(features=("a", "b"), request_headers={"H": ["2"]}, caching=False)
    found = combined_settings(provider, own)
    assert found.features == ("a", "b")
    assert found.request_headers == {"H": ["1", "2"]}
    assert found.caching is False
    assert combined_settings(provider, ModelSettings()).caching is True


def test_provider_settings_reach_agents_without_settings_of_their_own():
    config = Config(providers=(ProviderSettings("anthropic", features=("x",)),))
    assert with_defaults(AgentDefinition("a"), config).model_settings.features == ("x",)
    assert with_defaults(AgentDefinition("a", provider="openai"), config).model_settings is None
