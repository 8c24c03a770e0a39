"""A run has one report: the shell, a terminal, a notebook, nbconvert and `print` show the same text of it."""

import html
import re
import sqlite3
from contextlib import closing

import nbformat
import pytest
from nbconvert import MarkdownExporter, ScriptExporter
from nbconvert.preprocessors import ExecutePreprocessor
from traitlets.config import Config
from typer.testing import CliRunner

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.cli.main import app
from divebook.cli.output import in_shell_with
from divebook.definitions import Each
from divebook.definitions.definition import InputDefinition, OutputDefinition
from divebook.notebook.extension import WORDS
from divebook.report.hints import PYTHON, worded
from divebook.report.text import text_of
from tests.frozen.snapshots_of import WORKFLOWS, plain

HINT = re.compile(r"^ *(to answer|to send it|to continue|to show it again): ")
RUNS = ("completed", "failed", "asking", "signalled", "paused", "cancelled", "forked", "items", "agents", "damaged")
FILE = ["-d", "FILE"]
NEEDS_FILE = {"agents"}
"""Runs whose resumption needs a file of definitions in a shell."""


def look(place: str) -> str:
    """Return what is at a place."""
    return f"a duck at the {place}"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return str(tmp_path_factory.mktemp("runs") / "runs.db")


@pytest.fixture(scope="module")
def ids(store):
    """Return the id of a run of each kind in the store, by kind."""
    turns = [[{"call": {"look": {"place": "pond"}}}, "an answer"]]
    agent = Agent("thinker", model=ScriptedModel(turns=turns, price=0.01), tools=[look])
    waits = Workflow("waits", [Step("go", signal="go")])
    inputs = [InputDefinition("a"), InputDefinition("password")]
    sum_step = Step("sum", script="inputs.a + 1", store="n")
    add = Workflow("add", [sum_step], inputs=inputs, outputs=[OutputDefinition("n")])
    half = Step("half", script="6 // state.x", each=Each("$(inputs.xs)", as_="x", on_item_error="skip"), store="halves")
    with Environment(store=store, agents=[agent]) as environment:
        completed = environment.start(add, {"a": 1, "password": "correct-horse-battery"}).wait(20)
        failed = environment.start(Workflow("broken", [Step("divide", script="1 // 0")])).wait(20)
        asking = environment.start(Workflow("asks", [Step("ask", ask="Go on?")])).wait(20)
        signalled, cancelled, damaged = (environment.start(waits).wait(20) for _ in range(3))
        cancelled.cancel()
        paused = environment.start(Workflow("naps", [Step("nap", type="wait", seconds=600)]))
        paused.pause()
        paused.wait(20)
        forked = completed.fork(change={"inputs": {"a": 5}}).wait(20)
        items = environment.start(Workflow("halves", [half], inputs=["xs"]), {"xs": [1, 0, 3]}).wait(20)
        agents = environment.start(Workflow("thinks", [Step("think", agent="thinker", prompt="Why?")])).wait(20)
        runs = (completed, failed, asking, signalled, paused, cancelled, forked, items, agents, damaged)
        known = {kind: run.id for kind, run in zip(RUNS, runs, strict=True)}
        statuses = {kind: run.state.shown_status for kind, run in zip(RUNS, runs, strict=True)}
    assert statuses == {
        "completed": "completed",
        "failed": "failed",
        "asking": "waiting",
        "signalled": "waiting",
        "paused": "paused",
        "cancelled": "cancelled",
        "forked": "completed",
        "items": "completed",
        "agents": "completed",
        "damaged": "waiting",
    }
    with closing(sqlite3.connect(store)) as connection, connection:
        key = "(SELECT key FROM executions WHERE id = ?)"
        # A row can have several events. The first one stays, without which nothing could be shown.
        place = f"(SELECT place FROM events WHERE place >> 32 = {key} ORDER BY place LIMIT 1 OFFSET 1)"
        changed = connection.execute(f"UPDATE events SET data = '{{oops' WHERE place = {place}", (known["damaged"],))
        assert changed.rowcount == 1
    return known


@pytest.fixture
def environment(store, ids):
    with Environment(store=store) as environment:
        yield environment


def without_times(text):
    """Return a text without what differs between two moments: the time that a run has waited."""
    return plain(text, "/nowhere")


@pytest.mark.parametrize("kind", RUNS)
def test_shell_terminal_notebook_and_print_show_the_same_text_of_a_run(kind, ids, store, environment, cell, shell):
    run = environment.run_of(ids[kind])
    name = f"{ids[kind]} --store {store}"
    printed = CliRunner().invoke(app, ["show", *name.split()]).stdout
    with worded(in_shell_with([*(FILE if kind in NEEDS_FILE else []), "--store", store])):
        assert without_times(printed) == without_times(text_of(run.report()))
    # The cell has the extension, so that both are worded for a notebook.
    value, shown = cell(f"%dive show {name}")
    in_cell = shell.display_formatter.format(value)[0]
    assert without_times(in_cell["text/plain"]) == without_times(str(run))
    assert without_times(shown).endswith(without_times(in_cell["text/plain"]))
    shell.user_ns["displayed"] = value  # `_` of the shell is not set if a library has defined a builtin of this name
    _, shown = cell("print(displayed)")
    assert without_times(shown) == without_times(str(run))
    assert run.__rich__().plain == str(run)


