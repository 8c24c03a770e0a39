"""The reader and the JSON schema of definitions agree about a wrong value at every key of every kind of definition."""

import copy

import pytest

from divebook.definitions.reader import definitions_from
from divebook.definitions.schema import TABLES
from divebook.errors import DivebookError
from tests.definitions.test_definitions_schema import data_of, validator

PARTS = {
    "definition": ("{}", ()),
    "workflow": ("Workflows: [{Name: w, Steps: [{Name: s, Script: '1'}]}]", ("Workflows", 0)),
    "input": (
        "Workflows: [{Name: w, Inputs: [{Name: n}], Steps: [{Name: s, Script: '1'}]}]",
        ("Workflows", 0, "Inputs", 0),
    ),
    "output": (
        "Workflows: [{Name: w, Outputs: [{Name: n}], Steps: [{Name: s, Script: '1', Store: n}]}]",
        ("Workflows", 0, "Outputs", 0),
    ),
    "step": ("Workflows: [{Name: w, Steps: [{Name: s, Script: '1'}]}]", ("Workflows", 0, "Steps", 0)),
    "step: prompt": ("Workflows: [{Name: w, Steps: [{Name: s, Prompt: 'a'}]}]", ("Workflows", 0, "Steps", 0)),
    "step: action": ("Workflows: [{Name: w, Steps: [{Name: s, Action: 'a'}]}]", ("Workflows", 0, "Steps", 0)),
    "step: ask": ("Workflows: [{Name: w, Steps: [{Name: s, Ask: 'a'}]}]", ("Workflows", 0, "Steps", 0)),
    "step: wait": ("Workflows: [{Name: w, Steps: [{Name: s, Type: wait, Seconds: 1}]}]", ("Workflows", 0, "Steps", 0)),
    "step: workflow": ("Workflows: [{Name: w, Steps: [{Name: s, Workflow: x}]}]", ("Workflows", 0, "Steps", 0)),
    "Each": (
        "Workflows: [{Name: w, Steps: [{Name: s, Script: '1', Each: {Items: [1]}}]}]",
        ("Workflows", 0, "Steps", 0, "Each"),
    ),
    "Next entry": (
        "Workflows: [{Name: w, Steps: [{Name: s, Script: '1', Next: [{Step: t}]},{Name: t, Script: '1'}]}]",
        ("Workflows", 0, "Steps", 0, "Next", 0),
    ),
    "Retry": (
        "Workflows: [{Name: w, Steps: [{Name: s, Script: '1', Retry: {Attempts: 2}}]}]",
        ("Workflows", 0, "Steps", 0, "Retry"),
    ),
    "Rollback": (
        "Workflows: [{Name: w, Steps: [{Name: s, Action: a, Rollback: {Action: b}}]}]",
        ("Workflows", 0, "Steps", 0, "Rollback"),
    ),
    "Catch": (
        "Workflows: [{Name: w, Steps: [{Name: s, Script: '1', Catch: [{Step: t}]},{Name: t, Script: '1'}]}]",
        ("Workflows", 0, "Steps", 0, "Catch", 0),
    ),
    "Ask": ("Workflows: [{Name: w, Steps: [{Name: s, Ask: {Question: a}}]}]", ("Workflows", 0, "Steps", 0, "Ask")),
    "content entry": (
        "Workflows: [{Name: w, Steps: [{Name: s, Agent: a, Content: [{Text: a}]}]}]",
        ("Workflows", 0, "Steps", 0, "Content", 0),
    ),
    "trigger": (
        "Workflows: [{Name: w, Triggers: [{Name: a}], Steps: [{Name: s, Script: '1'}]}]",
        ("Workflows", 0, "Triggers", 0),
    ),
    "pipeline": ("Pipelines: [{Name: p, Stages: [{Name: a, Agent: x}]}]", ("Pipelines", 0)),
    "stage": ("Pipelines: [{Name: p, Stages: [{Name: a, Agent: x}]}]", ("Pipelines", 0, "Stages", 0)),
    "route": (
        (
            "Pipelines: [{Name: p, Stages: [{Name: a, Agent: x, Routes: [{Condition: v, Value: x, Target: b}]}, "
            "{Name: b, Agent: x}]}]"
        ),
        ("Pipelines", 0, "Stages", 0, "Routes", 0),
    ),
    "edge limit": (
        (
            "Pipelines: [{Name: p, Stages: [{Name: a, Agent: x}, {Name: b, Agent: x}], "
            "EdgeLimits: [{Source: a, Target: b, MaxCount: 2}]}]"
        ),
        ("Pipelines", 0, "EdgeLimits", 0),
    ),
    "approval rule": ("Config: {Approvals: [{Tool: a}]}", ("Config", "Approvals", 0)),
    "ModelSettings": ("Agents: [{Name: a, ModelSettings: {MaxTokens: 5}}]", ("Agents", 0, "ModelSettings")),
    "agent": ("Agents: [{Name: a}]", ("Agents", 0)),
    "tool": ("Tools: [{Name: a}]", ("Tools", 0)),
    "document": ("Documents: [{Name: a, Path: x.md}]", ("Documents", 0)),
    "schedule": ("Schedules: [{Name: a, Cron: '0 0 * * *', Workflow: w}]", ("Schedules", 0)),
    "TokenStore": (
        (
            "MCPServers: [{Name: a, Type: http, URL: 'https://x', "
            "OAuth: {ClientID: x, TokenStore: {Type: file, Path: a}}}]"
        ),
        ("MCPServers", 0, "OAuth", "TokenStore"),
    ),
    "OAuth": (
        "MCPServers: [{Name: a, Type: http, URL: 'https://x', OAuth: {ClientID: x}}]",
        ("MCPServers", 0, "OAuth"),
    ),
    "ApprovalFilter": (
        "MCPServers: [{Name: a, Type: stdio, Command: x, ToolConfiguration: {ApprovalFilter: {Always: [x]}}}]",
        ("MCPServers", 0, "ToolConfiguration", "ApprovalFilter"),
    ),
    "ToolConfiguration": (
        "MCPServers: [{Name: a, Type: stdio, Command: x, ToolConfiguration: {}}]",
        ("MCPServers", 0, "ToolConfiguration"),
    ),
    "MCP server": ("MCPServers: [{Name: a, Type: stdio, Command: x}]", ("MCPServers", 0)),
    "workspace": ("Workspaces: [{Name: a}]", ("Workspaces", 0)),
    "provider": ("Config: {Providers: [{Name: openai}]}", ("Config", "Providers", 0)),
    "Config": ("Config: {}", ("Config",)),
}
"""By kind of definition, a file with one and the place of it in the file."""
MISSING = object()
VALUES = [
    *(MISSING, None, True, False, 0, 5, -1, 1.5, "", "x", "5", "${x}", [], ["x"], [5], [None], [{}], [{"x": 1}], {}),
    *({"x": 1}, {"Name": "x"}, [["x"]], {"x": [1]}, "30s", "a b", "*"),
]
UNCHECKED = {
    **dict.fromkeys(
        (
            *(
                "Next entry.Step",
                "Catch.Step",
                "edge limit.Source",
                "edge limit.Target",
                "stage.Next",
                "stage.ErrorNext",
            ),
            *("stage.Requires", "stage.After", "stage.PromptKey", "stage.Routes", "route.Target", "pipeline.Stages"),
            *("pipeline.ConfirmationResumeStage", "pipeline.ClarificationResumeStage", "pipeline.EdgeLimits"),
            "pipeline.AgentReviewResumeStage",
        ),
        "the name of another part",
    ),
    **dict.fromkeys(("step.Type", "workspace.Kind"), "plugins have names of their own"),
    **dict.fromkeys(
        (
            *("step.Store", "Catch.Store", "Each.As", "input.Name", "schedule.Cron", "schedule.Zone", "Each.Rows"),
            *("Each.Items", "approval rule.Expires", "workspace.Memory", "ModelSettings.ToolChoice", "agent.Name"),
            *("MCP server.Name", "agent.Provider", "Config.DefaultProvider", "step.Seconds", "Ask.ExpiresIn"),
            *("workspace.Name", "workspace.InPlace", "step.Output", "OAuth.Scopes", "MCP server.URL"),
            *("route.Value", "OAuth.PKCEEnabled"),
        ),
        "the reader parses the text",
    ),
    **dict.fromkeys(
        ("step.Timeout", "step.Rollback", "step.Each", "step.Ask", "step.Retry", "step.Content", "step.Name"),
        "depends on other keys of the step",
    ),
}
"""Keys whose wrong values only the reader finds, with the reason."""


