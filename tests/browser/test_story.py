"""The story that the README begins with, as a person lives it; its three pictures become one."""

import base64
import os
import signal

import pytest

from tests.browser.lab import write_notebook

SETUP = """\
%load_ext divebook
import asyncio, os, divebook
from pathlib import Path

bill = Path("bill.txt")

@divebook.action("Tickets.Label", idempotent=True)
async def label(ticket: int) -> str:
    while ticket > 40 and not Path("go").exists():
        with open("waiting.txt", "a") as waiting:
            waiting.write(f"{os.getpid()}\\n")
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.05)
    with bill.open("a") as paid:
        paid.write(f"ticket {ticket}\\n")
    return ["billing", "delivery", "other"][ticket % 3]
"""
WORKFLOW = """\
%%dive workflow label-tickets
Steps:
  - Name: label
    Each: {Items: "$(list(range(1, 61)))", As: ticket, Parallel: 3}
    Action: Tickets.Label
    Parameters: {ticket: $(state.ticket)}
    Store: labels"""
RUN = "run = %dive run label-tickets"
BILL = 'f"{len(bill.read_text().splitlines())} calls were paid"'
CAPTIONS = (
    "The kernel dies after 40 of 60 paid calls.",
    "Run All again: the run goes on with call 41.",
    "60 calls were made, 60 calls were paid.",
)
WIDTH, HEIGHT = 720, 590
"""Pixels of each picture."""
PAGE = """<!doctype html>
<style>
  body { margin: 0; padding: 12px; display: flex; gap: 12px; background: #fff; font: 600 22px/1.3 sans-serif; }
  figure { margin: 0; flex: 1; border: 1px solid #ccd; border-radius: 6px; overflow: hidden; }
  figcaption { padding: 12px 16px; color: #1b1f24; } img { width: 100%; display: block; }
</style>
"""


@pytest.fixture(scope="module")
def server(extended):
    return extended


def test_a_kernel_dies_and_nothing_is_paid_twice(tab, folder):
    notebook = tab(write_notebook(folder / "label-tickets.ipynb", [SETUP, WORKFLOW, RUN, BILL]))
    notebook.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    notebook.page.evaluate("jupyterapp.shell.collapseLeft()")
    notebook.run_all()
    waiting, bill = notebook.folder / "waiting.txt", notebook.folder / "bill.txt"

    def paid():
        return bill.read_text().splitlines() if bill.exists() else []

    def held():
        return waiting.read_text().split() if waiting.exists() else []

    notebook.until_here(lambda: held() and len(paid()) == 40, paid)
    notebook.see(2, "40 of 60")
    os.kill(int(held()[0]), signal.SIGKILL)
    notebook.page.locator(".jp-Dialog .jp-mod-accept").wait_for()
    frames = [shot(notebook, "story-1")]
    notebook.page.locator(".jp-Dialog .jp-mod-accept").click()
    notebook.until("inLab.kernel().status === 'idle'")
    notebook.run_all()
    notebook.see(2, "40 of 60")
    frames.append(shot(notebook, "story-2"))
    (notebook.folder / "go").touch()
    notebook.wait_idle()
    notebook.see(3, "60 calls were paid")
    frames.append(shot(notebook, "story-3"))
    assert sorted(paid()) == sorted(f"ticket {number}" for number in range(1, 61))
    compose(notebook, frames)


def shot(notebook, name):
    """Take a picture with the run's cell at the top."""
    notebook.page.evaluate("inLab.panel().content.widgets[2].node.scrollIntoView({ block: 'start' })")
    notebook.page.wait_for_function("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return notebook.shot(name)


def compose(notebook, frames):
    """Put the pictures beside each other, each under its sentence."""
    figures = ""
    for frame, caption in zip(frames, CAPTIONS, strict=True):
        data = base64.b64encode(frame.read_bytes()).decode()
        figures += f'<figure><figcaption>{caption}</figcaption><img src="data:image/png;base64,{data}"></figure>'
    page = notebook.page.context.new_page()
    page.set_viewport_size({"width": 3 * WIDTH, "height": 900})
    page.set_content(PAGE + figures)
    page.locator("body").screenshot(path=notebook.shots / "story.png")
    page.close()
