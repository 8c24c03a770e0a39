"""The timeline and the graph beside a replay: of a long log read aside, and of many calls some that are spread."""

import threading
from dataclasses import replace
from itertools import pairwise

import pytest

from divebook.events import catalog
from divebook.widgets import views
from divebook.widgets.views import ReplayPictures
from tests.widgets.feeds import GRAPH, Log, steps

ASK = {"type": "picture", "view": "v"}


@pytest.fixture
def log():
    found = Log()
    found.write(*steps(40))
    return found


def read_aside():
    """Wait until what is read aside is read."""
    for thread in threading.enumerate():
        if thread.name == views.THREAD:
            thread.join()


def test_a_short_log_is_pictured_at_once(log):
    told = ReplayPictures.of(lambda: log.source).reply(ASK)
    assert (told["type"], told["view"], told["total"], told["last"]) == ("welcome", "v", 40, len(log.events))
    assert told["spans"]["id"] == [*range(40)]


def test_a_long_log_is_read_aside_once_while_pages_ask_again(log, monkeypatch):
    at_once = ReplayPictures.of(lambda: log.source).reply(ASK)
    monkeypatch.setattr(views, "AT_ONCE", 10)
    may_read = threading.Event()
    source = replace(log.source, read=lambda after, limit: log.read(after, limit) if may_read.wait(60) else [])
    beside = ReplayPictures.of(lambda: source)
    log.reads.clear()
    assert [beside.reply(ASK), beside.reply({**ASK, "view": "w"})] == [None, None]  # they are not held up
    may_read.set()
    read_aside()
    assert beside.reply(ASK) == at_once
    assert beside.reply({**ASK, "view": "w"}) == {**at_once, "view": "w"}
    assert log.reads == [0]  # once for both
    log.write(*steps(1)[-2:])
    assert beside.reply(ASK) == at_once  # what was begun for this page
    assert beside.reply({**ASK, "view": "x"}) is None
    read_aside()
    assert beside.reply({**ASK, "view": "x"})["last"] == len(log.events)


def test_of_a_log_that_is_longer_than_anybody_waits_for_no_call_is_read(log, monkeypatch):
    monkeypatch.setattr(views, "AT_ONCE", 5)
    monkeypatch.setattr(views, "MOST_PICTURED", 10)
    told = ReplayPictures.of(lambda: log.source).reply(ASK)
    assert (told["total"], told["graph"]) == (0, GRAPH)


def test_of_many_calls_some_are_shown_with_their_items_spread_over_the_run_and_all_steps_and_failures():
    log = Log()
    calls = [fact for number in range(100) for fact in an_item(number, fails=number == 33)]
    log.write(*steps(1)[:-1], *calls)
    while log.feed.has_news:
        log.feed.frame()
    told = log.feed.welcome("v", 0, 41, evenly=True)
    kept = told["spans"]["id"]
    assert (told["total"], len(kept)) == (201, 41)
    assert {0, 67, 68} <= {*kept}  # the step, and the item that failed with its call
    items = [number for number in kept if number % 2]
    assert sorted(kept) == sorted([0, *items, *(number + 1 for number in items)])
    assert max(after - before for before, after in pairwise(items)) <= 4 * 200 // len(items)
    assert log.feed.welcome("v", 0, 500, evenly=True)["spans"]["id"] == [*range(201)]


def an_item(number, *, fails):
    about = f"op_{number}", "script_execution"
    ended = catalog.OperationFailed(*about, 1, "no") if fails else catalog.OperationCompleted(*about, 1, number)
    return [
        (catalog.IterationStarted(number), "main", "s0"),
        (catalog.OperationStarted(*about, {}, iteration_index=number), "main", "s0"),
        (ended, "main", "s0"),
        (catalog.IterationCompleted(number), "main", "s0"),
    ]
