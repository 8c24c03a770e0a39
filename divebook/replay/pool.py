"""What a log can answer calls and questions with: each recorded end once, that of the same place first. Pure.

Two calls are the same if type, name and arguments are: in any order of keys, and 1 as 1.0. A key that is absent is not
one that is null, since a function may have another default. Of equal calls that of the same place is answered first,
and else the oldest: oldest first alone would give parallel paths each other's results
(test_equal_calls_on_parallel_paths_keep_their_own_results).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from divebook.engine.operations import AGENT_RESPONSE, CACHED_RESPONSE, CHILD_WORKFLOW, SIGNAL_WAIT
from divebook.events import catalog
from divebook.events.codec import canonical_hash
from divebook.events.event import Event

End: TypeAlias = (
    catalog.OperationCompleted | catalog.OperationFailed | catalog.InterruptResolved | catalog.InterruptExpired
)
REQUESTS = frozenset({AGENT_RESPONSE, CACHED_RESPONSE})
QUESTION = "question"
"""Stands for the type of an operation where it is a person who is asked."""
Asked: TypeAlias = tuple[str, str]
"""What was asked for: the type of the operation, and a hash of its name and arguments."""

_ENDS = catalog.OperationCompleted | catalog.OperationFailed
_SETTLED = catalog.InterruptResolved | catalog.InterruptExpired
_SIGNAL = "signal-"
_WHOLE = 2**53
"""Up to here a float holds every whole number."""


def asked_of(operation_type: str, parameters: Any, setting: Any = None) -> Asked:
    """Return what an operation asks for, as far as another one may be answered with the same.

    A child is the same whatever its id, a wait for a signal however long it is; a request to a model is another one
    where what it is made with is: model, instructions, tools. Whether its answer was kept from before is the same.
    """
    told = parameters
    if operation_type == CHILD_WORKFLOW:
        told = {name: value for name, value in parameters.items() if name != "signal"}
    elif operation_type == SIGNAL_WAIT:
        told = parameters["signal"]
    elif operation_type in REQUESTS:
        told, operation_type = [parameters, setting], AGENT_RESPONSE
    return operation_type, canonical_hash(_canonical(told))


def question_asked(kind: str, question: str, message: str | None, data: Any, schema: Any) -> Asked:
    """Return what a question asks, wherever it stands."""
    return QUESTION, canonical_hash(_canonical([kind, question, message or None, data or None, schema or None]))


def _canonical(value: Any) -> Any:
    """Return plain data in which equal numbers are written alike."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= _WHOLE else value
    if type(value) is dict:
        return {name: _canonical(item) for name, item in value.items()}
    if type(value) is list:
        return [_canonical(item) for item in value]
    return value


class RecordedEnd(NamedTuple):
    """How a call ended once, or how a question was settled."""

    place: str
    """Id of the operation or question; of a signal that nobody took, ``signal-`` and the number of its event."""
    asked: Asked
    sequence: int
    """Number of the event that says so."""
    data: End
    within: int | None = None
    """Number of the event with which the operation began that held the call."""

    @property
    def was_asked_for(self) -> bool:
        """Whether the execution itself took it: a signal may have come that nobody waited for."""
        return not self.place.startswith(_SIGNAL)


