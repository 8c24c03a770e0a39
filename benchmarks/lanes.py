"""``python -m benchmarks.lanes``: how the live view bears 20,000 calls in 50 lanes, some with values of 1 MB.

A real run in a real JupyterLab, as `benchmarks.browser`: kernel, server and browser share the machine, so the frames of
the page are those that a person has beside a busy kernel. The heap is the whole page's, JupyterLab's own included.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from benchmarks.browser import front_end, p95
from benchmarks.figure import Figure

CALLS, LANES, LARGE_EVERY = 20_000, 50, 400
MEGABYTE = 1_000_000

CELLS = (
    f"""%load_ext divebook
import asyncio, divebook
from pathlib import Path

@divebook.action("Bench.Row", idempotent=True)
async def row(number: int) -> object:
    await asyncio.sleep(0.001)
    return "x" * {MEGABYTE} if number % {LARGE_EVERY} == 0 else {{"id": number, "label": "billing"}}

@divebook.action("Bench.Held", idempotent=True)
async def held() -> None:
    Path("began").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.05)
""",
    f"""%%dive workflow lanes
Steps:
  - Name: rows
    Each: {{Items: "$(list(range({CALLS})))", As: row, Parallel: {LANES}}}
    Action: Bench.Row
    Parameters: {{number: "$(state.row)"}}
  - {{Name: held, Action: Bench.Held}}
""",
    "run = %dive run lanes --durability relaxed",
)

FRAMES = """
() => {
  window.frames = [];
  let before;
  const frame = (now) => {
    if (before !== undefined) frames.push(now - before);
    before = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}
"""


def measure(lab: Any, tools: Any) -> Iterator[Figure]:
    """Measure the page while the run goes on, and once all calls are in it."""

    def heap() -> float:
        tools.send("HeapProfiler.collectGarbage")
        return float(tools.send("Runtime.getHeapUsage")["usedSize"])

    def busy() -> float:
        metrics = tools.send("Performance.getMetrics")["metrics"]
        return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))

    tools.send("Performance.enable")
    lab.run_through(0)
    lab.run_through(1)
    before = heap()
    lab.run(2)
    lab.output(2).locator(".db-canvas").wait_for()
    started, worked = time.monotonic(), busy()
    lab.page.evaluate(FRAMES)
    while not (lab.folder / "began").exists():
        lab.page.wait_for_timeout(100)
    frames = lab.page.evaluate("window.frames.splice(0)")
    took, share = time.monotonic() - started, busy() - worked
    lab.page.wait_for_timeout(1000)
    after = heap()
    (lab.folder / "go").touch()
    lab.wait_idle()
    details = {"calls": CALLS, "lanes": LANES, "run, s": f"{took:.1f}", "frames": len(frames)}
    late = f"{sum(frame > 100 for frame in frames)} above 100"
    yield Figure("frame while it runs, p95", "", p95(frames), "ms", 33, details={**details, "frames, ms": late})
    yield Figure("frame while it runs, p50", "", sorted(frames)[len(frames) // 2], "ms", details=details)
    yield Figure("the page at work", "", share / took * 100, "% of a core", details=details)
    yield Figure("heap of the page", "", after / 1e6, "MB", 80, details={"before, MB": f"{before / 1e6:.1f}"})


def main() -> None:
    """Print each figure with its target."""
    with front_end() as opened:
        lab = opened("lanes", CELLS)
        for figure in measure(lab, lab.page.context.new_cdp_session(lab.page)):
            print(" | ".join(figure.cells), flush=True)


if __name__ == "__main__":
    main()
