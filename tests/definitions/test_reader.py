"""Definition texts: what they mean, and what is said when they are wrong."""

import pytest

from divebook.definitions.definition import missing_agents
from divebook.definitions.reader import definitions_from, read_agent, read_definitions, read_workflow
from divebook.definitions.step import Each
from divebook.errors import DefinitionError
from divebook.text.arguments import DURATION_FORMS
from tests.definitions.texts import lines_of, problems_of, step_error, steps


def test_a_whole_file_is_read():
    found = read_definitions(
        """
Name: env
Description: An environment
Version: 1.0
Config:
  DefaultProvider: openai
  DefaultModel: gpt-5-mini
  ConfirmationMode: never
  LogLevel: info
  Providers:
    - {Name: openai, Caching: true, Features: [b], RequestHeaders: {H: 1, K: [a, b]}}
Tools:
  - {Name: read_file, Parameters: {max_size: 10}}
  - {Name: fetch, Enabled: false}
Documents:
  - {ID: d1, Name: notes, Path: notes.md, ContentType: text/plain}
Agents:
  - Name: " writer "
    Goal: |
      Write well
    IsSupervisor: true
    Subordinates: [editor]
    Tools: [read_file]
    ResponseTimeout: 1m30s
    ToolIterationLimit: 3
    DateAwareness: false
    ModelSettings: {Temperature: 1, MaxTokens: 10, ToolChoice: {type: any}, ParallelToolCalls: false}
    Context:
      - Text: Be brief
      - URL: https://example.com/a.png
Workflows:
  - Name: w
    Inputs: [{Name: a, Type: string, Required: false}]
    Output: {Name: r}
    Steps: [{Name: s, Script: "1"}]
    Triggers: [{Name: t, Type: manual, Config: {a: 1}}]
Triggers:
  - {Name: manual}
Schedules:
  - {Name: nightly, Cron: "0 0 * * *", Workflow: w, Enabled: false}
MCPServers:
  - Name: files
    Type: stdio
    Command: run
    Args: [-v, 1]
    Env: {A: $HOME}
    OAuth: {ClientID: x, RedirectURI: http://localhost, PKCEEnabled: true, TokenStore: {Type: memory}}
    ToolConfiguration: {AllowedTools: [a], ApprovalMode: always, ApprovalFilter: {Always: [a], Never: [b]}}
""",
        dialect="dive",
    )
    assert (found.name, found.version, found.config.default_model) == ("env", "1.0", "gpt-5-mini")
    assert found.config.providers[0].request_headers == {"H": ["1"], "K": ["a", "b"]}
    assert [tool.enabled for tool in found.tools] == [True, False]
    agent = found.agents[0]
    assert (agent.name, agent.goal, agent.response_timeout, agent.tool_iteration_limit) == (
        "writer",
        "Write well",
        90,
        3,
    )
    assert agent.model_settings.temperature == 1.0
    assert [entry.source for entry in agent.context] == ["text", "url"]
    assert found.workflows[0].outputs[0].name == "r"
    assert found.workflows[0].inputs[0].required is False
    assert found.mcp_servers[0].args == ("-v", "1")
    assert found.mcp_servers[0].oauth.token_store.type == "memory"


@pytest.mark.parametrize(("name", "value"), [("Name", "name"), ("ContinueOnFailure", "continue_on_failure")])
def test_keys_may_be_spelled_in_snake_case(name, value):
    pascal = {"Name": "w", "Steps": [{"Name": "s", "Script": "1"}], "ContinueOnFailure": True}
    snake = {"name": "w", "steps": [{"name": "s", "script": "1"}], "continue_on_failure": True}
    assert read_workflow(pascal) == read_workflow(snake)
    assert read_workflow({**{key: item for key, item in pascal.items() if key != name}, value: pascal[name]}) == (
        read_workflow(pascal)
    )


def test_both_spellings_of_one_key_are_refused():
    assert step_error(steps("  - Name: s", "    Prompt: x", "    prompt: y")) == [
        "cell:5:5: key 'prompt' is given twice, also as 'Prompt' (keep one of the two)"
    ]


