"""Where an execution is forked to change something, if nobody says where. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from divebook.engine.change import Change
from divebook.engine.forked import snapped
from divebook.errors import SetupError
from divebook.events import catalog
from divebook.events.event import Event


def point_of(events: Sequence[Event], change: Change) -> int:
    """Return the event after which an execution is forked so that a change has an effect on all that it can.

    A variable is changed after it was last set, an input and the definition at the beginning, a prompt before its step
    is first entered, a result and an answer once the call or the question is there. Of several changes the first holds,
    so that those of results and answers that come later are refused.

    Parameters
    ----------
    events
        The whole log, from event 1 on.

    Raises
    ------
    SetupError
        The log has nothing of what is to be changed.
    """
    return snapped(events, min(_points(events, change), default=1))


def _points(events: Sequence[Event], change: Change) -> Iterator[int]:
    if change.inputs or change.model or change.definition:
        yield 1
    for step in change.prompts:
        yield next((e.sequence - 1 for e in events if isinstance(e.data, catalog.StepStarted) and e.step == step), 1)
    wanted = [("variable", name) for name in change.variables]
    wanted += [("operation", name) for name in change.results]
    wanted += [("question", name) for name in change.answers]
    last = {named: event.sequence for event in events for named in _named(event.data)} if wanted else {}
    for kind, name in wanted:
        if (kind, name) not in last:
            raise SetupError(
                f"{kind} {name!r} of execution {events[0].execution_id} cannot be changed: its log has nothing of that "
                "name; look at its events"
            )
        yield last[kind, name]


def _named(data: catalog.Payload) -> Iterator[tuple[str, str]]:
    """Yield what can be changed after an event: the variables that it sets, the call or the question that it begins."""
    match data:
        case catalog.StateMutated():
            yield from (("variable", mutation.key) for mutation in data.mutations if mutation.type == "set")
        case catalog.OperationStarted():
            yield "operation", data.operation_id
        case catalog.InterruptRaised():
            yield "question", data.interrupt_id
