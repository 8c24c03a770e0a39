"""A string with half a character is refused where it is defined: no store holds it, and no model is sent it."""

import pytest

from divebook import Agent, Step, Workflow, tool
from divebook.definitions.pipelines import AgentStage, PipelineConfig
from divebook.definitions.resources import (
    AgentDefinition,
    DocumentDefinition,
    ScheduleDefinition,
    ToolDefinition,
    TriggerDefinition,
    WorkspaceDefinition,
)
from divebook.definitions.schema import TABLES
from divebook.definitions.servers import MCPServerDefinition
from divebook.definitions.step import ContentEntry, Each, Edge
from divebook.definitions.table import Text
from divebook.errors import DefinitionError

HALF = "a\ud800b"
NAMED = (
    AgentDefinition,
    ToolDefinition,
    DocumentDefinition,
    TriggerDefinition,
    ScheduleDefinition,
    MCPServerDefinition,
    WorkspaceDefinition,
    PipelineConfig,
)
TEXTS = [
    (table.definition, key)
    for table in TABLES.values()
    for key in table.keys
    if table.definition in NAMED and type(key.kind) is Text and not key.kind.choices and not key.ignored
]


@pytest.mark.parametrize(("definition", "key"), TEXTS, ids=lambda part: getattr(part, "name", part))
def test_every_text_of_a_definition_is_whole(definition, key):
    needed = {each.field: "x" for each in TABLES_OF[definition].keys if each.required} | {"name": "x"}
    needed = {name: text for name, text in needed.items() if name in definition.__dataclass_fields__}
    with pytest.raises(DefinitionError):
        definition(**{**needed, key.field: HALF})


TABLES_OF = {table.definition: table for table in TABLES.values()}


@pytest.mark.parametrize(
    ("define", "place"),
    [
        (lambda: AgentDefinition("x", instructions=HALF), "instructions contains a lone surrogate"),
        (lambda: AgentDefinition("x", goal=HALF), "goal contains a lone"),
        (lambda: AgentDefinition("x", system_prompt=HALF), "system_prompt contains a lone"),
        (lambda: AgentDefinition("x", tools=("a", HALF)), r"tools\[1\] contains a lone"),
        (lambda: AgentDefinition("x", context=(ContentEntry(text=HALF),)), r"context\[0\].text contains a lone"),
        (lambda: Agent("x", instructions=HALF, model="scripted"), "instructions contains a lone"),
        (lambda: Agent("x", model="scripted", tools=[tool(description=HALF)(_nothing)]), "description of"),
        (lambda: ToolDefinition("x", parameters={"a": [HALF]}), r"parameters.a\[0\] contains a lone"),
        (lambda: ToolDefinition("x", parameters={HALF: 1}), "parameters"),
        (lambda: MCPServerDefinition("a", "stdio", command="c", env={"A": HALF}), "env.A contains a lone"),
        (lambda: PipelineConfig("p", [AgentStage("a", prompt=HALF)]), r"agents\[0\].prompt contains a lone"),
        (lambda: Workflow("w", [Step("a", prompt=HALF)]), r"steps\[0\].prompt"),
        (lambda: Workflow("w", [Step("a", script="1", each=Each([HALF]))]), "items"),
        (lambda: Workflow("w", [Step("a", script="1", next=[Edge("a", HALF)])]), "condition"),
    ],
)
def test_the_error_names_the_place(define, place):
    with pytest.raises(DefinitionError, match=place):
        define()


def _nothing():
    """Do nothing."""
