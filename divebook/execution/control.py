"""The executions over one store: started, found, resumed, answered, signalled, cancelled."""

from __future__ import annotations

import getpass
import logging
import socket
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

from divebook.bounds import Bounds
from divebook.engine.ahead import steps_ahead
from divebook.engine.checkpoint import load_state
from divebook.engine.evolve import fold
from divebook.engine.inbox import ANSWER, EXPIRED, SIGNAL, answer_payload, facts_of, signal_payload
from divebook.engine.instructions import Fact
from divebook.engine.state import ExecutionState
from divebook.errors import (
    CorruptStoreError,
    DefinitionError,
    DivebookError,
    ExecutionError,
    ExecutionNotFoundError,
    InterruptError,
    KeptError,
    LeaseHeldError,
    NewerStoreError,
    NotFoundError,
    SetupError,
)
from divebook.events import catalog
from divebook.events.codec import storable
from divebook.execution.children import running_children
from divebook.execution.clock import Chance, Clock, Ids
from divebook.execution.definitions import recorded_workflow, workflow_in
from divebook.execution.engine_thread import ENGINE
from divebook.execution.execution import CANCELLED, Execution
from divebook.execution.schemas import FITTING
from divebook.execution.step_run import Services
from divebook.execution.streaming import TextStreams
from divebook.questions import Question, checked_answer
from divebook.questions.kinds import PENDING
from divebook.questions.wording import EXPIRED_ALREADY, address_of, already_answered
from divebook.store import EventStore, ExecutionRecord, Lease, Owner
from divebook.store.durability import Durability
from divebook.store.messages import Message
from divebook.workflow.definition import Workflow

SEED_BITS = 64

_log = logging.getLogger(__name__)

Opening: TypeAlias = Callable[[], tuple[Workflow, catalog.ExecutionStarted, Durability | None]]
"""Returns what an execution begins with."""


