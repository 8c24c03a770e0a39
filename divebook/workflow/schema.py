"""The table of everything a definition can say: every key, where it goes, what it holds."""

from __future__ import annotations

from divebook.workflow import makers
from divebook.workflow.definition import (
    ApprovalFilterDefinition,
    DocumentDefinition,
    Each,
    Edge,
    InputDefinition,
    ModelSettings,
    OAuthDefinition,
    ProviderSettings,
    ScheduleDefinition,
    TokenStoreDefinition,
    ToolConfigurationDefinition,
    ToolDefinition,
)
from divebook.workflow.kinds import (
    Anything,
    Flag,
    FreeMapping,
    Headers,
    InputType,
    Many,
    Number,
    One,
    ResponseTimeout,
    Seconds,
    Text,
    TextMapping,
    Texts,
)
from divebook.workflow.policies import Catch
from divebook.workflow.resources import CONFIRMATION_MODES, DURABILITIES, LOG_LEVELS, NOTEBOOK_DATA, RECOVERIES
from divebook.workflow.step import ON_ITEM_ERROR
from divebook.workflow.table import Key, Table, record

TEXT, TRIMMED, FLAG, ANYTHING, FREE, TEXTS = Text(), Text(trimmed=True), Flag(), Anything(), FreeMapping(), Texts()
NO_TOOLS = "agents have no tools yet; let an action step do it, and hand its result to the prompt"
NO_FEATURES = "no feature of a provider can be named; say it in RequestHeaders if the provider takes a header"
NO_CACHING = "what a provider caches is its own choice"
BY_NAME = "it is known by its Name"
BY_TRIGGER = "a trigger is fired by its Name: environment.fire(name)"
NUMBER, WHOLE, HEADERS, TEXT_MAPPING = Number(), Number(whole=True), Headers(), TextMapping()
PROMPT = Text(hint="write the text right after Prompt: (Prompt: {Text, Output} is an old form; Output is now Store)")

CONTENT = Table(
    "content entry",
    (
        Key("Text", "text", TEXT),
        Key("Path", "path", TEXT),
        Key("URL", "url", TEXT),
        Key("Document", "document", TEXT),
        Key("Dynamic", "dynamic", TEXT),
        Key("DynamicFrom", "dynamic_from", TEXT),
    ),
    makers.content_entry,
)

EDGE = Table(
    "Next entry",
    (
        Key("Step", "step", TEXT, required="Next entry without a step"),
        Key("Condition", "condition", TEXT),
    ),
    record(Edge),
    {"If": "write Condition", "When": "write Condition", "To": "write Step"},
)

EACH = Table(
    "Each",
    (
        Key("Items", "items", ANYTHING),
        Key("As", "as_", TEXT),
        Key("Parallel", "parallel", WHOLE, extension=True),
        Key(
            "OnItemError",
            "on_item_error",
            Text(choices=ON_ITEM_ERROR, complaint="invalid OnItemError: {}"),
            extension=True,
        ),
    ),
    record(Each),
    {"In": "write Items", "Array": "write Items"},
)

RETRY = Table(
    "Retry",
    (
        Key("Attempts", "attempts", WHOLE),
        Key("Seconds", "seconds", NUMBER),
        Key("Factor", "factor", NUMBER),
        Key("MaxSeconds", "max_seconds", NUMBER),
        Key("Jitter", "jitter", NUMBER),
        Key("Errors", "errors", TEXTS),
    ),
    makers.retry,
    {"Delay": "write Seconds", "Backoff": "write Factor", "Times": "write Attempts", "MaxAttempts": "write Attempts"},
)

CATCH = Table(
    "Catch",
    (
        Key("Step", "step", TEXT, required="Catch needs a Step to go to"),
        Key("Errors", "errors", TEXTS),
        Key("Store", "store", TEXT),
    ),
    record(Catch),
    {"Next": "write Step", "Error": "write Errors"},
)

ASK = Table(
    "Ask",
    (
        Key("Question", "question", TEXT, required="Ask needs a Question"),
        Key("Kind", "kind", TEXT),
        Key("Message", "message", TEXT),
        Key("Data", "data", FREE),
        Key("Schema", "schema", FREE),
        Key("ExpiresIn", "expires_in", Seconds()),
        Key("Default", "default", ANYTHING),
        Key("Optional", "optional", FLAG),
    ),
    makers.ask,
    {"Type": "write Kind", "Prompt": "write Question", "Timeout": "write ExpiresIn", "Expires": "write ExpiresIn"},
)

