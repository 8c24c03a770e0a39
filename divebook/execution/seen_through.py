"""Calls that are seen through to their end, whatever becomes of the code that awaits them.

What a call has done is to be undone if the execution fails or is cancelled, so that the log must have its end: an
async function that were cut off in the middle might have booked a room that nobody cancels
(`tests/execution/test_rollback_unknown.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import anyio


async def seen_through(made: Coroutine[Any, Any, Any], is_left: Callable[[], bool]) -> Any:
    """Return what comes of a call with all that is recorded of it; a cancellation comes afterwards.

    Parameters
    ----------
    is_left
        Whether the execution is left as if the process had ended: then the call is cut off as well.
    """
    task, cancelled = asyncio.ensure_future(made), None
    while not task.done():
        try:
            with anyio.CancelScope(shield=cancelled is not None):
                await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
            if is_left():
                task.cancel()
    if cancelled is not None:
        _ = task.cancelled() or task.exception()  # the log has it
        raise cancelled
    return task.result()
