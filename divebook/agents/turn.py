"""Data types and engine interface of one agent turn inside a step.

`divebook.agents` does not import `divebook.runtime`. An agent with tools records its operations through a
`TurnContext`. `divebook.steps.step_turn` implements that protocol for a step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypedDict, TypeVar, Unpack, cast

if TYPE_CHECKING:
    from divebook.agents.request_record import ResponseSource
    from divebook.engine.approvals import Approved, Denied, ToolCall
    from divebook.engine.operations import Reserved, RunOperation, Setting, Slot, StreamedCall
    from divebook.questions import Question
    from divebook.workflow.step import Retry
    from divebook.workflow.tools import FileSpellings, ToolFunction


SPENT = "spent"
"""Key in the result of a turn for its consumption. Present if the turn worked for another turn that has a budget."""


class Answer(NamedTuple):
    """The answer of an agent."""

    text: str
    value: Any
    """The same text, or the recorded form of its structured output."""


@dataclass(frozen=True, slots=True)
class AgentTask:
    """One task for an agent: prompt, content, expected output and conversation."""

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
        """Return the fields that are compared with the log. Empty fields except the prompt are left out."""
        fields = {"prompt": self.prompt, "content": self.content, "context": self.context, "thread": self.thread}
        return {name: value for name, value in fields.items() if value or name == "prompt"}


class Sampler(Protocol):
    """Agent that answers sampling requests in place of a model; see `divebook.agents.Agent`."""

    @property
    def model_name(self) -> str:
        """Name of the model."""

    @property
    def has_hands(self) -> bool:
        """True if the agent may use tools."""

    @property
    def retry(self) -> Retry:
        """Retry policy of a request."""

    def with_settings(self, *, temperature: float | None = None, max_tokens: int | None = None) -> Self:
        """Return a copy with other settings."""

    async def respond(self, prompt: str, operation: RunOperation, *, context: Sequence[Mapping[str, Any]] = ()) -> str:
        """Answer a prompt with one model request, which `operation` runs."""


class OperationOptions(TypedDict, total=False):
    """Optional arguments of an operation; see `divebook.runtime.context.StepContext.operation`."""

    setting: Setting | None
    usage: Callable[[Any], Mapping[str, int]]
    repeatable: bool
    reserved: Reserved
    streamed: StreamedCall
    slot: Slot | None
    done: Callable[[Any], Any]


class TurnContext(Protocol):
    """Services of the engine for one turn of an agent.

    Keys are names inside the turn. The recorded key is the prefix of the turn plus this name.
    """

    prefix: str
    """Prefix of the recorded keys."""
    response_source: ResponseSource | None
    """Source of model responses that is asked before the model; None to always ask the model."""

    @property
    def run_id(self) -> str:
        """Id of the turn: unique in the execution and the same when the turn runs again."""

    @property
    def started_at(self) -> datetime | None:
        """Start time of the execution (UTC). It is in the log already, so a replay needs no operation for it."""

    @property
    def qualifies_tools(self) -> bool:
        """True if tools with the same name are prefixed with the name of their server.

        If False, an agent cannot have both.
        """

    def sampler(self, name: str) -> Sampler:
        """Return the agent of the environment that answers sampling requests of servers.

        Raises
        ------
        NotFoundError
            The environment has no agent of this name.
        """

    def recorded_type(self, key: str) -> str | None:
        """Return the type of the operation recorded under a key; None if the log has no such operation."""

    def consumed_by_failures(self, key: str) -> Mapping[str, int]:
        """Return the consumption of the failed attempts of an operation."""

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
        """Run a call as an operation: return the recorded result, or make the call with retries."""

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
        """Run a tool call as an operation, with the tool's own retries, time limit and concurrency limit.

        `parameters` are recorded in the log. `call` makes the call and must call `invoke` inside.
        """

    async def invoke(self, tool: ToolFunction, arguments: Mapping[str, Any], *, key: str) -> Any:
        """Call the tool function in its executor, without recording it. Its idempotency key is derived from `key`."""

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
        """Ask a person; return the question with its answer."""

    async def withdraw(self, key: str) -> None:
        """Withdraw an open question: it expires, and its default becomes the answer."""

    def recorded_question(self, key: str) -> Question | None:
        """Return a recorded question, with its answer if it has one; None if the log has no such question."""

    def began_at(self, key: str) -> datetime:
        """Return the start time of a recorded operation."""

    def recorded_digest(self, key: str) -> str | None:
        """Return the digest of the setting that an operation was recorded with; None if it has none."""

    async def recorded_start(self, key: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the parameters and the recorded setting of such an operation."""

    async def approve(
        self, call: ToolCall, schema: Mapping[str, Any], *, place: str, description: str
    ) -> Approved | Denied:
        """Decide whether a tool call may be made, and with which arguments. This may ask a person.

        `place` identifies the call: the question has the key ``approve-<place>``, the call ``tool-<place>``.
        """

    def files_of(self, tool: ToolFunction) -> FileSpellings | None:
        """Return which arguments of a tool name files; None if none do."""

    def below(self, key: str) -> TurnContext:
        """Return the context of an agent that one of the calls runs. Its keys begin with the key of that call."""

    async def wait_beside_others(self, change: asyncio.Future[None]) -> bool:
        """Wait for a change caused by a concurrent call of the step. Return False once no such call is left."""

    async def alone(self) -> None:
        """Wait until every other call of the step has ended or waits for an external event."""

    def open_call(self) -> AbstractContextManager[None]:
        """Keep a call open while a question inside the block waits for its answer."""

    def calling(self) -> AbstractContextManager[None]:
        """Count a running call inside the block. The step pauses once all counted calls are parked."""


# --- concurrent calls ---------------------------------------------------------------------------------------------
# All calls of a group are counted before the first of them can wait. Otherwise the step could pause too early.


T = TypeVar("T")


async def side_by_side(context: TurnContext, calls: Sequence[Awaitable[T]]) -> list[T]:
    """Run several calls concurrently and return their results in order.

    Wait until all calls have ended. If calls raised, raise the error of the first of them in order.
    """
    stacks = [ExitStack() for _ in calls]

    async def awaited(stack: ExitStack, call: Awaitable[T]) -> T:
        with stack:
            return await call

    with ExitStack() as open_counts:  # ends the count of calls that are cancelled before they start
        for strand in stacks:
            strand.enter_context(context.calling())
            open_counts.callback(strand.close)
        results = await asyncio.gather(*map(awaited, stacks, calls), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast("list[T]", results)
