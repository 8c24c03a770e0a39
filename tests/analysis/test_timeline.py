"""Where bars lie, and that their picture is harmless and well formed."""

import base64
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divebook.analysis.timeline import MAX_BARS, MAX_LANES, MAX_ROWS, layout, svg, svg_data_uri
from divebook.events.codec import decode_line
from divebook.projections.activity import Phase
from divebook.projections.spans import Span, spans_of
from divebook.text.colours import COLOURS

SVG = "{http://www.w3.org/2000/svg}"


def span(kind="step", name="a", started=0, ended=100, path="main", **values):
    return Span(kind, path, name, 1, "script", started, ended, values.pop("status", "completed"), **values)


def texts(picture):
    return [element.text for element in ET.fromstring(picture).iter() if element.text]


def test_each_path_has_a_lane_in_the_order_of_first_appearance():
    timeline = layout([span(path="main"), span(path="main-2"), span(path="main-1"), span(path="main")])
    assert [lane.path for lane in timeline.lanes] == ["main", "main-2", "main-1"]
    assert [len(lane.bars) for lane in timeline.lanes] == [2, 1, 1]


def test_operations_that_run_side_by_side_lie_in_rows_of_their_own():
    spans = [span(), *(span("operation", "a", start, start + 15) for start in (0, 10, 20))]
    (lane,) = layout(spans).lanes
    assert [bar.row for bar in lane.bars] == [0, 1, 2, 1]
    assert lane.rows == 3


def test_rows_are_limited():
    (lane,) = layout([span("operation", "a", index, 1000, operation_id=str(index)) for index in range(50)]).lanes
    assert lane.rows == 1 + MAX_ROWS


def test_an_item_that_is_one_operation_is_drawn_once():
    spans = [span(), span("item", iteration=0), span("operation", iteration=0)]
    assert [bar.span.kind for bar in layout(spans).lanes[0].bars] == ["step", "operation"]
    spans.append(span("operation", iteration=0))
    assert len(layout(spans).lanes[0].bars) == 4


def test_what_is_too_much_is_counted_and_what_failed_is_kept():
    spans = [span("operation", str(index), index, index + 1) for index in range(MAX_BARS + 50)]
    spans += [span("step", "s", 0, 400), span("operation", "bad", 400, 400, status="failed")]
    timeline = layout(spans)
    names = [bar.span.step for bar in timeline.lanes[0].bars]
    assert len(names) == MAX_BARS
    assert timeline.hidden_bars == 52
    assert {"s", "bad"} <= set(names)
    assert "not drawn: 52 shorter bars" in texts(svg(timeline))


def test_lanes_are_limited_and_a_failed_one_is_kept():
    spans = [span(path=f"main-{index}") for index in range(100)] + [span(path="main-x", status="failed")]
    timeline = layout(spans)
    assert len(timeline.lanes) == MAX_LANES
    assert timeline.lanes[-1].path == "main-x"
    assert timeline.hidden_lanes == 101 - MAX_LANES
    assert timeline.hidden_bars == 0


def test_a_running_bar_ends_now():
    timeline = layout([span(ended=50), span(started=50, ended=None, status="running")], now_us=200)
    assert (timeline.started_us, timeline.ended_us) == (0, 200)


@pytest.mark.parametrize("extent", [0, 1, 999, 1000, 1_234_567, 59_000_000, 86_400_000_000])
def test_every_extent_has_a_readable_axis(extent):
    assert 2 <= len(axis(svg(layout([span(ended=extent)])))) <= 9


def axis(picture):
    return [e.text for e in ET.fromstring(picture).iter(f"{SVG}text") if e.get("fill") == "#57606a"]


