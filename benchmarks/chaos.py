"""``python -m benchmarks.chaos --minutes 10 [--seed N]``: eight processes do everything at once to one store.

They start, resume, answer, signal, cancel, pause, recover, import, export and back up the same executions, while they
are killed and stopped, others hold the write lock, the disk is full and clocks jump. Then every log, `check` and the
calls counted outside must agree. Prints JSON lines; ends with 1 if anything was found, and then leaves its folder.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.reporting import lines_of
from tests.chaos.chaos import Chaos, Findings, small_disk

say = lines_of("chaos")


def main() -> int:
    """Let the chaos happen that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--least", type=int, default=0, help="executions without which it goes on beyond its time")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    say("begins", seed=arguments.seed, folder=str(folder))
    began = time.monotonic()
    with small_disk(folder) as place:
        chaos = Chaos(place, arguments.seed, arguments.processes, arguments.minutes * 60, arguments.least)
        found = chaos.run(lambda so_far: progress(place.store, so_far))
        if found.found and place.disk != folder:
            shutil.copy(place.store, folder)
    for finding in found.found:
        say("finding", text=finding)
    seconds = round(time.monotonic() - began, 1)
    say("done", seed=arguments.seed, seconds=seconds, **{**vars(found), "found": len(found.found)})
    if not found.found:
        shutil.rmtree(folder)
    return 1 if found.found else 0


def progress(store: Path, so_far: Findings) -> None:
    """Print how far it is."""
    size = store.stat().st_size if store.exists() else 0
    say("progress", megabytes=round(size / 1e6, 1), faults=so_far.faults, found=len(so_far.found))


if __name__ == "__main__":
    sys.exit(main())
