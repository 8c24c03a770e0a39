"""Hearing of what other processes write: one thread per store, which looks ever more rarely."""

import asyncio
import threading
from contextlib import aclosing, closing

import pytest

from divebook import Environment, Step, Workflow
from divebook.stores import MemoryStore, Message, SqliteStore
from divebook.stores.follow import follow
from tests.store.logs import ONE, START, completed, log, step

ANSWER = Message(ONE, "answer", "ask_1", "yes", "ada@home:1", START)


@pytest.fixture
def both(tmp_path):
    """Two stores on one file, as far from each other as two processes."""
    with SqliteStore(tmp_path / "s.db") as here, SqliteStore(tmp_path / "s.db") as there:
        yield here, there


class Listener:
    def __init__(self):
        self.heard = threading.Event()

    def __call__(self):
        self.heard.set()


def listening():
    return [thread for thread in threading.enumerate() if thread.name == "divebook-news"]


def test_what_another_process_writes_is_news(both):
    here, there = both
    seen = here.wait_for_news(-1, 20)
    there.append(ONE, log(1), 0)
    assert here.wait_for_news(seen, 20) != seen


def test_what_this_process_appends_is_no_news(both):
    here, _ = both
    seen = here.wait_for_news(-1, 20)
    here.append(ONE, log(1), 0)
    assert here.wait_for_news(seen, 0.05) == seen


def test_it_is_looked_for_ever_more_rarely(both, monkeypatch):
    here, _ = both
    seen, pauses = here.wait_for_news(-1, 20), []
    monkeypatch.setattr("divebook.stores.sqlite.tables.time.monotonic", lambda: sum(pauses))
    monkeypatch.setattr(here._news_counter, "wait", lambda seen, seconds: pauses.append(seconds) or seen)
    assert here.wait_for_news(seen, 60) == seen
    assert sorted(pauses[:-2]) == pauses[:-2]  # the last ones are what is left of the time
    assert len(pauses) < 60 * 6


def test_news_are_waited_for_by_one_thread_however_many_listen(both):
    here, there = both
    before = len(listening())
    listeners = [Listener() for _ in range(100)]
    leave = [here.on_news(listener) for listener in listeners]
    assert all(listener.heard.wait(20) for listener in listeners)  # each looks once
    assert len(listening()) == before + 1
    for listener in listeners:
        listener.heard.clear()
    there.append(ONE, log(1), 0)
    assert all(listener.heard.wait(20) for listener in listeners)
    for end in leave:
        end()


def test_the_thread_ends_with_the_last_listener(monkeypatch):
    monkeypatch.setattr("divebook.stores.listeners.LINGER", 0.01)
    before = listening()
    with MemoryStore() as store:
        leave = store.on_news(Listener())
        (mine,) = [thread for thread in listening() if thread not in before]
        leave()
        mine.join(20)
        assert not mine.is_alive()
        again = Listener()
        leave = store.on_news(again)
        assert again.heard.wait(20)
        leave()


def test_closing_the_store_ends_the_thread(both):
    here, _ = both
    before = listening()
    here.on_news(Listener())
    assert len(listening()) == len(before) + 1
    here.close()
    assert listening() == before


def test_a_listener_that_fails_keeps_none_from_hearing(logs):
    def fail():
        raise ValueError("it failed")

    with MemoryStore() as store:
        other = Listener()
        leave = [store.on_news(fail), store.on_news(other)]
        store.append(ONE, log(1), 0)
        other.heard.clear()
        store.post(ANSWER)
        assert other.heard.wait(20)
        for end in leave:
            end()
    assert "a listener to the store's news failed" in logs()


def test_a_follower_hears_of_another_process(both):
    here, there = both
    there.append(ONE, log(2), 0)

    async def main():
        async with aclosing(follow(here, ONE)) as stream:
            assert [(await anext(stream)).sequence for _ in range(2)] == [1, 2]
            there.append(ONE, [step(3), completed(4)], 2)
            async with asyncio.timeout(20):
                assert [entry.sequence async for entry in stream] == [3, 4]

    asyncio.run(main())


def test_a_signal_of_another_process_reaches_what_runs_here(both):
    here, there = both
    steps = [
        Step("split", "wait", seconds=0, next=["long", "short"]),
        Step("long", "wait", seconds=3600),
        Step("short", "wait", signal="go", store="went"),
    ]
    with closing(Environment(workflows=[Workflow("w", steps)], store=here)) as world:
        execution, went = world.create("w"), threading.Event()
        execution.subscribe(lambda events: [went.set() for event in events if event.event_type == "signal_received"])
        execution.start()
        Environment(store=there).run_of(execution.id).signal("go", 1)
        assert went.wait(20)
        execution.cancel()
        execution.wait(20)
