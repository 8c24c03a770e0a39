"""Each permission of the table in SECURITY.md: refused without it, possible with it."""

import re
import sqlite3
import sys
from pathlib import Path

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.definitions import ApprovalRule, definitions_from
from divebook.definitions.definition import Definitions
from divebook.definitions.resources import AgentDefinition, Config, WorkspaceDefinition
from divebook.definitions.servers import MCPServerDefinition
from divebook.documents import Policy
from divebook.environments.settings import EnvironmentWorkspaces
from divebook.errors import NotFoundError, SetupError
from divebook.workspaces.local import FilesWorkspace
from tests.tools.conftest import SERVERS
from tests.trust.strange import SECRETS, Recorder, recording

PATIENCE = 120
SECURITY = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in a folder with hidden files, version control and a store."""
    place = tmp_path / "project"
    files = (".git/config", ".env", ".github/ci.yml", "CVS/Root", "docs/a.md", "repo.git/HEAD", "repo.git/config")
    for name in files:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("as it was")
    for name in ("repo.git/objects", "repo.git/refs"):
        (place / name).mkdir()
    (place / "link").symlink_to(".git")
    (place / "env-link").symlink_to(".env")
    (tmp_path / "outside.txt").write_text("as it was")
    monkeypatch.chdir(place)
    monkeypatch.delenv("DIVEBOOK_ALLOW", raising=False)
    return place


def world(definition, *allowed, **settings):
    made = Environment(store="runs.db", policy=Policy(*allowed), printer=lambda _: None, **settings)
    made.define(definitions_from(definition) if isinstance(definition, dict) else definition)
    return made


def ran(definition, *allowed, **settings):
    """Return the run of a definition's only workflow, as it stands when it ends or waits."""
    with world(definition, *allowed, **settings) as environment:
        run = environment.start("w").wait(PATIENCE)
        run.said = said_in(run)
        return run


def said_in(run):
    """Return the whole log of a run as a text."""
    return " ".join(str(event) for event in run.history())


def calling(tool, arguments, agent=None, **more):
    own = {"Name": "a", "Model": "scripted", "Tools": [tool], "Script": [{"call": {tool: arguments}}, "done"]}
    steps = [{"Name": "s", "Agent": "a", "Prompt": "go", "Store": "said"}]
    return {"Agents": [{**own, **(agent or {})}], "Workflows": [{"Name": "w", "Steps": steps}], **more}


def acting(name, workspace=None, **parameters):
    step = {"Name": "s", "Action": name, "Parameters": parameters, "Store": "said"}
    space = {"Name": "app", "Folder": ".", "Shell": False, "InPlace": True} | (workspace or {})
    return {"Workspaces": [space], "Workflows": [{"Name": "w", "Workspace": "app", "Steps": [step]}]}


# --- files ---------------------------------------------------------------------------------------------------------

PROTECTED = [".git/config", "./.git//config", "docs/../.git/config", "link/config", ".env", "env-link", ".new/file"]
PROTECTED += ["CVS/Root", "cvs/new", "repo.git/config", "runs.db", "runs.db-wal", "runs.db.cache/x"]
WAYS = {
    "Workspace.Write": lambda path: acting("Workspace.Write", Path=path, Content="changed"),
    "Workspace.Delete": lambda path: acting("Workspace.Delete", Path=path),
    "Workspace.Read": lambda path: acting("Workspace.Read", Path=path),
    "Document.Write": lambda path: acting("Document.Write", Path=path, Content="changed"),
    "write_file": lambda path: calling("write_file", {"path": path, "content": "changed"}),
    "read_file": lambda path: calling("read_file", {"path": path}),
}
UNASKED = {"Config": {"ConfirmationMode": "never"}}


def state_of(folder):
    """Return what the protected files hold."""
    names = (".git/config", ".env", ".new/file", "CVS/Root", "cvs/new", "repo.git/config")
    return {name: (folder / name).read_text() if (folder / name).exists() else None for name in names}


