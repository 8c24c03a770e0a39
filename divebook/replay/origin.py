"""Where one value of a log came from, or one choice; and what a step has called.

`divebook.replay.origins` finds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from divebook.events import catalog

Kind: TypeAlias = Literal["input", "set", "deleted", "kept", "choice", "caught", "output", "state"]
INPUT = "inputs."
"""How the name of an input begins."""


@dataclass(slots=True)
class StepCall:
    """A call of a step, or a question that it asked."""

    type: str
    """Of the operation; ``question`` of a question."""
    name: str
    """What is called; the kind of a question."""
    sequence: int
    """The event with which it began last."""
    ended: int | None = None
    """The event with which it ended."""
    status: str = catalog.RUNNING
    item: int | None = None
    within: int | None = None
    """Where the call began that holds it: the turn of an agent."""


@dataclass(slots=True)
class ValueOrigin:
    """A value that a variable had from an event on, or a choice; what it came from."""

    number: int
    """Place in `Origins.all`."""
    kind: Kind
    """``input``; ``set`` or ``deleted`` by a step; ``kept``: a way that was not taken may have set it; ``choice`` of
    what follows a step; ``caught``: whether a step failed; ``output`` of the last step; ``state``: all variables."""
    name: str
    """The variable; ``inputs.NAME``; empty of a choice."""
    sequence: int
    """The event that says so."""
    path: str = ""
    step: str = ""
    visit: int = 0
    item: int | None = None
    """The item of `Each` that set it; of a result of all items None."""
    calls: tuple[StepCall, ...] = ()
    """What its step had called until then; of an item what that called."""
    reads: tuple[int, ...] = ()
    """Numbers of the values that went into it."""
    because: tuple[int, ...] = ()
    """Numbers of the choices without which it had not come about."""
    items: tuple[tuple[int, int], ...] = ()
    """Of a result of items: for each row of it the item, and the event with which that ended."""
    column: str | None = None
    """Of a row: the column that was asked for."""
    told: tuple[int, ...] = ()
    """Of a choice: the events that say which conditions held."""

    @property
    def causes(self) -> tuple[int, ...]:
        """What it came from: values first, then choices."""
        return self.reads + self.because
