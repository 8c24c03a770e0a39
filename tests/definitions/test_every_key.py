"""No key is silently ignored: each is read by something while it acts, or is refused where it stands."""

import sys
from pathlib import Path

import pytest

import divebook
from divebook.agents import Agent, ScriptedModel
from divebook.config import Sources, resolve_content
from divebook.definitions import schema
from divebook.definitions.reader import definitions_from, read_definitions
from divebook.definitions.table import Flag, Many, MappingOf, Number, One, Text, Texts
from divebook.documents import FileDocuments
from divebook.environments.environment import Environment
from divebook.errors import DefinitionError
from divebook.stores import MemoryStore
from tests.definitions.test_schema import TABLES

PACKAGE = Path(divebook.__file__).parent
COPYING = {"stored_form", "table", "fingerprint", "writer", "makers", "reader", "merge", "rules", "graph"}
"""Modules of `divebook.definitions` that look at every field, or check it, and do nothing by it."""

FOR_PEOPLE = {"Description", "Version", "Format"}
"""Keys whose only effect is that people and pages read them."""

OF_PIPELINES = {
    ("stage", "Name"): ("pipeline/progress.py", "name"),
    ("stage", "Requires"): ("pipeline/progress.py", "requires"),
    ("stage", "After"): ("pipeline/progress.py", "after"),
    ("stage", "JoinStrategy"): ("pipeline/progress.py", "join_strategy"),
    ("stage", "ErrorNext"): ("pipeline/progress.py", "error_next"),
    ("stage", "StageOrder"): ("pipeline/pipeline.py", "stage_order"),
    ("stage", "MaxTokens"): ("pipeline/pipeline.py", "max_tokens"),
    ("stage", "HasLLM"): ("pipeline/stages.py", "has_llm"),
    ("stage", "HasTools"): ("pipeline/stages.py", "has_tools"),
    ("stage", "ToolAccess"): ("pipeline/stages.py", "tool_access"),
    ("stage", "Agent"): ("pipeline/stages.py", "model_role"),
    ("stage", "Prompt"): ("pipeline/stages.py", "prompt"),
    ("stage", "PromptKey"): ("pipeline/stages.py", "prompt_key"),
    ("stage", "Temperature"): ("pipeline/stages.py", "temperature"),
    ("stage", "MaxRetries"): ("pipeline/stages.py", "max_retries"),
    ("stage", "AllowedTools"): ("definitions/pipelines.py", "allowed_tools"),
    ("stage", "Routes"): ("definitions/pipelines.py", "routing_rules"),
    ("stage", "Next"): ("definitions/pipelines.py", "default_next"),
    ("stage", "TimeoutSeconds"): ("definitions/pipelines.py", "timeout_seconds"),
    ("stage", "OutputKey"): ("pipeline/stages.py", "output_key"),
    ("stage", "RequiredOutputFields"): ("pipeline/stages.py", "required_output_fields"),
    ("stage", "MaxVisits"): ("pipeline/progress.py", "max_visits"),
    ("pipeline", "Name"): ("pipeline/progress.py", "name"),
    ("pipeline", "Stages"): ("pipeline/progress.py", "agents"),
    ("pipeline", "Mode"): ("pipeline/pipeline.py", "default_run_mode"),
    ("pipeline", "MaxLLMCalls"): ("pipeline/pipeline.py", "max_llm_calls"),
    ("pipeline", "OnExhausted"): ("pipeline/pipeline.py", "on_exhausted"),
    ("pipeline", "MaxIterations"): ("pipeline/progress.py", "max_iterations"),
    ("pipeline", "MaxAgentHops"): ("pipeline/progress.py", "max_agent_hops"),
    ("pipeline", "OnExpired"): ("pipeline/progress.py", "on_expired"),
    ("pipeline", "TimeoutSeconds"): ("definitions/pipelines.py", "default_timeout_seconds"),
    ("pipeline", "EdgeLimits"): ("definitions/pipelines.py", "edge_limits"),
    ("pipeline", "ClarificationResumeStage"): ("definitions/pipelines.py", "clarification_resume_stage"),
    ("pipeline", "ConfirmationResumeStage"): ("definitions/pipelines.py", "confirmation_resume_stage"),
    ("pipeline", "AgentReviewResumeStage"): ("definitions/pipelines.py", "agent_review_resume_stage"),
    ("pipeline", "Prompts"): ("pipeline/stages.py", "prompts"),
    ("pipeline", "ResumeCheckpoints"): ("pipeline/stages.py", "resume_checkpoints"),
    ("route", "Condition"): ("definitions/pipelines.py", "condition"),
    ("route", "Target"): ("definitions/pipelines.py", "target"),
    ("route", "Value"): ("pipeline/stages.py", "value"),
    ("edge limit", "Source"): ("definitions/pipelines.py", "source"),
    ("edge limit", "Target"): ("definitions/pipelines.py", "target"),
    ("edge limit", "MaxCount"): ("definitions/pipelines.py", "max_count"),
    ("definition", "Pipelines"): ("definitions/reader.py", "pipelines"),
}
RULE_KEYS = ("Tool", "Agent", "Server", "Arguments", "When", "Outcome", "Reason")
READ_BY = {
    **OF_PIPELINES,
    ("Config", "Recover"): ("config/answers.py", "recover"),
    ("Config", "NotebookData"): ("notebook/run_view.py", "notebook_data"),
    ("content entry", "Path"): ("config/content.py", "path"),
    ("content entry", "URL"): ("config/content.py", "url"),
    ("content entry", "Document"): ("config/content.py", "document"),
    ("content entry", "DynamicFrom"): ("steps/prompt.py", "dynamic_from"),
    ("Each", "OnItemError"): ("runtime/step.py", "on_item_error"),
    ("workflow", "ContinueOnFailure"): ("engine/decide.py", "continue_on_failure"),
    ("agent", "IsSupervisor"): ("environments/registry.py", "is_supervisor"),
    ("agent", "Subordinates"): ("environments/registry.py", "subordinates"),
    ("output", "Type"): ("notebook/line_completion.py", "label"),  # for people, and completed as they type
    ("workflow", "Output"): ("definitions/schema.py", 'pop("output"'),  # becomes one of the Outputs
    ("definition", "Schedules"): ("config/schedules.py", "schedules"),
    **{
        ("schedule", name): ("config/schedules.py", name.lower())
        for name in ("Name", "Cron", "Workflow", "Enabled", "Zone", "Inputs")
    },
    ("provider", "Name"): ("definitions/definition.py", "name"),
    ("Config", "Approvals"): ("environments/registry.py", "approvals"),
    ("Config", "ConfirmationMode"): ("environments/registry.py", "confirmation_mode"),
    ("agent", "Approvals"): ("environments/registry.py", "approvals"),
    **{("approval rule", name): ("engine/approvals.py", name.lower()) for name in RULE_KEYS},
    ("approval rule", "Expires"): ("engine/approvals.py", "expires_us"),
    ("definition", "MCPServers"): ("environments/registry.py", "mcp_servers"),
    ("definition", "Workspaces"): ("environments/registry.py", "workspaces"),
    **{(what, "Workspace"): ("runtime/calls.py", "workspace") for what in ("step", "workflow")},
    ("agent", "Workspace"): ("environments/registry.py", "workspace"),
    **{("workspace", name): ("definitions/resources.py", name.lower()) for name in ("Name", "Kind")},
    **{("workspace", name): ("environments/registry.py", name.lower()) for name in ("Folder", "Shell")},
    **{("workspace", name): ("environments/settings.py", name.lower()) for name in ("Timeout", "Environ", "Secrets")},
    **{
        ("workspace", name): ("environments/settings.py", name.lower())
        for name in ("Python", "Packages", "Image", "Hosts", "Memory", "Processors")
    },
    **{("workspace", name): ("runtime/workspaces.py", name.lower()) for name in ("Exclude", "Snapshots")},
    ("Rollback", "Retry"): ("definitions/step.py", "rollback.retry"),
    ("Rollback", "Action"): ("runtime/runner.py", "rollback.action"),
    ("workspace", "InPlace"): ("runtime/workspaces.py", "in_place"),
    ("agent", "Servers"): ("environments/registry.py", "servers"),
    **{("MCP server", name): ("tools/mcp/connection.py", name.lower()) for name in ("Type", "Command", "URL", "Args")},
    **{("MCP server", name): ("tools/mcp/connection.py", name.lower()) for name in ("Env", "Headers", "Timeout")},
    ("MCP server", "AuthorizationToken"): ("tools/mcp/connection.py", "authorization_token"),
    ("MCP server", "Name"): ("tools/mcp/servers.py", "name"),
    ("MCP server", "OAuth"): ("tools/mcp/oauth.py", "oauth"),
    ("MCP server", "ToolConfiguration"): ("tools/mcp/servers.py", "tool_configuration"),
    ("MCP server", "Sampling"): ("tools/mcp/servers.py", "sampling"),
    ("MCP server", "AsksWithinCalls"): ("tools/mcp/servers.py", "asks_within_calls"),
    ("MCP server", "Trusted"): ("tools/mcp/calls.py", "trusted"),
    ("OAuth", "ClientID"): ("tools/mcp/oauth.py", "client_id"),
    ("OAuth", "ClientSecret"): ("tools/mcp/oauth.py", "client_secret"),
    ("OAuth", "RedirectURI"): ("tools/mcp/oauth.py", "redirect_uri"),
    ("OAuth", "Scopes"): ("tools/mcp/oauth.py", "scopes"),
    ("OAuth", "PKCEEnabled"): ("definitions/servers.py", "pkce_enabled"),
    ("OAuth", "TokenStore"): ("tools/mcp/oauth.py", "token_store"),
    ("TokenStore", "Type"): ("tools/mcp/oauth.py", "type"),
    ("TokenStore", "Path"): ("tools/mcp/oauth.py", "path"),
    ("ToolConfiguration", "Enabled"): ("tools/mcp/servers.py", "enabled"),
    ("ToolConfiguration", "AllowedTools"): ("definitions/servers.py", "allowed_tools"),
    ("ToolConfiguration", "ApprovalMode"): ("definitions/servers.py", "approval_mode"),
    ("ToolConfiguration", "ApprovalFilter"): ("definitions/servers.py", "approval_filter"),
    ("ApprovalFilter", "Always"): ("definitions/servers.py", "always"),
    ("ApprovalFilter", "Never"): ("definitions/servers.py", "never"),
}
"""What only a failure, a session, a call that is judged, or another way of loading reads: the file, and the field."""

