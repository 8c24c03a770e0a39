"""The tile of JupyterLab's launcher: it opens a notebook whose cells run as they are."""

import pytest

from divebook.commands.tutorial import FIRST_CELLS
from tests.browser.lab import write_notebook


@pytest.fixture(scope="module")
def server(servers):
    return servers(extended=True)


def test_the_tile_opens_a_notebook_that_runs_and_shows_a_live_card(tab, folder):
    notebook = tab(write_notebook(folder / "test.ipynb", ["1"]))
    notebook.run_through(0)
    notebook.page.evaluate("inLab.clear()")
    notebook.command("launcher:create", cwd=folder.relative_to(notebook.server.folder).as_posix())
    notebook.page.locator(".jp-LauncherCard", has_text="divebook").filter(visible=True).click()
    notebook.until("inLab.ready()")
    notebook.until(f"inLab.panel().content.widgets.length === {len(FIRST_CELLS)}")
    sources = notebook.page.evaluate("inLab.panel().content.widgets.map((cell) => cell.model.sharedModel.getSource())")
    assert tuple(sources) == FIRST_CELLS
    notebook.run_all()
    last = len(FIRST_CELLS) - 1
    notebook.output(last).locator(".db-root .db-status[data-status=waiting]").wait_for()
    card = notebook.output(last).locator("article.card", has_text="Keep this text?")
    notebook.shot("launcher", notebook.output(last))
    card.get_by_role("button", name="Approve", exact=True).click()
    notebook.wait_idle()
    notebook.output(last).locator(".db-status[data-status=completed]").wait_for()
    assert [path.suffix for path in folder.iterdir() if path.name.startswith("Untitled")] == [".ipynb"]
    assert notebook.errors == []
