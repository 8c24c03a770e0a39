"""What an envelope holds: its fields by the names that users and states know, and how they are written and read."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from divebook.bounds import DEFAULT_BOUNDS, Bounds
from divebook.errors import did_you_mean
from divebook.pipeline.envelope.enums import ProcessingStatus, TerminalReason
from divebook.pipeline.envelope.interrupt import FlowInterrupt
from divebook.pipeline.envelope.plain import UNREADABLE, EnvelopePart, PlainReading, plain, types_of
from divebook.workflow.pipelines import START

Clock = Callable[[], datetime]
"""Returns the present, aware, UTC."""
IdSource = Callable[[str], str]
"""Returns a new identifier that begins with the given prefix and an underscore."""

SCHEMA_VERSION: Final = 1
UNSET: Final = datetime.min.replace(tzinfo=UTC)
"""Stands for the present in the moments of a new envelope."""


def utc_now() -> datetime:
    """Return the machine's time."""
    return datetime.now(UTC)


def random_id(prefix: str) -> str:
    """Return the prefix, an underscore, and 64 random bits as 16 hexadecimal digits."""
    return f"{prefix}_{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True)
class SlotNames:
    """Which output slots have a part in retries, stages and responses; the envelope itself knows no stage."""

    retry_reset: Collection[str] = frozenset({"plan", "arbiter", "execution", "synthesizer", "critic"})
    """Dropped when an attempt begins anew."""
    advance_reset: Collection[str] = frozenset({"plan", "execution", "critic"})
    """Dropped when the next stage of goals begins."""
    archive: str = "plan"
    """Kept in `prior_plans` when an attempt begins anew; its ``plan_id`` marks a completed stage."""
    response: str = "integration"
    """Holds the final response ..."""
    response_key: str = "final_response"
    """... under this key."""


DEFAULT_SLOT_NAMES: Final = SlotNames()


@dataclass(slots=True)
class ProcessingRecord(EnvelopePart):
    """One agent's step; `completed_at` and `duration_ms` come with its end."""

    agent: str
    stage_order: int
    started_at: datetime
    completed_at: datetime | None = None
    duration_ms: int = 0
    status: ProcessingStatus | str = ProcessingStatus.RUNNING
    error: str | None = None
    llm_calls: int = 0


class _Maximum:
    """A bound as a field, which is replaced together with the others, since `Bounds` do not change."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, contents: Contents | None, owner: type) -> Any:
        return self if contents is None else getattr(contents.bounds, self._name)

    def __set__(self, contents: Contents, value: int | None) -> None:
        changed: dict[str, Any] = {self._name: value}
        contents.bounds = replace(contents.bounds, **changed)


@dataclass(kw_only=True, repr=False)
class Contents:
    """The fields of one envelope; two are equal if all that is in their states is."""

    envelope_id: str = ""
    request_id: str = ""
    session_id: str = ""
    user_id: str = "anonymous"
    raw_input: str = ""
    received_at: datetime = UNSET
    created_at: datetime = UNSET
    metadata: dict[str, Any] = field(default_factory=dict)

    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By slot."""
    prior_plans: list[dict[str, Any] | None] = field(default_factory=list)
    loop_feedback: list[str] = field(default_factory=list)

    current_stage: str = START
    stage_order: list[str] = field(default_factory=list)
    active_stages: dict[str, bool] = field(default_factory=dict)
    completed_stage_set: dict[str, bool] = field(default_factory=dict)
    failed_stages: dict[str, str] = field(default_factory=dict)
    """The error by stage."""
    parallel_mode: bool = False

    bounds: Bounds = DEFAULT_BOUNDS
    iteration: int = 0
    llm_call_count: int = 0
    agent_hop_count: int = 0
    token_count: int = 0
    cost: Decimal = Decimal(0)
    """US dollars."""
    edge_counts: dict[str, int] = field(default_factory=dict)
    """Passages, by ``"from->to"``."""

    terminated: bool = False
    termination_reason: str | None = None
    """For people."""
    terminal_reason: TerminalReason | str | None = None
    """For programs; alone it says what keeps the request from going on."""
    completed_at: datetime | None = None

    interrupt_pending: bool = False
    interrupt: FlowInterrupt | None = None
    interrupt_queue: list[FlowInterrupt] = field(default_factory=list)
    """Raised by parallel branches beside the first one."""

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
        """The question that waits for its answer; the flag alone is none."""
        return self.interrupt if self.interrupt_pending else None

    def __repr__(self) -> str:
        state = "terminated" if self.terminated else "interrupted" if self.interrupt_pending else "open"
        return f"<{type(self).__name__} {self.envelope_id} at {self.current_stage!r}, {state}>"


FIELDS: Final = tuple(each.name for each in fields(Contents) if each.compare)
"""What makes an envelope; also the keys of its state, in which `MAXIMA` stand a second time."""
MAXIMA: Final = ("max_iterations", "max_llm_calls", "max_agent_hops")
STATE_KEYS: Final = (*FIELDS, *MAXIMA)


def write_state(contents: Contents) -> dict[str, Any]:
    """Return everything about an envelope as plain data, which shares nothing with it.

    Raises
    ------
    UncopyableValueError
        Somebody put a value into it that cannot be copied.
    """
    return {"schema_version": SCHEMA_VERSION, **{key: plain(getattr(contents, key), key) for key in STATE_KEYS}}


def read_state(contents: Contents, state: Any) -> list[str]:
    """Fill a fresh envelope with what can be read of a state; return what is wrong with that state."""
    reading = PlainReading(contents.clock())
    if not isinstance(state, Mapping):
        reading.refuse("state", state, "a mapping")
        return reading.problems
    types = {**types_of(Contents), **dict.fromkeys(MAXIMA, int)}
    for key in STATE_KEYS:
        if key not in state:
            reading.problems.append(f"{key}: missing")
        elif key in MAXIMA and state[key] is None:
            continue  # `bounds` says whether there is one
        elif (value := reading.read(types[key], state[key], key)) is not UNREADABLE:
            setattr(contents, key, value)
    return [*_strangers(state), *reading.problems]


def _strangers(state: Mapping[Any, Any]) -> list[str]:
    """Return what is wrong with the version, and unknown keys."""
    version = state.get("schema_version", "missing")
    problems = [] if version == SCHEMA_VERSION else [f"schema_version: {SCHEMA_VERSION} wanted, not {version!r:.60}"]
    strangers = state.keys() - {*STATE_KEYS, "schema_version"}
    found = {key: did_you_mean(str(key), STATE_KEYS) for key in strangers}
    problems += [f"{key!r:.60}: unknown" + (f"; {hint}" if hint else "") for key, hint in found.items()]
    return sorted(problems)
