"""Locks between processes."""

import asyncio
import errno
import fcntl
import os
import signal
import subprocess
import sys

import pytest

from divebook.workspaces import locks
from divebook.workspaces.locks import lock, open_locked, release


@pytest.fixture
def held(tmp_path):
    """Return a lock file and a descriptor that locks it, as another process would."""
    path = tmp_path / "lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield path, descriptor
    os.close(descriptor)


def test_a_lock_is_held_by_one(tmp_path):
    path = tmp_path / "lock"
    first = asyncio.run(open_locked(path, 0))
    assert first is not None
    assert asyncio.run(open_locked(path, 0)) is None
    other = os.open(path, os.O_RDONLY)
    assert not lock(other, 0)
    release(first)
    assert lock(other, 0)
    assert asyncio.run(open_locked(path, 0)) is None
    os.close(other)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_lock_is_waited_for_without_blocking_the_event_loop(held, monkeypatch):
    monkeypatch.setattr(locks, "POLL_INTERVAL", 0)
    path, descriptor = held

    async def wait():
        waiting = asyncio.create_task(open_locked(path, 60))
        await asyncio.sleep(0)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return await waiting

    release(asyncio.run(wait()))


def test_who_stops_waiting_gets_no_lock(held):
    path, descriptor = held

    async def stop():
        waiting = asyncio.create_task(open_locked(path, 60))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(stop())
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    release(asyncio.run(open_locked(path, 0)))


def test_a_killed_process_holds_no_lock(tmp_path):
    program = (
        "import asyncio, pathlib, sys; from divebook.workspaces.locks import open_locked; "
        "asyncio.run(open_locked(pathlib.Path(sys.argv[1]), 0)); print(flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "lock")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert asyncio.run(open_locked(tmp_path / "lock", 0)) is None
        process.send_signal(signal.SIGKILL)
    release(asyncio.run(open_locked(tmp_path / "lock", 0)))


def test_a_copy_of_the_descriptor_in_a_forked_process_keeps_no_lock(tmp_path):
    path = tmp_path / "lock"
    descriptor = asyncio.run(open_locked(path, 0))
    copy = os.dup(descriptor)
    release(descriptor)
    release(asyncio.run(open_locked(path, 0)))
    os.close(copy)


def test_a_lock_file_that_is_deleted_when_it_is_released_excludes_others_all_the_same(tmp_path, monkeypatch):
    """Some versions of the library filelock, which earlier versions of divebook used, do so."""
    path = tmp_path / "lock"
    attempts = []
    try_lock = locks._try_lock

    def released_and_deleted_meanwhile(descriptor):
        attempts.append(descriptor)
        if len(attempts) == 1:
            path.unlink()
        return try_lock(descriptor)

    monkeypatch.setattr(locks, "_try_lock", released_and_deleted_meanwhile)
    monkeypatch.setattr(locks, "POLL_INTERVAL", 0)
    descriptor = asyncio.run(open_locked(path, 60))
    assert len(attempts) == 2
    assert asyncio.run(open_locked(path, 0)) is None
    release(descriptor)


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        asyncio.run(open_locked(tmp_path / "lock", 0))
    assert not (tmp_path / "elsewhere").exists()


class Windows:
    """The part of `msvcrt` that locks bytes: on Linux with a lock of the open file, since one of the process would not
    exclude the other descriptors of this test.
    """

    LK_NBLCK, LK_UNLCK = 2, 0

    def locking(self, descriptor, mode, count):
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        assert (place, count) == (locks._LOCKED_BYTE, 1)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_UN if mode == self.LK_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None  # as on Windows


def test_on_windows_a_byte_of_the_file_is_locked(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_fcntl", None)
    monkeypatch.setattr(locks, "_msvcrt", Windows())
    path = tmp_path / "lock"
    first = asyncio.run(open_locked(path, 0))
    assert first is not None
    assert asyncio.run(open_locked(path, 0)) is None
    other = os.open(path, os.O_RDWR)
    os.write(other, b"text")
    assert not lock(other, 0)
    release(first)
    assert lock(other, 0)
    assert os.lseek(other, 0, os.SEEK_CUR) == 4  # writers go on where they were
    os.close(other)
    assert path.read_bytes() == b"text"


def test_a_system_without_locks_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_fcntl", None)
    monkeypatch.setattr(locks, "_msvcrt", None)
    with pytest.raises(OSError, match="this operating system does not support file locks"):
        asyncio.run(open_locked(tmp_path / "lock", 0))