def test_an_unknown_key_is_located_and_the_nearest_one_suggested():
    assert step_error(steps("  - Name: s", "    Promt: x")) == [
        "cell:4:5: unknown key 'Promt' (did you mean 'Prompt'?)",
    ]


def test_lines_count_from_the_top_of_the_cell():
    assert problems_of("Nme: x", line_offset=3)[0].line == 4


def test_every_problem_is_found_at_once():
    lines = lines_of("""Name: e
Agents:
  - Name: a
    Backstory: long ago
    ResponseTimeout: soon
Workflows:
  - Name: w
    Steps:
      - Name: s
        Prompt: {Text: hi}
        Next: [{Step: x}]
      - Name: s
        Script: "1"
        Retry: 3
Extra: 1
""")
    assert [line.split(": ", 1)[0] for line in lines] == [
        "cell:4:5",
        "cell:5:22",
        "cell:10:17",
        "cell:11:23",
        "cell:12:15",
        "cell:14:16",
        "cell:15:1",
    ]
    assert "write it into Instructions" in lines[0]
    assert "ResponseTimeout must be a number of seconds" in lines[1]
    assert "Prompt must be a string, not a mapping" in lines[2]
    assert "in place of {Text, Output}" in lines[2]
    assert "Next: there is no step 'x' (steps: s)" in lines[3]
    assert "two steps are called 's' (lines 9 and 12)" in lines[4]
    assert "Retry must be" in lines[5]
    assert "write Retry: {Attempts: 3}" in lines[5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Name: e\nConfig: {LogLevel: loud}", "invalid log level: loud"),
        ("Name: e\nConfig: {LogLevel: Info}", "invalid log level: Info (did you mean 'info'?)"),
        ("Name: e\nConfig: {ConfirmationMode: sometimes}", "invalid confirmation mode: sometimes"),
        ("Tools: [{}]", "tool name is required"),
        ("Agents: [{Name: a, Provider: 'not a name'}]", 'unsupported provider: "not a name"'),
        ("Agents: [{Name: a, Provider: ''}]", 'unsupported provider: ""'),
        ("Agents: [{Goal: x}]", "agent name is required"),
        ("Agents: [{Name: a}, {Name: a}]", "two agents are called 'a'"),
        ("Agents: [{Name: a, ToolConfig: [a]}]", "ToolConfig must be a mapping"),
        ("Agents: [{Name: a, Context: [{}]}]", "context entry must specify exactly one of"),
        ("Agents: [{Name: a, Context: [{Text: x, Path: y}]}]", "context entry must specify exactly one of"),
        ("Agents: [{Name: a, Tools: read_file}]", "Tools must be a list of strings, not the string 'read_file'"),
        ("Agents: [{Name: a, DateAwareness: yes}]", "DateAwareness must be true or false, not the string 'yes'"),
        (
            "Agents: [{Name: a, ToolIterationLimit: 1.5}]",
            "ToolIterationLimit must be an integer from 0 to 2**63 - 1, not 1.5",
        ),
        (
            "Agents: [{Name: a, ModelSettings: {Temperature: .nan}}]",
            "Temperature must be a number from -1,000,000,000 to 1,000,000,000, not .nan",
        ),
        ("Agents: [a]", "Agents must be a list of mappings, not the string 'a' (write Agents:"),
        ("Agents: {Name: a}", "Agents must be a list, not a mapping"),
        ("Config: 3", "Config must be a mapping, not 3"),
        ("Workflows: [{Name: w}]", "no steps found"),
        ("Workflows: [{Steps: [{Name: s, Script: 1}]}]", "workflow name required"),
        ("MCPServers: [{Name: m, Type: pipe}]", "unsupported mcp server type: pipe"),
        ("MCPServers: [{Name: m, Type: stdio}]", "command is required for stdio mcp server"),
        ("MCPServers: [{Name: m, Type: http}]", "url is required for http mcp server"),
        ("Documents: [{Name: a}, {Name: a}]", "two documents are called 'a'"),
        ("Steps: []", "steps belong under Workflows"),
        ("- a", "a definition must be a mapping of keys to values, not a list"),
        ("just text", "a definition must be a mapping of keys to values, not the string 'just text'"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(text, message):
    assert any(message in line for line in lines_of(text)), lines_of(text)


def test_two_workflows_of_one_name_are_refused():
    one = "{Name: w, Steps: [{Name: s, Script: '1'}]}"
    assert lines_of(f"Workflows:\n  - {one}\n  - {one}") == ["cell:3:12: two workflows are called 'w' (lines 2 and 3)"]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("{Name: ''}", "step name cannot be empty"),
        (
            "{Name: s}",
            'unsupported step type "" in step "s" (add Prompt, Script, Action, Ask or Seconds)',
        ),
        ("{Name: s, Type: scrpt}", "(did you mean 'script'?)"),
        ("{Name: s, Type: interrupt}", "no question specified for interrupt step"),
        ("{Name: s, Type: action}", 'no action specified for action step "s"'),
        ("{Name: s, Type: script}", 'no script specified for script step "s"'),
        ("{Name: s, Type: prompt}", 'no prompt specified for prompt step "s"'),
        ("{Name: s, Type: wait}", 'no seconds specified for wait step "s"'),
        ("{Name: s, Type: script, Script: '1', Prompt: x}", "Prompt has no effect on a step of type script"),
        ("{Name: s, Type: script, Script: '1', Action: x}", "Action has no effect on a step of type script"),
        ("{Name: s, Prompt: x, Parameters: {a: 1}}", "Parameters has no effect on a step of type prompt"),
        ("{Name: s, Script: '1', Agent: a}", "Agent has no effect on a step of type script"),
        ("{Name: s, Action: a, Content: [{Text: x}]}", "Content has no effect on a step of type action"),
        ("{Name: s, Prompt: x, Seconds: 3}", "Seconds has no effect on a step of type prompt"),
        ("{Name: s, Script: '1', End: true, Next: [{Step: s}]}", "End has no effect together with Next"),
        ("{Name: s, Script: '1', Each: {As: i}}", "unsupported value for 'each' block: Items is nothing"),
        ("{Name: s, Script: '1', Each: {Items: 'a,b'}}", "unsupported value for 'each' block: Items is 'a,b'"),
        ("{Name: s, Script: '1', Each: {Items: 3}}", "unsupported value for 'each' block: Items is 3"),
        ("{Name: s, Script: '1', Each: [a]}", "Each must be a mapping, not a list"),
        (
            "{Name: s, Script: '1', Each: {Items: [], Parallel: 0}}",
            "Parallel must be an integer from 1 to 2**63 - 1, not 0",
        ),
        (
            "{Name: s, Script: '1', Each: {Items: [], Parallel: 1.5}}",
            "Parallel must be an integer from 1 to 2**63 - 1, not 1.5",
        ),
        ("{Name: s, Type: wait, Seconds: -1}", "Seconds must be a number of seconds from 0 to 3,155,760,000, not -1"),
        ("{Name: s, Type: wait, Seconds: soon}", f"Seconds must be {DURATION_FORMS}, or a template, not 'soon'"),
        (
            "{Name: s, Type: wait, Seconds: true}",
            f"Seconds must be {DURATION_FORMS}, not true",
        ),
        ("{Name: s, Script: '1', Join: 1}", "Join must be true or false, not 1"),
        ("{Name: s, Script: '1', Next: x}", "(write Next: [{Step: name}])"),
        ("{Name: s, Script: '1', Next: [{Condition: x}]}", "Next entry without a step"),
        ("{Name: s, Script: [1]}", "Script must be a string, not a list"),
        ("{Name: s, Action: a, Parameters: [1]}", "Parameters must be a mapping, not a list"),
        ("{Name: s, Action: a, Parameters: {a: [.inf]}}", "a must be a finite number"),
        ("{Name: s, Script: '1', Catch: [{Step: nope}]}", "Catch: there is no step 'nope' (steps: s)"),
        ("{Name: s, Script: '1', Catch: [{Errors: [E]}]}", "Catch needs a Step to go to"),
        ("{Name: s, Script: '1', Retry: {Attempts: 0}}", "Attempts must be an integer from 1 to 2**63 - 1, not 0"),
        ("{Name: s, Script: '1', Retry: {Delay: 1}}", "write Seconds"),
        ("{Name: s, Script: '1', Output: x}", "Output has no effect on a step of type script"),
    ],
)
def test_what_is_wrong_in_a_step_is_said(step, message):
    lines = step_error(steps(f"  - {step}"))
    assert any(message in line for line in lines), lines


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Inputs: [{Name: a, As: b}]\n", "As has no effect (an input is identified by its Name)"),
        ("Inputs: [{Type: int}]\n", "input name is required"),
        ("Inputs: [{Name: a}, {Name: a}]\n", "two inputs are called 'a'"),
        ("Output: {Type: int}\n", "output name is required"),
        ("Output: [a]\n", "or Outputs for a list"),
        ("Output: {Name: a}\nOutputs: [{Name: a}]\n", "two outputs are called 'a'"),
        ("Output: {Name: a, Document: d}\n", "Document has no effect"),
        ("Triggers: [{}]\n", "trigger name is required"),
    ],
)
def test_what_is_wrong_beside_the_steps_is_said(text, message):
    lines = step_error(text + steps("  - {Name: s, Script: '1'}"))
    assert any(message in line for line in lines), lines