def is_read(data):
    try:
        definitions_from(data)
    except DivebookError:
        return False
    return True


def changed(base, place, key, value):
    """Return a copy of a file in which a key of the definition at a place has another value, or none."""
    data = copy.deepcopy(base)
    part = data
    for step in place:
        part = part[step]
    if value is MISSING:
        part.pop(key, None)
    else:
        part[key] = copy.deepcopy(value)
    return data


@pytest.mark.parametrize("kind", PARTS)
def test_the_reader_and_the_schema_agree_about_a_value_at_each_key(kind):
    text, place = PARTS[kind]
    base = data_of(text)
    assert is_read(base), text
    label = kind.partition(":")[0]
    overlooked, refused = [], []
    for key in TABLES[label].keys:
        for value in VALUES:
            data = changed(base, place, key.name, value)
            fits = validator().is_valid(data)
            # An empty text counts as missing for the schema of most texts.
            if is_read(data) is fits or (value == "" and fits):
                continue
            (overlooked if fits else refused).append((key.name, "MISSING" if value is MISSING else value))
    assert refused == [], "the reader accepts these, and the schema does not"
    assert [pair for pair in overlooked if f"{label}.{pair[0]}" not in UNCHECKED] == []


def test_every_kind_of_definition_is_tried():
    assert {kind.partition(":")[0] for kind in PARTS} == TABLES.keys()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Documents: [{Name: a}]", "document 'a' has no Path"),
        ("Config: {Approvals: [{}]}", "an approval rule needs a Tool"),
        ("Agents: [{Name: a, Approvals: [{}]}]", "an approval rule needs a Tool"),
        ("Schedules: [{Name: a, Workflow: w}]", "has no Cron"),
    ],
)
def test_a_definition_that_says_too_little_is_refused_by_both(text, message):
    with pytest.raises(DivebookError, match=message):
        definitions_from(data_of(text))
    assert not validator().is_valid(data_of(text))