RICH = """
Name: all
Config:
  DefaultProvider: openai
  DefaultModel: gpt-5-mini
  DefaultWorkflow: main
  Durability: full
  Recover: "off"
  NotebookData: "off"
  Providers: [{Name: openai, RequestHeaders: {Team: blue}}]
Documents: [{Name: notes, Path: notes.md}]
Tools:
  - {Name: list_documents, Enabled: true, Parameters: {max_entries: 5}, Approval: false, Timeout: 9,
     Retry: {Attempts: 2}, Limit: 3, Concurrency: 2, Most: 500}
Agents:
  - Name: writer
    Goal: Write
    Instructions: Be brief
    IsSupervisor: true
    Provider: openai
    Model: gpt-5-mini
    ResponseTimeout: 30s
    Retry: {Attempts: 2, Seconds: 0, Factor: 1, MaxSeconds: 1, Jitter: 0, Errors: [ModelServerError]}
    DateAwareness: false
    SystemPrompt: "You are ${agent.name}"
    ModelSettings:
      {ToolChoice: {type: auto}, Temperature: 0.5, PresencePenalty: 0, FrequencyPenalty: 0, MaxTokens: 9,
       ReasoningEffort: low}
    Tools: [list_documents]
    ToolConfig: {list_documents: {MaxEntries: 3}}
    Context: [{Text: context}]
Workflows:
  - Name: main
    Inputs: [{Name: topic, Type: string, Default: x}, {Name: other, Required: false}]
    Outputs: [{Name: written, Type: string, Default: none}]
    Triggers: [{Name: monday}]
    ContinueOnFailure: true
    Bounds: {max_seconds: 90}
    Steps:
      - {Name: write, Agent: writer, Prompt: "${inputs.topic}", Content: [{Text: a}, {Dynamic: "'b'"}], Store: written}
      - {Name: loop, Script: item, Each: {Items: [1, 2], As: item, Parallel: 2, OnItemError: keep}, Timeout: 9}
      - {Name: act, Action: Print, Parameters: {Message: hi}, Retry: {Attempts: 2},
         Rollback: {Action: Print, Parameters: {Message: undone}, Retry: {Attempts: 2}}}
      - Name: fail
        Script: error("no")
        Retry: {Attempts: 2, Seconds: 0}
        Catch: [{Step: after, Errors: [ScriptError], Store: why}]
      - {Name: after, Script: "1", Next: [{Step: child, Condition: "true"}, {Step: nap}]}
      - {Name: child, Workflow: sub, Inputs: {n: 1}, Next: [{Step: both}]}
      - {Name: nap, Seconds: 0, Next: [{Step: both}]}
      - {Name: both, Script: "2", Join: true}
      - Name: ask
        Ask:
          {Question: q, Optional: false, Default: yes, Kind: clarification, Message: m, Data: {a: 1}, ExpiresIn: 99,
           Schema: {type: string}}
      - {Name: wait, Signal: go, End: true}
  - Name: sub
    Inputs: [{Name: n}]
    Steps: [{Name: only, Script: inputs.n}]
"""


