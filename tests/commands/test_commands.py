"""Every command is declared once: help, reference page, schemas and interfaces follow from the declaration."""

import ast
import re
from pathlib import Path

import jsonschema
import pytest
import typer.main
from IPython.core.error import UsageError
from typer.testing import CliRunner

import divebook
from divebook.cli.main import app
from divebook.cli.output import in_shell_with
from divebook.commands import reference
from divebook.commands.command import NOTEBOOK, SHELL, ParameterError, option
from divebook.commands.table import COMMANDS
from divebook.commands.values import read_inputs
from divebook.definitions.definition import InputDefinition, Workflow
from divebook.definitions.step import Step
from divebook.environments.environment import Environment, Queues
from divebook.errors import InputError
from divebook.notebook.commands import Names, command_called, line_command, objects_of, values_of
from divebook.notebook.extension import AWAITED_COMMANDS, WORDS
from divebook.replay import KeptFiles
from divebook.report.hints import Hint, advised, worded
from divebook.runtime.run import Run
from divebook.text.ranges import COUNT

ROOT = Path(divebook.__file__).parent


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
    assert printing == ["worker", "help", "mcp"], "a command that prints data has --json"
    for command in COMMANDS.values():
        if command.data is not None:
            jsonschema.Draft202012Validator.check_schema(reference.schema(command))


SHOWN_BY_THE_INTERFACES = {
    "Drive": "a run that goes on while it is shown",
    "Run": "a run that is enqueued",
    "ShownRun": "a live view, or a report with the commands of the shell",
    "RunQuery": "a list with buttons, or a table with the columns of the shell",
    "BulkResults": "a DataFrame, or lines of a script",
    "Inbox": "cards with buttons, or lines with the commands of the shell",
    "Interrupted": "a list with the commands of the interface",
    "Queue": "a DataFrame, or tables",
    "Schedules": "tables, and lines for cron and systemd",
    "DefinedNames": "a list of notebooks",
    "HelpRequest": "help, as the interface has it",
    "Path": "a file, which a note names",
    "Converted": "a text to be written to a file",
    "Exported": "a log to be written to a file",
    "CheckReport": "lines, of which those about damage go to stderr",
}
"""Results that have no report, with what the interfaces show instead."""


def test_each_result_of_a_command_shows_itself_by_its_report():
    shown = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and "Shown" in map(ast.unparse, node.bases):
                shown.add(node.name)
    shown.discard("Run")
    results = {
        name for command in COMMANDS.values() for name in command.function.__annotations__["return"].split(" | ")
    }
    others = results - shown - {"str", "None"}
    assert others == SHOWN_BY_THE_INTERFACES.keys(), "derive from divebook.report.shown.Shown"


def test_each_command_has_a_python_function_or_a_reason_for_none():
    for command in COMMANDS.values():
        assert bool(command.python) != bool(command.no_python), f"{command.name}: name a function, or say why not"
        if not command.python:
            continue
        owner, *names = command.python.replace("()", "").split(".")
        place = {"divebook": divebook, "run": Run, "environment": Environment}[owner]
        for name in names:
            # `files` is a method, whose result has the next name, and `queues` a property.
            place = KeptFiles if place is Run.files else Queues if place is Environment.queues else place
            place = getattr(place, name)
        assert callable(place)


def test_no_command_is_declared_outside_of_the_table():
    """Typer functions are made by the builder only, and no class has a decorated command."""
    # Both programs have a function with their global options, and the builder uses the function for numbers.
    allowed = {("cli/dev_env.py", "options"), ("cli/main.py", "options"), ("cli/options.py", "number_option")}
    declaring = set()
    for path in ROOT.rglob("*.py"):
        place = path.relative_to(ROOT).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for part in tree.body:
            calls = {ast.unparse(node.func) for node in ast.walk(part) if isinstance(node, ast.Call)}
            if calls & {"typer.Option", "typer.Argument", "app.command"} and place != "cli/subcommands.py":
                declaring.add((place, getattr(part, "name", "")))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                decorators = [each for part in node.body for each in getattr(part, "decorator_list", ())]
                assert not any(ast.unparse(each).startswith("command(") for each in decorators), (
                    f"{place}: a command is a function in divebook/commands/, not a method of {node.name}"
                )
    assert declaring == allowed, "parameters are declared as in divebook/commands/, and typer functions built from them"
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


