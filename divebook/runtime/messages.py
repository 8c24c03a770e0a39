"""Messages to executions (answers, signals, revocations of rules, annotations). Each is stored in the inbox of its
execution before it takes effect.

An accepted answer therefore survives the death of the process at any later moment. The next process that resumes the
execution finds it (`tests/runtime/test_kept_answers.py`).
"""

from __future__ import annotations

import getpass
import socket
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import takewhile
from typing import Any, Protocol

from divebook.definitions.json_schemas import FITTING
from divebook.engine.approvals import RUN, StandingRule, rules_of_run
from divebook.engine.bounds import answers_by_bounds
from divebook.engine.inbox import (
    ANNOTATION,
    ANSWER,
    EXPIRED,
    REVOCATION,
    SIGNAL,
    Message,
    annotated,
    answer_payload,
    signal_payload,
)
from divebook.engine.lifecycle import FINAL, WAY_ON
from divebook.engine.state import ExecutionState
from divebook.errors import (
    AnswerKeptError,
    DefinitionError,
    ExecutionEndedError,
    ExecutionError,
    InterruptError,
    LeaseHeldError,
    NotFoundError,
    SetupError,
    StoreError,
)
from divebook.events import catalog
from divebook.events.catalog import ExecutionAnnotated
from divebook.events.codec import checked, storable
from divebook.events.event import Event, Record, to_microseconds
from divebook.questions import Question, checked_answer
from divebook.questions.bounds import Bounds
from divebook.questions.question import CANCELLED as WITHDRAWN
from divebook.questions.question import (
    EXPIRED_ALREADY,
    PENDING,
    RESOLVED,
    address_of,
    already_answered,
    for_others,
    sort_of,
)
from divebook.runtime.clock import Chance, Clock, Ids
from divebook.runtime.driver import Driver, ExecutionRegistry
from divebook.runtime.leases import DRIVEN_LEASES, give_up
from divebook.runtime.loop import ENGINE
from divebook.stores.append import Batch, ExecutionRecord
from divebook.stores.base import EventStore
from divebook.stores.leases import Lease, Owner
from divebook.text.arguments import describe, list_of, require


class Continuation(Protocol):
    """Protocol of the object that continues executions which no process drives, if they have something to do."""

    def continues_here(self, driver: Driver, /) -> bool:
        """Return whether this process would drive an execution after a message to it."""

    def continue_parked(self, driver: Driver, /, *, lease: Lease | None = None) -> Driver:
        """Resume an execution, and return its driver. The `lease` was acquired with a message to the execution."""


