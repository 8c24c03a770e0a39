"""What is saved of a run while its view is live: how it stands is never forgotten, however long saving takes."""

from types import SimpleNamespace

import pytest

import divebook
from divebook.notebook import run_view as live_output
from divebook.notebook import view_output
from divebook.runtime.run import RunInternals
from divebook.widgets import views
from divebook.widgets.publisher import Publisher, publisher_of
from tests.notebook.test_inbox import Handle

ASKING = "Workflows: [{Name: asking, Steps: [{Name: s, Type: interrupt, Ask: 'Publish it?'}]}]"


@pytest.fixture
def slow(session, monkeypatch):
    """Return the output of a run that waits, its publisher, what it saves, and a clock on which saving takes 1 s."""
    monkeypatch.setattr(views, "built", lambda name: f"/* {name} */")
    monkeypatch.setattr(Publisher, "_start", lambda _: None)
    monkeypatch.setattr(view_output.PAGES, "host_views", True)
    divebook.define(ASKING)
    run, saved = divebook.run("asking").wait(), []
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(live_output, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(view_output, "display_bundle", Handle)
    shown = RunInternals.static_bundle

    def bundle(internals, **options):
        clock.now += 1
        saved.append(run.status)
        return shown(internals, **options)

    monkeypatch.setattr(RunInternals, "static_bundle", bundle)
    publisher = publisher_of(run)
    publisher._clock = lambda: clock.now
    output = live_output.LiveOutput(run)
    saved.clear()
    yield output, publisher, saved, clock
    output.view.close()


def test_what_could_not_be_saved_at_once_is_saved_later(slow):
    output, publisher, saved, clock = slow
    output.leave()
    assert saved == ["waiting"]
    saved.clear()
    publisher.turn()  # the first frame says how the run stands, and saving rests
    assert saved == []
    clock.now += live_output.SAVE_PAUSE / 2
    publisher.turn()
    assert saved == []
    clock.now += live_output.SAVE_PAUSE
    publisher.turn()
    assert saved == ["waiting"]
    clock.now += 2 * live_output.SAVE_PAUSE
    publisher.turn()
    assert saved == ["waiting"]  # once is enough


def test_what_no_page_hosted_yet_is_saved_once_one_does(slow, monkeypatch):
    _, publisher, saved, clock = slow
    monkeypatch.setattr(view_output.PAGES, "host_views", None)
    publisher.turn()
    assert saved == []
    monkeypatch.setattr(view_output.PAGES, "host_views", True)
    clock.now += 2
    publisher.turn()
    assert saved == ["waiting"]


def test_what_is_saved_below_a_view_is_brought_up_to_date_after_its_cell(slow, monkeypatch):
    output, publisher, saved, clock = slow
    monkeypatch.setattr(view_output.PAGES, "host_views", False)
    output.leave()  # with it what is saved has its place
    assert saved == ["waiting"]
    saved.clear()
    publisher.turn()
    clock.now += 2 * live_output.SAVE_PAUSE
    publisher.turn()
    assert saved == ["waiting"]
    assert "Publish it?" in output._output._below.bundle["text/html"]
