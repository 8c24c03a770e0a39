"""Commands that do not want to end, in eight kinds.

python -m tests.workspace.hostile [TRIES]
"""

import asyncio
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
from divebook.workspace.shell import LocalShell

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


def text_of(kind, mark):
    """Return the command of a kind; all its processes have the mark, a number, in their command lines."""
    return HOSTILE[kind].format(m=mark)


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
import asyncio, sys
from divebook.workspace.shell import LocalShell
shell = LocalShell(lambda _: sys.argv[2])
asyncio.run(shell.execute(sys.argv[1], timeout=60))
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
    with subprocess.Popen([sys.executable, "-c", OWNER, command, folder], cwd=ROOT) as owner:
        time.sleep(0.6)
        owner.kill()


WAYS = (timed_out, cancelled, killed)


def main(tries):
    """Try each kind in each way; return the kinds of which something was left."""
    left = Counter()
    for number in range(tries):
        for kind in HOSTILE:
            for way in WAYS:
                mark = f"{random.Random(f'{kind}{way}{number}').randrange(10**9):09}{os.getpid()}"
                with tempfile.TemporaryDirectory() as folder:
                    way(text_of(kind, mark), folder)
                left[f"{kind}, {way.__name__}"] += not ended(mark)
    return +left


if __name__ == "__main__":
    TRIES = int(sys.argv[1]) if sys.argv[1:] else 100
    LEFT = main(TRIES)
    sys.stdout.write(f"{len(HOSTILE)} kinds, {TRIES} times each in {len(WAYS)} ways; survivors: {dict(LEFT) or 0}\n")
    sys.exit(1 if LEFT else 0)
