"""Views of runs that go on in another process: each store here is a connection of its own to one file."""

import threading

import pytest

from divebook import Environment, Step, Workflow
from divebook.queues import Worker
from divebook.stores import SqliteStore
from divebook.widgets.feed import Feed
from divebook.widgets.source import source_of
from tests.runtime.worlds import Gate, becomes

PATIENCE = 20
WORK = Workflow("work", [Step("hold", action="gate"), Step("ask", ask="Which one?", store="it")])


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.opened.set()


@pytest.fixture
def there(tmp_path, gate):
    """Return the environment of the process that drives."""
    with SqliteStore(tmp_path / "runs.db") as store, Environment(store=store, actions=[gate.action()]) as made:
        made.add_workflow(WORK)
        yield made


@pytest.fixture
def here(tmp_path, there, gate):
    """Return that of the process which looks on."""
    with SqliteStore(tmp_path / "runs.db") as store, Environment(store=store, actions=[gate.action()]) as made:
        made.add_workflow(WORK)
        yield made


class Page:
    """A view of an execution, which hears of it."""

    def __init__(self, execution):
        self.feed, self.woken = Feed(source_of(execution)), threading.Event()
        self._end = self.feed.subscribe(self.woken.set)
        self.header = {}

    def close(self):
        self._end()

    def shows(self, status):
        """Take in what comes until the run has a status; return whether it has."""

        def has_come():
            self.woken.clear()
            frame = self.feed.frame()
            self.header = self.header if frame is None else frame["header"]
            return self.header.get("status") == status

        return becomes(has_come)


def test_a_run_that_waits_for_a_worker_says_so_and_is_left_to_it(here):
    page = Page(here.enqueue(WORK, queue="letters"))
    assert page.shows("enqueued")
    assert (page.header["live"], page.header["commands"]) == (False, ["cancel"])
    assert page.header["waits"] == "waits in the queue letters for a worker"
    page.close()


def test_a_view_follows_a_run_that_another_process_drives(here, there, gate):
    seen = here.enqueue(WORK)
    page = Page(seen)
    assert not seen.is_live
    with Worker(there):
        assert gate.reached.wait(PATIENCE)
        assert page.shows("running")
        assert (page.header["live"], page.header["commands"]) == (True, ["cancel"])
        assert page.header["waits"].startswith("continues in ")
        assert seen.internals.goes_on_elsewhere
        gate.opened.set()
        assert page.shows("waiting")
        (question,) = seen.open_questions
        here.answer(question.id, "this one", seen)
        assert page.shows("completed")
    assert not seen.internals.goes_on_elsewhere
    assert seen.refresh().variables == {"it": "this one"}
    page.close()


def test_who_looks_on_hears_at_once_and_not_with_the_next_heartbeat(here, there, gate):
    seen = here.enqueue(WORK)
    page = Page(seen)
    assert page.shows("enqueued")
    page.woken.clear()
    with Worker(there):
        assert page.woken.wait(PATIENCE)
        assert page.feed.has_news
        gate.opened.set()
        assert page.shows("waiting")
    page.close()


def test_a_run_that_this_process_drives_is_not_asked_about_in_the_store(here, gate, monkeypatch):
    execution = here.start(WORK)
    assert gate.reached.wait(PATIENCE)
    monkeypatch.setattr(here.store, "lease_of", lambda _: pytest.fail("the store was asked"))
    page = Page(execution)
    assert page.shows("running")
    assert page.header["commands"] == ["pause", "cancel"]
    gate.opened.set()
    page.close()
