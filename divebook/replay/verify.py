"""Verification: a definition runs again against the recorded log of an execution. Every fact (event payload) that it
produces is compared with the event in the log.

No external call is made. The first difference contains the event, step and line, and the expected and actual facts.
Parts that cannot be checked are listed, and never count as equal (`tests/replay/test_verify.py`). Example: a run
recorded ``x = 2``; now the script of the step is ``1 + 2``. The script runs again, and its end differs from event 4,
``operation_completed`` with 2.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from divebook.definitions.definition import Sketch, Workflow
from divebook.definitions.functions import FUNCTION, WORKFLOW_FUNCTIONS
from divebook.definitions.step import Step
from divebook.engine.decide import decide_cancellation, decide_end, decide_joins, decide_start
from divebook.engine.instructions import Fact, RecordFacts
from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, CACHED_RESPONSE, SCRIPT_EXECUTION
from divebook.engine.state import IN_STEP, JOINING
from divebook.errors import DivebookError, ExecutionError, NotFoundError
from divebook.events import Event, catalog
from divebook.events.catalog import Payload
from divebook.interrupts import interruptible_result
from divebook.replay.sameness import differing, fact_text, is_same
from divebook.replay.tape import (
    OPENINGS,
    NoChance,
    ReplayDifference,
    Tape,
    TapeLog,
    TapeOperations,
)
from divebook.report.model import Items, Report, Text
from divebook.report.shown import Shown
from divebook.runtime.concurrency import Suspended, Waits
from divebook.runtime.errors import line_of
from divebook.runtime.forks import opening_in, workflow_in
from divebook.runtime.loop import ENGINE
from divebook.runtime.manager import Control
from divebook.runtime.operations import OperationLog
from divebook.runtime.recorder import Recorder
from divebook.runtime.run import Run
from divebook.runtime.runner import PathRunner
from divebook.runtime.step import Services, code_place
from divebook.text.arguments import require
from divebook.text.format import plural
from divebook.text.redaction import one_line, shared

# --- driving a definition against a log -------------------------------------------------------------------------------
#
# Paths run one after the other, each against its own events. At each resumption in the log all code ends, and the paths
# that were active start again from the state there.


_ENDS = (catalog.ExecutionCompleted, catalog.ExecutionFailed)


class PathByPath(PathRunner):
    """Runs the paths of an execution again, one path after the other, for one segment of its log.

    A segment is the part of the log from a start, fork or resumption to the next one.
    """

    def __init__(self, tape: Tape, recorder: Recorder, workflow: Workflow, services: Services) -> None:
        super().__init__(recorder, workflow, services)
        self._tape = tape
        # Paths that can run, in the order in which they were started or split off.
        self._pending: deque[str] = deque()

    def _start(self, path_id: str) -> None:
        self._pending.append(path_id)

    def _stop(self) -> None:
        """Leave the other paths as they are. A driver stops them; in a verification, the log decides where they end."""

    def _release_joins(self) -> None:
        """Leave the paths that wait at a join as they are. A driver lets them continue here; in a verification, the log
        determines when they continue.
        """

    async def drive(self) -> None:
        """Run all paths of one segment of the log again, and then the rollbacks. A segment ends at the next resumption
        or fork of the recorded execution.
        """
        # At the start of a log there are no paths yet, and the engine decides the first one. At a fork or resumption,
        # the recorded state has the active paths.
        state = self._tape.state_at(self._tape.low)
        if state.paths:
            self._pending.extend(path.id for path in state.active_paths())
        else:
            self._begin(decide_start(self.workflow))
        await self._drive_all()
        # Rollback paths are decided by the engine after all other paths have ended, so that no code starts them. Their
        # starts are taken from the log, and each is compared with the decision of the engine.
        for number in range(self._tape.low, self._tape.high + 1):
            started = self._tape.event(number).data
            if isinstance(started, catalog.PathStarted) and started.rollback is not None and self._tape.first is None:
                self._begin(self._next_undoing(number))
                await self._drive_all()

    def _begin(self, start: Fact) -> None:
        """Start a path that was not split off from another path: the first path of the execution, or a rollback."""
        self._tape.path = start.path
        with suppress(Suspended):
            self.journal.record_all((start,))
            self._start(start.path)
        # The start of the path differs from the log, and nothing can run: the path is closed here, because `_drive_all`
        # only closes paths that ran.
        if not self._pending:
            self._tape.close(start.path)

    def _next_undoing(self, number: int) -> Fact:
        """Return the event to record (as a `Fact`) that starts the next rollback path. The engine decides it for the
        recorded state before the event `number`.
        """
        event = self._tape.event(number)
        before = number - 1
        started = self._tape.event(before).data
        # The first rollback path is recorded together with `rollback_started`; the decision was made before both
        # events. Further rollback paths are decided one by one, each when the one before it has ended.
        if isinstance(started, catalog.RollbackStarted):
            decided = decide_end(self.workflow, self._tape.state_at(before - 1)) if not started.cancelled else None
            decided = decided or decide_cancellation(self._tape.state_at(before - 1), started.error)
        else:
            decided = decide_end(self.workflow, self._tape.state_at(before))
        if not isinstance(decided, RecordFacts):
            raise self._tape.differ(number, event.path, event.step, "no call is rolled back")
        # The start of the path is the last fact: `rollback_started` and `path_started` are recorded together.
        return decided.facts[-1]

    async def _drive_all(self) -> None:
        while self._pending:
            path = self._tape.path = self._pending.popleft()
            try:
                await self._pursue(path)
            # Code that waits for something the log does not have stops with `Suspended`. `close` decides whether this
            # is a difference: only if the path has events left.
            except Suspended:
                pass
            # The definition has no such step, agent or function any more.
            except NotFoundError as error:
                self._tape.note_missing(path, "", str(error))
            self._tape.close(path)
            await asyncio.sleep(0)  # others use this loop as well

    async def _pursue(self, path: str) -> None:
        """Run a path until it cannot continue, or has reproduced its last event before the log's next fork or
        resumption.
        """
        while True:
            claims = self._tape.claims
            await self._follow(path)
            # The path has reproduced its events, or waits at a join, or is inside a step that waits. Without a new
            # claim, another pass would do the same again.
            if self._tape.next_of_path(path) is None:
                return
            phase = self._tape.state.paths[path].phase
            if phase == JOINING:
                self._join(path)
            elif phase == IN_STEP or self._tape.claims == claims:
                return

    def _join(self, path: str) -> None:
        """Record the outcome of a path that waits at a join. The engine decides it for all paths that wait there."""
        tape = self._tape
        sequence = self._tape.next_of_path(path)
        assert sequence is not None  # noqa: S101 - that is what was asked
        # All paths of a join are released together, as one record: the others end with `path_completed`, and the oldest
        # one continues with `path_joined`. The engine has decided it for the state before the first of these events.
        before = sequence - 1
        while before and self._is_joined_away(before):
            before -= 1
        facts = [fact for record in decide_joins(self.workflow, tape.state_at(before)) for fact in record.facts]
        fact_of_path = next((fact for fact in facts if fact.path == path), None)
        if fact_of_path is None:
            raise tape.differ(sequence, path, tape.event(sequence).step, "the path waits at its join")
        self.journal.record(fact_of_path.data, path, fact_of_path.step)

    def _is_joined_away(self, sequence: int) -> bool:
        event = self._tape.event(sequence)
        if not isinstance(event.data, catalog.PathCompleted):
            return False
        return self._tape.state_at(sequence - 1).paths[event.path].phase == JOINING


async def drive(tape: Tape, total: int, services: Services, workflow_at: Callable[[int], Workflow]) -> Counter[str]:
    """Run a definition against a log up to the first difference. Return how many operations were answered from the log,
    by type.

    Parameters
    ----------
    total
        Number of events of the log.
    workflow_at
        Function that returns the definition that was valid at an event number.
    """
    # Number of each start, fork and resumption. A segment reaches up to the event before the next one: starts 1, 40 and
    # total 60 give the segments 1 to 39 and 40 to 60.
    starts = [number for number in range(1, total + 1) if isinstance(tape.event(number).data, OPENINGS)]
    log = TapeLog(tape)
    counts: Counter[str] = Counter()
    for low, after in zip(starts, [*starts[1:], total + 1], strict=True):
        tape.begin(low, after - 1)
        # Each segment gets new objects, as a new process does. Nothing that code keeps in memory survives into the next
        # one.
        waits = Waits(log)
        operations = OperationLog(log, waits)
        recorded = TapeOperations(tape, operations)
        operations.verification = recorded
        operations.miss_policy = recorded
        waits.before_answer = recorded.advance
        recorder = Recorder(operations, waits, NoChance(), services.texts, services.policy)
        recorder.call_wrapper = partial(recorded.run_call, recorder.asking)
        workflow = workflow_at(low)
        await PathByPath(tape, recorder, workflow, services).drive()
        counts += recorded.counts
        # After a difference the recorded end means nothing, since the state before it is not that of the definition.
        if tape.first is None:
            _compare_end(tape, workflow)
        if tape.first is not None:
            break
    # `+` removes the types with a count of 0.
    return +counts


def _compare_end(tape: Tape, workflow: Workflow) -> None:
    """Compare the recorded end of the execution, if this part of the log has one, with the end that the engine decides
    for the recorded state.
    """
    for number in range(tape.low, tape.high + 1):
        # A cancellation has no decided end: a person determines it. Only completed and failed executions are compared.
        data = tape.event(number).data
        if isinstance(data, _ENDS):
            end = decide_end(workflow, tape.state_at(number - 1))
            decided = end.facts[0].data if isinstance(end, RecordFacts) else None
            if decided is None or not is_same(data, decided):
                tape.differ(number, "", "", decided)


EQUAL = "equal"
DIFFERS = "differs"
UNCHECKED = "not checked"
_MOST = 400
"""Maximum number of characters of an expected or actual value."""
_PARTS = 3
"""Maximum number of different parts that are shown."""


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """First difference between the facts (event payloads) that a definition produces when it runs again and the events
    of a log.
    """

    sequence: int
    """Number of the event in the log. If the log has no further event, it is the number after the last one."""
    event_type: str
    """Type of that event; empty if there is none."""
    path: str
    step: str
    """Step of the difference; empty for the end of the execution."""
    place: str
    """Line of the definition or function: ``survey.yaml:7:11``, ``Cell [5], line 4``."""
    expected: str
    """Recorded fact, in words."""
    actual: str
    """Actual fact, in words."""
    changed: tuple[str, ...] = ()
    """Different fields, if both facts have the same type; each text marks the expected and the actual value."""

    def __str__(self) -> str:
        where = ", ".join(filter(None, (f"step {self.step!r}" if self.step else "", self.place)))
        event = f"event {self.sequence}" + (f" ({self.event_type})" if self.event_type else "")
        parts = "; ".join(self.changed[:_PARTS])
        if more := len(self.changed[_PARTS:]):
            parts += f" (and {plural(more, 'more part')})"
        return f"{event}{f', {where}' if where else ''}: {parts or f'expected {self.expected}; got {self.actual}'}"


@dataclass(frozen=True, slots=True, repr=False)
class Verification(Shown):
    """Result of a verification: whether a definition reproduces the log of an execution.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:")
    >>> execution = environment.start(Workflow("sum", [Step("add", script="1 + 1", store="n")])).wait()
    >>> verification = execution.verify()
    >>> verification.equal, verification.calls, verification.divergence
    (True, 0, None)
    """

    run_id: str
    workflow: str
    events: int
    """Number of readable events of the log."""
    compared: int = 0
    """Number of events that were compared. Events that come from outside, and starts and ends of the execution, are not
    compared.
    """
    answered: Mapping[str, int] = field(default_factory=dict)
    """Number of operations answered from the log, by type; ``question`` for answers of people."""
    divergence: FirstDifference | None = None
    """The first difference."""
    unchecked: Sequence[str] = ()
    """Parts that could not be checked, with reasons."""
    calls: int = 0
    """Number of external calls: always 0."""

    def __bool__(self) -> bool:
        """Return whether the replay equals the log, so that ``assert run.verify()`` checks a run."""
        return self.equal

    @property
    def equal(self) -> bool:
        """True if the whole log was checked and the definition reproduces it without a difference."""
        return self.divergence is None and not self.unchecked

    @property
    def outcome(self) -> str:
        """Result of the verification as text: ``equal``, ``differs`` or ``not checked``."""
        if self.divergence is not None:
            return DIFFERS
        return EQUAL if self.equal else UNCHECKED

    def report(self) -> Report:
        """Return the outcome with the number of compared events, the first difference, and what was not checked."""
        served = plural(sum(self.answered.values()), "operation")
        counted = f"{plural(self.events, 'event')}, {served} answered from the log, {plural(self.calls, 'call')} made"
        outcome = Text(self.outcome, {EQUAL: "good", DIFFERS: "bad"}.get(self.outcome, ""))
        title = (Text(self.run_id, "id"), f" of {self.workflow!r}: ", outcome, f" ({counted})")
        lines = [] if self.divergence is None else [str(self.divergence)]
        lines += [f"not checked: {reason}" for reason in self.unchecked]
        return Report(title, blocks=(Items(tuple(lines)),))


def verified(
    execution: Run, control: Control, definition: Workflow | None = None, *, any_code: bool = False
) -> Verification:
    """Verify a definition against the log of an execution, without external calls; return the result.

    Parameters
    ----------
    definition
        Definition to check; by default the definition in the log. Functions are taken from this process.
    any_code
        True if changed functions are not reported: only their facts are compared.

    Raises
    ------
    ExecutionError
        The caller is on the engine's thread.
    """
    expected = "a Workflow; without it, the definition in the log is verified"
    require(definition, "definition", expected, fits=isinstance(definition, Workflow))
    # The engine's thread runs the verification, and would wait for itself.
    if ENGINE.is_current():
        raise ExecutionError(f"execution {execution.id} cannot be verified on the engine's thread; use another thread")
    # Only the readable beginning of a damaged log is compared, and the verification then never counts as equal.
    events, unchecked = _sound(execution)
    workflow = definition or execution.workflow
    unchecked_log = Verification(execution.id, workflow.name, len(events), unchecked=unchecked)
    # Missing agents and functions are found before any code runs, so that they are reported as "not checked" and not as
    # a difference.
    obstacle = _obstacle(workflow, events, control)
    if obstacle:
        return Verification(execution.id, workflow.name, len(events), unchecked=(*unchecked, obstacle))
    changed = () if any_code else _changed_functions(execution, workflow, control)
    tape = Tape(events)

    # A fork with a changed definition has it in its own event, so that each segment may have another definition.
    def workflow_at(number: int) -> Workflow:
        valid_then = definition or workflow_in(
            execution.id, opening_in(execution.id, _openings(events, number)), events
        )
        return services.with_source(valid_then)

    services = control.dependencies.services
    driving = drive(tape, len(events), services, workflow_at)
    # Ctrl-C ends the wait in a notebook.
    answered = interruptible_result(ENGINE.call(lambda: ENGINE.promise(driving)))
    first = tape.first
    return Verification(
        execution.id,
        workflow.name,
        len(events),
        tape.claimed,
        dict(answered),
        None if first is None else _divergence(first, events, workflow_at(min(first.sequence, len(events)))),
        (*unchecked_log.unchecked, *changed),
    )


def _sound(execution: Run) -> tuple[Sequence[Event], tuple[str, ...]]:
    """Return those events of an execution that can be read, and the reasons why the rest of its log cannot be
    checked.
    """
    damage = execution.internals.damage
    if damage is None:
        events: Sequence[Event] = list(execution.history())
        # A snapshot ends in the middle of a run; its later events are in another store.
        is_snapshot = any(isinstance(event.data, catalog.ExecutionSnapshotted) for event in events)
        return events, ("it is a read-only snapshot of an execution that continues elsewhere",) if is_snapshot else ()
    sound, _ = execution.store.read_sound(execution.id)
    # `read_sound` may read further than the state could be computed.
    events = sound[: execution.state.last_sequence]
    return events, (f"the log is damaged after event {len(events)}: {damage}",)


def _openings(events: Sequence[Event], number: int) -> Sequence[Event]:
    """Return the events that contain a definition, up to an event number: the first event of the log, and all forks."""
    forks = (event for event in events[1:number] if isinstance(event.data, catalog.ExecutionForked))
    return [events[0], *forks]


def _obstacle(workflow: Workflow, events: Sequence[Event], control: Control) -> str:
    """Return the reason why an execution cannot be verified in this environment; an empty string if it can be."""
    if isinstance(workflow, Sketch):
        return "no definition is recorded in its log"
    visited = {event.step for event in events if event.step}
    try:
        control.check(workflow, visited, ())
    except DivebookError as error:
        return one_line(str(error), _MOST)
    return ""


def _changed_functions(execution: Run, workflow: Workflow, control: Control) -> tuple[str, ...]:
    """Return the reasons why a verification is not reliable: texts that name the Python functions that have changed
    since the execution ran, or are missing here. Empty if there are none.
    """
    recorded_code = execution.state.code
    current_code = control.dependencies.code_of(workflow)
    # Both are {name of a function: digest of its code}.
    changed = sorted(
        name for name in recorded_code if name in current_code and current_code[name] != recorded_code[name]
    )
    missing = sorted(name for name in recorded_code if name not in current_code)
    reasons = [f"{', '.join(changed)}: the code has changed since the run"] if changed else []
    return tuple(reasons + ([f"{', '.join(missing)}: no longer defined"] if missing else []))


def _divergence(difference: ReplayDifference, events: Sequence[Event], workflow: Workflow) -> FirstDifference:
    # A difference after the last event has no recorded fact, and its actual fact may be a description only.
    event = events[difference.sequence - 1] if difference.sequence <= len(events) else None
    step = difference.step or ("" if event is None else event.step)
    expected = "no further event" if event is None else fact_text(event.data, event.step)
    actual = difference.actual if isinstance(difference.actual, str) else "nothing"
    changed: tuple[str, ...] = ()
    # The actual fact is a payload, a description as text, or None if the path would record nothing.
    if isinstance(difference.actual, Payload):
        actual = fact_text(difference.actual, difference.step)
        changed = () if event is None else tuple(differing(event.data, difference.actual))
    clean = shared().text
    return FirstDifference(
        difference.sequence,
        "" if event is None else event.event_type,
        difference.path,
        step,
        _place(difference, workflow, step, None if event is None else event.data),
        one_line(clean(expected), _MOST),
        one_line(clean(actual), _MOST),
        changed,
    )


def _place(difference: ReplayDifference, workflow: Workflow, name: str, data: Payload | None) -> str:
    """Return the line of the definition, or of the user's Python function, that causes a difference from the log."""
    # Without a step, the difference is in the outputs, or concerns the execution as a whole.
    number = next((place for place, step in enumerate(workflow.steps) if step.name == name), None)
    if number is None:
        return workflow.written.where(("Outputs",) if isinstance(data, catalog.ExecutionCompleted) else ())
    step = workflow.steps[number]
    actual = difference.actual
    # A step of a workflow function has no lines in a file of definitions; its place is a line of Python.
    if step.type == FUNCTION and workflow.name in WORKFLOW_FUNCTIONS:
        return str((difference.line or line_of(WORKFLOW_FUNCTIONS[workflow.name].function))["label"])
    # Of two facts of the same type, the actual one names the present part, such as the condition that was evaluated.
    # Otherwise the recorded fact names the part that does not record it any more.
    part = _part_of(step, actual if type(actual) is type(data) else data)
    # A script has lines of its own, so the place is a line inside it.
    if part == ("Script",) and step.script:
        return str(code_place(workflow, step, step.script, 1)["label"])
    return workflow.written.where(("Steps", number, *part))


