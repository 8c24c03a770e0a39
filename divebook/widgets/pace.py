"""What a header says of the course of an execution: what it does, how long it did what, how far its steps are.

Of the latest steps it also says what their rows gave.
"""

from __future__ import annotations

from collections.abc import Sequence

from divebook.history.course import PAUSED, STOPPED, WAITED, WORKED, Course, ItemProgress, Stretch
from divebook.history.spread import Spread, Spreads
from divebook.text.cuts import one_line
from divebook.widgets.protocol.run import Header, SpreadPart, SpreadView, StepProgress, StretchView

MOST_STRETCHES = 100
MOST_STEPS = 200
NAME = 120


def paced(header: Header, course: Course, spreads: Spreads) -> Header:
    """Return a header with what a course says; it is the same as long as the same goes on.

    Of `spreads` it has what was counted by now.
    """
    steps = course.progress[:MOST_STEPS]
    latest = spreads.latest(steps)
    was_left = course.doing == WORKED and not header["live"]
    stretches = [*course.stretches, *([course.lasting] if course.lasting is not None else [])]
    longest = sorted(stretches, key=_length)[-MOST_STRETCHES:]
    return {
        **header,
        "doing": STOPPED if was_left else course.doing,
        "since_us": (course.last_us if was_left else course.since_us) or None,
        "worked_us": course.before(WORKED) + (course.last_us - course.since_us if was_left else 0),
        "waited_us": course.before(WAITED),
        "paused_us": course.before(PAUSED),
        "stretches": [_stretch(one) for one in sorted(longest, key=lambda one: one.started_us)],
        "progress": [_progress(told, latest.get(told.step, ())) for told in steps],
    }


def _length(stretch: Stretch) -> float:
    return float("inf") if stretch.ended_us is None else stretch.ended_us - stretch.started_us


def _stretch(stretch: Stretch) -> StretchView:
    return StretchView(doing=stretch.doing, begin_us=stretch.started_us, end_us=stretch.ended_us)


def _progress(told: ItemProgress, spread: Sequence[Spread]) -> StepProgress:
    return StepProgress(
        step=one_line(told.step, NAME),
        done=told.done,
        total=told.total,
        failed=told.failed,
        running=told.running > 0,
        left_us=told.left_us,
        at_us=told.at_us,
        spread=[_spread(one) for one in spread],
    )


def _spread(told: Spread) -> SpreadView:
    return SpreadView(
        name=told.name,
        kind=told.kind,
        parts=[SpreadPart(name=name, count=rows) for name, rows in told.parts],
        others=SpreadPart(name=told.others.name, count=told.others.rows),
        empty=told.empty,
        least=told.least,
        greatest=told.greatest,
        words=told.words,
    )
