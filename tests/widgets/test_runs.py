"""The run browser's list: what fits is found, counted and brought up to date; what a person wants is done."""

import pytest

from divebook.definitions.definition import Workflow
from divebook.definitions.step import Step
from divebook.errors import SetupError
from divebook.stores import MemoryStore
from divebook.widgets import views
from divebook.widgets.protocol import RunsWish
from divebook.widgets.runs_and_questions import EVERYTHING, MORE, PAGE, RESTS, RecordCache, RunsFeed
from divebook.widgets.views import RunCommands, RunsView
from tests.runtime.worlds import Gate, environment
from tests.store.logs import SECOND, START, completed, event, log

PATIENCE = 30
GOOD = Workflow("good", [Step("s", script="1")], inputs=["topic"])
BAD = Workflow("bad", [Step("s", script="{}['label']")])
ASKS = Workflow("asks", [Step("s", ask="Which?")])


@pytest.fixture
def world():
    """Return an environment with a run that completed, one that failed and one that asks, in this order."""
    made = environment(GOOD, BAD, ASKS)
    made.start("good", {"topic": "tides"}, tags=["nightly"]).wait(PATIENCE)
    made.start("bad").wait(PATIENCE)
    made.start("asks").wait(PATIENCE)
    return made


def feed_of(world, **asked):
    feed = RunsFeed(world, {**EVERYTHING, **asked})
    return feed, feed.frame()


def names(page):
    return [run["workflow"] for run in page["runs"]]


def test_the_newest_comes_first_and_each_says_what_it_is_about(world):
    _, page = feed_of(world)
    assert [(run["workflow"], run["status"], run["commands"]) for run in page["runs"]] == [
        ("asks", "waiting", ["cancel"]),
        ("bad", "failed", ["resume"]),
        ("good", "completed", []),
    ]
    asks, bad, good = page["runs"]
    assert (asks["questions"], asks["stand"]) == (1, "1 question")
    assert (bad["is_error"], "KeyError" in bad["about"]) == (True, True)
    assert (good["about"], good["tags"], good["cells"][-1]) == ("topic tides", ["nightly"], "")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"status": "failed"}, ["bad"]),
        ({"workflow": "good"}, ["good"]),
        ({"tag": "nightly"}, ["good"]),
        ({"text": "KEYERROR label"}, ["bad"]),
        ({"text": "tides"}, ["good"]),
        ({"text": "nightly"}, ["good"]),
        ({"limit": 1}, ["asks"]),
        ({"days": 7}, ["asks", "bad", "good"]),
        ({"status": "failed", "workflow": "good"}, []),
    ],
)
def test_what_is_asked_for_is_found(world, asked, found):
    feed, page = feed_of(world)
    feed.ask({**EVERYTHING, **asked})
    page = feed.frame() or page
    assert names(page) == found
    assert page["query"] == {**EVERYTHING, **asked}


def test_statuses_are_counted_of_all_else_that_is_asked_for(world):
    _, page = feed_of(world, status="failed", text="label")
    assert (page["total"], page["matching"]) == (3, 1)
    assert page["counts"] == [{"status": "failed", "count": 1}]
    assert (page["workflows"], page["tags"]) == (["asks", "bad", "good"], ["nightly"])


def test_where_nothing_fits_a_word_that_does_is_offered(world):
    _, page = feed_of(world, text="nightli")
    assert (names(page), page["near"]) == ([], "nightly")


def test_it_is_told_again_only_if_something_has_changed(world):
    feed, page = feed_of(world)
    feed.request_refresh()
    assert feed.frame() is None
    world.start("good", {"topic": "moons"}).wait(PATIENCE)
    feed.request_refresh()
    later = feed.frame()
    assert (names(later)[0], later["total"], later["last"]) == ("good", 4, page["last"] + 1)
    world.store.delete(later["runs"][0]["execution_id"])
    feed.refresh([later["runs"][0]["execution_id"]])
    assert feed.frame()["total"] == 3


def test_what_ends_in_another_process_is_seen(world):
    feed, page = feed_of(world)
    asking = page["runs"][0]["execution_id"]
    environment(store=world.store).run_of(asking).cancel().wait(PATIENCE)
    feed.request_refresh()
    assert feed.frame()["runs"][0]["status"] == "cancelled"


def test_a_run_that_works_says_since_when(world):
    gate = Gate()
    busy = environment(actions=[gate.action("Gate")], store=world.store)
    going = busy.start(Workflow("w", [Step("s", action="Gate")]))
    gate.reached.wait(PATIENCE)
    _, page = feed_of(world)
    assert (page["running"], page["runs"][0]["since_us"] > 0) == (1, True)
    gate.opened.set()
    going.wait(PATIENCE)
    _, page = feed_of(world)
    assert (page["running"], page["runs"][0]["since_us"]) == (0, 0)


def test_after_a_long_frame_it_rests_unless_somebody_asks(world):
    now = [0.0]

    def clock():
        now[0] += 1.0
        return now[0]

    feed = RunsFeed(world, clock=clock)
    feed.frame()
    feed.request_refresh()
    assert not feed.has_news
    feed.ask({**EVERYTHING, "text": "x"})
    assert feed.has_news
    feed.frame()
    feed.request_refresh()
    now[0] += 3 * RESTS
    assert feed.has_news


def add_ended(store, numbers):
    """Append logs that have ended, one a second."""
    for number in numbers:
        name = f"exec_{number:04}"
        first = event(1, log(1)[0].data, name, at=START + number * SECOND, path="")
        store.append(name, [first, completed(2, name)], 0)


