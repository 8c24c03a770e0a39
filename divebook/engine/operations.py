"""What identifies an operation, and how the engine runs it once.

An operation is known by its place (path, step, visit, iteration, key within the step), never by its content: the hash
of its parameters is compared when the place is met again, and a difference is a divergence.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from divebook.text.format import branch_name

AGENT_RESPONSE = "agent_response"
ACTION_EXECUTION = "action_execution"
STEP_EXECUTION = "step_execution"
"""A function made with ``@step``."""
SCRIPT_EXECUTION = "script_execution"
DYNAMIC_CONTENT = "dynamic_content"
DOCUMENT_READ = "document_read"
TIME_ACCESS = "time_access"
RANDOM_GENERATION = "random_generation"
EVENT_EMITTED = "event_emitted"
"""An event of a person's own, which is known by its place as calls are."""
TIMER = "timer"
"""Lets time pass."""
SIGNAL_WAIT = "signal_wait"
"""Takes the next signal of a name."""
CONTINUE_AS_NEW = "continue_as_new"
"""Starts the execution as which this one goes on."""
CHILD_WORKFLOW = "child_workflow"
"""Runs another workflow as an execution of its own, whose end comes as a signal with the id of that execution."""
AGENT_TURN = "agent_turn"
"""An agent at work until its answer: it holds the requests to its model and the calls of its tools."""
TOOL_CALL = "tool_call"
TOOL_DISCOVERY = "tool_discovery"
"""Asks a server for its tools."""
CACHED_RESPONSE = "cached_response"
"""An answer of a model that was kept, and costs nothing."""
AGENT_STEP = "agent_step"
"""What a capability of an agent does, as compaction."""
BATCH_SUBMISSION = "batch_submission"
"""Hands requests of many rows to a provider at once, which answers them at half the price within a day."""
BATCH_LOOK = "batch_look"
BATCH_RESULTS = "batch_results"

VERDICT = "approval_verdict"
"""Keeps what a rule denied."""
VERSION_DECISION = "version_decision"
STAGE_ATTEMPT = "stage_attempt"
"""What an attempt at a stage of a pipeline has spent that failed."""

ENCLOSING = frozenset({AGENT_TURN})
"""Operations that hold others: begun once, entered again after a restart, and never under way by themselves."""

CONSUMED = "consumed_usage"
"""Attribute of an error: what its call consumed all the same, in the form of `OperationFailed.usage`."""

NAMED_BY = {
    ACTION_EXECUTION: "action_name",
    AGENT_RESPONSE: "agent",
    AGENT_STEP: "agent",
    AGENT_TURN: "agent",
    BATCH_LOOK: "agent",
    BATCH_RESULTS: "agent",
    BATCH_SUBMISSION: "agent",
    CACHED_RESPONSE: "agent",
    CHILD_WORKFLOW: "workflow",
    DOCUMENT_READ: "path",
    SIGNAL_WAIT: "signal",
    TOOL_CALL: "tool",
    TOOL_DISCOVERY: "server",
    STEP_EXECUTION: "step",
    VERSION_DECISION: "change_id",
}
"""The parameter that names what is called, by type of operation."""


def operation_name(operation_type: str, parameters: Mapping[str, Any] | None) -> str | None:
    """Return the name of what an operation calls: an action, an agent, a function, a signal.

    >>> operation_name("action_execution", {"action_name": "Print", "params": {}})
    'Print'
    """
    key = NAMED_BY.get(operation_type)
    name = None if key is None or parameters is None else parameters.get(key)
    return name if isinstance(name, str) and name else None


def consumption_of(fields: Mapping[str, Any]) -> dict[str, int] | None:
    """Return what a failed call consumed, by the attributes of its error; None where they do not say it.

    >>> consumption_of({"consumed_usage": {"input_tokens": 5}})
    {'input_tokens': 5}
    """
    usage = fields.get(CONSUMED)
    if not isinstance(usage, Mapping) or not all(type(amount) is int for amount in usage.values()):
        return None
    return dict(usage)


def operation_arguments(parameters: Any) -> Mapping[str, Any] | None:
    """Return what a call was given by name; None where its parameters do not say it.

    >>> operation_arguments({"action_name": "Pay", "params": {"amount": 5}})
    {'amount': 5}
    """
    given = parameters if isinstance(parameters, Mapping) else {}
    names = ("arguments", "params", "inputs")
    return next((given[name] for name in names if isinstance(given.get(name), Mapping)), None)


_KINDS = {
    ACTION_EXECUTION: "action",
    AGENT_RESPONSE: "model call",
    AGENT_STEP: "part of agent",
    AGENT_TURN: "turn",
    BATCH_LOOK: "look at batch",
    BATCH_RESULTS: "results of batch",
    BATCH_SUBMISSION: "batch",
    CACHED_RESPONSE: "cached answer",
    CHILD_WORKFLOW: "workflow",
    CONTINUE_AS_NEW: "next run",
    DOCUMENT_READ: "document",
    EVENT_EMITTED: "event",
    SCRIPT_EXECUTION: "script",
    SIGNAL_WAIT: "signal",
    STEP_EXECUTION: "step",
    TIMER: "sleep",
    TOOL_CALL: "tool call",
    TOOL_DISCOVERY: "tools of server",
    "interrupt": "question",  # a type of step
}


def operation_kind(operation_type: str) -> str:
    """Return what people call a type of operation, or of step.

    >>> operation_kind("action_execution"), operation_kind("time_access"), operation_kind("prompt")
    ('action', 'time access', 'prompt')
    """
    return _KINDS.get(operation_type, operation_type.replace("_", " "))