def test_a_branch_that_falls_into_its_sibling_is_warned_about():
    text = steps(
        "  - {Name: a, Script: '1', Next: [{Step: b}, {Step: c}]}",
        "  - {Name: b, Script: '1'}",
        "  - {Name: c, Script: '1'}",
    )
    warnings = read_definitions(text, body="workflow", source_name="cell").warnings
    assert [warning.describe("cell") for warning in warnings] == [
        (
            "cell:4:12: warning: step 'b' continues with 'c', the next step in the list, but both are branches of 'a' "
            "(add End: true or Next to step 'b')"
        )
    ]


@pytest.mark.parametrize(
    "change", [("b, Script: '1'", "b, Script: '1', End: true"), ("c, Script: '1'", "c, Script: '1', Join: true")]
)
def test_a_branch_that_ends_or_joins_is_not_warned_about(change):
    text = steps(
        "  - {Name: a, Script: '1', Next: [{Step: b}, {Step: c}]}",
        "  - {Name: b, Script: '1'}",
        "  - {Name: c, Script: '1'}",
    )
    assert read_definitions(text.replace(*change), body="workflow").warnings == ()


def test_a_step_that_nothing_leads_to_is_warned_about():
    text = steps("  - {Name: a, Script: '1', End: true}", "  - {Name: b, Script: '1'}")
    messages = [warning.message for warning in read_definitions(text, body="workflow").warnings]
    assert messages == ["no path leads to step 'b'"]


