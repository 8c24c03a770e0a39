"""The commands of `tests.workspace.hostile`, in containers.

python -m tests.workspace.hostile_containers [TRIES]
"""

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from divebook.errors import ShellTimeoutError
from divebook.workspaces.docker.workspace import DockerWorkspace
from tests.workspace.containers import containers, removed
from tests.workspace.hostile import HOSTILE, ROOT, ended, text_of
from tests.workspace.images import busybox_image

OWNER = """
import asyncio, sys
from divebook.workspaces.docker.workspace import DockerWorkspace
async def main():
    async with DockerWorkspace(sys.argv[1], image=sys.argv[2], keep=sys.argv[3] == "keep") as made:
        await made.shell.execute("echo up > up; " + sys.argv[4], timeout=60)
asyncio.run(main())
"""


def owned(folder, image, keep, command):
    """Run a command in a container of a process that is killed; return whether it had begun."""
    with subprocess.Popen([sys.executable, "-c", OWNER, str(folder), image, keep, command], cwd=ROOT) as owner:
        limit = time.monotonic() + 20
        while not (folder / "up").exists() and time.monotonic() < limit:
            time.sleep(0.02)
        time.sleep(0.1)
        owner.kill()
    return (folder / "up").exists()


async def _timed_out(made, command, _chance):
    with suppress(ShellTimeoutError):
        await made.shell.execute(command, timeout=0.15)


async def _cancelled(made, command, chance):
    task = asyncio.create_task(made.shell.execute(command))
    await asyncio.sleep(chance.uniform(0, 0.2))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _in_one(tries, folder, image):
    """Try all kinds, one container for each number; return of which something was left."""
    left = Counter()
    for number in range(tries):
        async with DockerWorkspace(folder, image=image) as made:
            for kind in HOSTILE:
                for way in (_timed_out, _cancelled):
                    chance = random.Random(f"{kind}{way.__name__}{number}")
                    mark = f"{chance.randrange(10**9):09}{os.getpid()}"
                    await way(made, text_of(kind, mark), chance)
                    left[f"{kind}, {way.__name__}"] += not ended(mark)
    return left


def main(tries):
    """Try each kind by time limit, by cancellation, and by the end of the process; of a third the container stays."""
    image, left = busybox_image(), Counter()
    with tempfile.TemporaryDirectory() as folder:
        left += asyncio.run(_in_one(tries, folder, image))
    for number in range(tries):
        for kind in HOSTILE:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name, "project")
                mark = f"{random.Random(f'{kind}{number}').randrange(10**9):09}{os.getpid()}"
                began = owned(folder, image, "keep" if number % 3 == 0 else "not kept", text_of(kind, mark))
                left[f"{kind}, killed"] += not began or not ended(mark, 5)
                if containers(folder):
                    asyncio.run(removed(folder))
    return +left


if __name__ == "__main__":
    TRIES = int(sys.argv[1]) if sys.argv[1:] else 100
    LEFT = main(TRIES)
    sys.stdout.write(f"{len(HOSTILE)} kinds, {TRIES} times each in 3 ways; survivors: {dict(LEFT) or 0}\n")
    sys.exit(1 if LEFT else 0)
