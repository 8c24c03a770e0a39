"""A view and its kernel: what every view says to be told, and what became of what a person wanted."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

Micros: TypeAlias = int
"""Microseconds since 1970."""
Command: TypeAlias = Literal["pause", "resume", "cancel", "plan", "fix", "again"]
"""``plan`` does nothing: its acknowledgement says what ``fix`` would do, or nothing where that needs no consent."""
BundleName: TypeAlias = Literal["failure", "files", "graph", "spread", "stepping", "timeline", "turn", "variables"]
"""A part of the front end that only some runs need."""


class Hello(TypedDict):
    """A view begins, or has missed something."""

    type: Literal["hello"]
    view: str
    since: int
    """Sequence number of the last event it knows of; 0 for none."""


class Alive(TypedDict):
    """A view is still there; one that was forgotten meanwhile is welcomed anew."""

    type: Literal["alive"]
    view: str
    since: int


class Hosted(TypedDict):
    """The page of a view shows what is saved of it once its model is gone: no second output need do that."""

    type: Literal["hosted"]
    view: str


class Bye(TypedDict):
    """A view is taken off its page."""

    type: Literal["bye"]
    view: str


class Bundle(TypedDict):
    """Answer to `BundleQuery`."""

    type: Literal["bundle"]
    view: str
    name: BundleName
    script: str
    """An ECMAScript module."""


class BundleQuery(TypedDict):
    """A view asks for a part of the front end that it needs by now."""

    type: Literal["bundle"]
    view: str
    name: BundleName


class Ack(TypedDict):
    """What became of an intent."""

    type: Literal["ack"]
    id: str
    accepted: bool
    text: str
    """Why it was refused, or what comes of it if that is not what one expects."""


class Steering(TypedDict):
    """A person wants the execution to pause, to go on or to end."""

    type: Literal["control"]
    id: str
    command: Command
