"""``python -m benchmarks.kill [--points 150] [--moments 50] [--turns 100]``: a process is killed around its writes.

At chosen points: before, amid, at the end of and after commits and checkpoints, and around calls. Then at random
moments of its processor time, wherever it is. Each time others take its execution up: it must come to the end of the
run that was never disturbed, with every call that had completed made once. Then the same with an agent at work, at
`--turns` points, whose MCP server does all that it can to stay: nothing of it may be left in the table of processes.
`--postgres` has it keep its log in a server of its own. Prints JSON lines; ends with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from benchmarks.reporting import lines_of
from tests.kill import turn
from tests.kill.deaths import Point, Uninterrupted, die_at, lives_at_once, moments, points
from tests.kill.victim import STORE, WORKFLOW

say = lines_of("kill")

PART = 25
"""Deaths between two lines that say how far it is."""


def main() -> int:
    """Kill as often as is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kill", description=__doc__)
    parser.add_argument("--points", type=int, default=150, help="chosen points")
    parser.add_argument("--moments", type=int, default=50, help="random moments")
    parser.add_argument("--turns", type=int, default=100, help="points of an agent's turn")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments")
    parser.add_argument("--postgres", action="store_true", help="with its store on a server, which is started")
    arguments = parser.parse_args()
    if not arguments.postgres:
        return kill(arguments)
    from tests.postgres.server import postgres_server

    with postgres_server() as server:
        os.environ[STORE] = server.url()
        return kill(arguments)


def kill(arguments: argparse.Namespace) -> int:
    """Kill at the points, at the moments, and in the turns of an agent."""
    with tempfile.TemporaryDirectory(prefix="kill-") as folder:
        place, random = Path(folder), Random(arguments.seed)  # noqa: S311 - seeded
        found = run(place / "steps", WORKFLOW.name, arguments.points, arguments.moments, random)
        return found | run(place / "turn", turn.WORKFLOW.name, arguments.turns, 0, random)


def run(folder: Path, subject: str, count: int, times: int, random: Random) -> int:
    """Kill what carries out a workflow, and print what was found; return 1 if anything was."""
    folder.mkdir()
    began, found = time.monotonic(), list[str]()
    with lives_at_once(subject) as lives:
        whole = Uninterrupted(lives[0], folder / "uninterrupted")
        chosen: list[Point] = [*points(whole, count), *moments(whole, times, random)]
        for first in range(0, len(chosen), PART):
            part = folder / str(first)
            part.mkdir()
            found += die_at(chosen[first : first + PART], whole, lives, part)
            say("progress", deaths=min(first + PART, len(chosen)), of=len(chosen), found=len(found))
    for text in found:
        say("finding", text=text)
    kinds = Counter(kind for kind, _ in chosen)
    seconds = round(time.monotonic() - began, 1)
    say(
        "done",
        subject=subject,
        events=whole.events,
        calls=whole.counts.total(),
        **kinds,
        seconds=seconds,
        found=len(found),
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
