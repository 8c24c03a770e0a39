"""At the end of a kernel and of an interpreter nothing of ours remains: no process, file or lease that holds."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jupyter_client.manager import start_new_kernel

from divebook import Step, Workflow
from divebook.steps.actions import Action
from divebook.stores import SqliteStore
from tests.notebook.conftest import Kernel
from tests.runtime.worlds import environment

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

PROGRAM = """
import os, sys, threading, asyncio
from divebook import Environment, Step, Workflow
from divebook.steps.actions import Action

async def hang():
    await asyncio.Event().wait()

ASK = Workflow("asks", [Step("q", ask="Which one?", store="it")])
HANG = Workflow("hangs", [Step("h", action="hang")])
LATER = Workflow("later", [Step("t", "wait", seconds=1000)])
world = Environment(store=sys.argv[1], workflows=[ASK, HANG, LATER], actions=[Action("hang", hang, idempotent=True)])
world.start("asks").wait(20)
for name in ("hangs", "later"):
    world.start(name)
world.start("asks").wait(20)
if sys.argv[2] == "close":
    world.close()
print([thread.name for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()])
"""


def left_in(folder: Path) -> list[str]:
    """Return the files that are there, without those in which stores and IPython's history rest."""
    known = (".db", "history.sqlite", "README")
    return [path.name for path in folder.rglob("*") if path.is_file() and not any(name in path.name for name in known)]


def holders_of(folder: Path) -> list[str]:
    """Return the processes that have a file of the folder open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        for link in process.glob("fd/*"):
            try:
                is_ours = link.readlink().is_relative_to(folder)
            except OSError:  # it ended meanwhile
                continue
            if is_ours:
                found.append(process.name)
    return found


def goes_on_at_once(path: Path) -> None:
    """Take up and answer what was left there; a lease that somebody still held would keep that from happening."""

    async def done():
        return 1

    hangs = Workflow("hangs", [Step("h", action="hang")])
    with SqliteStore(path) as store:
        world = environment(hangs, actions=[Action("hang", done, idempotent=True)], store=store)
        for execution_id, question in world.inbox():
            assert world.answer(question.id, "this", execution_id).wait(20).status == "completed"
        for record in world.store.records(status="running"):
            assert world.run_of(record.execution_id).resume().wait(20).status == "completed"
        left = [record for record in world.store.records() if record.status not in ("completed", "waiting")]
        assert left == []


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize("way", ["close", "just end"])
def test_an_interpreter_ends_with_executions_under_way_and_leaves_nothing(tmp_path, way):
    folder = tmp_path / "tmp"
    folder.mkdir()
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(folder)}
    began = time.monotonic()
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "s.db"), way]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ, cwd=folder, check=False)
    assert (told.returncode, told.stdout) == (0, "[]\n")
    farewells = 0 if way == "close" else 2  # what is under way, each with how to go on
    assert [line.startswith("divebook: the process ends while") for line in told.stderr.splitlines()] == [
        True
    ] * farewells
    assert time.monotonic() - began < 30
    assert left_in(tmp_path) == []
    assert holders_of(tmp_path) == []
    goes_on_at_once(tmp_path / "s.db")


DEFINED = """\
%%dive
Workflows:
- {Name: asks, Steps: [{Name: q, Ask: Which one?, Store: it}]}
- {Name: hangs, Steps: [{Name: h, Action: hang}]}
"""
CELLS = (
    "%load_ext divebook",
    "import asyncio, os, divebook",
    "@divebook.action(idempotent=True)\nasync def hang():\n    await asyncio.Event().wait()",
    DEFINED,
    "a = %dive run asks",
    "b = %dive run hangs --background",
    "a.view(), b.view()",
    "print(os.getpid())",
)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_kernel_that_is_shut_down_with_executions_under_way_leaves_nothing(tmp_path):
    (folder := tmp_path / "tmp").mkdir()
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TMPDIR": str(folder),
        "IPYTHONDIR": str(folder / "i"),
    }
    environ |= {"DIVEBOOK_STORE": str(tmp_path / "s.db")}
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(tmp_path), env=environ)
    try:
        started = Kernel(manager, client)
        replies = [started.run(cell, allow_stdin=False) for cell in CELLS]
        assert [status for status, _ in replies] == ["ok"] * len(CELLS), replies
        pid = "".join(output["text"] for output in replies[-1][1]).strip()  # a line may come in pieces
        assert pid in holders_of(tmp_path)
        client.stop_channels()
        manager.shutdown_kernel(now=False)
    finally:
        manager.cleanup_resources()
    assert not Path(f"/proc/{pid}").exists()
    assert holders_of(tmp_path) == []
    assert left_in(folder) == []
    goes_on_at_once(tmp_path / "s.db")
