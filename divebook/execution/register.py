"""The executions of one store as this process knows them: those it drives or looks at, and the others as stored."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress

from divebook.engine.checkpoint import load_state
from divebook.engine.evolve import fold, fold_records
from divebook.engine.inbox import questions_of
from divebook.engine.state import ExecutionState
from divebook.errors import CorruptStoreError, NewerStoreError, StoreError
from divebook.events import Event, catalog
from divebook.execution.definitions import (
    entered_workflow,
    opening_in,
    recorded_opening,
    recorded_workflow,
    workflow_in,
)
from divebook.execution.driver import Driver
from divebook.execution.engine_thread import ENGINE
from divebook.execution.known import Past
from divebook.questions import Question
from divebook.store import EventStore
from divebook.text.arguments import id_of
from divebook.text.logs import logger
from divebook.text.redaction import shared
from divebook.workflow.definition import Workflow

_log = logger(__name__)


class Register:
    """Finds the executions of one store; each is one object as long as somebody holds on to it."""

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self._known: weakref.WeakValueDictionary[str, Driver] = weakref.WeakValueDictionary()
        """Those that are driven here, which the engine holds on to, and those that somebody still looks at."""

    def enter(self, driver: Driver) -> None:
        """Have this object found from now on."""
        self._known[driver.id] = driver

    def find(self, execution_id: str) -> Driver:
        """Return an execution, live or past, as it stands; the beginning of an id is enough where it is unique."""
        driver = self.look_up(execution_id)
        driver.read()
        return driver

    def present(self, execution_id: str) -> Driver | None:
        """Return an execution that somebody in this process holds on to, by its whole id; None if nobody does."""
        return self._known.get(execution_id)

    def look_up(self, execution_id: str) -> Driver:
        """Return an execution as `find` does; of one that is not known yet no more than the first event is read."""
        ENGINE.refuse_waiting(self.store)
        execution_id = id_of(execution_id)
        known = self._known.get(execution_id)
        if known is None:
            execution_id = self.store.resolve(execution_id)
            known = self._known.get(execution_id)
        if known is None:
            return self._known.setdefault(execution_id, self.load(execution_id))
        try:
            return known.refresh()
        except (CorruptStoreError, NewerStoreError) as damage:
            past = self._sound_part(execution_id, damage)
            return Driver(execution_id, past.state.inputs, self.store, past)

    def load(self, execution_id: str) -> Driver:
        """Return an execution as the store has it, which is read when somebody asks."""
        opening = recorded_opening(execution_id, self.store)
        driver = Driver(execution_id, opening.inputs, self.store, lambda: self._past(execution_id, opening))
        driver.durability = self.store.record(execution_id).durability
        return driver

    def _past(self, execution_id: str, opening: catalog.ExecutionStarted) -> Past:
        ENGINE.refuse_waiting(self.store)
        try:
            workflow = recorded_workflow(execution_id, self.store, opening)
            return Past(workflow, folded(self.store, execution_id))
        except (CorruptStoreError, NewerStoreError) as damage:
            return self._sound_part(execution_id, damage)

    def _sound_part(self, execution_id: str, damage: StoreError) -> Past:
        """Return what the sound beginning of a damaged log says."""
        events, found = self.store.read_sound(execution_id)
        damage, state = found or damage, ExecutionState(execution_id)
        for number, event in enumerate(events):
            try:
                state = fold(execution_id, (event,), state)
            except CorruptStoreError as error:
                damage, events = error, events[:number]
                break
        if not events:
            raise damage
        return Past(_readable_workflow(execution_id, events), state, damage)

    def read_all(self) -> None:
        """Read what was looked up and not read, before the store is closed; what cannot be read says so later."""
        for driver in list(self._known.values()):
            with suppress(StoreError):
                driver.read()

    def known(self) -> list[Driver]:
        """Return the executions that somebody in this process holds on to."""
        return list(self._known.values())

    def live(self) -> list[Driver]:
        """Return the executions that this process drives now."""
        return [driver for driver in self.known() if driver.is_live]

    def open_questions(self, execution_ids: Iterable[str]) -> Iterable[tuple[str, Question]]:
        """Return what executions ask, without their definitions; one that is damaged hides itself alone."""
        ENGINE.refuse_waiting(self.store)
        for execution_id in execution_ids:
            try:
                asked = self._asked_by(execution_id)
            except StoreError as error:
                _log.warning("execution %s is left out: %s", execution_id, error)
            else:
                yield from ((execution_id, question) for question in asked if question.is_open)

    def sound_states(self, execution_ids: Iterable[str]) -> Iterable[ExecutionState]:
        """Return how executions stand; one that is damaged hides itself alone."""
        for execution_id in execution_ids:
            try:
                yield self.find(execution_id).state
            except StoreError as error:
                _log.warning("execution %s is left out: %s", execution_id, error)

    def _asked_by(self, execution_id: str) -> Iterable[Question]:
        known = self._known.get(execution_id)
        if known is not None and known.damage is None:
            return known.refresh().questions.values()
        state = folded(self.store, execution_id)
        shared().learn(state.inputs)  # before anything of it is shown
        return questions_of(state, self.store.inbox(execution_id, state.taken)).values()


def folded(store: EventStore, execution_id: str) -> ExecutionState:
    """Return the state of an execution, from its newest checkpoint on."""
    state = _kept(store, execution_id)
    later = store.read_records(execution_id, after=0 if state is None else state.last_sequence)
    return fold_records(execution_id, later, state)


def _kept(store: EventStore, execution_id: str) -> ExecutionState | None:
    """Return the state of the newest checkpoint; None if there is none that fits the log."""
    checkpoint = store.checkpoint(execution_id)
    if checkpoint is None:
        return None
    sequence, raw = checkpoint
    state = load_state(raw, functools.partial(store.facts, execution_id))
    return (
        state if state is not None and (state.execution_id, state.last_sequence) == (execution_id, sequence) else None
    )


def _readable_workflow(execution_id: str, events: Sequence[Event]) -> Workflow:
    """Return the workflow of a damaged log; where its definition is what is damaged, the steps that were entered."""
    opening = opening_in(execution_id, events)
    try:
        return workflow_in(execution_id, opening, events)
    except CorruptStoreError:
        return entered_workflow(opening.workflow_name, events)
