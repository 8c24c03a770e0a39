"""The sixth notebook runs as a new user would run it, on a Postgres and a Dask cluster where they are there."""

from contextlib import ExitStack

import nbformat
import pytest

from tests.notebook.books import NOTEBOOKS, executed_in, shown
from tests.postgres.server import is_available, postgres_server

NOTEBOOK = NOTEBOOKS / "06_more_than_one_machine.ipynb"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Run it in an empty folder."""
    folder = tmp_path_factory.mktemp("machines")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.delenv("POSTGRES", raising=False)
        if is_available():
            patch.setenv("POSTGRES", stack.enter_context(postgres_server("fsync=off")).url())
        yield executed_in(folder, NOTEBOOK.name)


def test_it_says_what_it_runs_on(executed):
    told = shown(executed, "store = os").strip()
    file = "a file, for this machine only; for a database: pip install 'divebook[postgres]' and set POSTGRES"
    assert told == ("a database" if is_available() else file)


def test_what_a_worker_that_died_had_is_completed_and_one_ticket_asks(executed):
    assert shown(executed, "command =") == "True"
    told = shown(executed, "for run in runs")
    assert "completed    23" in told
    assert "waiting       1" in told
    shares, kinds = eval(shown(executed, "read_by ="))
    assert (sum(shares), kinds) == (24, {"bill": 8, "outage": 8, "praise": 8})


def test_the_question_is_answered_from_the_notebook_and_the_worker_drains(executed):
    assert shown(executed, "for question in runs[13]") == "'Ann'"
    said = shown(executed, "workers[1].terminate").splitlines()
    assert sum("serves the queues tickets; press Ctrl-C or send SIGTERM to stop it" in line for line in said) == 2
    assert sum("has ended after" in line for line in said) == 1


def test_the_rows_are_scored_by_several_processes(executed):
    assert shown(executed, "def score") == "({7: 1000}, True, True)"


def test_saved_outputs_are_those_of_the_cells():
    saved = nbformat.read(NOTEBOOK, as_version=4)
    cells = [cell for cell in saved.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)