@pytest.mark.parametrize("before", [0, 1, PAGE])
@pytest.mark.parametrize("between", [1, PAGE - 1, PAGE, PAGE + MORE + 1])
def test_what_begins_and_ends_between_two_looks_is_found(before, between):
    store = MemoryStore()
    add_ended(store, range(before))
    gathered = RecordCache(store)
    gathered.look()
    add_ended(store, range(before, before + between))
    gathered.look()
    while not gathered.is_whole:
        gathered.look()
    assert len(gathered.records) == before + between


def test_a_list_that_was_empty_shows_what_has_begun_and_ended_since():
    world = environment(GOOD)
    feed, page = feed_of(world)
    assert page["total"] == 0
    run = world.start("good", {"topic": "tides"})
    run.wait(PATIENCE)
    feed.request_refresh()
    assert names(feed.frame()) == ["good"]
    world.run_of(run.id).tag("seen")
    feed.request_refresh()
    assert feed.frame()["tags"] == ["seen"]


def test_what_is_deleted_goes_from_the_list(world):
    feed, page = feed_of(world)
    stop = feed.subscribe(lambda: None)
    world.store.delete(page["runs"][-1]["execution_id"])
    assert names(feed.frame()) == ["asks", "bad"]
    stop()


def test_a_large_store_is_read_page_by_page_and_then_no_more():
    store = MemoryStore()
    add_ended(store, range(PAGE + MORE + 1))
    gathered = RecordCache(store)
    sizes = []
    while not gathered.is_whole:
        gathered.look()
        sizes.append(len(gathered.records))
    assert sizes == [PAGE, PAGE + MORE, PAGE + MORE + 1]
    version = gathered.version
    gathered.look()
    assert gathered.version == version


def test_books_and_other_kinds_are_not_gathered(world):
    gathered = RecordCache(world.store, {"origin": "fork"})
    gathered.look()
    assert (gathered.records, gathered.is_whole) == ([], True)


# --- what a person wants -------------------------------------------------------------------------------------------


def wish(command, *executions, tags=()):
    return RunsWish(type="wish", id="1", command=command, executions=list(executions), tags=list(tags))


def test_runs_are_tagged_cancelled_and_resumed(world):
    feed, page = feed_of(world)
    asks, bad, _ = [run["execution_id"] for run in page["runs"]]
    wishes = RunCommands(feed, None)
    wishes.carry_out(wish("tag", asks, bad, tags=["seen"]))
    wishes.carry_out(wish("cancel", asks))
    page = feed.frame()
    assert [(run["status"], run["tags"]) for run in page["runs"][:2]] == [("cancelled", ["seen"]), ("failed", ["seen"])]
    wishes.carry_out(wish("untag", bad, tags=["seen"]))
    wishes.carry_out(wish("resume", bad))
    world.run_of(bad).wait(PATIENCE)
    assert (world.store.record(bad).tags, world.store.record(bad).status) == ((), "failed")
    assert [event.event_type for event in world.run_of(bad).history()].count("execution_resumed") == 1


def test_one_that_refuses_holds_up_no_other_and_is_named(world):
    feed, page = feed_of(world)
    good = page["runs"][2]["execution_id"]
    asks = page["runs"][0]["execution_id"]
    with pytest.raises(SetupError, match=f"1 of 2 done; {good}: .*completed"):
        RunCommands(feed, None).carry_out(wish("cancel", good, asks))
    assert world.store.record(asks).status == "cancelled"


@pytest.mark.usefixtures("notebook_words")
def test_a_run_is_opened_below_the_list_and_closed_again(world):
    feed, page = feed_of(world)
    shown, name = [], page["runs"][0]["execution_id"]
    wishes = RunCommands(feed, shown.append)
    wishes.carry_out(wish("open", name))
    assert [run["is_open"] for run in feed.frame()["runs"]] == [True, False, False]
    wishes.carry_out(wish("close", name))
    assert not any(run["is_open"] for run in feed.frame()["runs"])
    other = page["runs"][1]["execution_id"]
    wishes.carry_out(wish("compare", name, other))
    assert shown == [[name], [], [name, other]]
    assert feed.opened is None
    with pytest.raises(SetupError, match="run %dive show ID in a cell"):
        RunCommands(feed, None).carry_out(wish("open", name))


# --- the widget ----------------------------------------------------------------------------------------------------


@pytest.fixture
def view(monkeypatch, world):
    """Return a widget without a thread, and what it sends."""
    monkeypatch.setattr(views, "built", lambda name: f"/* {name} */")
    monkeypatch.setattr("divebook.widgets.publisher.Publisher._start", lambda _: None)
    made = RunsView(RunsFeed(world))
    sent = []
    monkeypatch.setattr(made, "send", lambda message, _=None: sent.append(message))
    yield made, sent
    made.close()


def test_the_widget_welcomes_with_the_list_and_the_questions(view):
    shown, sent = view
    assert shown._esm == "/* runs.js */"
    shown._receive(shown, {"type": "hello", "view": "v", "feed": "", "since": 0}, [])
    for publisher in (shown._publisher, shown._runs):
        publisher.turn()
    assert [(message["type"], message["view"]) for message in sent] == [("inbox", "v"), ("runs", "v")]


def test_the_widget_lists_what_is_asked_for_while_somebody_looks(view):
    shown, sent = view
    shown._receive(shown, {"type": "hello", "view": "v", "feed": "", "since": 0}, [])
    shown._receive(shown, {**EVERYTHING, "view": "v", "status": "failed"}, [])
    page = shown._runs.feed.frame()
    assert names(page) == ["bad"]
    assert shown._list(page) == 1
    shown._audience.leave("v")
    assert shown._list(page) == 0
    shown._on_heartbeat()
    assert shown._runs._listeners.entries == ()
    assert sent == [page]
