"""A log to be driven against: each event is found by its place, claimed once, and how it all stood before is known.

No schedule is reproduced. What one path, or one strand of it, does is looked for by place (an operation, an item, a
question), else as the next thing on its path, whatever others did meanwhile. What came from outside is taken as it is.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeAlias

import anyio

from divebook.engine.bounds import Fact
from divebook.engine.changes import Draft
from divebook.engine.evolve import evolve
from divebook.engine.operations import ENCLOSING, SCRIPT_EXECUTION, VERSION_DECISION, Place
from divebook.engine.state import ABOUT_FILES, IN_STEP, ExecutionState, OperationRecord
from divebook.errors import DivergenceError
from divebook.events import Event, catalog
from divebook.events.catalog import COMPLETED, FAILED, PENDING, RUNNING, Payload
from divebook.projections.failures import place_label, without_places
from divebook.questions import Question
from divebook.questions.question import OUTCOME_UNKNOWN, RESOURCE_EXHAUSTED
from divebook.replay.replayer import Positions
from divebook.replay.sameness import has_older_words, is_same
from divebook.runtime.concurrency import Suspended, Waits
from divebook.runtime.errors import present_place
from divebook.runtime.operations import PLAIN, CallOptions, CarryOut, NoAnswer, OperationLog, OperationRequest
from divebook.runtime.recorder import Call, Recorder

OUTSIDE = (
    catalog.ExecutionStarted,
    catalog.ExecutionForked,
    catalog.ExecutionResumed,
    catalog.ExecutionPaused,
    catalog.ExecutionCompleted,
    catalog.ExecutionFailed,
    catalog.ExecutionCancelled,
    catalog.ExecutionMoved,
    catalog.ExecutionPictured,
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
)
"""What no path does: it comes from people, drivers and disks, or is decided for all paths at once."""
OPENINGS = (catalog.ExecutionStarted, catalog.ExecutionForked, catalog.ExecutionResumed)
"""Events with which a stretch begins: before them all code unwinds, and active paths begin anew from there."""
_SHARED = (
    catalog.StateMutated,
    catalog.TimeAccessed,
    catalog.RandomGenerated,
    catalog.VersionDecision,
    catalog.RollbackAdded,
)
"""What several strands of a step may record, without a place of its own."""
_ENDS = (catalog.OperationCompleted, catalog.OperationFailed)
BEGIN = "begin"
END = "end"
UNKNOWN = "unknown"
ASK = "ask"
TURN = "turn"
PATIENCE = 200
"""Turns of the loop in which nothing is claimed, after which an end is given though earlier events were not met."""

A_MOMENT = 0.001
"""Seconds between two looks while scripts run, whose threads need the processor."""

Key: TypeAlias = tuple[Any, ...]


class Diverged(Suspended):
    """Unwinds code that does something else than its log says, or more; nothing that it catches holds this up."""


class ReplayDifference(NamedTuple):
    """Something that a path did otherwise than its log says."""

    sequence: int
    """The event; one more than there are where the log has nothing more."""
    path: str
    step: str
    actual: Payload | str | None
    """What it did; None for nothing."""
    line: Any = None
    """The line of a person's function that did so, where that is known."""


