"""What a saved notebook shows without its kernel, and what a hostile answer can do: be read, and nothing else."""

import base64

import nbformat
import pytest

from tests.browser.test_live import ASKING, WORKFLOW, approve


def reopened(tab, folder, *, trusted):
    """Open the notebook as saved, its kernel shut down: once more, or changed by somebody else, so not trusted."""
    lab = tab.opened[0]
    lab.clear()
    lab.server.end_kernels()
    path = folder / "test.ipynb"
    if not trusted:
        notebook = nbformat.read(path, 4)
        notebook.metadata["from"] = "elsewhere"
        path = folder / "elsewhere.ipynb"
        nbformat.write(notebook, path)
    lab.server.lend_kernel(path)  # what is saved is looked at and not run
    return lab.open(path)


def assert_shows_the_run(notebook, index, status):
    notebook.see(index, status)
    area = notebook.output(index)
    assert area.locator("table").count() >= 1
    assert area.locator("img[src^='data:image/svg+xml']").first.evaluate("(image) => image.naturalWidth") > 100
    assert "model not found" not in area.inner_text()
    assert "Loading widget" not in area.inner_text()


@pytest.mark.parametrize("trusted", [True, False], ids=["trusted", "untrusted"])
def test_a_finished_run_is_shown_without_its_kernel(lab, tab, trusted):
    notebook = lab(WORKFLOW, "%dive run held")
    (notebook.folder / "go").touch()
    notebook.run_through(1)
    notebook.run_through(2)
    notebook.see(2, "completed")
    notebook.save()
    again = reopened(tab, notebook.folder, trusted=trusted)
    assert_shows_the_run(again, 2, "completed")
    assert again.output(2).locator(".jp-RenderedHTMLCommon").count() == 1


def test_a_run_whose_cell_ended_first_is_saved_with_its_end(lab, tab):
    notebook = lab(ASKING, "r = %dive run asking --background")
    notebook.run_through(1)
    notebook.run_through(2)
    notebook.see(2, "Publish it?")
    approve(notebook, 2)
    notebook.output(2).locator(".db-root").wait_for(state="detached")
    notebook.save()
    assert_shows_the_run(reopened(tab, notebook.folder, trusted=True), 2, "completed")


def test_what_waits_the_inbox_and_a_replay_show_the_same_whether_trusted_or_not(lab, tab):
    notebook = lab(ASKING, "r = %dive run asking --background", "%dive inbox", "r.replay()")
    for cell in (1, 2, 3, 4):
        notebook.run_through(cell)
    for cell, view in ((2, "live"), (3, "inbox"), (4, "replay")):
        notebook.output(cell).locator(f".divebook-{view}" if view != "live" else ".db-root").first.wait_for()
        below = notebook.output(cell).locator(".divebook-below")
        # of a run in the background it is saved when it asks, which may be after its cell
        below.filter(has_text="Publish it?").wait_for(state="attached")
        assert below.is_hidden()  # the view says it all
    notebook.save()
    seen = []
    for trusted in (True, False):
        again = reopened(tab, notebook.folder, trusted=trusted)
        again.see(4, "Publish it?")
        again.until("!document.querySelector('.jp-Notebook').innerText.includes('Loading widget')")
        seen.append([again.output(cell).inner_text().strip() for cell in (2, 3, 4)])
        again.shot(f"saved-plain-{'trusted' if trusted else 'untrusted'}")
    assert seen[0] == seen[1]
    for told in seen[0]:
        assert "Publish it?" in told
        assert "Error displaying" not in told


# --- hostile answers -------------------------------------------------------------------------------------------------

HOSTILE = (
    "<script>window.owned = 1</script><img src=x onerror='window.owned = 2'><svg onload='window.owned = 3'></svg>"
    "<iframe srcdoc='<script>parent.owned = 4</script>'></iframe><style>* { display: none }</style>"
    "[click](javascript:window.owned=5) \x1b[31mred\x1b[0m \x1b]0;title\x07 "
    "\u202ereversed\u202c \u2066isolated\u2069 \u200f end"
)


def hostile_notebook(lab):
    text = base64.b64encode(HOSTILE.encode()).decode()
    cell = f"""\
import base64
from divebook.notebook.session import current_session
hostile = base64.b64decode("{text}").decode()
model = divebook.ScriptedModel([hostile, "x" * 5_000_000])
current_session().environment.add_agent(divebook.Agent("writer", model=model))
"""
    workflow = """\
%%dive workflow hostile
Steps:
  - {Name: say, Agent: writer, Prompt: Say it, Store: said}
  - {Name: long, Agent: writer, Prompt: Say more, Store: more}
  - {Name: approve, Ask: {Kind: confirmation, Question: "${state.said}", Message: "${state.more}"}}
"""
    return lab(cell, workflow, "%dive run hostile")


def assert_harmless(notebook):
    assert notebook.page.evaluate("window.owned") is None
    assert notebook.page.evaluate("new Promise((done) => requestAnimationFrame(() => done(true)))")
    assert notebook.cell(0).is_visible()


def test_a_hostile_answer_is_shown_and_does_nothing(lab, tab):
    notebook = hostile_notebook(lab)
    for cell in (1, 2):
        notebook.run_through(cell)
    notebook.run(3)
    card = notebook.output(3).locator("article.card")
    card.get_by_text("<script>").filter(visible=True).first.wait_for()
    text = card.inner_text()
    assert "\x1b" not in text
    assert not set(text) & set("\u202e\u2066\u200f")
    notebook.output(3).locator(".db-table summary").click()
    notebook.shot("hostile-question", notebook.output(3))
    assert_harmless(notebook)
    notebook.output(3).get_by_role("button", name="Approve", exact=True).click()
    notebook.wait_idle()
    notebook.output(3).locator("img[src^='data:image/svg+xml']").first.wait_for()  # what lasts has taken its place
    assert_harmless(notebook)
    notebook.save()
    for trusted in (True, False):
        again = reopened(tab, notebook.folder, trusted=trusted)
        again.see(3, "completed")
        assert_harmless(again)
        table, area = again.output(3).locator("table").first.bounding_box(), again.output(3).bounding_box()
        assert table["x"] + table["width"] <= area["x"] + area["width"]
    again.shot("hostile-saved")
