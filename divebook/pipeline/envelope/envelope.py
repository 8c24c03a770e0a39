"""Envelope: the state of one pipeline request, with its outputs, budget, open question and history.

The functions below the class `Envelope` merge the envelopes of parallel branches, and compute an envelope from the
state of an execution.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Self, TypeVar

from divebook.definitions.pipelines import END, START
from divebook.engine.bounds import REASONS
from divebook.engine.state import ENDED, IN_STEP, ExecutionState, Hop
from divebook.errors import BoundsError, EnvelopeError, InvalidEnvelopeError, did_you_mean
from divebook.events.catalog import FAILED
from divebook.events.event import to_datetime
from divebook.pipeline.envelope.interrupts import (
    FlowInterrupt,
    GoalStatus,
    InterruptResponse,
    ProcessingStatus,
    ReasonClass,
    TerminalReason,
    time_after,
)
from divebook.pipeline.envelope.plain import (
    UNREADABLE,
    EnvelopePart,
    PlainReading,
    copied_map,
    copied_maps,
    deep_copy,
    json_object,
    plain,
    recorded_form,
    saved_form,
    types_of,
)
from divebook.questions.bounds import DEFAULT_BOUNDS, Bounds, exact_dollars, exceeded_edge
from divebook.questions.question import InterruptKind, Word
from divebook.runtime.clock import SystemClock
from divebook.text.arguments import DurationLike
from divebook.text.format import rfc3339

# --- fields of an envelope --------------------------------------------------------------------------------------------


Clock = Callable[[], datetime]
"""Function that returns the current time as a datetime with the time zone UTC."""
IdSource = Callable[[str], str]
"""Function that returns a new identifier for a prefix: the prefix, an underscore, and a unique text."""

SCHEMA_VERSION: Final = 1
UNSET: Final = datetime.min.replace(tzinfo=UTC)
"""Placeholder for the time of creation; a new envelope replaces it with the time of its clock."""


def utc_now() -> datetime:
    """Return the current time of the machine, with the time zone UTC."""
    return to_datetime(SystemClock().now())


@dataclass(slots=True)
class ManualClock:
    """Clock that returns the time that was set, for example the last time that the log of an execution contains."""

    time: datetime

    def __call__(self) -> datetime:
        """Return the time that was set."""
        return self.time


def random_id(prefix: str) -> str:
    """Return an identifier: the prefix, an underscore, and 64 random bits as 16 hexadecimal digits."""
    return f"{prefix}_{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True)
class SlotNames:
    """Names of the output slots (named outputs of an envelope) that have a special role: in retries, for goals, and as
    the response.

    Envelopes do not depend on the names of stages: only these slot names connect the outputs of certain stages with
    rules.
    """

    retry_reset: Collection[str] = frozenset({"plan", "arbiter", "execution", "synthesizer", "critic"})
    """Slots that are deleted when an attempt is started again."""
    advance_reset: Collection[str] = frozenset({"plan", "execution", "critic"})
    """Slots that are deleted when the next stage of goals begins."""
    archive: str = "plan"
    """Slot of the plan. A new attempt copies the plan to `prior_plans`."""
    response: str = "integration"
    """Slot with the final response."""
    response_key: str = "final_response"
    """Key of the final response in the slot `response`."""


DEFAULT_SLOT_NAMES: Final = SlotNames()


@dataclass(slots=True)
class ProcessingRecord(EnvelopePart):
    """Record of one agent's run in a stage. `completed_at` and `duration_ms` are set when the agent ends."""

    agent: str
    stage_order: int
    started_at: datetime
    completed_at: datetime | None = None
    duration_ms: int = 0
    status: ProcessingStatus | str = ProcessingStatus.RUNNING
    error: str | None = None
    llm_calls: int = 0


