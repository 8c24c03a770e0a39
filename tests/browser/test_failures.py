"""What a page shows of what failed: the card, the way from failure to failure, and the line that is to blame."""

import re

import pytest

from tests.browser.test_keys import assert_keys_stay_in
from tests.browser.test_live import WORKFLOW
from tests.browser.test_recovery import kill_kernel
from tests.browser.test_saved import reopened

PARSE = """\
from divebook.definitions import step, workflow
rows = [{'id': n, 'kind': 'billing'} for n in range(8)]

@step(idempotent=True)
def parse(row: dict) -> str:
    answer = {"category": row["kind"]}
    return answer["label"] if row["id"] == 5 else answer["category"]

@workflow
async def parsed(ctx, rows: list):
    return [await parse(row) for row in rows]
"""
LABELS = """\
%%dive workflow labels
Inputs: [{Name: rows}]
Steps:
  - Name: label
    Each: {Items: "$(inputs.rows)", As: row, Parallel: 4}
    Action: Test.Label
    Parameters: {row: "$(row)"}
    Store: kinds
"""
ACTION = """\
@divebook.action("Test.Label", idempotent=True)
async def label(row: dict) -> str:
    answer = {"category": await call(row["kind"], "go")}
    return answer["label"] if row["id"] in (1, 2, 3) else answer["category"]
"""


@pytest.fixture(scope="module")
def server(extended):
    return extended


def failed(notebook, index):
    """Run a cell whose run fails once its view is there; return the view."""
    notebook.run(index)
    view = notebook.output(index).locator(".db-root")
    view.locator(".db-status[data-status=running]").wait_for()
    (notebook.folder / "go").touch()
    notebook.wait_idle()
    return view


def assert_says_what_failed(card):
    """The card names the error, the item, what it was given, and the line."""
    card.get_by_text("✕ KeyError: 'label'").wait_for()
    for text in ("rows[1]", "row = {'id': 1, 'kind': 'billing'}", "Cell [3], line 4", "3 failures with the same error"):
        assert text in card.inner_text()
    assert 'answer["label"]' in card.locator(".src .at").inner_text()
    assert card.locator("details.trace").get_attribute("open") is None


def test_what_failed_stands_in_a_card_and_is_one_press_away(lab, tab, looks):
    notebook = lab(PARSE, ACTION, LABELS, "%dive run labels rows=$rows")
    for cell in range(1, 4):
        notebook.run_through(cell)
    view = failed(notebook, 4)
    card = view.locator(".divebook-failure")
    assert_says_what_failed(card)
    view.locator(".db-canvas").wait_for()
    looks.at(notebook, "failure", view)
    view.locator(".db-header").click(position={"x": 3, "y": 3})
    notebook.page.keyboard.press("n")
    card.get_by_text("2 of 3").wait_for()
    assert "rows[2]" in card.inner_text()
    notebook.page.keyboard.press("p")
    card.get_by_text("1 of 3").wait_for()
    assert_keys_stay_in(notebook, view)
    notebook.output(4).get_by_role("button", name="Go to line").click()
    notebook.until("inLab.panel().content.activeCellIndex === 2 && inLab.panel().content.mode === 'edit'")
    notebook.until("inLab.panel().content.activeCell.editor.getCursorPosition().line === 3")
    notebook.save()
    again = reopened(tab, notebook.folder, trusted=False)
    assert_says_what_failed(again.output(4).locator(".divebook-failure"))


def test_what_failed_in_a_function_names_the_step_and_its_line(lab):
    notebook = lab(PARSE, "%dive run parsed rows=$rows")
    for cell in (1, 2):
        notebook.run_through(cell)
    card = notebook.output(2).locator(".divebook-failure")
    card.get_by_text("✕ KeyError: 'label'").wait_for()
    for text in ("parse", "row = {'id': 5, 'kind': 'billing'}", "Cell [2], line 7"):
        assert text in card.inner_text()


def test_after_the_cell_was_edited_the_run_goes_on_from_the_page(lab, looks):
    notebook = lab(
        "rows = [{'id': n, 'kind': 'billing'} for n in range(8)]", ACTION, LABELS, "%dive run labels rows=$rows"
    )
    for cell in range(1, 4):
        notebook.run_through(cell)
    view = failed(notebook, 4)
    view.get_by_role("button", name="Edit Cell [3]").wait_for()
    mended = ACTION.replace('["label"]', '["category"]')
    notebook.page.evaluate("(text) => inLab.panel().content.widgets[2].model.sharedModel.setSource(text)", mended)
    notebook.run_through(2)
    fix = view.locator(".ways .primary:enabled", has_text="Fix and continue")
    fix.wait_for()
    assert "Reused:" in view.locator(".ways").inner_text()
    looks.at(notebook, "failure-mended", view)
    fix.click()
    view.locator(".sure .told", has_text=re.compile("operations? reused")).wait_for()  # as many as were done
    looks.at(notebook, "failure-plan", view)
    view.get_by_role("button", name="Continue", exact=True).click()
    view.locator(".db-status[data-status=completed]").wait_for()
    view.locator(".divebook-failure").wait_for(state="hidden")
    # Nothing of the run that failed stays: neither its variables nor its red node.
    kinds = view.locator(".divebook-variables tr", has=notebook.page.get_by_role("button", name="kinds", exact=True))
    kinds.get_by_text("list", exact=True).wait_for()
    assert "not set yet" not in view.locator(".divebook-variables").inner_text()
    assert view.locator(".db-status").count() == 1


def test_a_run_whose_kernel_was_killed_says_so_and_goes_on_by_its_button(lab, looks):
    notebook = lab(WORKFLOW, "%dive run held")
    notebook.run_through(1)
    notebook.run(2)
    view = notebook.output(2)
    view.locator(".db-status[data-status=running]").wait_for()
    kill_kernel(notebook)
    view.locator(".db-status", has_text="kernel stopped").wait_for()
    view.get_by_text("The kernel stopped. Completed calls are saved.").wait_for()
    looks.at(notebook, "kernel-stopped", view.locator(".db-root"))
    (notebook.folder / "go").touch()
    view.get_by_role("button", name="Resume", exact=True).click()
    view.locator(".db-status[data-status=completed]").wait_for()
    notebook.wait_idle()
    assert notebook.calls("ended") == ["first", "second", "third"]
