"""What is sent with the requests of a turn: the tool that a model must call, and headers that name secrets."""

import io

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from divebook import Agent, Step, Workflow
from divebook.definitions import definitions_from
from divebook.definitions.resources import AgentDefinition, ModelSettings
from divebook.errors import DefinitionError
from divebook.stores.transfer import export
from tests.runtime.worlds import environment

ASK = Workflow("ask", [Step("ask", prompt="Which birds?", agent="a", store="birds")])
KEY = "k-55120-of-the-test"


def look(name: str) -> str:
    """Look a bird up."""
    return name


def run(settings, tools=(look,)):
    """Return what was sent with each request of a turn, and the execution."""
    sent = []

    def answer(_, info):
        sent.append(dict(info.model_settings))
        calls = len(sent) == 1 and tools
        return ModelResponse(parts=[ToolCallPart("look", {"name": "owl"}) if calls else TextPart("an owl")])

    agent = Agent(AgentDefinition("a", model_settings=settings), model=FunctionModel(answer), tools=tools)
    execution = environment(ASK, agents=[agent]).start("ask").wait(20)
    assert execution.variables == {"birds": "an owl"}, execution.error
    return sent, execution


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ({"type": "any"}, ["required", None]),
        ({"type": "tool", "name": "look"}, [["look"], None]),
        ({"type": "auto"}, [None, None]),
        (None, [None, None]),
    ],
)
def test_a_model_must_call_the_tool_that_is_chosen_first(choice, wanted):
    sent, _ = run(ModelSettings(tool_choice=choice))
    assert [settings.get("tool_choice") for settings in sent] == wanted


def test_a_model_that_may_call_nothing_is_told_so_each_time():
    sent, _ = run(ModelSettings(tool_choice={"type": "none"}))
    assert [settings["tool_choice"] for settings in sent] == ["none", "none"]


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ({"type": "some"}, "ToolChoice cannot be {'type': 'some'}"),
        ({"type": "tool"}, "must have a name with the type tool, and no name with other types"),
        ({"type": "any", "name": "look"}, "must have a name with the type tool, and no name with other types"),
        ({"type": "auto", "more": 1}, "ToolChoice cannot be"),
    ],
)
def test_a_choice_that_is_none_is_refused_where_it_stands(choice, says):
    with pytest.raises(DefinitionError, match=says):
        definitions_from({"Agents": [{"Name": "a", "ModelSettings": {"ToolChoice": choice}}]})


@pytest.mark.parametrize("tools", [(look,), ()], ids=["turn", "plain"])
def test_headers_are_looked_up_for_the_request_and_are_in_no_log(monkeypatch, tools):
    settings = ModelSettings(request_headers={"Authorization": ["Bearer env://HEADER_KEY"], "Team": ["blue"]})
    monkeypatch.setenv("HEADER_KEY", KEY)
    sent, execution = run(settings, tools)
    assert {tuple(settings["extra_headers"].items()) for settings in sent} == {
        (("Authorization", f"Bearer {KEY}"), ("Team", "blue"))
    }
    file = io.BytesIO()
    export(execution.store, execution.id, file)
    lines = file.getvalue().decode()
    assert KEY not in lines
    monkeypatch.delenv("HEADER_KEY")
    other = environment(ASK, store=execution.store).run_of(execution.id)
    assert other.variables == {"birds": "an owl"}


def test_a_header_that_names_nothing_fails_the_request_and_says_what_to_set(monkeypatch):
    monkeypatch.delenv("HEADER_KEY", raising=False)
    settings = ModelSettings(request_headers={"Authorization": ["env://HEADER_KEY"]})
    agent = Agent(AgentDefinition("a", model_settings=settings), model=FunctionModel(lambda *_: None), tools=[look])
    execution = environment(ASK, agents=[agent]).start("ask").wait(20)
    assert execution.status == "failed"
    assert "env://HEADER_KEY refers to an environment variable that is not set or is empty" in execution.error
