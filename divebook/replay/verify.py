"""Whether a definition still does what the log of an execution says: driven again, with no call made.

The first difference names event, step, line, and what was expected and came instead. What cannot be checked is said,
and never counts as equal (`tests/replay/test_verify.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, CACHED_RESPONSE, SCRIPT_EXECUTION
from divebook.errors import DivebookError, ExecutionError
from divebook.events import Event, catalog
from divebook.events.catalog import Payload
from divebook.execution.control import Control
from divebook.execution.definition_places import code_place
from divebook.execution.definitions import opening_in, workflow_in
from divebook.execution.engine_thread import ENGINE
from divebook.execution.execution import Execution
from divebook.execution.tracing import line_of
from divebook.keyboard import interruptible_result
from divebook.replay.driving import drive
from divebook.replay.sameness import differing, told
from divebook.replay.tape import Noted, Tape
from divebook.text.cuts import one_line
from divebook.text.redaction import shared
from divebook.text.shown import plural
from divebook.workflow.definition import Workflow
from divebook.workflow.functions import FUNCTION, WORKFLOW_FUNCTIONS
from divebook.workflow.sketch import Sketch
from divebook.workflow.step import Step

EQUAL, DIFFERS, UNCHECKED = "equal", "differs", "not checked"
_MOST, _PARTS = 400, 3
"""Characters of what was expected, and of what came; parts that differ of which is told."""


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first thing that a definition does otherwise than the log says."""

    sequence: int
    """The event of the log; one more than there are where the log has nothing more."""
    event_type: str
    """Of that event; empty where there is none."""
    path: str
    step: str
    """The step that does so; empty for the end of the execution."""
    place: str
    """The line of the definition or function: ``survey.yaml:7:11``, ``Cell [5], line 4``."""
    expected: str
    """What the log has, in words."""
    actual: str
    """What came instead, in words."""
    changed: tuple[str, ...] = ()
    """Where both are of one kind: the parts that differ, each with both texts in one."""

    def __str__(self) -> str:
        where = ", ".join(filter(None, (f"step {self.step!r}" if self.step else "", self.place)))
        event = f"event {self.sequence}" + (f" ({self.event_type})" if self.event_type else "")
        told = "; ".join(self.changed[:_PARTS])
        if more := len(self.changed[_PARTS:]):
            told += f" (and {plural(more, 'more part')})"
        return f"{event}{f', {where}' if where else ''}: {told or f'expected {self.expected}; got {self.actual}'}"


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of driving a definition against a log.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:")
    >>> execution = environment.start(Workflow("sum", [Step("add", script="1 + 1", store="n")])).wait()
    >>> found = environment.verify(execution.id)
    >>> found.equal, found.calls, found.divergence
    (True, 0, None)
    """

    execution_id: str
    workflow: str
    events: int
    """How many events the log has, as far as it can be read."""
    compared: int = 0
    """How many of them were met again; the others came from outside, or say how it began and ended."""
    answered: Mapping[str, int] = field(default_factory=dict)
    """How many operations were answered from the log, by type; ``question`` for answers of people."""
    divergence: FirstDifference | None = None
    """The first difference."""
    unchecked: Sequence[str] = ()
    """What could not be checked, and why."""
    calls: int = 0
    """How many calls were made to the outside: none, ever."""

    @property
    def equal(self) -> bool:
        """Whether all of it was checked, and nothing differs."""
        return self.divergence is None and not self.unchecked

    @property
    def outcome(self) -> str:
        """``equal``, ``differs`` or ``not checked``."""
        return EQUAL if self.equal else UNCHECKED if self.divergence is None else DIFFERS

    def __str__(self) -> str:
        served = plural(sum(self.answered.values()), "operation")
        counted = f"{plural(self.events, 'event')}, {served} answered from the log, {plural(self.calls, 'call')} made"
        lines = [f"{self.execution_id} of {self.workflow!r}: {self.outcome} ({counted})"]
        lines += [f"  {self.divergence}"] if self.divergence is not None else []
        return "\n".join([*lines, *(f"  not checked: {reason}" for reason in self.unchecked)])

    def __repr__(self) -> str:
        return str(self)


def verified(
    execution: Execution, control: Control, definition: Workflow | None = None, *, any_code: bool = False
) -> Verification:
    """Drive a definition against the log of an execution, without a call; return what came of it.

    Parameters
    ----------
    definition
        The definition to check; by default the one that the log holds. Functions are those of this process.
    any_code
        Functions need not be the code that ran: only what they do counts.

    Raises
    ------
    ExecutionError
        It is asked on the engine's own thread.
    """
    if ENGINE.is_current():
        raise ExecutionError(f"execution {execution.id} cannot be verified on the engine's thread; use another thread")
    events, unchecked = _sound(execution)
    workflow = definition or execution.workflow
    asked = Verification(execution.id, workflow.name, len(events), unchecked=unchecked)
    hindered = _hindered(workflow, events, control)
    if hindered:
        return Verification(execution.id, workflow.name, len(events), unchecked=(*unchecked, hindered))
    changed = () if any_code else _changed_functions(execution, workflow, control)
    tape = Tape(events)

    def workflow_at(number: int) -> Workflow:
        own = definition or workflow_in(execution.id, opening_in(execution.id, _openings(events, number)), events)
        return services.as_written(own)

    services = control.means.services
    driving = drive(tape, len(events), services, workflow_at)
    answered = interruptible_result(ENGINE.call(lambda: ENGINE.promise(driving)))
    noted = tape.first
    return Verification(
        execution.id,
        workflow.name,
        len(events),
        tape.claimed,
        dict(answered),
        None if noted is None else _divergence(noted, events, workflow_at(min(noted.sequence, len(events)))),
        (*asked.unchecked, *changed),
    )


def _sound(execution: Execution) -> tuple[Sequence[Event], tuple[str, ...]]:
    """Return the events that can be read, and what is to be said of those that cannot, and of the log as a whole."""
    damage = execution.damage
    if damage is None:
        events: Sequence[Event] = list(execution.history())
        is_picture = any(isinstance(event.data, catalog.ExecutionPictured) for event in events)
        return events, ("it is a picture of an execution that goes on elsewhere",) if is_picture else ()
    sound, _ = execution.store.read_sound(execution.id)
    events = sound[: execution.state.last_sequence]
    return events, (f"the log is damaged after event {len(events)}: {damage}",)


def _openings(events: Sequence[Event], number: int) -> Sequence[Event]:
    """Return the events that tell of the definition that holds from an event on."""
    forks = (event for event in events[1:number] if isinstance(event.data, catalog.ExecutionForked))
    return [events[0], *forks]


def _hindered(workflow: Workflow, events: Sequence[Event], control: Control) -> str:
    """Return why nothing of an execution can be checked here; empty if it can."""
    if isinstance(workflow, Sketch):
        return "no definition is recorded in its log"
    visited = {event.step for event in events if event.step}
    try:
        control.check(workflow, visited, ())
    except DivebookError as error:
        return one_line(str(error), _MOST)
    return ""


def _changed_functions(execution: Execution, workflow: Workflow, control: Control) -> tuple[str, ...]:
    """Return what is to be said of functions that are not those that the execution ran with."""
    then, now = execution.state.code, control.means.code_of(workflow)
    changed = sorted(name for name in then if name in now and now[name] != then[name])
    gone = sorted(name for name in then if name not in now)
    told = [f"{', '.join(changed)}: not the code that ran"] if changed else []
    return tuple(told + ([f"{', '.join(gone)}: not here any more"] if gone else []))


def _divergence(noted: Noted, events: Sequence[Event], workflow: Workflow) -> FirstDifference:
    event = events[noted.sequence - 1] if noted.sequence <= len(events) else None
    step = noted.step or ("" if event is None else event.step)
    expected = "nothing more" if event is None else told(event.data, event.step)
    actual = noted.actual if isinstance(noted.actual, str) else "nothing"
    changed: tuple[str, ...] = ()
    if isinstance(noted.actual, Payload):
        actual = told(noted.actual, noted.step)
        changed = () if event is None else tuple(differing(event.data, noted.actual))
    clean = shared().text
    return FirstDifference(
        noted.sequence,
        "" if event is None else event.event_type,
        noted.path,
        step,
        _place(noted, workflow, step, None if event is None else event.data),
        one_line(clean(expected), _MOST),
        one_line(clean(actual), _MOST),
        changed,
    )


def _place(noted: Noted, workflow: Workflow, name: str, data: Payload | None) -> str:
    """Return the line of the definition, or of the function, that does otherwise."""
    number = next((place for place, step in enumerate(workflow.steps) if step.name == name), None)
    if number is None:
        return workflow.written.where(("Outputs",) if isinstance(data, catalog.ExecutionCompleted) else ())
    step, did = workflow.steps[number], noted.actual
    if step.type == FUNCTION and workflow.name in WORKFLOW_FUNCTIONS:
        return str((noted.line or line_of(WORKFLOW_FUNCTIONS[workflow.name].function))["label"])
    part = _part_of(step, did if type(did) is type(data) else data)
    if part == ("Script",) and step.script:
        return str(code_place(workflow, step, step.script, 1)["label"])
    return workflow.written.where(("Steps", number, *part))


def _part_of(step: Step, data: Payload | str | None) -> tuple[str | int, ...]:
    """Return the part of a step that an event follows from; nothing for the step as a whole."""
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
            asked = [place for place, edge in enumerate(step.edges) if edge.condition == data.condition]
            return ("Next", *asked[:1])
        case catalog.PathBranched() | catalog.PathCompleted():
            return ("Next",)
        case catalog.StepRetried():
            return ("Retry",)
        case catalog.StepCaught():
            caught = [place for place, policy in enumerate(step.catch) if policy.step == data.target]
            return ("Catch", *caught[:1])
    return ()


def _part_of_operation(step: Step, operation_type: str) -> tuple[str, ...]:
    if operation_type == SCRIPT_EXECUTION:
        return ("Script",)
    if operation_type in (AGENT_TURN, AGENT_RESPONSE, CACHED_RESPONSE):
        return ("Prompt",)
    return next(((key,) for key in ("Action", "Workflow", "Signal", "Seconds") if getattr(step, key.lower())), ())
