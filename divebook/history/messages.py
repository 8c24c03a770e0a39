"""What models saw and answered, as messages: read off what the log says of a call.

`divebook.agents` makes its requests of the same messages, so that what is read here is what was sent
(tests/history/test_messages.py). Messages of agents with tools come from the log in pydantic-ai's own JSON form, which
`divebook.history.requests` puts together; here they become what people look at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from divebook.engine.operations import AGENT_RESPONSE
from divebook.events.codec import encode_shown
from divebook.events.values import normalize
from divebook.history.spans import Span
from divebook.workflow.blocks import base64_block, text_block

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Block: TypeAlias = Mapping[str, Any]

_ROLES: Mapping[str, Role] = {"system-prompt": "system", "instruction-delta": "system", "tool-return": "tool"}
"""By kind of part: who speaks in it, where that is not the user."""


class CallMessage(NamedTuple):
    """One message of a model call."""

    role: Role
    content: Sequence[Block]
    """Its blocks: texts, images, documents; of an assistant also ``thinking`` (``text``) and ``tool_call`` (``id``,
    ``tool``, ``arguments``); of a tool ``tool_result`` (``id``, ``tool``, ``content``, ``outcome``)."""

    @property
    def text(self) -> str:
        """Its texts, a line each; of a tool what it returned."""
        return "\n".join(text for block in self.content if (text := _text_of(block)) is not None)


def request_messages(parameters: Mapping[str, Any]) -> list[CallMessage]:
    """Return what a model is asked: instructions, the agent's context, then content and prompt."""
    instructions, context = parameters.get("instructions"), mappings_in(parameters.get("context"))
    asked = [*mappings_in(parameters.get("content")), text_block(parameters.get("prompt", ""))]
    return [
        *([CallMessage("system", [text_block(instructions)])] if instructions else []),
        *([CallMessage("user", context)] if context else []),
        CallMessage("user", asked),
    ]


def messages_of(call: Span) -> list[CallMessage]:
    """Return what a model was asked, and what it answered, where it has; nothing of other operations.

    Of an agent with tools this is what was new in the request, as far as the log says it there; the whole is
    `divebook.history.requests.requests_of`.
    """
    if call.type != AGENT_RESPONSE or call.parameters is None:
        return []
    is_of_turn = "request" in call.parameters
    asked = spoken_in(mappings_in(call.parameters.get("new"))) if is_of_turn else request_messages(call.parameters)
    return [*asked, *spoken_in([call.result] if isinstance(call.result, Mapping) else [])]


def spoken_in(messages: Sequence[Mapping[str, Any]]) -> list[CallMessage]:
    """Return messages in pydantic-ai's JSON form as what people look at; what is cut out of them is left out."""
    return [said for message in messages for said in _spoken(message)]


def _spoken(message: Mapping[str, Any]) -> list[CallMessage]:
    """Return a request or response; parts that follow each other and have one speaker are one message."""
    said: list[tuple[Role, list[Block]]] = []
    is_answer = message.get("kind", "response") == "response"
    for part in mappings_in(message.get("parts")):
        kind = str(part.get("part_kind"))
        blocks = _blocks(kind, part)
        role: Role = "assistant" if is_answer else _ROLES.get(kind, "user")
        if not blocks:
            continue
        if said and said[-1][0] == role and role != "tool":
            said[-1][1].extend(blocks)
        else:
            said.append((role, blocks))
    return [CallMessage(role, blocks) for role, blocks in said]


def _blocks(kind: str, part: Mapping[str, Any]) -> list[Block]:
    match kind:
        case "tool-call" | "builtin-tool-call":
            return [{"type": "tool_call", **_named(part), "arguments": _arguments(part.get("args"))}]
        case "tool-return" | "builtin-tool-return":
            outcome = part.get("outcome", "success")
            return [{"type": "tool_result", **_named(part), "content": part.get("content"), "outcome": outcome}]
        case "thinking":
            return [{"type": "thinking", "text": part["content"]}] if part.get("content") else []
    content = part.get("content")
    items = content if isinstance(content, list | tuple) else [content]
    return [block for item in items if (block := _block(item)) is not None]


def _named(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": part.get("tool_call_id"), "tool": part.get("tool_name")}


def _arguments(said: Any) -> Any:
    """Return the arguments of a call, which models write as JSON; what is no JSON stays as they wrote it."""
    if not isinstance(said, str):
        return {} if said is None else said
    try:
        return json.loads(said) if said else {}
    except ValueError:
        return said


def _block(item: Any) -> Block | None:
    if isinstance(item, str):
        return text_block(item)
    if not isinstance(item, Mapping):
        return None
    if isinstance(item.get("content"), str):
        return text_block(item["content"])
    media = str(item.get("media_type", ""))
    kind = "image" if media.startswith("image/") or item.get("kind") == "image-url" else "document"
    if isinstance(item.get("data"), str):
        return base64_block(kind, media, item["data"])
    return {"type": kind, "source": {"type": "url", "url": item["url"]}} if "url" in item else None


def _text_of(block: Block) -> str | None:
    if block.get("type") == "text":
        return str(block["text"])
    if block.get("type") != "tool_result":
        return None
    content = block["content"]
    return content if isinstance(content, str) else encode_shown(normalize(content)).decode()


def mapping_in(value: Any) -> Mapping[str, Any]:
    """Return a mapping; what was cut out of a saved log is an empty one."""
    return value if isinstance(value, Mapping) else {}


def mappings_in(value: Any) -> list[Mapping[str, Any]]:
    """Return the mappings of a list; in a saved log some may have been cut out, or all."""
    return [part for part in value if isinstance(part, Mapping)] if isinstance(value, list | tuple) else []
