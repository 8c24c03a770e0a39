"""What happened: immutable facts, and how they are written down."""

from divebook.events.event import Event

__all__ = ["Event"]
