"""Operations that hold others: begun once, and entered again by every process until they have ended.

What happens inside is recorded by itself, so that nothing of it is lost or repeated, and the operation around it is
never under way by itself: no pause waits for it, and nobody is asked what became of it
(`tests/execution/test_enclosing.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from divebook.engine.records import OperationRecord
from divebook.engine.retries import names_of
from divebook.events.codec import storable
from divebook.execution.containment import contained
from divebook.execution.error_texts import clean_text
from divebook.execution.once import Once
from divebook.execution.wanted import Wanted

Body: TypeAlias = Callable[[str], Awaitable[Any]]
"""Does what an operation holds; is given the id of that operation."""


async def entered(
    once: Once, loop: asyncio.AbstractEventLoop, wanted: Wanted, record: OperationRecord, body: Body
) -> Any:
    """Return what an operation that has begun comes to, once it is recorded.

    Raises
    ------
    OperationError
        What its body raised, as the log has it.
    Suspended
        It waits for something from outside, and has not ended.
    """
    place = wanted.place
    try:
        result = storable(await contained(body(record.operation_id), loop), "result")
    except Exception as error:  # whatever the body raises is the recorded outcome, unless the log is at fault
        once.require_agreement(place.path)
        if once.journal.error is not None:
            raise
        raise once.fail(place, record, clean_text(error), names_of(error), raised=error) from error
    once.complete(place, record, result)
    return result
