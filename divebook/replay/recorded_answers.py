"""How a what-if answers what its log does not have: from the log of its source, and from the world as little as may be.

In this order: with a recorded end of the same call; by its kind, since scripts are computed, sleeps skipped,
and clock and chance go on from those of the source; a model is asked; what else reaches outside is not
executed, unless the what-if says that it may. What was given out stands in the what-if's own log, so that one that was
killed goes on where it was (test_a_what_if_that_is_killed_anywhere_comes_to_the_same).

A later request of an agent says only what is new in it. So it is answered from the same turn of the source as the
requests before it, and once anything in a turn came from elsewhere, models are asked in that turn.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from divebook.engine.operations import (
    AGENT_RESPONSE,
    AGENT_STEP,
    CACHED_RESPONSE,
    CHILD_WORKFLOW,
    DOCUMENT_READ,
    DYNAMIC_CONTENT,
    ENCLOSING,
    RANDOM_GENERATION,
    SCRIPT_EXECUTION,
    SIGNAL_WAIT,
    STAGE_ATTEMPT,
    TIME_ACCESS,
    TIMER,
    TOOL_CALL,
    VERDICT,
    VERSION_DECISION,
)
from divebook.engine.state import undone_in
from divebook.events import catalog
from divebook.events.codec import canonical_hash
from divebook.events.event import Event
from divebook.events.values import normalize
from divebook.questions import Question
from divebook.runtime.clock import Clock
from divebook.runtime.forks import made_again
from divebook.runtime.operations import (
    CallOptions,
    NoAnswer,
    OperationRequest,
    PolicyAnswer,
    Settled,
    WhatIfSource,
    WorkspaceRef,
)

# What a log can answer calls and questions with: each recorded end once, that of the same place first. Pure.
#
# Two calls are the same if type, name and arguments are: in any order of keys, and 1 as 1.0. A key that is absent is
# not one that is null, since a function may have another default. Of equal calls that of the same place is answered
# first, and else the oldest: oldest first alone would give parallel paths each other's results
# (test_equal_calls_on_parallel_paths_keep_their_own_results).


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
        told = [parameters, setting]
        operation_type = AGENT_RESPONSE
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
                asked[data.operation_id] = own
                within[data.operation_id] = data.within
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


# What a log has of files: which its calls found, what they have changed, with which workspaces began. Pure.


class RecordedFiles:
    """What a log has of files behind one of its events.

    Parameters
    ----------
    events
        All of it.
    after
        Number of the event behind which it answers.
    """

    def __init__(self, events: Iterable[Event], after: int) -> None:
        self.changed: dict[int, list[catalog.FilesChanged]] = {}
        """What a call has changed, by the event with which it ended. What was changed from outside counts as done by
        the call before: the calls behind it have found it so."""
        self.opened: dict[str, catalog.WorkspaceOpened] = {}
        """With which files each workspace has begun behind `after`."""
        self._found: dict[int, dict[str, set[str | None]]] = {}
        """Digests of the files of workspaces while a call was under way, by the event with which it ended."""
        trees: dict[str, str | None] = {}
        under_way: dict[str, dict[str, set[str | None]]] = {}
        ended: dict[str, int] = {}
        latest = 0
        for event in events:
            match event.data:
                case catalog.WorkspaceOpened() as data:
                    trees[data.workspace] = data.tree
                    if event.sequence > after and data.files is not None:
                        self.opened.setdefault(data.workspace, data)
                case catalog.FilesChanged() as data:
                    trees[data.workspace] = data.after
                    for seen in under_way.values():
                        seen.setdefault(data.workspace, set()).add(data.after)
                    self.changed.setdefault(ended.get(data.operation_id or "", latest), []).append(data)
                case catalog.OperationStarted() as data if trees:
                    under_way[data.operation_id] = {name: {tree} for name, tree in trees.items()}
                case catalog.OperationCompleted() | catalog.OperationFailed() as data:
                    latest = ended[data.operation_id] = event.sequence
                    if trees:
                        self._found[latest] = under_way.pop(data.operation_id, {})

    def fitting(self, inside: WorkspaceRef) -> Callable[[RecordedEnd], bool]:
        """Return what says whether a call found the files that are in a workspace now."""
        name = inside.name
        tree = inside.tree()
        return lambda end: tree in self._found.get(end.sequence, {}).get(name, {None})


RECORDED = "recorded"
READ_ONLY = "read-only"
LIVE = "live"
TOOLS = (RECORDED, READ_ONLY, LIVE)
"""Which actions and tools a what-if may execute: none, those declared so, all."""
BLOCKED = "not executed in a what-if: no recorded result for these arguments"
IN_A_TRIAL = BLOCKED.replace("what-if", "trial")

COMPUTED = ENCLOSING | {SCRIPT_EXECUTION, VERDICT, STAGE_ATTEMPT}
"""What has no effect outside, and is answered in what it calls."""
_CONVERSATION = REQUESTS | {TOOL_CALL}
"""What later requests of a turn depend on."""

ReadsOnly = Callable[[OperationRequest], bool]
"""Whether a call is declared to change nothing."""


class RecordedAnswers:
    """Answers the operations of one what-if; see `divebook.runtime.operations.MissPolicy`.

    Parameters
    ----------
    source
        The whole log of the execution that it was forked from.
    own
        Its own log, with what it shares with its source, up to now.
    forked
        The event of that log with which it began.
    reads_only
        Asked of calls that no log has, where only what changes nothing may be executed.
    clock
        That of the environment.
    rests
        Whether code rests where something would be executed, for a plan of it.
    """

    def __init__(
        self,
        source: Iterable[Event],
        own: Iterable[Event],
        forked: Event,
        reads_only: ReadsOnly,
        clock: Clock,
        *,
        rests: bool = False,
    ) -> None:
        begun = forked.data
        assert isinstance(begun, catalog.ExecutionForked)  # noqa: S101 - the only event that begins one
        events = list(source)
        self.pool = RecordedEnds(begun.source, events, begun.at)
        self._tools = begun.tools or RECORDED
        self._reads_only = reads_only
        self._clock = clock
        self._rests = rests
        self._settings, self._children = _settings(events), _children(events)
        self._files = RecordedFiles(events, begun.at)
        self._seed = begun.seed or forked.execution_id
        self._since = forked.recorded_at
        self._moment = events[begun.at - 1].recorded_at if begun.at else 0
        self._is_trial = begun.came_from == catalog.TRIAL
        self._blocked = IN_A_TRIAL if self._is_trial else BLOCKED
        self._turns: dict[str, int | None] = {}
        """By id of a turn: the event with which that turn of the source began that it is answered from; None where
        something in it came from elsewhere."""
        self._take_up(own, begun)
        self.unanswered: list[OperationRequest] = []
        """What code rests at."""

    @property
    def writes(self) -> bool:
        """Whether what is said in books outside its log is written: a what-if does not."""
        return False

    @property
    def asks_models(self) -> bool:
        """Whether requests that have no answer go to their models: not in a rehearsal."""
        return not self._rests

    # --- answering -------------------------------------------------------------------------------------------------

    def answer(self, wanted: OperationRequest, beside: CallOptions) -> PolicyAnswer | NoAnswer:
        """Return what becomes of an operation."""
        kind = wanted.operation_type
        if kind in COMPUTED:
            return NoAnswer.LIVE
        if kind == TIMER:
            return PolicyAnswer(_end(wanted, None))
        if kind in (TIME_ACCESS, RANDOM_GENERATION):
            return self._continued(wanted)
        found = self._found(wanted, beside)
        if found is not None:
            return self._served(found)
        if self._may_run(wanted):
            return self._live(wanted)
        if kind == TOOL_CALL and beside.done is not None:  # its model is to hear of it, and may do something else
            return PolicyAnswer(_end(wanted, beside.done(self._blocked)), {"blocked": self._blocked})
        failed = catalog.OperationFailed(wanted.operation_id, kind, error=self._blocked)
        return PolicyAnswer(failed, {"blocked": self._blocked})

    def settled(self, asked: Question) -> Settled | None:
        """Return the recorded answer to the same question, under its id."""
        content = asked.content
        told = question_asked(content["kind"], content["question"], *map(content.get, ("message", "data", "schema")))
        found = self.pool.take(asked.id, told)
        if found is None:
            return None
        assert isinstance(found.data, catalog.InterruptResolved | catalog.InterruptExpired)  # noqa: S101 - a question's
        return replace(found.data, interrupt_id=asked.id, message=None, served=self._told(found))

    def opened(self, workspace: str) -> catalog.WorkspaceOpened | None:
        """Return with which files the source has begun a workspace, behind the event from which on it is left."""
        return self._files.opened.get(workspace)

    def child_like(self, wanted: OperationRequest) -> WhatIfSource | None:
        """Return the execution of another workflow that the source began at a place, else the first one of that name.

        With the inputs that it had there its outcome is taken whole; with others it is a what-if itself
        (test_another_workflow_with_other_inputs_is_a_what_if_itself).
        """
        named: dict[str, str] = self._children.get(wanted.parameters["workflow"], {})
        found = named.get(wanted.operation_id) or next(iter(named.values()), None)
        return None if found is None else WhatIfSource(found, self._tools)

    def setting_of(self, operation_id: str) -> Mapping[str, Any]:
        """Return what an operation of the source was made with at that place."""
        return self._settings.get(operation_id, {})

    def _told(self, found: RecordedEnd) -> Mapping[str, Any]:
        return {"execution": self.pool.execution_id, "sequence": found.sequence}

    def _live(self, wanted: OperationRequest) -> NoAnswer:
        if not self._rests:
            return NoAnswer.LIVE
        self.unanswered.append(wanted)
        return NoAnswer.REST

    def _may_run(self, wanted: OperationRequest) -> bool:
        """Return whether a call may be carried out of which the source has nothing."""
        kind = wanted.operation_type
        parameters = wanted.parameters
        if kind == CHILD_WORKFLOW:
            return self.child_like(wanted) is not None  # else it would be a plain run, whose calls nobody answers
        if self._tools == LIVE or kind in REQUESTS or kind in (SIGNAL_WAIT, DOCUMENT_READ, VERSION_DECISION):
            return True
        if kind == DYNAMIC_CONTENT:
            return "script" in parameters  # in the sandbox; else it is a program
        if kind == AGENT_STEP:
            return "operation" not in parameters  # the arguments of a call are checked
        return self._tools == READ_ONLY and self._reads_only(wanted)

    # --- from the source -------------------------------------------------------------------------------------------

    def _found(self, wanted: OperationRequest, beside: CallOptions) -> RecordedEnd | None:
        is_request = wanted.operation_type in REQUESTS
        return self._request(wanted, beside) if is_request else self._call(wanted, beside)

    def _served(self, found: RecordedEnd) -> PolicyAnswer:
        assert isinstance(found.data, catalog.OperationCompleted | catalog.OperationFailed)  # noqa: S101 - a call's
        return PolicyAnswer(found.data, self._told(found), self._files.changed.get(found.sequence, ()))

    def recorded_at(self, wanted: OperationRequest) -> RecordedEnd | None:
        """Return the time or the chance that the source has at a place."""
        found = self.pool.take_at(wanted.operation_id, asked_of(wanted.operation_type, wanted.parameters))
        return found if found is not None and isinstance(found.data, catalog.OperationCompleted) else None

    def _request(self, wanted: OperationRequest, beside: CallOptions) -> RecordedEnd | None:
        """Return the answer to a request to a model; a later one of a turn belongs to those before it.

        In a trial models are asked: what they say anew is what it is for.
        """
        if self._is_trial:
            return None
        setting = None if beside.setting is None else normalize(beside.setting.told, "setting")
        asked = asked_of(wanted.operation_type, wanted.parameters, setting)
        turn = beside.within
        if turn is None:
            return self.pool.take(wanted.operation_id, asked)
        if turn in self._turns and self._turns[turn] is None:
            return None
        found = self.pool.take(wanted.operation_id, asked, self._turns.get(turn))
        self._note(turn, found)
        return found

    def _call(self, wanted: OperationRequest, beside: CallOptions) -> RecordedEnd | None:
        """Return the recorded end of a call, of the same turn if it is made in one.

        One that works in a workspace is the same where it found the same files there.
        """
        asked = asked_of(wanted.operation_type, wanted.parameters)
        turn = beside.within
        within = None if turn is None else self._turns.get(turn)
        fits = None if beside.workspace is None else self._files.fitting(beside.workspace)
        found = None if within is None else self.pool.take(wanted.operation_id, asked, within, fits)
        found = found or self.pool.take(wanted.operation_id, asked, fits=fits)
        if turn is not None and wanted.operation_type in _CONVERSATION:
            self._note(turn, found)
        return found

    def _note(self, turn: str, found: RecordedEnd | None) -> None:
        """Keep in mind which turn of the source one is answered from."""
        came_from = None if found is None else found.within
        self._turns[turn] = came_from if self._turns.get(turn, came_from) == came_from else None

    def _continued(self, wanted: OperationRequest) -> PolicyAnswer:
        """Return the time, or chance: at a place of the source what it had there, elsewhere what follows from that."""
        found = self.recorded_at(wanted)
        if found is not None:
            if wanted.operation_type == TIME_ACCESS:
                assert isinstance(found.data, catalog.OperationCompleted)  # noqa: S101 - that is what was asked
                self._moment = max(self._moment, found.data.result)
            return self._served(found)
        if wanted.operation_type == TIME_ACCESS:
            now = self._clock.now()
            self._moment = self._moment + max(0, now - self._since)
            self._since = now
            return PolicyAnswer(_end(wanted, self._moment))
        count = wanted.parameters["count"]
        drawn = hashlib.shake_256(f"{self._seed}/{wanted.operation_id}".encode()).digest(count // 8 + 1)
        return PolicyAnswer(_end(wanted, int.from_bytes(drawn) % 2**count))

    # --- after a restart -------------------------------------------------------------------------------------------

    def _take_up(self, own: Iterable[Event], begun: catalog.ExecutionForked) -> None:
        """Go on after what the what-if has done so far: what it was given is used up."""
        holders: dict[int, str] = {}
        held: dict[str, str] = {}
        changed = (begun.change or {}).get("results", {})
        for event in own:
            data = event.data
            if isinstance(data, catalog.OperationStarted):
                if data.operation_type in ENCLOSING:
                    holders[event.sequence] = data.operation_id
                    if event.sequence <= begun.at:
                        self._turns[data.operation_id] = event.sequence
                if data.within is not None:
                    held[data.operation_id] = holders[data.within]
                    if data.operation_id in changed:
                        self._turns[held[data.operation_id]] = None
            elif event.sequence > begun.at:
                self._take_up_end(data, held)

    def _take_up_end(self, data: catalog.Payload, held: Mapping[str, str]) -> None:
        served = getattr(data, "served", None) or {}
        found = self.pool.use(served["sequence"]) if served.get("execution") == self.pool.execution_id else None
        if isinstance(data, catalog.OperationCompleted | catalog.OperationFailed):
            if data.operation_type == TIME_ACCESS and isinstance(data, catalog.OperationCompleted):
                self._moment = max(self._moment, data.result)
            if data.operation_type in _CONVERSATION and data.operation_id in held:
                self._note(held[data.operation_id], found)


def _end(wanted: OperationRequest, result: Any) -> catalog.OperationCompleted:
    return catalog.OperationCompleted(wanted.operation_id, wanted.operation_type, result=result)


def _settings(events: Iterable[Event]) -> dict[str, Mapping[str, Any]]:
    """Return what the turns of a log were made with, by their ids."""
    begun = (event.data for event in events if isinstance(event.data, catalog.OperationStarted))
    return {data.operation_id: data.setting or {} for data in begun if data.operation_type in ENCLOSING}


def _children(events: Iterable[Event]) -> dict[str, dict[str, str]]:
    """Return the executions of other workflows that a log has begun: by workflow, and by id of the operation."""
    found: dict[str, dict[str, str]] = {}
    for data in (event.data for event in events):
        if isinstance(data, catalog.OperationStarted) and data.operation_type == CHILD_WORKFLOW:
            asked = data.parameters or {}
            found.setdefault(asked["workflow"], {})[data.operation_id] = asked["signal"]
    return found


# How an execution that goes on with another definition answers what its log does not have: with what was done before.
#
# It is no what-if: what its source has no result for is carried out, timers run, and clock and chance are the real
# ones. But nothing is done twice that was done before and is asked for again, wherever it stands now: a step was
# inserted or renamed, or another path had come further (`tests/replay/test_going_on.py`). Failures that ended the
# source are no results, and nor are questions that expired. Nor are, where it is to go on only with what its functions
# would do again, the results of edited functions.


EditedCalls = Callable[[str, Sequence[Event]], Collection[str]]
"""Returns the operations of a log, of a workflow of that name, whose functions were edited since."""


class ReuseInputs(NamedTuple):
    """What of an environment says what is answered, and how."""

    reads_only: ReadsOnly
    clock: Clock
    edited: EditedCalls


class ReusedAnswers(RecordedAnswers):
    """Answers the operations of an execution that goes on; see `RecordedAnswers`.

    Parameters
    ----------
    left_out
        Ids of operations of the source whose results do not count.
    """

    def __init__(
        self,
        source: Sequence[Event],
        own: Iterable[Event],
        forked: Event,
        reads_only: ReadsOnly,
        clock: Clock,
        *,
        left_out: Collection[str] = (),
        rests: bool = False,
    ) -> None:
        super().__init__(source, own, forked, reads_only, clock, rests=rests)
        undone = undone_in(source, is_left=True)
        refused = made_again(source).union(left_out, () if undone is None else undone.operations)
        for end in self.pool.left():
            if end.place in refused or isinstance(end.data, catalog.InterruptExpired):
                self.pool.use(end.sequence)

    @property
    def writes(self) -> bool:
        """Whether what is said in books outside its log is written: it is, but in a rehearsal."""
        return not self._rests

    def child_like(self, wanted: OperationRequest) -> WhatIfSource | None:
        """Return the execution of another workflow that did not complete at a place of the source.

        What that had done is not done again either (`tests/replay/test_gone_on.py`).
        """
        found = self._children.get(wanted.parameters["workflow"], {}).get(wanted.operation_id)
        return None if found is None else WhatIfSource(found, self._tools)

    def answer(self, wanted: OperationRequest, beside: CallOptions) -> PolicyAnswer | NoAnswer:
        """Return what becomes of an operation."""
        kind = wanted.operation_type
        if kind in COMPUTED:
            return NoAnswer.LIVE
        if kind in (TIME_ACCESS, RANDOM_GENERATION):
            found = self.recorded_at(wanted)
            if found is None and not self._rests:
                return NoAnswer.LIVE
            return self._continued(wanted) if found is None else self._served(found)
        found = self._found(wanted, beside)
        if found is not None:
            return self._served(found)
        if kind == TIMER and self._rests:
            return super().answer(wanted, beside)
        return self._live(wanted)


def answering(
    source: Sequence[Event], own: Sequence[Event], forked: Event, grounds: ReuseInputs, *, rests: bool = False
) -> RecordedAnswers:
    """Return what answers an execution as its beginning says: a what-if, or one that goes on."""
    begun = forked.data
    assert isinstance(begun, catalog.ExecutionForked)  # noqa: S101 - the only event that begins one
    reads_only, clock, edited = grounds
    if begun.tools not in catalog.GOING_ON:
        return RecordedAnswers(source, own, forked, reads_only, clock, rests=rests)
    left_out = edited(begun.workflow_name, source) if begun.tools == catalog.UNEDITED else ()
    return ReusedAnswers(source, own, forked, reads_only, clock, left_out=left_out, rests=rests)