@pytest.mark.parametrize("way", WAYS)
def test_hidden_files_version_control_and_the_store_need_permission(folder, way):
    before = state_of(folder)
    paths = [path for path in PROTECTED if (way, path) != ("Workspace.Delete", "env-link")]  # a link of the folder
    with world(UNASKED, "approvals") as environment:  # nothing is asked: the file itself is refused
        for path in paths:
            environment.define(definitions_from(WAYS[way](path)))
            run = environment.start("w").wait(PATIENCE)
            assert (path, run.status) == (path, "failed" if "." in way else "completed")
            assert re.search(
                r"is hidden|version control|is a git repository|belongs to the store|not found", said_in(run)
            ), path
    assert state_of(folder) == before
    assert sqlite3.connect("runs.db").execute("pragma integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("way", ["Workspace.Write", "write_file"])
def test_hidden_files_are_written_where_that_is_allowed(folder, way):
    run = ran({**WAYS[way](".git/config"), **UNASKED}, "approvals", "hidden")
    assert (run.status, (folder / ".git/config").read_text()) == ("completed", "changed")


@pytest.mark.parametrize("place", [".git", "link", "docs/../.git", "repo.git", ".."])
def test_a_workspace_cannot_lie_in_a_protected_folder(place):
    run = ran(acting("Workspace.List", {"Folder": place}))
    assert run.status == "failed"
    assert "DIVEBOOK_ALLOW=" in run.error


REPOSITORIES = [
    [*order]
    for marks in (["HEAD", "objects/x", "refs/heads/x"], ["HEAD", "commondir"])
    for order in (marks, marks[::-1], [*marks[1:], marks[0]])
]
"""Files by which git takes a folder for a repository, in several orders."""


def writing(way, files):
    """Return a definition that writes files one after the other, in one of several ways."""
    if way == "write_file":
        script = [{"call": {"write_file": {"path": path, "content": "x"}}} for path in files]
        agent = {"Name": "a", "Model": "scripted", "Tools": ["write_file"], "Script": [*script, "done"]}
        return {"Agents": [agent], "Workflows": [{"Name": "w", "Steps": [{"Name": "s", "Agent": "a", "Prompt": "go"}]}]}
    steps = [
        {"Name": f"s{number}", "Action": way, "Parameters": {"Path": path, "Content": "x"}}
        for number, path in enumerate(files)
    ]
    spaces = [{"Name": "app", "Folder": ".", "Shell": False, "InPlace": True}]
    return {"Workspaces": spaces, "Workflows": [{"Name": "w", "Workspace": "app", "Steps": steps}]}


@pytest.mark.parametrize("way", ["Document.Write", "Workspace.Write", "write_file"])
@pytest.mark.parametrize("place", ["", "docs/", "new/er/"])
@pytest.mark.parametrize("files", REPOSITORIES, ids=" ".join)
def test_a_definition_cannot_make_a_repository_of_git(folder, way, place, files):
    ran(
        writing(way, [f"{place}config", *(place + name for name in files)]),
        approvals=[ApprovalRule(tool="*", outcome="allow")],
    )
    held = {path.name for path in (folder / place).iterdir()}
    assert held >= {"config", files[0].partition("/")[0]}
    assert files[-1].partition("/")[0] not in held


def test_an_ordinary_folder_may_have_some_names_of_a_repository(folder):
    names = ["objects/a.md", "refs/b.md", "src/HEAD", "src/refs/c.md"]
    assert ran(writing("Document.Write", names)).status == "completed"
    assert all((folder / name).read_text() == "x" for name in names)


def test_patterns_and_lists_leave_out_what_is_hidden(folder):
    found = ran(acting("Workspace.Glob", Pattern="**/*")).variables["said"]
    assert not [name for name in found if name.startswith((".", "CVS", "runs.db", "repo.git/"))]
    assert "docs/a.md" in found
    names = ran(acting("Workspace.List")).variables["said"]
    assert set(names) == {"docs", "env-link", "link"}


def test_a_folder_that_holds_hidden_files_is_not_moved(folder):
    (folder / "nested/.git").mkdir(parents=True)
    call = calling("move", {"pairs": [{"src": "nested", "dst": "away"}]}, {"Workspace": "app"}, **UNASKED)
    run = ran({**call, "Workspaces": acting("x")["Workspaces"]}, "approvals")
    assert "it contains .git, which is not allowed" in run.said
    assert (folder / "nested/.git").is_dir()


def test_a_copy_of_the_folder_has_no_copy_of_the_store(folder):
    (folder / "runs.database").write_text("of the project")
    run = ran(acting("Workspace.Glob", {"InPlace": False}, Pattern="*"))
    assert "runs.db" not in run.variables["said"]
    assert "runs.database" in run.variables["said"]


@pytest.mark.parametrize("way", ["Workspace.Write", "write_file", "Workspace.Read"])
def test_files_outside_the_folder_need_permission(folder, way):
    run = ran({**WAYS[way]("../outside.txt"), **UNASKED}, "approvals")
    assert run.status in ("failed", "completed")
    assert (folder / "../outside.txt").read_text() == "as it was"
    if way == "write_file":
        ran({**WAYS[way]("../outside.txt"), **UNASKED}, "approvals", "files")
        assert (folder / "../outside.txt").read_text() == "changed"


def test_what_python_code_defines_reaches_hidden_files(folder):
    model = ScriptedModel([[{"call": {"read_file": {"path": ".env"}}}], "done"])
    agent = Agent("a", model=model, tools=["read_file"])
    space = WorkspaceDefinition("app", folder=".", shell=False, in_place=True)
    steps = [
        Step("s", prompt="go", agent="a"),
        Step("t", action="Workspace.Read", parameters={"Path": ".env"}, store="v"),
    ]
    with Environment(store="memory:", agents=[agent], workspaces=[space]) as environment:
        run = environment.start(Workflow("w", steps, workspace="app")).wait(PATIENCE)
        run.said = said_in(run)
    assert run.variables["v"] == "as it was"
    assert "as it was" in run.said


def test_a_definition_that_takes_the_name_of_python_code_has_less_permission(folder):
    space = WorkspaceDefinition("app", folder=".", shell=False, in_place=True)
    run = ran(acting("Workspace.Write", Path=".env", Content="changed"), workspaces=[space])
    assert (run.status, (folder / ".env").read_text()) == ("failed", "as it was")


# --- programs ------------------------------------------------------------------------------------------------------

SPACE = {"Name": "app", "Folder": ".", "InPlace": True}
RUNS = {
    "Name": "runs",
    "Model": "scripted",
    "Workspace": "app",
    "Script": [{"call": {"shell": {"command": "touch started"}}}, "done"],
}
GIVES = {
    "Name": "gives",
    "Model": "scripted",
    "Tools": ["assign_work"],
    "Script": [
        {"call": {"assign_work": {"agent": "runs", "name": "n", "description": "d", "expected_output": "e"}}},
        "done",
    ],
}
SHELL = {"Action": "Workspace.Shell", "Parameters": {"Command": "touch started"}}


def flow(*steps, **more):
    return [{"Name": "w", "Steps": [{"Name": f"s{number}", **step} for number, step in enumerate(steps)], **more}]


COMMANDS = {
    "an agent": {"Workflows": flow({"Agent": "runs", "Prompt": "go"})},
    "the only agent": {"Workflows": flow({"Prompt": "go"})},
    "an agent for each item": {
        "Workflows": flow({"Agent": "runs", "Prompt": "go", "Each": {"Items": [1, 2], "As": "i"}})
    },
    "an agent behind an error": {
        "Workflows": flow({"Script": "1 / 0", "Catch": [{"Step": "s1"}]}, {"Agent": "runs", "Prompt": "go"})
    },
    "an agent of another": {"Agents": [GIVES, RUNS], "Workflows": flow({"Agent": "gives", "Prompt": "go"})},
    "an action": {"Workflows": flow(SHELL, Workspace="app")},
    "an action with a workspace of its own": {"Workflows": flow({**SHELL, "Workspace": "app"})},
    "a rollback": {"Workflows": flow({"Script": "1", "Rollback": SHELL}, {"Script": "1 / 0"}, Workspace="app")},
    "another workflow": {
        "Workflows": [*flow({"Workflow": "other"}), {**flow(SHELL, Workspace="app")[0], "Name": "other"}]
    },
    "a stage": {"Pipelines": [{"Name": "w", "Stages": [{"Name": "draft", "Agent": "runs"}]}]},
    "a stage beside others": {
        "Pipelines": [{"Name": "w", "Mode": "parallel", "Stages": [{"Name": "draft", "Agent": "runs"}]}]
    },
    "an agent of a stage's agent": {
        "Agents": [GIVES, RUNS],
        "Pipelines": [{"Name": "w", "Stages": [{"Name": "draft", "Agent": "gives"}]}],
    },
}


@pytest.mark.parametrize("way", COMMANDS)
def test_no_way_to_a_workspace_starts_programs_without_permission(folder, way):
    definition = {"Agents": [RUNS], "Workspaces": [SPACE], **COMMANDS[way]}
    allowed = [ApprovalRule(tool="*", outcome="allow")]
    try:
        ended = ran(definition, approvals=allowed).error or ""
    except SetupError as error:
        ended = str(error)
    assert "programs are not allowed" in ended
    assert not (folder / "started").exists()
    ran(definition, "programs", approvals=allowed)
    assert (folder / "started").exists()


def test_a_workspace_is_refused_where_it_is_opened_too(folder):
    with world({"Workspaces": [SPACE]}) as environment:
        space = environment.definitions.workspaces["app"]
        with pytest.raises(SetupError, match="programs are not allowed"):
            EnvironmentWorkspaces(environment.internals.registry, environment.store).made(space, folder, lambda _: None)


@pytest.mark.parametrize("has_snapshots", [True, False], ids=["with snapshots", "without snapshots"])
def test_a_log_that_names_the_folder_of_another_run_does_not_reach_its_files(folder, monkeypatch, has_snapshots):
    space = {"Name": "app", "Folder": "docs", "Shell": False, "Snapshots": has_snapshots}
    writes = {"Action": "Workspace.Write", "Parameters": {"Path": "notes.md", "Content": "of the first run"}}
    changes = {"Action": "Workspace.Write", "Parameters": {"Path": "notes.md", "Content": "changed"}}
    reads = {"Action": "Workspace.Read", "Parameters": {"Path": "notes.md"}}
    first = {"Workspaces": [space], "Workflows": flow(writes, Workspace="app")}
    steps = [{"Action": "Workspace.List"}, {"Ask": {"Question": "Go on?"}}, reads, changes]
    second = {"Workspaces": [space], "Workflows": flow(*steps, Workspace="app")}
    held = folder / "workspaces" / ran(first).id / "app"
    (folder / "elsewhere").mkdir()
    with Environment(store="elsewhere/runs.db", printer=lambda _: None) as environment:
        environment.define(definitions_from(second))
        with monkeypatch.context() as changed:
            changed.setattr(FilesWorkspace, "reference", property(lambda _: {"folder": str(held)}))
            asking = environment.start("w").wait(PATIENCE)
        environment.run_of(asking.id).export("moved.jsonl", move=True)
    with world(second) as environment:
        run = environment.open("moved.jsonl", keep=True)
        environment.answer(run.open_questions[0].id, "yes", run.id)
        run.resume()
        run.wait(PATIENCE)
        assert run.status == "failed"
        assert "of the first run" not in said_in(run)
    assert (held / "notes.md").read_text() == "of the first run"


# --- questions -----------------------------------------------------------------------------------------------------

WRITES = {"path": "notes.md", "content": "changed"}
RELAXED = {
    "a mode": calling("write_file", WRITES, Config={"ConfirmationMode": "never"}),
    "a rule": calling("write_file", WRITES, Config={"Approvals": [{"Tool": "write_file"}]}),
    "a rule of the agent": calling("write_file", WRITES, {"Approvals": [{"Tool": "*", "Outcome": "allow"}]}),
    "both": calling(
        "write_file", WRITES, {"Approvals": [{"When": "destructive"}]}, Config={"ConfirmationMode": "never"}
    ),
}


@pytest.mark.parametrize("how", RELAXED)
def test_a_definition_cannot_ask_less(folder, how, logs):
    run = ran(RELAXED[how])
    assert ([question.question for question in run.open_questions], (folder / "notes.md").exists()) == (
        ["Run write_file?"],
        False,
    )
    assert any("the definition lowers the approval settings" in line for line in logs())
    run = ran(RELAXED[how], "approvals")
    assert (run.status, (folder / "notes.md").read_text()) == ("completed", "changed")


@pytest.mark.parametrize(
    "settings",
    [{"ApprovalMode": "never"}, {"ApprovalFilter": {"Never": ["add"]}}, None],
    ids=["mode", "filter", "trusted"],
)
def test_a_server_of_a_definition_cannot_ask_less(settings):
    server = {"Name": "good", "Type": "stdio", "Command": sys.executable, "Args": [str(SERVERS / "good.py")]}
    server |= {"Trusted": True} if settings is None else {"ToolConfiguration": settings}
    definition = {**calling("add", {"a": 1, "b": 2}), "MCPServers": [server]}
    run = ran(definition, "programs")
    assert ([question.question for question in run.open_questions], run.error) == (["Run add?"], None)
    assert ran(definition, "programs", "approvals").status == "completed"


def test_what_a_definition_makes_stricter_holds_and_what_a_person_allows_is_not_asked(folder):
    reads = calling("read_file", {"path": "docs/a.md"}, Config={"ConfirmationMode": "always"})
    assert [question.question for question in ran(reads).open_questions] == ["Run read_file?"]
    denies = calling("read_file", {"path": "docs/a.md"}, Config={"Approvals": [{"Tool": "*", "Outcome": "deny"}]})
    assert "A rule denies read_file" in ran(denies).said
    assert ran(RELAXED["a mode"], approvals=[{"tool": "write_file"}]).status == "completed"
    own = Definitions(config=Config(confirmation_mode="never"))
    with world(own) as environment:
        environment.define(definitions_from(calling("write_file", WRITES)))
        assert environment.start("w").wait(PATIENCE).status == "completed"


def test_changes_of_a_copy_are_applied_after_a_question_only(folder):
    (folder / "notes.md").write_text("as it was")
    steps = acting("Workspace.Write", {"InPlace": False}, Path="notes.md", Content="changed")
    steps["Workflows"][0]["Steps"].append({"Name": "t", "Action": "Workspace.Apply", "Parameters": {"Ask": False}})
    run = ran(steps)
    assert [question.question for question in run.open_questions] == [
        "Which of these files should be applied to the folder?"
    ]
    assert (folder / "notes.md").read_text() == "as it was"
    assert ran(steps, "approvals").status == "completed"
    assert (folder / "notes.md").read_text() == "changed"


# --- variables -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorder():
    with recording() as found:
        yield found


NAME, VALUE = "GITHUB_TOKEN", SECRETS["GITHUB_TOKEN"]
MODEL = {"Provider": "openai", "Model": "gpt-5-mini", "Tools": [], "Retry": {"Attempts": 1}}


def far(recorder: Recorder, **more):
    server = {"Name": "far", "Type": "http", "URL": f"{recorder.address}/mcp", "Timeout": "5s", **more}
    return {**calling("far/go", {}), "MCPServers": [server]}


NAMED = {
    "a header": lambda it: far(it, Headers={"X-Note": f"env://{NAME}"}),
    "a variable in a header": lambda it: far(it, Headers={"X-Note": f"a ${{{NAME}}} b"}),
    "a token": lambda it: far(it, AuthorizationToken=f"${NAME}"),
    "a secret of OAuth": lambda it: far(it, OAuth={"ClientID": "x", "ClientSecret": f"env://{NAME}"}),
    "a variable of a program": lambda it: {
        **calling("near/go", {}),
        "MCPServers": [{"Name": "near", "Type": "stdio", "Command": "false", "Env": {"KEY": f"env://{NAME}"}}],
    },
    "an argument of a program": lambda it: {
        **calling("near/go", {}),
        "MCPServers": [{"Name": "near", "Type": "stdio", "Command": "false", "Args": [f"${NAME}"]}],
    },
    "a key": lambda it: calling("read_file", {}, {**MODEL, "ApiKey": f"env://{NAME}"}),
    "a header of a model": lambda it: calling(
        "read_file", {}, {**MODEL, "ModelSettings": {"RequestHeaders": {"X-Note": f"Bearer env://{NAME}"}}}
    ),
    "a header of a provider": lambda it: calling(
        "read_file", {}, MODEL, Config={"Providers": [{"Name": "openai", "RequestHeaders": {"X": f"env://{NAME}"}}]}
    ),
    "a secret of a workspace": lambda it: acting("Workspace.List", {"Secrets": {"KEY": f"env://{NAME}"}}),
}


@pytest.mark.parametrize("place", NAMED)
def test_variables_need_permission_before_anything_starts(place, recorder):
    recorder.received.clear()
    with world(NAMED[place](recorder), "addresses", "programs", "environment:ANOTHER") as environment:
        with pytest.raises(SetupError, match=f"--allow environment:{NAME}"):
            environment.start("w")
        assert (list(environment.store.ids()), recorder.received) == ([], [])


@pytest.mark.parametrize("is_first", [True, False], ids=["before the agent", "after the agent"])
def test_a_provider_of_a_definition_does_not_get_the_permissions_of_an_agent_of_python_code(recorder, is_first):
    recorder.received.clear()
    settings = {"Config": {"Providers": [{"Name": "openai", "RequestHeaders": {"X-Note": f"env://{NAME}"}}]}}
    workflow = {"Workflows": [{"Name": "w", "Steps": [{"Name": "s", "Agent": "own", "Prompt": "go"}]}]}
    texts = definitions_from({**settings, **workflow})
    code = Definitions(agents=(AgentDefinition("own", goal="Help", provider="openai", model="gpt-5-mini"),))
    definitions = [texts, code] if is_first else [code, texts]
    with world(definitions[0], "addresses") as environment:
        environment.define(definitions[1])
        with pytest.raises(SetupError, match=NAME):
            environment.start("w")
    assert not recorder.received


@pytest.mark.parametrize("allowed", ["environment", f"environment:{NAME}"])
def test_variables_are_sent_where_that_is_allowed(recorder, allowed):
    recorder.received.clear()
    ran(NAMED["a header"](recorder), "addresses", allowed)
    assert VALUE in recorder.received[0]


def test_files_of_references_are_those_of_the_folder_and_not_hidden(recorder):
    for reference, kind in (("file://.env", "hidden"), ("file://../outside.txt", "files")):
        refused = pytest.raises(SetupError, match=f"--allow {kind}")
        with world(far(recorder, Headers={"X-Note": reference}), "addresses") as environment, refused:
            environment.start("w")


def test_a_server_that_python_code_adds_may_name_variables(recorder):
    recorder.received.clear()
    server = MCPServerDefinition("far", "http", url=f"{recorder.address}/mcp", headers={"X-Note": f"env://{NAME}"})
    ran(calling("far/go", {}), servers=[server])
    assert VALUE in recorder.received[0]


# --- programs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [{}, {"Kind": "fenced"}, {"Kind": "virtualenv", "Python": "./touch.sh"}, {"Kind": "docker", "Image": "none"}],
    ids=["local", "fenced", "virtualenv", "docker"],
)
def test_a_workspace_without_shell_starts_no_program(folder, more):
    (folder / "touch.sh").write_text(f"#!/bin/sh\ntouch {folder}/pwned\n")
    (folder / "touch.sh").chmod(0o755)
    run = ran(acting("Workspace.Shell", more, Command="./touch.sh"))
    assert (run.status, (folder / "pwned").exists()) == ("failed", False)
    assert "its definition has Shell: false" in run.error
    assert ran(acting("Workspace.Read", more, Path="docs/a.md")).variables["said"] == "as it was"


