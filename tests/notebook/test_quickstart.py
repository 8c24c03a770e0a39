"""The first notebook runs as a new user would run it."""

import shutil

import nbformat
import pytest

from tests.notebook.books import NOTEBOOKS, executed_in

QUICKSTART = NOTEBOOKS / "01_quickstart.ipynb"
UNCLEAR = QUICKSTART.with_name("example_sundial-1.0.dist-info")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quickstart")
    shutil.copytree(UNCLEAR, folder / UNCLEAR.name)
    return executed_in(folder, QUICKSTART.name)


def outputs(notebook, source):
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.startswith(source)]
    return cell.outputs


def test_it_writes_the_report(executed):
    _, folder = executed
    report = (folder / "licence-report.md").read_text()
    assert report.startswith("# Licences\n\n[scripted model: no model configured]")
    assert "| MIT | " in report


def test_the_run_is_shown_with_a_table_and_a_picture(executed):
    notebook, _ = executed
    (shown,) = outputs(notebook, "run = %dive run licence-audit")
    assert shown.data["text/html"].count("<table") == 1
    assert "data:image/svg+xml;base64," in shown.data["text/html"]


def test_what_the_rules_cannot_tell_is_asked_and_the_answer_is_reported(executed):
    notebook, folder = executed
    (shown,) = outputs(notebook, "run = %dive run licence-audit")
    assert "… waiting" in shown.data["text/plain"]
    assert "example-sundial 1.0" in shown.data["text/plain"].partition("asks: No clear licence")[2]
    (ended,) = outputs(notebook, "for question in run.open_questions")
    assert ended.data["text/plain"] == "'completed'"
    report = (folder / "licence-report.md").read_text()
    assert "They stay, until our lawyer has read their licences." in report


def test_the_log_is_explored(executed):
    notebook, _ = executed
    (events,) = outputs(notebook, "columns = ")
    assert "execution_completed" in events.data["text/plain"]


def test_what_only_moves_in_a_page_says_so_where_there_is_none(executed):
    notebook, _ = executed
    (shown,) = outputs(notebook, "run.replay()")
    text = shown.data["text/plain"]
    assert text.startswith("Replay of licence-audit exec_")
    assert text.endswith(" events; run this cell in JupyterLab to replay them")
    assert list(shown.data) == ["text/plain"]


def test_the_committed_notebook_was_run_and_tells_nothing_of_its_author():
    notebook = nbformat.read(QUICKSTART, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    assert not [place for place in ("/home/", "/root/", "/Users/") if place in QUICKSTART.read_text()]
    assert "widget-view" not in QUICKSTART.read_text()  # which trusted pages prefer, and cannot show without a kernel
