"""Events: immutable facts of what happened, and how they are written down."""

from divebook.events.event import Event

__all__ = ["Event"]
