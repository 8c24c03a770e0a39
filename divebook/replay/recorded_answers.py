"""How a what-if answers what its log does not have: from the log of its source, and from the world as little as may be.

In this order: with a recorded end of the same call (`divebook.replay.pool`); by its kind, since scripts are computed,
sleeps skipped, and clock and chance go on from those of the source; a model is asked; what else reaches outside is not
executed, unless the what-if says that it may. What was given out stands in the what-if's own log, so that one that was
killed goes on where it was (test_a_what_if_that_is_killed_anywhere_comes_to_the_same).

A later request of an agent says only what is new in it. So it is answered from the same turn of the source as the
requests before it, and once anything in a turn came from elsewhere, models are asked in that turn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from divebook.engine.operations import (
    AGENT_STEP,
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
from divebook.events import catalog
from divebook.events.event import Event
from divebook.events.values import normalize
from divebook.execution.beyond import Beside, Likeness, Served, Settled, Unserved
from divebook.execution.clock import Clock
from divebook.execution.wanted import Wanted
from divebook.questions import Question
from divebook.replay.pool import REQUESTS, RecordedEnd, RecordedEnds, asked_of, question_asked
from divebook.replay.recorded_files import RecordedFiles

RECORDED, READ_ONLY, LIVE = "recorded", "read-only", "live"
TOOLS = (RECORDED, READ_ONLY, LIVE)
"""Which actions and tools a what-if may execute: none, those declared so, all."""
BLOCKED = "not executed in a what-if: no recorded result for these arguments"
IN_A_TRIAL = BLOCKED.replace("what-if", "trial")

COMPUTED = ENCLOSING | {SCRIPT_EXECUTION, VERDICT, STAGE_ATTEMPT}
"""What has no effect outside, and is answered in what it calls."""
_CONVERSATION = REQUESTS | {TOOL_CALL}
"""What later requests of a turn depend on."""

ReadsOnly = Callable[[Wanted], bool]
"""Whether a call is declared to change nothing."""


class RecordedAnswers:
    """Answers the operations of one what-if; see `divebook.execution.beyond.Beyond`.

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
        self._tools, self._reads_only, self._clock, self._rests = begun.tools or RECORDED, reads_only, clock, rests
        self._settings, self._children = _settings(events), _children(events)
        self._files = RecordedFiles(events, begun.at)
        self._seed = begun.seed or forked.execution_id
        self._since, self._moment = forked.recorded_at, events[begun.at - 1].recorded_at if begun.at else 0
        self._is_trial = begun.came_from == catalog.TRIAL
        self._blocked = IN_A_TRIAL if self._is_trial else BLOCKED
        self._turns: dict[str, int | None] = {}
        """By id of a turn: the event with which that turn of the source began that it is answered from; None where
        something in it came from elsewhere."""
        self._take_up(own, begun)
        self.unanswered: list[Wanted] = []
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

    def answer(self, wanted: Wanted, beside: Beside) -> Served | Unserved:
        """Return what becomes of an operation."""
        kind = wanted.operation_type
        if kind in COMPUTED:
            return Unserved.LIVE
        if kind == TIMER:
            return Served(_end(wanted, None))
        if kind in (TIME_ACCESS, RANDOM_GENERATION):
            return self._continued(wanted)
        found = self._found(wanted, beside)
        if found is not None:
            return self._served(found)
        if self._may_run(wanted):
            return self._live(wanted)
        if kind == TOOL_CALL and beside.done is not None:  # its model is to hear of it, and may do something else
            return Served(_end(wanted, beside.done(self._blocked)), {"blocked": self._blocked})
        failed = catalog.OperationFailed(wanted.operation_id, kind, error=self._blocked)
        return Served(failed, {"blocked": self._blocked})

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

    def child_like(self, wanted: Wanted) -> Likeness | None:
        """Return the execution of another workflow that the source began at a place, else the first one of that name.

        With the inputs that it had there its outcome is taken whole; with others it is a what-if itself
        (test_another_workflow_with_other_inputs_is_a_what_if_itself).
        """
        named: dict[str, str] = self._children.get(wanted.parameters["workflow"], {})
        found = named.get(wanted.operation_id) or next(iter(named.values()), None)
        return None if found is None else Likeness(found, self._tools)

    def setting_of(self, operation_id: str) -> Mapping[str, Any]:
        """Return what an operation of the source was made with at that place."""
        return self._settings.get(operation_id, {})

    def _told(self, found: RecordedEnd) -> Mapping[str, Any]:
        return {"execution": self.pool.execution_id, "sequence": found.sequence}

    def _live(self, wanted: Wanted) -> Unserved:
        if not self._rests:
            return Unserved.LIVE
        self.unanswered.append(wanted)
        return Unserved.REST

    def _may_run(self, wanted: Wanted) -> bool:
        """Return whether a call may be carried out of which the source has nothing."""
        kind, parameters = wanted.operation_type, wanted.parameters
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

    def _found(self, wanted: Wanted, beside: Beside) -> RecordedEnd | None:
        is_request = wanted.operation_type in REQUESTS
        return self._request(wanted, beside) if is_request else self._call(wanted, beside)

    def _served(self, found: RecordedEnd) -> Served:
        assert isinstance(found.data, catalog.OperationCompleted | catalog.OperationFailed)  # noqa: S101 - a call's
        return Served(found.data, self._told(found), self._files.changed.get(found.sequence, ()))

    def recorded_at(self, wanted: Wanted) -> RecordedEnd | None:
        """Return the time or the chance that the source has at a place."""
        found = self.pool.take_at(wanted.operation_id, asked_of(wanted.operation_type, wanted.parameters))
        return found if found is not None and isinstance(found.data, catalog.OperationCompleted) else None

    def _request(self, wanted: Wanted, beside: Beside) -> RecordedEnd | None:
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

    def _call(self, wanted: Wanted, beside: Beside) -> RecordedEnd | None:
        """Return the recorded end of a call, of the same turn if it is made in one.

        One that works in a workspace is the same where it found the same files there.
        """
        asked = asked_of(wanted.operation_type, wanted.parameters)
        turn = beside.within
        within = None if turn is None else self._turns.get(turn)
        fits = None if beside.inside is None else self._files.fitting(beside.inside)
        found = None if within is None else self.pool.take(wanted.operation_id, asked, within, fits)
        found = found or self.pool.take(wanted.operation_id, asked, fits=fits)
        if turn is not None and wanted.operation_type in _CONVERSATION:
            self._note(turn, found)
        return found

    def _note(self, turn: str, found: RecordedEnd | None) -> None:
        """Keep in mind which turn of the source one is answered from."""
        came_from = None if found is None else found.within
        self._turns[turn] = came_from if self._turns.get(turn, came_from) == came_from else None

    def _continued(self, wanted: Wanted) -> Served:
        """Return the time, or chance: at a place of the source what it had there, elsewhere what follows from that."""
        found = self.recorded_at(wanted)
        if found is not None:
            if wanted.operation_type == TIME_ACCESS:
                assert isinstance(found.data, catalog.OperationCompleted)  # noqa: S101 - that is what was asked
                self._moment = max(self._moment, found.data.result)
            return self._served(found)
        if wanted.operation_type == TIME_ACCESS:
            now = self._clock.now()
            self._moment, self._since = self._moment + max(0, now - self._since), now
            return Served(_end(wanted, self._moment))
        count = wanted.parameters["count"]
        drawn = hashlib.shake_256(f"{self._seed}/{wanted.operation_id}".encode()).digest(count // 8 + 1)
        return Served(_end(wanted, int.from_bytes(drawn) % 2**count))

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


def _end(wanted: Wanted, result: Any) -> catalog.OperationCompleted:
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
