"""The widget: what it sends, and whom it tells what a person wants."""

import threading
import types

import pytest

from divebook.definitions.definition import Workflow
from divebook.definitions.step import Step
from divebook.errors import SetupError
from divebook.widgets import views
from divebook.widgets.publisher import SILENCE, publisher_of
from divebook.widgets.views import Handlers
from tests.runtime.worlds import environment

PATIENCE = 20


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


DELTA = {"header": {"status": "completed", "workflow": "w"}, "questions": []}


class Page:
    """A widget whose messages the test reads, as a browser would."""

    def __init__(self):
        self.messages, self.news, self.answers = [], threading.Condition(), []
        execution = environment().start(Workflow("w", [Step("a", script="1")])).wait(PATIENCE)
        handlers = Handlers(lambda *answer: self.answers.append(answer), *[lambda: None] * 3)
        self.clock = Clock()
        self.view = views.LiveView(publisher_of(execution), handlers, self.clock)
        self.view.observe(lambda _: self.hear({"type": "snapshot"}), "snapshot")
        if self.view.snapshot:
            self.hear({"type": "snapshot"})

    def hear(self, message):
        with self.news:
            self.messages.append(message)
            self.news.notify_all()

    def say(self, **message):
        self.view._receive(self.view, message, [])

    def wait_for(self, type_):
        with self.news:
            assert self.news.wait_for(lambda: any(m["type"] == type_ for m in self.messages), PATIENCE)
            return next(message for message in self.messages if message["type"] == type_)


@pytest.fixture
def page(monkeypatch):
    monkeypatch.setattr(views, "built", lambda name: f"/* {name} */")
    heard = []
    monkeypatch.setattr(views.LiveView, "send", lambda self, message: heard.append((self, message)))
    shown = Page()
    monkeypatch.setattr(views.LiveView, "send", lambda _, message: shown.hear(message))
    for _, message in heard:
        shown.hear(message)
    yield shown
    shown.view.close()


def test_a_view_that_says_hello_is_welcomed(page):
    page.wait_for("snapshot")
    page.say(type="hello", view="v1", feed="", since=0)
    welcome = page.wait_for("welcome")
    assert (welcome["view"], welcome["total"]) == ("v1", 2)


@pytest.mark.parametrize("feed", ["", "feed of an earlier kernel"])
def test_a_view_with_data_of_another_feed_gets_everything(page, feed):
    page.wait_for("snapshot")
    page.say(type="hello", view="v1", feed=feed, since=2)
    welcome = page.wait_for("welcome")
    assert (welcome["since"], welcome["feed"]) == (0, page.view._feed.id)


def test_a_part_of_the_front_end_is_sent_on_demand_just_as_it_is(page, monkeypatch):
    monkeypatch.setattr(views, "built", lambda name: f"/* {name} */")
    page.wait_for("snapshot")
    page.say(type="bundle", view="v1", name="graph")
    assert page.wait_for("bundle") == {"type": "bundle", "view": "v1", "name": "graph", "script": "/* graph.js */"}


def test_spans_and_details_are_sent_on_demand(page):
    page.wait_for("snapshot")
    page.say(type="range", view="v1", first=0, stop=1)
    page.say(type="detail", view="v1", id=0)
    assert page.wait_for("history")["spans"]["id"] == [0]
    assert [event["event_type"] for event in page.wait_for("detail")["events"]] == ["step_started", "step_completed"]


def test_an_answer_is_acknowledged(page):
    page.say(type="answer", id="a1", interrupt_id="ask_1", response=3)
    assert page.wait_for("ack")["accepted"]
    assert page.answers == [("ask_1", 3)]


def test_the_snapshot_holds_the_status(page):
    page.wait_for("snapshot")
    assert page.view.snapshot == {"status": "completed", "workflow": "w", "pending": []}


def test_the_bundle_travels_with_the_widget(page):
    assert (page.view._esm, page.view._css) == ("/* live.js */", "/* live.css */")


def test_a_bundle_that_was_not_built_says_how_to_build_it(tmp_path, monkeypatch):
    monkeypatch.setattr(views, "STATIC", tmp_path)
    with pytest.raises(SetupError, match=r"python widgets/frontend\.py build"):
        views.built("live.js")


def test_a_replay_in_the_view_is_answered(page):
    page.say(type="hello", view="v", feed="", since=0)
    page.say(type="events", view="v", after=0, stop=10_000)
    events = page.wait_for("events")["events"]
    page.say(type="state", view="v", sequence=events["sequence"][-1])
    assert page.wait_for("state")["state"]["status"] == "completed"
    page.say(type="event", view="v", sequence=1)
    assert page.wait_for("event")["event"]["event_type"] == "execution_started"


def test_a_retired_view_stays_until_the_last_page_has_let_go_of_it(page):
    for view in ("first", "second"):
        page.say(type="hello", view=view, feed="", since=0)
    page.view.retire()
    page.say(type="bye", view="first")
    assert page.view.comm is not None
    page.say(type="bye", view="second")
    assert page.view.comm is None


def test_a_view_that_nobody_looks_at_retires_at_once(page):
    page.view.retire()
    assert page.view.comm is None


def test_a_kernel_that_remembers_the_busy_shell_is_made_to_forget_it():
    comm = types.SimpleNamespace(_reply_subshell_for="main")
    views.answer_while_busy(comm)
    assert comm._reply_subshell_for is None


def test_a_kernel_that_does_not_is_left_alone():
    comm = types.SimpleNamespace()
    views.answer_while_busy(comm)
    assert vars(comm) == {}


def test_nothing_is_sent_while_nobody_looks(page):
    page.wait_for("snapshot")
    assert page.view._on_frame(DELTA) == 0
    page.say(type="hello", view="v1", feed="", since=0)
    assert page.view._on_frame(DELTA) == 1


def test_a_view_that_went_without_a_word_is_forgotten(page):
    page.say(type="hello", view="gone", feed="", since=0)
    page.say(type="hello", view="there", feed="", since=0)
    page.clock.now += SILENCE
    page.say(type="alive", view="there", feed=page.view._feed.id, since=2)
    page.clock.now += 1
    page.view.retire()
    page.view._on_heartbeat()
    assert page.view.comm is not None
    page.clock.now += SILENCE
    page.view._on_heartbeat()
    assert page.view.comm is None


def test_a_view_that_was_forgotten_and_is_there_after_all_is_welcomed_anew(page, monkeypatch):
    page.wait_for("snapshot")
    publisher = page.view._publisher
    thread = publisher._thread
    # A message of a view starts the thread of its publisher again. Without this, the thread would send the replies
    # that this test looks for in the queue.
    monkeypatch.setattr(publisher, "_start", lambda: None)
    page.view._detach()
    thread.join(PATIENCE)
    page.say(type="hello", view="asleep", feed="", since=0)
    page.say(type="alive", view="asleep", feed=page.view._feed.id, since=2)
    assert len(publisher._urgent) == 1
    page.clock.now += SILENCE + 1
    page.view._on_heartbeat()
    page.say(type="alive", view="asleep", feed=page.view._feed.id, since=2)
    _, welcome = publisher._urgent
    welcome()
    assert (page.messages[-1]["type"], page.messages[-1]["since"]) == ("welcome", 2)
