"""Turn of an agent: its task, and the interface through which its model requests and tool calls become operations of a
step.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

import anyio

from divebook.definitions.step import Retry
from divebook.definitions.tools import FileSpellings, ToolFunction
from divebook.documents.policy import FileArguments
from divebook.engine.approvals import Approved, Denied, ToolCall
from divebook.engine.operations import (
    AGENT_RESPONSE,
    AGENT_TURN,
    TOOL_CALL,
    TURN_KEY,
    Setting,
    Slot,
)
from divebook.engine.state import OperationRecord
from divebook.events.catalog import COMPLETED, FAILED, PENDING
from divebook.events.event import to_datetime
from divebook.events.recorded import opened
from divebook.questions import Question
from divebook.runtime.calls import approve, call_in_slot, compute_for, invoke, workspace_of
from divebook.runtime.compute.threads import Compute, LimitedSlot, Slots
from divebook.runtime.concurrency import CallCounter, Suspended
from divebook.runtime.context import StepContext

if TYPE_CHECKING:
    from divebook.agents.request_record import ResponseSource


T = TypeVar("T")


SPENT = "spent"
"""Key in the result of a turn for its consumption. Present if the turn worked for another turn that has a budget.

Also in the recorded result of a call of an MCP server, for the requests to models that the server made during it.
"""


class Answer(NamedTuple):
    """Answer of an agent: its text, and the value if the output is structured."""

    text: str
    value: Any
    """`text`, or for structured output the recorded form of the output."""


@dataclass(frozen=True, slots=True)
class AgentTask:
    """Task that an agent carries out in one turn: prompt, content, expected type of the answer, and conversation."""

    prompt: str
    content: Sequence[Mapping[str, Any]] = ()
    """Content blocks that precede the prompt."""
    context: Sequence[Mapping[str, Any]] = ()
    """Content blocks of the agent's own `Context`. They form an extra message before all others."""
    output: Any = None
    """Type or JSON schema of the answer. Overrides that of the agent."""
    deps: Any = None
    """Dependencies for tools. Override those of the agent."""
    prefix: str = ""
    """Prefix of the operation keys of the turn, for a step that runs several turns."""
    thread: str | None = None
    """Name of the conversation that the turn continues."""
    history: Sequence[Any] = ()
    """Earlier messages of that conversation in their recorded form, grouped by turn."""

    share: Mapping[str, Any] | None = None
    """Bounds that the delegating agent assigns to this task, in addition to the agent's own bounds."""

    def to_dict(self) -> dict[str, Any]:
        """Return those fields of the task that are recorded and compared on replay, by name. Empty fields are left out,
        except the prompt.
        """
        fields = {"prompt": self.prompt, "content": self.content, "context": self.context, "thread": self.thread}
        return {name: value for name, value in fields.items() if value or name == "prompt"}


Admission: TypeAlias = Callable[[int], AbstractAsyncContextManager[None]]
"""Returns the context manager of one attempt at an operation, for the number of failed attempts before it."""


Sample: TypeAlias = Callable[[Mapping[str, Any], Callable[..., Coroutine[Any, Any, Any]]], Awaitable[dict[str, Any]]]
"""Lets an agent answer a sampling request, with which an MCP server asks for a model response.

Parameters: the request, and the function that makes and records the model request (called like `StepTurn.operation`,
without a key). Returns the answer, ``{"text", "model"}``.
"""


