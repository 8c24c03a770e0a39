"""Python files and notebooks as definitions: run, resume and answer take them as they take YAML."""

import json
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

from divebook import Environment
from divebook.commands.store import existing_store
from tests.cli.conftest import write

MODULE = """
from divebook import Environment, Step, Workflow
from divebook.definitions import workflow

@workflow
async def double(ctx, n: int = 2):
    return 2 * n

@workflow
async def guess(ctx):
    return await ctx.ask("Which number?")

environment = Environment(store="memory:", workflows=[Workflow("held", [Step("a", script="1 + 1", store="n")])])
"""
CELL = "\n%%dive workflow told\nSteps:\n  - {Name: a, Script: '40 + 2', Store: n}\n"


def notebook(*cells):
    kinds = [("markdown", "# %%dive"), *(("code", cell) for cell in cells)]
    return json.dumps({"cells": [{"cell_type": kind, "source": text.splitlines(True)} for kind, text in kinds]})


IN_PROCESSES = """
import os
from divebook import Environment
from divebook.definitions import step, workflow

HERE = os.getpid()

class TooMuchError(ValueError):
    pass

@step
def work(n):
    if n > 9:
        raise TooMuchError(n)
    return [n, os.getpid() == HERE]

@workflow
async def working(ctx):
    try:
        await work(10)
    except TooMuchError as error:
        return [str(error), *await work(3)]

environment = Environment(store="memory:", executor="process")
"""


EQUIPPED = """
from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.definitions import ApprovalRule
from divebook.documents import MemoryDocuments, Policy
from divebook.definitions.servers import MCPServerDefinition

def erase(path: str) -> str:
    return "erased"

script = ScriptedModel([{"call": {"erase": {"path": "a"}}}, "It was refused."])
environment = Environment(
    store="memory:",
    agents=[Agent("keeper", model=script, tools=["erase"])],
    tools=[erase],
    approvals=[ApprovalRule("erase", outcome="deny", reason="not today")],
    servers=[MCPServerDefinition("git", command="never-started")],
    documents=MemoryDocuments({"notes.md": "from memory"}),
    policy=Policy("programs"),
    workflows=[Workflow("kept", [
        Step("ask", agent="keeper", prompt="Erase it", store="said"),
        Step("read", script='documents.get("notes.md").content', store="notes"),
    ])],
)
"""


@pytest.fixture
def module(folder):
    return write(folder / "flows.py", MODULE)


def test_a_workflow_function_of_a_file_is_run(divebook, module):
    result = divebook("run", module, "-w", "double", "-v", "n=21", "--json", "-q")
    assert result.exit_code == 0, result.stderr
    assert "42" in result.stdout


def test_what_an_environment_of_a_file_holds_is_run(divebook, module):
    assert divebook("run", module, "-w", "held", "-q").exit_code == 0


@pytest.mark.usefixtures("own_shell")
@pytest.mark.parametrize("way", ["file", "notebook"])
def test_an_environment_brings_all_that_it_was_given(divebook, folder, way):
    """Tools, rules about them, servers, documents: tests/test_taking_in.py walks all that there is."""
    text, name = (EQUIPPED, "kit.py") if way == "file" else (notebook(EQUIPPED, CELL), "kit.ipynb")
    file = write(folder / name, text)
    code = [] if way == "file" else ["--code"]
    result = divebook("run", file, *code, "-w", "kept", "--json", "-q")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["variables"] == {"said": "It was refused.", "notes": "from memory"}
    with Environment(store=existing_store(None)) as world:
        (call,) = world.run_of(world.store.records()[0].execution_id).tool_calls.itertuples()
    assert call.outcome == "denied"


def test_functions_of_a_file_run_where_its_environment_says(divebook, folder):
    """No other process can import such a file: what is in it travels by value."""
    result = divebook("run", write(folder / "cores.py", IN_PROCESSES), "--json", "-q")
    sys.modules["divebook_actions_cores"].environment.close()
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["outputs"] == {"result": ["10", 3, False]}


def test_a_question_of_a_file_is_answered_with_the_file(divebook, module):
    waiting = divebook("run", module, "-w", "guess", "-q")
    assert waiting.exit_code == 3
    question = json.loads(divebook("inbox", "--json").stdout)["questions"][0]["question_id"]
    assert divebook("answer", question, "seven", "-d", module, "-q").exit_code == 0


