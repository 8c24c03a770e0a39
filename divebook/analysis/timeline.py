"""Timeline of an execution: the layout of its bars, and an SVG picture that needs only an image viewer.

`layout` is pure, and follows the rules of the live view (``widgets/test/cases/lanes.json``). It makes a lane for each
path. A lane has a row for steps, and below it rows for items and operations, as many as ran concurrently. Below it is a
lane for each turn of an agent that another agent delegated work to. `svg` draws a layout. The colours are those of
`divebook.text.colours`. Each colour has a sign or line with the same meaning, and the table beside the picture contains
it as well.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from xml.sax.saxutils import escape

from divebook.engine.operations import (
    ACTION_EXECUTION,
    AGENT_RESPONSE,
    AGENT_TURN,
    CACHED_RESPONSE,
    SCRIPT_EXECUTION,
    STEP_EXECUTION,
    TOOL_CALL,
    operation_kind,
)
from divebook.events.catalog import CANCELLED, COMPLETED, FAILED, RUNNING
from divebook.events.event import MICROSECONDS
from divebook.projections.activity import ASLEEP, PAUSED, STOPPED, WAITED, Phase
from divebook.projections.spans import Span
from divebook.text.colours import COLOURS, LIGHT, STATUS_SIGNS
from divebook.text.format import branch_name, in_parts, plural, seconds
from divebook.text.redaction import one_line

MAX_BARS = 300
MAX_LANES = 30
MAX_ROWS = 6
"""Rows for items and operations in one lane; more of them share the last row."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Bar of a timeline: a span, and the number of its row within the lane. Row 0 is for steps."""

    span: Span
    row: int


@dataclass(frozen=True, slots=True)
class Lane:
    """Lane of a timeline: the bars of one path, or of one turn of an agent to which work was delegated."""

    path: str
    """Name of the path or agent."""
    bars: tuple[Bar, ...]

    @property
    def rows(self) -> int:
        """Number of rows that the bars of the lane need."""
        return 1 + max((bar.row for bar in self.bars), default=0)


@dataclass(frozen=True, slots=True)
class Fold:
    """Period without calls that the time axis shows with a fixed width, however long it is."""

    started_us: int
    ended_us: int
    reason: str

    @property
    def took_us(self) -> int:
        """Length of the period in microseconds."""
        return self.ended_us - self.started_us


@dataclass(frozen=True, slots=True)
class Timeline:
    """Layout of a timeline: lanes with bars, start and end time, the folded periods in the order of time, and how many
    bars and lanes were left out for lack of space.
    """

    lanes: tuple[Lane, ...]
    started_us: int
    ended_us: int
    hidden_bars: int = 0
    hidden_lanes: int = 0
    folds: tuple[Fold, ...] = ()


def layout(
    spans: Sequence[Span],
    *,
    phases: Iterable[Phase] = (),
    now_us: int | None = None,
    max_bars: int = MAX_BARS,
    max_lanes: int = MAX_LANES,
) -> Timeline:
    """Place the spans of an execution in the lanes and rows of a timeline.

    Parameters
    ----------
    spans
        The spans, in the order in which they started.
    phases
        Periods in which no call ran (`divebook.projections.activity`). The long ones are folded.
    now_us
        End of the bars that are still running, in microseconds; by default the latest time in the spans.
    max_bars, max_lanes
        Maximum numbers of bars and lanes. Bars and lanes that are left out are counted; failures and steps are drawn
        first.
    """
    drawn = _without_doubles(spans)
    names = _lanes(drawn)
    place = _lane_of(drawn)
    shown = _most_telling_lanes(names, drawn, place, max_lanes)
    drawn_spans = _most_telling([span for span in drawn if place(span) in shown], max_bars)
    # All spans determine the time axis, also those that are not drawn, so that the axis does not depend on limits.
    moments = [moment for span in drawn for moment in (span.started_us, span.ended_us or span.started_us)]
    started = min(moments, default=0)
    ended = max([*moments, now_us or 0])
    lanes = tuple(
        Lane(name, _rows(span for span in drawn_spans if place(span) == lane))
        for lane, name in names.items()
        if lane in shown
    )
    # Bars are counted as hidden only in lanes that are shown.
    in_shown = sum(place(span) in shown for span in drawn)
    folds = _folds(phases, started, ended)
    return Timeline(lanes, started, ended, in_shown - len(drawn_spans), len(names) - len(shown), folds)