class _Maximum:
    """Descriptor that gives access to one bound of an envelope, such as `max_tokens`. Assigning a value replaces the
    whole `Envelope.bounds`, because `Bounds` are immutable.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, envelope: Envelope | None, owner: type) -> Any:
        return self if envelope is None else getattr(envelope.bounds, self._name)

    def __set__(self, envelope: Envelope, value: int | None) -> None:
        changed: dict[str, Any] = {self._name: value}
        envelope.bounds = replace(envelope.bounds, **changed)


@dataclass(kw_only=True, repr=False)
class Envelope:
    """State of one pipeline request: input, outputs, position, budget, question, goals and history.

    An envelope only stores state; a `Pipeline` drives it. Envelopes are not thread safe. Parallel branches work on
    clones, which `merge_branches` joins. Two envelopes are equal if all fields in `FIELDS` are equal.

    The word stage has two senses here. A stage of goals (`advance_stage`) is a numbered phase of work that satisfies
    some goals. A stage of the pipeline (`start_stage`) is a named part that runs an agent, tools or a function.

    Parameters
    ----------
    bounds
        The budget; by default 3 iterations, 10 model calls and 21 agent steps.
    slot_names
        Names of the output slots that have a special role in retries, stages and responses.
    clock
        Function that returns the current time as a datetime with a time zone.
    new_id
        Function that returns a new identifier for a prefix.

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

    # --- fields

    envelope_id: str = ""
    request_id: str = ""
    session_id: str = ""
    user_id: str = "anonymous"
    raw_input: str = ""
    received_at: datetime = UNSET
    created_at: datetime = UNSET
    metadata: dict[str, Any] = field(default_factory=dict)

    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Output of each stage, by name of the slot."""
    prior_plans: list[dict[str, Any] | None] = field(default_factory=list)
    loop_feedback: list[str] = field(default_factory=list)

    current_stage: str = START
    stage_order: list[str] = field(default_factory=list)
    active_stages: dict[str, bool] = field(default_factory=dict)
    completed_stage_set: dict[str, bool] = field(default_factory=dict)
    failed_stages: dict[str, str] = field(default_factory=dict)
    """Error message of each failed stage, by name of the stage."""
    parallel_mode: bool = False

    bounds: Bounds = DEFAULT_BOUNDS
    iteration: int = 0
    llm_call_count: int = 0
    agent_hop_count: int = 0
    token_count: int = 0
    cost: Decimal = Decimal(0)
    """US dollars."""
    edge_counts: dict[str, int] = field(default_factory=dict)
    """Number of times that each edge was followed, by ``"from->to"``."""

    terminated: bool = False
    termination_reason: str | None = None
    """Reason for the end, as text for people."""
    terminal_reason: TerminalReason | str | None = None
    """Reason for the end, for programs. If `terminated` is False, the reason why no stage may run now."""
    completed_at: datetime | None = None

    interrupt_pending: bool = False
    interrupt: FlowInterrupt | None = None
    interrupt_queue: list[FlowInterrupt] = field(default_factory=list)
    """Further questions of parallel branches, asked after the current question is answered."""

    completed_stages: list[dict[str, Any] | None] = field(default_factory=list)
    current_stage_number: int = 1
    max_stages: int = 5
    all_goals: list[str] = field(default_factory=list)
    remaining_goals: list[str] = field(default_factory=list)
    goal_completion_status: dict[str, str] = field(default_factory=dict)

    processing_history: list[ProcessingRecord] = field(default_factory=list)
    errors: list[dict[str, Any] | None] = field(default_factory=list)

    slot_names: SlotNames = field(default=DEFAULT_SLOT_NAMES, compare=False)
    clock: Clock = field(default=utc_now, compare=False)
    new_id: IdSource = field(default=random_id, compare=False)

    max_iterations = _Maximum()
    max_llm_calls = _Maximum()
    max_agent_hops = _Maximum()

    def __post_init__(self) -> None:
        for name, prefix in (("envelope_id", "env"), ("request_id", "req"), ("session_id", "sess")):
            setattr(self, name, getattr(self, name) or self.new_id(prefix))
        if UNSET in (self.created_at, self.received_at):
            self.created_at = self.received_at = self.clock()

    @property
    def pending_interrupt(self) -> FlowInterrupt | None:
        """Question of the envelope that waits for an answer; None without one. The flag `interrupt_pending` without a
        question does not count.
        """
        return self.interrupt if self.interrupt_pending else None

    def __repr__(self) -> str:
        state = "open"
        if self.terminated:
            state = "terminated"
        elif self.interrupt_pending:
            state = "interrupted"
        return f"<{type(self).__name__} {self.envelope_id} at {self.current_stage!r}, {state}>"

    # --- goals and retries

    def initialize_goals(self, goals: Iterable[str]) -> None:
        """Replace all goals of the pipeline request by new goals with the status pending.

        Completed stages and the stage number do not change.
        """
        self.all_goals = list(goals)
        self.remaining_goals = list(self.all_goals)
        self.goal_completion_status = dict.fromkeys(self.all_goals, str(GoalStatus.PENDING))

    def advance_stage(self, satisfied_goals: Iterable[str], summary: Any = None) -> bool:
        """Record that a round of work on the goals (a goal stage) has ended, with the goals that it satisfied. Begin
        the next round if unsatisfied goals remain.

        Returns
        -------
        bool
            True if there are remaining goals and the maximum number of stages is not reached. Only in this case, the
            stage number is increased and the slots of the stage are deleted.
        """
        satisfied = list(satisfied_goals)
        statuses = self.goal_completion_status or {}  # callers may have set it to None
        self.goal_completion_status = statuses | dict.fromkeys(satisfied, str(GoalStatus.SATISFIED))
        self.remaining_goals = [goal for goal in self.remaining_goals if goal not in satisfied]
        self.completed_stages.append(
            {
                "stage_number": self.current_stage_number,
                "satisfied_goals": satisfied,
                "summary": deep_copy(summary, "summary"),
                "plan_id": self.outputs.get(self.slot_names.archive, {}).get("plan_id"),
            }
        )
        if not self.remaining_goals or self.current_stage_number >= self.max_stages:
            return False
        self.current_stage_number += 1
        self._drop(self.slot_names.advance_reset)
        return True

    def satisfied_goals(self) -> list[str]:
        """Return the goals of the pipeline request that are satisfied, in the order in which they were satisfied."""
        # Goals in the order of the stages that satisfied them, then goals that were marked without a stage.
        recorded = [goal for stage in self.completed_stages if stage for goal in _goals_of(stage)]
        satisfied = {goal for goal, status in self.goal_completion_status.items() if status == GoalStatus.SATISFIED}
        return [goal for goal in dict.fromkeys([*recorded, *self.goal_completion_status]) if goal in satisfied]

    def get_stage_context(self) -> dict[str, Any]:
        """Return the goals of the request with their statuses, the number of the current round of work on the goals
        (goal stage), and the records of the completed rounds. All values are copies.
        """
        return {
            "current_stage": self.current_stage_number,
            "completed_stages": copied_maps(self.completed_stages, "completed_stages"),
            "remaining_goals": list(self.remaining_goals),
            "goal_completion_status": dict(self.goal_completion_status),
            "satisfied_goals": self.satisfied_goals(),
        }

    def is_stuck(self, min_stages: int = 2) -> bool:
        """Return True if the work on the goals makes no progress: at least `min_stages` rounds (goal stages) have
        begun, and no goal has been satisfied in any of them.
        """
        return self.current_stage_number >= min_stages and not self.satisfied_goals()

    def increment_iteration(self, feedback: str | None = None) -> None:
        """Start a new attempt at the pipeline request. The feedback and the earlier plan are saved, and the outputs
        that the attempt produces again are deleted.
        """
        self.iteration += 1
        if feedback is not None:
            self.loop_feedback.append(feedback)
        archive = self.slot_names.archive
        if archive in self.outputs:
            self.prior_plans.append(copied_map(self.outputs[archive], f"outputs.{archive}"))
        self._drop(self.slot_names.retry_reset)

    def _drop(self, slots: Collection[str]) -> None:
        for key in slots:
            self.outputs.pop(key, None)

    # --- parallel stages

    def start_stage(self, name: str) -> None:
        """Mark a stage of the pipeline as active."""
        self.active_stages[name] = True

    def complete_stage(self, name: str) -> None:
        """Mark a stage of the pipeline as completed. It need not have been started."""
        self.completed_stage_set[name] = True
        self.active_stages.pop(name, None)

    def fail_stage(self, name: str, error: str) -> None:
        """Mark a stage of the pipeline as failed."""
        self.failed_stages[name] = error
        self.active_stages.pop(name, None)

    def is_stage_active(self, name: str) -> bool:
        """Return True if the stage is active."""
        return self.active_stages.get(name, False)

    def is_stage_completed(self, name: str) -> bool:
        """Return True if the stage is completed."""
        return self.completed_stage_set.get(name, False)

    def is_stage_failed(self, name: str) -> bool:
        """Return True if the stage failed, even if its error message is empty."""
        return name in self.failed_stages

    def get_active_stage_count(self) -> int:
        """Return the number of active stages."""
        return len(self.active_stages)

    def get_completed_stage_count(self) -> int:
        """Return the number of completed stages."""
        return len(self.completed_stage_set)

    def all_stages_complete(self) -> bool:
        """Return True if `stage_order` is not empty and all stages in it are completed."""
        return bool(self.stage_order) and all(self.completed_stage_set.get(name) for name in self.stage_order)

    def has_failures(self) -> bool:
        """Return True if any stage failed."""
        return bool(self.failed_stages)

    # --- outputs and history

    def get_output(self, key: str) -> dict[str, Any] | None:
        """Return the output that is stored under a name (its slot), as the object itself, not a copy. Return None if
        there is none.
        """
        return self.outputs.get(key)

    def set_output(self, key: str, output: Mapping[str, Any]) -> None:
        """Store an output under a name (its slot). An output that has this name already is replaced."""
        self.outputs[key] = output if isinstance(output, dict) else dict(output)

    def has_output(self, key: str) -> bool:
        """Return True if an output is stored under a name (its slot), even an empty mapping."""
        return key in self.outputs

    def record_agent_start(self, agent: str, stage_order: int = 0) -> None:
        """Record that an agent starts in a stage, and add one to the envelope's number of agent visits (hops)."""
        self.processing_history.append(ProcessingRecord(agent, stage_order, self.clock()))
        self.agent_hop_count += 1

    def record_agent_complete(
        self, agent: str, status: str, error: str | None = None, llm_calls: int = 0, duration_ms: int = 0
    ) -> None:
        """Record that an agent has ended, in the newest record that is still running. Add the agent's model calls to
        the number of model calls in the envelope.

        The model calls are counted even if the agent has no running record.

        A duration of 0 is computed from the clock.
        """
        self.llm_call_count += llm_calls
        for record in reversed(self.processing_history):
            if record.agent == agent and record.status == ProcessingStatus.RUNNING:
                now = self.clock()
                record.completed_at = now
                record.llm_calls = llm_calls
                record.status = ProcessingStatus.read(status)
                record.error = error
                elapsed = (now - record.started_at) // timedelta(milliseconds=1)
                record.duration_ms = duration_ms if duration_ms > 0 else elapsed
                return

    def total_processing_time_ms(self) -> int:
        """Return the sum of the durations of all agent runs, in milliseconds."""
        return sum(record.duration_ms for record in self.processing_history)

    # --- bounds and termination

    def exceeded_bound(self) -> TerminalReason | None:
        """Return the reason (`TerminalReason`) why no further stage may run: the first bound, such as
        ``max_llm_calls``, that does not allow another stage. Return None if all bounds allow it.

        The counts of iterations and of edges may equal their bounds. All other counts must stay below their bounds.
        """
        bounds = self.bounds
        for bound, count in COUNTS.items():
            limit = getattr(bounds, bound)
            used = getattr(self, count)
            # An iteration is counted when it begins, so that the count of one that is allowed may equal the bound.
            if limit is not None and (used > limit if bound == "max_iterations" else used >= limit):
                return TerminalReason(REASONS[bound])
        if bounds.max_seconds is not None and self._elapsed() >= bounds.max_seconds:
            return TerminalReason.MAX_SECONDS_EXCEEDED
        return TerminalReason.MAX_LOOP_EXCEEDED if exceeded_edge(bounds, self.edge_counts) else None

    def _elapsed(self) -> float:
        return (self.clock() - self.created_at).total_seconds()

    def count_edge(self, edge: str) -> int:
        """Increase the count of an edge (`"from->to"`) by one; return the new count."""
        self.edge_counts[edge] = self.edge_counts.get(edge, 0) + 1
        return self.edge_counts[edge]

    def can_continue(self) -> bool:
        """Return True if the next stage may run: the pipeline request has not ended, no question is pending, and no
        bound is exceeded.

        If a bound forbids the stage, the reason is stored in `terminal_reason`. A later function call deletes the
        reason if no bound forbids the stage any more.
        """
        if self.terminated or self.interrupt_pending:
            return False
        reason = self.exceeded_bound()
        if reason is not None:
            self.terminal_reason = reason
            return False
        # The bound may have been raised since the reason was stored.
        reason_before = self.terminal_reason
        if isinstance(reason_before, TerminalReason) and reason_before.classification is ReasonClass.BOUNDS_EXCEEDED:
            self.terminal_reason = None
        return True

    def terminate(self, message: str, terminal_reason: str | None = None) -> None:
        """End the pipeline request, with a message that states why. A second call replaces the message.

        An earlier `terminal_reason` is kept unless a new one is passed.
        """
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
        expires_in: DurationLike | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """Create a question to a person and set it as the pending question of the envelope. An earlier question is
        replaced.

        Parameters
        ----------
        kind
            An `InterruptKind`, or a custom string.
        id
            Identifier of the question; answers refer to it.
        question, message
            Text shown to the person: the question of a clarification, the message of any other kind.
        expires_in
            Seconds, a timedelta, or a string such as ``5 min``. An expired question still blocks the envelope; the code
            that drives the envelope decides what to do.
        data
            Plain data for the person or program that answers.
        """
        now = self.clock()
        copied = None if data is None else copied_map(data, "interrupt.data")
        expires_at = time_after(now, expires_in)
        self.ask(FlowInterrupt(InterruptKind.read(kind), id, now, question, message, copied, expires_at=expires_at))

    def ask(self, interrupt: FlowInterrupt) -> None:
        """Set an existing `FlowInterrupt` as the pending question of the envelope. An earlier question is replaced."""
        self.interrupt_pending = True
        self.interrupt = interrupt

    def resolve_interrupt(self, response: InterruptResponse | Mapping[str, Any]) -> None:
        """Store an answer in the question of the envelope, with the current time; mark the question as answered.

        Raises
        ------
        InterruptError
            The answer has an unknown part, or one of the wrong type; the question stays pending.
        """
        if self.interrupt is not None:
            self.interrupt.response = InterruptResponse.read(self.interrupt.id, response, self.clock())
        self.interrupt_pending = False

    def clear_interrupt(self) -> None:
        """Delete the question of the envelope, answered or not."""
        self.interrupt_pending = False
        self.interrupt = None

    def ask_next_interrupt(self) -> bool:
        """Ask the next queued question if no question is pending; return True if a question is pending afterwards."""
        if self.pending_interrupt is None and self.interrupt_queue:
            self.ask(self.interrupt_queue.pop(0))
        return self.pending_interrupt is not None

    def has_pending_interrupt(self) -> bool:
        """Return True if a question waits for an answer."""
        return self.pending_interrupt is not None

    def get_interrupt_kind(self) -> InterruptKind | str | None:
        """Return the kind of the latest question of the envelope, answered or not; None if it has never had a
        question.
        """
        return None if self.interrupt is None else self.interrupt.kind

    # --- serialization and copies

    def get_final_response(self) -> str | None:
        """Return the text to show to the user: the pending question, else the text of the output in the slot for the
        response. Return None if there is neither.
        """
        pending = self.pending_interrupt
        if pending and pending.kind == InterruptKind.CLARIFICATION and pending.question:
            return pending.question
        if pending and pending.kind == InterruptKind.CONFIRMATION and pending.message:
            return pending.message
        response = self.outputs.get(self.slot_names.response, {}).get(self.slot_names.response_key)
        return response if isinstance(response, str) else None

    def to_result_dict(self) -> dict[str, Any]:
        """Return a summary of the pipeline request for its caller: status, response, outputs, errors and question, as
        plain data.
        """
        reason = self.terminal_reason
        result: dict[str, Any] = {
            "envelope_id": self.envelope_id,
            "request_id": self.request_id,
            "user_id": self.user_id,
            "session_id": self.session_id,
            "current_stage": self.current_stage,
            "terminated": self.terminated,
            "termination_reason": self.termination_reason,
            "terminal_reason": None if reason is None else str(reason),
            "response": self.get_final_response(),
            "interrupt_pending": self.interrupt_pending,
            "iteration": self.iteration,
            "llm_call_count": self.llm_call_count,
            "processing_time_ms": self.total_processing_time_ms(),
            "errors": copied_maps(self.errors, "errors"),
        }
        if self.outputs:
            result["outputs"] = copied_map(self.outputs, "outputs")
        if self.interrupt is not None:
            result |= _interrupt_keys(self.interrupt, pending=self.interrupt_pending)
        return result

    def to_state_dict(self) -> dict[str, Any]:
        """Return all fields as plain data that `from_state_dict` can read. The result shares no objects with the
        envelope.

        Values that JSON lacks (dates, decimals, UUIDs, sets, tuples, bytes, NaN, arrays, frames, allowed classes) are
        written in the tagged form of the event log, and `from_state_dict` restores them. An object that no log can
        store is copied unchanged.

        Raises
        ------
        UncopyableValueError
            A field contains a value that cannot be copied.
        """
        return _state_of(self, saved_form)

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
        """Return the envelope described by a saved state. The envelope shares no objects with the state.

        Missing and unreadable fields keep their default values, and unknown keys are ignored, unless `strict`.

        Raises
        ------
        InvalidEnvelopeError
            If `strict` and the state has problems. The error lists all of them.
        """
        envelope = cls(slot_names=slot_names, clock=clock, new_id=new_id)
        problems = envelope._read(state)
        if strict and problems:
            raise InvalidEnvelopeError(problems)
        return envelope

    def _read(self, state: Any) -> list[str]:
        """Fill a new envelope with those fields of a saved state that can be read. Return the problems found in the
        state, one per line.
        """
        reading = PlainReading(self.clock())
        if not isinstance(state, Mapping):
            reading.refuse("state", state, "a mapping")
            return reading.problems
        # `STATE_KEYS` has `bounds` before `MAXIMA`, so that a changed maximum in the state overrides the bounds in it.
        types = {**types_of(Envelope), **dict.fromkeys(MAXIMA, int)}
        for key in STATE_KEYS:
            if key not in state:
                reading.problems.append(f"{key}: missing")
            elif key in MAXIMA and state[key] is None:
                continue  # `bounds` says whether there is one
            elif (value := reading.read(types[key], state[key], key)) is not UNREADABLE:
                try:
                    setattr(self, key, value)
                except BoundsError as error:  # a maximum outside of its range does not limit the envelope
                    reading.problems.append(str(error))
        return [*_strangers(state), *reading.problems]

    def validate(self) -> None:
        """Raise an error if the fields of the envelope contradict each other or have impossible values.

        Raises
        ------
        InvalidEnvelopeError
            The error lists all problems.
        """
        problems = [*self._wrong_identity(), *self._wrong_numbers(), *self._wrong_position(), *self._wrong_control()]
        if problems:
            raise InvalidEnvelopeError(problems)

    def _wrong_identity(self) -> Iterator[str]:
        for name in IDENTIFIERS:
            if not getattr(self, name):
                yield f"{name} is empty"
        for name in ("created_at", "received_at", "completed_at"):
            moment: datetime | None = getattr(self, name)
            if moment is not None and moment.tzinfo is None:
                yield f"{name} has no time zone: {moment.isoformat()}"

    def _wrong_numbers(self) -> Iterator[str]:
        for name in COUNTS.values():
            if getattr(self, name) < 0:
                yield f"{name} is negative: {getattr(self, name)}"
        for name in (*MAXIMA, "max_stages"):
            maximum: Any = getattr(self, name)
            if maximum is not None and maximum < 1:
                yield f"{name} must be at least 1, not {maximum}"
        if self.current_stage_number < 1:
            yield f"current_stage_number must be at least 1, not {self.current_stage_number}"

    def _wrong_position(self) -> Iterator[str]:
        names = (*self.stage_order, START, END)
        if self.stage_order and self.current_stage not in names:
            yield f"current_stage {self.current_stage!r} is not in stage_order: {', '.join(self.stage_order)}"
        for goal in self.remaining_goals:
            if goal not in self.all_goals:
                yield f"remaining_goals contains {goal!r}, but all_goals does not"

    def _wrong_control(self) -> Iterator[str]:
        if self.interrupt_pending and self.interrupt is None:
            yield "interrupt_pending is set, but there is no interrupt"
        if self.terminated and self.completed_at is None:
            yield "terminated is set, but completed_at is not"

    def clone(self) -> Self:
        """Return an independent deep copy of the envelope, which has the same identifiers.

        Raises
        ------
        UncopyableValueError
            A field contains a value that cannot be copied.
        """
        # The shallow copy keeps the class, the clock and attributes of the user; only the fields are copied deeply.
        envelope = copy.copy(self)
        for name in FIELDS:
            setattr(envelope, name, deep_copy(getattr(self, name), name))
        return envelope

    def take_over(self, state: Mapping[str, Any]) -> None:
        """Replace all fields of the envelope by the fields of a saved state, as `to_state_dict` returns it."""
        # These are not part of the saved state.
        names = self.slot_names
        clock = self.clock
        new_id = self.new_id
        envelope = self.from_state_dict(state, slot_names=names, clock=clock, new_id=new_id)
        for name in FIELDS:
            setattr(self, name, getattr(envelope, name))


