"""Data types of an agent's turn, and the protocol through which a turn uses the engine.

`divebook.agents` does not import `divebook.runtime`. An agent with tools records its operations through a
`TurnContext`. `divebook.steps.step_turn` implements that protocol for a step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeAlias, TypedDict, TypeVar, Unpack, cast

if TYPE_CHECKING:
    from divebook.agents.request_record import ResponseSource
    from divebook.engine.approvals import Approved, Denied, ToolCall
    from divebook.engine.operations import Reserved, RunOperation, Setting, Slot, StreamedCall
    from divebook.questions import Question
    from divebook.workflow.step import Retry
    from divebook.workflow.tools import FileSpellings, ToolFunction


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


class Sampler(Protocol):
    """Protocol for an agent that answers sampling requests, with which MCP servers ask for a model response.
    `divebook.agents.Agent` implements it.
    """

    @property
    def model_name(self) -> str:
        """Name of the agent's model, ``provider:model``."""

    @property
    def has_hands(self) -> bool:
        """True if the agent may use tools. Such an agent must not answer sampling requests of MCP servers."""

    @property
    def retry(self) -> Retry:
        """Retry policy of the agent's model requests."""

    def with_settings(self, *, temperature: float | None = None, max_tokens: int | None = None) -> Self:
        """Return a copy of the agent with another temperature or token limit. None keeps the current setting."""

    async def respond(self, prompt: str, operation: RunOperation, *, context: Sequence[Mapping[str, Any]] = ()) -> str:
        """Answer a prompt with a single model request and return the answer. `operation` makes and records the
        request.
        """


Admission: TypeAlias = Callable[[int], AbstractAsyncContextManager[None]]
"""Returns the context manager of one attempt at an operation, for the number of failed attempts before it."""


class OperationOptions(TypedDict, total=False):
    """Optional keyword arguments of `TurnContext.operation`. They are described at
    `divebook.runtime.context.StepContext.operation`.
    """

    setting: Setting | None
    usage: Callable[[Any], Mapping[str, int]]
    repeatable: bool
    reserved: Reserved
    streamed: StreamedCall
    slot: Slot | None
    done: Callable[[Any], Any]


class QuestionOptions(TypedDict, total=False):
    """Optional keyword arguments of `TurnContext.question`. They are described at
    `divebook.runtime.context.StepContext.interrupt`.
    """

    data: Mapping[str, Any] | None
    schema: Mapping[str, Any] | None
    message: str | None
    expires_in: float | None
    default: Any


