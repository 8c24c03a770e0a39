"""The declared type of an input decides how a word is read, in each command that takes inputs and in each interface."""

import json
import typing
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from divebook.cli.main import app
from divebook.commands.command import NOTEBOOK, Invocation
from divebook.commands.driving import Drive
from divebook.commands.table import COMMANDS
from divebook.definitions import workflow
from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.environments.environment import Environment
from divebook.events.codec import json_form
from divebook.notebook.commands import Names, line_command, objects_of, split, values_of
from divebook.notebook.session import open_session, reset_session

TEXTS = ("1.10", "007", "1e3", "true", "no", "null", "~", "2026-03-01", "0x1f", "1_000", "[draft] a", "a: b", "*")
CASES = [
    *(("string", text, text) for text in TEXTS),
    *((str, text, text) for text in ("1.10", "null", "[draft] a")),
    *((str | None, text, None if text in ("null", "~") else text) for text in TEXTS[:8]),
    ("string", '"1.10"', "1.10"),
    ("int", "5", 5),
    ("float", "1.10", 1.1),
    ("bool", "no", False),
    ("list", "[1.10, a]", [1.1, "a"]),
    ("map", "{a: 1.10}", {"a": 1.1}),
    (None, "1.10", 1.1),
    (None, "true", True),
    (None, "a", "a"),
    (Decimal, "1.10", Decimal("1.10")),
    (list[Decimal], "[1.10]", [Decimal("1.10")]),
    (Path, "007", Path("007")),
    (date, "2026-03-01", date(2026, 3, 1)),
    (typing.Literal["1.10", "1.1"], "1.10", "1.10"),
    (typing.Any, "1.10", 1.1),
]
PYTHON = """
import typing
from datetime import date
from decimal import Decimal
from pathlib import Path
from divebook import workflow

@workflow
async def echo(ctx, given: {annotation}):
    return given
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in a folder with a store, and forget the workflow functions of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIVEBOOK_STORE", str(tmp_path / "runs.db"))
    registered = dict(WORKFLOW_FUNCTIONS)
    yield tmp_path
    reset_session()
    WORKFLOW_FUNCTIONS.clear()
    WORKFLOW_FUNCTIONS.update(registered)


def definitions_of(kind):
    """Return the name and the text of a file with a workflow ``echo``, whose input has a type."""
    if isinstance(kind, str) or kind is None:
        entry = {"Name": "given", **({} if kind is None else {"Type": kind})}
        steps = [{"Name": "keep", "Script": "inputs.given", "Store": "result"}]
        return "flows.yaml", json.dumps({"Workflows": [{"Name": "echo", "Inputs": [entry], "Steps": steps}]})
    is_class = isinstance(kind, type) and not typing.get_args(kind) and kind is not typing.Any
    annotation = kind.__name__ if is_class else str(kind)
    return "flows.py", PYTHON.format(annotation=annotation.replace("decimal.", ""))


def first_run(file, text, given):
    """Start a run with the value of an input in Python, and return its id."""
    with Environment(store="runs.db") as environment:
        if file.endswith(".py"):
            exec(text, {"__name__": "flows"})
            run = environment.start("echo", {"given": given})
        else:
            from divebook.definitions.reader import read_definitions

            environment.define(read_definitions(text))
            run = environment.start("echo", {"given": given})
        assert run.wait(30).status == "completed", run.error
        return run.id


def in_shell(command, file, run, text):
    """Return the words of a command in a shell that takes the input."""
    words = [file, "-w", "echo"] if command in ("run", "enqueue") else [*(["keep"] if command == "try" else []), run]
    definitions = [] if command in ("run", "enqueue") else ["-d", file]
    return [command, *words, *definitions, "-v", f"given={text}"]


def given_to(result):
    """Return the input of the runs or tries that a command has made."""
    if isinstance(result, Drive):
        result = result.begin().wait(30)
    return getattr(result, "run", result).inputs["given"]


@pytest.mark.parametrize("command", ["run", "enqueue", "what-if", "fork"])
@pytest.mark.parametrize(("kind", "text", "value"), CASES, ids=str)
def test_the_type_of_an_input_decides_how_a_word_is_read(folder, kind, text, value, command):
    file, definitions = definitions_of(kind)
    (folder / file).write_text(definitions, encoding="utf-8")
    run = first_run(file, definitions, value)
    result = CliRunner().invoke(app, in_shell(command, file, run, text))
    assert result.exit_code == 0, result.output
    with Environment(store="runs.db") as environment:
        newest = max(environment.store.records(), key=lambda record: (record.created_at, record.execution_id))
        assert newest.execution_id != run
        found = environment.run_of(newest.execution_id).inputs["given"]
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize("command", ["run", "enqueue", "what-if", "fork"])
@pytest.mark.parametrize(("kind", "text", "value"), CASES, ids=str)
def test_a_line_of_a_notebook_reads_the_same(folder, kind, text, value, command):
    file, definitions = definitions_of(kind)
    run = first_run(file, definitions, value)
    session = open_session("runs.db")
    if file.endswith(".yaml"):
        session.define(definitions)
    else:
        session.define(WORKFLOW_FUNCTIONS["echo"])
    quoted = "'" + text.replace("'", "''") + "'" if not text.startswith('"') else text
    words = "echo" if command in ("run", "enqueue") else run
    arguments = line_command(COMMANDS[command]).parse([*split(words), "-v", f"given={quoted.strip(chr(39))}"], Names())
    call = Invocation(
        NOTEBOOK,
        lambda: session.environment,
        lambda _text, _style: None,
        choose_workflow=lambda environment, name: environment.definitions.workflows[name],
        objects=objects_of(arguments),
    )
    found = given_to(COMMANDS[command].function(call, **values_of(COMMANDS[command], arguments)))
    assert (type(found), found) == (type(value), value)


def test_every_command_that_takes_inputs_is_tried():
    taking = {name for name, command in COMMANDS.items() if any(each.name == "inputs" for each in command.parameters)}
    assert taking == {"run", "enqueue", "what-if", "fork", "try"}


@pytest.mark.parametrize("kind", ["string", str])
def test_a_trial_reads_a_text_as_a_text(folder, kind):
    file, definitions = definitions_of(kind)
    (folder / file).write_text(definitions, encoding="utf-8")
    run = first_run(file, definitions, "a")
    if file.endswith(".py"):
        return
    result = CliRunner().invoke(app, [*in_shell("try", file, run, "1.10"), "--json"])
    assert result.exit_code == 0, result.output
    assert "1.10" in json.dumps(json_form(json.loads(result.stdout)["tries"]))


def test_an_answer_to_a_question_without_a_type_stays_a_text(folder):
    @workflow
    async def asks(ctx):
        return await ctx.ask("Which version?")

    with Environment(store="runs.db", workflows=[asks]) as environment:
        run = environment.start("asks").wait(30)
        question = run.open_questions[0].id
        run.answer(question, "2").wait(30)
    session = open_session("runs.db")
    session.define(asks)
    arguments = line_command(COMMANDS["what-if"]).parse([run.id, "--answer", f"{question}=1.10"], Names())
    call = Invocation(NOTEBOOK, lambda: session.environment, lambda _text, _style: None)
    found = COMMANDS["what-if"].function(call, **values_of(COMMANDS["what-if"], arguments))
    assert found.run.result() == "1.10"
