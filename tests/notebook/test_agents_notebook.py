"""The second notebook runs as a new user would run it: agents with tools, offline."""

import nbformat
import pytest

from tests.notebook.books import NOTEBOOKS, executed_in, shown

NOTEBOOK = NOTEBOOKS / "02_agents_and_tools.ipynb"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agents")
    return executed_in(folder, NOTEBOOK.name)


def test_the_call_that_writes_a_file_waits_for_a_person(executed):
    assert "… waiting" in shown(executed, "run = %dive ask researcher")
    assert "Limits in anyio" in shown(executed, "for question in run.open_questions")


def test_what_the_person_changed_is_what_was_written(executed):
    _, folder = executed
    assert [path.name for path in folder.glob("notes/*")] == ["limits.md"]
    assert "# Limits\n\n`CapacityLimiter` counts borrowers" in shown(executed, "for note in Path")


def test_the_answer_is_a_frame(executed):
    assert "anyio.CapacityLimiter" in shown(executed, "import pandas as pd")


def test_the_tools_were_really_called_by_both_agents(executed):
    text = shown(executed, "run.tool_calls")
    assert "anyio.CapacityLimiter(total_tokens" in text
    assert [text.count(name) for name in ("find_packages", "assign_work", "save_note")] == [1, 2, 1]
    assert "reader" in shown(executed, "run.costs")


def test_the_committed_notebook_was_run_and_tells_nothing_of_its_author():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    assert not [place for place in ("/home/", "/root/", "/Users/", "/tmp/") if place in NOTEBOOK.read_text()]
    assert "widget-view" not in NOTEBOOK.read_text()  # which trusted pages prefer, and cannot show without a kernel