def key_of(path: str, data: Payload) -> Key:
    """Return what an event is found by: its place inside the step, or else its turn on the path."""
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
    """One log, its states, and what has been claimed of it.

    Parameters
    ----------
    events
        The whole log, from event 1 on.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self.execution_id = events[0].execution_id
        self.low, self.high = 0, len(events)
        """The first and last event of the present stretch."""
        self.path = ""
        """The path that is driven."""
        self.claims = 0
        """How many events were claimed, one after the other."""
        self.computing = 0
        """How many scripts run just now, in threads."""
        self.first: ReplayDifference | None = None
        """The earliest difference."""
        self.latest = events[0]
        """The event that was claimed last."""
        self._events, self._positions = events, Positions.of(events)
        self._queues: defaultdict[Key, deque[int]] = defaultdict(deque)
        self._left: defaultdict[str, deque[int]] = defaultdict(deque)
        """By path: the events that it is to come to."""
        self._settled: dict[str, int] = {}
        """By question: the event that settled it."""
        self._asked: dict[str, int] = {}
        self._claimed: set[int] = set()
        self._known: dict[str, ExecutionState] = {}
        """By path: how things stand for the code of its step."""
        self._differing: set[str] = set()
        self._wanted: dict[str, ReplayDifference] = {}
        """By path: the first thing that its code did and the log does not have."""
        self._failures: dict[str, str] = {}
        """By path: what a script raised that the log tells of in older words; they run on through what follows."""
        self._places: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        """By path: the lines that its failures name, as recorded and as they are now."""
        self._items: dict[tuple[str, int], tuple[Event, Payload | None]] = {}
        """Items that were begun and have not ended, with the change of their variable that followed."""
        for event in events:
            self._enter(event)

    def _enter(self, event: Event) -> None:
        data = event.data
        number = event.sequence
        if isinstance(data, catalog.InterruptResolved | catalog.InterruptExpired):
            self._settled[data.interrupt_id] = number
        if isinstance(data, OUTSIDE) or (isinstance(data, catalog.EventEmitted) and data.operation_id is None):
            return  # an event that a call emits, which is not made again
        if isinstance(data, catalog.InterruptRaised) and (data.operation_id or "").startswith(ABOUT_FILES):
            return  # what a disk held has led to it (test_files_that_somebody_else_has_changed_are_asked_about)
        self._queues[key_of(event.path, data)].append(number)
        if isinstance(data, catalog.InterruptRaised):
            self._asked[data.interrupt_id] = number
        if not self._follows_from_others(event):
            self._left[event.path].append(number)

    def _follows_from_others(self, event: Event) -> bool:
        """Whether a step is held up by a bound: what all paths had spent at that moment has led to it."""
        data = event.data
        if not isinstance(data, catalog.InterruptRaised | catalog.InterruptJoined):
            return False
        kind = data.kind if isinstance(data, catalog.InterruptRaised) else RESOURCE_EXHAUSTED
        return kind == RESOURCE_EXHAUSTED and self.state_at(event.sequence - 1).paths[event.path].phase == IN_STEP

    # --- where it stands -------------------------------------------------------------------------------------------

    def begin(self, low: int, high: int) -> None:
        """Come to a stretch, in which everything begins anew."""
        self.low = low
        self.high = high
        self._known = {}
        self._wanted = {}

    def state_at(self, sequence: int) -> ExecutionState:
        """Return the state after an event."""
        return self._positions.state_at(sequence)

    def event(self, sequence: int) -> Event:
        """Return one event."""
        return self._events[sequence - 1]

    @property
    def state(self) -> ExecutionState:
        """How things stand for the code of the path that is driven.

        Inside a step that is what its strands have claimed: the log's own state knows what they do later. Elsewhere it
        is the state before the next event of the path.
        """
        known = self._known.get(self.path)
        if known is not None and known.paths[self.path].phase == IN_STEP:
            return known
        following = self.next_of_path(self.path)
        return self.state_at(self.high if following is None else following - 1)

    def advance(self, path: str, sequence: int) -> None:
        """Let the code of a path know what the others have done up to an event."""
        known = self.state
        if known.last_sequence < sequence:
            self._known[path] = _with_path(self.state_at(sequence), known, path)

    def next_of_path(self, path: str) -> int | None:
        """Return the first event of the stretch that a path is to come to, and has not."""
        left = self._left[path]
        while left and left[0] in self._claimed:
            left.popleft()
        return left[0] if left and left[0] <= self.high else None

    # --- what it has -----------------------------------------------------------------------------------------------

    def peek(self, key: Key) -> int | None:
        """Return the next event of a place in the stretch."""
        queue = self._queues.get(key)
        while queue and (queue[0] in self._claimed or queue[0] < self.low):
            queue.popleft()
        return queue[0] if queue and queue[0] <= self.high else None

    def next_of(self, operation_id: str) -> tuple[str, int] | None:
        """Return what the stretch has next of an operation, and where: its beginning, a question about it, its end."""
        found = ((self.peek((kind, operation_id)), kind) for kind in (BEGIN, UNKNOWN, END))
        return next(((kind, number) for number, kind in sorted((n, k) for n, k in found if n is not None)), None)

    def ahead(self, path: str, operation_id: str) -> OperationRecord | None:
        """Return what the stretch will have had of an operation, as long as nothing of it was claimed."""
        last = self.peek((END, operation_id)) or self.peek((BEGIN, operation_id))
        opened = None if last is None else self.state_at(last).paths[path].open
        return None if opened is None else opened.operations.get(operation_id)

    def settled_at(self, interrupt_id: str) -> int | None:
        """Return the event that settles a question in the stretch, or has settled it before."""
        sequence = self._settled.get(interrupt_id)
        return sequence if sequence is not None and sequence <= self.high else None

    def asked_at(self, interrupt_id: str) -> int | None:
        """Return the event that asks a question."""
        return self._asked.get(interrupt_id)

    def has_left(self, path: str) -> bool:
        """Whether the log has more of the step that a path is in: further calls or questions, or its end."""
        return self.next_of_path(path) is not None

    async def in_turn(self, path: str, sequence: int) -> None:
        """Return when all that a path is to come to before an event was claimed: strands end in the order of the log.

        Which of them fails first decides what becomes of the others. Nothing waits for what is never met, but scripts
        that still run are waited for, as they may meet it.
        """
        idle = 0
        while (following := self.next_of_path(path)) is not None and following < sequence and idle < PATIENCE:
            before = self.claims
            await asyncio.sleep(A_MOMENT if self.computing else 0)
            idle = 0 if self.claims != before or self.computing else idle + 1

    # --- claiming ----------------------------------------------------------------------------------------------------

    def require_agreement(self, path: str) -> None:
        """Raise `Diverged` where a path has left the log already: whatever its code does about it, it stays so."""
        if path in self._differing:
            raise Diverged

    def claim(self, data: Payload, path: str, step: str) -> None:
        """Compare a fact with what the log has in its place; raise `Diverged` where that is something else."""
        self.require_agreement(path)
        sequence = self._find(data, path)
        # The first change of another variable, or of this one by a later item, is not that of an item that stands.
        is_other = sequence is None or (isinstance(data, _SHARED) and not is_same(self.event(sequence).data, data))
        if is_other and self._stands_already(data, path):
            return
        if sequence is None:
            raise self.want(path, step, data)
        following = self.next_of_path(path)
        if key_of(path, data)[0] == TURN and not isinstance(data, _SHARED) and following is not None:
            sequence = min(sequence, following)
        recorded = self.event(sequence)
        if has_older_words(recorded.data, data):
            self._failures[path] = recorded.data.to_data()["error"]
        elif recorded.step != step or not self._is_same(recorded.data, data, path):
            raise self.differ(sequence, path, step, data)
        self.take(sequence)

    def _is_same(self, recorded: Payload, data: Payload, path: str) -> bool:
        """Return whether a fact is as recorded, apart from the lines of code that failures name."""
        places = self._places[path]
        if label := place_label(data):
            places.add((place_label(recorded), label))
        if isinstance(recorded, catalog.PathFailed) and isinstance(data, catalog.PathFailed):
            recorded = replace(recorded, error=without_places(recorded.error, {before for before, _ in places}))
            data = replace(data, error=without_places(data.error, {now for _, now in places}))
        return is_same(recorded, data, self._failures.get(path, ""))

    def _find(self, data: Payload, path: str) -> int | None:
        key = key_of(path, data)
        first = self.peek(key)
        if first is None or key[0] != TURN:
            return first
        same_type: int | None = None
        for number in self._queues[key]:
            found = self.event(number).data
            if number > self.high or number in self._claimed:
                continue
            if type(found) is type(data):
                same_type = same_type or number
                if not isinstance(data, _SHARED) or is_same(found, data, self._failures.get(path, "")):
                    return number
            elif isinstance(data, _SHARED) and not isinstance(found, _SHARED):
                break
        return same_type

    def take(self, sequence: int) -> Event:
        """Claim an event as it is recorded."""
        event = self.latest = self.event(sequence)
        self._claimed.add(sequence)
        self.claims += 1
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
        """Fold what was claimed; a path between two steps stands as the log says."""
        path = event.path
        if not path:
            return
        before = self.state_at(event.sequence - 1)
        known = self._known.get(path)
        is_inside = known is not None and known.paths[path].phase == IN_STEP
        if is_inside and not isinstance(event.data, catalog.StepCompleted | catalog.StepFailed):
            assert known is not None  # noqa: S101 - that is what was asked
            self._known[path] = evolve(_with_path(before, known, path), event)
        else:
            self._known[path] = self.state_at(event.sequence)

    # --- items that begin twice --------------------------------------------------------------------------------------

    def _begin_item(self, event: Event, data: catalog.IterationStarted) -> None:
        """Pass over the further beginnings of an item: it waited, and began anew when there was an answer."""
        path = event.path
        index = data.iteration_index
        change = self._change_after(event)
        self._items[path, index] = event, change
        key = key_of(path, data)
        while (again := self.peek(key)) is not None and again < self._end_of_item(path, index):
            self._claimed.add(again)
            repeated = self._change_after(self.event(again))
            if change is not None and repeated is not None and is_same(change, repeated):
                self._claimed.add(again + 1)

    def _end_of_item(self, path: str, index: int) -> int:
        """Return the event before which an item has not ended, nor its step."""
        ended = self.peek(("item ended", path, index))
        turns = (n for n in self._queues[TURN, path] if n not in self._claimed and n <= self.high)
        steps = (n for n in turns if not isinstance(self.event(n).data, _SHARED))
        return min(ended or self.high + 1, next(steps, self.high + 1))

    def _change_after(self, event: Event) -> Payload | None:
        following = self._events[event.sequence : event.sequence + 1]
        own = (found.data for found in following if found.path == event.path)
        return next((data for data in own if isinstance(data, catalog.StateMutated)), None)

    def _stands_already(self, data: Payload, path: str) -> bool:
        """Return whether parked code has continued an item that a replay starts again (`ParkedRuns`)."""
        begun = [item for (where, _), item in self._items.items() if where == path and item[0].sequence < self.low]
        if isinstance(data, catalog.IterationStarted):
            return any(is_same(event.data, data) for event, _ in begun)
        return any(change is not None and is_same(change, data) for _, change in begun)

    # --- differences -------------------------------------------------------------------------------------------------

    def want(self, path: str, step: str, actual: Payload | str) -> Diverged:
        """Note what code does and the log does not have: a difference only if the path comes to something else."""
        following = self.next_of_path(path)
        place = self.high + 1 if following is None else following
        self._wanted.setdefault(path, ReplayDifference(place, path, step, actual, present_place()))
        return Diverged()

    def differ(self, sequence: int, path: str, step: str, actual: Payload | str | None, line: Any = None) -> Diverged:
        """Note a difference: the earliest one stays, whatever a step's own code does about it."""
        self._differing.add(path)
        if self.first is None or sequence < self.first.sequence:
            self.first = ReplayDifference(sequence, path, step, actual, line or present_place())
        return Diverged()

    def close(self, path: str) -> None:
        """Note what a path was to come to in the stretch, and did not."""
        following = self.next_of_path(path)
        if following is None or path in self._differing:
            return
        wanted = self._wanted.get(path)
        actual, line = (None, None) if wanted is None else (wanted.actual, wanted.line)
        self.differ(following, path, self.event(following).step, actual, line)

    @property
    def claimed(self) -> int:
        """How many events were met."""
        return len(self._claimed)


