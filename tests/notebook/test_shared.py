"""Files of runs in a notebook: `run.to_html`, `run.to_notebook` and `%dive open`."""

import json

import pytest
from IPython.core.error import UsageError

from divebook.errors import DivebookError, SavedRunError
from divebook.notebook.saved_notebook import SavedRun
from divebook.runtime.run import Run

WORKFLOW = """
%%dive
Config:
  Providers: [{Name: openai, RequestHeaders: {X-Api-Key: [blue heron at noon]}}]
Workflows:
- Name: sum
  Inputs: [{Name: api_key, Default: tulips in the window box}]
  Steps:
  - {Name: add, Script: "1 + 1", Store: n}
  - {Name: tell, Script: "inputs.api_key + ' and blue heron at noon'", Store: told}
"""


@pytest.fixture
def run(cell):
    cell(WORKFLOW.strip())
    return cell("%dive run sum")[0]


@pytest.mark.parametrize("name", ["run.html", "run.ipynb"])
def test_a_run_opens_again_as_a_run(run, cell, tmp_path, name):
    path = (run.to_html if name == "run.html" else run.to_notebook)(tmp_path / name)
    opened, _ = cell(f"again = %dive open {path}\nagain")
    assert isinstance(opened, Run)
    assert (opened.id, opened.status, opened.variables["n"]) == (run.id, "completed", 2)
    columns = ["step", "type", "duration", "status"]
    assert opened.steps[columns].equals(run.steps[columns])
    assert "tulips" not in path.read_text() + repr(opened.events.to_csv()) + repr(opened.internals.static_bundle())
    assert opened.variables["told"] == "[redacted] and [redacted]"
    assert opened.replay().lasting_bundle()["text/plain"].startswith("Replay of sum")
    with pytest.raises(UsageError, match="contains only one run; remove the run id"):
        cell(f"%dive open {path} {run.id}")


def test_the_cells_of_a_notebook_show_the_same_when_they_are_run_again(run, cell, tmp_path, monkeypatch):
    import nbformat

    monkeypatch.chdir(tmp_path)
    notebook = nbformat.read(run.to_notebook("run.ipynb"), 4)
    cells = [found for found in notebook.cells if found.cell_type == "code"]
    cell(cells[0].source.partition("\n")[2])
    for found in cells[1:]:
        again, _ = cell(found.source)
        shown = found.outputs[0]["data"]
        if "text/html" in shown:
            assert again._repr_html_() == shown["text/html"]
        else:
            assert again == json.loads(shown["text/plain"])


def test_a_page_without_a_log_opens_to_be_looked_at(run, cell, tmp_path):
    path = run.to_html(tmp_path / "run.html", log=False)
    opened, _ = cell(f"%dive open {path}")
    assert isinstance(opened, SavedRun)
    assert (opened.id, opened.variables["n"], len(opened.events)) == (run.id, 2, run.state.last_sequence)


def test_a_page_of_something_else_is_refused(cell, tmp_path):
    path = tmp_path / "other.html"
    path.write_text("<p>hello</p>")
    with pytest.raises(SavedRunError, match=r"other\.html has no part 'run'"):
        cell(f"%dive open {path}")


def test_a_damaged_page_is_refused_with_the_part(run, cell, tmp_path):
    path = run.to_html(tmp_path / "run.html")
    path.write_text(path.read_text().replace('data-name="log" data-crc32="', 'data-name="log" data-crc32="0', 1))
    with pytest.raises(DivebookError, match="checksum"):
        cell(f"%dive open {path}")
