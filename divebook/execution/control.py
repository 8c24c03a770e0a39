"""The executions over one store: started, found, resumed, answered, signalled, cancelled."""

from __future__ import annotations

import getpass
import logging
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

from divebook.bounds import Bounds
from divebook.engine.checkpoint import load_state
from divebook.engine.evolve import fold
from divebook.engine.inbox import ANSWER, EXPIRED, SIGNAL, answer_payload, facts_of, signal_payload
from divebook.engine.instructions import Fact
from divebook.engine.state import PENDING, ExecutionState
from divebook.errors import (
    CorruptStoreError,
    DivebookError,
    ExecutionError,
    ExecutionNotFoundError,
    InterruptError,
    LeaseHeldError,
    NewerStoreError,
    NotFoundError,
    SetupError,
)
from divebook.events import Event, catalog
from divebook.events.codec import storable
from divebook.execution.children import running_children
from divebook.execution.clock import Chance, Clock, Ids
from divebook.execution.engine_thread import ENGINE
from divebook.execution.execution import CANCELLED, Execution
from divebook.execution.schemas import FITTING
from divebook.execution.step_run import Services
from divebook.execution.streaming import TextStreams
from divebook.questions import Question, checked_answer
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
        Raises unless all that a workflow names is there.
    """

    def __init__(
        self,
        store: EventStore,
        services: Callable[[Control], Services],
        check: Callable[[Workflow], None],
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
        workflow = _recorded_workflow(execution_id, self.store.read(execution_id, limit=1))
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
            workflow = _recorded_workflow(execution_id, events)
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
        self._check(execution.workflow)
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
            self._check(execution.workflow)
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
        execution = self._asked(interrupt_id, execution_id)
        question = execution.state.interrupts[interrupt_id]
        if execution.state.is_over and question.status == PENDING:
            raise InterruptError(
                interrupt_id, f"its execution {execution.id} is {execution.status}; resume it, and answer then"
            )
        checked = checked_answer(question, response, FITTING, self.clock.now())
        author = by or this_person()
        kept = self._post(execution.id, ANSWER, interrupt_id, answer_payload(checked, author), author)
        if kept is not None:
            raise _too_late(question, kept)
        return self.go_on(execution)

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
        return self.go_on(execution)

    def _post(self, execution_id: str, kind: str, key: str, payload: Any, by: str) -> Message | None:
        """Send a message; return the earlier one that stands in its way, if there is one."""
        sent = self._message(execution_id, kind, key, payload, f"{by} {Ids(self.clock, self.chance).event(0)}")
        kept = self.store.post(sent)
        return None if kept.source == sent.source else kept

    def _message(self, execution_id: str, kind: str, key: str, payload: Any, source: str) -> Message:
        return Message(execution_id, kind, key, payload, source, self.clock.now())

    def question(self, interrupt_id: str, execution_id: str | None = None) -> Question:
        """Return a question; see `Environment.question`."""
        return self._asked(interrupt_id, execution_id).state.interrupts[interrupt_id]

    def questions(self) -> list[tuple[str, Question]]:
        """Return every question that waits for an answer, with the id of its execution, newest execution first."""
        return [(found.id, question) for found in self._unfinished() for question in found.interrupts]

    def _unfinished(self) -> Iterable[Execution]:
        return (self.find(record.execution_id) for record in self.store.unended())

    def _asked(self, interrupt_id: str, execution_id: str | None) -> Execution:
        """Return the execution that asked a question."""
        candidates = [self.find(execution_id)] if execution_id else list(self._unfinished())
        for execution in candidates:
            if interrupt_id in execution.state.interrupts:
                return execution
        known = [question.interrupt_id for execution in candidates for question in execution.interrupts]
        raise NotFoundError("question", interrupt_id, known)

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
        return InterruptError(question.interrupt_id, "it has expired; its execution went on without an answer")
    told = f"it was answered already by {payload.get('by')}, with {payload.get('response')!r}"
    return InterruptError(question.interrupt_id, told)


def _recorded_workflow(execution_id: str, events: Sequence[Event]) -> Workflow:
    """Return the definition that an execution was started with."""
    opening = events[0].data if events else None
    if not isinstance(opening, catalog.ExecutionStarted) or opening.definition is None:
        raise CorruptStoreError(f"execution {execution_id} has no recorded definition; it can be exported, not resumed")
    return Workflow.from_dict({**opening.definition, "source": opening.source or ""})
