"""Strands of one path: what is left of them whichever of them is cancelled, and when."""

import asyncio

import pytest

from divebook.runtime.concurrency import CallCounter, ConcurrentCalls


@pytest.mark.parametrize("names", [("busy", "last"), ("last", "busy")])
def test_a_call_that_waits_for_the_others_can_be_cancelled_with_them(names):
    async def cancelled():
        strands = ConcurrentCalls(lambda _: None)
        under_way = CallCounter(strands)

        async def busy():
            with under_way:
                await asyncio.Event().wait()

        async def last():
            with under_way:
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


@pytest.mark.parametrize("released", [ConcurrentCalls.wake, ConcurrentCalls.unwind])
@pytest.mark.parametrize("is_cancelled_first", [True, False])
def test_a_parked_strand_that_is_cancelled_and_released_at_once_counts_once(released, is_cancelled_first):
    async def parked():
        strands, is_there, ends = ConcurrentCalls(lambda _: None), [], []

        async def park():
            try:
                await strands.park(lambda: bool(is_there))
            except asyncio.CancelledError:
                ends.append(strands.running)
                raise

        with strands.side_by_side(2) as strand:

            async def one():
                with strand():
                    await park()

            async def other():
                with strand():
                    await asyncio.Event().wait()

            tasks = [asyncio.create_task(one()), asyncio.create_task(other())]
            await asyncio.sleep(0)
            is_there.append(True)
            steps = [tasks[0].cancel, lambda: released(strands)]
            for step in steps if is_cancelled_first else steps[::-1]:
                step()
            await asyncio.wait(tasks[:1])
            left = strands.running
            tasks[1].cancel()
            await asyncio.wait(tasks)
        return ends, left, strands.running

    assert asyncio.run(parked()) == ([2], 1, 1)