MAX_FOLDS = 6
LEAST_FOLD_US = 2 * MICROSECONDS
"""Minimum length of a folded period."""
LEAST_FOLD_SHARE = 0.1
"""Minimum length of a folded period, as a share of the time that remains when all candidates are folded. A shorter one
takes little room, and is drawn at its length.
"""
_REASONS = {WAITED: "waited", PAUSED: "paused", ASLEEP: "slept", STOPPED: "stopped"}


def _folds(phases: Iterable[Phase], started: int, ended: int) -> tuple[Fold, ...]:
    """Return the periods to fold, in the order of time, by the rules of the live view
    (``widgets/src/timeline/timemap.ts``).

    A run that waited three days for an answer would otherwise show its calls as a few pixels at both ends.
    """
    candidates: list[Fold] = []
    for phase in sorted(phases, key=lambda phase: phase.started_us):
        until = ended if phase.ended_us is None else min(phase.ended_us, ended)
        # Phases of a forged recording may overlap; a fold begins behind the previous one.
        since = max([phase.started_us, started, *(fold.ended_us for fold in candidates[-1:])])
        if until - since >= LEAST_FOLD_US and phase.doing in _REASONS:
            candidates.append(Fold(since, until, _REASONS[phase.doing]))
    remaining = ended - started - sum(fold.took_us for fold in candidates)
    long = [fold for fold in candidates if fold.took_us >= remaining * LEAST_FOLD_SHARE]
    longest = sorted(long, key=lambda fold: -fold.took_us)[:MAX_FOLDS]
    return tuple(sorted(longest, key=lambda fold: fold.started_us))


def layout_of_runs(runs: Mapping[str, Sequence[Span]], *, max_bars: int = MAX_BARS, max_lanes: int = 4) -> Timeline:
    """Place the spans of several runs below each other, on one time axis. Their times must begin at the same moment.

    Parameters
    ----------
    runs
        Spans of each run by its name, which begins the names of its lanes.
    max_bars, max_lanes
        Maximum numbers of bars and lanes of one run.
    """
    timelines = {name: layout(spans, max_bars=max_bars, max_lanes=max_lanes) for name, spans in runs.items()}
    lanes = tuple(
        Lane(f"{name} {branch_name(lane.path)}".rstrip() if number else name, lane.bars)
        for name, timeline in timelines.items()
        for number, lane in enumerate(timeline.lanes)
    )
    return Timeline(
        lanes,
        min((timeline.started_us for timeline in timelines.values()), default=0),
        max((timeline.ended_us for timeline in timelines.values()), default=0),
        sum(timeline.hidden_bars for timeline in timelines.values()),
        sum(timeline.hidden_lanes for timeline in timelines.values()),
    )


def _without_doubles(spans: Sequence[Span]) -> list[Span]:
    """Return the spans without those items of `Each` that consist of one operation only. The operation has a bar of its
    own, which would look the same.
    """
    operations: dict[tuple[str, str, int, int | None], int] = {}
    for span in spans:
        if span.kind == "operation":
            operations[_place(span)] = operations.get(_place(span), 0) + 1
    return [span for span in spans if span.kind != "item" or operations.get(_place(span), 0) != 1]


def _place(span: Span) -> tuple[str, str, int, int | None]:
    return span.path, span.step, span.visit, span.iteration


_LaneKey: TypeAlias = str | int
"""A path, or the index of an agent's turn with delegated work."""


