"""The widget that steps through a log: who gets it first."""

import threading

import pytest

from divebook import Environment, Step, Workflow
from divebook.replay.replayer import Positions
from divebook.widgets import views
from divebook.widgets.stepping import SteppedLog


@pytest.fixture
def seen(monkeypatch):
    """Return a view of a short log, and what it sends."""
    monkeypatch.setattr(views, "built", lambda name: f"/* {name} */")
    execution = Environment(store="memory:").start(Workflow("w", [Step("a", script="1")])).wait()
    view, told = views.ReplayView(SteppedLog(Positions.of(execution.history())), "w", dict), []
    monkeypatch.setattr(view, "send", told.append)
    return view, told


def ask(view, after, stop):
    view._receive(view, {"type": "events", "view": "v", "after": after, "stop": stop}, [])


def test_a_page_that_asks_gets_a_long_log_before_the_cell_goes_on(seen, monkeypatch):
    monkeypatch.setattr(views, "LONG", 1)
    view, told = seen
    ask(view, 0, 1)
    rest = threading.Thread(target=ask, args=(view, 1, 10_000))
    rest.start()
    view._let_page_first()
    assert [answer["events"]["first"] for answer in told] == [1, 2]
    rest.join()


def test_a_cell_does_not_wait_where_no_page_asks_or_the_log_is_short(seen, monkeypatch):
    view, _ = seen
    monkeypatch.setattr(view._filled, "wait", lambda _: pytest.fail("it waits for a page that has not asked"))
    monkeypatch.setattr(views, "GREETING", 0)
    view._let_page_first()
    monkeypatch.setattr(views, "LONG", 1)
    view._let_page_first()
