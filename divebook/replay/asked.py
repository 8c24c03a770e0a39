"""The request to a model that was under way, or done last, at a position of a log."""

from __future__ import annotations

from divebook.events import Event
from divebook.events.catalog import StepStarted
from divebook.history.requests import RequestView, requests_of
from divebook.replay.positions import Positions
from divebook.replay.stops import asks_model


def request_at(positions: Positions, position: int) -> RequestView | None:
    """Return the request that began last, with what was answered to it by then; None before the first.

    Only the visit to its step is read, whatever the length of the log.
    """
    behind: list[Event] = []
    asked: Event | None = None
    for event in positions.backwards(position + 1):
        behind.append(event)
        if asked is None and asks_model(event):
            asked = event
            behind = [later for later in behind if (later.path, later.step) == (event.path, event.step)]
        elif asked is not None and (event.path, event.step) != (asked.path, asked.step):
            behind.pop()
        elif asked is not None and isinstance(event.data, StepStarted):
            break
    if asked is None:
        return None
    return next((found for found in requests_of(reversed(behind)) if asked.sequence in found.span.sequences), None)
