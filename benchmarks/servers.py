"""``python -m benchmarks.servers``: runs over a database of its own, beside the same over a file, in turn.

Both with full durability: steps one after the other, runs of three steps of which 32 go on at once, and how soon
another store hears of a message. Prints JSON lines. Needs a Postgres server's programs.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from benchmarks.reporting import lines_of
from benchmarks.worlds import ACTIONS, chain, run
from divebook import Environment
from divebook.engine.inbox import SIGNAL, Message, signal_payload
from divebook.store import EventStore, SqliteStore
from divebook.store.postgres import PostgresStore
from tests.postgres.server import PostgresServer, postgres_server

STEPS, EXECUTIONS, AT_ONCE, ROUNDS, MESSAGES = 300, 192, 32, 3, 200
say = lines_of("servers")
_numbers = itertools.count()


def main() -> None:
    """Measure both, best of several rounds."""
    with postgres_server() as server:
        for what, seconds, count in (("sequential steps/s", steps, STEPS), ("runs/s, 32 at once", runs, EXECUTIONS)):
            rounds = [[seconds_of(kind, seconds, server) for kind in ("file", "database")] for _ in range(ROUNDS)]
            file, database = (count / min(column) for column in zip(*rounds, strict=True))
            say(what, file=round(file), database=round(database), ratio=round(database / file, 2))
        milliseconds = [1000 * seconds for seconds in news(server)]
        say("message heard, ms", median=round(median(milliseconds), 1), p95=round(quantiles(milliseconds, n=20)[-1], 1))


def seconds_of(kind: str, work: Callable[[EventStore], float], server: PostgresServer) -> float:
    """Return what some work takes over an empty store."""
    with opened(kind, server) as store:
        run(store, chain(3))
        return work(store)


@contextmanager
def opened(kind: str, server: PostgresServer) -> Iterator[EventStore]:
    """Open an empty store."""
    if kind == "database":
        with PostgresStore(server.url(f"b{next(_numbers)}")) as store:
            yield store
        return
    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "log.db") as store:
        yield store


def steps(store: EventStore) -> float:
    """Return the seconds that trivial steps take, one after the other."""
    return run(store, chain(STEPS))[1]


def runs(store: EventStore) -> float:
    """Return the seconds that a number of runs take, some of them at a time."""
    definition, environment = chain(3), Environment(store=store, actions=ACTIONS)

    async def drive() -> None:
        for _ in range(EXECUTIONS // AT_ONCE):
            await environment.create(definition)

    async def drive_all() -> None:
        await asyncio.gather(*(drive() for _ in range(AT_ONCE)))

    began = time.perf_counter()
    asyncio.run(drive_all())
    return time.perf_counter() - began


def news(server: PostgresServer) -> Iterator[float]:
    """Give the seconds from the beginning of each post to where another store has read it."""
    url, heard = server.url(f"b{next(_numbers)}"), threading.Event()
    with PostgresStore(url) as sender, PostgresStore(url) as receiver:
        execution, _ = run(sender, chain(3))
        end = receiver.on_news(heard.set)
        time.sleep(1)  # it listens
        for number in range(1, MESSAGES + 1):
            heard.clear()
            began = time.perf_counter()
            sender.post(Message(execution.id, SIGNAL, f"go-{number}", signal_payload("go", number), "bench", 1))
            while not receiver.new_messages(number - 1):
                heard.wait(10)
                heard.clear()
            yield time.perf_counter() - began
        end()


if __name__ == "__main__":
    main()