def _with_path(state: ExecutionState, known: ExecutionState, path: str) -> ExecutionState:
    """Return a state in which one path stands as another state has it."""
    draft = Draft(state)
    draft.add(known.paths[path])
    return draft.sealed()


# What the code of steps is given where its log is driven again: operations answered from that log, and none made.
#
# Only what has no effect outside is done again: scripts, over their recorded clock and chance, and what a turn of an
# agent does between its calls.


DONE_AGAIN = ENCLOSING | {SCRIPT_EXECUTION}
_OUT_OF_TIME = "TimeoutError"
"""Class of the error of a script that took too long, which is not tried again."""


class TapeClock:
    """Stands still at the event that was met last: what asks for time outside an operation takes what is recorded."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def now(self) -> int:
        """Return microseconds since 1970, UTC."""
        return self._tape.latest.recorded_at

    async def sleep(self, seconds: float) -> None:
        """Let no time limit ring: the log says what took too long."""
        del seconds
        await anyio.sleep_forever()


class NoChance:
    """Chance that nothing depends on: where it counts, it is an operation."""

    def bits(self, count: int) -> int:
        """Return no bits."""
        del count
        return 0


class TapeLog:
    """Stands in for the log of code that is driven again: what it records is compared."""

    error: Exception | None = None

    def __init__(self, tape: Tape) -> None:
        self._tape, self.clock = tape, TapeClock(tape)
        self.execution_id = tape.execution_id

    @property
    def recorded(self) -> int:
        """Number of the event that was met last."""
        return self._tape.latest.sequence

    @property
    def state(self) -> ExecutionState:
        """How things stand for the code that is driven."""
        return self._tape.state

    @property
    def present(self) -> ExecutionState:
        """The same."""
        return self._tape.state

    @property
    def moment(self) -> int:
        """When the event that was met last was recorded."""
        return self._tape.latest.recorded_at

    def record(self, data: Payload, path: str = "", step: str = "", *, may_wait: bool = False) -> None:
        """Compare a fact with the log; raises `Diverged`."""
        del may_wait
        self._tape.claim(data, path, step)

    def record_all(self, facts: Sequence[Fact]) -> None:
        """Compare several."""
        for fact in facts:
            self.record(fact.data, fact.path, fact.step)

    async def durable(self) -> None:
        """Return: it is written."""

    async def event(self, sequence: int) -> Event:
        """Return one event."""
        return self._tape.event(sequence)

    def seconds_since(self, moment: int) -> float:
        """Return no time: what took too long is recorded."""
        del moment
        return 0.0


class RunMisses:
    """What the log of an execution does not have is not made, and no book or rule outside it is written to."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    @property
    def writes(self) -> bool:
        """Return False."""
        return False

    @property
    def asks_models(self) -> bool:
        """Return False."""
        return False

    def answer(self, wanted: OperationRequest, beside: CallOptions) -> NoAnswer:
        """Let code rest there."""
        del wanted, beside
        return NoAnswer.REST

    def opened(self, workspace: str) -> None:
        """Return nothing: the log has the workspaces that it has."""

    def settled(self, asked: Question) -> None:
        """Answer no question in place of its own recorded answer."""

    def child_like(self, wanted: OperationRequest) -> None:
        """Return nothing: no other workflow runs."""

    def setting_of(self, operation_id: str) -> Mapping[str, Any]:
        """Return what an operation was made with."""
        begun = self._tape.peek((BEGIN, operation_id))
        data = None if begun is None else self._tape.event(begun).data
        return getattr(data, "setting", None) or {}


