"""A history is a list of events that costs nothing until it is looked at."""

import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import ExecutionNotFoundError
from divebook.stores import MemoryStore, SqliteStore
from divebook.stores import history as past
from tests.store.logs import ONE, TWO, log, steps

PAGE, KEPT = 10, 3
LENGTH = (KEPT + 2) * PAGE + 1


@pytest.fixture
def long(monkeypatch):
    """A store with a log of more pages than a history keeps, and the reads that it was asked for."""
    monkeypatch.setattr(past, "PAGE", PAGE)
    monkeypatch.setattr(past, "MAX_PAGES", KEPT)
    with MemoryStore() as store:
        store.append(ONE, log(LENGTH), 0)
        yield store


@pytest.fixture
def reads(long, monkeypatch):
    asked, read = [], long.read
    monkeypatch.setattr(long, "read", lambda *given: asked.append(given[1:]) or read(*given))
    return asked


def test_a_history_has_a_length_and_reads_nothing_for_it(long, reads):
    history = long.history(ONE)
    assert (len(history), bool(history), len(long.history(ONE, after=LENGTH + 5))) == (LENGTH, True, 0)
    assert reads == []


def test_a_history_reads_the_page_that_is_looked_at(long, reads):
    history = long.history(ONE)
    assert [event.sequence for event in history[PAGE - 1 : PAGE + 2]] == [PAGE, PAGE + 1, PAGE + 2]
    assert history[-1].sequence == history[LENGTH - 1].sequence == LENGTH
    assert reads == [(0, PAGE), (PAGE, PAGE), (LENGTH - 1, 1)]


def test_a_history_is_gone_through_page_by_page_and_keeps_the_latest(long, reads):
    history = long.history(ONE)
    assert [event.sequence for event in history] == list(range(1, LENGTH + 1))
    assert len(reads) == KEPT + 3
    assert history[-PAGE].sequence == LENGTH - PAGE + 1
    assert len(reads) == KEPT + 3
    assert history[0].sequence == 1
    assert len(reads) == KEPT + 4


def test_a_history_equals_a_list_and_is_indexed_like_one(long):
    events, history = long.read(ONE, 10, 30), long.history(ONE, after=10)
    assert history[:30] == events
    assert history[5:0:-2] == events[5:0:-2]
    assert long.history(ONE, after=LENGTH - 2) == long.read(ONE, LENGTH - 2)
    assert history != events
    assert history != "events"
    with pytest.raises(IndexError, match=f"{LENGTH - 10} events"):
        history[LENGTH]


def test_a_history_is_as_long_as_the_log_was_when_it_was_made():
    with MemoryStore() as store:
        store.append(ONE, log(3), 0)
        history = store.history(ONE)
        store.append(ONE, steps(4, 5), 3)
        assert (len(history), len([*history]), len(store.history(ONE))) == (3, 3, 5)


def test_a_history_knows_of_what_was_just_written(path):
    with SqliteStore(path) as store:
        store.append(ONE, log(3), 0)
        for sequence in range(4, 9):
            store.append(ONE, steps(sequence, sequence), sequence - 1)
            assert store.history(ONE) == store.read(ONE)


def test_there_is_no_history_of_what_does_not_exist():
    with MemoryStore() as store, pytest.raises(ExecutionNotFoundError):
        store.history(TWO)


def test_the_history_of_an_execution_that_has_not_begun_is_empty():
    execution = Environment(store="memory:").create(Workflow("w", [Step("s", script="1")]))
    assert list(execution.history()) == []
