"""Types, names, places and settings of operations (recorded non-deterministic calls).

An operation is identified by its place (path, step, visit, iteration, key within the step), not by its content. When
replay reaches the place again, the hash of the parameters is compared with the recorded one, and a difference is a
divergence. Example: ``Place("main", "a", 1, None, 2)`` is the second call of step "a" in its first visit on "main".
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
"""Call of a function made with ``@step``."""
SCRIPT_EXECUTION = "script_execution"
DYNAMIC_CONTENT = "dynamic_content"
DOCUMENT_READ = "document_read"
TIME_ACCESS = "time_access"
RANDOM_GENERATION = "random_generation"
EVENT_EMITTED = "event_emitted"
"""User event. Like a call, it is identified by its place."""
TIMER = "timer"
"""Pause until a time."""
SIGNAL_WAIT = "signal_wait"
"""Wait for the next signal of a name."""
WAITS = (TIMER, SIGNAL_WAIT)
"""Operations that only wait, and do no work."""
CONTINUE_AS_NEW = "continue_as_new"
"""Start of the successor."""
CHILD_WORKFLOW = "child_workflow"
"""Child execution. Its end arrives as a signal whose name is the id of the child."""
AGENT_TURN = "agent_turn"
"""Turn of an agent. It encloses the requests to the model and the tool calls."""
TURN_KEY = "turn"
"""Key of a turn, after its prefix."""
TOOL_CALL = "tool_call"
TOOL_DISCOVERY = "tool_discovery"
"""Request for the tools of a server."""
CACHED_RESPONSE = "cached_response"
"""Model response from the cache, which costs nothing."""
AGENT_STEP = "agent_step"
"""Work of an agent's capability, such as compaction."""
BATCH_SUBMISSION = "batch_submission"
"""Submission of the requests of many rows to a provider, which answers them at half the price within a day."""
BATCH_LOOK = "batch_look"
BATCH_RESULTS = "batch_results"

VERDICT = "approval_verdict"
"""Record of a call that a rule denied."""
VERSION_DECISION = "version_decision"
STAGE_ATTEMPT = "stage_attempt"
"""Consumption of a failed attempt at a pipeline stage."""

ENCLOSING = frozenset({AGENT_TURN})
"""Operations that enclose others. They start once, and are entered again after a restart."""

CONSUMED = "consumed_usage"
"""Attribute of an error with the consumption of the failed call, in the form of `OperationFailed.usage`."""

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
"""Parameter that holds the name of the called action, agent, workflow or other target, by operation type."""


def may_continue_as(recorded_type: str, requested_type: str) -> bool:
    """Return whether an operation that has started and not ended may start again as an operation of another type. Only
    a cached response may: if the cache no longer has it after a crash, the model is asked instead.

    >>> may_continue_as(CACHED_RESPONSE, AGENT_RESPONSE), may_continue_as(AGENT_RESPONSE, CACHED_RESPONSE)
    (True, False)
    """
    is_lost_response = recorded_type == CACHED_RESPONSE and requested_type == AGENT_RESPONSE
    return is_lost_response or recorded_type == requested_type


def operation_name(operation_type: str, parameters: Mapping[str, Any] | None) -> str | None:
    """Return the name of the target of an operation (an action, an agent, a function, a signal), or None if it has
    none.

    >>> operation_name("action_execution", {"action_name": "Print", "params": {}})
    'Print'
    """
    key = NAMED_BY.get(operation_type)
    name = None if key is None or parameters is None else parameters.get(key)
    return name if isinstance(name, str) and name else None


def consumption_of(fields: Mapping[str, Any]) -> dict[str, int] | None:
    """Return the amounts (such as tokens) that a failed call has consumed. They are in the data of its recorded error.
    Return None if this data has no valid amounts.

    >>> consumption_of({"consumed_usage": {"input_tokens": 5}})
    {'input_tokens': 5}
    """
    usage = fields.get(CONSUMED)
    # The fields come from a log, so their types are checked. `type() is int` also refuses booleans.
    if not isinstance(usage, Mapping) or not all(type(amount) is int for amount in usage.values()):
        return None
    return dict(usage)


