"""What one request is, what it may spend and what became of it; inside an execution a fold of its log."""

from divebook.envelope.bounds import Bounds

__all__ = ["Bounds"]