class RecordedEnds:
    """The ends that a log has behind one of its events, each to be given out once.

    Of a place that has several, since its call was made again after a resumption, only the last one counts.

    Parameters
    ----------
    execution_id
        Whose log it is.
    events
        All of it, from the first event on: what ends behind `after` may have begun before.
    after
        Number of the event behind which ends are given out.
    """

    def __init__(self, execution_id: str, events: Iterable[Event], after: int = 0) -> None:
        self.execution_id = execution_id
        self._by_sequence = {end.sequence: end for end in _ends(events, after)}
        self._by_place = {end.place: end for end in self._by_sequence.values()}
        self._by_asked: dict[Asked, OrderedDict[str, RecordedEnd]] = {}
        for end in self._by_sequence.values():
            self._by_asked.setdefault(end.asked, OrderedDict())[end.place] = end

    def take(
        self, place: str, asked: Asked, within: int | None = None, fits: Callable[[RecordedEnd], bool] | None = None
    ) -> RecordedEnd | None:
        """Return the end that answers what is asked at a place, and give it out no more; None if there is none.

        With `within` only one that was held by the operation that began with that event, with `fits` only one of which
        that is true.
        """

        def may_be(end: RecordedEnd) -> bool:
            return within in (None, end.within) and (fits is None or fits(end))

        equal: Mapping[str, RecordedEnd] = self._by_asked.get(asked, {})
        own = equal.get(place)
        if own is None or not may_be(own):
            own = next((end for end in equal.values() if may_be(end)), None)
        return None if own is None else self._taken(own)

    def take_at(self, place: str, asked: Asked) -> RecordedEnd | None:
        """Return the end that answers what is asked at a place if it stands there, and give it out no more."""
        found = self._by_place.get(place)
        return self._taken(found) if found is not None and found.asked == asked else None

    def use(self, sequence: int) -> RecordedEnd | None:
        """Give out no more what an event says, with which somebody was answered before; return it if it was left."""
        found = self._by_sequence.get(sequence)
        return None if found is None else self._taken(found)

    def left(self) -> list[RecordedEnd]:
        """Return what was given to nobody, the oldest first."""
        return list(self._by_sequence.values())

    def _taken(self, end: RecordedEnd) -> RecordedEnd:
        del self._by_sequence[end.sequence], self._by_place[end.place], self._by_asked[end.asked][end.place]
        return end


def _ends(events: Iterable[Event], after: int) -> Iterator[RecordedEnd]:
    """Yield the ends behind an event, in the order in which what they end was asked for."""
    asked: dict[str, Asked] = {}
    within: dict[str, int | None] = {}
    ends: dict[str, RecordedEnd] = {}
    signals: dict[str, deque[RecordedEnd]] = {}
    for event in events:
        match event.data:
            case catalog.OperationStarted() as data:
                own = asked_of(data.operation_type, data.parameters or {}, data.setting)
                asked[data.operation_id], within[data.operation_id] = own, data.within
            case catalog.InterruptRaised() as data:
                own = question_asked(data.kind, data.question, data.message, data.data, data.schema)
                asked[data.interrupt_id] = own
            case catalog.SignalReceived() as data:
                signals.setdefault(data.signal_type, deque()).append(_signal(data, event.sequence))
            case catalog.OperationCompleted() | catalog.OperationFailed() as data if data.operation_id in asked:
                place = data.operation_id
                ends[place] = RecordedEnd(place, asked[place], event.sequence, data, within[place])
                _take_signal(signals, asked[data.operation_id], data)
            case catalog.InterruptResolved() | catalog.InterruptExpired() as data if data.interrupt_id in asked:
                ends[data.interrupt_id] = RecordedEnd(data.interrupt_id, asked[data.interrupt_id], event.sequence, data)
    in_order = [ends[place] for place in asked if place in ends]
    never_taken = [end for queue in signals.values() for end in queue]
    yield from (end for end in (*in_order, *never_taken) if end.sequence > after)


def _signal(data: catalog.SignalReceived, sequence: int) -> RecordedEnd:
    """Return a signal as the end of a wait for it."""
    end = catalog.OperationCompleted("signal", SIGNAL_WAIT, result=data.payload)
    return RecordedEnd(f"{_SIGNAL}{sequence}", asked_of(SIGNAL_WAIT, {"signal": data.signal_type}), sequence, end)


def _take_signal(signals: Mapping[str, deque[RecordedEnd]], asked: Asked, data: Any) -> None:
    """Note that a wait took the oldest signal that it waited for."""
    if asked[0] == SIGNAL_WAIT and isinstance(data, catalog.OperationCompleted):
        queue = next((queue for queue in signals.values() if queue and queue[0].asked == asked), None)
        if queue is not None:
            queue.popleft()
