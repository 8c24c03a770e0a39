"""Python files and notebooks as definitions: run, resume and answer take them as they take YAML."""

import json

import pytest

from tests.cli.conftest import write

MODULE = """
from divebook import Environment, Step, Workflow
from divebook.workflow import workflow

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


@pytest.fixture
def module(folder):
    return write(folder / "flows.py", MODULE)


def test_a_workflow_function_of_a_file_is_run(divebook, module):
    result = divebook("run", module, "-w", "double", "-v", "n=21", "--json", "-q")
    assert result.exit_code == 0, result.stderr
    assert "42" in result.stdout


def test_what_an_environment_of_a_file_holds_is_run(divebook, module):
    assert divebook("run", module, "-w", "held", "-q").exit_code == 0


def test_a_question_of_a_file_is_answered_with_the_file(divebook, module):
    waiting = divebook("run", module, "-w", "guess", "-q")
    assert waiting.exit_code == 3
    question = json.loads(divebook("inbox", "--json").stdout)[0]["interrupt_id"]
    assert divebook("answer", question, "seven", module, "-q").exit_code == 0


def test_the_cells_of_a_notebook_are_run_and_no_other_code(divebook, folder):
    file = write(folder / "report.ipynb", notebook("raise SystemExit('not to be run')", CELL))
    result = divebook("run", file, "-w", "told", "--json", "-q")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["variables"] == {"n": 42}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a notebook"),
        (notebook("1"), "no cell begins with %%dive"),
        (notebook("%%dive wokflow x\nSteps: []"), "is not understood"),
        (notebook("1", "%%dive workflow x\nStep: []"), "code cell 2:2:1: unknown key 'Step'"),
    ],
)
def test_a_notebook_that_defines_nothing_says_why(divebook, folder, text, message):
    result = divebook("run", write(folder / "report.ipynb", text))
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
