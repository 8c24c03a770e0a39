"""What was said in an agent's turn, or in a single request to a model."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class ConversationPart(TypedDict):
    """A part of what was said."""

    kind: Literal["system", "user", "retry", "thinking", "assistant", "call", "result"]
    text: str
    call: str
    """Of a call: which; of a result: the tool; empty for all else."""


class ConversationRequest(TypedDict):
    """A request to a model: what was new in it, and what came back; its span has the times and the status."""

    id: int
    number: int
    model: str
    """The model that answered; until then the one that was asked."""
    finish: str
    """Why the model stopped, in its provider's words."""
    is_cached: bool
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: float | None
    instructions: str
    tools: list[str]
    output: str
    """What it has to answer with; empty if text will do."""
    sent: list[ConversationPart]
    answer: list[ConversationPart]


class ConversationCall(TypedDict):
    """A tool call that a model asked for."""

    id: int
    """Its span; -1 as long as it has not begun."""
    call: str
    """As the model named it."""
    request: int
    """Number of the request whose answer asked for it."""
    tool: str
    server: str
    """The MCP server that has the tool; empty for a function."""
    arguments: Any
    result: str
    """Of a long one the beginning and the end."""
    lines: int
    """How many lines the whole result has."""
    outcome: Literal["", "returned", "failed", "denied", "retry", "unknown"]
    turn: int
    """The span of the turn of the agent that was given the work; -1 if it is no such call."""
    questions: list[str]
    """Ids that questions about it have, if there are any: whether it may be made, what became of it ..."""


class Conversation(TypedDict):
    """Answer to `ConversationQuery`; what has not changed since the event that it named is left out."""

    type: Literal["conversation"]
    view: str
    id: int
    last: int
    """The event up to which it is complete."""
    agent: str
    thread: str
    requests: list[ConversationRequest]
    calls: list[ConversationCall]
    error: str
    """Why there is none."""


class ConversationQuery(TypedDict):
    """A view asks what was said in an agent's turn, or in a single request."""

    type: Literal["conversation"]
    view: str
    id: int
    """The span of either."""
    since: int
    """Sequence number of the last event whose effects it has; 0 for none."""


class Sent(TypedDict):
    """Answer to `SentQuery`."""

    type: Literal["sent"]
    view: str
    id: int
    parts: list[ConversationPart]
    error: str
    """Why there are none."""


class SentQuery(TypedDict):
    """A view asks for all messages that were sent with a request."""

    type: Literal["sent"]
    view: str
    id: int
