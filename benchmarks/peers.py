"""The work of `benchmarks.beside_peers` as other engines do it: Burr, LangGraph and DBOS, over SQLite or in memory.

``python -m benchmarks.peers ENGINE KIND`` prints the seconds of each cell as JSON. Runs in an environment that has the
engine, and not divebook. Each engine has the fastest setting that keeps every step: Burr with a write-ahead log and no
sync of its own, LangGraph with ``durability="async"``, DBOS as it comes.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

STEPS, EXECUTIONS, AT_ONCE, ITEMS, NAPS, NAP, ANSWERS = 1_000, 192, 32, 1_000, 200, 0.05, 30
SYNCHRONOUS = {"full": "FULL", "relaxed": "NORMAL"}
"""Setting of SQLite for each durability."""
Cells = dict[str, float]
"""Seconds by cell; a cell that the engine cannot do is missing."""
_numbers = itertools.count()


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that a function takes."""
    gc.collect()  # otherwise one of the cells, always the same one, would pay for the garbage of all before it
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


async def at_once(one: Callable[[], Awaitable[object]]) -> None:
    """Do `EXECUTIONS` pieces of work, `AT_ONCE` at a time."""

    async def several() -> None:
        for _ in range(EXECUTIONS // AT_ONCE):
            await one()

    await asyncio.gather(*(several() for _ in range(AT_ONCE)))


def with_write_ahead_log(connection: sqlite3.Connection, kind: str) -> sqlite3.Connection:
    """Set a connection to the durability `kind`, with a write-ahead log, and return it."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[kind]}")
    return connection


# --- Burr ------------------------------------------------------------------------------------------------------------


def burr(kind: str, folder: Path) -> Cells:
    """Measure Burr, which writes one row for each step, after the step."""
    from burr.core import ApplicationBuilder, State, action, expr  # type: ignore[import-not-found, unused-ignore]
    from burr.core.persistence import (  # type: ignore[import-not-found, unused-ignore]
        InMemoryPersister,
        SQLitePersister,
    )

    if kind == "memory":
        persister = InMemoryPersister()
    else:
        persister = SQLitePersister(str(folder / "burr.db"))
        with_write_ahead_log(persister.connection, kind)
        persister.initialize()

    @action(reads=["n"], writes=["n"])  # type: ignore[untyped-decorator, unused-ignore]
    def one(state: State) -> State:
        return state.update(n=state["n"] + 1)

    @action(reads=["n"], writes=["n"])  # type: ignore[untyped-decorator, unused-ignore]
    async def one_async(state: State) -> State:
        return state.update(n=state["n"] + 1)

    @action(reads=[], writes=[])  # type: ignore[untyped-decorator, unused-ignore]
    def end(state: State) -> State:
        return state

    def application(step: Any, count: int) -> Any:
        # The last step is `end`, so that an application has `count` steps.
        return (
            ApplicationBuilder()
            .with_actions(one=step, end=end)
            .with_transitions(("one", "end", expr(f"n >= {count - 1}")), ("one", "one"))
            .with_state(n=0)
            .with_entrypoint("one")
            .with_state_persister(persister)
            .with_identifiers(app_id=f"app{next(_numbers)}", partition_key="bench")
            .build()
        )

    def run(count: int) -> None:
        application(one, count).run(halt_after=["end"])

    def run_all() -> None:
        for _ in range(EXECUTIONS):
            run(3)

    async def run_async() -> None:
        await application(one_async, 3).arun(halt_after=["end"])

    run(10)
    asyncio.run(run_async())
    return {
        "steps": timed(lambda: run(STEPS)),
        "executions": timed(run_all),
        "at once": timed(lambda: asyncio.run(at_once(run_async))),
    }


# --- LangGraph -------------------------------------------------------------------------------------------------------


def langgraph(kind: str, folder: Path) -> Cells:  # noqa: C901 - its tasks must be defined beside their saver
    """Measure LangGraph, which writes a snapshot of the state after each step."""
    from langgraph.checkpoint.memory import InMemorySaver  # type: ignore[import-not-found, unused-ignore]
    from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found, unused-ignore]
    from langgraph.func import entrypoint, task  # type: ignore[import-not-found, unused-ignore]
    from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found, unused-ignore]
    from langgraph.types import Command, interrupt  # type: ignore[import-not-found, unused-ignore]

    if kind == "memory":
        saver: Any = InMemorySaver()
    else:
        saver = SqliteSaver(
            with_write_ahead_log(sqlite3.connect(folder / "langgraph.db", check_same_thread=False), kind)
        )
        saver.setup()

    def options() -> dict[str, Any]:
        return {"configurable": {"thread_id": f"thread{next(_numbers)}"}, "recursion_limit": 10 * STEPS}

    def loop(count: int) -> Any:
        graph = StateGraph(dict)
        graph.add_node("one", lambda state: {"n": state.get("n", 0) + 1})
        graph.add_edge(START, "one")
        graph.add_conditional_edges("one", lambda state: END if state["n"] >= count else "one")
        return graph.compile(checkpointer=saver)

    @task  # type: ignore[untyped-decorator, unused-ignore]
    def answer(number: int) -> int:
        return number

    @task  # type: ignore[untyped-decorator, unused-ignore]
    async def nap(number: int) -> int:
        await asyncio.sleep(NAP)
        return number

    @entrypoint(checkpointer=saver)  # type: ignore[untyped-decorator, unused-ignore]
    def calling(count: int) -> int:
        return sum(answer(number).result() for number in range(count))

    @entrypoint(checkpointer=saver)  # type: ignore[untyped-decorator, unused-ignore]
    def together(count: int) -> int:
        return sum(future.result() for future in [answer(number) for number in range(count)])

    reached: list[float] = []

    @entrypoint(checkpointer=saver)  # type: ignore[untyped-decorator, unused-ignore]
    def asking(_: int) -> int:
        interrupt("Go on?")
        reached.append(time.perf_counter())
        return 1

    def answered() -> float:
        config = options()
        asking.invoke(0, config)
        began = time.perf_counter()
        asking.invoke(Command(resume="yes"), config)
        return reached[-1] - began

    setting = {"durability": "async"}
    many, few = loop(STEPS), loop(3)
    few.invoke({}, options(), **setting)
    calling.invoke(3, options(), **setting)
    cells = {
        "steps": timed(lambda: many.invoke({}, options(), **setting)),
        "functions": timed(lambda: calling.invoke(STEPS, options(), **setting)),
        "items": timed(lambda: together.invoke(ITEMS, options(), **setting)),
        "executions": timed(lambda: [few.invoke({}, options(), **setting) for _ in range(EXECUTIONS)]),
        "answer": sorted(answered() for _ in range(ANSWERS))[ANSWERS // 2],
    }
    if kind == "memory":  # the saver of SQLite for async code is another one, and slower

        @entrypoint(checkpointer=saver)  # type: ignore[untyped-decorator, unused-ignore]
        async def napping(count: int) -> int:
            return sum(await asyncio.gather(*(nap(number) for number in range(count))))

        async def few_async() -> None:
            await few.ainvoke({}, options(), **setting)

        cells["at once"] = timed(lambda: asyncio.run(at_once(few_async)))
        cells["naps"] = timed(lambda: asyncio.run(napping.ainvoke(NAPS, options(), **setting)))
    return cells


async def langgraph_async(kind: str, folder: Path) -> Cells:
    """Measure what LangGraph does side by side, over SQLite, with its saver for async code."""
    import aiosqlite  # type: ignore[import-not-found, unused-ignore]
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # type: ignore[import-not-found, unused-ignore]
    from langgraph.func import entrypoint, task
    from langgraph.graph import END, START, StateGraph

    connection = await aiosqlite.connect(folder / "langgraph_async.db")
    await connection.execute("PRAGMA journal_mode = WAL")
    await connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[kind]}")
    saver = AsyncSqliteSaver(connection)
    await saver.setup()

    def options() -> dict[str, Any]:
        return {"configurable": {"thread_id": f"thread{next(_numbers)}"}}

    @task  # type: ignore[untyped-decorator, unused-ignore]
    async def nap(number: int) -> int:
        await asyncio.sleep(NAP)
        return number

    @entrypoint(checkpointer=saver)  # type: ignore[untyped-decorator, unused-ignore]
    async def napping(count: int) -> int:
        return sum(await asyncio.gather(*(nap(number) for number in range(count))))

    graph = StateGraph(dict)
    graph.add_node("one", lambda state: {"n": state.get("n", 0) + 1})
    graph.add_edge(START, "one")
    graph.add_conditional_edges("one", lambda state: END if state["n"] >= 3 else "one")
    few = graph.compile(checkpointer=saver)

    async def one() -> None:
        await few.ainvoke({}, options(), durability="async")

    await one()
    began = time.perf_counter()
    await at_once(one)
    between = time.perf_counter()
    await napping.ainvoke(NAPS, options(), durability="async")
    cells = {"at once": between - began, "naps": time.perf_counter() - between}
    await connection.close()
    return cells


# --- DBOS ------------------------------------------------------------------------------------------------------------


def dbos(kind: str, folder: Path) -> Cells:
    """Measure DBOS, which records each step after it, over SQLite with the settings that it chooses itself."""
    from dbos import DBOS  # type: ignore[import-not-found, unused-ignore]

    del kind

    @DBOS.step()  # type: ignore[untyped-decorator, unused-ignore]
    def answer(number: int) -> int:
        return number

    @DBOS.step()  # type: ignore[untyped-decorator, unused-ignore]
    async def answer_async(number: int) -> int:
        return number

    @DBOS.step()  # type: ignore[untyped-decorator, unused-ignore]
    async def nap(number: int) -> int:
        await asyncio.sleep(NAP)
        return number

    @DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
    def calling(count: int) -> int:
        return sum(answer(number) for number in range(count))

    @DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
    async def calling_async(count: int) -> int:
        return sum([await answer_async(number) for number in range(count)])

    @DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
    async def together(count: int) -> int:
        return sum(await asyncio.gather(*(answer_async(number) for number in range(count))))

    @DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
    async def napping(count: int) -> int:
        return sum(await asyncio.gather(*(nap(number) for number in range(count))))

    reached: list[float] = []

    @DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
    def asking() -> int:
        DBOS.recv("answer", timeout_seconds=60)
        reached.append(time.perf_counter())
        return 1

    def answered() -> float:
        handle = DBOS.start_workflow(asking)
        time.sleep(0.05)  # it waits by then
        began = time.perf_counter()
        DBOS.send(handle.get_workflow_id(), "yes", "answer")
        handle.get_result()
        return reached[-1] - began

    url = f"sqlite:///{folder / 'dbos.db'}"
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "CRITICAL"})
    DBOS.launch()
    try:
        calling(3)
        seconds = timed(lambda: calling(STEPS))
        return {
            "steps": seconds,
            "functions": seconds,
            "items": timed(lambda: asyncio.run(together(ITEMS))),
            "naps": timed(lambda: asyncio.run(napping(NAPS))),
            "executions": timed(lambda: [calling(3) for _ in range(EXECUTIONS)]),
            "at once": timed(lambda: asyncio.run(at_once(lambda: calling_async(3)))),
            "answer": sorted(answered() for _ in range(ANSWERS))[ANSWERS // 2],
        }
    finally:
        DBOS.destroy()


ENGINES: dict[str, Callable[[str, Path], Cells]] = {"burr": burr, "langgraph": langgraph, "dbos": dbos}
KINDS = {"burr": ("full", "relaxed", "memory"), "langgraph": ("full", "relaxed", "memory"), "dbos": ("full",)}
"""Durabilities in which each engine can be measured. DBOS chooses its own."""


def main() -> None:
    """Measure one engine in one durability."""
    os.environ["DO_NOT_TRACK"] = "true"
    engine, kind = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        cells = ENGINES[engine](kind, Path(name))
        if engine == "langgraph" and kind != "memory":
            cells |= asyncio.run(langgraph_async(kind, Path(name)))
    sys.stdout.write(f"{json.dumps(cells)}\n")


if __name__ == "__main__":
    main()
