"""Approval rules about files hold for the file that a call reaches, in whatever way its path is written."""

import os
import random

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow, tool
from divebook.definitions import AgentDefinition, ApprovalRule, definitions_from
from divebook.definitions.resources import WorkspaceDefinition
from divebook.documents.policy import FileArguments
from divebook.stores import MemoryStore

PATIENCE = 120
ASK = Workflow("ask", [Step("s", prompt="go", agent="a")])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in a folder with links to files, to folders, and out of it."""
    place = tmp_path / "project"
    for name in ("secret/key.txt", "docs/a.md", "docs/deep/b.md", "notes.md"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("as it was")
    links = {"docs/key-link.txt": "../secret/key.txt", "docs/out": "../secret", "vault": "secret", "twice": "vault"}
    for name, target in links.items():
        (place / name).symlink_to(target)
    (tmp_path / "there").symlink_to(place)
    monkeypatch.chdir(place)
    return place


SPELLINGS = [
    "secret/key.txt",
    "./secret/key.txt",
    ".//secret///key.txt",
    "docs/../secret/key.txt",
    "docs/deep/../../secret/key.txt",
    "docs/key-link.txt",
    "docs/out/key.txt",
    "vault/key.txt",
    "twice/key.txt",
    "twice/../secret/key.txt",
    "{folder}/secret/key.txt",
    "{folder}/vault/./key.txt",
    "{folder}/../there/docs/out/key.txt",
]
"""Of one file."""
NAMES = ["secret/key.txt", "secret/**", "**/key.txt", "vault/*", "docs/out/**", "{folder}/secret/*", "SECRET/Key.txt"]
"""By which a rule may know it."""


def written(paths, *rules, tool="write_file", argument="path", **agent):
    """Return which of the paths could be written, and which a person is asked about; each call is a run of its own."""
    asked = []
    for path in paths:
        arguments = {argument: path, "content": "changed"}
        model = ScriptedModel([[{"call": {tool: arguments}}], "done"])
        own = Agent("a", model=model, tools=[tool], approvals=rules, **agent)
        with Environment(store=MemoryStore(), agents=[own], workspaces=[SPACE]) as environment:
            run = environment.start(ASK).wait(PATIENCE)
            asked += [path] if run.open_questions else []
    return asked


SPACE = WorkspaceDefinition("app", folder=".", shell=False, in_place=True)
ALLOW = ApprovalRule("*", outcome="allow")


def denying(name, argument="path"):
    return ApprovalRule("*", arguments={argument: name}, outcome="deny")


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_that_denies_holds_for_the_file_in_each_spelling(folder, name):
    rule = denying(name.format(folder=folder))
    written([path.format(folder=folder) for path in SPELLINGS], ALLOW, rule)
    assert (folder / "secret/key.txt").read_text() == "as it was"
    written(["notes.md"], ALLOW, rule)
    assert (folder / "notes.md").read_text() == "changed"


def test_a_rule_that_denies_holds_for_tools_of_a_workspace(folder):
    paths = [path for path in SPELLINGS if "{" not in path]
    given = {"tool": "replace", "argument": "file_path", "workspace": "app"}
    written(paths, ALLOW, denying("secret/**", "file_path"), **given)
    assert (folder / "secret/key.txt").read_text() == "as it was"
    written(["notes.md"], ALLOW, denying("secret/**", "file_path"), **given)
    assert (folder / "notes.md").read_text() == "changed"


@pytest.mark.parametrize("name", ["secret/key.txt", "vault/**", "docs/out/*"])
def test_a_rule_that_denies_holds_for_documents(folder, name):
    for path in (
        "secret/key.txt",
        "/secret/key.txt",
        "docs/../secret/key.txt",
        "vault/key.txt",
        "docs/key-link.txt",
        "key",
    ):
        model = ScriptedModel([[{"call": {"write_document": {"path": path, "content": "changed"}}}], "done"])
        agent = Agent("a", model=model, tools=["write_document"], approvals=[ALLOW, denying(name)])
        with Environment(store=MemoryStore(), agents=[agent]) as environment:
            environment.definitions.documents.register("key", "secret/key.txt")
            run = environment.start(ASK).wait(PATIENCE)
            assert "A rule denies write_document" in str([request.messages for request in run.requests]), path
    assert (folder / "secret/key.txt").read_text() == "as it was"


def test_a_rule_that_denies_holds_for_both_ends_of_a_move(folder):
    rule = ApprovalRule("move", arguments={"pairs": {"src": "secret/**"}}, outcome="deny")
    pairs = [{"src": "docs/out/key.txt", "dst": "seen.txt"}]
    model = ScriptedModel([[{"call": {"move": {"pairs": pairs}}}], "done"])
    agent = Agent("a", model=model, tools=["move"], approvals=[ALLOW, rule], workspace="app")
    with Environment(store=MemoryStore(), agents=[agent], workspaces=[SPACE]) as environment:
        environment.start(ASK).wait(PATIENCE)
    assert not (folder / "seen.txt").exists()


def test_a_rule_that_allows_does_not_reach_through_links(folder):
    allow = ApprovalRule("write_file", arguments={"path": "docs/**", "content": "**"})
    links = ["docs/key-link.txt", "docs/out/key.txt", "docs/../secret/key.txt", f"{folder}/docs/out/key.txt"]
    assert written(links, allow) == links
    same = ["docs/a.md", "./docs//a.md", "docs/deep/../a.md", f"{folder}/docs/a.md", f"{folder}/../there/docs/a.md"]
    assert written(same, allow) == []
    assert (folder / "secret/key.txt").read_text() == "as it was"


@pytest.mark.parametrize("base", ["{folder}", "{folder}/../there", "{folder}/./"])
def test_a_rule_that_allows_may_name_the_folder_itself_by_a_link(folder, base):
    path = os.path.normpath(base.format(folder=folder)) if "there" not in base else f"{folder.parent}/there"
    allow = ApprovalRule("write_file", arguments={"path": f"{path}/docs/**", "content": "**"})
    assert written(["docs/a.md", "docs/key-link.txt"], allow) == ["docs/key-link.txt"]


def test_a_link_that_is_made_later_is_not_what_a_person_allowed(folder):
    allow = ApprovalRule("write_file", arguments={"path": "notes.md", "content": "changed"})
    assert written(["notes.md", "./notes.md"], allow) == []
    (folder / "notes.md").unlink()
    (folder / "notes.md").symlink_to("secret/key.txt")
    assert written(["notes.md"], allow) == ["notes.md"]


@pytest.mark.parametrize("seed", range(40))
def test_every_spelling_of_a_file_is_the_file_for_a_rule(tmp_path, seed):
    choose, base = random.Random(seed), tmp_path / "made"
    folders = ["", "a", "a/b", "c", "c/d"]
    for folder in folders:
        (base / folder).mkdir(parents=True, exist_ok=True)
    for number in range(6):
        place = base / choose.choice(folders)
        (place / f"l{number}").symlink_to(os.path.relpath(base / choose.choice(folders), place))
    for folder in folders:
        (base / folder / "f").write_text("x")
    files = FileArguments(("path",), base)
    for _ in range(50):
        steps = [choose.choice(["a", "b", "c", "d", ".", "..", *(f"l{n}" for n in range(6))]) for _ in range(4)]
        path = choose.choice(["/", "//", "/./"]).join([*steps, "f"])
        spelled = path if choose.random() < 0.7 else f"{base}/{path}"
        real = os.path.realpath(base / spelled)
        relative, absolute = (arguments["path"] for arguments in files.spellings({"path": spelled}))
        assert absolute == real
        assert os.path.realpath(base / relative) == real
        if real.startswith(f"{base}/"):
            assert relative == os.path.relpath(real, base)


def test_a_rule_is_relative_to_the_working_folder_whatever_the_folder_of_a_tool_is(folder):
    options = {"list_directory": {"RootDirectory": "secret"}}
    definition = AgentDefinition("a", tools=("list_directory",), tool_config=options)
    for name in ("secret", "secret/**", "vault"):
        model = ScriptedModel(
            [[{"call": {"list_directory": {"path": "." if name != "secret/**" else "key.txt"}}}], "done"]
        )
        agent = Agent(definition, model=model, approvals=[ALLOW, denying(name)])
        with Environment(store=MemoryStore(), agents=[agent]) as environment:
            run = environment.start(ASK).wait(PATIENCE)
            assert "A rule denies list_directory" in str([request.messages for request in run.requests])


@pytest.mark.parametrize(("outcome", "is_denied"), [("deny", True), ("allow", False)])
def test_a_definition_cannot_evade_a_rule_by_another_name_or_fixed_arguments(folder, outcome, is_denied):
    sent = []

    @tool(destructive=True)
    def deploy(version: int, target: str = "test") -> str:
        """Deploy a version."""
        sent.append((version, target))
        return "done"

    rules = [ApprovalRule("text_editor" if is_denied else "read_file", outcome=outcome)]
    rules.append(ApprovalRule("deploy", arguments={"target": "production"}, outcome="deny"))
    calls = [
        {"call": {"read_file": {"command": "create", "path": "notes.md", "file_text": "changed"}}},
        {"call": {"deploy": {"version": 7}}},
    ]
    text = {
        "Tools": [{"Name": "deploy", "Parameters": {"target": "production"}}],
        "Agents": [
            {
                "Name": "a",
                "Model": "scripted",
                "Tools": ["text_editor", "deploy"],
                "ToolConfig": {"text_editor": {"Name": "read_file"}},
                "Script": [calls, "done"],
            }
        ],
    }
    with Environment(store=MemoryStore(), approvals=rules, tools=[deploy]) as environment:
        environment.define(definitions_from(text))
        run = environment.start(ASK).wait(PATIENCE)
        assert [question.question for question in run.open_questions] == ([] if is_denied else ["Run read_file?"])
    assert (sent, (folder / "notes.md").read_text()) == ([], "as it was")
