"""What a span is called in traces, and what is said of it: of models, agents and tools in the words of GenAI.

What models were asked and answered is not said: it is in the log. (https://opentelemetry.io/docs/specs/semconv/gen-ai/)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, CACHED_RESPONSE, TOOL_CALL
from divebook.history.span import Span
from divebook.text.redaction import shared

Attributes: TypeAlias = Mapping[str, str | int | float | bool]

CHAT, INVOKE_AGENT, EXECUTE_TOOL = "chat", "invoke_agent", "execute_tool"
_DOES = {AGENT_RESPONSE: CHAT, CACHED_RESPONSE: CHAT, AGENT_TURN: INVOKE_AGENT, TOOL_CALL: EXECUTE_TOOL}
TOKENS = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
}


def name_of(span: Span) -> str:
    """Return what a span is called: ``chat gpt-5-mini``, ``execute_tool search``, ``step classify``."""
    does = _DOES.get(span.type) if span.kind == "operation" else None
    if does == CHAT:
        return f"{CHAT} {model_of(span)[1]}".rstrip()
    if does is not None:
        return f"{does} {span.called or ''}".rstrip()
    if span.kind in ("step", "item"):
        return f"{span.kind} {span.name}"
    return f"{span.type} {span.called or ''}".rstrip()


def model_of(span: Span) -> tuple[str, str]:
    """Return provider and name of the model that was asked."""
    provider, _, name = (span.model or "").rpartition(":")
    return provider or name, name


def attributes_of(span: Span) -> dict[str, str | int | float | bool]:
    """Return what is said of a span."""
    told: dict[str, str | int | float | bool | None] = {
        "divebook.kind": span.kind,
        "divebook.type": span.type,
        "divebook.path": span.path,
        "divebook.step": span.step,
        "divebook.status": span.status,
        "divebook.item": span.iteration,
        "divebook.operation.id": span.operation_id,
        "divebook.attempts": span.attempts if span.attempts > 1 else None,
        "error.type": span.error_type,
    }
    does = _DOES.get(span.type) if span.kind == "operation" else None
    if does is not None:
        told["gen_ai.operation.name"], told["gen_ai.agent.name"] = does, span.agent
    if does == CHAT:
        told["gen_ai.provider.name"], told["gen_ai.request.model"] = model_of(span)
        told |= {TOKENS[name]: count for name, count in span.usage.items() if name in TOKENS}
        told["divebook.cached"] = span.type == CACHED_RESPONSE or None
        told["divebook.cost"] = cost_of(span)
    elif does == EXECUTE_TOOL:
        told["gen_ai.tool.name"] = span.called
    return {name: value for name, value in told.items() if value is not None}


def cost_of(span: Span) -> float | None:
    """Return what a model call cost, in US dollars; None where no price is known."""
    cost = span.usage.get("cost")
    return None if cost is None else cost / 1e9


def error_of(span: Span) -> str | None:
    """Return the error of a span that has failed, without secrets."""
    return None if span.error is None else str(shared().text(span.headline))[:1000]
