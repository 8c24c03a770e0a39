"""Records that stand for several events: whoever reads sees the events, as if each had been written alone."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from random import Random

from divebook.errors import ConcurrentAppendError, InvalidEventError
from divebook.events.catalog import (
    IterationCompleted,
    Mutation,
    OperationCompleted,
    OperationStarted,
    PathCompleted,
    PathStarted,
    StateMutated,
    StepCompleted,
    StepStarted,
)
from divebook.events.codec import encode_line
from divebook.events.event import Record, type_id
from divebook.events.values import normalize
from divebook.stores import Batch
from divebook.stores.maintenance import check
from tests.store.logs import ONE, SECOND, START, TWO, started

LONG = "the text that a call has given, which is longer than a reference to it"


def record(sequence, *facts, execution=ONE, path="main", step="a"):
    """Return facts as one record."""
    at = START + sequence * SECOND
    return Record(type_id("event", at // 1000, sequence << 12), execution, sequence, at, facts, path, step)


def done(sequence, value=LONG, **placed):
    """Return what a step ends with: its call, the variable it sets and its output."""
    facts = (
        OperationCompleted("op", "action", 5, value),
        StateMutated((Mutation("set", "x", value), Mutation("delete", "y"))),
        StepCompleted(value if isinstance(value, str) else "{}"),
    )
    return record(sequence, *facts, **placed)


def begun(sequence, **placed):
    """Return what a step begins with."""
    return record(sequence, StepStarted("action"), OperationStarted("op", "action", {"n": 1}), **placed)


def records(execution=ONE, value=LONG):
    """Return a log of six events in three records, with path_started in the first wide one."""
    first = Record.of(started(execution))
    second = record(2, PathStarted("a"), StepStarted("action"), execution=execution)
    return [first, second, done(4, value, execution=execution)]


def write(store, written, expected=0):
    """Append records, and return the refusal."""
    return store.append_all([Batch(written[0].execution_id, expected, written)])[0]


def events_of(written):
    return [event for entry in written for event in entry.events()]


def lines(events):
    return [encode_line(event) for event in events]


class Invention:
    """Random records, always the same ones for a seed."""

    def __init__(self, seed):
        self.random = Random(seed)

    def value(self, depth=0):
        kinds = [
            lambda: self.random.choice([None, True, 1, 1.0, -0.0, 2**63, 2**70, float("inf"), "", "é\u2028\n", LONG]),
            lambda: self.random.choice([b"\x00" * 99, date(2025, 6, 1), Decimal("1.10"), {"$type": "same"}, "x" * 700]),
            lambda: [self.value(depth + 1) for _ in range(self.random.randrange(4))],
            lambda: {f"k{n}": self.value(depth + 1) for n in range(self.random.randrange(4))},
        ]
        return self.random.choice(kinds[: 2 if depth > 2 else 4])()

    def facts(self):
        value = normalize(self.value())
        output = value if isinstance(value, str) else "text"
        kinds = [
            StepStarted("action", {"parameter": value} if self.random.random() < 0.3 else None),
            OperationStarted("op", "action", {"given": value, "again": [value, LONG]}),
            OperationCompleted("op", "action", 5, value),
            StateMutated((Mutation("set", "x", value), Mutation("set", "y", [value]), Mutation("delete", "z"))),
            IterationCompleted(0, value, value, "key"),
            StepCompleted(output),
            PathCompleted("a"),
        ]
        return self.random.choices(kinds, k=self.random.randint(1, 6))

    def records(self, length):
        found = [Record.of(started(ONE))]
        for _ in range(length):
            found.append(record(found[-1].last_sequence + 1, *self.facts()))
        return found


class WidePromises:
    """Mixed into `tests.store.conformance.StorePromises`."""

    def test_a_record_reads_as_its_events(self, store):
        written = records()
        assert write(store, written) is None
        assert store.read(ONE) == events_of(written)
        assert [event.step for event in store.read(ONE)] == ["", "", "a", "a", "a", "a"]
        assert store.record(ONE).last_sequence == 6

    def test_records_and_single_events_read_back_equal(self, store):
        for seed in range(25):
            written = Invention(seed).records(8)
            singles = events_of(written)
            assert write(store, written) is None
            found = store.read(ONE)
            assert check(store).ok
            store.delete(ONE)
            store.append(ONE, singles, 0)
            assert lines(found) == lines(store.read(ONE)) == lines(singles)
            store.delete(ONE)

    def test_records_come_whole_to_whoever_folds_them(self, store):
        written = [*records(), begun(7), done(9)]
        write(store, written)
        assert store.read_records(ONE) == written
        assert store.read_records(ONE, after=5) == written[2:]
        assert store.read_records(ONE, after=written[-1].last_sequence) == []

    def test_what_single_events_say_can_be_asked_wherever_they_stand(self, store):
        written = [*records(), begun(7), done(9)]
        write(store, written)
        write(store, records(TWO))
        said = {event.sequence: event.data for event in events_of(written)}
        for wanted in ([], [1], [5], [4, 6, 11], list(said)):
            assert store.facts(ONE, wanted) == {sequence: said[sequence] for sequence in wanted}

    def test_a_read_may_begin_and_end_inside_a_record(self, store):
        written = [*records(), begun(7), done(9)]
        write(store, written)
        events = events_of(written)
        for after in range(len(events) + 2):
            for limit in (None, 0, 1, 2, 5, 100):
                wanted = events[after:] if limit is None else events[after : after + limit]
                assert store.read(ONE, after, limit) == wanted

    def test_records_follow_the_last_event_of_the_one_before(self, store):
        write(store, records())
        assert isinstance(write(store, [begun(5)], 4), ConcurrentAppendError)
        assert write(store, [begun(7)], 6) is None
        assert [event.sequence for event in store.read(ONE)] == [*range(1, 9)]

    def test_a_record_with_one_wrong_fact_is_not_written(self, store):
        write(store, records())
        wrong = record(9, StepStarted("action"), StepCompleted(output=7))
        assert "invalid event at index 3: " in str(write(store, [begun(7), wrong], 6))
        assert len(store.read(ONE)) == 6

    def test_a_record_without_facts_is_refused(self, store):
        assert isinstance(write(store, [record(1)]), InvalidEventError)

    def test_an_id_inside_a_record_is_not_given_twice(self, store):
        write(store, records())
        inner = store.read(ONE)[4]
        twin = replace(begun(7), id=inner.id)
        assert "invalid event at index 0" in str(write(store, [twin], 6))
        twins = [begun(7), replace(begun(9), id=begun(7).events()[1].id)]
        assert "invalid event at index 2" in str(write(store, twins, 6))
        assert len(store.read(ONE)) == 6

    def test_an_id_that_leaves_no_room_for_those_after_it_is_refused(self, store):
        write(store, records())
        full = replace(begun(7), id=begun(7).id[:-2] + "zz")
        assert "no identifier" in str(write(store, [full], 6))

    def test_a_value_is_written_once_in_a_record(self, store):
        value = {"text": "x" * 400}
        for execution, wanted in ((ONE, value), (TWO, "y" * 400)):
            write(store, records(execution, wanted))
            assert len(store.stored_log(execution).records[-1].payload) < 800

    def test_listeners_hear_the_events_of_records(self, store):
        heard = []
        store.subscribe(lambda _, events: heard.extend(events))
        write(store, records())
        assert heard == events_of(records())

    def test_what_is_left_of_a_batch_are_whole_records(self, store):
        written = [*records(), begun(7)]
        write(store, written[:2])
        assert store.append_all([Batch(ONE, 0, written, again=True)]) == [None]
        assert store.read(ONE) == events_of(written)

    def test_large_values_of_a_record_stand_beside_it(self, store):
        large = "z" * 100_000
        write(store, records(ONE, large))
        assert len(store.blobs()) == 1
        assert store.read(ONE) == events_of(records(ONE, large))
        assert check(store).ok

    def test_the_size_is_that_of_all_payloads(self, store):
        count = 40
        write(store, records())
        for number in range(count):
            write(store, [begun(7 + 2 * number)], 6 + 2 * number)
        stored = store.stored_log(ONE)
        assert store.record(ONE).size == sum(len(entry.payload) for entry in stored.records)
        assert store.record(ONE).last_sequence == 6 + 2 * count
        assert check(store).ok