@pytest.mark.parametrize("kind", RUNS)
def test_only_the_commands_differ_between_interfaces(kind, ids, environment):
    run = environment.run_of(ids[kind])
    texts = []
    for words in (PYTHON, WORDS, in_shell_with(["-d", "demo.yaml"])):
        with worded(words):
            texts.append(without_times(str(run)).splitlines())
    for lines in zip(*texts, strict=True):
        if HINT.match(lines[0]):
            method, magic, command = (line.partition(": ")[2] for line in lines)
            assert method.startswith("run."), lines
            assert magic.startswith("%dive "), lines
            assert command.startswith("divebook "), lines
        else:
            assert len({*lines}) == 1, lines
    assert any(HINT.match(line) for line in texts[0]) == (
        kind in {"failed", "asking", "signalled", "paused", "cancelled"}
    )


def test_a_report_has_inputs_and_results_and_no_secrets(ids, environment):
    text = str(environment.run_of(ids["completed"]))
    assert "2 inputs:\n  a = 1\n  password = [redacted]\n" in text
    assert text.endswith("1 output:\n  n = 2")
    assert str(environment.run_of(ids["forked"])).startswith("add (fork): ✓ completed\n")
    assert "2 model calls, " in (agents := str(environment.run_of(ids["agents"])))
    assert agents.endswith("1 result:\n  think = an answer")


@pytest.mark.parametrize(
    ("words", "code"), [(["hello", "who=Ann"], 0), (["broken"], 1), (["release"], 3), (["survey", "words:=[1]"], 1)]
)
def test_a_command_that_runs_prints_the_report_of_the_run(words, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo.yaml").write_text(WORKFLOWS)
    name, *values = words
    options = [part for value in values for part in ("-v", value)]
    result = CliRunner().invoke(app, ["run", "demo.yaml", "-w", name, *options])
    assert result.exit_code == code
    (execution_id,) = re.findall(r"exec_\w{26}$", result.stdout.splitlines()[1])
    with Environment(store=".divebook/executions.db") as environment, worded(in_shell_with(["-d", "demo.yaml"])):
        assert without_times(result.stdout) == without_times(str(environment.run_of(execution_id)))


def test_secrets_are_shown_in_a_report_only_on_request(ids, store):
    command = ["show", ids["completed"], "--store", store]
    assert "correct-horse-battery" not in CliRunner().invoke(app, command).stdout
    assert "password = correct-horse-battery\n" in CliRunner().invoke(app, [*command, "--show-secrets"]).stdout


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Return a notebook that a real kernel has run, and its folder."""
    folder = tmp_path_factory.mktemp("notebook")
    cells = ["%load_ext divebook", f"%%dive\n{WORKFLOWS}", "run = %dive run hello who=Ann", "run", "print(run)"]
    cells += ["failed = %dive run broken --no-check", "failed", "print(failed)", "%dive run release"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    # Nothing watches the kernel, and the front end of nbconvert shows no widgets.
    ExecutePreprocessor(timeout=120).preprocess(notebook, {"metadata": {"path": str(folder)}})
    return notebook, folder


def outputs_of(notebook, number):
    """Return the outputs of a cell as text and as HTML."""
    outputs = notebook.cells[number].outputs
    texts = [output.get("text") or output["data"].get("text/plain", "") for output in outputs]
    pages = [output["data"].get("text/html", "") for output in outputs if "data" in output]
    return "\n".join(filter(None, map(str.rstrip, texts))), "\n".join(filter(None, pages))


def test_nbconvert_keeps_the_report_of_a_run_as_text_and_as_html(executed):
    notebook, _ = executed
    only_text = Config({"NbConvertBase": {"display_data_priority": ["text/plain"]}})
    as_text, _ = MarkdownExporter(config=only_text).from_notebook_node(notebook)
    as_page, _ = MarkdownExporter().from_notebook_node(notebook)
    as_script, _ = ScriptExporter().from_notebook_node(notebook)
    for shown, printed in ((3, 4), (6, 7)):
        text, page = outputs_of(notebook, shown)
        assert text == outputs_of(notebook, printed)[0]
        indented = "\n".join(f"    {line}".rstrip() for line in text.splitlines())
        assert "\n".join(map(str.rstrip, as_text.splitlines())).count(indented) == 2
        for word in re.findall(r"[\w%]+", text):
            assert word.lower() in html.unescape(re.sub(r"<[^>]*>", "", page)).lower(), word
        assert page in as_page
    assert "divide" in as_page
    asked = outputs_of(notebook, 8)[0]
    assert "asks: Release build 7?" in asked
    assert "to answer: %dive answer ask_" in asked
    assert "run_line_magic('dive', 'run hello who=Ann')" in as_script


def test_a_notebook_and_the_shell_show_the_same_text_of_the_same_workflow(executed, tmp_path, monkeypatch):
    notebook, _ = executed
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo.yaml").write_text(WORKFLOWS)
    printed = CliRunner().invoke(app, ["run", "demo.yaml", "-w", "hello", "-v", "who=Ann"]).stdout
    assert without_times(printed) == without_times(outputs_of(notebook, 3)[0])
