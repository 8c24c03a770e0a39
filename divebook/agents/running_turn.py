"""State of an agent turn that is running: the keys of its operations, its budget, and the current tool call."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, is_dataclass
from typing import TYPE_CHECKING, Any

from divebook.agents.turn import failed_attempt
from divebook.definitions.tools import ToolFunction
from divebook.documents.policy import CREDENTIALS, Policy
from divebook.engine.bounds import share_of
from divebook.engine.operations import Setting
from divebook.errors import OperationError
from divebook.projections.model_requests import call_name
from divebook.text.redaction import logger, shared

if TYPE_CHECKING:
    from pydantic_ai.models import Model, ModelRequestParameters

    from divebook.agents.budget import TurnBudget
    from divebook.agents.request_record import RequestRecord
    from divebook.agents.turn import Admission, StepTurn
    from divebook.agents.turn_compatibility import TurnCompatibility
    from divebook.definitions.step import Retry
    from divebook.engine.operations import Reserved, Write


_log = logger(__name__)


SECOND = "#2"
"""Suffix of the name of a call that is made a second time because its tool required approval first."""


TURN: ContextVar[AgentTurn | None] = ContextVar("divebook_turn", default=None)
"""The current turn. None inside a recorded call, which is a single operation whatever it does."""


CALL: ContextVar[CallPlace | None] = ContextVar("divebook_tool_call", default=None)
"""The current tool call."""


INSIDE: ContextVar[str | None] = ContextVar("divebook_inside_call", default=None)
"""Name of the current recorded call."""


WRITE: ContextVar[Write | None] = ContextVar("divebook_write", default=None)
"""Function that receives streamed text of the current request; None if no view listens."""


@dataclass
class AgentTurn:
    """State of one turn of an agent inside a step, while the turn is running."""

    context: StepTurn
    record: RequestRecord
    model: str
    """Name of the agent's model."""
    retry: Retry
    """Retry policy of model requests."""
    seconds: float
    """Time limit of a request, in seconds."""
    tools: Mapping[str, ToolFunction] = field(default_factory=dict)
    """Tools that are divebook functions, by name."""
    budget: TurnBudget | None = None
    """Budget of the turn; None if it is not bounded."""
    compatibility: TurnCompatibility | None = None
    """Comparison with the definition that the turn began with. None once a person has chosen how to continue."""
    policy: Policy = field(default_factory=Policy.given)
    """Policy for files that requests may name, and for credentials in data that the agent reads and writes."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    has_started: bool = False
    """True once the run of this turn has started. A run that starts later belongs to a tool."""
    call_counts: Counter[str] = field(default_factory=Counter)
    """Number of calls per tool in the latest response."""
    latest_parameters: ModelRequestParameters | None = None
    """Parameters of the latest request, with the tools that the model may call."""
    failed: list[tuple[str, OperationError]] = field(default_factory=list)
    """Failed tools and their errors. The first of them ends the turn."""
    changing: set[str] = field(default_factory=set)
    """Tools that changed unrecorded dependencies and were already reported."""
    cleaned: set[str] = field(default_factory=set)
    """Sources of redacted credentials that were already reported."""
    fallbacks: dict[str, Model] = field(default_factory=dict)
    """Models that pydantic-ai asks if that of the agent fails, by model id or by the name that names them."""
    corrections: int | None = None
    """Limit of corrections of a call or an answer; None for an agent of pydantic-ai, which has its own limit."""
    definitions: int = 0
    """Token estimate of the tool definitions that requests are sent with."""
    _shares: dict[tuple[int, bool], Mapping[str, Any]] = field(default_factory=dict)
    keeps_original: bool = False
    """True if a person chose to finish the turn with its original definition after the agent had changed."""
    deferred: set[str] = field(default_factory=set)
    """Calls that their tool has deferred until a person approves them."""
    _counts: Counter[str] = field(default_factory=Counter)
    _keys: set[str] = field(default_factory=set)
    """Keys that `key` has returned."""
    _calls: Counter[str] = field(default_factory=Counter)

    @property
    def unknown_tools(self) -> list[str]:
        """Names of tools that the latest model response calls although the request did not offer them."""
        parameters = self.latest_parameters
        if parameters is None:
            return [*self.call_counts]
        offered = {tool.name for tool in (*parameters.function_tools, *parameters.output_tools)}
        return [name for name in self.call_counts if name not in offered]

    def call(self, tool_call_id: str) -> CallPlace:
        """Return the place in the log of a tool call that the latest model response requests.

        Ids are unique within one response (`divebook.agents.request_record`).
        """
        # `2-call_7`: the call `call_7` that the response to request 2 asks for.
        name = f"{self.record.requests}-{call_name(tool_call_id)}"
        return CallPlace(self, f"{name}{SECOND}" if name in self.deferred else name)

    def count(self, tool: str, most: int | None) -> None:
        """Count a call of a tool in this turn. `most` is the maximum number of calls of the tool; None for no maximum.

        Raises
        ------
        ToolFailed
            The tool has reached its limit of calls. The model gets the message.
        """
        from pydantic_ai.exceptions import ToolFailed  # already loaded: only code that reads a log runs without it

        # Counts are not recorded: a resumed turn passes all its calls here again, also those that the log has.
        self._calls[tool] += 1
        if most is not None and self._calls[tool] > most:
            raise ToolFailed(f"{tool} is used up: it may be called {most} times, go on with what you have")

    def without_credentials(self, value: Any, what: str) -> Any:
        """Return plain data with credentials replaced by ``[redacted]``, and log a warning. If the policy allows
        credentials, only secrets that the user has named are replaced. `what` describes the data in the warning.

        A warning is logged once per turn for each source of a redacted credential, because a tool may need the value.
        """
        if CREDENTIALS in self.policy.allowed:
            return shared().without_named(value)
        cleaned_value = shared().without_certain(value)
        # Only credentials that were recognized by their form are reported. A secret that the user named is expected
        # here.
        # A value that nothing was removed from, as most are, is not searched for named secrets once more.
        if what not in self.cleaned and cleaned_value != value and cleaned_value != shared().without_named(value):
            self.cleaned.add(what)
            _log.warning(
                "%s contained text that looks like a credential. For agent %s and in the log, the text was replaced by "
                '[redacted]. Refer to keys as env://NAME, or allow credentials with Policy("credentials")',
                what,
                self.record.agent,
            )
        return cleaned_value

    def share(self, tool: str, recorded: Mapping[str, Any] | None, *, is_again: bool) -> Mapping[str, Any] | None:
        """Return the bounds for one of several tasks that a model response delegates at once: an equal share of the
        rest of the budget. Return None if the response delegates a single task, or if the turn has no budget.

        The rest of the budget is divided among the calls of the response. `recorded` is the recorded share of this
        call, and the calls beside it get the same. A task that failed and is run again gets a share of the current
        rest, because the bounds of its agent may have been raised for it.
        """
        share_key = (self.record.requests, is_again)
        count = self.call_counts[tool]
        # Tasks of one response share equally, so one recorded share is the share of all.
        if recorded is not None and not is_again:
            self._shares.setdefault(share_key, recorded)
            return recorded
        # A single task may use the whole rest, and its budget is limited by the budgets above it anyway.
        if self.budget is None or count == 1:
            return None
        # Computed once, at the first task, because the rest decreases as soon as that task spends something.
        if share_key not in self._shares:
            self._shares[share_key] = share_of(self.budget.remaining, count).to_dict()
        return self._shares[share_key]

    async def request(
        self,
        operation_type: str,
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        key: str,
        retry: Retry,
        reserved: Reserved,
        usage: Callable[[Any], Mapping[str, int]],
        **options: Any,
    ) -> Any:
        """Make a model request as a recorded operation, within the budget of the turn. Return the response in recorded
        form. The other options are those of `StepTurn.operation`.
        """
        # The budget comes first, and the operation takes the slot of the limiter: a request that waits for a person
        # holds no slot (test_a_request_that_waits_for_a_person_keeps_no_other_one_waiting).
        recorded = await self.context.operation(
            operation_type,
            parameters,
            call,
            key=key,
            retry=retry,
            admitted=self.admission(key, reserved),
            reserved=reserved,
            usage=usage,
            **options,
        )
        # No await lies between the release of the reservation and `spend`, so a waiting request sees the consumption.
        # A response from the log counts too, so that a resumed turn has the same budget left.
        if self.budget is not None:
            self.budget.spend(usage(recorded))
        return recorded

    def admission(self, key: str, reserved: Reserved) -> Admission | None:
        """Return the function that admits each attempt at a model request by the budget of the turn. Return None if the
        turn has no budget. `reserved` is the maximum consumption of one attempt.
        """
        return None if self.budget is None else _Attempts(self.context, self.budget, key, reserved).admitted

    def key(self, name: str) -> str:
        """Return an operation key for a name that is unique in this turn. If the name was used before, a number is
        appended.
        """
        while True:
            number = self.number(name)
            key = name if number == 1 else f"{name}#{number}"
            # A name can end like a number, because it can contain the id of a call: `check-c1#2`.
            if key not in self._keys:
                self._keys.add(key)
                return key

    def number(self, name: str) -> int:
        """Count a use of a name in this turn, and return the number of its uses so far."""
        # A resumed turn runs the same code again, so the n-th use of a name gets the same number.
        self._counts[name] += 1
        return self._counts[name]


class _Attempts:
    """Attempts at one model request of a turn. The budget of the turn has to admit each of them, because a failed one
    may have been paid for (test_the_bounds_of_an_agent_end_attempts_that_are_paid).
    """

    def __init__(self, context: StepTurn, budget: TurnBudget, key: str, reserved: Reserved) -> None:
        self._context = context
        self._budget = budget
        self._key = key
        self._reserved = reserved
        self._counted = 0
        """Number of failed attempts whose consumption is counted."""
        self._counted_before_resumption = 0
        """Number of attempts whose failures before a resumption are counted."""

    @asynccontextmanager
    async def admitted(self, failures: int) -> AsyncIterator[None]:
        """Wait until the budget admits one attempt, and reserve its maximum consumption during the ``with`` block.
        `failures` is the number of failed attempts before it.
        """
        # A resumed turn does not make the failed attempts of earlier processes again, so they are counted here.
        for attempt in range(self._counted, failures):
            self._budget.count(failed_attempt(self._context.consumed_by_failure(self._key, attempt) or {}))
        self._counted = failures
        # The same holds for attempts that a resumption repeats, of which this may be one.
        for attempt in range(self._counted_before_resumption, failures + 1):
            self._budget.count(self._context.consumed_before_resumption(self._key, attempt))
        self._counted_before_resumption = failures + 1
        # An attempt that the log has was admitted when it was made.
        if not self._context.has_begun(self._key, failures):
            await self._budget.admit(self._context, self._reserved)
        with self._budget.holding(self._reserved):
            try:
                yield
            finally:
                self._budget.spend(self._context.consumed_by_failure(self._key, failures) or {})
                self._counted = failures + 1


@dataclass(slots=True)
class CallPlace:
    """Place of a tool call in the log: the turn, and the name of the call inside the turn."""

    turn: AgentTurn
    name: str
    """``<n>-<id>``: the number of the request that asked for the call, and the id that the model gave it.

    A call that its tool deferred until a person approves it is named ``<n>-<id>#2``.
    """
    rule: str = ""
    """Rule that allowed the call; empty if the mode of its tool allowed it."""
    sampled: Counter[str] | None = None
    """Consumption of the requests to models that an MCP server made during the call. None while the call has not been
    made in this process.
    """

    @property
    def key(self) -> str:
        """Operation key of the tool call within its turn."""
        return f"tool-{self.name}"

    @property
    def repeated_call(self) -> str | None:
        """Name of the first attempt of a tool call that is made again after an approval: the tool deferred the first
        attempt until a person approved it. None for any other call.
        """
        name, suffix, _ = self.name.partition(SECOND)
        return name if suffix else None

    @property
    def setting(self) -> Setting | None:
        """The approval rule that allowed the tool call, in the form in which it is recorded with the call. None if no
        rule was needed.
        """
        return Setting({"rule": self.rule}) if self.rule else None


def present() -> AgentTurn | None:
    """Return the agent turn that the current task belongs to. Return None outside of a turn, and in a thread that does
    not run the turn's event loop.

    A thread started by a tool inherits the context variable, but has another event loop or none.
    """
    turn = TURN.get()
    if turn is None:
        return None
    try:
        return turn if asyncio.get_running_loop() is turn.loop else None
    except RuntimeError:  # a thread without a loop
        return None


def count_spent(spent: Mapping[str, int]) -> None:
    """Add the consumption of a delegated task, which ended before this process resumed the turn, to the budget of the
    current turn. Do nothing without a budget.
    """
    turn = present()
    if turn is not None and turn.budget is not None:
        turn.budget.count(spent)


# --- dependency watch ------------------------------------------------------------------------------------------------
#
# Detection of changed dependencies: a warning about tools that change ``ctx.deps``.
#
# A change of ``ctx.deps`` is not recorded, so a resumed run does not have it. The comparison covers public attributes,
# collections, dataclasses and pydantic models in them. Other objects, such as clients and connections, have internal
# state that is meant to change.


MOST_VALUES = 1_000
MOST_DEPTH = 8
"""Limits of the comparison.

