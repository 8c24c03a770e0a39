"""The tools that agents name: their own, those that come with divebook, with options and limits; what is not there."""

import asyncio

import pytest

from divebook import Agent, Environment, Retry, ScriptedModel, tool
from divebook.agents.signatures import library_tool
from divebook.definitions import AgentDefinition, definitions_from
from divebook.definitions.tools import tool_of
from divebook.documents import MemoryDocuments, Policy
from divebook.errors import DefinitionError, NotFoundError, SetupError
from divebook.stores import MemoryStore
from divebook.text.redaction import shared

WORKFLOW = {"Name": "w", "Steps": [{"Name": "s", "Agent": "a", "Prompt": "Hi"}]}


def find(query: str, key: str, idempotency_key: str = "") -> str:
    """Find passages."""
    return f"{query} with {key} {idempotency_key}"


def environment(definition=None, dialect="divebook", **settings):
    made = Environment(store=MemoryStore(), documents=MemoryDocuments({"a.md": "it"}), **settings)
    if definition is not None:
        made.define(definitions_from(definition, dialect=dialect))
    return made


def tools_of(definition, **settings):
    made = environment({**definition, "Agents": [{"Name": "a", **definition["Agents"]}]}, **settings)
    return made.internals.registry.tools_for(made.internals.registry.agent("a").definition)


def test_an_agent_gets_the_tools_that_it_names_in_its_order():
    found = tools_of({"Agents": {"Tools": ["read_document", "find", "read_document"]}}, tools=[find])
    assert [one.name for one in found] == ["read_document", "find"]
    assert found[0].function("a.md") == "it"


def test_a_persons_own_tool_wins_over_one_that_comes_with_divebook():
    def fetch(url: str) -> str:
        """Fetch from the archive."""
        return url

    (found,) = tools_of({"Agents": {"Tools": ["fetch"]}}, tools=[fetch])
    assert found.function is fetch


def test_options_and_limits_are_those_of_the_definition_and_those_of_the_agent_win():
    said = {"Name": "list_documents", "Parameters": {"MaxEntries": 5}, "Timeout": 3, "Limit": 2, "Most": 500}
    said |= {"Concurrency": 1, "Retry": {"Attempts": 4}, "Approval": True}
    agent = {"Tools": ["list_documents"], "ToolConfig": {"list_documents": {"max_entries": 1}}}
    made = environment({"Tools": [said], "Agents": [{"Name": "a", **agent}]})
    made.definitions.documents.put("b.md", "more")
    (found,) = made.internals.registry.tools_for(made.internals.registry.agent("a").definition)
    assert found.function() == {"paths": ["a.md"], "note": "limited to 1 of 2"}
    found = made.internals.registry.limited(found)
    assert (found.timeout, found.limit, found.most, found.concurrency) == (3, 2, 500, 1)
    assert (found.retry, found.approval) == (Retry(4), True)


@pytest.mark.parametrize("is_async", [False, True])
def test_arguments_of_a_definition_are_looked_up_at_the_call_and_no_model_sees_them(monkeypatch, is_async):
    async def later(query: str, key: str) -> str:
        """Find passages."""
        return find(query, key)

    function = later if is_async else find
    definition = {"Tools": [{"Name": function.__name__, "Parameters": {"key": "env://FIND_KEY"}}]}
    (found,) = tools_of(
        {**definition, "Agents": {"Tools": [function.__name__]}},
        tools=[function],
        policy=Policy("environment:FIND_KEY"),
    )
    assert list(library_tool(found, None).function_schema.json_schema["properties"]) == ["query"]
    with pytest.raises(
        SetupError, match="env://FIND_KEY refers to an environment variable that is not set or is empty"
    ):
        asyncio.run(found.function(query="q")) if is_async else found.function(query="q")
    monkeypatch.setenv("FIND_KEY", "f-8812-of-the-test")
    called = asyncio.run(found.function(query="q")) if is_async else found.function(query="q")
    assert called.startswith("q with f-8812-of-the-test")
    assert "8812" not in shared().text(called)


