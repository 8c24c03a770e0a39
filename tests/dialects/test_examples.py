"""Files such as the old system came with, one of each kind, run unedited on the scripted model.

Each says little, but uses what its kind uses: providers without a model, tools, servers, loops, contexts of files,
pictures and programs, the clock, chance and the old script language.
"""

import json
import subprocess
import sys
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import pytest

from divebook import Agent, ScriptedModel, tool
from divebook.config import load
from divebook.documents import FileDocuments
from divebook.documents.policy import Policy
from divebook.environments.environment import Environment
from divebook.stores import MemoryStore
from tests.tools.conftest import defined
from tests.websites import serving

HEAD = "Name: Example\nDescription: An example\nConfig:\n"
QUIET = HEAD + "  {LogLevel: warn, ConfirmationMode: never, DefaultProvider: anthropic}\n"


def asking(head, tools, *prompts, inputs="", servers=""):
    """Return a file in which one agent answers prompts, each stored, and the last answer is written to a document."""
    part = "      - Name: Part {0}\n        Agent: A\n        Prompt: |\n          {1}\n        Store: part_{0}\n"
    steps = [part.format(number, prompt) for number, prompt in enumerate(prompts)]
    return (
        f"{head}{servers}Agents:\n  - Name: A\n    Goal: Help\n    Tools: {tools}\n"
        f"    ModelSettings: {{MaxTokens: 16384, ReasoningEffort: medium}}\n"
        f"Workflows:\n  - Name: Main\n{inputs}    Steps:\n{''.join(steps)}"
        f"      - Name: Write\n        Action: Document.Write\n"
        f"        Parameters: {{Path: output/it.md, Content: '${{state.part_{len(prompts) - 1}}}'}}\n"
    )


