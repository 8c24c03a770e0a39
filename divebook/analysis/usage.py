"""What model calls consumed: in all, by step, by model."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from divebook.engine.operations import AGENT_RESPONSE
from divebook.engine.state import NO_USAGE, Usage
from divebook.events import Event
from divebook.history.spans import Span, spans_of
from divebook.text.shown import plural


def total_usage(events: Iterable[Event]) -> Usage:
    """Return the sum over all model calls."""
    return usage_by(events, lambda _: "all").get("all", NO_USAGE)


def usage_by_step(events: Iterable[Event]) -> dict[str, Usage]:
    """Return the usage of each step that called a model, in the order of their first calls."""
    return usage_by(events, lambda span: span.step)


def usage_by_model(events: Iterable[Event]) -> dict[str, Usage]:
    """Return the usage of each model, in the order of their first calls."""
    return usage_by(events, lambda span: str((span.parameters or {}).get("model", "unknown")))


def usage_by(events: Iterable[Event], key: Callable[[Span], str]) -> dict[str, Usage]:
    """Return the usage of the model calls that have the same key."""
    totals: dict[str, Usage] = {}
    for span in spans_of(events):
        if span.usage or (span.type == AGENT_RESPONSE and span.kind == "operation"):
            name = key(span)
            totals[name] = totals.get(name, NO_USAGE).plus(span.usage)
    return totals


def usage_text(usage: Usage) -> str:
    """Return a usage for people.

    >>> usage_text(Usage(requests=2, input_tokens=1200, output_tokens=34))
    '2 model calls, 1,234 tokens'
    """
    return f"{plural(usage.requests, 'model call')}, {plural(usage.input_tokens + usage.output_tokens, 'token')}"