@pytest.fixture
def read_fields(monkeypatch):
    """Note every field of a definition that something outside `COPYING` looks at."""
    seen = set()

    def spying(record):
        plain = record.__getattribute__

        def look(self, name):
            where = Path(sys._getframe(1).f_code.co_filename)
            if where.is_relative_to(PACKAGE) and where.stem not in COPYING:
                seen.add((record, name))
            return plain(self, name)

        monkeypatch.setattr(record, "__getattribute__", look)

    for _, record in TABLES:
        spying(record)
    return seen


def acting(table):
    """Return the keys that have an effect, with those below them."""
    found = set()
    for key in table.keys:
        if not key.ignored:
            found.add((table.label, key.name))
            found |= acting(key.kind.table) if isinstance(key.kind, One | Many) else set()
    return found


EVERY = {(table.label, key.name) for table, _ in TABLES for key in table.keys}
REFUSED = EVERY - acting(schema.DEFINITIONS)


def test_every_key_is_read_or_refused(read_fields, tmp_path):
    (tmp_path / "notes.md").write_text("notes")
    with MemoryStore() as store:
        environment = Environment(store=store, documents=FileDocuments(tmp_path), printer=lambda text: None)
        definitions = resolve_content(read_definitions(RICH), Sources(tmp_path))
        environment.define(definitions)
        writer = environment.internals.registry.agent("writer")
        environment.add_agent(Agent(writer.definition, model=ScriptedModel(["text"])), replace=True)
        environment.schedules.fire("monday")
        execution = environment.start(environment.internals.registry.default_workflow).wait(30)
        assert execution.status == "waiting", execution.error
        execution.answer(execution.open_questions[0].id, "yes")
        assert execution.signal("go").wait(30).status == "completed", execution.error
    expected = {(table.label, key.name): (record, key.field) for table, record in TABLES for key in table.keys}
    unread = {place for place, found in expected.items() if found not in read_fields and place[1] not in FOR_PEOPLE}
    unread -= {place for place, (file, name) in READ_BY.items() if f".{name}" in (PACKAGE / file).read_text()}
    assert unread - REFUSED == set()


