"""Locks between processes: `flock` on an open file or folder, with a time limit. On Windows a lock on a byte of a file.

The kernel releases such a lock when its process ends, also if it is killed. A blocking ``flock`` has no time limit, so
a held lock is tried again at short intervals.
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import os
import time
from pathlib import Path
from typing import Any

from divebook.workspaces.paths import CLOEXEC, NOFOLLOW

POLL_INTERVAL = 0.05
"""Seconds between two attempts to get a lock."""
_FLAGS = os.O_RDWR | os.O_CREAT | CLOEXEC | NOFOLLOW
_LOCKED_BYTE = 1 << 40
"""Position of the byte that is locked on Windows. It is after the end of every file, because other processes cannot
read a locked byte."""


def _system_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


# By name, since a system has one of the two. Both are missing in a browser.
_fcntl = _system_module("fcntl")
_msvcrt = _system_module("msvcrt")


def lock(descriptor: int, wait: float) -> bool:
    """Lock an open file or folder, and wait until that is possible, blocking the thread. Return False if another
    process still holds the lock after `wait` seconds.

    Raises `OSError` if the file system has no locks.
    """
    limit = time.monotonic() + wait
    while not _try_lock(descriptor):
        if time.monotonic() >= limit:
            return False
        time.sleep(POLL_INTERVAL)
    return True


async def open_locked(path: Path, wait: float) -> int | None:
    """Lock a file that only serves as a lock, and is created if missing. Return its descriptor, to be closed by
    `release`. Return None if another process still holds the lock after `wait` seconds.

    Raises `OSError` if the file cannot be opened, or if the file system has no locks.
    """
    limit = time.monotonic() + wait
    while True:
        descriptor = os.open(path, _FLAGS, 0o600)
        is_held = False
        try:
            # Another program may delete the lock file when it releases it, as some versions of the library filelock do.
            # A lock on a deleted file does not exclude a process that opens the path now.
            is_held = _try_lock(descriptor) and _is_at(path, descriptor)
        finally:
            if not is_held:
                os.close(descriptor)
        if is_held:
            return descriptor
        if time.monotonic() >= limit:
            return None
        await asyncio.sleep(POLL_INTERVAL)


def release(descriptor: int) -> None:
    """Release a lock and close its file."""
    # Not by closing alone: a process that was forked meanwhile has a copy of the descriptor, which would keep the lock.
    if _fcntl is not None:
        _fcntl.flock(descriptor, _fcntl.LOCK_UN)
    else:
        _change_byte_lock(descriptor, _msvcrt.LK_UNLCK)
    os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        if _fcntl is not None:
            _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
        elif _msvcrt is not None:
            _change_byte_lock(descriptor, _msvcrt.LK_NBLCK)
        else:
            raise OSError(errno.ENOLCK, "this operating system does not support file locks")
    except (BlockingIOError, PermissionError):  # the second one on Windows
        return False
    return True


def _change_byte_lock(descriptor: int, mode: int) -> None:
    """Lock or unlock the byte that stands for the file. `msvcrt.locking` acts at the descriptor's current position."""
    before = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    try:
        _msvcrt.locking(descriptor, mode, 1)
    finally:
        os.lseek(descriptor, before, os.SEEK_SET)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False
