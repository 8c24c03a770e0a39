"""What models saw and answered, as messages: read off what the log says of a call.

`divebook.agents.durable` makes its requests of the same messages, so that what is read here is what was sent
(tests/history/test_messages.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from divebook.engine.operations import AGENT_RESPONSE
from divebook.history.spans import Span
from divebook.workflow.blocks import text_block


class CallMessage(NamedTuple):
    """One message of a model call."""

    role: Literal["system", "user", "assistant"]
    content: Sequence[Mapping[str, Any]]
    """Its blocks: texts, images, documents."""

    @property
    def text(self) -> str:
        """Its texts, a line each."""
        return "\n".join(str(block["text"]) for block in self.content if block.get("type") == "text")


def request_messages(parameters: Mapping[str, Any]) -> list[CallMessage]:
    """Return what a model is asked: instructions, the agent's context, then content and prompt."""
    instructions, context = parameters.get("instructions"), _mappings(parameters.get("context"))
    asked = [*_mappings(parameters.get("content")), text_block(parameters.get("prompt", ""))]
    return [
        *([CallMessage("system", [text_block(instructions)])] if instructions else []),
        *([CallMessage("user", context)] if context else []),
        CallMessage("user", asked),
    ]


def messages_of(call: Span) -> list[CallMessage]:
    """Return what a model was asked, and what it answered, where it has; nothing of other operations."""
    if call.type != AGENT_RESPONSE or call.parameters is None:
        return []
    parts = _mappings(call.result.get("parts")) if isinstance(call.result, Mapping) else []
    answer = [text_block(part["content"]) for part in parts if part.get("part_kind") == "text" and "content" in part]
    return [*request_messages(call.parameters), *([CallMessage("assistant", answer)] if answer else [])]


def _mappings(parts: Any) -> list[Mapping[str, Any]]:
    """Return the parts of a list; in a saved notebook some may have been left out."""
    return [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list | tuple) else []
