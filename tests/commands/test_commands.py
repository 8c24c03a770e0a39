"""Every command is declared once: the shell, ``%dive`` and Python give the same result for the same words."""

import ast
import json
import re
from pathlib import Path

import jsonschema
import pytest
import typer.main
from typer.testing import CliRunner

import divebook
from divebook.cli.main import app
from divebook.commands import reference
from divebook.commands.command import NOTEBOOK, PYTHON, SHELL, Invocation, ParameterError, option
from divebook.commands.driving import Drive
from divebook.commands.table import COMMANDS
from divebook.definitions.reader import read_definitions
from divebook.environments.environment import Environment
from divebook.notebook.commands import Names, line_command, split, values_of
from divebook.notebook.extension import AWAITED_COMMANDS
from divebook.text.ranges import COUNT

ROOT = Path(divebook.__file__).parent
FLOWS = """\
Workflows:
  - Name: hello
    Inputs: [{Name: who, Type: string}, {Name: n, Type: int, Default: 2}]
    Outputs: [{Name: greeting}]
    Steps: [{Name: greet, Script: (inputs.who + " ") * inputs.n, Store: greeting}]
  - Name: release
    Steps: [{Name: review, Ask: {Question: Release?, Kind: confirmation}, Store: answer}]
"""
CASES = (
    # The words after the program, and the same call in Python. ONE, TWO and ASKS are ids of runs.
    ("run hello who=Eve n=3 --key again", {"inputs": ["who=Eve", "n=3"], "key": "again"}),
    ("run hello -v who=Eve --input n=3 --key again", {"inputs": ["who=Eve", "n=3"], "key": "again"}),
    ("enqueue hello who=Eve --key later --queue slow", {"inputs": ["who=Eve"], "key": "later", "queue": "slow"}),
    ("fork ONE --input n=1", {"run": "ONE", "inputs": ["n=1"]}),
    ("what-if ONE -v n=4", {"run": "ONE", "inputs": ["n=4"]}),
    ("what-if ONE --input n=4 --plan", {"run": "ONE", "inputs": ["n=4"], "plan": True}),
    ("try greet ONE --times 2", {"step": "greet", "run": "ONE", "times": 2}),
    (
        "runs --status completed --workflow hello --origin run",
        {"status": "completed", "workflow": "hello", "origin": "run"},
    ),
    ("runs --limit 1 -w release", {"limit": 1, "workflow": "release"}),
    ("count -w hello", {"workflow": "hello"}),
    ("show ONE", {"run": "ONE"}),
    ("compare ONE TWO", {"runs": ["ONE", "TWO"]}),
    ("why greeting ONE", {"name": "greeting", "run": "ONE"}),
    ("why inputs.n ONE --at 1", {"name": "inputs.n", "run": "ONE", "at": 1}),
    ("inspect ONE", {"run": "ONE"}),
    ("verify ONE", {"run": "ONE"}),
    ("verify --all", {"every": True}),
    ("to-test ONE --to test_it.py --force", {"run": "ONE", "to": Path("test_it.py"), "force": True}),
    ("tag ONE kept good", {"run": "ONE", "tags": ["kept", "good"]}),
    ("annotate ONE TWO --label n=2", {"runs": ["ONE", "TWO"], "labels": ["n=2"]}),
    ("cancel ASKS --dry-run", {"runs": ["ASKS"], "dry_run": True}),
    ("inbox", {}),
    ("rules", {}),
    ("queue", {}),
    ("recover", {}),
    ("keys Catch", {"part": "Catch"}),
)
UNSTEADY = re.compile(r"(_at|seconds|seconds_by_kind|text|bytes|cost|order|took_us|started_us|ended_us|us|time)$")


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Return the names of the runs in a store: two that have completed, and one that waits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIVEBOOK_STORE", "runs.db")
    Path("flows.yaml").write_text(FLOWS, encoding="utf-8")
    environment = Environment(store="runs.db")
    environment.define(read_definitions(FLOWS))
    one = environment.start("hello", {"who": "Ann"}).wait()
    two = environment.start("hello", {"who": "Bob"}).wait()
    asks = environment.start("release").wait()
    environment.start("hello", {"who": "Eve", "n": 3}, key="again").wait()
    environment.enqueue("hello", {"who": "Eve"}, queue="slow", key="later")
    return {"ONE": one.id, "TWO": two.id, "ASKS": asks.id}


def named(value, names):
    """Return words or arguments of a call with the ids of runs in place of their names."""
    if isinstance(value, dict):
        return {key: named(part, names) for key, part in value.items()}
    if isinstance(value, list):
        return [named(part, names) for part in value]
    return names.get(value, value) if isinstance(value, str) else value


def steady(value):
    """Return the data of a result without what differs from call to call: ids of new runs, times and durations."""
    if isinstance(value, dict):
        return {key: steady(part) for key, part in value.items() if not UNSTEADY.search(key)}
    if isinstance(value, list):
        return [steady(part) for part in value]
    return re.sub(r"(exec|event|op|ask|path)_[0-9a-z]{16,26}", r"\1", value) if isinstance(value, str) else value


def call(interface):
    """Return a call from a session that has the definitions."""

    def opened():
        environment = Environment(store="runs.db")
        environment.define(read_definitions(FLOWS))
        return environment

    return Invocation(
        interface,
        opened,
        lambda _text, _style: None,
        choose_workflow=lambda environment, name: environment.workflows[name],
    )


