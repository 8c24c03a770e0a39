"""How questions, their answers, and signals change the state."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from divebook.bounds import Bounds
from divebook.engine.changes import Changes, Draft, Happening, path_of, put
from divebook.engine.state import ENDED, RUNNING, WAITING, PathState
from divebook.errors import CorruptStoreError
from divebook.events import catalog
from divebook.questions import Question
from divebook.questions.kinds import RAISE, RESOURCE_EXHAUSTED, STOP


def interrupt_raised(state: Draft, event: Happening, data: catalog.InterruptRaised) -> Changes:
    """Note a question; its path waits."""
    path = path_of(state, event)
    question = Question(
        data.interrupt_id,
        data.kind,
        data.question,
        event.path,
        event.step,
        message=data.message,
        data=data.data,
        schema=data.schema,
        operation_id=data.operation_id,
        raised_us=event.recorded_at,
        expires_us=data.expires_at,
        default=data.default,
        optional=bool(data.optional),
        waiting=(event.path,),
    )
    return _waiting(state, path, question)


def interrupt_joined(state: Draft, event: Happening, data: catalog.InterruptJoined) -> Changes:
    """Let another path wait for the answer to a question."""
    question = _open_question(state, data.interrupt_id)
    joined = question._replace(waiting=(*question.waiting, event.path))
    return _waiting(state, path_of(state, event), joined)


def _waiting(state: Draft, path: PathState, question: Question) -> Changes:
    return {
        "interrupts": state.interrupts.set(question.id, question),
        "asking": state.asking + (path.asking == 0),
        **put(state, path, asking=path.asking + 1),
    }


def _open_question(state: Draft, interrupt_id: str) -> Question:
    question = state.interrupts.get(interrupt_id)
    if question is None or not question.is_open:
        raise CorruptStoreError(f"interrupt {interrupt_id} of {state.execution_id} is settled without being open")
    return question


def interrupt_resolved(state: Draft, event: Happening, data: catalog.InterruptResolved) -> Changes:
    """Note an answer; the paths that waited for it go on."""
    question = _open_question(state, data.interrupt_id)
    answered = question.resolved(data)
    changes = _settled(state, event, answered, data.message)
    if question.kind == RESOURCE_EXHAUSTED:
        changes |= _about_bounds(state, answered)
    return changes


def interrupt_expired(state: Draft, event: Happening, data: catalog.InterruptExpired) -> Changes:
    """Note that a question expired without an answer; its default holds, if there is one."""
    question = _open_question(state, data.interrupt_id)
    return _settled(state, event, question.expired(), data.message)


def _settled(state: Draft, event: Happening, question: Question, message: int | None) -> Changes:
    paths, asking = state.paths, state.asking
    for path_id in question.waiting:
        path = paths[path_id]
        asking -= path.asking == 1 and path.phase != ENDED
        paths = paths.set(path_id, path.changed({"asking": path.asking - 1, "woken": path.woken + 1}))
    settled = question._replace(settled_us=event.recorded_at)
    return {
        "paths": paths,
        "interrupts": state.interrupts.set(question.id, settled),
        "asking": asking,
        "paused_us": _paused(state, event),
        **_taken(state, message),
    }


def _paused(state: Draft, event: Happening) -> int:
    """Return how long it has waited for people, if it has done nothing else since the last event."""
    waited = state.status == WAITING and state.asking
    return state.paused_us + (max(0, event.recorded_at - state.last_us) if waited else 0)


def _taken(state: Draft, message: int | None) -> Changes:
    return {} if message is None else {"taken": max(state.taken, message)}


def _about_bounds(state: Draft, question: Question) -> Changes:
    response = question.response or {}
    told = question.data or {}
    if "bound" not in told:  # a definition may ask such questions as well
        return {}
    if response.get("decision") == STOP:
        error = question.question.partition(". Raise the bound")[0]
        return {"stops": state.stops + 1, "stopped": (error, told.get("reason"))}
    if response.get("decision") == RAISE:
        return {"bounds": _raised(state.bounds, told["bound"], told.get("edge"), response["data"]["to"])}
    return {}


def _raised(bounds: Bounds, name: str, edge: str | None, to: Any) -> Bounds:
    if edge is not None:
        return replace(bounds, edges={**bounds.edges, edge: to})
    value: Any = Decimal(to) if name == "max_cost" else to
    return replace(bounds, **{name: value})


def signal_received(state: Draft, _event: Happening, data: catalog.SignalReceived) -> Changes:
    """Keep a signal until somebody takes it; the paths that wait for its name look for it."""
    name = data.signal_type
    changes: Changes = {
        "signals": state.signals.set(name, (*state.signals.get(name, ()), data.payload)),
        **_taken(state, data.message),
    }
    paths = state.paths
    for path in state.active_paths():
        records = path.open.operations.values() if path.open is not None else ()
        if any(record.signal == name and record.status == RUNNING for record in records):
            paths = paths.set(path.id, path.changed({"woken": path.woken + 1}))
    return {**changes, "paths": paths}
