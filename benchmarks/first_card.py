"""``python -m benchmarks.first_card``: seconds from an empty environment and a built wheel to the first live card.

Two commands, as a new user types them: ``pip install divebook-...whl`` and ``divebook tutorial``. Then a browser runs
the cells of the first notebook from top to bottom, until the live card of the run asks its question. Needs a Chromium
and an index of packages. Building the wheel and creating the environment are not counted.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.reporting import lines_of
from tests.browser.conftest import OPTIONS, find_chromium
from tests.browser.lab import PATIENCE

ROOT = Path(__file__).parents[1]
GOAL = 90
"""Seconds within which the card must be there."""
POLL_SECONDS = 0.2
say = lines_of("first_card")


def build_wheel(folder: Path) -> Path:
    """Build the wheel of divebook, and return its path."""
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def settings_of(folder: Path) -> dict[str, str]:
    """Return the environment variables of a user without a browser of its own, whose files are all in a folder."""
    config = folder / "config"
    config.mkdir()
    options = {"ServerApp": {"allow_root": True, "open_browser": False}}
    (config / "jupyter_server_config.json").write_text(json.dumps(options))
    places = {
        "JUPYTER_CONFIG_DIR": config,
        "JUPYTER_RUNTIME_DIR": folder / "runtime",
        "JUPYTER_DATA_DIR": folder / "data",
    }
    outer = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH"}}
    return {**outer, **{name: str(place) for name, place in places.items()}}


def server_url(runtime: Path, tutorial: subprocess.Popen[bytes]) -> str:
    """Wait until the Jupyter server runs, and return the address of the first notebook."""
    while not (infos := [*runtime.glob("jpserver-*.json")]):
        if tutorial.poll() is not None:
            raise RuntimeError(f"divebook tutorial ended with exit code {tutorial.returncode}")
        time.sleep(POLL_SECONDS)
    # JupyterLab serves the folder of the notebook that it was started with.
    info = json.loads(infos[0].read_text())
    return f"{info['url']}lab/tree/01_quickstart.ipynb?token={info['token']}"


def show_card(url: str) -> None:
    """Open the notebook in a browser, run its cells, and wait until the live card asks the question."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=[*OPTIONS, "--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.set_default_timeout(PATIENCE)
        page.goto(url)
        page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(state="attached")
        page.locator(".jp-Notebook .jp-Cell").first.click()  # the commands of the menu are about the notebook in focus
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.locator(".db-root").get_by_role("button", name="Answer").first.wait_for()
        browser.close()


def main() -> None:
    """Print the seconds of each part, and end with 1 if the whole takes longer than the goal."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build_wheel(folder)
        subprocess.run([sys.executable, "-m", "venv", str(folder / "empty")], check=True)
        programs = folder / "empty" / "bin"
        settings = settings_of(folder)
        started_at = time.monotonic()
        subprocess.run(
            [programs / "pip", "install", "-q", str(wheel)],
            check=True,
            env=settings,
            cwd=folder,
            stderr=subprocess.DEVNULL,
        )
        installed_at = time.monotonic()
        say("installed", seconds=round(installed_at - started_at, 1))
        tutorial = subprocess.Popen(
            [programs / "divebook", "tutorial"],
            env=settings,
            cwd=folder,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            url = server_url(folder / "runtime", tutorial)
            say("server", seconds=round(time.monotonic() - installed_at, 1))
            show_card(url)
        finally:
            os.killpg(tutorial.pid, signal.SIGTERM)  # JupyterLab is its child
            tutorial.wait()
        seconds = round(time.monotonic() - started_at, 1)
    say("card", seconds=seconds, goal=GOAL)
    sys.exit(seconds > GOAL)


if __name__ == "__main__":
    main()