DIRECTORY = "    Inputs: [{Name: directory, Type: string, Description: where, Default: '.'}]\n"
EXAMPLES = {
    "code_overview": asking(
        QUIET,
        "[web_search, fetch, list_directory, read_file]",
        'List "${inputs.directory}"',
        "Of ${state.part_0}",
        inputs=DIRECTORY,
    ),
    "company_overview": asking(
        HEAD + "  {DefaultProvider: anthropic, DefaultModel: claude-sonnet-4-20250514}\n",
        "[web_search, fetch]",
        'The page of "${inputs.company}"',
        "Read ${state.part_0}",
        "Analyse ${state.part_1}",
        inputs="    Inputs: [{Name: company, Type: string}]\n",
    ),
    "context_example": HEAD
    + """  LogLevel: debug
Agents: [{Name: A, Provider: anthropic, Model: claude-sonnet-4-20250514, Context: [{Path: ./opening.txt}]}]
Workflows:
  - Name: Main
    Steps:
      - {Name: Procedures, Type: prompt, Prompt: Tell of our procedures.}
      - {Name: Standards, Type: prompt, Prompt: Tell of our standards., Content: [{Path: ./opening.txt}]}
      - {Name: Picture, Type: prompt, Content: [{Path: ./pictures/dot.png}, {Text: What is in it?}]}
      - {Name: All, Type: prompt, Prompt: Tell of these., Content: [{Path: '*.md'}]}
""",
    "current_time": QUIET
    + """Agents: [{Name: A, Goal: Respond kindly}]
Workflows:
  - Name: Main
    Steps:
      - {Name: Time, Action: Time.Now, Store: current_time}
      - {Name: Greet, Prompt: "Say hello at ${state.current_time}."}
""",
    "dynamic_context": QUIET
    + """Agents: [{Name: A, Provider: anthropic, Model: claude-sonnet-4-20250514}]
Workflows:
  - Name: Main
    Steps:
      - Name: Inline
        Type: prompt
        Prompt: What do you see?
        Content:
          - Dynamic: |
              {
                "type": "text",
                "text": "At " + string(time.now()) + "\\nNumber " + string(rand.intn(100))
              }
      - {Name: Program, Type: prompt, Prompt: And here?, Content: [{DynamicFrom: ./generate.py}]}
""",
    "generate_images": asking(
        QUIET,
        "[generate_image]",
        "Three ideas",
        "Draw 1 of ${state.part_0}",
        "Draw 2 of ${state.part_0}",
        inputs="    Inputs: []\n",
    ),
    "go_program": asking(
        HEAD + "  {DefaultProvider: anthropic, LogLevel: debug, ConfirmationMode: if-destructive}\n",
        "[list_directory, write_file, read_file, command]",
        'Write "${inputs.intent}" in ${inputs.directory}',
        "Sum up ${state.part_0}",
        inputs="    Inputs: [{Name: intent, Type: string}, {Name: directory, Type: string, Default: here}]\n",
    ),
    "looping_workflow": QUIET
    + """Agents: [{Name: A, Goal: Analyse}]
Workflows:
  - Name: Main
    Steps:
      - Name: Each One
        Agent: A
        Prompt: Describe ${state.language}
        Each: {Items: ['Python', 'Go', 'Rust'], As: language}
        Store: descriptions
      - {Name: Together, Agent: A, Prompt: "Compare ${state.descriptions}", Store: summary}
      - {Name: Save, Action: Document.Write, Parameters: {Path: output/languages.md, Content: "${state.summary}"}}
""",
    "mcp_github_assistant": asking(
        HEAD + "  {DefaultProvider: anthropic, ConfirmationMode: if-destructive}\n",
        "[get_issue, list_issues]",
        "The issues of ${inputs.repository}",
        inputs="    Inputs: [{Name: repository, Type: string, Default: a/b}]\n",
        servers="MCPServers:\n  - {Type: stdio, Name: hub, Command: docker, Args: ['-e', 'TOKEN=${TOKEN}'],\n"
        "     ToolConfiguration: {AllowedTools: [get_issue, list_issues]}}\n",
    ),
    "mcp_oauth_example": asking(
        HEAD + "  {DefaultProvider: anthropic}\n",
        "[search]",
        "Search",
        servers="MCPServers:\n  - {Type: http, Name: far, URL: 'https://example.com/mcp', OAuth: {Scopes: [read],\n"
        "     RedirectURI: 'http://localhost:8085/cb', PKCEEnabled: true, TokenStore: {Type: file, Path: t.json}}}\n",
    ),
    "mcp_simple_demo": asking(
        HEAD + "  {DefaultProvider: anthropic, ConfirmationMode: always, LogLevel: warn}\n",
        "[git_status, git_diff]",
        "Run git_status",
        servers="MCPServers: [{Type: stdio, Name: git, Command: uvx, Env: {DEBUG: 'true'}, Args: [mcp-server-git]}]\n",
    ),
    "project_overview": asking(
        HEAD + "  {DefaultProvider: openai, DefaultModel: o4-mini, ConfirmationMode: if-destructive}\n",
        "[web_search, command]",
        "Read ${inputs.directory}",
        "Go on with ${state.part_0}",
        inputs=DIRECTORY,
    ),
    "research": asking(
        HEAD + "  {DefaultProvider: anthropic, DefaultModel: claude-sonnet-4-20250514}\n",
        "[web_search, fetch]",
        'History of "${inputs.topic}"',
        "News",
        "Facts",
        "Join ${state.part_0} ${state.part_2}",
        inputs="    Inputs: [{Name: topic, Type: string, Default: Maple syrup}]\n",
    ),
    "script_contexts": HEAD
    + """  LogLevel: info
Agents: [{Name: A, Provider: anthropic, Model: claude-sonnet-4-20250514}]
Workflows:
  - Name: Main
    Inputs: [{Name: given, Type: string, Default: Hello}]
    Steps:
      - Name: Template
        Type: prompt
        Agent: A
        Prompt: |
          From ${state}: ${len(string(inputs.given)) > 0 ? "available" : "not available"}
        Store: first
      - Name: Condition
        Type: prompt
        Agent: A
        Prompt: Go on
        Next: [{Step: Script, Condition: "$(len(state.first) > 0)"}]
      - Name: Script
        Type: script
        Script: |
          # chance and the clock are at hand
          result := "At: " + string(time.now())
          result = result + "\\nFrom: " + inputs.given
          result + "\\nLength: " + string(len(state.first))
        Store: script
      - {Name: Each, Type: prompt, Agent: A, Prompt: "It is ${state.item}", Each: {Items: '$(["a", "b"])', As: item},
         Store: each}
      - {Name: Last, Type: prompt, Agent: A, Prompt: "Sum up ${state.each}", End: true}
""",
}
REQUIRED = {"company_overview": {"company": "acme"}, "go_program": {"intent": "count"}}
PROGRAM = "#!/usr/bin/env python3\nimport json, os\nglobals = json.loads(os.environ['DIVE_GLOBALS'])\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "opening.txt").write_text("Open at nine.")
    (tmp_path / "notes.md").write_text("# Notes")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    program = tmp_path / "generate.py"
    program.write_text(PROGRAM + "print(json.dumps([{'type': 'text', 'text': globals['workflow']}]))\n")
    program.chmod(0o700)
    return tmp_path


