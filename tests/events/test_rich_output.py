"""Results that notebooks display as an image or as HTML: recorded as such, shown in views and saved, and never run."""

import base64

import pytest

import divebook
from divebook import Environment, Step, Workflow
from divebook.errors import UnstorableValueError
from divebook.events.recorded import opened
from divebook.events.rich_output import RichOutput, image_uri, recorded_output
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
    recorded = normalize(value)
    assert recorded_output(recorded) == (media_type, content)
    output = opened(recorded)
    bundle, _ = output._repr_mimebundle_()
    expected = base64.b64encode(content).decode() if media_type == "image/png" else content.decode()
    assert bundle[media_type] == expected
    with pytest.raises(AttributeError, match=f"the log holds only the display .* of .*{type(value).__name__}"):
        output.savefig("a.png")


class Wrong:
    def _repr_png_(self):
        return b"no image"


def test_what_is_shown_as_text_is_refused_as_before():
    for value in (object(), Wrong(), Image):  # a class is no object for display
        with pytest.raises(UnstorableValueError):
            normalize(value)


def test_only_images_have_an_address():
    assert image_uri(normalize(Image()), 1000) == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert image_uri(normalize(Image()), 10) is None
    forged = normalize(RichOutput("text/html;base64,x", b"x", "a"))
    for value in (normalize(Page()), forged, "data:image/png;base64,AAAA"):
        assert image_uri(value, 1000) is None


def test_views_get_the_image_whole_and_the_html_without_secrets():
    views = views_of(figure=Image(), page=Page(), password=Page())
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
    address = image_uri(normalize(Image()), 1000)
    assert f'src="{address}"' in run._repr_html_()
    saved = CleanRun(run, [*run.history()], Redactor()).recording(events=100, texts=100)
    assert [view["text"] for view in saved["variables"]] == [address]