FIELDS: Final = tuple(each.name for each in fields(Envelope) if each.compare)
"""Names of the fields that are compared and saved. A saved state has these keys, and those in `MAXIMA` in addition."""
MAXIMA: Final = ("max_iterations", "max_llm_calls", "max_agent_hops")
"""Bounds that are also attributes of the envelope, and that a person can be asked to raise."""
STATE_KEYS: Final = (*FIELDS, *MAXIMA)
IDENTIFIERS = ("envelope_id", "request_id", "user_id", "session_id")
COUNTS: Final = {
    "max_iterations": "iteration",
    "max_llm_calls": "llm_call_count",
    "max_agent_hops": "agent_hop_count",
    "max_tokens": "token_count",
    "max_cost": "cost",
}
"""Field with the count that each bound limits, in the order in which the bounds are checked."""


def _goals_of(stage: dict[str, Any]) -> list[str]:
    """Return the names of the goals that one round of work on the goals (a goal stage) satisfied, from the record of
    the round.

    The record may come from a damaged saved state: entries that are not strings are left out.
    """
    goals = stage.get("satisfied_goals")
    return [goal for goal in goals if isinstance(goal, str)] if isinstance(goals, list) else []


def recorded_state(envelope: Envelope) -> dict[str, Any]:
    """Return the state of an envelope as a reader of the log gets it. The variables of a live execution then equal
    those of a resumed or replayed one.

    Raises
    ------
    UnstorableValueError
        The envelope contains an object that no log can hold.
    """
    return _state_of(envelope, recorded_form)


