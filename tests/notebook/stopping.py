"""``python -m tests.notebook.stopping [TIMES]``: the button that interrupts a kernel, pressed at any moment of a cell.

What the cell had begun is paused, or goes on and is found; the next cell finds a kernel as it was.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

from jupyter_client.manager import start_new_kernel

from tests.notebook.conftest import Kernel

WORKFLOW = """\
%%dive workflow talker
Inputs:
  - {Name: word}
  - {Name: seconds, Type: number, Default: 0.01}
Steps:
  - {Name: begin, Action: Print, Parameters: {Message: "begin ${inputs.word}"}}
  - {Name: nap, Type: wait, Seconds: "${inputs.seconds}"}
  - {Name: end, Script: "print('end', inputs.word)"}
"""
PREPARED = """\
import divebook
from divebook.notebook.session import current_session
def magic(line): return get_ipython().run_line_magic("dive", line)
def newest(): return current_session().environment.store.records()[0]
long = divebook.run("talker", {"word": "long"}).wait()
def reading():
    print("begin x")
    while True:
        list(long.history()), newest().status, long.internals.static_bundle()
0
"""
AGAIN_SECONDS = 10
CELLS = {
    "blocking": "magic('run talker word=x seconds=60 --new')",
    "awaited": "%dive run talker word=x seconds=60 --new",
    "plain": "divebook.run('talker', {'word': 'x', 'seconds': 60}).wait()",
    "reading": "reading()",
}
ENDS = {
    "blocking": ("ExecutionPausedError", "waiting"),
    "awaited": ("ExecutionPausedError", "waiting"),
    "plain": ("KeyboardInterrupt", "waiting"),
    "reading": ("KeyboardInterrupt", "completed"),
}
"""The error that each cell ends with, and how the newest execution stands then."""


def stopped(kernel: Kernel, kind: str, seconds: float) -> str:
    """Run a cell and interrupt it so long after it has begun; return what is wrong afterwards, or nothing.

    A cell that goes on is interrupted once more: Python itself ignores an interrupt that comes while a finalizer runs.
    """
    again = threading.Timer(AGAIN_SECONDS, kernel.manager.interrupt_kernel)

    def interrupt(content):
        if "begin x" in content.get("text", ""):
            time.sleep(seconds)
            kernel.manager.interrupt_kernel()
            again.start()

    try:
        try:
            ended, outputs = kernel.run(CELLS[kind], interrupt)
        finally:
            again.cancel()
        status = kernel.text("newest().status")
        after = kernel.text("divebook.run('talker', {'word': 'after'}).wait().status").splitlines()[-1]
    except TimeoutError:
        return "it is not running"
    error, wanted = ENDS[kind]  # which IPython cannot always show with the line that it came in
    is_right = error in str(outputs) and (ended, status, after) == ("error", repr(wanted), "'completed'")
    return "" if is_right else f"{ended}: the run is {status}, the next one {after}: {str(outputs)[:300]}"


def prepared(folder: Path) -> Kernel:
    """Return a new kernel with what the cells need."""
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(folder))
    kernel = Kernel(manager, client)
    kernel.run("%load_ext divebook")
    kernel.text(WORKFLOW)
    kernel.text(PREPARED)
    return kernel


def main() -> int:
    """Interrupt each kind of cell so many times; print what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("times", type=int, nargs="?", default=500)
    times = parser.parse_args().times
    chance = Random("stopping")
    with tempfile.TemporaryDirectory() as folder:
        kernel = prepared(Path(folder))
        wrong: Counter[tuple[str, str]] = Counter()
        for kind in CELLS:
            for _ in range(times):
                if found := stopped(kernel, kind, chance.choice([0, 0, 0.01]) * chance.random()):
                    wrong[kind, found] += 1
                if found == "it is not running":
                    kernel.manager.shutdown_kernel(now=True)
                    kernel = prepared(Path(folder))
            sys.stdout.write(f"{times} of {kind} interrupted\n")
        kernel.manager.shutdown_kernel(now=True)
    sys.stdout.write(f"wrong: {dict(wrong)}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
