"""``python -m benchmarks.servers``: runs over a database of its own, beside the same over a file, in turn.

Both with full durability: steps one after the other, runs of three steps of which 32 go on at once, and how soon
another process hears of a message. The first two on DBOS as well, on the same server, where the package dbos is
installed. Prints JSON lines. Needs a Postgres server's programs.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles

from benchmarks.reporting import lines_of
from benchmarks.worlds import ACTIONS, chain, run
from divebook import Environment
from divebook.engine.inbox import SIGNAL, Message, signal_payload
from divebook.stores import EventStore, SqliteStore
from divebook.stores.postgres import PostgresStore
from tests.postgres.server import PostgresServer, postgres_server

STEPS, EXECUTIONS, AT_ONCE, ROUNDS, MESSAGES = 300, 192, 32, 3, 200
say = lines_of("servers")
_numbers = itertools.count()


def main() -> None:
    """Measure both, best of several rounds."""
    with postgres_server() as server:
        theirs = dbos(server) if find_spec("dbos") else [None, None]
        whats = (("sequential steps/s", steps, STEPS), ("runs/s, 32 at once", runs, EXECUTIONS))
        for (what, seconds, count), other in zip(whats, theirs, strict=True):
            rounds = [[seconds_of(kind, seconds, server) for kind in ("file", "database")] for _ in range(ROUNDS)]
            file, database = (count / min(column) for column in zip(*rounds, strict=True))
            beside = (
                {} if other is None else {"dbos": round(count / other), "over_dbos": round(database * other / count, 2)}
            )
            say(what, file=round(file), database=round(database), ratio=round(database / file, 2), **beside)
        milliseconds = [1000 * seconds for seconds in news(server)]
        say("message heard, ms", median=round(median(milliseconds), 1), p95=round(quantiles(milliseconds, n=20)[-1], 1))


def dbos(server: PostgresServer) -> list[float]:
    """Return the least seconds that DBOS takes for either, in a database of its own."""
    url = f"postgresql://postgres@/dbos?host={server.folder}"
    command = [sys.executable, "-m", "benchmarks.beside_dbos", url]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return [min(column) for column in zip(*map(json.loads, done.stdout.splitlines()), strict=True)]


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
    """Give the seconds from the beginning of each post to where another process has read it."""
    url = server.url(f"b{next(_numbers)}")
    with PostgresStore(url) as sender:
        execution, _ = run(sender, chain(3))
        command = [sys.executable, "-m", "benchmarks.servers", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
            assert receiver.stdout is not None
            receiver.stdout.readline()  # it listens
            for number in range(1, MESSAGES + 1):
                began = time.monotonic()
                sender.post(Message(execution.id, SIGNAL, f"go-{number}", signal_payload("go", number), "bench", 1))
                yield float(receiver.stdout.readline()) - began


def hear(url: str) -> None:
    """Print when each message has been read, by the clock that all processes of a machine share."""
    heard = threading.Event()
    with PostgresStore(url) as receiver:
        end = receiver.on_news(heard.set)
        heard.wait(10)
        time.sleep(1)
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        for number in range(MESSAGES):
            while not receiver.new_messages(number):
                heard.wait(10)
                heard.clear()
            sys.stdout.write(f"{time.monotonic()}\n")
            sys.stdout.flush()
        end()


if __name__ == "__main__":
    main() if len(sys.argv) == 1 else hear(sys.argv[1])