def test_what_comes_with_a_call_still_comes_where_arguments_are_fixed():
    definition = {"Tools": [{"Name": "find", "Parameters": {"key": "k"}}], "Agents": {"Tools": ["find"]}}
    (found,) = tools_of(definition, tools=[find])
    assert found.is_repeatable
    assert found.function(query="q", idempotency_key="id-1") == "q with k id-1"


@pytest.mark.parametrize(
    ("definition", "error", "says"),
    [
        ({"Agents": {"Tools": ["read_fiel"]}}, NotFoundError, r"unknown tool: read_fiel.*read_file"),
        (
            {"Agents": {"Tools": ["web_search"]}},
            SetupError,
            "agent a uses the tool web_search, which does not exist: ",
        ),
        (
            {"Tools": [{"Name": "fetch", "Enabled": False}], "Agents": {"Tools": ["fetch"]}},
            SetupError,
            'agent references unknown tool "fetch": .*Enabled: false',
        ),
        (
            {"Tools": [{"Name": "find", "Parameters": {"kee": 1}}], "Agents": {"Tools": ["find"]}},
            SetupError,
            "tool \"find\" has no parameter 'kee'",
        ),
        (
            {"Agents": {"Tools": ["fetch"], "ToolConfig": {"fetch": 3}}},
            SetupError,
            "fetch must be a mapping of options, not 3",
        ),
        (
            {"Agents": {"Tools": ["fetch"], "ToolConfig": {"find": {}}}},
            SetupError,
            "has options for find, which is not in",
        ),
        (
            {"Tools": [{"Name": "far", "Parameters": {"x": 1}}], "Agents": {"Tools": ["far"]}},
            SetupError,
            "tool far takes no options here: x would have no effect",
        ),
    ],
)
def test_what_is_wrong_with_tools_is_said_before_anything_is_recorded(definition, error, says):
    whole = {
        **definition,
        "Agents": [{"Name": "a", "Model": "scripted", **definition["Agents"]}],
        "Workflows": [WORKFLOW],
    }
    made = environment(whole, tools=[find])
    with pytest.raises(error, match=says):
        made.start("w")
    assert list(made.store.records()) == []


def test_the_limit_of_a_tool_is_at_least_one():
    with pytest.raises(DefinitionError, match="Limit must be an integer from 1 to"):
        environment({"Tools": [{"Name": "fetch", "Limit": 0}]}, tools=[find])


def test_an_agent_of_the_old_system_goes_without_what_needs_a_service(logs):
    agent = {"Name": "a", "Tools": ["web_search", "list_directory"]}
    made = environment({"Agents": [agent], "Workflows": [WORKFLOW]}, dialect="dive")
    assert [one.name for one in made.internals.registry.tools_for(made.internals.registry.agent("a").definition)] == [
        "list_directory"
    ]
    made.create("w", model="scripted")
    assert ["a runs without the tool web_search: write a @tool" in said for said in logs()] == [True]


def test_a_tool_made_in_python_is_found_by_its_name():
    tool(read_only=True)(find)
    made = environment(agents=[Agent(AgentDefinition("a", tools=("find",)), model=ScriptedModel(["x"]))])
    assert made.internals.registry.tools_for(made.internals.registry.agent("a").definition) == [tool_of(find)]


def test_limits_of_a_definition_hold_for_tools_that_were_given_in_python():
    calls = [{"call": {"find": {"query": str(number), "key": "k"}}} for number in range(3)]
    definition = {"Tools": [{"Name": "find", "Limit": 1, "Most": 100}], "Workflows": [WORKFLOW]}
    made = environment(definition, agents=[Agent("a", model=ScriptedModel([*calls, "done"]), tools=[find])])
    execution = made.start("w").wait(20)
    assert execution.status == "completed", execution.error
    started = [e.data for e in execution.history() if e.event_type == "operation_started"]
    assert [operation.name for operation in started if operation.operation_type == "tool_call"] == ["find"]
    assert "used up" in str(execution.requests[2].messages)
