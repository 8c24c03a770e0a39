"""What a step came to once: as its run has it, or as a try of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from divebook.engine.bounds import NANODOLLARS
from divebook.engine.operations import AGENT_TURN
from divebook.events import Event, catalog
from divebook.events.recorded import opened
from divebook.execution.execution import Execution
from divebook.history.aligned import as_text
from divebook.history.messages import messages_of
from divebook.history.read_log import ReadLog
from divebook.history.requests import requests_in
from divebook.history.span import Span
from divebook.replay.trial_entry import Entered

RECORDED_NUMBER = 0
"""The number of what is recorded; tries are counted from 1."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What a step came to once."""

    number: int
    """0 of what is recorded, 1 of the first try."""
    execution: str
    """Id of the execution that it was done in."""
    status: str
    asked: str
    """What a model was asked, as rendered; of other steps the arguments of what they call."""
    value: Any
    """What the step stores, or gives out; None where it has failed."""
    error: str | None
    model: str | None
    tokens: int | None
    """Read and written; None where no model was asked."""
    cost: float | None
    """US dollars; None where no price is known."""
    seconds: float | None

    @property
    def text(self) -> str:
        """What it came to as people read it: its value, else why there is none."""
        if self.error is not None:
            return self.error
        return "" if self.value is None else as_text(self.value)

    @property
    def title(self) -> str:
        """How people call it."""
        return "recorded" if self.number == RECORDED_NUMBER else f"try {self.number}"


def tried_in(log: Sequence[Event], entry: Entered, number: int, execution: Execution) -> Tried:
    """Return what a step came to in a log: in that of its run, or of a try, where it stands at the same place."""
    read = ReadLog.of(log)
    own, done = _spans_of_call(read, entry) if number == RECORDED_NUMBER and entry.call else _spans(read, entry)
    state = execution.state
    if done is None:  # it was stopped before it could begin, by a bound for instance
        return Tried(number, execution.id, state.status, "", None, state.error, None, None, None, None)
    status = done.status if done.ended_us is not None else state.status
    usage, took = done.usage or _consumed(own), done.duration_us
    return Tried(
        number,
        execution.id,
        status,
        _asked(own),
        None if status != catalog.COMPLETED else opened(_value(read, done), lenient=True),
        done.error or (_waits(execution) if status == catalog.WAITING else None),
        next((span.model for span in own if span.model), None),
        usage.get("input_tokens", 0) + usage.get("output_tokens", 0) if usage else None,
        usage["cost"] / NANODOLLARS if "cost" in usage else None,
        None if took is None else took / 1e6,
    )


def _spans(log: ReadLog, entry: Entered) -> tuple[list[Span], Span | None]:
    """Return all that happened in a visit to a step, or in an item of it, and the span of that itself."""
    own = [span for span in log.spans if (span.path, span.step, span.visit) == (entry.path, entry.step, entry.visit)]
    if entry.item is not None:
        own = [span for span in own if span.iteration == entry.item]
    kind = "step" if entry.item is None else "item"
    return own, next((span for span in reversed(own) if span.kind == kind), None)


def _spans_of_call(log: ReadLog, entry: Entered) -> tuple[list[Span], Span]:
    """Return all that happened in a call that a workflow function made, and its own span."""
    call = next(span for span in log.spans if span.kind == "operation" and span.sequences[0] == entry.began)
    return [span for span in log.spans if span is call or span.holder == call.index], call


def _consumed(own: Sequence[Span]) -> dict[str, int]:
    """Return what the calls of a turn have consumed together."""
    total = Counter[str]()
    for span in own:
        total.update(span.usage)
    return total


def _waits(execution: Execution) -> str | None:
    asked = [question.question for question in execution.interrupts[:1]]
    return f"waits for an answer: {asked[0]}" if asked else None


def _value(log: ReadLog, done: Span) -> Any:
    """Return what a step stored at its end, or an item was done with; else its text."""
    if done.kind == "item":
        result = done.result or {}
        return result.get("value", result.get("text"))
    if done.kind == "operation":
        return done.result["output"] if done.type == AGENT_TURN else messages_of(done)[-1].text
    completed = log[done.sequences[-1] - 1]
    before = log[completed.sequence - 2].data
    stored = getattr(completed.data, "stored_variable", None)
    if stored and isinstance(before, catalog.StateMutated):
        return next((change.value for change in before.mutations if change.key == stored), done.result)
    return done.result


def _asked(own: Sequence[Span]) -> str:
    """Return what models were asked in a step, or what it called with which arguments."""
    first = [request for request in requests_in(own) if request.n == 1]
    if first:
        texts = ["\n\n".join(said.text for said in request.added if said.role == "user") for request in first]
        return "\n\n".join(dict.fromkeys(filter(None, texts)))
    called = [span for span in own if span.kind == "operation" and span.holder == -1 and not span.is_pause]
    return "\n\n".join(dict.fromkeys(_told(span.parameters) for span in called if span.parameters))


def _told(parameters: Mapping[str, Any]) -> str:
    """Return what a call is made with; of a script its text."""
    return str(parameters["script"]) if parameters.keys() == {"script"} else as_text(parameters)
