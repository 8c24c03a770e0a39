"""How the operations of a what-if were answered, as its log says. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple

from divebook.engine.operations import CHILD_WORKFLOW, ENCLOSING, TIMER, operation_kind, operation_name
from divebook.events import catalog
from divebook.events.event import Event
from divebook.history.served import BLOCKED, IS_COMPUTED, LIVE, way_of
from divebook.replay.pool import RecordedEnds

_MADE_ANEW = IS_COMPUTED | ENCLOSING | {TIMER}
"""What is not served, so that a recorded result of it is not left over."""
_CALLS = catalog.OperationCompleted | catalog.OperationFailed
ENDS = catalog.OperationCompleted | catalog.OperationFailed | catalog.InterruptResolved | catalog.InterruptExpired


@dataclass(frozen=True, slots=True)
class Tally:
    """How the operations of a what-if were answered."""

    served: int = 0
    """From the log of the source, answers of people included."""
    live: int = 0
    """Executed: model calls, and what its `tools` allow."""
    blocked: int = 0
    """Not executed, since there is no recorded result."""
    computed: int = 0
    """Scripts, and readings of clock and chance at places that the source never came to."""
    skipped: int = 0
    """Sleeps."""
    unused: int = 0
    """Recorded results that nobody asked for."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def tally(source: Sequence[Event], own: Sequence[Event], forked: Event) -> Tally:
    """Return how a what-if was answered, as its log says."""
    begun = forked.data
    assert isinstance(begun, catalog.ExecutionForked)  # noqa: S101 - the only event that begins one
    pool, counted = RecordedEnds(begun.source, source, begun.at), Counter[str]()
    for event in own:
        if event.sequence > forked.sequence and isinstance(event.data, ENDS):
            told = event.data.served
            counted[way_of(event.data)] += 1
            if told is not None and told.get("execution") == begun.source:
                pool.use(told["sequence"])
    left = sum(end.was_asked_for and end.asked[0] not in _MADE_ANEW for end in pool.left())
    return Tally(**{name: counted[name] for name in ("served", "live", "blocked", "computed", "skipped")}, unused=left)


class Answered(NamedTuple):
    """A call of a what-if that was not answered from the log of its source."""

    sequence: int
    """The event of the what-if that says how it ended."""
    way: str
    """``live``, or ``blocked``: not executed."""
    what: str
    """In words: ``action 'pay'``."""
    step: str


def not_served(own: Iterable[Event], forked: Event) -> Iterator[Answered]:
    """Yield the calls that were made, and those that were not, in the order of their ends."""
    begun: dict[str, str] = {}
    for event in own:
        if isinstance(event.data, catalog.OperationStarted):
            data = event.data
            name = data.name or operation_name(data.operation_type, data.parameters) or ""
            begun[data.operation_id] = f"{operation_kind(data.operation_type)} {name}".rstrip()
        elif event.sequence > forked.sequence and isinstance(event.data, _CALLS):
            way = way_of(event.data)
            if way in (LIVE, BLOCKED):
                yield Answered(event.sequence, way, begun[event.data.operation_id], event.step)


def begun_in(own: Iterable[Event], forked: Event) -> list[str]:
    """Return the executions of other workflows that a what-if has begun itself."""
    begun: dict[str, str] = {}
    for event in own:
        data = event.data
        if event.sequence <= forked.sequence:
            continue
        if isinstance(data, catalog.OperationStarted) and data.operation_type == CHILD_WORKFLOW:
            begun[data.operation_id] = (data.parameters or {})["signal"]
        elif isinstance(data, _CALLS) and data.served is not None:
            begun.pop(data.operation_id, None)
    return list(begun.values())
