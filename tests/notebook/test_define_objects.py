"""`divebook.define` with Python objects, and the environment of the session."""

import pytest

import divebook
from divebook import Agent, ScriptedModel, Step, Workflow, action, tool
from divebook.definitions.resources import ScheduleDefinition, WorkspaceDefinition
from divebook.definitions.servers import MCPServerDefinition
from divebook.errors import SetupError
from divebook.notebook.session import open_session
from divebook.steps.actions import Action


@pytest.fixture(autouse=True)
def _session():
    open_session("memory:")


@action("Shout")
def shout(text: str) -> str:
    return text.upper()


@tool
def look(name: str) -> str:
    """Look a name up."""
    return name


def test_each_kind_of_object_is_in_the_environment_of_the_session():
    environment = divebook.environment()
    objects = (
        Agent("poet", model=ScriptedModel(["roses"])),
        Workflow("w", [Step("s", prompt="Write.", agent="poet", store="poem")]),
        Action("Whisper", str.lower),
        shout,
        look,
        WorkspaceDefinition("app"),
        MCPServerDefinition("git", command="git-server"),
        ScheduleDefinition("daily", workflow="w", cron="0 3 * * *"),
        "Workflows: [{Name: sum, Steps: [{Name: add, Script: 1 + 1}]}]",
    )
    change = divebook.define(*objects)
    assert "agent 'poet'" in change.defined
    assert {"workflow 'w' (1 step)", "workflow 'sum' (1 step)"} <= {*change.defined}
    assert divebook.define(objects[0]).replaced == ("agent 'poet'",)
    assert {"poet"} <= environment.definitions.agents.keys()
    assert {"w", "sum"} <= environment.definitions.workflows.keys()
    assert {"Whisper", "Shout"} <= environment.definitions.actions.keys()
    assert ("look" in environment.definitions.tools, "app" in environment.definitions.workspaces) == (True, True)
    assert [schedule.name for schedule in environment.schedules] == ["daily"]
    assert divebook.run("w").result() == {}
    assert divebook.run("w").wait().variables == {"poem": "roses"}


def test_nothing_is_added_if_one_object_is_no_definition():
    with pytest.raises(SetupError, match=r"define\(\) expects a YAML string"):
        divebook.define(Agent("poet", model="scripted"), 5)
    assert divebook.environment().definitions.agents == {}


def test_functions_that_take_an_id_take_a_run():
    divebook.define(Workflow("w", [Step("s", script="1", store="n")]))
    run = divebook.run("w").wait()
    assert divebook.show(run) == divebook.resume(run) == divebook.environment().run_of(run) == run
    assert divebook.compare(run, run.id).is_same
    with pytest.raises(SetupError, match="must be an id or a Run, not 5"):
        divebook.show(5)
