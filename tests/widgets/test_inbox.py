"""The questions of all executions over one store, as views are told of them."""

import pytest

from divebook.definitions.definition import Workflow
from divebook.definitions.step import Each, Step
from divebook.widgets import views
from divebook.widgets.publisher import SILENCE
from divebook.widgets.recording import read_saved, saved_run
from divebook.widgets.runs_and_questions import MAX_OPEN, InboxFeed, inbox_publisher_of
from divebook.widgets.source import source_of
from divebook.widgets.views import Handlers, InboxView
from tests.runtime.worlds import Gate, environment

PATIENCE = 30


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def asking(environment, name, questions=1):
    """Return a resting execution that has asked."""
    steps = [Step(f"ask{number}", ask=f"{name} {number}?") for number in range(questions)]
    return environment.start(Workflow(name, steps)).wait(PATIENCE)


def told(frame):
    return [(asked["workflow"], asked["question"]["question"], asked["question"]["status"]) for asked in frame["asked"]]


def test_the_first_frame_tells_all_questions_and_the_next_what_changed():
    world = environment()
    first = asking(world, "first")
    feed = InboxFeed(world)
    assert told(feed.frame()) == [("first", "first 0?", "pending")]
    assert feed.frame() is None
    asking(world, "second")
    feed.request_refresh()
    frame = feed.frame()
    assert (told(frame), frame["after"], frame["last"]) == ([("second", "second 0?", "pending")], 1, 2)
    world.answer(first.open_questions[0].id, "yes", by="ann").wait(PATIENCE)
    feed.request_refresh()
    (asked,) = feed.frame()["asked"]
    assert (asked["question"]["status"], asked["question"]["answered_by"]) == ("resolved", "ann")


def test_what_another_environment_over_the_store_settles_is_seen():
    world = environment()
    execution = asking(world, "w")
    feed = InboxFeed(world)
    feed.frame()
    other = environment(store=world.store)
    other.answer(execution.open_questions[0].id, "from there").wait(PATIENCE)
    feed.request_refresh()
    assert told(feed.frame()) == [("w", "w 0?", "resolved")]


def test_questions_of_executions_that_ended_or_were_deleted_are_withdrawn():
    world = environment()
    ended, deleted = asking(world, "ended"), asking(world, "deleted")
    feed = InboxFeed(world)
    feed.frame()
    assert not feed.is_over
    assert feed.frame() is None
    world.run_of(ended.id).cancel().wait(PATIENCE)
    world.store.delete(deleted.id)
    feed.request_refresh()
    assert sorted(told(feed.frame())) == [("deleted", "deleted 0?", "cancelled"), ("ended", "ended 0?", "cancelled")]
    assert feed.is_over


def test_a_question_of_a_what_if_is_marked_as_such():
    world = environment()
    real = asking(world, "w")
    what_if = real.what_if()
    feed = InboxFeed(world)
    assert {entry["execution_id"]: entry["trial_of"] for entry in feed.frame()["asked"]} == {
        real.id: "",
        what_if.run.id: "what-if",
    }
    # The view of the what-if itself says it as well, and so does its saved form.
    assert [source_of(run).header()["badge"] for run in (real, what_if.run)] == ["", "what-if"]
    assert [read_saved(saved_run(run))[1]["header"]["badge"] for run in (real, what_if.run)] == ["", "what-if"]


def test_it_is_not_over_while_one_who_asked_may_ask_again():
    world = environment()
    execution = asking(world, "w", questions=2)
    feed = InboxFeed(world)
    feed.frame()
    world.answer(execution.open_questions[0].id, "yes").wait(PATIENCE)
    feed.request_refresh()
    assert told(feed.frame()) == [("w", "w 0?", "resolved"), ("w", "w 1?", "pending")]
    assert not feed.is_over
    assert [asked["question"]["status"] for asked in feed.welcome("v", 0)["asked"]] == ["resolved", "pending"]


