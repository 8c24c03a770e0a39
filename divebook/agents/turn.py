"""One run of an agent inside a step: what it needs of the engine, and what it comes to.

`divebook.agents` sees nothing of `divebook.runtime`: an agent with tools records what it does through a
`TurnContext`, which `divebook.steps.turns` makes of a step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypedDict, TypeVar, Unpack, cast

if TYPE_CHECKING:
    from divebook.agents.requests import ResponseSource
    from divebook.engine.approvals import Approved, Denied, ToolCall
    from divebook.engine.operations import Reserved, RunOperation, Setting, Slot, StreamedCall
    from divebook.questions import Question
    from divebook.workflow.step import Retry
    from divebook.workflow.tools import FileSpellings, ToolFunction


SPENT = "spent"
"""What the result of a turn says that it has spent, where the turn that it worked for has a budget."""


class Answer(NamedTuple):
    """What an agent has answered."""

    text: str
    value: Any
    """The text again, or the recorded form of its structured output."""


@dataclass(frozen=True, slots=True)
class AgentTask:
    """What an agent is asked."""

    prompt: str
    content: Sequence[Mapping[str, Any]] = ()
    """Blocks that come before the prompt."""
    context: Sequence[Mapping[str, Any]] = ()
    """Blocks of the agent's own `Context`, which make an extra message in front of everything."""
    output: Any = None
    """What it is to answer with, in place of its own: a type or a JSON schema."""
    deps: Any = None
    """In place of its own."""
    prefix: str = ""
    """What stands in front of the keys of its turn, where a step has several."""
    thread: str | None = None
    """The conversation that it goes on with."""
    history: Sequence[Any] = ()
    """What was said in that before, by turns: messages as the log has them."""

    share: Mapping[str, Any] | None = None
    """The bounds that who hands it on gives it, beside its own."""

    def to_dict(self) -> dict[str, Any]:
        """Return what the log compares, as far as it says anything."""
        said = {"prompt": self.prompt, "content": self.content, "context": self.context, "thread": self.thread}
        return {name: value for name, value in said.items() if value or name == "prompt"}


class Sampler(Protocol):
    """What answers for a model; see `divebook.agents.Agent`."""

    @property
    def model_name(self) -> str:
        """The model."""

    @property
    def has_hands(self) -> bool:
        """Whether it may do more than answer."""

    @property
    def retry(self) -> Retry:
        """How a request is tried again."""

    def with_settings(self, *, temperature: float | None = None, max_tokens: int | None = None) -> Self:
        """Return it with other settings."""

    async def respond(self, prompt: str, operation: RunOperation, *, context: Sequence[Mapping[str, Any]] = ()) -> str:
        """Answer a prompt with one request, which is made by `operation`."""


class OperationOptions(TypedDict, total=False):
    """What may be said of an operation besides; see `divebook.runtime.context.StepContext.operation`."""

    setting: Setting | None
    usage: Callable[[Any], Mapping[str, int]]
    repeatable: bool
    reserved: Reserved
    streamed: StreamedCall
    slot: Slot | None
    done: Callable[[Any], Any]


class TurnContext(Protocol):
    """What one turn of an agent asks of the engine.

    Keys are names inside the turn; what is recorded has the prefix of the turn in front of them.
    """

    prefix: str
    """What stands in front of its keys."""
    recall: ResponseSource | None
    """Where answers of models come from, if not from the models alone."""

    @property
    def run_id(self) -> str:
        """Names the turn, the same whenever it runs again; no other of the execution has it."""

    @property
    def started_at(self) -> datetime | None:
        """When the execution began, UTC: a time that replay need not ask for."""

    @property
    def qualifies_tools(self) -> bool:
        """Whether tools of one name have that of their server in front; else an agent cannot have both."""

    def sampler(self, name: str) -> Sampler:
        """Return an agent of the environment, to answer what servers ask of a model; raises `NotFoundError`."""

    def recorded_type(self, key: str) -> str | None:
        """Return the type of the operation that the log has under a key, if it has one."""

    def consumed_by_failures(self, key: str) -> Mapping[str, int]:
        """Return what the failed attempts at an operation consumed all the same."""

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
        """Make a call once, as often as `retry` says."""

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
        """Make a call of a tool once: with its own retries, time limit and place among those that run at once.

        `parameters` is what the log says of it, `call` makes it, and calls `invoke` somewhere inside.
        """

    async def invoke(self, tool: ToolFunction, arguments: Mapping[str, Any], *, key: str) -> Any:
        """Call the function itself, unrecorded, where its executor is; its idempotency key is made of `key`."""

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
        """Let a question expire that is still open, so that its default holds from now on."""

    def asked(self, key: str) -> Question | None:
        """Return a question that the log has, with its answer if there is one."""

    def began_at(self, key: str) -> datetime:
        """Return when an operation of the log began."""

    def recorded_digest(self, key: str) -> str | None:
        """Return the digest of what an operation of the log was made with; None where it has none."""

    async def recorded_start(self, key: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the parameters of such an operation, and what the log keeps of what it was made with."""

    async def approve(
        self, call: ToolCall, schema: Mapping[str, Any], *, place: str, description: str
    ) -> Approved | Denied:
        """Return whether a call may be made, and with which arguments; a person may be asked.

        `place` is where it belongs: the question is ``approve-<place>``, the call itself ``tool-<place>``.
        """

    def files_of(self, tool: ToolFunction) -> FileSpellings | None:
        """Return which arguments of a tool name files; None if none do."""

    def below(self, key: str) -> TurnContext:
        """Return what an agent asks of the engine that one of the calls runs; its keys begin with that of the call."""

    async def wait_beside_others(self, change: asyncio.Future[None]) -> bool:
        """Wait for a change that another call of the step brings; return False once no other call can bring it."""

    async def alone(self) -> None:
        """Return when no other call of the step is under way: each has ended, or waits for something from outside."""

    def open_call(self) -> AbstractContextManager[None]:
        """Surround a question that is asked during a call, which stays open until the answer comes."""

    def calling(self) -> AbstractContextManager[None]:
        """Surround a call that is under way: a strand of the step, which rests when all of them are parked."""


# What a turn awaits side by side: strands of its step, all counted before one of them can have to wait.


T = TypeVar("T")


async def side_by_side(context: TurnContext, calls: Sequence[Awaitable[T]]) -> list[T]:
    """Return what they come to, in their order; raises what the first of them raised, once all have ended."""
    strands = [ExitStack() for _ in calls]

    async def awaited(strand: ExitStack, call: Awaitable[T]) -> T:
        with strand:
            return await call

    with ExitStack() as left:  # of those that are cancelled before they begin
        for strand in strands:
            strand.enter_context(context.calling())
            left.callback(strand.close)
        found = await asyncio.gather(*map(awaited, strands, calls), return_exceptions=True)
    for result in found:
        if isinstance(result, BaseException):
            raise result
    return cast("list[T]", found)
