"""What every store promises about large values: each kept once, put back on reading, gone with the last use."""

import random

from divebook.events.catalog import (
    ExecutionStarted,
    Mutation,
    OperationCompleted,
    OperationStarted,
    StateMutated,
    StepCompleted,
)
from divebook.events.codec import by_hash
from divebook.events.values import normalize
from divebook.stores.maintenance import check
from tests.store.logs import ONE, TWO, batch, event, log

LIMIT = 64 * 1024


def text(length, seed=1):
    return random.Random(seed).randbytes(length // 2).hex()


def done(sequence, output, execution=ONE):
    return event(sequence, StepCompleted(output=output), execution)


class LargePromises:
    """Part of the suite."""

    def test_a_large_text_is_stored_once(self, store):
        large = text(200_000)
        operation = event(2, OperationCompleted("op", "x", 1, {"text": large, "n": 1}))
        mutation = event(4, StateMutated((Mutation("set", "a", large), Mutation("set", "b", [large]))))
        store.append(ONE, [*log(1), operation, done(3, large), mutation], 0)
        assert store.read(ONE)[1:] == [operation, done(3, large), mutation]
        assert len(store.blobs()) == 1

    def test_a_large_text_is_stored_once_for_all_executions(self, store):
        large = text(200_000)
        for name in (ONE, TWO):
            store.append(name, [*log(1, name), done(2, large, name)], 0)
        assert len(store.blobs()) == 1
        assert store.read(TWO)[1].data.output == store.read(ONE)[1].data.output == large

    def test_small_values_are_stored_in_their_events(self, store):
        store.append(ONE, [*log(1), done(2, text(LIMIT - 20))], 0)
        assert store.blobs() == []

    def test_what_a_batch_holds_several_times_is_stored_once(self, store):
        result = {"text": text(2000), "rows": [{"n": number} for number in range(200)]}
        operation = event(2, OperationCompleted("op", "x", 1, result))
        mutation = event(3, StateMutated((Mutation("set", "a", result), Mutation("set", "b", "small"))))
        batch = [*log(1), operation, mutation, done(4, result["text"])]
        store.append(ONE, batch, 0)
        assert store.read(ONE)[1:] == batch[1:]
        assert sum(len(entry.payload) for entry in store.stored_log(ONE).records[1:]) < 1500
        assert store.read(ONE, after=2) == batch[2:]

    def test_what_a_batch_holds_once_stays_in_its_event(self, store):
        store.append(ONE, [*log(1), done(2, text(2000)), done(3, text(2000, seed=2))], 0)
        assert store.blobs() == []

    def test_large_collections_of_small_values_survive(self, store):
        table = {"rows": [{"name": f"row {number}", "value": number} for number in range(5000)]}
        store.append(ONE, [*log(1), event(2, OperationCompleted("op", "x", 1, table))], 0)
        assert store.read(ONE)[1].data.result == table
        assert len(store.blobs()) == 1

    def test_large_values_within_large_values_survive(self, store):
        inner = text(100_000)
        value = {"inner": inner, "rows": [{"n": number, "s": "s" * 20} for number in range(4000)], "again": [inner]}
        events = [*log(1), event(2, OperationCompleted("op", "x", 1, {"outer": value, "deep": [[{"x": value}]]}))]
        store.append(ONE, events, 0)
        assert store.read(ONE) == events

    def test_large_payloads_of_many_values_survive(self, store):
        inputs = {f"input {number}": "x" * 1000 for number in range(200)}
        first = event(1, ExecutionStarted(workflow_name="greet", inputs=inputs))
        store.append(ONE, [first], 0)
        assert store.read(ONE) == [first]

    def test_large_values_that_json_lacks_survive(self, store):
        values = normalize({"raw": b"\xff" * 100_000, "$type": "blob", "value": ["a" * 64, 1], "big": text(100_000)})
        store.append(ONE, [*log(1), event(2, OperationCompleted("op", "x", 1, values))], 0)
        assert store.read(ONE)[1].data.result == values

    def test_data_that_looks_like_a_reference_survives(self, store):
        reference = '{"$type":"blob","value":["' + "a" * 64 + '",10]}'
        small = normalize({"$type": "blob", "value": ["a" * 64, 10], "text": reference})
        large = normalize({**small, "more": [reference] * 1000})
        events = [event(2, OperationCompleted("op", "x", 1, small)), event(3, OperationCompleted("op", "x", 1, large))]
        store.append(ONE, [*log(1), *events], 0)
        assert store.read(ONE)[1:] == events

    def test_a_large_value_counts_once_in_the_size(self, store):
        large = text(200_000)
        store.append(ONE, [*log(1), done(2, large)], 0)
        before = store.record(ONE).size
        store.append(ONE, [done(3, large)], 2)
        assert 200_000 < before < 201_000
        assert store.record(ONE).size - before < 200

    def test_a_refused_batch_leaves_no_large_value(self, store):
        store.append(ONE, log(3), 0)
        store.append_all([batch(ONE, 2, [done(3, text(200_000))])])
        assert [blob for blob in store.blobs() if blob.used] == []
        assert check(store).ok

    def test_large_values_go_with_the_last_execution_that_has_them(self, store):
        large = text(200_000)
        for name in (ONE, TWO):
            store.append(name, [*log(1, name), done(2, large, name)], 0)
        store.delete(ONE)
        assert store.drop_blobs() == 0
        assert store.read(TWO)[1].data.output == large
        store.delete(TWO)
        assert store.drop_blobs() == 1
        assert store.blobs() == []

    def test_what_would_be_unused_without_some_executions_is_known(self, store):
        store.append(ONE, [*log(1, ONE), done(2, text(100_000, 1), ONE)], 0)
        store.append(TWO, [*log(1, TWO), done(2, text(100_000, 2), TWO)], 0)
        assert sorted(blob.used for blob in store.blobs(without=[ONE])) == [False, True]
        assert sorted(blob.used for blob in store.blobs()) == [True, True]

    def test_what_is_kept_by_its_hash_is_stored_once_however_short_and_in_however_many_logs(self, store):
        kept, other = by_hash({"tools": [{"name": "read"}]}), by_hash(["x"])
        for name in (ONE, TWO):
            told = {"a": kept, "b": [kept, other], "n": 1}
            operation = event(2, OperationStarted("op", "x", {"c": kept}, setting=told), name)
            events = [*log(1, name), operation, event(3, OperationCompleted("op", "x", 1, {"d": kept}), name)]
            store.append(name, events, 0)
            assert store.read(name) == events
        assert len(store.blobs()) == 2
        assert store.read(ONE)[1].data.setting["a"].to_python() == {"tools": [{"name": "read"}]}
        assert check(store).ok

    def test_what_is_kept_by_its_hash_beside_large_values_survives(self, store):
        held = {"large": text(200_000), "kept": by_hash({"b": 1, "a": [text(2000)]}), "same": text(2000)}
        events = [*log(1), event(2, OperationCompleted("op", "x", 1, held)), event(3, StepCompleted(text(2000)))]
        store.append(ONE, events, 0)
        assert store.read(ONE) == events
        assert list(store.read(ONE)[1].data.result["kept"].value) == ["b", "a"]

    def test_what_is_kept_by_its_hash_goes_with_the_last_execution_that_has_it(self, store):
        for name in (ONE, TWO):
            store.append(name, [*log(1, name), event(2, OperationCompleted("op", "x", 1, by_hash("short")), name)], 0)
        store.delete(ONE)
        assert store.drop_blobs() == 0
        assert store.read(TWO)[1].data.result.value == "short"
        store.delete(TWO)
        assert store.drop_blobs() == 1