def operation_arguments(parameters: Any) -> Mapping[str, Any] | None:
    """Return the arguments by name that an operation's recorded parameters contain, such as those of an action or a
    tool. Return None if they contain none.

    >>> operation_arguments({"action_name": "Pay", "params": {"amount": 5}})
    {'amount': 5}
    """
    fields = parameters if isinstance(parameters, Mapping) else {}
    # Tool calls, actions and child workflows name their arguments differently.
    names = ("arguments", "params", "inputs")
    return next((fields[name] for name in names if isinstance(fields.get(name), Mapping)), None)


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
    """Return the words that people see for an operation type or step type. For a type without such words, return its
    name with spaces in place of underscores.

    >>> operation_kind("action_execution"), operation_kind("time_access"), operation_kind("prompt")
    ('action', 'time access', 'prompt')
    """
    return _KINDS.get(operation_type, operation_type.replace("_", " "))


# "retry-1" (a step or item), "call-1:retry-2" (a call), and "call-1-retry-2" (a call in logs of earlier versions). Keys
# of other timers are numbers, or names from users.
_PAUSE = re.compile(r"(?:.*[:-])?retry-\d+")


def pause_keys(key: str | None, failures: int) -> tuple[str, str]:
    """Return the key (the last part of a place) of the timer that pauses before another attempt, and the key that
    earlier versions wrote. `key` is the key of the failed call, or None for a step or an item of `Each`.

    >>> pause_keys("tool-1-c1", 2), pause_keys(None, 2)
    (('tool-1-c1:retry-2', 'tool-1-c1-retry-2'), ('retry-2', 'retry-2'))
    """
    name = f"retry-{failures}"
    # The id that a model gives a tool call contains no colon in the key of the call. With a hyphen, a call with the id
    # `c1-retry-2` had the same key as the second pause of call `c1`.
    return (name, name) if key is None else (f"{key}:{name}", f"{key}-{name}")


def is_pause(operation_type: str, key: str | int | None) -> bool:
    """Return whether an operation is the timer that pauses before another attempt after a failure. The operation is
    given by its type and key.

    Examples
    --------
    >>> is_pause(TIMER, "call-1:retry-2"), is_pause(TIMER, "call-1-retry-2"), is_pause(TIMER, 1)
    (True, True, False)
    """
    return operation_type == TIMER and isinstance(key, str) and _PAUSE.fullmatch(key) is not None


TEXT, THINKING, OUTPUT = "text", "thinking", "output"
"""Parts of the text that a call streams: two of a model, and the output of a command in a workspace.

The arguments of a tool call are another part; see `arguments_part`.
"""


def arguments_part(tool: str, call: str) -> str:
    """Return the name of the stream part that carries the arguments of one tool call, while a model is writing them.
    `call` is the id of the call.

    >>> arguments_part("search", "call_7")
    'arguments:search:call_7'
    """
    return f"arguments:{tool}:{call}"


BLOCKED_IN_WHAT_IF = "not executed in a what-if: no recorded result for these arguments"
BLOCKED_IN_TRIAL = BLOCKED_IN_WHAT_IF.replace("what-if", "trial")
"""Recorded errors of a call that is not made, because it has no recorded result. No retry policy tries it again."""


class Write(Protocol):
    """Protocol of the function to which a call passes its text piece by piece while the text arrives."""

    def __call__(self, text: str, part: str = TEXT) -> None:
        """Add a piece of text to the text that the call streams. `part` names the kind of text, such as the model's
        answer or its thinking.
        """


StreamedCall: TypeAlias = Callable[[Write], Awaitable[Any]]
"""Function that makes a call and streams its text; returns the same as the plain call."""


# --- places ----------------------------------------------------------------------------------------------------------
#
# A recorded result is found by its place alone. The parameters are compared afterwards. Example: a function of step "a"
# calls `pay(5)` twice. Calls without a name are numbered from 1, so the log has two operations:
#
#     Place("main", "a", 1, None, 1)   -> op_ff...   pay, hash of {"amount": 5}
#     Place("main", "a", 1, None, 2)   -> op_3b...   pay, hash of {"amount": 5}
#
# When the function runs again after a restart, its first call has the first place and gets the recorded result. If the
# function calls `refund(5)` first instead, the place has a record with another type and hash: this is a divergence, and
# the recorded result is not used (`divebook.runtime.operations`). Equal calls need no names, since their places differ.


