"""How an execution begins that shares the first events of another one: what it drops, what it does otherwise.

What was begun there and has no end belongs to the source: its end comes to the source alone, and the fork begins it
anew or has it from the change. What was answered and what has ended stays (tests/engine/test_forked.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from immutables import Map

from divebook.engine.bounds import follow_about_bounds
from divebook.engine.changes import Draft, is_sleeping, of_the_source, without_a_call
from divebook.engine.checkpoint import placed
from divebook.engine.lifecycle import STATUS_AFTER, TERMINAL
from divebook.engine.operations import AGENT_RESPONSE, CHILD_WORKFLOW, ENCLOSING
from divebook.engine.state import (
    EMPTY,
    ENDED,
    NO_ROLLBACKS,
    READY,
    ROUTING,
    ExecutionState,
    Ledger,
    OpenStep,
    OperationRecord,
    PathState,
)
from divebook.errors import SetupError, did_you_mean
from divebook.events import catalog
from divebook.events.catalog import COMPLETED, FAILED, RUNNING, ExecutionForked
from divebook.events.codec import storable
from divebook.events.event import Event
from divebook.questions.bounds import Bounds
from divebook.questions.question import RESOURCE_EXHAUSTED
from divebook.text.arguments import normal_name
from divebook.workflow.definition import Workflow

# What a fork may do otherwise than its source: plain data, checked when it is made, kept in the fork's log.


_BY_KEY = {
    "variables": "names of variables",
    "inputs": "names of inputs",
    "results": "ids of operations (op_...)",
    "answers": "ids of questions (ask_...)",
    "prompts": "names of steps",
    "skipped": "ids of paths",
}
"""The parts that are mappings, and what leads to their values."""
_APART = ("definition", "model")
"""The parts that the event holds in fields of their own."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is otherwise from the point on at which an execution is forked; everything may be left out.

    Raises
    ------
    SetupError
        A part is not what it should be.
    UnstorableValueError
        No event can hold a value.

    Examples
    --------
    >>> Change(variables={"city": "Bonn"}).to_data()
    {'variables': {'city': 'Bonn'}}
    >>> Change.of({"model": "scripted"}).named
    ('model',)
    """

    variables: Mapping[str, Any] = field(default_factory=dict)
    """New values of variables."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """New values of inputs."""
    results: Mapping[str, Any] = field(default_factory=dict)
    """By operation: what it has returned."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """By question: its answer, in full form (`divebook.questions.answer`)."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """By step: its prompt."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """By path whose step has failed: what counts as the output of that step. It sets no variable."""
    model: str | None = None
    """The model of all agents, in place of theirs."""
    definition: Mapping[str, Any] | None = None
    """The workflow as plain data (`Workflow.to_dict`); a `Workflow` itself is taken too."""

    def __post_init__(self) -> None:
        for name, keys in _BY_KEY.items():
            object.__setattr__(self, name, _checked(name, keys, getattr(self, name)))
        for step, text in self.prompts.items():
            if not isinstance(text, str):
                raise SetupError(f"the prompt of step {step!r} must be a text, not {type(text).__name__}")
        for path, text in self.skipped.items():
            if not isinstance(text, str):
                raise SetupError(f"what counts for the step of path {path!r} is a text, not {type(text).__name__}")
        model: Any = self.model  # whatever a caller has
        if model is not None and (not isinstance(model, str) or not model):
            raise SetupError(f"model must be the name of a model (provider:model), not {model!r}")
        definition: Any = self.definition
        if isinstance(definition, Workflow):
            object.__setattr__(self, "definition", definition.to_dict())
        elif definition is not None and not isinstance(definition, Mapping):
            kind = type(definition).__name__
            raise SetupError(f"definition must be a workflow or its plain data, not {kind}; write workflow.to_dict()")

    @classmethod
    def of(cls, given: Change | Mapping[str, Any] | None) -> Change:
        """Return a change that is given in either form; None changes nothing."""
        if isinstance(given, Change):
            return given
        if not isinstance(given, Mapping | None):
            raise SetupError(f"a change is a mapping such as {{'variables': {{'x': 1}}}}, not {type(given).__name__}")
        known = [entry.name for entry in fields(cls)]
        for name in given or {}:
            if name not in known:
                advice = did_you_mean(str(name), known) or f"there are {', '.join(known)}"
                raise SetupError(f"a fork cannot change {name!r} ({advice})")
        return cls(**(given or {}))

    @classmethod
    def recorded(cls, data: ExecutionForked) -> Change:
        """Return the change that an event tells of."""
        return cls(**(data.change or {}), model=data.model, definition=data.definition)

    @property
    def named(self) -> tuple[str, ...]:
        """The parts that say something; none if nothing is changed."""
        told = ((entry.name, getattr(self, entry.name)) for entry in fields(self))
        return tuple(name for name, value in told if value not in (None, {}))

    def to_data(self) -> dict[str, Any]:
        """Return what an event holds of it in its field ``change``."""
        return {name: getattr(self, name) for name in self.named if name not in _APART}

    def workflow(self, source: Workflow) -> Workflow:
        """Return the workflow of a fork whose source has another; it itself if that stays as it is.

        Raises
        ------
        SetupError
            A prompt is to be changed where there is none, or the definition is none.
        DefinitionError
            The definition makes no sense.
        """
        if self.definition is not None and not _is_shaped(self.definition):
            raise SetupError(
                "definition must have a name and a list of steps, each plain data; write workflow.to_dict()"
            )
        changed = source if self.definition is None else replace(Workflow.from_dict(self.definition))
        if not self.prompts:
            return changed
        steps = {step.name: step for step in changed.steps}
        for name, text in self.prompts.items():
            if name not in steps or steps[name].prompt is None:
                with_prompt = [step.name for step in changed.steps if step.prompt is not None]
                advice = did_you_mean(name, with_prompt) or f"those that do: {', '.join(with_prompt) or 'none'}"
                raise SetupError(f"workflow {changed.name!r} has no step {name!r} with a prompt ({advice})")
            steps[name] = replace(steps[name], prompt=text)
        return replace(changed, steps=tuple(steps.values()))


def _is_shaped(definition: Mapping[str, Any]) -> bool:
    """Whether it can be read as a workflow at all; its rules are checked where it is read."""
    name = definition.get("name")
    steps = definition.get("steps")
    return isinstance(name, str) and isinstance(steps, Sequence) and all(isinstance(step, Mapping) for step in steps)


def _checked(name: str, keys: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise SetupError(f"{name} of a change must map {keys} to what is new, not {type(given).__name__}")
    for key in given:
        if not isinstance(key, str) or not key:
            raise SetupError(f"{name} of a change must map {keys} to what is new; {key!r} is no such name")
    return {normal_name(key): storable(value, f"{name}.{key}") for key, value in given.items()}


CHANGED_BY = "change"
"""Who has answered a question whose answer a change has."""
_ALONE = (catalog.PathBranched, catalog.StepFailed)
"""Facts after which the path has still to be told what follows from them."""
_TOGETHER = frozenset(
    {
        (catalog.PathCompleted, catalog.PathJoined),
        (catalog.PathCompleted, catalog.PathCompleted),
        (catalog.StateMutated, catalog.StepCompleted),
        (catalog.StateMutated, catalog.StepCaught),
        (catalog.StateMutated, catalog.RollbackAdded),
        (catalog.RollbackAdded, catalog.StepCompleted),
        (catalog.RollbackAdded, catalog.IterationCompleted),
        (catalog.OperationCompleted, catalog.RollbackAdded),
        (catalog.OperationFailed, catalog.StepRetried),
    }
)
"""Facts that follow from one rule (`divebook.engine.decide`), so that nothing may come between them."""


def execution_forked(draft: Draft, data: catalog.ExecutionForked) -> None:
    """Drop what was in flight, and change what the fork is to have otherwise."""
    change = Change.recorded(data)
    _begin_anew(draft, data)
    if data.only is not None:
        _keep_only(draft, data.only)
    for path in list(draft.paths.values()):
        if path.open is not None or path.asking:
            own = draft.own(path.id)
            own.asking = 0
            opened = own.open
            own.open = None if own.open is None else _without_calls(own, own.open, change)
            draft.ledger = _without_dropped(draft.ledger, own, opened)
    _skip_failed(draft, change)
    _set_variables(draft, change)
    _settle_questions(draft, change)
    if change.inputs:
        draft.inputs = {**draft.inputs, **change.inputs}
        draft.edited_inputs = tuple(sorted({*draft.edited_inputs, *change.inputs}))
    draft.asking, draft.sleeping = 0, sum(is_sleeping(path) for path in draft.paths.values() if path.phase != ENDED)


def _begin_anew(draft: Draft, data: catalog.ExecutionForked) -> None:
    """Let the fork's time, money and messages be its own; what was spent still counts for its bounds."""
    draft.lifecycle = RUNNING
    draft.started_us = draft.moment
    draft.paused_us = 0
    draft.ended_us = draft.error = draft.reason = draft.stopped = draft.paused = draft.failed_path = None
    draft.parent = data.awaited_by
    draft.continued_as = None
    draft.queue = None
    draft.priority = 0
    draft.due_us = None
    draft.outputs = EMPTY
    draft.taken = 0
    draft.inherited = draft.usage
    # its source undoes what that did
    draft.rollbacks = NO_ROLLBACKS
    draft.rolling_back = None
    draft.undone_from = 0
    draft.ledger = draft.ledger._replace(reserved_tokens=0, reserved_cost=0, reserved_calls=0)
    draft.tools = data.tools
    draft.only = data.only or EMPTY
    draft.workspaces = of_the_source(draft.workspaces)
    draft.seed = data.seed or draft.seed
    draft.fingerprint = data.fingerprint or draft.fingerprint
    draft.code = draft.code if data.code is None else data.code
    draft.model = data.model or draft.model
    draft.identity = draft.identity if data.identity is None else data.identity
    draft.bounds = draft.bounds if data.bounds is None else Bounds.from_dict(data.bounds)