def with_servers_of_ours(definitions):
    """Let a server of the tests stand for each that needs the network; it offers whatever the agents name."""
    tools = [tool for agent in definitions.agents for tool in agent.tools]
    ours = (defined("rough.py", "offers", *tools, name=server.name) for server in definitions.mcp_servers)
    return replace(definitions, mcp_servers=tuple(ours))


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_file_of_the_old_system_runs(folder, name):
    path = folder / f"{name}.yaml"
    path.write_text(EXAMPLES[name])
    definitions = with_servers_of_ours(load(path, dialect="dive"))
    with MemoryStore() as store:
        environment = Environment(store=store, documents=FileDocuments(folder), policy=Policy("programs"))
        environment.define(definitions)
        execution = environment.start("Main", REQUIRED.get(name, {}), model="scripted").wait(30)
        assert execution.status == "completed", execution.error
        started = [event.data.parameters for event in execution.history() if event.event_type == "operation_started"]
    prompts = [given["prompt"] for given in started if "prompt" in given]
    assert prompts
    assert not [prompt for prompt in prompts if "${" in prompt]


# --- with their tools called -----------------------------------------------------------------------------------------


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>Syrup</title><p>It is made of sap.</p>")


@pytest.fixture
def page():
    """Return the address of a page on this machine, in place of one of the web."""
    with serving(Page) as server:
        yield f"{server.url}/"


def call(tool, **arguments):
    return {"call": {tool: arguments}}


CALLED = {
    "code_overview": [
        [call("list_directory", path="."), call("read_file", path="notes.md"), "It holds notes."],
        [call("read_file", path="none.md"), "One is missing."],
    ],
    "company_overview": [[call("fetch", url="PAGE"), "found"], ["read"], ["analysed"]],
    "go_program": [
        [
            call("list_directory", path="pictures"),
            call("write_file", path="src/main.go", content="package main\n"),
            call("read_file", path="src/main.go"),
            "written",
        ],
        ["summed up"],
    ],
    "generate_images": [
        ["three ideas"],
        [call("generate_image", prompt="an owl", output_path="owl.png"), "drawn"],
        [call("generate_image", prompt="a lark", output_path="lark.png"), "drawn too"],
    ],
    "mcp_github_assistant": [[call("list_issues"), call("get_issue", number=7), "one is open"]],
    "mcp_oauth_example": [[call("search", query="owls"), "found"]],
    "mcp_simple_demo": [
        [call("git_status", repo_path="FOLDER"), call("git_diff", repo_path="FOLDER", target="HEAD"), "one was changed"]
    ],
    "project_overview": [
        [call("web_search", query="owls", limit=3), call("command", name="echo", args=["hello"]), "read"],
        ["gone on"],
    ],
    "research": [
        [call("fetch", url="PAGE"), "history"],
        [call("fetch", url="ftp://x"), call("web_search", query="syrup"), "news"],
        ["facts"],
        ["joined"],
    ],
}
"""By example, what the model does in each of its turns."""
RESULTS = {
    "code_overview": ["notes.md", "# Notes", "Error: File not found: none.md"],
    "company_overview": ["Syrup\n\nIt is made of sap."],
    "go_program": ["dot.png", "Successfully wrote 13 bytes to src/main.go", "package main\n"],
    "generate_images": ["an owl is in owl.png", "a lark is in lark.png"],
    "mcp_github_assistant": ["offers ", "offers "],
    "mcp_oauth_example": ["offers "],
    "mcp_simple_demo": ["modified:   notes.md", "+# More notes"],
    "project_overview": ["3 pages about owls", "hello\n"],
    "research": ["It is made of sap.", "Error: content address must start with http", "10 pages about syrup"],
}
"""Parts of what their tools return, in order."""

