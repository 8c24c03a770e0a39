"""Results that notebooks display as an image or as HTML: recorded as such, shown in views and saved, and never run."""

import base64
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import Any

import pandas as pd
import pytest

import divebook
from divebook import Environment, Step, Workflow
from divebook.errors import InterruptError, UnstorableValueError
from divebook.events.codec import storable
from divebook.events.recorded import opened
from divebook.events.rich_output import RichOutput, image_uri, recorded_output, with_displays
from divebook.events.values import normalize
from divebook.text.redaction import Redactor
from divebook.widgets.recording import CleanRun
from tests.widgets.test_variables import views_of

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


class Image:
    def _repr_png_(self):
        return PNG

    def _repr_html_(self):
        return "<b>not this</b>"


class Page:
    def _repr_html_(self):
        return "<b>owls</b><script>alert(1)</script>"


class Drawing:
    def _repr_png_(self):
        return None

    def _repr_jpeg_(self):
        raise RuntimeError("no image")

    def _repr_svg_(self):
        return "<svg/>", {"isolated": True}


def storable_result(value):
    return storable(value, "result", with_displays)


Figure = type("Figure", (), {"savefig": lambda self, file, **_: file.write(PNG), "__module__": "matplotlib.figure"})


@pytest.mark.parametrize(
    ("value", "media_type", "content"),
    [
        (Image(), "image/png", PNG),
        (Figure(), "image/png", PNG),
        (Drawing(), "image/svg+xml", b"<svg/>"),
        (Page(), "text/html", b"<b>owls</b><script>alert(1)</script>"),
    ],
)
def test_an_object_for_display_is_recorded_as_what_it_shows(value, media_type, content):
    recorded = storable_result(value)
    assert recorded_output(recorded) == (media_type, content)
    output = opened(recorded)
    bundle, _ = output._repr_mimebundle_()
    expected = base64.b64encode(content).decode() if media_type == "image/png" else content.decode()
    assert bundle[media_type] == expected
    with pytest.raises(AttributeError, match=f"the log contains only the display .* of .*{type(value).__name__}"):
        output.savefig("a.png")


class Wrong:
    def _repr_png_(self):
        return b"no image"


@pytest.mark.parametrize("value", [object(), Wrong(), Image])
def test_a_result_that_is_shown_as_text_is_refused(value):
    """A class is not an object for display."""
    with pytest.raises(UnstorableValueError, match=r"result\[0\]"):
        storable_result([value])


def test_an_object_for_display_is_recorded_inside_a_list_tuple_and_dict():
    recorded = opened(storable_result({"text": "owls", "figures": [Image(), (Page(), 3)]}))
    image, (page, number) = recorded["figures"]
    assert (recorded["text"], image.media_type, page.media_type, number) == ("owls", "image/png", "text/html", 3)


def test_a_frame_stays_a_frame_beside_a_figure():
    frame = pd.DataFrame({"n": [1, 2]})
    recorded = opened(storable_result([frame, Image()]))
    pd.testing.assert_frame_equal(recorded[0], frame)


def test_a_list_that_contains_itself_is_refused():
    endless = [Image()]
    endless.append(endless)
    with pytest.raises(UnstorableValueError, match="nested deeper"):
        storable_result(endless)


@pytest.mark.parametrize("value", [Page(), [Page()], {"page": Page()}])
def test_an_object_for_display_is_refused_as_an_input_an_argument_and_an_answer(value):
    @divebook.step
    def show(page: Any) -> str:
        return "shown"

    @divebook.workflow
    async def book(ctx, page: Any = None):
        return await show(Page())

    environment = Environment(
        store="memory:", workflows=[Workflow("w", [Step("a", ask="Which?")], inputs=["page"]), book]
    )
    with pytest.raises(UnstorableValueError):
        environment.start("w", {"page": value})
    waiting = environment.start("w", {"page": 1}).wait()
    with pytest.raises(InterruptError, match="not plain data"):
        environment.answer(waiting.open_questions[0].id, value)
    assert waiting.status == "waiting"
    failed = environment.start("book").wait()
    assert failed.status == "failed"
    assert "Page is not plain data" in failed.error


READ_RESULT = """
import sys
from divebook.events.codec import storable
from divebook.events.recorded import opened
from divebook.stores import open_store
store = open_store(sys.argv[1])
(record,) = store.records()
for event in store.read(record.execution_id):
    if event.event_type == "operation_completed":
        print(opened(event.data.result))
"""


def test_a_log_with_a_figure_is_read_by_a_process_that_runs_nothing(tmp_path):
    path = str(tmp_path / "runs.db")
    steps = [Step("draw", action="Test.Figure", store="figure")]
    draw = divebook.action("Test.Figure", idempotent=True)(Image)
    Environment(store=path, workflows=[Workflow("w", steps)], actions=[draw]).start("w").wait()
    done = subprocess.run([sys.executable, "-c", READ_RESULT, path], capture_output=True, text=True, check=True)
    assert "image/png" in done.stdout


def test_only_images_have_an_address():
    assert image_uri(storable_result(Image()), 1000) == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert image_uri(storable_result(Image()), 10) is None
    forged = normalize(RichOutput("text/html;base64,x", b"x", "a"))
    for value in (storable_result(Page()), forged, "data:image/png;base64,AAAA"):
        assert image_uri(value, 1000) is None


def test_views_get_the_image_whole_and_the_html_without_secrets():
    views = views_of(**opened(storable_result({"figure": Image(), "page": Page(), "password": Page()})))
    assert views["figure"]["type"] == "an image"
    assert views["figure"]["text"].startswith("data:image/png;base64,")
    assert (views["page"]["type"], views["page"]["text"]) == ("HTML output", Page()._repr_html_())
    assert "owls" not in views["password"]["text"]


def test_a_run_that_makes_a_figure_completes_and_its_report_and_its_saved_form_have_it():
    @divebook.action("Test.Figure", idempotent=True)
    def draw():
        return Image()

    steps = [Step("draw", action="Test.Figure", store="figure")]
    environment = Environment(store="memory:", workflows=[Workflow("w", steps)], actions=[draw])
    run = environment.start("w").wait()
    assert (run.status, run.variables["figure"].media_type) == ("completed", "image/png")
    address = image_uri(storable_result(Image()), 1000)
    assert f'src="{address}"' in run._repr_html_()
    saved = CleanRun(run, [*run.history()], Redactor()).recording(events=100, texts=100)
    assert [view["text"] for view in saved["variables"]] == [address]


class LargeImage:
    def _repr_png_(self):
        return PNG + LARGE


LARGE = random.Random(1).randbytes(200_000)


def test_a_large_image_is_a_data_reference_in_the_log_and_stored_once(tmp_path):
    """The events have the reference only, so that reading a log and following it do not load the image."""
    draw = divebook.action("Test.Draw", idempotent=True)(LargeImage)
    steps = [Step(name, action="Test.Draw", store=name) for name in ("figure", "copy")]
    path = tmp_path / "images.db"
    with Environment(store=path, workflows=[Workflow("w", steps)], actions=[draw]) as environment:
        run = environment.start("w").wait(60)
        assert (run.status, run.variables["copy"].content) == ("completed", PNG + LARGE)
    with closing(sqlite3.connect(path)) as database:
        (events,) = database.execute("select sum(length(data)) from events").fetchone()
        blobs = [size for (size,) in database.execute("select length(data) from blobs")]
    assert events < 20_000
    assert len(blobs) == 1
    assert blobs[0] >= len(LARGE)
