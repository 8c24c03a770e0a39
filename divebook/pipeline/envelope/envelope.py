"""One request on its way through named stages: `Envelope`, which knows its budget and can ask a person."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any, Self

from divebook.bounds import DEFAULT_BOUNDS, Bounds
from divebook.errors import InvalidEnvelopeError
from divebook.pipeline.envelope.audit import ProcessingRecord
from divebook.pipeline.envelope.copying import copied_map, deep_copy
from divebook.pipeline.envelope.enums import InterruptKind, TerminalReason
from divebook.pipeline.envelope.interrupt import FlowInterrupt, InterruptResponse, seconds_from
from divebook.pipeline.envelope.parts import PARTS, Parts
from divebook.pipeline.envelope.result import final_response, write_result
from divebook.pipeline.envelope.slots import DEFAULT_SLOT_NAMES, SlotNames
from divebook.pipeline.envelope.sources import Clock, IdSource, random_id, utc_now
from divebook.pipeline.envelope.state import read_state, write_state
from divebook.pipeline.envelope.usage import exceeded_bound
from divebook.pipeline.envelope.validation import problems_of


class Envelope(Parts):
    """The record of one request: input, outputs, position, budget, question, goals and audit trail.

    It does nothing by itself and is not thread safe; parallel branches work on clones, which `merge_branches` joins.

    Parameters
    ----------
    bounds
        What may be spent; by default 3 iterations, 10 model calls, 21 agent steps.
    slot_names
        Which output slots have a part in retries, stages and responses.
    clock
        Returns the present, aware.
    new_id
        Returns a new identifier for a prefix.

    Examples
    --------
    >>> envelope = create_envelope("Which licences?", "ann", "s1")
    >>> envelope.set_interrupt("clarification", "q1", question="Of which folder?")
    >>> envelope.can_continue(), envelope.get_final_response()
    (False, 'Of which folder?')
    >>> envelope.resolve_interrupt({"text": "src"})
    >>> envelope.can_continue(), envelope.interrupt.response.text
    (True, 'src')
    """

    # --- outputs and history

    def get_output(self, key: str) -> dict[str, Any] | None:
        """Return a slot itself, not a copy, or None."""
        return self.outputs.get(key)

    def set_output(self, key: str, output: Mapping[str, Any]) -> None:
        """Replace a whole slot."""
        self.slots.put(key, output)

    def has_output(self, key: str) -> bool:
        """Whether the slot is there, be it empty."""
        return key in self.outputs

    def record_agent_start(self, agent: str, stage_order: int = 0) -> None:
        """Note that an agent begins; counts one hop."""
        self.processing_history.append(ProcessingRecord(agent, stage_order, self.clock()))
        self.agent_hop_count += 1

    def record_agent_complete(
        self, agent: str, status: str, error: str | None = None, llm_calls: int = 0, duration_ms: int = 0
    ) -> None:
        """Close the agent's newest running record, if there is one, and count its model calls in any case.

        A duration of 0 is computed from the clock.
        """
        record = self.audit.newest_running(agent)
        if record is not None:
            record.close(status, error, llm_calls, duration_ms, self.clock())
        self.llm_call_count += llm_calls

    def total_processing_time_ms(self) -> int:
        """Return the sum of all durations, in milliseconds."""
        return self.audit.total_ms()

    # --- bounds and termination

    def exceeded_bound(self) -> TerminalReason | None:
        """Return the first bound that forbids to go on, or None; changes nothing."""
        timed = self.bounds.max_seconds is not None
        elapsed = (self.clock() - self.created_at).total_seconds() if timed else 0.0
        return exceeded_bound(self.bounds, self.usage, elapsed)

    def can_continue(self) -> bool:
        """Whether the next stage may run.

        A bound that forbids it is written into `terminal_reason`, and taken back by a later call that finds none.
        """
        if self.terminated or self.interrupt_pending:
            return False
        reason = self.exceeded_bound()
        if reason is not None:
            self.terminal_reason = reason
            return False
        self.termination.forget_bound()
        return True

    def terminate(self, message: str, terminal_reason: str | None = None) -> None:
        """End the request; may be called again, and keeps an earlier typed reason unless it is given one."""
        self.termination.end(message, terminal_reason, self.clock())

    # --- goals and retries

    def initialize_goals(self, goals: Iterable[str]) -> None:
        """Begin with these goals, all pending; completed stages and the stage number stay."""
        self.goals.initialize(goals)

    def advance_stage(self, satisfied_goals: Iterable[str], summary: Any = None) -> bool:
        """Record a completed stage of goals.

        Returns
        -------
        bool
            Whether goals and stages are left; only then does the number grow and are the slots of the stage dropped.
        """
        plan_id = self.outputs.get(self.slot_names.archive, {}).get("plan_id")
        has_more = self.goals.advance(satisfied_goals, summary, plan_id)
        if has_more:
            self.slots.drop(self.slot_names.advance_reset)
        return has_more

    def get_stage_context(self) -> dict[str, Any]:
        """Return number, completed stages, and goals by their standing, as copies."""
        return self.goals.context()

    def is_stuck(self, min_stages: int = 2) -> bool:
        """Whether that stage number has been reached with no goal satisfied."""
        return self.goals.is_stuck(min_stages)

    def increment_iteration(self, feedback: str | None = None) -> None:
        """Begin a new attempt: keep the feedback and the plan, drop what is to be made again."""
        self.iteration += 1
        self.slots.begin_anew(self.slot_names, feedback)

    # --- questions

    def set_interrupt(
        self,
        kind: str,
        id: str,
        *,
        question: str = "",
        message: str = "",
        expires_in: float | timedelta | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """Ask, in place of any earlier question.

        Parameters
        ----------
        kind
            One of `InterruptKind`, or a text of your own.
        id
            By which an answer names the question.
        question, message
            What is shown: the question of a clarification, the message of any other kind.
        expires_in
            Seconds, or a timedelta. An expired question blocks like any other; who drives the envelope decides.
        data
            Plain data for whoever answers.
        """
        now = self.clock()
        copied = None if data is None else copied_map(data, "interrupt.data")
        expires_at = seconds_from(now, expires_in)
        self.interruption.ask(
            FlowInterrupt(InterruptKind.read(kind), id, now, question, message, copied, expires_at=expires_at)
        )

    def resolve_interrupt(self, response: InterruptResponse | Mapping[str, Any]) -> None:
        """Keep an answer, received now, beside its question; nothing is pending any more.

        Raises
        ------
        InterruptError
            The answer has a part that nobody knows, or of the wrong type; the question stays pending.
        """
        self.interruption.resolve(response, self.clock())

    def clear_interrupt(self) -> None:
        """Take the question back."""
        self.interruption.clear()

    def ask_next_interrupt(self) -> bool:
        """Ask the next queued question unless one is pending; return whether one is then."""
        return self.interruption.ask_next()

    def has_pending_interrupt(self) -> bool:
        """Whether there is a question without an answer."""
        return self.interruption.pending is not None

    def get_interrupt_kind(self) -> InterruptKind | str | None:
        """Return the kind of the latest question, answered or not, or None."""
        return None if self.interrupt is None else self.interrupt.kind

    # --- parallel stages

    def start_stage(self, name: str) -> None:
        """Mark a stage as active."""
        self.stages.start(name)

    def complete_stage(self, name: str) -> None:
        """Mark a stage as completed, whether or not it was started."""
        self.stages.complete(name)

    def fail_stage(self, name: str, error: str) -> None:
        """Mark a stage as failed."""
        self.stages.fail(name, error)

    def is_stage_active(self, name: str) -> bool:
        """Whether the stage is active."""
        return self.active_stages.get(name, False)

    def is_stage_completed(self, name: str) -> bool:
        """Whether the stage is completed."""
        return self.completed_stage_set.get(name, False)

    def is_stage_failed(self, name: str) -> bool:
        """Whether the stage failed, be it without a message."""
        return name in self.failed_stages

    def get_active_stage_count(self) -> int:
        """Return how many stages are listed as active."""
        return len(self.active_stages)

    def get_completed_stage_count(self) -> int:
        """Return how many stages are listed as completed."""
        return len(self.completed_stage_set)

    def all_stages_complete(self) -> bool:
        """Whether there is an order of stages and all in it are completed."""
        return self.stages.all_complete()

    def has_failures(self) -> bool:
        """Whether any stage failed."""
        return bool(self.failed_stages)

    # --- the whole

    def get_final_response(self) -> str | None:
        """Return the text to show: a pending question, else the response slot's text, else None."""
        return final_response(self)

    def to_result_dict(self) -> dict[str, Any]:
        """Return what a caller of the whole request wants to know, as plain data."""
        return write_result(self)

    def to_state_dict(self) -> dict[str, Any]:
        """Return everything, as plain data that shares nothing with the envelope.

        Raises
        ------
        UncopyableValueError
            Somebody put a value into it that cannot be copied.
        """
        return write_state(self)

    @classmethod
    def from_state_dict(
        cls,
        state: Mapping[str, Any],
        *,
        strict: bool = False,
        slot_names: SlotNames = DEFAULT_SLOT_NAMES,
        clock: Clock = utc_now,
        new_id: IdSource = random_id,
    ) -> Self:
        """Return the envelope that a state describes, sharing nothing with it.

        What is missing or cannot be read keeps the value of a fresh envelope, and what nobody knows is ignored, unless
        `strict`.

        Raises
        ------
        InvalidEnvelopeError
            If `strict`: with every difference from what `to_state_dict` writes.
        """
        envelope = cls(slot_names=slot_names, clock=clock, new_id=new_id)
        problems = read_state(envelope, state)
        if strict and problems:
            raise InvalidEnvelopeError(problems)
        return envelope

    def validate(self) -> None:
        """Check what must hold before the envelope is used.

        Raises
        ------
        InvalidEnvelopeError
            With everything that is wrong.
        """
        problems = problems_of(self)
        if problems:
            raise InvalidEnvelopeError(problems)

    def clone(self) -> Self:
        """Return an independent envelope with the same identifiers.

        Raises
        ------
        UncopyableValueError
            Somebody put a value into it that cannot be copied.
        """
        twin = copy.copy(self)
        for part in PARTS:
            value = getattr(self, part)
            copies = {each.name: deep_copy(getattr(value, each.name), each.name) for each in fields(value)}
            setattr(twin, part, replace(value, **copies))
        return twin


def create_envelope(
    user_message: str,
    user_id: str,
    session_id: str,
    request_id: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    *,
    stage_order: Iterable[str] | None = None,
    bounds: Bounds = DEFAULT_BOUNDS,
    slot_names: SlotNames = DEFAULT_SLOT_NAMES,
    clock: Clock = utc_now,
    new_id: IdSource = random_id,
) -> Envelope:
    """Return a fresh envelope for a message; user and session are taken as they are, even if empty."""
    envelope = Envelope(bounds=bounds, slot_names=slot_names, clock=clock, new_id=new_id)
    envelope.raw_input, envelope.user_id, envelope.session_id = user_message, user_id, session_id
    if request_id is not None:
        envelope.request_id = request_id
    if metadata is not None:
        envelope.metadata = copied_map(metadata, "metadata")
    if stage_order is not None:
        envelope.stage_order = list(stage_order)
    return envelope