STEP = Table(
    "step",
    (
        Key("Name", "name", TEXT),
        Key("Type", "type", TEXT),
        Key("Agent", "agent", TEXT),
        Key("Prompt", "prompt", PROMPT),
        Key("Script", "script", TEXT),
        Key("Action", "action", TEXT),
        Key("Parameters", "parameters", FREE),
        Key("Store", "store", TEXT),
        Key("Each", "each", One(lambda: EACH, "write Each: {Items: [...], As: name}")),
        Key("Next", "edges", Many(lambda: EDGE, "write Next: [{Step: name}]")),
        Key("End", "end", FLAG),
        Key("Seconds", "seconds", Seconds()),
        Key("Content", "content", Many(lambda: CONTENT, "write Content: [{Text: ...}]")),
        Key("Join", "join", FLAG, extension=True),
        Key("Retry", "retry", One(lambda: RETRY, "write Retry: {Attempts: 3}"), extension=True),
        Key("Catch", "catch", Many(lambda: CATCH, "write Catch: [{Step: name}]"), extension=True),
        Key("Ask", "ask", One(lambda: ASK, "write Ask: {Question: ...}", text_key="Question"), extension=True),
        Key("Signal", "signal", TEXT, extension=True),
        Key("Timeout", "timeout", NUMBER, extension=True),
        Key("Workflow", "workflow", TEXT, extension=True),
        Key("Inputs", "inputs", FREE, extension=True),
    ),
    makers.step,
    {
        "Output": "write Store: name",
        "OutputFormat": "say in the prompt what the answer should look like",
        "With": "write Parameters",
        "Task": "write Prompt",
        "Var": "write Store",
    },
)

INPUT = Table(
    "input",
    (
        Key("Name", "name", TEXT, required="input name is required"),
        Key("Type", "type", InputType()),
        Key("Description", "description", TEXT),
        Key("Required", "required", FLAG),
        Key("Default", "default", ANYTHING),
        Key("As", "as_", TEXT, ignored="an input is known by its Name"),
    ),
    record(InputDefinition),
)

OUTPUT = Table(
    "output",
    (
        Key("Name", "name", TEXT),
        Key("Type", "type", TEXT),
        Key("Description", "description", TEXT),
        Key("Format", "format", TEXT),
        Key("Default", "default", ANYTHING),
        Key("Document", "document", TEXT, ignored="write it with a Document.Write step"),
    ),
    makers.output,
)

TRIGGER = Table(
    "trigger",
    (
        Key("Name", "name", TEXT),
        Key("Type", "type", TEXT, ignored=BY_TRIGGER),
        Key("Config", "config", FREE, ignored=BY_TRIGGER),
    ),
    makers.trigger,
)

WORKFLOW = Table(
    "workflow",
    (
        Key("Name", "name", TEXT),
        Key("Description", "description", TEXT),
        Key("Inputs", "inputs", Many(lambda: INPUT, "write Inputs: [{Name: topic}]")),
        Key("Output", "output", One(lambda: OUTPUT, "write Output: {Name: report}, or Outputs for a list")),
        Key("Outputs", "outputs", Many(lambda: OUTPUT, "write Outputs: [{Name: report}]"), extension=True),
        Key("Steps", "steps", Many(lambda: STEP, "write Steps: [{Name: first, Prompt: ...}]")),
        Key("Triggers", "triggers", Many(lambda: TRIGGER)),
        Key("ContinueOnFailure", "continue_on_failure", FLAG, extension=True),
        Key("Bounds", "bounds", FREE, extension=True),
    ),
    makers.workflow,
    {"Retry": "write it into a step", "Catch": "write it into a step", "Start": "the first listed step is the start"},
)

