"""Locks between processes: `flock` on an open file or folder, with a time limit.

The kernel releases such a lock when its process ends, also if it is killed. A blocking ``flock`` has no time limit, so
a held lock is tried again at short intervals.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from pathlib import Path

POLL_INTERVAL = 0.05
"""Seconds between two attempts to get a lock."""
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


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
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False
