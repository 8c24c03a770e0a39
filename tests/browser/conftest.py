"""A browser and a JupyterLab, started once, and a tab with a notebook for each test."""

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.browser.lab import Lab, write_notebook
from tests.browser.looks import AXE, Looks
from tests.browser.server import ROOT, JupyterServer

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SHOTS = ROOT / ".artefacts" / "browser"
OPTIONS = ["--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update"]

PRELUDE = """\
%load_ext divebook
import asyncio, os, divebook
from pathlib import Path

@divebook.action("Test.Call", idempotent=True)
async def call(name: str, gate: str = "") -> str:
    with open("calls.txt", "a") as calls:
        calls.write(f"began {name} {os.getpid()}\\n")
    while gate and not Path(gate).exists():
        await asyncio.sleep(0.02)
    with open("calls.txt", "a") as calls:
        calls.write(f"ended {name} {os.getpid()}\\n")
    return name
"""


def find_chromium():
    """Return the browser to use, or None."""
    wanted = os.environ.get("DIVEBOOK_CHROMIUM")
    found = (shutil.which(name) for name in ((wanted,) if wanted else BROWSERS))
    return next(filter(None, found), None)


@pytest.fixture(scope="package")
def browser(require):
    """Return the browser; closed with the last test here, since its event loop would disturb other tests."""
    from playwright.sync_api import sync_playwright

    path = find_chromium()
    require("a Chromium (on PATH, or named by DIVEBOOK_CHROMIUM)", path is not None)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=[*OPTIONS, "--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="package")
def server(browser, tmp_path_factory):
    with JupyterServer(tmp_path_factory.mktemp("jupyter")) as running:
        yield running


@pytest.fixture(scope="package")
def tabs(browser):
    """Return what tabs share: cookies and a cache."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000}, accept_downloads=False)
    yield context
    context.close()


@pytest.fixture
def folder(server, request):
    """Return a folder for the notebook of one test, with a store of its own."""
    path = server.folder / re.sub(r"\W+", "-", request.node.name).strip("-")
    path.mkdir()
    return path


@pytest.fixture
def tab(server, tabs):
    """Return ``tab(path)``, which opens a notebook in a tab of its own; all are closed in the end, kernels too."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    opened = []

    def open_tab(path):
        lab = Lab(tabs.new_page(), server, SHOTS)
        opened.append(lab)
        lab.open(path)
        lab.be("Light")  # the server remembers what the last test chose
        return lab

    open_tab.opened = opened
    yield open_tab
    for lab in opened:
        lab.page.close()
    for session in server.ask("/api/sessions"):
        server.ask(f"/api/sessions/{session['id']}", "DELETE")


@pytest.fixture
def lab(tab, folder):
    """Return ``lab(*cells)``: a notebook with the extension loaded by cell 0, and the cells behind it, in a tab."""

    def open_with(*cells, kernel="python3"):
        opened = tab(write_notebook(folder / "test.ipynb", [PRELUDE, *cells], kernel))
        opened.run_through(0)
        return opened

    return open_with


@pytest.fixture
def looks(require):
    """Look at parts of pages, `Looks.at`; in the end say what was wrong with them."""
    require("axe-core (python widgets/frontend.py check installs it)", AXE.exists())
    looking = Looks()
    yield looking
    if looking.faults:
        pytest.fail("\n".join(looking.faults), pytrace=False)


# --- pictures --------------------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Take a picture of what a failing test saw last."""
    report = yield
    tab = item.funcargs.get("tab") if hasattr(item, "funcargs") else None
    if report.when == "call" and report.failed and tab is not None:
        name = re.sub(r"\W+", "-", item.name)
        for number, lab in enumerate(tab.opened):
            path = lab.shot(f"failed-{name}-{number}")
            report.sections.append((f"page {number}", f"{path}\n{lab.errors}\n{lab.server.log()}"))
    return report


def pytest_terminal_summary(terminalreporter):
    """Say what was seen, and where the pictures are."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for _, seen in report.user_properties if report.when == "call" else ():
            terminalreporter.write_line(str(seen))
    pictures = sorted(Path(SHOTS).glob("*.png"))
    if pictures:
        terminalreporter.write_line(f"{len(pictures)} pictures in {SHOTS}")
