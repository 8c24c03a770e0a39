"""Keys that are pressed in a view do what the view says, and never what the notebook would do."""

import itertools

from tests.browser.test_live import ASKING, WORKFLOW

COMMANDS = ["d", "d", "b", "a", "x", "j", "k", "m", "y", "z", "0", "0", "i", "i", "Escape", "Shift+m", "ArrowDown"]
"""What would delete, insert, cut, merge or change cells, choose others, or restart and interrupt the kernel."""
RUNNING = ["Enter", "Shift+Enter", "Control+Enter", "Alt+Enter"]
LISTEN = """
() => {
  const { commandExecuted } = jupyterapp.commands;
  const note = (_, { id }) => { if (!id.endsWith(":get-kernel")) window.commandsRun.push(id); }; // menus ask for it
  if (window.commandsRun === undefined) commandExecuted.connect(note);
  window.commandsRun = [];
}
"""
NOTEBOOK = """
() => {
  const { content } = inLab.panel();
  const cells = content.widgets.map(({ model }) => [model.id, model.type, model.sharedModel.source]);
  return [window.commandsRun, content.activeCellIndex, content.mode, ...cells];
}
"""
FOCUS = """
(root, place) => {
  const all = [root, ...root.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")];
  const node = all.filter((one) => one.checkVisibility())[place];
  node?.focus();
  return node !== undefined;
}
"""


def assert_keys_stay_in(notebook, view):
    """Press what the notebook would understand wherever the view can have the focus: the notebook stays as it is."""
    page = notebook.page
    view.click(position={"x": 3, "y": 3})
    page.evaluate(LISTEN)
    before = page.evaluate(NOTEBOOK)
    places = itertools.takewhile(lambda place: view.evaluate(FOCUS, place), itertools.count())
    for place in places:
        for key in ("d", "d", "b", "Escape"):
            page.keyboard.press(key)
        assert page.evaluate(NOTEBOOK) == before, f"place {place} of the view"
    for spot in view.locator(".db-canvas, .db-header, .question, .events").filter(visible=True).all():
        spot.click(position={"x": 3, "y": 3})
        for key in [*COMMANDS, *RUNNING]:
            page.keyboard.press(key)
        assert page.evaluate(NOTEBOOK) == before


def assert_keys_stay_in_live_views(lab):
    notebook = lab(
        WORKFLOW, ASKING, "r = %dive run held --background", "s = %dive run asking --background", "%dive inbox"
    )
    for cell in range(1, 6):
        notebook.run_through(cell)
    notebook.see(4, "Publish it?")
    notebook.see(5, "Publish it?")
    notebook.output(3).locator(".db-canvas").wait_for()
    for cell, view in ((3, ".db-root"), (4, ".db-root"), (5, ".divebook-inbox")):
        assert_keys_stay_in(notebook, notebook.output(cell).locator(view))


def test_keys_stay_in_live_views_and_the_inbox(lab):
    assert_keys_stay_in_live_views(lab)


def test_keys_stay_in_a_replay(lab):
    notebook = lab(WORKFLOW, "r = %dive run held", "r.replay()")
    (notebook.folder / "go").touch()
    for cell in (1, 2, 3):
        notebook.run_through(cell)
    replay = notebook.output(3).locator(".divebook-replay")
    replay.get_by_text("of ").first.wait_for()
    assert_keys_stay_in(notebook, replay)


def test_saving_and_the_palette_are_the_pages_own(lab):
    notebook = lab(WORKFLOW, "r = %dive run held --background")
    notebook.run_through(1)
    notebook.run_through(2)
    notebook.output(2).locator("canvas.db-canvas").click()
    notebook.until("inLab.panel().context.model.dirty")
    notebook.page.keyboard.press("Control+s")
    notebook.until("!inLab.panel().context.model.dirty")
    notebook.page.keyboard.press("Control+Shift+c")
    notebook.page.locator(".lm-CommandPalette-input:focus").wait_for()
