"""The lines of code that recorded failures name. Where code is located is no fact, so comparisons leave them out.

The text of a failure reads ``ZeroDivisionError: division by zero (step a, survey.yaml:7:11)``. Comments, another file
name, or reading the definition from the log instead of its file change the last part alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from divebook.events import catalog
from divebook.events.catalog import Payload


def place_label(data: Payload) -> str:
    """Return the line that a failure names, such as ``survey.yaml:7:11``; empty if it names none."""
    match data:
        case catalog.OperationFailed():
            place = (data.raised or {}).get("place")
        case catalog.StepFailed() | catalog.IterationFailed():
            place = data.place
        case _:
            return ""
    return str(place.get("label", "")) if isinstance(place, Mapping) else ""


def without_places(error: str, labels: Iterable[str]) -> str:
    """Return the text of a failure without the lines that it names; `labels` are those of the failures before it.

    >>> without_places("ZeroDivisionError: division by zero (step a, survey.yaml:7:11)", ["survey.yaml:7:11"])
    'ZeroDivisionError: division by zero (step a)'
    """
    for label in labels:
        head, mark, advice = error.rpartition(f", {label})")
        error = f"{head}){advice}" if mark else error
    return error
