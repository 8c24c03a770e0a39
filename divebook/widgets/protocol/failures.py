"""What has failed in an execution, and the ways on from there."""

from __future__ import annotations

from typing import Literal, TypedDict

from divebook.widgets.protocol.views import Micros


class Way(TypedDict):
    """One of the ways on from a failure, and what it costs."""

    name: Literal["fix", "again", "replay"]
    """``fix`` and ``again`` are commands as well; ``replay`` opens the replay at the failure."""
    label: str
    told: str
    """What it does, or why it cannot do that yet; of a fix, ``plan`` says what exactly."""
    reused: str
    """What is taken from the log: ``1,401 calls``; empty for nothing."""
    live: str
    """What is made again or begun; empty for nothing."""
    cost: float | None
    """US dollars that this is likely to cost; null where nothing can be said."""
    took_us: int | None
    """How long that is likely to take; null likewise."""
    ready: bool
    """Whether it can be chosen now."""


class SourceLine(TypedDict):
    """A line of a person's code or definition."""

    number: int
    text: str


class ArgumentView(TypedDict):
    """What a call was given under a name, as Python text; long ones are cut."""

    name: str
    text: str


class FailureView(TypedDict):
    """An item or a step that has failed, and why."""

    id: int
    """The span of the call that failed; of the item or step, if no call did."""
    sequence: int
    """The event that says that it failed."""
    failed_us: Micros
    error_type: str
    message: str
    means: str
    """What that says in plain words; empty where it is not known for sure."""
    step: str
    path: str
    item: str
    """Which item of `Each` it was, such as ``rows[4321]``; empty for a step without items."""
    attempt: int
    called: str
    """The function, action, agent, tool or workflow that failed; empty if the step itself did."""
    arguments: list[ArgumentView]
    place: str
    """``Cell [5], line 4``, ``pipeline.py:12`` or ``survey.yaml:7:11``; empty if it is not known."""
    cell: str
    """The id of the cell that the place is in; empty if it is in none, or the front end has no ids."""
    line: int
    """Its number among those of `source`."""
    source: list[SourceLine]
    traceback: str
    handled: Literal["", "skipped", "kept", "caught"]
    """What became of it, if the run went on."""
    same: int
    """How many failures have this error at this place, itself included."""


class FailureReport(TypedDict):
    """What has failed in an execution."""

    total: int
    """How many items, and steps without items, have failed."""
    kept: str
    """What is safe in the log, in words: ``1,398 items and 1,401 calls``."""
    shown: list[FailureView]
    """The first of each error, then others, in the order in which they failed."""