def _state_of(envelope: Envelope, data_form: Callable[[Any, str], Any]) -> dict[str, Any]:
    state = {key: plain(getattr(envelope, key), key, data_form) for key in STATE_KEYS}
    return {"schema_version": SCHEMA_VERSION, **state}


def _strangers(state: Mapping[Any, Any]) -> list[str]:
    """Return those problems of a saved state that are not about the value of a field: a wrong schema version, and
    unknown keys.
    """
    version = state.get("schema_version", "missing")
    problems = [] if version == SCHEMA_VERSION else [f"schema_version: expected {SCHEMA_VERSION}, not {version!r:.60}"]
    strangers = state.keys() - {*STATE_KEYS, "schema_version"}
    hints = {key: did_you_mean(str(key), STATE_KEYS) for key in strangers}
    problems += [f"{key!r:.60}: unknown" + (f"; {hint}" if hint else "") for key, hint in hints.items()]
    return sorted(problems)


def _interrupt_keys(interrupt: FlowInterrupt, *, pending: bool) -> dict[str, Any]:
    shown = interrupt.to_dict()
    keys: dict[str, Any] = {"interrupt": {k: shown[k] for k in ("kind", "id", "question", "message", "created_at")}}
    if interrupt.kind == InterruptKind.CLARIFICATION:
        keys |= {"clarification_needed": pending, "clarification_question": interrupt.question}
    elif interrupt.kind == InterruptKind.CONFIRMATION:
        keys |= {
            "confirmation_needed": pending,
            "confirmation_message": interrupt.message,
            "confirmation_id": interrupt.id,
        }
    return keys


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
    """Return a new envelope for a request, which starts with a message of a user.

    The user id and the session id are stored unchanged, even if they are empty.
    """
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
    # Set afterwards, since the constructor would replace an empty id by a random one.
    envelope.session_id = session_id
    if request_id is not None:
        envelope.request_id = request_id
    return envelope


