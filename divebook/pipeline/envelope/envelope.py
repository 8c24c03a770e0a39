"""One request on its way through named stages: `Envelope`, which knows its budget and can ask a person."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Self

from divebook.bounds import DEFAULT_BOUNDS, Bounds, exceeded_edge
from divebook.errors import InvalidEnvelopeError
from divebook.pipeline.envelope.contents import (
    DEFAULT_SLOT_NAMES,
    FIELDS,
    Clock,
    IdSource,
    ProcessingRecord,
    SlotNames,
    random_id,
    read_state,
    utc_now,
    write_state,
)
from divebook.pipeline.envelope.enums import InterruptKind, ProcessingStatus, ReasonClass, TerminalReason
from divebook.pipeline.envelope.goals import StagedContents
from divebook.pipeline.envelope.interrupt import FlowInterrupt, InterruptResponse, seconds_from
from divebook.pipeline.envelope.plain import copied_map, deep_copy
from divebook.pipeline.envelope.result import final_response, write_result
from divebook.pipeline.envelope.validation import problems_of


class Envelope(StagedContents):
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
        self.outputs[key] = output if isinstance(output, dict) else dict(output)

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
        self.llm_call_count += llm_calls
        for record in reversed(self.processing_history):
            if record.agent == agent and record.status == ProcessingStatus.RUNNING:
                now = self.clock()
                record.completed_at, record.llm_calls = now, llm_calls
                record.status, record.error = ProcessingStatus.read(status), error
                took = (now - record.started_at) // timedelta(milliseconds=1)
                record.duration_ms = duration_ms if duration_ms > 0 else took
                return

    def total_processing_time_ms(self) -> int:
        """Return the sum of all durations, in milliseconds."""
        return sum(record.duration_ms for record in self.processing_history)

    # --- bounds and termination

    def exceeded_bound(self) -> TerminalReason | None:
        """Return the first bound that forbids to go on, or None; changes nothing.

        Iterations and edges may equal their bound; of all else, what has reached its bound is used up.
        """
        bounds = self.bounds
        if bounds.max_iterations is not None and self.iteration > bounds.max_iterations:
            return TerminalReason.MAX_ITERATIONS_EXCEEDED
        timed = bounds.max_seconds is not None
        used_up = (
            (self.llm_call_count, bounds.max_llm_calls, TerminalReason.MAX_LLM_CALLS_EXCEEDED),
            (self.agent_hop_count, bounds.max_agent_hops, TerminalReason.MAX_AGENT_HOPS_EXCEEDED),
            (self.token_count, bounds.max_tokens, TerminalReason.MAX_TOKENS_EXCEEDED),
            (self.cost, bounds.max_cost, TerminalReason.MAX_COST_EXCEEDED),
            (self._elapsed() if timed else 0.0, bounds.max_seconds, TerminalReason.MAX_SECONDS_EXCEEDED),
        )
        for count, bound, reason in used_up:
            if bound is not None and count >= bound:
                return reason
        return TerminalReason.MAX_LOOP_EXCEEDED if exceeded_edge(bounds, self.edge_counts) else None

    def _elapsed(self) -> float:
        return (self.clock() - self.created_at).total_seconds()

    def count_edge(self, edge: str) -> int:
        """Count one more passage of an edge and return how many there were."""
        self.edge_counts[edge] = self.edge_counts.get(edge, 0) + 1
        return self.edge_counts[edge]

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
        held = self.terminal_reason
        if isinstance(held, TerminalReason) and held.classification is ReasonClass.BOUNDS_EXCEEDED:
            self.terminal_reason = None
        return True

    def terminate(self, message: str, terminal_reason: str | None = None) -> None:
        """End the request; may be called again, and keeps an earlier typed reason unless it is given one."""
        self.terminated, self.termination_reason, self.completed_at = True, message, self.clock()
        if terminal_reason is not None:
            self.terminal_reason = TerminalReason.read(terminal_reason)

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
            Plain data for the person or program that answers.
        """
        now = self.clock()
        copied = None if data is None else copied_map(data, "interrupt.data")
        expires_at = seconds_from(now, expires_in)
        self.ask(FlowInterrupt(InterruptKind.read(kind), id, now, question, message, copied, expires_at=expires_at))

    def ask(self, interrupt: FlowInterrupt) -> None:
        """Make this the question, in place of any earlier one."""
        self.interrupt_pending, self.interrupt = True, interrupt

    def resolve_interrupt(self, response: InterruptResponse | Mapping[str, Any]) -> None:
        """Keep an answer, received now, beside its question; nothing is pending any more.

        Raises
        ------
        InterruptError
            The answer has an unknown part, or one of the wrong type; the question stays pending.
        """
        if self.interrupt is not None:
            self.interrupt.response = InterruptResponse.read(self.interrupt.id, response, self.clock())
        self.interrupt_pending = False

    def clear_interrupt(self) -> None:
        """Take the question back."""
        self.interrupt_pending, self.interrupt = False, None

    def ask_next_interrupt(self) -> bool:
        """Ask the next queued question unless one is pending; return whether one is then."""
        if self.pending_interrupt is None and self.interrupt_queue:
            self.ask(self.interrupt_queue.pop(0))
        return self.pending_interrupt is not None

    def has_pending_interrupt(self) -> bool:
        """Whether there is a question without an answer."""
        return self.pending_interrupt is not None

    def get_interrupt_kind(self) -> InterruptKind | str | None:
        """Return the kind of the latest question, answered or not, or None."""
        return None if self.interrupt is None else self.interrupt.kind

    # --- the whole

    def get_final_response(self) -> str | None:
        """Return the text to show: a pending question, else the response slot's text, else None."""
        return final_response(self)

    def to_result_dict(self) -> dict[str, Any]:
        """Return what a caller of the whole request wants to know, as plain data."""
        return write_result(self)

    def to_state_dict(self) -> dict[str, Any]:
        """Return everything, as plain data that shares nothing with the envelope.

        Values that JSON lacks (dates, decimals, UUIDs, sets, tuples, bytes, NaN, arrays, frames, allowed classes) are
        written in the tagged form of the event log, from which `from_state_dict` makes them again. An object that no
        log can hold is copied as it is.

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

        What is missing or cannot be read keeps the value of a fresh envelope, and unknown keys are ignored, unless
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
        for name in FIELDS:
            setattr(twin, name, deep_copy(getattr(self, name), name))
        return twin

    def take_over(self, state: Mapping[str, Any]) -> None:
        """Become, in place, what a state describes."""
        names, clock, new_id = self.slot_names, self.clock, self.new_id
        read = self.from_state_dict(state, slot_names=names, clock=clock, new_id=new_id)
        for name in FIELDS:
            setattr(self, name, getattr(read, name))


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
    envelope = Envelope(
        raw_input=user_message,
        user_id=user_id,
        metadata=copied_map(metadata or {}, "metadata"),
        stage_order=list(stage_order or ()),
        bounds=bounds,
        slot_names=slot_names,
        clock=clock,
        new_id=new_id,
    )
    envelope.session_id = session_id
    if request_id is not None:
        envelope.request_id = request_id
    return envelope
