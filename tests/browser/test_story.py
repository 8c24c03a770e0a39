"""The story with which the README begins, as a person experiences it. Its pictures become a moving picture."""

import base64
import io
import os
import signal
from dataclasses import dataclass, field

import pytest
from PIL import Image

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
    Store: labels
  - Name: publish
    Ask: {Question: "Publish the labels of 60 tickets?", Kind: confirmation}"""
RUN = "run = %dive run label-tickets"
BILL = 'f"{len(bill.read_text().splitlines())} calls were paid"'
WIDTH, HEIGHT = 880, 560
"""Pixels of the window."""
COLOURS = 64
"""Colours of the moving picture. The page has few; more would only make the file larger."""
LARGEST = 750_000
"""Bytes of the moving picture of one theme; both are in the repository."""
PAGE = """<!doctype html>
<style>
  body {{ margin: 0; background: {background}; color: {colour}; font: 600 24px/1.3 sans-serif; width: {width}px; }}
  p {{ margin: 0; padding: 14px 18px; }} img {{ width: 100%; display: block; }}
</style>
<p>{caption}</p><img src="data:image/png;base64,{image}">
"""
BACKGROUNDS = {"Light": "#ffffff", "Dark": "#111318"}
TEXTS = {"Light": "#1b1f24", "Dark": "#e6e9ef"}


@pytest.fixture(scope="module")
def server(extended):
    return extended


@dataclass
class Film:
    """Pictures of the page, each under a caption."""

    notebook: object
    theme: str
    frames: list = field(default_factory=list)

    def take(self, caption, seconds, cell=2):
        """Take a picture with a cell at the top, to be shown for some seconds."""
        page = self.notebook.page
        scroll = "(cell) => inLab.panel().content.widgets[cell].node.scrollIntoView({ block: 'start' })"
        page.evaluate(scroll, cell)
        page.wait_for_function("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        self.frames.append((page.screenshot(), caption, seconds))

    def save(self, path):
        """Write the pictures as a GIF, which every viewer of Markdown shows."""
        page = self.notebook.page.context.new_page()
        page.set_viewport_size({"width": WIDTH, "height": HEIGHT + 60})
        images = []
        for picture, caption, _ in self.frames:
            image = base64.b64encode(picture).decode()
            colours = {"background": BACKGROUNDS[self.theme], "colour": TEXTS[self.theme]}
            page.set_content(PAGE.format(caption=caption, image=image, width=WIDTH, **colours))
            drawn = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            images.append(drawn.quantize(COLOURS, dither=Image.Dither.NONE))
        page.close()
        durations = [1000 * seconds for _, _, seconds in self.frames]
        images[0].save(path, save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_a_kernel_dies_and_nothing_is_paid_twice(tab, folder, theme):
    notebook = tab(write_notebook(folder / "label-tickets.ipynb", [SETUP, WORKFLOW, RUN, BILL]))
    notebook.be(theme)
    notebook.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    notebook.page.evaluate("jupyterapp.shell.collapseLeft()")
    film = Film(notebook, theme)
    waiting, bill = notebook.folder / "waiting.txt", notebook.folder / "bill.txt"

    def paid():
        return bill.read_text().splitlines() if bill.exists() else []

    def held():
        return waiting.read_text().split() if waiting.exists() else []

    film.take("A workflow labels 60 tickets with paid calls.", 2.5, cell=1)
    notebook.run_all()
    notebook.until_here(lambda: held() and len(paid()) == 40, paid)
    notebook.see(2, "40 of 60")
    film.take("40 calls are paid …", 2)
    os.kill(int(held()[0]), signal.SIGKILL)
    notebook.page.locator(".jp-Dialog .jp-mod-accept").wait_for()
    film.take("… and the kernel dies.", 2.5)
    notebook.page.locator(".jp-Dialog .jp-mod-accept").click()
    # A request that is sent while the new kernel starts is lost.
    notebook.page.evaluate("inLab.kernel().requestKernelInfo().then(() => null)")
    notebook.until("inLab.kernel().status === 'idle'")
    notebook.run_all()
    notebook.see(2, "40 of 60")
    film.take("Run the cells again: the run continues with call 41.", 3)
    (notebook.folder / "go").touch()
    card = notebook.output(2).get_by_text("Publish the labels of 60 tickets?").filter(visible=True).first
    card.wait_for()
    film.take("It asks a question, and would wait for days.", 3)
    notebook.output(2).get_by_role("button", name="Approve").click()
    notebook.wait_idle()
    notebook.see(3, "60 calls were paid")
    film.take("60 calls were needed, and 60 calls were paid.", 4)
    assert sorted(paid()) == sorted(f"ticket {number}" for number in range(1, 61))
    path = notebook.shots / f"story-{theme.lower()}.gif"
    film.save(path)
    assert path.stat().st_size <= LARGEST