class Control:
    """What can be done with the executions over one store.

    Parameters
    ----------
    services
        What their runners need.
    check
        Raises unless all that these steps of a workflow name is there.
    """

    def __init__(
        self,
        store: EventStore,
        services: Callable[[Control], Services],
        check: Callable[[Workflow, Container[str]], None],
        clock: Clock,
        chance: Chance,
    ) -> None:
        self.store, self.clock, self.chance = store, clock, chance
        self._check = check
        self._live: dict[str, Execution] = {}
        self.texts = TextStreams()
        """What models write in these executions."""
        self._services = services(self)

    # --- starting and finding --------------------------------------------------------------------------------------

    def create(
        self,
        workflow: Workflow,
        opening: catalog.ExecutionStarted,
        durability: Durability | None = None,
        execution_id: str | None = None,
    ) -> Execution:
        """Return a pending execution, of which nothing is recorded before it is started."""
        execution_id = execution_id or Ids(self.clock, self.chance).execution()
        execution = Execution(workflow, ExecutionState(execution_id), self.store, self)
        execution.opening = replace(opening, seed=opening.seed or f"{self.chance.bits(SEED_BITS):0{SEED_BITS // 4}x}")
        execution.durability = durability
        self._live[execution_id] = execution
        return execution

    def begin(self, execution: Execution, *openings: Fact, lease: Lease | None = None) -> Execution:
        """Drive an execution from now on, beginning with the facts `openings`."""
        self._live[execution.id] = execution
        return execution.drive(openings, self._services, self.clock, self.chance, lease)

    def find(self, execution_id: str) -> Execution:
        """Return an execution, live or past; the beginning of an id is enough where it is unique."""
        live = self._live.get(execution_id)
        if live is None:
            execution_id = self.store.resolve(execution_id)
            live = self._live.get(execution_id)
        return self._looked_up(execution_id) if live is None else live.refresh()

    def load(self, execution_id: str) -> Execution:
        """Return an execution as the store has it."""
        workflow = recorded_workflow(execution_id, self.store)
        execution = Execution(workflow, folded(self.store, execution_id), self.store, self)
        execution.durability = self.store.record(execution_id).durability
        return execution

    def _looked_up(self, execution_id: str) -> Execution:
        """Return a past execution; of a damaged one what the sound beginning of its log says."""
        try:
            return self.load(execution_id)
        except (CorruptStoreError, NewerStoreError):
            events, damage = self.store.read_sound(execution_id)
            if not events or damage is None:
                raise
            workflow = workflow_in(execution_id, events)
            execution = Execution(workflow, fold(execution_id, events), self.store, self)
            execution.damage = damage
            return execution

    def live(self) -> list[Execution]:
        """Return the executions that this process drives now."""
        return [execution for execution in self._live.values() if execution.is_live]

    # --- resuming --------------------------------------------------------------------------------------------------

    def resume(self, execution_id: str, bounds: Bounds | None = None) -> Execution:
        """Take an execution up again where its log ends; see `Environment.resume`."""
        execution = self.find(execution_id)
        if execution.is_live:
            raise ExecutionError(
                f"execution {execution.id} is running in this process already; wait for it or cancel it"
            )
        if execution.refresh().status == catalog.COMPLETED:
            raise ExecutionError(f"execution {execution.id} has completed; start a new one to run the workflow again")
        self._check(execution.workflow, steps_ahead(execution.workflow, execution.state))
        lease = self.store.acquire(execution.id, Owner.current())
        given = None if bounds is None else bounds.to_dict()
        resumed = Fact(catalog.ExecutionResumed(execution.refresh().status, given))
        return self.begin(execution, resumed, lease=lease)

    def go_on(self, execution: Execution) -> Execution:
        """Let an execution that rests take what waits in its inbox; whoever drives it now may be another process."""
        if execution.is_live and self._delivered(execution):
            return execution
        if execution.is_live:  # it comes to rest at this moment, and looks into its inbox once more then
            return execution
        with suppress(LeaseHeldError):
            self._check(execution.workflow, steps_ahead(execution.workflow, execution.state))
            lease = self.store.acquire(execution.id, Owner.current())
            resumed = Fact(catalog.ExecutionResumed(execution.refresh().status))
            return self.begin(execution, resumed, lease=lease)
        return execution

    def _delivered(self, execution: Execution) -> bool:
        async def deliver() -> bool:
            if not ENGINE.mailroom(self.store).deliver(execution.id):
                return False
            await execution.durable()
            return True

        return ENGINE.submit(deliver()).result()

    # --- executions that others start --------------------------------------------------------------------------------

    async def drive_child(self, child: str, opening: Opening, *, again: bool) -> ExecutionState:
        """Begin an execution that another one asks for, or take it up; return its state once it has ended, or rests.

        With `again` one that failed or was cancelled is taken up as well. Call it on the engine's loop.
        """
        try:
            execution = self.find(child)
        except ExecutionNotFoundError:
            workflow, started, durability = opening()
            execution = self.create(workflow, started, durability, child).start()
        if not execution.is_live and self._can_go_on(execution, again=again):
            self.go_on(execution)
        if execution.is_live:
            await execution
        return execution.refresh().state

    def _can_go_on(self, execution: Execution, *, again: bool) -> bool:
        state = execution.state
        if state.is_over:
            return again and state.lifecycle != catalog.COMPLETED
        return state.status != catalog.WAITING or bool(facts_of(state, self.store.inbox(execution.id, state.taken)))

    def ended(self, execution: Execution) -> None:
        """Tell whoever started an execution that it has ended, and cancel what it started itself; on the loop."""
        for child in running_children(execution.state):
            with suppress(DivebookError):  # it ends at this moment, or never began
                self.cancel(child, f"its parent {execution.id} is {execution.status}")
        if execution.state.parent is not None:
            self._tell(execution.state.parent, execution)

    def _tell(self, parent_id: str, child: Execution) -> None:
        try:
            parent = self.find(parent_id)
            if parent.state.is_over:
                return
            key = f"{child.id}/{child.state.last_sequence}"
            payload = signal_payload(child.id, child.status)
            self.store.post(self._message(parent_id, SIGNAL, key, payload, child.id))
            if not ENGINE.mailroom(self.store).deliver(parent_id) and not parent.is_live:
                self.go_on(parent)
        except DivebookError as error:  # without what it needs in this process it is taken up in another one
            _log.warning("execution %s waits for %s, which has ended, and cannot go on: %s", parent_id, child.id, error)

    # --- questions -------------------------------------------------------------------------------------------------

    def answer(
        self, interrupt_id: str, response: Any, execution_id: str | None = None, by: str | None = None
    ) -> Execution:
        """Answer a question; see `Environment.answer`."""
        execution, question = self._asked(interrupt_id, execution_id)
        address, state = address_of(execution.id, question), execution.state
        if state.is_over and question.is_open:
            raise InterruptError(
                question.id, f"execution {execution.id} is {execution.status}; resume it, and answer then"
            )
        if not question.is_open and state.interrupts[question.id].is_open and self._repeats(question, response):
            return self._go_on_with(f"the answer to {address}", execution)  # whoever kept it died before it went on
        checked = checked_answer(question, response, FITTING, self.clock.now())
        author = by or this_person()
        kept = self._post(execution.id, ANSWER, question.id, answer_payload(checked, author), author)
        if kept is not None:
            raise _too_late(question, kept)
        return self._go_on_with(f"the answer to {address}", execution)

    def _repeats(self, question: Question, response: Any) -> bool:
        """Whether a response is the answer that a question has already."""
        unanswered = question._replace(status=PENDING, expires_us=None)
        try:
            return bool(checked_answer(unanswered, response, FITTING, self.clock.now()) == question.response)
        except InterruptError:
            return False

    def _go_on_with(self, what: str, execution: Execution) -> Execution:
        """Let an execution go on with what was sent to it and is kept."""
        try:
            return self.go_on(execution)
        except (DefinitionError, NotFoundError, SetupError) as error:
            raise KeptError(execution.id, what, error) from error

    def claim_expired(self, execution_id: str, interrupt_id: str) -> None:
        """Claim a question whose time is up for nobody; the first claim of a question counts."""
        payload = {EXPIRED: True}
        self.store.post(self._message(execution_id, ANSWER, interrupt_id, payload, "clock"))

    def signal(self, execution_id: str, name: str, payload: Any = None, by: str | None = None) -> Execution:
        """Send a signal; see `Environment.signal`."""
        if not name:
            raise SetupError("a signal needs a name")
        execution = self.find(execution_id)
        if execution.state.is_over:
            raise ExecutionError(f"execution {execution.id} is {execution.status}; nobody takes signals any more")
        key = Ids(self.clock, self.chance).event(self.clock.now())
        self._post(execution.id, SIGNAL, key, signal_payload(name, storable(payload, "payload")), by or this_person())
        return self._go_on_with(f"the signal {name!r}", execution)

    def _post(self, execution_id: str, kind: str, key: str, payload: Any, by: str) -> Message | None:
        """Send a message; return the earlier one that stands in its way, if there is one."""
        sent = self._message(execution_id, kind, key, payload, f"{by} {Ids(self.clock, self.chance).event(0)}")
        kept = self.store.post(sent)
        return None if kept.source == sent.source else kept

    def _message(self, execution_id: str, kind: str, key: str, payload: Any, source: str) -> Message:
        return Message(execution_id, kind, key, payload, source, self.clock.now())

    def question(self, interrupt_id: str, execution_id: str | None = None) -> Question:
        """Return a question; see `Environment.question`."""
        return self._asked(interrupt_id, execution_id)[1]

    def questions(self) -> list[tuple[str, Question]]:
        """Return every question that waits for an answer, with the id of its execution, newest execution first."""
        return [(found.id, question) for found in self._unfinished() for question in found.interrupts]

    def _unfinished(self) -> Iterable[Execution]:
        return (self.find(record.execution_id) for record in self.store.unended())

    def _asked(self, name: str, execution_id: str | None) -> tuple[Execution, Question]:
        """Return a question and who asks it: by ``ask@execution``, or by its id where no other asks under that id."""
        interrupt_id, _, named = name.partition("@")
        where = execution_id or named
        asking = self._asking(interrupt_id) if not where else [self.find(where)]
        if len(asking) > 1:
            ways = " or ".join(f"{interrupt_id}@{execution.id}" for execution in asking[:5])
            raise InterruptError(interrupt_id, f"{len(asking)} executions ask it; say which: {ways}")
        found = asking[0].questions.get(interrupt_id) if asking else None
        if found is None:
            candidates = asking or self._unfinished()
            raise NotFoundError(
                "question", name, [asked.id for execution in candidates for asked in execution.interrupts]
            )
        return asking[0], found

    def _asking(self, interrupt_id: str) -> list[Execution]:
        """Return the executions that ask a question; where all have ended, the last one that was answered."""
        unfinished = [execution for execution in self._unfinished() if interrupt_id in execution.state.interrupts]
        return unfinished or [self.find(found) for found in self.store.addressees(ANSWER, interrupt_id)[-1:]]

    # --- ending ----------------------------------------------------------------------------------------------------

    def cancel(self, execution_id: str, reason: str = CANCELLED) -> Execution:
        """Cancel an execution; see `Environment.cancel`."""
        execution = self.find(execution_id)
        if execution.is_live:
            execution.stop(reason)
            return execution
        if execution.state.is_over:
            raise ExecutionError(f"execution {execution.id} is {execution.status} already; there is nothing to cancel")
        lease = self._take_over(execution.id)
        return execution.refresh().drive_cancellation(reason, self.clock, self.chance, lease)

    def _take_over(self, execution_id: str) -> Lease:
        """Acquire an execution whoever drives it: as if the present lease had expired."""
        held = next((lease for lease in self.store.leases() if lease.execution_id == execution_id), None)
        after = None if held is None or not held.is_live() else held.expires_at + 1
        return self.store.acquire(execution_id, Owner.current(), now=after)

    def recoverable(self) -> list[ExecutionRecord]:
        """Return the executions that have something to do and that no living process drives, newest first."""
        return self.store.orphans()


def folded(store: EventStore, execution_id: str) -> ExecutionState:
    """Return the state of an execution, from its newest checkpoint on."""
    checkpoint = store.checkpoint(execution_id)
    state = None if checkpoint is None else load_state(checkpoint[1])
    later = store.read(execution_id, after=0 if state is None else state.last_sequence)
    return fold(execution_id, later, state)


def this_person() -> str:
    """Return who answers from this process, where nothing else is said: ``user@host``."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def _too_late(question: Question, kept: Message) -> InterruptError:
    payload: Mapping[str, Any] = kept.payload
    if payload.get(EXPIRED):
        return InterruptError(question.id, EXPIRED_ALREADY)
    return InterruptError(question.id, already_answered(payload.get("by"), payload.get("response")))
