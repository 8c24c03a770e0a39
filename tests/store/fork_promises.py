"""Logs that share the first events of another one: they read as whole logs, whatever becomes of their source."""

import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from divebook.errors import ConcurrentAppendError, ExecutionNotFoundError, InvalidEventError, StoreError
from divebook.events.catalog import ExecutionForked, ExecutionStarted, InterruptRaised, OperationCompleted
from divebook.stores import Batch, transfer
from divebook.stores.leases import Owner
from divebook.stores.maintenance import check
from divebook.stores.pages import EventPage
from tests.store.large_promises import text
from tests.store.logs import ONE, START, TWO, batch, completed, event, execution_id, log, started, step, steps
from tests.store.wide_promises import begun, done


def forked(source, at, execution, **said):
    """Return the event with which a fork goes on."""
    return event(at + 1, ExecutionForked(source, at, "greet", fingerprint="f" * 64, **said), execution, path="")


def fork(store, source, at, execution, length=2, **said):
    """Fork a log, and let it go on for some events; return what must be read of it."""
    shared = [replace(entry, execution_id=execution) for entry in store.read(source, limit=at)]
    own = [forked(source, at, execution, **said), *steps(at + 2, at + length, execution)]
    assert store.append_all([batch(execution, at, own, source=source)]) == [None]
    return shared + own


def family(store, root=ONE, first=10):
    """Return what must be read of some logs that fork each other, at places before and behind earlier forks."""
    store.append(root, log(12, root), 0)
    whole = {root: log(12, root)}
    later = [(execution_id(first + number), at) for number, at in [(0, 8), (0, 5), (2, 9), (1, 9), (4, 11)]]
    sources = [(root, 7), (root, 9), *later]
    for number, (source, at) in enumerate(sources, first):
        whole[execution_id(number)] = fork(store, source, at, execution_id(number))
    return whole


def read_as(store, whole):
    """Return which logs are not read as they must be, in whatever way."""
    wrong = [name for name, events in whole.items() if store.read(name) != events]
    for name, events in whole.items():
        for after in range(len(events)):
            wrong += [(name, after)] * (store.read(name, after, 2) != events[after : after + 2])
            page = EventPage.of(events[after : after + 3])
            wrong += [(name, "page", after)] * (_plain(store.page(name, after, 3)) != _plain(page))
        found = store.facts(name, [1, 4, len(events) - 1])
        wrong += [(name, "facts")] * (found != {number: events[number - 1].data for number in found} or len(found) < 3)
        wrong += [(name, "history")] * (list(store.history(name)) != events)
        wrong += [(name, "last")] * (store.record(name).last_sequence != len(events))
    return wrong


def _plain(page):
    return [column.tolist() for column in page]


