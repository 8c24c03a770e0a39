"""Instructions that `engine.decide` returns for the driver of an execution, and the events that they record (`Fact`).

The runner carries the instructions out: it records facts, runs steps, evaluates conditions, and waits.
"""

from __future__ import annotations

from dataclasses import dataclass

from divebook.events.catalog import Payload
from divebook.events.payload import fast_init


# A fact has no number, time or id. The journal adds them when it appends the fact, so the rules stay pure.
@fast_init
@dataclass(frozen=True, slots=True)
class Fact:
    """Event to record that has no sequence number yet: its payload, path and step."""

    data: Payload
    path: str = ""
    step: str = ""


@fast_init
@dataclass(frozen=True, slots=True)
class RecordFacts:
    """Instruction to append some events to the log, in this order."""

    facts: tuple[Fact, ...]


@fast_init
@dataclass(frozen=True, slots=True)
class RunStep:
    """Instruction to append the events `first` to the log, and then to run a step. `resumed` means that the log has the
    start of the step already.
    """

    path: str
    step: str
    visit: int
    resumed: bool = False
    first: tuple[Fact, ...] = ()


@fast_init
@dataclass(frozen=True, slots=True)
class EvaluateConditions:
    """Instruction to evaluate the conditions on the edges that leave a step, and to record each result, in this order.

    `conditions` has pairs ``(condition, target)``.
    """

    path: str
    step: str
    conditions: tuple[tuple[str, str], ...]


@fast_init
@dataclass(frozen=True, slots=True)
class AwaitJoin:
    """Instruction for a path that waits at a join until each other path has arrived, has ended, or cannot reach the
    join.
    """

    path: str


@fast_init
@dataclass(frozen=True, slots=True)
class AwaitAnswer:
    """Instruction to append some events to the log, if any, and to suspend the path until its question is answered."""

    path: str
    facts: tuple[Fact, ...] = ()


@fast_init
@dataclass(frozen=True, slots=True)
class CancelPaths:
    """Instruction to stop every path that is still active, to wait until its code has ended, and to record that it was
    cancelled.
    """

    reason: str


# Paths get all instructions except `CancelPaths`, which is one for the whole execution.
PathInstruction = RecordFacts | RunStep | EvaluateConditions | AwaitJoin | AwaitAnswer
Instruction = PathInstruction | CancelPaths
