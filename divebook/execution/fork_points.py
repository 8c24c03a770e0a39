"""Where an execution is forked to change something, if nobody says where. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from divebook.engine.change import Change
from divebook.engine.forked import snapped
from divebook.engine.undone import require_kept, undone_in
from divebook.errors import SetupError
from divebook.events import catalog
from divebook.events.event import Event

_FROM_EARLIER = frozenset({"inputs", "prompts", "model", "definition"})
"""The parts of a change that have their effect from any earlier event as well."""


def live_point_of(events: Sequence[Event], at: int | None, change: Change, *, reaching_back: bool = False) -> int:
    """Return the event as `point_of` does, where calls are made behind it: what is undone is done again.

    Raises
    ------
    SetupError
        As there; or what is undone would have to count for the change, or for the event.
    """
    point, undone = point_of(events, at, change, reaching_back=reaching_back), undone_in(events)
    if undone is None or point <= undone.before:
        return point
    if at is not None or not _FROM_EARLIER.issuperset(change.named):
        require_kept(events, point)
    return point_before(events, max(1, undone.before))


def point_before(events: Sequence[Event], end: int) -> int:
    """Return the last event, up to one of them, after which an execution can be forked."""
    at = end
    while (point := snapped(events, at)) > end and at > 1:
        at -= 1
    return point


def point_of(events: Sequence[Event], at: int | None, change: Change, *, reaching_back: bool = False) -> int:
    """Return the event after which an execution is forked.

    That is event `at`, snapped to what was recorded together. Where nobody says which, it is before the first result or
    answer that changes; without one the end, or with `reaching_back` the latest event from which on a change has an
    effect on all that it can: of a variable that after which it was last set, of a prompt that before its step is
    first entered, and else the first. Of several the first holds.

    Parameters
    ----------
    events
        The log, from event 1 on.

    Raises
    ------
    SetupError
        There is no such event; with `reaching_back` also: there is nothing of what is to be changed, or a variable is
        set again behind the event from which on the rest changes.
    """
    if at is not None:
        number: object = at  # whatever a caller has
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= len(events):
            raise SetupError(f"an execution is forked after one of its events, 1 to {len(events)}, not {number!r}")
        return snapped(events, number)
    ends = _before_ends(events, change)
    points = list(ends.values())
    if reaching_back:
        points += _before_effects(events, change, ends.keys())
        _require_one_point(events, change, min(points, default=1))
    return snapped(events, min(points, default=1 if reaching_back else len(events)))


def _before_ends(events: Sequence[Event], change: Change) -> dict[str, int]:
    """Return, by operation and question that changes, the event before it first ended or was answered."""
    found: dict[str, int] = {}
    results, answers = change.results, change.answers
    for event in events:
        match event.data:
            case catalog.OperationCompleted() | catalog.OperationFailed() as data if data.operation_id in results:
                found.setdefault(data.operation_id, event.sequence - 1)
            case catalog.InterruptResolved() as data if data.interrupt_id in answers:
                found.setdefault(data.interrupt_id, event.sequence - 1)
    return found


def _before_effects(events: Sequence[Event], change: Change, ended: Container[str]) -> Iterator[int]:
    if change.inputs or change.model or change.definition:
        yield 1
    for step in change.prompts:
        yield next((e.sequence - 1 for e in events if isinstance(e.data, catalog.StepStarted) and e.step == step), 1)
    wanted = [("variable", name) for name in change.variables]
    wanted += [("operation", name) for name in change.results if name not in ended]
    wanted += [("question", name) for name in change.answers if name not in ended]
    last = {named: event.sequence for event in events for named in _named(event.data)} if wanted else {}
    for kind, name in wanted:
        if (kind, name) not in last:
            raise SetupError(
                f"{kind} {name!r} of execution {events[0].execution_id} cannot be changed: its log has nothing of that "
                "name; look at its events"
            )
        yield last[kind, name]


def _require_one_point(events: Sequence[Event], change: Change, at: int) -> None:
    """Raise `SetupError` for a variable that would be changed to no effect."""
    for event in events[at:] if change.variables else ():
        for kind, name in _named(event.data):
            if kind == "variable" and name in change.variables:
                raise SetupError(
                    f"variable {name!r} is set at event {event.sequence}, behind event {at}, from which on the rest "
                    "changes, so that its change would be lost; change one thing, or say with at= after which event"
                )


def _named(data: catalog.Payload) -> Iterator[tuple[str, str]]:
    """Yield what can be changed after an event: the variables that it sets, the call or the question that it begins."""
    match data:
        case catalog.StateMutated():
            yield from (("variable", mutation.key) for mutation in data.mutations if mutation.type == "set")
        case catalog.OperationStarted():
            yield "operation", data.operation_id
        case catalog.InterruptRaised():
            yield "question", data.interrupt_id