class TurnContext(Protocol):
    """Protocol for the services of the engine that an agent's turn uses. `divebook.steps.step_turn.StepTurn` implements
    it.

    Keys are names inside the turn. The recorded key is the prefix of the turn plus this name.
    """

    prefix: str
    """Prefix of the recorded keys."""
    response_source: ResponseSource | None
    """Source of model responses that is asked before the model; None to always ask the model."""

    @property
    def run_id(self) -> str:
        """Id of the turn. The id is unique in the execution, and stays the same when the turn runs again."""

    @property
    def started_at(self) -> datetime | None:
        """Start time of the execution in UTC. It is read from the log, so that a replay gets the same time."""

    @property
    def qualifies_tools(self) -> bool:
        """True if tools of several MCP servers may have the same name. The name of each such tool is then prefixed with
        the name of its server.

        If False, an agent cannot use two tools with the same name.
        """

    def sampler(self, name: str) -> Sampler:
        """Return the agent of the environment that is called `name`, to answer the sampling requests of MCP servers.

        Raises
        ------
        NotFoundError
            The environment has no agent of this name.
        """

    def recorded_type(self, key: str) -> str | None:
        """Return the recorded type of the operation of this turn with a key. Return None if the log has no such
        operation.
        """

    def has_ended(self, key: str) -> bool:
        """Return True if the log has the result or the error of the operation of this turn with a key."""

    def has_begun(self, key: str, attempt: int) -> bool:
        """Return True if the log has the start of an attempt at a model request, and the attempt is not to be made
        again because of a failed step.
        """

    def consumed_by_failure(self, key: str, attempt: int) -> Mapping[str, int] | None:
        """Return the tokens and cost that a failed attempt of an operation consumed, from the log. Return None if the
        attempt did not fail.
        """

    def consumed_before_resumption(self, key: str, attempt: int) -> Mapping[str, int]:
        """Return the consumption (calls, tokens, cost) of failures of an attempt at a model request after which the
        execution was resumed. The resumption repeats the attempt, and its failures have no record any more.
        """

    def consumed(self) -> Mapping[str, int]:
        """Return the consumption (calls, tokens, cost) of all model requests of the turn in the log, including those of
        subordinate agents.
        """

    async def operation(
        self,
        kind: str,
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        key: str,
        retry: Retry | None = None,
        admitted: Admission | None = None,
        **options: Unpack[OperationOptions],
    ) -> Any:
        """Run a function as a recorded operation. Return the recorded result if the log has one; otherwise call the
        function, with retries.

        Each attempt is made inside the context manager that `admitted` returns.
        """

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
        """Run a tool call as a recorded operation. Return the recorded result if the log has one; otherwise make the
        call with the tool's retries, time limit and concurrency limit.

        `parameters` are recorded in the log. `call` makes the call and must call `invoke` inside.
        """

    async def invoke(self, tool: ToolFunction, arguments: Mapping[str, Any], *, key: str) -> Any:
        """Call the function of a tool in its executor, without recording an operation. The idempotency key of the call
        is derived from `key`.
        """

    async def question(self, kind: str, text: str, *, key: str, **options: Unpack[QuestionOptions]) -> Question:
        """Ask a person and wait for the answer; return the question with its answer."""

    async def withdraw(self, key: str) -> None:
        """Withdraw the open question with a key: it expires, and its default becomes the answer."""

    def recorded_question(self, key: str) -> Question | None:
        """Return the recorded question with a key, with its answer if there is one. Return None if the log has no such
        question.
        """

    def began_at(self, key: str) -> datetime:
        """Return the recorded start time of the operation with a key. The operation must be in the log."""

    def recorded_digest(self, key: str) -> str | None:
        """Return the recorded hash of the setting (model, instructions and tools) of the operation with a key. Return
        None if the log has no such operation, or no setting for it.
        """

    async def recorded_start(self, key: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the recorded parameters and setting of the operation with a key. The operation must be in the log."""

    async def approve(
        self, call: ToolCall, schema: Mapping[str, Any], *, place: str, description: str
    ) -> Approved | Denied:
        """Decide by approval rules, or by asking a person, whether a tool call may be made and with which arguments.

        `place` identifies the call: the question has the key ``approve-<place>``, the call ``tool-<place>``.
        """

    def files_of(self, tool: ToolFunction) -> FileSpellings | None:
        """Return a description of the tool's arguments that are paths of files, by which approval rules compare files.
        Return None if no argument is a path.
        """

    def below(self, key: str) -> TurnContext:
        """Return a new context for the turn of an agent that runs inside a tool call. Its operation keys begin with
        `key`, the key of the tool call.
        """

    async def wait_beside_others(self, change: asyncio.Future[None]) -> bool:
        """Wait until another concurrent call of the step completes the future `change`, and return True. Return False
        at once if no other call is running, because `change` would then never be completed.
        """

    async def alone(self) -> None:
        """Wait until no other concurrent call of the step is running: each has ended or waits for an external event."""

    def open_call(self) -> AbstractContextManager[None]:
        """Return a context manager for a tool call that waits for a person's answer while it is running. Inside the
        ``with`` block, the step is not suspended, because a suspended call could not continue.
        """

    def calling(self) -> AbstractContextManager[None]:
        """Return a context manager that counts its ``with`` block as a running call of the step. The step is suspended
        only when every counted call waits for an external event.
        """


# --- concurrent calls ---------------------------------------------------------------------------------------------
# All calls of a group are counted before the first of them can wait. Otherwise the step could pause too early.


T = TypeVar("T")


async def side_by_side(context: TurnContext, calls: Sequence[Awaitable[T]]) -> list[T]:
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
