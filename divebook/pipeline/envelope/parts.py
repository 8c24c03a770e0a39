"""What an envelope is made of: a few small values, and their fields by the names that users know.

`Parts` holds data only. `state`, `result` and `validation` read it, and `Envelope` adds what is done with it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Generic, TypeVar, overload

from divebook.bounds import DEFAULT_BOUNDS, Bounds
from divebook.pipeline.envelope.audit import Audit, ProcessingRecord
from divebook.pipeline.envelope.enums import TerminalReason
from divebook.pipeline.envelope.goals import Goals
from divebook.pipeline.envelope.identity import Identity
from divebook.pipeline.envelope.interrupt import FlowInterrupt, Interruption
from divebook.pipeline.envelope.slots import DEFAULT_SLOT_NAMES, SlotNames, Slots
from divebook.pipeline.envelope.sources import Clock, IdSource, random_id, utc_now
from divebook.pipeline.envelope.stages import Stages
from divebook.pipeline.envelope.termination import Termination
from divebook.pipeline.envelope.usage import Usage

T = TypeVar("T")


class Held(Generic[T]):
    """A field of one of the parts, under the same name on the whole."""

    def __init__(self, part: str) -> None:
        self._part = part

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, whole: None, owner: type) -> Held[T]: ...
    @overload
    def __get__(self, whole: object, owner: type) -> T: ...
    def __get__(self, whole: object | None, owner: type) -> Held[T] | T:
        if whole is None:
            return self
        value: T = getattr(getattr(whole, self._part), self._name)
        return value

    def __set__(self, whole: object, value: T) -> None:
        setattr(getattr(whole, self._part), self._name, value)


class HeldBound(Held[T]):
    """A bound, which is replaced together with the others, since `Bounds` do not change."""

    def __init__(self) -> None:
        super().__init__("bounds")

    def __set__(self, whole: object, value: T) -> None:
        bounds: Bounds = getattr(whole, self._part)
        changed: dict[str, Any] = {self._name: value}
        setattr(whole, self._part, replace(bounds, **changed))


PARTS = ("identity", "slots", "stages", "bounds", "usage", "termination", "interruption", "goals", "audit")


class Parts:
    """The values of one envelope; equal if all of them are."""

    __hash__ = None  # type: ignore[assignment]  # it changes

    envelope_id = Held[str]("identity")
    request_id = Held[str]("identity")
    user_id = Held[str]("identity")
    session_id = Held[str]("identity")
    raw_input = Held[str]("identity")
    received_at = Held[datetime]("identity")
    created_at = Held[datetime]("identity")
    metadata = Held[dict[str, Any]]("identity")

    outputs = Held[dict[str, dict[str, Any]]]("slots")
    prior_plans = Held[list[dict[str, Any] | None]]("slots")
    loop_feedback = Held[list[str]]("slots")

    current_stage = Held[str]("stages")
    stage_order = Held[list[str]]("stages")
    active_stages = Held[dict[str, bool]]("stages")
    completed_stage_set = Held[dict[str, bool]]("stages")
    failed_stages = Held[dict[str, str]]("stages")
    parallel_mode = Held[bool]("stages")

    max_iterations = HeldBound[int | None]()
    max_llm_calls = HeldBound[int | None]()
    max_agent_hops = HeldBound[int | None]()

    iteration = Held[int]("usage")
    llm_call_count = Held[int]("usage")
    agent_hop_count = Held[int]("usage")
    token_count = Held[int]("usage")
    cost = Held[Decimal]("usage")
    edge_counts = Held[dict[str, int]]("usage")

    terminated = Held[bool]("termination")
    termination_reason = Held[str | None]("termination")
    terminal_reason = Held[TerminalReason | str | None]("termination")
    completed_at = Held[datetime | None]("termination")

    interrupt_pending = Held[bool]("interruption")
    interrupt = Held[FlowInterrupt | None]("interruption")
    interrupt_queue = Held[list[FlowInterrupt]]("interruption")

    completed_stages = Held[list[dict[str, Any] | None]]("goals")
    current_stage_number = Held[int]("goals")
    max_stages = Held[int]("goals")
    all_goals = Held[list[str]]("goals")
    remaining_goals = Held[list[str]]("goals")
    goal_completion_status = Held[dict[str, str]]("goals")

    processing_history = Held[list[ProcessingRecord]]("audit")
    errors = Held[list[dict[str, Any] | None]]("audit")

    def __init__(
        self,
        *,
        bounds: Bounds = DEFAULT_BOUNDS,
        slot_names: SlotNames = DEFAULT_SLOT_NAMES,
        clock: Clock = utc_now,
        new_id: IdSource = random_id,
    ) -> None:
        self.clock, self.new_id, self.slot_names, self.bounds = clock, new_id, slot_names, bounds
        now = clock()
        self.identity = Identity(new_id("env"), new_id("req"), new_id("sess"), now, now)
        self.slots, self.stages, self.usage, self.termination = Slots(), Stages(), Usage(), Termination()
        self.interruption, self.goals, self.audit = Interruption(), Goals(), Audit()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Parts):
            return NotImplemented
        return all(getattr(self, part) == getattr(other, part) for part in PARTS)

    def __repr__(self) -> str:
        state = "terminated" if self.terminated else "interrupted" if self.interrupt_pending else "open"
        return f"<{type(self).__name__} {self.envelope_id} at {self.current_stage!r}, {state}>"