class Answering:
    """Delivery of answers, signals and revocations of approval rules to the executions of one store. Each is stored as
    a message before it takes effect.

    Parameters
    ----------
    continuation
        Continues a parked execution if it has something to do.
    """

    def __init__(self, registry: ExecutionRegistry, continuation: Continuation, clock: Clock, chance: Chance) -> None:
        self._registry = registry
        self._store = registry.store
        self._continuation = continuation
        self._clock = clock
        self._chance = chance

    # --- questions ---------------------------------------------------------------------------------------------------

    def answer_question(
        self, interrupt_id: str, response: Any, execution_id: str | None = None, by: str | None = None
    ) -> Driver:
        """Answer a question and continue its execution; see `Environment.answer`."""
        local_question = self._local_question(interrupt_id, execution_id)
        driver, question = local_question or self._find_question(interrupt_id, execution_id)
        try:
            return self._answer(driver, question, response, by)
        except InterruptError:
            if local_question is None:
                raise
            # The store has an earlier answer or another state: the error must be about that.
            return self._answer(*self._find_question(interrupt_id, execution_id), response, by)

    def _local_question(self, interrupt_id: str, execution_id: str | None) -> tuple[Driver, Question] | None:
        """Return an open question of an execution that this process drove last, without reading its log and its inbox.
        Return None if there is none, or if another process has changed the execution since.
        """
        ENGINE.refuse_waiting(self._store)
        driver = None if execution_id is None else self._registry.present(execution_id)
        if driver is None or not driver.was_parked or driver.is_driving or driver.state.is_over:
            return None
        state = driver.state
        question = state.interrupts.get(interrupt_id)
        if question is None or not question.is_open:
            return None
        # A log only grows, so that one of the same length has settled no other question. Status and number of messages
        # do not show that: a resumption with other bounds may leave both as they were. Another answer that no process
        # has read yet shows when this one is stored.
        is_newest = driver.can_record and self._store.record(state.execution_id).last_sequence == state.last_sequence
        return (driver, question) if is_newest else None

    def _answer(self, driver: Driver, question: Question, response: Any, by: str | None) -> Driver:
        """Answer a question of an execution, and continue the execution. Return its driver.

        Raises
        ------
        InterruptError
            The question takes no answer, or not this one.
        """
        description = f"the answer to {address_of(driver.id, question)}"
        state = driver.state
        if state.is_over and question.is_open:
            way_on = "start a new execution" if state.is_rolled_back else "resume it, and answer then"
            way_on = WAY_ON[driver.status] if driver.status in FINAL else way_on
            raise InterruptError(question.id, f"execution {driver.id} is {driver.status}; {way_on}")
        if question.status == WITHDRAWN:
            raise InterruptError(question.id, f"it was withdrawn, because execution {driver.id} is being rolled back")
        # The question has an answer in the inbox that the log lacks. The same answer given again continues the
        # execution instead of being refused as too late.
        is_unused = question.status == RESOLVED and state.interrupts[question.id].is_open
        if is_unused and self._repeats(question, response) and self._continue_after(description, driver).was_driven:
            return driver  # the process that stored this answer died before it continued
        # The answer is checked before it is stored. A stored message must be recorded, so an invalid one would block
        # every process that resumes the execution.
        fitting = checked_answer(question, response, FITTING, self._clock.now())
        author = by or this_person()
        checked(catalog.InterruptResolved(question.id, fitting, author))
        message = self._message(driver.id, ANSWER, question.id, answer_payload(fitting, author), author)
        return self._send(driver, message, description)

    def answer_alike(self, interrupt_id: str, response: Any, by: str | None = None) -> list[Driver]:
        """Give the same answer to a question and to all open questions that one answer may settle together with it
        (`sort_of`). Return the drivers of their executions. See `Environment.answer_alike`.
        """
        driver, question = self._find_question(interrupt_id, None)
        sort = sort_of(driver.state.workflow_name, question)
        if sort is None:
            raise InterruptError(question.id, "each question of this kind needs a separate answer")
        other_questions = [key for key in self._similar(sort) if key != (driver.id, question.id)]
        fitting = checked_answer(question, response, FITTING, self._clock.now())
        # The named question comes first: if its answer fails, no other question is answered.
        answered = {driver.id: self.answer_question(question.id, response, driver.id, by)}
        for execution_id, name in other_questions:
            with suppress(InterruptError):  # answered or withdrawn meanwhile
                answered[execution_id] = self.answer_question(name, for_others(question, fitting), execution_id, by)
        return list(answered.values())

    def _similar(self, sort: Hashable) -> list[tuple[str, str]]:
        """Return all open questions whose key from `sort_of` is `sort`, so that one answer may settle them together.
        They are pairs of execution id and question id.
        """
        return [
            (execution_id, question.id)
            for execution_id, question in self.questions()
            if sort_of(self._registry.find(execution_id).state.workflow_name, question) == sort
        ]

    def _repeats(self, question: Question, response: Any) -> bool:
        """Return whether a new answer to a question equals the answer that the question already has."""
        # Checked as if the question were open, because the check also converts an answer to the form in which it is
        # stored.
        unanswered = question._replace(status=PENDING, expires_us=None)
        try:
            return bool(checked_answer(unanswered, response, FITTING, self._clock.now()) == question.response)
        except InterruptError:
            return False

    def _send(self, driver: Driver, message: Message, description: str) -> Driver:
        """Store a message for an execution, and continue the execution. Return its driver. `description` names the
        message in errors.

        Raises
        ------
        InterruptError
            The question has another answer already.
        AnswerKeptError, ExecutionError
            As in `_continue_after`.
        """
        # The new id in the source tells this message from an equal one that another process has stored with the same
        # key.
        message = replace(message, source=f"{message.source} {Ids(self._clock, self._chance).event(0)}")
        is_here = self._continuation.continues_here(driver)
        # Marked before the lease is acquired, as in `DrivenLeases.taking`.
        with DRIVEN_LEASES.about_to_drive(self._store, driver.id) if is_here else nullcontext():
            lease: Lease | None = None
            try:
                if is_here:
                    stored, lease = self._store.post_and_acquire(message, Owner.current(), driver.state.taken)
                else:
                    stored = self._store.post(message)
            except ExecutionEndedError as error:
                raise _ended_meanwhile(driver.id, error.status, description) from error
            if stored.kind == ANSWER and stored.source != message.source:
                raise _too_late(stored)
            return self._continue_after(description, driver, stored, lease)

    def _continue_after(
        self, description: str, driver: Driver, message: Message | None = None, lease: Lease | None = None
    ) -> Driver:
        """Resume an execution after a message for it was stored, and return its driver. `description` names the message
        in errors. The `lease` was acquired with the message.

        Every error says that the message was stored, because a sender that repeats a signal would double it.

        Raises
        ------
        AnswerKeptError
            The execution cannot continue in this process.
        ExecutionError
            The execution ended before it read the message.
        """
        try:
            self._continuation.continue_parked(driver, lease=lease)
            if message is None or driver.state.taken < message.number:
                driver.refresh()
        except (DefinitionError, NotFoundError, SetupError, StoreError) as error:
            raise AnswerKeptError(driver.id, description, error) from error
        # The execution ended between the store of the message and its next look at the inbox.
        if message is not None and driver.state.is_over and driver.state.taken < message.number:
            raise _ended_meanwhile(driver.id, driver.status, description)
        return driver

    def claim_expired(self, execution_id: str, interrupt_id: str) -> None:
        """Mark a question as expired in the store, so that it can no longer be answered. An answer that was stored
        first counts. Do nothing if another process has ended the execution, since its questions cannot be answered.
        """
        # The mark has the same key as an answer, and the store keeps the first message of a key only.
        payload = {EXPIRED: True}
        with suppress(ExecutionEndedError):
            self._store.post(self._message(execution_id, ANSWER, interrupt_id, payload, "clock"))

    def answer_by_bounds(self, state: ExecutionState, bounds: Bounds) -> bool:
        """Answer the open questions of an execution about bounds that differ in `bounds`, with which it is about to be
        resumed. An answer that was stored first counts. Return whether there are such questions.
        """
        # Messages, as the answers of people: the store keeps the first one, also if a person answers at this moment
        # (test_an_answer_that_nobody_has_read_counts_more_than_a_resumption_with_other_bounds). If the process dies
        # before it resumes the execution, the question is asked again.
        answers = dict(answers_by_bounds(state, bounds))
        for interrupt_id, response in answers.items():
            payload = answer_payload(response, None)
            self._store.post(self._message(state.execution_id, ANSWER, interrupt_id, payload, "resumption"))
        return bool(answers)

    def signal(self, execution_id: str, name: str, payload: Any = None, by: str | None = None) -> Driver:
        """Send a signal to an execution; see `Run.signal`."""
        if not name:
            raise SetupError("a signal needs a name")
        driver = self._registry.find(execution_id)
        if driver.state.is_over:
            way_on = WAY_ON[driver.status]
            raise ExecutionError(f"execution {driver.id} is {driver.status}, so it cannot receive signals; {way_on}")
        # A random key: signals of the same name are all kept.
        key = Ids(self._clock, self._chance).event(self._clock.now())
        data = storable(payload, "payload")
        author = by or this_person()
        # A message that cannot be recorded would block every process that resumes the execution.
        checked(catalog.SignalReceived(name, data, author))
        message = self._message(driver.id, SIGNAL, key, signal_payload(name, data, author), author)
        return self._send(driver, message, f"the signal {name!r}")

    def revoke(self, execution_id: str, rule_id: str, by: str | None = None) -> Driver:
        """Revoke an approval rule that a person made in an execution and that applies to this execution only."""
        driver = self._registry.find(execution_id)
        author = by or this_person()
        if driver.state.is_over:
            raise ExecutionError(f"execution {driver.id} is {driver.status}: its rule {rule_id} is no longer in effect")
        message = self._message(driver.id, REVOCATION, rule_id, {"by": author}, author)
        return self._send(driver, message, f"the revocation of {rule_id}")

    def rules(self) -> list[tuple[str, StandingRule]]:
        """Return the approval rules that people made for single executions which have not ended, as pairs of execution
        id and rule.
        """
        states = self._registry.sound_states(record.execution_id for record in self._store.unended())
        return [
            (state.execution_id, rule)
            for state in states
            for rule in rules_of_run(state.execution_id, state.rules.values())
            if rule.scope == RUN
        ]

    def _message(self, execution_id: str, kind: str, key: str, payload: Any, source: str) -> Message:
        return Message(execution_id, kind, key, payload, source, self._clock.now())

    def question(self, interrupt_id: str, execution_id: str | None = None) -> Question:
        """Return a question with its status, of an execution that has not ended; raises `NotFoundError`."""
        return self._find_question(interrupt_id, execution_id)[1]

    def questions(self) -> list[tuple[str, Question]]:
        """Return all open questions with the ids of their executions, newest execution first."""
        execution_ids = dict.fromkeys(execution_id for execution_id, _ in self._store.asking())
        return list(self._registry.open_questions(execution_ids))

    def _find_question(self, name: str, execution_id: str | None) -> tuple[Driver, Question]:
        """Return the driver of an execution and a question of it. The question is named by ``question@execution``, or
        by a question id that only one execution uses.

        If no execution is named, executions with an open question of this id come first, then the execution that was
        answered last.
        """
        present: object = name  # the type hint does not bind callers
        if not isinstance(present, str):
            raise SetupError(f"a question must be an id such as 'ask_1@exec_2', not {describe(present)}")
        # "ask_1@exec_2" -> ("ask_1", "exec_2"). A question id is not unique in a store: all copies of a log share it.
        interrupt_id, _, name_of_execution = name.partition("@")
        execution_name = execution_id or name_of_execution
        drivers = self._drivers_asking(interrupt_id) if not execution_name else [self._registry.find(execution_name)]
        if execution_id and name_of_execution and self._registry.find(name_of_execution).id != drivers[0].id:
            raise InterruptError(
                interrupt_id,
                (
                    f"the question belongs to execution {name_of_execution}, but the answer was sent to execution "
                    f"{execution_id}"
                ),
            )
        if len(drivers) > 1:
            ways = " or ".join(f"{interrupt_id}@{driver.id}" for driver in drivers[:5])
            raise InterruptError(
                interrupt_id, f"{len(drivers)} executions ask this question; choose one of them: {ways}"
            )
        question = drivers[0].questions.get(interrupt_id) if drivers else None
        if question is None and drivers:  # another process may have asked it since the log was read
            question = drivers[0].refresh().questions.get(interrupt_id)
        if question is None and drivers and drivers[0].damage is not None:
            raise drivers[0].damage  # the question is in the unreadable part
        if question is None:
            if drivers:
                known_ids = [open_question.id for driver in drivers for open_question in driver.interrupts]
            else:
                known_ids = [question_id for _, question_id in self._store.asking()]
            raise NotFoundError("question", name, known_ids)
        return drivers[0], question

    def _drivers_asking(self, interrupt_id: str) -> list[Driver]:
        """Return the drivers of all executions that have an open question with this id. If there are none, return the
        driver of the execution to which the last answer to this question was sent.
        """
        # Without an open question, the last answered one lets `answer` report who was first instead of "not found".
        if asking := self._store.asking(interrupt_id):
            return [self._registry.find(execution_id) for execution_id, _ in asking]
        answered = self._store.last_addressee(ANSWER, interrupt_id)
        return [] if answered is None else [self._registry.find(answered)]