# --- merging single values --------------------------------------------------------------------------------------------


class MergeStrategy(Word):
    """Ways in which `merge_state` joins an existing value with a new value."""

    REPLACE = "replace"
    APPEND = "append"
    MERGE_DICT = "merge_dict"


def merge_state(existing: Any, value: Any, strategy: str) -> Any:
    """Join a new value to an existing value in the way that `strategy` names, and return the result. Neither value is
    modified.

    Parameters
    ----------
    existing
        Existing value; None if there is none yet.
    value
        The new value.
    strategy
        ``replace`` returns the new value. ``append`` creates or extends a list. ``merge_dict`` joins two mappings on
        their first level. Entries of the new value have priority. Values that are not mappings are replaced.

    Raises
    ------
    EnvelopeError
        The strategy does not exist.
    """
    if strategy == MergeStrategy.REPLACE:
        return value
    if strategy == MergeStrategy.APPEND:
        if isinstance(existing, list):
            return [*existing, value]
        return [value] if existing is None else [existing, value]
    if strategy == MergeStrategy.MERGE_DICT:
        both = isinstance(existing, Mapping) and isinstance(value, Mapping)
        return {**existing, **value} if both else value
    hint = did_you_mean(str(strategy), map(str, MergeStrategy)) or f"there are {', '.join(MergeStrategy)}"
    raise EnvelopeError(f"merge strategy {strategy!r} does not exist; {hint}")