def test_the_cells_of_a_notebook_are_run_and_no_other_code(divebook, folder):
    file = write(folder / "report.ipynb", notebook("raise SystemExit('not to be run')", CELL))
    result = divebook("run", file, "-w", "told", "--json", "-q")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["variables"] == {"n": 42}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a notebook"),
        (notebook("1"), "no cell starts with %%dive"),
        (notebook("%%dive wokflow x\nSteps: []"), "is not valid"),
        (notebook("1", "%%dive workflow x\nStep: []"), "code cell 2:2:1: unknown key 'Step'"),
    ],
)
def test_a_notebook_that_defines_nothing_says_why(divebook, folder, text, message):
    result = divebook("run", write(folder / "report.ipynb", text))
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


# --- code cells ----------------------------------------------------------------------------------------------------

CODE = (
    "FACTOR = 21",
    "raise SystemExit('not needed')",
    "from divebook.definitions import step, workflow\n@step\ndef times(n: int) -> int:\n    return n * FACTOR",
    "%matplotlib_of_nobody\nprint('seen')",
    "@workflow\nasync def total(ctx, n: int = 2):\n    return [await ctx.ask('Who?'), await times(n)]\nprint('made')",
)


@pytest.fixture
def own_shell(monkeypatch):
    """Let the command have a shell of its own, and leave none behind."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    known = InteractiveShell.initialized()
    yield
    if known:
        InteractiveShell.instance().reset(new_session=False)
    else:
        InteractiveShell.clear_instance()


@pytest.fixture
def report(folder):
    return write(folder / "report.ipynb", notebook(*CODE, CELL))


def test_code_is_run_only_when_asked_and_the_cells_are_named(divebook, report):
    result = divebook("run", report, "-w", "told", "-q")
    assert result.exit_code == 0
    assert (
        "warning: code cells 3, 5 contain definitions in Python, but Python code runs only on request" in result.stderr
    )
    assert f"divebook run {report} --code" in result.stderr
    only_python = divebook("run", write(report.with_name("python.ipynb"), notebook(*CODE)))
    assert (only_python.exit_code, only_python.stdout) == (2, "")
    assert "no cell starts with %%dive, and code cells 3, 5 contain definitions in Python" in only_python.stderr


@pytest.mark.usefixtures("own_shell")
def test_what_a_notebook_defines_in_python_is_run_answered_and_resumed(divebook, report):
    waiting = divebook("run", report, "-w", "total", "--code", "--json")
    assert waiting.exit_code == 3, waiting.stderr
    assert json.loads(waiting.stdout)["status"] == "waiting"
    assert waiting.stderr.startswith(f"running code cells 1, 3, 5 of {report}\nmade\n")
    assert f"TEXT -d {report} --code" in waiting.stderr
    question = json.loads(divebook("inbox", "--json").stdout)["questions"][0]["question_id"]
    answered = divebook("answer", question, "ann", "-d", report, "--code", "--json", "-q")
    assert json.loads(answered.stdout)["outputs"] == {"result": ["ann", 42]}


@pytest.mark.usefixtures("own_shell")
def test_cells_in_yaml_are_there_beside_the_code(divebook, report):
    assert divebook("run", report, "-w", "told", "--code", "-q").exit_code == 0


@pytest.mark.usefixtures("own_shell")
@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            "flow = Workflow('w', steps)",
            "code cell 1 of report.ipynb, line 1: NameError: name 'Workflow' is not defined",
        ),
        ("\nx = [1][2]\nAgent(x)", "code cell 1 of report.ipynb, line 2: IndexError: list index out of range"),
        ("1", "report.ipynb: no cell starts with %%dive"),
    ],
)
def test_code_that_cannot_be_run_names_its_cell_and_line(divebook, folder, cell, message):
    write(folder / "report.ipynb", notebook(cell))
    result = divebook("run", "report.ipynb", "--code")
    assert result.exit_code == 2
    assert f"error: {message}" in result.stderr
    assert "Traceback" not in result.stderr + result.stdout


def test_only_notebooks_have_code_cells(divebook, hello):
    result = divebook("run", hello, "--code")
    assert result.exit_code == 2
    assert f"--code runs the code cells of a notebook, but {hello} is not a notebook" in result.stderr
