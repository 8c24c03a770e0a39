"""Conversion of messages from outside (answers, signals, revocations of approval rules, annotations) to events. Pure
functions.

The store keeps messages in an inbox in the order of their arrival. The driver adds the facts of this module to the log.
`ExecutionState.taken` is the number of the last message in the log, so that no message is added twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from divebook.engine.approvals import rule_made
from divebook.engine.instructions import Fact
from divebook.engine.state import ExecutionState
from divebook.events import catalog
from divebook.questions import Question
from divebook.questions.question import CANCELLED as WITHDRAWN
from divebook.questions.question import is_overdue

# --- the way of a message --------------------------------------------------------------------------------------------
#
# Any process may put a message into the inbox of an execution, but only its driver appends to its log. Example:
#
#     inbox, in the order of arrival        log
#     4  answer  "ask_1", approved          21  interrupt_resolved(message=4)
#     5  signal  "paid"                     22  signal_received(message=5)
#
# After event 22 the state has `taken` 5. If the driver dies between the two events, the next one reads the messages
# above 4, so that each message is recorded once and none is lost.


ANSWER, SIGNAL, REVOCATION, ANNOTATION = "answer", "signal", "revocation", "annotation"
"""Kinds of message."""
EXPIRED = "expired"
"""Key in the payload of an answer that states that the question has expired. The first answer to a question counts."""


@dataclass(frozen=True, slots=True)
class Message:
    """Message from outside (answer, signal, revocation of a rule, annotation) to an execution. It is stored in the
    inbox of the execution until it is recorded in the log.
    """

    execution_id: str
    kind: str
    """`ANSWER`, `SIGNAL`, `REVOCATION` or `ANNOTATION`."""
    key: str
    """Id of the question, of the revoked rule, or of the message. Unique together with execution and kind."""
    payload: Any
    """Plain data, as an event may hold it; see `answer_payload` and `signal_payload`."""
    source: str
    """Sender and unique id of the message. The payload contains the name of the sender that people see."""
    posted_at: int
    """Microseconds since 1970."""
    number: int = 0
    """Number that the store assigns. It grows from message to message and is never reused."""


def answer_payload(response: Mapping[str, Any], by: str | None) -> dict[str, Any]:
    """Return the payload of a message that answers a question: the answer, and the name of the person who gave it, or
    None if a resumption with other bounds gave it. The id of the question is not in it, because it is the key of the
    message.
    """
    return {"response": response, "by": by}


def signal_payload(name: str, payload: Any, by: str | None = None) -> dict[str, Any]:
    """Return the payload of a message that carries a signal: the name of the signal, its data, and its sender. The id
    of the signal is not in it, because it is the key of the message.

    `by` is the name of the sender; by default the source of the message.
    """
    content = {"name": name, "payload": payload}
    return content if by is None else {**content, "by": by}


def child_ended(parent_id: str, child_id: str, status: str, sequence: int, posted_at: int) -> Message:
    """Return the signal that tells a parent execution that one of its child executions has ended with `status`, at
    event `sequence` of the child's log. `posted_at` is in microseconds since 1970.

    The key differs for each end of a child that is resumed in between.
    """
    payload = signal_payload(child_id, status)
    return Message(parent_id, SIGNAL, f"{child_id}/{sequence}", payload, child_id, posted_at)


def questions_of(state: ExecutionState, messages: Iterable[Message], now: int) -> dict[str, Question]:
    """Return all questions of an execution by id, oldest first. Answers in `messages` that the log does not have yet
    are applied to them, and questions that have expired by `now`, in microseconds since 1970, are shown as expired.

    Both count even if no process drives the execution, so that its log does not have them yet.
    """
    # `facts_of` returns only answers to questions that are open in the log, so settled questions keep their first
    # answer.
    in_order = sorted(state.interrupts.values(), key=lambda question: question.order)
    questions = {question.id: question for question in in_order}
    for fact in facts_of(state, messages):
        if isinstance(fact.data, catalog.InterruptResolved) and questions[fact.data.interrupt_id].is_open:
            questions[fact.data.interrupt_id] = questions[fact.data.interrupt_id].resolved(fact.data)
        elif isinstance(fact.data, catalog.InterruptExpired) and questions[fact.data.interrupt_id].is_open:
            questions[fact.data.interrupt_id] = questions[fact.data.interrupt_id].expired()
    for question in questions.values() if state.rolling_back is not None else ():
        if question.is_open and state.is_withdrawn(question):
            questions[question.id] = question._replace(status=WITHDRAWN)
    # After the answers, because one of them may have been given in time.
    for question in questions.values():
        if question.is_open and is_overdue(question.expires_us, now):
            questions[question.id] = question.expired()
    return questions


def facts_of(state: ExecutionState, messages: Iterable[Message]) -> list[Fact]:
    """Return the events that the messages of an inbox add to the log of an execution, in the order of the messages.
    Messages that the log has already add nothing.
    """
    return [fact for message in messages if message.number > state.taken for fact in _facts(state, message)]


def annotated(message: Message) -> catalog.ExecutionAnnotated:
    """Return the event that a message of kind `ANNOTATION` adds to the log."""
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
    # An answer counts only if its question is still open. It may also create a standing approval rule.
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