def _keep_only(draft: Draft, only: Mapping[str, Any]) -> None:
    """Let one path enter its step, and the others come to nothing more (test_other_paths_do_nothing_in_a_trial)."""
    for path in list(draft.paths.values()):
        own = draft.own(path.id)
        own.open = None
        own.hop = None
        own.routing = ()
        if path.id != only["path"]:
            own.phase = ENDED
            own.status = COMPLETED
            own.ended_us = own.ended_us or draft.moment
    own = draft.own(only["path"])
    own.phase = READY
    own.current_step = only["step"]
    draft.active = 1
    draft.joining = 0


def _without_calls(path: PathState, opened: OpenStep, change: Change) -> OpenStep:
    """Return an open step without the calls that are the source's, and with the results that are changed."""
    kept: dict[str, OperationRecord] = {}
    for key, record in opened.operations.items():
        if key in change.results:
            kept[key] = record.ended(0, COMPLETED, (change.results[key], None, (), None))
        elif not _is_the_sources(path, opened, record):
            kept[key] = record._replace(reserved=None)
    for key, record in kept.items():
        if record.holds:
            kept[key] = record._replace(holds=tuple(held for held in record.holds if held in kept))
    return opened._replace(operations=Map(kept))


def _without_dropped(ledger: Ledger, path: PathState, before: OpenStep | None) -> Ledger:
    """Return the ledger without the model calls of a step that were dropped: they count in the source alone."""
    if before is None or path.open is None:
        return ledger
    for key, record in before.operations.items():
        if record.operation_type == AGENT_RESPONSE and key not in path.open.operations:
            ledger = without_a_call(ledger, path)
    return ledger