# --- merging parallel branches ----------------------------------------------------------------------------------------
#
# Each parallel branch works on its own clone of the envelope. Only the differences between the clone and the original
# are merged, so that earlier values count once. Branches are merged in the order of their stages: if two branches wrote
# the same key, the later branch wins.


T = TypeVar("T")

LISTS = ("prior_plans", "loop_feedback", "processing_history", "errors", "completed_stages")
MAPS = ("active_stages", "completed_stage_set", "failed_stages", "goal_completion_status")
ENDING = ("terminated", "termination_reason", "terminal_reason", "completed_at")
_ABSENT: Any = object()


def merge_branches(envelope: Envelope, branches: Sequence[Envelope]) -> None:
    """Merge the results of parallel branches into an envelope. Each branch is a clone of the envelope that one stage
    has changed.

    Counters are added. History, errors, feedback and plans are concatenated. Outputs are merged by slot, metadata
    recursively. The first question becomes the question of the envelope; further questions are queued. If several
    branches ended the request, the first end is used.

    Parameters
    ----------
    envelope
        The original envelope, which must not have changed since it was cloned. The changes are written into it.
    branches
        The clones, in the order of their stages.

    Raises
    ------
    UncopyableValueError
        A branch contains a value that cannot be copied. The envelope is not modified.
    """
    before = envelope.clone()
    # All branches are cloned before the first change: if one of them cannot be copied, the envelope stays unchanged.
    for branch in [branch.clone() for branch in branches]:
        _add_counters(envelope, before, branch)
        _join_lists(envelope, before, branch)
        _merge_maps(envelope, before, branch)
        _merge_goals(envelope, before, branch)
        _queue_question(envelope, before, branch)
        if branch.terminated and not envelope.terminated:
            for name in ENDING:
                setattr(envelope, name, getattr(branch, name))


