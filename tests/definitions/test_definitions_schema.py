"""The JSON schema of definition files: what the reader accepts, the schema accepts; mistakes are found in an editor."""

import ast
import json
import re
from functools import cache
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from typer.testing import CliRunner

from divebook.definitions.reader import read_definitions, workflow_to_mapping
from divebook.definitions.schema import TABLES, json_schema, schema_text
from divebook.definitions.table import Anything, Reading
from divebook.definitions.yaml_text import parse_yaml, value_typed
from divebook.errors import DivebookError
from tests.definitions.test_reader_fuzz import workflows

ROOT = Path(__file__).parents[2]
PARTS = {"file": "definition", "workflow": "workflow", "agent": "agent"}


@cache
def validator(dialect="divebook", body="file"):
    schema = {**json_schema(dialect), "allOf": [{"$ref": f"#/definitions/{PARTS[body]}"}]}
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def data_of(text):
    """Return the plain data of a text in YAML."""
    node = parse_yaml(Reading(text))
    return {} if node is None else Anything().read(node, (), Reading(text))


def faults(data, dialect="divebook", body="file"):
    return [f"{list(error.absolute_path)}: {error.message}" for error in validator(dialect, body).iter_errors(data)]


def texts():
    """Yield the definitions in the tests and notebooks, and other texts."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and ":" in node.value:
                yield node.value
    for path in sorted((ROOT / "notebooks").rglob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            magic, _, body = "".join(cell["source"]).partition("\n")
            if magic.startswith("%%dive"):
                yield body
    for path in sorted((ROOT / "tests").rglob("*.yaml")):
        yield path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "notebooks").rglob("*.md"))):
        for block in re.findall(r"^```yaml\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            yield re.sub(r"\A%%dive[^\n]*\n", "", block)


@cache
def candidates():
    """Return the texts that may be definitions. Most texts of tests are not."""
    keys = tuple(f"{key.name}:" for label in PARTS.values() for key in TABLES[label].keys)
    return [text for text in dict.fromkeys(texts()) if len(text) < 50_000 and any(key in text for key in keys)]


@pytest.mark.parametrize("dialect", ["divebook", "dive"])
def test_the_schema_accepts_the_definitions_of_all_tests_and_notebooks(dialect):
    accepted = 0
    for text in candidates():
        for body in PARTS:
            try:
                read_definitions(text, dialect=dialect, body=body)
            except DivebookError:
                continue
            accepted += 1
            assert faults(data_of(text), dialect, body) == [], text
    assert accepted > 100


@settings(max_examples=100, deadline=None)
@given(workflows())
def test_the_schema_accepts_random_definitions(workflow):
    assert faults({"Workflows": [workflow_to_mapping(workflow)]}) == []


def test_the_schema_accepts_the_example_of_every_key_and_its_spelling_in_snake_case():
    definitions = json_schema()["definitions"]
    for label, table in TABLES.items():
        part = definitions[label.replace(" ", "_")]
        whole = {"definitions": definitions, "properties": part["properties"]}
        for key in table.keys:
            if key.ignored:
                continue
            if key.example:
                example = {key.name: value_typed(key.example)}
                assert list(jsonschema.Draft7Validator(whole).iter_errors(example)) == [], (label, key.name)
            assert part["properties"][key.name]["description"] == key.means
            allowed = {**part["properties"], **{name[1:-1]: None for name in part["patternProperties"]}}
            assert {name for name, other in table._spellings.items() if other == key} <= allowed.keys()


STEP = "Workflows: [{{Name: w, Steps: [{{Name: s, {}}}]}}]"
AGENT = "Agents: [{{Name: a, {}}}]"
MISTAKES = [
    "Workflow: []",
    "Workflows: {Name: w}",
    "Workflows: [w]",
    "Workflows: [{Steps: []}]",
    "Workflows: [{Name: w, Step: []}]",
    "Workflows: [{Name: w, Steps: {Name: s}}]",
    "Workflows: [{Name: w, Steps: [{Prompt: a}]}]",
    "Documents: [{Name: '', Path: a.md}]",
    "Workflows: [{Name: w, Inputs: [{Name: n, Type: integr}], Steps: [{Name: s, Prompt: a}]}]",
    "Workflows: [{Name: w, Inputs: [{Type: int}], Steps: [{Name: s, Prompt: a}]}]",
    "Workflows: [{Name: w, Bounds: {MaxCosts: 1}, Steps: [{Name: s, Prompt: a}]}]",
    "Workflows: [{Name: w, Bounds: {MaxLLMCalls: many}, Steps: [{Name: s, Prompt: a}]}]",
    "Workflows: [{Name: w, Bounds: {OnExhausted: stop}, Steps: [{Name: s, Prompt: a}]}]",
    "Workflows: [{Name: w, Retry: {Attempts: 3}, Steps: [{Name: s, Prompt: a}]}]",
    STEP.format("Promt: a"),
    STEP.format("Prompt: [a]"),
    STEP.format("Prompt: a, Retry: 3"),
    STEP.format("Prompt: a, Retry: {Attempts: 0}"),
    STEP.format("Prompt: a, Retry: {Attempts: 2.5}"),
    STEP.format("Prompt: a, Retry: {Times: 3}"),
    STEP.format("Prompt: a, Each: {Items: [1], Parallel: 0}"),
    STEP.format("Prompt: a, Each: {Items: [1], Parallel: many}"),
    STEP.format("Prompt: a, Each: {Items: [1], OnItemError: ignore}"),
    STEP.format("Prompt: a, Each: [1]"),
    STEP.format("Prompt: a, Next: [b]"),
    STEP.format("Prompt: a, Next: [{Condition: a}]"),
    STEP.format("Prompt: a, Catch: [{Errors: [x]}]"),
    STEP.format("Seconds: -1"),
    STEP.format("Ask: {Kind: approval}"),
    STEP.format("Ask: [a]"),
    STEP.format("Action: a, Parameters: [1]"),
    AGENT.format("Goal: [a]"),
    AGENT.format("Temperature: 1"),
    AGENT.format("Tools: fetch"),
    AGENT.format("ResponseTimeout: 5 parsecs"),
    AGENT.format("ResponseTimeout: 0"),
    AGENT.format("ToolIterationLimit: -1"),
    AGENT.format("ModelSettings: {MaxTokens: 0}"),
    AGENT.format("ModelSettings: {Temperature: hot}"),
    AGENT.format("Bounds: {MaxDepth: 2}"),
    AGENT.format("Supervisor: maybe"),
    "Agents: [{Goal: a}]",
    "Config: {LogLevel: loud}",
    "Config: {Durability: 3}",
    "Tools: [{Timeout: 5}]",
    "Documents: [{Path: a.md}]",
    "Schedules: [{Workflow: w}]",
    "MCPServers: [{Type: stdio, Command: x}]",
    "MCPServers: [{Name: m, Command: x, Args: a}]",
    "Workspaces: [{Name: w, Kind: container}]",
    "Workspaces: [{Name: w, Type: docker}]",
    STEP.format("Scipt: 1"),
    STEP.format("Script: 1, Action: a"),
    STEP.format("Script: 1, Prompt: a"),
    STEP.format("Prompt: a, Parameters: {a: 1}"),
    STEP.format("Script: 1, Agent: a"),
    STEP.format("Workflow: x, Prompt: a"),
    STEP.format("Seconds: soon"),
    STEP.format("Ask: {Question: a, Schema: [1]}"),
    STEP.format("Ask: {Questions: a}"),
    STEP.format("Ask: {Question: a, ExpiresIn: never}"),
    STEP.format("Script: 1, Next: {To: b}"),
    STEP.format("Script: 1, Next: [{Target: s, If: x}]"),
    STEP.format("Script: 1, Each: {Item: [1]}"),
    STEP.format("Script: 1, Each: {Items: [1], As: [a]}"),
    STEP.format("Script: 1, Store: [a]"),
    STEP.format("Script: 1, Timeout: soon"),
    STEP.format("Script: 1, Timeout: -5"),
    STEP.format("Script: [1]"),
    STEP.format("Action: a, Parameters: x"),
    STEP.format("Action: a, Rollback: {Action: b, Parameter: {}}"),
    STEP.format("Action: a, Retry: {Attempts: many}"),
    STEP.format("Action: a, Retry: {MaxAttempts: 3}"),
    STEP.format("Action: a, Catch: {Next: b}"),
    STEP.format("Action: a, Catch: [{Error: x, Goto: b}]"),
    "Workflows: [{Name: w, Steps: [{Script: 1}]}]",
    "Workflows: [{Name: 5x, Steps: []}]",
    "Workflows: [{Name: w}]",
    "Workflows: [{Name: w, Steps: []}]",
    "Workflows: [{Name: w, Steps: x}]",
    "Workflows: [{Name: w, Inputs: n, Steps: [{Name: s, Script: 1}]}]",
    "Workflows: [{Name: w, Inputs: [{Name: n, Required: maybe}], Steps: [{Name: s, Script: 1}]}]",
    "Workflows: [{Name: w, Inputs: [{Nam: n}], Steps: [{Name: s, Script: 1}]}]",
    "Workflows: [{Name: w, Outputs: {a: b}, Steps: [{Name: s, Script: 1}]}]",
    "Workflows: [{Name: w, Bounds: {max_cost: lots}, Steps: [{Name: s, Script: 1}]}]",
    "Workflows: [{Name: w, Bounds: {MaxCost: -1}, Steps: [{Name: s, Script: 1}]}]",
    "Workflows: [{Name: w, Bounds: [MaxCost], Steps: [{Name: s, Script: 1}]}]",
    "Workflows: [{Name: w, Description: [a], Steps: [{Name: s, Script: 1}]}]",
    STEP.format("Script: 1, Workspace: [a]"),
    AGENT.format("Modell: x"),
    AGENT.format("Tools: [{Nam: x}]"),
    AGENT.format("Tools: [{Name: x, Timeout: long}]"),
    AGENT.format("Output: 5"),
    AGENT.format("Output: [a]"),
    AGENT.format("ModelSettings: {Temprature: 1}"),
    AGENT.format("ModelSettings: {MaxTokens: many}"),
    AGENT.format("Bounds: {MaxCost: x}"),
    AGENT.format("Steps: []"),
    "Agents: {a: {Goal: x}}",
    "Steps: [{Name: s, Script: 1}]",
    "Tools: [{Name: x, Timeout: soon}]",
    "MCPServers: [{Name: m}]",
    "MCPServers: [{Name: m, Command: x, Url: 'http://x'}]",
    "MCPServers: [{Name: m, Url: 5}]",
    "Schedules: [{Name: n, Workflow: w, Every: soon}]",
    "Schedules: [{Name: n, Workflow: w, Every: 1h, Cron: '* * * * *'}]",
    "Schedules: [{Name: n, Workflow: w, Cron: '* * * * *', Input: {a: 1}}]",
    "Config: {Durabilty: full}",
    "Config: {Recovery: sometimes}",
    "Workspaces: [{Name: w, Type: dokcer}]",
    "Workspaces: [{Name: w, Image: [x]}]",
    "Approvals: [{Tool: x, Action: perhaps}]",
    "Workflows: [{Name: w, Inputs: [{Name: n, Type: int, Default: x}], Steps: [{Name: s, Script: 1}]}]",
    "Workflows: [{Name: w, Inputs: [{Name: n, Type: Integer, Default: 1.5}], Steps: [{Name: s, Script: 1}]}]",
    "Workflows: [{Name: w, Inputs: [{Name: n, Type: bool, Default: 3}], Steps: [{Name: s, Script: 1}]}]",
    "Workflows: [{Name: w, Inputs: [{Name: n, Type: float, Default: true}], Steps: [{Name: s, Script: 1}]}]",
    "Workflows: [{Name: w, Inputs: [{Name: n, Type: list, Default: x}], Steps: [{Name: s, Script: 1}]}]",
    "Workflows: [{Name: w, Inputs: [{Name: n, Type: string, Default: [a]}], Steps: [{Name: s, Script: 1}]}]",
    "Workflows: [{Name: w, Inputs: [{Name: class}], Steps: [{Name: s, Script: 1}]}]",
    "Workflows: [{Name: '', Steps: [{Name: s, Script: 1}]}]",
    "Workflows: [{Name: w, Bounds: {Edges: {a: 1}}, Steps: [{Name: s, Script: 1}]}]",
    STEP.format("Script: 1, Store: class"),
    STEP.format("Script: 1, Each: {As: x}"),
    STEP.format("Action: a, Each: {Items: [1], Rows: $(inputs.f)}"),
    STEP.format("Type: ask, Script: 1"),
    STEP.format("Type: Prompt, Prompt: a"),
    STEP.format("Type: 5, Prompt: a"),
    STEP.format("Prompt: a, Output: {type: objct}"),
    STEP.format("Ask: {Question: a, Schema: {type: integr}}"),
    AGENT.format("Cache: forever"),
    AGENT.format("Cache: true"),
    AGENT.format("Cache: -5"),
    AGENT.format("Script: 5"),
    AGENT.format("Script: {replies: []}"),
    AGENT.format("ApiKey: sk-123"),
    AGENT.format("ModelSettings: {ToolChoice: {type: sometimes}}"),
    "Schedules: [{Name: n, Workflow: w, Cron: '61 * * * *'}]",
    "Schedules: [{Name: n, Workflow: w, Cron: '0 25 * * *'}]",
    "Schedules: [{Name: n, Workflow: w, Cron: '0 3 * * *', Zone: 5}]",
    "Workspaces: [{Name: w, Kind: docker, Image: x, Memory: 5x}]",
    "Pipelines: [{Name: p}]",
    "Pipelines: [{Name: p, Stages: []}]",
]
RIGHT = [
    "Workflows: [{Name: w, Inputs: [{Name: n, Type: Float, Default: 1}], Steps: [{Name: s, Script: '1'}]}]",
    "Workflows: [{Name: w, Inputs: [{Name: n, Type: text, Default: '5'}], Steps: [{Name: s, Script: '1'}]}]",
    "Workflows: [{Name: w, Inputs: [{Name: n, Type: map, Default: {a: 1}}], Steps: [{Name: s, Script: '1'}]}]",
    "Workflows: [{Name: w, Inputs: [{Name: n, Type: bool, Default: null}], Steps: [{Name: s, Script: '1'}]}]",
    "Workflows: [{Name: w, Bounds: {Edges: {'a -> b': 1}}, Steps: [{Name: s, Script: '1'}]}]",
    STEP.format("Script: '1', Each: {Items: [], As: x}"),
    STEP.format("Prompt: a, Output: {type: [object, 'null']}"),
    AGENT.format("Cache: 7d, Script: {turns: [[a]]}, ApiKey: 'env://KEY'"),
    AGENT.format("Cache: 60, ApiKey: 'Bearer env://KEY'"),
    "Schedules: [{Name: n, Workflow: w, Cron: '5-50/10,59 0,23 l * sat', Zone: Etc/GMT+1}]",
    "Schedules: [{Name: n, Workflow: w, Cron: '*/5 9-17/2 1 jan mon-fri'}]",
    "Workspaces: [{Name: w, Kind: docker, Image: x, Memory: 1.5GB}]",
]


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_nearly_a_mistake_is_accepted_by_both(text):
    read_definitions(text)
    assert faults(data_of(text)) == []


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_found_by_the_schema_and_by_the_reader(text):
    assert faults(data_of(text))
    with pytest.raises(DivebookError):
        read_definitions(text)


def test_the_file_in_the_package_is_current_and_printed():
    schema_file = ROOT / "divebook" / "definitions" / "definitions.schema.json"
    assert schema_file.read_text(encoding="utf-8") == schema_text(), "write it: divebook keys --schema"
    from divebook.cli.main import app

    assert CliRunner().invoke(app, ["keys", "--schema"]).output == schema_text()


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ("Script: 1, Prompt: a", "Script"),
        ("Type: wait, Seconds: 1, Agent: a", "Agent"),
        ("Seconds: 1, Ask: a", "Seconds"),
    ],
)
def test_a_key_of_another_type_of_step_is_the_place_of_the_error(keys, place):
    (fault,) = faults(data_of(STEP.format(keys)))
    assert fault.startswith(f"['Workflows', 0, 'Steps', 0, '{place}']")


def test_the_reader_accepts_the_example_of_every_key():
    """An example on the page of all keys works as it is written. Those of other kinds depend on keys beside them, or
    name other parts.
    """
    from tests.definitions.test_schema_agrees import PARTS as KINDS
    from tests.definitions.test_schema_agrees import changed, is_read

    refused = []
    kinds = [
        "agent",
        "ModelSettings",
        "input",
        "output",
        "tool",
        "document",
        "schedule",
        "Retry",
        "MCP server",
        "Config",
    ]
    for kind in (*kinds, "workflow", "approval rule", "provider", "OAuth", "TokenStore", "ToolConfiguration"):
        text, place = KINDS[kind]
        for key in TABLES[kind].keys:
            if key.example and not key.ignored:
                data = changed(data_of(text), place, key.name, value_typed(key.example))
                if not is_read(data):
                    refused.append(f"{kind}.{key.name}")
    assert refused == []