class ForkPromises:
    """What a store promises of forks."""

    def test_a_fork_reads_as_a_whole_log(self, store):
        assert not read_as(store, family(store))

    def test_a_fork_of_a_fork_of_a_fork_reads_as_a_whole_log(self, store):
        store.append(ONE, log(30), 0)
        source, whole = ONE, {}
        for number in range(10, 30):
            whole[execution_id(number)] = fork(store, source, number - 4, execution_id(number))
            source = execution_id(number)
        assert not read_as(store, whole)
        assert check(store).ok

    def test_a_fork_and_its_source_go_on_apart(self, store):
        whole = family(store)
        name = execution_id(10)
        store.append(name, steps(10, 12, name), 9)
        store.append(ONE, steps(13, 14), 12)
        assert store.read(name) == whole[name] + steps(10, 12, name)
        assert store.read(ONE) == log(14)
        with pytest.raises(ConcurrentAppendError):
            store.append(name, steps(8, 8, name), 7)

    def test_a_fork_has_the_line_of_its_own_opening(self, store):
        family(store)
        fork(store, ONE, 6, TWO, key="k", tags=["a"], note="why", origin="what-if")
        record = store.record(TWO)
        assert (record.origin, record.parent, record.key, record.tags) == ("what-if", ONE, "k", ("a",))
        assert (record.note, record.opened, record.status) == ("why", 7, "running")
        assert record.created_at == forked(ONE, 6, TWO).timestamp
        assert [found.execution_id for found in store.records(parent=ONE, origin="what-if")] == [TWO]

    def test_the_size_of_a_fork_is_that_of_its_own_events(self, store):
        store.append(ONE, [*log(3), event(4, OperationCompleted("op_1", "x", 0, text(200_000, 1)))], 0)
        fork(store, ONE, 4, TWO)
        assert store.record(TWO).size < 400 < 200_000 < store.record(ONE).size
        assert check(store).ok

    def test_whichever_is_deleted_the_others_read_as_before(self, store):
        """Trap 16: the source is deleted, and hands over what forks share of it."""
        orders = (0, 1, 2, 3, 4, 5, 6), (6, 3, 1, 0, 2, 5, 4), (2, 4, 0, 6, 1, 3, 5)
        for first, order in zip((100, 200, 300), orders, strict=True):
            whole = family(store, execution_id(first - 1), first)
            names = list(whole)
            for number in order:
                store.delete(names[number])
                del whole[names[number]]
                assert not read_as(store, whole)
                assert check(store).ok, check(store).all_damages()

    def test_an_heir_goes_on_where_it_was(self, store):
        """Trap 16: the source is deleted while a fork of it is written to."""
        whole = family(store)
        name = execution_id(11)
        store.delete(ONE)
        store.append(name, steps(12, 13, name), 11)
        assert store.read(name) == whole[name] + steps(12, 13, name)
        assert check(store).ok

    def test_what_is_deleted_by_age_leaves_its_forks(self, store):
        """Trap 16: cleaned up by age while a fork runs."""
        store.append(ONE, [*log(5), completed(6)], 0)
        kept = fork(store, ONE, 4, TWO)
        assert store.cleanup(event(7, None).timestamp) == 1
        assert store.read(TWO) == kept
        assert check(store).ok

    def test_large_values_that_a_fork_shares_stay(self, store):
        """Trap 16: the source is deleted, and the large values of what a fork shares are in use."""
        long = text(200_000, 1)
        store.append(ONE, [*log(3), event(4, OperationCompleted("op_1", "x", 0, long))], 0)
        store.append(ONE, [event(5, OperationCompleted("op_2", "x", 0, text(200_000, 2)))], 4)
        fork(store, ONE, 4, TWO)
        for _ in range(2):
            store.drop_blobs()
            assert store.read(TWO)[3].data.result == long
            assert check(store).ok, check(store).all_damages()
            if ONE in store.ids():
                store.delete(ONE)
        store.delete(TWO)
        store.drop_blobs()
        assert store.blobs() == []

    def test_large_values_behind_the_fork_go_with_their_source(self, store):
        """Trap 16: an heir keeps what its events refer to, and nothing else."""
        store.append(ONE, [*log(3), event(4, OperationCompleted("op_1", "x", 0, text(200_000, 1)))], 0)
        store.append(ONE, [event(5, OperationCompleted("op_2", "x", 0, text(200_000, 2)))], 4)
        kept = fork(store, ONE, 4, TWO)
        early = fork(store, ONE, 3, execution_id(3))
        store.delete(ONE)
        assert (store.drop_blobs(), len(store.blobs())) == (1, 1)
        assert (store.read(TWO), store.read(execution_id(3))) == (kept, early)
        assert check(store).ok, check(store).all_damages()
        store.delete(TWO)
        assert (store.drop_blobs(), store.blobs()) == (1, [])
        assert store.read(execution_id(3)) == early
        assert check(store).ok, check(store).all_damages()

    def test_of_random_forks_the_store_keeps_what_the_remaining_logs_need(self, store):
        """Trap 16: forks of forks, deleted in any order; texts are shared, and behind forks."""
        for seed in range(3):
            self.delete_random_forks(store, Random(seed))
            assert (list(store.ids()), store.blobs()) == ([], [])

    def delete_random_forks(self, store, chance):
        texts = [text(70_000, number) for number in range(8)]
        said = {number: OperationCompleted(f"op_{number}", "x", 0, texts[number]) for number in range(8)}
        store.append(ONE, [*log(3), *(event(4 + n, said[n]) for n in range(4))], 0)
        whole = {ONE: store.read(ONE)}
        for number in range(10, 18):
            source = chance.choice(list(whole))
            name, at = execution_id(number), chance.randint(2, len(whole[source]))
            own = [forked(source, at, name), *(event(at + n, said[chance.randrange(8)], name) for n in (2, 3))]
            own = [replace(entry, id=step(20 * number + n).id) for n, entry in enumerate(own)]
            assert store.append_all([batch(name, at, own, source=source)]) == [None]
            whole[name] = [replace(entry, execution_id=name) for entry in whole[source][:at]] + own
        for name in chance.sample(list(whole), len(whole)):
            store.delete(name)
            del whole[name]
            store.drop_blobs()
            held = {entry.data.result for events in whole.values() for entry in events if hasattr(entry.data, "result")}
            assert len(store.blobs()) == len(held)
            assert all(store.read(other) == events for other, events in whole.items())
            assert check(store).ok, check(store).all_damages()

    def test_open_questions_of_the_source_are_not_those_of_the_fork(self, store):
        """Trap 13: an open question is asked once in each."""
        asked = event(4, InterruptRaised("ask_1", "clarification", "why?"))
        store.append(ONE, [*log(3), asked], 0)
        fork(store, ONE, 4, TWO)
        assert store.asking() == [(ONE, "ask_1")]
        store.append(TWO, [event(7, InterruptRaised("ask_1", "clarification", "why?"), TWO)], 6)
        assert sorted(store.asking()) == sorted([(ONE, "ask_1"), (TWO, "ask_1")])
        assert check(store).ok

    def test_a_fork_begins_at_the_end_of_a_record(self, store):
        rows = [begun(4), done(6)]
        store.append(ONE, log(3), 0)
        store.append_all([Batch(ONE, 3, rows)])
        for at, fits in ((3, True), (4, False), (5, True), (6, False), (8, True), (9, False)):
            own = [forked(ONE, at, execution_id(20 + at))]
            (refusal,) = store.append_all([batch(execution_id(20 + at), at, own, source=ONE)])
            assert isinstance(refusal, StoreError) is not fits
        assert check(store).ok

    def test_a_fork_comes_with_its_first_lease(self, store):
        store.append(ONE, log(4), 0)
        own = batch(TWO, 4, [forked(ONE, 4, TWO)], acquire=Owner.current(), source=ONE)
        assert store.append_all([own]) == [None]
        store.append(TWO, [step(6, TWO)], 5, 1)
        assert [lease.execution_id for lease in store.leases()] == [TWO]

    def test_only_what_names_its_source_is_a_fork(self, store):
        store.append(ONE, log(4), 0)
        refused = [
            batch(TWO, 4, [forked(ONE, 4, TWO)]),
            batch(TWO, 4, steps(5, 5, TWO), source=ONE),
            batch(TWO, 0, [started(TWO)], source=ONE),
            batch(ONE, 4, [forked(TWO, 4, ONE)]),
        ]
        assert [type(found) for found in store.append_all(refused)] == [InvalidEventError] * 4
        (unknown,) = store.append_all([batch(TWO, 4, [forked("exec_9", 4, TWO)], source="exec_9")])
        assert isinstance(unknown, ExecutionNotFoundError)
        assert store.read(ONE) == log(4)

    def test_a_checkpoint_of_a_fork_is_its_own(self, store):
        whole = family(store)
        store.put_checkpoint(ONE, 12, b"one")
        for name in [found for found in whole if found != ONE]:
            store.put_checkpoint(name, 4, b"shared")
            assert store.checkpoint(name) == (4, b"shared")
            store.put_checkpoint(name, len(whole[name]), b"own")
        store.delete(ONE)
        assert {store.checkpoint(name) for name in whole if name != ONE} == {
            (len(events), b"own") for name, events in whole.items() if name != ONE
        }

    def test_an_export_of_a_fork_is_a_whole_log(self, store):
        """Trap 16: a fork is exported, and comes in again."""
        whole = family(store)
        name = TWO
        whole[name] = fork(store, execution_id(15), 8, name, key="k")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "log.jsonl")
            assert transfer.export(store, name, file) == len(whole[name])
            copy = transfer.import_(transfer.read(file), store, rename=True)
        kinds = [type(entry.data) for entry in store.read(copy)][: len(whole[name])]
        assert kinds == [type(entry.data) for entry in whole[name]]
        assert (store.record(copy).opened, store.record(copy).key) == (store.record(name).opened, None)
        assert check(store).ok, check(store).all_damages()

    def test_an_id_of_the_source_is_not_given_again(self, store):
        store.append(ONE, log(4), 0)
        fork(store, ONE, 4, TWO)
        again = replace(step(7, TWO), id=log(4)[2].id)
        with pytest.raises(InvalidEventError, match="is already in the log"):
            store.append(TWO, [again], 6)

    def test_the_first_events_of_all_are_in_order(self, store):
        for events in family(store).values():
            assert all(before.sequence + 1 == after.sequence for before, after in pairwise(events))
            assert isinstance(events[0].data, ExecutionStarted)
            assert events[0].recorded_at == START + 1_000_000
