"""The turn that runs: which one it is, where its operations belong, and which call of it is under way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from divebook.documents.policy import CREDENTIALS, Policy
from divebook.engine.bounds import share_of
from divebook.engine.operations import Setting
from divebook.history.requests import call_name
from divebook.text.logs import logger
from divebook.text.redaction import shared

if TYPE_CHECKING:
    from pydantic_ai.models import ModelRequestParameters

    from divebook.agents.budget import TurnBudget
    from divebook.agents.changed import Agreement
    from divebook.agents.requests import RequestRecord
    from divebook.agents.turn import TurnContext
    from divebook.engine.operations import Reserved, Write
    from divebook.errors import OperationError
    from divebook.workflow.policies import Retry
    from divebook.workflow.tools import ToolFunction

_log = logger(__name__)
SECOND = "#2"
"""Stands after the name of a call that is made for the second time, since its tool wanted it approved first."""


@dataclass(slots=True)
class CallPlace:
    """A call of a tool: where it belongs in the log."""

    turn: AgentTurn
    name: str
    """``<n>-<id>``: the number of the request that asked for it, and the model's name for it; of a call that its tool
    has put off until a person approves it, ``<n>-<id>#2``."""
    rule: str = ""
    """What allowed it, where that is not the mode that its tool has anyway."""

    @property
    def key(self) -> str:
        """Name of its operation."""
        return f"tool-{self.name}"

    @property
    def put_off(self) -> str | None:
        """Name of the call that its tool has put off, where this one is what came of it."""
        name, again, _ = self.name.partition(SECOND)
        return name if again else None

    @property
    def setting(self) -> Setting | None:
        """What the log keeps beside the call: what decided that it may be made."""
        return Setting({"rule": self.rule}) if self.rule else None