def _lane_of(spans: Iterable[Span]) -> Callable[[Span], _LaneKey]:
    """Return a function that takes a span and returns the key of the lane for its bar. The key stands for a path, or
    for a turn of an agent to which work was delegated.
    """
    delegated_turns = {span.index for span in spans if _is_delegated(span)}

    def place(span: Span) -> _LaneKey:
        if _is_delegated(span):
            return span.index
        # A span belongs to the lane of the delegated turn that contains it, else to that of its path. Turns that are
        # not delegated have no lane of their own.
        return span.holder if span.holder in delegated_turns else span.path

    return place


def _is_delegated(span: Span) -> bool:
    return span.type == AGENT_TURN and span.holder >= 0


def _lanes(spans: Sequence[Span]) -> dict[_LaneKey, str]:
    """Return the names of the timeline's lanes by key, from top to bottom. The lane of a delegated turn is below the
    lane of the agent that delegated it.
    """
    place = _lane_of(spans)
    # {lane above: lanes below it, in the order of their first span}; "" stands for the top.
    below = dict[_LaneKey, list[_LaneKey]]()
    names: dict[_LaneKey, str] = {}
    by_index = {span.index: span for span in spans}
    for span in spans:
        lane = place(span)
        if lane not in names:
            names[lane] = f"↳ {span.called}" if _is_delegated(span) else span.path
            above = by_index.get(span.holder)
            below.setdefault("" if above is None else place(above), []).append(lane)
    ordered: dict[_LaneKey, str] = {}
    # Depth first: the lane of a delegated turn follows the lane that delegated it, before the next path.
    waiting = [*reversed(below.get("", []))]
    while waiting:
        lane = waiting.pop()
        ordered[lane] = names[lane]
        waiting += reversed(below.get(lane, []))
    return ordered


def _most_telling_lanes(
    lanes: Iterable[_LaneKey], spans: Iterable[Span], place: Callable[[Span], _LaneKey], limit: int
) -> set[_LaneKey]:
    failed = {place(span) for span in spans if span.status == FAILED}
    # The sort is stable, so that lanes without a failure keep their order.
    return set(sorted(lanes, key=lambda lane: lane not in failed)[:limit])


def _most_telling(spans: Sequence[Span], limit: int) -> list[Span]:
    """Select the spans to draw if there are too many: failed or running spans first, then steps, then the longest
    spans. Return them in their original order.
    """

    def rank(index: int) -> tuple[bool, bool, int]:
        span = spans[index]
        return span.status not in (FAILED, RUNNING), span.kind != "step", -(span.duration_us or 0)

    # The inner sort selects the spans, the outer one restores their order.
    places = sorted(sorted(range(len(spans)), key=rank)[:limit])
    return [spans[index] for index in places]


def _rows(spans: Iterable[Span]) -> tuple[Bar, ...]:
    """Assign the spans of a lane to rows, and return them as bars. Each item or operation gets the first row that is
    free when it starts.
    """
    bars = []
    # By row: the time from which it is free. The row of a running span stays occupied.
    free: list[float] = [0] * MAX_ROWS
    for span in spans:
        if span.kind == "step" or _is_delegated(span):
            bars.append(Bar(span, 0))
            continue
        # More concurrent spans than rows share the last row.
        row = next((index for index, moment in enumerate(free) if moment <= span.started_us), MAX_ROWS - 1)
        free[row] = math.inf if span.ended_us is None else span.ended_us
        bars.append(Bar(span, row + 1))
    return tuple(bars)


# --- the picture ------------------------------------------------------------------------------------------------------

