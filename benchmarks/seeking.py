"""``python -m benchmarks.seeking``: how long a replayer, or a fork, takes to any of 100,000 events in a file.

The log is read by need, as after a restart: the file is opened anew, and no event is in memory. What opens it is the
first way to its end, which folds all of it once.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.browser import p95
from benchmarks.figure import Figure
from divebook import Environment, Step, Workflow
from divebook.events import Event
from divebook.replay.replayer import Replayer, replayer_of

EVENTS, SEEKS, STEPS = 100_000, 300, 3000
OF_ROUND, VARIABLES = 109, 20
SEEK_MS, BACK_MS = 20, 5


def long_workflow(events: int) -> Workflow:
    """Return a loop that sets a few variables in each round."""
    rounds = events // OF_ROUND + 1
    inside = [Step(f"s{place}", script=f"state.n + {place}", store=f"v{place}") for place in range(VARIABLES)]
    ways = [("s0", f"$(state.n < {rounds})"), ("end", f"$(state.n >= {rounds})")]
    count = Step("count", script="state.n + 1", store="n", next=ways)
    return Workflow("long", [Step("start", script="0", store="n"), *inside, count, Step("end", script="state.n")])


def timed(move: Callable[..., object], *given: object) -> float:
    """Return how many milliseconds a move took."""
    began = time.perf_counter()
    move(*given)
    return (time.perf_counter() - began) * 1000


def figures(replay: Replayer) -> Iterator[Figure]:
    """Go to its end, to any event, and back one by one, with the state each time."""

    def at(sequence: int) -> None:
        assert replay.seek(sequence).state.last_sequence == sequence

    def back() -> None:
        assert replay.step_back().state.last_sequence == replay.position

    total, chance = replay.total, random.Random(1)  # noqa: S311 - the same ways each time
    yield Figure(f"replay of {total:,} events, the way to the end", "full", round(timed(at, total) / 1000, 2), "s")
    seeks = [timed(at, chance.randrange(total)) for _ in range(SEEKS)]
    yield Figure("to any event, p95", "full", p95(seeks), "ms", SEEK_MS, details={"most": f"{max(seeks):.1f}"})
    at(total)
    steps = [timed(back) for _ in range(min(STEPS, total))]
    yield Figure("one event back, p95", "full", p95(steps), "ms", BACK_MS, details={"most": f"{max(steps):.1f}"})
    at(total)
    yield Figure("back through all events", "full", timed(replay.run_back_to, _is_first), "ms")


def _is_first(event: Event) -> bool:
    return event.sequence == 1


def forked(path: Path, name: str) -> Iterator[Figure]:
    """Fork in the middle and before the end, with no event in memory, until the fork is driven."""
    for part, share in (("in the middle", 0.5), ("before the end", 1.0)):
        with Environment(store=path) as world:
            at = int(world.store.record(name).last_sequence * share) - 2
            milliseconds = timed(world.run_of(name).fork, at)
        yield Figure(f"a fork {part}", "full", round(milliseconds), "ms", details={"at event": at})


def main() -> None:
    """Print each figure with its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    events = parser.parse_args().events
    with tempfile.TemporaryDirectory() as folder:
        world = Environment(store=Path(folder) / "log.db")
        name = world.start(long_workflow(events), durability="relaxed").wait(check=True).id
        for figure in figures(replayer_of(Environment(store=Path(folder) / "log.db").run_of(name))):
            print(" | ".join(figure.cells), flush=True)
        for figure in forked(Path(folder) / "log.db", name):
            print(" | ".join(figure.cells), flush=True)


if __name__ == "__main__":
    main()
