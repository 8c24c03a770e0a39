"""Strands of one path: what is left of them whichever of them is cancelled, and when."""

import asyncio

import pytest

from divebook.execution.strands import Strands, UnderWay


@pytest.mark.parametrize("names", [("busy", "last"), ("last", "busy")])
def test_a_call_that_waits_for_the_others_can_be_cancelled_with_them(names):
    async def cancelled():
        strands = Strands(lambda _: None)
        under_way = UnderWay(strands)

        async def busy():
            with under_way.call():
                await asyncio.Event().wait()

        async def last():
            with under_way.call():
                await asyncio.sleep(0)
                await strands.alone()

        tasks = [asyncio.create_task({"busy": busy, "last": last}[name]()) for name in names]
        for _ in range(3):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        return [type(end) for end in ends], strands.running

    assert asyncio.run(cancelled()) == ([asyncio.CancelledError] * 2, 1)
