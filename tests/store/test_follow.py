import asyncio
import importlib
import threading
from contextlib import aclosing

import anyio
import pytest

from divebook.errors import ExecutionNotFoundError
from divebook.stores import MemoryStore, SqliteStore, follow
from tests.store.logs import ONE, TWO, completed, event, failed, log, resumed, started, step, steps

follow_module = importlib.import_module("divebook.stores.follow")  # the package has the function under that name


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    with MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.db", durability="relaxed") as opened:
        yield opened


async def collect(store, *arguments, **options):
    async with asyncio.timeout(20):
        return [entry.sequence async for entry in follow(store, ONE, *arguments, **options)]


async def take(stream, count):
    async with asyncio.timeout(20):
        return [(await anext(stream)).sequence for _ in range(count)]


def test_a_finished_execution_is_its_history(store):
    store.append(ONE, [*log(3), completed(4)], 0)
    assert asyncio.run(collect(store)) == [1, 2, 3, 4]


def test_the_history_may_be_longer_than_a_page(store, monkeypatch):
    monkeypatch.setattr(follow_module, "PAGE", 7)
    store.append(ONE, [*log(29), completed(30)], 0)
    assert asyncio.run(collect(store)) == list(range(1, 31))


def test_following_may_start_in_the_middle(store):
    store.append(ONE, [*log(3), completed(4)], 0)
    assert asyncio.run(collect(store, 2)) == [3, 4]


def test_following_from_the_end_of_a_finished_execution_ends(store):
    store.append(ONE, [*log(3), completed(4)], 0)
    assert asyncio.run(collect(store, 4)) == []


def test_an_unknown_execution_is_an_error(store):
    with pytest.raises(ExecutionNotFoundError):
        asyncio.run(collect(store))


def test_live_events_come_after_the_history(store):
    async def main():
        store.append(ONE, log(2), 0)
        async with aclosing(follow(store, ONE)) as stream:
            assert await take(stream, 2) == [1, 2]
            store.append(ONE, steps(3, 4), 2)
            assert await take(stream, 2) == [3, 4]
            store.append(ONE, [completed(5)], 4)
            assert [entry.sequence async for entry in stream] == [5]

    asyncio.run(main())


def test_what_is_appended_while_the_history_is_read_comes_once(store):
    async def main():
        store.append(ONE, log(3), 0)
        async with aclosing(follow(store, ONE)) as stream:
            assert await take(stream, 1) == [1]
            store.append(ONE, [step(4), completed(5)], 3)
            assert [entry.sequence async for entry in stream] == [2, 3, 4, 5]

    asyncio.run(main())


def test_other_executions_are_not_heard(store):
    async def main():
        store.append(ONE, log(1), 0)
        async with aclosing(follow(store, ONE)) as stream:
            assert await take(stream, 1) == [1]
            store.append(TWO, log(9, TWO), 0)
            store.append(ONE, [completed(2)], 1)
            assert [entry.execution_id async for entry in stream] == [ONE]

    asyncio.run(main())


def test_a_resumed_execution_is_followed_past_its_failure(store):
    store.append(ONE, [*log(2), failed(3), resumed(4), completed(5)], 0)
    assert asyncio.run(collect(store)) == [1, 2, 3, 4, 5]


def test_failure_and_resumption_heard_together_do_not_end_it(store):
    async def main():
        store.append(ONE, log(1), 0)
        async with aclosing(follow(store, ONE)) as stream:
            assert await take(stream, 1) == [1]
            store.append(ONE, [failed(2), resumed(3)], 1)
            assert await take(stream, 2) == [2, 3]
            store.append(ONE, [completed(4)], 3)
            assert [entry.sequence async for entry in stream] == [4]

    asyncio.run(main())


def test_without_until_end_it_waits_for_a_resumption(store):
    async def main():
        store.append(ONE, [*log(2), failed(3)], 0)
        async with aclosing(follow(store, ONE, until_end=False)) as stream:
            assert await take(stream, 3) == [1, 2, 3]
            store.append(ONE, [resumed(4)], 3)
            assert await take(stream, 1) == [4]

    asyncio.run(main())


