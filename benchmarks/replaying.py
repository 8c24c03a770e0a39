"""``python -m benchmarks.replaying``: how long a jump takes in the replay of 100,000 events, in a real JupyterLab;
``--events 20000`` measures a shorter log.

The clock runs from the move of the bar until the page shows the state of that event, undimmed.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from typing import Any

from benchmarks.browser import front_end, p95
from benchmarks.ending import DEFINED, WORKFLOW
from benchmarks.figure import Figure

EVENTS, JUMPS, TARGET = 100_000, 30, 200
EVENTS_OF_ITEM = 4

JUMP = """
(target) => new Promise((done) => {
  const view = document.querySelector(".divebook-replay");
  const bar = view.querySelector("input[type=range]");
  const started = performance.now();
  bar.value = String(target);
  bar.dispatchEvent(new Event("input"));
  const heading = `State after event ${target.toLocaleString("en")}`;
  const look = () => {
    const panel = view.querySelector(".panel");
    const isHere = panel.getAttribute("aria-busy") === "false" && panel.textContent.includes(heading);
    requestAnimationFrame(isHere ? () => done(performance.now() - started) : look);
  };
  look();
})
"""


def measure(lab: Any, events: int) -> Iterator[Figure]:
    """Make a run, open its replay, and jump about in it."""
    for cell in (0, 1, 2):
        lab.run_through(cell)
    lab.run(3)
    clicked_at = lab.page.evaluate("performance.now()")
    # The bar has its full length from the first page of events on, so that the progress says when all are there.
    lab.until("document.querySelector('.divebook-replay .event') !== null")
    first_events = lab.page.evaluate("performance.now()") - clicked_at
    lab.until(
        "document.querySelector('.divebook-replay .filling').hidden && "
        f"Number(document.querySelector('.divebook-replay input[type=range]').max) >= {events}"
    )
    opened = lab.page.evaluate("performance.now()") - clicked_at
    first = lab.page.evaluate(JUMP, events - 1)
    chance = random.Random(1)  # noqa: S311 - the same jumps each time
    times = [lab.page.evaluate(JUMP, chance.randrange(1, events)) for _ in range(JUMPS)]
    yield Figure(f"replay of {events:,} events, first events", "", round(first_events / 1000, 2), "s")
    yield Figure(f"replay of {events:,} events, opened", "", round(opened / 1000, 2), "s")
    yield Figure("a jump in it, the first one", "", round(first), "ms", TARGET)
    yield Figure("a jump in it, p95", "", round(p95(times)), "ms", TARGET, details={"most": f"{max(times):.0f}"})


def main() -> None:
    """Print each figure with its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    events = parser.parse_args().events
    with front_end(extended=True) as opened:
        workflow = WORKFLOW.replace("ITEMS", str(events // EVENTS_OF_ITEM))
        cells = (DEFINED.format(failing=-1), workflow, "r = divebook.run('big').wait(); 0", "r.replay()")
        for figure in measure(opened("replay", cells), events):
            print(" | ".join(figure.cells), flush=True)


if __name__ == "__main__":
    main()
