"""A browser and servers, each started once, and tabs that show the notebook of one test after another."""

import contextlib
import os
import re
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from tests.browser.lab import VIEWPORT, Lab, write_notebook
from tests.browser.looks import AXE, Looks
from tests.browser.server import ROOT, JupyterServer

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SHOTS = ROOT / ".artefacts" / "browser"
PASSED = pytest.StashKey[bool]()
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
def servers(browser, tmp_path_factory):
    """Return ``servers(program, **options)``: a server as `JupyterServer` makes it, the same one to all who ask."""
    running = {}
    with contextlib.ExitStack() as stack:

        def server_of(program="jupyterlab", settings=None, **options):
            kind = repr((program, settings, options))
            if kind not in running:
                place = tmp_path_factory.mktemp(program)
                running[kind] = stack.enter_context(JupyterServer(place, settings, program=program, **options))
            return running[kind]

        yield server_of


@pytest.fixture(scope="package")
def server(servers):
    """Return a JupyterLab without the extension; a module that needs another one says so."""
    return servers()


@pytest.fixture(scope="package")
def extended(servers):
    """Return a JupyterLab with the extension."""
    return servers(extended=True)


@pytest.fixture(scope="package")
def tabs(browser):
    """Return what tabs share: cookies and a cache."""
    context = browser.new_context(viewport=VIEWPORT, accept_downloads=False)
    yield context
    context.close()


@pytest.fixture(scope="package")
def left():
    """Return the tabs that tests have left as they found them, by server."""
    return defaultdict(list)


@pytest.fixture
def folder(server, request):
    """Return a folder for the notebook of one test, with a store of its own."""
    module = request.module.__name__.rpartition(".")[2]
    path = server.folder / module / re.sub(r"\W+", "-", request.node.name).strip("-")
    path.mkdir(parents=True)
    return path


@pytest.fixture
def tab(server, tabs, left, request):
    """Return ``tab(path)``, which opens a notebook in a tab of its own; all are closed in the end, kernels too."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    opened = []

    def open_tab(path):
        lab = left[server].pop() if left[server] else Lab(tabs.new_page(), server, SHOTS)
        opened.append(lab)
        lab.open(path)
        lab.be("Light")  # the server remembers what the last test chose
        return lab

    open_tab.opened = opened
    yield open_tab
    for lab in opened:
        if not left[server] and request.node.stash.get(PASSED, False) and lab.is_lab and lab.clear():
            left[server].append(lab)
        else:  # what comes next must not suffer from what went wrong here
            lab.page.close()
    server.end_kernels(wait=False)


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
    if report.when == "call":
        item.stash[PASSED] = report.passed
    tab = item.funcargs.get("tab") if hasattr(item, "funcargs") else None
    if report.when == "call" and report.failed and tab is not None:
        name = re.sub(r"\W+", "-", item.name)
        for number, lab in enumerate(tab.opened):
            if lab.page.is_closed():
                continue
            path = lab.shot(f"failed-{name}-{number}")
            report.sections.append((f"page {number}", f"{path}\n{lab.errors}\n{lab.server.log()}"))
    return report


def pytest_terminal_summary(terminalreporter):
    """Say what was seen, and where the pictures are."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, seen in report.user_properties if report.when == "call" else ():
            if name != "counted":  # which tests/conftest.py writes
                terminalreporter.write_line(str(seen))
    pictures = sorted(Path(SHOTS).glob("*.png"))
    if pictures:
        terminalreporter.write_line(f"{len(pictures)} pictures in {SHOTS}")