class StepTurn:
    """Interface between an agent's turn and the engine: the model requests and tool calls of the turn become operations
    of a step.

    Keys are names inside the turn. The recorded key is the prefix of the turn plus this name.

    Parameters
    ----------
    prefix
        Prefix of the operation keys of the turn.
    turn
        Id of the operation that contains the operations of the turn. None for a turn that consists of a single request.
    sample
        Lets an agent answer the sampling requests of MCP servers.
    response_source
        Source of model responses that is asked before the model; None to always ask the model.
    """

    def __init__(
        self,
        context: StepContext,
        prefix: str,
        turn: str | None,
        sample: Sample,
        response_source: ResponseSource | None = None,
    ) -> None:
        self.prefix = prefix
        self.sample = sample
        self.response_source = response_source
        self._context = context
        self._turn = turn
        # The turn counts as one running task, and each further concurrent call of the turn as one more.
        self._running_calls = CallCounter(context.strands())
        self._suspension: Suspended | None = None
        self._failures: dict[str, int] = {}
        """Number of earlier failures of each running call, by name."""
        self._below: list[StepTurn] = []

    @property
    def run_id(self) -> str:
        """Id of the turn. The id is unique in the execution, and stays the same when the turn runs again."""
        return run_id_of(self._context, f"{self.prefix}{TURN_KEY}")

    @property
    def started_at(self) -> datetime | None:
        """Start time of the execution to which the turn belongs (UTC); for a fork, that of its source."""
        return self._context.started_at

    @property
    def qualifies_tools(self) -> bool:
        """True if tools of different MCP servers may have the same name. Each tool's name is then prefixed with the
        name of its server.
        """
        return self._context.workflow.manner.qualifies_tools

    def recorded_type(self, key: str) -> str | None:
        """Return the type of the operation with this key in the log; None if the log has no such operation."""
        record = self._record(key)
        return None if record is None else record.operation_type

    def has_ended(self, key: str) -> bool:
        """Return True if the log has the result or the error of the operation with this key."""
        record = self._record(key)
        return record is not None and record.status in (COMPLETED, FAILED)

    def has_begun(self, key: str, attempt: int) -> bool:
        """Return True if the log has the start of an attempt at a model request, and the attempt is not to be made
        again because of a failed step.
        """
        record = self._record(key, attempt)
        # PENDING: the step has failed and was resumed since, so the bounds may have been reached in the meantime.
        return record is not None and record.operation_type == AGENT_RESPONSE and record.status != PENDING

    def consumed_by_failure(self, key: str, attempt: int) -> Mapping[str, int] | None:
        """Return the tokens and costs that a failed attempt of one operation consumed, according to the log. `key` is
        the operation's key. Return None if the attempt did not fail.
        """
        record = self._record(key, attempt)
        return None if record is None or record.status != FAILED else record.consumed

    def consumed_before_resumption(self, key: str, attempt: int) -> Mapping[str, int]:
        """Return the consumption (calls, tokens, cost) of failures of an attempt at a model request after which the
        execution was resumed.
        """
        return _failed(self._context, self._context.place(self.prefix + key, attempt).operation_id)

    def consumed(self) -> Mapping[str, int]:
        """Return the consumption (calls, tokens, cost) of all model requests of the turn in the log, including those of
        subordinate agents.
        """
        record = None if self._turn is None else self._context.operation_record(self._turn)
        return consumption_of(self._context, record)

    def calling(self) -> AbstractContextManager[None]:
        """Return a context manager that counts a call as running while its ``with`` block runs. A step with a running
        call is not parked, that is, not stopped to be continued when an answer arrives.
        """
        return self._running_calls

    def open_call(self) -> AbstractContextManager[None]:
        """Return a context manager for a tool call that asks a question while it runs. Until its ``with`` block ends,
        the path waits in memory for the answer: it is not stopped and replayed later, because a half-finished call
        cannot be replayed.
        """
        return self._context.strands().open_call()

    async def withdraw(self, key: str) -> None:
        """Withdraw the open question with this key, so that people are not asked it any more: the question expires, and
        its default becomes the answer.
        """
        await self._context.withdraw(self.prefix + key)

    def recorded_question(self, key: str) -> Question | None:
        """Return the question with this key in the log; None if the log has no such question."""
        return self._context.question_of(self.prefix + key)

    def began_at(self, key: str) -> datetime:
        """Return the time at which the operation with this key started, according to the log. It must exist."""
        record = self._record(key)
        assert record is not None  # noqa: S101 - callers have the result of this operation
        return to_datetime(record.started_at)

    def recorded_digest(self, key: str) -> str | None:
        """Return the hash of the setting (model, instructions and tools) that the log has for the operation with this
        key. Return None if the operation does not exist or has no setting.
        """
        record = self._record(key)
        return None if record is None else record.setting_hash

    async def recorded_start(self, key: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the parameters and the setting (model, instructions and tools) that the log has for the operation with
        this key. The operation must exist.
        """
        return await self._context.start_of(self.prefix + key, 0)

    async def approve(
        self, call: ToolCall, schema: Mapping[str, Any], *, place: str, description: str
    ) -> Approved | Denied:
        """Decide whether a tool call may be made, and with which arguments: by the approval rules, or by asking a
        person. A denial by a rule is recorded.
        """
        decision = approve(
            self._context,
            call,
            schema,
            key=f"{self.prefix}approve-{place}",
            operation=f"{self.prefix}tool-{place}",
            attempt=0,
            description=description,
            within=self._turn,
        )
        return await self._note_suspension(decision)

    def files_of(self, tool: ToolFunction) -> FileSpellings | None:
        """Return an object that normalizes the file paths in a tool's arguments, so that approval rules recognize the
        same file in each spelling. Return None if no argument is a path.
        """
        # Without a workspace, the tool itself knows how its paths are written.
        if not tool.paths or (name := workspace_of(self._context, tool)) is None:
            return tool.files
        place = self._context.workspaces.place_of(name)
        return None if place is None else FileArguments(tool.paths, *place)

    def below(self, key: str) -> StepTurn:
        """Return the context for a turn of another agent that runs inside a tool call of this turn. The operation keys
        of that turn begin with `key`, the key of the tool call.
        """
        # Without a response source, because another agent may run there. `run_or_ask` passes on that of the same agent.
        turn = StepTurn(self._context, f"{self.prefix}{key}/", self._turn, self.sample)
        self._below.append(turn)
        return turn

    async def wait_beside_others(self, change: asyncio.Future[None]) -> bool:
        """Wait for `change`, a future that another concurrent call of the step is expected to complete. Return True
        when it is complete. Return False if no other call of the step is running any more, because none could complete
        it.
        """
        return await self._context.strands().wait_beside_others(change)

    async def alone(self) -> None:
        """Wait until no other concurrent call of the step is running. A call that is paused until an answer arrives
        does not count as running.
        """
        await self._context.strands().alone()

    def raise_suspension(self) -> None:
        """Raise again the exception that suspended the step during this turn. A hook of the agent may have caught it by
        mistake, and the step must not continue. Do nothing if the step was not suspended.
        """
        if self._suspension is not None:
            raise self._suspension
        # A subordinate turn may have suspended the step as well.
        for turn in self._below:
            turn.raise_suspension()

    async def operation(
        self,
        kind: str,
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        key: str | None = None,
        retry: Retry | None = None,
        admitted: Admission | None = None,
        **options: Any,
    ) -> Any:
        """Run a function as a recorded operation. If the log has the result, return it; otherwise call the function,
        with the retry policy of the step or else with `retry`. Each attempt is made inside the context manager that
        `admitted` returns. Other options are those of `StepContext.operation`.

        The operation of a turn that consists of a single request has no key: like all operations without a key, it is
        numbered. A step with a retry policy repeats such a turn as a whole.
        """
        if key is None and self._context.step.retry is not None:
            # Retrying the request as well would multiply the requests.
            return await self._note_suspension(self._context.operation(kind, parameters, call, **options))
        # All attempts at an operation have one key, and differ by their number.
        name = self._context.next_key() if key is None else self.prefix + key

        async def attempt(failures: int) -> Any:
            async with nullcontext() if admitted is None else admitted(failures):
                return await self._context.operation(
                    kind, parameters, call, key=name, attempt=failures, within=self._turn, **options
                )

        return await self._note_suspension(self._retried(name, retry, attempt))

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
        """Run a tool call as a recorded operation. If the log has the result, return it; otherwise make the call, with
        the tool's retries, time limit and concurrency limit.
        """
        name = self.prefix + key
        compute = self._compute(tool, arguments)
        workspace = workspace_of(self._context, tool)
        # A call with a time limit waits for a slot first, so that waiting does not use up the time.
        is_limited = tool.timeout is not None or self._context.is_limited

        def attempt(failures: int) -> Awaitable[Any]:
            slot = _slot(tool, compute, limited=is_limited)
            # `invoke` needs this number for the id of the executor's task.
            self._failures[name] = failures
            return self._context.operation(
                TOOL_CALL,
                parameters,
                functools.partial(call_in_slot, call, slot),
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

        return await self._note_suspension(self._retried(name, tool.retry, attempt))

    async def invoke(self, tool: ToolFunction, arguments: Mapping[str, Any], *, key: str) -> Any:
        """Call the function of a tool in its executor, without recording the call as an operation."""
        # An inline tool runs on the engine's loop, where the turn that it starts makes its calls.
        if tool.inline:
            return await tool.function(**arguments)
        compute = self._compute(tool, arguments)
        name = self.prefix + key
        result = invoke(self._context, tool, arguments, name, compute, failures=self._failures.get(name))
        return await self._note_suspension(result)

    def _compute(self, tool: ToolFunction, arguments: Mapping[str, Any]) -> Compute:
        return compute_for(self._context, tool, arguments)

    async def question(self, kind: str, text: str, *, key: str, **options: Any) -> Question:
        """Ask a person a question and wait for the answer. Return the question, which then contains the answer. The
        options are those of `StepContext.interrupt`.
        """
        question = self._context.interrupt(kind, text, key=self.prefix + key, within=self._turn, **options)
        return await self._note_suspension(question)

    def _record(self, key: str, attempt: int = 0) -> OperationRecord | None:
        """Return the record of an attempt at an operation of this turn; None if the log has none."""
        # The turn counts the attempts of its calls itself, also if the step has failed before
        # (test_an_agent_that_gets_tools_while_its_step_is_retried_answers).
        return self._context.record_of(self.prefix + key, attempt)

    def _retried(
        self, name: str | int, policy: Retry | None, attempt: Callable[[int], Awaitable[Any]]
    ) -> Awaitable[Any]:
        """Repeat a failed call as the retry policy of the step allows; if the step has no policy, as `policy`
        allows.
        """
        # A policy of the step holds for each call of the turn, in place of that of the tool or agent.
        return self._context.retried(name, self._context.step.retry or policy, attempt, self._turn)

    async def _note_suspension(self, call: Awaitable[T]) -> T:
        """Await a call and return its result. If the call suspends the step, remember the exception for
        `raise_suspension`.
        """
        try:
            return await call
        # Code of users between here and the step, such as a hook, may catch this exception.
        except Suspended as suspension:
            self._suspension = suspension
            raise


# --- concurrent calls ---------------------------------------------------------------------------------------------
# All calls of a group are counted before the first of them can wait. Otherwise the step could pause too early.


async def side_by_side(context: StepTurn, calls: Sequence[Awaitable[T]]) -> list[T]:
    """Run several calls of a turn concurrently. Return their results in the order of the calls.

    Wait until all calls have ended. If calls raised errors, raise the error of the first failed call in that order.
    """
    # The count of each call begins before the first call runs, and ends together with its call.
    counts = [ExitStack() for _ in calls]

    async def await_call(count: ExitStack, call: Awaitable[T]) -> T:
        with count:
            return await call

    with ExitStack() as open_counts:  # ends the count of calls that are cancelled before they start
        for count in counts:
            count.enter_context(context.calling())
            open_counts.callback(count.close)
        # One error must not cancel the other calls, whose outcome would then be unknown.
        results = await asyncio.gather(*map(await_call, counts, calls), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast("list[T]", results)


# --- consumption -----------------------------------------------------------------------------------------------------


_LIMITERS: dict[tuple[str, int], anyio.CapacityLimiter] = {}
"""Concurrency limits of tools in this process, by name and limit."""


def consumption_of(context: StepContext, record: OperationRecord | None) -> Counter[str]:
    """Return what an agent turn has consumed (calls, tokens, cost) according to its record in the log. The agent that
    delegated the turn counts it in its own budget. Other operations than turns and model requests consume nothing.

    A completed turn states it in its result. For any other turn it is the sum over the requests and subordinate turns
    inside it, which are visited recursively.
    """
    consumed = Counter[str]()
    if record is None:
        return consumed
    if record.operation_type == AGENT_TURN and record.status == COMPLETED:
        consumed.update(opened(record.result).get(SPENT, {}))
    elif record.operation_type == AGENT_TURN:
        # A failed request has no record between a resumption and its next start, which adds its id once more.
        for operation_id in dict.fromkeys(record.holds):
            consumed.update(_failed(context, operation_id))
            consumed.update(consumption_of(context, context.operation_record(operation_id)))
    elif record.operation_type == AGENT_RESPONSE and record.status == COMPLETED:
        consumed.update(consumed_by(opened(record.result)))
    elif record.operation_type == AGENT_RESPONSE and record.status == FAILED:
        consumed.update(failed_attempt(record.consumed))
    return consumed


def _failed(context: StepContext, operation_id: str) -> Counter[str]:
    """Return the consumption (calls, tokens, cost) of the failures of a model request that resumptions have
    repeated.
    """
    usage = context.failed_usage(operation_id)
    return Counter(calls=usage.requests, tokens=usage.input_tokens + usage.output_tokens, cost=usage.cost)


def run_id_of(context: StepContext, key: str) -> str:
    """Return the id of an agent turn. The id stays the same when the turn runs again, and differs between
    executions.
    """
    # Execution id and a hash of the place of the turn: short, and the same whenever the turn runs.
    return f"{context.run_id}/{context.place(key, 0).idempotency_key[:12]}"


def consumed_by(response: Mapping[str, Any]) -> dict[str, int]:
    """Return the consumption of a recorded response as a dict with the keys of a budget: calls (always 1), tokens, and
    cost in nanodollars.
    """
    from divebook.agents.request_record import usage_of  # already loaded: only code that reads a log runs without it

    usage = usage_of(response)
    tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
    return {"calls": 1, "tokens": tokens, "cost": usage.get("cost", 0)}


def failed_attempt(consumed: Mapping[str, int]) -> dict[str, int]:
    """Return the consumption of a failed attempt at a model request as a dict with the keys of a budget. `consumed` is
    its recorded usage, which is empty if nothing was paid.
    """
    tokens = consumed.get("input_tokens", 0) + consumed.get("output_tokens", 0)
    return {"calls": 1, "tokens": tokens, "cost": consumed.get("cost", 0)}


def _slot(tool: ToolFunction, compute: Compute, *, limited: bool) -> Slot | None:
    """Return the concurrency slot that a call of the tool must hold while it runs. Return None if neither the tool nor
    its executor limits the number of concurrent calls.
    """
    # A call may need two slots: one of its executor and one of the tool itself.
    executor_slot = compute.slot(repeatable=tool.is_repeatable, limited=limited)
    slots = [] if executor_slot is None else [executor_slot]
    if tool.concurrency is not None:
        # The limit is part of the key, because a tool may be defined again with another one.
        limit_key = tool.name, tool.concurrency
        limiter = _LIMITERS.get(limit_key) or _LIMITERS.setdefault(limit_key, anyio.CapacityLimiter(tool.concurrency))
        slots.append(LimitedSlot(limiter))
    return Slots(slots) if len(slots) > 1 else next(iter(slots), None)
