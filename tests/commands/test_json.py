"""Whatever a store contains, the JSON that a command prints has the form of the command's schema."""

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from divebook.cli.main import app
from divebook.commands import reference
from divebook.commands.command import SHELL
from divebook.commands.table import COMMANDS
from divebook.definitions.definition import Workflow
from divebook.definitions.reader import read_definitions
from divebook.definitions.resources import WorkspaceDefinition
from divebook.definitions.step import Step
from divebook.environments.environment import Environment

FLOWS = """\
Agents:
  - {Name: critic, Model: scripted, Instructions: Judge.}
Schedules:
  - {Name: daily, Cron: "0 8 * * *", Workflow: judge, Zone: UTC}
Workflows:
  - Name: hello
    Inputs: [{Name: who}, {Name: n, Type: int, Default: 2}]
    Outputs: [{Name: greeting}]
    Steps: [{Name: greet, Script: (inputs.who + " ") * inputs.n, Store: greeting}]
  - Name: release
    Steps:
      - Name: review
        Ask: {Question: Release?, Kind: confirmation, Message: "It is ready.", ExpiresIn: 1000000, Default: no}
        Store: answer
  - Name: doorway
    Steps: [{Name: wait, Type: wait, Signal: go, Store: payload}]
  - Name: judge
    Steps: [{Name: ask, Agent: critic, Prompt: Is it good?, Store: verdict}]
"""
RUNS = ("HELLO", "FAILED", "ASKS", "WAITS", "STOPPED", "FORK", "EDITED", "JUDGED", "DAMAGED", "DELETED")
OF_A_RUN = (
    "show RUN",
    "show RUN --events",
    "why state RUN",
    "why greeting RUN",
    "inspect RUN",
    "verify RUN",
    "files RUN",
    "diff RUN",
    "apply RUN --to elsewhere",
    "restore RUN --to then",
    "tag RUN good",
    "tag RUN",
    "annotate RUN --note seen",
    "to-test RUN --force",
    "export RUN out.jsonl --force",
    "fork RUN --quiet",
    "what-if RUN --input n=1",
    "what-if RUN --plan",
    "try greet RUN",
    "compare RUN HELLO",
    "signal RUN go --quiet",
    "resume RUN --quiet --no-wait",
    "cancel RUN",
)
OF_THE_STORE = (
    "run flows.yaml -w hello who=Eve --quiet",
    "run flows.yaml -w hello who=3 --quiet",
    "run flows.yaml -w release --quiet --no-wait",
    "run flows.yaml -w judge --quiet",
    "enqueue flows.yaml -w hello who=Eve --queue slow",
    "runs",
    "runs --status failed",
    "count",
    "stats",
    "inbox",
    "rules",
    "queue",
    "recover",
    "verify --all",
    "cancel --status waiting --dry-run",
    "annotate --status failed --label seen=true",
    "resume WAITS ASKS",
    "open hello.jsonl",
    "answer QUESTION no --quiet",
    "schedule flows.yaml",
    "schedule flows.yaml --start",
    "check",
    "backup copy.db",
    "copy runs.db other.db",
    "gc --keep-last 1 --dry-run",
    "import hello.jsonl --rename",
    "convert flows.yaml --dialect divebook",
    "keys",
    "keys Step",
    "doctor",
    "doctor flows.yaml",
    "version",
)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Return a folder with a store of runs in many states, and the ids by name."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("flows.yaml").write_text(FLOWS, encoding="utf-8")
        for name in ("project", "elsewhere"):
            Path(name).mkdir()
            Path(name, "a.txt").write_text("old\n", encoding="utf-8")
        with Environment(store="runs.db") as environment:
            environment.define(read_definitions(FLOWS))
            environment.add_workspace(WorkspaceDefinition("app", folder="project"))
            hello = environment.start("hello", {"who": "Ann"}, tags=["first"], note="a note").wait()
            write = Step("write", action="Workspace.Shell", parameters={"Command": "echo new > a.txt; echo x > b"})
            runs = {
                "HELLO": hello,
                "FAILED": environment.start("hello", {"who": 3, "n": 2}).wait(),
                "ASKS": environment.start("release").wait(),
                "WAITS": environment.start("doorway").wait(),
                "STOPPED": environment.start("release").wait().cancel().wait(),
                "FORK": hello.fork(change={"inputs": {"n": 3}}).wait(),
                "EDITED": environment.start(Workflow("edit", [write], workspace="app")).wait(),
                "JUDGED": environment.start("judge").wait(),
                "DAMAGED": environment.start("hello", {"who": "Bob"}).wait(),
                "DELETED": environment.start("hello", {"who": "Cid"}).wait(),
            }
            hello.what_if({"inputs": {"n": 1}})
            hello.try_step("greet")
            environment.enqueue("hello", {"who": "Eve"}, queue="slow")
            hello.export("hello.jsonl")
            names = {name: run.id for name, run in runs.items()} | {"QUESTION": runs["ASKS"].open_questions[0].id}
            last = runs["DAMAGED"].state.last_sequence
            environment.store.delete(names["DELETED"])
        with closing(sqlite3.connect("runs.db")) as connection, connection:
            (key,) = connection.execute("SELECT key FROM executions WHERE id = ?", (names["DAMAGED"],)).fetchone()
            forged = ('{"output":"forged"}', (key << 32) + last - 1)
            connection.execute("UPDATE events SET data = ? WHERE place = ?", forged)
    return folder, names


