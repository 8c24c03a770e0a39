"""Commands that do not want to end, in eight kinds, and commands that end and leave something behind, in seven.

python -m tests.workspace.hostile [TRIES]
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from divebook.errors import ShellTimeoutError
from divebook.workspaces.local import LocalWorkspace
from divebook.workspaces.shell import LocalShell

ROOT = Path(__file__).parents[2]
HOSTILE = {
    "children in the background": "sleep 98.{m} & sleep 97.{m}",
    "own session": "setsid sleep 98.{m} & setsid sleep 97.{m} & wait",
    "ignores being asked": "trap '' TERM INT HUP; while :; do sleep 0.0{m}; done # {m}",
    "double fork and flood": ("setsid sh -c 'trap \"\" TERM; (setsid sleep 98.{m} &) ; exit' & yes flood {m}"),
    "flood of both streams": "yes {m} >&2 & yes {m}",
    "cleared variables": "env -i setsid sh -c 'nohup sleep 98.{m} & exec sleep 97.{m}' & sleep 96.{m}",
    "new ones all the time": "setsid sh -c 'while :; do setsid sleep 95.{m} & sleep 0.01; done' & sleep 96.{m}",
    "hand over hand": (
        "cat > /tmp/hop.{m} <<'X'\ntrap '' TERM\nsleep 0.003\n[ -e /tmp/stop.{m} ] || setsid sh /tmp/hop.{m} &\nX\n"
        "setsid sh /tmp/hop.{m} & sleep 96.{m}"
    ),
}
SURVIVING = {
    "left in the background": "sleep 98.{m} >/dev/null 2>&1 &",
    "nohup": "nohup sleep 98.{m} >/dev/null 2>&1 &",
    "left in own sessions": "setsid sleep 98.{m} >/dev/null 2>&1 & setsid sleep 97.{m} >/dev/null 2>&1 &",
    "double fork": "setsid sh -c '(setsid sleep 98.{m} >/dev/null 2>&1 &) ; exit'",
    "disowned": ["bash", "-c", "sleep 98.{m} >/dev/null 2>&1 & disown -a"],
    "left, and ignores being asked": (
        "nohup setsid sh -c 'trap \"\" TERM INT HUP; while :; do sleep 0.0{m}; done # {m}' >/dev/null 2>&1 &"
    ),
    "left hand over hand": HOSTILE["hand over hand"].removesuffix("& sleep 96.{m}") + ">/dev/null 2>&1 &",
}
"""Commands that end at once, and leave processes in the background."""


def text_of(kind, mark):
    """Return the command of a kind; all its processes have the mark, a number, in their command lines."""
    command = HOSTILE[kind] if kind in HOSTILE else SURVIVING[kind]
    return command.format(m=mark) if isinstance(command, str) else [word.format(m=mark) for word in command]


def alive(mark):
    """Return the processes with a mark."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            told = Path(f"/proc/{pid}/cmdline").read_bytes()
            state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            if mark.encode() in told and int(pid) != os.getpid() and state != "Z":
                found.append(int(pid))
    return found


def ended(mark, seconds=1.0):
    """Return whether all processes with a mark end within a second; those that do not are killed."""
    limit = time.monotonic() + seconds
    while (left := alive(mark)) and time.monotonic() < limit:
        time.sleep(0.02)
    stop = Path(f"/tmp/stop.{mark}")
    stop.touch()
    for pid in left:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    for path in (stop, Path(f"/tmp/hop.{mark}")):
        path.unlink(missing_ok=True)
    return not left


# --- many of them ----------------------------------------------------------------------------------------------------

OWNER = """
import asyncio, json, os, sys, time
from divebook.workspaces.shell import LocalShell
shell = LocalShell(lambda _: sys.argv[1])
asyncio.run(shell.execute(json.loads(os.environ["HOSTILE"]), timeout=60))
if sys.argv[2:] == ["fork"] and os.fork() == 0:  # as a pool of processes does, which holds descriptors open
    time.sleep(3)
    os._exit(0)
print("ended", flush=True)
sys.stdin.read()
"""


def timed_out(command, folder):
    """Have a command end by its time limit."""
    shell = LocalShell(lambda _: folder)
    with suppress(ShellTimeoutError):
        asyncio.run(shell.execute(command, timeout=0.15))
    shell.reapers.close()


def cancelled(command, folder):
    """Have a command end by the cancellation of who waits for it."""

    async def begun():
        shell = LocalShell(lambda _: folder)
        task = asyncio.create_task(shell.execute(command))
        await asyncio.sleep(0.15)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        shell.reapers.close()

    asyncio.run(begun())


def killed(command, folder):
    """Have a command end because the process that runs it was killed."""
    with subprocess.Popen([sys.executable, "-c", OWNER, folder], cwd=ROOT, env=_naming(command)) as owner:
        time.sleep(0.6)
        owner.kill()


def _naming(command):
    """Return variables with a command: as an argument its mark would make the owner look like a survivor."""
    return {**os.environ, "HOSTILE": json.dumps(command)}


def left(command, folder):
    """Have a command end by itself, and then its workspace be left."""

    async def entered():
        async with LocalWorkspace(folder) as workspace:
            await workspace.shell.execute(command)

    asyncio.run(entered())


def _owned(command, folder, *words):
    """Return a process that has run a command to its end."""
    argv = [sys.executable, "-c", OWNER, folder, *words]
    pipe = subprocess.PIPE
    owner = subprocess.Popen(argv, cwd=ROOT, env=_naming(command), stdin=pipe, stdout=pipe)
    assert owner.stdout.readline() == b"ended\n"
    return owner


def kernel_killed(command, folder):
    """Have a command end by itself, and then the process that ran it be killed."""
    with _owned(command, folder) as owner:
        owner.kill()


def kernel_killed_beside_its_fork(command, folder):
    """The same, where a process that it has forked lives on and holds its descriptors."""
    with _owned(command, folder, "fork") as owner:
        owner.kill()


def kernel_ended(command, folder):
    """Have a command end by itself, and then the process that ran it end, with its workspace open."""
    with _owned(command, folder) as owner:
        owner.stdin.close()


WAYS = (timed_out, cancelled, killed)
WAYS_LEFT = (left, kernel_killed, kernel_killed_beside_its_fork, kernel_ended)


def main(tries):
    """Try each kind in each way; return the kinds of which something was left."""
    survivors = Counter()
    for number in range(tries):
        for kinds, ways in ((HOSTILE, WAYS), (SURVIVING, WAYS_LEFT)):
            for kind in kinds:
                for way in ways:
                    mark = new_mark(f"{kind}{way}{number}")
                    with tempfile.TemporaryDirectory() as folder:
                        way(text_of(kind, mark), folder)
                    survivors[f"{kind}, {way.__name__}"] += not ended(mark)
    return +survivors


def new_mark(seed):
    """Return a number that no other process has."""
    return f"{random.Random(seed).randrange(10**9):09}{os.getpid()}"


if __name__ == "__main__":
    TRIES = int(sys.argv[1]) if sys.argv[1:] else 100
    LEFT = main(TRIES)
    sys.stdout.write(
        f"{len(HOSTILE)} kinds in {len(WAYS)} ways and {len(SURVIVING)} kinds in {len(WAYS_LEFT)} ways, "
        f"{TRIES} times each; survivors: {dict(LEFT) or 0}\n"
    )
    sys.exit(1 if LEFT else 0)
