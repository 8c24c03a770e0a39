"""Which kernels deliver an answer, and when: it takes effect at once, or the question is asked in the cell instead.

The installed kernel is always tried; ``pytest -m kernels`` tries others, each in an environment that is made when it
is first needed and kept in the folder ``.venvs``.
"""

import subprocess
import sys
import sysconfig
import time

import pytest

from tests.browser.server import ROOT
from tests.browser.test_live import ASKING, approve

INSTALLED = "python3"
OTHERS = {"ipykernel-6": "ipykernel==6.31.0", "ipykernel-7.3": "ipykernel==7.3.0", "ipykernel-newest": "ipykernel"}
KERNELS = [INSTALLED, *(pytest.param(name, marks=pytest.mark.kernels) for name in OTHERS)]
WAYS = {
    "awaiting": "r = %dive run asking",
    "blocking": "%%time\nr = %dive run asking\n",
    "idle": "r = %dive run asking --background",
}


@pytest.fixture
def kernel(request, server):
    """Return the name of a kernel that the server knows."""
    if request.param != INSTALLED:
        server.add_kernel(request.param, environment(request.param))
    return request.param


def environment(name):
    """Return the Python of an environment with another ipykernel, and everything else from this one."""
    place = ROOT / ".venvs" / name
    python, made = place / "bin" / "python", place / "made"
    if not made.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", OTHERS[name]], check=True, timeout=300)
        (own,) = place.glob("lib/python*/site-packages")
        (own / "behind.pth").write_text(sysconfig.get_path("purelib") + "\n")
        made.touch()
    return python


@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kernel", KERNELS, indirect=True)
def test_an_answer_takes_effect_at_once_or_the_cell_asks(lab, kernel, way, record_property):
    notebook = lab(ASKING, WAYS[way], kernel=kernel)
    notebook.run_through(1)
    notebook.run(2)
    field = notebook.output(2).locator("input.jp-Stdin-input")
    welcomed = notebook.output(2).locator(".db-status", has_text="waiting")
    field.or_(welcomed).filter(visible=True).first.wait_for()
    if field.count() == 0:
        assert notebook.is_busy(2) or way == "idle"  # it waits for the answer: what is held back never comes
        took = answer(notebook)
        record_property("seen", f"{kernel}, {way}: in the view, {took * 1000:.0f} ms")
    else:
        field.fill("yes")
        field.press("Enter")
        record_property("seen", f"{kernel}, {way}: asked in the cell")
    notebook.until_calls("ended", ["before", "after"])


def answer(notebook):
    """Press the button; return the seconds until the workflow went on, the driver's own included."""
    pressed = time.monotonic()
    approve(notebook, 2)
    notebook.until_calls("began", ["before", "after"])
    return time.monotonic() - pressed
