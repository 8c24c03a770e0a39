"""Events of an execution: immutable recorded facts, and their encoding."""

from divebook.events.event import Event

__all__ = ["Event"]
