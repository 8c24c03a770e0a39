"""Ctrl-C at random moments: in every line of ours that the main thread runs, KeyboardInterrupt may be raised."""

from __future__ import annotations

import dis
import random
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import divebook
from divebook import Environment, Step, Workflow
from divebook.errors import DivebookError
from divebook.stores import SqliteStore, transfer

OURS = str(Path(divebook.__file__).parent)
ASKING = Workflow("w", [Step("ask", ask="Go?", store="a"), Step("wait", "wait", signal="go"), Step("end", script="1")])
MOST_LINES = 400


def interrupted(action: Callable[[], Any], after: int) -> bool:
    """Call something and press Ctrl-C when so many lines of ours have run; return whether it came to that."""
    left = after

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            left -= 1
            if left <= 0 and not _leaves_a_block(frame):
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    assert threading.current_thread() is threading.main_thread()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        return True
    except DivebookError:
        return False
    finally:
        sys.settrace(before)
    return False


def _leaves_a_block(frame: FrameType) -> bool:
    """Whether a `with` is about to be left: Python takes no signal there, so that no lock stays behind."""
    code, at = frame.f_code, frame.f_lasti
    return code.co_code[at] == dis.opmap["LOAD_CONST"] and code.co_consts[code.co_code[at + 1]] is None


def one_round(seed: int, folder: Path) -> str:
    """Interrupt one call of one execution, then carry the execution to its end; return the call's name."""
    chance = random.Random(f"ctrl-c {seed}")
    with SqliteStore(folder / f"{seed}.db") as store:
        world = Environment(store=store, workflows=[ASKING])
        name = chance.choice(["start", "answer", "signal", "resume", "cancel", "import"])
        execution_id = None if name == "start" else world.start("w").wait(30).id
        if name == "signal":
            world.answer(world.inbox()[0][1].id, "yes").wait(30)
        if name == "import":
            _import_interrupted(store, execution_id or "", folder / f"{seed}.jsonl", chance)
        else:
            interrupted(lambda: _act(world, name, execution_id), chance.randint(1, MOST_LINES))
        for record in world.store.records():
            _carry_on(world, record.execution_id)
        assert store.leases() == [], f"seed {seed}: {name} left a lease"
        assert world.queues.recoverable() == [], f"seed {seed}: {name} left an execution undriven"
    return name


def _act(world: Environment, name: str, execution_id: str | None) -> None:
    known = execution_id or ""
    acts: dict[str, Callable[[], object]] = {
        "start": lambda: world.start("w"),
        "answer": lambda: world.answer(world.inbox()[0][1].id, "yes", known),
        "signal": lambda: world.run_of(known).signal("go"),
        "resume": lambda: world.run_of(known).resume(),
        "cancel": lambda: world.run_of(known).cancel(),
    }
    acts[name]()


def _import_interrupted(store: SqliteStore, execution_id: str, file: Path, chance: random.Random) -> None:
    """Interrupt an import into another store: it holds all of the log or nothing, and takes the rest at once."""
    transfer.export(store, execution_id, file)
    with SqliteStore(file.with_suffix(".imported.db")) as other:
        interrupted(lambda: transfer.import_(file, other), chance.randint(1, MOST_LINES))
        if not other.records():
            transfer.import_(file, other)
        (record,) = other.records()
        assert len(other.read(record.execution_id)) >= len(store.read(execution_id))
        assert other.leases() == []


def _carry_on(world: Environment, execution_id: str) -> None:
    """Do what a person would: wait, answer what is asked, send what is waited for; nothing of it may be refused."""
    for _ in range(6):
        execution = world.run_of(execution_id)
        if execution.is_live:
            execution.wait(30)
        elif execution.state.is_over:
            return
        elif execution.open_questions:
            execution.answer(execution.open_questions[0].id, "yes").wait(30)
        elif execution_id in {record.execution_id for record in world.queues.recoverable()}:
            world.run_of(execution_id).resume().wait(30)
        else:
            world.run_of(execution_id).signal("go")
    raise AssertionError(f"{execution_id} is {world.run_of(execution_id).status} and cannot be carried on")


def main(seeds: int) -> int:
    """Interrupt so many calls; print what was tried."""
    tried: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(seeds):
            name = one_round(seed, Path(folder))
            tried[name] = tried.get(name, 0) + 1
    sys.stdout.write(f"{seeds} calls interrupted, nothing stuck: {tried}\n")
    return 0
