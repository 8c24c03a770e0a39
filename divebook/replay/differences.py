"""Where two executions of a workflow came to something else: by place, since their paths may have taken turns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from divebook.engine.operations import TIMER, operation_kind
from divebook.engine.state import ExecutionState
from divebook.events import catalog
from divebook.events.codec import canonical_hash
from divebook.events.event import Event
from divebook.replay.pool import asked_of, question_asked


class Difference(NamedTuple):
    """One thing that is otherwise in another execution."""

    what: str
    """In words: a call with its step, a variable, an output."""
    sequence: int
    """The event of the source that says it; that of the other where the source has nothing of it."""
    expected: Any
    """As the source has it; None where it has nothing."""
    actual: Any
    """As the other has it."""

    def __str__(self) -> str:
        return f"event {self.sequence}: {self.what}: expected {_short(self.expected)}, got {_short(self.actual)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


class _Met(NamedTuple):
    """What happened at a place."""

    what: str
    sequence: int
    asked: str
    outcome: Any
    is_ended: bool


def differences(
    source: Sequence[Event], other: Sequence[Event], states: tuple[ExecutionState, ExecutionState]
) -> Iterator[Difference]:
    """Yield what is otherwise in another execution, in the order of the source's log, then what came of it.

    Parameters
    ----------
    states
        Of both, after their last events.
    """
    expected, actual = _places(source), _places(other)
    for place, met in expected.items():
        found = actual.get(place)
        if found is None:
            yield Difference(f"{met.what} is not there", met.sequence, met.outcome, None)
        elif met.asked != found.asked:
            yield Difference(f"{met.what} is asked for with something else", met.sequence, met.asked, found.asked)
        elif met.is_ended and not _same(met.outcome, found.outcome):
            yield Difference(met.what, met.sequence, met.outcome, found.outcome)
    for place, met in actual.items():
        if place not in expected:
            yield Difference(f"{met.what} is new", met.sequence, None, met.outcome)
    yield from _results(*states)


def _results(source: ExecutionState, other: ExecutionState) -> Iterator[Difference]:
    for what, one, two in (
        ("variable", source.variables, other.variables),
        ("output", source.outputs, other.outputs),
    ):
        for name in (*one, *(name for name in two if name not in one)):
            if name not in one or name not in two or not _same(one[name], two[name]):
                yield Difference(f"{what} {name!r}", source.last_sequence, one.get(name), two.get(name))
    if source.is_over and (source.lifecycle, source.error) != (other.lifecycle, other.error):
        told = (f"{state.lifecycle}: {state.error}" if state.error else state.lifecycle for state in (source, other))
        yield Difference("the end", source.last_sequence, *told)


def _same(one: Any, two: Any) -> bool:
    return canonical_hash(one) == canonical_hash(two)


def _places(events: Iterable[Event]) -> Mapping[str, _Met]:
    """Return what happened at each place, as it stands at the end, in the order in which it was first asked for."""
    found: dict[str, _Met] = {}
    for event in events:
        match event.data:
            case catalog.OperationStarted() as data if data.operation_type != TIMER:
                what = f"{operation_kind(data.operation_type)} {data.name or ''}".rstrip()
                asked = asked_of(data.operation_type, data.parameters or {})[1]
                known = _Met(f"{what} in step {event.step!r}", event.sequence, asked, None, is_ended=False)
                found[data.operation_id] = known
            case catalog.OperationCompleted() as data if data.operation_id in found:
                found[data.operation_id] = found[data.operation_id]._replace(outcome=data.result, is_ended=True)
            case catalog.OperationFailed() as data if data.operation_id in found:
                found[data.operation_id] = found[data.operation_id]._replace(outcome=data.error, is_ended=True)
            case catalog.InterruptRaised() as data:
                asked = question_asked(data.kind, data.question, data.message, data.data, data.schema)[1]
                what = f"question {data.question!r} in step {event.step!r}"
                found[data.interrupt_id] = _Met(what, event.sequence, asked, None, is_ended=False)
            case catalog.InterruptResolved() as data if data.interrupt_id in found:
                found[data.interrupt_id] = found[data.interrupt_id]._replace(outcome=data.response, is_ended=True)
    return found
