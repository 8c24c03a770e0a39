"""The inbox in a notebook: cards, what is understood without them, and answers that others carry out."""

from concurrent.futures import Executor, Future

import pytest

import divebook
from divebook.notebook import run_list, view_output
from divebook.widgets import views
from divebook.widgets.runs_and_questions import inbox_publisher_of
from divebook.widgets.views import Handlers, InboxView, Intents
from tests.runtime.worlds import Calls, environment

ASKING = """\
Workflows:
- Name: asking
  Steps:
  - {Name: sure, Ask: {Question: "Go <on>?", Kind: confirmation}}
  - {Name: note, Action: note}
"""
PLAIN = "Workflows: [{Name: plain, Steps: [{Name: q, Ask: 'Which?'}]}]"


class AtOnce(Executor):
    """Runs what it is given at once."""

    def submit(self, job, /, *arguments, **named):
        job(*arguments, **named)
        return Future()


class Handle:
    """A place in the notebook: what it shows."""

    def __init__(self, bundle):
        self.bundle = bundle

    def update(self, bundle, *, raw):
        assert raw
        self.bundle = bundle


@pytest.fixture
def places(monkeypatch):
    """Return the outputs that are displayed; the publisher's thread is not started."""
    monkeypatch.setattr(views, "built", lambda name: f"/* {name} */")
    monkeypatch.setattr("divebook.widgets.publisher.Publisher._start", lambda _: None)
    shown = []

    def display(bundle):
        shown.append(Handle(bundle))
        return shown[-1]

    monkeypatch.setattr(view_output, "display_bundle", display)
    monkeypatch.setattr(view_output, "PAGES", view_output.Pages())
    return shown


@pytest.mark.usefixtures("notebook_words")
def test_the_cards_come_with_text_and_html_that_say_how_to_answer(session, places):
    run = divebook.run(PLAIN).wait()
    shown = run_list.InboxOutput(session.environment, store="there.db")
    live, static = places
    asked = f"{run.open_questions[0].id}@{run.id}"
    assert live.bundle[view_output.WIDGET_VIEW]["model_id"] == shown.view.model_id
    assert live.bundle["text/plain"] == ""  # that it is not said twice where a page shows no view
    assert f"to answer: %dive answer {asked} TEXT --store there.db" in static.bundle["text/plain"]
    assert f"<code>%dive answer {asked} TEXT --store there.db</code>" in static.bundle["text/html"]
    assert view_output.WIDGET_VIEW not in static.bundle
    shown.view.close()


def test_what_was_asked_by_strangers_is_harmless(session):
    divebook.run(ASKING.replace("Action: note", "Script: '1'")).wait()
    assert "Go &lt;on&gt;?" in run_list.static_bundle(session.environment)["text/html"]


def test_once_all_who_asked_have_ended_text_takes_the_place_of_the_cards(session, places):
    run = divebook.run(PLAIN).wait()
    shown = run_list.InboxOutput(session.environment)
    live, static = places
    feed = inbox_publisher_of(session.environment).feed
    shown.view._on_frame(feed.frame())
    assert "Which?" in static.bundle["text/html"]
    run.answer(run.open_questions[0].id, "this one", by="ann").wait()
    feed.request_refresh()
    shown.view._on_frame(feed.frame())
    told = live.bundle["text/plain"]
    assert told.startswith("no open questions\n  Which?: this one (by ann at ")
    assert told.endswith(f" (plain, {run.id})")
    assert "text/html" not in static.bundle
    assert shown.view.comm is None


def test_on_a_page_that_hosts_them_the_cards_stay_and_one_output_holds_all(session, places):
    run = divebook.run(PLAIN).wait()
    shown = run_list.InboxOutput(session.environment)
    live, below = places
    publisher = inbox_publisher_of(session.environment)
    shown.view._receive(shown.view, {"type": "hosted", "view": "v"}, [])
    publisher.turn()
    assert set(live.bundle) == {"text/plain", "text/html", view_output.HOSTED_VIEW}
    assert below.bundle == view_output.NOTHING
    run.answer(run.open_questions[0].id, "this one", by="ann").wait()
    publisher.feed.request_refresh()
    shown.view._on_frame(publisher.feed.frame())
    assert live.bundle["text/plain"].startswith("no open questions")
    assert live.bundle[view_output.HOSTED_VIEW] == {"model_id": shown.view.model_id}
    assert shown.view.comm is not None
    shown.view.close()


def test_an_answer_is_kept_where_its_execution_cannot_go_on():
    world = environment(actions=[Calls().action()])
    world.define(divebook.notebook.session.read_definitions(ASKING, source_name="text"))
    execution = world.start("asking").wait(30)
    elsewhere = environment(store=world.store)
    asked = execution.open_questions[0].id
    acks = []
    intents = Intents(Handlers(elsewhere.answer), acks.append, AtOnce())
    for response in (True, False):
        intents.take({"type": "answer", "id": f"a{response}", "interrupt_id": asked, "response": response})
    assert [ack["accepted"] for ack in acks] == [True, False]
    assert "is stored, so do not send it again, but execution" in acks[0]["text"]
    assert "was already answered" in acks[1]["text"]
    assert world.run_of(execution.id).resume().wait(30).status == "completed"


def test_the_list_of_questions_shows_cards_where_there_are_widgets(session, places, monkeypatch):
    front_end = run_list.present_front_end(None)
    run = divebook.run(PLAIN).wait()
    questions = divebook.inbox()
    assert questions == session.environment.inbox() == [(run.id, run.open_questions[0])]
    assert list(questions.frame()["execution_id"]) == [run.id]
    with pytest.raises(NotImplementedError):
        questions._ipython_display_()
    assert run.open_questions[0].question in str(questions)
    monkeypatch.setattr(type(front_end), "shows_widgets", True)
    questions._ipython_display_()
    assert view_output.WIDGET_VIEW in places[0].bundle
    widget = questions._display_()
    assert isinstance(widget, InboxView)
    divebook.answer(run.open_questions[0], "it").wait()
    # Also without an open question: one that is asked later appears.
    shown = len(places)
    divebook.inbox()._ipython_display_()
    assert len(places) > shown
    widget.close()
