"""Tasks that run side by side: how they are waited for, cancelled, and what of their errors is raised."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from divebook.runtime.concurrency import Group


def played(game):
    """Run a coroutine function that is given a group and a list for what happens; return the list."""
    seen = []

    async def play():
        await asyncio.wait_for(game(Group(), seen), 20)

    asyncio.run(play())
    return seen


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


def test_the_block_waits_for_its_tasks_and_those_they_start():
    async def game(group, seen):
        async def second():
            await turns(3)
            seen.append("second")

        async def first():
            await turns(3)
            group.spawn(second())
            seen.append("first")

        async with group.running():
            group.spawn(first())
        seen.append("over")

    assert played(game) == ["first", "second", "over"]


def test_what_is_aside_is_cancelled_once_nothing_else_is_left():
    async def game(group, seen):
        async def for_ever():
            try:
                await anyio.sleep_forever()
            finally:
                seen.append("left")

        async def work():
            await turns(2)
            seen.append("worked")

        async with group.running():
            group.spawn(for_ever(), is_background=True)
            group.spawn(work())
        seen.append(asyncio.current_task().cancelling())

    assert played(game) == ["worked", "left", 0]


def test_an_error_cancels_the_others_and_the_block_and_is_raised_as_it_is():
    async def game(group, seen):
        async def fails():
            await turns(1)
            raise LookupError("first")

        async def other():
            try:
                await anyio.sleep_forever()
            except asyncio.CancelledError:
                seen.append("other cancelled")
                raise OSError("second") from None

        async def block():
            async with group.running():
                group.spawn(other())
                group.spawn(fails())
                await anyio.sleep_forever()

        with pytest.raises(LookupError, match="first"):
            await block()
        seen.append(asyncio.current_task().cancelling())

    assert played(game) == ["other cancelled", 0]


def test_an_error_of_the_block_waits_for_the_tasks_it_cancels():
    async def game(group, seen):
        async def slow_to_leave():
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await turns(5)
                seen.append("left")

        async def block():
            async with group.running():
                group.spawn(slow_to_leave())
                await turns(1)
                raise LookupError("of the block")

        with pytest.raises(LookupError, match="of the block"):
            await block()
        seen.append("over")

    assert played(game) == ["left", "over"]


def test_a_cancellation_comes_again_where_it_is_caught():
    async def game(group, seen):
        async def stubborn():
            for attempt in range(3):
                try:
                    await anyio.sleep_forever()
                except asyncio.CancelledError:
                    seen.append(attempt)

        async with group.running():
            group.spawn(stubborn())
            await turns(1)
            group.cancel_all()
        assert group.is_cancelled
        assert not group.is_open

    assert played(game) == [0, 1, 2]


def test_what_is_shielded_comes_to_its_end():
    async def game(group, seen):
        async def careful():
            with anyio.CancelScope(shield=True):
                await turns(5)
                seen.append("shielded")
            await turns(1)
            seen.append("never")

        async with group.running():
            group.spawn(careful())
            await turns(1)
            group.cancel_all()

    assert played(game) == ["shielded"]


@pytest.mark.parametrize("is_cancelled_first", [True, False])
def test_what_has_not_begun_when_all_is_cancelled_never_begins(is_cancelled_first):
    async def game(group, seen):
        async def work():
            seen.append("began")

        if is_cancelled_first:
            group.cancel_all()
        async with group.running():
            group.spawn(work())
            group.cancel_all()
            group.spawn(work())
            await turns(1)
            seen.append("never")
        group.spawn(work())
        await turns(2)

    assert played(game) == []


def test_a_scope_around_the_block_cancels_its_tasks():
    async def game(group, seen):
        async def work():
            try:
                await anyio.sleep_forever()
            finally:
                seen.append("left")

        with anyio.CancelScope() as scope:
            async with group.running():
                group.spawn(work())
                await turns(1)
                scope.cancel()
            seen.append("never")
        seen.append("over")

    assert played(game) == ["left", "over"]


@pytest.mark.parametrize("begun", [0, 1])
def test_a_task_that_somebody_cancels_by_itself_ends_them_all(begun):
    async def game(group, seen):
        async def work():
            await anyio.sleep_forever()

        async with group.running():
            before = asyncio.all_tasks()
            group.spawn(work())
            group.spawn(work())
            await turns(begun)
            (asyncio.all_tasks() - before).pop().cancel()
        seen.append("over")

    assert played(game) == ["over"]


def test_whoever_cancels_the_task_of_the_block_cancels_its_tasks():
    async def game(group, seen):
        async def work():
            try:
                await anyio.sleep_forever()
            finally:
                await turns(0)
                seen.append("left")

        async def block():
            async with group.running():
                group.spawn(work())
            seen.append("never")

        task = asyncio.create_task(block())
        await turns(3)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    assert played(game) == ["left"]
