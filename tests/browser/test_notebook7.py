"""What Notebook 7 shows of a run: the same as JupyterLab, in a page of its own."""

import importlib.util

import pytest

from tests.browser.test_keys import assert_keys_stay_in_live_views
from tests.browser.test_live import ASKING, approve
from tests.browser.test_saved import assert_shows_the_run


@pytest.fixture(scope="module")
def server(servers, require):
    require("Notebook 7", importlib.util.find_spec("notebook") is not None)
    return servers("notebook")


def test_questions_are_answered_and_the_run_lasts(lab):
    notebook = lab(ASKING, "r = %dive run asking", "print('then', r.status)", "s = %dive run asking --new --background")
    notebook.run_through(1)
    notebook.run(2)
    notebook.run(3)
    notebook.see(2, "Publish it?")
    assert notebook.is_busy(2)
    approve(notebook, 2)
    notebook.see(3, "then completed")
    notebook.run_through(4)
    notebook.see(4, "Publish it?")
    notebook.shot("notebook7", notebook.output(4))
    approve(notebook, 4)
    notebook.output(4).locator(".db-root").wait_for(state="detached")
    assert notebook.calls("ended") == ["before", "after"] * 2
    notebook.save()
    notebook.reload()
    for cell in (2, 4):
        assert_shows_the_run(notebook, cell, "completed")


def test_keys_stay_in_live_views_and_the_inbox(lab):
    assert_keys_stay_in_live_views(lab)