@pytest.mark.parametrize("line", [*OF_A_RUN, *OF_THE_STORE])
def test_json_has_the_form_of_its_schema(template, tmp_path, monkeypatch, line):
    folder, names = template
    name = line.split()[0]
    schema = reference.schema(COMMANDS[name])
    printed = 0
    for run in RUNS if "RUN" in line.split() else ("HELLO",):
        copy = tmp_path / run
        shutil.copytree(folder, copy)
        monkeypatch.chdir(copy)
        monkeypatch.setenv("DIVEBOOK_STORE", str(copy / "runs.db"))
        words = [names.get(run if word == "RUN" else word, word) for word in line.split()]
        definitions = ["-d", "flows.yaml"] if COMMANDS[name].needs_definitions else []
        done = CliRunner().invoke(app, [*words, *definitions, "--json"])
        assert done.exception is None or isinstance(done.exception, SystemExit), (words, done.exception)
        # A command that refuses a run prints an error instead, on stderr.
        if done.stdout:
            jsonschema.validate(json.loads(done.stdout), schema)
            # All times have one form: RFC 3339 in UTC, with Z.
            assert not re.findall(r'"\d{4}-\d\d-\d\d[T ][\d:.]+(?:[+-][\d:]+)?"', done.stdout)
            printed += 1
        else:
            assert done.exit_code in (1, 2), (words, done.output)
    assert printed, "no run gave any JSON"


def test_each_command_that_prints_json_is_tried():
    tried = {line.split()[0] for line in (*OF_A_RUN, *OF_THE_STORE)}
    assert {name for name, command in COMMANDS.items() if command.data and SHELL in command.interfaces} == tried


# Values whose form the workflow or the person decides.
OPEN = {"inputs", "outputs", "variables", "value", "data", "response", "default", "schema", "arguments"} | {
    "results",
    "answers",
}


def loose(schema, name):
    """Yield the names of keys whose schema allows any value or any mapping."""
    if not schema or (
        schema.get("type") == "object" and "properties" not in schema and not schema["additionalProperties"]
    ):
        yield name
    for key, part in schema.get("properties", {}).items():
        yield from loose(part, key)
    for part in [*schema.get("anyOf", ()), *schema.get("prefixItems", ())]:
        yield from loose(part, name)
    for key in ("items", "additionalProperties"):
        if schema.get(key):
            yield from loose(schema[key], name)


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.data])
def test_a_schema_leaves_open_only_what_workflows_decide(name):
    assert {*loose(reference.schema(COMMANDS[name]), name)} <= OPEN
