from datetime import timedelta

import pytest

from divebook.errors import NotFoundError
from divebook.events.catalog import StepCompleted
from divebook.stores import MemoryStore, Owner, SqliteStore
from divebook.stores.maintenance import check, gc
from tests.store.large_promises import text
from tests.store.logs import SECOND, START, cancelled, completed, event, execution_id, failed, log, resumed

DAY = 86400 * SECOND
NOW = START + 100 * DAY
LARGE = text(100_000)


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    opened = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "x.db", durability="relaxed")
    with opened:
        yield opened


def fill(store, ends=(completed, failed, cancelled, completed), workflow="greet", first=1):
    """Write executions that end a day after each other, and one that runs."""
    for number, end in enumerate(ends, first):
        name, at = execution_id(number), START + number * DAY
        large = event(2, StepCompleted(output=LARGE), name, at=at)
        store.append(name, [*log(1, name, at=at, workflow=workflow), large, end(3, name, at=at)], 0)
        store.put_checkpoint(name, 2, b"fold")
    name = execution_id(first + len(ends))
    store.append(name, log(2, name, workflow=workflow), 0)
    store.put_checkpoint(name, 2, b"fold")


def left(store):
    names = {execution_id(number): number for number in range(20)}
    return sorted(names[record.execution_id] for record in store.records())


def deleted(report):
    return len(report.executions)


def test_without_a_rule_no_execution_is_deleted(store):
    fill(store)
    report = gc(store, now=NOW)
    assert (deleted(report), report.blobs, report.checkpoints) == (0, 0, 4)
    assert left(store) == [1, 2, 3, 4, 5]
    assert store.checkpoints() == [execution_id(5)]


def test_old_executions_are_deleted(store):
    fill(store)
    report = gc(store, older_than=timedelta(days=98), now=NOW)
    assert (deleted(report), report.events) == (1, 3)
    assert left(store) == [2, 3, 4, 5]
    assert deleted(gc(store, older_than="98d", now=NOW)) == 0
    assert deleted(gc(store, older_than="97 d", now=NOW)) == 1


def test_the_newest_of_each_workflow_are_kept(store):
    fill(store)
    fill(store, workflow="other", first=11)
    gc(store, keep_last=1, now=NOW)
    assert left(store) == [4, 5, 14, 15]


def test_both_rules_spare_what_either_spares(store):
    fill(store)
    gc(store, older_than=timedelta(days=97), keep_last=3, now=NOW)
    assert left(store) == [2, 3, 4, 5]


def test_only_executions_of_the_given_status_are_deleted(store):
    fill(store)
    gc(store, keep_last=0, statuses=["completed", "cancelled"], now=NOW)
    assert left(store) == [2, 5]


def test_large_values_go_with_the_last_execution_that_has_them(store):
    fill(store, ends=(completed, failed))
    assert gc(store, older_than=timedelta(days=98.5), now=NOW).blobs == 0
    report = gc(store, keep_last=0, now=NOW)
    assert report.blobs == 1
    assert 40_000 < report.blob_bytes <= 100_002
    assert store.blobs() == []


def test_a_dry_run_says_the_same_and_deletes_nothing(store):
    fill(store)
    would = gc(store, keep_last=0, now=NOW, dry_run=True)
    assert left(store) == [1, 2, 3, 4, 5]
    assert (len(store.blobs()), len(store.checkpoints())) == (1, 5)
    did = gc(store, keep_last=0, now=NOW)
    assert (would.dry_run, did.dry_run) == (True, False)
    assert would.executions == did.executions
    assert (would.events, would.blobs, would.blob_bytes) == (did.events, did.blobs, did.blob_bytes) != (0, 0, 0)


def test_a_dry_run_counts_the_checkpoints_that_it_would_delete(store):
    fill(store)
    would = gc(store, keep_last=2, now=NOW, dry_run=True)
    assert would.checkpoints == gc(store, keep_last=2, now=NOW).checkpoints == 2


def test_what_somebody_is_about_to_resume_stays(store):
    fill(store)
    store.acquire(execution_id(2), Owner("there", 1, 1, "worker"), now=NOW)
    gc(store, keep_last=0, now=NOW + SECOND)
    assert left(store) == [2, 5]


def test_what_is_left_checks_clean(store):
    fill(store)
    gc(store, keep_last=1, now=NOW)
    report = check(store)
    assert report.ok
    assert report.orphan_blobs == 0


@pytest.mark.parametrize("status", ["running", "waiting", "done"])
def test_what_has_not_ended_cannot_be_deleted(store, status):
    with pytest.raises(NotFoundError, match=f"only executions that have ended can be deleted, not '{status}'"):
        gc(store, statuses=[status])


def test_impossible_rules_are_refused(store):
    with pytest.raises(ValueError, match="keep_last must not be negative, got -1"):
        gc(store, keep_last=-1)
    with pytest.raises(ValueError, match="older_than must not be negative"):
        gc(store, older_than=timedelta(days=-1))


@pytest.mark.parametrize(
    ("moment", "is_before"), [("records", False), ("live_leases", True), ("live_leases", False), ("discard", True)]
)
def test_a_run_that_is_resumed_and_ends_again_during_a_deletion_is_kept(store, monkeypatch, moment, is_before):
    fill(store, (failed, completed))
    name = execution_id(1)
    real = getattr(store, moment)
    events = [
        resumed(4, name),
        event(5, StepCompleted(output=text(50_000)), name, at=NOW),
        completed(6, name, at=NOW),
    ]

    def hooked(*args, **options):
        monkeypatch.undo()  # `gc` lists the executions again at its end
        if is_before:
            store.append(name, events, 3)
            return real(*args, **options)
        # All of an iterator is read before the run is resumed.
        result = list(real(*args, **options))
        store.append(name, events, 3)
        return result

    monkeypatch.setattr(store, moment, hooked)
    report = gc(store, older_than=timedelta(days=10), now=NOW)
    assert [record.execution_id for record in report.executions] == [execution_id(2)]
    assert left(store) == [1, 3]
    # The value of the resumed run is the one that the deleted run used too.
    values = [each.data.output for each in store.read(name) if isinstance(each.data, StepCompleted)]
    assert values == [LARGE, text(50_000)]
    assert check(store).ok