def _add_counters(envelope: Envelope, before: Envelope, branch: Envelope) -> None:
    for name in COUNTS.values():
        # Before 5, branches 7 and 6: 5 + 2 + 1 = 8.
        grown = getattr(branch, name) - getattr(before, name)
        setattr(envelope, name, getattr(envelope, name) + grown)
    for edge, count in branch.edge_counts.items():
        grown = count - before.edge_counts.get(edge, 0)
        envelope.edge_counts[edge] = envelope.edge_counts.get(edge, 0) + grown


def _join_lists(envelope: Envelope, before: Envelope, branch: Envelope) -> None:
    for name in LISTS:
        # Branches only append. Entries behind the original length are new.
        getattr(envelope, name).extend(getattr(branch, name)[len(getattr(before, name)) :])


def _merge_maps(envelope: Envelope, before: Envelope, branch: Envelope) -> None:
    for name in MAPS:
        setattr(envelope, name, _merged(getattr(envelope, name), getattr(before, name), getattr(branch, name), depth=1))
    # The output of a slot is replaced as a whole, metadata are merged at all levels.
    envelope.outputs = _merged(envelope.outputs, before.outputs, branch.outputs, depth=1)
    envelope.metadata = _merged(envelope.metadata, before.metadata, branch.metadata, depth=None)


def _merge_goals(envelope: Envelope, before: Envelope, branch: Envelope) -> None:
    # A goal that a branch took from the remaining ones is satisfied.
    satisfied = set(before.remaining_goals) - set(branch.remaining_goals)
    envelope.remaining_goals = [goal for goal in envelope.remaining_goals if goal not in satisfied]
    envelope.all_goals += [goal for goal in branch.all_goals if goal not in envelope.all_goals]
    envelope.remaining_goals += [goal for goal in branch.remaining_goals if goal not in before.remaining_goals]
    envelope.current_stage_number = max(envelope.current_stage_number, branch.current_stage_number)


def _queue_question(envelope: Envelope, before: Envelope, branch: Envelope) -> None:
    pending = branch.pending_interrupt
    # All branches have inherited the question of the original, which is not queued again.
    raised = [] if pending is None or pending == before.interrupt else [pending]
    envelope.interrupt_queue += [*raised, *branch.interrupt_queue[len(before.interrupt_queue) :]]
    envelope.ask_next_interrupt()


def _merged(current: Mapping[str, Any], before: Mapping[str, Any], branch: Mapping[str, Any], depth: int | None) -> Any:
    """Return a copy of the mapping `current` after a parallel branch. Entries that differ between `before` and `branch`
    get their values from `branch`.

    Mappings are merged recursively up to `depth` levels and replaced below; None merges all levels.

    Example: before {a: 1, b: 2}, branch {a: 1, b: 3, c: 4}, current {a: 9, b: 2}. The branch changed b and added c, so
    the result is {a: 9, b: 3, c: 4}. A key that the branch removed is removed from the result.
    """
    merged = dict(current)
    for key in before.keys() - branch.keys():
        merged.pop(key, None)
    deeper = None if depth is None else depth - 1
    for key, value in branch.items():
        old = before.get(key, _ABSENT)
        present = merged.get(key)
        if value == old:
            continue
        if deeper != 0 and isinstance(value, Mapping) and isinstance(present, Mapping):
            merged[key] = _merged(present, old if isinstance(old, Mapping) else {}, value, deeper)
        else:
            merged[key] = value
    return merged


# --- the envelope of an execution -------------------------------------------------------------------------------------
#
# The envelope is computed from the state of the execution, so that the same log always results in the same envelope.
# Stages of the envelope are the steps of the workflow, and its slots are the outputs of the agent steps. An execution
# has no goals.


NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""Start time of executions and steps that have not started."""


def envelope_from_state(state: ExecutionState, steps: Sequence[str] = ()) -> Envelope:
    """Convert the state of an execution to an envelope. Equal event logs give equal envelopes.

    Parameters
    ----------
    steps
        The names of the steps of the workflow, in the order of the definition.
    """
    ledger = state.ledger
    used = state.usage
    return Envelope(
        bounds=state.bounds,
        clock=ManualClock(to_datetime(state.last_us)),
        # No random ids: equal event logs must give equal envelopes.
        new_id=lambda _: "",
        iteration=ledger.iterations,
        llm_call_count=ledger.llm_calls,
        agent_hop_count=ledger.agent_hops,
        token_count=used.input_tokens + used.output_tokens,
        cost=exact_dollars(used.cost),
        edge_counts=dict(sorted(ledger.edges.items())),
        processing_history=_history(state, steps),
        errors=_errors(state),
        outputs=_outputs(state),
        **_identity_of_execution(state),
        **_termination(state),
        **_interruption(state),
        **_stages(state, steps),
    )


def _moment(microseconds: int | None) -> datetime:
    return NEVER if microseconds is None else to_datetime(microseconds)


def _identity_of_execution(state: ExecutionState) -> dict[str, Any]:
    identity = state.identity
    began = _moment(state.started_us)
    return {
        "envelope_id": state.execution_id,
        "request_id": str(identity.get("request_id") or state.execution_id),
        "session_id": str(identity.get("session_id") or ""),
        "created_at": began,
        "received_at": began,
        "user_id": str(identity.get("user_id") or "anonymous"),
        "raw_input": str(identity.get("raw_input") or ""),
        "metadata": copied_map(identity.get("metadata") or {}, "metadata"),
    }


def _termination(state: ExecutionState) -> dict[str, Any]:
    """Return the envelope's fields about its termination: how the execution ended, or at which bound it waits for a
    person.
    """
    if not state.is_over:
        # A question about a bound has the data {"bound": ..., "reason": "max_llm_calls_exceeded", ...}.
        details = (question.data or {} for question in state.pending_interrupts())
        reason = next((data["reason"] for data in details if "bound" in data and data.get("reason")), None)
        return {"terminal_reason": None if reason is None else TerminalReason.read(reason)}
    ended = None if state.ended_us is None else to_datetime(state.ended_us)
    reason = None if state.reason is None else TerminalReason.read(state.reason)
    return {
        "terminated": True,
        "termination_reason": state.error or state.lifecycle,
        "terminal_reason": reason,
        "completed_at": ended,
    }


def _interruption(state: ExecutionState) -> dict[str, Any]:
    """Return the envelope's fields about questions: the oldest open question, and the queue of the other open
    questions. If no question is open, the fields contain the question that was answered or ended last.
    """
    pending = [FlowInterrupt.of(interrupt) for interrupt in state.pending_interrupts()]
    if pending and not state.is_over:
        return {"interrupt_pending": True, "interrupt": pending[0], "interrupt_queue": pending[1:]}
    # Like an envelope of a pipeline, which keeps its last question with the answer.
    resolved = [interrupt for interrupt in state.interrupts.values() if not interrupt.is_open]
    if not resolved:
        return {}
    last = max(resolved, key=lambda interrupt: (interrupt.settled_us or 0, interrupt.raised_us, interrupt.id))
    return {"interrupt": FlowInterrupt.of(last)}


def _history(state: ExecutionState, steps: Sequence[str]) -> list[ProcessingRecord]:
    order = {name: number for number, name in enumerate(steps)}
    return [_record(hop, order.get(hop.step, 0)) for _, hop in sorted(state.ledger.history.items())]


def _record(hop: Hop, stage_order: int) -> ProcessingRecord:
    began = _moment(hop.started_us)
    ended = None if hop.ended_us is None else to_datetime(hop.ended_us)
    elapsed = 0 if ended is None else (ended - began) // timedelta(milliseconds=1)
    status = ProcessingStatus.read(hop.status)
    return ProcessingRecord(hop.step, stage_order, began, ended, max(elapsed, 0), status, hop.error, hop.llm_calls)


def _errors(state: ExecutionState) -> list[dict[str, Any] | None]:
    errors = (error for _, error in sorted(state.ledger.errors.items()))
    return [{**error, "timestamp": rfc3339(to_datetime(error["timestamp"]))} for error in errors]


def _outputs(state: ExecutionState) -> dict[str, dict[str, Any]]:
    """Return the outputs of an envelope by name (slot): one for each completed step of an agent. The output is the text
    of the step if that is a JSON object, else ``{"text": ...}``.
    """
    outputs: dict[str, dict[str, Any]] = {}
    for _, hop in sorted(state.ledger.history.items()):
        text = state.paths[hop.path].step_outputs.get(hop.step)
        if text is not None:
            outputs[hop.step] = _slot(text)
    return outputs


def _slot(text: str) -> dict[str, Any]:
    value, end = json_object(text)
    is_whole = not text[end:].strip(" \t\r\n")
    return value if value is not None and is_whole else {"text": text}


def _stages(state: ExecutionState, steps: Sequence[str]) -> dict[str, Any]:
    paths = sorted(state.paths.values(), key=lambda path: path.number)
    active = [path for path in paths if path.phase != ENDED]
    failed = {path.current_step: path.error for path in paths if path.status == FAILED and path.error}
    current_stage = START
    if active:
        current_stage = active[0].current_step
    elif state.paths:
        current_stage = END
    return {
        "current_stage": current_stage,
        "stage_order": list(steps),
        "active_stages": {path.current_step: True for path in active if path.phase == IN_STEP},
        "completed_stage_set": _completed(state, steps),
        "failed_stages": failed,
        "parallel_mode": len(active) > 1,
    }


def _completed(state: ExecutionState, steps: Sequence[str]) -> dict[str, bool]:
    # Steps that the definition does not have any more come last.
    completed = {step for path in state.paths.values() for step in path.step_outputs}
    order = {name: number for number, name in enumerate(steps)}
    return dict.fromkeys(sorted(completed, key=lambda name: (order.get(name, len(order)), name)), True)
