"""What JupyterLab and Notebook 7 show of views with the extension: they stay, and what is saved outlasts them."""

import importlib.util

import pytest

from tests.browser.test_live import ASKING, WORKFLOW, approve
from tests.browser.test_saved import reopened

RECORDING, HOSTED = "application/vnd.divebook.run+json", "application/vnd.divebook.view+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
BOOM = """\
%%dive workflow boom
Steps:
  - {Name: first, Action: Test.Call, Parameters: {name: first}}
  - {Name: rest, Script: 1 // 0}
"""


@pytest.fixture(scope="module", params=["jupyterlab", "notebook"])
def server(servers, require, request):
    require(request.param, importlib.util.find_spec(request.param) is not None)
    return servers(request.param, extended=True)


SHOWN = {
    "paused": ("%dive run held", "The run is paused. Run the cell again to continue the run."),
    "finished": ("%dive run held --new", "completed"),
    "waiting": ("r = %dive run asking --background", "Publish it?"),
    "answered": ("s = %dive run asking --new --background", "completed"),
    "failed": ("t = %dive run boom --no-check", "ZeroDivisionError"),
    "replay": ("t.replay()", "boom"),
    "inbox": ("%dive inbox", "Publish it?"),
}
"""What is saved, by its name: the cell that shows it, and what must be read there without its kernel."""
PLACES = {name: place for place, name in enumerate(SHOWN, start=4)}


def shown_without_kernel(notebook, tab):
    """Return what cells show without their kernel, which must be the same whether the notebook is trusted or not."""
    notebook.save()
    seen = []
    for trusted in (True, False):
        again = reopened(tab, notebook.folder, trusted=trusted)
        for name, (_, text) in SHOWN.items():
            again.see(PLACES[name], text)
        again.until("!document.querySelector('.jp-Notebook').textContent.includes('Loading widget')")
        seen.append({name: again.output(place).inner_text() for name, place in PLACES.items()})
        again.shot(f"kept-{'trusted' if trusted else 'untrusted'}")
    assert seen[0] == seen[1]
    return seen[0]


def data(notebook, index):
    """Return what is saved of the outputs of a cell, by type."""
    return [output["data"] for output in notebook.outputs(index) if output.get("data", {}).get("text/plain")]


def until_saved(notebook, index, status):
    """Wait until what is saved of a run says its status, and needs no widget; else say what is saved instead."""

    def saved():
        return [(output["data"].get(RECORDING, {}).get("status"), WIDGET in output["data"]) for output in shown()]

    def shown():
        return [output for output in notebook.outputs(index) if "data" in output]

    notebook.until_here(lambda: (status, False) in saved(), lambda: f"cell {index}: {saved()}, not {status}: {shown()}")


def test_views_stay_while_their_kernel_lives(lab):
    notebook = lab(WORKFLOW, ASKING, BOOM, "%dive run held", "%dive run boom --no-check")
    for cell in (1, 2, 3):
        notebook.run_through(cell)
    notebook.run(4)
    notebook.output(4).locator(".db-status[data-status=running]").wait_for()
    notebook.page.evaluate("document.querySelector('.db-root').dataset.same = 'yes'")
    (notebook.folder / "go").touch()
    notebook.wait_idle()
    notebook.output(4).locator(".db-root[data-same=yes] .db-status[data-status=completed]").wait_for()
    until_saved(notebook, 4, "completed")  # the kernel knows by now that its page hosts views
    (saved,) = data(notebook, 4)
    assert saved[HOSTED]["model_id"]
    assert saved[RECORDING]["recording"]
    notebook.run_through(5)  # fails at once
    notebook.output(5).locator(".db-root:not(.db-saved) .db-status[data-status=failed]").wait_for()
    until_saved(notebook, 5, "failed")
    notebook.save()
    notebook.reload()
    notebook.output(4).locator(".db-root:not(.db-saved) .db-status[data-status=completed]").wait_for()


def test_what_is_saved_shows_the_same_whether_trusted_or_not(lab, tab):
    notebook = lab(WORKFLOW, ASKING, BOOM, *(cell for cell, _ in SHOWN.values()))
    for cell in (1, 2, 3):
        notebook.run_through(cell)
    pause(notebook, PLACES["paused"])
    (notebook.folder / "go").touch()
    for name in ("finished", "waiting", "answered"):
        notebook.run_through(PLACES[name])
    answer(notebook, PLACES["answered"])
    for name in ("failed", "replay", "inbox"):
        notebook.run_through(PLACES[name])
    statuses = {"paused": "paused", "finished": "completed", "waiting": "waiting", "failed": "failed"}
    for name, status in statuses.items():
        until_saved(notebook, PLACES[name], status)
    assert len(data(notebook, PLACES["waiting"])) == 1
    notebook.output(PLACES["replay"]).locator(".divebook-replay .event").first.wait_for()
    notebook.output(PLACES["inbox"]).locator("article.card").first.wait_for()
    notebook.until(f"inLab.outputs({PLACES['inbox']}).some(({{ data = {{}} }}) => data['{HOSTED}'] !== undefined)")
    shown = shown_without_kernel(notebook, tab)
    assert not [name for name, text in shown.items() if "model not found" in text or "Error displaying" in text]
    assert "%dive answer" in shown["inbox"]
    assert "failed" in shown["replay"]


def pause(notebook, index):
    """Run a cell, and interrupt it while its run is held."""
    notebook.run(index)
    notebook.until_calls("began", ["first", "second"])
    notebook.interrupt()
    notebook.wait_idle()


def answer(notebook, index):
    """Answer in a view that stays, and wait until that is saved."""
    notebook.see(index, "Publish it?")
    approve(notebook, index)
    notebook.output(index).locator(".db-status[data-status=completed]").wait_for()
    until_saved(notebook, index, "completed")
    assert notebook.calls("ended")[-2:] == ["before", "after"]
