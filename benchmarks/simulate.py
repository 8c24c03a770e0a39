"""``python -m benchmarks.simulate --seeds N``: simulate many seeds; prints JSON lines, ends with 1 if one failed."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from benchmarks.reporting import lines_of
from tests.simulation.simulation import SimulationError, simulate

say = lines_of("simulate")

REPORT_SECONDS = 10.0


def main() -> int:
    """Simulate what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    arguments = parser.parse_args()
    return run(arguments.first, arguments.seeds)


def run(first: int, count: int) -> int:
    """Simulate seeds; return 1 if one failed."""
    logging.getLogger("divebook").setLevel(logging.ERROR)  # it warns of disks that are busy for long, as it should
    totals: Counter[str] = Counter()
    failed: list[int] = []
    began = reported = time.monotonic()
    for seed in range(first, first + count):
        try:
            summary = simulate(seed)
        except SimulationError as error:
            failed.append(seed)
            say("failed", seed=seed, reason=str(error))
        else:
            totals.update(lives=summary.lives, commits=summary.commits, events=summary.events)
            totals.update({f"damages {outcome}": count for outcome, count in summary.damages.items()})
        if time.monotonic() - reported > REPORT_SECONDS:
            reported = time.monotonic()
            say("progress", seeds=seed - first + 1, of=count, failed=len(failed), seconds=round(reported - began))
    say("done", seeds=count, failed=failed, seconds=round(time.monotonic() - began, 1), **totals)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
