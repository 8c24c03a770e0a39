"""How questions, their answers, and signals change the state."""

from __future__ import annotations

from divebook.engine.bounds import raised
from divebook.engine.changes import Draft
from divebook.engine.state import ENDED, RUNNING, WAITING, ExecutionState, PathState
from divebook.errors import CorruptStoreError
from divebook.events import catalog
from divebook.questions import Question
from divebook.questions.kinds import RAISE, RESOURCE_EXHAUSTED, STOP


def interrupt_raised(draft: Draft, data: catalog.InterruptRaised) -> None:
    """Note a question; its path waits."""
    path = draft.path(data)
    question = Question(
        data.interrupt_id,
        data.kind,
        data.question,
        path.id,
        draft.step,
        message=data.message,
        data=data.data,
        schema=data.schema,
        operation_id=data.operation_id,
        raised_us=draft.moment,
        expires_us=data.expires_at,
        default=data.default,
        optional=bool(data.optional),
        waiting=(path.id,),
    )
    _wait(draft, path, question)


def interrupt_joined(draft: Draft, data: catalog.InterruptJoined) -> None:
    """Let another path wait for the answer to a question."""
    question, path = _open_question(draft, data.interrupt_id), draft.path(data)
    _wait(draft, path, question._replace(waiting=(*question.waiting, path.id)))


def _wait(draft: Draft, path: PathState, question: Question) -> None:
    draft.interrupts = draft.interrupts.set(question.id, question)
    draft.asking += path.asking == 0
    path.asking += 1


def _open_question(state: ExecutionState, interrupt_id: str) -> Question:
    question = state.interrupts.get(interrupt_id)
    if question is None or not question.is_open:
        raise CorruptStoreError(f"question {interrupt_id} of {state.execution_id} is settled without being open")
    return question


def interrupt_resolved(draft: Draft, data: catalog.InterruptResolved) -> None:
    """Note an answer; the paths that waited for it go on."""
    question = _open_question(draft, data.interrupt_id)
    answered = question.resolved(data)
    _settle(draft, answered, data.message)
    if question.kind == RESOURCE_EXHAUSTED:
        follow_about_bounds(draft, answered)


def interrupt_expired(draft: Draft, data: catalog.InterruptExpired) -> None:
    """Note that a question expired without an answer; its default holds, if there is one."""
    question = _open_question(draft, data.interrupt_id)
    _settle(draft, question.expired(), data.message)


def _settle(draft: Draft, question: Question, message: int | None) -> None:
    if draft.status == WAITING and draft.asking:  # it has done nothing else since the last event
        draft.paused_us += max(0, draft.moment - draft.last_us)
    for path_id in question.waiting:
        path = draft.own(path_id)
        draft.asking -= path.asking == 1 and path.phase != ENDED
        path.asking -= 1
        path.woken += 1
    draft.interrupts = draft.interrupts.set(question.id, question._replace(settled_us=draft.moment))
    _take(draft, message)


def _take(draft: Draft, message: int | None) -> None:
    if message is not None:
        draft.taken = max(draft.taken, message)


def follow_about_bounds(draft: Draft, question: Question) -> None:
    """Raise a bound, or stop, as the answer says."""
    response = question.response or {}
    told = question.data or {}
    if "bound" not in told or "agent" in told:  # of a definition, or of an agent's turn, which follows it by itself
        return
    if response.get("decision") == STOP:
        error = question.question.partition(". Raise the bound")[0]
        draft.stops, draft.stopped = draft.stops + 1, (error, told.get("reason", ""))
    elif response.get("decision") == RAISE:
        draft.bounds = raised(draft.bounds, told["bound"], told.get("edge"), response["data"]["to"])


def signal_received(draft: Draft, data: catalog.SignalReceived) -> None:
    """Keep a signal until somebody takes it; the paths that wait for its name look for it."""
    name = data.signal_type
    draft.signals = draft.signals.set(name, (*draft.signals.get(name, ()), data.payload))
    _take(draft, data.message)
    for path in draft.active_paths():
        records = path.open.operations.values() if path.open is not None else ()
        if any(record.signal == name and record.status == RUNNING for record in records):
            draft.own(path.id).woken += 1