class Place(NamedTuple):
    """Place of an operation in an execution (path, step, visit, item, key, attempt), by which replay finds its
    record.
    """

    path: str
    step: str
    visit: int
    iteration_index: int | None
    key: str | int
    """Number of the call within the step (or item), or a name that is the same in any order of concurrent calls."""
    attempt: int = 0
    """Number of earlier failures in this visit of the step. Each attempt has its own operations."""

    @property
    def operation_id(self) -> str:
        """Id of the operation: ``op_`` and 32 hexadecimal digits. All executions of a workflow have the same ids."""
        return operation_id_of(self)

    @property
    def idempotency_key(self) -> str:
        """Key of 32 hexadecimal digits that identifies the place, and is equal for all attempts of the call."""
        # A service that has seen the first attempt recognizes the next one by the same key.
        return _digest(self._replace(attempt=0))

    def __str__(self) -> str:
        parts = (
            f"step {self.step!r}",
            branch_name(self.path),
            f"visit {self.visit}" if self.visit > 1 else "",
            "" if self.iteration_index is None else f"item {self.iteration_index}",
            f"attempt {self.attempt + 1}" if self.attempt else "",
            f"call {self.key}",
        )
        return ", ".join(filter(None, parts))


@functools.lru_cache(maxsize=4096)  # all runs of a workflow have the same places
def operation_id_of(place: Place) -> str:
    """Return the id of the operation at a place; see `Place.operation_id`."""
    return f"op_{_digest(place)}"


def _digest(place: Place) -> str:
    path = place.path
    step = place.step
    visit = str(place.visit)
    item = str(place.iteration_index)
    # The key 1 and the key "1" are different places.
    kind = type(place.key).__name__
    key = str(place.key)
    attempt = str(place.attempt)
    # The length of each part makes the text unambiguous: path "a" with step "bc" differs from path "ab" with step "c"
    # (test_places_that_concatenate_alike_have_different_ids). Logs contain these ids, so the text must never change.
    text = (
        f"operation/2\x1f{len(path)}:{path}\x1f{len(step)}:{step}\x1f{len(visit)}:{visit}\x1f{len(item)}:{item}"
        f"\x1f{len(kind)}:{kind}\x1f{len(key)}:{key}\x1f{len(attempt)}:{attempt}"
    )
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Reserved(NamedTuple):
    """Part of a budget that is reserved for a model call or a child execution: the most tokens, cost and model calls
    that it may consume.
    """

    tokens: int = 0
    cost: int = 0
    """Nanodollars."""
    is_priced: bool = True
    """True if the price of the model is known."""
    calls: int = 0
    """Model calls of a child execution. A model call itself counts when it begins, and reserves none."""

    def plus(self, other: Reserved | None) -> Reserved:
        """Return the sum of the amounts in this reservation and another one. None adds nothing."""
        if other is None:
            return self
        # A sum has a known price only if both parts have one.
        is_priced = self.is_priced and other.is_priced
        return Reserved(self.tokens + other.tokens, self.cost + other.cost, is_priced, self.calls + other.calls)

    def to_dict(self) -> dict[str, int]:
        """Return the reserved amounts (tokens, cost, calls) by name, as the log stores them. Amounts of zero are left
        out.
        """
        amounts = ("tokens", self.tokens), ("cost", self.cost), ("calls", self.calls)
        return {name: value for name, value in amounts if value}

    @staticmethod
    def of(data: Mapping[str, int] | None) -> Reserved | None:
        """Create a reservation from the dict that `to_dict` returned. Return None if the dict is None or empty."""
        return Reserved(data.get("tokens", 0), data.get("cost", 0), calls=data.get("calls", 0)) if data else None


class Slot(Protocol):
    """Protocol of a permit that a call must hold while it runs, so that only a limited number of calls run
    concurrently.

    It is acquired before the start of the call is recorded. A call that waits for a slot has therefore not begun: its
    time limit does not run, and its outcome cannot be unknown.
    """

    async def __aenter__(self) -> object:
        """Wait until the call is within the limit of concurrent calls, and acquire the permit."""

    async def __aexit__(self, *_: object) -> None:
        """Release the permit, unless it has been released already."""

    def release(self) -> None:
        """Release the permit for other calls. Calling it again has no effect."""


class Setting(NamedTuple):
    """Settings of a call, such as the model and the instructions of a request. They are recorded, but replay does not
    compare them.
    """

    told: Mapping[str, Any]
    """Settings that differ from those of the previous call, by name."""
    digest: str | None = None
    """Hash of the whole setting, 16 hexadecimal digits, if code needs to know whether it has changed."""


class RunOperation(Protocol):
    """Protocol of the function through which code in a step makes a non-deterministic call (an operation). The function
    records the result of the call; in a replay it returns the recorded result instead of making the call.
    """

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
        """Return the recorded result of the operation. If the log has none, make the call with `call` and record its
        result.
        """
