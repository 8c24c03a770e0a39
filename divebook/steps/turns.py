"""What a turn of an agent with tools asks of the engine, in a step: requests and calls as operations that it holds."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

import anyio

from divebook.agents import Agent
from divebook.agents.agent import unasked
from divebook.agents.cache import ResponseCache
from divebook.agents.turn import OperationOptions
from divebook.documents import Policy
from divebook.documents.policy import FileArguments
from divebook.engine.approvals import Approved, Denied, ToolCall
from divebook.engine.operations import TOOL_CALL, Setting, Slot
from divebook.events.catalog import FAILED
from divebook.events.event import to_datetime
from divebook.projections.requests import RequestView
from divebook.questions import Question
from divebook.runtime.compute.threads import Compute, LimitedSlot, Slots
from divebook.runtime.concurrency import CallCounter, Suspended
from divebook.runtime.context import StepContext
from divebook.steps.call import approve, compute_for, invoke, made_in_slot, workspace_of
from divebook.steps.conversations import ConversationStore
from divebook.workflow.resources import AgentDefinition
from divebook.workflow.servers import ToolServer
from divebook.workflow.step import Retry
from divebook.workflow.tools import FileSpellings, ToolFunction

if TYPE_CHECKING:
    from divebook.agents.requests import ResponseSource


# What an environment gives to its agents while they work.


class AgentToolkit(Protocol):
    """What agents may use."""

    def agent(self, name: str) -> Agent:
        """Return the agent of that name; raises `NotFoundError`."""

    def tools_for(self, definition: AgentDefinition) -> Sequence[ToolFunction]:
        """Return the tools that an agent names."""

    def limited(self, tool: ToolFunction) -> ToolFunction:
        """Return a tool with the limits that its environment sets."""

    def servers_for(self, definition: AgentDefinition) -> Sequence[ToolServer]:
        """Return the MCP servers whose tools an agent may call."""

    def subordinates_for(self, definition: AgentDefinition) -> Sequence[Agent]:
        """Return the agents that one may give work to."""


class AgentServices(AgentToolkit, Protocol):
    """What an environment gives to agents."""

    threads: ConversationStore
    """The conversations of its store."""

    @property
    def responses(self) -> ResponseCache:
        """The responses that agents with a `Cache` use again."""

    def requests_of(self, run: str) -> Sequence[RequestView]:
        """Return the requests that a run made to models; raises `ExecutionNotFoundError`."""

    def policy_for_agent(self, name: str) -> Policy:
        """Return the permissions of an agent."""

    def check_agent(self, agent: Agent) -> None:
        """Raise unless what an agent names is there, once."""


T = TypeVar("T")
_PLACES: dict[tuple[str, int], anyio.CapacityLimiter] = {}
"""For calls of tools of which only so many run at once in this process, by name and number."""
TURN = "turn"
"""Key of a turn, after its prefix."""


def run_id_of(context: StepContext, key: str) -> str:
    """Return the name of a turn, the same whenever it runs again, and another in each execution."""
    return f"{context.execution_id}/{context.place(key, 0).idempotency_key[:12]}"


def as_asked(context: StepContext, agent: Agent, offers: AgentServices) -> Agent:
    """Return an agent as a run asks it: with the run's model, if it has one, and without a key where none is asked."""
    agent = agent.with_model(context.model).under(offers.policy_for_agent(agent.name))
    return agent if context.miss_policy is None or context.miss_policy.asks_models else unasked(agent)


def _slot(tool: ToolFunction, compute: Compute, *, limited: bool) -> Slot | None:
    """Return what a call of a tool must hold, if only so many of them or of its executor's run at once."""
    own = compute.slot(repeatable=tool.is_repeatable, limited=limited)
    slots = [] if own is None else [own]
    if tool.concurrency is not None:
        place = tool.name, tool.concurrency
        places = _PLACES.get(place) or _PLACES.setdefault(place, anyio.CapacityLimiter(tool.concurrency))
        slots.append(LimitedSlot(places))
    return Slots(slots) if len(slots) > 1 else next(iter(slots), None)


