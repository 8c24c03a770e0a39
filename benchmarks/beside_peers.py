"""``python -m benchmarks.beside_peers [--peers PYTHON]``: divebook beside Burr, LangGraph, DBOS and the floor.

Each round measures every engine in every durability, each in a process of its own, so that what else the machine does
meets all of them. Prints a Markdown table of the medians. `PYTHON` is the interpreter of an environment that has the
packages ``burr``, ``langgraph``, ``langgraph-checkpoint-sqlite`` and ``dbos``; without it, only divebook and the floor
are measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.floor import FloorJournal, run_sequence, run_together
from benchmarks.going_on import CALL_TIMES, asks
from benchmarks.peers import AT_ONCE, EXECUTIONS, ITEMS, KINDS, NAP, NAPS, STEPS, Cells, at_once, timed
from benchmarks.readers import long, short
from benchmarks.seeking import forked, long_workflow
from benchmarks.sequence import calling
from benchmarks.turns import CALLS, durably, plainly
from benchmarks.worlds import STORES, Kind, chain, items, make_store, one, opened, pause
from divebook import Environment
from divebook.steps.actions import Action

ANSWERS, EVENTS = 30, 100_000
ROUNDS = 5
ATTEMPTS = 3
"""Maximum number of attempts to measure another engine. LangGraph with 1,000 futures at once sometimes fails, since its
threads change one dictionary ("dictionary changed size during iteration").
"""
ACTIONS = (Action("one", one), Action("idempotent", one, idempotent=True), Action("pause", pause))
KIND_LETTERS = {"full": "F", "relaxed": "R", "memory": "M"}
ROWS: dict[str, tuple[str, Callable[[float], float]]] = {
    "executions": ("executions of three steps/s, one by one", lambda seconds: EXECUTIONS / seconds),
    "executions, idempotent": ("the same, idempotent", lambda seconds: EXECUTIONS / seconds),
    "at once": (f"{AT_ONCE} at once, executions/s", lambda seconds: EXECUTIONS / seconds),
    "answer": ("answer to the next line, ms", lambda seconds: seconds * 1000),
    "functions": ("functions/s in sequence", lambda seconds: STEPS / seconds),
    "steps": ("steps/s in sequence", lambda seconds: STEPS / seconds),
    "steps, idempotent": ("the same, idempotent", lambda seconds: STEPS / seconds),
    "items": (f"{ITEMS:,} items at once, ms", lambda seconds: seconds * 1000),
    "naps": (f"{NAPS} x {1000 * NAP:.0f} ms over ideal", lambda seconds: seconds / NAP),
}
"""Label of each cell, and the function that makes its figure from seconds."""


def divebook(kind: Kind) -> Cells:
    """Measure divebook, as users call it."""
    cells: Cells = {}
    with opened(kind) as store, Environment(store=store, actions=ACTIONS) as environment:

        def run(action: str, count: int) -> float:
            definition = chain(count, action)
            return timed(lambda: environment.start(definition).wait(check=True))

        def executions(action: str) -> float:
            definition = chain(3, action)
            return timed(lambda: [environment.start(definition).wait(check=True) for _ in range(EXECUTIONS)])

        def answered() -> float:
            execution = environment.start(asks, {"earlier": 0}).wait()
            (question,) = execution.open_questions
            began = time.perf_counter()
            environment.answer(question, "yes").wait(check=True)
            return CALL_TIMES[-1] - began

        few = chain(3)

        async def start_one() -> None:
            await environment.start(few)

        run("one", 10)
        asyncio.run(start_one())
        cells["executions"] = executions("one")
        cells["at once"] = timed(lambda: asyncio.run(at_once(start_one)))
        cells["steps"] = run("one", STEPS)
        cells["functions"] = timed(lambda: environment.start(calling, {"steps": STEPS}).wait(check=True))
        cells["items"] = timed(lambda: environment.start(items(ITEMS, "one")).wait(check=True))
        cells["naps"] = timed(lambda: environment.start(items(NAPS, "pause")).wait(check=True))
        cells["answer"] = median(answered() for _ in range(ANSWERS))
        cells["executions, idempotent"] = executions("idempotent")
        cells["steps, idempotent"] = run("idempotent", STEPS)
    return cells


def floor(kind: Kind) -> Cells:
    """Measure the floor journal, which knows steps and no executions."""
    if kind == "memory":
        return {}
    with tempfile.TemporaryDirectory() as folder:
        journal = FloorJournal(Path(folder) / "floor.db", kind)

        async def three() -> None:
            await run_sequence(journal, 3, one)

        async def one_by_one() -> None:
            for _ in range(EXECUTIONS):
                await three()

        cells = {
            "executions": timed(lambda: asyncio.run(one_by_one())),
            "at once": timed(lambda: asyncio.run(at_once(three))),
            "steps": timed(lambda: asyncio.run(run_sequence(journal, STEPS, one))),
            "items": timed(lambda: asyncio.run(run_together(journal, ITEMS, one))),
            "naps": timed(lambda: asyncio.run(run_together(journal, NAPS, pause))),
        }
        journal.close()
    return cells


OURS: dict[str, Callable[[Kind], Cells]] = {"divebook": divebook, "floor": floor}


def measured(engine: str, kind: str, peers: str | None) -> Cells:
    """Measure an engine in a new process, and return its cells. Without an interpreter for it, return none."""
    if engine in OURS:
        command = [sys.executable, "-m", "benchmarks.beside_peers", "--engine", engine, "--kind", kind]
    elif peers is not None:
        command = [peers, "-m", "benchmarks.peers", engine, kind]
    else:
        return {}
    attempts_left = 1 if engine in OURS else ATTEMPTS
    while True:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
        attempts_left -= 1
        if done.returncode == 0:
            break
        if not attempts_left:
            raise SystemExit(f"{engine} {kind}: {done.stderr[-2000:]}")
        sys.stderr.write(f"{engine} {kind} is measured again after: {done.stderr[-200:]}\n")
    cells: Cells = json.loads(done.stdout.splitlines()[-1])
    return cells


def table(rounds: int, peers: str | None) -> list[str]:
    """Return the rows of the table, as Markdown."""
    engines = {"divebook": STORES, "floor": STORES, **(KINDS if peers else {})}
    seconds: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for number in range(rounds):
        for kind in reversed(STORES):
            for engine, kinds in engines.items():
                if kind in kinds:
                    for cell, value in measured(engine, kind, peers).items():
                        seconds[engine, kind, cell].append(value)
        sys.stderr.write(f"round {number + 1} of {rounds}\n")

    def figure(engine: str, kind: str, cell: str) -> str:
        values = seconds.get((engine, kind, cell))
        if not values:
            return "-"
        value = ROWS[cell][1](median(values))
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

    def over_floor(kind: str) -> str:
        ours, least = seconds.get(("divebook", kind, "items")), seconds.get(("floor", kind, "items"))
        return f"{median(ours) / median(least):.2g}" if ours and least else "-"

    letters = " / ".join(KIND_LETTERS[kind] for kind in reversed(STORES))
    lines = [f"| what ({letters}) | {' | '.join(engines)} |", f"|---|{'---|' * len(engines)}"]
    for cell, (label, _) in ROWS.items():
        row = [" / ".join(figure(engine, kind, cell) for kind in reversed(STORES)) for engine in engines]
        lines.append(f"| {label} | {' | '.join(row)} |")
    rest = " | ".join("" for _ in range(len(engines) - 1))
    lines.append(f"| {ITEMS:,} items over the floor | {' / '.join(map(over_floor, reversed(STORES)))} | {rest} |")
    return lines


def without_peers(rounds: int) -> list[str]:
    """Return rows for what no peer does: recording requests to models, frames, and forks of a long log."""
    lines = ["| what | figure |", "|---|---|"]
    for calls in CALLS:
        figures = []
        for kind in STORES[:2]:
            extra = [durably(calls, kind) - plainly(calls) for _ in range(rounds)]
            figures.append(f"{kind} {1000 * median(extra) / (calls + 1):.2f}")
        lines.append(f"| recording a model request over pydantic-ai, {calls} calls, ms | {', '.join(figures)} |")
    lines += [f"| {made.name} | {made.cells[2]} |" for made in (*short(), *long())]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        with make_store("relaxed", path) as store:
            name = Environment(store=store).start(long_workflow(EVENTS)).wait(check=True).id
        lines += [f"| {made.name}, {made.details} | {made.cells[2]} |" for made in forked(path, name)]
    return lines


def main() -> None:
    """Measure everything, or one engine in one durability as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", help="Python interpreter of the environment with the other engines")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--without-readers", action="store_true", help="leave out what no other engine does")
    parser.add_argument("--engine", choices=OURS, help=argparse.SUPPRESS)
    parser.add_argument("--kind", choices=STORES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        sys.stdout.write(f"{json.dumps(OURS[options.engine](options.kind))}\n")
        return
    print("\n".join(table(options.rounds, options.peers)), flush=True)
    if not options.without_readers:
        print("\n".join(["", *without_peers(options.rounds)]))


if __name__ == "__main__":
    main()