def data_of(command, result):
    """Return the data of a result as ``--json`` prints it."""
    from divebook.cli.output import as_json

    if isinstance(result, Drive):
        result = result.begin().wait()
    data = command.output(result)
    return json.loads(as_json(data) if command.redacts else json.dumps(data))


def in_shell(command, words):
    # In a shell, the first word of a command that takes definitions is their file.
    if command.file_help:
        words = ["flows.yaml", "--workflow", words[0], *words[1:]]
    quiet = ["--quiet"] if command.drives else []
    result = CliRunner().invoke(app, [command.name, *words, *quiet, "--json"])
    assert result.exit_code in (0, 1, 3), result.output
    return json.loads(result.stdout)


def in_line(command, words):
    arguments = line_command(command).parse(words, Names())
    return data_of(command, command.function(call(NOTEBOOK), **values_of(command, arguments)))


@pytest.mark.parametrize(("line", "arguments"), CASES, ids=[line for line, _ in CASES])
def test_the_shell_a_line_and_python_give_the_same_result(store, line, arguments):
    name, *words = split(line)
    words = named(words, store)
    command = COMMANDS[name]
    if command.file_help:
        arguments = {"name": "hello", **arguments}
    # New runs of one interface must not be in the lists of the next: each call is compared without them.
    shell = in_shell(command, words)
    jsonschema.validate(shell, reference.schema(command))
    magic = in_line(command, words)
    python = data_of(command, command.function(call(PYTHON), **named(arguments, store)))
    assert steady(shell) == steady(magic) == steady(python)
    assert shell["divebook"] == 1


def test_each_command_that_prints_data_has_a_case_or_is_for_the_shell_alone():
    tried = {line.split()[0] for line, _ in CASES}
    untried = {name for name, command in COMMANDS.items() if command.data and NOTEBOOK in command.interfaces} - tried
    # They need a workspace, a file, or change what they are called with.
    assert untried == {"open", "files", "diff", "apply", "restore", "resume", "answer", "signal"}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_all_interfaces_lists_the_same_parameters(name):
    command = COMMANDS[name]
    if SHELL in command.interfaces:
        options = {spelling for entry in typer.main.get_command(app).commands[name].params for spelling in entry.opts}
        shell_help = CliRunner().invoke(app, [name, "--help"]).stdout
        for parameter in command.parameters_in(SHELL):
            assert set(parameter.spellings) <= options
            assert parameter.is_repeated or parameter.long_name in shell_help
    if NOTEBOOK in command.interfaces:
        line_help = line_command(command).whole_help
        for parameter in command.parameters_in(NOTEBOOK):
            assert all(spelling in line_help for spelling in parameter.spellings or [parameter.metavar])
    both = [entry for entry in command.parameters if {SHELL, NOTEBOOK} <= entry.interfaces]
    assert both == [entry for entry in command.parameters_in(SHELL) if entry in command.parameters_in(NOTEBOOK)]


def test_the_page_and_the_schemas_are_those_of_the_declared_commands():
    hint = "python -m divebook.commands.reference"
    notebooks = ROOT.parent / "notebooks"
    assert (notebooks / "COMMANDS.md").read_text(encoding="utf-8") == reference.page(), hint
    folder = notebooks / "reference" / "schemas"
    written = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert written == reference.schemas(), hint


def test_every_command_that_prints_data_has_a_schema_of_its_own():
    printing = [name for name, command in COMMANDS.items() if SHELL in command.interfaces and command.data is None]
    assert printing == ["worker", "convert", "mcp", "export"], "a command that prints data has --json"
    for command in COMMANDS.values():
        if command.data is not None:
            jsonschema.Draft202012Validator.check_schema(reference.schema(command))


def test_no_command_is_declared_outside_of_the_table():
    """Typer functions are made by the builder only, and no class has a decorated command."""
    allowed = {"cli/dev_env.py", "cli/main.py", "cli/options.py", "cli/subcommands.py"}
    declaring = set()
    for path in ROOT.rglob("*.py"):
        place = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if name in ("typer.Option", "typer.Argument", "app.command"):
                declaring.add(place)
            if isinstance(node, ast.ClassDef):
                decorators = [each for part in node.body for each in getattr(part, "decorator_list", ())]
                assert not any(ast.unparse(each).startswith("command(") for each in decorators), (
                    f"{place}: a command is a function in divebook/commands/, not a method of {node.name}"
                )
    assert declaring <= allowed, "commands are declared in divebook/commands/, and typer functions are built from them"
    modules = {command.function.__module__.rpartition(".")[0] for command in COMMANDS.values()}
    assert modules == {"divebook.commands"}


def test_cells_await_the_commands_that_continue_runs():
    driving = {name for name, command in COMMANDS.items() if command.drives}
    assert set(AWAITED_COMMANDS) == driving, "a cell waits for these with its event loop free"


def test_a_wrong_value_is_worded_by_each_interface():
    parameter = next(entry for entry in COMMANDS["why"].parameters if entry.name == "at")
    with pytest.raises(ParameterError, match=r"^at must be an integer, not 'soon'$"):
        parameter.read("soon")
    assert "--at" in CliRunner().invoke(app, ["why", "x", "--at", "0"]).stderr
    with pytest.raises(Exception, match=r"^--at must be an integer from 1 to "):
        values_of(COMMANDS["why"], line_command(COMMANDS["why"]).parse(["x", "--at", "0"], Names()))
    assert option("--n", help="A number.", allowed=COUNT).help == "A number.  [N>=1]"
