"""The critical path of a run: what its end waited for, moment by moment, from its beginning on.

It is found from the end backwards: on a path of the run the call that ended last is what the next one waited for; in an
item the item's own calls come first; at a join it goes on with the path that came last, at the beginning of a branch
with the path that split. What lies between is overhead, or the run was paused or stopped. So the parts fill the run's
duration without a gap (`tests/history/test_critical_path.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from divebook.engine.operations import (
    ACTION_EXECUTION,
    AGENT_RESPONSE,
    CACHED_RESPONSE,
    CHILD_WORKFLOW,
    ENCLOSING,
    SCRIPT_EXECUTION,
    SIGNAL_WAIT,
    STEP_EXECUTION,
    TIMER,
    TOOL_CALL,
    TOOL_DISCOVERY,
)
from divebook.events import Event, catalog
from divebook.history.course import PAUSED, STOPPED
from divebook.history.read_log import ReadLog
from divebook.history.span import Span

Spent: TypeAlias = Literal[
    "model",
    "tools",
    "actions",
    "scripts",
    "workflows",
    "other calls",
    "people",
    "asleep",
    "paused",
    "stopped",
    "overhead",
]
"""What time goes into. ``actions``: those, and functions made with ``@step``; ``workflows``: other executions;
``asleep``: timers, signals, pauses before further attempts; ``stopped``: no process drove it."""
OVERHEAD: Spent = "overhead"
_SPENT: dict[str, Spent] = {
    AGENT_RESPONSE: "model",
    CACHED_RESPONSE: "model",
    TOOL_CALL: "tools",
    TOOL_DISCOVERY: "tools",
    ACTION_EXECUTION: "actions",
    STEP_EXECUTION: "actions",
    SCRIPT_EXECUTION: "scripts",
    CHILD_WORKFLOW: "workflows",
    TIMER: "asleep",
    SIGNAL_WAIT: "asleep",
}


class PathPart(NamedTuple):
    """A stretch of the critical path."""

    spent: Spent
    """What the time went into."""
    started_us: int
    ended_us: int
    path: str
    step: str = ""
    item: int | None = None
    called: str = ""
    """What was called: the action, the agent, the tool ...; of a question its kind."""
    operation_id: str | None = None

    @property
    def took_us(self) -> int:
        """How long it took."""
        return self.ended_us - self.started_us


@dataclass(slots=True)
class _OnePath:
    """What is known of a path of the run."""

    began_us: int = 0
    parent: str | None = None
    parts: list[PathPart] = field(default_factory=list)
    """Calls and questions, by their ends."""
    joins: list[tuple[int, list[str]]] = field(default_factory=list)
    """When it went on for others as well, and for which."""
    arrived_us: int = 0
    """When it came to the join at which it waited last."""
    last: int = 0
    """Its last event."""


def critical_path(events: Iterable[Event]) -> list[PathPart]:
    """Return the parts of the critical path, oldest first; of a run that has not ended, up to its last event.

    >>> critical_path([])
    []
    """
    log = ReadLog.of(events)
    if not log:
        return []
    paths = _paths(log)
    began, ended = _extent(log)
    parts = _with_gaps(_backwards(paths, began, ended), began, ended)
    return list(_interrupted(log, parts))


def _extent(log: Sequence[Event]) -> tuple[int, int]:
    """Return when the run began, a fork when it forked; and when it ended."""
    forks = [event.recorded_at for event in log if isinstance(event.data, catalog.ExecutionForked)]
    began = forks[-1] if forks else log[0].recorded_at
    return began, max(began, *(event.recorded_at for event in log))


def _paths(log: ReadLog) -> dict[str, _OnePath]:
    paths: dict[str, _OnePath] = defaultdict(_OnePath)
    for event in log:
        if event.path:
            _follow(paths, event)
    for part in _questions(log):
        paths[part.path].parts.append(part)
    for span in log.spans:
        if span.kind == "operation" and span.type not in ENCLOSING:
            paths[span.path].parts.append(_call(span, log[-1].recorded_at))
    for known in paths.values():
        known.parts.sort(key=lambda part: (part.ended_us, part.started_us))
    return paths


def _follow(paths: dict[str, _OnePath], event: Event) -> None:
    """Note how a path begins, splits, waits and goes on."""
    known = paths[event.path]
    known.last = event.sequence
    match event.data:
        case catalog.PathStarted():
            known.began_us = event.recorded_at
        case catalog.PathBranched() as data:
            for new_path in data.new_paths:
                paths[new_path["id"]].parent = event.path
        case catalog.PathWaiting():
            known.arrived_us = event.recorded_at
        case catalog.PathJoined() as data:
            known.joins.append((event.recorded_at, [event.path, *data.joined]))


def _questions(log: ReadLog) -> Iterator[PathPart]:
    """Yield how long each question was open."""
    asked: dict[str, tuple[Event, catalog.InterruptRaised]] = {}
    for event in log:
        if isinstance(event.data, catalog.InterruptRaised):
            asked[event.data.interrupt_id] = event, event.data
        elif isinstance(event.data, catalog.InterruptResolved | catalog.InterruptExpired):
            known = asked.pop(event.data.interrupt_id, None)
            if known is not None:
                yield _question(*known, event.recorded_at)
    for raised, question in asked.values():
        yield _question(raised, question, log[-1].recorded_at)


def _question(raised: Event, question: catalog.InterruptRaised, ended_us: int) -> PathPart:
    ended = max(raised.recorded_at, ended_us)
    return PathPart("people", raised.recorded_at, ended, raised.path, raised.step, called=question.kind)


def _call(span: Span, last_us: int) -> PathPart:
    ended = max(span.started_us, last_us if span.ended_us is None else span.ended_us)
    spent = _SPENT.get(span.type, "other calls")
    called = span.called or ""
    return PathPart(spent, span.started_us, ended, span.path, span.step, span.iteration, called, span.operation_id)


def _backwards(paths: dict[str, _OnePath], began: int, ended: int) -> Iterator[PathPart]:
    """Yield the calls and questions that the end waited for, the last first."""
    if not paths:
        return
    name = max(paths, key=lambda name: paths[name].last)
    left = {name: len(known.parts) for name, known in paths.items()}
    joins = {name: len(known.joins) for name, known in paths.items()}
    now, latest = ended, None
    while now > began:
        known = paths[name]
        found = _waited_for(known.parts, left[name], now, latest)
        joined = known.joins[joins[name] - 1] if joins[name] else None
        if joined is not None and joined[0] <= now and (found is None or known.parts[found].ended_us <= joined[0]):
            joins[name] -= 1
            name = max(joined[1], key=lambda other: paths[other].arrived_us)
            now, latest = min(now, paths[name].arrived_us or joined[0]), None
        elif found is not None:
            latest, left[name] = known.parts[found], found
            yield latest._replace(started_us=max(began, latest.started_us), ended_us=min(now, latest.ended_us))
            now = latest.started_us
        elif known.parent is not None:
            now, name, latest = min(now, known.began_us or now), known.parent, None
        else:
            return


def _waited_for(parts: Sequence[PathPart], left: int, now: int, latest: PathPart | None) -> int | None:
    """Return the place of what ended last until now; in an item its own calls come first."""
    place = min(left, bisect_right(parts, now, key=lambda part: part.ended_us)) - 1
    if place < 0:
        return None
    if latest is not None and latest.item is not None:
        for own in range(place, max(-1, place - _NEAR), -1):
            if (parts[own].step, parts[own].item) == (latest.step, latest.item):
                return own
    return place


_NEAR = 200
"""Calls that are looked through for the one before in the same item."""


def _with_gaps(backwards: Iterable[PathPart], began: int, ended: int) -> list[PathPart]:
    """Return the parts oldest first, with what lies between them."""
    parts: list[PathPart] = []
    now, path, step = ended, "", ""
    for part in backwards:
        if part.ended_us < now:
            parts.append(PathPart(OVERHEAD, part.ended_us, now, path or part.path, step or part.step))
        if part.took_us > 0:
            parts.append(part)
        now, path, step = min(now, part.started_us), part.path, part.step
    if now > began:
        parts.append(PathPart(OVERHEAD, began, now, path, step))
    return parts[::-1]


def _interrupted(log: ReadLog, parts: Iterable[PathPart]) -> Iterator[PathPart]:
    """Yield the parts without the times in which the run was paused or stopped, which are parts of their own."""
    lasting = log.course.lasting
    known = [*log.course.stretches, *([lasting] if lasting is not None else [])]
    breaks = [stretch for stretch in known if stretch.doing in (PAUSED, STOPPED)]
    for part in parts:
        now = part.started_us
        for stretch in breaks:
            begins = max(now, stretch.started_us)
            ends = min(part.ended_us, part.ended_us if stretch.ended_us is None else stretch.ended_us)
            if begins < ends:
                if now < begins:
                    yield part._replace(started_us=now, ended_us=begins)
                yield PathPart("paused" if stretch.doing == PAUSED else "stopped", begins, ends, part.path, part.step)
                now = ends
        if now < part.ended_us:
            yield part._replace(started_us=now)