def test_a_template_in_the_old_form_is_warned_about():
    text = "Inputs: [{Name: topic}]\n" + steps(
        "  - {Name: a, Prompt: 'On ${topic}', Store: overview}",
        "  - {Name: b, Action: Print, Parameters: {Message: '${ overview }', Deep: ['${overview}']}}",
    )
    warnings = read_definitions(text, body="workflow").warnings
    assert [warning.hint for warning in warnings] == ["write ${inputs.topic}", "write ${state.overview}"]
    assert [warning.line for warning in warnings] == [4, 5]


def test_the_old_system_s_files_are_read_as_it_did():
    text = steps(
        "  - {Name: a, Next: [{Step: b}]}",
        "  - {Name: b, Type: wait, Seconds: 1}",
        "  - {Name: c, Type: action, Parameters: {x: 1}}",
        "  - {Name: d, Prompt: x, Each: {As: i}, Seconds: 3, Script: '1'}",
        "  - {Name: e, Content: [{Text: x}]}",
    )
    found = read_definitions("Inputs: [{Name: a, As: b}]\n" + text, body="workflow", dialect="dive")
    workflow = found.workflows[0]
    assert [step.type for step in workflow.steps] == ["", "wait", "action", "prompt", ""]
    assert workflow.step("d").each == Each(None, "i")
    assert workflow.inputs[0].as_ == "b"
    assert {warning.key for warning in found.warnings} == {"As", "Script", "Seconds"}
    assert all(warning.severity == "warning" for warning in found.warnings)


