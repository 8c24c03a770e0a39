"""How what divebook.map gives is shown: live while its rows are called, then as what is saved of it, in words too."""

import threading
from types import SimpleNamespace

import pandas as pd
import pytest

import divebook
from divebook.notebook import session_functions
from divebook.notebook.shell_state import FrontEnd
from tests.notebook.test_saved import notebook

FRAME = pd.DataFrame({"text": ["fine", "<b>poor</b>", "fine", "rubbish", "fine", "<b>poor</b>"]})


@pytest.fixture
def shown(session, monkeypatch):
    """Return what a page that shows widgets is shown."""
    found = []

    def live(run, _):
        found.append(f"live {run.status}")
        return SimpleNamespace(leave=lambda: found.append("left"))

    page = FrontEnd(has_kernel=True, takes_input=True)
    monkeypatch.setattr(session_functions, "present_front_end", lambda _: page)
    monkeypatch.setattr(session_functions, "show_live", live)
    monkeypatch.setattr("IPython.display.display", lambda run: found.append(f"saved {run.status}"))
    return found


def test_rows_are_shown_live_while_they_are_called(shown):
    gate = threading.Event()

    def judged(text):
        gate.wait(20)
        return {"mark": text}

    rows = divebook.map(FRAME, judged)
    rows._ipython_display_()
    gate.set()
    rows.wait()._ipython_display_()
    assert shown == ["live running", "left", "saved completed"]


def test_what_rows_gave_is_told_in_words_also_from_the_notebook_alone(session, tmp_path):
    def judged(text):
        if text == "rubbish":
            raise ValueError(text)
        return {"mark": text}

    run = divebook.map(FRAME, judged).wait().run
    bundle = run.internals.static_bundle()
    assert "\n\nmark: fine 3, <b>poor</b> 2\n" in bundle["text/plain"]
    assert "mark: fine 3, &lt;b&gt;poor&lt;/b&gt; 2</div>" in bundle["text/html"]
    (opened,) = divebook.notebook.saved_notebook.open_notebook(notebook(tmp_path, bundle))
    assert "\n\nmark: fine 3, <b>poor</b> 2\n" in str(opened)


def test_of_several_steps_each_is_named(session):
    steps = (
        "[{Name: %s, Each: {Items: [1, 1, 2], As: n}, Script: n}, {Name: %s, Each: {Items: [3, 3], As: n}, Script: n}]"
    )
    session.define(f"Workflows: [{{Name: w, Steps: {steps % ('first', 'second')}}}]")
    assert "\n\nfirst: result: 1 2, 2 1\nsecond: result: 3 2" in str(session.start_run("w").wait())