def test_of_a_great_many_questions_the_oldest_are_shown_and_the_others_counted():
    world = environment()
    each = Step("ask", each=Each("$(list(range(105)))", as_="n", parallel=105), ask="${n}?")
    execution = world.start(Workflow("many", [each])).wait(PATIENCE)
    feed = InboxFeed(world)
    frame = feed.frame()
    assert (len(frame["asked"]), frame["hidden"]) == (MAX_OPEN, len(execution.open_questions) - MAX_OPEN)


def test_only_what_is_asked_or_settled_wakes_the_publisher():
    world = environment()
    feed, woken = InboxFeed(world), []
    stop = feed.subscribe(lambda: woken.append(1))
    asking(world, "w")
    assert woken == [1]
    stop()
    asking(world, "v")
    assert woken == [1]


def test_the_end_of_the_last_one_who_asked_is_told_by_a_frame_of_its_own():
    world = environment(actions=[(gate := Gate()).action()])
    execution = world.start(Workflow("w", [Step("ask", ask="w?"), Step("held", action="gate")])).wait(PATIENCE)
    feed = InboxFeed(world)
    feed.frame()
    answered = world.answer(execution.open_questions[0].id, "yes")
    assert gate.reached.wait(PATIENCE)
    feed.request_refresh()
    assert (told(feed.frame()), feed.is_over) == ([("w", "w?", "resolved")], False)
    gate.opened.set()
    answered.wait(PATIENCE)
    feed.request_refresh()
    assert (feed.frame()["asked"], feed.is_over) == ([], True)


@pytest.fixture
def view(monkeypatch):
    """Return ``view(environment)``: a widget without a thread, whose publisher the test moves on."""
    monkeypatch.setattr(views, "built", lambda name: f"/* {name} */")
    monkeypatch.setattr("divebook.widgets.publisher.Publisher._start", lambda _: None)
    shown = []

    def make(world, told=lambda _: None):
        handlers = Handlers(lambda *_: None, *[lambda: None] * 3)
        shown.append(InboxView(inbox_publisher_of(world), handlers, told, Clock()))
        return shown[-1]

    yield make
    for one in shown:
        one.close()


def test_the_widget_brings_its_own_bundle(view):
    assert view(environment())._esm == "/* inbox.js */"


def test_views_of_one_environment_share_a_publisher():
    world = environment()
    publisher = inbox_publisher_of(world)
    assert inbox_publisher_of(world) is publisher
    assert inbox_publisher_of(environment()) is not publisher


def test_nothing_is_looked_up_while_nobody_looks(view):
    world = environment()
    shown = view(world)
    publisher = inbox_publisher_of(world)
    shown._on_heartbeat()
    assert publisher._listeners.entries == ()
    shown._receive(shown, {"type": "hello", "view": "v", "feed": "", "since": 0}, [])
    assert [entry.listener for (entry,) in publisher._listeners.entries] == [shown._on_frame]
    shown._on_heartbeat()
    assert [entry.listener for (entry,) in publisher._listeners.entries] == [shown._on_frame]
    shown._audience._clock.now += SILENCE + 1
    shown._on_heartbeat()
    assert publisher._listeners.entries == ()
    shown._receive(shown, {"type": "alive", "view": "v", "feed": "", "since": 0}, [])
    assert [entry.listener for (entry,) in publisher._listeners.entries] == [shown._on_frame]


def test_whoever_shows_it_hears_of_each_frame(view):
    world, heard = environment(), []
    asking(world, "w")
    shown = view(world, lambda feed: heard.append(feed.is_over))
    publisher, clock = inbox_publisher_of(world), Clock()
    publisher._clock = clock
    shown._receive(shown, {"type": "hello", "view": "v", "feed": "", "since": 0}, [])
    publisher.turn()  # the welcome
    clock.now += 1
    publisher.turn()
    assert heard == [False]


def test_a_question_names_the_cell_that_began_its_run():
    world = environment()
    steps = [Step("ask", ask="which?")]
    world.start(Workflow("w", steps), identity={"cell": {"cell": "a1b2", "ordinal": 0}}).wait(PATIENCE)
    asking(world, "no cell")
    cells = {asked["workflow"]: asked["cell"] for asked in InboxFeed(world).frame()["asked"]}
    assert cells == {"w": "a1b2", "no cell": ""}