Larger or deeper objects are skipped: a scan may take long, and they may contain themselves.
"""


_SCALARS = str, bytes, int, float, complex, type(None)


def state_of(deps: Any, turn: AgentTurn, tool: str) -> Any:
    """Return a copy of the public state of the agent's dependencies ``ctx.deps`` before a tool call, for
    `warn_of_change`. Return None if there is nothing to compare, or if the turn has a warning about the tool.
    """
    # A copy is compared instead of the object, because tools change the object in place.
    return None if deps is None or tool in turn.changing else seen_in(deps)


def warn_of_change(deps: Any, old_state: Any, turn: AgentTurn, tool: str) -> None:
    """Log a warning if a tool call has changed the agent's dependencies ``ctx.deps``, because such changes are not
    recorded. Warn at most once per turn and tool.
    """
    new_state = seen_in(deps)
    if new_state not in (None, old_state):
        turn.changing.add(tool)
        _log.warning(
            "tool %s of agent %s changed ctx.deps. That change is not recorded, so a resumed run does not have it. "
            "Return the value from the tool instead",
            tool,
            turn.record.agent,
        )


class _TooMuchError(Exception):
    """Exception that stops copying an object that is too large or too deeply nested to be copied and compared."""


def seen_in(deps: Any) -> Any:
    """Return a copy of the public state of an agent's dependencies, to detect later changes. Return None if they are
    immutable, or cannot be copied within the limits of size and depth.
    """
    if isinstance(deps, _SCALARS):
        return None
    try:
        return _copy(deps, iter(range(MOST_VALUES)), MOST_DEPTH)
    except Exception:  # noqa: BLE001 - too large, or not readable now: the call must not fail because of this
        return None


def _copy(value: Any, budget: Iterator[int], depth: int) -> Any:
    # The iterator is a countdown: each value uses up one item.
    if next(budget, None) is None or depth == 0:
        raise _TooMuchError
    if isinstance(value, _SCALARS):
        # With the type, because `1 == 1.0 == True`.
        return type(value), value
    inside = _parts(value, is_whole=depth == MOST_DEPTH)
    return id(value) if inside is None else (type(value), [_copy(part, budget, depth - 1) for part in inside])


def _parts(value: Any, *, is_whole: bool) -> list[Any] | None:
    """Return the values inside a collection or object, for comparison. Return None for an object without visible
    fields, which is compared by identity.
    """
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, dict):
        return [part for item in value.items() for part in item]
    # Only the dependencies object itself is looked into whatever its class is. Inside it, only dataclasses and pydantic
    # models count as data.
    if not is_whole and not is_dataclass(value) and not hasattr(type(value), "model_fields"):
        return None
    # Dataclasses with slots have no `__dict__`.
    names = [*getattr(type(value), "__dataclass_fields__", ()), *getattr(value, "__dict__", ())]
    return [getattr(value, name, None) for name in dict.fromkeys(names) if not name.startswith("_")]
