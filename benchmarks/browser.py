"""``python -m benchmarks.browser``: how fast the live view is in a real JupyterLab; needs a Chromium.

It runs the same server and browser as the tests in ``tests/browser``, without a graphics card: figures of the canvas
are worse than on a desk. The clock of an event and that of its pixels are the same machine's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from benchmarks.figure import Figure
from tests.browser.conftest import OPTIONS, find_chromium
from tests.browser.lab import Lab, write_notebook
from tests.browser.server import JupyterServer

LENGTH = 100_000
RATE, SECONDS = 1000, 10
FRAMES = 120

CELLS = (
    f"from benchmarks.viewed import Log\nlog = Log({LENGTH})",
    "view = log.view()\nview",
    "view.close()\nlive = Log(20)\nlive_view = live.view()\nlive_view",
    f"import asyncio\nshare = await asyncio.to_thread(live.grow_steadily, {RATE}, {SECONDS})\nprint(share)",
)

WATCH = """
window.seen = { messages: 0, opened: 0, first: 0, largest: 0, lags: [], started: performance.now() };
const sizeOf = (message) => JSON.stringify(message.content).length;
inLab.kernel().iopubMessage.connect((_, message) => {
  if (message.header.msg_type === "comm_open") seen.opened += sizeOf(message);
  if (message.header.msg_type !== "comm_msg") return;
  const told = message.content.data.content;
  if (told === undefined) return;
  seen.messages++;
  if (told.type === "welcome" && seen.first === 0) seen.first = sizeOf(message);
  if (told.type !== "delta") return;
  const newest = told.spans.end.map((end, row) => told.origin_us + Math.max(end, told.spans.start[row]));
  requestAnimationFrame(() => requestAnimationFrame(() => {
    const now = Date.now();
    for (const at of newest) seen.lags.push(now - at / 1000);
  }));
});
"""

FIRST_PAINT = """
(index) => new Promise((painted) => {
  const started = performance.now();
  inLab.runCell(index);
  const look = () => {
    const canvas = inLab.panel().content.widgets[index].node.querySelector(".db-canvas");
    const head = inLab.panel().content.widgets[index].node.querySelector(".db-status");
    const isShown = canvas && canvas.width > 300 && head.textContent;
    requestAnimationFrame(isShown ? () => painted(performance.now() - started) : look);
  };
  look();
})
"""

PAN = """
([index, zooms, frames]) => new Promise((done) => {
  const canvas = inLab.panel().content.widgets[index].node.querySelector(".db-canvas");
  const press = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  press("0");
  for (let zoom = 0; zoom < zooms; zoom++) press("+");
  const times = [];
  let before;
  const frame = (now) => {
    if (before !== undefined) times.push(now - before);
    before = now;
    if (times.length >= frames) return done(times);
    const back = Math.floor(times.length / 10) % 2 === 0;
    press(zooms === 0 ? (back ? "-" : "0") : (back ? "PageUp" : "PageDown"));
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})
"""


def measure(lab: Any) -> Iterator[Figure]:
    """Measure a long log, then one that grows."""
    lab.page.evaluate(WATCH)
    lab.run_through(0)
    yield Figure("first paint", "", lab.page.evaluate(FIRST_PAINT, 1) / 1000, "s", 1, details={"events": LENGTH})
    lab.wait_idle()
    bars = f"{LENGTH // 2:,}"
    lab.output(1).locator(".db-table summary").click()
    lab.until(f"document.querySelector('.db-table [aria-rowcount=\"{LENGTH // 4 + 1}\"]') !== null")
    lab.output(1).locator(".db-table summary").click()
    for name, zooms, target in (("frame, zoomed, p95", 10, 17), ("frame, all shown, p95", 0, 50)):
        times = lab.page.evaluate(PAN, [1, zooms, FRAMES])
        yield Figure(name, "", p95(times), "ms", target, details={"bars": bars, "most": f"{max(times):.0f}"})
    first, opened = lab.page.evaluate("[seen.first, seen.opened]")
    yield Figure("first payload", "", first / 1000, "kB", 300)
    yield Figure("widget itself", "", opened / 1000, "kB", details={"model and code": "sent once"})
    yield from _live(lab)


def _live(lab: Any) -> Iterator[Figure]:
    lab.run_through(2)
    lab.output(2).locator(".db-status", has_text="running").wait_for()
    lab.page.evaluate("Object.assign(seen, { messages: 0, lags: [] })")
    lab.run_through(3)
    seen = lab.page.evaluate("seen")
    share = float(lab.outputs(3)[0]["text"])
    details = {"events/s": RATE}
    yield Figure("event to pixel, p95", "", p95(seen["lags"]), "ms", 150, details=details)
    yield Figure("kernel CPU for the view", "", share * 100, "% of a core", 10, details=details)
    yield Figure("messages", "", seen["messages"] / SECONDS, "/s", 30, details=details)


def p95(values: list[float]) -> float:
    """Return what 95 of 100 values do not exceed."""
    return sorted(values)[int(len(values) * 0.95)]


@contextmanager
def front_end(*, extended: bool = False) -> Iterator[Callable[[str, Sequence[str]], Any]]:
    """Start server and browser; what is yielded opens a notebook of some cells, by name, in a tab of its own."""
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        path = find_chromium()
        if path is None:
            raise SystemExit("no Chromium: install one, or name it with DIVEBOOK_CHROMIUM")
        browser = playwright.chromium.launch(executable_path=path, args=[*OPTIONS, "--no-sandbox"])
        with JupyterServer(Path(place), extended=extended) as server:

            def opened(name: str, cells: Sequence[str]) -> Any:
                page = browser.new_page(viewport={"width": 1280, "height": 1000})
                return Lab(page, server, Path(place)).open(write_notebook(server.folder / f"{name}.ipynb", cells))

            yield opened
        browser.close()


def main() -> None:
    """Print each figure with its target."""
    with front_end() as opened:
        for figure in measure(opened("benchmark", CELLS)):
            print(" | ".join(figure.cells), flush=True)


if __name__ == "__main__":
    main()
