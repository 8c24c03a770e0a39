"""What is counted and measured of executions."""

from __future__ import annotations

from opentelemetry.metrics import Meter

from divebook.engine.operations import AGENT_RESPONSE
from divebook.history.span import Span
from divebook.telemetry.attributes import CHAT, Attributes, cost_of, model_of
from divebook.telemetry.followed import EndedSpan

_TOKENS = {"input_tokens": "input", "output_tokens": "output"}


class Measures:
    """Instruments of a meter, and what is recorded with them of each span that ends."""

    def __init__(self, meter: Meter) -> None:
        self._executions = meter.create_histogram(
            "divebook.execution.duration", "s", "How long executions took, from their start or resumption to their end"
        )
        self._steps = meter.create_histogram("divebook.step.duration", "s", "How long visits of steps took")
        self._operations = meter.create_histogram("divebook.operation.duration", "s", "How long recorded calls took")
        self._cost = meter.create_counter("divebook.cost", "USD", "What model calls cost whose price is known")
        self._chats = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", "How long models took to answer, as the client saw it"
        )
        self._tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}", "Tokens of each model call")

    def take(self, ended: EndedSpan, workflow: str, status: str) -> None:
        """Record one span."""
        seconds = (ended.ended_us - ended.began_us) / 1e6
        about: Attributes = {"divebook.workflow": workflow, "divebook.status": status}
        span = ended.span
        if span is None:
            self._executions.record(seconds, about)
        elif span.kind == "step":
            self._steps.record(seconds, {**about, "divebook.step": span.step})
        elif span.kind == "operation":
            self._operations.record(seconds, {**about, "divebook.type": span.type})
            if span.type == AGENT_RESPONSE:
                self._take_chat(span, seconds)

    def _take_chat(self, span: Span, seconds: float) -> None:
        provider, model = model_of(span)
        about: dict[str, str] = {
            "gen_ai.operation.name": CHAT,
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
        }
        if span.agent:
            about["gen_ai.agent.name"] = span.agent
        self._chats.record(seconds, about if span.error_type is None else {**about, "error.type": span.error_type})
        for name, kind in _TOKENS.items():
            if name in span.usage:
                self._tokens.record(span.usage[name], {**about, "gen_ai.token.type": kind})
        cost = cost_of(span)
        if cost:
            self._cost.add(cost, about)