def test_a_definition_may_use_a_workspace_of_python_code(folder):
    """Its steps run there, as they may call registered actions; what its agents run is asked about."""
    space, asked = WorkspaceDefinition("app", folder=".", in_place=True), {"Agents": [RUNS]}
    run = ran({"Workflows": flow(SHELL, Workspace="app")}, workspaces=[space])
    assert (run.status, (folder / "started").exists()) == ("completed", True)
    (folder / "started").unlink()
    run = ran({**asked, "Workflows": flow({"Agent": "runs", "Prompt": "go"})}, workspaces=[space])
    assert ([question.kind for question in run.open_questions], (folder / "started").exists()) == (
        ["confirmation"],
        False,
    )
    with pytest.raises(SetupError, match="programs are not allowed"):  # it takes the name of the workspace
        ran({"Workspaces": [SPACE], "Workflows": flow(SHELL, Workspace="app")}, workspaces=[space])


APPLY = [
    {"Action": "Workspace.Write", "Parameters": {"Path": "notes.md", "Content": "changed"}},
    {"Action": "Workspace.Apply", "Parameters": {"Ask": False}},
]


@pytest.mark.parametrize("origin", ["a text", "a text that is added again", "a log", "code", "code without a name"])
def test_only_workflows_of_python_code_apply_changes_of_its_workspaces_unasked(folder, origin):
    (folder / "notes.md").write_text("as it was")
    definition = definitions_from({"Workflows": flow(*APPLY, Workspace="app")})
    space = WorkspaceDefinition("app", folder=".")
    (workflow,) = definition.workflows
    with Environment(store="runs.db", policy=Policy(), workspaces=[space], printer=lambda _: None) as environment:
        match origin:
            case "a text" | "a text that is added again":
                environment.define(definition)
            case "code":
                environment.add_workflow(workflow)
        if origin == "a text that is added again":
            environment.add_workflow(environment.internals.registry.workflow("w"), replace=True)
            run = environment.start(environment.internals.registry.workflow("w")).wait(PATIENCE)
        elif origin == "a log":
            with Environment(store="memory:", workspaces=[space], workflows=[workflow]) as other:
                log = other.store.read(other.start("w").wait(PATIENCE).id)
            (folder / "notes.md").write_text("as it was")
            environment.store.append(log[0].execution_id, log[:1], 0)
            run = environment.run_of(log[0].execution_id).resume().wait(PATIENCE)
        else:
            run = environment.start(workflow if origin == "code without a name" else "w").wait(PATIENCE)
    is_of_code = origin.startswith("code")
    assert len(run.open_questions) == (not is_of_code)
    assert (folder / "notes.md").read_text() == ("changed" if is_of_code else "as it was")


def test_a_definition_cannot_name_the_address_of_an_executor():
    definition = acting("Time.Now")
    definition["Workflows"][0]["Steps"][0]["Executor"] = "tcp://127.0.0.1:8786"
    with world(definition) as environment, pytest.raises((NotFoundError, SetupError), match="executor"):
        environment.start("w")


# --- the table -----------------------------------------------------------------------------------------------------


def test_each_line_of_the_table_names_a_test_that_is_there():
    table = SECURITY.partition("## Permissions of a definition")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| A definition")]
    assert len(rows) > 10
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", table)
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), (file, test)
    assert set(re.findall(r"`(\w+)`", table)) >= set(Policy("files").allowed)
