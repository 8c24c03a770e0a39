"""When messages are sent, and to whom."""

import dataclasses
import itertools
import threading

import pytest

from divebook.definitions.definition import Workflow
from divebook.definitions.step import Step
from divebook.errors import CorruptStoreError, StoreClosedError
from divebook.widgets.publisher import HEARTBEAT, INTERVAL, Publisher, PublisherListener, publisher_of
from tests.engine.history import step
from tests.runtime.worlds import environment
from tests.widgets.feeds import Log, steps


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Stage:
    """A publisher whose turns the test takes itself."""

    def __init__(self):
        self.log, self.clock, self.told = Log(), Clock(), []
        self.publisher = Publisher(self.log.feed, self.clock)
        self.publisher._start = lambda: None
        self.publisher._listeners.add(PublisherListener(self.tell, lambda: None, lambda: None))

    def tell(self, delta):
        self.told.append(delta)
        return 1

    def run(self, seconds, each=lambda: None):
        """Take the turns of a while; `each` happens every millisecond."""
        due = self.clock.now
        for _ in range(round(seconds * 1000)):
            self.clock.now += 0.001
            each()
            if self.clock.now >= due or self.log.feed.has_news:
                due = self.clock.now + self.publisher.turn()


def test_a_thousand_events_a_second_become_at_most_thirty_messages():
    stage = Stage()
    stage.log.write(*steps(1))
    facts = iter([fact for number in range(1000) for fact in step(f"t{number}")])

    def happen():
        stage.log.feed.receive(stage.log.write(next(facts)))

    stage.run(1.0, happen)
    assert 25 <= len(stage.told) <= 31
    assert [delta["after"] for delta in stage.told[1:]] == [delta["last"] for delta in stage.told[:-1]]


def test_the_first_news_after_a_rest_goes_out_at_once():
    stage = Stage()
    stage.publisher.turn()
    stage.clock.now += 0.5
    stage.log.feed.receive(stage.log.write(*steps(1)))
    stage.publisher.turn()
    assert len(stage.told) == 2


def test_replies_count_as_messages_and_urgent_ones_come_first():
    stage, sent = Stage(), []
    stage.log.write(*steps(1))
    stage.publisher.post(lambda: sent.append("page"), urgent=False)
    stage.publisher.post(lambda: sent.append("ack"), urgent=True)
    assert stage.publisher.turn() == pytest.approx(INTERVAL)
    assert sent == ["ack"]
    stage.publisher.turn()
    assert sent == ["ack"]
    stage.clock.now += INTERVAL + 1e-9
    stage.publisher.turn()
    assert sent == ["ack", "page"]


def test_pages_and_frames_take_turns():
    stage, sent = Stage(), []
    for number in range(4):
        stage.publisher.post(lambda number=number: sent.append(number), urgent=False)
    for _ in range(4):
        stage.log.feed.receive(stage.log.write(*(step("x") if stage.log.events else steps(1))))
        stage.clock.now += INTERVAL + 1e-9
        stage.publisher.turn()
    assert (sent, len(stage.told)) == ([0, 1], 2)


def test_what_another_process_wrote_is_seen_at_the_next_heartbeat():
    stage = Stage()
    stage.publisher.turn()
    stage.log.write(*steps(1))
    stage.clock.now += HEARTBEAT + INTERVAL
    stage.publisher.turn()
    assert stage.told[-1]["total"] == 1


def test_two_views_of_one_execution_share_what_is_made_of_its_events():
    execution = environment().start(Workflow("w", [Step("a", script="1")])).wait(30)
    publisher, heard = publisher_of(execution), []
    assert publisher_of(execution) is publisher
    for _ in range(2):
        publisher._listeners.add(PublisherListener(lambda delta: heard.append(delta) or 1, lambda: None, lambda: None))
    publisher.turn()
    assert [delta["total"] for delta in heard] == [2, 2]
    assert heard[0] is heard[1]


def test_the_thread_ends_with_the_last_view():
    log = Log()
    publisher, heard = Publisher(log.feed), threading.Event()
    log.write(*steps(1))
    remove = publisher.add(lambda delta: heard.set() or 1)
    assert heard.wait(20)
    thread = publisher._thread
    remove()
    thread.join(20)
    assert not thread.is_alive()
    assert log.listeners == []


def test_a_reply_is_sent_although_no_view_listens_any_more():
    log, sent = Log(), threading.Event()
    publisher = Publisher(log.feed)
    publisher.post(sent.set, urgent=True)
    assert sent.wait(20)
    thread = publisher._thread
    if thread is not None:
        thread.join(20)
    assert (publisher._thread, log.listeners) == (None, [])


@pytest.mark.parametrize(
    ("error", "logged"),
    [(CorruptStoreError("event 3 makes no sense"), "event 3 makes no sense"), (StoreClosedError("it is closed"), "")],
    ids=["damaged", "closed"],
)
def test_a_store_that_cannot_be_read_ends_the_thread_and_only_damage_is_logged(caplog, logs, error, logged):
    log = Log()

    def read(after, limit):
        raise error

    log.feed.source = dataclasses.replace(log.source, read=read)
    publisher = Publisher(log.feed)
    publisher._listeners.add(PublisherListener(lambda _: 1, lambda: None, lambda: None))
    publisher._publish()
    assert len(logs()) == bool(logged)
    assert logged in caplog.text
    assert publisher._listeners.entries == ()


def test_a_view_of_a_store_that_cannot_be_read_is_still_closed_at_the_end():
    log, ended = Log(), []

    def read(after, limit):
        raise CorruptStoreError("event 3 makes no sense")

    log.feed.source = dataclasses.replace(log.source, read=read)
    publisher = Publisher(log.feed)
    publisher.add(lambda _: 1, end=lambda: ended.append("closed"))
    publisher._thread and publisher._thread.join(20)
    publisher.stop()
    assert ended == ["closed"]


def test_each_heartbeat_is_told_to_those_who_follow():
    stage, beats = Stage(), []
    stage.publisher._listeners.add(PublisherListener(stage.tell, lambda: beats.append(stage.clock.now), lambda: None))
    stage.run(2.5 * HEARTBEAT)
    assert [round(later - earlier, 3) for earlier, later in itertools.pairwise(beats)] == [HEARTBEAT, HEARTBEAT]


def test_a_frame_that_nobody_sends_counts_as_a_message():
    stage = Stage()
    stage.publisher._listeners.clear()
    stage.publisher._listeners.add(PublisherListener(lambda _: 0, lambda: None, lambda: None))
    stage.log.write(*steps(1))
    assert stage.publisher.turn() == pytest.approx(INTERVAL)
