"""A store copied into another one: the same logs, files, messages and forks, and nothing that cannot be compared."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from divebook.errors import CorruptStoreError, LeaseHeldError, StoreError
from divebook.events.catalog import FilesChanged, StepCompleted
from divebook.events.values import StoredFile
from divebook.stores import MemoryStore, Owner, SqliteStore
from divebook.stores.maintenance import check, file_content
from divebook.stores.transfer import copy, digest
from tests.store.fork_promises import fork
from tests.store.large_promises import text
from tests.store.logs import (
    ONE,
    THREE,
    TWO,
    batch,
    completed,
    event,
    execution_id,
    failed,
    log,
    resumed,
    started,
    step,
    steps,
)
from tests.store.message_promises import answer
from tests.store.queue_promises import enqueued
from tests.store.tampering import tamper

ROOT = Path(__file__).parent.parent.parent


def filled(store):
    """Fill a store with what there is: ended, waiting and large logs, messages taken and not taken."""
    ended = [*log(2, TWO), completed(3, TWO)]
    store.append_all(
        [
            batch(ONE, 0, log(2), durability="relaxed", acquire=Owner("there", 1, 1, "gone")),
            batch(TWO, 0, ended),
            batch(THREE, 0, [*log(1, THREE), event(2, StepCompleted(output=text(80_000)), THREE), failed(3, THREE)]),
        ]
    )
    for number in range(4):
        store.post(answer(f"ask_{number}"))
    store.delete(TWO)
    store.append(TWO, ended, 0)
    (held,) = store.leases()
    store.append_all([batch(ONE, 2, steps(3, 1203), held.token, status="waiting", wake_at=9, taken=2)])
    store.release(held)
    return store


def told(store):
    records = [replace(record, size=0) for record in store.records()]
    return records, store.new_messages(0), [digest(store, record.execution_id) for record in records]


def copies(source, target):
    report = copy(source, target)
    assert told(target) == told(source)
    assert check(target).ok
    return report


def test_everything_is_copied_and_copied_back(path):
    with filled(MemoryStore()) as source, SqliteStore(path) as there, MemoryStore() as back:
        assert copies(source, there).events == 1203 + 3 + 3
        report = copies(there, back)
        assert (report.executions, report.already, report.messages, report.unended) == (3, 0, 4, 1)
        assert there.untaken() == back.untaken() == {ONE}
        lease = back.acquire(ONE, Owner.current())
        assert back.append_all([batch(ONE, 1203, [step(1204)], lease.token)]) == [None]


def test_what_workers_leave_to_a_person_is_left_to_one_in_the_copy(path):
    with MemoryStore() as source, SqliteStore(path) as target:
        source.append_all([batch(name, 0, [started(name), enqueued(name)]) for name in (ONE, TWO)])
        source.withhold(ONE)
        copies(source, target)
        assert [[queued.execution_id for queued in target.queued(withheld=held)] for held in (True, False)] == [
            [ONE],
            [TWO],
        ]


def test_a_copy_is_taken_up_where_it_broke_off(path):
    with filled(MemoryStore()) as source, SqliteStore(path) as target:
        names = []

        def break_off(name):
            names.append(name)
            if len(names) == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            copy(source, target, break_off)
        report = copies(source, target)
        assert (report.executions, report.already) == (1, 2)
        assert copies(source, target).already == 3


LONG = 1203
"""Events: three pages."""


def _ended(store):
    store.append(ONE, [*log(LONG - 1), completed(LONG)], 0)


def _waiting(store):
    store.append_all([batch(ONE, 0, log(LONG), status="waiting", wake_at=9)])


def _resumed(store):
    store.append(ONE, [*log(499), failed(500)], 0)
    store.append(ONE, [resumed(501), *steps(502, LONG)], 500)


def _forked(store):
    store.append(TWO, log(9, TWO), 0)
    fork(store, TWO, 5, ONE, length=LONG - 5)


@pytest.mark.parametrize("fill", [_ended, _waiting, _resumed, _forked])
@pytest.mark.parametrize("pages", [1, 2])
def test_a_copy_that_broke_off_amid_a_log_goes_on_there_and_nobody_takes_it_up_before(path, fill, pages):
    with MemoryStore() as source, SqliteStore(path) as target:
        fill(source)
        append, written = target.append_all, []

        def die(batches):
            answers = append(batches)
            written.append(batches[0].execution_id)
            if written.count(ONE) == pages:
                target.append_all = append
                raise KeyboardInterrupt
            return answers

        target.append_all = die
        with pytest.raises(KeyboardInterrupt):
            copy(source, target)
        assert 0 < target.record(ONE).last_sequence < LONG
        hour_later = time.time_ns() // 1000 + 3600 * 1_000_000
        assert ONE not in [record.execution_id for record in target.orphans(now=hour_later)]
        before = target.record(ONE).last_sequence
        report = copies(source, target)
        assert report.events == LONG - before
        assert target.leases() == []
        assert copies(source, target).already == len(source.records())


def test_a_copy_that_was_killed_is_taken_up(path):
    killed = """
