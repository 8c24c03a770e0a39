"""Copies of a store that is being written: of its files, as they are, and by `back_up`."""

import os
import random
import shutil
import signal
import sqlite3
import stat
import time
from contextlib import closing, contextmanager

import pytest

from divebook.errors import CorruptStoreError, StoreError
from divebook.stores import SqliteStore
from divebook.stores.maintenance import check
from divebook.stores.sqlite import back_up
from tests.store.logs import ONE, log
from tests.store.writing import examine, writing

COPIES, AT_ONCE, BACKUPS = 300, 50, 40
WAL_HEADER, CHUNK = 32, 65_536


# --- the files themselves


@pytest.mark.parametrize("first", ["database", "wal"])
@pytest.mark.parametrize("part", range(COPIES // AT_ONCE // 2))
def test_a_copy_of_the_files_has_all_that_was_acknowledged_before_it_began(first, part, tmp_path):
    """Copies at random instants, while the writer writes and checkpoints without a pause, are sound and complete.

    What is promised, of a copy of the database and its WAL, one after the other, in any order, made while a reader
    holds a read transaction: it opens, it is sound, and it has every event acknowledged before the copying began. (It
    may have later ones.) The reader's mark is at a frame M of the WAL, or the whole WAL was in the database already.

    - In the first case nobody can begin the WAL anew, so it only grows, and checkpoints write nothing to the database
      but frames up to M. The copy of the WAL has all of these: whatever a checkpoint did to the copy of the database,
      half a page even, is hidden by them. Every other page did not change meanwhile.
    - In the second case no checkpoint can write to the database at all, but a writer may begin the WAL anew, once. A
      copy of half an old and half a new WAL would be worthless; the WAL's header tells, and it is copied again.

    What is not promised: a copy without the reader and the look at the header. In this very test, 3 to 5 of 300 such
    copies are damaged. `divebook backup` spares its user all this.
    """
    chance = random.Random(f"{first} {part}")
    with writing(tmp_path) as writer:
        copies = [copied(writer, tmp_path / str(number), first, chance.random() * 0.004) for number in range(AT_ONCE)]
    for copy, acknowledged in copies:
        examine(copy, acknowledged)


def copied(writer, target, first, pause):
    """Copy the files at an instant; return the copy and how much had been acknowledged when that began."""
    time.sleep(pause)
    target.mkdir()
    # To close any handle of a database ends all locks that this process has on it, so these outlive the reader.
    with writer.path.open("rb") as database, wal_of(writer.path).open("rb") as wal, reading(writer.path):
        for _ in range(2):
            acknowledged, header = writer.acknowledged, os.pread(wal.fileno(), WAL_HEADER, 0)
            parts = [(database, target / writer.path.name), (wal, wal_of(target / writer.path.name))]
            for source, copy in parts if first == "database" else reversed(parts):
                copy_as_it_is_now(source.fileno(), copy)
            if os.pread(wal.fileno(), WAL_HEADER, 0) == header:
                return target / writer.path.name, acknowledged
    raise AssertionError("the WAL was begun anew twice, though somebody reads")


def wal_of(path):
    return path.with_name(f"{path.name}-wal")


@contextmanager
def reading(path):
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # BEGIN alone does not read
        yield


def copy_as_it_is_now(source, target):
    """Copy a file as far as it goes now: a writer may be faster than we are."""
    with target.open("wb") as out:
        for offset in range(0, os.fstat(source).st_size, CHUNK):
            out.write(os.pread(source, CHUNK, offset))


def test_a_copy_of_the_files_of_one_instant_has_all_that_was_acknowledged(tmp_path):
    """What a power cut leaves, or a snapshot of the disk: the writer is stopped wherever it is, and nobody reads."""
    chance = random.Random(3)
    with writing(tmp_path) as writer:
        for number in range(COPIES):
            time.sleep(chance.random() * 0.001)
            before = writer.acknowledged
            with stopped(writer.process):
                target = tmp_path / f"copy-{number}"
                target.mkdir()
                for path in (writer.path, wal_of(writer.path)):
                    shutil.copy(path, target)
                examine(target / writer.path.name, before)
                shutil.rmtree(target)


@contextmanager
def stopped(process):
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


# --- backups


def test_a_backup_made_while_others_write_has_all_that_was_acknowledged(tmp_path):
    chance = random.Random(4)
    backups = []
    with writing(tmp_path) as writer:
        for number in range(BACKUPS):
            time.sleep(chance.random() * 0.01)
            acknowledged = writer.acknowledged
            backups.append((back_up(writer.path, tmp_path / f"{number}.db"), acknowledged))
    for backup, acknowledged in backups:
        assert not wal_of(backup).exists()
        examine(backup, acknowledged)


@pytest.fixture
def store(tmp_path):
    with SqliteStore(tmp_path / "executions.db") as made:
        made.append(ONE, log(3), 0)
        yield made


def test_a_backup_is_a_store_of_its_own(store, tmp_path):
    backup = back_up(store.path, tmp_path / "copy.db")
    store.append(ONE, log(4)[3:], 3)
    with SqliteStore(backup) as copy:
        assert copy.read(ONE) == log(3)
        assert check(copy).ok
        copy.append(ONE, log(5)[3:], 3)
    assert store.read(ONE) == log(4)


def test_a_backup_into_a_folder_keeps_the_name(store, tmp_path):
    folder = tmp_path / "backups"
    folder.mkdir()
    assert back_up(store.path, folder) == folder / "executions.db"


def test_a_backup_is_as_private_as_the_store(store, tmp_path):
    store.path.chmod(0o640)
    assert stat.S_IMODE(back_up(store.path, tmp_path / "copy.db").stat().st_mode) == 0o640


@pytest.mark.parametrize("name", ["copy.db", "copy.db-wal", "copy.db-journal"])
def test_a_backup_replaces_nothing_and_is_mixed_with_nothing(store, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(StoreError, match=rf"{name} exists already; choose another name"):
        back_up(store.path, tmp_path / "copy.db")
    assert (tmp_path / name).read_text() == "mine"
    assert sorted(path.name for path in tmp_path.glob("copy*")) == [name]


def test_a_backup_needs_a_folder(store, tmp_path):
    with pytest.raises(StoreError, match=r"the folder .*nowhere does not exist"):
        back_up(store.path, tmp_path / "nowhere" / "copy.db")


@pytest.mark.parametrize("content", [b"no database at all", b""])
def test_a_file_that_is_no_store_is_not_backed_up(tmp_path, content):
    (tmp_path / "x.db").write_bytes(content)
    with pytest.raises(CorruptStoreError, match="not a divebook store"):
        back_up(tmp_path / "x.db", tmp_path / "copy.db")
    assert [path.name for path in tmp_path.iterdir()] == ["x.db"]


def test_there_is_no_backup_of_nothing(tmp_path):
    with pytest.raises(StoreError, match="there is no store at"):
        back_up(tmp_path / "x.db", tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []


def test_a_backup_that_cannot_be_finished_leaves_nothing(store, tmp_path, monkeypatch):
    folder = tmp_path / "backups"
    folder.mkdir()

    def disk_full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "chmod", disk_full)
    with pytest.raises(StoreError, match="No space left on device"):
        back_up(store.path, folder)
    assert list(folder.iterdir()) == []


def test_a_store_without_a_write_ahead_log_is_backed_up_in_portions_that_let_writers_in(tmp_path):
    with pytest.warns(RuntimeWarning, match="network"):
        made = SqliteStore(tmp_path / "executions.db", network=lambda _: "nfs")
    with made:
        made.append(ONE, log(3), 0)
        with SqliteStore(back_up(made.path, tmp_path / "copy.db")) as copy:
            assert copy.read(ONE) == log(3)
