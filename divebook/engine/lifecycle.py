"""The life of an execution as data: its statuses, the events that bring them, and what may follow.

The store's `append` refuses what `STANDINGS` does not allow, `check` and the simulator hold logs against it, and
CONTRIBUTING.md shows it as a table (tests/engine/test_lifecycle.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from divebook.errors import ExecutionEndedError
from divebook.events.catalog import (
    CANCELLED,
    COMPLETED,
    CONTINUED,
    ENQUEUED,
    FAILED,
    MOVED,
    PENDING,
    PICTURE,
    RUNNING,
    WAITING,
    ExecutionAnnotated,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionContinuedAsNew,
    ExecutionEnqueued,
    ExecutionFailed,
    ExecutionForked,
    ExecutionMoved,
    ExecutionPictured,
    ExecutionResumed,
    ExecutionStarted,
    Payload,
)

Kind: TypeAlias = type[Payload]

_HOLDER = "who drives it"
_DOER = "who does so, with its own lease"
_ANEW = "start a new execution to run the workflow again"


@dataclass(frozen=True, slots=True)
class Standing:
    """One status: how an execution comes to it, and what may be appended while it lasts."""

    status: str
    brought_by: tuple[Kind, ...]
    """The events after which it holds; without any, `explained` says how it comes about."""
    allows: tuple[Kind, ...] | None
    """The events that may follow; None for every event but execution_started."""
    writer: str
    """Who may append them."""
    explained: str = ""
    way_on: str = ""
    """Of an end: what there is to do for a person who wants it to go on."""


STANDINGS: tuple[Standing, ...] = (
    Standing(PENDING, (), (ExecutionStarted,), "who starts it", "nothing is recorded yet"),
    Standing(ENQUEUED, (ExecutionEnqueued,), None, "the worker that takes it"),
    Standing(RUNNING, (ExecutionStarted, ExecutionForked, ExecutionResumed), None, _HOLDER),
    Standing(WAITING, (), None, _HOLDER, "who drives it says so with the events it appends"),
    Standing(COMPLETED, (ExecutionCompleted,), (ExecutionAnnotated,), _DOER, way_on=_ANEW),
    Standing(FAILED, (ExecutionFailed,), (ExecutionResumed, ExecutionAnnotated), _DOER, way_on="resume it first"),
    Standing(CANCELLED, (ExecutionCancelled,), (ExecutionResumed, ExecutionAnnotated), _DOER, way_on="resume it first"),
    Standing(
        MOVED, (ExecutionMoved,), (ExecutionAnnotated,), _DOER, way_on="go on with it where its file was imported"
    ),
    Standing(
        CONTINUED,
        (ExecutionContinuedAsNew,),
        (ExecutionAnnotated,),
        _DOER,
        way_on="go on with the execution that followed it",
    ),
    Standing(
        PICTURE,
        (ExecutionPictured,),
        (ExecutionAnnotated,),
        _DOER,
        way_on="go on with the original, bring that here (divebook export --move), or import the file as an execution "
        "of its own (divebook import --as-fork)",
    ),
)
"""The whole state machine."""

_ALLOWED = {standing.status: standing.allows for standing in STANDINGS}
STATUSES = tuple(standing.status for standing in STANDINGS)
_UNENDED = (PENDING, ENQUEUED, RUNNING, WAITING)
TERMINAL = frozenset(STATUSES) - set(_UNENDED)
"""The ends."""
FINAL = frozenset(status for status in TERMINAL if ExecutionResumed not in (_ALLOWED[status] or ()))
"""The ends that no resumption may follow: what a person says of the execution is all that does."""
STATUS_AFTER: Mapping[Kind, str] = {kind: standing.status for standing in STANDINGS for kind in standing.brought_by}
"""The events that change a status, and to what."""
WAY_ON: Mapping[str, str] = {standing.status: standing.way_on for standing in STANDINGS if standing.way_on}
"""By each end, what there is to do for a person who wants the execution to go on."""


def may_follow(status: str, kind: Kind) -> bool:
    """Return whether an event of that kind may be appended to an execution of that status.

    Examples
    --------
    >>> may_follow("completed", ExecutionCancelled), may_follow("failed", ExecutionResumed)
    (False, True)
    """
    allowed = _ALLOWED[status]
    return kind is not ExecutionStarted if allowed is None else kind in allowed


def check_may_follow(execution_id: str, status: str, kind: Kind) -> None:
    """Raise `ExecutionEndedError` unless an event of that kind may be appended."""
    if status in TERMINAL and not may_follow(status, kind):
        raise ExecutionEndedError(execution_id, status, kind.event_type, WAY_ON[status])


def as_table() -> str:
    """Return the state machine as a table in Markdown."""
    rows = ["| status | comes with | may be appended then | by |", "|---|---|---|---|"]
    rows += [
        f"| {standing.status} | {_named(standing.brought_by) or standing.explained} | {_followers(standing.allows)} | "
        f"{standing.writer} |"
        for standing in STANDINGS
    ]
    return "\n".join(rows)


def _followers(allowed: tuple[Kind, ...] | None) -> str:
    return f"all but `{ExecutionStarted.event_type}`" if allowed is None else _named(allowed) or "nothing"


def _named(kinds: tuple[Kind, ...]) -> str:
    return ", ".join(f"`{kind.event_type}`" for kind in kinds)
