"""The events that messages from outside (answers, signals) become: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from divebook.engine.approvals import rule_made
from divebook.engine.bounds import Fact
from divebook.engine.state import ExecutionState
from divebook.events import catalog
from divebook.questions import Question

ANSWER, SIGNAL, REVOCATION, ANNOTATION = "answer", "signal", "revocation", "annotation"
"""Kinds of message."""
EXPIRED = "expired"
"""Key of the payload that claims a question because it has expired. The first claim of a question wins."""


@dataclass(frozen=True, slots=True)
class Message:
    """Something sent to an execution from outside, waiting to be taken into its log."""

    execution_id: str
    kind: str
    """`ANSWER`, `SIGNAL`, `REVOCATION` or `ANNOTATION`."""
    key: str
    """Unique with execution and kind: the question's id, that of the rule that is revoked, or an id of its own."""
    payload: Any
    """Plain data, as an event may hold it; see `answer_payload` and `signal_payload`."""
    source: str
    """Who sent it, and what tells this message from all others; the payload has the name that people see."""
    posted_at: int
    """Microseconds since 1970."""
    number: int = 0
    """Given by the store: it grows from message to message and is never given again."""


def answer_payload(response: Mapping[str, Any], by: str) -> dict[str, Any]:
    """Return what a message holds that answers a question; its key is the question's id."""
    return {"response": response, "by": by}


def signal_payload(name: str, payload: Any, by: str | None = None) -> dict[str, Any]:
    """Return what a message holds that is a signal; its key is an id of its own.

    `by` is the name of the sender; by default the source of the message.
    """
    sent = {"name": name, "payload": payload}
    return sent if by is None else {**sent, "by": by}


def questions_of(state: ExecutionState, messages: Iterable[Message]) -> dict[str, Question]:
    """Return every question ever asked, by id, oldest first, as it stands once the log has taken these messages in.

    An answer that the store keeps counts, even while no process drives the execution and its log does not have it yet.
    """
    questions = {asked.id: asked for asked in sorted(state.interrupts.values(), key=lambda asked: asked.order)}
    for fact in facts_of(state, messages):
        if isinstance(fact.data, catalog.InterruptResolved) and questions[fact.data.interrupt_id].is_open:
            questions[fact.data.interrupt_id] = questions[fact.data.interrupt_id].resolved(fact.data)
        elif isinstance(fact.data, catalog.InterruptExpired) and questions[fact.data.interrupt_id].is_open:
            questions[fact.data.interrupt_id] = questions[fact.data.interrupt_id].expired()
    return questions


def facts_of(state: ExecutionState, messages: Iterable[Message]) -> list[Fact]:
    """Return the facts that messages, in their order, add to a log; those it has taken already add nothing."""
    return [fact for message in messages if message.number > state.taken for fact in _facts(state, message)]


def annotated(message: Message) -> catalog.ExecutionAnnotated:
    """Return what a message of kind `ANNOTATION` becomes."""
    return replace(catalog.ExecutionAnnotated(**message.payload), message=message.number)


def _facts(state: ExecutionState, message: Message) -> Iterable[Fact]:
    if message.kind == SIGNAL:
        name = message.payload["name"]
        payload = message.payload["payload"]
        # Older versions wrote the sender into the source alone, before the id that tells one message from another.
        sender = message.payload.get("by") or message.source.partition(" event_")[0]
        yield Fact(catalog.SignalReceived(name, payload, sender, message.number))
        return
    if message.kind == REVOCATION:
        yield Fact(catalog.ApprovalRuleRevoked(message.key, message.payload["by"], message.number))
        return
    if message.kind == ANNOTATION:
        yield Fact(annotated(message))
        return
    question = state.interrupts.get(message.key)
    if question is None or not question.is_open:
        return
    if message.payload.get(EXPIRED):
        yield Fact(catalog.InterruptExpired(message.key, message.number), question.path, question.step)
    else:
        response = message.payload["response"]
        by = message.payload["by"]
        resolved = catalog.InterruptResolved(message.key, response, by, message.number)
        yield Fact(resolved, question.path, question.step)
        rule = rule_made(state.execution_id, question, response, by, message.posted_at)
        if rule is not None:
            yield Fact(rule)
