"""The table of keys and the dataclasses tell the same story."""

from dataclasses import fields

import pytest

from divebook.workflow import schema
from divebook.workflow.ask import Ask
from divebook.workflow.definition import (
    AgentDefinition,
    ApprovalFilterDefinition,
    Config,
    ContentEntry,
    Definitions,
    DocumentDefinition,
    Each,
    Edge,
    InputDefinition,
    MCPServerDefinition,
    ModelSettings,
    OAuthDefinition,
    OutputDefinition,
    ProviderSettings,
    ScheduleDefinition,
    Step,
    TokenStoreDefinition,
    ToolConfigurationDefinition,
    ToolDefinition,
    TriggerDefinition,
    Workflow,
)
from divebook.workflow.policies import Catch, Retry
from divebook.workflow.table import snake_case

TABLES = [
    (schema.CONTENT, ContentEntry),
    (schema.EDGE, Edge),
    (schema.EACH, Each),
    (schema.RETRY, Retry),
    (schema.CATCH, Catch),
    (schema.ASK, Ask),
    (schema.STEP, Step),
    (schema.INPUT, InputDefinition),
    (schema.OUTPUT, OutputDefinition),
    (schema.TRIGGER, TriggerDefinition),
    (schema.WORKFLOW, Workflow),
    (schema.MODEL_SETTINGS, ModelSettings),
    (schema.AGENT, AgentDefinition),
    (schema.TOOL, ToolDefinition),
    (schema.DOCUMENT, DocumentDefinition),
    (schema.SCHEDULE, ScheduleDefinition),
    (schema.TOKEN_STORE, TokenStoreDefinition),
    (schema.OAUTH, OAuthDefinition),
    (schema.APPROVAL_FILTER, ApprovalFilterDefinition),
    (schema.TOOL_CONFIGURATION, ToolConfigurationDefinition),
    (schema.MCP_SERVER, MCPServerDefinition),
    (schema.PROVIDER, ProviderSettings),
    (schema.CONFIG, Config),
    (schema.DEFINITIONS, Definitions),
]
NOT_WRITTEN = {"has_default", "blocks", "dialect", "source", "warnings", "positions"}


@pytest.mark.parametrize(("table", "record"), TABLES, ids=lambda value: getattr(value, "label", None))
def test_every_field_has_a_key(table, record):
    written = {entry.name for entry in fields(record) if entry.init} - NOT_WRITTEN
    assert {key.field for key in table.keys} - {"output"} == written


def test_every_table_is_covered():
    tables = {id(value) for value in vars(schema).values() if isinstance(value, schema.Table)}
    assert tables == {id(table) for table, _ in TABLES}


@pytest.mark.parametrize(
    ("key", "spelling"),
    [
        ("ResponseTimeout", "response_timeout"),
        ("MCPServers", "mcp_servers"),
        ("URL", "url"),
        ("ID", "id"),
        ("PKCEEnabled", "pkce_enabled"),
        ("RedirectURI", "redirect_uri"),
        ("OAuth", "oauth"),
        ("DynamicFrom", "dynamic_from"),
    ],
)
def test_the_other_spelling_of_a_key(key, spelling):
    assert snake_case(key) == spelling
