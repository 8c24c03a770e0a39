"""Tape: a recorded log against which the code of a workflow runs again, without external calls, so that both can be
compared.

Each fact that the code would record is compared with the event that the log has in the same place; the event is then
*claimed*. An event can be claimed once. A fact without a matching event, or an event that is never claimed, is a
difference.

The order in which paths and concurrent calls ran is not reproduced. An event is therefore not searched by its number,
but by a key (`key_of`): an operation, item or question by its id, everything else as the next event of its path.
Example, with two items in parallel whose calls are ``op-a`` and ``op-b``::

    4 operation_started op-a      the replay may reach op-b first: it claims 5 for ("begin", "op-b"),
    5 operation_started op-b      while 4 stays for ("begin", "op-a")
    6 operation_completed op-b    the end of op-b waits until 4 and 5 are claimed (`Tape.in_turn`),
    7 operation_completed op-a    so that the first failure is the recorded one

Events from outside (`OUTSIDE`: answers, signals, changed files) are not compared; the state contains them as recorded.
A log consists of *segments*: each start, fork or resumption of the execution begins a new segment, and the code runs
again from the state at that event.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import anyio

from divebook.engine.evolve import evolve
from divebook.engine.instructions import Fact
from divebook.engine.operations import ENCLOSING, SCRIPT_EXECUTION, VERSION_DECISION, Place, may_continue_as
from divebook.engine.state import ABOUT_FILES, IN_STEP, Draft, ExecutionState, OperationRecord
from divebook.errors import DivergenceError
from divebook.events import Event, catalog
from divebook.events.catalog import COMPLETED, FAILED, PENDING, RUNNING, Payload
from divebook.projections.failures import place_label, without_places
from divebook.questions import Question
from divebook.questions.question import OUTCOME_UNKNOWN, RESOURCE_EXHAUSTED
from divebook.replay.replayer import Positions
from divebook.replay.sameness import has_older_wording, is_same
from divebook.runtime.concurrency import STRAND, Suspended
from divebook.runtime.errors import present_place
from divebook.runtime.operations import CallOptions, CarryOut, NoAnswer, OperationLog, OperationRequest, differs
from divebook.runtime.recorder import Call, RunCall
from divebook.runtime.waiting import Asking

OUTSIDE = (
    catalog.ExecutionStarted,
    catalog.ExecutionForked,
    catalog.ExecutionResumed,
    catalog.ExecutionPaused,
    catalog.ExecutionCompleted,
    catalog.ExecutionFailed,
    catalog.ExecutionCancelled,
    catalog.ExecutionMoved,
    catalog.ExecutionSnapshotted,
    catalog.ExecutionAnnotated,
    catalog.PathCancelled,
    catalog.InterruptResolved,
    catalog.InterruptExpired,
    catalog.SignalReceived,
    catalog.ApprovalRuleAdded,
    catalog.RollbackStarted,
    catalog.ApprovalRuleRevoked,
    catalog.WorkspaceOpened,
    catalog.FilesChanged,
    catalog.EgressAnswered,
    catalog.RowsCompleted,
    catalog.OperationsAbandoned,
)
"""Events that no path records: they come from people, drivers and disks, or are decided for all paths at once."""
OPENINGS = (catalog.ExecutionStarted, catalog.ExecutionForked, catalog.ExecutionResumed)
"""Events that begin a segment. All code ends before them, and active paths start again from the state there."""
_SHARED = (
    catalog.StateMutated,
    catalog.TimeAccessed,
    catalog.RandomGenerated,
    catalog.VersionDecision,
    catalog.RollbackAdded,
)
"""Events that concurrent operations of a step may record in any order, and that have no id in their key."""
_ENDS = (catalog.OperationCompleted, catalog.OperationFailed)
_STEP_ENDS = (catalog.StepCompleted, catalog.StepFailed)
BEGIN = "begin"
END = "end"
UNKNOWN = "unknown"
ASK = "ask"
TURN = "turn"
PATIENCE = 200
"""Iterations of the event loop without a claim after which `Tape.in_turn` stops waiting for earlier events."""

A_MOMENT = 0.001
"""Seconds between two checks while scripts run, whose threads need the processor."""

Key: TypeAlias = tuple[Any, ...]


class Diverged(Suspended):
    """Exception that stops the code of a workflow because it differs from its log. Code of users cannot catch it."""


class ReplayDifference(NamedTuple):
    """Difference between a log and the code of a path that runs again: the code records another fact (event payload)
    than the log contains.
    """

    sequence: int
    """Number of the event in the log. If the log has no further event, it is the number after the last one."""
    path: str
    step: str
    actual: Payload | str | None
    """Fact that the path would record, or a description; None if the path would record nothing."""
    line: Any = None
    """Line of a user's function, if known."""


