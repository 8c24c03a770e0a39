"""What every store promises to those who listen to it."""

import threading
from datetime import UTC, datetime

from tests.store.logs import ONE, THREE, TWO, batch, failed, log, step, steps


def sequences(events):
    return [entry.sequence for entry in events]


def heard_by(store):
    heard = []
    store.subscribe(lambda execution, events: heard.append((execution, sequences(events))))
    return heard


class ListeningPromises:
    """Part of the suite."""

    # --- listening

    def test_listeners_hear_what_was_appended(self, store):
        heard = heard_by(store)
        store.append(ONE, log(2), 0)
        store.append(ONE, steps(3, 4), 2)
        assert heard == [(ONE, [1, 2]), (ONE, [3, 4])]

    def test_listeners_can_read_what_they_hear(self, store):
        seen = []
        store.subscribe(lambda execution, events: seen.append((store.read(execution), list(events))))
        store.append(ONE, log(3), 0)
        assert seen == [(log(3), log(3))]

    def test_listeners_do_not_hear_what_was_refused(self, store):
        store.append(ONE, log(2), 0)
        heard = heard_by(store)
        store.append_all([batch(ONE, 1, steps(2, 3)), batch(TWO, 0, [step(1, TWO)]), batch(THREE, 0, [])])
        assert heard == []

    def test_listeners_hear_the_batches_in_order(self, store):
        heard = heard_by(store)
        store.append_all([batch(ONE, 0, log(1, ONE)), batch(TWO, 0, log(1, TWO)), batch(ONE, 1, steps(2, 3, ONE))])
        assert heard == [(ONE, [1]), (TWO, [1]), (ONE, [2, 3])]

    def test_listeners_are_called_in_the_appending_thread(self, store):
        threads = []
        store.subscribe(lambda *_: threads.append(threading.current_thread()))
        appender = threading.Thread(target=store.append, args=(ONE, log(1), 0))
        appender.start()
        appender.join(10)
        assert threads == [appender]

    def test_a_listener_that_left_hears_nothing_more(self, store):
        heard = []
        leave = store.subscribe(lambda execution, events: heard.append(sequences(events)))
        store.append(ONE, log(1), 0)
        leave()
        leave()
        store.append(ONE, steps(2, 3), 1)
        assert heard == [[1]]

    def test_a_failing_listener_disturbs_neither_the_append_nor_the_others(self, store):
        store.subscribe(lambda *_: 1 / 0)
        heard = heard_by(store)
        store.append(ONE, log(1), 0)
        assert heard == [(ONE, [1])]
        assert len(store.read(ONE)) == 1

    def test_a_listener_may_append(self, store):
        def carry_on(execution, events):
            if events[-1].sequence == 1:
                store.append(execution, steps(2, 3), 1)

        store.subscribe(carry_on)
        heard = heard_by(store)
        store.append(ONE, log(1), 0)
        assert heard == [(ONE, [1]), (ONE, [2, 3])]

    def test_a_deletion_is_heard_as_no_events(self, store):
        store.append(ONE, [*log(2), failed(3)], 0)
        store.append(TWO, log(1, TWO), 0)
        heard = heard_by(store)
        store.delete(TWO)
        store.cleanup(datetime(2099, 1, 1, tzinfo=UTC))
        assert heard == [(TWO, []), (ONE, [])]