def _is_the_sources(path: PathState, opened: OpenStep, record: OperationRecord) -> bool:
    if record.operation_type in ENCLOSING:  # entered again, with what has ended in it
        return False
    if record.operation_type == CHILD_WORKFLOW and record.status != COMPLETED and path.phase == ENDED:
        return opened.ended_by is None or record.operation_id in opened.ended_by  # a resumption would drive it on
    return record.status not in (COMPLETED, FAILED)


def _skip_failed(draft: Draft, change: Change) -> None:
    """Let paths go on behind their steps that have failed."""
    for name, output in change.skipped.items():
        path = draft.own(name)
        step = path.current_step
        path.status = RUNNING
        path.phase = ROUTING
        path.left = ROUTING
        path.open = None
        path.last_step = step
        path.routing = ()
        path.error = None
        path.reason = None
        path.ended_us = None
        path.variables = draft.variables
        path.variables_at = draft.variables_at
        path.step_outputs = path.step_outputs.set(step, output)
        path.outputs_at = placed(path.outputs_at, step, output, draft.last_sequence)


def _set_variables(draft: Draft, change: Change) -> None:
    """Set variables for all that is still to come: also as open steps and choices read them."""
    told = change.variables
    if not told:
        return
    draft.variables, draft.variables_at = draft.variables.update(told), _without(draft.variables_at, told)
    for path in list(draft.paths.values()):
        if path.phase != ENDED or path.open is not None:
            own = draft.own(path.id)
            own.variables, own.variables_at = own.variables.update(told), _without(own.variables_at, told)
            if own.open is not None:
                entry = own.open.entry_variables.update(told)
                places = _without(own.open.entry_at, told)
                own.open = own.open._replace(entry_variables=entry, entry_at=places)


