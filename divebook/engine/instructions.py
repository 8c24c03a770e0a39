"""What the rules ask a driver to do next."""

from __future__ import annotations

from dataclasses import dataclass

from divebook.events.catalog import Payload
from divebook.events.frozen import quickly_made


@quickly_made
@dataclass(frozen=True, slots=True)
class Fact:
    """One payload to record, and where."""

    data: Payload
    path: str = ""
    step: str = ""


@quickly_made
@dataclass(frozen=True, slots=True)
class RecordFacts:
    """Append these facts, in this order."""

    facts: tuple[Fact, ...]


@quickly_made
@dataclass(frozen=True, slots=True)
class RunStep:
    """Append `first`, then carry out a step; `resumed` means that its start is in the log already."""

    path: str
    step: str
    visit: int
    resumed: bool = False
    first: tuple[Fact, ...] = ()


@quickly_made
@dataclass(frozen=True, slots=True)
class EvaluateConditions:
    """Evaluate the conditions of a step's edges, ``(condition, target)``, and record each result in this order."""

    path: str
    step: str
    conditions: tuple[tuple[str, str], ...]


@quickly_made
@dataclass(frozen=True, slots=True)
class AwaitJoin:
    """Nothing to do for this path until others have come or ended."""

    path: str


@quickly_made
@dataclass(frozen=True, slots=True)
class AwaitAnswer:
    """Append these facts, if any, and let the path rest until its question is answered."""

    path: str
    facts: tuple[Fact, ...] = ()


@quickly_made
@dataclass(frozen=True, slots=True)
class CancelPaths:
    """Stop every path that is still active, wait for it, and record that it was cancelled."""

    reason: str


PathInstruction = RecordFacts | RunStep | EvaluateConditions | AwaitJoin | AwaitAnswer
Instruction = PathInstruction | CancelPaths