@pytest.mark.parametrize("place", sorted(REFUSED), ids="/".join)
def test_what_is_refused_is_read_by_nothing_and_has_a_reason(place):
    label, name = place
    [key] = [key for table, _ in TABLES if table.label == label for key in table.keys if key.name == name]
    assert key.ignored


STEPS = [{"Name": "s", "Script": "1"}]
AROUND = {
    "definition": lambda entry: entry,
    "Config": lambda entry: {"Config": entry},
    "provider": lambda entry: {"Config": {"Providers": [{"Name": "openai", **entry}]}},
    "document": lambda entry: {"Documents": [{"Name": "d", **entry}]},
    "agent": lambda entry: {"Agents": [{"Name": "a", **entry}]},
    "ModelSettings": lambda entry: {"Agents": [{"Name": "a", "ModelSettings": entry}]},
    "OAuth": lambda entry: {"MCPServers": [{"Name": "m", "Type": "http", "URL": "https://m", "OAuth": entry}]},
    "input": lambda entry: {"Workflows": [{"Name": "w", "Steps": STEPS, "Inputs": [{"Name": "i", **entry}]}]},
    "output": lambda entry: {"Workflows": [{"Name": "w", "Steps": STEPS, "Output": {"Name": "o", **entry}}]},
    "trigger": lambda entry: {"Workflows": [{"Name": "w", "Steps": STEPS, "Triggers": [{"Name": "t", **entry}]}]},
}
"""Around a mapping of each name that has keys without effect: the rest of a definition."""
IGNORED = [(table.label, key) for table, _ in TABLES for key in table.keys if key.ignored]


def something(kind):
    """Return a value that a key of that kind takes."""
    if isinstance(kind, Text):
        return kind.choices[0] if kind.choices else "x"
    samples = {Flag: True, Number: 1, Texts: ["x"], MappingOf: {"x": "y"}, Many: [{"Name": "x"}]}
    return samples[type(kind)]


@pytest.mark.parametrize(("label", "key"), IGNORED, ids=lambda part: getattr(part, "name", part))
def test_a_key_without_effect_is_refused_here_and_a_warning_in_the_old_dialect(label, key):
    definition = {"Workflows": [{"Name": "w", "Steps": STEPS}], **AROUND[label]({key.name: something(key.kind)})}
    message = f"{key.name} has no effect"
    with pytest.raises(DefinitionError) as refused:
        definitions_from(definition)
    assert [message in problem.message for problem in refused.value.problems].count(True) == 1
    warned = definitions_from(definition, dialect="dive").warnings
    assert [problem.severity for problem in warned if message in problem.message] == ["warning"]
