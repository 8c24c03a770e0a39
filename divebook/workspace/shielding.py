"""Work that is not to be broken off."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """Return what work comes to, which goes on to its end also if whoever waits is cancelled meanwhile.

    The cancellation is raised afterwards; what the work itself raises comes before it.
    """
    doing = asyncio.ensure_future(work)
    was_cancelled = False
    while not doing.done():
        try:
            await asyncio.wait([doing])
        except asyncio.CancelledError:
            was_cancelled = True
    result = doing.result()
    if was_cancelled:
        raise asyncio.CancelledError
    return result