import os, sys
from divebook.stores import SqliteStore
from divebook.stores.transfer import copy
source, target = SqliteStore(sys.argv[1]), SqliteStore(sys.argv[2])
append, written = target.append_all, []
def die(batches):
    answers = append(batches)
    written.append(1)
    if len(written) == 2:
        os.kill(os.getpid(), 9)
    return answers
target.append_all = die
copy(source, target)
"""
    with SqliteStore(path) as source, SqliteStore(path.with_name("there.db")) as target:
        source.append(ONE, [*log(LONG - 1), completed(LONG)], 0)
        done = subprocess.run(
            [sys.executable, "-c", killed, path, path.with_name("there.db")], check=False, cwd=ROOT, timeout=60
        )
        assert done.returncode == -9
        assert (target.record(ONE).status, target.orphans()) == ("waiting", [])
        with pytest.raises(LeaseHeldError, match=r"is driven by divebook copy .*an unfinished copy, which the same"):
            target.acquire(ONE, Owner.current())
        assert copies(source, target).executions == 1


def test_what_somebody_drives_in_the_target_is_not_copied_on(path):
    with MemoryStore() as source, SqliteStore(path) as target:
        source.append(ONE, log(LONG), 0)
        target.append_all([batch(ONE, 0, log(500), acquire=Owner.current())])
        with pytest.raises(LeaseHeldError):
            copy(source, target)


def test_what_differs_is_found(path):
    with filled(MemoryStore()) as source, SqliteStore(path) as target:
        target.append(TWO, log(3, TWO), 0)
        with pytest.raises(CorruptStoreError, match=f"execution {TWO} in .* differs from the one in memory:"):
            copy(source, target)


def test_what_is_being_driven_is_not_copied(path):
    with MemoryStore() as source, SqliteStore(path) as target:
        source.append(ONE, log(1), 0)
        source.acquire(ONE, Owner.current())
        with pytest.raises(
            StoreError,
            match=rf"1 execution of memory: is still running: execution {ONE} is driven by .*Pause or end",
        ):
            copy(source, target)
        assert target.records() == []


def test_a_store_with_messages_of_its_own_takes_no_others(path):
    with filled(MemoryStore()) as source, SqliteStore(path) as target:
        other = event(1, log(1)[0].data, "exec_other", path="")
        target.append("exec_other", [other], 0)
        target.post(answer(execution="exec_other"))
        with pytest.raises(StoreError, match=r"other messages; choose an empty store"):
            copy(source, target)


def test_a_damaged_message_is_not_left_out_of_a_copy(path):
    there = path.with_name("there.db")
    with filled(SqliteStore(path)) as source, SqliteStore(there) as target:
        copies(source, target)
        for damaged in (there, path):
            tamper(damaged, """UPDATE messages SET payload = '"no"' WHERE number = 2""")
            with pytest.raises(
                CorruptStoreError,
                match=rf"messages to execution {ONE} in {damaged} are unreadable: message 2 .*Run `divebook check`",
            ):
                copy(source, target)


def test_a_fork_shares_what_it_shared_and_what_lost_its_source_is_whole(path):
    with MemoryStore() as source, SqliteStore(path) as target:
        for name in (ONE, TWO):
            source.append(name, log(9, name), 0)
        kept, left = execution_id(10), execution_id(11)
        fork(source, ONE, 5, kept, length=3)
        fork(source, TWO, 5, left, length=3)
        source.delete(TWO)
        copies(source, target)
        assert target.stored_log(kept).shared == 5
        assert target.stored_log(left).shared == 0


def test_files_that_a_log_names_are_copied(path):
    content = b"all of it" * 20_000
    snapshot = FilesChanged(workspace="w", after="1", files=[["a.txt", StoredFile.of(content)]])
    with MemoryStore() as source, SqliteStore(path) as target:
        source.append(ONE, [*log(1), event(2, snapshot)], 0)
        copies(source, target)
        (named,) = StoredFile.all_in(target.read(ONE)[1].data)
        assert file_content(target, named.digest) == content
