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
        Key("Text", "text", "A text.", TEXT),
        Key("Path", "path", "A file, or files by a pattern such as `*.md`, below the definition's folder.", TEXT),
        Key("URL", "url", "What stands at an address when the definition is read.", TEXT),
        Key("Document", "document", "A document by name.", TEXT),
        Key("Dynamic", "dynamic", "A script that gives the content when the step runs.", TEXT),
        Key("DynamicFrom", "dynamic_from", "A program that prints the content when the step runs.", TEXT),
    ),
    makers.content_entry,
)

EDGE = Table(
    "Next entry",
    (
        Key("Step", "step", "The step to go to.", TEXT, required="Next entry without a step"),
        Key("Condition", "condition", "Python; without it the edge is always taken.", TEXT),
    ),
    record(Edge),
    {"If": "write Condition", "When": "write Condition", "To": "write Step"},
)

EACH = Table(
    "Each",
    (
        Key("Items", "items", "A list, or an expression such as `$(state.rows)`.", ANYTHING),
        Key("As", "as_", "The name of the item, as in `state.name`.", TEXT),
        Key("Parallel", "parallel", "How many items run at the same time; 1 by default.", WHOLE, extension=True),
        Key(
            "OnItemError",
            "on_item_error",
            "What an item that fails does: `fail` the step, `keep` its error as data, or be `skip`ped.",
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
        Key("Attempts", "attempts", "How often it is tried at most, the first time included; 3 by default.", WHOLE),
        Key("Seconds", "seconds", "The pause before the second attempt.", NUMBER),
        Key("Factor", "factor", "By how much each further pause grows.", NUMBER),
        Key("MaxSeconds", "max_seconds", "The longest pause.", NUMBER),
        Key("Jitter", "jitter", "The part of a pause that is left to chance, from 0 to 1.", NUMBER),
        Key("Errors", "errors", "Names of exceptions after which it is tried again; all by default.", TEXTS),
    ),
    makers.retry,
    {"Delay": "write Seconds", "Backoff": "write Factor", "Times": "write Attempts", "MaxAttempts": "write Attempts"},
)

CATCH = Table(
    "Catch",
    (
        Key("Step", "step", "The step to go to.", TEXT, required="Catch needs a Step to go to"),
        Key("Errors", "errors", "Names of exceptions that are caught; all by default.", TEXTS),
        Key("Store", "store", "The variable that takes the error.", TEXT),
    ),
    record(Catch),
    {"Next": "write Step", "Error": "write Errors"},
)

ASK = Table(
    "Ask",
    (
        Key("Question", "question", "What is asked; a template.", TEXT, required="Ask needs a Question"),
        Key("Kind", "kind", "What is asked for, such as an approval or a text.", TEXT),
        Key("Message", "message", "More about it; a template.", TEXT),
        Key("Data", "data", "What the person looks at; texts are templates.", FREE),
        Key("Schema", "schema", "The JSON schema that an answer fits.", FREE),
        Key("ExpiresIn", "expires_in", "Seconds after which the Default answers, or the step fails.", Seconds()),
        Key("Default", "default", "The answer after that time.", ANYTHING),
        Key("Optional", "optional", "Whether no answer is an answer.", FLAG),
    ),
    makers.ask,
    {"Type": "write Kind", "Prompt": "write Question", "Timeout": "write ExpiresIn", "Expires": "write ExpiresIn"},
)

STEP = Table(
    "step",
    (
        Key("Name", "name", "Its name, unique in the workflow.", TEXT),
        Key("Type", "type", "What it does; follows from its other keys.", TEXT),
        Key("Agent", "agent", "Who answers its prompt.", TEXT),
        Key("Prompt", "prompt", "What a model is asked; a template.", PROMPT),
        Key("Script", "script", "Python that runs in a sandbox; its last expression is the result.", TEXT),
        Key("Action", "action", "The name of a function to call.", TEXT),
        Key("Parameters", "parameters", "What the action is given; texts are templates, `$(...)` a value.", FREE),
        Key("Store", "store", "The variable that takes its result, as in `state.name`.", TEXT),
        Key("Each", "each", "Repeats it for each item.", One(lambda: EACH, "write Each: {Items: [...], As: name}")),
        Key(
            "Next",
            "edges",
            "Where to go on: along every edge whose condition holds, at once if several.",
            Many(lambda: EDGE, "write Next: [{Step: name}]"),
        ),
        Key("End", "end", "Whether the path ends here.", FLAG),
        Key("Seconds", "seconds", "How long to wait.", Seconds()),
        Key(
            "Content",
            "content",
            "Texts, files and pictures that come before the prompt.",
            Many(lambda: CONTENT, "write Content: [{Text: ...}]"),
        ),
        Key("Join", "join", "Whether it waits for all paths that can still come here.", FLAG, extension=True),
        Key(
            "Retry",
            "retry",
            "How it is tried again after a failure.",
            One(lambda: RETRY, "write Retry: {Attempts: 3}"),
            extension=True,
        ),
        Key(
            "Catch",
            "catch",
            "Where to go on after a failure.",
            Many(lambda: CATCH, "write Catch: [{Step: name}]"),
            extension=True,
        ),
        Key(
            "Ask",
            "ask",
            "A question to a person, for whose answer it waits.",
            One(lambda: ASK, "write Ask: {Question: ...}", text_key="Question"),
            extension=True,
        ),
        Key("Signal", "signal", "A message from outside, for which it waits.", TEXT, extension=True),
        Key("Timeout", "timeout", "Seconds that one attempt may take.", NUMBER, extension=True),
        Key("Workflow", "workflow", "Another workflow, which runs as an execution of its own.", TEXT, extension=True),
        Key("Inputs", "inputs", "What that workflow is given.", FREE, extension=True),
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
        Key("Name", "name", "The name, as in `inputs.name`.", TEXT, required="input name is required"),
        Key("Type", "type", "What it must be; without it everything fits.", InputType()),
        Key("Description", "description", "What it is, for people and in the error that asks for it.", TEXT),
        Key("Required", "required", "Whether it must be given; by default yes, unless it has a Default.", FLAG),
        Key("Default", "default", "Its value where none is given.", ANYTHING),
        Key("As", "as_", "Another name.", TEXT, ignored="an input is known by its Name"),
    ),
    record(InputDefinition),
)

OUTPUT = Table(
    "output",
    (
        Key("Name", "name", "The variable it shows.", TEXT),
        Key("Type", "type", "What it is, for people.", TEXT),
        Key("Description", "description", "What it is, for people.", TEXT),
        Key("Format", "format", "How it is written, for people.", TEXT),
        Key("Default", "default", "Its value where the variable does not exist.", ANYTHING),
        Key("Document", "document", "A document to write it to.", TEXT, ignored="write it with a Document.Write step"),
    ),
    makers.output,
)

TRIGGER = Table(
    "trigger",
    (
        Key("Name", "name", "The name it is fired by.", TEXT),
        Key("Type", "type", "What fires it.", TEXT, ignored=BY_TRIGGER),
        Key("Config", "config", "More about what fires it.", FREE, ignored=BY_TRIGGER),
    ),
    makers.trigger,
)

WORKFLOW = Table(
    "workflow",
    (
        Key("Name", "name", "The name to run it by.", TEXT),
        Key("Description", "description", "What it is, for people.", TEXT),
        Key("Inputs", "inputs", "What it is given.", Many(lambda: INPUT, "write Inputs: [{Name: topic}]")),
        Key(
            "Output",
            "output",
            "Its single output.",
            One(lambda: OUTPUT, "write Output: {Name: report}, or Outputs for a list"),
        ),
        Key(
            "Outputs",
            "outputs",
            "Its results: the variables of these names.",
            Many(lambda: OUTPUT, "write Outputs: [{Name: report}]"),
            extension=True,
        ),
        Key(
            "Steps",
            "steps",
            "What it does; the first one is the start, and each leads to the next unless it says otherwise.",
            Many(lambda: STEP, "write Steps: [{Name: first, Prompt: ...}]"),
        ),
        Key("Triggers", "triggers", "Names under which it can be started.", Many(lambda: TRIGGER)),
        Key(
            "ContinueOnFailure",
            "continue_on_failure",
            "Whether the other paths go on after one has failed.",
            FLAG,
            extension=True,
        ),
        Key("Bounds", "bounds", "What a run may spend: tokens, calls, dollars, seconds.", FREE, extension=True),
    ),
    makers.workflow,
    {"Retry": "write it into a step", "Catch": "write it into a step", "Start": "the first listed step is the start"},
)

MODEL_SETTINGS = Table(
    "ModelSettings",
    (
        Key("Temperature", "temperature", "How freely words are chosen.", NUMBER),
        Key("PresencePenalty", "presence_penalty", "How much new subjects are preferred.", NUMBER),
        Key("FrequencyPenalty", "frequency_penalty", "How much repeated words are avoided.", NUMBER),
        Key("ReasoningBudget", "reasoning_budget", "Tokens for thinking.", WHOLE, ignored="write ReasoningEffort"),
        Key("ReasoningEffort", "reasoning_effort", "How much it thinks, as its provider calls it.", TEXT),
        Key("MaxTokens", "max_tokens", "The most tokens of an answer.", WHOLE),
        Key("ToolChoice", "tool_choice", "Which tool it must call.", FREE, ignored=NO_TOOLS),
        Key("ParallelToolCalls", "parallel_tool_calls", "Whether it may call several tools at once.", FLAG),
        Key("Features", "features", "Features to switch on.", TEXTS, ignored=NO_FEATURES),
        Key("RequestHeaders", "request_headers", "HTTP headers of each request.", HEADERS),
        Key("Caching", "caching", "Whether prompts are cached.", FLAG, ignored=NO_CACHING),
    ),
    record(ModelSettings),
)

AGENT = Table(
    "agent",
    (
        Key("Name", "name", "The name that steps use.", TRIMMED),
        Key("Goal", "goal", "What it is to achieve; part of its instructions.", TRIMMED),
        Key("Instructions", "instructions", "What it is told before each prompt.", TRIMMED),
        Key("IsSupervisor", "is_supervisor", "Whether it answers prompts that name no agent.", FLAG),
        Key(
            "Subordinates",
            "subordinates",
            "Agents it may hand work to.",
            TEXTS,
            ignored="agents do not hand work to each other yet; write a step for each",
        ),
        Key("Provider", "provider", "Who serves its model.", TEXT),
        Key("Model", "model", "Its model: `provider:model`, a name of its provider, or `scripted` (offline).", TEXT),
        Key("Tools", "tools", "Tools it may call.", TEXTS, ignored=NO_TOOLS),
        Key("ToolConfig", "tool_config", "Options of its tools.", FREE, ignored="set a tool's Parameters under Tools"),
        Key("ResponseTimeout", "response_timeout", "How long one request may take.", ResponseTimeout()),
        Key(
            "Retry",
            "retry",
            "How requests are tried again; by default 3 attempts after 429, 5xx and lost connections.",
            One(lambda: RETRY, "write Retry: {Attempts: 3}"),
            extension=True,
        ),
        Key(
            "ToolIterationLimit",
            "tool_iteration_limit",
            "How often it may call tools for one prompt.",
            WHOLE,
            ignored=NO_TOOLS,
        ),
        Key("DateAwareness", "date_awareness", "Whether it is told today's date.", FLAG),
        Key("SystemPrompt", "system_prompt", "Its whole instructions, as a template over `agent`.", TEXT),
        Key("ModelSettings", "model_settings", "How its model is to answer.", One(lambda: MODEL_SETTINGS)),
        Key(
            "Context",
            "context",
            "What every prompt begins with.",
            Many(lambda: CONTENT, "write Context: [{Text: ...}]"),
        ),
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
        Key("Name", "name", "Its name.", TEXT, required="tool name is required"),
        Key("Enabled", "enabled", "Whether it may be used.", FLAG),
        Key("Parameters", "parameters", "Its options.", FREE),
    ),
    record(ToolDefinition),
)

DOCUMENT = Table(
    "document",
    (
        Key("ID", "id", "Another name.", TEXT, ignored=BY_NAME),
        Key("Name", "name", "The name that steps use.", TEXT, required="document name is required"),
        Key("Description", "description", "What it is, for people.", TEXT),
        Key("Path", "path", "The file.", TEXT),
        Key("Content", "content", "Its text.", TEXT, ignored="write it into a file, and the file's Path here"),
        Key("ContentType", "content_type", "Its media type.", TEXT, ignored="the ending of its Path tells the type"),
    ),
    record(DocumentDefinition),
)

SCHEDULE = Table(
    "schedule",
    (
        Key("Name", "name", "Its name; part of the key of each start.", TEXT, required="schedule name is required"),
        Key("Cron", "cron", "When, in five fields: minute, hour, day of month, month, day of week.", TEXT),
        Key("Workflow", "workflow", "What is started.", TEXT),
        Key("Enabled", "enabled", "Whether it is in force.", FLAG),
    ),
    record(ScheduleDefinition),
)

TOKEN_STORE = Table(
    "TokenStore",
    (Key("Type", "type", "`memory`, `file` or `keychain`.", TEXT), Key("Path", "path", "The file.", TEXT)),
    record(TokenStoreDefinition),
)

OAUTH = Table(
    "OAuth",
    (
        Key("ClientID", "client_id", "Who asks.", TEXT),
        Key("ClientSecret", "client_secret", "The secret of who asks.", TEXT),
        Key("RedirectURI", "redirect_uri", "Where the browser is sent back to.", TEXT),
        Key("Scopes", "scopes", "What may be done.", TEXTS),
        Key("PKCEEnabled", "pkce_enabled", "Whether the exchange is protected by a proof.", FLAG),
        Key("TokenStore", "token_store", "Where tokens are kept.", One(lambda: TOKEN_STORE)),
        Key("ExtraParams", "extra_params", "More parameters.", TEXT_MAPPING),
    ),
    record(OAuthDefinition),
)

APPROVAL_FILTER = Table(
    "ApprovalFilter",
    (Key("Always", "always", "Tools that always ask.", TEXTS), Key("Never", "never", "Tools that never ask.", TEXTS)),
    record(ApprovalFilterDefinition),
)

TOOL_CONFIGURATION = Table(
    "ToolConfiguration",
    (
        Key("Enabled", "enabled", "Whether its tools may be used.", FLAG),
        Key("AllowedTools", "allowed_tools", "Those that may be used; all if empty.", TEXTS),
        Key("ApprovalMode", "approval_mode", "When a person is asked.", TEXT),
        Key("ApprovalFilter", "approval_filter", "Which tools ask.", One(lambda: APPROVAL_FILTER)),
    ),
    record(ToolConfigurationDefinition),
)

MCP_SERVER = Table(
    "MCP server",
    (
        Key("Name", "name", "Its name.", TEXT, required="mcp server name is required"),
        Key("Type", "type", "`stdio` or `http`.", TEXT),
        Key("Command", "command", "The program to start.", TEXT),
        Key("URL", "url", "Its address.", TEXT),
        Key("Args", "args", "Arguments of the program.", TEXTS),
        Key("Env", "env", "Variables of the program.", TEXT_MAPPING),
        Key("AuthorizationToken", "authorization_token", "A token that each request carries.", TEXT),
        Key("Headers", "headers", "HTTP headers of each request.", TEXT_MAPPING),
        Key("OAuth", "oauth", "How to get a token.", One(lambda: OAUTH)),
        Key(
            "ToolConfiguration",
            "tool_configuration",
            "Which of its tools may be used.",
            One(lambda: TOOL_CONFIGURATION),
        ),
    ),
    makers.mcp_server,
)

PROVIDER = Table(
    "provider",
    (
        Key("Name", "name", "The provider they hold for.", TEXT, required="provider name is required"),
        Key("Caching", "caching", "Whether it caches prompts.", FLAG, ignored=NO_CACHING),
        Key("Features", "features", "Features to switch on.", TEXTS, ignored=NO_FEATURES),
        Key("RequestHeaders", "request_headers", "HTTP headers of each request; those of an agent are added.", HEADERS),
    ),
    record(ProviderSettings),
)

CONFIG = Table(
    "Config",
    (
        Key("DefaultProvider", "default_provider", "The provider of agents that name none.", TEXT),
        Key("DefaultModel", "default_model", "The model of agents that name none.", TEXT),
        Key("DefaultWorkflow", "default_workflow", "The workflow of a run that names none.", TEXT),
        Key(
            "ConfirmationMode",
            "confirmation_mode",
            "Which tools ask before they run.",
            Text(choices=CONFIRMATION_MODES, complaint="invalid confirmation mode: {}"),
            ignored="there are no tools to confirm yet; an action asks by itself: @action(approval=True)",
        ),
        Key(
            "LogLevel",
            "log_level",
            "How much is logged.",
            Text(choices=LOG_LEVELS, complaint="invalid log level: {}"),
            ignored="the log of an execution has all; set the level of Python's own logging",
        ),
        Key(
            "Durability",
            "durability",
            "Whether each event is safe on disk at once (full), or soon after (relaxed).",
            Text(choices=DURABILITIES, complaint="invalid durability: {}"),
        ),
        Key(
            "Recover",
            "recover",
            "What becomes of executions that a dead process left, when a notebook loads.",
            Text(choices=RECOVERIES, complaint="invalid way to recover: {}"),
        ),
        Key(
            "NotebookData",
            "notebook_data",
            "Whether outputs in notebooks carry the data of their run.",
            Text(choices=NOTEBOOK_DATA, complaint="invalid setting for notebook data: {}"),
        ),
        Key("Providers", "providers", "Settings for all agents of one provider.", Many(lambda: PROVIDER)),
    ),
    makers.config,
)

DEFINITIONS = Table(
    "definition",
    (
        Key("Name", "name", "The name of the whole.", TEXT),
        Key("Description", "description", "What it is, for people.", TEXT),
        Key("Version", "version", "Which edition it is, for people.", TEXT),
        Key("Config", "config", "Settings that hold for everything.", One(lambda: CONFIG)),
        Key(
            "Tools",
            "tools",
            "Tools that agents may name.",
            Many(lambda: TOOL, "write Tools: [{Name: read_file}]"),
            ignored=NO_TOOLS,
        ),
        Key("Documents", "documents", "Files that steps name without their paths.", Many(lambda: DOCUMENT)),
        Key(
            "Agents",
            "agents",
            "Models with a role; the first supervisor, else the first one, answers prompts that name none.",
            Many(lambda: AGENT, "write Agents: [{Name: editor, Goal: ...}]"),
        ),
        Key(
            "Workflows",
            "workflows",
            "What can be run.",
            Many(lambda: WORKFLOW, "write Workflows: [{Name: main, Steps: [...]}]"),
        ),
        Key(
            "Triggers",
            "triggers",
            "Names that start workflows.",
            Many(lambda: TRIGGER),
            ignored="write it under the Triggers of each workflow",
        ),
        Key(
            "Schedules",
            "schedules",
            "When to start workflows.",
            Many(lambda: SCHEDULE),
        ),
        Key(
            "MCPServers",
            "mcp_servers",
            "Servers that offer tools.",
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
