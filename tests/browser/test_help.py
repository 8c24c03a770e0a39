"""Shift+Tab on a key of a cell, and completion in its code, as JupyterLab shows them."""

CELL = """%%dive workflow audit
Inputs: [{Name: topic}]
Steps:
  - Name: read
    Script: len(inputs.topic)
    Store: count
  - Name: tell
    Each: {Items: [1, 2], As: row, Parallel: 2}
    Prompt: Tell about ${sta"""


def put_cursor(notebook, text, after):
    """Put the cursor behind a piece of a cell's text, in the editor."""
    line = text[: text.index(after) + len(after)].count("\n")
    notebook.cell(1).locator(".cm-line").nth(line).click()
    notebook.page.evaluate(
        """(offset) => { const editor = inLab.panel().content.widgets[1].editor;
        editor.focus(); editor.setCursorPosition(editor.getPositionAt(offset)); }""",
        text.index(after) + len(after),
    )


def test_a_key_is_explained_and_names_are_completed_where_the_cursor_is(lab):
    notebook = lab(CELL)
    put_cursor(notebook, CELL, "Paral")
    notebook.page.keyboard.press("Shift+Tab")
    tooltip = notebook.page.locator(".jp-Tooltip")
    tooltip.get_by_text("Parallel: Maximum number of items that run at the same time").wait_for()
    assert "example  Parallel: 4" in tooltip.inner_text()
    notebook.shot("help-of-a-key")
    notebook.page.keyboard.press("Escape")
    tooltip.wait_for(state="detached")
    put_cursor(notebook, CELL, "${sta")
    notebook.page.keyboard.press("Tab")
    notebook.page.locator(".jp-Completer").get_by_text("state.count").wait_for()
    notebook.page.keyboard.press("Enter")
    notebook.until("inLab.panel().content.widgets[1].model.sharedModel.source.endsWith('${state.count')")
