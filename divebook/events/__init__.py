"""Event types of an execution's log, recorded forms of Python values, and the JSON encoding of both."""

from divebook.events.event import Event

__all__ = ["Event"]
