"""One run of an agent inside a step: what it needs of the engine, and what it comes to.

`divebook.agents` sees nothing of `divebook.execution`: an agent with tools records what it does through a
`TurnContext`, which `divebook.steps.turns` makes of a step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from divebook.engine.operations import Reserved, StreamedCall
    from divebook.questions import Question
    from divebook.workflow.policies import Retry


class Answer(NamedTuple):
    """What an agent has answered."""

    text: str
    value: Any
    """The text again, or the recorded form of its structured output."""


class TurnContext(Protocol):
    """What one turn of an agent asks of the engine.

    Keys are names inside the turn; what is recorded has `prefix` in front of them.
    """

    prefix: str
    execution_id: str
    agent_model: str | None
    """The model of all agents of the execution, in place of their own."""
    started_at: datetime | None

    async def operation(
        self,
        kind: str,
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        key: str,
        setting: Mapping[str, Any] | None = None,
        usage: Callable[[Any], Mapping[str, int]] | None = None,
        repeatable: bool = False,
        reserved: Reserved | None = None,
        streamed: StreamedCall | None = None,
        limit: float | None = None,
        slot: AbstractAsyncContextManager[object] | None = None,
        retry: Retry | None = None,
    ) -> Any:
        """Make a call once, its attempts within `limit` seconds each; `setting` is kept and not compared."""

    def recorded_type(self, key: str) -> str | None:
        """Return the type of an operation that the log has, else None."""

    def recorded_setting(self, key: str) -> str | None:
        """Return the hash of the setting with which a recorded operation began."""

    async def recorded_settings(self, key: str) -> Mapping[str, Any]:
        """Return the setting of a recorded operation; it is read from the log, so only where the hashes differ."""

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

    async def signal(self, name: str, within: float | None = None) -> Any:
        """Wait for a signal and return its payload."""

    async def now(self, key: str) -> datetime:
        """Return the time, recorded."""

    def calling(self) -> AbstractContextManager[None]:
        """Surround a call that is under way: a strand of the step, which rests when all of them are parked."""

    async def enclosed(
        self,
        kind: str,
        parameters: Mapping[str, Any],
        body: Callable[[str], Awaitable[Any]],
        *,
        key: str,
        setting: Mapping[str, Any] | None = None,
    ) -> Any:
        """Carry out an operation that holds others: `body` gets its id, and what it returns is the result."""