def _part_of(step: Step, data: Payload | str | None) -> tuple[str | int, ...]:
    """Return the keys that lead to the part of a step's definition that causes an event; an empty tuple stands for the
    whole step.

    For example ``("Script",)`` for the end of a script, and ``("Next", 1)`` for the condition of the second edge.
    """
    match data:
        case catalog.StepStarted():
            return ("Parameters",) if step.parameters else ()
        case catalog.OperationStarted() | catalog.OperationCompleted() | catalog.OperationFailed():
            return _part_of_operation(step, data.operation_type)
        case catalog.IterationStarted() | catalog.IterationCompleted() | catalog.IterationFailed():
            return ("Each",)
        case catalog.InterruptRaised():
            return ("Ask",)
        case catalog.StateMutated():
            return ("Store",) if step.store else ()
        case catalog.ConditionEvaluated():
            matching = [place for place, edge in enumerate(step.edges) if edge.condition == data.condition]
            return ("Next", *matching[:1])
        case catalog.PathBranched() | catalog.PathCompleted():
            return ("Next",)
        case catalog.StepRetried():
            return ("Retry",)
        case catalog.StepCaught():
            matching_catch = [place for place, policy in enumerate(step.catch) if policy.step == data.target]
            return ("Catch", *matching_catch[:1])
    return ()


def _part_of_operation(step: Step, operation_type: str) -> tuple[str, ...]:
    if operation_type == SCRIPT_EXECUTION:
        return ("Script",)
    if operation_type in (AGENT_TURN, AGENT_RESPONSE, CACHED_RESPONSE):
        return ("Prompt",)
    return next(((key,) for key in ("Action", "Workflow", "Signal", "Seconds") if getattr(step, key.lower())), ())