class AnsweredOnce(OperationLog):
    """The one look-up of operations, over a log that is only compared with.

    Attributes
    ----------
    answered
        How many operations the log has answered, by type.
    """

    def __init__(self, journal: TapeLog, tape: Tape, waits: Waits) -> None:
        super().__init__(journal, RunMisses(tape))
        self.tape = tape
        self._waits = waits
        self.answered: Counter[str] = Counter()

    @staticmethod
    def only_settles(state: ExecutionState, place: Place) -> bool:
        """Return False: what began, and what nobody began, the log says."""
        del state, place
        return False

    def enter(self, path: str, *, is_new: bool) -> None:
        """Look everything up, also of a step that begins: the log may have it."""
        del is_new
        super().enter(path, is_new=False)

    # --- operations --------------------------------------------------------------------------------------------------

    def run(
        self, wanted: OperationRequest, carry_out: CarryOut, beside: CallOptions = PLAIN
    ) -> Coroutine[Any, Any, Any]:
        """Return what awaits the recorded result of an operation; see `OperationLog.run`."""
        return self._from_log(wanted, carry_out, beside)

    async def _from_log(self, wanted: OperationRequest, carry_out: CarryOut, beside: CallOptions) -> Any:
        place = wanted.place
        operation_id = wanted.operation_id
        self.tape.require_agreement(place.path)
        self._meet(place.path, operation_id)
        known = self.record_of(place, operation_id)
        if known is not None and known.status != PENDING:
            if known.operation_type != wanted.operation_type or known.parameters_hash not in (None, wanted.digest):
                raise self._otherwise(known.started_sequence, wanted, beside)
            if known.status == COMPLETED:
                return known.result
            if known.status == FAILED:
                raise self.failing(place, known)
        if wanted.operation_type in DONE_AGAIN and not self._ran_out_of_time(operation_id):
            return await carry_out(known if known is not None and known.status == RUNNING else None)
        return await self._answer(wanted, beside, has_begun=known is not None and known.status == RUNNING)

    def _otherwise(self, sequence: int, wanted: OperationRequest, beside: CallOptions) -> Diverged:
        place = wanted.place
        setting = beside.setting
        begun = catalog.OperationStarted(
            wanted.operation_id,
            wanted.operation_type,
            wanted.parameters,
            wanted.digest,
            setting=None if setting is None else setting.told,
        )
        return self.tape.differ(sequence, place.path, place.step, begun)

    async def _answer(self, wanted: OperationRequest, beside: CallOptions, *, has_begun: bool) -> Any:
        """Go through all that the stretch has of an operation; return what it came to, or raise that."""
        place = wanted.place
        operation_id = wanted.operation_id
        while (found := self.tape.next_of(operation_id)) is not None:
            what, sequence = found
            if what == BEGIN:
                self.begin(wanted, None, beside.setting, beside.within)
                has_begun = True
            elif what == END:
                await self.tape.in_turn(place.path, sequence)
                return self._ended(wanted, beside, sequence)
            else:
                self.tape.take(sequence)  # what became of it was asked, and after that it may have been made again
        if not has_begun:
            self.tape.want(place.path, place.step, str(wanted))
        return await self._never(place)

    def _ended(self, wanted: OperationRequest, beside: CallOptions, sequence: int) -> Any:
        data = self.tape.take(sequence).data
        self.answered[wanted.operation_type] += 1
        record = self.record_of(wanted.place, wanted.operation_id)
        assert record is not None  # noqa: S101 - its end was met just now
        if not isinstance(data, catalog.OperationCompleted):
            raise self.failing(wanted.place, record)
        if beside.extra_event is not None:
            self.record(wanted.place, beside.extra_event(data.result))
        return data.result

    async def _never(self, place: Place) -> NoReturn:
        """Wait as a call does that did not return before the log ended: others go on, and may have it unwound."""
        await self._waits.until(place.path, lambda: False)
        raise Suspended

    def _ran_out_of_time(self, operation_id: str) -> bool:
        ended = self.tape.peek((END, operation_id))
        data = None if ended is None else self.tape.event(ended).data
        return isinstance(data, catalog.OperationFailed) and _OUT_OF_TIME in (data.error_names or ())

    # --- what code asks of the log ---------------------------------------------------------------------------------

    def known_at(self, place: Place) -> OperationRecord | None:
        """Return what the log has of the operation at a place, also where the code has still to come to it.

        So code that does otherwise where the log has something does as after a restart: no policy is asked again.
        """
        known = self.record_of(place, place.operation_id)
        operation_id = place.operation_id
        if known is not None and known.status != PENDING:
            return known
        ahead = self.tape.ahead(place.path, operation_id)
        return known if ahead is None else ahead._replace(setting_hash=None)

    def question_at(self, place: Place) -> Question | None:
        """Return the question at a place, also where the code has still to come to it."""
        asked = self.tape.peek((ASK, self.question_id(place)))
        if asked is None:
            return super().question_at(place)
        return self.tape.state_at(asked).interrupts.get(self.question_id(place))

    def has_history_ahead(self, place: Place) -> bool:
        """Whether the log goes on in this step."""
        return self.tape.has_left(place.path) or super().has_history_ahead(place)

    def is_known(self, wanted: OperationRequest) -> bool:
        """Whether the log has an operation in the stretch, or before it."""
        return self.known_at(wanted.place) is not None

    def _refuse(self, place: Place, error: DivergenceError) -> NoReturn:
        """Note that a question, or a call in its place, is not that of the log."""
        record = self.record_of(place, place.operation_id)
        asked = self.tape.asked_at(self.question_id(place)) if record is None else record.started_sequence
        sequence = asked or self.tape.next_of_path(place.path) or self.tape.high
        changes = f" ({'; '.join(error.changes)})" if error.changes else ""
        raise self.tape.differ(sequence, place.path, place.step, f"{error.requested}{changes}") from error