_PAUSE = re.compile(r"(?:.*-)?retry-\d+")


def pause_key(key: str | None, failures: int) -> str:
    """Return the key of the timer before another attempt at a call, or at the step or item where `key` is None."""
    return f"retry-{failures}" if key is None else f"{key}-retry-{failures}"


def is_pause(operation_type: str, key: str | int | None) -> bool:
    """Return whether an operation is the timer before another attempt.

    Examples
    --------
    >>> is_pause(TIMER, pause_key("call-1", 2)), is_pause(TIMER, 1)
    (True, False)
    """
    return operation_type == TIMER and isinstance(key, str) and _PAUSE.fullmatch(key) is not None


TEXT, THINKING, OUTPUT = "text", "thinking", "output"
"""Parts of what is written while a call is made: two by a model, and what a command prints in a workspace.

What a model writes as arguments of a call is a part of its own, see `arguments_part`.
"""


def arguments_part(tool: str, call: str) -> str:
    """Return the name of the part that holds the arguments of a call, by its tool and its id.

    >>> arguments_part("search", "call_7")
    'arguments:search:call_7'
    """
    return f"arguments:{tool}:{call}"


class Write(Protocol):
    """Takes the next piece of what is being written."""

    def __call__(self, text: str, part: str = TEXT) -> None:
        """Take a piece of a text: of an answer, or of another part of what is written."""


StreamedCall: TypeAlias = Callable[[Write], Awaitable[Any]]
"""Makes a call and hands on its text as it arrives; returns what the plain call returns."""


class Place(NamedTuple):
    """Where in an execution an operation belongs."""

    path: str
    step: str
    visit: int
    iteration_index: int | None
    key: str | int
    """Number of the call within the step (or item), or a name that is stable when calls run side by side."""
    attempt: int = 0
    """How often the step has failed before in this visit: every attempt makes operations of its own."""

    @property
    def operation_id(self) -> str:
        """``op_`` and 32 hexadecimal digits, the same in every execution of the workflow."""
        return f"op_{_digest(self)}"

    @property
    def idempotency_key(self) -> str:
        """32 hexadecimal digits that stay the same from attempt to attempt."""
        return _digest(self._replace(attempt=0))

    def __str__(self) -> str:
        told = (
            f"step {self.step!r}",
            branch_name(self.path),
            f"visit {self.visit}" if self.visit > 1 else "",
            "" if self.iteration_index is None else f"item {self.iteration_index}",
            f"attempt {self.attempt + 1}" if self.attempt else "",
            f"call {self.key}",
        )
        return ", ".join(filter(None, told))


@functools.lru_cache(maxsize=4096)  # every run of a workflow has the same places
def _digest(place: Place) -> str:
    path, step, number, index, named, again = place
    visit = str(number)
    item = str(index)
    kind = type(named).__name__
    key = str(named)
    attempt = str(again)
    marked = (  # each part with its length: no other parts give the same text
        f"operation/2\x1f{len(path)}:{path}\x1f{len(step)}:{step}\x1f{len(visit)}:{visit}\x1f{len(item)}:{item}"
        f"\x1f{len(kind)}:{kind}\x1f{len(key)}:{key}\x1f{len(attempt)}:{attempt}"
    )
    return hashlib.sha256(marked.encode()).hexdigest()[:32]


class Reserved(NamedTuple):
    """The most that a call may consume: one to a model, or an execution that another one starts."""

    tokens: int = 0
    cost: int = 0
    """Nanodollars."""
    is_priced: bool = True
    """Whether a price is known."""
    calls: int = 0
    """Model calls of an execution that another one starts; a call to a model counts when it begins."""

    def plus(self, other: Reserved | None) -> Reserved:
        """Return both together."""
        if other is None:
            return self
        is_priced = self.is_priced and other.is_priced
        return Reserved(self.tokens + other.tokens, self.cost + other.cost, is_priced, self.calls + other.calls)

    def to_dict(self) -> dict[str, int]:
        """Return what is not zero, as the log holds it."""
        told = ("tokens", self.tokens), ("cost", self.cost), ("calls", self.calls)
        return {name: value for name, value in told if value}

    @staticmethod
    def of(told: Mapping[str, int] | None) -> Reserved | None:
        """Return it as the log holds it."""
        return Reserved(told.get("tokens", 0), told.get("cost", 0), calls=told.get("calls", 0)) if told else None


class Slot(Protocol):
    """The right to have a call under way where only so many can be; held from before it is recorded until it returns.

    So a call that waits for a slot has not begun: neither its time limit runs, nor can it be of unknown outcome.
    """

    async def __aenter__(self) -> object:
        """Wait until it may begin."""

    async def __aexit__(self, *_: object) -> None:
        """Let the next call have it, if that has not been done."""

    def release(self) -> None:
        """Let the next call have it; once is the same as twice."""


class Setting(NamedTuple):
    """What a call is made with that is kept and never compared."""

    told: Mapping[str, Any]
    """What of it differs from the call before."""
    digest: str | None = None
    """16 hexadecimal digits over all of it, where code asks whether it has changed."""


class RunOperation(Protocol):
    """How code inside a step makes a non-deterministic call: recorded once, answered from the log ever after."""

    async def __call__(
        self,
        operation_type: str,
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        key: str | None = None,
        usage: Callable[[Any], Mapping[str, int]] | None = None,
        repeatable: bool = False,
        reserved: Reserved | None = None,
        streamed: StreamedCall | None = None,
        slot: Slot | None = None,
    ) -> Any:
        """Return the recorded result, or make the call and record what it returns."""
