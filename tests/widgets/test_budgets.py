"""Sizes of the bundles of the front end: each has a budget, which is kept and not far above its size."""

import json

import pytest

from divebook.widgets.views import STATIC
from tests.browser.server import ROOT

BUDGETS = json.loads((ROOT / "widgets" / "budgets.json").read_text(encoding="ascii"))
LABEXTENSION = ROOT / "widgets" / "labextension" / "static"
FILES = {"labextension": ["remoteEntry.js"], "panel": ["panel.js"], "saved": ["saved.js"]}
"""Files of the bundles of the JupyterLab extension. Other bundles have their name, with a style sheet or without."""


def size_of(name):
    """Return the bytes of a bundle, with its style sheet."""
    folder, files = (LABEXTENSION, FILES[name]) if name in FILES else (STATIC, [f"{name}.js", f"{name}.css"])
    present = [folder / file for file in files if (folder / file).exists()]
    if not present:
        pytest.skip("the front end is not built")
    return sum(path.stat().st_size for path in present)


@pytest.mark.parametrize("name", BUDGETS)
def test_a_bundle_is_within_its_budget(name):
    assert size_of(name) <= BUDGETS[name]


@pytest.mark.parametrize("name", BUDGETS)
def test_a_budget_is_close_to_its_bundle(name):
    """A budget far above the size would let a bundle grow unnoticed."""
    assert size_of(name) >= BUDGETS[name] * 0.6


def test_every_bundle_has_a_budget():
    built = {path.stem for folder in (STATIC, LABEXTENSION) for path in folder.glob("*.js")}
    assert built - {"remoteEntry"} == set(BUDGETS) - {"labextension"}
