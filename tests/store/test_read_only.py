"""Stores in files and folders that may not be written to."""

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from divebook.errors import ReadOnlyStoreError
from divebook.stores import SqliteStore
from tests.store.logs import ONE, log, steps, write

NOBODY = 65534


@pytest.fixture
def folder():
    """Return a folder that an unprivileged user can reach, unlike pytest's own."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o777)
    yield made
    made.chmod(0o777)
    shutil.rmtree(made)


@contextmanager
def unprivileged():
    """Act as a user for whom permissions count."""
    user = os.getuid()
    if user == 0:
        os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        if user == 0:
            os.setresuid(0, 0, 0)


def test_a_read_only_file_can_be_read(folder):
    write(folder / "x.db", log(3))
    (folder / "x.db").chmod(0o444)
    with unprivileged(), SqliteStore(folder / "x.db") as store:
        assert store.read(ONE) == log(3)
        assert "not writable" in store.read_only


def test_a_file_in_a_read_only_folder_can_be_read(folder):
    write(folder / "x.db", log(3))
    (folder / "x.db").chmod(0o644)
    folder.chmod(0o555)
    with unprivileged(), SqliteStore(folder / "x.db") as store:
        assert store.read(ONE) == log(3)
        assert store.records()[0].status == "running"


def test_a_read_only_store_refuses_to_write(folder):
    write(folder / "x.db", log(3))
    (folder / "x.db").chmod(0o444)
    with unprivileged(), SqliteStore(folder / "x.db") as store:
        for change in (lambda: store.append(ONE, steps(4, 5), 3), lambda: store.delete(ONE)):
            with pytest.raises(ReadOnlyStoreError, match=r"x\.db is read-only: the file .* not writable"):
                change()


def test_a_store_that_is_being_written_can_be_read_from_a_read_only_folder(folder):
    with SqliteStore(folder / "x.db") as writer:
        writer.append(ONE, log(3), 0)
        for entry in folder.iterdir():
            entry.chmod(0o444)
        folder.chmod(0o555)
        with unprivileged(), SqliteStore(folder / "x.db") as store:
            assert store.read(ONE) == log(3)


def test_events_in_a_journal_that_cannot_be_read_are_not_passed_over(folder):
    (folder / "other").mkdir()
    with SqliteStore(folder / "x.db") as writer:
        writer.append(ONE, log(3), 0)
        for name in ("x.db", "x.db-wal"):
            shutil.copy(folder / name, folder / "other" / name)
            (folder / "other" / name).chmod(0o644)
    (folder / "other").chmod(0o555)
    with unprivileged(), pytest.raises(ReadOnlyStoreError, match=r"the latest events .* are in x\.db-wal, .*copy both"):
        SqliteStore(folder / "other" / "x.db")
    (folder / "other").chmod(0o777)


def test_a_new_store_in_a_read_only_folder_is_an_error(folder):
    folder.chmod(0o555)
    with (
        unprivileged(),
        pytest.raises(ReadOnlyStoreError, match=r"x\.db cannot be created: the folder .* not writable"),
    ):
        SqliteStore(folder / "x.db")


def test_an_empty_read_only_file_says_that_it_cannot_be_set_up(folder):
    (folder / "x.db").touch(0o444)
    (folder / "x.db").chmod(0o444)
    with unprivileged(), pytest.raises(ReadOnlyStoreError, match="older format 0 and is read-only"):
        SqliteStore(folder / "x.db")