ASKED = {
    "go_program": ["write_file"],
    "mcp_oauth_example": ["search"],
    "mcp_simple_demo": ["git_status", "git_diff"],
    "project_overview": ["command"],
}
"""Which calls a person is asked about: those that the ConfirmationMode of the file names."""


@tool(read_only=True)
def web_search(query: str, limit: int = 10) -> str:
    """Search, as a person lets it who has the key of a service."""
    return f"{limit} pages about {query}"


@tool(destructive=True)
def command(name: str, args: list[str]) -> str:
    """Run a program."""
    return subprocess.run([name, *args], check=True, capture_output=True, text=True).stdout


@tool(destructive=False)
def generate_image(prompt: str, output_path: str) -> str:
    """Draw."""
    return f"{prompt} is in {output_path}"


OWN = (web_search, command, generate_image)
"""In place of tools of the old system that need a key or a workspace, and that a person has to write here."""


def as_repository(folder):
    """Make a folder one of git, in which a file was changed."""
    author = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    for given in (("init", "-q"), ("add", "."), (*author, "commit", "-qm", ".")):
        subprocess.run(["git", "-C", str(folder), *given], check=True, capture_output=True)
    (folder / "notes.md").write_text("# More notes")


def with_servers_of_this_machine(definitions, folder):
    """Let servers of ours stand for those of the net; the one for git is itself, without a program that fetches it."""
    if [server.name for server in definitions.mcp_servers] != ["git"]:
        return with_servers_of_ours(definitions)
    as_repository(folder)
    (git,) = definitions.mcp_servers
    return replace(definitions, mcp_servers=(replace(git, command=sys.executable, args=("-m", "mcp_server_git")),))


def prepared(turns, **places):
    """Return a script with the places that it names."""
    text = json.dumps(turns)
    for name, place in places.items():
        text = text.replace(name, place)
    return json.loads(text)


@pytest.mark.parametrize("name", CALLED)
def test_the_tools_of_a_file_of_the_old_system_are_called(folder, page, name):
    path = folder / f"{name}.yaml"
    path.write_text(EXAMPLES[name])
    definitions = with_servers_of_this_machine(load(path, dialect="dive"), folder)
    reach = Policy("programs", "addresses", "approvals")
    given = {"documents": FileDocuments(folder), "policy": reach, "tools": OWN, "printer": lambda _: None}
    with MemoryStore() as store, Environment(store=store, **given) as environment:
        environment.define(definitions)
        model = ScriptedModel(turns=prepared(CALLED[name], PAGE=page, FOLDER=str(folder)))
        environment.add_agent(Agent(environment.internals.registry.agent("A").definition, model=model), replace=True)
        execution = environment.start("Main", REQUIRED.get(name, {})).wait(30)
        asked = []
        while execution.open_questions:
            (question,) = execution.open_questions
            asked.append(question.data["tool"])
            execution.answer(question.id, {"approved": True}).wait(30)
        assert execution.status == "completed", execution.error
        results = [
            str(e.data.result)
            for e in execution.history()
            if getattr(e.data, "operation_type", "") == "tool_call" and e.event_type == "operation_completed"
        ]
    assert [wanted for wanted, got in zip(RESULTS[name], results, strict=True) if repr(wanted)[1:-1] not in got] == []
    assert asked == ASKED.get(name, [])