MODEL_SETTINGS = Table(
    "ModelSettings",
    (
        Key("Temperature", "temperature", NUMBER),
        Key("PresencePenalty", "presence_penalty", NUMBER),
        Key("FrequencyPenalty", "frequency_penalty", NUMBER),
        Key("ReasoningBudget", "reasoning_budget", WHOLE, ignored="write ReasoningEffort"),
        Key("ReasoningEffort", "reasoning_effort", TEXT),
        Key("MaxTokens", "max_tokens", WHOLE),
        Key("ToolChoice", "tool_choice", FREE, ignored=NO_TOOLS),
        Key("ParallelToolCalls", "parallel_tool_calls", FLAG),
        Key("Features", "features", TEXTS, ignored=NO_FEATURES),
        Key("RequestHeaders", "request_headers", HEADERS),
        Key("Caching", "caching", FLAG, ignored=NO_CACHING),
    ),
    record(ModelSettings),
)

AGENT = Table(
    "agent",
    (
        Key("Name", "name", TRIMMED),
        Key("Goal", "goal", TRIMMED),
        Key("Instructions", "instructions", TRIMMED),
        Key("IsSupervisor", "is_supervisor", FLAG),
        Key(
            "Subordinates",
            "subordinates",
            TEXTS,
            ignored="agents do not hand work to each other yet; write a step for each",
        ),
        Key("Provider", "provider", TEXT),
        Key("Model", "model", TEXT),
        Key("Tools", "tools", TEXTS, ignored=NO_TOOLS),
        Key("ToolConfig", "tool_config", FREE, ignored="set a tool's Parameters under Tools"),
        Key("ResponseTimeout", "response_timeout", ResponseTimeout()),
        Key("Retry", "retry", One(lambda: RETRY, "write Retry: {Attempts: 3}"), extension=True),
        Key("ToolIterationLimit", "tool_iteration_limit", WHOLE, ignored=NO_TOOLS),
        Key("DateAwareness", "date_awareness", FLAG),
        Key("SystemPrompt", "system_prompt", TEXT),
        Key("ModelSettings", "model_settings", One(lambda: MODEL_SETTINGS)),
        Key("Context", "context", Many(lambda: CONTENT, "write Context: [{Text: ...}]")),
    ),
    makers.agent,
    {
        "Backstory": "write it into Instructions",
        "Role": "write it into Goal",
        "Description": "write it into Goal",
        "Temperature": "write it under ModelSettings",
        "MaxTokens": "write it under ModelSettings",
    },
)

TOOL = Table(
    "tool",
    (
        Key("Name", "name", TEXT, required="tool name is required"),
        Key("Enabled", "enabled", FLAG),
        Key("Parameters", "parameters", FREE),
    ),
    record(ToolDefinition),
)

DOCUMENT = Table(
    "document",
    (
        Key("ID", "id", TEXT, ignored=BY_NAME),
        Key("Name", "name", TEXT, required="document name is required"),
        Key("Description", "description", TEXT),
        Key("Path", "path", TEXT),
        Key("Content", "content", TEXT, ignored="write it into a file, and the file's Path here"),
        Key("ContentType", "content_type", TEXT, ignored="the ending of its Path tells the type"),
    ),
    record(DocumentDefinition),
)

SCHEDULE = Table(
    "schedule",
    (
        Key("Name", "name", TEXT, required="schedule name is required"),
        Key("Cron", "cron", TEXT),
        Key("Workflow", "workflow", TEXT),
        Key("Enabled", "enabled", FLAG),
    ),
    record(ScheduleDefinition),
)

TOKEN_STORE = Table("TokenStore", (Key("Type", "type", TEXT), Key("Path", "path", TEXT)), record(TokenStoreDefinition))

OAUTH = Table(
    "OAuth",
    (
        Key("ClientID", "client_id", TEXT),
        Key("ClientSecret", "client_secret", TEXT),
        Key("RedirectURI", "redirect_uri", TEXT),
        Key("Scopes", "scopes", TEXTS),
        Key("PKCEEnabled", "pkce_enabled", FLAG),
        Key("TokenStore", "token_store", One(lambda: TOKEN_STORE)),
        Key("ExtraParams", "extra_params", TEXT_MAPPING),
    ),
    record(OAuthDefinition),
)

APPROVAL_FILTER = Table(
    "ApprovalFilter", (Key("Always", "always", TEXTS), Key("Never", "never", TEXTS)), record(ApprovalFilterDefinition)
)

