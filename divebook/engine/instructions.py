"""Instructions that the rules of `engine.decide` give to the runner, and facts to record.

The runner carries the instructions out: it records facts, runs steps, evaluates conditions, and waits.
"""

from __future__ import annotations

from dataclasses import dataclass

from divebook.events.catalog import Payload
from divebook.events.payload import fast_init


@fast_init
@dataclass(frozen=True, slots=True)
class Fact:
    """Event payload to record, with its path and step."""

    data: Payload
    path: str = ""
    step: str = ""


@fast_init
@dataclass(frozen=True, slots=True)
class RecordFacts:
    """Instruction to record some events, in this order."""

    facts: tuple[Fact, ...]


@fast_init
@dataclass(frozen=True, slots=True)
class RunStep:
    """Instruction to record the events `first`, then to run a step. `resumed` means that the log has the start of the
    step already.
    """

    path: str
    step: str
    visit: int
    resumed: bool = False
    first: tuple[Fact, ...] = ()


@fast_init
@dataclass(frozen=True, slots=True)
class EvaluateConditions:
    """Instruction to evaluate the conditions of a step's edges and to record each result, in this order.

    `conditions` has pairs ``(condition, target)``.
    """

    path: str
    step: str
    conditions: tuple[tuple[str, str], ...]


@fast_init
@dataclass(frozen=True, slots=True)
class AwaitJoin:
    """Instruction to let a path wait at a join until the other paths have arrived or ended."""

    path: str


@fast_init
@dataclass(frozen=True, slots=True)
class AwaitAnswer:
    """Instruction to record some events, if any, and to park the path until its question is answered."""

    path: str
    facts: tuple[Fact, ...] = ()


@fast_init
@dataclass(frozen=True, slots=True)
class CancelPaths:
    """Instruction to stop every path that is still active, to wait for its end, and to record that it was cancelled."""

    reason: str


PathInstruction = RecordFacts | RunStep | EvaluateConditions | AwaitJoin | AwaitAnswer
Instruction = PathInstruction | CancelPaths
