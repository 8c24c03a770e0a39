"""Facts to record, and instructions of the rules to the driver.

`engine.decide` returns instructions. The runner carries them out: it records facts, runs steps, evaluates conditions,
and waits.
"""

from __future__ import annotations

from dataclasses import dataclass

from divebook.events.catalog import Payload
from divebook.events.payload import fast_init


@fast_init
@dataclass(frozen=True, slots=True)
class Fact:
    """A payload to record, with its path and step."""

    data: Payload
    path: str = ""
    step: str = ""


@fast_init
@dataclass(frozen=True, slots=True)
class RecordFacts:
    """Append these facts, in this order."""

    facts: tuple[Fact, ...]


@fast_init
@dataclass(frozen=True, slots=True)
class RunStep:
    """Append `first`, then run a step. `resumed` means that the log has the start of the step already."""

    path: str
    step: str
    visit: int
    resumed: bool = False
    first: tuple[Fact, ...] = ()


@fast_init
@dataclass(frozen=True, slots=True)
class EvaluateConditions:
    """Evaluate conditions of a step's edges and record each result in this order.

    `conditions` has pairs ``(condition, target)``.
    """

    path: str
    step: str
    conditions: tuple[tuple[str, str], ...]


@fast_init
@dataclass(frozen=True, slots=True)
class AwaitJoin:
    """Wait at a join until the other paths have arrived or ended."""

    path: str


@fast_init
@dataclass(frozen=True, slots=True)
class AwaitAnswer:
    """Append these facts, if any, and park the path until its question is answered."""

    path: str
    facts: tuple[Fact, ...] = ()


@fast_init
@dataclass(frozen=True, slots=True)
class CancelPaths:
    """Stop every path that is still active, wait for it, and record that it was cancelled."""

    reason: str


PathInstruction = RecordFacts | RunStep | EvaluateConditions | AwaitJoin | AwaitAnswer
Instruction = PathInstruction | CancelPaths
