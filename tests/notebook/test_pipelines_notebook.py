"""The eighth notebook runs as a new user would run it."""

import nbformat
import pytest

from tests.notebook.books import NOTEBOOKS, executed_in, shown

NOTEBOOK = NOTEBOOKS / "08_pipelines.ipynb"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    return executed_in(tmp_path_factory.mktemp("pipelines"), NOTEBOOK.name)


def test_the_planner_asks_and_the_critic_rejects_the_first_plan(executed):
    assert "asks: How many guests come?" in shown(executed, "run = %dive run party")
    assert shown(executed, "for question in run.open_questions").endswith("'completed'")
    envelope = shown(executed, "envelope = run.envelope")
    assert "iterations: 2 model calls: 5" in envelope
    assert "there is nothing to eat" in envelope


def test_the_goals_of_a_request_are_satisfied_one_after_the_other(executed):
    assert shown(executed, "from divebook.pipeline") == "({'tea': 'satisfied', 'cups': 'satisfied'}, [])"


def test_saved_outputs_are_those_of_the_cells():
    cells = [cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)
