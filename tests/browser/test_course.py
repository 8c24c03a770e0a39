"""What a run does and has: its variables as they are now, the items that really began, and a pause from the page."""

import pytest

from tests.browser.test_saved import reopened

STAGES = """\
import pandas

@divebook.action("Test.Frame")
def frame() -> pandas.DataFrame:
    return pandas.DataFrame({"bird": ["owl", "lark", "wren", "tit", "kite", "swift"], "seen": range(6)})
"""
WORKFLOW = """\
%%dive workflow birds
Inputs: [{Name: folder, Default: site-packages}]
Steps:
  - {Name: list, Action: Test.Frame, Store: rows}
  - Name: classify
    Each: {Items: [{name: owl}, {name: lark}, {name: wren}, {name: tit}, {name: kite}, {name: swift}], As: bird}
    Action: Test.Call
    Parameters: {name: "${bird['name']}", gate: "${bird['name']}"}
    Store: verdicts
  - {Name: tell, Script: "len(state.verdicts)", Store: report}
"""
ALL = ("owl", "lark", "wren", "tit", "kite", "swift")


@pytest.fixture(scope="module")
def server(extended):
    return extended


def opened(lab, *more):
    notebook = lab(STAGES, WORKFLOW, "run = %dive run birds", *more)
    notebook.run_through(1)
    notebook.run_through(2)
    return notebook


def let(notebook, *names):
    for name in names:
        (notebook.folder / name).touch()


def texts_of(table):
    return [[cell.inner_text() for cell in row.locator("th, td").all()] for row in table.locator("tbody tr").all()]


def test_variables_are_shown_as_they_are_now_and_in_the_saved_notebook(lab, tab, looks):
    notebook = opened(lab)
    notebook.run(3)
    pane = notebook.output(3).locator(".divebook-variables")
    pane.get_by_text("Variables (5)").wait_for()
    pane.locator(".aside").get_by_text("first 5 of 6 rows · set by list").wait_for()
    assert texts_of(pane.locator(".all table")) == [
        ["folder", "text", "13", "site-packages"],
        ["rows", "DataFrame", "6 x 2", "a table; select it to see it"],
        ["verdicts", "not set yet"],
        ["report", "not set yet"],
        ["bird", "mapping", "1", '{"name": "owl"}'],
    ]
    looks.at(notebook, "variables-live", notebook.output(3).locator(".db-root"))
    let(notebook, *ALL)
    notebook.wait_idle()
    notebook.until("JSON.stringify(inLab.outputs(3)).includes('✓ completed')")
    notebook.save()
    again = reopened(tab, notebook.folder, trusted=False)
    saved = again.output(3).locator(".db-saved").first
    pane = saved.locator(".divebook-variables")
    pane.get_by_role("button", name="verdicts").click()
    pane.locator(".aside").get_by_text("list · set by classify").wait_for()
    pane.locator(".aside").get_by_text('"owl"').wait_for()
    looks.at(again, "variables-saved", saved)


def test_a_pause_in_the_page_begins_no_item_and_stops_run_all_until_the_cell_runs_again(lab):
    notebook = opened(lab, "print('after', run.status)")
    notebook.run(3)
    notebook.run(4)
    notebook.until_calls("began", ["owl"])
    notebook.output(3).get_by_role("button", name="Pause").click()
    notebook.see(3, "Run the cell again to continue the run")
    notebook.wait_idle()
    assert notebook.calls("began") == ["owl"]
    notebook.shot("paused-in-the-page", notebook.output(3))
    let(notebook, *ALL)
    notebook.run_through(3)
    notebook.run_through(4)
    notebook.see(4, "after completed")
    assert notebook.calls("began") == ["owl", *ALL]  # the one that was broken off was made again
    notebook.shot("went-on-after-a-pause", notebook.output(3))