@pytest.mark.parametrize("text", ["Join: true", "Each: {Items: [], Parallel: 2}"])
def test_extensions_are_unknown_to_the_old_system(text):
    lines = step_error(steps("  - Name: s", "    Script: '1'", f"    {text}"), dialect="dive")
    assert "unknown key" in lines[0]
    assert 'only in the dialect "divebook"' in lines[0]


def test_the_old_system_knows_five_providers():
    assert 'unsupported provider: "google"' in lines_of("Agents: [{Name: a, Provider: google}]", dialect="dive")[0]
    assert read_definitions("Agents: [{Name: a, Provider: google}]").agents[0].provider == "google"


def test_nameless_agents_of_the_old_system_are_numbered():
    found = read_definitions("Agents: [{Goal: x}, {Goal: y}]", dialect="dive")
    assert [agent.name for agent in found.agents] == ["agent-1", "agent-2"]


@pytest.mark.parametrize("dialect", ["divebook", "dive"])
def test_step_names_are_unique_in_both_dialects(dialect):
    text = steps("  - {Name: s, Script: '1'}", "  - {Name: s, Script: '1'}")
    told = {"divebook": "two steps are called 's' (lines 3 and 4)", "dive": "step already registered: s"}
    assert told[dialect] in step_error(text, dialect=dialect)[0]


def test_the_name_may_be_given_outside():
    text = "Steps: [{Name: s, Script: '1'}]"
    assert read_workflow(text, name="w").name == "w"
    assert read_workflow("Name: w\n" + text, name="w").name == "w"
    with pytest.raises(DefinitionError, match="Name is 'v', but the name given to the whole definition is 'w'"):
        read_workflow("Name: v\n" + text, name="w")


def test_one_agent_is_read():
    agent = read_agent("Goal: Write\nModel: scripted", name="writer")
    assert (agent.name, agent.goal, agent.model) == ("writer", "Write", "scripted")
    assert read_agent({"name": "a"}).name == "a"


def test_each_workflow_keeps_its_own_text():
    found = read_definitions(
        "Name: e\nWorkflows:\n  - Name: a\n    Steps:\n      - {Name: s, Script: '1'}\n  - Name: b\n"
        "    Steps: [{Name: t, Script: '2'}]\n"
    )
    assert found.workflows[0].source == "Name: a\nSteps:\n  - {Name: s, Script: '1'}\n"
    assert read_workflow(found.workflows[1].source) == found.workflows[1]


def test_plain_python_data_is_read_like_text():
    found = definitions_from({"Name": "e", "Workflows": [{"Name": "w", "Steps": [{"Name": "s", "Script": "1"}]}]})
    assert found.workflows[0].first_step.script == "1"


@pytest.mark.parametrize("value", [{"Name": {1, 2}}, {1: 2}, {"Name": b"x"}])
def test_python_data_that_is_not_plain_is_refused(value):
    with pytest.raises(DefinitionError):
        definitions_from(value)


def test_problems_in_python_data_name_the_place():
    with pytest.raises(DefinitionError, match=r"<mapping> at Workflows\[0\]\.Steps\[0\]\.Promt: unknown key 'Promt'"):
        definitions_from({"Workflows": [{"Name": "w", "Steps": [{"Name": "s", "Promt": "x"}]}]})


def test_agents_that_nobody_defined_are_located():
    found = read_definitions(
        "Agents:\n  - Name: writer\nWorkflows:\n  - Name: w\n    Steps:\n"
        "      - Name: a\n        Agent: wirter\n        Prompt: x\n      - {Name: b, Prompt: x}\n"
    )
    (problem,) = missing_agents(found.workflows[0], ["writer"])
    place = problem.below("Workflows", 0).place
    assert (problem.message, found.positions[place]) == ("agent wirter not found", (7, 16))
    assert problem.hint == "did you mean 'writer'?"
    assert missing_agents(found.workflows[0], ["wirter"]) == []
