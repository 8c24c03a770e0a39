"""Whatever a store contains, the JSON that a command prints has the form of the command's schema."""

import json
import re
import shutil
import sqlite3
from contextlib import closing

import jsonschema
import pytest
from typer.testing import CliRunner

from divebook.cli.main import app
from divebook.commands import reference
from divebook.commands.command import SHELL
from divebook.commands.table import COMMANDS
from divebook.definitions.reader import read_definitions
from divebook.environments.environment import Environment
from tests.commands.conftest import FLOWS

RUNS = ("ONE", "FAILED", "ASKS", "EXPIRES", "WAITS", "STOPPED", "FORK", "EDITED", "JUDGED", "DAMAGED", "DELETED")
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
    "compare RUN ONE",
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
    "open one.jsonl",
    "answer QUESTION no --quiet",
    "schedule flows.yaml",
    "schedule flows.yaml --start",
    "check",
    "backup copy.db",
    "copy runs.db other.db",
    "gc --keep-last 1 --dry-run",
    "import one.jsonl --rename",
    "convert flows.yaml --dialect divebook",
    "keys",
    "keys Step",
    "doctor",
    "doctor flows.yaml",
    "version",
    "tutorial lessons --no-open",
)


@pytest.fixture(scope="module")
def damaged(template, tmp_path_factory):
    """Return a folder as `template` does, in whose store are a run of an agent, a damaged and a deleted run more."""
    whole, names = template
    folder = tmp_path_factory.mktemp("damaged") / "store"
    shutil.copytree(whole, folder)
    with Environment(store=str(folder / "runs.db")) as environment:
        environment.define(read_definitions(FLOWS))
        damaged, deleted = (environment.start("hello", {"who": who}).wait() for who in ("Bob", "Cid"))
        judged = environment.start("judge").wait()
        last = damaged.state.last_sequence
        environment.store.delete(deleted.id)
    with closing(sqlite3.connect(folder / "runs.db")) as connection, connection:
        (key,) = connection.execute("SELECT key FROM executions WHERE id = ?", (damaged.id,)).fetchone()
        forged = ('{"output":"forged"}', (key << 32) + last - 1)
        connection.execute("UPDATE events SET data = ? WHERE place = ?", forged)
    return folder, {**names, "JUDGED": judged.id, "DAMAGED": damaged.id, "DELETED": deleted.id}


@pytest.mark.parametrize("line", [*OF_A_RUN, *OF_THE_STORE])
def test_json_has_the_form_of_its_schema(damaged, tmp_path, monkeypatch, line):
    folder, names = damaged
    name = line.split()[0]
    schema = reference.schema(COMMANDS[name])
    printed = 0
    for run in RUNS if "RUN" in line.split() else ("ONE",):
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
