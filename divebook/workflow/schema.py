"""Everything a definition can say: one table for each kind of mapping, whose keys are the fields of its definition."""

from __future__ import annotations

from divebook.workflow import makers
from divebook.workflow.approvals import ApprovalRule
from divebook.workflow.ask import Ask
from divebook.workflow.content import ContentEntry
from divebook.workflow.definition import Definitions, InputDefinition, OutputDefinition, Workflow
from divebook.workflow.pipelines import AgentStage, EdgeLimit, PipelineConfig, RoutingRule
from divebook.workflow.policies import Catch, Retry, Rollback
from divebook.workflow.resources import (
    AgentDefinition,
    Config,
    DocumentDefinition,
    ModelSettings,
    ProviderSettings,
    ScheduleDefinition,
    ToolDefinition,
    TriggerDefinition,
)
from divebook.workflow.servers import (
    ApprovalFilterDefinition,
    MCPServerDefinition,
    OAuthDefinition,
    TokenStoreDefinition,
    ToolConfigurationDefinition,
)
from divebook.workflow.step import Each, Edge, Step
from divebook.workflow.table import Key, One, Table
from divebook.workflow.workspaces import WorkspaceDefinition

CONTENT = Table("content entry", ContentEntry, makers.content_entry, example="{Text: ...}")
EDGE = Table(
    "Next entry",
    Edge,
    example="{Step: name}",
    advice={"If": "write Condition", "When": "write Condition", "To": "write Step"},
)
EACH = Table("Each", Each, example="{Items: [...], As: name}", advice={"In": "write Items", "Array": "write Items"})
RETRY = Table(
    "Retry",
    Retry,
    example="{Attempts: 3}",
    advice={
        "Delay": "write Seconds",
        "Backoff": "write Factor",
        "Times": "write Attempts",
        "MaxAttempts": "write Attempts",
    },
)
ROLLBACK = Table("Rollback", Rollback, example="{Action: name}", text_key="Action", advice={"Step": "write Action"})
CATCH = Table("Catch", Catch, example="{Step: name}", advice={"Next": "write Step", "Error": "write Errors"})
ASK = Table(
    "Ask",
    Ask,
    example="{Question: ...}",
    text_key="Question",
    advice={
        "Type": "write Kind",
        "Prompt": "write Question",
        "Timeout": "write ExpiresIn",
        "Expires": "write ExpiresIn",
    },
)
STEP = Table(
    "step",
    Step,
    makers.step,
    example="{Name: first, Prompt: ...}",
    advice={
        "OutputFormat": "write Output: a JSON schema of the answer",
        "With": "write Parameters",
        "Task": "write Prompt",
        "Var": "write Store",
    },
)
INPUT = Table("input", InputDefinition, example="{Name: topic}")
OUTPUT = Table("output", OutputDefinition, makers.output, example="{Name: report}")
TRIGGER = Table("trigger", TriggerDefinition, makers.trigger)
WORKFLOW = Table(
    "workflow",
    Workflow,
    makers.workflow,
    example="{Name: main, Steps: [{Name: first, Prompt: ...}]}",
    advice={
        "Retry": "write it into a step",
        "Catch": "write it into a step",
        "Start": "the first listed step is the start",
    },
    more=(Key("Its single output.", "Output", "output", One(OutputDefinition, ", or Outputs for a list")),),
)
ROUTING_RULE = Table("route", RoutingRule, example="{Condition: verdict, Value: loop_back, Target: draft}")
EDGE_LIMIT = Table("edge limit", EdgeLimit, example="{Source: check, Target: draft, MaxCount: 2}")
STAGE = Table(
    "stage",
    AgentStage,
    makers.stage,
    example="{Name: draft, Agent: writer, Next: check}",
    advice={"Steps": "stages do their work with Agent; steps belong to Workflows", "Order": "write StageOrder"},
)
PIPELINE = Table(
    "pipeline",
    PipelineConfig,
    makers.pipeline,
    example="{Name: review, Stages: [{Name: draft, Agent: writer}]}",
    advice={"Agents": "write Stages", "Steps": "write Stages"},
)
APPROVAL_RULE = Table(
    "approval rule",
    ApprovalRule,
    example="{Tool: fetch, Outcome: allow}",
    advice={"Name": "write Tool", "Mode": "write Outcome", "Parameters": "write Arguments"},
)
MODEL_SETTINGS = Table("ModelSettings", ModelSettings)
AGENT = Table(
    "agent",
    AgentDefinition,
    makers.agent,
    example="{Name: editor, Goal: ...}",
    advice={
        "Backstory": "write it into Instructions",
        "Role": "write it into Goal",
        "Description": "write it into Goal",
        "Temperature": "write it under ModelSettings",
        "MaxTokens": "write it under ModelSettings",
    },
)
TOOL = Table("tool", ToolDefinition, example="{Name: read_file}")
DOCUMENT = Table("document", DocumentDefinition)
SCHEDULE = Table("schedule", ScheduleDefinition)
TOKEN_STORE = Table("TokenStore", TokenStoreDefinition)
OAUTH = Table("OAuth", OAuthDefinition)
APPROVAL_FILTER = Table("ApprovalFilter", ApprovalFilterDefinition)
TOOL_CONFIGURATION = Table("ToolConfiguration", ToolConfigurationDefinition)
MCP_SERVER = Table(
    "MCP server",
    MCPServerDefinition,
    makers.mcp_server,
    example="{Name: files, Type: stdio, Command: mcp-server-git}",
)
WORKSPACE = Table(
    "workspace",
    WorkspaceDefinition,
    example="{Name: app, Folder: project}",
    advice={"Type": "write Kind", "Path": "write Folder", "Env": "write Environ"},
)
PROVIDER = Table("provider", ProviderSettings)
CONFIG = Table("Config", Config, makers.config)
DEFINITIONS = Table(
    "definition",
    Definitions,
    makers.definitions,
    advice={
        "Steps": "steps belong under Workflows: [{Name: ..., Steps: [...]}]",
        "Environment": "write its Name, Description and Config at the top",
        "Workflow": "write Workflows: [{Name: ..., Steps: [...]}]",
        "Agent": "write Agents: [{Name: ..., Goal: ...}]",
    },
)