TOOL_CONFIGURATION = Table(
    "ToolConfiguration",
    (
        Key("Enabled", "enabled", FLAG),
        Key("AllowedTools", "allowed_tools", TEXTS),
        Key("ApprovalMode", "approval_mode", TEXT),
        Key("ApprovalFilter", "approval_filter", One(lambda: APPROVAL_FILTER)),
    ),
    record(ToolConfigurationDefinition),
)

MCP_SERVER = Table(
    "MCP server",
    (
        Key("Name", "name", TEXT, required="mcp server name is required"),
        Key("Type", "type", TEXT),
        Key("Command", "command", TEXT),
        Key("URL", "url", TEXT),
        Key("Args", "args", TEXTS),
        Key("Env", "env", TEXT_MAPPING),
        Key("AuthorizationToken", "authorization_token", TEXT),
        Key("Headers", "headers", TEXT_MAPPING),
        Key("OAuth", "oauth", One(lambda: OAUTH)),
        Key("ToolConfiguration", "tool_configuration", One(lambda: TOOL_CONFIGURATION)),
    ),
    makers.mcp_server,
)

PROVIDER = Table(
    "provider",
    (
        Key("Name", "name", TEXT, required="provider name is required"),
        Key("Caching", "caching", FLAG, ignored=NO_CACHING),
        Key("Features", "features", TEXTS, ignored=NO_FEATURES),
        Key("RequestHeaders", "request_headers", HEADERS),
    ),
    record(ProviderSettings),
)

CONFIG = Table(
    "Config",
    (
        Key("DefaultProvider", "default_provider", TEXT),
        Key("DefaultModel", "default_model", TEXT),
        Key("DefaultWorkflow", "default_workflow", TEXT),
        Key(
            "ConfirmationMode",
            "confirmation_mode",
            Text(choices=CONFIRMATION_MODES, complaint="invalid confirmation mode: {}"),
            ignored="there are no tools to confirm yet; an action asks by itself: @action(approval=True)",
        ),
        Key(
            "LogLevel",
            "log_level",
            Text(choices=LOG_LEVELS, complaint="invalid log level: {}"),
            ignored="the log of an execution has all; set the level of Python's own logging",
        ),
        Key("Durability", "durability", Text(choices=DURABILITIES, complaint="invalid durability: {}")),
        Key("Recover", "recover", Text(choices=RECOVERIES, complaint="invalid way to recover: {}")),
        Key(
            "NotebookData",
            "notebook_data",
            Text(choices=NOTEBOOK_DATA, complaint="invalid setting for notebook data: {}"),
        ),
        Key("Providers", "providers", Many(lambda: PROVIDER)),
    ),
    makers.config,
)

DEFINITIONS = Table(
    "definition",
    (
        Key("Name", "name", TEXT),
        Key("Description", "description", TEXT),
        Key("Version", "version", TEXT),
        Key("Config", "config", One(lambda: CONFIG)),
        Key("Tools", "tools", Many(lambda: TOOL, "write Tools: [{Name: read_file}]"), ignored=NO_TOOLS),
        Key("Documents", "documents", Many(lambda: DOCUMENT)),
        Key("Agents", "agents", Many(lambda: AGENT, "write Agents: [{Name: editor, Goal: ...}]")),
        Key("Workflows", "workflows", Many(lambda: WORKFLOW, "write Workflows: [{Name: main, Steps: [...]}]")),
        Key("Triggers", "triggers", Many(lambda: TRIGGER), ignored="write it under the Triggers of each workflow"),
        Key("Schedules", "schedules", Many(lambda: SCHEDULE), ignored="let cron or systemd start it"),
        Key(
            "MCPServers",
            "mcp_servers",
            Many(lambda: MCP_SERVER),
            ignored="MCP servers are not connected yet; " + NO_TOOLS,
        ),
    ),
    makers.definitions,
    {
        "Steps": "steps belong under Workflows: [{Name: ..., Steps: [...]}]",
        "Environment": "write its Name, Description and Config at the top",
        "Workflow": "write Workflows: [{Name: ..., Steps: [...]}]",
        "Agent": "write Agents: [{Name: ..., Goal: ...}]",
    },
)