class AnsweredWaits(Waits):
    """Waits for what the log says: recorded answers are there at once."""

    def __init__(self, journal: TapeLog, tape: Tape) -> None:
        super().__init__(journal)
        self._tape = tape
        self.answered = 0
        """How many questions the log has answered."""

    async def answer(self, path: str, interrupt_id: str) -> Question:
        """Return a question with its recorded answer; without one its code waits, and what comes after it is cut."""
        settled = self._tape.settled_at(interrupt_id)
        if settled is not None:
            self.answered += settled >= self._tape.low
            self._tape.advance(path, settled)
        return await super().answer(path, interrupt_id)


class AnsweredRecorder(Recorder):
    """What a step asks for that is not deterministic, answered from its log."""

    operations: AnsweredOnce

    def run(self, wanted: OperationRequest, call: Call) -> Coroutine[Any, Any, Any]:
        """Return what awaits the recorded result of a call; see `Recorder.run`."""
        if wanted.operation_type == VERSION_DECISION and not self.operations.is_known(wanted):
            return self._decided(call)
        if wanted.operation_type == SCRIPT_EXECUTION:
            call = call._replace(make=partial(self._compute, wanted, call.make))
        if call.reserved is not None and not self.operations.is_known(wanted):
            return self._within_bounds(wanted, call)
        return super().run(wanted, call)

    async def _compute(self, wanted: OperationRequest, make: Callable[[], Awaitable[Any]]) -> Any:
        """Run a script again; its end waits for its turn, as recorded ends do.

        Of items in parallel, the first to fail ends the step, so a script that is faster now would end it too early
        (test_items_that_fail_in_parallel_are_verified_in_their_order).
        """
        tape = self.operations.tape
        tape.computing += 1
        try:
            return await make()
        finally:
            tape.computing -= 1
            ended = tape.peek((END, wanted.operation_id))
            if ended is not None:
                await tape.in_turn(wanted.place.path, ended)

    async def _decided(self, call: Call) -> Any:
        """Return which version is followed where the log was past that place before there was a choice."""
        return await call.make()

    async def _within_bounds(self, wanted: OperationRequest, call: Call) -> Any:
        """Let a bound refuse the call that it has refused: the log has nothing else of it."""
        assert call.reserved is not None  # noqa: S101 - that is what was asked
        await self.asking.within_bounds(wanted.place, call.reserved)
        return await super().run(wanted, call)