def key_of(path: str, data: Payload) -> Key:
    """Return the key by which a tape finds the recorded event for a fact (an event payload that the code produces
    again). The key contains the id of the operation, item or question. For other facts it contains the path, and leads
    to the next event of the path.

    Events with an id may be recorded in another order than they are replayed. The other events of a path have a fixed
    order, so that the path is enough.
    """
    match data:
        case catalog.OperationStarted():
            return (BEGIN, data.operation_id)
        case catalog.OperationCompleted() | catalog.OperationFailed():
            return (END, data.operation_id)
        case catalog.IterationStarted():
            return ("item", path, data.iteration_index)
        case catalog.IterationCompleted() | catalog.IterationFailed():
            return ("item ended", path, data.iteration_index)
        case catalog.InterruptRaised() if data.kind == OUTCOME_UNKNOWN:
            return (UNKNOWN, data.operation_id)
        case catalog.InterruptRaised():
            return (ASK, data.interrupt_id)
        case catalog.InterruptJoined():
            return ("join", path, data.interrupt_id)
        case catalog.StepRetried():
            return ("retry", path, data.iteration_index, data.key)
        case catalog.EventEmitted():
            return ("emit", data.operation_id)
    return (TURN, path)


class Tape:
    """Recorded log of one execution, which is compared with the code of its workflow while the code runs again. It
    marks each event that the code has reproduced (claimed).

    Parameters
    ----------
    events
        The whole log, from event 1 on.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self.execution_id = events[0].execution_id
        self.low, self.high = 0, len(events)
        """Numbers of the first and the last event of the current segment."""
        self.path = ""
        """Id of the path that runs now."""
        self.claims = 0
        """Number of claims so far."""
        self.computing = 0
        """Number of scripts that run now, in threads."""
        self.first: ReplayDifference | None = None
        """The earliest difference."""
        self.latest = events[0]
        """Event that was claimed last."""
        self._events, self._positions = events, Positions.of(events)
        # {("begin", "op-a"): deque([4]), ("turn", "main"): deque([1, 2, 8])}: event numbers in the order of the log.
        self._queues: defaultdict[Key, deque[int]] = defaultdict(deque)
        self._unclaimed: defaultdict[str, deque[int]] = defaultdict(deque)
        """By path: numbers of its unclaimed events, in order."""
        self._settled: dict[str, int] = {}
        """By question: number of the event that settled it."""
        self._questions: dict[str, int] = {}
        self._claimed: set[int] = set()
        self._states: dict[str, ExecutionState] = {}
        """By path: state as the code of its step sees it."""
        self._differing: set[str] = set()
        self._missing: dict[str, ReplayDifference] = {}
        """By path: the first fact that the log does not have."""
        self._failures: dict[str, str] = {}
        """By path: recorded error of a script in the wording of an older version, which later events repeat."""
        self._places: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        """By path: the lines that its failures name, as recorded and as they are now."""
        self._items: dict[tuple[str, int], tuple[Event, Payload | None]] = {}
        """Items that have started and not ended, with the change of their variable that followed."""
        for event in events:
            self._enter(event)

    def _enter(self, event: Event) -> None:
        data = event.data
        number = event.sequence
        # Both events are in `OUTSIDE`, so they are noted before the `return` below.
        if isinstance(data, catalog.InterruptResolved | catalog.InterruptExpired):
            self._settled[data.interrupt_id] = number
        if isinstance(data, OUTSIDE) or (isinstance(data, catalog.EventEmitted) and data.operation_id is None):
            return  # an event that a call emits, which is not made again
        if isinstance(data, catalog.InterruptRaised) and (data.operation_id or "").startswith(ABOUT_FILES):
            return  # what a disk held has led to it (test_files_that_somebody_else_has_changed_are_asked_about)
        self._queues[key_of(event.path, data)].append(number)
        if isinstance(data, catalog.InterruptRaised):
            self._questions[data.interrupt_id] = number
        # The question stays in its queue and can be claimed by its id. It only does not hold up the path in `in_turn`.
        if not self._follows_from_others(event):
            self._unclaimed[event.path].append(number)

    def _follows_from_others(self, event: Event) -> bool:
        """Return True for a question about a bound (budget) inside a step. Such a question depends on the consumption
        of all paths, so that it has no fixed position among the events of its path.
        """
        data = event.data
        if not isinstance(data, catalog.InterruptRaised | catalog.InterruptJoined):
            return False
        # `InterruptJoined` has no kind of its own: only questions about bounds are joined by other paths.
        kind = data.kind if isinstance(data, catalog.InterruptRaised) else RESOURCE_EXHAUSTED
        return kind == RESOURCE_EXHAUSTED and self.state_at(event.sequence - 1).paths[event.path].phase == IN_STEP

    # --- segment and states ----------------------------------------------------------------------------------------

    def begin(self, low: int, high: int) -> None:
        """Start the replay of one segment of the log, the events `low` to `high`. A segment begins where the recorded
        execution was started, forked or resumed, so that the code of all paths starts again.
        """
        # `_differing` stays: a path that differs from the log is not followed through later segments. `_claimed` stays
        # too, since each event can be claimed only once.
        self.low = low
        self.high = high
        self._states = {}
        self._missing = {}

    def state_at(self, sequence: int) -> ExecutionState:
        """Return the recorded state of the execution after the event number `sequence`."""
        return self._positions.state_at(sequence)

    def event(self, sequence: int) -> Event:
        """Return the recorded event with the given number."""
        return self._events[sequence - 1]

    @property
    def state(self) -> ExecutionState:
        """State of the execution as the code of the current path must see it while it runs again.

        Inside a step, the state consists of the claimed events only, because the recorded state may contain later
        events. Between steps, it is the state before the next event of the path.
        """
        state_of_path = self._states.get(self.path)
        if state_of_path is not None and state_of_path.paths[self.path].phase == IN_STEP:
            return state_of_path
        following = self.next_of_path(self.path)
        return self.state_at(self.high if following is None else following - 1)

    def advance(self, path: str, sequence: int) -> None:
        """Update the state that the code of a path sees, because the code has reached event `sequence`: the other paths
        get their recorded state after this event.
        """
        state_of_path = self.state
        if state_of_path.last_sequence < sequence:
            self._states[path] = _with_path(self.state_at(sequence), state_of_path, path)

    def next_of_path(self, path: str) -> int | None:
        """Return the number of the first event of a path that has not been reproduced yet. Only the events before the
        next fork or resumption in the log count. Return None if all of these have been reproduced.
        """
        # Events with an id are claimed in any order, so that the queue may still contain claimed events in its middle.
        # They are dropped when they reach its head.
        remaining = self._unclaimed[path]
        while remaining and remaining[0] in self._claimed:
            remaining.popleft()
        return remaining[0] if remaining and remaining[0] <= self.high else None

    # --- look-ups --------------------------------------------------------------------------------------------------

    def peek(self, key: Key) -> int | None:
        """Return the number of the first event with a key (see `key_of`) that has not been reproduced yet. Only the
        events before the next fork or resumption in the log count. Return None if all of these have been reproduced.
        """
        queue = self._queues.get(key)
        # Events before the segment are skipped: they belong to code that ended when its process did, and that starts
        # again from the state at `low`.
        # An event beyond `high` is left for a later segment.
        while queue and (queue[0] in self._claimed or queue[0] < self.low):
            queue.popleft()
        return queue[0] if queue and queue[0] <= self.high else None

    def next_of(self, operation_id: str) -> tuple[str, int] | None:
        """Return the next event of an operation that the code must reproduce, as its kind and its number; None if all
        have been reproduced.

        The kinds are `BEGIN` (start), `UNKNOWN` (a question about an unknown outcome) and `END`.
        """
        # An operation that was made again has several starts. Its events are therefore taken in the order of their
        # numbers, not in the order begin, unknown, end.
        events = ((self.peek((kind, operation_id)), kind) for kind in (BEGIN, UNKNOWN, END))
        return next(((kind, number) for number, kind in sorted((n, k) for n, k in events if n is not None)), None)

    def ahead(self, path: str, operation_id: str) -> OperationRecord | None:
        """Return the data about an operation that the log contains ahead of the running code: after the end of the
        operation or, if it did not end, after its start. Return None if the code has reproduced both events.
        """
        last = self.peek((END, operation_id)) or self.peek((BEGIN, operation_id))
        open_step = None if last is None else self.state_at(last).paths[path].open
        return None if open_step is None else open_step.operations.get(operation_id)

    def settled_at(self, interrupt_id: str) -> int | None:
        """Return the number of the event that answers or ends a question; None if the log has no such event before its
        next fork or resumption.
        """
        sequence = self._settled.get(interrupt_id)
        return sequence if sequence is not None and sequence <= self.high else None

    def asked_at(self, interrupt_id: str) -> int | None:
        """Return the number of the event that asks a question; None if the log does not contain the question."""
        return self._questions.get(interrupt_id)

    def has_unclaimed(self, path: str) -> bool:
        """Return True if a path has events before the next fork or resumption in the log that have not been reproduced
        yet.
        """
        return self.next_of_path(path) is not None

    async def in_turn(self, path: str, sequence: int) -> None:
        """Wait until all events of a path before event `sequence` have been reproduced, so that concurrent calls end in
        the recorded order.

        The order matters because the first call that fails stops the others. The wait ends after `PATIENCE` iterations
        of the event loop without a claim, because code that differs from the log never claims the earlier events. While
        scripts run, the wait continues: a script may still claim them.
        """
        idle = 0
        # `sleep(0)` lets the other calls of the path run for one iteration of the event loop. A script runs in a
        # thread, which a busy loop would keep from the processor, so that the loop then really sleeps.
        while (following := self.next_of_path(path)) is not None and following < sequence and idle < PATIENCE:
            before = self.claims
            await asyncio.sleep(A_MOMENT if self.computing else 0)
            idle = 0 if self.claims != before or self.computing else idle + 1

    def leave_out(self, path: str, operation_ids: Collection[str], prefix: str) -> None:
        """Leave out the remaining events of operations that the open step of a path has abandoned: those with some ids,
        and those with a key that begins with `prefix`. How far they came before the step left them was chance.
        """
        ids = set(operation_ids)
        remaining = deque[int]()
        is_open = True
        for number in self._unclaimed[path]:
            data = self.event(number).data
            is_open = is_open and number <= self.high and not isinstance(data, _STEP_ENDS)
            operation_id = getattr(data, "operation_id", None)
            # A branch may have begun calls in the recorded run that it does not reach now. Only their starts have keys.
            if isinstance(data, catalog.OperationStarted) and str(data.key).startswith(prefix):
                ids.add(data.operation_id)
            if not is_open or operation_id not in ids:
                remaining.append(number)
        self._unclaimed[path] = remaining

    # --- claiming ----------------------------------------------------------------------------------------------------

    def require_agreement(self, path: str) -> None:
        """Raise `Diverged` again if a path has already differed from the log. The code could have caught the first
        exception.
        """
        if path in self._differing:
            raise Diverged

    def claim(self, data: Payload, path: str, step: str) -> None:
        """Compare a fact (an event payload) that the code produces again with the corresponding event of the log, and
        mark the event as reproduced. Raise `Diverged` if they differ.
        """
        self.require_agreement(path)
        sequence = self._find(data, path)
        # An event of this key may be the change of another variable, or of this one by a later item. Then the fact
        # belongs to an item that parked code has continued, and is recorded before the stretch.
        is_other = sequence is None or (isinstance(data, _SHARED) and not is_same(self.event(sequence).data, data))
        if is_other and self._is_of_parked_item(data, path):
            return
        if sequence is None:
            raise self.note_missing(path, step, data)
        # Facts without an id have a fixed order on their path. If an earlier event of the path is unclaimed, the code
        # has skipped it, and the difference is there. Example: the log has `operation_started` 7 and `step_completed`
        # 9, and the code records only the end of the step: event 7 differs, not event 9.
        following = self.next_of_path(path)
        if key_of(path, data)[0] == TURN and not isinstance(data, _SHARED) and following is not None:
            sequence = min(sequence, following)
        recorded = self.event(sequence)
        # `step_failed` and `path_failed` repeat the error text, so the older wording is kept for the events after this
        # one.
        if has_older_wording(recorded.data, data):
            self._failures[path] = recorded.data.to_data()["error"]
        elif recorded.step != step or not self._is_same(recorded.data, data, path):
            raise self.differ(sequence, path, step, data)
        self.take(sequence)

    def _is_same(self, recorded: Payload, data: Payload, path: str) -> bool:
        """Return True if a fact (an event payload that the code produces again) equals the recorded event. Code
        locations in error messages may differ.
        """
        places = self._places[path]
        # A script that moved by one line fails at "survey.yaml:8:11" instead of "survey.yaml:7:11". The failure event
        # itself has the place in a field of its own (`FREE`), but the error text of the path contains it as well.
        if label := place_label(data):
            places.add((place_label(recorded), label))
        if isinstance(recorded, catalog.PathFailed) and isinstance(data, catalog.PathFailed):
            recorded = replace(recorded, error=without_places(recorded.error, {before for before, _ in places}))
            data = replace(data, error=without_places(data.error, {now for _, now in places}))
        return is_same(recorded, data, self._failures.get(path, ""))

    def _find(self, data: Payload, path: str) -> int | None:
        """Return the number of the recorded event that corresponds to a fact (an event payload that the code produces
        again); None if the log has no such event.

        An event with an id is found by its key. Of the other events of a path, the next event of the same type is
        returned. Concurrent calls record some facts in any order (`_SHARED`). For such a fact, an equal event is
        preferred to the next event of the type; the search ends at the next event that is not in `_SHARED`.
        """
        key = key_of(path, data)
        first = self.peek(key)
        if first is None or key[0] != TURN:
            return first
        same_type: int | None = None
        # Without an id, the queue is that of the whole path, and concurrent calls claim events from its middle.
        for number in self._queues[key]:
            recorded = self.event(number).data
            if number > self.high or number in self._claimed:
                continue
            if type(recorded) is type(data):
                same_type = same_type or number
                if not isinstance(data, _SHARED) or is_same(recorded, data, self._failures.get(path, "")):
                    return number
            elif isinstance(data, _SHARED) and not isinstance(recorded, _SHARED):
                break
        return same_type

    def take(self, sequence: int) -> Event:
        """Mark an event as reproduced without comparing it, and return it."""
        event = self.latest = self.event(sequence)
        self._claimed.add(sequence)
        self.claims += 1
        # Items that have started and not ended are remembered for `_is_of_parked_item`. An item that never ended is
        # forgotten when its path starts the next step.
        self._remember(event)
        match event.data:
            case catalog.IterationStarted():
                self._begin_item(event, event.data)
            case catalog.IterationCompleted() | catalog.IterationFailed():
                self._items.pop((event.path, event.data.iteration_index), None)
            case catalog.StepStarted():
                self._items = {key: item for key, item in self._items.items() if key[0] != event.path}
        return event

    def _remember(self, event: Event) -> None:
        """Update the state that the code of a path sees with an event that was reproduced.

        Between two steps, the path sees the recorded state.
        """
        path = event.path
        if not path:
            return
        # The recorded state before the event has the progress of all other paths; the own path is put into it as its
        # code sees it, so that events that the code has not reached yet do not show.
        before = self.state_at(event.sequence - 1)
        state_of_path = self._states.get(path)
        is_inside = state_of_path is not None and state_of_path.paths[path].phase == IN_STEP
        if is_inside and not isinstance(event.data, catalog.StepCompleted | catalog.StepFailed):
            assert state_of_path is not None  # noqa: S101 - that is what was asked
            self._states[path] = evolve(_with_path(before, state_of_path, path), event)
        else:
            self._states[path] = self.state_at(event.sequence)

    # --- items that start twice --------------------------------------------------------------------------------------

    def _begin_item(self, event: Event, data: catalog.IterationStarted) -> None:
        """Handle the start of an item of `Each`. If the log has more starts of the same item, because it was started
        again after waiting for an answer, mark them as reproduced too.
        """
        path = event.path
        index = data.iteration_index
        change = self._change_after(event)
        self._items[path, index] = event, change
        key = key_of(path, data)
        while (repeated_start := self.peek(key)) is not None and repeated_start < self._end_of_item(path, index):
            self._claimed.add(repeated_start)
            repeated_change = self._change_after(self.event(repeated_start))
            if change is not None and repeated_change is not None and is_same(change, repeated_change):
                self._claimed.add(repeated_start + 1)

    def _end_of_item(self, path: str, index: int) -> int:
        """Return the number of the event at which an item of `Each` ends. If its step ends earlier, return the number
        of that event.
        """
        end = self.peek(("item ended", path, index))
        # Only the end of the step or an event after it is a turn of the path that is not shared. An item that never
        # ended ends there.
        turns = (n for n in self._queues[TURN, path] if n not in self._claimed and n <= self.high)
        steps = (n for n in turns if not isinstance(self.event(n).data, _SHARED))
        return min(end or self.high + 1, next(steps, self.high + 1))

    def _change_after(self, event: Event) -> Payload | None:
        following = self._events[event.sequence : event.sequence + 1]
        facts = (event_after.data for event_after in following if event_after.path == event.path)
        return next((data for data in facts if isinstance(data, catalog.StateMutated)), None)

    def _is_of_parked_item(self, data: Payload, path: str) -> bool:
        """Return True if a fact (an event payload) belongs to an item of `Each` whose code waited in memory for the
        answer of a person. The recorded events of such an item are before the point in the log from which the code runs
        again.

        Code is parked while it waits for a person (`ParkedRuns`). After the answer it continues in memory, but a replay
        starts the item again.
        """
        # `low` is the number of the event that began the segment. An item whose start has a smaller number was running
        # then.
        started = [item for (where, _), item in self._items.items() if where == path and item[0].sequence < self.low]
        if isinstance(data, catalog.IterationStarted):
            return any(is_same(event.data, data) for event, _ in started)
        return any(change is not None and is_same(change, data) for _, change in started)

    # --- differences -------------------------------------------------------------------------------------------------

    def note_missing(self, path: str, step: str, actual: Payload | str) -> Diverged:
        """Remember a fact (an event payload) that the code of a path produces and the log does not have. Return the
        exception that stops the code.

        The fact counts as a difference only if the path leaves events unclaimed.
        """
        following = self.next_of_path(path)
        # Only the first missing fact of a path is kept: the later ones are consequences of it.
        place = self.high + 1 if following is None else following
        self._missing.setdefault(path, ReplayDifference(place, path, step, actual, present_place()))
        return Diverged()

    def differ(self, sequence: int, path: str, step: str, actual: Payload | str | None, line: Any = None) -> Diverged:
        """Remember a difference between a path and its log, and return the exception that stops the code. The
        difference at the earliest event is kept in `first`.
        """
        self._differing.add(path)
        if self.first is None or sequence < self.first.sequence:
            # A line that the code noted itself is more precise than the line at which the fact is recorded.
            self.first = ReplayDifference(sequence, path, step, actual, line or present_place())
        return Diverged()

    def close(self, path: str) -> None:
        """Add a difference if the code of a path has ended before it reproduced all events of the path up to the next
        fork or resumption in the log.
        """
        following = self.next_of_path(path)
        if following is None or path in self._differing:
            return
        # A missing fact is only a difference together with an event that was left over. If the path has reproduced all
        # of its events, the code has just run further than the recorded process did.
        unrecorded = self._missing.get(path)
        actual, line = (None, None) if unrecorded is None else (unrecorded.actual, unrecorded.line)
        self.differ(following, path, self.event(following).step, actual, line)

    @property
    def claimed(self) -> int:
        """Number of events that have been reproduced."""
        return len(self._claimed)


def _with_path(state: ExecutionState, state_of_path: ExecutionState, path: str) -> ExecutionState:
    """Return a copy of a state of an execution in which one path is replaced by the same path of another state."""
    draft = Draft(state)
    draft.add(state_of_path.paths[path])
    return draft.sealed()


# --- services of steps that run against a tape ------------------------------------------------------------------------
#
# Operations get their results from the log, and no external call is made. Only code without external effects runs
# again: scripts, with their recorded clock and randomness, and the code of an agent's turn between its calls.
#
# `TapeLog` replaces the journal. The runtime's operation log, recorder and waits ask `TapeOperations` at the places
# where a verification differs from a normal run. In a normal run these places cost a test for None, or an empty call.


DONE_AGAIN = ENCLOSING | {SCRIPT_EXECUTION}
_OUT_OF_TIME = "TimeoutError"
"""Error class of a script that exceeded its time limit. Such a script does not run again."""


class NoChance:
    """Source of randomness in a verification, which always returns 0. Random values in operations are recorded and
    replayed; no other recorded fact depends on chance.
    """

    def bits(self, count: int) -> int:
        """Return 0 in place of random bits."""
        del count
        return 0


class TapeLog:
    """Replacement for the journal and its clock in a verification. It compares facts (event payloads) with the recorded
    events instead of recording them. The time is that of the event that was reproduced last.
    """

    error: Exception | None = None

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.execution_id = tape.execution_id

    @property
    def clock(self) -> TapeLog:
        """The log itself, which is also the clock."""
        return self

    def now(self) -> int:
        """Return the time of the event that was reproduced last, in microseconds since 1970, UTC."""
        return self._tape.latest.recorded_at

    async def sleep(self, seconds: float) -> None:
        """Sleep for ever: time limits must not expire in a replay, because the log contains each time-out that
        occurred.
        """
        del seconds
        await anyio.sleep_forever()

    @property
    def recorded(self) -> int:
        """Number of the event that was reproduced last. In the journal, which this object replaces, it is the number of
        the last recorded event.
        """
        return self._tape.latest.sequence

    @property
    def state(self) -> ExecutionState:
        """State of the execution as the code of the current path must see it while it runs again."""
        return self._tape.state

    @property
    def present(self) -> ExecutionState:
        """Same as `state`: the state of the execution as the code of the current path must see it."""
        return self._tape.state

    @property
    def moment(self) -> int:
        """Time of the event that was reproduced last, in microseconds since 1970, UTC."""
        return self._tape.latest.recorded_at

    def record(
        self,
        data: Payload,
        path: str = "",
        step: str = "",
        *,
        more: Sequence[Payload] = (),
        may_wait: bool = False,
        now: int | None = None,
    ) -> None:
        """Compare a fact (an event payload), and the facts `more` after it, with the corresponding events of the log.
        The journal, which this object replaces in a verification, would record them. Raise `Diverged` if they differ.
        """
        del may_wait, now
        for fact in (data, *more):
            self._tape.claim(fact, path, step)

    def record_all(self, facts: Sequence[Fact]) -> None:
        """Compare several facts (event payloads), one after the other, with the corresponding events of the log. The
        journal, which this object replaces, would record them. Raise `Diverged` if one differs.
        """
        for fact in facts:
            self.record(fact.data, fact.path, fact.step)

    async def durable(self) -> None:
        """Return at once. A journal waits here until its events are stored; a recorded log is stored already."""

    async def nearly_durable(self) -> None:
        """Return at once, as `durable` does."""

    def require_durable(self) -> None:
        """Return at once: the events are stored already."""

    async def event(self, sequence: int) -> Event:
        """Return the event with the given number from the recorded log."""
        return self._tape.event(sequence)

    def seconds_since(self, moment: int) -> float:
        """Return 0, so that no duration limit is exceeded: the log contains each excess that occurred."""
        del moment
        return 0.0


class TapeOperations:
    """Recorded operations and answers of a verification: every operation gets its recorded result, and none is run.

    The runtime's objects ask it as `OperationLog.verification`, `OperationLog.miss_policy`, `Recorder.call_wrapper` and
    `Waits.before_answer`.

    Attributes
    ----------
    counts
        Number of operations answered from the log, by type; ``question`` counts answered questions.
    """

    def __init__(self, tape: Tape, operations: OperationLog) -> None:
        self._tape = tape
        self._operations = operations
        self.counts: Counter[str] = Counter()
        self._strands: dict[str, tuple[str, str]] = {}
        """Path and position (`STRAND`) of the operations that the code has requested, by id."""

    # --- operations --------------------------------------------------------------------------------------------------

    async def run(self, request: OperationRequest, carry_out: CarryOut, options: CallOptions) -> Any:
        """Return the recorded result of an operation, or raise its recorded error. Code without external effects, such
        as a script, runs again instead.

        1. If the operation ended before this segment or was claimed, its type and parameters must be equal; its record
           has the result.
        2. Code without external effects (`DONE_AGAIN`) runs again, unless it exceeded its time limit.
        3. Every other operation gets its result from the events of the current segment.
        """
        place = request.place
        operation_id = request.operation_id
        self._tape.require_agreement(place.path)
        # `note_request` notes that the code has requested the operation, as in a normal run; `has_history_ahead` counts
        # the others.
        self._operations.note_request(place.path, operation_id)
        self._strands[operation_id] = place.path, STRAND.get()
        record = self._operations.record_of(place, operation_id)
        if record is not None and record.status != PENDING:
            if differs(record, request):
                raise self._start_difference(record.started_sequence, request, options)
            if record.status == COMPLETED:
                return record.result
            if record.status == FAILED:
                raise self._operations.failing(place, record)
        if request.operation_type in DONE_AGAIN and not self._ran_out_of_time(operation_id):
            # A call that was under way when the segment began has a start before it. Its start is then not recorded a
            # second time.
            return await carry_out(record if record is not None and record.status == RUNNING else None)
        return await self._recorded_outcome(request, options, has_begun=record is not None and record.status == RUNNING)

    def abandon(self, path: str, prefix: str) -> None:
        """Leave out what is left of the calls in the branches of a `gather` that has failed. The recorded run may have
        noted the end of such a call, and the start of the next one, before it left the branch.
        """
        strands = self._strands.items()
        ids = [key for key, (place, strand) in strands if place == path and strand.startswith(prefix)]
        self._tape.leave_out(path, ids, prefix)

    def _start_difference(self, sequence: int, request: OperationRequest, options: CallOptions) -> Diverged:
        place = request.place
        setting = options.setting
        actual = catalog.OperationStarted(
            request.operation_id,
            request.operation_type,
            request.parameters,
            request.digest,
            setting=None if setting is None else setting.told,
        )
        return self._tape.differ(sequence, place.path, place.step, actual)

    async def _recorded_outcome(self, request: OperationRequest, options: CallOptions, *, has_begun: bool) -> Any:
        """Return the recorded result of an operation, or raise its recorded error. Mark all its events as
        reproduced.
        """
        place = request.place
        operation_id = request.operation_id
        # Example: a call was started, its process died, a person allowed a second attempt, and that one completed. Its
        # events are begin, unknown, begin, end.
        while (recorded := self._tape.next_of(operation_id)) is not None:
            kind, sequence = recorded
            if kind == BEGIN:
                # A cached response that was lost in a crash: the log has the request to the model after it.
                if self._is_replaced(sequence, request):
                    self._tape.take(sequence)
                else:
                    self._operations.begin(request, None, options.setting, options.within)
                has_begun = True
            elif kind == END:
                await self._tape.in_turn(place.path, sequence)
                return self._finish(request, options, sequence)
            else:
                # A question about its unknown outcome. After it the call may have been made again.
                self._tape.take(sequence)
        if not has_begun:
            self._tape.note_missing(place.path, place.step, str(request))
        # It never returned in the recorded run. So it waits until the other code has reproduced the log up to its next
        # fork or resumption; another call may end the wait earlier.
        return await self._operations.never_return(place)

    def _is_replaced(self, sequence: int, request: OperationRequest) -> bool:
        """Return True if the operation that the event `sequence` starts may start again as the requested operation,
        although its type differs. For example, a cached response may become a request to the model.
        """
        data = self._tape.event(sequence).data
        return (
            isinstance(data, catalog.OperationStarted)
            and data.operation_type != request.operation_type
            and data.parameters_hash in (None, request.digest)
            and may_continue_as(data.operation_type, request.operation_type)
        )

    def _finish(self, request: OperationRequest, options: CallOptions, sequence: int) -> Any:
        data = self._tape.take(sequence).data
        self.counts[request.operation_type] += 1
        record = self._operations.record_of(request.place, request.operation_id)
        assert record is not None  # noqa: S101 - its end was met just now
        if not isinstance(data, catalog.OperationCompleted):
            raise self._operations.failing(request.place, record)
        # The event follows the end directly in the log, so it is claimed here and not by the code that gets the result.
        if options.extra_event is not None:
            self._operations.record(request.place, options.extra_event(data.result))
        return data.result

    def _ran_out_of_time(self, operation_id: str) -> bool:
        end = self._tape.peek((END, operation_id))
        data = None if end is None else self._tape.event(end).data
        return isinstance(data, catalog.OperationFailed) and _OUT_OF_TIME in (data.error_names or ())

    # --- look-ups --------------------------------------------------------------------------------------------------

    def known_at(self, place: Place, record: OperationRecord | None) -> OperationRecord | None:
        """Return the recorded data of the operation at a place, even if the code has not reached its events yet. Return
        None if the log does not contain the operation.

        The code of the operation therefore behaves as after a restart: approval policies are not applied again.
        """
        if record is not None and record.status != PENDING:
            return record
        ahead = self._tape.ahead(place.path, place.operation_id)
        # Without its hash, the setting is not compared by the agent (`TurnCompatibility`), which would fail the turn.
        # The tape compares it, and names the event.
        return record if ahead is None else ahead._replace(setting_hash=None)

    def question_ahead(self, question_id: str) -> Question | None:
        """Return a recorded question that the code has not reached yet, or None if there is none."""
        # A question that was claimed already is not found here, and is in the state that the path sees.
        sequence = self._tape.peek((ASK, question_id))
        return None if sequence is None else self._tape.state_at(sequence).interrupts.get(question_id)

    def has_events_ahead(self, place: Place) -> bool:
        """Return True if the log has further events of the path of a place."""
        return self._tape.has_unclaimed(place.path)

    def difference(self, place: Place, error: DivergenceError) -> Diverged:
        """Return a difference from the log, because the code makes another operation or question at a place than the
        recorded one.
        """
        operations = self._operations
        record = operations.record_of(place, place.operation_id)
        # Without an operation at this place, the log has a question there; else the difference is at the next event of
        # the path.
        recorded = self._tape.asked_at(operations.question_id(place)) if record is None else record.started_sequence
        sequence = recorded or self._tape.next_of_path(place.path) or self._tape.high
        changes = f" ({'; '.join(error.changes)})" if error.changes else ""
        return self._tape.differ(sequence, place.path, place.step, f"{error.requested}{changes}")

    # --- calls ------------------------------------------------------------------------------------------------------

    async def run_call(self, asking: Asking, replay_or_make: RunCall, request: OperationRequest, call: Call) -> Any:
        """Return the recorded result of a call, or raise its recorded error. Version decisions, scripts, and calls with
        a reservation differ here from those of a resumed execution.

        Parameters
        ----------
        asking
            Questions of the recorder, for the check of bounds.
        replay_or_make
            Function of the recorder for a call.
        """
        if request.operation_type == SCRIPT_EXECUTION:
            call = call._replace(make=partial(self._compute, request, call.make))
        is_decision = request.operation_type == VERSION_DECISION
        if (is_decision or call.reserved is not None) and self._operations.known_at(request.place) is None:
            # A version decision is a point where changed code uses the old or the new behaviour. The log passed the
            # place before the definition had the decision. The code computes the version itself, and nothing is
            # compared.
            if is_decision:
                return await call.make()
            # A call without a record was refused by a bound, or had not begun: only then the bound is checked. The
            # question about the bound and its answer, or the refusal, are compared with the log like all others. A call
            # in the log has passed the check, whatever the bounds are now.
            assert call.reserved is not None  # noqa: S101 - the condition above
            await asking.within_bounds(request.place, call.reserved)
        return await replay_or_make(request, call)

    async def _compute(self, request: OperationRequest, make: Callable[[], Awaitable[Any]]) -> Any:
        """Run a script again, but return its result only when the recorded end of the script is next in the order of
        the log.

        The first parallel item that fails ends the step. A script that is faster now than in the recorded run would end
        the step too early (test_items_that_fail_in_parallel_are_verified_in_their_order).
        """
        tape = self._tape
        tape.computing += 1
        try:
            return await make()
        finally:
            # The counter is lowered before the wait below, or two scripts would wait for each other: `in_turn` has no
            # limit while it is above 0.
            tape.computing -= 1
            end = tape.peek((END, request.operation_id))
            if end is not None:
                await tape.in_turn(request.place.path, end)

    # --- questions --------------------------------------------------------------------------------------------------

    def advance(self, path: str, question_id: str) -> None:
        """Move a path to the recorded answer of a question, before the path waits for it. If the log has no answer,
        do nothing: the path then waits until the other code has reproduced the log up to its next fork or resumption.
        """
        settled = self._tape.settled_at(question_id)
        if settled is not None:
            # An answer in an earlier segment was counted there.
            self.counts["question"] += settled >= self._tape.low
            self._tape.advance(path, settled)

    # --- operations without a recorded result: they do not run, and nothing is written -------------------------------

    @property
    def writes(self) -> bool:
        """Return False, because a verification does not write logs of conversations."""
        return False

    @property
    def asks_models(self) -> bool:
        """Return False, because a verification sends no requests to models."""
        return False

    def answer_to(self, request: OperationRequest, options: CallOptions) -> NoAnswer:
        """Return `NoAnswer.REST`, which stops the code, because an operation without a recorded result must not run."""
        del request, options
        return NoAnswer.REST

    def opened(self, workspace: str) -> None:
        """Return None, because a workspace keeps its recorded files in a verification."""

    def settled(self, question: Question) -> None:
        """Return None, because a question keeps its recorded answer in a verification."""

    def child_like(self, request: OperationRequest) -> None:
        """Return None, because no child execution runs in a verification."""

    def setting_of(self, operation_id: str) -> Mapping[str, Any]:
        """Return the recorded setting (model, instructions, tools) of an operation; an empty mapping if none is
        recorded.
        """
        sequence = self._tape.peek((BEGIN, operation_id))
        data = None if sequence is None else self._tape.event(sequence).data
        return getattr(data, "setting", None) or {}
