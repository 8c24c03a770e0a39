"""What the rows of a frame gave, under their bar: while they run, when they have ended, and in the saved notebook."""

import pytest

from tests.browser.test_saved import reopened

LABEL = """\
import pandas, random
from divebook.runtime.compute.dask import DASHBOARDS

LABELS = ["praise", "blame", "a question <b>that</b> is rather longer than others are", "other"]
chance = random.Random(3)
frame = pandas.DataFrame({"text": [f"text {at}" for at in range(2000)]})

async def label(text: str):
    at = int(text.split()[1])
    while at >= 1200 and not Path("go").exists():
        await asyncio.sleep(0.02)
    if at % 50 == 7:
        raise ValueError("no text")
    label = chance.choices(LABELS, [8, 4, 2, 1])[0]
    stars, reason = chance.choice([1, 2, 3, 4, 5, 5]), f"because of {text}"
    return {"label": label, "score": round(chance.gauss(0.6, 0.15), 3), "stars": stars, "reason": reason}
"""
MAP = 'labels = divebook.map(frame, label, store="labels", parallel=100)\nlabels'
LINK = 'DASHBOARDS.add_address(labels.run.id, "http://127.0.0.1:8787/status")'
SHOWN = """\
labels.wait()
labels"""


@pytest.fixture(scope="module")
def server(extended):
    return extended


def words_of(view):
    return [column.get_attribute("aria-label") for column in view.locator(".db-column").all()]


def test_what_rows_gave_is_shown_live_and_stays(lab, tab, looks):
    notebook = lab(LABEL, MAP, LINK, SHOWN)
    for cell in (1, 2, 3):
        notebook.run_through(cell)
    live = notebook.output(2).locator(".db-root")
    live.get_by_role("link", name="Dask dashboard").wait_for()
    live.locator(".db-column").nth(2).wait_for()
    label, score, stars = words_of(live)
    assert label.startswith("label: praise ")
    assert label.endswith("24 failed")
    assert ": 5 " in stars
    assert ", median about 0." in score
    looks.at(notebook, "spread-live", live)
    (notebook.folder / "go").touch()
    notebook.run_through(4)
    saved = notebook.output(4).locator(".db-saved, .db-root").first
    saved.get_by_role("img", name="40 failed").wait_for()
    notebook.save()
    again = reopened(tab, notebook.folder, trusted=False)
    saved = again.output(4).locator(".db-saved").first
    saved.locator(".db-column").nth(2).wait_for()
    assert "40 failed" in words_of(saved)[0]
    assert saved.get_by_role("link", name="Dask dashboard").count() == 0
    looks.at(again, "spread-saved", saved)
