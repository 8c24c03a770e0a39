"""The side panel of JupyterLab: the runs and the inbox of the notebook in front, opened from the palette."""

import pytest

from tests.browser.test_runs import BOOK, START, row


@pytest.fixture(scope="module")
def server(extended):
    return extended


def test_the_side_panel_is_opened_from_the_palette_and_follows_the_notebook_in_front(lab):
    notebook = lab(BOOK, START)
    page = notebook.page
    page.evaluate("jupyterapp.commands.execute('apputils:activate-command-palette')")
    page.locator(".lm-CommandPalette-input").fill("Runs of this notebook")
    page.locator(".lm-CommandPalette-item", has_text="Runs of this notebook").first.click()
    panel = page.locator("#divebook-runs")
    for cell in (1, 2):
        notebook.run_through(cell)
    view = panel.locator(".divebook-runs")
    row(view, "label-tickets").get_by_text("KeyError").wait_for()
    notebook.command("divebook:inbox")
    inbox = view.get_by_role("region", name="Inbox")
    notebook.until("document.activeElement?.getAttribute('aria-label') === 'Inbox'")
    box = inbox.bounding_box()
    assert box["height"] > 100
    assert box["y"] + box["height"] <= page.viewport_size["height"]
    notebook.shot("runs-panel")
    view.locator("article.card").get_by_role("button", name="Approve", exact=True).click()
    row(view, "publish").locator(".st.completed").wait_for()
    row(view, "label-tickets").get_by_role("button", name="Open label-tickets").click()
    notebook.see(3, "KeyError")
    assert notebook.errors == []