WIDTH = 760
LEFT = 104
RIGHT = 16
TOP = 14
STEP_HEIGHT = 20
ROW_HEIGHT = 8
LANE_GAP = 10
FOOT = 44
FONTS = "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"
CHARACTER = 6.3
"""Approximate width of a character of the labels."""
PAPER = LIGHT["paper"]
INK = LIGHT["ink"]
LINE = LIGHT["line"]
STATUS_COLOURS = {COMPLETED: "step", RUNNING: "running", FAILED: "failed", CANCELLED: "cancelled"}
"""Names of colours, as in the live view."""
TYPE_COLOURS = {
    AGENT_TURN: "turn",
    AGENT_RESPONSE: "model",
    CACHED_RESPONSE: "model",
    TOOL_CALL: "tool",
    ACTION_EXECUTION: "action",
    SCRIPT_EXECUTION: "script",
    STEP_EXECUTION: "script",
}
"""Names of colours by type of operation, also of the live view."""
OTHER_COLOUR = "other"
UNKNOWN_COLOUR = "ink"
SIGNS = {status: f"{STATUS_SIGNS[status]} " for status in (FAILED, RUNNING, CANCELLED)}
"""Signs before the name of a bar. A completed bar needs none."""
FOLD_WIDTH = 96
"""Width of a folded period whose reason and length are written below it."""
NARROW_FOLD_WIDTH = 48
"""Width of each of more than `MAX_WIDE_FOLDS` folds, which have their length below them."""
MAX_WIDE_FOLDS = 2
_THEMES = {"paper": "fill", "ink": "fill", "soft": "fill", "line": "stroke", "edge": "stroke", "wait": "stroke"}
"""CSS property of each class of the picture, which is named for its colour."""


def svg(timeline: Timeline, title: str = "Timeline") -> str:
    """Return a timeline as a standalone SVG document, with the colours of the light or dark theme of the page.

    The colours of the light theme are attributes, which each viewer of images applies. A browser replaces them on a
    dark page: its colour scheme also applies to images.
    """
    tops, bottom = _tops(timeline.lanes)
    scale = _Scale(timeline)
    height = bottom + FOOT
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    frame = f'x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="{FONTS}" font-size="11">',
        f"<title>{_text(title, 200)}</title>",
        f"<style>@media (prefers-color-scheme:dark){{{_dark_rules()}}}</style>",
        f'<rect class="paper" {frame} fill="{PAPER}"/>',
        f'<rect class="line" {frame} fill="none" stroke="{LINE}"/>',
        *_axis(scale, bottom),
        *_drawn_folds(scale, bottom),
    ]
    for lane, top in zip(timeline.lanes, tops, strict=True):
        parts += _lane(lane, top, scale)
    return "".join([*parts, *_legend(timeline, height - 12), "</svg>"])


def _dark_rules() -> str:
    """Return the style rules of the dark theme: those of the classes, and those of the fills that differ between the
    themes.
    """
    rules = [f".{name}{{{attribute}:{COLOURS[name].dark}}}" for name, attribute in _THEMES.items()]
    for name in {*STATUS_COLOURS.values(), *TYPE_COLOURS.values(), OTHER_COLOUR}:
        fills = [fill for fill in (name, f"{name}-text") if COLOURS[fill].light != COLOURS[fill].dark]
        rules += [f".{fill}{{fill:{COLOURS[fill].dark}}}" for fill in fills]
    return "".join(sorted(rules))


def svg_data_uri(picture: str) -> str:
    """Return an SVG document as a data URI for an HTML image."""
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.encode()).decode('ascii')}"


