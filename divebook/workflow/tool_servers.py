"""What a server of tools offers, as plain data for the log, and what one is asked.

`divebook.tools.mcp` makes such servers. What an agent's turn records of them is data: a resume makes the tools of a
recorded list again, and starts a server only for a call that the log does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from divebook.workflow.stored_form import Definition

SCHEME = "mcp://"
"""What ids of resources begin with: ``mcp://server/address``."""
Answers: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By the name of each request: ``{"action": "accept" | "decline" | "cancel", "content": {...}}``, or of a model
``{"text", "model"}`` or ``{"error"}``."""


class Elicit(Protocol):
    """Asks a person, or a model, during a call."""

    async def __call__(self, request: Mapping[str, Any], /) -> Mapping[str, Any]:
        """Return the answer to one of the `CallOutcome.requests`."""

    async def withdraw(self) -> None:
        """Close the question that is open: the call has ended without the answer."""


@dataclass(frozen=True, slots=True)
class OfferedTool(Definition):
    """One tool of a server."""

    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=dict)
    hints: Mapping[str, bool] = field(default_factory=dict)
    """What is believed of the hints that it gives, by the names of `ToolHints`."""
    output_schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Discovered(Definition):
    """What a server offers to a turn; its form in the log is `to_dict`."""

    tools: tuple[OfferedTool, ...] = ()
    instructions: str = ""
    """What it tells those who use it; part of an agent's instructions."""


@dataclass(frozen=True, slots=True)
class CallOutcome(Definition):
    """What a call of a tool came to: an answer, or requests that a person has to answer first.

    Examples
    --------
    >>> CallOutcome(requests={"colour": {"message": "Which?", "schema": {"type": "object"}}}).needs_input
    True
    """

    content: Any = None
    """Text, JSON, or a list of such; bytes stand in it as ``{"media_type": ..., "base64": ...}``."""
    is_error: bool = False
    requests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By name: ``{"message", "schema"}``, the schema empty where nothing is to be filled in.

    What is asked of a model is ``{"agent", "messages", "system", "max_tokens", "temperature"}``.

    They are answered by a call with `Answers` and the `state`."""
    state: str | None = None
    """What the server wants back with the answers; only it can read it."""

    @property
    def needs_input(self) -> bool:
        """Whether it is to be called again, with answers."""
        return bool(self.requests) or self.state is not None


class ToolServer(Protocol):
    """A server of tools; it is started when it is first asked something."""

    @property
    def name(self) -> str:
        """The name under which definitions know it."""

    @property
    def timeout(self) -> float:
        """Seconds that a call may take."""

    @property
    def sampling(self) -> str | None:
        """The agent that answers what it asks of a model; None refuses that."""

    async def discover(self) -> Discovered:
        """Return what it offers now; raises `ServerError`."""

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        answers: Answers | None = None,
        state: str | None = None,
        elicit: Elicit | None = None,
        repeatable: bool = False,
    ) -> CallOutcome:
        """Call a tool, in a later round with the answers and the state of the one before.

        Parameters
        ----------
        elicit
            For servers that ask during a call, as those of 2025 do.
        repeatable
            Whether the call may simply be made again where the connection broke.

        Raises
        ------
        ServerError
            It cannot be reached, or breaks the protocol; it has not carried out the call.
        OutcomeUnknownError
            The connection broke after the call was sent, and it is not repeatable.
        """