class StepTurn:
    """What a turn asks of the engine, in a step.

    Parameters
    ----------
    prefix
        Stands in front of the key of each of its operations.
    turn
        Id of the operation that holds them.
    offers
        What its environment gives it.
    recall
        Where answers of models come from, if not from the models alone.
    """

    def __init__(
        self, context: StepContext, prefix: str, turn: str, offers: AgentServices, recall: ResponseSource | None = None
    ) -> None:
        self.prefix = prefix
        self.recall = recall
        self._context = context
        self._turn = turn
        self._offers = offers
        self._under_way = CallCounter(context.strands())
        self._unwinding: Suspended | None = None
        self._failures: dict[str, int] = {}
        """How often a call that is under way has failed before, by its name."""
        self._below: list[StepTurn] = []
        self.run_id = run_id_of(context, f"{prefix}{TURN}")

    @property
    def started_at(self) -> datetime | None:
        """When the execution began."""
        return self._context.started_at

    @property
    def qualifies_tools(self) -> bool:
        """Whether tools of one name have that of their server in front."""
        return self._context.workflow.manner.qualifies_tools

    def sampler(self, name: str) -> Agent:
        """Return an agent of the environment, as the run asks it."""
        return as_asked(self._context, self._offers.agent(name), self._offers)

    def recorded_type(self, key: str) -> str | None:
        """Return the type of the operation that the log has under a key, if it has one."""
        record = self._context.record_of(self.prefix + key)
        return None if record is None else record.operation_type

    def consumed_by_failures(self, key: str) -> Mapping[str, int]:
        """Return what the failed attempts at an operation consumed all the same, as the log has it."""
        consumed = Counter[str]()
        attempt = 0
        while (record := self._context.record_of(self.prefix + key, attempt)) is not None and record.status == FAILED:
            consumed.update(record.consumed)
            attempt += 1
        return consumed

    def calling(self) -> AbstractContextManager[None]:
        """Surround a call that is under way."""
        return self._under_way.call()

    def open_call(self) -> AbstractContextManager[None]:
        """Surround a question that is asked during a call, which stays open until the answer comes."""
        return self._context.strands().open_call()

    async def withdraw(self, key: str) -> None:
        """Let a question expire that is still open."""
        await self._context.withdraw(self.prefix + key)

    def asked(self, key: str) -> Question | None:
        """Return a question that the log has."""
        return self._context.question_of(self.prefix + key)

    def began_at(self, key: str) -> datetime:
        """Return when an operation of the log began."""
        record = self._context.record_of(self.prefix + key)
        assert record is not None  # noqa: S101 - whoever asks has its result
        return to_datetime(record.started_at)

    def recorded_digest(self, key: str) -> str | None:
        """Return the digest of what an operation of the log was made with."""
        record = self._context.record_of(self.prefix + key)
        return None if record is None else record.setting_hash

    async def recorded_start(self, key: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the parameters of such an operation, and what the log keeps of what it was made with."""
        return await self._context.start_of(self.prefix + key)

    async def approve(
        self, call: ToolCall, schema: Mapping[str, Any], *, place: str, description: str
    ) -> Approved | Denied:
        """Return whether a call may be made, and with which arguments; the log keeps what a rule denied."""
        judged = approve(
            self._context,
            call,
            schema,
            key=f"{self.prefix}approve-{place}",
            operation=f"{self.prefix}tool-{place}",
            description=description,
            within=self._turn,
        )
        return await self._going_on(judged)

    def files_of(self, tool: ToolFunction) -> FileSpellings | None:
        """Return the arguments of a tool that name files, also of one that works in a workspace."""
        if not tool.paths or (name := workspace_of(self._context, tool)) is None:
            return tool.files
        place = self._context.workspaces.place_of(name)
        return None if place is None else FileArguments(tool.paths, *place)

    def below(self, key: str) -> StepTurn:
        """Return the means of an agent that a call runs."""
        means = StepTurn(self._context, f"{self.prefix}{key}/", self._turn, self._offers)
        self._below.append(means)
        return means

    async def wait_beside_others(self, change: asyncio.Future[None]) -> bool:
        """Wait for a change that another call of the step brings; return False once no other call can bring it."""
        return await self._context.strands().wait_beside_others(change)

    async def alone(self) -> None:
        """Return when no other call of the step is under way."""
        await self._context.strands().alone()

    def require_going_on(self) -> None:
        """Raise what unwinds the step, whatever a hook of the agent has made of it."""
        if self._unwinding is not None:
            raise self._unwinding
        for means in self._below:
            means.require_going_on()

    async def operation(
        self,
        kind: str,
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        key: str,
        retry: Retry | None = None,
        **options: Unpack[OperationOptions],
    ) -> Any:
        """Make a call once, as often as `retry` says, or the step's own policy."""
        name = self.prefix + key

        def attempt(failures: int) -> Awaitable[Any]:
            return self._context.operation(
                kind, parameters, call, key=name, attempt=failures, within=self._turn, **options
            )

        return await self._going_on(self._retried(name, retry, attempt))

    async def call(
        self,
        tool: ToolFunction,
        arguments: Mapping[str, Any],
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        key: str,
        setting: Setting | None,
        done: Callable[[Any], Any],
    ) -> Any:
        """Make a call of a tool once."""
        name = self.prefix + key
        compute = self._compute(tool, arguments)
        workspace = workspace_of(self._context, tool)
        is_limited = tool.timeout is not None or self._context.is_limited

        def attempt(failures: int) -> Awaitable[Any]:
            slot = _slot(tool, compute, limited=is_limited)
            self._failures[name] = failures
            return self._context.operation(
                TOOL_CALL,
                parameters,
                functools.partial(made_in_slot, call, slot),
                key=name,
                repeatable=tool.is_repeatable,
                attempt=failures,
                timeout=tool.timeout,
                slot=slot,
                setting=setting,
                within=self._turn,
                done=done,
                workspace=workspace,
            )

        return await self._going_on(self._retried(name, tool.retry, attempt))

    async def invoke(self, tool: ToolFunction, arguments: Mapping[str, Any], *, key: str) -> Any:
        """Call the function itself, where its executor is."""
        if tool.inline:
            return await tool.function(**arguments)
        compute = self._compute(tool, arguments)
        name = self.prefix + key
        called = invoke(self._context, tool, arguments, name, compute, failures=self._failures.get(name))
        return await self._going_on(called)

    def _compute(self, tool: ToolFunction, arguments: Mapping[str, Any]) -> Compute:
        return compute_for(self._context, tool, arguments)

    async def question(
        self,
        kind: str,
        text: str,
        *,
        key: str,
        data: Mapping[str, Any] | None = None,
        schema: Mapping[str, Any] | None = None,
        message: str | None = None,
        expires_in: float | None = None,
        default: Any = None,
    ) -> Question:
        """Ask a person."""
        asked = self._context.interrupt(
            kind,
            text,
            message=message,
            data=data,
            schema=schema,
            expires_in=expires_in,
            default=default,
            key=self.prefix + key,
            within=self._turn,
        )
        return await self._going_on(asked)

    def _retried(self, name: str, policy: Retry | None, attempt: Callable[[int], Awaitable[Any]]) -> Awaitable[Any]:
        """Make a call as often as the policy of the step says, or else its own."""
        return self._context.retried(name, self._context.step.retry or policy, attempt, self._turn)

    async def _going_on(self, call: Awaitable[T]) -> T:
        """Await a call, and note whether it unwinds the step."""
        try:
            return await call
        except Suspended as stopped:
            self._unwinding = stopped
            raise