def test_stats_are_shown_by_workflow(tmp_path, monkeypatch):
    monkeypatch.setenv("DIVEBOOK_STORE", str(tmp_path / "runs.db"))
    with Environment(store=str(tmp_path / "runs.db")) as environment:
        sum_up = Workflow("sum", [Step("add", script="inputs.n + 1", store="m")], inputs=[InputDefinition("n")])
        for n in (1, 2, "x"):
            environment.start(sum_up, {"n": n}).wait()
    done = CliRunner().invoke(app, ["stats"])
    title, row = done.stdout.splitlines()
    assert title.split() == ["workflow", "runs", "status", "median", "longest", "cost"]
    cells = re.split(r"  +", row)
    assert cells[:3] == ["sum", "3", "2 completed, 1 failed"]
    assert cells[-1] == "$0.00"


ADVICE = re.compile(r"(?<!%)%dive |`divebook [a-z]|\bdivebook (?:" + "|".join(COMMANDS) + r")\b")
OWN_WORDS = {
    "cli": "texts of the shell",
    "notebook/cells.py": "the first line of a cell",
    "notebook/commands.py": "the parser of a line, and its help",
    "notebook/extension.py": "the text of a cell that is changed before it runs",
    "notebook/magics.py": "the overview of the lines",
    "commands": "help texts, which say for which interface they are",
    "export/page.py": "a page for readers of any interface",
    "export/pytest.py": "code of cells and files",
    "serve/server.py": "an answer to a client, in which a shell is named",
    "definitions/schema.py": "a page of the reference",
    "definitions/step.py": "help on a key",
    "stores/transfer.py": "a name that is stored in a lease",
}


def test_shared_code_advises_commands_in_the_words_of_the_interface():
    for path in ROOT.rglob("*.py"):
        place = path.relative_to(ROOT)
        if place.parts[0] in OWN_WORDS or place.as_posix() in OWN_WORDS:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        # Docstrings are for readers of the code.
        docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
                assert not ADVICE.search(node.value), (
                    f"{place}:{node.lineno}: `divebook.report.hints.advised` spells commands for each interface"
                )


def test_advice_is_spelled_as_the_interface_types_it():
    assert advised("show exec_1", "run.show()") == "run.show()"
    assert Hint("resume", ("exec_1",), "resume").text == "run.resume()"
    with worded(WORDS):
        assert Hint("resume", ("exec_1",), "resume").text == "%dive resume exec_1"
        assert advised("show exec_1", "run.show()") == "%dive show exec_1"
        assert advised("check") == "!divebook check"
        assert advised("run flow.ipynb --code") == "!divebook run flow.ipynb --code"
        with worded(in_shell_with()):
            assert Hint("resume", ("exec_1",), "resume").text == "divebook resume exec_1"
            assert advised("show exec_1", "run.show()") == "divebook show exec_1"


@pytest.mark.parametrize("name", ["version", "doctor", "check", "export", "worker"])
def test_a_line_says_how_to_write_a_command_of_the_shell(name):
    with pytest.raises(UsageError, match=rf"^{name} is a shell command; in a notebook, write !divebook {name}$"):
        command_called(name, {})


def test_a_shell_says_how_to_write_a_command_of_notebooks():
    done = CliRunner().invoke(app, ["list"])
    assert done.exit_code == 2
    assert "list is available only in notebooks; write %dive list in a cell" in " ".join(
        done.output.replace("│", " ").split()
    )


def test_help_of_the_shell_describes_commands_and_keys():
    assert CliRunner().invoke(app, ["help"]).stdout == CliRunner().invoke(app, ["--help"]).stdout
    assert CliRunner().invoke(app, ["help", "why"]).stdout == CliRunner().invoke(app, ["why", "--help"]).stdout
    assert CliRunner().invoke(app, ["help", "Catch"]).stdout.startswith("Catch")


@pytest.mark.parametrize("text", ["password=[hunter2", "password:=hunter2", "password='hunter2"])
def test_a_secret_that_cannot_be_read_is_not_repeated(text):
    workflow = Workflow("w", [Step("s", script="1")], inputs=["password", "animal"])
    with pytest.raises(InputError, match=r"^input 'password'") as raised:
        read_inputs([text], workflow)
    assert "hunter2" not in str(raised.value)
    with pytest.raises(InputError, match="hunter2"):
        read_inputs([text.replace("password", "animal")], workflow)


def test_a_calculation_with_numbers_is_not_taken_for_a_text():
    parse = line_command(COMMANDS["run"]).parse
    with pytest.raises(
        UsageError, match=r"input 'n': \$1/0 is read as a string; write \$\(1/0\) for the result .*, or '\$1/0'"
    ):
        objects_of(parse(["hello", "n=$1/0"], Names()))
    assert parse(["hello", "n=$5"], Names()).inputs == {"n": "$5"}