def _without(places: Map[str, int], names: Iterable[str]) -> Map[str, int]:
    for name in names:
        if name in places:
            places = places.delete(name)
    return places


def _settle_questions(draft: Draft, change: Change) -> None:
    """Drop the open questions, which are asked anew, and give those an answer for which the change has one."""
    for question in list(draft.interrupts.values()):
        if question.id in change.answers:
            answer = catalog.InterruptResolved(question.id, change.answers[question.id], CHANGED_BY)
            settled = question.resolved(answer)._replace(settled_us=draft.moment, waiting=())
            draft.interrupts = draft.interrupts.set(question.id, settled)
            if question.kind == RESOURCE_EXHAUSTED:
                follow_about_bounds(draft, settled)
        elif question.is_open:
            draft.interrupts = draft.interrupts.delete(question.id)


# --- before it begins ------------------------------------------------------------------------------------------------


def require_reach(change: Change, source: ExecutionState) -> None:
    """Raise `SetupError` unless all that a change names is there as its source stood at the event of the fork."""
    opened = [path.open for path in source.paths.values() if path.open is not None]
    known = {key for found in opened for key in found.operations}
    place = f"event {source.last_sequence} of execution {source.execution_id}"
    for operation in change.results:
        if operation not in known:
            raise SetupError(
                f"the result of {operation} cannot be changed at {place}: no step that is open there has begun it. "
                "Fork at an event after its operation_started and before the end of its step"
            )
    for question in change.answers:
        if question not in source.interrupts:
            asked = ", ".join(source.interrupts) or "none"
            raise SetupError(f"question {question} has not been asked by {place} (asked: {asked}); fork at a later one")
    for name in change.skipped:
        found = source.paths.get(name)
        if found is None or found.status != FAILED or found.open is None:
            failed = ", ".join(path.id for path in source.paths.values() if path.status == FAILED) or "none"
            raise SetupError(f"no step of path {name!r} has failed at {place} (paths that failed: {failed})")
    for name in change.inputs:
        if name not in source.inputs:
            raise SetupError(f"there is no input {name!r} to change (inputs: {', '.join(source.inputs) or 'none'})")


def snapped(events: Sequence[Event], at: int) -> int:
    """Return the event after which an execution can be forked that is to be forked after event `at`.

    What follows from one rule is not cut in half, and an end is not shared, nor that what was done is undone: nothing
    else could follow it.

    Parameters
    ----------
    events
        The whole log, from event 1 on.
    """
    while at < len(events) and _goes_on(events[at - 1].data, events[at].data):
        at += 1
    turns = [event for event in events[:at] if type(event.data) in STATUS_AFTER]
    while turns and STATUS_AFTER[type(turns[-1].data)] in TERMINAL:  # people may have said something since
        at = turns.pop().sequence - 1
    undone = (event.sequence for event in events[:at] if isinstance(event.data, catalog.RollbackStarted))
    return min(undone, default=at + 1) - 1


def _goes_on(data: catalog.Payload, following: catalog.Payload) -> bool:
    return isinstance(data, _ALONE) or (type(data), type(following)) in _TOGETHER


def opened_as(first: catalog.ExecutionStarted, forks: Iterable[catalog.ExecutionForked]) -> catalog.ExecutionStarted:
    """Return what an execution begins with whose log has these openings, the first one and then the later ones.

    Examples
    --------
    >>> forked = catalog.ExecutionForked("exec_1", 7, "w", change={"inputs": {"x": 2}})
    >>> opened = opened_as(catalog.ExecutionStarted("w", {"x": 1, "y": 0}), [forked])
    >>> dict(opened.inputs), opened.parent, opened.came_from
    ({'x': 2, 'y': 0}, 'exec_1', 'fork')
    """
    opening = first
    for fork in forks:
        told: dict[str, Any] = {"bounds": fork.bounds, "identity": fork.identity, "seed": fork.seed, "code": fork.code}
        told |= {"model": fork.model, "written_by": fork.written_by, "fingerprint": fork.fingerprint}
        if fork.definition is not None:
            told |= {"definition": fork.definition, "source": fork.text or ""}
        opening = replace(
            opening,
            **{name: value for name, value in told.items() if value is not None},
            inputs={**opening.inputs, **Change.recorded(fork).inputs},
            parent=fork.source,
            origin=fork.came_from,
            key=fork.key,
            tags=fork.tags,
            note=fork.note,
            notebook=fork.notebook,
            cell=fork.cell,
        )
    return opening
