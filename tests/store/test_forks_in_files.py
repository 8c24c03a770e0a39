"""Forks in a file that others copy, delete from, fill and damage, and forks of logs of an older format."""

import contextlib
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from divebook.errors import ExecutionNotFoundError, StoreError
from divebook.events.catalog import StepCompleted
from divebook.stores import SqliteStore
from divebook.stores.codec import FernetCodec
from divebook.stores.maintenance import check
from divebook.stores.sqlite.store import back_up
from tests.store.connections import writer_of
from tests.store.corpus import KEY, Acts, world
from tests.store.fork_promises import family, fork, forked, read_as
from tests.store.large_promises import text
from tests.store.logs import ONE, TWO, batch, event, execution_id, log, steps
from tests.store.test_schema import RECORDED

DELETING = "import sys; from divebook.stores import SqliteStore; SqliteStore(sys.argv[1]).delete(sys.argv[2])"


def elsewhere(path, name):
    """Delete a log in another process."""
    subprocess.run([sys.executable, "-c", DELETING, str(path), name], check=True, cwd=Path(__file__).parents[2])


def test_a_copy_of_the_file_has_all_forks_whole(store, path, tmp_path):
    whole = family(store)
    with SqliteStore(back_up(path, tmp_path / "copy.db"), durability="relaxed") as copy:
        assert not read_as(copy, whole)
        assert check(copy).ok
        copy.delete(ONE)  # and is a store of its own
        del whole[ONE]
        assert not read_as(copy, whole)
    assert store.record(ONE).last_sequence == 12


def test_a_source_that_another_process_deletes_is_read_to_its_end_by_who_has_begun(store, path):
    whole = family(store)
    name = execution_id(11)
    history = store.history(name)
    assert next(iter(history)) == whole[name][0]
    elsewhere(path, ONE)
    del whole[ONE]
    assert list(store.history(name)) == whole[name]
    assert not read_as(store, whole)
    store.append(name, steps(12, 13, name), 11)
    assert check(store).ok


def test_a_fork_of_what_another_process_has_deleted_begins_nothing(store, path):
    """Trap 16: the source goes between the reading of it and the first event of the fork."""
    family(store)
    begins = batch(TWO, 5, [forked(ONE, 5, TWO)], source=ONE)
    elsewhere(path, ONE)
    (refused,) = store.append_all([begins])
    assert isinstance(refused, ExecutionNotFoundError)
    assert ONE in str(refused)
    with pytest.raises(ExecutionNotFoundError):
        store.record(TWO)
    assert check(store).ok


def test_two_stores_that_fork_one_log_at_once_have_both_forks(store, path):
    store.append(ONE, log(12), 0)
    with SqliteStore(path, durability="relaxed") as other:
        whole = {
            execution_id(20): fork(store, ONE, 7, execution_id(20)),
            execution_id(21): fork(other, ONE, 7, execution_id(21)),
        }
        assert not read_as(store, whole)
        assert not read_as(other, whole)


def test_a_full_disk_begins_no_fork_and_hurts_no_source(store):
    whole = family(store)
    pages = writer_of(store).execute("PRAGMA page_count").fetchone()[0]
    writer_of(store).execute(f"PRAGMA max_page_count = {pages + 2}")
    own = [forked(ONE, 5, TWO), event(7, StepCompleted(output=text(60_000)), TWO)]
    with pytest.raises(StoreError, match="cannot grow"):
        store.append_all([batch(TWO, 5, own, source=ONE)])
    assert not read_as(store, whole)
    with pytest.raises(ExecutionNotFoundError):
        store.record(TWO)
    writer_of(store).execute("PRAGMA max_page_count = 1000000")
    assert store.append_all([batch(TWO, 5, own, source=ONE)]) == [None]
    assert store.read(TWO)[5:] == own


def test_a_source_whose_deletion_fails_for_want_of_space_is_there_with_its_forks(store):
    whole = family(store)
    pages = writer_of(store).execute("PRAGMA page_count").fetchone()[0]
    writer_of(store).execute(f"PRAGMA max_page_count = {pages}")
    with contextlib.suppress(StoreError):  # it may need a page for its heir, or none
        store.delete(ONE)
        del whole[ONE]
    assert not read_as(store, whole)
    writer_of(store).execute("PRAGMA max_page_count = 1000000")
    assert check(store).ok


@pytest.mark.parametrize("name", ["asking", "items", "paths", "failing"])
def test_a_run_of_the_format_before_is_forked_and_goes_on(path, name):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((RECORDED / "corpus.sql").read_text())
    acts = Acts(mended=True)
    with SqliteStore(path) as store:
        store.sealing.codec = FernetCodec(KEY)
        environment = world(store, acts)
        (source,) = (record.execution_id for record in store.records() if record.workflow_name == name)
        before = store.read(source)
        point = next(entry.sequence for entry in before if entry.event_type == "step_started")
        made = environment.run_of(source).fork(point).wait(20)
        while made.open_questions:
            made = environment.answer(made.open_questions[0].id, "yes", made.id).wait(20)
        assert made.status == "completed", made.error
        assert store.read(source) == before
        shared = made.history()[:point]
        assert [entry.data for entry in shared] == [entry.data for entry in before[:point]]
        store.delete(source)
        assert made.history()[:point] == shared
        # A value that the version before has sealed, which took more bytes, is counted as this one would seal it.
        assert [damage for damage in check(store).all_damages() if "bytes" not in damage.text] == []