@dataclass
class AgentTurn:
    """One run of an agent inside a step."""

    context: TurnContext
    record: RequestRecord
    model: str
    """The model of its agent."""
    retry: Retry
    """How a request to its model is tried again."""
    seconds: float
    """How long a request may take."""
    tools: Mapping[str, ToolFunction] = field(default_factory=dict)
    """Those that are functions of ours, by name."""
    budget: TurnBudget | None = None
    """What it may spend, where that is bounded."""
    agreement: Agreement | None = None
    """Whether it is made with what it began with; None once a person has said with what."""
    policy: Policy = field(default_factory=Policy.given)
    """Which files its requests may name, and whether credentials may be in what it reads and writes."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    has_begun: bool = False
    """Whether the run whose turn it is has its places: another that begins is one of a tool's."""
    asked: Counter[str] = field(default_factory=Counter)
    """How many calls of each tool the latest response asks for."""
    sent_with: ModelRequestParameters | None = None
    """What the latest request is made with: the tools that its model may call."""
    failed: list[tuple[str, OperationError]] = field(default_factory=list)
    """Tools that failed, and what they raised: the first of it ends the turn."""
    changing: set[str] = field(default_factory=set)
    """Tools that have changed what no log has, which has been said."""
    cleaned: set[str] = field(default_factory=set)
    """What had a credential in it, which has been said."""
    corrections: int | None = None
    """Limit of corrections of a call or an answer; None for an agent of pydantic-ai, which has its own limit."""
    definitions: int = 0
    """What those that its requests are sent with count as, in tokens."""
    _shares: dict[tuple[int, bool], Mapping[str, Any]] = field(default_factory=dict)
    is_as_begun: bool = False
    """Whether a person has had it go on with what it began with, though its agent has changed."""
    put_off: set[str] = field(default_factory=set)
    """Calls that their own tool has put off until a person approves them."""
    _counts: Counter[str] = field(default_factory=Counter)
    _calls: Counter[str] = field(default_factory=Counter)

    @property
    def unknown(self) -> list[str]:
        """Tools that the latest response asks for, and its model does not have."""
        with_it = self.sent_with
        offered = {tool.name for tool in (*with_it.function_tools, *with_it.output_tools)} if with_it else set()
        return [name for name in self.asked if name not in offered]

    def call(self, tool_call_id: str) -> CallPlace:
        """Return where a call of that id belongs; no two of one response have one (`divebook.agents.wire`)."""
        name = f"{self.record.requests}-{call_name(tool_call_id)}"
        return CallPlace(self, f"{name}{SECOND}" if name in self.put_off else name)

    def count(self, tool: str, most: int | None) -> None:
        """Count a call of a tool; `ToolFailed` tells the model that it has been called as often as it may be."""
        from pydantic_ai.exceptions import ToolFailed  # loaded by now, as it is not where a log is only read

        self._calls[tool] += 1
        if most is not None and self._calls[tool] > most:
            raise ToolFailed(f"{tool} is used up: it may be called {most} times, go on with what you have")

    def kept(self, value: Any, what: str) -> Any:
        """Return plain data as log and model get it: without credentials, unless the policy lets agents have them.

        The log says so once a turn of each thing that had one, as a tool may need what is gone.
        """
        if CREDENTIALS in self.policy.allowed:
            return shared().without_named(value)
        certain = shared().without_certain(value)
        if what not in self.cleaned and certain not in (value, shared().without_named(value)):
            self.cleaned.add(what)
            _log.warning(
                "%s had what looks like a credential: agent %s and the log have [redacted] in its place; name keys by "
                'env://NAME, or let agents have them by Policy("credentials")',
                what,
                self.record.agent,
            )
        return certain

    def share(self, tool: str, known: Mapping[str, Any] | None, *, is_again: bool) -> Mapping[str, Any] | None:
        """Return what one of several calls that hand work on at once may spend of what is left; None for one alone.

        `known` is what the log has of this call: those beside it get no other. Work that has failed and is done again
        has its part of what is left now: its agent's bounds may have been raised for that.
        """
        place, count = (self.record.requests, is_again), self.asked[tool]
        if known is not None and not is_again:
            self._shares.setdefault(place, known)
            return known
        if self.budget is None or count == 1:
            return None
        if place not in self._shares:
            self._shares[place] = share_of(self.budget.left, count).to_dict()
        return self._shares[place]

    @asynccontextmanager
    async def spending(self, key: str, reserved: Reserved) -> AsyncIterator[None]:
        """Surround a request: it is under way once its agent may spend so much, or if the log has it already."""
        with self.context.calling():
            if self.budget is None:
                yield
                return
            if self.context.recorded_type(key) is None:
                await self.budget.admit(self.context, reserved)
            with self.budget.holding(reserved):
                try:
                    yield
                finally:
                    self.budget.spend(self.context.consumed_by_failures(key))

    def key(self, name: str) -> str:
        """Return the name of an operation, which is numbered where it is met more than once."""
        self._counts[name] += 1
        number = self._counts[name]
        return name if number == 1 else f"{name}#{number}"


TURN: ContextVar[AgentTurn | None] = ContextVar("divebook_turn", default=None)
"""The turn that the present code belongs to; None inside a recorded call, which is one thing whatever it does."""
CALL: ContextVar[CallPlace | None] = ContextVar("divebook_tool_call", default=None)
"""The tool call that the present code belongs to."""
INSIDE: ContextVar[str | None] = ContextVar("divebook_inside_call", default=None)
"""What the recorded call that the present code belongs to is called."""
WRITE: ContextVar[Write | None] = ContextVar("divebook_write", default=None)
"""Takes the text of the request that is under way, if somebody listens."""


def present() -> AgentTurn | None:
    """Return the turn whose loop is the one that runs: a thread of a tool has its context, and another loop."""
    turn = TURN.get()
    if turn is None:
        return None
    try:
        return turn if asyncio.get_running_loop() is turn.loop else None
    except RuntimeError:  # a thread without a loop
        return None


def consumed_by(response: Mapping[str, Any]) -> dict[str, int]:
    """Return what a recorded response has consumed, as a budget counts it."""
    from divebook.agents.wire import usage_of  # loaded by now, as it is not where a log is only read

    used = usage_of(response)
    tokens = used.get("input_tokens", 0) + used.get("output_tokens", 0)
    return {"calls": 1, "tokens": tokens, "cost": used.get("cost", 0)}


def count_spent(spent: Mapping[str, int]) -> None:
    """Count what work has spent that was handed on in the turn that runs, and ended before this process took it up."""
    turn = present()
    if turn is not None and turn.budget is not None:
        turn.budget.count(spent)
