"""A list of executions, and what a person wants done with them."""

from __future__ import annotations

from typing import Literal, TypedDict

from divebook.widgets.protocol.views import Command, Micros


class RunView(TypedDict):
    """An execution in one line."""

    execution_id: str
    workflow: str
    badge: str
    """``what-if``, ``trial`` or ``fork``; empty for a run of its own."""
    tags: list[str]
    status: str
    """``paused`` as well, where nothing drives it or somebody has paused it."""
    about: str
    """What it is about: its error, its note, its inputs."""
    is_error: bool
    """Whether that is its error."""
    stand: str
    """How far it has come, what is kept, or who cancelled it."""
    done: int
    total: int
    """Items of the step that runs; 0 where it has none."""
    questions: int
    began_us: Micros
    worked_us: int | None
    """How long it has worked up to `since_us`; null while that is not known."""
    since_us: Micros
    """Since when it works; 0 if it does not now."""
    cost: float | None
    """US dollars; null where no model was asked."""
    commands: list[Command]
    """What can be asked for now."""
    is_open: bool
    """Whether it is shown below the list."""


class RunsQuery(TypedDict):
    """Which executions a list shows, and how; a view that changes it says so."""

    type: Literal["list"]
    view: str
    text: str
    """What is found in name, tags, inputs, note or error."""
    workflow: str
    tag: str
    status: str
    """Of these three the empty text stands for all."""
    days: int
    """How many days back; 0 for ever."""
    by: Literal["began", "cost", "worked"]
    """What the list is sorted by, the highest first."""
    limit: int


class StatusCount(TypedDict):
    """How many executions of one status there are that fit all else that is asked for."""

    status: str
    count: int


class RunsPage(TypedDict):
    """A list of executions as it stands; each takes the place of the one before."""

    type: Literal["runs"]
    view: str
    """The view that it welcomes; empty where it is for all."""
    last: int
    """Number of the page."""
    now_us: Micros
    query: RunsQuery
    """What it answers."""
    total: int
    """Executions in the store, as far as it has been looked through."""
    is_whole: bool
    """Whether all of them were looked at."""
    matching: int
    """How many fit the query."""
    running: int
    week_cost: float | None
    """US dollars that those of the last seven days cost; null until all are known, or where no model was asked."""
    counts: list[StatusCount]
    workflows: list[str]
    tags: list[str]
    runs: list[RunView]
    near: str
    """Where nothing fits the text: the word most like it that something fits."""
    frame: str
    """The code that returns the list as a frame."""


class RunsWish(TypedDict):
    """A person wants something done with executions of a list."""

    type: Literal["wish"]
    id: str
    command: Literal["open", "close", "resume", "cancel", "tag", "untag"]
    executions: list[str]
    tags: list[str]