def this_person() -> str:
    """Return the default author of answers and annotations from this process: ``user@host``."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def _ended_meanwhile(execution_id: str, status: str, description: str) -> ExecutionError:
    end = status if status in {catalog.COMPLETED, catalog.FAILED} else f"was {status}"
    return ExecutionError(f"execution {execution_id} {end} before {description} arrived")


def _too_late(earlier: Message) -> InterruptError:
    """Return the error for an answer to a question that has an `earlier` answer."""
    payload: Mapping[str, Any] = earlier.payload
    if payload.get(EXPIRED):
        return InterruptError(earlier.key, EXPIRED_ALREADY)
    return InterruptError(earlier.key, already_answered(payload.get("by"), payload.get("response")))


# --- annotations -----------------------------------------------------------------------------------------------------
#
# Tags, notes and labels of executions. Each is an event in the log, even after the end of the execution.
#
# An annotation does not wake the execution. It is appended under a short lease. If another process drives the
# execution, the annotation is sent as a message, which the driver records.


PATIENCE = 10.0
"""Seconds to wait for the lease of an execution that has ended."""
TICK = 0.01
"""Seconds between two attempts to take the lease."""
_ONE_AT_A_TIME = threading.Lock()


def annotation(
    *,
    tags: Iterable[str] = (),
    untagged: Iterable[str] = (),
    note: str | None = None,
    labels: Mapping[str, Any] | None = None,
    by: str | None = None,
) -> ExecutionAnnotated:
    """Create an annotation event from tags, a note and labels, and check that it can be recorded.

    Raises
    ------
    SetupError
        A tag, the note or the name of a label is not a string, or the annotation is empty.
    UnstorableValueError
        The value of a label cannot be recorded.
    """
    if note is not None and not isinstance(note, str):
        raise SetupError(f"a note must be a string, not {describe(note)}")
    require(labels, "labels", "a mapping such as {'quality': 'good'}", fits=isinstance(labels, Mapping))
    added = [_tag(tag) for tag in list_of(tags, "tags", "tags=['baseline']")]
    removed = [_tag(tag) for tag in list_of(untagged, "untag", "untag=['baseline']")]
    storable_labels = {
        name: storable(value, f"label {name}") for name, value in (labels or {}).items() if _is_name(name)
    }
    if not (added or removed or storable_labels) and note is None:
        raise SetupError("nothing to record: give a tag, a note or a label, such as label(quality='good')")
    return checked(ExecutionAnnotated(added or None, removed or None, note, storable_labels or None, by))


class Annotating:
    """Writer of annotations (tags, notes, labels) to the logs of one store.

    Parameters
    ----------
    deliver
        Deliver the messages of an execution that this process drives.
    """

    def __init__(self, store: EventStore, clock: Clock, ids: Ids, deliver: Callable[[str], object]) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._deliver = deliver

    def annotate(self, execution_id: str, event: ExecutionAnnotated) -> None:
        """Append an annotation to the log of an execution, or send it as a message to the process that drives the
        execution.

        Raises
        ------
        ExecutionNotFoundError
            The execution does not exist.
        LeaseHeldError
            The execution has ended but its lease is held. Nothing was written.
        """
        # First directly, under a short lease. If a driver holds the lease, it records the message. If the execution
        # ends in between, the message is appended here.
        held_error = self._append(execution_id, event)
        if held_error is None:
            return
        message: Message | None = None
        if self._store.record(execution_id).ended_at is None:
            with suppress(ExecutionEndedError):  # it has ended since, and gets no more messages
                message = self._store.post(self._message(execution_id, event))
        if message is None:
            self._append_soon(execution_id, event)
            return
        self._deliver(execution_id)
        record = self._store.record(execution_id)
        if record.ended_at is not None and record.taken < message.number:
            self._append_soon(execution_id, None)  # it ended meanwhile and reads no more messages

    def _append_soon(self, execution_id: str, event: ExecutionAnnotated | None) -> None:
        """Append an annotation (or only unread annotation messages) to the log of an execution as soon as its lease is
        free. Raise `LeaseHeldError` after `PATIENCE` seconds.
        """
        until = time.monotonic() + PATIENCE
        while (held_error := self._append(execution_id, event)) is not None:
            if time.monotonic() > until:
                raise held_error
            time.sleep(TICK)  # another process annotates it, or checks whether it must continue

    def _append(self, execution_id: str, event: ExecutionAnnotated | None) -> LeaseHeldError | None:
        """Append an annotation to the log of an execution, after unread annotation messages. The lease is held only for
        this. Return None, or the error if another process holds the lease.

        Unread messages come first: otherwise a later resumption would record them after newer annotations and undo
        those (test_what_is_kept_for_a_driver_comes_before_what_is_said_later).
        """
        with _ONE_AT_A_TIME:  # leases belong to processes, not to threads
            try:
                with DRIVEN_LEASES.taking(self._store, execution_id) as lease:
                    self._write(self._store.record(execution_id), event, lease)
                    give_up(self._store, lease)
            except LeaseHeldError as error:
                return error
        return None

    def _write(self, record: ExecutionRecord, annotation: ExecutionAnnotated | None, lease: Lease) -> None:
        """Append unread annotation messages and a new annotation in one batch, under a lease.

        Only messages before the first one of another kind are included, because messages must be recorded in order.
        """
        messages = list(takewhile(_is_annotation, self._store.inbox(record.execution_id, record.taken)))
        facts = [annotated(message) for message in messages]
        if annotation is not None:
            facts.append(annotation)
        now = self._clock.now()
        first = record.last_sequence + 1
        events = [
            Event(self._ids.event(now), record.execution_id, number, now, fact)
            for number, fact in enumerate(facts, first)
        ]
        if not events:
            return
        batch = Batch(
            record.execution_id,
            record.last_sequence,
            [Record.of(event) for event in events],
            lease.token,
            # A batch replaces the wake time of the execution, so the present one is passed on.
            wake_at=None if record.wake_at is None else to_microseconds(record.wake_at),
            taken=messages[-1].number if messages else record.taken,
        )
        (refusal,) = self._store.append_all([batch])
        if refusal is not None:
            raise refusal

    def _message(self, execution_id: str, event: ExecutionAnnotated) -> Message:
        now = self._clock.now()
        return Message(execution_id, ANNOTATION, self._ids.event(now), event.to_data(), event.by or "", now)


def _tag(tag: object) -> str:
    if not isinstance(tag, str) or not tag.strip():
        raise SetupError(f"a tag must be a word such as 'baseline', not {describe(tag)}")
    return tag.strip()


def _is_name(name: object) -> bool:
    if not isinstance(name, str) or not name.strip():
        raise SetupError(f"a label needs a name, not {name!r}; write it as label(quality='good')")
    return True


def _is_annotation(message: Message) -> bool:
    return message.kind == ANNOTATION