def test_nothing_is_lost_or_doubled_under_appends_of_another_thread(store):
    store.append(ONE, log(1), 0)

    def write():
        for last in range(1, 600, 3):
            store.append(ONE, steps(last + 1, last + 3), last)
        store.append(ONE, [completed(602)], 601)

    async def main():
        writer = threading.Thread(target=write)
        followers = [asyncio.create_task(collect(store)) for _ in range(3)]
        writer.start()
        results = await asyncio.gather(*followers)
        writer.join(10)
        assert results == [list(range(1, 603))] * 3

    asyncio.run(main())


def test_a_slow_reader_gets_the_rest_from_the_store(store, monkeypatch):
    monkeypatch.setattr(follow_module, "INBOX", 3)

    async def main():
        store.append(ONE, log(1), 0)
        async with aclosing(follow(store, ONE)) as stream:
            assert await take(stream, 1) == [1]
            for last in range(1, 20):
                store.append(ONE, [step(last + 1)], last)
            store.append(ONE, [completed(21)], 20)
            assert [entry.sequence async for entry in stream] == list(range(2, 22))

    asyncio.run(main())


def test_deleting_the_execution_ends_it_with_an_error(store):
    async def main():
        store.append(ONE, log(1), 0)
        async with aclosing(follow(store, ONE)) as stream:
            assert await take(stream, 1) == [1]
            store.delete(ONE)
            with pytest.raises(ExecutionNotFoundError):
                await take(stream, 1)

    asyncio.run(main())


def test_it_unsubscribes_when_it_is_left(store):
    async def main():
        store.append(ONE, log(1), 0)
        async with aclosing(follow(store, ONE)) as stream:
            await take(stream, 1)
            assert len(store._subscribers.listeners.entries) == 1
        assert store._subscribers.listeners.entries == ()

    asyncio.run(main())


def test_waiting_does_not_read_the_store(store, monkeypatch):
    async def main():
        store.append(ONE, log(1), 0)
        async with aclosing(follow(store, ONE)) as stream:
            await take(stream, 1)
            waiting = asyncio.create_task(take(stream, 2))
            for _ in range(10):
                await asyncio.sleep(0)
            monkeypatch.setattr(store, "_read", None)  # whoever calls it now fails
            store.append(ONE, [step(2), completed(3)], 1)
            assert await waiting == [2, 3]

    asyncio.run(main())


def test_an_append_does_not_fail_if_the_readers_loop_is_gone(store, logs):
    store.append(ONE, log(1), 0)
    loop = asyncio.new_event_loop()
    stream = follow(store, ONE)
    loop.run_until_complete(anext(stream))
    waiting = loop.create_task(anext(stream))
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))
    waiting.cancel()
    loop.close()
    store.append(ONE, steps(2, 3), 1)
    assert logs() == []


def test_it_works_in_an_anyio_task_group(store):
    heard = []

    async def listen():
        heard.extend([entry.sequence async for entry in follow(store, ONE)])

    async def main():
        store.append(ONE, log(2), 0)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                await anyio.to_thread.run_sync(store.append, ONE, [step(3), completed(4)], 2)

    anyio.run(main)
    assert heard == [1, 2, 3, 4]


def test_events_of_another_process_are_found_by_polling(tmp_path):
    # A second store on the same file is as far away as another process: its listeners are its own.
    with SqliteStore(tmp_path / "s.db") as here, SqliteStore(tmp_path / "s.db") as there:
        there.append(ONE, log(2), 0)

        async def main():
            async with aclosing(follow(here, ONE, poll_interval=0.001)) as stream:
                assert await take(stream, 2) == [1, 2]
                there.append(ONE, [step(3), completed(4)], 2)
                async with asyncio.timeout(20):
                    assert [entry.sequence async for entry in stream] == [3, 4]

        asyncio.run(main())


def test_a_gap_left_by_another_process_is_filled_from_the_store(tmp_path):
    with SqliteStore(tmp_path / "s.db") as here, SqliteStore(tmp_path / "s.db") as there:
        here.append(ONE, [started()], 0)

        async def main():
            async with aclosing(follow(here, ONE)) as stream:
                assert await take(stream, 1) == [1]
                there.append(ONE, steps(2, 3), 1)
                here.append(ONE, [event(4, completed(4).data)], 3)
                assert [entry.sequence async for entry in stream] == [2, 3, 4]

        asyncio.run(main())
