"""The timeline of a large run: failures are found among many lanes, by eye, by hand and by keys."""

from tests.browser.test_keys import assert_keys_stay_in

ROW = """\
@divebook.action("Test.Row", idempotent=True)
async def row(row: str) -> dict:
    while not Path("held").exists():
        await asyncio.sleep(0.02)
    if row == "51":
        raise KeyError("label")
    while row == "59" and not Path("go").exists():
        await asyncio.sleep(0.02)
    return {"id": row, "label": "billing"}
"""
MANY = """\
%%dive workflow many
Steps:
  - Name: classify
    Each: {Items: "$([{'id': f'T-{n}', 'n': n} for n in range(60)])", As: ticket, Parallel: 50, OnItemError: keep}
    Action: Test.Row
    Parameters: {row: "$(str(state.ticket['n']))"}
    Next: [{Step: report}, {Step: never, Condition: "1 > 2"}]
  - {Name: never, Script: "1", End: true}
  - {Name: report, Script: "2"}
"""


def shown_column(view, name):
    return view.locator(f".db-row:not(.db-head):not([hidden]) [data-column={name}]").all_inner_texts()


def test_a_failure_among_many_lanes_is_found(lab, looks):
    notebook = lab(ROW, MANY, "r = %dive run many --no-check")
    for cell in (1, 2):
        notebook.run_through(cell)
    notebook.run(3)
    view = notebook.output(3).locator(".db-root")
    view.get_by_role("button", name="+42 lanes").wait_for()
    (notebook.folder / "held").touch()
    view.locator(".db-failures", has_text="✕ 1").wait_for()
    view.locator(".step .type", has_text="59 of 60, 1 failed").wait_for()
    view.locator(".db-table summary").click()
    view.get_by_role("button", name="✕ Failed 1").click()
    assert shown_column(view, "item") == ["T-51"]
    assert shown_column(view, "arguments") == ['{"row": "51"}']
    assert "KeyError: 'label'" in shown_column(view, "result")[0]
    looks.at(notebook, "timeline-failed", view)
    view.locator(".db-canvas").focus()
    notebook.page.keyboard.press("n")
    view.locator(".db-detail", has_text="T-51").wait_for()
    assert "T-51" in view.locator(".db-row.db-chosen").inner_text()
    view.get_by_role("button", name="+42 lanes").click()
    view.get_by_role("button", name="Fewer lanes").wait_for()
    looks.at(notebook, "timeline-all-lanes", view)
    assert_keys_stay_in(notebook, view)
    (notebook.folder / "go").touch()
    notebook.wait_idle()


def test_calls_are_ordered_and_searched(lab):
    notebook = lab(ROW, MANY, "r = %dive run many --no-check")
    for cell in (1, 2):
        notebook.run_through(cell)
    notebook.run(3)
    view = notebook.output(3).locator(".db-root")
    (notebook.folder / "held").touch()
    view.locator(".step .type", has_text="59 of 60, 1 failed").wait_for()
    view.locator(".db-table summary").click()
    view.get_by_role("columnheader", name="Item").get_by_role("button").click()
    notebook.until("document.querySelector('.db-row:not(.db-head) [data-column=item]').textContent === 'T-0'")
    assert shown_column(view, "item")[:3] == ["T-0", "T-1", "T-2"]
    view.locator(".db-canvas").focus()
    notebook.page.keyboard.press("/")
    notebook.page.keyboard.type("keyerror")
    view.get_by_text("All calls (1)").wait_for()
    assert shown_column(view, "item") == ["T-51"]
    (notebook.folder / "go").touch()
    notebook.wait_idle()