@pytest.mark.parametrize(
    ("extent", "labels"),
    [
        (3, ["0", "1 µs", "2 µs", "3 µs"]),
        (1500, ["0", "0.2 ms", "0.4 ms", "0.6 ms", "0.8 ms", "1.0 ms", "1.2 ms", "1.4 ms"]),
        (9999, ["0", "2 ms", "4 ms", "6 ms", "8 ms"]),
        (1_300_000, ["0", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1.0 s", "1.2 s"]),
        (6_700_000, ["0", "1 s", "2 s", "3 s", "4 s", "5 s", "6 s"]),
        (100_000_000, ["0", "30 s", "1 min", "1 min 30 s"]),
        (9_000_000_000, ["0", "30 min", "1 h", "1 h 30 min", "2 h", "2 h 30 min"]),
        (40 * 86_400_000_000, ["0", "7 d", "14 d", "21 d", "28 d", "35 d"]),
    ],
)
def test_ticks_are_round_and_named_in_one_unit(extent, labels):
    assert axis(svg(layout([span(ended=extent)]))) == labels


@given(st.integers(1, 10**14))
def test_no_two_ticks_have_the_same_name(extent):
    labels = axis(svg(layout([span(ended=extent)])))
    assert len(set(labels)) == len(labels)
    assert 2 <= len(labels) <= 9


def test_nothing_is_a_picture_too():
    assert ET.fromstring(svg(layout([]))).tag == f"{SVG}svg"


def test_a_hostile_name_is_text():
    hostile = '</text><script>alert(1)</script>"&\x00\x1b[31m\u202eevil\ud800'
    picture = svg(
        layout([span(name=hostile, ended=10_000), span(name=hostile, status="failed", error=hostile)]), hostile
    )
    root = ET.fromstring(picture)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
        "svg",
        "title",
        "style",
        "rect",
        "path",
        "text",
    }
    assert not set("\x00\x1b\u202e") & set(picture)
    assert root[0].tag == f"{SVG}title"


def test_a_state_is_told_without_its_colour():
    spans = [span(name="good"), span(name="bad", started=100, ended=200, status="failed")]
    shown = texts(svg(layout(spans)))
    assert "✕ bad" in shown
    assert "✕ failed" in shown


def test_the_picture_can_be_the_address_of_an_image():
    scheme, data = svg_data_uri("<svg/>").split(",")
    assert scheme == "data:image/svg+xml;base64"
    assert base64.b64decode(data) == b"<svg/>"


def test_a_turn_that_was_given_its_work_has_a_lane_below_the_one_that_gave_it():
    log = Path(__file__).parents[1] / "projections" / "turn.jsonl"
    spans = spans_of(decode_line(line) for line in log.read_bytes().splitlines())
    other = span(started=spans[-1].ended_us, ended=spans[-1].ended_us + 9, path="b")
    main, counter, b = layout([*spans, other]).lanes
    assert (main.path, counter.path, b.path) == ("main", "↳ counter", "b")
    assert [(bar.span.called, bar.row) for bar in counter.bars] == [("counter", 0), ("counter", 1)]
    picture = svg(layout(spans))
    assert "↳ counter" in picture
    assert all(name in picture for name in ("tool call", "model call", "cached answer", "turn"))


# --- folded waits ----------------------------------------------------------------------------------------------------

DAY = 86_400_000_000


def waited(*phases):
    """Return the timeline of a run that works 10 s, waits, and works 10 s again."""
    spans = [span(name="before", ended=10_000_000), span(name="after", started=3 * DAY, ended=3 * DAY + 10_000_000)]
    return layout(spans, phases=[Phase(*phase) for phase in phases])


def widths(picture):
    bars = [element for element in ET.fromstring(picture).iter(f"{SVG}rect") if element.find(f"{SVG}title") is not None]
    return {element.find(f"{SVG}title").text.split()[0]: float(element.get("width")) for element in bars}


def test_a_long_wait_is_folded_so_that_the_bars_beside_it_can_be_seen():
    picture = svg(waited(("waited", 10_000_000, 3 * DAY)))
    assert min(widths(picture).values()) > 200
    assert "waited 2 d 23 h" in texts(picture)
    assert "15 s" in texts(picture)  # the axis counts the time without the wait
    flattened = svg(waited())
    assert min(widths(flattened).values()) < 2


def test_short_waits_and_work_are_not_folded():
    assert waited(("worked", 10_000_000, 3 * DAY)).folds == ()
    spans = [span(ended=100_000_000)]
    assert layout(spans, phases=[Phase("asleep", 50_000_000, 53_000_000)]).folds == ()


def test_folds_of_a_forged_recording_do_not_overlap():
    folds = waited(("waited", 5_000_000, 3 * DAY), ("paused", 6_000_000, DAY), ("stopped", 2 * DAY, None)).folds
    assert all(one.ended_us <= other.started_us for one, other in pairwise(folds))
    svg(waited(("waited", -DAY, 9 * DAY), ("asleep", DAY, DAY)))


def test_a_picture_has_the_colours_of_a_dark_page():
    picture = svg(waited())
    (style,) = (element.text for element in ET.fromstring(picture).iter(f"{SVG}style"))
    assert style.startswith("@media (prefers-color-scheme:dark)")
    assert COLOURS["paper"].dark in style
    paper = next(element for element in ET.fromstring(picture).iter(f"{SVG}rect"))
    assert (paper.get("class"), paper.get("fill")) == ("paper", COLOURS["paper"].light)
