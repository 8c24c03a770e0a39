"""``python -m benchmarks.two_pages``: a live view in two pages of one notebook that are reloaded again and again.

It needs a Chromium, and measures the real-time collaboration of the environment that runs it: jupyter-collaboration or
jupyter-server-documents, with which both pages show the same document. Without either, each page has its own copy.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from playwright.sync_api import Error, sync_playwright

from tests.browser.conftest import OPTIONS, PRELUDE, find_chromium
from tests.browser.lab import Lab, write_notebook
from tests.browser.server import JupyterServer
from tests.browser.test_live import ASKING

LIVE_WITHIN = 2.0
"""Seconds within which a page should show the live state, from the moment when it shows the output of the cell."""

PATIENCE = 20_000
"""Milliseconds after which a view counts as dead."""

LIBRARIES = ("ipykernel", "jupyter-collaboration", "jupyter-server-documents", "jupyterlab")
WAYS = {"waiting": "r = %dive run asking", "background": "r = %dive run asking --background"}
CELL = 2

WATCH = """
window.seen = { shown: 0, live: 0, isMissing: false };
const isVisible = (part) => part.getClientRects().length > 0;
setInterval(() => {
  const cell = document.querySelectorAll(".jp-Notebook .jp-Cell")[CELL];
  const area = cell?.querySelector(".jp-Cell-outputArea");
  if (!area || ![...area.querySelectorAll(".jp-OutputArea-child")].some(isVisible)) return;
  seen.shown ||= performance.now();
  seen.isMissing ||= area.innerText.includes("model not found");
  const views = [...area.querySelectorAll(".db-root:not(.db-saved) .db-status[data-status=waiting]")].filter(isVisible);
  const buttons = [...area.querySelectorAll("article.card button")].filter(isVisible);
  const isLive = views.length === 1 && buttons.some((button) => button.textContent.includes("Approve"));
  seen.live = isLive ? seen.live || performance.now() : 0;
}, 20);
"""


def measure(browser: Any, server: Any, folder: Path, way: str, reloads: int) -> None:
    """Reload two pages in turn, answer the question in both at the same time, and print the figures."""
    path = write_notebook(server.folder / f"{way}.ipynb", [PRELUDE, ASKING, WAYS[way]])
    environment = server._environ()  # noqa: SLF001
    # A page shows live views of trusted notebooks only.
    trusting = [sys.executable, "-m", "jupyter", "trust", path]
    subprocess.run(trusting, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pages = [_page(browser, server, folder) for _ in range(2)]
    for page in pages:
        page.open(path)
    for cell in range(CELL):
        pages[0].run_through(cell)
    pages[0].run(CELL)
    print(
        f"{way}, before the first reload: live in {sum(_becomes_live(page) for page in pages)} of 2 pages", flush=True
    )
    times, missing, dead, stale = [], 0, 0, 0
    for number in range(reloads):
        page, other = pages[number % 2], pages[1 - number % 2]
        page._load()  # noqa: SLF001 - without waiting for the kernel, which counts as well
        if _becomes_live(page):
            page.page.wait_for_timeout(500)  # the view must stay
        seen, beside = page.page.evaluate("seen"), other.page.evaluate("seen")
        missing += seen["isMissing"] + beside["isMissing"]
        dead += seen["live"] == 0
        stale += beside["live"] == 0
        if seen["live"]:
            times.append((seen["live"] - seen["shown"]) / 1000)
    print(f"{way}: {reloads} reloads, 'model not found' {missing}, dead {dead}, dead beside the reloaded page {stale}")
    if times:
        within = sum(seconds <= LIVE_WITHIN for seconds in times)
        figures = f"median {statistics.median(times):.2f} s, max {max(times):.2f} s"
        print(f"{way}: live again after {figures}, {within} of {len(times)} within {LIVE_WITHIN:g} s")
    print(f"{way}: {_answer_in_both(pages)}", flush=True)
    for page in pages:
        page.page.context.close()


def _page(browser: Any, server: Any, folder: Path) -> Any:
    # A page behind another one of the same window draws once a second, so each has a window of its own.
    page = browser.new_context(viewport={"width": 1280, "height": 1000}).new_page()
    page.add_init_script(WATCH.replace("CELL", str(CELL)))
    return Lab(page, server, folder)


def _becomes_live(page: Any) -> bool:
    """Wait until a page shows the live view with its question; return whether it does."""
    try:
        page.page.wait_for_function("seen.live > 0", timeout=PATIENCE)
    except Error:
        return False
    return True


def _answer_in_both(pages: list[Any]) -> str:
    """Approve in one page and deny in the other one at the same time; return what both pages show."""
    for page, name in zip(pages, ("Approve", "Deny"), strict=True):
        card = page.output(CELL).locator("article.card").filter(visible=True)
        if card.count():
            # The pages press the buttons themselves, at the same time: a click from here takes longer than an answer.
            button = card.get_by_role("button", name=name, exact=True).first
            button.evaluate(
                "(button, at) => { setTimeout(() => button.click(), at - Date.now()); }", time.time() * 1000 + 500
            )
    shown = []
    for page in pages:
        completed = page.output(CELL).locator(".db-status[data-status=completed]").filter(visible=True)
        outcome = page.output(CELL).get_by_text("pproved").or_(page.output(CELL).get_by_text("enied"))
        try:
            completed.first.wait_for(timeout=PATIENCE)
            page.page.wait_for_timeout(1000)
            shown.append(sorted({text.lower() for text in outcome.filter(visible=True).all_inner_texts()}))
        except Error:
            shown.append(["not completed"])
    return f"answered in both pages at once; they show {' and '.join(map(str, shown))}"


def main() -> None:
    """Measure the chosen ways of running and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_pages")
    parser.add_argument("--reloads", type=int, default=50, help="reloads of each way (default 50)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="how the run is started")
    options = parser.parse_args()
    installed = {one.name.lower().replace("_", "-"): one.version for one in distributions()}
    print(", ".join(f"{name} {installed[name]}" for name in LIBRARIES if name in installed), flush=True)
    path = find_chromium()
    if path is None:
        parser.exit(1, "no Chromium: install one, or name it with DIVEBOOK_CHROMIUM\n")
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*OPTIONS, "--no-sandbox"])
        with JupyterServer(Path(place), extended=True) as server:
            for way in options.ways:
                measure(browser, server, Path(place), way, options.reloads)
        browser.close()


if __name__ == "__main__":
    main()
