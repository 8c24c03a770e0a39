"""What people call what has no name of its own: items of `Each`, sleeps, pauses between attempts, waits for signals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from divebook.engine.operations import SIGNAL_WAIT, TIMER
from divebook.history.spans import Span
from divebook.text.cuts import one_line
from divebook.text.durations import seconds
from divebook.workflow.definition import Each, Workflow

PlaceOf: TypeAlias = Callable[[Span], str]
"""Returns the place of the item that something belongs to: ``rows[4321]``."""

WIDTH = 60
_LOOKED_AT = 500
"""Characters of a text that are looked at."""
MOST_NUMBER = 10**15
_TELLING = ("name", "id", "title", "key", "label", "path", "file", "url", "question", "text")
"""Fields that tell one item from the others, the most telling first."""
_UNKNOWN = Each()


def places_in(workflow: Workflow) -> PlaceOf:
    """Return what says the place of an item: in the variable that its step goes through, else in the step itself."""
    loops = {step.name: step.each for step in workflow.steps if step.each is not None}

    def place_of(span: Span) -> str:
        each, index = loops.get(span.step, _UNKNOWN), span.iteration
        return "" if index is None else each.item_name(index, span.item_key, span.step)

    return place_of


def item_name(span: Span, place_of: PlaceOf) -> str:
    """Return what tells the item that something belongs to from the others, else its place; empty outside `Each`."""
    if span.iteration is None:
        return ""
    told = span.item if span.item_key is None else span.item_key
    if isinstance(told, Mapping):
        told = next((told[key] for key in _TELLING if isinstance(told.get(key), str | int) and told[key] != ""), None)
    text = told[:_LOOKED_AT] if isinstance(told, str) else str(told) if _is_short(told) else ""
    return one_line(text, WIDTH) or one_line(place_of(span), WIDTH)


def _is_short(number: object) -> bool:
    """Whether something is a number of few digits; longer ones are no name, and some cannot be written at all."""
    return isinstance(number, int | float) and abs(number) < MOST_NUMBER


def sleep_name(span: Span) -> str | None:
    """Return what an operation waits for in which nothing happens; None of all others.

    ``sleep 5 min 00 s``, ``2.0 s before attempt 3``, ``signal 'approved', at most 1 h 00 min``.
    """
    given = span.parameters or {}
    time = seconds(given["seconds"]) if _is_short(given.get("seconds")) else ""
    if span.type == SIGNAL_WAIT:
        return f"signal {str(given.get('signal', ''))!r}" + (f", at most {time}" if time else "")
    if span.type != TIMER:
        return None
    if not span.is_pause:
        return f"sleep {time}".strip()
    failures = str(span.key).rpartition("-")[2]
    return f"{time or 'a pause'} before attempt {int(failures) + 1}"
