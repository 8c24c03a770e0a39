"""Locks of environments between processes: held by the kernel, so that a process that was killed holds none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from divebook.errors import DevEnvError

WAIT = 30.0
"""Seconds that a lock is waited for."""


@asynccontextmanager
async def locked(path: Path, what: str, *, wait: float = WAIT) -> AsyncIterator[None]:
    """Hold a lock; raises `DevEnvError` if another process does for that long."""
    lock = FileLock(path, timeout=wait, thread_local=False)
    try:
        await asyncio.to_thread(lock.acquire)
    except Timeout:
        raise DevEnvError(f"{what} is busy: another process works on it; wait longer with --wait SECONDS") from None
    try:
        yield
    finally:
        lock.release()
