"""What happens to files: copied while they are written, deleted, replaced, made read-only."""

import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from divebook.errors import StoreError
from divebook.store import Batch, Owner, SqliteStore, open_store
from divebook.store.check import check
from tests.store.logs import ONE, TWO, execution_id, log, step, steps
from tests.store.test_sqlite import NOBODY, folder, unprivileged  # noqa: F401 - a fixture

ROOT = Path(__file__).parent.parent.parent
COPIES = 300

WRITER = """
import mmap, struct, sys
from divebook.store import Batch, Owner, SqliteStore
from divebook.events.catalog import StepCompleted
from tests.store.keeping_promises import text
from tests.store.logs import event, execution_id, log

path, acknowledged = sys.argv[1:]
names = [execution_id(number) for number in range(2)]
large = [text(80_000, seed) for seed in range(4)]
with open(acknowledged, "r+b") as file, SqliteStore(path) as store:
    board = mmap.mmap(file.fileno(), 0)
    store._writer.execute("PRAGMA wal_autocheckpoint = 20")  # many checkpoints in a short time
    store.append_all([Batch(name, 0, log(1, name), acquire=Owner.current()) for name in names])
    for last in range(1, 10**6):
        output = large[last // 50 % 4] if last % 50 == 0 else "x" * (last * 7 % 1000)
        new = [event(last + 1, StepCompleted(output=output), name) for name in names]
        assert store.append_all([Batch(name, last, [new], 1) for name, new in zip(names, new)]) == [None, None]
        if last % 7 == 0:
            store.put_checkpoint(names[0], last, b"fold")
        board[:8] = struct.pack("q", last + 1)
"""


def test_a_copy_of_the_files_at_any_instant_has_all_that_was_acknowledged(tmp_path):
    """The writer is stopped at a random instant, as by a power cut, its files are copied, and it goes on."""
    path, board = tmp_path / "executions.db", tmp_path / "acknowledged"
    board.write_bytes(bytes(8))
    chance = random.Random(3)
    with (
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(board)], cwd=ROOT) as writer,
        board.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as acknowledged,
    ):
        try:
            while not acknowledged_by(acknowledged):
                assert writer.poll() is None
                time.sleep(0.001)
            for number in range(COPIES):
                time.sleep(chance.random() * 0.001)
                before = acknowledged_by(acknowledged)
                with stopped(writer):
                    copy = copied(path, tmp_path / f"copy-{number}")
                    examine(copy, before)
                    shutil.rmtree(copy.parent)
        finally:
            writer.kill()


def acknowledged_by(board):
    return struct.unpack("q", board[:8])[0]


@contextmanager
def stopped(process):
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def copied(path, target):
    target.mkdir()
    for name in (path.name, f"{path.name}-wal"):
        shutil.copy(path.with_name(name), target / name)
    return target / path.name


def examine(copy, acknowledged):
    with SqliteStore(copy, durability="relaxed") as store:
        report = check(store)
        assert report.all_damages() == []
        assert len(report.executions) == 2
        lengths = {entry.events for entry in report.executions}
        assert len(lengths) == 1  # batches that were written together
        assert lengths.pop() >= acknowledged


# --- files that go away


@pytest.fixture
def path(tmp_path):
    return tmp_path / "executions.db"


def remove(path):
    path.unlink()


def replace(path):
    path.rename(path.with_name("moved.db"))
    path.touch()


@pytest.mark.parametrize("accident", [remove, replace])
def test_nothing_is_written_to_a_file_that_was_deleted_or_replaced(path, accident):
    with SqliteStore(path) as store:
        store.append_all([Batch(ONE, 0, log(2), acquire=Owner.current())])
        (lease,) = store.leases()
        accident(path)
        for change in (
            lambda: store.append(ONE, [step(3)], 2, 1),
            lambda: store.append(TWO, log(1, TWO), 0),
            lambda: store.renew([lease]),
            lambda: store.put_checkpoint(ONE, 1, b""),
        ):
            with pytest.raises(StoreError, match=r"executions\.db was deleted or replaced while it was open"):
                change()
        assert not store.in_place


def test_a_file_that_was_deleted_is_opened_anew(path):
    old = open_store(path)
    old.append(ONE, log(3), 0)
    for name in path.parent.iterdir():
        name.unlink()
    with open_store(path) as new:
        assert new is not old
        new.append(ONE, log(2), 0)
        assert new.read(ONE) == log(2)
    old.close()


def own(path):
    """Let an unprivileged user change the permissions, as everybody may of one's own."""
    if os.getuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    return path


def test_a_folder_that_becomes_read_only_loses_nothing(folder):  # noqa: F811 - the fixture
    path = own(folder) / "x.db"
    with unprivileged(), SqliteStore(path) as store:
        store.append(ONE, log(2), 0)
        folder.chmod(0o555)
        store.append(ONE, steps(3, 4), 2)
        assert store.read(ONE) == log(4)
        folder.chmod(0o777)
    with SqliteStore(path) as store:
        assert store.read(ONE) == log(4)
        assert check(store).ok


def test_a_file_that_becomes_read_only_loses_nothing(folder):  # noqa: F811 - the fixture
    path = own(folder) / "x.db"
    with unprivileged(), SqliteStore(path) as store:
        store.append(ONE, log(2), 0)
        path.chmod(0o444)
        store.append(ONE, steps(3, 4), 2)
    with SqliteStore(path) as store:
        assert store.read(ONE) == log(4)


def test_a_process_that_was_killed_leaves_its_executions_to_others(path):
    board = path.with_name("acknowledged")
    board.write_bytes(bytes(8))
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(board)], cwd=ROOT) as writer:
        while not any(board.read_bytes()):
            assert writer.poll() is None
            time.sleep(0.001)
        writer.kill()
    acknowledged = struct.unpack("q", board.read_bytes())[0]
    with SqliteStore(path) as store:
        orphans = store.orphans()
        assert sorted(record.execution_id for record in orphans) == [execution_id(number) for number in range(2)]
        assert min(record.last_sequence for record in orphans) >= acknowledged
        assert {store.acquire(record.execution_id, Owner.current()).token for record in orphans} == {2}
        assert check(store).ok
