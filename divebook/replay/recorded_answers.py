"""Policies for a what-if, or an execution with a changed definition, that forked from another execution (the source).
They answer its operations with results from the log of the source.

An operation that is not in the log of the what-if is answered in this order:

1. with the recorded end of an equal call in the source (same type, name and arguments), first of a call at the same
   place;
2. by its kind: scripts are computed, sleeps skipped, clock and randomness continue from the recorded values;
3. a request to a model is sent to the model;
4. any other external call does not run, unless the option ``tools`` allows it.

Example: the source called ``weather("Bonn")`` with the result 12. A what-if whose changed prompt leads to the same call
gets 12; ``weather("Kiel")`` is blocked. Each recorded end is used once. The log of the what-if contains which ends were
used, so that it continues after a crash (test_a_what_if_that_is_killed_anywhere_comes_to_the_same).

A later request of an agent contains only the new messages. It is therefore answered from the same turn of the source as
the requests before it, and once any part of a turn has another origin, models are called in that turn.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from divebook.engine.forks import ends_in
from divebook.engine.operations import (
    AGENT_RESPONSE,
    AGENT_STEP,
    BLOCKED_IN_TRIAL,
    BLOCKED_IN_WHAT_IF,
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


class RecordedAnswers:
    """Policy of a what-if. It answers operations from the log of the execution that was forked (the source), if the
    what-if's own log has no result for them.

    Parameters
    ----------
    source
        The whole log of the source execution.
    events_of_fork
        The log of the what-if up to now, including the events shared with the source.
    forked
        The event in the log of the what-if that started it.
    reads_only
        Function that returns True if a call without a recorded result is declared to change nothing.
    clock
        Clock of the environment.
    stops_at_calls
        True to stop the code at calls that would run; used to plan a what-if.
    """

    def __init__(
        self,
        source: Iterable[Event],
        events_of_fork: Iterable[Event],
        forked: Event,
        reads_only: ReadsOnly,
        clock: Clock,
        *,
        stops_at_calls: bool = False,
    ) -> None:
        fork = forked.data
        assert isinstance(fork, catalog.ExecutionForked)  # noqa: S101 - the only event that begins one
        events = list(source)
        self.pool = RecordedEnds(fork.source, events, fork.at)
        self._tools = fork.tools or RECORDED
        self._reads_only = reads_only
        self._clock = clock
        self._stops_at_calls = stops_at_calls
        self._settings, self._children = _settings(events), _children(events)
        self._files = RecordedFiles(events, fork.at)
        # A what-if has the seed of its source, so that all what-ifs of one run derive the same random values.
        self._seed = fork.seed or forked.execution_id
        # The clock of the what-if starts at the time of the fork point, and runs as fast as the real clock: see
        # `_advance`. It shows `_moment` at the real time `_since`.
        self._since = forked.recorded_at
        self._moment = events[fork.at - 1].recorded_at if fork.at else 0
        self._is_trial = fork.came_from == catalog.TRIAL
        self._blocked = BLOCKED_IN_TRIAL if self._is_trial else BLOCKED_IN_WHAT_IF
        self._turns: dict[str, int | None] = {}
        """By id of a turn: number of the event that started the turn of the source from which this turn is answered.
        None if an operation in the turn was answered in another way."""
        # Ends that the log of the what-if already contains are removed from the pool before the first request.
        self._restore(events_of_fork, fork)
        self.unanswered: list[OperationRequest] = []
        """Calls at which the code has stopped."""

    @property
    def writes(self) -> bool:
        """True if logs of conversations are written. They are not, because a what-if is only an experiment."""
        return False

    @property
    def asks_models(self) -> bool:
        """True if a request without a recorded answer is sent to its model. In a rehearsal, which makes no external
        calls, none is sent.
        """
        return not self._stops_at_calls

    # --- answering -------------------------------------------------------------------------------------------------

    def answer_to(self, request: OperationRequest, options: CallOptions) -> PolicyAnswer | NoAnswer:
        """Return the recorded answer for an operation. If there is none, return an error (the operation is blocked in a
        what-if) or a `NoAnswer` (the operation has to run; in a rehearsal, the code stops).
        """
        kind = request.operation_type
        if kind in COMPUTED:
            # Enclosing operations run again, and the calls inside them are requested one by one.
            return NoAnswer.LIVE
        if kind == TIMER:
            # A sleep is over at once: its recorded end has no result that could be reused.
            return PolicyAnswer(_end(request, None))
        if kind in (TIME_ACCESS, RANDOM_GENERATION):
            return self._continued(request)
        end = self._recorded_end(request, options)
        if end is not None:
            return self._policy_answer(end)
        if self._may_run(request):
            return self._run_or_stop(request)
        if kind == TOOL_CALL and options.done is not None:  # its model is to hear of it, and may do something else
            return PolicyAnswer(_end(request, options.done(self._blocked)), {"blocked": self._blocked})
        failed = catalog.OperationFailed(request.operation_id, kind, error=self._blocked)
        return PolicyAnswer(failed, {"blocked": self._blocked})

    def settled(self, question: Question) -> Settled | None:
        """Return the recorded answer to a question of the source with equal content. The answer gets the id of the new
        question. Return None if the source has recorded none.
        """
        content = question.content
        # The order of the arguments is that of `question_content`.
        request = question_content(
            content["kind"], content["question"], *map(content.get, ("message", "data", "schema"))
        )
        end = self.pool.take(question.id, request)
        if end is None:
            return None
        assert isinstance(end.data, catalog.InterruptResolved | catalog.InterruptExpired)  # noqa: S101 - a question's
        # `message` is the number of an inbox message in the store of the source, which the what-if does not have.
        return replace(end.data, interrupt_id=question.id, message=None, served=self._origin(end))

    def opened(self, workspace: str) -> catalog.WorkspaceOpened | None:
        """Return the event that opened a workspace in the source execution after the fork point. It has the initial
        files of the workspace. Return None if the source did not open the workspace there.
        """
        return self._files.opened.get(workspace)

    def child_like(self, request: OperationRequest) -> WhatIfSource | None:
        """Return the recorded child execution whose results a new child execution of this what-if reuses.

        The child at the same place is preferred to the first child of the same workflow. None if there is neither.

        With equal inputs, the result of the child is reused as a whole; with other inputs, the child runs as a what-if
        (test_another_workflow_with_other_inputs_is_a_what_if_itself).
        """
        children: dict[str, str] = self._children.get(request.parameters["workflow"], {})
        child = children.get(request.operation_id) or next(iter(children.values()), None)
        return None if child is None else WhatIfSource(child, self._tools)

    def setting_of(self, operation_id: str) -> Mapping[str, Any]:
        """Return the setting (model, instructions, tools) of an operation in the log of the source; an empty mapping if
        it is not known.
        """
        return self._settings.get(operation_id, {})

    def _origin(self, end: RecordedEnd) -> Mapping[str, Any]:
        origin = {"execution": self.pool.execution_id, "sequence": end.sequence}
        # One event of a fork may set several ends.
        return {**origin, "place": end.place} if end.is_changed else origin

    def _run_or_stop(self, request: OperationRequest) -> NoAnswer:
        if not self._stops_at_calls:
            return NoAnswer.LIVE
        self.unanswered.append(request)
        return NoAnswer.REST

    def _may_run(self, request: OperationRequest) -> bool:
        """Return True if a call without a recorded result may run in this what-if. Otherwise it is blocked."""
        kind = request.operation_type
        parameters = request.parameters
        # The order matters: a child workflow is not a live call, even with ``tools="live"``.
        if kind == CHILD_WORKFLOW:
            return self.child_like(request) is not None  # else it would be a plain run, whose calls nobody answers
        if self._tools == LIVE or kind in REQUESTS or kind in (SIGNAL_WAIT, DOCUMENT_READ, VERSION_DECISION):
            return True
        if kind == DYNAMIC_CONTENT:
            return "script" in parameters  # in the sandbox; else it is a program
        if kind == AGENT_STEP:
            return "operation" not in parameters  # the arguments of a call are checked
        return self._tools == READ_ONLY and self._reads_only(request)

    # --- from the source -------------------------------------------------------------------------------------------

    def _recorded_end(self, request: OperationRequest, options: CallOptions) -> RecordedEnd | None:
        is_request = request.operation_type in REQUESTS
        return self._request(request, options) if is_request else self._call(request, options)

    def _policy_answer(self, end: RecordedEnd) -> PolicyAnswer:
        assert isinstance(end.data, catalog.OperationCompleted | catalog.OperationFailed)  # noqa: S101 - a call's
        return PolicyAnswer(end.data, self._origin(end), self._files.changed.get(end.sequence, ()))

    def recorded_at(self, request: OperationRequest) -> RecordedEnd | None:
        """Return the time or random value that the source execution recorded at the same place as a request; None if it
        recorded none.
        """
        # Time and randomness are looked up by place only: two equal requests at different places have different values.
        end = self.pool.take_at(request.operation_id, content_of(request.operation_type, request.parameters))
        return end if end is not None and isinstance(end.data, catalog.OperationCompleted) else None

    def _request(self, request: OperationRequest, options: CallOptions) -> RecordedEnd | None:
        """Return the recorded answer for a request to a model; None if the request has to be sent to the model.

        A later request of a turn may only be answered from the same turn of the source as the requests before it.

        In a trial, requests are always sent to the model: a trial is made to get new answers.
        """
        if self._is_trial:
            return None
        setting = None if options.setting is None else normalize(options.setting.told, "setting")
        content = content_of(request.operation_type, request.parameters, setting)
        turn = options.within
        # A request outside a turn does not depend on earlier requests: its content alone decides.
        if turn is None:
            return self.pool.take(request.operation_id, content)
        # None marks a turn with answers from several sources. A missing key marks a turn without any answer yet.
        if turn in self._turns and self._turns[turn] is None:
            return None
        end = self.pool.take(request.operation_id, content, self._turns.get(turn))
        self._note(turn, end)
        return end

    def _call(self, request: OperationRequest, options: CallOptions) -> RecordedEnd | None:
        """Return the recorded result or error of a call with equal content; None if there is none. If there are
        several, one from the recorded turn that already answers the agent's present turn is preferred.

        A call that works in a workspace is equal only if the recorded call ran with the same files.
        """
        content = content_of(request.operation_type, request.parameters)
        turn = options.within
        within = None if turn is None else self._turns.get(turn)
        fits = None if options.workspace is None else self._files.fitting(options.workspace)
        # The order of preference: same turn of the source and same files, then any turn and same files.
        end = None if within is None else self.pool.take(request.operation_id, content, within, fits)
        end = end or self.pool.take(request.operation_id, content, fits=fits)
        # Only requests and tool calls add messages to the conversation. Other calls inside the turn do not determine
        # its source.
        if turn is not None and request.operation_type in _CONVERSATION:
            self._note(turn, end)
        return end

    def _note(self, turn: str, end: RecordedEnd | None) -> None:
        """Remember from which recorded turn of the source an agent's turn in this what-if gets its answers.

        If its operations come from different turns, the turn has no source any more, and its later requests go to the
        model.
        """
        source_turn = None if end is None else end.within
        self._turns[turn] = source_turn if self._turns.get(turn, source_turn) == source_turn else None

    def _continued(self, request: OperationRequest) -> PolicyAnswer:
        """Return a time or random value for an operation. If the source recorded a value at the same place, it is that
        value, else a value derived from the recorded ones.
        """
        end = self.recorded_at(request)
        if end is not None:
            if request.operation_type == TIME_ACCESS:
                assert isinstance(end.data, catalog.OperationCompleted)  # noqa: S101 - that is what was asked
                self._advance(self._clock.now(), end.data.result)
            return self._policy_answer(end)
        if request.operation_type == TIME_ACCESS:
            self._advance(self._clock.now())
            return PolicyAnswer(_end(request, self._moment))
        count = request.parameters["count"]
        # The digest depends on the place, so that parallel paths get the same values in any order. It has more bits
        # than needed, and the modulo removes the excess.
        digest = hashlib.shake_256(f"{self._seed}/{request.operation_id}".encode()).digest(count // 8 + 1)
        return PolicyAnswer(_end(request, int.from_bytes(digest) % 2**count))

    def _advance(self, now: int, result: int = 0) -> None:
        """Move the clock of the what-if to the real time `now`, and at least to `result`, the time that a reading of
        the clock returned.

        Example: fork point 12:00, what-if started at 15:00:00. A reading at 15:00:02 returns 12:00:02. If a recorded
        one at 15:00:03 returns 12:01:00, a reading at 15:00:05 returns 12:01:02. Derived readings never run backwards.
        """
        # Every reading moves `_since`. Otherwise the next one adds the time before this reading a second time.
        self._moment = max(self._moment + max(0, now - self._since), result)
        self._since = now

    # --- after a restart -------------------------------------------------------------------------------------------

    def _restore(self, events_of_fork: Iterable[Event], fork: catalog.ExecutionForked) -> None:
        """Restore the state of this policy from the log of the what-if, when a new process resumes the what-if.

        The ends that the what-if has already used are removed from the pool.
        """
        # {number of the start event of a turn: id of the turn}, and {id of an operation: id of its turn}.
        enclosing: dict[int, str] = {}
        turns: dict[str, str] = {}
        # The prefix of the fork is that of its source, so turns begun in it are answered from themselves. A turn with a
        # changed result has no turn of the source any more, since its conversation differs from there on.
        changed = (fork.change or {}).get("results", {})
        for event in events_of_fork:
            data = event.data
            if isinstance(data, catalog.OperationStarted):
                if data.operation_type in ENCLOSING:
                    enclosing[event.sequence] = data.operation_id
                    if event.sequence <= fork.at:
                        self._turns[data.operation_id] = event.sequence
                if data.within is not None:
                    # `within` is the number of an event, which is in `enclosing`, because the turn started first.
                    turns[data.operation_id] = enclosing[data.within]
                    if data.operation_id in changed:
                        self._turns[turns[data.operation_id]] = None
            elif event.sequence > fork.at:
                self._restore_end(event, turns)

    def _restore_end(self, event: Event, turns: Mapping[str, str]) -> None:
        data = event.data
        served = getattr(data, "served", None) or {}
        # Answers from the log of another execution are not in this pool.
        end = self.pool.use(served) if served.get("execution") == self.pool.execution_id else None
        if isinstance(data, catalog.OperationCompleted | catalog.OperationFailed):
            if data.operation_type == TIME_ACCESS and isinstance(data, catalog.OperationCompleted):
                self._advance(event.recorded_at, data.result)
            if data.operation_type in _CONVERSATION and data.operation_id in turns:
                self._note(turns[data.operation_id], end)


# --- pool of recorded ends --------------------------------------------------------------------------------------------
#
# Two calls are equal if type, name and arguments are equal: in any order of keys, and 1 equals 1.0. A missing key
# differs from null, since a function may have another default. Of several equal calls, the call at the same place is
# used first, then the oldest. If the oldest were always used first, parallel paths would get each other's results
# (test_equal_calls_on_parallel_paths_keep_their_own_results).


End: TypeAlias = (
    catalog.OperationCompleted | catalog.OperationFailed | catalog.InterruptResolved | catalog.InterruptExpired
)
REQUESTS = frozenset({AGENT_RESPONSE, CACHED_RESPONSE})
QUESTION = "question"
"""Type in place of an operation type, for questions to people."""
Content: TypeAlias = tuple[str, str]
"""Content of a request: the type of the operation, and a hash of its name and arguments."""

_SIGNAL = "signal-"
_WHOLE = 2**53
"""Up to this limit a float represents every integer."""


def content_of(operation_type: str, parameters: Any, setting: Any = None) -> Content:
    """Return the content of an operation: its type, and a hash of its parameters. An operation may get the recorded
    answer of another one with equal content.

    The id of a child execution and the duration of a wait for a signal are left out. A request to a model contains its
    setting: model, instructions, tools. A cached response counts as a response.
    """
    compared = parameters
    if operation_type == CHILD_WORKFLOW:
        compared = {name: value for name, value in parameters.items() if name != "signal"}
    elif operation_type == SIGNAL_WAIT:
        compared = parameters["signal"]
    elif operation_type in REQUESTS:
        compared = [parameters, setting]
        operation_type = AGENT_RESPONSE
    return operation_type, canonical_hash(_canonical(compared))


def question_content(kind: str, question: str, message: str | None, data: Any, schema: Any) -> Content:
    """Return the content of a question: its type, and a hash of its texts and data. Questions at different places may
    have equal contents.
    """
    return QUESTION, canonical_hash(_canonical([kind, question, message or None, data or None, schema or None]))


def _canonical(value: Any) -> Any:
    """Return plain data with integral floats replaced by integers (1.0 by 1), so that equal numbers get equal
    hashes.
    """
    if isinstance(value, float):
        # 2.0 and 2 are equal in Python and JSON, but their texts differ. Above the limit, a float may stand for several
        # integers.
        return int(value) if value.is_integer() and abs(value) <= _WHOLE else value
    if type(value) is dict:
        return {name: _canonical(item) for name, item in value.items()}
    if type(value) is list:
        return [_canonical(item) for item in value]
    return value


class RecordedEnd(NamedTuple):
    """End of an operation or question in a log: the content of the operation, and the number and data of the event that
    recorded the end.
    """

    place: str
    """Id of the operation or question; for an unused signal ``signal-`` and the number of its event."""
    content: Content
    sequence: int
    """Number of the event."""
    data: End
    within: int | None = None
    """Number of the event that started the enclosing operation."""
    is_changed: bool = False
    """True if the change of a fork set this end. The event is that of the fork, and may set several ends."""

    @property
    def was_asked_for(self) -> bool:
        """True if an operation or question of the source ended with this result. False for a signal that has arrived
        and that no step has received.
        """
        return not self.place.startswith(_SIGNAL)


class RecordedEnds:
    """Pool of the results (ends of operations and questions) that a log recorded after an event. Each of them can be
    used once as an answer.

    If a place has several ends, because a resumption made the call again, only the last one counts.

    Parameters
    ----------
    execution_id
        Execution of the log.
    events
        The whole log, because calls that ended after `after` may have started before.
    after
        Only ends after the event with this number are in the pool.
    """

    def __init__(self, execution_id: str, events: Iterable[Event], after: int = 0) -> None:
        self.execution_id = execution_id
        # A place has only its last end, so that each place identifies one end.
        self._by_place = {end.place: end for end in _ends(events, after)}
        self._places = {end.sequence: end.place for end in self._by_place.values()}
        self._by_content: dict[Content, OrderedDict[str, RecordedEnd]] = {}
        for end in self._by_place.values():
            # An `OrderedDict` per content keeps the order of the log while ends are removed from its middle.
            self._by_content.setdefault(end.content, OrderedDict())[end.place] = end

    def take(
        self, place: str, request: Content, within: int | None = None, fits: Callable[[RecordedEnd], bool] | None = None
    ) -> RecordedEnd | None:
        """Remove from the pool the recorded end (result or error) of an operation with equal content, and return it.
        Return None if the pool has none.

        A call at the same place is preferred.

        With `within`, only ends inside the operation that started with that event are considered; with `fits`, only
        ends for which that function returns True.
        """

        def matches(end: RecordedEnd) -> bool:
            return within in (None, end.within) and (fits is None or fits(end))

        equal: Mapping[str, RecordedEnd] = self._by_content.get(request, {})
        end = equal.get(place)
        if end is None or not matches(end):
            end = next((end for end in equal.values() if matches(end)), None)
        return None if end is None else self.remove(end)

    def take_at(self, place: str, request: Content) -> RecordedEnd | None:
        """Remove from the pool the recorded end (result or error) of the operation at the same place, and return it.
        Return None if the pool has none, or its operation has other content.
        """
        end = self._by_place.get(place)
        return self.remove(end) if end is not None and end.content == request else None

    def use(self, served: Mapping[str, Any]) -> RecordedEnd | None:
        """Remove the recorded end that an event names in its field `served` from the pool, and return it. Return None
        if it was used before.
        """
        place = served.get("place") or self._places.get(served["sequence"], "")
        end = self._by_place.get(place)
        return None if end is None else self.remove(end)

    def unused(self) -> list[RecordedEnd]:
        """Return the recorded ends that have not been used as answers, oldest first."""
        return list(self._by_place.values())

    def remove(self, end: RecordedEnd) -> RecordedEnd:
        """Remove a recorded end from the pool, and return it."""
        # Both indexes contain the same ends; an end leaves them together.
        del self._by_place[end.place], self._by_content[end.content][end.place]
        return end


def _ends(events: Iterable[Event], after: int) -> Iterator[RecordedEnd]:
    """Yield the ends of operations and questions that a log recorded after an event number, in the order in which they
    started.

    A later end at the same place replaces an earlier one. Signals that no wait has received come last.
    """
    # Filled from the whole log, since an end after `after` may belong to a start before it.
    requests: dict[str, Content] = {}
    within: dict[str, int | None] = {}
    ends: dict[str, RecordedEnd] = {}
    signals: dict[str, deque[RecordedEnd]] = {}
    for event in events:
        match event.data:
            case catalog.OperationStarted() as data:
                request = content_of(data.operation_type, data.parameters or {}, data.setting)
                requests[data.operation_id] = request
                within[data.operation_id] = data.within
            case catalog.InterruptRaised() as data:
                request = question_content(data.kind, data.question, data.message, data.data, data.schema)
                requests[data.interrupt_id] = request
            case catalog.SignalReceived() as data:
                signals.setdefault(data.signal_type, deque()).append(_signal(data, event.sequence))
            case catalog.OperationCompleted() | catalog.OperationFailed() as data if data.operation_id in requests:
                place = data.operation_id
                ends[place] = RecordedEnd(place, requests[place], event.sequence, data, within[place])
                _take_signal(signals, requests[data.operation_id], data)
            case catalog.InterruptResolved() | catalog.InterruptExpired() as data if data.interrupt_id in requests:
                place = data.interrupt_id
                ends[place] = RecordedEnd(place, requests[place], event.sequence, data)
            case catalog.ExecutionForked() as data:
                for place, end in ends_in(data).items():
                    ends[place] = RecordedEnd(
                        place, requests[place], event.sequence, end, within.get(place), is_changed=True
                    )
    # Starts determine the order, because equal calls of parallel paths end in any order.
    in_order = [ends[place] for place in requests if place in ends]
    unreceived = [end for queue in signals.values() for end in queue]
    yield from (end for end in (*in_order, *unreceived) if end.sequence > after)


def _signal(data: catalog.SignalReceived, sequence: int) -> RecordedEnd:
    """Convert a signal that an execution received to the recorded end of a wait for this signal. As such, it can answer
    a new wait.
    """
    end = catalog.OperationCompleted("signal", SIGNAL_WAIT, result=data.payload)
    return RecordedEnd(f"{_SIGNAL}{sequence}", content_of(SIGNAL_WAIT, {"signal": data.signal_type}), sequence, end)


def _take_signal(signals: Mapping[str, deque[RecordedEnd]], request: Content, data: Any) -> None:
    """Remove the oldest signal with the content `request` from the queues, because an operation of the log has received
    it. Do nothing if the operation was not a completed wait for a signal.
    """
    # A wait that was completed took the oldest signal of its name. A failed one (a time-out) took none.
    if request[0] == SIGNAL_WAIT and isinstance(data, catalog.OperationCompleted):
        queue = next((queue for queue in signals.values() if queue and queue[0].content == request), None)
        if queue is not None:
            queue.popleft()


# --- recorded files of workspaces -------------------------------------------------------------------------------------


class RecordedFiles:
    """Files of the workspaces in the log of a source execution: the initial files, and the changes made by each call.

    Parameters
    ----------
    events
        The whole log.
    after
        Number of the event after which the fork differs from the log.
    """

    def __init__(self, events: Iterable[Event], after: int) -> None:
        self.changed: dict[int, list[catalog.FilesChanged]] = {}
        """Changes made by a call, by the number of the event that ended the call. Changes from outside are added to the
        call before them, because later calls have seen them."""
        self.opened: dict[str, catalog.WorkspaceOpened] = {}
        """Initial files of each workspace that was opened after `after`."""
        self._recorded_end: dict[int, dict[str, set[str | None]]] = {}
        """Digests of the file trees of each workspace while a call was running, by the event that ended the call."""
        # {workspace: digest of its files}, and {operation: {workspace: digests while it ran}}.
        trees: dict[str, str | None] = {}
        running_calls: dict[str, dict[str, set[str | None]]] = {}
        end_of: dict[str, int] = {}
        latest = 0
        # A change of files counts for every call under way, because calls of several paths may work in one workspace:
        # each of them may have seen the files before and after it.
        for event in events:
            match event.data:
                case catalog.WorkspaceOpened() as data:
                    trees[data.workspace] = data.tree
                    if event.sequence > after and data.files is not None:
                        self.opened.setdefault(data.workspace, data)
                case catalog.FilesChanged() as data:
                    trees[data.workspace] = data.after
                    for digests in running_calls.values():
                        digests.setdefault(data.workspace, set()).add(data.after)
                    # A change without a call (`cause="outside"`) is added to the call that ended last: `latest`.
                    self.changed.setdefault(end_of.get(data.operation_id or "", latest), []).append(data)
                # Without an open workspace, no call can depend on files, and nothing is noted.
                case catalog.OperationStarted() as data if trees:
                    running_calls[data.operation_id] = {name: {tree} for name, tree in trees.items()}
                case catalog.OperationCompleted() | catalog.OperationFailed() as data:
                    latest = end_of[data.operation_id] = event.sequence
                    if trees:
                        # The event follows the end of its call, so that the call has only the digests from before its
                        # own change.
                        self._recorded_end[latest] = running_calls.pop(data.operation_id, {})

    def fitting(self, inside: WorkspaceRef) -> Callable[[RecordedEnd], bool]:
        """Return a function that tests the recorded end of a call. It returns True if the call ran with the same files
        as the workspace `inside` has now.
        """
        name = inside.name
        tree = inside.tree()
        # A call from before the workspace was opened has no digests. It fits a workspace without files (None).
        return lambda end: tree in self._recorded_end.get(end.sequence, {}).get(name, {None})


RECORDED = "recorded"
READ_ONLY = "read-only"
LIVE = "live"
TOOLS = (RECORDED, READ_ONLY, LIVE)
"""Choices of the actions and tools that a what-if may run: none, only those declared read-only, or all."""
COMPUTED = ENCLOSING | {SCRIPT_EXECUTION, VERDICT, STAGE_ATTEMPT}
"""Operations that run again because they have no external effects. The calls inside them are answered from the log."""
_CONVERSATION = REQUESTS | {TOOL_CALL}
"""Operations on which later requests of a turn depend."""

ReadsOnly = Callable[[OperationRequest], bool]
"""Function that returns whether a call is declared to change nothing."""


def _end(request: OperationRequest, result: Any) -> catalog.OperationCompleted:
    return catalog.OperationCompleted(request.operation_id, request.operation_type, result=result)


def _settings(events: Iterable[Event]) -> dict[str, Mapping[str, Any]]:
    """Return the recorded settings (model, instructions, tools) of agent turns and other operations that contain
    operations, by operation id.
    """
    facts = (event.data for event in events if isinstance(event.data, catalog.OperationStarted))
    return {data.operation_id: data.setting or {} for data in facts if data.operation_type in ENCLOSING}


def _children(events: Iterable[Event]) -> dict[str, dict[str, str]]:
    """Return the ids of the child executions in a log. They are grouped by name of their workflow; within a group, the
    key is the id of the operation that started the child.
    """
    # {workflow: {id of the operation: id of the child execution}}; the signal of a child operation is the id of the
    # child.
    children: dict[str, dict[str, str]] = {}
    for data in (event.data for event in events):
        if isinstance(data, catalog.OperationStarted) and data.operation_type == CHILD_WORKFLOW:
            parameters = data.parameters or {}
            children.setdefault(parameters["workflow"], {})[data.operation_id] = parameters["signal"]
    return children


# --- answers for an execution that continues with a changed definition ------------------------------------------------
#
# Unlike a what-if, such an execution runs the calls for which its source has no result; timers run, and clock and
# randomness are real. But a call that the source already made is not made again, even at another place: a step was
# inserted or renamed, or another path had come further (`tests/replay/test_going_on.py`). Failures that ended the
# source and questions that expired do not count as results. In the mode `catalog.UNEDITED`, the results of edited
# functions do not count either.


EditedCalls = Callable[[str, Sequence[Event]], Collection[str]]
"""Function that returns the operations in a log whose functions were edited since, given the name of the workflow."""


class ReuseInputs(NamedTuple):
    """Functions and the clock of an environment, which the policies in this module need."""

    reads_only: ReadsOnly
    clock: Clock
    edited: EditedCalls


class ReusedAnswers(RecordedAnswers):
    """Policy of an execution that continues with a changed definition. It reuses recorded results, and lets all other
    calls run.

    Parameters
    ----------
    excluded
        Ids of operations of the source whose results must not be reused.
    """

    def __init__(
        self,
        source: Sequence[Event],
        events_of_fork: Iterable[Event],
        forked: Event,
        reads_only: ReadsOnly,
        clock: Clock,
        *,
        excluded: Collection[str] = (),
        stops_at_calls: bool = False,
    ) -> None:
        super().__init__(source, events_of_fork, forked, reads_only, clock, stops_at_calls=stops_at_calls)
        # The calls that a rollback of the source undoes have no effect any more, so that their results must not be
        # reused (`tests/replay/test_undone.py`).
        undone = undone_in(source, is_left=True)
        refused = made_again(source).union(excluded, () if undone is None else undone.operations)
        for end in self.pool.unused():
            # An expired question is asked again: the person gets a second chance to answer it.
            if end.place in refused or isinstance(end.data, catalog.InterruptExpired):
                self.pool.remove(end)

    @property
    def writes(self) -> bool:
        """True if logs of conversations are written: by a run that continues, but not by a rehearsal, which runs only
        in memory.
        """
        return not self._stops_at_calls

    def child_like(self, request: OperationRequest) -> WhatIfSource | None:
        """Return the recorded child execution that was started at the place of a request. A new child execution at this
        place reuses its results (`tests/replay/test_gone_on.py`). Return None if there is none.
        """
        # Without a child at the same place, the new child runs as a normal execution.
        child = self._children.get(request.parameters["workflow"], {}).get(request.operation_id)
        return None if child is None else WhatIfSource(child, self._tools)

    def answer_to(self, request: OperationRequest, options: CallOptions) -> PolicyAnswer | NoAnswer:
        """Return the recorded answer for an operation. If there is none, return a `NoAnswer`, which lets the operation
        run or, in a rehearsal, stops the code.
        """
        # Time and chance are compared by place, calls by content wherever they were made. A missing time or random
        # value is real in a run; a plan (`stops_at_calls`) derives it from the recorded ones.
        kind = request.operation_type
        if kind in COMPUTED:
            return NoAnswer.LIVE
        if kind in (TIME_ACCESS, RANDOM_GENERATION):
            if self._stops_at_calls:
                return self._continued(request)
            end = self.recorded_at(request)
            return NoAnswer.LIVE if end is None else self._policy_answer(end)
        end = self._recorded_end(request, options)
        if end is not None:
            return self._policy_answer(end)
        # A plan does not wait for a timer; a real run does.
        if kind == TIMER and self._stops_at_calls:
            return super().answer_to(request, options)
        return self._run_or_stop(request)


def answering(
    source: Sequence[Event],
    events_of_fork: Sequence[Event],
    forked: Event,
    dependencies: ReuseInputs,
    *,
    stops_at_calls: bool = False,
) -> RecordedAnswers:
    """Return the policy that a forked execution uses for operations without a result in its own log.

    It is a policy for a what-if, or for a continuation with a changed definition.
    """
    fork = forked.data
    assert isinstance(fork, catalog.ExecutionForked)  # noqa: S101 - the only event that begins one
    reads_only, clock, edited = dependencies
    if fork.tools not in catalog.REUSE_MODES:
        return RecordedAnswers(source, events_of_fork, forked, reads_only, clock, stops_at_calls=stops_at_calls)
    excluded = edited(fork.workflow_name, source) if fork.tools == catalog.UNEDITED else ()
    return ReusedAnswers(
        source, events_of_fork, forked, reads_only, clock, excluded=excluded, stops_at_calls=stops_at_calls
    )
