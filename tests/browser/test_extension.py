"""A JupyterLab with the extension that comes with divebook: saved runs to step through, and cells in colour."""

import pytest

from tests.browser.test_keys import assert_keys_stay_in
from tests.browser.test_looks import FLAKY, SHOWN, step_through
from tests.browser.test_saved import reopened
from tests.browser.test_turns import AGENTS, ASK, see_turn


@pytest.fixture(scope="module")
def server(extended):
    return extended


def test_a_saved_run_is_stepped_through_without_its_kernel(lab, tab, looks):
    notebook = lab(FLAKY, SHOWN, "%dive run shown")
    (notebook.folder / "go").touch()
    for cell in (1, 2, 3):
        notebook.run_through(cell)
    notebook.save()
    for trusted in (True, False):
        again = reopened(tab, notebook.folder, trusted=trusted)
        view = again.output(3).locator(".db-saved").first
        view.locator(".db-status", has_text="failed").wait_for()
        name = f"extension-{'trusted' if trusted else 'untrusted'}"
        looks.at(again, name, view)
        view.get_by_text("Replay", exact=True).click()
        step_through(view.locator(".divebook-replay"))
        looks.at(again, f"{name}-stepping", view)
    assert_keys_stay_in(again, view)


def test_a_saved_turn_is_a_chat_without_its_kernel(lab, tab, looks):
    notebook = lab(AGENTS, ASK)
    notebook.run_through(1)
    notebook.run(2)
    see_turn(notebook).locator(".card-place article.card").get_by_role("button", name="Approve", exact=True).click()
    notebook.wait_idle()
    notebook.see(2, "completed")
    notebook.save()
    again = reopened(tab, notebook.folder, trusted=False)
    view = again.output(2).locator(".db-saved").first
    view.locator(".team").get_by_text("With ears that are not level.").wait_for()
    view.locator(".call", has_text="search").locator("summary").click()
    view.locator(".call .in").get_by_text("owls hunt by night").wait_for()
    assert view.get_by_role("button", name="Sent messages").count() == 0
    looks.at(again, "extension-turn", view)


def test_a_definition_is_coloured(lab):
    notebook = lab(SHOWN)
    cell = notebook.cell(1).locator(".cm-content")
    key = cell.locator("span", has_text="Workflows")
    key.wait_for()
    colours = [part.evaluate("(part) => getComputedStyle(part).color") for part in (key, cell)]
    assert colours[0] != colours[1]