class _Scale:
    """Scale of a timeline, which converts times in microseconds to horizontal positions in pixels.

    A fold takes a fixed width. With one of 96 pixels from 10 s to 100 s, and one pixel for each other second, the
    positions of 10 s, 100 s and 101 s are 10, 106 and 107 pixels from the left edge. The axis counts the time without
    the folds, so that the ticks continue behind a fold: 101 s has the label 11 s.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.started = timeline.started_us
        self.folds = timeline.folds
        # At least one microsecond, since the length is a divisor.
        self.ended = max(timeline.ended_us, timeline.started_us + 1)
        self.fold_width = FOLD_WIDTH if len(self.folds) <= MAX_WIDE_FOLDS else NARROW_FOLD_WIDTH
        self.extent = max(1, self.ended - self.started - sum(fold.took_us for fold in self.folds))
        self._factor = (WIDTH - LEFT - RIGHT - len(self.folds) * self.fold_width) / self.extent

    def x(self, moment: int | None) -> float:
        end = min(self.ended if moment is None else moment, self.ended)
        offset = end - self.started
        width = 0.0
        for fold in self.folds:
            # The part of the fold before the moment: all of it, a share of it, or nothing.
            part = min(max(end - fold.started_us, 0), fold.took_us)
            offset -= part
            width += self.fold_width * part / fold.took_us
        return LEFT + offset * self._factor + width

    def ticks(self) -> list[tuple[float, str]]:
        """Return the positions and labels of the ticks: at round intervals of the time from the start without the
        folds.
        """
        distance = _distance(self.extent)
        return [
            (self.x(self._real(offset)), tick_label(offset, distance, self.extent) if offset else "0")
            for offset in range(0, self.extent + 1, distance)
        ]

    def _real(self, offset: int) -> int:
        """Return the moment of a time that does not count the folds."""
        moment = self.started + offset
        for fold in self.folds:
            # A tick exactly at a fold stands at its beginning.
            if moment > fold.started_us:
                moment += fold.took_us
        return moment


_MINUTE = 60_000_000
_CLOCK = [MICROSECONDS * part for part in (10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)]
_MOST_TICKS = 8
"""Ticks that fit beside each other if their labels are numbers with a unit."""
_MOST_WIDE_TICKS = 6
"""Ticks that fit beside each other if their labels are minutes and hours."""


def _distance(extent: int) -> int:
    """Return the interval between two ticks of the time axis, in microseconds: a round decimal below a minute, above it
    a round number as on a clock.
    """
    if extent >= _MINUTE:
        # Beyond a day, ticks are at whole days: the number of days is rounded up.
        days = _CLOCK[-1] * -(-extent // (_CLOCK[-1] * _MOST_WIDE_TICKS))
        return next((part for part in _CLOCK if extent <= part * _MOST_WIDE_TICKS), days)
    # 3200 -> 1000, whose tenths and multiples are tried: 100, 200, 500, 1000, 2000.
    unit: int = 10 ** (len(str(extent)) - 1)
    parts = (unit * part // 10 for part in (1, 2, 5, 10, 20))
    return max(1, next(part for part in parts if extent <= part * _MOST_TICKS))


def tick_label(moment: int, distance: int, extent: int) -> str:
    """Format a time on the axis of a timeline, with a unit that fits the total duration, and as many decimals as the
    interval between ticks needs.

    >>> tick_label(1500, 500, 3200), tick_label(2_000_000, 1_000_000, 7_000_000), tick_label(90_000_000, 1, 95_000_000)
    ('1.5 ms', '2 s', '1 min 30 s')
    """
    if extent >= _MINUTE:
        return in_parts(moment // MICROSECONDS)
    size, unit = 1, "µs"
    if extent >= MICROSECONDS:
        size, unit = MICROSECONDS, "s"
    elif extent >= 1000:
        size, unit = 1000, "ms"
    # As many decimals as the distance between ticks needs: 500 µs in ms -> 1.
    decimals = next(count for count in range(7) if distance * 10**count % size == 0)
    return f"{moment / size:.{decimals}f} {unit}"


def _tops(lanes: Sequence[Lane]) -> tuple[list[int], int]:
    """Return vertical positions in the picture: the upper edge of each lane from top to bottom, and at last the lower
    edge of the lowest lane.
    """
    tops = []
    y = TOP
    for lane in lanes:
        tops.append(y)
        y += STEP_HEIGHT + (lane.rows - 1) * ROW_HEIGHT + LANE_GAP
    return tops, y


def _axis(scale: _Scale, bottom: int) -> list[str]:
    parts = []
    # The words below the folds; the labels of ticks keep clear of them.
    words = [(x - 4, x + scale.fold_width + 4) for x in (scale.x(fold.started_us) for fold in scale.folds)]
    for number, (x, label) in enumerate(scale.ticks()):
        # The first label begins at its tick and the last one ends there, so that they stay inside the picture.
        anchor = "start" if number == 0 else "middle" if x < WIDTH - RIGHT - 20 else "end"
        half = len(label) * CHARACTER / 2
        start_x = x if anchor == "start" else x - half if anchor == "middle" else x - 2 * half
        parts.append(f'<path class="line" d="M{x:.1f} {TOP - 6}V{bottom}" stroke="{LINE}" stroke-width="1"/>')
        if not any(start_x < end and start_x + 2 * half > begin for begin, end in words):
            text = f'text-anchor="{anchor}" fill="{LIGHT["soft"]}">{label}</text>'
            parts.append(f'<text class="soft" x="{x:.1f}" y="{bottom + 12}" {text}')
    return parts


def _drawn_folds(scale: _Scale, bottom: int) -> Iterator[str]:
    """Yield the folds: hatched, between two broken lines as of a torn picture, with the reason and length below."""
    for fold in scale.folds:
        start_x = scale.x(fold.started_us)
        end_x = start_x + scale.fold_width
        took = _length(fold.took_us // MICROSECONDS)
        label = f"{fold.reason} {took}" if scale.fold_width == FOLD_WIDTH else took
        yield f"<g><title>{fold.reason} {took}</title>"
        lines = "".join(
            f"M{x:.1f} {bottom}L{min(x + 14, end_x):.1f} {TOP - 6}" for x in _steps_between(start_x, end_x - 6, 12)
        )
        yield f'<path class="wait" d="{lines}" stroke="{LIGHT["wait"]}" stroke-opacity=".35" fill="none"/>'
        for edge in (start_x, end_x):
            teeth = "".join(f"l{'3' if turn % 2 else '-3'} 5" for turn in range((bottom - TOP + 6) // 5))
            yield f'<path class="edge" d="M{edge + 1.5:.1f} {TOP - 6}{teeth}" stroke="{LIGHT["edge"]}" fill="none"/>'
        middle = (start_x + end_x) / 2
        text = f'text-anchor="middle" fill="{INK}">{label}</text>'
        yield f'<text class="ink" x="{middle:.1f}" y="{bottom + 12}" {text}</g>'


def _steps_between(start: float, end: float, distance: float) -> list[float]:
    return [start + distance * number for number in range(max(0, math.ceil((end - start) / distance)))]


def _length(whole: int) -> str:
    """Format whole seconds by their two largest units.

    >>> _length(200_000), _length(3600), _length(75)
    ('2 d 7 h', '1 h', '1 min 15 s')
    """
    # Pairs of a number and a unit: "2 d 7 h 33 min 20 s" -> "2 d 7 h".
    return " ".join(in_parts(whole).split(" ")[:4])


def _lane(lane: Lane, top: int, scale: _Scale) -> list[str]:
    parts = [
        f'<text class="ink" x="12" y="{top + 14}" fill="{INK}">{_text(branch_name(lane.path) or lane.path, 15)}</text>'
    ]
    steps = [bar for bar in lane.bars if bar.row == 0]
    # A label beside a bar may extend to the next step, at most to the edge of the picture.
    ends = [scale.x(bar.span.started_us) for bar in steps[1:]]
    for bar, room in zip(steps, [*ends, float(WIDTH - 4)], strict=True):
        parts.append(_bar(bar.span, top, STEP_HEIGHT - 2, _colour(bar.span), scale))
        parts.append(_label(bar.span, top + 13, room, scale))
    for bar in lane.bars:
        if bar.row > 0:
            y = top + STEP_HEIGHT + (bar.row - 1) * ROW_HEIGHT
            parts.append(_bar(bar.span, y, ROW_HEIGHT - 2, _colour(bar.span), scale))
    return parts


_OUTLINES = {FAILED: f' stroke="{INK}"', RUNNING: f' stroke="{INK}" stroke-dasharray="3 2"'}


def _step_colour(span: Span) -> str:
    return STATUS_COLOURS.get(span.status, UNKNOWN_COLOUR)


def _colour(span: Span) -> str:
    if span.kind == "step" or span.status != COMPLETED:
        return _step_colour(span)
    return TYPE_COLOURS.get(span.type, OTHER_COLOUR)


def _bar(span: Span, y: int, height: int, colour: str, scale: _Scale) -> str:
    x = scale.x(span.started_us)
    # 1.5 pixels, so that a very short span can be seen.
    width = max(scale.x(span.ended_us) - x, 1.5)
    outline = _OUTLINES.get(span.status, "")
    return (
        f'<rect class="{colour}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" rx="2" '
        f'fill="{LIGHT[colour]}"{outline}>'
        f"<title>{_text(_tooltip(span), 200)}</title></rect>"
    )


def _tooltip(span: Span) -> str:
    took = "" if span.duration_us is None else f", {seconds(span.duration_us / 1e6)}"
    error = f": {span.headline}" if span.error else ""
    called = f" {span.called}" if span.called else ""
    return f"{span.name} ({operation_kind(span.type)}{called}), {span.status}{took}{error}"


def _label(span: Span, y: int, room: float, scale: _Scale) -> str:
    """Return the SVG text that names a bar, placed inside the bar or to its right; an empty string if there is not
    enough room.
    """
    x = scale.x(span.started_us)
    right = scale.x(span.ended_us)
    name = SIGNS.get(span.status, "") + one_line(span.step if span.kind == "step" else span.called or "", 40)
    needed = len(name) * CHARACTER + 8
    if needed <= right - x:
        # The text colour for a bar of this colour, or that of the paper.
        name_of_fill = f"{_colour(span)}-text"
        text_class = name_of_fill if name_of_fill in LIGHT else "paper"
        return f'<text class="{text_class}" x="{x + 5:.1f}" y="{y}" fill="{LIGHT[text_class]}">{escape(name)}</text>'
    if needed <= room - right:
        return f'<text class="ink" x="{right + 4:.1f}" y="{y}" fill="{INK}">{escape(name)}</text>'
    return ""


def _legend(timeline: Timeline, y: int) -> list[str]:
    """Return the SVG legend that explains the colours in the picture and how many bars and lanes were left out.

    Only colours of statuses and types that occur in the picture are listed.
    """
    spans = [bar.span for lane in timeline.lanes for bar in lane.bars]
    entries = [
        (colour, f"{SIGNS.get(status, '')}{status}")
        for status, colour in STATUS_COLOURS.items()
        if any(span.status == status for span in spans)
    ]
    # Statuses other than "completed" have their own colour, whatever the type.
    types = dict.fromkeys(span.type for span in spans if span.kind != "step" and span.status == COMPLETED)
    entries += [(TYPE_COLOURS.get(type_, OTHER_COLOUR), operation_kind(type_)) for type_ in types]
    parts = []
    x = float(LEFT)
    for colour, name in entries:
        swatch = f'y="{y - 8}" width="9" height="9" rx="2" fill="{LIGHT[colour]}"/>'
        parts.append(f'<rect class="{colour}" x="{x:.1f}" {swatch}')
        parts.append(f'<text class="ink" x="{x + 13:.1f}" y="{y}" fill="{INK}">{_text(name, 30)}</text>')
        # Approximate widths, because an SVG picture cannot measure text.
        x += 13 + len(name) * CHARACTER + 16
    left_out = _left_out(timeline)
    if left_out:
        text = f'text-anchor="end" fill="{INK}">{left_out}</text>'
        parts.append(f'<text class="ink" x="{WIDTH - RIGHT}" y="{y}" {text}')
    return parts


def _left_out(timeline: Timeline) -> str:
    counts = [(timeline.hidden_bars, "shorter bar"), (timeline.hidden_lanes, "lane")]
    counts_in_words = [plural(count, noun) for count, noun in counts if count]
    return f"not drawn: {', '.join(counts_in_words)}" if counts_in_words else ""


def _text(text: str, width: int) -> str:
    return escape(one_line(text, width))
