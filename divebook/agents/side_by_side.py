"""What a turn awaits side by side: strands of its step, all counted before one of them can have to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from divebook.agents.turn import TurnContext

T = TypeVar("T")


async def side_by_side(context: TurnContext, calls: Sequence[Awaitable[T]]) -> list[T]:
    """Return what they come to, in their order; raises what the first of them raised, once all have ended."""
    strands = [ExitStack() for _ in calls]

    async def awaited(strand: ExitStack, call: Awaitable[T]) -> T:
        with strand:
            return await call

    with ExitStack() as left:  # of those that are cancelled before they begin
        for strand in strands:
            strand.enter_context(context.calling())
            left.callback(strand.close)
        found = await asyncio.gather(*map(awaited, strands, calls), return_exceptions=True)
    for result in found:
        if isinstance(result, BaseException):
            raise result
    return cast("list[T]", found)
